//go:build unix

package broker

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// powerDisk is a disk that knows what a power failure would leave on it: of a
// file what was in it when it was flushed last, and of a directory the names that
// were in it then. What kfake flushes itself is taken for flushed.
type powerDisk struct {
	mu    sync.Mutex
	bytes map[uint64][]byte            // by inode
	names map[string]map[string]uint64 // by the path of the directory
	fail  error                        // of every flush, if set
}

func newPowerDisk() *powerDisk {
	return &powerDisk{bytes: make(map[uint64][]byte), names: make(map[string]map[string]uint64)}
}

func (p *powerDisk) disk() disk {
	return disk{sync: p.sync, limit: 20_000, free: func(string) (uint64, error) { return DefaultMinFree, nil }}
}

func inode(info os.FileInfo) uint64 { return info.Sys().(*syscall.Stat_t).Ino }

func (p *powerDisk) sync(f *os.File) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fail != nil {
		return p.fail
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.IsDir() {
		data, err := io.ReadAll(io.NewSectionReader(f, 0, info.Size()))
		p.bytes[inode(info)] = data
		return err
	}
	p.names[f.Name()] = p.list(f.Name(), func(path string, info os.FileInfo) {
		switch filepath.Ext(path) {
		case ".dat", ".idx", ".log":
		default: // kfake flushed it before it gave it this name
			if data, err := os.ReadFile(path); err == nil {
				p.bytes[inode(info)] = data
			}
		}
	})
	return nil
}

// list returns the names in a directory that are there now.
func (p *powerDisk) list(dir string, visit func(path string, info os.FileInfo)) map[string]uint64 {
	names := make(map[string]uint64)
	entries, _ := os.ReadDir(dir) // nothing is left of one that is gone
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			names[e.Name()] = inode(info)
			if !info.IsDir() {
				visit(filepath.Join(dir, e.Name()), info)
			}
		}
	}
	return names
}

// cut returns what is on the disk if the power fails now. What was not flushed is
// lost, or what of it lucky says.
func (p *powerDisk) cut(t *testing.T, dir string, lucky func() bool) string {
	t.Helper()
	p.mu.Lock() // nothing is flushed meanwhile, so nothing is acknowledged
	defer p.mu.Unlock()
	left := t.TempDir()
	if err := p.cutDir(dir, left, lucky); err != nil {
		t.Fatal(err)
	}
	return left
}

