package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/test/issuer"
	"github.com/waybill-dev/waybill/test/oracle"
)

const secretFlow = `
workflow: secret
steps:
  - {name: credit, approve: {roles: [clerk], show: input}}
  - {name: last, agent: nobody, after: [credit]}
`

// Who may see them sees payloads decoded, on pages and by the command line; where the codec is away pages come all the same, and
// say so. What is put back is what is stored.
func TestDecoded(t *testing.T) {
	clearEnvironment(t)
	i := issuer.New(t)
	var away atomic.Bool
	var asked atomic.Int64
	var tokens atomic.Value
	decoder := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		tokens.Store(r.Header.Get("Authorization"))
		if away.Load() {
			http.Error(w, "", http.StatusBadGateway)
			return
		}
		var m struct {
			Payloads []json.RawMessage `json:"payloads"`
		}
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			t.Error(err)
		}
		for n, p := range m.Payloads {
			m.Payloads[n] = bytes.ReplaceAll(p, []byte("enc:"), []byte("clear:<b>"))
		}
		if err := json.NewEncoder(w).Encode(m); err != nil {
			t.Error(err)
		}
	}))
	defer decoder.Close()
	file, key := accessFile(t, "admin", "oidc:\n  issuer: "+i.URL+"\n  audience: "+issuer.Client+"\n  subject: email\n  roles: [{group: ops, roles: [admin]}, {group: viewers, roles: [viewer]}, {group: clerks, roles: [approver/clerk]}]\n")
	for address, want := range map[string]string{"http://codec.example": "--codec: tokens and what is decoded would pass in clear", "codec.example": "--codec: use an address"} {
		waybill(t, "", "dev", "--data-dir", t.TempDir(), "--kafka-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0", "--codec", address).want(t, 2, "", want)
	}
	server, brokers, _ := startDev(t, t.TempDir(), "--access", file, "--codec", decoder.URL)
	t.Setenv("WAYBILL_SERVER", server)
	t.Setenv("WAYBILL_TOKEN", key)
	waybill(t, "", "workflow", "register", write(t, "secret.yaml", secretFlow)).want(t, 0, "secret@1", "")
	waybill(t, "", "submit", "secret", "--id", "s-1", "--input", `{"card":"enc:1"}`).want(t, 0, "s-1", "")
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "waybill.orders", Key: []byte("@own"), Value: []byte(`{"workflow":"secret","input":"enc:2"}`)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	letter := ""
	oracle.Until(t, "the order asks, and the dead letter is there", func() error {
		if said := waybill(t, "", "order", "get", "s-1"); !strings.Contains(said.out, "approving") {
			return fmt.Errorf("%s", said.out)
		}
		letter = strings.TrimSpace(waybill(t, "", "dead-letters", "list", "-o", "name").out)
		if letter == "" {
			return fmt.Errorf("no letter")
		}
		return nil
	})

	if asked.Load() != 0 {
		t.Error("the codec was asked by who did not ask for it")
	}
	waybill(t, "", "order", "get", "s-1").want(t, 0, `{"card":"enc:1"}`, "")
	waybill(t, "", "order", "get", "s-1", "--decode").want(t, 0, `clear:<b>1`, "")
	if tokens.Load() != "" {
		t.Errorf("the key went to the codec: %v", tokens.Load())
	}
	waybill(t, "", "order", "get", "s-1", "--decode", "--as-of", "1").want(t, 0, `clear:<b>1`, "")
	waybill(t, "", "order", "history", "s-1", "--decode", "-o", "json").want(t, 0, `clear:`, "")
	waybill(t, "", "dead-letters", "show", letter, "--decode").want(t, 0, `clear:<b>2`, "")
	waybill(t, "", "dead-letters", "show", letter, "--value").want(t, 0, `enc:2`, "")
	waybill(t, "", "dead-letters", "show", letter, "--decode", "--value").want(t, 2, "", "--value prints what was put aside")
	waybill(t, "", "submit", "order-fulfilment", "--id", "o-1", "--input", `{"card":"declined","note":"enc:3"}`, "--wait").want(t, 7, "", "")
	waybill(t, "", "order", "resubmit", "o-1", "--input", `{"card":"declined","note":"enc:4"}`, "--step", "charge").want(t, 0, "", "")
	oracle.Until(t, "it has failed again", func() error {
		if said := waybill(t, "", "order", "history", "o-1"); strings.Count(said.out, "step.failed") != 2 {
			return fmt.Errorf("%s", said.out)
		}
		return nil
	})
	token := i.Token(nil)
	waybill(t, "", "order", "get", "s-1", "--decode", "--token", token).want(t, 0, `clear:<b>1`, "")
	if tokens.Load() != "Bearer "+token {
		t.Error("the token did not go to the codec")
	}

	b := newBrowser(t, server)
	come := func(as string) {
		b.send(200, "/logout", "")
		b.send(200, "/login", "to=%2F&key="+as)
	}
	come(token)
	const decoded, stored = "as the codec decodes them for you", "enc:1"
	b.page(200, "/orders/s-1", "clear:&lt;b&gt;1", decoded, "!"+stored, "!<b>1")
	b.page(200, "/orders/s-1?event=1", "clear:&lt;b&gt;1", decoded, "!"+stored)
	b.page(200, "/approvals", "clear:&lt;b&gt;1", decoded, "!"+stored)
	b.page(200, "/orders/o-1/attempts?of=charge", "clear:&lt;b&gt;3", "clear:&lt;b&gt;4", decoded, "!enc:")
	if page := b.page(200, "/dead-letters/"+letter, "clear:&lt;b&gt;2", decoded); strings.Count(page, "enc:2") != 2 || strings.Count(page, "clear:") != 1 { // as it is stored, and as it is put back
		t.Error(page)
	}
	if tokens.Load() != "Bearer "+token {
		t.Error("the token of the log-in did not go to the codec")
	}

	// Who looks again is answered anew: nobody's page is kept for another, or for when the codec says otherwise.
	tag := func(has string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server+"/approvals", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("If-None-Match", has)
		answer, err := b.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if answer.Header.Get("Cache-Control") != "private, no-store" {
			t.Errorf("%v", answer.Header)
		}
		return answer.StatusCode, answer.Header.Get("ETag")
	}
	_, was := tag("")
	before := asked.Load()
	if status, _ := tag(was); status != http.StatusNotModified || asked.Load() == before {
		t.Errorf("the same page: %d, and the codec was asked %d times", status, asked.Load()-before)
	}
	away.Store(true)
	if status, _ := tag(was); status != http.StatusOK {
		t.Errorf("once the codec decodes nothing: %d", status)
	}
	before = asked.Load()
	b.page(200, "/orders/s-1", stored, "!clear:", "not decoded: the codec answered 502 Bad Gateway", "order.accepted")
	if n := asked.Load() - before; n != 1 {
		t.Errorf("a codec that is away is asked %d times for a page", n)
	}
	b.page(200, "/dead-letters/"+letter, "enc:2", "!clear:", "not decoded: the codec answered 502")
	waybill(t, "", "order", "get", "s-1", "--decode").want(t, 0, `enc:1`, "not decoded: the codec answered 502 Bad Gateway.")
	waybill(t, "", "order", "history", "s-1", "--decode").want(t, 0, `credit`, "not decoded")
	waybill(t, "", "dead-letters", "show", letter, "--decode", "-o", "json").want(t, 0, `"undecoded": "the codec answered 502`, "not decoded")
	away.Store(false)

	waybill(t, "", "order", "terminate", "o-1", "--note", "enough").want(t, 0, "", "")
	waybill(t, "", "order", "history", "o-1", "-f", "--decode", "-o", "json").want(t, 0, "clear:<b>4", "")
	away.Store(true)
	waybill(t, "", "order", "history", "o-1", "-f", "--decode", "-o", "json").want(t, 0, "enc:4", "not decoded: the codec answered 502")
	away.Store(false)

	// Who may not read them has the codec not even be asked; who decides sees what it is about.
	i.Claim("groups", []string{"viewers"})
	come(i.Token(nil))
	before = asked.Load()
	b.page(200, "/orders/s-1", "!"+stored, "!clear:", "!"+decoded, "left out")
	b.page(200, "/approvals", "!"+stored, "!clear:", "!"+decoded)
	if n := asked.Load() - before; n != 0 {
		t.Errorf("the codec is asked %d times for who may read nothing", n)
	}
}
