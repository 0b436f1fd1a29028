package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/bench"
	"github.com/waybill-dev/waybill/internal/tracing"
	"github.com/waybill-dev/waybill/orchestrator"
)

func newBench() *cobra.Command {
	var kafka kafkaFlags
	o, profile, allocations, standby := bench.Options{}, "", "", ""
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure orders per second and latency",
		Long: `Measures orders of three remote steps, or as --steps and the flags about them
say: first one at a time, then in a steady state with many under way. With
--rates orders arrive at fixed rates instead, one rate after the other, whatever
becomes of those before; latencies are then from the moment at which an order was
due to be submitted. Submitters, orchestrator and agents run in this process; so
does the embedded broker, unless --brokers names a Kafka to measure.

With --pipe nothing is orchestrated: the records that Waybill wrote of one order
are written of all others, by its readers and producers. What Waybill takes beyond
that are its decisions and its state.

It works in a namespace of its own and removes its topics afterwards.

Two versions are compared by several runs of each, which -o json writes:

  for run in 1 2 3 4 5; do waybill bench -o json >>old.json; done
  waybill bench compare old.json new.json`,
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(newBenchCompare())
	flags := cmd.Flags()
	kafka.add(flags)
	flags.BoolVar(&o.Fsync, "fsync", false, "let the embedded broker flush every write to the disk")
	flags.Int32Var(&o.Partitions, "partitions", 4, "partitions of the topics")
	flags.IntVar(&o.Steps, "steps", 3, "steps of an order")
	flags.BoolVar(&o.Parallel, "parallel", false, "steps do not wait for one another")
	flags.IntVar(&o.Payload, "payload", 0, "bytes of an order's input, which every step gets; 0 for some 30")
	flags.Float64Var(&o.Compensate, "compensate", 0, "orders of a hundred whose last step fails for good, and which are undone")
	flags.Float64Var(&o.Retries, "retries", 0, "steps of a hundred that fail once, and are asked for again 100 ms later")
	flags.IntVar(&o.Instances, "instances", 1, "orchestrators that share the partitions, all in this process")
	flags.StringVar(&standby, "standby", "all", "what the instances keep: all follow all partitions, or owned")
	flags.IntVar(&o.Pipe, "pipe", 0, "in place of orchestrators, so many writers of the same records that decide nothing: the limit to compare with")
	flags.IntVar(&o.Consoles, "consoles", 0, "with --rates, so many pages of the console that are open and kept current, half the first one and half lists of orders")
	flags.IntVar(&o.Waiting, "waiting", 0, "orders that wait for an agent that is not there, besides")
	flags.BoolVar(&o.HTTP, "http", false, "submit over HTTP, each order by a request of its own, in place of Kafka")
	flags.BoolVar(&o.Rebuild, "rebuild", false, "measure at the end how long an instance takes to own all again, with its state and without")
	flags.DurationVar(&o.Idle, "idle", 0, "measure before, for so long, what doing nothing costs, beside what is --waiting: processor, requests, memory; 0 for not at all")
	flags.StringVar(&profile, "cpu-profile", "", "file for a processor profile of this process, for go tool pprof")
	flags.StringVar(&allocations, "allocation-profile", "", "file for a profile of what this process allocated, for go tool pprof")
	flags.IntVar(&o.InFlight, "in-flight", 1024, "orders under way at a time")
	flags.DurationVar(&o.WarmUp, "warm-up", 5*time.Second, "load before the measurement")
	flags.DurationVar(&o.Duration, "duration", 15*time.Second, "measurement under load")
	flags.IntVar(&o.Single, "single", 2000, "orders to measure one at a time")
	flags.Float64SliceVar(&o.Rates, "rates", nil, "orders a second that arrive, one rate after the other, instead of --in-flight and --single")
	flags.StringVar(&o.KafkaContainer, "kafka-container", "", "the container on this machine that is the Kafka of --brokers, to say what it uses")
	flags.DurationVar(&o.Overload, "overload", 0, "submit twice as much as is carried for so long then, and see what comes of it")
	flags.DurationVar(&o.MaxLag, "max-lag", 0, "turn that away while its lane is so far behind; 0 takes all")
	onlyByFlag(flags, "fsync", "steps", "parallel", "payload", "compensate", "retries", "instances", "standby", "pipe", "waiting", "consoles", "http", "rebuild", "idle", "cpu-profile", "allocation-profile", "in-flight", "warm-up", "duration", "single", "rates", "kafka-container", "overload", "max-lag")
	out := addOutput(flags)
	logging := addLog(flags, "warn")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.Partitions < 1 || o.InFlight < 1 || o.Single < 1 || o.Duration <= 0 || o.WarmUp < 0 || o.Overload < 0 || o.MaxLag < 0 {
			return usageError{errors.New("--partitions, --in-flight, --single and --duration must be above 0, --warm-up, --overload and --max-lag not below")}
		}
		if o.Steps < 1 || o.Steps > 100 || o.Instances < 1 || o.Instances > 100 || o.Payload < 0 || o.Payload > 256<<10 {
			return usageError{errors.New("--steps and --instances go from 1 to 100, --payload from 0 to 262144 bytes")}
		}
		if o.Standby = orchestrator.Standby(standby); o.Standby != orchestrator.StandbyAll && o.Standby != orchestrator.StandbyOwned {
			return usageError{fmt.Errorf("--standby is %s or %s, not %q", orchestrator.StandbyAll, orchestrator.StandbyOwned, standby)}
		}
		if o.Standby == orchestrator.StandbyOwned && (o.Pipe > 0 || o.Consoles > 0 || o.Overload > 0) {
			return usageError{errors.New("with --standby owned no instance answers for all orders; leave out --pipe, --consoles and --overload")}
		}
		if o.Waiting < 0 {
			return usageError{errors.New("--waiting is so many orders, from 0")}
		}
		if o.Consoles < 0 || o.Consoles > 1000 || o.Consoles > 0 && (len(o.Rates) == 0 || o.Pipe > 0) {
			return usageError{errors.New("--consoles is so many, from 0 to 1000, and goes with --rates and without --pipe")}
		}
		if o.HTTP && (o.Pipe > 0 || o.Overload > 0 || o.MaxLag > 0 || o.Standby == orchestrator.StandbyOwned) {
			return usageError{errors.New("with --http one instance takes all orders; leave out --pipe, --overload, --max-lag and --standby owned")}
		}
		if o.Rebuild && (len(o.Rates) > 0 || o.Overload > 0) {
			return usageError{errors.New("--rebuild goes with --in-flight; leave out --rates and --overload")}
		}
		if o.Rebuild && o.Standby == orchestrator.StandbyOwned && o.Instances > 1 {
			return usageError{errors.New("--rebuild is of one instance with the state of all; leave out --standby owned, or --instances")}
		}
		if o.Idle < 0 || o.Idle > 0 && o.Pipe > 0 {
			return usageError{errors.New("--idle is not below 0, and goes without --pipe")}
		}
		if o.Pipe < 0 || o.Pipe > int(o.Partitions) {
			return usageError{errors.New("--pipe goes from 0 to the number of --partitions, which the writers share")}
		}
		if o.Pipe > 0 && (o.Instances > 1 || o.Parallel || o.Compensate > 0 || o.Retries > 0 || o.Overload > 0 || o.MaxLag > 0 || o.Waiting > 0 || o.Rebuild) {
			return usageError{errors.New("--pipe knows only orders that complete one step after the other; leave out --instances, --parallel, --compensate, --retries, --overload, --max-lag, --waiting and --rebuild")}
		}
		if min(o.Compensate, o.Retries) < 0 || max(o.Compensate, o.Retries) > 100 {
			return usageError{errors.New("--compensate and --retries are of a hundred: from 0 to 100")}
		}
		if o.Overload > 0 && (o.Compensate > 0 || o.Retries > 0) {
			return usageError{errors.New("--overload counts what is asked again; leave out --compensate and --retries")}
		}
		if len(o.Rates) > 0 && (slices.Min(o.Rates) < 0.1 || slices.Max(o.Rates) > 1e6) {
			return usageError{errors.New("--rates are orders a second, each from 0.1 to 1000000")}
		}
		if len(o.Rates) > 0 && o.Overload > 0 {
			return usageError{errors.New("--rates and --overload are two measurements; leave one out")}
		}
		if o.KafkaContainer != "" && !flags.Changed("brokers") {
			return usageError{errors.New("--kafka-container is the Kafka of --brokers; name them, too")}
		}
		if flags.Changed("brokers") {
			if o.Fsync {
				return usageError{errors.New("--fsync is for the embedded broker; leave out --brokers, or --fsync")}
			}
			var err error
			if o.Kafka, err = kafka.options(); err != nil {
				return err
			}
			o.Brokers = kafka.brokers
		}
		build := programVersion()
		if o.Version = build.Version; o.Version == "(devel)" && build.Revision != "" {
			o.Version = build.Revision
		}
		if build.Modified {
			o.Version += ", and changes on top of it"
		}
		o.Logger = logging.logger(cmd)
		traces, err := tracing.FromEnvironment(cmd.Context(), "waybill", build.Version)
		if err != nil {
			return usageError{err}
		}
		o.Traces = traces
		stop, err := profiled(profile, allocations)
		if err != nil {
			return err
		}
		r, err := bench.Run(cmd.Context(), o)
		if err := errors.Join(err, stop()); err != nil {
			return err
		}
		if len(r.Rungs) > 0 {
			return out.print(cmd, r, func(row func(...any)) {
				printLadder(r, row)
				row()
				atRest(r, row)
			})
		}
		return out.print(cmd, r, func(row func(...any)) {
			row("Broker", r.Broker)
			row("Orders", r.Describe())
			row("Under load", fmt.Sprintf("%.0f orders/s, p50 %.1f ms, p99 %.1f ms", r.OrdersPerSecond, r.P50, r.P99))
			row("", fmt.Sprintf("%d orders in %.0f s, %d under way, %d partitions", r.Orders, r.Seconds, r.InFlight, r.Partitions))
			row("One at a time", fmt.Sprintf("p50 %.2f ms, p99 %.2f ms", r.SingleP50, r.SingleP99))
			row("An order", fmt.Sprintf("%.1f records, %.0f bytes, %.0f compressed", r.RecordsPerOrder, r.BytesPerOrder, r.WireBytesPerOrder))
			row("", fmt.Sprintf("%.2f produce requests, %.2f transactions", r.RequestsAnOrder, r.TransactionsAnOrder))
			if x := r.Overload; x != nil {
				row("Overload", fmt.Sprintf("%.0f orders/s for %.0f s, of which %.0f/s ended: %d taken, %d turned away, %d in Error, %d asked again", x.PerSecond, x.Seconds, x.Carried, x.Submitted, x.TurnedAway, x.Errors, x.AskedAgain))
				row("", fmt.Sprintf("p50 %.1f ms, p99 %.1f ms; normal: p50 %.1f ms, p99 %.1f ms", x.P50, x.P99, x.NormalP50, x.NormalP99))
				row("", fmt.Sprintf("unread at the end of it: %d submissions, %d replies", x.UnreadOrders, x.UnreadReplies))
				again := fmt.Sprintf("new orders normal after %.0f s: p99 %.1f ms", x.BackToNormal, x.AfterP99)
				if x.AfterP99 == 0 {
					again = fmt.Sprintf("new orders were not seen to be normal again within %.0f s", x.BackToNormal)
				}
				row("", fmt.Sprintf("all ended after %.1f s; %s", x.Drained, again))
			}
			if x := r.Rebuilt; x != nil {
				row("With its state", fmt.Sprintf("ready again after %.1f s", r.Restarted))
				row("Without its state", fmt.Sprintf("ready after %.1f s: %d records, %.0f/s", x.Seconds, x.Records, x.RecordsPerSecond))
			}
			row("This process", fmt.Sprintf("%.2f cores, %.0f us an order, %.0f MiB", r.CPU, r.CPUPerOrder, r.Memory))
			if m := r.Machine; m.CPU > 0 {
				row("The machine", fmt.Sprintf("%.2f cores at work, %.2f given to others by its host", m.CPU, m.Stolen))
			}
			if k := r.Kafka; k != nil {
				row("Kafka's container", fmt.Sprintf("%.2f cores, %.0f us an order, %.0f MiB", k.CPU, k.CPUPerOrder, k.Memory))
			}
			atRest(r, row)
		})
	}
	return cmd
}

