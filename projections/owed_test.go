package projections

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/waybill-dev/waybill/events"
)

// What callers' own topics are owed follows from the journal, whether it was folded or
// committed, in the order of its events, from the format on in which it is owed, and up
// to where it was delivered.
func TestWhatCallersAreOwed(t *testing.T) {
	to := func(topic string, e events.Event) events.Event { e.ReplyTo = topic; return e }
	j := newJournal()
	j.claim("i-1", 1, 1)
	j.add(to("shop.a", accepted("o-1", "flow")))
	j.add(to("shop.a", accepted("o-2", "flow")),
		events.Event{Type: events.PartitionRaised, Format: events.CourierFormat},
		to("shop.a", accepted("o-3", "flow")), accepted("o-4", "flow"),
		events.Event{Type: events.OrderErrored, Order: "o-1", Reason: "because"}, events.Event{Type: events.AlertRaised, Order: "o-1", Reason: "because"})
	j.add(to("shop.b", accepted("o-5", "flow")), done("o-3", "s0"))
	s, p := folded(t, j)
	must(t, p.Flush())
	owed := func(topic string, from, to int64, limit int) (ids []string) {
		t.Helper()
		all, err := p.Owed(topic, from, to, limit)
		must(t, err)
		for _, o := range all {
			ids = append(ids, fmt.Sprintf("%d %s", o.Offset, o.ID))
			if o.Topic != topic || len(o.Value) == 0 || o.Time.IsZero() || o.Order != o.ID[:3] {
				t.Errorf("%+v", o)
			}
		}
		return ids
	}
	wants := func(have []string, want ...string) {
		t.Helper()
		if fmt.Sprint(have) != fmt.Sprint(want) {
			t.Errorf("owed is %q, and should be %q", have, want)
		}
	}
	same := func(a, b int32) {
		t.Helper()
		of := func(id int32) map[string]string {
			all := make(map[string]string)
			for key, value := range dump(t, s, id) {
				all[key[4:]] = value // behind the partition
			}
			return all
		}
		if a, b := of(a), of(b); !maps.Equal(a, b) {
			t.Errorf("the stores differ:\n%q\n%q", a, b)
		}
	}
	const end = 1_000
	wants(owed("shop.a", 0, end, 9), "6 o-3/1/status", "8 o-1/2/status")
	wants(owed("shop.a", 0, end, 1), "6 o-3/1/status")
	wants(owed("shop.a", 7, end, 9), "8 o-1/2/status")
	wants(owed("shop.a", 0, 8, 9), "6 o-3/1/status")
	wants(owed("shop.b", 0, end, 9), "11 o-5/1/status")
	wants(owed("shop", 0, end, 9))
	owedFor := func(order, topic string, from int64) (ids []string) {
		t.Helper()
		all, err := p.OwedFor(order, topic, from)
		must(t, err)
		for _, o := range all {
			ids = append(ids, fmt.Sprintf("%d %s", o.Offset, o.ID))
		}
		return ids
	}
	wants(owedFor("o-1", "shop.a", 0), "8 o-1/2/status")
	wants(owedFor("o-1", "shop.a", 9))
	wants(owedFor("o-1", "shop.b", 0))
	wants(owedFor("o-9", "shop.a", 0))
	var topics []string
	for topic := ""; ; {
		var err error
		topic, err = p.Owing(topic)
		must(t, err)
		if topic == "" {
			break
		}
		topics = append(topics, topic)
	}
	wants(topics, "shop.a", "shop.b")

	// Committed, it is the same.
	committed := partition(t, s, 1)
	must(t, fold(committed, j.records[:len(j.records)-2]))
	last := j.records[len(j.records)-2:]
	seal, err := events.DecodeSeal(last[1].header)
	must(t, err)
	event := func(r journalRecord) events.Event {
		e, err := events.Decode[events.Event](r.value)
		must(t, err)
		return e
	}
	e5, e3 := event(last[0]), event(last[1])
	o5 := new(Order)
	o3, err := committed.Order("o-3")
	must(t, err)
	o3 = o3.Clone()
	must(t, o5.Apply(&e5))
	must(t, o3.Apply(&e3))
	must(t, committed.Commit(seal, last[1].offset+1, []Update{{o5, []int64{last[0].offset}}, {o3, []int64{last[1].offset}}}))
	_, id, m := o5.Status(&e5)
	committed.Owe(Owed{"shop.b", last[0].offset, id, "o-5", e5.At, "", m.Append(nil)})
	must(t, committed.Flush())
	same(0, 1)

	// Delivered before it was flushed, or after.
	j.add(to("shop.b", accepted("o-6", "flow")), events.Event{Type: events.PartitionDelivered, Delivered: map[string]int64{"shop.a": 7, "shop.b": 12}})
	j.add(events.Event{Type: events.PartitionDelivered, Delivered: map[string]int64{"shop.b": 15}})
	must(t, fold(p, j.records))
	must(t, p.Flush())
	wants(owed("shop.a", 0, end, 9), "8 o-1/2/status")
	wants(owed("shop.b", 0, end, 9))
	if p.Head().vocabulary != deliveredSince {
		t.Errorf("it is of vocabulary %d", p.Head().vocabulary)
	}
	again := partition(t, s, 2)
	must(t, fold(again, j.records))
	must(t, again.Flush())
	same(0, 2)
	must(t, p.Reset())
	wants(owed("shop.a", 0, end, 9))
}

