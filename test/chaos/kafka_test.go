//go:build unix

package chaos

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/test/child"
	"github.com/waybill-dev/waybill/test/kafka"
)

// cluster is Apache Kafka in containers of its own, since these are killed,
// which a container that is shared must not be. All nodes share the network of
// one more container, that does nothing and lives on: so they keep their
// addresses whatever becomes of them.
type cluster struct {
	name  string // of the container with the network
	nodes []*node
}

// node is broker and controller. Beside the usual listener it has one for each
// instance, which advertises the address of that instance's proxy.
type node struct {
	name    string
	address string   // for everybody but the instances
	behind  []string // where each instance's proxy leads
}

// listener is an address that is the same in the container and outside, and what
// it tells clients to call it.
type listener struct{ name, address, advertised string }

// startKafka starts as many nodes as each instance has proxies.
func startKafka(t *testing.T, dir string, proxies [][]string) *cluster {
	t.Helper()
	c := &cluster{name: "waybill-chaos-" + strings.ToLower(rand.Text()[:12])}
	network := []string{"create", "--name", c.name, "--entrypoint", "sleep"}
	var quorum []string
	var listeners [][]listener
	for n := range proxies[0] {
		b := &node{name: fmt.Sprintf("%s-%d", c.name, n+1), address: child.FreeAddress(t)}
		all := []listener{{"PLAINTEXT", b.address, b.address}}
		for i, proxy := range proxies {
			to := child.FreeAddress(t)
			b.behind = append(b.behind, to)
			all = append(all, listener{fmt.Sprintf("INSTANCE%d", i+1), to, proxy[n]})
		}
		for _, l := range all {
			network = append(network, "-p", l.address+":"+port(t, l.address))
		}
		quorum = append(quorum, fmt.Sprintf("%d@localhost:%d", n+1, controllerPort+n))
		c.nodes, listeners = append(c.nodes, b), append(listeners, all)
	}
	c.reapWithUs(t, dir)
	docker(t, append(network, kafka.Image, "infinity")...)
	docker(t, "start", c.name)
	for n, b := range c.nodes {
		args := []string{"create", "--name", b.name, "--network", "container:" + c.name}
		for _, setting := range settings(t, n, len(c.nodes), quorum, listeners[n]) {
			args = append(args, "-e", setting)
		}
		docker(t, append(args, kafka.Image)...)
		docker(t, "start", b.name)
	}
	if err := c.ready(t.Context()); err != nil {
		t.Fatalf("Kafka: %v\n%s", err, docker(t, "logs", "--tail", "40", c.nodes[0].name))
	}
	return c
}

// controllerPort is that of the first node. Nobody sees it from outside, as
// nobody sees the port above it by a hundred, where brokers find each other.
const controllerPort = 9100

func settings(t *testing.T, n, nodes int, quorum []string, listeners []listener) []string {
	t.Helper()
	internal := fmt.Sprintf(":%d", controllerPort+100+n)
	binds := []string{fmt.Sprintf("CONTROLLER://:%d", controllerPort+n), "INTERNAL://" + internal}
	advertised := []string{"INTERNAL://localhost" + internal}
	protocols := []string{"CONTROLLER:PLAINTEXT", "INTERNAL:PLAINTEXT"}
	for _, l := range listeners {
		binds = append(binds, l.name+"://:"+port(t, l.address))
		advertised = append(advertised, l.name+"://"+l.advertised)
		protocols = append(protocols, l.name+":PLAINTEXT")
	}
	inSync, heap := 1, "-Xms256m -Xmx1g"
	if nodes > 1 {
		inSync, heap = nodes-1, "-Xms128m -Xmx400m"
	}
	return []string{
		fmt.Sprintf("KAFKA_NODE_ID=%d", n+1),
		"KAFKA_PROCESS_ROLES=broker,controller",
		"KAFKA_CONTROLLER_QUORUM_VOTERS=" + strings.Join(quorum, ","),
		"KAFKA_CONTROLLER_LISTENER_NAMES=CONTROLLER",
		"KAFKA_INTER_BROKER_LISTENER_NAME=INTERNAL",
		"KAFKA_LISTENERS=" + strings.Join(binds, ","),
		"KAFKA_ADVERTISED_LISTENERS=" + strings.Join(advertised, ","),
		"KAFKA_LISTENER_SECURITY_PROTOCOL_MAP=" + strings.Join(protocols, ","),
		fmt.Sprintf("KAFKA_DEFAULT_REPLICATION_FACTOR=%d", nodes),
		fmt.Sprintf("KAFKA_MIN_INSYNC_REPLICAS=%d", inSync),
		fmt.Sprintf("KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR=%d", nodes),
		"KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS=4",
		fmt.Sprintf("KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR=%d", nodes),
		fmt.Sprintf("KAFKA_TRANSACTION_STATE_LOG_MIN_ISR=%d", inSync),
		"KAFKA_TRANSACTION_STATE_LOG_NUM_PARTITIONS=4",
		"KAFKA_AUTO_CREATE_TOPICS_ENABLE=false",
		"KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS=0",
		"KAFKA_GROUP_MIN_SESSION_TIMEOUT_MS=1000",
		"KAFKA_HEAP_OPTS=" + heap,
		"KAFKA_JVM_PERFORMANCE_OPTS=-XX:+UseSerialGC",         // in place of another one, which Kafka's scripts would add
		"KAFKA_OPTS=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC", // the second compiler takes a sixth of what a minute of chaos takes of Kafka
	}
}

