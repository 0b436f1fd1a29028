package decide

import (
	"fmt"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
)

// An order with many steps at once, or large ones, is begun in parts, of which none is
// too much; and so it is undone.
func TestAWideOrderIsBegunInParts(t *testing.T) {
	const steps = 1_000
	for name, input := range map[string]int{"many": 10, "large": 900_000} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			defer s.close()
			s.takeOver(t, "i-1")
			var source strings.Builder
			source.WriteString("workflow: wide\nsteps:\n")
			steps := steps
			if input > 1_000 {
				steps = 50
			}
			for n := range steps {
				fmt.Fprintf(&source, "  - {name: s%d, agent: a, after: [], undo: back, timeout: 1h}\n", n)
			}
			s.flows.Add(parseFlow(t, source.String()))
			began := make(map[string]bool)
			part := func(what events.Type, by Decision) {
				t.Helper()
				size, starts := 0, 0
				for i := range by.Messages {
					m := &by.Messages[i]
					size += len(m.Value)
					if m.Topic == s.topics.Requests("a") {
						starts++
						began[m.Envelope.ID] = true
					}
				}
				if starts > beginAtOnce || size > writeAtOnce+2*events.MaxValue+steps*400 {
					t.Fatalf("%s: one decision begins %d attempts, and has %d bytes", what, starts, size)
				}
				s.take(by)
				s.commit(t)
			}
			value := events.Submission{Workflow: "wide", Input: []byte(`"` + strings.Repeat("x", input) + `"`)}
			part(events.OrderAccepted, Submit(s.env("o"), nil, "o", &value, "", nil))
			all := func(want int) {
				t.Helper()
				for looks := 0; len(began) < want; looks++ {
					must(t, s.state.Flush())
					due, err := s.state.Due(s.now, page)
					must(t, err)
					if len(due) == 0 {
						t.Fatalf("%d of %d began", len(began), want)
					}
					for _, d := range due {
						part(events.StepStarted, Supervise(s.env("o"), s.of(t, "o"), d.Step))
					}
				}
			}
			all(steps)
			for n := range steps {
				if n == 0 {
					continue
				}
				s.take(TakeReply(s.env("o"), s.of(t, "o"), &events.Reply{Order: "o", Step: fmt.Sprint("s", n), Attempt: 1, Status: events.ReplyCompleted}, s.now))
				s.commit(t)
			}
			part(events.OrderCancelled, Operate(s.env("o"), s.of(t, "o"), &events.Command{Command: events.CommandCancel}))
			all(2*steps - 1)
			if o := s.of(t, "o"); o.State != projections.Compensating {
				t.Errorf("it is %s", o.State)
			}
		})
	}
}
