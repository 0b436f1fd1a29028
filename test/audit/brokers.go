package audit

import (
	"fmt"
	"iter"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/test/oracle"
)

// onBrokers is what a namespace has on brokers.
func onBrokers(t testing.TB, brokers []string, topics *events.Topics) Kafka {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	details, err := kadm.NewClient(client).ListTopics(t.Context(), topics.Journal)
	if err == nil {
		err = details.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	partitions := len(details[topics.Journal].Partitions)
	byKey := kgo.StickyKeyPartitioner(nil).ForTopic("")
	find, err := oracle.Flows(oracle.Read(t, brokers, topics.Workflows))
	if err != nil {
		t.Fatal(err)
	}
	return Kafka{
		Topics: topics,
		Flow:   find,
		Partition: func(order string) int32 {
			return int32(byKey.Partition(&kgo.Record{Key: []byte(order)}, partitions))
		},
		Read: func(topic string) iter.Seq[*kgo.Record] { return oracle.Records(t, brokers, topic) },
	}
}

// untilRead waits until all inputs were read that are there now. Who comes to the
// end of its orders may have answers that came twice before it.
func untilRead(t testing.TB, k Kafka) {
	t.Helper()
	ends := make(map[int32]events.Positions)
	for _, topic := range []string{k.Topics.Orders, k.Topics.Replies, k.Topics.Commands} {
		for r := range k.Read(topic) {
			end := ends[r.Partition]
			switch topic {
			case k.Topics.Orders:
				end.Orders = r.Offset + 1
			case k.Topics.Replies:
				end.Replies = r.Offset + 1
			default:
				end.Commands = r.Offset + 1
			}
			ends[r.Partition] = end
		}
	}
	oracle.Until(t, "all inputs are read", func() error {
		s := &settlement{Kafka: k, report: reporting(t), read: make(map[int32]events.Positions), upTo: make(map[int32]int64)}
		s.readPositions()
		for p, end := range ends {
			if next := s.read[p]; next.Orders < end.Orders || next.Replies < end.Replies || next.Commands < end.Commands {
				return fmt.Errorf("partition %d is read up to %+v of %+v", p, next, end)
			}
		}
		return nil
	})
}

// reported is how many violations are told one by one.
const reported = 30

// reporting fails t for what is reported, and does not go on for ever.
func reporting(t testing.TB) func(format string, args ...any) {
	said := 0
	return func(format string, args ...any) {
		t.Helper()
		if said++; said <= reported {
			t.Error(cut(fmt.Sprintf(format, args...), textLength))
		} else if said == reported+1 {
			t.Errorf("and more that is not as it must be")
		}
	}
}
