// The program mutants asks of the tests whether they can fail. It breaks one
// rule of Waybill at a time, as list says, and runs the suites that must find
// it, the cheapest first, until one does.
//
//	go run ./test/mutants                 # all
//	go run ./test/mutants -run '^lane/'   # those of list/lane.txt
//
// The tree is never touched: the Go tool compiles a mutated copy in place of the
// file (-overlay). Each suite runs once without a mutation before all else.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/waybill-dev/waybill/test/reliability"
)

func main() {
	only := flag.String("run", "", "those mutants only whose ids match this `regexp`")
	jobs := flag.Int("j", 1, "how many mutants at a time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, *only, *jobs)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, only string, jobs int) error {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	module, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("find the module: %w", err)
	}
	root := filepath.Dir(strings.TrimSpace(string(module)))
	all, err := readList(os.DirFS(filepath.Join(root, "test/mutants/list")))
	if err != nil {
		return err
	}
	mutants := slices.DeleteFunc(slices.Clone(all.mutants), func(m mutant) bool { return !pattern.MatchString(m.id) })
	if len(mutants) == 0 {
		return fmt.Errorf("no id matches %q", only)
	}
	temporary, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temporary)
	known, err := newRecord(all.mutants)
	if err != nil {
		return err
	}
	commit := reliability.Commit(ctx)
	l := &laboratory{root: root, temporary: temporary, out: out}

	began := time.Now()
	if err := l.unbroken(ctx, mutants); err != nil {
		return err
	}
	results := make([]result, len(mutants))
	next := make(chan int)
	var workers sync.WaitGroup
	for range max(jobs, 1) {
		workers.Go(func() {
			for i := range next {
				if results[i] = l.try(ctx, &mutants[i]); ctx.Err() != nil {
					continue // what was cut off says nothing
				}
				fmt.Fprintln(out, results[i].line())
				if err := known.add(ctx, &results[i], commit); err != nil {
					fmt.Fprintln(out, err)
				}
			}
		})
	}
	for i := range mutants {
		next <- i
	}
	close(next)
	workers.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%s\n%s in %s\n", table(results), summary(results), time.Since(began).Round(time.Second))
	return verdict(results)
}
