package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/projections"
)

// What an instance tells of how far it is: a digit for each partition, 0 where it is close
// enough, or serves.
func TestHowFarAnInstanceIs(t *testing.T) {
	g := newProgress(7, 100)
	if got := g.tells(); got != "zzzzzzz" {
		t.Errorf("before it has looked it tells %s", got)
	}
	ends, silent := map[int32]int64{0: 0, 1: 1100, 2: 1101, 3: 5000, 4: 5000, 5: 1 << 40}, error(nil)
	folded := map[int32]int64{1: 1000, 2: 1000, 4: 5001}
	g.ends = func(context.Context) (map[int32]int64, error) { return ends, silent }
	g.folded = func() (map[int32]int64, error) { return folded, nil }
	g.serves = func(p int32) bool { return p == 5 }
	must(t, g.look(t.Context()))
	if got := g.tells(); got != "007d00z" {
		t.Errorf("it tells %s", got)
	}
	for p, want := range map[int32]int64{0: 0, 1: 100, 2: 101, 3: 5000, 4: 0, 5: 0} {
		if got, known := g.lag(p); got != want || !known {
			t.Errorf("in partition %d it lacks %d records, %t, and not %d", p, got, known, want)
		}
	}
	if got, known := g.lag(6); known {
		t.Errorf("of a journal whose end nobody told it lacks %d", got)
	}
	silent = errors.New("Kafka is away")
	ends = map[int32]int64{2: 1102, 6: 1 << 62}
	g.serves = func(int32) bool { return false }
	if err := g.look(t.Context()); !errors.Is(err, silent) {
		t.Errorf("that Kafka was silent is told as %v", err)
	}
	if got := g.tells(); got != "007d0zz" {
		t.Errorf("of what Kafka did not say it tells %s", got)
	}
	if got, known := g.lag(3); known {
		t.Errorf("of what Kafka did not say it lacks %d", got)
	}
	if got, known := g.lag(2); got != 102 || !known {
		t.Errorf("of what Kafka said it lacks %d, %t", got, known)
	}
	g.folded = func() (map[int32]int64, error) { return nil, errors.New("the store is closed") }
	if err := g.look(t.Context()); err == nil {
		t.Error("it knows what it has folded")
	}
	if got, known := g.lag(2); known {
		t.Errorf("not knowing what it has folded it lacks %d", got)
	}
}

// An instance tells the group that it is ready only for what it is to get, and not again
// and again.
func TestWhenTheGroupIsTold(t *testing.T) {
	g, clock := newProgress(4, 100), time.Now()
	g.now = func() time.Time { return clock }
	asks := func(behind string, next ...int32) string {
		g.steps = behind
		g.hears(next)
		return fmt.Sprint(g.asks())
	}
	for _, c := range []struct {
		name   string
		behind string
		next   []int32
		later  time.Duration
		want   string
	}{
		{"it is to get nothing", "0000", nil, 0, "[]"},
		{"it is not ready for that", "009z", []int32{2, 3, 9}, 0, "[]"},
		{"it is ready for some", "0000", []int32{1, 3}, 0, "[1 3]"},
		{"it was just told", "0000", []int32{1, 3}, askEvery - 1, "[]"},
		{"it was told a while ago", "0009", []int32{1, 3}, 1, "[1]"},
	} {
		clock = clock.Add(c.later)
		if got := asks(c.behind, c.next...); got != c.want {
			t.Errorf("%s: it tells that it is ready for %s, and must for %s", c.name, got, c.want)
		}
	}
}

// Who is to get partitions and does not come close to their end says so, from time to time.
func TestWhoDoesNotComeClose(t *testing.T) {
	g, clock := newProgress(4, 100), time.Now()
	g.now, g.steps = func() time.Time { return clock }, "0zzz"
	for _, c := range []struct {
		name  string
		next  []int32
		later time.Duration
		want  string
	}{
		{"it is to get nothing", nil, 2 * slowAfter, "[]"},
		{"it was just told", []int32{1}, 0, "[]"},
		{"it has some time", []int32{1}, slowAfter - 1, "[]"},
		{"that is over", []int32{1}, 1, "[1]"},
		{"it has said so", []int32{1}, slowAfter - 1, "[]"},
		{"that is over again", []int32{1}, 1, "[1]"},
		{"others move", []int32{2, 3}, slowAfter, "[]"},
		{"and do not", []int32{2, 3}, slowAfter, "[2 3]"},
		{"it is close to one of them", []int32{0, 3}, 0, "[]"},
		{"it is not to the other", []int32{0, 3}, slowAfter, "[3]"},
		{"it has got them", nil, slowAfter, "[]"},
	} {
		clock = clock.Add(c.later)
		g.hears(c.next)
		if got := fmt.Sprint(g.slow()); got != c.want {
			t.Errorf("%s: slow are %s, and must be %s", c.name, got, c.want)
		}
	}
}

// silentJournals are journals of which nothing comes.
type silentJournals struct{}

