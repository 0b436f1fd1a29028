// Package bench measures a whole Waybill: applications that submit,
// orchestrators, three agents, and Kafka, for orders of remote steps.
//
// Everything but a broker that is given runs in this process, so that the
// figures are those of the machine and not of one part.
package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/broker"
	"github.com/waybill-dev/waybill/internal/tracing"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/orchestrator/cluster"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

// Options say what to measure.
type Options struct {
	Shape

	// Instances of the orchestrator that share the partitions; 1 if 0. All are in this
	// process.
	Instances int
	// Pipe, if not 0, measures so many writers in place of orchestrators, which share the
	// partitions, write the same records in transactions, and decide nothing. Orders have
	// to complete one step after the other then.
	Pipe int
	// Waiting is how many orders wait all the time for an agent that is not there.
	Waiting int
	// Rebuild measures at the end how long an instance takes to own all again: with its state, and
	// when it has lost that.
	Rebuild bool
	// HTTP has orders submitted to the HTTP API of the first instance, each by a caller of its own.
	HTTP bool
	// Brokers to run against; none starts the embedded broker.
	Brokers []string
	// Kafka are the options of all clients, besides the brokers.
	Kafka []kgo.Opt
	// Fsync makes the embedded broker flush every write to the disk.
	Fsync bool
	// Partitions of the namespace that is made for the run, and removed again.
	Partitions int32
	// InFlight is how many orders are under way at a time.
	InFlight int
	// WarmUp and Duration of the measurement under load.
	WarmUp, Duration time.Duration
	// Orders, if not 0, are measured from the first to the last instead.
	Orders int
	// Rates, if any, are measured instead of InFlight and Single: orders a second that
	// arrive whatever becomes of those before, each for Duration after WarmUp.
	Rates []float64
	// KafkaContainer, if any, names the container on this machine in which the Kafka
	// of Brokers runs: what it uses is read of Docker.
	KafkaContainer string
	// Standby is that of the instances; empty is theirs.
	Standby orchestrator.Standby
	// Idle, if not 0, is for how long it is measured before what doing nothing costs.
	Idle time.Duration
	// Consoles is how many pages of the console are open while Rates are measured, kept current as a browser does it.
	Consoles int
	// Single is how many orders are measured one at a time.
	Single int
	// Overload, if not 0, is for how long twice as much is submitted then as is
	// carried.
	Overload time.Duration
	// MaxLag, if not 0, has that submitted as the HTTP API does it: what finds its
	// lane so far behind is turned away.
	MaxLag time.Duration
	// Traces, if not nil, has traces made of the orders.
	Traces *tracing.Setup
	Logger *slog.Logger
	// Version is Waybill's, for the report.
	Version string

	namespace string // drawn if empty
}

// Report is what was measured. But for those of Rungs, latencies are from the
// submission's produce call, or its request over HTTP, to the caller's reading of the completed status message.
type Report struct {
	// Version is Waybill's, if somebody said it, and Began when the measurement did, in RFC 3339.
	Version    string     `json:"version,omitzero"`
	Began      string     `json:"began,omitzero"`
	Conditions Conditions `json:"conditions,omitzero"`

	Broker     string `json:"broker"`
	Partitions int32  `json:"partitions"`
	Instances  int    `json:"instances"`
	// Standby is what was asked for; empty is that all instances follow all partitions.
	Standby  string `json:"standby,omitzero"`
	Pipe     int    `json:"pipe,omitzero"`
	Shape    Shape  `json:"shape"`
	Waiting  int    `json:"waiting,omitzero"`
	Consoles int    `json:"consoles,omitzero"`
	HTTP     bool   `json:"http,omitzero"`
	// Owned is how many seconds after they were begun the instances had shared all partitions
	// and were ready.
	Owned float64 `json:"owned_after_s,omitzero"`
	// Connections to Kafka that this process had when all had been measured: the instances',
	// the agents' and the caller's.
	Connections     int64   `json:"connections,omitzero"`
	Idle            *Idle   `json:"idle,omitempty"`
	InFlight        int     `json:"in_flight,omitzero"`
	Seconds         float64 `json:"seconds,omitzero"`
	Orders          int     `json:"orders,omitzero"`
	OrdersPerSecond float64 `json:"orders_per_s,omitzero"`
	P50             float64 `json:"p50_ms,omitzero"`
	P99             float64 `json:"p99_ms,omitzero"`
	SingleP50       float64 `json:"single_p50_ms,omitzero"`
	SingleP99       float64 `json:"single_p99_ms,omitzero"`
	RecordsPerOrder float64 `json:"records_per_order,omitzero"`
	BytesPerOrder   float64 `json:"bytes_per_order,omitzero"`
	// WireBytesPerOrder is what of BytesPerOrder was left after compression.
	WireBytesPerOrder float64 `json:"wire_bytes_per_order,omitzero"`
	// RequestsAnOrder are produce requests, and TransactionsAnOrder those that were ended, by commit or not.
	RequestsAnOrder     float64 `json:"produce_requests_per_order,omitzero"`
	TransactionsAnOrder float64 `json:"transactions_per_order,omitzero"`
	// CPU is the processor time of this process over the time that passed: 1
	// is one core.
	CPU         float64 `json:"cpu_cores,omitzero"`
	CPUPerOrder float64 `json:"cpu_us_per_order,omitzero"`
	// Memory is the process's resident set at the end, in MiB; 0 where the system
	// is not Linux.
	Memory   float64 `json:"memory_mib,omitzero"`
	Machine  Machine `json:"machine,omitzero"` // where the system is Linux
	Kafka    *Usage  `json:"kafka,omitempty"`
	Overload *Excess `json:"overload,omitempty"`
	// Restarted is after how many seconds an instance that had its state, and had been stopped in order,
	// owned all partitions again and was ready. Rebuilt is the same of one that had none.
	Restarted float64  `json:"restarted_after_s,omitzero"`
	Rebuilt   *Rebuilt `json:"rebuilt,omitempty"`
	// Rungs are in place of all that, one for each rate that was measured. LeftOut are the
	// rates that were not, because too much of what had arrived before did not end.
	Rungs   []Rung    `json:"rungs,omitempty"`
	LeftOut []float64 `json:"rates_left_out,omitempty"`
}

