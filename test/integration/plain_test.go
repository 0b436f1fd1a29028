package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/oracle"
)

// The other side, as anybody can write it (A7): plain Kafka clients that know
// the contract, and nothing of ours.

// request is a request to an agent.
type request struct {
	Order          string          `json:"order"`
	Step           string          `json:"step"`
	Attempt        int             `json:"attempt"`
	Operation      string          `json:"operation"`
	CompleteBy     time.Time       `json:"completeBy"`
	IdempotencyKey string          `json:"idempotencyKey"`
	Undo           bool            `json:"undo"`
	Outcome        string          `json:"outcome"`
	Priority       string          `json:"priority"`
	ReplyTo        string          `json:"replyTo"`
	Input          json.RawMessage `json:"input"`
	Output         json.RawMessage `json:"output"`
}

// reply returns the record of a reply. The outcome is the last part of its
// value, such as done.
func (r *request) reply(outcome string) *kgo.Record {
	undo := ""
	if r.Undo {
		undo = `"undo":true,`
	}
	return &kgo.Record{
		Topic: r.ReplyTo, Key: []byte(r.Order),
		Value: fmt.Appendf(nil, `{"order":%q,"step":%q,"attempt":%d,%s%s}`, r.Order, r.Step, r.Attempt, undo, outcome),
	}
}

// Outcomes of a request.
const (
	silence = ""
	done    = `"status":"completed"`
	busy    = `"status":"failed","error":{"code":"busy","message":"try again"}`
	refused = `"status":"failed","error":{"code":"refused","message":"never","permanent":true}`
)

// gave is an outcome with an output.
func gave(output string) string { return done + `,"output":` + output }

// failed is a transient error with a code.
func failed(code string) string { return `"status":"failed","error":{"code":"` + code + `"}` }

// inbox reads the committed records of a topic, from its beginning.
type inbox struct {
	*testing.T
	topic  string
	client *kgo.Client
	unread []*kgo.Record
	read   map[int32]int64 // up to where, by partition
}

func (w *world) inbox(topic string) *inbox {
	w.Helper()
	return &inbox{T: w.T, topic: topic, read: make(map[int32]int64), client: w.broker.Client(w.T,
		kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(), kgo.MetadataMinAge(50*time.Millisecond))}
}

// fetch takes what a poll brought.
func (b *inbox) fetch(fetches kgo.Fetches) {
	fetches.EachRecord(func(r *kgo.Record) {
		b.read[r.Partition] = r.Offset + 1
		if !r.Attrs.IsControl() {
			b.unread = append(b.unread, r)
		}
	})
}

// toTheEnd reads up to the end of now.
func (b *inbox) toTheEnd() {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), oracle.Patience)
	defer cancel()
	ends, err := kadm.NewClient(b.client).ListEndOffsets(ctx, b.topic)
	if err != nil || ends.Error() != nil {
		b.Fatal(err, ends.Error())
	}
	ends.Each(func(end kadm.ListedOffset) {
		for b.read[end.Partition] < end.Offset {
			fetches := b.client.PollFetches(ctx)
			if ctx.Err() != nil {
				b.Fatalf("partition %d of %s is read up to %d of %d", end.Partition, b.topic, b.read[end.Partition], end.Offset)
			}
			b.fetch(fetches)
		}
	})
}

// take waits for a record that matches, and takes it out.
func (b *inbox) take(what string, match func(*kgo.Record) bool) *kgo.Record {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), oracle.Patience)
	defer cancel()
	for {
		for n, r := range b.unread {
			if match(r) {
				b.unread = append(b.unread[:n:n], b.unread[n+1:]...)
				return r
			}
		}
		fetches := b.client.PollFetches(ctx)
		if ctx.Err() != nil {
			b.Fatalf("%s does not come on %s; what came: %s", what, b.topic, b)
		}
		b.fetch(fetches)
	}
}

