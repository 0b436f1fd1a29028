package rehearsal

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/yamlfile"
)

// Difference is what is not as it was expected.
type Difference struct {
	Place           // in the test file
	What     string `json:"what"` // such as steps.charge.attempts
	Expected string `json:"expected"`
	Found    string `json:"found"`
	// Lines is the whole, where it has several: those that are there but not expected begin
	// with +, those that are expected but not there with -.
	Lines []string `json:"lines,omitempty"`
}

// check is something that is expected, and how it differs from what was found.
type check func(*Result) []Difference

// same expects one text.
func same(at Place, what, want string, found func(*Result) string) check {
	return func(r *Result) []Difference {
		if got := found(r); got != want {
			return []Difference{{Place: at, What: what, Expected: want, Found: got}}
		}
		return nil
	}
}

// expect reads what is expected of an order.
func (r *fileReader) expect(n ast.Node) (all []check) {
	add := func(c check) { all = append(all, c) }
	given := r.mapping(n, "expect", []field{
		{"state", func(n ast.Node) {
			var states []string
			for _, s := range projections.States {
				states = append(states, string(s))
			}
			want, at := r.oneOf(n, "state", states), placeOf(start(n))
			add(func(r *Result) []Difference {
				got := string(r.Order.State)
				if got == want {
					return nil
				}
				if why := cmp.Or(r.Order.StandingReason(), r.waits()); why != "" {
					got += ": " + why
				}
				return []Difference{{Place: at, What: "state", Expected: want, Found: got}}
			})
		}},
		{"reason", func(n ast.Node) {
			want, at := r.some(n, "reason"), placeOf(start(n))
			add(func(r *Result) []Difference {
				if got := r.Order.StandingReason(); !strings.Contains(got, want) {
					return []Difference{{Place: at, What: "reason", Expected: want, Found: orNothing(got)}}
				}
				return nil
			})
		}},
		{"output", func(n ast.Node) {
			want, at := r.value(n), placeOf(start(n))
			add(func(r *Result) []Difference { return compareJSON(at, "output", want, r.Order.Output()) })
		}},
		{"labels", func(n ast.Node) {
			want, at := r.pairs(n, "labels"), placeOf(start(n))
			add(same(at, "labels", listed(want), func(r *Result) string { return listed(r.Order.Labels) }))
		}},
		{"undone", func(n ast.Node) { add(r.names(n, "undone", func(e *events.Event) []string { return e.Undone })) }},
		{"notUndone", func(n ast.Node) { add(r.names(n, "notUndone", func(e *events.Event) []string { return e.NotUndone })) }},
		{"failedSteps", func(n ast.Node) {
			add(r.names(n, "failedSteps", func(e *events.Event) []string { return e.FailedSteps }))
		}},
		{"steps", func(n ast.Node) {
			r.works(n, "steps", func(w work, _ *workflow.Step, n ast.Node) { all = append(all, r.expectWork(n, w)...) })
		}},
		{"statuses", func(n ast.Node) {
			want, at := r.texts(n, "statuses", func(n ast.Node) string { return r.oneOf(n, "a status", statuses) }), placeOf(start(n))
			add(same(at, "statuses", join(want), func(r *Result) string {
				var got []string
				for i := range r.statuses {
					got = append(got, r.statuses[i].Status)
				}
				return join(got)
			}))
		}},
		{"alerts", func(n ast.Node) {
			want, at := r.texts(n, "alerts", func(n ast.Node) string { return r.some(n, "an alert") }), placeOf(start(n))
			add(func(r *Result) []Difference {
				var got []string
				for i := range r.alerts {
					got = append(got, r.alerts[i].Reason)
				}
				return compareLists(at, "alerts", want, got, func(i, j int) bool { return strings.Contains(got[j], want[i]) })
			})
		}},
		{"history", func(n ast.Node) { add(r.history(n)) }},
		{"took", func(n ast.Node) {
			want, at := r.duration(n, "took", 0), placeOf(start(n))
			add(same(at, "took", want.String(), func(r *Result) string { return r.Took.String() }))
		}},
	})
	r.require(n, given, "expect", "state")
	return all
}

