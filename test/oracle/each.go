package oracle

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/events"
)

// FlowEach says for which items a step is done, by the orders of which workflow, and how.
type FlowEach struct {
	Items FlowItems `json:"items"`
	Order *struct {
		Workflow string `json:"workflow"`
		Version  int    `json:"version"`
	} `json:"order"`
	Steps     []FlowStep `json:"steps"`
	AtOnce    int        `json:"atOnce"`
	Tolerate  tolerance  `json:"tolerate"`
	OnFailure string     `json:"onFailure"`
}

// tolerance is a number, or a share of all, such as 5%.
type tolerance struct{ count, share int }

// UnmarshalJSON reads either.
func (t *tolerance) UnmarshalJSON(text []byte) (err error) {
	if share, is := strings.CutSuffix(strings.Trim(string(text), `"`), "%"); is {
		t.share, err = strconv.Atoi(share)
	} else {
		t.count, err = strconv.Atoi(string(text))
	}
	return err //nolint:wrapcheck // whoever reads the workflow says of what
}

// orders is of which workflow the orders are that do the items of a step.
func (f *Flow) orders(s *FlowStep, pinned map[string]int64) (string, int) {
	if s.Each.Order == nil {
		return f.Name + "/" + s.Name, f.Version
	}
	if s.Each.Order.Version > 0 {
		return s.Each.Order.Workflow, s.Each.Order.Version
	}
	return s.Each.Order.Workflow, int(pinned[s.Each.Order.Workflow])
}

// inner is the workflow of steps that do items, by the name of the one that they are of, and of the step.
func inner(find func(name string, version int) *Flow, name string, version int) *Flow {
	i := strings.LastIndex(name, "/")
	if i < 0 {
		return nil
	}
	step, asks := strings.CutSuffix(name[i+1:], ":pages")
	s := find(name[:i], version).step(step)
	switch {
	case s == nil || s.Each == nil:
		return nil
	case asks:
		return asksForPages(name, version, s)
	case s.Each.Order != nil:
		return nil
	}
	return &Flow{Name: name, Version: version, Overdue: "compensate", Steps: s.Each.Steps}
}

// Items are those of a step.
type Items struct {
	Workflow string
	Version  int
	All      []Item
	Pages    *Pages // nil unless an agent lists them
	Recalled bool
	AtOnce   int   // that an operator wants, else 0
	Running  []int // numbers, in the order in which they were ordered

	completed []int // in this order
	latest    []int // those that were ordered by the last event
	bytes     int   // of all outputs
	forgotten int
}

// Item is one of them.
type Item struct {
	State string
	Order string // that does it
	round int
	page  int // that it is of, else 0
	// Left says that an order which did it left something that was not undone, since [events.LeftByFormat].
	Left bool

	value, output jsontext.Value
}

func (i *Items) count(state string) (n int) {
	for _, item := range i.All {
		if item.State == state {
			n++
		}
	}
	return n
}

const (
	undoing   = "undoing"
	notUndone = "undo-failed"
)

// itemize: the turn of a step has come that is done for each item of a list, or for those that failed.
func (l *Ledger) itemize(e *events.Event, s *Step) {
	l.goesOn()
	l.mayDo(e, s)
	l.begins(e, &s.Work)
	l.rule("T5", e.LockedBy != "", "nobody has locked the order")
	again := s.Items != nil
	if !again && e.Agent != "" {
		s.Items = &Items{Pages: new(Pages)}
	} else if !again {
		var list []jsontext.Value
		input := e.Input
		if input == nil {
			input = s.Input
		}
		err := json.Unmarshal(input, &list)
		l.rule("S3", err == nil && len(list) == e.Count && len(list) <= events.MaxItems, "it has %d items, and its list has %d: %v", e.Count, len(list), err)
		s.Items = &Items{All: make([]Item, len(list))}
		for i := range list {
			s.Items.All[i] = Item{State: notStarted, value: list[i]}
		}
	}
	l.rule("S3", e.Count == len(s.Items.All) && (!again || e.Input == nil) && (e.Agent != "") == (s.Items.Pages != nil), "it has %d items, and had %+v", e.Count, s.Items)
	s.Items.Workflow, s.Items.Version = e.Workflow, e.Version
	if def := s.def; def != nil {
		l.itemizesAsTheWorkflowSays(e, s, again)
	}
	s.State, s.Attempt, s.prevented, s.renewed, s.Unanswered = running, e.Attempt, "", false, false
	s.CompleteBy, s.Due = e.CompleteBy, time.Time{}
	if e.Input != nil {
		s.Input = e.Input
	}
}

