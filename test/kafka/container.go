package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	dockercontainer "github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	tcexec "github.com/testcontainers/testcontainers-go/exec"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/test/child"
	"github.com/waybill-dev/waybill/test/leftout"
)

// Image is the Kafka that runs in the container.
const Image = "apache/kafka:4.3.0"

// LeaveOut skips a suite for what this machine lacks, and fails it where nothing
// may be left out: with WAYBILL_REQUIRE_DOCKER=1.
func LeaveOut(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("WAYBILL_REQUIRE_DOCKER") == "1" {
		t.Fatalf(format, args...)
	}
	t.Skipf(leftout.Prefix+format, args...)
}

const (
	pullTimeout = 5 * time.Minute
	stopTimeout = 30 * time.Second // past it the broker is killed
	startTries  = 20               // of which each has a second more, up to 10: a machine that stood still for minutes has taken one
)

// errUnavailable marks what this machine lacks, as opposed to what went wrong.
var errUnavailable = errors.New("cannot be had on this machine")

// sharedVariable in the environment is the address of the Kafka that a whole
// run shares.
const sharedVariable = "WAYBILL_TEST_KAFKA"

// shared is the broker of all tests of this binary.
var shared struct {
	start   sync.Once
	brokers []string
	own     *container // nil if the broker is the run's
	err     error
}

// Container returns Apache Kafka in a container: the run's, where it has one
// (see [Share]), or else the test binary's, which the first call starts and
// [Main] removes. All tests share it, with whatever topics and groups the others
// made, so none may stop it: that needs its [Own].
func Container(t testing.TB) *Broker {
	t.Helper()
	shared.start.Do(func() {
		if address := os.Getenv(sharedVariable); address != "" {
			shared.brokers = []string{address}
			shared.err = ready(t.Context(), address)
			return
		}
		var b *Broker
		if b, shared.err = startContainer(t.Context(), manner{}); shared.err == nil {
			shared.brokers, shared.own = b.Brokers, b.container
		}
	})
	mustHave(t, shared.err)
	return &Broker{Kind: KindContainer, Brokers: shared.brokers}
}

// Own starts Apache Kafka in a container for t alone, and removes it when t ends.
func Own(t testing.TB) *Broker {
	t.Helper()
	b, err := startContainer(t.Context(), manner{})
	mustHave(t, err)
	t.Cleanup(func() {
		if err := errors.Join(b.container.Terminate(context.Background()), b.container.docker.Close()); err != nil {
			t.Errorf("removing Kafka: %v", err)
		}
	})
	return b
}

// Share starts Apache Kafka for all test binaries that this process will start,
// and returns what their environment must have for it. Where there is none to be
// had that is empty, and they say so themselves. The container goes when end is
// called, or this process ends in any other way. Call [Reap] before all else.
func Share(ctx context.Context) (variable string, end func() error, err error) {
	as := manner{onHost: nearby(ctx)}
	b, end, err := apart(ctx, as)
	if err != nil && as.onHost && !errors.Is(err, errUnavailable) { // the engine may forbid its network, or be another machine's
		as.onHost = false
		removed := end()
		b, end, err = apart(ctx, as)
		err = errors.Join(err, removed)
	}
	if err != nil {
		if errors.Is(err, errUnavailable) {
			err = nil
		}
		return "", end, err
	}
	return sharedVariable + "=" + b.Brokers[0], end, nil
}

// Alone starts Apache Kafka for a program that is no test and measures: on the engine's own network, so that
// nothing of Docker stands between it and its clients. The engine must be on this machine, and of Linux. The
// container goes when end is called, or this process ends in any other way. Call [Reap] before all else.
func Alone(ctx context.Context) (b *Broker, end func() error, err error) {
	return apart(ctx, manner{onHost: true, lasting: true})
}

func apart(ctx context.Context, as manner) (b *Broker, end func() error, err error) {
	reaper = &reaping{}
	if b, err = startContainer(ctx, as); err != nil {
		return nil, reaper.finish, err
	}
	return b, func() error { return errors.Join(b.container.docker.Close(), reaper.finish()) }, nil
}

// Name is the container's, as Docker knows it.
func (b *Broker) Name() string { return b.container.name }

