package orchestrator

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/oracle"
)

// checkInvariants holds what was written, the journal and the messages, and
// the state against the rules that no history may break. It knows the events,
// the workflows and the state record, and nothing of how they come about: the
// rules are those of package oracle, which the suites on Kafka use as well.
func checkInvariants(t fataler, s *stage) {
	t.Helper()
	newInspector().check(t, s)
}

// inspector checks the invariants of one stage, again and again: it reads only
// what was written since.
type inspector struct {
	ledgers   map[string]*oracle.Ledger
	histories map[string][]events.Event
	messages  map[string]*oracle.Messages
	statuses  map[string][]string // the topics of each order's status messages
	flows     map[*workflow.Workflow]*oracle.Flow

	journal, sent int    // how much was read
	owner         string // who claimed the partition last
	// jumps says that clocks differ and jump: an event may look older than the
	// one before.
	jumps bool
	// elsewhere says that others hold the commands against what came of them.
	elsewhere bool
}

func newInspector() *inspector {
	return &inspector{
		ledgers: make(map[string]*oracle.Ledger), histories: make(map[string][]events.Event),
		messages: make(map[string]*oracle.Messages), statuses: make(map[string][]string),
		flows: make(map[*workflow.Workflow]*oracle.Flow),
	}
}

func (in *inspector) check(t fataler, s *stage) {
	t.Helper()
	fresh := make(map[string]bool)
	for _, r := range s.journal[in.journal:] {
		e, err := events.Decode[events.Event](r.Value)
		must(t, err)
		if e.Type == events.PartitionClaimed {
			in.owner = e.Instance
		}
		if e.Order == "" {
			continue
		}
		fresh[e.Order] = true
		in.event(t, s, &e)
	}
	in.journal = len(s.journal)
	must(t, oracle.Sort(in.messages, s.messages[in.sent:]))
	for _, r := range s.messages[in.sent:] {
		fresh[string(r.Key)] = true
		if events.Header(r, events.HeaderType) == string(events.OrderStatus) {
			in.statuses[string(r.Key)] = append(in.statuses[string(r.Key)], r.Topic)
		}
	}
	in.sent = len(s.messages)
	for id := range fresh {
		must(t, oracle.CheckMessages(in.histories[id], in.messages[id]))
		checkTopics(t, s, id, in.histories[id], in.statuses[id])
	}
	for id, ledger := range in.ledgers {
		if !in.elsewhere {
			checkCommands(t, s, id, in.histories[id])
			checkInputs(t, s, id, in.histories[id])
		}
		if len(s.records) == 0 { // all is committed
			if err := ledger.Rest(); err != nil {
				t.Fatalf("%v\n%s", err, story(in.histories[id]))
			}
			o := s.of(t, id)
			checkState(t, o, ledger)
			checkNotStuck(t, o)
		}
	}
}

// event takes the next event of an order.
func (in *inspector) event(t fataler, s *stage, e *events.Event) {
	t.Helper()
	ledger, history := in.ledgers[e.Order], in.histories[e.Order]
	if ledger == nil {
		ledger = oracle.NewLedger(e.Order, func(name string, version int) *oracle.Flow {
			return in.definition(s.flows.find(name, version))
		})
		in.ledgers[e.Order] = ledger
	}
	ledger.Owner = in.owner
	if err := ledger.Add(e); err != nil {
		t.Fatalf("%v\n%s", err, story(append(history, *e)))
	}
	history = append(history, *e)
	checkTimes(t, history, s.skew, in.jumps)
	in.histories[e.Order] = history
}

// checkTimes: the last event of a history is not older than the one before, and
// an attempt expires as the allowance for clock skew says.
func checkTimes(t fataler, history []events.Event, skew time.Duration, jumps bool) {
	t.Helper()
	n := len(history) - 1
	e := &history[n]
	if n > 0 && !jumps && e.At.Before(history[n-1].At) {
		t.Fatalf("%q: event %d is older than the one before", e.Order, e.Seq)
	}
	if e.Type == events.StepStarted || e.Type == events.UndoStarted {
		want := time.Time{}
		if skew > 0 {
			want = e.CompleteBy.Add(skew)
		}
		if !e.Expires.Equal(want) {
			t.Fatalf("%q: event %d expires at %v, with a skew of %v", e.Order, e.Seq, e.Expires, skew)
		}
	}
}

