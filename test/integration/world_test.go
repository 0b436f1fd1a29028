// Package integration tries a whole Waybill over real topics. Every test runs
// twice: on the embedded broker and on Apache Kafka in a container.
package integration

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/oracle"
	"github.com/waybill-dev/waybill/test/waybill"
)

func TestMain(m *testing.M) { kafka.Main(m) }

const partitions = waybill.Partitions

// fulfilment is a workflow of three steps that three agents serve. Nothing that is
// lost heals: no step is asked for again.
const fulfilment = `
workflow: fulfilment
version: 1
steps:
  - {name: reserve, agent: inventory, do: reserve, timeout: 1h, retry: {attempts: 1}}
  - {name: charge, agent: payment, do: charge, timeout: 1h, retry: {attempts: 1}}
  - {name: ship, agent: shipping, do: ship, timeout: 1h, retry: {attempts: 1}}
`

// world is a running Waybill, and what these tests ask of it.
type world struct{ *waybill.Waybill }

func newWorld(t *testing.T, b *kafka.Broker) *world {
	t.Helper()
	return &world{waybill.On(t, b)}
}

// serve runs an agent until the test ends. It does one thing for every
// operation.
func (w *world) serve(agent string, do func(context.Context, agents.Request[any]) (any, error), operations ...string) {
	w.Helper()
	all := agents.Operations{}
	for _, name := range operations {
		all[name] = agents.Do(do)
	}
	w.Serve(agents.Config{Agent: agent, StopTimeout: time.Second, Logger: slog.New(slog.DiscardHandler)}, all)
}

// serveFulfilment runs the agents of [fulfilment].
func (w *world) serveFulfilment() {
	w.Helper()
	echo := func(_ context.Context, r agents.Request[any]) (any, error) { return r.IdempotencyKey, nil }
	w.serve("inventory", echo, "reserve")
	w.serve("payment", echo, "charge")
	w.serve("shipping", echo, "ship")
}

// order waits until an order is as wanted.
func (w *world) order(r *waybill.Instance, id string, wanted func(*projections.Order) bool) *projections.Order {
	w.Helper()
	var found *projections.Order
	w.until("order "+id, func() error {
		o, _, err := r.Store().Order(r.Partition(id), id)
		if err != nil {
			return err
		}
		if found = o; !wanted(o) {
			return fmt.Errorf("it is %s: %+v", o.State, o.Steps)
		}
		return nil
	})
	return found
}

func in(state projections.State) func(*projections.Order) bool {
	return func(o *projections.Order) bool { return o.State == state }
}

func (w *world) until(what string, check func() error) {
	w.Helper()
	oracle.Until(w, what, check)
}

// read returns the committed records of a topic up to its end of now.
func (w *world) read(topic string) []*kgo.Record {
	w.Helper()
	return oracle.Read(w, w.Broker.Brokers, topic)
}

// every returns the same records one by one.
func (w *world) every(topic string) iter.Seq[*kgo.Record] {
	w.Helper()
	return oracle.Records(w, w.Broker.Brokers, topic)
}

// records waits until a topic has n records that match.
func (w *world) records(topic string, n int, match func(*kgo.Record) bool) []*kgo.Record {
	w.Helper()
	var found []*kgo.Record
	w.until(fmt.Sprintf("%d records on %s", n, topic), func() error {
		found = nil
		for _, r := range w.read(topic) {
			if match(r) {
				found = append(found, r)
			}
		}
		if len(found) < n {
			return fmt.Errorf("%d of %d", len(found), n)
		}
		return nil
	})
	if len(found) != n {
		w.Fatalf("%s has %d records of %d", topic, len(found), n)
	}
	return found
}

func keyed(id string) func(*kgo.Record) bool {
	return func(r *kgo.Record) bool { return string(r.Key) == id }
}

// types returns the journal of one order in short: each event's type without
// its prefix.
func (w *world) types(id string) string {
	w.Helper()
	var short []string
	for _, r := range w.read(w.Topics.Journal) {
		if string(r.Key) == id {
			short = append(short, strings.TrimPrefix(events.Header(r, events.HeaderType), "waybill."))
		}
	}
	return strings.Join(short, " ")
}

// dump returns all keys and values of an instance's projection, but for the
// heads: every owner claims its partitions anew.
func (w *world) dump(r *waybill.Instance) string {
	w.Helper()
	var all strings.Builder
	for p := range r.Partitions() {
		err := r.Store().Dump(p, func(projections.Head) error { return nil }, func(key, value []byte) error {
			if key[4] != 'h' {
				fmt.Fprintf(&all, "%x %x\n", key, value)
			}
			return nil
		})
		if err != nil {
			w.Fatal(err)
		}
	}
	return all.String()
}
