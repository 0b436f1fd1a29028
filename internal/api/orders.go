package api

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/projections"
)

// Submission is the body of a request to submit an order.
type Submission struct {
	ID       string          `json:"id,omitempty" nullable:"true" example:"o-1" doc:"The order id, at most 256 bytes of UTF-8, not beginning with @; left out, a new one is made. Submitting an id again changes nothing; 409 says that the id is another submission's."`
	Workflow string          `json:"workflow,omitempty" required:"true" minLength:"1" example:"order-fulfilment" doc:"The workflow's name"`
	Version  int             `json:"version,omitempty" minimum:"0" nullable:"true" doc:"Left out or 0: the newest that is registered"`
	Input    json.RawMessage `json:"input,omitempty" example:"{\"total\":42}" doc:"What the agents work on; any JSON"`
	ReplyTo  string          `json:"replyTo,omitempty" nullable:"true" doc:"The topic for status messages; left out, the namespace's"`
	Priority events.Priority `json:"priority,omitempty" enum:"high,normal,low" nullable:"true"`
	Deadline *time.Time      `json:"deadline,omitempty" nullable:"true"`

	Labels map[string]string `json:"labels,omitempty" nullable:"true" doc:"What the order is found by, besides what its workflow says in search: at most 16 names of a-z, 0-9, '.', '_' and '-', at most 63 bytes, with texts of at most 200 bytes without control characters. 409 says that an upgrade must be finished first"`
}

// message is the submission as it is put on Kafka.
func (s *Submission) message() events.Submission {
	m := events.Submission{
		Workflow: s.Workflow, Version: s.Version, Input: jsontext.Value(s.Input), ReplyTo: s.ReplyTo, Priority: s.Priority, Labels: s.Labels,
	}
	if s.Deadline != nil {
		m.Deadline = events.Time(*s.Deadline)
	}
	return m
}

// Made says whether the submission is the one that made an order, as far as the order
// can tell.
func (s *Submission) Made(o *Order) bool {
	m := s.message()
	return o.Digest == nil || *o.Digest == m.Digest()
}

// Receipt is the answer to a submission.
type Receipt struct {
	OrderID string `json:"orderId"`
	Digest  string `json:"digest,omitempty" doc:"A fingerprint of what was submitted. An order that has another was made by another submission of the same id. Left out where it is of an input that the caller may not read"`
	Order   *Order `json:"order,omitempty" doc:"How the order stands, where the request waited for it; left out where that is not known here"`
	Owner   string `json:"owner,omitempty" doc:"The address of the instance that keeps the order, where this one does not (--standby owned), and that is known: read it there"`

	workflow string // of the order whose input was copied
}

// OrderPage is a part of a listing of orders.
type OrderPage struct {
	Orders []Summary `json:"orders" nullable:"false"`
	LeftOut
	Next  string      `json:"next,omitempty" doc:"Give it as after to get the next page; left out on the last"`
	Count *OrderCount `json:"count,omitempty" doc:"Left out unless it was asked for"`
}

// OrderCount is how many orders are under a filter.
type OrderCount struct {
	Orders  int  `json:"orders"`
	AtLeast bool `json:"atLeast" doc:"There may be more: counting ends once it has cost enough"`
}

// LeftOut says what a listing does not have.
type LeftOut struct {
	Elsewhere []int32 `json:"elsewhere,omitempty" doc:"Partitions whose orders are not in the listing: the instance runs with --standby owned, and does not own them"`
	Unknown   []int32 `json:"unknown,omitempty" doc:"Partitions whose orders are not in the listing: the instance has not read their journals to the end. Ask again in a moment, or ask another instance"`
}

// History is the journal of one order.
type History struct {
	Events []json.RawMessage `json:"events" nullable:"false" doc:"The order's journal events, as they stand in the journal. Those of which payloads are left out, because the caller does not have the role payload-reader, have masked: true"`
	Next   string            `json:"next,omitempty" doc:"Give it as after to get the next page; left out on the last"`
	Masked bool              `json:"masked,omitzero" doc:"Payloads are left out of the events"`
	NotDecoded

	workflow string // the order's, where its caller is limited to some
}