func mustHave(t testing.TB, err error) {
	t.Helper()
	switch {
	case err == nil:
	case errors.Is(err, errUnavailable):
		LeaveOut(t, "suites on Apache Kafka, because %v", err)
	default:
		t.Fatalf("Apache Kafka in a container: %v", err)
	}
}

type container struct {
	testcontainers.Container
	docker testcontainers.GenericProvider // holds the connection that Container uses
	name   string
	spare  string // the port of another broker: see [Broker.Second]
}

// manner is how a container runs: behind ports that Docker forwards, wherever the engine is, unless it says otherwise.
type manner struct {
	onHost  bool // on the network of the engine, which is this machine's
	lasting bool // with Java's second compiler, which pays for itself in what runs for longer than a test
}

// withoutRyuk comes before all else of testcontainers, which looks once: our own reaper needs no privileged container and no
// second image.
func withoutRyuk() error { return os.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true") }

// nearby says that the network of the engine is this machine's: what is on it is reached without Docker's proxy, which takes a
// third of a processor for a Kafka that is busy.
func nearby(ctx context.Context) bool {
	if runtime.GOOS != "linux" || withoutRyuk() != nil { // elsewhere the engine is in a virtual machine
		return false
	}
	docker, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		return false
	}
	defer docker.Close()
	engine, err := docker.Info(ctx, client.InfoOptions{})
	host, unnamed := os.Hostname()
	return err == nil && unnamed == nil && engine.Info.Name == host && !slices.ContainsFunc(engine.Info.SecurityOptions, func(option string) bool { return strings.Contains(option, "rootless") })
}

func startContainer(ctx context.Context, as manner) (*Broker, error) {
	if reaper == nil {
		return nil, errors.New("nobody would remove the container: the package has no TestMain that calls kafka.Main")
	}
	if err := withoutRyuk(); err != nil {
		return nil, err
	}
	if err := ensureImage(ctx); err != nil {
		return nil, err
	}
	address, port, err := freePort()
	if err != nil {
		return nil, err
	}
	_, spare, err := freePort()
	if err != nil {
		return nil, err
	}
	// The reaper learns the name before there is a container, so that a process
	// that dies in between leaves none behind either.
	name, err := reaper.watch()
	if err != nil {
		return nil, err
	}
	docker, err := testcontainers.ProviderDefault.GetProvider()
	if err != nil {
		return nil, err
	}
	r := request(name, port, spare)
	if as.lasting {
		r.Env["KAFKA_LOG_SEGMENT_DELETE_DELAY_MS"] = "1000" // not in the midst of what is measured a minute later
		delete(r.Env, "KAFKA_OPTS")
		delete(r.Env, "KAFKA_JVM_PERFORMANCE_OPTS")
	}
	if as.onHost {
		r.ExposedPorts = nil
		r.HostConfigModifier = func(c *dockercontainer.HostConfig) { c.NetworkMode = "host" }
		r.Env["KAFKA_CONTROLLER_QUORUM_VOTERS"] = "1@127.0.0.1:" + spare
		r.Env["KAFKA_LISTENERS"] = "PLAINTEXT://127.0.0.1:" + port + ",CONTROLLER://127.0.0.1:" + spare
	}
	created, err := docker.RunContainer(ctx, r)
	if err != nil {
		return nil, errors.Join(err, docker.Close())
	}
	b := &Broker{
		Kind:      KindContainer,
		Brokers:   []string{address},
		container: &container{created, docker, name, spare},
	}
	if err := ready(ctx, address); err != nil {
		return nil, errors.Join(err, b.container.tail(ctx), docker.Close())
	}
	return b, nil
}

func freePort() (address, port string, err error) {
	if address, err = child.Address(); err == nil {
		_, port, err = net.SplitHostPort(address)
	}
	return address, port, err
}

