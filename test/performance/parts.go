package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/waybill-dev/waybill/internal/bench"
)

// part is a measurement, of which each run has all variants.
type part struct {
	name, title string
	kafka       bool
	args        string
	variants    []string
	columns     []string
	// profile are the arguments of the run of which it is kept where the time goes, if it is, or what allocates.
	profile   string
	allocates bool
	// learn is what its user learns from it.
	learn string
}

func (p *part) each() (all []part) {
	if len(p.variants) == 0 {
		return []part{*p}
	}
	for _, v := range p.variants {
		one := *p
		one.args += " " + v
		all = append(all, one)
	}
	return all
}

var (
	loaded = []string{"orders/s", "p50 ms", "p99 ms", "cores", "us/order", "MiB", "Kafka's cores", "Kafka's us/order", "Kafka's MiB", "the machine's cores", "produce requests/order", "transactions/order"}
	rested = []string{"all owned s", "connections", "idle: cores", "idle: requests/s", "idle: MiB", "idle: Kafka's cores", "idle: Kafka's MiB"}
	again  = []string{"owned again s", "owned without state s", "rebuilt records", "rebuilt records/s"}
	alone  = []string{"one at a time: p50 ms", "one at a time: p99 ms"}
	paced  = []string{"reached orders/s", "p50 ms", "p99 ms", "cores", "us/order", "MiB", "Kafka's cores", "Kafka's us/order", "Kafka's MiB", "the machine's cores", "produce requests/order", "transactions/order", "markers/order"}
)

const (
	brief = "--duration 8s --single 200"
	short = "--warm-up 3s " + brief
	rates = "--warm-up 3s --duration 10s --rates 10,50,100,250,500,1000,2000,4000"
	// resting is as little load as can be behind it.
	resting = "--idle 20s --warm-up 10s --duration 1s --single 1 --in-flight 1"
	shared  = paceOf500 + " --partitions 8"
	// paceOf500 is the rate at which an order's processor time is aimed at.
	paceOf500 = "--warm-up 3s --duration 10s --rates 500"
	// paceOf4000 is the highest rate whose latency is aimed at, and oneByOne an order after the other.
	paceOf4000 = "--warm-up 3s --duration 10s --rates 4000"
	oneByOne   = "--warm-up 3s --duration 10s --in-flight 1 --single 1"
)

// pipes are as many writers as there are lanes, and one for one partition.
var pipes = []string{"--pipe 4", "--pipe 1 --partitions 1"}