// atRest says what does not come of orders.
func atRest(r *bench.Report, row func(...any)) {
	row("All owned", fmt.Sprintf("%d partitions after %.2f s", r.Partitions, r.Owned))
	row("Connections", fmt.Sprintf("%d to Kafka", r.Connections))
	if i := r.Idle; i != nil {
		row("Idle", fmt.Sprintf("%.3f cores, %.1f requests/s, %.0f MiB, for %.0f s", i.CPU, i.Requests, i.Memory, i.Seconds))
		if k := i.Kafka; k != nil {
			row("Kafka's container, then", fmt.Sprintf("%.3f cores, %.0f MiB", k.CPU, k.Memory))
		}
	}
}

// profiled begins a processor profile, and one of allocations, of those whose file is not "".
// Stop ends and keeps them.
func profiled(cpu, allocations string) (stop func() error, err error) {
	ends := make([]func() error, 0, 2)
	stop = func() error {
		var failed error
		for _, end := range ends {
			failed = errors.Join(failed, end())
		}
		return failed
	}
	if allocations != "" {
		out, err := os.Create(allocations)
		if err != nil {
			return nil, usageError{fmt.Errorf("--allocation-profile: %w", err)}
		}
		ends = append(ends, func() error {
			runtime.GC() // what was allocated since the last one is told only then
			return errors.Join(pprof.Lookup("allocs").WriteTo(out, 0), out.Close())
		})
	}
	if cpu != "" {
		out, err := os.Create(cpu)
		if err != nil {
			return nil, errors.Join(usageError{fmt.Errorf("--cpu-profile: %w", err)}, stop())
		}
		if err := pprof.StartCPUProfile(out); err != nil {
			return nil, errors.Join(fmt.Errorf("--cpu-profile: %w", err), out.Close(), stop())
		}
		ends = append(ends, func() error {
			pprof.StopCPUProfile()
			return out.Close()
		})
	}
	return stop, nil
}

