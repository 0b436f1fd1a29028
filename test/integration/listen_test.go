package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/waybill"
)

// S1, T4: signals before a step listens and after, each twice, while the partition changes its owner and the
// owner has lost its store: each acts once, and its sender is told what became of it.
func TestSignalsActOnce(t *testing.T) {
	t.Parallel()
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

// S1, T4: signals under keys of the business, half of them before somebody waits and half after, each twice, on
// whatever partition its sender's key has, while the partitions change their owner and that has lost its store:
// each acts on one wait, in the order in which they came, and its sender is told what became of it.
func TestSignalsUnderKeysActOnce(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		i := w.Run("i-1", t.TempDir())
		const keys, each = 50, 8
		w.Register(i, fmt.Sprintf(`
workflow: collect
steps:
  - {name: all, listen: {one: item, count: %d}, key: input.ref}
`, each))
		sender := w.Caller("bank")
		key := func(k int) string { return fmt.Sprintf("ref-%d", k) }
		id := func(k int) string { return fmt.Sprintf("o-%d", k) }
		home := func(k int) string { return events.CorrelationID("item", key(k)) }
		send := func(k, n int) {
			for range 2 {
				w.Produce(&kgo.Record{Topic: w.Topics.Signals, Key: []byte(key(k)), Value: fmt.Appendf(nil, `{"signal":"item","key":%q,"id":"i-%d","data":%d,"replyTo":%q}`, key(k), n, n, sender.Topic)})
			}
		}
		for n := range each / 2 {
			for k := range keys {
				send(k, n)
			}
		}
		homes := make(map[int32]bool)
		for k := range keys {
			w.order(i, home(k), func(o *projections.Order) bool { return len(o.Signals) == each/2 && o.Unheard == 1 })
			homes[i.Partition(home(k))] = true
			w.Submit(id(k), fmt.Sprintf(`{"workflow":"collect","input":{"ref":%q}}`, key(k)))
		}
		if len(homes) != waybill.Partitions {
			t.Errorf("the homes are in %d partitions", len(homes))
		}
		i.Stop()
		i = w.Run("i-2", t.TempDir())
		for k := range keys {
			w.order(i, id(k), func(o *projections.Order) bool { return len(o.Signals) == each/2 })
		}
		for n := each / 2; n < each; n++ {
			for k := range keys {
				send(k, n)
			}
			if n == each*3/4 {
				i.Stop()
				i = w.Run("i-3", t.TempDir())
			}
		}
		var want []string
		for n := range each {
			want = append(want, fmt.Sprint(n))
		}
		for k := range keys {
			o := w.order(i, id(k), in(projections.Processed))
			if got := string(o.Step("all").Output); got != "["+strings.Join(want, ",")+"]" {
				t.Errorf("under %s was heard %s", key(k), got)
			}
			w.order(i, home(k), func(o *projections.Order) bool { return len(o.Correlation.Waits) == 0 && len(o.Signals) == each })
		}
		// What comes while the order has not said that it heard the one before is kept until then.
		w.until("all answers", func() error {
			told, seen := make(map[string]int), make(map[string]bool)
			for _, r := range w.read(sender.Topic) {
				s, err := events.Decode[events.Status](r.Value)
				if err != nil {
					return err
				}
				if at := events.Header(r, "ce_id"); !seen[at] { // they come at least once
					seen[at] = true
					told[s.Status]++
				}
			}
			if told[events.StatusKept]+told[events.StatusMatched] != keys*each || told[events.StatusKept] < keys*each/2 || told[events.StatusRepeated] != keys*each || len(told) > 3 {
				return fmt.Errorf("the sender was told %v", told)
			}
			return nil
		})
	})
}

// S1, T4: signals under keys, each sent twice, start orders, one each, while the partitions change their owner and
// that has lost its store, and Kafka's transactions end in the middle. Their senders are told which.
func TestSignalsStartOrdersOnce(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		i := w.Run("i-1", t.TempDir())
		const keys, each = 40, 4
		w.Register(i, `
workflow: claim
start: {signal: claimed, key: input.policy}
steps:
  - {name: told, listen: paid, key: 'input.policy + "/" + string(input.n)'}
`)
		sender := w.Caller("mail")
		key := func(k int) string { return fmt.Sprintf("p-%d", k) }
		send := func(k, n int) {
			for range 2 {
				w.Produce(&kgo.Record{Topic: w.Topics.Signals, Key: []byte("any"), Value: fmt.Appendf(nil, `{"signal":"claimed","key":%q,"id":"c-%d","data":{"policy":%q,"n":%d},"replyTo":%q}`, key(k), n, key(k), n, sender.Topic)})
			}
		}
		for n := range each {
			for k := range keys {
				send(k, n)
			}
			if n < 2 {
				i.Stop()
				i = w.Run(fmt.Sprintf("i-%d", n+2), t.TempDir())
			}
		}
		// Each key's home has begun as many orders as there were signals, and knows of each that it has.
		for k := range keys {
			w.order(i, events.CorrelationID("claimed", key(k)), func(o *projections.Order) bool {
				return len(o.Signals) == each && !slices.ContainsFunc(o.Signals, func(s projections.Signal) bool { return s.Kept() })
			})
		}
		orders := make(map[string]bool)
		w.until("all answers", func() error {
			told, seen := make(map[string]int), make(map[string]bool)
			for _, r := range w.read(sender.Topic) {
				s, err := events.Decode[events.Status](r.Value)
				if err != nil {
					return err
				}
				if at := events.Header(r, "ce_id"); !seen[at] { // they come at least once
					seen[at] = true
					if told[s.Status]++; s.Status == events.StatusStarted {
						orders[s.Detail.Child] = true
					}
				}
			}
			if told[events.StatusStarted] != keys*each || told[events.StatusRepeated] != keys*each || len(told) > 2 || len(orders) != keys*each {
				return fmt.Errorf("the sender was told %v, of %d orders", told, len(orders))
			}
			return nil
		})
		inputs := make(map[string]int)
		for id := range orders {
			inputs[string(w.order(i, id, in(projections.Pending)).Input)]++
		}
		if len(inputs) != keys*each {
			t.Errorf("orders have the inputs %v", inputs)
		}
		accepted := 0
		for _, r := range w.read(w.Topics.Journal) {
			if events.Header(r, events.HeaderType) == string(events.OrderAccepted) {
				accepted++
			}
		}
		if accepted != keys*each {
			t.Errorf("%d orders were accepted", accepted)
		}
	})
}
