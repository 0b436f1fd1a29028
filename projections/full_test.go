//go:build unix

package projections

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// A process whose disk does not take the store any more ends, and says why and what to do: no panic of Pebble's, and
// nobody who waits for its locks for ever. Where it is that no file can be opened any more, what is stored stays.
func TestADiskThatIsFull(t *testing.T) {
	const variable = "WAYBILL_TEST_FULL"
	ways := map[string]func(*testing.T, string){"the log": fill, "tables": fillTables}
	if way := os.Getenv(variable); way != "" {
		ways[way](t, t.TempDir())
		return
	}
	for way := range ways {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // it does not end by itself where it goes on for ever
		cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestADiskThatIsFull$")
		cmd.Env = append(os.Environ(), variable+"="+way, "TMPDIR="+t.TempDir()) // what dies does not clean up
		said, err := cmd.CombinedOutput()
		cancel()
		if cmd.ProcessState.ExitCode() != 1 || strings.Contains(string(said), "panic") || !strings.Contains(string(said), "see that its disk has room") {
			t.Errorf("%s: %v:\n%.2000s", way, err, said)
		}
	}
}

// fillTables writes into a store whose log can be written, and no table: Pebble preallocates the one, and not the other.
func fillTables(t *testing.T, _ string) {
	d := &damaged{found: make(chan struct{})}
	db, err := pebble.Open("", d.watch(options(noTables{vfs.NewMem()}, slog.New(slog.NewTextHandler(os.Stderr, nil)))))
	must(t, err)
	must(t, db.Set([]byte("key"), nil, pebble.NoSync))
	must(t, db.Flush())
	t.Error("it takes everything")
}

// noTables has no room for tables.
type noTables struct{ vfs.FS }

func (f noTables) Create(name string, of vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasSuffix(name, ".sst") {
		return nil, &os.PathError{Op: "open", Path: name, Err: syscall.ENOSPC}
	}
	return f.FS.Create(name, of) //nolint:wrapcheck // for Pebble
}

// A machine on which no more files can be opened says nothing about the store, which stays as it is.
func TestNoFilesCanBeOpened(t *testing.T) {
	const variable = "WAYBILL_TEST_NO_FILES"
	if dir := os.Getenv(variable); dir != "" {
		openWithoutFiles(t, dir)
		return
	}
	dir := t.TempDir()
	s, err := Open(dir, identity, slog.New(slog.DiscardHandler))
	must(t, err)
	p, err := s.Partition(0)
	must(t, err)
	j := newJournal()
	j.add(accepted("a", "flow"))
	must(t, fold(p, j.records))
	must(t, p.Flush())
	must(t, s.Close())
	cmd := exec.Command(os.Args[0], "-test.run=^TestNoFilesCanBeOpened$", "-test.v")
	cmd.Env = append(os.Environ(), variable+"="+dir)
	said, _ := cmd.CombinedOutput() // Pebble may end the process
	if !strings.Contains(string(said), "open the state store") || !strings.Contains(string(said), "too many open files") || strings.Contains(string(said), "--- FAIL") {
		t.Errorf("%s", said)
	}
	s, err = Open(dir, identity, slog.New(slog.DiscardHandler))
	must(t, err)
	if _, _, err := s.Order(0, "a"); err != nil {
		t.Errorf("what was stored is gone: %v", err)
	}
	must(t, s.Close())
}

// openWithoutFiles opens a store with ever more files that may be open, until they are enough.
func openWithoutFiles(t *testing.T, dir string) {
	open, err := os.ReadDir("/dev/fd")
	must(t, err)
	for n := range uint64(100) {
		limit := syscall.Rlimit{Cur: uint64(len(open)) + n, Max: 1024}
		must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
		s, err := Open(dir, identity, slog.New(slog.DiscardHandler))
		if err == nil {
			must(t, s.Close())
			return
		}
		t.Log(err)
		if !errors.Is(err, syscall.EMFILE) || errors.Is(err, ErrInUse) {
			t.Errorf("with %d more: %v", n, err)
		}
	}
	t.Error("it cannot be opened")
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