func (s *Server) orders(api huma.API) {
	register(api, identity.Submitter, huma.Operation{
		OperationID: "submit-order", Method: http.MethodPost, Path: "/api/v1/orders",
		Summary: "Submit an order", Tags: []string{"orders"},
		Description:   "The order is on Kafka when this returns, and can be read under Location here: that is waited for, for up to 2s. After that, and where another instance has the order's partition (--standby owned), it may take longer. With wait, which takes the role viewer, too, the answer has the order, and is 200 once that goes on by itself no more. 422 says that the order would be Rejected, because its workflow is not registered, or takes no such input; 503 that the workflows cannot be read to their end to say so. What else is wrong with it is decided by the owner of its partition, and makes it Rejected. While what was submitted before waits for too long, 429 says so, and when to try again. 503 says so where Kafka does not take it: at once, if others wait for its partition and nothing was taken for seconds. Kafka may have taken it, or take it within another half a minute; repeating it with the same id is safe. One that says something else than the submission that made the order of its id is answered with 409; where it is not known here in time that there is one, the order has another digest.",
		DefaultStatus: http.StatusAccepted, MaxBodyBytes: maxBody, BodyReadTimeout: bodyTimeout,
		Responses: map[string]*huma.Response{"200": answers[Receipt](api, "The order has ended, is in Error, or is held")},
		Errors:    []int{http.StatusBadRequest, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity, http.StatusTooManyRequests, http.StatusServiceUnavailable},
	}, s.submit)
	register(api, identity.Viewer, huma.Operation{
		OperationID: "list-orders", Method: http.MethodGet, Path: "/api/v1/orders",
		Summary: "List orders", Tags: []string{"orders"},
		Description: "Partition by partition, in each by state and workflow, newest first; with where by workflow. A page ends once it has cost enough, so it may have fewer orders than limit, or none, though more follow: next says so. With Accept: text/event-stream it is followed what changes under the filter.",
		Responses:   streamed[OrderPage](api),
		Errors:      []int{http.StatusUnprocessableEntity, http.StatusTooManyRequests, http.StatusServiceUnavailable},
	}, s.listOrders)
	register(api, identity.Viewer, huma.Operation{
		OperationID: "get-order", Method: http.MethodGet, Path: "/api/v1/orders/{id}",
		Summary: "Get the state record of an order", Tags: []string{"orders"},
		Description: "With wait it is also waited for an order that is not there yet. ETag changes with each event of the order, and with the state of orders that do steps of it, and is another for who may not read payloads; there is none with decode; what is so at the moment, such as who works on the order, and what its steps wait for, may change without it.",
		Responses:   map[string]*huma.Response{"304": {Description: "The order is as If-None-Match says"}},
		Errors:      []int{http.StatusNotFound, http.StatusMisdirectedRequest, http.StatusServiceUnavailable},
	}, s.getOrder)
	register(api, identity.Viewer, huma.Operation{
		OperationID: "get-order-history", Method: http.MethodGet, Path: "/api/v1/orders/{id}/history",
		Summary: "Get the journal events of an order", Tags: []string{"orders"},
		Description: "In order. A page has fewer than limit where events are large, though more follow: next says so.",
		Errors:      []int{http.StatusNotFound, http.StatusUnprocessableEntity, http.StatusMisdirectedRequest, http.StatusServiceUnavailable},
	}, s.getHistory)
	register(api, identity.Viewer, huma.Operation{
		OperationID: "get-order-as-of", Method: http.MethodGet, Path: "/api/v1/orders/{id}/history/{seq}",
		Summary: "Get the state record of an order as it was after an event", Tags: []string{"orders"},
		Description: fmt.Sprintf("It is made of the order's events up to that one, the number of which is at most %d. What waited for whom then is not in it. Not for schedules, and other records that are no orders.", orchestrator.MaxAsOf),
		Errors:      []int{http.StatusNotFound, http.StatusUnprocessableEntity, http.StatusMisdirectedRequest, http.StatusServiceUnavailable},
	}, s.getAsOf)
	s.follow(api)
	s.items(api)
}

type asOfInput struct {
	ID  string `path:"id" doc:"The order id, escaped for a path: a/b is a%2Fb"`
	Seq uint64 `path:"seq" minimum:"1" doc:"The number of the event"`
	DecodeInput
}

