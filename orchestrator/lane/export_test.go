package lane

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/decide"
	"github.com/waybill-dev/waybill/projections"
)

// What tests on Kafka see of a lane, and do to it step by step.

func (l *Lane) State() *projections.Partition { return l.state }
func (l *Lane) Places() []TopicPartition      { return l.places() }
func (l *Lane) Searched() bool                { return l.searched }

// FallsSilent makes a transaction that says of an agent that it does, and returns its records.
func (l *Lane) FallsSilent(agent string) []*kgo.Record {
	topic := l.topics.Requests(agent)
	w := l.agents.window(l, topic)
	w.WasAway(l.time.Wall())
	l.tellSilence(topic, w)
	return l.Seals(decide.Decision{})
}

// Probes says that an agent is only probed.
func (l *Lane) Probes(agent string) bool {
	w := l.agents.windows[l.topics.Requests(agent)]
	return w != nil && w.Away()
}

// Knows has it know another number of partitions.
func (l *Lane) Knows(partitions int32) { l.cfg.Partitions = partitions }

// Polls takes the next input.
func (l *Lane) Polls(ctx context.Context) kgo.Fetches { return l.orders.Poll(ctx, 1) }

// Seals makes a transaction of a decision, and returns its records.
func (l *Lane) Seals(d decide.Decision) []*kgo.Record {
	l.take(d)
	l.inflight, l.current = l.current, newBatch()
	l.seal(l.inflight)
	return l.inflight.records
}

// Nothing is a record that changes nothing.
func (l *Lane) Nothing() *kgo.Record {
	return l.laneEvent(&events.Event{Type: events.PartitionAdvanced, At: l.time.Wall()}, "x")
}

func (l *Lane) Writes(records ...*kgo.Record) error { return l.producers.commit(records) }

// Commits commits records as those of a batch.
func (l *Lane) Commits(ctx context.Context, records ...*kgo.Record) error {
	return l.Commit(ctx, &Batch{records: records})
}
func (l *Lane) Concludes(err error) error { return l.conclude(err) }

// Passes passes over the next slot, and returns it.
func (l *Lane) Passes() (slot int) {
	slot = l.producers.next
	l.producers.next = (slot + 1) % Slots
	return slot
}

// Fences makes the lane the owner of a slot, Claims of the partition.
func (l *Lane) Fences(ctx context.Context, slot int) error {
	if l.producers == nil {
		l.producers = &producers{}
	}
	fenced, err := l.broker.Fence(ctx, l.unseen.has, slot)
	copy(l.producers.ring[slot:], fenced)
	return err
}
func (l *Lane) FencesAll(ctx context.Context) error { return l.fence(ctx) }
func (l *Lane) Claims(ctx context.Context) error    { return l.claim(ctx, l.state.Head().Format()) }

// OwnsWhatHangs says whether what hangs of a producer that wrote to the journal is
// the lane's.
func (l *Lane) OwnsWhatHangs(ctx context.Context, producer int64) (bool, error) {
	hangs := OpenTransaction{Transaction: Transaction{Producer: producer}, slot: spent}
	ours, err := l.ours(ctx, &past{writers: map[int64]bool{producer: true}}, []OpenTransaction{hangs})
	return len(ours) == 1, err
}

// ReadsPast reads what became of a transaction that hangs.
func (l *Lane) ReadsPast(ctx context.Context, t OpenTransaction) error {
	_, err := l.readPast(ctx, []OpenTransaction{t}, 0)
	return err
}
