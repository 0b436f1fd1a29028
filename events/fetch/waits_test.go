package fetch_test

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events/fetch"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/oracle"
)

// A client that has stopped to fetch without a word, as kgo's may when its partitions change,
// is told to go on.
func TestAClientThatForgotToFetchIsTold(t *testing.T) {
	t.Parallel()
	b := kafka.Embedded(t)
	topic := kafka.Namespace(t)
	b.Create(t, 1, nil, topic)
	bound := new(fetch.Bound)
	client, err := bound.NewClient(kgo.SeedBrokers(b.Brokers...), kgo.FetchMaxWait(10*time.Millisecond),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(0)}}))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	producer := b.Client(t)
	write := func() {
		if err := producer.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte("a record")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	for written, read := 0, 0; ; {
		write()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		for written++; read < written; {
			if read += bound.Poll(ctx, 0).NumRecords(); ctx.Err() != nil {
				t.Fatalf("for 30 s only %d of %d records were read", read, written)
			}
		}
		cancel()
		if written > 3 {
			return
		}
		client.PauseFetchTopics(topic)
		for range 2 { // so that what fetches has ended
			read += poll(t, client)
		}
		write()
		written++
		forgetPauses(t, client)
		read += poll(t, client)
	}
}

// poll is kgo's own, for a moment.
func poll(t *testing.T, client *kgo.Client) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	return client.PollRecords(ctx, 0).NumRecords()
}

// forgetPauses has everything be fetched again that was paused, and tells nothing of the
// client to do so.
func forgetPauses(t *testing.T, client *kgo.Client) {
	t.Helper()
	at := reflect.ValueOf(client).Elem().FieldByName("consumer").FieldByName("paused")
	if !at.IsValid() || at.Type() != reflect.TypeFor[atomic.Value]() {
		t.Fatal("kgo keeps what is paused elsewhere: look there")
	}
	paused := (*atomic.Value)(unsafe.Pointer(at.UnsafeAddr())) // it has no name outside of kgo
	paused.Store(reflect.MakeMap(reflect.TypeOf(paused.Load())).Interface())
}

// polls counts how often a client was polled.
type polls struct{ atomic.Int64 }

func (p *polls) OnPollStart(context.Context) { p.Add(1) }

// Who waits for records keeps nobody from joining the group.
func TestWhoWaitsLetsOthersJoin(t *testing.T) {
	t.Parallel()
	b := kafka.Embedded(t)
	topic := kafka.Namespace(t)
	b.Create(t, 2, nil, topic)
	var waits sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	member := func() (*polls, <-chan struct{}) {
		count, assigned := new(polls), make(chan struct{}, 10)
		bound := new(fetch.Bound)
		client, err := bound.NewClient(kgo.SeedBrokers(b.Brokers...), kgo.ConsumerGroup(topic), kgo.ConsumeTopics(topic),
			kgo.BlockRebalanceOnPoll(), kgo.WithHooks(count),
			kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, given map[string][]int32) {
				if len(given) > 0 {
					assigned <- struct{}{}
				}
			}))
		if err != nil {
			t.Fatal(err)
		}
		waits.Go(func() {
			defer client.CloseAllowingRebalance()
			for ctx.Err() == nil {
				bound.Poll(ctx, 0)
			}
		})
		return count, assigned
	}
	defer waits.Wait()
	defer cancel()
	first, has := member()
	within := func(what string, has <-chan struct{}) {
		select {
		case <-has:
		case <-time.After(30 * time.Second):
			t.Fatalf("the %s got no partition", what)
		}
	}
	within("first", has)
	oracle.Until(t, "the first has waited long", func() error {
		if n := first.Load(); n < 3 {
			return fmt.Errorf("it was polled %d times", n)
		}
		return nil
	})
	_, has = member()
	within("second, which the first may not have let join,", has)
}
