package decide

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
)

// listed is an order whose items an agent lists, ten of which are under way at a time.
func listed(t testing.TB, each string) *errand {
	t.Helper()
	return newErrandOf(t, `
workflow: payout
keep: 1h
steps:
  - {name: pay, each: {items: {agent: crm, do: list}, order: payment, `+each+`}}
`, []byte("12345"))
}

// tell has the order that asked for the page say what that has.
func (r *errand) tell(t testing.TB, output string) {
	t.Helper()
	page := r.order.Steps[0].Each.Pages.Running
	step := events.PageStep("pay", page)
	report := &events.Report{Parent: "o-1", Step: step, Child: events.ChildID("o-1/" + step), State: string(projections.Processed), Output: jsontext.Value(output)}
	order, err := r.state.Order("o-1")
	must(t, err)
	r.record.Offset++
	r.take(t, On(r.env, order, &Input{Record: r.record, Order: "o-1", Report: report}))
}

// pageOf is a page of so many items, and where the next one begins, which none does where that is empty.
func pageOf(items int, cursor string) string {
	list := strings.TrimSuffix(strings.Repeat("12345,", items), ",")
	if cursor == "" {
		return `{"items":[` + list + `]}`
	}
	return fmt.Sprintf(`{"items":[%s],"cursor":%q}`, list, cursor)
}

// The record of an order stays as small as it is, however many items pass through it: nothing of it is about pages of
// before, also where some of their items failed, and of items at hand it has no more than a page.
func TestTheRecordHasNoMoreThanAPage(t *testing.T) {
	const items, page = 20_000, 400 // of more than a KiB, which stands beside the record
	r := listed(t, "tolerate: 10%, onFailure: finish")
	most, atHand := 0, 0
	look := func() {
		t.Helper()
		must(t, r.store.Dump(0, func(projections.Head) error { return nil }, func(key, value []byte) error {
			switch kind := key[4]; {
			case kind == 'o':
				most = max(most, len(value))
			case kind == 'v' && len(value) > 0:
				atHand++
				most = max(most, len(value))
			}
			return nil
		}))
		if atHand > 1 {
			t.Fatalf("%d payloads are large", atHand)
		}
		atHand = 0
		stored, _, err := r.store.Order(0, "o-1")
		must(t, err)
		folded, err := r.state.Order("o-1")
		must(t, err)
		if !reflect.DeepEqual(stored.Steps, folded.Steps) {
			t.Fatalf("the store has\n %+v\n and was folded\n %+v", stored.Steps[0].Each, folded.Steps[0].Each)
		}
	}
	early, all := 0, 0
	for done := 0; r.order.State == projections.Processing; {
		if asked := r.order.Steps[0].Each.Pages; asked.Running > 0 && len(r.begun) < 5 {
			cursor := ""
			if all++; all < items/page {
				cursor = strconv.Itoa(all)
			}
			r.tell(t, pageOf(page, cursor))
			continue
		}
		if len(r.begun) == 0 {
			t.Fatalf("nothing is under way: %+v", r.order.Steps[0].Each)
		}
		r.next(t, projections.Processed, 5)
		if done++; done%500 == 0 && done < items {
			look()
		}
		if done == 1_000 {
			early = most
		}
	}
	each := r.order.Steps[0].Each
	if r.order.State != projections.Processed || each.Done != items-items/20 || each.Failed != items/20 || each.Pages.Asked != items/page {
		t.Fatalf("it is %s with %+v, %+v", r.order.State, each, each.Pages)
	}
	if most > early+4<<10 { // the offsets of its events leave it by 4 KiB
		t.Errorf("the record has %d bytes, and had %d after 1,000 items", most, early)
	}
	must(t, r.store.Dump(0, func(projections.Head) error { return nil }, func(key, _ []byte) error {
		if strings.HasSuffix(string(key), ":page") {
			t.Errorf("its last page is still at hand")
		}
		return nil
	}))
	r.env.Now = r.env.Now.Add(2 * 60 * 60e9)
	for !r.order.Forgotten {
		r.take(t, Supervise(r.env, r.order, ""))
	}
	if r.forgotten != items+items/page {
		t.Errorf("%d orders are forgotten with it", r.forgotten)
	}
}

// What another order tells than the one that asks for a page, and what it tells of another page, changes nothing.
func TestAPageIsOfTheOrderThatAsksForIt(t *testing.T) {
	r := listed(t, "atOnce: 1")
	for _, report := range []events.Report{{Step: "pay:p1", Child: "@o-1/pay:p2"}, {Step: "pay:p2", Child: "@o-1/pay:p2"}, {Step: "pay:p01", Child: "@o-1/pay:p1"}, {Step: "other:p1", Child: "@o-1/other:p1"}} {
		report.Parent, report.State, report.Output = "o-1", string(projections.Processed), []byte(pageOf(1, ""))
		if d := On(r.env, r.order, &Input{Record: r.record, Order: "o-1", Report: &report}); d.Order != nil {
			t.Errorf("what %s tells of %s is taken", report.Child, report.Step)
		}
	}
}

