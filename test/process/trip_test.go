//go:build unix

package process

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/child"
)

// The trip example is run by one command, and goes as its README tells: what other orders have booked
// is undone as a whole when there is no car.
func TestTheTripExample(t *testing.T) {
	program := filepath.Join(t.TempDir(), "trip")
	if said, err := exec.Command("go", "build", "-o", program, "github.com/waybill-dev/waybill/examples/trip/cmd/trip").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	workflows, err := filepath.Abs("../../examples/trip")
	if err != nil {
		t.Fatal(err)
	}
	data, http := filepath.Join(t.TempDir(), "data"), child.FreeAddress(t)
	dev := command(context.Background(), t) // as one of Waybill's, but for the program
	waybill := dev.Path
	dev.Path, dev.Args = program, []string{program, "-waybill", waybill, "-data", data, "-workflows", workflows, "-kafka-addr", child.FreeAddress(t), "-http-addr", http}
	trip := startCommand(t, "trip", dev)
	t.Cleanup(trip.stop) // it stops what it started
	trip.says("Ctrl-C stops it")

	client, err := api.NewClient("http://" + http)
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
		said, err := command(t.Context(), t, "submit", "trip", "--id", order, "--server", "http://"+http,
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
