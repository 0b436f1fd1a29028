package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"strconv"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/projections"
)

// rolesOf is where an operation has the roles that it takes, in its metadata.
const rolesOf = "roles"

// register adds an operation, and says which role it takes, and which others also. One without a
// role is answered to nobody: see [Server.authorise].
func register[I, O any](api huma.API, role identity.Role, op huma.Operation, do func(context.Context, *I) (*O, error), also ...identity.Role) {
	roles := append([]identity.Role{role}, also...)
	op.Metadata = map[string]any{rolesOf: roles}
	op.Security = []map[string][]string{{"bearer": {}}, {"certificate": {}}}
	op.Errors = append(op.Errors, http.StatusUnauthorized, http.StatusForbidden)
	if op.MaxBodyBytes > 0 { // it has a body
		op.Errors = append(op.Errors, http.StatusBadRequest, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	}
	if op.Description != "" {
		op.Description += " "
	}
	op.Description += fmt.Sprintf("Where callers are asked who they are, it takes the role %s", role)
	for _, role := range also {
		op.Description += fmt.Sprintf(" and the role %s", role)
	}
	op.Description += "."
	huma.Register(api, op, do)
	if path := api.OpenAPI().Paths[op.Path]; path != nil {
		for _, added := range []*huma.Operation{path.Post, path.Put, path.Delete} {
			if added != nil && added.OperationID == op.OperationID && added.RequestBody != nil && added.RequestBody.Content["application/json"] != nil {
				strict(api.OpenAPI().Components.Schemas, added.RequestBody.Content["application/json"].Schema)
			}
		}
	}
}

// answers describes an answer besides that of an operation's default status.
func answers[Body any](api huma.API, description string) *huma.Response {
	schema := api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[Body](), true, "")
	return &huma.Response{Description: description, Content: map[string]*huma.MediaType{"application/json": {Schema: schema}}}
}

// asking is who asks, and for what: for the audit log.
type asking struct {
	caller  *identity.Caller
	address string
	target  string // what is acted on, where the path does not say it
	made    string // the order that is submitted
	token   string // of an issuer, with which it came; empty for none
	decode  bool   // payloads are asked for decoded
}

// who tells who asks from others: by the caller's name, or, where nobody is asked for one, by the address.
func (a *asking) who() (_ string, named bool) {
	if c := a.caller; c.Method != "" {
		return fmt.Sprintf("%q %q %q", c.Method, c.Issuer, c.Subject), true
	}
	return a.address, false
}

type askingKey struct{}

// askingOf is who asks. Where nobody looked, it is nobody.
func askingOf(ctx context.Context) *asking {
	if a, ok := ctx.Value(askingKey{}).(*asking); ok {
		return a
	}
	return &asking{caller: new(identity.Caller)}
}

func callerOf(ctx context.Context) *identity.Caller { return askingOf(ctx).caller }

// as answers a request as one of a caller.
func as(c *identity.Caller, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), askingKey{}, &asking{caller: c, address: identity.Address(r), token: identity.Token(r)})))
	})
}

// identified lets requests pass that say whose they are, before anything of theirs is
// read. Without an access file everybody is anybody.
func (s *Server) identified(next http.Handler) http.Handler {
	if s.access == nil {
		return as(identity.Anybody, next)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := s.access.Identify(r.Context(), r)
		address := identity.Address(r)
		switch {
		case err == nil:
			if s.logins.first(c.Method+" "+c.Subject+" "+address, time.Now()) {
				s.log.LogAttrs(r.Context(), slog.LevelInfo, "a caller came", slog.Group("audit", "what", "log-in", "who", c.Subject, "method", c.Method, "from", address))
			}
			as(c, next).ServeHTTP(w, r)
		case errors.Is(err, identity.ErrNobody):
			w.Header().Set("WWW-Authenticate", `Bearer realm="waybill"`)
			refuse(w, http.StatusUnauthorized, "who asks is not known: send a key or a token as Authorization: Bearer, or come with a client certificate")
		case errors.Is(err, identity.ErrAway):
			if !s.failures.Another(address, time.Now()) { // not a line for each that comes meanwhile
				s.log.Warn("whom a token names cannot be known now", "error", err)
			}
			w.Header().Set("Retry-After", behindRetry)
			refuse(w, http.StatusServiceUnavailable, "whom the token names cannot be known now, because its issuer does not say how it signs; try again in a moment. Keys and certificates are taken meanwhile")
		case s.failures.Another(address, time.Now()):
			w.Header().Set("Retry-After", "6")
			refuseAs(w, tooManyLogIns.uri(), http.StatusTooManyRequests, "too many log-ins from this address failed; try again later, with one that is right")
		default:
			s.log.LogAttrs(r.Context(), slog.LevelInfo, "a log-in failed", slog.Group("audit", "what", "log-in failed", "why", err.Error(), "from", address))
			w.Header().Set("WWW-Authenticate", `Bearer realm="waybill", error="invalid_token"`)
			refuse(w, http.StatusUnauthorized, fmt.Sprintf("what the request says of who asks is not taken: %v", err))
		}
	})
}

