package orchestrator

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"iter"
	"maps"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/decide"
	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/orchestrator/proof"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/audit"
	"github.com/waybill-dev/waybill/test/draw"
	"github.com/waybill-dev/waybill/test/inspect"
	"github.com/waybill-dev/waybill/test/oracle"
	"github.com/waybill-dev/waybill/test/reliability"
)

// simCounts are what happened in all histories.
type simCounts struct {
	Histories, Steps, Orders, Commits, Claims int
	// Faults counts what went wrong, and what was drawn besides, by name. It has
	// all that could.
	Faults map[string]int
	Events map[events.Type]int
	Amid   map[events.Type]int       // of these, while not all was calm
	Ends   map[projections.State]int // of orders
	Inputs map[string]int            // by what became of them
	Causes map[oracle.Cause]int      // of Errors
}

func newSimCounts() *simCounts {
	return &simCounts{
		Faults: make(map[string]int), Events: make(map[events.Type]int), Amid: make(map[events.Type]int), Ends: make(map[projections.State]int),
		Inputs: make(map[string]int), Causes: make(map[oracle.Cause]int),
	}
}

func (c *simCounts) settle(a *audit.Accounts) {
	for _, f := range a.Figures() {
		c.Inputs[f.Name] += f.N
	}
}

func (c *simCounts) happened(what string) { c.Faults[what]++ }

// never lists what did not come up: then the histories show less than they say.
func (c *simCounts) never() []string {
	var never []string
	for what, n := range c.Faults {
		if n == 0 {
			never = append(never, what)
		}
	}
	for _, what := range slices.Concat(befalls, mayFail) {
		if c.Faults[what] == 0 {
			never = append(never, what)
		}
	}
	for _, cause := range oracle.Causes {
		if c.Causes[cause] == 0 && cause != oracle.ByAbsence { // which must never come up
			never = append(never, "an Error by "+string(cause))
		}
	}
	for _, kind := range decided {
		if c.Events[kind] == 0 {
			never = append(never, string(kind))
		} else if c.Amid[kind] == 0 && !slices.Contains(seldom, kind) {
			never = append(never, string(kind)+" amid faults")
		}
	}
	for what, n := range c.Inputs {
		if n == 0 && what != "held" { // in the end none is
			never = append(never, what)
		}
	}
	for _, state := range []projections.State{projections.Processed, projections.Compensated, projections.Cancelled, projections.Rejected, projections.Raised, projections.Terminated} {
		if c.Ends[state] == 0 {
			never = append(never, "an order that ends as "+string(state))
		}
	}
	slices.Sort(never)
	return never
}

// seldom are the types of events that need more luck than this to come up before all is calm.
var seldom = []events.Type{
	events.StepDecided, events.ItemsForgotten, events.UndoExtended, events.UndoSkipped, events.UndoOrdered, events.OrderMigrated, events.ScheduleRecalled, events.PagesForgotten,
}

// befalls is what follows from faults, and is not drawn as such. What is left out
// here is too rare: a lane that finds its own transaction hanging.
var befalls = []string{
	"a late request arrived", "a late record was fenced", "a late record was written", "a batch was too large", "a record was too large", "a marker was forgotten, and a transaction hung", "a transaction that hung was ended",
	"a transaction that hung was covered", "an acknowledged transaction was aborted, since nobody could know",
	"a producer id ran out", "a transaction stood for too long", "a zombie was fenced", "a record was refused that nobody foresaw",
	"an input stood in a transaction", "a delivery was refused", "a clock was set right", "a deadline had passed by a clock that is not believed", "what was due waited for replies", "a command waited for its order", "what waited heard that Kafka has answered", "a lane waited for its turn to commit", "a lane kept from its store what it had committed", "an alert of a clock", "an instance was killed", "an instance stopped in good order",
	"a workflow was in a newer level of the language", "an order discarded all that it may", "an order refused all that it may",
	"an event in format 1", "an event in format 2", "an event in format 3", "an event in format 4",
	"a request had a token", "a reply was forged", "the author of a command was known", "the author of a submission was known",
	"a step waited until its agent had room", "an attempt did not count",
	"signals under a key", "places of a limit", "an attempt was refused a place", "a home sent an order away", "an order was in conflict", "an order lost its turn", "an order did a step of another", "an order did a step of another, in another partition",
	"a child waited for its workflow",
	"a dead letter was corrected", "a dead letter was put back on waybill.orders", "a dead letter was put back on waybill.replies", "a dead letter was put back on waybill.commands", "a dead letter was put back on waybill.signals", "a dead letter was put back on waybill.internal",
	"a step kept its key", "a step that may have run got another key", "a step was undone under two keys",
}

// mayFail are the faults, by name: one that is not asked for any more is missed, too.
var mayFail = []string{
	"a broker does not know of a topic", "a broker is silent about others' partitions", "a clock jumps",
	"a delivery is not answered", "a delivery is not taken", "a limit of long ago is told", "a limit is not told", "a partition of an input has no leader for long",
	"a store has lost its end", "a store is lost", "a topic is gone", "a topic may not be written",
	"agents must repeat more", "an agent's partition has no leader", "an application aborts", "an instance does not read of new workflows", "an instance is to begin what it has not read of",
	"an instance is of an older release", "another key", "connections outlast it", "end is late", "end is lost",
	"end is not answered", "fetch ends", "fetch fails", "finish is not answered", "forget", "init is late", "init is not answered",
	"kafka restarts in good order", "misrouted", "no answer", "not in time", "on an added partition",
	"one partition of each topic has no leader", "only the journal has a leader", "other order", "poison",
	"produce fails", "produce is late", "standby cannot read", "the instances are held up while agents answer",
	"the topics are not asked about", "the workflows are not read to their end yet", "unreadable",
}

// decided are the types of events that lanes write, but for one that needs more waits under a key than are drawn: a history that is made by hand
// has it.
var decided = func() (all []events.Type) {
	for _, s := range events.Specs {
		if s.Type != events.WaitRefused {
			all = append(all, s.Type)
		}
	}
	return all
}()

// enough histories for everything to come up.
const enough = 5_000

