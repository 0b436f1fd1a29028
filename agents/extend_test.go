package agents_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/events"
)

// askedLongAgo asks as if that was an hour ago.
func (k *kafka) askedLongAgo(r events.Request) {
	k.Helper()
	e := events.Envelope{Source: "/test", Type: events.StepRequested, ID: r.Order, Order: r.Order, Time: time.Now().Add(-time.Hour), Traceparent: trace}
	k.produce(e.Record(queue, r.Append(nil)))
}

// A4: a handler that is still at it has more time, as the request allows, and says so no more often than
// it gains something by it.
func TestExtend(t *testing.T) {
	k := newKafka(t, 1)
	type seen struct {
		begun, after, again time.Time
		late                context.Context
	}
	handled := make(chan seen, 2)
	k.serve(k.config(), agents.Operations{"charge": agents.Do(func(ctx context.Context, req agents.Request[charge]) (receipt, error) {
		var s seen
		child := context.WithoutCancel(ctx) // which still knows the attempt
		s.late = child
		s.begun, _ = ctx.Deadline()
		if err := agents.Extend(child); err != nil {
			t.Errorf("extend: %v", err)
		}
		s.after, _ = ctx.Deadline()
		if err := agents.Extend(ctx); err != nil { // by which nothing would be gained
			t.Errorf("extend again: %v", err)
		}
		s.again, _ = ctx.Deadline()
		handled <- s
		return pay(ctx, req)
	})})

	r := request("o-1", "charge", `{"amount":7}`)
	r.CompleteBy = events.Time(time.Now().Add(time.Hour)) // of which an hour has gone
	r.ExtendTo = r.CompleteBy.Add(12 * time.Hour)
	k.askedLongAgo(r)
	got := await(t, "the handler", handled)
	if !got.begun.Equal(r.CompleteBy) || got.after.Before(r.CompleteBy.Add(29*time.Minute)) || got.after.After(r.CompleteBy.Add(31*time.Minute)) || !got.again.Equal(got.after) {
		t.Errorf("its complete-by was %v, then %v and %v", got.begun, got.after, got.again)
	}
	said := k.records(2)
	if want := `{"order":"o-1","step":"pay","attempt":2,"token":"k1.of-o-1","status":"progress"}`; string(said[0].Value) != want || events.Header(said[0], "ce_source") != "/waybill/agents/payment" {
		t.Errorf("it said %s", said[0].Value)
	}
	if want := `{"order":"o-1","step":"pay","attempt":2,"token":"k1.of-o-1","status":"completed","output":{"id":"o-1-7"}}`; string(said[1].Value) != want {
		t.Errorf("it answered %s", said[1].Value)
	}
	if err := agents.Extend(got.late); err == nil {
		t.Error("more time after the answer")
	}

	// No later than the request allows.
	r = request("o-2", "charge", `{"amount":7}`)
	r.CompleteBy = events.Time(time.Now().Add(time.Hour))
	r.ExtendTo = r.CompleteBy.Add(45 * time.Minute)
	k.askedLongAgo(r)
	if got := await(t, "the handler", handled); got.after.Before(r.CompleteBy) || got.after.After(r.ExtendTo.Add(-30*time.Minute)) {
		t.Errorf("it may take until %v, and believes %v", r.ExtendTo, got.after)
	}
	k.records(2)
}

// What Kafka did not take is said again by the next call.
func TestExtendAgain(t *testing.T) {
	k := newKafka(t, 1)
	handled := make(chan error, 3)
	k.serve(k.config(), agents.Operations{"charge": agents.Do(func(ctx context.Context, req agents.Request[charge]) (receipt, error) {
		k.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: replies, Err: kerr.TopicAuthorizationFailed})
		before, _ := ctx.Deadline()
		for range 2 {
			handled <- agents.Extend(ctx)
		}
		if after, _ := ctx.Deadline(); !after.After(before) {
			t.Errorf("its complete-by was %v, and is %v", before, after)
		}
		return pay(ctx, req)
	})})
	r := request("o-1", "charge", `{"amount":7}`)
	r.CompleteBy = events.Time(time.Now().Add(time.Hour))
	r.ExtendTo = r.CompleteBy.Add(12 * time.Hour)
	k.askedLongAgo(r)
	if err := await(t, "the first", handled); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("it was not taken, and failed with %v", err)
	}
	if err := await(t, "the second", handled); err != nil {
		t.Errorf("it failed with %v", err)
	}
	var said []string
	for _, r := range k.records(2) {
		reply, err := events.Decode[events.Reply](r.Value)
		if err != nil {
			t.Fatal(err)
		}
		said = append(said, reply.Status)
	}
	if want := []string{events.ReplyProgress, events.ReplyCompleted}; !slices.Equal(said, want) {
		t.Errorf("it said %q", said)
	}
}

