package integration

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/waybill"
)

// S3, A3: orders on all partitions give topics events of the user's, also to one that is there only
// later, while the partitions change their owner, who has lost its store: each event is there, under one
// id, and none is on a topic that does not exist. That each follows from an attempt the audit finds.
func TestOrdersEmit(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		b.Create(t, 2, nil, "shop.told")
		i := w.Run("i-1", t.TempDir())
		w.Register(i, `
workflow: tale
steps:
  - {name: tell, emit: {topic: shop.told, type: com.acme.told, key: input.who, data: '{"n": input.n}'}, timeout: 1h}
  - {name: never, emit: {topic: shop.never, type: com.acme.never}, timeout: 1h, retry: {attempts: 1}, exhausted: continue, after: [tell]}
  - {name: late, emit: {topic: shop.late, type: com.acme.late}, timeout: 1h, retry: {attempts: 50, backoff: 1s, max: 1s}, after: [tell]}
`)
		const n = 12
		id := func(k int) string { return fmt.Sprintf("o-%d", k) }
		partitions := make(map[int32]bool)
		for k := range n {
			w.Submit(id(k), fmt.Sprintf(`{"workflow":"tale","input":{"n":%d,"who":"c-%d"}}`, k, k%3))
			partitions[i.Partition(id(k))] = true
		}
		if len(partitions) < waybill.Partitions {
			t.Fatalf("the orders are on the partitions %v", partitions)
		}
		fails := func(o *projections.Order) bool { return o.Step("late").FailureCount > 0 && o.Step("never").Passed }
		w.order(i, id(0), fails)
		i.Stop()
		i = w.Run("i-2", t.TempDir())
		for k := range n {
			w.order(i, id(k), fails)
		}
		b.Create(t, 2, nil, "shop.late")
		for k := range n {
			o := w.order(i, id(k), in(projections.Processed))
			if e := o.Step("never").Error; e == nil || e.Code != "event-refused" {
				t.Errorf("order %s: %+v", id(k), e)
			}
		}
		for topic, key := range map[string]func(k int) string{"shop.told": func(k int) string { return fmt.Sprintf("c-%d", k%3) }, "shop.late": id} {
			there := make(map[string]string)
			for _, r := range w.read(topic) {
				id, says := events.Header(r, "ce_id"), fmt.Sprintf("%s %s %s", r.Key, events.Header(r, "ce_subject"), r.Value)
				if before, again := there[id]; again && before != says {
					t.Errorf("%s has %s twice: %s, and %s", topic, id, before, says)
				}
				there[id] = says
			}
			for k := range n {
				step, data := "tell", fmt.Sprintf(`{"n":%d}`, k)
				if topic == "shop.late" {
					step, data = "late", fmt.Sprintf(`{"n":%d,"who":"c-%d"}`, k, k%3)
				}
				if got, want := there[id(k)+"/"+step], fmt.Sprintf("%s %s %s", key(k), id(k), data); got != want {
					t.Errorf("%s has of %s %q, and not %q", topic, id(k), got, want)
				}
			}
			if len(there) != n {
				t.Errorf("%s has %d events", topic, len(there))
			}
		}
	})
}

// A workflow that emits where it may not is not registered: each of its orders would fail. Nor is one whose
// children are to tell their status there, which would tell nobody.
func TestWhereStepsMayNotEmit(t *testing.T) {
	w := newWorld(t, kafka.Embedded(t))
	i := w.Run("i-1", t.TempDir())
	for topic, why := range map[string]string{w.Topics.Status: "Waybill's own", w.Topics.Orders: "Waybill's own", "other.replies": "--reply-to-topics, beside '*'"} {
		flow, err := workflow.Parse("workflow.yaml", []byte("{workflow: tale, steps: [{name: tell, emit: {topic: "+topic+", type: t}}]}"))
		if err != nil {
			t.Fatal(err)
		}
		if err := i.Register(t.Context(), flow); !errors.Is(err, orchestrator.ErrTopic) || !strings.Contains(err.Error(), why) {
			t.Errorf("to %s: %v", topic, err)
		}
		for _, steps := range []string{"{name: stay, order: {workflow: hotel, replyTo: %s}}", "{name: all, each: {items: input, steps: [{name: stay, order: {workflow: hotel, replyTo: %s}}]}}"} {
			flow, err := workflow.Parse("workflow.yaml", fmt.Appendf(nil, "{workflow: trip, steps: ["+steps+"]}", topic))
			if err != nil {
				t.Fatal(err)
			}
			err = i.Register(t.Context(), flow)
			if told := topic == w.Topics.Status; errors.Is(err, orchestrator.ErrTopic) == told || !told && !strings.Contains(err.Error(), why) {
				t.Errorf("status to %s: %v", topic, err)
			}
		}
	}
}
