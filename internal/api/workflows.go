package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

// Workflows lists the registered definitions.
type Workflows struct {
	Workflows []json.RawMessage `json:"workflows" nullable:"false" doc:"In the canonical form, by name and version"`
	Retired   []string          `json:"retired,omitempty" doc:"Those that no new order may have, as NAME@VERSION"`
}

// RetiredHeader is on the answer to a registration of what no new order may have.
const RetiredHeader = "Waybill-Retired"

func (s *Server) workflows(api huma.API) {
	register(api, identity.Viewer, huma.Operation{
		OperationID: "list-workflows", Method: http.MethodGet, Path: "/api/v1/workflows",
		Summary: "List the registered workflows", Tags: []string{"workflows"},
		Errors: []int{http.StatusServiceUnavailable},
	}, s.listWorkflows)
	register(api, identity.Viewer, huma.Operation{
		OperationID: "get-workflow", Method: http.MethodGet, Path: "/api/v1/workflows/{name}",
		Summary: "Get a workflow in its canonical form", Tags: []string{"workflows"},
		Errors: []int{http.StatusNotFound, http.StatusServiceUnavailable},
	}, s.getWorkflow)
	register(api, identity.Deployer, huma.Operation{
		OperationID: "register-workflow", Method: http.MethodPost, Path: "/api/v1/workflows",
		Summary: "Register a workflow", Tags: []string{"workflows"},
		Description:  "The body is the workflow file itself, YAML or JSON, under any content type. A version that is registered never changes: registering the same again is 200, another content 409. Nor is it restored by that, if it is retired: the header Waybill-Retired says so. What orders others which are not registered, or would have orders begin others for ever, is 409, too.",
		MaxBodyBytes: maxBody, BodyReadTimeout: bodyTimeout, DefaultStatus: http.StatusCreated,
		Errors:    []int{http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity, http.StatusServiceUnavailable},
		Responses: map[string]*huma.Response{"200": answers[json.RawMessage](api, "The same is registered already")},
	}, s.registerWorkflow)
	// huma would say that it is any text, also none.
	file := api.OpenAPI().Paths["/api/v1/workflows"].Post.RequestBody.Content["application/yaml"]
	file.Schema = &huma.Schema{Type: huma.TypeObject}
	file.Example = map[string]any{"workflow": "tea", "steps": []any{map[string]any{"name": "draw", "sleep": "3m"}}}
	register(api, identity.Deployer, huma.Operation{
		OperationID: "retire-workflow", Method: http.MethodPost, Path: "/api/v1/workflows/{name}/retire",
		Summary: "Let no new order have a version of a workflow, or end that", Tags: []string{"workflows"},
		Description:   "Orders that have the version go on. A submission that names no version takes the newest that is not retired; one that names it is rejected. Doing it again changes nothing. It counts for what is decided from then on, once the orders' owners have read it. 409 says that an upgrade must be finished first.",
		DefaultStatus: http.StatusNoContent, MaxBodyBytes: maxBody, BodyReadTimeout: bodyTimeout,
		Errors: []int{http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity, http.StatusServiceUnavailable},
	}, s.retireWorkflow)
}

// Retirement is the body of retire-workflow.
type Retirement struct {
	Version int  `json:"version" minimum:"1" maximum:"2147483647" example:"1"`
	Retired bool `json:"retired" example:"true" doc:"True lets no new order have the version, false ends that"`
}

type retireInput struct {
	Name string `path:"name"`
	Body Retirement
}

func (s *Server) retireWorkflow(ctx context.Context, in *retireInput) (*struct{}, error) {
	i, ctx, done, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if c := callerOf(ctx); !c.May(identity.Deployer, in.Name) {
		return nil, huma.Error403Forbidden(forbidden(c, identity.Deployer) + ", for workflow " + in.Name)
	}
	id := workflow.ID(in.Name, in.Body.Version)
	askingOf(ctx).target = id
	switch err := i.Retire(ctx, in.Name, in.Body.Version, in.Body.Retired); {
	case errors.Is(err, orchestrator.ErrUnknownWorkflow):
		return nil, huma.Error404NotFound(fmt.Sprintf("workflow %s is not registered", id))
	case errors.Is(err, orchestrator.ErrOlderRelease):
		return nil, typed(upgradeNeeded, huma.Error409Conflict(err.Error()))
	case errors.Is(err, workflow.ErrChild):
		return nil, huma.Error409Conflict(err.Error())
	case errors.Is(err, orchestrator.ErrUnsettled):
		return nil, retryUnknown(err.Error())
	case err != nil:
		s.warn("a workflow was not retired", "workflow", id, "error", err)
		return nil, typed(kafkaSilent, retry(behindRetry, huma.Error503ServiceUnavailable("whether the workflow was retired is not known; try again, which is safe", err)))
	}
	return nil, nil
}

