package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/waybill-dev/waybill/test/kafka"
)

// Seeds that are fixed: a run that failed can be repeated, and one that passed
// says something of the change and not of its luck. What is in the environment
// wins. `make reliability` draws them.
var seeds = []string{"RAPID_SEED", "WAYBILL_SEED", "WAYBILL_FUZZED_SEED"}

// Packages without concurrency, or whose concurrency is that of other programs:
// the race detector would find nothing there and takes ten times as long.
var sequential = []string{
	"compensation", "events", "orchestrator/decide", "orchestrator/window", "orchestrator/workflow", "projections",
	"internal/bench", "internal/rehearsal", "test/child", "test/deploy", "test/kafka", "test/oracle", "test/pattern",
	"test/reliability", "test/reliability/page", "test/run", "yamlfile",
}

// The same of single tests in other packages, and what of them is tried with the
// detector all the same. The programs of test/process have it where instances die under
// load that is drawn.
const (
	simulation     = "^(TestSimulation|TestTheSeedDecidesTheHistory)$"
	someHistories  = "^(TestSimulation|TestHistories|TestConcurrentUse)$"
	historiesRaced = 200
	programsRaced  = "^(TestKillDevUnderLoad|TestDrawnOrdersWhileDevIsKilled|TestDrawnOrdersWhileInstancesAreKilled)$"
)

// part is one run of go test.
type part struct {
	packages []pkg
	race     bool
	alone    bool // it takes all processors; of others two run side by side
	flags    []string
	env      []string
}

// What is computed, and has no other program beside it, takes less time where garbage is collected
// less often.
const seldom = "GOGC=400"

// inParts says in which runs of go test all tests are run, each once. Packages
// without a container go first, two at a time. The others are parts of their own: they wait half of
// their time. Those that take longest go first, so that none is left over at the end. On Apache Kafka
// the integration suite goes without the detector, which finds in it what it finds on the
// embedded broker.
func inParts(packages []pkg, race bool, histories int) []part {
	fixed := fixedSeeds()
	drawn := func(n int) []string { return append([]string{"WAYBILL_HISTORIES=" + strconv.Itoa(n)}, fixed...) }
	orchestrator := within(packages, "orchestrator")
	onKafka, alone := split(packages, usesKafka)
	simulated := part{packages: orchestrator, flags: []string{"-run", simulation}, env: append(drawn(histories), seldom)}
	// Longest first, of those that take more than a minute.
	slices.SortStableFunc(onKafka, func(a, b pkg) int { return cmp.Compare(position(longest, a), position(longest, b)) })
	if !race {
		all := []part{{packages: alone, alone: true, flags: []string{"-p", "2"}, env: append(fixed, seldom)}, simulated}
		for _, p := range onKafka {
			one := part{packages: []pkg{p}, env: fixed}
			if p.name() == "orchestrator" {
				one.flags = []string{"-skip", simulation}
			}
			all = append(all, one)
		}
		return all
	}
	plain := func(p pkg) bool { return slices.Contains(sequential, p.name()) }
	alonePlain, aloneRaced := split(alone, plain)
	all := []part{
		{packages: alonePlain, alone: true, flags: []string{"-p", "2"}, env: append(fixed, seldom)},
		{packages: aloneRaced, alone: true, race: true, flags: []string{"-p", "2"}, env: fixed},
		{packages: within(packages, "orchestrator", "orchestrator/decide", "orchestrator/workflow"), alone: true, race: true, flags: []string{"-p", "2", "-run", someHistories}, env: append(drawn(historiesRaced), "RAPID_CHECKS="+strconv.Itoa(historiesRaced), seldom)},
	}
	for _, p := range onKafka {
		one := part{packages: []pkg{p}, race: !plain(p), env: fixed}
		switch p.name() {
		case "test/integration":
			one.flags = []string{"-skip", "/^container$"}
			all = append(all, part{packages: one.packages, flags: []string{"-parallel", "4", "-run", "/^container$"}, env: append([]string{kafka.Only + "=" + string(kafka.KindContainer)}, fixed...)})
		case "test/process":
			one.race, one.flags = false, []string{"-skip", programsRaced}
			all = append(all, part{packages: one.packages, race: true, flags: []string{"-run", programsRaced}, env: fixed})
		case "orchestrator":
			one.flags = []string{"-skip", simulation}
			all = append(all, simulated)
		}
		all = append(all, one)
	}
	return all
}

// longest are the packages on Kafka whose tests take longest.
var longest = []string{"test/integration", "test/process", "orchestrator"}

func position(names []string, p pkg) int {
	if i := slices.Index(names, p.name()); i >= 0 {
		return i
	}
	return len(names)
}

// asAsked runs what somebody asks for with flags of go test, and draws seeds.
func asAsked(packages []pkg, race bool, flags []string) []part {
	onKafka, alone := split(packages, usesKafka)
	return []part{
		{packages: alone, alone: true, race: race, flags: append([]string{"-p", "2"}, flags...)},
		{packages: onKafka, alone: true, race: race, flags: append([]string{"-p", "1"}, flags...)},
	}
}

func usesKafka(p pkg) bool { return p.onKafka }

func (p pkg) name() string { return strings.TrimPrefix(p.path, "github.com/waybill-dev/waybill/") }

func within(packages []pkg, names ...string) (some []pkg) {
	some, _ = split(packages, func(p pkg) bool { return slices.Contains(names, p.name()) })
	return some
}

func split(packages []pkg, by func(pkg) bool) (yes, no []pkg) {
	for _, p := range packages {
		if by(p) {
			yes = append(yes, p)
		} else {
			no = append(no, p)
		}
	}
	return yes, no
}

func fixedSeeds() (set []string) {
	for _, name := range seeds {
		if _, there := os.LookupEnv(name); !there {
			set = append(set, name+"=1")
		}
	}
	return set
}

func (p part) command(ctx context.Context, args ...string) *exec.Cmd {
	if p.race {
		args = append(args, "-race")
	}
	for _, p := range p.packages {
		args = append(args, p.path)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Stderr = os.Stderr
	cmd.Env = append(os.Environ(), p.env...)
	if p.race {
		cmd.Env = append(cmd.Env, "CGO_ENABLED=1") // the detector is written in C
	}
	return cmd
}

// compile compiles the tests of all packages side by side, which go test -p 1
// would do one after the other. What does not compile is go test's to report.
func (p part) compile(ctx context.Context) {
	if len(p.packages) > 0 {
		cmd := p.command(ctx, "list", "-test", "-export")
		cmd.Stderr = nil
		_ = cmd.Run()
	}
}

// test runs the part. -count=1, because whether Docker is there is no part of
// the test cache's key: what was left out once would stay left out.
func (p part) test(ctx context.Context, r *report) error {
	if len(p.packages) == 0 {
		return nil
	}
	cmd := p.command(ctx, append([]string{"test", "-json", "-count=1", "-timeout", "30m"}, p.flags...)...)
	events, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = r.read(events)
	return errors.Join(err, cmd.Wait())
}