func (s *Server) getAsOf(ctx context.Context, in *asOfInput) (*struct{ Body Order }, error) {
	if in.Seq > orchestrator.MaxAsOf {
		return nil, huma.Error422UnprocessableEntity(
			fmt.Sprintf("how an order was is told of its first %d events, and this is event %d: see how it is now, and its history (`waybill order history`), which has all events", orchestrator.MaxAsOf, in.Seq),
			&huma.ErrorDetail{Message: fmt.Sprintf("is more than %d", orchestrator.MaxAsOf), Location: "path.seq"})
	}
	i, ctx, done, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if _, err := s.reach(ctx, i, in.ID, identity.Viewer); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, historyTimeout)
	defer cancel()
	now, _, err := i.Order(in.ID)
	switch {
	case err != nil:
		return nil, s.orderError(in.ID, "read order", err)
	case now.Beside():
		return nil, huma.Error422UnprocessableEntity(fmt.Sprintf("%q is no order, and only its history says how it was", in.ID))
	case in.Seq > now.Seq:
		return nil, huma.Error404NotFound(fmt.Sprintf("order %q has %d events, and no event %d", in.ID, now.Seq, in.Seq))
	}
	o, at, err := i.AsOf(ctx, in.ID, in.Seq)
	if err != nil {
		return nil, s.orderError(in.ID, "read the history of order", err)
	}
	order := OrderOf(i.Partition(o.ID), o, at)
	order.look(i, callerOf(ctx))
	return &struct{ Body Order }{order}, nil
}

// Context is what the sender of a submission wants passed on with the messages about its order.
type Context struct {
	Traceparent string `header:"traceparent" doc:"W3C trace context, passed on with every message about the order"`
	Tracestate  string `header:"tracestate" doc:"W3C trace context: passed on with the traceparent. What is malformed, or longer than 512 bytes or 32 members, is left out"`
	Baggage     string `header:"baggage" doc:"W3C baggage, passed on with the messages about the order. What is malformed, or longer than 8192 bytes or 64 members, is left out"`
}

// Resolve joins headers of one name, as W3C says.
func (c *Context) Resolve(ctx huma.Context) []error {
	var states, baggage []string
	ctx.EachHeader(func(name, value string) {
		switch {
		case strings.Trim(value, " \t") == "": // whoever lists nothing
		case strings.EqualFold(name, events.HeaderTracestate):
			states = append(states, value)
		case strings.EqualFold(name, events.HeaderBaggage):
			baggage = append(baggage, value)
		}
	})
	c.Tracestate, c.Baggage = strings.Join(states, ","), strings.Join(baggage, ",")
	return nil
}

// passed is what is passed on of it.
func (c *Context) passed() orchestrator.Context {
	return orchestrator.Context{Traceparent: c.Traceparent, Tracestate: c.Tracestate, Baggage: c.Baggage}
}

type submitInput struct {
	Context
	WaitInput
	Body Submission
}

type submitOutput struct {
	Status   int
	Location string `header:"Location"`
	Applied  string `header:"Preference-Applied"`
	Body     Receipt
}

func (s *Server) submit(ctx context.Context, in *submitInput) (*submitOutput, error) {
	i, ctx, done, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if c := callerOf(ctx); !c.May(identity.Submitter, in.Body.Workflow) {
		return nil, huma.Error403Forbidden(forbidden(c, identity.Submitter) + ", for workflow " + in.Body.Workflow)
	}
	wait, err := s.waits(&in.WaitInput, func() error { return follows(callerOf(ctx), in.Body.Workflow) })
	if err != nil {
		return nil, err
	}
	defer wait.leave()
	id, submission := in.Body.ID, in.Body.message()
	in.Body = Submission{} // which may be large, and a request may wait for long
	return s.put(ctx, i, id, &submission, in.passed(), wait)
}

