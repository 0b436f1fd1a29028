package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/waybill-dev/waybill/internal/bench"
)

// The page says what the runs measured, of each setting once.
func TestPage(t *testing.T) {
	run := func(rate float64) bench.Report {
		return bench.Report{Broker: "embedded", Partitions: 4, Instances: 1, Shape: bench.Shape{Steps: 3}, InFlight: 1024, OrdersPerSecond: rate, P50: 7.25}
	}
	page := render(map[string]*measured{"full": {
		"2026-01-02", "abc", "2 cores", "go1", "", []bench.Report{run(900), run(1000), run(2500)}, "10% main.main", []share{{"decisions", 12.34}}, "--in-flight 1024",
	}, "ladder-kafka": {
		"2026-01-03", "def", "4 cores", "go1", "kafka:9", []bench.Report{{
			Broker: "Kafka", Partitions: 8, Instances: 1, Shape: bench.Shape{Steps: 3}, Owned: 2,
			Rungs: []bench.Rung{{Rate: 100, Carried: true, Kafka: &bench.Usage{Memory: 512}}, {Rate: 200}},
		}}, "", nil, "",
	}})
	for _, want := range []string{
		"- A: 2 cores\n- B: 4 cores\n", "## As much as goes: embedded\n",
		"| top rate, embedded, orders/s | 25000 | 1000 | - | 2026-01-02 | abc | A | ",
		"2026-01-03, machine B, commit def. go1, kafka:9: 1 runs.", "| 512 (512 to 512) |",
		"100 orders/s |", "200 orders/s (not carried in each run) |",
		"| embedded, 4 partitions, 1 instances, 3 steps, 1024 under way | 1000 (900 to 2500) | 7.25 (7.25 to 7.25) |",
		"2026-01-02, machine A, commit abc. go1: 3 runs. `make performance PERFORMANCE='^full$'`", "(`--cpu-profile FILE --in-flight 1024`), from its start to its end:\n\nEach moment is that of the innermost", "\n\n| what works | % of that time |\n| --- | ---: |\n| decisions | 12.3 |\n\n```\n10% main.main\n```",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("there is no %q in\n%s", want, page)
		}
	}
	if strings.Contains(page, "one at a time, Kafka") {
		t.Error("a goal of a part that was not measured is there")
	}
	if strings.Contains(page, "Partitions: Apache Kafka") {
		t.Error("a part that was not measured is there")
	}
	if strings.Contains(page, "at rest") {
		t.Error("there is a row without a figure")
	}
	if head, _, _ := strings.Cut(page, "## At a rate: Apache"); strings.Contains(head, "Kafka's MiB") {
		t.Error("there is a column without a figure")
	}
}

// What was aimed at is held against the worst of the medians, and says why it is not reached.
func TestGoals(t *testing.T) {
	run := func(rate, p50, us, kafkas float64) bench.Report {
		return bench.Report{Broker: "Kafka", Partitions: 8, Instances: 1, Shape: bench.Shape{Steps: 3}, Rungs: []bench.Rung{{Rate: rate, Reached: rate, P50: p50, CPUPerOrder: us, Kafka: &bench.Usage{CPUPerOrder: kafkas}}}}
	}
	f := &measured{Runs: []bench.Report{run(500, 30, 600, 300), run(500, 40, 700, 400), run(500, 90, 800, 500), run(1000, 20, 5000, 5000)}}
	for _, c := range []struct {
		goal goal
		want float64
	}{
		{goal{figure: "p50 ms"}, 40},
		{goal{figure: "p50 ms", above: true}, 20},
		{goal{figure: "p50 ms", setting: " 1000 orders/s"}, 20},
		{goal{figure: "us/order + Kafka's us/order", setting: " 500 orders/s"}, 1100},
	} {
		if got, _, ok := c.goal.reached(f); !ok || got != c.want {
			t.Errorf("%+v: %v, %t", c.goal, got, ok)
		}
	}
	for _, g := range []goal{{figure: "rebuilt records/s"}, {figure: "p50 ms + rebuilt records/s"}, {figure: "p50 ms", setting: " 2000 orders/s"}} {
		if got, _, ok := g.reached(f); ok {
			t.Errorf("%+v: %v", g, got)
		}
	}
	if _, _, ok := (&goal{figure: "p50 ms"}).reached(nil); ok {
		t.Error("what was not measured is reached")
	}
	for value, want := range map[float64]string{24_999: "in between", 25_000: "reached"} {
		var said []string
		aims(map[string]*measured{"full": {Runs: []bench.Report{{Broker: "embedded", Partitions: 4, OrdersPerSecond: value}}}}, []string{""}, func(cells ...string) {
			if cells[0] == goals[0].what {
				said = cells
			}
		})
		if len(said) == 0 || (said[len(said)-1] == "reached") != (want == "reached") {
			t.Errorf("%v of 25000: %q", value, said)
		}
	}
}

