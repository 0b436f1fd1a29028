package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/words"
)

// owner is a server of which the test says how each command on each order ends.
type owner struct {
	*testing.T
	url    string
	pages  []string // of the listing
	answer func(id string, n int, w http.ResponseWriter)

	mu     sync.Mutex
	asked  map[string][]sent // by order
	listed []string          // queries
}

// sent is a command as it came over HTTP.
type sent struct {
	command, key string
	body         map[string]any
}

func newOwner(t *testing.T, pages ...string) *owner {
	t.Helper()
	clearEnvironment(t)
	o := &owner{T: t, pages: pages, asked: make(map[string][]sent)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/orders", func(w http.ResponseWriter, r *http.Request) {
		o.mu.Lock()
		defer o.mu.Unlock()
		page := len(o.listed)
		o.listed = append(o.listed, r.URL.RawQuery)
		fmt.Fprint(w, o.pages[page])
	})
	act := func(w http.ResponseWriter, r *http.Request) {
		id := r.PathValue("id")
		s := sent{command: r.PathValue("command"), key: r.Header.Get("Idempotency-Key")}
		if err := json.NewDecoder(r.Body).Decode(&s.body); err != nil {
			t.Error(err)
		}
		o.mu.Lock()
		o.asked[id] = append(o.asked[id], s)
		n, answer := len(o.asked[id]), o.answer
		o.mu.Unlock()
		if answer != nil {
			answer(id, n, w)
		} else {
			done(id, w)
		}
	}
	mux.HandleFunc("/api/v1/bulk", func(w http.ResponseWriter, _ *http.Request) { problem(w, 404, "there is nothing") }) // it is of an older release
	mux.HandleFunc("POST /api/v1/orders/{id}/{command}", act)
	mux.HandleFunc("POST /api/v1/signals", act) // whose order nobody knows
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	o.url = server.URL
	t.Setenv("WAYBILL_SERVER", server.URL)
	return o
}

func done(id string, w io.Writer) {
	fmt.Fprintf(w, `{"orderId":%q,"processState":"Pending","steps":[]}`, id)
}

