package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/waybill-dev/waybill/internal/bench"
)

// goal is what was aimed at. Limit is the part in which the same records are moved without any
// decision, if that was measured.
type goal struct {
	what, part, limit string
	figure            string // or a sum of them
	above             bool   // and not below
	want              float64
	// setting selects what counts, and why says what stands between the goal and what was
	// reached.
	setting string
	why     reason
	// whyAt is the setting of which why speaks, where the worst of several is looked for.
	whyAt string
}

// reason is why a goal is not reached: sentences, of which those are left out that speak of
// what was not measured.
type reason []sentence

// sentence is a format of the medians of which it speaks.
type sentence struct {
	text    string
	figures []figure
}

// figure is one of a part, with a setting.
type figure struct{ part, setting, name string }

// top is the setting of the last rung of the ladders.
const top = " 4000 orders/s"

// The reasons, as far as they were measured: docs/scale.md has the requests of an order, and what was tried.
var (
	moved = reason{
		{"Writers that decide nothing take %s us of processor an order for the same records, of %s; the rest is all that Waybill adds.", []figure{
			{"pipe", "4 writers", "us/order"}, {"full", "", "us/order"},
		}},
	}
	flushed = reason{
		{"A flush serves all who wait; without `--fsync` it is %s.", []figure{{"full", "", "orders/s"}}},
	}
	topKafka = reason{
		{"The machine is full: %s of its cores are at work.", []figure{{"full-kafka", "", "the machine's cores"}}},
		{"An order takes %s us of processor, and %s of Kafka; of four writers that decide nothing %s, and %s of Kafka.", []figure{
			{"full-kafka", "", "us/order"}, {"full-kafka", "", "Kafka's us/order"}, {"pipe-kafka", "4 writers", "us/order"}, {"pipe-kafka", "4 writers", "Kafka's us/order"},
		}},
	}
	perLaneEmbedded = reason{
		{"Each lane has transactions of its own: the fewer orders a lane has, the more transactions and requests an order takes.", nil},
		{"With 16,384 under way it is %s.", []figure{{"partitions", " 64 partitions, 1 instances, 3 steps, 16384", "orders/s"}}},
	}
	perLaneKafka = reason{
		{"Each lane has transactions of its own, and the fewer orders a lane has, the more of them an order takes: %s, and %s with 16 partitions.", []figure{{"partitions-kafka", " 64 partitions", "transactions/order"}, {"partitions-kafka", " 16 partitions", "transactions/order"}}},
		{"One partition carries %s, 16 carry %s.", []figure{{"partitions-kafka", ", 1 partitions", "orders/s"}, {"partitions-kafka", " 16 partitions", "orders/s"}}},
	}
	atARate = reason{
		{"It is that of 4,000 orders/s, where %s of the machine's cores are at work: a transaction carries few records, and takes as many requests as a full one.", []figure{{"ladder", top, "the machine's cores"}}},
		{"An order takes %s us of processor and %s transactions there, and in a full house %s us and %s transactions.", []figure{
			{"ladder", top, "us/order"}, {"ladder", top, "transactions/order"}, {"full", "", "us/order"}, {"full", "", "transactions/order"},
		}},
		{"Writers that decide nothing have p50 %s ms and p99 %s ms.", []figure{{"pipe-ladder", top, "p50 ms"}, {"pipe-ladder", top, "p99 ms"}}},
		{"[Where the %s us go](#at-4000-orderss-embedded-4-partitions) that an order takes on the machine named there.", []figure{{"top", "", "us/order"}}},
	}
	costAtARate = reason{
		{"%s transactions and %s produce requests an order, as one that is alone takes; in a full house it is %s us.", []figure{
			{"ladder", " 500 orders/s", "transactions/order"}, {"ladder", " 500 orders/s", "produce requests/order"}, {"full", "", "us/order"},
		}},
		{"Writers that decide nothing take %s us.", []figure{{"pipe-ladder", " 500 orders/s", "us/order"}}},
	}
	atARateKafka = reason{
		{"It is that of 4,000 orders/s, where %s of the machine's cores are at work; with one partition it is %s and %s ms.", []figure{
			{"ladder-kafka", top, "the machine's cores"}, {"fewer-kafka", ", 1 partitions, 1 instances, 3 steps, 4000 orders/s", "p50 ms"}, {"fewer-kafka", ", 1 partitions, 1 instances, 3 steps, 4000 orders/s", "p99 ms"},
		}},
		{"As much as goes, 8 partitions carry %s.", []figure{{"partitions-kafka", " 8 partitions", "orders/s"}}},
		{"At 500 orders/s p50 is %s ms, and %s ms with one partition.", []figure{{"ladder-kafka", " 500 orders/s", "p50 ms"}, {"fewer-kafka", ", 1 partitions, 1 instances, 3 steps, 500 orders/s", "p50 ms"}}},
		{"[Where the %s us go](#at-4000-orderss-apache-kafka-8-partitions) that an order takes on the machine named there, beside %s of Kafka.", []figure{{"top-kafka", "", "us/order"}, {"top-kafka", "", "Kafka's us/order"}}},
	}
	costAtARateKafka = reason{
		{"%s transactions and %s produce requests an order ([all requests](scale.md#what-an-order-asks-of-kafka)).", []figure{
			{"ladder-kafka", " 500 orders/s", "transactions/order"}, {"ladder-kafka", " 500 orders/s", "produce requests/order"},
		}},
		{"Writers that decide nothing take %s us, and Kafka beside them %s, if they are eight, and %s and %s if one writes for all lanes ([below](#several-lanes-in-a-transaction-apache-kafka-8-partitions-500-orderss), [ADR 0050](adr/0050-a-lane-has-its-transactions-for-itself.md)).", []figure{
			{"together-kafka", "8 writers", "us/order"}, {"together-kafka", "8 writers", "Kafka's us/order"}, {"together-kafka", "1 writers", "us/order"}, {"together-kafka", "1 writers", "Kafka's us/order"},
		}},
	}
	followed      = sentence{"Each of four transactions, one after the other, is to be written, ended and read, by whoever writes.", nil}
	aloneEmbedded = reason{followed, {"[Where the %s us of processor go](#one-at-a-time-embedded) that it takes on the machine named there.", []figure{{"alone", "", "us/order"}}}}
	aloneKafka    = reason{followed, {"[Where the %s us of processor go](#one-at-a-time-apache-kafka) that it takes on the machine named there, beside %s of Kafka.", []figure{{"alone-kafka", "", "us/order"}, {"alone-kafka", "", "Kafka's us/order"}}}}
)

