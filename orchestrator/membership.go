package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/projections"
)

// membership is which partitions the group gave to this instance. It keeps a lane
// on each of them, and has the others followed.
type membership struct {
	follower *lane.Follower
	log      *slog.Logger
	// newLane makes a lane for a partition.
	newLane func(p int32, state *projections.Partition) owner
	// alarm calls an operator to a partition that is stopped.
	alarm func(ctx context.Context, p int32, why error)
	// fail ends the instance: its state store is damaged.
	fail func(error)
	// Simulations put others in the place of these two: spawn has a partition kept
	// beside all else, and pause waits until its lane may try again.
	spawn func(p int32, keep func())
	pause func(ctx context.Context, p int32, d time.Duration) bool

	mu     sync.Mutex
	owned  map[int32]*ownership
	joined bool

	closing sync.WaitGroup // lanes that gave their clients up
}

// owner is a lane, as it is kept.
type owner interface {
	TakeOver(ctx context.Context) error
	Serve(ctx context.Context) error
	Close()
	Position() events.Positions
	Unwell() error
}

// ownership is a partition that the group gave.
type ownership struct {
	stop   context.CancelFunc
	done   chan struct{}
	lane   owner // nil while there is none that serves
	failed error // why the last lane ended
}

func newMembership(follower *lane.Follower, log *slog.Logger) *membership {
	return &membership{
		follower: follower, log: log, owned: make(map[int32]*ownership),
		spawn: func(_ int32, keep func()) { go keep() },
		pause: func(ctx context.Context, _ int32, d time.Duration) bool { return pause(ctx, d) },
	}
}

// assigned has each partition kept that the group gave, until it is revoked or
// ctx ends.
func (m *membership) assigned(ctx context.Context, given []int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.joined = true
	if len(given) > 0 {
		m.log.Info("the group gave partitions", "partitions", given)
	}
	for _, p := range given {
		owned, stop := context.WithCancel(ctx)
		o := &ownership{stop: stop, done: make(chan struct{})}
		m.owned[p] = o
		m.spawn(p, func() {
			defer close(o.done)
			state := m.follower.Release(p)
			m.keep(owned, p, o, state)
			if ctx.Err() == nil {
				m.follower.Follow(state, p)
			}
		})
	}
}

// revoked stops the lanes of partitions that are not ours any more, and waits
// until what they were committing is decided.
func (m *membership) revoked(taken []int32) {
	if len(taken) > 0 {
		m.log.Info("partitions are given up", "partitions", taken)
	}
	for p, o := range m.stop(taken) {
		<-o.done
		m.forget(p)
	}
}

func (m *membership) stop(taken []int32) map[int32]*ownership {
	m.mu.Lock()
	defer m.mu.Unlock()
	stopped := make(map[int32]*ownership)
	for _, p := range taken {
		if o := m.owned[p]; o != nil {
			o.stop()
			stopped[p] = o
		}
	}
	return stopped
}

func (m *membership) forget(p int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.owned, p)
}

const (
	// A lane that ended is followed by the next one after a pause, longer from time
	// to time.
	shortPause, longPause = 50 * time.Millisecond, 5 * time.Second
	// stoppedPause is the one of a partition that only an operator can repair.
	stoppedPause = time.Minute
)

// keep keeps a lane on the partition until ctx ends. A lane that ended for
// whatever reason comes back only through a whole takeover.
func (m *membership) keep(ctx context.Context, p int32, o *ownership, state *projections.Partition) {
	log := m.log.With("partition", p)
	rebuilt := false
	for wait := shortPause; ; {
		l := m.newLane(p, state)
		err := l.TakeOver(ctx)
		if err == nil {
			wait = shortPause
			m.note(o, l, nil)
			err = l.Serve(ctx)
		}
		if ctx.Err() != nil {
			m.note(o, nil, nil)
			m.closing.Go(l.Close) // nothing is on its way: the next owner need not wait for it
			return
		}
		l.Close()
		m.note(o, nil, err)
		switch {
		case errors.Is(err, projections.ErrDamaged):
			m.fail(err)
			return
		case errors.Is(err, projections.ErrGap) && !rebuilt:
			// It may be the store that is wrong, and not the journal.
			log.Error("the journal does not continue the state store; folding it again from its beginning", "error", err)
			rebuilt = true
			err = state.Reset()
		case errors.Is(err, projections.ErrGap), errors.Is(err, projections.ErrNewer), errors.Is(err, lane.ErrInputLost):
			log.Error("the partition is stopped until an operator repairs it", "error", err)
			m.alarm(ctx, p, err)
			wait = stoppedPause
		default:
			log.Warn("the lane ended; taking the partition over again", "error", err)
		}
		state.Forget()
		if errors.Is(err, projections.ErrDamaged) {
			m.fail(err)
			return
		}
		m.pause(ctx, p, wait)
		wait = min(2*wait, longPause)
	}
}

func (m *membership) note(o *ownership, l owner, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o.lane, o.failed = l, err
}

// all lists the partitions that the group gave.
func (m *membership) all() []int32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.owned))
}

// serves says whether a lane serves partition p here.
func (m *membership) serves(p int32) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.owned[p]
	return o != nil && o.lane != nil
}

// positions are those of the lanes that serve, by partition.
func (m *membership) positions() map[int32]events.Positions {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := make(map[int32]events.Positions)
	for p, o := range m.owned {
		if o.lane != nil {
			at[p] = o.lane.Position()
		}
	}
	return at
}

// ready returns nil once the group gave partitions, or none, and each of them is
// served; else what is missing.
func (m *membership) ready() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.joined {
		return errors.New("the group has not assigned partitions yet")
	}
	for p, o := range m.owned {
		if o.lane == nil {
			if o.failed != nil {
				return fmt.Errorf("partition %d is not served: %w", p, o.failed)
			}
			return fmt.Errorf("partition %d is being taken over", p)
		}
		if err := o.lane.Unwell(); err != nil {
			return fmt.Errorf("partition %d: %w", p, err)
		}
	}
	return nil
}
