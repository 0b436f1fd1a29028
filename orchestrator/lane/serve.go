package lane

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Beside is what goes on beside the lane that decides: inputs are fetched, a
// batch is committed, time passes, and somebody watches that nothing hangs.
// Simulations put another in its place.
type Beside interface {
	// Turn asks for the lane's turn to commit, and says whether it has it at once. Else
	// [Turned] follows. The turn before was used.
	Turn() bool
	// Commit begins to commit a batch, which ends the lane's turn. The one before has ended.
	Commit(b *Batch)
	// Ask begins to ask Kafka what [Lane.Ask] does. The question before was answered.
	Ask()
	// AskOrders begins what [Lane.AskOrders] does. The last such question was answered.
	AskOrders()
	// Confirm begins what [Lane.Confirm] does. The last such reading has ended.
	Confirm(last []int64)
	// Deliver begins what [Lane.Deliver] does. The last delivery to that topic has ended.
	Deliver(d *Delivery)
	// Next waits for the first of what is wanted.
	Next(w Wanted) Happened
}

// Wanted is what a lane waits for. It always hears how a commit ended, that it is its
// turn, that it is time to look at the deadlines, and that something hangs.
type Wanted struct {
	Inputs   bool            // the batch has room
	Look     bool            // at the deadlines, if nothing else is there
	Stop     bool            // nothing is being committed, so it may be told to stop
	Answered <-chan struct{} // what closes it; nil if nothing waits for it
	Opens    time.Duration   // until an agent has room for what waits, or it is to be looked again at what was sought; 0 if time makes none
	Keeps    time.Duration   // until committed state is to be written to the store; 0 if there is none
}

// Happened is one thing that a lane was waiting for.
type Happened struct {
	What    Happening
	Fetches kgo.Fetches
	Topic   string    // to which something was to be delivered
	End     int64     // of the replies, or of what can be read of the orders; or behind what was delivered, 0 if nothing was
	Last    int64     // of the orders
	Newest  time.Time // record of the journal
	Err     error     // of a commit or of a question, or what hangs

	emitted []emission // what was to be delivered, if it is events of users'
	untaken []error    // why, of each, nil if it was taken; nil if all were
	taken   int        // of what was to be delivered: the first, or of events of users' how many
}

// Happening is what a lane hears of.
type Happening int

// What a lane hears of.
const (
	Fetched    Happening = iota // inputs were fetched
	Turned                      // it is the lane's turn to commit
	Committed                   // a commit ended
	Told                        // Kafka was asked, and said something or failed
	OrdersTold                  // Kafka was asked of the orders, and said something or failed
	Confirmed                   // the journal was read, for the courier
	Delivered                   // a delivery ended
	Answered                    // something is known of topics that some wait for
	Opened                      // time has made room at an agent
	Kept                        // committed state was kept from the store for as long as it may
	Ticked                      // it is time to look at the deadlines
	Idle                        // there is nothing else, and a look was wanted
	Hung                        // one of its transactions hangs
	Stopped
)

// Serve runs the partition until ctx ends, which returns nil, or until
// anything goes wrong, which ends the lane: it comes back only by a takeover.
func (l *Lane) Serve(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()

	b := &goroutines{
		ctx: ctx, inputs: make(chan kgo.Fetches), hung: make(chan error),
		batches: make(chan commit), committed: make(chan error, 1),
		happened: make(chan Happened), lane: l,
		tick: time.NewTicker(l.cfg.SuperviseEvery), opens: time.NewTimer(time.Hour), keeps: time.NewTimer(time.Hour),
	}
	defer b.tick.Stop()
	defer b.opens.Stop()
	defer b.keeps.Stop()
	defer close(b.batches)
	defer func() { b.turn.End(false) }()
	begun, orders := make(chan kgo.Fetches), make(chan kgo.Fetches)
	running.Go(func() { poll(ctx, l.inputs, begun) })
	running.Go(func() { poll(ctx, l.orders, orders) })
	running.Go(func() { begunFirst(ctx, begun, orders, b.inputs) })
	running.Go(func() {
		if err := l.Watch(ctx); err != nil {
			select {
			case b.hung <- err:
			case <-ctx.Done():
			}
		}
	})
	running.Go(func() {
		for c := range b.batches {
			err := l.Commit(ctx, c.Batch)
			c.turn.End(err == nil)
			b.committed <- err
		}
	})
	b.begin = func(does func() Happened) {
		running.Go(func() {
			h := does()
			select {
			case b.happened <- h:
			case <-ctx.Done():
			}
		})
	}
	return l.Run(ctx, b)
}

func poll(ctx context.Context, from Reader, to chan<- kgo.Fetches) {
	for ctx.Err() == nil {
		fetches := from.Poll(ctx, PollRecords)
		select {
		case to <- fetches:
		case <-ctx.Done():
		}
	}
}

// ordersTurn says how often submissions are taken though others wait.
const ordersTurn = 64

// begunFirst passes on what was fetched: submissions where nothing is there of orders
// that have begun. If they came in turn, more of them than are carried would keep
// replies waiting, ever more of them, until all that began expires.
func begunFirst(ctx context.Context, begun, orders <-chan kgo.Fetches, to chan<- kgo.Fetches) {
	for turn := 1; ctx.Err() == nil; turn++ {
		first := begun
		if turn%ordersTurn == 0 {
			first = orders
		}
		var fetches kgo.Fetches
		select {
		case fetches = <-first:
		default:
			select {
			case fetches = <-begun:
			case fetches = <-orders:
			case <-ctx.Done():
				return
			}
		}
		select {
		case to <- fetches:
		case <-ctx.Done():
		}
	}
}