func (l *Ledger) itemizesAsTheWorkflowSays(e *events.Event, s *Step, again bool) {
	if l.rule("S4", s.def.Each != nil && l.Format >= events.EachFormat, "the workflow has no items for it, in format %d", l.Format); s.def.Each == nil {
		return
	}
	if asks := s.def.Each.Items.Agent; asks != nil {
		l.rule("S4", e.Agent == asks.Agent && e.Operation == asks.Do, "agent %s lists its items by %s, and it must be agent %s, by %s", e.Agent, e.Operation, asks.Agent, asks.Do)
	}
	name, version := l.flow.orders(s.def, l.accepted.Pinned)
	l.rule("S4", e.Workflow == name && e.Version == version, "orders of %s@%d do its items, and must be of %s@%d", e.Workflow, e.Version, name, version)
	var completeBy time.Time
	if s.def.Timeout.After > 0 {
		completeBy = events.Time(e.At.Add(time.Duration(s.def.Timeout.After)))
	}
	l.rule("S2", e.CompleteBy.Equal(completeBy), "its complete-by is %v, and must be %v", e.CompleteBy, completeBy)
	if !again {
		l.asked(e, s, &s.Work, false)
	}
}

// list evaluates what a step is done for.
func (l *Ledger) list(expression string) ([]byte, error) {
	value, err := l.value(expression)
	if err != nil {
		return nil, err
	}
	var all []jsontext.Value
	if err := json.Unmarshal(value, &all); err != nil || all == nil || len(all) > events.MaxItems {
		return nil, fmt.Errorf("%d items: %w", len(all), errNoList)
	}
	return value, nil
}

var errNoList = errors.New("it is no list, or has too much")

// atOnce is how many items of the step may be under way.
func (s *Step) atOnce() int {
	if s.Items.AtOnce > 0 || s.def == nil {
		return s.Items.AtOnce
	}
	return s.def.Each.AtOnce
}

// tolerates is how many of the step's items may fail.
func (s *Step) tolerates() int {
	all := len(s.Items.All)
	if s.Items.more() { // there may be as many as may be
		all = events.MaxItems
	}
	return s.def.Each.Tolerate.count + s.def.Each.Tolerate.share*all/100
}

// stops says that no further item begins.
func (l *Ledger) stops(s *Step) bool {
	return s.Items.Recalled || l.Toward != "" || l.failure != nil || s.def != nil && s.def.Each.OnFailure == "stop" && (s.Items.count(failed) > s.tolerates() || s.Items.Pages != nil && s.Items.Pages.Error != nil)
}

// item takes the events of a step's items.
func (l *Ledger) item(e *events.Event, s *Step) {
	if l.rule("S4", s.Items != nil, "it has no items"); s.Items == nil {
		return
	}
	w := &s.Work
	if e.ToUndo {
		if s.Undo == nil {
			s.Undo = &Work{State: notStarted}
		}
		w = s.Undo
	}
	switch e.Type {
	case events.ItemsOrdered:
		l.ordersItems(e, s, w)
	case events.ItemsForgotten:
		l.rule("C3", l.ended && e.Item == s.Items.forgotten+1 && e.Count > 0 && e.Item+e.Count-1 <= len(s.Items.All), "items %d and %d more are forgotten, of %d, behind %d", e.Item, e.Count, len(s.Items.All), s.Items.forgotten)
		s.Items.forgotten = e.Item + e.Count - 1
	case events.ItemCompleted, events.ItemFailed:
		l.itemEnds(e, s, w)
	case events.PageOrdered, events.PageCompleted, events.PageFailed, events.PagesForgotten:
		l.page(e, s)
	default:
		l.rule("P4", false, "nobody knows this event")
	}
}

