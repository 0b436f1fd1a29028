package orchestrator

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-dev/waybill/events"
)

// A transaction hangs when a partition has its records but never got its
// marker, and the coordinator has forgotten it: readers of that partition stand
// still for ever. Kafka 4.3 leaves such transactions behind when a broker shuts
// down in good order under load and its partitions have no other replica. The
// coordinator then finds no leader to send the markers to, takes the partitions
// for deleted, and passes over some or all of them, although it had
// acknowledged the commit.
//
// Waybill ends what hangs, which needs no more than the right to write, and in
// the way in which it ended elsewhere: see [lane.sweep].

// openTransaction is a transaction that a partition has open.
type openTransaction struct {
	topic     string
	partition int32
	producer  int64
	epoch     int16
	offset    int64 // of its first record
	written   int64 // when its last record was written, in ms since 1970
}

// hanging returns for each slot what hangs of it. The producers must have
// initialised their ids, which ended whatever the coordinator knew of.
func (l *lane) hanging(ctx context.Context, everywhere bool) (found [slots][]openTransaction, hangs bool, err error) {
	open, err := l.broker.open(ctx, everywhere)
	if err != nil {
		return found, false, err
	}
	for i, p := range l.producers.ring {
		id, epoch, err := p.id(ctx)
		if err != nil {
			return found, false, fmt.Errorf("look for hanging transactions: %w", err)
		}
		for _, t := range open {
			if t.producer == id && t.epoch < epoch {
				found[i], hangs = append(found[i], t), true
			}
		}
	}
	return found, hangs, nil
}

