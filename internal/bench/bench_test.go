package bench

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/oracle"
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
		// A transaction has requests to several partitions, and agents and the caller have others.
		if r.TransactionsAnOrder <= 0 || r.RequestsAnOrder <= r.TransactionsAnOrder {
			t.Errorf("%v transactions and %v requests an order", r.TransactionsAnOrder, r.RequestsAnOrder)
		}
		if m := r.Machine; runtime.GOOS == "linux" && (m.CPU <= 0 || m.Stolen < 0) {
			t.Errorf("the machine: %+v", m)
		}
		if c := r.Conditions; c.Single != 10 || c.Duration != "0s" || c.Processors < 1 || c.Traced || r.Began == "" {
			t.Errorf("measured under %+v, from %q on", c, r.Began)
		}
		oracle.Until(t, "no topic is left behind", func() error { // Kafka may take its time
			after, err := b.Admin(t).ListTopics(t.Context())
			if err != nil {
				return err
			}
			for _, name := range after.Names() {
				if strings.HasPrefix(name, "bench-") && !before.Has(name) {
					return fmt.Errorf("topic %s is", name)
				}
			}
			return nil
		})
	})
}

// The pipe writes the records that orchestrators write, where they write them, whatever the
// namespace is called.
func TestRunPipe(t *testing.T) {
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		o := Options{namespace: "bench-1e55e11e", Shape: Shape{Steps: 5, Payload: 2000}, Pipe: 2, Partitions: 3, InFlight: 16, Orders: 200, Single: 10}
		o.Brokers, o.Kafka = b.Brokers, []kgo.Opt{kgo.ClientID("bench-test")}
		piped, err := Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		o.Pipe, o.namespace = 0, ""
		r, err := Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		about := func(a, b float64) bool { return a > 0.9*b && a < 1.1*b }
		if piped.Orders != 200 || !about(piped.RecordsPerOrder, r.RecordsPerOrder) || !about(piped.BytesPerOrder, r.BytesPerOrder) {
			t.Errorf("%+v, and not as %+v", piped, r)
		}
	})
}

// Orders that wait for somebody else's agent are there while others are measured, and when
// the state is made again.
func TestRunBesideOrdersThatWait(t *testing.T) {
	r, err := Run(t.Context(), Options{Partitions: 2, InFlight: 4, Orders: 20, Single: 5, Waiting: 1000, Idle: time.Millisecond, Rebuild: true, HTTP: true})
	if err != nil {
		t.Fatal(err)
	}
	// Two events of one that waits, one or two more of those that were asked for.
	if x := r.Rebuilt; r.Orders != 20 || !r.HTTP || r.Idle == nil || r.Restarted <= 0 || x.Records < 2000 || x.Seconds <= 0 || x.RecordsPerSecond <= 0 {
		t.Errorf("%+v, %+v", r, x)
	}
}

