package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
	kit "github.com/waybill-dev/waybill/test/world"
)

// S1, T4, C1: a step is done for 240 items, on all partitions, at most 20 at a time, while the partitions change
// their owners, who have lost their stores: each item is done once. Those that failed are done anew when an operator
// says so, and no others; and all are undone as a whole.
func TestItemsAreDoneOnce(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		i := w.Run("i-1", t.TempDir())
		w.Register(i, `
workflow: payout
steps:
  - name: pay
    each:
      items: input
      steps:
        - {name: pay, agent: any, undo: refund, timeout: 1h, retry: {attempts: 1}}
      atOnce: 20
      onFailure: finish
  - {name: confirm, agent: any, timeout: 1h, retry: {attempts: 1}, exhausted: compensate}
`)
		const items = 240
		gate, passed := make(chan struct{}), 0
		asked := make(map[string]int)
		w.Answering("any", func(r kit.Request) string {
			if passed++; passed > items/3 { // the others wait until somebody else owns their partitions
				<-gate
			}
			asked[r.IdempotencyKey]++
			switch {
			case r.Undo:
				return kit.Gave("null")
			case r.Step == "confirm", string(r.Input)[len(string(r.Input))-1] == '7' && !strings.Contains(r.Order, ":2"):
				return `"status":"failed","error":{"code":"no","permanent":true}`
			}
			return kit.Gave(string(r.Input))
		})
		replied := func(least int) {
			w.until("some replies", func() error {
				if have := len(w.read(w.Topics.Replies)); have < least {
					return fmt.Errorf("%d of %d", have, least)
				}
				return nil
			})
		}
		numbers := make([]string, items)
		for n := range items {
			numbers[n] = fmt.Sprint(n + 1)
		}
		w.Submit("o-1", `{"workflow":"payout","input":[`+strings.Join(numbers, ",")+`]}`)
		replied(items / 4)
		i.Stop()
		i = w.Run("i-2", t.TempDir())
		close(gate)
		w.order(i, "o-1", in(projections.Error))
		failed, _, err := i.Items("o-1", "pay", 0, 1000, projections.ItemFilter{Failed: true})
		if err != nil || len(failed) != items/10 || failed[1].Number != 17 || failed[1].Error.Code != "compensated" || failed[1].Order != "@o-1/pay:i17" {
			t.Fatalf("%d items failed: %+v, %v", len(failed), failed, err)
		}
		i.Stop()
		i = w.Run("i-3", t.TempDir())
		w.Command("o-1", `{"command":"resubmit","id":"c-1"}`)
		w.order(i, "o-1", in(projections.Compensated))

		begun, done := make(map[string]int), make(map[string]int)
		most := 0
		for _, e := range w.history("o-1") {
			if e.ToUndo {
				continue
			}
			switch e.Type {
			case events.ItemsOrdered:
				begun["all"] += e.Count
			case events.ItemCompleted:
				done[fmt.Sprint(e.Item)]++
				begun["all"]--
			case events.ItemFailed:
				begun["all"]--
			}
			most = max(most, begun["all"])
		}
		if most != 20 {
			t.Errorf("%d items were under way at a time", most)
		}
		for _, n := range numbers {
			if done[n] != 1 {
				t.Errorf("item %s was done %d times", n, done[n])
			}
			key := "@o-1/pay:i" + n
			if n[len(n)-1] == '7' {
				key += ":2"
			}
			if got := asked[key+"/pay"]; got != 1 || asked[key+"/pay:undo"] != 1 {
				t.Errorf("%s was asked for %d times, and undone %d times", key, got, asked[key+"/pay:undo"])
			}
			if n[len(n)-1] != '7' && asked[key+":2/pay"] > 0 {
				t.Errorf("item %s was done anew, and had not failed", n)
			}
		}
	})
}
