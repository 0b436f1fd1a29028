//go:build unix

package process

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/leftout"
	"github.com/waybill-dev/waybill/test/reliability"
	"github.com/waybill-dev/waybill/test/world"
)

var (
	handOvers       = flag.Int("handovers", 0, "how many rounds TestHandOver measures; 0 leaves it out")
	handOverSession = flag.Duration("handover-session", 6*time.Second, "the instances' --session-timeout in TestHandOver")
	handOverOf      = flag.Int("handover-partitions", partitions, "how many partitions there are in TestHandOver")
	handOverPulse   = flag.Duration("handover-pulse", pulseEvery, "the time between two orders in TestHandOver, no more than a second")
	handOverWith    = flag.String("handover-with", "", "more flags of the instances in TestHandOver, with spaces between")
)

// TestHandOver measures what a change of owners costs, on Apache Kafka under
// load, and prints it. It fails when orders are lost, never because of a time:
//
//	go test -run '^TestHandOver$' -v ./test/process -args -handovers 20
func TestHandOver(t *testing.T) {
	if *handOvers == 0 {
		t.Skip(leftout.Prefix + "what a change of owners costs, because it measures for minutes; say how many rounds with -args -handovers")
	}
	if *handOverPulse <= 0 || *handOverPulse > time.Second {
		t.Fatalf("-handover-pulse %s: say a time of a second at most, and more than none", *handOverPulse)
	}
	c := newCluster(t, kafka.Container(t))
	c.createTopicsOf(*handOverOf)
	m := &measuring{cluster: c}
	one, two, three := m.serve("one"), m.serve("two"), m.serve("three")
	one.ready(one.client)
	registerPatient(t, one.http)
	c.agents()
	one.owned(one, two, three)
	m.during(three, "scale down", func() { three.stop(); one.owned(one, two) }) // warms up
	m.changes = nil

	load := startPulse(t, c)
	for range *handOvers {
		m.during(nil, "nothing", func() {})
		m.during(three, "scale up", func() { three.again(); three.ready(three.client); one.owned(one, two, three) })
		m.during(three, "scale down", func() { three.stop(); one.owned(one, two) })
		m.during(two, "rolling restart", func() { two.stop(); two.again(); two.ready(two.client); one.owned(one, two) })
		m.during(two, "kill", func() { two.kill(); one.owned(one) })
		m.during(two, "start after a kill", func() { two.again(); two.ready(two.client); one.owned(one, two) })
		m.during(two, "restart at once after a kill", func() { two.kill(); two.again(); two.ready(two.client); one.owned(one, two) })
	}
	ids := load.stop()
	one.processed(one.client, ids)
	c.books.check(ids)
	m.report()
	for _, s := range []*serve{one, two} {
		s.stop()
	}
}

// pulse submits orders to all partitions in turn, evenly, so that a pause shows.
type pulse struct {
	*testing.T
	client *kgo.Client
	ids    []string
	cease  context.CancelFunc
	ended  chan struct{}
}

// pulseEvery is the time between two orders, where nobody says another.
const pulseEvery = 5 * time.Millisecond

