package bench

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestMannWhitney(t *testing.T) {
	for _, c := range []struct {
		a, b []float64
		p    float64
	}{
		{[]float64{1, 2, 3, 4}, []float64{5, 6, 7, 8}, 2.0 / 70},
		{[]float64{5, 6, 7, 8}, []float64{1, 2, 3, 4}, 2.0 / 70},
		{[]float64{1, 2, 3}, []float64{4, 5, 6}, 2.0 / 20},
		{[]float64{1, 2, 3, 5}, []float64{4, 6, 7, 8}, 4.0 / 70},
		{[]float64{1, 3, 5, 7}, []float64{2, 4, 6, 8}, 48.0 / 70},
		{[]float64{1}, []float64{2}, 1},
		{[]float64{3, 3, 3, 3, 3}, []float64{3, 3, 3, 3, 3}, 1},
		// Of the 20 ways to choose, those with all three 2s on one side: {1,1,1} or {2,2,2}.
		{[]float64{1, 1, 1}, []float64{2, 2, 2}, 2.0 / 20},
		// Ranks 1, 2.5, 2.5, 4: sums of two are 3.5 (twice), 5 (twice), 6.5 (twice).
		{[]float64{1, 2}, []float64{2, 3}, 4.0 / 6},
	} {
		if p := mannWhitney(c.a, c.b); math.Abs(p-c.p) > 1e-9 {
			t.Errorf("%v and %v: %g instead of %g", c.a, c.b, p, c.p)
		}
	}
}

func ladderOf(p50 float64, rates ...float64) Report {
	r := Report{Broker: "embedded", Partitions: 4, Instances: 1, Shape: Shape{Steps: 3}}
	for _, rate := range rates {
		r.Rungs = append(r.Rungs, Rung{Rate: rate, P50: p50 + rate})
	}
	return r
}

func TestCompare(t *testing.T) {
	var before, after, few []Report
	for n := range 5 {
		before = append(before, ladderOf(float64(n), 100, 200))
		after = append(after, ladderOf(float64(n+5), 200, 400))
	}
	few = after[:3]
	of := func(old, now []Report, figure string) Change {
		all, err := Compare(old, now)
		if err != nil || len(all) != 3 || all[0].Setting != "embedded, 4 partitions, 1 instances, 3 steps, 200 orders/s" {
			t.Fatalf("%+v, %v", all, err)
		}
		for _, c := range all[0].Changes {
			if c.Figure == figure {
				return c
			}
		}
		t.Fatalf("nothing is said of %s: %+v", figure, all)
		return Change{}
	}
	want := Change{
		Figure: "p50 ms", Old: 202, OldSpread: [2]float64{200, 204}, OldRuns: 5, New: 207, NewSpread: [2]float64{205, 209}, NewRuns: 5,
		P: 2.0 / 252, Differs: true,
	}
	if c := of(before, after, "p50 ms"); c != want {
		t.Errorf("%+v instead of %+v", c, want)
	}
	if c := of(before[:3], few, "p50 ms"); c.Differs || !c.TooFew || c.P != 0.1 {
		t.Errorf("three runs prove nothing: %+v", c)
	}
	if c := of(before, after, "p90 ms"); c.Differs || c.P != 1 {
		t.Errorf("what is the same did not change: %+v", c)
	}
	if c := of(before[:4], after, "p50 ms"); c.Old != 201.5 {
		t.Errorf("the median of four is between the middle ones: %+v", c)
	}

	all, err := Compare(before, after)
	if err != nil || all[1].Only != "new" || !strings.HasSuffix(all[1].Setting, " 400 orders/s") || all[2].Only != "old" || !strings.HasSuffix(all[2].Setting, " 100 orders/s") {
		t.Errorf("what only one side has: %+v, %v", all, err)
	}

	other := ladderOf(1, 200)
	other.Shape.Payload = 2048
	if _, err := Compare(before, []Report{other}); err == nil || !strings.Contains(err.Error(), "3 steps, 2048 bytes of input, 200 orders/s") {
		t.Errorf("orders of other shapes were compared: %v", err)
	}
	closed := Report{Broker: "embedded", InFlight: 1024, OrdersPerSecond: 10}
	if all, err := Compare([]Report{closed}, []Report{closed, other}); err != nil || len(all) != 2 || all[0].Changes[0].Figure != "orders/s" || all[0].Changes[0].New != 10 {
		t.Errorf("%+v, %v", all, err)
	}
}