var parts = []part{
	{
		name: "full", title: "As much as goes: embedded", columns: append(loaded, alone...), profile: "--in-flight 1024",
		learn: "1,024 orders are under way all the time, so the latency is that of a full house: orders under way, divided by orders a second. One at a time says what an order takes that nobody else is before.",
	},
	{
		name: "fsync", title: "As much as goes: embedded, with `--fsync`", args: "--fsync --single 200", columns: append(loaded, alone...),
		learn: "What is acknowledged is on the disk. One flush serves all who wait ([ADR 0022](adr/0022-one-flush-for-all-that-wait.md)), so an order that is alone waits for a flush a commit, and those of a full house share them. The disk decides: another machine has other figures.",
	},
	{
		name: "allocations", title: "What allocates: embedded", args: short + " --in-flight 1024", columns: loaded, profile: short + " --in-flight 1024", allocates: true,
		learn: "As much as goes once more, without `--fsync` and for a shorter time: what of the process allocates memory.",
	},
	{
		name: "full-kafka", title: "As much as goes: Apache Kafka", kafka: true, columns: append(loaded, alone...), profile: "--in-flight 1024",
		learn: "The same beside a Kafka that has the same two cores: `us/order` is the processor time of Waybill, its agents and its callers, and Kafka's stands beside it where it was measured.",
	},
	{
		name: "alone", title: "One at a time: embedded", args: oneByOne, columns: loaded, profile: oneByOne,
		learn: "The next order is submitted when one has ended, for ten seconds: what an order takes, and of whom, when nobody else asks for anything.",
	},
	{name: "alone-kafka", title: "One at a time: Apache Kafka", kafka: true, args: oneByOne, columns: loaded, profile: oneByOne, learn: "The same on Kafka."},
	{
		name: "pipe", title: "The limit: the same records, and no decisions", variants: pipes, columns: append(loaded, alone...),
		learn: "`--pipe` writes the records of orders with Waybill's own readers and producers, without a state or a decision. What is between this and the figures above is what Waybill's deciding and its store cost; the rest are Kafka's client and broker, agents and callers.",
	},
	{name: "pipe-kafka", title: "The limit on Apache Kafka", kafka: true, variants: pipes, columns: append(loaded, alone...), learn: "The same on Kafka."},
	{
		name: "ladder", title: "At a rate: embedded, 4 partitions", args: rates, columns: paced, profile: paceOf500,
		learn: "Orders arrive at a rate, whatever becomes of those before; a latency is from when an order was due. This is what an application sees.",
	},
	{
		name: "top", title: "At 4,000 orders/s: embedded, 4 partitions", args: paceOf4000, columns: paced, profile: paceOf4000,
		learn: "The highest rate whose latency is aimed at, once more: where the time goes.",
	},
	{
		name: "above", title: "At a rate above those: embedded, 4 partitions", args: "--warm-up 3s --duration 10s --rates 8000", columns: paced,
		learn: "What a moment brings that has more than the rates before: goals are for those.",
	},
	{
		name: "pipe-ladder", title: "The limit at a rate: embedded", args: "--warm-up 3s --duration 10s --rates 500,4000 --pipe 4", columns: paced,
		learn: "The same rates, for writers that decide nothing. They do not take turns to commit, as lanes do.",
	},
	{
		name: "consoles", title: "Consoles that are open: embedded, 4 partitions, 2,000 orders/s", args: "--warm-up 12s --duration 20s --rates 2000", variants: []string{"--consoles 0", "--consoles 200"},
		columns: append(paced, "pages/s", "a page: p50 ms", "a page: p99 ms"),
		learn:   "So many browsers have the console's first page, or the list of orders, before them, which are fetched again every ten seconds. What they cost is what differs; the browsers, but for what they draw, are in it.",
	},
	{
		name: "ladder-kafka", title: "At a rate: Apache Kafka, 8 partitions", kafka: true, args: rates + " --partitions 8", columns: paced, profile: paceOf500 + " --partitions 8",
		learn: "Lanes take turns to commit where that is the quicker for it ([ADR 0023](adr/0023-lanes-take-turns-to-commit.md)).",
	},
	{
		name: "top-kafka", title: "At 4,000 orders/s: Apache Kafka, 8 partitions", kafka: true, args: paceOf4000 + " --partitions 8", columns: paced, profile: paceOf4000 + " --partitions 8",
		learn: "The highest rate whose latency is aimed at, once more: where the time of Waybill, its agents and its callers goes. Kafka's is beside it.",
	},
	{
		name: "fewer-kafka", title: "At a rate, with fewer partitions: Apache Kafka", kafka: true, args: "--warm-up 3s --duration 10s --rates 100,500,4000", variants: []string{"--partitions 1", "--partitions 4"}, columns: paced,
		learn: "Fewer partitions are fewer lanes, whose transactions are the larger.",
	},
	{
		name: "together-kafka", title: "Several lanes in a transaction: Apache Kafka, 8 partitions, 500 orders/s", kafka: true, args: shared, variants: []string{"--pipe 8", "--pipe 4", "--pipe 2", "--pipe 1"}, columns: paced,
		learn: "Waybill has one transaction for each lane. This is what it would gain, at most, if lanes shared them: so many writers of the same records, each with a transaction for its partitions. They do not take turns, as lanes do.",
	},
	{
		name: "partitions", title: "Partitions: embedded", args: short, variants: []string{"--partitions 1", "--partitions 16", "--partitions 64", "--partitions 64 --in-flight 16384", "--partitions 256"}, columns: loaded, profile: short + " --partitions 64",
		learn: "Each partition is a lane with transactions of its own. More of them than an instance needs make batches smaller, unless there is more under way to fill them.",
	},
	{
		name: "partitions-kafka", title: "Partitions: Apache Kafka", kafka: true, args: "--warm-up 20s " + brief, variants: []string{"--partitions 1", "--partitions 8", "--partitions 16", "--partitions 64", "--partitions 256"}, columns: loaded, profile: "--warm-up 20s " + brief + " --partitions 64",
		learn: "The same on Kafka, once it knows the new topics: 64 of them carry far less in their first seconds.",
	},
	{
		name: "resting", title: "Partitions at rest: embedded", args: resting, variants: []string{"--partitions 4", "--partitions 64", "--partitions 256", "--partitions 64 --instances 3"}, columns: rested,
		learn: "How long instances take until they own all partitions, which are new, and are ready, how many connections the process has in the end, and what it costs while there is nothing to do: the instances, three agents, a caller and the broker. Each instance follows the partitions of the others.",
	},
	{
		name: "resting-kafka", title: "Partitions at rest: Apache Kafka", kafka: true, args: resting, variants: []string{"--partitions 4", "--partitions 64", "--partitions 256"}, columns: rested,
		learn: "The same on Kafka, whose topics are new: it makes them while the instance comes to own them.",
	},
	{
		name: "resting-beside", title: "At rest beside what waits, and with followers: embedded", args: resting,
		variants: []string{"--partitions 4", "--partitions 4 --waiting 100000", "--partitions 64", "--partitions 64 --instances 2", "--partitions 64 --instances 2 --standby owned"}, columns: rested,
		learn: "What it costs that 100,000 orders wait of which nothing is due, the supervisor's looks among it and what is left of writing them, and what a second instance asks that follows all partitions, and one that does not. The memory beside what waits is that of its moment: what waits leaves it in time ([ADR 0049](adr/0049-states-on-the-way-are-written-ten-times-a-second.md)).",
	},
	{
		name: "again", title: "Owning all again: embedded", args: short + " --rebuild", variants: []string{"--partitions 4", "--partitions 64", "--partitions 256"}, columns: again,
		learn: "An instance that carried 1,024 orders at a time stops in order when the last has ended, and starts again: how long until it owns all partitions and is ready, with its state, and then with none, which it makes anew from the journal, of whatever was carried before.",
	},
	{
		name: "http", title: "Orders over HTTP: embedded, 4 partitions", args: "--warm-up 3s --duration 10s --rates 100,1000,2000", variants: []string{"", "--http"}, columns: paced,
		learn: "Each order is a request of its own to the HTTP API of the instance (`--http`), which answers when the order can be read; the latencies are to the order's end, as those of the orders on Kafka beside it. A submission over HTTP comes to the embedded broker through memory, as all that instances write, the other through the network.",
	},
	{
		name: "instances", title: "Instances: embedded, 12 partitions", args: short + " --partitions 12", variants: []string{"--instances 1", "--instances 3", "--instances 3 --standby owned"}, columns: loaded,
		learn: "Each instance follows what the others decide, unless it keeps only its own partitions (`--standby owned`): on one machine this says what that costs.",
	},
	{
		name: "shapes", title: "Other orders: embedded", args: short, columns: loaded,
		variants: []string{"--steps 1", "--steps 10", "--parallel", "--payload 200", "--payload 2000", "--payload 20000", "--compensate 10", "--retries 10"},
		learn:    "What a step, a large input, an undo and a retry cost. A retry follows 100 ms after what failed, and the next look of the supervisor after that, up to a quarter of a second later.",
	},
	{
		name: "waiting", title: "Orders that wait, and a lost state: embedded", args: short + " --waiting 100000 --rebuild", columns: append(loaded, "rebuilt records/s"),
		learn: "100,000 orders wait for an agent that is not there while others are measured. Then the instance loses its state and makes it again from the journal.",
	},
}

