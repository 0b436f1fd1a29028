package api

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/orchestrator/decide"
	"github.com/waybill-dev/waybill/orchestrator/timetable"
	"github.com/waybill-dev/waybill/projections"
)

// ScheduleSpec is what a schedule says.
type ScheduleSpec struct {
	Cron    string `json:"cron,omitempty" doc:"When: five fields, minute hour day-of-month month day-of-week, or six with seconds before them. This, or every"`
	Every   string `json:"every,omitempty" doc:"A duration of whole seconds, for example 90m or 1d, from start on, or else from 1970. This, or cron"`
	Zone    string `json:"zone,omitempty" doc:"The zone of cron, by its name in the IANA database; left out, UTC"`
	Start   *Time  `json:"start,omitempty" doc:"The first time at which it may begin an order"`
	End     *Time  `json:"end,omitempty" doc:"The last time at which it may begin one"`
	Jitter  string `json:"jitter,omitempty" doc:"By how much an order begins later than its tick, at most"`
	Overlap string `json:"overlap,omitempty" enum:"skip,queue-one,queue,cancel-other,allow" doc:"What becomes of a tick while an order of one before has not ended; left out, skip"`
	CatchUp string `json:"catchUp,omitempty" enum:"none,latest,all" doc:"What becomes of ticks that nobody took in time; left out, none"`
	Window  string `json:"window,omitempty" doc:"How late an order may begin; left out, a day"`

	Workflow string            `json:"workflow" doc:"That of the orders that it begins"`
	Version  int               `json:"version,omitzero" minimum:"1" doc:"Left out, the newest when an order begins"`
	Input    json.RawMessage   `json:"input,omitempty" doc:"Of each order; any JSON"`
	Priority events.Priority   `json:"priority,omitempty" enum:"high,normal,low"`
	Labels   map[string]string `json:"labels,omitempty" maxProperties:"13" doc:"Of each order, besides schedule, tick and backfill"`
	ReplyTo  string            `json:"replyTo,omitempty" doc:"The topic for status messages"`
}

// SpecOf is what a schedule says, for the API.
func SpecOf(s *events.Schedule) ScheduleSpec {
	return ScheduleSpec{
		Cron: s.Cron, Every: s.Every, Zone: s.Zone, Start: at(s.Start), End: at(s.End), Jitter: s.Jitter, Overlap: s.Overlap, CatchUp: s.CatchUp, Window: s.Window,
		Workflow: s.Workflow, Version: s.Version, Input: json.RawMessage(s.Input), Priority: s.Priority, Labels: s.Labels, ReplyTo: s.ReplyTo,
	}
}

func (s *ScheduleSpec) message() *events.Schedule {
	m := &events.Schedule{
		Cron: s.Cron, Every: s.Every, Zone: s.Zone, Jitter: s.Jitter, Overlap: s.Overlap, CatchUp: s.CatchUp, Window: s.Window,
		Workflow: s.Workflow, Version: s.Version, Input: jsontext.Value(s.Input), Priority: s.Priority, Labels: s.Labels, ReplyTo: s.ReplyTo,
	}
	if s.Start != nil {
		m.Start = events.Time(s.Start.Time)
	}
	if s.End != nil {
		m.End = events.Time(s.End.Time)
	}
	return m
}

// Application is the body with which a schedule is applied.
type Application struct {
	Act
	ScheduleSpec
}

// Schedule is one as it stands.
type Schedule struct {
	Name string `json:"name"`
	ScheduleSpec
	Incarnation int        `json:"incarnation" doc:"How many there were of the name with this one"`
	AppliedBy   *string    `json:"appliedBy" doc:"Who applied it last, if that was said"`
	AppliedAt   *Time      `json:"appliedAt" doc:"When the incarnation was applied first"`
	Paused      bool       `json:"paused"`
	Held        bool       `json:"held" doc:"Deciding on it panicked: release it as an order, under its id, @ and its name"`
	Next        *Time      `json:"next" doc:"The first tick that is not decided on; null if there is none"`
	Begins      *Time      `json:"begins" doc:"When that begins its order, with its jitter"`
	Last        *Time      `json:"last" doc:"The last tick that was decided on"`
	Started     int        `json:"started" doc:"How many ticks began an order, of this incarnation"`
	Skipped     int        `json:"skipped" doc:"How many began none"`
	Open        []OpenTick `json:"open" nullable:"false" doc:"Its orders that have not ended, for all that it was told"`
	Backfilled  int        `json:"backfilled" doc:"How many backfills there were, of this incarnation"`
	Backfills   []Backfill `json:"backfills" nullable:"false" doc:"Those that have not ended"`
	Masked      bool       `json:"masked,omitzero" doc:"The input and the labels of its orders are left out: they take the role payload-reader"`
	NotDecoded
}

