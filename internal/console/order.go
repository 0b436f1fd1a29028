package console

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/internal/words"
	"github.com/waybill-dev/waybill/projections"
)

// eventShown is how much of an event is shown, in bytes.
const eventShown = 16 << 10

// pageEvents is how many events a page of an order has.
const pageEvents = 200

// eventRow is what happened once.
type eventRow struct {
	*events.Event
	Name, Tells, After string
	JSON               string
}

// orderPage is an order, with everything that happened to it.
type orderPage struct {
	*api.Order
	Record      string // the state record, as JSON
	Events      []eventRow
	NoEvents    string // why there are none
	Next, First string // other pages of the events
	Masked      bool
	Drawing     any
	Bars        *bars
	Long        bool // it has more events than a page, so that bars of them would be wrong
	Acts        []act
	Asks        []api.Approval   // what waits for somebody's decision
	Listening   []string         // the names of signals for which steps wait
	Is          string           // of a record that is no order: what it is
	AsOf        uint64           // the event as of which the order is shown; 0 is now
	Last        uint64           // the number of the last event, if that is on the page
	Left        map[string]*left // of what items of steps something was left, by the names of these
	Compare     []string         // the steps, and undos, of which there were several attempts
}

// left are the items of a step of which something was not undone.
type left struct {
	Items []api.Item
	More  bool
	Why   string // they are not known
}

// leftShown is how many of them an order's page shows.
const leftShown = 20

// At is the event as of which the order is shown, nil where that is not on the page of events.
func (p *orderPage) At() *eventRow {
	for n := range p.Events {
		if p.Events[n].Seq == p.AsOf {
			return &p.Events[n]
		}
	}
	return nil
}

func (c *Console) order(v *visit) (*view, error) {
	id := v.PathValue("id")
	if err := events.CheckOrderID(id); err != nil {
		return nil, missing("%v.", err)
	}
	asOf, err := v.number("event")
	if err != nil {
		return nil, err
	}
	var o *api.Order
	if asOf == 0 {
		o, err = v.reads().Order(v.Context(), id)
	} else {
		o, err = v.reads().OrderAsOf(v.Context(), id, asOf)
	}
	if err != nil {
		return nil, err
	}
	v.undecoded, v.masked = o.Undecoded, o.Masked
	p := &orderPage{Order: o, AsOf: asOf}
	p.Is, _ = words.Record(id)
	after := v.value("after")
	if p.Events, p.Next, p.Masked, err = v.history(v.Context(), id, after); err != nil {
		p.NoEvents = problemOf(err).Error()
	}
	if asOf == 0 && p.Next == "" {
		p.Events = upTo(p.Events, o)
	}
	if p.Next != "" {
		p.Next = c.base + link(orderPath(id), "after", p.Next) + "#events"
	}
	if after != "" {
		p.First = c.base + orderPath(id) + "#events"
	}
	if o.Workflow != "" {
		if source, err := v.client.Workflow(v.Context(), o.Workflow, o.Version); err == nil {
			p.Drawing = c.drawings.of(source, o.Steps)
		}
	}
	if p.Long = after != "" || p.Next != ""; !p.Long {
		going := goingOn(o)
		if p.AsOf > 0 {
			going = nil // the bars are of all that happened
		}
		p.Bars = barsOf(p.Events, time.Now(), going)
		p.Compare = several(p.Events)
	}
	if n := len(p.Events); n > 0 && p.Next == "" {
		p.Last = p.Events[n-1].Seq
	}
	if p.AsOf > 0 { // nothing is done to what was
		return &view{page: "order.html", title: fmt.Sprintf("%s as of event %d", id, p.AsOf), data: p}, nil
	}
	asks := 0
	for i := range o.Steps {
		switch s := &o.Steps[i]; {
		case s.Approves != nil && s.State == projections.Approving:
			asks++
		case s.Listens != nil:
			p.Listening = append(p.Listening, hears(s.Listens)...)
		case s.Items != nil && s.Items.Left > 0:
			p.left(v, s.Name)
		}
	}
	p.Asks = v.asked(o, asks)
	if p.Is == "" {
		words.InZone(o, v.zone) // forms say when its deadline is
		p.Acts = actsFor(v.caller, o)
	}
	shown := &view{page: "order.html", title: id, data: p, live: &live{Every: listEvery, Says: id}}
	if p.Is == "" {
		shown.live.Says += " is " + words.State(&o.Summary)
	}
	switch {
	case p.Is == "" && o.ProcessState.Final():
		shown.live.Every = overEvery
	case p.Last > 0:
		shown.live.Stream = c.base + link(orderPath(id)+"/events", "after", strconv.FormatUint(p.Last, 10))
	}
	return shown, nil
}

