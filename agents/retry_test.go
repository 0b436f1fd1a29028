package agents_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/events"
)

// attempts remembers the calls of a handler and says what each returns.
type attempts struct {
	mu    sync.Mutex
	seen  []agents.Request[struct{}]
	times []time.Time
}

// then makes an operation of what happens at each attempt, counted from 1.
func (a *attempts) then(outcome func(n int) error) agents.Operation {
	return agents.Do(func(_ context.Context, req agents.Request[struct{}]) (receipt, error) {
		a.mu.Lock()
		a.seen, a.times = append(a.seen, req), append(a.times, time.Now())
		n := len(a.seen)
		a.mu.Unlock()
		return receipt{ID: "done"}, outcome(n)
	})
}

func (a *attempts) made() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.seen)
}

// quick is a retry policy for tests.
func quick(n int) *agents.Retry {
	return &agents.Retry{Attempts: n, Backoff: time.Millisecond, Max: 4 * time.Millisecond}
}

var errBusy = agents.Transient("busy", errors.New("the bank is busy"))

// A2, A6: what heals within the attempts is never seen by the orchestrator.
// A3: every attempt has the same key, and all else of the request too.
func TestA2A3A6RetryHeals(t *testing.T) {
	k := newKafka(t, 1)
	config := k.config()
	config.Retry = quick(3)
	var calls attempts
	k.serve(config, agents.Operations{"charge": calls.then(func(n int) error {
		if n < 3 {
			return errBusy
		}
		return nil
	})})
	k.ask(request("o-1", "charge", "{}"))
	if got := k.reply(); got.Status != "completed" || k.replied() != 1 {
		t.Errorf("got %+v in %d replies, want one, completed", got, k.replied())
	}
	if n := calls.made(); n != 3 {
		t.Fatalf("%d attempts, want 3", n)
	}
	for _, req := range calls.seen {
		if req.IdempotencyKey != "o-1/pay" || req.Attempt != 2 || !req.CompleteBy.Equal(calls.seen[0].CompleteBy) {
			t.Errorf("an attempt saw %+v", req)
		}
	}
	k.awaitCommit(0, 1)
}

// A2: what ends the attempts, and which error is replied then.
func TestA2A5RetryEnds(t *testing.T) {
	k := newKafka(t, 1)
	config := k.config()
	config.Retry = quick(3)
	var transient, permanent, panics, changing, wish attempts
	k.serve(config, agents.Operations{
		"transient": transient.then(func(int) error { return errBusy }),
		"permanent": permanent.then(func(int) error { return agents.RetryAfter(agents.Permanent("closed", nil), time.Millisecond) }),
		"panics":    panics.then(func(int) error { panic("oh no") }),
		"changing": changing.then(func(n int) error {
			if n == 1 {
				return errBusy
			}
			return agents.Permanent("card-declined", errors.New("no funds"))
		}),
		"wish": wish.then(func(int) error { return agents.RetryAfter(errBusy, time.Hour) }),
	})
	for _, test := range []struct {
		operation string
		calls     *attempts
		made      int
		want      events.Error
	}{
		{"transient", &transient, 3, events.Error{Code: "busy", Message: "the bank is busy"}},
		{"permanent", &permanent, 1, events.Error{Code: "closed", Message: "closed", Permanent: true}}, // A5
		{"panics", &panics, 1, events.Error{Code: "panic", Message: `operation "panics" panicked; the agent's log has the stack`, Permanent: true}},
		{"changing", &changing, 2, events.Error{Code: "card-declined", Message: "no funds", Permanent: true}},
		// A pause that would end after the complete-by is not begun.
		{"wish", &wish, 1, events.Error{Code: "busy", Message: "the bank is busy"}},
	} {
		k.ask(request("o", test.operation, ""))
		if got := k.reply(); got.Error == nil || *got.Error != test.want {
			t.Errorf("%s: replied %+v, want %+v", test.operation, got.Error, test.want)
		}
		if n := test.calls.made(); n != test.made {
			t.Errorf("%s: %d attempts, want %d", test.operation, n, test.made)
		}
	}
}

// A4: no attempt begins after the complete-by, and none is made of a handler that
// ran into it.
func TestA4NoAttemptAfterCompleteBy(t *testing.T) {
	k := newKafka(t, 1)
	config := k.config()
	config.Retry = quick(1_000_000)
	var calls, hung attempts
	k.serve(config, agents.Operations{
		"busy": calls.then(func(int) error { return errBusy }),
		"hang": agents.Do(func(ctx context.Context, req agents.Request[struct{}]) (struct{}, error) {
			hung.mu.Lock()
			hung.seen = append(hung.seen, req)
			hung.mu.Unlock()
			<-ctx.Done()
			return struct{}{}, ctx.Err()
		}),
		"charge": agents.Do(pay),
	})
	k.ask(request("o-0", "charge", "{}")) // joining the group may take its time
	k.records(1)
	for _, operation := range []string{"busy", "hang"} {
		r := request("o-1", operation, "")
		r.CompleteBy = events.Time(time.Now().Add(time.Second))
		k.ask(r)
	}
	k.awaitCommit(0, 3)
	if calls.made() < 2 {
		t.Fatalf("%d attempts of what is busy, want some", calls.made())
	}
	for i, began := range calls.times[1:] { // the pause before it must end in time; the clock may go on between the agent's look at it and ours
		pause := min(config.Retry.Backoff<<min(i, 10), config.Retry.Max)
		if by, before := calls.seen[i].CompleteBy, calls.times[i]; !before.Add(pause).Before(by) {
			t.Errorf("attempt %d began %s after the complete-by, and the pause before it could not end in time", i+2, began.Sub(by))
		}
	}
	if n := hung.made(); n != 1 {
		t.Errorf("%d attempts of what ran into its complete-by, want 1", n)
	}
}

