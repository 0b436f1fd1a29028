package decide

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/inspect"
)

// check holds what stands on the stage against all rules.
func (s *stage) check(t fataler, in *inspect.Inspector) {
	t.Helper()
	p := inspect.Partition{Topics: &s.topics, Skew: s.skew, Workflow: s.flows.Find, Vanished: func(offset int64) bool { return s.vanished[offset] }, Journal: s.journal, Messages: s.messages, Quiet: s.position.At(events.InputInternal) == int64(len(s.internal))}
	if len(s.records) == 0 { // all is committed
		p.Order = func(id string) *projections.Order { return s.of(t, id) }
	}
	in.Check(t, &p)
	for id, history := range in.Histories {
		checkCommands(t, s, id, history)
		checkInputs(t, s, in, id, history)
	}
}

// checkCommands: every command that was read left one event with its id, or a
// refusal, in the order in which they came. One that came again right after
// itself left nothing; neither did those that came before the order.
func checkCommands(t fataler, s *stage, id string, history []events.Event) {
	t.Helper()
	if err := s.commanded(id, history); err != nil {
		t.Fatalf("%q: %v\n%s", id, err, inspect.Story(history))
	}
}

// commanded holds a history against the commands that were read, but for those
// that came before the order.
func (s *stage) commanded(id string, history []events.Event) error {
	var left []events.Event
	for _, e := range history {
		if byOperator(&e) && !s.byParent(&e) {
			left = append(left, e)
		}
	}
	var read []command
	for i, c := range s.commands[:s.passed(events.InputCommands)] {
		if c.id == id && !s.passedOver(s.topics.Commands, i) {
			read = append(read, c)
		}
	}
	return s.matches(read, left)
}

// byOperator says whether an event is what a command left.
func byOperator(e *events.Event) bool {
	switch e.Type {
	case events.OrderPaused, events.OrderResumed, events.OrderLabelled, events.OrderReleased, events.OrderTerminated, events.OrderChanged, events.StepPaced, events.OrderMigrated, events.StepDecided, events.OrderResubmitted, events.UndoSkipped, events.CommandRefused,
		events.ScheduleApplied, events.ScheduleDeleted, events.SchedulePaused, events.ScheduleResumed, events.ScheduleBackfilled, events.LimitApplied, events.LimitDeleted:
		return e.Type != events.OrderMigrated || e.Operation == "" // with it comes the resubmission
	case events.OrderCompensating:
		return e.End == string(projections.Cancelled) && (e.Error == nil || e.Error.Code != events.Superseded)
	case events.StepSkipped:
		return !strings.HasPrefix(e.Reason, "when: ")
	}
	return false
}

// byParent says that it was the order of which it does a step that had an order end.
func (s *stage) byParent(e *events.Event) bool {
	return e.Type == events.OrderCompensating && slices.ContainsFunc(s.internal[:s.passed(events.InputInternal)], func(r *kgo.Record) bool {
		w, err := events.Decode[events.Wish](r.Value)
		return err == nil && w.Child == e.Order && w.Wish == events.WishCancel && w.Reason == e.Reason && e.By == "" && e.Command == ""
	})
}

