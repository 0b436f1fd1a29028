package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/test/kafka"
)

// Only what Kafka says of the record itself may be remembered: anything else
// says nothing of the next one.
func TestRefusal(t *testing.T) {
	for _, err := range []error{kerr.MessageTooLarge, kerr.UnknownTopicOrPartition, kerr.TopicAuthorizationFailed, fmt.Errorf("x: %w", kerr.InvalidRecord)} {
		if Refusal("t", err) == "" {
			t.Errorf("%v is no refusal", err)
		}
	}
	for _, err := range []error{kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.NotLeaderForPartition, kerr.RequestTimedOut, errors.New("connection refused"), nil} {
		if Refusal("t", err) != "" {
			t.Errorf("%v is a refusal", err)
		}
	}
}

// What is refused for what it is, and not for where it goes, says nothing of the next
// message; and among others it may have been one of them.
func TestWhatAMessageIsRefusedFor(t *testing.T) {
	for code, message := range map[*kerr.Error]bool{kerr.InvalidRecord: true, kerr.InvalidTimestamp: true, kerr.PolicyViolation: true, kerr.MessageTooLarge: true, kerr.TopicAuthorizationFailed: false} {
		t.Run(code.Message, func(t *testing.T) {
			b, k := callers(t, "strict")
			b.Fake.ControlKey(int16(kmsg.Produce), func(q kmsg.Request) (kmsg.Response, error, bool) {
				b.Fake.KeepControl()
				return refuses(q.(*kmsg.ProduceRequest), code), nil, true
			})
			for n, records := range map[int][]*kgo.Record{1: {record("strict")}, 2: {record("strict"), record("strict")}} {
				err := k.Deliver(t.Context(), records)[0]
				refused, ok := errors.AsType[*lane.UndeliverableError](err)
				if !ok || refused.Message != message || refused.Batch != (message && n == 2) {
					t.Errorf("%d at a time: %+v", n, err)
				}
			}
		})
	}
}

// refuses is how Kafka answers who writes what it does not take.
func refuses(r *kmsg.ProduceRequest, code *kerr.Error) *kmsg.ProduceResponse {
	answer := r.ResponseKind().(*kmsg.ProduceResponse)
	for _, to := range r.Topics {
		said := kmsg.NewProduceResponseTopic()
		said.Topic, said.TopicID = to.Topic, to.TopicID
		for _, p := range to.Partitions {
			on := kmsg.NewProduceResponseTopicPartition()
			on.Partition, on.ErrorCode = p.Partition, code.Code
			said.Partitions = append(said.Partitions, on)
		}
		answer.Topics = append(answer.Topics, said)
	}
	return answer
}

// callers is a broker that has callers' topics, and the lane's way to them.
func callers(t *testing.T, names ...string) (*kafka.Broker, *broker) {
	t.Helper()
	b := kafka.Embedded(t)
	topics := journal(t, b)
	for _, name := range names {
		b.Create(t, 1, nil, name)
	}
	k := reached(t, b, topics).(*broker)
	t.Cleanup(k.Close)
	return b, k
}

// One partition of a topic that takes nothing, or refuses what is too large, keeps nothing from the others,
// and it is said of each record.
func TestDeliveriesToATopicOfWhichOnePartitionTakesNothing(t *testing.T) {
	for _, code := range []*kerr.Error{kerr.NotLeaderForPartition, kerr.MessageTooLarge} {
		t.Run(code.Message, func(t *testing.T) {
			b, k := callers(t)
			b.Create(t, 4, nil, "shop")
			b.Fake.ControlKey(int16(kmsg.Produce), func(q kmsg.Request) (kmsg.Response, error, bool) {
				b.Fake.KeepControl()
				r, answer := q.(*kmsg.ProduceRequest), refuses(q.(*kmsg.ProduceRequest), code)
				for i := range r.Topics {
					for j := range r.Topics[i].Partitions {
						if p := r.Topics[i].Partitions[j].Partition; p != 0 {
							answer.Topics[i].Partitions[j].ErrorCode = 0
						}
					}
				}
				return answer, nil, true
			})
			var records []*kgo.Record
			for i := range 32 {
				r := record("shop")
				r.Key = []byte(strconv.Itoa(i))
				records = append(records, r)
			}
			untaken, on := k.Deliver(t.Context(), records), make(map[int32]int)
			for i, r := range records {
				if on[r.Partition]++; (untaken[i] != nil) != (r.Partition == 0) {
					t.Errorf("record %d on partition %d: %v", i, r.Partition, untaken[i])
				}
			}
			if len(on) != 4 {
				t.Errorf("the records are on the partitions %v", on)
			}
		})
	}
}

