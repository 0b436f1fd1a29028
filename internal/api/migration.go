package api

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/orchestrator/decide"
	"github.com/waybill-dev/waybill/projections"
)

// Migrating is the body of migrate.
type Migrating struct {
	Act
	ToVersion int               `json:"toVersion,omitempty" required:"true" minimum:"1" doc:"The version of its workflow as one of which the order goes on"`
	Map       map[string]string `json:"map,omitempty" nullable:"true" doc:"What steps are called in that version, by the names that they have now. The others keep their names"`
}

func (m *Migrating) command() events.Command {
	c := m.Act.command()
	c.ToVersion, c.Map = m.ToVersion, m.Map
	return c
}

// Migration is what would become of an order that migrates.
type Migration struct {
	OrderID   string     `json:"orderId"`
	Workflow  string     `json:"workflow"`
	Version   int        `json:"version" doc:"The order's"`
	ToVersion int        `json:"toVersion"`
	Forbids   []Obstacle `json:"forbids" nullable:"false" doc:"Why it cannot, each reason on its own; empty if it can"`
	// What follows is as far as nothing forbids it.
	Steps    []MigratedStep `json:"steps" nullable:"false" doc:"Steps of which something changes, first those of the other version in its order, then those that are dropped"`
	Changed  []string       `json:"changed" nullable:"false" doc:"Steps that go on, or have not begun, and are defined otherwise in the other version, by which they go from then on, as that calls them"`
	Deadline *Time          `json:"deadline" doc:"The order's from then on; null for none"`
}

// Obstacle is a reason why an order cannot migrate.
type Obstacle struct {
	Step   *string `json:"step" doc:"As the order calls it now; null where it is about the order"`
	Reason string  `json:"reason"`
}

// MigratedStep is a step of which something changes.
type MigratedStep struct {
	Step   string  `json:"step"`
	Was    *string `json:"was" doc:"What it is called now, where that is something else"`
	Change string  `json:"change" enum:"renamed,renewed,new,dropped" doc:"A step that is renewed failed, and begins anew under a new idempotency key, since it is asked for something else. Nobody was asked for one that is dropped"`
}

func (s *Server) migrations(api huma.API) {
	register(api, identity.Viewer, huma.Operation{
		OperationID: "get-migration", Method: http.MethodGet, Path: "/api/v1/orders/{id}/migration",
		Summary: "See what forbids that an order migrates, and what becomes of it", Tags: []string{"operators"},
		Description: "Nothing happens. Who owns the order decides anew when it is to migrate, by the same rules.",
		Errors:      []int{http.StatusNotFound, http.StatusMisdirectedRequest, http.StatusUnprocessableEntity, http.StatusServiceUnavailable},
	}, s.migration)
}

type migrationInput struct {
	ID  string   `path:"id" doc:"The order id, escaped for a path: a/b is a%2Fb"`
	To  int      `query:"to" required:"true" minimum:"1" doc:"The version"`
	Map []string `query:"map,explode" doc:"OLD=NEW: what a step is called in that version; may be given more than once"`
}

func (s *Server) migration(ctx context.Context, in *migrationInput) (*struct{ Body Migration }, error) {
	i, ctx, done, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if _, err := s.reach(ctx, i, in.ID, identity.Viewer); err != nil {
		return nil, err
	}
	names := make(map[string]string, len(in.Map))
	for _, pair := range in.Map {
		old, name, ok := strings.Cut(pair, "=")
		if !ok || names[old] != "" {
			return nil, huma.Error422UnprocessableEntity("map is OLD=NEW, once for each step", &huma.ErrorDetail{Message: "it is OLD=NEW, once for each step", Location: "query.map", Value: pair})
		}
		names[old] = name
	}
	o, m, err := i.Migration(in.ID, in.To, names)
	if err != nil {
		return nil, s.orderError(in.ID, "read order", err)
	}
	return &struct{ Body Migration }{migrationOf(o, m)}, nil
}

func migrationOf(o *projections.Order, m *decide.Migration) Migration {
	out := Migration{OrderID: o.ID, Workflow: o.Workflow, Version: m.From, ToVersion: m.To, Forbids: []Obstacle{}, Steps: []MigratedStep{}, Changed: []string{}}
	for _, why := range m.Forbids {
		out.Forbids = append(out.Forbids, Obstacle{text(why.Step), why.Reason})
	}
	if len(m.Forbids) > 0 {
		return out
	}
	out.Deadline = at(m.Deadline)
	out.Changed = append(out.Changed, m.Changed...)
	for _, name := range slices.Sorted(maps.Keys(m.Renamed)) {
		out.Steps = append(out.Steps, MigratedStep{name, text(m.Renamed[name]), "renamed"})
	}
	for change, names := range map[string][]string{"renewed": m.Renewed, "new": m.New, "dropped": m.Dropped} {
		for _, name := range names {
			out.Steps = append(out.Steps, MigratedStep{Step: name, Change: change})
		}
	}
	place := func(s MigratedStep) int {
		if n := slices.Index(m.Steps, s.Step); n >= 0 && s.Change != "dropped" {
			return n
		}
		return len(m.Steps)
	}
	slices.SortStableFunc(out.Steps, func(a, b MigratedStep) int {
		return cmp.Or(cmp.Compare(place(a), place(b)), cmp.Compare(a.Step, b.Step), cmp.Compare(a.Change, b.Change))
	})
	return out
}