// What does not come of orders is compared of runs at rates, too, once and apart from the rates; of runs
// that did not measure it nothing is said.
func TestCompareAtRest(t *testing.T) {
	rested := ladderOf(1, 100, 200)
	rested.Owned, rested.Connections = 1.5, 77
	rested.Idle = &Idle{CPU: 0.25, Requests: 40, Memory: 90, Kafka: &Usage{CPU: 0.5, Memory: 300}}
	all, err := Compare([]Report{rested}, []Report{rested})
	if err != nil || len(all) != 3 || all[2].Setting != "embedded, 4 partitions, 1 instances, 3 steps, at rest" {
		t.Fatalf("%+v, %v", all, err)
	}
	got := make(map[string]float64)
	for _, c := range all[2].Changes {
		got[c.Figure] = c.New
	}
	want := map[string]float64{
		"all owned s": 1.5, "connections": 77, "idle: cores": 0.25, "idle: requests/s": 40, "idle: MiB": 90,
		"idle: Kafka's cores": 0.5, "idle: Kafka's MiB": 300,
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v instead of %v", got, want)
	}
	for _, rate := range all[:2] {
		if slices.ContainsFunc(rate.Changes, func(c Change) bool { return want[c.Figure] != 0 }) {
			t.Errorf("it is said of a rate: %+v", rate)
		}
	}
	if all, err := Compare([]Report{ladderOf(1, 100)}, []Report{ladderOf(2, 100)}); err != nil || len(all) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
}

// Runs of which the conditions differ are compared, and that is said.
func TestCompareUnlike(t *testing.T) {
	under := func(durations ...string) (all []Report) {
		for _, d := range durations {
			r := ladderOf(1, 100)
			if d != "" {
				r.Conditions = Conditions{System: "linux/amd64", Processors: 2, Duration: d}
			}
			all = append(all, r)
		}
		return all
	}
	for _, c := range []struct {
		old, now []Report
		want     string
	}{
		{under("8s", "8s"), under("8s"), ""},
		{under("8s"), under("1s"), "duration 8s, now 1s"},
		{under("8s"), under("8s", "1s"), "duration 8s, now 1s and 8s"},
		{under("8s", "1s"), under("1s", "8s"), "duration 1s and 8s, now 1s and 8s"},
		{under(""), under(""), ""},
		{under(""), under("1s"), "some runs have not noted theirs"},
		{under("1s", ""), under("1s"), "some runs have not noted theirs"},
	} {
		all, err := Compare(c.old, c.now)
		if err != nil || strings.Join(all[0].Unlike, "; ") != c.want {
			t.Errorf("%+v, %v; not %q", all, err, c.want)
		}
	}
	traced := under("8s")
	traced[0].Conditions.Traced = true
	if all, err := Compare(under("8s"), traced); err != nil || !slices.Equal(all[0].Unlike, []string{"traced false, now true"}) {
		t.Errorf("%+v, %v", all, err)
	}
	owned := under("8s")
	owned[0].Standby = "owned"
	if _, err := Compare(under("8s"), owned); err == nil {
		t.Error("instances that follow all and those that do not were compared")
	}
}

// Of too few runs nothing can be said, whatever they measured.
func TestFewRuns(t *testing.T) {
	for _, c := range []struct {
		old, now int
		few      bool
	}{{1, 1, true}, {3, 3, true}, {3, 4, true}, {3, 5, false}, {4, 4, false}, {2, 7, true}, {2, 8, false}} {
		var old, now []float64
		for n := range c.old {
			old = append(old, float64(n))
		}
		for n := range c.now {
			now = append(now, float64(100+n))
		}
		if is := change("p50 ms", old, now); is.TooFew != c.few || is.Differs == c.few {
			t.Errorf("%d and %d: %+v", c.old, c.now, is)
		}
	}
}

func TestReadReports(t *testing.T) {
	one := `{"broker":"embedded","shape":{"steps":3},"rungs":[{"rate_per_s":100,"kafka":{"cpu_cores":0.5}}]}`
	all, err := ReadReports(strings.NewReader(one + "\n" + one))
	if err != nil || len(all) != 2 || all[1].Rungs[0].Rate != 100 || all[1].Rungs[0].Kafka.CPU != 0.5 {
		t.Errorf("%+v, %v", all, err)
	}
	for text, wrong := range map[string]string{
		"":         "there is no run in it",
		"{}":       "no broker is named",
		one + "[1": "not what waybill bench -o json writes",
	} {
		if _, err := ReadReports(strings.NewReader(text)); err == nil || !strings.Contains(fmt.Sprint(err), wrong) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
