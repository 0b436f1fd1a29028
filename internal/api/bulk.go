package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"
	jsonv2 "github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/projections"
)

// BulkRequest is the body of a request to prepare a bulk act.
type BulkRequest struct {
	Act
	Command string          `json:"command,omitempty" required:"true" enum:"cancel,change,label,migrate,pause,release,resubmit,resume,skip-step,terminate" doc:"What each order is to do"`
	With    json.RawMessage `json:"with,omitempty" doc:"What the command takes besides by and note: the body of its own operation"`
	Filter  BulkFilter      `json:"filter"`
	Rate    int             `json:"rate,omitempty" minimum:"1" maximum:"1000" nullable:"true" doc:"How many orders a second at most; left out, 200"`
}

// BulkFilter selects the orders of a bulk act, as those of list-orders are selected. It says at least one
// of state, workflow and where.
type BulkFilter struct {
	State    projections.State `json:"state,omitempty" enum:"Pending,Processing,Processed,Error,Compensating,Compensated,Cancelled,Raised,Terminated,Rejected" nullable:"true" doc:"Left out: Error for resubmit and release, and for other commands those to which they can do something"`
	Workflow string            `json:"workflow,omitempty" minLength:"1" nullable:"true"`
	Where    []string          `json:"where,omitempty" maxItems:"16" nullable:"true" doc:"NAME=VALUE, of which all must hold; it takes the role payload-reader"`
	Step     string            `json:"step,omitempty" minLength:"1" nullable:"true" doc:"As of list-orders"`
}

// BulkState is how a bulk act stands.
type BulkState string

// The states of bulk acts.
const (
	BulkPrepared BulkState = "prepared"
	BulkRunning  BulkState = "running"
	BulkDone     BulkState = "done"
	BulkStopped  BulkState = "stopped" // by somebody, or because the server could do nothing
	BulkCutOff   BulkState = "cut-off" // with its instance
)

// Bulk is the record of a bulk act.
type Bulk struct {
	ID      string          `json:"id" doc:"Also the id of the command that each order gets: its history has it"`
	State   BulkState       `json:"state" enum:"prepared,running,done,stopped,cut-off" doc:"prepared: nothing was done, and it is forgotten in a quarter of an hour. stopped: by somebody, or because nothing could be done. cut-off: with its instance"`
	Reason  *string         `json:"reason" doc:"Why it was stopped or cut off"`
	Command string          `json:"command"`
	With    json.RawMessage `json:"with" doc:"What the command takes besides by and note"`
	By      *string         `json:"by"`
	Note    *string         `json:"note"`
	Filter  BulkFilter      `json:"filter"`
	Rate    int             `json:"rate"`
	LeftOut
	Masked bool `json:"masked,omitzero" doc:"with, note, where and the reasons of failures are left out, because the caller does not have the role payload-reader for all that the act is about"`

	PreparedAt *Time `json:"preparedAt" doc:"When its orders were looked up"`
	StartedAt  *Time `json:"startedAt"`
	EndedAt    *Time `json:"endedAt"`

	Matched int  `json:"matched" doc:"How many orders it is about. Orders that came under the filter later are not among them"`
	More    bool `json:"more" doc:"There are more under the filter than one act takes: prepare another once this one is done"`
	Done    int  `json:"done" doc:"Of an act whose process was killed at least so many: the record is a second behind, and the history of each order is not"`
	Left    int  `json:"left" doc:"To which nothing was done, because when their turn came they were no longer under the filter, or had changed since while in Error, or are gone"`
	Failed  int  `json:"failed"`
	Newer   *int `json:"newer" doc:"How many orders are under the filter once it has ended that it was not about, at most 10000; null before, where counting them takes longer than 20s, and where there were more than one act takes"`

	Failures []BulkFailure `json:"failures" nullable:"false" doc:"The first 100 that failed, and why"`
}

// BulkFailure is an order to which a command could not be done.
type BulkFailure struct {
	OrderID string `json:"orderId"`
	Reason  string `json:"reason" doc:"Empty where it is left out"`
}

// BulkPage are the bulk acts that an instance remembers.
type BulkPage struct {
	Acts []Bulk `json:"acts" nullable:"false" doc:"Newest first; those of the instance that was asked"`
}

// BulkOrders is a part of the orders that a bulk act is about.
type BulkOrders struct {
	Orders []BulkRow `json:"orders" nullable:"false" doc:"In the order of their turns"`
	Next   int       `json:"next,omitzero" doc:"Give it as after to get the next page; left out on the last"`
}

