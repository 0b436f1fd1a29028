package decide

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/inspect"
	"github.com/waybill-dev/waybill/test/leftout"
	"github.com/waybill-dev/waybill/test/oracle"
)

// recording is all that was recorded of one order.
type recording struct {
	history  []events.Event
	messages *oracle.Messages
	order    *projections.Order
	ledger   *oracle.Ledger
	find     func(name string, version int) *oracle.Flow
	stage    *stage
	others   map[string][]events.Event // the histories of all orders
	statuses []string                  // the topics of the status messages
	owners   []string                  // who decided each event
}

// recorded are some histories as [TestHistories] draws them, always the same.
var recorded = sync.OnceValue(func() (all []recording) {
	for seed := range 260 {
		all = append(all, drawn.Example(seed)...)
	}
	return all
})

// drawn draws what [TestHistories] does, and records it.
var drawn = rapid.Custom(func(t *rapid.T) []recording {
	h := &historian{stage: newStage(t), inspector: inspect.New()}
	defer func() { h.close() }()
	h.perform(t)
	return h.record(t)
})

// record is all that was recorded of each order.
func (h *historian) record(t *rapid.T) []recording {
	owners, owner := make(map[string][]string), ""
	for _, r := range h.journal {
		e, err := events.Decode[events.Event](r.Value)
		must(t, err)
		if e.Type == events.PartitionClaimed {
			owner = e.Instance
		}
		owners[e.Order] = append(owners[e.Order], owner)
	}
	var all []recording
	for _, id := range h.ids() {
		all = append(all, recording{
			history: h.inspector.Histories[id], messages: h.inspector.Messages[id], order: h.of(t, id), ledger: h.inspector.Ledgers[id],
			find: func(name string, version int) *oracle.Flow {
				return h.inspector.Definition(h.flows.Find(name, version))
			},
			stage: h.stage, others: h.inspector.Histories, statuses: h.inspector.Statuses[id], owners: owners[id],
		})
	}
	return all
}

// TestHistoriesGoDeep: whatever an orchestrator can write into a journal, and
// every end of an order, comes up in what [TestHistories] draws.
func TestHistoriesGoDeep(t *testing.T) {
	leftout.UnlessLong(t, "whether all comes up in what is drawn")
	counts := make(map[string]int)
	all := slices.Concat(recorded(), kept(), switched(), underLimit())
	for _, r := range all {
		for i := range r.history {
			e := &r.history[i]
			counts[string(e.Type)]++
			if e.Left {
				counts["left: "+string(e.Type)]++
			}
			if e.Type == events.ReplyDiscarded {
				counts["discarded: "+e.Reason]++
			}
			if e.Type == events.SignalDiscarded {
				counts["unheard: "+e.Reason]++
			}
		}
		counts["end: "+string(r.order.State)]++
		for _, cause := range r.ledger.Blame {
			counts["Error by "+string(cause)]++
		}
		counts["events"] += len(r.history)
	}
	for _, name := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return cmp.Compare(counts[b], counts[a]) }) {
		t.Logf("%6d %s", counts[name], name)
	}
	t.Logf("%.1f events in each of %d orders", float64(counts["events"])/float64(len(all)), len(all))

	source, err := os.ReadFile("../../events/event.go")
	must(t, err)
	want := []string{
		"end: " + string(projections.Processed), "end: " + string(projections.Rejected),
		"end: " + string(projections.Compensated), "end: " + string(projections.Cancelled), "end: " + string(projections.Raised), "end: " + string(projections.Terminated),
		"discarded: " + events.DiscardLate, "discarded: " + events.DiscardStale,
		"unheard: " + events.SignalRepeated, "unheard: " + events.SignalLate, "unheard: " + events.SignalUnheard,
		"left: " + string(events.StepFailed), "left: " + string(events.ItemFailed),
		"discarded: " + events.DiscardRepeated, "discarded: " + events.DiscardUnknownStep,
	}
	for _, cause := range oracle.Causes {
		if cause != oracle.ByLimit { // the simulation has limits that are not there
			want = append(want, "Error by "+string(cause))
		}
	}
	_, transitions, _ := strings.Cut(string(source), "// The transitions of an order.")
	for _, m := range regexp.MustCompile(`Type = "(waybill\.[a-z.-]+)"`).FindAllStringSubmatch(transitions, -1) {
		if !strings.HasPrefix(m[1], "waybill.partition.") {
			want = append(want, m[1])
		}
	}
	for _, name := range want {
		if counts[name] == 0 {
			t.Errorf("%s never comes up", name)
		}
	}
}

// verdict takes that a check fails.
type verdict struct{}

func (*verdict) Helper()             {}
func (*verdict) Logf(string, ...any) {}
func (v *verdict) Fatalf(string, ...any) {
	panic(v)
}

// fails says whether a check does.
func (v *verdict) fails(check func()) (yes bool) {
	defer func() {
		if said := recover(); said == v {
			yes = true
		} else if said != nil {
			panic(said)
		}
	}()
	check()
	return false
}

