package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/cluster"
	"github.com/waybill-dev/waybill/orchestrator/decide"
	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
)

// Submit puts a submission on the orders topic, and returns once Kafka has it.
// The order is accepted or rejected by whoever owns its partition. An empty id
// asks for a new one. The result is the order's id.
func (i *Instance) Submit(ctx context.Context, id string, s *events.Submission, traceparent string) (string, error) {
	if id == "" {
		fresh, err := uuid.NewV7()
		if err != nil {
			return "", fmt.Errorf("make an order id: %w", err)
		}
		id = fresh.String()
	}
	if err := events.CheckOrderID(id); err != nil {
		return "", err
	}
	value, err := s.Encode()
	if err != nil {
		return "", fmt.Errorf("encode the submission: %w", err)
	}
	if len(value) > events.MaxValue {
		return "", fmt.Errorf("the submission has %d bytes; at most %d are allowed", len(value), events.MaxValue)
	}
	envelope := events.Envelope{
		Source: "/waybill/" + i.topics.Namespace + "/api", Type: events.OrderSubmitted,
		ID: uuid.NewString(), Order: id, Time: now(), Traceparent: traceparent,
	}
	if err := i.put(ctx, envelope.Record(i.topics.Orders, value)); err != nil {
		return "", fmt.Errorf("submit order %q: %w", id, err)
	}
	return id, nil
}

// put puts an input into the partition of its order, however many its topic has.
func (i *Instance) put(ctx context.Context, r *kgo.Record) error {
	r.Partition = i.Partition(string(r.Key))
	return produce(ctx, i.client, r)
}

// produceTimeout is how long Kafka may take to acknowledge a record.
const produceTimeout = 30 * time.Second

