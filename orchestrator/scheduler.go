package orchestrator

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
)

// Submit decides on a submission: the order is accepted and its first steps
// start, or it is rejected. Problem is what made the submission unreadable, if
// anything. An id that is known already changes nothing, whatever the
// submission says (T4).
func Submit(env *Env, order *projections.Order, id string, s *events.Submission, traceparent string, problem error) Decision {
	if order != nil {
		return Decision{}
	}
	d := decide(env, nil)
	replyTo, refused := s.ReplyTo, ""
	if replyTo != "" {
		if refused = env.refusesStatus(replyTo); refused != "" {
			replyTo = ""
		}
	}
	if problem == nil {
		d.flow, problem = env.admit(s)
	}
	if problem != nil {
		d.record(events.Event{
			Type: events.OrderRejected, Order: id, Reason: problem.Error(),
			Workflow: s.Workflow, Version: s.Version, ReplyTo: replyTo,
		})
		return d.decision()
	}

	names := make([]string, len(d.flow.Steps))
	for i := range d.flow.Steps {
		names[i] = d.flow.Steps[i].Name
	}
	d.record(events.Event{
		Type: events.OrderAccepted, Order: id,
		Workflow: d.flow.Name, Version: d.flow.Version, Steps: names, Input: s.Input,
		ReplyTo: replyTo, Priority: s.Priority, Deadline: events.Time(s.Deadline), Traceparent: traced(traceparent),
	})
	if refused != "" {
		d.record(events.Event{Type: events.StatusRefused, ReplyTo: s.ReplyTo, Reason: refused})
	}
	d.advance()
	return d.decision()
}

// traced returns a traceparent of W3C Trace Context as it is, and nothing for
// what is none.
func traced(traceparent string) string {
	if !traceparentForm.MatchString(traceparent) {
		return ""
	}
	return traceparent
}

var traceparentForm = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// refusesStatus says why no status message can go to the caller's topic.
func (env *Env) refusesStatus(topic string) string {
	switch {
	case !events.ValidTopic(topic):
		return fmt.Sprintf("%q cannot be the name of a topic", topic)
	case env.Topics.Owns(topic):
		return fmt.Sprintf("%s is Waybill's own topic", topic)
	}
	return env.Refuses(topic, envelopeSize)
}

// admit finds the workflow for a submission, or what is wrong with it.
func (env *Env) admit(s *events.Submission) (*workflow.Workflow, error) {
	switch s.Priority {
	case "", events.High, events.Normal, events.Low:
	default:
		return nil, fmt.Errorf("priority %q: use high, normal or low", s.Priority)
	}
	if s.Workflow == "" {
		return nil, errors.New(`no workflow is named; set "workflow"`)
	}
	if s.Version < 0 {
		return nil, fmt.Errorf("version %d: versions begin with 1", s.Version)
	}
	flow := env.Workflow(s.Workflow, s.Version)
	if flow == nil {
		name := s.Workflow
		if s.Version > 0 {
			name = workflow.ID(s.Workflow, s.Version)
		}
		return nil, fmt.Errorf("workflow %s is not registered", name)
	}
	if why := env.Refuses(env.Topics.Journal, len(s.Input)+envelopeSize); why != "" {
		return nil, fmt.Errorf("the input cannot be recorded: %s", why)
	}
	return flow, nil
}

// advance starts every step whose turn has come (S1), and completes the order
// after the last.
func (d *decider) advance() {
	if d.flow == nil {
		d.errored("", fmt.Sprintf("workflow %s is not on the workflows topic any more; register it again", workflow.ID(d.order.Workflow, d.order.Version)), nil)
		return
	}
	open := 0
	for i := range d.order.Steps {
		if d.order.Steps[i].State != projections.Completed {
			open++
		}
	}
	if open == 0 {
		d.tell(events.Event{Type: events.OrderCompleted})
		return
	}
	for i := range d.order.Steps {
		if d.order.Steps[i].State == projections.NotStarted && d.ready(&d.flow.Steps[i]) {
			if !d.start(i) {
				return
			}
		}
	}
}

