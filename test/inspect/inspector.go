// Package inspect holds what a partition's owner wrote, and the state that it
// leads to, against the rules that no history may break. It knows the events, the
// workflows and the state record, and nothing of how they come about: the rules
// are those of package oracle, which the suites on Kafka use as well.
package inspect

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/oracle"
)

// T is what testing.T and rapid.T have in common.
type T interface {
	Helper()
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
}

// Partition is what there is to inspect. What stands there is committed.
type Partition struct {
	Topics   *events.Topics
	Skew     time.Duration
	Workflow func(name string, version int) *workflow.Workflow
	// Newer, where it is set, says that not every owner runs a workflow.
	Newer func(version int) bool
	// Vanished, where it is set, says that no workflow was registered when the event at an offset was decided.
	Vanished func(offset int64) bool
	Journal  []*kgo.Record
	Messages []*kgo.Record // on all other topics
	// Quiet says that all that orders told each other was read, and what it led to is committed.
	Quiet bool
	// Others returns the history of an order in another partition, nil if there is none; it may be nil.
	Others func(id string) []events.Event
	// Order returns an order's record. Nil while something is decided that is not
	// committed.
	Order func(id string) *projections.Order
}

// Inspector checks one partition, again and again: it reads only
// what was written since.
type Inspector struct {
	Ledgers   map[string]*oracle.Ledger
	Histories map[string][]events.Event
	Messages  map[string]*oracle.Messages
	Statuses  map[string][]string // the topics of each order's status messages
	flows     map[*workflow.Workflow]*oracle.Flow

	kin           oracle.Families
	emitted       []*kgo.Record // events of users'
	journal, sent int           // how much was read
	owner         string        // who claimed the partition last
	format        int           // of the partition
	// Jumps says that clocks differ and jump: an event may look older than the
	// one before.
	Jumps bool
}

// New returns an inspector that has read nothing.
func New() *Inspector {
	return &Inspector{
		Ledgers: make(map[string]*oracle.Ledger), Histories: make(map[string][]events.Event),
		Messages: make(map[string]*oracle.Messages), Statuses: make(map[string][]string),
		flows: make(map[*workflow.Workflow]*oracle.Flow),
	}
}

// Check reads what was written since it was called last, and holds all against the
// rules.
func (in *Inspector) Check(t T, p *Partition) {
	t.Helper()
	fresh := make(map[string]bool)
	for _, r := range p.Journal[in.journal:] {
		e, err := events.Decode[events.Event](r.Value)
		must(t, err)
		if e.Type == events.PartitionClaimed {
			in.owner = e.Instance
		}
		in.format = max(in.format, e.Format)
		if e.Order == "" {
			continue
		}
		fresh[e.Order] = true
		in.kin.Grown(e.Order)
		in.event(t, p, &e, oracle.Doubted(r, &e, in.Jumps), p.Vanished != nil && p.Vanished(r.Offset))
	}
	in.journal = len(p.Journal)
	var own []*kgo.Record // Waybill's
	for _, r := range p.Messages[in.sent:] {
		if oracle.Emitted(r) {
			in.emitted = append(in.emitted, r)
		} else {
			own = append(own, r)
		}
	}
	messages := delivered(t, own, p.Topics)
	must(t, oracle.Sort(in.Messages, p.Topics, messages))
	for _, r := range messages {
		fresh[oracle.From(r)] = true
		if events.Header(r, events.HeaderType) == string(events.OrderStatus) {
			in.Statuses[string(r.Key)] = append(in.Statuses[string(r.Key)], r.Topic)
		}
	}
	in.sent = len(p.Messages)
	must(t, oracle.CheckEmitted(in.Histories, p.Topics, in.emitted))
	for id := range fresh {
		if m := in.Messages[id]; m != nil && in.Ledgers[id] != nil {
			m.Old, m.Older = in.Ledgers[id].Old, in.Ledgers[id].Older
		}
		if err := oracle.CheckMessages(in.Histories[id], in.Messages[id]); err != nil {
			t.Fatalf("%v\n%s", err, Story(in.Histories[id]))
		}
		CheckTopics(t, p.Topics, id, in.Histories[id], in.Statuses[id])
	}
	in.families(t, p)
	for id, ledger := range in.Ledgers {
		if p.Order != nil {
			if err := ledger.Rest(); err != nil {
				t.Fatalf("%v\n%s", err, Story(in.Histories[id]))
			}
			o := p.Order(id)
			CheckState(t, o, ledger)
			checkNotStuck(t, o)
		}
	}
}

