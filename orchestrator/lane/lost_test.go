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

// losing is a lane that has read nine records of each input, up to its last transaction, of
// the tenth minute. The claim behind that is of the thirtieth.
type losing struct {
	*Lane
	kafka           begun
	reader, ordered *logReader
}

func newLosing(t *testing.T) *losing {
	t.Helper()
	l, _ := newLane(t)
	kafka := begun{&logs{records: make(map[TopicPartition][]*kgo.Record)}, l.topics}
	l.broker, l.producers = kafka, &producers{}
	for slot := range l.producers.ring {
		l.producers.ring[slot] = &resting{}
	}
	h := &losing{l, kafka, &logReader{logs: kafka.logs, partition: 5}, &logReader{logs: kafka.logs, partition: 5}}
	l.inputs, l.orders = h.reader, h.ordered
	l.format = events.JournalFormat
	for in := range l.topics.Inputs() {
		l.position.Set(in, 9)
	}
	for _, minute := range []int{5, 10} {
		l.current.moved = true
		l.begin()
		last := *l.inflight.last
		last.Timestamp = atMinute(minute).Timestamp
		kafka.add(h.at(l.topics.Journal), &last)
		l.inflight.last.Offset = last.Offset
		must(t, l.conclude(nil))
	}
	claim := atMinute(30)
	claim.Headers = []kgo.RecordHeader{{Key: events.HeaderLane, Value: (&events.Seal{Events: 1}).Append(nil)}}
	kafka.add(h.at(l.topics.Journal), claim)
	return h
}

func (h *losing) at(topic string) TopicPartition { return TopicPartition{topic, 5} }

// has has a topic hold records of these minutes.
func (h *losing) has(topic string, minutes ...int) {
	for _, minute := range minutes {
		h.kafka.add(h.at(topic), atMinute(minute))
	}
}

func atMinute(minute int) *kgo.Record {
	return &kgo.Record{Timestamp: time.UnixMilli(0).Add(time.Duration(minute) * time.Minute)}
}

// What of an input was read, and is there still though its end was cut off, is not read
// again. What was written since the last transaction is, also of a topic made anew.
func TestGoingOnBehindAnEndThatWasCutOff(t *testing.T) {
	for _, stood := range []bool{true, false} { // many records behind the last transaction, or few
		l := newLosing(t)
		for range pastRecords + 1 {
			if stood {
				l.has(l.topics.Journal, 30)
			}
		}
		l.has(l.topics.Orders, 1, 2, 3, 20, 21)
		l.has(l.topics.Replies, 1, 2, 3, 9)
		l.has(l.topics.Commands, 20, 21)
		must(t, l.SkipLost(t.Context(), Author{By: "ann"}, "the other broker was faster"))
		if got := l.position.String(); got != `{"orders":3,"replies":4,"commands":0,"signals":0,"internal":0}` {
			t.Errorf("it reads on from %s", got)
		}
		if want := []int64{3, 4, 0}; !slices.Equal(want, []int64{l.ordered.from[l.topics.Orders], l.reader.from[l.topics.Replies], l.reader.from[l.topics.Commands]}) {
			t.Errorf("it seeks to %v and %v", l.ordered.from, l.reader.from)
		}
	}
}

// Of an input whose end was cut off, and which was written on beyond where it was read up to,
// all is read that is new: from where Kafka told that it begins, also where it was written
// before the last transaction, else what was written since that; and so it is of another one
// that nobody was told of. What lost nothing is read on.
func TestGoingOnBehindAnEndThatWasWrittenOn(t *testing.T) {
	for from, c := range map[int64]struct {
		orders []int
		want   string
	}{
		3:  {[]int{1, 2, 3, 8, 9, 20, 21, 22, 23, 24, 25, 26}, `{"orders":3,"replies":4,"commands":2,"signals":9,"internal":9}`},
		11: {[]int{1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 20}, `{"orders":9,"replies":4,"commands":2,"signals":9,"internal":9}`}, // more was fetched than decided on
	} {
		l := newLosing(t)
		l.has(l.topics.Orders, c.orders...)
		l.has(l.topics.Replies, 1, 2, 3, 9, 20, 21, 22, 23, 24, 25, 26)
		l.has(l.topics.Commands, 1, 2, 20, 21, 22, 23, 24, 25, 26, 27)
		l.has(l.topics.Signals, 1, 2, 3, 4, 5, 6, 7, 8, 9, 20)
		l.has(l.topics.Internal, 1, 2, 3, 4, 5, 6, 7, 8, 9)
		must(t, l.SkipLost(t.Context(), Author{By: "ann"}, "it had no power",
			&LostError{TopicPartition: l.at(l.topics.Orders), From: from}, &LostError{TopicPartition: l.at(l.topics.Replies), From: notTold}))
		if got := l.position.String(); got != c.want {
			t.Errorf("told that it begins at %d, it reads on from %s", from, got)
		}
	}
	l := newLosing(t) // what Kafka tells of a topic that was made anew
	l.has(l.topics.Orders, 20, 21, 22)
	must(t, l.SkipLost(t.Context(), Author{By: "ann"}, "it was the wrong topic", &LostError{TopicPartition: l.at(l.topics.Orders), From: 3}))
	if at := l.position.At(events.InputOrders); at != 0 {
		t.Errorf("of a topic that was made anew it reads on from %d", at)
	}
	l = newLosing(t)
	for _, topic := range l.topics.Inputs() {
		l.has(topic, 1, 2, 3, 4, 5, 6, 7, 8, 10, 20) // the ninth is of the transaction's time
	}
	if err := l.SkipLost(t.Context(), Author{By: "ann"}, "who knows"); err == nil || l.position.At(events.InputReplies) != 9 {
		t.Errorf("nothing was lost, and it reads on from %v: %v", l.position, err)
	}
}
