package rehearsal

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/draw"
	"github.com/waybill-dev/waybill/test/inspect"
	"github.com/waybill-dev/waybill/test/oracle"
)

// TestWhatIsSaidOfOrders: whatever the workflow, the answers and the commands, what a test says
// of its order is what the oracle makes of the events, the play ends by itself, with the order at
// its end, with an operator, paused, or waiting for one that does a step, and it does so each time in
// the same way.
func TestWhatIsSaidOfOrders(t *testing.T) {
	states := make(map[projections.State]int)
	late, refused, heard, decided, children := 0, 0, 0, 0, 0
	little := func() bool {
		return late == 0 || refused == 0 || heard == 0 || decided == 0 || children == 0 || len(states) < 5
	}
	check := func(t *rapid.T) {
		test := drawTest(t)
		r := test.Perform()
		inspectResult(t, r)
		if again := test.Perform(); !reflect.DeepEqual(r.Happened, again.Happened) {
			t.Fatal("it went another way the second time")
		}
		switch o := r.Order; {
		case slices.ContainsFunc(r.Differences, func(d Difference) bool { return d.What == "the order" }):
			t.Fatalf("the play did not end: %v", r.Differences)
		case !o.State.Final() && o.State != projections.Error && !o.Paused && !strings.Contains(r.waits(), "waits for order"):
			t.Fatalf("the play ended, and the order is %s", o.State)
		}
		states[r.Order.State]++
		children += len(r.Children)
		late += r.Order.Discarded
		refused += r.Order.Refused
		if slices.ContainsFunc(r.Happened, func(h Happening) bool { return h.Type == events.StepHeard }) {
			heard++
		}
		if slices.ContainsFunc(r.Happened, func(h Happening) bool { return h.Type == events.StepDecided }) {
			decided++
		}
	}
	rapid.Check(t, check)
	if testing.Short() {
		return // a fifth of it is drawn
	}
	for more := 0; little() && more < 20 && !t.Failed(); more++ { // what happens seldom takes some rounds
		rapid.Check(t, check)
	}
	if little() {
		t.Errorf("little was drawn: the states %v, %d late replies, %d refused commands, %d orders that heard a signal, %d in which somebody decided, %d that did a step", states, late, refused, heard, decided, children)
	}
}

func drawTest(t *rapid.T) *Test {
	flows := draw.Flows(t, 1)
	last := len(flows) - 1
	test := &Test{Name: "drawn", flow: flows[last], others: new(workflow.Set), starts: inspect.Curtain}
	for _, flow := range flows[:last] {
		test.others.Add(flow)
	}
	if input := rapid.SampledFrom([]string{"", `{"n":1}`, `{"n":3}`, "7"}).Draw(t, "input"); input != "" {
		test.input = jsontext.Value(input)
	}
	span := func(what string) time.Duration {
		return time.Duration(rapid.SampledFrom([]int{0, 0, 0, 1, 400, 600, 5_000, 60_000}).Draw(t, what)) * time.Millisecond
	}
	test.deadline = span("deadline")
	for i := range test.flow.Steps {
		s := &test.flow.Steps[i]
		for _, w := range []work{{step: s.Name}, {step: s.Name, undo: true}} {
			if !s.Asks() || w.undo && s.Undo == "" || rapid.Bool().Draw(t, "well") {
				continue
			}
			script := &script{work: w}
			for range rapid.IntRange(1, 4).Draw(t, "answers") {
				a := answer{after: span("after")}
				switch rapid.IntRange(0, 4).Draw(t, "answer") {
				case 0:
					a.silent = true
				case 1, 2:
					a.fails = &events.Error{Code: rapid.SampledFrom([]string{"busy", "conflict"}).Draw(t, "code"), Permanent: rapid.IntRange(0, 5).Draw(t, "permanent") == 0}
				case 3:
					a.output = jsontext.Value(`{"id":"x"}`)
				}
				script.answers = append(script.answers, a)
			}
			test.scripts = append(test.scripts, script)
		}
	}
	steps, acts := []string{draw.Step(t)}, 0
	for _, s := range test.flow.Steps {
		if s.Approve != nil {
			steps, acts = append(steps, s.Name, s.Name, s.Name), 3
		}
	}
	for range rapid.IntRange(acts, 4).Draw(t, "acts") {
		a := act{after: span("when")}
		waits := func(s workflow.Step) bool { return s.Listen != nil || s.Approve != nil }
		if slices.ContainsFunc(test.flow.Steps, waits) && rapid.IntRange(0, 3).Draw(t, "what is waited for") > 0 || rapid.Bool().Draw(t, "of the world") {
			if rapid.Bool().Draw(t, "of somebody") {
				a.command = events.Command{Command: events.CommandDecide, Step: rapid.SampledFrom(steps).Draw(t, "step"), By: rapid.SampledFrom([]string{"ana", "bob"}).Draw(t, "by"), Outcome: rapid.SampledFrom([]string{"approved", "declined"}).Draw(t, "outcome")}
				a.roles = []string{"clerk"}
			} else {
				a.signal = draw.Signal(t)
			}
			test.acts = append(test.acts, a)
			continue
		}
		a.command = events.Command{Command: rapid.SampledFrom(commands).Draw(t, "command")}
		if rapid.Bool().Draw(t, "of a step") {
			a.command.Step = draw.Step(t)
		}
		if rapid.IntRange(0, 3).Draw(t, "with input") == 0 {
			a.command.Input = jsontext.Value(`{"n":2}`)
			a.command.NewKey = rapid.Bool().Draw(t, "new key")
		}
		test.acts = append(test.acts, a)
	}
	return test
}

