package lane

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
)

// wish is what an order asks of one that is to do a step of it.
func (l *parkingLane) wish(offset int64, child, wish, rest string) *kgo.Record {
	r := typed(l.topics.Internal, string(events.ChildWanted), child, fmt.Sprintf(`{"child":%q,"wish":%q,"parent":"p-1","step":"ship"%s}`, child, wish, rest))
	r.Offset = offset
	return r
}

// An order that is to do a step of another begins only once its workflow is known, and what comes
// behind it waits: a cancellation that passed it would be of no order. If the workflow is not there
// after all, the other one hears of it. All else goes on.
func TestAChildsWorkflowIsSought(t *testing.T) {
	for _, there := range []bool{true, false} {
		l := newParkingLane(t)
		l.format, l.world.found = events.JournalFormat, 0
		begin, cancel := l.wish(7, l.ids[0], events.WishBegin, `,"workflow":"call","version":1`), l.wish(8, l.ids[0], events.WishCancel, `,"reason":"no more"`)
		must(t, l.decide([]*kgo.Record{begin, cancel}))
		l.reads(l.ids[1], `{"workflow":"order"}`)
		must(t, l.supervise())
		must(t, l.decideOn(l.rest))
		internal := TopicPartition{l.topics.Internal, l.partition}
		if o, err := l.order(l.ids[0]); o != nil || err != nil || l.position.At(events.InputInternal) > 7 || !l.paused()[internal] || !l.Busy() {
			t.Fatalf("it is %+v, %v; %v is read on: %t", o, err, internal, !l.paused()[internal])
		}
		if o, err := l.order(l.ids[1]); err != nil || o == nil {
			t.Errorf("another order waits, too: %v", err)
		}
		want := projections.Rejected
		if there {
			l.world.flows.Add(parseFlow(t, callFlow))
			want = projections.Compensating // its agent is at it
		} else {
			l.world.found = l.world.sought
		}
		must(t, l.supervise())
		must(t, l.decideOn(l.rest))
		o, err := l.order(l.ids[0])
		must(t, err)
		if o == nil || o.State != want || l.position.At(events.InputInternal) != 9 || l.paused()[internal] {
			t.Errorf("then it is %+v; read up to %d", o, l.position.At(events.InputInternal))
		}
		reports := l.writes(l.topics.Internal)
		if there != (len(reports) == 0) || !there && !strings.Contains(reports[0], `"state":"Rejected","error":{"code":"rejected","message":"workflow call@1 is not registered"}`) {
			t.Errorf("the other one hears %q", reports)
		}
	}
}

// A workflow that is read between two looks at it may be one that is not run here: its order waits, and is not rejected (S4).
func TestAChildsWorkflowIsReadBetweenTwoLooks(t *testing.T) {
	l := newParkingLane(t)
	l.format, l.world.found = events.JournalFormat, 0
	l.world.reads = func() { l.world.newer, l.world.found = map[string]int{"call": 99}, l.world.sought }
	must(t, l.decide([]*kgo.Record{l.wish(7, l.ids[0], events.WishBegin, `,"workflow":"call","version":1`)}))
	if o, err := l.order(l.ids[0]); o != nil || err != nil || l.position.At(events.InputInternal) > 7 {
		t.Errorf("it is %+v, %v; read up to %d", o, err, l.position.At(events.InputInternal))
	}
}

