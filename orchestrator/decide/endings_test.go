package decide

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/draw"
	"github.com/waybill-dev/waybill/test/inspect"
)

// end lets time pass without any agent doing anything: every order ends, or an
// operator has it. Those that are away come back.
func (h *historian) end(t *rapid.T) {
	clear(h.away)
	clear(h.silent)
	h.mute = false
	h.read(t)
	h.commit(t)
	h.passOn(t)
	h.check(t, h.inspector)
	// 5 steps with 3 rounds of 3 attempts each, and as much to undo them.
	for looks := 0; ; looks++ {
		next, ok := h.next(t)
		if !ok {
			break
		}
		if looks > 400 {
			t.Fatalf("there is no end of it: at %v something is due at %v", h.now, next)
		}
		if next.After(h.now) {
			h.now = next
		}
		h.supervise(t, page)
		h.commit(t)
		h.passOn(t)
		h.check(t, h.inspector)
	}
	h.rebuild(t)
	for _, id := range h.ids() {
		o := h.of(t, id)
		if o.Queued() && o.OwnTurn() != nil { // behind one that an operator has
			home := h.of(t, o.TurnHome).Places
			s := home.Holder()
			if home.Seat(id, o.Asked) == nil || s == nil || h.of(t, s.Order) == nil {
				t.Fatalf("%q waits for its turn, and %+v has it", id, s)
			}
			if other := h.of(t, s.Order); other.State != projections.Error && !other.Paused && !waitsForAnother(other) {
				t.Fatalf("%q waits for %q, which is %s", id, s.Order, other.State)
			}
			continue
		}
		if !o.Beside() && !o.State.Final() && o.State != projections.Error && !o.Paused && !waitsForAnother(o) {
			t.Fatalf("%q is %s although nothing happens any more", id, o.State)
		}
	}
}

// waitsForAnother says that another order does a step of the order, or undoes it.
func waitsForAnother(o *projections.Order) bool {
	return slices.ContainsFunc(o.Steps, func(s projections.Step) bool {
		return (s.Child != nil || s.Each != nil) && (s.State == projections.Running || s.Undo != nil && s.Undo.State == projections.Running)
	})
}

// passOn has orders hear what they were told, until all is quiet.
func (h *historian) passOn(t *rapid.T) {
	for h.position.At(events.InputInternal) < int64(len(h.internal)) {
		h.listen(t)
		h.commit(t)
	}
}

// ids lists the orders.
func (h *historian) ids() []string { return slices.Sorted(maps.Keys(h.inspector.Ledgers)) }

// repair has operators and agents do what they can: every order ends. No state
// is without a way out, and the ways out are those that alerts tell of.
//
// Orders that are cursed are healed, since nobody else could help them. Those
// that wait with a poison pill need not be: it can be given up.
func (h *historian) repair(t *rapid.T) {
	h.permitAll()
	clear(h.cursed)
	h.brittle = h.brittle && draw.Flip(t, "stays brittle")
	acts := make(map[string]int)
	for rounds := 0; ; rounds++ {
		left := 0
		for _, id := range h.ids() {
			if o := h.of(t, id); !o.Beside() && !o.State.Final() {
				left++
				h.help(t, o, acts)
			}
		}
		if left == 0 {
			break
		}
		if rounds > 600 { // an order that fails has others do its steps again
			var stories strings.Builder
			for _, id := range h.ids() {
				if o := h.of(t, id); !o.State.Final() {
					fmt.Fprintf(&stories, "\n%s", inspect.Story(h.inspector.Histories[id]))
				}
			}
			t.Fatalf("no way out for %d orders: %s", left, &stories)
		}
		h.read(t)
		h.commit(t)
		if next, ok := h.next(t); ok && next.After(h.now) && rounds%3 == 2 {
			h.now = next
		}
		h.supervise(t, page)
		h.commit(t)
		h.check(t, h.inspector)
		h.wait(time.Millisecond)
	}
	h.rebuild(t)
	h.check(t, inspect.New())
}

// help resumes what is paused, and resubmits what is in Error; if that does not
// help, passes over what failed; if that does not either, cancels the order.
func (h *historian) help(t *rapid.T, o *projections.Order, acts map[string]int) {
	if o.Paused {
		h.command(t, o.ID, events.Command{Command: events.CommandResume})
	}
	switch {
	case o.Hold != nil:
		h.command(t, o.ID, events.Command{Command: events.CommandRelease, Discard: h.brittle && len(o.Waiting) > 0})
		// What follows from an answer is a pill, and the agent gives that answer again and
		// again: giving it up does not help.
		if acts[o.ID]++; acts[o.ID] > 20 {
			h.brittle = false
		}
	case o.State == projections.Error:
		n := acts[o.ID]
		acts[o.ID]++
		switch c := (events.Command{Command: events.CommandResubmit}); {
		case n%4 == 2 && inspect.Stumbling(o) != "":
			h.command(t, o.ID, events.Command{Command: events.CommandSkipStep, Step: inspect.Stumbling(o)})
		case (n > 8 || o.Parent != nil) && n%4 == 3 && o.Toward == "": // who asked for it asks for another
			h.command(t, o.ID, events.Command{Command: events.CommandCancel})
		default:
			h.command(t, o.ID, c)
		}
	}
	h.obey(t, o.ID)
}
