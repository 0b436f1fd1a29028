package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/audit"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/oracle"
)

// What a partition has open is found and ended, with a marker or with a
// transaction that covers it, and readers see it or never will.
func TestOpenTransactionsAreEnded(t *testing.T) {
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		for name, end := range map[string]func(context.Context, *lane, openTransaction, bool) error{
			"marker": func(ctx context.Context, l *lane, open openTransaction, commit bool) error {
				return l.broker.finish(ctx, open, commit)
			},
			"cover": func(ctx context.Context, l *lane, open openTransaction, commit bool) error {
				return l.producers.ring[0].cover(ctx, open, commit)
			},
		} {
			for _, commit := range []bool{true, false} {
				topics := onePartition(t, b)
				c := newContender(t, b, &topics, "i-1")
				c.takeOver()
				client := c.lane.producers.ring[0].(*kafkaProducer).client
				must(t, client.BeginTransaction())
				e := events.Event{Type: events.OrderRejected, Order: "open", Seq: 1, At: now()}
				r := Outbox(nil, &topics, &projections.Order{ID: "open"}, &e)[0]
				must(t, client.ProduceSync(t.Context(), r).FirstErr())

				open, err := c.lane.broker.open(t.Context(), topicPartition{topics.Journal, 0})
				must(t, err)
				if len(open) != 1 || open[0].topic != topics.Journal || open[0].offset != r.Offset {
					t.Fatalf("%s: open are %+v, and the record is at %d", name, open, r.Offset)
				}
				must(t, end(t.Context(), c.lane, open[0], commit))
				oracle.Until(t, name+": the marker is there", func() error {
					past, err := c.lane.readPast(t.Context(), open, 0)
					must(t, err)
					if last := past.all[len(past.all)-1]; !last.ended || last.committed != commit || last.last != r.Offset {
						return fmt.Errorf("the journal says %+v, and commit was %t", last, commit)
					}
					return nil
				})
				reads, err := c.lane.broker.read(0, true)
				must(t, err)
				reads.seek(map[string]int64{topics.Journal: r.Offset})
				found := reads.poll(t.Context(), 1).Records()
				reads.close()
				if seen := !found[0].Attrs.IsControl(); seen != commit {
					t.Errorf("%s: committed %t, and readers see it: %t", name, commit, seen)
				}
			}
		}
	})
}

// Kafka knows a slot by the producer id and epoch that the slot's producer has,
// when it was initialised and after each commit: else a lane would take itself
// for fenced.
func TestSlotsAsKafkaKnowsThem(t *testing.T) {
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		topics := onePartition(t, b)
		c := newContender(t, b, &topics, "i-1")
		c.takeOver()
		for range 2 * slots {
			have, err := c.lane.broker.slots(t.Context())
			must(t, err)
			for i, p := range c.lane.producers.ring {
				id, epoch, err := p.id(t.Context())
				must(t, err)
				if want := (transaction{id, epoch}); have[i] != want {
					t.Errorf("slot %d is %+v, and its producer has %+v", i, have[i], want)
				}
			}
			places, err := c.lane.broker.wrote(t.Context(), map[int64]bool{have[0].producer: true})
			must(t, err)
			// The embedded broker tells only of what is open.
			if want := []topicPartition{{topics.Journal, 0}}; b.Kind == kafka.KindContainer && !slices.Equal(places, want) { // the claim
				t.Errorf("slot 0 wrote to %v, and not to %v", places, want)
			}
			e := events.Event{Type: events.PartitionAdvanced, At: now()}
			must(t, c.lane.producers.commit([]*kgo.Record{c.lane.laneEvent(&e, "x")}))
		}
	})
}

// A partition that must answer and does not counts as no place where nothing
// hangs. A queue that is gone, or may not be described, holds nothing up, and others'
// partitions never do.
func TestAPartitionThatMustAnswer(t *testing.T) {
	b := kafka.Embedded(t)
	topics := onePartition(t, b)
	c := newContender(t, b, &topics, "i-1")
	c.takeOver()
	silence := errors.New("the answer leaves it out")
	if _, err := c.lane.broker.open(t.Context(), topicPartition{topics.Requests("phone"), 0}); err != nil {
		t.Errorf("a queue that is not there: %v", err)
	}
	for _, answer := range []error{nil, kerr.TopicAuthorizationFailed, kerr.UnknownServerError, silence} {
		tell := func(r kmsg.Request) (kmsg.Response, error, bool) {
			told := r.ResponseKind().(*kmsg.DescribeProducersResponse)
			for _, asked := range r.(*kmsg.DescribeProducersRequest).Topics {
				topic := kmsg.NewDescribeProducersResponseTopic()
				topic.Topic = asked.Topic
				for _, partition := range asked.Partitions {
					p := kmsg.NewDescribeProducersResponseTopicPartition()
					p.Partition = partition
					if known := new(kerr.Error); errors.As(answer, &known) {
						p.ErrorCode = known.Code
					}
					topic.Partitions = append(topic.Partitions, p)
				}
				if !errors.Is(answer, silence) {
					told.Topics = append(told.Topics, topic)
				}
			}
			return told, nil, true
		}
		for at, fails := range map[topicPartition]bool{{topics.Journal, 0}: answer != nil, {topics.Status, 0}: false} {
			b.Fake.ControlKey(int16(kmsg.DescribeProducers), tell)
			if _, err := c.lane.broker.open(t.Context(), at); (err != nil) != fails {
				t.Errorf("%v: to look for what hangs on %v fails: %v", answer, at, err)
			}
		}
		b.Fake.ControlKey(int16(kmsg.DescribeProducers), tell)
		if _, err := c.lane.broker.wrote(t.Context(), nil); (err != nil) != errors.Is(answer, silence) {
			t.Errorf("%v: where else somebody wrote: %v", answer, err)
		}
	}
}

