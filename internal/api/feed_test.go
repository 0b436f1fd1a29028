package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/projections"
)

// onList begins to follow a list, and expects that the stream begins with a reset unless it resumes.
func (s *stage) onList(query, last string) *stream {
	s.Helper()
	r := s.opens("/api/v1/"+query, last)
	if last != "" {
		return r
	}
	if e, more := r.next(); !more || e.kind != "reset" || e.id == "" || !strings.Contains(e.data, "read the list") {
		s.Fatalf("it begins with %+v", e)
	}
	return r
}

// until reads on to an event of a kind of an order in a state, and wants none of others.
func (r *stream) until(kind, id string, state projections.State) told {
	r.Helper()
	for {
		e, more := r.next()
		if !more {
			r.Fatalf("it ended before %s of %s", kind, id)
		}
		var o Summary
		if err := json.Unmarshal([]byte(e.data), &o); err != nil || o.OrderID != id {
			r.Fatalf("%+v is not of %s: %v", e, id, err)
		}
		if e.kind == kind && o.ProcessState == state {
			return e
		}
	}
}

// testFollowLists follows lists while orders come, change and leave them.
func (s *stage) testFollowLists() {
	all, waits := s.onList("orders?workflow=listens&state=Pending", ""), s.onList("alerts", "")
	s.listens("listed-1")
	last := all.until("order", "listed-1", projections.Pending)
	s.act("listed-1", "pause", "", http.StatusOK)
	for !strings.Contains(last.data, `"paused":true`) {
		last = all.until("order", "listed-1", projections.Pending)
	}
	all.end()
	// What happens meanwhile is told once the stream is resumed, and no reset; what another process said cannot be resumed.
	s.act("listed-1", "terminate", `{"note":"enough"}`, http.StatusOK)
	resumed := s.onList("orders?workflow=listens&state=Pending", last.id)
	if e := resumed.until("left", "listed-1", ""); e.data != `{"orderId":"listed-1"}` || e.id == last.id {
		s.Errorf("%+v", e)
	}
	for _, strange := range []string{"x", "x/1", strings.Replace(last.id, "/", "/9", 1), strings.SplitN(last.id, "/", 2)[0] + "/-1"} {
		again := s.opens("/api/v1/orders", strange)
		if e, _ := again.next(); e.kind != "reset" {
			s.Errorf("behind %q: %+v", strange, e)
		}
		again.end()
	}
	resumed.end()

	s.declined("listed-2")
	for {
		e, more := waits.next()
		if !more {
			s.Fatal("no alert came")
		}
		var a Alert
		if err := json.Unmarshal([]byte(e.data), &a); err == nil && e.kind == "alert" && a.Order == "listed-2" && a.Reason != "" {
			break
		}
	}
	s.act("listed-2", "terminate", `{"note":"enough"}`, http.StatusOK)
	for e, more := waits.next(); e.kind != "left" || e.data != `{"orderId":"listed-2","order":"listed-2"}`; e, more = waits.next() {
		if !more {
			s.Fatal("the alert stays")
		}
	}
	for path, status := range map[string]int{"/api/v1/orders?state=Lost": 422, "/api/v1/orders?limit=3": 422, "/api/v1/orders?where=x": 422} {
		if got, _, answer := s.ask(request{path: path, header: http.Header{"Accept": {eventStream}}}); got != status {
			s.Errorf("%s: %d %s", path, got, answer)
		}
	}
	if status, header, _ := s.ask(request{path: "/api/v1/orders", header: http.Header{"Accept": {"text/event-stream, application/json"}}}); status != http.StatusOK || header.Get("Content-Type") != "application/json" {
		s.Errorf("who takes both got %d %v", status, header)
	}
}

