package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/agents/agentmetrics"
	"github.com/waybill-dev/waybill/agents/httpagent"
	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/tracing"
	"github.com/waybill-dev/waybill/internal/words"
)

func newAgent() *cobra.Command {
	return group("agent", "Run a ready agent", newAgentHTTP())
}

func newAgentHTTP() *cobra.Command {
	var kafka kafkaFlags
	var file, admin string
	var check bool
	cmd := &cobra.Command{
		Use:   "http",
		Short: "Turn requests into HTTP calls",
		Long: `Serves the operations that a file describes, each by one HTTP call: its method,
URL, headers and body, and which answers may heal. docs/http-agent.md says all of
what a file may hold.

Any number of instances may run with the same file: they share the work.

Here --config names that file. Values for flags come from flags, the environment,
and the file that WAYBILL_CONFIG names.`,
		Example: "  waybill agent http --config payment.yaml --check\n  waybill agent http --config payment.yaml --brokers k1:9092,k2:9092",
		Args:    cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&file, "config", "", "YAML file that describes the agent (required)")
	flags.BoolVar(&check, "check", false, "only check the file")
	onlyByFlag(flags, "check")
	flags.StringVar(&admin, "admin-addr", "", "address at which probes and metrics are answered, such as 127.0.0.1:8081; without it nowhere")
	kafka.add(flags)
	logging := addLog(flags, "info")

	cmd.PersistentPreRunE = func(cmd *cobra.Command, args []string) error {
		// The flag hides the one that the root has under this name, so that one is
		// empty while the root configures the other flags.
		given := file
		file = ""
		err := cmd.Root().PersistentPreRunE(cmd, args)
		file = given
		return err
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if file == "" {
			return usageError{errors.New("no file; name the one that describes the agent with --config")}
		}
		source, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("--config: %w", err)
		}
		agent, err := httpagent.Read(file, source, os.LookupEnv)
		if err != nil {
			return err
		}
		if check {
			fmt.Fprintf(cmd.OutOrStdout(), "%s describes agent %s:\n", file, agent.Name)
			for _, name := range agent.Operations() {
				fmt.Fprintf(cmd.OutOrStdout(), "  %s  %s\n", words.Clean(name), words.Clean(agent.Call(name)))
			}
			return nil
		}
		opts, err := kafka.options()
		if err != nil {
			return err
		}
		if _, err := events.NewTopics(kafka.namespace); err != nil {
			return usageError{err}
		}
		opts = append(opts, kgo.ClientID("waybill-agent-"+agent.Name))
		log, metrics := logging.logger(cmd), prometheus.NewRegistry()
		observer, err := agentmetrics.New(metrics, agent.Name)
		if err != nil {
			return err
		}
		metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewBuildInfoCollector())
		pushed, err := pushMetrics(cmd.Context(), metrics, log)
		if err != nil {
			return err
		}
		defer pushed()
		if admin != "" {
			stop, err := answerProbes(cmd.Context(), admin, observer, metrics, log)
			if err != nil {
				return err
			}
			defer stop()
		}
		traces, err := tracing.FromEnvironment(cmd.Context(), agent.Name, programVersion().Version)
		if err != nil {
			return usageError{err}
		}
		provider, end := traces.Provider(log)
		defer end()
		return agent.Serve(cmd.Context(), agents.Config{
			Brokers: kafka.brokers, Namespace: kafka.namespace, KafkaOptions: append(opts, api.KafkaMetrics(metrics)), TracerProvider: provider, Logger: log, Observer: observer,
		}, userAgent())
	}
	return cmd
}

// answerProbes answers probes and metrics of an agent, until stop is called.
func answerProbes(ctx context.Context, addr string, observer *agentmetrics.Observer, metrics *prometheus.Registry, log *slog.Logger) (stop func(), _ error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for probes and metrics on %q, see --admin-addr: %w", addr, err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") }) // whoever hung up needs no answer
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		switch state := observer.State(); state {
		case agents.Serving, agents.Trying:
			_, _ = fmt.Fprintln(w, state)
		case agents.Resting:
			api.NotReady(w, "the agent is resting: its circuit breaker is open, since its service fails")
		default:
			api.NotReady(w, fmt.Sprintf("the agent is %s: its topic is not there, or Kafka is not", state))
		}
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{Registry: metrics}))
	server := patient(mux, log)
	log.Info("probes and metrics are answered", "http", "http://"+reachable(ln.Addr().String()))
	serving := start(ctx, func(context.Context) error { return server.Serve(ln) })
	return func() {
		_ = server.Close() // who asks now gets no answer
		_ = serving.end()  // it says that it was closed
	}, nil
}

// userAgent is how the program names itself to HTTP servers.
func userAgent() string {
	version := strings.Trim(programVersion().Version, "()")
	if version == "" {
		version = "unknown"
	}
	return "waybill/" + version
}
