package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/oracle"
)

// What a partition has open is found and ended, with a marker or with a
// transaction that covers it, and readers see it or never will.
func TestOpenTransactionsAreEnded(t *testing.T) {
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		for _, covered := range []bool{false, true} {
			for _, commit := range []bool{true, false} {
				topics := journal(t, b)
				k := reached(t, b, topics)
				p := fenced(t, k, 0)
				must(t, p.client.BeginTransaction())
				r := record(topics.Journal)
				must(t, p.client.ProduceSync(t.Context(), r).FirstErr())

				on := lane.TopicPartition{Topic: topics.Journal}
				open, _, err := k.Open(t.Context(), on)
				must(t, err)
				if len(open) != 1 || open[0].TopicPartition != on || open[0].Offset != r.Offset {
					t.Fatalf("covered %t: open are %+v, and the record is at %d", covered, open, r.Offset)
				}
				if covered {
					err = p.Cover(t.Context(), open[0], commit)
				} else {
					err = k.Finish(t.Context(), open[0], commit)
				}
				must(t, err)
				oracle.Until(t, "the marker is there", func() error {
					if open, _, err := k.Open(t.Context(), on); err != nil || len(open) > 0 {
						return fmt.Errorf("open are %+v, %w", open, err)
					}
					return nil
				})
				reads, err := k.Read(0, true)
				must(t, err)
				reads.Seek(map[string]int64{topics.Journal: r.Offset})
				found := reads.Poll(t.Context(), 1).Records()
				reads.Close()
				if seen := !found[0].Attrs.IsControl(); seen != commit {
					t.Errorf("covered %t: committed %t, and readers see it: %t", covered, commit, seen)
				}
			}
		}
	})
}

// Kafka knows a slot by the producer id and epoch that the slot's producer has,
// when it was initialised and after each commit: else a lane would take itself
// for fenced. What it owes then is the marker of that commit.
func TestSlotsAsKafkaKnowsThem(t *testing.T) {
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		topics := journal(t, b)
		k := reached(t, b, topics)
		var ring [lane.Slots]*producer
		for slot := range ring {
			ring[slot] = fenced(t, k, slot)
		}
		for n := range 2 * lane.Slots {
			have, err := k.Slots(t.Context())
			must(t, err)
			for slot, p := range ring {
				id, epoch, err := p.ID(t.Context())
				must(t, err)
				if want := (lane.Transaction{Producer: id, Epoch: epoch}); have[slot].Transaction != want {
					t.Errorf("slot %d is %+v, and its producer has %+v", slot, have[slot], want)
				}
			}
			must(t, ring[n%lane.Slots].Commit([]*kgo.Record{record(topics.Journal)}))
			oracle.Until(t, "its marker is written", func() error {
				have, err := k.Slots(t.Context())
				for slot, has := range have {
					if has.Owed != nil && (slot != n%lane.Slots || !slices.Equal(has.Owed, []lane.TopicPartition{{Topic: topics.Journal}})) {
						t.Errorf("slot %d of %d owes %v", slot, n%lane.Slots, has.Owed)
					}
					if has.Owed != nil {
						return errors.New("not yet")
					}
				}
				return err
			})
			places, err := k.Wrote(t.Context(), map[int64]bool{have[0].Producer: true})
			must(t, err)
			// The embedded broker tells only of what is open.
			if want := []lane.TopicPartition{{Topic: topics.Journal}}; b.Kind == kafka.KindContainer && !slices.Equal(places, want) {
				t.Errorf("slot 0 wrote to %v, and not to %v", places, want)
			}
		}
		if b.Kind == kafka.KindEmbedded {
			return // it acknowledges a commit behind its markers
		}
		n := 0
		oracle.Until(t, "somebody looks before a marker is written", func() error {
			n++
			must(t, ring[n%lane.Slots].Commit([]*kgo.Record{record(topics.Journal)}))
			have, err := k.Slots(t.Context())
			if have[n%lane.Slots].Owed == nil {
				err = errors.Join(err, errors.New("nothing is owed"))
			}
			return err
		})
	})
}

