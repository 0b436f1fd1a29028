package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/waybill-dev/waybill/internal/api"
)

// Many orders are acted on by the server: the history of each has the act's id, and nothing is left prepared
// where nobody said yes.
func TestTheServerActsOnMany(t *testing.T) {
	clearEnvironment(t)
	server, _, _ := startDev(t, t.TempDir(), "--partitions", "2")
	t.Setenv("WAYBILL_SERVER", server)
	ids := []string{"o-1", "o-2", "o-3"}
	for _, id := range ids {
		waybill(t, `{"card":"declined"}`, "submit", "order-fulfilment", "--id", id, "--input", "-", "--wait").want(t, exitEnded, "Error", "")
	}
	waybill(t, "", "order", "resubmit", "--workflow", "order-fulfilment").want(t, exitUsage, "", "3 orders would be resubmitted, and without a terminal nobody can be asked")
	waybill(t, "", "order", "skip-step", "--workflow", "order-fulfilment", "--step", "none", "--yes").want(t, exitDone, "Matched    0\n", "")

	c := waybill(t, "", "order", "resubmit", "--state", "Error", "--step", "charge", "--input", `{"card":"<b>"}`, "--new-key", "--note", "why", "--by", "ann", "--yes", "-o", "json")
	c.want(t, exitDone, "", "")
	r := readResult(t, c)
	if slices.Sort(r.Done); !slices.Equal(r.Done, ids) || r.Matched != 3 || r.Act == "" {
		t.Fatalf("%s%s", c.out, c.errs)
	}
	for _, id := range ids {
		waybill(t, "", "order", "wait", id).want(t, exitDone, "Processed", "")
		waybill(t, "", "order", "history", id, "-o", "jsonpath=$.events[?@.command].command").want(t, exitDone, r.Act+"\n", "")
		waybill(t, "", "order", "history", id).want(t, exitDone, "by ann", "")
	}
	client, err := api.NewClient(server)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	all, err := client.Bulks(t.Context())
	if err != nil || len(all.Acts) != 1 || all.Acts[0].ID != r.Act || all.Acts[0].State != api.BulkDone || *all.Acts[0].By != "ann" || *all.Acts[0].Note != "why" {
		t.Errorf("it knows %+v, %v", all, err)
	}
}

// actor is a server of which a test says how a bulk act stands each time that it is asked.
type actor struct {
	answers map[string][]string // by method and what is behind the act's id; the last one repeats

	mu    sync.Mutex
	asked map[string]int
	body  map[string]any // with which it was prepared
	stop  func()         // once it was asked how the act stands
}

func (a *actor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	name := r.Method + strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/api/v1/bulk"), "/b-1")
	if a.asked == nil {
		a.asked = make(map[string]int)
	}
	if a.asked[name]++; name == "POST" {
		_ = json.NewDecoder(r.Body).Decode(&a.body) // it is looked at
	}
	if name == "GET" && a.stop != nil {
		a.stop()
	}
	all := a.answers[name]
	if len(all) == 0 {
		problem(w, 404, "nothing is known of it here")
		return
	}
	switch answer := all[min(a.asked[name], len(all))-1]; answer {
	case "404", "410", "429":
		var status int
		_, _ = fmt.Sscan(answer, &status) // it is one
		problem(w, status, "not here")
	case "gone":
		panic(http.ErrAbortHandler)
	default:
		fmt.Fprint(w, answer)
	}
}

// standing is how a bulk act stands.
func standing(state string, more ...string) string {
	return fmt.Sprintf(`{"id":"b-1","state":%q,"matched":4,"failures":[{"orderId":"c","reason":"no"}],%s"more":false}`, state, strings.Join(append(more, ""), ","))
}

const (
	ended    = `"endedAt":"2030-01-02T15:04:05.000Z"`
	outcomes = `{"orders":[{"orderId":"a","outcome":"done"},{"orderId":"b","outcome":"left"}],"next":2}`
	others   = `{"orders":[{"orderId":"c","outcome":"failed"},{"orderId":"d","outcome":%q}]}`
)

