//go:build unix

package process

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/leftout"
	"github.com/waybill-dev/waybill/test/oracle"
	"github.com/waybill-dev/waybill/test/reliability"
	"github.com/waybill-dev/waybill/test/world"
)

// Orders of this workflow expire, are tried again, expire for good, and end by
// themselves: nobody answers. Each is alone with its agent: what others wait for, too, uses
// up no attempts.
const hasty = `
workflow: hasty-%d
version: 1
steps:
  - {name: hold, agent: nobody-%[1]d, do: hold, timeout: 1s, retry: {attempts: 2, backoff: 500ms}, exhausted: compensate}
`

const (
	flightPartitions = 16
	// flightPatience is for what takes minutes with a million orders.
	flightPatience = 20 * time.Minute
	// lightEvery is the time between two orders of a light load.
	lightEvery = 5 * time.Millisecond
)

// S6, V7, T1: one instance keeps a great many orders in flight. While they wait
// for their agents, others expire in time; it is stopped, killed, and loses its
// state, and goes on; agents answer at last, and every order stands as it must.
// WAYBILL_IN_FLIGHT sets how many they are. What is measured is told, and fails
// nothing.
func TestOrdersInFlight(t *testing.T) {
	leftout.UnlessLong(t, "a great many orders in flight")
	n := number(t, "WAYBILL_IN_FLIGHT", 2_000)
	f := newFlight(t)
	f.accept(n)
	f.light(n / 100)
	f.restart("stopped and started", func() { f.stop() })
	f.restart("killed and started", func() { f.kill() })
	f.restart("state removed", func() {
		f.stop()
		if err := os.RemoveAll(filepath.Join(f.dir, "state")); err != nil {
			t.Fatal(err)
		}
	})
	f.answer()
	f.verify()
	f.measure("state removed")
	f.stop()
	f.check()
	f.report(n)
}

// flight is an instance with many orders, and what was measured of it.
type flight struct {
	*serve
	cluster *cluster
	client  *kgo.Client
	ids     [flightPartitions][]string // of all that were submitted
	hasty   int                        // how many of these are, each of a workflow of its own
	known   int                        // how many of those workflows are registered
	answers []string                   // those whose agents answer

	phases []change
	found  reliability.Figures // what is one figure
	memory reliability.Figures // by process
	starts []*begun
	// lateness of expiries and retries, and times between commits, by phase.
	expiries, retries, commits map[string][]time.Duration
}

// begun is a start of the instance.
type begun struct {
	what  string
	at    time.Time
	ready time.Duration
	// decided is when the last partition decided something.
	decided time.Duration
}

func newFlight(t *testing.T) *flight {
	t.Helper()
	c := newCluster(t, kafka.Container(t))
	c.createTopicsOf(flightPartitions)
	f := &flight{
		cluster: c, serve: c.serve("one"), client: c.broker.Client(t),
		expiries: make(map[string][]time.Duration), retries: make(map[string][]time.Duration), commits: make(map[string][]time.Duration),
	}
	f.ready(f.serve.client)
	registerPatient(t, f.http)
	return f
}

// prepare registers the workflows of so many hasty orders.
func (f *flight) prepare(n int) {
	f.Helper()
	for range n {
		registerSource(f.T, f.http, fmt.Sprintf(hasty, f.known))
		f.known++
	}
}

// What becomes of an order shows in the first letter of its id.
const (
	waits    = "w" // no agent answers
	answered = "a" // its agents answer at the end
	expires  = "e" // it is a hasty one
)

// submit submits an order. Kafka has it once flush returned.
func (f *flight) submit(id string) {
	workflow := "patient"
	if id[:1] == expires {
		if f.hasty == f.known {
			f.Fatalf("more than %d hasty orders", f.known)
		}
		workflow = fmt.Sprintf("hasty-%d", f.hasty)
		f.hasty++
	}
	// What differs from order to order cannot be compressed away.
	f.produce(id, fmt.Appendf(nil, `{"workflow":%q,"input":{"customer":%q,"total":42}}`, workflow, rand.Text()))
}

