package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/projections"
)

// Signal is the body of a request to tell an order what happened.
type Signal struct {
	Signal    string          `json:"signal" pattern:"^[a-zA-Z0-9._-]+$" maxLength:"100" example:"payment" doc:"The signal's name, for which a step of the order listens"`
	ID        string          `json:"id,omitempty" nullable:"true" maxLength:"200" example:"payment-17" doc:"Makes a signal that is sent twice act once, as long as the order exists; left out, every request is another signal"`
	Data      json.RawMessage `json:"data,omitempty" example:"{\"amount\":42}" doc:"What the signal says; any JSON"`
	KeepUntil *time.Time      `json:"keepUntil,omitempty" nullable:"true" doc:"How long it is kept for a step that does not listen yet; left out, seven days, or what serve --signal-keep says"`
	ReplyTo   string          `json:"replyTo,omitempty" nullable:"true" doc:"A topic of the sender's own, on which it is told the same as by the answer"`
}

// KeySignal is the body of a request to tell whoever waits under a key what happened.
type KeySignal struct {
	Signal    string          `json:"signal" pattern:"^[a-zA-Z0-9._-]+$" maxLength:"100" example:"payment" doc:"The signal's name, for which steps listen"`
	Key       string          `json:"key" minLength:"1" maxLength:"200" example:"invoice-17" doc:"That of the business under which they do"`
	ID        string          `json:"id,omitempty" nullable:"true" maxLength:"200" example:"payment-17" doc:"Makes a signal that is sent twice act once, for as long as it would be kept; left out, every request is another signal"`
	Data      json.RawMessage `json:"data,omitempty" example:"{\"amount\":42}" doc:"What the signal says; any JSON"`
	KeepUntil *time.Time      `json:"keepUntil,omitempty" nullable:"true" doc:"How long it is kept for a step that does not listen yet; left out, seven days, or what serve --signal-keep says"`
	ReplyTo   string          `json:"replyTo,omitempty" nullable:"true" doc:"A topic of the sender's own, on which it is told the same as by the answer"`
}

func (s *KeySignal) message() events.Signal {
	m := (&Signal{s.Signal, s.ID, s.Data, s.KeepUntil, s.ReplyTo}).message()
	m.Key = s.Key
	return m
}

func (s *Signal) message() events.Signal {
	m := events.Signal{Signal: s.Signal, ID: s.ID, Data: jsontext.Value(s.Data), ReplyTo: s.ReplyTo}
	if s.KeepUntil != nil {
		m.KeepUntil = events.Time(*s.KeepUntil)
	}
	return m
}

// Heard is what became of a signal.
type Heard struct {
	Outcome string  `json:"outcome" enum:"matched,started,kept,repeated,late,declined,held,dead-letter,unrecorded" doc:"matched: a step waited for it; started: it started an order; kept: a step will; repeated: it came before; late: nothing waits for it, nor will; declined: it is too much, or the order that it would have started was rejected; held: the order is held, and decides on it once it is released; dead-letter: it could not wait for that, and the history says why; unrecorded: it changed nothing, and the order has recorded a hundred of its like"`
	Order   *string `json:"order" doc:"Whose step heard it, of a signal with a key, or which it started, or would have; else null"`
	Step    *string `json:"step" doc:"Which step heard it; null if none did"`
	Reason  *string `json:"reason" doc:"Why it changed nothing: repeated, late, unheard, too-many, too-large, given-up or rejected; else null"`
	Error   *Fault  `json:"error" doc:"Why the order was rejected that it would have started; else null"`
	Seq     *uint64 `json:"seq" doc:"The number of the event that says so, of the order, or of the key's history; null where the order has recorded so many signals that changed nothing that it records no other"`
}

func (s *Server) signals(api huma.API) {
	register(api, identity.Submitter, huma.Operation{
		OperationID: "signal-order", Method: http.MethodPost, Path: "/api/v1/orders/{id}/signals",
		Summary: "Tell an order what happened", Tags: []string{"orders"},
		Description:  fmt.Sprintf("A step that listens for the signal hears it; it is kept for one that will. Answers with what became of it once the order's owner has decided. After %s without an answer, or sooner where many wait for a partition that answers nothing, it answers with 503; the signal acts all the same, once it is on Kafka, and repeating it with the same id is safe.", commandTimeout),
		MaxBodyBytes: maxBody, BodyReadTimeout: bodyTimeout,
		Errors: []int{http.StatusBadRequest, http.StatusNotFound, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusMisdirectedRequest, http.StatusUnprocessableEntity, http.StatusServiceUnavailable},
	}, s.signal)
	register(api, identity.Submitter, huma.Operation{
		OperationID: "signal-key", Method: http.MethodPost, Path: "/api/v1/signals",
		Summary: "Tell whoever waits under a key what happened", Tags: []string{"orders"},
		Description:  fmt.Sprintf("Of the steps that listen for the signal under the key the one hears it that has listened longest; while none does it starts an order of the workflow that says so, or is kept. Answers with what became of it once the order has told that. After %s without an answer it answers with 503; the signal acts all the same, once it is on Kafka, and repeating it with the same id is safe. A key does not say of which workflow the orders are, so it takes the role for all of them.", commandTimeout),
		MaxBodyBytes: maxBody, BodyReadTimeout: bodyTimeout,
		Errors: []int{http.StatusBadRequest, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusMisdirectedRequest, http.StatusUnprocessableEntity, http.StatusServiceUnavailable},
	}, s.signalKey)
	s.signalWaits(api)
}

