package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// receipt answers that an order was submitted.
func receipt(id string, w http.ResponseWriter) {
	w.WriteHeader(http.StatusAccepted)
	fmt.Fprintf(w, `{"orderId":%q}`, id)
}

// What is asked for is what was given, under an id that is known before: a server that does not
// know the order yet is asked for the same again.
func TestWhatARerunAsksFor(t *testing.T) {
	o := newOwner(t)
	o.answer = func(_ string, n int, w http.ResponseWriter) {
		if n == 1 {
			w.Header().Set("Retry-After", "1")
			problem(w, 503, "not known yet")
			return
		}
		receipt("made", w)
	}
	if c := waybill(t, `{"card":"4711"}`, "order", "rerun", "a/b", "--id", "new", "--version", "3", "--input", "-", "--deadline", "2030-01-02T15:04:05Z"); c.code != exitDone || c.out != "made\n" {
		t.Errorf("%+v", c)
	}
	if all := o.asked["a/b"]; len(all) != 2 || fmt.Sprint(all[0]) != fmt.Sprint(all[1]) || all[0].command != "rerun" || fmt.Sprint(all[0].body) != "map[deadline:2030-01-02T15:04:05Z id:new input:map[card:4711] version:3]" {
		t.Errorf("%+v", all)
	}
	waybill(t, "", "order", "rerun", "o-1", "-o", "json").want(t, 0, `"orderId": "made"`, "")
	first, again := o.asked["o-1"][0].body, o.asked["o-1"][1].body
	if id, _ := first["id"].(string); len(id) != 36 || again["id"] != id || len(first) != 1 {
		t.Errorf("%v, %v", first, again)
	}
	waybill(t, "", "order", "rerun", "o-1", "--input", "null").want(t, 0, "made", "")
	if body := o.asked["o-1"][2].body; body["id"] == first["id"] || fmt.Sprint(body["input"]) != "<nil>" || len(body) != 2 {
		t.Errorf("%v", body)
	}
}

// What is refused is said of the order, and not tried again.
func TestARerunIsRefused(t *testing.T) {
	o := newOwner(t)
	o.answer = func(_ string, _ int, w http.ResponseWriter) { problem(w, 409, "it has not ended") }
	waybill(t, "", "order", "rerun", "o-1").want(t, 4, "", "waybill: order o-1 was not run again: it has not ended")
	waybill(t, "", "order", "rerun", "o-1", "--wait").want(t, 4, "", "waybill: order o-1 was not run again: it has not ended")
	o.answer = func(_ string, _ int, w http.ResponseWriter) { problem(w, 404, `there is no order "o-1"`) }
	waybill(t, "", "order", "rerun", "o-1").want(t, 3, "", `waybill: there is no order "o-1"`)
	if n := len(o.asked["o-1"]); n != 3 {
		t.Errorf("it was asked %d times", n)
	}
}

func TestRerunUsage(t *testing.T) {
	o := newOwner(t)
	for args, says := range map[string]string{
		"":                         "waybill order rerun ID",
		"o-1 o-2":                  "waybill order rerun ID",
		"o-1 --input {":            "--input:1:2: not JSON",
		"o-1 --input=":             "--input",
		"o-1 --deadline tomorrow":  `--deadline: "tomorrow" is neither a time such as`,
		"o-1 --version x":          "--version",
		"o-1 --id " + long(257):    "--id: the order id has 257 bytes",
		long(257):                  "the order id has 257 bytes",
		"o-1 --workflow something": "--workflow",
	} {
		waybill(t, "", append([]string{"order", "rerun"}, strings.Fields(args)...)...).want(t, 2, "", says)
	}
	if len(o.asked) != 0 {
		t.Errorf("the server was asked: %+v", o.asked)
	}
}

func long(n int) string { return strings.Repeat("x", n) }

// It is followed as what is submitted is, and says so where another submission made the order.
func TestRerunThatIsWaitedFor(t *testing.T) {
	clearEnvironment(t)
	var order atomic.Value
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/v1/orders/o-1/rerun", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprint(w, `{"orderId":"o-2","digest":"d"}`)
	})
	mux.HandleFunc("GET /api/v1/orders/o-2", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, order.Load()) })
	server := httptest.NewServer(mux)
	defer server.Close()
	t.Setenv("WAYBILL_SERVER", server.URL)
	const another = "order o-2 was made by another submission"
	for _, c := range []struct {
		order, out, errs string
		code             int
	}{
		{`"processState":"Processed","digest":"d","rerunOf":"o-1"`, "Rerun of  o-1", "", exitDone},
		{`"processState":"Cancelled","digest":"d","rerunOf":"o-1"`, "Cancelled", "order o-2 is Cancelled", exitEnded},
		{`"processState":"Rejected","digest":"d","reason":"no good"`, "Rejected", "order o-2 is Rejected: no good", exitEnded},
		{`"processState":"Processed","digest":"e","rerunOf":"o-1"`, "", another, 1},
		{`"processState":"Processed","rerunOf":"o-1","masked":true`, "Processed", "", exitDone},
		{`"processState":"Processed","rerunOf":"o-0","masked":true`, "", another, 1},
		{`"processState":"Processed","masked":true`, "", another, 1},
		{`"processState":"Rejected","masked":true`, "Rejected", "order o-2 is Rejected", exitEnded},
	} {
		order.Store(`{"orderId":"o-2",` + c.order + `}`)
		waybill(t, "", "order", "rerun", "o-1", "--id", "o-2", "--wait").want(t, c.code, c.out, c.errs)
	}
}