// BulkOrder is an order that a bulk act is about.
type BulkOrder struct {
	OrderID string            `json:"orderId"`
	State   projections.State `json:"state" doc:"In which it was looked up"`
	Seq     uint64            `json:"seq" doc:"How many events it had then"`
	Outcome BulkOutcome       `json:"outcome" enum:"pending,done,left,failed" doc:"done: the order took the command, and follows it, which does not say that the order ends well. left: nothing was done to it. failed: it refused the command, or did not answer"`
}

// BulkRow is an order that a bulk act is about, and, where that was asked for, how it is now.
type BulkRow struct {
	BulkOrder
	Now     *Summary `json:"now,omitempty" doc:"How the order is now; left out unless it was asked for, and where unknown says why"`
	Unknown string   `json:"unknown,omitempty" doc:"Why it is not known how the order is now"`
}

// BulkOutcome is what became of one order of a bulk act.
type BulkOutcome string

// What became of an order.
const (
	OutcomePending BulkOutcome = "pending"
	OutcomeDone    BulkOutcome = "done"
	OutcomeLeft    BulkOutcome = "left"
	OutcomeFailed  BulkOutcome = "failed"
)

// Fits says whether an order is meant by a command for many, as far as its summary tells: one on which the command can
// do something. Orders whose state was named are meant whatever that state is.
func Fits(command string, o *Summary, named bool) bool {
	switch final := o.ProcessState.Final(); command {
	case events.CommandCancel:
		return named || !final && o.Toward == nil
	case events.CommandPause: // in Error nothing starts
		return !o.Paused && (named || !final && o.ProcessState != projections.Error)
	case events.CommandResume:
		return o.Paused
	case events.CommandRelease:
		return o.Held
	case events.CommandResubmit, events.CommandLabel:
		return true
	default:
		return named || !final
	}
}

// StateFor is that of the orders which a command for many is about where none is named, "" if it can be any.
func StateFor(command string) projections.State {
	if command == events.CommandResubmit || command == events.CommandRelease {
		return projections.Error
	}
	return ""
}

// reads has a command be read whose body is a B.
func reads[B any, P interface {
	*B
	command() events.Command
}](api huma.API,
) func([]byte) (events.Command, []error) {
	registry := api.OpenAPI().Components.Schemas
	schema := registry.Schema(reflect.TypeFor[B](), true, "")
	return func(body []byte) (events.Command, []error) {
		var loose any
		if err := json.Unmarshal(body, &loose); err != nil {
			return events.Command{}, []error{&huma.ErrorDetail{Location: "body.with", Message: err.Error()}}
		}
		rename(loose, uncut)
		var found huma.ValidateResult
		path := huma.NewPathBuffer(nil, 0)
		path.Push("body.with")
		if huma.Validate(registry, schema, path, huma.ModeWriteToServer, loose, &found); len(found.Errors) > 0 {
			for n, err := range found.Errors {
				if e, is := errors.AsType[*huma.ErrorDetail](err); is && e.Message == validation.MsgUnexpectedProperty {
					found.Errors[n] = unknown(registry, schema, "body.with.", e)
				}
			}
			return events.Command{}, found.Errors
		}
		b := P(new(B))
		if err := jsonv2.Unmarshal(body, b); err != nil {
			return events.Command{}, []error{&huma.ErrorDetail{Location: "body.with", Message: err.Error()}}
		}
		if resolver, ok := any(b).(huma.Resolver); ok {
			if errs := resolver.Resolve(nil); len(errs) > 0 {
				return events.Command{}, errs
			}
		}
		return b.command(), nil
	}
}