// refuse says who notices that a history is not what happened, "" if nobody does:
// the rules, the messages that were sent, the record, or the inputs.
func (r *recording) refuse(history []events.Event) (by string) {
	id := r.history[0].Order
	l := oracle.NewLedger(id, r.find)
	for i := range history {
		l.Owner = r.owners[min(i, len(r.owners)-1)]
		if l.Add(&history[i]) != nil {
			return "a rule"
		}
	}
	if l.Rest() != nil {
		return "rest"
	}
	if oracle.CheckMessages(history, r.messages) != nil {
		return "the messages"
	}
	o := r.order.Clone()
	o.Seq = l.Seq // numbers would tell
	v := new(verdict)
	for _, check := range []struct {
		by string
		do func()
	}{
		{"the record", func() { inspect.CheckState(v, o, l) }},
		{"the messages' topics", func() { inspect.CheckTopics(v, &r.stage.topics, id, history, r.statuses) }},
		{"the submission", func() { must(v, r.stage.submitted(id, history, r.find)) }},
		{"the replies", func() { must(v, r.stage.replied(id, history)) }},
		{"what orders told", func() { must(v, r.stage.told(id, history)) }},
		{"its family", func() { must(v, r.family(id, history)) }},
		{"the signals", func() { must(v, r.stage.signalled(id, history)) }},
		{"the commands", func() { must(v, r.stage.commanded(id, history)) }},
		{"the dead letters", func() { must(v, r.stage.putAside(id, history)) }},
		{"the times", func() {
			for n := range history {
				inspect.CheckTimes(v, history[:n+1], r.stage.skew, false)
			}
		}},
	} {
		if v.fails(check.do) {
			return check.by
		}
	}
	return ""
}

// family holds a history against those of the orders that do its steps, and of the one whose step it
// does.
func (r *recording) family(id string, history []events.Event) error {
	f := oracle.Families{
		Order: func(other string) []events.Event {
			if other == id {
				return history
			}
			return r.others[other]
		},
		Find: r.find, Quiet: func(string) bool { return true },
	}
	all := []string{id, history[0].Parent}
	for i := range history {
		all = append(all, history[i].Child)
	}
	for _, member := range slices.Compact(all) {
		if err := f.Check(member); err != nil {
			return err //nolint:wrapcheck // a test alone asks
		}
	}
	return nil
}

// pardon is a kind of mutants that may survive, and why.
type pardon struct {
	kind, why string
	most      int // how many, 0 for any number
}

var pardoned = []pardon{
	{kind: "too late ", why: "two events of one time, of which neither depends on the other"},
	{kind: "other reason of command.refused", why: "words for people"},
	{kind: "other reason of status.refused", why: "what Kafka says stands in no topic"},
	{kind: "other reason of step.retried", why: "words for people"},
	{kind: "other reason of undo.retried", why: "words for people"},
	{kind: "an hour later ", why: "the last event, about which no message tells"},
	{kind: "lost step.retried", why: "what it is armed for never comes, or its agent is away, which is on trust", most: 80},
	{kind: "another step.retried before", why: "that an agent is away is on trust", most: 40},
	{kind: "the step s0 in step.retried", why: "that an agent is away is on trust", most: 4},
	{kind: "a retry after", why: "what it is armed for never comes", most: 2},
	{kind: "count changed of step.expired", why: "that an agent gives no sign is on trust", most: 30},
	{kind: "count changed of undo.expired", why: "that an agent gives no sign is on trust", most: 10},
	{kind: "lost undo.retried", why: "that an agent is away is on trust", most: 20},
	{kind: "another undo.retried before", why: "that an agent is away is on trust", most: 4},
	{kind: "the step s0 in undo.retried", why: "that an agent is away is on trust", most: 4},
	{kind: "the step s1 in step.retried", why: "that an agent is away is on trust", most: 20},
	{kind: "the step s1 in undo.retried", why: "that an agent is away is on trust", most: 4},
	{kind: "the step s2 in step.retried", why: "that an agent is away is on trust", most: 20},
	{kind: "the step s3 in step.retried", why: "that an agent is away is on trust", most: 4},
	{kind: "lost input.held", why: "its order has ended since, and deciding on it panics then, too", most: 4},
	{kind: "lost step.extended", why: "what moves the complete-by by too little leaves no event", most: 40},
	{kind: "lost undo.extended", why: "what moves the complete-by by too little leaves no event", most: 20},
	{kind: "complete-by a moment later of ", why: "when its agent said so is on trust, if it was read later", most: 20},
	{kind: "the step s4 in step.retried", why: "that an agent is away is on trust", most: 4},
	{kind: "other reason of step.passed", why: "words for people"},
	{kind: "other reason of order.reported", why: "words for people"},
	{kind: "other reason of order.compensating", why: "words for people, where no caller hears of an order", most: 12},
	{kind: "other reason of order.raised", why: "words for people, where no caller hears of an order", most: 30},
	{kind: "no new names of order.migrated", why: "nobody was asked for the steps that have them", most: 8},
	{kind: "other label of order.labelled", why: "its operator changed it again before anybody looked", most: 4},
	{kind: "no labels of order.labelled", why: "its operator changed them again before anybody looked", most: 4},
	{kind: "lost signal.kept", why: "it had no data, and a step heard it when it was read", most: 4},
	{kind: "lost signal.expired", why: "nothing waited for it any more", most: 4},
	{kind: "deadline soon of order.accepted", why: "it failed at once, and its operator had it go on without its deadline, or with another", most: 8},
	{kind: "deadline soon of order.changed", why: "its operator had it go on without it, or with another", most: 4},
	{kind: "later deadline of order.accepted", why: "its operator gave it another before it mattered", most: 12},
	{kind: "no count of reply.discarded", why: "its order is forgotten, and no record says it any more", most: 8},
	{kind: "no count of command.refused", why: "its order is forgotten, and no record says it any more", most: 16},
	{kind: "lost reply.discarded", why: "its order is forgotten, and no record says it any more", most: 8},
	{kind: "rerun added to order.accepted", why: "its order is forgotten, and no record says it any more", most: 24},
	{kind: "no count of input.discarded", why: "its order is forgotten, and no record says it any more", most: 8},
	{kind: "lost step.heard", why: "its order is forgotten, and no record says it any more", most: 8},
	{kind: "lost step.sleeping", why: "its order is forgotten, and no record says it any more", most: 8},
	{kind: "lost step.timed-out", why: "its order is forgotten, and no record says it any more", most: 8},
	{kind: "lost step.skipped", why: "its order is forgotten, and no record says it any more", most: 8},
	{kind: "lost step.approving", why: "its order is forgotten, and no record says it any more", most: 8},
	{kind: "lost step.listening", why: "its order is forgotten, and no record says it any more", most: 8},
	{kind: "other version pinned by order.accepted", why: "its order is forgotten, and no record says it any more", most: 8},
	{kind: "later deadline of order.changed", why: "its operator gave it another before it mattered", most: 8},
}

