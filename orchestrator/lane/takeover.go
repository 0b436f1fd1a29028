package lane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/decide"
	"github.com/waybill-dev/waybill/projections"
)

// catchUpPatience is how long a takeover may read the journal without getting
// further before it gives up and says why.
const catchUpPatience = 30 * time.Second

// TakeOver makes this instance the owner of the partition (V6, S6):
//
//  1. It fences the former owner on every producer slot: on slot 0, and then on the
//     others, in whatever order. Transactions that hang are ended, and the workflows are
//     read to their end.
//  2. It commits a claim on slot 0. The inits of two instances can interleave; only the
//     last to initialise slot 0 can claim. Who claimed before had all slots by then, so a
//     successor, which comes to the others only behind slot 0, takes each from it before
//     its own claim, and nothing is written there any more.
//  3. It reads the journal until it meets its own claim. All that former
//     owners committed lies before it. The end of the journal is never taken
//     from the last stable offset, which lags behind what is committed.
//
// Only then may anything be decided. On an error the lane must be closed.
func (l *Lane) TakeOver(ctx context.Context) (err error) {
	began := time.Now()
	if err := l.rightNumber(); err != nil { // before a claim that nobody would use
		return err
	}
	if err := l.fence(ctx); err != nil {
		return err
	}
	if err := l.sweep(ctx); err != nil {
		return err
	}
	fenced := time.Now()
	// Whatever former owners knew of workflows when they accepted an order: nobody accepts
	// one any more. A claim would be of no use without.
	if err := l.world.CatchUp(ctx); err != nil {
		return err
	}
	// A claim names the format as far as the journal was folded before it. Releases
	// that know of no other sign of a format go by the claims: there is one of it. A
	// partition that nobody had before begins in the newest.
	for format, claimed := l.state.Head().Format(), 0; claimed < format; {
		claimed = format
		if err := l.claim(ctx, format); err != nil {
			return err
		}
		format = l.state.Head().Format()
		if l.state.Head().Offset == 1 {
			format = max(format, l.world.Newest(ctx))
		}
	}
	if err := l.rightNumber(); err != nil {
		return err
	}
	caughtUp := time.Now()
	l.state.Rescan()
	if err := l.state.Flush(); err != nil {
		return err
	}
	l.current, l.inflight = newBatch(), nil
	if l.clock.stamped {
		l.clock.asked = l.clock.wrote
		l.judge(l.clock.claimed)
	}
	if err := l.owing(); err != nil {
		return err
	}
	head := l.state.Head()
	l.position, l.transaction, l.format = head.Next, head.Transaction, head.Format()
	if !l.position.All() { // there is no journal, or nobody read some input yet
		starts, err := l.broker.Starts(ctx)
		if err != nil {
			return err
		}
		l.position = l.position.Over(starts).In(l.format)
	}
	read := l.position
	l.committed.Store(&read)
	if l.orders, err = l.broker.Read(l.partition, true); err != nil {
		return err
	}
	l.seek()
	l.state.CaughtUp()
	l.tookOver, l.agents.began = time.Now(), l.time.Wall()
	if err := l.recall(); err != nil {
		return err
	}
	l.log.Info("took the partition over", "fence", fenced.Sub(began), "catchup", caughtUp.Sub(fenced), "total", time.Since(began), "journal", head.Offset)
	return nil
}

// rightNumber fails with [projections.ErrPartitions] if the journal, as far as it was
// folded, is of another number of partitions than the instance knows.
func (l *Lane) rightNumber() error {
	if has := l.state.Head().Partitions; has != 0 && has != l.cfg.Partitions {
		return fmt.Errorf("%w: partition %d with %d, and this instance knows %d", projections.ErrPartitions, l.partition, has, l.cfg.Partitions)
	}
	return nil
}

// seek has the inputs read from the position on.
func (l *Lane) seek() {
	from := make(map[string]int64)
	for in, topic := range l.topics.InputsOf(l.format) {
		if topic != l.topics.Orders {
			from[topic] = l.position.At(in)
		}
	}
	l.inputs.Seek(from)
	l.orders.Seek(map[string]int64{l.topics.Orders: l.position.At(events.InputOrders)})
	l.added = nil
	l.readAdded()
}

