package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/waybill-dev/waybill/orchestrator/lane"
)

// progress is how far the instance is with each partition, as it tells the group, and
// what the group has it get next.
type progress struct {
	partitions int32
	within     int64 // how many records behind the end of a journal count as ready
	// ends are where the journals end; of a journal of which Kafka does not tell, as it
	// was. Then with how many records of it each partition was folded, and which are
	// served here.
	ends   func(context.Context) (map[int32]int64, error)
	folded func() (map[int32]int64, error)
	serves func(p int32) bool
	now    func() time.Time // for what lasts
	// session is for how long Kafka may tell nothing before the group may have given the
	// instance's partitions to others.
	session time.Duration

	mu     sync.Mutex
	heard  time.Time       // as of when Kafka told anything
	unsaid error           // why it did not when it was asked last
	last   map[int32]int64 // the ends
	behind map[int32]int64 // how many records are not folded, as far as that is known
	steps  string          // see [told]
	next   []int32         // what the instance is to get once it is ready for it
	since  time.Time       // when it was told so, or the operator that it does not come closer
	asked  time.Time       // when it told the group last that it is
}

const (
	// lookEvery is how often an instance looks how far it is, and lookPatience how long
	// Kafka may take to say where the journals end.
	lookEvery, lookPatience = time.Second, 2 * time.Second
	// leastSilence is after how long at the earliest an instance says that it does not hear
	// from Kafka: after two looks that failed, where they take as long as they may.
	leastSilence = 2 * (lookEvery + lookPatience)
	// askEvery is how often the group is told at most that the instance is ready for
	// more: all members join anew then.
	askEvery = 5 * time.Second
	// slowAfter is how long an instance may take to come close to the end of what it is to
	// get, before it says that it does not; and again after as long.
	slowAfter = 5 * time.Minute

	// farthest is the step of a partition of which nothing is known.
	farthest = 35
)

// stepOf is how far behind is, in coarse steps: 0 is ready, and each further one is twice
// as far.
func stepOf(behind, within int64) int {
	if behind <= within {
		return 0
	}
	return min(bits.Len64(uint64(behind)), farthest)
}

// newProgress returns that of an instance which has not looked yet, and is ready for
// nothing.
func newProgress(partitions int32, within int64) *progress {
	return &progress{
		partitions: partitions, within: within, now: time.Now, last: make(map[int32]int64),
		steps: strings.Repeat(strconv.FormatInt(farthest, 36), int(partitions)),
	}
}

// look sees how far the instance is.
func (g *progress) look(ctx context.Context) error {
	ask, cancel := context.WithTimeout(ctx, lookPatience)
	defer cancel()
	asked := g.now()
	ends, silent := g.ends(ask)
	g.hearsKafka(asked, len(ends) > 0, silent)
	folded, err := g.folded() // waits for the follower, and those who join must not
	g.mu.Lock()
	defer g.mu.Unlock()
	g.behind = make(map[int32]int64) // of those of which Kafka told just now; what the group is told may be older
	if err != nil {
		return err
	}
	maps.Copy(g.last, ends)
	steps := make([]byte, 0, g.partitions)
	for p := range g.partitions {
		step := farthest
		end, known := g.last[p]
		switch {
		case g.serves(p):
			step, g.behind[p] = 0, 0
		case known:
			lacks := max(0, end-folded[p])
			step = stepOf(lacks, g.within)
			if _, told := ends[p]; told {
				g.behind[p] = lacks
			}
		}
		steps = strconv.AppendInt(steps, int64(step), 36)
	}
	g.steps = string(steps)
	return silent
}

func (g *progress) hearsKafka(asked time.Time, told bool, why error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.unsaid = why; told || g.heard.IsZero() { // it listens from its first look on
		g.heard = asked
	}
}

// silent is for how long Kafka has told nothing, and why, 0 unless the group may have given the
// instance's partitions to others since.
func (g *progress) silent() (time.Duration, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if since := g.now().Sub(g.heard); !g.heard.IsZero() && since >= max(g.session, leastSilence) {
		return since, cmp.Or(g.unsaid, errors.New("it named no partition"))
	}
	return 0, nil
}

// tells is how far the instance is.
func (g *progress) tells() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.steps
}