// The page is what the program makes of the runs that are there, and each figure of a reason is
// that of one setting.
func TestThePageIsOfItsRuns(t *testing.T) {
	const dir = "../../docs/performance"
	found, err := results(dir)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(dir + ".md")
	if err != nil {
		t.Fatal(err)
	}
	if render(found) != string(page) {
		t.Error("docs/performance.md is another; write it again: make performance PERFORMANCE='^$'")
	}
	for _, g := range goals {
		for _, s := range g.why {
			for _, f := range s.figures {
				n := 0
				if found[f.part] == nil {
					continue
				}
				for _, one := range bench.Summarize(found[f.part].Runs) {
					if _, ok := one.Figures[f.name]; ok && strings.Contains(one.Setting, f.setting) {
						n++
					}
				}
				if n != 1 {
					t.Errorf("%s: %+v is that of %d settings", g.what, f, n)
				}
			}
		}
	}
}

// No part gives a flag twice: one of a list would add to it.
func TestParts(t *testing.T) {
	for _, p := range parts {
		for _, one := range append(p.each(), part{args: p.profile}) {
			for name := range strings.FieldsSeq(one.args) {
				if strings.HasPrefix(name, "--") && strings.Count(" "+one.args+" ", " "+name+" ") > 1 {
					t.Errorf("%s has %s twice: %s", p.name, name, one.args)
				}
			}
		}
	}
}

// A reason says what was measured, and nothing of what was not.
func TestReasons(t *testing.T) {
	run := func(partitions int32, rate float64) bench.Report {
		return bench.Report{Broker: "Kafka", Partitions: partitions, Instances: 1, Shape: bench.Shape{Steps: 3}, OrdersPerSecond: rate, RequestsAnOrder: 2, TransactionsAnOrder: 1}
	}
	found := map[string]*measured{"partitions-kafka": {Runs: []bench.Report{run(1, 300), run(16, 200), run(64, 100)}}}
	if said := perLaneKafka.said(found); !strings.HasSuffix(said, "takes: 1.00, and 1.00 with 16 partitions. One partition carries 300, 16 carry 200.") {
		t.Errorf("%q", said)
	}
	if said := perLaneEmbedded.said(found); said != perLaneEmbedded[0].text {
		t.Errorf("without a measurement: %q", said)
	}
	// The reason is that of the last rung. Where another is the worst it is not said.
	for _, at4000 := range []float64{300, 100} {
		rung := func(rate, p50 float64) bench.Rung { return bench.Rung{Rate: rate, P50: p50} }
		f := run(8, 0)
		f.Rungs = []bench.Rung{rung(250, 200), rung(4000, at4000)}
		var why string
		aims(map[string]*measured{"ladder-kafka": {Runs: []bench.Report{f}}}, []string{""}, func(cells ...string) {
			if cells[0] == "at rates to 4,000 orders/s, Kafka: worst p50 ms" {
				why = cells[len(cells)-1]
			}
		})
		if other := strings.HasSuffix(why, " 250 orders/s."); other != (at4000 < 200) {
			t.Errorf("%v ms at 4,000: %q", at4000, why)
		}
	}
}

// A sample is of whole kinds first, wherever they stand, and else of the innermost kind.
func TestShares(t *testing.T) {
	sample := func(ms int64, funcs ...string) *profile.Sample {
		s := &profile.Sample{Value: []int64{1, ms}}
		for _, f := range funcs {
			s.Location = append(s.Location, &profile.Location{Line: []profile.Line{{Function: &profile.Function{Name: f}}}})
		}
		return s
	}
	inlined := sample(5, "runtime.memmove")
	inlined.Location = append(inlined.Location, &profile.Location{Line: []profile.Line{
		{Function: &profile.Function{Name: module + "events.(*Envelope).Record"}}, {Function: &profile.Function{Name: module + "orchestrator/decide.One"}},
	}})
	got := sharesOf(&profile.Profile{Sample: []*profile.Sample{
		inlined,
		sample(10, "runtime.memmove", "runtime.mallocgc", module+"orchestrator/decide.One", module+"orchestrator/lane.(*Lane).serve"),
		sample(20, "runtime.memmove", "github.com/cockroachdb/pebble/v2/sstable.write", pebble+"(*DB).compact1", "runtime.goexit"),
		sample(25, module+"orchestrator/decide.One", module+"orchestrator/lane.(*Lane).serve"),
		sample(20, "runtime.goexit"),
		sample(20, module+"events.Decode", "github.com/twmb/franz-go/pkg/kmsg.read", "github.com/twmb/franz-go/pkg/kfake.(*Cluster).run"),
	}}, 1)
	want := []share{{"decisions", 25}, {"Pebble, compacting", 20}, {elsewhere, 20}, {"embedded broker", 20}, {"allocating", 10}, {"events, written and read", 5}}
	if !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}
