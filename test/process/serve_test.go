//go:build unix

package process

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/events"
	fulfilment "github.com/waybill-dev/waybill/examples/order-fulfilment"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/child"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/world"
)

// cluster is a namespace on a broker, with its topics.
type cluster struct {
	*testing.T
	broker *kafka.Broker
	topics *events.Topics
	books  *books
	flags  []string // that say where it is
	// program is that of another release, which instances are begun with; empty is
	// this one.
	program string
}

func newCluster(t *testing.T, broker *kafka.Broker) *cluster {
	t.Helper()
	topics, err := events.NewTopics(kafka.Namespace(t))
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{
		T: t, broker: broker, topics: &topics,
		books: &books{t, &topics, broker.Brokers},
		flags: []string{"--brokers", strings.Join(broker.Brokers, ","), "--namespace", topics.Namespace},
	}
	return c
}

// partitions are those of a cluster's topics, unless a test says otherwise.
const partitions = 6

func (c *cluster) createTopics() {
	c.Helper()
	c.createTopicsOf(partitions)
}

func (c *cluster) createTopicsOf(partitions int) {
	c.Helper()
	waybill(c.T, append([]string{"topics", "create", "--partitions", strconv.Itoa(partitions)}, c.flags...)...)
}

// serve is a `waybill serve` that comes back at the same address, with the same
// state store.
type serve struct {
	*process
	program string // empty is that of this release
	args    []string
	client  *api.Client
	http    string
	dir     string // of its data
}

// serve starts an instance, with more flags. It does not wait until it is ready.
func (c *cluster) serve(id string, more ...string) *serve {
	c.Helper()
	s := &serve{program: c.program, http: child.FreeAddress(c.T), dir: c.TempDir()}
	s.args = append([]string{
		"serve", "--id", id, "--data-dir", s.dir, "--http-addr", s.http,
		"--session-timeout", "2s",
	}, c.flags...)
	s.args = append(s.args, more...)
	s.client = clientOf(c.T, s.http)
	s.process = startOf(c.T, s.program, id, s.args...)
	return s
}

// two starts two instances, with more flags, and waits until both are ready.
func (c *cluster) two(more ...string) (one, two *serve) {
	c.Helper()
	one, two = c.serve("one", more...), c.serve("two", more...)
	one.ready(one.client)
	two.ready(two.client)
	return one, two
}

func (s *serve) again() { s.process = startOf(s.T, s.program, s.name, s.args...) }

// agents runs the example agents until the test ends.
func (c *cluster) agents() {
	c.Helper()
	c.run("the agents", func(ctx context.Context) error { return fulfilment.Serve(ctx, c.agentConfig("")) })
}

// agent runs one agent until the test ends.
func (c *cluster) agent(name string, operations agents.Operations) {
	c.Helper()
	c.run("agent "+name, func(ctx context.Context) error { return agents.Serve(ctx, c.agentConfig(name), operations) })
}

func (c *cluster) agentConfig(name string) agents.Config {
	return agents.Config{
		Agent: name, Brokers: c.broker.Brokers, Namespace: c.topics.Namespace,
		StopTimeout: time.Second, Logger: slog.New(slog.DiscardHandler),
	}
}

// run runs something in the background until the test ends.
func (c *cluster) run(what string, serve func(context.Context) error) {
	c.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx) }()
	c.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			c.Errorf("%s: %v", what, err)
		}
	})
}

// owned waits until these own all partitions, each of them some, and s serves
// those that it owns: the claim that makes it the owner comes a little before.
func (s *serve) owned(by ...*serve) {
	s.Helper()
	var want []string
	for _, o := range by {
		want = append(want, o.name)
	}
	slices.Sort(want)
	s.until(fmt.Sprintf("the partitions are owned by %v", want), func() error {
		all, err := s.client.Partitions(s.Context())
		if err != nil {
			return err
		}
		var have []string
		for _, p := range all {
			if p.Owner == nil {
				return fmt.Errorf("nobody owns partition %d", p.Partition)
			}
			have = append(have, *p.Owner)
		}
		slices.Sort(have)
		if have = slices.Compact(have); !slices.Equal(have, want) {
			return fmt.Errorf("they are owned by %v", have)
		}
		return s.client.Ready(s.Context())
	})
}

