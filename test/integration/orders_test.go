package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
)

// S1, S3, T4, T5, P1, P4, A7: a record without any header is a submission; its
// order runs through the three steps, the caller hears of it on the topic that
// it named, and every transition is on the journal.
func TestAnOrderRunsThroughItsSteps(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		i := w.Run("i-1", t.TempDir())
		w.Register(i, fulfilment)
		w.serveFulfilment()
		mine := w.Caller("shop").Topic

		w.Submit("o-1", `{"workflow":"fulfilment","input":{"customer":"c-1"},"replyTo":"`+mine+`","later":"fields are ignored"}`)
		o := w.order(i, "o-1", in(projections.Processed))
		if string(o.Output()) != `"o-1/ship"` || o.LockedBy != "" || o.Version != 1 {
			t.Errorf("output %s, locked by %q, version %d", o.Output(), o.LockedBy, o.Version)
		}
		want := "order.accepted step.started step.completed step.started step.completed step.started step.completed order.completed"
		if got := w.types("o-1"); got != want {
			t.Errorf("journal: %s", got)
		}
		heard := w.records(mine, 2, keyed("o-1"))
		if !strings.Contains(string(heard[0].Value), `"received"`) || !strings.Contains(string(heard[1].Value), `"completed"`) {
			t.Errorf("the caller heard %s and %s", heard[0].Value, heard[1].Value)
		}
		asked := w.records(w.Topics.Requests("payment"), 1, keyed("o-1"))[0]
		if k := events.Header(asked, "ce_idempotencykey"); k != "o-1/charge" || events.Header(asked, "ce_step") != "charge" {
			t.Errorf("the request's headers: key %q", k)
		}
		history, err := i.History(t.Context(), "o-1", 0, orchestrator.MaxHistory)
		if err != nil || len(history.Events) != 8 || history.Events[7].Type != events.OrderCompleted {
			t.Errorf("history: %v, %v", history, err)
		}

		w.Submit("o-1", `{ "replyTo":"`+mine+`","input":{"customer":"c-1"},"workflow":"fulfilment"}`) // again: changes nothing
		w.Submit("o-2", `{"workflow":"fulfilment"}`)
		w.order(i, "o-2", in(projections.Processed))
		if got := w.types("o-1"); got != want {
			t.Errorf("journal after a second submission: %s", got)
		}
	})
}

// S1: steps that come after nothing run at the same time, and a step waits for
// all that it comes after.
func TestIndependentStepsRunAtTheSameTime(t *testing.T) {
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		i := w.Run("i-1", t.TempDir())
		w.Register(i, `
workflow: parallel
steps:
  - {name: left, agent: any, after: []}
  - {name: right, agent: any, after: []}
  - {name: join, agent: any, after: [left, right]}
`)
		both := make(chan struct{}, 2)
		go1 := make(chan struct{})
		w.serve("any", func(ctx context.Context, r agents.Request[any]) (any, error) {
			if r.Step != "join" {
				both <- struct{}{}
				<-go1
			}
			return r.Step, nil
		}, "left", "right", "join")
		w.Submit("o-1", `{"workflow":"parallel"}`)
		<-both
		<-both // both run, and neither has ended
		close(go1)
		w.order(i, "o-1", in(projections.Processed))
	})
}