func port(t *testing.T, address string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// addresses are those of all nodes, for everybody but the instances.
func (c *cluster) addresses() []string {
	var all []string
	for _, b := range c.nodes {
		all = append(all, b.address)
	}
	return all
}

// reapWithUs removes the containers, and what is mounted below dir, when this
// process ends, in whatever way.
func (c *cluster) reapWithUs(t *testing.T, dir string) {
	t.Helper()
	script := `trap "" INT; cat >/dev/null; dir=$0; docker rm -f -v "$@" >/dev/null 2>&1; umount -l "$dir"/i? 2>/dev/null`
	args := []string{"-c", script, dir}
	for _, b := range c.nodes {
		args = append(args, b.name)
	}
	reaper := exec.Command("sh", append(args, c.name)...)
	pipe, err := reaper.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := reaper.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		pipe.Close()
		_ = reaper.Wait() // the exit code of docker rm says nothing that could be acted on
	})
}

func docker(t testing.TB, args ...string) string {
	t.Helper()
	out, err := tryDocker(args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func tryDocker(args ...string) (string, error) {
	out, err := exec.Command("docker", args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("docker %s: %w: %s", args[0], err, out)
	}
	return string(out), err
}

// ready returns once all nodes answer.
func (c *cluster) ready(ctx context.Context) error {
	for _, b := range c.nodes {
		if err := b.ready(ctx, len(c.nodes)); err != nil {
			return err
		}
	}
	return nil
}

// ready returns once the node answers, and knows of all.
func (b *node) ready(ctx context.Context, nodes int) error {
	return b.until(ctx, func(ctx context.Context, admin *kadm.Client) error {
		known, err := admin.ListBrokers(ctx)
		if err == nil && len(known) < nodes {
			err = fmt.Errorf("it knows %d brokers of %d", len(known), nodes)
		}
		return err
	})
}

// inSync returns once every partition has all its replicas, which is when who
// operates Kafka goes on to the next broker.
func (b *node) inSync(ctx context.Context) error {
	return b.until(ctx, func(ctx context.Context, admin *kadm.Client) error {
		all, err := admin.ListTopicsWithInternal(ctx)
		if err != nil {
			return err
		}
		for _, topic := range all.Sorted() {
			for _, p := range topic.Partitions {
				if len(p.ISR) < len(p.Replicas) {
					return fmt.Errorf("%s partition %d has %d replicas of %d", topic.Topic, p.Partition, len(p.ISR), len(p.Replicas))
				}
			}
		}
		return nil
	})
}

func (b *node) until(ctx context.Context, check func(context.Context, *kadm.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(b.address))
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		err := check(ctx, kadm.NewClient(client))
		if err == nil {
			return nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%s at %s: %w", b.name, b.address, err)
		}
	}
}
