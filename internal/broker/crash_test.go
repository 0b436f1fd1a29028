package broker

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/test/reliability"
)

const (
	crashPartitions = 4
	crashWriters    = 3
)

// TestKill kills a broker with SIGKILL again and again while clients write to
// it, restarts it on the same directory, and compares what is there with what
// the clients were told. WAYBILL_KILLS sets the number of kills; then their
// moments are drawn, and WAYBILL_SEED repeats them as far as a clock can.
func TestKill(t *testing.T) {
	kills, seed := 5, uint64(1)
	if n, set := number(t, "WAYBILL_KILLS"); set {
		kills, seed = n, uint64(rand.Int32())
	}
	if n, set := number(t, "WAYBILL_SEED"); set {
		seed = uint64(n)
	}
	t.Logf("WAYBILL_SEED=%d", seed)
	var rows reliability.Figures
	for _, fsync := range []bool{false, true} {
		name := fmt.Sprintf("fsync=%t", fsync)
		t.Run(name, func(t *testing.T) {
			rows = append(rows, reliability.Figure{Name: name, Value: testKill(t, fsync, kills, seed)})
		})
	}
	reliability.Write(t, "kills", fmt.Sprintf("make reliability PART=kills KILLS=%d WAYBILL_SEED=%d", kills, seed), reliability.Figures{
		{Name: "kills", Value: kills * len(rows)},
		{Name: "broker", Value: rows},
	})
}

