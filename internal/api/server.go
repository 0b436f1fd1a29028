package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/codec"
	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/orchestrator"
)

// maxBody is the largest body of a request: a submission around an input of
// [events.MaxValue].
const maxBody = events.MaxValue + 100<<10

// bodyTimeout is how long reading a body may take. It must be longer than
// anything that is done with one: when it passes, the server takes the caller
// for gone and ends the request, though the body was read long before.
const bodyTimeout = 40 * time.Second

// Server is the HTTP handler. Make it with [New].
type Server struct {
	log      *slog.Logger
	handler  http.Handler
	admin    http.Handler // see [Server.Admin]
	base     string
	access   *identity.Access // nil where nobody is asked for a name
	failures *identity.Failures
	warnings warnings
	logins   logins
	streams  chan struct{} // one place for each that may be sent at a time
	shares   *shares       // the places of requests
	bulk     *bulkActs
	// bulkReads has how each command is read that a bulk act can have many orders do.
	bulkReads map[string]func(body []byte) (events.Command, []error)
	schemas   huma.Registry // of bodies and answers
	followers followers
	patience  time.Duration // with who reads a stream
	followFor time.Duration // see [followFor]
	feedMu    sync.Mutex
	feed      *listFeed // nil while nobody follows a list
	activity  activity

	codec         *codec.Codec // nil without one
	decoding      *codecPlaces
	codecPatience time.Duration

	// mu is held for moments only: nobody who asks for health waits for a request.
	mu  sync.Mutex
	now *used // nil while there is no instance
	why error // why there is none
}

// used is an instance for as long as requests may use it.
type used struct {
	*orchestrator.Instance
	alive context.Context //nolint:containedctx // the instance's life, which is longer than a call and ends its requests
	end   context.CancelFunc
	by    sync.WaitGroup // the requests
}

// Config is what a [Server] needs to know.
type Config struct {
	// Version is that of the program, for OpenAPI.
	Version string
	// Metrics is where /metrics gathers from and the server's own metrics go.
	Metrics *prometheus.Registry
	// Hosts are the names that requests may name as their Host, whatever the port;
	// none means any.
	Hosts []string
	// Access says who may what; nil asks nobody, and everybody may all.
	Access *identity.Access
	// Base is the path under which a proxy has the server, such as /waybill; empty for none.
	Base string
	// AdminApart has probes and metrics answered by [Server.Admin] alone.
	AdminApart bool
	// Console, if it is there, makes the pages for people, which ask the server that it is given; see
	// [Inside].
	Console func(server http.Handler) http.Handler
	// Bulk is the directory where records of bulk acts survive the process; empty keeps them in memory.
	Bulk string
	// Requests is how many are answered at a time, probes aside; 0 is any number.
	Requests int
	// Codec decodes payloads for who asks for that; nil has them be as they are stored.
	Codec *codec.Codec
	// Logger takes what happens; nil discards it.
	Logger *slog.Logger
}

// New returns a server without an instance.
func New(cfg Config) *Server {
	s := &Server{log: cfg.Logger, base: cfg.Base, access: cfg.Access, failures: identity.NewFailures(), streams: make(chan struct{}, maxStreams), patience: followPatience, followFor: followFor, shares: newShares(cfg.Requests), why: errors.New("the instance starts"), codec: cfg.Codec, decoding: newCodecPlaces(cfg.Requests), codecPatience: codecPatience}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.bulk, s.bulkReads = openBulk(cfg.Bulk, s.log), make(map[string]func([]byte) (events.Command, []error))
	if cfg.Metrics == nil {
		cfg.Metrics = prometheus.NewRegistry()
	}
	mux := http.NewServeMux()
	streams := http.NewServeMux()
	spec := s.operations(mux, streams, cfg.Version)
	mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/openapi+json")
		_, _ = w.Write(spec()) // whoever hung up needs no answer
	})
	s.health(mux)
	s.metrics(mux, cfg.Metrics)
	mux.HandleFunc("/", nothingThere(mux))

	// No browser may be led to act on an instance by a page of somebody else.
	guard := http.NewCrossOriginProtection()
	guard.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusForbidden, "requests that change something are not taken from pages of other origins")
	}))
	guarded := named(cfg.Hosts, s.identified(readFirst(cfg.Requests, atOnce(s.shares, guard.Handler(asStream(streams, mux))))))
	if cfg.Console != nil {
		guarded = pages(guarded, readable(named(cfg.Hosts, readFirst(cfg.Requests, atOnce(newShares(cfg.Requests), guard.Handler(cfg.Console(guarded)))))))
	}
	if s.admin = secure(administration(mux, guarded, cfg.Access != nil)); cfg.AdminApart {
		s.handler = secure(notHere(guarded))
	} else {
		s.handler = secure(public(mux, guarded))
	}
	s.handler = under(cfg.Base, s.handler)
	return s
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Admin answers probes and metrics to whoever reaches it, and gives dumps of projections
// to admins.
func (s *Server) Admin() http.Handler { return s.admin }

