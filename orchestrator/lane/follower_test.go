package lane

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
)

// fetched are journals that bring what they are told to.
type fetched struct {
	next kgo.FetchPartition
	from []int64 // where they were read from
}

func (j *fetched) Read(_ int32, from int64) { j.from = append(j.from, from) }
func (*fetched) Drop(int32)                 {}
func (*fetched) Close()                     {}
func (j *fetched) Poll(context.Context) kgo.Fetches {
	next := j.next
	j.next = kgo.FetchPartition{Partition: next.Partition}
	return kgo.Fetches{{Topics: []kgo.FetchTopic{{Partitions: []kgo.FetchPartition{next}}}}}
}

// whole says of all journals that they have their beginning.
func whole(context.Context, int32) (int64, error) { return 0, nil }

// newFolded returns a lane whose state has folded one transaction, up to offset 7,
// and the record that closed it.
func newFolded(t *testing.T) (l *Lane, order string, last *kgo.Record) {
	t.Helper()
	l, _ = newLane(t)
	order, _ = l.keys()
	must(t, l.decide([]*kgo.Record{typed(l.topics.Orders, "", order, `{"workflow":"order"}`)}))
	l.seal(l.current)
	l.inflight, l.current = l.current, newBatch()
	last = l.inflight.last
	last.Offset = 6
	must(t, l.conclude(nil))
	return l, order, last
}

// numbered is the record as if its transaction had another number.
func numbered(r *kgo.Record, n uint64) *kgo.Record {
	other, seal := *r, events.Seal{Transaction: n, Events: 1}
	other.Headers = []kgo.RecordHeader{{Key: events.HeaderLane, Value: seal.Append(nil)}}
	return &other
}

// A standby goes on from the last record that it has folded. If that is not there it
// begins anew; Kafka's trouble is no reason to.
func TestAFollowerGoesOn(t *testing.T) {
	for _, c := range []struct {
		what   string
		brings func(last *kgo.Record) kgo.FetchPartition
		from   []int64
	}{
		{"what it has folded", func(last *kgo.Record) kgo.FetchPartition { return kgo.FetchPartition{Records: []*kgo.Record{last}} }, []int64{6}},
		{"Kafka's trouble", func(*kgo.Record) kgo.FetchPartition { return kgo.FetchPartition{Err: kerr.UnknownTopicOrPartition} }, []int64{6, 6}},
		{"another transaction", func(last *kgo.Record) kgo.FetchPartition {
			return kgo.FetchPartition{Records: []*kgo.Record{numbered(last, 2)}}
		}, []int64{6, 0}},
		{"a batch that cannot be read is not read again and again", func(*kgo.Record) kgo.FetchPartition {
			return kgo.FetchPartition{Err: kgo.ErrMaxDecompress}
		}, []int64{6}},
	} {
		t.Run(c.what, func(t *testing.T) {
			l, order, last := newFolded(t)
			j, clock := &fetched{next: c.brings(last)}, time.Now()
			j.next.Partition = l.partition
			f := NewFollower(j, whole, false, slog.New(slog.DiscardHandler), func() time.Time { return clock })
			f.Follow(l.state, l.partition)
			must(t, f.Once(t.Context()))
			clock = clock.Add(rereadAfter)
			must(t, f.Once(t.Context()))
			if !slices.Equal(j.from, c.from) {
				t.Errorf("it read from %v, and must from %v", j.from, c.from)
			}
			o, err := l.state.Order(order)
			must(t, err)
			if anew := slices.Contains(c.from, 0); (o == nil) != anew {
				t.Errorf("it has %+v", o)
			}
		})
	}
}

// What a follower folds, and nobody asks for, is not in memory for long, whether anything comes or not.
func TestAFollowerReleasesWhatNobodyAsksFor(t *testing.T) {
	for _, idle := range []bool{false, true} {
		l, order, _ := newFolded(t)
		clock := time.Now()
		f := NewFollower(&fetched{}, whole, idle, slog.New(slog.DiscardHandler), func() time.Time { return clock })
		f.Follow(l.state, l.partition)
		f.Ahead([]int32{l.partition})
		f.Ahead(nil)
		was, err := l.state.Order(order)
		must(t, err)
		for _, after := range []time.Duration{0, 0, releaseEvery} {
			if o, err := l.state.Peek(order); o != was || err != nil {
				t.Fatalf("idle %t: it is read again too soon: %v", idle, err)
			}
			clock = clock.Add(after)
			must(t, f.Once(t.Context()))
		}
		if o, err := l.state.Peek(order); o == was || o == nil || err != nil {
			t.Errorf("idle %t: it is in memory: %t; %v", idle, o == was, err)
		}
	}
}

