//go:build unix

package process

import (
	"fmt"
	"testing"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/projections"
)

// The subscription example is run by one command, and goes as its README tells: it renews by a schedule of its own
// until a signal ends it, and with it the schedule.
func TestTheSubscriptionExample(t *testing.T) {
	example := runExample(t, "subscription", "Ctrl-C stops it")
	client, err := api.NewClient("http://" + example.http)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	submission := &api.Submission{ID: "s-1", Workflow: "subscription", Input: []byte(`{"customer":"c-7","plan":"gold","every":"1s","start":"2026-01-01T00:00:00Z"}`)}
	example.until("it is submitted", func() error { _, err := client.Submit(t.Context(), submission); return err })
	example.until("it is renewed three times", func() error {
		page, err := client.Orders(t.Context(), api.Filter{Workflow: "renewal", State: string(projections.Processed)}, 100, "")
		if err == nil && len(page.Orders) < 3 {
			err = fmt.Errorf("it was %d times", len(page.Orders))
		}
		return err
	})
	example.until("it is cancelled", func() error {
		_, err := client.Signal(t.Context(), "s-1", &api.Signal{Signal: "cancel", ID: "c-1"})
		return err
	})
	example.until("it is over", func() error {
		o, err := client.Order(t.Context(), "s-1")
		if err == nil && o.ProcessState != projections.Processed {
			err = fmt.Errorf("it is %s", o.ProcessState)
		}
		return err
	})
	if page, err := client.Schedules(t.Context(), 10, ""); err != nil || len(page.Schedules) != 0 {
		t.Errorf("its schedule: %+v, %v", page, err)
	}
}
