package audit

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/proof"
	"github.com/waybill-dev/waybill/test/oracle"
)

var noon = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)

// desk is a namespace of two partitions. Order p, and each whose id begins with
// it, lives in partition 1, all others in partition 0.
type desk struct {
	topics  events.Topics
	records map[string][]*kgo.Record
	seqs    map[string]uint64
	next    [2]events.Positions
	sealed  [2]uint64
	dropped int // inputs, that the next transaction passes
	keys    *proof.Keys
	came    map[*kgo.Record]int64
}

func partition(order string) int32 {
	if strings.HasPrefix(order, "p") {
		return 1
	}
	return 0
}

func (d *desk) add(topic string, p int32, key, value string, headers ...kgo.RecordHeader) *kgo.Record {
	r := &kgo.Record{Topic: topic, Partition: p, Key: []byte(key), Value: []byte(value), Headers: headers, Timestamp: noon}
	for _, before := range d.records[topic] {
		if before.Partition == p {
			r.Offset++
		}
	}
	d.records[topic] = append(d.records[topic], r)
	return r
}

// input puts a record on an input topic, where it belongs.
func (d *desk) input(topic, order, value string) *kgo.Record {
	return d.inputAt(topic, partition(order), order, value)
}

func (d *desk) inputAt(topic string, p int32, order, value string, headers ...kgo.RecordHeader) *kgo.Record {
	r := d.add(topic, p, order, value, headers...)
	in, _ := d.topics.Input(topic)
	d.next[p].Set(in, r.Offset+1)
	d.came[r] = int64(len(d.came))
	return r
}

// submit, reply and command are inputs of an order.
func (d *desk) submit(order, value string) *kgo.Record {
	return d.input(d.topics.Orders, order, value)
}

func (d *desk) reply(order, rest string) *kgo.Record {
	return d.input(d.topics.Replies, order, fmt.Sprintf(`{"order":%q,%s}`, order, rest))
}

func (d *desk) command(order, rest string) *kgo.Record {
	return d.input(d.topics.Commands, order, "{"+rest+"}")
}

// log writes events of an order, as one transaction that read all inputs so far.
func (d *desk) log(order string, all ...events.Event) {
	p := partition(order)
	for _, e := range all {
		d.seqs[order]++
		e.Order, e.Seq = order, d.seqs[order]
		if e.At.IsZero() {
			e.At = noon
		}
		d.add(d.topics.Journal, p, order, string(e.Append(nil)), header(events.HeaderType, string(e.Type)))
	}
	d.seal(p)
}

// claim has partition 0 be of a format.
func (d *desk) claim(format int) {
	e := events.Event{Type: events.PartitionClaimed, Format: format}
	d.add(d.topics.Journal, 0, "", string(e.Append(nil)), header(events.HeaderType, string(e.Type)))
	d.seal(0)
}

// seal ends a transaction on a partition's journal.
func (d *desk) seal(p int32) {
	d.sealed[p]++
	r := d.last(d.topics.Journal, p)
	if r == nil || events.HeaderValue(r, events.HeaderLane) != nil {
		r = d.add(d.topics.Journal, p, "", `{"type":"waybill.partition.advanced","at":"2026-01-05T12:00:00.000Z"}`, header(events.HeaderType, string(events.PartitionAdvanced)))
	}
	seal := events.Seal{Transaction: d.sealed[p], Events: 1, Next: d.next[p], Dropped: d.dropped}
	d.dropped = 0
	r.Headers = append(r.Headers, kgo.RecordHeader{Key: events.HeaderLane, Value: seal.Append(nil)})
}

func (d *desk) last(topic string, p int32) *kgo.Record {
	for _, r := range slices.Backward(d.records[topic]) {
		if r.Partition == p {
			return r
		}
	}
	return nil
}

