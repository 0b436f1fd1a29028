package rehearsal

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/decide"
	"github.com/waybill-dev/waybill/orchestrator/proof"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
)

// A play ends by itself; these are for one that would take for ever, as one does whose attempts
// go on for a thousand rounds.
const (
	mostTurns = 20_000
	longest   = 100 * 365 * 24 * time.Hour
)

// OrderID is the id of the order in every test that submits one: the jitter of its retries follows from it.
const OrderID = "o-1"

// Part is what became of an order.
type Part struct {
	Order    *projections.Order
	Happened []Happening

	id   string
	path string // before the names of its steps: that of the step which it does, and a slash
}

// ID is the order's id.
func (p *Part) ID() string { return p.id }

// Step is the step that it does, "" if none.
func (p *Part) Step() string { return strings.TrimSuffix(p.path, "/") }

// Result is what became of a test.
type Result struct {
	*Test
	Part             // its order
	Children []*Part // those that do steps, as they began; none that a script plays
	// Took is how long after its submission the last thing happened to the order. What changed
	// nothing does not count.
	Took time.Duration
	// Differences are what is not as it was expected; none if the test passed.
	Differences []Difference

	sequence []*Part                     // whose each event is, of all
	requests map[work][]events.Request   // and what orders were asked that do steps
	emitted  map[string][]decide.Message // by step
	statuses []events.Status
	alerts   []events.Alert
}

// Happening is an event of the order, and what left on account of it.
type Happening struct {
	events.Event
	Messages []decide.Message
}

// play is a test while it is performed: what surrounds a lane.
type play struct {
	*Result
	env    decide.Env
	topics events.Topics
	inputs []input // that are still to come
	read   int64   // how many inputs were
	turns  int
	played map[string]bool  // the ids of orders that scripts play
	homes  map[string]*Part // of keys under which steps listen, and of limits, by their ids
	stop   string           // what the order is or does instead of coming to an end; empty if it came to one
}

// input is a record that somebody writes.
type input struct {
	at     time.Time
	topic  string
	order  string      // empty for that which does the step of an act
	kind   events.Type // empty but for what orders tell each other
	value  []byte
	act    *act   // of an operator, or of the world
	played string // the order that tells it, where a script plays that
}

// Perform performs the test. It starts no goroutine, and the clock is its own.
func (t *Test) Perform() *Result {
	p := &play{
		Result: &Result{Test: t, Part: Part{id: OrderID}, requests: make(map[work][]events.Request), emitted: make(map[string][]decide.Message)},
		played: make(map[string]bool), homes: make(map[string]*Part),
	}
	var err error
	if p.topics, err = events.NewTopics(events.DefaultNamespace); err != nil {
		panic(err) // the default is good
	}
	own := new(workflow.Set) // the workflow, and its steps that do items
	own.Add(t.flow)
	p.env = decide.Env{
		Now: t.starts, Instance: "test", Topics: &p.topics, Format: events.JournalFormat,
		Workflow: func(name string, version int) *workflow.Workflow {
			if flow := own.Find(name, version); flow != nil || t.others == nil {
				return flow
			}
			return t.others.Find(name, version)
		},
		Starts: func(signal string) *workflow.Workflow {
			if flow := own.Starts(signal); flow != nil || t.others == nil {
				return flow
			}
			return t.others.Starts(signal)
		},
		Refuses: func(string, int) string { return "" },
		Away:    func(string, string, int) string { return "" },
		Keys:    proof.New([]proof.Key{{ID: "test", Secret: []byte("test")}}, proof.Off, nil), // by which people are known
	}
	p.submit()
	for i := range t.acts {
		a, topic := &t.acts[i], p.topics.Commands
		if a.roles != nil { // each is a decision of its own
			a.command.ID = fmt.Sprint("do-", i+1)
		}
		encode := a.command.Encode
		if a.signal.Signal != "" {
			topic, encode = p.topics.Signals, a.signal.Encode
		}
		value, err := encode()
		if err != nil {
			panic(err) // it was read from a file
		}
		in := input{at: t.starts.Add(a.after), topic: topic, value: value, act: a}
		switch {
		case a.signal.Key != "":
			in.order = events.CorrelationID(a.signal.Signal, a.signal.Key)
		case a.child == "":
			in.order = p.id
		}
		p.inputs = append(p.inputs, in)
	}
	for p.stop == "" && p.turn() {
	}
	p.judge()
	return p.Result
}

func (p *play) submit() {
	if p.startKey != "" {
		p.start()
		return
	}
	s := events.Submission{Workflow: p.flow.Name, Input: p.input, By: p.submittedBy, Labels: p.labels}
	if p.deadline > 0 {
		s.Deadline = events.Time(p.starts.Add(p.deadline))
	}
	value, err := s.Encode()
	if err != nil {
		panic(err) // it was read from a file
	}
	p.take(&input{at: p.starts, topic: p.topics.Orders, order: OrderID, value: value})
}

