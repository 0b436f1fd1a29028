package agents

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
)

// read is a job as the fetching goroutine puts it.
func read(r rank, p *partition, name string) job {
	return job{Record: &kgo.Record{Key: []byte(name), Value: make([]byte, 100)}, partition: p, rank: r}
}

func taken(t *testing.T, q *queue) string {
	t.Helper()
	j, ok := q.take()
	if !ok {
		t.Fatal("the queue closed")
	}
	return string(j.Key)
}

// P5: high before normal before low, each first come first served, and the
// oldest whatever it is at every eighth pick.
func TestP5HighFirst(t *testing.T) {
	q, p := newQueue(), new(partition)
	for i := range 3 {
		q.put([]job{read(low, p, fmt.Sprint("low-", i)), read(normal, p, fmt.Sprint("normal-", i)), read(high, p, fmt.Sprint("high-", i))})
	}
	var order []string
	for range 9 {
		order = append(order, taken(t, q))
	}
	want := "high-0 high-1 high-2 normal-0 normal-1 normal-2 low-0 low-1 low-2"
	if got := strings.Join(order, " "); got != want {
		t.Errorf("taken in the order %s, want %s", got, want)
	}
}

// P5: half of its time over, the oldest is taken before all others: those that keep coming
// must not have it expire.
func TestP5WhatHasLittleTimeLeft(t *testing.T) {
	q, p := newQueue(), new(partition)
	now := time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)
	q.now = func() time.Time { return now }
	for i, completeBy := range []string{"12:00:10", "12:01:00"} {
		j := read(low, p, fmt.Sprint("low-", i))
		j.Timestamp, j.Value = now, fmt.Appendf(nil, `{"completeBy":"2026-01-05T%sZ"}`, completeBy)
		q.put([]job{j})
	}
	for range 40 {
		q.put([]job{read(high, p, "high")})
	}
	expect := func(after time.Duration, want string) {
		t.Helper()
		now = now.Add(after)
		if got := taken(t, q); got != want {
			t.Errorf("after %v more %s is taken, and not %s", after, got, want)
		}
	}
	expect(0, "high")
	expect(4999*time.Millisecond, "high")
	expect(time.Millisecond, "low-0")
	expect(20*time.Second, "high")
	expect(5*time.Second, "low-1")
	expect(time.Hour, "high")
}

// P5: however many high requests keep coming, the oldest low one is taken within
// eight picks.
func TestP5LowDoesNotStarve(t *testing.T) {
	q, p := newQueue(), new(partition)
	const lows = 50
	for i := range lows {
		q.put([]job{read(low, p, fmt.Sprint("low-", i))})
	}
	since, next := 0, 0
	for next < lows {
		q.put([]job{read(high, p, "high")})
		if name := taken(t, q); name == "high" {
			since++
		} else {
			if name != fmt.Sprint("low-", next) {
				t.Fatalf("%s was taken before low-%d", name, next)
			}
			next, since = next+1, 0
		}
		if since >= fairness {
			t.Fatalf("low-%d still waits after %d high ones", next, since)
		}
	}
}

// P5: against a model that keeps a list, with every mix and with terms that end.
func TestP5ReadAheadAgainstModel(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 0))
		q := newQueue()
		terms := []*partition{new(partition), new(partition), new(partition)}
		var model []job // in the order of arrival
		picks := 0
		for i := range 3000 {
			switch n := random.IntN(100); {
			case n < 50:
				j := read(rank(random.IntN(int(ranks))), terms[random.IntN(3)], fmt.Sprint(i))
				q.put([]job{j})
				model = append(model, j)
			case n < 99 && len(model) > 0:
				picks++
				best := 0
				for m := range model {
					if picks%fairness != 0 && model[m].rank < model[best].rank {
						best = m
					}
				}
				if got, want := taken(t, q), string(model[best].Key); got != want {
					t.Fatalf("seed %d: took %s, want %s", seed, got, want)
				}
				model = append(model[:best], model[best+1:]...)
			case n == 99:
				over := random.IntN(3)
				terms[over].over.Store(true)
				q.forget()
				kept := model[:0]
				for _, j := range model {
					if j.partition != terms[over] {
						kept = append(kept, j)
					}
				}
				model, terms[over] = kept, new(partition)
			}
			if q.waiting != len(model) || q.bytes != 100*len(model) {
				t.Fatalf("seed %d: it says %d jobs of %d bytes, there are %d", seed, q.waiting, q.bytes, len(model))
			}
		}
	}
}

