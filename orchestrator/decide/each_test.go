package decide

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/inspect"
)

// errand is an order that has a step with items, and the partition that it is of.
type errand struct {
	env         *Env
	store       *projections.Store
	state       *projections.Partition
	order       *projections.Order
	record      *Record
	begun       []string // items, in the order in which they were ordered
	output      string   // of an item
	forgotten   int      // orders
	most        int      // messages of one decision
	transaction uint64
	end         int64
}

// newErrand begins with so many items, of which ten are under way at a time, unless more of the workflow is said.
func newErrand(t testing.TB, items int, says ...string) *errand {
	t.Helper()
	list := "[" + strings.TrimSuffix(strings.Repeat("12345,", items), ",") + "]"
	return newErrandOf(t, `
workflow: payout
keep: 1h
steps:
  - {name: pay, each: {items: input, order: payment, tolerate: '10%', onFailure: finish`+strings.Join(append([]string{"}"}, says...), "")+`}
`, []byte(list))
}

// newErrandOf begins an order of a workflow.
func newErrandOf(t testing.TB, source string, input []byte) *errand {
	t.Helper()
	topics, err := events.NewTopics(events.DefaultNamespace)
	must(t, err)
	flow := parseFlow(t, source)
	r := &errand{record: &Record{Topic: topics.Internal}, output: `{"paid":true}`}
	r.record.Written = inspect.Curtain
	r.env = &Env{
		Now: inspect.Curtain, Instance: "i-1", Topics: &topics, Format: events.JournalFormat,
		Workflow: func(string, int) *workflow.Workflow { return flow },
		Refuses:  func(string, int) string { return "" },
		Away:     func(string, string, int) string { return "" },
	}
	r.store, err = projections.Temporary()
	must(t, err)
	t.Cleanup(func() { must(t, r.store.Close()) })
	r.state, err = r.store.Partition(0)
	must(t, err)
	r.state.Raise(events.JournalFormat)
	r.take(t, On(r.env, nil, &Input{Record: r.record, Order: "o-1", Submission: events.Submission{Workflow: "payout", Input: input}}))
	return r
}

// take commits a decision, and flushes it, as a lane does that has nothing else to do.
func (r *errand) take(t testing.TB, d Decision) {
	t.Helper()
	if d.Order == nil {
		t.Fatal("nothing was decided")
	}
	r.order = d.Order
	u := projections.Update{Order: d.Order}
	r.most = max(r.most, len(d.Messages))
	for i := range d.Messages {
		switch m := &d.Messages[i]; m.Topic {
		case r.env.Topics.Journal:
			u.Offsets = append(u.Offsets, r.end)
			r.end++
		case r.env.Topics.Internal:
			w, err := events.Decode[events.Wish](m.Value)
			must(t, err)
			if w.Wish == events.WishForget {
				r.forgotten++
				continue
			}
			if _, _, asks := events.PageOf(w.Step); asks {
				continue
			}
			if w.Wish == events.WishBegin && string(w.Input) != "12345" {
				t.Fatalf("%s gets %s", w.Child, w.Input)
			}
			r.begun = append(r.begun, w.Step)
		}
	}
	r.transaction++
	must(t, r.state.Commit(events.Seal{Transaction: r.transaction}, r.end, []projections.Update{u}))
	must(t, r.state.Flush())
	r.env.Reuse(d.Messages)
}

// next has the item that was ordered first end. Of a hundred items so many fail.
func (r *errand) next(t testing.TB, state projections.State, failing int) {
	t.Helper()
	step := r.begun[0]
	r.begun = r.begun[1:]
	_, n, _ := events.ItemOf(step)
	report := &events.Report{Parent: "o-1", Step: step, Child: r.order.ItemOrder(r.order.Step("pay"), n), State: string(state), Output: []byte(r.output)}
	if state == projections.Processed && n%100 < failing {
		report.State, report.Output, report.Error = string(projections.Raised), nil, &events.Error{Code: "no-account", Message: "there is no such account"}
	}
	order, err := r.state.Order("o-1")
	must(t, err)
	r.record.Offset++
	r.take(t, On(r.env, order, &Input{Record: r.record, Order: "o-1", Report: report}))
}

