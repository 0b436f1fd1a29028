package integration

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/leftout"
	kit "github.com/waybill-dev/waybill/test/world"
)

// S1, S3, T4: an agent lists 3,000 items in 30 pages, while the partitions change their owners, who have lost their
// stores: each page is asked for once, and each item is done once, as the page has it. Those that failed are done anew
// when an operator says so, without the agent being asked for their pages again.
func TestItemsThatAnAgentListsAreDoneOnce(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		if b.Kind == kafka.KindContainer {
			leftout.UnlessLong(t, "thousands of items that an agent lists, on Apache Kafka")
		}
		w := newWorld(t, b)
		i := w.Run("i-1", t.TempDir())
		w.Register(i, `
workflow: payout
steps:
  - name: pay
    each:
      items: {agent: any, do: list, with: input.from, timeout: 1h, retry: {attempts: 1}}
      steps:
        - {name: pay, agent: any, timeout: 1h, retry: {attempts: 1}}
      atOnce: 100
      onFailure: finish
`)
		const items, page = 3_000, 100
		gate, passed := make(chan struct{}), 0
		asked := make(map[string]int)
		w.Answering("any", func(r kit.Request) string {
			if passed++; passed > items/3 { // the others wait until somebody else owns their partitions
				<-gate
			}
			asked[r.IdempotencyKey]++
			if r.Step == "page" {
				return list(t, r.Input, items, page)
			}
			if strings.HasSuffix(string(r.Input), "77") && !strings.Contains(r.Order, ":2") {
				return `"status":"failed","error":{"code":"no","permanent":true}`
			}
			return kit.Gave(string(r.Input))
		})
		w.Submit("o-1", `{"workflow":"payout","input":{"from":7}}`)
		w.until("some replies", func() error {
			if have := len(w.read(w.Topics.Replies)); have < items/4 {
				return fmt.Errorf("%d of %d", have, items/4)
			}
			return nil
		})
		i.Stop()
		i = w.Run("i-2", t.TempDir())
		close(gate)
		w.order(i, "o-1", in(projections.Error))
		failed, _, err := i.Items("o-1", "pay", 0, 1000, projections.ItemFilter{Failed: true})
		if err != nil || len(failed) != items/page || failed[1].Number != 177 {
			t.Fatalf("%d items failed: %+v, %v", len(failed), failed, err)
		}
		w.Command("o-1", `{"command":"resubmit","id":"c-1"}`)
		w.order(i, "o-1", in(projections.Processed))

		done, pages := make(map[int]int), 0
		for _, e := range w.history("o-1") {
			switch e.Type {
			case events.ItemCompleted:
				if done[e.Item]++; string(e.Output) != fmt.Sprint(e.Item) {
					t.Errorf("item %d is %s", e.Item, e.Output)
				}
			case events.PageOrdered:
				pages++
			}
		}
		for n := range items {
			key := fmt.Sprintf("@o-1/pay:i%d", n+1)
			if n%page == 76 {
				key += ":2"
			}
			if done[n+1] != 1 || asked[key+"/pay"] != 1 {
				t.Errorf("item %d was done %d times, and %s asked for %d times", n+1, done[n+1], key, asked[key+"/pay"])
			}
		}
		for n := range items / page {
			if got := asked[fmt.Sprintf("@o-1/pay:p%d/page", n+1)]; got != 1 {
				t.Errorf("page %d was asked for %d times", n+1, got)
			}
		}
		if pages != 2*items/page {
			t.Errorf("orders were asked for %d pages", pages)
		}
	})
}

// list is the page of the numbers from 1 on that begins where the cursor says.
func list(t *testing.T, input []byte, items, page int) string {
	var asks struct {
		Input  int    `json:"input"`
		Cursor string `json:"cursor"`
	}
	if err := json.Unmarshal(input, &asks); err != nil || asks.Input != 7 {
		t.Errorf("the agent gets %s: %v", input, err)
	}
	from := 0
	if asks.Cursor != "" {
		var err error
		if from, err = strconv.Atoi(asks.Cursor); err != nil {
			t.Errorf("the agent gets %s: %v", input, err)
		}
	}
	numbers, cursor := make([]string, page), ""
	for n := range page {
		numbers[n] = strconv.Itoa(from + n + 1)
	}
	if from+page < items {
		cursor = fmt.Sprintf(`,"cursor":"%d"`, from+page)
	}
	return kit.Gave(fmt.Sprintf(`{"items":[%s]%s}`, strings.Join(numbers, ","), cursor))
}
