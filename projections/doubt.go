package projections

import (
	"slices"

	"github.com/waybill-dev/waybill/events"
)

// Under which idempotency keys a step may have run, or was perhaps undone, though nobody
// said so.

// In takes over that the order's partition is in a format. Before [events.KeysFormat] a
// step is in doubt, and not a key of it: nobody noted under which one its attempt expired.
// So from that format on it is in doubt under each that it has had, and so is an undo of
// which any attempt expired. Before [events.LeftByFormat] its record does not have which orders
// left something. The caller says so before it decides on the order, or folds an event.
func (o *Order) In(format int) {
	o.names = format >= events.LeftByFormat
	if o.keyed || format < events.KeysFormat {
		return
	}
	o.keyed = true
	for i := range o.Steps {
		s := &o.Steps[i]
		if s.Undo == nil || s.Undo.IdempotencyKey == "" {
			s.doubt()
		} else {
			s.Undo.Doubtful = s.State != Undone && slices.ContainsFunc(s.Undo.Errors, func(e events.Error) bool { return e.Code == expired })
		}
	}
}

// expired is the code of an attempt that nobody answered in time.
const expired = "expired"

// doneInVain are the codes of attempts that were made and failed all the same.
var doneInVain = []string{events.OutputRefused, events.ReplyTooLarge, events.UntilNotMet, events.BadUntil}

// untold says that the attempt may have been made, though it failed: what came of it could
// not be said.
func (o *Order) untold(e *events.Event) bool {
	return o.keyed && e.Error != nil && slices.Contains(doneInVain, e.Error.Code)
}

// doubt has a step that may have run be undone under all keys that it has had.
func (s *Step) doubt() {
	if !s.Unknown {
		return
	}
	for n := range s.Resubmissions {
		s.Earlier = append(s.Earlier, Key{n, s.Input})
	}
}

// undoneAsOne says that the undo that has begun is that of before [events.KeysFormat]:
// it has one key, whatever keys its step has had.
func (s *Step) undoneAsOne(order string) bool {
	return s.Resubmissions > 0 && s.Undoing() == nil &&
		s.Undo.IdempotencyKey == events.UndoKey(events.IdempotencyKey(order, s.Known(), 0), s.Undo.Resubmissions)
}
