package orchestrator

import (
	"slices"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
)

// checkInvariants holds what was written, the journal and the messages, and
// the state against the rules that no history may break. It knows the events,
// the workflows and the state record, and nothing of how they come about.
func checkInvariants(t fataler, s *stage) {
	t.Helper()
	statuses := make(map[string][]string)
	requests := make(map[string][]events.Request)
	alerts := make(map[string]int)
	for _, r := range s.messages {
		switch kind := events.Type(events.Header(r, events.HeaderType)); kind {
		case events.OrderStatus:
			m, err := events.Decode[events.Status](r.Value)
			must(t, err)
			statuses[m.Order] = append(statuses[m.Order], m.Status)
		case events.StepRequested:
			m, err := events.Decode[events.Request](r.Value)
			must(t, err)
			requests[m.Order] = append(requests[m.Order], m)
		case events.AlertRaised:
			m, err := events.Decode[events.Alert](r.Value)
			must(t, err)
			alerts[m.Order]++
		default:
			t.Fatalf("a message of type %q on %s", kind, r.Topic)
		}
	}
	for id, history := range s.history(t) {
		checkHistory(t, s, id, history)
		checkRequests(t, id, history, requests[id])
		checkStatuses(t, id, history, statuses[id])
		if n := count(history, events.AlertRaised); n != alerts[id] || n < count(history, events.OrderErrored) {
			t.Fatalf("%s: %d alerts were raised and %d sent, for %d errors", id, n, alerts[id], count(history, events.OrderErrored))
		}
		o := s.of(t, id)
		if len(s.records) == 0 { // all is committed
			checkState(t, o, history)
		}
		checkNotStuck(t, o)
	}
}

// tally is what happened to one step.
type tally struct {
	started, ended int
	completed      bool
	key            string
}

func checkHistory(t fataler, s *stage, id string, history []events.Event) {
	t.Helper()
	steps := make(map[string]*tally)
	stopped, completed := false, false
	for i, e := range history {
		if e.Seq != uint64(i+1) {
			t.Fatalf("%s: event %d has number %d", id, i+1, e.Seq)
		}
		if first := e.Type == events.OrderAccepted || e.Type == events.OrderRejected; first != (i == 0) {
			t.Fatalf("%s: event %d is %s", id, e.Seq, e.Type)
		}
		if i > 0 && e.At.Before(history[i-1].At) {
			t.Fatalf("%s: event %d is older than the one before", id, e.Seq)
		}
		step := steps[e.Step]
		switch e.Type {
		case events.OrderAccepted:
			for _, name := range e.Steps {
				steps[name] = &tally{}
			}
		case events.OrderErrored:
			stopped = true
		case events.OrderCompleted:
			if stopped || completed {
				t.Fatalf("%s: completed at %d after it had ended", id, e.Seq)
			}
			stopped, completed = true, true
			for name, step := range steps {
				if !step.completed {
					t.Fatalf("%s: completed at %d without step %s", id, e.Seq, name)
				}
			}
		case events.StepStarted:
			flow := s.flows.find(history[0].Workflow, history[0].Version)
			def, _ := flow.Step(e.Step)
			if stopped {
				t.Fatalf("%s: step %s starts at %d although the order has stopped", id, e.Step, e.Seq)
			}
			if step.started++; e.Attempt != step.started || step.ended != step.started-1 || step.completed {
				t.Fatalf("%s: attempt %d of step %s starts at %d: %+v", id, e.Attempt, e.Step, e.Seq, *step)
			}
			if e.Attempt > def.Retry.Attempts {
				t.Fatalf("%s: attempt %d of step %s, which has %d", id, e.Attempt, e.Step, def.Retry.Attempts)
			}
			for _, before := range def.After {
				if !steps[before].completed {
					t.Fatalf("%s: step %s starts at %d before %s is completed", id, e.Step, e.Seq, before)
				}
			}
			if step.key == "" {
				step.key = e.IdempotencyKey
			}
			if e.IdempotencyKey != step.key || step.key == "" {
				t.Fatalf("%s: step %s has the keys %q and %q", id, e.Step, step.key, e.IdempotencyKey)
			}
			if !e.CompleteBy.Equal(e.At.Add(def.Timeout)) || e.LockedBy == "" {
				t.Fatalf("%s: step %s starts at %d with complete-by %v, locked by %q", id, e.Step, e.Seq, e.CompleteBy, e.LockedBy)
			}
		case events.StepCompleted, events.StepFailed, events.StepExpired:
			if step.ended++; e.Attempt != step.started || step.ended != step.started || step.completed {
				t.Fatalf("%s: %s for attempt %d of step %s at %d: %+v", id, e.Type, e.Attempt, e.Step, e.Seq, *step)
			}
			step.completed = e.Type == events.StepCompleted
		}
	}
	all := len(steps) > 0
	for _, step := range steps {
		all = all && step.completed
	}
	if all != completed {
		t.Fatalf("%s: all steps completed: %t; order completed: %t", id, all, completed)
	}
}

