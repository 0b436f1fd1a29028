package integration

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/audit"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/reliability"
	"github.com/waybill-dev/waybill/test/waybill"
)

// fuzzed is the workflow of the orders that mutated records are about. Nobody
// serves its agents: all replies are mutants.
const fuzzed = `
workflow: fuzzed
steps:
  - {name: left, agent: nobody, undo: unleft, after: [], timeout: 1h, retry: {attempts: 3, backoff: 10ms}}
  - {name: right, agent: nobody, undo: unright, after: [], timeout: 1h, exhausted: compensate, retry: {attempts: 2, backoff: 0s}}
  - {name: told, listen: go, after: []}
  - {name: last, agent: nobody, after: [left, right, told], timeout: 1h}
`

// called is one whose orders hear signals under keys, and begin with them.
const called = `
workflow: called
start: begin
steps:
  - {name: left, listen: stop, key: input.n}
`

// Whatever stands on the input topics, no partition stops: all is read, each
// record is accounted for once, and the orders of those who behave complete.
// WAYBILL_FUZZED is how many records are mutated for each topic, and
// WAYBILL_FUZZED_SEED repeats a run; a million needs -timeout 0.
func TestFuzzedRecords(t *testing.T) {
	t.Parallel()
	many := int64(3_000)
	if testing.Short() {
		many = 1_000
	}
	n, seed := setting(t, "WAYBILL_FUZZED", many), setting(t, "WAYBILL_FUZZED_SEED", 0)
	if seed == 0 {
		seed = rand.Int64()
	}
	var rows reliability.Figures
	records := 0
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		a := fuzz(t, b, int(n), seed)
		rows = append(rows, reliability.Figure{Name: string(b.Kind), Value: figures(a)})
		records += a.Inputs
	}, kfake.DataDir(t.TempDir()))
	reliability.Write(t, "fuzz", fmt.Sprintf("make reliability PART=fuzz FUZZED=%d WAYBILL_FUZZED_SEED=%d", n, seed), reliability.Figures{
		{Name: "seed", Value: seed},
		{Name: "mutated records", Value: records},
		{Name: "broker", Value: rows},
	})
}

func setting(t *testing.T, variable string, otherwise int64) int64 {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

func fuzz(t *testing.T, b *kafka.Broker, n int, seed int64) *audit.Accounts {
	t.Logf("WAYBILL_FUZZED=%d WAYBILL_FUZZED_SEED=%d", n, seed)
	w := newWorld(t, b)
	w.Foreign = true
	w.Caller("caller")
	i := w.Run("i-1", t.TempDir(), func(c *orchestrator.Config) {
		c.Logger = slog.New(slog.NewTextHandler(brief{t.Output()}, nil))
	})
	w.Register(i, fulfilment)
	w.Register(i, fuzzed)
	w.Register(i, called)
	echo := func(_ context.Context, r agents.Request[any]) (any, error) { return r.IdempotencyKey, nil }
	w.serve("inventory", echo, "reserve")
	w.serve("payment", echo, "charge")
	w.serve("shipping", echo, "ship")

	m := newMutator(w, i, n, seed)
	began := time.Now()
	var honest []string
	for done := 0; done < n; done += fuzzedAtOnce {
		if before := len(honest) - fuzzedAhead; before >= 0 {
			w.order(i, honest[before], in(projections.Processed))
		}
		id := fmt.Sprintf("honest-%d", done/fuzzedAtOnce)
		w.Submit(id, `{"workflow":"fulfilment","input":{"of":"honest"}}`)
		honest = append(honest, id)
		m.honest = honest
		m.send(min(fuzzedAtOnce, n-done))
	}
	produced := time.Since(began)
	w.readUpTo(i, &m.ends)
	for _, id := range honest {
		w.order(i, id, in(projections.Processed))
	}
	// Once something was read, all that follows from it is on the inputs, too: what was forwarded, and what
	// orders and keys tell each other.
	for inputs := m.ends; ; {
		before := inputs
		for _, topic := range w.Topics.Inputs() {
			for r := range w.every(topic) {
				inputs.add(&w.Topics, r)
			}
		}
		if inputs == before {
			break
		}
		w.readUpTo(i, &inputs)
	}
	// What was read last may have armed a retry, whose turn comes at once.
	w.until("nothing is armed", func() error { return w.armed(i) })
	took := time.Since(began)
	audit.Delivered(t, b.Brokers, &w.Topics)
	i.Stop()

	t.Logf("%d mutated records, produced in %s, all read and %d honest orders completed after %s",
		m.sent, produced.Round(time.Millisecond), len(honest), took.Round(time.Millisecond))
	a := w.Audit().Accounts
	t.Logf("%v", a)
	if a.Inputs < m.sent {
		t.Errorf("%d records on the inputs, %d of which were sent", a.Inputs, m.sent)
	}
	all := 0
	for _, c := range a.Figures()[1:] {
		all += c.N
	}
	if all != a.Inputs {
		t.Errorf("%d of %d records are accounted for", all, a.Inputs)
	}
	if a.Panicked > 0 {
		t.Errorf("deciding panicked %d times", a.Panicked)
	}
	return a
}

// fuzzedAtOnce is how many records of each topic come between two honest orders.
const fuzzedAtOnce = 250

// fuzzedAhead is how many honest orders may be under way.
const fuzzedAhead = 100

// brief leaves out what is written for every dead letter.
type brief struct{ log io.Writer }

func (b brief) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("an input was put aside")) {
		return len(line), nil
	}
	return b.log.Write(line)
}