func (l *Ledger) ordersItems(e *events.Event, s *Step, w *Work) {
	items := s.Items
	l.goesOn()
	l.rule("T5", e.LockedBy != "", "nobody has locked the order")
	from, to := notStarted, running
	if e.ToUndo {
		from, to = completed, undoing
		if w.State != running {
			l.mayUndo(s)
			l.begins(e, w)
			w.State, w.Attempt, w.prevented, w.renewed, w.Unanswered = running, e.Attempt, "", false, false
			w.CompleteBy, w.Due = time.Time{}, time.Time{}
		}
	} else {
		l.rule("S1", !l.stops(s), "no further one may begin")
	}
	l.rule("S2", w.State == running && e.Attempt == w.Attempt, "it is %s, attempt %d", w.State, w.Attempt)
	var next []int
	if e.ToUndo {
		for _, n := range slices.Backward(items.completed) {
			if len(next) < e.Count && items.All[n-1].State == from {
				next = append(next, n)
			}
		}
	} else {
		for i := range items.All {
			if len(next) < e.Count && items.atHand(&items.All[i]) {
				next = append(next, i+1)
			}
		}
	}
	l.rule("S1", len(next) == e.Count && e.Count > 0 && e.Count <= 100 && next[0] == e.Item, "%d items are ordered, from %d on, and must be %v", e.Count, e.Item, next)
	if s.def != nil {
		l.rule("S1", len(items.Running)+e.Count <= s.atOnce(), "%d are under way with these, and %d may be", len(items.Running)+e.Count, s.atOnce())
	}
	for _, n := range next {
		item := &items.All[n-1]
		if item.State = to; !e.ToUndo {
			item.round, item.Order = s.Resubmissions, childID(l.itemKey(s, n, s.Resubmissions))
		}
	}
	items.latest = next
	items.Running = append(items.Running, next...)
	w.Due = e.Due
	if s.def != nil {
		l.rule("S1", e.Due.IsZero() != s.room(e.ToUndo) && (e.Due.IsZero() || e.Due.Equal(events.Time(e.At))), "others are ordered at %v", e.Due)
	}
}

// room says that further items of the step may be under way than are, and that there are some.
func (s *Step) room(undo bool) bool {
	left := s.Items.left()
	if undo {
		left = s.Items.count(completed)
	}
	return len(s.Items.Running) < s.atOnce() && left > 0
}

// itemKey is the key of an item of a step, as docs/messages.md spells it.
func (l *Ledger) itemKey(s *Step, n, round int) string {
	key := fmt.Sprintf("%s/%s:i%d", l.Order, s.Known, n)
	if round > 0 {
		key += fmt.Sprintf(":%d", round+1)
	}
	return key
}

func (l *Ledger) itemEnds(e *events.Event, s *Step, w *Work) {
	items := s.Items
	i := slices.Index(items.Running, e.Item)
	l.rule("S2", w.State == running && e.Attempt == w.Attempt && i >= 0 && (items.All[max(0, e.Item-1)].State == undoing) == e.ToUndo, "it is %s, attempt %d, and items %v are under way", w.State, w.Attempt, items.Running)
	l.rule("P4", strings.Contains(e.Source, ".internal/"), "it is from %q", e.Source)
	l.rule("A5", (e.Type == events.ItemFailed) == (e.Error != nil) && (e.Error == nil || e.Error.Permanent), "its error is %+v", e.Error)
	if i < 0 {
		return
	}
	l.remains(e, s)
	items.Running = slices.Delete(items.Running, i, i+1)
	w.Due = time.Time{}
	item := &items.All[e.Item-1]
	switch {
	case e.Type == events.ItemCompleted && e.ToUndo:
		item.State = undone
	case e.Type == events.ItemCompleted:
		item.State, item.output = completed, e.Output
		items.bytes += len(e.Output)
		items.completed = append(items.completed, e.Item)
	case e.ToUndo:
		item.State = notUndone
		fault := *e.Error
		fault.Attempt = e.Attempt
		w.Errors = append(w.Errors, fault)
	default:
		item.State = failed
	}
}