// TestTheOracleNotices: of all that can be done to an event of a history, the
// oracle notices nearly everything. It is done to every third event of each history, and to all
// with WAYBILL_MUTANTS=all, as make mutants has it.
func TestTheOracleNotices(t *testing.T) {
	leftout.UnlessLong(t, "whether the oracle notices what is done to histories")
	t.Parallel()
	apart := 3
	if os.Getenv("WAYBILL_MUTANTS") == "all" {
		apart = 1
	}
	refused, survived := make(map[string]int), make(map[string]int)
	mutants, survivors := 0, 0
	for n, r := range recorded() {
		if by := r.refuse(r.history); by != "" {
			t.Fatalf("%s refuses what happened", by)
		}
		for m := range oracle.Mutants(r.history) {
			if (m.At+n)%apart != 0 {
				continue
			}
			mutants++
			by := r.refuse(m.History)
			if refused[by]++; by == "" {
				survivors++
				survived[m.Kind]++
			}
		}
	}
	t.Logf("%d mutants, refused by %v", mutants, refused)
	for _, kind := range slices.SortedFunc(maps.Keys(survived), func(a, b string) int { return cmp.Compare(survived[b], survived[a]) }) {
		i := slices.IndexFunc(pardoned, func(p pardon) bool {
			return strings.HasPrefix(kind, p.kind) && (p.most == 0 || survived[kind] <= p.most)
		})
		if i < 0 {
			t.Errorf("%6d %s: nobody notices", survived[kind], kind)
			continue
		}
		t.Logf("%6d %s: %s", survived[kind], kind, pardoned[i].why)
	}
	if 50*survivors > mutants {
		t.Errorf("%d of %d mutants survive", survivors, mutants)
	}
}

// needs are the rules without which something would be taken, each with those
// that ask for it, and what shows it.
type needs map[string]string

// at says whether a line of the oracle is needed.
func (n needs) at(place string) bool {
	for chain := range n {
		if strings.Contains(chain, place+" ") {
			return true
		}
	}
	return false
}

// look follows a history with the ledger alone, up to the first rule that is
// broken. If nothing else is wrong with that event, or with the end, the rule is
// needed.
func (n needs) look(r *recording, kind string, history []events.Event, find func(string, int) *oracle.Flow) {
	broken, at := r.follow(history, find, "")
	if broken == "" || n[broken] != "" {
		return
	}
	if _, then := r.follow(history, find, broken); then > at {
		n[broken] = kind
	}
}

// follow says which rule is broken first, by its place in the source and those of
// the calls that lead there, and by which event. The one that is pardoned is not to
// hold.
func (r *recording) follow(history []events.Event, find func(string, int) *oracle.Flow, pardoned string) (broken string, at int) {
	l := oracle.NewLedger(r.history[0].Order, find)
	l.Pardon = func() bool {
		var calls [8]uintptr
		frames := runtime.CallersFrames(calls[:runtime.Callers(3, calls[:])])
		broken = ""
		for more := true; more; {
			var f runtime.Frame
			if f, more = frames.Next(); !strings.Contains(f.File, "/test/oracle/") {
				break
			}
			broken += fmt.Sprint(filepath.Base(f.File), ":", f.Line, " ")
		}
		return broken == pardoned
	}
	for i := range history {
		l.Owner = r.owners[min(i, len(r.owners)-1)]
		if l.Add(&history[i]) != nil {
			return broken, i
		}
	}
	if l.Rest() != nil {
		return broken, len(history)
	}
	return "", len(history) + 1
}

