package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/events"
	fulfilment "github.com/waybill-dev/waybill/examples/order-fulfilment"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/broker"
	"github.com/waybill-dev/waybill/internal/tracing"
	"github.com/waybill-dev/waybill/internal/webhooks"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/orchestrator/lane"
)

// dev is everything in one process.
type dev struct {
	dataDir, kafkaAddr string
	web                httpFlags
	namespace          string
	partitions         int32
	partitionsGiven    bool
	fsync              bool
	asked              agentFlags
	callers            callerFlags
	signing            namespaceKeyFlags
	hooks              webhookFlags
	workflows          string

	out io.Writer
	log *slog.Logger
}

func newDev() *cobra.Command {
	d := &dev{}
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run everything in one process, broker included",
		Long: `Runs a Kafka-protocol broker with its data on disk, an orchestrator, the HTTP
server, and example agents for the order-fulfilment workflow. Ctrl-C stops it;
started again, it goes on where it was.

With --workflows DIR the workflow files of a directory (.yaml, .yml, .json) are
registered, and again when they change. A file that changed takes the next
version by itself, and is not touched; what is wrong with one is printed. Files
of tests, and of agents, are passed over.

The broker is for development: one process, one copy of the data.`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&d.dataDir, "data-dir", "./waybill-data", "where the broker's data and the state store live")
	flags.StringVar(&d.kafkaAddr, "kafka-addr", "127.0.0.1:9092", "address of the broker; port 0 takes a free one")
	d.web.add(flags, "address of the HTTP server; port 0 takes a free one")
	flags.Int32Var(&d.partitions, "partitions", 4, "partitions of the topics, fixed once the data directory has some")
	flags.BoolVar(&d.fsync, "fsync", false, "flush to the disk before acknowledging, to survive a power loss")
	flags.StringVar(&d.workflows, "workflows", "", "a `directory` whose workflow files are registered, and again when they change")
	addNamespace(flags, &d.namespace)
	d.asked.add(flags)
	d.callers.add(flags)
	d.signing.add(flags)
	d.hooks.add(flags)
	logging := addLog(flags, "warn")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if d.partitions < 1 {
			return usageError{errors.New("--partitions must be 1 or more")}
		}
		if info, err := os.Stat(d.workflows); d.workflows != "" && (err != nil || !info.IsDir()) {
			return usageError{fmt.Errorf("--workflows: there is no directory %s", d.workflows)}
		}
		if err := cmp.Or(d.asked.check(), d.callers.check()); err != nil {
			return usageError{err}
		}
		if d.web.access == "" { // nobody is asked for a name
			d.callers.claims = true
		}
		d.partitionsGiven = cmd.Flags().Changed("partitions")
		d.out, d.log = cmd.OutOrStdout(), logging.logger(cmd)
		return d.run(cmd.Context())
	}
	return cmd
}

