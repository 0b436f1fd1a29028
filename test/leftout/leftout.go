// Package leftout says why a test was left out, so that `make test` can tell at its end.
package leftout

import "testing"

// Prefix begins the reason of every skip that leaves something out. `make test`
// collects these reasons and prints them at the end.
const Prefix = "left out: "

// UnlessLong leaves a test out of a short run (go test -short), as `make test` is at a desk. In continuous integration
// no run is short.
func UnlessLong(t testing.TB, what string) {
	t.Helper()
	if testing.Short() {
		t.Skipf(Prefix+"%s (%s), because that takes long; make test LONG=1 has it", what, t.Name())
	}
}
