package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/orchestrator/decide"
	"github.com/waybill-dev/waybill/projections"
)

// listens submits an order that listens for go, and for three of big; later it will for later.
func (s *stage) listens(id string) {
	s.Helper()
	if _, err := s.client.Register(s.Context(), "w.yaml", []byte(`
workflow: listens
steps:
  - {name: now, listen: go}
  - {name: nap, sleep: 24h}
  - {name: then, listen: later}
  - {name: much, listen: {one: big, count: 3}, after: []}
`)); err != nil {
		s.Fatal(err)
	}
	if _, err := s.client.Submit(s.Context(), &Submission{ID: id, Workflow: "listens"}); err != nil {
		s.Fatal(err)
	}
	s.order(id, projections.Pending)
}

// tells posts a signal, and returns what became of it in one line.
func (s *stage) tells(id, body string) string {
	s.Helper()
	status, _, answer := s.ask(request{method: "POST", path: "/api/v1/orders/" + id + "/signals", body: body})
	if status != 200 {
		s.Fatalf("%d: %s", status, answer)
	}
	var h Heard
	if err := json.Unmarshal([]byte(answer), &h); err != nil {
		s.Fatal(err)
	}
	text := h.Outcome
	for _, of := range []*string{h.Step, h.Reason} {
		if of == nil {
			text += " -"
		} else {
			text += " " + *of
		}
	}
	if h.Seq == nil {
		return text + " -"
	}
	return fmt.Sprintf("%s %d", text, *h.Seq)
}

// S1: whoever tells an order something hears what became of it.
func (s *stage) testSignals() {
	s.listens("told")
	large := strings.Repeat("x", 600<<10)
	for _, c := range []struct{ body, want string }{
		{`{"signal":"go","id":"p-1","data":{"amount":12}}`, "matched now - 4"},
		{`{"signal":"go","id":"p-1","data":{"amount":12}}`, "repeated - repeated 6"},
		{`{"signal":"go","id":"p-2"}`, "late - late 7"},
		{`{"signal":"other"}`, "late - unheard 8"},
		{`{"signal":"later","keepUntil":"2020-01-02T03:04:05Z"}`, "late - late 9"},
		{`{"signal":"later","id":"l-1","data":"` + large + `","keepUntil":null,"replyTo":null}`, "kept - - 10"},
		{`{"signal":"later","data":"` + large + `"}`, "declined - too-many 11"},
		{`{"signal":"big","data":"` + large + `"}`, "matched much - 12"},
		{`{"signal":"big","data":"` + large + `"}`, "declined - too-large 13"},
	} {
		if got := s.tells("told", c.body); got != c.want {
			s.Errorf("%.80s: %s, and not %s", c.body, got, c.want)
		}
	}
	o, err := s.client.Order(s.Context(), "told")
	if err != nil {
		s.Fatal(err)
	}
	now, much := o.Steps[0], o.Steps[3]
	if now.State != projections.Completed || string(now.Output) != `{"amount":12}` || now.Listens != nil {
		s.Errorf("%+v", now)
	}
	if l := much.Listens; much.State != projections.Listening || l == nil || l.How != events.ListenOne || fmt.Sprint(l.Signals, l.Left) != "[big] 2" {
		s.Errorf("%+v", much)
	}
	if len(o.Signals) != 1 || o.Signals[0].Signal != "later" || *o.Signals[0].ID != "l-1" || len(o.Signals[0].Data) != len(large)+2 || o.Signals[0].Until == nil {
		s.Errorf("it keeps %.200v", o.Signals)
	}
	kept := of(s.history("told"), events.SignalKept)[0]
	if keep := kept.Due.Sub(kept.At); keep != events.SignalKeep {
		s.Errorf("it is kept for %v", keep)
	}
	// A time of the sender's own.
	until := events.Time(time.Now().Add(time.Hour))
	if _, err := s.client.Register(s.Context(), "w.yaml", []byte("workflow: keeps\nsteps: [{name: nap, sleep: 24h}, {name: then, listen: later}]\n")); err != nil {
		s.Fatal(err)
	}
	if _, err := s.client.Submit(s.Context(), &Submission{ID: "keeps", Workflow: "keeps"}); err != nil {
		s.Fatal(err)
	}
	s.order("keeps", projections.Pending)
	h, err := s.client.Signal(s.Context(), "keeps", &Signal{Signal: "later", KeepUntil: &until})
	if err != nil || h.Outcome != events.StatusKept {
		s.Fatalf("%+v, %v", h, err)
	}
	if kept := of(s.history("keeps"), events.SignalKept); !kept[0].Due.Equal(until) {
		s.Errorf("it is kept until %v, and not %v", kept[0].Due, until)
	}
}