func (k *broker) delivers(t *testing.T, topic string) error {
	t.Helper()
	return errors.Join(k.Deliver(t.Context(), []*kgo.Record{record(topic)})...)
}

// What all replicas have is delivered, and nothing less: the journal is told of it, and nobody
// delivers it again.
func TestDeliveriesAreOfAllReplicas(t *testing.T) {
	b, k := callers(t, "shop")
	var acks []int16
	var mu sync.Mutex
	b.Fake.ControlKey(int16(kmsg.Produce), func(q kmsg.Request) (kmsg.Response, error, bool) {
		b.Fake.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		acks = append(acks, q.(*kmsg.ProduceRequest).Acks)
		return nil, nil, false
	})
	must(t, k.delivers(t, "shop"))
	mu.Lock()
	defer mu.Unlock()
	if fmt.Sprint(acks) != "[-1]" {
		t.Errorf("it asks for acknowledgements %v", acks)
	}
}

// Whatever topics callers name, Kafka is asked only about those that are delivered to: not
// about one that is not there, nor for long about one that is, since it may be deleted.
func TestTopicsAreForgotten(t *testing.T) {
	b, k := callers(t, "first", "second", "third")
	var mu sync.Mutex
	var asked []string
	b.Fake.ControlKey(int16(kmsg.Metadata), func(q kmsg.Request) (kmsg.Response, error, bool) {
		b.Fake.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		for _, topic := range q.(*kmsg.MetadataRequest).Topics {
			if topic.Topic != nil {
				asked = append(asked, *topic.Topic)
			}
		}
		return nil, nil, false
	})
	asks := func(topic string) []string { // about which topics, to deliver to a new one
		mu.Lock()
		asked = nil
		mu.Unlock()
		must(t, k.delivers(t, topic))
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(asked)
		return slices.Compact(asked)
	}
	err := k.delivers(t, "made-up")
	if _, ok := errors.AsType[*lane.UndeliverableError](err); !ok {
		t.Fatal(err)
	}
	if got := asks("first"); fmt.Sprint(got) != "[first]" {
		t.Errorf("it asks about %q", got)
	}
	k.couriers.forget()
	if got := asks("second"); fmt.Sprint(got) != "[first second]" {
		t.Errorf("it asks about %q", got)
	}
	k.couriers.forget()
	if got := asks("third"); fmt.Sprint(got) != "[second third]" {
		t.Errorf("it asks about %q", got)
	}
	if len(k.couriers.topics) != 2 {
		t.Errorf("it knows %d topics", len(k.couriers.topics))
	}
}

// A topic whose replicas do not follow keeps each acknowledgement waiting, and the
// connection with it. It was late once: then it has a client of its own, and no other
// topic waits with it, until it is in time again.
func TestALateTopicHoldsUpNoOther(t *testing.T) {
	b, k := callers(t, "late", "fine")
	must(t, k.delivers(t, "late"))
	id := b.Fake.TopicInfo("late").TopicID
	arrived, answered, release := make(chan struct{}, 100), make(chan struct{}, 100), make(chan struct{})
	b.Fake.ControlKey(int16(kmsg.Produce), func(q kmsg.Request) (kmsg.Response, error, bool) {
		b.Fake.KeepControl()
		r := q.(*kmsg.ProduceRequest)
		if !slices.ContainsFunc(r.Topics, func(to kmsg.ProduceRequestTopic) bool { return to.Topic == "late" || to.TopicID == id }) {
			return nil, nil, false
		}
		arrived <- struct{}{}
		taken := true
		b.Fake.SleepControl(func() {
			select {
			case <-release:
			case <-time.After(time.Duration(r.TimeoutMillis) * time.Millisecond):
				taken = false
			}
			answered <- struct{}{}
		})
		if taken {
			return nil, nil, false
		}
		return refuses(r, kerr.RequestTimedOut), nil, true
	})
	if err := k.delivers(t, "late"); err == nil {
		t.Fatal("it was taken")
	}
	for len(arrived) > 0 { // the connection is free again
		<-arrived
		<-answered
	}
	ended := make(chan error, 1)
	go func() { ended <- k.delivers(t, "late") }()
	<-arrived
	must(t, k.delivers(t, "fine"))
	select {
	case err := <-ended:
		t.Errorf("the other topic waited until this ended: %v", err)
	default:
	}
	close(release)
	must(t, <-ended)
	must(t, k.delivers(t, "late")) // in time
	if k.couriers.topics["late"].late {
		t.Error("it has a client of its own for ever")
	}
}
