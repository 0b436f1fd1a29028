package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/events/fetch"
	"github.com/waybill-dev/waybill/projections"
)

// journal reads the committed records of one partition from the beginning.
type journal struct {
	client    *kgo.Client
	bound     fetch.Bound
	topic     string
	partition int32
	position  int64 // behind the last record that was read
	end       int64 // of the log, when reading began
	fetched   []*kgo.Record
}

// openJournal begins to read a partition. The caller closes the result.
func (r *replay) openJournal(ctx context.Context, p int32) (*journal, error) {
	topic := r.topics.Journal
	starts, err := r.admin.ListStartOffsets(ctx, topic)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("find the beginning of %s: %w", topic, err)
	}
	// The end of the log and not the last stable offset, which lags behind it.
	ends, err := r.admin.ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("find the end of %s: %w", topic, err)
	}
	start, _ := starts.Lookup(topic, p)
	end, _ := ends.Lookup(topic, p)
	j := &journal{topic: topic, partition: p, position: start.Offset, end: end.Offset}
	j.client, err = j.bound.NewClient(append(r.kafka[:len(r.kafka):len(r.kafka)],
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {p: kgo.NewOffset().At(start.Offset)}}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), // the log may end in them
		kgo.FetchMaxWait(time.Second),
	)...)
	if err != nil {
		return nil, fmt.Errorf("reader of the journal: %w", err)
	}
	return j, nil
}

func (j *journal) close() { j.client.Close() }

// journalPatience is how long the reader waits for records that are there.
const journalPatience = 30 * time.Second

// next returns the next record, which may be a control record. Call it only
// while there must be one.
func (j *journal) next(ctx context.Context) (*kgo.Record, error) {
	for len(j.fetched) == 0 {
		poll, cancel := context.WithTimeout(ctx, journalPatience)
		fetches := j.bound.Poll(poll, 10_000)
		late := poll.Err() != nil
		cancel()
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if late {
			return nil, fmt.Errorf("no progress in %s partition %d from offset %d for %s: a transaction that hangs keeps its readers from going on", j.topic, j.partition, j.position, journalPatience)
		}
		if failed := fetches.Errors(); len(failed) > 0 {
			return nil, fmt.Errorf("read %s partition %d at offset %d: %w", j.topic, j.partition, j.position, failed[0].Err)
		}
		j.fetched = fetches.Records()
	}
	record := j.fetched[0]
	j.fetched = j.fetched[1:]
	j.position = record.Offset + 1
	return record, nil
}

// folding is a partition on its way from the journal into the store.
type folding struct {
	*journal
	state  *projections.Partition
	events int64
}

func (r *replay) fold(ctx context.Context, p int32) (*folding, error) {
	state, err := r.store.Partition(p)
	if err != nil {
		return nil, err
	}
	j, err := r.openJournal(ctx, p)
	if err != nil {
		return nil, err
	}
	return &folding{journal: j, state: state}, nil
}

// toEnd folds up to the end that the log had when reading began.
func (f *folding) toEnd(ctx context.Context) error {
	return f.while(ctx, func() bool { return f.position < f.end })
}

// to folds up to the transaction that ends before offset.
func (f *folding) to(ctx context.Context, offset int64) error {
	if err := f.while(ctx, func() bool { return f.state.Head().Offset < offset }); err != nil {
		return err
	}
	if at := f.state.Head().Offset; at != offset {
		return fmt.Errorf("partition %d of the instance stands at journal offset %d, which lies before offset %d or within a transaction; does another instance answer at the same address?", f.partition, offset, at)
	}
	return nil
}

func (f *folding) while(ctx context.Context, more func() bool) error {
	const flushEvery = 10_000
	for more() {
		record, err := f.next(ctx)
		if err != nil {
			return err
		}
		if record.Attrs.IsControl() {
			continue
		}
		if err := f.state.Fold(record.Offset, record.Value, events.HeaderValue(record, events.HeaderLane)); err != nil {
			return err
		}
		if f.events++; f.events%flushEvery == 0 {
			if err := f.state.Flush(); err != nil {
				return err
			}
		}
	}
	return f.state.Flush()
}
