package projections

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/events"
)

// labelled is an order that was accepted with labels.
func labelled(id, workflow string, at time.Time, labels map[string]string) events.Event {
	return events.Event{Type: events.OrderAccepted, Order: id, At: at, Workflow: workflow, Version: 1, Steps: []string{"s0"}, Labels: labels}
}

// foldedInParts returns a store with all of j folded, which is flushed now and then. The caller closes it.
func foldedInParts(t *rapid.T, j *journal) (*Store, *Partition) {
	s, err := Temporary()
	if err != nil {
		t.Fatal(err)
	}
	p := mustPartition(t, s)
	for _, r := range j.records {
		if err := p.Fold(r.offset, r.value, r.header); err != nil {
			t.Fatal(err)
		}
		if rapid.Bool().Draw(t, "flush") {
			if err := p.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := p.Flush(); err != nil {
		t.Fatal(err)
	}
	return s, p
}

// Orders are found by all of their labels, however many there are on a page: each once, by
// workflow, the newest first.
func TestOrdersAreFoundByTheirLabels(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name, value := rapid.SampledFrom([]string{"a", "b", "a.b"}), rapid.SampledFrom([]string{"", "1", "11", "1="})
		flow := rapid.SampledFrom([]string{"flow", "flow-a", "hidden"})
		j := newJournal()
		var all []*Order
		for i := range rapid.IntRange(0, 30).Draw(t, "orders") {
			// Of ids one begins with another and a NUL, and some are of one time.
			id := strings.Repeat("o\x00", i/10) + fmt.Sprint(i%10)
			labels := rapid.MapOfN(name, value, 0, 3).Draw(t, "labels")
			e := labelled(id, flow.Draw(t, "flow"), start.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "at"))*time.Second), labels)
			j.add(e)
			o := &Order{ID: id, Workflow: e.Workflow, AcceptedAt: e.At, State: Pending, Labels: labels}
			if rapid.Bool().Draw(t, "done") {
				j.add(finished(id))
				o.State = Processed
			}
			if rapid.Bool().Draw(t, "labelled") { // also after its end
				o.Labels = rapid.MapOfN(name, value, 0, 3).Draw(t, "labels of then")
				j.add(events.Event{Type: events.OrderLabelled, Order: id, Labels: o.Labels})
			}
			all = append(all, o)
		}
		s, _ := foldedInParts(t, j)
		defer s.Close()

		f := Filter{Labels: rapid.MapOfN(name, value, 1, 3).Draw(t, "where"), Limit: rapid.IntRange(1, 5).Draw(t, "limit")}
		f.Workflow = rapid.SampledFrom([]string{"", "flow", "hidden", "none"}).Draw(t, "workflow")
		f.State = rapid.SampledFrom([]State{"", Pending, Processed, Error}).Draw(t, "state")
		visible := rapid.SampledFrom([]string{"", "hidden"}).Draw(t, "not visible")
		if visible != "" {
			f.Visible = func(workflow string) bool { return workflow != visible }
		}
		all = slices.DeleteFunc(all, func(o *Order) bool {
			return !o.has(f.Labels) || f.Workflow != "" && o.Workflow != f.Workflow || f.State != "" && o.State != f.State || o.Workflow == visible
		})
		slices.SortFunc(all, func(a, b *Order) int {
			return cmp.Or(cmp.Compare(a.Workflow, b.Workflow), b.AcceptedAt.Compare(a.AcceptedAt), cmp.Compare(a.ID, b.ID))
		})
		var want, have []string
		for _, o := range all {
			want = append(want, o.ID)
		}
		for n := 0; ; n++ {
			page, err := s.List(t.Context(), 1, f)
			if err != nil || len(page.Orders) > f.Limit || n > 100 {
				t.Fatalf("%d orders on page %d: %v", len(page.Orders), n, err)
			}
			for _, o := range page.Orders {
				have = append(have, o.ID)
			}
			if f.After = page.Next; page.Next == nil {
				break
			}
			if f.Visible != nil && bytes.Contains(page.Next, []byte("hidden")) {
				t.Fatalf("a page ends at %q", page.Next)
			}
		}
		if !slices.Equal(have, want) {
			t.Fatalf("%+v finds %q, want %q", f, have, want)
		}
	})
}

