package broker

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// The crash test needs a broker in a process of its own to kill. These tell
// the test binary to be that process.
const (
	envChildDir   = "WAYBILL_TEST_BROKER_DIR"
	envChildFsync = "WAYBILL_TEST_BROKER_FSYNC"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(envChildDir); dir != "" {
		runChild(dir, os.Getenv(envChildFsync) != "")
		return
	}
	goleak.VerifyTestMain(m)
}

// runChild runs a broker, prints its address, and stops it when standard input
// ends, which it also does when the test itself dies.
func runChild(dir string, fsync bool) {
	b, err := Start(Config{
		Dir: dir, Addr: "127.0.0.1:0", Fsync: fsync, MinFree: 1,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Fprintln(os.Stdout, b.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := b.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