// Who follows a list is told of what it may see, without payloads where it may not read them, and is one of those who follow.
func TestWhoFollowsLists(t *testing.T) {
	s, keys := known(t, slog.New(slog.DiscardHandler), map[string]string{"root": "roles: [admin]", "view": "roles: [viewer]", "part": "roles: [viewer, payload-reader], workflows: [other]"})
	as := func(name string) *stage {
		own := *s
		own.token = keys[name]
		return &own
	}
	whole, masked, none := as("root").onList("orders", ""), as("view").onList("orders", ""), as("part").onList("orders", "")
	if status, _, answer := as("view").ask(request{path: "/api/v1/orders?where=a=b", header: http.Header{"Accept": {eventStream}}}); status != http.StatusForbidden {
		t.Errorf("who may read no payload finds by them: %d %s", status, answer)
	}
	s.failed("o-1", "leaky")
	whole.until("order", "o-1", projections.Error)
	if e := masked.until("order", "o-1", projections.Error); strings.Contains(e.data, "canary") || !strings.Contains(e.data, `"masked":true`) {
		t.Errorf("%+v", e)
	}
	s.server.fill(t)
	if status, header, answer := s.ask(request{path: "/api/v1/orders", header: http.Header{"Accept": {eventStream}}}); status != http.StatusServiceUnavailable || header.Get("Retry-After") == "" {
		t.Errorf("one more: %d %s", status, answer)
	}
	whole.end()
	s.until(func() bool { return s.server.followers.count() < maxFollowers })
	s.server.Detach(errors.New("over"))
	if rest := none.all(); len(rest) > 0 {
		t.Errorf("who may see no order of the workflow is told of %v", rest)
	}
	if !s.server.feed.ended {
		t.Error("the feed goes on without its instance")
	}
}

// listed is a change of an order from a state to another; "" is none.
func listed(number uint64, id string, was, is projections.State) *listChange {
	c := &listChange{number: number}
	if c.Size = 100; was != "" {
		c.Was = &projections.Order{ID: id, State: was}
	}
	if is != "" {
		c.Is = &projections.Order{ID: id, State: is}
	}
	return c
}

// What is not sent yet is kept as it is last, and no more than a stream may have.
func TestWhatIsPending(t *testing.T) {
	l := &listener{selects: func(o *projections.Order) bool { return o.State == projections.Error }, wake: make(chan struct{}, 1)}
	l.drop("")
	said := func() (all []string, reset string, upTo uint64, more bool) {
		changes, reset, upTo, more := l.take()
		for _, p := range changes {
			all = append(all, fmt.Sprintf("%s %t %t %d", p.order(), p.was, p.is, p.number))
		}
		return all, reset, upTo, more
	}
	l.hear(listed(1, "a", "", projections.Error))
	l.hear(listed(2, "b", projections.Error, projections.Processing))
	l.hear(listed(3, "c", projections.Pending, projections.Processing)) // which it does not select
	l.hear(listed(4, "a", projections.Error, projections.Error))
	l.hear(listed(5, "d", projections.Pending, projections.Error))
	l.hear(listed(6, "d", projections.Error, ""))
	l.hear(listed(7, "e", projections.Error, ""))
	all, reset, upTo, more := said()
	if want := []string{"a false true 4", "b true false 2", "d false false 6", "e true false 7"}; !slices.Equal(all, want) || reset != "" || upTo != 7 || more {
		t.Errorf("%q %q %d %t", all, reset, upTo, more)
	}
	// It is sent in parts, and each ends where nothing of what is missing was before.
	for n := range changesAtOnce + 1 {
		l.hear(listed(uint64(10+n), fmt.Sprint(n), "", projections.Error))
	}
	l.hear(listed(1000, "0", "", projections.Error))
	if all, _, upTo, more = said(); len(all) != changesAtOnce || upTo != 10+changesAtOnce-1 || !more {
		t.Errorf("%d up to %d, more: %t", len(all), upTo, more)
	}
	if all, _, upTo, more = said(); len(all) != 1 || upTo != 1000 || more {
		t.Errorf("%d up to %d, more: %t", len(all), upTo, more)
	}
	// Too many, or too much, is a reset, behind which the rest comes.
	for n := range pendingChanges + 1 {
		l.hear(listed(uint64(2000+n), fmt.Sprint(n), "", projections.Error))
	}
	l.hear(listed(9000, "z", "", projections.Error))
	if all, reset, upTo, more = said(); len(all) > 0 || reset == "" || upTo != 8999 || !more {
		t.Errorf("%q %q %d %t", all, reset, upTo, more)
	}
	if all, reset, _, _ = said(); len(all) != 1 || reset != "" {
		t.Errorf("%q %q", all, reset)
	}
	big := listed(9001, "big", "", projections.Error)
	big.Size = pendingPerStream + 1
	l.hear(big)
	if all, reset, _, _ = said(); len(all) > 0 || reset == "" || l.bytes != 0 {
		t.Errorf("%q %q", all, reset)
	}
}