// armed says which order waits for a retry that is near.
func (w *world) armed(i *waybill.Instance) error {
	f := projections.Filter{State: projections.Pending, Limit: 1000}
	for _, state := range []projections.State{projections.Pending, projections.Processing, projections.Compensating} {
		f.State, f.After = state, nil
		for {
			page, err := i.Store().List(w.Context(), partitions, f)
			if err != nil {
				return err
			}
			for _, o := range page.Orders {
				for k := range o.Steps {
					s := &o.Steps[k]
					if !s.Due.IsZero() || s.Undo != nil && !s.Undo.Due.IsZero() {
						return fmt.Errorf("order %q waits for a retry of step %s", o.ID, s.Name)
					}
				}
			}
			if f.After = page.Next; page.Next == nil {
				break
			}
		}
	}
	return nil
}

// ends are how far the input topics of each partition reach.
type ends [partitions]events.Positions

func (e *ends) add(topics *events.Topics, r *kgo.Record) {
	p := &e[r.Partition]
	if in, ok := topics.Input(r.Topic); ok {
		p.Set(in, max(p.At(in), r.Offset+1))
	}
}

// beyond says which input was not read up to here.
func (e *ends) beyond(read func(partition int) events.Positions) error {
	for p, end := range e {
		next := read(p)
		for _, in := range []events.Input{events.InputOrders, events.InputReplies, events.InputCommands, events.InputSignals, events.InputInternal} {
			if next.At(in) < end.At(in) {
				return fmt.Errorf("partition %d is read up to %v of %v", p, next, end)
			}
		}
	}
	return nil
}

// readUpTo waits until every input was read.
func (w *world) readUpTo(i *waybill.Instance, e *ends) {
	w.Helper()
	w.until("all inputs are read", func() error {
		heads, err := i.Store().Heads(partitions)
		if err != nil {
			return err
		}
		return e.beyond(func(p int) events.Positions { return heads[p].Next })
	})
}

// mutator makes records that are nearly right. What it makes follows from the
// seed.
type mutator struct {
	*world
	*rand.Rand
	instance *waybill.Instance
	client   *kgo.Client
	caller   string
	orders   int      // how many ids are in play
	honest   []string // orders that were submitted and must complete
	sent     int
	ends     ends
	large    int // how many more values may be large
}

// keys is how many keys there are, under which orders wait, and signals come.
const keys = 20

func newMutator(w *world, i *waybill.Instance, n int, seed int64) *mutator {
	return &mutator{
		world: w, instance: i, caller: w.Namespace + "-caller",
		Rand:   rand.New(rand.NewPCG(uint64(seed), 0)),
		client: w.Broker.Client(w, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(4<<20), kgo.ProducerLinger(5*time.Millisecond)),
		orders: max(50, n/10), large: 60,
	}
}

