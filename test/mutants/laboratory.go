package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/test/reliability"
)

// laboratory tries mutants.
type laboratory struct {
	root, temporary string
	out             io.Writer
}

// result is what became of a mutant.
type result struct {
	*mutant
	suite, test string // who found it, "" if nobody did
	err         error  // why it could not be tried
	took        time.Duration
}

// ranOut is what a suite says that had no time left.
const ranOut = "panic: test timed out"

// late says that a suite ran out of time, which may be a neighbour's doing.
func (r *result) late() bool { return strings.Contains(r.test, ranOut) }

// hangs is when a suite is ended that did not end itself. Its own time-out
// (-test.timeout) comes before.
const hangs = 15 * time.Minute

// unbroken runs each suite that is needed once without a mutation: one that
// fails by itself finds everything, and one that runs no test finds nothing.
func (l *laboratory) unbroken(ctx context.Context, mutants []mutant) error {
	seen := make(map[*suite]bool)
	built := make(map[string]string)
	for i := range mutants {
		for _, s := range mutants[i].suites {
			if seen[s] {
				continue
			}
			seen[s] = true
			if err := l.passes(ctx, "", s, built); err != nil {
				return err
			}
		}
	}
	return nil
}

// passes fails unless a suite runs, whole, and finds nothing.
func (l *laboratory) passes(ctx context.Context, overlay string, s *suite, built map[string]string) error {
	began := time.Now()
	test, said, err := l.binary(ctx, l.temporary, overlay, s, built)
	if err == nil && test != "" {
		err = fmt.Errorf("%s fails without any mutation:\n%s", test, said)
	}
	if left := leftOut.FindString(said); err == nil && left != "" {
		err = errors.New(left)
	}
	if err != nil {
		return fmt.Errorf("suite %s: %w", s.name, err)
	}
	fmt.Fprintf(l.out, "suite    %-12s passes without a mutation  %s\n", s.name, time.Since(began).Round(100*time.Millisecond))
	return nil
}

// leftOut is what a suite says that does not run.
var leftOut = regexp.MustCompile(`no tests to run|(?m)^.*left out: .*$`)

// try runs the suites of a mutant until one finds it.
func (l *laboratory) try(ctx context.Context, m *mutant) result {
	r := result{mutant: m}
	began := time.Now()
	r.suite, r.test, r.err = l.find(ctx, m)
	r.took = time.Since(began)
	return r
}

func (l *laboratory) find(ctx context.Context, m *mutant) (suite, test string, err error) {
	dir, err := os.MkdirTemp(l.temporary, "mutant")
	if err != nil {
		return "", "", err
	}
	defer os.RemoveAll(dir)
	overlay, err := l.overlay(dir, m)
	if err != nil {
		return "", "", err
	}
	built := make(map[string]string)
	for _, s := range m.suites {
		test, _, err := l.binary(ctx, dir, overlay, s, built)
		if err != nil || test != "" {
			return s.name, test, err
		}
	}
	return "", "", nil
}

// overlay writes the mutated file, and what tells the Go tool to compile it.
func (l *laboratory) overlay(dir string, m *mutant) (string, error) {
	file := filepath.Join(l.root, m.file)
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	mutated, err := m.apply(string(text))
	if err != nil {
		return "", err
	}
	in := filepath.Join(dir, filepath.Base(file))
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {file: in}})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, errors.Join(os.WriteFile(in, []byte(mutated), 0o600), os.WriteFile(overlay, replace, 0o600)) //nolint:gosec // in is in a directory of its own
}

// binary runs a suite by the test binary of its package, which is built once,
// and returns the test that failed, "" if none did, and what was said.
func (l *laboratory) binary(ctx context.Context, dir, overlay string, s *suite, built map[string]string) (test, said string, err error) {
	if built[s.pkg] == "" {
		binary := filepath.Join(dir, strings.ReplaceAll(s.pkg, "/", "_")+".test")
		build := exec.CommandContext(ctx, "go", "test", "-c", "-ldflags=-s -w", "-overlay="+overlay, "-o", binary, s.pkg)
		build.Dir = l.root
		if out, err := build.CombinedOutput(); err != nil {
			return "", "", fmt.Errorf("it does not compile, which finds nothing:\n%s", out)
		}
		built[s.pkg] = binary
	}
	ctx, cancel := context.WithTimeout(ctx, hangs)
	defer cancel()
	run := exec.CommandContext(ctx, built[s.pkg], append([]string{"-test.v", "-test.failfast"}, s.arguments...)...)
	run.Dir = filepath.Join(l.root, s.pkg)
	// Figures of a mutant are nobody's.
	run.Env = append(append(os.Environ(), s.environment...), reliability.Directory+"=")
	run.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	run.Stdout, run.Stderr = &out, &out
	err = run.Run()
	failed := new(exec.ExitError)
	switch {
	case ctx.Err() != nil:
		return "", "", fmt.Errorf("suite %s did not end: %w", s.name, context.Cause(ctx))
	case err == nil:
		return "", out.String(), nil
	case !errors.As(err, &failed):
		return "", "", err
	}
	if test = firstFailure(out.String()); test == "" {
		return "", "", fmt.Errorf("suite %s ends with %w, and no test failed:\n%s", s.name, err, out.String())
	}
	return test, out.String(), nil
}

var (
	failure = regexp.MustCompile(`(?m)^( *)--- FAIL: (\S+)`)
	begun   = regexp.MustCompile(`(?m)^=== RUN +(\S+)`)
	crashed = regexp.MustCompile(`(?m)^(` + ranOut + `|panic: |fatal error: |the tests left goroutines behind|goleak: )`)
)

// firstFailure names what failed first, and is no mere frame of others.
func firstFailure(said string) string {
	test := ""
	for _, m := range failure.FindAllStringSubmatch(said, -1) {
		if test != "" && !strings.HasPrefix(m[2], test+"/") {
			break
		}
		test = m[2]
	}
	crash := crashed.FindString(said)
	if test != "" || crash == "" {
		return test
	}
	last := "" // that had begun
	if all := begun.FindAllStringSubmatch(said, -1); len(all) > 0 {
		last = all[len(all)-1][1]
	}
	return last + " (" + strings.TrimSuffix(crash, ": ") + ")"
}
