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
	o.Waiting = append(o.Waiting[:len(o.Waiting):len(o.Waiting)], Held{e.Source, *e.Raw})
}

// passInput has an input wait no more. One that is discarded may not have waited.
func passInput(o *Order, _ *Step, e *events.Event) {
	if o.first(e.Source) {
		o.Waiting = slices.Clone(o.Waiting[1:])
	}
}

// first says that the input from source is the one that has waited longest.
func (o *Order) first(source string) bool {
	return len(o.Waiting) > 0 && o.Waiting[0].Source == source
}
