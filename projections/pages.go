package projections

import (
	"slices"
	"sort"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/events"
)

// An agent may list the items of a step, page by page. Of a page at a time the record has what its items are: until
// they are ordered. Whoever needs them later, to do what failed anew, is told by the order that asked for the page.

// Pages is how far the items of a step are known that an agent lists. It is not changed in place.
type Pages struct {
	// Asked is the number of the last page that was asked for, and Running the one that is under way, which may be
	// an earlier one; 0 if there is none.
	Asked, Running int
	Cursor         string // where the next page begins, empty before the first
	Last           bool   // none follows those that are known
	// Error is why a page is not there; nil once another was asked for after a resubmission.
	Error *events.Error
	// Empty is how many of the last pages had no item.
	Empty int
	// Forgotten are as many of the first as were forgotten with the order.
	Forgotten int

	hand  int            // the page whose items are at hand, 0 if none is
	list  jsontext.Value // these items
	older string         // a cursor of before: see [Pages.Repeats]
}

// Repeats says that a cursor is one of before, so that the same pages would come again and again. It knows the last
// one, and one of before that is moved on after pages 1, 2, 4, 8 and so on: so it finds every circle.
func (p *Pages) Repeats(cursor string) bool {
	return cursor != "" && (cursor == p.Cursor || cursor == p.older)
}

// More says that further pages are to be asked for.
func (e *Each) More() bool { return e.Pages != nil && e.Pages.Error == nil && !e.Pages.Last }

// Busy says that items are under way, or a page is.
func (e *Each) Busy() bool { return len(e.Running) > 0 || e.Pages != nil && e.Pages.Running > 0 }

// Open says that further items can be ordered, now or once a page is there.
func (e *Each) Open() bool {
	return e.Ready(1) > 0 || e.Pages != nil && e.Pages.Error == nil && (e.Left() > 0 || !e.Pages.Last)
}

// Ready is how many items can be ordered next, at most limit: of pages those at hand.
func (e *Each) Ready(limit int) (n int) {
	if e.Pages == nil {
		return min(limit, e.Left())
	}
	for i := e.passed + 1; n < limit && i <= e.Count && e.item(i).page == uint32(e.Pages.hand); i++ {
		if e.State(i) == ItemToDo {
			n++
		}
	}
	return n
}

// NextPage is the page to ask for next, and whether it was had before; 0 if there is none.
func (e *Each) NextPage() (page int, again bool) {
	p := e.Pages
	if p == nil || p.Running > 0 || p.Error != nil || e.Ready(1) > 0 {
		return 0, false
	}
	if n := e.Next(); n > 0 {
		return int(e.item(n).page), true
	}
	if p.Last {
		return 0, false
	}
	return p.Asked + 1, false
}

// PageItems is how many items of a page are known.
func (e *Each) PageItems(page int) int { return e.firstOf(page+1) - e.firstOf(page) }

// firstOf is the first item of a page, or of the next that has one.
func (e *Each) firstOf(page int) int {
	return 1 + sort.Search(e.Count, func(i int) bool { return e.item(i+1).page >= uint32(page) })
}

// page changes how far the pages are known.
func (x *edit) page() *Pages {
	p := *x.Pages
	x.Pages = &p
	return &p
}

func orderPage(_ *Order, s *Step, e *events.Event) {
	if s.Each == nil || s.Each.Pages == nil {
		return
	}
	p := s.edit().page()
	if p.Running = e.Page; e.Workflow != "" {
		p.Asked = max(p.Asked, e.Page)
	}
}

func completePage(_ *Order, s *Step, e *events.Event) {
	if s.Each == nil || s.Each.Pages == nil || s.Each.Pages.Running != e.Page {
		return
	}
	x := s.edit()
	p := x.page()
	p.Running, p.hand, p.list = 0, e.Page, e.Input
	first := x.firstOf(e.Page)
	if x.PageItems(e.Page) == 0 { // it is new
		first = x.Count + 1
		x.grow(min(max(0, e.Count), events.MaxItems-x.Count), e.Page)
		if p.Empty++; e.Count > 0 {
			p.Empty = 0
		}
		if p.Cursor, p.Last = e.Cursor, e.Cursor == ""; e.Page&(e.Page-1) == 0 {
			p.older = e.Cursor
		}
	}
	x.passed, x.passedBefore, x.at, x.atBefore = first-1, first-1, 0, 0
}

// grow adds the items of a page.
func (x *edit) grow(items, page int) {
	was := x.listed()
	x.Count += items
	for more := (x.Count+pageItems-1)/pageItems - len(x.pages); more > 0; more-- {
		x.pages, x.was = append(x.pages, nil), append(slices.Clip(x.was), nil)
	}
	for n := x.Count - items + 1; n <= x.Count; n++ {
		x.set(n, item{page: uint32(page)})
	}
	if was && !x.listed() {
		x.drop()
	}
}

func failPage(_ *Order, s *Step, e *events.Event) {
	if s.Each != nil && s.Each.Pages != nil {
		p := s.edit().page()
		p.Running, p.Error = 0, e.Error
	}
}

func forgetPages(_ *Order, s *Step, e *events.Event) {
	if s.Each != nil && s.Each.Pages != nil {
		p := s.edit().page()
		p.Forgotten = min(p.Asked, e.Page+e.Count-1)
	}
}

// PageOrder is the id of the order that asks for a page of a step's items, or did.
func (o *Order) PageOrder(s *Step, page int) string {
	return events.ChildID(events.IdempotencyKey(o.ID, events.PageStep(s.Known(), page), 0))
}

// size is what the record takes in memory, roughly.
func (p *Pages) size() int {
	if p == nil {
		return 0
	}
	return 256 + len(p.Cursor) + len(p.older) + len(p.list)
}

// paging writes how far the items of a step are known, without those at hand, which are a payload.
func (w *writer) paging(p *Pages) {
	if w.truth(p != nil); p == nil {
		return
	}
	for _, n := range []int{p.Asked, p.Running, p.Empty, p.Forgotten, p.hand} {
		w.uint(uint64(n))
	}
	w.text(p.Cursor)
	w.text(p.older)
	w.truth(p.Last)
	writeJSON(w, p.Error)
}

// paging reads what the writer's paging wrote.
func (r *reader) paging() *Pages {
	if !r.truth() {
		return nil
	}
	p := new(Pages)
	for _, n := range []*int{&p.Asked, &p.Running, &p.Empty, &p.Forgotten, &p.hand} {
		*n = int(r.uint())
	}
	p.Cursor, p.older, p.Last, p.Error = r.text(), r.text(), r.truth(), readJSON[events.Error](r)
	return p
}
