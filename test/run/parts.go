package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Seeds that are fixed: a run that failed can be repeated, and one that passed
// says something of the change and not of its luck. What is in the environment
// wins. `make reliability` draws them.
var seeds = []string{"RAPID_SEED", "WAYBILL_SEED", "WAYBILL_FUZZED_SEED"}

// Packages without concurrency, or whose concurrency is that of other programs:
// the race detector would find nothing there and takes ten times as long.
var sequential = []string{
	"compensation", "events", "events/spans", "examples/loan", "examples/payout", "examples/subscription", "examples/trip",
	"internal/bench", "internal/diagram", "internal/rehearsal", "internal/revision", "internal/words",
	"orchestrator/address", "orchestrator/decide", "orchestrator/timetable", "orchestrator/window", "orchestrator/workflow", "projections",
	"test/audit", "test/child", "test/deploy", "test/kafka", "test/mutants", "test/oracle", "test/pattern", "test/performance",
	"test/reliability", "test/reliability/page", "test/run", "yamlfile",
}

// The same of single tests in other packages, such as the simulation, whose instances are coroutines, and what is tried with
// the detector all the same. The programs of test/process have it where instances die under
// load that is drawn. The integration suite has it on the embedded broker: on Apache Kafka the same
// code waits for another program.
const (
	simulation    = "^(TestSimulation|TestTheSeedDecidesTheHistory)$"
	inUse         = "^TestConcurrentUse$" // of what is registered
	onContainer   = "/^container$"
	undisturbed   = "^TestBacklog$"                  // bursts, for which agents and Kafka need a processor
	asOpenAPISays = "^TestTheServerIsAsOpenAPISays$" // which another program asks, one request after the other
	programsRaced = "^(TestKillDevUnderLoad|TestDrawnOrdersWhileDevIsKilled|TestDrawnOrdersWhileInstancesAreKilled)$"
	// Tests whose matter is how much there is, or what a single goroutine makes of a clock of its own, or what a browser or a
	// program shows: the same code is raced by tests beside them that have less of it, and the detector takes them ten times
	// as long.
	voluminous = "^(TestWideOrdersWithLargeInputs|TestABurstWaitsForItsAgent|TestFuzzedRecords|TestTurnsAreTriedOut|" +
		"TestWhoIsOvertakenIsAskedAgain|TestLanesWaitForAnAgentTogether|TestATransactionIsBounded|TestBatchesThatCannotBeRead|" +
		"TestDamageThatCannotBeRead|TestItemsThatAnAgentListsAreDoneOnce|TestSpansAreTheSameWhereverAProcessEnds|TestWhatIsNotSampledIsNotReadAnew|TestADeadLetter|TestTornJournal|TestAFloodIsBounded|TestConsoleInABrowser|" +
		"TestABeginningLeavesNothingBehind|TestTestPlays|TestPayloadsAreMasked|TestDecodedDeep|TestStoredDeep|TestTurnsSettle|TestLanesDoNotWaitInSilence)$|^(TestOperator|TestManyDeadLetters)$/^a_thousand$"
)

// raced are settings of the race detector. Each program that has it waits at its end, for a second otherwise, for races of
// goroutines that go on. What it knows of memory that is used again it writes over up to 8 MiB of that: to have new pages from
// the kernel from 64 KiB on, as otherwise, takes a third of the processor time of tests that have a broker or a store.
const raced = "atexit_sleep_ms=100 clear_shadow_mmap_threshold=8388608"

// unchecked has the detector not look at what is done with unsafe pointers, which is a twentieth of what it takes: no code of
// Waybill's has any, but a test that looks into Kafka's client. What a debugger reads is left out as in the Makefile. It is in the environment, so that a program that tests build is compiled in the same way.
const unchecked = "'-gcflags=all=-d=checkptr=0 -dwarf=false'"

// part is one run of go test.
type part struct {
	packages []pkg
	race     bool
	beside   bool // those that follow do not wait for it
	apart    bool // it waits for all that run beside others
	yields   bool // it only computes, and has the processors that others leave, but for containers, whose share is weighed apart
	flags    []string
	env      []string
}

