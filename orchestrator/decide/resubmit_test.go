package decide

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
)

// P3: an input with which an order is resubmitted is for what failed, or else for the step that sleeps, or is done anew: and it says what
// such a step can be told. Without one nothing is asked of it.
func TestWhatAResubmissionMaySay(t *testing.T) {
	const pay, nap, rooms, pages, granted = 0, 1, 2, 3, 4
	flow := parseFlow(t, `
workflow: varied
steps:
- {name: pay, agent: bank, after: []}
- {name: nap, sleep: 1h, after: []}
- {name: rooms, each: {items: input.rooms, order: book}, after: []}
- {name: pages, each: {items: {agent: crm, do: list}, order: book}, after: []}
- {name: granted, approve: {roles: [clerk]}, after: []}
`)
	list, err := json.Marshal(make([]int, events.MaxItems+1))
	must(t, err)
	failed := func(s *projections.Step) {
		s.State, s.Error = projections.Failed, &events.Error{Code: "closed", Permanent: true}
	}
	with := func(of ...func(*projections.Order)) func(*projections.Order) {
		return func(o *projections.Order) {
			for _, one := range of {
				one(o)
			}
		}
	}
	step := func(i int, of func(*projections.Step)) func(*projections.Order) {
		return func(o *projections.Order) { of(&o.Steps[i]) }
	}
	alert := func(step string) func(*projections.Order) {
		return func(o *projections.Order) { o.Alert = &events.Alert{Step: step} }
	}
	done := func(s *projections.Step) { s.State, s.IdempotencyKey = projections.Completed, "k" }
	anew := func(s *projections.Step) { s.State = projections.NotStarted }
	expired := func(s *projections.Step) {
		failed(s)
		s.State, s.IdempotencyKey = projections.Expired, "o-1/pay"
	}
	begun := func(s *projections.Step) { s.Each = new(projections.Each) }
	paged := func(p projections.Pages) func(*projections.Order) {
		return with(step(pages, failed), step(pages, func(s *projections.Step) { s.Each = &projections.Each{Pages: &p} }))
	}
	all := with(step(pay, done), step(nap, done), step(rooms, done), step(pages, done), step(granted, done))
	for name, c := range map[string]struct {
		of      func(*projections.Order)
		step    string
		input   string
		refused string // "" if it is not
		begins  string // the step that it is for
		unsaid  bool   // whether under the same key
	}{
		"what failed":                          {of: step(pay, failed), input: `1`, begins: "pay"},
		"what may have run":                    {of: step(pay, expired), step: "pay", input: `1`, unsaid: true, refused: "keeps its idempotency key"},
		"what may have run, as it was":         {of: step(pay, expired), step: "pay", unsaid: true, begins: "pay"},
		"two that failed":                      {of: with(step(pay, failed), step(rooms, failed)), input: `1`, refused: "steps pay and rooms failed"},
		"nothing failed":                       {of: with(all, alert("pay")), input: `1`, refused: "no step failed"},
		"an alert of none":                     {of: with(all, alert("")), input: `1`, refused: "no step failed"},
		"what begins anew":                     {of: with(all, step(rooms, anew), alert("rooms")), input: `[]`, begins: "rooms"},
		"what begins anew, as it is":           {of: with(all, step(pay, anew), alert("pay")), step: "pay", begins: "pay"},
		"what begins, but anew is another":     {of: with(all, step(pay, anew), step(rooms, anew), alert("rooms")), step: "pay", refused: "only what failed"},
		"what begins by itself":                {of: with(all, step(granted, failed), step(pay, func(s *projections.Step) { s.State, s.IdempotencyKey = projections.NotStarted, "" }), alert("pay")), step: "pay", refused: "only what failed"},
		"a sleep that is to begin":             {of: step(pay, failed), step: "nap", input: `"2h"`, begins: "nap"},
		"a sleep that is no sleep":             {of: step(pay, failed), step: "nap", input: `{}`, refused: "sleeps, and its input says"},
		"a sleep that failed":                  {of: step(nap, failed), step: "nap", input: `{}`, begins: "nap"},
		"a sleep, as it was":                   {of: step(pay, failed), step: "nap", refused: "only what failed"},
		"items that began":                     {of: with(step(rooms, failed), step(rooms, begun)), step: "rooms", input: `[]`, refused: "those that it began with"},
		"items that began, as they were":       {of: with(step(rooms, failed), step(rooms, begun)), step: "rooms", begins: "rooms"},
		"pages of which none has come":         {of: paged(projections.Pages{}), step: "pages", input: `1`, begins: "pages"},
		"pages behind the first":               {of: paged(projections.Pages{Cursor: "2"}), step: "pages", input: `1`, refused: "those that it began with"},
		"items that could not begin":           {of: step(rooms, failed), step: "rooms", input: `[1]`, begins: "rooms"},
		"items that are no list":               {of: step(rooms, failed), step: "rooms", input: `1`, refused: "a list of its items"},
		"too many items":                       {of: step(rooms, failed), step: "rooms", input: string(list), refused: "a list of its items"},
		"items, as they were":                  {of: step(rooms, failed), step: "rooms", begins: "rooms"},
		"what people see":                      {of: step(granted, failed), step: "granted", input: `1`, refused: "what those see"},
		"what people see that cannot be shown": {of: with(step(granted, failed), alert("granted")), step: "granted", input: `1`, begins: "granted"},
		"who decides, as it was":               {of: step(granted, failed), step: "granted", begins: "granted"},
	} {
		f := newFamily(t)
		f.env.Workflow = func(string, int) *workflow.Workflow { return flow }
		f.does(Input{Order: "o-1", Submission: events.Submission{Workflow: "varied", Input: []byte(`{"rooms":[]}`)}})
		o := f.order.Clone()
		o.State = projections.Error
		for i := range o.Steps {
			o.Steps[i] = projections.Step{Name: o.Steps[i].Name, Work: projections.Work{State: projections.NotStarted}}
		}
		c.of(o)
		d := newDecider(f.env, o)
		command := &events.Command{Command: events.CommandResubmit, Step: c.step, NewKey: !c.unsaid}
		if c.input != "" {
			command.Input = []byte(c.input)
		}
		why := d.resubmit(command, events.Event{})
		if c.refused == "" && why != "" || !strings.Contains(why, c.refused) {
			t.Errorf("%s: it is refused: %q", name, why)
		}
		if why != "" {
			continue
		}
		if e, err := events.Decode[events.Event](d.out[0].Value); err != nil || e.Step != c.begins || string(e.Input) != c.input {
			t.Errorf("%s: it is for %q: %s, %v", name, e.Step, e.Input, err)
		}
	}
}