// An order has 1,500 items, of which some fail and are resubmitted; it is undone, and forgotten. Whoever reads its
// record finds what those have who decided on it, whenever that is, and how each item ended.
func TestItemsFromBeginningToEnd(t *testing.T) {
	const items = 1_500
	r := newErrand(t, items)
	look := func() {
		t.Helper()
		stored, offsets, err := r.store.Order(0, "o-1")
		must(t, err)
		folded, err := r.state.Order("o-1")
		must(t, err)
		if !reflect.DeepEqual(stored.Steps, folded.Steps) {
			t.Fatalf("the store has\n %+v\n and was folded\n %+v", stored.Steps[0].Each, folded.Steps[0].Each)
		}
		if len(offsets) != int(stored.Seq) || offsets[len(offsets)-1] != r.end-1 {
			t.Fatalf("%d events at %d offsets up to %d", stored.Seq, len(offsets), r.end)
		}
	}
	for n := 0; len(r.begun) > 0; n++ {
		if r.next(t, projections.Processed, 20); n%97 == 0 {
			look()
		}
	}
	if each := r.order.Steps[0].Each; r.order.State != projections.Error || each.Done != items-items/5 || each.Failed != items/5 || len(each.Failures) != projections.MaxFailures {
		t.Fatalf("it is %s with %+v", r.order.State, each)
	}
	look()
	all := 0
	for behind := 0; ; {
		page, next, err := r.store.Items(0, "o-1", "pay", behind, 70, projections.ItemFilter{Failed: true})
		must(t, err)
		if len(page) == 0 {
			break
		}
		for _, i := range page {
			if i.State != projections.ItemDidFail || i.Error == nil || i.Error.Code != "no-account" || i.Number%100 >= 20 || i.Order != fmt.Sprintf("@o-1/pay:i%d", i.Number) {
				t.Fatalf("an item is %+v", i)
			}
		}
		all += len(page)
		if behind = next; next == 0 {
			break
		}
	}
	if all != items/5 {
		t.Errorf("%d items failed", all)
	}
	for _, behind := range []int{items, items + 1, math.MaxInt} {
		if page, _, err := r.store.Items(0, "o-1", "pay", behind, 70, projections.ItemFilter{}); len(page) != 0 || err != nil {
			t.Errorf("behind item %d are %+v, %v", behind, page, err)
		}
	}

	r.take(t, On(r.env, r.order, &Input{Record: r.record, Order: "o-1", Command: &events.Command{Command: events.CommandResubmit, ID: "c-1"}}))
	earlier := &events.Report{Parent: "o-1", Step: r.begun[0], Child: events.ChildID("o-1/" + r.begun[0]), State: string(projections.Processed)}
	if d := On(r.env, r.order, &Input{Record: r.record, Order: "o-1", Report: earlier}); d.Order != nil {
		t.Errorf("what the order of the round before tells once more ends %s", earlier.Step)
	}
	for len(r.begun) > 0 {
		r.next(t, projections.Processed, 10)
	}
	look()
	if each := r.order.Steps[0].Each; r.order.State != projections.Processed || each.Failed != items/10 || each.Done != items-items/10 {
		t.Fatalf("it is %s with %+v", r.order.State, each)
	}
	found, _, err := r.store.Items(0, "o-1", "pay", 9, 2, projections.ItemFilter{})
	must(t, err)
	if got := fmt.Sprint(found[0].State, found[0].Order, string(found[0].Output), found[1].Number); got != `completed@o-1/pay:i10:2{"paid":true}11` {
		t.Errorf("item 10 is %s", got)
	}

	r.env.Now = r.env.Now.Add(2 * 60 * 60e9)
	for n := 0; !r.order.Forgotten; n++ {
		r.take(t, Supervise(r.env, r.order, ""))
		if due, err := r.state.Due(r.env.Now, 10); err != nil || len(due) != 1 && !r.order.Forgotten {
			t.Fatalf("%d deadlines are due, and it is forgotten: %t, %v", len(due), r.order.Forgotten, err)
		}
		r.state.Rescan()
	}
	left := 0
	must(t, r.store.Dump(0, func(projections.Head) error { return nil }, func([]byte, []byte) error { left++; return nil }))
	if left != 2 {
		t.Errorf("%d keys are left", left)
	}
	if r.most > forgottenAtOnce+10 {
		t.Errorf("one decision has %d messages", r.most)
	}
}