// send mutates n records for each topic, and sends them.
func (m *mutator) send(n int) {
	m.Helper()
	records := make([]*kgo.Record, 0, 5*n)
	for range n {
		records = append(records,
			m.record(m.Topics.Orders, events.OrderSubmitted),
			m.record(m.Topics.Replies, events.StepReplied),
			m.record(m.Topics.Commands, events.OrderCommand),
			m.record(m.Topics.Signals, events.OrderSignal),
			m.foreign())
	}
	if err := m.client.ProduceSync(m.Context(), records...).FirstErr(); err != nil {
		m.Fatal(err)
	}
	m.sent += len(records)
	for _, r := range records {
		m.ends.add(&m.Topics, r)
	}
}

func (m *mutator) of(all ...string) string { return all[m.IntN(len(all))] }

func (m *mutator) one(in int) bool { return m.IntN(in) == 0 }

// record makes one record. Half of them have one mutation, and some many.
func (m *mutator) record(topic string, kind events.Type) *kgo.Record {
	id := fmt.Sprintf("fuzzed-%d", m.IntN(m.orders))
	r := &kgo.Record{Topic: topic, Key: []byte(id)}
	if m.one(20) && topic != m.Topics.Orders {
		// It may do no harm: nothing that could be decided otherwise.
		id = m.honest[m.IntN(len(m.honest))]
		r.Key = []byte(id)
		r.Value = []byte(m.of(
			`{"command":"resubmit","order":"`+id+`","step":"none","attempt":9,"status":"completed"}`,
			`{"command":"dance","order":"`+id+`","step":"ship","attempt":-1,"status":"completed"}`))
	} else {
		r.Value = []byte(m.value(topic, id))
		for range m.of("", "1", "1", "333") {
			m.mutateValue(r)
		}
		if m.one(12) {
			r.Key = m.key()
		}
		r.Value = r.Value[:min(len(r.Value), 2_100_000)] // with headers, what the topics take
	}
	r.Partition = m.somewhere(r)
	if m.one(3) {
		m.addHeaders(r, kind)
	}
	switch m.IntN(12) {
	case 0:
		r.Timestamp = time.UnixMilli(m.Int64N(time.Now().UnixMilli()))
	case 1:
		r.Timestamp = time.Now().Add(30 * time.Minute) // Kafka refuses what is an hour ahead
	case 2:
		r.Timestamp = time.UnixMilli(1)
	}
	return r
}

// words are the types of what orders tell each other.
var words = []events.Type{events.ChildWanted, events.ChildReported, events.SignalWanted, events.SignalPassed, events.PlaceWanted, events.PlaceGiven}

// foreign makes a record of what orders tell each other that shows by itself that no order told it: who may write
// there is believed.
func (m *mutator) foreign() *kgo.Record {
	kind := words[m.IntN(len(words))]
	r := m.record(m.Topics.Internal, kind)
	switch m.IntN(3) {
	case 0: // the last one counts
		r.Headers = slices.DeleteFunc(r.Headers, func(h kgo.RecordHeader) bool { return h.Key == events.HeaderType })
		if m.one(2) {
			kind = events.Type(m.of("", "waybill", string(kind)+" ", string(events.OrderSubmitted), string(events.StepCompleted), "\xff"))
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: events.HeaderType, Value: []byte(kind)})
		}
		return r
	case 1:
		r.Value = slices.Concat([]byte(m.of("[", "}", "\xff", `{"order"`)), r.Value)
	default: // it says of another than its key
		r.Value = []byte(m.told(kind, fmt.Sprintf("nobody-%d", m.IntN(m.orders))))
	}
	r.Headers = append(r.Headers, kgo.RecordHeader{Key: events.HeaderType, Value: []byte(kind)})
	return r
}

