//go:build unix

package chaos

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/reliability"
)

// report leaves what was done, and what came of it.
func (f *findings) report(r *run) {
	figures := append(f.counts(r), reliability.Figure{Name: "faults", Value: f.faults(r)}, reliability.Figure{Name: "how long", Value: f.times()})
	text, err := json.MarshalIndent(figures, "", "  ")
	if err != nil {
		r.Error(err)
	}
	r.Logf("%s", text)
	omitted := ""
	if r.without != nil {
		omitted = fmt.Sprintf(" WITHOUT='%s'", r.without)
	}
	reliability.Write(r.T, fmt.Sprintf("chaos-%d", r.brokers),
		fmt.Sprintf("make chaos BROKERS=%d DURATION=%s SEED=%d RATE=%g%s", r.brokers, r.duration, r.seed, r.rate, omitted), figures)
}

func (f *findings) counts(r *run) reliability.Figures {
	died, swallowed, wrong, far := 0, 0, 0, 0
	for _, i := range r.instances {
		died += i.died
		swallowed += i.network.swallowed()
		for _, s := range i.starts {
			if s.offset != 0 {
				wrong++
			}
			if s.offset.Abs() > allowance {
				far++
			}
		}
	}
	network := 0
	for _, d := range r.faults {
		if slices.Contains([]kind{cut, deafen, mute, slow, swallow}, d.Kind) {
			network++
		}
	}
	return reliability.Figures{
		{Name: "seed", Value: r.seed},
		{Name: "lost", Value: len(f.lost)},
		{Name: "doubled", Value: len(f.doubled)},
		{Name: "stuck", Value: len(f.stuck)},
		{Name: "other rules broken", Value: len(f.broken)},
		{Name: "Kafka", Value: kafka.Image},
		{Name: "session time-out", Value: r.session.String()},
		{Name: "faults for", Value: r.duration.String()},
		{Name: "until all was ready and every order had ended", Value: r.ended.Sub(r.calm).Round(time.Second).String()},
		{Name: "orders", Value: r.load.Acked()},
		{Name: "submissions that were tried again", Value: r.load.Again()},
		{Name: "events in the journal", Value: f.events},
		{Name: "requests to agents", Value: f.requests},
		{Name: "inputs that were accounted for", Value: f.books.Accounts.Inputs},
		{Name: "records that were forwarded to their partition", Value: f.books.Accounts.Forwarded},
		{Name: "messages to callers and alerts that came twice, since Kafka lost the end of a transaction", Value: len(f.books.Repeated)},
		{Name: "callers' topics that were given up", Value: f.diverted},
		{Name: "batches that took too much memory, and were put aside", Value: f.zeros},
		{Name: "signals that overtook their order from another partition, and were put aside", Value: f.overtook},
		{Name: "submissions that were cut short, and put aside", Value: f.garbled},
		{Name: "times that one was put back, mended", Value: f.mended},
		{Name: "partitions that were added to each input", Value: r.widened},
		{Name: "ticks of schedules", Value: f.ticked},
		{Name: "ticks that began an order", Value: f.begun},
		{Name: "places of a limit that were given", Value: f.granted},
		{Name: "attempts that waited for one", Value: f.awaited},
		{Name: "requests that were deleted with their topic", Value: f.books.Gone},
		{Name: "calls of the agents' services", Value: r.service.Calls()},
		{Name: "commands of operators", Value: r.office.Count()},
		{Name: "claims of partitions", Value: f.claims},
		{Name: "instances that woke up when others owned their partitions", Value: f.woken.instances},
		{Name: "instances that reached Kafka again when others owned their partitions", Value: f.reached.instances},
		{Name: "partitions that a zombie came back to", Value: f.woken.partitions + f.reached.partitions},
		{Name: "faults of the network", Value: network},
		{Name: "answers to commits that were swallowed", Value: swallowed},
		{Name: "commits whose outcome was unknown", Value: f.unknown},
		{Name: "transactions that hung, and were ended", Value: f.said[hungAndEnded]},
		{Name: "starts with a wrong clock", Value: wrong},
		{Name: fmt.Sprintf("starts with a clock that is wrong by more than the allowance of %s, up to %s", allowance, furthest), Value: far},
		{Name: "attempts that expired early by such a clock", Value: f.early},
		{Name: "state stores that were found damaged, and rebuilt by themselves", Value: f.said["the state store is set aside and rebuilt from the journal"] +
			f.said["the state store is damaged; it is removed and rebuilt from the journal"]},
		{Name: "lanes that ended and took their partition over again", Value: f.said["the lane ended; taking the partition over again"]},
		{Name: "instances that ended without being told to, and were started again", Value: died},
		{Name: "instances that did not end well within 30 s of SIGTERM", Value: r.forced},
	}
}

// faults says how often each kind was inflicted.
func (f *findings) faults(r *run) (rows reliability.Figures) {
	dealt := make(map[kind]bool)
	for target := range targets {
		for _, c := range deckOf(target, r.brokers) {
			dealt[c.kind] = true
		}
	}
	for _, k := range kinds {
		n, left := 0, 0
		for _, d := range r.faults {
			switch {
			case d.Kind != k:
			case d.Left == "":
				n++
			default:
				left++
			}
		}
		switch times := any(n); {
		case !dealt[k]:
		case r.without != nil && r.without.MatchString(string(k)):
			rows = append(rows, reliability.Figure{Name: string(k), Value: "left out"})
		case left > 0:
			times = fmt.Sprintf("%d, left out %d times", n, left)
			fallthrough
		default:
			rows = append(rows, reliability.Figure{Name: string(k), Value: times})
		}
	}
	return rows
}

// times says how long it took to get over the faults.
func (f *findings) times() (rows reliability.Figures) {
	for _, m := range []struct {
		what string
		all  []time.Duration
	}{
		{"takeover of a partition: fencing its former owner", f.fences},
		{"takeover of a partition: until it is served", f.totals},
		{"from a kill until all partitions of the dead are served", f.afterKill},
		{"the same, for kills while Kafka was well", f.kafkaUp},
		{"from a SIGSTOP until others serve all partitions", f.afterFreeze},
		{"from a SIGTERM until all partitions are served", f.afterTerm},
		{"from Kafka's return until every partition has a new event", f.afterUp},
		{"longest silence of any partition: broker killed", f.quiet[brokerKill]},
		{"longest silence of any partition: broker restarted in good order", f.quiet[brokerRestart]},
		{"longest silence of any partition: broker paused", f.quiet[brokerPause]},
		{"longest silence of any partition: all brokers restarted, one after the other", f.quiet[rolling]},
	} {
		if len(m.all) > 0 {
			rows = append(rows, reliability.Figure{Name: m.what, Value: reliability.Times(m.all)})
		}
	}
	return rows
}
