package lane

import (
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
)

// Partitioner is Kafka's default: murmur2 of the key.
type Partitioner struct {
	keyed      kgo.TopicPartitioner
	partitions int
}

// NewPartitioner returns one for topics of so many partitions. It is not safe for
// concurrent use.
func NewPartitioner(partitions int32) Partitioner {
	return Partitioner{kgo.StickyKeyPartitioner(nil).ForTopic(""), int(partitions)}
}

// Anywhere says whether a record for topic may be in another partition than its key says,
// where that one cannot be written: nobody is promised an order of alerts, nor of dead
// letters.
func Anywhere(topics *events.Topics, topic string) bool {
	return topic == topics.Alerts || topic == topics.DeadLetters
}

// Of returns the partition of an order.
func (p Partitioner) Of(id []byte) int32 {
	return int32(p.keyed.Partition(&kgo.Record{Key: id}, p.partitions))
}