// Conditions are those of a measurement that say nothing of what was measured: runs of which they differ are
// compared, but not silently.
type Conditions struct {
	System     string `json:"system"` // as linux/amd64
	Processors int    `json:"processors"`
	Go         string `json:"go"`
	WarmUp     string `json:"warm_up"`
	Duration   string `json:"duration"`
	Single     int    `json:"single,omitzero"`
	Rates      string `json:"rates,omitzero"` // all, one after the other
	MaxLag     string `json:"max_lag,omitzero"`
	Overload   string `json:"overload,omitzero"`
	Traced     bool   `json:"traced,omitzero"`
}

func conditions(o *Options) Conditions {
	c := Conditions{
		System: runtime.GOOS + "/" + runtime.GOARCH, Processors: runtime.GOMAXPROCS(0), Go: runtime.Version(),
		WarmUp: o.WarmUp.String(), Duration: o.Duration.String(), Traced: o.Traces != nil,
	}
	if c.Single = o.Single; len(o.Rates) > 0 {
		c.Single, c.Rates = 0, fmt.Sprint(o.Rates)
	}
	if o.MaxLag > 0 {
		c.MaxLag = o.MaxLag.String()
	}
	if o.Overload > 0 {
		c.Overload = o.Overload.String()
	}
	return c
}

// Rebuilt is how long it took an instance without any state until it owned all partitions
// and was ready, in a process that did nothing else.
type Rebuilt struct {
	Seconds float64 `json:"seconds"`
	// Records of the journal, with the markers of transactions.
	Records          int64   `json:"records"`
	RecordsPerSecond float64 `json:"records_per_s"`
}

// absent is a workflow whose orders wait for an agent that is not there.
const absent = "workflow: absent\nversion: 1\nsteps: [{name: only, agent: nobody, timeout: 1h}]\n"