func (s *Server) signalKey(ctx context.Context, in *struct{ Body KeySignal }) (*struct{ Body Heard }, error) {
	i, ctx, done, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if c := callerOf(ctx); !c.Everywhere(identity.Submitter) {
		return nil, huma.Error403Forbidden(forbidden(c, identity.Submitter) + ", for all workflows")
	}
	m := in.Body.message()
	m.By = callerOf(ctx).Subject
	id := events.CorrelationID(m.Signal, m.Key)
	bounded, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	bounded, leave, err := s.shares.join(bounded, awaited{"signal", i.Partition(id)})
	if err != nil {
		return nil, typed(kafkaSilent, retry(behindRetry, huma.Error503ServiceUnavailable(fmt.Sprintf("no signal was sent: %v; try again later", err))))
	}
	e, err := i.SignalKey(bounded, &m)
	leave(err == nil || errors.Is(err, orchestrator.ErrRefused))
	said := &signalInput{ID: id, Body: Signal{Signal: m.Signal, ID: m.ID}}
	if err != nil {
		return nil, s.signalError(said, err)
	}
	o, _, err := i.Order(id)
	if err != nil && e == nil {
		return nil, s.signalError(said, fmt.Errorf("%w: %w", orchestrator.ErrNoAnswer, err))
	}
	return &struct{ Body Heard }{heardAs(e, o, &m)}, nil
}

type signalInput struct {
	ID   string `path:"id" doc:"The order id, escaped for a path: a/b is a%2Fb"`
	Body Signal
}

func (s *Server) signal(ctx context.Context, in *signalInput) (*struct{ Body Heard }, error) {
	i, ctx, done, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if _, err := s.reach(ctx, i, in.ID, identity.Submitter); err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	bounded, leave, err := s.shares.join(bounded, awaited{"signal", i.Partition(in.ID)})
	if err != nil {
		if _, _, none := i.Order(in.ID); none != nil {
			return nil, s.signalError(in, none)
		}
		return nil, typed(kafkaSilent, retry(behindRetry, huma.Error503ServiceUnavailable(fmt.Sprintf("no signal was sent: %v; try again later", err))))
	}
	m := in.Body.message()
	e, err := i.Signal(bounded, in.ID, &m)
	leave(err == nil || errors.Is(err, orchestrator.ErrRefused))
	if err != nil {
		return nil, s.signalError(in, err)
	}
	o, _, err := i.Order(in.ID)
	if err != nil {
		return nil, s.signalError(in, fmt.Errorf("%w: %w", orchestrator.ErrNoAnswer, err))
	}
	return &struct{ Body Heard }{heardAs(e, o, &m)}, nil
}

// heardAs says what became of a signal, by its event; where the order records no more of those that
// change nothing, by the order.
func heardAs(e *events.Event, o *projections.Order, m *events.Signal) Heard {
	switch {
	case e != nil:
	case o.KnowsSignal(m.Signal, "", m.ID):
		return Heard{Outcome: events.StatusRepeated}
	case o.State.Final():
		return Heard{Outcome: events.StatusLate}
	default:
		return Heard{Outcome: "unrecorded"}
	}
	h := Heard{Seq: &e.Seq}
	switch e.Type {
	case events.StepHeard:
		h.Outcome, h.Step = events.StatusMatched, &e.Step
	case events.SignalMatched:
		h.Outcome, h.Order, h.Step = events.StatusMatched, &e.Waiter, &e.Step
	case events.SignalStarted:
		h.Outcome, h.Order = events.StatusStarted, &e.Child
	case events.SignalKept:
		h.Outcome = events.StatusKept
	case events.InputHeld:
		h.Outcome = "held"
	case events.InputDiscarded:
		h.Outcome = "dead-letter"
	default:
		h.Outcome, h.Reason = events.StatusDeclined, &e.Reason
		if e.Child != "" {
			h.Order, h.Error = &e.Child, (*Fault)(e.Error)
		}
		switch e.Reason {
		case events.SignalRepeated:
			h.Outcome = events.StatusRepeated
		case events.SignalLate, events.SignalUnheard:
			h.Outcome = events.StatusLate
		}
	}
	return h
}

func (s *Server) signalError(in *signalInput, err error) error {
	again := "; without an id, look at the order's history before it is repeated"
	if in.Body.ID != "" {
		again = "; repeating it with its id is safe"
	}
	switch {
	case errors.Is(err, projections.ErrDamaged):
		return s.broken(fmt.Sprintf("signal order %q", in.ID), err)
	case errors.Is(err, orchestrator.ErrNoAnswer):
		return typed(outcomeUnknown, retryUnknown(err.Error()+again))
	case errors.Is(err, projections.ErrNotFound), errors.Is(err, projections.ErrForgotten), errors.Is(err, orchestrator.ErrElsewhere), errors.Is(err, orchestrator.ErrUnknownYet):
		return s.orderError(in.ID, "", err)
	case errors.Is(err, orchestrator.ErrOlderRelease):
		return typed(upgradeNeeded, huma.Error409Conflict(fmt.Sprintf("no signal was sent: %v", err)))
	case errors.Is(err, orchestrator.ErrRefused):
		return huma.Error422UnprocessableEntity(strings.TrimPrefix(err.Error(), orchestrator.ErrRefused.Error()+": "))
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return typed(outcomeUnknown, retry(behindRetry, huma.Error503ServiceUnavailable("what became of the signal is not known yet"+again, err)))
	}
	s.warn("a signal was not taken", "signal", in.Body.Signal, "order", in.ID, "error", err)
	return typed(kafkaSilent, retry(behindRetry, huma.Error503ServiceUnavailable("Kafka did not take the signal"+again, err)))
}