// inspectResult holds what happened, and what left, against the rules that no history may break,
// and the order against the events.
func inspectResult(t *rapid.T, r *Result) {
	topics, err := events.NewTopics(events.DefaultNamespace)
	if err != nil {
		t.Fatal(err)
	}
	own := new(workflow.Set)
	own.Add(r.flow)
	claim := events.Event{Type: events.PartitionClaimed, At: r.starts, Instance: "test", Claim: "c", Partitions: 1, Format: events.JournalFormat}
	p := &inspect.Partition{
		Topics: &topics, Workflow: func(name string, version int) *workflow.Workflow {
			if flow := own.Find(name, version); flow != nil {
				return flow
			}
			return r.others.Find(name, version)
		},
		Journal: []*kgo.Record{{Topic: topics.Journal, Value: claim.Append(nil)}},
		Order: func(id string) *projections.Order {
			parts := r.parts()
			return parts[slices.IndexFunc(parts, func(part *Part) bool { return part.id == id })].Order
		},
		Quiet: true,
	}
	told := make(map[*Part]int)
	for _, part := range r.sequence {
		h := &part.Happened[told[part]]
		told[part]++
		p.Journal = append(p.Journal, &kgo.Record{Topic: topics.Journal, Value: h.Append(nil)})
		for _, m := range h.Messages {
			p.Messages = append(p.Messages, m.Envelope.Record(m.Topic, m.Value))
		}
	}
	inspector := inspect.New()
	inspector.Check(t, p)

	var alerts, asked int
	for _, part := range r.parts() {
		if messages := inspector.Messages[part.id]; messages != nil {
			alerts, asked = alerts+len(messages.Alerts), asked+len(messages.Requests)
		}
	}
	messages := inspector.Messages[OrderID]
	if messages == nil {
		messages = new(oracle.Messages)
	}
	if len(r.Children) == 0 && !reflect.DeepEqual(r.alerts, messages.Alerts) || len(r.alerts) != alerts || !reflect.DeepEqual(r.statuses, messages.Statuses) {
		t.Fatalf("alerts and statuses are\n%v\n%v\nand must be\n%v\n%v", r.alerts, r.statuses, messages.Alerts, messages.Statuses)
	}
	for w, requests := range r.requests {
		for i := range requests {
			page := strings.HasSuffix(w.step, pagesOf) && requests[i].Step == "page"
			if !page && requests[i].Step != w.step[strings.LastIndex(w.step, "/")+1:] || requests[i].Undo != w.undo {
				t.Fatalf("a request for %v is kept as one of %v", requests[i], w)
			}
			_, _, item := events.ItemOf(requests[i].Step)
			if _, _, page := events.PageOf(requests[i].Step); item || page { // which an order does
				continue
			}
			if s := r.step(w.step); s == nil || s.Child == nil {
				asked--
			}
		}
	}
	if asked != 0 {
		t.Fatalf("%d requests left that are not kept", asked)
	}
}