// A slot owes the markers that its coordinator has yet to write, and not those of a transaction that is open
// or over.
func TestWhatASlotOwes(t *testing.T) {
	b := kafka.Embedded(t)
	topics := journal(t, b)
	k := reached(t, b, topics)
	states := []string{"PrepareCommit", "PrepareAbort", "Ongoing", "CompleteCommit"}
	var ids []string
	for slot := range states {
		ids = append(ids, TransactionalID(topics, 0, slot))
	}
	b.Fake.ControlKey(int16(kmsg.DescribeTransactions), func(r kmsg.Request) (kmsg.Response, error, bool) {
		told := r.ResponseKind().(*kmsg.DescribeTransactionsResponse)
		for _, id := range r.(*kmsg.DescribeTransactionsRequest).TransactionalIDs {
			is := kmsg.NewDescribeTransactionsResponseTransactionState()
			slot := slices.Index(ids, id)
			is.TransactionalID, is.State, is.ProducerID, is.ProducerEpoch = id, states[slot], int64(slot), 7
			topic := kmsg.NewDescribeTransactionsResponseTransactionStateTopic()
			topic.Topic, topic.Partitions = topics.Journal, []int32{0, 3}
			is.Topics = append(is.Topics, topic)
			told.TransactionStates = append(told.TransactionStates, is)
		}
		return told, nil, true
	})
	have, err := k.Slots(t.Context())
	must(t, err)
	for slot, state := range states {
		var want []int32
		if strings.HasPrefix(state, "Prepare") {
			want = []int32{0, 3}
		}
		var owed []int32
		for _, at := range have[slot].Owed {
			if at.Topic != topics.Journal {
				t.Errorf("%s: it owes %v", state, at)
			}
			owed = append(owed, at.Partition)
		}
		slices.Sort(owed)
		if !slices.Equal(owed, want) || have[slot].Transaction != (lane.Transaction{Producer: int64(slot), Epoch: 7}) {
			t.Errorf("%s: %+v", state, have[slot])
		}
	}
}

// A partition that does not answer counts as no place where nothing hangs. A queue
// that is gone, or may not be described, holds nothing up, and nothing but the journal
// must answer.
func TestAPartitionThatMustAnswer(t *testing.T) {
	b := kafka.Embedded(t)
	topics := journal(t, b)
	b.Create(t, 1, nil, topics.Status)
	k := reached(t, b, topics)
	silence := errors.New("the answer leaves it out")
	if _, unseen, err := k.Open(t.Context(), lane.TopicPartition{Topic: topics.Requests("phone")}); err != nil || unseen != nil {
		t.Errorf("a queue that is not there: unseen are %v, %v", unseen, err)
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
		for at, fails := range map[lane.TopicPartition]bool{{Topic: topics.Journal}: answer != nil, {Topic: topics.Status}: false} {
			b.Fake.ControlKey(int16(kmsg.DescribeProducers), tell)
			_, unseen, err := k.Open(t.Context(), at)
			if (err != nil) != fails {
				t.Errorf("%v: to look for what hangs on %v fails: %v", answer, at, err)
			}
			if tells := answer == nil || errors.Is(answer, kerr.TopicAuthorizationFailed); err == nil && slices.Contains(unseen, at) == tells {
				t.Errorf("%v: %v is unseen: %v", answer, at, unseen)
			}
		}
		b.Fake.ControlKey(int16(kmsg.DescribeProducers), tell)
		if _, err := k.Wrote(t.Context(), nil); (err != nil) != errors.Is(answer, silence) {
			t.Errorf("%v: where else somebody wrote: %v", answer, err)
		}
	}
}

// A broker that takes the question what hangs on its partitions, and does not answer, is not
// waited for, however long the client would: they are unseen.
func TestWhoDoesNotAnswerIsNotWaitedFor(t *testing.T) {
	b := kafka.Embedded(t, kfake.NumBrokers(2))
	topics := journal(t, b)
	b.Create(t, 1, nil, topics.Status)
	must(t, b.Fake.MoveTopicPartition(topics.Journal, 0, 0))
	must(t, b.Fake.MoveTopicPartition(topics.Status, 0, 1))
	answer := b.FirstAnswersAlone(kmsg.DescribeProducers)
	defer answer()
	client := b.Client(t, kgo.RequestTimeoutOverhead(10*time.Minute))
	must(t, client.Ping(t.Context()))
	var asked atomic.Int32 // who leads partitions: behind the other question that would not be answered either
	b.Fake.ControlKey(kmsg.Metadata.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
		b.Fake.KeepControl()
		asked.Add(1)
		return nil, nil, false
	})
	k := New(client, topics, []kgo.Opt{kgo.SeedBrokers(b.Brokers...)}, func(string) (int, bool) { return 0, false }).Broker(0)
	ctx, cancel := context.WithTimeout(t.Context(), oracle.Patience)
	defer cancel()
	at := lane.TopicPartition{Topic: topics.Status}
	_, unseen, err := k.Open(ctx, lane.TopicPartition{Topic: topics.Journal}, at)
	if err != nil || !slices.Equal(unseen, []lane.TopicPartition{at}) || ctx.Err() != nil {
		t.Errorf("unseen are %v: %v, %v", unseen, err, ctx.Err())
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("it asked %d times who leads partitions, and may have done so behind a question that is not answered", n)
	}
}
