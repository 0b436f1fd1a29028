package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/orchestrator/proof"
	"github.com/waybill-dev/waybill/orchestrator/window"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
)

// process is a coroutine: what an instance does, or one of its commits. It runs
// until it takes a step, and goes on when it is told to.
type process struct {
	next  func() (struct{}, bool)
	kill  func()
	wait  func(struct{}) bool
	ended bool
	// panicked is with what it ended, and where.
	panicked any
	where    string
}

// killed ends a coroutine.
type killed struct{}

func start(run func(p *process)) *process {
	p := &process{}
	p.next, p.kill = iter.Pull(func(yield func(struct{}) bool) {
		defer func() {
			p.ended = true
			if v := recover(); v != (killed{}) && p.panicked == nil {
				p.panicked, p.where = v, string(debug.Stack())
			}
		}()
		p.wait = yield
		run(p)
	})
	return p
}

// step lets the others do something. It does not return if the process is
// killed meanwhile.
func (p *process) step() {
	if p.ended || !p.wait(struct{}{}) {
		panic(killed{})
	}
}

// simInstance is a process with its clock, its store and its connections. It
// follows the partitions that it does not own.
type simInstance struct {
	*simulation
	name      string
	offset    time.Duration // of its clock
	up        bool
	seen      bool         // that inputs have more partitions
	lags      bool         // it reads of new workflows only where it asks for them
	older     bool         // its release cannot run the second of them
	flows     workflow.Set // as far as it was read
	directory *directory
	follower  *lane.Follower
	members   *membership
	following *process
	signs     window.Signs
	lanes     []*simLane // of each partition
}

// simLane is a partition of an instance, which may believe that it owns it.
type simLane struct {
	instance  *simInstance
	partition int32
	*simulation
	at       int32 // its place in the store
	state    *projections.Partition
	lost     bool // a connection
	sought   uint64
	poisoned bool // whoever looks a workflow up panics

	main    *process // nil while it only follows
	working *process // which of its coroutines runs
	lane    *lane.Lane
	readers []*simReader // of the lane
	beside  *simBeside
}

// simWatch is how often lanes look for what hangs.
const simWatch = 10 * time.Second

// simPatience is how long status messages wait for callers' topics.
const simPatience = time.Hour

// simStores numbers the places in the store.
var simStores int32

func newPlace() int32 { simStores++; return simStores }

func (s *simulation) newInstance(n int) *simInstance {
	in := &simInstance{
		simulation: s, name: fmt.Sprint("i-", n+1),
		directory: newDirectory(nil, &s.topics, s.partitions, slog.New(slog.DiscardHandler)),
	}
	in.directory.now = func() time.Time { return s.now }
	for p := range s.partitions {
		in.lanes = append(in.lanes, &simLane{instance: in, partition: p, simulation: s, at: newPlace()})
	}
	return in
}

func (in *simInstance) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(simLogger{in}, nil))
}

// start starts the process: it opens its store and follows every partition.
func (in *simInstance) start() {
	in.Logf("%s starts", in.name)
	in.up, in.seen, in.lags = true, false, in.fault(2, "an instance does not read of new workflows")
	in.older = in.fault(2, "an instance is of an older release")
	in.catchUp()
	in.follower = lane.NewFollower(&simJournals{in, make(map[int32]int64)}, func(context.Context, int32) (int64, error) { return 0, nil }, in.idle, in.logger(), func() time.Time { return in.now })
	in.members = newMembership(in.follower, in.partitions, in.logger())
	in.members.now = func() time.Time { return in.now }
	in.members.newLane = func(p int32, state *projections.Partition) owner { return in.lanes[p].next(state) }
	in.members.pause = func(ctx context.Context, p int32, d time.Duration) bool { return in.lanes[p].pause(ctx, d) }
	in.members.spawn = func(p int32, keep func()) { in.lanes[p].main = start(func(*process) { keep() }) }
	in.members.alarm = func(_ context.Context, p int32, why error, _ func()) {
		if !errors.Is(why, errStuck) { // trouble that lasts
			in.Fatalf("%s stops partition %d: %v", in.name, p, why)
		}
	}
	in.members.fail = func(err error) { in.Fatalf("%s: the store is damaged: %v", in.name, err) }
	for _, l := range in.lanes {
		var err error
		l.state, err = in.store.Partition(l.at)
		must(in.T, err)
		in.follower.Follow(l.state, l.partition)
	}
	in.following = start(func(p *process) {
		for {
			p.step()
			if err := in.follower.Once(context.Background()); err != nil {
				in.Fatalf("%s: the store is damaged: %v", in.name, err)
			}
		}
	})
}