// sweep ends what former owners left hanging. It is committed where it was
// committed on the journal, or where it hangs there, too, and
//   - something was written behind it: a lane begins a transaction only once
//     the one before was acknowledged, or
//   - this instance folded it, and so had that acknowledgement itself.
//
// Anything else is aborted, as if it had never been: its inputs are read again.
// What other topics showed of it then comes twice, which is the lesser evil: an
// input that was forwarded could be lost.
func (l *lane) sweep(ctx context.Context) error {
	_, hangs, err := l.hanging(ctx, false)
	if err != nil || !hangs {
		return err
	}
	// It may hang elsewhere too: on a caller's topic, or where it forwarded.
	found, _, err := l.hanging(ctx, true)
	if err != nil {
		return err
	}
	past, err := l.readPast(ctx, found)
	if err != nil {
		return err
	}
	for slot, open := range found {
		ends := make(map[bool][]openTransaction)
		for _, t := range open {
			commit := past.committed(t)
			ends[commit] = append(ends[commit], t)
		}
		for _, commit := range []bool{true, false} {
			on := ends[commit]
			if len(on) == 0 {
				continue
			}
			if err := l.producers.ring[slot].finish(ctx, on, commit); err != nil {
				return err
			}
			l.producers.ring[slot].close()
			if l.producers.ring[slot], err = l.broker.fence(ctx, slot); err != nil {
				l.producers.ring[slot] = nil
				return err
			}
			for _, t := range on {
				l.log.Warn("ended a transaction that hung", "commit", commit, "topic", t.topic, "on", t.partition, "offset", t.offset)
				if !commit && t.topic == l.topics.Journal && t.offset < l.state.Head().Offset {
					if err := l.state.Reset(); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// past is what the end of the journal tells of the transactions of producers.
type past struct {
	all    []*pastTransaction
	folded int64 // up to where this instance has folded the journal
}

// pastTransaction is a transaction on the journal.
type pastTransaction struct {
	producer         int64
	epoch            int16
	last             int64 // offset of its last record
	ended, committed bool
	followed         bool // an owner wrote behind it
}

// committed says whether a transaction that hangs was committed.
func (p *past) committed(t openTransaction) bool {
	found, committed := false, true
	for _, j := range p.all {
		// Before Kafka 4.0 many transactions have one epoch.
		if j.producer == t.producer && j.epoch == t.epoch {
			found = true
			committed = committed && (j.committed || !j.ended && (j.followed || j.last < p.folded))
		}
	}
	return found && committed
}

// add takes the next record of the journal, committed or not.
func (p *past) add(r *kgo.Record) {
	if r.Attrs.IsControl() {
		for _, j := range p.all {
			if j.producer == r.ProducerID && !j.ended {
				j.ended, j.committed = true, commits(r)
			}
		}
		return
	}
	claim := events.Header(r, events.HeaderType) == string(events.PartitionClaimed)
	var its *pastTransaction
	for _, j := range p.all {
		switch {
		case j.ended:
		case j.producer == r.ProducerID && j.epoch == r.ProducerEpoch:
			its = j
		case !claim:
			j.followed = true
		}
	}
	if its == nil {
		its = &pastTransaction{producer: r.ProducerID, epoch: r.ProducerEpoch}
		p.all = append(p.all, its)
	}
	its.last = r.Offset
}

// commits says whether a control record is the marker of a commit.
func commits(r *kgo.Record) bool {
	return len(r.Key) >= 4 && binary.BigEndian.Uint16(r.Key[2:]) == 1
}

// readPast reads the journal from before the transactions that hang.
func (l *lane) readPast(ctx context.Context, found [slots][]openTransaction) (*past, error) {
	journal := l.topics.Journal
	end, err := l.broker.end(ctx, journal, false)
	if err != nil {
		return nil, err
	}
	from := end
	for _, open := range found {
		for _, t := range open {
			at := t.offset
			if t.topic != journal {
				// Its part on the journal was written at about the same time.
				if at, err = l.broker.since(ctx, time.UnixMilli(t.written).Add(-2*commitTimeout)); err != nil {
					return nil, err
				}
			}
			from = min(from, at)
		}
	}
	r, err := l.broker.read(false)
	if err != nil {
		return nil, err
	}
	defer r.close()
	r.seek(map[string]int64{journal: from})
	past := &past{folded: l.state.Head().Offset}
	for from < end {
		wait, cancel := context.WithTimeout(ctx, catchUpPatience)
		fetches := r.poll(wait, 10_000)
		cancel()
		if failed := fetches.Errors(); len(failed) > 0 {
			return nil, fmt.Errorf("read the end of the journal, to see what became of a transaction that hangs: %w", failed[0].Err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			past.add(r)
			from = r.Offset + 1
		})
	}
	return past, nil
}

// finish ends whatever the client's producer has open on partitions. Nothing is
// written but the markers. The broker gives the producer another epoch with
// that, so the client is of no use afterwards.
func finish(ctx context.Context, client *kgo.Client, name string, on []openTransaction, commit bool) error {
	id, epoch, err := client.ProducerID(ctx)
	if err != nil {
		return fmt.Errorf("end a hanging transaction: %w", err)
	}
	add := kmsg.NewPtrAddPartitionsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch = name, id, epoch
	for _, t := range on {
		topic := kmsg.NewAddPartitionsToTxnRequestTopic()
		topic.Topic, topic.Partitions = t.topic, []int32{t.partition}
		add.Topics = append(add.Topics, topic)
	}
	added, err := add.RequestWith(ctx, client)
	if err != nil {
		return fmt.Errorf("end a hanging transaction: %w", err)
	}
	for _, topic := range added.Topics {
		for _, p := range topic.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return fmt.Errorf("end a hanging transaction on %s partition %d: %w", topic.Topic, p.Partition, err)
			}
		}
	}
	end := kmsg.NewPtrEndTxnRequest()
	end.TransactionalID, end.ProducerID, end.ProducerEpoch, end.Commit = name, id, epoch, commit
	ended, err := end.RequestWith(ctx, client)
	if err == nil {
		err = kerr.ErrorForCode(ended.ErrorCode)
	}
	if err != nil {
		return fmt.Errorf("end a hanging transaction: %w", err)
	}
	return nil
}

// watchEvery is how often a lane looks whether anything hangs.
const watchEvery = 10 * time.Second

// watch looks from time to time whether one of the lane's own transactions
// hangs although its commit was acknowledged, and reports it: a takeover mends
// it. A transaction that is seen twice does not only wait for its markers.
func (l *lane) watch(ctx context.Context, hung chan<- error) {
	seen := make(map[openTransaction]bool)
	for pause(ctx, watchEvery) {
		found, _, err := l.hanging(ctx, false)
		if err != nil {
			l.log.Debug("cannot look for hanging transactions", "error", err)
			continue
		}
		now := make(map[openTransaction]bool)
		for _, open := range found {
			for _, t := range open {
				now[t] = true
				if !seen[t] {
					continue
				}
				select {
				case hung <- t.hangs():
				case <-ctx.Done():
				}
				return
			}
		}
		seen = now
	}
}

func (t *openTransaction) hangs() error {
	return fmt.Errorf("a transaction hangs on %s partition %d from offset %d", t.topic, t.partition, t.offset)
}

// markersPatience is how long the markers of the last commit may take after a
// connection was lost.
const markersPatience = 5 * time.Second

// settle is called between two commits, after a connection was lost: Kafka may
// have been restarted. It returns once no transaction of the lane is open, so
// that none that hangs is covered by the next one of its producer, and ends as
// that does.
func (l *lane) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, markersPatience)
	defer cancel()
	for wait := time.Millisecond; ; wait *= 2 {
		found, hangs, err := l.hanging(ctx, false)
		if err != nil || !hangs {
			return err
		}
		if !pause(ctx, wait) {
			for _, open := range found {
				for _, t := range open {
					return t.hangs()
				}
			}
		}
	}
}
