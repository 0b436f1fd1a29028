package lane_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/orchestrator/cluster"
	"github.com/waybill-dev/waybill/orchestrator/decide"
	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
)

func TestMain(m *testing.M) { kafka.Main(m) }

// contender fights for partition 0, step by step.
type contender struct {
	*testing.T
	id     string
	topics *events.Topics
	broker lane.Broker
	world  lane.World
	wall   func() time.Time
	cut    context.CancelFunc // it gives Kafka up
	lane   *lane.Lane
}

func newContender(t *testing.T, b *kafka.Broker, topics *events.Topics, id string) *contender {
	t.Helper()
	ctx, cut := context.WithCancel(t.Context())
	opts := []kgo.Opt{kgo.SeedBrokers(b.Brokers...), kgo.WithContext(ctx)}
	client, err := kgo.NewClient(opts...)
	must(t, err)
	t.Cleanup(client.Close)
	store, err := projections.Temporary()
	must(t, err)
	t.Cleanup(func() { must(t, store.Close()) })
	state, err := store.Partition(0)
	must(t, err)
	c := &contender{T: t, id: id, topics: topics, broker: cluster.New(client, topics, opts, func(string) (int, bool) { return 0, false }).Broker(0), world: nowhere{}, wall: now, cut: cut}
	c.contend(state)
	return c
}

func (c *contender) contend(state *projections.Partition) {
	c.lane = lane.New(lane.Config{
		Instance: c.id, Topics: *c.topics, Partitions: 1,
		Clock: lane.Clock{Wall: c.wall, Timer: time.Now, Pause: pause},
	}, 0, c.broker, c.world, state, slog.New(slog.DiscardHandler))
	c.Cleanup(c.lane.Close)
}

// anew is the same instance after its lane has ended.
func (c *contender) anew() *contender {
	c.lane.Close()
	state := c.lane.State()
	state.Forget()
	again := *c
	again.contend(state)
	return &again
}

func now() time.Time { return events.Time(time.Now()) }

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// nowhere is a world without workflows, where all can be written.
type nowhere struct{}

func (nowhere) Workflow(string, int) *workflow.Workflow               { return nil }
func (nowhere) Retired(string, int) bool                              { return false }
func (nowhere) Starts(string) *workflow.Workflow                      { return nil }
func (nowhere) Newer(string, int) int                                 { return 0 }
func (nowhere) RequestTopics() []string                               { return nil }
func (nowhere) CatchUp(context.Context) error                         { return nil }
func (nowhere) Learn([]string) <-chan struct{}                        { return nil }
func (nowhere) Known(string) bool                                     { return true }
func (nowhere) Refuses(string, int) string                            { return "" }
func (nowhere) Away(lane.TopicPartition, string, int) string          { return "" }
func (nowhere) Partitions(string) int32                               { return 0 }
func (nowhere) Seek() uint64                                          { return 1 }
func (nowhere) Found(uint64) bool                                     { return true }
func (nowhere) Format() int                                           { return 1 }
func (nowhere) Newest(context.Context) int                            { return 1 }
func (nowhere) Refused(lane.TopicPartition, string, int, bool, error) {}
func (nowhere) Took(lane.TopicPartition)                              {}
func (nowhere) Added() map[lane.TopicPartition]int64                  { return nil }

// learner is nowhere, and notes what is to be learnt there.
type learner struct {
	nowhere
	workflows int // how often
	fails     error
}

func (w *learner) CatchUp(context.Context) error {
	w.workflows++
	return w.fails
}

// onePartition is a namespace of one partition.
func onePartition(t *testing.T, b *kafka.Broker) *events.Topics {
	t.Helper()
	topics, err := events.NewTopics(kafka.Namespace(t))
	must(t, err)
	_, err = orchestrator.CreateTopics(t.Context(), b.Admin(t), &topics, 1, 1)
	must(t, err)
	return &topics
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (c *contender) takeOver() {
	c.Helper()
	must(c.T, c.lane.TakeOver(c.Context()))
}

// write commits a transaction as a timer would make it: it reads no input.
func (c *contender) write(id string) error {
	return c.lane.Concludes(c.lane.Writes(c.decide(id)...))
}

// decide returns the records of a transaction that [contender.write] commits.
func (c *contender) decide(id string) []*kgo.Record {
	return c.lane.Seals(decide.Submit(&decide.Env{
		Now: now(), Instance: c.id, Topics: c.topics, Refuses: func(string, int) string { return "" }, Away: func(string, string, int) string { return "" },
	}, nil, &decide.Input{Record: new(decide.Record), Order: id, Problem: errors.New("written by " + c.id)}))
}

func fenced(err error) bool {
	return errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch) || errors.Is(err, kerr.TransactionalIDNotFound)
}

func (c *contender) has(id string) bool {
	c.Helper()
	o, err := c.lane.State().Order(id)
	if err != nil {
		c.Fatal(err)
	}
	return o != nil
}