// Backfill is ticks that have passed, and begin orders now.
type Backfill struct {
	Number int        `json:"number"`
	Next   *Time      `json:"next" doc:"The first tick that has begun none yet; null if all have"`
	Last   *Time      `json:"last"`
	Left   int        `json:"left" doc:"How many have begun none yet"`
	AtOnce int        `json:"atOnce" doc:"How many of its orders may be open"`
	Open   []OpenTick `json:"open" nullable:"false" doc:"Its orders that have not ended"`
}

// BackfillRequest is the body with which ticks that have passed are had begin orders.
type BackfillRequest struct {
	Act
	From   time.Time `json:"from" doc:"The first time whose ticks are meant"`
	To     time.Time `json:"to" doc:"The last, which has passed"`
	AtOnce int       `json:"atOnce,omitempty" minimum:"1" maximum:"100" doc:"How many of its orders may be open; left out, one"`
}

// OpenTick is a tick whose order has not ended.
type OpenTick struct {
	Tick     *Time  `json:"tick"`
	Order    string `json:"order"`
	Recalled bool   `json:"recalled,omitzero" doc:"It was asked to undo what it did, and to end"`
}

// SchedulePage is a part of the schedules.
type SchedulePage struct {
	Schedules []Schedule `json:"schedules" nullable:"false"`
	LeftOut
	Next string `json:"next" doc:"Pass it as after to get the next page; empty when there is none"`
	NotDecoded
}

// Ticks are the next of a schedule.
type Ticks struct {
	Ticks []NextTick `json:"ticks" nullable:"false"`
}

// NextTick is one that is to come.
type NextTick struct {
	Tick   *Time  `json:"tick"`
	Begins *Time  `json:"begins" doc:"When it begins its order, with its jitter"`
	Order  string `json:"order" doc:"The id of that order"`
}

func (s *Schedule) mask() { s.Input, s.Labels, s.Masked = nil, nil, true }

func scheduleOf(o *projections.Order) Schedule {
	s := o.Schedule
	out := Schedule{
		Name: events.ScheduleOf(o.ID), ScheduleSpec: SpecOf(s.Says), Incarnation: s.Incarnation, AppliedBy: text(s.AppliedBy), AppliedAt: at(o.AcceptedAt),
		Paused: o.Paused, Held: o.Hold != nil, Next: at(s.Next), Begins: at(s.Begins), Last: at(s.Last), Started: s.Started, Skipped: s.Skipped, Open: openTicks(s.Open),
		Backfilled: s.Backfilled, Backfills: []Backfill{},
	}
	for _, b := range s.Backfills {
		out.Backfills = append(out.Backfills, Backfill{b.Number, at(b.Next), at(b.Last), b.Left, b.AtOnce, openTicks(b.Open)})
	}
	return out
}

func openTicks(open []projections.Tick) []OpenTick {
	all := []OpenTick{}
	for _, t := range open {
		all = append(all, OpenTick{at(t.At), t.Order, t.Recalled})
	}
	return all
}

// PreviewOf are the first ticks of a schedule behind a time, at most so many.
func PreviewOf(name string, incarnation int, says *events.Schedule, after time.Time, most int) (Ticks, error) {
	table, err := timetable.Of(says)
	if err != nil {
		return Ticks{}, err //nolint:wrapcheck // it says what is wrong with the schedule
	}
	ticks := Ticks{Ticks: []NextTick{}}
	for tick := table.Next(after); !tick.IsZero() && len(ticks.Ticks) < most; tick = table.Next(tick) {
		id := events.TickID(name, incarnation, tick)
		ticks.Ticks = append(ticks.Ticks, NextTick{at(tick), at(table.Begins(id, tick)), id})
	}
	return ticks, nil
}

