package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/internal/words"
	"github.com/waybill-dev/waybill/projections"
)

func (c *Console) bulks(v *visit) (*view, error) {
	page, err := v.client.Bulks(v.Context())
	if err != nil {
		return nil, err
	}
	return &view{page: "bulks.html", title: "Bulk acts", data: page}, nil
}

// bulkPage is a bulk act, and some of its orders.
type bulkPage struct {
	*api.Bulk
	Title       string   // of the command
	Does        []string // what it does to each order
	With        string
	Orders      []api.BulkRow
	NoOrders    string // why there are none
	Next, First string // other pages of them
	Mine        bool   // the caller may start or stop it
	why         map[string]string
}

// Reached is how many orders had their turn.
func (p *bulkPage) Reached() int { return p.Done + p.Left + p.Failed }

// Bare says that of some orders on the page it is left out why they are as they are.
func (p *bulkPage) Bare() bool {
	return slices.ContainsFunc(p.Orders, func(o api.BulkRow) bool { return o.Now != nil && o.Now.Masked })
}

// took is what an order has done that took a command.
var took = map[string]string{
	events.CommandResubmit: "what failed began again", events.CommandSkipStep: "the step is passed over", events.CommandRelease: "it was released",
	events.CommandPause: "it was paused", events.CommandResume: "it was resumed", events.CommandChange: "it was changed", events.CommandLabel: "it was labelled",
	events.CommandMigrate: "it is of the other version", events.CommandCancel: "it turned back, to undo what was done", events.CommandTerminate: "it was ended",
}

// Became is what the act did to an order, in words.
func (p *bulkPage) Became(o api.BulkRow) string {
	switch o.Outcome {
	case api.OutcomeDone:
		text := "Given, and taken"
		if what := took[p.Command]; what != "" {
			text += ": " + what
		}
		return text
	case api.OutcomeLeft:
		return "Not given: it had changed, or was gone"
	case api.OutcomeFailed:
		switch why, told := p.why[o.OrderID]; {
		case why != "":
			return "Failed: " + why
		case told:
			return "Failed; it takes the role payload-reader to see why"
		}
		return "Failed; its history says why, if it refused it"
	}
	if p.State == api.BulkRunning {
		return "Not yet"
	}
	return "Not given: its turn did not come"
}

// Now counts the orders on the page by how they are now, in words.
func (p *bulkPage) Now() string {
	states, unknown := make(map[projections.State]int), 0
	for _, o := range p.Orders {
		if o.Now == nil {
			unknown++
			continue
		}
		states[o.Now.ProcessState]++
	}
	var all []string
	for _, s := range projections.States {
		if n := states[s]; n > 0 {
			all = append(all, fmt.Sprintf("%d %s", n, s))
		}
	}
	if unknown > 0 {
		all = append(all, fmt.Sprintf("%d not known", unknown))
	}
	return strings.Join(all, ", ")
}

// Again is how many orders on the page took what was to have them go on, and are in Error now.
func (p *bulkPage) Again() (n int) {
	if !slices.Contains(goOn, p.Command) {
		return 0
	}
	for _, o := range p.Orders {
		if o.Outcome == api.OutcomeDone && o.Now != nil && o.Now.ProcessState == projections.Error {
			n++
		}
	}
	return n
}

// Settled says that no order on the page goes on by itself, as far as is known: one that is forgotten stays not known.
func (p *bulkPage) Settled() bool {
	return !slices.ContainsFunc(p.Orders, func(o api.BulkRow) bool {
		return o.Now != nil && !o.Now.ProcessState.Final() && o.Now.ProcessState != projections.Error
	})
}

// does says what a bulk act does to each of its orders, as far as that is told.
func does(b *api.Bulk, zone *time.Location) (all []string) {
	for _, a := range acts {
		if a.Name == b.Command {
			all = append(all, a.Says)
		}
	}
	var with struct {
		SameKey    bool       `json:"sameKey"`
		NewKey     bool       `json:"newKey"`
		ToVersion  int        `json:"toVersion"`
		Step       string     `json:"step"`
		Discard    bool       `json:"discard"`
		Priority   string     `json:"priority"`
		Deadline   *time.Time `json:"deadline"`
		NoDeadline bool       `json:"noDeadline"`
	}
	say := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if b.Masked {
		say("With what it is done is left out for you: it takes the role payload-reader.")
		return all
	}
	if len(b.With) > 0 && json.Unmarshal(b.With, &with) != nil {
		return all // it stands there as it is
	}
	switch b.Command {
	case events.CommandResubmit:
		say("Idempotency keys: %s", keysSay(with.SameKey, with.NewKey))
		if with.ToVersion > 0 {
			say("Each goes on as one of version %d of its workflow.", with.ToVersion)
		}
	case events.CommandSkipStep:
		say("The step: %s.", with.Step)
	case events.CommandRelease:
		if with.Discard {
			say("The first input that waits becomes a dead letter.")
		}
	case events.CommandChange:
		if with.Priority != "" {
			say("Priority: %s.", with.Priority)
		}
		if with.Deadline != nil {
			say("Deadline: %s.", with.Deadline.In(zone).Format(clockForm))
		}
		if with.NoDeadline {
			say("There is no deadline any more.")
		}
	}
	return all
}

func (c *Console) bulk(v *visit) (*view, error) {
	id := v.PathValue("id")
	b, err := v.client.Bulk(v.Context(), id)
	if err != nil {
		return nil, err
	}
	p := &bulkPage{Bulk: b, Title: b.Command, Does: does(b, v.zone), Mine: v.caller.May(identity.Operator, b.Filter.Workflow), why: make(map[string]string)}
	for _, a := range acts {
		if a.Name == b.Command {
			p.Title = a.Title
		}
	}
	for _, f := range b.Failures {
		p.why[f.OrderID] = f.Reason
	}
	if with := pretty(b.With); with != "{}" {
		p.With = with
	}
	after, err := strconv.Atoi(v.value("after"))
	if err != nil {
		after = 0
	}
	switch page, err := v.client.BulkOrdersNow(v.Context(), id, pageRows, max(after, 0)); {
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
	return &view{page: "bulk.html", title: p.Title, data: p, live: p.live()}, nil
}

// live keeps the page current: soon while the act goes on, and then for as long as its orders do.
func (p *bulkPage) live() *live {
	l := &live{Every: listEvery, Says: fmt.Sprintf("%s is %s: %d of %s had their turn", p.Title, p.State, p.Reached(), words.Several(p.Matched, "order", "orders"))}
	switch {
	case p.State == api.BulkRunning:
		l.Every, l.Unscripted = 2, true
	case p.Settled():
		l.Every = overEvery
	}
	if now := p.Now(); now != "" {
		l.Says += "; now " + now
	}
	return l
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
