package console

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/projections"
)

// ofAll are the fields of the acts that can be done to many orders, which are not always those for one.
var ofAll = map[string][]field{
	events.CommandResubmit: {
		{Name: "sameKey", Title: "With the idempotency keys of before", Kind: "flag"},
		{Name: "newKey", Title: "With new idempotency keys", Kind: "flag"},
		{Name: "toVersion", Title: "As of another version", Kind: "text", Help: "Its number; empty for the one that each has"},
	},
	events.CommandSkipStep:  {{Name: "skip", Title: "Step", Kind: "text", Required: true}},
	events.CommandRelease:   {{Name: "discard", Title: "Without the first input that waits, which becomes a dead letter", Kind: "flag"}},
	events.CommandChange:    {{Name: "priority", Title: "Priority", Kind: "choice", Choices: []string{"high", "normal", "low"}, Required: true}},
	events.CommandPause:     nil,
	events.CommandResume:    nil,
	events.CommandCancel:    nil,
	events.CommandTerminate: nil,
}

// actsForAll are those that a caller may do to all orders of a workflow, or, with "", of those that are its.
func actsForAll(caller *api.Caller, workflow string) (all []act) {
	for _, a := range acts {
		fields, many := ofAll[a.Name]
		if !many || !caller.May(identity.Operator, workflow) {
			continue
		}
		why := note
		why.Required = a.Name == events.CommandTerminate
		a.Fields = append(slices.Clone(fields), field{Name: "command", Kind: "hidden", Value: a.Name}, why)
		all = append(all, a)
	}
	return all
}

func (c *Console) bulks(v *visit) (*view, error) {
	page, err := v.client.Bulks(v.Context())
	if err != nil {
		return nil, err
	}
	return &view{page: "bulks.html", title: "Bulk acts", data: page}, nil
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
	with := make(map[string]any)
	for _, flag := range []string{"sameKey", "newKey", "discard"} {
		if v.Form.Has(flag) {
			with[flag] = true
		}
	}
	for name, field := range map[string]string{"step": "skip", "priority": "priority"} {
		if value := v.value(field); value != "" {
			with[name] = value
		}
	}
	if text := v.value("toVersion"); text != "" {
		version, err := strconv.Atoi(text)
		if err != nil {
			return nil, unfit("The version %q is no number.", text)
		}
		with["toVersion"] = version
	}
	var err error
	if r.With, err = json.Marshal(with); err != nil {
		return nil, err
	}
	b, err := v.client.PrepareBulk(v.Context(), r)
	if err != nil {
		return nil, err
	}
	return &view{to: "/bulk/" + api.PathEscape(b.ID)}, nil
}

// bulkPage is a bulk act, and some of its orders.
type bulkPage struct {
	*api.Bulk
	Title       string // of the command
	With        string
	Orders      []api.BulkRow
	NoOrders    string // why there are none
	Next, First string // other pages of them
	Mine        bool   // the caller may start or stop it
}

// Reached is how many orders had their turn.
func (p *bulkPage) Reached() int { return p.Done + p.Left + p.Failed }

func (c *Console) bulk(v *visit) (*view, error) {
	id := v.PathValue("id")
	b, err := v.client.Bulk(v.Context(), id)
	if err != nil {
		return nil, err
	}
	p := &bulkPage{Bulk: b, Title: b.Command, Mine: v.caller.May(identity.Operator, b.Filter.Workflow)}
	for _, a := range acts {
		if a.Name == b.Command {
			p.Title = a.Title
		}
	}
	if with := pretty(b.With); with != "{}" {
		p.With = with
	}
	after, err := strconv.Atoi(v.value("after"))
	if err != nil {
		after = 0
	}
	switch page, err := v.client.BulkOrders(v.Context(), id, pageRows, max(after, 0)); {
	case answered(err, http.StatusGone):
		p.NoOrders = problemOf(err).Error()
	case err != nil:
		return nil, err
	default:
		p.Orders = page.Orders
		if page.Next > 0 {
			p.Next = c.base + link("/bulk/"+api.PathEscape(id), "after", strconv.Itoa(page.Next))
		}
	}
	if after > 0 {
		p.First = c.base + "/bulk/" + api.PathEscape(id)
	}
	shown := &view{page: "bulk.html", title: p.Title, data: p}
	if b.State == api.BulkRunning {
		shown.again = 2
	}
	return shown, nil
}

// What is done to a bulk act.
const (
	bulkStart = "start"
	bulkStop  = "stop"
)

func (c *Console) actOnBulk(v *visit) (*view, error) {
	id, does := v.PathValue("id"), map[string]func() (*api.Bulk, error){
		bulkStart: func() (*api.Bulk, error) { return v.client.StartBulk(v.Context(), v.PathValue("id")) },
		bulkStop:  func() (*api.Bulk, error) { return v.client.StopBulk(v.Context(), v.PathValue("id")) },
	}[v.PathValue("act")]
	b, err := does()
	switch {
	case err != nil:
		return nil, err
	case b.StartedAt == nil: // it is forgotten
		return &view{to: "/bulk", done: "forgotten"}, nil
	}
	return &view{to: "/bulk/" + api.PathEscape(id)}, nil
}