func (s *Server) bulks(api huma.API) {
	errs := []int{http.StatusNotFound, http.StatusServiceUnavailable}
	register(api, identity.Operator, huma.Operation{
		OperationID: "prepare-bulk", Method: http.MethodPost, Path: "/api/v1/bulk",
		Summary: "Look up the orders of a bulk act", Tags: []string{"bulk"},
		Description:   "Nothing is done to them before start-bulk. The orders are those that are under the filter now, and on which the command can do something, at most 100000: get-bulk-orders lists them. 503 says that looking them up took longer than 20s, and how many were found. An instance keeps the 8 acts that were prepared last, each for a quarter of an hour.",
		DefaultStatus: http.StatusCreated, MaxBodyBytes: maxBody, BodyReadTimeout: bodyTimeout,
		Errors: []int{http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity, http.StatusServiceUnavailable},
	}, s.prepareBulk)
	register(api, identity.Viewer, huma.Operation{
		OperationID: "list-bulk", Method: http.MethodGet, Path: "/api/v1/bulk",
		Summary: "List bulk acts", Tags: []string{"bulk"},
		Description: "Those that the instance which is asked has carried out, at most 100, and those that it prepared. Callers who are limited to some workflows see their own, and those that are about one of their workflows.",
		Errors:      []int{http.StatusServiceUnavailable},
	}, func(ctx context.Context, _ *struct{}) (*struct{ Body BulkPage }, error) {
		all := s.bulk.all(time.Now())
		page := &struct{ Body BulkPage }{BulkPage{Acts: []Bulk{}}}
		for _, b := range all {
			if told := b.told(); b.seenBy(callerOf(ctx), identity.Viewer) {
				page.Body.Acts = append(page.Body.Acts, told)
			}
		}
		return page, nil
	})
	register(api, identity.Viewer, huma.Operation{
		OperationID: "get-bulk", Method: http.MethodGet, Path: "/api/v1/bulk/{id}",
		Summary: "Say how a bulk act stands", Tags: []string{"bulk"}, Errors: errs,
	}, func(ctx context.Context, in *bulkInput) (*struct{ Body Bulk }, error) {
		b, err := s.bulkOf(ctx, in.ID, identity.Viewer)
		if err != nil {
			return nil, err
		}
		return &struct{ Body Bulk }{b.told()}, nil
	})
	register(api, identity.Viewer, huma.Operation{
		OperationID: "get-bulk-orders", Method: http.MethodGet, Path: "/api/v1/bulk/{id}/orders",
		Summary: "List the orders of a bulk act", Tags: []string{"bulk"},
		Description: "An instance keeps them while it runs, of acts with together 200000 orders; 410 says that they are not kept any more. With now each has how it is now, or why that is not known: each such order is read.",
		Errors:      append([]int{http.StatusGone, http.StatusUnprocessableEntity}, errs...),
	}, func(ctx context.Context, in *bulkOrdersInput) (*struct{ Body BulkOrders }, error) {
		b, err := s.bulkOf(ctx, in.ID, identity.Viewer)
		if err != nil {
			return nil, err
		}
		page, kept := b.page(in.After, in.Limit)
		if !kept {
			return nil, huma.Error410Gone("the orders of this bulk act are not kept any more; the history of each has the act's id, " + in.ID + ", as the id of its command")
		}
		if in.Now {
			s.nowOf(ctx, page.Orders)
		}
		return &struct{ Body BulkOrders }{page}, nil
	})
	register(api, identity.Operator, huma.Operation{
		OperationID: "start-bulk", Method: http.MethodPost, Path: "/api/v1/bulk/{id}/start",
		Summary: "Carry out a bulk act", Tags: []string{"bulk"},
		Description: "Has each order that was looked up do the command, for whoever prepared it, and nobody else: an order that is no longer under the filter when its turn comes, or that changed since while in Error, is left as it is and counted. Answers at once; get-bulk says how far it is. One that was started before is not started again. An instance carries out 4 at a time: 429. With its instance an act ends, and says so; what it has done stays done.",
		Errors:      append([]int{http.StatusConflict, http.StatusTooManyRequests}, errs...),
	}, s.startBulk)
	register(api, identity.Operator, huma.Operation{
		OperationID: "stop-bulk", Method: http.MethodPost, Path: "/api/v1/bulk/{id}/stop",
		Summary: "Stop a bulk act", Tags: []string{"bulk"},
		Description: "What has begun ends as it would, and what was done stays done. One that has ended is not changed by it, and one that was only prepared is forgotten: its answer is the last that is heard of it.",
		Errors:      errs,
	}, func(ctx context.Context, in *bulkInput) (*struct{ Body Bulk }, error) {
		b, err := s.bulkOf(ctx, in.ID, identity.Operator)
		if err != nil {
			return nil, err
		}
		s.bulk.stop(b, "by "+cmp.Or(callerOf(ctx).Subject, "an operator"))
		return &struct{ Body Bulk }{b.told()}, nil
	})
}

type bulkInput struct {
	ID string `path:"id" doc:"The id that prepare-bulk gave"`
}

