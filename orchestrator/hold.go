package orchestrator

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
)

// What may wait for the release of one order: its record is kept in memory, and
// a release decides on all of it in one transaction.
const (
	maxWaiting   = 100
	waitingBytes = 2 * events.MaxBatch
)

// Decide decides on an input, and does not panic: the order on which deciding
// does goes to Error, with an alert, and is held. From then on its submissions
// and replies wait, the one that panicked first, and its commands are refused,
// until an operator releases it. Then they are decided in order; if one panics
// again, it and those behind it go on waiting. [Decision.Panic] tells of a panic.
//
// An order that has ended stays as it is, and a submission of none is rejected.
// What cannot wait is among the dead letters, and the journal says so.
func Decide(env *Env, order *projections.Order, in *input) Decision {
	return guard(env, order, in, func() Decision {
		if order != nil && order.Hold != nil && in.command == nil {
			d := decide(env, order)
			d.hold(in.record)
			return d.decision()
		}
		return in.decide(env, order)
	})
}

// decide calls what decides on this kind of input.
func (in *input) decide(env *Env, order *projections.Order) Decision {
	switch {
	case in.reply != nil:
		return TakeReply(env, order, in.reply, in.record.Timestamp)
	case in.command != nil:
		return Operate(env, order, in.command)
	}
	return Submit(env, order, in.order, &in.submission, events.Header(in.record, events.HeaderTraceparent), in.problem)
}

// guard decides. A panic becomes what [Decide] says of it; without an input the
// supervisor looked at the order.
func guard(env *Env, order *projections.Order, in *input, decide func() Decision) (decision Decision) {
	defer func() {
		if v := recover(); v != nil {
			reason := fmt.Sprintf("deciding on it panicked: %v; the log of instance %s has the stack", v, env.Instance)
			decision = poisoned(env, order, in, reason)
			decision.Panic = fmt.Sprintf("%v\n%s", v, debug.Stack())
		}
	}()
	return decide()
}

// poisoned decides what becomes of an order, and of the input, if there is one,
// on which deciding panicked.
func poisoned(env *Env, order *projections.Order, in *input, reason string) Decision {
	if order == nil {
		d := Submit(env, nil, in.order, &events.Submission{}, "", errors.New(reason))
		d.Records = append(d.Records, deadLetter(env, in.record, reason))
		return d
	}
	d := &decider{env: env, order: order.Clone()} // looking its workflow up may be what panics
	held := order.Hold == nil && !order.State.Final()
	if held {
		d.poison(reason, in != nil && in.command == nil)
	}
	switch {
	case in == nil && order.State.Final() && len(order.Waiting) > 0: // it ended while it was released
		d.discard(recordOf(&order.Waiting[0]), reason)
	case in == nil:
	case in.command != nil: // whoever sent it hears of it, and can send it again
		d.refuseCommand(in.command, reason)
		d.out = append(d.out, deadLetter(env, in.record, reason))
	case held:
		d.hold(in.record)
	default:
		d.discard(in.record, reason)
	}
	return d.decision()
}

// poison takes the order into Error, held. First says that an input will wait.
func (d *decider) poison(reason string, first bool) {
	id := quote(d.order.ID)
	action := "find out why, then let it go on: waybill order release " + id
	if first || len(d.order.Waiting) > 0 {
		action += fmt.Sprintf("; or give up the input on which it panicked: waybill order release %s --discard", id)
	}
	d.stop(events.Event{Held: true, Reason: reason, Error: &events.Error{Code: "internal", Message: reason, Permanent: true}}, action)
}

// hold has an input wait behind those that wait already. One for which there is
// no room is put aside.
func (d *decider) hold(r *kgo.Record) {
	raw, size := rawOf(r), recordSize(r)
	for i := range d.order.Waiting {
		size += recordSize(recordOf(&d.order.Waiting[i]))
	}
	why := d.env.Refuses(d.env.Topics.Journal, len(raw.Append(nil))+envelopeSize)
	switch n := len(d.order.Waiting); {
	case n >= maxWaiting:
		why = fmt.Sprintf("%d inputs wait, and no more may", n)
	case size > waitingBytes:
		why = fmt.Sprintf("with it %d bytes would wait; at most %d may", size, waitingBytes)
	}
	if why != "" {
		d.discard(r, "the order is held, and this cannot wait for its release: "+why)
		return
	}
	d.record(events.Event{Type: events.InputHeld, Source: string(source(r)), Raw: raw})
}

// discard puts an input aside that changes nothing.
func (d *decider) discard(r *kgo.Record, reason string) {
	d.record(events.Event{Type: events.InputDiscarded, Source: string(source(r)), Reason: reason})
	d.out = append(d.out, deadLetter(d.env, r, reason))
}

// release has an order that is held go on, and decides on what waited.
func (d *decider) release(c *events.Command, act events.Event) (refusal string) {
	switch {
	case d.order.Hold == nil:
		return "the order is not held"
	case d.env.Full:
		return "too much is being decided at the moment; release the order again"
	case c.Discard && len(d.order.Waiting) == 0:
		return "no input waits that could be discarded; release the order without that"
	}
	act.Type, act.LockedBy = events.OrderReleased, d.lock()
	d.record(act)
	if c.Discard {
		d.discard(recordOf(&d.order.Waiting[0]), "given up by an operator: "+cmp.Or(c.Note, "no reason was given"))
	}
	for d.order.Hold == nil && len(d.order.Waiting) > 0 {
		again := guard(d.env, d.order, nil, d.redo)
		d.order, d.out = again.Order, append(d.out, again.Records...)
		d.panic += again.Panic
	}
	return ""
}

// redo decides on the first input that waits, as if it had just been read.
func (d *decider) redo() Decision {
	first := &d.order.Waiting[0]
	r := recordOf(first)
	next := &decider{env: d.env, order: d.order.Clone()}
	in := readInput(r, d.env.Topics, place{of: func([]byte) int32 { return 0 }})
	if in.unreadable != "" { // to this release, not to the one that held it
		next.discard(r, in.unreadable)
		return next.decision()
	}
	next.record(events.Event{Type: events.InputReleased, Source: first.Source})
	if then := in.decide(d.env, next.order); then.Order != nil {
		next.order, next.out = then.Order, append(next.out, then.Records...)
	}
	return next.decision()
}

// rawOf copies a record, whose bytes are part of all that was fetched with it.
func rawOf(r *kgo.Record) *events.Raw {
	raw := &events.Raw{Written: events.Time(r.Timestamp), Key: some(r.Key), Value: bytes.Clone(r.Value)}
	for _, h := range r.Headers {
		raw.Headers = append(raw.Headers, events.RawHeader{Key: strings.ToValidUTF8(h.Key, "\uFFFD"), Value: some(h.Value)})
	}
	return raw
}

// some copies b, and takes nothing for nil.
func some(b []byte) []byte { return append([]byte(nil), b...) }

// recordOf is the record that waits, as it came.
func recordOf(h *projections.Held) *kgo.Record {
	r := &kgo.Record{Key: h.Key, Value: h.Value, Timestamp: h.Written}
	for _, header := range h.Headers {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: header.Key, Value: header.Value})
	}
	parts := strings.Split(h.Source, "/")
	if len(parts) == 3 {
		partition, _ := strconv.ParseInt(parts[1], 10, 32)
		r.Topic, r.Partition = parts[0], int32(partition)
		r.Offset, _ = strconv.ParseInt(parts[2], 10, 64)
	}
	return r
}
