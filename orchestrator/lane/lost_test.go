package lane

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
)

// begun are logs whose inputs begin with offset 0.
type begun struct {
	*logs
	topics *events.Topics
}

func (b begun) Starts(context.Context, ...TopicPartition) (at events.Positions, err error) {
	for in := range b.topics.Inputs() {
		at.Set(in, 0)
	}
	return at, nil
}

// What of an input was read, and is there still though its end was cut off, is not read
// again. What was written since the last transaction is, also of a topic made anew.
func TestGoingOnBehindAnEndThatWasCutOff(t *testing.T) {
	for _, stood := range []bool{true, false} { // many records behind the last transaction, or few
		l, _ := newLane(t)
		kafka := begun{&logs{records: make(map[TopicPartition][]*kgo.Record)}, l.topics}
		l.broker, l.producers = kafka, &producers{}
		for slot := range l.producers.ring {
			l.producers.ring[slot] = &resting{}
		}
		reader, orders := &logReader{logs: kafka.logs, partition: 5}, &logReader{logs: kafka.logs, partition: 5}
		l.inputs, l.orders = reader, orders
		at := func(topic string) TopicPartition { return TopicPartition{topic, 5} }
		record := func(minute int) *kgo.Record {
			return &kgo.Record{Timestamp: time.UnixMilli(0).Add(time.Duration(minute) * time.Minute)}
		}
		transaction := func(minute int) {
			l.current.moved = true
			l.begin()
			last := *l.inflight.last
			last.Timestamp = record(minute).Timestamp
			kafka.add(at(l.topics.Journal), &last)
			l.inflight.last.Offset = last.Offset
			must(t, l.conclude(nil))
		}
		l.format = events.JournalFormat
		for in := range l.topics.Inputs() {
			l.position.Set(in, 9)
		}
		transaction(5)
		transaction(10)
		claim := record(30)
		claim.Headers = []kgo.RecordHeader{{Key: events.HeaderLane, Value: (&events.Seal{Events: 1}).Append(nil)}}
		kafka.add(at(l.topics.Journal), claim)
		for range pastRecords + 1 {
			if stood {
				kafka.add(at(l.topics.Journal), record(30))
			}
		}
		kafka.add(at(l.topics.Orders), record(1), record(2), record(3), record(20), record(21))
		kafka.add(at(l.topics.Replies), record(1), record(2), record(3), record(9))
		kafka.add(at(l.topics.Commands), record(20), record(21))
		must(t, l.SkipLost(t.Context(), Author{By: "ann"}, "the other broker was faster"))
		if got := l.position.String(); got != `{"orders":3,"replies":4,"commands":0,"signals":0,"internal":0}` {
			t.Errorf("it reads on from %s", got)
		}
		if want := []int64{3, 4, 0}; !slices.Equal(want, []int64{orders.from[l.topics.Orders], reader.from[l.topics.Replies], reader.from[l.topics.Commands]}) {
			t.Errorf("it seeks to %v and %v", orders.from, reader.from)
		}
	}
}
