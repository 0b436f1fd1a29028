package decide

import (
	"testing"
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
)

// A5, V5: an agent that never knows the operation is asked for some ten minutes, and no longer.
func TestWhatNoAgentKnowsEnds(t *testing.T) {
	s := newStage(t)
	s.flows.Add(parseFlow(t, "workflow: order\nsteps: [{name: charge, agent: payment, retry: {attempts: 2}}]\n"))
	s.takeOver(t, "i-1")
	s.take(Submit(s.env("o-1"), nil, &Input{Record: new(Record), Order: "o-1", Submission: events.Submission{Workflow: "order"}}))
	for attempt, round := 0, 1; round <= 2; round++ { // and as long again once an operator had it go on
		begun := s.now
		for n := 1; ; n++ {
			attempt++
			s.replies = append(s.replies, reply{id: "o-1", written: s.now, value: events.Reply{
				Order: "o-1", Step: "charge", Attempt: attempt, Status: events.ReplyFailed, Error: &events.Error{Code: events.UnknownOperation, Message: "what?", Permanent: true},
			}})
			s.read(t)
			s.commit(t)
			o := s.of(t, "o-1")
			if o.State == projections.Error {
				if at := s.now.Sub(begun); n != unknownAnswers+1 || at < 8*time.Minute || at > 12*time.Minute || !o.Steps[0].Error.Permanent || o.Steps[0].Tried != 1 || o.Steps[0].Uncounted != round*unknownAnswers {
					t.Errorf("after %d answers, %s: %+v", n, at, o.Steps[0])
				}
				break
			}
			if e := o.Steps[0].Error; n > unknownAnswers || e.Permanent || e.Message != "what?" {
				t.Fatalf("answer %d leaves it %s, %+v", n, o.State, e)
			}
			s.now = o.Steps[0].Due
			s.supervise(t, page)
			s.commit(t)
		}
		s.take(Operate(s.env("o-1"), s.of(t, "o-1"), &Input{Record: new(Record), Order: "o-1", Command: &events.Command{Command: events.CommandResubmit}}))
		s.commit(t)
	}
}