// listed are labels as the command line writes them.
func listed(labels map[string]string) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		all = append(all, name+"="+labels[name])
	}
	return join(all)
}

// statuses are the words of all status messages that a test can see: nobody submits twice.
var statuses = []string{
	events.StatusReceived, events.StatusRejected, events.StatusCompleted, events.StatusFailed,
	events.StatusCompensating, events.StatusCompensated, events.StatusCancelled, events.StatusRaised, events.StatusTerminated,
}

func (r *fileReader) texts(n ast.Node, what string, read func(ast.Node) string) (all []string) {
	for _, entry := range r.list(n, what) {
		all = append(all, read(entry))
	}
	return all
}

// ends are the events with which orders end, and say what became of steps.
var ends = []events.Type{events.OrderCompleted, events.OrderCompensated, events.OrderCancelled, events.OrderRaised, events.OrderTerminated}

// names expects the names of steps that the order's last event has, in any order.
func (r *fileReader) names(n ast.Node, what string, of func(*events.Event) []string) check {
	want := r.texts(n, what, func(n ast.Node) string {
		name := r.some(n, "the step's name")
		r.check(start(n), work{step: name})
		return name
	})
	slices.Sort(want)
	return same(placeOf(start(n)), what, join(want), func(r *Result) string {
		var got []string
		for i := range r.Happened {
			if e := &r.Happened[i].Event; slices.Contains(ends, e.Type) {
				got = slices.Sorted(slices.Values(of(e)))
			}
		}
		return join(got)
	})
}

// stepStates are those of steps, and of undos.
var stepStates = []string{
	string(projections.NotStarted), string(projections.Running), string(projections.Completed), string(projections.Failed),
	string(projections.Expired), string(projections.Skipped), string(projections.Sleeping), string(projections.Listening), string(projections.TimedOut),
	string(projections.Repeating), string(projections.Undone), string(projections.DidRaise),
}

// expectWork reads what is expected of a step, or of its undo.
func (r *fileReader) expectWork(n ast.Node, w work) (all []check) {
	add := func(c check) { all = append(all, c) }
	what := func(key string) string { return "steps." + w.String() + "." + key }
	r.mapping(n, "what is expected of a step", []field{
		{"state", func(n ast.Node) {
			want := r.oneOf(n, "state", stepStates)
			add(same(placeOf(start(n)), what("state"), want, func(r *Result) string { return string(r.work(w).State) }))
		}},
		{"attempts", func(n ast.Node) {
			want := r.count(n, "attempts")
			add(same(placeOf(start(n)), what("attempts"), strconv.Itoa(want), func(r *Result) string { return strconv.Itoa(r.work(w).Attempt) }))
		}},
		{"error", func(n ast.Node) {
			want := "nothing"
			if n.GetToken().Type != token.NullType {
				want = r.some(n, "error")
			}
			add(same(placeOf(start(n)), what("error"), want, func(r *Result) string {
				if e := r.work(w).Error; e != nil {
					return e.Code
				}
				return "nothing"
			}))
		}},
		{"input", func(n ast.Node) {
			want, at := r.value(n), placeOf(start(n))
			add(func(r *Result) []Difference {
				asked := r.asked(w)
				if told := r.emitted[w.step]; told != nil && !w.undo { // what its event says
					return compareJSON(at, what("input"), want, told[len(told)-1].Value)
				}
				if s := r.step(w.step); s != nil && s.Approves != nil { // and sees what is shown
					return compareJSON(at, what("input"), want, s.Input)
				}
				if len(asked) == 0 {
					return []Difference{{Place: at, What: what("input"), Expected: string(want), Found: nobodyAsked}}
				}
				return compareJSON(at, what("input"), want, asked[len(asked)-1].Input)
			})
		}},
		{"key", func(n ast.Node) {
			want := r.some(n, "key")
			add(same(placeOf(start(n)), what("key"), want, func(r *Result) string {
				if told := r.emitted[w.step]; told != nil && !w.undo { // the event's id
					return told[len(told)-1].Envelope.ID
				}
				if asked := r.asked(w); len(asked) > 0 {
					return asked[len(asked)-1].IdempotencyKey
				}
				return nobodyAsked
			}))
		}},
		{"output", func(n ast.Node) {
			if w.undo {
				r.add(start(n), "what an undo answers is not kept; remove this")
			}
			want, at := r.value(n), placeOf(start(n))
			add(func(r *Result) []Difference {
				if s := r.step(w.step); s != nil {
					return compareJSON(at, what("output"), want, s.Output)
				}
				return compareJSON(at, what("output"), want, nil)
			})
		}},
	})
	return all
}

