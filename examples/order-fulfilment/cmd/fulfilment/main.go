// Command fulfilment runs the order example apart from Waybill, as deployments
// do: its services, or its agents.
//
//	fulfilment services
//	fulfilment agents
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/events"
	fulfilment "github.com/waybill-dev/waybill/examples/order-fulfilment"
	"github.com/waybill-dev/waybill/examples/order-fulfilment/services"
)

const usage = `usage:
  fulfilment services [--payment-addr :8081] [--carrier-addr :8082]
      the payment provider and the carrier; PUT /mode makes them fail
  fulfilment agents [--brokers 127.0.0.1:9092] [--namespace waybill] [--payment-url http://127.0.0.1:8081]
      the agents inventory and payment; for the agent shipping, run
      waybill agent http --config shipping.yaml
Flags can be set in the environment too: WAYBILL_BROKERS, WAYBILL_NAMESPACE, PAYMENT_URL.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stderr)
	stop()
	os.Exit(code)
}

// run returns the exit code: 0 done, 1 failed, 2 wrong usage.
func run(ctx context.Context, args []string, stderr io.Writer) int {
	log := slog.New(slog.NewTextHandler(stderr, nil))
	flags := flag.NewFlagSet("fulfilment", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprint(stderr, usage) }
	var serve func() error
	what := ""
	if len(args) > 0 {
		what = args[0]
	}
	switch what {
	case "services":
		payment := flags.String("payment-addr", ":8081", "")
		carrier := flags.String("carrier-addr", ":8082", "")
		serve = func() error { return serveServices(ctx, *payment, *carrier, log) }
	case "agents":
		brokers := flags.String("brokers", cmp.Or(os.Getenv("WAYBILL_BROKERS"), "127.0.0.1:9092"), "")
		namespace := flags.String("namespace", cmp.Or(os.Getenv("WAYBILL_NAMESPACE"), events.DefaultNamespace), "")
		payment := flags.String("payment-url", cmp.Or(os.Getenv("PAYMENT_URL"), "http://127.0.0.1:8081"), "")
		serve = func() error {
			return serveAgents(ctx, agents.Config{Brokers: strings.Split(*brokers, ","), Namespace: *namespace, Logger: log}, *payment)
		}
	default:
		flags.Usage()
		return 2
	}
	if err := flags.Parse(args[1:]); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil || flags.NArg() > 0 {
		flags.Usage()
		return 2
	}
	if err := serve(); err != nil {
		fmt.Fprintln(stderr, "fulfilment:", err)
		return 1
	}
	return 0
}

func serveServices(ctx context.Context, payment, carrier string, log *slog.Logger) error {
	config := services.Config{Observe: func(c services.Call) {
		log.Info(c.Did, "service", c.Service, "operation", c.Operation, "key", c.Key)
	}}
	return fulfilment.Together(ctx,
		func(ctx context.Context) error { return serveHTTP(ctx, payment, services.NewPayments(config), log) },
		func(ctx context.Context) error { return serveHTTP(ctx, carrier, services.NewCarrier(config), log) },
	)
}

func serveHTTP(ctx context.Context, addr string, handler http.Handler, log *slog.Logger) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("listen on %q: %w", addr, err)
	}
	log.Info("serving", "address", listener.Addr().String())
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// serveAgents runs the agents that are written in Go.
func serveAgents(ctx context.Context, config agents.Config, paymentURL string) error {
	inventory := func(ctx context.Context) error {
		config := config
		config.Agent = "inventory"
		return agents.Serve(ctx, config, fulfilment.Inventory)
	}
	payment := func(ctx context.Context) error {
		config := config
		config.Agent, config.Concurrency = "payment", 16
		config.Retry, config.Breaker = &agents.Retry{}, &agents.Breaker{}
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: config.Concurrency}}
		defer client.CloseIdleConnections()
		return agents.Serve(ctx, config, fulfilment.PaymentsAt(paymentURL, client))
	}
	return fulfilment.Together(ctx, inventory, payment)
}
