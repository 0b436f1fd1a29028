//go:build unix

package process

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/world"
)

// patient is the fulfilment workflow with all the time in the world: no retry
// repairs in silence what a crash lost, so an order whose request or reply is
// gone never ends, and is found.
const patient = `
workflow: patient
version: 1
steps:
  - {name: reserve, agent: inventory, do: reserve, undo: release, timeout: 1h}
  - {name: charge, agent: payment, do: charge, undo: refund, timeout: 1h}
  - {name: ship, agent: shipping, do: ship, timeout: 1h}
`

// registerPatient registers the workflow.
func registerPatient(t *testing.T, server string) {
	t.Helper()
	registerSource(t, server, patient)
}

// registerSource registers a workflow through the command line.
func registerSource(t *testing.T, server, source string) {
	t.Helper()
	waybill(t, "workflow", "register", fileOf(t, source), "--server", server)
}

// fileOf is a file that a command reads.
func fileOf(t *testing.T, source string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "source.yaml")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// load submits orders whatever becomes of the broker.
type load struct {
	*testing.T
	*world.Load
}

// submitting begins to submit orders to the patient workflow.
func submitting(t *testing.T, topics *events.Topics, brokers ...string) *load {
	t.Helper()
	return submittingTo(t, 25*time.Millisecond, func(int64) string { return `{"workflow":"patient","input":{"customer":"c-7","total":42}}` }, topics, brokers...)
}

// submittingTo begins to submit orders of any kind; pace is that of each of four
// workers. The producer is a plain one: idempotent, and acknowledged by all.
func submittingTo(t *testing.T, pace time.Duration, value func(n int64) string, topics *events.Topics, brokers ...string) *load {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ProducerLinger(0),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordDeliveryTimeout(10*time.Second),
		kgo.MetadataMinAge(50*time.Millisecond)) // find a broker that is back at once, to catch it while it recovers
	if err != nil {
		t.Fatal(err)
	}
	const workers = 4
	l := &load{t, world.Submitting(t.Context(), workers, pace/workers, func(ctx context.Context, n int64) error {
		return client.ProduceSync(ctx, &kgo.Record{Topic: topics.Orders, Key: []byte(world.OrderID(n)), Value: []byte(value(n))}).FirstErr()
	})}
	t.Cleanup(func() {
		client.Close() // ends what is still being tried
		<-l.Ended()
	})
	return l
}

// more waits until n more orders were acknowledged, while p runs.
func (l *load) more(p *process, n int64) {
	l.Helper()
	goal := l.Acked() + n
	p.until(fmt.Sprintf("%d orders are acknowledged", goal), func() error {
		if have := l.Acked(); have < goal {
			return fmt.Errorf("%d are", have)
		}
		return nil
	})
}

// stop waits until every order that was attempted is acknowledged, and returns
// their ids.
func (l *load) stop(p *process) []string {
	l.Helper()
	l.Cease()
	p.until("all orders are acknowledged", func() error {
		select {
		case <-l.Ended():
			return nil
		default:
			return fmt.Errorf("%d of %d are", l.Acked(), l.Attempted())
		}
	})
	return l.IDs()
}

// processed waits until the orders are Processed, as p tells it.
func (p *process) processed(client *api.Client, ids []string) {
	p.Helper()
	for _, id := range ids {
		p.state(client, id, projections.Processed)
	}
}

// state waits until an order is in a state, and returns it.
func (p *process) state(client *api.Client, id string, state projections.State) *api.Order {
	p.Helper()
	var o *api.Order
	p.until(fmt.Sprintf("order %s is %s", id, state), func() (err error) {
		if o, err = client.Order(p.Context(), id); err == nil && o.ProcessState != state {
			err = fmt.Errorf("it is %s: %+v", o.ProcessState, o.Steps)
		}
		return err
	})
	return o
}
