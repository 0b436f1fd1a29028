package world

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/test/audit"
	"github.com/waybill-dev/waybill/test/oracle"
)

// What is sure is a workflow, has no retries, and is always answered.
func TestSure(t *testing.T) {
	flow, err := workflow.Parse("sure.yaml", []byte(Sure("patient", "one", "two", "three")))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range flow.Steps {
		if s.Retry.Attempts != 1 || s.Timeout.Hours() != 1 {
			t.Errorf("step %s has %d attempts of %s", s.Name, s.Retry.Attempts, s.Timeout)
		}
	}
	service := NewService(1)
	failed := 0
	for n := range 1000 {
		out := service.call(&events.Request{Order: "o", Step: flow.Steps[0].Name, Attempt: n, IdempotencyKey: "key"})
		if out.answers == 0 || out.slow {
			t.Fatalf("attempt %d: %+v", n, out)
		}
		if out.code != "" {
			failed++
		}
	}
	if failed == 0 {
		t.Error("none failed")
	}
}

// Every drawing is a workflow, and all that a workflow can say is drawn.
func TestDrawing(t *testing.T) {
	by := rand.New(rand.NewPCG(1, 1))
	drawn := make(map[string]int)
	for range 500 {
		d := Drawing{Name: "drawn", Version: 2, Agents: []string{"one", "two"}, Timeout: time.Second, Pause: time.Millisecond, Until: time.Now()}
		file := d.Flow(func(_ string, n int) int { return by.IntN(n) })
		flow, err := workflow.Parse("drawn.yaml", []byte(file))
		if err != nil {
			t.Fatalf("%v:\n%s", err, file)
		}
		for _, s := range flow.Steps {
			if s.Timeout < d.Timeout && s.Agent != "" {
				t.Errorf("step %s has %s:\n%s", s.Name, s.Timeout, file)
			}
		}
		for said := range strings.FieldsFuncSeq(file, func(r rune) bool { return strings.ContainsRune(" {},\n", r) }) {
			drawn[said]++
		}
	}
	for word := range strings.FieldsSeq("deadline: overdue: input: search: after: jitter: never: atOnce: sleep: repeat: until: undo: error compensate continue wait: when: with: undoWith: one two s4") {
		if drawn[word] == 0 {
			t.Errorf("of 500 workflows none says %s", word)
		}
	}
}

// What a service did and an order says must agree.
func TestCompare(t *testing.T) {
	start := events.Event{Type: events.StepStarted, Order: "o", Step: "a", Attempt: 1, IdempotencyKey: "o/a"}
	done := events.Event{Type: events.StepCompleted, Order: "o", Step: "a", Attempt: 1}
	undo := events.Event{Type: events.UndoStarted, Order: "o", Step: "a", Attempt: 1, IdempotencyKey: "o/a:undo"}
	undone := events.Event{Type: events.UndoCompleted, Order: "o", Step: "a", Attempt: 1}
	do, un := events.Request{Order: "o", Step: "a", IdempotencyKey: "o/a"}, events.Request{Order: "o", Step: "a", Undo: true, IdempotencyKey: "o/a:undo"}
	for _, test := range []struct {
		name    string
		history []events.Event
		state   string // of the step
		undo    string // and of its undo
		calls   []events.Request
		says    string // "" if all is well
	}{
		{"done", []events.Event{start, done}, "completed", "", []events.Request{do}, ""},
		{"done twice under one key", []events.Event{start, done}, "completed", "", []events.Request{do, do}, ""},
		{"undone", []events.Event{start, done, undo, undone}, "undone", "completed", []events.Request{do, un}, ""},
		{"not done", []events.Event{start, done}, "completed", "", nil, "no agent did it"},
		{"not undone", []events.Event{start, done, undo, undone}, "undone", "completed", []events.Request{do}, "no agent undid it"},
		{"done under another key", []events.Event{start, done}, "completed", "", []events.Request{do, {Order: "o", Step: "a", IdempotencyKey: "o/a:2"}}, "did not ask for"},
		{"undone unasked", []events.Event{start, done}, "completed", "", []events.Request{do, un}, "an agent undid it"},
		{"done unasked", []events.Event{start}, "not-started", "", []events.Request{do}, "was not begun"},
		{"of nobody", []events.Event{start, done}, "completed", "", []events.Request{do, {Order: "x", Step: "a", IdempotencyKey: "x/a"}}, "unknown to the journal"},
	} {
		s := NewService(1)
		s.Recover()
		for i := range test.calls {
			s.call(&test.calls[i])
		}
		step := &oracle.Step{Name: "a", Known: "a", Work: oracle.Work{State: test.state}}
		if test.undo != "" {
			step.Undo = &oracle.Work{State: test.undo}
		}
		lost, doubled := s.Compare(&audit.Books{
			Histories: map[string][]events.Event{"o": test.history},
			Ledgers:   map[string]*oracle.Ledger{"o": {Steps: []*oracle.Step{step}}},
		})
		said := strings.Join(append(lost, doubled...), "\n")
		if (said == "") != (test.says == "") || !strings.Contains(said, test.says) {
			t.Errorf("%s: %q", test.name, said)
		}
	}
}