func (s *stage) matches(commands []command, left []events.Event) error {
	last := ""
	var acted []events.Command // that were signed
	for _, given := range commands {
		c := given.value
		decided := s.now
		if len(left) > 0 {
			decided = left[0].At
		}
		known := s.format >= events.ProofFormat && s.known(&given, decided)
		again := slices.IndexFunc(acted[max(0, len(acted)-16):], func(a events.Command) bool { return a.ID == c.ID })
		another := known && again >= 0 && asked(&acted[max(0, len(acted)-16):][again]) != asked(&c)
		if !another && (c.ID != "" && c.ID == last || known && again >= 0) {
			continue
		}
		if len(left) == 0 {
			return fmt.Errorf("%+v left nothing", c)
		}
		e := left[0]
		left = left[1:]
		does := map[string][]events.Type{
			events.CommandCancel:    {events.OrderCompensating},
			events.CommandResubmit:  {events.OrderResubmitted},
			events.CommandSkipStep:  {events.StepSkipped, events.UndoSkipped},
			events.CommandPause:     {events.OrderPaused, events.SchedulePaused},
			events.CommandResume:    {events.OrderResumed, events.ScheduleResumed},
			events.CommandApply:     {events.ScheduleApplied, events.LimitApplied},
			events.CommandDelete:    {events.ScheduleDeleted, events.LimitDeleted},
			events.CommandBackfill:  {events.ScheduleBackfilled},
			events.CommandRelease:   {events.OrderReleased},
			events.CommandTerminate: {events.OrderTerminated},
			events.CommandChange:    {events.OrderChanged, events.StepPaced},
			events.CommandMigrate:   {events.OrderMigrated},
			events.CommandLabel:     {events.OrderLabelled},
			events.CommandDecide:    {events.StepDecided},
		}[c.Command]
		if e.Command != c.ID || e.By != c.By || e.Type != events.CommandRefused && !slices.Contains(does, e.Type) ||
			e.Type == events.CommandRefused && e.Operation != c.Command {
			return fmt.Errorf("%+v left %+v", c, e)
		}
		if e.Type != events.CommandRefused && !s.carries(&c, &e) || e.Type == events.CommandRefused && (e.Step != c.Step || e.Outcome != c.Outcome) {
			return fmt.Errorf("%+v left %+v", c, e)
		}
		if e.Type == events.StepDecided && !known && !s.claims {
			return fmt.Errorf("%+v decided, by claim alone", c)
		}
		if (e.Actor != nil) != known {
			return fmt.Errorf("its author is known: %t; %+v left %+v", known, c, e)
		}
		if c.ID != "" {
			last = c.ID
		}
		if known && again < 0 {
			acted = append(acted, c)
		} else if known && e.Type != events.CommandRefused {
			return fmt.Errorf("%+v has the id of another, and left %+v", c, e)
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("nobody asked for %+v", left[0])
	}
	return nil
}

// asked is what a command asks for, as others under its id are told apart.
func asked(c *events.Command) string { return projections.Asked(c.Command, c.Step, c.Outcome, c.By) }

// known says whether a command has a signature under the keys of now, of the day before it
// is decided on.
func (s *stage) known(c *command, decided time.Time) bool {
	value, err := c.value.Encode()
	if err != nil {
		return false
	}
	a := s.keys.Actor(s.topics.Namespace, c.id, value, c.actor)
	return a != nil && !a.At.After(decided.Add(2*max(time.Minute, s.skew))) && !a.At.Before(decided.Add(-24*time.Hour))
}

// carries says whether an act is the one that the command asked for.
func (s *stage) carries(c *events.Command, e *events.Event) bool {
	switch e.Type {
	case events.StepSkipped:
		return e.Reason == c.Note && e.Step == c.Step && string(e.Output) == string(c.Output)
	case events.UndoSkipped:
		return e.Reason == c.Note && e.Step == c.Step
	case events.OrderResubmitted:
		return e.Reason == c.Note && e.SameKey == c.SameKey && (e.NewKey == c.NewKey || s.format < events.KeysFormat) && string(e.Input) == string(c.Input) && (c.Step == "" && c.Input != nil || e.Step == c.Step)
	case events.StepDecided:
		return e.Reason == c.Note && e.Outcome == c.Outcome && e.Step == c.Step
	case events.OrderLabelled:
		for name, value := range c.Labels {
			if is, has := e.Labels[name]; has != (value != nil) || has && is != *value {
				return false
			}
		}
	case events.ScheduleApplied:
		return e.Reason == c.Note && string(e.Schedule.Append(nil)) == string(c.Schedule.Append(nil))
	case events.LimitApplied:
		return e.Reason == c.Note && *e.Limit == *c.Limit
	case events.OrderCompensating:
		return e.Reason == c.Note || c.Note == ""
	case events.StepPaced:
		return e.Reason == c.Note && e.Step == c.Step && e.AtOnce == c.AtOnce
	case events.OrderMigrated:
		return e.Reason == c.Note && e.Version == c.ToVersion
	case events.OrderChanged:
		return e.Reason == c.Note && (c.Priority == "" || e.Priority == c.Priority) && (c.Deadline.IsZero() || e.Deadline.Equal(c.Deadline)) && (!c.NoDeadline || e.Deadline.IsZero())
	}
	return e.Reason == c.Note
}

func count(history []events.Event, kind events.Type) int {
	n := 0
	for i := range history {
		if history[i].Type == kind {
			n++
		}
	}
	return n
}
