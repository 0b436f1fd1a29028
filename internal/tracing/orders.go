package tracing

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/events/spans"
	"github.com/waybill-dev/waybill/projections"
)

// orders makes spans of journal events: one for each order, from its beginning to its end, and in it one for each
// attempt of a step, and for each time that a step sleeps, or waits for signals, people or other orders.
//
// It folds the orders that are open as lanes do, but for their payloads, and sees by what an event changes which
// attempts it begins and ends. Of an order that it does not have, since the process began after the order or others
// were in its place, it has history tell all that was before. Of one that is not sampled it knows that alone.
type orders struct {
	topics  *events.Topics
	tracer  trace.Tracer
	sampled spans.Sampler
	// origin says of an order when it was accepted, and with which traceparent, as far as that is known at once.
	origin  func(id string) (accepted time.Time, traceparent string, known bool)
	history func(ctx context.Context, id string, before uint64) ([]events.Event, error)

	most   int // what all of them may take in memory, in bytes, roughly
	has    int
	byID   map[string]*list.Element
	recent *list.List // the one that an event was of last in front

	ended []sdk.ReadOnlySpan
	lost  func(id string, why error) // some spans of an order cannot be made
}

// order is one that is open.
type order struct {
	id        string
	partition int32
	state     *projections.Order // nil where it is known not to be sampled, as is all below but its size
	of        spans.Order
	root      trace.Span // of one that is not sampled all the same it records nothing
	within    trace.SpanContext
	attempts  map[work]trace.Span
	size      int
	// replayed says that what happens to it happened before, and is not told again.
	replayed bool
}

// work is what attempts are made of: a step by the name under which it is known outside, or its undo.
type work struct {
	step string
	undo bool
}

func newOrders(topics *events.Topics, setup *Setup, most int) *orders {
	o := &orders{topics: topics, sampled: setup.Sampled(), most: most, byID: make(map[string]*list.Element), recent: list.New()}
	provider := sdk.NewTracerProvider(sdk.WithSampler(setup.sampler), sdk.WithResource(setup.resource), sdk.WithIDGenerator(given{}), sdk.WithSpanProcessor(o))
	o.tracer = provider.Tracer(spans.Scope, trace.WithSchemaURL(spans.SchemaURL))
	return o
}

// take makes of an event the spans that end with it. It fails where what was before is not told for now.
func (all *orders) take(ctx context.Context, partition int32, e *events.Event) error {
	element := all.byID[e.Order]
	switch {
	case element != nil:
		all.recent.MoveToFront(element)
	case e.Type == events.OrderAccepted, e.Type == events.OrderRejected:
		if !all.samples(e.Order, e.At, e.Traceparent) {
			all.pass(partition, e)
			return nil
		}
		element = all.begin(partition, e)
	case !tells[e.Type]:
		return nil
	default:
		if at, traceparent, known := all.origin(e.Order); known && !all.samples(e.Order, at, traceparent) {
			all.pass(partition, e)
			return nil
		}
		before, err := all.history(ctx, e.Order, e.Seq)
		switch {
		case errors.Is(err, projections.ErrForgotten), errors.Is(err, projections.ErrNotFound):
			all.lost(e.Order, err)
			return nil
		case err != nil:
			return err
		case len(before) == 0 || before[0].Type != events.OrderAccepted:
			return nil // a record beside the orders
		}
		element = all.begin(partition, &before[0])
		o := in(element)
		o.replayed = true
		for i := range before {
			if err := all.apply(o, &before[i]); err != nil {
				all.drop(element)
				all.lost(e.Order, err)
				return nil
			}
		}
		o.replayed = false
	}
	o := in(element)
	switch {
	case o.state == nil:
		if ends[e.Type] {
			all.drop(element)
		}
		return nil
	case e.Seq <= o.state.Seq: // once more
		return nil
	}
	if err := all.apply(o, e); err != nil {
		all.drop(element)
		all.lost(e.Order, err)
		return nil
	}
	if o.state.State.Final() {
		all.drop(element)
		return nil
	}
	// As measured, of orders of three steps and of thirty, and not less.
	size := 3<<10 + 640*len(o.state.Steps) + 2<<10*len(o.attempts) + 9*len(o.state.Tracestate) // its members are of four bytes or more
	for i := range o.state.Steps {
		if each := o.state.Steps[i].Each; each != nil {
			size += 32 * each.Count
		}
	}
	all.bound(o, size)
	return nil
}