// TestSimulation runs real lanes, of up to three instances that all believe that
// they own the partitions, on a simulated Kafka, step by step as drawn: they
// crash, sleep and wake up, follow, take over at the same time, lose their stores
// and the answers to their commits, and have clocks that differ and jump.
// Whatever happens, nothing is lost, nothing is doubled, and nothing is stuck, and
// in the end every order comes to its end (S1 to S6, V1, V2, V6).
//
// WAYBILL_HISTORIES says how many; see docs/reliability.md. When one fails, it
// is made as short as it can be, and the line that repeats it is printed.
func TestSimulation(t *testing.T) {
	histories := 5_000
	if n, err := strconv.Atoi(os.Getenv("WAYBILL_HISTORIES")); err == nil {
		histories = n
	}
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // a history is garbage once it is checked
	count := newSimCounts()
	var store *projections.Store
	began := time.Now()
	drawn := flag.Lookup("rapid.seed").Value
	seed, err := strconv.ParseUint(drawn.String(), 10, 64)
	must(t, err)
	defer func() { must(t, drawn.Set(strconv.FormatUint(seed, 10))) }()
	for batch := uint64(0); count.Histories < histories; batch++ {
		if seed > 0 { // every check begins with it
			must(t, drawn.Set(strconv.FormatUint(seed+batch<<32, 10)))
		}
		old := store
		var err error
		store, err = projections.Temporary() // now and then: it grows
		must(t, err)
		if old != nil {
			must(t, old.Close())
		}
		rapid.Check(t, func(t *rapid.T) {
			simulate(t, store, count)
			count.Histories++
		})
		if t.Failed() {
			break
		}
	}
	must(t, store.Close())
	took := time.Since(began)
	all := 0
	for _, n := range count.Events {
		all += n
	}
	t.Logf("%d histories in %s, %d steps, %d orders, %d commits, %d events", count.Histories, took.Round(time.Millisecond), count.Steps, count.Orders, count.Commits, all)
	t.Logf("events: %v", count.Events)
	t.Logf("of these amid faults: %v", count.Amid)
	t.Logf("ends: %v", count.Ends)
	t.Logf("inputs: %v", count.Inputs)
	t.Logf("causes of Errors: %v", count.Causes)
	t.Logf("faults: %v", count.Faults)
	if never := count.never(); histories >= enough && len(never) > 0 && !t.Failed() {
		t.Errorf("never came up: %s", strings.Join(never, "; "))
	}
	figures := reliability.Figures{
		{Name: "histories", Value: count.Histories},
		{Name: "a second", Value: int(float64(count.Histories) / took.Seconds())},
		{Name: "steps of instances and their commits", Value: count.Steps},
		{Name: "orders", Value: count.Orders},
		{Name: "events in the journals", Value: all},
		{Name: "commits", Value: count.Commits},
		{Name: "takeovers", Value: count.Claims},
	}
	histogram := func(name string, drawn map[string]int) {
		var rows reliability.Figures
		for _, what := range slices.Sorted(maps.Keys(drawn)) {
			rows = append(rows, reliability.Figure{Name: what, Value: drawn[what]})
		}
		figures = append(figures, reliability.Figure{Name: name, Value: rows})
	}
	histogram("inputs, by what became of them", count.Inputs)
	histogram("drawn", count.Faults)
	histogram("events", named(count.Events))
	histogram("of these, before all was calm", named(count.Amid))
	histogram("orders that ended as", named(count.Ends))
	histogram("orders that came into Error by", named(count.Causes))
	reliability.Write(t, "simulation", fmt.Sprintf("make reliability PART=simulation HISTORIES=%d", histories), figures)
}

func named[K ~string](counts map[K]int) map[string]int {
	all := make(map[string]int)
	for k, n := range counts {
		all[strings.TrimPrefix(string(k), "waybill.")] = n
	}
	return all
}

// simulate draws a history, and checks it.
func simulate(t *rapid.T, store *projections.Store, count *simCounts) *simulation {
	s := newSimulation(t, store, count)
	defer s.close()
	for range of(s, "steps", 50, 150, 400) {
		s.step()
	}
	s.tally(count.Amid)
	s.heal()
	s.finish()
	s.check()
	return s
}

// TestTheSeedDecidesTheHistory: what fails once fails again. Nothing in a history comes
// from elsewhere: the order of a map, a goroutine, the clock of the machine.
func TestTheSeedDecidesTheHistory(t *testing.T) {
	count := newSimCounts()
	store, err := projections.Temporary()
	must(t, err)
	defer func() { must(t, store.Close()) }()
	seeds := 300
	if testing.Short() {
		seeds /= 5
	}
	for seed := range seeds {
		once := rapid.Custom(func(t *rapid.T) []string { return simulate(t, store, count).account() })
		first, second := once.Example(seed), once.Example(seed)
		if slices.Equal(first, second) {
			continue
		}
		i := 0
		for i < min(len(first), len(second)) && first[i] == second[i] {
			i++
		}
		t.Fatalf("seed %d: the same history twice, and it differs at record %d:\n%s\n%s", seed, i, first[i:min(i+1, len(first))], second[i:min(i+1, len(second))])
	}
}

// simulation is one history: the partitions, the instances, and the world that
// uses them.
type simulation struct {
	*rapid.T
	*simKafka
	registered []*workflow.Workflow
	next       []*workflow.Workflow // that are registered in between, if any
	store      *projections.Store
	instances  []*simInstance
	skew       time.Duration
	idle       bool // instances follow nothing
	mayAlter   bool // and so end what hangs with a marker
	calm       bool
	rough      int // one in so many ends of instances happens
	agentRate  float64
	schedules  bool
	keys       *proof.Keys // of the namespace; nil if it has none
	settings   []proof.Setting
	commands   int
	answered   map[string]bool
	vanishing  []string // topics that come and go
	clocks     []simClocks
	told       map[string]bool           // who was told more in the end
	histories  map[string][]events.Event // of all orders, in the end
	overdue    map[string]bool           // what nobody had decided on when time passed last
}

// simClocks are all clocks from a time on.
type simClocks struct {
	written int // records, until then
	at      map[string]time.Time
}

// rare is how likely faults are at most that are rarer in mild histories: one in
// so many.
const rare = 10