// Run measures. It leaves nothing behind.
func Run(ctx context.Context, o Options) (_ *Report, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	o.Steps, o.Instances, o.Logger = cmp.Or(o.Steps, 3), cmp.Or(o.Instances, 1), cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	var container *container
	if o.KafkaContainer != "" {
		if container, err = newContainer(o.KafkaContainer); err != nil {
			return nil, err
		}
		defer container.close()
		if _, err := container.read(ctx); err != nil {
			return nil, err
		}
	}
	dir, err := os.MkdirTemp("", "waybill-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a temporary directory: %w", err)
	}
	defer os.RemoveAll(dir)

	var inside []kgo.Opt // by which instances reach a broker in their process
	report := &Report{
		Version: o.Version, Began: time.Now().UTC().Format(time.RFC3339), Conditions: conditions(&o),
		Broker: "Kafka", Partitions: o.Partitions, Instances: o.Instances, Pipe: o.Pipe, Shape: o.Shape, Waiting: o.Waiting, Consoles: o.Consoles, InFlight: o.InFlight,
	}
	if o.Standby != orchestrator.StandbyAll {
		report.Standby = string(o.Standby)
	}
	if len(o.Brokers) == 0 {
		report.Broker = "embedded"
		if o.Fsync {
			report.Broker += ", fsync"
		}
		b, err := broker.Start(broker.Config{Dir: filepath.Join(dir, "kafka"), Addr: "127.0.0.1:0", Fsync: o.Fsync, Logger: o.Logger})
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, b.Close()) }()
		o.Brokers, inside = []string{b.Addr()}, []kgo.Opt{kgo.Dialer(b.Dial)}
	}
	written := &writes{}
	kafka := slices.Concat(o.Kafka, []kgo.Opt{kgo.SeedBrokers(o.Brokers...), kgo.WithHooks(written)})
	within := slices.Concat(kafka, inside)
	namespace := cmp.Or(o.namespace, "bench-"+uuid.NewString()[:8])
	topics, err := events.NewTopics(namespace)
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(kafka...)
	if err != nil {
		return nil, fmt.Errorf("connect to Kafka: %w", err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	if _, err := orchestrator.CreateTopics(ctx, admin, &topics, o.Partitions, -1); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, remove(admin, namespace)) }()

	var instances []*orchestrator.Instance
	var running sync.WaitGroup
	failed := make(chan error, o.Instances+len(tasks)+o.Consoles+2)
	start := func(what string, run func() error) {
		running.Go(func() {
			if err := run(); err != nil {
				failed <- fmt.Errorf("%s: %w", what, err)
				cancel()
			}
		})
	}
	defer func() {
		cancel()
		running.Wait()
		close(failed)
		for e := range failed {
			err = errors.Join(err, e)
		}
		for _, i := range instances {
			err = errors.Join(err, i.Close())
		}
	}()
	serving, stop := context.WithCancel(ctx)
	defer stop()
	var served sync.WaitGroup
	instance := func(ctx context.Context, id string) error {
		i, err := orchestrator.New(ctx, orchestrator.Config{
			ID: id, Namespace: namespace, Kafka: within, DataDir: filepath.Join(dir, id), Standby: o.Standby, MaxLag: o.MaxLag, Sampled: o.Traces.Sampled(), Logger: o.Logger,
		})
		if err != nil {
			return err
		}
		instances = append(instances, i)
		served.Add(1)
		start("orchestrator "+id, func() error {
			defer served.Done()
			making, made := context.WithCancel(context.WithoutCancel(ctx))
			traces := make(chan error, 1)
			go func() { traces <- o.Traces.Journal(prometheus.NewRegistry(), o.Logger).Run(making, i) }()
			err := i.Run(ctx)
			made()
			return errors.Join(err, <-traces)
		})
		return nil
	}
	began := time.Now()
	for n := range o.Instances {
		if err := instance(serving, fmt.Sprintf("bench-%d", n+1)); err != nil {
			return nil, err
		}
	}
	if err := shared(ctx, instances, o.Partitions); err != nil {
		return nil, err
	}
	report.Owned = time.Since(began).Seconds()
	timeout := "60s"
	switch {
	case o.Overload > 0:
		timeout = impatient
	case o.Pipe > 0:
		timeout = "24h" // what is asked for says until when, and is asked for again and again
	}
	if err := register(ctx, instances[0], o.workflow(timeout)); err != nil {
		return nil, err
	}
	var asked atomic.Int64
	do := agents.Do(o.work(&asked))
	for _, task := range tasks[:min(len(tasks), o.Steps)] {
		start("agent "+task[0], func() error {
			return agents.Serve(ctx, agents.Config{
				Agent: task[0], Brokers: o.Brokers, Namespace: namespace, Concurrency: 256, KafkaOptions: kafka, Logger: o.Logger,
			}, agents.Operations{task[1]: do, "undo": do})
		})
	}

	l, err := newLoad(kafka, &topics, o.Partitions, &o.Shape)
	if err != nil {
		return nil, err
	}
	defer l.close()
	l.kafka = container
	if o.Pipe > 0 {
		if err := l.start(ctx, 1); err != nil {
			return nil, err
		}
		stop()
		served.Wait()
		k := cluster.New(client, &topics, within, func(string) (int, bool) { return events.MaxBatch, false })
		defer k.Close()
		first := measured + "1"
		s, err := follow(ctx, k, &topics, &o.Shape, first, instances[0].Partition(first))
		if err != nil {
			return nil, err
		}
		for n := range min(o.Pipe, int(o.Partitions)) {
			var mine []int32
			for p := int32(n); p < o.Partitions; p += int32(o.Pipe) {
				mine = append(mine, p)
			}
			start(fmt.Sprintf("pipe %d", n+1), func() error { return (&pipe{s, k, &topics}).run(ctx, mine) })
		}
	}
	if o.Waiting > 0 {
		if err := register(ctx, instances[0], absent); err != nil {
			return nil, err
		}
		if err := l.pile(ctx, o.Waiting); err != nil {
			return nil, err
		}
	}
	if o.Idle > 0 {
		if report.Idle, err = l.idle(ctx, &o, written); err != nil {
			return nil, err
		}
	}
	if o.HTTP {
		if l.api, err = serve(ctx, instances[0], o.InFlight, o.Logger, start); err != nil {
			return nil, err
		}
		report.HTTP = true
	}
	if len(o.Rates) > 0 {
		report.InFlight = 0
		climber := &ladder{load: l, Options: &o, written: written, admin: admin}
		if o.Consoles > 0 {
			if climber.consoles, err = openConsoles(ctx, instances[0], o.Consoles, o.Logger, start); err != nil {
				return nil, err
			}
		}
		if err := l.start(ctx, 200); err != nil {
			return nil, err
		}
		report.Rungs, report.LeftOut, err = climb(o.Rates, func(rate float64) (*Rung, error) { return climber.rung(ctx, rate) })
		report.Connections = written.connections.Load()
		return report, err
	}
	if err := l.measure(ctx, &o, report, written); err != nil {
		return nil, err
	}
	report.Connections = written.connections.Load()
	if o.Rebuild {
		if err := l.rest(ctx); err != nil {
			return nil, err
		}
		if l.api != nil {
			l.api.close()
		}
		// again has an instance own all, after the others have stopped.
		again := func(id string) (time.Duration, error) {
			stop()
			served.Wait()
			for _, i := range instances {
				if err := i.Close(); err != nil {
					return 0, err
				}
			}
			instances = nil
			began := time.Now()
			serving, stop = context.WithCancel(ctx) //nolint:fatcontext // of one instance after the other
			if err := instance(serving, id); err != nil {
				return 0, err
			}
			err := shared(ctx, instances, o.Partitions)
			return time.Since(began), err
		}
		took, err := again("bench-1")
		if err != nil {
			return nil, err
		}
		report.Restarted = took.Seconds()
		if took, err = again("bench-without"); err != nil {
			return nil, err
		}
		if report.Rebuilt, err = rebuilt(ctx, admin, &topics, took); err != nil {
			return nil, err
		}
	}
	if o.Overload > 0 {
		x := &excess{load: l, Options: &o, instance: instances[0], asked: &asked}
		if report.Overload, err = x.measure(ctx, report.OrdersPerSecond); err != nil {
			return nil, err
		}
	}
	return report, nil
}

