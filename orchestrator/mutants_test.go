package orchestrator

import (
	"cmp"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
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
	statuses []string // the topics of the status messages
	owners   []string // who decided each event
	// How many replies and commands came before the order.
	replies, commands int
}

// recorded are some 200 histories as [TestHistories] draws them, always the
// same.
var recorded = sync.OnceValue(func() []recording {
	drawn := rapid.Custom(func(t *rapid.T) []recording {
		h := &historian{stage: newStage(t), inspector: newInspector()}
		defer func() { h.close() }()
		h.perform(t)
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
			r := recording{
				history: h.inspector.histories[id], messages: h.inspector.messages[id], order: h.of(t, id), ledger: h.inspector.ledgers[id],
				find: func(name string, version int) *oracle.Flow {
					return h.inspector.definition(h.flows.find(name, version))
				},
				stage: h.stage, statuses: h.inspector.statuses[id], owners: owners[id],
			}
			r.replies, _ = tooEarly(func(before int) error { return h.replied(id, r.history, before) })
			r.commands, _ = tooEarly(func(before int) error { return h.commanded(id, r.history, before) })
			all = append(all, r)
		}
		return all
	})
	var all []recording
	for seed := range 150 {
		all = append(all, drawn.Example(seed)...)
	}
	return all
})

// TestHistoriesGoDeep: whatever an orchestrator can write into a journal, and
// every end of an order, comes up in what [TestHistories] draws.
func TestHistoriesGoDeep(t *testing.T) {
	counts := make(map[string]int)
	all := recorded()
	for _, r := range all {
		for i := range r.history {
			e := &r.history[i]
			counts[string(e.Type)]++
			if e.Type == events.ReplyDiscarded {
				counts["discarded: "+e.Reason]++
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

	source, err := os.ReadFile("../events/event.go")
	must(t, err)
	must := []string{
		"end: " + string(projections.Processed), "end: " + string(projections.Rejected),
		"end: " + string(projections.Compensated), "end: " + string(projections.Cancelled),
		"discarded: " + events.DiscardLate, "discarded: " + events.DiscardStale,
		"discarded: " + events.DiscardRepeated, "discarded: " + events.DiscardUnknownStep,
	}
	for _, cause := range oracle.Causes {
		must = append(must, "Error by "+string(cause))
	}
	_, transitions, _ := strings.Cut(string(source), "// The transitions of an order.")
	for _, m := range regexp.MustCompile(`Type = "(waybill\.[a-z.]+)"`).FindAllStringSubmatch(transitions, -1) {
		if !strings.HasPrefix(m[1], "waybill.partition.") {
			must = append(must, m[1])
		}
	}
	for _, name := range must {
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
		{"the record", func() { checkState(v, o, l) }},
		{"the messages' topics", func() { checkTopics(v, r.stage, id, history, r.statuses) }},
		{"the submission", func() { must(v, r.stage.submitted(id, history)) }},
		{"the replies", func() { must(v, r.stage.replied(id, history, r.replies)) }},
		{"the commands", func() { must(v, r.stage.commanded(id, history, r.commands)) }},
		{"the dead letters", func() { must(v, r.stage.putAside(id, history)) }},
		{"the times", func() {
			for n := range history {
				checkTimes(v, history[:n+1], r.stage.skew, false)
			}
		}},
	} {
		if v.fails(check.do) {
			return check.by
		}
	}
	return ""
}

// TestTheOracleNotices: of all that can be done to an event of a history, the
// oracle notices nearly everything.
func TestTheOracleNotices(t *testing.T) {
	refused, survived := make(map[string]int), make(map[string]int)
	mutants, survivors := 0, 0
	for _, r := range recorded() {
		if by := r.refuse(r.history); by != "" {
			t.Fatalf("%s refuses what happened", by)
		}
		for m := range oracle.Mutants(r.history) {
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
		t.Logf("%6d %s", survived[kind], kind)
	}
	if 50*survivors > mutants {
		t.Errorf("%d of %d mutants survive", survivors, mutants)
	}
}
