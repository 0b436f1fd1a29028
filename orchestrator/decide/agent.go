package decide

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/proof"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
)

// agent is the [kind] of a step that is one operation of an agent. The agent is asked
// by a request and answers by a reply; undoing the step is another operation of it.
type agent struct{}

func (agent) hasUndo(def *workflow.Step) bool { return def.Undo != "" }

// requestRefused is the code of an attempt whose request Kafka would not take.
const requestRefused = "request-refused"

// queueExpired is the code of an attempt whose agent could not be asked for as long as
// the workflow has it wait.
const queueExpired = "queue-expired"

// start asks for the operation, unless its input cannot be made, or the request not be
// written. It waits for an agent whose topic cannot be written now, or that has enough
// to do.
func (agent) start(env *Env, t task) (e events.Event, waits Ask, fault *events.Error) {
	e = events.Event{Type: t.started, Agent: t.def.Agent, Operation: t.def.Do}
	if s := env.Keys.Setting(e.Agent); s != proof.Off && env.Format >= events.ProofFormat {
		e.Proof = string(s)
	}
	with, size := t.def.With, envelopeSize(t.order)
	if t.undo {
		e.Operation, with = t.def.Undo, t.def.UndoWith
		size += len(t.step.Output)
	}
	ask := t.ask(env.Topics)
	room := func() bool { return env.Room == nil || env.Room(&ask) }
	waited := !t.work().Due.IsZero() // then its input is made once there is room: there may be a thousand
	if waited && (env.Away(t.order.ID, ask.Topic, EnvelopeSize) != "" || !room()) {
		return e, ask, nil
	}
	input := t.work().Input
	if with != nil && input == nil {
		value, err := with.Value(t.scope())
		if err != nil {
			return e, Ask{}, &events.Error{Code: badExpression, Message: err.Error()}
		}
		e.Input, input = value, value
	}
	switch {
	case input != nil:
	case t.undo:
		input = undoInput(t.order, t.step)
	default:
		input = inputOf(t.order, t.step)
	}
	size += len(input)
	if why := env.Refuses(ask.Topic, size); why != "" {
		return e, Ask{}, &events.Error{Code: requestRefused, Message: fmt.Sprintf("the request to agent %s was refused: %s", e.Agent, why)}
	}
	if !waited && !room() || env.Away(t.order.ID, ask.Topic, size) != "" { // who may try is not to wait then
		return e, ask, nil
	}
	return e, Ask{}, nil
}

// Ask is what an attempt asks of its agent.
type Ask struct {
	Topic, Operation string // the agent's request topic
	Timeout          time.Duration
	Undo             bool
	Priority         events.Priority // of its order
	// Attempts is how many its retry policy allows.
	Attempts int
	// Since is from when on it could have begun, if it waits.
	Since time.Time
	// Until is when it has waited for as long as its workflow says; zero is for ever.
	Until time.Time
}

func (t task) ask(topics *events.Topics) Ask {
	a := Ask{Topic: topics.Requests(t.def.Agent), Operation: t.def.Do, Timeout: t.def.Timeout, Undo: t.undo, Priority: t.order.Priority, Attempts: t.def.Retry.Attempts}
	if t.undo {
		a.Operation = t.def.Undo
	}
	a.Since = t.work().Due
	if t.def.Queue > 0 && !a.Since.IsZero() && !t.undo { // what was done is undone whenever that is
		a.Until = a.Since.Add(t.def.Queue)
	}
	return a
}

// Attempt is one that is with its agent.
type Attempt struct {
	Ask
	Place int // of its step in the order
	Work  *projections.Work
}

// UnderWay tells of each attempt of an order, of a step or an undo, that is with its
// agent.
func UnderWay(topics *events.Topics, flow *workflow.Workflow, o *projections.Order, tell func(Attempt)) {
	moves(topics, nil, nil, flow, o, nil, tell)
}

// UnderWay tells of each attempt of the order that is with its agent, as far as the decision needed
// to know the workflow.
func (d *Decision) UnderWay(topics *events.Topics, o *projections.Order, tell func(Attempt)) {
	UnderWay(topics, d.flow, o, tell)
}