func (f *flight) produce(id string, value []byte) {
	f.client.Produce(f.Context(), &kgo.Record{Topic: f.cluster.topics.Orders, Key: []byte(id), Value: value}, func(r *kgo.Record, err error) {
		if err != nil {
			f.Errorf("submit %s: %v", id, err)
			return
		}
		f.ids[r.Partition] = append(f.ids[r.Partition], id)
	})
}

// taken waits until all that was submitted is accepted, and folded.
func (f *flight) taken() {
	f.Helper()
	if err := f.client.Flush(f.Context()); err != nil {
		f.Fatal(err)
	}
	for _, ids := range f.ids {
		// Each partition takes its orders in turn.
		f.within(flightPatience, "the orders are accepted", func() error {
			_, err := f.serve.client.Order(f.Context(), ids[len(ids)-1])
			return err
		})
	}
}

// during notes what happens while do runs.
func (f *flight) during(what string, do func()) time.Duration {
	began := time.Now()
	do()
	ended := time.Now()
	f.phases = append(f.phases, change{what, began, ended})
	return ended.Sub(began)
}

// accept submits orders as fast as Kafka takes them.
func (f *flight) accept(n int) {
	f.Helper()
	answers := max(10, n/10_000) // every how manieth
	expire := max(100, n/64)
	f.prepare((n + expire - 1) / expire)
	took := f.during("orders are accepted as fast as can be", func() {
		for i := range n {
			kind := waits
			switch {
			case i%expire == 0:
				kind = expires
			case i%answers == 1:
				kind = answered
			}
			id := fmt.Sprintf("%s-%07d", kind, i)
			if kind == answered {
				f.answers = append(f.answers, id)
			}
			f.submit(id)
		}
		f.taken()
	})
	f.note("orders accepted a second", int(float64(n)/took.Seconds()))
	f.measure("while orders are accepted")
}

// light submits hasty orders to all partitions in turn while all others wait, and
// waits until these have ended.
func (f *flight) light(n int) {
	f.Helper()
	n = min(max(n, flightPartitions), 4*flightPartitions)
	f.prepare(n)
	f.during("all are in flight, and a few come and expire", func() {
		tick := time.NewTicker(lightEvery)
		defer tick.Stop()
		ids := turns{prefix: expires + "-light", from: make([]int, flightPartitions)}
		for range n {
			f.submit(ids.next())
			<-tick.C
		}
		f.taken()
	})
	f.expired()
	f.measure("started, and all accepted")
}

// expired waits until no hasty order is under way.
func (f *flight) expired() {
	f.Helper()
	f.within(flightPatience, "the hasty orders have ended", func() error {
		for agent := range f.hasty {
			for _, state := range []projections.State{projections.Pending, projections.Processing, projections.Compensating} {
				page, err := f.serve.client.Orders(f.Context(), api.Filter{State: string(state), Workflow: fmt.Sprintf("hasty-%d", agent)}, 1, "")
				if err != nil {
					return err
				}
				if len(page.Orders) > 0 {
					return fmt.Errorf("order %s is %s", page.Orders[0].OrderID, state)
				}
			}
		}
		return nil
	})
}

// restart ends the process, and starts it again. Every partition has something to
// decide when it is back.
func (f *flight) restart(what string, end func()) {
	f.Helper()
	f.prepare(flightPartitions)
	f.during(what, func() {
		end()
		ids := turns{prefix: expires + "-" + strconv.Itoa(len(f.starts)), from: make([]int, flightPartitions)}
		for range flightPartitions {
			f.submit(ids.next())
		}
		if err := f.client.Flush(f.Context()); err != nil {
			f.Fatal(err)
		}
		f.again()
		s := &begun{what: what, at: f.began}
		f.starts = append(f.starts, s)
		f.within(flightPatience, "it is ready", func() error { return f.serve.client.Ready(f.Context()) })
		s.ready = time.Since(f.began)
		f.taken()
	})
	f.expired()
	if what != "state removed" {
		f.measure(what)
	}
}

