package broker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// killed returns a copy of what the broker has on disk at this moment, which
// is what a kill would leave.
func killed(t *testing.T, dir string) string {
	t.Helper()
	left := t.TempDir()
	if err := os.CopyFS(left, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return left
}

// openTransaction begins a transaction with one record in each topic.
func openTransaction(t *testing.T, client *kgo.Client, value string, topics ...string) {
	t.Helper()
	if err := client.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for _, topic := range topics {
		if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

func commit(t *testing.T, client *kgo.Client) {
	t.Helper()
	if err := client.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
}

func segmentOf(dir, topic string) string {
	return filepath.Join(dir, "partitions", topic+"-0", "0.dat")
}

func TestRecoveryAbortsAnOpenTransactionForGood(t *testing.T) {
	dir := t.TempDir()
	b := startBroker(t, Config{Dir: dir})
	createTopics(t, b.Addr(), 1, "journal")
	client := newClient(t, b.Addr(), kgo.TransactionalID("lane"))
	defer client.Close()
	openTransaction(t, client, "lost", "journal")

	dir = killed(t, dir)
	b = startBroker(t, Config{Dir: dir})
	next := newClient(t, b.Addr(), kgo.TransactionalID("lane"))
	defer next.Close()
	openTransaction(t, next, "kept", "journal")
	commit(t, next)

	// The commit of the same producer must not reach back over the restart.
	b = startBroker(t, Config{Dir: killed(t, dir)})
	produce(t, b.Addr(), "journal", "last")
	if got, want := consume(t, b.Addr(), "journal", 2), "kept last"; got != want {
		t.Errorf("read %q, want %q", got, want)
	}
}

func TestRecoveryCompletesACommit(t *testing.T) {
	dir := t.TempDir()
	b := startBroker(t, Config{Dir: dir})
	createTopics(t, b.Addr(), 1, "journal", "requests")
	client := newClient(t, b.Addr(), kgo.TransactionalID("lane"))
	defer client.Close()
	openTransaction(t, client, "order", "journal", "requests")
	before := killed(t, dir)
	commit(t, client)
	after := killed(t, dir)

	// As if killed after the first marker: the journal has its, the
	// requests have none, and the producers do not know of the end.
	for _, name := range []string{"0.dat", "0.idx"} {
		part := filepath.Join("partitions", "journal-0", name)
		write(t, filepath.Join(before, part), read(t, filepath.Join(after, part)))
	}
	b = startBroker(t, Config{Dir: before})
	for _, topic := range []string{"journal", "requests"} {
		if got := consume(t, b.Addr(), topic, 1); got != "order" {
			t.Errorf("%s has %q", topic, got)
		}
	}
}

// A client that lives through the restart must not go on with the transaction
// that was aborted behind its back.
func TestRecoveryFencesTheClient(t *testing.T) {
	dir := t.TempDir()
	first, err := Start(Config{Dir: dir, Addr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	createTopics(t, first.Addr(), 1, "journal")
	client := newClient(t, first.Addr(), kgo.TransactionalID("lane"))
	defer client.Close()
	openTransaction(t, client, "lost", "journal")
	left := killed(t, dir)
	closeBroker(t, first)

	startBroker(t, Config{Dir: left, Addr: first.Addr()})
	record := &kgo.Record{Topic: "journal", Value: []byte("half")}
	err = client.ProduceSync(t.Context(), record).FirstErr()
	if err == nil {
		err = client.EndTransaction(context.Background(), kgo.TryCommit)
	}
	if err == nil {
		t.Error("the client committed half of a transaction")
	}
}

func TestRecoveryRepairsTheIndex(t *testing.T) {
	dir := t.TempDir()
	b := startBroker(t, Config{Dir: dir})
	createTopics(t, b.Addr(), 1, "journal")
	client := newClient(t, b.Addr(), kgo.TransactionalID("lane"))
	defer client.Close()
	openTransaction(t, client, "lost", "journal")

	dir = killed(t, dir)
	write(t, filepath.Join(dir, "partitions", "journal-0", "0.idx"), nil) // the data was written, its entry was not
	b = startBroker(t, Config{Dir: dir})
	produce(t, b.Addr(), "journal", "last")
	if got := consume(t, b.Addr(), "journal", 1); got != "last" {
		t.Errorf("read %q of a transaction that never committed", got)
	}
}

func TestTornTailIsDropped(t *testing.T) {
	for _, cut := range []int{1, batchHeader + 3} {
		dir := threeRecords(t)
		data := read(t, segmentOf(dir, "journal"))
		write(t, segmentOf(dir, "journal"), data[:len(data)-cut])
		b := startBroker(t, Config{Dir: dir})
		produce(t, b.Addr(), "journal", "next")
		if got, want := consume(t, b.Addr(), "journal", 3), "one two next"; got != want {
			t.Errorf("cut %d: read %q, want %q", cut, got, want)
		}
	}
}

func TestDamageInTheMiddleIsRefused(t *testing.T) {
	dir := threeRecords(t)
	path := segmentOf(dir, "journal")
	good := read(t, path)
	third := len(good) / 3 // the batches are of one size
	for name, at := range map[string]int{"length": 11, "checksum": 17, "record": third - 1, "second batch": third + 20} {
		bad := slices.Clone(good)
		bad[at] ^= 0x40
		write(t, path, bad)
		_, err := Start(Config{Dir: dir, Addr: "127.0.0.1:0"})
		if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), path) {
			t.Errorf("flipped a bit of the %s: %v, want ErrDamaged and the file", name, err)
		}
		if !slices.Equal(read(t, path), bad) {
			t.Errorf("flipped a bit of the %s: the file was changed", name)
		}
	}
	write(t, path, good)
	b := startBroker(t, Config{Dir: dir})
	if got, want := consume(t, b.Addr(), "journal", 3), "one two six"; got != want {
		t.Errorf("read %q, want %q", got, want)
	}
}

// threeRecords returns a directory with a topic of three batches of one size.
func threeRecords(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	b := startBroker(t, Config{Dir: dir})
	createTopics(t, b.Addr(), 1, "journal")
	produce(t, b.Addr(), "journal", "one", "two", "six")
	closeBroker(t, b)
	return dir
}

func TestTornStateLogIsCut(t *testing.T) {
	dir := t.TempDir()
	b := startBroker(t, Config{Dir: dir})
	createTopics(t, b.Addr(), 1, "journal")
	client := newClient(t, b.Addr(), kgo.TransactionalID("lane"))
	defer client.Close()
	openTransaction(t, client, "first", "journal")
	commit(t, client)

	// What is written behind the torn end must be found after the next kill:
	// here, that the second client fenced the first.
	dir = killed(t, dir)
	path := filepath.Join(dir, "pids.log")
	if err := appendFile(path, []byte{40, 0, 0, 0, 1}); err != nil {
		t.Fatal(err)
	}
	b = startBroker(t, Config{Dir: dir})
	second := newClient(t, b.Addr(), kgo.TransactionalID("lane"))
	defer second.Close()
	openTransaction(t, second, "second", "journal")
	commit(t, second)
	_, epoch, err := second.ProducerID(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	b = startBroker(t, Config{Dir: killed(t, dir)})
	third := newClient(t, b.Addr(), kgo.TransactionalID("lane"))
	defer third.Close()
	if _, got, err := third.ProducerID(t.Context()); err != nil || got <= epoch {
		t.Errorf("epoch %d, %v; the one before was %d", got, err, epoch)
	}
}
