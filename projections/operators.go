package projections

import (
	"fmt"
	"slices"
	"time"

	"github.com/waybill-dev/waybill/events"
)

// What operators do. To skip a step is in attempts.go, to release an order in
// holds.go, to terminate one in course.go.

// resubmit lets what failed begin again.
func resubmit(o *Order, _ *Step, e *events.Event) {
	for i := range o.Steps {
		s := &o.Steps[i]
		w := o.working(s)
		if w == nil {
			continue
		}
		if slices.Contains(e.MayHaveRun, s.Name) {
			s.Earlier = append(slices.Clip(s.Earlier), Key{w.Resubmissions, w.Input})
			s.Unknown = false
		}
		if s.Name == e.Step && e.Input != nil {
			w.Input = e.Input
		}
		if w.Broken() {
			w.State, w.Tried, w.NotKnown, w.Round = NotStarted, 0, 0, 0
			s.RepeatsBefore = s.Repeats
			if s.Each != nil {
				s.again(w == s.Undo)
			}
			// An order that did an item has ended: what is done anew is by another, whatever keys are wanted.
			if items := s.Each != nil && w == &s.Work; items || !e.SameKey && !slices.Contains(e.Kept, s.Name) {
				if o.keyed && w == s.Undo && s.undoneAsOne(o.ID) {
					s.doubt()
				}
				w.Resubmissions++
				w.Doubtful = false
			}
		}
	}
	o.leave(e)
}

// change is for what begins from here on.
func change(o *Order, _ *Step, e *events.Event) { o.Priority, o.Deadline = e.Priority, e.Deadline }

func pause(o *Order, _ *Step, e *events.Event) {
	o.Paused = true
	o.disarm()
	o.suspend(e.At)
}

func resume(o *Order, _ *Step, e *events.Event) {
	o.Paused = false
	o.wind(e.At)
}

func label(o *Order, _ *Step, e *events.Event) { o.Labels = e.Labels }

func refuse(o *Order, _ *Step, e *events.Event) {
	if o.Seq == 1 { // nothing else begins so: it was to be applied
		if o.Quiet = true; events.IsPlaces(o.ID) {
			o.gives(e)
		} else {
			o.Schedule = new(Schedule)
		}
	}
	o.Refusal, o.Refused = e.Reason, max(o.Refused, e.Count)
}

// maxActs bounds [Order.Acts].
const maxActs = 16

// commands has for the event of an operator's act what the command asked for.
var commands = map[events.Type]string{
	events.OrderCompensating: events.CommandCancel, events.OrderResubmitted: events.CommandResubmit, events.StepSkipped: events.CommandSkipStep,
	events.UndoSkipped: events.CommandSkipStep, events.OrderPaused: events.CommandPause, events.OrderResumed: events.CommandResume,
	events.OrderReleased: events.CommandRelease, events.OrderLabelled: events.CommandLabel,
	events.OrderChanged: events.CommandChange, events.OrderTerminated: events.CommandTerminate,
	events.StepDecided: events.CommandDecide, events.StepPaced: events.CommandChange, events.OrderMigrated: events.CommandMigrate, events.ScheduleApplied: events.CommandApply, events.ScheduleDeleted: events.CommandDelete, events.ScheduleBackfilled: events.CommandBackfill,
	events.LimitApplied: events.CommandApply, events.LimitDeleted: events.CommandDelete,
	events.SchedulePaused: events.CommandPause, events.ScheduleResumed: events.CommandResume,
}

// act keeps a command whose author is known.
func (o *Order) act(e *events.Event) {
	if _, before := o.Acted(e.Command); before {
		return
	}
	if n := len(o.Acts) - maxActs + 1; n > 0 {
		for _, a := range o.Acts[:n] {
			if a.At.After(o.ActedBefore) {
				o.ActedBefore = a.At
			}
		}
		o.Acts = o.Acts[n:]
	}
	does := commands[e.Type]
	if e.Operation != "" {
		does = e.Operation
	}
	o.Acts = append(slices.Clip(o.Acts), Act{e.Command, Asked(does, e.Step, e.Outcome, e.By), e.Actor.At})
}

// Asked is what a command asks for, as far as others under its id are told apart: which
// step to skip says its event, and which one it resubmits may be found out first. Of a decision it is
// who decides what, where.
func Asked(command, step, outcome, by string) string {
	switch command {
	case events.CommandSkipStep:
		return command + " " + step
	case events.CommandDecide:
		return fmt.Sprintf("%s %s %s by %s", command, step, outcome, by)
	}
	return command
}

// Acted says whether a command whose author is known was decided on, as far as that is
// kept, and what it asked for.
func (o *Order) Acted(id string) (command string, found bool) {
	for _, a := range o.Acts {
		if a.ID == id {
			return a.Command, true
		}
	}
	return "", false
}

// leave takes the order out of Error.
func (o *Order) leave(e *events.Event) {
	o.State, o.Reason, o.Alert = Pending, "", nil
	o.lapse(e.At)
}

// lapse drops a deadline that passed: it counts no more, since it was an
// operator who let the order go on.
func (o *Order) lapse(now time.Time) {
	if !o.Deadline.After(now) {
		o.Deadline = time.Time{}
	}
}

// relieve takes the order out of Error once nothing that failed is left.
func (o *Order) relieve(e *events.Event) {
	if o.State == Error && !o.Broken() {
		o.leave(e)
	}
}
