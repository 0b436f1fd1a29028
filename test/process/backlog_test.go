//go:build unix

package process

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/test/audit"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/leftout"
	"github.com/waybill-dev/waybill/test/oracle"
	"github.com/waybill-dev/waybill/test/reliability"
)

// sizes are the numbers of [TestBacklog].
type sizes struct {
	whole       bool
	only        *regexp.Regexp // bursts that are played
	rate        float64        // of an agent, a second
	orders      int            // at once
	timeout     string
	quick       string // the timeout of one of two workflows on one agent
	mixed       int    // orders of both
	away        time.Duration
	waiting     int // orders meanwhile
	awayTimeout string
	hours       int     // requests of an hour
	slow        float64 // the rate of an agent that all lanes together ask for too much
	few         int     // orders for it
	slowTimeout string
	session     string // of the instances and agents
	newcomers   int    // finished orders
	close       string // how far behind a newcomer may be
}

var (
	short = sizes{
		only: regexp.MustCompile(""), rate: 50, orders: 500, timeout: "4s", quick: "4s", mixed: 500, away: 12 * time.Second, waiting: 300, awayTimeout: "2s",
		hours: 200, slow: 8, few: 64, slowTimeout: "4s", session: "4s", newcomers: 10_000, close: "50",
	}
	whole = sizes{
		whole: true, only: regexp.MustCompile(os.Getenv("WAYBILL_BACKLOG_ONLY")), rate: 170, orders: 8_000, timeout: "5s", quick: "1s", mixed: 6_000, away: 10 * time.Minute, waiting: 5_000, awayTimeout: "5s",
		hours: 5_000, slow: 2, few: 400, slowTimeout: "5s", session: "6s", newcomers: 1_000_000, close: "10000",
	}
)

// patience is how long the end of many orders may take.
func (s *sizes) patience() time.Duration {
	if s.whole {
		return flightPatience
	}
	return oracle.Patience
}

// handful is how many orders may fail while their agent is away.
const handful = 5

// S1, A4: bursts for agents that take their time, that are away and that are killed, and
// instances that are killed and that join: nothing fails for it, and next to nothing
// expires. WAYBILL_BACKLOG=whole has the sizes of make reliability; what takes how long is a
// figure there, and no test in the short one. WAYBILL_BACKLOG_ONLY plays those whose names
// match, and what was measured of the others stays.
func TestBacklog(t *testing.T) {
	leftout.UnlessLong(t, "how a backlog is worked off")
	size := &short
	if os.Getenv("WAYBILL_BACKLOG") == "whole" {
		size = &whole
	}
	rows := map[kafka.Kind]*figuresOf{kafka.KindEmbedded: {}, kafka.KindContainer: {}}
	var turn sync.Mutex
	t.Run("on", func(t *testing.T) {
		kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
			t.Parallel()
			t.Run("bursts", func(t *testing.T) {
				if !size.whole {
					t.Parallel()
				}
				rows[b.Kind].bursts = play(t, b, size)
			})
			t.Run("newcomer", func(t *testing.T) {
				if !size.only.MatchString("newcomer") {
					return
				}
				if size.whole {
					turn.Lock() // a million of orders takes all of a small machine
					defer turn.Unlock()
				} else {
					t.Parallel()
				}
				rows[b.Kind].newcomer = newcomer(t, b, size)
			})
		})
	})
	all := reliability.Figures{{Name: "orders at once", Value: size.orders}, {Name: "agent's requests a second", Value: size.rate}, {Name: "their timeout", Value: size.timeout}}
	known, err := reliability.Load("backlog")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []kafka.Kind{kafka.KindEmbedded, kafka.KindContainer} {
		for _, table := range []struct {
			name string
			rows reliability.Figures
		}{{"bursts", rows[kind].bursts}, {"a newcomer", rows[kind].newcomer}} {
			name := fmt.Sprintf("%s, broker: %s", table.name, kind)
			t.Logf("%s", printed(name, table.rows))
			before, _ := known.Get(name).(reliability.Figures)
			all = append(all, reliability.Figure{Name: name, Value: over(before, table.rows)})
		}
	}
	reliability.Write(t, "backlog", "make reliability PART=backlog", all)
}

