// The program performance measures Waybill, on the embedded broker and on Apache Kafka in a
// container, and makes docs/performance.md of what it measured, and of what was measured
// before.
//
//	go run ./test/performance -runs 5 -part 'full|ladder' bin/waybill docs/performance
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/internal/bench"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/reliability"
)

func main() {
	kafka.Reap()
	runs := flag.Int("runs", 5, "of each measurement, in turn")
	named := flag.String("part", "", "what is measured: a regular expression of names, ^$ for nothing")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: performance [flags] PROGRAM DIRECTORY")
		flag.PrintDefaults()
	}
	flag.Parse()
	only, err := regexp.Compile(*named)
	if err != nil || flag.NArg() != 2 || *runs < 1 {
		fmt.Fprintln(os.Stderr, errors.Join(err, errors.New("a program, a directory and at least one run are needed")))
		flag.Usage()
		os.Exit(2)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	m := &measuring{program: flag.Arg(0), dir: flag.Arg(1), runs: *runs}
	err = m.all(ctx, slices.DeleteFunc(slices.Clone(parts), func(p part) bool { return !only.MatchString(p.name) }))
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// measured is what a part leaves in its file.
type measured struct {
	Date     string         `json:"date"`
	Commit   string         `json:"commit"`
	Machine  string         `json:"machine"`
	Versions string         `json:"versions"`
	Kafka    string         `json:"kafka,omitzero"` // its image
	Runs     []bench.Report `json:"runs"`
	// Profile are the functions in which the time went in another run, or which allocated, Shares the kinds of
	// work, and ProfileOf the arguments of that run.
	Profile   string  `json:"profile,omitempty"`
	Shares    []share `json:"shares,omitempty"`
	ProfileOf string  `json:"profile_of,omitempty"`
}

type measuring struct {
	program, dir string
	runs         int
	kafka        *kafka.Broker
}

// all measures the parts in turn, so that what changes meanwhile, as the machine does, is in
// all of them, and writes the page.
func (m *measuring) all(ctx context.Context, parts []part) (err error) {
	if err := os.MkdirAll(m.dir, 0o755); err != nil { //nolint:gosec // documentation
		return err
	}
	if slices.ContainsFunc(parts, func(p part) bool { return p.kafka }) {
		b, end, err := kafka.Alone(ctx)
		if err != nil {
			return errors.Join(err, end())
		}
		defer func() { err = errors.Join(err, end()) }()
		m.kafka = b
		// Java is slow before it has worked for a while.
		if _, err := m.bench(ctx, part{kafka: true, args: "--warm-up 20s --duration 5s --single 1"}, ""); err != nil {
			return err
		}
	}
	found := make(map[string]*measured)
	for n := range m.runs {
		for _, p := range parts {
			fmt.Fprintf(os.Stderr, "%s %d of %d: %s\n", time.Now().UTC().Format(time.TimeOnly), n+1, m.runs, p.name)
			f := found[p.name]
			if f == nil {
				f = &measured{Date: time.Now().UTC().Format(time.DateOnly), Commit: reliability.Commit(ctx), Machine: reliability.Machine(), Versions: reliability.Versions(ctx)}
				if p.kafka {
					f.Kafka = kafka.Image
				}
				found[p.name] = f
			}
			for _, args := range p.each() {
				r, err := m.bench(ctx, args, "")
				if err != nil {
					return fmt.Errorf("part %s: %w", p.name, err)
				}
				f.Runs = append(f.Runs, *r)
			}
			if p.profile != "" && n == m.runs-1 {
				f.ProfileOf = p.profile
				if f.Profile, f.Shares, err = m.profile(ctx, p); err != nil {
					return fmt.Errorf("part %s: %w", p.name, err)
				}
			}
			if err := m.save(p.name, f); err != nil {
				return err
			}
		}
	}
	return m.page()
}

func (m *measuring) save(name string, f *measured) error {
	text, err := json.MarshalIndent(f, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(m.dir, name+".json"), append(text, '\n'), 0o600)
}

// bench is one run of a process of its own.
func (m *measuring) bench(ctx context.Context, p part, more string) (*bench.Report, error) {
	args := append([]string{"bench", "-o", "json"}, strings.Fields(p.args+" "+more)...)
	if p.kafka {
		args = append(args, "--brokers", m.kafka.Brokers[0], "--kafka-container", m.kafka.Name())
	}
	cmd := exec.CommandContext(ctx, m.program, args...)
	var wrong bytes.Buffer
	cmd.Stderr = &wrong
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, wrong.String())
	}
	all, err := bench.ReadReports(bytes.NewReader(out))
	if err != nil {
		return nil, err
	}
	return &all[0], nil
}

// profile says where the time goes, or what allocates, in a run of its own.
func (m *measuring) profile(ctx context.Context, p part) (functions string, kinds []share, err error) {
	file := filepath.Join(os.TempDir(), fmt.Sprintf("waybill-%d.prof", os.Getpid()))
	defer os.Remove(file)
	flag, of := "--cpu-profile ", "cpu"
	if p.allocates {
		flag, of = "--allocation-profile ", "alloc_space"
	}
	p.args = p.profile
	if _, err := m.bench(ctx, p, flag+file); err != nil {
		return "", nil, err
	}
	if kinds, err = shares(file, of); err != nil {
		return "", nil, err
	}
	out, err := exec.CommandContext(ctx, "go", "tool", "pprof", "-top", "-nodecount=12", "-sample_index="+of, m.program, file).Output()
	if err != nil {
		return "", nil, fmt.Errorf("read the profile: %w", err)
	}
	// What stands before the table names files of this machine.
	if i := bytes.Index(out, []byte("Showing nodes")); i >= 0 {
		out = out[i:]
	}
	return string(bytes.TrimSpace(out)), kinds, nil
}

// page is made of what was measured last, and before.
func (m *measuring) page() error {
	found, err := results(m.dir)
	if err != nil {
		return err
	}
	return os.WriteFile(m.dir+".md", []byte(render(found)), 0o644) //nolint:gosec // documentation
}

// results are the parts of which there is a file.
func results(dir string) (map[string]*measured, error) {
	found := make(map[string]*measured)
	for _, p := range parts {
		text, err := os.ReadFile(filepath.Join(dir, p.name+".json"))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		var f measured
		if err == nil {
			err = json.Unmarshal(text, &f)
		}
		if err != nil {
			return nil, fmt.Errorf("part %s: %w", p.name, err)
		}
		found[p.name] = &f
	}
	return found, nil
}