// A state that was handed over is folded by nobody else.
func TestAFollowerHandsOver(t *testing.T) {
	l, _, last := newFolded(t)
	j := &fetched{}
	f := NewFollower(j, whole, false, slog.New(slog.DiscardHandler), time.Now)
	f.Follow(l.state, l.partition)
	if f.Release(l.partition) != l.state {
		t.Error("it handed over another state")
	}
	e := events.Event{Type: events.PartitionAdvanced, At: l.time.Wall()}
	next := numbered(last, 2)
	next.Value, next.Offset = e.Append(nil), 7
	j.next = kgo.FetchPartition{Partition: l.partition, Records: []*kgo.Record{last, next}}
	must(t, f.Once(t.Context()))
	if head := l.state.Head(); head.Offset != 7 {
		t.Errorf("it folded up to %d", head.Offset)
	}
}

// A partition is caught up once it was read up to where its journal ended, records that
// are not folded among them, and if what was folded last was there.
func TestAFollowerIsCaughtUp(t *testing.T) {
	marker := &kgo.Record{Offset: 7, Attrs: kgo.NewRecordAttrs(kgo.RecordAttrsOpts{Transactional: true, Control: true})}
	for _, c := range []struct {
		what   string
		brings func(last *kgo.Record) []*kgo.Record
		end    int64
		known  bool
	}{
		{"it was read to its end", func(last *kgo.Record) []*kgo.Record { return []*kgo.Record{last, marker} }, 8, true},
		{"the end is not read yet", func(last *kgo.Record) []*kgo.Record { return []*kgo.Record{last} }, 8, false},
		{"what was folded was undone", func(*kgo.Record) []*kgo.Record { return []*kgo.Record{marker} }, 8, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			for _, endFirst := range []bool{true, false} {
				l, _, last := newFolded(t)
				known := func() bool { return l.world.(*still).store.Known(l.partition) }
				j := &fetched{next: kgo.FetchPartition{Partition: l.partition, Records: c.brings(last)}}
				f := NewFollower(j, whole, false, slog.New(slog.DiscardHandler), time.Now)
				ends := map[int32]int64{l.partition: c.end}
				f.Follow(l.state, l.partition)
				if endFirst {
					f.Ends(f.now(), ends)
					f.Ends(f.now(), map[int32]int64{l.partition: 100}) // it goes on meanwhile
				}
				if known() {
					t.Error("it counts as caught up before anything was read")
				}
				must(t, f.Once(t.Context()))
				if !endFirst {
					if known() {
						t.Error("it counts as caught up before it is known where the journal ends")
					}
					f.Ends(f.now(), ends)
				}
				if known() != c.known {
					t.Errorf("it counts as caught up: %t", known())
				}
				if reads := f.Reads()[l.partition]; c.known && reads != c.end {
					t.Errorf("it was read up to %d", reads)
				}
				must(t, l.state.Reset())
				if known() {
					t.Error("it was thrown away, and counts as caught up")
				}
			}
		})
	}
}

// An idle follower folds what the instance is to get next, and no more once that is over.
func TestAnIdleFollowerGoesAhead(t *testing.T) {
	for _, idle := range []bool{true, false} {
		l, _, _ := newFolded(t)
		j := &fetched{}
		f := NewFollower(j, whole, idle, slog.New(slog.DiscardHandler), time.Now)
		f.Ahead([]int32{l.partition})
		f.Follow(l.state, l.partition)
		if len(f.Reads()) != 1 {
			t.Error("it does not read what comes next")
		}
		f.Ahead(nil)
		if reads := len(f.Reads()) == 1; reads == idle {
			t.Errorf("idle %t: when it is to get it no more, it reads it: %t", idle, reads)
		}
		f.Ahead([]int32{l.partition})
		f.Ahead([]int32{l.partition})
		want := []int64{6}
		if idle {
			want = []int64{6, 6}
		}
		if !slices.Equal(j.from, want) {
			t.Errorf("idle %t: it was read from %v, and must be from %v", idle, j.from, want)
		}
		if f.Release(l.partition); len(f.Reads()) > 0 {
			t.Error("it reads what it handed over")
		}
	}
}