// figuresOf are those of one broker.
type figuresOf struct{ bursts, newcomer reliability.Figures }

// over are the rows of a table, with those that are known of others.
func over(known, rows reliability.Figures) reliability.Figures {
	all := slices.Clone(known)
	for _, r := range rows {
		if i := slices.IndexFunc(all, func(k reliability.Figure) bool { return k.Name == r.Name }); i >= 0 {
			all[i] = r
		} else {
			all = append(all, r)
		}
	}
	return all
}

// printed is a table for the log.
func printed(name string, rows reliability.Figures) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, name)
	for n, row := range rows {
		cells, _ := row.Value.(reliability.Figures)
		if n == 0 {
			for _, c := range cells {
				fmt.Fprintf(w, "\t%s", c.Name)
			}
		}
		fmt.Fprintf(w, "\n%s", row.Name)
		for _, c := range cells {
			fmt.Fprintf(w, "\t%v", c.Value)
		}
	}
	_ = w.Flush() // to memory
	return text.String()
}

// stage is a namespace with instances, in which bursts happen.
type stage struct {
	*cluster
	size       *sizes
	partitions int
	instances  []*serve
	client     *kgo.Client
	bursts     []*burst

	mu    sync.Mutex
	ended map[string]map[string]bool // orders that have ended, or are in Error, by burst
}

func newStage(t *testing.T, broker *kafka.Broker, size *sizes, partitions int, instances ...string) *stage {
	t.Helper()
	s := &stage{cluster: newCluster(t, broker), size: size, partitions: partitions, client: broker.Client(t), ended: make(map[string]map[string]bool)}
	s.createTopicsWhenever(partitions)
	for _, id := range instances {
		s.instances = append(s.instances, s.serve(id, "--session-timeout", size.session))
	}
	for _, i := range s.instances {
		i.ready(i.client)
	}
	s.instances[0].owned(s.instances...)
	s.run("who listens to how orders end", s.listen)
	return s
}

// createTopicsWhenever tries until Kafka has seen them: many take it long on a busy machine.
func (c *cluster) createTopicsWhenever(partitions int) {
	c.Helper()
	oracle.Until(c, "there are topics", func() error {
		args := append([]string{"topics", "create", "--partitions", strconv.Itoa(partitions)}, c.flags...)
		if said, err := command(c.Context(), c.T, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, said)
		}
		return nil
	})
}

// listen notes which orders have ended.
func (s *stage) listen(ctx context.Context) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(s.broker.Brokers...), kgo.ConsumeTopics(s.topics.Status), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return err
	}
	defer client.Close()
	for ctx.Err() == nil {
		for r := range client.PollFetches(ctx).RecordsAll() {
			told, err := events.Decode[events.Status](r.Value)
			if err != nil {
				return err
			}
			if told.Status == events.StatusReceived {
				continue
			}
			burst, _, _ := strings.Cut(told.Order, "-")
			s.mu.Lock()
			if s.ended[burst] == nil {
				s.ended[burst] = make(map[string]bool)
			}
			s.ended[burst][told.Order] = true
			s.mu.Unlock()
		}
	}
	return nil
}

// burst is many orders at once for an agent of their own.
type burst struct {
	*stage
	worker
	what     string
	orders   int
	timeouts []string // of its workflows
	mixed    bool     // priorities
	workers  int      // processes, which share the rate
	// meanwhile is what happens then, if anything does; of the attempts of simple ones [burst.few] expire.
	meanwhile func()
	simple    bool
	// allowed is how many orders may come into Error.
	allowed int
	// ideal is the time that the agent needs.
	ideal time.Duration

	processes []*process
	began     time.Time // when the orders were submitted, or the agent came back
	submitted int
}

