// Command stories runs the order example while its services fail, and prints
// what the pattern does about it.
//
//	go run ./examples/order-fulfilment/stories            # all
//	go run ./examples/order-fulfilment/stories operator   # one
//
// Each story has a Waybill of its own, in this process and in a temporary
// directory. With -brokers and -server the stories run against one that is there.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// patience bounds one story. Each takes seconds; a busy machine may need more.
const patience = 2 * time.Minute

// run returns the exit code: 0 if every story ended as it must, else 1; 2 on
// wrong usage.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var where place
	flags := flag.NewFlagSet("stories", flag.ContinueOnError)
	flags.SetOutput(stderr)
	brokers := flags.String("brokers", "", "addresses of a Kafka; with -server, stories run on what is there")
	flags.StringVar(&where.server, "server", "", "address of a Waybill on that Kafka, such as http://127.0.0.1:8080")
	flags.StringVar(&where.namespace, "namespace", "waybill", "its namespace")
	flags.BoolVar(&where.verbose, "v", false, "print the logs of Waybill and of the agents too")
	flags.Usage = func() {
		fmt.Fprintln(stderr, "usage: stories [flags] [all | story...]\n\nThe stories:")
		for _, s := range stories {
			fmt.Fprintf(stderr, "  %-14s %s\n", s.name, s.about)
		}
		fmt.Fprintln(stderr, "\nThe flags:")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	if (*brokers == "") != (where.server == "") {
		fmt.Fprintln(stderr, "stories: give both -brokers and -server, or neither")
		return 2
	}
	if *brokers != "" {
		where.brokers = strings.Split(*brokers, ",")
	}
	where.stderr = stderr
	chosen, err := choose(flags.Args())
	if err != nil {
		fmt.Fprintln(stderr, "stories:", err)
		return 2
	}

	code := 0
	for i, s := range chosen {
		if i > 0 {
			fmt.Fprintln(stdout)
		}
		began := time.Now()
		if err := s.run(ctx, &where, stdout); err != nil {
			fmt.Fprintf(stderr, "stories: %s did not end as it must: %v\n", s.name, err)
			code = 1
			if ctx.Err() != nil {
				return code
			}
			continue
		}
		fmt.Fprintf(stdout, "\n%s ended as it must, after %.1f s.\n", s.name, time.Since(began).Seconds())
	}
	return code
}

func choose(names []string) ([]*story, error) {
	if len(names) == 0 || len(names) == 1 && names[0] == "all" {
		return stories, nil
	}
	var chosen []*story
	for _, name := range names {
		s := find(name)
		if s == nil {
			known := []string{"all"}
			for _, s := range stories {
				known = append(known, s.name)
			}
			return nil, fmt.Errorf("there is no story %q; the stories are %s", name, strings.Join(known, ", "))
		}
		chosen = append(chosen, s)
	}
	return chosen, nil
}