// What an idle follower does not fold any more is not known: it goes on without it. What
// others own and it follows is.
func TestAnIdleFollowerDoesNotKnowWhatItLeaves(t *testing.T) {
	for _, idle := range []bool{true, false} {
		l, _, last := newFolded(t)
		known := func() bool { return l.world.(*still).store.Known(l.partition) }
		l.state.CaughtUp() // as a takeover
		j := &fetched{next: kgo.FetchPartition{Partition: l.partition, Records: []*kgo.Record{last}}}
		f := NewFollower(j, whole, idle, slog.New(slog.DiscardHandler), time.Now)
		f.Follow(l.state, l.partition)
		if known() == idle {
			t.Errorf("idle %t: what it was given up is known: %t", idle, known())
		}
		f.Ahead([]int32{l.partition})
		must(t, f.Once(t.Context()))
		f.Ends(f.now(), map[int32]int64{l.partition: 7})
		if !known() {
			t.Errorf("idle %t: it was read to its end, and is not known", idle)
		}
		f.Ahead(nil)
		if known() == idle {
			t.Errorf("idle %t: what it is not to get any more is known: %t", idle, known())
		}
	}
}

// What Kafka still says of a partition that is left, be it records or a fault, is passed over.
func TestWhatComesOfWhatWasLeft(t *testing.T) {
	for _, err := range []error{nil, kerr.NotLeaderForPartition, kerr.OffsetOutOfRange, kgo.ErrMaxDecompress} {
		l, _, last := newFolded(t)
		j := &fetched{next: kgo.FetchPartition{Partition: l.partition, Err: err}}
		if err == nil {
			j.next.Records = []*kgo.Record{numbered(last, 9)}
		}
		f := NewFollower(j, whole, true, slog.New(slog.DiscardHandler), time.Now)
		f.Ahead([]int32{l.partition})
		f.Follow(l.state, l.partition)
		f.Ahead(nil)
		must(t, f.Once(t.Context()))
		if len(f.Reads()) > 0 {
			t.Errorf("%v: it reads what it left", err)
		}
		if f.Ahead([]int32{l.partition}); !slices.Equal(j.from, []int64{6, 6}) {
			t.Errorf("%v: it was read from %v", err, j.from)
		}
	}
}

// What was caught up is not known any more once it was not read for some time up to where
// its journal ended then, and is again once it was; nor what is followed no more because it
// cannot be read.
func TestWhatAFollowerKnowsNoMore(t *testing.T) {
	l, _, last := newFolded(t)
	known := func() bool { return l.world.(*still).store.Known(l.partition) }
	clock := time.Now()
	j := &fetched{}
	f := NewFollower(j, whole, false, slog.New(slog.DiscardHandler), func() time.Time { return clock })
	f.Follow(l.state, l.partition)
	brings := func(next kgo.FetchPartition) {
		t.Helper()
		next.Partition = l.partition
		j.next = next
		must(t, f.Once(t.Context()))
	}
	ends := func(end int64) { f.Ends(f.now(), map[int32]int64{l.partition: end}) }
	marker := func(at int64) *kgo.Record {
		return &kgo.Record{Offset: at, Attrs: kgo.NewRecordAttrs(kgo.RecordAttrsOpts{Transactional: true, Control: true})}
	}
	expect := func(what string, is bool) {
		t.Helper()
		if known() != is {
			t.Errorf("%s: it is known: %t", what, known())
		}
	}
	ends(7)
	brings(kgo.FetchPartition{Records: []*kgo.Record{last}})
	expect("it was read to its end", true)
	for range 3 {
		clock = clock.Add(knownFor)
		ends(7)
	}
	expect("nothing was written since", true)
	ends(9)
	clock = clock.Add(knownFor - 1)
	ends(10)
	expect("it is behind for nearly ten seconds", true)
	brings(kgo.FetchPartition{Err: kerr.UnknownTopicOrPartition})
	clock = clock.Add(1)
	f.Ends(f.now(), nil)
	expect("it rests, and is behind for ten seconds", false)
	clock = clock.Add(rereadAfter)
	brings(kgo.FetchPartition{})
	brings(kgo.FetchPartition{Records: []*kgo.Record{last, marker(7)}})
	expect("it was read further, and not to where it ended", false)
	brings(kgo.FetchPartition{Records: []*kgo.Record{marker(8)}})
	expect("it was read to where it ended when that was seen", true)
	ends(12)
	clock = clock.Add(knownFor - 1)
	ends(20)
	brings(kgo.FetchPartition{Records: []*kgo.Record{marker(13)}})
	ends(20)
	clock = clock.Add(knownFor - 1)
	ends(20)
	expect("it is always a little behind", true)
	brings(kgo.FetchPartition{Err: kgo.ErrMaxDecompress})
	expect("it is followed no more", false)
}

