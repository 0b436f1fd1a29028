package waybill_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/oracle"
	"github.com/waybill-dev/waybill/test/waybill"
	"github.com/waybill-dev/waybill/test/world"
)

func TestMain(m *testing.M) { kafka.Main(m) }

// A test of one's own workflow: the agents do what the test says, the caller hears
// of it, and the accounts are settled at the end.
func TestStart(t *testing.T) {
	w := waybill.Start(t, "../../examples/order-fulfilment/workflow.yaml")
	inventory, payment, shipping, shop := w.Hand("inventory"), w.Hand("payment"), w.Hand("shipping"), w.Caller("shop")
	order := fmt.Sprintf(`{"workflow":"order-fulfilment","input":{"total":42},"replyTo":%q}`, shop.Topic)

	w.Submit("o-1", order)
	inventory.Does("o-1", "reserve", world.Gave(`{"reservation":"r-1"}`))
	payment.Does("o-1", "charge", world.Done)
	shipping.Does("o-1", "ship", world.Gave(`{"tracking":"t-1"}`))
	shop.Hears("o-1", "received", "completed")

	w.Submit("o-2", order)
	inventory.Does("o-2", "reserve", world.Done)
	payment.Does("o-2", "charge", world.Refused)
	shop.Hears("o-2", "received", "failed")
	w.Command("o-2", `{"command":"cancel","by":"kim"}`)
	inventory.Undoes("o-2", "reserve", world.Done)
	shop.Hears("o-2", "compensating", "cancelled")
}

// Agents whose services fail by lot, drawn by a seed: whatever becomes of an order,
// it says what they did, and nothing else.
func TestFaultyAgents(t *testing.T) {
	w := waybill.Start(t)
	i := w.Instances[0]
	w.Register(i, world.Sure("trip", "airline", "hotel"))
	services := world.NewService(1)
	w.Serve(agents.Config{Agent: "airline"}, services.Operations("sure-0", "un-sure-0"))
	w.Serve(agents.Config{Agent: "hotel"}, services.Operations("sure-1", "un-sure-1"))
	ends := make(map[projections.State]int)
	for n := range 50 {
		w.Submit(fmt.Sprint("o-", n), `{"workflow":"trip"}`)
	}
	for n := range 50 {
		oracle.Until(w, fmt.Sprint("the end of order ", n), func() error {
			o, _, err := i.Order(fmt.Sprint("o-", n))
			switch {
			case err != nil:
				return err
			case !o.State.Final() && o.State != projections.Error:
				return fmt.Errorf("it is %s", o.State)
			}
			ends[o.State]++
			return nil
		})
	}
	if ends[projections.Processed] == 0 || ends[projections.Compensated] == 0 || ends[projections.Error] == 0 {
		t.Errorf("the orders ended as %v", ends)
	}
	if lost, doubled := services.Compare(w.Audit()); len(lost)+len(doubled) > 0 {
		t.Errorf("lost: %q, doubled: %q", lost, doubled)
	}
}

// Of two instances one ends, and the other goes on; on any broker.
func TestTwoInstances(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := waybill.On(t, b)
		one, two := w.Run("i-1", t.TempDir()), w.Run("i-2", t.TempDir())
		w.Register(two, "workflow: trip\nsteps: [{name: fly, agent: airline, timeout: 1h}]")
		airline, traveller := w.Hand("airline"), w.Caller("traveller")
		for _, id := range []string{"t-1", "t-2", "t-3", "t-4"} {
			w.Submit(id, fmt.Sprintf(`{"workflow":"trip","replyTo":%q}`, traveller.Topic))
			airline.Asked(id, "fly")
		}
		one.Stop()
		for _, id := range []string{"t-1", "t-2", "t-3", "t-4"} {
			w.Produce((&world.Request{Order: id, Step: "fly", Attempt: 1, ReplyTo: w.Topics.Replies}).Reply(world.Done))
			traveller.Hears(id, "received", "completed")
		}
	})
}

// trial is a test within a test: what it says is wrong, and what it cleans up, is
// for the one around it.
type trial struct {
	testing.TB
	said    []string
	cleanup []func()
	dirs    []string
}

func (t *trial) Errorf(format string, args ...any) {
	t.said = append(t.said, fmt.Sprintf(format, args...))
}
func (t *trial) Error(args ...any) { t.said = append(t.said, fmt.Sprint(args...)) }
func (t *trial) Cleanup(f func())  { t.cleanup = append(t.cleanup, f) }

func (t *trial) TempDir() string {
	dir := filepath.Join(t.TB.TempDir(), "dir")
	t.dirs = append(t.dirs, dir)
	return dir
}

func (t *trial) end() string {
	for _, f := range slices.Backward(t.cleanup) {
		f()
	}
	return strings.Join(t.said, "\n")
}

// What anybody put where it does not belong fails the test at its end.
func TestTheAccountsAreSettled(t *testing.T) {
	during := &trial{TB: t}
	w := waybill.Start(during)
	forged := events.Envelope{Type: events.OrderStatus, ID: "o-1/1", Order: "o-1"}
	w.Produce(forged.Record(w.Topics.Status, []byte(`{"order":"o-1","status":"completed"}`)))
	if said := during.end(); !strings.Contains(said, `messages about order "o-1", which the journal does not have`) {
		t.Errorf("at the end it says %q", said)
	}
}

