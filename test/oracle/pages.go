package oracle

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/events"
)

// FlowItems says for what a step is done: the items of a list, or those that an agent lists.
type FlowItems struct {
	List  string
	Agent *FlowStep // asks for a page
}

// UnmarshalJSON reads an expression, or what an agent is asked for.
func (i *FlowItems) UnmarshalJSON(text []byte) error {
	if text[0] == '"' {
		return json.Unmarshal(text, &i.List) //nolint:wrapcheck // whoever reads the workflow says of what
	}
	i.Agent = &FlowStep{Name: "page", Exhausted: "compensate"}
	return json.Unmarshal(text, i.Agent) //nolint:wrapcheck // as above
}

// asksForPages is the workflow whose orders ask for the pages of a step's items.
func asksForPages(name string, version int, s *FlowStep) *Flow {
	if s.Each.Items.Agent == nil {
		return nil
	}
	asks := *s.Each.Items.Agent
	asks.With = "" // which the other order evaluates
	return &Flow{Name: name, Version: version, Overdue: "compensate", Steps: []FlowStep{asks}}
}

// Pages is how far the items of a step are known that an agent lists.
type Pages struct {
	Asked, Running int
	Cursor         string
	Last           bool
	Error          *events.Error
	Empty          int // of the last pages, one after the other

	hand, forgotten int
}

// pageOf are the items of a page, none if it was not had before.
func (i *Items) pageOf(page int) (items []*Item) {
	for n := range i.All {
		if i.All[n].page == page {
			items = append(items, &i.All[n])
		}
	}
	return items
}

// more says that further pages are to be asked for.
func (i *Items) more() bool { return i.Pages != nil && !i.Pages.Last && i.Pages.Error == nil }

// atHand says that an item is one of those that can be ordered now.
func (i *Items) atHand(item *Item) bool {
	return item.State == notStarted && (i.Pages == nil || item.page == i.Pages.hand)
}

// left is how many can be.
func (i *Items) left() (n int) {
	for at := range i.All {
		if i.atHand(&i.All[at]) {
			n++
		}
	}
	return n
}

// page takes the events of pages.
func (l *Ledger) page(e *events.Event, s *Step) {
	if l.rule("S4", s.Items != nil && s.Items.Pages != nil, "no agent lists its items"); s.Items == nil || s.Items.Pages == nil {
		return
	}
	p := s.Items.Pages
	if e.Type == events.PagesForgotten {
		l.rule("C3", l.ended && e.Page == p.forgotten+1 && e.Page+e.Count-1 <= p.Asked, "pages %d and %d more are forgotten, of %d, behind %d", e.Page, e.Count, p.Asked, p.forgotten)
		p.forgotten = e.Page + e.Count - 1
		return
	}
	l.rule("S2", s.State == running && e.Attempt == s.Attempt, "it is %s, attempt %d", s.State, s.Attempt)
	if s.Due = (time.Time{}); e.Type == events.PageOrdered {
		l.ordersPage(e, s)
		return
	}
	l.rule("S2", e.Page == p.Running, "page %d is under way", p.Running)
	l.rule("P4", strings.Contains(e.Source, ".internal/"), "it is from %q", e.Source)
	p.Running = 0
	if e.Type == events.PageFailed {
		codes := []string{"page-failed", "bad-page", "cursor-repeated", "empty-pages", "too-many-items", "too-many-pages", "output-refused"}
		l.rule("A5", e.Error != nil && e.Error.Permanent && slices.Contains(codes, e.Error.Code) && strings.HasPrefix(e.Error.Message, fmt.Sprintf("page %d: ", e.Page)), "its error is %+v", e.Error)
		p.Error = e.Error
		return
	}
	l.pageIs(e, s.Items)
}

// ordersPage: the next page is asked for, once, when no item is left to be ordered of those before; or one of before,
// of which items are to be done anew.
func (l *Ledger) ordersPage(e *events.Event, s *Step) {
	items, p := s.Items, s.Items.Pages
	l.goesOn()
	l.rule("T5", e.LockedBy != "", "nobody has locked the order")
	l.rule("S1", !l.stops(s) && p.Running == 0 && items.left() == 0 && p.Error == nil, "page %d is under way, %d items are at hand, %+v", p.Running, items.left(), p.Error)
	next := p.Asked + 1
	again := slices.IndexFunc(items.All, func(i Item) bool { return i.State == notStarted })
	if again >= 0 {
		next = items.All[again].page
	}
	l.rule("S1", e.Page == next && (again >= 0 || !p.Last), "it is page %d, and must be %d; the last is known: %t", e.Page, next, p.Last)
	l.rule("S4", (e.Workflow == "") == (again >= 0), "an order of %q asks for it; some of its items are to be done anew: %t", e.Workflow, again >= 0)
	if s.def != nil && again < 0 {
		l.rule("S4", e.Workflow == l.flow.Name+"/"+s.Name+":pages" && e.Version == l.flow.Version, "an order of %s@%d asks for it", e.Workflow, e.Version)
	}
	if p.Running, p.hand = e.Page, 0; again < 0 {
		p.Asked = e.Page
	}
}