// An instance that has its partitions asks for something while it has nothing to do, and the clients of its lanes are
// among those whose connections are counted.
func TestRunIdle(t *testing.T) {
	run := func(partitions int32) *Report {
		r, err := Run(t.Context(), Options{Partitions: partitions, InFlight: 4, Orders: 20, Single: 5, Idle: 300 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	one, four := run(1), run(4)
	if i := four.Idle; four.Owned <= 0 || i == nil || i.Requests <= 0 || i.CPU <= 0 || i.Seconds < 0.3 {
		t.Errorf("%+v, %+v", four, i)
	}
	// Each lane has four producers and two readers.
	if n := four.Connections - one.Connections; n < 3*6 {
		t.Errorf("three lanes more have %d connections more: %d after %d", n, four.Connections, one.Connections)
	}
}

// What a processor waits for is no work, and neither is what runs in guests, which is in user time already.
func TestMachineTime(t *testing.T) {
	worked, stolen := parseStat("cpu  1 20 300 4000 50000 600000 7000000 80000000 9 9\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
	if worked != 76003210*time.Millisecond || stolen != 800000*time.Second {
		t.Errorf("%s and %s", worked, stolen)
	}
	if worked, stolen := parseStat(""); worked != 0 || stolen != 0 {
		t.Errorf("of nothing %s and %s", worked, stolen)
	}
}

// Connections are counted as long as they are there.
func TestConnections(t *testing.T) {
	written := &writes{}
	b := kafka.Embedded(t)
	client, err := kgo.NewClient(kgo.SeedBrokers(b.Brokers...), kgo.WithHooks(written))
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Ping(t.Context()); err != nil || written.connections.Load() == 0 || written.all.Load() == 0 {
		t.Errorf("%d connections, %d requests, %v", written.connections.Load(), written.all.Load(), err)
	}
	client.Close()
	oracle.Until(t, "no connection is left", func() error {
		if n := written.connections.Load(); n != 0 {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
}

// Without brokers it brings its own. What a container uses is told beside it.
func TestRunEmbedded(t *testing.T) {
	docker(t)
	r, err := Run(t.Context(), Options{Partitions: 1, InFlight: 4, Orders: 20, Single: 5, Fsync: true, KafkaContainer: "k"})
	if err != nil {
		t.Fatal(err)
	}
	if r.Broker != "embedded, fsync" || r.Orders != 20 {
		t.Errorf("%+v", r)
	}
	// It is asked before and after the orders under load, of which it took 5 ms.
	if k := r.Kafka; k == nil || k.CPUPerOrder != 250 || k.CPU <= 0 || k.Memory != 8 {
		t.Errorf("%+v", k)
	}
}

// Twice as much as is carried is submitted for a moment, and all that was taken ends
// without an error, whether or not something is turned away.
func TestRunOverload(t *testing.T) {
	for _, lag := range []time.Duration{0, 100 * time.Millisecond} {
		r, err := Run(t.Context(), Options{Partitions: 1, InFlight: 16, Orders: 200, Single: 5, Duration: time.Second, Overload: time.Second, MaxLag: lag})
		if err != nil {
			t.Fatal(err)
		}
		if x := r.Overload; x.Errors > 0 || x.Submitted == 0 || lag == 0 && x.TurnedAway > 0 {
			t.Errorf("%+v", x)
		}
	}
}

// What came meanwhile takes the longer the more it is: it is waited for as long as the oldest
// order gets younger.
func TestOverloadIsCaughtUpWith(t *testing.T) {
	for name, c := range map[string]struct {
		oldest func(time.Duration) time.Duration
		took   time.Duration
	}{
		"ten minutes of it":   {func(after time.Duration) time.Duration { return time.Hour - 6*after }, 10 * time.Minute},
		"nothing gets better": {func(time.Duration) time.Duration { return time.Hour }, noProgress},
		"for three minutes":   {func(after time.Duration) time.Duration { return time.Hour - min(after, noProgress) }, 2 * noProgress},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x, began := &excess{load: &load{}}, time.Now()
				if err := x.caughtUp(t.Context(), time.Second, func() time.Duration { return c.oldest(time.Since(began)) }); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began).Round(time.Second); took != c.took {
					t.Errorf("it took %s, and not %s", took, c.took)
				}
			})
		})
	}
}

func TestNormalAgain(t *testing.T) {
	end := time.Now()
	at := func(second int, took time.Duration) submitted {
		return submitted{at: end.Add(time.Duration(second)*time.Second + time.Millisecond), took: took}
	}
	orders := []submitted{
		at(0, time.Minute), at(1, time.Millisecond), at(2, 21*time.Millisecond), at(3, 20*time.Millisecond), at(4, 10*time.Millisecond),
		at(5, 5*time.Millisecond), at(6, time.Second),
	}
	for normal, want := range map[float64][2]float64{10: {3, 10}, 1000: {1, 20}, 1: {7, 0}} {
		if after, p99 := normalAgain(orders, end, normal); after != want[0] || p99 != want[1] {
			t.Errorf("normal is %g ms: after %g s, with %g ms", normal, after, p99)
		}
	}
}