// crash ends it as kill -9 does: what was not flushed is gone.
func (in *simInstance) crash() {
	if !in.up {
		return
	}
	in.up = false
	in.following.kill()
	for _, l := range in.lanes {
		if l.main != nil {
			l.beside.kill()
			l.main.kill()
		}
		l.main, l.beside, l.lane, l.state = nil, nil, nil, nil
	}
}

// lose takes the stores, or a part of what was written last: what a machine
// that loses its power keeps.
func (in *simInstance) lose(all bool) {
	for _, l := range in.lanes {
		l.at = newPlace()
		if all {
			continue
		}
		state, err := in.store.Partition(l.at)
		must(in.T, err)
		journal := in.log(lane.TopicPartition{Topic: in.topics.Journal, Partition: l.partition})
		for _, r := range journal.records[:in.amount("kept", 0, journal.stable)] {
			if r.state == isCommitted {
				must(in.T, fold(state, r.Record))
			}
		}
		must(in.T, state.Flush())
	}
}

// assigned has it take a partition over.
func (l *simLane) assigned() {
	l.Logf("%s is given partition %d", l.instance.name, l.partition)
	l.beside = &simBeside{simLane: l}
	l.instance.members.assigned(context.Background(), []int32{l.partition})
}

// revoked has it give the partition up.
func (l *simLane) revoked() {
	l.Logf("%s is told to give partition %d up", l.instance.name, l.partition)
	l.count.happened("an instance stopped in good order")
	l.instance.members.stop([]int32{l.partition})
}

// step is a step of the coroutine that runs.
func (l *simLane) step() { l.working.step() }

// turn lets one of the lane's coroutines go on to its next step.
func (l *simLane) turn(p *process) {
	l.working = p
	l.goOn(p)
	if l.main.ended {
		l.Logf("%s has given partition %d up", l.instance.name, l.partition)
		l.beside.kill()
		l.main, l.beside, l.lane = nil, nil, nil
		l.instance.members.forget(l.partition)
	}
}

func (s *simulation) goOn(p *process) {
	s.count.Steps++
	p.next()
	switch v := p.panicked; {
	case v == nil:
	case strings.HasPrefix(fmt.Sprintf("%T", v), "*rapid."), strings.HasPrefix(fmt.Sprintf("%T", v), "rapid."):
		panic(v) // how rapid ends a test; from a line of its own, since it tells panics apart by that
	default:
		s.Fatalf("%v\n%s", v, p.where)
	}
}

// next is the next lane that the instance keeps on the partition.
func (l *simLane) next(state *projections.Partition) owner {
	in := l.instance
	l.state, l.lost, l.readers = state, false, nil
	b := &simBroker{in.simKafka, l}
	return &simOwner{l, lane.New(lane.Config{
		Instance: in.name, Topics: in.topics, Partitions: in.partitions, Skew: in.skew, WatchEvery: simWatch, StatusPatience: simPatience, AgentRate: in.agentRate, Signs: &in.signs, Keys: func() *proof.Keys { return in.keys }, Claims: true,
		Clock: lane.Clock{Wall: l.wall, Timer: func() time.Time { return in.now }, Pause: l.pause},
	}, l.partition, b, &simWorld{in.directory, b}, state, in.logger())}
}

// simOwner is a lane whose goroutines are coroutines.
type simOwner struct {
	*simLane
	*lane.Lane
}

