//go:build unix

package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/projections"
)

// P3: the loan example is run by one command, and goes as its README tells: nobody grants a loan
// of his own, one person does not twice, and two do.
func TestTheLoanExample(t *testing.T) {
	loan := runExample(t, "loan", "The people have keys")

	// as runs a command in the name of somebody.
	as := func(name string, args ...string) (string, error) {
		said, err := command(t.Context(), t, append(args, "--token-file", filepath.Join(loan.data, name+".key"), "--server", "http://"+loan.http)...).CombinedOutput()
		return string(said), err
	}
	key, err := os.ReadFile(filepath.Join(loan.data, "sam.key"))
	if err != nil {
		t.Fatal(err)
	}
	sam, err := api.NewClient("http://"+loan.http, api.WithToken(strings.TrimSpace(string(key))))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sam.Close)
	until := func(order, step string, state projections.StepState) {
		loan.until(fmt.Sprintf("step %s of %s is %s", step, order, state), func() error {
			o, err := sam.Order(t.Context(), order)
			if err != nil {
				return err
			}
			for i := range o.Steps {
				if o.Steps[i].Name == step && o.Steps[i].State == state {
					return nil
				}
			}
			return fmt.Errorf("the order is %s", o.ProcessState)
		})
	}
	submit := func(order string, amount int, asking string) {
		t.Helper()
		if said, err := as("sam", "submit", "loan", "--id", order, "--input", fmt.Sprintf(`{"customer":"c-7","amount":%d,"income":40000}`, amount)); err != nil {
			t.Fatalf("%v: %s", err, said)
		}
		until(order, asking, projections.Approving)
	}
	decide := func(name, order, step, outcome, refused string) {
		t.Helper()
		if said, err := as(name, "order", "decide", order, step, outcome); (err == nil) != (refused == "") || !strings.Contains(said, refused) {
			t.Errorf("%s decides %s: %v: %s", name, order, err, said)
		}
	}

	submit("l-1", 50000, "large")
	decide("sam", "l-1", "large", "approved", "sam submitted the order")
	decide("ana", "l-1", "large", "approved", "")
	decide("ana", "l-1", "large", "approved", "ana has decided already: approved")
	decide("eve", "l-1", "large", "approved", "none of the roles that may decide now: clerk, finance")
	decide("bob", "l-1", "large", "approved", "")
	until("l-1", "signed", projections.Listening)
	if said, err := as("sam", "order", "signal", "l-1", "signed"); err != nil || !strings.Contains(said, "matched") {
		t.Errorf("%v: %s", err, said)
	}
	until("l-1", "pay", projections.Completed)

	submit("l-2", 5000, "small")
	decide("bob", "l-2", "small", "declined", "none of the roles that may decide now: clerk")
	decide("ana", "l-2", "small", "declined", "")
	until("l-2", "refused", projections.DidRaise)
}
