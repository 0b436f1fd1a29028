package decide

import (
	"fmt"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/proof"
	"github.com/waybill-dev/waybill/projections"
)

// ADR 0026: a reply that is too large is one of the agent's all the same.
func TestALargeReplyKeepsItsToken(t *testing.T) {
	topics, err := events.NewTopics(events.DefaultNamespace)
	must(t, err)
	value := fmt.Sprintf(`{"order":"o-1","step":"s","attempt":1,"token":"k1.of-it","status":"completed","output":%q}`, strings.Repeat("x", events.MaxValue))
	in := Read(&Record{Topic: topics.Replies, Raw: events.Raw{Key: []byte("o-1"), Value: []byte(value)}}, &topics, Place{Of: func([]byte) int32 { return 0 }})
	if in.Reply == nil || in.Reply.Error == nil || in.Reply.Error.Code != events.ReplyTooLarge || in.Reply.Token != "k1.of-it" {
		t.Errorf("%s: %+v", in.Unreadable, in.Reply)
	}
}

// The hundred-and-first forged reply leaves no event, also where deciding on it panics (S6).
func TestForgedRepliesOnWhichDecidingPanics(t *testing.T) {
	s := newStage(t)
	defer s.close()
	env := s.env("")
	env.Keys = proof.New([]proof.Key{{ID: "k", Secret: []byte("of the test")}}, proof.Require, nil)
	for discarded, want := range map[int]bool{MaxVoid - 1: false, MaxVoid: true} {
		step := projections.Step{Name: "s"}
		step.State, step.Attempt, step.Agent, step.Proof = projections.Running, 1, "a", events.ProofRequire
		order := &projections.Order{ID: "o", Seq: 3, State: projections.Processing, Steps: []projections.Step{step}, Discarded: discarded}
		in := Input{Record: &Record{Topic: "waybill.replies"}, Order: "o", Reply: &events.Reply{Order: "o", Step: "s", Attempt: 1, Status: events.ReplyCompleted}}
		d := Hold(env, order, &in, "why")
		recorded := d.Order.Discarded > discarded
		if d.Order.Hold == nil || (d.Dropped == 1) != want || recorded == want {
			t.Errorf("after %d: it is held: %t, dropped: %d, recorded: %t", discarded, d.Order.Hold != nil, d.Dropped, recorded)
		}
	}
}