// Attach makes the server answer for an instance.
func (s *Server) Attach(i *orchestrator.Instance) {
	u := &used{Instance: i}
	u.alive, u.end = context.WithCancel(context.Background())
	u.by.Go(func() { s.measure(u) })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now, s.why = u, nil
}

// Detach ends the requests that use the instance, and waits for them. Until
// the next [Server.Attach] requests are answered with why. It must be called
// before the instance is closed.
func (s *Server) Detach(why error) {
	s.mu.Lock()
	u := s.now
	s.now, s.why = nil, why
	s.mu.Unlock()
	if u != nil {
		u.end()
		u.by.Wait()
	}
}

// borrow returns the instance, which stays until the caller calls u.by.Done, or
// why there is none.
func (s *Server) borrow() (*used, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now == nil {
		return nil, s.why
	}
	s.now.by.Add(1)
	return s.now, nil
}

// use returns the instance, and a context that ends with it. The caller calls
// done when it needs it no more. There is no instance if the error is not nil.
func (s *Server) use(ctx context.Context) (_ *orchestrator.Instance, _ context.Context, done func(), _ error) {
	u, why := s.borrow()
	if why != nil {
		return nil, nil, nil, retryUnknown(fmt.Sprintf("not ready: %v; try again in a moment", why))
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(u.alive, cancel)
	return u.Instance, ctx, func() {
		stop()
		cancel()
		u.by.Done()
	}, nil
}

// operations registers what OpenAPI describes, and returns the description, which takes longer to write than all else that a
// server begins with: it is written for the first who asks.
func (s *Server) operations(mux, streams *http.ServeMux, version string) (spec func() []byte) {
	api := s.described(mux, version)
	s.schemas = api.OpenAPI().Components.Schemas
	s.orders(api)
	s.commands(api)
	s.migrations(api)
	s.bulks(api)
	s.signals(api)
	s.schedules(api)
	s.limits(api)
	s.keys(api)
	s.reruns(api)
	s.workflows(api)
	s.alerts(api)
	s.approvals(api)
	s.versions(api)
	s.deadLetters(api)
	s.agents(api)
	s.activities(api)
	s.partitions(api)
	s.upgrades(api)
	s.caller(api)
	s.followsLists(s.described(streams, version))
	s.schemas.Map()["ErrorModel"].Properties["owner"] = &huma.Schema{Type: huma.TypeString, Format: "uri", Description: "Of a problem of the type elsewhere: the address of the instance that answers, if it advertises one; left out else"}
	if s.access == nil { // nobody is asked
		for _, path := range api.OpenAPI().Paths {
			for _, op := range []*huma.Operation{path.Get, path.Post, path.Put, path.Delete} {
				if op != nil {
					op.Security = nil
				}
			}
		}
	}
	return sync.OnceValue(func() []byte {
		spec, err := json.Marshal(api.OpenAPI())
		if err != nil {
			panic(fmt.Sprintf("describe the API: %v", err)) // it follows from our own types
		}
		return spec
	})
}

// described has operations be answered on mux.
func (s *Server) described(mux *http.ServeMux, version string) huma.API {
	config := huma.DefaultConfig("Waybill", version)
	config.Info.Description = "Durable multi-step orders on Kafka."
	config.OpenAPIPath, config.DocsPath, config.SchemasPath = "", "", "" // /openapi.json is ours; see New
	config.CreateHooks = nil                                             // they would add $schema to every answer
	if s.base != "" {
		config.Servers = []*huma.Server{{URL: s.base}}
	}
	config.AllowAdditionalPropertiesByDefault = true // answers may have more in the next release; see [strict]
	config.RejectUnknownQueryParameters = true
	config.Formats = map[string]huma.Format{"application/json": format, "json": format}
	config.Transformers = []huma.Transformer{s.mask, s.decode}
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"bearer":      {Type: "http", Scheme: "bearer", Description: "A key that `waybill key new` made, or a token of the OpenID Connect issuer that the access file names"},
		"certificate": {Type: "mutualTLS", Description: "A client certificate that the access file names"},
	}
	api := humago.New(mux, config)
	api.UseMiddleware(s.authorise(api), filled(api))
	return api
}

