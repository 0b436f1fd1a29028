package child

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// Processes side by side are never given the same address, nor one process twice.
func TestAddressesAreGivenOnce(t *testing.T) {
	const (
		variable = "WAYBILL_TEST_ADDRESSES"
		drawn    = portRange + portRange/2 // of more than one range
	)
	if os.Getenv(variable) != "" {
		for range drawn {
			fmt.Fprintln(os.Stdout, FreeAddress(t))
		}
		return
	}
	given := make(map[string]string)
	give := func(address, to string) {
		if other, twice := given[address]; twice {
			t.Errorf("%s was given to %s and to %s", address, other, to)
		}
		given[address] = to
	}
	for range drawn {
		give(FreeAddress(t), "this process")
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), variable+"=1")
	said, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(said)
	for range drawn {
		if !lines.Scan() {
			t.Fatal("the child ended early")
		}
		give(lines.Text(), "the child")
	}
	for lines.Scan() {
		continue // its closing lines are of no interest
	}
	if err := child.Wait(); err != nil {
		t.Fatal(err)
	}
}