// goroutines are beside a lane on Kafka.
type goroutines struct {
	ctx       context.Context //nolint:containedctx // it ends with serve, as they do
	inputs    chan kgo.Fetches
	turn      *Turn           // the last that the lane asked for
	turned    <-chan struct{} // what closes it, if the lane waits for that
	batches   chan commit
	committed chan error
	lane      *Lane
	begin     func(does func() Happened) // does it, beside all else
	happened  chan Happened              // what came of it
	hung      chan error
	tick      *time.Ticker
	opens     *time.Timer
	keeps     *time.Timer
}

var always = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// commit is a batch, and the turn in which it is committed.
type commit struct {
	*Batch
	turn *Turn
}

func (g *goroutines) Turn() bool {
	g.turn = g.lane.cfg.Turns.Ask()
	select {
	case <-g.turn.granted:
		return true
	default:
		g.turned = g.turn.granted
		return false
	}
}

func (g *goroutines) Commit(b *Batch) { g.batches <- commit{b, g.turn} }

func (g *goroutines) Ask() {
	g.begin(func() Happened { return g.lane.Ask(g.ctx) })
}

func (g *goroutines) AskOrders() {
	g.begin(func() Happened { return g.lane.AskOrders(g.ctx) })
}

func (g *goroutines) Confirm(last []int64) {
	g.begin(func() Happened { return g.lane.Confirm(g.ctx, last) })
}

func (g *goroutines) Deliver(d *Delivery) {
	g.begin(func() Happened { return g.lane.Deliver(g.ctx, d) })
}

func (g *goroutines) Next(w Wanted) Happened {
	select {
	case <-g.turned: // before all else: others wait for it
		g.turned = nil
		return Happened{What: Turned}
	default:
	}
	inputs, look, stopping := g.inputs, always, g.ctx.Done()
	if !w.Inputs {
		inputs = nil
	}
	if !w.Look {
		look = nil
	}
	if !w.Stop {
		stopping = nil
	}
	var opened, kept <-chan time.Time
	if w.Opens > 0 {
		g.opens.Reset(w.Opens)
		opened = g.opens.C
	}
	if w.Keeps > 0 {
		g.keeps.Reset(w.Keeps)
		kept = g.keeps.C
	}
	select {
	case fetches := <-inputs:
		return Happened{What: Fetched, Fetches: fetches}
	case <-g.turned:
		g.turned = nil
		return Happened{What: Turned}
	case err := <-g.committed:
		return Happened{What: Committed, Err: err}
	case h := <-g.happened:
		return h
	case <-g.tick.C:
		return Happened{What: Ticked}
	case <-w.Answered:
		return Happened{What: Answered}
	case <-opened:
		return Happened{What: Opened}
	case <-kept:
		return Happened{What: Kept}
	case <-look:
		return Happened{What: Idle}
	case err := <-g.hung:
		return Happened{What: Hung, Err: err}
	case <-stopping:
		return Happened{What: Stopped}
	}
}

// Run is the lane's own loop: it decides on what happens, one thing after the
// other, until it is told to stop or anything goes wrong.
func (l *Lane) Run(ctx context.Context, b Beside) error {
	l.current.moved = l.halves.unproven(l.time.Timer()) // a batch before that of the suspect
	for {
		l.look = l.look || l.fair()
		if ctx.Err() == nil && l.itsTurn(b) && l.begin() {
			b.Commit(l.inflight)
			// Inputs could fill every batch: what has expired goes first.
			if l.look {
				if err := l.supervise(); err != nil {
					return err
				}
			}
		}
		l.ask(b)
		l.askOrders(b)
		l.confirm(b)
		if err := l.deliver(b); err != nil {
			return err
		}
		l.read.Store(l.ordersRead())
		room := !l.full()
		if room && len(l.rest) > 0 && ctx.Err() == nil {
			if err := l.decideOn(l.rest); err != nil {
				return err
			}
			continue
		}
		// Told to stop, it first hears how the commit ended.
		h := b.Next(Wanted{Inputs: room && len(l.rest) == 0, Look: l.look && room, Stop: l.inflight == nil, Answered: l.awaits(), Opens: l.opens(), Keeps: l.keeps()})
		var err error
		switch h.What {
		case Fetched:
			unread, failed := l.unread(h.Fetches.Errors())
			if len(failed) > 0 && ctx.Err() == nil {
				return l.unreadable(failed[0])
			}
			err = l.decide(h.Fetches.Records(), unread...)
		case Turned:
			l.turn = granted
		case Committed:
			err = l.conclude(h.Err)
		case Told:
			l.told(h)
		case OrdersTold:
			l.ordersTold(h)
		case Confirmed:
			err = l.isConfirmed(h)
		case Delivered:
			err = l.delivered(h)
		case Answered:
			l.look, l.answered = true, nil
		case Opened:
			l.look, l.away.again = true, time.Time{}
		case Kept:
			err = l.flush()
		case Ticked:
			l.look = true
			l.flushing.releases.release(l.state, l.time.Timer())
			l.prepare(nil) // so that what is known is never old
			l.keepPosition(keepAfter)
			l.readAdded()
			l.tick(room)
			l.listen()
			l.early.rests, l.earlySignals.rests = false, false
			l.again()
		case Idle:
			err = l.supervise()
		case Hung:
			err = h.Err
		case Stopped:
			if l.current.empty() || l.turn != notAsked {
				l.tell(true)
				if l.keepPosition(0); l.begin() { // no turn is waited for
					b.Commit(l.inflight)
					continue
				}
			}
			return l.flush()
		}
		if err != nil {
			return err
		}
	}
}
