package console

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/internal/revision"
	"github.com/waybill-dev/waybill/internal/words"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
)

// How many rows a page has, and how many of each kind the first page has.
const (
	pageRows = 100
	homeRows = 10
)

// section is a list on the first page, or why it cannot be shown.
type section[T any] struct {
	All  []T
	More bool
	Left api.LeftOut
	Why  string
}

// take keeps a list, or why there is none: what one list lacks is no reason to show none.
func take[T any](all []T, next string, left api.LeftOut, err error) section[T] {
	if err != nil {
		return section[T]{Why: problemOf(err).Error()}
	}
	return section[T]{All: all, More: next != "", Left: left}
}

// says is how many there are of a list, in words.
func (s section[T]) says(one, others string) string {
	if s.Why != "" {
		return others + " are not known"
	}
	return number(len(s.All), s.More, one, others)
}

// Count is how many there are, as far as that is known.
func (s section[T]) Count() string {
	switch {
	case s.More && len(s.All) == 0:
		return "none of those that were looked at"
	case s.More:
		return fmt.Sprintf("at least %d", len(s.All))
	}
	return strconv.Itoa(len(s.All))
}

// Shown says that there is something, or may be what is not known.
func (s section[T]) Shown() bool { return len(s.All) > 0 || s.More || s.Why != "" }

// number is how many there are, as far as was looked: behind that there may be more, or none that who looks may see.
func number(n int, more bool, one, others string) string {
	switch {
	case more && n == 0:
		return "no " + others + " among those that were looked at"
	case more:
		return "at least " + words.Several(n, one, others)
	}
	return words.Several(n, one, others)
}

// home is the first page: what needs somebody.
type home struct {
	Alerts    section[api.AlertsOf]
	Approvals section[api.Approval]
	Letters   *section[api.DeadLetter] // nil where they are not for who looks
	Open      section[api.Summary]
	Agents    section[api.Agent] // that give no sign, or for which something waits
	Some      bool               // whether the agents are those for which some partitions alone wait
	Trouble   string             // why the instance is not ready
	Charts    *charts            // nil if there is nothing to draw
}

// Calm says that nobody is needed, as far as is known.
func (h *home) Calm() bool {
	return !h.Alerts.Shown() && !h.Approvals.Shown() && !h.Agents.Shown() && (h.Letters == nil || !h.Letters.Shown()) && h.Trouble == ""
}

// stopped is how many orders are in Error, or held, or overdue, in words.
func (h *home) stopped() string {
	if h.Alerts.Why != "" {
		return h.Alerts.says("", "orders in Error")
	}
	n := 0
	for _, of := range h.Alerts.All {
		n += of.Number
	}
	return number(n, h.Alerts.More, "order in Error", "orders in Error")
}

// headed is how lists are headed of orders about which an alert is.
func headed(reason events.AlertReason) string {
	switch reason {
	case events.AboutHeld:
		return "Held orders"
	case events.AboutOverdue:
		return "Overdue orders"
	}
	return "Orders in Error"
}

