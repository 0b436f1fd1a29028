// The program run runs the tests of packages for `make test`, and ends with what
// is worth knowing of all of them.
//
//	go run ./test/run [-race] [-long] [-histories N] [-computing only|none] [-log FILE] [PACKAGE...] [-- FLAG OF GO TEST...]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/waybill-dev/waybill/test/kafka"
)

func main() {
	kafka.Reap()
	race := flag.Bool("race", false, "use the race detector, where there is concurrency")
	long := flag.Bool("long", false, "run what takes long, too; -race has it anyway")
	histories := flag.Int("histories", 0, "how many histories TestSimulation draws; from 5,000 on it fails for what never comes up; 0 stands for 2,500, and for 500 without -race and -long")
	computing := flag.String("computing", "", "only: run what only computes, such as the simulation, and nothing else; none: all but that, which somebody runs elsewhere")
	logFile := flag.String("log", filepath.Join("bin", "test.log"), "where all that the tests say is kept")
	flag.Parse()
	patterns, flags := flag.Args(), []string(nil)
	if i := slices.Index(patterns, "--"); i >= 0 {
		patterns, flags = patterns[:i], patterns[i+1:]
	}
	// Ctrl-C reaches every process of the terminal. What go test says of it is told.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	if err := run(context.Background(), *logFile, *computing, patterns, flags, *race, *long, *histories); err != nil {
		if !errors.Is(err, errFailed) { // go test's closing lines say that
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
}

var errFailed = errors.New("tests failed")

func run(ctx context.Context, logFile, computing string, patterns, flags []string, race, long bool, histories int) (err error) {
	packages, err := list(ctx, patterns)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(logFile), 0o750); err != nil {
		return err
	}
	log, err := os.Create(logFile)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	r := newReport(os.Stdout, log, logFile)
	long = long || race || len(flags) > 0
	if histories == 0 {
		histories = 500
		if long {
			histories = 2_500
		}
	}
	parts, err := inShare(inParts(packages, race, long, histories), computing)
	if len(flags) > 0 && err == nil {
		parts = asAsked(packages, race, flags)
		if computing != "" {
			err = errors.New("-computing does not go together with flags of go test: these say what is run")
		}
	}
	if err != nil {
		return err
	}
	if !long {
		r.leftOut[fmt.Sprintf("four fifths of what tests draw, three quarters of each of the largest inputs of workflows, and of TestSimulation all but %d histories, because that takes long; make test LONG=1 has more", histories)]++
	}
	if computing != "" {
		r.leftOut[fmt.Sprintf("what -computing=%s leaves out: %s", computing, map[string]string{computingOnly: "all that does not only compute", computingNone: "what only computes, the simulation too, " + simulation}[computing])]++
	}
	// One package alone starts its broker itself, and only if it needs one.
	kafkaIsThere, ended := func() error { return nil }, func() error { return nil }
	if onKafka, _ := split(packages, usesKafka); len(onKafka) > 1 && computing != computingOnly {
		kafkaIsThere = begin(func() (failed error) {
			ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
			defer stop()
			ended, failed = share(ctx)
			return failed
		})
	}
	compile(ctx, parts)
	if err := kafkaIsThere(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ended()) }()
	defer r.end()
	return runParts(parts, func(p part) error { return p.test(ctx, r) })
}

// runParts runs all parts, whatever became of the ones before.
func runParts(parts []part, test func(part) error) error {
	var beside sync.WaitGroup
	var failed atomic.Bool
	for _, p := range parts {
		run := func() {
			if test(p) != nil {
				failed.Store(true)
			}
		}
		if p.apart {
			beside.Wait()
		}
		if p.beside {
			beside.Go(run)
		} else {
			run()
		}
	}
	beside.Wait()
	if failed.Load() {
		return errFailed
	}
	return nil
}

// begin begins to do something, and returns what waits for its end.
func begin(does func() error) (wait func() error) {
	done := make(chan error, 1)
	go func() { done <- does() }()
	return func() error { return <-done }
}

// share starts one Kafka for all packages.
func share(ctx context.Context) (end func() error, err error) {
	variable, end, err := kafka.Share(ctx)
	if err != nil {
		return nil, fmt.Errorf("start Kafka for the run: %w", err)
	}
	if name, address, ok := strings.Cut(variable, "="); ok {
		err = os.Setenv(name, address)
	}
	return end, err
}

// pkg is a package, by its path within the module.
type pkg struct {
	path    string
	onKafka bool // its tests may use Apache Kafka in a container
}

func list(ctx context.Context, patterns []string) ([]pkg, error) {
	const kafkaPackage = "github.com/waybill-dev/waybill/test/kafka"
	args := append([]string{"list", "-f", "{{.ImportPath}} {{.TestImports}} {{.XTestImports}}"}, patterns...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Stderr = os.Stderr
	said, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var all []pkg
	for line := range strings.Lines(string(said)) {
		path, imports, _ := strings.Cut(strings.TrimSpace(line), " ")
		words := strings.FieldsFunc(imports, func(r rune) bool { return strings.ContainsRune("[] ", r) })
		all = append(all, pkg{path, slices.Contains(words, kafkaPackage)})
	}
	return all, nil
}
