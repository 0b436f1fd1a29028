package decide

import (
	"cmp"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
)

// emitter is the [kind] of a step that gives a topic of the user's an event of theirs. It has attempts
// as one that asks an agent: each is owed to the topic until it is over, and completes once Kafka has
// acknowledged the event. All have the same id, so that who reads the topic can tell a repeat. Nothing
// takes an event back.
type emitter struct{}

func (emitter) hasUndo(*workflow.Step) bool { return false }

func (emitter) remedy(t task) string {
	return fmt.Sprintf("if it is what the event says that cannot be made, say it: waybill order resubmit %s --step %s --input JSON", quote(t.order.ID), t.step.Name)
}

func (emitter) begin(d *decider, t task) bool {
	def, work := t.def.Emit, t.work()
	e := events.Event{
		Type: events.StepEmitting, Step: t.step.Name, Attempt: work.Attempt + 1, Topic: def.Topic, EventType: def.Type,
		IdempotencyKey: t.key(d.env.Format), LockedBy: d.env.Instance,
	}
	var err error
	if e.Key, err = def.KeyOf(t.scope()); err == nil && def.Data != nil && work.Input == nil {
		e.Input, err = def.Data.Value(t.scope())
	}
	if err != nil {
		return d.refuse(t, &events.Error{Code: badExpression, Message: err.Error()})
	}
	size := envelopeSize(t.order) + len(e.Key) + len(e.Input)
	if e.Input == nil {
		size += len(inputOf(t.order, t.step))
	}
	if why := cmp.Or(d.env.refusesEvent(def.Topic), d.env.Refuses(def.Topic, size)); why != "" {
		return d.refuse(t, notTaken(def.Topic, why))
	}
	d.env.limit(t, &e)
	if why := d.try(&e); why != "" {
		return d.refuse(t, &events.Error{Code: events.EventRefused, Message: "the event cannot be recorded: " + why})
	}
	d.begun++
	return true
}

// RefusesEvent says why no step may give a topic events of the user's, whatever Kafka would say, "" if one
// may. The patterns are those of [Env.ReplyTopics].
func RefusesEvent(topics *events.Topics, patterns []string, topic string) string {
	return (&Env{Topics: topics, ReplyTopics: patterns, Format: events.EmitFormat}).refusesEvent(topic)
}

// refusesEvent says why no event of the user's can go to a topic: those of orchestrators are not
// theirs, and what may be named for status messages may be for these.
func (env *Env) refusesEvent(topic string) string {
	if topic == env.Topics.Status {
		return topic + " is Waybill's own topic"
	}
	return env.refusesStatus(topic)
}

func notTaken(topic, why string) *events.Error {
	return &events.Error{Code: events.EventRefused, Message: Cut(fmt.Sprintf("topic %s does not take the event: %s", topic, why), MaxText)}
}

func (emitter) timeOver(d *decider, t task) {
	message := "Kafka has not acknowledged the event by " + string(events.AppendTime(nil, t.work().CompleteBy))
	if untaken := d.env.Untaken; untaken != nil {
		if why := untaken(t.step.Emits.Topic); why != "" {
			message = Cut(message+"; the last try for its topic ended with: "+why, MaxText)
		}
	}
	d.end(t, events.Event{Type: t.expired, Error: &events.Error{Code: "expired", Message: message}})
}

// Emission is what a step is to give a topic, which is not of the transaction: that of its last attempt.
func Emission(topics *events.Topics, o *projections.Order, s *projections.Step) Message {
	value := inputOf(o, s)
	if value == nil {
		value = jsontext.Value("null")
	}
	return Message{
		Topic: s.Emits.Topic,
		Envelope: events.Envelope{
			Source: topics.Source(), Type: events.Type(s.Emits.Type), ID: s.IdempotencyKey,
			Order: o.ID, Key: s.Emits.Key, Time: s.Emits.At,
			Traceparent: o.Traceparent, Tracestate: o.Tracestate, Baggage: o.Baggage,
		},
		Value: value, OwnTopic: true, Emits: true,
	}
}

// Emits says whether a step is to give a topic an event now, as far as this release knows the
// workflow.
func Emits(env *Env, o *projections.Order, s *projections.Step) bool {
	return o.Emitting(s) != nil && !env.newer(o)
}

// Emitted decides on an attempt that was to give a topic an event, by the number of the event with
// which it began: Kafka has acknowledged it, or refuses it for a reason. Of one that is over already
// nothing follows: where another has begun, the topic has the same event once more. A panic is dealt
// with as [On] does.
func Emitted(env *Env, order *projections.Order, step string, seq uint64, refused string) Decision {
	return guard(env, order, nil, func() Decision { return emitted(env, order, step, seq, refused) })
}

func emitted(env *Env, order *projections.Order, step string, seq uint64, refused string) Decision {
	i := place(order, step)
	if i < 0 || !Emits(env, order, &order.Steps[i]) || order.Steps[i].Emits.Seq != seq {
		return Decision{}
	}
	d := newDecider(env, order)
	if order.Resumes() { // what waited comes first
		d.resume()
		if !d.order.Resumes() {
			d.within(func() Decision { return emitted(env, d.order, step, seq, refused) })
		}
		return d.made()
	}
	t := d.task(i, doing)
	e := events.Event{Type: t.completed}
	if refused != "" {
		e = events.Event{Type: t.failed, Error: notTaken(t.step.Emits.Topic, refused)}
	}
	d.end(t, e)
	return d.made()
}