func (s *stage) burst(w worker, what string, orders int, timeouts ...string) *burst {
	s.Helper()
	language, manner := "Go", "skips what is late"
	if w.python != nil {
		language = "Python"
	}
	if w.late {
		manner = "does not skip"
	}
	if w.all > 0 {
		manner = "takes all"
	}
	w.agent, w.session = fmt.Sprintf("b%d", len(s.bursts)), s.size.session
	b := &burst{stage: s, worker: w, what: fmt.Sprintf("%s; %s, %s", what, language, manner), orders: orders, timeouts: timeouts, workers: 1}
	if w.all == 0 {
		b.ideal = time.Duration(float64(orders) / w.rate * float64(time.Second))
	}
	for n, timeout := range timeouts {
		flow := fmt.Sprintf("workflow: %[1]s-%[2]d\nsteps: [{name: only, agent: %[1]s, do: it, timeout: %[3]s}]\n", w.agent, n, timeout)
		if _, err := s.instances[0].client.Register(s.Context(), "workflow.yaml", []byte(flow)); err != nil {
			s.Fatal(err)
		}
		for _, i := range s.instances {
			i.knows(fmt.Sprintf("%s-%d", w.agent, n))
		}
	}
	s.bursts = append(s.bursts, b)
	return b
}

// work starts the agent.
func (b *burst) work() {
	b.Helper()
	for len(b.processes) < b.workers {
		b.another()
	}
}

// another starts another process of the agent.
func (b *burst) another() {
	b.Helper()
	w := b.worker
	w.rate /= float64(b.workers)
	b.processes = append(b.processes, startCommand(b.T, b.agent, w.command(b.T, b.cluster)))
}

// works waits until all processes of the agent share its queue.
func (b *burst) works() {
	b.Helper()
	admin, group := b.broker.Admin(b), b.topics.Namespace+".agent."+b.agent
	b.processes[len(b.processes)-1].until(b.agent+" has its queue", func() error {
		all, err := admin.DescribeGroups(b.Context(), group)
		if err != nil {
			return err
		}
		if g := all[group]; g.State != "Stable" || len(g.Members) != len(b.processes) {
			return fmt.Errorf("the group is %s, with %d members of %d", g.State, len(g.Members), len(b.processes))
		}
		return nil
	})
}

// dies kills a process of the agent.
func (b *burst) dies() {
	b.processes[0].kill()
	b.processes = b.processes[1:]
}

// submit submits so many orders at once.
func (b *burst) submit(n int) {
	b.Helper()
	b.began = time.Now()
	for range n {
		value := fmt.Sprintf(`{"workflow":"%s-%d"}`, b.agent, b.submitted%len(b.timeouts))
		if b.mixed {
			value = fmt.Sprintf(`{"workflow":"%s-%d","priority":%q}`, b.agent, b.submitted%len(b.timeouts), priorities[b.submitted/len(b.timeouts)%len(priorities)])
		}
		b.client.Produce(b.Context(), &kgo.Record{Topic: b.topics.Orders, Key: fmt.Appendf(nil, "%s-%05d", b.agent, b.submitted), Value: []byte(value)}, func(_ *kgo.Record, err error) {
			if err != nil {
				b.Errorf("submit: %v", err)
			}
		})
		b.submitted++
	}
	if err := b.client.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
}

var priorities = []string{"low", "normal", "high"}

// ends waits until so many of its orders have ended.
func (b *burst) ends(n int) {
	b.Helper()
	b.processes[len(b.processes)-1].within(b.size.patience(), fmt.Sprintf("%d orders of the burst %q have ended", n, b.what), func() error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if have := len(b.ended[b.agent]); have < n {
			return fmt.Errorf("%d have", have)
		}
		return nil
	})
}