// upTo leaves out what happened after the order was read, which its state does not have yet. Times do not tell: an order
// may change several times in a millisecond.
func upTo(rows []eventRow, o *api.Order) []eventRow {
	for n := len(rows); n > 1 && rows[n-1].Seq > o.Seq; n = len(rows) {
		rows = rows[:n-1]
	}
	return rows
}

// left looks up of which items of a step something was not undone.
func (p *orderPage) left(v *visit, step string) {
	if p.Left == nil {
		p.Left = make(map[string]*left)
	}
	p.Left[step] = new(left)
	items, err := v.client.Items(v.Context(), p.OrderID, step, projections.ItemFilter{Left: true}, leftShown, "")
	if err != nil {
		p.Left[step].Why = problemOf(err).Error()
		return
	}
	p.Left[step].Items, p.Left[step].More = items.Items, items.Next != ""
}

// In so many seconds a page is fetched again that nothing tells of: one of what goes on, and of an order that has ended, of which
// seldom more comes.
const (
	listEvery = 10
	overEvery = 60
)

// follow tells the script of an order's page what happens to it, behind an event and then behind the last that it was told.
func (c *Console) follow(w http.ResponseWriter, r *http.Request) {
	api.Follow(c.server, w, r, c.token(r), r.PathValue("id"), cmp.Or(r.Header.Get("Last-Event-ID"), r.URL.Query().Get("after")))
}