// inParts says in which runs of go test tests are run, each once. At a desk what waits for Docker, for processes and for brokers
// begins first, and what computes has the processors that it leaves, so that none idles at the end. With the detector it is the other way
// round: what it makes ten times as slow leaves Kafka too little. The one that nothing may disturb is alone. Without race or long
// those are left out that take long, and what is drawn is drawn less often.
func inParts(packages []pkg, race, long bool, histories int) []part {
	fixed := fixedSeeds()
	drawn := func(n int) []string { return append([]string{"WAYBILL_HISTORIES=" + strconv.Itoa(n)}, fixed...) }
	orchestrator := within(packages, "orchestrator")
	onKafka, alone := split(packages, usesKafka)
	plain := func(p pkg) bool { return slices.Contains(sequential, p.name()) }
	waiting, others := split(onKafka, plain)
	processes, others := split(others, func(p pkg) bool { return p.name() == "test/process" })
	integration, others := split(others, func(p pkg) bool { return p.name() == "test/integration" })
	asked := part{packages: within(packages, "cmd/waybill"), beside: true, flags: []string{"-run", asOpenAPISays}, env: fixed}
	simulated := func(brief ...string) part {
		return part{packages: orchestrator, beside: true, yields: true, flags: append(brief, "-run", simulation), env: drawn(histories)}
	}
	alonePlain, aloneRaced := split(alone, plain)
	if !race {
		brief, aside, bursts := []string{"-short"}, []string{"-short"}, []part(nil) // what is left out says so itself
		if long {
			brief, aside = nil, []string{"-skip", undisturbed}
			bursts = []part{{packages: processes, apart: true, flags: []string{"-run", undisturbed}, env: fixed}}
		}
		return append([]part{
			{packages: integration, beside: true, flags: append(brief, atOnce...), env: fixed},
			{packages: processes, beside: true, flags: append(aside, atOnce...), env: fixed},
			{packages: others, beside: true, flags: append(brief, "-p", "2", "-skip", simulation+"|"+asOpenAPISays), env: fixed},
			{packages: waiting, beside: true, flags: append(brief, "-p", "1"), env: fixed},
			asked,
			simulated(brief...),
			{packages: alonePlain, beside: true, yields: true, flags: append(brief, "-p", "2"), env: fixed},
			{packages: aloneRaced, flags: append(brief, "-p", "2"), env: fixed},
		}, bursts...)
	}
	slow, quick := split(aloneRaced, func(p pkg) bool { return p.name() == "internal/api" }) // the others are beside it
	large := within(packages, "cmd/waybill", "events/fetch", "internal/api", "internal/tracing", "orchestrator", "orchestrator/lane")
	return []part{
		simulated(),
		{packages: waiting, beside: true, flags: []string{"-p", "1"}, env: fixed},
		{packages: alonePlain, yields: true, flags: []string{"-p", "1"}, env: fixed}, // the simulation, which takes longest, has as much as these
		{packages: within(packages, "orchestrator/workflow"), race: true, beside: true, flags: []string{"-run", inUse}, env: fixed},
		{packages: processes, race: true, beside: true, flags: []string{"-run", programsRaced}, env: fixed},
		{packages: append(slow, quick...), race: true, beside: true, flags: []string{"-p", "2", "-skip", voluminous}, env: fixed},
		{packages: integration, beside: true, flags: append([]string{"-run", voluminous, "-skip", onContainer}, atOnce...), env: fixed},
		{packages: large, flags: append([]string{"-p", "1", "-run", voluminous}, atOnce...), env: fixed},
		{packages: processes, apart: true, flags: []string{"-run", undisturbed}, env: fixed},
		{packages: processes, beside: true, flags: []string{"-skip", programsRaced + "|" + undisturbed}, env: fixed},
		{packages: integration, race: true, beside: true, flags: append([]string{"-skip", onContainer + "|" + voluminous}, atOnce...), env: fixed},
		{packages: others, race: true, flags: []string{"-p", "2", "-skip", simulation + "|" + asOpenAPISays + "|" + voluminous}, env: fixed},
		asked,
		{packages: integration, flags: append([]string{"-run", onContainer}, moreAtOnce...), env: fixed},
	}
}

