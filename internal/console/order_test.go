package console

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/codec"
	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/projections"
)

// Of what waits for decisions that page alone is decoded which has what a masked order waits for, and none once the codec has failed.
func TestWhatAnOrderAsksIsDecoded(t *testing.T) {
	approval := func(order, show string) api.Approval {
		return api.Approval{Order: order, Step: "s", Show: json.RawMessage(show)}
	}
	decoder, err := codec.New("http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	_, large := decoder.Decode(t.Context(), "", []jsontext.Value{jsontext.Value(`"` + strings.Repeat("x", codec.Most) + `"`)})
	var asked []string
	undecoded := ""
	server := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		page := map[string]api.ApprovalPage{
			"":  {Approvals: []api.Approval{approval("o-2", `"stored"`)}, Next: "b"},
			"b": {Approvals: []api.Approval{approval("o-3", `"stored"`), approval("o-1", `"stored"`)}, Next: "c"},
			"c": {Approvals: []api.Approval{approval("o-1", `"stored"`), approval("o-4", `"stored"`)}},
		}[q.Get("after")]
		asked = append(asked, q.Get("after")+q.Get("decode"))
		if page.Undecoded = undecoded; q.Get("decode") != "" && undecoded == "" {
			for n := range page.Approvals {
				page.Approvals[n].Show = json.RawMessage(`"plain"`)
			}
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(page); err != nil {
			t.Error(err)
		}
	})
	for name, c := range map[string]struct {
		no, fails string
		masked    bool
		want      []string
		show      string
	}{
		"whose payloads are seen": {want: []string{"", "b", "c"}, show: `"own"`},
		"that is masked":          {masked: true, want: []string{"", "b", "btrue", "c", "ctrue"}, show: `"plain"`},
		"and a codec that fails":  {masked: true, fails: "it is away", want: []string{"", "b", "btrue", "c"}, show: `"stored"`},
		"and too much before":     {masked: true, no: large.Error(), want: []string{"", "b", "btrue", "c", "ctrue"}, show: `"plain"`},
		"and one that has failed": {masked: true, no: "it is away", want: []string{"", "b", "c"}, show: `"stored"`},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/orders/o-1", http.NoBody)
		asked, undecoded = nil, c.fails
		v := &visit{Request: r, client: api.Inside(server, r, ""), decodes: true, undecoded: c.no}
		o := &api.Order{Steps: []api.Step{{Name: "s", Input: json.RawMessage(`"own"`)}}}
		o.OrderID, o.Masked = "o-1", c.masked
		all := v.asked(o, 2)
		if !slices.Equal(asked, c.want) || len(all) != 2 || v.undecoded != c.no+c.fails {
			t.Errorf("an order %s: asked %q, found %d, undecoded %q", name, asked, len(all), v.undecoded)
		}
		for _, a := range all {
			if string(a.Show) != c.show {
				t.Errorf("an order %s is shown as %s", name, a.Show)
			}
		}
	}
}

// An order's page is of one moment: what happened after the order was read is not among its events, which the page is
// told of behind them, be it within the same millisecond. Events from before a clock went back are.
func TestAnOrdersPageIsOfOneMoment(t *testing.T) {
	at := func(s int) time.Time { return time.Date(2026, 11, 27, 8, 0, s, 0, time.UTC) }
	row := func(seq uint64, s int) eventRow { return eventRow{Event: &events.Event{Seq: seq, At: at(s)}} }
	history := []eventRow{row(1, 1), row(2, 9), row(3, 3), row(4, 3), row(5, 5)}
	for seq, updated := range map[uint64]int{1: 1, 2: 9, 3: 3, 4: 3, 5: 5} {
		o := &api.Order{Seq: seq}
		o.UpdatedAt = &api.Time{Time: at(updated)}
		rows := upTo(history, o)
		if last := rows[len(rows)-1].Seq; last != seq {
			t.Errorf("of an order that has %d events the last one is %d", seq, last)
		}
	}
	if rows := upTo(history, &api.Order{Seq: 9}); len(rows) != len(history) {
		t.Errorf("of an order that has more events there are %d", len(rows))
	}
}

// Attempts are named by the events with which they begin and end.
func TestAttemptsAreNamed(t *testing.T) {
	started := func(seq uint64, n int) eventRow {
		return eventRow{Event: &events.Event{Type: events.StepStarted, Seq: seq, Step: "pay", Attempt: n}, Name: "step.started"}
	}
	all := attemptsOf([]eventRow{started(3, 1), {Event: &events.Event{Type: events.StepFailed, Seq: 6, Step: "pay", Attempt: 1}, Name: "step.failed"}, started(8, 2)})
	if len(all) != 2 || all[0].String() != "attempt 1, events 3 to 6: step.failed" || all[1].String() != "attempt 2, from event 8 on" {
		t.Errorf("%v", all)
	}
}

