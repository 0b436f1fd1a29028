package projections

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/events"
)

// payloadOf returns a JSON text of so many bytes.
func payloadOf(n int) jsontext.Value { return jsontext.Value(`"` + strings.Repeat("x", n-2) + `"`) }

// T1: inputs of steps and of undos, small ones in the record and large ones
// beside it, are what a replay gives back, also when one follows the other.
func TestT1Payloads(t *testing.T) {
	for _, first := range []int{10, inlinePayload, inlinePayload + 1, 5 * inlinePayload} {
		for _, second := range []int{10, inlinePayload, inlinePayload + 1, 7 * inlinePayload} {
			t.Run(fmt.Sprint(first, " then ", second), func(t *testing.T) {
				history := compensating()
				for i := range history {
					if e := &history[i]; e.Type == events.StepStarted && e.Step == "s0" {
						e.Input = payloadOf(first)
					}
				}
				begin := undoStarted(1)
				begin.Input = payloadOf(second)
				history = append(history, begin, failing(events.UndoFailed, "s0", 1, "gone"), events.Event{Type: events.OrderErrored, Order: "o-1", Reason: "gone"},
					events.Event{Type: events.OrderResubmitted, Order: "o-1", Step: "s0", Input: payloadOf(first)}, undoStarted(2))
				j := newJournal()
				for _, e := range history {
					e.Order = "o-1"
					j.add(e)
				}
				often := bitByBit(t, j)
				o, _, err := often.Order(0, "o-1")
				must(t, err)
				if s := &o.Steps[0]; string(s.Input) != string(payloadOf(first)) || string(s.Undo.Input) != string(payloadOf(first)) || o.Steps[1].Input != nil {
					t.Errorf("inputs of %d and %d bytes", len(s.Input), len(s.Undo.Input))
				}
			})
		}
	}
}

// The inputs that a step got under earlier keys are kept, large ones beside the record.
func TestT1PayloadsOfEarlierKeys(t *testing.T) {
	j := newJournal()
	begin := started("o-1", "s0", 1, at(1))
	begin.Input = payloadOf(3 * inlinePayload)
	j.add(accepted("o-1", "flow"), begin, failing(events.StepExpired, "s0", 1, "expired"), events.Event{Type: events.OrderErrored, Order: "o-1", Reason: "gone"},
		events.Event{Type: events.OrderResubmitted, Order: "o-1", Step: "s0", Input: payloadOf(10), MayHaveRun: []string{"s0"}},
		started("o-1", "s0", 2, at(2)), failing(events.StepExpired, "s0", 2, "expired"), events.Event{Type: events.OrderErrored, Order: "o-1", Reason: "gone"},
		events.Event{Type: events.OrderResubmitted, Order: "o-1", Step: "s0", Input: payloadOf(2 * inlinePayload), MayHaveRun: []string{"s0"}})
	often := bitByBit(t, j)
	o, _, err := often.Order(0, "o-1")
	must(t, err)
	s := &o.Steps[0]
	if len(s.Earlier) != 2 || len(s.Earlier[0].Input) != 3*inlinePayload || len(s.Earlier[1].Input) != 10 || len(s.Input) != 2*inlinePayload {
		t.Errorf("%d, and now %d bytes", len(s.Earlier), len(s.Input))
	}
}

// What signals that are kept say is kept, large ones beside the record, until a step hears them.
func TestT1PayloadsOfSignals(t *testing.T) {
	kept := func(n, size int) events.Event {
		return events.Event{Type: events.SignalKept, Order: "o-1", Signal: "a", Source: fmt.Sprint("signals/0/", n), Due: at(90), Data: payloadOf(size)}
	}
	listening := of(events.StepListening, "s0", 1)
	listening.Listen, listening.Signals, listening.Count = events.ListenOne, []string{"a"}, 2
	heard := of(events.StepHeard, "s0", 1)
	heard.Signal, heard.Source = "a", "signals/0/1"
	j := newJournal()
	j.add(accepted("o-1", "flow"), kept(1, 3*inlinePayload), kept(2, 10), kept(3, 5*inlinePayload), listening, heard)
	o, _, err := bitByBit(t, j).Order(0, "o-1")
	must(t, err)
	if len(o.Signals) != 2 || len(o.Signals[0].Data) != 10 || len(o.Signals[1].Data) != 5*inlinePayload || len(o.Steps[0].Output) != 3*inlinePayload+len("[]") {
		t.Errorf("%d signals, and %d bytes heard", len(o.Signals), len(o.Steps[0].Output))
	}
}

// bitByBit writes a store after every event, and checks that one which is written at the
// end is the same.
func bitByBit(t *testing.T, j *journal) *Store {
	t.Helper()
	often, p := temporary(t)
	for _, r := range j.records {
		must(t, fold(p, []journalRecord{r}))
		must(t, p.Flush())
	}
	once, _ := folded(t, j)
	if !maps.Equal(dump(t, often, 0), dump(t, once, 0)) {
		t.Error("what was stored bit by bit is not what a replay gives back")
	}
	return often
}

// An empty input and null are not the same.
func TestNullIsAnInput(t *testing.T) {
	j := newJournal()
	begin := started("o-1", "s0", 1, at(60))
	begin.Input = []byte("null")
	j.add(accepted("o-1", "flow"), begin, started("o-1", "s1", 1, at(60)))
	s, _ := folded(t, j)
	o, _, err := s.Order(0, "o-1")
	must(t, err)
	if string(o.Steps[0].Input) != "null" || o.Steps[1].Input != nil {
		t.Errorf("%q, %q", o.Steps[0].Input, o.Steps[1].Input)
	}
}
