package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/projections"
)

// kept is what becomes of a partition that the group gave, told in words.
type kept struct {
	*membership
	store  *projections.Store
	state  *projections.Partition
	time   time.Time
	said   []string
	served error // whether it was ready when a lane served last
	halves []*lane.Halves
	deaf   bool  // nobody hears the next alarm
	lanes  []end // how each lane ends, one after the other; then the partition is taken away
}

// end is how a lane ends.
type end struct {
	takeover, serving error
	skipping          error         // what was lost
	rebuilding        error         // why its state is not thrown away
	commits, proves   bool          // before it ends; with the other, only that it can
	deafens           bool          // nobody hears the next alarm
	lasts             time.Duration // how long it serves
}

// keeps keeps a partition until its lanes have ended in these ways.
func keeps(t *testing.T, lanes ...end) *kept {
	t.Helper()
	return keepsWith(t, func(*kept) {}, lanes...)
}

func keepsWith(t *testing.T, change func(*kept), lanes ...end) *kept {
	t.Helper()
	store, err := projections.Temporary()
	must(t, err)
	t.Cleanup(func() { must(t, store.Close()) })
	state, err := store.Partition(3)
	must(t, err)
	log := slog.New(slog.DiscardHandler)
	k := &kept{lanes: lanes, store: store, state: state}
	k.membership = newMembership(lane.NewFollower(nothing{k}, nil, false, log, time.Now), 4, log)
	k.spawn = func(_ int32, keep func()) { keep() }
	k.now = func() time.Time { return k.time }
	k.newLane = func(int32, *projections.Partition) owner {
		if len(k.lanes) == 0 {
			k.stop([]int32{3})
			return ends{k, end{}}
		}
		next := k.lanes[0]
		k.lanes = k.lanes[1:]
		return ends{k, next}
	}
	k.pause = func(_ context.Context, p int32, d time.Duration) bool {
		k.say("wait %v: %v", d, k.ready())
		k.time = k.time.Add(d)
		if d == longestStop && k.stays(p) != nil { // for ever, so that it is taken away
			k.stop([]int32{p})
			return false
		}
		return true
	}
	k.alarm = func(_ context.Context, p int32, why error, heard func()) {
		switch {
		case k.deaf:
			k.say("unheard")
			k.deaf = false
			return
		case !errors.Is(why, errStuck):
			k.say("alarm")
		default:
			k.say("stuck")
		}
		heard()
	}
	k.fail = func(err error) { k.say("fail: %v", err) }
	change(k)
	k.follower.Follow(state, 3)
	k.said = nil
	k.given(t)
	return k
}

// given has the group give the partition, and keeps it until it is taken away.
func (k *kept) given(t *testing.T) {
	t.Helper()
	// The group gives it within the lock that stop wants.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o := &ownership{stop: cancel, done: make(chan struct{})}
	k.joined, k.owned[3] = true, o
	k.keep(ctx, 3, o, k.state)
	k.closing.Wait()
}

func (k *kept) say(format string, args ...any) { k.said = append(k.said, fmt.Sprintf(format, args...)) }

// ends is a lane that ends as it should.
type ends struct {
	*kept
	end
}

func (e ends) TakeOver(context.Context) error {
	e.deaf = e.deaf || e.deafens
	return e.takeover
}

func (e ends) Rebuild(context.Context) error {
	if e.rebuilding != nil {
		return e.rebuilding
	}
	return e.state.Reset()
}

func (e ends) SkipLost(_ context.Context, by lane.Author, why string, lost ...*lane.LostError) error {
	e.say("skip: %s, %s, %d lost", by.By, why, len(lost))
	return e.skipping
}

func (e ends) Serve(context.Context) error {
	e.say("served: %t", e.serves(3))
	e.served = e.ready()
	e.time = e.time.Add(e.lasts)
	if head := e.state.Head(); e.commits {
		if h := e.halves[len(e.halves)-1]; e.proves {
			h.Proofs++
		}
		if err := e.state.Commit(events.Seal{Transaction: head.Transaction + 1, Events: 1}, head.Offset+1, nil); err != nil {
			return err
		}
	}
	return e.serving
}
func (ends) Leave()                       {}
func (e ends) Close()                     { e.say("closed") }
func (e ends) Narrows(h *lane.Halves)     { e.halves = append(e.halves, h) }
func (e ends) Position() events.Positions { return events.Positions{} }
func (e ends) OrdersRead() int64          { return 0 }