// A list of orders has the newest first where an index has them so, or where it is all of them on a page, and else says
// how they come.
func TestHowOrdersAreSorted(t *testing.T) {
	const mixed = "Partition by partition"
	for path, c := range map[string]struct {
		next, sort string
		want       []string
	}{
		"/orders":                        {"", "", []string{"new-1", "middle-1", "old-1", "!" + mixed}},
		"/orders?state=Error":            {"next", "", []string{"old-1", "new-1", "middle-1", mixed + ", and by state within"}},
		"/orders?after=b":                {"", "", []string{"old-1", "new-1", "middle-1", mixed}},
		"/orders?workflow=w":             {"next", "accepted", []string{"old-1", "new-1", "middle-1", "!" + mixed}}, // as the server has them
		"/orders?workflow=w&where=k%3Dv": {"next", "", []string{"old-1", "new-1", "middle-1", mixed + ", and by workflow within"}},
	} {
		order := func(id string, minute int) api.Summary {
			return api.Summary{OrderID: id, Labels: map[string]string{"k": "v"}, AcceptedAt: &api.Time{Time: time.Date(2026, 11, 27, 8, minute, 0, 0, time.UTC)}}
		}
		answers := map[string]any{"GET /api/v1/caller": api.Caller{}, "GET /api/v1/orders": func(r *http.Request) any {
			if sort := r.URL.Query().Get("sort"); sort != c.sort {
				t.Errorf("%s asks for orders sorted by %q", path, sort)
			}
			return api.OrderPage{Orders: []api.Summary{order("old-1", 1), order("new-1", 9), order("middle-1", 5)}, Next: c.next}
		}}
		w := asks(t, answers, http.MethodGet, path, "")
		body, at := w.Body.String(), 0
		for _, text := range c.want {
			if absent, not := strings.CutPrefix(text, "!"); not {
				if strings.Contains(body, absent) {
					t.Errorf("%s says %q", path, absent)
				}
				continue
			}
			if strings.HasPrefix(text, mixed) {
				at = 0
			}
			n := strings.Index(body[at:], text)
			if n < 0 {
				t.Errorf("%s: %s is not where it belongs:\n%s", path, text, body)
				break
			}
			at += n
		}
	}
}

// Who gives a step another input sees the one that it has, where that is short: it is replaced as a whole.
func TestInputsNow(t *testing.T) {
	long := json.RawMessage(`"` + strings.Repeat("x", 300) + `"`)
	o := &api.Order{Input: json.RawMessage(`{"n":1}`), Steps: []api.Step{
		{Name: "own", State: projections.Failed, Input: json.RawMessage(`{"to":"N1"}`)},
		{Name: "orders", State: projections.Expired},
		{Name: "done", State: projections.Completed},
		{Name: "large", State: projections.Failed, Input: long},
		{Name: "undone", State: projections.Completed, Undo: &api.Undo{State: projections.Failed}},
	}}
	if got, want := inputsNow(o), `; own has {"to":"N1"}; orders has {"n":1}`; got != want {
		t.Errorf("%q, and not %q", got, want)
	}
	if got := inputsNow(&api.Order{Steps: o.Steps[1:2]}); got != "" {
		t.Errorf("of an order whose input is not known: %q", got)
	}
}

// What would be refused is not offered: nothing starts in Error, so there is nothing to pause.
func TestWhatIsOffered(t *testing.T) {
	caller := &api.Caller{Grants: []api.Grant{{Roles: []identity.Role{identity.Operator, identity.Submitter}}}}
	for state, want := range map[projections.State][]string{
		projections.Processing: {"change", "label", "cancel", "pause", "terminate"},
		projections.Error:      {"change", "label", "cancel", "resubmit", "skip-step", "terminate"},
		projections.Processed:  {"label", "rerun"},
	} {
		o := &api.Order{Steps: []api.Step{{Name: "pay", State: projections.Failed}}}
		if o.ProcessState = state; state == projections.Processing {
			o.Steps[0].State = projections.Running
		}
		var got []string
		for _, a := range actsFor(caller, o) {
			got = append(got, a.Name)
		}
		slices.Sort(got)
		if slices.Sort(want); !slices.Equal(got, want) {
			t.Errorf("for an order that is %s: %q, and not %q", state, got, want)
		}
	}
}

// Of an order that is being undone the undos are what is in trouble, and to pass over one gives it up.
func TestWhatIsInTrouble(t *testing.T) {
	toward := projections.Cancelled
	o := &api.Order{Steps: []api.Step{{Name: "charge", State: projections.Completed, Undo: &api.Undo{State: projections.Failed}}, {Name: "ship", State: projections.Failed}}}
	o.ProcessState, o.Toward = projections.Error, &toward
	if got := troubled(o); !slices.Equal(got, []string{"charge"}) {
		t.Errorf("in trouble are %q", got)
	}
	caller := &api.Caller{Grants: []api.Grant{{Roles: []identity.Role{identity.Operator}}}}
	for _, is := range []*projections.State{&toward, nil} {
		o.Toward = is
		all := actsFor(caller, o)
		skip := all[slices.IndexFunc(all, func(a act) bool { return a.Name == events.CommandSkipStep })]
		if givenUp := strings.Contains(skip.Says, "given up"); givenUp != (is != nil) || skip.Fields[0].Choices[0] != "" {
			t.Errorf("toward %v: %q, %q", is, skip.Says, skip.Fields[0].Choices)
		}
	}
}

// That an order takes what has it go on does not say that it gets any further.
func TestWhatWasDone(t *testing.T) {
	for name, goes := range map[string]bool{events.CommandResubmit: true, events.CommandResume: true, events.CommandPause: false, events.CommandLabel: false} {
		if says := acts.done(name); strings.Contains(says, "fails again") != goes || !strings.Contains(says, ": done.") {
			t.Errorf("%s: %q", name, says)
		}
	}
}