// putAside makes the dead letter of an input, every other one as a release before did.
func (d *desk) putAside(r *kgo.Record, reason string) {
	headers := append(slices.Clone(r.Headers), header("waybill_reason", reason), header("waybill_source", placeOf(r).String()))
	if len(d.records[d.topics.DeadLetters])%2 == 0 {
		headers = append(headers, header("waybill_put_aside", "2030-01-02T15:04:05Z"))
	}
	d.add(d.topics.DeadLetters, 0, string(r.Key), string(r.Value), headers...)
}

// forward makes the copy of an input in the partition of its order.
func (d *desk) forward(r *kgo.Record, order string) {
	copied := d.inputAt(r.Topic, partition(order), order, string(r.Value), append(slices.Clone(r.Headers),
		header("waybill_written", string(events.AppendTime(nil, r.Timestamp))), header("waybill_forwarded_from", placeOf(r).String()))...)
	copied.Timestamp = r.Timestamp.Add(time.Second) // Kafka's, of then
	copied.Attrs = kgo.NewRecordAttrs(kgo.RecordAttrsOpts{Transactional: true, TimestampType: 1})
}

func header(key, value string) kgo.RecordHeader {
	return kgo.RecordHeader{Key: key, Value: []byte(value)}
}

// event finds the nth event of an order, to change it.
func (d *desk) change(order string, n int, change func(*events.Event)) {
	for _, r := range d.records[d.topics.Journal] {
		if string(r.Key) != order {
			continue
		}
		if n--; n > 0 {
			continue
		}
		e, err := events.Decode[events.Event](r.Value)
		if err != nil {
			panic(err)
		}
		change(&e)
		r.Value = e.Append(nil)
		r.Headers[0] = header(events.HeaderType, string(e.Type))
		return
	}
	panic("there is no such event")
}

// drop makes of the nth event of an order one to which no input leads.
func (d *desk) drop(order string, n int) {
	d.change(order, n, func(e *events.Event) { e.Type = events.StepStarted })
}

func (d *desk) settle(rest bool) (*Accounts, []string) {
	trip, err := oracle.ReadFlow([]byte(`{"workflow":"trip","version":2,"steps":[{"name":"a","undo":"un-a"},{"name":"b"}]}`))
	if err != nil {
		panic(err)
	}
	picky, err := oracle.ReadFlow([]byte(`{"workflow":"picky","version":1,"deadline":"1h","input":{"type":"object","required":["n"]},"steps":[{"name":"a"}]}`))
	if err != nil {
		panic(err)
	}
	var said []string
	accounts := Settle(Kafka{
		Topics: &d.topics, Partition: partition, Rest: rest, Keys: d.keys,
		Read: func(topic string) iter.Seq[*kgo.Record] { return slices.Values(d.records[topic]) },
		Flow: func(name string, version int) *oracle.Flow {
			switch {
			case name == "trip" && (version == 0 || version == 2):
				return trip
			case name == "picky" && version < 2:
				return picky
			case name == "odd":
				return &oracle.Flow{Name: "odd", Version: 1, Input: []byte(`{"type":7}`)}
			}
			return nil
		},
		Came:   func(r *kgo.Record) int64 { return d.came[r] },
		InTime: Audit{Wrong: func(*Expiry) time.Duration { return time.Minute }}.inTime,
	}, func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) })
	return accounts, said
}

func emptyDesk() *desk {
	topics, err := events.NewTopics("ns")
	if err != nil {
		panic(err)
	}
	return &desk{topics: topics, records: make(map[string][]*kgo.Record), seqs: make(map[string]uint64), came: make(map[*kgo.Record]int64)}
}

const (
	wholeTrip = `{"workflow":"trip","input":{"n":1},"replyTo":"shop","priority":"high","deadline":"2026-01-06T00:00:00Z"}`
	tripOfP   = `{"workflow":"trip","version":2}`
)

func accepted() events.Event {
	return events.Event{
		Type: events.OrderAccepted, Workflow: "trip", Version: 2, Input: []byte(`{"n":1}`), ReplyTo: "shop",
		Priority: events.High, Deadline: time.Date(2026, 1, 6, 0, 0, 0, 0, time.UTC),
	}
}

