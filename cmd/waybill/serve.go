package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/tracing"
	"github.com/waybill-dev/waybill/internal/webhooks"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/orchestrator/lane"
)

// memoryLimit is where Go begins to collect more often than [main] asks for: with what is not of Go the process has less than
// 1 GiB.
const memoryLimit = 960 << 20

func newServe() *cobra.Command {
	var kafka kafkaFlags
	var web httpFlags
	var dataDir, id string
	var supervise, session, skew, raise, lag, patience time.Duration
	var within int64
	var asked agentFlags
	var callers callerFlags
	var signing namespaceKeyFlags
	var hooks webhookFlags
	standby := oneOf{string(orchestrator.StandbyAll), []string{string(orchestrator.StandbyAll), string(orchestrator.StandbyOwned)}}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run an orchestrator instance on a Kafka cluster",
		Long: `Runs one orchestrator instance. Any number may run on one namespace: they share
the partitions among each other, and take them over when one is gone.

The data directory holds nothing that Kafka does not have: it may be lost.`,
		Example: "  waybill topics create --brokers k1:9092\n  waybill serve --brokers k1:9092,k2:9092",
		Args:    cobra.NoArgs,
	}
	flags := cmd.Flags()
	kafka.add(flags)
	flags.StringVar(&dataDir, "data-dir", "./waybill-state", "where the state store lives")
	web.add(flags, "address of the HTTP server")
	flags.StringVar(&id, "id", "", "name of the instance, unique among those that run (default: the host's name and a random part that the data directory keeps)")
	flags.DurationVar(&supervise, "supervise-interval", 250*time.Millisecond, "how often to look for expired steps")
	flags.DurationVar(&skew, "clock-skew", 0, "how much clocks may differ: attempts expire that much after their complete-by")
	flags.DurationVar(&session, "session-timeout", 10*time.Second, "after how long of silence others take over")
	flags.DurationVar(&raise, "upgrade-after", 10*time.Minute, "how long every instance must have been of a newer release before what is new in it is written, and older ones cannot come back")
	flags.DurationVar(&lag, "max-lag", time.Minute, "how long a submission over HTTP may wait to be read before no more are taken for its partition; 0 means for ever")
	flags.DurationVar(&patience, "status-patience", 24*time.Hour, "how long a status message waits for a caller's own topic that takes none: then the namespace's status topic has it")
	flags.Var(&standby, "standby", "which partitions are kept up to date here: all, to answer for any order and take over fast, or only those that are owned")
	flags.StringVar(&web.advertise, "advertise-url", "", "address under which this instance's HTTP server, and no other's, is reached, such as http://waybill-1:8080: the others name it where they are asked for what it keeps (--standby owned)")
	flags.Int64Var(&within, "close", 10_000, "how many records behind the end of a partition's journal this instance may be at most to get the partition from another that serves it")
	asked.add(flags)
	callers.add(flags)
	signing.add(flags)
	hooks.add(flags)
	logging := addLog(flags, "info")

	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if within <= 0 {
			return usageError{errors.New("--close must be more than 0")}
		}
		if err := cmp.Or(asked.check(), callers.check()); err != nil {
			return usageError{err}
		}
		if supervise <= 0 || session <= 0 {
			return usageError{errors.New("--supervise-interval and --session-timeout must be more than 0")}
		}
		if patience <= 0 {
			return usageError{errors.New("--status-patience must be more than 0")}
		}
		if skew < 0 || raise < 0 || lag < 0 {
			return usageError{errors.New("--clock-skew, --upgrade-after and --max-lag cannot be negative")}
		}
		if os.Getenv("GOMEMLIMIT") == "" {
			debug.SetMemoryLimit(memoryLimit)
		}
		log := logging.logger(cmd)
		opts, err := kafka.options()
		if err != nil {
			return err
		}
		if id == "" {
			if id, err = keptID(dataDir); err != nil {
				return err
			}
		}
		metrics, meters := prometheus.NewRegistry(), lane.NewMeters()
		metrics.MustRegister(meters)
		keys, stop, err := signing.open(metrics, log)
		if err != nil {
			return err
		}
		defer stop()
		web.bulk = filepath.Join(dataDir, "bulk")
		traces, err := tracing.FromEnvironment(cmd.Context(), "waybill", programVersion().Version)
		if err != nil {
			return usageError{err}
		}
		pushed, err := pushMetrics(cmd.Context(), metrics, log)
		if err != nil {
			return err
		}
		defer pushed()
		receivers, err := hooks.read()
		if err != nil {
			return err
		}
		server, err := listenHTTP(cmd.Context(), web, metrics, log)
		if err != nil {
			return err
		}
		log.Info("the instance starts", "id", id, "namespace", kafka.namespace, "http", server.url)
		journal := traces.Journal(metrics, log)
		alerts := webhooks.NewSender(receivers, web.external, userAgent(), metrics, log)
		instance := start(cmd.Context(), func(ctx context.Context) error {
			return runInstance(ctx, orchestrator.Config{
				ID: id, Namespace: kafka.namespace, Kafka: append(opts, api.KafkaMetrics(metrics)),
				DataDir:        filepath.Join(dataDir, "state"),
				SuperviseEvery: supervise, ClockSkew: skew, SessionTimeout: session, RaiseAfter: raise, MaxLag: lag, StatusPatience: patience,
				Standby: orchestrator.Standby(standby.value), AdvertiseURL: web.advertise, Close: within, AgentRate: asked.rate, AgentBounds: asked.bounds, ReplyTopics: callers.topics, ClaimedApprovals: callers.claims, SignalKeep: callers.keep, Keys: keys, Meters: meters, Sampled: traces.Sampled(), Logger: log,
			}, server.Server, journal, alerts)
		})
		select {
		case <-instance.done:
		case <-server.done:
		case <-cmd.Context().Done():
			log.Info("the instance stops")
		}
		// Side by side: who waits for an answer must not keep the partitions, and
		// its request can end while these are handed over.
		instance.stop()
		return errors.Join(server.close(), instance.end())
	}
	return cmd
}

// keptID returns the name that the data directory keeps for its instance, and
// makes one up for a new directory.
func keptID(dataDir string) (string, error) {
	file := filepath.Join(dataDir, "id")
	b, err := os.ReadFile(file)
	if id := strings.TrimSpace(string(b)); id != "" {
		return id, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read the instance's name: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "waybill"
	}
	id := host + "-" + uuid.NewString()[:8]
	if err := os.MkdirAll(dataDir, 0o750); err != nil {
		return "", fmt.Errorf("create the data directory: %w", err)
	}
	if err := os.WriteFile(file, []byte(id+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("keep the instance's name: %w", err)
	}
	return id, nil
}
