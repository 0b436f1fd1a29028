// The program mutants asks of the tests whether they can fail. It breaks one
// rule of Waybill at a time, as list says, and runs the suites that must find
// it, the cheapest first, until one does.
//
//	go run ./test/mutants                 # all
//	go run ./test/mutants -run '^lane/'   # those of list/lane.txt
//	go run ./test/mutants -compiles       # none: says which do not compile any more
//	go run ./test/mutants -j 2 -conditions ./orchestrator/decide -suites 'plays decisions histories'
//	                                      # none of the list: what each part of each condition is good for
//
// The tree is never touched: the Go tool compiles a mutated copy in place of the
// file (-overlay). Each suite runs once without a mutation before all else. With -j
// several run side by side; what was found by running out of time may have been found
// by the others, and is tried again alone. A test that gives up by itself may do so
// because of them, too: not more at a time than processors are for suites that only compute.
package main

import (
	"context"
	"errors"
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
	only := flag.String("run", "", "those mutants only whose ids match this `regexp`, or those conditions whose places do: lane.go:12")
	jobs := flag.Int("j", 1, "how many mutants at a time")
	compile := flag.Bool("compiles", false, "run nothing, and say which do not compile")
	in := flag.String("conditions", "", "leave out each part of each condition of this `package`, instead, and say of which none of the suites takes notice")
	by := flag.String("suites", "", "those suites, by `name`, with spaces between them, the cheapest first")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, *only, *jobs, *compile, *in, strings.Fields(*by))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, only string, jobs int, compile bool, in string, by []string) error {
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
	temporary, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temporary)
	l := &laboratory{root: root, temporary: temporary, out: out}
	if in == "" && len(by) > 0 {
		return errors.New("-suites says by which suites -conditions are tried; a mutant's are in the list")
	}
	if in != "" {
		var suites []*suite
		for _, name := range by {
			if all.suites[name] == nil {
				return fmt.Errorf("there is no suite %q", name)
			}
			suites = append(suites, all.suites[name])
		}
		if len(suites) == 0 {
			return errors.New("no suite is named: say which with -suites")
		}
		return conditions(ctx, out, l, in, pattern, suites, jobs)
	}
	mutants := slices.DeleteFunc(slices.Clone(all.mutants), func(m mutant) bool { return !pattern.MatchString(m.id) })
	if len(mutants) == 0 {
		return fmt.Errorf("no id matches %q", only)
	}
	if compile {
		return compiles(ctx, root, mutants)
	}
	known, err := newRecord(all.mutants)
	if err != nil {
		return err
	}
	commit := reliability.Commit(ctx)

	began := time.Now()
	if err := l.unbroken(ctx, mutants); err != nil {
		return err
	}
	results := make([]result, len(mutants))
	sideBySide(len(mutants), jobs, func(i int, alone bool) (again bool) {
		results[i] = l.try(ctx, &mutants[i])
		switch {
		case ctx.Err() != nil: // what was cut off says nothing
			return false
		case !alone && results[i].late():
			return true
		}
		fmt.Fprintln(out, results[i].line())
		if err := known.add(ctx, &results[i], commit); err != nil {
			fmt.Fprintln(out, err)
		}
		return false
	})
	if err := ctx.Err(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%s\n%s in %s\n", table(results), summary(results), time.Since(began).Round(time.Second))
	return verdict(results)
}

// sideBySide tries n, so many at a time, and those again that say so, each alone.
func sideBySide(n, jobs int, try func(i int, alone bool) (again bool)) {
	next, late := make(chan int), make(chan int, n)
	var workers sync.WaitGroup
	for range max(jobs, 1) {
		workers.Go(func() {
			for i := range next {
				if try(i, jobs <= 1) {
					late <- i
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
	close(late)
	for i := range late {
		try(i, true)
	}
}