// ready says whether all that the step comes after is done.
func (d *decider) ready(s *workflow.Step) bool {
	for _, name := range s.After {
		if d.order.Step(name).State != projections.Completed {
			return false
		}
	}
	return true
}

// start takes the order and begins the next attempt of its step i: LockedBy,
// CompleteBy and Processing are one event (T5). It reports false when the
// order went to Error instead.
func (d *decider) start(i int) bool {
	step, state := &d.flow.Steps[i], &d.order.Steps[i]
	if why := d.env.Refuses(d.env.Topics.Requests(step.Agent), len(d.order.Input)+envelopeSize); why != "" {
		d.errored(step.Name, fmt.Sprintf("step %s: the request to agent %s was refused: %s", step.Name, step.Agent, why),
			&events.Error{Code: "request-refused", Message: why, Permanent: true, Step: step.Name})
		return false
	}
	d.record(events.Event{
		Type: events.StepStarted, Step: step.Name, Attempt: state.Attempt + 1,
		Agent: step.Agent, Operation: step.Do,
		// The key outlives the attempt, so that the service can tell a repeat (A3).
		IdempotencyKey: d.order.ID + "/" + step.Name,
		CompleteBy:     events.Time(d.env.Now.Add(step.Timeout)),
		LockedBy:       d.env.Instance,
	})
	return true
}

// TakeReply decides on an agent's reply that was written at the given time. A
// reply counts only for the attempt that runs, and only in time; any other is
// recorded and changes nothing. The order must exist.
//
// In time means before the complete-by either by the record's time or by the
// clock of now: a reply is not lost because nobody was there to read it, nor
// because the agent's clock is ahead.
func TakeReply(env *Env, order *projections.Order, r *events.Reply, written time.Time) Decision {
	d := decide(env, order)
	if why := discard(env, order, r, written); why != "" {
		d.record(events.Event{Type: events.ReplyDiscarded, Step: r.Step, Attempt: r.Attempt, Reason: why})
		return d.decision()
	}
	fault := r.Error
	if r.Status == events.ReplyCompleted {
		why := env.Refuses(env.Topics.Journal, len(r.Output)+envelopeSize)
		if why == "" {
			d.record(events.Event{Type: events.StepCompleted, Step: r.Step, Attempt: r.Attempt, Output: r.Output})
			if d.order.State != projections.Error {
				d.advance()
			}
			return d.decision()
		}
		fault = &events.Error{Code: "output-refused", Message: "the output cannot be recorded: " + why, Permanent: true}
	}
	if fault == nil {
		fault = &events.Error{Code: "error", Message: "the agent gave no reason"}
	}
	d.record(events.Event{Type: events.StepFailed, Step: r.Step, Attempt: r.Attempt, Error: fault})
	d.repair(r.Step)
	return d.decision()
}

// discard says why a reply changes nothing, "" if it counts.
func discard(env *Env, order *projections.Order, r *events.Reply, written time.Time) string {
	step := order.Step(r.Step)
	switch {
	case r.Undo || step == nil || r.Attempt > step.Attempt || r.Attempt < 1:
		return events.DiscardUnknownStep
	case r.Attempt < step.Attempt:
		return events.DiscardStale
	case step.State == projections.Expired:
		return events.DiscardLate
	case step.State != projections.Running:
		return events.DiscardRepeated
	case env.Now.After(step.CompleteBy) && written.After(step.CompleteBy):
		return events.DiscardLate
	}
	return ""
}

// Fail decides to give an order to an operator because deciding on one of its
// inputs is not possible. Without an order the input is a submission, and is
// rejected. An order that has ended or has its operator stays as it is.
func Fail(env *Env, order *projections.Order, id, reason string) Decision {
	if order == nil {
		return Submit(env, nil, id, &events.Submission{}, "", errors.New(reason))
	}
	if order.State.Final() || order.State == projections.Error {
		return Decision{}
	}
	d := decide(env, order)
	d.errored("", reason, &events.Error{Code: "internal", Message: reason, Permanent: true})
	return d.decision()
}