// tells are the types of events that begin spans, or end them. Others are of no use without those before.
var tells = map[events.Type]bool{
	events.OrderCompleted: true, events.OrderCompensating: true, events.OrderCompensated: true, events.OrderCancelled: true,
	events.OrderRaised: true, events.OrderTerminated: true,
	events.StepStarted: true, events.StepCompleted: true, events.StepFailed: true, events.StepExpired: true, events.StepSleeping: true,
	events.StepWoke: true, events.StepRepeated: true, events.StepListening: true, events.StepHeard: true, events.StepTimedOut: true,
	events.StepApproving: true, events.StepDecided: true, events.StepOrdered: true, events.StepEmitting: true, events.StepItemized: true,
	events.StepRaised: true, events.StepSkipped: true,
	events.UndoStarted: true, events.UndoOrdered: true, events.ItemsOrdered: true, events.UndoCompleted: true, events.UndoFailed: true,
	events.UndoExpired: true, events.UndoSkipped: true,
}

// ends are the types of events with which an order ends. One that is undone after that is looked at anew.
var ends = map[events.Type]bool{
	events.OrderRejected: true, events.OrderCompleted: true, events.OrderCompensated: true, events.OrderCancelled: true, events.OrderRaised: true, events.OrderTerminated: true,
}

// samples says whether there are spans of an order.
func (all *orders) samples(id string, accepted time.Time, traceparent string) bool {
	of := spans.Of(id, accepted, traceparent)
	return all.sampled(of.Parent, of.Trace)
}

// pass notes of an order that there are no spans of it, unless it ends with the event.
func (all *orders) pass(partition int32, e *events.Event) {
	if ends[e.Type] {
		return
	}
	o := &order{id: e.Order, partition: partition}
	all.byID[o.id] = all.recent.PushFront(o)
	all.bound(o, 512+len(o.id))
}

// begin opens an order by its first event, which is not applied yet.
func (all *orders) begin(partition int32, first *events.Event) *list.Element {
	o := &order{id: first.Order, partition: partition, state: &projections.Order{}, of: spans.Of(first.Order, first.At, first.Traceparent), attempts: make(map[work]trace.Span)}
	ctx := context.Background()
	if o.of.Parent = spans.Parse(first.Traceparent, first.Tracestate); o.of.Parent.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, o.of.Parent)
	}
	attributes := append(o.attributes(first),
		spans.System, spans.Process, spans.OperationName("order"), spans.Destination(all.topics.Orders), spans.MessageKey(first.Order))
	if first.Parent != "" {
		attributes = append(attributes, spans.Parent.String(first.Parent))
	}
	o.begin(ctx, all.tracer, "order "+first.Workflow, o.of.Root(), first, trace.SpanKindConsumer, attributes)
	element := all.recent.PushFront(o)
	all.byID[first.Order] = element
	return element
}

// begin has the spans of attempts be within another from now on.
func (o *order) begin(parent context.Context, tracer trace.Tracer, name string, id trace.SpanID, e *events.Event, kind trace.SpanKind, attributes []attribute.KeyValue) {
	_, o.root = tracer.Start(giving(parent, o.of.Trace, id), strings.TrimSpace(name), trace.WithTimestamp(e.At), trace.WithSpanKind(kind), trace.WithAttributes(attributes...))
	o.within = o.root.SpanContext()
}

// attributes are those of all spans of an order.
func (o *order) attributes(e *events.Event) []attribute.KeyValue {
	return append(make([]attribute.KeyValue, 0, 16), spans.OrderID.String(e.Order),
		spans.Workflow.String(cmp.Or(o.state.Workflow, e.Workflow)), spans.Version.Int(cmp.Or(o.state.Version, e.Version)))
}

