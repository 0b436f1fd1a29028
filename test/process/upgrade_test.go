//go:build unix

package process

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/child"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/leftout"
)

// previous is the commit of the release before this one, previousLevel what it knows
// of the language of workflows, and previousFormat the newest format of the journal that it writes.
const (
	previous       = "099af1cfec172c414b93c7c5bd07fd7f90c54e1c"
	previousLevel  = 7
	previousFormat = 11
)

// buildsPrevious has one test build it, for those beside, too.
var buildsPrevious sync.Mutex

// The data of the release before are those of this one: what was in flight goes
// on, and what waits for an operator can be repaired, whether the old release
// was stopped or killed.
func TestUpgrade(t *testing.T) {
	leftout.UnlessLong(t, "an upgrade from the release before")
	t.Parallel()
	old := buildPrevious(t)
	t.Run("stopped", func(t *testing.T) { upgrade(t, old, (*process).stop) })
	t.Run("killed", func(t *testing.T) { upgrade(t, old, (*process).kill) })
}

const byHand = `
workflow: by-hand
steps:
  - {name: call, agent: nobody, timeout: 1h}
  - {name: ship, agent: shipping, timeout: 1h}
`

func upgrade(t *testing.T, old string, end func(*process)) {
	d := newDev(t)
	d.process = startOf(t, old, "the previous dev", d.args...)
	d.says("Waybill is ready.")
	d.ready(d.client)

	registerPatient(t, d.http)
	registerSource(t, d.http, byHand)
	plain, err := kgo.NewClient(kgo.SeedBrokers(d.kafka))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(plain.Close)
	put := func(topic, key, value string) {
		t.Helper()
		if err := plain.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Key: []byte(key), Value: []byte(value)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	open, declined := []string{"open-1", "open-2", "open-3"}, []string{"declined-1", "declined-2", "declined-3"}
	for i := range open {
		put(d.books.topics.Orders, open[i], `{"workflow":"by-hand","input":{"customer":"c-7"}}`)
		put(d.books.topics.Orders, declined[i], `{"workflow":"patient","input":{"customer":"c-7","total":42,"card":"declined"}}`)
	}
	for i := range open {
		d.state(d.client, open[i], projections.Processing)
		d.state(d.client, declined[i], projections.Error)
	}
	load := submitting(t, d.books.topics, d.kafka)
	load.more(d.process, 100)
	end(d.process) // while orders are in flight

	d.process = start(t, "dev", d.args...)
	d.ready(d.client)
	load.more(d.process, 50)
	ids := load.stop(d.process)
	d.processed(d.client, ids)
	for i := range open {
		d.state(d.client, open[i], projections.Processing)
		put(d.books.topics.Replies, open[i], `{"order":"`+open[i]+`","step":"call","attempt":1,"status":"completed"}`)
		waybill(t, "order", "resubmit", declined[i], "--server", d.http, "--input", `{"customer":"c-7","total":42}`, "--note", "another card")
	}
	d.processed(d.client, append(open, declined...))
	t.Logf("replay --verify:\n%s", waybill(t, "replay", "--verify", "--brokers", d.kafka, "--server", d.http))
	d.books.overTheUpgrade(ids)
	d.stop()
}

// overTheUpgrade wants that nothing of an order that was under way was lost or
// done twice. The rules of the oracle are those of this release, so events and
// messages are only counted.
func (b *books) overTheUpgrade(ids []string) {
	b.Helper()
	journal, requests, statuses := make(map[string]tally), make(map[string]tally), make(map[string]tally)
	for _, r := range b.read(b.topics.Journal) {
		e, err := events.Decode[events.Event](r.Value)
		if err != nil {
			b.Fatal(err)
		}
		if e.Type == events.StepStarted || e.Type == events.StepCompleted || e.Type == events.OrderAccepted || e.Type == events.OrderCompleted {
			count(journal, e.Order, strings.TrimSpace(string(e.Type)+" "+e.Step))
		}
	}
	for _, agent := range []string{"inventory", "payment", "shipping"} {
		for _, r := range b.read(b.topics.Requests(agent)) {
			count(requests, string(r.Key), agent)
		}
	}
	for _, r := range b.read(b.topics.Status) {
		s, err := events.Decode[events.Status](r.Value)
		if err != nil {
			b.Fatal(err)
		}
		count(statuses, s.Order, s.Status)
	}
	for what, c := range map[string]struct {
		have map[string]tally
		want tally
	}{
		"the journal": {journal, tally{
			"waybill.order.accepted": 1, "waybill.order.completed": 1,
			"waybill.step.started reserve": 1, "waybill.step.started charge": 1, "waybill.step.started ship": 1,
			"waybill.step.completed reserve": 1, "waybill.step.completed charge": 1, "waybill.step.completed ship": 1,
		}},
		"the requests":        {requests, tally{"inventory": 1, "payment": 1, "shipping": 1}},
		"the status messages": {statuses, tally{events.StatusReceived: 1, events.StatusCompleted: 1}},
	} {
		// An order that was repaired has more to tell.
		for id := range c.have {
			if !slices.Contains(ids, id) {
				delete(c.have, id)
			}
		}
		b.compare(what, c.have, ids, always(c.want))
	}
	b.noDeadLetters()
}

// newDev makes a dev that is not started yet.
func newDev(t *testing.T) *dev {
	t.Helper()
	topics, err := events.NewTopics(events.DefaultNamespace)
	if err != nil {
		t.Fatal(err)
	}
	d := &dev{kafka: child.FreeAddress(t), http: child.FreeAddress(t), dir: t.TempDir()}
	d.args = []string{"dev", "--data-dir", d.dir, "--kafka-addr", d.kafka, "--http-addr", d.http, "--log-level", "info"}
	d.client = clientOf(t, d.http)
	d.books = &books{t, &topics, []string{d.kafka}}
	return d
}

// buildPrevious builds the release before from the history of the repository, and
// keeps the program for the runs to come. Where that history is not there, as in a
// shallow clone, the test is left out.
func buildPrevious(t *testing.T) string {
	t.Helper()
	buildsPrevious.Lock()
	defer buildsPrevious.Unlock()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(cache, "waybill", "releases")
	program := filepath.Join(kept, fmt.Sprintf("waybill-%s-%s-%s", previous, runtime.Version(), runtime.GOARCH))
	if _, err := os.Stat(program); err == nil {
		return program
	}
	if said, err := exec.CommandContext(t.Context(), "git", "cat-file", "-e", previous+"^{commit}").CombinedOutput(); err != nil {
		kafka.LeaveOut(t, "an upgrade, because commit %s, the previous release, is not in the history here: %v %s; in a shallow clone, git fetch --unshallow gets it", previous, err, bytes.TrimSpace(said))
	}
	source := t.TempDir()
	root, err := exec.CommandContext(t.Context(), "git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(t.TempDir(), "source.tar")
	run := func(dir string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOWORK=off")
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", args, err, said)
		}
	}
	run(string(bytes.TrimSpace(root)), "git", "archive", "--output", archive, previous)
	run(source, "tar", "-xf", archive)
	if err := os.MkdirAll(kept, 0o750); err != nil {
		t.Fatal(err)
	}
	// Built beside its place and renamed: nobody finds half a program.
	half := fmt.Sprintf("%s.%d", program, os.Getpid())
	run(source, "go", "build", "-o", half, "./cmd/waybill")
	if err := os.Rename(half, program); err != nil {
		t.Fatal(err)
	}
	return program
}
