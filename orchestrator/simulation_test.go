package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/reliability"
)

// simCounts are what happened in all histories.
type simCounts struct {
	Histories, Steps, Orders, Events, Commits        int
	Claims, Fenced, Crashes, Stopped, LostStores     int
	Unknown, Hung, Undone, Repeated, Restarts, Jumps int
	Poison                                           int
}

// TestSimulation runs real lanes, three instances that all believe that they own
// the partition, on a simulated Kafka, step by step as drawn: they crash, sleep
// and wake up, take over at the same time, lose their stores and the answers to
// their commits, and have clocks that differ and jump. Whatever happens, nothing
// is lost, nothing is doubled, and nothing is stuck (S1 to S6, V1, V2, V6).
//
// WAYBILL_HISTORIES says how many; see docs/reliability.md. When one fails, it
// is made as short as it can be, and the line that repeats it is printed.
func TestSimulation(t *testing.T) {
	histories := 5_000
	if n, err := strconv.Atoi(os.Getenv("WAYBILL_HISTORIES")); err == nil {
		histories = n
	}
	var count simCounts
	var store *projections.Store
	began := time.Now()
	for count.Histories < histories {
		old := store
		var err error
		store, err = projections.Temporary() // now and then: it grows
		must(t, err)
		if old != nil {
			must(t, old.Close())
		}
		rapid.Check(t, func(t *rapid.T) {
			s := newSimulation(t, store, &count)
			defer s.end()
			for range rapid.SampledFrom([]int{50, 150, 400}).Draw(t, "steps") {
				s.step()
			}
			s.heal()
			s.check()
			count.Histories++
		})
		if t.Failed() {
			break
		}
	}
	must(t, store.Close())
	took := time.Since(began)
	t.Logf("%+v in %s", count, took.Round(time.Millisecond))
	reliability.Write(t, "simulation", fmt.Sprintf("make reliability PART=simulation HISTORIES=%d", histories), reliability.Figures{
		{Name: "histories", Value: count.Histories},
		{Name: "a second", Value: int(float64(count.Histories) / took.Seconds())},
		{Name: "steps of instances and their commits", Value: count.Steps},
		{Name: "orders", Value: count.Orders},
		{Name: "events in the journals", Value: count.Events},
		{Name: "commits", Value: count.Commits},
		{Name: "takeovers", Value: count.Claims},
		{Name: "zombies fenced", Value: count.Fenced},
		{Name: "crashes", Value: count.Crashes},
		{Name: "instances that stopped in good order", Value: count.Stopped},
		{Name: "state stores lost", Value: count.LostStores},
		{Name: "unknown outcomes", Value: count.Unknown},
		{Name: "restarts of Kafka", Value: count.Restarts},
		{Name: "markers that Kafka forgot, so that a transaction hung", Value: count.Hung},
		{Name: "records of acknowledged commits that had to be aborted, since nobody could know", Value: count.Undone},
		{Name: "messages on callers' topics and alerts that came twice for that", Value: count.Repeated},
		{Name: "clocks that jumped", Value: count.Jumps},
		{Name: "inputs on which deciding panicked", Value: count.Poison},
	})
}

// simulation is one history: the partition, its instances, and the world that
// uses them.
type simulation struct {
	*rapid.T
	*simKafka
	flows     *catalogue
	directory *directory
	store     *projections.Store
	instances []*simInstance
	commands  []command
	calm      bool
	rough     []bool // how likely instances end
}

// simInstance is a process that believes that it owns the partition.
type simInstance struct {
	*simulation
	name    string
	offset  time.Duration // of its clock
	at      int32         // its place in the store
	state   *projections.Partition
	main    *process // nil while it is dead
	working *process // which of its coroutines runs
	lost    *bool

	lane       *lane
	committing *process
	outcome    error
	done       bool // the commit has an outcome
	stopping   bool
}

var simStores int32