// heard waits for the next status message of an order, and returns its word.
func (b *inbox) heard(order string) string {
	b.Helper()
	var s struct {
		Order  string `json:"order"`
		Status string `json:"status"`
	}
	r := b.take("a status message of "+order, keyed(order))
	if err := json.Unmarshal(r.Value, &s); err != nil || s.Order != order {
		b.Fatalf("%s: %v", r.Value, err)
	}
	return s.Status
}

// hears waits for status messages of an order, in turn.
func (b *inbox) hears(order string, words ...string) {
	b.Helper()
	for _, word := range words {
		if got := b.heard(order); got != word {
			b.Errorf("the caller of %s heard %q, not %q", order, got, word)
		}
	}
}

// String shows what came and nobody took.
func (b *inbox) String() string {
	var all []string
	for _, r := range b.unread {
		all = append(all, string(r.Value))
	}
	return strings.Join(all, "\n")
}

// hand is an agent whose every answer the test gives.
type hand struct {
	*inbox
	world *world
}

func (w *world) hand(agent string) *hand {
	w.Helper()
	return &hand{w.inbox(w.topics.Requests(agent)), w}
}

// asked waits for the next request for a step of an order.
func (h *hand) asked(order, step string) request {
	h.Helper()
	return h.next(order, step, false)
}

// askedToUndo waits for the next request to undo a step of an order, or any.
func (h *hand) askedToUndo(order, step string) request {
	h.Helper()
	return h.next(order, step, true)
}

func (h *hand) next(order, step string, undo bool) request {
	h.Helper()
	var found request
	h.take(fmt.Sprintf("a request for step %s of %s, undo %t", step, order, undo), func(r *kgo.Record) bool {
		q := decodeRequest(h.T, r)
		if q.Order != order || step != "" && q.Step != step || q.Undo != undo {
			return false
		}
		found = q
		return true
	})
	return found
}

// answer sends a reply.
func (h *hand) answer(r request, outcome string) {
	h.Helper()
	h.world.produce(r.reply(outcome))
}

// does answers the next request for a step.
func (h *hand) does(order, step, outcome string) request {
	h.Helper()
	r := h.asked(order, step)
	h.answer(r, outcome)
	return r
}

// undoes answers the next request to undo a step.
func (h *hand) undoes(order, step, outcome string) request {
	h.Helper()
	r := h.askedToUndo(order, step)
	h.answer(r, outcome)
	return r
}

// idle wants that nothing else was asked for an order.
func (h *hand) idle(order string) {
	h.Helper()
	h.toTheEnd()
	for _, r := range h.unread {
		if string(r.Key) == order {
			h.Errorf("also asked for: %s", r.Value)
		}
	}
}

func decodeRequest(t *testing.T, r *kgo.Record) request {
	t.Helper()
	var q request
	if err := json.Unmarshal(r.Value, &q); err != nil {
		t.Errorf("request %s: %v", r.Value, err)
	}
	return q
}

// answering runs an agent until the test ends: one client, one request after
// the other. Past the complete-by it is silent (A4).
func (w *world) answering(agent string, answer func(request) string) {
	w.Helper()
	client := w.broker.Client(w.T, kgo.ConsumeTopics(w.topics.Requests(agent)), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.MetadataMinAge(50*time.Millisecond), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)), kgo.ProducerLinger(0))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			client.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
				q := decodeRequest(w.T, r)
				if !time.Now().Before(q.CompleteBy) {
					return
				}
				outcome := answer(q)
				if outcome == silence || !time.Now().Before(q.CompleteBy) {
					return
				}
				if err := client.ProduceSync(ctx, q.reply(outcome)).FirstErr(); err != nil && ctx.Err() == nil {
					w.Errorf("agent %s: %v", agent, err)
				}
			})
		}
	}()
	w.Cleanup(func() { cancel(); <-ended })
}

// command puts an operator's command on its topic, without any header.
func (w *world) command(order, value string) {
	w.Helper()
	w.produce(&kgo.Record{Topic: w.topics.Commands, Key: []byte(order), Value: []byte(value)})
}