// Resting tells of each attempt of an order, of a step or an undo, that is to be made after one
// that expired.
func Resting(topics *events.Topics, flow *workflow.Workflow, o *projections.Order, tell func(Attempt)) {
	if flow == nil || len(o.Steps) != len(flow.Steps) {
		return
	}
	for place := range flow.Steps {
		for _, s := range []*side{doing, undoing} {
			t := task{side: s, order: o, step: &o.Steps[place], def: &flow.Steps[place]}
			if w := t.work(); t.def.Agent != "" && w.Unanswered && !w.Due.IsZero() {
				tell(Attempt{t.ask(topics), place, w})
			}
		}
	}
}

// Moves tells of each attempt that was with its agent before the decision, and is not any
// more, and of each that is now.
func (d *Decision) Moves(topics *events.Topics, before *projections.Order, ended, began func(Attempt)) {
	moves(topics, cmp.Or(d.before, d.flow), before, d.flow, d.Order, ended, began)
}

// moves tells what moved between an order as it was, of one workflow, and as it is, of another if it has
// migrated. What goes on is asked for as the other says, then, and ends to begin anew.
func moves(topics *events.Topics, flow *workflow.Workflow, before *projections.Order, to *workflow.Workflow, after *projections.Order, ended, began func(Attempt)) {
	tell := func(flow *workflow.Workflow, o *projections.Order, place int, s *side, w *projections.Work, say func(Attempt)) {
		if w != nil {
			t := task{side: s, order: o, step: &o.Steps[place], def: &flow.Steps[place]}
			say(Attempt{t.ask(topics), place, w})
		}
	}
	if flow != to {
		each(flow, before, func(place int, s *side, w *projections.Work) { tell(flow, before, place, s, w, ended) })
		each(to, after, func(place int, s *side, w *projections.Work) { tell(to, after, place, s, w, began) })
		return
	}
	if flow == nil {
		return
	}
	for place := range flow.Steps {
		for _, s := range []*side{doing, undoing} {
			was, is := running(flow, before, place, s), running(flow, after, place, s)
			if was != nil && is != nil && was.Attempt == is.Attempt {
				continue
			}
			tell(flow, before, place, s, was, ended)
			tell(flow, after, place, s, is, began)
		}
	}
}

// each tells of each attempt of an order that is with its agent, where the workflow is known.
func each(flow *workflow.Workflow, o *projections.Order, tell func(place int, s *side, w *projections.Work)) {
	if flow == nil {
		return
	}
	for place := range flow.Steps {
		for _, s := range []*side{doing, undoing} {
			tell(place, s, running(flow, o, place, s))
		}
	}
}

// running is the attempt of a step, or of its undo, that is with its agent; nil if none is.
func running(flow *workflow.Workflow, o *projections.Order, place int, s *side) *projections.Work {
	if o == nil || len(o.Steps) != len(flow.Steps) || flow.Steps[place].Agent == "" {
		return nil
	}
	w := &o.Steps[place].Work
	if s.undo {
		w = o.Steps[place].Undo
	}
	if w == nil || w.State != projections.Running {
		return nil
	}
	return w
}

// take says that an attempt ended as its agent says. A reply counts only for the
// attempt that runs, and only in time.
func (agent) take(env *Env, t task, r *events.Reply, written time.Time) (e events.Event, discarded string) {
	switch why := discard(env, t.work(), r, written); {
	case why != "":
		return e, why
	case r.Status == events.ReplyCompleted && events.Depth(r.Output) > maxDepth:
		return events.Event{Type: t.failed, Error: refusedOutput(fmt.Sprintf("it is nested more than %d deep", maxDepth))}, ""
	case r.Status == events.ReplyCompleted:
		return events.Event{Type: t.completed, Output: r.Output}, ""
	case r.Error != nil:
		e = events.Event{Type: t.failed, Error: r.Error}
		t.replaced(env, &e)
		return e, ""
	}
	return events.Event{Type: t.failed, Error: &events.Error{Code: "error", Message: "the agent gave no reason"}}, ""
}

