package decide

import (
	"testing"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
)

// What waits in an order and cannot be read by this release is put aside once, and waits no more, also where the order has
// recorded enough of what is put aside, and what was read with it leaves no event (S3).
func TestWhatWaitsAndCannotBeReadIsPutAsideOnce(t *testing.T) {
	s := newStage(t)
	defer s.close()
	env := s.env("")
	env.Format = events.JournalFormat
	step := projections.Step{Name: "s"}
	step.State, step.Attempt, step.Agent = projections.Running, 1, "a"
	order := &projections.Order{ID: "o", Seq: 3, Workflow: "flow", Version: 1, State: projections.Processing, Steps: []projections.Step{step}, Discarded: MaxVoid, PutAside: MaxVoid}
	order.Waiting = []projections.Held{{Source: s.topics.Replies + "/0/7", Raw: events.Raw{Key: []byte("o"), Value: []byte("not json")}}}
	in := &Input{Record: &Record{Topic: s.topics.Replies}, Order: "o", Reply: &events.Reply{Order: "o", Step: "none", Attempt: 1, Status: events.ReplyCompleted}}
	d := On(env, order, in)
	if d.Order == nil || len(d.Order.Waiting) > 0 || len(d.Aside) != 1 || d.Aside[0].Offset != 7 || d.Dropped != 1 {
		t.Fatalf("%d are put aside, %d are dropped: %+v", len(d.Aside), d.Dropped, d.Order)
	}
	if again := On(env, d.Order, in); again.Order != nil || len(again.Aside) > 0 || again.Dropped != 1 {
		t.Errorf("%d are put aside again, %d are dropped: %+v", len(again.Aside), again.Dropped, again.Order)
	}
}
