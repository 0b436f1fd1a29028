package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/projections"
)

// membership is which partitions the group gave to this instance. It keeps a lane
// on each of them, and has the others followed.
type membership struct {
	follower   *lane.Follower
	partitions int32 // of the namespace
	log        *slog.Logger
	now        func() time.Time // for what lasts
	// newLane makes a lane for a partition.
	newLane func(p int32, state *projections.Partition) owner
	// alarm calls an operator to a partition that is stopped, and heard is called once Kafka
	// has the alert, maybe later.
	alarm func(ctx context.Context, p int32, why error, heard func())
	// fail ends the instance: its state store is damaged.
	fail func(error)
	// Simulations put others in the place of these two: spawn has a partition kept
	// beside all else, and pause waits until its lane may try again.
	spawn func(p int32, keep func())
	pause func(ctx context.Context, p int32, d time.Duration) bool

	mu     sync.Mutex
	owned  map[int32]*ownership
	joined bool
	// lost are inputs of partitions that were lost, until somebody goes on behind them.
	lost map[int32][]*lane.LostError
	// wasAhead is how far the clock was ahead of Kafka's, as far as a lane knew that has
	// ended since.
	wasAhead time.Duration

	closing sync.WaitGroup // lanes that gave their clients up, and alarms
}

// owner is a lane, as it is kept.
type owner interface {
	TakeOver(ctx context.Context) error
	SkipLost(ctx context.Context, by lane.Author, why string, lost ...*lane.LostError) error
	Rebuild(ctx context.Context) error
	Serve(ctx context.Context) error
	Leave()
	Close()
	Position() events.Positions
	OrdersRead() int64
	Unwell() error
	Clock() (ahead time.Duration, known bool)
	Agents() map[string]lane.Agent
	Callers() map[string]lane.Caller
	Overdue() time.Time
	Blocked() time.Time
	Before(order, step string) (n int, found bool)
	Narrows(h *lane.Halves)
}

// ownership is a partition that the group gave.
type ownership struct {
	stop   context.CancelFunc
	done   chan struct{}
	lane   owner // nil while there is none that serves
	failed error // why the last lane ended
	// stopped says that only an operator can repair that, and that orders are told as they stood.
	stopped bool

	// failures is how many lanes ended since one got anywhere. The one that serves
	// does so since some time, and had read the inputs up to began then.
	failures int
	since    time.Time
	began    events.Positions
	// skip is what an operator wants of the next lane, and wake has it begin.
	skip *skip
	wake context.CancelFunc
}

// skip is an operator's act: to go on behind inputs that were lost.
type skip struct {
	by   lane.Author
	why  string
	done chan error // with room for one
}

func newMembership(follower *lane.Follower, partitions int32, log *slog.Logger) *membership {
	return &membership{
		follower: follower, partitions: partitions, log: log, now: time.Now, owned: make(map[int32]*ownership), lost: make(map[int32][]*lane.LostError),
		spawn: func(_ int32, keep func()) { go keep() },
		pause: func(ctx context.Context, _ int32, d time.Duration) bool { return pause(ctx, d) },
	}
}