// put has a submission put on Kafka, under a new id if it is given none. It returns once the order can be read here, or
// stands if the request waits for that, or after the time for either.
func (s *Server) put(ctx context.Context, i *orchestrator.Instance, id string, submission *events.Submission, passed orchestrator.Context, wait *waiting) (*submitOutput, error) {
	if id != "" {
		if err := events.CheckOrderID(id); err != nil {
			return nil, huma.Error422UnprocessableEntity(err.Error()+"; choose another id, or leave it out to get one", &huma.ErrorDetail{Message: err.Error(), Location: "body.id"})
		}
	}
	if err := events.CheckLabels(submission.Labels); err != nil {
		return nil, huma.Error422UnprocessableEntity(err.Error(), &huma.ErrorDetail{Message: err.Error(), Location: "body.labels"})
	}
	submission.By = callerOf(ctx).Subject
	value, err := submission.Encode()
	if err != nil {
		return nil, huma.Error422UnprocessableEntity("the submission cannot be written as JSON", err)
	}
	if len(value) > events.MaxValue {
		return nil, huma.Error413RequestEntityTooLarge(fmt.Sprintf("the submission has %d bytes; at most %d are allowed: keep large data elsewhere and pass a reference to it", len(value), events.MaxValue))
	}
	if id == "" { // known here, so that whoever hears no more can repeat it
		fresh, err := events.NewOrderID()
		if err != nil {
			return nil, s.broken("submit", err)
		}
		id = fresh
	}
	askingOf(ctx).made = id
	if err := s.admits(ctx, i, id, submission); err != nil {
		return nil, err
	}
	bounded, leave, err := s.shares.join(ctx, awaited{"submission", i.Partition(id)})
	if err != nil {
		return nil, s.notSubmitted(id, err)
	}
	_, err = i.Submit(bounded, id, submission, passed, actor(ctx, func() string { return submission.Workflow }))
	leave(err == nil)
	if err != nil {
		return nil, s.notSubmitted(id, err)
	}
	return s.submitted(ctx, i, id, submission.Digest(), wait)
}

// workflowsPatience is how long the workflows may take to be read to their end, before a submission is refused for now.
const workflowsPatience = 2 * time.Second

// admits refuses a submission that is sure to be rejected.
func (s *Server) admits(ctx context.Context, i *orchestrator.Instance, id string, submission *events.Submission) error {
	bounded, cancel := context.WithTimeout(ctx, workflowsPatience)
	defer cancel()
	switch err := i.Admits(bounded, id, submission); {
	case errors.Is(err, orchestrator.ErrUnfit):
		why := strings.TrimPrefix(err.Error(), orchestrator.ErrUnfit.Error()+": ")
		return typed(wouldBeRejected, huma.Error422UnprocessableEntity("nothing was submitted: "+why))
	case err != nil:
		return typed(kafkaSilent, retry(behindRetry, huma.Error503ServiceUnavailable(fmt.Sprintf("nothing was submitted: workflow %q is not known here, or does not take the input as far as that is known here, and the workflows cannot be read to their end now; try again later", submission.Workflow))))
	}
	return nil
}

// submitted answers for a submission that Kafka has: once the order that it made can be read here, so that nobody who
// follows Location is told that it is not there, and, if the request waits, once that stands.
func (s *Server) submitted(ctx context.Context, i *orchestrator.Instance, id, digest string, wait *waiting) (*submitOutput, error) {
	out := &submitOutput{
		Status: http.StatusAccepted, Location: s.base + "/api/v1/orders/" + PathEscape(id), Applied: wait.applied,
		Body: Receipt{OrderID: id, Digest: digest},
	}
	var o *projections.Order
	var err error
	known := func() bool {
		o, _, err = i.Order(id)
		return !errors.Is(err, projections.ErrNotFound)
	}
	until := time.Now().Add(knownPatience)
	if wait.until.After(until) {
		until = wait.until
	}
	if wait.until.IsZero() {
		leave, room := s.shares.rest()
		if !room {
			return out, nil
		}
		defer leave()
	}
	await(ctx, i, id, until, known)
	out.Body.Owner = addressIn(err)
	if err == nil && o.Digest != "" && o.Digest != digest {
		return nil, typed(orderIDTaken, huma.Error409Conflict(fmt.Sprintf("the submission changes nothing: %v: there is an order %q. Choose another id; to repeat a submission, send the same again", orchestrator.ErrTaken, id)))
	}
	if err != nil || wait.until.IsZero() {
		return out, nil
	}
	await(ctx, i, id, wait.until, func() bool { return known() && (err != nil || stands(o)) })
	if err != nil {
		out.Body.Owner = addressIn(err)
		return out, nil
	}
	if stands(o) {
		out.Status = http.StatusOK
	}
	order, err := s.orderOf(ctx, i, o)
	if err != nil {
		return nil, err
	}
	out.Body.Order = &order.Body
	return out, nil
}