func (c *Console) home(v *visit) (*view, error) {
	h := &home{}
	alerts, err := v.client.AlertReasons(v.Context(), homeRows)
	if answered(err, http.StatusForbidden) {
		return nil, err
	}
	h.Alerts = take(alerts.Reasons, "", alerts.LeftOut, err)
	h.Alerts.More = alerts.More
	approvals, err := v.client.Approvals(v.Context(), false, false, homeRows, "")
	h.Approvals = take(approvals.Approvals, approvals.Next, approvals.LeftOut, err)
	for _, state := range []projections.State{projections.Compensating, projections.Processing, projections.Pending} {
		open, err := v.client.Orders(v.Context(), api.Filter{State: string(state)}, homeRows, "")
		of := take(open.Orders, open.Next, open.LeftOut, err)
		h.Open = section[api.Summary]{append(h.Open.All, of.All...), h.Open.More || of.More, of.Left, cmp.Or(h.Open.Why, of.Why)}
	}
	letters, err := v.client.DeadLetters(v.Context(), api.LetterFilter{}, homeRows, "")
	if !answered(err, http.StatusForbidden) {
		of := take(letters.DeadLetters, letters.Next, api.LeftOut{}, err)
		h.Letters = &of
	}
	agents, err := v.client.Agents(v.Context(), false)
	h.Some = agents.Partitions < int(agents.Of)
	h.Agents = take(slices.DeleteFunc(agents.Agents, func(a api.Agent) bool { return a.SilentSince == nil && a.Waiting == 0 }), "", api.LeftOut{}, err)
	if err := v.client.Ready(v.Context()); err != nil {
		h.Trouble = problemOf(err).Error()
	}
	if activity, err := v.client.Activity(v.Context()); err == nil { // without it the page says what it is for
		h.Charts = chartsOf(activity)
	}
	says := h.stopped() + ", " + h.Approvals.says("decision that people wait for", "decisions that people wait for")
	return &view{page: "home.html", title: "Home", data: h, live: &live{Every: listEvery, Says: says}}, nil
}

// find goes to what a text names: an order, or orders that are found by it.
func (c *Console) find(v *visit) (*view, error) {
	q := v.value("q")
	if q == "" {
		return &view{to: "/orders"}, nil
	}
	_, err := v.client.Order(v.Context(), q)
	if problem := new(api.Problem); err == nil || errors.As(err, &problem) && problem.Status != http.StatusNotFound {
		return &view{to: orderPath(q)}, nil
	}
	if name, _, labelled := strings.Cut(q, "="); labelled && events.CheckLabelName(name) == nil {
		return &view{to: link("/orders", "where", q)}, nil
	}
	_, err = v.client.Workflow(v.Context(), q, 0)
	if err != nil { // one that is retired in all versions, or that orders have alone, which is known by counting them
		_, err = v.client.Versions(v.Context(), q)
	}
	if err == nil {
		return &view{to: "/workflows/" + api.PathEscape(q)}, nil
	}
	if events.CheckLimitName(q) == nil {
		if _, err = v.client.Limit(v.Context(), q); err == nil {
			return &view{to: orderPath(events.LimitID(q))}, nil
		}
	}
	if keyed, err := v.client.Key(v.Context(), q); err == nil && (len(keyed.Homes) > 0 || len(keyed.Elsewhere)+len(keyed.Unknown) > 0) { // that page says what is not known
		return &view{to: link("/keys", "key", q)}, nil
	}
	return nil, missing("There is no order, no workflow and no limit %q, and nothing under it as a key that you may see. To find orders by a label, or by a field that their workflow is searched by, write NAME=VALUE. One that was just submitted appears within moments.", q)
}

// ordersPage is a list of orders, and what is asked for.
type ordersPage struct {
	*api.OrderPage
	States                      []projections.State
	State, Workflow, Step, More string
	Where                       []string
	First                       string // the list from its beginning, where this is not that
	Acts                        []act  // that can be done to all of them
	NoActs                      string // why there are none
	Filter                      []field
	Views                       []savedView
	Wrong                       *api.Problem // with what is asked for
	Mixed                       bool         // they are not in the order in which they were accepted
}