func render(found map[string]*measured) string {
	var b strings.Builder
	row := func(cells ...string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	b.WriteString("# Performance\n\nWritten by `make performance`; the next run writes it again. Each part leaves its runs in [performance](performance), as\n" +
		"`waybill bench -o json` said them, and can be run alone: `make performance PERFORMANCE=ladder`. `waybill bench compare` holds\nwhat `jq '.runs[]'` makes of two such files against each other.\n\n" +
		"Each figure is the median of the runs, and in brackets from where to where they went. The parts of one run of the command\n" +
		"are run in turn, each in a process of its own. Those that name another commit, date or machine ran at another time, when\n" +
		"even the same machine may have been half or twice as fast: hold no figures of one against the other. Everything runs on one\n" +
		"machine: callers, one instance unless it says otherwise, three agents, and the broker. Orders have three remote steps of\n" +
		"agents that answer at once, unless it says otherwise. Agents and callers come to the embedded broker through the network,\n" +
		"and instances through memory; Kafka is in a container on the machine's own network, but where the commit is one of before\n" +
		"ccd775bf: there Docker's proxy stood before it, which takes a third of a core. What is measured and how:\n" +
		"[ADR 0021](adr/0021-load-is-measured-from-when-orders-are-due.md).\n\n")
	all := machines(found)
	if len(all) > 0 {
		b.WriteString("The machines, of which each part below names its own:\n\n")
		for n, m := range all {
			b.WriteString("- " + letter(n) + ": " + m + "\n")
		}
		b.WriteString("\n")
	}
	if len(found) > 0 {
		b.WriteString("## What was aimed at\n\n" + wrap("The median of each is held against what it was meant to be; the worst of them where there are several.") + "\n\n")
		aims(found, all, row)
		b.WriteString("\n")
	}
	for _, p := range parts {
		f := found[p.name]
		if f == nil {
			continue
		}
		command := "make performance PERFORMANCE='^" + p.name + "$'"
		fmt.Fprintf(&b, "## %s\n\n%s\n\n", p.title, wrap(p.learn))
		runs := table(bench.Summarize(f.Runs), p.columns, row)
		fmt.Fprintf(&b, "\n%s. %s: %d runs. `%s`\n\n", f.when(all), f.software(), runs, command)
		if f.Profile != "" {
			what, flag, each, head := "Where the processor time of its process goes", "--cpu-profile FILE ", "Each moment", []string{"what works", "% of that time"}
			if p.allocates {
				what, flag, each, head = "What its process allocates", "--allocation-profile FILE ", "Each allocation", []string{"what allocates", "% of the bytes"}
			}
			fmt.Fprintf(&b, "%s, in another run (`%s`), from its start to its end:\n\n", what, strings.TrimSpace(flag+f.ProfileOf))
			if len(f.Shares) > 0 {
				b.WriteString(wrap(each+" is that of the innermost of these on its stack, but of Pebble's work beside, of garbage and of the embedded broker wherever they stand. Kafka's client is that of agents and callers, too.") + "\n\n")
				row(head...)
				row("---", "---:")
				for _, k := range f.Shares {
					row(k.Of, fmt.Sprintf("%.1f", k.Percent))
				}
				b.WriteString("\n")
			}
			fmt.Fprintf(&b, "```\n%s\n```\n\n", f.Profile)
		}
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// table has a row for each setting, and returns of how many runs each is. What nothing was
// measured of has no column, and a setting of which no column is has no row.
func table(all []bench.Summary, columns []string, row func(...string)) (runs int) {
	columns = slices.DeleteFunc(slices.Clone(columns), func(c string) bool {
		return !slices.ContainsFunc(all, func(s bench.Summary) bool { _, there := s.Figures[c]; return there })
	})
	row(append([]string{""}, columns...)...)
	row(append([]string{"---"}, slices.Repeat([]string{"---:"}, len(columns))...)...)
	for _, s := range all {
		if !slices.ContainsFunc(columns, func(c string) bool { _, there := s.Figures[c]; return there }) {
			continue
		}
		cells := []string{s.Setting}
		if carried, ok := s.Figures["carried"]; ok && carried.Min < 1 {
			cells[0] += " (not carried in each run)"
		}
		for _, c := range columns {
			cells = append(cells, spread(s.Figures, c))
		}
		row(cells...)
		runs = s.Runs
	}
	return runs
}

// machines are those on which something was measured, in the order of the page.
func machines(found map[string]*measured) (all []string) {
	for _, p := range parts {
		if f := found[p.name]; f != nil && !slices.Contains(all, f.Machine) {
			all = append(all, f.Machine)
		}
	}
	return all
}

// letter is by what the page calls a machine.
func letter(n int) string { return string(rune('A' + n)) }

// when says of what day, machine and commit the figures are.
func (f *measured) when(machines []string) string {
	return f.Date + ", machine " + letter(slices.Index(machines, f.Machine)) + ", commit " + f.Commit
}

// software are the versions of what is not Waybill's.
func (f *measured) software() string {
	if f.Kafka == "" {
		return f.Versions
	}
	return f.Versions + ", " + f.Kafka
}

// spread is a dash of what was not measured.
func spread(all map[string]bench.Spread, figure string) string {
	s, ok := all[figure]
	if !ok {
		return "-"
	}
	return fmt.Sprintf("%s (%s to %s)", number(s.Median), number(s.Min), number(s.Max))
}

// number has three digits, or all of a whole number.
func number(n float64) string {
	switch {
	case n >= 100:
		return fmt.Sprintf("%.0f", n)
	case n >= 10:
		return fmt.Sprintf("%.1f", n)
	default:
		return fmt.Sprintf("%.2f", n)
	}
}

// wrap breaks a text into lines of at most 120 bytes.
func wrap(text string) string {
	var b strings.Builder
	length := 0
	for word := range strings.FieldsSeq(text) {
		switch {
		case length == 0:
		case length+1+len(word) > 120:
			b.WriteByte('\n')
			length = 0
		default:
			b.WriteByte(' ')
			length++
		}
		b.WriteString(word)
		length += len(word)
	}
	return b.String()
}