func (s *Server) notSubmitted(id string, err error) error {
	if errors.Is(err, errSilent) {
		return typed(kafkaSilent, retry(behindRetry, huma.Error503ServiceUnavailable(fmt.Sprintf("nothing was submitted: %v; try again later", err))))
	}
	if errors.Is(err, orchestrator.ErrBehind) {
		return typed(laneBehind, retry(behindRetry, huma.Error429TooManyRequests(fmt.Sprintf("nothing was submitted: %v; try again later", err))))
	}
	if errors.Is(err, orchestrator.ErrTaken) {
		return typed(orderIDTaken, huma.Error409Conflict(fmt.Sprintf("nothing was submitted: %v. Choose another id; to repeat a submission, send the same again", err)))
	}
	if errors.Is(err, orchestrator.ErrOlderRelease) {
		return typed(upgradeNeeded, huma.Error409Conflict(fmt.Sprintf("nothing was submitted: %v", err)))
	}
	if errors.Is(err, projections.ErrForgotten) {
		return s.orderError(id, "", err)
	}
	if errors.Is(err, orchestrator.ErrOwnID) {
		return huma.Error422UnprocessableEntity(fmt.Sprintf("nothing was submitted: %v; choose another id, or leave it out to get one", err), &huma.ErrorDetail{Message: orchestrator.ErrOwnID.Error(), Location: "body.id"})
	}
	if errors.Is(err, orchestrator.ErrElsewhere) || errors.Is(err, orchestrator.ErrUnknownYet) {
		return s.orderError(id, "submit order", err)
	}
	if errors.Is(err, context.Canceled) { // often who asked hung up; also where too many wait for Kafka, and where the instance stops
		s.warn("a submission was given up", "error", err)
	} else {
		s.warn("a submission failed", "error", err)
	}
	return typed(kafkaSilent, retry(behindRetry, huma.Error503ServiceUnavailable(fmt.Sprintf("Kafka did not take the submission; try again with the same id, %s, which is safe", id), err)))
}

// After how many seconds to try again where a lane is behind, where too many ask at once,
// and where an instance is not caught up yet.
const behindRetry, busyRetry, unknownRetry = "5", "1", "1"

// ListFilter says which orders a listing has.
type ListFilter struct {
	State    string   `query:"state" enum:"Pending,Processing,Processed,Error,Compensating,Compensated,Cancelled,Raised,Terminated,Rejected" doc:"Only orders in this state"`
	Workflow string   `query:"workflow" minLength:"1" doc:"Only orders of this workflow"`
	Where    []string `query:"where,explode" maxItems:"16" example:"customer=c-17" doc:"Only orders that have this label, or are found by this value of their input, as NAME=VALUE; several must all hold. They come partition by partition, in each by workflow, newest first. It takes the role payload-reader: orders of workflows for which the caller does not have it are not found"`
	Step     string   `query:"step" minLength:"1" doc:"Only orders of which this step failed, or its undo once the order is compensated, and nothing was tried since, or that keeps them in Error, or sleeps, or waits for signals or people"`
}