// apply folds the next event of an order, begins the spans that begin with it, and ends those that end.
func (all *orders) apply(o *order, event *events.Event) error {
	e := *event
	// What spans do not say would take memory, as much as whoever wrote it likes.
	e.Input, e.Output, e.Data = nil, nil, nil
	e.Reason, e.Baggage, e.Labels, e.Pinned, e.Submitters, e.Errors = "", "", nil, nil, nil, nil
	if e.Raw != nil {
		e.Raw = new(events.Raw)
	}
	if e.Error != nil {
		e.Error = &events.Error{Code: e.Error.Code}
	}
	was := o.state.State.Final()
	if err := o.state.Apply(&e); err != nil {
		return err
	}
	if was && !o.state.State.Final() { // the order of a parent that is undone
		first := trace.NewSpanContext(trace.SpanContextConfig{TraceID: o.of.Trace, SpanID: o.of.Root(), TraceFlags: o.within.TraceFlags(), TraceState: o.within.TraceState()})
		o.begin(trace.ContextWithSpanContext(context.Background(), first), all.tracer, "undo order "+o.state.Workflow, o.of.Undo(e.Seq), &e, trace.SpanKindInternal, o.attributes(&e))
	}
	touched := false
	for i := range o.state.Steps {
		s := &o.state.Steps[i]
		touched = all.sync(o, work{s.Known(), false}, s, &s.Work, &e) || touched
		if s.Undo != nil {
			touched = all.sync(o, work{s.Known(), true}, s, s.Undo, &e) || touched
		}
	}
	if fails[e.Type] && !touched { // an attempt that could not even begin
		a := all.start(o, work{o.state.Step(e.Step).Known(), e.Type == events.UndoFailed}, o.state.Step(e.Step), e.Attempt, &e)
		o.finish(a, projections.Failed, &e)
	}
	if notable[e.Type] {
		o.root.AddEvent(strings.TrimPrefix(string(e.Type), "waybill."), trace.WithTimestamp(e.At))
	}
	if o.state.State.Final() && !was {
		for key, a := range o.attempts { // of which nothing is known any more
			o.finish(a, "", &e)
			delete(o.attempts, key)
		}
		o.end(&e)
	}
	return nil
}

var (
	fails = map[events.Type]bool{events.StepFailed: true, events.UndoFailed: true}
	// notable are what the span of an order says of its course.
	notable = map[events.Type]bool{
		events.OrderErrored: true, events.OrderResubmitted: true, events.OrderCompensating: true, events.OrderPaused: true, events.OrderResumed: true,
		events.OrderMigrated: true, events.OrderQueued: true, events.OrderStarted: true, events.AlertRaised: true,
	}
)

// sync begins and ends the span of an attempt as the work stands now. It says whether it did.
func (all *orders) sync(o *order, key work, s *projections.Step, w *projections.Work, e *events.Event) bool {
	runs := w.State == projections.Running || w.State.Idle()
	a := o.attempts[key]
	switch {
	case a != nil && !runs:
		o.finish(a, w.State, e)
		delete(o.attempts, key)
	case a == nil && runs:
		o.attempts[key] = all.start(o, key, s, w.Attempt, e)
	default:
		return false
	}
	return true
}

// start begins the span of an attempt.
func (all *orders) start(o *order, key work, s *projections.Step, number int, e *events.Event) trace.Span {
	name := s.Name
	attributes := append(o.attributes(e), spans.Step.String(s.Name), spans.Attempt.Int(number))
	if key.undo {
		name = "undo " + name
		attributes = append(attributes, spans.Undo.Bool(true))
	}
	kind, of := trace.SpanKindInternal, kinds[e.Type]
	if of != "" {
		attributes = append(attributes, spans.StepKind.String(of))
	}
	sent := func(topic string) {
		kind = trace.SpanKindProducer
		attributes = append(attributes, spans.System, spans.Send, spans.OperationName("request"), spans.Destination(topic), spans.MessageKey(e.Order))
	}
	switch e.Type {
	case events.StepStarted, events.UndoStarted:
		sent(all.topics.Requests(e.Agent))
		attributes = append(attributes, spans.Agent.String(e.Agent), spans.Operation.String(e.Operation))
	case events.StepEmitting:
		sent(e.Topic)
	case events.StepOrdered, events.UndoOrdered:
		sent(all.topics.Internal)
		attributes = append(attributes, spans.Child.String(e.Child))
	}
	ctx := giving(trace.ContextWithSpanContext(context.Background(), o.within), o.of.Trace, o.of.Attempt(key.step, key.undo, number))
	_, span := all.tracer.Start(ctx, name, trace.WithTimestamp(e.At), trace.WithSpanKind(kind), trace.WithAttributes(attributes...))
	return span
}