// itemsEnded: a step ends once its items have, or none is under way and no further one may begin. It
// completed if no more failed than may, and what came of them can be recorded.
func (l *Ledger) itemsEnded(e *events.Event, s *Step) {
	items := s.Items
	if items == nil {
		return
	}
	open, bad := items.count(notStarted), items.count(failed)
	known := open == 0 && (items.Pages == nil || items.Pages.Last && items.Pages.Error == nil)
	l.rule("S2", len(items.Running) == 0 && (known || l.stops(s) || items.Pages != nil && items.Pages.Error != nil && items.left() == 0), "items %v are under way, and %d are to be done, %+v", items.Running, open, items.Pages)
	if s.def == nil {
		return
	}
	l.rule("S2", items.Pages == nil || items.Pages.Running == 0, "a page is under way: %+v", items.Pages)
	good := known && (bad == 0 || !items.Recalled && l.Toward == "" && l.failure == nil && bad <= s.tolerates())
	if good && e.Type == events.StepFailed && e.Error != nil && e.Error.Code == "output-refused" {
		return // what came of them cannot be recorded
	}
	l.rule("S4", (e.Type == events.StepCompleted) == good, "%d of its items failed, %d were not done, and %d may fail", bad, open, s.tolerates())
	if e.Type == events.StepCompleted {
		var says struct {
			Items     int `json:"items"`
			Completed int `json:"completed"`
			Failed    int `json:"failed"`
			Failures  []struct {
				Item int `json:"item"`
			} `json:"failures"`
			Outputs []jsontext.Value `json:"outputs"`
		}
		err := json.Unmarshal(e.Output, &says)
		l.rule("S4", err == nil && says.Items == len(items.All) && says.Completed == items.count(completed) && says.Failed == bad && says.Failures != nil && len(says.Failures) == min(bad, 100) && items.are(says.Outputs), "it says %s", e.Output)
		return
	}
	codes := []string{"items-failed"}
	switch {
	case l.Toward != "" || l.failure != nil:
		codes = []string{"cancelled"}
		if l.Format < events.LeavesFormat { // as releases said that write no other
			codes = append(codes, "Cancelled")
		}
	case items.Recalled:
		codes = []string{"timed-out"}
	case items.Pages != nil && items.Pages.Error != nil && (s.def == nil || items.count(failed) <= s.tolerates()):
		codes = []string{items.Pages.Error.Code}
	}
	l.rule("A5", e.Error != nil && e.Error.Permanent && slices.Contains(codes, e.Error.Code), "its error is %+v", e.Error)
}

// are says that a step has these outputs of its items: all, if they are few and short, else none.
func (i *Items) are(outputs []jsontext.Value) bool {
	if len(i.All) > 1000 || i.bytes > 64<<10 {
		return outputs == nil
	}
	return outputs != nil && slices.EqualFunc(i.All, outputs, func(item Item, output jsontext.Value) bool {
		return string(output) == string(item.output) || item.output == nil && string(output) == "null"
	})
}

// itemsUndone: the undo of a step ends once that of its items has.
func (l *Ledger) itemsUndone(e *events.Event, s *Step) {
	if s.Items == nil {
		return
	}
	left := s.Items.count(completed) + len(s.Items.Running)
	l.rule("C1", left == 0, "%d items are to be undone", left)
	l.rule("C2", (e.Type == events.UndoFailed) == (s.Items.count(notUndone) > 0), "the undo of %d items failed", s.Items.count(notUndone))
}

// paced: an operator says how many items may be under way.
func (l *Ledger) paced(e *events.Event, s *Step) {
	l.rule("P3", s.Items != nil && e.AtOnce > 0 && e.AtOnce <= 1000, "it may have %d items under way at a time, and has %+v", e.AtOnce, s.Items)
	if s.Items != nil {
		s.Items.AtOnce, s.Due = e.AtOnce, time.Time{}
		if s.Undo != nil {
			s.Undo.Due = time.Time{}
		}
	}
}

// again has what failed be done, or undone, anew.
func (s *Step) redo(undo bool) {
	if s.Items == nil {
		return
	}
	from, to := failed, notStarted
	if undo {
		from, to = notUndone, completed
	} else {
		s.Items.Recalled = false
		if p := s.Items.Pages; p != nil {
			p.Error, p.Empty, p.hand = nil, 0, 0
		}
	}
	for i := range s.Items.All {
		if s.Items.All[i].State == from {
			s.Items.All[i].State = to
		}
	}
}

