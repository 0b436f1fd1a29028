package main

import (
	"context"
	"crypto/rand"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/agents/httpagent"
	"github.com/waybill-dev/waybill/events"
	fulfilment "github.com/waybill-dev/waybill/examples/order-fulfilment"
	"github.com/waybill-dev/waybill/examples/order-fulfilment/services"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/projections"
)

//go:embed workflows/*.yaml
var workflows embed.FS

// place is where stories run.
type place struct {
	brokers           []string // none: a Waybill of the story's own
	server, namespace string
	verbose           bool
	stderr            io.Writer
}

func (p *place) log() *slog.Logger {
	if p.verbose {
		return slog.New(slog.NewTextHandler(p.stderr, nil))
	}
	return slog.New(slog.DiscardHandler)
}

// stage is a Waybill, the services, and the agents between them.
type stage struct {
	story   string
	guest   string // in front of names, on a Waybill that others use too; else empty
	suffix  string // behind order ids, for the same reason
	orders  int
	out     io.Writer
	clear   func() error
	brokers []string
	client  *api.Client

	payments *services.Payments
	carrier  *services.Carrier

	mu    sync.Mutex
	calls []services.Call
	notes []note // what the agents' circuit breakers did
}

// note is something that is in nobody's journal.
type note struct {
	at   time.Time
	text string
}

// breaker is that of the payment agent, retry what it repeats by itself.
var (
	breaker = agents.Breaker{Failures: 20, Window: 20, Delay: time.Second}
	retry   = agents.Retry{Attempts: 3, Backoff: 50 * time.Millisecond}
)

// concurrency is how many calls the payment agent makes at a time.
const concurrency = 8

// set starts all that a story needs. The context that it returns ends with ctx,
// or when one of the agents does.
func set(ctx context.Context, name string, where *place, out io.Writer) (_ context.Context, _ *stage, err error) {
	s := &stage{story: name, out: out, brokers: where.brokers}
	var undo []func() error
	s.clear = func() error {
		var failed error
		for _, f := range slices.Backward(undo) {
			failed = errors.Join(failed, f())
		}
		return failed
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.clear())
		}
	}()
	ctx, cancel := context.WithCancelCause(ctx)
	undo = append(undo, func() error { cancel(nil); return nil })

	namespace, server := where.namespace, where.server
	if where.brokers == nil {
		own, err := startWaybill(ctx, where.log())
		if err != nil {
			return nil, nil, err
		}
		undo = append(undo, own.stop)
		s.brokers, namespace, server = []string{own.kafka.Addr()}, events.DefaultNamespace, own.url
	} else {
		s.guest, s.suffix = "stories-", "-"+strings.ToLower(rand.Text()[:6])
	}
	if s.client, err = api.NewClient(server); err != nil {
		return nil, nil, err
	}
	undo = append(undo, func() error { s.client.Close(); return nil })
	if err := until(ctx, "the Waybill at "+server+" is ready", func() (bool, error) {
		err := s.client.Ready(ctx)
		if errors.Is(err, api.ErrAway) {
			return false, err
		}
		return err == nil, nil
	}); err != nil {
		return nil, nil, err
	}
	if err := s.register(ctx); err != nil {
		return nil, nil, err
	}

	config := services.Config{Observe: s.observe}
	s.payments, s.carrier = services.NewPayments(config), services.NewCarrier(config)
	payments, err := listen(ctx, s.payments)
	if err != nil {
		return nil, nil, err
	}
	undo = append(undo, payments.stop)
	carrier, err := listen(ctx, s.carrier)
	if err != nil {
		return nil, nil, err
	}
	undo = append(undo, carrier.stop)

	serving, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() {
		err := s.serve(serving, namespace, payments.url, carrier.url, where.log())
		if err != nil {
			cancel(err) // the story would wait for ever
		}
		served <- err
	}()
	undo = append(undo, func() error { stop(); return <-served })
	return ctx, s, nil
}

// serve runs the agents until ctx ends.
func (s *stage) serve(ctx context.Context, namespace, payments, carrier string, log *slog.Logger) error {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: concurrency}}
	defer client.CloseIdleConnections()
	shipping, err := httpagent.Read("shipping.yaml", []byte(s.own(string(fulfilment.ShippingConfig))), func(name string) (string, bool) {
		return carrier, name == "CARRIER_URL"
	})
	if err != nil {
		return err
	}
	config := agents.Config{Brokers: s.brokers, Namespace: namespace, Logger: log}
	return fulfilment.Together(ctx,
		func(ctx context.Context) error {
			config := config
			config.Agent = s.guest + "inventory"
			return agents.Serve(ctx, config, fulfilment.Inventory)
		},
		func(ctx context.Context) error {
			config := config
			config.Agent, config.Concurrency = s.guest+"payment", concurrency
			config.Retry, config.Breaker = &retry, &breaker
			config.Logger = slog.New(&eavesdropper{log.Handler(), s})
			return agents.Serve(ctx, config, fulfilment.PaymentsAt(payments, client))
		},
		// The carrier is called by a file, not by a program.
		func(ctx context.Context) error { return shipping.Serve(ctx, config, "waybill-stories") },
	)
}

var names = regexp.MustCompile(`(?m)^(workflow: |agent: |.* agent: )`)

// own gives a file names of the stories' own where others use the Waybill too:
// `waybill dev`, for one, serves the agents of order-fulfilment by itself.
func (s *stage) own(file string) string { return names.ReplaceAllString(file, "${1}"+s.guest) }