func printLadder(r *bench.Report, row func(...any)) {
	row("Broker", fmt.Sprintf("%s, %d partitions", r.Broker, r.Partitions))
	row("Orders", r.Describe())
	row()
	row("ORDERS/S", "REACHED", "P50 MS", "P90 MS", "P99 MS", "MAX MS", "FAILED", "US/ORDER", "KAFKA'S", "REQUESTS/ORDER", "TXNS/ORDER", "MARKERS/ORDER", "MIB", "KAFKA'S")
	for _, g := range r.Rungs {
		kafkaCPU, kafkaMemory := "-", "-"
		if g.Kafka != nil {
			kafkaCPU, kafkaMemory = amount("%.0f", g.Kafka.CPUPerOrder), amount("%.0f", g.Kafka.Memory)
		}
		row(amount("%g", g.Rate), fmt.Sprintf("%.1f", g.Reached), amount("%.1f", g.P50), amount("%.1f", g.P90), amount("%.1f", g.P99), amount("%.1f", g.Max),
			g.Failed, amount("%.0f", g.CPUPerOrder), kafkaCPU, amount("%.2f", g.RequestsAnOrder), amount("%.2f", g.TransactionsAnOrder),
			amount("%.2f", g.MarkersAnOrder), amount("%.0f", g.Memory), kafkaMemory, verdict(&g))
	}
	if r.Consoles > 0 {
		row()
		row("ORDERS/S", "PAGES/S", "P50 MS", "P99 MS")
		for _, g := range r.Rungs {
			row(amount("%g", g.Rate), amount("%.1f", g.Pages.PerSecond), amount("%.1f", g.Pages.P50), amount("%.1f", g.Pages.P99))
		}
	}
	for _, rate := range r.LeftOut {
		row(fmt.Sprintf("%g", rate), "left out: what had arrived before did not end")
	}
}

// amount is a dash of what could not be measured.
func amount(format string, n float64) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprintf(format, n)
}

// verdict says of a rung that the machine did not carry what came of it.
func verdict(g *bench.Rung) string {
	if g.Carried {
		return ""
	}
	said := fmt.Sprintf("not carried: %d orders were open when it began to be measured, %d at the end", g.BacklogBefore, g.Backlog)
	if g.Cut {
		said = fmt.Sprintf("not carried: arrivals ceased with %d orders open", g.Backlog)
	}
	if g.Unfinished > 0 {
		return said + fmt.Sprintf(", %d of those measured still were after %.0f s: latencies are at least these", g.Unfinished, g.Settled)
	}
	return said + fmt.Sprintf(", for %.1f s", g.Settled)
}
