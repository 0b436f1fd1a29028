package office

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/projections"
)

// Ending brings orders to their end, once the services are well: operators let go
// what waits for them.
type Ending struct {
	Client *api.Client
	Office *Office
	Open   []string // the orders that have not ended
	ended  map[string]bool
	told   map[string]time.Time // when each had last changed when an operator acted on it
	seen   map[string]bool      // the orders that do steps of others
}

// Look looks at the orders that are open, and at those that do their steps, and acts on those that wait for it. It
// returns nil once all have ended.
func (e *Ending) Look(ctx context.Context) error {
	if e.told == nil {
		e.ended, e.told, e.seen = make(map[string]bool), make(map[string]time.Time), make(map[string]bool)
	}
	var first error
	var children []string
	open := slices.Clone(e.Open)
	e.Open = slices.DeleteFunc(e.Open, func(id string) bool {
		o, err := e.Client.Order(ctx, id)
		if err == nil {
			children = append(children, e.children(o)...)
			children = append(children, e.items(ctx, o, open)...)
		}
		switch {
		case err == nil && o.ProcessState.Final():
			e.ended[id] = true
			return true
		case err != nil:
		case o.Paused:
			e.act(ctx, o, `"command":"resume"`)
		case o.ProcessState == "Error":
			e.act(ctx, o, goOn(o))
		case asks(o) != "":
			e.act(ctx, o, decision(o, len(e.told)))
		}
		if first == nil {
			said, _ := json.Marshal(o) // it came as JSON
			first = fmt.Errorf("the first is %s: %s, %v", id, said, err)
		}
		return false
	})
	e.Open = append(e.Open, children...)
	if len(e.Open) > 0 {
		return fmt.Errorf("%d orders have not ended; %w", len(e.Open), first)
	}
	return nil
}

// Ended is how many have been seen to have ended, children among them.
func (e *Ending) Ended() int { return len(e.ended) }

// children are the orders that do steps of o and that nobody has looked at yet.
func (e *Ending) children(o *api.Order) (all []string) {
	for _, s := range o.Steps {
		if c := s.Child; c != nil && !e.seen[c.Order] {
			e.seen[c.Order] = true
			all = append(all, c.Order)
		}
	}
	return all
}

// items are the orders that do items of o's steps and that are not looked at.
func (e *Ending) items(ctx context.Context, o *api.Order, open []string) (all []string) {
	for i := range o.Steps {
		if n := o.Steps[i].Items; n == nil || n.Running == 0 {
			continue
		}
		page, err := e.Client.Items(ctx, o.OrderID, o.Steps[i].Name, projections.ItemFilter{}, 1000, "")
		if err != nil {
			continue // it is looked at again
		}
		for _, item := range page.Items {
			if (item.State == "running" || item.State == "undoing") && !slices.Contains(open, *item.Order) {
				all = append(all, *item.Order)
			}
		}
	}
	return all
}

// asks is the step of an order that waits for people, "" if none does.
func asks(o *api.Order) string {
	for _, s := range o.Steps {
		if s.State == "approving" {
			return s.Name
		}
	}
	return ""
}

// decision is the command of somebody who decides.
func decision(o *api.Order, n int) string {
	return fmt.Sprintf(`"command":"decide","step":%q,"outcome":%q,"by":"p-%d"`, asks(o), []string{"approved", "approved", "declined"}[n%3], n)
}

// badInput is why an order stands in Error of which a step's input cannot be computed,
// for example because a step was skipped whose output it uses.
var badInput = regexp.MustCompile(`^step (\S+): (?:with|show) "`)

// badItems is why one does of whose items no list comes.
var badItems = regexp.MustCompile(`^step (\S+): items `)

// badKey is why one does of which a step has no key under which it waits, for a signal or a place.
var badKey = regexp.MustCompile(`^step (\S+): key `)

// badMessage is why an order stands in Error of which a step raises a failure that cannot be put
// into words.
var badMessage = regexp.MustCompile(`^step (\S+): message "`)

// goOn is the command that lets an order in Error go on. A step whose input cannot be
// computed is given one, or the message that it raises, and such an undo is passed over, or what is
// done in vain however often: it would fail again.
func goOn(o *api.Order) string {
	if o.Reason != nil {
		if step := badInput.FindStringSubmatch(*o.Reason); step != nil {
			return fmt.Sprintf(`"command":"resubmit","step":%q,"input":{},"sameKey":true`, step[1])
		}
		if step := badKey.FindStringSubmatch(*o.Reason); step != nil {
			return fmt.Sprintf(`"command":"skip-step","step":%q`, step[1])
		}
		if step := badItems.FindStringSubmatch(*o.Reason); step != nil {
			return fmt.Sprintf(`"command":"resubmit","step":%q,"input":[{"n":1}],"sameKey":true`, step[1])
		}
		if step := badMessage.FindStringSubmatch(*o.Reason); step != nil {
			return fmt.Sprintf(`"command":"resubmit","step":%q,"input":"it failed","sameKey":true`, step[1])
		}
	}
	for _, s := range o.Steps {
		if o.Toward == nil && s.State == "failed" && !s.Passed && s.Error != nil && (s.Error.Code == events.BadUntil || s.Error.Code == events.UntilNotMet) {
			return fmt.Sprintf(`"command":"skip-step","step":%q`, s.Name)
		}
		if s.Undo != nil && s.Undo.State == "failed" && s.Undo.Error.Code == "bad-expression" {
			return fmt.Sprintf(`"command":"skip-step","step":%q`, s.Name)
		}
	}
	return `"command":"resubmit","sameKey":true`
}

func (e *Ending) act(ctx context.Context, o *api.Order, command string) {
	if at := o.UpdatedAt.Time; !at.Equal(e.told[o.OrderID]) {
		e.told[o.OrderID] = at
		e.Office.Send(ctx, o.OrderID, command)
	}
}
