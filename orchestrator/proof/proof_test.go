package proof_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/proof"
)

var (
	one   = proof.Key{ID: "one", Secret: []byte("the first")}
	other = proof.Key{ID: "other", Secret: []byte("the second")}
)

func attempt() proof.Attempt {
	return proof.Attempt{Namespace: "waybill", Order: "o-1", Step: "charge", Number: 2, Agent: "payment"}
}

// ADR 0026: the token of one attempt is none of another, whatever differs, also where the same
// letters are in other fields.
func TestATokenIsOfOneAttempt(t *testing.T) {
	keys := proof.New([]proof.Key{one}, proof.Watch, nil)
	seen := make(map[string]proof.Attempt)
	for _, change := range []func(*proof.Attempt){
		func(*proof.Attempt) {},
		func(a *proof.Attempt) { a.Namespace = "waybil" },
		func(a *proof.Attempt) { a.Order = "o-2" },
		func(a *proof.Attempt) { a.Step = "refund" },
		func(a *proof.Attempt) { a.Agent = "stock" },
		func(a *proof.Attempt) { a.Number = 3 },
		func(a *proof.Attempt) { a.Undo = true },
		func(a *proof.Attempt) { a.Namespace, a.Order = "waybillo", "-1" },
		func(a *proof.Attempt) { a.Order, a.Step = "o-1charge", "" },
		func(a *proof.Attempt) { a.Step, a.Agent = "chargep", "ayment" },
	} {
		a := attempt()
		change(&a)
		token := keys.Token(&a)
		if same, twice := seen[token]; twice {
			t.Errorf("%+v and %+v have the token %s", a, same, token)
		}
		seen[token] = a
		if !keys.Repeats(&a, token) {
			t.Errorf("%s is not believed", token)
		}
		if first := attempt(); a != first && keys.Repeats(&first, token) {
			t.Errorf("the token of %+v is one of %+v", a, first)
		}
	}
}

// Two keys are believed, and the first signs; without a key nothing is.
func TestKeysAreChanged(t *testing.T) {
	a := attempt()
	before, both, after := proof.New([]proof.Key{one}, proof.Watch, nil), proof.New([]proof.Key{other, one}, proof.Watch, nil), proof.New([]proof.Key{other}, proof.Watch, nil)
	token := before.Token(&a)
	if !strings.HasPrefix(token, "one.") || !strings.HasPrefix(both.Token(&a), "other.") {
		t.Errorf("signed by %s and %s", token, both.Token(&a))
	}
	if !both.Repeats(&a, token) || after.Repeats(&a, token) {
		t.Errorf("%s is believed with its key: %t, without: %t", token, both.Repeats(&a, token), after.Repeats(&a, token))
	}
	if !both.Knows(token) || after.Knows(token) || both.Knows("") || strings.Join(both.IDs(), " ") != "other one" {
		t.Errorf("it knows %v", both.IDs())
	}
	for _, wrong := range []string{"", ".", "one", "one.", token + "x", token[:len(token)-1], "other" + strings.TrimPrefix(token, "one"), strings.TrimPrefix(token, "one.")} {
		if both.Repeats(&a, wrong) {
			t.Errorf("%q is believed", wrong)
		}
	}
	var none *proof.Keys
	if none.Token(&a) != "" || none.Repeats(&a, token) || none.Repeats(&a, "") || none.Knows(token) || len(none.IDs()) > 0 || none.Setting("payment") != proof.Off || none.Sign("n", "o", nil, new(events.Actor)) != nil || none.Actor("n", "o", nil, []byte("one..{}")) != nil {
		t.Error("no keys sign, or believe")
	}
	if none = proof.New(nil, proof.Require, nil); none.Setting("payment") != proof.Off || none.Token(&a) != "" {
		t.Error("a file without keys asks for tokens")
	}
}

func TestSettingsAreOfAgents(t *testing.T) {
	keys := proof.New([]proof.Key{one}, proof.Watch, map[string]proof.Setting{"payment": proof.Require})
	if keys.Setting("payment") != proof.Require || keys.Setting("stock") != proof.Watch {
		t.Error(keys.Setting("payment"), keys.Setting("stock"))
	}
}

// ADR 0026: what is kept of a reply has no token, however that was written.
func TestNoTokenIsKept(t *testing.T) {
	keys, a := proof.New([]proof.Key{other, one}, proof.Watch, nil), attempt()
	token := keys.Token(&a)
	for _, text := range []string{
		`{"order":"o-1","token":"TOKEN","output":{"token":"mine"}}`,
		`{ "token" : "TOKEN" , "x":[1, 2] }`,
		`{"tok\u0065n":"TOKEN"}`,
		`{"token":"first","token":"TOKEN"}`,
		`{"token":"TOKEN","order":`,
	} {
		value := strings.ReplaceAll(text, "TOKEN", token)
		kept, sure := proof.Hidden([]byte(value))
		if hidden := string(kept); !sure || strings.Contains(hidden, token) || strings.Contains(text, "mine") && !strings.Contains(hidden, `{"token":"mine"}`) || len(hidden) > len(value) {
			t.Errorf("%s: %s", value, hidden)
		}
	}
	for _, plain := range []string{"", "null", "[]", "not json", `{"order":"o-1"}`, `{"token":""}`, `{"token":7}`} {
		if hidden, sure := proof.Hidden([]byte(plain)); string(hidden) != plain || !sure {
			t.Errorf("%q became %q, sure: %t", plain, hidden, sure)
		}
	}
	for _, unread := range []string{`{"output":"\xff","token":"TOKEN"}`, `{"output":NaN,"token":"TOKEN"}`, "{\"output\":\"\n\",\"token\":\"TOKEN\"}", `token`} {
		if hidden, sure := proof.Hidden([]byte(unread)); sure {
			t.Errorf("it is sure of %q", hidden)
		}
	}
}