// itemWishes are what the orders that do items are asked for by an event.
func (l *Ledger) itemWishes(e *events.Event) (all []events.Wish) {
	s := l.Step(e.Step)
	if s == nil || s.Items == nil {
		return nil
	}
	wish := func(n int, asks, reason string) events.Wish {
		return events.Wish{Child: s.Items.All[n-1].Order, Wish: asks, Parent: e.Order, Step: fmt.Sprintf("%s:i%d", s.Known, n), Reason: reason}
	}
	switch e.Type {
	case events.StepRecalled:
		for _, n := range s.Items.Running {
			all = append(all, wish(n, "cancel", e.Reason))
		}
		all = append(all, l.pageWishes(e, s)...)
	case events.PageOrdered, events.PagesForgotten:
		all = l.pageWishes(e, s)
	case events.ItemsForgotten:
		for n := e.Item; n < e.Item+e.Count; n++ {
			for round := range s.Items.All[n-1].round + 1 {
				if s.Items.All[n-1].Order == "" { // it never began
					break
				}
				all = append(all, events.Wish{Child: childID(l.itemKey(s, n, round)), Wish: "forget", Parent: e.Order})
			}
		}
	case events.ItemsOrdered:
		for _, n := range s.Items.latest {
			if e.ToUndo {
				all = append(all, wish(n, "undo", "order "+e.Order+" is being undone"))
				continue
			}
			w := wish(n, "begin", "")
			w.Workflow, w.Version, w.Input = s.Items.Workflow, s.Items.Version, s.Items.All[n-1].value
			l.inherit(&w)
			all = append(all, w)
		}
	}
	return all
}

func (l *Ledger) inherit(w *events.Wish) {
	w.Depth = l.accepted.Depth + 1
	w.Priority, w.Labels, w.By, w.Submitters, w.Deadline = l.accepted.Priority, l.Labels, l.accepted.By, l.accepted.Submitters, l.Deadline
}

// single are events of a step's items as those of steps, each of which one order does, under the names by which they are
// known, after the ledger has taken it; others are as they are.
func (l *Ledger) single(e *events.Event) (all []events.Event) {
	i := slices.IndexFunc(l.Steps, func(s *Step) bool { return s.Known == e.Step })
	if i < 0 || l.Steps[i].Items == nil {
		return []events.Event{*e}
	}
	s := l.Steps[i]
	each := func(n int, as events.Type) {
		one := *e
		one.Type, one.Step, one.Child = as, fmt.Sprintf("%s:i%d", s.Known, n), s.Items.All[n-1].Order
		all = append(all, one)
	}
	if e.Page > 0 {
		one := *e
		if one.Step, one.Child = fmt.Sprintf("%s:p%d", s.Known, e.Page), childID(l.pageKey(s, e.Page)); e.Type == events.PageOrdered {
			one.Type = events.StepOrdered
		}
		return []events.Event{one}
	}
	switch {
	case e.Type == events.ItemsOrdered:
		for _, n := range s.Items.latest {
			if e.ToUndo {
				each(n, events.UndoOrdered)
			} else {
				each(n, events.StepOrdered)
			}
		}
	case e.Type == events.StepRecalled:
		for _, n := range s.Items.Running {
			each(n, events.StepRecalled)
		}
		if p := s.Items.Pages; p != nil && p.Running > 0 {
			one := *e
			one.Step, one.Child = fmt.Sprintf("%s:p%d", s.Known, p.Running), childID(l.pageKey(s, p.Running))
			all = append(all, one)
		}
	case e.Type == events.ItemCompleted && e.ToUndo:
		each(e.Item, events.UndoCompleted)
	case e.Type == events.ItemCompleted:
		each(e.Item, events.StepCompleted)
	case e.Type == events.ItemFailed && e.ToUndo:
		each(e.Item, events.UndoFailed)
	case e.Type == events.ItemFailed:
		each(e.Item, events.StepFailed)
	case e.Type == events.UndoSkipped:
		for n := range s.Items.All {
			each(n+1, events.UndoSkipped)
		}
	default:
		return []events.Event{*e}
	}
	return all
}