// A record that another partitioner put into the wrong partition is forwarded
// once, and processed where it belongs; submissions and replies alike.
func TestMisroutedRecordsAreForwardedOnce(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		i := w.Run("i-1", t.TempDir())
		w.Register(i, "workflow: manual\nsteps: [{name: only, agent: nobody}]")
		anywhere := b.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
		const n = 30
		put := func(topic, value string) {
			for k := range n {
				id := fmt.Sprintf("o-%d", k)
				r := &kgo.Record{Topic: topic, Partition: int32(k % partitions), Key: []byte(id), Value: []byte(strings.ReplaceAll(value, "ID", id))}
				if err := anywhere.ProduceSync(t.Context(), r).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
		}
		put(w.Topics.Orders, `{"workflow":"manual"}`)
		for k := range n {
			w.order(i, fmt.Sprintf("o-%d", k), in(projections.Processing))
		}
		put(w.Topics.Replies, `{"order":"ID","step":"only","attempt":1,"status":"completed"}`)
		for k := range n {
			w.order(i, fmt.Sprintf("o-%d", k), in(projections.Processed))
		}
		for _, topic := range []string{w.Topics.Orders, w.Topics.Replies} {
			forwarded := 0
			for _, r := range w.read(topic) {
				if events.Header(r, "waybill_forwarded_from") != "" {
					forwarded++
				}
			}
			misrouted := 0
			for k := range n {
				if i.Partition(fmt.Sprintf("o-%d", k)) != int32(k%partitions) {
					misrouted++
				}
			}
			if forwarded != misrouted || misrouted == 0 {
				t.Errorf("%s: %d forwarded of %d misrouted", topic, forwarded, misrouted)
			}
		}
		if got := w.types("o-7"); got != "order.accepted step.started step.completed order.completed" {
			t.Errorf("journal: %s", got)
		}
	})
}

// What nobody can read is put aside byte for byte, with the reason and the
// source, and stops nobody.
func TestUnreadableInputIsPutAside(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		i := w.Run("i-1", t.TempDir())
		w.Register(i, fulfilment)
		w.serveFulfilment()
		bad := []struct {
			topic, key, kind, value, reason string
		}{
			{w.Topics.Orders, "o-1", "", "not json", "not a JSON object"},
			{w.Topics.Orders, "o-2", "", "[1]", "not a JSON object"},
			{w.Topics.Orders, "o-3", "", "", "not a JSON object"},
			{w.Topics.Orders, "", "", `{"workflow":"fulfilment"}`, "order id is empty"},
			{w.Topics.Orders, strings.Repeat("x", 257), "", `{"workflow":"fulfilment"}`, "257 bytes"},
			{w.Topics.Orders, "\xff\xfe", "", `{"workflow":"fulfilment"}`, "not UTF-8"},
			{w.Topics.Orders, "o-4", "waybill.step.replied", "{}", "does not belong"},
			{w.Topics.Replies, "o-5", "", "{", "not a JSON object"},
			{w.Topics.Replies, "o-6", "", `{"order":"o-6","step":"s","attempt":1,"status":"completed"}`, "no order of this id"},
			{w.Topics.Replies, "o-7", "", `{"order":"o-8","step":"s","attempt":1,"status":"completed"}`, "the key names"},
			{w.Topics.Replies, "o-9", "", `{"order":"o-9","step":"s","attempt":1,"status":"maybe"}`, "a reply is"},
			{w.Topics.Commands, "o-10", "", `{}`, "there is no order of this id"},
			{w.Topics.Commands, "o-11", "waybill.step.replied", `{}`, "does not belong"},
		}
		for _, x := range bad {
			r := &kgo.Record{Topic: x.topic, Key: []byte(x.key), Value: []byte(x.value), Headers: []kgo.RecordHeader{{Key: "mine", Value: []byte("kept")}}}
			if x.kind != "" {
				r.Headers = append(r.Headers, kgo.RecordHeader{Key: events.HeaderType, Value: []byte(x.kind)})
			}
			w.Produce(r)
		}
		w.Submit("good", `{"workflow":"fulfilment"}`)
		w.order(i, "good", in(projections.Processed))
		letters := w.records(w.Topics.DeadLetters, len(bad), func(*kgo.Record) bool { return true })
		for _, x := range bad {
			at := slices.IndexFunc(letters, func(r *kgo.Record) bool { return string(r.Key) == x.key })
			if at < 0 {
				t.Errorf("%q is not among the dead letters", x.key)
				continue
			}
			r := letters[at]
			reason, source := events.Header(r, "waybill_reason"), events.Header(r, "waybill_source")
			if string(r.Value) != x.value || !strings.Contains(reason, x.reason) || !strings.HasPrefix(source, x.topic+"/") || events.Header(r, "mine") != "kept" {
				t.Errorf("key %q: value %q, reason %q, source %q", x.key, r.Value, reason, source)
			}
		}
	})
}

