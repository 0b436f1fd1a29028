package lane

import (
	"testing"
	"time"

	"github.com/waybill-dev/waybill/orchestrator/window"
	"github.com/waybill-dev/waybill/projections"
)

// An agent that answers too late, while it answers others in time, uses up no attempts of a step
// at first. That is so of each time of a step that is repeated: one that was done often is
// not the sooner at its end.
func TestEachTimeIsExcusedAnew(t *testing.T) {
	a := withFlows(t, 2, `
workflow: polls
steps:
  - {name: call, agent: phone, timeout: 5s, retry: {attempts: 3, backoff: 1s}, repeat: {until: 'false', every: 1s, max: 1000}}
`)
	other := window.New(1, 0, 0, a.cfg.Signs.Of(a.topics.Requests("phone")))
	var ids []string
	for range 20 {
		ids = append(ids, a.like(`{"workflow":"polls"}`))
	}
	a.seconds(200, 0, 1)
	if s := a.order(ids[0]).Steps[0]; s.Repeats < 20 {
		t.Fatalf("it was done %d times before", s.Repeats)
	}
	for range 60 {
		other.Asked("call", time.Minute, a.now, a.now)
		other.Answered("call", time.Minute, true, a.now, a.now, a.now, a.now)
		a.seconds(20, 7*time.Second, 1)
	}
	excused := 0
	for _, id := range ids {
		o := a.order(id)
		if excused += o.Steps[0].Uncounted; o.State == projections.Error {
			t.Errorf("order %s: %s", id, o.Reason)
		}
	}
	if excused < 20 {
		t.Errorf("%d attempts were excused", excused)
	}
}
