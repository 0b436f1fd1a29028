package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/events/fetch"
	"github.com/waybill-dev/waybill/orchestrator/cluster"
	"github.com/waybill-dev/waybill/projections"
)

// HistoryPage is a part of what happened to an order.
type HistoryPage struct {
	Events []events.Event
	// Next is the number of the last event if more follow, else 0.
	Next uint64
}

const (
	// MaxHistory is how many events a page has at most.
	MaxHistory = 1000
	// historyBytes ends a page once its events have so many.
	historyBytes = 4 << 20
)

// History returns the events of an order behind a number, from the journal, in
// order (P4): at most limit of them, and fewer where they are large. Of a schedule it begins with one of the
// last hundred and more. It fails with
// [projections.ErrNotFound], [ErrElsewhere], [ErrUnknownYet] and [ErrSilent].
func (i *Instance) History(ctx context.Context, id string, after uint64, limit int) (_ HistoryPage, err error) {
	p, err := i.kept(id)
	if err != nil {
		return HistoryPage{}, err
	}
	without, offsets, err := i.store.Journal(p, id)
	if err := i.tells(p, err); err != nil { // its projection may have been thrown away meanwhile
		return HistoryPage{}, err
	}
	// Events are numbered from 1, without gaps.
	after = max(after, without)
	offsets = offsets[min(after-without, uint64(len(offsets))):]
	last := after + uint64(len(offsets))
	offsets = offsets[:min(limit, len(offsets))]
	if len(offsets) == 0 {
		return HistoryPage{}, nil
	}
	reader, err := i.reads(ctx, p)
	if err != nil {
		return HistoryPage{}, err
	}
	defer func() { reader.end(err) }()
	read := func(offset int64) {
		reader.RemoveConsumePartitions(map[string][]int32{i.topics.Journal: {p}})
		reader.AddConsumePartitions(map[string]map[int32]kgo.Offset{i.topics.Journal: {p: kgo.NewOffset().At(offset)}})
	}

	page := HistoryPage{Events: make([]events.Event, 0, len(offsets))}
	bytes := 0
	more := func() bool { return len(page.Events) < len(offsets) && bytes < historyBytes }
	read(offsets[0])
	for more() {
		fetches, err := reader.poll(ctx)
		if err != nil {
			return HistoryPage{}, fmt.Errorf("read the history of order %q: %w", id, err)
		}
		var at int64
		for it := fetches.RecordIter(); !it.Done() && more(); {
			r := it.Next()
			if at = r.Offset; r.Partition != p || at != offsets[len(page.Events)] {
				continue
			}
			e, err := events.Decode[events.Event](r.Value)
			if err != nil {
				return HistoryPage{}, fmt.Errorf("journal partition %d offset %d: %w", p, r.Offset, err)
			}
			if e.Order != id {
				return HistoryPage{}, fmt.Errorf("%w: journal partition %d offset %d is of order %q, and not of %q", projections.ErrDamaged, p, r.Offset, e.Order, id)
			}
			page.Events = append(page.Events, e)
			bytes += len(r.Value)
		}
		const far = 1000 // offsets that are cheaper to jump over than to read
		if n := len(page.Events); more() && offsets[n]-at > far {
			read(offsets[n])
		}
	}
	if at := after + uint64(len(page.Events)); at < last {
		page.Next = at
	}
	return page, nil
}

// MaxAsOf is the last event as of which an order is told.
const MaxAsOf = 10_000

// AsOf returns the state record of an order as it was after its event of a number, at most [MaxAsOf], made of its
// events, and when that was. What an order of before [events.KeysFormat] may have done under which keys, and which orders had left something
// before [events.LeftByFormat], it tells as of now. It fails as
// [Instance.History] does, and with [projections.ErrNotFound] for what is no order, or has no such event.
func (i *Instance) AsOf(ctx context.Context, id string, seq uint64) (*projections.Order, time.Time, error) {
	o, at := new(projections.Order), time.Time{}
	o.In(events.JournalFormat)
	for o.Seq < seq {
		page, err := i.History(ctx, id, o.Seq, int(min(seq-o.Seq, MaxHistory)))
		if err != nil {
			return nil, at, err
		}
		for n := range page.Events {
			if err := o.Apply(&page.Events[n]); err != nil {
				return nil, at, fmt.Errorf("order %q, event %d: %w", id, page.Events[n].Seq, err)
			}
			at = page.Events[n].At
		}
		if o.Beside() || page.Next == 0 && o.Seq < seq {
			return nil, at, fmt.Errorf("%w: %q has no event %d", projections.ErrNotFound, id, seq)
		}
	}
	return o, at, nil
}

