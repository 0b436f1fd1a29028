//go:build unix

package projections

import (
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// A process whose disk does not take the store any more ends, and says why and what to do: no panic of Pebble's, and
// nobody who waits for its locks for ever.
func TestADiskThatIsFull(t *testing.T) {
	const variable = "WAYBILL_TEST_FULL"
	if _, is := os.LookupEnv(variable); is {
		fill(t, t.TempDir())
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestADiskThatIsFull$")
	cmd.Env = append(os.Environ(), variable+"=", "TMPDIR="+t.TempDir()) // what dies does not clean up
	said, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 1 || strings.Contains(string(said), "panic") || !strings.Contains(string(said), "see that its disk has room") {
		t.Errorf("%v:\n%s", err, said)
	}
}

// fill writes into a store, of which no file may have more than 64 KiB: less than what is written before Pebble begins another.
func fill(t *testing.T, dir string) {
	signal.Ignore(syscall.SIGXFSZ)
	must(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 64 << 10, Max: 64 << 10}))
	s, err := Open(dir, identity, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	must(t, err)
	slowly := time.NewTicker(time.Millisecond)
	defer slowly.Stop()
	for range 1_000 {
		b := s.db.NewBatch()
		must(t, b.Set([]byte("key"), make([]byte, 1<<10), nil))
		must(t, s.log.commit(b, pebble.NoSync))
		<-slowly.C // Pebble writes its log meanwhile
	}
	t.Error("it takes everything")
}