// nothing are journals without records.
type nothing struct{ *kept }

func (n nothing) Read(int32, int64)              { n.say("followed") }
func (nothing) Drop(int32)                       {}
func (nothing) Poll(context.Context) kgo.Fetches { return nil }
func (nothing) Close()                           {}
func (nothing) Leave()                           {}

// A lane that ended is followed by another after a pause, which is longer each time,
// also when it could take over, and short again once one has committed something (but
// not only to show that it can), or had nothing to commit for a while (S6).
func TestLanesFollowEachOther(t *testing.T) {
	away := errors.New("Kafka is away")
	fails := func(n int) []end { return slices.Repeat([]end{{takeover: away}}, n) }
	k := keeps(t, slices.Concat(fails(6), []end{{serving: away}, {serving: away, lasts: settled - 1}, {serving: away, commits: true}}, fails(1), []end{{serving: away, commits: true, proves: true}, {serving: away, lasts: settled}}, fails(1))...)
	var waits []string
	for _, line := range k.said {
		if wait, ok := strings.CutPrefix(line, "wait "); ok {
			d, why, _ := strings.Cut(wait, ": ")
			if why != "partition 3 is not served: Kafka is away" {
				t.Errorf("while it waits it says %q", why)
			}
			waits = append(waits, d)
		}
	}
	want := "50ms 100ms 200ms 400ms 800ms 1.6s 3.2s 5s 50ms 100ms 200ms 50ms 100ms"
	if got := strings.Join(waits, " "); got != want {
		t.Errorf("it waits %s, and must %s", got, want)
	}
	if len(slices.Compact(k.halves)) != 1 {
		t.Error("a lane does not know what the one before found out")
	}
	if n := strings.Count(strings.Join(k.said, "\n"), "closed"); n != 14 {
		t.Errorf("of 14 lanes %d were closed:\n%s", n, strings.Join(k.said, "\n"))
	}
}