// register registers the workflow of a file.
func register(ctx context.Context, i *orchestrator.Instance, file string) error {
	flow, err := workflow.Parse("bench.yaml", []byte(file))
	if err != nil {
		return err
	}
	return i.Register(ctx, flow)
}

// sharing is how long instances may take, with hundreds of partitions and a Kafka that has just
// started.
const sharing = 5 * time.Minute

// shared returns when the instances have shared the partitions evenly, and are ready.
func shared(ctx context.Context, instances []*orchestrator.Instance, partitions int32) error {
	for began := time.Now(); ; {
		var missing error
		owned := make([]int, len(instances))
		sum := 0
		for n, i := range instances {
			missing = errors.Join(missing, i.Ready())
			owned[n] = i.Owned()
			sum += owned[n]
		}
		if missing == nil && sum == int(partitions) && slices.Max(owned)-slices.Min(owned) <= 1 {
			return nil
		}
		if time.Since(began) > sharing {
			return errors.Join(fmt.Errorf("the instances have not shared %d partitions within %s, but have %v", partitions, sharing, owned), missing)
		}
		if err := wait(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// rebuilt says what an instance read that was ready after so long.
func rebuilt(ctx context.Context, admin *kadm.Client, topics *events.Topics, took time.Duration) (*Rebuilt, error) {
	records, err := length(ctx, admin, topics.Journal)
	if err != nil {
		return nil, err
	}
	return &Rebuilt{Seconds: took.Seconds(), Records: records, RecordsPerSecond: float64(records) / took.Seconds()}, nil
}

// length is how many offsets the partitions of topics have had, of records and of the markers of transactions.
func length(ctx context.Context, admin *kadm.Client, topics ...string) (n int64, err error) {
	ends, err := admin.ListEndOffsets(ctx, topics...)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return 0, fmt.Errorf("ask for the length of %s: %w", strings.Join(topics, ", "), err)
	}
	ends.Each(func(o kadm.ListedOffset) { n += o.Offset })
	return n, nil
}

// topicsOf are those of the run.
func topicsOf(ctx context.Context, admin *kadm.Client, namespace string) (names []string, err error) {
	topics, err := admin.ListTopics(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask for the topics of the run: %w", err)
	}
	for _, name := range topics.Names() {
		if strings.HasPrefix(name, namespace+".") {
			names = append(names, name)
		}
	}
	return names, nil
}

// remove deletes the topics of the run.
func remove(admin *kadm.Client, namespace string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	names, err := topicsOf(ctx, admin, namespace)
	if err == nil {
		_, err = admin.DeleteTopics(ctx, names...)
	}
	if err != nil {
		return fmt.Errorf("remove the topics of the run: %w", err)
	}
	return nil
}