// assigned has each partition kept that the group gave, until it is revoked or
// ctx ends. Those that somebody added to the topic are nobody's.
func (m *membership) assigned(ctx context.Context, given []int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.joined = true
	if len(given) > 0 {
		m.log.Info("the group gave partitions", "partitions", given)
	}
	for _, p := range given {
		if p >= m.partitions {
			m.log.Warn("the group gave a partition that was added; no orders belong there", "partition", p, "partitions", m.partitions)
			continue
		}
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
	// stoppedPause is the first one of a partition that only an operator can repair: each
	// try leaves a claim in the journal. So long one may become, and so often the operator
	// is called again.
	stoppedPause, longestStop = time.Minute, time.Hour
	// stuckAfter is how many lanes may end one after the other without having got
	// anywhere before an operator is called. It takes some 20 s at least: most
	// outages are shorter.
	stuckAfter = 10
	// settled is how long a lane serves that has got somewhere though there was
	// nothing to commit. What it tries to commit has failed before.
	settled = lane.CommitTimeout + 10*time.Second
)

// errStuck says that a partition's lanes end one after the other.
var errStuck = errors.New("its lanes end without having got anywhere, and it is tried on")

// keep keeps a lane on the partition until ctx ends. A lane that ended for
// whatever reason comes back only through a whole takeover. It got somewhere if it
// committed something: that it could take over says little, and leaves a claim in the
// journal for ever. If what came next was not taken in time, a small batch before that
// says little, too. Where inputs were lost none comes back before an operator says so: it
// would find nothing wrong once as much was written as was lost, and pass over all of it.
func (m *membership) keep(ctx context.Context, p int32, o *ownership, state *projections.Partition) {
	log := m.log.With("partition", p)
	rebuilt, halves, stopped := false, new(lane.Halves), stop{}
	stuck := new(atomic.Bool) // the operator has heard of it, since a lane got anywhere
	for wait := shortPause; ; {
		l, somewhere := m.newLane(p, state), false
		l.Narrows(halves)
		err := l.TakeOver(ctx)
		if err == nil {
			err = m.skipLost(ctx, p, o, l, state.Head().Transaction)
		}
		if err == nil {
			before, proofs := state.Head().Transaction, halves.Proofs
			m.serve(o, l)
			err = l.Serve(ctx)
			somewhere = state.Head().Transaction-before > halves.Proofs-proofs && !errors.Is(err, lane.ErrLate) || m.now().Sub(o.since) >= settled
			if m.now().Sub(o.since) >= settled {
				stopped = stop{}
			}
		}
		if ctx.Err() != nil {
			m.ended(o, nil, somewhere)
			l.Leave()
			m.closing.Go(l.Close) // nothing is on its way: the next owner need not wait for it
			return
		}
		l.Close()
		if somewhere {
			wait, rebuilt, stuck = shortPause, false, new(atomic.Bool)
		}
		err = m.loses(p, err)
		m.ended(o, err, somewhere)
		anew := !rebuilt && (errors.Is(err, projections.ErrGap) || errors.Is(err, projections.ErrPartitions))
		if anew { // it may be the store that is wrong, and not the journal
			switch again := l.Rebuild(ctx); {
			case again == nil:
				log.Error("the journal does not continue the state store; folding it again from its beginning", "error", err)
				rebuilt = true
			case errors.Is(again, lane.ErrBeginning):
				anew, err = false, fmt.Errorf("%w; %w", err, again)
			default:
				anew, err = false, fmt.Errorf("%v; %w", err, again) // so it is tried again
			}
			m.fails(o, err)
		}
		switch {
		case errors.Is(err, projections.ErrDamaged):
			m.fail(err)
			return
		case anew:
		case errors.Is(err, projections.ErrGap), errors.Is(err, projections.ErrPartitions), errors.Is(err, projections.ErrNewer),
			errors.Is(err, lane.ErrInputLost), errors.Is(err, lane.ErrUnreadable), errors.Is(err, lane.ErrBeginning):
			log.Error("the partition is stopped until an operator repairs it", "error", err)
			// What was undone is not told.
			m.stops(o, !errors.Is(err, lane.ErrNotFolded))
			err = errors.Join(err, state.Flush()) // until then the orders are told as they stood
			var heard func()
			if wait, heard = stopped.again(err.Error(), m.now()); heard != nil {
				m.alarm(ctx, p, err, heard)
			}
		case errors.Is(err, lane.ErrRaised):
			log.Info("the partition was raised to another format; taking it over in that")
		default:
			log.Warn("the lane ended; taking the partition over again", "failures", o.failures, "error", err)
			err = errors.Join(err, state.Flush()) // what it kept from the store
			if o.failures > 0 && o.failures%stuckAfter == 0 && !stuck.Load() {
				heard := stuck
				m.alarm(ctx, p, fmt.Errorf("%w: %d so far; the last: %w", errStuck, o.failures, err), func() { heard.Store(true) })
			}
		}
		state.Forget()
		if errors.Is(err, projections.ErrDamaged) {
			m.fail(err)
			return
		}
		rest, wake := context.WithCancel(ctx)
		m.rests(o, wake)
		for m.pause(rest, p, wait) {
			lost := m.stays(p)
			if lost == nil {
				break
			}
			var heard func()
			if wait, heard = stopped.again(lost.Error(), m.now()); heard != nil {
				m.alarm(ctx, p, lost, heard)
			}
		}
		wake()
		wait = min(2*wait, longPause)
	}
}

// stop is that of a partition that only an operator can repair.
type stop struct {
	pause time.Duration // before it was tried last
	told  string        // the reason for which the operator was called, and when
	at    time.Time
	heard *atomic.Bool // that call
}

// again says how long to wait before another try, and what to do once the operator has heard of it, nil if he is not called.
func (s *stop) again(why string, now time.Time) (wait time.Duration, heard func()) {
	if why != s.told || now.Sub(s.at) >= longestStop || !s.heard.Load() {
		is := new(atomic.Bool)
		s.told, s.at, s.heard = why, now, is
		heard = func() { is.Store(true) }
	}
	s.pause = min(max(2*s.pause, stoppedPause), longestStop)
	return s.pause, heard
}

// serve notes that a lane serves.
func (m *membership) serve(o *ownership, l owner) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o.lane, o.since, o.began, o.stopped = l, m.now(), l.Position(), false
}

