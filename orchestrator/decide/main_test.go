package decide

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain lets more garbage lie about than is usual: what is drawn and held against the rules lives for a moment.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}