// said is the reason with what was measured.
func (r reason) said(found map[string]*measured) string {
	var all []string
	for _, s := range r {
		if values, ok := medians(s.figures, found); ok {
			all = append(all, fmt.Sprintf(s.text, values...))
		}
	}
	return strings.Join(all, " ")
}

// medians are false if one of them was not measured.
func medians(figures []figure, found map[string]*measured) (values []any, ok bool) {
	for _, f := range figures {
		value, _, ok := (&goal{figure: f.name, setting: f.setting}).reached(found[f.part])
		if !ok {
			return nil, false
		}
		values = append(values, number(value))
	}
	return values, true
}

var goals = []goal{
	{what: "top rate, embedded, orders/s", part: "full", limit: "pipe", figure: "orders/s", above: true, want: 25_000, setting: ", 4 partitions", why: moved},
	{what: "top rate, Kafka, orders/s", part: "full-kafka", limit: "pipe-kafka", figure: "orders/s", above: true, want: 12_000, setting: ", 4 partitions", why: topKafka},
	{what: "top rate, embedded with `--fsync`, orders/s", part: "fsync", figure: "orders/s", above: true, want: 10_000, why: flushed},
	{what: "64 partitions, embedded, orders/s", part: "partitions", figure: "orders/s", above: true, want: 15_000, setting: "64 partitions, 1 instances, 3 steps, 1024", why: perLaneEmbedded},
	{what: "64 partitions, Kafka, orders/s", part: "partitions-kafka", figure: "orders/s", above: true, want: 6_000, setting: "64 partitions", why: perLaneKafka},
	{what: "one at a time, embedded: p50 ms", part: "full", limit: "pipe", figure: "one at a time: p50 ms", want: 0.9, setting: ", 4 partitions", why: aloneEmbedded},
	{what: "one at a time, embedded: p99 ms", part: "full", limit: "pipe", figure: "one at a time: p99 ms", want: 2.5, setting: ", 4 partitions", why: aloneEmbedded},
	{what: "one at a time, Kafka: p50 ms", part: "full-kafka", limit: "pipe-kafka", figure: "one at a time: p50 ms", want: 7, setting: ", 4 partitions", why: aloneKafka},
	{what: "one at a time, Kafka: p99 ms", part: "full-kafka", limit: "pipe-kafka", figure: "one at a time: p99 ms", want: 15, setting: ", 4 partitions", why: aloneKafka},
	{what: "at rates to 4,000 orders/s, embedded: worst p50 ms", part: "ladder", figure: "p50 ms", want: 8, why: atARate, whyAt: top},
	{what: "at rates to 4,000 orders/s, embedded: worst p99 ms", part: "ladder", figure: "p99 ms", want: 25, why: atARate, whyAt: top},
	{what: "at rates to 4,000 orders/s, Kafka: worst p50 ms", part: "ladder-kafka", figure: "p50 ms", want: 40, why: atARateKafka, whyAt: top},
	{what: "at rates to 4,000 orders/s, Kafka: worst p99 ms", part: "ladder-kafka", figure: "p99 ms", want: 120, why: atARateKafka, whyAt: top},
	{what: "processor an order at 500 orders/s, embedded, us", part: "ladder", limit: "pipe-ladder", figure: "us/order", want: 400, setting: " 500 orders/s", why: costAtARate},
	{what: "processor an order at 500 orders/s, Kafka and its own, us", part: "ladder-kafka", figure: "us/order + Kafka's us/order", want: 1000, setting: " 500 orders/s", why: costAtARateKafka},
}

