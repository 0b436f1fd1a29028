//go:build unix

package process

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/test/child"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/reliability"
)

// dev is a `waybill dev` that comes back at the same addresses, with the same
// data.
type dev struct {
	*process
	args        []string
	client      *api.Client
	kafka, http string
	dir         string
	books       *books
}

func startDev(t *testing.T, flags ...string) *dev {
	t.Helper()
	return startDevIn(t, t.TempDir(), flags...)
}

// startDevIn starts one with its data in a directory.
func startDevIn(t *testing.T, dir string, flags ...string) *dev {
	t.Helper()
	topics, err := events.NewTopics(events.DefaultNamespace)
	if err != nil {
		t.Fatal(err)
	}
	d := &dev{kafka: child.FreeAddress(t), http: child.FreeAddress(t), dir: dir}
	d.args = append([]string{"dev", "--data-dir", d.dir, "--kafka-addr", d.kafka, "--http-addr", d.http, "--log-level", "info"}, flags...)
	d.client = clientOf(t, d.http)
	d.books = &books{t, &topics, []string{d.kafka}}
	d.process = start(t, "dev", d.args...)
	d.says("Waybill is ready.")
	d.ready(d.client)
	return d
}

// again starts it once more. It does not wait until it is ready.
func (d *dev) again() { d.process = start(d.T, d.name, d.args...) }

// S6, T1: whatever is killed, and whenever, no order is lost or done twice.
// WAYBILL_KILLS sets how often.
func TestKillDevUnderLoad(t *testing.T) {
	t.Parallel()
	kills, seed := number(t, "WAYBILL_KILLS", 3), drawnSeed(t)
	var rows reliability.Figures
	for _, fsync := range []bool{false, true} {
		name := fmt.Sprintf("fsync=%t", fsync)
		t.Run(name, func(t *testing.T) {
			rows = append(rows, reliability.Figure{Name: name, Value: killDev(t, kills, seed, fsync)})
		})
	}
	reliability.Write(t, "dev", fmt.Sprintf("make reliability PART=dev DEV_KILLS=%d WAYBILL_SEED=%d", kills, seed), reliability.Figures{
		{Name: "kills", Value: kills * len(rows)},
		{Name: "broker", Value: rows},
	})
}

func killDev(t *testing.T, kills int, seed uint64, fsync bool) reliability.Figures {
	d := startDev(t, fmt.Sprintf("--fsync=%t", fsync))
	registerPatient(t, d.http)
	load, by := submitting(t, d.books.topics, d.kafka), rand.New(rand.NewPCG(seed, 0))
	for range kills {
		// The broker takes orders before the instance works on them, so the
		// smaller of these numbers kill it while it recovers.
		load.more(d.process, by.Int64N(300))
		d.kill()
		d.again()
	}
	return append(reliability.Figures{{Name: "kills", Value: kills}}, d.settle(load)...)
}

// settle wants that all that was submitted is done, and once.
func (d *dev) settle(load *load) reliability.Figures {
	d.Helper()
	d.ready(d.client)
	load.more(d.process, 50)
	ids := load.stop(d.process)
	acked := time.Now()
	d.processed(d.client, ids)
	d.Logf("%d orders, %d attempts to submit failed; all Processed %s after the last was acknowledged",
		len(ids), load.Again(), time.Since(acked).Round(time.Millisecond))
	d.books.check(ids)
	out := waybill(d.T, "replay", "--verify", "--brokers", d.kafka, "--server", d.http)
	d.Logf("replay --verify:\n%s", out)
	d.stop()
	return reliability.Figures{
		{Name: "orders", Value: len(ids)},
		{Name: "attempts to submit that failed", Value: load.Again()},
	}
}

// S6: a disk that is full for a while costs nothing but that while.
// WAYBILL_FILLS sets how often it is.
func TestFullDisk(t *testing.T) {
	dir, fills, seed := t.TempDir(), number(t, "WAYBILL_FILLS", 2), drawnSeed(t)
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=512m", "waybill-test", dir).CombinedOutput(); err != nil {
		kafka.LeaveOut(t, "full disks, because no file system could be mounted: %s", out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount %s: %v: %s", dir, err, out)
		}
	})
	d := startDevIn(t, dir)
	registerPatient(t, d.http)
	load, by := submitting(t, d.books.topics, d.kafka), rand.New(rand.NewPCG(seed, 0))
	const refusal = "broker refuses new records"
	for n := range fills {
		load.more(d.process, by.Int64N(100))
		// The broker keeps 256 MiB for what is on its way.
		balloon := filepath.Join(dir, "balloon")
		if err := os.WriteFile(balloon, make([]byte, 300<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		d.until("the broker refuses records", func() error {
			if said := strings.Count(d.log.String(), refusal); said <= n {
				return fmt.Errorf("it did so %d times", said)
			}
			return nil
		})
		time.Sleep(time.Duration(by.Int64N(int64(5 * time.Second)))) // past the time-outs of some
		if err := os.Remove(balloon); err != nil {
			t.Fatal(err)
		}
	}
	figures := append(reliability.Figures{{Name: "times the disk was full", Value: fills}}, d.settle(load)...)
	reliability.Write(t, "disk", fmt.Sprintf("make reliability PART=disk FILLS=%d WAYBILL_SEED=%d", fills, seed), figures)
}

// T1: a state store that is damaged on disk is thrown away and built again from
// the journal, without anyone's help.
func TestDamagedStateStore(t *testing.T) {
	d := startDev(t)
	registerPatient(t, d.http)
	load := submitting(t, d.books.topics, d.kafka)
	load.more(d.process, 300)
	ids := load.stop(d.process)
	d.processed(d.client, ids)
	for range 2 { // what the first start had in its log the second has in tables
		d.stop()
		d.again()
		d.ready(d.client)
	}
	d.stop()
	tables, err := filepath.Glob(filepath.Join(d.dir, "state", "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatalf("no tables to damage: %v", err)
	}
	for _, table := range tables {
		content, err := os.ReadFile(table)
		if err != nil {
			t.Fatal(err)
		}
		for i := range len(content) / 2 { // the end, with the index, stays readable
			content[i] ^= 0xa5
		}
		if err := os.WriteFile(table, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d.again()
	d.says("rebuilt from the journal")
	d.ready(d.client)
	d.processed(d.client, ids)
	d.books.check(ids)
	waybill(t, "replay", "--verify", "--brokers", d.kafka, "--server", d.http)
	d.stop()
}
