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

	"github.com/waybill-dev/waybill/test/kafka"
)

// cluster is Apache Kafka in a container of its own: beside the usual listener
// it has one for each instance, which advertises the address of that instance's
// proxy. And it is killed, which a container that is shared must not be.
type cluster struct {
	name    string
	address string   // for everybody but the instances
	behind  []string // where each proxy leads
}

// listener is an address that is the same in the container and outside, and what
// it tells clients to call it.
type listener struct{ name, address, advertised string }

func startKafka(t *testing.T, dir string, proxies []string) *cluster {
	t.Helper()
	c := &cluster{name: "waybill-chaos-" + strings.ToLower(rand.Text()[:12]), address: freeAddress(t)}
	listeners := []listener{{"PLAINTEXT", c.address, c.address}}
	for i, p := range proxies {
		to := freeAddress(t)
		c.behind = append(c.behind, to)
		listeners = append(listeners, listener{fmt.Sprintf("INSTANCE%d", i+1), to, p})
	}
	var binds, advertised, protocols, publish []string
	for _, l := range listeners {
		_, port, err := net.SplitHostPort(l.address)
		if err != nil {
			t.Fatal(err)
		}
		binds = append(binds, l.name+"://:"+port)
		advertised = append(advertised, l.name+"://"+l.advertised)
		protocols = append(protocols, l.name+":PLAINTEXT")
		publish = append(publish, "-p", l.address+":"+port)
	}
	c.reapWithUs(t, dir)
	args := append([]string{"create", "--name", c.name}, publish...)
	for _, e := range []string{
		"KAFKA_NODE_ID=1",
		"KAFKA_PROCESS_ROLES=broker,controller",
		"KAFKA_CONTROLLER_QUORUM_VOTERS=1@localhost:9093",
		"KAFKA_CONTROLLER_LISTENER_NAMES=CONTROLLER",
		"KAFKA_INTER_BROKER_LISTENER_NAME=PLAINTEXT",
		"KAFKA_LISTENERS=" + strings.Join(append(binds, "CONTROLLER://:9093"), ","),
		"KAFKA_ADVERTISED_LISTENERS=" + strings.Join(advertised, ","),
		"KAFKA_LISTENER_SECURITY_PROTOCOL_MAP=" + strings.Join(append(protocols, "CONTROLLER:PLAINTEXT"), ","),
		"KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR=1",
		"KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS=4",
		"KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR=1",
		"KAFKA_TRANSACTION_STATE_LOG_MIN_ISR=1",
		"KAFKA_TRANSACTION_STATE_LOG_NUM_PARTITIONS=4",
		"KAFKA_AUTO_CREATE_TOPICS_ENABLE=false",
		"KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS=0",
		"KAFKA_GROUP_MIN_SESSION_TIMEOUT_MS=1000",
		"KAFKA_HEAP_OPTS=-Xms256m -Xmx1g",
	} {
		args = append(args, "-e", e)
	}
	docker(t, append(args, kafka.Image)...)
	docker(t, "start", c.name)
	if err := c.ready(t.Context()); err != nil {
		t.Fatalf("Kafka: %v\n%s", err, docker(t, "logs", "--tail", "40", c.name))
	}
	return c
}

// reapWithUs removes the container, and what is mounted below dir, when this
// process ends, in whatever way.
func (c *cluster) reapWithUs(t *testing.T, dir string) {
	t.Helper()
	reaper := exec.Command("sh", "-c", `trap "" INT; cat >/dev/null; docker rm -f -v "$0" >/dev/null 2>&1; umount -l "$1"/i? 2>/dev/null`, c.name, dir)
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

// ready returns once the broker has registered itself.
func (c *cluster) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.address))
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		nodes, err := kadm.NewClient(client).ListBrokers(ctx)
		if err == nil && len(nodes) > 0 {
			return nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("no answer at %s: %w", c.address, err)
		}
	}
}