// reader is who reads an input.
func (l *Lane) reader(topic string) Reader {
	if topic == l.topics.Orders {
		return l.orders
	}
	return l.inputs
}

// fence makes the lane the owner of every slot: of the first before the others.
func (l *Lane) fence(ctx context.Context) error {
	if l.producers != nil {
		l.producers.close()
	}
	l.producers = &producers{}
	var all [Slots]int
	for slot := range all {
		all[slot] = slot
	}
	for _, slots := range [...][]int{all[:1], all[1:]} {
		fenced, err := l.broker.Fence(ctx, l.unseen.has, slots...)
		if err != nil {
			return err
		}
		copy(l.producers.ring[slots[0]:], fenced)
	}
	return nil
}

// claim commits a claim on slot 0, and reads the journal up to it.
func (l *Lane) claim(ctx context.Context, format int) error {
	claim := events.Event{
		Type: events.PartitionClaimed, At: l.time.Wall(),
		Instance: l.cfg.Instance, Claim: uuid.NewString(), Partitions: l.cfg.Partitions, Format: format,
	}
	r := l.laneEvent(&claim, claim.Claim)
	seal := events.Seal{Events: 1}
	for in := range l.topics.InputsOf(format) {
		seal.Next.Set(in, 0)
	}
	r.Headers = append(r.Headers, kgo.RecordHeader{Key: events.HeaderLane, Value: seal.Append(nil)})
	l.producers.next = 0
	began := l.reading()
	if err := l.producers.commit([]*kgo.Record{r}); err != nil {
		return fmt.Errorf("claim the partition: %w", err)
	}

	l.clock.wrote = began

	l.state.Forget()
	if head := l.state.Head(); r.Offset < head.Offset {
		l.log.Warn("the state store is ahead of the journal, so it is of another journal: it is rebuilt", "store", head.Offset, "claim", r.Offset)
		if err := l.Rebuild(ctx); err != nil {
			return fmt.Errorf("%w: %w", ErrNotFolded, err)
		}
	}
	return l.catchUp(ctx, claim.Claim, r.Offset)
}

