package broker

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestRestartKeepsRecords(t *testing.T) {
	dir := t.TempDir()
	b := startBroker(t, Config{Dir: dir})
	createTopics(t, b.Addr(), 1, "journal")
	produce(t, b.Addr(), "journal", "first")
	closeBroker(t, b)

	b = startBroker(t, Config{Dir: dir})
	produce(t, b.Addr(), "journal", "second")
	if got, want := consume(t, b.Addr(), "journal", 2), "first second"; got != want {
		t.Errorf("read %q, want %q", got, want)
	}
}

func TestInMemory(t *testing.T) {
	b := startBroker(t, Config{})
	createTopics(t, b.Addr(), 1, "journal")
	produce(t, b.Addr(), "journal", "first")
	if b.Full() {
		t.Error("full without a disk")
	}
}

func TestSecondProcessIsKeptOut(t *testing.T) {
	dir := t.TempDir()
	b := startBroker(t, Config{Dir: dir})

	_, err := Start(Config{Dir: dir, Addr: "127.0.0.1:0"})
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), dir) {
		t.Errorf("second start: %v, want ErrLocked and the directory", err)
	}

	closeBroker(t, b)
	closeBroker(t, b) // the second time is free
	startBroker(t, Config{Dir: dir})
}

// Clients are not asked for their metrics, which nobody would read (KIP-714). All else is as
// kfake speaks it.
func TestNoTelemetry(t *testing.T) {
	client := newClient(t, startBroker(t, Config{}).Addr())
	defer client.Close()
	spoken, err := kmsg.NewPtrApiVersionsRequest().RequestWith(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	has := make(map[kmsg.Key]bool)
	for _, key := range spoken.ApiKeys {
		has[kmsg.Key(key.ApiKey)] = true
	}
	if has[kmsg.GetTelemetrySubscriptions] || has[kmsg.PushTelemetry] || !has[kmsg.EndTxn] || !has[kmsg.ConsumerGroupHeartbeat] {
		t.Errorf("it speaks %v", has)
	}
}

func TestAddress(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()

	dir := t.TempDir()
	for addr, want := range map[string]string{
		taken.Addr().String(): "--kafka-addr",
		"0.0.0.0:0":           "names no host",
		"nonsense":            "nonsense",
	} {
		if _, err := Start(Config{Dir: dir, Addr: addr}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("start on %s: %v, want %q in it", addr, err, want)
		}
	}

	// The failures above have left neither the lock nor a listener behind.
	b := startBroker(t, Config{Dir: dir, Addr: "localhost:0"})
	client := newClient(t, b.Addr())
	defer client.Close()
	brokers, err := kadm.NewClient(client).ListBrokers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(brokers) != 1 || net.JoinHostPort(brokers[0].Host, fmt.Sprint(brokers[0].Port)) != b.Addr() {
		t.Errorf("advertised %+v, listening on %s", brokers, b.Addr())
	}
}

func TestTopicsAreNotCreatedByUse(t *testing.T) {
	b := startBroker(t, Config{})
	client := newClient(t, b.Addr(), kgo.AllowAutoTopicCreation(), kgo.UnknownTopicRetries(0))
	defer client.Close()
	err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "typo"}).FirstErr()
	if !errors.Is(err, kerr.UnknownTopicOrPartition) {
		t.Errorf("produce to a topic that is not there: %v", err)
	}
}

// A retention on one topic makes kfake apply the default to all others.
func TestRecordsDoNotExpireByDefault(t *testing.T) {
	b := startBroker(t, Config{})
	client := newClient(t, b.Addr())
	defer client.Close()
	admin := kadm.NewClient(client)
	day := "86400000"
	created, err := admin.CreateTopics(t.Context(), 1, 1, map[string]*string{"retention.ms": &day}, "status")
	if err != nil || created.Error() != nil {
		t.Fatal(err, created.Error())
	}
	createTopics(t, b.Addr(), 1, "journal")

	old := &kgo.Record{Topic: "journal", Value: []byte("old"), Timestamp: time.Now().AddDate(-1, 0, 0)}
	if err := client.ProduceSync(t.Context(), old).FirstErr(); err != nil {
		t.Fatal(err)
	}
	b.cluster.ApplyRetention()
	starts, err := admin.ListStartOffsets(t.Context(), "journal")
	if err != nil || starts.Error() != nil {
		t.Fatal(err, starts.Error())
	}
	if start, _ := starts.Lookup("journal", 0); start.Offset != 0 {
		t.Errorf("journal starts at %d", start.Offset)
	}
}

func TestGroupWithShortSession(t *testing.T) {
	b := startBroker(t, Config{})
	createTopics(t, b.Addr(), 1, "orders")
	produce(t, b.Addr(), "orders", "first")
	client := newClient(t, b.Addr(), kgo.ConsumerGroup("waybill"), kgo.ConsumeTopics("orders"),
		kgo.SessionTimeout(2*minSessionTimeout), kgo.HeartbeatInterval(minSessionTimeout/2),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer client.Close()
	if fetches := client.PollFetches(t.Context()); fetches.Err() != nil || fetches.NumRecords() != 1 {
		t.Errorf("polled %d records, %v", fetches.NumRecords(), fetches.Err())
	}
}

func TestUnreadableStateNamesTheFile(t *testing.T) {
	dir := t.TempDir()
	b := startBroker(t, Config{Dir: dir})
	createTopics(t, b.Addr(), 1, "journal")
	closeBroker(t, b)
	for _, name := range []string{"topics.json", "meta.json"} {
		path := filepath.Join(dir, name)
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		write(t, path, good[:len(good)/2])
		if _, err := Start(Config{Dir: dir, Addr: "127.0.0.1:0"}); err == nil ||
			!strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), dir) {
			t.Errorf("start with half of %s: %v, want the file and the directory in it", name, err)
		}
		write(t, path, good)
	}
	startBroker(t, Config{Dir: dir})
}