// answer has the agents answer for some orders, and waits until these are
// Processed.
func (f *flight) answer() {
	f.Helper()
	outside := world.NewOutsider(f, f.cluster.broker.Brokers, f.cluster.topics.Namespace)
	for _, agent := range []string{"inventory", "payment", "shipping"} {
		outside.Answering(agent, func(q world.Request) string {
			if q.Order[:1] != answered {
				return world.Silence
			}
			return world.Gave(`{"done":true}`)
		})
	}
	for _, id := range f.answers {
		f.within(flightPatience, "the order of which agents answer is Processed", func() error {
			o, err := f.serve.client.Order(f.Context(), id)
			if err == nil && o.ProcessState != projections.Processed {
				err = fmt.Errorf("order %s is %s", id, o.ProcessState)
			}
			return err
		})
	}
}

// verify rebuilds everything once more, and compares it.
func (f *flight) verify() {
	f.Helper()
	began := time.Now()
	out := waybillWithin(f.T, flightPatience, append([]string{"replay", "--verify", "--server", f.http}, f.cluster.flags...)...)
	f.Logf("replay --verify:\n%s", out)
	f.note("replay --verify", time.Since(began).Round(100*time.Millisecond).String())
}

// check holds all topics against what was submitted, partition by partition: a
// million orders are too much to look at at once.
func (f *flight) check() {
	f.Helper()
	b := f.cluster.books
	agents := []string{"inventory", "payment", "shipping"}
	for agent := range f.hasty {
		agents = append(agents, fmt.Sprintf("nobody-%d", agent))
	}
	for p := range int32(flightPartitions) {
		records := b.read(b.topics.Journal, p)
		journal := slices.Collect(oracle.Journal(f, slices.Values(records)))
		f.times(records, journal)
		b.compare("the journal", b.told(slices.Values(journal)), f.ids[p], kinds(map[string]tally{
			waits: {"waybill.order.accepted": 1, "waybill.step.started reserve 1": 1},
			answered: {
				"waybill.order.accepted": 1, "waybill.order.completed": 1,
				"waybill.step.started reserve 1": 1, "waybill.step.completed reserve 1": 1,
				"waybill.step.started charge 1": 1, "waybill.step.completed charge 1": 1,
				"waybill.step.started ship 1": 1, "waybill.step.completed ship 1": 1,
			},
			expires: {
				"waybill.order.accepted": 1, "waybill.step.started hold 1": 1, "waybill.step.expired hold 1": 1,
				"waybill.step.retried hold 2": 1, "waybill.step.started hold 2": 1, "waybill.step.expired hold 2": 1,
				"waybill.order.compensating hold 0": 1, "waybill.order.compensated": 1,
			},
		}))
		b.compare("the requests", b.requests(agents, p), f.ids[p], kinds(map[string]tally{
			waits: {"reserve 1": 1}, answered: {"reserve 1": 1, "charge 1": 1, "ship 1": 1}, expires: {"hold 1": 1, "hold 2": 1},
		}))
		b.compare("the status messages", b.status(p), f.ids[p], kinds(map[string]tally{
			waits:    {events.StatusReceived: 1},
			answered: {events.StatusReceived: 1, events.StatusCompleted: 1},
			expires:  {events.StatusReceived: 1, events.StatusCompensating: 1, events.StatusCompensated: 1},
		}))
	}
	b.noDeadLetters()
}

// kinds wants of each order what its kind must have.
func kinds(want map[string]tally) func(string) tally {
	return func(id string) tally { return want[id[:1]] }
}

// times looks in a partition's journal how late it was, and when it paused.
func (f *flight) times(records []*kgo.Record, journal []*events.Event) {
	late := func(by map[string][]time.Duration, due, at time.Time) {
		for i := range f.phases[:2] {
			if c := &f.phases[i]; due.After(c.began) && due.Before(f.phases[i+1].began) {
				by[c.what] = append(by[c.what], at.Sub(due))
			}
		}
	}
	due := make(map[string]time.Time)
	decisions := make([]time.Time, 0, len(records))
	for i, e := range journal {
		switch {
		case e.Type == events.PartitionClaimed:
			continue
		case e.Type == events.StepRetried:
			due[e.Order] = e.Due
		case e.Type == events.StepExpired:
			late(f.expiries, due[e.Order], e.At)
		case e.Type == events.StepStarted && strings.HasPrefix(e.Agent, "nobody-"):
			if e.Attempt > 1 {
				late(f.retries, due[e.Order], e.At)
			}
			due[e.Order] = e.CompleteBy
		}
		// When it was decided comes before the commit of what was decided before.
		decisions = append(decisions, records[i].Timestamp)
	}
	for _, c := range f.phases[:2] {
		f.commits[c.what] = append(f.commits[c.what], longestGap(decisions, c))
	}
	for _, s := range f.starts {
		s.decided = max(s.decided, after(decisions, s.at))
	}
}