func startPulse(t *testing.T, c *cluster) *pulse {
	t.Helper()
	ctx, cease := context.WithCancel(t.Context())
	l := &pulse{T: t, client: c.broker.Client(t, kgo.ProducerLinger(0)), cease: cease, ended: make(chan struct{})}
	t.Cleanup(func() {
		cease()
		<-l.ended
	})
	go func() {
		defer close(l.ended)
		tick := time.NewTicker(*handOverPulse)
		defer tick.Stop()
		ids := turns{prefix: "o", from: make([]int, *handOverOf)}
		for ctx.Err() == nil {
			id := ids.next()
			l.ids = append(l.ids, id)
			// Not with ctx: what is still on its way when the pulse ends is an order too.
			l.client.Produce(t.Context(), &kgo.Record{Topic: c.topics.Orders, Key: []byte(id), Value: []byte(`{"workflow":"patient"}`)}, func(_ *kgo.Record, err error) {
				if err != nil {
					t.Errorf("submit %s: %v", id, err)
				}
			})
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}()
	return l
}

// turns are ids of orders, for all partitions in turn.
type turns struct {
	prefix string
	from   []int // by partition: where to look for the next id
	p      int
}

func (u *turns) next() string {
	byKey := kgo.StickyKeyPartitioner(nil).ForTopic("")
	p := u.p
	u.p = (p + 1) % len(u.from)
	for {
		id := fmt.Sprintf("%s-%05d", u.prefix, u.from[p])
		u.from[p]++
		if byKey.Partition(&kgo.Record{Key: []byte(id)}, len(u.from)) == p {
			return id
		}
	}
}

// stop returns the ids of all orders once Kafka has them.
func (l *pulse) stop() []string {
	l.Helper()
	if err := l.client.Flush(l.Context()); err != nil {
		l.Fatal(err)
	}
	l.cease()
	<-l.ended
	if err := l.client.Flush(l.Context()); err != nil {
		l.Fatal(err)
	}
	return l.ids
}

// measuring notes when owners changed, to look in journal and logs afterwards
// what that cost.
type measuring struct {
	*cluster
	instances []*serve
	logs      []*world.Log // of all processes, ended ones too
	changes   []change
}

// change is something that made partitions change their owner.
type change struct {
	what         string
	began, ended time.Time
}

func (m *measuring) serve(id string) *serve {
	m.Helper()
	s := m.cluster.serve(id, append([]string{"--session-timeout", handOverSession.String()}, strings.Fields(*handOverWith)...)...)
	m.instances = append(m.instances, s)
	m.logs = append(m.logs, s.log)
	return s
}

// during measures while do is done to an instance, and for a moment after it.
func (m *measuring) during(s *serve, what string, do func()) {
	m.Helper()
	m.change(s, what, func() {
		do()
		time.Sleep(2 * time.Second) // the load goes on meanwhile, and is what is measured
	})
}

// change measures while do is done to an instance.
func (m *measuring) change(s *serve, what string, do func()) {
	m.Helper()
	began := time.Now()
	do()
	if s != nil && s.log != m.logs[len(m.logs)-1] {
		m.logs = append(m.logs, s.log)
	}
	m.changes = append(m.changes, change{what, began, time.Now()})
}

// figures are durations of one kind.
type figures struct {
	change, what string
	all          []time.Duration
}

// report prints the figures, and leaves them for docs/reliability.md.
func (m *measuring) report() {
	m.Helper()
	rows := m.times(m.journal())
	reliability.Write(m, "takeover", fmt.Sprintf("make reliability PART=takeover HANDOVERS=%d", *handOvers), reliability.Figures{
		{Name: "session time-out", Value: handOverSession.String()},
		{Name: "rounds", Value: *handOvers},
		{Name: "partitions", Value: *handOverOf},
		{Name: "orders a second", Value: int(time.Second / *handOverPulse)},
		{Name: "times", Value: rows},
	})
}

// times prints what the changes cost, and returns it as a table.
func (m *measuring) times(decisions, claims map[int32][]time.Time) (rows reliability.Figures) {
	m.Helper()
	var all []*figures
	add := func(change, what string, d time.Duration) {
		i := slices.IndexFunc(all, func(f *figures) bool { return f.change == change && f.what == what })
		if i < 0 {
			i = len(all)
			all = append(all, &figures{change: change, what: what})
		}
		all[i].all = append(all[i].all, d)
	}
	took := m.takeovers()
	for _, c := range m.changes {
		for p := range decisions {
			what := "pause of a partition that stayed"
			if slices.ContainsFunc(claims[p], c.covers) {
				what = "pause of a partition that moved"
			}
			add(c.what, what, longestGap(decisions[p], c))
		}
		for _, o := range took {
			if !c.covers(o.served) {
				continue
			}
			first := o.first
			if first == 0 {
				first = after(decisions[o.partition], o.served)
			}
			add(c.what, "1 until the takeover begins", o.served.Add(-o.total).Sub(c.began))
			add(c.what, "2 fencing", o.fence)
			add(c.what, "3 claim and catch-up", o.catchUp)
			add(c.what, "4 first decision", first)
			add(c.what, "takeover to first decision", o.total+first)
		}
	}
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "change\twhat\ttimes\tp50\tp90\tp99\tmost")
	slices.SortStableFunc(all, func(a, b *figures) int {
		return cmp.Or(strings.Compare(a.change, b.change), strings.Compare(a.what, b.what))
	})
	for _, f := range all {
		row := reliability.Times(f.all)
		rows = append(rows, reliability.Figure{Name: f.change + ": " + f.what, Value: row})
		fmt.Fprintf(w, "%s\t%s", f.change, f.what)
		for _, figure := range row {
			fmt.Fprintf(w, "\t%v", figure.Value)
		}
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		m.Fatal(err)
	}
	m.Logf("what a change of owners costs, session time-out %s:\n%s", handOverSession, &text)
	return rows
}