func (o *simOwner) TakeOver(ctx context.Context) error {
	err := o.Lane.TakeOver(ctx)
	if err == nil {
		o.count.Claims++
		o.Logf("%s took partition %d over at %d", o.instance.name, o.partition, o.state.Head().Offset)
	}
	return o.look(err)
}

// look: what would have an instance fold its journal anew, or stop the partition,
// must not come up.
func (o *simOwner) look(err error) error {
	o.Logf("%s: the lane of partition %d: %v", o.instance.name, o.partition, err)
	if errors.Is(err, projections.ErrGap) || errors.Is(err, projections.ErrDamaged) || errors.Is(err, lane.ErrInputLost) {
		o.tell()
		o.Fatalf("%s stops partition %d: %v", o.instance.name, o.partition, err)
	}
	return err
}

// pause waits, if for long until that time has passed.
func (l *simLane) pause(ctx context.Context, d time.Duration) bool {
	until := l.now
	if d > time.Second {
		until = until.Add(d)
	}
	for l.step(); l.now.Before(until) && ctx.Err() == nil; {
		l.step()
	}
	return ctx.Err() == nil
}

// wall is the clock of its instance.
func (l *simLane) wall() time.Time { return events.Time(l.now.Add(l.instance.offset)) }

// Serve is what [lane.Lane.Serve] does: the lane's own loop runs, and what is
// beside it are coroutines.
func (o *simOwner) Serve(ctx context.Context) error {
	l := o.simLane
	b := &simBeside{simLane: l, process: l.main, ctx: ctx}
	l.lane, l.beside = o.Lane, b
	defer func() { l.lane = nil }()
	b.watching = start(func(*process) { b.hung = l.lane.Watch(ctx) })
	defer func() { // serve waits for its goroutines
		b.heal()
		b.watching.kill()
		if b.asking != nil {
			b.asking.kill()
		}
		for _, p := range b.carrying {
			p.kill()
		}
		for b.committing != nil && !b.done {
			b.process.step()
		}
		b.committing = nil
	}()
	return o.look(o.Run(ctx, b))
}

// simBeside is what goes on beside a lane.
type simBeside struct {
	*simLane
	*process
	ctx        context.Context //nolint:containedctx // it ends with serve
	ahead      kgo.Fetches     // was fetched while the lane did something else
	awaits     bool            // its turn
	committing *process
	outcome    error
	done       bool // the commit has an outcome
	asking     *process
	told       *lane.Happened // what it heard, until the lane hears of it
	carrying   []*process     // of the courier
	carried    []lane.Happened
	watching   *process
	hung       error
}

func (b *simBeside) kill() {
	for _, p := range append([]*process{b.committing, b.asking, b.watching}, b.carrying...) {
		if p != nil {
			p.kill()
		}
	}
}

// others are the coroutines that may go on.
func (b *simBeside) others() []*process {
	return slices.DeleteFunc(append([]*process{b.committing, b.asking, b.watching}, b.carrying...), func(p *process) bool { return p == nil || p.ended })
}

// Turn: others may be before it, for any time.
func (b *simBeside) Turn() bool {
	b.awaits = !b.calm && b.flip("turn")
	return !b.awaits
}

func (b *simBeside) Commit(batch *lane.Batch) {
	b.heal() // what follows is of other orders
	b.done = false
	b.committing = start(func(*process) {
		b.outcome = b.lane.Commit(b.ctx, batch)
		b.done = true
	})
}

func (b *simBeside) Ask() {
	b.asking = start(func(*process) {
		h := b.lane.Ask(b.ctx)
		b.told = &h
	})
}

func (b *simBeside) AskOrders() {
	b.carry(func() lane.Happened { return b.lane.AskOrders(b.ctx) })
}

func (b *simBeside) Confirm(last []int64) {
	b.carry(func() lane.Happened { return b.lane.Confirm(b.ctx, last) })
}

func (b *simBeside) Deliver(d *lane.Delivery) {
	b.carry(func() lane.Happened { return b.lane.Deliver(b.ctx, d) })
}