// reached is the worst of the medians that count, with its setting, and false if none was measured.
func (g *goal) reached(f *measured) (value float64, setting string, ok bool) {
	if f == nil {
		return 0, "", false
	}
	for _, s := range bench.Summarize(f.Runs) {
		sum, all := 0.0, strings.Contains(s.Setting, g.setting)
		for name := range strings.SplitSeq(g.figure, " + ") {
			figure, there := s.Figures[name]
			sum, all = sum+figure.Median, all && there
		}
		if all && (!ok || g.above == (sum < value)) {
			value, setting, ok = sum, s.Setting, true
		}
	}
	return value, setting, ok
}

// aims says what was aimed at, what became of it, when and where, and why.
func aims(found map[string]*measured, machines []string, row func(...string)) {
	row("aimed at", "goal", "measured", "moved by writers that decide nothing", "date", "commit", "machine", "what is in between")
	row("---", "---:", "---:", "---:", "---", "---", "---", "---")
	for _, g := range goals {
		f := found[g.part]
		value, worst, ok := g.reached(f)
		if !ok {
			continue
		}
		limit, why := "-", g.why.said(found)
		if l, _, ok := g.reached(found[g.limit]); ok {
			limit = number(l)
			if other := found[g.limit]; other.when(machines) != f.when(machines) {
				limit += " (" + other.when(machines) + ")"
			}
		}
		switch {
		case g.above == (value >= g.want):
			why = "reached"
		case !strings.Contains(worst, g.whyAt):
			why = "It is that of: " + worst + "."
		}
		row(g.what, number(g.want), number(value), limit, f.Date, f.Commit, letter(slices.Index(machines, f.Machine)), why)
	}
}