// opens is a broker that tells what is open, and nothing else.
type opens struct {
	broker
	transactions []openTransaction
}

func (o opens) open(context.Context, ...topicPartition) ([]openTransaction, error) {
	return o.transactions, nil
}

func (o opens) slots(context.Context) (have [slots]transaction, err error) {
	for slot := range have {
		have[slot] = transaction{int64(slot), 7}
	}
	return have, nil
}

// resting is a producer that has an id, and does nothing.
type resting struct {
	producer
	has transaction
}

func (p resting) id(context.Context) (int64, int16, error) { return p.has.producer, p.has.epoch, nil }

// A transaction that is seen once may only wait for its markers. One that goes on
// is the same, and one that ended between two looks is seen anew.
func TestLooks(t *testing.T) {
	l, first := make(looks), openTransaction{transaction: transaction{1, 6}, offset: 3, written: 1}
	longer, next := first, first
	longer.written, next.offset = 2, 9
	for n, c := range []struct {
		open  []openTransaction
		again int
	}{
		{[]openTransaction{first}, 0},
		{[]openTransaction{longer}, 1},
		{[]openTransaction{longer, next}, 0}, // told once
		{nil, 0},
		{[]openTransaction{next}, 0},
		{[]openTransaction{next}, 1},
	} {
		if again := l.look(c.open); len(again) != c.again {
			t.Errorf("look %d sees again %+v, and must %d", n+1, again, c.again)
		}
	}
}

// newRing returns a lane that has all slots, as its broker knows.
func newRing(t *testing.T, open ...openTransaction) *lane {
	l := newLane(t)
	l.producers, l.broker = &producers{}, opens{transactions: open}
	for slot := range l.producers.ring {
		l.producers.ring[slot] = resting{has: transaction{int64(slot), 7}}
	}
	return l
}

// What hangs of a producer that never wrote to the journal is somebody else's.
func TestSomebodyElsesTransactionIsLeftAlone(t *testing.T) {
	l := newRing(t)
	mine, others := openTransaction{transaction: transaction{99, 1}, slot: spent}, openTransaction{transaction: transaction{98, 1}, slot: spent}
	got, err := l.ours(t.Context(), &past{writers: map[int64]bool{99: true}}, []openTransaction{others, mine})
	if err != nil || !slices.Equal(got, []openTransaction{mine}) {
		t.Errorf("%+v, %v", got, err)
	}
}

// After a lost connection a lane commits nothing as long as it sees that
// something hangs of its own.
func TestALaneSettles(t *testing.T) {
	l := newRing(t)
	ended, end := context.WithCancel(t.Context())
	end() // it waits for nothing
	for _, c := range []struct {
		what    string
		open    openTransaction
		settles bool
	}{
		{"one that has gone by", openTransaction{transaction: transaction{1, 6}, topic: l.topics.Journal, partition: l.partition}, false},
		{"the next one", openTransaction{transaction: transaction{1, 7}, topic: l.topics.Journal, partition: l.partition}, true},
		{"one of a former id, which the next commit does not cover", openTransaction{transaction: transaction{99, 1}, topic: l.topics.Journal, partition: l.partition}, true},
		{"one of another lane", openTransaction{transaction: transaction{99, 1}, topic: l.topics.Journal, partition: l.partition + 1}, true},
		{"somebody's", openTransaction{transaction: transaction{99, 1}, topic: l.topics.Status, partition: l.partition}, true},
	} {
		l.broker = opens{transactions: []openTransaction{c.open}}
		if err := l.settle(ended); (err == nil) != c.settles {
			t.Errorf("%s is open: %v", c.what, err)
		}
	}
}

// unprivileged is a broker that lets the lane write no marker.
type unprivileged struct{ broker }

func (unprivileged) finish(context.Context, openTransaction, bool) error {
	return fmt.Errorf("write a marker: %w", &kadm.AuthError{Err: kerr.ClusterAuthorizationFailed})
}