// produce puts a record on Kafka. Once ctx has ended, or after the
// [produceTimeout], it returns the context's error, and the record may be on
// Kafka or still get there. kgo would wait for the answer to what it has sent as
// long as Kafka is silent.
func produce(ctx context.Context, client *kgo.Client, r *kgo.Record) error {
	ctx, cancel := context.WithTimeout(ctx, produceTimeout)
	defer cancel()
	answered := make(chan error, 1)
	client.Produce(ctx, r, func(_ *kgo.Record, err error) { answered <- err })
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Register registers a workflow, and creates the request topics of the agents
// that it names. Doing it again with the same content changes nothing; another
// content fails with [ErrConflict], and one that uses what an older release in the
// group does not know with [ErrOlderRelease].
func (i *Instance) Register(ctx context.Context, flow *workflow.Workflow) error {
	if err := i.spoken(ctx, flow.Level()); err != nil {
		return fmt.Errorf("register workflow %s: %w", flow.ID(), err)
	}
	if err := createRequestTopics(ctx, i.admin, &i.topics, i.partitions, flow.Agents()); err != nil {
		return err
	}
	for _, agent := range flow.Agents() {
		i.directory.forget(i.topics.Requests(agent))
	}
	return i.catalogue.register(ctx, flow)
}

// spoken fails with [ErrOlderRelease] if a member of the group does not run workflows
// of this level of the language: it would own orders that it cannot read.
func (i *Instance) spoken(ctx context.Context, level int) error {
	if level <= firstDialect.Language {
		return nil
	}
	all, err := i.group.members(ctx)
	if err != nil {
		return err
	}
	return allSpeak(all, fmt.Sprintf("level %d of the workflow language", level), func(d *Dialect) bool { return d.Language >= level })
}

// ErrRefused says that an operator's command could not be done; the error
// around it says why.
var ErrRefused = errors.New("refused")

// Command puts an operator's command on Kafka, and returns nil once the order's
// owner did it. It gives the command an id if it has none. It fails with
// [ErrRefused] when the owner refused it, with [projections.ErrNotFound] when
// there is no order of this id, with [ErrElsewhere] when this instance cannot
// know, and with the context's error when the outcome is not known in time. In
// the last two cases the command may be on Kafka, and is then acted on.
func (i *Instance) Command(ctx context.Context, id string, c *events.Command) error {
	o, _, err := i.Order(id)
	if err != nil {
		return err
	}
	if c.ID == "" {
		c.ID = uuid.NewString()
	}
	if len(c.ID) > decide.MaxName {
		return fmt.Errorf("the command's id has %d bytes; at most %d are allowed", len(c.ID), decide.MaxName)
	}
	value, err := c.Encode()
	if err != nil {
		return fmt.Errorf("encode the command: %w", err)
	}
	if len(value) > events.MaxValue {
		return fmt.Errorf("the command has %d bytes; at most %d are allowed", len(value), events.MaxValue)
	}
	envelope := events.Envelope{Source: "/waybill/" + i.topics.Namespace + "/operators", Type: events.OrderCommand, ID: c.ID, Order: id, Time: now()}
	if err := i.put(ctx, envelope.Record(i.topics.Commands, value)); err != nil {
		return fmt.Errorf("put the command for order %q on Kafka: %w", id, err)
	}
	last := o.Command
	for wait := time.Millisecond; pause(ctx, wait); wait = min(2*wait, 100*time.Millisecond) {
		if o, _, err = i.Order(id); err != nil {
			return err
		}
		if o.Command == c.ID {
			return refusedFor(o.Refusal)
		}
		if o.Command == last {
			continue
		}
		// Another command came in between: ours may be before it.
		last = o.Command
		history, err := i.History(ctx, id)
		if err != nil {
			return err
		}
		for _, e := range history {
			if e.Command == c.ID && e.Type == events.CommandRefused {
				return refusedFor(e.Reason)
			}
			if e.Command == c.ID {
				return nil
			}
		}
	}
	return fmt.Errorf("the command for order %q is on Kafka, and what became of it is not known yet; its history will tell: %w", id, ctx.Err())
}

// ErrNotOwner says that only the owner of a partition can do what is asked.
var ErrNotOwner = errors.New("another instance owns partition")

// SkipLost has a partition of this instance go on behind inputs that were lost, and
// records who had that done, and why. It fails with [ErrRefused] where none were, and
// with [ErrNotOwner].
func (i *Instance) SkipLost(ctx context.Context, p int32, by, why string) error {
	if !slices.Contains(i.members.all(), p) {
		heads, err := i.store.Heads(i.partitions)
		if err != nil {
			return err
		}
		return fmt.Errorf("%w %d; as far as is known here it is %q: ask that one", ErrNotOwner, p, heads[p].Owner)
	}
	err := i.members.skips(ctx, p, by, why)
	if errors.Is(err, lane.ErrNothingLost) {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return err
}

func refusedFor(why string) error {
	if why == "" {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrRefused, why)
}

// History returns the events of an order, from the journal, in order (P4). It
// fails with [projections.ErrNotFound] and [ErrElsewhere].
func (i *Instance) History(ctx context.Context, id string) (_ []events.Event, err error) {
	p := i.Partition(id)
	_, offsets, err := i.Order(id)
	if err != nil {
		return nil, err
	}
	client, err := i.reader()
	if err != nil {
		return nil, fmt.Errorf("reader of the journal: %w", err)
	}
	defer func() { i.giveBack(client, p, err) }()
	read := func(offset int64) {
		client.RemoveConsumePartitions(map[string][]int32{i.topics.Journal: {p}})
		client.AddConsumePartitions(map[string]map[int32]kgo.Offset{i.topics.Journal: {p: kgo.NewOffset().At(offset)}})
	}

	history := make([]events.Event, 0, len(offsets))
	if len(offsets) > 0 {
		read(offsets[0])
	}
	for len(history) < len(offsets) {
		fetches := client.PollFetches(ctx)
		if err := errors.Join(fetches.Err0(), ctx.Err()); err != nil {
			return nil, fmt.Errorf("read the history of order %q: %w", id, err)
		}
		var last int64
		for it := fetches.RecordIter(); !it.Done() && len(history) < len(offsets); {
			r := it.Next()
			if last = r.Offset; r.Partition != p || last != offsets[len(history)] {
				continue
			}
			e, err := events.Decode[events.Event](r.Value)
			if err != nil {
				return nil, fmt.Errorf("journal partition %d offset %d: %w", p, r.Offset, err)
			}
			if e.Order != id {
				return nil, fmt.Errorf("%w: journal partition %d offset %d is of order %q, and not of %q", projections.ErrDamaged, p, r.Offset, e.Order, id)
			}
			history = append(history, e)
		}
		const far = 10_000 // offsets that are cheaper to jump over than to read
		if n := len(history); n < len(offsets) && offsets[n]-last > far {
			read(offsets[n])
		}
	}
	return history, nil
}

// idleReaders is how many readers of the journal are kept for the next history:
// a new one spends most of its time on connections.
const idleReaders = 4

// reader returns a reader of the journal for one caller, that reads nothing yet.
func (i *Instance) reader() (*kgo.Client, error) {
	select {
	case client := <-i.readers:
		return client, nil
	default:
	}
	return kgo.NewClient(append(i.kafka[:len(i.kafka):len(i.kafka)],
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.MetadataMinAge(cluster.MetadataMinAge),
	)...)
}

// giveBack takes a reader back that has read partition p, and keeps it if all
// went well and there is room.
func (i *Instance) giveBack(client *kgo.Client, p int32, err error) {
	client.RemoveConsumePartitions(map[string][]int32{i.topics.Journal: {p}})
	if err == nil {
		select {
		case i.readers <- client:
			return
		default:
		}
	}
	client.Close()
}
