package rehearsal

import (
	"cmp"
	"fmt"
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

// OrderID is the id of the order in every test: the jitter of its retries follows from it.
const OrderID = "o-1"

// Result is what became of a test.
type Result struct {
	*Test
	Order    *projections.Order
	Happened []Happening
	// Took is how long after its submission the last thing happened to the order. What changed
	// nothing does not count.
	Took time.Duration
	// Differences are what is not as it was expected; none if the test passed.
	Differences []Difference

	requests map[work][]events.Request
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
	stop   string // what the order is or does instead of coming to an end; empty if it came to one
}

// input is a record that somebody writes.
type input struct {
	at    time.Time
	topic string
	value []byte
	act   *act // of an operator, or of the world
}

// Perform performs the test. It starts no goroutine, and the clock is its own.
func (t *Test) Perform() *Result {
	p := &play{Result: &Result{Test: t, requests: make(map[work][]events.Request), emitted: make(map[string][]decide.Message)}}
	var err error
	if p.topics, err = events.NewTopics(events.DefaultNamespace); err != nil {
		panic(err) // the default is good
	}
	p.env = decide.Env{
		Now: t.starts, Instance: "test", Topics: &p.topics, Format: events.JournalFormat,
		Workflow: func(name string, version int) *workflow.Workflow {
			if name != t.flow.Name || version != 0 && version != t.flow.Version {
				return nil
			}
			return t.flow
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
		p.inputs = append(p.inputs, input{t.starts.Add(a.after), topic, value, a})
	}
	for p.stop == "" && p.turn() {
	}
	p.judge()
	return p.Result
}

func (p *play) submit() {
	s := events.Submission{Workflow: p.flow.Name, Input: p.input, By: p.submittedBy}
	if p.deadline > 0 {
		s.Deadline = events.Time(p.starts.Add(p.deadline))
	}
	value, err := s.Encode()
	if err != nil {
		panic(err) // it was read from a file
	}
	p.take(&input{at: p.starts, topic: p.topics.Orders, value: value})
}

// turn has the clock jump to what comes next, and decides on that: on an input, or on all whose
// deadline has come. What comes at one moment comes in this order: replies, as they were asked
// for, what operators do, signals, deadlines. It reports false once nothing is to come.
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
	before := p.Order.Seq
	for _, d := range p.due(at) {
		p.record(decide.Supervise(&p.env, p.Order, d.step))
	}
	if p.Order.Seq == before {
		panic(fmt.Sprintf("nothing follows from a deadline of the order, which is %s", p.Order.State))
	}
	return true
}

// earlier says whether an input comes before another one, which was written first.
func (p *play) earlier(in, first *input) bool {
	kind, _ := p.topics.Input(in.topic) // which are in that order
	other, _ := p.topics.Input(first.topic)
	return cmp.Or(in.at.Compare(first.at), cmp.Compare(kind, other)) < 0
}

// deadline is when the supervisor must look at a step, or at the order.
type deadline struct {
	at   time.Time
	step string // "" for the order
}

// due are the deadlines until then, all if that is zero, in the order in which a state store has
// them.
func (p *play) due(until time.Time) (all []deadline) {
	add := func(at time.Time, step string) {
		if !at.IsZero() && (until.IsZero() || !at.After(until)) {
			all = append(all, deadline{at, step})
		}
	}
	add(p.Order.Overdue(), "")
	for i := range p.Order.Steps {
		add(p.Order.Attention(&p.Order.Steps[i]), p.Order.Steps[i].Name)
	}
	slices.SortFunc(all, func(a, b deadline) int {
		return cmp.Or(a.at.Compare(b.at), strings.Compare(a.step, b.step))
	})
	return all
}

// take decides on an input.
func (p *play) take(in *input) {
	record := &decide.Record{Topic: in.topic, Offset: p.read, Raw: events.Raw{Key: []byte(OrderID), Value: in.value, Written: in.at}}
	if in.act != nil && in.act.roles != nil {
		roles := make([]string, len(in.act.roles))
		for i, role := range in.act.roles {
			roles[i] = events.ApproverRole(role)
		}
		actor := &events.Actor{Method: "key", Roles: roles, At: in.at}
		record.Headers = []events.RawHeader{{Key: events.HeaderActor, Value: p.env.Keys.Sign(p.topics.Namespace, OrderID, in.value, actor)}}
	}
	p.read++
	read := decide.Read(record, &p.topics, decide.Place{Of: func([]byte) int32 { return 0 }})
	if read.Unreadable != "" { // one that is too large
		p.stop = "cannot take what comes: " + read.Unreadable
		return
	}
	before := len(p.Happened)
	p.record(decide.On(&p.env, p.Order, &read))
	if in.act != nil {
		p.compareAct(in.act, p.Happened[before:])
	}
}

// record takes over a decision, and has agents answer what it asks of them. What steps give topics is
// acknowledged at once.
func (p *play) record(d decide.Decision) {
	if d.Order == nil {
		return
	}
	p.Order = d.Order
	var emits []events.Event
	for i := range d.Messages {
		m := &d.Messages[i]
		if m.Emits {
			e := p.Happened[len(p.Happened)-1].Event
			emits, p.emitted[e.Step] = append(emits, e), append(p.emitted[e.Step], *m)
			p.left(m)
			continue
		}
		switch m.Topic {
		case p.topics.Journal:
			e := must(events.Decode[events.Event](m.Value))
			p.Happened = append(p.Happened, Happening{Event: e})
			if e.Type != events.ReplyDiscarded && e.Type != events.CommandRefused && e.Type != events.SignalDiscarded {
				p.Took = e.At.Sub(p.starts)
			}
			continue
		case p.topics.Status:
			p.statuses = append(p.statuses, must(events.Decode[events.Status](m.Value)))
		case p.topics.Alerts:
			p.alerts = append(p.alerts, must(events.Decode[events.Alert](m.Value)))
		default:
			p.ask(must(events.Decode[events.Request](m.Value)))
		}
		p.left(m)
	}
	for i := range emits {
		p.record(decide.Emitted(&p.env, p.Order, emits[i].Step, emits[i].Seq, ""))
	}
}

// left notes a message that left on account of the last event.
func (p *play) left(m *decide.Message) {
	last := &p.Happened[len(p.Happened)-1]
	last.Messages = append(last.Messages, *m)
}

// ask has an agent answer as its script says.
func (p *play) ask(r events.Request) {
	w := work{r.Step, r.Undo}
	number := len(p.requests[w])
	p.requests[w] = append(p.requests[w], r)
	a := answer{} // completed, without output
	if i := slices.IndexFunc(p.scripts, func(s *script) bool { return s.work == w }); i >= 0 {
		a = p.scripts[i].answers[min(number, len(p.scripts[i].answers)-1)]
	}
	if a.silent {
		return
	}
	reply := events.Reply{Order: r.Order, Step: r.Step, Attempt: r.Attempt, Undo: r.Undo, Status: events.ReplyCompleted, Output: a.output}
	if a.fails != nil {
		reply.Status, reply.Error = events.ReplyFailed, a.fails
	}
	p.inputs = append(p.inputs, input{at: p.env.Now.Add(a.after), topic: p.topics.Replies, value: reply.Append(nil)})
}

// must is what was just decided, in its own words.
func must[M any](m M, err error) M {
	if err != nil {
		panic(err)
	}
	return m
}