// Hiding changes nothing but the token, whatever the reply.
func TestHidingLeavesTheRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := events.Reply{
			Order: rapid.String().Draw(t, "order"), Step: "s", Attempt: 1, Token: rapid.StringN(1, 60, 200).Draw(t, "token"), Status: events.ReplyCompleted,
			Output: []byte(rapid.SampledFrom([]string{`{"token":"x"}`, `"token"`, `[{"a":"\"token\":"}]`, ""}).Draw(t, "output")),
		}
		value := r.Append(nil)
		first, err := events.Decode[events.Reply](value)
		if err != nil {
			t.Fatalf("%s: %v", value, err)
		}
		kept, sure := proof.Hidden(value)
		hidden, err := events.Decode[events.Reply](kept)
		if err != nil || hidden.Token != "" || !sure {
			t.Fatalf("%s: %+v, %v", value, hidden, err)
		}
		if hidden.Token, first.Token = "", ""; string(hidden.Append(nil)) != string(first.Append(nil)) {
			t.Fatalf("%+v became %+v", first, hidden)
		}
	})
}

// ADR 0026: nothing that a signature is over can be another.
func TestASignatureIsOfOneCommand(t *testing.T) {
	keys := proof.New([]proof.Key{one}, proof.Watch, nil)
	actor := &events.Actor{Method: "oidc", Issuer: "https://id.example", Roles: []string{"operator"}, At: time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)}
	value := []byte(`{"command":"cancel","by":"ana"}`)
	signed := keys.Sign("waybill", "o-1", value, actor)
	if got := keys.Actor("waybill", "o-1", value, signed); got == nil || got.Method != actor.Method || got.Issuer != actor.Issuer || !got.At.Equal(actor.At) || len(got.Roles) != 1 {
		t.Errorf("%s is by %+v", signed, got)
	}
	if got := proof.New([]proof.Key{other, one}, proof.Off, nil).Actor("waybill", "o-1", value, signed); got == nil {
		t.Error("the key of before is not believed")
	}
	for name, got := range map[string]*events.Actor{
		"of another namespace": keys.Actor("waybil", "o-1", value, signed),
		"for another order":    keys.Actor("waybill", "o-2", value, signed),
		"of another command":   keys.Actor("waybill", "o-1", bytes.ReplaceAll(value, []byte("ana"), []byte("bob")), signed),
		"by another method":    keys.Actor("waybill", "o-1", value, bytes.ReplaceAll(signed, []byte("oidc"), []byte("key"))),
		"with another role":    keys.Actor("waybill", "o-1", value, bytes.ReplaceAll(signed, []byte("operator"), []byte("admin"))),
		"by another key":       proof.New([]proof.Key{{ID: "one", Secret: []byte("guessed")}}, proof.Off, nil).Actor("waybill", "o-1", value, signed),
		"without a key":        proof.New([]proof.Key{other}, proof.Off, nil).Actor("waybill", "o-1", value, signed),
		"without anything":     keys.Actor("waybill", "o-1", value, nil),
		"as a token":           keys.Actor("waybill", "o-1", value, []byte(keys.Token(&proof.Attempt{Namespace: "waybill", Order: "o-1"}))),
	} {
		if got != nil {
			t.Errorf("%s it is by %+v", name, got)
		}
	}
}

func TestIDsOfKeys(t *testing.T) {
	for id, want := range map[string]bool{"2030-01": true, "k": true, "": false, "a.b": false, "a_b": false, strings.Repeat("k", 32): true, strings.Repeat("k", 33): false, "é": false} {
		if proof.ValidID(id) != want {
			t.Errorf("%q: %t", id, !want)
		}
	}
}

func BenchmarkToken(b *testing.B) {
	keys, a := proof.New([]proof.Key{one}, proof.Watch, nil), attempt()
	b.ReportAllocs()
	for b.Loop() {
		keys.Token(&a)
	}
}

// A key vouches for the address of one instance of one namespace; without keys any counts.
func TestAnAddressIsVouchedFor(t *testing.T) {
	keys := proof.New([]proof.Key{one}, proof.Off, nil)
	code := keys.Vouch("waybill", "i-1", "http://i-1:8080")
	for _, c := range []struct {
		keys                               *proof.Keys
		namespace, instance, address, code string
		want                               bool
	}{
		{keys, "waybill", "i-1", "http://i-1:8080", code, true},
		{proof.New([]proof.Key{other, one}, proof.Off, nil), "waybill", "i-1", "http://i-1:8080", code, true},
		{proof.New([]proof.Key{other}, proof.Off, nil), "waybill", "i-1", "http://i-1:8080", code, false},
		{keys, "waybil", "li-1", "http://i-1:8080", code, false},
		{keys, "waybill", "i-2", "http://i-1:8080", code, false},
		{keys, "waybill", "i-1", "http://i-1:8081", code, false},
		{keys, "waybill", "i-1", "http://i-1:8080", "", false},
		{keys, "waybill", "i-1", "http://i-1:8080", "one.", false},
		{nil, "waybill", "i-1", "http://i-1:8080", "", true},
		{proof.New(nil, proof.Off, nil), "waybill", "i-1", "http://i-1:8080", code, true},
	} {
		if got := c.keys.Vouches(c.namespace, c.instance, c.address, c.code); got != c.want {
			t.Errorf("%+v is believed: %t", c, got)
		}
	}
	if none := (*proof.Keys)(nil).Vouch("waybill", "i-1", "http://i-1:8080"); none != "" {
		t.Errorf("without keys %q is said", none)
	}
}