// cancelled is an order that was cancelled while its last step ran, and not undone.
func cancelled() recording {
	e := func(kind events.Type, more events.Event) events.Event {
		more.Type, more.Order, more.At = kind, "o", inspect.Curtain
		return more
	}
	history := []events.Event{
		e(events.OrderAccepted, events.Event{Steps: []string{"a"}}),
		e(events.StepStarted, events.Event{
			Step: "a", Attempt: 1, Agent: "x", Operation: "a", IdempotencyKey: "o/a", CompleteBy: inspect.Curtain.Add(time.Second), LockedBy: "i-1",
		}),
		e(events.OrderCompensating, events.Event{End: "Cancelled", Reason: "why", LockedBy: "i-1"}),
		e(events.StepCompleted, events.Event{Step: "a", Attempt: 1}),
		e(events.OrderCancelled, events.Event{NotUndone: []string{"a"}}),
	}
	for i := range history {
		history[i].Seq = uint64(i + 1)
	}
	return recording{history: history, owners: []string{"i-1"}, find: func(string, int) *oracle.Flow { return nil }}
}

// raised is an order of which a step raised a failure while another ran, and an operator had it
// wait with that.
func raised() recording {
	r := cancelled()
	e := func(kind events.Type, more events.Event) events.Event {
		more.Type, more.Order, more.At = kind, "o", inspect.Curtain
		return more
	}
	fault := &events.Error{Code: "no", Step: "b"}
	r.history = []events.Event{
		e(events.OrderAccepted, events.Event{Steps: []string{"a", "b"}}),
		r.history[1],
		e(events.StepRaised, events.Event{Step: "b", Error: fault}),
		e(events.OrderPaused, events.Event{}),
		e(events.StepCompleted, events.Event{Step: "a", Attempt: 1}),
		e(events.OrderResumed, events.Event{}),
		e(events.OrderRaised, events.Event{Step: "b", Error: fault, Reason: "why", NotUndone: []string{"a"}}),
	}
	for i := range r.history {
		r.history[i].Seq = uint64(i + 1)
	}
	return r
}

// raisedLate is an order of which a step raised a failure that an operator had passed over.
func raisedLate() (recording, []events.Event) {
	r := raised()
	skipped := events.Event{Type: events.StepSkipped, Order: "o", Seq: 2, At: inspect.Curtain, Step: "b"}
	late := r.history[2]
	late.Seq = 3
	return r, []events.Event{r.history[0], skipped, late, {Type: events.OrderPaused, Order: "o", Seq: 4, At: inspect.Curtain}}
}

// raisedAgain is an order of which a step is to be done again though another has raised a failure.
func raisedAgain() (recording, []events.Event) {
	r := raised()
	return r, append(r.history[:3:3], events.Event{
		Type: events.StepRepeated, Order: "o", Seq: 4, At: inspect.Curtain, Step: "a", Attempt: 1, Count: 1, Due: inspect.Curtain.Add(time.Second),
	})
}

// waitedForNobody is an order of which a step is tried again after an error, and says that it waited
// for its agent.
func waitedForNobody() (recording, []events.Event) {
	r := cancelled()
	e := func(kind events.Type, more events.Event) events.Event {
		more.Type, more.Order, more.At, more.Step = kind, "o", inspect.Curtain, "a"
		return more
	}
	return r, append(r.history[:2:2],
		e(events.StepFailed, events.Event{Seq: 3, Attempt: 1, Error: &events.Error{Code: "busy"}}),
		e(events.StepRetried, events.Event{Seq: 4, Attempt: 2, Due: inspect.Curtain.Add(time.Second), Reason: "why"}),
	)
}

// heardLate is an order of which a step hears what was kept until a moment ago.
func heardLate() (recording, []events.Event) {
	r := cancelled()
	const source = "waybill.signals/0/0"
	history := []events.Event{
		r.history[0],
		{Type: events.SignalKept, Signal: "go", Source: source, Due: inspect.Curtain.Add(time.Second)},
		{Type: events.StepListening, Step: "a", Attempt: 1, Listen: "one", Signals: []string{"go"}},
		{Type: events.StepHeard, Step: "a", Attempt: 1, Signal: "go", Source: source},
	}
	for i := range history {
		history[i].Order, history[i].Seq, history[i].At = "o", uint64(i+1), inspect.Curtain
	}
	for i := range history[2:] {
		history[i+2].At = inspect.Curtain.Add(time.Second)
	}
	return r, history
}

// unkept are orders of which signals were kept twice, and given up that were not kept, or too soon.
func unkept() (r recording, histories [][]events.Event) {
	r = cancelled()
	kept := events.Event{
		Type: events.SignalKept, Order: "o", At: inspect.Curtain, Signal: "go", SignalID: "p-1", Source: "waybill.signals/0/0", Due: inspect.Curtain.Add(time.Second),
	}
	twice, expired := kept, kept
	twice.Source = "waybill.signals/0/1"
	expired.Type, expired.Due = events.SignalExpired, time.Time{}
	for _, happened := range [][]events.Event{{kept, twice}, {expired}, {kept, expired}} {
		history := append([]events.Event{r.history[0]}, happened...)
		for i := range history {
			history[i].Seq = uint64(i + 1)
		}
		histories = append(histories, history)
	}
	return r, histories
}

