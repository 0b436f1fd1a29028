package decide

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
)

// An agent may list the items of a step. Each page is asked for by an order of its own, of a workflow that has this
// step alone: so it has all that a request to an agent has. That order keeps the page, and tells it once more where
// items of it are done anew.

// cursorSize is how many bytes a cursor takes as JSON, at most.
const cursorSize = events.MaxCursor * len(`\u0000`)

// orderPage has an order ask for a page, or tell once more what it has.
func (d *decider) orderPage(t task, page int, again bool) {
	e := events.Event{Type: events.PageOrdered, Step: t.step.Name, Attempt: t.step.Attempt, Page: page, LockedBy: d.env.Instance}
	if !again {
		e.Workflow, e.Version = t.def.Each.Pages.Name, t.def.Each.Pages.Version
	}
	d.record(&e)
	d.begun++
}

// takePage decides on what an order tells that asked for a page.
func takePage(env *Env, order *projections.Order, in *Input, step string, n int) Decision {
	i := place(order, step)
	if i < 0 {
		return Decision{}
	}
	s := &order.Steps[i]
	if s.Each == nil || s.Each.Pages == nil || s.Each.Pages.Running != n || s.State != projections.Running || in.Report.Child != order.PageOrder(s, n) {
		return Decision{}
	}
	d := newDecider(env, order)
	t := d.task(i, doing)
	e := events.Event{Type: events.PageCompleted, Step: t.step.Name, Attempt: t.step.Attempt, Page: n, Source: in.Record.Source()}
	fault := readPage(t.step.Each, in.Report, &e)
	if fault == nil {
		if why := d.refusesItems(estimate(&e) + escaped(e.Cursor)); why != "" {
			fault = refusedOutput(why)
		}
	}
	if fault != nil {
		fault.Message, fault.Permanent = Cut(fmt.Sprintf("page %d: %s", n, fault.Message), MaxText), true
		e.Type, e.Input, e.Count, e.Cursor, e.Error = events.PageFailed, nil, 0, "", fault
	}
	d.record(&e)
	if !d.endItems(t) {
		d.advance()
	}
	return d.made()
}

// readPage reads what an agent says a page has, or says what is wrong with that.
func readPage(each *projections.Each, r *events.Report, e *events.Event) *events.Error {
	if projections.State(r.State) != projections.Processed {
		return &events.Error{Code: events.NoPage, Message: told(r).Message}
	}
	const form = `answer {"items": [...], "cursor": "..."}, and no cursor on the last page`
	bad := func(format string, args ...any) *events.Error {
		return &events.Error{Code: events.BadPage, Message: fmt.Sprintf(format, args...) + "; " + form}
	}
	var page map[string]jsontext.Value
	if r.Output.Kind() != '{' || json.Unmarshal(r.Output, &page, jsontext.AllowDuplicateNames(true)) != nil {
		return bad("it is %s", cmp.Or(Cut(string(r.Output), 100), "nothing"))
	}
	for _, name := range slices.Sorted(maps.Keys(page)) { // a cursor that is misspelt would make this the last page
		if name != "items" && name != "cursor" {
			return bad("it has a member %s", Cut(strconv.Quote(name), 100))
		}
	}
	n, list := projections.Elements(page["items"])
	if !list {
		return bad("its items are a list, this is %s", cmp.Or(Cut(string(page["items"]), 100), "nothing"))
	}
	switch e.Input, e.Count = page["items"], n; page["cursor"].Kind() {
	case 0, 'n':
	case '"':
		cursor, err := jsontext.AppendUnquote(nil, page["cursor"])
		if err != nil {
			return bad("its cursor cannot be read: %v", err)
		}
		e.Cursor = string(cursor)
	default:
		return bad("its cursor is a text, this is %s", Cut(string(page["cursor"]), 100))
	}
	pages := each.Pages
	switch had := each.PageItems(e.Page); {
	case had > 0 && n != had:
		return bad("it has %d items, and had %d before", n, had)
	case had > 0:
		e.Cursor = ""
	case n > events.MaxPageItems:
		return bad("it has %d items; at most %d are allowed in a page", n, events.MaxPageItems)
	case len(e.Cursor) > events.MaxCursor:
		return bad("its cursor has %d bytes; at most %d are allowed", len(e.Cursor), events.MaxCursor)
	case n > events.MaxItems-each.Count:
		return &events.Error{Code: events.TooManyItems, Message: fmt.Sprintf("with its %d items there are %d; at most %d are allowed: have several orders do them", n, each.Count+n, events.MaxItems)}
	case pages.Repeats(e.Cursor):
		return &events.Error{Code: events.CursorRepeated, Message: fmt.Sprintf("its cursor, %s, is that of a page before, so the same would come again and again, and some may have been done twice; answer with where the next page begins, and no cursor on the last page", Cut(e.Cursor, 100))}
	case n == 0 && e.Cursor != "" && pages.Empty >= events.MaxEmptyPages:
		return &events.Error{Code: events.EmptyPages, Message: fmt.Sprintf("%d pages in a row have no item; look for some before you answer, and answer without a cursor if there are none", events.MaxEmptyPages+1)}
	case e.Cursor != "" && e.Page >= events.MaxPages:
		return &events.Error{Code: events.TooManyPages, Message: fmt.Sprintf("another follows; at most %d are allowed: answer with more items in each", events.MaxPages)}
	}
	return nil
}

