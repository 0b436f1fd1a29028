package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
)

// S1, T4: signals before a step listens and after, each twice, while the partition changes its owner and the
// owner has lost its store: each acts once, and its sender is told what became of it.
func TestSignalsActOnce(t *testing.T) {
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		i := w.Run("i-1", t.TempDir())
		const n = 20
		w.Register(i, fmt.Sprintf(`
workflow: collect
steps:
  - {name: open, agent: any, timeout: 1h}
  - {name: all, listen: {one: item, count: %d}}
  - {name: sum, agent: any, timeout: 1h, with: steps.all.output}
`, n))
		agent, sender := w.Hand("any"), w.Caller("bank")
		w.Submit("o-1", `{"workflow":"collect"}`)
		open := agent.Asked("o-1", "open")
		signal := func(k int) {
			for range 2 {
				w.Produce(&kgo.Record{Topic: w.Topics.Signals, Key: []byte("o-1"), Value: fmt.Appendf(nil, `{"signal":"item","id":"i-%d","data":%d,"replyTo":%q}`, k, k, sender.Topic)})
			}
		}
		for k := range n / 2 {
			signal(k)
		}
		w.order(i, "o-1", func(o *projections.Order) bool { return len(o.Signals) == n/2 })
		i.Stop()
		i = w.Run("i-2", t.TempDir())
		agent.Answer(open, done)
		// Replies and signals come by topics of their own: only an order that is seen to listen is not told of more to keep.
		w.order(i, "o-1", func(o *projections.Order) bool { return o.Step("all").State == projections.Listening })
		for k := n / 2; k < n; k++ {
			signal(k)
			if k == n*3/4 {
				i.Stop()
				i = w.Run("i-3", t.TempDir())
			}
		}
		var want []string
		for k := range n {
			want = append(want, fmt.Sprint(k))
		}
		sum := agent.Does("o-1", "sum", done)
		if got := string(sum.Input); got != "["+strings.Join(want, ",")+"]" {
			t.Errorf("what was heard is %s", got)
		}
		w.order(i, "o-1", in(projections.Processed))
		told := make(map[string]int)
		for range 2 * n {
			s, err := events.Decode[events.Status](sender.Take("o-1").Value)
			if err != nil {
				t.Fatal(err)
			}
			told[s.Status]++
		}
		if told[events.StatusKept] != n/2 || told[events.StatusMatched] != n/2 || told[events.StatusRepeated] != n {
			t.Errorf("the sender was told %v", told)
		}
	})
}
