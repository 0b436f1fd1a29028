package decide

import (
	"bytes"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
)

// What follows from an input cannot be written: its order is held, and it waits. If the
// journal takes no event with it, it is put aside.
func TestHold(t *testing.T) {
	for _, c := range []struct {
		limit int
		waits int
	}{{EnvelopeSize + 1_500, 1}, {EnvelopeSize + 1_300, 0}} { // in base64 it has more
		topics, err := events.NewTopics(events.DefaultNamespace)
		must(t, err)
		env := &Env{
			Now: time.Now(), Instance: "i-1", Topics: &topics,
			Workflow: func(string, int) *workflow.Workflow { return parseFlow(t, orderFlow) },
			Away:     func(string, string, int) string { return "" },
			Refuses: func(_ string, size int) string {
				if size > c.limit {
					return "too large"
				}
				return ""
			},
		}
		order := Submit(env, nil, &Input{Record: new(Record), Order: "o-1", Submission: events.Submission{Workflow: "order"}}).Order
		in := Input{Order: "o-1", Reply: &events.Reply{}, Record: &Record{Topic: topics.Replies, Raw: events.Raw{Value: bytes.Repeat([]byte("x"), 1_000)}}}
		d := Hold(env, order, &in, "Kafka refuses it")
		if d.Order.State != projections.Error || d.Order.Hold == nil || d.Order.Reason != "Kafka refuses it" || len(d.Order.Waiting) != c.waits || len(d.Aside) != 1-c.waits {
			t.Errorf("with room for %d: %+v, %d aside", c.limit, d.Order, len(d.Aside))
		}
		if d := Hold(env, nil, &in, "Kafka refuses it"); d.Order.State != projections.Rejected || len(d.Aside) != 1 {
			t.Errorf("without an order: %+v", d.Order)
		}
	}
}