// What becomes of a partition depends on why its lane ended.
func TestWhyALaneEnded(t *testing.T) {
	gap, newer, lost, damaged := projections.ErrGap, projections.ErrNewer, &lane.LostError{}, projections.ErrDamaged
	number, undone := projections.ErrPartitions, fmt.Errorf("%w: %w", lane.ErrNotFolded, lane.ErrBeginning)
	for _, c := range []struct {
		name  string
		lanes []end
		want  string
	}{
		{"it was told to", nil, "served: true, closed"},
		{"a gap, at first: the store is folded anew", []end{{takeover: gap}}, "closed, wait 50ms, served: true, closed"},
		{"a gap, again: an operator is called", []end{{takeover: gap}, {serving: gap}}, "closed, wait 50ms, served: true, closed, alarm, wait 1m0s, served: true, closed"},
		{"a gap, again, after it had got somewhere", []end{{takeover: gap}, {serving: gap, commits: true}}, "closed, wait 50ms, served: true, closed, wait 50ms, served: true, closed"},
		{"another number of partitions, at first", []end{{takeover: number}}, "closed, wait 50ms, served: true, closed"},
		{"another number of partitions, again", []end{{takeover: number}, {takeover: number}}, "closed, wait 50ms, closed, alarm, wait 1m0s, served: true, closed"},
		{
			"a gap in a journal without its beginning: the store is kept", slices.Repeat([]end{{takeover: gap, rebuilding: lane.ErrBeginning}}, 2),
			"closed, alarm, wait 1m0s, closed, wait 2m0s, served: true, closed",
		},
		{
			"a gap, and Kafka does not say whether the journal has its beginning",
			[]end{{takeover: gap, rebuilding: errors.New("away")}, {takeover: gap}, {takeover: gap}},
			"closed, wait 50ms, closed, wait 100ms, closed, alarm, wait 1m0s, served: true, closed",
		},
		{"what was folded was undone, and the journal has no beginning", []end{{takeover: undone}}, "closed, alarm, wait 1m0s, served: true, closed"},
		{"a newer journal", []end{{takeover: newer}}, "closed, alarm, wait 1m0s, served: true, closed"},
		{
			"a newer journal, of which nobody hears at first",
			[]end{{takeover: newer, deafens: true}, {takeover: newer}, {takeover: newer}},
			"closed, unheard, wait 1m0s, closed, alarm, wait 2m0s, closed, wait 4m0s, served: true, closed",
		},
		{
			"lost inputs: not tried, and told each hour",
			[]end{{serving: lost}},
			"served: true, closed, alarm, wait 1m0s, wait 2m0s, wait 4m0s, wait 8m0s, wait 16m0s, wait 32m0s, alarm, wait 1h0m0s, closed",
		},
		{"after an alarm it waits as before", []end{{takeover: newer}, {takeover: errors.New("away")}}, "closed, alarm, wait 1m0s, closed, wait 5s, served: true, closed"},
		{
			"for long: rarely tried, and told each hour", slices.Repeat([]end{{takeover: newer}}, 9),
			"closed, alarm, wait 1m0s, closed, wait 2m0s, closed, wait 4m0s, closed, wait 8m0s, closed, wait 16m0s, closed, wait 32m0s, closed, alarm, wait 1h0m0s, closed, alarm, wait 1h0m0s, closed, alarm, wait 1h0m0s, served: true, closed",
		},
		{"for another reason", []end{{takeover: newer}, {serving: lane.ErrUnreadable}}, "closed, alarm, wait 1m0s, served: true, closed, alarm, wait 2m0s, served: true, closed"},
		{"again, after it served", []end{{takeover: newer}, {serving: newer, lasts: settled}}, "closed, alarm, wait 1m0s, served: true, closed, alarm, wait 1m0s, served: true, closed"},
		{"a damaged store", []end{{takeover: damaged}, {}}, "closed, fail: " + damaged.Error()},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := keeps(t, c.lanes...)
			for i, line := range k.said {
				if wait, _, ok := strings.Cut(line, ": "); ok && strings.HasPrefix(wait, "wait") {
					k.said[i] = wait
				}
			}
			if got := strings.Join(k.said, ", "); got != c.want {
				t.Errorf("what came of it:\n%s\nand must:\n%s", got, c.want)
			}
		})
	}
}

// Orders of a partition that is stopped are told as they stood, unless what was folded last
// was undone. Why it is stopped is told.
func TestWhatIsToldWhereAPartitionIsStopped(t *testing.T) {
	for why, told := range map[error]bool{lane.ErrBeginning: true, lane.ErrNotFolded: false} {
		keepsWith(t, func(k *kept) {
			k.pause = func(context.Context, int32, time.Duration) bool {
				if err := k.ready(); k.stopped(3) != told || !errors.Is(err, lane.ErrBeginning) {
					t.Errorf("%v: orders are told: %t; %v", why, k.stopped(3), err)
				}
				return true
			}
		}, end{takeover: fmt.Errorf("%w: %w", why, lane.ErrBeginning)})
	}
}

// What a lane committed, and kept from the store, is there when it has ended, and orders are told as they stood.
func TestLanesWriteWhatTheyKept(t *testing.T) {
	for _, why := range []error{errors.New("Kafka is away"), lane.ErrUnreadable} {
		var written []int64
		keepsWith(t, func(k *kept) {
			k.pause = func(context.Context, int32, time.Duration) bool {
				stored, err := k.store.Partition(3)
				must(t, err)
				written = append(written, stored.Head().Offset)
				return true
			}
		}, end{serving: why, commits: true})
		if !slices.Equal(written, []int64{1}) {
			t.Errorf("%v: it is written up to %v", why, written)
		}
	}
}