// stops notes that only an operator can repair the partition, and whether its orders are
// told as they stood.
func (m *membership) stops(o *ownership, told bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o.stopped = told
}

// ended notes why the lane ended, nil if it was told to, and whether it got somewhere.
func (m *membership) ended(o *ownership, err error, somewhere bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o.lane != nil {
		if ahead, known := o.lane.Clock(); known {
			m.wasAhead = max(0, ahead)
		}
	}
	o.lane, o.failed = nil, err
	if o.failures++; somewhere {
		o.failures = 0
	}
}

// fails notes why the partition is not served.
func (m *membership) fails(o *ownership, why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o.failed = why
}

// loses notes which inputs were lost, if that is why a lane ended, and returns why its
// partition is not served: as long as nobody has gone on behind them, that they are lost.
func (m *membership) loses(p int32, err error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch lost, ok := errors.AsType[*lane.LostError](err); {
	case ok && !slices.Contains(m.lost[p], lost):
		m.lost[p] = append(m.lost[p], lost)
	case !ok && err != nil && len(m.lost[p]) > 0:
		err = fmt.Errorf("%w; the last try to go on behind them: %w", m.lost[p][0], err)
	}
	return err
}

// stays says why a partition is not tried again by itself, nil if it is.
func (m *membership) stays(p int32) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.lost[p]) == 0 {
		return nil
	}
	return m.lost[p][0]
}

// rests notes what wakes a partition that rests; if an operator wants something, it
// is now.
func (m *membership) rests(o *ownership, wake context.CancelFunc) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o.wake = wake; o.skip != nil {
		wake()
	}
}

// skipLost has a lane that took over do what an operator wants. Sealed is the partition's
// last transaction. Where inputs were lost, and nobody went on behind them or wants that
// now, it fails with that.
func (m *membership) skipLost(ctx context.Context, p int32, o *ownership, l owner, sealed uint64) error {
	m.mu.Lock()
	s, lost := o.skip, m.lost[p]
	o.skip = nil
	if len(lost) > 0 && lost[len(lost)-1].Sealed < sealed { // another owner did
		delete(m.lost, p)
		lost = nil
	}
	m.mu.Unlock()
	switch {
	case s == nil && len(lost) > 0:
		return lost[0]
	case s == nil:
		return nil
	}
	err := l.SkipLost(ctx, s.by, s.why, lost...)
	if s.done <- err; err != nil && !errors.Is(err, lane.ErrNothingLost) {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	o.failed = nil
	delete(m.lost, p)
	return nil
}

// skips has the next lane of a partition that is stopped go on behind inputs that
// were lost, and returns the outcome.
func (m *membership) skips(ctx context.Context, p int32, by lane.Author, why string) error {
	s := &skip{by, why, make(chan error, 1)}
	m.mu.Lock()
	o := m.owned[p]
	stopped := o != nil && len(m.lost[p]) > 0
	if stopped {
		o.skip = s
		if o.wake != nil {
			o.wake()
		}
	}
	m.mu.Unlock()
	if !stopped {
		return fmt.Errorf("%w: partition %d is not stopped for that here", lane.ErrNothingLost, p)
	}
	select {
	case err := <-s.done:
		return err
	case <-o.done:
		return fmt.Errorf("%w %d, which was given up here meanwhile; ask its next owner", ErrNotOwner, p)
	case <-ctx.Done():
		m.mu.Lock()
		defer m.mu.Unlock()
		if o.skip == s { // nobody did it, and nobody will
			o.skip = nil
		}
		return fmt.Errorf("what became of it is not known; if it was done, the partition is served: %w", ctx.Err())
	}
}

// all lists the partitions that the group gave.
func (m *membership) all() []int32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.owned))
}