func newSimulation(t *rapid.T, store *projections.Store, count *simCounts) *simulation {
	topics, err := events.NewTopics(events.DefaultNamespace)
	must(t, err)
	s := &simulation{T: t, store: store, answered: make(map[string]bool), told: make(map[string]bool)}
	s.simKafka = newSimKafka(topics, int32(of(s, "partitions", 1, 1, 2)))
	s.wide = s.partitions + int32(of(s, "added", 0, 0, 1, 3))
	s.count, s.trace, s.fatal, s.tick = count, t.Logf, t.Fatalf, s.readClocks
	// In mild histories what goes wrong is rarer, and orders come further.
	mild := of(s, "mild", 1, 8)
	s.fault = func(likely int, name string) bool {
		count.Faults[name] += 0
		if likely >= rare {
			likely *= mild
		}
		if s.calm || !s.one(likely, name) {
			return false
		}
		count.Faults[name]++
		return true
	}
	flows := simFlows(1)
	first := s.draw("workflow", 0, len(flows)-1)
	s.registered = slices.Clone(flows[first])
	if s.one(2, "a second version") {
		seconds := simFlows(2)
		if s.partitions > 1 && s.flip("whose orders have others do steps") { // in another partition, perhaps
			seconds = slices.DeleteFunc(slices.Clone(seconds), func(all []*workflow.Workflow) bool { return len(all) == 1 })
		}
		s.next = seconds[s.draw("the second", 0, len(seconds)-1)]
		if s.one(3, "a variant") { // to which orders may migrate
			s.next = drawnVariants()[first]
		}
	}
	s.stamps = s.flip("stamps")
	s.skew = time.Duration(of(s, "skew", 0, 0, 500, 3_000)) * time.Millisecond
	s.idle, s.mayAlter = s.one(4, "idle"), !s.one(4, "may not alter")
	if s.mayAlter { // else nobody can end what hangs of an id that has run out
		s.epochs = of[int16](s, "epochs", 1<<14, 1<<14, 5)
	}
	s.rough, s.schedules = of(s, "rough", 1, 4, 16), s.one(3, "schedules")
	s.agentRate = of(s, "agents are believed to take so many a second", 0, 2, 0.5)
	s.settings = of(s, "agents may answer without a token", nil, []proof.Setting{proof.Off, proof.Watch, proof.Require}, []proof.Setting{proof.Require})
	s.demand()
	s.vanishing = of(s, "vanishing", nil, nil, []string{"shop.status"}, []string{"shop.status", s.topics.Requests("a1")})
	if limit := of(s, "limit", 0, 0, 0, 3*simRecordSize, simRecordSize+2_000, simRecordSize+400); limit > 0 { // for many batches, for most, for single records
		s.limits["shop.status"], s.limits[s.topics.Requests("a1")] = limit, limit
	}
	for n := range of(s, "instances", 3, 2, 1) {
		in := s.newInstance(n)
		in.offset = time.Duration(of(s, "offset", 0, 0, -300_000, 40, 300_000)) * time.Millisecond
		s.instances = append(s.instances, in)
	}
	for range 3 {
		s.restrict()
	}
	s.instances[0].start()
	for _, l := range s.instances[0].lanes {
		l.assigned()
	}
	return s
}

// simFlows are drawn once: to compile one takes longer than a history. Each comes with those whose
// orders do its steps.
func simFlows(version int) [][]*workflow.Workflow { return drawnFlows()[version-1] }

var drawnFlows = sync.OnceValue(func() [2][][]*workflow.Workflow {
	var all [2][][]*workflow.Workflow
	for version := range all {
		for i := range 60 {
			all[version] = append(all[version], rapid.Custom(func(t *rapid.T) []*workflow.Workflow {
				switch i % 6 {
				case 0:
					return []*workflow.Workflow{parseFlow(t, simFlow(t, "flow", version+1))}
				case 3:
					return []*workflow.Workflow{parseFlow(t, simFlow(t, "leaf", version+1)), parseFlow(t, simFlow(t, "flow", version+1, "leaf"))}
				}
				return draw.Flows(t, version+1)
			}).Example(i))
		}
		for _, text := range slices.Concat(keyedFlows, limitedFlows, turnFlows) {
			var flows []*workflow.Workflow
			for one := range strings.SplitSeq(text, "---") {
				flow, err := workflow.Parse("keyed", []byte(strings.ReplaceAll(one, "%d", strconv.Itoa(version+1))))
				if err != nil {
					panic(err)
				}
				flows = append(flows, flow)
			}
			for range 5 {
				all[version] = append(all[version], flows)
			}
		}
	}
	return all
})

// keyedFlows have steps that listen under keys of the business, or orders that signals start under them.
var keyedFlows = []string{`
workflow: flow
version: %d
start: {signal: other, key: input.n}
steps:
  - {name: s0, agent: a0, undo: u, timeout: 1s}
  - {name: s1, listen: go, key: '"1"', timeout: 8s}
`, `
workflow: flow
version: %d
keep: 10s
start: stop
steps:
  - {name: s0, listen: {any: [go, stop]}, key: '"2"', timeout: 5s}
  - {name: s1, agent: a0, timeout: 1s}
`, `
workflow: flow
version: %d
steps:
  - {name: s0, listen: go, key: '"1"', timeout: 8s}
  - {name: s1, agent: a0, timeout: 1s}
  - {name: s2, listen: {any: [go, stop]}, key: '"2"', timeout: 5s}
`, `
workflow: flow
version: %d
steps:
  - {name: s0, listen: {all: [go, stop]}, key: '"1"', timeout: 10s}
  - {name: s1, listen: {one: go, count: 2}, key: '"2"', timeout: 3s, after: []}
  - {name: s2, agent: a0, timeout: 1s, exhausted: compensate}
`}

// limitedFlows have steps under limits.
var limitedFlows = []string{`
workflow: flow
version: %d
steps:
  - {name: s0, agent: a0, limit: one, timeout: 1s, retry: {attempts: 2, backoff: 500ms}, undo: back, exhausted: compensate}
  - {name: s1, agent: a1, limit: {name: two, key: '"k"'}, timeout: 2s, after: [], retry: {attempts: 2, backoff: 500ms}, undo: back, exhausted: continue}
  - {name: s2, agent: a2, limit: {name: paced, key: 'has(input.n) ? "n" : "none"'}, timeout: 1s, queue: 3s, retry: {attempts: 1}, exhausted: wait, wait: {for: 1s, rounds: 1}}
`, `
workflow: flow
version: %d
deadline: 20s
steps:
  - {name: s0, agent: a0, limit: one, timeout: 1s, repeat: {until: has(steps.s0.output.n), every: 500ms, max: 2}}
  - {name: s1, each: {items: '[{"n": 1}, {"n": 2}]', steps: [{name: inner, agent: a1, limit: two, timeout: 1s, undo: back}]}, after: []}
  - {name: s2, agent: a2, limit: {name: two, key: '"j"'}, timeout: 1s, undo: back, after: []}
`}