// start has a signal start the order. Its first events come before all else.
func (p *play) start() {
	s := events.Signal{Signal: p.flow.Start.Signal, Key: p.startKey, Data: p.input}
	value, err := s.Encode()
	if err != nil {
		panic(err) // it was read from a file
	}
	home := events.CorrelationID(s.Signal, s.Key)
	p.id = events.StartedID(home, 1)
	p.take(&input{at: p.starts, topic: p.topics.Signals, order: home, value: value})
	for p.Order == nil && len(p.inputs) > 0 {
		in := p.inputs[0]
		p.inputs = p.inputs[1:]
		p.take(&in)
	}
}

// turn has the clock jump to what comes next, and decides on that: on an input, or on all whose
// deadline has come. What comes at one moment comes in this order: replies, as they were asked
// for, what operators do, signals, what orders tell each other, deadlines. It reports false once nothing is to come.
func (p *play) turn() bool {
	next := -1
	for i := range p.inputs {
		if next < 0 || p.earlier(&p.inputs[i], &p.inputs[next]) {
			next = i
		}
	}
	due := p.due(time.Time{})
	if next < 0 && due == nil {
		return false
	}
	input := next >= 0 && (due == nil || !due[0].at.Before(p.inputs[next].at))
	at := p.env.Now // what waits for nothing but its turn was due before
	if input {
		at = p.inputs[next].at
	} else if due[0].at.After(at) {
		at = due[0].at
	}
	if p.turns++; p.turns > mostTurns {
		p.stop = fmt.Sprintf("is %s after %d answers, commands, signals and deadlines", p.Order.State, mostTurns)
		return false
	}
	if at.Sub(p.starts) > longest {
		p.stop = fmt.Sprintf("is %s, and what comes next comes at %s", p.Order.State, at.Format(time.DateOnly))
		return false
	}
	p.env.Now = at
	if input {
		in := p.inputs[next]
		p.inputs = slices.Delete(p.inputs, next, next+1)
		p.take(&in)
		return true
	}
	followed := false
	for _, d := range p.due(at) {
		before := d.of.Order.Seq
		p.record(d.of, decide.Supervise(&p.env, d.of.Order, d.step))
		followed = followed || d.of.Order.Seq > before
	}
	if !followed {
		panic(fmt.Sprintf("nothing follows from a deadline of the order, which is %s", p.Order.State))
	}
	return true
}

// parts are the orders that there are.
func (r *Result) parts() []*Part { return append([]*Part{&r.Part}, r.Children...) }

// doing is the last order that did a step, nil if there is none, or a script plays it.
func (r *Result) doing(step string) (found *Part) {
	for _, part := range r.parts() {
		if part.path == step+"/" && part.Order != nil {
			found = part
		}
	}
	return found
}

// earlier says whether an input comes before another one, which was written first.
func (p *play) earlier(in, first *input) bool {
	kind, _ := p.topics.Input(in.topic) // which are in that order
	other, _ := p.topics.Input(first.topic)
	return cmp.Or(in.at.Compare(first.at), cmp.Compare(kind, other)) < 0
}

// deadline is when the supervisor must look at a step, or at an order.
type deadline struct {
	at   time.Time
	of   *Part
	step string // "" for the order
}

// due are the deadlines until then, all if that is zero, in the order in which a state store has
// them.
func (p *play) due(until time.Time) (all []deadline) {
	for _, part := range p.parts() {
		o := part.Order
		if o == nil {
			continue
		}
		add := func(at time.Time, step string) {
			if !at.IsZero() && (until.IsZero() || !at.After(until)) {
				all = append(all, deadline{at, part, step})
			}
		}
		add(o.Overdue(), "")
		for i := range o.Steps {
			add(o.Attention(&o.Steps[i]), o.Steps[i].Name)
		}
	}
	slices.SortFunc(all, func(a, b deadline) int {
		return cmp.Or(a.at.Compare(b.at), strings.Compare(a.of.id, b.of.id), strings.Compare(a.step, b.step))
	})
	return all
}

