package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/google/pprof/profile"
)

// kinds of work in which processor time goes, by how names of functions begin. Those of whole are of all that
// is done below them; else a sample is of the innermost function on its stack that is of a kind, so that
// what the runtime does for a package is that package's.
var (
	whole = []workKind{
		{"collecting garbage", []string{"runtime.gcBgMarkWorker", "runtime.gcAssistAlloc", "runtime.bgsweep", "runtime.bgscavenge", "runtime.gcStart"}},
		{"Pebble, compacting", []string{pebble + "(*DB).compact1"}},
		{"Pebble, flushing", []string{pebble + "(*DB).flush1"}},
		{"embedded broker", []string{"github.com/twmb/franz-go/pkg/kfake.", module + "internal/broker."}},
	}
	kinds = []workKind{
		{"allocating", []string{"runtime.mallocgc"}},
		{"finding something to run", []string{"runtime.schedule", "runtime.findRunnable", "runtime.mstart"}},
		{"decisions", []string{module + "orchestrator/decide."}},
		{"projection", []string{module + "projections."}},
		{"Pebble, the rest", []string{"github.com/cockroachdb/"}},
		{"events, written and read", []string{module + "events."}},
		{"lanes, and what is about them", []string{module + "orchestrator"}},
		{"agents", []string{module + "agents."}},
		{"callers", []string{module + "internal/bench."}},
		{"compressing", []string{"github.com/klauspost/compress/", "github.com/pierrec/lz4/", "github.com/golang/snappy."}},
		{"Kafka's client", []string{"github.com/twmb/franz-go/"}},
	}
)

type workKind struct {
	name  string
	funcs []string
}

func (k *workKind) has(function string) bool {
	return slices.ContainsFunc(k.funcs, func(begins string) bool { return strings.HasPrefix(function, begins) })
}

const (
	module = "github.com/waybill-dev/waybill/"
	pebble = "github.com/cockroachdb/pebble/v2."
	// elsewhere is what none of them names.
	elsewhere = "elsewhere"
)

// share is a part of all processor time, or of what was allocated.
type share struct {
	Of      string  `json:"of"`
	Percent float64 `json:"percent"`
}

// shares says what the values of a profile are of, most first: of time, or of what was allocated.
func shares(file, of string) ([]share, error) {
	in, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	p, err := profile.Parse(in)
	if err != nil {
		return nil, fmt.Errorf("read the profile: %w", err)
	}
	at := slices.IndexFunc(p.SampleType, func(t *profile.ValueType) bool { return t.Type == of })
	if at < 0 {
		return nil, fmt.Errorf("the profile has no values of %s", of)
	}
	return sharesOf(p, at), nil
}

func sharesOf(p *profile.Profile, at int) (all []share) {
	sums, total := make(map[string]int64), int64(0)
	for _, s := range p.Sample {
		sums[kind(s)] += s.Value[at]
		total += s.Value[at]
	}
	for of, sum := range sums {
		all = append(all, share{of, 100 * float64(sum) / float64(total)})
	}
	slices.SortFunc(all, func(a, b share) int { return cmp.Or(cmp.Compare(b.Percent, a.Percent), cmp.Compare(a.Of, b.Of)) })
	return all
}

// kind is that of a sample.
func kind(s *profile.Sample) string {
	for _, named := range [][]workKind{whole, kinds} {
		for _, location := range s.Location { // the innermost first, and so are its lines
			for _, line := range location.Line {
				for _, k := range named {
					if k.has(line.Function.Name) {
						return k.name
					}
				}
			}
		}
	}
	return elsewhere
}