func newSimulation(t *rapid.T, store *projections.Store, count *simCounts) *simulation {
	topics, err := events.NewTopics(events.DefaultNamespace)
	must(t, err)
	s := &simulation{
		T: t, simKafka: newSimKafka(topics), store: store,
		flows:     &catalogue{topics: &topics, flows: make(map[string]*workflow.Workflow), newest: make(map[string]*workflow.Workflow)},
		directory: newDirectory(nil, 1, slog.New(slog.DiscardHandler)),
	}
	s.count = count
	s.trace = t.Logf
	s.fault = func(likely int, name string) bool {
		return !s.calm && rapid.IntRange(0, likely-1).Draw(t, name) == likely-1
	}
	flow := rapid.SampledFrom(simFlows()).Draw(t, "workflow")
	s.flows.flows[flow.ID()], s.flows.newest[flow.Name] = flow, flow
	s.rough = rapid.SampledFrom([][]bool{{true}, {false, false, false, true}}).Draw(t, "rough")
	for n := range rapid.SampledFrom([]int{3, 2, 1}).Draw(t, "instances") {
		in := &simInstance{simulation: s, name: fmt.Sprint("i-", n+1), lost: new(bool)}
		in.offset = time.Duration(rapid.SampledFrom([]int{0, 0, -300_000, 40, 300_000}).Draw(t, "offset")) * time.Millisecond
		in.newStore()
		s.instances = append(s.instances, in)
	}
	s.instances[0].up()
	return s
}

// simFlows are drawn once: to compile one takes longer than a history.
var simFlows = sync.OnceValue(func() []*workflow.Workflow {
	all := make([]*workflow.Workflow, 100)
	for i := range all {
		all[i] = rapid.Custom(func(t *rapid.T) *workflow.Workflow { return drawFlow(t, 1) }).Example(i)
	}
	return all
})

func (s *simulation) end() {
	for _, in := range s.instances {
		in.crash()
	}
}

// newStore gives the instance an empty store.
func (in *simInstance) newStore() {
	simStores++
	in.at = simStores
	in.state = nil
}

func (in *simInstance) up() {
	in.Logf("%s starts", in.name)
	var err error
	in.state, err = in.store.Partition(in.at)
	must(in.T, err)
	in.stopping = false
	in.main = start(in.run)
}

// crash ends it as kill -9 does: what was not flushed is gone.
func (in *simInstance) crash() {
	if in.main == nil {
		return
	}
	if in.committing != nil {
		in.committing.kill()
	}
	in.main.kill()
	in.main, in.committing, in.lane, in.state = nil, nil, nil, nil
}

// step is a step of the coroutine that runs.
func (in *simInstance) step() { in.working.step() }

// turn lets one of the instance's coroutines go on to its next step.
func (in *simInstance) turn(p *process) {
	in.working = p
	in.count.Steps++
	p.next()
	switch v := p.panicked; {
	case v == nil:
	case strings.HasPrefix(fmt.Sprintf("%T", v), "*rapid."), strings.HasPrefix(fmt.Sprintf("%T", v), "rapid."):
		panic(v) // how rapid ends a test; from a line of its own, since it tells panics apart by that
	default:
		in.Fatalf("%v\n%s", v, p.where)
	}
}

// run is what [Instance.own] does.
func (in *simInstance) run(p *process) {
	i := &Instance{
		cfg: Config{ID: in.name}, topics: in.topics, partitions: 1, log: slog.New(slog.NewTextHandler(simLogger{in}, nil)),
		catalogue: in.flows, directory: in.directory, store: in.store,
	}
	for !in.stopping {
		l := i.newLane(0, in.state, i.log)
		l.broker = &simBroker{in.simKafka, in}
		l.time = clocks{
			wall:  func() time.Time { return events.Time(in.now.Add(in.offset)) },
			timer: func() time.Time { return in.now },
			pause: func(context.Context, time.Duration) bool { in.step(); return true },
		}
		*in.lost = false
		in.lane = l
		err := l.takeOver(context.Background())
		if err == nil {
			in.count.Claims++
			in.Logf("%s took over at %d", in.name, l.state.Head().Offset)
			err = in.serve(p, l)
		}
		in.Logf("%s: the lane ended: %v", in.name, err)
		l.close()
		in.lane = nil
		if errors.Is(err, projections.ErrGap) || errors.Is(err, projections.ErrDamaged) || errors.Is(err, errInputLost) {
			in.Fatalf("%s stops the partition: %v", in.name, err)
		}
		in.state.Forget()
		p.step()
	}
}