// caller makes a private topic for the status messages of some orders (P1).
func (w *world) caller(name string) *inbox {
	w.Helper()
	topic := w.topics.Namespace + "-" + name
	if _, err := w.admin.CreateTopic(w.Context(), 1, 1, nil, topic); err != nil {
		w.Fatal(err)
	}
	w.until(topic+" has a leader", func() error { // a broker learns of it a moment after the answer
		found, err := w.admin.Metadata(w.Context(), topic)
		if err == nil {
			err = errors.Join(found.Topics[topic].Err, found.Topics[topic].Partitions[0].Err)
		}
		return err
	})
	w.callers = append(w.callers, topic)
	return w.inbox(topic)
}

// line is the state record of an order as the order example has it.
func line(o *projections.Order) string {
	public := api.OrderOf(0, o)
	var text [2]string
	for i, v := range []any{public.LockedBy, public.CompleteBy} {
		b, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		text[i] = strings.Trim(string(b), `"`)
	}
	return fmt.Sprintf("OrderID=%s LockedBy=%s CompleteBy=%s ProcessState=%s FailureCount=%d", public.OrderID, text[0], text[1], public.ProcessState, public.FailureCount)
}

// stamp writes a time as messages do.
func stamp(t time.Time) string { return string(events.AppendTime(nil, t)) }

// history is what the journal says of an order.
func (w *world) history(id string) []events.Event {
	w.Helper()
	var all []events.Event
	for _, r := range w.read(w.topics.Journal) {
		if string(r.Key) != id {
			continue
		}
		e, err := events.Decode[events.Event](r.Value)
		if err != nil {
			w.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// recordAfter is the state record of an order after the first n of its events.
func (w *world) recordAfter(id string, n int) *projections.Order {
	w.Helper()
	o := &projections.Order{}
	w.until(fmt.Sprintf("event %d of order %s", n, id), func() error {
		all := w.history(id)
		if len(all) < n {
			return fmt.Errorf("it has %d", len(all))
		}
		o = &projections.Order{}
		for i := range all[:n] {
			if err := o.Apply(&all[i]); err != nil {
				w.Fatal(err)
			}
		}
		return nil
	})
	return o
}

// is waits until the state record of an order is as wanted.
func (w *world) is(r *running, id, want string) {
	w.Helper()
	w.until("the record of "+id, func() error {
		o, _, err := r.Store().Order(r.Partition(id), id)
		if err != nil {
			return err
		}
		if got := line(o); got != want {
			return fmt.Errorf("it is\n %s, not\n %s", got, want)
		}
		return nil
	})
}

// Options of an instance.
func supervising(every time.Duration) func(*orchestrator.Config) {
	return func(c *orchestrator.Config) { c.SuperviseEvery = every }
}

// briefly has the group notice soon that an instance is gone.
func briefly(c *orchestrator.Config) { c.SessionTimeout = 2 * time.Second }

// through has an instance reach Kafka by a cable.
func through(c *cable) func(*orchestrator.Config) {
	return func(cfg *orchestrator.Config) { cfg.Kafka = append(cfg.Kafka, kgo.Dialer(c.dial)) }
}

// cable is an instance's way to Kafka. While it is pulled nobody hears of the
// instance, which to all others is a crash; plugged in again, the instance comes
// back from the dead, and knows nothing of what happened.
type cable struct {
	mu     sync.Mutex
	pulled bool
	open   map[net.Conn]struct{}
}

var errPulled = errors.New("the cable is pulled")

var errNotYet = errors.New("not yet")

func (c *cable) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pulled {
		return nil, errors.Join(errPulled, conn.Close())
	}
	if c.open == nil {
		c.open = make(map[net.Conn]struct{})
	}
	c.open[conn] = struct{}{}
	return conn, nil
}

func (c *cable) pull() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pulled = true
	for conn := range c.open {
		_ = conn.Close() // it may be closed already
	}
	clear(c.open)
}

func (c *cable) plug() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pulled = false
}
