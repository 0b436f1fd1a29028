package bench

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Comparison is what changed in one setting: orders of a shape on a broker, at a rate or
// with so many under way.
type Comparison struct {
	Setting string `json:"setting"`
	// Only says on which side alone it was measured, old or new: then there are no Changes.
	Only string `json:"only,omitzero"`
	// Unlike are the conditions in which the runs differ, as "warm-up 3s, now 5s".
	Unlike  []string `json:"unlike,omitempty"`
	Changes []Change `json:"changes"`
}

// Change is of one figure. Old and New are the medians of the runs, the spread is from
// the lowest to the highest.
type Change struct {
	Figure    string     `json:"figure"`
	Old       float64    `json:"old"`
	OldSpread [2]float64 `json:"old_spread"`
	OldRuns   int        `json:"old_runs"`
	New       float64    `json:"new"`
	NewSpread [2]float64 `json:"new_spread"`
	NewRuns   int        `json:"new_runs"`
	// P is how likely the runs would lie at least so far apart if nothing had changed:
	// the exact test of Mann and Whitney, on both sides. Differs says that it is below
	// 0.05, for which each side needs four runs. So is one figure of twenty if nothing changed.
	P       float64 `json:"p"`
	Differs bool    `json:"differs"`
	// TooFew says that P could not have been below 0.05, whatever the runs were: take more.
	TooFew bool `json:"too_few"`
}

// tooFew says that of so many runs nothing can be said.
func tooFew(old, now int) bool {
	ways := 1.0
	for n := range now {
		ways = ways * float64(old+n+1) / float64(n+1)
	}
	return 2/ways >= 0.05
}

// ReadReports reads reports, one behind the other, as runs have written them to one
// file.
func ReadReports(r io.Reader) (all []Report, err error) {
	in := jsontext.NewDecoder(r)
	for {
		var one Report
		switch err := json.UnmarshalDecode(in, &one); {
		case errors.Is(err, io.EOF):
			if len(all) == 0 {
				return nil, errors.New("there is no run in it; write one with: waybill bench -o json")
			}
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("it is not what waybill bench -o json writes: %w", err)
		case one.Broker == "":
			return nil, errors.New("it is not what waybill bench -o json writes: no broker is named")
		}
		all = append(all, one)
	}
}

