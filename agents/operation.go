package agents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/events"
)

// Operations are what an agent can do, by the name that workflow files use
// after `do:` and `undo:`.
type Operations map[string]Operation

// Operation is one thing that an agent can do. Make it with [Do].
type Operation struct {
	run func(ctx context.Context, r *events.Request, of passed) (jsontext.Value, error)
}

// Request asks a handler for one attempt of a step.
type Request[In any] struct {
	// Order is the order's id, Step the step's name in the workflow.
	Order, Step string
	// Attempt counts the attempts of the step from 1.
	Attempt int
	// IdempotencyKey is the same for every automatic retry of the step, and where an
	// operator resubmits what nobody answered; an undo has its own. Pass it on to the
	// remote service, so that it recognises a repeat (A3).
	IdempotencyKey string
	// CompleteBy ends the attempt (A4). It is also the deadline of the context.
	CompleteBy time.Time
	// ExtendTo is up to when [Extend] may move CompleteBy; zero if it cannot.
	ExtendTo time.Time
	// Undo says that the operation compensates for the step (C1).
	Undo bool
	// StepKey is the idempotency key under which the step was done that is to be
	// undone: look for what was done under it. Only in an undo, and empty where the
	// undo is one for all keys that the step has had, see docs/agents.md.
	StepKey string
	// Output is what the step replied that is to be undone (T2): for a charge,
	// what names the payment to refund. Only in an undo, and nil if the step had
	// no output, or OutcomeUnknown.
	Output jsontext.Value
	// OutcomeUnknown says that the step to be undone may have run, or not: an
	// attempt of it expired without an answer, or its answer was no good. The handler
	// finds out by StepKey, and succeeds if there is nothing to undo. Only in an undo.
	OutcomeUnknown bool
	// Priority is the order's (P5). It has been seen to already: the agent takes
	// high requests first.
	Priority events.Priority
	// Traceparent is the W3C trace context of the call, or without a [Config.TracerProvider] that of the attempt or of
	// the order's submission; empty if there is none. Pass it on to the remote service, so that its spans join the
	// trace. The handler's context has the same, for OpenTelemetry's instrumentations.
	Traceparent string
	// Tracestate and Baggage are those of the order's submission, as they came; empty if there are none. Pass them on with
	// the Traceparent. The handler's context has them, too, as OpenTelemetry reads them.
	Tracestate, Baggage string
	// Input is what the workflow passes to the step; the zero value if it
	// passes nothing.
	Input In
}

// Do makes an operation of a function.
//
// Input and output are JSON, mapped to In and Out by
// github.com/go-json-experiment/json: names are case-sensitive, unknown fields
// are ignored. An input that does not fit In is answered with the permanent
// error [CodeBadInput], which names the field, and handle is not called. Use
// jsontext.Value as In or Out to handle JSON as it is, and struct{} for none. An
// output that is null is left out of the reply.
//
// handle is called by many goroutines at once. Its context has the complete-by
// as deadline, the values of the context given to [Serve], and ends when handle
// returns. What handle returns after the complete-by is dropped (A4). A panic is
// answered with the permanent error [CodePanic], at once (A5); the reply holds
// neither the stack nor the panic's value, which may hold what is nobody's
// business: both go to the agent's log.
func Do[In, Out any](handle func(ctx context.Context, req Request[In]) (Out, error)) Operation {
	if handle == nil {
		return Operation{}
	}
	return Operation{run: func(ctx context.Context, r *events.Request, of passed) (jsontext.Value, error) {
		req := Request[In]{
			Order: r.Order, Step: r.Step, Attempt: r.Attempt,
			IdempotencyKey: r.IdempotencyKey,
			CompleteBy:     r.CompleteBy,
			ExtendTo:       r.ExtendTo,
			Undo:           r.Undo,
			Priority:       cmp.Or(r.Priority, events.Normal),
			Traceparent:    of.traceparent,
			Tracestate:     of.tracestate,
			Baggage:        of.baggage,
		}
		if r.Undo {
			req.StepKey = r.StepKey
			req.Output, req.OutcomeUnknown = r.Output, r.Outcome == events.OutcomeUnknown
		}
		if len(r.Input) > 0 {
			if err := json.Unmarshal(r.Input, &req.Input, readInput); err != nil {
				return nil, own(CodeBadInput, describeInput(err))
			}
		}
		out, err := handle(ctx, req)
		if err != nil {
			return nil, err
		}
		output, err := json.Marshal(out)
		if err != nil {
			return nil, Permanent(CodeBadOutput, fmt.Errorf("write the output as JSON: %w", err))
		}
		if string(output) == "null" {
			return nil, nil
		}
		return output, nil
	}}
}

// Repeated names are allowed wherever messages are read; see [events.Decode].
var readInput = jsontext.AllowDuplicateNames(true)

func describeInput(err error) error {
	var e *json.SemanticError
	if errors.As(err, &e) && e.JSONPointer != "" {
		return fmt.Errorf("input field %s has the wrong form: %w", e.JSONPointer, err)
	}
	return fmt.Errorf("the input has the wrong form: %w", err)
}

// names lists the operations for people.
func (o Operations) names() string { return strings.Join(slices.Sorted(maps.Keys(o)), ", ") }