// pageReader reads the journal for one history after the other.
type pageReader struct {
	*kgo.Client
	fetched fetch.Bound
}

func (r *pageReader) poll(ctx context.Context) kgo.Fetches { return r.fetched.Poll(ctx, 0) }

// ErrSilent says that Kafka tells nothing of a partition of the journal.
var ErrSilent = errors.New("nothing was heard from the journal for seconds")

// silencePatience is for how long a history waits for a record.
const silencePatience = 5 * time.Second

// silenceMoment is after how long a history that waits for a record goes on aside.
const silenceMoment = 500 * time.Millisecond

// silences are the partitions of the journal of which the last history to be read heard
// nothing. These are read aside, as far as there is room, so that the others find a reader.
type silences struct {
	moment, patience time.Duration

	mu     sync.Mutex
	slow   map[int32]time.Time // since when nothing was heard of it, though somebody waited for a moment
	of     map[int32]bool      // those that are slow for as long as the patience: one at a time tries each
	trying map[int32]bool
	aside  int // readers beside those that all share
}

func newSilences() silences {
	return silences{
		moment: silenceMoment, patience: silencePatience,
		slow: make(map[int32]time.Time), of: make(map[int32]bool), trying: make(map[int32]bool),
	}
}

// read is a history of a partition that is being read, on a reader of its own.
type read struct {
	*pageReader
	instance       *Instance
	partition      int32
	tries, isAside bool // as the places that it has say
}

// reads has somebody read a partition, who calls end once that is done. It waits for its
// turn, but for a partition that is silent, where it fails with [ErrSilent].
func (i *Instance) reads(ctx context.Context, p int32) (_ *read, err error) {
	r := &read{instance: i, partition: p}
	if err := r.enter(); err != nil {
		return nil, err
	}
	if r.isAside {
		r.pageReader, err = i.newReader()
	} else {
		r.pageReader, err = i.reader(ctx)
	}
	if err != nil {
		r.leave()
		return nil, err
	}
	return r, nil
}

func (r *read) enter() error {
	s := &r.instance.silences
	s.mu.Lock()
	defer s.mu.Unlock()
	silent := s.of[r.partition]
	if silent && s.trying[r.partition] {
		return fmt.Errorf("%w: partition %d was silent when it was tried last, and somebody tries it now", ErrSilent, r.partition)
	}
	if !s.slow[r.partition].IsZero() && !r.stepAside() && silent {
		return fmt.Errorf("%w: partition %d was silent when it was tried last, and others try such ones now", ErrSilent, r.partition)
	}
	if r.tries = silent; silent {
		s.trying[r.partition] = true
	}
	return nil
}

// stepAside takes a place beside those of the readers that all share, if one is free.
func (r *read) stepAside() bool {
	s := &r.instance.silences
	if s.aside == maxAside {
		return false
	}
	s.aside++
	r.isAside = true
	return true
}

func (r *read) leave() {
	s := &r.instance.silences
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.tries {
		delete(s.trying, r.partition)
	}
	if r.isAside {
		s.aside--
	}
}

// poll fails with [ErrSilent] if nothing comes.
func (r *read) poll(ctx context.Context) (kgo.Fetches, error) {
	s := &r.instance.silences
	for began := time.Now(); ; {
		s.mu.Lock()
		until, soon := began.Add(s.patience), time.Now().Add(s.moment)
		s.mu.Unlock()
		if soon.Before(until) {
			until = soon
		}
		wait, cancel := context.WithDeadline(ctx, until)
		fetches := r.pageReader.poll(wait)
		over := wait.Err() != nil
		cancel()
		if fetches.NumRecords() > 0 {
			s.heard(r.partition)
			return fetches, nil
		}
		err := fetches.Err0()
		if over {
			err = r.heardNothing(ctx.Err(), time.Since(began))
		}
		if err != nil {
			return nil, err
		}
	}
}

