package lane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
)

// Follower keeps the partitions that the instance does not own. Unless it is idle
// it folds their journals: it is the standby, and a takeover then reads only the end.
type Follower struct {
	idle     bool
	journals Journals
	begins   func(ctx context.Context, p int32) (int64, error) // where a journal does
	log      *slog.Logger
	now      func() time.Time // for what lasts

	mu      sync.Mutex
	states  map[int32]*projections.Partition
	resting map[int32]rest
	// ahead are those that an idle follower folds all the same.
	ahead []int32
	// reads is from where each partition is read on that is read, and until where it must
	// be to count as caught up, once that is known.
	reads map[int32]int64
	until map[int32]end
	// heard is as of when Kafka told last where the journals end, or since when they are
	// followed.
	heard map[int32]time.Time
	// knew are those that were caught up until Kafka had not told that for long.
	knew map[int32]bool
	// courses is how the reading goes of those that are to be read.
	courses map[int32]*course
	// unchecked are those whose last folded record was not found in the journal yet;
	// see [isLastFolded].
	unchecked map[int32]bool
	// released is when each partition released records.
	released map[int32]releases
	// restarted says when a partition was folded again from its beginning.
	restarted map[int32]time.Time
}

// rest is what comes of a partition that could not be followed.
type rest struct {
	until time.Time
	anew  bool // then it is folded again from its beginning
}

// course is how the reading of a partition goes.
type course struct {
	furthest int64     // up to which it was read
	moved    time.Time // when it was read further, or to its end
	why      error     // why it is read no further, if that is known
	anew     bool      // it was folded again from its beginning since it was caught up
}

// end is where a journal ended when that was seen.
type end struct {
	offset int64
	seen   time.Time
}

const (
	// knownFor is how long a partition is known that is not read up to where its journal
	// ended then, or of which Kafka does not tell that.
	knownFor = 10 * time.Second
	// standsAfter is after how long a partition stands of which nothing more can be read.
	standsAfter = time.Minute
	// restartEvery is how often a partition is folded again from its beginning at
	// most: what is torn in the journal stays torn.
	restartEvery = time.Minute
	// beginsPatience is how long Kafka may take to say where journals begin.
	beginsPatience = 2 * time.Second
	// beginsAgain is after how long it is asked again where it did not.
	beginsAgain = 5 * time.Second
	// rereadAfter is how long a partition rests that could not be read.
	rereadAfter = 250 * time.Millisecond
)

// Journals reads the committed records of the partitions' journals. Simulations
// put another in its place.
type Journals interface {
	// Read reads partition p from an offset on.
	Read(p int32, from int64)
	Drop(p int32)
	// Poll waits for what there is, for some time.
	Poll(ctx context.Context) kgo.Fetches
	Close()
}

// NewFollower returns one that follows nothing yet. Begins is where the journal of a
// partition begins, 0 unless records of it were deleted. Now is for what lasts.
func NewFollower(j Journals, begins func(ctx context.Context, p int32) (int64, error), idle bool, log *slog.Logger, now func() time.Time) *Follower {
	return &Follower{
		journals: j, begins: begins, idle: idle, log: log, now: now,
		states: make(map[int32]*projections.Partition), resting: make(map[int32]rest),
		reads: make(map[int32]int64), until: make(map[int32]end), heard: make(map[int32]time.Time), knew: make(map[int32]bool), courses: make(map[int32]*course),
		unchecked: make(map[int32]bool), released: make(map[int32]releases), restarted: make(map[int32]time.Time),
	}
}

// Follow takes partition p, and begins to fold it unless the follower is idle.
func (f *Follower) Follow(state *projections.Partition, p int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	state.Forget()
	f.states[p], f.heard[p] = state, f.now()
	if !f.idle || slices.Contains(f.ahead, p) {
		f.read(p, state)
	} else {
		state.FellBehind() // from now on
	}
}

// Ahead has an idle follower fold these, as far as it has them, and no others.
func (f *Follower) Ahead(ahead []int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.idle {
		return
	}
	before := f.ahead
	f.ahead = ahead
	for p, state := range f.states {
		switch was, is := slices.Contains(before, p), slices.Contains(ahead, p); {
		case is && !was:
			f.read(p, state)
		case was && !is:
			f.leave(p)
			delete(f.courses, p)
		}
	}
}

// Stands says whether partition p, which is not caught up, was not read any further for a
// minute, or Kafka does not tell where its journal ends, and why it is not, nil if that is
// not known.
func (f *Follower) Stands(p int32) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if heard, follows := f.heard[p]; follows && f.now().Sub(heard) >= knownFor {
		return true, fmt.Errorf("Kafka has not said for %s where its journal ends", f.now().Sub(heard).Round(time.Second)) //nolint:staticcheck // a name
	}
	c := f.courses[p]
	if c == nil {
		return false, nil
	}
	return f.now().Sub(c.moved) >= standsAfter, c.why
}