// Nothing else that orders tell each other waits for a workflow: what is asked of an order that is there already, or is to end, and
// what lives elsewhere and goes on to there.
func TestWishesThatWaitForNoWorkflow(t *testing.T) {
	const unknown = `,"workflow":"call","version":1`
	for name, c := range map[string]struct {
		order func(l *parkingLane) string
		wish  string
		more  string
	}{
		"begin, of an order that is there": {func(l *parkingLane) string {
			l.reads(l.ids[0], `{"workflow":"order"}`)
			return l.ids[0]
		}, events.WishBegin, unknown},
		"cancel, of one that is not": {func(l *parkingLane) string { return l.ids[0] }, events.WishCancel, `,"reason":"no more"`},
		"begin, elsewhere": {func(l *parkingLane) string {
			_, elsewhere := l.keys()
			return elsewhere
		}, events.WishBegin, unknown},
	} {
		t.Run(name, func(t *testing.T) {
			l := newParkingLane(t)
			l.format, l.world.found = events.JournalFormat, 0
			must(t, l.decide([]*kgo.Record{l.wish(7, c.order(l), c.wish, c.more)}))
			internal := TopicPartition{l.topics.Internal, l.partition}
			if at := l.position.At(events.InputInternal); at != 8 || l.paused()[internal] {
				t.Errorf("what is told is read up to %d, paused: %t", at, l.paused()[internal])
			}
		})
	}
}

// writes are the values that the batch has for a topic.
func (l *parkingLane) writes(topic string) (values []string) {
	for _, r := range l.current.records {
		if r.Topic == topic {
			values = append(values, string(r.Value))
		}
	}
	return values
}

// While a child's workflow needs a newer release, or cannot be known, its partition's wishes wait, and an operator is
// called once.
func TestAChildThatCannotBeginCallsAnOperator(t *testing.T) {
	for why, world := range map[string]func(*still){
		"its workflow, order, is in level 99 of the language, which is not run here":            func(w *still) { w.newer = map[string]int{"order": 99} },
		"its workflow, order, is not known here, and the workflows cannot be read to their end": func(w *still) { w.found = 0 },
	} {
		l := newParkingLane(t)
		l.format = events.JournalFormat
		version := 2 // which is not known
		if world(l.world); len(l.world.newer) > 0 {
			version = 1
		}
		must(t, l.decide([]*kgo.Record{l.wish(7, l.ids[0], events.WishBegin, fmt.Sprintf(`,"workflow":"order","version":%d`, version))}))
		began := l.time.Timer()
		for range 2 {
			l.tellBehind(began.Add(2 * time.Minute))
		}
		alerts := l.writes(l.topics.Alerts)
		if len(alerts) != 1 || !strings.Contains(alerts[0], fmt.Sprintf("order %s cannot begin: %s", l.ids[0], why)) {
			t.Errorf("the alerts are %q", alerts)
		}
	}
}

// What an order tells one of another partition is written to its own, in the transaction that
// decides it, and forwarded from there.
func TestWishesLeaveByTheirOwnPartition(t *testing.T) {
	l := newParkingLane(t)
	l.format = events.JournalFormat
	l.world.flows.Add(parseFlow(t, "workflow: trip\nsteps: [{name: ship, order: order}]"))
	var id, child string
	for n := 0; child == ""; n++ {
		id = fmt.Sprint("p-", n)
		if c := events.ChildID(id + "/ship"); l.byKey.Of([]byte(id)) == l.partition && l.byKey.Of([]byte(c)) != l.partition {
			child = c
		}
	}
	l.reads(id, `{"workflow":"trip"}`)
	i := slices.IndexFunc(l.current.records, func(r *kgo.Record) bool { return r.Topic == l.topics.Internal })
	if i < 0 {
		t.Fatalf("there is no wish among %d records", len(l.current.records))
	}
	wish := l.current.records[i]
	if string(wish.Key) != child || wish.Partition != l.partition {
		t.Errorf("the wish is for %q on partition %d", wish.Key, wish.Partition)
	}
	wish.Offset = 9
	l.commits(t)
	must(t, l.decide([]*kgo.Record{wish}))
	forwarded := l.current.records[0]
	if to := l.byKey.Of([]byte(child)); forwarded.Topic != l.topics.Internal || forwarded.Partition != to || string(forwarded.Value) != string(wish.Value) || l.position.At(events.InputInternal) != 10 {
		t.Errorf("it is forwarded to %s %d, not %d: %s", forwarded.Topic, forwarded.Partition, to, forwarded.Value)
	}
}
