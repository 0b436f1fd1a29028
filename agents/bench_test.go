package agents_test

import (
	"context"
	"fmt"
	"log/slog"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/events"
)

// BenchmarkServe measures one instance with a trivial handler, from a full queue
// to the last reply on Kafka. The broker runs in the same process, so its share
// is in cpu-us/request.
func BenchmarkServe(b *testing.B) {
	const requests = 100_000
	var elapsed, spent time.Duration
	for range b.N {
		b.StopTimer()
		cluster := kfake.MustCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, "waybill.requests.payment", "waybill.replies"))
		preload(b, cluster, requests)
		ctx, stop := context.WithCancel(b.Context())
		done := make(chan error)
		before := cpu()
		b.StartTimer()

		start := time.Now()
		go func() {
			done <- agents.Serve(ctx, agents.Config{
				Agent: "payment", Brokers: cluster.ListenAddrs(), Logger: slog.New(slog.DiscardHandler),
			}, agents.Operations{"charge": agents.Do(func(context.Context, agents.Request[charge]) (receipt, error) {
				return receipt{ID: "r-1"}, nil
			})})
		}()
		for replied(cluster) < requests {
			time.Sleep(5 * time.Millisecond)
		}
		elapsed += time.Since(start)
		spent += cpu() - before

		stop()
		if err := <-done; err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		cluster.Close()
		b.StartTimer()
	}
	total := float64(b.N) * requests
	b.ReportMetric(total/elapsed.Seconds(), "requests/s")
	b.ReportMetric(float64(spent.Microseconds())/total, "cpu-us/request")
}

func replied(cluster *kfake.Cluster) (n int64) {
	for _, p := range cluster.PartitionInfos("waybill.replies") {
		n += p.HighWatermark
	}
	return n
}

func preload(b *testing.B, cluster *kfake.Cluster, n int) {
	b.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	var failed kgo.FirstErrPromise
	for i := range n {
		r := events.Request{
			Order: fmt.Sprintf("o-%d", i), Step: "charge", Attempt: 1, Operation: "charge",
			CompleteBy:     time.Now().Add(time.Hour),
			IdempotencyKey: fmt.Sprintf("o-%d/charge", i),
			Input:          []byte(`{"amount":1999,"currency":"EUR"}`),
			ReplyTo:        "waybill.replies",
		}
		e := events.Envelope{Source: "/bench", Type: events.StepRequested, ID: fmt.Sprint(i), Order: r.Order, Time: time.Now()}
		client.Produce(b.Context(), e.Record("waybill.requests.payment", r.Append(nil)), failed.Promise())
	}
	if err := failed.Err(); err != nil {
		b.Fatal(err)
	}
}

// cpu is the time that this process has spent on all processors.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

type charge struct {
	Amount   int    `json:"amount"`
	Currency string `json:"currency"`
}

type receipt struct {
	ID string `json:"id"`
}
