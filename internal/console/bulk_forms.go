package console

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/projections"
)

// ofAll are the fields of the acts that can be done to many orders, which are not always those for one. They are of a list
// of which a step is asked for.
var ofAll = map[string]func(step string) []field{
	events.CommandResubmit: func(string) []field {
		return []field{
			keysField(),
			{Name: "toVersion", Title: "As of another version", Kind: "text", Help: "Its number; empty for the one that each has"},
		}
	},
	events.CommandSkipStep: func(step string) []field {
		return []field{{Name: "skip", Title: "Step", Kind: "text", Value: step, Required: true}}
	},
	events.CommandRelease: func(string) []field {
		return []field{{Name: "discard", Title: "Without the first input that waits, which becomes a dead letter", Kind: "flag"}}
	},
	events.CommandChange: func(string) []field {
		return []field{
			{Name: "priority", Title: "Priority", Kind: "choice", Choices: []string{"", "high", "normal", "low"}, Help: "Empty for the one that each has"},
			{Name: "deadline", Title: "Deadline", Kind: "text", Help: "Such as 2027-01-31 18:00 in the time zone of the page, 2027-01-31T18:00:00Z, or +2h from when the orders are looked up; empty for the one that each has"},
			{Name: "noDeadline", Title: "No deadline any more", Kind: "flag"},
		}
	},
	events.CommandPause:     nothing,
	events.CommandResume:    nothing,
	events.CommandCancel:    nothing,
	events.CommandTerminate: nothing,
}

func nothing(string) []field { return nil }

// actsForAll are those for all orders of a list that can do something to one of them, as far as that is known.
func actsForAll(filter *api.Filter, some []api.Summary) (all []act) {
	for _, a := range acts {
		fields, many := ofAll[a.Name]
		able := func(o api.Summary) bool { return able(a.Name, &o) }
		if !many || !slices.ContainsFunc(some, able) {
			continue
		}
		why := note
		why.Required = a.Name == events.CommandTerminate
		a.Fields = append(fields(filter.Step), field{Name: "command", Kind: "hidden", Value: a.Name}, why)
		all = append(all, a)
	}
	return all
}

// able says whether a command can do something to an order, as far as its row in a list tells.
func able(command string, o *api.Summary) bool {
	switch {
	case o.ProcessState.Final():
		return false
	case o.Held:
		return command == events.CommandRelease || command == events.CommandTerminate
	case command == events.CommandCancel && o.ProcessState == projections.Compensating:
		return false
	}
	if state := api.StateFor(command); state != "" && o.ProcessState != state {
		return false
	}
	return api.Fits(command, o, false)
}

// samples are the orders of a list, if they are all on its page; else such as may be on another.
func samples(state projections.State, page *api.OrderPage, whole bool) (all []api.Summary) {
	if whole {
		return page.Orders
	}
	states := projections.States
	if state != "" {
		states = []projections.State{state}
	}
	for _, s := range states {
		all = append(all, api.Summary{ProcessState: s})
		if s == projections.Error {
			all = append(all, api.Summary{ProcessState: s, Held: true})
		}
		all = append(all, api.Summary{ProcessState: s, Paused: true})
	}
	return all
}

// prepareBulk looks up the orders, and shows them. Nothing is done to them.
func (c *Console) prepareBulk(v *visit) (*view, error) {
	r := &api.BulkRequest{
		Act: api.Act{By: v.by(), Note: v.value("note")}, Command: v.value("command"),
		Filter: api.BulkFilter{State: projections.State(v.value("state")), Workflow: v.value("workflow"), Step: v.value("step"), Where: v.Form["where"]},
	}
	if _, many := ofAll[r.Command]; !many {
		return nil, missing("Nothing that can be done to many orders is called %q.", r.Command)
	}
	with, err := v.with(r.Command)
	if err != nil {
		return nil, err
	}
	if r.With, err = json.Marshal(with); err != nil {
		return nil, err
	}
	b, err := v.client.PrepareBulk(v.Context(), r)
	if err != nil {
		return nil, err
	}
	return &view{to: "/bulk/" + api.PathEscape(b.ID)}, nil
}

// with is what a form says that a command for many takes.
func (v *visit) with(command string) (map[string]any, error) {
	with := make(map[string]any)
	switch command {
	case events.CommandResubmit:
		flag, err := v.keys()
		if err != nil {
			return nil, err
		}
		if flag != "" {
			with[flag] = true
		}
		if text := v.value("toVersion"); text != "" {
			if with["toVersion"], err = strconv.Atoi(text); err != nil {
				return nil, unfit("The version %q is no number.", text)
			}
		}
	case events.CommandSkipStep:
		with["step"] = v.value("skip")
	case events.CommandRelease:
		if v.Form.Has("discard") {
			with["discard"] = true
		}
	case events.CommandChange:
		change, err := v.command(command)
		if err != nil {
			return nil, err
		}
		if change.Priority != "" {
			with["priority"] = change.Priority
		}
		if !change.Deadline.IsZero() {
			with["deadline"] = change.Deadline
		}
		if change.NoDeadline {
			with["noDeadline"] = true
		}
	}
	return with, nil
}