func (c *Console) orders(v *visit) (*view, error) {
	filter, pairs := v.filter()
	p := &ordersPage{States: projections.States, State: filter.State, Workflow: filter.Workflow, Step: filter.Step, Where: filter.Where}
	p.Views = c.savedViews(v, pairs)
	filter.Newest = filter.Workflow != "" && len(filter.Where) == 0
	page, err := v.client.Orders(v.Context(), filter, pageRows, v.value("after"))
	if answered(err, http.StatusUnprocessableEntity) { // what is asked for is there to be corrected
		p.OrderPage, p.Wrong = new(api.OrderPage), problemOf(err)
		return &view{page: "orders.html", title: "Orders", data: p, status: p.Wrong.Status}, nil
	}
	if err != nil {
		return nil, err
	}
	p.OrderPage = page
	switch {
	case filter.Newest:
	case page.Next == "" && v.value("after") == "": // that is all of them
		slices.SortStableFunc(page.Orders, func(a, b api.Summary) int { return accepted(b).Compare(accepted(a)) })
	default:
		p.Mixed = true
	}
	if page.Next != "" {
		p.More = c.base + link("/orders", append(pairs, "after", page.Next)...)
	}
	if v.value("after") != "" {
		p.First = c.base + link("/orders", pairs...)
	}
	p.offer(v.caller, &filter)
	if link("", pairs...) != "" {
		for n := 0; n < len(pairs); n += 2 {
			p.Filter = append(p.Filter, field{Name: pairs[n], Value: pairs[n+1]})
		}
	}
	return &view{page: "orders.html", title: "Orders", data: p, live: &live{Every: listEvery, Says: number(len(page.Orders), page.Next != "", "order", "orders")}}, nil
}

// accepted is when an order was, zero where that is not known.
func accepted(s api.Summary) time.Time {
	if s.AcceptedAt == nil {
		return time.Time{}
	}
	return s.AcceptedAt.Time
}

// offer has the page have what its caller may do to all orders of the list, or say what that takes.
func (p *ordersPage) offer(caller *api.Caller, filter *api.Filter) {
	whole := p.First == "" && p.More == ""
	switch {
	case !caller.May(identity.Operator, p.Workflow), whole && len(p.Orders) == 0:
	case p.State == "" && p.Workflow == "" && len(p.Where) == 0:
		p.NoActs = "Resubmit, skip a step, release, pause, resume, change, cancel, terminate: to do the same to many orders, filter the list by their state, their workflow, or what they are found by. The forms stand here then."
	default:
		if p.Acts = actsForAll(filter, samples(projections.State(p.State), p.OrderPage, whole)); p.Acts == nil {
			p.NoActs = "Nothing can be done to these orders together: they have ended, or none of what is for many is for them."
		}
	}
}

// listed is a page of a list, and where the next is.
type listed struct {
	All         any
	Left        api.LeftOut
	More, First string
	Mine        bool
	Reason      events.AlertReason
}

func (c *Console) listed(v *visit, all any, left api.LeftOut, next string, pairs ...string) *listed {
	l := &listed{All: all, Left: left}
	if next != "" {
		l.More = c.base + link(v.URL.Path, append(pairs, "after", next)...)
	}
	if v.value("after") != "" {
		l.First = c.base + link(v.URL.Path, pairs...)
	}
	return l
}

func (c *Console) alerts(v *visit) (*view, error) {
	reason := v.value("reason")
	page, err := v.client.AlertsAbout(v.Context(), events.AlertReason(reason), pageRows, v.value("after"))
	if err != nil {
		return nil, err
	}
	l := c.listed(v, page.Alerts, page.LeftOut, page.Next, "reason", reason)
	l.Reason = events.AlertReason(reason)
	return &view{
		page: "alerts.html", title: "Alerts", data: l,
		live: &live{Every: listEvery, Says: number(len(page.Alerts), page.Next != "", "order in Error", "orders in Error")},
	}, nil
}

func (c *Console) approvals(v *visit) (*view, error) {
	mine := v.value("mine")
	page, err := v.reads().Approvals(v.Context(), mine != "", false, pageRows, v.value("after"))
	if err != nil {
		return nil, err
	}
	v.undecoded = page.Undecoded
	v.masked = !slices.ContainsFunc(page.Approvals, func(a api.Approval) bool { return !a.Masked })
	l := c.listed(v, page.Approvals, page.LeftOut, page.Next, "mine", mine)
	l.Mine = mine != ""
	return &view{
		page: "approvals.html", title: "Approvals", data: l,
		live: &live{Every: listEvery, Says: number(len(page.Approvals), page.Next != "", "decision that people wait for", "decisions that people wait for")},
	}, nil
}