// Compare compares runs setting by setting. Behind those stand the settings that only one side has. It
// fails if that is all.
func Compare(before, after []Report) ([]Comparison, error) {
	olds, news := figures(before), figures(after)
	var all, alone []Comparison
	for _, setting := range inOrder(news) {
		if olds[setting] == nil {
			alone = append(alone, Comparison{Setting: setting, Only: "new"})
		}
	}
	for _, setting := range inOrder(olds) {
		if news[setting] == nil {
			alone = append(alone, Comparison{Setting: setting, Only: "old"})
			continue
		}
		c := Comparison{Setting: setting, Unlike: unlike(olds[setting].conditions, news[setting].conditions)}
		for _, name := range olds[setting].names {
			if old, now := olds[setting].runs[name], news[setting].runs[name]; len(now) > 0 {
				c.Changes = append(c.Changes, change(name, old, now))
			}
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("nothing was measured on both sides: of old there is %s; of new, %s",
			strings.Join(slices.Sorted(maps.Keys(olds)), "; "), strings.Join(slices.Sorted(maps.Keys(news)), "; "))
	}
	return append(all, alone...), nil
}

// unlike says in which conditions runs differ, also those of one side among themselves, or that there are runs
// that have noted none.
func unlike(before, after []Conditions) (all []string) {
	if all := slices.Concat(before, after); slices.Contains(all, Conditions{}) && slices.ContainsFunc(all, func(c Conditions) bool { return c != Conditions{} }) {
		return []string{"some runs have not noted theirs"}
	}
	type condition struct {
		name string
		of   func(*Conditions) any
	}
	for _, c := range []condition{
		{"system", func(c *Conditions) any { return c.System }},
		{"processors", func(c *Conditions) any { return c.Processors }},
		{"Go", func(c *Conditions) any { return c.Go }},
		{"warm-up", func(c *Conditions) any { return c.WarmUp }},
		{"duration", func(c *Conditions) any { return c.Duration }},
		{"one at a time", func(c *Conditions) any { return c.Single }},
		{"rates", func(c *Conditions) any { return cmp.Or(c.Rates, "none") }},
		{"max-lag", func(c *Conditions) any { return cmp.Or(c.MaxLag, "none") }},
		{"overload", func(c *Conditions) any { return cmp.Or(c.Overload, "none") }},
		{"traced", func(c *Conditions) any { return c.Traced }},
	} {
		values := func(runs []Conditions) (all []string) {
			for n := range runs {
				if value := fmt.Sprint(c.of(&runs[n])); !slices.Contains(all, value) {
					all = append(all, value)
				}
			}
			slices.Sort(all)
			return all
		}
		old, now := values(before), values(after)
		if len(old) > 1 || !slices.Equal(old, now) {
			all = append(all, fmt.Sprintf("%s %s, now %s", c.name, strings.Join(old, " and "), strings.Join(now, " and ")))
		}
	}
	return all
}

// Summary is what runs measured with one setting.
type Summary struct {
	Setting string
	Runs    int
	Figures map[string]Spread
}

// Spread is a figure of some runs.
type Spread struct{ Min, Median, Max float64 }

// Summarize says what runs measured, setting by setting.
func Summarize(reports []Report) (all []Summary) {
	settings := figures(reports)
	for _, name := range inOrder(settings) {
		s := Summary{Setting: name, Figures: make(map[string]Spread)}
		for figure, runs := range settings[name].runs {
			middle, spread := median(runs)
			s.Runs, s.Figures[figure] = max(s.Runs, len(runs)), Spread{spread[0], middle, spread[1]}
		}
		all = append(all, s)
	}
	return all
}

// inOrder are the settings as they were seen first.
func inOrder(all map[string]*setting) []string {
	return slices.SortedFunc(maps.Keys(all), func(a, b string) int { return cmp.Compare(all[a].place, all[b].place) })
}

// setting is what runs measured, in the order in which it was first seen.
type setting struct {
	place      int
	names      []string
	runs       map[string][]float64
	conditions []Conditions
}

func (s *setting) add(name string, value float64) {
	if s.runs[name] == nil {
		s.names = append(s.names, name)
	}
	s.runs[name] = append(s.runs[name], value)
}

// addMachines adds what the processors of the machine did, if that was measured.
func (s *setting) addMachines(m Machine) {
	if m.CPU > 0 {
		s.add("the machine's cores", m.CPU)
		s.add("stolen cores", m.Stolen)
	}
}

// addKafkas adds what Kafka's container used, if that was measured.
func (s *setting) addKafkas(u *Usage) {
	if u != nil {
		s.add("Kafka's cores", u.CPU)
		s.add("Kafka's us/order", u.CPUPerOrder)
		s.add("Kafka's MiB", u.Memory)
	}
}

// addAtRest adds what does not come of orders, as far as it was measured.
func (s *setting) addAtRest(r *Report) {
	if r.Owned > 0 {
		s.add("all owned s", r.Owned)
		s.add("connections", float64(r.Connections))
	}
	if i := r.Idle; i != nil {
		s.add("idle: cores", i.CPU)
		s.add("idle: requests/s", i.Requests)
		s.add("idle: MiB", i.Memory)
		if i.Kafka != nil {
			s.add("idle: Kafka's cores", i.Kafka.CPU)
			s.add("idle: Kafka's MiB", i.Kafka.Memory)
		}
	}
}

// Describe says in a few words what was measured.
func (r *Report) Describe() string {
	said := r.Shape.Describe()
	if r.Instances > 1 {
		said += fmt.Sprintf(", on %d instances", r.Instances)
	}
	return said + r.besides()
}

func (r *Report) besides() (said string) {
	if r.Standby != "" {
		said = ", standby " + r.Standby
	}
	if r.Pipe > 0 {
		said += fmt.Sprintf(", moved by %d writers that decide nothing", r.Pipe)
	}
	if r.Waiting > 0 {
		said += fmt.Sprintf(", beside %d that wait", r.Waiting)
	}
	if r.HTTP {
		said += ", submitted over HTTP"
	}
	if r.Consoles > 0 {
		said += fmt.Sprintf(", with %d consoles open", r.Consoles)
	}
	return said
}

func figures(reports []Report) map[string]*setting {
	all := make(map[string]*setting)
	of := func(r *Report, load string) *setting {
		name := fmt.Sprintf("%s, %d partitions, %d instances, %s%s, %s", r.Broker, r.Partitions, r.Instances, r.Shape.Describe(), r.besides(), load)
		if all[name] == nil {
			all[name] = &setting{place: len(all), runs: make(map[string][]float64)}
		}
		all[name].conditions = append(all[name].conditions, r.Conditions)
		return all[name]
	}
	for n := range reports {
		r := &reports[n]
		if len(r.Rungs) == 0 {
			s := of(r, fmt.Sprintf("%d under way", r.InFlight))
			s.add("orders/s", r.OrdersPerSecond)
			s.add("p50 ms", r.P50)
			s.add("p99 ms", r.P99)
			s.add("one at a time: p50 ms", r.SingleP50)
			s.add("one at a time: p99 ms", r.SingleP99)
			s.add("records/order", r.RecordsPerOrder)
			s.add("bytes/order", r.BytesPerOrder)
			s.add("compressed bytes/order", r.WireBytesPerOrder)
			s.add("cores", r.CPU)
			s.add("us/order", r.CPUPerOrder)
			if r.RequestsAnOrder > 0 {
				s.add("produce requests/order", r.RequestsAnOrder)
				s.add("transactions/order", r.TransactionsAnOrder)
			}
			s.add("MiB", r.Memory)
			s.addMachines(r.Machine)
			s.addKafkas(r.Kafka)
			s.addAtRest(r)
			if r.Restarted > 0 {
				s.add("owned again s", r.Restarted)
			}
			if r.Rebuilt != nil {
				s.add("owned without state s", r.Rebuilt.Seconds)
				s.add("rebuilt records", float64(r.Rebuilt.Records))
				s.add("rebuilt records/s", r.Rebuilt.RecordsPerSecond)
			}
		}
		for _, g := range r.Rungs {
			s := of(r, fmt.Sprintf("%g orders/s", g.Rate))
			carried := 0.0
			if g.Carried {
				carried = 1
			}
			s.add("carried", carried)
			s.add("reached orders/s", g.Reached)
			s.add("p50 ms", g.P50)
			s.add("p90 ms", g.P90)
			s.add("p99 ms", g.P99)
			s.add("max ms", g.Max)
			s.add("failed", float64(g.Failed))
			s.add("cores", g.CPU)
			s.add("us/order", g.CPUPerOrder)
			s.add("produce requests/order", g.RequestsAnOrder)
			s.add("transactions/order", g.TransactionsAnOrder)
			if g.MarkersAnOrder > 0 {
				s.add("markers/order", g.MarkersAnOrder)
			}
			s.add("MiB", g.Memory)
			s.addMachines(g.Machine)
			s.addKafkas(g.Kafka)
			if g.Pages != nil {
				s.add("pages/s", g.Pages.PerSecond)
				s.add("a page: p50 ms", g.Pages.P50)
				s.add("a page: p99 ms", g.Pages.P99)
			}
		}
		// It is of the whole run, and of none of its rates.
		if len(r.Rungs) > 0 && (r.Owned > 0 || r.Idle != nil) {
			of(r, "at rest").addAtRest(r)
		}
	}
	return all
}

func change(name string, old, now []float64) Change {
	c := Change{Figure: name, OldRuns: len(old), NewRuns: len(now), P: mannWhitney(old, now), TooFew: tooFew(len(old), len(now))}
	c.Old, c.OldSpread = median(old)
	c.New, c.NewSpread = median(now)
	c.Differs = c.P < 0.05
	return c
}

func median(runs []float64) (middle float64, spread [2]float64) {
	s := slices.Sorted(slices.Values(runs))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2, [2]float64{s[0], s[len(s)-1]}
}

// mannWhitney is how likely the sum of the ranks of a is at least so far from what it is
// on average, if all ways are equally likely to choose the runs of a from all. Runs that
// are equal share their ranks.
func mannWhitney(a, b []float64) float64 {
	all := slices.Sorted(slices.Values(slices.Concat(a, b)))
	// Twice the rank, so that shared ones are whole numbers.
	rank := func(v float64) int {
		first, _ := slices.BinarySearch(all, v)
		next := first
		for next < len(all) && all[next] == v {
			next++
		}
		return first + next + 1
	}
	most := len(all) * (len(all) + 1)
	ways := make([][]float64, len(a)+1) // to choose so many with this sum
	for n := range ways {
		ways[n] = make([]float64, most+1)
	}
	ways[0][0] = 1
	for _, v := range all {
		r := rank(v)
		for n := len(a); n > 0; n-- {
			for sum := r; sum <= most; sum++ {
				ways[n][sum] += ways[n-1][sum-r]
			}
		}
	}
	sum := 0
	for _, v := range a {
		sum += rank(v)
	}
	average := len(a) * (len(all) + 1)
	far := math.Abs(float64(sum - average))
	var asFar, total float64
	for s, n := range ways[len(a)] {
		total += n
		if math.Abs(float64(s-average)) >= far {
			asFar += n
		}
	}
	return asFar / total
}
