package audit

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/test/oracle"
)

// namespace is one on brokers.
type namespace struct {
	testing.TB
	reader     *oracle.Reader
	topics     *events.Topics
	flow       func(name string, version int) *oracle.Flow
	retired    func(name string, version int) bool
	partitions map[string]int // of each topic that there is
	byKey      kgo.TopicPartitioner
}

// open returns one whose reader is to be closed.
func open(t testing.TB, brokers []string, topics *events.Topics) *namespace {
	t.Helper()
	n := &namespace{TB: t, reader: oracle.NewReader(t, brokers), topics: topics, byKey: kgo.StickyKeyPartitioner(nil).ForTopic("")}
	n.partitions = n.reader.Partitions()
	workflows := slices.Collect(n.records(topics.Workflows))
	var err error
	if n.flow, err = oracle.Flows(workflows); err != nil {
		t.Fatal(err)
	}
	n.retired = oracle.Retired(workflows)
	return n
}

func (n *namespace) records(topic string) iter.Seq[*kgo.Record] {
	return n.reader.Records(topic)
}

// partition is where Kafka's default puts a key on a topic.
func (n *namespace) partition(topic, key string) int32 {
	return int32(n.byKey.Partition(&kgo.Record{Key: []byte(key)}, n.partitions[topic]))
}

// requestTopics lists the queues of all agents.
func (n *namespace) requestTopics() []string {
	var all []string
	for name := range n.partitions {
		if n.topics.Agent(name) != "" {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

func (n *namespace) kafka() Kafka {
	return Kafka{
		Topics: n.topics, Flow: n.flow, Retired: n.retired, Read: n.records,
		Partition: func(order string) int32 { return n.partition(n.topics.Journal, order) },
	}
}

// untilRead waits until all inputs were read that are there now. Where all orders
// have ended, an answer that came twice may not have been read yet.
func (n *namespace) untilRead() {
	n.Helper()
	ends := make(map[int32]events.Positions)
	for in, topic := range n.topics.Inputs() {
		for r := range n.records(topic) {
			end := ends[r.Partition]
			end.Set(in, r.Offset+1)
			ends[r.Partition] = end
		}
	}
	oracle.Until(n, "all inputs are read", func() error {
		s := &settlement{Kafka: n.kafka(), report: n.reporting(), read: make(map[int32]events.Positions), upTo: make(map[int32]int64)}
		s.readPositions()
		for p, end := range ends {
			for in, topic := range n.topics.Inputs() {
				if next := s.until(topic, p); next < end.At(in) {
					return fmt.Errorf("partition %d of %s is read up to %d of %d", p, topic, next, end.At(in))
				}
			}
		}
		return nil
	})
}

// Delivered waits until the journal says that callers' own topics have all that they are
// owed, or that it was refused: some of them, or all if none is named.
func Delivered(t testing.TB, brokers []string, topics *events.Topics, callers ...string) {
	t.Helper()
	n := open(t, brokers, topics)
	defer n.reader.Close()
	n.untilDelivered(func(topic string) bool { return len(callers) == 0 || slices.Contains(callers, topic) })
}

func (n *namespace) untilDelivered(to func(topic string) bool) {
	n.Helper()
	oracle.Until(n, "the callers' topics have what they are owed", func() error { return owed(n.records(n.topics.Journal), to) })
}

// owed says what, by the journal, callers' own topics do not have yet of what they are owed.
func owed(journal iter.Seq[*kgo.Record], to func(topic string) bool) error {
	type target struct {
		partition int32
		topic     string
	}
	type message struct {
		order   string
		another bool // it is for another than the order's caller
	}
	format := make(map[int32]int)
	replyTo := make(map[string]string)
	owed := make(map[target]map[message]int64) // behind the last
	owes := func(to target, m message, behind int64) {
		if owed[to] == nil {
			owed[to] = make(map[message]int64)
		}
		owed[to][m] = behind
	}
	for r := range journal {
		e, err := events.Decode[events.Event](r.Value)
		if err != nil {
			return fmt.Errorf("journal, partition %d, offset %d: %w", r.Partition, r.Offset, err)
		}
		switch e.Type {
		case events.PartitionClaimed, events.PartitionRaised:
			format[r.Partition] = max(format[r.Partition], e.Format)
		case events.PartitionDelivered:
			for topic, next := range e.Delivered {
				maps.DeleteFunc(owed[target{r.Partition, topic}], func(_ message, behind int64) bool { return behind <= next })
			}
		case events.StatusRefused:
			delete(replyTo, e.Order)
			delete(owed[target{r.Partition, e.ReplyTo}], message{order: e.Order})
		case events.OrderAccepted, events.OrderRejected:
			replyTo[e.Order] = e.ReplyTo
		}
		switch e.Type {
		case events.SubmissionConflicted, events.StepHeard, events.SignalKept, events.SignalStarted, events.SignalDiscarded:
			if e.ReplyTo != "" && to(e.ReplyTo) {
				owes(target{r.Partition, e.ReplyTo}, message{e.Order, true}, r.Offset+1)
			}
		case events.OrderAccepted, events.OrderRejected, events.OrderCompleted, events.OrderErrored,
			events.OrderCompensating, events.OrderCompensated, events.OrderCancelled, events.OrderRaised, events.OrderTerminated:
			if own := replyTo[e.Order]; own != "" && to(own) && format[r.Partition] >= events.CourierFormat {
				owes(target{r.Partition, own}, message{order: e.Order}, r.Offset+1)
			}
		}
	}
	for at, messages := range owed {
		for m, behind := range messages {
			return fmt.Errorf("partition %d owes topic %s what is before offset %d, of order %q", at.partition, at.topic, behind, m.order)
		}
	}
	return nil
}

// reported is how many violations are told one by one.
const reported = 30

// reporting fails the test for what is reported, and does not go on for ever.
func (n *namespace) reporting() func(format string, args ...any) {
	said := 0
	return func(format string, args ...any) {
		n.Helper()
		if said++; said <= reported {
			n.Error(cut(fmt.Sprintf(format, args...), textLength))
		} else if said == reported+1 {
			n.Error("and more that is not as it must be")
		}
	}
}