func (s *Server) listWorkflows(ctx context.Context, _ *struct{}) (*struct{ Body Workflows }, error) {
	i, _, done, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	out := &struct{ Body Workflows }{Workflows{Workflows: []json.RawMessage{}}}
	for _, flow := range i.Workflows() {
		if !callerOf(ctx).May(identity.Viewer, flow.Name) {
			continue
		}
		definition, err := flow.MarshalJSON()
		if err != nil {
			return nil, s.broken("encode workflow "+flow.ID(), err)
		}
		out.Body.Workflows = append(out.Body.Workflows, definition)
		if i.Retired(flow.Name, flow.Version) {
			out.Body.Retired = append(out.Body.Retired, flow.ID())
		}
	}
	return out, nil
}

type workflowInput struct {
	Name    string `path:"name"`
	Version int    `query:"version" minimum:"0" doc:"Left out or 0: the newest that is not retired"`
}

func (s *Server) getWorkflow(ctx context.Context, in *workflowInput) (*struct{ Body json.RawMessage }, error) {
	i, _, done, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	flow, visible := i.Workflow(in.Name, in.Version), callerOf(ctx).May(identity.Viewer, in.Name)
	switch name := in.Name; {
	case visible && flow == nil && in.Version == 0 && i.Retired(in.Name, 0):
		return nil, huma.Error404NotFound(fmt.Sprintf("workflow %s is retired, in every version: name one of those that waybill workflow versions %s lists", name, name))
	case !visible || flow == nil:
		if in.Version > 0 {
			name = workflow.ID(in.Name, in.Version)
		}
		return nil, huma.Error404NotFound(fmt.Sprintf("workflow %s is not registered", name))
	}
	definition, err := flow.MarshalJSON()
	if err != nil {
		return nil, s.broken("encode workflow "+flow.ID(), err)
	}
	return &struct{ Body json.RawMessage }{definition}, nil
}

type registerInput struct {
	File    string `query:"file" doc:"The name under which problems are reported" default:"workflow"`
	RawBody []byte `contentType:"application/yaml"`
}

type registerOutput struct {
	Status  int
	Retired string `header:"Waybill-Retired" doc:"That no new order may have the version, and how that is ended; else it is missing"`
	Body    json.RawMessage
}

func (s *Server) registerWorkflow(ctx context.Context, in *registerInput) (*registerOutput, error) {
	i, ctx, done, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	flow, err := workflow.Parse(in.File, in.RawBody)
	if err != nil {
		return nil, invalidWorkflow(err)
	}
	if c := callerOf(ctx); !c.May(identity.Deployer, flow.Name) {
		return nil, huma.Error403Forbidden(forbidden(c, identity.Deployer) + ", for workflow " + flow.Name)
	}
	askingOf(ctx).target = flow.ID()
	status := http.StatusCreated
	if i.Workflow(flow.Name, flow.Version) != nil {
		status = http.StatusOK
	}
	switch err := i.Register(ctx, flow); {
	case errors.Is(err, orchestrator.ErrOlderRelease):
		return nil, typed(upgradeNeeded, huma.Error409Conflict(err.Error()))
	case errors.Is(err, orchestrator.ErrConflict), errors.Is(err, workflow.ErrChild), errors.Is(err, orchestrator.ErrTopic):
		return nil, huma.Error409Conflict(err.Error())
	case errors.Is(err, orchestrator.ErrUnsettled):
		return nil, retryUnknown(err.Error())
	case err != nil:
		s.warn("a registration failed", "workflow", flow.ID(), "error", err)
		return nil, typed(kafkaSilent, retry(behindRetry, huma.Error503ServiceUnavailable("the workflow could not be registered; try again, which is safe", err)))
	}
	definition, err := flow.MarshalJSON()
	if err != nil {
		return nil, s.broken("encode workflow "+flow.ID(), err)
	}
	out := &registerOutput{Status: status, Body: definition}
	if i.Retired(flow.Name, flow.Version) {
		out.Retired = fmt.Sprintf("workflow %[1]s is registered, and retired: no new order may have it until waybill workflow retire %[1]s --restore", flow.ID())
	}
	return out, nil
}

// Register registers a workflow for the process itself.
func (s *Server) Register(ctx context.Context, file string, source []byte) error {
	ctx = context.WithValue(ctx, askingKey{}, &asking{caller: identity.Anybody})
	_, err := s.registerWorkflow(ctx, &registerInput{File: file, RawBody: source})
	return err
}

// Registered returns the registered workflows for the process itself, by name and version: those that
// new orders may have, and those that are retired.
func (s *Server) Registered(ctx context.Context) (open, retired []*workflow.Workflow, err error) {
	i, _, done, err := s.use(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer done()
	for _, flow := range i.Workflows() {
		if i.Retired(flow.Name, flow.Version) {
			retired = append(retired, flow)
		} else {
			open = append(open, flow)
		}
	}
	return open, retired, nil
}

func invalidWorkflow(err error) error {
	var problems workflow.Errors
	if !errors.As(err, &problems) {
		return huma.Error422UnprocessableEntity(err.Error())
	}
	details := make([]error, len(problems))
	for n, p := range problems {
		details[n] = &huma.ErrorDetail{Message: p.Message, Location: fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)}
	}
	return huma.Error422UnprocessableEntity("the workflow is not valid, and nothing was registered", details...)
}
