package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/projections"
)

// Keyed is what there is under a key of the business.
type Keyed struct {
	Homes []KeyHome `json:"homes" nullable:"false" doc:"Of signals by their names, and of turns by their workflows: 100 at most"`
	More  bool      `json:"more,omitzero" doc:"There is more than was looked at"`
	LeftOut
}

// KeyHome is the record of the signals of a name under a key, or of the turns of orders of a workflow that have it.
type KeyHome struct {
	ID       string    `json:"id" doc:"Its history is that of an order of this id"`
	Signal   *string   `json:"signal" doc:"The name of the signals; null of turns"`
	Workflow *string   `json:"workflow" doc:"The workflow whose orders have turns; null of signals"`
	Held     bool      `json:"held" doc:"Deciding on it panicked: release it as an order"`
	Waiting  int       `json:"waiting" doc:"How many steps listen, or how many orders wait for their turn"`
	Waits    []KeyWait `json:"waits" nullable:"false" doc:"Which, the first 100, and of turns before them who has it"`
	Keeping  int       `json:"keeping" doc:"How many signals are kept, or on their way to who listens"`
	Kept     []KeyKept `json:"kept" nullable:"false" doc:"Which, the first 100, without what they say"`
}

// KeyWait is who waits under a key.
type KeyWait struct {
	Order string  `json:"order"`
	Step  *string `json:"step" doc:"Which listens; null of turns"`
	Since *Time   `json:"since" doc:"Since when it waits for its turn, or has it; null of steps that listen"`
	Has   bool    `json:"has" doc:"It has the turn, or a signal is on its way to it"`
}

// KeyKept is a signal that is kept under a key.
type KeyKept struct {
	ID    string  `json:"id" doc:"That of the signal, or, where it has none, the place of its record"`
	Until *Time   `json:"until" doc:"Until when it is kept"`
	From  *string `json:"from" doc:"The ce_source with which it came, if it had one"`
	Given bool    `json:"given" doc:"It is on its way to a step, or about to start an order"`
}

// mostUnder is how many of a list under a key are told.
const mostUnder = 100

func keyHomeOf(h *projections.Home) KeyHome {
	k := KeyHome{ID: h.ID, Held: h.Hold != nil, Waits: []KeyWait{}, Kept: []KeyKept{}}
	if c := h.Correlation; c != nil {
		k.Signal, k.Waiting = text(c.Signal), len(c.Waits)
		for _, w := range c.Waits[:min(len(c.Waits), mostUnder)] {
			k.Waits = append(k.Waits, KeyWait{Order: w.Order, Step: text(w.Step), Has: w.Given > 0})
		}
		for n := range h.Signals {
			s := &h.Signals[n]
			if !s.Kept() {
				continue
			}
			if k.Keeping++; k.Keeping <= mostUnder {
				k.Kept = append(k.Kept, KeyKept{s.ID, at(s.Until), text(s.Under.AnsweredBy), s.Under.Given > 0})
			}
		}
		return k
	}
	k.Workflow, k.Waiting = text(events.TurnOf(h.ID)), h.Places.Waiting
	for _, s := range h.Seats {
		k.Waits = append(k.Waits, KeyWait{Order: s.Order, Since: at(s.Since), Has: s.Taken})
	}
	return k
}

type keyInput struct {
	Key string `query:"key" required:"true" minLength:"1" maxLength:"200" doc:"The key: 200 bytes at most"`
}

func (s *Server) keys(api huma.API) {
	register(api, identity.Viewer, huma.Operation{
		OperationID: "get-key", Method: http.MethodGet, Path: "/api/v1/keys",
		Summary: "Get what there is under a key of the business", Tags: []string{"orders"},
		Description: "Who listens for signals under it, which are kept, and whose turn it is among the orders of a workflow that have it. Signals are of no workflow: they are for who has the roles for all.",
		Errors:      []int{http.StatusUnprocessableEntity, http.StatusServiceUnavailable},
	}, s.getKey, identity.PayloadReader) // a key is a payload: nobody else is told whether a guess is right
}

func (s *Server) getKey(ctx context.Context, in *keyInput) (*struct{ Body Keyed }, error) {
	i, ctx, done, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := events.CheckSignalKey(in.Key); err != nil {
		return nil, huma.Error422UnprocessableEntity(err.Error(), &huma.ErrorDetail{Message: err.Error(), Location: "query.key"})
	}
	caller := callerOf(ctx)
	page, left, err := i.Homes(ctx, in.Key, func(id string) bool {
		flow := events.TurnOf(id) // empty of signals
		return caller.May(identity.Viewer, flow) && caller.May(identity.PayloadReader, flow)
	})
	if err != nil {
		return nil, s.listError("find what is under a key", err)
	}
	out := &struct{ Body Keyed }{Keyed{Homes: make([]KeyHome, len(page.Homes)), More: page.More, LeftOut: LeftOut(left)}}
	for n := range page.Homes {
		out.Body.Homes[n] = keyHomeOf(&page.Homes[n])
	}
	return out, nil
}
