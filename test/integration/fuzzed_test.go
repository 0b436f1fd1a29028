package integration

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"iter"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unique"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/reliability"
)

// fuzzed is the workflow of the orders that mutated records are about. Nobody
// serves its agents: all replies are mutants.
const fuzzed = `
workflow: fuzzed
steps:
  - {name: left, agent: nobody, undo: unleft, after: [], timeout: 1h, retry: {attempts: 3, backoff: 10ms}}
  - {name: right, agent: nobody, undo: unright, after: [], timeout: 1h, exhausted: compensate, retry: {attempts: 2, backoff: 0s}}
  - {name: last, agent: nobody, after: [left, right], timeout: 1h}
`

// Whatever stands on the input topics, no partition stops: all is read, each
// record is accounted for once, and the orders of those who behave complete.
// WAYBILL_FUZZED is how many records are mutated for each topic, and
// WAYBILL_FUZZED_SEED repeats a run; a million needs -timeout 0.
func TestFuzzedRecords(t *testing.T) {
	n, seed := setting(t, "WAYBILL_FUZZED", 3_000), setting(t, "WAYBILL_FUZZED_SEED", 0)
	if seed == 0 {
		seed = rand.Int64()
	}
	var rows reliability.Figures
	records := 0
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		a := fuzz(t, b, int(n), seed)
		rows = append(rows, reliability.Figure{Name: string(b.Kind), Value: a.figures()})
		records += a.inputs
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

func fuzz(t *testing.T, b *kafka.Broker, n int, seed int64) *accounts {
	t.Logf("WAYBILL_FUZZED=%d WAYBILL_FUZZED_SEED=%d", n, seed)
	w := newWorld(t, b)
	w.caller("caller")
	i := w.start("i-1", t.TempDir(), func(c *orchestrator.Config) {
		c.Logger = slog.New(slog.NewTextHandler(brief{testLog{t}}, nil))
	})
	w.register(i, fulfilment)
	w.register(i, fuzzed)
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
		w.submit(id, `{"workflow":"fulfilment","input":{"of":"honest"}}`)
		honest = append(honest, id)
		m.honest = honest
		m.send(min(fuzzedAtOnce, n-done))
	}
	produced := time.Since(began)
	// Once that was read, all that was forwarded is on the inputs, too.
	w.readUpTo(i, &m.ends)
	for _, id := range honest {
		w.order(i, id, in(projections.Processed))
	}
	a := newAccounts(w, i.Partition)
	w.readUpTo(i, &a.ends)
	// What was read last may have armed a retry, whose turn comes at once.
	w.until("nothing is armed", func() error { return w.armed(i) })
	took := time.Since(began)
	i.stop()

	t.Logf("%d mutated records, produced in %s, all read and %d honest orders completed after %s",
		m.sent, produced.Round(time.Millisecond), len(honest), took.Round(time.Millisecond))
	a.settle()
	t.Logf("%v", a)
	if a.inputs < m.sent {
		t.Errorf("%d records on the inputs, %d of which were sent", a.inputs, m.sent)
	}
	w.audit(m.caller)
	return a
}

// fuzzedAtOnce is how many records of each topic come between two honest orders.
const fuzzedAtOnce = 250

// fuzzedAhead is how many honest orders may be under way.
const fuzzedAhead = 100

// brief leaves out what is written for every dead letter.
type brief struct{ log testLog }

func (b brief) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("an input was put aside")) {
		return len(line), nil
	}
	return b.log.Write(line)
}