// honest is a namespace in which everything happened that may, and no rule was
// broken.
func honest() *desk {
	d := emptyDesk()
	busy, gone := &events.Error{Code: "busy"}, &events.Error{Code: "gone", Message: "for good", Permanent: true}

	// Before its order a command is of nobody.
	early := d.command("o", `"command":"pause","id":"c-0"`)
	d.putAside(early, noOrder)
	d.submit("o", wholeTrip)
	d.submit("o", tripOfP)
	d.log("o", accepted(), events.Event{Type: events.StepStarted, Step: "a", Attempt: 1})
	d.reply("o", `"step":"a","attempt":1,"status":"completed","output":{"receipt":7}`)
	d.reply("o", `"step":"a","attempt":1,"status":"completed","output":{"receipt":8}`)
	d.reply("o", `"step":"b","attempt":1,"status":"failed","error":{"code":"busy"}`)
	d.log("o",
		events.Event{Type: events.StepCompleted, Step: "a", Attempt: 1, Output: []byte(`{"receipt":7}`)},
		events.Event{Type: events.StepStarted, Step: "b", Attempt: 1},
		events.Event{Type: events.ReplyDiscarded, Step: "a", Attempt: 1, Reason: events.DiscardRepeated},
		events.Event{Type: events.StepFailed, Step: "b", Attempt: 1, Error: busy})
	d.command("o", `"command":"pause","id":"c-1","by":"ana","note":"wait"`)
	d.command("o", `"command":"pause","id":"c-1","by":"ana","note":"wait"`)
	d.command("o", `"command":"pause","by":"kim"`)
	d.command("o", `"command":"resume","id":"c-2"`)
	d.command("o", `"command":"resubmit","id":"c-3","step":"b","input":{"n":2},"sameKey":true`)
	d.command("o", `"command":"skip-step","id":"c-4","step":"b","output":{"n":3}`)
	d.command("o", `"command":"cancel","id":"c-5"`)
	d.log("o",
		events.Event{Type: events.OrderPaused, Command: "c-1", By: "ana", Reason: "wait"},
		events.Event{Type: events.CommandRefused, By: "kim", Operation: "pause", Reason: "it is paused"},
		events.Event{Type: events.OrderResumed, Command: "c-2"},
		events.Event{Type: events.OrderResubmitted, Command: "c-3", Step: "b", Input: []byte(`{"n":2}`), SameKey: true},
		events.Event{Type: events.StepSkipped, Command: "c-4", Step: "b", Output: []byte(`{"n":3}`)},
		events.Event{Type: events.OrderCompensating, End: "Cancelled", Command: "c-5", Reason: "cancelled by an operator"},
		events.Event{Type: events.UndoStarted, Step: "a", Attempt: 1})
	d.reply("o", `"step":"a","attempt":1,"undo":true,"status":"failed","error":{"code":"gone","message":"for good","permanent":true}`)
	d.log("o",
		events.Event{Type: events.UndoFailed, Step: "a", Attempt: 1, Error: gone},
		events.Event{Type: events.UndoFailed, Step: "a", Attempt: 2, Error: &events.Error{Code: "bad-expression", Permanent: true}})

	// What cannot be read, and what was rejected.
	d.putAside(d.input(d.topics.Replies, "o", "}{"), "not a JSON object")
	d.putAside(d.inputAt(d.topics.Commands, 0, "", `{"command":"pause"}`), "the order id is empty")
	d.submit("r-1", `{"workflow":"none"}`)
	d.log("r-1", events.Event{Type: events.OrderRejected, Workflow: "none", Reason: "workflow none is not registered"})
	d.submit("r-2", `{"workflow":"picky","input":{"m":1}}`)
	d.log("r-2", events.Event{Type: events.OrderRejected, Workflow: "picky", Reason: "the input: property n is missing"})
	d.submit("r-3", `{"workflow":"trip","deadline":"2026-01-05T11:00:00Z"}`)
	d.log("r-3", events.Event{Type: events.OrderRejected, Workflow: "trip", Reason: "the deadline has passed"})
	d.submit("s", `{"workflow":"picky","input":{"n":1},"replyTo":"no topic"}`)
	d.log("s", events.Event{Type: events.OrderAccepted, Workflow: "picky", Version: 1, Input: []byte(`{"n":1}`), Deadline: noon.Add(time.Hour)},
		events.Event{Type: events.StatusRefused, ReplyTo: "no topic", Reason: "no name of a topic"})

	// One that was forwarded, and on which deciding panicked.
	d.forward(d.inputAt(d.topics.Orders, 0, "p", tripOfP), "p")
	d.seal(0)
	d.log("p", events.Event{Type: events.OrderAccepted, Workflow: "trip", Version: 2}, events.Event{Type: events.StepStarted, Step: "a", Attempt: 1})
	waiting := []*kgo.Record{
		d.reply("p", `"step":"a","attempt":1,"status":"completed","output":1`),
		d.reply("p", `"step":"a","attempt":1,"status":"completed","output":2`),
		d.submit("p", tripOfP),
		d.reply("p", `"step":"a","attempt":1,"status":"completed","output":3`),
		d.command("p", `"command":"cancel","id":"c-6"`),
		d.command("p", `"command":"release","id":"c-7","discard":true,"note":"no use"`),
	}
	held := func(r *kgo.Record) events.Event {
		return events.Event{Type: events.InputHeld, Source: placeOf(r).String(), Raw: &events.Raw{Written: r.Timestamp, Key: r.Key, Value: r.Value}}
	}
	const full, given = "the order is held, and this cannot wait for its release: it is too large", "given up by an operator: no use"
	d.putAside(waiting[3], full)
	d.putAside(waiting[0], given)
	d.log("p",
		events.Event{Type: events.OrderErrored, Held: true, Reason: "deciding on it panicked"},
		events.Event{Type: events.AlertRaised, Reason: "deciding on it panicked"},
		held(waiting[0]), held(waiting[1]), held(waiting[2]),
		events.Event{Type: events.InputDiscarded, Source: placeOf(waiting[3]).String(), Reason: full},
		events.Event{Type: events.CommandRefused, Command: "c-6", Operation: "cancel", Reason: "it is held"},
		events.Event{Type: events.OrderReleased, Command: "c-7", Reason: "no use"},
		events.Event{Type: events.InputDiscarded, Source: placeOf(waiting[0]).String(), Reason: given},
		events.Event{Type: events.InputReleased, Source: placeOf(waiting[1]).String()},
		events.Event{Type: events.StepCompleted, Step: "a", Attempt: 1, Output: []byte(`2`)},
		events.Event{Type: events.InputReleased, Source: placeOf(waiting[2]).String()})
	return d
}

