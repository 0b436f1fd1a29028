package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/oracle"
)

// So many histories are read at once, and the next waits for its turn or until its
// caller has hung up. A reader that failed is not used again.
func TestHistoriesShareReaders(t *testing.T) {
	i := &Instance{readers: newReaders(), kafka: []kgo.Opt{kgo.SeedBrokers("127.0.0.1:1"), kgo.DisableClientMetrics()}}
	var used []*pageReader
	for range maxReaders {
		client, err := i.reader(t.Context())
		must(t, err)
		used = append(used, client)
	}
	gone, hangUp := context.WithCancel(t.Context())
	hangUp()
	if _, err := i.reader(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("one reader more than %d: %v", maxReaders, err)
	}
	i.giveBack(used[0], 0, nil)
	if client, err := i.reader(t.Context()); err != nil || client != used[0] {
		t.Errorf("the reader was not kept: %v", err)
	}
	i.giveBack(used[1], 0, errors.New("it failed"))
	client, err := i.reader(t.Context())
	must(t, err)
	if client == used[1] {
		t.Error("a reader that failed is used again")
	}
	for _, client := range append(used, client) {
		client.Close()
	}
}

// Histories of a partition of the journal without a leader end soon, and after the first
// of them one at a time waits for it: those of others find a reader.
func TestHistoriesOfASilentPartition(t *testing.T) {
	h := newTorn(t, kafka.Embedded(t))
	h.run("i-1")
	i := h.instance
	must(t, i.Register(t.Context(), parseFlow(t, "workflow: order\nsteps: [{name: charge, agent: payment, timeout: 1h}]")))
	other := h.elsewhere[0]
	for _, id := range []string{"torn", other} {
		h.submit(id)
		h.started(id)
	}
	read := func(ctx context.Context, id string) error {
		_, err := i.History(ctx, id, 0, MaxHistory)
		return err
	}
	silent := func(err error) {
		t.Helper()
		if !errors.Is(err, ErrSilent) {
			t.Errorf("a history of a partition without a leader: %v", err)
		}
	}
	patience := func(d time.Duration) {
		i.silences.mu.Lock()
		defer i.silences.mu.Unlock()
		i.silences.patience = d
	}
	must(t, read(t.Context(), "torn"))
	patience(50 * time.Millisecond)

	heals := h.withoutLeader(h.topics.Journal, h.partition)
	all := make(chan error, 2*maxReaders)
	longer, cancel := context.WithTimeout(t.Context(), 30*time.Second) // than the patience: who gives up before is not told of a silence
	defer cancel()
	for range cap(all) {
		go func() { all <- read(longer, "torn") }()
	}
	for range cap(all) {
		silent(<-all)
	}
	// Where Kafka is slow, who comes next finds a reader that is connected.
	kept := 0
	for range maxReaders {
		r := <-i.readers
		if r != nil {
			kept++
		}
		i.readers <- r
	}
	if kept == 0 {
		t.Error("each reader that heard nothing was closed")
	}
	patience(time.Hour)
	must(t, read(t.Context(), other))

	ctx, hangUp := context.WithCancel(t.Context())
	tried := make(chan error, 1)
	go func() { tried <- read(ctx, "torn") }()
	oracle.Until(t, "one tries", func() error {
		i.silences.mu.Lock()
		defer i.silences.mu.Unlock()
		if len(i.silences.trying) == 0 {
			return errors.New("nobody does")
		}
		return nil
	})
	for range 2 * maxReaders {
		silent(read(t.Context(), "torn"))
		must(t, read(t.Context(), other))
	}
	// One of another partition that was silent does not wait for that.
	i.silences.mu.Lock()
	i.silences.of[i.Partition(other)] = true
	i.silences.mu.Unlock()
	must(t, read(t.Context(), other))
	hangUp()
	if err := <-tried; !errors.Is(err, context.Canceled) {
		t.Errorf("who has hung up: %v", err)
	}
	heals()
	for range 2 {
		must(t, read(t.Context(), "torn"))
	}
	if len(i.silences.of) != 0 || len(i.silences.trying) != 0 {
		t.Errorf("what answers is remembered: %v, %v", i.silences.of, i.silences.trying)
	}
}