// Knew says whether partition p was caught up until Kafka did not tell any more where its
// journal ends: its orders are as they stood then, or later, and there may be more.
func (f *Follower) Knew(p int32) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.knew[p]
}

// Ends hears where journals ended when that was asked, of those of which Kafka told; at
// least every few seconds, though it tells of none. What is read up to where its journal
// ended after reading began is caught up, see [projections.Partition.CaughtUp]. It falls
// behind if it is not soon read up to where it ended later, or if Kafka does not tell for as
// long; then it is caught up where it is read up to an end that was told since.
func (f *Follower) Ends(asked time.Time, ends map[int32]int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for p, state := range f.states {
		silent := f.now().Sub(f.heard[p]) >= knownFor
		if silent { // also if it tells now: what was written meanwhile is not read
			delete(f.until, p)
			if state.FellBehind() {
				f.knew[p] = true
			}
		}
		if offset, told := ends[p]; told && f.now().Sub(asked) < knownFor { // else the process stood still since
			f.heard[p] = asked
			if silent && f.knew[p] {
				f.courses[p].moved = f.now() // it did not stand: there was nothing to read
			}
			_, reading := f.reads[p]
			if _, before := f.until[p]; reading && !before || f.caughtUp(p) {
				f.until[p] = end{offset, asked}
			}
		}
		if until, known := f.until[p]; known && !f.caughtUp(p) && f.now().Sub(until.seen) >= knownFor {
			state.FellBehind()
			delete(f.knew, p)
		}
	}
}

// caughtUp looks whether a partition is.
func (f *Follower) caughtUp(p int32) bool {
	reads, reading := f.reads[p]
	until, known := f.until[p]
	if !reading || !known || reads < until.offset || f.unchecked[p] {
		return false
	}
	f.states[p].CaughtUp()
	delete(f.knew, p)
	*f.courses[p] = course{furthest: reads, moved: f.now()}
	return true
}

// Reads says from where each partition is read on that is read now.
func (f *Follower) Reads() map[int32]int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.reads)
}

// read begins to read p from the last record that its state has folded: it may
// have been the own lane that folded it, and another owner may have undone it.
func (f *Follower) read(p int32, state *projections.Partition) {
	if f.courses[p] == nil {
		f.courses[p] = &course{moved: f.now()}
	}
	from := state.Head().Offset
	f.unchecked[p] = from > 0
	f.reads[p] = max(0, from-1)
	f.journals.Read(p, f.reads[p])
}

// Release stops following p and hands its state over. When it has returned,
// nobody else touches the state.
func (f *Follower) Release(p int32) *projections.Partition {
	f.mu.Lock()
	defer f.mu.Unlock()
	state := f.states[p]
	f.drop(p)
	return state
}

func (f *Follower) drop(p int32) {
	f.halt(p)
	delete(f.states, p)
	delete(f.until, p)
	delete(f.heard, p)
	delete(f.knew, p)
	delete(f.courses, p)
	delete(f.released, p)
}

// leave ends to follow p, which is not known from then on.
func (f *Follower) leave(p int32) {
	f.halt(p)
	delete(f.until, p)
	delete(f.knew, p)
	f.states[p].FellBehind()
}

// halt reads no more of p for now.
func (f *Follower) halt(p int32) {
	delete(f.resting, p)
	delete(f.reads, p)
	f.journals.Drop(p)
}

// Close ends the reader. It reads nothing any more then: a partition that is
// only being assigned would begin to fetch while the client closes.
func (f *Follower) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for p := range f.states {
		f.journals.Drop(p)
	}
	f.journals.Close()
}

// Run follows until ctx ends. It tells fail of [projections.ErrDamaged].
func (f *Follower) Run(ctx context.Context, fail func(error)) {
	for ctx.Err() == nil {
		if err := f.Once(ctx); err != nil && ctx.Err() == nil {
			fail(err)
		}
	}
}

// Once waits for what there is to follow, and folds it. It fails with
// [projections.ErrDamaged] if the state store turns out to be damaged.
func (f *Follower) Once(ctx context.Context) error {
	whole := f.whole(ctx) // first: what was fetched is taken at once
	fetches := f.journals.Poll(ctx)
	if err := ctx.Err(); err != nil {
		return err
	}
	return f.take(fetches, whole)
}