// signalsPage is a list of what waits for signals, and what is asked for.
type signalsPage struct {
	*listed
	Signal, Workflow string
	Keys             bool // who looks may tell those who wait under a key, of whatever workflow they are
}

func (c *Console) signals(v *visit) (*view, error) {
	signal, workflow := v.value("signal"), v.value("workflow")
	page, err := v.client.SignalWaits(v.Context(), signal, workflow, pageRows, v.value("after"))
	if err != nil {
		return nil, err
	}
	l := c.listed(v, page.Waits, page.LeftOut, page.Next, "signal", signal, "workflow", workflow)
	return &view{
		page: "signals.html", title: "Signals", data: &signalsPage{l, signal, workflow, v.caller.Everywhere(identity.Submitter)},
		live: &live{Every: listEvery, Says: number(len(page.Waits), page.Next != "", "step that waits for a signal", "steps that wait for signals")},
	}, nil
}

// signalsPath is the page of the list again from which somebody sent a signal, with what it was asked for.
func (v *visit) signalsPath() string {
	return link("/signals", "signal", v.value("ofSignal"), "workflow", v.value("ofWorkflow"), "after", v.value("ofAfter"))
}

// signalKey tells whoever waits under a key what happened.
func (c *Console) signalKey(v *visit) (*view, error) {
	data, err := v.payload("data")
	if err != nil {
		return nil, err
	}
	key, err := strconv.Unquote(v.Form.Get("under")) // browsers have ends of lines of their own
	if err != nil {
		return nil, unfit("The form does not say under which key. Load the page again.")
	}
	heard, err := v.client.SignalKey(v.Context(), &api.KeySignal{Signal: v.value("signal"), Key: key, ID: v.key(), Data: json.RawMessage(data)})
	if err != nil {
		return nil, err
	}
	return &view{to: v.signalsPath(), done: heard.Outcome}, nil
}

func (c *Console) deadLetters(v *visit) (*view, error) {
	page, err := v.client.DeadLetters(v.Context(), api.LetterFilter{}, pageRows, v.value("after"))
	if err != nil {
		return nil, err
	}
	return &view{page: "dead-letters.html", title: "Dead letters", data: c.listed(v, page.DeadLetters, api.LeftOut{}, page.Next)}, nil
}

// place is where a dead letter is.
func (v *visit) place() (partition int32, offset int64, err error) {
	p, wrong := strconv.ParseInt(v.PathValue("partition"), 10, 32)
	offset, bad := strconv.ParseInt(v.PathValue("offset"), 10, 64)
	if wrong != nil || bad != nil {
		return 0, 0, missing("A dead letter has the numbers of a partition and of an offset.")
	}
	return int32(p), offset, nil
}

func (c *Console) deadLetter(v *visit) (*view, error) {
	partition, offset, err := v.place()
	if err != nil {
		return nil, err
	}
	letter, err := v.reads().DeadLetter(v.Context(), partition, offset)
	if err != nil {
		return nil, err
	}
	v.undecoded = letter.Undecoded
	return &view{page: "dead-letter.html", title: "Dead letter", data: letter}, nil
}

func (c *Console) replay(v *visit) (*view, error) {
	partition, offset, err := v.place()
	if err != nil {
		return nil, err
	}
	var value []byte
	if v.Form.Has("corrected") {
		value = []byte(strings.ReplaceAll(v.Form.Get("value"), "\r\n", "\n")) // as a browser writes the ends of lines
		if !jsontext.Value(value).IsValid(jsontext.AllowDuplicateNames(true)) {
			return nil, unfit("The value is no JSON. A text has quotes around it.")
		}
	}
	done, err := v.client.Replay(v.Context(), partition, offset, value)
	if err != nil {
		return nil, err
	}
	if done.Order == "" {
		return &view{to: v.lettersPath(), done: "replay"}, nil
	}
	v.appears(done.Order)
	return &view{to: orderPath(done.Order), done: "replay"}, nil
}

