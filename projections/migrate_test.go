package projections

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/events"
)

// migrated has an order go on as one of version 2.
func migrated(steps []string, renamed map[string]string, renewed ...string) events.Event {
	return events.Event{Type: events.OrderMigrated, Order: "o-1", From: 1, Version: 2, Steps: steps, Renamed: renamed, Renewed: renewed}
}

// What began keeps the name by which it is known, its key, and what it works on; what nobody was asked for
// begins anew.
func TestAStepIsKnownByItsFirstName(t *testing.T) {
	first := accepted("o-1", "flow")
	first.Input = []byte("1")
	o := record(t, first, started("o-1", "s0", 1, at(60)))
	apply(t, o, migrated([]string{"s1", "r0"}, map[string]string{"r0": "s0"}))
	s := o.Step("r0")
	if o.Version != 2 || o.Step("s0") != nil || o.Known("s0") != s || s.State != Running || string(s.Input) != "1" || s.IdempotencyKey == "" || o.Steps[0].Name != "s1" {
		t.Fatalf("%+v", o.Steps)
	}
	apply(t, o, migrated([]string{"s0", "s1"}, map[string]string{"s0": "r0"}))
	if s := o.Step("s0"); s.Alias != "" || s.State != Running {
		t.Errorf("%+v", s)
	}
	// They change places.
	apply(t, o, started("o-1", "s1", 1, at(60)))
	apply(t, o, migrated([]string{"s0", "s1"}, map[string]string{"s0": "s1", "s1": "s0"}))
	if o.Step("s0").Known() != "s1" || o.Step("s1").Known() != "s0" {
		t.Errorf("%+v", o.Steps)
	}
}

// A step that failed, and is asked for something else, begins anew, under another key.
func TestAStepIsRenewed(t *testing.T) {
	begun := started("o-1", "s0", 1, at(60))
	begun.Input = []byte("1")
	retried := of(events.StepRetried, "s0", 2)
	retried.Due = at(90)
	o := record(t, accepted("o-1", "flow"), begun, failing(events.StepFailed, "s0", 1, "busy"), retried)
	apply(t, o, migrated([]string{"s0"}, nil, "s0"))
	if s := &o.Steps[0]; s.State != NotStarted || s.Attempt != 1 || s.Resubmissions != 1 || s.Input != nil || s.Tried != 0 || !s.Due.IsZero() || s.FailureCount != 1 || o.FailureCount != 1 {
		t.Errorf("%+v", s)
	}
}

// The alert is about the step as it is called now.
func TestTheAlertOfAnOrderThatMigrates(t *testing.T) {
	alert := of(events.AlertRaised, "s0", 0)
	o := record(t, accepted("o-1", "flow"), started("o-1", "s0", 1, at(60)), failing(events.StepFailed, "s0", 1, "gone"),
		events.Event{Type: events.OrderErrored, Step: "s0", Reason: "gone"}, alert)
	before := o.Alert
	apply(t, o, migrated([]string{"r0"}, map[string]string{"r0": "s0"}))
	if o.Alert.Step != "r0" || before.Step != "s0" || o.State != Error {
		t.Errorf("%+v, %+v, %s", o.Alert, before, o.State)
	}
}

// A store has nothing of steps that a migration left out, and all of those that it moved, whenever it was
// flushed: as one that folded the same at once.
func TestStepsThatMigrateLeaveNothingBehind(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		large := []byte(`"` + strings.Repeat("x", 2*inlinePayload) + `"`)
		j := newJournal()
		first := events.Event{Type: events.OrderAccepted, Order: "o-1", At: start, Workflow: "flow", Version: 1, Steps: []string{"s0", "s1", "s2"}, Input: large}
		j.add(first)
		skipped := events.Event{Type: events.StepSkipped, Order: "o-1", Step: "s2", Output: large}
		begun := started("o-1", "s0", 1, at(60))
		waits := events.Event{Type: events.StepRetried, Order: "o-1", Step: "s1", Attempt: 1, Due: at(5)}
		for _, e := range rapid.Permutation([]events.Event{skipped, begun, waits}).Draw(t, "before") {
			j.add(e)
		}
		j.add(migrated([]string{"n0", "r0"}, map[string]string{"r0": "s0"}))
		if rapid.Bool().Draw(t, "goes on") {
			ended := of(events.StepCompleted, "r0", 1)
			ended.Output = large
			j.add(ended)
			j.add(migrated([]string{"n1", "n0", "s0"}, map[string]string{"s0": "r0"}))
		}
		dump := func() map[string]string {
			s, _ := foldedInParts(t, j)
			defer s.Close()
			all := make(map[string]string)
			if err := s.Dump(0, func(Head) error { return nil }, func(key, value []byte) error {
				all[string(key)] = string(value)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			return all
		}
		if a, b := dump(), dump(); fmt.Sprint(a) != fmt.Sprint(b) {
			t.Fatalf("one store has\n%q\nand another\n%q", a, b)
		}
		for key := range dump() {
			if strings.HasSuffix(key, "s1") || strings.HasSuffix(key, "s2") || strings.Contains(key, "r0") {
				t.Errorf("there is %q", key)
			}
		}
	})
}