// What was done last is undone first, so many at a time.
func TestItemsAreUndone(t *testing.T) {
	const items = 40
	r := newErrand(t, items)
	for range 25 {
		r.next(t, projections.Processed, 0)
	}
	done := r.begun
	r.take(t, On(r.env, r.order, &Input{Record: r.record, Order: "o-1", Command: &events.Command{Command: events.CommandCancel, ID: "c-1"}}))
	r.begun = done // they are asked to end, and have
	for range done {
		r.next(t, projections.Processed, 0)
	}
	if len(r.begun) != 10 || r.begun[0] != "pay:i35" || r.begun[9] != "pay:i26" {
		t.Fatalf("undone are %v", r.begun)
	}
	r.next(t, projections.Terminated, 0) // which an operator gave up
	for len(r.begun) > 0 {
		r.next(t, projections.Compensated, 0)
	}
	if each := r.order.Steps[0].Each; r.order.State != projections.Error || each.Undone != 34 || each.NotUndone != 1 || each.Done != 0 {
		t.Fatalf("it is %s with %+v", r.order.State, each)
	}
	failed, _, err := r.store.Items(0, "o-1", "pay", 30, 10, projections.ItemFilter{Failed: true})
	must(t, err)
	if len(failed) != 1 || failed[0].State != projections.ItemUndoFailed || failed[0].Error == nil || failed[0].Error.Message != "order @o-1/pay:i35: the order gave no reason" {
		t.Fatalf("not undone are %+v", failed)
	}
	r.take(t, On(r.env, r.order, &Input{Record: r.record, Order: "o-1", Command: &events.Command{Command: events.CommandResubmit, ID: "c-2"}}))
	r.next(t, projections.Compensated, 0)
	undone, _, err := r.store.Items(0, "o-1", "pay", 34, 1, projections.ItemFilter{})
	must(t, err)
	if r.order.State != projections.Cancelled || undone[0].State != projections.ItemUndone || undone[0].Error != nil || undone[0].Output == nil {
		t.Fatalf("it is %s with %+v", r.order.State, undone)
	}
}

// Which orders that did items left something is known of each item, also once another order did it; whoever asks for those
// alone finds them, page by page.
func TestWhichItemsLeftSomething(t *testing.T) {
	const items = 300
	r := newErrandOf(t, `
workflow: payout
steps:
  - {name: pay, each: {items: input, order: payment, atOnce: 300, onFailure: finish}}
`, []byte("["+strings.TrimSuffix(strings.Repeat("12345,", items), ",")+"]"))
	end := func(state projections.State, left ...int) {
		t.Helper()
		for len(r.begun) > 0 {
			step := r.begun[0]
			r.begun = r.begun[1:]
			_, n, _ := events.ItemOf(step)
			report := &events.Report{Parent: "o-1", Step: step, Child: r.order.ItemOrder(r.order.Step("pay"), n), State: string(projections.Processed)}
			if r.order.Toward != "" {
				report.State = string(projections.Compensated)
			}
			if slices.Contains(left, n) {
				report.State, report.Left, report.Error = string(state), true, &events.Error{Code: "gone"}
			} else if r.order.Toward == "" && n == 7 && r.order.ItemOrder(r.order.Step("pay"), n) == "@o-1/pay:i7" {
				report.State, report.Error = string(projections.Raised), &events.Error{Code: "gone"}
			}
			r.record.Offset++
			r.take(t, On(r.env, r.order, &Input{Record: r.record, Order: "o-1", Report: report}))
		}
	}
	command := func(c events.Command) {
		t.Helper()
		r.record.Offset++
		r.take(t, On(r.env, r.order, &Input{Record: r.record, Order: "o-1", Command: &c}))
	}
	end(projections.Raised, 2, 3, 4)
	command(events.Command{Command: events.CommandResubmit, ID: "c-1"})
	end(projections.Raised, 2)
	command(events.Command{Command: events.CommandCancel, ID: "c-2"})
	end(projections.Terminated, 3, 299)
	command(events.Command{Command: events.CommandResubmit, ID: "c-3"})
	end(projections.Compensated, 299)
	stored, _, err := r.store.Order(0, "o-1")
	must(t, err)
	folded, err := r.state.Order("o-1")
	must(t, err)
	if each := stored.Step("pay").Each; stored.State != projections.Cancelled || each.Leaving() != 4 || !reflect.DeepEqual(stored.Steps, folded.Steps) {
		t.Fatalf("it is %s, and %d items left something: %+v", stored.State, each.Leaving(), each)
	}
	for _, c := range []struct {
		behind, limit int
		wanted        projections.ItemFilter
		want          string
		next          int
	}{
		{0, 2, projections.ItemFilter{Left: true}, "2 failed [@o-1/pay:i2 @o-1/pay:i2:2]; 3 undone [@o-1/pay:i3 @o-1/pay:i3:2]; ", 3},
		{3, 9, projections.ItemFilter{Left: true}, "4 undone [@o-1/pay:i4]; 299 undone [@o-1/pay:i299]; ", 0},
		{0, 9, projections.ItemFilter{Left: true, Failed: true}, "2 failed [@o-1/pay:i2 @o-1/pay:i2:2]; ", 0},
		{6, 1, projections.ItemFilter{}, "7 undone []; ", 7},
		{298, 9, projections.ItemFilter{}, "299 undone [@o-1/pay:i299]; 300 undone []; ", 0},
	} {
		page, next, err := r.store.Items(0, "o-1", "pay", c.behind, c.limit, c.wanted)
		must(t, err)
		got := ""
		for _, i := range page {
			got += fmt.Sprintf("%d %s %v; ", i.Number, i.State, i.LeftBy)
		}
		if got != c.want || next != c.next {
			t.Errorf("behind %d, %+v: %s, and then %d", c.behind, c.wanted, got, next)
		}
	}
}