// Second starts another broker beside one that is t's own, and removes it when t
// ends. Nothing of the cluster's is on it but what is put there, so that it may be
// stopped.
func (b *Broker) Second(t testing.TB) *Broker {
	t.Helper()
	first := b.only(t)
	name, err := reaper.watch()
	if err != nil {
		t.Fatal(err)
	}
	r := request(name, first.spare)
	r.ExposedPorts = nil // the first has them
	r.HostConfigModifier = func(c *dockercontainer.HostConfig) {
		c.NetworkMode = dockercontainer.NetworkMode("container:" + first.name)
	}
	r.Env["KAFKA_NODE_ID"], r.Env["KAFKA_PROCESS_ROLES"] = "2", "broker"
	r.Env["KAFKA_LISTENERS"] = "PLAINTEXT://:" + first.spare
	created, err := first.docker.RunContainer(t.Context(), r)
	if err != nil {
		t.Fatalf("a second broker: %v", err)
	}
	t.Cleanup(func() {
		if err := created.Terminate(context.Background()); err != nil {
			t.Errorf("removing the second broker: %v", err)
		}
	})
	second := &Broker{Kind: KindContainer, Brokers: []string{"127.0.0.1:" + first.spare}, container: &container{created, first.docker, name, ""}}
	if err := ready(t.Context(), second.Brokers[0]); err != nil {
		t.Fatal(errors.Join(err, second.container.tail(t.Context())))
	}
	return second
}

// Kill kills the broker, which must be t's own: it has no time to say goodbye.
func (b *Broker) Kill(t testing.TB) {
	t.Helper()
	c, err := testcontainers.NewDockerClientWithOpts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.ContainerKill(t.Context(), b.only(t).name, client.ContainerKillOptions{Signal: "KILL"}); err != nil {
		t.Fatalf("killing Kafka: %v", err)
	}
}

// portLabel has the port at which a broker of ours is, in whatever network.
const portLabel = "waybill.port"

// request describes the container. Its broker listens on the same port inside
// as outside: Kafka tells its clients where to connect, and so the one address
// is right for clients on the host, for the tools inside, and after a restart.
// Other ports lead inside, too.
func request(name, port string, others ...string) testcontainers.ContainerRequest {
	var exposed []string
	bindings := make(network.PortMap)
	for _, port := range append(others, port) {
		inside := network.MustParsePort(port + "/tcp")
		exposed = append(exposed, inside.String())
		bindings[inside] = []network.PortBinding{{HostIP: netip.MustParseAddr("127.0.0.1"), HostPort: port}}
	}
	return testcontainers.ContainerRequest{
		Name:         name,
		Image:        Image,
		ExposedPorts: exposed,
		Labels:       map[string]string{portLabel: port},
		HostConfigModifier: func(c *dockercontainer.HostConfig) {
			c.PortBindings = bindings
		},
		// The image forgets its own defaults as soon as one setting is given, so
		// all that a single node needs is here.
		Env: map[string]string{
			"KAFKA_NODE_ID":                        "1",
			"KAFKA_PROCESS_ROLES":                  "broker,controller",
			"KAFKA_CONTROLLER_QUORUM_VOTERS":       "1@localhost:9093",
			"KAFKA_CONTROLLER_LISTENER_NAMES":      "CONTROLLER",
			"KAFKA_LISTENERS":                      "PLAINTEXT://:" + port + ",CONTROLLER://:9093",
			"KAFKA_ADVERTISED_LISTENERS":           "PLAINTEXT://127.0.0.1:" + port,
			"KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",

			"KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR":                 "1",
			"KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR":         "1",
			"KAFKA_TRANSACTION_STATE_LOG_MIN_ISR":                    "1",
			"KAFKA_SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR": "1",
			"KAFKA_SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR":            "1",

			// Fifty partitions each, as usual, cost seconds at the first use.
			"KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS":                 "4",
			"KAFKA_TRANSACTION_STATE_LOG_NUM_PARTITIONS":         "4",
			"KAFKA_SHARE_COORDINATOR_STATE_TOPIC_NUM_PARTITIONS": "4",

			// A misspelt topic shall be an error, as it is in production.
			"KAFKA_AUTO_CREATE_TOPICS_ENABLE":        "false",
			"KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
			"KAFKA_GROUP_MIN_SESSION_TIMEOUT_MS":     strconv.FormatInt(minSessionTimeout.Milliseconds(), 10),
			"KAFKA_HEAP_OPTS":                        "-Xms256m -Xmx1g",
			"KAFKA_OPTS":                             "-XX:TieredStopAtLevel=1 " + collector,
			"KAFKA_JVM_PERFORMANCE_OPTS":             collector, // in place of another one, which Kafka's scripts would add
			// On a machine that is busy with tests a broker may be slow to tell its own controller that it is there: after
			// nine seconds, as usual, no partition would have a leader.
			"KAFKA_BROKER_SESSION_TIMEOUT_MS": "30000",
		},
	}
}

