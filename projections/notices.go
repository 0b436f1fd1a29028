package projections

import "github.com/waybill-dev/waybill/events"

// What is recorded because others are told, or because nothing came of it.

func alert(o *Order, _ *Step, e *events.Event) {
	o.Alert = &events.Alert{Order: e.Order, Step: e.Step, Reason: e.Reason, Errors: e.Errors, Action: e.Action, At: e.At}
}

// redirect sends status messages to the namespace's own topic from here on.
func redirect(o *Order, _ *Step, _ *events.Event) { o.ReplyTo, o.Quiet = "", false }

// discard changes nothing but the count, which format 1 does not have.
func discard(o *Order, _ *Step, e *events.Event) { o.Discarded = max(o.Discarded, e.Count) }

func conflict(o *Order, _ *Step, _ *events.Event) { o.Conflicted = true }