// A message that came twice, or where it does not belong, fails the test.
func TestTheBooksAreHeldAgainstTheMessages(t *testing.T) {
	for _, c := range []struct {
		name, says string
		elsewhere  int32
	}{
		{"twice", `order "o-1": S3: request 2 has no event`, 0},
		{"in another partition", "requests.airline, and belongs in ", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			during := &trial{TB: t}
			w := waybill.Start(during)
			w.Register(w.Instances[0], "workflow: trip\nsteps: [{name: fly, agent: airline, timeout: 1h}]")
			w.Submit("o-1", `{"workflow":"trip"}`)
			w.Hand("airline").Does("o-1", "fly", world.Done)
			w.Inbox(w.Topics.Status).Hears("o-1", "received", "completed")
			client := w.Broker.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
			for r := range oracle.Records(t, w.Broker.Brokers, w.Topics.Requests("airline")) {
				again := &kgo.Record{Topic: r.Topic, Partition: (r.Partition + c.elsewhere) % waybill.Partitions, Key: r.Key, Value: r.Value, Headers: r.Headers}
				if err := client.ProduceSync(t.Context(), again).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
			if said := during.end(); !strings.Contains(said, c.says) {
				t.Errorf("at the end it says %q", said)
			}
		})
	}
}

// What orders are told and no lane wrote need not have been sent (S3). What followed from it shows all the same (T4).
func TestTheBooksAreHeldAgainstWhatIsForeign(t *testing.T) {
	for kind, says := range map[events.Type]string{"": "", events.ChildWanted: `order "o-1" has none of this id do its step fly`} {
		during := &trial{TB: t}
		w := waybill.Start(during)
		w.Foreign = true
		w.Register(w.Instances[0], "workflow: trip\nsteps: [{name: fly, agent: airline, timeout: 1h}]")
		w.Produce(&kgo.Record{
			Topic: w.Topics.Internal, Key: []byte("@o-1/fly"), Headers: []kgo.RecordHeader{{Key: events.HeaderType, Value: []byte(kind)}},
			Value: []byte(`{"child":"@o-1/fly","wish":"begin","parent":"o-1","step":"fly","depth":1,"workflow":"trip"}`),
		})
		i := w.Instances[0]
		oracle.Until(t, "it is read", func() error {
			switch head, err := i.Store().Head(i.Partition("@o-1/fly")); {
			case err != nil:
				return err
			case head.Next.At(events.InputInternal) < 1:
				return errors.New("it is not")
			}
			return nil
		})
		if said := during.end(); (says == "") != (said == "") || !strings.Contains(said, says) {
			t.Errorf("of type %q, at the end it says %q", kind, said)
		}
	}
}

// An agent that ends by itself fails the test.
func TestAnAgentThatFails(t *testing.T) {
	during := &trial{TB: t}
	waybill.New(during).Serve(agents.Config{Agent: "airline"}, nil)
	if said := during.end(); !strings.Contains(said, "agent airline: ") {
		t.Errorf("at the end it says %q", said)
	}
}

// A test that asked for its books has them, and what comes later is held against the rules at its end, unless those
// were the last.
func TestTheBooks(t *testing.T) {
	for _, last := range []bool{false, true} {
		during := &trial{TB: t}
		w := waybill.Start(during)
		w.Register(w.Instances[0], "workflow: trip\nsteps: [{name: fly, agent: airline, timeout: 1h}]")
		shop := w.Caller("shop")
		w.Submit("o-1", fmt.Sprintf(`{"workflow":"trip","replyTo":%q}`, shop.Topic))
		shop.Hears("o-1", "received")
		if last {
			w.LastAudit("what comes later is the test's own")
		} else if heard := w.Audit().Statuses("o-1"); heard != "received" {
			t.Errorf("the caller heard %q", heard)
		}
		w.Submit("o-2", `{"workflow":"trip"}`)
		for r := range oracle.Records(t, w.Broker.Brokers, w.Topics.Requests("airline")) {
			w.Produce(&kgo.Record{Topic: r.Topic, Key: r.Key, Value: r.Value, Headers: r.Headers})
		}
		if said := during.end(); strings.Contains(said, "S3: request 2 has no event") == last {
			t.Errorf("the last: %t; at the end it says %q", last, said)
		}
	}
}

// Nothing is left of what ran: no goroutine, and no file that is open.
func TestNothingIsLeft(t *testing.T) {
	before := goleak.IgnoreCurrent()
	during := &trial{TB: t}
	w := waybill.Start(during, "../../examples/order-fulfilment/workflow.yaml")
	w.Hand("inventory")
	w.Answering("payment", func(world.Request) string { return world.Done })
	w.Run("i-2", during.TempDir())
	if said := during.end(); said != "" {
		t.Errorf("at the end it says %q", said)
	}
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
	open, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range open {
		file, _ := os.Readlink(fd) // it may be closed by now
		for _, dir := range during.dirs {
			if strings.HasPrefix(file, dir) {
				t.Errorf("%s is open", file)
			}
		}
	}
}