func (p *powerDisk) cutDir(from, to string, lucky func() bool) error {
	now := make(map[uint64][]byte)
	there := p.list(from, func(path string, info os.FileInfo) {
		if data, err := os.ReadFile(path); err == nil {
			now[inode(info)] = data
		}
	})
	names := p.names[from]
	if lucky() {
		names = there
	}
	for name, id := range names {
		if info, err := os.Stat(filepath.Join(from, name)); err == nil && info.IsDir() {
			if err := os.Mkdir(filepath.Join(to, name), 0o700); err != nil {
				return err
			}
			if err := p.cutDir(filepath.Join(from, name), filepath.Join(to, name), lucky); err != nil {
				return err
			}
			continue
		}
		data := p.bytes[id]
		if seen, ok := now[id]; ok && lucky() {
			data = seen
		}
		if err := os.WriteFile(filepath.Join(to, name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func never() bool { return false }

// told is what clients were told when the power failed.
type told struct {
	mu        sync.Mutex
	committed []string
	plain     []string
	epochs    map[string]int16 // by transactional id
}

func (a *told) copy() *told {
	a.mu.Lock()
	defer a.mu.Unlock()
	return &told{committed: slices.Clone(a.committed), plain: slices.Clone(a.plain), epochs: maps.Clone(a.epochs)}
}

// TestPowerFailure takes the power from a broker again and again while clients
// write to it, and looks whether all that they were told is there after it.
func TestPowerFailure(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 0))
	for name, lucky := range map[string]func() bool{
		"all is lost that was not flushed": never,
		"some of it is there all the same": func() bool { return draw.IntN(2) == 0 },
	} {
		t.Run(name, func(t *testing.T) { testPowerFailure(t, lucky) })
	}
}

func testPowerFailure(t *testing.T, lucky func() bool) {
	power, dir := newPowerDisk(), filepath.Join(t.TempDir(), "broker")
	b, err := start(Config{Dir: dir, Addr: "127.0.0.1:0", Fsync: true}, power.disk())
	if err != nil {
		t.Fatal(err)
	}
	createTopics(t, b.Addr(), crashPartitions, "journal", "requests", "plain")
	compactOften(t, b.Addr())

	now := &told{epochs: make(map[string]int16)}
	stop, progress := make(chan struct{}), make(chan struct{})
	var writers sync.WaitGroup
	for w := range crashWriters {
		writers.Go(func() { now.write(t, b.Addr(), fmt.Sprintf("writer-%d", w), stop, progress) })
	}
	type failure struct {
		told *told
		left string
	}
	var failures []failure
	for range 10 {
		for range 3 {
			<-progress
		}
		told := now.copy() // before the cut: it may be told more until then
		failures = append(failures, failure{told, power.cut(t, dir, lucky)})
	}
	close(stop)
	writers.Wait()
	closeBroker(t, b)

	for i, f := range failures {
		b, err := Start(Config{Dir: f.left, Addr: "127.0.0.1:0", Fsync: true})
		if err != nil {
			t.Errorf("failure %d: %v", i, err)
			continue
		}
		f.told.check(t, i, b.Addr())
		closeBroker(t, b)
	}
	if last := failures[len(failures)-1].told; len(last.committed) == 0 || len(last.plain) == 0 {
		t.Error("nothing was acknowledged, so nothing was compared")
	}
}

// compactOften has kfake replace its logs of producers and groups every few entries.
func compactOften(t *testing.T, addr string) {
	t.Helper()
	client := newClient(t, addr)
	defer client.Close()
	limit := "2000"
	altered, err := kadm.NewClient(client).AlterBrokerConfigs(t.Context(), []kadm.AlterConfig{{Name: "state.log.compact.bytes", Value: &limit}})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range altered {
		if a.Err != nil {
			t.Fatal(a.Err)
		}
	}
}

// write commits transactions with a record in every partition of two topics, and a
// plain record after each.
func (a *told) write(t *testing.T, addr, id string, stop <-chan struct{}, progress chan<- struct{}) {
	client := newClient(t, addr, kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer client.Close()
	plain := newClient(t, addr, kgo.DefaultProduceTopic("plain"))
	defer plain.Close()
	for n := 0; ; n++ {
		name := fmt.Sprintf("%s-txn%d", id, n)
		if err := client.BeginTransaction(); err != nil {
			t.Error(err)
			return
		}
		var records []*kgo.Record
		for _, topic := range []string{"journal", "requests"} {
			for p := range int32(crashPartitions) {
				records = append(records, &kgo.Record{Topic: topic, Partition: p, Value: []byte(name)})
			}
		}
		err := client.ProduceSync(t.Context(), records...).FirstErr()
		if err == nil {
			err = client.EndTransaction(t.Context(), kgo.TryCommit)
		}
		_, epoch, idErr := client.ProducerID(t.Context())
		if err := errors.Join(err, idErr); err != nil {
			t.Error(err)
			return
		}
		a.mu.Lock()
		a.committed = append(a.committed, name)
		a.epochs[id] = epoch
		a.mu.Unlock()

		if err := plain.ProduceSync(t.Context(), kgo.StringRecord(name)).FirstErr(); err != nil {
			t.Error(err)
			return
		}
		a.mu.Lock()
		a.plain = append(a.plain, name)
		a.mu.Unlock()
		select {
		case progress <- struct{}{}:
		case <-stop:
			return
		}
	}
}

// check compares what was told with what a broker has after the failure.
func (a *told) check(t *testing.T, failure int, addr string) {
	t.Helper()
	for _, topic := range []string{"journal", "requests", "plain"} {
		if !hasTopic(t, addr, topic) {
			t.Errorf("failure %d: the topic %s is gone", failure, topic)
			return
		}
	}
	seen := readCommitted(t, addr)
	for _, name := range a.committed {
		if seen[name] < crashRecords {
			t.Errorf("failure %d: acknowledged transaction %s has %d of %d records", failure, name, seen[name], crashRecords)
		}
	}
	for _, name := range a.plain {
		if seen[name] != crashRecords+1 {
			t.Errorf("failure %d: acknowledged record %s is gone", failure, name)
		}
	}
	for name, n := range seen {
		if strings.HasPrefix(name, "writer-") && n < crashRecords {
			t.Errorf("failure %d: transaction %s has %d of %d records", failure, name, n, crashRecords)
		}
	}
	for id, told := range a.epochs {
		client := newClient(t, addr, kgo.TransactionalID(id))
		if _, epoch, err := client.ProducerID(t.Context()); err != nil || epoch <= told {
			t.Errorf("failure %d: %s gets the epoch %d, %v; a client has %d", failure, id, epoch, err, told)
		}
		client.Close()
	}
}

func hasTopic(t *testing.T, addr, topic string) bool {
	t.Helper()
	client := newClient(t, addr)
	defer client.Close()
	topics, err := kadm.NewClient(client).ListTopics(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	return topics.Has(topic)
}

// A flush that failed is the last one, whether or not the disk would take the
// next, and nothing that it was to put on the disk is acknowledged.
func TestFailedFlush(t *testing.T) {
	power, dir := newPowerDisk(), t.TempDir()
	b, err := start(Config{Dir: dir, Addr: "127.0.0.1:0", Fsync: true}, power.disk())
	if err != nil {
		t.Fatal(err)
	}
	createTopics(t, b.Addr(), 1, "journal")
	produce(t, b.Addr(), "journal", "kept")
	defer func() { _ = b.Close() }() // looked at below

	client := newClient(t, b.Addr(), kgo.DefaultProduceTopic("journal"), kgo.RecordRetries(1), kgo.RequestRetries(1))
	defer client.Close()
	if err := client.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-b.Failed():
		t.Fatal("failed before a flush did")
	default:
	}
	broken := errors.New("input/output error")
	power.set(broken)
	if err := client.ProduceSync(t.Context(), kgo.StringRecord("lost")).FirstErr(); err == nil {
		t.Fatal("a record was acknowledged that was not flushed")
	}
	<-b.Failed()
	power.set(nil)
	if err := client.ProduceSync(t.Context(), kgo.StringRecord("late")).FirstErr(); err == nil {
		t.Error("a record was acknowledged after a flush had failed")
	}
	if err := b.Close(); !errors.Is(err, broken) || !strings.Contains(err.Error(), dir) {
		t.Errorf("close: %v, want the reason and the directory", err)
	}

	// Whether the record is there that was not acknowledged is open until somebody
	// is told, and not afterwards.
	b, err = start(Config{Dir: dir, Addr: "127.0.0.1:0", Fsync: true}, power.disk())
	if err != nil {
		t.Fatal(err)
	}
	defer closeBroker(t, b)
	produce(t, b.Addr(), "journal", "next")
	got := consumeUntil(t, b.Addr(), "journal", "next")
	if got != "kept next" && got != "kept lost next" {
		t.Errorf("after a restart the topic has %q", got)
	}
	after := startBroker(t, Config{Dir: power.cut(t, dir, never)})
	if again := consumeUntil(t, after.Addr(), "journal", "next"); again != got {
		t.Errorf("after a power failure the topic has %q, had %q", again, got)
	}
}

// consumeUntil returns the committed values of a topic up to one.
func consumeUntil(t *testing.T, addr, topic, last string) string {
	t.Helper()
	for n := 1; ; n++ {
		if got := consume(t, addr, topic, n); strings.HasSuffix(got, last) {
			return got
		}
	}
}

func (p *powerDisk) set(fail error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail = fail
}

// kfake goes on when it could not write, and only logs it.
func TestFailedWrite(t *testing.T) {
	b, err := Start(Config{Dir: t.TempDir(), Addr: "127.0.0.1:0", Fsync: true})
	if err != nil {
		t.Fatal(err)
	}
	l := clusterLog{slog.New(slog.DiscardHandler), b.flush}
	l.Logf(kfake.LogLevelWarn, "txn: EndTxn slow pid=%d", 1)
	if err := b.flush.wait(); err != nil {
		t.Errorf("after a remark: %v", err)
	}
	l.Logf(kfake.LogLevelWarn, "persist batch %s-%d: %v", "journal", 0, syscall.ENOSPC)
	if err := b.flush.wait(); err == nil || !strings.Contains(err.Error(), syscall.ENOSPC.Error()) {
		t.Errorf("after a write that failed: %v", err)
	}
	if err := b.Close(); err == nil {
		t.Error("close does not tell of the write that failed")
	}
}

// A topic that is deleted and made anew has nothing of the old one after a power
// failure, and segments that fill up have everything.
func TestPowerFailureAndSegments(t *testing.T) {
	power, dir := newPowerDisk(), t.TempDir()
	b, err := start(Config{Dir: dir, Addr: "127.0.0.1:0", Fsync: true}, power.disk())
	if err != nil {
		t.Fatal(err)
	}
	defer closeBroker(t, b)
	client := newClient(t, b.Addr())
	defer client.Close()
	admin := kadm.NewClient(client)
	create := func() {
		t.Helper()
		small := "200"
		if _, err := admin.CreateTopic(t.Context(), 1, 1, map[string]*string{"segment.bytes": &small}, "requests"); err != nil {
			t.Fatal(err)
		}
	}
	create()
	produce(t, b.Addr(), "requests", "old", "older")
	if _, err := admin.DeleteTopic(t.Context(), "requests"); err != nil {
		t.Fatal(err)
	}
	create()
	var all []string
	for n := range 50 {
		all = append(all, fmt.Sprint(n))
	}
	produce(t, b.Addr(), "requests", all...)
	if segments, err := listSegments(filepath.Dir(segmentOf(dir, "requests"))); err != nil || len(segments) < 3 {
		t.Fatalf("%d segments, %v", len(segments), err)
	}

	b = startBroker(t, Config{Dir: power.cut(t, dir, never), Fsync: true})
	if got, want := consumeUntil(t, b.Addr(), "requests", "49"), strings.Join(all, " "); got != want {
		t.Errorf("the topic has %q, want %q", got, want)
	}
}

// What the kernel wrote by itself, in whichever order, is no damage, and was
// never there.
func TestWhatWasNotFlushedIsCut(t *testing.T) {
	dir := t.TempDir()
	b := startBroker(t, Config{Dir: dir, Fsync: true})
	createTopics(t, b.Addr(), 1, "journal")
	produce(t, b.Addr(), "journal", "one")
	dir = killed(t, dir)
	path := segmentOf(dir, "journal")
	batch := read(t, path)
	write(t, path, slices.Concat(batch, make([]byte, 100), batch))
	write(t, filepath.Join(filepath.Dir(path), "1.dat"), batch)

	b = startBroker(t, Config{Dir: dir, Fsync: true})
	produce(t, b.Addr(), "journal", "two")
	if got, want := consumeUntil(t, b.Addr(), "journal", "two"), "one two"; got != want {
		t.Errorf("read %q, want %q", got, want)
	}
}

// A record of the flush log that is not whole ends it, and so does one that an
// earlier generation left.
func TestFlushLogEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	old := flushRecord(3, []piece{{"pids.log", 0, []byte("one")}})
	first := flushRecord(5, []piece{{"pids.log", 0, []byte("one")}, {"partitions/journal-0/0.dat", 7, nil}})
	second := flushRecord(5, []piece{{"pids.log", 3, []byte("two")}})
	flipped := slices.Clone(second)
	flipped[len(flipped)-1] ^= 1
	for name, c := range map[string]struct {
		log        []byte
		generation uint64
		pieces     int
	}{
		"empty":              {nil, 0, 0},
		"zeros":              {make([]byte, 100), 0, 0},
		"whole":              {slices.Concat(first, second, make([]byte, 100)), 5, 3},
		"torn":               {slices.Concat(first, second[:len(second)-1]), 5, 2},
		"torn in its head":   {slices.Concat(first, second[:recordHeader-1]), 5, 2},
		"flipped":            {slices.Concat(first, flipped), 5, 2},
		"another generation": {slices.Concat(first, old), 5, 2},
	} {
		write(t, path, c.log)
		generation, pieces, err := readFlushLog(path)
		if err != nil || generation != c.generation || len(pieces) != c.pieces {
			t.Errorf("%s: generation %d, %d pieces, %v; want %d and %d", name, generation, len(pieces), err, c.generation, c.pieces)
		}
	}
}

// A broker that does not flush takes a directory over, and leaves no log behind that
// would later take back what it wrote.
func TestFlushLogIsUsedOnce(t *testing.T) {
	dir := t.TempDir()
	b := startBroker(t, Config{Dir: dir, Fsync: true})
	createTopics(t, b.Addr(), 1, "journal")
	produce(t, b.Addr(), "journal", "one")
	left := killed(t, dir)
	closeBroker(t, b)
	if logs, _ := filepath.Glob(filepath.Join(dir, "flush-*")); len(logs) > 0 {
		t.Errorf("a stop in good order leaves %q", logs)
	}

	b = startBroker(t, Config{Dir: left})
	produce(t, b.Addr(), "journal", "two")
	closeBroker(t, b)
	b = startBroker(t, Config{Dir: left, Fsync: true})
	produce(t, b.Addr(), "journal", "three")
	if got, want := consumeUntil(t, b.Addr(), "journal", "three"), "one two three"; got != want {
		t.Errorf("read %q, want %q", got, want)
	}
}
