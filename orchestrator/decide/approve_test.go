package decide

import (
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
)

// Why somebody decided is kept as he wrote it, or the decision is refused: it is not cut.
func TestNotesOfDecisionsAreNotCut(t *testing.T) {
	s := newStage(t)
	defer s.close()
	s.flows.Add(parseFlow(t, "workflow: w\nsteps:\n  - {name: a, approve: {roles: [clerk]}}\n"))
	s.takeOver(t, "i-1")
	s.take(Submit(s.env("o"), nil, &Input{Record: new(Record), Order: "o", Submission: events.Submission{Workflow: "w"}}))
	env := s.env("o")
	env.Claims = true
	for _, size := range []int{MaxText, MaxText + 1} {
		note := strings.Repeat("x", size)
		d := Operate(env, s.of(t, "o").Clone(), &Input{Command: &events.Command{Command: events.CommandDecide, Step: "a", Outcome: "approved", By: "ana", Note: note}})
		step := d.Order.Step("a")
		switch decided := step.State == projections.Completed; {
		case decided != (size <= MaxText):
			t.Errorf("with a note of %d bytes step a is %s", size, step.State)
		case decided && step.Approves.Decisions[0].Note != note:
			t.Errorf("the note is %q", step.Approves.Decisions[0].Note)
		}
	}
}
