package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/cluster"
	"github.com/waybill-dev/waybill/orchestrator/lane"
)

// script is what Waybill wrote of one order, by what came: the submission, and the reply of
// each step.
type script struct {
	order   []byte
	answers map[string][]*kgo.Record // by the step, "" for the submission
}

// pipe writes the records that Waybill would, with its readers and producers, and knows
// nothing: it keeps no state and decides nothing. So it is the limit to compare with.
type pipe struct {
	script
	cluster *cluster.Cluster
	topics  *events.Topics
}

// follow returns the script of an order that has ended, and was alone on its partition.
func follow(ctx context.Context, k *cluster.Cluster, topics *events.Topics, shape *Shape, key string, partition int32) (s script, err error) {
	journal, err := all(ctx, k, topics.Journal, partition)
	if err != nil {
		return s, err
	}
	s = script{[]byte(key), make(map[string][]*kgo.Record)}
	// An order that is alone gets a transaction for each thing that comes for it.
	next, steps := 0, []string{""}
	for n := range shape.Steps {
		steps = append(steps, shape.step(n))
	}
	for _, r := range journal {
		if string(r.Key) != key {
			continue
		}
		if next == len(steps) {
			return s, fmt.Errorf("an order of %d steps took more than %d transactions", shape.Steps, next)
		}
		s.answers[steps[next]] = append(s.answers[steps[next]], r)
		if events.HeaderValue(r, events.HeaderLane) != nil {
			next++
		}
	}
	statuses, err := all(ctx, k, topics.Status, partition)
	if err != nil {
		return s, err
	}
	if next != len(steps) || len(statuses) != 2 {
		return s, fmt.Errorf("an order of %d steps took %d transactions and has %d statuses", shape.Steps, next, len(statuses))
	}
	s.answers[""] = append(s.answers[""], statuses[0])
	s.answers[steps[shape.Steps]] = append(s.answers[steps[shape.Steps]], statuses[1])
	for n, task := range tasks[:min(len(tasks), shape.Steps)] {
		requests, err := all(ctx, k, topics.Requests(task[0]), partition)
		if err != nil {
			return s, err
		}
		for i, r := range requests {
			s.answers[steps[n+i*len(tasks)]] = append(s.answers[steps[n+i*len(tasks)]], r)
		}
	}
	return s, nil
}

// all are the records of a partition that are committed.
func all(ctx context.Context, k *cluster.Cluster, topic string, partition int32) (records []*kgo.Record, err error) {
	b := k.Broker(partition)
	end, err := b.End(ctx, lane.TopicPartition{Topic: topic, Partition: partition}, true)
	if err != nil {
		return nil, err
	}
	reader, err := b.Read(partition, true)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	reader.Seek(map[string]int64{topic: 0})
	for read := int64(0); read < end; {
		fetches := reader.Poll(ctx, lane.PollRecords)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("read %s: %w", topic, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if read = r.Offset + 1; !r.Attrs.IsControl() {
				records = append(records, r)
			}
		})
	}
	return records, nil
}

// run moves the records of some partitions, which share a transaction, until ctx ends.
func (p *pipe) run(ctx context.Context, partitions []int32) error {
	b := p.cluster.Broker(partitions[0])
	from := make(map[string]int64)
	for _, topic := range p.topics.Inputs() {
		from[topic] = 0
	}
	reader, err := b.Read(partitions[0], true)
	if err != nil {
		return err
	}
	defer reader.Close()
	reader.Seek(from)
	for _, more := range partitions[1:] {
		for topic := range from {
			reader.Add(lane.TopicPartition{Topic: topic, Partition: more}, 0)
		}
	}
	slots := make([]int, lane.Slots)
	for n := range slots {
		slots[n] = n
	}
	producers, err := b.Fence(ctx, func(lane.TopicPartition) bool { return false }, slots...)
	if err != nil {
		return err
	}
	defer func() {
		for _, one := range producers {
			one.Close()
		}
	}()

	// One batch is committed while the next is read, as a lane does it.
	batches := make(chan []*kgo.Record)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var committing sync.WaitGroup
	defer committing.Wait()
	defer close(batches)
	committing.Go(func() {
		slot := 0
		for records := range batches {
			if err := producers[slot].Commit(records); err != nil {
				cancel(commitError{err})
				return
			}
			slot = (slot + 1) % lane.Slots
		}
	})
	for ctx.Err() == nil {
		fetches := reader.Poll(ctx, lane.PollRecords)
		if ctx.Err() != nil {
			break
		}
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("read the inputs: %w", err)
		}
		records, err := p.answer(fetches.Records())
		if err != nil {
			return err
		}
		if len(records) == 0 {
			continue
		}
		select {
		case batches <- records:
		case <-ctx.Done():
		}
	}
	if failed, ok := errors.AsType[commitError](context.Cause(ctx)); ok {
		return failed.error
	}
	return nil
}

// commitError is that of a transaction, which ends the pipe though nothing more comes.
type commitError struct{ error }

// answer is what Waybill would write of these inputs, in one transaction.
func (p *pipe) answer(inputs []*kgo.Record) (records []*kgo.Record, err error) {
	last := -1 // journal record, which says where the lane stands
	for _, in := range inputs {
		if in.Attrs.IsControl() || bytes.Equal(in.Key, p.order) {
			continue
		}
		step := ""
		if in.Topic == p.topics.Replies {
			_, rest, _ := bytes.Cut(in.Value, []byte(`"step":"`))
			name, _, _ := bytes.Cut(rest, []byte(`"`))
			step = string(name)
		}
		answers := p.answers[step]
		if answers == nil {
			return nil, errors.New("a reply of a step that nobody asked for: " + string(in.Value))
		}
		for _, r := range answers {
			if r.Topic == p.topics.Journal {
				last = len(records)
			}
			records = append(records, p.of(r, in.Key))
		}
	}
	for n, r := range records {
		if n != last {
			r.Headers = slices.DeleteFunc(r.Headers, func(h kgo.RecordHeader) bool { return h.Key == events.HeaderLane })
		}
	}
	return records, nil
}

// of is a record of the script, of another order.
func (s *script) of(r *kgo.Record, order []byte) *kgo.Record {
	other := &kgo.Record{Topic: r.Topic, Key: order, Value: bytes.ReplaceAll(r.Value, s.order, order), Headers: slices.Clone(r.Headers)}
	for n, h := range other.Headers {
		other.Headers[n].Value = bytes.ReplaceAll(h.Value, s.order, order)
	}
	return other
}
