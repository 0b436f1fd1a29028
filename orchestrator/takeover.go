package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
)

// catchUpPatience is how long a takeover may read the journal without getting
// further before it gives up and says why.
const catchUpPatience = 30 * time.Second

// watchEvery is how often a lane looks whether anything hangs.
const watchEvery = 10 * time.Second

// takeOver makes this instance the owner of the partition (V6, S6):
//
//  1. It fences the former owner on every producer slot, in order.
//     A transaction that hangs on the journal is aborted.
//  2. It commits a claim on slot 0. The inits of two instances can interleave;
//     only the last to initialise slot 0 can claim, and whoever writes on any
//     slot does so before a successor initialises it, so before its claim.
//  3. It reads the journal until it meets its own claim. All that former
//     owners committed lies before it. The end of the journal is never taken
//     from the last stable offset, which lags behind what is committed.
//
// Only then may anything be decided. On an error the lane must be closed.
func (l *lane) takeOver(ctx context.Context) (err error) {
	began := time.Now()
	if l.producers, err = fence(ctx, l.kafka, &l.topics, l.partition); err != nil {
		return err
	}
	if err := l.sweep(ctx); err != nil {
		return err
	}
	fenced := time.Now()
	if err := l.claim(ctx); err != nil {
		return err
	}
	l.state.Rescan()
	if err := l.state.Flush(); err != nil {
		return err
	}
	head := l.state.Head()
	l.position, l.transaction = head.Next, head.Transaction
	if l.transaction == 0 {
		if l.position, err = l.firstPositions(ctx); err != nil {
			return err
		}
	}
	if l.waiting, err = l.endOf(ctx, l.topics.Replies); err != nil {
		return err
	}
	l.current, l.inflight = newBatch(), nil
	l.read.Store(&head.Next)
	l.inputs.AddConsumePartitions(l.inputsAt(l.position))
	l.log.Info("took the partition over", "fence", fenced.Sub(began), "total", time.Since(began), "journal", head.Offset)
	return nil
}