const nobodyAsked = "nothing: nobody was asked"

// asked are the requests of a step, or of its undo: agents know one that a migration renamed by the name that it had.
func (r *Result) asked(w work) []events.Request {
	if s := r.step(w.step); s != nil {
		w.step = w.step[:strings.LastIndex(w.step, "/")+1] + s.Known()
	}
	return r.requests[w]
}

// step is a step of the order, or of one that does a step; nil if that has not begun, or was rejected.
func (r *Result) step(name string) *projections.Step {
	of := &r.Part
	if i := strings.LastIndex(name, "/"); i >= 0 {
		if of, name = r.doing(name[:i]), name[i+1:]; of == nil {
			return nil
		}
	}
	return of.Order.Step(name)
}

// work is the record of a step, or of its undo. An order that was rejected has none.
func (r *Result) work(w work) *projections.Work {
	s := r.step(w.step)
	switch {
	case s != nil && !w.undo:
		return &s.Work
	case s != nil && s.Undo != nil:
		return s.Undo
	}
	return &projections.Work{State: projections.NotStarted}
}

// line is what is expected of an event: its name, step, attempt and the code of its error, as far
// as they are given.
type line []string

// history expects all events, in their order.
func (r *fileReader) history(n ast.Node) check {
	var want []line
	texts := r.texts(n, "history", func(n ast.Node) string {
		text := r.some(n, "an event")
		want = append(want, r.line(n, strings.Fields(text)))
		return text
	})
	at := placeOf(start(n))
	return func(r *Result) []Difference {
		found, got := make([]line, len(r.Happened)), make([]string, len(r.Happened))
		for i := range r.Happened {
			found[i] = lineOf(&r.Happened[i].Event)
			got[i] = strings.Join(found[i], " ")
		}
		return compareLists(at, "history", texts, got, func(i, j int) bool { return want[i].says(found[j]) })
	}
}

// whatever stands for a word of a line that may be any, or missing.
const whatever = "-"

// line reads the words of a line.
func (r *fileReader) line(n ast.Node, l line) line {
	const form = "write an event, a step, the number of its attempt and the code of its error, or - for whatever it is"
	if len(l) == 0 {
		return l // which has been reported
	}
	var names []string
	for i := range events.Specs {
		if s := &events.Specs[i]; !s.OfPartition {
			names = append(names, eventName(s.Type))
		}
	}
	if !slices.Contains(names, l[0]) {
		r.add(start(n), "there is no event %s%s", quote(l[0]), yamlfile.DidYouMean(l[0], names))
	}
	if len(l) > 1 && l[1] != whatever {
		r.check(start(n), work{step: l[1]})
	}
	if len(l) > 2 && l[2] != whatever {
		if i, err := strconv.Atoi(l[2]); err != nil || i < 1 {
			r.add(start(n), "%s is not the number of an attempt; %s", quote(l[2]), form)
		}
	}
	if len(l) > 4 {
		r.add(start(n), "%s is too much; %s", quote(strings.Join(l[4:], " ")), form)
	}
	return l
}

// lineOf is a whole line about an event, without what it does not have at its end.
func lineOf(e *events.Event) line {
	l := line{eventName(e.Type), whatever, whatever, whatever}
	if e.Step != "" {
		l[1] = e.Step
	}
	if e.Attempt > 0 {
		l[2] = strconv.Itoa(e.Attempt)
	}
	if e.Error != nil && e.Error.Code != "" {
		l[3] = e.Error.Code
	}
	for l[len(l)-1] == whatever {
		l = l[:len(l)-1]
	}
	return l
}

// says says whether a line is about the event of another, whole one.
func (l line) says(whole line) bool {
	for i, word := range l {
		if word != whatever && (i >= len(whole) || whole[i] != word) {
			return false
		}
	}
	return true
}