func (silentJournals) Read(int32, int64) {}
func (silentJournals) Drop(int32)        {}
func (silentJournals) Close()            {}
func (silentJournals) Poll(context.Context) kgo.Fetches {
	return nil
}

// An instance that is catching up is not ready, nor is one that knows nothing. One partition
// that nobody can read is in nobody's way, but for its owner's.
func TestWhatAnInstanceIsReadyWithout(t *testing.T) {
	for _, mode := range []Standby{StandbyAll, StandbyOwned} {
		store, err := projections.Temporary()
		must(t, err)
		clock, log := time.Now(), slog.New(slog.DiscardHandler)
		i := &Instance{cfg: Config{Standby: mode}, partitions: 2, store: store, progress: newProgress(2, 100)}
		i.follower = lane.NewFollower(silentJournals{}, nil, mode == StandbyOwned, log, func() time.Time { return clock })
		i.members = newMembership(i.follower, i.partitions, log)
		i.members.joined = true
		i.progress.now, i.progress.session = func() time.Time { return clock }, time.Minute
		later := func(by time.Duration, ends map[int32]int64) {
			t.Helper()
			clock = clock.Add(by)
			i.progress.ends = func(context.Context) (map[int32]int64, error) {
				i.follower.Ends(clock, ends)
				return ends, nil
			}
			i.progress.folded, i.progress.serves = i.folded, i.members.serves
			must(t, i.progress.look(t.Context()))
		}
		var states []*projections.Partition
		for p := range i.partitions {
			state, err := store.Partition(p)
			must(t, err)
			states = append(states, state)
			i.follower.Follow(state, p)
		}
		i.progress.hears([]int32{0, 1, 2}) // one of which was added to the topic
		i.follower.Ahead(i.progress.ahead())
		expect := func(what string, ready bool) {
			t.Helper()
			if err := i.Ready(); (err == nil) != ready || err != nil && !errors.Is(err, ErrUnknownYet) {
				t.Errorf("--standby %s: %s: %v", mode, what, err)
			}
		}
		expect("nothing was read", false)
		states[0].CaughtUp()
		expect("one is not read", false)
		later(time.Minute, map[int32]int64{0: 0, 1: 1})
		expect("one cannot be read", true)
		states[0].FellBehind()
		expect("none can be read", false)
		states[0].CaughtUp()
		states[1].CaughtUp()
		expect("it knows all", true)
		later(10*time.Second, map[int32]int64{0: 0})
		if expect("Kafka does not tell of one", true); i.Knows(1) || !i.Knows(0) {
			t.Errorf("--standby %s: Kafka does not tell of one: it knows %t, %t", mode, i.Knows(0), i.Knows(1))
		}
		later(10*time.Second, map[int32]int64{1: 1})
		expect("Kafka tells only of one that is not read to its end", false)
		states[1].CaughtUp()
		later(1, map[int32]int64{0: 0, 1: 1})
		expect("Kafka tells of both", true)
		later(time.Minute-1, nil)
		states[0].CaughtUp() // as a lane that serves
		expect("Kafka tells nothing, not for as long as a session", true)
		later(1, nil)
		states[0].CaughtUp()
		if expect("Kafka tells nothing, for as long as a session", false); i.Knows(0) {
			t.Errorf("--standby %s: it knows of what others may own", mode)
		}
		later(0, map[int32]int64{0: 0})
		expect("Kafka tells again", true)
		i.progress.session = time.Second
		later(leastSilence-1, nil)
		expect("a session is shorter than two looks", true)
		later(1, nil)
		expect("two looks told nothing", false)
		i.progress.hears(nil)
		i.follower.Ahead(nil)
		expect("two looks told nothing, and it is to get nothing", false)
		must(t, store.Close())
	}
}

// What is not known here was read where others own the partition, as far as this instance
// can tell. Where that is this instance, and its lane is not there yet, it was not; nor
// before the group said who.
func TestWhatIsNotKnownWasRead(t *testing.T) {
	store, err := projections.Temporary()
	must(t, err)
	i := &Instance{cfg: Config{Standby: StandbyAll}, partitions: 1, store: store, members: newMembership(nil, 1, slog.New(slog.DiscardHandler))}
	i.follower = lane.NewFollower(silentJournals{}, nil, false, slog.New(slog.DiscardHandler), time.Now)
	state, err := store.Partition(0)
	must(t, err)
	expect := func(what string, want bool) {
		t.Helper()
		if read, err := i.wasRead(0, mark{offset: 7, order: "o-1"}); err != nil || read != want {
			t.Errorf("%s: it was read: %t, %v", what, read, err)
		}
	}
	expect("it did not join yet", false)
	i.members.joined = true
	expect("the store is being filled", true)
	state.CaughtUp()
	expect("the order is not there", false)
	state.FellBehind()
	i.members.owned[0] = &ownership{}
	expect("it is being taken over", false)
	must(t, store.Close())
}