// kinds are what a step is of which an attempt begins.
var kinds = map[events.Type]string{
	events.StepStarted: "agent", events.UndoStarted: "agent", events.StepSleeping: "sleep", events.StepListening: "signal",
	events.StepApproving: "approval", events.StepOrdered: "order", events.UndoOrdered: "order", events.StepItemized: "items",
	events.ItemsOrdered: "items", events.StepEmitting: "emit",
}

// finish ends the span of an attempt.
func (o *order) finish(span trace.Span, state projections.StepState, e *events.Event) {
	if o.replayed {
		return // it was told, or is from before anybody did
	}
	if state != "" {
		span.SetAttributes(spans.StepState.String(string(state)))
	}
	if state == projections.Failed || state == projections.Expired {
		fault(span, e.Error, string(state))
	}
	span.End(trace.WithTimestamp(e.At))
}

// end ends the span of the order.
func (o *order) end(e *events.Event) {
	if o.replayed {
		return
	}
	o.root.SetAttributes(spans.OrderState.String(string(o.state.State)))
	if state := o.state.State; state != projections.Processed && state != projections.Cancelled {
		fault(o.root, e.Error, strings.ToLower(string(state)))
	}
	o.root.End(trace.WithTimestamp(e.At))
}

// fault says that a span failed, and its code. What the error says may have what is of the order's business.
func fault(span trace.Span, err *events.Error, otherwise string) {
	code := otherwise
	if err != nil && err.Code != "" {
		code = err.Code
	}
	span.SetStatus(codes.Error, code)
	span.SetAttributes(spans.ErrorType.String(code))
}

// bound keeps what all open orders take within bounds, one of which takes so much now: those of which nothing was heard
// for longest go.
func (all *orders) bound(o *order, size int) {
	all.has += size - o.size
	o.size = size
	for all.has > all.most && all.recent.Len() > 1 {
		all.drop(all.recent.Back())
	}
}

// in is the order that the list has there: it has nothing else.
func in(element *list.Element) *order { return element.Value.(*order) } //nolint:forcetypeassert // see above

func (all *orders) drop(element *list.Element) {
	all.recent.Remove(element)
	o := in(element)
	all.has -= o.size
	delete(all.byID, o.id)
}

// forget drops the orders of a partition.
func (all *orders) forget(partition int32) {
	for element := all.recent.Front(); element != nil; {
		next := element.Next()
		if in(element).partition == partition {
			all.drop(element)
		}
		element = next
	}
}

// OnEnd implements [sdk.SpanProcessor].
func (all *orders) OnEnd(span sdk.ReadOnlySpan) { all.ended = append(all.ended, span) }

// OnStart implements [sdk.SpanProcessor].
func (*orders) OnStart(context.Context, sdk.ReadWriteSpan) {}

// Shutdown implements [sdk.SpanProcessor].
func (*orders) Shutdown(context.Context) error { return nil }

// ForceFlush implements [sdk.SpanProcessor].
func (*orders) ForceFlush(context.Context) error { return nil }

// given gives spans the ids that their context has.
type given struct{}

type givenKey struct{}

type ids struct {
	trace trace.TraceID
	span  trace.SpanID
}

func giving(ctx context.Context, id trace.TraceID, span trace.SpanID) context.Context {
	return context.WithValue(ctx, givenKey{}, ids{id, span})
}

// NewIDs implements [sdk.IDGenerator].
func (given) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	g, _ := ctx.Value(givenKey{}).(ids) // which is always there
	return g.trace, g.span
}

// NewSpanID implements [sdk.IDGenerator].
func (g given) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	_, span := g.NewIDs(ctx)
	return span
}