// A partition stands of which nothing more was read for a minute, and it is known why if
// somebody said so. One that is folded again from its beginning does not, the first time.
func TestWhenAPartitionStands(t *testing.T) {
	silence := func(*kgo.Record) kgo.FetchPartition { return kgo.FetchPartition{} }
	other := func(last *kgo.Record) kgo.FetchPartition {
		return kgo.FetchPartition{Records: []*kgo.Record{numbered(last, 2)}}
	}
	for _, c := range []struct {
		what   string
		brings []func(last *kgo.Record) kgo.FetchPartition // one after 40 s
		stands []bool                                      // then
		why    error
	}{
		{"nothing comes", []func(*kgo.Record) kgo.FetchPartition{silence, silence}, []bool{false, true}, nil},
		{"it goes on", []func(*kgo.Record) kgo.FetchPartition{silence, func(last *kgo.Record) kgo.FetchPartition {
			return kgo.FetchPartition{Records: []*kgo.Record{last}}
		}, silence, silence}, []bool{false, false, false, true}, nil},
		{"Kafka's trouble", []func(*kgo.Record) kgo.FetchPartition{silence, func(*kgo.Record) kgo.FetchPartition {
			return kgo.FetchPartition{Err: kerr.UnknownTopicOrPartition}
		}}, []bool{false, true}, kerr.UnknownTopicOrPartition},
		{"a batch that cannot be read", []func(*kgo.Record) kgo.FetchPartition{func(*kgo.Record) kgo.FetchPartition {
			return kgo.FetchPartition{Err: kgo.ErrMaxDecompress}
		}, silence}, []bool{false, true}, kgo.ErrMaxDecompress},
		{"it is folded again, and then again", []func(*kgo.Record) kgo.FetchPartition{silence, other, silence, other, silence}, []bool{false, false, false, true, true}, projections.ErrGap},
	} {
		t.Run(c.what, func(t *testing.T) {
			l, _, last := newFolded(t)
			j, clock := &fetched{}, time.Now()
			f := NewFollower(j, whole, false, slog.New(slog.DiscardHandler), func() time.Time { return clock })
			if stands, why := f.Stands(l.partition); stands || why != nil {
				t.Errorf("before it is followed it stands: %t, %v", stands, why)
			}
			f.Follow(l.state, l.partition)
			for n, brings := range c.brings {
				f.Ends(clock, map[int32]int64{l.partition: 100})
				clock = clock.Add(40 * time.Second)
				f.Ends(clock, map[int32]int64{l.partition: 100})
				j.next = brings(last)
				j.next.Partition = l.partition
				must(t, f.Once(t.Context()))
				stands, why := f.Stands(l.partition)
				if stands != c.stands[n] || n == len(c.brings)-1 && !errors.Is(why, c.why) {
					t.Errorf("%d: it stands: %t, %v", n+1, stands, why)
				}
			}
			if f.Release(l.partition); f.courses[l.partition] != nil {
				t.Error("it was handed over, and stands")
			}
		})
	}
}