// take decides on an input.
func (p *play) take(in *input) {
	var of *Part
	if in.act != nil && in.act.child != "" {
		if of = p.doing(in.act.child); of == nil {
			p.Differences = append(p.Differences, Difference{Place: in.act.Place, What: in.act.what(), Expected: "is done", Found: "no order does step " + in.act.child})
			return
		}
	} else if i := slices.IndexFunc(p.parts(), func(part *Part) bool { return part.id == in.order }); i >= 0 {
		of = p.parts()[i]
	} else if of = p.homes[in.order]; of == nil {
		of = &Part{id: in.order}
		if events.LimitOf(in.order) != "" { // there is room for all: what others do is not of the play
			of.Order = &projections.Order{ID: in.order, Places: &projections.Places{Says: &events.Limit{AtATime: events.MaxPlaces}}}
		}
		p.homes[in.order] = of
	}
	record := &decide.Record{Topic: in.topic, Offset: p.read, Raw: events.Raw{Key: []byte(of.id), Value: in.value, Written: in.at}}
	if in.kind != "" {
		record.Headers = []events.RawHeader{{Key: events.HeaderType, Value: []byte(in.kind)}}
	}
	if in.act != nil && in.act.roles != nil {
		roles := make([]string, len(in.act.roles))
		for i, role := range in.act.roles {
			roles[i] = events.ApproverRole(role)
		}
		actor := &events.Actor{Method: "key", Roles: roles, At: in.at}
		record.Headers = []events.RawHeader{{Key: events.HeaderActor, Value: p.env.Keys.Sign(p.topics.Namespace, of.id, in.value, actor)}}
	}
	p.read++
	read := decide.Read(record, &p.topics, decide.Place{Of: func([]byte) int32 { return 0 }})
	if read.Unreadable != "" { // one that is too large
		p.stop = "cannot take what comes: " + read.Unreadable
		return
	}
	before := len(of.Happened)
	p.record(of, decide.On(&p.env, of.Order, &read))
	if in.act != nil {
		p.compareAct(in.act, of.Happened[before:])
	}
}

// record takes over a decision, and has agents and other orders answer what it asks of them. What
// steps give topics is acknowledged, or refused, at once.
func (p *play) record(of *Part, d decide.Decision) {
	if d.Order == nil {
		for i := range d.Messages { // what goes back to its sender
			m := &d.Messages[i]
			p.tell(m.Envelope.Order, m.Envelope.Type, m.Value)
		}
		return
	}
	of.Order = d.Order
	var emits []events.Event
	for i := range d.Messages {
		m := &d.Messages[i]
		if m.Emits {
			e := of.Happened[len(of.Happened)-1].Event
			emits, p.emitted[of.path+e.Step] = append(emits, e), append(p.emitted[of.path+e.Step], *m)
			of.left(m)
			continue
		}
		if m.Topic == p.topics.Journal {
			e := must(events.Decode[events.Event](m.Value))
			if of.Happened = append(of.Happened, Happening{Event: e}); p.homes[of.id] == nil {
				p.sequence = append(p.sequence, of)
			}
			if of == &p.Part && e.Type != events.ReplyDiscarded && e.Type != events.CommandRefused && e.Type != events.SignalDiscarded {
				p.Took = e.At.Sub(p.starts)
			}
			continue
		}
		switch m.Envelope.Type {
		case events.OrderStatus:
			if of == &p.Part {
				p.statuses = append(p.statuses, must(events.Decode[events.Status](m.Value)))
			}
		case events.AlertRaised:
			p.alerts = append(p.alerts, must(events.Decode[events.Alert](m.Value)))
		case events.ChildWanted:
			p.wish(of, must(events.Decode[events.Wish](m.Value)))
		case events.ChildReported, events.SignalWanted, events.SignalPassed, events.PlaceWanted, events.PlaceGiven:
			p.tell(m.Envelope.Order, m.Envelope.Type, m.Value)
		default:
			p.ask(of, must(events.Decode[events.Request](m.Value)))
		}
		of.left(m)
	}
	for i := range emits {
		e, why := &emits[i], ""
		step := of.path + e.Step
		a, _ := p.scripted(work{step: step}, len(p.emitted[step])-1)
		if a.silent {
			continue
		}
		if a.fails != nil {
			why = cmp.Or(a.fails.Message, "the test says so")
		}
		p.record(of, decide.Emitted(&p.env, of.Order, e.Step, e.Seq, why))
	}
}

// left notes a message that left on account of the last event.
func (p *Part) left(m *decide.Message) {
	last := &p.Happened[len(p.Happened)-1]
	last.Messages = append(last.Messages, *m)
}

// next is how what is asked for is answered, and notes that it is asked for.
func (p *play) next(w work, r events.Request) (a answer, scripted bool) {
	number := len(p.requests[w])
	p.requests[w] = append(p.requests[w], r)
	return p.scripted(w, number)
}

// scripted is how an attempt is answered, of which there were so many before.
func (p *play) scripted(w work, number int) (a answer, scripted bool) {
	is := func(w work) func(*script) bool { return func(s *script) bool { return s.work == w } }
	i := slices.IndexFunc(p.scripts, is(w))
	if i < 0 { // what is said of all items
		i = slices.IndexFunc(p.scripts, is(work{itemOf.ReplaceAllString(w.step, ""), w.undo}))
	}
	if i < 0 && strings.HasSuffix(w.step, pagesOf) {
		return answer{output: []byte(`{"items":[]}`)}, false
	}
	if i < 0 {
		return answer{}, false // completed, without output
	}
	return p.scripts[i].answers[min(number, len(p.scripts[i].answers)-1)], true
}

