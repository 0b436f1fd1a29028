package bench

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/test/kafka"
)

func TestMain(m *testing.M) { kafka.Main(m) }

// The figures are of no interest here: a run measures something, and leaves
// no topic behind.
func TestRun(t *testing.T) {
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		o := Options{Partitions: 2, InFlight: 16, WarmUp: time.Second, Duration: 2 * time.Second, Single: 10}
		o.Brokers, o.Kafka = b.Brokers, []kgo.Opt{kgo.ClientID("bench-test")}
		before, err := b.Admin(t).ListTopics(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r, err := Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		// An order has a submission, 8 events, 3 requests, 3 replies, 2 statuses.
		// What was under way at either end of the measurement blurs it.
		if r.Orders == 0 || r.OrdersPerSecond <= 0 || r.P99 < r.P50 || r.SingleP99 < r.SingleP50 || r.RecordsPerOrder < 14 || r.BytesPerOrder < 1000 {
			t.Errorf("%+v", r)
		}
		after, err := b.Admin(t).ListTopics(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(after) > len(before) {
			t.Errorf("topics left behind: %v", after.Names())
		}
	})
}

// Without brokers it brings its own.
func TestRunEmbedded(t *testing.T) {
	r, err := Run(t.Context(), Options{Partitions: 1, InFlight: 4, Duration: time.Second, Single: 5, Fsync: true})
	if err != nil {
		t.Fatal(err)
	}
	if r.Broker != "embedded, fsync" || r.Orders == 0 {
		t.Errorf("%+v", r)
	}
}
