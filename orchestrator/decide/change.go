package decide

import (
	"cmp"
	"fmt"
	"time"

	"github.com/waybill-dev/waybill/events"
)

// change gives the order another priority or deadline. That is for what begins from then on: an
// attempt that runs keeps its complete-by.
func (d *decider) change(c *events.Command, act events.Event) (refusal string) {
	o := d.order
	deadline := !c.Deadline.IsZero()
	switch {
	case d.env.Format < events.ChangeFormat:
		return fmt.Sprintf("an order is changed from format %d on, and its partition is in format %d: finish the upgrade (waybill upgrade finish), and send the command again", events.ChangeFormat, d.env.Format)
	case c.AtOnce != 0:
		return d.pace(c, act)
	case c.Priority == "" && !deadline && !c.NoDeadline:
		return "nothing is to be changed; say which priority or which deadline it is to have, or none (noDeadline)"
	case deadline && c.NoDeadline:
		return "a deadline is wanted, and none (deadline and noDeadline); say one of the two"
	case (deadline || c.NoDeadline) && unwanted(o):
		return "what was done is being undone, or the order has failed, and its deadline does not matter any more"
	case d.env.over(c.Deadline):
		return fmt.Sprintf("the deadline, %s, has passed", events.AppendTime(nil, c.Deadline))
	}
	if err := checkPriority(c.Priority); err != nil {
		return err.Error()
	}
	act.Type, act.Priority, act.Deadline = events.OrderChanged, cmp.Or(c.Priority, o.Priority), o.Deadline
	if deadline {
		act.Deadline = events.Time(c.Deadline)
	} else if c.NoDeadline {
		act.Deadline = time.Time{}
	}
	d.record(&act)
	return ""
}

func checkPriority(p events.Priority) error {
	switch p {
	case "", events.High, events.Normal, events.Low:
		return nil
	}
	return fmt.Errorf("priority %q: use high, normal or low", Cut(string(p), MaxName))
}
