package orchestrator

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
)

// contender is an instance that fights for partition 0, step by step.
type contender struct {
	*testing.T
	lane *lane
}

func newContender(t *testing.T, b *kafka.Broker, topics *events.Topics, id string) *contender {
	t.Helper()
	i, err := New(t.Context(), Config{
		ID: id, Namespace: topics.Namespace, DataDir: t.TempDir(), Kafka: []kgo.Opt{kgo.SeedBrokers(b.Brokers...)},
	})
	if err != nil {
		t.Fatal(err)
	}
	state, err := i.store.Partition(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := i.Close(); err != nil {
			t.Error(err)
		}
	})
	return contend(t, i, state)
}

func contend(t *testing.T, i *Instance, state *projections.Partition) *contender {
	l := i.newLane(0, state, slog.New(slog.DiscardHandler))
	t.Cleanup(l.close)
	return &contender{t, l}
}

// anew is the same instance after its lane has ended.
func (c *contender) anew() *contender {
	c.lane.close()
	c.lane.state.Forget()
	return contend(c.T, c.lane.Instance, c.lane.state)
}

func onePartition(t *testing.T, b *kafka.Broker) events.Topics {
	t.Helper()
	topics, err := events.NewTopics(kafka.Namespace(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := CreateTopics(t.Context(), b.Admin(t), &topics, 1, 1); err != nil {
		t.Fatal(err)
	}
	return topics
}

func (c *contender) takeOver() {
	c.Helper()
	if err := c.lane.takeOver(c.Context()); err != nil {
		c.Fatal(err)
	}
}

// write commits a transaction as a timer would make it: it reads no input.
func (c *contender) write(id string) error {
	return c.lane.conclude(c.lane.producers.commit(c.decide(id)))
}

// decide returns the records of a transaction that [contender.write] commits.
func (c *contender) decide(id string) []*kgo.Record {
	c.lane.take(Submit(&Env{
		Now: now(), Instance: c.lane.cfg.ID, Topics: &c.lane.topics, Refuses: func(string, int) string { return "" },
	}, nil, id, &events.Submission{}, "", errors.New("written by "+c.lane.cfg.ID)))
	c.lane.inflight, c.lane.current = c.lane.current, newBatch()
	c.lane.seal(c.lane.inflight)
	return c.lane.inflight.records
}

func fenced(err error) bool {
	return errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch) || errors.Is(err, kerr.TransactionalIDNotFound)
}

func (c *contender) has(id string) bool {
	c.Helper()
	o, err := c.lane.state.Order(id)
	if err != nil {
		c.Fatal(err)
	}
	return o != nil
}

// The client reports success where it believes that there is nothing to commit.
// A lane must not: it has always written something.
func TestACommitThatWasNotAskedForIsNone(t *testing.T) {
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		topics := onePartition(t, b)
		c := newContender(t, b, &topics, "i-1")
		c.takeOver()
		if err := c.write("o-1"); err != nil {
			t.Error(err)
		}
		if err := c.lane.producers.commit(nil); !errors.Is(err, errNotAsked) {
			t.Errorf("nothing was committed, and the commit ended with %v", err)
		}
	})
}

// V6: once a successor has taken over, no slot of the former owner can commit,
// not even a transaction that reads no input, and all that it had committed is
// known to the successor.
func TestAZombieCannotCommit(t *testing.T) {
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		topics := onePartition(t, b)
		for slot := range slots {
			old := newContender(t, b, &topics, fmt.Sprintf("old-%d", slot))
			old.takeOver()
			for n := range slots + slot { // so that its next slot is another each time
				if err := old.write(fmt.Sprintf("early-%d-%d", slot, n)); err != nil {
					t.Fatal(err)
				}
			}
			successor := newContender(t, b, &topics, fmt.Sprintf("successor-%d", slot))
			successor.takeOver()
			if !successor.has(fmt.Sprintf("early-%d-%d", slot, slots+slot-1)) {
				t.Error("the successor does not know the last commit")
			}
			if err := old.write(fmt.Sprintf("late-%d", slot)); !fenced(err) {
				t.Errorf("slot %d: the zombie's commit ended with %v", slot, err)
			}
			if err := successor.write(fmt.Sprintf("after-%d", slot)); err != nil {
				t.Error(err)
			}
		}
		final := newContender(t, b, &topics, "final")
		final.takeOver()
		for slot := range slots {
			if final.has(fmt.Sprintf("late-%d", slot)) || !final.has(fmt.Sprintf("after-%d", slot)) {
				t.Errorf("slot %d: the journal has what the zombie wrote, or lacks what its successor wrote", slot)
			}
		}
	})
}