// told is what an order is told, as it should be.
func (m *mutator) told(kind events.Type, id string) string {
	step, n := m.of("left", "right", "last"), 1+m.IntN(5)
	correlation := fmt.Sprintf(`"correlation":"@%[1]d/signal.stop","signal":"stop","key":"%[1]d","signalId":"p-1"`, m.IntN(keys))
	switch kind {
	case events.ChildWanted:
		return fmt.Sprintf(`{"child":%q,"wish":%q,"parent":"fuzzed-1","step":%q,"depth":1,"workflow":"fuzzed","input":{"n":1},"reason":"it is odd"}`,
			id, m.of(events.WishBegin, events.WishCancel, events.WishUndo, events.WishTell, events.WishForget), step)
	case events.ChildReported:
		return fmt.Sprintf(`{"parent":%q,"step":%q,"child":%q,"state":"Processed","output":1}`, id, step, events.ChildID(events.IdempotencyKey(id, step, 0)))
	case events.SignalWanted:
		return fmt.Sprintf(`{%s,"want":%q,"order":%q,"step":%q,"wait":%d,"given":1}`, correlation, m.of(events.WantAwait, events.WantWithdraw, events.WantHeard, events.WantUnheard), id, step, n)
	case events.SignalPassed:
		return fmt.Sprintf(`{%s,"order":%q,"step":%q,"wait":%d,"given":1,"source":"nowhere/0/0","data":1}`, correlation, id, step, n)
	case events.PlaceWanted:
		return fmt.Sprintf(`{"home":"@/limit.crm","bid":%q,"order":%q,"step":%q,"wait":%d}`, m.of(events.BidAsk, events.BidBack, events.BidUnwanted), id, step, n)
	default:
		return fmt.Sprintf(`{"order":%q,"step":%q,"wait":%d,"home":"@/limit.crm"}`, id, step, n)
	}
}

// somewhere picks a partition: most often the right one.
func (m *mutator) somewhere(r *kgo.Record) int32 {
	if len(r.Key) == 0 || m.one(8) {
		return m.Int32N(partitions)
	}
	return m.instance.Partition(string(r.Key))
}

// value is that of a record as it should be.
func (m *mutator) value(topic, id string) string {
	step := m.of("left", "right", "last")
	switch topic {
	case m.Topics.Orders:
		return fmt.Sprintf(`{"workflow":%q,"version":%d,"input":{"n":%d},"replyTo":%q,"priority":%q,"deadline":"2999-01-02T15:04:05.000Z"}`,
			m.of("fuzzed", "fuzzed", "fuzzed", "called"), m.IntN(2), m.IntN(keys), m.of(m.caller, m.Topics.Status), m.of("high", "normal", "low"))
	case m.Topics.Replies:
		undo := m.of("", "", `"undo":true,`)
		if m.one(2) {
			return fmt.Sprintf(`{"order":%q,"step":%q,"attempt":%d,%s"status":"completed","output":{"receipt":%d}}`, id, step, 1+m.IntN(2), undo, m.IntN(1000))
		}
		return fmt.Sprintf(`{"order":%q,"step":%q,"attempt":%d,%s"status":"failed","error":{"code":"odd","message":"it is odd","permanent":%t}}`,
			id, step, 1+m.IntN(3), undo, m.one(2))
	case m.Topics.Signals:
		key := ""
		if m.one(2) {
			key = fmt.Sprintf(`"key":"%d",`, m.IntN(keys))
		}
		return fmt.Sprintf(`{"signal":%q,%s"id":"p-%d","data":{"n":%d},"replyTo":%q}`, m.of("go", "stop", "begin"), key, m.IntN(m.orders), m.IntN(keys), m.of(m.caller, m.Topics.Status))
	case m.Topics.Internal:
		return m.told(words[m.IntN(len(words))], id)
	}
	command := m.of(events.Commands...)
	if m.one(2) {
		command = m.of(events.CommandResubmit, events.CommandResume) // what lets an order go on
	}
	return fmt.Sprintf(`{"command":%q,"id":"c-%d","step":%q,"input":{"n":1},"output":{"n":2},"sameKey":%t,"by":"kim","note":"as was asked"}`,
		command, m.IntN(4), step, m.one(2))
}

