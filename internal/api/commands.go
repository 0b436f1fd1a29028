package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/projections"
)

// Act is the body of a command that needs nothing but its author and reason.
type Act struct {
	By   string `json:"by,omitempty" nullable:"true" maxLength:"256" example:"ana@shop" doc:"Who acts; left out, whoever the request names, else the address that it came from. Where callers are asked who they are, nobody acts for another: 403"`
	Note string `json:"note,omitempty" nullable:"true" example:"the customer called" doc:"Why; it stands in the order's history as the reason"`
}

// Resubmission is the body of resubmit.
type Resubmission struct {
	Act
	Step    string          `json:"step,omitempty" nullable:"true" doc:"The step that input is for; it may be left out when one step failed, or none did and the one that could begin sleeps"`
	Input   json.RawMessage `json:"input,omitempty" doc:"Replaces the input of the step; any JSON, null too. Left out, it stays as it is. For a step that keeps its idempotency key, with sameKey or newKey"`
	SameKey bool            `json:"sameKey,omitempty" nullable:"true" doc:"Go on with the idempotency keys of before, also where an error was answered"`
	NewKey  bool            `json:"newKey,omitempty" nullable:"true" doc:"Go on with new idempotency keys, also where nobody answered; what may have run is undone under both. Not together with sameKey"`

	ToVersion int               `json:"toVersion,omitempty" minimum:"0" nullable:"true" doc:"The order goes on as one of this version of its workflow, as by migrate, and is resubmitted as that: both, or neither. Left out or 0, it keeps its version. step is as that version calls it"`
	Map       map[string]string `json:"map,omitempty" nullable:"true" doc:"With toVersion, as of migrate"`
}

// Skip is the body of skip-step.
type Skip struct {
	Act
	Step   string          `json:"step,omitempty" required:"true" minLength:"1" example:"ship" doc:"The step to pass over, or its undo while the order is compensated"`
	Output json.RawMessage `json:"output,omitempty" doc:"What later steps see as the step's output; any JSON"`
}

// Release is the body of release.
type Release struct {
	Act
	Discard bool `json:"discard,omitempty" nullable:"true" doc:"Go on without the first input that waits; it becomes a dead letter"`
}

// Relabelling is the body of label.
type Relabelling struct {
	Act
	Labels map[string]*string `json:"labels,omitempty" required:"true" minProperties:"1" doc:"The labels to set, and with null those to remove"`
}

// Termination is the body of terminate.
type Termination struct {
	By   string `json:"by,omitempty" nullable:"true" maxLength:"256" example:"ana@shop" doc:"As of cancel"`
	Note string `json:"note,omitempty" required:"true" minLength:"1" example:"the customer called" doc:"Why; it stands in the order's history as the reason"`
}

// Decision is the body of decide.
type Decision struct {
	Act
	Step    string `json:"step,omitempty" required:"true" minLength:"1" doc:"The step that asks"`
	Outcome string `json:"outcome,omitempty" required:"true" minLength:"1" doc:"One of those that the step permits"`
}

// Change is the body of change.
type Change struct {
	Act
	Priority   events.Priority `json:"priority,omitempty" enum:"high,normal,low" nullable:"true" doc:"Left out, it stays as it is"`
	Deadline   *time.Time      `json:"deadline,omitempty" nullable:"true" doc:"When the order must be done. Left out, it stays as it is"`
	Step       string          `json:"step,omitempty" nullable:"true" doc:"The step that atOnce is for"`
	AtOnce     int             `json:"atOnce,omitempty" minimum:"1" maximum:"1000" nullable:"true" doc:"How many items of the step may be under way at a time. Not together with priority, deadline and noDeadline"`
	NoDeadline bool            `json:"noDeadline,omitempty" nullable:"true" doc:"The order has no deadline any more. Not together with deadline"`
}

func (a *Act) command() events.Command { return events.Command{By: a.By, Note: a.Note} }