// What an agent lists is within bounds, or the step fails, and says what to do.
func TestPagesAreWithinBounds(t *testing.T) {
	order := listed(t, "atOnce: 1").order.Clone()
	none := order.Steps[0].Each
	for left, n := events.MaxItems-1, 1; left > 0; n++ { // all but one of the items that may be
		for _, e := range []events.Event{
			{Type: events.PageOrdered, Page: n, Workflow: "payout/pay:pages", LockedBy: "i-1"},
			{Type: events.PageCompleted, Page: n, Count: min(left, events.MaxPageItems), Cursor: fmt.Sprint(n)},
		} {
			e.Order, e.Seq, e.Step = "o-1", order.Seq+1, "pay"
			must(t, order.Apply(&e))
			left -= e.Count
		}
	}
	full := order.Steps[0].Each
	for _, c := range []struct {
		output     string
		full       bool // there may be one item more
		again      bool // it is the first page, of before
		empty      int  // of the last pages
		page       int
		code, says string
	}{
		{output: pageOf(events.MaxPageItems, "c")},
		{output: pageOf(events.MaxPageItems+1, "c"), code: events.BadPage, says: "it has 10001 items; at most 10000 are allowed in a page"},
		{output: pageOf(1, strings.Repeat("c", events.MaxCursor))},
		{output: pageOf(1, strings.Repeat("c", events.MaxCursor+1)), code: events.BadPage, says: "its cursor has 1025 bytes; at most 1024 are allowed"},
		{output: pageOf(1, ""), full: true},
		{output: pageOf(2, ""), full: true, code: events.TooManyItems, says: "with its 2 items there are 100001"},
		{output: pageOf(events.MaxPageItems, "old"), full: true, again: true},
		{output: pageOf(3, ""), full: true, again: true, code: events.BadPage, says: "it has 3 items, and had 10000 before"},
		{output: pageOf(events.MaxPageItems+1, ""), full: true, again: true, code: events.BadPage, says: "it has 10001 items, and had 10000 before"},
		{output: pageOf(0, "c"), empty: events.MaxEmptyPages - 1},
		{output: pageOf(0, "c"), empty: events.MaxEmptyPages, code: events.EmptyPages, says: "101 pages in a row have no item"},
		{output: pageOf(0, ""), empty: events.MaxEmptyPages},
		{output: pageOf(1, "c"), empty: events.MaxEmptyPages},
		{output: pageOf(1, ""), page: events.MaxPages},
		{output: pageOf(1, "c"), page: events.MaxPages, code: events.TooManyPages, says: "another follows"},
		{output: `{"items":[1],"cursor":""}`},
		{output: `{"items":[1],"cursor":"old"}`, code: events.CursorRepeated, says: "its cursor, old, is that of a page before"},
		{output: `{"items":[],"items":[1,2],"cursor":"a","cursor":null}`},
		{output: `{"items":{}}`, code: events.BadPage, says: "its items are a list, this is {}"},
		{output: `{"items":[1],"cursor":{"a":1}}`, code: events.BadPage, says: `its cursor is a text, this is {"a":1}`},
		{output: `"x"`, code: events.BadPage, says: `it is "x"`},
		{output: ``, code: events.BadPage, says: `it is nothing`},
	} {
		e, before, pages := events.Event{Page: max(11, c.page)}, *none, *none.Pages
		if c.full {
			before = *full
		}
		if c.again {
			e.Page = 1
		}
		pages.Empty, pages.Cursor, before.Pages = c.empty, "old", &pages
		fault := readPage(&before, &events.Report{State: string(projections.Processed), Output: jsontext.Value(c.output)}, &e)
		if c.code == "" {
			if fault != nil {
				t.Errorf("%.60s is refused: %+v", c.output, fault)
			}
			continue
		}
		if fault == nil || fault.Code != c.code || !strings.Contains(fault.Message, c.says) {
			t.Errorf("%.60s: %+v", c.output, fault)
		}
	}
}

// Pages that go round in a circle come to an end, however many there are in it, and however many before it.
func TestPagesThatGoRoundInACircle(t *testing.T) {
	for _, way := range []struct{ before, round int }{{0, 1}, {3, 1}, {0, 2}, {5, 3}, {2, 17}, {40, 30}} {
		r := listed(t, "atOnce: 1")
		for n := 1; r.order.Steps[0].Each.Pages.Error == nil; n++ {
			if n > 4*(way.before+way.round)+2 {
				t.Fatalf("%+v: %d pages were taken", way, n)
			}
			at := n
			if at > way.before {
				at = way.before + (n-way.before-1)%way.round + 1
			}
			r.tell(t, pageOf(0, fmt.Sprint("c-", at)))
		}
		if s := r.order.Steps[0]; r.order.State != projections.Error || s.Error.Code != events.CursorRepeated {
			t.Errorf("%+v: it is %s with %+v", way, r.order.State, s.Error)
		}
	}
}

// A share of items that may fail is one of all that there may be while the last page is not known: nothing stops that
// would have been within it. After that it is one of all that there are.
func TestAShareIsOneOfAllItems(t *testing.T) {
	for _, c := range []struct {
		last  bool
		state projections.State
	}{{false, projections.Processing}, {true, projections.Error}} {
		r := listed(t, "tolerate: 10%")
		cursor := "c"
		if c.last {
			cursor = ""
		}
		r.tell(t, pageOf(10, cursor))
		for range 10 {
			r.next(t, projections.Raised, 0)
		}
		if !c.last {
			r.tell(t, pageOf(10, "d"))
		}
		if r.order.State != c.state || len(r.begun) != len(r.order.Steps[0].Each.Running) || (len(r.begun) == 10) == c.last {
			t.Errorf("with the last page: %t, it is %s", c.last, r.order.State)
		}
	}
}