// sweep aborts what former owners left hanging. If the state store has folded
// such a transaction, because its commit was acknowledged, it is rebuilt.
func (l *lane) sweep(ctx context.Context) error {
	found, err := findHanging(ctx, l.admin, l.producers.clients[:], l.written())
	if err != nil || len(found) == 0 {
		return err
	}
	// It may hang elsewhere too: on a caller's topic, or where it forwarded.
	everywhere, err := allPartitions(ctx, l.client)
	if err != nil {
		return err
	}
	if found, err = findHanging(ctx, l.admin, l.producers.clients[:], everywhere); err != nil {
		return err
	}
	for _, h := range found {
		if err := h.abort(ctx); err != nil {
			return err
		}
		for _, p := range h.at {
			l.log.Warn("aborted a transaction that hung", "topic", p.Topic, "on", p.Partition, "offset", p.CurrentTxnStartOffset)
			if p.Topic == l.topics.Journal && p.CurrentTxnStartOffset < l.state.Head().Offset {
				if err := l.state.Reset(); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// written are the partitions to which the lane's transactions usually write.
func (l *lane) written() kadm.TopicsSet {
	var set kadm.TopicsSet
	for _, topic := range append(l.catalogue.requestTopics(), l.topics.Journal, l.topics.Status) {
		set.Add(topic, l.partition)
	}
	return set
}

// watch looks from time to time whether one of the lane's own transactions
// hangs although its commit was acknowledged, and reports it: a takeover mends
// it. A transaction that is seen twice does not only wait for its markers.
func (l *lane) watch(ctx context.Context, hung chan<- error) {
	seen := make(map[kadm.DescribedProducer]bool)
	for pause(ctx, watchEvery) {
		found, err := findHanging(ctx, l.admin, l.producers.clients[:], l.written())
		if err != nil {
			l.log.Debug("cannot look for hanging transactions", "error", err)
			continue
		}
		now := make(map[kadm.DescribedProducer]bool)
		for _, h := range found {
			for _, p := range h.at {
				now[p] = true
				if !seen[p] {
					continue
				}
				select {
				case hung <- fmt.Errorf("a transaction hangs on %s partition %d from offset %d", p.Topic, p.Partition, p.CurrentTxnStartOffset):
				case <-ctx.Done():
				}
				return
			}
		}
		seen = now
	}
}

// claim commits a claim on slot 0, and reads the journal up to it.
func (l *lane) claim(ctx context.Context) error {
	claim := events.Event{
		Type: events.PartitionClaimed, At: now(),
		Instance: l.cfg.ID, Claim: uuid.NewString(), Partitions: l.partitions, Format: events.JournalFormat,
	}
	r := l.laneEvent(&claim, claim.Claim)
	seal := events.Seal{Events: 1}
	r.Headers = append(r.Headers, kgo.RecordHeader{Key: events.HeaderLane, Value: seal.Append(nil)})
	l.producers.next = 0
	if err := l.producers.commit([]*kgo.Record{r}); err != nil {
		return fmt.Errorf("claim the partition: %w", err)
	}

	l.state.Forget()
	if head := l.state.Head(); r.Offset < head.Offset {
		l.log.Warn("the state store is ahead of the journal, so it is of another journal: it is rebuilt", "store", head.Offset, "claim", r.Offset)
		if err := l.state.Reset(); err != nil {
			return err
		}
	}
	return l.catchUp(ctx, claim.Claim, r.Offset)
}

// catchUp folds the journal until the claim, which stands at the given offset.
func (l *lane) catchUp(ctx context.Context, claim string, at int64) (err error) {
	from := l.state.Head().Offset
	topic := l.topics.Journal
	l.inputs, err = kgo.NewClient(append(l.kafka[:len(l.kafka):len(l.kafka)],
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {l.partition: kgo.NewOffset().At(from)}}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), // inputs too: a forwarded record is in another lane's transaction
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),  // the default goes back in time in silence
		kgo.KeepControlRecords(),                     // so that the positions reach the ends
		kgo.FetchMaxWait(time.Second),
		kgo.MetadataMinAge(metadataMinAge),
		kgo.FetchMaxBytes(16<<20),
	)...)
	if err != nil {
		return fmt.Errorf("reader of the partition: %w", err)
	}
	for l.state.Head().Claim != claim {
		poll, cancel := context.WithTimeout(ctx, catchUpPatience)
		fetches := l.inputs.PollRecords(poll, 10_000)
		stuck := poll.Err() != nil
		cancel()
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if stuck {
			return fmt.Errorf("no progress in the journal from offset %d to the claim at %d for %s: a transaction that hangs keeps its readers from going on; look for it with kafka-transactions.sh find-hanging", l.state.Head().Offset, at, catchUpPatience)
		}
		if failed := fetches.Errors(); len(failed) > 0 {
			return l.unreadable(failed[0])
		}
		for it := fetches.RecordIter(); !it.Done() && l.state.Head().Claim != claim; {
			r := it.Next()
			if r.Attrs.IsControl() {
				continue
			}
			if err := l.state.Fold(r.Offset, r.Value, events.HeaderValue(r, events.HeaderLane)); err != nil {
				return err
			}
		}
		if err := l.state.Flush(); err != nil {
			return err
		}
	}
	l.inputs.RemoveConsumePartitions(map[string][]int32{topic: {l.partition}})
	return nil
}

// unreadable explains why a topic cannot be read from where reading must go on.
func (l *lane) unreadable(e kgo.FetchError) error {
	if errors.Is(e.Err, kerr.OffsetOutOfRange) {
		if e.Topic == l.topics.Journal {
			return fmt.Errorf("%w: the journal has lost what stood from offset %d: %w", projections.ErrGap, l.state.Head().Offset, e.Err)
		}
		return fmt.Errorf("%w: %s has lost records that were not read yet, from %+v on; was its retention too short, or the topic made anew? %w", errInputLost, e.Topic, l.position, e.Err)
	}
	return fmt.Errorf("read %s: %w", e.Topic, e.Err)
}

// errInputLost says that inputs were deleted before they were read.
var errInputLost = errors.New("inputs were lost")

func (l *lane) inputsAt(p events.Positions) map[string]map[int32]kgo.Offset {
	at := func(offset int64) map[int32]kgo.Offset {
		return map[int32]kgo.Offset{l.partition: kgo.NewOffset().At(offset)}
	}
	return map[string]map[int32]kgo.Offset{
		l.topics.Orders: at(p.Orders), l.topics.Replies: at(p.Replies), l.topics.Commands: at(p.Commands),
	}
}

// firstPositions is where reading begins on a partition without any journal.
func (l *lane) firstPositions(ctx context.Context) (events.Positions, error) {
	starts, err := l.admin.ListStartOffsets(ctx, l.topics.Orders, l.topics.Replies, l.topics.Commands)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return events.Positions{}, fmt.Errorf("find the beginning of the inputs: %w", err)
	}
	at := func(topic string) int64 {
		o, _ := starts.Lookup(topic, l.partition)
		return o.Offset
	}
	return events.Positions{Orders: at(l.topics.Orders), Replies: at(l.topics.Replies), Commands: at(l.topics.Commands)}, nil
}

// endOf is up to where a topic can be read now. What an open transaction holds
// back does not count: it may never end.
func (l *lane) endOf(ctx context.Context, topic string) (int64, error) {
	ends, err := l.admin.ListCommittedOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return 0, fmt.Errorf("find the end of %s: %w", topic, err)
	}
	end, _ := ends.Lookup(topic, l.partition)
	return end.Offset, nil
}

// close gives up what a takeover acquired.
func (l *lane) close() {
	if l.producers != nil {
		l.producers.close()
	}
	if l.inputs != nil {
		l.inputs.Close()
	}
}
