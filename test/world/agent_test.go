package world_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/test/world"
)

// A faulty agent in a few lines: what it does of what it is asked for follows from
// its seed, and once it is well it does all. On steps that are sure it is never
// silent.
func TestFaultyAgent(t *testing.T) {
	broker := kfake.MustCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "requests", "replies"))
	t.Cleanup(broker.Close)
	client := func(topic string) *kgo.Client {
		c, err := kgo.NewClient(kgo.SeedBrokers(broker.ListenAddrs()...), kgo.ConsumeTopics(topic))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	service := world.NewService(1)
	requests := client("requests")
	var serving sync.WaitGroup
	serving.Go(func() { service.Agent(t.Context(), requests, t.Errorf) })
	t.Cleanup(serving.Wait)

	orderer := client("replies")
	ask := func(name string, orders int) (replied map[string]string) {
		for n := range orders {
			q := events.Request{Order: fmt.Sprint(name, n), Step: "sure-0", Attempt: 1, IdempotencyKey: fmt.Sprint(name, n), CompleteBy: time.Now().Add(time.Hour), ReplyTo: "replies"}
			orderer.Produce(t.Context(), &kgo.Record{Topic: "requests", Key: []byte(q.Order), Value: q.Append(nil)}, nil)
		}
		replied = make(map[string]string)
		for len(replied) < orders {
			for r := range orderer.PollFetches(t.Context()).RecordsAll() {
				reply, err := events.Decode[events.Reply](r.Value)
				if err != nil {
					t.Fatal(err)
				}
				if reply.Order[:1] == name {
					replied[reply.Order] = reply.Status
				}
			}
		}
		return replied
	}
	count := func(replied map[string]string, status string) (n int) {
		for _, s := range replied {
			if s == status {
				n++
			}
		}
		return n
	}
	if ill := ask("a", 100); count(ill, events.ReplyCompleted) == 0 || count(ill, events.ReplyFailed) == 0 {
		t.Errorf("it did all or nothing: %v", ill)
	}
	service.Recover()
	if well := ask("b", 100); count(well, events.ReplyCompleted) != 100 {
		t.Errorf("it is well, and did not do all: %v", well)
	}
}