// serve is what [lane.serve] does, and what happens first is drawn.
func (in *simInstance) serve(p *process, l *lane) error {
	ctx := context.Background()
	defer func() {
		if in.committing != nil {
			for !in.done { // serve waits for its goroutines
				p.step()
			}
			in.committing = nil
		}
	}()
	for {
		if !in.stopping && l.begin() {
			b := l.inflight
			in.done = false
			in.committing = start(func(*process) {
				in.outcome = l.commit(ctx, b)
				in.done = true
			})
		}
		p.step()
		switch {
		case in.committing != nil && in.done:
			in.committing = nil
			if err := l.conclude(in.outcome); err != nil {
				return err
			}
		case in.stopping && l.inflight == nil:
			return l.state.Flush()
		case in.fault(4, "tick") || in.calm && !l.inputs.(*simReader).ready():
			if err := l.supervise(ctx); err != nil {
				return err
			}
		case !l.current.full():
			if err := in.decide(l, l.inputs.(*simReader).take(pollRecords).Records()); err != nil {
				return err
			}
		}
	}
}

// decide decides on what was read. Sometimes all of it is poison.
func (in *simInstance) decide(l *lane, records []*kgo.Record) error {
	orders := func(r *kgo.Record) bool { return r.Topic == in.topics.Orders }
	if len(records) > 0 && !slices.ContainsFunc(records, orders) && in.fault(30, "poison") {
		in.count.Poison += len(records)
		l.catalogue, l.learned = nil, in.now.Add(time.Hour) // whoever looks a workflow up panics
		defer func() { l.catalogue, l.learned = in.flows, time.Time{} }()
	}
	return l.decide(context.Background(), records)
}

// ready says whether there is something to read.
func (r *simReader) ready() bool {
	for _, topic := range r.topics {
		if !r.paused[topic] && r.next[topic] < int64(r.b.log(topic).lso()) {
			return true
		}
	}
	return false
}

// step is one step of anybody.
func (s *simulation) step() {
	in := rapid.SampledFrom(s.instances).Draw(s.T, "instance")
	switch n := rapid.IntRange(0, 99).Draw(s.T, "what"); {
	case n < 60:
		s.schedule(in)
	case n < 66:
		s.mark(rapid.SampledFrom(s.ring[:]).Draw(s.T, "marker of"))
	case n < 71:
		s.submit()
	case n < 82:
		s.answer()
	case n < 84:
		s.operate()
	case n < 88:
		s.now = s.now.Add(time.Duration(rapid.IntRange(1, 6_000).Draw(s.T, "ms")) * time.Millisecond)
		s.expire()
	case n < 90:
		if s.fault(3, "jump") {
			in.offset = time.Duration(rapid.IntRange(-3_600_000, 3_600_000).Draw(s.T, "jump to")) * time.Millisecond
			s.count.Jumps++
			s.Logf("the clock of %s jumps to %s", in.name, in.offset)
		}
	case n < 93:
		if in.main != nil && !rapid.SampledFrom(s.rough).Draw(s.T, "crash") {
			return
		}
		if in.main != nil {
			s.Logf("%s crashes", in.name)
			s.count.Crashes++
			in.crash()
			if s.fault(6, "store lost") {
				s.count.LostStores++
				in.newStore()
			}
		} else {
			in.up()
		}
	case n < 95:
		if in.main != nil && !in.stopping && rapid.SampledFrom(s.rough).Draw(s.T, "stop") {
			s.Logf("%s is told to stop", in.name)
			s.count.Stopped++
			in.stopping = true
		}
	case n < 97:
		if len(s.late) > 0 {
			s.Logf("a late request arrives")
			s.late[0]()
			s.late = s.late[1:]
		}
	case n < 98:
		s.restart()
	}
}