// Who cannot have more time hears why.
func TestExtendInVain(t *testing.T) {
	if err := agents.Extend(t.Context()); err == nil {
		t.Error("more time for no attempt")
	}
	if _, err := agents.TokenOf(t.Context()); err == nil {
		t.Error("a token of no attempt")
	}
	k := newKafka(t, 1)
	failed := make(chan error, 1)
	k.serve(k.config(), agents.Operations{"charge": agents.Do(func(ctx context.Context, req agents.Request[charge]) (receipt, error) {
		failed <- agents.Extend(ctx)
		return pay(ctx, req)
	})})
	k.ask(request("o-1", "charge", `{"amount":7}`))
	if err := await(t, "the handler", failed); !errors.Is(err, agents.ErrNotExtendable) {
		t.Errorf("it failed with %v", err)
	}
	if reply := k.reply(); reply.Status != events.ReplyCompleted || k.replied() != 1 {
		t.Errorf("the reply is %+v, one of %d", reply, k.replied())
	}
}

// A handler leaves the answer to somebody else, who has no more than the attempt's token. Its request
// is finished, whatever its retries.
func TestAnswerLater(t *testing.T) {
	k := newKafka(t, 1)
	kept := make(chan agents.Token, 4)
	config := k.config()
	config.Retry = &agents.Retry{}
	k.serve(config, agents.Operations{"charge": agents.Do(func(ctx context.Context, _ agents.Request[charge]) (receipt, error) {
		token, err := agents.TokenOf(ctx)
		if err != nil {
			return receipt{}, err
		}
		kept <- token
		return receipt{}, agents.ErrLater
	})})
	first := request("o-1", "charge", `{"amount":7}`)
	first.Undo = true
	long := request("o-2", "charge", `{"amount":7}`)
	long.CompleteBy = events.Time(time.Now().Add(time.Hour))
	long.ExtendTo = long.CompleteBy.Add(12 * time.Hour)
	k.ask(first)
	k.askedLongAgo(long)
	tokens := []agents.Token{await(t, "a token", kept), await(t, "a token", kept)}
	k.awaitGroup("that both are finished", func(g *kfake.GroupInfo) bool { return g.Commits[queue][0].Offset == 2 })
	if n := k.replied(); n != 0 {
		t.Errorf("%d replies before anybody answered", n)
	}
	if orderOf(t, tokens[0]) != "o-1" {
		slices.Reverse(tokens)
	}

	a, err := agents.NewAnswerer(k.cluster.ListenAddrs())
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	// What is too large is not sent: the step would fail for good, though it is done.
	if err := a.Complete(t.Context(), tokens[0], strings.Repeat("x", events.MaxValue)); !errors.Is(err, agents.ErrTooLarge) || !strings.Contains(err.Error(), "at most 1048576") {
		t.Errorf("an output that is too large: %v", err)
	}
	if err := a.Complete(t.Context(), tokens[0], receipt{ID: "r-1"}); err != nil {
		t.Error(err)
	}
	until, err := a.Extend(t.Context(), tokens[1])
	if err != nil || until.Before(time.Now().Add(80*time.Minute)) || until.After(time.Now().Add(90*time.Minute)) {
		t.Errorf("it has time until %v: %v", until, err)
	}
	if err := a.Fail(t.Context(), tokens[1], agents.Permanent("gone", errors.New("it is gone"))); err != nil {
		t.Error(err)
	}
	var said []string
	for _, r := range k.records(3) {
		said = append(said, string(r.Value))
		if events.Header(r, "ce_source") != "/waybill/agents/payment" || events.Header(r, "traceparent") != trace {
			t.Errorf("its headers are %v", r.Headers)
		}
	}
	want := []string{
		`{"order":"o-1","step":"pay","attempt":2,"undo":true,"token":"k1.of-o-1","status":"completed","output":{"id":"r-1"}}`,
		`{"order":"o-2","step":"pay","attempt":2,"token":"k1.of-o-2","status":"progress"}`,
		`{"order":"o-2","step":"pay","attempt":2,"token":"k1.of-o-2","status":"failed","error":{"code":"gone","message":"it is gone","permanent":true}}`,
	}
	if !slices.Equal(said, want) {
		t.Errorf("said is %q", said)
	}

	if _, err := a.Extend(t.Context(), tokens[0]); !errors.Is(err, agents.ErrNotExtendable) {
		t.Errorf("more time than there is: %v", err)
	}
	over := agents.Token(base64.RawURLEncoding.EncodeToString([]byte(`{"order":"o-3","step":"pay","attempt":1,"replyTo":"waybill.replies","completeBy":"2026-01-02T03:04:05Z"}`)))
	if err := a.Complete(t.Context(), over, nil); !errors.Is(err, agents.ErrOver) {
		t.Errorf("an answer that is too late: %v", err)
	}
	for _, none := range []agents.Token{"", "x", "!", agents.Token(`e30`)} {
		if err := a.Complete(t.Context(), none, nil); err == nil {
			t.Errorf("%q is answered", none)
		}
	}
	if err := a.Fail(t.Context(), tokens[1], nil); err == nil {
		t.Error("it failed without an error")
	}
	if err := a.Complete(t.Context(), tokens[1], func() {}); err == nil {
		t.Error("an output that is no JSON")
	}
	if _, err := agents.NewAnswerer(nil); err == nil {
		t.Error("on no broker")
	}
}

// orderOf is the order of a token.
func orderOf(t *testing.T, token agents.Token) string {
	t.Helper()
	text, err := base64.RawURLEncoding.DecodeString(string(token))
	if err != nil {
		t.Fatal(err)
	}
	var of struct {
		Order string `json:"order"`
	}
	if err := json.Unmarshal(text, &of); err != nil {
		t.Fatal(err)
	}
	return of.Order
}
