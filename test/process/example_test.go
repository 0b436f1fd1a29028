//go:build unix

package process

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/waybill-dev/waybill/test/child"
)

// shown is the command of an example that runs, with its data in a directory, until the test ends.
type shown struct {
	*process
	data, http string
}

// runExample runs that of a name until it says something.
func runExample(t *testing.T, name, says string, args ...string) *shown {
	t.Helper()
	program := filepath.Join(t.TempDir(), name)
	if said, err := exec.Command("go", "build", "-o", program, "github.com/waybill-dev/waybill/examples/"+name+"/cmd/"+name).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	workflows, err := filepath.Abs("../../examples/" + name)
	if err != nil {
		t.Fatal(err)
	}
	data, http := filepath.Join(t.TempDir(), "data"), child.FreeAddress(t)
	dev := command(context.Background(), t) // as one of Waybill's, but for the program
	waybill := dev.Path
	dev.Path, dev.Args = program, append([]string{program, "-waybill", waybill, "-data", data, "-workflows", workflows, "-kafka-addr", child.FreeAddress(t), "-http-addr", http}, args...)
	e := &shown{startCommand(t, name, dev), data, http}
	t.Cleanup(e.stop) // it stops what it started
	e.says(says)
	return e
}