func (s *Server) schedules(api huma.API) {
	reads := []int{http.StatusNotFound, http.StatusUnprocessableEntity, http.StatusMisdirectedRequest, http.StatusServiceUnavailable}
	register(api, identity.Viewer, huma.Operation{
		OperationID: "list-schedules", Method: http.MethodGet, Path: "/api/v1/schedules",
		Summary: "List schedules", Description: "Partition by partition, in each by name.", Tags: []string{"schedules"}, Errors: reads,
	}, s.listSchedules)
	register(api, identity.Viewer, huma.Operation{
		OperationID: "get-schedule", Method: http.MethodGet, Path: "/api/v1/schedules/{name}",
		Summary: "Get a schedule, and how it stands", Tags: []string{"schedules"}, Errors: reads,
		Description: "What became of its ticks is its history: that of the order whose id is @ and its name.",
	}, s.getSchedule)
	register(api, identity.Viewer, huma.Operation{
		OperationID: "preview-schedule", Method: http.MethodGet, Path: "/api/v1/schedules/{name}/preview",
		Summary: "Get the next ticks of a schedule", Tags: []string{"schedules"}, Errors: reads,
	}, s.previewSchedule)

	acts := append([]int{http.StatusBadRequest, http.StatusConflict, http.StatusRequestEntityTooLarge}, reads...)
	const answers = " Answers with the schedule once its owner did it, and with 409 and the reason if it could not be done. Without an outcome in ten seconds it answers with 503; the command is acted on all the same, once it is on Kafka."
	register(api, identity.Operator, huma.Operation{
		OperationID: "apply-schedule", Method: http.MethodPut, Path: "/api/v1/schedules/{name}",
		Summary: "Have a schedule be as it is given", Tags: []string{"schedules"}, Errors: acts,
		Description:  "It is there from then on, or changed; what waits goes on to, if its ticks stay the same." + answers,
		MaxBodyBytes: maxBody, BodyReadTimeout: bodyTimeout,
	}, func(ctx context.Context, in *struct {
		ScheduleCommand
		Body Application
	},
	) (*struct{ Body Schedule }, error) {
		says := in.Body.message()
		if err := decide.CheckSchedule(says); err != nil {
			return nil, huma.Error422UnprocessableEntity(err.Error(), &huma.ErrorDetail{Message: err.Error(), Location: "body"})
		}
		c := in.Body.command()
		c.Command, c.Schedule = events.CommandApply, says
		return s.commandSchedule(ctx, &in.ScheduleCommand, &c)
	}, identity.Submitter)
	register(api, identity.Operator, huma.Operation{
		OperationID: "backfill-schedule", Method: http.MethodPost, Path: "/api/v1/schedules/{name}/backfill",
		Summary: "Have ticks of a schedule begin orders that have passed", Tags: []string{"schedules"}, Errors: acts,
		Description:  "Whatever became of them: they begin once more, in turn, under other ids." + answers,
		MaxBodyBytes: maxBody, BodyReadTimeout: bodyTimeout,
	}, func(ctx context.Context, in *struct {
		ScheduleCommand
		Body BackfillRequest
	},
	) (*struct{ Body Schedule }, error) {
		c := in.Body.command()
		c.Command, c.From, c.To, c.AtOnce = events.CommandBackfill, events.Time(in.Body.From), events.Time(in.Body.To), in.Body.AtOnce
		return s.commandSchedule(ctx, &in.ScheduleCommand, &c)
	})
	for _, a := range []struct{ name, method, path, summary, description string }{
		{events.CommandPause, http.MethodPost, "/pause", "Let a schedule begin no orders", "Orders that have begun go on."},
		{events.CommandResume, http.MethodPost, "/resume", "Let a paused schedule go on", "The ticks of the pause are skipped."},
		{events.CommandDelete, http.MethodDelete, "", "Have there be no schedule of a name any more", "Orders that have begun go on."},
	} {
		register(api, identity.Operator, huma.Operation{
			OperationID: a.name + "-schedule", Method: a.method, Path: "/api/v1/schedules/{name}" + a.path,
			Summary: a.summary, Description: a.description + answers, Tags: []string{"schedules"}, Errors: acts,
			MaxBodyBytes: maxBody, BodyReadTimeout: bodyTimeout,
		}, func(ctx context.Context, in *struct {
			ScheduleCommand
			Body *Act
		},
		) (*struct{ Body Schedule }, error) {
			var c events.Command
			if in.Body != nil {
				c = in.Body.command()
			}
			c.Command = a.name
			return s.commandSchedule(ctx, &in.ScheduleCommand, &c)
		})
	}
}

// ScheduleName is the name in the path.
type ScheduleName struct {
	Name string `path:"name" maxLength:"100" pattern:"^[a-z0-9]([a-z0-9._-]*[a-z0-9])?$"`
}

// ScheduleCommand is what all commands on schedules take besides a body.
type ScheduleCommand struct {
	ScheduleName
	Key  string `header:"Idempotency-Key" doc:"At most 256 bytes, as of commands on orders"`
	from string
}

// Resolve notes where the request came from.
func (in *ScheduleCommand) Resolve(c huma.Context) []error {
	in.from = hostOf(c)
	return nil
}

var _ huma.Resolver = (*ScheduleCommand)(nil)