// armed says which order waits for a retry that is near.
func (w *world) armed(i *running) error {
	f := projections.Filter{State: projections.Pending, Limit: 1000}
	for _, state := range []projections.State{projections.Pending, projections.Processing, projections.Compensating} {
		f.State, f.After = state, nil
		for {
			page, err := i.Store().List(partitions, f)
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
	switch r.Topic {
	case topics.Orders:
		p.Orders = max(p.Orders, r.Offset+1)
	case topics.Replies:
		p.Replies = max(p.Replies, r.Offset+1)
	case topics.Commands:
		p.Commands = max(p.Commands, r.Offset+1)
	}
}

// beyond says which input was not read up to here.
func (e *ends) beyond(read func(partition int) events.Positions) error {
	for p, end := range e {
		if next := read(p); next.Orders < end.Orders || next.Replies < end.Replies || next.Commands < end.Commands {
			return fmt.Errorf("partition %d is read up to %+v of %+v", p, next, end)
		}
	}
	return nil
}

// readUpTo waits until every input was read.
func (w *world) readUpTo(i *running, e *ends) {
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
	instance *running
	client   *kgo.Client
	caller   string
	orders   int      // how many ids are in play
	honest   []string // orders that were submitted and must complete
	sent     int
	ends     ends
	large    int // how many more values may be large
}

func newMutator(w *world, i *running, n int, seed int64) *mutator {
	return &mutator{
		world: w, instance: i, caller: w.topics.Namespace + "-caller",
		Rand:   rand.New(rand.NewPCG(uint64(seed), 0)),
		client: w.broker.Client(w, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(4<<20), kgo.ProducerLinger(5*time.Millisecond)),
		orders: max(50, n/10), large: 60,
	}
}

// send mutates n records for each topic, and sends them.
func (m *mutator) send(n int) {
	m.Helper()
	records := make([]*kgo.Record, 0, 3*n)
	for range n {
		records = append(records,
			m.record(m.topics.Orders, events.OrderSubmitted),
			m.record(m.topics.Replies, events.StepReplied),
			m.record(m.topics.Commands, events.OrderCommand))
	}
	if err := m.client.ProduceSync(m.Context(), records...).FirstErr(); err != nil {
		m.Fatal(err)
	}
	m.sent += len(records)
	for _, r := range records {
		m.ends.add(&m.topics, r)
	}
}

func (m *mutator) of(all ...string) string { return all[m.IntN(len(all))] }

func (m *mutator) one(in int) bool { return m.IntN(in) == 0 }

// record makes one record. Half of them have one mutation, and some many.
func (m *mutator) record(topic string, kind events.Type) *kgo.Record {
	id := fmt.Sprintf("fuzzed-%d", m.IntN(m.orders))
	r := &kgo.Record{Topic: topic, Key: []byte(id)}
	if m.one(20) && topic != m.topics.Orders {
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
	case m.topics.Orders:
		return fmt.Sprintf(`{"workflow":"fuzzed","version":%d,"input":{"n":%d},"replyTo":%q,"priority":%q,"deadline":"2999-01-02T15:04:05.000Z"}`,
			m.IntN(2), m.IntN(1000), m.of(m.caller, m.topics.Status), m.of("high", "normal", "low"))
	case m.topics.Replies:
		undo := m.of("", "", `"undo":true,`)
		if m.one(2) {
			return fmt.Sprintf(`{"order":%q,"step":%q,"attempt":%d,%s"status":"completed","output":{"receipt":%d}}`, id, step, 1+m.IntN(2), undo, m.IntN(1000))
		}
		return fmt.Sprintf(`{"order":%q,"step":%q,"attempt":%d,%s"status":"failed","error":{"code":"odd","message":"it is odd","permanent":%t}}`,
			id, step, 1+m.IntN(3), undo, m.one(2))
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
		r.Value = []byte(m.value(m.of(m.topics.Orders, m.topics.Replies, m.topics.Commands), string(r.Key)))
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
			add(events.HeaderType, m.of("", "waybill", string(kind)+" ", string(events.StepReplied), string(events.OrderCommand), "\xff", strings.Repeat("t", 5000)))
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

// accounts say what became of every record of the input topics. They are too
// many to be held: of those that stand on Kafka a second time a fingerprint is kept.
type accounts struct {
	*world
	partition func(order string) int32
	ends      ends

	forwarded map[place]fingerprint // by what was forwarded
	letters   map[place]fingerprint // by what was put aside

	// Of every order, how many of its records came to no event yet.
	submitted, replies map[string]int
	commands           map[string][]string // their ids, in order
	last               map[string]string   // the id of the last command

	inputs, putAside, moved                                                 int
	accepted, rejected, known, replied, discarded, acted, refused, repeated int
}

// newAccounts reads how far the inputs reach, and what was forwarded.
func newAccounts(w *world, partition func(string) int32) *accounts {
	w.Helper()
	a := &accounts{
		world: w, partition: partition,
		forwarded: make(map[place]fingerprint), letters: make(map[place]fingerprint),
		submitted: make(map[string]int), replies: make(map[string]int), commands: make(map[string][]string), last: make(map[string]string),
	}
	for r := range a.everyInput() {
		a.ends.add(&a.topics, r)
		if from := events.Header(r, "waybill_forwarded_from"); from != "" && from != "nowhere/0/0" {
			a.moved++
			a.once(a.forwarded, from, r, 1)
		}
	}
	return a
}

func (a *accounts) everyInput() iter.Seq[*kgo.Record] {
	return func(yield func(*kgo.Record) bool) {
		for _, topic := range []string{a.topics.Orders, a.topics.Replies, a.topics.Commands} {
			for r := range a.every(topic) {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// once keeps the fingerprint of a copy, which has some headers more.
func (a *accounts) once(all map[place]fingerprint, source string, copied *kgo.Record, added int) {
	a.Helper()
	from, err := parsePlace(source)
	if err != nil {
		a.Errorf("%s is from %q: %v", placeOf(copied), source, err)
		return
	}
	if _, found := all[from]; found {
		a.Errorf("%s is there twice, the second time as %s", from, placeOf(copied))
	}
	part := strings.Contains(events.Header(copied, "waybill_reason"), "only at the source")
	copied.Headers = copied.Headers[:max(0, len(copied.Headers)-added)]
	f := fingerprintOf(copied)
	f.part = part
	all[from] = f
}

// place is where a record stands.
type place struct {
	topic     string
	partition int32
	offset    int64
}

func (p place) String() string { return fmt.Sprintf("%s/%d/%d", p.topic, p.partition, p.offset) }

func placeOf(r *kgo.Record) place { return place{r.Topic, r.Partition, r.Offset} }

func parsePlace(s string) (place, error) {
	topic, rest, _ := strings.Cut(s, "/")
	p := place{topic: unique.Make(topic).Value()}
	if _, err := fmt.Sscanf(rest, "%d/%d", &p.partition, &p.offset); err != nil {
		return p, err
	}
	if p.String() != s {
		return p, fmt.Errorf("that is %s", p)
	}
	return p, nil
}

// fingerprint tells a record from others.
type fingerprint struct {
	key, value, headers uint64
	written             int64
	part                bool // the rest was too large to be put aside
}

var hashing = maphash.MakeSeed()

func fingerprintOf(r *kgo.Record) fingerprint {
	f := fingerprint{key: maphash.Bytes(hashing, r.Key), value: maphash.Bytes(hashing, r.Value), written: r.Timestamp.UnixMilli()}
	for _, h := range r.Headers {
		f.headers = maphash.Comparable(hashing, struct {
			before     uint64
			key, value string
		}{f.headers, h.Key, string(h.Value)})
	}
	return f
}

// other says what is different about a record, "" if nothing is.
func (f fingerprint) other(than fingerprint) string {
	switch {
	case f.part:
	case f.value != than.value:
		return "another value"
	case f.key != than.key:
		return "another key"
	case f.written != than.written:
		return "another timestamp"
	case f.headers != than.headers:
		return "other headers"
	}
	return ""
}

// settle holds the inputs against what came of them.
func (a *accounts) settle() {
	a.Helper()
	for letter := range a.every(a.topics.DeadLetters) {
		a.putAside++
		source, reason := events.Header(letter, "waybill_source"), events.Header(letter, "waybill_reason")
		if strings.Contains(reason, "panicked") {
			a.Errorf("%s: %s", source, reason)
		}
		a.once(a.letters, source, letter, 2)
	}
	for r := range a.everyInput() {
		a.inputs++
		if !a.twice(r) {
			a.input(r)
		}
	}
	for source := range a.letters {
		a.Errorf("a dead letter is from %s, where nothing is", source)
	}
	for source := range a.forwarded {
		a.Errorf("something was forwarded from %s, where nothing is", source)
	}

	var read ends
	for r := range a.every(a.topics.Journal) {
		e, err := events.Decode[events.Event](r.Value)
		if err != nil {
			a.Fatal(err)
		}
		a.event(&e)
		if header := events.HeaderValue(r, events.HeaderLane); header != nil {
			seal, err := events.DecodeSeal(header)
			if err != nil {
				a.Fatal(err)
			}
			if seal.Transaction > 0 {
				read[r.Partition] = seal.Next
			}
		}
	}
	if err := a.ends.beyond(func(p int) events.Positions { return read[p] }); err != nil {
		a.Errorf("the journal: %v", err)
	}
	for order, n := range a.submitted {
		a.Errorf("%d submissions of order %q came to nothing", n, order)
	}
	for order, n := range a.replies {
		if n != 0 {
			a.Errorf("order %q: %d replies more than events about them", order, n)
		}
	}
	for order, left := range a.commands {
		if len(left) > 0 {
			a.Errorf("order %q: commands %q came to nothing", order, left)
		}
	}
	all := a.accepted + a.rejected + a.known + a.replied + a.discarded + a.acted + a.refused + a.repeated + a.putAside + a.moved
	if all != a.inputs {
		a.Errorf("%d of %d records are accounted for", all, a.inputs)
	}
}

// twice says whether an input was put aside or forwarded, and holds it against
// the copy.
func (a *accounts) twice(r *kgo.Record) bool {
	source, original := placeOf(r), fingerprintOf(r)
	letter, aside := a.letters[source]
	copied, moved := a.forwarded[source]
	switch {
	case aside && moved:
		a.Errorf("%s was put aside, and forwarded", source)
	case aside:
		if other := letter.other(original); other != "" {
			a.Errorf("%s was put aside with %s", source, other)
		}
	case moved:
		if len(r.Key) == 0 {
			original.key = copied.key // it is told by the value
		}
		if other := copied.other(original); other != "" {
			a.Errorf("%s was forwarded with %s", source, other)
		}
	}
	delete(a.letters, source)
	delete(a.forwarded, source)
	return aside || moved
}

// input expects an event of a record that was neither put aside nor forwarded.
func (a *accounts) input(r *kgo.Record) {
	order := string(r.Key)
	switch r.Topic {
	case a.topics.Orders:
		a.submitted[order]++
	case a.topics.Replies:
		reply, err := events.Decode[events.Reply](r.Value)
		if err != nil {
			a.Errorf("%s was taken for a reply: %v", placeOf(r), err)
		}
		order = reply.Order
		a.replies[order]++
	case a.topics.Commands:
		command, err := events.Decode[events.Command](r.Value)
		if err != nil {
			a.Errorf("%s was taken for a command: %v", placeOf(r), err)
		}
		id := shortened(command.ID)
		if id != "" && id == a.last[order] {
			a.repeated++
			break
		}
		if id != "" {
			a.last[order] = id
		}
		a.commands[order] = append(a.commands[order], id)
	}
	if a.partition(order) != r.Partition {
		a.Errorf("%s is of order %q, which lives in partition %d", placeOf(r), order, a.partition(order))
	}
}

// event accounts for the input from which it followed.
func (a *accounts) event(e *events.Event) {
	if strings.Contains(e.Reason, "panicked") {
		a.Errorf("deciding on order %q panicked: %s", e.Order, e.Reason)
	}
	switch e.Type {
	case events.OrderAccepted, events.OrderRejected:
		if a.submitted[e.Order] == 0 {
			a.Errorf("order %q came from no submission, or twice", e.Order)
		}
		a.known += a.submitted[e.Order] - 1
		delete(a.submitted, e.Order)
		if e.Type == events.OrderAccepted {
			a.accepted++
		} else {
			a.rejected++
		}
	case events.StepCompleted, events.StepFailed, events.UndoCompleted, events.UndoFailed:
		a.replies[e.Order]--
		a.replied++
	case events.ReplyDiscarded:
		a.replies[e.Order]--
		a.discarded++
	case events.OrderPaused, events.OrderResumed, events.OrderResubmitted, events.StepSkipped, events.UndoSkipped, events.CommandRefused, events.OrderCompensating:
		if e.Type == events.OrderCompensating && e.End != string(projections.Cancelled) {
			return // the workflow did it
		}
		if e.Type == events.CommandRefused {
			a.refused++
		} else {
			a.acted++
		}
		if left := a.commands[e.Order]; len(left) == 0 || left[0] != shortened(e.Command) {
			a.Errorf("order %q: %s of command %q, when it was the turn of %q", e.Order, e.Type, e.Command, left)
		} else {
			a.commands[e.Order] = left[1:]
		}
	}
}

// shortened leaves off what is not remembered of a long id.
func shortened(id string) string { return strings.ToValidUTF8(id[:min(len(id), 250)], "") }

func (a *accounts) figures() reliability.Figures {
	return reliability.Figures{
		{Name: "records on the inputs", Value: a.inputs},
		{Name: "orders accepted", Value: a.accepted},
		{Name: "orders rejected", Value: a.rejected},
		{Name: "submissions again", Value: a.known},
		{Name: "replies that did something", Value: a.replied},
		{Name: "replies discarded", Value: a.discarded},
		{Name: "commands done", Value: a.acted},
		{Name: "commands refused", Value: a.refused},
		{Name: "commands that came again", Value: a.repeated},
		{Name: "dead letters", Value: a.putAside},
		{Name: "forwarded", Value: a.moved},
	}
}

func (a *accounts) String() string {
	return fmt.Sprintf("%d records on the inputs: %d orders accepted, %d rejected, %d submissions again; %d replies did something, %d were discarded; %d commands were done, %d refused, %d came again; %d dead letters, %d forwarded",
		a.inputs, a.accepted, a.rejected, a.known, a.replied, a.discarded, a.acted, a.refused, a.repeated, a.putAside, a.moved)
}