// A listing is read again if what it was read from is not known any more by then.
func TestAListingOfWhatIsThrownAway(t *testing.T) {
	store, err := projections.Temporary()
	must(t, err)
	i := &Instance{cfg: Config{Standby: StandbyAll}, partitions: 2, store: store, progress: newProgress(2, 100)}
	i.follower = lane.NewFollower(silentJournals{}, nil, false, slog.New(slog.DiscardHandler), time.Now)
	i.members = newMembership(i.follower, i.partitions, i.log)
	var states []*projections.Partition
	for p := range i.partitions {
		state, err := store.Partition(p)
		must(t, err)
		state.CaughtUp()
		states = append(states, state)
	}
	var read [][]int32
	page := func(without []int32) (int, error) {
		switch read = append(read, without); len(read) {
		case 1:
			must(t, states[1].Reset())
		case 10:
			t.Fatalf("it reads again and again, without %v", without)
		}
		return len(read), nil
	}
	if got, left, err := listed(i, page); err != nil || got != 2 || fmt.Sprint(left, read) != "{[] [1]} [[] [1]]" {
		t.Errorf("%d, %v, %v: read without %v", got, left, err, read)
	}
	states[0].FellBehind()
	if _, _, err := listed(i, page); !errors.Is(err, ErrUnknownYet) || len(read) != 2 {
		t.Errorf("nothing is known: %v", err)
	}
	must(t, store.Close())
}

// A member joins at once, also while its follower folds what it has fetched: all wait for
// who joins last.
func TestAnInstanceTellsWhileItLooks(t *testing.T) {
	g := newProgress(1, 1)
	g.ends = func(context.Context) (map[int32]int64, error) { return nil, nil }
	g.folded = func() (map[int32]int64, error) { // waits for the follower while that folds
		if !g.mu.TryLock() {
			t.Fatal("it joins only once the follower has folded what it fetched")
		}
		g.mu.Unlock()
		return nil, nil
	}
	g.serves = func(int32) bool { return false }
	must(t, g.look(t.Context()))
}

// What cannot be read on, and is to be folded again, counts for nothing: who has it is to get it from nobody.
func TestHowFarAnInstanceIsThatFoldsAgain(t *testing.T) {
	store, err := projections.Temporary()
	must(t, err)
	i := &Instance{partitions: 1, store: store}
	silent := func(context.Context, int32) (int64, error) { return 0, errors.New("Kafka is away") }
	i.follower = lane.NewFollower(outOfRange{}, silent, false, slog.New(slog.DiscardHandler), time.Now)
	state, err := store.Partition(0)
	must(t, err)
	must(t, state.Commit(events.Seal{Transaction: 1, Events: 1}, 7, nil))
	must(t, state.Flush())
	i.follower.Follow(state, 0)
	for _, want := range []int64{7, 0} {
		folded, err := i.folded()
		if must(t, err); folded[0] != want {
			t.Errorf("it has folded %d, and must %d", folded[0], want)
		}
		must(t, i.follower.Once(t.Context()))
	}
	must(t, store.Close())
}

// A partition that cannot be read is in nobody's way, unless none can be, or its journal has no beginning: who comes next
// would have nothing to read, and who goes may be the last to have its state.
func TestWhatAnInstanceIsNotReadyWithout(t *testing.T) {
	for what, journals := range map[string]lane.Journals{"nothing can be read": silentJournals{}, "one has no beginning": outOfRange{}} {
		store, err := projections.Temporary()
		must(t, err)
		clock, log := time.Now(), slog.New(slog.DiscardHandler)
		i := &Instance{cfg: Config{Standby: StandbyAll}, partitions: 2, store: store, progress: newProgress(2, 100)}
		begins := func(context.Context, int32) (int64, error) { return 5, nil }
		i.follower = lane.NewFollower(journals, begins, false, log, func() time.Time { return clock })
		i.members = newMembership(i.follower, i.partitions, log)
		i.members.joined = true
		for p := range i.partitions {
			state, err := store.Partition(p)
			must(t, err)
			i.follower.Follow(state, p)
		}
		for range 2 {
			must(t, i.follower.Once(t.Context()))
		}
		clock = clock.Add(2 * time.Minute)
		ends := map[int32]int64{0: 5, 1: 5}
		if journals == (outOfRange{}) {
			ends[1] = 0
		}
		i.follower.Ends(clock, ends)
		if err := i.Ready(); !errors.Is(err, ErrUnknownYet) || i.Knows(1) != (ends[1] == 0) {
			t.Errorf("%s: partition 1 is known: %t; %v", what, i.Knows(1), err)
		}
		must(t, store.Close())
	}
}

// outOfRange are journals that do not have what is read.
type outOfRange struct{ silentJournals }

func (outOfRange) Poll(context.Context) kgo.Fetches {
	return kgo.Fetches{{Topics: []kgo.FetchTopic{{Partitions: []kgo.FetchPartition{{Err: kerr.OffsetOutOfRange}}}}}}
}
