package tracing

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/events/spans"
	"github.com/waybill-dev/waybill/projections"
)

// journal is one of which spans are made.
type journal struct {
	*testing.T
	events  []events.Event
	sampler sdk.Sampler
	unknown bool // the store has none of the orders
}

// made are the spans that end with the events of a part of the journal, made as by a process that begins there and has
// room for so much, and how often history was asked for.
func (j *journal) made(from, to, most int) (made []sdk.ReadOnlySpan, asked int) {
	j.Helper()
	topics, err := events.NewTopics("shop")
	if err != nil {
		j.Fatal(err)
	}
	all := newOrders(&topics, &Setup{sampler: j.sampler}, most)
	all.lost = func(id string, why error) { j.Errorf("%s: %v", id, why) }
	all.origin = func(id string) (time.Time, string, bool) {
		for _, e := range j.events {
			if e.Order == id && e.Type == events.OrderAccepted {
				return e.At, e.Traceparent, !j.unknown
			}
		}
		return time.Time{}, "", false
	}
	all.history = func(_ context.Context, id string, before uint64) (history []events.Event, _ error) {
		asked++
		for _, e := range j.events {
			if e.Order == id && e.Seq < before {
				history = append(history, e)
			}
		}
		return history, nil
	}
	for _, e := range j.events[from:to] {
		if err := all.take(j.Context(), 0, &e); err != nil {
			j.Fatal(err)
		}
	}
	return all.ended, asked
}

// told says all there is of a span.
func told(s sdk.ReadOnlySpan) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s [%s] %s %s %s %s %s+%s %s %q", s.SpanContext().TraceID(), s.SpanContext().TraceState(), s.SpanContext().SpanID(), s.Parent().SpanID(), s.Name(), s.SpanKind(),
		s.StartTime().Format(time.RFC3339Nano), s.EndTime().Sub(s.StartTime()), s.Status().Code, s.Status().Description)
	for _, a := range s.Attributes() {
		fmt.Fprintf(&b, " %s=%s", a.Key, a.Value.String())
	}
	for _, e := range s.Events() {
		fmt.Fprintf(&b, " [%s %s]", e.Name, e.Time.Format(time.RFC3339Nano))
	}
	return b.String()
}

func tell(all []sdk.ReadOnlySpan) (says []string) {
	for _, s := range all {
		says = append(says, told(s))
	}
	slices.Sort(says)
	return says
}

func journals(t *testing.T) map[string]*journal {
	all := map[string]*journal{"written": {T: t, events: written(), sampler: sdk.AlwaysSample()}}
	files, err := filepath.Glob("../../projections/testdata/golden/*/journal.jsonl")
	if err != nil || len(files) < 3 {
		t.Fatalf("%q: %v", files, err)
	}
	for _, name := range files {
		j := &journal{T: t, sampler: sdk.AlwaysSample()}
		file, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(file)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var r struct {
				Payload string `json:"payload"`
			}
			if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
				t.Fatal(err)
			}
			e, err := events.Decode[events.Event]([]byte(r.Payload))
			if err != nil {
				t.Fatal(err)
			}
			j.events = append(j.events, e)
		}
		if err := lines.Err(); err != nil {
			t.Fatal(err)
		}
		file.Close()
		all[name] = j
	}
	return all
}

// says tells the tracestates that orders came with, by their traces, and how many children had ended and are undone: of
// each who has seen all asks for its history.
func (j *journal) says() (states map[trace.TraceID]string, undone int) {
	states = make(map[trace.TraceID]string)
	completed := make(map[string]bool)
	for i := range j.events {
		switch e := &j.events[i]; e.Type {
		case events.OrderAccepted:
			if given := spans.Parse(e.Traceparent, ""); given.IsValid() {
				states[given.TraceID()] = e.Tracestate
			}
		case events.OrderCompleted:
			completed[e.Order] = true
		case events.OrderCompensating:
			if completed[e.Order] {
				undone++
			}
		}
	}
	return states, undone
}