// A submission that can be read and cannot run is rejected, and its caller
// hears why.
func TestASubmissionThatCannotRunIsRejected(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		i := w.Run("i-1", t.TempDir())
		w.Register(i, fulfilment)
		for id, x := range map[string]struct{ value, reason string }{
			"unknown":  {`{"workflow":"no-such"}`, "workflow no-such is not registered"},
			"version":  {`{"workflow":"fulfilment","version":9}`, "fulfilment@9 is not registered"},
			"nameless": {`{"input":1}`, "no workflow is named"},
			"priority": {`{"workflow":"fulfilment","priority":"urgent"}`, "use high, normal or low"},
			"form":     {`{"workflow":"fulfilment","version":"one"}`, "/version"},
			"large":    {`{"workflow":"fulfilment","input":"` + strings.Repeat("x", events.MaxValue) + `"}`, "at most 1048576"},
		} {
			w.Submit(id, x.value)
			if o := w.order(i, id, in(projections.Rejected)); !strings.Contains(o.Reason, x.reason) {
				t.Errorf("%s: %s", id, o.Reason)
			}
			if heard := w.records(w.Topics.Status, 1, keyed(id))[0]; !bytes.Contains(heard.Value, []byte(`"rejected"`)) {
				t.Errorf("%s: the caller heard %s", id, heard.Value)
			}
		}
		// The largest that is allowed runs.
		w.serveFulfilment()
		head, tail := `{"workflow":"fulfilment","input":"`, `"}`
		w.Submit("largest", head+strings.Repeat("x", events.MaxValue-len(head)-len(tail))+tail)
		w.order(i, "largest", in(projections.Processed))
	})
}

// ADR 0014, 0017: nobody has read a new namespace, so it begins with all that is new.
func TestAFreshNamespaceIsInTheNewestFormat(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kafka.Embedded(t))
	i := w.Run("i-1", t.TempDir())
	w.Run("i-2", t.TempDir()) // while the first claims its partitions
	w.Run("i-3", t.TempDir())
	w.until("all partitions have their format", func() error {
		heads, err := i.Store().Heads(partitions)
		for p := range heads {
			if format := heads[p].Format(); err == nil && format != events.JournalFormat {
				err = fmt.Errorf("partition %d is in format %d", p, format)
			}
		}
		return err
	})
}

// An order for a workflow that another instance has just registered is not
// rejected. Its step asks nobody: who does not answer counts as away after a minute,
// and is asked for little then.
func TestAFreshWorkflowIsKnownToAllInstances(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		one := w.Run("i-1", t.TempDir())
		two := w.Run("i-2", t.TempDir())
		for v := 1; v <= 5; v++ {
			w.Register(one, fmt.Sprintf("workflow: fresh\nversion: %d\nsteps: [{name: only, sleep: 1h}]", v))
			for k := range partitions * 2 {
				id := fmt.Sprintf("o-%d-%d", v, k)
				w.Submit(id, fmt.Sprintf(`{"workflow":"fresh","version":%d}`, v))
				if o := w.order(two, id, in(projections.Pending)); o.Version != v {
					t.Errorf("order %s runs version %d", id, o.Version)
				}
			}
		}
		flow := one.Workflow("fresh", 5)
		if err := two.Register(t.Context(), flow); err != nil {
			t.Errorf("registering the same again: %v", err)
		}
		other := *flow
		other.Steps = append(other.Steps[:0:0], other.Steps...)
		other.Steps[0].Name = "another"
		if err := two.Register(t.Context(), &other); !errors.Is(err, orchestrator.ErrConflict) {
			t.Errorf("registering another content: %v", err)
		}
	})
}

