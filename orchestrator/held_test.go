package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/audit"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/oracle"
)

// P2, P3: over topics, an instance holds an order on which it panics and goes on with
// the others, and the next one, which does not panic, releases it.
func TestAHeldOrderIsReleasedByTheNextOwner(t *testing.T) {
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		topics := onePartition(t, b)
		client := b.Client(t)
		start := func(id string) (*Instance, func()) {
			t.Helper()
			i, err := New(t.Context(), Config{
				ID: id, Namespace: topics.Namespace, DataDir: t.TempDir(), Kafka: []kgo.Opt{kgo.SeedBrokers(b.Brokers...)},
				Logger: slog.New(slog.DiscardHandler),
			})
			must(t, err)
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- i.Run(ctx) }()
			oracle.Until(t, id+" is ready", i.Ready)
			return i, func() {
				stop()
				must(t, errors.Join(<-ended, i.Close()))
			}
		}
		submit := func(i *Instance, id, flow string) {
			t.Helper()
			_, err := i.Submit(t.Context(), id, &events.Submission{Workflow: flow}, Context{}, nil)
			must(t, err)
		}
		answer := func(order, step string) {
			t.Helper()
			reply := events.Reply{Order: order, Step: step, Attempt: 1, Status: events.ReplyCompleted}
			must(t, client.ProduceSync(t.Context(), &kgo.Record{Topic: topics.Replies, Key: []byte(order), Value: reply.Append(nil)}).FirstErr())
		}
		until := func(i *Instance, id string, is func(o *projections.Order) bool) {
			t.Helper()
			oracle.Until(t, "order "+id, func() error {
				o, _, err := i.Store().Order(0, id)
				if err == nil && !is(o) {
					err = fmt.Errorf("it is %s with %d inputs that wait", o.State, len(o.Waiting))
				}
				return err
			})
		}
		held := func(i *Instance, want int) {
			t.Helper()
			oracle.Until(t, "so many orders are held", func() error {
				if counts, missing := i.Counts(); counts.Held != want || missing > 0 {
					return fmt.Errorf("%d are, and not %d; %d partitions are not counted", counts.Held, want, missing)
				}
				return nil
			})
		}
		processing := func(o *projections.Order) bool { return o.State == projections.Processing }
		processed := func(o *projections.Order) bool { return o.State == projections.Processed }

		one, stop := start("one")
		must(t, one.Register(t.Context(), parseFlow(t, "workflow: order\nsteps:\n  - {name: charge, agent: payment}\n  - {name: ship, agent: shipping}\n")))
		other := parseFlow(t, "workflow: other\nsteps:\n  - {name: charge, agent: payment}\n")
		must(t, one.Register(t.Context(), other))
		submit(one, "poisoned", "order")
		submit(one, "well", "other")
		until(one, "poisoned", processing)
		until(one, "well", processing)

		broken := &workflow.Workflow{Name: "order", Version: 1} // without the steps that its orders have
		one.catalogue.mu.Lock()
		known := one.catalogue.flows.All()
		one.catalogue.flows = workflow.Set{}
		one.catalogue.flows.Add(broken)
		for _, flow := range known { // but the one that is there
			one.catalogue.flows.Add(flow)
		}
		one.catalogue.mu.Unlock()
		answer("poisoned", "charge")
		answer("poisoned", "charge")
		submit(one, "poisoned", "order") // which changes nothing
		waiting := func(o *projections.Order) bool { return o.Hold != nil && len(o.Waiting) == 2 }
		until(one, "poisoned", waiting)
		held(one, 1)
		if err := one.Command(t.Context(), "poisoned", &events.Command{Command: events.CommandCancel}, nil); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "waybill order release poisoned") {
			t.Errorf("the cancellation: %v", err)
		}
		answer("well", "charge")
		until(one, "well", processed)
		stop()

		two, stop := start("two")
		until(two, "poisoned", waiting)
		held(two, 1) // as its store has it
		must(t, two.Command(t.Context(), "poisoned", &events.Command{Command: events.CommandRelease, By: "ana"}, nil))
		answer("poisoned", "ship")
		until(two, "poisoned", processed)
		held(two, 0)
		stop()
		audit.Namespace(t, b.Brokers, &topics, true)
	})
}