// tolerated is an order whose step completes though more of its items failed than may.
func tolerated() (recording, []events.Event, func(string, int) *oracle.Flow) {
	r := cancelled()
	each := &oracle.FlowEach{Items: oracle.FlowItems{List: "input"}, AtOnce: 1, OnFailure: "stop"}
	flow := &oracle.Flow{Steps: []oracle.FlowStep{{Name: "a", Each: each, Exhausted: "error"}}}
	accepted, list := r.history[0], []byte("[1]")
	accepted.Input = list
	history := []events.Event{
		accepted,
		{Type: events.StepItemized, Step: "a", Attempt: 1, Workflow: "/a", Input: list, Count: 1, LockedBy: "i-1"},
		{Type: events.ItemsOrdered, Step: "a", Attempt: 1, Item: 1, Count: 1, LockedBy: "i-1"},
		{Type: events.ItemFailed, Step: "a", Attempt: 1, Item: 1, Source: "waybill.internal/0/0", Error: &events.Error{Code: "no", Permanent: true}},
		{Type: events.StepCompleted, Step: "a", Attempt: 1, Output: []byte(`{"items":1,"completed":0,"failed":1,"failures":[{"item":1}],"outputs":[null]}`)},
	}
	for i := range history {
		history[i].Order, history[i].Seq, history[i].At = "o", uint64(i+1), inspect.Curtain
	}
	return r, history, func(string, int) *oracle.Flow { return flow }
}

// paged is an order that has a step whose items an agent lists: one fails, and so does a page, what failed is done anew,
// and those are forgotten that did all that.
func paged(t *testing.T) recording {
	each := &oracle.FlowEach{Items: oracle.FlowItems{Agent: &oracle.FlowStep{Name: "page", Agent: "x", Do: "list"}}, AtOnce: 2, OnFailure: "stop"}
	must(t, each.Tolerate.UnmarshalJSON([]byte("1")))
	flow := &oracle.Flow{Name: "w", Version: 1, Steps: []oracle.FlowStep{{Name: "a", Each: each, Exhausted: "error"}}}
	r := cancelled()
	r.find = func(string, int) *oracle.Flow { return flow }
	r.history = r.history[:1]
	r.history[0].Workflow, r.history[0].Version = "w", 1
	attempt := 1
	e := func(kind events.Type, more events.Event) {
		more.Type, more.Order, more.Seq, more.At = kind, "o", uint64(len(r.history)+1), inspect.Curtain
		switch kind {
		case events.StepItemized, events.PageOrdered, events.ItemsOrdered:
			more.LockedBy = "i-1"
		case events.PageCompleted, events.PageFailed, events.ItemCompleted, events.ItemFailed:
			more.Source = fmt.Sprint("waybill.internal/0/", more.Seq)
		}
		if more.Step == "" && !strings.HasPrefix(string(kind), "waybill.order.") {
			more.Step = "a"
		}
		if more.Step == "a" && !strings.Contains(string(kind), "forgotten") && kind != events.AlertRaised && kind != events.OrderErrored {
			more.Attempt = attempt
		}
		r.history = append(r.history, more)
	}
	gone := &events.Error{Code: "page-failed", Message: "page 3: gone", Permanent: true}
	told := *gone
	told.Step, told.Attempt = "a", 1
	e(events.StepItemized, events.Event{Workflow: "w/a", Version: 1, Agent: "x", Operation: "list"})
	e(events.PageOrdered, events.Event{Page: 1, Workflow: "w/a:pages", Version: 1})
	e(events.PageCompleted, events.Event{Page: 1, Input: []byte("[1,2]"), Count: 2, Cursor: "c-1"})
	e(events.ItemsOrdered, events.Event{Item: 1, Count: 2})
	e(events.PageOrdered, events.Event{Page: 2, Workflow: "w/a:pages", Version: 1})
	e(events.ItemCompleted, events.Event{Item: 1})
	e(events.PageCompleted, events.Event{Page: 2, Input: []byte("[]"), Cursor: "c-2"})
	e(events.PageOrdered, events.Event{Page: 3, Workflow: "w/a:pages", Version: 1})
	e(events.PageFailed, events.Event{Page: 3, Error: gone})
	e(events.ItemFailed, events.Event{Item: 2, Error: &events.Error{Code: "no", Permanent: true}})
	e(events.StepFailed, events.Event{Error: gone})
	e(events.OrderErrored, events.Event{Step: "a", Reason: "why", Error: gone})
	e(events.AlertRaised, events.Event{Reason: "why", Action: "do", Errors: []events.Error{told}})
	e(events.OrderResubmitted, events.Event{})
	attempt = 2
	e(events.StepItemized, events.Event{Workflow: "w/a", Version: 1, Agent: "x", Operation: "list", Count: 2})
	e(events.PageOrdered, events.Event{Page: 1})
	e(events.PageCompleted, events.Event{Page: 1, Input: []byte("[1,2]"), Count: 2})
	e(events.ItemsOrdered, events.Event{Item: 2, Count: 1})
	e(events.PageOrdered, events.Event{Page: 4, Workflow: "w/a:pages", Version: 1})
	e(events.PageCompleted, events.Event{Page: 4, Input: []byte("[3]"), Count: 1})
	e(events.ItemsOrdered, events.Event{Item: 3, Count: 1})
	e(events.ItemCompleted, events.Event{Item: 2})
	e(events.ItemCompleted, events.Event{Item: 3})
	e(events.StepCompleted, events.Event{Output: []byte(`{"items":3,"completed":3,"failed":0,"failures":[],"outputs":[null,null,null]}`)})
	e(events.OrderCompleted, events.Event{})
	e(events.PagesForgotten, events.Event{Page: 1, Count: 4})
	e(events.ItemsForgotten, events.Event{Item: 1, Count: 3})
	l := oracle.NewLedger("o", r.find)
	for i := range r.history {
		l.Owner = "i-1"
		must(t, l.Add(&r.history[i]))
	}
	must(t, l.Rest())
	return r
}