// P5: what is read ahead is bounded in number and in bytes, and goes on when
// there is room again.
func TestP5ReadAheadIsBounded(t *testing.T) {
	q, p := newQueue(), new(partition)
	for i := 0; q.hasRoom(); i++ {
		if i > readAhead {
			t.Fatal("the number is not bounded")
		}
		q.put([]job{read(normal, p, "")})
	}
	room := make(chan bool)
	go func() { room <- q.awaitRoom() }()
	taken(t, q)
	if !<-room {
		t.Error("no room after a job was taken")
	}

	q = newQueue()
	for range 64 {
		q.put([]job{{Record: &kgo.Record{Value: make([]byte, events.MaxValue)}, partition: p}})
	}
	if q.hasRoom() {
		t.Errorf("room for more than %d bytes", q.bytes)
	}
	go func() { room <- q.awaitRoom() }()
	p.over.Store(true)
	q.forget()
	if !<-room {
		t.Error("no room after the term ended")
	}

	// Whoever waits is let go when it closes, and nothing is left in it.
	for i := 0; q.hasRoom(); i++ {
		q.put([]job{read(normal, p, "")})
	}
	go func() { room <- q.awaitRoom() }()
	q.close()
	if <-room {
		t.Error("room in a closed queue")
	}
	if _, ok := q.take(); ok {
		t.Error("a job in a closed queue")
	}
}

// P5: what a worker took just when the partition went to another instance is left
// to that one.
func TestP5ReadAheadAfterItsTermIsLeft(t *testing.T) {
	topics, err := events.NewTopics(events.DefaultNamespace)
	if err != nil {
		t.Fatal(err)
	}
	var executed []string
	s, err := newServer(t.Context(), Config{Agent: "payment", Brokers: []string{"127.0.0.1:1"}, Logger: slog.New(slog.DiscardHandler), Observer: unobserved{}}, topics, Operations{
		"charge": Do(func(_ context.Context, r Request[any]) (any, error) {
			executed = append(executed, r.Order)
			return nil, nil
		}),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.client.Close()
	for _, order := range []string{"over", "own"} {
		p := new(partition)
		p.over.Store(order == "over")
		r := events.Request{Order: order, Step: "pay", Attempt: 1, Operation: "charge", CompleteBy: events.Time(time.Now().Add(time.Hour)), ReplyTo: "r"}
		s.answer(job{Record: &kgo.Record{Value: r.Append(nil)}, partition: p})
	}
	if !slices.Equal(executed, []string{"own"}) {
		t.Errorf("executed were %v", executed)
	}
}

// P5: the priority is the request's own field, and nothing else of that name.
func TestP5PriorityIsRead(t *testing.T) {
	for value, want := range map[string]rank{
		`{"order":"o"}`:                                  normal,
		`{"order":"o","priority":"high"}`:                high,
		`{"order":"o","priority":"low","replyTo":"r"}`:   low,
		`{"order":"o","priority":"normal"}`:              normal,
		`{"order":"o","priority":"urgent"}`:              normal,
		`{"order":"o","priority":7}`:                     normal,
		`{"order":"o","input":{"priority":"high"}}`:      normal,
		`{"input":{"priority":"high"},"priority":"low"}`: low,
		`{"priority":"high"`:                             normal,
		`"priority"`:                                     normal,
		``:                                               normal,
	} {
		if got := rankOf(priority([]byte(value))); got != want {
			t.Errorf("%s has rank %d, want %d", value, got, want)
		}
	}
	r := events.Request{Order: "o", Priority: events.High, Input: []byte(`{"a":1}`)}
	if got := rankOf(priority(r.Append(nil))); got != high {
		t.Errorf("the contract's own writing has rank %d", got)
	}
}