// What an item has as its output is read as it was taken: with names that come twice.
func TestAnItemsOutputIsReadAsItWasTaken(t *testing.T) {
	const twice = `{"a":1,"a":{"b":2,"b":3}}`
	r := newErrand(t, 2)
	r.output = twice
	r.next(t, projections.Processed, 0)
	order, _, err := r.store.Order(0, "o-1")
	must(t, err)
	if all := order.Steps[0].Each.Outputs(); len(all) != 2 || string(all[0]) != twice {
		t.Errorf("the record has %s", all)
	}
	items, _, err := r.store.Items(0, "o-1", "pay", 0, 10, projections.ItemFilter{})
	must(t, err)
	if len(items) != 2 || string(items[0].Output) != twice {
		t.Errorf("the items are %+v", items)
	}
}

// A page of items ends where what came of them is large, and says where the next one begins.
func TestAPageOfLargeItems(t *testing.T) {
	r := newErrand(t, 10)
	r.output = `"` + strings.Repeat("x", 1<<20) + `"`
	for range 6 {
		r.next(t, projections.Processed, 0)
	}
	var pages []string
	for behind := 0; ; {
		page, next, err := r.store.Items(0, "o-1", "pay", behind, 1000, projections.ItemFilter{})
		must(t, err)
		pages = append(pages, fmt.Sprint(len(page), next))
		if behind = next; next == 0 {
			break
		}
	}
	if got := strings.Join(pages, ", "); got != "4 4, 6 0" {
		t.Errorf("the pages are %s", got)
	}
}

// BenchmarkItem decides on one item that ended, and on the next that begins, commits and flushes: once for each
// of so many.
func BenchmarkItem(b *testing.B) {
	for _, items := range []int{10, 1_000, 100_000} {
		b.Run(fmt.Sprint(items), func(b *testing.B) {
			b.ReportAllocs()
			b.StopTimer()
			for n := 0; n < b.N; {
				r := newErrand(b, items)
				b.StartTimer()
				for len(r.begun) > 0 && n < b.N {
					r.next(b, projections.Processed, 3)
					n++
				}
				b.StopTimer()
				must(b, r.store.Close())
				r.store, _ = projections.Temporary()
			}
		})
	}
}

// As many items are under way as may be, also where that is more than one decision orders, whatever they wait for.
func TestMoreItemsThanADecisionOrders(t *testing.T) {
	r := newErrand(t, 1_000, ", timeout: 1h")
	paced := func(n int) {
		t.Helper()
		r.take(t, On(r.env, r.order, &Input{Record: r.record, Order: "o-1", Command: &events.Command{Command: events.CommandChange, ID: fmt.Sprint(n), Step: "pay", AtOnce: n}}))
	}
	due := func() (all []projections.Due) {
		t.Helper()
		all, err := r.state.Due(r.env.Now, 10)
		must(t, err)
		return all
	}
	fill := func(want int) {
		t.Helper()
		for range 20 {
			for _, at := range due() {
				r.take(t, Supervise(r.env, r.order, at.Step))
			}
		}
		if got := len(r.order.Steps[0].Each.Running); got != want || len(due()) != 0 {
			t.Fatalf("%d items are under way, and may be %d", got, want)
		}
	}
	if len(r.begun) != 10 || len(due()) != 0 {
		t.Fatalf("under way are %v", r.begun)
	}
	paced(350)
	if len(r.begun) != 110 {
		t.Errorf("%d items are under way after one decision", len(r.begun))
	}
	paced(20) // and none is due any more
	fill(110)
	paced(350)
	r.take(t, On(r.env, r.order, &Input{Record: r.record, Order: "o-1", Command: &events.Command{Command: events.CommandPause, ID: "p"}}))
	fill(210)
	r.take(t, On(r.env, r.order, &Input{Record: r.record, Order: "o-1", Command: &events.Command{Command: events.CommandResume, ID: "r"}}))
	fill(350)
	for range 350 {
		r.next(t, projections.Processed, 0)
	}
	fill(350)
	r.env.Now = r.env.Now.Add(60 * 60e9)
	fill(350)
	if !r.order.Steps[0].Each.Recalled {
		t.Fatal("it has taken an hour, and nothing is recalled")
	}
	r.begun = r.begun[:350]
	for range 350 {
		r.next(t, projections.Cancelled, 0)
	}
	if r.order.State != projections.Error {
		t.Fatalf("it is %s", r.order.State)
	}
	r.begun = nil
	r.take(t, On(r.env, r.order, &Input{Record: r.record, Order: "o-1", Command: &events.Command{Command: events.CommandCancel, ID: "c"}}))
	if len(r.begun) != 100 {
		t.Errorf("%d items are undone in one decision", len(r.begun))
	}
	fill(350)
}