func problem(w http.ResponseWriter, status int, detail string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"status":%d,"title":"x","detail":%q}`, status, detail)
}

// listing is a page of orders, each "id state" and perhaps " held" or " paused".
func listing(next string, orders ...string) string {
	var all []string
	for _, o := range orders {
		id, state, _ := strings.Cut(o, " ")
		state, paused := strings.CutSuffix(state, " paused")
		state, held := strings.CutSuffix(state, " held")
		all = append(all, fmt.Sprintf(`{"orderId":%q,"processState":%q,"paused":%t,"held":%t,"waiting":7}`, id, state, paused, held))
	}
	return fmt.Sprintf(`{"orders":[%s],"next":%q}`, strings.Join(all, ","), next)
}

func readResult(t *testing.T, c call) bulkResult {
	t.Helper()
	var r bulkResult
	if err := json.Unmarshal([]byte(c.out), &r); err != nil || r.Done == nil || r.Failed == nil || r.NotTried == nil {
		t.Fatalf("%v: %s%s", err, c.out, c.errs)
	}
	return r
}

func TestActOnOneOrder(t *testing.T) {
	o := newOwner(t)
	waybill(t, `{"card":"4711"}`, "order", "resubmit", "o-1", "--step", "charge", "--input", "-", "--same-key", "--note", "why", "--by", "ann").want(t, 0, "Pending", "")
	waybill(t, "", "order", "resubmit", "o-5", "--new-key").want(t, 0, "Pending", "")
	if resubmit := o.asked["o-5"][0]; resubmit.body["newKey"] != true || resubmit.body["sameKey"] != nil {
		t.Errorf("%+v", resubmit)
	}
	waybill(t, "", "order", "resubmit", "o-6", "--new-key", "--same-key").want(t, 2, "", "use one of the two")
	waybill(t, "", "order", "skip-step", "o-2", "--step", "ship", "--step-output", "[1]", "-o", "json").want(t, 0, `"orderId": "o-2"`, "")
	waybill(t, "", "order", "pause", "o-3").want(t, 0, "Pending", "")
	waybill(t, "", "order", "release", "o-4", "--discard", "--by", "ann").want(t, 0, "Pending", "")
	resubmit, skip, pause := o.asked["o-1"][0], o.asked["o-2"][0], o.asked["o-3"][0]
	if resubmit.key == "" || resubmit.command != "resubmit" || fmt.Sprint(resubmit.body) != "map[by:ann input:map[card:4711] note:why sameKey:true step:charge]" {
		t.Errorf("%+v", resubmit)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if by, _ := skip.body["by"].(string); skip.command != "skip-step" || skip.body["step"] != "ship" || fmt.Sprint(skip.body["output"]) != "[1]" || !strings.HasSuffix(by, "@"+host) {
		t.Errorf("%+v", skip)
	}
	if release := o.asked["o-4"][0]; release.command != "release" || release.body["discard"] != true {
		t.Errorf("%+v", release)
	}
	for _, bad := range [][]string{{}, {"--deadline", "soon"}, {"--deadline", "+soon"}, {"--deadline", "+-1h"}, {"--priority", "urgent"}} {
		waybill(t, "", append([]string{"order", "change", "o-8"}, bad...)...).want(t, 2, "", "")
	}
	waybill(t, "", "order", "change", "o-8", "--priority", "high", "--deadline", "2030-01-02T15:04:05+01:00").want(t, 0, "Pending", "")
	waybill(t, "", "order", "change", "o-8", "--deadline", "none").want(t, 0, "Pending", "")
	waybill(t, "", "order", "change", "o-8", "--deadline", "+2h").want(t, 0, "Pending", "")
	if all := o.asked["o-8"]; len(all) != 3 || all[0].body["priority"] != "high" || all[0].body["deadline"] != "2030-01-02T14:04:05Z" || all[1].body["noDeadline"] != true || all[1].body["deadline"] != nil || all[2].body["deadline"] == nil {
		t.Errorf("%+v", all)
	}
	waybill(t, "", "order", "terminate", "o-7").want(t, 2, "", "say why with --note")
	waybill(t, "", "order", "terminate", "--workflow", "w", "--note", " ").want(t, 2, "", "say why with --note")
	waybill(t, "", "order", "terminate", "o-7", "--note", "enough").want(t, 0, "Pending", "")
	if end := o.asked["o-7"]; len(end) != 1 || end[0].command != "terminate" || end[0].body["note"] != "enough" {
		t.Errorf("%+v", end)
	}
	if pause.command != "pause" || pause.key == "" || pause.key == skip.key {
		t.Errorf("%+v", pause)
	}
}

// A command is repeated under its id when the server goes away or does not know
// the outcome yet; it is not when it is refused.
func TestActOnOneOrderUntilItIsKnown(t *testing.T) {
	o := newOwner(t)
	o.answer = func(id string, n int, w http.ResponseWriter) {
		switch {
		case id == "refused":
			problem(w, 409, "it is Processed")
		case id == "none":
			problem(w, 404, "there is no order")
		case n == 1:
			panic(http.ErrAbortHandler)
		case id == "behind":
			page(w, "504")
		case n == 2:
			problem(w, 503, "not ready")
		case n == 3:
			page(w, "502")
		case n == 4:
			page(w, "504")
		default:
			done(id, w)
		}
	}
	waybill(t, "", "order", "resubmit", "o-1").want(t, 0, "Pending", "")
	if a := o.asked["o-1"]; len(a) != 5 || a[0].key != a[1].key || a[1].key != a[4].key {
		t.Errorf("%+v", a)
	}
	waybill(t, "", "order", "cancel", "behind").want(t, exitAway, "", "504 Gateway Timeout")
	if len(o.asked["behind"]) != 5 {
		t.Errorf("asked %d times", len(o.asked["behind"]))
	}
	waybill(t, "", "order", "cancel", "refused").want(t, 4, "", "waybill: order refused was not cancelled: it is Processed\n")
	waybill(t, "", "order", "cancel", "none").want(t, 3, "", "there is no order")
	if len(o.asked["refused"]) != 1 || len(o.asked["none"]) != 1 {
		t.Errorf("%+v", o.asked)
	}
}

// What is held is seen in listings and histories.
func TestHeldOrdersAreSeen(t *testing.T) {
	newOwner(t, listing("", "h Error held"))
	waybill(t, "", "order", "list").want(t, 0, "Error, held, 7 waiting", "")
	for want, e := range map[string]events.Event{
		"held; it panicked":             {Type: events.OrderErrored, Held: true, Reason: "it panicked"},
		`waybill.replies/0/7; {"n":1}`:  {Type: events.InputHeld, Source: "waybill.replies/0/7", Raw: &events.Raw{Value: []byte(`{"n":1}`)}},
		"waybill.replies/0/7; too many": {Type: events.InputDiscarded, Source: "waybill.replies/0/7", Reason: "too many"},
	} {
		if got := words.NewCourse().Tell(&e); got != want {
			t.Errorf("%s: %s", e.Type, got)
		}
	}
}

// What waits for agents alone has no complete-by in a listing.
func TestWhatWaitsIsListed(t *testing.T) {
	for want, o := range map[string]api.Summary{
		"-": {}, "waits": {WaitsSince: &api.Time{Time: time.Unix(1, 0)}},
		"1970-01-01T00:00:02.000Z": {WaitsSince: &api.Time{Time: time.Unix(1, 0)}, CompleteBy: &api.Time{Time: time.Unix(2, 0)}},
	} {
		listOrders(func(cells ...any) {
			if cells[0] != "ORDER" && cells[4] != want {
				t.Errorf("its complete-by is %v, not %s", cells[4], want)
			}
		}, []api.Summary{o}, false)
	}
}

// What orders are found by is asked for as it is written, and shown then. A server that does not
// know how to find them lists others, which nothing is done to.
func TestWhatOrdersAreFoundBy(t *testing.T) {
	found := `{"orders":[{"orderId":"a","processState":"Error","labels":{"region":"eu","note":"a,b=c"}}]}`
	o := newOwner(t, found, found, found, listing("", "b Error"), listing("", "b Error"), listing("", "b Error"))
	waybill(t, "", "order", "list", "--where", "note=a,b=c", "--where", "region=eu").want(t, 0, "note=a,b=c, region=eu", "")
	waybill(t, "", "order", "cancel", "--where", "region=eu", "--dry-run").want(t, 0, "LABELS", "")
	waybill(t, "", "order", "cancel", "--where", "region=eu", "--yes").want(t, 0, "Done       1", "")
	waybill(t, "", "order", "list", "--where", "region=eu").want(t, 1, "", `lists order "b", which is not found by what was asked for`)
	waybill(t, "", "order", "cancel", "--where", "region=eu", "--yes").want(t, 1, "", "upgrade it")
	if c := waybill(t, "", "order", "list"); strings.Contains(c.out, "LABELS") {
		t.Errorf("%s", c.out)
	}
	if o.listed[0] != "limit=100&where=note%3Da%2Cb%3Dc&where=region%3Deu" || len(o.asked) != 1 {
		t.Errorf("%q, %v", o.listed, o.asked)
	}
	waybill(t, "", "order", "cancel", "o-1", "--where", "region=eu").want(t, 2, "", "--where chooses among many orders")
}

func TestLabelAnOrder(t *testing.T) {
	o := newOwner(t)
	waybill(t, "", "order", "label", "o-1", "region=eu", "note=a=b", "none=", "claim-", "--note", "why", "--by", "ann").want(t, 0, "Pending", "")
	body := o.asked["o-1"][0].body
	if got := fmt.Sprint(body); got != "map[by:ann labels:map[claim:<nil> none: note:a=b region:eu] note:why]" {
		t.Errorf("%s", got)
	}
	for args, says := range map[string]string{
		"o-1": "order label", "o-1 region": `"region": write NAME=VALUE`, "o-1 Region=eu": `is "Region"; use a-z`, "o-1 Region-": `is "Region"; use a-z`,
		"o-1 a=1 a-": "a is given twice", "o-1 a=1 a=1": "a is given twice",
	} {
		waybill(t, "", append([]string{"order", "label"}, strings.Fields(args)...)...).want(t, 2, "", says)
	}
	o.answer = func(_ string, _ int, w http.ResponseWriter) {
		problem(w, 409, "the order was rejected, and has no labels")
	}
	waybill(t, "", "order", "label", "o-2", "a=1").want(t, 4, "", "order o-2 was not labelled: the order was rejected")
}

// What a listing leaves out is said.
func TestWhatIsLeftOut(t *testing.T) {
	page := func(next string, unknown ...int) string {
		return fmt.Sprintf(`{"orders":[],"alerts":[],"elsewhere":[5],"unknown":[%s],"next":%q}`, strings.Trim(fmt.Sprint(unknown), "[]"), next)
	}
	const says = "Orders of the partitions [5] are left out: this instance does not own them"
	whole := `{"orders":[]}`
	o := newOwner(t, page("x", 2), page("", 1), page(""), page("", 7), page("", 7), page("", 7), page("", 7), whole)
	waybill(t, "", "order", "list").want(t, 0, "", "Orders of the partitions [1 2] are left out: this instance has not read their journals to the end.")
	waybill(t, "", "order", "list").want(t, 0, "", says)
	waybill(t, "", "order", "cancel", "--state", "Error", "--yes").want(t, exitLeft, "", "waybill: 0 of 0 orders were cancelled, and 0 had changed when their turn came; the orders of 1 partition were not looked at; the orders of 1 partition are other instances' to act on (--server)\n")
	// A dry run ends as the act would.
	const missing = "the orders of 1 partition were not looked at; the orders of 1 partition are other instances' to act on (--server)\n"
	waybill(t, "", "order", "cancel", "--state", "Error", "--dry-run").want(t, exitLeft, "0 orders would be cancelled.\n", "waybill: "+missing)
	waybill(t, "", "order", "cancel", "--state", "Error", "--dry-run", "-o", "jsonpath=$['elsewhere','unknown']").want(t, exitLeft, "[5]\n[7]\n", missing)
	waybill(t, "", "order", "migrate", "--workflow", "w", "--to", "2", "--dry-run").want(t, exitLeft, "0 orders", missing)
	waybill(t, "", "order", "cancel", "--state", "Error", "--dry-run").want(t, 0, "0 orders would be cancelled.\n", "")
	if len(o.listed) != 8 {
		t.Errorf("%q", o.listed)
	}
}

// P3: the same command over many orders. What could not be done is listed with
// the reason, and every order is acted on once.
func TestActOnManyOrders(t *testing.T) {
	o := newOwner(t,
		listing("x", "a Error", "b Error"),
		listing("", "b Error", "c Error", "d Error"), // b moved while the pages were read
	)
	o.answer = func(id string, n int, w http.ResponseWriter) {
		switch {
		case id == "b":
			problem(w, 409, "it is Processed")
		case id == "c" && n == 1:
			problem(w, 503, "not known yet")
		default:
			done(id, w)
		}
	}
	c := waybill(t, "", "order", "resubmit", "--workflow", "w", "--step", "charge", "--note", "why", "--yes", "-o", "json")
	c.want(t, 1, "", "1 of 4 orders could not be resubmitted")
	c.want(t, 1, "", "The server is of a release without bulk acts: its orders are asked one by one.\n")
	r := readResult(t, c)
	if r.Matched != 4 || !slices.Equal(r.Done, []string{"a", "c", "d"}) || len(r.Failed) != 1 || r.Failed[0] != (bulkFailure{"b", "it is Processed"}) || len(r.NotTried) != 0 {
		t.Errorf("%+v", r)
	}
	if o.listed[0] != "limit=1000&state=Error&step=charge&workflow=w" || !strings.Contains(o.listed[1], "after=x") {
		t.Errorf("%q", o.listed)
	}
	if len(o.asked["a"]) != 1 || len(o.asked["b"]) != 1 || len(o.asked["c"]) != 2 || o.asked["a"][0].key == o.asked["d"][0].key {
		t.Errorf("%+v", o.asked)
	}
	o.listed = nil
	waybill(t, "", "order", "resubmit", "--state", "Error", "--yes").want(t, 1, "ORDER  REASON\nb      it is Processed\n", "")
}

// Orders on which the command can do nothing are passed over, unless their
// state was asked for.
func TestActOnWhatFits(t *testing.T) {
	all := listing("", "p Pending", "pp Pending paused", "d Processed", "e Error", "h Error held", "x Cancelled")
	for _, c := range []struct {
		args string
		want string
	}{
		{"cancel --workflow w", "[p pp e h]"},
		{"terminate --workflow w --note why", "[p pp e h]"},
		{"change --workflow w --priority low", "[p pp e h]"},
		{"pause --workflow w", "[p]"},
		{"resume --workflow w", "[pp]"},
		{"release --workflow w", "[h]"},
		{"release --state Error --discard", "[h]"},
		{"skip-step --step s --workflow w", "[p pp e h]"},
		{"cancel --state Processed", "[p pp d e h x]"}, // all that the server said
		{"pause --state Pending", "[p d e h x]"},
		{"resume --state Pending", "[pp]"},
	} {
		newOwner(t, all)
		r := readResult(t, waybill(t, "", append([]string{"order", "-o", "json"}, strings.Fields(c.args+" --yes")...)...))
		if got := fmt.Sprint(r.Done); got != c.want {
			t.Errorf("%s: %s instead of %s", c.args, got, c.want)
		}
	}
}

func TestDryRun(t *testing.T) {
	o := newOwner(t, listing("", "a Error", "b Error"), listing("", "a Error", "b Error"), listing(""), listing(""))
	waybill(t, "", "order", "resubmit", "--workflow", "w", "--dry-run").want(t, 0, "2 orders would be resubmitted.\n\nORDER", "")
	waybill(t, "", "order", "resubmit", "--workflow", "w", "--dry-run", "-o", "json").want(t, 0, `"matched": 2`, "")
	if len(o.asked) != 0 {
		t.Errorf("%+v", o.asked)
	}
	waybill(t, "", "order", "resubmit", "--workflow", "w", "--dry-run").want(t, 0, "0 orders", "")
	waybill(t, "", "order", "resubmit", "--workflow", "w").want(t, 0, "Matched    0", "")
}

// Ctrl-C lets what has begun end, begins nothing more, and says what was done.
func TestStopActingOnMany(t *testing.T) {
	var orders []string
	for n := range 200 {
		orders = append(orders, fmt.Sprintf("o-%d Error", n))
	}
	o := newOwner(t, listing("", orders...))
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var once sync.Once
	o.answer = func(id string, _ int, w http.ResponseWriter) {
		if id == "o-20" {
			once.Do(interrupt)
		}
		if n, err := strconv.Atoi(strings.TrimPrefix(id, "o-")); err == nil && n > 10 {
			<-ctx.Done() // whoever was asked last answers after the interrupt
		}
		done(id, w)
	}
	var out, errs bytes.Buffer
	code := run(ctx, []string{"order", "resubmit", "--state", "Error", "--rate", "0", "--yes", "-o", "json"}, strings.NewReader(""), &out, &errs)
	c := call{code, out.String(), errs.String()}
	c.want(t, 130, "", "waybill: stopped: ")
	r := readResult(t, c)
	if len(r.Failed) != 0 || len(r.Done) != len(o.asked) || len(r.Done)+len(r.NotTried) != 200 || len(r.NotTried) < 100 {
		t.Errorf("%d orders were asked for; %+v", len(o.asked), r)
	}
}

// A server that is gone for good ends it: no order fares better than the last.
func TestServerGoesAwayForGood(t *testing.T) {
	o := newOwner(t, listing("", "a Error", "b Error", "c Error"))
	var once sync.Once
	gone := httptest.NewUnstartedServer(nil)
	gone.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			fmt.Fprint(w, o.pages[0])
			return
		}
		once.Do(func() { _ = gone.Listener.Close() }) // it accepts nobody any more
		panic(http.ErrAbortHandler)
	})
	gone.Start()
	defer gone.Close()
	c := waybill(t, "", "order", "resubmit", "--state", "Error", "--rate", "0.5", "--yes", "-o", "json", "--server", gone.URL)
	c.want(t, 6, "", api.ErrAway.Error())
	if r := readResult(t, c); len(r.Done) != 0 || len(r.Failed) == 0 || len(r.NotTried) == 0 {
		t.Errorf("%+v", r)
	}
}

func TestRate(t *testing.T) {
	for rate, apart := range map[float64]time.Duration{20: 50 * time.Millisecond, 0.5: 2 * time.Second, 0: 0} {
		synctest.Test(t, func(t *testing.T) {
			begin, turns := time.Now(), 0
			for i := range (&bulk{rate: rate}).turns(t.Context(), 5) {
				if after := time.Since(begin); i != turns || after != time.Duration(i)*apart {
					t.Errorf("at %g a second, turn %d is number %d, after %s", rate, turns, i, after)
				}
				turns++
			}
			if turns != 5 {
				t.Errorf("%d turns", turns)
			}
		})
	}
}

// While the turn of the second order does not come, nobody asks for it.
func TestRateOfActing(t *testing.T) {
	o := newOwner(t, listing("", "a Error", "b Error", "c Error", "d Error", "e Error"))
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	o.answer = func(id string, _ int, w http.ResponseWriter) {
		done(id, w)
		interrupt()
	}
	var out, errs bytes.Buffer
	code := run(ctx, []string{"order", "resubmit", "--state", "Error", "--rate", "0.0001", "--yes", "-o", "json"}, strings.NewReader(""), &out, &errs)
	c := call{code, out.String(), errs.String()}
	c.want(t, 130, "", "waybill: stopped: ")
	if r := readResult(t, c); fmt.Sprint(r.Done) != "[a]" || len(r.NotTried) != 4 {
		t.Errorf("%+v", r)
	}
}

func TestActUsage(t *testing.T) {
	o := newOwner(t)
	long := strings.Repeat("x", 257)
	for args, says := range map[string]string{
		"resubmit":                               "name an order, or choose orders with --state, --workflow or --where",
		"cancel --step s":                        "name an order, or choose orders",
		"resubmit a b":                           "waybill order resubmit [ID]",
		"resubmit o-1 --state Error":             "--state chooses among many orders",
		"resubmit o-1 --workflow w":              "--workflow chooses among many orders",
		"cancel o-1 --dry-run":                   "--dry-run chooses among many orders",
		"cancel o-1 --step s":                    "--step chooses among many orders",
		"skip-step o-1":                          "--step",
		"skip-step --state Error":                "--step",
		"skip-step o-1 --step s --step-output x": "--step-output:1:1: not JSON",
		"resubmit o-1 --input {":                 "--input:1:2: not JSON",
		"resubmit --state Lost":                  "Pending, Processing",
		"resubmit --state Error --rate -1":       "--rate -1: use 0 or more",
		"resubmit --state Error --rate NaN":      "--rate",
		"resubmit --state Error --rate fast":     "--rate",
		"pause o-1 --input {}":                   "unknown flag: --input",
		"pause " + long:                          "256",
		"pause o-1 -o xml":                       "use one of table, wide, json, yaml, name",
	} {
		waybill(t, "", append([]string{"order"}, strings.Fields(args)...)...).want(t, 2, "", says)
	}
	waybill(t, "", "order", "resubmit", "o-1", "--input", "@/none/there").want(t, 1, "", "--input: open /none/there")
	waybill(t, "", "order", "pause", "o-1", "--server", "http://127.0.0.1:1").want(t, 6, "", "no Waybill answers")
	waybill(t, "", "order", "pause", "--state", "Error", "--server", "http://127.0.0.1:1").want(t, 6, "", "no Waybill answers")
	if len(o.asked) != 0 || len(o.listed) != 0 {
		t.Errorf("the server was asked: %+v, %q", o.asked, o.listed)
	}
}

// P3, P4: what an operator needs to see of an order stands in its table.
func TestOrderTable(t *testing.T) {
	newOwner(t)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/orders/o-1", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"orderId":"o-1","workflow":"w","version":1,"processState":"Error","completeBy":null,"deadline":"2030-01-03T15:04:05.000Z","waitsSince":"2030-01-02T15:04:05.000Z","toward":"Cancelled","paused":true,"signals":[{"signal":"early","id":"e-1","until":"2030-01-02T15:04:05.000Z","data":{"n":1}},{"signal":"early","id":null,"until":"2030-01-02T15:04:05.000Z"}],"reason":"undo of a failed",
			"alert":{"order":"o-1","reason":"undo of a failed","errors":[],"action":"waybill order resubmit o-1"},
			"steps":[
			{"name":"a","state":"completed","attempt":2,"failureCount":1,"output":{"x":1},"error":null,"undo":{"state":"failed","attempt":3,"failureCount":3,"uncounted":1,"error":{"code":"down","message":"no answer"},"input":[7]}},
			{"name":"b","state":"expired","attempt":3,"failureCount":3,"uncounted":2,"unknown":true,"round":2,"due":"2030-01-02T15:04:05.000Z","error":{"code":"expired"}},
			{"name":"c","state":"skipped","attempt":1,"failureCount":1,"output":"by hand","error":{"code":"x","permanent":true}},
			{"name":"d","state":"running","attempt":2,"failureCount":1,"error":{"code":"busy"},"input":{"n":1},"earlierKeys":["o-1/d","o-1/d:2"]},
			{"name":"e","state":"not-started","due":"2030-01-02T15:04:05.000Z","waits":{"since":"2030-01-02T15:04:05.000Z","agent":"x","before":7,"window":0.25,"underWay":3,"silentSince":"2030-01-02T15:00:00.000Z"}},
			{"name":"g","state":"not-started","due":"2030-01-02T15:04:05.000Z","waits":{"since":"2030-01-02T15:04:05.000Z","agent":"x","before":1,"window":2,"underWay":1,"probed":false}},
			{"name":"h","state":"not-started","due":"2030-01-02T15:04:05.000Z","waits":{"since":"2030-01-02T15:04:05.000Z","agent":"x","before":12,"window":0,"underWay":0,"probed":true}},
			{"name":"i","state":"sleeping","attempt":1,"due":"2030-01-02T15:04:05.000Z"},
			{"name":"j","state":"sleeping","attempt":1,"due":null,"left":"6m30s"},
			{"name":"k","state":"sleeping","attempt":1,"due":null,"wakes":"2030-01-02T15:04:05.000Z"},
			{"name":"m","state":"listening","attempt":1,"listens":{"how":"one","signals":["paid"],"left":1},"due":"2030-01-02T15:04:05.000Z"},
			{"name":"n","state":"listening","attempt":1,"output":[1],"listens":{"how":"one","signals":["vote"],"left":2},"due":null},
			{"name":"o","state":"listening","attempt":1,"output":{"a":null},"listens":{"how":"all","signals":["b","c"],"left":2},"due":null,"left":"6m30s"},
			{"name":"p","state":"timed-out","attempt":1},
			{"name":"q","state":"undone","attempt":1,"leaves":true,"child":{"order":"@o-1/q"}},
			{"name":"l","state":"failed","attempt":2,"failureCount":2,"passed":true,"error":{"code":"busy"}},
			{"name":"f","state":"not-started","due":"2030-01-02T15:04:05.000Z","waits":{"since":"2030-01-02T15:04:05.000Z","agent":"x","before":null,"window":null,"underWay":null,"silentSince":null}}]}`)
	})
	mux.HandleFunc("GET /api/v1/orders/o-1/history", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"events":[
			{"type":"waybill.step.retried","order":"o-1","seq":1,"at":"2030-01-02T15:04:05Z","step":"a","attempt":4,"round":2,"due":"2030-01-02T16:04:05Z"},
			{"type":"waybill.step.retried","order":"o-1","seq":1,"at":"2030-01-02T15:04:05Z","step":"b","attempt":1,"due":"2030-01-02T15:04:05Z","reason":"waits for agent x"},
			{"type":"waybill.undo.retried","order":"o-1","seq":1,"at":"2030-01-02T15:04:05Z","step":"b","attempt":3,"due":"2030-01-02T15:04:15Z"},
			{"type":"waybill.step.started","order":"o-1","seq":1,"at":"2030-01-02T15:04:06Z","step":"b","attempt":1,"agent":"x","operation":"do","completeBy":"2030-01-02T15:04:16Z","lockedBy":"i"},
			{"type":"waybill.step.started","order":"o-1","seq":1,"at":"2030-01-02T15:04:16Z","step":"b","attempt":2,"agent":"x","operation":"do","completeBy":"2030-01-02T15:04:26Z","lockedBy":"i"},
			{"type":"waybill.undo.started","order":"o-1","seq":1,"at":"2030-01-02T15:07:12.4Z","step":"b","attempt":3,"agent":"x","operation":"un","completeBy":"2030-01-02T15:07:22.4Z","outcome":"completed","lockedBy":"i"},
			{"type":"waybill.step.retried","order":"o-1","seq":1,"at":"2030-01-02T15:04:05Z","step":"c","attempt":7,"due":"2030-01-02T15:04:05Z"},
			{"type":"waybill.step.sleeping","order":"o-1","seq":1,"at":"2030-01-02T15:04:05Z","step":"i","attempt":1,"due":"2030-01-02T16:04:05Z"},
			{"type":"waybill.step.sleeping","order":"o-1","seq":1,"at":"2030-01-02T15:04:05Z","step":"k","attempt":1,"due":"2030-01-02T16:04:05Z","fixed":true},
			{"type":"waybill.step.started","order":"o-1","seq":1,"at":"2030-01-02T15:04:06Z","step":"n","attempt":1,"agent":"x","operation":"do","completeBy":"2030-01-02T15:04:16Z","extendTo":"2030-01-02T16:04:06Z","lockedBy":"i"},
			{"type":"waybill.step.extended","order":"o-1","seq":1,"at":"2030-01-02T15:04:12Z","step":"n","attempt":1,"completeBy":"2030-01-02T15:04:22Z","answeredBy":"/w/agents/x","source":"w.replies/0/7"},
			{"type":"waybill.reply.discarded","order":"o-1","seq":1,"at":"2030-01-02T15:04:12Z","step":"o","attempt":1,"reason":"fixed"},
			{"type":"waybill.step.woke","order":"o-1","seq":1,"at":"2030-01-02T16:04:05Z","step":"i","attempt":1},
			{"type":"waybill.step.listening","order":"o-1","seq":1,"at":"2030-01-02T15:04:05Z","step":"m","attempt":1,"listen":"one","signals":["paid"],"due":"2030-01-02T16:04:05Z"},
			{"type":"waybill.step.listening","order":"o-1","seq":1,"at":"2030-01-02T15:04:05Z","step":"n","attempt":1,"listen":"one","signals":["vote"],"count":3},
			{"type":"waybill.step.listening","order":"o-1","seq":1,"at":"2030-01-02T15:04:05Z","step":"o","attempt":1,"listen":"all","signals":["a","b","c"]},
			{"type":"waybill.signal.kept","order":"o-1","seq":1,"at":"2030-01-02T15:04:05Z","signal":"early","signalId":"e-1","data":{"n":1},"due":"2030-01-03T15:04:05Z","source":"waybill.signals/0/7","answeredBy":"/shop/bank"},
			{"type":"waybill.step.heard","order":"o-1","seq":1,"at":"2030-01-02T15:04:05Z","step":"n","attempt":1,"signal":"vote","data":1,"source":"waybill.signals/0/8"},
			{"type":"waybill.step.heard","order":"o-1","seq":1,"at":"2030-01-02T15:04:05Z","step":"o","attempt":1,"signal":"a","source":"waybill.signals/0/6"},
			{"type":"waybill.signal.expired","order":"o-1","seq":1,"at":"2030-01-02T15:04:05Z","signal":"early","signalId":"e-1","source":"waybill.signals/0/7"},
			{"type":"waybill.signal.discarded","order":"o-1","seq":1,"at":"2030-01-02T15:04:05Z","signal":"other","reason":"unheard","source":"waybill.signals/0/9"},
			{"type":"waybill.step.timed-out","order":"o-1","seq":1,"at":"2030-01-02T16:04:05Z","step":"p","attempt":1},
			{"type":"waybill.step.passed","order":"o-1","seq":1,"at":"2030-01-02T16:04:05Z","step":"l","attempt":2,"reason":"step l failed 2 of 2 attempts, at last: busy"},
			{"type":"waybill.order.completed","order":"o-1","seq":1,"at":"2030-01-02T16:04:05Z","failedSteps":["l","m"]},
			{"type":"waybill.order.paused","order":"o-1","seq":2,"at":"2030-01-02T15:04:05Z","by":"ann@ops","reason":"wait","command":"k"},
			{"type":"waybill.step.started","order":"o-1","seq":2,"at":"2030-01-02T15:09:05Z","step":"c","attempt":7,"agent":"x","operation":"do","completeBy":"2030-01-02T15:09:15Z","lockedBy":"i"},
			{"type":"waybill.order.resumed","order":"o-1","seq":3,"at":"2030-01-02T15:04:05Z","by":"bob@ops"},
			{"type":"waybill.step.skipped","order":"o-1","seq":4,"at":"2030-01-02T15:04:05Z","step":"b","by":"ann@ops","reason":"by hand","output":[1]},
			{"type":"waybill.order.compensating","order":"o-1","seq":5,"at":"2030-01-02T15:04:05Z","end":"Cancelled","reason":"no more"},
			{"type":"waybill.undo.completed","order":"o-1","seq":6,"at":"2030-01-02T15:04:05Z","step":"q","attempt":1,"left":true,"source":"waybill.internal/0/9"},
			{"type":"waybill.undo.started","order":"o-1","seq":6,"at":"2030-01-02T15:04:05Z","step":"a","attempt":1,"agent":"x","operation":"un","completeBy":"2030-01-02T15:04:15Z","outcome":"unknown","lockedBy":"i"},
			{"type":"waybill.undo.failed","order":"o-1","seq":7,"at":"2030-01-02T15:04:05Z","step":"a","attempt":1,"error":{"code":"down"}},
			{"type":"waybill.command.refused","order":"o-1","seq":8,"at":"2030-01-02T15:04:05Z","operation":"cancel","by":"ann@ops","reason":"too late"},
			{"type":"waybill.order.terminated","order":"o-1","seq":9,"at":"2030-01-02T15:04:05Z","by":"ann@ops","reason":"enough","notUndone":["a"],"mayHaveRun":["b"]},
			{"type":"waybill.order.changed","order":"o-1","seq":10,"at":"2030-01-02T15:04:05Z","by":"ann@ops","priority":"high","deadline":"2030-01-02T15:04:05Z"},
			{"type":"waybill.order.changed","order":"o-1","seq":11,"at":"2030-01-02T15:04:05Z","by":"ann@ops"},
			{"type":"waybill.order.resubmitted","order":"o-1","seq":9,"at":"2030-01-02T15:04:05Z","by":"ann@ops","sameKey":true},
			{"type":"waybill.order.resubmitted","order":"o-1","seq":9,"at":"2030-01-02T15:04:05Z","by":"bob@ops","kept":["c","d"],"mayHaveRun":["a","b"]},
			{"type":"waybill.order.resubmitted","order":"o-1","seq":9,"at":"2030-01-02T15:04:05Z","by":"cid@ops","newKey":true},
			{"type":"waybill.order.resubmitted","order":"o-1","seq":9,"at":"2030-01-02T15:04:05Z","by":"dan@ops","kept":["c"],"mayHaveRun":["a"]},
			{"type":"waybill.step.started","order":"o-1","seq":9,"at":"2030-01-02T15:04:05Z","step":"a","attempt":1,"agent":"x","operation":"do","completeBy":"2030-01-02T15:04:15Z","lockedBy":"i","idempotencyKey":"o-1/a"},
			{"type":"waybill.step.started","order":"o-1","seq":9,"at":"2030-01-02T15:04:05Z","step":"a","attempt":2,"agent":"x","operation":"do","completeBy":"2030-01-02T15:04:15Z","lockedBy":"i","idempotencyKey":"o-1/a:2"},
			{"type":"waybill.undo.started","order":"o-1","seq":9,"at":"2030-01-02T15:04:05Z","step":"a","attempt":1,"agent":"x","operation":"un","completeBy":"2030-01-02T15:04:15Z","lockedBy":"i","idempotencyKey":"o-1/a:2:undo"},
			{"type":"waybill.undo.retried","order":"o-1","seq":9,"at":"2030-01-02T15:04:05Z","step":"a","attempt":2,"due":"2030-01-02T15:04:05Z","reason":"waits for agent x; next is what was done under o-1/a"},
			{"type":"waybill.undo.started","order":"o-1","seq":9,"at":"2030-01-02T15:04:05Z","step":"a","attempt":2,"agent":"x","operation":"un","completeBy":"2030-01-02T15:04:15Z","lockedBy":"i","idempotencyKey":"o-1/a:undo"},
			{"type":"waybill.undo.started","order":"o-1","seq":9,"at":"2030-01-02T15:04:05Z","step":"a","attempt":3,"agent":"x","operation":"un","completeBy":"2030-01-02T15:04:15Z","lockedBy":"i","idempotencyKey":"o-1/a:undo"},
			{"type":"waybill.order.cancelled","order":"o-1","seq":10,"at":"2030-01-02T15:04:05Z","undone":["a"],"notUndone":["b","c"]}]}`)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	for _, c := range []struct {
		command string
		lines   []string
	}{
		{"get", []string{
			"State Error, toward Cancelled, paused", "Reason undo of a failed", "Complete by waits", "Deadline 2030-01-03T15:04:05.000Z", "To do waybill order resubmit o-1",
			`a completed 2 1 - {"x":1}`, "undo failed 3 3, of them 1 not counted - down: no answer; its own input [7]",
			"b expired 3 3, of them 2 not counted - expired; next attempt at 2030-01-02T15:04:05.000Z; extended wait 2; it may have run, or not",
			`c skipped 1 1 - "by hand"; before: x (permanent)`, `d running 2 1 - before: busy; its own input {"n":1}; it may have run before as o-1/d, o-1/d:2`,
			"e not-started 0 0 - waits for agent x since 2030-01-02T15:04:05.000Z, behind 7 others of its partition; 3 are with the agent, and 0.25 may queue there; the agent has answered nothing since 2030-01-02T15:00:00.000Z",
			"g not-started 0 0 - waits for agent x since 2030-01-02T15:04:05.000Z, behind 1 other of its partition; 1 is with the agent, and 2 may queue there",
			"h not-started 0 0 - waits for agent x since 2030-01-02T15:04:05.000Z, behind 12 others of its partition; 0 are with the agent, which gives no sign: one request at a time probes it",
			"i sleeping 1 0 - until 2030-01-02T15:04:05.000Z", "j sleeping 1 0 - 6m30s more after the pause",
			"k sleeping 1 0 - until 2030-01-02T15:04:05.000Z, or the end of the pause", "l failed 2 2 - busy; the order went on without it",
			"f not-started 0 0 - waits for agent x since 2030-01-02T15:04:05.000Z",
			"m listening 1 0 - for paid, until 2030-01-02T15:04:05.000Z", "n listening 1 0 - [1]; for 2 of vote",
			`o listening 1 0 - {"a":null}; for all of b, c, 6m30s more after the pause`, "p timed-out 1 0 - -",
			"q undone 1 0 - something that an order did for it was not undone: see the history",
			`Signal kept early e-1, until 2030-01-02T15:04:05.000Z: {"n":1}`, "Signal kept early, until 2030-01-02T15:04:05.000Z: -",
		}},
		{"history", []string{
			"step.retried a 4 extended wait 2; next attempt after 1h0m0s", "step.retried b 1 waits for agent x",
			"step.started b 1 agent x: do, complete by +10s, on i", "step.started b 2 agent x: do, complete by +10s, on i",
			"step.sleeping i 1 for 1h0m0s; until 2030-01-02T16:04:05.000Z", "step.sleeping k 1 until 2030-01-02T16:04:05.000Z", "step.woke i 1 it has slept",
			"step.started n 1 agent x: do, complete by +10s, on i; up to +1h0m0s as long as it says that it is still at it",
			"step.extended n 1 still at it, complete by +10s; from /w/agents/x, as it says, at w.replies/0/7",
			"reply.discarded o 1 fixed: the agent is still at it, and the complete-by cannot be moved: the workflow gives the step's timeout no max, or the order's deadline comes first",
			"step.listening m 1 for paid; until 2030-01-02T16:04:05.000Z", "step.listening n 1 for 3 of vote", "step.listening o 1 for all of a, b, c",
			`signal.kept - - early e-1; until 2030-01-03T15:04:05.000Z; {"n":1}; from /shop/bank, as it says, at waybill.signals/0/7`,
			"step.heard n 1 vote; 1; at waybill.signals/0/8, from nobody who says so", "step.heard o 1 a; at waybill.signals/0/6",
			"signal.expired - - early e-1", "signal.discarded - - other; unheard; at waybill.signals/0/9, from nobody who says so", "step.timed-out p 1 nothing came in time",
			"step.passed l 2 step l failed 2 of 2 attempts, at last: busy", "order.completed - - without: l, m",
			"undo.started b 3 2m57s after it was due; agent x: un, complete by +10s, on i", "step.started c 7 agent x: do, complete by +10s, on i",
			"order.paused - - by ann@ops, as the sender claims; wait", "order.resumed - - by bob@ops, as the sender claims",
			"step.skipped b - by ann@ops, as the sender claims; by hand; [1]", "order.compensating - - toward Cancelled; no more",
			"undo.completed q 1 something of it was not undone: see its order; its order says so, at waybill.internal/0/9",
			"undo.started a 1 agent x: un, complete by +10s, on i; the step may have run, or not", "undo.failed a 1 down",
			"command.refused - - cancel; by ann@ops, as the sender claims; too late", "order.resubmitted - - by ann@ops, as the sender claims; with the same keys", "order.resubmitted - - by cid@ops, as the sender claims; with new keys",
			"order.resubmitted - - by bob@ops, as the sender claims; the same idempotency keys for steps c, d; new idempotency keys for steps a, b, which may have run",
			"order.resubmitted - - by dan@ops, as the sender claims; the same idempotency key for step c; a new idempotency key for step a, which may have run",
			"step.started a 1 agent x: do, complete by +10s, on i", "step.started a 2 agent x: do, complete by +10s, on i; under key o-1/a:2",
			"undo.started a 1 agent x: un, complete by +10s, on i; under key o-1/a:2:undo", "undo.retried a 2 waits for agent x; next is what was done under o-1/a",
			"undo.started a 2 agent x: un, complete by +10s, on i; under key o-1/a:undo", "undo.started a 3 agent x: un, complete by +10s, on i",
			"order.cancelled - - undone: a; not undone: b, c",
			"order.changed - - priority high; deadline 2030-01-02T15:04:05.000Z; by ann@ops, as the sender claims", "order.changed - - priority normal; no deadline; by ann@ops, as the sender claims",
			"order.terminated - - undone: -; not undone: a; may have run, or been undone, and nobody knows: b; by ann@ops, as the sender claims; enough",
		}},
	} {
		got := waybill(t, "", "order", c.command, "o-1", "--server", server.URL)
		var text []string
		for line := range strings.Lines(got.out) {
			text = append(text, strings.Join(strings.Fields(line), " "))
		}
		for _, want := range c.lines {
			if !slices.ContainsFunc(text, func(line string) bool { return strings.HasSuffix(line, want) }) {
				t.Errorf("%s: no line %q in\n%s%s", c.command, want, got.out, got.errs)
			}
		}
	}
}

// What Waybill keeps under ids of its own is no order, and says so; an order without a deadline says that.
func TestRecordsThatAreNoOrders(t *testing.T) {
	mux := http.NewServeMux()
	held, alert := "false", "null"
	mux.HandleFunc("GET /api/v1/orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"orderId":%q,"workflow":"","processState":"Pending","held":%s,"reason":"it panicked","alert":%s}`, r.PathValue("id"), held, alert)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	get := func(id string) string {
		c := waybill(t, "", "order", "get", id, "--server", server.URL)
		c.want(t, 0, "", "")
		return strings.Join(strings.Fields(c.out), " ")
	}
	for id, says := range map[string]string{
		"@r-1/signal.payment":       "Is the home of signals of one name under a key; it is no order See waybill order history Updated",
		"@/limit.crm":               "Is the home of limit crm; it is no order See waybill limit show crm Updated",
		"@c-7/open.invoice":         "Is the home of the turns of orders of workflow invoice that have the same key; it is no order See waybill order history Updated",
		"@nightly":                  "Is schedule nightly; it is no order See waybill schedule show nightly Updated",
		"@nightly/1/2026-11-25T02Z": "Order @nightly/1/2026-11-25T02Z Workflow - State Pending",
		"o-1":                       "Deadline none",
	} {
		if got := get(id); !strings.Contains(got, says) || strings.HasPrefix(says, "Is ") && strings.Contains(got, "State") {
			t.Errorf("of %s it says %s", id, got)
		}
	}
	held, alert = "true", `{"action":"release it"}`
	if got := get("@/limit.crm"); !strings.Contains(got, "Held it panicked To do release it") {
		t.Errorf("of one that is held it says %s", got)
	}
}

// What becomes of the steps of an order that migrates is said of each; they stay where nothing does.
func TestWhatAMigrationIsSaidToDo(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"orderId":%q,"workflow":"w","version":1}`, r.PathValue("id"))
	})
	mux.HandleFunc("GET /api/v1/orders/{id}/migration", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"orderId":%q,"version":1,"toVersion":2,"forbids":[],%s}`, r.PathValue("id"), map[string]string{
			"stays": `"steps":[],"changed":[]`, "changes": `"steps":[],"changed":["a","b"]`, "both": `"steps":[{"step":"c","change":"new"}],"changed":["a"]`,
		}[r.PathValue("id")])
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	c := waybill(t, "", "order", "migrate", "stays", "changes", "both", "--to", "2", "--dry-run", "--server", server.URL)
	c.want(t, 0, "", "")
	var rows []string
	for line := range strings.Lines(c.out) {
		rows = append(rows, strings.Join(strings.Fields(line), " "))
	}
	if got, want := strings.Join(rows[3:], "\n"), "stays 1 - its steps stay\nchanges 1 - changed: a, b\nboth 1 c new\nboth 1 - changed: a"; got != want {
		t.Errorf("it says\n%s\nand not\n%s", c.out, want)
	}
}
