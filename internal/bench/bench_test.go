package bench

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/test/kafka"
)

func TestMain(m *testing.M) { kafka.Main(m) }

// The figures are of no interest here: a run measures something, and leaves
// no topic behind.
func TestRun(t *testing.T) {
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		o := Options{Partitions: 2, InFlight: 16, Orders: 200, Single: 10}
		o.Brokers, o.Kafka = b.Brokers, []kgo.Opt{kgo.ClientID("bench-test")}
		before, err := b.Admin(t).ListTopics(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r, err := Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		// An order has a submission, 8 events, 3 requests, 3 replies, 2 statuses:
		// 17 records. Of those under way at either end, answers may be out.
		if r.Orders != 200 || r.OrdersPerSecond <= 0 || r.P99 < r.P50 || r.SingleP99 < r.SingleP50 ||
			r.RecordsPerOrder < 16 || r.RecordsPerOrder > 18 || r.BytesPerOrder < 1000 {
			t.Errorf("%+v", r)
		}
		after, err := b.Admin(t).ListTopics(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range after.Names() {
			if strings.HasPrefix(name, "bench-") && !before.Has(name) {
				t.Errorf("topic %s is left behind", name)
			}
		}
	})
}

// Without brokers it brings its own.
func TestRunEmbedded(t *testing.T) {
	r, err := Run(t.Context(), Options{Partitions: 1, InFlight: 4, Orders: 20, Single: 5, Fsync: true})
	if err != nil {
		t.Fatal(err)
	}
	if r.Broker != "embedded, fsync" || r.Orders != 20 {
		t.Errorf("%+v", r)
	}
}
