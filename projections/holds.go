package projections

import (
	"slices"

	"github.com/waybill-dev/waybill/events"
)

// An order that is held, and the inputs that wait for its release. It is held by
// [stop].

func release(o *Order, _ *Step, e *events.Event) {
	o.State, o.Reason, o.Alert, o.Hold = o.Hold.State, o.Hold.Reason, o.Hold.Alert, nil
	if o.State != Error {
		o.lapse(e.At)
	}
}

func keepInput(o *Order, _ *Step, e *events.Event) {
	o.Waiting = append(o.Waiting[:len(o.Waiting):len(o.Waiting)], Held{e.Source, *e.Raw, e.Proof})
}

// passInput has an input wait no more.
func passInput(o *Order, _ *Step, e *events.Event) {
	if o.first(e.Source) {
		o.Waiting = slices.Clone(o.Waiting[1:])
	}
}

// putAside counts an input that becomes a dead letter. It may have waited, or not.
func putAside(o *Order, s *Step, e *events.Event) {
	o.PutAside = max(o.PutAside, e.Count)
	passInput(o, s, e)
}

// first says that the input from source is the one that has waited longest.
func (o *Order) first(source string) bool {
	return len(o.Waiting) > 0 && o.Waiting[0].Source == source
}
