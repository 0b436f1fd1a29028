package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/waybill-dev/waybill/test/leftout"
)

// event is one line of go test -json, see go doc test2json.
type event struct {
	Action  string  `json:"Action"`
	Package string  `json:"Package"`
	Test    string  `json:"Test"`
	Output  string  `json:"Output"`
	Elapsed float64 `json:"Elapsed"` // seconds
}

// report makes of what go test says one line a package, all that a failure
// needs, and at the end what was left out, what was slow, and go test's own
// closing lines. It reads several at once.
type report struct {
	mu       sync.Mutex
	out, log io.Writer
	logFile  string         // the name of log
	leftOut  map[string]int // by package and reason
	slow     []took
	parts    []spent
	why      strings.Builder // what failed, in short
	closing  strings.Builder
}

// spent is what one run of go test took: where its processor time is far below its time, it waited.
type spent struct {
	what            string
	time, processor time.Duration
}

// partLine is told of a part: two times, in seconds, and what it runs.
const partLine = "  %7.1fs %7.1fs  %s\n"

// tested is a package whose tests run.
type tested struct {
	said    strings.Builder // by no test
	closing string          // go test's line
	names   []string        // of tests, in the order in which they began
	tests   map[string]*test
}

type test struct {
	said  strings.Builder
	ended bool // and did not fail
}

type took struct {
	name string
	time time.Duration
}

// slowest is how many tests are named for their time, if it is worth it.
const (
	slowest = 20
	notable = 100 * time.Millisecond
)

// What is said of a failure in short: its last lines that name a line of a test, each cut.
// What processes said is between them, and there may be megabytes of it.
const (
	lastLines = 12
	shortLine = 400 // bytes
)

func newReport(out, log io.Writer, logFile string) *report {
	return &report{out: out, log: log, logFile: logFile, leftOut: make(map[string]int)}
}

var (
	closingLine = regexp.MustCompile(`^(ok|FAIL|\?) *\t`)
	framing     = regexp.MustCompile(`^(=== (RUN|PAUSE|CONT|NAME) | *--- (PASS|SKIP): )`)
	sourceLine  = regexp.MustCompile(`^\s*\S+\.go:\d+: `)
)

