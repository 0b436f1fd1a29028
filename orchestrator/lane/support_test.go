package lane

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
)

// still is a world in which nothing happens by itself.
type still struct {
	flows    workflow.Set
	poisoned bool           // whoever looks a workflow up panics
	looked   func()         // is told of whoever does
	learns   func([]string) // is told of what is asked
	reads    func()         // is called before it says what was read
	answered chan struct{}
	newer    map[string]int            // level, by name
	refuses  map[string]string         // why, by topic
	away     map[string]string         // why, by topic
	refused  []string                  // what the lane told
	took     []string                  // the same, of topics
	hears    func(topic, order string) // is told of what was refused
	format   int
	added    map[TopicPartition]int64
	// partitions are how many topics have, as far as Kafka has said.
	partitions map[string]int32
	sought     uint64 // how often a workflow was sought, and of these how many were found
	found      uint64
	store      *projections.Store
}

func (w *still) Workflow(name string, version int) *workflow.Workflow {
	if w.poisoned {
		panic("poisoned")
	}
	if w.looked != nil {
		w.looked()
	}
	return w.flows.Find(name, version)
}

func (w *still) Starts(signal string) *workflow.Workflow { return w.flows.Starts(signal) }

func (w *still) Retired(name string, version int) bool { return w.flows.Retired(name, version) }

func (w *still) Newer(name string, _ int) int { return w.newer[name] }

func (w *still) RequestTopics() []string {
	var topics []string
	for _, agent := range w.flows.Agents() {
		topics = append(topics, "waybill.requests."+agent)
	}
	return topics
}

func (w *still) CatchUp(context.Context) error { return nil }

func (w *still) Learn(topics []string) <-chan struct{} {
	if w.learns != nil {
		w.learns(topics)
	}
	return w.answered
}

func (w *still) Known(topic string) bool { return w.away[topic] != unknown }

// unknown is why a topic is away that Kafka was not asked about.
const unknown = "Kafka has not said yet what it is"

func (w *still) Refuses(topic string, _ int) string { return w.refuses[topic] }

func (w *still) Away(at TopicPartition, _ string, _ int) string { return w.away[at.Topic] }

func (w *still) Partitions(topic string) int32 { return w.partitions[topic] }

func (w *still) Seek() uint64 { w.sought++; return w.sought }

func (w *still) Found(question uint64) bool {
	if w.reads != nil {
		w.reads()
	}
	return question <= w.found
}

func (w *still) Format() int { return w.format }

func (w *still) Newest(context.Context) int { return w.format }

func (w *still) Added() map[TopicPartition]int64 { return w.added }

func (w *still) Refused(at TopicPartition, order string, size int, _ bool, err error) {
	if w.hears != nil {
		w.hears(at.Topic, order)
	}
	w.refused = append(w.refused, fmt.Sprint(at.Topic, " ", size, " ", err))
}

func (w *still) Took(at TopicPartition) { w.took = append(w.took, at.Topic) }

// newLane returns a lane without Kafka for partition 5 of 12, and its world, which
// knows the workflow order.
func newLane(t testing.TB) (*Lane, *still) {
	t.Helper()
	w := &still{refuses: make(map[string]string), away: make(map[string]string), partitions: make(map[string]int32), found: math.MaxUint64}
	w.flows.Add(parseFlow(t, orderFlow))
	var err error
	w.store, err = projections.Temporary()
	must(t, err)
	t.Cleanup(func() { must(t, w.store.Close()) })
	state, err := w.store.Partition(5)
	must(t, err)
	topics, err := events.NewTopics(events.DefaultNamespace)
	must(t, err)
	l := New(Config{
		Instance: "i-1", Topics: topics, Partitions: 12, AgentRate: 1e9,
		Clock: Clock{Wall: func() time.Time { return events.Time(time.Now()) }, Timer: time.Now, Pause: func(ctx context.Context, _ time.Duration) bool { return ctx.Err() == nil }},
	}, 5, nil, w, state, slog.New(slog.DiscardHandler))
	l.current = newBatch()
	for in := range l.topics.Inputs() {
		l.position.Set(in, 0)
	}
	return l, w
}

// looks has the lane look at the deadlines, and see that all replies were read.
func (l *Lane) looks(t testing.TB) {
	t.Helper()
	must(t, l.supervise())
	l.due.end = 0
	must(t, l.supervise())
}

// asksForOrders has Kafka asked where the orders end, and the lane look at what it says.
func (l *Lane) asksForOrders(t *testing.T) {
	t.Helper()
	if !l.early.asks {
		t.Error("it does not want to know where the orders end")
	}
	l.askOrders(new(scripted))
	l.ordersTold(l.AskOrders(t.Context()))
	must(t, l.supervise())
}

// brought is what a poll brings.
func brought(r *kgo.Record) kgo.Fetches {
	return kgo.Fetches{{Topics: []kgo.FetchTopic{{Topic: r.Topic, Partitions: []kgo.FetchPartition{{Partition: r.Partition, Records: []*kgo.Record{r}}}}}}}
}

// keys returns a key in the lane's partition and one in another.
func (l *Lane) keys() (here, elsewhere string) {
	for i := 0; here == "" || elsewhere == ""; i++ {
		key := fmt.Sprint("o-", i)
		if l.byKey.Of([]byte(key)) == l.partition {
			here = key
		} else {
			elsewhere = key
		}
	}
	return here, elsewhere
}

func parseFlow(t testing.TB, source string) *workflow.Workflow {
	t.Helper()
	flow, err := workflow.Parse("workflow.yaml", []byte(source))
	must(t, err)
	return flow
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const orderFlow = `
workflow: order
steps:
  - {name: charge, agent: payment, after: [], retry: {attempts: 1}}
  - {name: ship, agent: shipping, after: []}
  - {name: mail, agent: office, after: []}
`
