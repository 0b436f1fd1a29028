package console

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/events"
)

// Each attempt is a bar, from its start to its end; what waited is one, too, and what goes on goes on until now.
func TestBars(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(1_000_000 + int64(ms)) }
	var rows []eventRow
	for n, e := range []events.Event{
		{Type: events.OrderAccepted, At: at(0)},
		{Type: events.StepStarted, Step: "a", Attempt: 1, At: at(0)},
		{Type: events.StepListening, Step: "l", At: at(0)},
		{Type: events.StepExpired, Step: "a", Attempt: 1, At: at(250)},
		{Type: events.StepStarted, Step: "a", Attempt: 2, At: at(500)},
		{Type: events.StepCompleted, Step: "a", Attempt: 2, At: at(750)},
		{Type: events.StepHeard, Step: "l", At: at(750)},
		{Type: events.StepSleeping, Step: "s", At: at(750)},
		{Type: events.UndoStarted, Step: "a", Attempt: 1, At: at(750)},
	} {
		e.Seq = uint64(n + 1)
		rows = append(rows, eventRow{Event: &e, Name: strings.TrimPrefix(string(e.Type), "waybill.")})
	}
	b := barsOf(rows, at(1000), map[string]bool{"s": true, "undo a": true})
	var got []string
	for _, l := range b.Lanes {
		for _, it := range l.Bars {
			got = append(got, fmt.Sprintf("%.2f to %.2f %s %s", (it.X-labelWidth)/chartWidth, (it.X+it.W-labelWidth)/chartWidth, it.Kind, it.Says))
		}
	}
	const want = `0.00 to 0.25 bad a: attempt 1, step.expired, 250ms
0.50 to 0.75 good a: attempt 2, step.completed, 250ms
0.00 to 0.75 good l: listens, 750ms
0.75 to 1.00 busy s: sleeps, goes on, 250ms
0.75 to 1.00 busy undo a: attempt 1, goes on, 250ms`
	if have := strings.Join(got, "\n"); have != want {
		t.Errorf("the bars are\n%s\nand not\n%s", have, want)
	}
	if barsOf(rows[:1], at(0), nil) != nil || barsOf(nil, at(0), nil) != nil {
		t.Error("there are bars of nothing")
	}
}
