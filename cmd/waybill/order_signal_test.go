package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What became of a signal is printed, and said by the exit code.
func TestSignal(t *testing.T) {
	o := newOwner(t)
	const nothing = "waybill: the signal changed nothing: "
	for _, c := range []struct {
		heard, out, errs string
		code             int
	}{
		{`{"outcome":"matched","step":"paid","reason":null,"seq":7}`, "matched: step paid heard it\n", "", exitDone},
		{`{"outcome":"kept","step":null,"reason":null,"seq":7}`, "kept\n", "", exitDone},
		{`{"outcome":"repeated","step":null,"reason":"repeated","seq":7}`, "repeated\n", "", exitDone},
		{`{"outcome":"held","step":null,"reason":null,"seq":7}`, "held\n", "", exitDone},
		{`{"outcome":"late","step":null,"reason":"late","seq":7}`, "late\n", nothing + "nothing listens for it any more\n", 1},
		{`{"outcome":"late","step":null,"reason":"unheard","seq":7}`, "late\n", nothing + "no step of the order listens for a signal of this name\n", 1},
		{`{"outcome":"declined","step":null,"reason":"too-many","seq":7}`, "declined\n", nothing + "no more signals are kept: 100 are, or 1 MiB of them, or the order gave up 100 before that nothing heard in time; or as many are under way, 1 MiB of them or 1,000 that are to start orders\n", 1},
		{`{"outcome":"matched","order":"o-2","step":"paid","reason":null,"seq":7}`, "matched: step paid of order o-2 heard it\n", "", exitDone},
		{`{"outcome":"declined","step":null,"reason":"given-up","seq":7}`, "declined\n", nothing + "the order to which it was given could not decide on it, and an operator gave it up, or it could not wait; it is among the dead letters\n", 1},
		{`{"outcome":"declined","step":null,"reason":"too-large","seq":7}`, "declined\n", nothing + "it is too large for the step that listens, whose output has at most 1 MiB, or for the order that it would start\n", 1},
		{`{"outcome":"declined","step":null,"reason":"send it again later","seq":7}`, "declined\n", nothing + "send it again later\n", 1},
		{`{"outcome":"dead-letter","step":null,"reason":null,"seq":7}`, "dead-letter\n", nothing + "it is among the dead letters, and the order's history says why\n", 1},
		{`{"outcome":"unrecorded","step":null,"reason":null,"seq":null}`, "unrecorded\n", nothing + "the order has recorded a hundred of its like, and says of no other why\n", 1},
		{`{"outcome":"declined","step":null,"reason":null,"seq":null}`, "declined\n", nothing + "the order has recorded a hundred of its like, and says of no other why\n", 1},
	} {
		o.answer = func(_ string, _ int, w http.ResponseWriter) { fmt.Fprint(w, c.heard) }
		got := waybill(t, "", "order", "signal", "o-1", "payment")
		if got.out != c.out || got.errs != c.errs || got.code != c.code {
			t.Errorf("%s: %+v", c.heard, got)
		}
	}
	// For machines nothing is left out, however it ended.
	waybill(t, "", "order", "signal", "o-1", "payment", "-o", "json").want(t, 1, `"seq": null`, "changed nothing")

	o.answer = func(_ string, _ int, w http.ResponseWriter) { problem(w, 404, `no order "o-1"`) }
	waybill(t, "", "order", "signal", "o-1", "payment").want(t, 3, "", `no order "o-1"`)
}