// S1: whoever tells what happened under a key hears what became of it, and in whose order.
func (s *stage) testSignalKeys() {
	if _, err := s.client.Register(s.Context(), "w.yaml", []byte("workflow: keyed\nsteps: [{name: paid, listen: {one: payment, count: 2}, key: input.ref}, {name: nap, sleep: 24h}]\n")); err != nil {
		s.Fatal(err)
	}
	tells := func(body string) string {
		status, _, answer := s.ask(request{method: "POST", path: "/api/v1/signals", body: body})
		var h Heard
		if status != 200 || json.Unmarshal([]byte(answer), &h) != nil {
			s.Fatalf("%d: %s", status, answer)
		}
		text := h.Outcome
		for _, of := range []*string{h.Order, h.Step, h.Reason} {
			if of != nil {
				text += " " + *of
			}
		}
		return text
	}
	large := strings.Repeat("x", 600<<10)
	check := func(body, want string) {
		if got := tells(body); got != want {
			s.Errorf("%.80s: %s, and not %s", body, got, want)
		}
	}
	check(`{"signal":"payment","key":"a/ref 7","id":"p-1","data":1}`, "kept")
	check(`{"signal":"payment","key":"a/ref 7","id":"p-1"}`, "repeated repeated")
	check(`{"signal":"payment","key":"a/ref 7","keepUntil":"2020-01-02T03:04:05Z"}`, "late late")
	if _, err := s.client.Submit(s.Context(), &Submission{ID: "keyed", Workflow: "keyed", Input: json.RawMessage(`{"ref":"a/ref 7"}`)}); err != nil {
		s.Fatal(err)
	}
	s.order("keyed", projections.Pending)
	home := events.CorrelationID("payment", "a/ref 7")
	for len(of(s.history(home), events.SignalMatched)) == 0 {
		if s.Context().Err() != nil {
			s.Fatal("what was kept is not heard")
		}
	}
	o, err := s.client.Order(s.Context(), "keyed")
	if err != nil {
		s.Fatal(err)
	}
	if l := o.Steps[0].Listens; l == nil || l.Key == nil || *l.Key != "a/ref 7" || l.Left != 1 {
		s.Errorf("it listens %+v", l)
	}
	check(`{"signal":"payment","key":"a/ref 7","id":"p-2","data":"`+large+`"}`, "matched keyed paid")
	check(`{"signal":"payment","key":"a/ref 7","id":"p-2"}`, "repeated repeated")
	// One for which nobody waits starts an order of the workflow that says so, and of no second one.
	if _, err := s.client.Register(s.Context(), "w.yaml", []byte("workflow: claim\nstart: {signal: claimed, key: input.policy}\nsteps: [{name: nap, sleep: 24h}]\n")); err != nil {
		s.Fatal(err)
	}
	if _, err := s.client.Register(s.Context(), "w.yaml", []byte("workflow: other\nstart: claimed\nsteps: [{name: nap, sleep: 24h}]\n")); !strings.Contains(fmt.Sprint(err), "signal claimed starts orders of workflow claim@1 already") {
		s.Errorf("another workflow of the same signal: %v", err)
	}
	check(`{"signal":"claimed","key":"p-7","id":"c-1","data":{"policy":"p-7"}}`, "started @p-7/signal.claimed/order.1")
	check(`{"signal":"claimed","key":"p-7","id":"c-1","data":{"policy":"p-7"}}`, "repeated repeated")
	check(`{"signal":"claimed","key":"p-7","data":{"policy":"p-8"}}`, "declined @p-7/signal.claimed/order.4 rejected")
	o, err = s.client.Order(s.Context(), "@p-7/signal.claimed/order.1")
	if err != nil || o.Workflow != "claim" || string(o.Input) != `{"policy":"p-7"}` || o.Parent == nil || o.Parent.Order != "@p-7/signal.claimed" {
		s.Errorf("the order that was started is %+v, %v", o, err)
	}
	if status, _, answer := s.ask(request{method: "POST", path: "/api/v1/signals", body: `{"signal":"payment","key":""}`}); status != 422 {
		s.Errorf("no key: %d %s", status, answer)
	}
}

// Whoever tells an order something that changes nothing hears so, however many did before; the
// order's history does not grow with them.
func (s *stage) testSignalsInVain() {
	s.listens("in-vain")
	before := len(s.history("in-vain"))
	for n := range decide.MaxVoid {
		if got, want := s.tells("in-vain", `{"signal":"other"}`), fmt.Sprintf("late - unheard %d", before+n+1); got != want {
			s.Errorf("%s, and not %s", got, want)
		}
	}
	for range 2 {
		if got := s.tells("in-vain", `{"signal":"other"}`); got != "unrecorded - - -" {
			s.Errorf("one too many: %s", got)
		}
	}
	if h := s.history("in-vain"); len(h) != before+decide.MaxVoid {
		s.Errorf("%d are in its history", len(h)-before)
	}
	if got := s.tells("in-vain", `{"signal":"go"}`); !strings.HasPrefix(got, "matched now") {
		s.Errorf("one that changes something: %s", got)
	}
}

