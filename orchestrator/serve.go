package orchestrator

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// beside is what goes on beside the lane that decides: inputs are fetched, a
// batch is committed, time passes, and somebody watches that nothing hangs.
// Simulations put another in its place.
type beside interface {
	// commit begins to commit a batch. The one before has ended.
	commit(b *batch)
	// next waits for the first of what is wanted.
	next(w wanted) happened
}

// wanted is what a lane waits for. It always hears how a commit ended, that it
// is time to look at the deadlines, and that something hangs.
type wanted struct {
	inputs bool // the batch has room
	look   bool // at the deadlines, if nothing else is there
	stop   bool // nothing is being committed, so it may be told to stop
}

// happened is one thing that a lane was waiting for.
type happened struct {
	what    happening
	fetches kgo.Fetches
	err     error // of a commit, or what hangs
}

type happening int

const (
	fetched happening = iota
	committed
	ticked
	idle // there is nothing else, and a look was wanted
	hung
	stopped
)

// serve runs the partition until ctx ends, which returns nil, or until
// anything goes wrong, which ends the lane: it comes back only by a takeover.
func (l *lane) serve(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()

	b := &goroutines{
		ctx: ctx, inputs: make(chan kgo.Fetches), hung: make(chan error),
		batches: make(chan *batch), committed: make(chan error, 1),
		tick: time.NewTicker(l.cfg.SuperviseEvery),
	}
	defer b.tick.Stop()
	defer close(b.batches)
	running.Go(func() {
		for ctx.Err() == nil {
			fetches := l.inputs.poll(ctx, pollRecords)
			select {
			case b.inputs <- fetches:
			case <-ctx.Done():
			}
		}
	})
	running.Go(func() {
		if err := l.watch(ctx); err != nil {
			select {
			case b.hung <- err:
			case <-ctx.Done():
			}
		}
	})
	running.Go(func() {
		for batch := range b.batches {
			b.committed <- l.commit(ctx, batch)
		}
	})
	return l.run(ctx, b)
}

// goroutines are beside a lane on Kafka.
type goroutines struct {
	ctx       context.Context //nolint:containedctx // it ends with serve, as they do
	inputs    chan kgo.Fetches
	batches   chan *batch
	committed chan error
	hung      chan error
	tick      *time.Ticker
}

var always = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func (g *goroutines) commit(b *batch) { g.batches <- b }

func (g *goroutines) next(w wanted) happened {
	inputs, look, stopping := g.inputs, always, g.ctx.Done()
	if !w.inputs {
		inputs = nil
	}
	if !w.look {
		look = nil
	}
	if !w.stop {
		stopping = nil
	}
	select {
	case fetches := <-inputs:
		return happened{what: fetched, fetches: fetches}
	case err := <-g.committed:
		return happened{what: committed, err: err}
	case <-g.tick.C:
		return happened{what: ticked}
	case <-look:
		return happened{what: idle}
	case err := <-g.hung:
		return happened{what: hung, err: err}
	case <-stopping:
		return happened{what: stopped}
	}
}

// run is the lane's own loop: it decides on what happens, one thing after the
// other, until it is told to stop or anything goes wrong.
func (l *lane) run(ctx context.Context, b beside) error {
	for {
		if ctx.Err() == nil && l.begin() {
			b.commit(l.inflight)
			// Inputs could fill every batch: what has expired goes first.
			if l.look {
				if err := l.supervise(ctx); err != nil {
					return err
				}
			}
		}
		room := !l.current.full()
		// Told to stop, it first hears how the commit ended.
		h := b.next(wanted{inputs: room, look: l.look && room, stop: l.inflight == nil})
		var err error
		switch h.what {
		case fetched:
			if failed := h.fetches.Errors(); len(failed) > 0 && ctx.Err() == nil {
				return l.unreadable(failed[0])
			}
			err = l.decide(ctx, h.fetches.Records())
		case committed:
			err = l.conclude(h.err)
		case ticked:
			l.look = true
		case idle:
			err = l.supervise(ctx)
		case hung:
			err = h.err
		case stopped:
			return l.state.Flush()
		}
		if err != nil {
			return err
		}
	}
}