// pagedWrong are such histories that break a rule, each in another way.
func pagedWrong(r *recording) (all [][]events.Event) {
	change := func(at int, how func(e *events.Event)) {
		h := slices.Clone(r.history[:at+1])
		how(&h[at])
		all = append(all, h)
	}
	for i := range r.history {
		switch e := &r.history[i]; e.Type {
		case events.PageOrdered:
			change(i, func(e *events.Event) { e.Page += 5 })
			change(i, func(e *events.Event) { e.Workflow = "other" })
			change(i, func(e *events.Event) { e.LockedBy = "" })
			change(i, func(e *events.Event) { e.Attempt++ })
			change(i, func(e *events.Event) { e.Version++ })
		case events.PageCompleted:
			change(i, func(e *events.Event) { e.Page += 5 })
			change(i, func(e *events.Event) { e.Count++ })
			change(i, func(e *events.Event) { e.Source = "waybill.replies/0/1" })
			change(i, func(e *events.Event) { e.Input, e.Count = []byte("[7]"), 1 })
			change(i, func(e *events.Event) { e.Cursor = "c-1" })
			change(i, func(e *events.Event) { e.Cursor = strings.Repeat("x", events.MaxCursor+1) })
			change(i, func(e *events.Event) { e.Attempt++ })
		case events.PageFailed:
			change(i, func(e *events.Event) { e.Error = &events.Error{Code: "other", Permanent: true} })
			change(i, func(e *events.Event) { e.Page += 5 })
		case events.PagesForgotten:
			change(i, func(e *events.Event) { e.Count++ })
		case events.StepItemized:
			change(i, func(e *events.Event) { e.Operation = "other" })
			change(i, func(e *events.Event) { e.Agent = "" })
			change(i, func(e *events.Event) { e.Count++ })
		}
	}
	return all
}

// decidedByWhoSubmitted is an order in which somebody decides who submitted it.
func decidedByWhoSubmitted() (recording, []events.Event) {
	r := cancelled()
	accepted := r.history[0]
	accepted.By = "sam"
	history := []events.Event{
		accepted,
		{Type: events.StepApproving, Step: "a", Attempt: 1, Roles: []string{"clerk"}, Outcomes: []string{"approved"}},
		{Type: events.StepDecided, Step: "a", Attempt: 1, Outcome: "approved", By: "sam"},
		{Type: events.OrderCompleted},
	}
	for i := range history {
		history[i].Order, history[i].Seq, history[i].At = "o", uint64(i+1), inspect.Curtain
	}
	return r, history
}

// passedBy is an order of which a step hears a signal for which another has waited longer.
func passedBy() (recording, []events.Event) {
	r := raised()
	history := []events.Event{
		r.history[0],
		{Type: events.StepListening, Step: "a", Attempt: 1, Listen: "one", Signals: []string{"go"}},
		{Type: events.StepListening, Step: "b", Attempt: 1, Listen: "one", Signals: []string{"go"}},
		{Type: events.StepHeard, Step: "b", Attempt: 1, Signal: "go", Source: "waybill.signals/0/0"},
	}
	for i := range history {
		history[i].Order, history[i].Seq, history[i].At = "o", uint64(i+1), inspect.Curtain
	}
	return r, history
}

// keptTwice are signals under a key that are kept, and then kept once more, or are to start an order.
func keptTwice() (r recording, histories [][]events.Event) {
	r = cancelled()
	const home = "@k/signal.go"
	kept := events.Event{
		Type: events.SignalKept, Order: home, Seq: 1, At: inspect.Curtain, Key: "k", Signal: "go", SignalID: "p-1", Source: "waybill.signals/0/0", Due: inspect.Curtain.Add(time.Second),
	}
	r.history = []events.Event{kept}
	again, starts := kept, kept
	again.Seq, starts.Seq = 2, 2
	starts.Type, starts.Child, starts.Workflow, starts.Version = events.SignalOrdered, home+"/order.2", "w", 1
	return r, [][]events.Event{{kept, again}, {kept, starts}}
}