// A2: a service that asks to be left alone for some time is.
func TestA2RetryAfterIsTheLeastPause(t *testing.T) {
	const wish = 100 * time.Millisecond
	k := newKafka(t, 1)
	config := k.config()
	config.Retry = quick(2)
	var calls attempts
	k.serve(config, agents.Operations{"charge": calls.then(func(n int) error {
		if n == 1 {
			return agents.RetryAfter(errBusy, wish)
		}
		return nil
	})})
	k.ask(request("o-1", "charge", "{}"))
	if got := k.reply(); got.Status != "completed" {
		t.Errorf("got %+v", got)
	}
	if pause := calls.times[1].Sub(calls.times[0]); pause < wish {
		t.Errorf("the pause was %s, the wish %s", pause, wish)
	}
}

// A1, A2: a stop does not wait for a pause, and burns no attempt of the order:
// the request is left to the next instance.
func TestA2StopDuringPause(t *testing.T) {
	k := newKafka(t, 1)
	config := k.config()
	config.Retry = &agents.Retry{Attempts: 2, Backoff: time.Hour}
	failed := make(chan struct{})
	var calls attempts
	stop := k.serve(config, agents.Operations{"charge": calls.then(func(int) error {
		close(failed)
		return errBusy
	})})
	r := request("o-1", "charge", "{}")
	r.CompleteBy = events.Time(time.Now().Add(3 * time.Hour))
	k.ask(r)
	await(t, "the first attempt", failed)
	stop()
	if k.replied() != 0 || k.committed(0) != 0 {
		t.Errorf("%d replies, %d committed; want neither", k.replied(), k.committed(0))
	}
	k.serve(k.config(), agents.Operations{"charge": agents.Do(pay)})
	if got := k.reply(); got.Status != "completed" {
		t.Errorf("the next instance replied %+v", got)
	}
}

// C1, T2: an undo is told what it undoes; a step is not.
func TestC1UndoKnowsItsStep(t *testing.T) {
	k := newKafka(t, 1)
	seen := make(chan agents.Request[struct{}], 1)
	k.serve(k.config(), agents.Operations{"refund": agents.Do(func(_ context.Context, req agents.Request[struct{}]) (struct{}, error) {
		seen <- req
		return struct{}{}, nil
	})})
	for _, test := range []struct {
		undo     bool
		outcome  string
		output   string
		priority events.Priority
		want     agents.Request[struct{}]
	}{
		{true, events.OutcomeCompleted, `{"id":"r-1"}`, "", agents.Request[struct{}]{Undo: true, Output: []byte(`{"id":"r-1"}`), Priority: events.Normal}},
		{true, events.OutcomeUnknown, ``, events.High, agents.Request[struct{}]{Undo: true, OutcomeUnknown: true, Priority: events.High}},
		{false, events.OutcomeUnknown, `7`, events.Low, agents.Request[struct{}]{Priority: events.Low}},
	} {
		r := request("o-1", "refund", "")
		r.Undo, r.Outcome, r.Output, r.Priority = test.undo, test.outcome, []byte(test.output), test.priority
		if test.undo {
			r.StepKey = "o-1/pay:2"
		}
		k.ask(r)
		k.records(1)
		got := <-seen
		if got.StepKey != r.StepKey || got.Undo != test.want.Undo || !slices.Equal(got.Output, test.want.Output) ||
			got.OutcomeUnknown != test.want.OutcomeUnknown || got.Priority != test.want.Priority {
			t.Errorf("got %+v, want %+v", got, test.want)
		}
	}
}

// A5, A6: a panic is answered, at once and for good; what it says stays here.
func TestA5A6PanicKeepsItsSecrets(t *testing.T) {
	k := newKafka(t, 1)
	k.serve(k.config(), agents.Operations{"charge": agents.Do(func(context.Context, agents.Request[struct{}]) (struct{}, error) {
		panic("password=swordfish")
	})})
	k.ask(request("o-1", "charge", ""))
	want := `{"order":"o-1","step":"pay","attempt":2,"token":"k1.of-o-1","status":"failed","error":{"code":"panic",` +
		`"message":"operation \"charge\" panicked; the agent's log has the stack","permanent":true}}`
	if got := string(k.records(1)[0].Value); got != want {
		t.Errorf("the reply is %s, want %s", got, want)
	}
}