// P1: a status topic that cannot be written does not stop the order; the
// refusal is recorded, and the namespace's topic has the messages.
func TestAStatusTopicThatRefuses(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		i := w.Run("i-1", t.TempDir())
		w.Register(i, fulfilment)
		w.serveFulfilment()
		for id, to := range map[string]string{
			"missing": w.Namespace + "-no-such", "commands": w.Topics.Commands, "journal": w.Topics.Journal,
			"requests": w.Topics.Requests("payment"), "kafka": "__consumer_offsets", "form": "no topic",
		} {
			w.Submit(id, `{"workflow":"fulfilment","replyTo":`+strconv.Quote(to)+`}`)
			w.order(i, id, in(projections.Processed))
			if got := w.types(id); id != "missing" && !strings.HasPrefix(got, "order.accepted status.refused step.started") {
				t.Errorf("%s: journal: %s", id, got)
			}
			w.records(w.Topics.Status, 2, keyed(id))
			if got := w.types(id); strings.Count(got, "status.refused") != 1 {
				t.Errorf("%s: journal: %s", id, got)
			}
		}
	})
}

// V2, V3, V4, V5, A3, P2: an agent that stays silent is asked again with the
// same key until the threshold; then the order is in Error and an operator is
// called. A permanent error calls at once.
func TestSilenceAndRefusalEndWithAnOperator(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		i := w.Run("i-1", t.TempDir())
		w.Register(i, `
workflow: hard
steps:
  - {name: call, agent: phone, timeout: 50ms, retry: {attempts: 3, backoff: 10ms}}
`)
		w.Submit("silent", `{"workflow":"hard"}`)
		o := w.order(i, "silent", in(projections.Error))
		if o.FailureCount != 3 || o.Steps[0].FailureCount != 3 || o.Alert == nil || !strings.Contains(o.Reason, "3 of 3") {
			t.Errorf("%+v", o)
		}
		want := "order.accepted" + strings.Repeat(" step.started step.expired step.retried", 2) + " step.started step.expired order.errored alert.raised"
		if got := w.types("silent"); got != want {
			t.Errorf("journal: %s", got)
		}
		for n, r := range w.records(w.Topics.Requests("phone"), 3, keyed("silent")) {
			if events.Header(r, "ce_idempotencykey") != "silent/call" || events.Header(r, "ce_attempt") != strconv.Itoa(n+1) {
				t.Errorf("request %d: %s", n, r.Value)
			}
		}
		w.records(w.Topics.Alerts, 1, keyed("silent"))

		// A late reply changes nothing, and is recorded.
		w.Produce(&kgo.Record{Topic: w.Topics.Replies, Key: []byte("silent"), Value: []byte(`{"order":"silent","step":"call","attempt":3,"status":"completed"}`)})
		w.until("the late reply", func() error {
			if got := w.types("silent"); got != want+" reply.discarded" {
				return errors.New(got)
			}
			return nil
		})

		w.Register(i, "workflow: refused\nsteps: [{name: charge, agent: payment}]")
		w.serve("payment", func(context.Context, agents.Request[any]) (any, error) {
			return nil, agents.Permanent("card-declined", errors.New("no cover"))
		}, "charge")
		w.Submit("declined", `{"workflow":"refused"}`)
		o = w.order(i, "declined", in(projections.Error))
		if o.FailureCount != 1 || o.Alert.Errors[0].Code != "card-declined" {
			t.Errorf("%+v", o)
		}
	})
}

// An agent whose queue is gone is away: the orders that need it wait until it is back,
// and nobody else's.
func TestARequestTopicThatIsGone(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		i := w.Run("i-1", t.TempDir())
		w.Register(i, fulfilment)
		w.Register(i, "workflow: gone\nsteps: [{name: call, agent: phone}]")
		w.serveFulfilment()
		b.Delete(t, w.Topics.Requests("phone"))
		for k := range 20 {
			w.Submit(fmt.Sprintf("bad-%d", k), `{"workflow":"gone"}`)
			w.Submit(fmt.Sprintf("good-%d", k), `{"workflow":"fulfilment"}`)
		}
		for k := range 20 {
			w.order(i, fmt.Sprintf("good-%d", k), in(projections.Processed))
			o := w.order(i, fmt.Sprintf("bad-%d", k), in(projections.Pending))
			if o.Alert != nil || o.FailureCount > 0 {
				t.Errorf("%+v", o)
			}
		}
		if _, err := w.Admin.CreateTopic(t.Context(), partitions, 1, nil, w.Topics.Requests("phone")); err != nil {
			t.Fatal(err)
		}
		for k := range 20 {
			w.order(i, fmt.Sprintf("bad-%d", k), in(projections.Processing))
		}
	})
}