// play has all happen on a broker: one burst after the other in the whole size, but for those
// that last, and all at once in the short one, with fewer kinds of agents.
func play(t *testing.T, broker *kafka.Broker, size *sizes) reliability.Figures {
	t.Helper()
	py := newPython(t)
	skips, late := worker{rate: size.rate}, worker{rate: size.rate, python: py, late: true}
	both, other := []worker{skips, late}, []worker{{rate: size.rate, late: true}, {rate: size.rate, python: py}}

	s := newStage(t, broker, size, 12, "one", "two", "three")
	wide := s
	if size.whole {
		wide = newStage(t, broker, size, 64, "wide")
	}
	// That many kinds of agents, and none but the first in the short size.
	some := func(all []worker) []worker {
		if !size.whole {
			all = all[:1]
		}
		return all
	}
	var away, slow, bursts []*burst
	for _, w := range both {
		b := s.burst(w, "agent away", size.waiting, size.awayTimeout)
		b.allowed = handful
		away = append(away, b)
	}
	for _, w := range some(both) {
		w.rate = size.slow
		b := wide.burst(w, fmt.Sprintf("an agent of %v a second, %d partitions", size.slow, wide.partitions), size.few, size.slowTimeout)
		b.allowed = max(4, size.few/25)
		slow = append(slow, b)
	}
	for _, w := range slices.Concat(both, other) {
		bursts = append(bursts, s.burst(w, "at once", size.orders, size.timeout))
	}
	for _, w := range some(both) {
		b := s.burst(w, fmt.Sprintf("%s and 1m, priorities", size.quick), size.mixed, size.quick, "1m")
		b.mixed = true
		bursts = append(bursts, b)
	}
	for _, w := range []worker{{all: size.hours}, {all: size.hours, python: py, late: true}} {
		bursts = append(bursts, s.burst(w, "an hour each", size.hours, "1h"))
	}
	for _, b := range bursts {
		b.simple = true
	}
	for _, w := range some([]worker{late, skips}) {
		b := s.burst(w, "agents killed", size.orders, size.timeout)
		b.workers, b.meanwhile = 2, b.loses
		bursts = append(bursts, b)
	}
	b := s.burst(skips, "instances killed", size.orders, size.timeout)
	b.meanwhile = b.survives
	bursts = append(bursts, b)

	left := func(b *burst) bool { return !size.only.MatchString(b.what) }
	away, slow, bursts = slices.DeleteFunc(away, left), slices.DeleteFunc(slow, left), slices.DeleteFunc(bursts, left)

	// They are known, and gone.
	const known = 5
	for _, b := range away {
		b.work()
	}
	for _, b := range away {
		b.submit(known)
		b.ends(known)
		b.dies()
		b.submit(b.orders)
	}
	back := time.After(size.away) // that long they are away
	if len(away) == 0 {
		back = time.After(0)
	}
	begin(slow...)
	together := max(1, len(bursts))
	if size.whole {
		together = 1
	}
	for group := range slices.Chunk(bursts, together) {
		begin(group...)
		for _, b := range group {
			if b.meanwhile != nil {
				b.meanwhile()
			}
		}
		finish(group...)
	}
	<-back
	for _, b := range away {
		b.work()
		b.began = time.Now()
	}
	finish(slices.Concat(away, slow)...)
	rows := s.report()
	if wide != s {
		rows = append(rows, wide.report()...)
	}
	return rows
}

// begin starts the agents, and then submits all orders.
func begin(bursts ...*burst) {
	for _, b := range bursts {
		b.work()
	}
	for _, b := range bursts {
		b.works()
	}
	for _, b := range bursts {
		b.submit(b.orders)
	}
}

// finish waits until all orders have ended, and stops the agents.
func finish(bursts ...*burst) {
	for _, b := range bursts {
		b.ends(b.submitted)
		for _, p := range b.processes {
			p.stop()
		}
	}
}

// loses kills a process of the agent at work, and starts another later.
func (b *burst) loses() {
	b.Helper()
	b.ends(b.orders / 4)
	b.dies()
	b.ends(b.orders / 2)
	b.another()
}

// survives kills one instance after the other at work.
func (b *burst) survives() {
	b.Helper()
	for n, i := range []*serve{b.instances[0], b.instances[2]} {
		b.ends(b.orders * (2*n + 1) / 5)
		i.kill()
		b.ends(b.orders * (2*n + 2) / 5)
		i.again()
	}
	b.instances[0].ready(b.instances[0].client)
	b.instances[2].ready(b.instances[2].client)
}

// account is what the journal says of a burst.
type account struct {
	processed, errors  int
	expired, uncounted int
	asked, orders      int // attempts, and orders of which one began
	lastAsked, last    time.Time
	high               map[int32]int // orders of high priority that wait now, by partition
	// Of the orders that were asked for while one of high priority waited in their partition:
	// how many they are, and how many were none of high priority.
	passed, others int
}

func (a *account) add(r *kgo.Record, e *events.Event, urgent bool) {
	switch e.Type {
	case events.OrderAccepted:
		if urgent {
			a.high[r.Partition]++
		}
	case events.StepStarted:
		if a.asked++; e.Attempt > 1 {
			return
		}
		a.orders++
		a.lastAsked = later(a.lastAsked, e.At)
		if a.high[r.Partition] > 0 {
			a.passed++
			if !urgent {
				a.others++
			}
		}
		if urgent {
			a.high[r.Partition]--
		}
	case events.StepExpired:
		if a.expired++; e.Uncounted {
			a.uncounted++
		}
	case events.OrderErrored:
		a.errors++
		a.last = later(a.last, e.At)
	case events.OrderCompleted:
		a.processed++
		a.last = later(a.last, e.At)
	}
}