type bulkOrdersInput struct {
	ID    string `path:"id" doc:"The id that prepare-bulk gave"`
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	After int    `query:"after" minimum:"0" doc:"The next of the page before"`
	Now   bool   `query:"now" doc:"Say of each order how it is now, too"`
}

// nowOf says of orders how they are now, as far as the caller may see them and this instance knows.
func (s *Server) nowOf(ctx context.Context, rows []BulkRow) {
	i, ctx, done, err := s.use(ctx)
	if err != nil {
		for n := range rows {
			rows[n].Unknown = err.Error()
		}
		return
	}
	defer done()
	for n := range rows {
		if ctx.Err() != nil {
			rows[n].Unknown = "it could not be looked up in time"
			continue
		}
		rows[n].Now, rows[n].Unknown = s.standing(ctx, i, rows[n].OrderID)
	}
}

// standing is how an order is now, or why that is not known. Of one that the caller may not see it says what it says of one
// that is not there.
func (s *Server) standing(ctx context.Context, i *orchestrator.Instance, id string) (now *Summary, unknown string) {
	const none = "there is no such order that you may see"
	sees := func(workflow string) bool { return callerOf(ctx).May(identity.Viewer, workflow) }
	o, err := i.Showing(id)
	switch {
	case err == nil && sees(o.Workflow):
		summary := summaryOf(i.Partition(id), o, time.Now())
		return &summary, ""
	case err == nil, errors.Is(err, projections.ErrNotFound):
		return nil, none
	case errors.Is(err, projections.ErrForgotten):
		if was, _, _ := i.Order(id); was == nil || !sees(was.Workflow) { // it says of which workflow it was, beside the error
			return nil, none
		}
	}
	return nil, s.orderError(id, "look at order", err).Error()
}

// bulkOf finds an act for a caller who may see it, or change it.
func (s *Server) bulkOf(ctx context.Context, id string, role identity.Role) (*bulkAct, error) {
	b := s.bulk.find(id, time.Now())
	if b == nil || !b.seenBy(callerOf(ctx), identity.Viewer) {
		return nil, huma.Error404NotFound(fmt.Sprintf("this instance knows no bulk act %q. One that was prepared and not started is forgotten in a quarter of an hour, or with its instance; ask the instance that was asked to prepare it", id))
	}
	if !b.seenBy(callerOf(ctx), role) {
		return nil, huma.Error403Forbidden(forbidden(callerOf(ctx), role) + ", for all that the bulk act is about")
	}
	return b, nil
}

type bulkOutput struct {
	Location string `header:"Location"`
	Body     Bulk
}

func (s *Server) prepareBulk(ctx context.Context, in *struct{ Body BulkRequest }) (*bulkOutput, error) {
	i, ctx, done, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	b, err := s.newBulk(ctx, &in.Body)
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, s.bulk.patience)
	defer cancel()
	if err := b.lookUp(bounded, i); errors.Is(err, context.DeadlineExceeded) {
		return nil, huma.Error503ServiceUnavailable(fmt.Sprintf("nothing was prepared: looking up the orders took longer than %s, in which %d were found; say more of state, workflow and where", s.bulk.patience, len(b.orders)))
	} else if err != nil {
		return nil, s.listError("look up the orders of a bulk act", err)
	}
	s.bulk.add(b)
	askingOf(ctx).made = b.record.ID
	return &bulkOutput{Location: s.base + "/api/v1/bulk/" + b.record.ID, Body: b.told()}, nil
}