// Who hears nothing for a moment waits beside the readers that all share, as far as there is
// room. The next of that partition begins there, also if those before had no patience; of who
// hangs up at once nobody learns anything.
func TestHistoriesThatWaitStepAside(t *testing.T) {
	h := newTorn(t, kafka.Embedded(t))
	h.run("i-1")
	i := h.instance
	must(t, i.Register(t.Context(), parseFlow(t, "workflow: order\nsteps: [{name: charge, agent: payment, timeout: 1h}]")))
	other := h.elsewhere[0]
	for _, id := range []string{"torn", other} {
		h.submit(id)
		h.started(id)
	}
	silence := func(moment time.Duration) {
		i.silences.mu.Lock()
		defer i.silences.mu.Unlock()
		i.silences.moment, i.silences.patience = moment, time.Hour
	}
	// read has so many read the history of the order without a leader, until they hang up.
	read := func(callers int) (ended chan error, hangUp func()) {
		ctx, hangUp := context.WithCancel(t.Context())
		ended = make(chan error, callers)
		for range callers {
			go func() {
				_, err := i.History(ctx, "torn", 0, MaxHistory)
				ended <- err
			}()
		}
		return ended, hangUp
	}
	aside := func(want int) {
		t.Helper()
		oracle.Until(t, "all are aside that can be", func() error {
			i.silences.mu.Lock()
			defer i.silences.mu.Unlock()
			if i.silences.aside != want {
				return fmt.Errorf("%d are, and not %d", i.silences.aside, want)
			}
			return nil
		})
	}
	others := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if _, err := i.History(ctx, other, 0, MaxHistory); err != nil {
			t.Fatalf("a history of another partition: %v", err)
		}
	}

	heals := h.withoutLeader(h.topics.Journal, h.partition)
	silence(time.Millisecond)
	const callers = maxAside + maxReaders - 1
	ended, hangUp := read(callers)
	aside(maxAside)
	others() // on the last place
	hangUp()
	for range callers {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("who has hung up: %v", err)
		}
	}
	aside(0)

	if i.silences.slow[h.partition].IsZero() {
		t.Error("nobody learned that the partition is slow")
	}
	// It is silent once nothing was heard for as long as one would wait, whoever waited.
	i.silences.slow[h.partition] = time.Now().Add(-2 * time.Hour)
	ended, hangUp = read(1)
	oracle.Until(t, "it counts as silent", func() error {
		i.silences.mu.Lock()
		defer i.silences.mu.Unlock()
		if !i.silences.of[h.partition] {
			return errors.New("it does not")
		}
		return nil
	})
	hangUp()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("who has hung up: %v", err)
	}
	i.silences.of[h.partition] = false
	silence(time.Hour)
	ended, hangUp = read(maxReaders)
	aside(maxReaders)
	others()
	heals()
	for range maxReaders {
		must(t, <-ended)
	}
	hangUp()
	if len(i.silences.slow) != 0 {
		t.Errorf("what answers is remembered: %v", i.silences.slow)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 {
		if _, err := i.History(gone, other, 0, MaxHistory); !errors.Is(err, context.Canceled) || len(i.silences.slow) != 0 {
			t.Errorf("who is gone at once: %v, and slow are %v", err, i.silences.slow)
		}
	}
	if i.silences.aside != 0 || len(i.readers) != maxReaders {
		t.Errorf("%d are aside, and there are %d places", i.silences.aside, len(i.readers))
	}
}

// withoutLeader has nobody read a partition until it heals.
func (h *torn) withoutLeader(topic string, partition int32) (heals func()) {
	h.Helper()
	details, err := h.broker.Admin(h).ListTopics(h.Context(), topic)
	must(h, err)
	id := [16]byte(details[topic].ID)
	var healed atomic.Bool
	h.broker.Fake.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		h.broker.Fake.KeepControl()
		q := r.(*kmsg.FetchRequest)
		a := q.ResponseKind().(*kmsg.FetchResponse)
		hit := false
		for _, on := range q.Topics {
			at := kmsg.NewFetchResponseTopic()
			at.Topic, at.TopicID = on.Topic, on.TopicID
			for _, p := range on.Partitions {
				to := kmsg.NewFetchResponseTopicPartition()
				to.Partition, to.ErrorCode = p.Partition, kerr.NotLeaderForPartition.Code
				hit = hit || (on.Topic == topic || on.TopicID == id) && p.Partition == partition
				at.Partitions = append(at.Partitions, to)
			}
			a.Topics = append(a.Topics, at)
		}
		return a, nil, hit && !healed.Load()
	})
	return func() { healed.Store(true) }
}
