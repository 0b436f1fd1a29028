package projections

import (
	"errors"
	"fmt"
	"time"

	"github.com/waybill-dev/waybill/events"
)

// ErrGap says that an event does not follow the ones before it: the journal
// lost or tore a transaction, and must not be folded further.
var ErrGap = errors.New("gap in the journal")

// ErrPartitions says that the journal was begun with another number of partitions: an
// order may be in another of them than whoever reads it believes.
var ErrPartitions = errors.New("the journal was begun with another number of partitions, which can never change")

// ErrNewer says that the journal was written by a newer release, by rules that
// this one does not know: whatever it made of it could be wrong.
var ErrNewer = errors.New("the journal was written by a newer release; upgrade this one")

// An effect is what an event does to an order's record. The step is the one that the
// event names, if its [events.Spec] needs one, else nil.
type effect func(o *Order, s *Step, e *events.Event)

// effects has a row for every type of event that an order has. They stand in
// files by theme: course.go, attempts.go, holds.go, operators.go, notices.go,
// signals.go, approve.go, children.go, migrate.go, emit.go, schedules.go, each.go, pages.go, correlation.go, places.go.
var effects = map[events.Type]effect{
	events.OrderAccepted:     accept,
	events.OrderRejected:     reject,
	events.OrderCompleted:    end(Processed),
	events.OrderErrored:      stop,
	events.OrderCompensating: turnBack,
	events.OrderCompensated:  end(Compensated),
	events.OrderCancelled:    end(Cancelled),
	events.OrderQueued:       queueOrder,
	events.OrderStarted:      startOrder,
	events.OrderRaised:       endRaised,
	events.OrderTerminated:   terminate,

	events.StepStarted:   startStep,
	events.StepCompleted: completeStep,
	events.StepFailed:    failStep,
	events.StepExpired:   expireStep,
	events.StepExtended:  extendStep,
	events.StepRetried:   retryStep,
	events.StepSleeping:  sleep,
	events.StepWoke:      wake,
	events.StepRepeated:  repeatStep,
	events.StepListening: listen,
	events.StepHeard:     hear,
	events.StepTimedOut:  timeOut,
	events.StepApproving: approve,
	events.StepDecided:   verdict,
	events.StepReminded:  remind,
	events.StepOrdered:   order,
	events.StepRecalled:  recall,
	events.StepEmitting:  emit,
	events.StepItemized:  itemize,
	events.StepPaced:     paceStep,
	events.StepPassed:    passStep,
	events.StepRaised:    raise,
	events.StepSkipped:   skipStep,

	events.UndoStarted:   startUndo,
	events.UndoOrdered:   orderUndo,
	events.UndoCompleted: completeUndo,
	events.UndoFailed:    failUndo,
	events.UndoExpired:   expireUndo,
	events.UndoExtended:  extendUndo,
	events.UndoRetried:   retryUndo,
	events.UndoSkipped:   skipUndo,

	events.ItemsOrdered:   orderItems,
	events.ItemCompleted:  completeItem,
	events.ItemFailed:     failItem,
	events.ItemsForgotten: forgetItems,

	events.PageOrdered:    orderPage,
	events.PageCompleted:  completePage,
	events.PageFailed:     failPage,
	events.PagesForgotten: forgetPages,

	events.OrderReleased:  release,
	events.InputHeld:      keepInput,
	events.InputReleased:  passInput,
	events.InputDiscarded: putAside,

	events.OrderResubmitted: resubmit,
	events.OrderChanged:     change,
	events.OrderMigrated:    migrateOrder,
	events.OrderPaused:      pause,
	events.OrderResumed:     resume,
	events.OrderLabelled:    label,
	events.CommandRefused:   refuse,

	events.AlertRaised:    alert,
	events.OrderForgotten: forgetOrder,
	events.OrderReported:  report,
	events.StatusRefused:  redirect,
	events.ReplyDiscarded: discard,

	events.SubmissionConflicted: conflict,

	events.ScheduleApplied:    applySchedule,
	events.SchedulePaused:     pauseSchedule,
	events.ScheduleResumed:    resumeSchedule,
	events.ScheduleDeleted:    deleteSchedule,
	events.ScheduleStarted:    startTick,
	events.ScheduleSkipped:    skipTicks,
	events.ScheduleBackfilled: backfillTicks,
	events.ScheduleEnded:      endTick,
	events.ScheduleRecalled:   recallTick,

	events.WaitBegan:     beginWait,
	events.WaitEnded:     endWait,
	events.WaitRefused:   refuseWait,
	events.SignalGiven:   giveSignal,
	events.SignalMatched: matchSignal,
	events.SignalOrdered: orderSignal,
	events.SignalStarted: matchSignal,

	events.PlaceAsked:    askPlace,
	events.PlaceAwaited:  awaitPlace,
	events.PlaceGranted:  grantPlace,
	events.PlaceReturned: returnPlace,
	events.LimitApplied:  applyLimit,
	events.LimitDeleted:  deleteLimit,

	events.SignalKept:      keepSignal,
	events.SignalExpired:   expireSignal,
	events.SignalDiscarded: discardSignal,
}