// newBulk is an act, without its orders.
func (s *Server) newBulk(ctx context.Context, r *BulkRequest) (*bulkAct, error) {
	if r.Filter.State == "" && r.Filter.Workflow == "" && len(r.Filter.Where) == 0 {
		return nil, huma.Error422UnprocessableEntity("the filter selects all orders; say at least one of state, workflow and where", &huma.ErrorDetail{Location: "body.filter", Message: "selects all orders"})
	}
	by, err := author(ctx, r.By, askingOf(ctx).address)
	if err != nil {
		return nil, err
	}
	command, err := s.bulkCommand(r, by)
	if err != nil {
		return nil, err
	}
	caller := callerOf(ctx)
	filter := projections.Filter{State: cmp.Or(r.Filter.State, StateFor(r.Command)), Workflow: r.Filter.Workflow, Step: r.Filter.Step, Limit: 1000}
	filter.Visible = visible(caller, identity.Operator)
	switch r.Command { // [Fits] passes over those that have ended
	case events.CommandLabel, events.CommandResume, events.CommandRelease, events.CommandResubmit:
	default:
		filter.Open = r.Filter.State == ""
	}
	if len(r.Filter.Where) > 0 {
		if filter.Labels, err = soughtLabels(caller, r.Filter.Workflow, r.Filter.Where, "body.filter.where"); err != nil {
			return nil, err
		}
		filter.Visible = func(workflow string) bool {
			return caller.May(identity.Operator, workflow) && caller.May(identity.PayloadReader, workflow)
		}
	}
	if r.Filter.Workflow != "" && !caller.May(identity.Operator, r.Filter.Workflow) {
		return nil, huma.Error403Forbidden(forbidden(caller, identity.Operator) + ", for workflow " + r.Filter.Workflow)
	}
	command.ID = uuid.NewString()
	shown := r.Filter
	shown.State = filter.State
	return &bulkAct{
		caller: caller, command: command, filter: filter, named: r.Filter.State != "",
		record: Bulk{
			ID: command.ID, State: BulkPrepared, Command: r.Command, With: r.With, By: text(by), Note: text(r.Note), Filter: shown, Rate: cmp.Or(r.Rate, 200),
			PreparedAt: &Time{time.Now()}, Failures: []BulkFailure{},
		},
	}, nil
}

// bulkCommand reads the command as its own operation would.
func (s *Server) bulkCommand(r *BulkRequest, by string) (c events.Command, _ error) {
	with := make(map[string]json.RawMessage)
	if len(r.With) > 0 {
		if err := json.Unmarshal(r.With, &with); err != nil {
			return c, huma.Error422UnprocessableEntity("with is no JSON object", &huma.ErrorDetail{Location: "body.with", Message: err.Error()})
		}
		if with == nil { // null says nothing
			with = make(map[string]json.RawMessage)
		}
	}
	for name, value := range map[string]string{"by": by, "note": r.Note} {
		if _, twice := with[name]; twice {
			return c, huma.Error422UnprocessableEntity(fmt.Sprintf("%s stands beside with, and not in it", name), &huma.ErrorDetail{Location: "body.with." + name, Message: "say it beside with"})
		}
		if value != "" {
			text, err := json.Marshal(value)
			if err != nil {
				return c, huma.Error422UnprocessableEntity(err.Error())
			}
			with[name] = text
		}
	}
	body, err := json.Marshal(with)
	if err != nil {
		return c, huma.Error422UnprocessableEntity(err.Error())
	}
	c, wrong := s.bulkReads[r.Command](body)
	if len(wrong) > 0 {
		return c, huma.Error422UnprocessableEntity("the command cannot be done as it is said", wrong...)
	}
	c.Command = r.Command
	return c, nil
}

func (s *Server) startBulk(ctx context.Context, in *bulkInput) (*struct{ Body Bulk }, error) {
	b, err := s.bulkOf(ctx, in.ID, identity.Operator)
	if err != nil {
		return nil, err
	}
	if !b.madeBy(callerOf(ctx)) && b.told().State == BulkPrepared {
		return nil, huma.Error403Forbidden("who prepared a bulk act starts it, and nobody else: prepare one of your own")
	}
	u, why := s.borrow()
	if why != nil {
		return nil, retryUnknown(fmt.Sprintf("not ready: %v; try again in a moment", why))
	}
	switch ctx, started := s.bulk.start(context.WithoutCancel(ctx), b, callerOf(ctx)); {
	case started:
		go func() {
			defer u.by.Done()
			s.carryOut(ctx, u, b)
		}()
	case b.told().State == BulkPrepared:
		u.by.Done()
		return nil, typed(tooManyActs, retry(behindRetry, huma.Error429TooManyRequests(fmt.Sprintf("this instance carries out %d bulk acts now; try again once one has ended, or stop one", mostBulk))))
	default:
		u.by.Done()
	}
	return &struct{ Body Bulk }{b.told()}, nil
}

// mask leaves what orders are about out of what is said of a bulk act.
func (b *Bulk) mask() {
	b.With, b.Note, b.Filter.Where, b.Masked = nil, nil, nil, true
	b.Failures = slices.Clone(b.Failures)
	for n := range b.Failures {
		b.Failures[n].Reason = ""
	}
}
