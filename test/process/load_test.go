//go:build unix

package process

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/projections"
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
	file := filepath.Join(t.TempDir(), "workflow.yaml")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	waybill(t, "workflow", "register", file, "--server", server)
}

// load submits orders without a pause, whatever becomes of the broker.
type load struct {
	*testing.T
	topic  string
	value  func(n int64) string // of the nth submission
	pace   time.Duration        // of each worker
	client *kgo.Client

	workers sync.WaitGroup
	cease   context.CancelFunc // no new orders

	next, acked, failures atomic.Int64
}

const loadWorkers = 4

// submitting begins to submit orders to the patient workflow. The producer is
// a plain one: idempotent, and acknowledged by all.
func submitting(t *testing.T, topics *events.Topics, brokers ...string) *load {
	t.Helper()
	return submittingTo(t, 25*time.Millisecond, func(int64) string { return `{"workflow":"patient","input":{"customer":"c-7","total":42}}` }, topics, brokers...)
}

// submittingTo begins to submit orders of any kind.
func submittingTo(t *testing.T, pace time.Duration, value func(n int64) string, topics *events.Topics, brokers ...string) *load {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ProducerLinger(0),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordDeliveryTimeout(10*time.Second),
		kgo.MetadataMinAge(50*time.Millisecond)) // find a broker that is back at once, to catch it while it recovers
	if err != nil {
		t.Fatal(err)
	}
	l := &load{T: t, topic: topics.Orders, value: value, pace: pace, client: client}
	ceasing, cease := context.WithCancel(t.Context())
	l.cease = cease
	for range loadWorkers {
		l.workers.Go(func() { l.submit(ceasing) })
	}
	t.Cleanup(func() {
		cease()
		client.Close() // ends what is still being tried
		l.workers.Wait()
	})
	return l
}

func (l *load) submit(ceasing context.Context) {
	pace := time.NewTicker(l.pace)
	defer pace.Stop()
	for ceasing.Err() == nil {
		n := l.next.Add(1)
		// Whatever was attempted once is attempted until it is acknowledged:
		// nobody can know whether an attempt that failed has submitted it.
		for {
			r := &kgo.Record{Topic: l.topic, Key: []byte(orderID(n)), Value: []byte(l.value(n))}
			if l.client.ProduceSync(l.Context(), r).FirstErr() == nil {
				break
			}
			if l.Context().Err() != nil {
				return // the test failed; its other errors say why
			}
			l.failures.Add(1)
		}
		l.acked.Add(1)
		select {
		case <-pace.C:
		case <-ceasing.Done():
		}
	}
}

func orderID(n int64) string { return fmt.Sprintf("o-%05d", n) }

// more waits until n more orders were acknowledged, while p runs.
func (l *load) more(p *process, n int64) {
	l.Helper()
	goal := l.acked.Load() + n
	p.until(fmt.Sprintf("%d orders are acknowledged", goal), func() error {
		if have := l.acked.Load(); have < goal {
			return fmt.Errorf("%d are", have)
		}
		return nil
	})
}

// stop waits until every order that was attempted is acknowledged, and returns
// their ids.
func (l *load) stop(p *process) []string {
	l.Helper()
	l.cease()
	acked := make(chan struct{})
	go func() {
		defer close(acked)
		l.workers.Wait()
	}()
	p.until("all orders are acknowledged", func() error {
		select {
		case <-acked:
			return nil
		default:
			return fmt.Errorf("%d of %d are", l.acked.Load(), l.next.Load())
		}
	})
	ids := make([]string, l.acked.Load())
	for n := range ids {
		ids[n] = orderID(int64(n + 1))
	}
	return ids
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