var takeover = regexp.MustCompile(`took the partition over.* total=(\S+)`)

// takeovers are how long each of the process's takeovers took.
func (p *process) takeovers() []string {
	var all []string
	for _, m := range takeover.FindAllStringSubmatch(p.log.String(), -1) {
		all = append(all, m[1])
	}
	return all
}

// S5, V6: instances share the partitions, one takes over what another leaves
// behind, and one that comes back from the dead changes nothing.
func TestTwoServesOneKilled(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kafka.Container(t))
	c.createTopics()
	one, two := c.two()
	registerPatient(t, one.http)
	c.agents()
	one.owned(one, two)

	load := submitting(t, c.topics, c.broker.Brokers...)
	load.more(two.process, 150)
	two.kill()
	gone := time.Now()
	one.owned(one)
	t.Logf("one owns all %s after two was killed; its takeovers took %v", time.Since(gone).Round(time.Millisecond), one.takeovers())
	load.more(one.process, 50)

	two.again()
	two.ready(two.client)
	one.owned(one, two)
	load.more(two.process, 50)

	two.signal(syscall.SIGSTOP)
	gone = time.Now()
	one.owned(one)
	t.Logf("one owns all %s after two was stopped", time.Since(gone).Round(time.Millisecond))
	load.more(one.process, 50)
	two.signal(syscall.SIGCONT) // it still believes that it owns its partitions
	load.more(two.process, 50)
	one.owned(one, two)
	load.more(two.process, 50)

	ids := load.stop(one.process)
	one.processed(one.client, ids)
	two.processed(two.client, ids)
	t.Logf("%d orders", len(ids))
	c.books.check(ids)
	for _, s := range []*serve{one, two} {
		waybill(t, append([]string{"replay", "--verify", "--server", s.http}, c.flags...)...)
	}
	one.stop()
	two.owned(two)
	two.stop()
}

// A process that was killed and is started again on its data directory does not
// wait until the group forgets what it was before; here that takes longer than
// the test has patience.
func TestStartAfterAKillWaitsForNoTimeout(t *testing.T) {
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		c := newCluster(t, b)
		c.createTopics()
		long := []string{"--session-timeout", "5m"}
		one, two := c.two(long...)
		registerPatient(t, one.http)
		c.agents()
		one.owned(one, two)
		two.kill()
		two.again()
		two.ready(two.client)
		one.owned(one, two)
		for n := range int64(10) {
			waybill(t, "submit", "patient", "--id", world.OrderID(n+1), "--server", two.http)
			two.state(two.client, world.OrderID(n+1), projections.Processed)
		}
		one.stop()
		two.owned(two)
		two.stop()
	})
}

// Whoever submits need not know whether an agent runs: its requests wait.
func TestOfflineAgents(t *testing.T) {
	c := newCluster(t, kafka.Embedded(t))
	c.createTopics()
	s := c.serve("one")
	s.ready(s.client)
	registerPatient(t, s.http)
	var ids []string
	for n := range int64(5) {
		ids = append(ids, world.OrderID(n+1))
		waybill(t, "submit", "patient", "--id", ids[n], "--server", s.http)
	}
	for _, id := range ids {
		o := s.state(s.client, id, "Processing")
		if first := o.Steps[0]; first.Attempt != 1 || o.Steps[1].Attempt != 0 || first.CompleteBy == nil {
			t.Errorf("order %s without agents: %+v", id, o.Steps)
		}
	}
	c.agents()
	s.processed(s.client, ids)
	c.books.check(ids)
	s.stop()
}