// known joins what is known of a type of event into one look-up.
var known = func() map[events.Type]knowledge {
	all := make(map[events.Type]knowledge, len(effects))
	for _, spec := range events.Specs {
		if does := effects[spec.Type]; does != nil {
			all[spec.Type] = knowledge{spec.Since, spec.Needs, does}
		}
	}
	return all
}()

type knowledge struct {
	since int
	needs events.Need
	does  effect
}

// Apply folds the next event into o. It fails with [ErrGap] when e is not the
// event that follows, with [ErrNewer] when its type is not known, and then leaves
// o as it was.
func (o *Order) Apply(e *events.Event) error {
	if e.Seq != o.Seq+1 {
		return fmt.Errorf("%w: order %q has event %d, then came %d (%s)", ErrGap, e.Order, o.Seq, e.Seq, e.Type)
	}
	k, ok := known[e.Type]
	if !ok {
		return fmt.Errorf("%w: order %q: event %d is %s", ErrNewer, e.Order, e.Seq, e.Type)
	}
	var step *Step
	switch k.needs {
	case events.AStep:
		if step = o.Step(e.Step); step == nil {
			return fmt.Errorf("%w: order %q: %s names step %q, which the order does not have", ErrGap, e.Order, e.Type, e.Step)
		}
	case events.AHold:
		if o.Hold == nil {
			return fmt.Errorf("%w: order %q: %s, and the order is not held", ErrGap, e.Order, e.Type)
		}
	case events.ARecord:
		if e.Raw == nil {
			return fmt.Errorf("%w: order %q: %s of %q without the record", ErrGap, e.Order, e.Type, e.Source)
		}
	case events.TheFirstInput:
		if !o.first(e.Source) {
			return fmt.Errorf("%w: order %q: %s of %q, which does not wait", ErrGap, e.Order, e.Type, e.Source)
		}
	case events.ASchedule:
		if o.Schedule == nil || o.Schedule.Says == nil {
			return fmt.Errorf("%w: %q: %s, and there is no schedule", ErrGap, e.Order, e.Type)
		}
	case events.Nothing:
	}

	o.ID, o.Seq, o.UpdatedAt = e.Order, e.Seq, e.At
	o.vocabulary = max(o.vocabulary, k.since)
	if e.Command != "" {
		o.Command, o.Refusal = e.Command, ""
	}
	if e.Actor != nil && e.Type != events.OrderAccepted {
		o.act(e)
	}
	if e.Left && step != nil {
		o.noteLeft(step, e)
	}
	was := o.State.Final()
	k.does(o, step, e)
	if is := o.State.Final(); is != was && o.Keep > 0 {
		if o.EndedAt = (time.Time{}); is {
			o.EndedAt = events.Time(e.At)
		}
	}
	o.settle(e.LockedBy)
	o.unlisten()
	o.yield()
	return nil
}

// settle gives an order that goes on the state that its steps have, and holds
// its lock, for the instance by if it is new, while one of them runs.
func (o *Order) settle(by string) {
	if o.State.Final() {
		o.forget()
	}
	if o.State == Error || o.State.Final() {
		o.LockedBy = ""
		return
	}
	running := o.Running()
	switch {
	case o.Toward != "":
		o.State = Compensating
	case running:
		o.State = Processing
	default:
		o.State = Pending
	}
	if !running {
		o.LockedBy = ""
	} else if by != "" {
		o.LockedBy = by
	}
}
