package broker

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestDiskGuard(t *testing.T) {
	var free atomic.Uint64
	free.Store(DefaultMinFree)
	var blind atomic.Bool
	b, err := start(Config{Dir: t.TempDir(), Addr: "127.0.0.1:0"}, disk{sync: (*os.File).Sync, free: func(string) (uint64, error) {
		if blind.Load() {
			return 0, errors.New("no such file system")
		}
		return free.Load(), nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer closeBroker(t, b)
	createTopics(t, b.Addr(), 1, "journal")
	client := newClient(t, b.Addr())
	defer client.Close()

	want := func(when string, full bool, produceErr error) {
		t.Helper()
		b.guard.check() // not to wait for the next tick
		if b.Full() != full {
			t.Errorf("%s: full is %t", when, b.Full())
		}
		if err := rawProduce(t, client, "journal"); !errors.Is(err, produceErr) {
			t.Errorf("%s: produce: %v, want %v", when, err, produceErr)
		}
	}
	want("enough space", false, nil)
	free.Store(DefaultMinFree - 1)
	want("too little space", true, kerr.KafkaStorageError)
	blind.Store(true)
	want("space unknown", true, kerr.KafkaStorageError)
	blind.Store(false)
	free.Store(DefaultMinFree)
	want("space again", false, nil)
	if !kerr.IsRetriable(kerr.KafkaStorageError) {
		t.Error("clients do not retry what the guard answers")
	}
}

// A transaction that has all its records in can end on an almost full disk,
// and a client that has not goes on by itself once there is space.
func TestDiskGuardAndTransactions(t *testing.T) {
	var free atomic.Uint64
	free.Store(DefaultMinFree)
	b, err := start(Config{Dir: t.TempDir(), Addr: "127.0.0.1:0"}, disk{
		sync: (*os.File).Sync, free: func(string) (uint64, error) { return free.Load(), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer closeBroker(t, b)
	createTopics(t, b.Addr(), 1, "journal")

	client := newClient(t, b.Addr(), kgo.TransactionalID("lane"), kgo.DefaultProduceTopic("journal"),
		kgo.MetadataMinAge(10*time.Millisecond)) // how long a client waits before it tries a refused record again
	defer client.Close()
	commit := func(during func()) {
		t.Helper()
		if err := client.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		during()
		if err := client.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
			t.Fatal(err)
		}
	}
	commit(func() {
		if err := client.ProduceSync(t.Context(), kgo.StringRecord("before")).FirstErr(); err != nil {
			t.Fatal(err)
		}
		free.Store(0)
		b.guard.check()
	})
	commit(func() {
		written := make(chan error, 1)
		client.Produce(context.Background(), kgo.StringRecord("after"), func(_ *kgo.Record, err error) { written <- err })
		b.guard.mu.Lock()
		refusal := b.guard.refusal
		b.guard.mu.Unlock()
		if err := refusal.Wait(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		free.Store(DefaultMinFree)
		b.guard.check()
		if err := <-written; err != nil {
			t.Fatal(err)
		}
	})
	if got, want := consume(t, b.Addr(), "journal", 2), "before after"; got != want {
		t.Errorf("read %q, want %q", got, want)
	}
}