// families holds orders that do steps of others, and these, against each other.
func (in *Inspector) families(t T, p *Partition) {
	t.Helper()
	if p.Others != nil { // which may have grown
		in.kin = oracle.Families{}
	}
	f := &in.kin
	f.Order = func(id string) []events.Event {
		if history := in.Histories[id]; history != nil || p.Others == nil {
			return history
		}
		return p.Others(id)
	}
	f.Bare = func(id string) bool { l := in.Ledgers[id]; return l != nil && l.Bare > 0 }
	f.Older = func(id string) uint64 {
		if l := in.Ledgers[id]; l != nil {
			return l.Older
		}
		return 0
	}
	f.Find = func(name string, version int) *oracle.Flow { return in.Definition(p.Workflow(name, version)) }
	f.Quiet = func(string) bool { return p.Quiet && p.Order != nil }
	for id, history := range in.Histories {
		if err := f.Check(id); err != nil {
			t.Fatalf("%v\n%s", err, Story(history))
		}
	}
}

// event takes the next event of an order.
func (in *Inspector) event(t T, p *Partition, e *events.Event, doubted, vanished bool) {
	t.Helper()
	ledger, history := in.Ledgers[e.Order], in.Histories[e.Order]
	if ledger == nil {
		ledger = oracle.NewLedger(e.Order, func(name string, version int) *oracle.Flow {
			return in.Definition(p.Workflow(name, version))
		})
		in.Ledgers[e.Order] = ledger
	}
	if (e.Type == events.OrderAccepted || e.Type == events.OrderMigrated) && p.Newer != nil {
		ledger.Newer = p.Newer(e.Version)
	}
	ledger.Owner, ledger.Format, ledger.Doubted, ledger.Vanished = in.owner, in.format, doubted, vanished
	if err := ledger.Add(e); err != nil {
		t.Fatalf("%v\n%s", err, Story(append(history, *e)))
	}
	history = append(history, *e)
	CheckTimes(t, history, p.Skew, in.Jumps)
	in.Histories[e.Order] = history
}

// CheckTimes checks that the last event of a history is not older than the one before, and
// that an attempt expires as the allowance for clock skew says.
func CheckTimes(t T, history []events.Event, skew time.Duration, jumps bool) {
	t.Helper()
	n := len(history) - 1
	e := &history[n]
	if n > 0 && !jumps && e.At.Before(history[n-1].At) {
		t.Fatalf("%q: event %d is older than the one before", e.Order, e.Seq)
	}
	switch e.Type {
	case events.StepStarted, events.StepEmitting, events.StepExtended, events.UndoStarted, events.UndoExtended:
		want := time.Time{}
		if skew > 0 {
			want = e.CompleteBy.Add(skew)
		}
		if !e.Expires.Equal(want) {
			t.Fatalf("%q: event %d expires at %v, with a skew of %v", e.Order, e.Seq, e.Expires, skew)
		}
	}
}