func TestSettle(t *testing.T) {
	a, said := honest().settle(true)
	for _, wrong := range said {
		t.Error(wrong)
	}
	want := Accounts{
		Inputs: 28, Accepted: 3, Rejected: 3, Known: 2, Replied: 4, Discarded: 1,
		Acted: 6, Refused: 2, Repeated: 1, PutAside: 5, Forwarded: 1, Panicked: 1,
	}
	if *a != want {
		t.Errorf("%+v, want %+v", *a, want)
	}
}

// A batch that takes too much memory is put aside, and the dead letter has nothing of it.
func TestSettleOfZeros(t *testing.T) {
	d := honest()
	zeros := d.inputAt(d.topics.Orders, 0, "", strings.Repeat("\x00", events.MaxDecompressed))
	d.putAside(&kgo.Record{Topic: zeros.Topic, Offset: zeros.Offset}, fmt.Sprintf(wholeBatch+"it takes too much", zeros.Offset))
	d.seal(0)
	a, said := d.settle(true)
	if a.PutAside != 6 || len(said) > 0 {
		t.Errorf("%v: %q", a, said)
	}
}

// What was a dead letter is an input again as it was, or with a value whose author is another.
func TestSettleOfWhatIsPutBack(t *testing.T) {
	const pause, other, api = `{"command":"pause","id":"c-0"}`, `{"command":"pause","id":"c-9"}`, "/waybill/ns/api"
	tool, ana := header(events.HeaderSource, "tool"), header(events.HeaderActor, "ana")
	for name, test := range map[string]struct {
		value, key, topic, source string
		has                       []kgo.RecordHeader // besides
		from                      string
		says                      string
	}{
		"as it was":                            {value: pause, source: "tool", has: []kgo.RecordHeader{ana}},
		"with another value":                   {value: other, source: api},
		"with another value, forwarded":        {value: other, source: api, has: []kgo.RecordHeader{header("waybill_written", "2026-01-05T12:00:00Z"), header("waybill_forwarded_from", "ns.commands/1/2")}},
		"with another value by its author":     {value: other, source: "tool", says: `by "tool"`},
		"with another value by another desk":   {value: other, source: "/waybill/other/api", says: `by "/waybill/other/api"`},
		"with another value and its signature": {value: other, source: api, has: []kgo.RecordHeader{ana}, says: "a signature"},
		"without its signature":                {value: pause, source: "tool", says: "a signature"},
		"signed by another":                    {value: pause, source: "tool", has: []kgo.RecordHeader{header(events.HeaderActor, "bob")}, says: "a signature"},
		"by another":                           {value: pause, source: api, has: []kgo.RecordHeader{ana}, says: `and it is by "tool"`},
		"with other headers":                   {value: other, source: api, has: []kgo.RecordHeader{header("mine", "2")}, says: "with other headers"},
		"with Waybill's own":                   {value: pause, source: "tool", has: []kgo.RecordHeader{ana, header("waybill_reason", noOrder)}, says: "with waybill_reason"},
		"as if it was forwarded":               {value: pause, source: "tool", has: []kgo.RecordHeader{ana, header("waybill_written", "2026-01-05T12:00:00Z")}, says: "with waybill_written"},
		"under another key":                    {value: pause, source: "tool", key: "s", has: []kgo.RecordHeader{ana}, says: "with another key"},
		"on another topic":                     {value: pause, source: "tool", topic: "ns.signals", has: []kgo.RecordHeader{ana}, says: "and came from ns.commands"},
		"from nowhere":                         {value: pause, source: "tool", from: "ns.dead-letters/0/7", says: "where no dead letter is"},
	} {
		t.Run(name, func(t *testing.T) {
			d := honest()
			for _, r := range []*kgo.Record{d.records["ns.commands"][0], d.records["ns.dead-letters"][0]} {
				r.Headers = append([]kgo.RecordHeader{tool, header("mine", "1"), ana}, r.Headers...)
			}
			mine := header("mine", "1")
			has := slices.DeleteFunc([]kgo.RecordHeader{header(events.HeaderSource, test.source), mine}, func(h kgo.RecordHeader) bool {
				return slices.ContainsFunc(test.has, func(other kgo.RecordHeader) bool { return other.Key == h.Key })
			})
			has = append(append(has, header("waybill_replayed_from", cmp.Or(test.from, "ns.dead-letters/0/0"))), test.has...)
			topic, key := cmp.Or(test.topic, "ns.commands"), cmp.Or(test.key, "o")
			if strings.HasSuffix(name, "forwarded") {
				d.inputAt(topic, 1, key, test.value, slices.DeleteFunc(slices.Clone(has), func(h kgo.RecordHeader) bool { return h.Key == "waybill_written" || h.Key == "waybill_forwarded_from" })...)
				d.seal(1)
			}
			again := d.inputAt(topic, 0, key, test.value, has...)
			if topic == "ns.signals" {
				d.putAside(again, "it is no signal")
				d.seal(0)
			} else {
				d.log(key, events.Event{Type: events.CommandRefused, Command: test.value[strings.Index(test.value, "c-") : len(test.value)-2], Operation: "pause", Reason: "it is being undone"})
			}
			_, said := d.settle(true)
			if all := strings.Join(said, "\n"); test.says == "" && all != "" || !strings.Contains(all, test.says) {
				t.Errorf("said %q, want %q", all, test.says)
			}
		})
	}
}