// turnFlows let one order be open at a time under a key.
var turnFlows = []string{`
workflow: flow
version: %d
concurrency: {key: '"1"'}
steps:
  - {name: s0, agent: a0, timeout: 1s, undo: back, retry: {attempts: 2, backoff: 500ms}, exhausted: compensate}
  - {name: s1, agent: a1, limit: one, timeout: 1s, exhausted: compensate}
`, `
workflow: flow
version: %d
keep: 5s
concurrency: {key: 'has(input.n) ? input.n : -1', onConflict: reject}
steps:
  - {name: s0, listen: go, timeout: 3s}
  - {name: s1, agent: a0, timeout: 1s, undo: back}
`, `
workflow: flow
version: %d
deadline: 20s
concurrency: {key: '"1"', onConflict: cancel-other}
steps:
  - {name: s0, agent: a0, timeout: 1s, undo: back}
  - {name: s1, sleep: 1s}
  - {name: s2, agent: a2, timeout: 1s, undo: back, exhausted: wait, wait: {for: 1s, rounds: 1}}
`, `
workflow: leaf
version: %d
concurrency: {key: '"1"'}
steps:
  - {name: s0, agent: a0, timeout: 1s, undo: back}
---
workflow: flow
version: %d
steps:
  - {name: s0, order: leaf, timeout: 8s, exhausted: compensate}
  - {name: s1, agent: a1, timeout: 1s, exhausted: compensate}
`}

// drawnVariants are second versions of those workflows, each as whoever improves it makes one.
var drawnVariants = sync.OnceValue(func() (all [][]*workflow.Workflow) {
	for i, flows := range simFlows(1) {
		all = append(all, []*workflow.Workflow{rapid.Custom(func(t *rapid.T) *workflow.Workflow { return draw.Variant(t, flows[len(flows)-1], 2) }).Example(i)})
	}
	return all
})

func (s *simulation) close() {
	for _, in := range s.instances {
		in.crash()
	}
}

// weights say how often anything happens.
var weights = []struct {
	weight int
	happen func(*simulation, *simInstance)
}{
	{30, func(s *simulation, in *simInstance) {
		for range s.draw("turns", 1, 40) {
			s.schedule(in)
		}
	}},
	{20, func(s *simulation, in *simInstance) { // most of the time nobody is in its way
		if in.up {
			s.work(in, inARow)
		}
	}},
	{6, func(s *simulation, _ *simInstance) {
		ring := s.ring()
		s.mark(ring[s.draw("marker of", 0, len(ring)-1)])
	}},
	{5, func(s *simulation, _ *simInstance) { s.submit() }},
	{5, func(s *simulation, _ *simInstance) { s.answer() }},
	{6, func(s *simulation, _ *simInstance) { s.serve() }},
	{2, func(s *simulation, _ *simInstance) { s.operate() }},
	{3, func(s *simulation, _ *simInstance) { s.signal(draw.Order(s.T)) }},
	{1, func(s *simulation, _ *simInstance) { s.decide(draw.Order(s.T), draw.Step(s.T)) }},
	{3, func(s *simulation, _ *simInstance) { s.arrange() }},
	{2, func(s *simulation, _ *simInstance) { s.restrict() }},
	{1, func(s *simulation, _ *simInstance) { s.flood() }},
	{1, func(s *simulation, _ *simInstance) { s.putBack() }},
	{2, func(s *simulation, in *simInstance) { s.see(in) }},
	{1, func(s *simulation, in *simInstance) { s.pace(in) }},
	{2, func(s *simulation, _ *simInstance) { s.endCaller() }},
	{1, func(s *simulation, _ *simInstance) {
		if s.fault(4, "agents must repeat more") {
			s.demand()
		}
	}},
	{4, func(s *simulation, _ *simInstance) {
		s.now = s.now.Add(time.Duration(s.amount("ms", 1, 6_000)) * time.Millisecond)
		s.expire()
	}},
	{2, func(s *simulation, in *simInstance) {
		if s.fault(3, "a clock jumps") {
			s.set(in, time.Duration(s.amount("jump to", -3_600_000, 3_600_000))*time.Millisecond)
			s.Logf("the clock of %s jumps to %s", in.name, in.offset)
		}
	}},
	{2, func(s *simulation, _ *simInstance) {
		if !s.fault(2, "the instances are held up while agents answer") {
			return
		}
		for _, t := range s.ring() {
			for s.mark(t) {
			}
		}
		for range s.draw("answers", 1, 3) {
			s.serve()
		}
		s.now = s.now.Add(time.Duration(s.amount("held up", 1, 40_000)) * time.Millisecond)
		s.expire()
	}},
	{3, func(s *simulation, in *simInstance) { s.power(in) }},
	{3, func(s *simulation, in *simInstance) { s.own(in) }},
	{2, func(s *simulation, _ *simInstance) {
		if len(s.late) > 0 {
			s.count.happened("a late request arrived")
			s.late[0]()
			s.late = s.late[1:]
		}
	}},
	{1, func(s *simulation, _ *simInstance) { s.restart() }},
	{1, func(s *simulation, _ *simInstance) {
		clear(s.headless)
		if s.partitions > 1 && s.fault(3, "a partition of an input has no leader for long") {
			topic := of(s, "headless", s.topics.Replies, s.topics.Replies, s.topics.Orders, s.topics.Commands, s.topics.Signals)
			s.headless[lane.TopicPartition{Topic: topic, Partition: int32(s.draw("partition", 0, int(s.partitions)-1))}] = true
		}
	}},
	{2, func(s *simulation, _ *simInstance) { s.register() }},
	{1, func(s *simulation, _ *simInstance) {
		for _, topic := range s.vanishing {
			delete(s.gone, topic)
			switch {
			case s.fault(3, "a topic is gone"):
				s.gone[topic] = kerr.UnknownTopicOrPartition
			case s.fault(3, "a topic may not be written"):
				s.gone[topic] = kerr.TopicAuthorizationFailed
				for _, in := range s.instances {
					if s.one(2, "it was heard before") {
						in.directory.now = func() time.Time { return s.now.Add(-2 * proving) }
						in.directory.know(topic, said{err: s.gone[topic]})
						in.directory.now = func() time.Time { return s.now }
					}
				}
			}
		}
	}},
}

var weight = func() int {
	all := 0
	for _, w := range weights {
		all += w.weight
	}
	return all
}()

// ring are the transactional ids of all partitions.
func (s *simulation) ring() []*simTransaction {
	var all []*simTransaction
	for p := range s.rings {
		all = append(all, s.rings[p][:]...)
	}
	return all
}

// step is one step of anybody.
func (s *simulation) step() {
	in := s.instances[s.draw("instance", 0, len(s.instances)-1)]
	n := s.draw("what", 0, weight-1)
	for _, w := range weights {
		if n -= w.weight; n < 0 {
			w.happen(s, in)
			return
		}
	}
}

// tally counts the events that stand in the journals.
func (s *simulation) tally(all map[events.Type]int) {
	for r := range s.read(s.topics.Journal) {
		if e, err := events.Decode[events.Event](r.Value); err == nil {
			all[e.Type]++
		}
	}
}