func (m *mutator) mutateValue(r *kgo.Record) {
	v := r.Value
	if len(v) == 0 {
		return
	}
	// A member is looked for by the colon behind its name.
	colon := bytes.IndexByte(v, ':') + 1
	if at := m.IntN(len(v)); m.one(2) {
		if next := bytes.IndexByte(v[at:], ':'); next >= 0 {
			colon = at + next + 1
		}
	}
	instead := func(with string) []byte {
		end := colon
		if next := bytes.IndexAny(v[colon:], ",}"); next >= 0 {
			end += next
		}
		return slices.Concat(v[:colon], []byte(with), v[end:])
	}
	switch m.IntN(14) {
	case 0, 1: // bits
		for range 1 + m.IntN(3) {
			v[m.IntN(len(v))] ^= 1 << m.IntN(8)
		}
	case 2:
		r.Value = v[:m.IntN(len(v))]
	case 3, 4:
		r.Value = instead(m.of("null", "true", "[]", "{}", `""`, "0", "-1", "1.5", `"text"`, `[{"a":[1]}]`, `"\u0000"`, `"\ud800"`))
	case 5:
		r.Value = instead(m.of("9223372036854775808", "-9223372036854775809", "1e400", "1"+strings.Repeat("0", 5000), "1e-9999", "2147483648", "-0"))
	case 6: // every member a second time, whole or with other values
		if len(v) > 2 && v[0] == '{' {
			r.Value = slices.Concat(v[:len(v)-1], []byte(","), v[1:])
		}
	case 7:
		r.Value = instead(`"` + m.of("\xff", "\xc3\x28", "\xed\xa0\x80", "\xf4\x90\x80\x80") + `"`)
	case 8:
		at := m.IntN(len(v))
		noise := binary.LittleEndian.AppendUint64(nil, m.Uint64())
		r.Value = slices.Concat(v[:at], noise, v[at:])
	case 9:
		depth := 1 + m.IntN(20_000)
		r.Value = instead(strings.Repeat("[", depth) + strings.Repeat("]", depth))
	case 10:
		r.Value = []byte(m.value(m.of(m.Topics.Orders, m.Topics.Replies, m.Topics.Commands, m.Topics.Signals), string(r.Key)))
	case 11:
		r.Value = slices.Concat([]byte(m.of("\ufeff", " \n\t", "[", "null", "{}")), v)
	case 12:
		r.Value = []byte(m.of("", "null", "{}", "[]", `""`, "0", "{", "\x00", `{"order":null}`))
		if len(r.Value) == 0 && m.one(2) {
			r.Value = nil
		}
	case 13:
		size := 1 + m.IntN(20_000)
		if m.large > 0 && m.one(40) {
			m.large--
			size = events.MaxValue + m.IntN(200_000) - 100_000
		}
		r.Value = instead(`"` + strings.Repeat(m.of("x", "\u200b", "é", `\n`), size/2) + `"`)
	}
}

func (m *mutator) key() []byte {
	switch m.IntN(7) {
	case 0:
		return nil
	case 1:
		return []byte{}
	case 2:
		return bytes.Repeat([]byte("k"), 250+m.IntN(20))
	case 3:
		return binary.LittleEndian.AppendUint64(nil, m.Uint64())
	case 4:
		return []byte("\xff\xfe")
	case 5:
		return []byte(m.of("\x00", "/", "fuzzed-1/left", "p0", " ", "\u200b", "日本"))
	}
	return fmt.Appendf(nil, "fuzzed-%d", m.IntN(m.orders))
}

func (m *mutator) addHeaders(r *kgo.Record, kind events.Type) {
	add := func(key, value string) {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: key, Value: []byte(value)})
	}
	for range 1 + m.IntN(3) {
		switch m.IntN(9) {
		case 0, 1, 2:
			add(events.HeaderType, string(kind))
		case 3:
			add(events.HeaderType, m.of("", "waybill", string(kind)+" ", string(events.StepReplied), string(events.OrderCommand), string(events.OrderSignal), "\xff", strings.Repeat("t", 5000)))
		case 4:
			add("traceparent", m.of("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00", "\xff", strings.Repeat("0", 100_000)))
		case 5:
			add(events.HeaderLane, m.of(`{"txn":1,"events":1,"next":{"orders":0,"replies":0,"commands":0}}`, "x"))
		case 6:
			add(m.of("waybill_source", "waybill_forwarded_from", "waybill_reason"), "nowhere/0/0")
		case 7:
			for k := range 100 {
				add(fmt.Sprint("h", k), "v")
			}
		case 8:
			if m.large > 0 && m.one(40) {
				m.large--
				add("large", strings.Repeat("h", 600_000)) // with the value more than a batch
			}
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: m.of("", "\xff\x00", "ce_id")})
		}
	}
}

// figures are those of the report.
func figures(a *audit.Accounts) reliability.Figures {
	var all reliability.Figures
	for _, c := range a.Figures() {
		all = append(all, reliability.Figure{Name: c.Name, Value: c.N})
	}
	return all
}