// refusesItems says why Kafka would not take what is recorded of items, and what the orders are asked for that
// do them, or ask for them: of so many bytes, without labels.
func (d *decider) refusesItems(size int) string {
	size += passedSize(d.order)
	for name, value := range d.order.Labels {
		size += 2 * (len(name) + len(value))
	}
	return cmp.Or(d.env.Refuses(d.env.Topics.Internal, size), d.env.Refuses(d.env.Topics.Journal, size))
}

// tolerates is how many items of the step may fail. While further pages may follow a share is one of as many
// items as there may be at most: no step is stopped early that would have been within it.
func (t task) tolerates() int {
	if t.step.Each.More() {
		return t.def.Each.Tolerates(events.MaxItems)
	}
	return t.def.Each.Tolerates(t.step.Each.Count)
}

// pageWish is what the order is asked for that asks for a page.
func pageWish(o *projections.Order, s *projections.Step, page int, wish, reason string) *events.Wish {
	return &events.Wish{Child: o.PageOrder(s, page), Wish: wish, Parent: o.ID, Step: events.PageStep(s.Known(), page), Reason: reason}
}

// pageWishes are what the orders that ask for pages of a step are asked for by an event.
func pageWishes(o *projections.Order, s *projections.Step, e *events.Event) (all []*events.Wish) {
	pages := s.Each.Pages
	switch {
	case pages == nil:
	case e.Type == events.StepRecalled && pages.Running > 0:
		all = append(all, pageWish(o, s, pages.Running, events.WishCancel, e.Reason))
	case e.Type == events.PagesForgotten:
		for n := e.Page; n < e.Page+e.Count && n <= pages.Asked; n++ {
			all = append(all, &events.Wish{Child: o.PageOrder(s, n), Wish: events.WishForget, Parent: o.ID})
		}
	case e.Type == events.PageOrdered && e.Workflow == "":
		all = append(all, pageWish(o, s, e.Page, events.WishTell, "some of its items are done anew"))
	case e.Type == events.PageOrdered:
		w := pageWish(o, s, e.Page, events.WishBegin, "")
		asks := events.PageRequest{Input: inputOf(o, s), Cursor: pages.Cursor}
		w.Workflow, w.Version, w.Input = e.Workflow, e.Version, asks.Append(nil)
		inherit(w, o)
		all = append(all, w)
	}
	return all
}