// tooShallow is an order of which a step could not begin since too many orders are above it, and none is.
func tooShallow() (recording, []events.Event) {
	r := cancelled()
	return r, []events.Event{r.history[0], {
		Type: events.StepFailed, Order: "o", Seq: 2, At: inspect.Curtain, Step: "a", Attempt: 1, Error: &events.Error{Code: tooDeep, Step: "a"},
	}}
}

// disowned is an order that tells the one whose step it does that it does not.
func disowned() (recording, []events.Event) {
	r := cancelled()
	accepted := r.history[0]
	accepted.Order, accepted.Parent, accepted.ParentStep, accepted.Depth = "@p/h", "p", "h", 1
	r.history = []events.Event{accepted}
	return r, append(r.history, events.Event{
		Type: events.OrderReported, Order: "@p/h", Seq: 2, At: inspect.Curtain, Parent: "p", ParentStep: "h", Reason: "why", Error: &events.Error{Code: events.IDTaken},
	})
}

// toldTooSoon is an order that tells the one whose step it does how it ended, and has not.
func toldTooSoon() (recording, []events.Event) {
	r, history := disowned()
	history[1].Error = nil
	return r, history
}

// noSchedule is an order that is paused as a schedule is.
func noSchedule() (recording, []events.Event) {
	r := cancelled()
	return r, append(r.history[:2:2], events.Event{Type: events.SchedulePaused, Order: "o", Seq: 3, At: inspect.Curtain})
}

// flooded is an order that has one discarded reply more than there may be.
func flooded() (recording, []events.Event) {
	r := cancelled()
	history := r.history[:2]
	for n := range MaxVoid + 1 {
		history = append(history, events.Event{
			Type: events.ReplyDiscarded, Order: "o", Seq: uint64(n + 3), At: inspect.Curtain, Step: "z", Attempt: 1, Reason: events.DiscardUnknownStep, Count: n + 1,
		})
	}
	return r, history
}

// doubted is an order whose step may have run under as many keys as one may, and gets
// one more.
func doubted() (recording, []events.Event) {
	r := cancelled()
	history, now := r.history[:1], inspect.Curtain
	for n := range maxKeys {
		e := func(kind events.Type, more events.Event) {
			more.Type, more.Order, more.Seq, more.At = kind, "o", uint64(len(history)+1), now
			history = append(history, more)
		}
		key, expired := events.IdempotencyKey("o", "a", n), events.Error{Code: "expired"}
		told := expired
		told.Step, told.Attempt = "a", n+1
		e(events.StepStarted, events.Event{
			Step: "a", Attempt: n + 1, Agent: "x", Operation: "a", IdempotencyKey: key, CompleteBy: now.Add(time.Second), LockedBy: "i-1",
		})
		now = now.Add(time.Second)
		e(events.StepExpired, events.Event{Step: "a", Attempt: n + 1, Error: &expired})
		e(events.OrderErrored, events.Event{Step: "a", Reason: "why", Error: &expired})
		e(events.AlertRaised, events.Event{Step: "a", Reason: "why", Action: "do", Errors: []events.Error{told}})
		e(events.OrderResubmitted, events.Event{NewKey: true, MayHaveRun: []string{"a"}})
	}
	return r, history
}

// nobodys is an order that does again what has no id of an order.
func nobodys() (recording, []events.Event) {
	r := cancelled()
	r.history[0].RerunOf = strings.Repeat("x", events.MaxOrderID+1)
	return r, r.history
}

// vain is an order whose step fails for that it was done in vain, once, and may be done twice.
func vain() (recording, []events.Event, func(string, int) *oracle.Flow) {
	r := cancelled()
	flow := &oracle.Flow{Steps: []oracle.FlowStep{{Name: "a", Agent: "x", Do: "a", Timeout: oracle.Timeout{After: oracle.Duration(time.Second)}, Exhausted: "error", Repeat: &oracle.FlowRepeat{Until: "false", Every: 1, Max: 2}}}}
	flow.Steps[0].Retry.Attempts = 1
	failed := events.Event{
		Type: events.StepFailed, Order: "o", Seq: 3, At: inspect.Curtain, Step: "a", Attempt: 1,
		Error: &events.Error{Code: events.UntilNotMet, Message: "it was done 1 time", Permanent: true},
	}
	return r, append(r.history[:2], failed), func(string, int) *oracle.Flow { return flow }
}