func TestBulkActs(t *testing.T) {
	clearEnvironment(t)
	of := func(last string) []string { return []string{outcomes, fmt.Sprintf(others, last)} }
	for _, c := range []struct {
		name        string
		answers     map[string][]string
		interrupted bool
		code        int
		out, errs   string
		asked       string // what must have been asked, and how often
	}{
		{
			"others answer in turn, and the server goes away for a moment",
			map[string][]string{
				"POST": {standing("prepared", `"unknown":[7]`)}, "POST/start": {"404", standing("running")},
				"GET": {standing("running"), "404", "gone", standing("running", `"done":2`), standing("done", ended, `"newer":5`)}, "GET/orders": slices.Insert(of("done"), 1, "404"),
			},
			false, exitFailed,
			`{"matched":4,"done":["a","d"],"failed":[{"orderId":"c","reason":"no"}],"notTried":[],"left":["b"],"act":"b-1"}`,
			"Orders of the partitions [7] are left out: this instance has not read their journals to the end. Try again in a moment, or ask another.\n5 orders came to be under the filter meanwhile, and nothing was done to them.\nwaybill: 1 of 4 orders could not be cancelled", "POST/stop 0",
		},
		{
			"one had changed",
			map[string][]string{"POST": {standing("prepared")}, "POST/start": {standing("running")}, "GET": {standing("done", ended)}, "GET/orders": {`{"orders":[{"orderId":"a","outcome":"done"},{"orderId":"b","outcome":"left"}]}`}},
			false, exitLeft, `"left":["b"],"act":"b-1"}`, "waybill: 1 of 4 orders were cancelled, and 1 had changed when their turn came\n", "POST/stop 0",
		},
		{
			"partitions are not known",
			map[string][]string{"POST": {standing("prepared", `"unknown":[7]`)}, "POST/start": {standing("running", `"unknown":[7]`)}, "GET": {standing("done", ended, `"unknown":[7]`)}, "GET/orders": {`{"orders":[{"orderId":"a","outcome":"done"}]}`}},
			false, exitLeft, `"left":[],"act":"b-1","unknown":[7]}`, "the orders of 1 partition were not looked at\n", "POST/stop 0",
		},
		{
			"somebody is done", map[string][]string{
				"POST": {standing("prepared")}, "POST/start": {standing("running")}, "GET": {standing("running")}, "POST/stop": {standing("running")},
				"GET/orders": of("pending"),
			}, true, exitInterrupted, `"notTried":["d"]`, "waybill: stopped: 1 of 4 orders were cancelled, 1 had changed, 1 could not be, and 1 were not tried", "POST/stop 1",
		},
		{
			"somebody else stops it", map[string][]string{
				"POST": {standing("prepared")}, "POST/start": {standing("running")}, "GET": {standing("stopped", ended, `"reason":"by eve"`)}, "GET/orders": of("pending"),
			}, false, exitFailed, `"notTried":["d"]`, "waybill: stopped: by eve: 1 of 4 orders were cancelled", "POST/stop 0",
		},
		{
			"its instance ends", map[string][]string{
				"POST": {standing("prepared")}, "POST/start": {standing("running")}, "GET": {standing("cut-off", ended, `"reason":"its instance ended"`, `"done":3`)}, "GET/orders": {"410"},
			}, false, exitFailed, "", "bulk act b-1 is cut-off (its instance ended): of 4 orders 3 were cancelled", "POST/stop 0",
		},
		{
			"nobody knows it any more", map[string][]string{
				"POST": {standing("prepared")}, "POST/start": {standing("running")}, "GET": {standing("running", `"done":3`), "404"},
			}, false, exitFailed, "", "it is not known how bulk act b-1 stands, which may go on: at last 3 of 4 orders were cancelled", "GET 6",
		},
		{
			"too many are carried out", map[string][]string{"POST": {standing("prepared")}, "POST/start": {"429"}, "POST/stop": {standing("stopped")}}, false, exitAway, "", "start bulk act b-1: not here", "POST/stop 1",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			a := &actor{answers: c.answers}
			if c.interrupted {
				a.stop = interrupt
				a.answers["GET"] = []string{a.answers["GET"][0], standing("stopped", ended, `"reason":"by you"`)}
			}
			server := httptest.NewServer(a)
			defer server.Close()
			var out, errs bytes.Buffer
			code := run(ctx, []string{"order", "cancel", "--workflow", "w", "--where", "a=b", "--note", "why", "--by", "ann", "--rate", "7", "--yes", "-o", "json", "--server", server.URL}, strings.NewReader(""), &out, &errs)
			compact := new(bytes.Buffer)
			if out.Len() > 0 {
				if err := json.Compact(compact, out.Bytes()); err != nil {
					t.Error(err)
				}
			}
			if call := (call{code, compact.String(), errs.String()}); c.code != code || !strings.Contains(call.out, c.out) || !strings.Contains(call.errs, c.errs) {
				t.Errorf("%+v", call)
			}
			if what, times, _ := strings.Cut(c.asked, " "); fmt.Sprint(a.asked[what]) != times {
				t.Errorf("it was asked %v", a.asked)
			}
			if got := fmt.Sprint(a.body); got != "map[by:ann command:cancel filter:map[where:[a=b] workflow:w] note:why rate:7 with:map[]]" {
				t.Errorf("it was asked for %s", got)
			}
		})
	}
}