// A partition whose lanes end again and again without getting anywhere calls an
// operator, and does not count as served before one of them got somewhere.
func TestLanesThatGetNowhere(t *testing.T) {
	away := errors.New("Kafka is away")
	fails := func(n int) []end { return slices.Repeat([]end{{serving: away, lasts: time.Second}}, n) }
	for _, c := range []struct {
		name  string
		lanes []end
		want  string // what was said, and the rest of the lanes serve
	}{
		{"not often", fails(stuckAfter - 1), ""},
		{"often", fails(stuckAfter), "stuck"},
		{"still", fails(5 * stuckAfter), "stuck"},
		{"again", slices.Concat(fails(stuckAfter), []end{{serving: away, commits: true}}, fails(2*stuckAfter)), "stuck, stuck"},
		{"and nobody hears it at first", slices.Concat([]end{{serving: away, commits: true, deafens: true}}, fails(5*stuckAfter)), "unheard, stuck"},
		{"what comes second is not taken in time", slices.Repeat([]end{{serving: &lane.LateError{}, commits: true, lasts: time.Second}}, stuckAfter), "stuck"},
		{"but for one", slices.Concat(fails(stuckAfter-1), []end{{serving: away, commits: true}}, fails(stuckAfter-1)), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := keeps(t, c.lanes...)
			said := slices.DeleteFunc(k.said, func(line string) bool { return line != "stuck" && line != "unheard" && line != "alarm" })
			if got := strings.Join(said, ", "); got != c.want {
				t.Errorf("it said %q, and must say %q", got, c.want)
			}
		})
	}
}

// All lanes of an instance hear of each other's agents, and deliver to callers' own topics
// within one bound: an agent that answers any of them is there, and busy.
func TestLanesHearOfEachOthersAgents(t *testing.T) {
	i := new(Instance)
	one, other := i.laneConfig(), i.laneConfig()
	if one.Signs == nil || one.Signs != other.Signs {
		t.Error("each lane has signs of its own")
	}
	if one.Deliveries == nil || one.Deliveries != other.Deliveries {
		t.Error("each lane delivers within a bound of its own")
	}
	if one.Turns == nil || one.Turns != other.Turns {
		t.Error("each lane commits in turns of its own")
	}
}

func TestReadyAfterLanesThatGotNowhere(t *testing.T) {
	for _, c := range []struct {
		name     string
		failures int
		later    time.Duration
		moved    bool
		ready    bool
	}{
		{"it serves", stuckAfter - 1, 0, false, true},
		{"it failed often", stuckAfter, 0, false, false},
		{"it failed often, and serves for a while", stuckAfter, settled - 1, false, false},
		{"it failed often, and serves for long", stuckAfter, settled, false, true},
		{"it failed often, and got somewhere", stuckAfter, 0, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMembership(nil, 1, slog.New(slog.DiscardHandler))
			began := time.Now()
			o, l := &ownership{}, &moves{}
			m.joined, m.owned[0] = true, o
			for range c.failures {
				m.ended(o, errors.New("Kafka is away"), false)
			}
			m.now = func() time.Time { return began }
			m.serve(o, l)
			m.now = func() time.Time { return began.Add(c.later) }
			if c.moved {
				l.at.Set(events.InputOrders, 1)
			}
			if err := m.ready(); (err == nil) != c.ready {
				t.Errorf("ready: %v", err)
			}
		})
	}
}

// moves is a lane that has read up to somewhere.
type moves struct {
	waits
	at events.Positions
}

func (m *moves) Position() events.Positions { return m.at }
func (m *moves) OrdersRead() int64          { return 0 }

