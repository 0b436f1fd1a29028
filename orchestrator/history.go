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
// order (P4): at most limit of them, and fewer where they are large. It fails with
// [projections.ErrNotFound], [ErrElsewhere], [ErrUnknownYet] and [ErrSilent].
func (i *Instance) History(ctx context.Context, id string, after uint64, limit int) (_ HistoryPage, err error) {
	p, err := i.kept(id)
	if err != nil {
		return HistoryPage{}, err
	}
	offsets, err := i.store.Journal(p, id)
	if err := i.tells(p, err); err != nil { // its projection may have been thrown away meanwhile
		return HistoryPage{}, err
	}
	// Events are numbered from 1, without gaps.
	offsets = offsets[min(after, uint64(len(offsets))):]
	last := after + uint64(len(offsets))
	offsets = offsets[:min(limit, len(offsets))]
	if len(offsets) == 0 {
		return HistoryPage{}, nil
	}
	leave, err := i.silences.enter(p)
	if err != nil {
		return HistoryPage{}, err
	}
	defer leave()
	reader, err := i.reader(ctx)
	if err != nil {
		return HistoryPage{}, err
	}
	defer func() { i.giveBack(reader, p, err) }()
	read := func(offset int64) {
		reader.RemoveConsumePartitions(map[string][]int32{i.topics.Journal: {p}})
		reader.AddConsumePartitions(map[string]map[int32]kgo.Offset{i.topics.Journal: {p: kgo.NewOffset().At(offset)}})
	}

	page := HistoryPage{Events: make([]events.Event, 0, len(offsets))}
	bytes := 0
	more := func() bool { return len(page.Events) < len(offsets) && bytes < historyBytes }
	read(offsets[0])
	for more() {
		fetches, err := i.silences.poll(ctx, p, reader)
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
		const far = 10_000 // offsets that are cheaper to jump over than to read
		if n := len(page.Events); more() && offsets[n]-at > far {
			read(offsets[n])
		}
	}
	if at := after + uint64(len(page.Events)); at < last {
		page.Next = at
	}
	return page, nil
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

// silences are the partitions of the journal of which the last history to be read heard
// nothing. One at a time tries each of them, and one reader is for the others.
type silences struct {
	patience time.Duration

	mu     sync.Mutex
	of     map[int32]bool
	trying map[int32]bool
}

// enter has somebody read a partition, or fails with [ErrSilent]. The caller calls leave
// once it is done.
func (s *silences) enter(p int32) (leave func(), _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.of[p] {
		return func() {}, nil
	}
	if s.trying[p] || len(s.trying) == maxReaders-1 {
		return nil, fmt.Errorf("%w: partition %d was silent when it was tried last, and others try it or such ones now", ErrSilent, p)
	}
	s.trying[p] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.trying, p)
	}, nil
}

// poll fails with [ErrSilent] if nothing comes.
func (s *silences) poll(ctx context.Context, p int32, r *pageReader) (kgo.Fetches, error) {
	s.mu.Lock()
	patience := s.patience
	s.mu.Unlock()
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	fetches := r.poll(wait)
	err := errors.Join(fetches.Err0(), ctx.Err())
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
		s.of[p] = true
		err = fmt.Errorf("%w: partition %d", ErrSilent, p)
	case fetches.NumRecords() > 0:
		delete(s.of, p)
	}
	return fetches, err
}

// maxReaders is how many histories are read at the same time. Their readers of the
// journal are kept for the next: a new one spends most of its time on connections.
const maxReaders = 4

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
	if r != nil {
		return r, nil
	}
	r = new(pageReader)
	if r.Client, err = r.fetched.NewClient(append(i.kafka[:len(i.kafka):len(i.kafka)],
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.MetadataMinAge(cluster.MetadataMinAge),
	)...); err != nil {
		i.readers <- nil
		return nil, fmt.Errorf("reader of the journal: %w", err)
	}
	return r, nil
}

// giveBack takes a reader back that has read partition p, and keeps it if all
// went well, or it heard nothing: where Kafka is slow the next finds it connected.
func (i *Instance) giveBack(r *pageReader, p int32, err error) {
	r.RemoveConsumePartitions(map[string][]int32{i.topics.Journal: {p}})
	if err != nil && !errors.Is(err, ErrSilent) {
		r.Close()
		r = nil
	}
	i.readers <- r
}