// format reads and writes JSON as the messages on Kafka are read and written: what is the same is written in the same way each time.
var format = huma.Format{
	Marshal: func(w io.Writer, v any) error {
		text, err := jsonv2.Marshal(v, shallow, jsonv2.Deterministic(true), jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
		if err != nil {
			return err
		}
		// Whoever hung up needs no answer; huma would set another status, which net/http complains of.
		_, _ = w.Write(append(text, '\n'))
		return nil
	},
	Unmarshal: func(data []byte, v any) error {
		err := jsonv2.Unmarshal(data, v, jsontext.AllowDuplicateNames(true))
		if loose, checked := v.(*any); checked {
			rename(*loose, uncut)
		}
		return err
	},
}

// shallow has a sentence stand for a payload that is nested too deeply: with what an answer has around it, it could be neither written nor read. The
// rest of what it stands in, such as an event, is written.
var shallow = jsonv2.WithMarshalers(jsonv2.MarshalToFunc(func(e *jsontext.Encoder, value json.RawMessage) error {
	if events.Depth(value) <= codec.Deepest {
		return errors.ErrUnsupported // it is written as ever
	}
	return writeShallow(e, jsontext.NewDecoder(bytes.NewReader(value), jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true)), 2)
}))

// writeShallow writes the next value that is read. Where it is nested too deeply a sentence stands for it, or, where it is an object,
// for those of its members of which that is true, and so on for so many levels.
func writeShallow(e *jsontext.Encoder, from *jsontext.Decoder, levels int) error {
	if levels == 0 || from.PeekKind() != jsontext.KindBeginObject {
		value, err := from.ReadValue()
		if err != nil {
			return err
		}
		if events.Depth(value) > codec.Deepest {
			return e.WriteToken(jsontext.String(tooDeep))
		}
		return e.WriteValue(value)
	}
	token := func() error {
		t, err := from.ReadToken()
		if err != nil {
			return err
		}
		return e.WriteToken(t)
	}
	err := token()
	for err == nil && from.PeekKind() != jsontext.KindEndObject {
		if err = token(); err == nil { // a name
			err = writeShallow(e, from, levels-1)
		}
	}
	if err != nil {
		return err
	}
	return token()
}

// nothingThere tells a path that is not there from a method that it does not
// take.
func nothingThere(mux *http.ServeMux) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var allowed []string
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
			other := r.Clone(r.Context())
			other.Method = method
			if _, pattern := mux.Handler(other); pattern != "/" {
				allowed = append(allowed, method)
			}
		}
		if len(allowed) > 0 {
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			refuse(w, http.StatusMethodNotAllowed, fmt.Sprintf("%s is not possible here; use %s", r.Method, strings.Join(allowed, " or ")))
			return
		}
		refuse(w, http.StatusNotFound, fmt.Sprintf("there is nothing at %s; /openapi.json lists what there is", r.URL.EscapedPath()))
	}
}