// pageIs: what a page has is within bounds, and as it was if it was had before.
func (l *Ledger) pageIs(e *events.Event, items *Items) {
	p := items.Pages
	var list []jsontext.Value
	err := json.Unmarshal(e.Input, &list)
	l.rule("S3", err == nil && list != nil && len(list) == e.Count, "it has %d items, and its list has %d: %v", e.Count, len(list), err)
	p.hand = e.Page
	if had := items.pageOf(e.Page); len(had) > 0 {
		l.rule("S3", e.Cursor == "" && slices.EqualFunc(had, list, func(i *Item, value jsontext.Value) bool { return string(i.value) == string(value) }), "it has %s, and had other items", e.Input)
		return
	}
	l.rule("S3", len(list) <= 10_000 && len(items.All)+len(list) <= events.MaxItems && len(e.Cursor) <= 1024, "it has %d items beside %d, and a cursor of %d bytes", len(list), len(items.All), len(e.Cursor))
	if p.Empty++; len(list) > 0 {
		p.Empty = 0
	}
	l.rule("S3", e.Cursor == "" || e.Cursor != p.Cursor && p.Empty <= 100, "it goes on at %q, as before, and %d pages had nothing", e.Cursor, p.Empty)
	for _, value := range list {
		items.All = append(items.All, Item{State: notStarted, value: value, page: e.Page})
	}
	p.Cursor, p.Last = e.Cursor, e.Cursor == ""
}

// pageKey is the key of the order that asks for a page of a step's items.
func (l *Ledger) pageKey(s *Step, page int) string {
	return fmt.Sprintf("%s/%s:p%d", l.Order, s.Known, page)
}

// pageWish is what that order is asked for.
func (l *Ledger) pageWish(s *Step, page int, asks, reason string) events.Wish {
	return events.Wish{Child: childID(l.pageKey(s, page)), Wish: asks, Parent: l.Order, Step: fmt.Sprintf("%s:p%d", s.Known, page), Reason: reason}
}

// pageWishes are what orders that ask for pages are asked for by an event.
func (l *Ledger) pageWishes(e *events.Event, s *Step) (all []events.Wish) {
	p := s.Items.Pages
	switch {
	case p == nil:
	case e.Type == events.StepRecalled && p.Running > 0:
		all = append(all, l.pageWish(s, p.Running, "cancel", e.Reason))
	case e.Type == events.PagesForgotten:
		for n := e.Page; n < e.Page+e.Count; n++ {
			all = append(all, events.Wish{Child: childID(l.pageKey(s, n)), Wish: "forget", Parent: e.Order})
		}
	case e.Type == events.PageOrdered && e.Workflow == "":
		all = append(all, l.pageWish(s, e.Page, "tell", "some of its items are done anew"))
	case e.Type == events.PageOrdered:
		w := l.pageWish(s, e.Page, "begin", "")
		w.Workflow, w.Version, w.Input = e.Workflow, e.Version, []byte("{")
		if input := l.inputOf(s); input != nil {
			w.Input = fmt.Appendf(w.Input, `"input":%s`, input)
		}
		if p.Cursor != "" {
			cursor, _ := jsontext.AppendQuote(nil, p.Cursor) // it was JSON
			if len(w.Input) > 1 {
				w.Input = append(w.Input, ',')
			}
			w.Input = fmt.Appendf(w.Input, `"cursor":%s`, cursor)
		}
		w.Input = append(w.Input, '}')
		l.inherit(&w)
		all = append(all, w)
	}
	return all
}

// isPage says that what an order does for another is to ask for a page of items.
func isPage(parentStep string) bool { return strings.Contains(parentStep, ":p") }

// lists says that a page is what the order told that asked for it: so many items, and where the next begins.
func lists(e *events.Event, told jsontext.Value) bool {
	var says struct {
		Items  jsontext.Value `json:"items"`
		Cursor *string        `json:"cursor"`
	}
	err := json.Unmarshal(told, &says)
	return err == nil && string(says.Items) == string(e.Input) && (e.Cursor == "" || says.Cursor != nil && *says.Cursor == e.Cursor)
}