func (r *Resubmission) command() events.Command {
	c := r.Act.command()
	c.Step, c.Input, c.SameKey, c.NewKey = r.Step, jsontext.Value(r.Input), r.SameKey, r.NewKey
	c.ToVersion, c.Map = r.ToVersion, r.Map
	return c
}

// Resolve refuses what contradicts itself.
func (r *Resubmission) Resolve(huma.Context) []error {
	if r.SameKey && r.NewKey {
		return []error{&huma.ErrorDetail{Location: "body.newKey", Message: "sameKey and newKey are both true; use one of the two", Value: true}}
	}
	return nil
}

func (s *Skip) command() events.Command {
	c := s.Act.command()
	c.Step, c.Output = s.Step, jsontext.Value(s.Output)
	return c
}

func (t *Termination) command() events.Command { return events.Command{By: t.By, Note: t.Note} }

func (ch *Change) command() events.Command {
	c := ch.Act.command()
	c.Priority, c.NoDeadline, c.Step, c.AtOnce = ch.Priority, ch.NoDeadline, ch.Step, ch.AtOnce
	if ch.Deadline != nil {
		c.Deadline = events.Time(*ch.Deadline)
	}
	return c
}

func (d *Decision) command() events.Command {
	c := d.Act.command()
	c.Step, c.Outcome = d.Step, d.Outcome
	return c
}

func (r *Release) command() events.Command {
	c := r.Act.command()
	c.Discard = r.Discard
	return c
}

func (r *Relabelling) command() events.Command {
	c := r.Act.command()
	c.Labels = r.Labels
	return c
}

func (s *Server) commands(api huma.API) {
	command[Act](s, api, events.CommandCancel, "Cancel an order",
		"What ran is undone, and the order ends as Cancelled. For an order that has not ended and is not being compensated.", false)
	command[Resubmission](s, api, events.CommandResubmit, "Let an order go on after an error",
		"For an order in Error: every step that failed, or every undo while the order is compensated, begins again with a fresh round of attempts. What its agent answered with an error gets a new idempotency key; what nobody answered, or had retries left, keeps the one that it has.", false)
	command[Skip](s, api, events.CommandSkipStep, "Pass over a step",
		"The step, or its undo while the order is compensated, must not be running or completed.", true)
	command[Act](s, api, events.CommandPause, "Pause an order",
		"Nothing new starts until it is resumed. What runs ends as it would.", false)
	command[Act](s, api, events.CommandResume, "Resume a paused order", "It goes on where it was.", false)
	command[Relabelling](s, api, events.CommandLabel, "Change the labels of an order",
		"Also of one that has ended. What its workflow makes of the input to find it by is no label.", true)
	command[Release](s, api, events.CommandRelease, "Let an order that is held go on",
		"For an order on which deciding panicked. It is again what it was before, and the inputs that wait are decided in order; if one panics again, the order is held again.", false)
	command[Change](s, api, events.CommandChange, "Change the priority or the deadline of an order",
		"For what begins from then on: an attempt that runs keeps its complete-by.", true)
	command[Migrating](s, api, events.CommandMigrate, "Have an order go on as one of another version of its workflow",
		"An attempt that runs goes on as it was asked, under the name and the idempotency key by which its agent knows it; what has not begun, and limits and the deadline of the workflow, are those of the other version. Orders that do steps of this one keep their versions. All that forbids it is in the answer: get-migration says so before.", true)
	command[Decision](s, api, events.CommandDecide, "Decide what a step asks",
		"For a step that waits for people. The caller must have one of the roles that it asks, for the order's workflow, and neither have submitted the order, or one that it does again, nor have decided before. Its note has at most 1024 bytes. Instances have keys of the namespace, so that the owner of the order knows who decides; without these only an owner with --claimed-approvals takes it.", true)
	command[Termination](s, api, events.CommandTerminate, "End an order at once, and undo nothing",
		"For an order in any state that is not final, also one that is held, or whose workflow is gone. What was done stays as it is. What agents were asked for they may do all the same, and their answers change nothing: mayHaveRun in the event says which steps that is about.", true)
}