type listInput struct {
	ListFilter
	FollowInput
	Since time.Time `query:"since" example:"2026-01-01T00:00:00Z" doc:"Only orders that changed last at that time or behind it. No index has that: what a page costs goes by all that the rest of the filter selects"`
	Until time.Time `query:"until" example:"2026-12-31T23:59:59Z" doc:"Only orders that changed last at that time or before it. What was accepted behind it costs nothing"`
	Sort  string    `query:"sort" enum:"accepted" doc:"accepted: by when they were accepted, the newest first, whatever their partition and state. It takes workflow, and not where. Left out, partition by partition"`
	Count bool      `query:"count" doc:"Say how many orders there are under the filter, on any page"`
	Limit int       `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	After string    `query:"after" doc:"The next of the page before"`
}

// filterOf selects the orders that a caller asks for, and may see.
func filterOf(ctx context.Context, in *ListFilter) (filter projections.Filter, err error) {
	caller := callerOf(ctx)
	filter = projections.Filter{State: projections.State(in.State), Workflow: in.Workflow, Step: in.Step, Visible: visible(caller, identity.Viewer)}
	if len(in.Where) > 0 {
		if filter.Labels, err = soughtLabels(caller, in.Workflow, in.Where, "query.where"); err != nil {
			return filter, err
		}
		filter.Visible = visible(caller, identity.PayloadReader)
	}
	return filter, nil
}

func (s *Server) listOrders(ctx context.Context, in *listInput) (*struct{ Body OrderPage }, error) {
	i, ctx, done, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	after, err := base64.RawURLEncoding.DecodeString(in.After)
	if err != nil {
		return nil, errCursor
	}
	filter, err := filterOf(ctx, &in.ListFilter)
	if err != nil {
		return nil, err
	}
	filter.Limit, filter.After, filter.Since, filter.Until, filter.Newest = in.Limit, after, in.Since, in.Until, in.Sort != ""
	if !filter.Until.IsZero() && filter.Until.Before(filter.Since) {
		return nil, huma.Error422UnprocessableEntity("until is before since, so there is nothing between them", &huma.ErrorDetail{Message: "is before since", Location: "query.until"})
	}
	if filter.Newest && (filter.Workflow == "" || len(filter.Labels) > 0) {
		return nil, huma.Error422UnprocessableEntity("sort takes workflow, and not where: no index has the orders of all workflows, or by labels, in that order", &huma.ErrorDetail{Message: "takes workflow, and not where", Location: "query.sort"})
	}
	page, left, err := i.List(ctx, filter)
	if err != nil {
		return nil, s.listError("list orders", err)
	}
	out := &struct{ Body OrderPage }{OrderPage{
		Orders:  make([]Summary, len(page.Orders)),
		LeftOut: LeftOut(left),
		Next:    base64.RawURLEncoding.EncodeToString(page.Next),
	}}
	now := time.Now()
	for n, o := range page.Orders {
		out.Body.Orders[n] = summaryOf(i.Partition(o.ID), o, now)
	}
	if in.Count {
		n, more, err := i.Count(ctx, filter)
		if err != nil {
			return nil, s.listError("count orders", err)
		}
		out.Body.Count = &OrderCount{n, more}
	}
	return out, nil
}

// soughtLabels are those by which a caller wants to find orders of a workflow, or, with "", of any. Whoever may not read a
// payload must not be told whether a guess is right, either.
func soughtLabels(caller *identity.Caller, workflow string, where []string, location string) (map[string]string, error) {
	labels, err := labelsOf(where)
	if err != nil {
		return nil, huma.Error422UnprocessableEntity(err.Error(), &huma.ErrorDetail{Message: err.Error(), Location: location})
	}
	if workflow != "" && !caller.May(identity.PayloadReader, workflow) || !caller.Somewhere(identity.PayloadReader) {
		return nil, huma.Error403Forbidden(forbidden(caller, identity.PayloadReader) + ", to find orders by where")
	}
	return labels, nil
}

// labelsOf reads NAME=VALUE, each name once. A value is what search would make of it, so that what a
// workflow found in the input is found by all of it, too.
func labelsOf(where []string) (map[string]string, error) {
	labels := make(map[string]string, len(where))
	for _, text := range where {
		name, value, ok := strings.Cut(text, "=")
		if !ok {
			return nil, fmt.Errorf("where is NAME=VALUE, this is %q", text)
		}
		if err := events.CheckLabelName(name); err != nil {
			return nil, fmt.Errorf("the name in where %w", err)
		}
		if !utf8.ValidString(value) {
			return nil, fmt.Errorf("where %s has a value that is not UTF-8", name)
		}
		value = events.LabelValue(value) // as search does with what it finds in the input
		if before, twice := labels[name]; twice && before != value {
			return nil, fmt.Errorf("where has two values of %s, and an order has one; leave one out", name)
		}
		labels[name] = value
	}
	return labels, nil
}

var errCursor = huma.Error422UnprocessableEntity("after is not a place that a page gave; pass the page's next as it is", &huma.ErrorDetail{Message: "not a cursor", Location: "query.after"})

type orderInput struct {
	ID string `path:"id" doc:"The order id, escaped for a path: a/b is a%2Fb"`
	WaitInput
	IfNoneMatch string `header:"If-None-Match" doc:"The ETag of an answer before: 304 says that the order is as it was. With wait the answer comes once it is not, whether it goes on or not. Not with decode: what the codec answers may be another without it"`
	DecodeInput
}

type orderOutput struct {
	ETag    string `header:"ETag"`
	Applied string `header:"Preference-Applied"`
	Body    Order
}

func (s *Server) getOrder(ctx context.Context, in *orderInput) (*orderOutput, error) {
	i, ctx, done, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if in.Decode && in.IfNoneMatch != "" {
		return nil, huma.Error422UnprocessableEntity("If-None-Match goes with no decode: whether the order is as it was says nothing of what the codec answers now. Ask without decode whether it is", &huma.ErrorDetail{Message: "goes with no If-None-Match", Location: "query.decode"})
	}
	wait, err := s.waits(&in.WaitInput, func() error { return nil })
	if err != nil {
		return nil, err
	}
	defer wait.leave()
	var o *projections.Order
	missing := false
	look := func() bool {
		_, err = s.reach(ctx, i, in.ID, identity.Viewer)
		if err == nil {
			if o, _, err = i.Order(in.ID); err != nil {
				err = s.orderError(in.ID, "read order", err)
			}
		}
		switch {
		case err != nil: // it may come
			var status huma.StatusError
			missing = errors.As(err, &status) && status.GetStatus() == http.StatusNotFound
			return !missing
		case in.IfNoneMatch != "":
			return !matches(in.IfNoneMatch, tagOf(callerOf(ctx), i, o))
		}
		return stands(o)
	}
	if wait.until.IsZero() {
		look()
	} else {
		await(ctx, i, in.ID, wait.until, look)
	}
	if err != nil {
		return nil, err
	}
	tag := tagOf(callerOf(ctx), i, o)
	if in.IfNoneMatch != "" && matches(in.IfNoneMatch, tag) {
		said := http.Header{"ETag": {tag}}
		if wait.applied != "" {
			said.Set("Preference-Applied", wait.applied)
		}
		return nil, huma.ErrorWithHeaders(huma.Status304NotModified(), said)
	}
	order, err := s.orderOf(ctx, i, o)
	if err != nil {
		return nil, err
	}
	if in.Decode {
		tag = ""
	}
	return &orderOutput{ETag: tag, Applied: wait.applied, Body: order.Body}, nil
}

// tagOf is the ETag of an order as a caller sees it: by its events, by whether payloads are left out, and by how the orders
// stand that do steps of it, as far as the caller is told. It is a weak one: what is so at the moment may change under
// it, such as who works on the order, and what its steps wait for.
func tagOf(c *identity.Caller, i *orchestrator.Instance, o *projections.Order) string {
	tag := strconv.FormatUint(o.Seq, 10)
	if !c.May(identity.PayloadReader, o.Workflow) {
		tag += "-masked"
	}
	children := fnv.New64a()
	some := false
	for n := range o.Steps {
		for _, l := range leftBy(o.LeftBy(&o.Steps[n])) {
			some = true
			l.look(i, c)
			fmt.Fprint(children, n, len(l.Steps) > 0)
		}
		child := childOf(o.Steps[n].Child)
		if child == nil {
			continue
		}
		some = true
		if look(child, i, c); child.ProcessState != nil {
			fmt.Fprint(children, n, *child.ProcessState, *child.Alerted)
		}
	}
	if some {
		tag += fmt.Sprintf("-%x", children.Sum64())
	}
	return `W/"` + tag + `"`
}

// matches says whether an If-None-Match has a tag, by weak comparison.
func matches(header, tag string) bool {
	for one := range strings.SplitSeq(header, ",") {
		if one = strings.TrimSpace(one); one == "*" || strings.TrimPrefix(one, "W/") == strings.TrimPrefix(tag, "W/") {
			return true
		}
	}
	return false
}

// orderOf is the order with what its steps wait for.
func (s *Server) orderOf(ctx context.Context, i *orchestrator.Instance, o *projections.Order) (*struct{ Body Order }, error) {
	order := OrderOf(i.Partition(o.ID), o, time.Now())
	for n := range o.Steps {
		w, err := i.Waits(o, &o.Steps[n])
		if err != nil {
			return nil, s.orderError(o.ID, "read what waits of order", err)
		}
		order.Steps[n].Waits = waitsOf(w)
		if c := order.Steps[n].Child; c != nil {
			look(c, i, callerOf(ctx))
		}
	}
	order.look(i, callerOf(ctx))
	return &struct{ Body Order }{order}, nil
}

// look says what the orders left that did steps of it: they have ended, so it was so ever since.
func (o *Order) look(i *orchestrator.Instance, caller *identity.Caller) {
	for n := range o.Steps {
		for l := range o.Steps[n].LeftBy {
			o.Steps[n].LeftBy[l].look(i, caller)
		}
	}
}

// look says how a child stands, if that is known here, and the caller may see it.
func look(c *Child, i *orchestrator.Instance, caller *identity.Caller) {
	if o, _, err := i.Order(c.Order); err == nil && caller.May(identity.Viewer, o.Workflow) {
		c.ProcessState, c.Alerted = &o.State, new(o.Alert != nil)
	}
}

type historyInput struct {
	ID    string `path:"id" doc:"The order id, escaped for a path: a/b is a%2Fb"`
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"1000"`
	After string `query:"after" pattern:"^[0-9]*$" patternDescription:"the number of an event" doc:"The next of the page before: the number of its last event"`
	DecodeInput
}

