package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
)

// replay rebuilds projections from the journal, in a fresh place.
type replay struct {
	kafka  []kgo.Opt
	topics events.Topics
	admin  *kadm.Client
	store  *projections.Store
}

// replayResult is what a replay found.
type replayResult struct {
	Partitions      int32        `json:"partitions"`
	Events          int64        `json:"events"`
	Orders          int64        `json:"orders"`
	Seconds         float64      `json:"seconds"`
	EventsPerSecond float64      `json:"eventsPerSecond"`
	Verified        bool         `json:"verified"`
	Differences     int64        `json:"differences"`
	Differing       []difference `json:"differing"`
}

func newReplay() *cobra.Command {
	var kafka kafkaFlags
	var verify bool
	var order string
	cmd := &cobra.Command{
		Use:   "replay",
		Short: "Rebuild the state from the journal, and compare it with a running instance's",
		Long: `Rebuilds the projection of every partition from the journal, in a temporary
directory, up to the journal's end as of now.

With --verify it rebuilds up to where the running instance has folded each
partition, and compares the two key by key. It exits with 1 on any difference.

With --order it shows one order: its state record, its events, and for each event
the messages that followed from it.`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	kafka.add(flags)
	flags.BoolVar(&verify, "verify", false, "compare with the instance at --server")
	flags.Var(chooser{one: &order}, "order", "only this order, with the messages it sent")
	onlyByFlag(flags, "verify", "order")
	server := addServer(flags)
	out := addOutput(flags, "$.order.orderId")
	logging := addLog(flags, "warn")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if verify && order != "" {
			return usageError{errors.New("--verify and --order do not go together")}
		}
		r := &replay{}
		var err error
		if r.kafka, err = kafka.options(); err != nil {
			return err
		}
		var client *kgo.Client
		if r.topics, client, err = kafka.connect(cmd.Context()); err != nil {
			return err
		}
		defer client.Close()
		r.admin = kadm.NewClient(client)
		partitions, err := r.partitions(cmd.Context())
		if err != nil {
			return err
		}
		if order != "" {
			return r.printOrder(cmd, out, partitions, order)
		}
		result, err := r.all(cmd.Context(), partitions, verify, server, logging.logger(cmd))
		if err != nil {
			return err
		}
		if err := out.print(cmd, result, result.table); err != nil {
			return err
		}
		if result.Differences > 0 {
			return fmt.Errorf("%d keys differ: the instance's state is not what its journal says; keep a copy of its data directory, then remove the directory and start it again: it rebuilds its state", result.Differences)
		}
		return nil
	}
	return cmd
}

// partitions is how many the journal has.
func (r *replay) partitions(ctx context.Context) (int32, error) {
	metadata, err := r.admin.Metadata(ctx, r.topics.Journal)
	if err != nil {
		return 0, fmt.Errorf("look at the topics: %w", err)
	}
	n := int32(len(metadata.Topics[r.topics.Journal].Partitions))
	if n == 0 {
		return 0, fmt.Errorf("there is no topic %s; is --namespace right?", r.topics.Journal)
	}
	return n, nil
}

// all replays all partitions, one after the other.
func (r *replay) all(ctx context.Context, partitions int32, verify bool, server *serverFlags, log *slog.Logger) (_ *replayResult, err error) {
	dir, err := os.MkdirTemp("", "waybill-replay-")
	if err != nil {
		return nil, fmt.Errorf("make a place for the replay: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if r.store, err = projections.Open(dir, projections.Identity{Cluster: "replay", Namespace: r.topics.Namespace}, log); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.store.Close()) }()

	result := &replayResult{Partitions: partitions, Verified: verify, Differing: []difference{}}
	began := time.Now()
	if verify {
		err = r.verify(ctx, partitions, server, result)
	} else {
		err = r.rebuild(ctx, partitions, result)
	}
	result.Seconds = time.Since(began).Seconds()
	result.EventsPerSecond = float64(result.Events) / result.Seconds
	return result, err
}

// rebuild folds every partition up to the end that its journal has now.
func (r *replay) rebuild(ctx context.Context, partitions int32, result *replayResult) error {
	for p := range partitions {
		f, err := r.fold(ctx, p)
		if err != nil {
			return err
		}
		err = f.toEnd(ctx)
		f.close()
		if err != nil {
			return err
		}
		result.Events += f.events
		if err := r.store.Dump(p, func(projections.Head) error { return nil }, func(key, _ []byte) error {
			result.Orders += ordersIn(key)
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

func (r *replayResult) table(row func(...any)) {
	if len(r.Differing) > 0 {
		row("PARTITION", "KIND", "OF", "DIFFERENCE", "KEY")
		for _, d := range r.Differing {
			row(d.Partition, d.Kind, d.Of, d.What, d.Key)
		}
		if more := r.Differences - int64(len(r.Differing)); more > 0 {
			row(fmt.Sprintf("and %d more", more))
		}
		row()
	}
	row("Partitions", r.Partitions)
	row("Events", r.Events)
	row("Orders", r.Orders)
	row("Events/s", fmt.Sprintf("%.0f", r.EventsPerSecond))
	if r.Verified {
		row("Differences", r.Differences)
	}
}