// schedule is one that the caller may do to what takes the role. Of one that it may not see it says what it
// says of one that is not there.
func (s *Server) schedule(ctx context.Context, i *orchestrator.Instance, name string, role identity.Role) (*projections.Order, error) {
	o, _, err := i.Order(events.ScheduleID(name))
	c := callerOf(ctx)
	switch {
	case err != nil && !errors.Is(err, projections.ErrNotFound) && !errors.Is(err, projections.ErrForgotten):
		return nil, s.orderError(events.ScheduleID(name), "read schedule", err)
	case err != nil, o.Schedule == nil, o.Schedule.Says == nil, !c.May(role, o.Workflow) && !c.May(identity.Viewer, o.Workflow):
		return nil, noSchedule(name)
	case !c.May(role, o.Workflow):
		return nil, huma.Error403Forbidden(forbidden(c, role) + ", for workflow " + o.Workflow)
	}
	return o, nil
}

func noSchedule(name string) error {
	return huma.Error404NotFound(fmt.Sprintf("there is no schedule %q", name))
}

// commandSchedule has a command done to a schedule, which takes the role of an operator for its workflow, and
// for the one that it is to have that of a submitter, too.
func (s *Server) commandSchedule(ctx context.Context, in *ScheduleCommand, c *events.Command) (*struct{ Body Schedule }, error) {
	i, ctx, done, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	askingOf(ctx).target = in.Name
	caller, workflow := callerOf(ctx), ""
	o, err := s.schedule(ctx, i, in.Name, identity.Operator)
	var problem huma.StatusError
	switch {
	case err == nil:
		workflow = o.Workflow
	case c.Schedule == nil || !errors.As(err, &problem) || problem.GetStatus() != http.StatusNotFound:
		return nil, err
	}
	if says := c.Schedule; says != nil {
		if o, _, err := i.Order(events.ScheduleID(in.Name)); err == nil && o.Schedule != nil && o.Schedule.Says != nil && !caller.May(identity.Operator, o.Workflow) {
			return nil, huma.Error403Forbidden("a schedule of another workflow has the name; choose another")
		}
		workflow = says.Workflow
		for _, role := range []identity.Role{identity.Operator, identity.Submitter} {
			if !caller.May(role, workflow) {
				return nil, huma.Error403Forbidden(forbidden(caller, role) + ", for workflow " + workflow)
			}
		}
	}
	if c.By, err = author(ctx, c.By, in.from); err != nil {
		return nil, err
	}
	c.ID = in.Key
	id := events.ScheduleID(in.Name)
	if err := s.act(ctx, i, id, c, func() string { return workflow }); err != nil {
		return nil, err
	}
	if c.Command == events.CommandDelete {
		return &struct{ Body Schedule }{scheduleOf(o)}, nil
	}
	if o, err = s.schedule(ctx, i, in.Name, identity.Viewer); err != nil {
		return nil, err
	}
	return &struct{ Body Schedule }{scheduleOf(o)}, nil
}

func (s *Server) listSchedules(ctx context.Context, in *struct {
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	After string `query:"after" doc:"The next of the page before"`
	DecodeInput
},
) (*struct{ Body SchedulePage }, error) {
	i, ctx, done, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	after, err := base64.RawURLEncoding.DecodeString(in.After)
	if err != nil {
		return nil, errCursor
	}
	page, left, err := i.Schedules(ctx, after, in.Limit, visible(callerOf(ctx), identity.Viewer))
	if err != nil {
		return nil, s.listError("list schedules", err)
	}
	out := &struct{ Body SchedulePage }{SchedulePage{Schedules: make([]Schedule, len(page.Schedules)), LeftOut: LeftOut(left), Next: base64.RawURLEncoding.EncodeToString(page.Next)}}
	for n, o := range page.Schedules {
		out.Body.Schedules[n] = scheduleOf(o)
	}
	return out, nil
}

func (s *Server) getSchedule(ctx context.Context, in *struct {
	ScheduleName
	DecodeInput
},
) (*struct{ Body Schedule }, error) {
	i, ctx, done, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	o, err := s.schedule(ctx, i, in.Name, identity.Viewer)
	if err != nil {
		return nil, err
	}
	return &struct{ Body Schedule }{scheduleOf(o)}, nil
}

func (s *Server) previewSchedule(ctx context.Context, in *struct {
	ScheduleName
	After time.Time `query:"after" doc:"Left out, now"`
	Count int       `query:"count" minimum:"1" maximum:"1000" default:"10"`
},
) (*struct{ Body Ticks }, error) {
	i, ctx, done, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	o, err := s.schedule(ctx, i, in.Name, identity.Viewer)
	if err != nil {
		return nil, err
	}
	after := in.After
	if after.IsZero() {
		after = time.Now()
	}
	ticks, err := PreviewOf(in.Name, o.Schedule.Incarnation, o.Schedule.Says, after, in.Count)
	if err != nil {
		return nil, s.broken("preview schedule "+in.Name, err)
	}
	return &struct{ Body Ticks }{ticks}, nil
}