// Wherever a process ends and another goes on, and however little room it has, the same spans are made, each once.
func TestSpansAreTheSameWhereverAProcessEnds(t *testing.T) {
	for name, j := range journals(t) {
		whole, asked := j.made(0, len(j.events), 1<<30)
		states, undone := j.says()
		if asked > undone || len(whole) < 10 {
			t.Errorf("%s: %d spans, and history was asked for %d times by who has seen all of it", name, len(whole), asked)
		}
		ids := make(map[trace.SpanID]bool)
		for _, s := range whole {
			if got := s.SpanContext().TraceState().String(); got != states[s.SpanContext().TraceID()] {
				t.Errorf("%s: the tracestate of %s is %q", name, told(s), got)
			}
			if ids[s.SpanContext().SpanID()] {
				t.Errorf("%s: twice: %s", name, told(s))
			}
			ids[s.SpanContext().SpanID()] = true
		}
		want := tell(whole)
		for cut := range j.events {
			first, _ := j.made(0, cut, 1<<30)
			second, _ := j.made(cut, len(j.events), 1<<30)
			if got := tell(append(first, second...)); !slices.Equal(got, want) {
				t.Fatalf("%s, cut at %d:\n%s\ninstead of\n%s", name, cut, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
		crammed, asked := j.made(0, len(j.events), 1)
		if got := tell(crammed); !slices.Equal(got, want) || asked == 0 {
			t.Errorf("%s, in no room (%d):\n%s\ninstead of\n%s", name, asked, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// Of what is not sampled nothing is made, and nothing is read anew, wherever a process begins and however little room it
// has; nor is it kept once it has ended. Of what else there is the same is made, beside it.
func TestWhatIsNotSampledIsNotReadAnew(t *testing.T) {
	for name, j := range journals(t) {
		half := &journal{T: t, events: j.events, sampler: sdk.TraceIDRatioBased(0.5)}
		whole, _ := half.made(0, len(j.events), 1<<30)
		want := tell(whole)
		if every, _ := j.made(0, len(j.events), 1<<30); name == "written" && (len(want) == 0 || len(want) == len(every)) {
			t.Errorf("%s: of %d spans %d are sampled", name, len(every), len(want))
		}
		none := &journal{T: t, events: j.events, sampler: sdk.NeverSample()}
		for cut := range j.events {
			first, _ := half.made(0, cut, 1<<30)
			second, _ := half.made(cut, len(j.events), 1)
			if got := tell(append(first, second...)); !slices.Equal(got, want) {
				t.Fatalf("%s, cut at %d:\n%s\ninstead of\n%s", name, cut, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			if made, asked := none.made(cut, len(j.events), 1<<30); asked > 0 || len(made) > 0 {
				t.Fatalf("%s, cut at %d: %d spans, and history was asked for %d times", name, cut, len(made), asked)
			}
		}
		unknown := &journal{T: t, events: j.events, sampler: sdk.NeverSample(), unknown: true}
		if made, _ := unknown.made(len(j.events)/2, len(j.events), 1<<30); len(made) > 0 {
			t.Errorf("%s: %d spans of orders that the store does not have", name, len(made))
		}
	}
	topics, err := events.NewTopics("shop")
	if err != nil {
		t.Fatal(err)
	}
	all := newOrders(&topics, &Setup{sampler: sdk.NeverSample()}, 1<<30)
	all.origin = func(string) (time.Time, string, bool) { return time.Time{}, "", true }
	for _, e := range written() {
		if err := all.take(t.Context(), 0, &e); err != nil {
			t.Fatal(err)
		}
	}
	if all.has != 0 || len(all.byID) > 0 {
		t.Errorf("%d orders are kept that have ended, in %d bytes", len(all.byID), all.has)
	}
}

// Each attempt that an agent was asked for, and that is over, has a span from then to then, within the order's.
func TestSpansAreThoseOfTheJournal(t *testing.T) {
	for name, j := range journals(t) {
		made, _ := j.made(0, len(j.events), 1<<30)
		byID := make(map[trace.SpanID]sdk.ReadOnlySpan)
		for _, s := range made {
			byID[s.SpanContext().SpanID()] = s
		}
		accepted := make(map[string]*events.Event)
		renamed := make(map[string]map[string]string) // the names under which steps are known outside, by those that they have, of each order
		turned := make(map[string]uint64)             // the event with which each order was turned back last
		checked := 0
		for i := range j.events {
			e := &j.events[i]
			switch e.Type {
			case events.OrderAccepted:
				accepted[e.Order] = e
			case events.OrderMigrated:
				known := make(map[string]string)
				for now, was := range e.Renamed {
					known[now] = cmp.Or(renamed[e.Order][was], was)
				}
				renamed[e.Order] = known
			case events.OrderCompensating:
				turned[e.Order] = e.Seq
			}
			first := accepted[e.Order]
			var begun events.Type
			switch e.Type {
			case events.StepCompleted, events.StepFailed, events.StepExpired:
				begun = events.StepStarted
			case events.UndoCompleted, events.UndoFailed, events.UndoExpired:
				begun = events.UndoStarted
			default:
				continue
			}
			at := slices.IndexFunc(j.events, func(b events.Event) bool {
				return b.Type == begun && b.Order == e.Order && b.Step == e.Step && b.Attempt == e.Attempt
			})
			if at < 0 {
				continue
			}
			checked++
			of := spans.Of(e.Order, first.At, first.Traceparent)
			s := byID[of.Attempt(cmp.Or(renamed[e.Order][e.Step], e.Step), begun == events.UndoStarted, e.Attempt)]
			if s == nil {
				t.Errorf("%s: no span of %+v", name, e)
				continue
			}
			fails := e.Type != events.StepCompleted && e.Type != events.UndoCompleted
			within := s.Parent().SpanID()
			undo := byID[within] // of a child that had ended; nil while it is being undone
			inside := within == of.Root() || within == of.Undo(turned[e.Order]) && (undo == nil || undo.Parent().SpanID() == of.Root())
			if !s.StartTime().Equal(j.events[at].At) || !s.EndTime().Equal(e.At) || !inside || s.SpanContext().TraceID() != of.Trace ||
				(s.Status().Code == codes.Error) != fails || s.SpanKind() != trace.SpanKindProducer {
				t.Errorf("%s: %s of %s at %s and %s at %s", name, told(s), begun, j.events[at].At, e.Type, e.At)
			}
		}
		if checked < 2 {
			t.Errorf("%s: only %d attempts", name, checked)
		}
	}
}

const given1 = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// written is a journal by hand, of what golden ones do not have.
func written() (all []events.Event) {
	at := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	seq := make(map[string]uint64)
	add := func(order string, typ events.Type, e events.Event) {
		at = at.Add(time.Second)
		seq[order]++
		e.Order, e.Type, e.At, e.Seq = order, typ, at, seq[order]
		all = append(all, e)
	}
	step := func(name string, attempt int) events.Event { return events.Event{Step: name, Attempt: attempt} }
	started := func(attempt int) events.Event {
		return events.Event{Step: "pay", Attempt: attempt, Agent: "payment", Operation: "do-pay", LockedBy: "i", IdempotencyKey: "k", CompleteBy: at.Add(time.Hour)}
	}
	failed := func(name string, attempt int, code string) events.Event {
		return events.Event{Step: name, Attempt: attempt, Error: &events.Error{Code: code, Message: "secret"}}
	}

	// Two orders side by side. One sleeps, waits for signals and for people, and is undone; what it waits for ends with that.
	add("wait", events.OrderAccepted, events.Event{Workflow: "w", Version: 3, Steps: []string{"nap", "all", "ask", "pay", "late", "any"}, Traceparent: given1, Tracestate: "rojo=1,congo=2", Baggage: "secret=1", Input: []byte(`{"secret":1}`)})
	add("wait", events.StepSleeping, events.Event{Step: "nap", Attempt: 1, Due: at})
	add("other", events.OrderAccepted, events.Event{Workflow: "o", Version: 1, Steps: []string{"pay"}})
	add("wait", events.StepWoke, step("nap", 1))
	add("wait", events.StepListening, events.Event{Step: "all", Attempt: 1, Listen: events.ListenAll, Signals: []string{"a", "b"}})
	add("wait", events.StepHeard, events.Event{Step: "all", Attempt: 1, Signal: "b", Source: "s/0/1", Data: []byte(`"secret"`)})
	add("other", events.StepFailed, failed("pay", 1, "queue-expired"))
	add("other", events.StepStarted, started(2))
	add("wait", events.StepHeard, events.Event{Step: "all", Attempt: 1, Signal: "a", Source: "s/0/2"})
	add("wait", events.StepApproving, events.Event{Step: "ask", Attempt: 1, Roles: []string{"clerk"}, Outcomes: []string{"yes", "no"}, Count: 2})
	add("wait", events.StepDecided, events.Event{Step: "ask", Attempt: 1, Outcome: "yes", By: "ana"})
	add("wait", events.StepStarted, started(1))
	add("wait", events.StepDecided, events.Event{Step: "ask", Attempt: 1, Outcome: "yes", By: "bob"})
	add("other", events.OrderErrored, events.Event{Reason: "secret"})
	add("wait", events.StepListening, events.Event{Step: "any", Attempt: 1, Listen: events.ListenOne, Signals: []string{"a"}, Due: at})
	add("wait", events.StepCompleted, events.Event{Step: "pay", Attempt: 1, Output: []byte(`"secret"`)})
	add("wait", events.StepTimedOut, step("any", 1))
	add("wait", events.StepSleeping, events.Event{Step: "late", Attempt: 1, Due: at.Add(time.Hour)})
	add("wait", events.OrderCompensating, events.Event{End: string(projections.Cancelled), Reason: "ana says so"})
	add("wait", events.UndoStarted, started(1))
	add("other", events.StepExpired, failed("pay", 2, "expired"))
	add("wait", events.UndoFailed, failed("pay", 1, "bank-closed"))
	add("wait", events.UndoStarted, started(2))
	add("wait", events.UndoCompleted, step("pay", 2))
	add("wait", events.OrderCancelled, events.Event{Undone: []string{"pay"}})
	add("wait", events.ReplyDiscarded, events.Event{Reason: "late"})
	add("other", events.StepStarted, started(3))
	add("other", events.OrderTerminated, events.Event{Reason: "secret"})

	// One whose step is renamed while it runs, and one that does it, is Processed, and is undone after all.
	add("moves", events.OrderAccepted, events.Event{Workflow: "m", Version: 1, Steps: []string{"a", "b"}})
	add("moves", events.StepOrdered, events.Event{Step: "a", Attempt: 1, Child: "@moves/a", Workflow: "w", LockedBy: "i"})
	add("moves", events.OrderMigrated, events.Event{From: 1, Version: 2, Steps: []string{"z", "b"}, Renamed: map[string]string{"z": "a"}})
	add("@moves/a", events.OrderAccepted, events.Event{Workflow: "w", Version: 1, Steps: []string{"pay"}, Parent: "moves", ParentStep: "a", Depth: 1})
	add("@moves/a", events.StepStarted, started(1))
	add("@moves/a", events.StepCompleted, step("pay", 1))
	add("@moves/a", events.OrderCompleted, events.Event{})
	add("moves", events.StepCompleted, step("z", 1))
	add("moves", events.StepFailed, failed("b", 1, "request-refused"))
	add("moves", events.OrderCompensating, events.Event{End: string(projections.Compensated), Reason: "it failed"})
	add("moves", events.UndoOrdered, events.Event{Step: "z", Attempt: 1, Child: "@moves/a", LockedBy: "i"})
	add("@moves/a", events.OrderCompensating, events.Event{End: string(projections.Compensated), Reason: "its parent is undone"})
	add("@moves/a", events.UndoStarted, started(1))
	add("@moves/a", events.UndoCompleted, step("pay", 1))
	add("@moves/a", events.OrderCompensated, events.Event{Undone: []string{"pay"}})
	add("moves", events.UndoCompleted, step("z", 1))
	add("moves", events.OrderCompensated, events.Event{Undone: []string{"a"}})

	// One that never began, and a record that is no order.
	add("no", events.OrderRejected, events.Event{Workflow: "w", Reason: "secret"})
	add("@limit/x", events.PlaceGranted, events.Event{Waiter: "wait", Wait: 1, Rank: 1})
	return all
}

// What waits is a span, what ends it ends it, and what failed says so by a code. Nothing says what an order is about.
func TestSpansOfAnOrder(t *testing.T) {
	j := &journal{T: t, events: written(), sampler: sdk.AlwaysSample()}
	made, _ := j.made(0, len(j.events), 1<<30)
	var got []string
	names := map[trace.SpanID]string{}
	for _, s := range made {
		names[s.SpanContext().SpanID()] = s.Name()
	}
	for _, s := range made {
		if said := told(s); strings.Contains(said, "secret") {
			t.Errorf("a span has what is the order's business: %s", said)
		}
		attributes := make(map[string]string)
		for _, a := range s.Attributes() {
			attributes[string(a.Key)] = a.Value.String()
		}
		parent := names[s.Parent().SpanID()]
		if parent == "" && s.Parent().IsValid() {
			parent = s.Parent().SpanID().String()
		}
		line := fmt.Sprintf("%s: %s in %q %s %s", attributes["waybill.order.id"], s.Name(), parent, s.SpanKind(), s.EndTime().Sub(s.StartTime()))
		for _, key := range []string{"waybill.step.kind", "waybill.step.state", "waybill.order.state", "error.type"} {
			if value := attributes[key]; value != "" {
				line += " " + value
			}
		}
		got = append(got, line)
	}
	want := []string{
		`wait: nap in "order w" internal 2s sleep completed`,
		`other: pay in "order o" internal 0s failed queue-expired`,
		`wait: all in "order w" internal 4s signal completed`,
		`wait: ask in "order w" internal 3s approval completed`,
		`wait: pay in "order w" producer 4s agent completed`,
		`wait: any in "order w" internal 2s signal timed-out`,
		`wait: late in "order w" internal 1s sleep skipped`,
		`other: pay in "order o" producer 13s agent expired expired`,
		`wait: undo pay in "order w" producer 2s agent failed bank-closed`,
		`wait: undo pay in "order w" producer 1s agent completed`,
		`wait: order w in "b7ad6b7169203331" consumer 24s Cancelled`,
		`other: pay in "order o" producer 1s agent expired expired`,
		`other: order o in "" consumer 25s Terminated terminated`,
		`@moves/a: pay in "order w" producer 1s agent completed`,
		`@moves/a: order w in "" consumer 3s Processed`,
		`moves: a in "order m" producer 6s order completed`,
		`moves: b in "order m" internal 0s failed request-refused`,
		`@moves/a: undo pay in "undo order w" producer 1s agent completed`,
		`@moves/a: undo order w in "order w" internal 3s Compensated compensated`,
		`moves: undo z in "order m" producer 5s order completed`,
		`moves: order m in "" consumer 16s Compensated compensated`,
		`no: order w in "" consumer 0s Rejected rejected`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\ninstead of\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	i := slices.IndexFunc(made, func(s sdk.ReadOnlySpan) bool { return s.Name() == "order o" })
	if says := made[i].Events(); len(says) != 1 || says[0].Name != "order.errored" {
		t.Errorf("the order's span says %v", says)
	}
}

// Who submitted an order says whether there are spans of it, and else the rate does, by the trace's id.
func TestSpansAreSampled(t *testing.T) {
	unsampled := strings.TrimSuffix(given1, "1") + "0"
	for _, c := range []struct {
		name, arg, traceparent string
		want                   bool
	}{
		{"parentbased_traceidratio", "0", given1, true},
		{"parentbased_traceidratio", "1", unsampled, false},
		{"parentbased_traceidratio", "1", "", true},
		{"parentbased_traceidratio", "0", "", false},
		{"parentbased_always_off", "", "", false},
		{"traceidratio", "0", given1, false},
		{"always_on", "", unsampled, true},
		{"always_off", "", given1, false},
		{"", "", "", true},
		{"", "", unsampled, false},
	} {
		s, err := sampler(c.name, c.arg)
		if err != nil {
			t.Fatal(err)
		}
		j := &journal{T: t, events: written()[:1], sampler: s}
		j.events[0].Traceparent = c.traceparent
		j.events = append(j.events, events.Event{Order: "wait", Type: events.OrderCancelled, Seq: 2, At: j.events[0].At})
		made, _ := j.made(0, 2, 1<<30)
		of := spans.Of("wait", j.events[0].At, c.traceparent)
		says := spans.Parse(of.Traceparent(of.Attempt("pay", false, 1), (&Setup{sampler: s}).Sampled()), "")
		if (len(made) == 1) != c.want || says.IsSampled() != c.want || says.TraceID() != of.Trace || says.SpanID() != of.Attempt("pay", false, 1) {
			t.Errorf("%+v: %d spans, and agents hear %+v", c, len(made), says)
		}
	}
}

// A rate takes as many as it says, and the same ones wherever they are looked at.
func TestSpansAreSampledByARate(t *testing.T) {
	s, err := sampler("parentbased_traceidratio", "0.25")
	if err != nil {
		t.Fatal(err)
	}
	sampled := (&Setup{sampler: s}).Sampled()
	taken := 0
	for i := range 4000 {
		if of := spans.Of(fmt.Sprint("o-", i), time.UnixMilli(int64(i)), ""); sampled(of.Parent, of.Trace) {
			taken++
		}
	}
	if taken < 850 || taken > 1150 {
		t.Errorf("%d of 4000 at a rate of a quarter", taken)
	}
}

// What is open is bounded, and what was heard of longest ago goes first.
func TestOpenOrdersAreBounded(t *testing.T) {
	topics, err := events.NewTopics("shop")
	if err != nil {
		t.Fatal(err)
	}
	const most = 100_000
	all := newOrders(&topics, &Setup{sampler: sdk.AlwaysSample()}, most)
	for i := range 1000 {
		e := events.Event{Order: fmt.Sprint("o-", i), Type: events.OrderAccepted, Seq: 1, At: time.UnixMilli(1), Workflow: "w", Version: 1, Steps: []string{"a", "b"}}
		if err := all.take(t.Context(), int32(i%2), &e); err != nil {
			t.Fatal(err)
		}
		if all.has > most || all.recent.Len() != len(all.byID) {
			t.Fatalf("%d bytes, %d and %d orders", all.has, all.recent.Len(), len(all.byID))
		}
	}
	if all.byID["o-999"] == nil || all.byID["o-0"] != nil || len(all.byID) < 10 {
		t.Errorf("kept %q", slices.Sorted(maps.Keys(all.byID)))
	}
	all.forget(1)
	if all.byID["o-999"] != nil || all.byID["o-998"] == nil {
		t.Errorf("kept %q", slices.Sorted(maps.Keys(all.byID)))
	}
	all.forget(0)
	if all.has != 0 || all.recent.Len() != 0 {
		t.Errorf("%d bytes are left of %d orders", all.has, all.recent.Len())
	}
}