// Definition is a workflow as the oracle sees it.
func (in *Inspector) Definition(w *workflow.Workflow) *oracle.Flow {
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

// CheckTopics checks that status messages go to the caller's topic until it was refused,
// and to the namespace's own from then on (P1).
func CheckTopics(t T, topics *events.Topics, id string, history []events.Event, got []string) {
	t.Helper()
	var want []string
	to := history[0].ReplyTo
	begun := events.ScheduleOf(history[0].Parent) != "" || events.IsCorrelation(history[0].Parent)
	quiet := history[0].Parent != "" && to == "" && !begun || events.ScheduleOf(id) != "" || events.IsCorrelation(id) || events.IsPlaces(id) // they are its parent's affair
	// Of one that is forgotten no event says that its caller's topic was refused.
	refused := slices.ContainsFunc(history, func(e events.Event) bool { return e.Type == events.StatusRefused || e.Type == events.OrderForgotten })
	for i, e := range history {
		if e.Type == events.StatusRefused {
			to = ""
		}
		if e.Type == events.OrderAccepted && len(history) > i+1 && history[i+1].Type == events.StatusRefused {
			to = "" // known when the order came
		}
		if quiet = quiet && e.Type != events.StatusRefused; quiet && e.Type != events.SubmissionConflicted && e.ReplyTo == "" {
			continue
		}
		own, moves := to, refused
		switch e.Type {
		case events.OrderAccepted, events.OrderRejected, events.OrderCompleted, events.OrderErrored,
			events.OrderCompensating, events.OrderCompensated, events.OrderCancelled, events.OrderRaised, events.OrderTerminated:
		case events.SubmissionConflicted: // its sender is told, and not the order's caller
			own, moves = e.ReplyTo, true
		case events.StepHeard, events.SignalKept, events.SignalStarted, events.SignalDiscarded: // as above, if it wants to be
			if e.ReplyTo == "" {
				continue
			}
			own, moves = e.ReplyTo, true
		default:
			continue
		}
		if own == "" || moves && len(got) > len(want) && got[len(want)] == topics.Status { // when it was to be delivered
			own = topics.Status
		}
		want = append(want, own)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%q: status messages went to %q, and not to %q", id, got, want)
	}
}

// delivered are the messages without those that callers' own topics have once more, and
// the status messages of an order in turn.
func delivered(t T, all []*kgo.Record, topics *events.Topics) (messages []*kgo.Record) {
	t.Helper()
	statuses := make(map[string][]*kgo.Record)
	for _, r := range all {
		if events.Header(r, events.HeaderType) == string(events.OrderStatus) {
			statuses[r.Topic] = append(statuses[r.Topic], r)
		} else {
			messages = append(messages, r)
		}
	}
	var told []*kgo.Record
	for topic, records := range statuses {
		first, err := oracle.InOrder(records, topic != topics.Status)
		must(t, err)
		told = append(told, first...)
	}
	told = oracle.AtLeastOnce(told, topics.Status)
	slices.SortStableFunc(told, func(a, b *kgo.Record) int { return cmp.Compare(oracle.Number(a), oracle.Number(b)) })
	return append(messages, told...)
}

// CheckState checks that the record says what the events say.
func CheckState(t T, o *projections.Order, l *oracle.Ledger) {
	t.Helper()
	if o == nil && l.Forgotten && events.ScheduleOf(l.Accepted().Parent) != "" { // of which nothing is left
		return
	}
	if o == nil {
		t.Fatalf("%q has no record", l.Order)
	}
	if o.Forgotten || l.Forgotten {
		if !o.Forgotten || !l.Forgotten || o.Seq != l.Seq || string(o.State) != l.State || o.Digest != l.Digest || o.Conflicted != l.Conflicted || len(o.Steps) > 0 {
			t.Fatalf("%q: forgotten: %t, %t; the record says %+v", o.ID, l.Forgotten, o.Forgotten, o)
		}
		return
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
		Failure         events.Error
		Digest          string
		Conflicted      bool
		Void            [5]int
		Labels, RerunOf string
		SubmittedBy     string
		Parent          projections.Parent
		Quiet           bool
		Pinned          string
	}
	waiting := make([]string, len(o.Waiting))
	for i := range o.Waiting {
		waiting[i] = o.Waiting[i].Source
	}
	got := record{
		o.Seq, string(o.State), o.LockedBy, o.FailureCount, o.Paused, o.Alert != nil, string(o.Toward),
		o.Hold != nil, strings.Join(waiting, " "),
		o.Deadline, !o.Overdue().IsZero(), fault(o.Failure),
		o.Digest, o.Conflicted,
		[5]int{o.Discarded, o.Refused, o.PutAside, o.Unheard, o.GivenUp},
		fmt.Sprintf("%q", o.Labels), o.RerunOf, strings.Join(append([]string{o.SubmittedBy}, o.Submitters...), "\n"),
		projections.Parent{},
		o.Quiet, fmt.Sprint(o.Pinned),
	}
	if o.Parent != nil {
		got.Parent = *o.Parent
	}
	want := record{
		l.Seq, l.State, l.LockedBy, l.Failures, l.Paused, l.Alerted, l.Toward,
		l.Held, strings.Join(l.Waiting, " "),
		l.Deadline, !l.Deadline.IsZero() && !l.Paused && (l.State == "Pending" || l.State == "Processing") && l.Failure() == nil, fault(l.Failure()),
		l.Digest, l.Conflicted,
		[5]int{l.Discarded, l.Refused, l.PutAside, l.Unheard, l.GivenUp},
		fmt.Sprintf("%q", l.Labels), l.RerunOf, l.SubmittedBy(),
		projections.Parent{},
		l.Quiet(), fmt.Sprint(l.Accepted().Pinned),
	}
	if e := l.Accepted(); e.Parent != "" {
		want.Parent = projections.Parent{Order: e.Parent, Step: e.ParentStep, Depth: e.Depth, Detached: e.Detached}
	}
	if got != want {
		t.Fatalf("%q: the record says\n %+v, and must say\n %+v", o.ID, got, want)
	}
	checkSchedule(t, o, l)
	checkCorrelation(t, o, l)
	checkPlaces(t, o, l)
	var kept []oracle.Signal
	for _, s := range o.Signals {
		if s.Kept() {
			kept = append(kept, oracle.Signal{Name: s.Name, ID: s.ID, Source: s.Source, Until: s.Until, Data: s.Data})
		}
	}
	if !slices.EqualFunc(kept, l.Signals, func(a, b oracle.Signal) bool { return fmt.Sprint(a) == fmt.Sprint(b) }) {
		t.Fatalf("%q: the record keeps the signals\n %+v, and must keep\n %+v", o.ID, kept, l.Signals)
	}
	if len(o.Steps) != len(l.Steps) {
		t.Fatalf("%q: the record has %d steps", o.ID, len(o.Steps))
	}
	for i, want := range l.Steps {
		got := &o.Steps[i]
		if got.Name != want.Name || got.Unknown != want.MayHaveRun || !slices.EqualFunc(got.Earlier, want.Earlier, sameAct) || string(got.Output) != string(want.Output) || (got.Undo == nil) != (want.Undo == nil) || got.Repeats != want.Repeats || got.RepeatsBefore != want.RepeatsBefore || got.Sleeps != want.Sleeps || (got.Emits != nil) != want.Emits || !got.WakesAt().Equal(want.Wakes) || !sameChild(got.Child, want.Child) || got.Leaves != want.Leaves || !slices.Equal(o.LeftBy(got), want.LeftBy) || !sameItems(got.Each, want.Items) {
			t.Fatalf("%q: the record of step %s says\n %+v, and must say\n %+v", o.ID, want.Name, got, want)
		}
		checkWork(t, o.ID, want.Name, &got.Work, &want.Work, false)
		if want.Undo != nil {
			checkWork(t, o.ID, "undo of "+want.Name, got.Undo, want.Undo, true)
		}
	}
}

// checkSchedule checks that the record of a schedule says what the events say.
func checkSchedule(t T, o *projections.Order, l *oracle.Ledger) {
	t.Helper()
	if o.Schedule == nil || l.Schedule == nil {
		if (o.Schedule == nil) != (l.Schedule == nil) {
			t.Fatalf("%q: a schedule: %t", o.ID, o.Schedule != nil)
		}
		return
	}
	got, want := *o.Schedule, projections.Schedule{
		Says: l.Schedule.Says, Incarnation: l.Schedule.Incarnation, AppliedBy: l.Schedule.By, Next: l.Schedule.Next, Begins: l.Schedule.Begins, Last: l.Schedule.Last,
		Free: l.Schedule.Free, Started: l.Schedule.Started, Skipped: l.Schedule.Skipped,
		Open: openTicks(l.Schedule.Open), Backfilled: l.Schedule.Backfilled, Commands: l.Schedule.Commands,
	}
	for i, p := range l.Schedule.Pauses {
		if want.PausedAt, want.Resumed = p.From, p.Until; i < len(l.Schedule.Pauses)-1 {
			want.Pauses = append(want.Pauses, projections.Pause(p))
		}
	}
	for _, b := range l.Schedule.Backfills {
		want.Backfills = append(want.Backfills, projections.Backfill{Number: b.Number, Next: b.Next, Last: b.Last, Left: b.Left, AtOnce: b.AtOnce, By: b.By, Open: openTicks(b.Open)})
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%q: the record of the schedule says\n %+v, and must say\n %+v", o.ID, got, want)
	}
}

// checkCorrelation checks that the record of a correlation says what the events say.
func checkCorrelation(t T, o *projections.Order, l *oracle.Ledger) {
	t.Helper()
	if o.Correlation == nil || l.Correlation == nil {
		if (o.Correlation == nil) != (l.Correlation == nil) {
			t.Fatalf("%q: a correlation: %t", o.ID, o.Correlation != nil)
		}
		return
	}
	var got, want []string
	for _, w := range o.Correlation.Waits {
		source := ""
		if i := o.Given(w.Given); i >= 0 {
			source = o.Signals[i].Source
		}
		got = append(got, fmt.Sprint(w.Order, w.Step, w.Number, source))
	}
	for _, s := range o.Signals {
		if s.Kept() {
			starts := ""
			if s.Under.Starts {
				starts = events.StartedID(o.ID, s.Under.Given)
			}
			got = append(got, fmt.Sprint(s.Source, s.Under.Given > 0, s.Under.Told, starts))
		} else {
			got = append(got, fmt.Sprint(s.ID, s.Until))
		}
	}
	for _, w := range l.Correlation.Waits {
		want = append(want, fmt.Sprint(w.Order, w.Step, w.Number, w.Source))
	}
	for _, s := range l.Signals {
		u := l.Correlation.Under[s.Source]
		want = append(want, fmt.Sprint(s.Source, u.Given, u.Told, u.Starts))
	}
	for _, once := range l.Correlation.Once {
		want = append(want, fmt.Sprint(once.ID, once.Until))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) || o.Correlation.Key != l.Correlation.Key || o.Correlation.Signal != l.Correlation.Signal {
		t.Fatalf("%q: the record of the correlation says\n %q, and must say\n %q", o.ID, got, want)
	}
}

// checkPlaces checks that the record has the places that the events say: those that an order needs, and of a home those
// who have them and wait.
func checkPlaces(t T, o *projections.Order, l *oracle.Ledger) {
	t.Helper()
	var got, want []string
	for _, turn := range o.Turns {
		if turn.Ended == 0 {
			got = append(got, fmt.Sprint(turn.Home, turn.Key, turn.Step, turn.Undo, turn.Number))
		}
	}
	for _, turn := range l.Turns {
		want = append(want, fmt.Sprint(turn.Home, turn.Key, turn.Step, turn.Undo, turn.Number))
	}
	if p := o.Places; p != nil {
		taken, oldest := 0, time.Time{}
		var first uint64
		for s := range p.Seats() {
			got = append(got, fmt.Sprint(oracle.Seat{Order: s.Order, Step: s.Step, Wait: s.Wait, Key: s.Key, Rank: s.Rank, Number: s.Number, Taken: s.Taken}))
			if s.Taken {
				taken++
			} else if first == 0 || s.Number < first {
				first, oldest = s.Number, s.Since
			}
		}
		got = append(got, fmt.Sprint(p.Says, p.AppliedBy, p.Taken, p.Waiting, p.Oldest))
		want = append(want, fmt.Sprint(l.Places.Says, l.Places.By, taken, len(l.Places.Seats)-taken, oldest))
		for _, s := range l.Places.Seats {
			want = append(want, fmt.Sprint(s))
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if (o.Places == nil) != (l.Places == nil) || !slices.Equal(got, want) {
		t.Fatalf("%q: the record of places says\n %q, and must say\n %q", o.ID, got, want)
	}
}

func openTicks(open []oracle.Tick) (all []projections.Tick) {
	for _, t := range open {
		all = append(all, projections.Tick{At: t.At, Order: t.Order, Recalled: t.Recalled})
	}
	return all
}

func fault(e *events.Error) events.Error {
	if e == nil {
		return events.Error{}
	}
	return *e
}

func sameChild(got *projections.Child, want *oracle.Child) bool {
	if got == nil || want == nil {
		return (got == nil) == (want == nil)
	}
	return got.ID == want.ID && got.Recalled == want.Recalled
}

// sameItems says that the record has the items that the events say, each in its state.
func sameItems(got *projections.Each, want *oracle.Items) bool {
	if got == nil || want == nil {
		return (got == nil) == (want == nil)
	}
	left := 0
	for i := range want.All {
		if got.State(i+1).String() != want.All[i].State {
			return false
		}
		if want.All[i].Left {
			left++
		}
	}
	return got.Leaving() == left && samePages(got.Pages, want.Pages) && got.Count == len(want.All) && got.Recalled == want.Recalled && got.AtOnce == want.AtOnce && slices.Equal(got.Running, want.Running)
}

func samePages(got *projections.Pages, want *oracle.Pages) bool {
	if got == nil || want == nil {
		return (got == nil) == (want == nil)
	}
	return got.Asked == want.Asked && got.Running == want.Running && got.Cursor == want.Cursor && got.Last == want.Last && got.Empty == want.Empty && fault(got.Error) == fault(want.Error)
}

func sameAct(got projections.Key, want oracle.Act) bool {
	return got.Resubmissions == want.Resubmissions && string(got.Input) == string(want.Input)
}

func checkWork(t T, order, what string, got *projections.Work, says *oracle.Work, undo bool) {
	t.Helper()
	var kept []events.Error
	if undo {
		kept = says.Errors[max(0, len(says.Errors)-100):]
	}
	want := projections.Work{
		State: projections.StepState(says.State), Attempt: says.Attempt,
		FailureCount: says.Failures, Tried: says.Tried, Uncounted: says.Uncounted, NotKnown: says.NotKnown, Round: says.Round, Resubmissions: says.Resubmissions,
		CompleteBy: says.CompleteBy, Expires: says.Expires, ExtendTo: says.ExtendTo, Timeout: says.Timeout, Extended: says.Extended, Due: says.Due, IdempotencyKey: says.Key, Proof: says.Proof, Agent: says.Agent,
		Input: says.Input, Error: says.Last, Errors: kept, Unanswered: says.Unanswered, Done: says.Done, Doubtful: says.Doubtful, Passed: says.Passed, Turn: says.Turn,
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
func checkNotStuck(t T, o *projections.Order) {
	t.Helper()
	switch {
	case o == nil, o.Beside() || o.Forgotten, len(o.Turns) > 0 && o.State != projections.Error, o.State.Final(), o.Paused, o.State == projections.Error && o.Alert != nil:
	case o.State == projections.Error, o.CompleteBy(time.Time{}).IsZero() && !slices.ContainsFunc(o.Steps, func(s projections.Step) bool {
		return s.State == projections.Listening || s.State == projections.Approving ||
			(s.Child != nil || s.Each != nil) && (s.State == projections.Running || s.Undo != nil && s.Undo.State == projections.Running)
	}):
		t.Fatalf("%q: stuck in silence: %+v", o.ID, o)
	}
}

func must(t T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}
