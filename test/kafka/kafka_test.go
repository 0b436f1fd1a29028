//go:build unix

package kafka_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/test/kafka"
)

func TestMain(m *testing.M) { kafka.Main(m) }

func TestEachBrokerCarriesRecords(t *testing.T) {
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		topic := createTopic(t, b)
		produce(t, b, topic, "written")
		expect(t, b, topic, "written")
	})
}

func TestEachBrokerCommitsTransactions(t *testing.T) {
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		topic := createTopic(t, b)
		producer := b.Client(t, kgo.TransactionalID(topic), kgo.DefaultProduceTopic(topic))
		for _, commit := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit} {
			if err := producer.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			value := map[kgo.TransactionEndTry]string{kgo.TryAbort: "aborted", kgo.TryCommit: "committed"}[commit]
			if err := producer.ProduceSync(t.Context(), kgo.StringRecord(value)).FirstErr(); err != nil {
				t.Fatal(err)
			}
			if err := producer.EndTransaction(t.Context(), commit); err != nil {
				t.Fatal(err)
			}
		}
		expect(t, b, topic, "committed")
	})
}

func TestOwnContainer(t *testing.T) {
	b := kafka.Own(t)
	topic := createTopic(t, b)
	produce(t, b, topic, "before")
	address := b.Brokers[0]

	b.Stop(t)
	b.Start(t)

	if b.Brokers[0] != address {
		t.Errorf("the address was %s and is %s", address, b.Brokers[0])
	}
	produce(t, b, topic, "after")
	expect(t, b, topic, "before", "after")

	topics := b.Exec(t, "/opt/kafka/bin/kafka-topics.sh", "--bootstrap-server", b.Brokers[0], "--list")
	if !strings.Contains(topics, topic+"\n") {
		t.Errorf("kafka-topics.sh does not list %s:\n%s", topic, topics)
	}
}

func TestNamespaceIsValidAndUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range []string{"plain", "with spaces/and_more", "__x", "ümlaut", strings.Repeat("long", 20)} {
		t.Run(name, func(t *testing.T) {
			for range 2 {
				ns := kafka.Namespace(t)
				if _, err := events.NewTopics(ns); err != nil {
					t.Error(err)
				}
				if !strings.HasPrefix(ns, "TestNamespace") || len(ns) > 60 || seen[ns] {
					t.Errorf("namespace %q for %s", ns, t.Name())
				}
				seen[ns] = true
			}
		})
	}
}

// What a run shares is what its test binaries find, and it goes when the process
// that shares it is killed. A child process of this test is that process.
func TestSharedContainerGoesWithItsProcess(t *testing.T) {
	const shares = "WAYBILL_TEST_KAFKA_SHARES"
	if os.Getenv(shares) != "" {
		variable, _, err := kafka.Share(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		name, address, _ := strings.Cut(variable, "=")
		t.Setenv(name, address)
		b := kafka.Container(t)
		createTopic(t, b)
		if !kafka.There(t, address) {
			t.Fatal("its container cannot be seen")
		}
		os.Stdout.WriteString(b.Brokers[0] + "\n" + address + "\n")
		// All of its group are told to end, the reaper too.
		if err := errors.Join(syscall.Kill(0, syscall.SIGTERM), syscall.Kill(os.Getpid(), syscall.SIGKILL)); err != nil {
			t.Fatal(err)
		}
	}
	kafka.Container(t) // skips where there is no Docker
	var output, said bytes.Buffer
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), shares+"=1", "WAYBILL_TEST_KAFKA=")
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	child.Stdout, child.Stderr = &output, &said // Run waits for the reaper, which has them too
	if err := child.Run(); err == nil || child.ProcessState.Exited() {
		t.Fatalf("the child should have been killed: %v\n%s%s", err, &output, &said)
	}
	found, address, _ := strings.Cut(strings.TrimSpace(output.String()), "\n")
	if found != address {
		t.Errorf("the child shares %s, and its tests are on %s", address, found)
	}
	if kafka.There(t, address) {
		t.Errorf("the container at %s outlived the process that shared it", address)
	}
}

func createTopic(t *testing.T, b *kafka.Broker) string {
	t.Helper()
	topic := kafka.Namespace(t)
	b.Create(t, 1, nil, topic)
	return topic
}

func produce(t *testing.T, b *kafka.Broker, topic, value string) {
	t.Helper()
	record := &kgo.Record{Topic: topic, Value: []byte(value)}
	if err := b.Client(t).ProduceSync(t.Context(), record).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// expect reads topic from its start until it has as many records as values.
func expect(t *testing.T, b *kafka.Broker, topic string, values ...string) {
	t.Helper()
	consumer := b.Client(t, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	var read []string
	for len(read) < len(values) {
		fetches := consumer.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) { read = append(read, string(r.Value)) })
	}
	if got, want := strings.Join(read, ","), strings.Join(values, ","); got != want {
		t.Errorf("topic %s has %s, want %s", topic, got, want)
	}
}
