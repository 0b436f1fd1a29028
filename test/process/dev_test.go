//go:build unix

package process

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/test/child"
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
	topics, err := events.NewTopics(events.DefaultNamespace)
	if err != nil {
		t.Fatal(err)
	}
	d := &dev{kafka: child.FreeAddress(t), http: child.FreeAddress(t), dir: t.TempDir()}
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
	kills := number(t, "WAYBILL_KILLS", 3)
	for _, fsync := range []bool{false, true} {
		t.Run(fmt.Sprintf("fsync=%t", fsync), func(t *testing.T) { killDev(t, kills, fsync) })
	}
}

func killDev(t *testing.T, kills int, fsync bool) {
	d := startDev(t, fmt.Sprintf("--fsync=%t", fsync))
	registerPatient(t, d.http)
	load := submitting(t, d.books.topics, d.kafka)
	for range kills {
		// The broker takes orders before the instance works on them, so the
		// smaller of these numbers kill it while it recovers.
		load.more(d.process, rand.Int64N(300))
		d.kill()
		d.again()
	}
	d.ready(d.client)
	load.more(d.process, 50)
	ids := load.stop(d.process)
	acked := time.Now()
	d.processed(d.client, ids)
	t.Logf("%d kills, %d orders, %d attempts to submit failed; all Processed %s after the last was acknowledged",
		kills, len(ids), load.failures.Load(), time.Since(acked).Round(time.Millisecond))
	d.books.check(ids)
	out := waybill(t, "replay", "--verify", "--brokers", d.kafka, "--server", d.http)
	t.Logf("replay --verify:\n%s", out)
	d.stop()
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