// What the server does not do as one act is asked for one by one, which is said with the reason, and what was prepared is forgotten.
func TestWhatNoBulkActDoes(t *testing.T) {
	clearEnvironment(t)
	for _, c := range []struct {
		prepared, rate, says    string
		prepares, starts, stops int
	}{
		{`{"id":"b-1","state":"prepared","matched":100000,"more":true}`, "7", "There are more than 100000 orders, which is the most that one bulk act takes: they are asked one by one.\n", 1, 0, 1},
		{standing("prepared"), "7", "What was looked up is not known any more: the server has forgotten it, as it does after 15 minutes, or another instance answers. The orders are looked up anew, and asked one by one.\n", 1, 5, 1},
		{standing("prepared"), "0.5", "The server takes a --rate that is a whole number from 1 to 1000, and 0.5 is none: the orders are asked one by one.\n", 0, 0, 0},
		{standing("prepared"), "0", "and 0 is none: the orders", 0, 0, 0},
		{standing("prepared"), "1001", "and 1001 is none: the orders", 0, 0, 0},
		{standing("prepared"), "1.5", "and 1.5 is none: the orders", 0, 0, 0},
	} {
		a := &actor{answers: map[string][]string{"POST": {c.prepared}, "POST/start": {"404"}, "POST/stop": {standing("stopped")}}}
		mux := http.NewServeMux()
		mux.Handle("/api/v1/bulk", a)
		mux.Handle("/api/v1/bulk/", a)
		mux.HandleFunc("GET /api/v1/orders", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, listing("", "x Pending")) })
		mux.HandleFunc("POST /api/v1/orders/{id}/cancel", func(w http.ResponseWriter, r *http.Request) { done(r.PathValue("id"), w) })
		server := httptest.NewServer(mux)
		waybill(t, "", "order", "cancel", "--workflow", "w", "--yes", "--rate", c.rate, "--server", server.URL).want(t, exitDone, "Done       1\n", c.says)
		if a.asked["POST"] != c.prepares || a.asked["POST/start"] != c.starts || a.asked["POST/stop"] != c.stops {
			t.Errorf("--rate %s: it was asked %v", c.rate, a.asked)
		}
		server.Close()
	}
}

// An order is shown as it was after an event, which is said; what does not change is not watched.
func TestAsOf(t *testing.T) {
	clearEnvironment(t)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/orders/o-1/history/{seq}", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("seq") != "3" {
			problem(w, 404, "there is no such event")
			return
		}
		fmt.Fprint(w, `{"orderId":"o-1","processState":"Compensating","steps":[]}`)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	t.Setenv("WAYBILL_SERVER", server.URL)
	waybill(t, "", "order", "get", "o-1", "--as-of", "3").want(t, exitDone, "Compensating", "This is how the order was after event 3.\n")
	waybill(t, "", "order", "get", "o-1", "--as-of", "4").want(t, exitNotFound, "", "there is no such event")
	waybill(t, "", "order", "get", "o-1", "--as-of", "0").want(t, exitUsage, "", "counted from 1")
	waybill(t, "", "order", "get", "o-1", "--as-of", "3", "-w").want(t, exitUsage, "", "use one of the two")
}