// discard says why a reply changes nothing, "" if it counts.
//
// In time means before the attempt expires either by the record's time or by
// the clock of now: a reply is not lost because nobody was there to read it,
// nor because the agent's clock is ahead.
func discard(env *Env, work *projections.Work, r *events.Reply, written time.Time) string {
	switch {
	case r.Attempt > work.Attempt || r.Attempt < 1:
		return events.DiscardUnknownStep
	case r.Attempt < work.Attempt:
		return events.DiscardStale
	case work.Unanswered:
		return events.DiscardLate
	case work.State != projections.Running:
		return events.DiscardRepeated
	case env.Now.After(work.Ends()) && written.After(work.Ends()):
		return events.DiscardLate
	}
	return ""
}

func (a agent) timeOver(d *decider, t task) { d.end(t, a.expire(d.env, t)) }

func (agent) remedy(t task) string {
	return fmt.Sprintf("give the step its input: waybill order resubmit %s --step %s --input JSON", quote(t.order.ID), t.step.Name)
}

// expire says that nobody answered in time. That is no attempt of the retry policy's where
// others wait for the agent, and it gives no sign, or has more to do than it takes: it would use up
// those of one after the other.
func (agent) expire(env *Env, t task) events.Event {
	e := events.Event{Type: t.expired, Error: &events.Error{
		Code: "expired", Message: "no reply by " + string(events.AppendTime(nil, t.work().CompleteBy)),
	}}
	// One that the order can do without is not waited for.
	if env.Format >= events.UncountedFormat && env.Excuses != nil && t.def != nil && (t.undo || t.def.Exhausted != workflow.ExhaustedContinue) {
		ask := t.ask(env.Topics)
		e.Uncounted = env.Excuses(t.order, &ask, t.work())
	}
	return e
}

// request is the message that follows from the start of an attempt. The envelope is
// that of its event.
func request(topics *events.Topics, keys *proof.Keys, o *projections.Order, e *events.Event, envelope events.Envelope) Message {
	m := requested(o, e)
	m.ReplyTo = topics.Replies
	if e.Proof != "" {
		m.Token = keys.Token(&proof.Attempt{Namespace: topics.Namespace, Order: o.ID, Step: m.Step, Number: e.Attempt, Undo: m.Undo, Agent: e.Agent})
	}
	envelope.Type = events.StepRequested
	envelope.ID += "/request"
	envelope.Extra = make([]events.RawHeader, 0, 7)
	header := func(key string, value []byte) {
		envelope.Extra = append(envelope.Extra, events.RawHeader{Key: key, Value: value})
	}
	header("ce_step", []byte(m.Step))
	header("ce_attempt", strconv.AppendInt(nil, int64(e.Attempt), 10))
	header("ce_completeby", events.AppendTime(nil, e.CompleteBy))
	header("ce_idempotencykey", []byte(e.IdempotencyKey))
	header("ce_replyto", []byte(topics.Replies))
	if m.Undo {
		header("ce_undo", []byte("true"))
	}
	if m.Priority != "" {
		header("ce_priority", []byte(m.Priority))
	}
	return Message{Topic: topics.Requests(e.Agent), Envelope: envelope, Value: m.Append(make([]byte, 0, 256+len(m.Input)+len(m.Output)))}
}

// requested is what the agent is asked for.
func requested(o *projections.Order, e *events.Event) events.Request {
	step := o.Step(e.Step)
	m := events.Request{
		Order: o.ID, Step: step.Known(), Attempt: e.Attempt, Operation: e.Operation,
		CompleteBy: e.CompleteBy, ExtendTo: e.ExtendTo, IdempotencyKey: e.IdempotencyKey,
		Input: inputOf(o, step),
	}
	if e.Type == events.UndoStarted {
		m.Undo, m.Outcome = true, e.Outcome
		if key := stepKey(o.ID, step); strings.HasPrefix(e.IdempotencyKey, events.UndoKey(key, 0)) {
			m.StepKey = key
		}
		if e.Outcome == events.OutcomeCompleted { // else an operator may have put it there
			m.Output = step.Output
		}
		if m.Input = step.Undo.Input; m.Input == nil {
			m.Input = undoInput(o, step)
		}
	}
	if o.Priority != events.Normal {
		m.Priority = o.Priority
	}
	return m
}