// schedule lets an instance go on: one of its lanes, or what follows.
func (s *simulation) schedule(in *simInstance) {
	if !in.up {
		return
	}
	n := 0
	if !s.calm {
		n = s.draw("who", 0, len(in.lanes))
	}
	if n == len(in.lanes) {
		s.goOn(in.following)
		return
	}
	l := in.lanes[n]
	if l.main == nil {
		s.goOn(in.following)
		return
	}
	p := l.main
	if others := l.beside.others(); len(others) > 0 {
		if n := s.draw("beside", -1, len(others)-1); n >= 0 {
			p = others[n]
		}
	}
	l.turn(p)
}

// power starts a process, or kills it.
func (s *simulation) power(in *simInstance) {
	switch {
	case !in.up:
		in.start()
	case s.one(s.rough, "crash"):
		s.Logf("%s crashes", in.name)
		s.count.happened("an instance was killed")
		in.crash()
		switch {
		case s.fault(6, "a store is lost"):
			in.lose(true)
		case s.fault(6, "a store has lost its end"):
			in.lose(false)
		}
	}
}

// own gives an instance a partition, whoever else has it, or takes one from it.
func (s *simulation) own(in *simInstance) {
	l := in.lanes[s.draw("partition", 0, len(in.lanes)-1)]
	switch {
	case !in.up:
	case l.main == nil:
		l.assigned()
	case l.lane != nil && s.one(2*s.rough, "revoked"):
		l.revoked()
	}
}

// register makes the second workflows known. Whoever does not read of them hears of them from what it is to begin.
func (s *simulation) register() {
	if s.next == nil {
		return
	}
	apart := s.partitions > 1 && len(s.instances) > 1 && len(s.next) > 1 && s.fault(2, "an instance is to begin what it has not read of")
	if apart {
		s.part()
	}
	s.registered, s.next = append(s.registered, s.next...), nil
	for _, in := range s.instances {
		if in.up && !in.lags {
			in.catchUp()
		}
	}
	for range s.draw("orders of them come at once", 0, 3) {
		s.submit()
	}
	for rounds := 4; apart && rounds > 0; rounds-- {
		s.work(s.instances[0], inARow)
		s.serve()
		s.work(s.instances[1], inARow)
	}
}

// part gives two instances a partition each: the first reads of new workflows, and the second does not.
func (s *simulation) part() {
	for p, in := range s.instances[:2] {
		if !in.up {
			in.start()
		}
		if other := s.instances[1-p]; other.up && other.lanes[p].lane != nil {
			other.lanes[p].revoked()
			s.work(other, inARow)
		}
		if in.lanes[p].main == nil {
			in.lanes[p].assigned()
		}
		s.work(in, inARow)
		in.lags = p > 0
	}
}

// see has an operator look at the orders that an instance knows of.
func (s *simulation) see(in *simInstance) {
	for _, l := range in.lanes {
		if in.up && l.state != nil {
			if o, err := l.state.Order(draw.Order(s.T)); err == nil && o != nil {
				s.manage(o)
			}
		}
	}
}

// restart is one of Kafka, in good order or not. Who waits for markers loses the
// connection to the coordinator that owes them.
func (s *simulation) restart() {
	s.Logf("kafka restarts")
	kept := s.fault(4, "connections outlast it")
	for _, in := range s.instances {
		for _, l := range in.lanes {
			owed := slices.ContainsFunc(s.rings[l.partition][:], func(t *simTransaction) bool { return len(t.owed) > 0 })
			l.lost = l.lost || owed || !kept
		}
	}
	if s.fault(2, "kafka restarts in good order") {
		s.forget()
	}
}

// heal ends all trouble, and lets one instance work until nothing is left to do
// but what time, agents or an operator must bring.
func (s *simulation) heal() {
	last := s.instances[s.draw("survivor", 0, len(s.instances)-1)]
	early := s.flip("late requests come early")
	s.calm, s.idle = true, false
	clear(s.gone)
	clear(s.headless)
	if early {
		s.deliver()
	}
	for _, in := range s.instances {
		in.crash()
	}
	if !early {
		s.deliver()
	}
	for _, c := range s.callers {
		s.end(c, s.flip("committed"))
	}
	s.instances = []*simInstance{last}
	wrong := s.stamps && last.offset.Abs() > time.Minute
	if wrong && s.flip("set right at once") {
		s.set(last, 0)
		wrong = false
	}
	last.start()
	s.Logf("calm; %s survives", last.name)
	for _, l := range last.lanes {
		l.assigned()
	}
	s.settle()
	if wrong {
		s.count.happened("a clock was set right")
		s.set(last, 0)
	}
}

func (s *simulation) deliver() {
	for _, late := range s.late {
		late()
	}
	s.late = nil
}

// settle lets the survivor work until there is nothing for it to do, and nothing
// hangs: those who watch must have seen that twice, and old enough.
func (s *simulation) settle() {
	work := func() {
		if !s.work(s.instances[0], 200_000) {
			s.Fatalf("there is no end of it: %+v", s.instances[0].lanes[0].lane)
		}
	}
	work()
	anything := func(lane.TopicPartition) bool { return true }
	for looks := 0; len(s.standing(anything)) > 0; looks++ {
		if looks > 1_000 {
			s.Fatalf("it hangs for ever: %+v", s.standing(anything))
		}
		s.now = s.now.Add(simWatch)
		work()
	}
}

// inARow is how many turns an instance has in a row, at most, where not all is calm.
const inARow = 600

// work lets an instance go on, alone, until there is nothing for it to do. It says whether that came, in so many
// turns; where not all is calm, also without that anything is written for a while.
func (s *simulation) work(in *simInstance, most int) bool {
	for quiet, still, written, turns := 0, 0, s.written, 0; quiet < 20; turns++ {
		if turns == most || !s.calm && still == 60 {
			return false
		}
		if still++; s.written != written {
			still, written = 0, s.written
		}
		busy := false
		for _, t := range s.ring() {
			busy = s.mark(t) || busy
		}
		for _, l := range in.lanes {
			if l.main == nil {
				s.goOn(in.following)
				continue
			}
			p := l.main
			if others := l.beside.others(); len(others) > 0 && turns%3 > 0 {
				p = others[turns%len(others)]
			}
			l.turn(p)
			busy = busy || l.busy()
		}
		if s.calm && turns%50 == 49 { // an open transaction of nobody expires
			s.now = s.now.Add(time.Second)
			s.expire()
		}
		if quiet++; busy {
			quiet = 0
		}
	}
	return true
}

// busy says whether the lane has something to do.
func (l *simLane) busy() bool {
	return l.lane == nil || l.beside.committing != nil || l.lane.Busy() || l.beside.ahead != nil || slices.ContainsFunc(l.readers, (*simReader).ready)
}

