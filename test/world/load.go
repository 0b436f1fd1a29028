package world

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Load submits orders, whatever becomes of Kafka and the instances. What was
// attempted once is attempted until it is acknowledged: nobody can know whether
// an attempt that failed has submitted it.
type Load struct {
	submit  func(ctx context.Context, n int64) error
	cease   context.CancelFunc
	workers sync.WaitGroup
	ended   chan struct{}

	attempted, acked, again atomic.Int64

	mu      sync.Mutex
	through int64          // all up to it were acknowledged
	beyond  map[int64]bool // what was, behind one that was not
}

// Submitting begins to submit orders, the first of which is number 1, with some
// workers and one order every so often, if Kafka keeps up. When ctx ends, so does
// what is still being tried.
func Submitting(ctx context.Context, workers int, every time.Duration, submit func(ctx context.Context, n int64) error) *Load {
	ceasing, cease := context.WithCancel(ctx)
	l := &Load{submit: submit, cease: cease, ended: make(chan struct{}), beyond: make(map[int64]bool)}
	for range workers {
		l.workers.Go(func() { l.work(ctx, ceasing, every*time.Duration(workers)) })
	}
	go func() {
		l.workers.Wait()
		close(l.ended)
	}()
	return l
}

func (l *Load) work(ctx, ceasing context.Context, every time.Duration) {
	pace := time.NewTicker(every)
	defer pace.Stop()
	for ceasing.Err() == nil {
		n := l.attempted.Add(1)
		for l.submit(ctx, n) != nil {
			if ctx.Err() != nil {
				return
			}
			l.again.Add(1)
			pause(ctx, 20*time.Millisecond)
		}
		l.acknowledged(n)
		select {
		case <-pace.C:
		case <-ceasing.Done():
		}
	}
}

// Cease begins no more orders.
func (l *Load) Cease() { l.cease() }

// Ended is closed once nothing is being tried any more.
func (l *Load) Ended() <-chan struct{} { return l.ended }

// Attempted is how many orders were attempted.
func (l *Load) Attempted() int64 { return l.attempted.Load() }

// Acked is how many of them were acknowledged. They are not the first so many: see [Load.Through].
func (l *Load) Acked() int64 { return l.acked.Load() }

// Through is up to which one all were acknowledged: a worker may try one of them for long while others go on.
func (l *Load) Through() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.through
}

func (l *Load) acknowledged(n int64) {
	l.acked.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.beyond[n] = true; l.beyond[l.through+1]; {
		l.through++
		delete(l.beyond, l.through)
	}
}

// Again is how often an attempt failed.
func (l *Load) Again() int64 { return l.again.Load() }

// IDs are those of the orders, once it has ended.
func (l *Load) IDs() []string {
	ids := make([]string, l.Acked())
	for n := range ids {
		ids[n] = OrderID(int64(n + 1))
	}
	return ids
}

// OrderID is that of the nth order.
func OrderID(n int64) string { return fmt.Sprintf("o-%06d", n) }