func (s *stage) register(ctx context.Context) error {
	if _, err := s.client.Register(ctx, "workflow.yaml", []byte(s.own(string(fulfilment.Workflow)))); err != nil {
		return err
	}
	files, err := workflows.ReadDir("workflows")
	if err != nil {
		return err
	}
	for _, f := range files {
		file, err := workflows.ReadFile("workflows/" + f.Name())
		if err != nil {
			return err
		}
		if _, err := s.client.Register(ctx, f.Name(), []byte(s.own(string(file)))); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) observe(c services.Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, c)
}

func (s *stage) note(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notes = append(s.notes, note{time.Now(), text})
}

// eavesdropper picks up what an agent logs of its circuit breaker.
type eavesdropper struct {
	slog.Handler
	stage *stage
}

// Enabled lets everything through that the breaker says.
func (e *eavesdropper) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo
}

// Handle takes a note of a record about the breaker.
func (e *eavesdropper) Handle(ctx context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "circuit breaker") {
		e.stage.note(r.Message)
	}
	if e.Handler.Enabled(ctx, r.Level) {
		return e.Handler.Handle(ctx, r)
	}
	return nil
}

// WithAttrs keeps the ear of the loggers made of this one.
func (e *eavesdropper) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &eavesdropper{e.Handler.WithAttrs(attrs), e.stage}
}

// WithGroup does too.
func (e *eavesdropper) WithGroup(name string) slog.Handler {
	return &eavesdropper{e.Handler.WithGroup(name), e.stage}
}

// switchable is a service with a switch.
type switchable interface{ SetMode(services.Mode) }

func (s *stage) turn(service switchable, mode services.Mode) {
	name := "carrier"
	if service == switchable(s.payments) {
		name = "payment service"
	}
	s.note("the " + name + " is " + string(mode) + " from here on")
	service.SetMode(mode)
}

func (s *stage) say(format string, args ...any) { fmt.Fprintf(s.out, "\n"+format+"\n", args...) }

// told is an order and what is known of it.
type told struct {
	id string
	*api.Order
	events []events.Event
}

func (o *told) step(name string) *api.Step {
	for i := range o.Steps {
		if o.Steps[i].Name == name {
			return &o.Steps[i]
		}
	}
	return &api.Step{}
}

func (o *told) count(t events.Type, step string) int {
	n := 0
	for i := range o.events {
		if e := &o.events[i]; e.Type == t && e.Step == step {
			n++
		}
	}
	return n
}

// order submits an order and waits until it is in a state.
func (s *stage) order(ctx context.Context, workflow, input string, end projections.State) (*told, error) {
	o, err := s.submit(ctx, workflow, input)
	if err != nil {
		return nil, err
	}
	return o, s.await(ctx, o, end)
}

func (s *stage) submit(ctx context.Context, workflow, input string) (*told, error) {
	s.orders++
	id := fmt.Sprintf("%s-%d%s", s.story, s.orders, s.suffix)
	_, err := s.client.Submit(ctx, &api.Submission{ID: id, Workflow: s.guest + workflow, Version: 1, Input: json.RawMessage(input)})
	return &told{id: id}, err
}

// await waits until an order is in a state, and looks up its history. It fails
// if the order ends in another one.
func (s *stage) await(ctx context.Context, o *told, end projections.State) error {
	err := until(ctx, fmt.Sprintf("order %s is %s", o.id, end), func() (bool, error) {
		record, err := s.client.Order(ctx, o.id)
		if problem := (*api.Problem)(nil); errors.As(err, &problem) && problem.Status == http.StatusNotFound {
			return false, nil // submitted, and not yet accepted
		}
		if err != nil {
			return false, err
		}
		o.Order = record
		if state := record.ProcessState; state != end && state.Final() {
			return false, fmt.Errorf("order %s is %s and not %s", o.id, state, end)
		}
		return record.ProcessState == end, nil
	})
	if err != nil {
		return err
	}
	history, err := s.client.History(ctx, o.id)
	if err != nil {
		return err
	}
	o.events = nil
	for _, e := range history.Events {
		event, err := events.Decode[events.Event](e)
		if err != nil {
			return err
		}
		o.events = append(o.events, event)
	}
	return nil
}

// operate sends an operator's command, as `waybill order` does.
func (s *stage) operate(ctx context.Context, o *told, command, note string) error {
	_, err := s.client.Command(ctx, o.id, &events.Command{Command: command, ID: rand.Text(), By: "operator", Note: note})
	return err
}

// alert looks up the open alert of an order, as `waybill alerts` does.
func (s *stage) alert(ctx context.Context, o *told) (*api.Alert, error) {
	page, err := s.client.Alerts(ctx, 1000, "")
	if err != nil {
		return nil, err
	}
	for i := range page.Alerts {
		if page.Alerts[i].Order == o.id {
			return &page.Alerts[i], nil
		}
	}
	return nil, fmt.Errorf("order %s is in Error without an alert", o.id)
}

// expect is what the services must have done for an order.
type expect struct{ charges, refunds, parcels int }

func (s *stage) check(o *told, want expect) error {
	var got expect
	for _, c := range s.payments.Ledger() {
		if c.Order == o.id {
			got.charges++
			if c.Refunded {
				got.refunds++
			}
		}
	}
	for _, p := range s.carrier.Parcels() {
		if p.Order == o.id {
			got.parcels++
		}
	}
	return must(got == want, "the services did %+v for order %s, and should have done %+v", got, o.id, want)
}

// until asks again and again.
func until(ctx context.Context, what string, done func() (bool, error)) error {
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		ok, err := done()
		if ok || err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w", what, context.Cause(ctx))
		}
	}
}