// Who resumes hears what it missed as long as that is kept, and else that the list is to be read; all hear it when something
// was lost.
func TestResuming(t *testing.T) {
	f := newListFeed(nil, func() orchestrator.LeftOut { return orchestrator.LeftOut{} })
	comes := func(last string) (pending int, reset bool) {
		l := &listener{selects: func(*projections.Order) bool { return true }, wake: make(chan struct{}, 1)}
		if !f.join(l, last) {
			t.Fatal("it has ended")
		}
		defer f.leave(l)
		return len(l.turns), l.reset != ""
	}
	at := func(n int) string { return fmt.Sprint(f.name, "/", n) }
	writes := func(n int) {
		for range n {
			f.tell([]projections.Change{listed(0, fmt.Sprint("o-", f.number), "", projections.Error).Change}, false)
		}
	}
	writes(3)
	for last, want := range map[string]int{at(3): 0, at(1): 2, at(0): 3, at(4): -1, "": -1, "x/1": -1} {
		if n, reset := comes(last); n != max(want, 0) || reset != (want < 0) {
			t.Errorf("behind %q it hears %d, a reset: %t", last, n, reset)
		}
	}
	writes(keptChanges)
	if n, reset := comes(at(3)); !reset {
		t.Errorf("behind 3 there is more than may be pending, and it hears %d", n)
	}
	if _, reset := comes(at(2)); !reset || len(f.recent) != keptChanges {
		t.Errorf("what is not kept is resumed: %d are", len(f.recent))
	}
	l := &listener{selects: func(*projections.Order) bool { return false }, wake: make(chan struct{}, 1)}
	f.join(l, at(int(f.number)))
	before := int(f.number)
	f.tell(nil, true)
	if l.reset == "" {
		t.Error("who listens does not hear that something was lost")
	}
	if _, reset := comes(at(before)); !reset {
		t.Error("what was lost is resumed")
	}
	big := listed(0, "big", "", projections.Error)
	big.Size = keptChangeBytes + 1
	if f.tell([]projections.Change{big.Change}, false); len(f.recent) > 0 || f.bytes != 0 {
		t.Errorf("%d with %d bytes are kept", len(f.recent), f.bytes)
	}
	if f.end(false) || !f.end(true) || f.join(l, "") {
		t.Error("it ends while somebody listens, or is joined once it has ended")
	}
}

// BenchmarkFlushThatIsFollowed is a flush of a hundred orders, and how long those take who write it.
func BenchmarkFlushThatIsFollowed(b *testing.B) {
	for _, followers := range []int{0, 1, 200} {
		b.Run(fmt.Sprint("followers=", followers), func(b *testing.B) {
			store, err := projections.Temporary()
			if err != nil {
				b.Fatal(err)
			}
			defer store.Close()
			p, err := store.Partition(0)
			if err != nil {
				b.Fatal(err)
			}
			p.CaughtUp()
			ctx, cancel := context.WithCancel(b.Context())
			var running sync.WaitGroup
			defer running.Wait()
			defer cancel()
			f := newListFeed(nil, func() orchestrator.LeftOut { return orchestrator.LeftOut{} })
			for range followers {
				filter := new(projections.Filter)
				l := &listener{selects: filter.Selects, wake: make(chan struct{}, 1)}
				f.join(l, "")
				running.Go(func() {
					for {
						select {
						case <-l.wake:
							for more := true; more; {
								_, _, _, more = l.take()
							}
						case <-ctx.Done():
							return
						}
					}
				})
			}
			if followers > 0 {
				source := store.Feed()
				defer source.Close()
				running.Go(func() { f.run(ctx, source) })
			}
			b.ReportAllocs()
			orders := make([]*projections.Order, 100)
			transaction := uint64(0)
			for b.Loop() {
				b.StopTimer()
				updates := make([]projections.Update, len(orders))
				for n := range orders {
					o := &projections.Order{ID: fmt.Sprint("o-", n), Workflow: "w", State: projections.Processing, Steps: make([]projections.Step, 3)}
					if orders[n] != nil {
						o = orders[n].Clone()
					}
					o.Seq++
					orders[n], updates[n] = o, projections.Update{Order: o, Offsets: []int64{int64(transaction)*100 + int64(n)}}
				}
				transaction++
				if err := p.Commit(events.Seal{Transaction: transaction}, int64(transaction)*100, updates); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				if err := p.Flush(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