// V6: what a dead owner had open is aborted by the successor, which does not
// wait for any time-out.
func TestAnOpenTransactionOfADeadOwnerIsAborted(t *testing.T) {
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		topics := onePartition(t, b)
		dead := newContender(t, b, &topics, "dead")
		dead.takeOver()
		client := dead.lane.producers.ring[dead.lane.producers.next].(*kafkaProducer).client
		if err := client.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		e := events.Event{Type: events.OrderRejected, Order: "open", Seq: 1, At: now()}
		if err := client.ProduceSync(t.Context(), Outbox(nil, &topics, &projections.Order{ID: "open"}, &e)[0]).FirstErr(); err != nil {
			t.Fatal(err)
		}
		successor := newContender(t, b, &topics, "successor")
		successor.takeOver()
		if err := successor.write("after"); err != nil {
			t.Fatal(err)
		}
		if successor.has("open") {
			t.Error("an open transaction was folded")
		}
		if err := client.EndTransaction(t.Context(), kgo.TryCommit); err == nil {
			t.Error("the dead owner's transaction was committed after all")
		}
	})
}

// V6: the inits of two instances may interleave in any way; at most one of the
// two can claim and write after the other's claim.
func TestInterleavedTakeoversHaveOneWinner(t *testing.T) {
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		topics := onePartition(t, b)
		// After how many of its inits the first is overtaken by a whole takeover.
		for after := range slots {
			first := newContender(t, b, &topics, fmt.Sprintf("first-%d", after))
			second := newContender(t, b, &topics, fmt.Sprintf("second-%d", after))
			first.lane.producers = &producers{}
			for slot := range slots {
				if slot == after {
					second.takeOver()
				}
				one, err := first.lane.broker.fence(t.Context(), slot)
				if err != nil {
					t.Fatal(err)
				}
				first.lane.producers.ring[slot] = one
			}
			err := first.lane.claim(t.Context())
			if after == 0 {
				if err != nil {
					t.Errorf("the last to initialise slot 0 could not claim: %v", err)
				}
				if err := second.write("beaten"); !fenced(err) {
					t.Errorf("whoever was claimed over could write: %v", err)
				}
				continue
			}
			if !fenced(err) {
				t.Errorf("overtaken after %d inits, the claim ended with %v", after, err)
			}
			// The winner's later slots were initialised again by the loser. It
			// notices, takes over anew, and has lost nothing.
			var wrote []string
			for n := range slots {
				id := fmt.Sprintf("winner-%d-%d", after, n)
				if err := second.write(id); err != nil {
					if !fenced(err) {
						t.Errorf("write %d: %v", n, err)
					}
					break
				}
				wrote = append(wrote, id)
			}
			third := newContender(t, b, &topics, fmt.Sprintf("third-%d", after))
			third.takeOver()
			for _, id := range wrote {
				if !third.has(id) {
					t.Errorf("%s was committed and is not in the journal", id)
				}
			}
		}
	})
}

// A commit whose reply is lost has an unknown outcome. The lane gives up and
// takes over again, and finds in the journal what became of it; nothing is
// written twice.
func TestACommitWithUnknownOutcome(t *testing.T) {
	b := kafka.Embedded(t)
	topics := onePartition(t, b)
	for _, executed := range []bool{true, false} {
		c := newContender(t, b, &topics, fmt.Sprintf("i-%t", executed))
		c.takeOver()
		must(t, c.write(fmt.Sprintf("before-%t", executed)))
		asked := false
		b.Fake.ControlKey(int16(kmsg.EndTxn), func(r kmsg.Request) (kmsg.Response, error, bool) {
			if asked {
				return nil, nil, false
			}
			asked = true
			if executed {
				b.Fake.SleepControl(func() { end(t, b, r.(*kmsg.EndTxnRequest)) })
			}
			c.lane.cut() // it waits for the answer no longer
			return nil, nil, true
		})
		id := fmt.Sprintf("executed-%t", executed)
		if err := c.write(id); err == nil {
			t.Errorf("a commit that nobody answered, executed %t, counts as done", executed)
		}
		next := newContender(t, b, &topics, "next-"+id)
		next.takeOver()
		if next.has(id) != executed {
			t.Errorf("the journal has the commit: %t, and it was executed: %t", !executed, executed)
		}
		must(t, next.write("after-"+id))
	}
	last := newContender(t, b, &topics, "last")
	last.takeOver() // folds everything: a number that is doubled or missing fails
}

// end ends a transaction as its client asked.
func end(t *testing.T, b *kafka.Broker, asked *kmsg.EndTxnRequest) {
	answer, err := asked.RequestWith(t.Context(), b.Client(t))
	if err == nil {
		err = kerr.ErrorForCode(answer.ErrorCode)
	}
	if err != nil {
		t.Error(err)
	}
}