func eventName(t events.Type) string { return strings.TrimPrefix(string(t), "waybill.") }

func join(names []string) string { return orNothing(strings.Join(names, ", ")) }

func orNothing(text string) string {
	if text == "" {
		return "nothing"
	}
	return text
}

// waits says for what the order waits, since nothing else is to come; empty if it does not.
func (r *Result) waits() string { return r.waiting(&r.Part) }

func (r *Result) waiting(of *Part) string {
	for i := range of.Order.Steps {
		s := &of.Order.Steps[i]
		name := of.path + s.Name
		switch {
		case s.State == projections.Listening:
			return fmt.Sprintf("step %s listens for %s, and no signal comes", name, strings.Join(s.Listens.Names, ", "))
		case s.State == projections.Approving:
			return fmt.Sprintf("step %s asks %s, and nobody decides", name, strings.Join(s.Approves.Roles, ", "))
		case s.Each != nil && len(s.Each.Running) > 0:
			first := s.Each.Running[0]
			if child := r.doing(of.path + events.ItemStep(s.Name, first)); child != nil {
				return fmt.Sprintf("item %d of step %s waits for order %s, which is %s: %s", first, name, child.id, child.Order.State, cmp.Or(child.Order.StandingReason(), r.waiting(child)))
			}
			return fmt.Sprintf("step %s waits for its item %d, which does not end", name, first)
		case s.Each != nil && s.Each.Busy():
			asked := s.Each.Pages.Running
			if child := r.doing(of.path + events.PageStep(s.Name, asked)); child != nil {
				return fmt.Sprintf("step %s waits for page %d of its items, and order %s is %s: %s", name, asked, child.id, child.Order.State, cmp.Or(child.Order.StandingReason(), r.waiting(child)))
			}
			return fmt.Sprintf("step %s waits for page %d of its items, which does not come", name, asked)
		case s.Child == nil || s.State != projections.Running && (s.Undo == nil || s.Undo.State != projections.Running):
			continue
		}
		child := r.doing(name)
		if child == nil {
			return fmt.Sprintf("step %s waits for order %s, which does not end", name, s.Child.ID)
		}
		why := cmp.Or(child.Order.StandingReason(), r.waiting(child))
		return strings.TrimSuffix(fmt.Sprintf("step %s waits for order %s, which is %s: %s", name, child.id, child.Order.State, why), ": ")
	}
	return ""
}

// judge compares what became of the order with what was expected.
func (p *play) judge() {
	if p.stop != "" {
		p.Differences = append(p.Differences, Difference{Place: p.Place, What: "the order", Expected: "comes to an end, or to an operator", Found: p.stop})
	}
	for _, check := range p.expect {
		p.Differences = append(p.Differences, check(p.Result)...)
	}
	for _, s := range p.scripts {
		if used := p.used(s.work); used < len(s.answers) {
			p.Differences = append(p.Differences, Difference{
				Place: s.answers[used].Place, What: "agents." + s.String(),
				Expected: "at least " + attempts(len(s.answers)) + ", as there are answers", Found: attempts(used),
			})
		}
	}
	slices.SortStableFunc(p.Differences, func(a, b Difference) int { return a.compare(b.Place) })
}

func attempts(n int) string {
	if n == 1 {
		return "1 attempt"
	}
	return strconv.Itoa(n) + " attempts"
}

// compareAct notes where a command was refused, or a signal changed nothing, and should not, or the
// other way round.
func (p *play) compareAct(a *act, happened []Happening) {
	d := Difference{Place: a.Place, What: a.what(), Expected: "is done", Found: "is done"}
	if a.refused != "" {
		d.Expected = "is refused: " + a.refused
	}
	why := ""
	if len(happened) == 0 {
		why = "it changes nothing, as many before it did"
	}
	for i := range happened {
		if e := &happened[i].Event; e.Type == events.CommandRefused || e.Type == events.SignalDiscarded {
			why = e.Reason
		}
	}
	if why != "" {
		d.Found = "is refused: " + why
	}
	if (a.refused == "") != (why == "") || !strings.Contains(why, a.refused) {
		p.Differences = append(p.Differences, d)
	}
}
