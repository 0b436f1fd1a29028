package agents

import (
	"crypto/rand"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
)

// asked is what a reply repeats of its request, and until when it may come.
type asked struct {
	Order       string    `json:"order"`
	Step        string    `json:"step"`
	Attempt     int       `json:"attempt"`
	Undo        bool      `json:"undo,omitzero"`
	Token       string    `json:"token,omitzero"`
	ReplyTo     string    `json:"replyTo"`
	Source      string    `json:"source"` // who was asked
	Traceparent string    `json:"traceparent,omitzero"`
	CompleteBy  time.Time `json:"completeBy"`
	ExtendTo    time.Time `json:"extendTo,omitzero"`
	Began       time.Time `json:"began,omitzero"` // if it may have more time
}

func askedBy(r *kgo.Record, req *events.Request, source string) asked {
	a := asked{
		Order: req.Order, Step: req.Step, Attempt: req.Attempt, Undo: req.Undo, Token: req.Token, ReplyTo: req.ReplyTo,
		Source: source, Traceparent: events.Header(r, events.HeaderTraceparent), CompleteBy: req.CompleteBy,
	}
	if !req.ExtendTo.IsZero() {
		began, err := time.Parse(time.RFC3339, events.Header(r, events.HeaderTime))
		if err != nil {
			began = r.Timestamp
		}
		a.ExtendTo, a.Began = req.ExtendTo, began
	}
	return a
}

// timeout is that of an attempt which may have more time.
func (a *asked) timeout() time.Duration { return max(0, a.CompleteBy.Sub(a.Began)) }

// over is when no reply counts any more, whatever else was said meanwhile.
func (a *asked) over() time.Time {
	if a.ExtendTo.IsZero() {
		return a.CompleteBy
	}
	return a.ExtendTo
}

// least is the earliest to which the complete-by was moved by what was said at a time: the
// orchestrator passes over what would move it by less than a quarter of the timeout.
func (a *asked) least(said time.Time) time.Time {
	return a.most(said).Add(-a.timeout() / 4)
}

// most is to when it is moved by that.
func (a *asked) most(said time.Time) time.Time {
	if to := said.Add(a.timeout()); to.Before(a.ExtendTo) {
		return to
	}
	return a.ExtendTo
}

// replies makes the records of replies.
type replies struct {
	source   string
	instance string
	count    *atomic.Uint64
}

func newReplies(source string) replies {
	return replies{source: source, instance: rand.Text()[:8], count: new(atomic.Uint64)}
}

// status is the reply that says what a handler returned.
func status(output jsontext.Value, err error) events.Reply {
	if err != nil {
		return events.Reply{Status: events.ReplyFailed, Error: fault(err)}
	}
	return events.Reply{Status: events.ReplyCompleted, Output: output}
}

// record is the reply to what was asked, or, where that is too large, one that fails for good with [ErrTooLarge].
func (r *replies) record(a *asked, reply events.Reply) *kgo.Record {
	value, err := a.write(&reply)
	if err != nil {
		reply.Status, reply.Output, reply.Error = events.ReplyFailed, nil, fault(Permanent(CodeOutputTooLarge, err))
		value = reply.Append(nil)
	}
	return r.enclose(a, value)
}

// write addresses a reply to what was asked, and writes it. It fails with [ErrTooLarge].
func (a *asked) write(reply *events.Reply) ([]byte, error) {
	reply.Order, reply.Step, reply.Attempt, reply.Undo, reply.Token = a.Order, a.Step, a.Attempt, a.Undo, a.Token
	value := reply.Append(make([]byte, 0, 128+len(reply.Output)))
	if len(value) > events.MaxValue {
		return nil, fmt.Errorf("%w: it has %d bytes, at most %d can be sent; put the data elsewhere and reply with a reference", ErrTooLarge, len(value), events.MaxValue)
	}
	return value, nil
}

// enclose is the record of a reply.
func (r *replies) enclose(a *asked, value []byte) *kgo.Record {
	envelope := events.Envelope{
		Source:      a.Source,
		Type:        events.StepReplied,
		ID:          r.instance + "-" + strconv.FormatUint(r.count.Add(1), 10),
		Order:       a.Order,
		Time:        time.Now(),
		Traceparent: a.Traceparent,
	}
	return envelope.Record(a.ReplyTo, value)
}
