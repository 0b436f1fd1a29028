package orchestrator

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/oracle"
)

// What a partition has open is found and ended, with a marker or with a
// transaction that covers it, and readers see it or never will. That a hanging
// transaction ends as it must is for [TestSimulation], and for make chaos.
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

				open, err := c.lane.broker.open(t.Context(), false, topicPartition{topics.Journal, 0})
				must(t, err)
				if len(open) != 1 || open[0].topic != topics.Journal || open[0].offset != r.Offset {
					t.Fatalf("%s: open are %+v, and the record is at %d", name, open, r.Offset)
				}
				must(t, end(t.Context(), c.lane, open[0], commit))
				oracle.Until(t, name+": the marker is there", func() error {
					past, err := c.lane.readPast(t.Context(), open)
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