// TestEveryRuleIsNeeded: for every rule of the ledger, and for every place that
// asks for several, there is a history that breaks it alone. Without it nobody
// would notice.
func TestEveryRuleIsNeeded(t *testing.T) {
	leftout.UnlessLong(t, "whether each rule of the oracle is needed")
	t.Parallel()
	rules := make(map[string]string)
	files, err := filepath.Glob("../../test/oracle/*.go")
	must(t, err)
	for _, file := range files {
		source, err := os.ReadFile(file)
		must(t, err)
		for n, line := range strings.Split(string(source), "\n") {
			if oracle.Rules.MatchString(line) {
				rules[fmt.Sprint(filepath.Base(file), ":", n+1)] = strings.TrimSpace(line)
			}
		}
	}

	needed := make(needs)
	r, flood := flooded()
	needed.look(&r, "a flood", flood, nil)
	r, doubts := doubted()
	needed.look(&r, "one key more", doubts, nil)
	r, once, find := vain()
	needed.look(&r, "done once", once, find)
	r, rerun := nobodys()
	needed.look(&r, "a rerun of what is none", rerun, nil)
	r, late := raisedLate()
	needed.look(&r, "a failure of what was skipped", late, nil)
	r, reason := waitedForNobody()
	needed.look(&r, "a reason of a retry", reason, nil)
	r, again := raisedAgain()
	needed.look(&r, "done again after a failure", again, nil)
	r, old := heardLate()
	needed.look(&r, "heard after its time", old, nil)
	r, signals := unkept()
	for _, history := range signals {
		needed.look(&r, "a signal that is not kept", history, nil)
	}
	r, more, find := tolerated()
	needed.look(&r, "more failed than may", more, find)
	r = paged(t)
	needed.lookAll(&r)
	for _, hand := range pagedWrong(&r) {
		needed.look(&r, "pages by hand", hand, r.find)
	}
	r, own := decidedByWhoSubmitted()
	needed.look(&r, "decided by who submitted it", own, nil)
	r, passed := passedBy()
	needed.look(&r, "heard by who has waited for less", passed, nil)
	r, shallow := tooShallow()
	needed.look(&r, "too deep, under nobody", shallow, nil)
	r, own = disowned()
	needed.look(&r, "disowned", own, nil)
	r, soon := toldTooSoon()
	needed.look(&r, "told before its end", soon, nil)
	r, twice := keptTwice()
	for _, history := range twice {
		needed.look(&r, "a signal that is kept", history, nil)
	}
	r, miscounts := miscounted()
	for _, history := range miscounts {
		needed.look(&r, "miscounted", history, nil)
	}
	r, wrong, find := startedWrong()
	for _, history := range wrong {
		needed.look(&r, "started wrong", history, find)
	}
	r, mistakes, find := mistaken()
	for _, history := range mistakes {
		needed.look(&r, "mistaken", history, nil)
		needed.look(&r, "mistaken", history, find)
	}
	r, paused := noSchedule()
	needed.look(&r, "a schedule that is none", paused, nil)
	for _, r := range kept() {
		if events.ScheduleOf(r.ledger.Order) != "" && len(r.history) <= 30 {
			needed.lookAll(&r)
		}
	}
	for _, r := range switched() {
		if len(r.history) <= 15 {
			needed.lookAll(&r)
		}
	}
	home, order, ofHome, ofOrder, limited := limitedWrong()
	for _, history := range ofHome {
		needed.look(&home, "places by hand", history, home.find)
	}
	for _, history := range ofOrder {
		needed.look(&order, "places asked for by hand", history, limited)
	}
	home, order, ofHome, ofOrder, find = turnsWrong()
	for _, history := range ofHome {
		needed.look(&home, "turns by hand", history, home.find)
	}
	for _, history := range ofOrder {
		needed.look(&order, "turns asked for by hand", history, find)
	}
	many := *find("w", 1)
	many.Concurrency = nil
	needed.look(&order, "a turn that nobody needs", turnOf("w"), func(string, int) *oracle.Flow { return &many })
	short := func(histories []recording) {
		for _, r := range histories {
			if len(r.history) <= 40 { // what a long one shows, shorter ones do
				needed.lookAll(&r)
			}
		}
		maps.DeleteFunc(rules, func(place, _ string) bool { return needed.at(place) })
	}
	short([]recording{cancelled(), raised()})
	for _, seed := range telling {
		short(drawn.Example(seed))
	}
	for seed := 0; len(rules) > 0 && seed < 1600; seed++ {
		left := maps.Clone(rules)
		short(drawn.Example(seed))
		for place, rule := range left {
			if rules[place] == "" {
				t.Errorf("the history of seed %d shows that the rule at %s is needed: note the seed in telling. %s", seed, place, rule)
			}
		}
	}
	for place, rule := range rules {
		t.Errorf("nobody misses the rule at %s: %s", place, rule)
	}
}

// telling are the seeds of the histories that show of some rule that it is needed.
var telling = []int{
	0, 1, 3, 5, 7, 9, 11, 12, 13, 14, 15, 16, 17, 18, 21, 24, 25, 28, 30, 32, 36, 42, 45, 46, 47, 49,
	50, 51, 54, 56, 57, 61, 62, 63, 70, 75, 89, 94, 108, 114, 130, 209, 216, 240, 942,
}

// lookAll looks at whatever breaks the rules and can be made of a recording.
func (n needs) lookAll(r *recording) {
	for m := range oracle.Mutants(r.history) {
		n.look(r, m.Kind, m.History, r.find)
		n.look(r, m.Kind, m.History, nil)
	}
	for i := range r.history {
		n.look(r, "the end before "+string(r.history[i].Type), r.history[:i], r.find)
		gap := slices.Clone(r.history[:i+1])
		gap[i].Seq++
		n.look(r, "a gap", gap, r.find)
	}
	n.look(r, "no workflow", r.history, func(string, int) *oracle.Flow { return nil })
	if flow := r.find(r.history[0].Workflow, r.history[0].Version); flow != nil {
		for what, mutant := range flow.Mutants() {
			n.look(r, what, r.history, func(string, int) *oracle.Flow { return mutant })
		}
	}
}