func (s *silences) heard(p int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.slow, p)
	delete(s.of, p)
}

// heardNothing fails if the wait is over, and else goes on with it, aside if there is room.
// Who hangs up within a moment says nothing of the partition.
func (r *read) heardNothing(gone error, waited time.Duration) error {
	s, p := &r.instance.silences, r.partition
	s.mu.Lock()
	defer s.mu.Unlock()
	if waited >= min(s.moment, s.patience) {
		if s.slow[p].IsZero() {
			s.slow[p] = time.Now().Add(-waited)
		}
		s.of[p] = s.of[p] || time.Since(s.slow[p]) >= s.patience
	}
	switch {
	case gone != nil:
		return gone
	case waited >= s.patience:
		return fmt.Errorf("%w: partition %d", ErrSilent, p)
	case !r.isAside && r.stepAside():
		r.instance.readers <- nil
	}
	return nil
}

// end gives the reader back. One that is aside is kept where there is a place without one.
func (r *read) end(err error) {
	defer r.leave()
	if r.isAside && (failed(err) || !r.instance.lacksReader()) {
		r.instance.closeReader(r.pageReader, r.partition)
		return
	}
	r.instance.giveBack(r.pageReader, r.partition, err)
}

// lacksReader takes a place that has no reader yet, if one is free.
func (i *Instance) lacksReader() bool {
	select {
	case other := <-i.readers:
		if other == nil {
			return true
		}
		i.readers <- other
	default:
	}
	return false
}

// failed says that a reader may be the reason: not where nothing came, since where Kafka is
// slow the next finds it connected.
func failed(err error) bool { return err != nil && !errors.Is(err, ErrSilent) }

// maxReaders is how many histories are read at the same time. Their readers of the
// journal are kept for the next: a new one spends most of its time on connections.
// maxAside is how many more wait for partitions that are slow.
const maxReaders, maxAside = 4, 8

// newReaders are the places of so many readers, none of which is there yet.
func newReaders() chan *pageReader {
	readers := make(chan *pageReader, maxReaders)
	for range maxReaders {
		readers <- nil
	}
	return readers
}

// reader waits for its turn, and returns a reader of the journal for one caller,
// that reads nothing yet.
func (i *Instance) reader(ctx context.Context) (r *pageReader, err error) {
	select {
	case r = <-i.readers:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for a reader of the journal: %w", ctx.Err())
	}
	if r == nil {
		if r, err = i.newReader(); err != nil {
			i.readers <- nil
		}
	}
	return r, err
}

func (i *Instance) newReader() (r *pageReader, err error) {
	r = new(pageReader)
	if r.Client, err = r.fetched.NewClient(append(i.kafka[:len(i.kafka):len(i.kafka)],
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchMaxPartitionBytes(64<<10), // an order's events are few, and what lies behind them is read for nothing
		kgo.MetadataMinAge(cluster.MetadataMinAge),
	)...); err != nil {
		return nil, fmt.Errorf("reader of the journal: %w", err)
	}
	return r, nil
}

// giveBack takes a reader back that has read partition p, and keeps it unless it failed.
func (i *Instance) giveBack(r *pageReader, p int32, err error) {
	if failed(err) {
		i.readers <- nil // closing may take a moment
		i.closeReader(r, p)
		return
	}
	i.stopReader(r, p)
	i.readers <- r
}

func (i *Instance) stopReader(r *pageReader, p int32) {
	r.RemoveConsumePartitions(map[string][]int32{i.topics.Journal: {p}})
}

// closeReader closes a reader that does not fetch: kgo does not expect that one does.
func (i *Instance) closeReader(r *pageReader, p int32) {
	i.stopReader(r, p)
	r.Close()
}