// lag is how many records of its journal are missing of a partition, as of the last look;
// false if that is not known.
func (g *progress) lag(p int32) (records int64, known bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	records, known = g.behind[p]
	return records, known
}

// hears notes what the instance is to get next.
func (g *progress) hears(next []int32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !slices.Equal(g.next, next) {
		g.since = g.now()
	}
	g.next = next
}

// slow lists what the instance was to get for long, if it is time to say that it does not
// come close to the end of that.
func (g *progress) slow() []int32 {
	g.mu.Lock()
	defer g.mu.Unlock()
	slow := slices.DeleteFunc(slices.Clone(g.next), func(p int32) bool { return p < g.partitions && g.steps[p] == '0' })
	if len(slow) == 0 || g.now().Sub(g.since) < slowAfter {
		return nil
	}
	g.since = g.now()
	return slow
}

// ahead lists what the instance is to get next.
func (g *progress) ahead() []int32 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.next
}

// asks lists the partitions that the instance is to get and is ready for by now, if it is
// time to tell the group so. None of them was ready when the group dealt last.
func (g *progress) asks() []int32 {
	g.mu.Lock()
	defer g.mu.Unlock()
	var ready []int32
	for _, p := range g.next {
		if p < g.partitions && g.steps[p] == '0' {
			ready = append(ready, p)
		}
	}
	if len(ready) == 0 || !g.asked.IsZero() && g.now().Sub(g.asked) < askEvery {
		return nil
	}
	g.asked = g.now()
	return ready
}

// journalEnds asks Kafka where the journals end, with what is not committed yet: a
// transaction that hangs may have been acknowledged. The follower hears of it.
func (i *Instance) journalEnds(ctx context.Context) (map[int32]int64, error) {
	asked := time.Now()
	listed, err := i.admin.ListEndOffsets(ctx, i.topics.Journal) // of the others though some have no leader
	ends := make(map[int32]int64)
	listed.Each(func(o kadm.ListedOffset) {
		if o.Err == nil {
			ends[o.Partition] = o.Offset
		}
	})
	i.follower.Ends(asked, ends)
	if err != nil {
		return ends, fmt.Errorf("ask where the journals end: %w", err)
	}
	return ends, nil
}

// journalBegins asks Kafka where a journal begins.
func (i *Instance) journalBegins(ctx context.Context, p int32) (int64, error) {
	listed, err := i.admin.ListStartOffsets(ctx, i.topics.Journal)
	if at, told := listed.Lookup(i.topics.Journal, p); told { // though others have no leader
		return at.Offset, at.Err
	}
	return 0, cmp.Or(err, errors.New("Kafka does not say")) //nolint:staticcheck // a name
}

// folded is with how many records of its journal each partition was folded, or read
// where that is more: not all records are to be folded.
func (i *Instance) folded() (map[int32]int64, error) {
	heads, err := i.store.Heads(i.partitions)
	if err != nil {
		return nil, err
	}
	folded := i.follower.Reads()
	for p, head := range heads {
		folded[int32(p)] = max(folded[int32(p)], head.Offset)
	}
	for _, p := range i.follower.Anew() {
		folded[p] = 0
	}
	return folded, nil
}

// comeCloser looks from time to time how far the instance is, has it follow what it is to
// get next, and tells the group by rejoin once it is ready for that, until ctx ends.
func (i *Instance) comeCloser(ctx context.Context, rejoin func()) {
	cut := false
	for pause(ctx, lookEvery) {
		if silent := i.hears(); (silent != nil) != cut {
			if cut = !cut; cut {
				i.log.Warn("the instance does not hear from Kafka, and is not ready", "error", silent)
			} else {
				i.log.Info("the instance hears from Kafka again")
			}
		}
		i.follower.Ahead(i.progress.ahead())
		if err := i.progress.look(ctx); err != nil && ctx.Err() == nil {
			i.log.Debug("cannot tell how far the partitions are", "error", err)
		}
		if slow := i.progress.slow(); len(slow) > 0 {
			i.log.Warn("the instance does not come close to the end of partitions that it is to get; others keep them", "partitions", slow, "behind", i.Behind())
		}
		if ready := i.progress.asks(); len(ready) > 0 {
			i.log.Info("the instance is close enough to the end of partitions that it is to get, and tells the group", "partitions", ready)
			rejoin()
		}
	}
}

