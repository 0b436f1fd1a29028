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
	lags      bool       // it reads of new workflows only where it asks for them
	flows     *catalogue // as far as it was read
	directory *directory
	follower  *follower
	following *process
	lanes     []*simLane // of each partition
}

// simLane is a partition of an instance, which may believe that it owns it.
type simLane struct {
	instance  *simInstance
	partition int32
	*simulation
	at    int32 // its place in the store
	state *projections.Partition
	lost  bool // a connection

	main    *process // nil while it only follows
	working *process // which of its coroutines runs
	stop    context.CancelFunc
	lane    *lane
	beside  *simBeside
}

// simWatch is how often lanes look for what hangs.
const simWatch = 10 * time.Second

// simStores numbers the places in the store.
var simStores int32

func newPlace() int32 { simStores++; return simStores }

func (s *simulation) newInstance(n int) *simInstance {
	in := &simInstance{
		simulation: s, name: fmt.Sprint("i-", n+1), flows: newCatalogueOf(&s.topics),
		directory: newDirectory(nil, s.partitions, slog.New(slog.DiscardHandler)),
	}
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
	in.up, in.lags = true, in.fault(2, "an instance does not read of new workflows")
	in.catchUp()
	in.follower = makeFollower(&simJournals{in, make(map[int32]int64)}, in.idle, in.logger(), func() time.Time { return in.now })
	for _, l := range in.lanes {
		var err error
		l.state, err = in.store.Partition(l.at)
		must(in.T, err)
		in.follower.follow(l.state, l.partition)
	}
	in.following = start(func(p *process) {
		for {
			p.step()
			if err := in.follower.take(in.follower.journals.poll(context.Background())); err != nil {
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
		journal := in.log(topicPartition{in.topics.Journal, l.partition})
		for _, r := range journal.records[:in.draw("kept", 0, journal.stable)] {
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
	l.state = l.instance.follower.release(l.partition)
	l.begin()
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	l.main = start(func(p *process) {
		defer stop()
		l.own(ctx, p)
	})
}

func (l *simLane) begin() { l.beside = &simBeside{simLane: l} }

// revoked has it give the partition up.
func (l *simLane) revoked() {
	l.Logf("%s is told to give partition %d up", l.instance.name, l.partition)
	l.count.happened("an instance stopped in good order")
	l.stop()
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
		l.instance.follower.follow(l.state, l.partition)
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

// own is what [Instance.own] does.
func (l *simLane) own(ctx context.Context, p *process) {
	in := l.instance
	i := &Instance{
		cfg: Config{ID: in.name, ClockSkew: in.skew, watchEvery: simWatch}, topics: in.topics, partitions: in.partitions, log: in.logger(),
		catalogue: in.flows, directory: in.directory, store: in.store,
	}
	for ctx.Err() == nil {
		lane := i.newLane(l.partition, l.state, i.log)
		lane.broker = &simBroker{in.simKafka, l}
		lane.time = clocks{
			wall:  l.wall,
			timer: func() time.Time { return in.now },
			pause: l.pause,
		}
		l.lost = false
		err := lane.takeOver(ctx)
		if err == nil {
			in.count.Claims++
			in.Logf("%s took partition %d over at %d", in.name, l.partition, lane.state.Head().Offset)
			l.lane = lane
			err = l.serve(ctx, p)
			l.lane = nil
		}
		in.Logf("%s: the lane of partition %d ended: %v", in.name, l.partition, err)
		lane.close()
		if errors.Is(err, projections.ErrGap) || errors.Is(err, projections.ErrDamaged) || errors.Is(err, errInputLost) {
			in.tell()
			in.Fatalf("%s stops partition %d: %v", in.name, l.partition, err)
		}
		l.state.Forget()
		p.step()
	}
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

// serve is what [lane.serve] does: the lane's own loop runs, and what is beside
// it are coroutines.
func (l *simLane) serve(ctx context.Context, p *process) error {
	b := &simBeside{simLane: l, process: p, ctx: ctx}
	l.beside = b
	b.watching = start(func(*process) { b.hung = l.lane.watch(ctx) })
	defer func() { // serve waits for its goroutines
		b.heal()
		b.watching.kill()
		for b.committing != nil && !b.done {
			p.step()
		}
		b.committing = nil
	}()
	return l.lane.run(ctx, b)
}

// simBeside is what goes on beside a lane.
type simBeside struct {
	*simLane
	*process
	ctx        context.Context //nolint:containedctx // it ends with serve
	ahead      kgo.Fetches     // was fetched while the lane did something else
	committing *process
	outcome    error
	done       bool // the commit has an outcome
	watching   *process
	hung       error
	poisoned   bool
}

func (b *simBeside) kill() {
	for _, p := range []*process{b.committing, b.watching} {
		if p != nil {
			p.kill()
		}
	}
}

// others are the coroutines that may go on.
func (b *simBeside) others() []*process {
	if b.poisoned {
		return nil
	}
	return slices.DeleteFunc([]*process{b.committing, b.watching}, func(p *process) bool { return p == nil || p.ended })
}

func (b *simBeside) commit(batch *batch) {
	b.done = false
	b.committing = start(func(*process) {
		b.outcome = b.lane.commit(b.ctx, batch)
		b.done = true
	})
}

func (b *simBeside) next(w wanted) happened {
	b.heal()
	b.process.step()
	if b.ahead == nil && (b.calm || b.flip("fetch")) {
		b.ahead = b.lane.inputs.(*simReader).take(pollRecords)
	}
	var may []happening
	if b.committing != nil && b.done {
		may = append(may, committed)
	}
	if w.inputs && b.ahead != nil {
		may = append(may, fetched)
	}
	if w.look {
		may = append(may, idle)
	}
	if b.hung != nil {
		may = append(may, hung)
	}
	if w.stop && b.ctx.Err() != nil {
		may = append(may, stopped)
	}
	if len(may) == 0 || !b.calm && b.one(4, "tick") {
		may = append(may, ticked)
	}
	what := may[0]
	if !b.calm && len(may) > 1 {
		what = may[b.draw("happens", 0, len(may)-1)]
	}
	h := happened{what: what}
	switch what {
	case committed:
		h.err, b.committing = b.outcome, nil
	case fetched:
		h.fetches, b.ahead = b.ahead, nil
		b.poison(h.fetches.Records())
	case hung:
		b.count.happened("a lane found that its own transaction hung")
		h.err = b.hung
	}
	return h
}

// poison: sometimes deciding panics on all that was read.
func (b *simBeside) poison(records []*kgo.Record) {
	orders := func(r *kgo.Record) bool { return r.Topic == b.topics.Orders }
	if len(records) > 0 && !slices.ContainsFunc(records, orders) && b.fault(8, "poison") {
		b.poisoned = true
		b.lane.catalogue, b.lane.learned = nil, b.now.Add(time.Hour) // whoever looks a workflow up panics
	}
}

func (b *simBeside) heal() {
	if b.poisoned {
		b.lane.catalogue, b.lane.learned, b.poisoned = b.instance.flows, time.Time{}, false
	}
}

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