// catchUp folds the journal until the claim, which stands at the given offset.
// The last record that was folded before must be there still: what it belongs to
// may have been acknowledged to this instance, left hanging by Kafka, and aborted
// by another. If it is not, the store is rebuilt.
func (l *Lane) catchUp(ctx context.Context, claim string, at int64) (err error) {
	if l.inputs != nil {
		l.inputs.Close() // of the claim before
	}
	if l.inputs, err = l.broker.Read(l.partition, true); err != nil {
		return err
	}
	checked := l.state.Head().Offset == 0
	l.inputs.Seek(map[string]int64{l.topics.Journal: max(0, l.state.Head().Offset-1)})
	for l.state.Head().Claim != claim {
		poll, cancel := context.WithTimeout(ctx, catchUpPatience)
		fetches := l.inputs.Poll(poll, 10_000)
		cancel()
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if errors.Is(fetches.Err0(), context.DeadlineExceeded) {
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
			if !checked && !isLastFolded(l.state, r) {
				l.log.Warn("the state store is rebuilt", "store", l.state.Head().Offset, "journal", r.Offset, "error", ErrNotFolded)
				if err := l.Rebuild(ctx); err != nil {
					return fmt.Errorf("%w: %w", ErrNotFolded, err)
				}
				l.inputs.Seek(map[string]int64{l.topics.Journal: 0})
				checked = true
				break
			}
			checked = true
			if err := l.state.Fold(r.Offset, r.Value, events.HeaderValue(r, events.HeaderLane)); err != nil {
				return err
			}
			l.clock.stamped, l.clock.claimed = r.Attrs.TimestampType() == stampedByKafka, r.Timestamp
		}
		if err := l.state.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// ErrNotFolded says that the last record that was folded is not in the journal: what the
// state has may have been undone.
var ErrNotFolded = errors.New("the state store has folded what is not in the journal")

// ErrBeginning says that the journal does not have its beginning any more. What was folded
// of it cannot be folded again.
var ErrBeginning = errors.New("the journal's beginning was deleted, so that the state store is kept, and cannot be rebuilt")

// Rebuild throws the state away, so that it is folded again from the beginning of the
// journal. It keeps the state, which is not known any more, and fails with [ErrBeginning],
// where the journal has none, and with another error where Kafka does not say.
func (l *Lane) Rebuild(ctx context.Context) error {
	l.state.FellBehind()
	at, err := l.broker.Begins(ctx)
	if err := complete(at, err); err != nil {
		return err
	}
	return l.state.Reset()
}

// complete fails unless a journal begins with its first record, as somebody says.
func complete(at int64, err error) error {
	switch {
	case err != nil:
		return fmt.Errorf("see whether the journal has its beginning: %w", err)
	case at > 0:
		return fmt.Errorf("%w: it begins at offset %d", ErrBeginning, at)
	}
	return nil
}

// isLastFolded says whether r, the first committed record of the journal from
// there on, is the last one that was folded.
func isLastFolded(state *projections.Partition, r *kgo.Record) bool {
	head := state.Head()
	seal, err := events.DecodeSeal(events.HeaderValue(r, events.HeaderLane))
	if err != nil || r.Offset != head.Offset-1 {
		return false
	}
	if seal.Transaction == 0 {
		claimed, err := events.Decode[events.Event](r.Value)
		return err == nil && claimed.Claim == head.Claim
	}
	return seal.Transaction == head.Transaction
}

// unreadable explains why a topic cannot be read from where reading must go on.
func (l *Lane) unreadable(e kgo.FetchError) error {
	if errors.Is(e.Err, kerr.OffsetOutOfRange) {
		if e.Topic == l.topics.Journal {
			return fmt.Errorf("%w: the journal has lost what stood from offset %d: %w", projections.ErrGap, l.state.Head().Offset, e.Err)
		}
		return &LostError{
			TopicPartition: TopicPartition{e.Topic, e.Partition}, From: notTold, Sealed: l.transaction, Err: e.Err,
			why: fmt.Sprintf("%s has lost records that were not read yet, from %v on; was its retention too short, or the topic made anew? ", e.Topic, l.position),
		}
	}
	// What was cut off is told once: whoever reads on from there is told nothing more.
	if cut, ok := errors.AsType[*kgo.ErrDataLoss](e.Err); ok && e.Topic != l.topics.Journal {
		return &LostError{
			TopicPartition: TopicPartition{e.Topic, e.Partition}, From: cut.ResetTo, Sealed: l.transaction, Err: e.Err,
			why: fmt.Sprintf("%s was cut off, and is written on from offset %d: was a leader elected that did not have all of it, or Kafka without power? ", e.Topic, cut.ResetTo),
		}
	}
	if errors.Is(e.Err, kgo.ErrMaxDecompress) {
		return fmt.Errorf("%w: %w", ErrUnreadable, e.Err)
	}
	return fmt.Errorf("read %s: %w", e.Topic, e.Err)
}

// ErrUnreadable says that Kafka has a batch in the journal that no reader can take.
var ErrUnreadable = errors.New("the journal has a batch that cannot be read")

// ErrInputLost says that inputs were deleted before they were read, or that their end was cut off.
var ErrInputLost = errors.New("inputs were lost")

// LostError is an [ErrInputLost], and says where. Once the topic has been written on nobody
// else sees it.
type LostError struct {
	TopicPartition
	// From is the offset from which on there is what nobody has read, where Kafka tells it
	// by the epochs of the partition's leaders; else it is negative.
	From int64
	// Sealed is the number of the last transaction that the lane began to commit. If there
	// is a later one, somebody went on.
	Sealed uint64
	Err    error // of the reader
	why    string
}

// notTold is in place of the offset from which on there is what nobody has read.
const notTold = -1

func (e *LostError) Error() string   { return fmt.Sprintf("%v: %s%v", ErrInputLost, e.why, e.Err) }
func (e *LostError) Unwrap() []error { return []error{ErrInputLost, e.Err} }

// ErrNothingLost says that there is nothing that an operator could pass over.
var ErrNothingLost = errors.New("no inputs were lost")

// Author is who had something done: by which name, and how that is known, nil if it is not.
type Author struct {
	By    string
	Actor *events.Actor
}

// brokersAgree is within what the clocks of Kafka's brokers are.
const brokersAgree = time.Second

// SkipLost has reading go on behind inputs that were lost, once the lane has taken the
// partition over, and before it serves. Lost is what lanes before it were told. Who had it
// done, and why, stands in the journal. On an error other than [ErrNothingLost] the lane
// must be closed.
func (l *Lane) SkipLost(ctx context.Context, by Author, why string, lost ...*LostError) error {
	starts, err := l.broker.Starts(ctx, l.added...)
	if err != nil {
		return err
	}
	sealed, err := l.sealedAt(ctx)
	if err != nil {
		return err
	}
	var sources []TopicPartition
	for _, topic := range l.topics.InputsOf(l.format) {
		sources = append(sources, TopicPartition{topic, l.partition})
	}
	for _, at := range append(sources, l.added...) {
		next, first := l.reads(&l.position, at), l.reads(&starts, at)
		if next >= first {
			cut, from, err := l.cutOff(ctx, at, next, sealed, lost)
			if err != nil {
				return err
			}
			if !cut {
				continue
			}
			first = max(first, min(from, next))
		}
		since := decide.Record{Topic: at.Topic, Partition: at.Partition, Offset: next}
		e := events.Event{
			Type: events.PartitionAdvanced, At: l.time.Wall(),
			Source: since.Source(), By: decide.Cut(by.By, decide.MaxName), Reason: decide.Cut(why, decide.MaxText),
		}
		if l.format >= events.ProofFormat {
			e.Actor = by.Actor
		}
		l.current.add(l.laneEvent(&e, fmt.Sprintf("%d/%s/%d", l.transaction+1, at.Topic, at.Partition)))
		l.readsOn(at, first)
		l.log.Warn("inputs that were lost are passed over", "from", since.Source(), "to", first, "by", by.By)
	}
	if l.current.empty() {
		return ErrNothingLost
	}
	l.begin()
	if err := l.conclude(l.Commit(ctx, l.inflight)); err != nil {
		return err
	}
	l.seek()
	return nil
}

// cutOff says whether the end of a partition of an input was cut off below next, up to where it
// was read, and from which offset on there is what nobody has read. It may have been written
// on beyond next since: then a lane before was told of it, or what stands before next is
// newer than the partition's last transaction. It may also be another topic, which was made
// anew, and whose end is then what Kafka told.
func (l *Lane) cutOff(ctx context.Context, at TopicPartition, next int64, sealed time.Time, lost []*LostError) (cut bool, from int64, err error) {
	from = notTold
	for _, e := range lost {
		if e.TopicPartition == at {
			cut, from = true, e.From
		}
	}
	newer, err := l.broker.Since(ctx, at, sealed.Add(brokersAgree))
	if err != nil {
		return false, 0, err
	}
	if from >= 0 {
		return true, min(from, newer), nil
	}
	if !cut {
		end, err := l.broker.End(ctx, at, false)
		if err != nil {
			return false, 0, err
		}
		if cut = next > end || newer < next; !cut {
			return false, 0, nil
		}
	}
	from, err = l.broker.Since(ctx, at, sealed)
	return true, from, err
}

// Leave takes what the lane has asked agents for out of what all lanes of the instance have.
// It decides nothing any more.
func (l *Lane) Leave() {
	for _, w := range l.agents.windows {
		w.Close()
	}
	clear(l.agents.windows)
}

// Close leaves, and gives up what a takeover acquired.
func (l *Lane) Close() {
	l.Leave()
	if l.producers != nil {
		l.producers.close()
	}
	for _, reader := range []Reader{l.inputs, l.orders, l.journal} {
		if reader != nil {
			reader.Close()
		}
	}
}