// others says that the group gave partitions, and p is not among them.
func (m *membership) others(p int32) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.joined && m.owned[p] == nil
}

// serves says whether a lane serves partition p here.
func (m *membership) serves(p int32) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.owned[p]
	return o != nil && o.lane != nil
}

// clock is what the lane of a partition knows of its clock, if one serves here.
func (m *membership) clock(p int32) (ahead time.Duration, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o := m.owned[p]; o != nil && o.lane != nil {
		return o.lane.Clock()
	}
	return 0, false
}

// ahead is how far the clock is ahead of Kafka's, as a lane that serves knows, or one did that
// has ended; 0 if that is not far, or nobody knows.
func (m *membership) ahead() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range m.owned {
		if o.lane == nil {
			continue
		}
		if ahead, known := o.lane.Clock(); known {
			return max(0, ahead)
		}
	}
	return m.wasAhead
}

// stopped says whether partition p is the instance's, and only an operator can repair it.
func (m *membership) stopped(p int32) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.owned[p]
	return o != nil && o.stopped
}

// failed is why no lane serves partition p, which is the instance's; nil if one does, or
// none has tried.
func (m *membership) failed(p int32) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o := m.owned[p]; o != nil && o.lane == nil {
		return o.failed
	}
	return nil
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

// ordersRead is up to where the lane of a partition has read its orders, 0 if none serves
// here.
func (m *membership) ordersRead(p int32) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o := m.owned[p]; o != nil && o.lane != nil {
		return o.lane.OrdersRead()
	}
	return 0
}

// lanes are those that serve, by partition.
func (m *membership) lanes() map[int32]owner {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make(map[int32]owner)
	for p, o := range m.owned {
		if o.lane != nil {
			all[p] = o.lane
		}
	}
	return all
}

// mostMissing is of how many partitions ready says what is missing.
const mostMissing = 10

// ready returns nil once the group gave partitions, or none, and each of them is
// served; else what is missing, of [mostMissing] partitions, first of those that are stopped. One whose lanes failed again and again is served
// once another has got somewhere.
func (m *membership) ready() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.joined {
		return errors.New("the group has not assigned partitions yet")
	}
	var all, taken []error
	for _, p := range slices.Sorted(maps.Keys(m.owned)) {
		o := m.owned[p]
		if o.lane == nil {
			if o.failed != nil {
				all = append(all, fmt.Errorf("partition %d is not served: %w", p, o.failed))
			} else {
				taken = append(taken, fmt.Errorf("partition %d is being taken over", p))
			}
			continue
		}
		if o.failures >= stuckAfter && m.now().Sub(o.since) < settled && o.lane.Position() == o.began {
			all = append(all, fmt.Errorf("partition %d is served again, after %d lanes that failed: %w", p, o.failures, o.failed))
		} else if err := o.lane.Unwell(); err != nil {
			all = append(all, fmt.Errorf("partition %d: %w", p, err))
		}
	}
	if all = append(all, taken...); len(all) == 0 {
		return nil
	}
	missing := all[0]
	for _, err := range all[1:min(len(all), mostMissing)] {
		missing = fmt.Errorf("%w; %w", missing, err)
	}
	if more := len(all) - mostMissing; more > 0 {
		missing = fmt.Errorf("%w; and %d more partitions", missing, more)
	}
	return missing
}