func (c *change) covers(at time.Time) bool { return at.After(c.began) && at.Before(c.ended) }

// journal returns when each partition's events were decided, and when it was
// claimed.
func (m *measuring) journal() (decisions, claims map[int32][]time.Time) {
	m.Helper()
	decisions, claims = make(map[int32][]time.Time), make(map[int32][]time.Time)
	for _, r := range m.books.read(m.topics.Journal) {
		e, err := events.Decode[events.Event](r.Value)
		if err != nil {
			m.Fatal(err)
		}
		if e.Type == events.PartitionClaimed {
			claims[r.Partition] = append(claims[r.Partition], e.At)
		} else {
			decisions[r.Partition] = append(decisions[r.Partition], e.At)
		}
	}
	return decisions, claims
}

// longestGap is the longest time of c without a decision.
func longestGap(decisions []time.Time, c change) time.Duration {
	var longest time.Duration
	last := c.began
	for _, at := range append(decisions[:len(decisions):len(decisions)], c.ended) {
		if at.After(last) && !at.After(c.ended) {
			longest, last = max(longest, at.Sub(last)), at
		}
	}
	return longest
}

// after is how long after at the next decision was made.
func after(decisions []time.Time, at time.Time) time.Duration {
	for _, d := range decisions {
		if d.After(at) {
			return d.Sub(at)
		}
	}
	return 0
}

// takenOver is what an instance's log says of a takeover.
type takenOver struct {
	partition                    int32
	served                       time.Time
	fence, catchUp, total, first time.Duration
}

var (
	tookOver = regexp.MustCompile(`time=(\S+) .*took the partition over.* partition=(\d+) fence=(\S+) catchup=(\S+) total=(\S+)`)
	decided  = regexp.MustCompile(`first decision after the takeover.* partition=(\d+) .*after=(\S+)`)
)

func (m *measuring) takeovers() (all []takenOver) {
	m.Helper()
	must := func(err error) {
		if err != nil {
			m.Fatal(err)
		}
	}
	for _, log := range m.logs {
		last := make(map[string]int) // by partition
		for line := range strings.Lines(log.String()) {
			if f := tookOver.FindStringSubmatch(line); f != nil {
				at, err := time.Parse(time.RFC3339Nano, f[1])
				must(err)
				p, err := strconv.ParseInt(f[2], 10, 32)
				must(err)
				fence, err := time.ParseDuration(f[3])
				must(err)
				catchUp, err := time.ParseDuration(f[4])
				must(err)
				total, err := time.ParseDuration(f[5])
				must(err)
				last[f[2]] = len(all)
				all = append(all, takenOver{partition: int32(p), served: at, fence: fence, catchUp: catchUp, total: total})
			}
			if f := decided.FindStringSubmatch(line); f != nil {
				first, err := time.ParseDuration(f[2])
				must(err)
				all[last[f[1]]].first = first
			}
		}
	}
	return all
}