// What is sent is what was given. Without an id a signal gets one, with which it can be sent again.
func TestWhatASignalSays(t *testing.T) {
	o := newOwner(t)
	o.answer = func(_ string, _ int, w http.ResponseWriter) { fmt.Fprint(w, `{"outcome":"kept"}`) }
	file := filepath.Join(t.TempDir(), "data.json")
	if err := os.WriteFile(file, []byte(`{"amount":12}`), 0o600); err != nil {
		t.Fatal(err)
	}
	waybill(t, "", "order", "signal", "a/b", "payment", "--id", "p-1", "--data", "@"+file, "--reply-to", "bank").want(t, 0, "kept", "")
	waybill(t, "[1]", "order", "signal", "o-1", "payment", "--data", "-").want(t, 0, "kept", "")
	before := time.Now()
	waybill(t, "", "order", "signal", "o-2", "payment", "--keep", "24h").want(t, 0, "kept", "")
	if s := o.asked["a/b"][0]; s.command != "signals" || fmt.Sprint(s.body) != "map[data:map[amount:12] id:p-1 replyTo:bank signal:payment]" {
		t.Errorf("%+v", s)
	}
	first, second := o.asked["o-1"][0].body, o.asked["o-2"][0].body
	if id, _ := first["id"].(string); id == "" || id == second["id"] || fmt.Sprint(first["data"]) != "[1]" || first["keepUntil"] != nil {
		t.Errorf("%v, %v", first, second)
	}
	text, _ := second["keepUntil"].(string)
	until, err := time.Parse(time.RFC3339, text)
	if keep := until.Sub(before); err != nil || keep < 24*time.Hour || second["data"] != nil {
		t.Errorf("%v: %v", second, err)
	}

	waybill(t, "", "signal", "ref 7", "payment", "--id", "p-1", "--data", "12").want(t, 0, "kept", "")
	if s := o.asked[""][0]; fmt.Sprint(s.body) != "map[data:12 id:p-1 key:ref 7 signal:payment]" {
		t.Errorf("%+v", s)
	}
	waybill(t, "", "signal", "payment").want(t, exitUsage, "", "usage: waybill signal KEY SIGNAL")

	// As long as nobody knows what became of it, it says how to go on.
	o.answer = func(_ string, _ int, w http.ResponseWriter) { problem(w, 503, "nobody knows yet") }
	c := waybill(t, "", "order", "signal", "o-3", "payment")
	id, _ := o.asked["o-3"][0].body["id"].(string)
	c.want(t, 6, "", "nobody knows yet; it can be sent again with --id "+id+", and acts once\n")
	for _, s := range o.asked["o-3"] {
		if s.body["id"] != id {
			t.Errorf("one signal is sent under the ids %v and %s", s.body["id"], id)
		}
	}
	for n, answer := range []func(http.ResponseWriter){
		func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
		func(w http.ResponseWriter) { page(w, "504") },
	} {
		o.mu.Lock() // whose connection ends knows nothing of what its handler did
		o.answer = func(_ string, _ int, w http.ResponseWriter) { answer(w) }
		o.mu.Unlock()
		c := waybill(t, "", "signal", "ref-8", "payment")
		o.mu.Lock()
		id, _ := o.asked[""][n+1].body["id"].(string)
		o.mu.Unlock()
		c.want(t, 6, "", "; it can be sent again with --id "+id+", and acts once\n")
	}
	o.answer = func(_ string, _ int, w http.ResponseWriter) { problem(w, 422, "no good") }
	if c := waybill(t, "", "signal", "ref-8", "payment"); c.code != exitRefused || strings.Contains(c.errs, "--id") {
		t.Errorf("%+v", c)
	}
}

func TestSignalUsage(t *testing.T) {
	o := newOwner(t)
	for args, says := range map[string]string{
		"":                           "waybill order signal ORDER SIGNAL",
		"o-1":                        "waybill order signal ORDER SIGNAL",
		"o-1 a b":                    "waybill order signal ORDER SIGNAL",
		long(257) + " payment":       "the order id has 257 bytes",
		"o-1 payment --data {":       "--data:1:2: not JSON",
		"o-1 payment --data x":       "--data:1:1: not JSON",
		"o-1 payment --data=":        "--data",
		"o-1 payment --keep -1h":     "--keep: -1h0m0s is negative",
		"o-1 payment --keep forever": "--keep",
		"o-1 payment -o xml":         "use one of table, wide, json, yaml",
	} {
		waybill(t, "", append([]string{"order", "signal"}, strings.Fields(args)...)...).want(t, 2, "", says)
	}
	waybill(t, "", "order", "signal", "o-1", "payment", "--data", "@/none/there").want(t, 1, "", "--data: open /none/there")
	waybill(t, "", "order", "signal", "o-1", "payment", "--server", "http://127.0.0.1:1").want(t, 6, "", "no Waybill answers")
	if len(o.asked) != 0 {
		t.Errorf("the server was asked: %+v", o.asked)
	}
}