// What somebody may ask for who has what only computes run elsewhere.
const computingOnly, computingNone = "only", "none"

// inShare are those of all parts that are asked for.
func inShare(parts []part, computing string) ([]part, error) {
	if !slices.Contains([]string{"", computingOnly, computingNone}, computing) {
		return nil, fmt.Errorf("-computing=%s: say %q or %q, or leave it out for all tests", computing, computingOnly, computingNone)
	}
	return slices.DeleteFunc(parts, func(p part) bool {
		return computing != "" && p.yields != (computing == computingOnly)
	}), nil
}

// atOnce has more tests run at a time than there are processors: each waits for brokers and clocks, and most of all for
// Apache Kafka.
var atOnce, moreAtOnce = []string{"-parallel", "4"}, []string{"-parallel", "8"}

// asAsked runs what somebody asks for with flags of go test, and draws seeds.
func asAsked(packages []pkg, race bool, flags []string) []part {
	onKafka, alone := split(packages, usesKafka)
	return []part{
		{packages: alone, race: race, flags: append([]string{"-p", "2"}, flags...)},
		{packages: onKafka, race: race, flags: append([]string{"-p", "1"}, flags...)},
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
	program := "go"
	if nice, err := exec.LookPath("nice"); p.yields && err == nil {
		program, args = nice, append([]string{"-n", "19", "go"}, args...)
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stderr = os.Stderr
	cmd.Env = append(os.Environ(), p.env...)
	unless := func(name, value string) {
		if os.Getenv(name) == "" {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	unless("GOGC", "400") // as in the Makefile, for compilers and linkers, and as waybill has it itself
	unless("GOMEMLIMIT", "4GiB")
	if p.race {
		cmd.Env = append(cmd.Env, "CGO_ENABLED=1", "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" "+unchecked)) // the detector is written in C
		unless("GORACE", raced)
	}
	return cmd
}

// compile compiles the tests of all packages side by side, which go test -p 1
// would do one after the other. What does not compile is go test's to report.
func compile(ctx context.Context, parts []part) {
	for _, race := range []bool{false, true} {
		all := part{race: race}
		for _, p := range parts {
			if p.race == race {
				all.packages = append(all.packages, p.packages...) // go list takes one that comes twice once
			}
		}
		if len(all.packages) > 0 {
			cmd := all.command(ctx, "list", "-test", "-export")
			cmd.Stderr = nil
			_ = cmd.Run()
		}
	}
}

// test runs the part. -count=1, because whether Docker is there is no part of
// the test cache's key: what was left out once would stay left out. -vet=off, because lint has vet, once and
// not for each way in which a package is compiled.
func (p part) test(ctx context.Context, r *report) error {
	if len(p.packages) == 0 {
		return nil
	}
	cmd := p.command(ctx, append([]string{"test", "-json", "-count=1", "-vet=off", "-timeout", "30m"}, p.flags...)...)
	events, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	err = errors.Join(r.read(events), cmd.Wait())
	r.ran(spent{p.String(), time.Since(began), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()})
	return err
}

// longFlag is how many characters of a flag are told: lines with two such have some 160.
const longFlag = 48

// String is what a part runs, in short: … stands for the rest of a flag.
func (p part) String() string {
	what := p.packages[0].name()
	if n := len(p.packages); n > 1 {
		what += fmt.Sprintf(" and %d more", n-1)
	}
	if p.race {
		what += " -race"
	}
	words := []string{what}
	for _, flag := range p.flags {
		if all := []rune(flag); len(all) > longFlag {
			flag = string(all[:longFlag]) + "…"
		}
		words = append(words, flag)
	}
	return strings.Join(words, " ")
}