func mustPartition(t *rapid.T, s *Store) *Partition {
	p, err := s.Partition(0)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// costs is what a page of a partition takes.
func costs(t *testing.T, s *Store, f Filter) (read *summaries, page Page) {
	t.Helper()
	if f.Limit == 0 {
		f.Limit = 100
	}
	read = s.summaries()
	it, err := read.view.NewIter(nil)
	must(t, err)
	_, err = read.find(t.Context(), 0, it, &f, &page)
	must(t, err)
	must(t, it.Close())
	must(t, read.view.Close())
	return read, page
}

// A page costs no more where there are a hundred thousand orders of one value: neither by
// that alone, nor with another that few have, or none. What is not visible costs nothing.
func TestOfManyOrdersAFewAreFound(t *testing.T) {
	const many = 100_000
	j := newJournal()
	batch := make([]events.Event, many)
	for i := range batch {
		labels := map[string]string{"region": "eu", "customer": fmt.Sprint("c-", i%1000), "other": "us"}
		batch[i] = labelled(fmt.Sprintf("o-%05d", i), "flow", start.Add(time.Duration(i)*time.Millisecond), labels)
		if i == many/2 {
			batch[i].Workflow = "rare"
		}
	}
	j.add(batch...)
	s, _ := folded(t, j)

	for what, c := range map[string]struct {
		where      map[string]string
		found, key int // on the first page, and how many keys are looked at
	}{
		"one value of all":         {map[string]string{"region": "eu"}, 100, 101},
		"two values of all":        {map[string]string{"region": "eu", "other": "us"}, 100, 202},
		"a value of a hundred":     {map[string]string{"customer": "c-7"}, 100, 100},
		"that and one of all":      {map[string]string{"customer": "c-7", "region": "eu"}, 100, 300},
		"a value of none":          {map[string]string{"customer": "c-1000"}, 0, 0},
		"that and one of all too":  {map[string]string{"region": "eu", "zone": "x"}, 0, 1},
		"a value that begins one":  {map[string]string{"region": "e"}, 0, 0},
		"a name of none":           {map[string]string{"customers": "c-7"}, 0, 0},
		"two of which none is one": {map[string]string{"customer": "us", "other": "us"}, 0, 0},
	} {
		if read, page := costs(t, s, Filter{Labels: c.where}); len(page.Orders) != c.found || read.keys > c.key {
			t.Errorf("%s: %d orders, by %d keys, want %d by at most %d", what, len(page.Orders), read.keys, c.found, c.key)
		}
	}
	if read, page := costs(t, s, Filter{Labels: map[string]string{"region": "eu"}, Workflow: "rare"}); len(page.Orders) != 1 || read.keys > 1 {
		t.Errorf("of a workflow: %d orders, by %d keys", len(page.Orders), read.keys)
	}
	hides := func(workflow string) bool { return workflow == "rare" }
	if read, page := costs(t, s, Filter{Labels: map[string]string{"region": "eu"}, Visible: hides}); len(page.Orders) != 1 || read.keys > 1 {
		t.Errorf("of what is visible: %d orders, by %d keys", len(page.Orders), read.keys)
	}
	// Where nothing fits, pages end all the same, and come to an end.
	empty := 0
	for f := (Filter{Labels: map[string]string{"region": "eu"}, State: Error}); ; empty++ {
		read, page := costs(t, s, f)
		if read.keys > pageKeys || len(page.Orders) > 0 {
			t.Fatalf("page %d has %d orders, by %d keys", empty, len(page.Orders), read.keys)
		}
		if f.After = page.Next; page.Next == nil {
			break
		}
	}
	if empty < many/pageKeys-1 || empty > many/pageKeys*10 {
		t.Errorf("%d pages were empty", empty)
	}
	// So it is where two lists have nothing in common, each order of one between two of the other.
	if read, page := costs(t, s, Filter{Labels: map[string]string{"region": "eu", "customer": "c-7"}, State: Error}); len(page.Orders) != 0 || page.Next != nil || read.keys > 300 {
		t.Errorf("%d orders, by %d keys, and then %q", len(page.Orders), read.keys, page.Next)
	}
}

// A cursor of another filter leads nowhere else: what is found has the labels that were asked for.
func TestCursorsOfOtherFilters(t *testing.T) {
	j := newJournal()
	for i := range 9 {
		j.add(labelled(fmt.Sprint("o-", i), "flow", start, map[string]string{"a": fmt.Sprint(i % 3), "b": "x"}))
	}
	s, _ := folded(t, j)
	taken := 0
	for _, after := range [][]byte{{0}, {0xff}, prefix(0, kindLabel), labelPrefix(0, "a", "2"), labelPrefix(0, "b", "x"), append(labelPrefix(0, "a", "1"), 0xff), listingPrefix(0, Pending, "flow")} {
		page, err := s.List(t.Context(), 1, Filter{Labels: map[string]string{"a": "1"}, After: after})
		if errors.Is(err, ErrPlace) { // no page of any filter like it gave that
			continue
		}
		must(t, err)
		taken++
		for _, o := range page.Orders {
			if o.Labels["a"] != "1" {
				t.Errorf("after %q comes %s of %v", after, o.ID, o.Labels)
			}
		}
	}
	if taken < 3 {
		t.Errorf("%d places were taken", taken)
	}
}

// Labels make the same store whenever what was folded is written, and an index that does not
// fit its orders is damage.
func TestTheIndexOfLabelsIsThatOfTheOrders(t *testing.T) {
	j := newJournal()
	j.add(labelled("o-1", "flow", start, map[string]string{"a": "1", "b": strings.Repeat("x", events.MaxLabelValue)}))
	j.add(labelled("o-2", "flow", start, nil))
	j.add(finished("o-1"))
	s, _ := folded(t, j)
	want := whole(t, s.db)
	other, p := temporary(t)
	for _, r := range j.records {
		must(t, p.Fold(r.offset, r.value, r.header))
		must(t, p.Flush())
	}
	if have := whole(t, other.db); !maps.Equal(have, want) {
		t.Errorf("the store has %d keys, and not the %d of one that was written once", len(have), len(want))
	}
	if o, _, err := s.Order(0, "o-1"); err != nil || o.Labels["a"] != "1" || len(o.Labels) != 2 {
		t.Errorf("%+v, %v", o, err)
	}
	for what, change := range map[string]func() error{
		"an order that is not there": func() error { return s.db.Delete(orderKey(0, "o-1"), pebble.NoSync) },
		"an order of other labels": func() error {
			return s.db.Set(orderKey(0, "o-1"), []byte(want[string(orderKey(0, "o-2"))]), pebble.NoSync)
		},
		"a key that is none": func() error { return s.db.Set(append(labelPrefix(0, "a", "1"), 'f', 0), nil, pebble.NoSync) },
	} {
		must(t, change())
		if _, err := s.List(t.Context(), 1, Filter{Labels: map[string]string{"a": "1"}}); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", what, err)
		}
		must(t, s.db.Set(orderKey(0, "o-1"), []byte(want[string(orderKey(0, "o-1"))]), pebble.NoSync))
		must(t, s.db.Delete(append(labelPrefix(0, "a", "1"), 'f', 0), pebble.NoSync))
	}
}