const _ = uint(orchestrator.MaxHistory - 1000) // not negative; see historyInput

func (s *Server) getHistory(ctx context.Context, in *historyInput) (*struct{ Body History }, error) {
	i, ctx, done, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	after, err := strconv.ParseUint(cmp.Or(in.After, "0"), 10, 64)
	if err != nil {
		return nil, errCursor
	}
	workflow, err := s.reach(ctx, i, in.ID, identity.Viewer)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, historyTimeout)
	defer cancel()
	page, err := i.History(ctx, in.ID, after, in.Limit)
	if err != nil {
		return nil, s.orderError(in.ID, "read the history of order", err)
	}
	out := &struct{ Body History }{History{Events: make([]json.RawMessage, len(page.Events)), workflow: workflow}}
	for n := range page.Events {
		out.Body.Events[n] = page.Events[n].Append(nil)
	}
	if page.Next > 0 {
		out.Body.Next = strconv.FormatUint(page.Next, 10)
	}
	return out, nil
}

// historyTimeout bounds how long a history may wait for Kafka.
const historyTimeout = 30 * time.Second

func (s *Server) orderError(id, doing string, err error) error {
	switch {
	case errors.Is(err, projections.ErrNotFound):
		return huma.Error404NotFound(fmt.Sprintf("there is no order %q; one that was just submitted appears within moments", id))
	case errors.Is(err, projections.ErrForgotten):
		return huma.Error410Gone(fmt.Sprintf("order %q has ended, and is not kept any more, as its workflow says; its id stays taken, and its history is on the journal topic", id))
	case errors.Is(err, orchestrator.ErrElsewhere):
		return elsewhereAt(addressIn(err), err.Error())
	case errors.Is(err, orchestrator.ErrUnknownYet):
		return retryUnknown(fmt.Sprintf("whether there is an order %q, and how it stands, is %v", id, err))
	case errors.Is(err, orchestrator.ErrSilent):
		return typed(kafkaSilent, retry(behindRetry, huma.Error503ServiceUnavailable(err.Error()+"; try again later")))
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return typed(kafkaSilent, retry(behindRetry, huma.Error503ServiceUnavailable("Kafka did not answer in time; try again", err)))
	}
	return s.broken(fmt.Sprintf("%s %q", doing, id), err)
}