// used is how many attempts there were of some work, or of that of all items.
func (p *play) used(of work) (n int) {
	for w, requests := range p.requests {
		if w == of || of == (work{itemOf.ReplaceAllString(w.step, ""), w.undo}) {
			n += len(requests)
		}
	}
	for step, told := range p.emitted {
		if of == (work{step: step}) || of == (work{step: itemOf.ReplaceAllString(step, "")}) {
			n += len(told)
		}
	}
	return n
}

// itemOf is what the name of a step has behind it that does one item of a list.
var itemOf = regexp.MustCompile(`:i[1-9][0-9]*`)

// page is what the name of a step has behind it whose agent is asked for a page of its items.
var page = regexp.MustCompile(`:p[1-9][0-9]*/page$`)

// ask has an agent answer as its script says.
func (p *play) ask(of *Part, r events.Request) {
	a, _ := p.next(work{page.ReplaceAllString(of.path+r.Step, pagesOf), r.Undo}, r)
	if a.silent {
		return
	}
	reply := events.Reply{Order: r.Order, Step: r.Step, Attempt: r.Attempt, Undo: r.Undo, Status: events.ReplyProgress}
	for at := a.progress; at > 0 && at < a.after; at += a.progress {
		p.inputs = append(p.inputs, input{at: p.env.Now.Add(at), topic: p.topics.Replies, order: of.id, value: reply.Append(nil)})
	}
	reply.Status, reply.Output = events.ReplyCompleted, a.output
	if a.fails != nil {
		reply.Status, reply.Error = events.ReplyFailed, a.fails
	}
	p.inputs = append(p.inputs, input{at: p.env.Now.Add(a.after), topic: p.topics.Replies, order: of.id, value: reply.Append(nil)})
}

// tell has an order hear what another tells it.
func (p *play) tell(order string, kind events.Type, value []byte) {
	p.inputs = append(p.inputs, input{at: p.env.Now, topic: p.topics.Internal, order: order, kind: kind, value: value})
}

// wish has the order that does a step do what it is asked for: for real where its workflow is known
// and no script says how it ends.
func (p *play) wish(of *Part, wish events.Wish) {
	if events.IsCorrelation(of.id) { // of the orders that signals start only the test's is there
		if wish.Child == p.id {
			p.tell(wish.Child, events.ChildWanted, wish.Append(nil))
			return
		}
		report := events.Report{Parent: wish.Parent, Step: wish.Step, Child: wish.Child, State: string(projections.Pending)}
		p.tell(wish.Parent, events.ChildReported, report.Append(nil))
		return
	}
	w := work{of.path + wish.Step, wish.Wish == events.WishUndo}
	var a answer
	if wish.Wish != events.WishCancel {
		var scripted bool
		a, scripted = p.next(w, events.Request{Order: wish.Parent, Step: wish.Step, Undo: w.undo, Input: wish.Input, IdempotencyKey: wish.Child})
		if wish.Wish == events.WishBegin {
			if !scripted && p.env.Workflow(wish.Workflow, wish.Version) != nil {
				p.Children = append(p.Children, &Part{id: wish.Child, path: w.step + "/"})
			} else {
				p.played[wish.Child] = true
			}
		}
	}
	if !p.played[wish.Child] {
		p.tell(wish.Child, events.ChildWanted, wish.Append(nil))
		return
	}
	report := events.Report{Parent: wish.Parent, Step: wish.Step, Child: wish.Child}
	switch {
	case wish.Wish == events.WishCancel: // it has not told how it ended, and does not any more
		p.inputs = slices.DeleteFunc(p.inputs, func(in input) bool { return in.played == wish.Child })
		report.State, report.Error = string(projections.Cancelled), &events.Error{Code: "cancelled", Message: wish.Reason}
	case a.silent:
		return
	case a.fails != nil:
		report.State, report.Error, report.Left = string(projections.Raised), a.fails, a.left
	case w.undo:
		report.State, report.Left = string(projections.Compensated), a.left
	case wish.Detached:
		report.State = string(projections.Pending)
	default:
		report.State, report.Output = string(projections.Processed), a.output
	}
	p.inputs = append(p.inputs, input{at: p.env.Now.Add(a.after), topic: p.topics.Internal, order: wish.Parent, kind: events.ChildReported, value: report.Append(nil), played: wish.Child})
}

// must is what was just decided, in its own words.
func must[M any](m M, err error) M {
	if err != nil {
		panic(err)
	}
	return m
}