// run starts the broker, the instance, HTTP and the agents, and stops them in
// the reverse order of who needs whom: HTTP, agents, instance, broker.
func (d *dev) run(ctx context.Context) (err error) {
	topics, err := events.NewTopics(d.namespace)
	if err != nil {
		return usageError{err}
	}
	kafka, err := broker.Start(broker.Config{Dir: filepath.Join(d.dataDir, "broker"), Addr: d.kafkaAddr, Fsync: d.fsync, Logger: d.log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, kafka.Close()) }()
	opts := []kgo.Opt{kgo.SeedBrokers(kafka.Addr()), kgo.Dialer(kafka.Dial), kgo.ClientID("waybill")}
	if err := d.createTopics(ctx, opts, &topics); err != nil {
		return err
	}

	metrics, meters := prometheus.NewRegistry(), lane.NewMeters()
	metrics.MustRegister(meters)
	keys, stop, err := d.signing.open(metrics, d.log)
	if err != nil {
		return err
	}
	defer stop()
	d.web.bulk = filepath.Join(d.dataDir, "bulk")
	traces, err := tracing.FromEnvironment(ctx, "waybill", programVersion().Version)
	if err != nil {
		return usageError{err}
	}
	pushed, err := pushMetrics(ctx, metrics, d.log)
	if err != nil {
		return err
	}
	defer pushed()
	hooks, err := d.hooks.read()
	if err != nil {
		return err
	}
	server, err := listenHTTP(ctx, d.web, metrics, d.log)
	if err != nil {
		return err
	}
	journal := traces.Journal(metrics, d.log)
	alerts := webhooks.NewSender(hooks, d.web.external, userAgent(), metrics, d.log)
	instance := start(ctx, func(ctx context.Context) error {
		return runInstance(ctx, orchestrator.Config{
			ID: "dev", Namespace: d.namespace, Kafka: append(opts, api.KafkaMetrics(metrics)),
			DataDir:        filepath.Join(d.dataDir, "state"),
			SessionTimeout: 3 * time.Second, // nobody else is there to take over
			AgentRate:      d.asked.rate, AgentBounds: d.asked.bounds, ReplyTopics: d.callers.topics, ClaimedApprovals: d.callers.claims, SignalKeep: d.callers.keep, Keys: keys, Meters: meters, Sampled: traces.Sampled(), Logger: d.log,
		}, server.Server, journal, alerts)
	})
	defer func() { err = errors.Join(err, instance.end()) }()
	own := newFolder(d.workflows, server.Server, d.out)
	register := start(ctx, func(ctx context.Context) error {
		err := registerExample(ctx, server.Server)
		if err == nil && d.workflows != "" {
			own.look(ctx)
		}
		return err
	})
	select {
	case <-register.done:
	case <-instance.done:
	case <-server.done:
	case <-kafka.Failed():
	case <-ctx.Done():
	}
	if err := register.end(); err != nil {
		if errors.Is(err, context.Canceled) {
			err = nil // stopped early; or something ended, which says why itself
		}
		return errors.Join(err, server.close())
	}

	provider, end := traces.Provider(d.log)
	defer end()
	examples := start(ctx, func(ctx context.Context) error {
		return fulfilment.Serve(ctx, agents.Config{Brokers: []string{kafka.Addr()}, Namespace: d.namespace, TracerProvider: provider, Logger: d.log})
	})
	d.greet(kafka.Addr(), server.url, &topics)
	if d.workflows != "" {
		watching := start(ctx, own.watch)
		defer func() { err = errors.Join(err, watching.end()) }()
	}
	select {
	case <-examples.done:
	case <-instance.done:
	case <-server.done:
	case <-kafka.Failed():
	case <-ctx.Done():
		fmt.Fprintln(d.out, "Stopping.")
	}
	instance.stop() // side by side: those who wait for an order are answered
	return errors.Join(server.close(), examples.end())
}

// createTopics creates the topics. Data that is there keeps its number of
// partitions, unless another one was asked for.
func (d *dev) createTopics(ctx context.Context, opts []kgo.Opt, topics *events.Topics) error {
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return fmt.Errorf("connect to the broker: %w", err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	metadata, err := admin.Metadata(ctx, topics.Journal)
	if err != nil {
		return fmt.Errorf("look at the topics: %w", err)
	}
	if have := int32(len(metadata.Topics[topics.Journal].Partitions)); have > 0 && have != d.partitions {
		if d.partitionsGiven {
			return fmt.Errorf("the data in %s has %d partitions, which can never change; leave --partitions out, or choose another --data-dir", d.dataDir, have)
		}
		d.partitions = have
	}
	_, err = orchestrator.CreateTopics(ctx, admin, topics, d.partitions, -1)
	return err
}

// registerExample waits until the instance is ready and registers the example
// workflow. A state store that turns out to be damaged ends the instance meanwhile,
// and another begins.
func registerExample(ctx context.Context, server *api.Server) error {
	for {
		if server.Ready() == nil {
			err := server.Register(ctx, "order-fulfilment/workflow.yaml", fulfilment.Workflow)
			if problem, ok := errors.AsType[huma.StatusError](err); !ok || problem.GetStatus() != http.StatusServiceUnavailable {
				return err
			}
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (d *dev) greet(kafka, server string, topics *events.Topics) {
	to := ""
	if server != "http://127.0.0.1:8080" {
		to = " --server " + server
	}
	fmt.Fprintf(d.out, `Waybill is ready.

  Console %s/   (in a browser: orders, what needs somebody, and what to do)
  Kafka   %s   (namespace %s, %d partitions)
  HTTP    %s   (/openapi.json, /metrics)
  Data    %s

Try, in another terminal:

  waybill submit order-fulfilment --id o-1 --input '{"customer":"c-7","total":42}' --wait%s
  waybill order history o-1%s
  waybill submit order-fulfilment --input '{"card":"declined"}' --wait%s
  waybill alerts%s

The same without Waybill's tools:

  echo 'o-2:{"workflow":"order-fulfilment"}' | kcat -P -b %s -t %s -K: -X partitioner=murmur2_random
  kcat -C -b %s -t %s -f '%%k %%s\n'

Ctrl-C stops it. Started again, it goes on where it was.
`, server, kafka, topics.Namespace, d.partitions, server, d.dataDir,
		to, to, to, to, kafka, topics.Orders, kafka, topics.Journal)
}