// TestManyStepsAtOnce: what one decision does not begin waits for its turn, at the same moment.
func TestManyStepsAtOnce(t *testing.T) {
	source := "workflow: wide\nsteps:\n"
	for i := range 250 {
		source += fmt.Sprintf("  - {name: s%d, agent: x, after: []}\n", i)
	}
	flow, err := workflow.Parse("wide.yaml", []byte(source))
	if err != nil {
		t.Fatal(err)
	}
	r := (&Test{flow: flow, starts: morning}).Perform()
	if r.Order.State != projections.Processed || r.Took != 0 || len(r.requests) != 250 {
		t.Errorf("the order is %s after %v, with %d requests", r.Order.State, r.Took, len(r.requests))
	}
}

// TestASignalTooMany: of what changes nothing a hundred leave an event. What leaves none was not
// done.
func TestASignalTooMany(t *testing.T) {
	flow, err := workflow.Parse("one.yaml", []byte("workflow: one\nsteps: [{name: a, agent: x}]"))
	if err != nil {
		t.Fatal(err)
	}
	test := &Test{flow: flow, starts: morning}
	for range 101 {
		test.acts = append(test.acts, act{after: time.Second, signal: events.Signal{Signal: "s"}, refused: "late"})
	}
	test.acts[100].refused = ""
	if d := test.Perform().Differences; len(d) != 1 || d[0].Found != "is refused: it changes nothing, as many before it did" {
		t.Errorf("%+v", d)
	}
}

// TestWhatIsFoundIsExpected: a test that expects what it finds passes, and does not once anything
// of that is another.
func TestWhatIsFoundIsExpected(t *testing.T) {
	dir := t.TempDir()
	flow := "workflow: flow\nsteps:\n" +
		"  - {name: a, agent: x, undo: u}\n  - {name: b, agent: y, exhausted: compensate}\n"
	if err := os.WriteFile(dir+"/flow.yaml", []byte(flow), 0o600); err != nil {
		t.Fatal(err)
	}
	source := func(state, reason, undone, not, of, attempts, input, statuses, last, took string) string {
		return fmt.Sprintf(`workflow: flow.yaml
tests:
  - name: x
    input: {n: [1, {m: "a"}]}
    agents: {b: [silent, {fails: {code: no, permanent: true}}]}
    expect:
      state: %s
      reason: %s
      undone: [%s]
      notUndone: [%s]
      steps: {b: {state: %s, attempts: %s, error: no, input: %s}}
      statuses: [received, %s, compensated]
      history:
        - order.accepted
        - step.started a 1
        - step.completed
        - step.started b 1
        - step.expired - 1 expired
        - step.retried b 2
        - step.started b
        - step.failed b 2 no
        - order.compensating
        - undo.started a
        - undo.completed a
        - %s
      took: %s
`, state, reason, undone, not, of, attempts, input, statuses, last, took)
	}
	good := []string{"Compensated", "step b failed for good", "a", "b", "failed", "2", `{n: [1.0, {m: "\u0061"}]}`, "compensating", "order.compensated", "31s"}
	bad := []string{"Cancelled", "step a failed for good", "", "", "expired", "1", `{n: [1, {m: "a", k: 1}]}`, "failed", "order.cancelled", "30s"}
	differences := func(texts []string) []Difference {
		f, err := Parse(dir+"/t.yaml", []byte(source(texts[0], texts[1], texts[2], texts[3], texts[4], texts[5], texts[6], texts[7], texts[8], texts[9])))
		if err != nil {
			t.Fatal(err)
		}
		return f.Tests[0].Perform().Differences
	}
	if d := differences(good); len(d) > 0 {
		t.Errorf("what is as expected differs: %+v", d)
	}
	for i := range good {
		spoiled := slices.Clone(good)
		spoiled[i] = bad[i]
		if d := differences(spoiled); len(d) != 1 {
			t.Errorf("with %s there are %d differences: %+v", bad[i], len(d), d)
		}
	}
}

// TestDamagedFiles: whatever is missing from a file, or stands in it twice, reading it ends with
// a test or with problems that have a place.
func TestDamagedFiles(t *testing.T) {
	const file = "../../examples/order-fulfilment/workflow_test.yaml"
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	try := func(damaged []byte) {
		t.Helper()
		defer func() {
			if v := recover(); v != nil {
				t.Errorf("panic: %v, for\n%s", v, damaged)
			}
		}()
		f, err := Parse(file, damaged)
		if (f == nil) == (err == nil) {
			t.Errorf("neither tests nor problems, or both, for\n%s", damaged)
		}
	}
	for i := range source {
		try(source[:i])
		if i%7 == 0 { // all would take a minute
			try(slices.Delete(slices.Clone(source), i, i+1))
			try(slices.Insert(slices.Clone(source), i, source[i]))
		}
	}
}