// report holds all that happened against the rules, counts it, and stops the instances.
func (s *stage) report() (rows reliability.Figures) {
	s.Helper()
	all := make(map[string]*account)
	for _, b := range s.bursts {
		all[b.agent] = &account{high: make(map[int32]int)}
	}
	urgent := make(map[string]bool)
	for r := range oracle.Records(s, s.broker.Brokers, s.topics.Journal) {
		e, err := events.Decode[events.Event](r.Value)
		if err != nil {
			s.Fatal(err)
		}
		if e.Order == "" {
			continue
		}
		if e.Type == events.OrderAccepted && e.Priority == events.High {
			urgent[e.Order] = true
		}
		name, _, _ := strings.Cut(e.Order, "-")
		all[name].add(r, &e, urgent[e.Order])
	}
	for _, b := range s.bursts {
		if b.submitted > 0 {
			rows = append(rows, reliability.Figure{Name: b.what, Value: b.judge(all[b.agent])})
		}
	}
	s.Log(audit.Namespace(s, s.broker.Brokers, s.topics, true))
	for _, i := range s.instances {
		i.stop()
	}
	return rows
}

// few is how many attempts of a simple one may expire: as many as half of its orders, and what leaves
// before the pace of an agent shows that is slower than believed: the first window, half of that once the
// rate is halved, and so on (see TestTheFirstWindow of the window). Such an agent is any on a machine that is
// busy enough. Without windows one that works off what is late has ten times as much expire; of one that
// skips it only the window's own tests would tell.
func (b *burst) few() int {
	few := b.submitted / 2
	if b.ideal == 0 { // it takes all
		return few
	}
	timeout, err := time.ParseDuration(b.timeouts[0])
	if err != nil {
		b.Fatal(err)
	}
	return max(few, int(2*lane.DefaultAgentRate*timeout.Seconds()/2))
}

// judge says what must be true of each burst, and returns its figures.
func (b *burst) judge(a *account) reliability.Figures {
	b.Helper()
	if a.processed+a.errors != b.submitted || a.errors > b.allowed {
		b.Errorf("%s: of %d orders %d are Processed, and %d in Error", b.what, b.submitted, a.processed, a.errors)
	}
	if few := b.few(); b.simple && a.expired > few {
		b.Errorf("%s: of %d orders %d attempts expired, more than %d", b.what, b.submitted, a.expired, few)
	}
	if b.mixed && (a.others == 0 || a.others*3 > a.passed) {
		b.Errorf("%s: of %d orders that were asked for while one of high priority waited %d were not", b.what, a.passed, a.others)
	}
	took := a.last.Sub(b.began)
	row := reliability.Figures{
		{Name: "orders", Value: b.submitted},
		{Name: "Processed", Value: a.processed},
		{Name: "in Error", Value: a.errors},
		{Name: "expired", Value: a.expired},
		{Name: "of these not counted", Value: a.uncounted},
		{Name: "asked again", Value: a.asked - a.orders},
		{Name: "all asked after", Value: tenths(a.lastAsked.Sub(b.began))},
		{Name: "took", Value: tenths(took)},
		{Name: "agent's own", Value: ""},
		{Name: "more", Value: ""},
		{Name: "left before one of high priority", Value: ""},
	}
	if b.ideal > 0 {
		row[8].Value, row[9].Value = tenths(b.ideal), fmt.Sprintf("%.0f %%", 100*(took.Seconds()/b.ideal.Seconds()-1))
		if b.size.whole && b.simple && took > 5*b.ideal {
			b.Errorf("%s: it took %s, the agent needs %s", b.what, took, b.ideal)
		}
	}
	if b.mixed {
		row[10].Value = fmt.Sprintf("%d of %d", a.others, a.passed)
	}
	return row
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func tenths(d time.Duration) string { return d.Round(100 * time.Millisecond).String() }
