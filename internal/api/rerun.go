package api

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
)

// Rerun is the body of a request to run an order again.
type Rerun struct {
	ID       string          `json:"id,omitempty" nullable:"true" example:"o-1-again" doc:"The id of the new order, at most 256 bytes of UTF-8, not beginning with @; left out, a new one is made. Asking again with the same id runs nothing twice; 409 says that the id is another submission's."`
	Version  int             `json:"version,omitempty" minimum:"0" nullable:"true" doc:"Of the order's workflow; left out or 0, the version that the order had"`
	Input    json.RawMessage `json:"input,omitempty" example:"{\"total\":42}" doc:"What the agents work on; any JSON, null too. Left out, the order's. That of an order that was rejected is not kept"`
	Deadline *time.Time      `json:"deadline,omitempty" nullable:"true" doc:"Left out, what the workflow's deadline gives, if it has one, and not the order's"`
}

// Made says whether an order is that of the receipt of a rerun, as far as the two can tell: the
// digest is not for everybody, and an order that was rejected does not say what it does again.
func (r *Receipt) Made(o *Order, of string) bool {
	if r.Digest != "" && o.Digest != nil {
		return *o.Digest == r.Digest
	}
	return o.ProcessState == projections.Rejected || o.RerunOf != nil && *o.RerunOf == of
}

func (s *Server) reruns(api huma.API) {
	register(api, identity.Operator, huma.Operation{
		OperationID: "rerun-order", Method: http.MethodPost, Path: "/api/v1/orders/{id}/rerun",
		Summary: "Run an order that has ended again, as a new one", Tags: []string{"orders"},
		Description:   "Submits an order with the workflow, the version, the input, the labels, the priority and the replyTo of one that has ended, as they are now; what the workflow makes of the input to find an order by is made anew. The new order has rerunOf, the id of the other. The input is copied here, and shown to nobody who may not read it. Else it is as a submission. 409 also says that the order has not ended, that its workflow is not registered, or that an upgrade must be finished first.",
		DefaultStatus: http.StatusAccepted, RequestBody: &huma.RequestBody{}, MaxBodyBytes: maxBody, BodyReadTimeout: bodyTimeout,
		Errors: []int{http.StatusBadRequest, http.StatusNotFound, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusMisdirectedRequest, http.StatusUnprocessableEntity, http.StatusTooManyRequests, http.StatusServiceUnavailable},
	}, s.rerun, identity.Submitter)
}

type rerunInput struct {
	ID string `path:"id" doc:"The order id, escaped for a path: a/b is a%2Fb"`
	Context
	Body *Rerun
}

// rerun takes two roles: it acts on an order that others may have submitted, and makes a new one.
func (s *Server) rerun(ctx context.Context, in *rerunInput) (*submitOutput, error) {
	i, ctx, done, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	for _, role := range []identity.Role{identity.Operator, identity.Submitter} {
		if _, err := s.reach(ctx, i, in.ID, role); err != nil {
			return nil, err
		}
	}
	o, _, err := i.Order(in.ID)
	if err != nil {
		return nil, s.orderError(in.ID, "read order", err)
	}
	body := in.Body
	if body == nil {
		body = new(Rerun)
	}
	submission, err := again(i, o, body)
	if err != nil {
		return nil, err
	}
	out, err := s.put(ctx, i, body.ID, submission, in.passed(), new(waiting))
	if err == nil {
		out.Body.workflow = o.Workflow
	}
	return out, err
}

// again is the submission that runs an order again.
func again(i *orchestrator.Instance, o *projections.Order, r *Rerun) (*events.Submission, error) {
	if !o.State.Final() {
		return nil, notEnded(o)
	}
	if r.ID == o.ID {
		const why = "the new order needs an id of its own"
		return nil, huma.Error422UnprocessableEntity(why+"; choose another, or leave it out to get one", &huma.ErrorDetail{Message: why, Location: "body.id"})
	}
	m := &events.Submission{
		Workflow: o.Workflow, Version: o.Version, Input: o.Input, ReplyTo: o.ReplyTo, Priority: o.Priority, RerunOf: o.ID, Submitters: slices.Clone(o.Submitters),
	}
	if o.SubmittedBy != "" && !slices.Contains(m.Submitters, o.SubmittedBy) {
		m.Submitters = append(m.Submitters, o.SubmittedBy)
	}
	if len(m.Submitters) > events.MaxSubmitters { // who of them may not decide would be forgotten
		return nil, huma.Error409Conflict(fmt.Sprintf("order %q does again what %d people submitted, which is the most: submit it as a new one", o.ID, len(m.Submitters)-1))
	}
	switch {
	case len(r.Input) > 0:
		m.Input = jsontext.Value(r.Input)
	case o.State == projections.Rejected:
		return nil, huma.Error409Conflict(fmt.Sprintf("order %q was rejected, and what it was submitted with is not kept: give its input, or submit it again", o.ID))
	}
	if r.Version > 0 {
		m.Version = r.Version
	}
	if r.Deadline != nil {
		m.Deadline = events.Time(*r.Deadline)
	}
	if i.Retired(m.Workflow, m.Version) {
		return nil, huma.Error409Conflict(fmt.Sprintf("workflow %s is retired; name another version", workflow.ID(m.Workflow, m.Version)))
	}
	flow := i.Workflow(m.Workflow, m.Version)
	if flow == nil {
		return nil, notRegistered(o, m.Version, "register it, or name another version")
	}
	before := i.Workflow(o.Workflow, o.Version)
	if before == nil && len(o.Labels) > 0 {
		return nil, notRegistered(o, o.Version, "which of its labels come of its input is not known without that; register it")
	}
	m.Labels = ownLabels(o, before, flow)
	return m, nil
}

// ownLabels are those of the order's that its workflow did not make of the input, nor will.
func ownLabels(o *projections.Order, flows ...*workflow.Workflow) map[string]string {
	labels := maps.Clone(o.Labels)
	for _, flow := range flows {
		if flow == nil {
			continue
		}
		for _, m := range flow.Search {
			delete(labels, m.Name)
		}
	}
	return labels
}

func notEnded(o *projections.Order) error {
	first := "wait for its end, or cancel it"
	if o.State == projections.Error {
		first = "resubmit it so that it goes on, or cancel it"
	}
	return huma.Error409Conflict(fmt.Sprintf("order %q has not ended, it is %s: %s; then run it again", o.ID, o.State, first))
}

// notRegistered says which workflow is missing, and what to do about that.
func notRegistered(o *projections.Order, version int, todo string) error {
	name := o.Workflow
	if version > 0 {
		name = workflow.ID(name, version)
	}
	return huma.Error409Conflict(fmt.Sprintf("order %q cannot be run again, because workflow %q is not registered: %s", o.ID, name, todo))
}