// story tells a history as plays do.
func story(history []events.Event) string {
	var b strings.Builder
	for i := range history {
		e := &history[i]
		fmt.Fprintf(&b, "%s %d %s%s\n", clock(e.At), e.Seq, strings.TrimPrefix(string(e.Type), "waybill."), fields(e))
	}
	return b.String()
}

// definition is a workflow as the oracle sees it.
func (in *inspector) definition(w *workflow.Workflow) *oracle.Flow {
	if w == nil {
		return nil
	}
	if flow := in.flows[w]; flow != nil {
		return flow
	}
	canonical, err := w.MarshalJSON()
	if err != nil {
		panic(err)
	}
	flow, err := oracle.ReadFlow(canonical)
	if err != nil {
		panic(err)
	}
	in.flows[w] = flow
	return flow
}

// checkTopics: status messages go to the caller's topic until it was refused,
// and to the namespace's own from then on (P1).
func checkTopics(t fataler, s *stage, id string, history []events.Event, got []string) {
	t.Helper()
	var want []string
	to := history[0].ReplyTo
	for i, e := range history {
		if e.Type == events.StatusRefused {
			to = ""
		}
		if e.Type == events.OrderAccepted && len(history) > i+1 && history[i+1].Type == events.StatusRefused {
			to = "" // known when the order came
		}
		switch e.Type {
		case events.OrderAccepted, events.OrderRejected, events.OrderCompleted, events.OrderErrored,
			events.OrderCompensating, events.OrderCompensated, events.OrderCancelled:
			if want = append(want, to); to == "" {
				want[len(want)-1] = s.topics.Status
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%q: status messages went to %q, and not to %q", id, got, want)
	}
}

// checkCommands: every command that was read left one event with its id, or a
// refusal, in the order in which they came. One that came again right after
// itself left nothing; neither did those that came before the order.
func checkCommands(t fataler, s *stage, id string, history []events.Event) {
	t.Helper()
	if _, err := tooEarly(func(before int) error { return s.commanded(id, history, before) }); err != nil {
		t.Fatalf("%q: %v\n%s", id, err, story(history))
	}
}

// tooEarly finds out how many inputs came before the order, of which nothing is
// left.
func tooEarly(check func(before int) error) (before int, err error) {
	for err = check(0); err != nil && !errors.Is(err, errNoMore); err = check(before) {
		before++
	}
	return before, err
}

// errNoMore says that there are not as many inputs.
var errNoMore = errors.New("whatever came before the order")

// commanded holds a history against the commands that were read, but for those
// that came before the order.
func (s *stage) commanded(id string, history []events.Event, before int) error {
	var left []events.Event
	for _, e := range history {
		if byOperator(&e) {
			left = append(left, e)
		}
	}
	var read []events.Command
	for _, c := range s.commands[:s.state.Head().Next.Commands] {
		if c.id == id {
			read = append(read, c.value)
		}
	}
	if before > len(read) {
		return fmt.Errorf("commands %+v left %+v, %w", read, left, errNoMore)
	}
	return matches(read[before:], left)
}

// byOperator says whether an event is what a command left.
func byOperator(e *events.Event) bool {
	switch e.Type {
	case events.OrderPaused, events.OrderResumed, events.OrderReleased, events.OrderResubmitted, events.UndoSkipped, events.CommandRefused:
		return true
	case events.OrderCompensating:
		return e.End == string(projections.Cancelled)
	case events.StepSkipped:
		return !strings.HasPrefix(e.Reason, "when: ")
	}
	return false
}

func matches(commands []events.Command, left []events.Event) error {
	last := ""
	for _, c := range commands {
		if c.ID != "" && c.ID == last {
			continue
		}
		if len(left) == 0 {
			return fmt.Errorf("%+v left nothing", c)
		}
		e := left[0]
		left = left[1:]
		does := map[string][]events.Type{
			events.CommandCancel:   {events.OrderCompensating},
			events.CommandResubmit: {events.OrderResubmitted},
			events.CommandSkipStep: {events.StepSkipped, events.UndoSkipped},
			events.CommandPause:    {events.OrderPaused},
			events.CommandResume:   {events.OrderResumed},
			events.CommandRelease:  {events.OrderReleased},
		}[c.Command]
		if e.Command != c.ID || e.By != c.By || e.Type != events.CommandRefused && !slices.Contains(does, e.Type) ||
			e.Type == events.CommandRefused && e.Operation != c.Command {
			return fmt.Errorf("%+v left %+v", c, e)
		}
		if e.Type != events.CommandRefused && !carries(&c, &e) || e.Type == events.CommandRefused && e.Step != c.Step {
			return fmt.Errorf("%+v left %+v", c, e)
		}
		if c.ID != "" {
			last = c.ID
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("nobody asked for %+v", left[0])
	}
	return nil
}

// carries says whether an act is the one that the command asked for.
func carries(c *events.Command, e *events.Event) bool {
	switch e.Type {
	case events.StepSkipped:
		return e.Reason == c.Note && e.Step == c.Step && string(e.Output) == string(c.Output)
	case events.UndoSkipped:
		return e.Reason == c.Note && e.Step == c.Step
	case events.OrderResubmitted:
		return e.Reason == c.Note && e.SameKey == c.SameKey && string(e.Input) == string(c.Input) && (c.Step == "" && c.Input != nil || e.Step == c.Step)
	case events.OrderCompensating:
		return e.Reason == c.Note || c.Note == ""
	}
	return e.Reason == c.Note
}

// checkState: the record says what the events say.
func checkState(t fataler, o *projections.Order, l *oracle.Ledger) {
	t.Helper()
	if o == nil {
		t.Fatalf("%q has no record", l.Order)
	}
	type record struct {
		Seq             uint64
		State, LockedBy string
		Failures        int
		Paused, Alerted bool
		Toward          string
		Held            bool
		Waiting         string
		Deadline        time.Time
		DeadlineMatters bool
	}
	waiting := make([]string, len(o.Waiting))
	for i := range o.Waiting {
		waiting[i] = o.Waiting[i].Source
	}
	got := record{
		o.Seq, string(o.State), o.LockedBy, o.FailureCount, o.Paused, o.Alert != nil, string(o.Toward),
		o.Hold != nil, strings.Join(waiting, " "),
		o.Deadline, !o.Overdue().IsZero(),
	}
	want := record{
		l.Seq, l.State, l.LockedBy, l.Failures, l.Paused, l.Alerted, l.Toward,
		l.Held, strings.Join(l.Waiting, " "),
		l.Deadline, !l.Deadline.IsZero() && !l.Paused && (l.State == "Pending" || l.State == "Processing"),
	}
	if got != want {
		t.Fatalf("%q: the record says\n %+v, and must say\n %+v", o.ID, got, want)
	}
	if len(o.Steps) != len(l.Steps) {
		t.Fatalf("%q: the record has %d steps", o.ID, len(o.Steps))
	}
	for i, want := range l.Steps {
		got := &o.Steps[i]
		if got.Name != want.Name || got.Unknown != want.MayHaveRun || string(got.Output) != string(want.Output) || (got.Undo == nil) != (want.Undo == nil) {
			t.Fatalf("%q: the record of step %s says\n %+v, and must say\n %+v", o.ID, want.Name, got, want)
		}
		checkWork(t, o.ID, want.Name, &got.Work, &want.Work, false)
		if want.Undo != nil {
			checkWork(t, o.ID, "undo of "+want.Name, got.Undo, want.Undo, true)
		}
	}
}

func checkWork(t fataler, order, what string, got *projections.Work, says *oracle.Work, undo bool) {
	t.Helper()
	var kept []events.Error
	if undo {
		kept = says.Errors[max(0, len(says.Errors)-100):]
	}
	want := projections.Work{
		State: projections.StepState(says.State), Attempt: says.Attempt,
		FailureCount: says.Failures, Tried: says.Tried, Round: says.Round, Resubmissions: says.Resubmissions,
		CompleteBy: says.CompleteBy, Expires: says.Expires, Due: says.Due, IdempotencyKey: says.Key,
		Input: says.Input, Error: says.Last, Errors: kept, Unanswered: says.Unanswered,
	}
	if len(got.Errors) == 0 && len(kept) == 0 {
		want.Errors = got.Errors
	}
	if !reflect.DeepEqual(got, &want) {
		t.Fatalf("%q: the record of the %s says\n %+v, and must say\n %+v", order, what, *got, want)
	}
}

// checkNotStuck: an unfinished order has a deadline ahead of it, or an operator
// knows of it.
func checkNotStuck(t fataler, o *projections.Order) {
	t.Helper()
	switch {
	case o.State.Final(), o.Paused, o.State == projections.Error && o.Alert != nil:
	case o.State == projections.Error, o.CompleteBy().IsZero():
		t.Fatalf("%q: stuck in silence: %+v", o.ID, o)
	}
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