// T1, S6: the store can be thrown away; what the journal gives back is the
// same, key by key, also on an instance that only followed.
func TestTheStoreIsRebuiltFromTheJournal(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		dir := t.TempDir()
		i := w.Run("i-1", dir)
		w.Register(i, fulfilment)
		w.Register(i, "workflow: open\nsteps: [{name: wait, agent: nobody, timeout: 1h}]")
		w.serveFulfilment()
		for k := range 50 {
			w.Submit(fmt.Sprintf("done-%d", k), fmt.Sprintf(`{"workflow":"fulfilment","input":{"n":%d}}`, k))
			w.Submit(fmt.Sprintf("open-%d", k), `{"workflow":"open"}`)
			w.Submit(fmt.Sprintf("bad-%d", k), `{"workflow":"none"}`)
		}
		for k := range 50 {
			w.order(i, fmt.Sprintf("done-%d", k), in(projections.Processed))
			w.order(i, fmt.Sprintf("open-%d", k), in(projections.Processing))
			w.order(i, fmt.Sprintf("bad-%d", k), in(projections.Rejected))
		}
		before := w.dump(i)
		i.Stop()
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}

		again := w.Run("i-1", dir)
		standby := w.Run("i-2", t.TempDir())
		w.until("both are as the one that is gone", func() error {
			if a, b := w.dump(again), w.dump(standby); a != before || b != before {
				return fmt.Errorf("they differ: %d and %d bytes, and before it were %d", len(a), len(b), len(before))
			}
			return nil
		})
		// In-flight work goes on where it was.
		for k := range 50 {
			id := fmt.Sprintf("open-%d", k)
			w.Produce(&kgo.Record{Topic: w.Topics.Replies, Key: []byte(id), Value: []byte(`{"order":"` + id + `","step":"wait","attempt":1,"status":"completed"}`)})
		}
		for k := range 50 {
			w.order(again, fmt.Sprintf("open-%d", k), in(projections.Processed))
		}
	})
}

// S5, V6: instances share the partitions; when one leaves, the others finish
// its orders.
func TestInstancesShareAndTakeOver(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		one := w.Run("i-1", t.TempDir())
		two := w.Run("i-2", t.TempDir())
		w.until("both own partitions", func() error {
			if a, b := one.Owned(), two.Owned(); a == 0 || b == 0 || a+b != partitions {
				return fmt.Errorf("%d and %d", a, b)
			}
			return nil
		})
		w.Register(two, fulfilment)
		w.serveFulfilment()
		const n = 300
		for k := range n {
			w.Submit(fmt.Sprintf("o-%d", k), `{"workflow":"fulfilment"}`)
			if k == n/2 {
				one.Stop()
			}
		}
		for k := range n {
			w.order(two, fmt.Sprintf("o-%d", k), in(projections.Processed))
		}
	})
}

// Topics that differ in their partitions stop an instance before it begins.
func TestTopicsThatDoNotFit(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		if _, err := w.Admin.DeleteTopics(t.Context(), w.Topics.Replies); err != nil {
			t.Fatal(err)
		}
		w.until("another replies topic", func() error {
			_, err := w.Admin.CreateTopic(t.Context(), partitions+1, 1, nil, w.Topics.Replies)
			return err
		})
		w.until("the error", func() error {
			i, err := orchestrator.New(t.Context(), orchestrator.Config{ID: "i-1", Namespace: w.Namespace, DataDir: t.TempDir(), Kafka: []kgo.Opt{kgo.SeedBrokers(b.Brokers...)}})
			if err == nil {
				return errors.Join(errors.New("it starts"), i.Close())
			}
			if !errors.Is(err, orchestrator.ErrMissingTopics) || !strings.Contains(err.Error(), "has 4 partitions") {
				return err
			}
			return nil
		})
		found, err := orchestrator.CheckTopics(t.Context(), b.Client(t), &w.Topics, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(found) == 0 || found[0].Topic != w.Topics.Replies || found[0].What != "partitions" || !found[0].Harmful {
			t.Errorf("check found %+v", found)
		}
	})
}