// addressIn is where the instance is asked that answers, "" if that is not known.
func addressIn(err error) string {
	if e, is := errors.AsType[*orchestrator.ElsewhereError](err); is {
		return e.Address
	}
	return ""
}

// retryUnknown answers for what an instance cannot know before it is caught up, or
// while members join or leave.
func retryUnknown(why string) error {
	return typed(notReady, retry(unknownRetry, huma.Error503ServiceUnavailable(why)))
}

// retry answers with a problem that may be over after so many seconds.
func retry(after string, problem error) error {
	return huma.ErrorWithHeaders(problem, http.Header{"Retry-After": {after}})
}

// listError answers for a listing that failed.
func (s *Server) listError(doing string, err error) error {
	if errors.Is(err, projections.ErrPlace) {
		return errCursor
	}
	if errors.Is(err, orchestrator.ErrUnknownYet) {
		return retryUnknown(fmt.Sprintf("the orders of all partitions are %v", err))
	}
	if errors.Is(err, context.Canceled) {
		return retryUnknown("the instance stops; ask another, or try again in a moment")
	}
	return s.broken(doing, err)
}

// broken answers for a fault that is not the caller's.
func (s *Server) broken(doing string, err error) error {
	s.log.Error("a request failed", "doing", doing, "error", err)
	return huma.Error500InternalServerError(fmt.Sprintf("%s: %v", doing, err))
}

// PathEscape makes id one segment of a path. A path's . and .. are its own.
func PathEscape(id string) string {
	switch id {
	case ".":
		return "%2E"
	case "..":
		return "%2E%2E"
	}
	return url.PathEscape(id)
}
