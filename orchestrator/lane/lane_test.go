package lane

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/decide"
	"github.com/waybill-dev/waybill/projections"
)

func typed(topic, kind, key, value string) *kgo.Record {
	r := &kgo.Record{Topic: topic, Partition: 5, Offset: 7, Key: []byte(key), Value: []byte(value), Timestamp: time.UnixMilli(1)}
	if kind != "" {
		r.Headers = []kgo.RecordHeader{{Key: events.HeaderType, Value: []byte(kind)}}
	}
	return r
}

func TestReadingInputs(t *testing.T) {
	l, _ := newLane(t)
	here, elsewhere := l.keys()
	orders, replies, commands := l.topics.Orders, l.topics.Replies, l.topics.Commands
	answer := func(order, status string) string {
		return fmt.Sprintf(`{"order":%q,"step":"charge","attempt":1,"status":%q}`, order, status)
	}
	large := `"` + strings.Repeat("x", events.MaxValue) + `"`

	for _, c := range []struct {
		name               string
		record             *kgo.Record
		unreadable         string // a part of why it is put aside
		elsewhere, isReply bool
		problem            string // a part of why a submission is rejected
	}{
		{name: "submission", record: typed(orders, "", here, `{"workflow":"order"}`)},
		{name: "submission with its type", record: typed(orders, string(events.OrderSubmitted), here, `{"workflow":"order"}`)},
		{name: "submission with unknown fields", record: typed(orders, "", here, `{"workflow":"order","colour":"red"}`)},
		{name: "submission for another partition", record: typed(orders, "", elsewhere, `{"workflow":"order"}`), elsewhere: true},
		{name: "garbage for another partition", record: typed(orders, "", elsewhere, `hello`), elsewhere: true},
		{name: "submission with a field of another form", record: typed(orders, "", here, `{"workflow":7}`), problem: "/workflow"},
		{name: "submission that is too large", record: typed(orders, "", here, `{"workflow":"order","input":`+large+`}`), problem: "at most 1048576"},
		{name: "reply", record: typed(replies, "", here, answer(here, "completed")), isReply: true},
		{name: "reply with its type", record: typed(replies, string(events.StepReplied), here, answer(here, "failed")), isReply: true},
		{name: "reply without a key", record: typed(replies, "", "", answer(here, "completed")), isReply: true},
		{name: "reply without a key for another partition", record: typed(replies, "", "", answer(elsewhere, "completed")), elsewhere: true, isReply: true},
		{name: "reply for another partition", record: typed(replies, "", elsewhere, answer(elsewhere, "completed")), elsewhere: true},
		{name: "reply that is too large", record: typed(replies, "", here, strings.TrimSuffix(answer(here, "completed"), "}")+`,"output":`+large+`}`), isReply: true},

		{name: "no key", record: typed(orders, "", "", `{"workflow":"order"}`), unreadable: "order id is empty"},
		{name: "long key", record: typed(orders, "", strings.Repeat("x", 257), `{"workflow":"order"}`), unreadable: "257 bytes"},
		{name: "key that is not UTF-8", record: typed(orders, "", "\xff", `{"workflow":"order"}`), unreadable: "not UTF-8"},
		{name: "no value", record: typed(orders, "", here, ""), unreadable: "not a JSON object"},
		{name: "no JSON", record: typed(orders, "", here, "hello"), unreadable: "not a JSON object"},
		{name: "JSON that is no object", record: typed(orders, "", here, `["workflow"]`), unreadable: "not a JSON object"},
		{name: "two objects", record: typed(orders, "", here, `{}{}`), unreadable: "not a JSON object"},
		{name: "reply among orders", record: typed(orders, string(events.StepReplied), here, answer(here, "completed")), unreadable: "does not belong on " + orders},
		{name: "submission among replies", record: typed(replies, string(events.OrderSubmitted), here, `{}`), unreadable: "does not belong on " + replies},
		{name: "made-up type", record: typed(orders, "com.example.hello", here, `{"workflow":"order"}`), unreadable: `"com.example.hello" does not belong`},
		{name: "submission among commands", record: typed(commands, string(events.OrderSubmitted), here, `{}`), unreadable: "does not belong on " + commands},
		{name: "reply that is no JSON", record: typed(replies, "", here, "hello"), unreadable: "not a JSON object"},
		{name: "reply with a field of another form", record: typed(replies, "", here, `{"attempt":"one"}`), unreadable: "/attempt"},
		{name: "reply of two orders", record: typed(replies, "", here, answer(elsewhere, "completed")), unreadable: "the key names order"},
		{name: "reply of no order", record: typed(replies, "", "", `{"status":"completed"}`), unreadable: "order id is empty"},
		{name: "reply without a status", record: typed(replies, "", here, answer(here, "")), unreadable: "a reply is completed, failed or progress"},
		{name: "reply with another status", record: typed(replies, "", here, answer(here, "done")), unreadable: `status "done"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := l.readInputs([]*kgo.Record{c.record})[0]
			if (in.Unreadable != "") != (c.unreadable != "") || !strings.Contains(in.Unreadable, c.unreadable) {
				t.Fatalf("it is unreadable because %q, not %q", in.Unreadable, c.unreadable)
			}
			if c.unreadable != "" {
				return
			}
			if (in.Partition != l.partition) != c.elsewhere {
				t.Errorf("it belongs to partition %d", in.Partition)
			}
			if (in.Reply != nil) != c.isReply {
				t.Errorf("it is read as the reply %+v", in.Reply)
			}
			if (in.Problem != nil) != (c.problem != "") || in.Problem != nil && !strings.Contains(in.Problem.Error(), c.problem) {
				t.Errorf("it is rejected because %v, not %q", in.Problem, c.problem)
			}
		})
	}
	// The agent is told by the state of the order that its reply was too large.
	in := l.readInputs([]*kgo.Record{typed(replies, "", here, strings.TrimSuffix(answer(here, "completed"), "}")+`,"output":`+large+`}`)})[0]
	if r := in.Reply; r.Status != events.ReplyFailed || r.Error == nil || r.Error.Code != "reply-too-large" || !r.Error.Permanent || r.Output != nil || r.Step != "charge" {
		t.Errorf("%+v", r)
	}
}

func headerText(r *kgo.Record, key string) string { return string(events.HeaderValue(r, key)) }

// A record that another partitioner put here goes on as it is.
func TestForward(t *testing.T) {
	l, _ := newLane(t)
	_, elsewhere := l.keys()
	must(t, l.decide([]*kgo.Record{typed(l.topics.Orders, "", elsewhere, `hello`)}))
	if len(l.current.records) != 1 {
		t.Fatalf("%d records", len(l.current.records))
	}
	r := l.current.records[0]
	if r.Topic != l.topics.Orders || r.Partition != l.byKey.Of([]byte(elsewhere)) || string(r.Key) != elsewhere || string(r.Value) != "hello" ||
		!r.Timestamp.Equal(time.UnixMilli(1)) || headerText(r, "waybill_forwarded_from") != "waybill.orders/5/7" ||
		headerText(r, "waybill_written") != "1970-01-01T00:00:00.001Z" {
		t.Errorf("%+v", r)
	}
	if l.position.At(events.InputOrders) != 8 || !l.current.moved {
		t.Errorf("the position is %+v", l.position)
	}
	// What may hang there is looked for once it is committed.
	there := TopicPartition{r.Topic, r.Partition}
	if slices.Contains(l.places(), there) {
		t.Errorf("before it is committed it looks at %v", there)
	}
	l.seal(l.current)
	l.inflight, l.current = l.current, newBatch()
	must(t, l.conclude(nil))
	if !slices.Contains(l.places(), there) {
		t.Errorf("it looks at %v, and wrote to %v", l.places(), there)
	}
}

// A forwarded record was written when it was written first, however often it is
// forwarded. Who says so outside of a transaction is no lane, and that it was later
// says nobody.
func TestFirstWritten(t *testing.T) {
	l, _ := newLane(t)
	_, elsewhere := l.keys()
	first, then := "2026-01-05T12:00:00.000Z", time.Date(2026, 1, 5, 12, 0, 1, 0, time.UTC)
	for _, c := range []struct {
		name          string
		says          string
		transactional bool
		want          string
	}{
		{"forwarded", first, true, first},
		{"not in a transaction", first, false, "2026-01-05T12:00:01.000Z"},
		{"later", "2026-01-05T12:00:02.000Z", true, "2026-01-05T12:00:01.000Z"},
		{"no time", "noon", true, "2026-01-05T12:00:01.000Z"},
	} {
		r := typed(l.topics.Orders, "", elsewhere, "hello")
		r.Timestamp, r.Attrs = then, kgo.NewRecordAttrs(kgo.RecordAttrsOpts{Transactional: c.transactional, TimestampType: stampedByKafka})
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: "waybill_written", Value: []byte(c.says)})
		if got := string(events.AppendTime(nil, l.readInputs([]*kgo.Record{r})[0].Record.Written)); got != c.want {
			t.Errorf("%s: it was written at %s, and not at %s", c.name, got, c.want)
		}
		l.current = newBatch()
		must(t, l.decide([]*kgo.Record{r}))
		if got := headerText(l.current.records[0], "waybill_written"); got != c.want {
			t.Errorf("%s: it goes on as written at %s, and not at %s", c.name, got, c.want)
		}
	}
}

// What could not be produced there is put aside, as far as that is possible, or
// one record would stop the partition for ever.
func TestForwardTooLarge(t *testing.T) {
	l, _ := newLane(t)
	_, elsewhere := l.keys()
	large := typed(l.topics.Orders, "", elsewhere, strings.Repeat("x", events.MaxBatch))
	headed := typed(l.topics.Orders, "", elsewhere, "hello")
	headed.Headers = []kgo.RecordHeader{{Key: "h", Value: make([]byte, events.MaxBatch)}}
	keyed := typed(l.topics.Orders, "", strings.Repeat("k", events.MaxBatch), "hello")
	must(t, l.decide([]*kgo.Record{large, headed, keyed}))
	if len(l.current.records) != 3 {
		t.Fatalf("%d records", len(l.current.records))
	}
	for i, r := range l.current.records {
		if r.Topic != l.topics.DeadLetters || recordSize(r) > events.MaxBatch || !strings.Contains(headerText(r, "waybill_reason"), "only at the source") {
			t.Errorf("%d: %d bytes to %s", i, recordSize(r), r.Topic)
		}
	}
}

// A marker that was read counts: a position never goes back behind it.
func TestMarkersMoveThePosition(t *testing.T) {
	l, _ := newLane(t)
	here, _ := l.keys()
	data, marker := typed(l.topics.Orders, "", here, `{"workflow":"order"}`), &kgo.Record{Topic: l.topics.Orders, Partition: 5, Offset: 8}
	marker.Attrs = kgo.NewRecordAttrs(kgo.RecordAttrsOpts{Transactional: true, Control: true})
	must(t, l.decide([]*kgo.Record{data, marker}))
	if l.position.At(events.InputOrders) != 9 {
		t.Errorf("the position is %+v", l.position)
	}
}

// Behind a marker that is the last of an input the position is committed after an
// hour, or when the lane stops, and only once: retention may empty the input, and
// nobody could tell then that nothing was lost.
func TestThePositionBehindMarkersIsKept(t *testing.T) {
	l, _ := newLane(t)
	time0 := time.Now()
	clock := time0
	l.time.Timer = func() time.Time { return clock }
	marker := &kgo.Record{Topic: l.topics.Orders, Partition: 5, Offset: 8}
	marker.Attrs = kgo.NewRecordAttrs(kgo.RecordAttrsOpts{Transactional: true, Control: true})
	script := &replayed{Lane: l}
	for _, next := range []struct {
		after   time.Duration
		happens Happened
		commits int // so far
	}{
		{0, Happened{What: Ticked}, 0},
		{0, fetches(marker), 0},
		{keepAfter - 1, Happened{What: Ticked}, 0},
		{keepAfter, Happened{What: Ticked}, 1},
		{3 * keepAfter, Happened{What: Ticked}, 1},
		{3 * keepAfter, fetches(marker), 1},
		{4 * keepAfter, fetches(marker), 1}, // and another: the first counts
		{4 * keepAfter, Happened{What: Ticked}, 2},
		{5 * keepAfter, fetches(marker), 2},
		{5 * keepAfter, Happened{What: Stopped}, 3},
		{5 * keepAfter, Happened{What: Stopped}, 3},
	} {
		script.next = append(script.next, func() Happened {
			clock = time0.Add(next.after)
			return next.happens
		})
		script.want = append(script.want, next.commits)
	}
	must(t, l.Run(t.Context(), script))
	script.have = append(script.have, script.commits)
	if fmt.Sprint(script.have) != fmt.Sprint(script.want) {
		t.Errorf("after each there are %v commits, and must be %v", script.have, script.want)
	}
	if head := l.state.Head(); head.Transaction != 3 || head.Next.At(events.InputOrders) != 9 {
		t.Errorf("committed is %+v", head)
	}
}

func fetches(records ...*kgo.Record) Happened {
	return Happened{What: Fetched, Fetches: kgo.Fetches{{Topics: []kgo.FetchTopic{{Topic: records[0].Topic, Partitions: []kgo.FetchPartition{{Partition: 5, Records: records}}}}}}}
}

// replayed has happen to a lane what is written, and counts the commits.
type replayed struct {
	*Lane
	next       []func() Happened
	want, have []int
	commits    int
	committed  bool
}

func (s *replayed) Commit(b *Batch) {
	b.last.Offset = int64(s.commits)
	s.commits, s.committed = s.commits+1, true
}

func (*replayed) Deliver(*Delivery) {}
func (*replayed) Confirm([]int64)   {}
func (*replayed) AskOrders()        {}
func (*replayed) Turn() bool        { return true }
func (*replayed) Ask()              {}

func (s *replayed) Next(Wanted) Happened {
	if s.committed {
		s.committed = false
		return Happened{What: Committed}
	}
	if len(s.next) < len(s.want) {
		s.have = append(s.have, s.commits)
	}
	next := s.next[0]
	s.next = s.next[1:]
	return next()
}

// What nobody can read is put aside byte for byte, and the position moves on.
func TestDeadLetters(t *testing.T) {
	l, world := newLane(t)
	now := events.Time(time.Now().Add(time.Minute))
	l.time.Wall = func() time.Time { return now }
	here, _ := l.keys()
	raw := typed(l.topics.Orders, "", "\xff\x00", "\x00\xff")
	raw.Headers = make([]kgo.RecordHeader, 1, 10) // room that nobody else may write to
	raw.Headers[0] = kgo.RecordHeader{Key: "colour", Value: []byte("red")}
	lost := typed(l.topics.Replies, "", here, fmt.Sprintf(`{"order":%q,"step":"charge","attempt":1,"status":"completed"}`, here))
	must(t, l.decide([]*kgo.Record{raw, lost}))
	if len(l.current.records) != 2 {
		t.Fatalf("%d records", len(l.current.records))
	}
	r := l.current.records[0]
	if r.Topic != l.topics.DeadLetters || !bytes.Equal(r.Key, raw.Key) || !bytes.Equal(r.Value, raw.Value) || !r.Timestamp.Equal(raw.Timestamp) ||
		headerText(r, "colour") != "red" || headerText(r, "waybill_source") != "waybill.orders/5/7" || !strings.Contains(headerText(r, "waybill_reason"), "UTF-8") {
		t.Errorf("%+v", r)
	}
	if aside := PutAside(r); !aside.Equal(now) || headerText(r, "waybill_put_aside") != string(events.AppendTime(nil, now)) {
		t.Errorf("it was put aside at %s, and says %s", now, aside)
	}
	if len(raw.Headers) != 1 || raw.Headers[:2][1].Key != "" {
		t.Error("the headers of the input were changed")
	}
	if r := l.current.records[1]; headerText(r, "waybill_reason") != "there is no order of this id" || headerText(r, "waybill_source") != "waybill.replies/5/7" {
		t.Errorf("%+v", r)
	}
	if at := l.position.String(); at != `{"orders":8,"replies":8,"commands":0,"signals":0,"internal":0}` {
		t.Errorf("the position is %+v", l.position)
	}

	// Where the dead-letters topic does not take the value, it says where it is.
	world.refuses[l.topics.DeadLetters] = "closed"
	l.current = newBatch()
	must(t, l.decide([]*kgo.Record{raw}))
	if r := l.current.records[0]; r.Value != nil || !strings.Contains(headerText(r, "waybill_reason"), "only at the source") {
		t.Errorf("%+v", r)
	}
}

// A batch closes with a seal on its last journal record; one that only moves
// input positions gets a record to carry it.
func TestSeal(t *testing.T) {
	l, world := newLane(t)
	here, elsewhere := l.keys()
	must(t, l.decide([]*kgo.Record{typed(l.topics.Orders, "", here, `{"workflow":"order"}`), typed(l.topics.Orders, "", elsewhere, `{}`)}))
	first := l.current
	l.seal(first)
	l.current = newBatch()
	must(t, l.decide([]*kgo.Record{typed(l.topics.Orders, "", elsewhere, `{}`)}))
	second := l.current
	l.seal(second)

	for i, b := range []*Batch{first, second} {
		var journal []*kgo.Record
		for _, r := range b.records {
			if r.Topic == l.topics.Journal {
				journal = append(journal, r)
				if r.Partition != l.partition {
					t.Errorf("a journal record for partition %d", r.Partition)
				}
			}
		}
		for j, r := range journal {
			if sealed := events.HeaderValue(r, events.HeaderLane) != nil; sealed != (j == len(journal)-1) {
				t.Errorf("batch %d, record %d of %d: sealed is %t", i, j+1, len(journal), sealed)
			}
		}
		seal, err := events.DecodeSeal(events.HeaderValue(journal[len(journal)-1], events.HeaderLane))
		must(t, err)
		if seal.Transaction != uint64(i+1) || seal.Events != len(journal) || seal.Next.At(events.InputOrders) != 8 {
			t.Errorf("batch %d of %d records: %+v", i, len(journal), seal)
		}
	}
	if r := second.records[len(second.records)-1]; events.Header(r, events.HeaderType) != string(events.PartitionAdvanced) || r.Key != nil {
		t.Errorf("%+v", r)
	}

	// What the two make is what is folded.
	for i, b := range []*Batch{first, second} {
		for j, r := range b.records {
			r.Offset = int64(100*i + j)
		}
		l.inflight, l.current = b, newBatch()
		must(t, l.conclude(nil))
	}
	o, offsets, err := world.store.Order(5, here)
	must(t, err)
	if o.State != projections.Processing || len(offsets) != int(o.Seq) {
		t.Errorf("%+v, events at %v", o, offsets)
	}
	if head := l.state.Head(); head.Transaction != 2 || head.Next.At(events.InputOrders) != 8 {
		t.Errorf("%+v", head)
	}
}

// A batch is decided on what the batches before it make, committed or not.
func TestDecidingAheadOfTheCommit(t *testing.T) {
	l, _ := newLane(t)
	here, _ := l.keys()
	reply := func(step string) *kgo.Record {
		return typed(l.topics.Replies, "", here, fmt.Sprintf(`{"order":%q,"step":%q,"attempt":1,"status":"completed"}`, here, step))
	}
	must(t, l.decide([]*kgo.Record{typed(l.topics.Orders, "", here, `{"workflow":"order"}`), reply("charge")}))
	l.inflight, l.current = l.current, newBatch()
	must(t, l.decide([]*kgo.Record{reply("ship"), reply("mail")}))
	o, err := l.order(here)
	must(t, err)
	if o.State != projections.Processed {
		t.Errorf("%+v", o)
	}
	if committed, err := l.state.Order(here); err != nil || committed != nil {
		t.Errorf("the store has %+v already, %v", committed, err)
	}
	if c := l.inflight.orders[here]; c.order.State != projections.Processing {
		t.Errorf("deciding changed what is being committed: %+v", c.order)
	}
}

// A lane's own supervisor finds what expired, and what waits it leaves alone (V2).
func TestSupervisingLane(t *testing.T) {
	l, _ := newLane(t)
	past := l.env()
	past.Now = past.Now.Add(-time.Hour)
	for i := range 3 {
		l.take(decide.Submit(past, nil, &decide.Input{Record: new(decide.Record), Order: fmt.Sprint("late-", i), Submission: events.Submission{Workflow: "order"}}))
		l.take(decide.Submit(l.env(), nil, &decide.Input{Record: new(decide.Record), Order: fmt.Sprint("early-", i), Submission: events.Submission{Workflow: "order"}}))
	}
	l.seal(l.current)
	l.inflight, l.current = l.current, newBatch()
	must(t, l.conclude(nil))
	l.looks(t)
	if len(l.current.orders) != 3 {
		t.Errorf("it decided on %d orders", len(l.current.orders))
	}
	for i := range 3 {
		o, err := l.order(fmt.Sprint("late-", i))
		must(t, err)
		if o.State != projections.Error || o.FailureCount != 3 { // its charge has one attempt
			t.Errorf("%+v", o)
		}
	}
	// The same deadlines again, before any of it is committed.
	n := len(l.current.records)
	l.state.Rescan()
	l.looks(t)
	if len(l.current.records) != n {
		t.Errorf("looking again made %d records more", len(l.current.records)-n)
	}
}

// V7: what has expired does not wait for inputs that fill every batch, and leaves
// them room: more than one look brings comes by several.
func TestSupervisingBesideInputs(t *testing.T) {
	l, _ := newLane(t)
	past := l.env()
	past.Now = past.Now.Add(-time.Hour)
	const orders = DueAtOnce / 2 // with three steps each
	for i := range orders {
		l.take(decide.Submit(past, nil, &decide.Input{Record: new(decide.Record), Order: fmt.Sprint("late-", i), Submission: events.Submission{Workflow: "order"}}))
	}
	l.seal(l.current)
	l.inflight, l.current = l.current, newBatch()
	must(t, l.conclude(nil))
	for len(l.current.records) < batchRecords-orders {
		l.current.add(&kgo.Record{Topic: l.topics.DeadLetters})
	}
	l.looks(t)
	first := len(l.current.orders)
	if first == 0 || first == orders || !l.look {
		t.Errorf("at first it decided on %d orders of %d, and looks again: %t", first, orders, l.look)
	}
	l.commits(t)
	for l.look {
		must(t, l.supervise())
	}
	for i := range orders {
		o, err := l.order(fmt.Sprint("late-", i))
		must(t, err)
		if o.State != projections.Error {
			t.Errorf("then it has not decided on %s", o.ID)
		}
	}
}

// scripted is what happens beside a lane, one thing after the other.
type scripted []Happened

func (s *scripted) Commit(*Batch)   {}
func (*scripted) Deliver(*Delivery) {}
func (*scripted) Confirm([]int64)   {}
func (*scripted) AskOrders()        {}
func (*scripted) Turn() bool        { return true }
func (s *scripted) Ask()            {}
func (s *scripted) Next(Wanted) Happened {
	h := (*s)[0]
	*s = (*s)[1:]
	return h
}

// V7: a lane that always has inputs looks at its deadlines with every batch.
func TestExpiriesDoNotWaitForInputs(t *testing.T) {
	l, _ := newLane(t)
	past := l.env()
	past.Now = past.Now.Add(-time.Hour)
	l.take(decide.Submit(past, nil, &decide.Input{Record: new(decide.Record), Order: "late", Submission: events.Submission{Workflow: "order"}}))
	l.seal(l.current)
	l.inflight, l.current = l.current, newBatch()
	must(t, l.conclude(nil))
	here, _ := l.keys()
	fetches := brought(typed(l.topics.Orders, "", here, `{"workflow":"order"}`))
	must(t, l.Run(t.Context(), &scripted{{What: Ticked}, {What: Idle}, {What: Told}, {What: Fetched, Fetches: fetches}, {What: Stopped}}))
	if l.current.orders["late"] == nil {
		t.Error("an input kept what has expired from being seen")
	}
}

// A commit that failed ends the lane. The world hears of a record that was refused,
// and of nothing else.
func TestConcludeAFailure(t *testing.T) {
	l, world := newLane(t)
	r := &kgo.Record{Topic: "shop.status", Value: make([]byte, 100)}
	for _, c := range []struct {
		err     error
		refused []string
	}{
		{errors.New("its outcome is unknown"), nil},
		{fmt.Errorf("commit: %w", &RefusedError{Record: r, Err: kerr.MessageTooLarge}), []string{"shop.status 100 " + kerr.MessageTooLarge.Error()}},
		{fmt.Errorf("commit: %w", &LateError{Topics: []string{"shop.status", "other"}}), []string{"shop.status 0 " + ErrLate.Error(), "other 0 " + ErrLate.Error()}},
	} {
		l.inflight, world.refused = newBatch(), nil
		if err := l.conclude(c.err); !errors.Is(err, c.err) {
			t.Errorf("%v ends the lane with %v", c.err, err)
		}
		if !slices.Equal(world.refused, c.refused) {
			t.Errorf("%v: refused was %q", c.err, world.refused)
		}
	}
}

// A partition is raised once, to the format that the world says, by an event in
// front of all that may be of it. Until that is committed nobody else knows of it.
func TestRaisingAPartition(t *testing.T) {
	l, world := newLane(t)
	l.format = l.state.Head().Format()
	must(t, l.supervise())
	if len(l.current.records) != 0 || l.env().Format != 1 {
		t.Fatalf("%d records, in format %d", len(l.current.records), l.env().Format)
	}
	world.format = 3
	must(t, l.supervise())
	must(t, l.supervise())
	if len(l.current.records) != 1 || l.env().Format != 3 {
		t.Fatalf("%d records, in format %d", len(l.current.records), l.env().Format)
	}
	r := l.current.records[0]
	e, err := events.Decode[events.Event](r.Value)
	must(t, err)
	if e.Type != events.PartitionRaised || e.Format != 3 || e.Check() != nil || r.Topic != l.topics.Journal || r.Partition != l.partition || r.Key != nil {
		t.Errorf("%+v, %+v", r, e)
	}
	if format := l.state.Head().Format(); format != 1 {
		t.Errorf("before the commit the partition is in format %d", format)
	}
	l.seal(l.current)
	l.inflight, l.current = l.current, newBatch()
	world.format = 1 // an older release is back
	if err := l.conclude(nil); !errors.Is(err, ErrRaised) {
		t.Errorf("it is not claimed in its format: %v", err)
	}
	must(t, l.supervise())
	if format := l.state.Head().Format(); format != 3 || l.env().Format != 3 || len(l.current.records) != 0 {
		t.Errorf("it is in format %d, and %d records follow", format, len(l.current.records))
	}
}

// Of the partitions that were added to inputs a lane reads its share, each from where
// it was read up to, or from its beginning. What is there goes to the partition where
// it belongs, also to the lane's own.
func TestAddedPartitions(t *testing.T) {
	l, world := newLane(t)
	reader := &adding{}
	l.inputs, l.orders = reader, reader
	on := func(topic string, p int32) TopicPartition { return TopicPartition{topic, p} }
	world.added = map[TopicPartition]int64{on(l.topics.Orders, 17): 3, on(l.topics.Orders, 18): 0, on(l.topics.Commands, 29): 0}
	l.position.SetOf(events.InputCommands, 29, 7)
	for range 2 { // and each once
		l.readAdded()
	}
	if want := []string{"waybill.commands/29 from 7", "waybill.orders/17 from 3"}; !slices.Equal(reader.added, want) {
		t.Errorf("it reads %q", reader.added)
	}
	here, elsewhere := l.keys()
	var records []*kgo.Record
	for _, key := range []string{here, elsewhere, "\xff"} {
		r := typed(l.topics.Orders, "", key, `{"workflow":"order"}`)
		r.Partition, r.Offset = 17, int64(3+len(records))
		records = append(records, r)
	}
	command := typed(l.topics.Commands, "", here, `{"command":"pause"}`) // of an order that is not there
	command.Partition = 29
	must(t, l.decide(append(records, command)))
	if at := l.position.String(); at != `{"orders":0,"replies":0,"commands":0,"signals":0,"internal":0,"orders/17":6,"commands/29":8}` {
		t.Errorf("the position is %s", at)
	}
	var got []string
	for _, r := range l.current.records {
		got = append(got, fmt.Sprintf("%s/%d from %s%s", r.Topic, r.Partition, headerText(r, "waybill_forwarded_from"), headerText(r, "waybill_source")))
	}
	if want := []string{
		"waybill.orders/5 from waybill.orders/17/3", fmt.Sprintf("waybill.orders/%d from waybill.orders/17/4", l.byKey.Of([]byte(elsewhere))),
		"waybill.dead-letters/5 from waybill.orders/17/5", "waybill.commands/5 from waybill.commands/29/7",
	}; !slices.Equal(got, want) {
		t.Errorf("written are %q", got)
	}
}

// A batch of inputs that nobody can read is one that is put aside, in its turn: what
// waits before it still does.
func TestUnreadBatches(t *testing.T) {
	l, _ := newLane(t)
	l.inputs, l.broker = &adding{}, ending{at: 100}
	here, _ := l.keys()
	early := typed(l.topics.Commands, "", here, `{"command":"pause"}`) // of an order that may still come
	must(t, l.decide([]*kgo.Record{early}))
	l.asksForOrders(t)
	var failed []kgo.FetchError
	for _, topic := range []string{l.topics.Commands, l.topics.Replies} {
		failed = append(failed, kgo.FetchError{Topic: topic, Partition: 5, Err: fmt.Errorf("a reader: %w", &kgo.ErrDecompressTooLarge{Topic: topic, Partition: 5, Offset: 8, NextOffset: 11})})
	}
	damage := kgo.FetchError{Topic: l.topics.Journal, Err: &kgo.ErrDecompressTooLarge{}}
	away := kgo.FetchError{Topic: l.topics.Orders, Err: kerr.NotLeaderForPartition}
	unread, others := l.unread(append(failed, damage, away))
	if len(others) != 2 || others[0].Topic != damage.Topic || others[1].Topic != away.Topic {
		t.Errorf("what else failed: %v", others)
	}
	must(t, l.decide(nil, unread...))
	if at := l.position.String(); at != `{"orders":0,"replies":11,"commands":0,"signals":0,"internal":0}` {
		t.Errorf("the position is %s", at)
	}
	if len(l.current.records) != 1 || headerText(l.current.records[0], "waybill_source") != "waybill.replies/5/8" || !strings.Contains(headerText(l.current.records[0], "waybill_reason"), "8 to 10") {
		t.Errorf("put aside are %+v", l.current.records)
	}
	last := typed(l.topics.Orders, "", "\xff", "")
	last.Offset = 99
	must(t, l.decide([]*kgo.Record{last}))
	if at := l.position.String(); at != `{"orders":100,"replies":11,"commands":11,"signals":0,"internal":0}` || len(l.current.records) != 4 {
		t.Errorf("once the orders were read the position is %s, and %d records were put aside", at, len(l.current.records))
	}
}

// adding is a reader that notes what it is to read, too.
type adding struct {
	logReader
	added []string
}

func (a *adding) Add(at TopicPartition, from int64) {
	a.added = append(a.added, fmt.Sprintf("%s/%d from %d", at.Topic, at.Partition, from))
}

// Only what is gone stops a partition until an operator repairs it.
func TestWhatCannotBeRead(t *testing.T) {
	l, _ := newLane(t)
	l.transaction = 7
	for _, c := range []struct {
		topic     string
		err       error
		gap, lost bool
	}{
		{l.topics.Journal, kerr.OffsetOutOfRange, true, false},
		{l.topics.Orders, kerr.OffsetOutOfRange, false, true},
		{l.topics.Journal, kerr.NotLeaderForPartition, false, false},
		{l.topics.Orders, kerr.UnknownTopicOrPartition, false, false},
		{l.topics.Journal, kgo.ErrMaxDecompress, false, false},
		{l.topics.Orders, &kgo.ErrDataLoss{ResetTo: 900}, false, true},
		{l.topics.Journal, &kgo.ErrDataLoss{ResetTo: 900}, false, false}, // the next takeover folds it from where it is as it was
	} {
		err := l.unreadable(kgo.FetchError{Topic: c.topic, Partition: 17, Err: c.err})
		if !errors.Is(err, c.err) || errors.Is(err, projections.ErrGap) != c.gap || errors.Is(err, ErrInputLost) != c.lost ||
			errors.Is(err, ErrUnreadable) != errors.Is(c.err, kgo.ErrMaxDecompress) {
			t.Errorf("%s, %v: %v", c.topic, c.err, err)
		}
		from := int64(notTold)
		if told, ok := errors.AsType[*kgo.ErrDataLoss](c.err); ok {
			from = told.ResetTo
		}
		lost, ok := errors.AsType[*LostError](err)
		if ok != c.lost || ok && (lost.TopicPartition != TopicPartition{c.topic, 17} || lost.From != from || lost.Sealed != 7) {
			t.Errorf("%s, %v: it tells of %+v", c.topic, c.err, lost)
		}
	}
}