// What was caught up is not known any more once Kafka has not told for some time where its
// journal ends, whatever it tells of others, and is again once it was read up to an end that
// was told since. Meanwhile it is told as it stood.
func TestWhatKafkaDoesNotTellOf(t *testing.T) {
	l, _, last := newFolded(t)
	clock, p := time.Now(), l.partition
	j := &fetched{next: kgo.FetchPartition{Partition: p, Records: []*kgo.Record{last}}}
	f := NewFollower(j, whole, true, slog.New(slog.DiscardHandler), func() time.Time { return clock })
	expect := func(what string, known, knew, stands bool) {
		t.Helper()
		is := l.world.(*still).store.Known(p)
		if does, _ := f.Stands(p); is != known || f.Knew(p) != knew || does != stands {
			t.Errorf("%s: it is known: %t; it was: %t; it stands: %t", what, is, f.Knew(p), does)
		}
	}
	brings := func(offsets ...int64) {
		t.Helper()
		j.next = kgo.FetchPartition{Partition: p}
		for _, at := range offsets {
			j.next.Records = append(j.next.Records, &kgo.Record{Offset: at, Attrs: kgo.NewRecordAttrs(kgo.RecordAttrsOpts{Transactional: true, Control: true})})
		}
		must(t, f.Once(t.Context()))
	}
	tells := func(end int64) { f.Ends(clock, map[int32]int64{p: end}) }
	ofOthers := func(later time.Duration) {
		clock = clock.Add(later)
		f.Ends(clock, map[int32]int64{p + 1: 100})
	}
	f.Ahead([]int32{p})
	f.Follow(l.state, p)
	ofOthers(knownFor)
	expect("nothing was read, nor told", false, false, true)
	must(t, f.Once(t.Context()))
	tells(7)
	expect("it was read to its end", true, false, false)
	ofOthers(knownFor - 1)
	expect("for nearly ten seconds it was not told of", true, false, false)
	ofOthers(1)
	expect("for ten seconds it was not told of", false, true, true)
	brings(7)
	expect("it is read on, and not told of", false, true, true)
	tells(9)
	expect("it is told of, and was not read so far", false, true, false)
	brings(8)
	expect("it was read so far", true, false, false)

	clock = clock.Add(time.Hour)
	tells(10)
	expect("the process stood still, and something was written meanwhile", false, true, false)
	brings(9)
	expect("that was read", true, false, false)
	asked := clock
	clock = clock.Add(knownFor)
	f.Ends(asked, map[int32]int64{p: 10})
	expect("the process stood still before it took the answer", false, true, true)
	tells(10)
	expect("it asked again", true, false, false)

	ofOthers(knownFor)
	tells(11)
	clock = clock.Add(knownFor - 1)
	tells(12)
	clock = clock.Add(1)
	tells(12)
	expect("it is told of again, and was not read so far for long", false, false, false)
	brings(10, 11)
	tells(12)
	expect("it was read so far after that", true, false, false)
	ofOthers(knownFor)
	f.Ahead(nil)
	expect("it is followed no more", false, false, true)
	f.Release(p)
	expect("it was handed over", false, false, false)

	l.state.CaughtUp() // as a takeover
	f.Ahead([]int32{p})
	f.Follow(l.state, p)
	ofOthers(knownFor)
	expect("it was given up, and not told of since", false, true, true)
	j.next = kgo.FetchPartition{Partition: p, Records: []*kgo.Record{numbered(last, 2)}}
	must(t, f.Once(t.Context()))
	expect("it is to be folded again", false, true, true)
	must(t, f.Once(t.Context()))
	expect("it is folded again from its beginning", false, false, true)
	l.state.CaughtUp()
	f.Release(p)
	f.Follow(l.state, p)
	ofOthers(knownFor)
	f.Release(p)
	expect("it was handed over when it had not been told of", false, false, false)
}

// A follower keeps what it cannot fold again, since the journal's beginning was deleted, or as long as
// Kafka does not say. It does not count.
func TestAFollowerKeepsWhatItCannotFoldAgain(t *testing.T) {
	l, order, last := newFolded(t)
	clock := time.Now()
	j := &fetched{next: kgo.FetchPartition{Partition: l.partition, Records: []*kgo.Record{numbered(last, 2)}}}
	at, silent := int64(5), error(nil)
	f := NewFollower(j, func(context.Context, int32) (int64, error) { return at, silent }, false, slog.New(slog.DiscardHandler), func() time.Time { return clock })
	l.state.CaughtUp() // as a takeover
	f.Follow(l.state, l.partition)
	clock = clock.Add(knownFor)
	f.Ends(clock, nil)
	f.Ends(clock, map[int32]int64{l.partition: 9})
	must(t, f.Once(t.Context()))
	expect := func(what string, kept bool, because error) {
		t.Helper()
		l.state.CaughtUp() // as a takeover
		must(t, f.Once(t.Context()))
		if l.state.FellBehind() || f.Knew(l.partition) {
			t.Errorf("%s: it is told, though it may have been undone", what)
		}
		o, err := l.state.Order(order)
		must(t, err)
		if (o != nil) != kept || slices.Contains(f.Anew(), l.partition) != kept || slices.Contains(j.from, 0) == kept {
			t.Errorf("%s: it has %v, is to be folded again: %v, read from %v", what, o, f.Anew(), j.from)
		}
		if _, why := f.Stands(l.partition); kept && !errors.Is(why, because) {
			t.Errorf("%s: it is not known because of: %v", what, why)
		}
		clock = clock.Add(restartEvery - 1)
		f.Ends(clock, map[int32]int64{l.partition: 9})
		clock = clock.Add(1)
	}
	expect("it begins at offset 5", true, ErrBeginning)
	at, silent = 0, context.DeadlineExceeded
	expect("Kafka does not say", true, silent)
	silent = nil
	expect("it has its beginning", false, nil)
}