// number is what a variable of the environment says, if it is set.
func number(t *testing.T, variable string) (n int, set bool) {
	t.Helper()
	s := os.Getenv(variable)
	if s == "" {
		return 0, false
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n, true
}

func testKill(t *testing.T, fsync bool, kills int, seed uint64) reliability.Figures {
	draw := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	// The windows that matter lie within the end of a transaction, which
	// takes this long.
	window := 400 * time.Microsecond
	if fsync {
		window = 30 * time.Millisecond
	}

	var (
		told ledger
		seen map[string]int
	)
	for kill := range kills {
		child := startChild(t, dir, fsync)
		if kill == 0 {
			createTopics(t, child.addr, crashPartitions, "journal", "requests", "plain")
		} else {
			before := seen
			seen = readCommitted(t, child.addr)
			told.check(t, kill, before, seen)
		}
		told.writeUntilKilled(t, child, kill, draw.IntN(20), time.Duration(draw.Int64N(int64(window))))
	}
	child := startChild(t, dir, fsync)
	told.check(t, kills, seen, readCommitted(t, child.addr))
	child.stop(t)

	t.Logf("%d kills: %d transactions acknowledged, %d with unknown outcome, %d of those torn, %d changed later; %d plain records acknowledged",
		kills, len(told.acked), len(told.unknown), told.torn, told.changed, len(told.plain))
	if kills >= 5 && (len(told.acked) == 0 || len(told.unknown) == 0 || len(told.plain) == 0) {
		t.Errorf("%d transactions were acknowledged, %d of unknown outcome, %d plain records: nothing to compare", len(told.acked), len(told.unknown), len(told.plain))
	}
	return reliability.Figures{
		{Name: "kills", Value: kills},
		{Name: "transactions acknowledged", Value: len(told.acked)},
		{Name: "with unknown outcome", Value: len(told.unknown)},
		{Name: "of those torn", Value: told.torn},
		{Name: "changed later", Value: told.changed},
		{Name: "plain records acknowledged", Value: len(told.plain)},
	}
}

// ledger is what the clients were told about what they wrote. The keys of
// transactions are their names.
type ledger struct {
	mu      sync.Mutex
	acked   []string // committed
	aborted []string // aborted on purpose
	unknown []string // the broker died before it answered
	plain   []string // acknowledged records without a transaction

	torn, changed int // findings about those of unknown outcome
}

func (l *ledger) note(list *[]string, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	*list = append(*list, name)
}

// check compares the ledger with how many records of each transaction are
// visible after the kill of this number, counted from one, and with how many
// were after the kill before it.
func (l *ledger) check(t *testing.T, kill int, before, seen map[string]int) {
	t.Helper()
	for _, name := range l.acked {
		if seen[name] != crashRecords {
			t.Errorf("after kill %d: acknowledged transaction %s has %d of %d records", kill, name, seen[name], crashRecords)
		}
	}
	for _, name := range l.plain {
		if seen[name] != 1 {
			t.Errorf("after kill %d: acknowledged record %s is there %d times", kill, name, seen[name])
		}
	}
	for _, name := range l.aborted {
		if seen[name] != 0 {
			t.Errorf("after kill %d: aborted transaction %s has %d records", kill, name, seen[name])
		}
	}
	for _, name := range l.unknown {
		switch n, had := seen[name], before[name]; {
		case strings.HasPrefix(name, fmt.Sprintf("kill%d-", kill-1)): // all or nothing, either is right
			if n != 0 && n != crashRecords {
				l.torn++
				t.Errorf("after kill %d: unacknowledged transaction %s has %d of %d records", kill, name, n, crashRecords)
			}
		case n != had: // what one restart decided must not change with the next
			l.changed++
			t.Errorf("after kill %d: transaction %s has %d records, had %d", kill, name, n, had)
		}
	}
}

// crashRecords is the number of records in each transaction: one in every
// partition of both topics.
const crashRecords = 2 * crashPartitions

// writeUntilKilled runs clients against the child and kills it at a moment after
// a number of transactions.
func (l *ledger) writeUntilKilled(t *testing.T, child *child, kill, target int, moment time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	ending := make(chan struct{}, 1) // the chosen transaction is about to end
	var writers sync.WaitGroup
	for w := range crashWriters {
		writers.Go(func() {
			l.writeTransactions(ctx, t, child.addr, w, kill, func(n int) {
				if w == 0 && n == target {
					ending <- struct{}{}
				}
			})
		})
	}
	writers.Go(func() { l.writePlain(ctx, t, child.addr, kill) })

	select {
	case <-ending:
		time.Sleep(moment) // the moment of the kill is what varies
	case <-child.exited:
		t.Errorf("the broker ended by itself: %s", child.stderr.String())
	}
	child.kill(t)
	cancel()
	writers.Wait()
}

func (l *ledger) writeTransactions(ctx context.Context, t *testing.T, addr string, writer, kill int, ending func(n int)) {
	client := newClient(t, addr,
		kgo.TransactionalID(fmt.Sprintf("writer-%d", writer)), // the same after every restart, as a lane's is
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer client.Close()
	// A client keeps trying a record that may have been written, whatever
	// the context says; only closing it ends that.
	stop := context.AfterFunc(ctx, client.Close)
	defer stop()
	for n := 0; ; n++ {
		name := fmt.Sprintf("kill%d-writer%d-txn%d", kill, writer, n)
		commit := n%5 != 4
		if client.BeginTransaction() != nil {
			return
		}
		var records []*kgo.Record
		for _, topic := range []string{"journal", "requests"} {
			for p := range int32(crashPartitions) {
				records = append(records, &kgo.Record{Topic: topic, Partition: p, Value: []byte(name)})
			}
		}
		err := client.ProduceSync(ctx, records...).FirstErr()
		if err == nil {
			ending(n)
			err = client.EndTransaction(ctx, kgo.TransactionEndTry(commit))
		}
		switch {
		case err != nil && commit:
			l.note(&l.unknown, name)
			return
		case err != nil:
			l.note(&l.aborted, name) // nobody asked for a commit
			return
		case commit:
			l.note(&l.acked, name)
		default:
			l.note(&l.aborted, name)
		}
	}
}

func (l *ledger) writePlain(ctx context.Context, t *testing.T, addr string, kill int) {
	client := newClient(t, addr, kgo.DefaultProduceTopic("plain"))
	defer client.Close()
	stop := context.AfterFunc(ctx, client.Close)
	defer stop()
	for n := 0; ; n++ {
		name := fmt.Sprintf("kill%d-plain%d", kill, n)
		if client.ProduceSync(ctx, kgo.StringRecord(name)).FirstErr() != nil {
			return
		}
		l.note(&l.plain, name)
	}
}

// readCommitted counts the committed records of each name in all topics.
func readCommitted(t *testing.T, addr string) map[string]int {
	t.Helper()
	// The reader is done when it meets a last record in each partition.
	// Offsets would not tell: aborted records and markers take them up too.
	last := fmt.Sprintf("last-%d", rand.Uint64())
	writer := newClient(t, addr, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer writer.Close()
	var lasts []*kgo.Record
	from := make(map[string]map[int32]kgo.Offset)
	for _, topic := range []string{"journal", "requests", "plain"} {
		from[topic] = make(map[int32]kgo.Offset)
		for p := range int32(crashPartitions) {
			from[topic][p] = kgo.NewOffset().AtStart()
			lasts = append(lasts, &kgo.Record{Topic: topic, Partition: p, Value: []byte(last)})
		}
	}
	if err := writer.ProduceSync(t.Context(), lasts...).FirstErr(); err != nil {
		t.Fatal(err)
	}

	reader := newClient(t, addr, kgo.ConsumePartitions(from), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	defer reader.Close()
	seen := make(map[string]int)
	for seen[last] < len(lasts) {
		fetches := reader.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) { seen[string(r.Value)]++ })
	}
	return seen
}

// child is a broker in its own process.
type child struct {
	addr   string
	cmd    *exec.Cmd
	stdin  interface{ Close() error }
	stderr *bytes.Buffer
	exited chan struct{}
}

func startChild(t *testing.T, dir string, fsync bool) *child {
	t.Helper()
	c := &child{cmd: exec.Command(os.Args[0]), stderr: new(bytes.Buffer), exited: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), envChildDir+"="+dir)
	if fsync {
		c.cmd.Env = append(c.cmd.Env, envChildFsync+"=1")
	}
	c.cmd.Stderr = c.stderr
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.stdin = stdin
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		_ = c.cmd.Wait()
		t.Fatalf("the broker did not start: %s", c.stderr)
	}
	c.addr = strings.TrimSpace(line)
	go func() {
		_ = c.cmd.Wait()
		close(c.exited)
	}()
	return c
}

func (c *child) kill(t *testing.T) {
	t.Helper()
	_ = c.cmd.Process.Kill() // it may have ended by itself, which was reported
	<-c.exited
}

func (c *child) stop(t *testing.T) {
	t.Helper()
	if err := c.stdin.Close(); err != nil {
		t.Error(err)
	}
	<-c.exited
	if !c.cmd.ProcessState.Success() {
		t.Errorf("the broker stopped with %s: %s", c.cmd.ProcessState, c.stderr)
	}
}
