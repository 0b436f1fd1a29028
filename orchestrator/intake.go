package orchestrator

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/lane"
)

// intake puts on Kafka what callers ask for: of each partition one batch at a time, and who
// comes meanwhile waits in line for the next. Kafka's client fails all that it has for a
// partition once the first of it is given up, so it is given nothing up with a caller:
// who hangs up leaves the line, and takes nobody along. What is in memory of callers that
// have left is one batch for each partition, however long that takes nothing.
type intake struct {
	produce  func(context.Context, *kgo.Record, func(*kgo.Record, error)) // of Kafka's client
	patience time.Duration                                                // of a caller, and with a batch

	mu      sync.Mutex
	lines   map[lane.TopicPartition][]*entry // of partitions of which a batch is on its way
	running sync.WaitGroup
}

// entry is a record that somebody waits for.
type entry struct {
	record *kgo.Record
	answer chan error // has room for one
}

// put puts a record into the partition that it names. If ctx has ended already, nothing is done. If it ends meanwhile, or the
// patience does, put returns the context's error, and the record may be on Kafka, or get there for as
// long as the patience with its batch lasts.
func (in *intake) put(ctx context.Context, r *kgo.Record) error {
	until := time.Now().Add(in.patience)
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	// Who has left does not look at the record: the client may be at it.
	at, e := lane.TopicPartition{Topic: r.Topic, Partition: r.Partition}, &entry{r, make(chan error, 1)}
	for ctx.Err() == nil {
		in.join(at, e)
		select {
		case err := <-e.answer:
			// Before the client knows a topic, it fails all of it with the first batch:
			// that was another partition's, and nothing was sent. What ends with the
			// patience itself may be told before ctx has ended.
			if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil || !time.Now().Before(until) {
				return err
			}
			r.Context = nil //nolint:fatcontext // it was the batch's, which has ended
		case <-ctx.Done():
			in.leave(at, e)
		}
	}
	return ctx.Err()
}

func (in *intake) join(at lane.TopicPartition, e *entry) {
	in.mu.Lock()
	defer in.mu.Unlock()
	line, served := in.lines[at]
	in.lines[at] = append(line, e)
	if !served {
		in.running.Go(func() { in.serve(at) })
	}
}

// leave takes a record that is still in line off it.
func (in *intake) leave(at lane.TopicPartition, e *entry) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if line := in.lines[at]; slices.Contains(line, e) {
		in.lines[at] = slices.DeleteFunc(line, func(have *entry) bool { return have == e })
	}
}

// serve writes batches until nobody waits.
func (in *intake) serve(at lane.TopicPartition) {
	for batch := in.next(at); len(batch) > 0; batch = in.next(at) {
		in.write(batch)
	}
}

// next takes a batch off a line: one record, and what else has room.
func (in *intake) next(at lane.TopicPartition) []*entry {
	in.mu.Lock()
	defer in.mu.Unlock()
	line := in.lines[at]
	n := 0
	for size := 0; n < len(line); n++ {
		if size += events.Size(line[n].record); size > events.MaxBatch && n > 0 {
			break
		}
	}
	batch := slices.Clone(line[:n])
	if in.lines[at] = slices.Delete(line, 0, n); n == 0 {
		delete(in.lines, at)
	}
	return batch
}

// write returns once it is known what became of a batch, or the patience with it is over.
func (in *intake) write(batch []*entry) {
	ctx, cancel := context.WithTimeout(context.Background(), in.patience)
	defer cancel()
	var under sync.WaitGroup
	under.Add(len(batch))
	for _, e := range batch {
		in.produce(ctx, e.record, func(_ *kgo.Record, err error) {
			e.answer <- err
			under.Done()
		})
	}
	under.Wait()
}