// An operator who has a partition go on behind lost inputs wakes it, and hears what
// came of it. What fails is not tried again before somebody wants it.
func TestSkippingLostInputs(t *testing.T) {
	lost := fmt.Errorf("the lane: %w", &lane.LostError{Err: errors.New("the orders")})
	for _, c := range []struct {
		name  string
		lanes []end
		want  string
	}{
		{"it is done", []end{{serving: lost}, {}}, "skip: ann, because, 1 lost, done: <nil>, ready: <nil>"},
		{"nothing was lost after all", []end{{serving: lost}, {skipping: lane.ErrNothingLost}}, "skip: ann, because, 1 lost, done: no inputs were lost, ready: <nil>"},
		{"it fails", []end{{serving: lost}, {skipping: errors.New("away")}, {}}, "skip: ann, because, 1 lost, done: away, ready: partition 3 is not served: inputs were lost: the orders; the last try to go on behind them: away"},
		{"it is stopped for something else", []end{{takeover: projections.ErrNewer}, {}}, "done: no inputs were lost: partition 3 is not stopped for that here, ready: <nil>"},
	} {
		t.Run(c.name, func(t *testing.T) {
			asked := make(chan error, 1)
			k := keepsWith(t, func(k *kept) {
				paused := 0
				k.pause = func(ctx context.Context, p int32, _ time.Duration) bool {
					if paused++; paused > 1 {
						if k.stays(p) != nil {
							k.served = k.ready()
							k.stop([]int32{p})
						}
						return k.stays(p) == nil
					}
					go func() { asked <- k.skips(t.Context(), 3, lane.Author{By: "ann"}, "because") }()
					if errors.Is(k.owned[3].failed, lane.ErrInputLost) {
						<-ctx.Done() // until it is woken
					}
					return false
				}
			}, c.lanes...)
			k.say("done: %v", <-asked)
			k.say("ready: %v", k.served)
			said := slices.DeleteFunc(k.said, func(line string) bool {
				return !strings.Contains(line, "skip") && !strings.Contains(line, "done") && !strings.Contains(line, "ready")
			})
			if got := strings.Join(said, ", "); got != c.want {
				t.Errorf("what came of it:\n%s\nand must:\n%s", got, c.want)
			}
		})
	}
}

// Who waits for lost inputs to be passed over is told where the partition goes meanwhile that its next owner is to be asked.
func TestSkippingWhatIsGivenUp(t *testing.T) {
	gone := make(chan struct{})
	close(gone)
	m := &membership{owned: map[int32]*ownership{3: {done: gone}}, lost: map[int32][]*lane.LostError{3: {{}}}}
	if err := m.skips(t.Context(), 3, lane.Author{By: "ann"}, "because"); !errors.Is(err, ErrNotOwner) {
		t.Errorf("it ends with %v", err)
	}
}

// An instance that knows that inputs of a partition were lost does not serve it either when it
// is given that again, or when the operator who wanted it has gone: unless another owner went
// on behind them, which what the last lane was about to commit does not show.
func TestLanesDoNotForgetLostInputs(t *testing.T) {
	for sealed, serves := range map[uint64]bool{1: false, 2: true} {
		k := keeps(t, end{serving: &lane.LostError{Sealed: 1}})
		for n := range sealed {
			must(t, k.state.Commit(events.Seal{Transaction: n + 1, Events: 1}, k.state.Head().Offset+1, nil))
		}
		k.said = nil
		k.given(t)
		if served := slices.Contains(k.said, "served: true"); served != serves {
			t.Errorf("behind transaction %d it is served: %t: %q", sealed, served, k.said)
		}
		if stays := k.stays(3); (stays == nil) != serves {
			t.Errorf("behind transaction %d it stays where it is: %v", sealed, stays)
		}
	}
}

// Partitions that were added to the topic are not kept.
func TestAddedPartitionsAreNobodys(t *testing.T) {
	m := newMembership(nil, 2, slog.New(slog.DiscardHandler))
	m.assigned(t.Context(), []int32{2, 5})
	if err := m.ready(); err != nil || len(m.all()) > 0 {
		t.Errorf("ready: %v; it keeps %v", err, m.all())
	}
	m.revoked([]int32{2})
}

// A partition is given up once its lane has ended, and followed from then on. While
// one is not served the instance is not ready.
func TestGivingUpAPartition(t *testing.T) {
	store, err := projections.Temporary()
	must(t, err)
	defer func() { must(t, store.Close()) }()
	synctest.Test(t, func(t *testing.T) { givesUp(t, store) })
}