func (s *stage) testSignalProblems() {
	s.listens("untold")
	before := len(s.history("untold"))
	for _, c := range []struct {
		id, body string
		status   int
		says     string
	}{
		{"untold", ``, 400, "body"},
		{"untold", `{"signal":`, 400, ""},
		{"untold", `[]`, 422, ""},
		{"untold", `{}`, 422, "signal"},
		{"untold", `{"signal":""}`, 422, "signal"},
		{"untold", `{"signal":"a b"}`, 422, "signal"},
		{"untold", `{"signal":"` + strings.Repeat("x", 101) + `"}`, 422, "signal"},
		{"untold", `{"signal":"go","id":"` + strings.Repeat("x", 201) + `"}`, 422, "id"},
		{"untold", `{"signal":"go","id":"` + strings.Repeat("é", 101) + `"}`, 422, "the signal's id has 202 bytes; at most 200 are allowed"},
		{"untold", `{"signal":"go","keepUntil":"tomorrow"}`, 422, "keepUntil"},
		{"untold", "{\"signal\":\"go\",\"id\":\"\xff\"}", 400, "UTF-8"},
		{"untold", `{"signal":"go","data":` + strings.Repeat("[", 1001) + strings.Repeat("]", 1001) + `}`, 422, "nested more than 1000 deep"},
		{"untold", `{"signal":"go","data":"` + strings.Repeat("x", events.MaxValue) + `"}`, 422, "at most 1048576 are allowed"},
		{"untold", `{"signal":"go","data":"` + strings.Repeat("x", 2*events.MaxValue) + `"}`, 413, "too large"},
		{"none", `{"signal":"go"}`, 404, `no order \"none\"`},
	} {
		status, _, says := s.ask(request{method: "POST", path: "/api/v1/orders/" + c.id + "/signals", body: c.body})
		if status != c.status || !strings.Contains(says, c.says) {
			s.Errorf("%.60s: %d %.300s", c.body, status, says)
		}
	}
	if n := len(s.history("untold")); n != before {
		s.Errorf("something bad came to the order: %d events", n-before)
	}
}

// What became of a signal of an order that is held is not known yet.
func TestASignalThatIsHeld(t *testing.T) {
	if h := heardAs(&events.Event{Type: events.InputHeld, Seq: 7, Reason: "it panicked"}, nil, nil); h.Outcome != "held" || h.Step != nil || h.Reason != nil || *h.Seq != 7 {
		t.Errorf("%+v", h)
	}
}

func TestSignalErrors(t *testing.T) {
	s := New(Config{})
	for _, e := range []struct {
		err    error
		id     string
		status int
		says   string
	}{
		{fmt.Errorf("%w: its id is long", orchestrator.ErrRefused), "p", 422, "its id is long"},
		{fmt.Errorf("%w: o", projections.ErrNotFound), "p", 404, `no order "o"`},
		{fmt.Errorf("%w: not in format 5", orchestrator.ErrOlderRelease), "p", 409, "no signal was sent: "},
		{fmt.Errorf("read: %w", projections.ErrDamaged), "p", 500, "signal order"},
		{fmt.Errorf("%w: %w", orchestrator.ErrNoAnswer, context.DeadlineExceeded), "p", 503, "is on Kafka, and what became of it is not known yet: context deadline exceeded; repeating it with its id is safe"},
		{fmt.Errorf("%w: %w", orchestrator.ErrNoAnswer, context.DeadlineExceeded), "", 503, "without an id, look at the order's history before it is repeated"},
		{fmt.Errorf("put: %w", context.DeadlineExceeded), "p", 503, "not known yet; repeating it with its id is safe"},
		{fmt.Errorf("put: %w", context.Canceled), "", 503, "look at the order's history"},
		{errors.New("no broker"), "p", 503, "Kafka did not take the signal; repeating it with its id is safe"},
	} {
		var answer *huma.ErrorModel
		in := &signalInput{ID: "o", Body: Signal{Signal: "go", ID: e.id}}
		if err := s.signalError(in, e.err); !errors.As(err, &answer) || answer.Status != e.status || !strings.Contains(answer.Detail, e.says) {
			t.Errorf("%v: %+v", e.err, answer)
		}
	}
}
