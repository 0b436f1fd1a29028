package projections

import (
	"fmt"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/events"
)

func emitting(order, topic string, attempt int) events.Event {
	return events.Event{
		Type: events.StepEmitting, Order: order, Step: "s0", Attempt: attempt, Topic: topic, EventType: "com.acme.shipped", Key: "ada",
		IdempotencyKey: order + "/s0", CompleteBy: start.Add(time.Minute), LockedBy: "i-1",
	}
}

// What is to be emitted follows from the orders alone: an attempt that runs, in the order of the
// journal, and none that is over, nor one whose order is held, until that is released.
func TestWhatIsToBeEmitted(t *testing.T) {
	j := newJournal()
	j.claim("i-1", 1, 1)
	for _, order := range []string{"o-3", "o-1", "o-2", "o-4"} {
		j.add(accepted(order, "flow"))
	}
	j.add(emitting("o-3", "shop.a", 1))
	first := j.end
	j.add(emitting("o-1", "shop.a", 1), emitting("o-2", "shop.b", 1), emitting("o-4", "shop.a", 1))
	_, p := folded(t, j)
	more := func(batch ...events.Event) {
		t.Helper()
		from := len(j.records)
		j.add(batch...)
		must(t, fold(p, j.records[from:]))
	}
	wants := func(what, topic string, from, to int64, want ...string) {
		t.Helper()
		must(t, p.Flush())
		var have []string
		must(t, p.Emissions(topic, from, to, func(order, step string, seq uint64, offset int64) (bool, error) {
			o, err := p.Order(order)
			must(t, err)
			if e := o.Emitting(o.Step(step)); e == nil || e.Topic != topic || e.Type != "com.acme.shipped" || e.Key != "ada" || e.At.IsZero() || e.Seq != seq || offset < from || offset >= to {
				t.Errorf("%s: order %s emits %+v", what, order, e)
			}
			have = append(have, order)
			return len(have) < 9, nil
		}))
		if fmt.Sprint(have) != fmt.Sprint(want) {
			t.Errorf("%s: %s is to be given those of %v, and not of %v", what, topic, have, want)
		}
	}
	const end = 1_000
	wants("all", "shop.a", 0, end, "o-3", "o-1", "o-4")
	wants("up to one", "shop.a", 0, first, "o-3")
	wants("from one on", "shop.a", first, end, "o-1", "o-4")
	wants("another", "shop.b", 0, end, "o-2")
	for _, want := range []string{"shop.a", "shop.b", ""} {
		last := map[string]string{"shop.a": "", "shop.b": "shop.a", "": "shop.b"}[want]
		if topic, err := p.EmittingTo(last); topic != want || err != nil {
			t.Errorf("after %q comes %q: %v", last, topic, err)
		}
	}
	more(
		events.Event{Type: events.StepCompleted, Order: "o-3", Step: "s0", Attempt: 1},
		events.Event{Type: events.StepExpired, Order: "o-1", Step: "s0", Attempt: 1, Error: &events.Error{Code: "expired"}},
		events.Event{Type: events.OrderErrored, Order: "o-4", Reason: "because", Held: true},
		events.Event{Type: events.OrderTerminated, Order: "o-2", Reason: "because"})
	wants("what is over, or held", "shop.a", 0, end)
	wants("terminated", "shop.b", 0, end)
	more(events.Event{Type: events.OrderReleased, Order: "o-4"}, emitting("o-1", "shop.a", 2))
	wants("released, and tried again", "shop.a", 0, end, "o-4", "o-1")

	o, err := p.Order("o-3")
	must(t, err)
	if o.Result() != nil || !o.Step("s0").Ran() {
		t.Errorf("%+v", o.Step("s0"))
	}
}

// An order's output is never that of a step that emits, which has none.
func TestAnEmissionIsNoOutput(t *testing.T) {
	o := Order{Steps: []Step{
		{Name: "ship", Work: Work{State: Completed}, Output: []byte(`"here"`)},
		{Name: "tell", Work: Work{State: Completed}, Emits: &Emission{Topic: "shop.a"}},
	}}
	if got := string(o.Result()); got != `"here"` {
		t.Errorf("its output is %s", got)
	}
}