func (f *flight) note(name string, value any) {
	f.Helper()
	f.Logf("%s: %v", name, value)
	f.found = append(f.found, reliability.Figure{Name: name, Value: value})
}

// measure notes what the process takes now, and took at most.
func (f *flight) measure(what string) {
	f.Helper()
	row := reliability.Figures{
		{Name: "at most", Value: f.resident("VmHWM")},
		{Name: "now", Value: f.resident("VmRSS")},
		{Name: "state store", Value: mebibytes(sizeOf(f.T, filepath.Join(f.dir, "state")))},
	}
	f.Logf("%s: %v", what, row)
	f.memory = append(f.memory, reliability.Figure{Name: what, Value: row})
}

// resident is what Linux says of a process's memory, in MiB.
func (f *flight) resident(name string) string {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", f.cmd.Process.Pid))
	m := regexp.MustCompile(name + `:\s*(\d+) kB`).FindSubmatch(status)
	if err != nil || m == nil {
		return "unknown"
	}
	kib, err := strconv.ParseInt(string(m[1]), 10, 64)
	if err != nil {
		f.Fatal(err)
	}
	return mebibytes(kib << 10)
}

func mebibytes(n int64) string { return fmt.Sprintf("%d MiB", n>>20) }

// sizeOf adds up the files of a directory.
func sizeOf(t *testing.T, dir string) (n int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			var info fs.FileInfo
			if info, err = d.Info(); err == nil {
				n += info.Size()
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // compacted away meanwhile
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// report prints the figures, and leaves them for docs/reliability.md.
func (f *flight) report(n int) {
	f.Helper()
	dirs, err := f.cluster.broker.Admin(f).DescribeAllLogDirs(f.Context(), nil)
	if err != nil {
		f.Fatal(err)
	}
	var all, journal int64
	for _, d := range dirs {
		d.EachPartition(func(p kadm.DescribedLogDirPartition) {
			if strings.HasPrefix(p.Topic, f.cluster.topics.Namespace+".") {
				all += p.Size
			}
			if p.Topic == f.cluster.topics.Journal {
				journal += p.Size
			}
		})
	}
	f.note("journal", mebibytes(journal))
	f.note("all topics", mebibytes(all))

	starts := make(reliability.Figures, 0, len(f.starts))
	for _, s := range f.starts {
		row := reliability.Figures{
			{Name: "ready after", Value: s.ready.Round(100 * time.Millisecond).String()},
			{Name: "first decision on every partition after", Value: s.decided.Round(100 * time.Millisecond).String()},
		}
		f.Logf("%s: %v", s.what, row)
		starts = append(starts, reliability.Figure{Name: s.what, Value: row})
	}
	var times reliability.Figures
	for _, c := range f.phases[:2] {
		for _, kind := range []struct {
			what string
			all  map[string][]time.Duration
		}{{"lateness of expiries", f.expiries}, {"lateness of retries", f.retries}, {"longest time between two commits of a partition", f.commits}} {
			row := reliability.Times(kind.all[c.what])
			f.Logf("%s, %s: %v", c.what, kind.what, row)
			times = append(times, reliability.Figure{Name: c.what + ": " + kind.what, Value: row})
		}
	}
	reliability.Write(f, "flight", fmt.Sprintf("make reliability PART=flight IN_FLIGHT=%d", n), append(reliability.Figures{
		{Name: "orders", Value: n},
		{Name: "partitions", Value: flightPartitions},
		{Name: "orders whose agents answered at last", Value: len(f.answers)},
	}, append(f.found,
		reliability.Figure{Name: "process", Value: f.memory},
		reliability.Figure{Name: "start", Value: starts},
		reliability.Figure{Name: "times", Value: times},
	)...))
}