// number is what a field of a form, or of the page's address, says; 0 for nothing.
func (v *visit) number(name string) (uint64, error) {
	text := v.value(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n == 0 {
		return 0, unfit("The %s is the number of one, from 1 on; this is %s.", name, strconv.Quote(text))
	}
	return n, nil
}

// asked are the decisions for which an order waits, as the list of all has them: it says what people are shown, and who
// may decide. Of very many that wait only those are found that have waited longest. What people are shown is of the order where
// that has it, and else of the page on which the order is: the codec is not asked to decode other pages.
func (v *visit) asked(o *api.Order, n int) (all []api.Approval) {
	const pages = 5
	after := ""
	for range pages {
		if len(all) >= n {
			break
		}
		page, err := v.client.Approvals(v.Context(), false, false, 1000, after)
		if err != nil {
			break
		}
		shown := func(a api.Approval) bool { return a.Order == o.OrderID && !a.Masked }
		if client := v.reads(); o.Masked && client != v.client && slices.ContainsFunc(page.Approvals, shown) {
			if decoded, err := client.Approvals(v.Context(), false, false, 1000, after); err == nil {
				page = decoded
				v.tells(page.Undecoded)
			}
		}
		for _, a := range page.Approvals {
			if a.Order == o.OrderID {
				if step := slices.IndexFunc(o.Steps, func(s api.Step) bool { return s.Name == a.Step }); step >= 0 && !o.Masked {
					a.Show = o.Steps[step].Input
				}
				all, v.masked = append(all, a), v.masked && a.Masked
			}
		}
		if after = page.Next; after == "" {
			break
		}
	}
	return all
}

// appears waits for a moment until an order is there that was just submitted.
func (v *visit) appears(id string) {
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for range 40 {
		if _, err := v.client.Order(v.Context(), id); err == nil {
			return
		}
		select {
		case <-again.C:
		case <-v.Context().Done():
			return
		}
	}
}

// goingOn are the steps, and undos, of which something takes time now.
func goingOn(o *api.Order) map[string]bool {
	all := make(map[string]bool)
	going := func(name string, state projections.StepState) {
		switch state {
		case projections.Running, projections.Sleeping, projections.Listening, projections.Approving:
			all[name] = !o.ProcessState.Final()
		}
	}
	for i := range o.Steps {
		s := &o.Steps[i]
		going(s.Name, s.State)
		if s.Undo != nil {
			going("undo "+s.Name, s.Undo.State)
		}
	}
	return all
}

// maxBefore is how many pages of events before one are read for its words.
const maxBefore = 10

// history is a page of what happened to an order, in words, which go on from what happened before: where that is very
// much, they begin anew.
func (v *visit) history(ctx context.Context, id, after string) (rows []eventRow, next string, masked bool, _ error) {
	course, last := words.NewCourse(), time.Time{}
	tell := func(page *api.History) (rows []eventRow, _ error) {
		for _, raw := range page.Events {
			e, err := events.Decode[events.Event](raw)
			if err != nil {
				return nil, fmt.Errorf("an event of order %q: %w", id, err)
			}
			words.InZone(&e, v.zone)
			row := eventRow{Event: &e, Name: words.EventName(&e), Tells: course.Tell(&e)}
			if !last.IsZero() {
				row.After = "+" + e.At.Sub(last).String()
			}
			last = e.At
			rows = append(rows, row)
		}
		return rows, nil
	}
	for n, from := 0, ""; from != after; n++ {
		page, err := v.client.HistoryPage(ctx, id, from, pageEvents)
		if err == nil {
			_, err = tell(page)
		}
		if err != nil {
			return nil, "", false, err
		}
		if from = page.Next; from != after && (n == maxBefore || from == "") { // it is further, or no place where a page ends
			course, last = words.NewCourse(), time.Time{}
			break
		}
	}
	page, err := v.reads().HistoryPage(ctx, id, after, pageEvents)
	if err != nil {
		return nil, "", false, err
	}
	v.tells(page.Undecoded)
	rows, err = tell(page)
	for n := range rows {
		rows[n].JSON = shown(page.Events[n], eventShown)
	}
	return rows, page.Next, page.Masked, err
}

// act is something that may be done to an order.
type act struct {
	Name, Title, Says string
	Danger            bool
	Fields            []field
	roles             []identity.Role // it takes all of them
	may               func(*api.Order) bool
	fields            func(*api.Order) []field
}

// field is one of a form.
type field struct {
	Name, Title string
	// Kind is text, json, flag, choice, one of, hidden or number.
	Kind     string
	Value    string
	Choices  []string
	Options  []option // of one of
	Required bool
	Help     string
}

// option is one of several, of which a form has one be chosen.
type option struct{ Value, Title, Says string }

type actList []act

// acts are all that may be done to an order, in the order in which a page has them.
var acts = actList{
	{
		Name: events.CommandResubmit, Title: "Resubmit", Says: "Every step that failed begins again, with a fresh round of attempts.", roles: []identity.Role{identity.Operator},
		may: func(o *api.Order) bool { return o.ProcessState == projections.Error },
		fields: func(o *api.Order) []field {
			return []field{
				{Name: "step", Title: "Step to correct", Kind: "choice", Choices: append([]string{""}, troubled(o)...), Help: "Only with an input of its own, below"},
				{Name: "input", Title: "Its input instead", Kind: "json", Help: "JSON; empty for the one that it has" + inputsNow(o)},
				keysField(),
				note,
			}
		},
	},
	{
		Name: events.CommandSkipStep, Title: "Skip a step", Says: "The order goes on as if it had been done, or undone.", roles: []identity.Role{identity.Operator},
		may: func(o *api.Order) bool { return !o.ProcessState.Final() && len(troubled(o)) > 0 },
		fields: func(o *api.Order) []field {
			return []field{
				{Name: "step", Title: "Step", Kind: "choice", Choices: append([]string{""}, troubled(o)...), Required: true},
				{Name: "output", Title: "What later steps see as its output", Kind: "json", Help: "JSON; empty for none"},
				note,
			}
		},
	},
	{
		Name: events.CommandRelease, Title: "Release", Says: "It is again what it was, and what waits is decided in turn. If that panics again, it is held again.", roles: []identity.Role{identity.Operator},
		may: func(o *api.Order) bool { return o.Held },
		fields: func(*api.Order) []field {
			return []field{{Name: "discard", Title: "Without the first input that waits, which becomes a dead letter", Kind: "flag"}, note}
		},
	},
	{
		Name: events.CommandPause, Title: "Pause", Says: "Nothing new starts until it is resumed. What runs ends as it would.", roles: []identity.Role{identity.Operator},
		may: func(o *api.Order) bool {
			return !o.ProcessState.Final() && o.ProcessState != projections.Error && !o.Paused
		}, fields: noted,
	},
	{
		Name: events.CommandResume, Title: "Resume", Says: "It goes on where it was.", roles: []identity.Role{identity.Operator},
		may: func(o *api.Order) bool { return o.Paused }, fields: noted,
	},
	{
		Name: events.CommandChange, Title: "Change priority or deadline", Says: "For what begins from then on.", roles: []identity.Role{identity.Operator},
		may: func(o *api.Order) bool { return !o.ProcessState.Final() },
		fields: func(o *api.Order) []field {
			deadline := ""
			if o.Deadline != nil {
				deadline = ", " + words.Clock(o.Deadline)
			}
			return []field{
				{Name: "priority", Title: "Priority", Kind: "choice", Choices: []string{"", "high", "normal", "low"}, Help: "Empty for the one that it has"},
				{Name: "deadline", Title: "Deadline", Kind: "text", Help: "Such as 2027-01-31 18:00 in the time zone of the page, 2027-01-31T18:00:00Z, or +2h from now; empty for the one that it has" + deadline},
				{Name: "noDeadline", Title: "No deadline any more", Kind: "flag"},
				note,
			}
		},
	},
	{
		Name: events.CommandLabel, Title: "Label", Says: "What the order is found by.", roles: []identity.Role{identity.Operator},
		may: func(o *api.Order) bool { return !o.Masked },
		fields: func(*api.Order) []field {
			return []field{{Name: "labels", Title: "Labels", Kind: "text", Required: true, Help: "NAME=VALUE to set one, NAME= to remove it; several with spaces between"}, note}
		},
	},
	{
		Name: rerun, Title: "Run again", Says: "As a new order, with the same input unless it is given another.", roles: []identity.Role{identity.Operator, identity.Submitter},
		may: func(o *api.Order) bool { return o.ProcessState.Final() && !events.OwnID(o.OrderID) },
		fields: func(*api.Order) []field {
			return []field{{Name: "input", Title: "Input instead", Kind: "json", Help: "JSON; empty for the one that it has"}}
		},
	},
	{
		Name: events.CommandCancel, Title: "Cancel", Says: "What was done is undone, and the order ends as Cancelled.", Danger: true, roles: []identity.Role{identity.Operator},
		may: func(o *api.Order) bool {
			return !o.ProcessState.Final() && o.ProcessState != projections.Compensating && o.Toward == nil
		}, fields: noted,
	},
	{
		Name: events.CommandTerminate, Title: "Terminate", Says: "The order ends at once, and nothing is undone. What agents were asked for they may do all the same.", Danger: true, roles: []identity.Role{identity.Operator},
		may:    func(o *api.Order) bool { return !o.ProcessState.Final() },
		fields: func(*api.Order) []field { return []field{{Name: "note", Title: "Why", Kind: "text", Required: true}} },
	},
}

// rerun and signal are acts that are no commands to an order.
const (
	rerun  = "rerun"
	signal = "signal"
)

// orderActs are the names of all that can be done to an order.
func orderActs() (names []string) {
	for _, a := range acts {
		names = append(names, a.Name)
	}
	return append(names, events.CommandDecide, signal)
}

var note = field{Name: "note", Title: "Note", Kind: "text", Help: "Why; it stands in the history"}

func noted(*api.Order) []field { return []field{note} }

// troubled are the steps, or undos, that failed and neither run nor are done.
func troubled(o *api.Order) (names []string) {
	for i := range o.Steps {
		s := &o.Steps[i]
		state := s.State
		if s.Undo != nil {
			state = s.Undo.State
		} else if o.Toward != nil { // what failed is over then, and its undos alone are asked for
			continue
		}
		if state == projections.Failed || state == projections.Expired {
			names = append(names, s.Name)
		}
	}
	return names
}

// inputsNow says which inputs those steps have, as far as they are short: another is given as a whole.
func inputsNow(o *api.Order) (says string) {
	const short = 200
	for _, name := range troubled(o) {
		input := o.Input
		if step := slices.IndexFunc(o.Steps, func(s api.Step) bool { return s.Name == name }); o.Steps[step].Undo != nil {
			continue
		} else if o.Steps[step].Input != nil {
			input = o.Steps[step].Input
		}
		if len(input) > 0 && len(input) <= short {
			says += "; " + name + " has " + string(input)
		}
	}
	return says
}

// actsFor are those that a caller may do to an order as it is.
func actsFor(caller *api.Caller, o *api.Order) (all []act) {
	for _, a := range acts {
		lacks := func(role identity.Role) bool { return !caller.May(role, o.Workflow) }
		if !slices.ContainsFunc(a.roles, lacks) && a.may(o) {
			if a.Name == events.CommandSkipStep && o.Toward != nil {
				a.Says = "The undo is given up: what the step did stays as it is."
			}
			a.Fields = a.fields(o)
			all = append(all, a)
		}
	}
	return all
}

// goOn are the acts with which an order that stood goes on, which does not say that it gets any further.
var goOn = []string{events.CommandResubmit, events.CommandSkipStep, events.CommandRelease, events.CommandResume}

// done is what a page says once something was done.
func (l actList) done(name string) string {
	for _, a := range l {
		if a.Name == name {
			says := a.Title + ": done."
			if slices.Contains(goOn, name) {
				says += " The order goes on from there: how far it is, and whether it fails again, stands below."
			}
			return says
		}
	}
	switch name {
	case events.CommandDecide:
		return "What you decided is recorded."
	case "matched":
		return "Signal: a step heard it."
	case "kept":
		return "Signal: it is kept for a step that does not listen yet."
	case "started":
		return "Signal: nobody waited for it any more, and it started an order."
	case "repeated":
		return "Signal: it came before, and changes nothing."
	case "held":
		return "Signal: the order is held, and decides on it once it is released."
	case "late", "declined", "dead-letter", "unrecorded":
		return "Signal: it changed nothing (" + name + ")."
	case "replay":
		return "Put back: it is decided on once more."
	case "discard":
		return "Discarded: it is not listed any more."
	case "retired":
		return "Registered before, and retired: no new order may have it until it is restored."
	case "register":
		return "Registered."
	case "retire":
		return "What may begin is changed."
	case events.CommandDelete:
		return "Deleted."
	case "view":
		return "Kept as a view, by this browser alone."
	case "no-view":
		return "The view is removed."
	case "forgotten":
		return "The bulk act is forgotten, and nothing was done."
	}
	return ""
}

// act does something to an order.
func (c *Console) act(v *visit) (*view, error) {
	id, name := v.PathValue("id"), v.PathValue("act")
	if err := events.CheckOrderID(id); err != nil {
		return nil, missing("%v.", err)
	}
	for _, field := range []string{"input", "output", "data"} {
		if _, err := v.payload(field); err != nil {
			return nil, err
		}
	}
	to := func(done string) *view { return &view{to: orderPath(id), done: done} }
	switch name {
	case rerun:
		receipt, err := v.client.Rerun(v.Context(), id, &api.Rerun{ID: v.key(), Input: json.RawMessage(raw(v.value("input")))})
		if err != nil {
			return nil, err
		}
		v.appears(receipt.OrderID)
		return &view{to: orderPath(receipt.OrderID), done: rerun}, nil
	case signal:
		heard, err := v.client.Signal(v.Context(), id, &api.Signal{Signal: v.value("signal"), ID: v.key(), Data: json.RawMessage(raw(v.value("data")))})
		if err != nil {
			return nil, err
		}
		if v.value("back") == "/signals" {
			return &view{to: v.signalsPath(), done: heard.Outcome}, nil
		}
		return to(heard.Outcome), nil
	}
	command, err := v.command(name)
	if err != nil {
		return nil, err
	}
	if _, err := v.client.Command(v.Context(), id, command); err != nil {
		return nil, err
	}
	if v.value("back") == "/approvals" {
		return &view{to: link("/approvals", "mine", v.value("ofMine"), "after", v.value("ofAfter")), done: name}, nil
	}
	return to(name), nil
}

// command is what a form has an order do.
func (v *visit) command(name string) (*events.Command, error) {
	c := &events.Command{
		Command: name, ID: v.key(), By: v.by(), Note: v.value("note"), Step: v.value("step"), Outcome: v.value("outcome"),
		Input: raw(v.value("input")), Output: raw(v.value("output")),
		Discard: v.Form.Has("discard"),
	}
	switch name {
	case events.CommandResubmit:
		keys, err := v.keys()
		if err != nil {
			return nil, err
		}
		c.SameKey, c.NewKey = keys == "sameKey", keys == "newKey"
		if c.Step != "" && len(c.Input) == 0 {
			return nil, unfit("Step %s was chosen without an input: give it one, or choose no step to resubmit all that failed.", c.Step)
		}
	case events.CommandChange:
		c.Priority = events.Priority(v.value("priority"))
		c.NoDeadline = v.Form.Has("noDeadline")
		switch deadline := v.value("deadline"); {
		case deadline == "":
			if c.Priority == "" && !c.NoDeadline {
				return nil, unfit("Nothing is to be changed: choose a priority, or say a deadline.")
			}
		case strings.HasPrefix(deadline, "+"):
			in, err := time.ParseDuration(deadline[1:])
			if err != nil {
				return nil, unfit("The deadline %s is not a duration from now, such as +2h or +90m.", strconv.Quote(deadline))
			}
			c.Deadline = events.Time(time.Now().Add(in))
		default:
			at, err := timeIn(deadline, v.zone)
			if err != nil {
				return nil, unfit("The deadline %s is not a time such as 2027-01-31 18:00, which is %s as the times on the page, or 2027-01-31T18:00:00Z.", strconv.Quote(deadline), v.zone)
			}
			c.Deadline = events.Time(at)
		}
	case events.CommandLabel:
		c.Labels = make(map[string]*string)
		for word := range strings.FieldsSeq(v.value("labels")) {
			label, value, ok := strings.Cut(word, "=")
			switch {
			case !ok:
				return nil, unfit("A label is NAME=VALUE, or NAME= to remove it; this is %s.", strconv.Quote(word))
			case value == "":
				c.Labels[label] = nil
			default:
				c.Labels[label] = &value
			}
		}
	}
	return c, nil
}

func unfit(format string, args ...any) error {
	return &api.Problem{Status: http.StatusUnprocessableEntity, Title: "That cannot be", Detail: fmt.Sprintf(format, args...)}
}

// payload is JSON that a field of a form gave, nil if it gave none.
func (v *visit) payload(name string) (jsontext.Value, error) {
	value := raw(v.value(name))
	if value != nil && !value.IsValid(jsontext.AllowDuplicateNames(true)) {
		return nil, unfit("The %s is no JSON. A text has quotes around it.", name)
	}
	return value, nil
}

// raw is JSON that a form gave, nil if it gave none.
func raw(text string) jsontext.Value {
	if text == "" {
		return nil
	}
	return jsontext.Value(text)
}

// hears are the names of the signals that a step hears which are sent to its order, and not under a key.
func hears(l *api.Listens) []string {
	if l.Key != nil {
		return nil
	}
	return l.Signals
}
