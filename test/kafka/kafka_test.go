package kafka_test

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
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

func TestContainerKeepsAddressAndDataOverARestart(t *testing.T) {
	b := kafka.Container(t)
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
}

// A test may fail, or end, between Stop and Start. The next one finds a broker
// all the same.
func TestContainerIsStartedForTheNextTest(t *testing.T) {
	b := kafka.Container(t)
	t.Run("stops it", func(t *testing.T) { b.Stop(t) })
	createTopic(t, b)
}

func TestContainerHasKafkasTools(t *testing.T) {
	b := kafka.Container(t)
	topic := createTopic(t, b)
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

// The container must go even when no deferred function runs. A child process
// of this test starts one and panics; what stands here looks for the leftovers.
func TestContainerGoesWithAPanic(t *testing.T) {
	const panics = "WAYBILL_TEST_KAFKA_PANICS"
	if os.Getenv(panics) != "" {
		b := kafka.Container(t)
		os.Stdout.WriteString(b.Exec(t, "hostname") + "\n")
		panic("on purpose")
	}
	kafka.Container(t) // skips where there is no Docker
	var output bytes.Buffer
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), panics+"=1")
	child.Stdout, child.Stderr = &output, &output
	if err := child.Run(); err == nil || !strings.Contains(output.String(), "on purpose") {
		t.Fatalf("the child should have panicked: %v\n%s", err, &output)
	}
	host, _, _ := strings.Cut(output.String(), "\n")
	if kafka.Alive(t, host) {
		t.Errorf("container %s outlived the process that started it", host)
	}
}

func createTopic(t *testing.T, b *kafka.Broker) string {
	t.Helper()
	topic := kafka.Namespace(t)
	if _, err := b.Admin(t).CreateTopic(t.Context(), 1, 1, nil, topic); err != nil {
		t.Fatal(err)
	}
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