// finish has agents answer, time pass and operators act until every order has
// come to its end.
func (s *simulation) finish() {
	in := s.instances[0]
	letters := of(s, "how often all dead letters are put back in the end", 0, 0, 1, 3) // which may be put aside again
	for rounds, still, commits := 0, 0, s.count.Commits; ; rounds++ {
		if still++; s.count.Commits != commits {
			still, commits = 0, s.count.Commits
		}
		// An attempt of an hour may be the one by which its agent is probed, and so may the next: see pass.
		if still > 3_000 || rounds > 20_000 {
			s.Fatalf("not every order comes to an end")
		}
		all := s.orders(in)
		left := s.serve()
		left = s.agree(all) || left
		left = s.retire(all) || left
		left = s.open() || left
		if !left {
			left = s.pass(all)
		}
		if !left {
			for _, o := range all {
				if len(o.Signals) > 0 && !o.State.Final() && !s.told[o.ID] {
					left, s.told[o.ID] = true, true
					s.signal(o.ID) // what was kept for a moment is over
				}
				left = s.manage(o.Order) || left
			}
		}
		if !left && letters > 0 {
			letters--
			left = s.putAllBack()
		}
		if !left {
			return
		}
		s.settle()
	}
}

// begun is the order that a record begins; empty is none. The same records are asked about again and again.
func (s *simulation) begun(r *simRecord) string {
	if r.begins == nil {
		r.begins = new(string)
		if r.Topic == s.topics.Internal {
			if w, err := events.Decode[events.Wish](r.Value); err == nil && w.Wish == events.WishBegin {
				*r.begins = w.Child
			}
		} else if _, err := events.Decode[events.Submission](r.Value); !errors.Is(err, events.ErrUnreadable) {
			*r.begins = string(r.Key)
		}
	}
	return *r.begins
}

// submitted are the ids of the orders that begin in a partition.
func (s *simulation) submitted(l *simLane) []string {
	ids := make(map[string]bool)
	for _, topic := range []string{s.topics.Internal, s.topics.Orders} {
		for _, r := range s.log(lane.TopicPartition{Topic: topic, Partition: l.partition}).records {
			if r.state == isCommitted && s.of.Of(r.Key) == l.partition && s.begun(r) != "" {
				ids[s.begun(r)] = true
			}
		}
	}
	for _, id := range slices.Concat(scheduled, simLimits) {
		if o, err := l.state.Order(id); err == nil && o != nil && s.of.Of([]byte(id)) == l.partition {
			ids[id] = true
		}
	}
	return slices.Sorted(maps.Keys(ids))
}

// simOrder is an order, and what decides on it.
type simOrder struct {
	*projections.Order
	lane *simLane
}

// orders are those that an instance has, as they stand: who looks twice at one looks before anything goes on.
func (s *simulation) orders(in *simInstance) (all []simOrder) {
	for _, l := range in.lanes {
		if l.state == nil {
			continue
		}
		for _, id := range s.submitted(l) {
			o, err := l.state.Order(id)
			must(s.T, err)
			if o != nil {
				all = append(all, simOrder{o, l})
			}
		}
	}
	return all
}

// simHomes are those of the keys under which signals are sent.
var simHomes = func() (all []string) {
	for _, signal := range []string{"go", "stop", "other"} {
		for _, key := range []string{"1", "2"} {
			all = append(all, events.CorrelationID(signal, key))
		}
	}
	return all
}()