// restart is one of Kafka, in good order or not.
func (s *simulation) restart() {
	s.count.Restarts++
	s.Logf("kafka restarts")
	if s.fault(2, "in good order") {
		s.forget()
	}
	for _, in := range s.instances {
		*in.lost = true
	}
}

// schedule lets an instance go on.
func (s *simulation) schedule(in *simInstance) {
	if in.main == nil {
		return
	}
	p := in.main
	if in.committing != nil && !in.committing.ended && (s.calm || rapid.Bool().Draw(s.T, "commit")) {
		p = in.committing
	}
	in.turn(p)
	if in.main.ended {
		s.Logf("%s has stopped", in.name)
		in.main, in.committing, in.lane, in.state = nil, nil, nil, nil
	}
}

// input puts a record on an input topic.
func (s *simulation) input(topic string, kind events.Type, id string, value []byte, at time.Time) {
	r := &kgo.Record{Topic: topic, Key: []byte(id), Value: value, Timestamp: at, Headers: []kgo.RecordHeader{{Key: events.HeaderType, Value: []byte(kind)}}}
	s.append(r, isCommitted)
}

func (s *simulation) submit() {
	id := drawOrder(s.T)
	value := fmt.Sprintf(`{"workflow":%q,"replyTo":%q,"input":{"n":%d}}`,
		rapid.SampledFrom([]string{"flow", "flow", "flow", "flow", "none"}).Draw(s.T, "workflow"),
		rapid.SampledFrom([]string{"", "shop.status"}).Draw(s.T, "replyTo"), rapid.IntRange(0, 3).Draw(s.T, "n"))
	s.input(s.topics.Orders, events.OrderSubmitted, id, []byte(value), s.now)
}

// asked are the requests that agents can see, the last ones first.
func (s *simulation) asked(limit int) []events.Request {
	var all []events.Request
	for n := range 3 {
		log := s.log(s.topics.Requests(fmt.Sprint("a", n)))
		for i := log.lso() - 1; i >= 0 && len(all) < limit*(n+1); i-- {
			if r := log.records[i]; r.state == isCommitted {
				m, err := events.Decode[events.Request](r.Value)
				must(s.T, err)
				all = append(all, m)
			}
		}
	}
	return all
}

// answer has an agent reply, now or again, in time or late.
func (s *simulation) answer() {
	asked := s.asked(3)
	if len(asked) == 0 {
		return
	}
	m := rapid.SampledFrom(asked).Draw(s.T, "request")
	r := events.Reply{Order: m.Order, Step: m.Step, Attempt: m.Attempt, Undo: m.Undo, Status: events.ReplyCompleted}
	if rapid.IntRange(0, 3).Draw(s.T, "failed") == 3 {
		r.Status = events.ReplyFailed
		r.Error = rapid.SampledFrom([]*events.Error{nil, {Code: "busy"}, {Code: "gone", Permanent: true}}).Draw(s.T, "error")
	} else {
		r.Output = []byte(`{"n":3}`)
	}
	s.input(s.topics.Replies, events.StepReplied, r.Order, r.Append(nil), s.now)
}

// operate sends a command.
func (s *simulation) operate() {
	c := events.Command{
		Command: rapid.SampledFrom([]string{events.CommandCancel, events.CommandResubmit, events.CommandPause, events.CommandResume, events.CommandRelease, events.CommandRelease}).Draw(s.T, "command"),
		ID:      fmt.Sprint("c-", len(s.commands)),
	}
	id := drawOrder(s.T)
	value, err := c.Encode()
	must(s.T, err)
	if c, err = events.Decode[events.Command](value); err != nil {
		s.Fatalf("%v", err)
	}
	s.commands = append(s.commands, command{id: id, value: c})
	s.input(s.topics.Commands, events.OrderCommand, id, value, s.now)
}

