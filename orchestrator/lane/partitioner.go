package lane

import (
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
)

// Partitioner is Kafka's default: murmur2 of the key.
type Partitioner struct {
	keyed      kgo.TopicPartitioner
	asks       *kgo.Record // of each id anew
	partitions int
}

// NewPartitioner returns one for topics of so many partitions. It is not safe for
// concurrent use.
func NewPartitioner(partitions int32) Partitioner {
	return Partitioner{kgo.StickyKeyPartitioner(nil).ForTopic(""), new(kgo.Record), int(partitions)}
}

// Anywhere says whether a record for topic may be in another partition than its key says,
// where that one cannot be written: nobody is promised an order of alerts, nor of dead
// letters.
func Anywhere(topics *events.Topics, topic string) bool {
	return topic == topics.Alerts || topic == topics.DeadLetters
}

// Of returns the partition of an order.
func (p Partitioner) Of(id []byte) int32 {
	p.asks.Key = id
	partition := p.keyed.Partition(p.asks, p.partitions)
	p.asks.Key = nil // it is a part of what was fetched
	return int32(partition)
}
