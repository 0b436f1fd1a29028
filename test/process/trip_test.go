//go:build unix

package process

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/projections"
)

// The trip example is run by one command, and goes as its README tells: what other orders have booked
// is undone as a whole when there is no car.
func TestTheTripExample(t *testing.T) {
	trip := runExample(t, "trip", "Ctrl-C stops it")

	client, err := api.NewClient("http://" + trip.http)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	reaches := func(order string, state projections.State) *api.Order {
		t.Helper()
		var o *api.Order
		trip.until(fmt.Sprintf("order %s is %s", order, state), func() (err error) {
			o, err = client.Order(t.Context(), order)
			if err == nil && o.ProcessState != state {
				err = fmt.Errorf("it is %s", o.ProcessState)
			}
			return err
		})
		return o
	}
	submit := func(order, car string) {
		t.Helper()
		said, err := command(t.Context(), t, "submit", "trip", "--id", order, "--server", "http://"+trip.http,
			"--input", fmt.Sprintf(`{"customer":"c-7","to":"LIS","nights":2,"car":%q}`, car)).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, said)
		}
	}

	submit("t-1", "small")
	if o := reaches("t-1", projections.Processed); !strings.Contains(string(o.Output), "mail-") {
		t.Errorf("its output is %s", o.Output)
	}
	for _, step := range []string{"flight", "hotel", "car"} {
		reaches("@t-1/"+step, projections.Processed)
	}
	submit("t-2", "limousine")
	if o := reaches("t-2", projections.Compensated); o.Reason == nil || !strings.Contains(*o.Reason, "no-car: order @t-2/car: there is no limousine") {
		t.Errorf("its reason is another: %+v", o)
	}
	reaches("@t-2/car", projections.Raised)
	for order, want := range map[string][]string{"@t-2/flight": {"hold", "pay", "ticket"}, "@t-2/hotel": {"reserve", "pay"}} {
		var undone []string
		for _, s := range reaches(order, projections.Compensated).Steps {
			if s.State == projections.Undone {
				undone = append(undone, s.Name)
			}
		}
		if !slices.Equal(undone, want) {
			t.Errorf("of %s is undone %q", order, undone)
		}
	}
}