func givesUp(t *testing.T, store *projections.Store) {
	log := slog.New(slog.DiscardHandler)
	said := &kept{}
	m := newMembership(lane.NewFollower(nothing{said}, nil, false, log, time.Now), 2, log)
	for p := range int32(2) {
		state, err := store.Partition(p)
		must(t, err)
		m.follower.Follow(state, p)
	}
	said.said = nil
	takes, serves := make(chan error), make(chan struct{})
	m.newLane = func(int32, *projections.Partition) owner { return &waits{takes: takes, serves: serves} }
	if err := m.ready(); err == nil {
		t.Error("it is ready before the group gave anything")
	}
	m.assigned(t.Context(), nil)
	if err := m.ready(); err != nil {
		t.Errorf("nothing was given, and nothing is missing: %v", err)
	}
	m.assigned(t.Context(), []int32{1})
	if err := m.ready(); err == nil || err.Error() != "partition 1 is being taken over" {
		t.Errorf("while it takes over: %v", err)
	}
	takes <- nil
	serves <- struct{}{} // it serves
	if err := m.ready(); err != nil || !m.serves(1) || m.serves(0) || len(m.positions()) != 1 || !slices.Equal(m.all(), []int32{1}) {
		t.Errorf("it serves: %v, %v", err, m.all())
	}
	revoked := make(chan struct{})
	go func() {
		m.revoked([]int32{0, 1})
		close(revoked)
	}()
	serves <- struct{}{} // it was told to stop, and still commits
	synctest.Wait()
	select {
	case <-revoked:
		t.Error("it was given up before its lane had ended")
	default:
	}
	serves <- struct{}{}
	<-revoked
	if err := m.ready(); err != nil || m.serves(1) || len(m.all()) != 0 || !slices.Equal(said.said, []string{"followed"}) {
		t.Errorf("it was given up: %v, %v, %v", err, m.all(), said.said)
	}
	m.closing.Wait()
}

// waits is a lane that goes on when it is told to.
type waits struct {
	takes  chan error
	serves chan struct{}
}

func (w *waits) TakeOver(context.Context) error { return <-w.takes }

func (*waits) Rebuild(context.Context) error { return nil }

func (*waits) SkipLost(context.Context, lane.Author, string, ...*lane.LostError) error { return nil }

func (w *waits) Serve(ctx context.Context) error {
	<-w.serves
	<-ctx.Done()
	<-w.serves
	<-w.serves
	return nil
}
func (*waits) Close()                     {}
func (*waits) Leave()                     {}
func (*waits) Narrows(*lane.Halves)       {}
func (*waits) Position() events.Positions { return events.Positions{} }
func (*waits) OrdersRead() int64          { return 0 }

// An operator is told that a partition is stopped where nothing is decided until somebody
// repairs it, and not where it is tried on.
func TestWhyALaneEndsIsToldAsItIs(t *testing.T) {
	for _, c := range []struct {
		why  error
		want string
	}{
		{fmt.Errorf("read: %w", lane.ErrInputLost), "partition 3 of namespace shop is stopped: read: " + lane.ErrInputLost.Error()},
		{fmt.Errorf("%w: 10 so far; the last: no leader", errStuck), "partition 3 of namespace shop does not go on: its lanes end without having got anywhere, and it is tried on: 10 so far; the last: no leader"},
	} {
		if got := alarming(3, "shop", c.why); got.Error() != c.want || !errors.Is(got, errors.Unwrap(c.why)) {
			t.Errorf("it is told that %v", got)
		}
	}
}

// What is missing is said of each partition, of those first that are stopped, and of so many.
func TestWhatIsMissing(t *testing.T) {
	m := &membership{joined: true, now: time.Now, owned: map[int32]*ownership{0: {}, 3: {failed: errors.New("it is damaged")}, 2: {failed: errors.New("Kafka is away")}}}
	const two = "partition 2 is not served: Kafka is away; partition 3 is not served: it is damaged; partition 0 is being taken over"
	if err := m.ready(); err == nil || err.Error() != two {
		t.Errorf("%v", err)
	}
	for p := range int32(mostMissing) {
		m.owned[10+p] = &ownership{}
	}
	if err := m.ready(); err == nil || !strings.HasPrefix(err.Error(), two+"; partition 10 is") || !strings.HasSuffix(err.Error(), "partition 16 is being taken over; and 3 more partitions") {
		t.Errorf("of many: %v", err)
	}
}