// take folds what one poll brought. Whole is what [Follower.whole] says.
func (f *Follower) take(fetches kgo.Fetches, whole map[int32]error) (damaged error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wake(whole)
	for p, state := range f.states {
		r := f.released[p]
		r.release(state, f.now())
		f.released[p] = r
	}
	fetches.EachPartition(func(fetched kgo.FetchTopicPartition) {
		state := f.states[fetched.Partition]
		if _, reads := f.reads[fetched.Partition]; state == nil || !reads {
			return // it was handed over, or is left: what was fetched of it before counts no more
		}
		err := fetched.Err
		for i := 0; i < len(fetched.Records) && err == nil; i++ {
			r := fetched.Records[i]
			if r.Attrs.IsControl() {
				continue
			}
			if f.unchecked[fetched.Partition] && !isLastFolded(state, r) {
				err = ErrNotFolded
				break
			}
			f.unchecked[fetched.Partition] = false
			err = state.Fold(r.Offset, r.Value, events.HeaderValue(r, events.HeaderLane))
		}
		if err == nil {
			err = state.Flush()
		}
		switch {
		case err == nil:
			if len(fetched.Records) > 0 {
				reads := fetched.Records[len(fetched.Records)-1].Offset + 1
				f.reads[fetched.Partition] = reads
				if c := f.courses[fetched.Partition]; reads > c.furthest {
					c.furthest, c.moved, c.why = reads, f.now(), nil
				}
				f.caughtUp(fetched.Partition)
			}
		case errors.Is(err, projections.ErrDamaged):
			damaged = err
		case errors.Is(err, projections.ErrNewer), errors.Is(err, kgo.ErrMaxDecompress):
			f.log.Error("cannot follow the journal any further", "partition", fetched.Partition, "error", err)
			f.leave(fetched.Partition)
			f.courses[fetched.Partition].why = err
		case fetched.Err != nil && !errors.Is(err, kerr.OffsetOutOfRange):
			// Kafka's trouble, such as a broker that has come back and does not know
			// its topics yet.
			f.log.Warn("cannot read the journal; trying on", "partition", fetched.Partition, "error", err)
			f.rest(fetched.Partition, rest{until: f.now().Add(rereadAfter)})
			f.courses[fetched.Partition].why = err
		default:
			f.restart(fetched.Partition, err)
		}
	})
	return damaged
}

// restart has a partition folded again from its beginning, if that was not done
// a moment ago: until then it answers with what was folded. A takeover would do
// the same, and calls an operator when that does not help either.
func (f *Follower) restart(p int32, why error) {
	at := f.restarted[p].Add(restartEvery)
	f.log.Error("cannot follow the journal; it is folded again from its beginning", "partition", p, "in", max(0, at.Sub(f.now())), "error", why)
	f.rest(p, rest{until: at, anew: true})
	c := f.courses[p]
	if c.why = why; !c.anew { // it may help, and takes its time
		*c = course{moved: f.now(), why: why, anew: true}
	}
}

func (f *Follower) rest(p int32, r rest) {
	f.halt(p)
	f.resting[p] = r
}

// Anew lists the partitions that are to be folded again from their beginning: what was
// folded of them counts for nothing.
func (f *Follower) Anew() []int32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.anew()
}

func (f *Follower) anew() (all []int32) {
	for p, rest := range f.resting {
		if rest.anew {
			all = append(all, p)
		}
	}
	return all
}

// whole asks Kafka, of the partitions that have rested and are to be folded again, whether
// their journals have their beginning: nil if they do.
func (f *Follower) whole(ctx context.Context) map[int32]error {
	f.mu.Lock()
	due := slices.DeleteFunc(f.anew(), func(p int32) bool { return f.now().Before(f.resting[p].until) })
	f.mu.Unlock()
	is := make(map[int32]error)
	ctx, cancel := context.WithTimeout(ctx, beginsPatience) // for all: nothing is followed meanwhile
	defer cancel()
	for _, p := range due {
		is[p] = complete(f.begins(ctx, p))
	}
	return is
}

// wake goes on with the partitions that have rested. One that is to be folded again and
// cannot be, or of which Kafka does not say that, keeps its state and rests on.
func (f *Follower) wake(whole map[int32]error) {
	for p, rest := range f.resting {
		lost, asked := whole[p]
		if f.now().Before(rest.until) || rest.anew && !asked {
			continue
		}
		if rest.anew && lost != nil {
			if rest.until = f.now().Add(beginsAgain); errors.Is(lost, ErrBeginning) {
				rest.until = f.now().Add(restartEvery)
			}
			f.log.Error("the journal is not folded again; what was folded is kept", "partition", p, "error", lost)
			f.resting[p] = rest
			f.courses[p].why = lost
			f.states[p].FellBehind()
			delete(f.knew, p)
			continue
		}
		delete(f.resting, p)
		state := f.states[p]
		state.Forget()
		if rest.anew {
			f.restarted[p] = f.now()
			delete(f.knew, p)
			if err := state.Reset(); err != nil {
				f.log.Error("cannot reset the partition", "partition", p, "error", err)
			}
		}
		f.read(p, state)
	}
}