// lettersPath is the page of the list from which somebody came to a dead letter.
func (v *visit) lettersPath() string { return link("/dead-letters", "after", v.value("ofAfter")) }

func (c *Console) discard(v *visit) (*view, error) {
	partition, offset, err := v.place()
	if err != nil {
		return nil, err
	}
	if err := v.client.Discard(v.Context(), partition, offset, &api.Act{By: v.by(), Note: v.value("note")}); err != nil {
		return nil, err
	}
	return &view{to: v.lettersPath(), done: "discard"}, nil
}

// flowRow is a workflow in their list.
type flowRow struct {
	Name                    string
	Newest, Versions, Steps int
}

// flowList are the workflows.
type flowList struct {
	Rows  []*flowRow
	Newer int // definitions of a release that this one cannot read
}

func (c *Console) workflows(v *visit) (*view, error) {
	all, err := v.client.Workflows(v.Context())
	if err != nil {
		return nil, err
	}
	rows, l := make(map[string]*flowRow), new(flowList)
	for _, source := range all.Workflows {
		flow, err := workflow.Parse("registered", source)
		if err != nil {
			l.Newer++
			continue
		}
		row := rows[flow.Name]
		if row == nil {
			row = &flowRow{Name: flow.Name}
			rows[flow.Name] = row
		}
		if row.Versions++; flow.Version > row.Newest {
			row.Newest, row.Steps = flow.Version, len(flow.Steps)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		l.Rows = append(l.Rows, rows[name])
	}
	return &view{page: "workflows.html", title: "Workflows", data: l}, nil
}

func (c *Console) registerWorkflow(v *visit) (*view, error) {
	source := []byte(v.Form.Get("source"))
	retired, err := v.client.Register(v.Context(), "workflow", source)
	if err != nil {
		return nil, err
	}
	flow, err := workflow.Parse("workflow", source)
	if err != nil {
		return nil, fmt.Errorf("read what was registered: %w", err)
	}
	done := "register"
	if retired != "" {
		done = "retired"
	}
	return &view{to: link("/workflows/"+api.PathEscape(flow.Name), "version", strconv.Itoa(flow.Version)), done: done}, nil
}

// flowPage is a version of a workflow.
type flowPage struct {
	*api.Versions
	Version  int
	Source   string
	Drawing  any
	From, To int // which two versions are compared, or would be
	Compared bool
	Changes  []revision.Row
}

func (c *Console) workflow(v *visit) (*view, error) {
	name := v.PathValue("name")
	versions, err := v.client.Versions(v.Context(), name)
	if err != nil {
		return nil, err
	}
	p := &flowPage{Versions: versions}
	if p.Version, err = strconv.Atoi(v.value("version")); err != nil {
		p.Version = 0
		for _, of := range versions.Versions {
			if of.Registered && (p.Version == 0 || of.Newest) {
				p.Version = of.Version
			}
		}
	}
	source, err := v.client.Workflow(v.Context(), name, p.Version)
	if err != nil {
		return nil, err
	}
	p.Source = pretty(source)
	p.Drawing = c.drawings.of(source, nil)
	if v.Form.Has("from") || v.Form.Has("to") {
		if err := p.compare(v); err != nil {
			return nil, err
		}
		return &view{page: "workflow.html", title: name, data: p}, nil
	}
	p.To = p.Version
	for _, of := range slices.Backward(versions.Versions) { // the oldest first
		if of.Registered && of.Version < p.To {
			p.From = of.Version
		}
	}
	return &view{page: "workflow.html", title: name, data: p}, nil
}

// compare says what is different for orders between the two versions that a form names.
func (p *flowPage) compare(v *visit) error {
	version := func(field string, number *int) (*workflow.Workflow, error) {
		n, err := strconv.ParseInt(v.value(field), 10, 32)
		if err != nil || n < 1 {
			return nil, unfit("Say of two versions which: %s is the number of one, from 1 on; this is %q.", field, v.value(field))
		}
		*number = int(n)
		source, err := v.client.Workflow(v.Context(), p.Workflow, *number)
		if err != nil {
			return nil, err
		}
		flow, err := workflow.Parse("registered", source)
		if err != nil {
			return nil, unfit("Version %d cannot be compared: it is of a release that this one cannot read.", n)
		}
		return flow, nil
	}
	from, err := version("from", &p.From)
	if err != nil {
		return err
	}
	to, err := version("to", &p.To)
	if err != nil {
		return err
	}
	changes := revision.Of(from, to)
	p.Compared, p.Changes = true, changes.Rows(from, to)
	return nil
}

func (c *Console) retire(v *visit) (*view, error) {
	version, err := strconv.Atoi(v.value("version"))
	if err != nil {
		return nil, unfit("Say which version is meant.")
	}
	if err := v.client.Retire(v.Context(), v.PathValue("name"), version, v.value("retired") == "true"); err != nil {
		return nil, err
	}
	return &view{to: "/workflows/" + api.PathEscape(v.PathValue("name")), done: "retire"}, nil
}

func (c *Console) schedules(v *visit) (*view, error) {
	page, err := v.client.Schedules(v.Context(), pageRows, v.value("after"))
	if err != nil {
		return nil, err
	}
	return &view{page: "schedules.html", title: "Schedules", data: c.listed(v, page.Schedules, page.LeftOut, page.Next)}, nil
}

// schedulePage is a schedule, and when it begins orders.
type schedulePage struct {
	*api.Schedule
	Ticks   []api.NextTick
	NoTicks string // why there are none
}

func (c *Console) schedule(v *visit) (*view, error) {
	s, err := v.client.Schedule(v.Context(), v.PathValue("name"))
	if err != nil {
		return nil, err
	}
	p := &schedulePage{Schedule: s}
	if ticks, err := v.client.Preview(v.Context(), s.Name, time.Time{}, 10); err != nil {
		p.NoTicks = problemOf(err).Error()
	} else if !s.Paused {
		p.Ticks = ticks.Ticks
	}
	return &view{page: "schedule.html", title: s.Name, data: p}, nil
}

func (c *Console) actOnSchedule(v *visit) (*view, error) {
	name, act := v.PathValue("name"), v.PathValue("act")
	_, err := v.client.ActOnSchedule(v.Context(), name, v.key(), act, &api.Act{By: v.by(), Note: v.value("note")})
	switch {
	case act == events.CommandDelete && (err == nil || answered(err, http.StatusNotFound)):
		return &view{to: link("/schedules", "after", v.value("ofAfter")), done: act}, nil
	case err != nil:
		return nil, err
	}
	return &view{to: link("/schedules/"+api.PathEscape(name), "after", v.value("ofAfter")), done: act}, nil
}

func (c *Console) limits(v *visit) (*view, error) {
	page, err := v.client.Limits(v.Context(), pageRows, v.value("after"))
	if err != nil {
		return nil, err
	}
	return &view{page: "limits.html", title: "Limits", data: c.listed(v, page.Limits, page.LeftOut, page.Next)}, nil
}

// keyPage is what there is under a key.
type keyPage struct {
	*api.Keyed
	Key string
}

func (c *Console) key(v *visit) (*view, error) {
	key := v.Form.Get("key") // which may have blanks at its ends
	keyed, err := v.client.Key(v.Context(), key)
	if err != nil {
		return nil, err
	}
	return &view{page: "key.html", title: "Key " + key, data: &keyPage{keyed, key}}, nil
}

func (c *Console) partitions(v *visit) (*view, error) {
	all, err := v.client.Instances(v.Context())
	if err != nil {
		return nil, err
	}
	return &view{page: "partitions.html", title: "Partitions", data: all}, nil
}

func (c *Console) agents(v *visit) (*view, error) {
	all, err := v.client.Agents(v.Context(), true)
	if err != nil {
		return nil, err
	}
	return &view{page: "agents.html", title: "Agents", data: all}, nil
}
