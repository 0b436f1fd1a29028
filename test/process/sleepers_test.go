//go:build unix

package process

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/leftout"
	"github.com/waybill-dev/waybill/test/oracle"
	"github.com/waybill-dev/waybill/test/reliability"
)

// T1, S6: a great many orders sleep, and what the supervisor does follows from what is due, not from what sleeps:
// orders wake in time among them. WAYBILL_SLEEPERS sets how many they are. What is measured is told, and fails nothing.
func TestOrdersThatSleep(t *testing.T) {
	n := number(t, "WAYBILL_SLEEPERS", 0)
	if n == 0 {
		t.Skip(leftout.Prefix + "how a great many orders sleep, because it takes minutes; say how many with WAYBILL_SLEEPERS")
	}
	f := newFlight(t)
	registerSource(t, f.http, "{workflow: sleeps, steps: [{name: rest, sleep: 720h}]}")
	registerSource(t, f.http, "{workflow: naps, steps: [{name: rest, sleep: 2s}]}")
	var rows reliability.Figures
	naps := 0
	nap := func(what string) {
		from, before := naps, f.processor()
		f.phases = append(f.phases, change{what: what, began: time.Now()})
		pace := time.NewTicker(lightEvery)
		defer pace.Stop()
		for range 2_000 {
			f.put(fmt.Sprintf("n-%05d", naps), "naps")
			naps++
			<-pace.C
		}
		for i := from; i < naps; i++ {
			f.state(f.serve.client, fmt.Sprintf("n-%05d", i), projections.Processed)
		}
		last := &f.phases[len(f.phases)-1]
		last.ended = time.Now()
		rows = append(rows, reliability.Figure{Name: what, Value: reliability.Figures{
			{Name: "orders", Value: naps - from},
			{Name: "of a processor an order", Value: fmt.Sprintf("%.2f ms", float64((f.processor()-before).Milliseconds())/float64(naps-from))},
		}})
		f.measure(what)
	}
	idle := func(what string) {
		before, began := f.processor(), time.Now()
		<-time.After(10 * time.Second)
		f.note(what, fmt.Sprintf("%.1f %%", 100*(f.processor()-before).Seconds()/time.Since(began).Seconds()))
	}
	nap("nobody sleeps")
	idle("of a processor while nothing is due, nobody sleeps")
	f.during("they come", func() {
		for i := range n {
			f.put(fmt.Sprintf("s-%07d", i), "sleeps")
		}
		f.taken()
	})
	f.measure("they came")
	idle("of a processor while nothing is due, all sleep")
	nap("all sleep")
	f.restart("killed and started", func() { f.kill() })
	nap("all sleep, after a kill")
	f.stop()

	woke, late := 0, make(map[string][]time.Duration)
	due := make(map[string]time.Time)
	for p := range int32(flightPartitions) {
		for e := range oracle.Journal(f, slices.Values(f.cluster.books.read(f.cluster.topics.Journal, p))) {
			switch {
			case e.Type == events.StepSleeping && strings.HasPrefix(e.Order, "n-"):
				due[e.Order] = e.Due
			case e.Type == events.StepWoke:
				woke++
				for _, c := range f.phases {
					if c.covers(e.At) {
						late[c.what] = append(late[c.what], e.At.Sub(due[e.Order]))
					}
				}
			}
		}
	}
	if woke != naps {
		t.Errorf("%d orders woke, and %d were to", woke, naps)
	}
	var times reliability.Figures
	for _, row := range rows {
		times = append(times, reliability.Figure{Name: row.Name, Value: reliability.Times(late[row.Name])})
		t.Logf("%s: %v, late by %v", row.Name, row.Value, times[len(times)-1].Value)
	}
	reliability.Write(t, "sleepers", fmt.Sprintf("make reliability PART=sleepers SLEEPERS=%d", n), slices.Concat(reliability.Figures{
		{Name: "orders that sleep", Value: n}, {Name: "partitions", Value: flightPartitions},
	}, f.found, reliability.Figures{
		{Name: "process", Value: f.memory}, {Name: "orders that wake after 2 s", Value: rows}, {Name: "how late they wake", Value: times},
	}))
}

// put submits an order of a workflow.
func (f *flight) put(id, workflow string) {
	f.produce(id, fmt.Appendf(nil, `{"workflow":%q}`, workflow))
}

// processor is how much of it the process has used.
func (f *flight) processor() time.Duration {
	f.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", f.cmd.Process.Pid))
	if err != nil {
		f.Logf("what a process uses is known on Linux alone: %v", err)
		return 0
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(after)
	var ticks int64
	for _, field := range fields[11:13] { // of user and system time, a hundredth of a second each
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			f.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