// collector is that of Java that takes the least of a processor where there is little to collect.
const collector = "-XX:+UseSerialGC"

// ensureImage pulls Kafka's image where it is missing. It asks once: an engine
// that cannot reach a registry will not be able to a minute later.
func ensureImage(ctx context.Context) error {
	docker, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		return fmt.Errorf("a Docker engine %w: %w", errUnavailable, err)
	}
	defer docker.Close()
	if _, err := docker.Ping(ctx, client.PingOptions{}); err != nil {
		return fmt.Errorf("a Docker engine %w: %w", errUnavailable, err)
	}
	if _, err := docker.ImageInspect(ctx, Image); err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	pull, err := docker.ImagePull(ctx, Image, client.ImagePullOptions{})
	if err == nil {
		err = pull.Wait(ctx)
	}
	if err != nil {
		return fmt.Errorf("the image %s %w: %w", Image, errUnavailable, err)
	}
	return nil
}

// ready returns once the broker has registered itself and would take a topic.
// An open port says nothing: Docker opens it before Kafka listens.
func ready(ctx context.Context, address string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.AlwaysRetryEOF(),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }))
	if err != nil {
		return err
	}
	defer cl.Close()
	answers := func(patience time.Duration) error {
		try, end := context.WithTimeout(ctx, patience)
		defer end()
		nodes, err := kadm.NewClient(cl).ListBrokers(try)
		if err == nil && len(nodes) > 0 {
			return nil
		}
		<-try.Done()
		return errors.Join(err, try.Err())
	}
	for n := range startTries {
		if err = answers(time.Duration(min(n+1, 10)) * time.Second); err == nil || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("no answer at %s in %d tries: %w", address, startTries, err)
	}
	return nil
}

// Stop stops the broker, which must be t's own, as an orderly shutdown does.
func (b *Broker) Stop(t testing.TB) {
	t.Helper()
	timeout := stopTimeout
	if err := b.only(t).Stop(t.Context(), &timeout); err != nil {
		t.Fatalf("stopping Kafka: %v", err)
	}
}

// Start starts the broker again, with its address and its data, and returns when
// it answers.
func (b *Broker) Start(t testing.TB) {
	t.Helper()
	err := b.only(t).Start(t.Context())
	if err == nil {
		err = ready(t.Context(), b.Brokers[0])
	}
	if err != nil {
		t.Fatalf("starting Kafka again: %v", err)
	}
}

// Exec runs a command in the container of a broker that is t's own, one of
// Kafka's tools for example, and returns what it printed. Brokers[0] is the
// broker's address in there too.
func (b *Broker) Exec(t testing.TB, command ...string) string {
	t.Helper()
	code, output, err := b.only(t).Exec(t.Context(), command, tcexec.Multiplexed())
	if err != nil {
		t.Fatalf("%s: %v", strings.Join(command, " "), err)
	}
	printed, err := io.ReadAll(output)
	if err != nil || code != 0 {
		t.Fatalf("%s: exit code %d, %v\n%s", strings.Join(command, " "), code, err, printed)
	}
	return string(printed)
}

func (b *Broker) only(t testing.TB) *container {
	t.Helper()
	if b.container == nil {
		t.Fatal("only a broker of its own lets a test do this: kafka.Own")
	}
	return b.container
}

// tail returns the end of the broker's log as an error, to say why it failed.
func (c *container) tail(ctx context.Context) error {
	logs, err := c.Logs(ctx)
	if err != nil {
		return err
	}
	defer logs.Close()
	text, err := io.ReadAll(logs)
	return errors.Join(fmt.Errorf("its log ends with:\n%s", text[max(0, len(text)-4096):]), err)
}