// heal ends all trouble, and lets one instance work until nothing is left to do
// but what time or an operator must bring.
func (s *simulation) heal() {
	last := rapid.SampledFrom(s.instances).Draw(s.T, "survivor")
	s.calm = true
	for _, late := range s.late {
		late()
	}
	for _, in := range s.instances {
		in.crash()
	}
	last.up()
	s.Logf("calm; %s survives", last.name)
	s.instances = []*simInstance{last}
	for quiet, turns := 0, 0; quiet < 20; turns++ {
		if turns > 20_000 {
			s.Fatalf("there is no end of it: %+v", last.lane)
		}
		marked := false
		for _, t := range s.ring {
			marked = s.mark(t) || marked
		}
		s.schedule(last)
		if turns%50 == 49 { // an open transaction of nobody expires
			s.now = s.now.Add(time.Second)
			s.expire()
		}
		l := last.lane
		if !marked && l != nil && l.current != nil && l.inflight == nil && last.committing == nil && l.current.empty() &&
			l.inputs != nil && !l.inputs.(*simReader).ready() && len(l.early.commands) == 0 {
			quiet++
		} else {
			quiet = 0
		}
	}
}

// check holds what stands on Kafka and in the store against all rules.
func (s *simulation) check() {
	last := s.instances[0]
	must(s.T, last.state.Flush())
	stage := &stage{
		now: s.now.Add(last.offset), topics: s.topics, flows: s.flows, directory: s.directory,
		commands: s.commands, store: s.store, state: last.state,
	}
	fold, err := s.store.Partition(func() int32 { simStores++; return simStores }())
	must(s.T, err)
	claimed := ""
	for _, r := range s.log(s.topics.Journal).records {
		if r.state != isCommitted {
			continue
		}
		stage.journal = append(stage.journal, r.Record)
		if err := fold.Fold(r.Offset, r.Value, events.HeaderValue(r.Record, events.HeaderLane)); err != nil {
			s.Fatalf("the journal: %v", err)
		}
		e, err := events.Decode[events.Event](r.Value)
		must(s.T, err)
		if e.Type == events.PartitionClaimed {
			claimed = e.Instance
		} else if (e.Type == events.StepStarted || e.Type == events.UndoStarted) && e.LockedBy != claimed {
			s.Fatalf("%s decided on %q after %s had claimed the partition", e.LockedBy, e.Order, claimed)
		}
		s.count.Events++
	}
	for _, r := range s.acked {
		if r.state == isCommitted {
			continue
		}
		if s.count.Undone++; r.state != isAborted || !r.lost {
			s.Fatalf("acknowledged and not committed: %s/%d by %d/%d", r.Topic, r.Offset, r.ProducerID, r.ProducerEpoch)
		}
	}
	// What hung on the journal, and of which nothing could be known, was undone.
	// What alerts and callers' topics showed of it comes twice.
	undone := make(map[transaction]bool)
	for _, r := range s.log(s.topics.Journal).records {
		if r.lost && r.state == isAborted {
			undone[transaction{r.ProducerID, r.ProducerEpoch}] = true
		}
	}
	var messages []*simRecord
	for topic, log := range s.logs {
		switch topic {
		case s.topics.Orders, s.topics.Replies, s.topics.Commands, s.topics.Journal, s.topics.DeadLetters:
			continue
		}
		for _, r := range log.records {
			switch {
			case r.state != isCommitted:
			case undone[transaction{r.ProducerID, r.ProducerEpoch}] && (topic == s.topics.Alerts || topic == "shop.status"):
				s.count.Repeated++
			default:
				messages = append(messages, r)
			}
		}
	}
	slices.SortFunc(messages, func(a, b *simRecord) int { return a.order - b.order })
	for _, r := range messages {
		stage.messages = append(stage.messages, r.Record)
	}
	must(s.T, fold.Flush())
	s.same(last.at, simStores)
	in := newInspector()
	in.jumps = true
	in.check(s.T, stage)
	for _, r := range s.log(s.topics.Orders).records {
		if in.ledgers[string(r.Key)] == nil {
			s.Fatalf("order %q is lost", r.Key)
		}
	}
	s.count.Orders += len(in.ledgers)
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

// simLogger puts what an instance logs into the history's account.
type simLogger struct{ in *simInstance }

func (l simLogger) Write(b []byte) (int, error) {
	l.in.Logf("%s: %s", l.in.name, b)
	return len(b), nil
}