// saidTwice is the schema of a command's body with what clients of before put there, too, though the path and a header
// say it.
func saidTwice(api huma.API, body reflect.Type, name string) *huma.Schema {
	registry := api.OpenAPI().Components.Schemas
	alone := registry.Schema(body, true, "")
	strict(registry, alone)
	s := *resolved(registry, alone)
	s.Properties = maps.Clone(s.Properties)
	s.Properties["command"] = &huma.Schema{Type: huma.TypeString, Enum: []any{name, nil}, Nullable: true, Deprecated: true, Description: "The path says it"}
	s.Properties["id"] = &huma.Schema{Type: huma.TypeString, Nullable: true, Deprecated: true, Description: "Idempotency-Key says it, and this counts for nothing"}
	for _, p := range s.Properties {
		p.PrecomputeMessages()
	}
	s.PrecomputeMessages()
	return &s
}

// command registers an operator's command whose body is a B.
func command[B any, P interface {
	*B
	command() events.Command
}](s *Server, api huma.API, name, summary, description string, needsBody bool,
) {
	type input struct {
		CommandInput
		Body P
	}
	status := []int{
		http.StatusBadRequest, http.StatusNotFound, http.StatusConflict, http.StatusRequestEntityTooLarge,
		http.StatusMisdirectedRequest, http.StatusUnprocessableEntity, http.StatusServiceUnavailable,
	}
	role := identity.Operator
	if name == events.CommandDecide {
		role = identity.Approver
	} else {
		s.bulkReads[name] = reads[B, P](api)
	}
	register(api, role, huma.Operation{
		OperationID: name + "-order", Method: http.MethodPost, Path: "/api/v1/orders/{id}/" + name,
		Summary: summary, Tags: []string{"operators"},
		Description:  description + fmt.Sprintf(" Answers with the state record once the order's owner did it, and with 409 and the reason if it could not be done. After %s without an outcome, or sooner where many wait for a partition that answers nothing, it answers with 503; the command is acted on all the same, once it is on Kafka, which may be half a minute later.", commandTimeout),
		RequestBody:  &huma.RequestBody{Required: needsBody, Content: map[string]*huma.MediaType{"application/json": {Schema: saidTwice(api, reflect.TypeFor[B](), name)}}},
		MaxBodyBytes: maxBody, BodyReadTimeout: bodyTimeout,
		Errors: status,
	}, func(ctx context.Context, in *input) (*struct{ Body Order }, error) {
		var c events.Command
		if in.Body != nil {
			c = in.Body.command()
		}
		from := in.from
		if name == events.CommandDecide {
			from = "" // an address is nobody who decides
		}
		by, err := author(ctx, c.By, from)
		if err != nil {
			return nil, err
		}
		c.Command, c.ID, c.By = name, in.Key, by
		return s.command(ctx, role, in.ID, &c)
	})
}

// CommandInput is what all commands take besides a body.
type CommandInput struct {
	ID   string `path:"id" doc:"The order id, escaped for a path: a/b is a%2Fb"`
	Key  string `header:"Idempotency-Key" doc:"At most 256 bytes. Names the command, so that it acts once if it is sent twice; left out, it gets a name of its own. An order remembers the last one, and the last 16 whose author is known: of these it tells apart what they ask for. One that was refused is refused again, whatever is so now: give it another name"`
	from string
}

// Resolve notes where the request came from.
func (in *CommandInput) Resolve(c huma.Context) []error {
	in.from = hostOf(c)
	return nil
}

var _ huma.Resolver = (*CommandInput)(nil)

// hostOf is where a request came from, "" if that is not known.
func hostOf(c huma.Context) string {
	host, _, err := net.SplitHostPort(c.RemoteAddr())
	if err != nil {
		return ""
	}
	return host
}

// notSent begins what is said of a command that nobody will act on.
const notSent = "no command was sent"

// maxKey is the longest Idempotency-Key, in bytes: a longer one would be cut.
const maxKey = 256

// commandTimeout bounds how long a command is waited for.
const (
	commandTimeout = 10 * time.Second

	_ = uint(bodyTimeout - commandTimeout) // not negative; see bodyTimeout
)