// pass lets time go on to the next deadline. It says whether there is one. What stands still
// although it is due waits for an agent, as the lane can tell: who was due when time passed last is
// decided on by now, or has a place in a line.
func (s *simulation) pass(all []simOrder) bool {
	var first time.Time
	in := s.instances[0]
	now, overdue := s.now.Add(in.offset), make(map[string]bool)
	soon := func(at time.Time) {
		if !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	for _, l := range in.lanes {
		for _, id := range simHomes {
			o, err := l.state.Order(id)
			must(s.T, err)
			if o != nil && o.Correlation != nil {
				soon(o.Lapses())
			}
		}
	}
	for _, o := range all {
		if o.Schedule != nil {
			soon(o.Ticks())
			continue
		}
		if o.Places != nil {
			soon(o.Grants())
			continue
		}
		soon(o.Overdue())
		soon(o.Forgets())
		for i := range o.Steps {
			at, name := o.Attention(&o.Steps[i]), o.Steps[i].Name
			soon(at)
			_, waits := o.lane.lane.Before(o.ID, name)
			if waits || at.IsZero() || at.After(now) || o.lane.lane.Unwell() != nil { // in doubt nothing is tried again
				continue
			}
			what := fmt.Sprintf("step %s of order %s, due at %s,", name, o.ID, at)
			if overdue[what] = true; s.overdue[what] {
				s.Fatalf("%s has not been decided on, and waits for no agent", what)
			}
		}
	}
	s.overdue = overdue
	if first.IsZero() {
		return false
	}
	if first.After(now) {
		s.now = s.now.Add(first.Sub(now))
	} else { // it waits for an agent that is away
		s.now = s.now.Add(awayLast)
	}
	return true
}

// demand has replies need more than before, if there is more.
func (s *simulation) demand() {
	if len(s.settings) > 0 {
		s.keys = proof.New([]proof.Key{{ID: "k", Secret: []byte("of the simulation")}}, s.settings[0], nil)
		s.settings = s.settings[1:]
	}
}

// check holds what stands on Kafka and in the store against all rules.
func (s *simulation) check() {
	for _, r := range s.acked {
		if r.state != isCommitted && (r.state != isAborted || !r.lost) {
			s.Fatalf("acknowledged and not committed: %s/%d/%d by %d/%d", r.Topic, r.Partition, r.Offset, r.ProducerID, r.ProducerEpoch)
		}
	}
	in := inspect.New()
	s.count.settle(audit.Settle(audit.Kafka{
		Topics: &s.topics, Rest: true, Jumps: true,
		Partition: func(order string) int32 { return s.of.Of([]byte(order)) },
		Read:      s.read,
		Came: func(r *kgo.Record) int64 {
			return int64(s.log(lane.TopicPartition{Topic: r.Topic, Partition: r.Partition}).records[r.Offset].came)
		},
		InTime: s.inTime, Keys: s.keys,
		Flow: func(name string, version int) *oracle.Flow {
			return in.Definition(s.instances[0].flows.Find(name, version))
		},
	}, func(format string, args ...any) {
		s.tell()
		s.Fatalf(format, args...)
	}))
	for _, wrong := range audit.Calls(slices.Collect(s.read(s.topics.Alerts)), false) {
		s.Fatalf("%s", wrong)
	}
	s.histories = make(map[string][]events.Event)
	for r := range s.read(s.topics.Journal) {
		if e, err := events.Decode[events.Event](r.Value); err == nil && e.Order != "" {
			s.histories[e.Order] = append(s.histories[e.Order], e)
		}
	}
	for p, l := range s.instances[0].lanes {
		s.checkPartition(int32(p), l)
	}
}

// set sets the clock of an instance. What it showed until then may have been acted on.
func (s *simulation) set(in *simInstance, offset time.Duration) {
	s.readClocks()
	in.offset = offset
	s.readClocks()
}

// readClocks notes what the clocks show.
func (s *simulation) readClocks() {
	at := make(map[string]time.Time, len(s.instances))
	for _, in := range s.instances {
		at[in.name] = s.now.Add(in.offset)
	}
	if n := len(s.clocks); n == 0 || !maps.Equal(s.clocks[n-1].at, at) {
		s.clocks = append(s.clocks, simClocks{s.written, at})
	}
}

// inTime says whether a reply could be read before the clock of the one who let its
// attempt expire reached the attempt's end for the first time.
func (s *simulation) inTime(reply *kgo.Record, x *audit.Expiry) bool {
	came := s.log(lane.TopicPartition{Topic: reply.Topic, Partition: reply.Partition}).records[reply.Offset].came
	journal := s.log(lane.TopicPartition{Topic: s.topics.Journal, Partition: x.Partition}).records
	owner := ""
	for _, r := range journal[:x.Expired] {
		if events.Header(r.Record, events.HeaderType) == string(events.PartitionClaimed) && r.state == isCommitted {
			claim, err := events.Decode[events.Event](r.Value)
			must(s.T, err)
			owner = claim.Instance
		}
	}
	began := journal[x.Started].order
	if at := journal[x.Expired]; s.stamps {
		e, err := events.Decode[events.Event](at.Value)
		must(s.T, err)
		if ahead := e.At.Sub(at.Timestamp); ahead > time.Minute {
			s.Fatalf("%s let an attempt of %q expire by a clock that is %s ahead of Kafka's", owner, e.Order, ahead)
		}
	}
	for i, c := range s.clocks {
		over := i+1 < len(s.clocks) && s.clocks[i+1].written <= began
		if !over && c.written <= came && !c.at[owner].Before(x.End) {
			return false
		}
	}
	return true
}

// onlyInTime: nothing ends, or fails, since a time has come by a clock that is far off
// Kafka's, if anybody could know. A clock that is believed was right to a minute when it was
// looked at, and was set by no more since.
func (s *simulation) onlyInTime(r *kgo.Record, e *events.Event) {
	if !s.stamps {
		return
	}
	over := false
	switch e.Type {
	case events.OrderRejected:
		over = strings.HasPrefix(e.Reason, "the deadline")
	case events.OrderErrored, events.OrderCompensating:
		over = e.Error != nil && e.Error.Code == "overdue"
	case events.StepFailed:
		over = e.Error.Code == "queue-expired"
	case events.OrderAccepted, events.StepStarted:
		if !e.Deadline.IsZero() && !e.At.Before(e.Deadline) || !e.CompleteBy.IsZero() && !e.At.Before(e.CompleteBy) {
			s.count.happened("a deadline had passed by a clock that is not believed")
		}
	}
	if ahead := e.At.Sub(r.Timestamp); over && ahead > 2*time.Minute {
		s.Fatalf("%s of %q (%s), by a clock that is %s ahead of Kafka's", e.Type, e.Order, e.Reason, ahead)
	}
}

// tell says all that stands on Kafka.
func (s *simulation) tell() {
	for _, r := range s.account() {
		s.Logf("%s", r)
	}
}

// claims are what claims are called: an instance draws it.
var claims = regexp.MustCompile(`"claim":"[^"]*"`)

// account is all that stands on Kafka, in order.
func (s *simulation) account() []string {
	var all []*simRecord
	for _, log := range s.logs {
		all = append(all, log.records...)
	}
	slices.SortFunc(all, func(a, b *simRecord) int { return a.order - b.order })
	var lines []string
	for _, r := range all {
		if r.state != isMarker {
			lines = append(lines, fmt.Sprintf("%s/%d/%d of %d/%d %s: %q %s", r.Topic, r.Partition, r.Offset, r.ProducerID, r.ProducerEpoch,
				[]string{"open", "committed", "aborted"}[r.state], r.Key, claims.ReplaceAll(r.Value, nil)))
		}
	}
	return lines
}

// read are the committed records of a topic.
func (s *simulation) read(topic string) iter.Seq[*kgo.Record] {
	return func(yield func(*kgo.Record) bool) {
		for p := range s.wide {
			for _, r := range s.log(lane.TopicPartition{Topic: topic, Partition: p}).records {
				if r.state == isCommitted && !yield(r.Record) {
					return
				}
			}
		}
	}
}

func (s *simulation) checkPartition(p int32, last *simLane) {
	must(s.T, last.state.Flush())
	last.state.Rescan()
	if due, err := last.state.Due(last.wall(), lane.DueAtOnce); err != nil || len(due) > 0 {
		s.Fatalf("partition %d: still due: %v %v", p, due, err)
	}
	written := inspect.Partition{
		Topics: &s.topics, Skew: s.skew, Workflow: s.known().Find,
		Newer: func(version int) bool { return version == newerLevel },
		Quiet: true, Others: func(id string) []events.Event { return s.histories[id] },
		Order: func(id string) *projections.Order {
			o, err := last.state.Order(id)
			must(s.T, err)
			return o
		},
	}
	place := newPlace()
	again, err := s.store.Partition(place)
	must(s.T, err)
	claimed, format, undone := "", 1, make(map[string]int)
	for _, r := range s.log(lane.TopicPartition{Topic: s.topics.Journal, Partition: p}).records {
		if r.state != isCommitted {
			continue
		}
		written.Journal = append(written.Journal, r.Record)
		if err := fold(again, r.Record); err != nil {
			s.Fatalf("the journal: %v", err)
		}
		e, err := events.Decode[events.Event](r.Value)
		must(s.T, err)
		s.onlyInTime(r.Record, &e)
		if e.Type == events.PartitionClaimed {
			claimed = e.Instance
		} else if (e.Type == events.StepStarted || e.Type == events.UndoStarted) && e.LockedBy != claimed {
			s.Fatalf("%s decided on %q after %s had claimed the partition", e.LockedBy, e.Order, claimed)
		}
		if format = max(format, e.Format); e.Order != "" {
			s.count.happened(fmt.Sprintf("an event in format %d", format))
		}
		s.count.Events[e.Type]++
		switch {
		case e.Actor == nil:
		case e.Type == events.OrderAccepted:
			s.count.happened("the author of a submission was known")
		default:
			s.count.happened("the author of a command was known")
		}
		switch {
		case e.Uncounted:
			s.count.happened("an attempt did not count")
		case e.Type == events.StepRetried && e.Attempt == 1 && len(s.vanishing) == 0:
			s.count.happened("a step waited until its agent had room")
		case e.Proof != "":
			s.count.happened("a request had a token")
		case e.Reason == events.DiscardForged:
			s.count.happened("a reply was forged")
		case e.Kept != nil:
			s.count.happened("a step kept its key")
		case e.MayHaveRun != nil:
			s.count.happened("a step that may have run got another key")
		case e.Error != nil && e.Error.Code == events.UnknownLimit && e.Type == events.StepFailed:
			s.count.happened("an attempt was refused a place")
		case e.Type == events.PlaceReturned && e.Error != nil:
			s.count.happened("a home sent an order away")
		case e.Error != nil && e.Error.Code == events.Conflict && e.Type == events.OrderRaised:
			s.count.happened("an order was in conflict")
		case e.Error != nil && e.Error.Code == events.Superseded && e.Type == events.OrderCompensating:
			s.count.happened("an order lost its turn")
		case e.Type == events.UndoCompleted:
			undone[e.Order+"/"+e.Step]++
			if undone[e.Order+"/"+e.Step] == 2 {
				s.count.happened("a step was undone under two keys")
			}
		}
	}
	for _, r := range s.log(lane.TopicPartition{Topic: s.topics.Alerts, Partition: 0}).records {
		if r.Key == nil && p == 0 {
			s.count.happened("an alert of a clock")
		}
	}
	for _, r := range s.messages(p) {
		if wrong := audit.Token(r.Record, s.keys, &s.topics); wrong != "" {
			s.Fatalf("%s", wrong)
		}
		written.Messages = append(written.Messages, r.Record)
	}
	must(s.T, again.Flush())
	s.same(last.at, place)
	in := inspect.New()
	in.Jumps = true
	in.Check(s.T, &written)
	for _, id := range s.submitted(last) {
		if events.CheckOrderID(id) == nil && in.Ledgers[id] == nil {
			s.Fatalf("order %q is lost", id)
		}
	}
	for id, ledger := range in.Ledgers {
		if ledger.Schedule != nil {
			if says := written.Order(id).Schedule.Says; says != nil && says.End.IsZero() {
				s.Fatalf("schedule %q goes on for ever", id)
			}
			continue
		}
		if home := ledger.Places; home != nil || events.IsTurn(id) { // which may be forgotten
			s.count.happened("places of a limit")
			for _, seat := range cmp.Or(home, new(oracle.Places)).Seats {
				s.Fatalf("%q: %+v although all was done", id, seat)
			}
			continue
		}
		if ledger.Accepted().Parent != "" {
			s.count.happened("an order did a step of another")
			if s.of.Of([]byte(ledger.Accepted().Parent)) != p {
				s.count.happened("an order did a step of another, in another partition")
			}
		}
		if home := cmp.Or(ledger.Correlation, new(oracle.Correlation)); events.IsCorrelation(id) {
			s.count.happened("signals under a key")
			for _, w := range home.Waits {
				s.Fatalf("%q: %+v waits although all was done", id, w)
			}
			for source, u := range home.Under {
				if u.Given || !u.Told {
					s.Fatalf("%q: %s is %+v although all was done", id, source, u)
				}
			}
			continue
		}
		s.count.Ends[projections.State(ledger.State)]++
		if ledger.Discarded >= decide.MaxVoid {
			s.count.happened("an order discarded all that it may")
		}
		if ledger.Refused >= decide.MaxVoid {
			s.count.happened("an order refused all that it may")
		}
		for _, cause := range ledger.Blame {
			s.count.Causes[cause]++
			// A workflow that was used once is there, so are the topics that do not come and
			// go, and where a batch may be too large a record is not.
			limit, first := s.limits[s.topics.Requests("a1")], ledger.Accepted()
			if cause == oracle.ByAbsence || cause == oracle.ByRefusal && len(s.vanishing) < 2 && (limit == 0 || limit > simRecordSize+1_000+len(first.Tracestate)+len(first.Baggage)) {
				s.Fatalf("order %q came into Error by nobody's doing, but by %s", id, cause)
			}
		}
		if o := written.Order(id); o != nil && !o.State.Final() { // of what a schedule began nothing is left
			s.Fatalf("order %q is %s although all was done", id, o.State)
		}
	}
	s.count.Orders += len(in.Ledgers)
}

// known are all workflows that were registered.
func (s *simulation) known() *workflow.Set {
	var all workflow.Set
	for _, flow := range s.registered {
		all.Add(flow)
	}
	return &all
}

// messages are those about the orders of a partition, in order.
func (s *simulation) messages(p int32) []*simRecord {
	var all []*simRecord
	for at, log := range s.logs {
		switch at.Topic {
		case s.topics.Orders, s.topics.Replies, s.topics.Commands, s.topics.Signals, s.topics.Journal, s.topics.DeadLetters:
			continue
		}
		for _, r := range log.records {
			partitions := at.Topic == s.topics.Alerts && r.Key == nil // and of no order
			order := r.Key
			if oracle.Emitted(r.Record) { // by a step, under another key
				order = events.HeaderValue(r.Record, "ce_subject")
			}
			here := s.of.Of(order) == p
			if at.Topic == s.topics.Internal { // where the lane that wrote it reads it
				here = at.Partition == p && !audit.Copied(r.Record) && !audit.Returned(r.Record)
			}
			if r.state == isCommitted && !partitions && here {
				all = append(all, r)
			}
		}
	}
	slices.SortFunc(all, func(a, b *simRecord) int { return a.order - b.order })
	return all
}

// same holds two folds of the journal against each other.
func (s *simulation) same(a, b int32) {
	dump := func(p int32) map[string]string {
		all := make(map[string]string)
		must(s.T, s.store.Dump(p, func(projections.Head) error { return nil }, func(key, value []byte) error {
			all[string(key[4:])] = string(value)
			return nil
		}))
		return all
	}
	is, want := dump(a), dump(b)
	for key := range want {
		if is[key] != want[key] {
			s.Fatalf("the store differs from a fold of the journal at %q:\n is   %q\n must %q", key, is[key], want[key])
		}
	}
	if len(is) != len(want) {
		s.Fatalf("the store has %d keys, and must have %d", len(is), len(want))
	}
}
