package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/events"
)

// Which order does a step, whose step an order does, and what became of that are a line each.
func TestOrdersThatDoSteps(t *testing.T) {
	clearEnvironment(t)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/orders/o-1", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"orderId":"o-1","processState":"Processing","parent":{"order":"o-0","step":"trip","detached":true},"steps":[
			{"name":"a","state":"completed","attempt":1,"child":{"order":"@o-1/a","recalled":false,"processState":"Processed","alerted":false}},
			{"name":"b","state":"running","attempt":1,"child":{"order":"@o-1/b","recalled":true,"processState":"Error","alerted":true}},
			{"name":"c","state":"running","attempt":1,"child":{"order":"@o-1/c","recalled":false,"processState":null,"alerted":null}}]}`)
	})
	mux.HandleFunc("GET /api/v1/orders/o-1/history", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"events":[
			{"type":"waybill.order.accepted","order":"o-1","seq":1,"at":"2030-01-02T15:04:05Z","workflow":"w","version":1,"steps":["a"],"parent":"o-0","parentStep":"trip","depth":1,"pinned":{"book":3,"fly":1}},
			{"type":"waybill.step.ordered","order":"o-1","seq":2,"at":"2030-01-02T15:04:05Z","step":"a","attempt":1,"child":"@o-1/a","workflow":"book","version":3,"completeBy":"2030-01-02T17:04:05Z","lockedBy":"i","input":{"n":1}},
			{"type":"waybill.step.ordered","order":"o-1","seq":3,"at":"2030-01-02T15:04:05Z","step":"b","attempt":1,"child":"@o-1/b","workflow":"fly","detached":true,"lockedBy":"i"},
			{"type":"waybill.step.recalled","order":"o-1","seq":4,"at":"2030-01-02T15:04:05Z","step":"a","attempt":1,"child":"@o-1/a","reason":"it takes too long"},
			{"type":"waybill.step.failed","order":"o-1","seq":5,"at":"2030-01-02T15:04:05Z","step":"a","attempt":1,"error":{"code":"timed-out","message":"order @o-1/a: late","permanent":true},"source":"waybill.internal/0/7"},
			{"type":"waybill.undo.ordered","order":"o-1","seq":6,"at":"2030-01-02T15:04:05Z","step":"c","attempt":1,"child":"@o-1/c","lockedBy":"i"},
			{"type":"waybill.order.reported","order":"o-1","seq":7,"at":"2030-01-02T15:04:05Z","parent":"o-0","parentStep":"trip","reason":"its parent asks for it once more"}]}`)
	})
	mux.HandleFunc("GET /api/v1/alerts", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"alerts":[{"order":"@o-1/b","workflow":"fly","version":1,"parent":{"order":"o-1","step":"b"},"reason":"no"}]}`)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	for command, lines := range map[string][]string{
		"order get o-1": {
			"Does step trip of order o-0, which does not wait for it", "order Processed @o-1/a",
			"order Error @o-1/b; it was recalled; it waits for an operator: waybill order get @o-1/b", "order - @o-1/c",
		},
		"order history o-1": {
			"order.accepted - - w@1; does step trip of order o-0; book@3 does steps; fly@1 does steps",
			`step.ordered a 1 order @o-1/a of book@3 does it, or is recalled after 2h0m0s; input {"n":1}`, "step.ordered b 1 order @o-1/b of fly does it, and nobody waits for its end",
			"step.recalled a 1 order @o-1/a is to undo what it did, and to end; it takes too long",
			"step.failed a 1 timed-out: order @o-1/a: late (permanent); its order says so, at waybill.internal/0/7",
			"undo.ordered c 1 order @o-1/c is to undo what it did", "order.reported - - told order o-0, for its step trip; its parent asks for it once more",
		},
		"alerts": {"it does step b of order o-1"},
	} {
		got := waybill(t, "", append(strings.Fields(command), "--server", server.URL)...)
		var text []string
		for line := range strings.Lines(got.out) {
			text = append(text, strings.Join(strings.Fields(line), " "))
		}
		for _, want := range lines {
			if !slices.ContainsFunc(text, func(line string) bool { return strings.HasSuffix(line, want) }) {
				t.Errorf("%s: no line %q in\n%s%s", command, want, got.out, got.errs)
			}
		}
	}
}

// A history is followed to its end, which of an order that does a step of another may come twice.
func TestWhenAnOrderIsOver(t *testing.T) {
	all := func(types ...events.Type) (all []events.Event) {
		for _, typ := range types {
			all = append(all, events.Event{Type: typ})
		}
		return all
	}
	for _, c := range []struct {
		before bool
		next   []events.Event
		want   bool
	}{
		{false, all(events.OrderAccepted, events.StepStarted), false},
		{false, all(events.OrderCompleted), true},
		{false, all(events.OrderCompleted, events.OrderLabelled), true},
		{false, all(events.OrderCompleted, events.OrderCompensating, events.UndoStarted), false},
		{true, all(events.OrderCompensating), false},
		{true, all(events.OrderReported), true},
		{false, all(events.OrderCompleted, events.OrderCompensating, events.OrderCompensated), true},
	} {
		if is := over(c.before, c.next); is != c.want {
			t.Errorf("after %+v it is over: %t", c.next, is)
		}
	}
}

// Which orders left something, and what, is said of a step and of each item; of what is not known which it is, where to look.
func TestWhatOrdersLeft(t *testing.T) {
	clearEnvironment(t)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/orders/o-1", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"orderId":"o-1","processState":"Error","steps":[
			{"name":"a","state":"failed","attempt":2,"leaves":true,"child":{"order":"@o-1/a:3"},"leftBy":[{"order":"@o-1/a","steps":["book","pay"]},{"order":"@o-1/a:2","steps":[]}]},
			{"name":"b","state":"failed","attempt":1,"leaves":true,"leftBy":[],"items":{"count":3,"completed":1,"failed":2,"left":2}},
			{"name":"c","state":"failed","attempt":1,"leaves":true,"leftBy":[],"items":{"count":3,"completed":1,"failed":2}}]}`)
	})
	mux.HandleFunc("GET /api/v1/orders/o-1/steps/b/items", func(w http.ResponseWriter, r *http.Request) {
		if q := r.URL.Query(); q.Get("left") != "true" || q.Has("failed") {
			t.Errorf("asked for %v", q)
		}
		fmt.Fprint(w, `{"items":[{"item":2,"state":"failed","order":"@o-1/b:i2:2","error":{"code":"gone"},"leftBy":[{"order":"@o-1/b:i2","steps":["pay"]},{"order":"@o-1/b:i2:2","steps":["book"]}]},
			{"item":3,"state":"undone","order":"@o-1/b:i3","leftBy":[{"order":"@o-1/b:i3","steps":[]}]}]}`)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	for command, lines := range map[string][]string{
		"order get o-1": {
			"a failed 2 0 - -", "left not undone of order @o-1/a: book, pay", "left order @o-1/a:2 left something that was not undone, as its end says",
			"b failed 1 0 - -", "items 1 of 3 completed, 2 failed; of 2 something was not undone: waybill order items o-1 b --left",
			"c failed 1 0 - something that an order did for it was not undone: see the history", "items 1 of 3 completed, 2 failed",
		},
		"order items o-1 b --left": {
			"2 failed @o-1/b:i2:2 gone; not undone of order @o-1/b:i2: pay; not undone of order @o-1/b:i2:2: book",
			"3 undone @o-1/b:i3 order @o-1/b:i3 left something that was not undone, as its end says",
		},
	} {
		got := waybill(t, "", append(strings.Fields(command), "--server", server.URL)...)
		var text []string
		for line := range strings.Lines(got.out) {
			text = append(text, strings.Join(strings.Fields(line), " "))
		}
		for _, want := range lines {
			if !slices.Contains(text, want) {
				t.Errorf("%s: no line %q in\n%s%s", command, want, got.out, got.errs)
			}
		}
	}
}