// What the namespace's topic has instead is owed no more, flushed or not, whatever became of the order
// since. Who asked something of its own on that topic is owed that still.
func TestWhatIsRefusedIsOwedNoMore(t *testing.T) {
	to := func(topic string, e events.Event) events.Event { e.ReplyTo = topic; return e }
	owes := newJournal()
	owes.claim("i-1", 1, 1)
	owes.add(events.Event{Type: events.PartitionRaised, Format: events.KeepFormat})
	kept := to("shop.a", accepted("o-1", "flow"))
	kept.Keep = 1
	owes.add(kept, to("shop.a", accepted("o-2", "flow")),
		to("shop.a", events.Event{Type: events.SubmissionConflicted, Order: "o-1", Reason: "another"}))
	owes.add(events.Event{Type: events.OrderCancelled, Order: "o-1"})
	refused := len(owes.records)
	owes.add(to("shop.a", events.Event{Type: events.StatusRefused, Order: "o-1", Reason: "it is gone"}))
	owes.add(events.Event{Type: events.OrderForgotten, Order: "o-1"})
	for name, flushed := range map[string][]int{"never": nil, "before": {refused}, "between": {refused, refused + 1}} {
		t.Run(name, func(t *testing.T) {
			s, p := folded(t, newJournal())
			for n := range owes.records {
				if slices.Contains(flushed, n) {
					must(t, p.Flush())
				}
				must(t, fold(p, owes.records[n:n+1]))
			}
			wants := func(when string) {
				t.Helper()
				owed, err := p.Owed("shop.a", 0, 1_000, 9)
				must(t, err)
				var ids []string
				for _, o := range owed {
					ids = append(ids, o.ID)
				}
				if fmt.Sprint(ids) != "[o-2/1/status o-1/2/status]" {
					t.Errorf("%s: owed is %q", when, ids)
				}
			}
			if name == "before" {
				wants("what was flushed")
			}
			must(t, p.Flush())
			wants("flushed")
			other := partition(t, s, 1)
			must(t, fold(other, owes.records))
			must(t, other.Flush())
			if fmt.Sprint(dump(t, s, 0)) == "" || len(dump(t, s, 0)) != len(dump(t, s, 1)) {
				t.Errorf("the stores differ: %q, %q", dump(t, s, 0), dump(t, s, 1))
			}
		})
	}
}