// logins are callers that came of late: each request of a program is not a line of its own.
type logins struct {
	mu  sync.Mutex
	all map[string]time.Time
}

// A caller is told of once in that time, and of so many at most that is kept.
const (
	loginEvery = 10 * time.Minute
	maxLogins  = 10_000
)

// first says whether who comes did not come of late.
func (l *logins) first(who string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at, came := l.all[who]; came && now.Sub(at) < loginEvery {
		return false
	}
	if l.all == nil || len(l.all) >= maxLogins {
		l.all = make(map[string]time.Time)
	}
	l.all[who] = now
	return true
}

// authorise answers operations to those who have the roles that each takes, for any
// workflow. For which ones is looked at where it is known which one is meant.
func (s *Server) authorise(api huma.API) func(huma.Context, func(huma.Context)) {
	return func(c huma.Context, next func(huma.Context)) {
		op, a := c.Operation(), askingOf(c.Context())
		roles, _ := op.Metadata[rolesOf].([]identity.Role)
		if op.Method != http.MethodGet {
			defer func() { // whatever becomes of it
				said := []string{"operation", op.OperationID, "on", cmp.Or(a.target, c.Param("id"), c.Param("partition"), a.made)}
				if a.made != "" && c.Param("id") != "" {
					said = append(said, "made", a.made)
				}
				s.audit(c.Context(), "act", append(said, "status", strconv.Itoa(c.Status()))...)
			}()
		}
		if role, lacks := lacking(a.caller, roles); lacks && op.Metadata[openTo] == nil {
			_ = huma.WriteErr(api, c, http.StatusForbidden, forbidden(a.caller, role)) // whoever hung up needs no answer
		} else {
			next(c)
		}
	}
}

// lacking is the first of the roles that a caller does not have for any workflow. What says none is
// for nobody.
func lacking(c *identity.Caller, roles []identity.Role) (role identity.Role, lacks bool) {
	for _, role := range roles {
		if !c.Somewhere(role) {
			return role, true
		}
	}
	return "", len(roles) == 0
}

func forbidden(c *identity.Caller, role identity.Role) string {
	return fmt.Sprintf("%s does not have the role %s that this takes; an administrator gives it in the access file", c.Subject, role)
}

// audit notes what a caller did, where callers are asked who they are. Nothing of an
// order but its id may be among the attributes.
func (s *Server) audit(ctx context.Context, what string, attributes ...string) {
	a := askingOf(ctx)
	if s.access == nil || a.caller.Method == "" {
		return
	}
	all := []any{"what", what, "who", a.caller.Subject, "method", a.caller.Method, "from", a.address}
	for n, text := range attributes {
		if n%2 == 1 {
			text = text[:min(len(text), 256)] // what callers write has no end
		}
		all = append(all, text)
	}
	s.log.LogAttrs(ctx, slog.LevelInfo, "a caller acted", slog.Group("audit", all...))
}

// visible says of which workflows' orders a caller has the role, nil if of all.
func visible(c *identity.Caller, role identity.Role) func(workflow string) bool {
	if c.Everywhere(role) {
		return nil
	}
	return func(workflow string) bool { return c.May(role, workflow) }
}

// reach says whether a caller may do to an order what takes the role, and of which
// workflow the order is, if its caller is limited to some. Of an order that it may not see
// it says what it says of one that is not there.
func (s *Server) reach(ctx context.Context, i *orchestrator.Instance, id string, role identity.Role) (workflow string, _ error) {
	c := callerOf(ctx)
	if c.Everywhere(role) && c.Everywhere(identity.PayloadReader) {
		return "", nil
	}
	o, _, err := i.Order(id)
	if errors.Is(err, projections.ErrForgotten) && !c.May(role, o.Workflow) && !c.May(identity.Viewer, o.Workflow) {
		err = projections.ErrNotFound
	}
	if err != nil {
		return "", s.orderError(id, "read order", err)
	}
	workflow = cmp.Or(o.Workflow, events.TurnOf(id))
	switch {
	case c.May(role, workflow):
		return workflow, nil
	case c.May(identity.Viewer, workflow):
		return "", huma.Error403Forbidden(forbidden(c, role) + ", for workflow " + workflow)
	}
	return "", s.orderError(id, "", projections.ErrNotFound)
}

// actor is how a caller is known who acts on what is of a workflow, nil where nobody is asked
// for a name: then the workflow is not asked for, either.
func actor(ctx context.Context, workflow func() string) *events.Actor {
	c := callerOf(ctx)
	if c.Method == "" {
		return nil
	}
	return &events.Actor{Method: c.Method, Issuer: c.Issuer, Roles: c.Roles(workflow()), At: time.Now()}
}

// author is whose an act is: the caller's, and nobody else's, where it has a name.
func author(ctx context.Context, claimed, from string) (string, error) {
	subject := callerOf(ctx).Subject
	switch {
	case subject == "":
		return cmp.Or(claimed, from), nil
	case claimed != "" && claimed != subject:
		return "", huma.Error403Forbidden(fmt.Sprintf("by is %q, and %s acts; leave by out", claimed, subject))
	}
	return subject, nil
}
