package words

import (
	"fmt"
	"strings"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
)

// CompleteBy is when the order must have got on, if it does not wait for agents alone.
func CompleteBy(o *api.Summary) string {
	if o.CompleteBy == nil && o.WaitsSince != nil {
		return "waits"
	}
	if o.SleepsUntil != nil && o.CompleteBy != nil && o.CompleteBy.Equal(o.SleepsUntil.Time) {
		return "waits until " + Clock(o.SleepsUntil)
	}
	return Clock(o.CompleteBy)
}

// State is the order's state, and what else decides whether it goes on.
func State(o *api.Summary) string {
	text := string(o.ProcessState)
	if o.Toward != nil && !o.ProcessState.Final() {
		text += ", toward " + string(*o.Toward)
	}
	if o.Paused {
		text += ", paused"
	}
	if o.Held {
		text += fmt.Sprintf(", held, %d waiting", o.Waiting)
	}
	return text
}

// StandsAt says at which steps an order stands, as far as the server does: one of a release before does not.
func StandsAt(o *api.Summary) string {
	if o.StandsAt == nil {
		return "unknown"
	}
	all := make([]string, len(o.StandsAt), len(o.StandsAt)+1)
	for i, at := range o.StandsAt {
		if all[i] = at.Step + " " + string(at.State); at.Undo {
			all[i] = "undo of " + all[i]
		}
	}
	if o.StandsAtAll == nil {
		return strings.Join(all, ", ")
	}
	if more := *o.StandsAtAll - len(all); more > 0 {
		all = append(all, fmt.Sprintf("%d more", more))
	}
	return strings.Join(all, ", ")
}

// Turn says whether an order may be open beside others of its key.
func Turn(t *api.Turn) string {
	what, under := "it is the open one", ""
	switch {
	case t.Waits:
		what = "waits since " + Clock(t.Since)
	case t.GivenUp:
		what = "given up; once it is resubmitted it asks anew, behind those that came since,"
	}
	if t.Key != nil && t.Home != nil {
		under = fmt.Sprintf(" under key %s, in %s", *t.Key, *t.Home)
	}
	return what + under
}

// Origin says where an order comes from that nobody submitted.
func Origin(p *api.Parent) string {
	if events.IsCorrelation(p.Order) {
		return fmt.Sprintf("was started by a signal, event %s of %s", p.Step, p.Order)
	}
	return "does " + Parent(p)
}

// Parent says what an order does of another.
func Parent(p *api.Parent) string {
	text := fmt.Sprintf("step %s of order %s", p.Step, p.Order)
	if p.Detached {
		text += ", which does not wait for it"
	}
	return text
}

// Record says what a record is that has an id of Waybill's own and is no order, and which command tells
// more of it; "" of orders.
func Record(id string) (is, see string) {
	switch limit, schedule, flow := events.LimitOf(id), events.ScheduleOf(id), events.TurnOf(id); {
	case limit != "":
		return "the home of limit " + limit, "waybill limit show " + limit
	case schedule != "":
		return "schedule " + schedule, "waybill schedule show " + schedule
	case flow != "":
		return "the home of the turns of orders of workflow " + flow + " that have the same key", "waybill order history"
	case events.IsCorrelation(id):
		return "the home of signals of one name under a key", "waybill order history"
	}
	return "", ""
}