func (b *simBeside) carry(does func() lane.Happened) {
	b.carrying = slices.DeleteFunc(b.carrying, func(p *process) bool { return p.ended })
	b.carrying = append(b.carrying, start(func(*process) { b.carried = append(b.carried, does()) }))
}

func (b *simBeside) Next(w lane.Wanted) lane.Happened {
	b.heal()
	b.process.step()
	if b.ahead == nil && (b.calm || b.flip("fetch")) {
		if ready := slices.DeleteFunc(slices.Clone(b.readers), func(r *simReader) bool { return !r.ready() }); len(ready) > 0 {
			b.ahead = ready[b.draw("reader", 0, len(ready)-1)].take(lane.PollRecords)
		}
	}
	var may []lane.Happening
	if b.committing != nil && b.done {
		may = append(may, lane.Committed)
	}
	if b.awaits {
		may = append(may, lane.Turned)
	}
	if b.told != nil {
		may = append(may, lane.Told)
	}
	if len(b.carried) > 0 {
		may = append(may, b.carried[0].What)
	}
	if w.Inputs && b.ahead != nil {
		may = append(may, lane.Fetched)
	}
	if w.Look {
		may = append(may, lane.Idle)
	}
	select {
	case <-w.Answered:
		may = append(may, lane.Answered)
		b.count.happened("what waited heard that Kafka has answered")
	default:
	}
	if w.Opens > 0 && b.one(4, "opens") {
		may = append(may, lane.Opened)
	}
	if w.Keeps > 0 {
		may = append(may, lane.Kept)
	}
	if b.hung != nil {
		may = append(may, lane.Hung)
	}
	if w.Stop && b.ctx.Err() != nil {
		may = append(may, lane.Stopped)
	}
	if len(may) == 0 || !b.calm && b.one(4, "tick") {
		may = append(may, lane.Ticked)
	}
	what := may[0]
	if !b.calm && len(may) > 1 {
		what = may[b.draw("happens", 0, len(may)-1)]
	}
	h := lane.Happened{What: what}
	switch what {
	case lane.Committed:
		h.Err, b.committing = b.outcome, nil
	case lane.Kept:
		b.count.happened("a lane kept from its store what it had committed")
	case lane.Turned:
		b.count.happened("a lane waited for its turn to commit")
		b.awaits = false
	case lane.Fetched:
		h.Fetches, b.ahead = b.ahead, nil
		b.poison(h.Fetches.Records())
	case lane.Told:
		h, b.told = *b.told, nil
		if h.Err == nil && b.reads(b.topics.Replies) < h.End {
			b.count.happened("what was due waited for replies")
		}
	case lane.OrdersTold, lane.Confirmed, lane.Delivered:
		h, b.carried = b.carried[0], b.carried[1:]
		if what == lane.OrdersTold && h.Err == nil && b.reads(b.topics.Orders) < h.End {
			b.count.happened("a command waited for its order")
		}
	case lane.Hung:
		b.count.happened("a lane found that its own transaction hung")
		h.Err = b.hung
	}
	return h
}

// reads is where reading of a topic goes on.
func (l *simLane) reads(topic string) (next int64) {
	for _, r := range l.readers {
		next = max(next, r.next[topic])
	}
	return next
}

// poison: sometimes deciding panics on all that was read.
func (b *simBeside) poison(records []*kgo.Record) {
	if len(records) > 0 && b.fault(8, "poison") {
		b.poisoned = true
	}
}

func (b *simBeside) heal() { b.poisoned = false }

// simLogger puts what an instance logs into the history's account.
type simLogger struct{ in *simInstance }

func (l simLogger) Write(b []byte) (int, error) {
	l.in.Logf("%s: %s", l.in.name, b)
	return len(b), nil
}

// fold folds a record of the journal.
func fold(state *projections.Partition, r *kgo.Record) error {
	return state.Fold(r.Offset, r.Value, events.HeaderValue(r, events.HeaderLane))
}