// Behind is of how many records of its journal this instance has not heard yet, as of a
// second ago, of the partition of which most are missing; -1 if of none of them that is
// known. Those that it leaves to others do not count.
func (i *Instance) Behind() (most int64) {
	most = -1
	ahead, elsewhere := i.progress.ahead(), i.Elsewhere()
	for p := range i.partitions {
		if records, known := i.progress.lag(p); known && (slices.Contains(ahead, p) || !slices.Contains(elsewhere, p)) {
			most = max(most, records)
		}
	}
	return most
}

// Lag is of how many records of a partition's journal this instance has not heard yet, as
// of a second ago; false if that is not known.
func (i *Instance) Lag(p int32) (records int64, known bool) { return i.progress.lag(p) }

// ErrUnknownYet says that a partition is not caught up, so that an order which is not in its
// store may be in the journal.
var ErrUnknownYet = errors.New("not known yet")

// Knows says whether an order of partition p that is not in the store is not in the journal
// either, but for what was written in the last seconds. It does not where the instance does
// not hear from Kafka: others may have the partition.
func (i *Instance) Knows(p int32) bool { return i.store.Known(p) && i.hears() == nil }

// hears fails with [ErrUnknownYet] if the instance does not hear from Kafka for so long that the
// group may have given its partitions to others.
func (i *Instance) hears() error {
	if silent, why := i.progress.silent(); silent > 0 {
		return fmt.Errorf("%w: Kafka has not said to this instance for %s where the journals end, and others may have its partitions; ask another instance: %w", ErrUnknownYet, silent.Round(time.Second), why)
	}
	return nil
}

// unknownYet lists the partitions, but for some, that are not known.
func (i *Instance) unknownYet(but []int32) []int32 {
	var unknown []int32
	for p := range i.partitions {
		if !i.Knows(p) && !slices.Contains(but, p) {
			unknown = append(unknown, p)
		}
	}
	return unknown
}

// known fails with [ErrUnknownYet] if partition p is not known.
func (i *Instance) known(p int32) error {
	if err := i.hears(); err != nil || i.store.Known(p) {
		return err
	}
	why := i.members.failed(p)
	if why == nil {
		_, why = i.follower.Stands(p)
	}
	if why != nil {
		return fmt.Errorf("%w: this instance cannot read partition %d to its end; ask another instance: %v", ErrUnknownYet, p, why)
	}
	return fmt.Errorf("%w: this instance has not read partition %d to its end; try again in a moment, or ask another instance", ErrUnknownYet, p)
}

// tells is what is said of an order of partition p, err being what came of looking for it:
// [ErrUnknownYet] unless p is known. Where p is stopped here, or was known until Kafka fell
// silent, an order is told as it stood before.
func (i *Instance) tells(p int32, err error) error {
	if unknown := i.known(p); unknown != nil && (err != nil || !i.members.stopped(p) && !i.knew(p)) {
		return unknown
	}
	return err
}

// knew says whether what the store has of partition p was all that there was, until Kafka fell
// silent, if it is not now.
func (i *Instance) knew(p int32) bool { return i.store.Known(p) || i.follower.Knew(p) }

// caughtUp returns nil if the instance knows the partitions that it is to answer for, and
// those that it is to get next; else what is missing. One that cannot be read is in
// nobody's way, as long as others are known: it is the same for whoever comes next. One
// whose journal has no beginning is: who comes next may be the last to have its state.
func (i *Instance) caughtUp() error {
	unknown := i.unknownYet(i.Elsewhere())
	for _, p := range i.progress.ahead() {
		if p < i.partitions && !i.Knows(p) && !slices.Contains(unknown, p) {
			unknown = append(unknown, p)
		}
	}
	none := len(i.unknownYet(nil)) == int(i.partitions)
	for _, p := range unknown {
		if stands, why := i.follower.Stands(p); !stands || none || errors.Is(why, lane.ErrBeginning) {
			return fmt.Errorf("%d partitions are not caught up yet: %w", len(unknown), i.known(p))
		}
	}
	return nil
}