// checkRequests: every attempt was asked of its agent once, with all that the
// agent needs (S3).
func checkRequests(t fataler, id string, history []events.Event, requests []events.Request) {
	t.Helper()
	for _, e := range history {
		if e.Type != events.StepStarted {
			continue
		}
		if len(requests) == 0 {
			t.Fatalf("%s: attempt %d of step %s was not asked for", id, e.Attempt, e.Step)
		}
		r := requests[0]
		requests = requests[1:]
		if r.Step != e.Step || r.Attempt != e.Attempt || r.Operation != e.Operation || r.IdempotencyKey != e.IdempotencyKey ||
			!r.CompleteBy.Equal(e.CompleteBy) || string(r.Input) != string(history[0].Input) || r.ReplyTo == "" {
			t.Fatalf("%s: event %d asks for %+v, and the request says %+v", id, e.Seq, e, r)
		}
	}
	if len(requests) > 0 {
		t.Fatalf("%s: asked for what was not started: %+v", id, requests)
	}
}

// checkStatuses: the caller hears first that the order was received or
// rejected, and once at most that it completed (P1).
func checkStatuses(t fataler, id string, history []events.Event, words []string) {
	t.Helper()
	want := events.StatusReceived
	if history[0].Type == events.OrderRejected {
		want = events.StatusRejected
	}
	if len(words) == 0 || words[0] != want || slices.Contains(words[1:], events.StatusReceived) || slices.Contains(words[1:], events.StatusRejected) {
		t.Fatalf("%s: the caller hears %q", id, words)
	}
	completed := 0
	for _, word := range words {
		if word == events.StatusCompleted {
			completed++
		}
	}
	if completed != count(history, events.OrderCompleted) || completed > 1 {
		t.Fatalf("%s: the caller hears %q", id, words)
	}
}

// checkState: the record says what the events say.
func checkState(t fataler, o *projections.Order, history []events.Event) {
	t.Helper()
	if o == nil || o.Seq != uint64(len(history)) {
		t.Fatalf("the record does not follow its %d events: %+v", len(history), o)
	}
	if n := count(history, events.StepFailed) + count(history, events.StepExpired); o.FailureCount != n {
		t.Fatalf("%s: FailureCount is %d after %d failures", o.ID, o.FailureCount, n)
	}
	running := 0
	for i := range o.Steps {
		if o.Steps[i].State == projections.Running {
			running++
		}
	}
	var want projections.State
	switch {
	case count(history, events.OrderRejected) > 0:
		want = projections.Rejected
	case count(history, events.OrderErrored) > 0:
		want = projections.Error
	case count(history, events.OrderCompleted) > 0:
		want = projections.Processed
	case running > 0:
		want = projections.Processing
	default:
		want = projections.Pending
	}
	if o.State != want || (o.LockedBy != "") != (want == projections.Processing) {
		t.Fatalf("%s: the record is %s, locked by %q, and must be %s", o.ID, o.State, o.LockedBy, want)
	}
}

// checkNotStuck: an unfinished order has a deadline ahead of it, or an operator
// knows of it.
func checkNotStuck(t fataler, o *projections.Order) {
	t.Helper()
	if !o.State.Final() && o.CompleteBy().IsZero() && (o.State != projections.Error || o.Alert == nil) {
		t.Fatalf("%s: stuck in silence: %+v", o.ID, o)
	}
}

func count(history []events.Event, kind events.Type) int {
	n := 0
	for _, e := range history {
		if e.Type == kind {
			n++
		}
	}
	return n
}
