//go:build unix

package process

import (
	"testing"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/projections"
)

// The payout example is run by one command, and goes as its README tells: what the bank refused is paid once its
// accounts are open, and nothing else is done anew.
func TestThePayoutExample(t *testing.T) {
	const payments = 300
	payout := runExample(t, "payout", "Ctrl-C stops it", "-payments", "300")
	client, err := api.NewClient("http://" + payout.http)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	all, err := client.Orders(t.Context(), api.Filter{Workflow: "payout"}, 10, "")
	if err != nil || len(all.Orders) != 1 {
		t.Fatalf("there are %+v: %v", all, err)
	}
	id := all.Orders[0].OrderID
	order, err := client.Order(t.Context(), id)
	if err != nil || order.ProcessState != projections.Processed || order.Steps[0].Items.Completed != payments {
		t.Fatalf("it is %+v: %v", order, err)
	}
	items, err := client.Items(t.Context(), id, "pay", projections.ItemFilter{}, payments, "")
	if err != nil || len(items.Items) != payments {
		t.Fatalf("there are %+v: %v", items, err)
	}
	for i := range items.Items {
		item := &items.Items[i]
		want := events.ChildID(events.IdempotencyKey(id, events.ItemStep("pay", item.Item), i%100/97))
		if item.Order == nil || *item.Order != want {
			t.Errorf("item %d is done by %v, and must be by %s", item.Item, item.Order, want)
		}
	}
}