// A takeover ends what the owner before it left hanging: it was committed if
// something stands behind it, or if this instance folded it. Without the right to
// write markers it ends in the same way, and the lane has all its producers.
func TestATakeoverEndsWhatHangs(t *testing.T) {
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		f := newForgetful(t, b)
		for _, c := range []struct {
			name      string
			behind    bool // another transaction was written behind it
			folded    bool // the one that takes over is the one that wrote it
			committed bool
		}{
			{name: "the last"},
			{name: "followed", behind: true, committed: true},
			{name: "folded", folded: true, committed: true},
		} {
			for _, privileged := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, right to alter %t", c.name, privileged), func(t *testing.T) {
					topics := onePartition(t, b)
					newContender(t, b, &topics, "first").takeOver()
					old := newContender(t, b, &topics, "old")
					old.takeOver()
					must(t, old.write("before"))
					f.write(old, "hung")
					if c.behind {
						must(t, old.write("behind"))
					}
					next := newContender(t, b, &topics, "next")
					if c.folded {
						next = old.anew()
					}
					if !privileged {
						next.lane.broker = unprivileged{next.lane.broker}
					}
					next.takeOver()
					for slot := range slots {
						must(t, next.write(fmt.Sprint("after-", slot)))
					}
					oracle.Until(t, "nothing hangs", func() error {
						if open, err := next.lane.broker.open(t.Context(), next.lane.places()...); err != nil || len(open) > 0 {
							return fmt.Errorf("open are %+v, %w", open, err)
						}
						return nil
					})
					last := newContender(t, b, &topics, "last")
					last.takeOver()
					for id, want := range map[string]bool{"before": true, "hung": c.committed, "behind": c.behind, "after-3": true} {
						if last.has(id) != want {
							t.Errorf("the journal has %s: %t", id, !want)
						}
					}
				})
			}
		}
	})
}

// A lane that finds one of its own transactions hanging ends, and the takeover
// that follows ends what hangs. What Kafka had acknowledged stays.
func TestALaneFindsWhatHangsOfItsOwn(t *testing.T) {
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		f, topics, said := newForgetful(t, b), onePartition(t, b), &lines{}
		newContender(t, b, &topics, "first").takeOver()
		i, _ := runs(t, b, Config{ID: "i-1", Namespace: topics.Namespace, watchEvery: 50 * time.Millisecond, Logger: said.logger()})
		oracle.Until(t, "ready", i.Ready)
		must(t, i.Register(t.Context(), parseFlow(t, silentFlow)))
		i.waits(t, "before", `{}`)
		i.mu.Lock()
		unused := i.lanes[0].lane.producers.ring[slots-1].(*kafkaProducer)
		i.mu.Unlock()
		if b.Kind == kafka.KindEmbedded {
			f.forget()
			i.waits(t, "hung", `{}`)
		} else {
			e := events.Event{Type: events.OrderRejected, Order: "hung", Seq: 1, At: now()}
			f.leave(unused, Outbox(nil, &topics, &projections.Order{ID: "hung"}, &e)[:1])
		}
		said.until(t, "the lane ended; taking the partition over again", "a transaction hangs on "+topics.Namespace)
		said.until(t, "ended a transaction that hung", "topic="+topics.Journal, fmt.Sprintf("commit=%t", b.Kind == kafka.KindEmbedded))
		i.waits(t, "after", `{}`)
		found := slices.ContainsFunc(oracle.Read(t, b.Brokers, topics.Journal), func(r *kgo.Record) bool { return string(r.Key) == "hung" })
		if acknowledged := b.Kind == kafka.KindEmbedded; found != acknowledged {
			t.Errorf("what hung is in the journal: %t; it was acknowledged: %t", found, acknowledged)
		}
		audit.Namespace(t, b.Brokers, &topics, true)
	})
}

// A caller's transaction that stays open keeps what is behind it from being read.
// The log tells whose it is, and once it is aborted all goes on without it.
func TestACallersOpenTransactionIsTold(t *testing.T) {
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		topics, said := onePartition(t, b), &lines{}
		i, _ := runs(t, b, Config{ID: "i-1", Namespace: topics.Namespace, watchEvery: 50 * time.Millisecond, Logger: said.logger()})
		oracle.Until(t, "ready", i.Ready)
		must(t, i.Register(t.Context(), parseFlow(t, silentFlow)))
		caller := b.Client(t, kgo.TransactionalID(topics.Namespace+"-caller"))
		must(t, caller.BeginTransaction())
		submission := &kgo.Record{Topic: topics.Orders, Key: []byte("open"), Value: []byte(`{"workflow":"silent"}`)}
		must(t, caller.ProduceSync(t.Context(), submission).FirstErr())
		behind, err := i.Submit(t.Context(), "open", &events.Submission{Workflow: "silent", Input: []byte(`{"of":"another"}`)}, "")
		must(t, err)
		said.until(t, "somebody's transaction keeps the inputs behind it from being read", fmt.Sprintf("topic=%s offset=%d", topics.Orders, submission.Offset))
		if o, _, err := i.Order(behind); !errors.Is(err, projections.ErrNotFound) {
			t.Errorf("what is behind it was read: %+v, %v", o, err)
		}
		must(t, caller.EndTransaction(t.Context(), kgo.TryAbort))
		i.waits(t, "open", `{"of":"another"}`)
		audit.Namespace(t, b.Brokers, &topics, true)
	})
}

// silentFlow is a workflow whose orders wait for an agent that never answers.
const silentFlow = "workflow: silent\nsteps: [{name: call, agent: phone, timeout: 1h}]"