func (s *Server) command(ctx context.Context, role identity.Role, id string, c *events.Command) (*struct{ Body Order }, error) {
	i, ctx, done, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if _, err := s.reach(ctx, i, id, role); err != nil {
		return nil, err
	}
	if err := s.act(ctx, i, id, c, func() string {
		o, _, err := i.Order(id)
		if err != nil { // the command fails for the same reason
			return ""
		}
		return o.Workflow
	}); err != nil {
		return nil, err
	}
	o, _, err := i.Order(id)
	if err != nil {
		return nil, s.commandError(id, c, fmt.Errorf("%w: %w", orchestrator.ErrNoOutcome, err))
	}
	return s.orderOf(ctx, i, o)
}

// act has a command done to what is of a workflow.
func (s *Server) act(ctx context.Context, i *orchestrator.Instance, id string, c *events.Command, workflow func() string) error {
	if len(c.ID) > maxKey {
		return huma.Error422UnprocessableEntity(fmt.Sprintf("the Idempotency-Key has %d bytes; at most %d are allowed", len(c.ID), maxKey))
	}
	if !utf8.ValidString(c.ID) {
		return huma.Error422UnprocessableEntity("the Idempotency-Key is not UTF-8; use letters, digits and the like")
	}
	value, err := c.Encode()
	if err != nil {
		return huma.Error422UnprocessableEntity("the command cannot be written as JSON", err)
	}
	if len(value) > events.MaxValue {
		return huma.Error413RequestEntityTooLarge(fmt.Sprintf("the command has %d bytes; at most %d are allowed: keep large data elsewhere and pass a reference to it", len(value), events.MaxValue))
	}
	if c.ID == "" {
		c.ID = uuid.NewString()
	}
	bounded, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	bounded, leave, err := s.shares.join(bounded, awaited{"command", i.Partition(id)})
	if err != nil {
		if _, _, none := i.Order(id); none != nil {
			return s.commandError(id, c, none)
		}
		return typed(kafkaSilent, retry(behindRetry, huma.Error503ServiceUnavailable(fmt.Sprintf(notSent+": %v; try again later", err))))
	}
	err = i.Command(bounded, id, c, actor(ctx, workflow))
	leave(err == nil || errors.Is(err, orchestrator.ErrRefused))
	if err != nil {
		return s.commandError(id, c, err)
	}
	return nil
}

func (s *Server) commandError(id string, c *events.Command, err error) error {
	const again = "Repeating it with the header Idempotency-Key: %s is safe."
	switch {
	case errors.Is(err, projections.ErrDamaged):
		return s.broken(fmt.Sprintf("%s order %q", c.Command, id), err)
	case errors.Is(err, orchestrator.ErrNoOutcome):
		return typed(outcomeUnknown, retryUnknown(fmt.Sprintf("%v. It will be acted on; look at the order's history. "+again, err, c.ID)))
	case errors.Is(err, projections.ErrNotFound), errors.Is(err, projections.ErrForgotten), errors.Is(err, orchestrator.ErrElsewhere), errors.Is(err, orchestrator.ErrUnknownYet):
		return s.orderError(id, "", err)
	case errors.Is(err, orchestrator.ErrOlderRelease):
		return typed(upgradeNeeded, huma.Error409Conflict(err.Error()))
	case errors.Is(err, orchestrator.ErrRefused):
		return typed(refusedByOwner, huma.Error409Conflict(strings.TrimPrefix(err.Error(), orchestrator.ErrRefused.Error()+": ")))
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return typed(outcomeUnknown, retry(behindRetry, huma.Error503ServiceUnavailable(fmt.Sprintf("what became of the command is not known yet. Once it is on Kafka it will be acted on; look at the order's history. "+again, c.ID), err)))
	}
	s.warn("a command was not taken", "command", c.Command, "order", id, "error", err)
	return typed(kafkaSilent, retry(behindRetry, huma.Error503ServiceUnavailable(fmt.Sprintf("Kafka did not take the command. "+again, c.ID), err)))
}