// read takes what one go test says.
func (r *report) read(from io.Reader) error {
	lines, running := bufio.NewReader(from), make(map[string]*tested)
	for {
		line, err := lines.ReadBytes('\n')
		r.line(running, line)
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Errorf("read what go test says: %w", err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(running)) {
		r.fail(running[name]) // go test did not come to an end
	}
	return nil
}

// line takes one line of a go test that runs these packages.
func (r *report) line(running map[string]*tested, line []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var e event
	switch {
	case len(line) == 0:
	case json.Unmarshal(line, &e) != nil:
		fmt.Fprintf(r.out, "%s", line) // go test's own words
	default:
		r.take(running, e)
	}
}

func (r *report) take(running map[string]*tested, e event) {
	fmt.Fprint(r.log, e.Output)
	if e.Action == "build-output" {
		fmt.Fprint(r.out, e.Output)
	}
	if e.Package == "" {
		return
	}
	p := running[e.Package]
	if p == nil {
		p = &tested{tests: make(map[string]*test)}
		running[e.Package] = p
	}
	if e.Test == "" {
		if r.takePackage(p, e) {
			delete(running, e.Package)
		}
		return
	}
	t := p.tests[e.Test]
	if t == nil {
		t = &test{}
		p.tests[e.Test], p.names = t, append(p.names, e.Test)
	}
	switch e.Action {
	case "output":
		if !framing.MatchString(e.Output) {
			t.said.WriteString(e.Output)
		}
	case "skip":
		r.leftOut[e.Package+": "+reason(e.Test, t.said.String())]++
		t.ended = true
	case "pass":
		t.ended = true
	}
	if e.Elapsed > 0 {
		r.slow = append(r.slow, took{pkg{path: e.Package}.name() + " " + e.Test, seconds(e.Elapsed)})
	}
}

// takePackage says whether that was the last of the package.
func (r *report) takePackage(p *tested, e event) bool {
	switch e.Action {
	case "output":
		if closingLine.MatchString(e.Output) {
			p.closing = e.Output
		} else {
			p.said.WriteString(e.Output)
		}
		return false
	case "fail":
		r.fail(p)
	case "pass", "skip":
	default:
		return false
	}
	if !strings.HasPrefix(p.closing, "?") {
		fmt.Fprint(r.out, p.closing)
		r.closing.WriteString(p.closing)
	}
	return true
}

// fail prints what a package said that failed, but for its tests that did not.
func (r *report) fail(p *tested) {
	for _, name := range p.names {
		if t := p.tests[name]; !t.ended {
			fmt.Fprintf(r.out, "=== %s\n%s", name, t.said.String())
			fmt.Fprintf(&r.why, "  %s\n%s", name, inShort(t.said.String()))
		}
	}
	fmt.Fprint(r.out, p.said.String())
	if closing := strings.TrimSpace(p.closing); closing != "" {
		fmt.Fprintf(&r.why, "  %s\n", closing)
	}
}

// inShort is why a test may have failed.
func inShort(said string) string {
	var lines []string
	for line := range strings.Lines(said) {
		if sourceLine.MatchString(line) {
			if len(line) > shortLine {
				line = line[:shortLine] + " ...\n"
			}
			lines = append(lines, "  "+line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-lastLines):], "")
}

// reason says why a test was skipped. One that names what is left out, for
// whatever tests it stands, begins with [leftout.Prefix].
func reason(test, said string) string {
	if _, why, ok := strings.Cut(said, leftout.Prefix); ok {
		why, _, _ = strings.Cut(why, "\n")
		return why
	}
	return test + ": " + strings.TrimSpace(sourceLine.ReplaceAllString(said, ""))
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func (r *report) end() {
	if len(r.leftOut) > 0 {
		fmt.Fprint(r.out, "\nLeft out:\n")
		for _, what := range slices.Sorted(maps.Keys(r.leftOut)) {
			fmt.Fprintf(r.out, "  %s (skips: %d)\n", what, r.leftOut[what])
		}
	}
	if slow := r.slowest(); len(slow) > 0 {
		fmt.Fprint(r.out, "\nSlowest, each without its subtests:\n")
		for _, t := range slow {
			fmt.Fprintf(r.out, "  %7.1fs  %s\n", t.time.Seconds(), t.name)
		}
	}
	if len(r.parts) > 0 {
		fmt.Fprint(r.out, "\nRuns of go test, with the processor time of all that they started but containers:\n")
		for _, p := range r.parts {
			fmt.Fprintf(r.out, partLine, p.time.Seconds(), p.processor.Seconds(), p.what)
		}
	}
	if r.why.Len() > 0 {
		fmt.Fprintf(r.out, "\nFailed, with the last that each said by a line of a test:\n%s", r.why.String())
	}
	fmt.Fprintf(r.out, "\nAll that was said is in %s.\n\n%s", r.logFile, r.closing.String())
}

// ran notes that a run of go test has ended.
func (r *report) ran(p spent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parts = append(r.parts, p)
}

// slowest returns the tests that took longest by themselves.
func (r *report) slowest() []took {
	own := make(map[string]time.Duration)
	for _, t := range r.slow {
		own[t.name] += t.time
		if i := strings.LastIndex(t.name, "/"); i > strings.Index(t.name, " ") {
			own[t.name[:i]] -= t.time
		}
	}
	var all []took
	for name, time := range own {
		if time >= notable {
			all = append(all, took{name, time})
		}
	}
	slices.SortFunc(all, func(a, b took) int { return cmp.Or(cmp.Compare(b.time, a.time), cmp.Compare(a.name, b.name)) })
	return all[:min(len(all), slowest)]
}
