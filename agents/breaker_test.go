package agents_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/events"
)

// What the agent logs when its breaker changes.
const (
	opens    = "the circuit breaker opened"
	halfOpen = "the circuit breaker is half open"
	closes   = "the circuit breaker closed"
)

// statuses waits for one reply to each order, and returns their statuses.
func (k *kafka) statuses(orders int) map[string]string {
	k.Helper()
	got := make(map[string]string)
	for len(got) < orders {
		reply := k.reply()
		got[reply.Order] = reply.Status
	}
	return got
}

func requests(operation string, n int) []events.Request {
	all := make([]events.Request, n)
	for i := range all {
		all[i] = request(fmt.Sprintf("o-%d", i), operation, "")
	}
	return all
}

// A6, P5: the instance whose breaker opens leaves, and a healthy one gets all of
// the work, also what the first had read.
func TestA6P5OpenBreakerGivesTheWorkToHealthyInstances(t *testing.T) {
	const orders, failures = 400, 3
	k := newKafka(t, 4)
	var sick, healthy atomic.Int64

	config := k.config()
	config.Concurrency = 1
	config.Breaker = &agents.Breaker{Failures: failures, Delay: time.Hour}
	opened := k.log.on(opens)
	k.serve(config, agents.Operations{"charge": agents.Do(func(context.Context, agents.Request[struct{}]) (struct{}, error) {
		sick.Add(1)
		return struct{}{}, errBusy
	})})
	k.serve(k.config(), agents.Operations{"charge": agents.Do(func(context.Context, agents.Request[struct{}]) (struct{}, error) {
		healthy.Add(1)
		return struct{}{}, nil
	})})
	k.awaitGroup("partitions for both", func(g *kfake.GroupInfo) bool {
		return g.State == "Stable" && len(g.Members) == 2 && g.Members[0].NumAssigned() == 2 && g.Members[1].NumAssigned() == 2
	})

	k.ask(requests("charge", orders)...)
	await(t, "the breaker to open", opened)
	count := make(map[string]int)
	for _, status := range k.statuses(orders) {
		count[status]++
	}
	if count["failed"] != failures || count["completed"] != orders-failures {
		t.Errorf("the replies are %v, want %d failed and all others completed", count, failures)
	}
	k.awaitGroup("one instance with all partitions", func(g *kfake.GroupInfo) bool {
		return g.State == "Stable" && len(g.Members) == 1 && g.Members[0].NumAssigned() == 4
	})

	// From now on it is the healthy one's alone.
	before := healthy.Load()
	k.ask(requests("charge", orders)...)
	for order, status := range k.statuses(orders) {
		if status != "completed" {
			t.Errorf("%s %s", order, status)
		}
	}
	if got := sick.Load(); got != failures {
		t.Errorf("the sick instance made %d calls, want %d", got, failures)
	}
	if got := healthy.Load() - before; got != orders {
		t.Errorf("the healthy instance made %d calls, want %d", got, orders)
	}
}

// A6: no call while the breaker is open; one at a time in a trial; and all work
// is done in the end, by the only instance there is.
func TestA6NoCallWhileOpenAndAllDoneAfterwards(t *testing.T) {
	const orders = 300
	k := newKafka(t, 2)
	config := k.config()
	config.Concurrency = 8
	config.Breaker = &agents.Breaker{Failures: 2, Window: 2, Delay: 100 * time.Millisecond, Successes: 3}
	opened, trial, again, closed := k.log.on(opens), k.log.on(halfOpen), k.log.on("the trial failed"), k.log.on(closes)
	var ill atomic.Bool
	ill.Store(true)
	var running, calls atomic.Int64
	full := make(chan struct{}) // closed when all workers are in the handler
	fill := sync.OnceFunc(func() { close(full) })
	isClosed := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	k.serve(config, agents.Operations{
		"first": agents.Do(func(context.Context, agents.Request[struct{}]) (struct{}, error) { return struct{}{}, errBusy }),
		"charge": agents.Do(func(ctx context.Context, _ agents.Request[struct{}]) (struct{}, error) {
			call := calls.Add(1)
			at := running.Add(1)
			defer running.Add(-1)
			switch {
			case !isClosed(trial):
				t.Error("a call while the breaker is open")
			case call > 1 && !isClosed(again):
				t.Error("a second call in a trial whose first one failed")
			case ill.Load():
				return struct{}{}, errBusy // the trial fails: it opens again
			case isClosed(closed):
				if at == 8 {
					fill()
				}
				select {
				case <-full:
				case <-ctx.Done():
				}
			case at > 1 && !isClosed(closed):
				t.Errorf("%d calls at a time in a trial", at)
			}
			return struct{}{}, nil
		}),
	})
	k.ask(requests("first", 2)...)
	await(t, "the breaker to open", opened)
	k.records(2)
	k.ask(requests("charge", orders)...)
	await(t, "the breaker to open after the trial", again)
	ill.Store(false)
	await(t, "the breaker to close", closed)
	await(t, "all workers to work again", full)
	k.statuses(orders)
}

// A6: which outcomes are no failure of the service.
func TestA6WhatDoesNotOpenTheBreaker(t *testing.T) {
	k := newKafka(t, 1)
	config := k.config()
	config.Concurrency = 1
	config.Breaker = &agents.Breaker{Failures: 1, Delay: time.Hour}
	opened := k.log.on(opens)
	var bad attempts
	k.serve(config, agents.Operations{
		"declined": bad.then(func(int) error { return agents.Permanent("card-declined", nil) }),
		"panics":   bad.then(func(int) error { panic("oh no") }),
		"charge":   agents.Do(pay),
		"busy":     bad.then(func(int) error { return errBusy }),
	})
	for range 5 {
		k.ask(request("o", "declined", ""), request("o", "panics", ""), request("o", "unknown", ""), request("o", "charge", `"text"`))
	}
	k.records(20)
	if log := k.log.String(); strings.Contains(log, opens) {
		t.Fatalf("the breaker opened:\n%s", log)
	}
	k.ask(request("o", "busy", ""))
	await(t, "the breaker to open", opened)
	if log := k.log.String(); !strings.Contains(log, `"error":"the bank is busy"`) {
		t.Errorf("the log does not say why the breaker opened:\n%s", log)
	}
}

// A4, A6: a service that hangs opens the breaker, though it returns no error in
// time; nothing is sent for it.
func TestA4A6HangingServiceOpensTheBreaker(t *testing.T) {
	k := newKafka(t, 1)
	config := k.config()
	config.Breaker = &agents.Breaker{Failures: 2, Delay: time.Hour}
	opened := k.log.on(opens)
	k.serve(config, agents.Operations{
		"hang": agents.Do(func(ctx context.Context, _ agents.Request[struct{}]) (struct{}, error) {
			<-ctx.Done()
			return struct{}{}, nil
		}),
		"charge": agents.Do(pay),
	})
	k.ask(request("o-0", "charge", "{}")) // joining the group may take its time
	k.records(1)
	for asked := int64(1); ; asked++ {
		// More than two if the machine is so slow that some begin late.
		r := request("o-1", "hang", "")
		r.CompleteBy = events.Time(time.Now().Add(500 * time.Millisecond))
		k.ask(r)
		k.awaitCommit(0, asked+1)
		select {
		case <-opened:
		default:
			continue
		}
		break
	}
	if n := k.replied(); n != 1 {
		t.Errorf("%d replies, want 1", n)
	}
}

// A2, A6: a request that waits for its next attempt when the breaker opens gets
// its last real error at once, so that the orchestrator can act.
func TestA2A6OpenBreakerEndsRetries(t *testing.T) {
	k := newKafka(t, 1)
	config := k.config()
	config.Retry = &agents.Retry{Attempts: 5, Backoff: time.Hour}
	config.Breaker = &agents.Breaker{Failures: 2, Delay: time.Hour}
	paused := make(chan struct{})
	var once attempts
	k.serve(config, agents.Operations{
		"first":  once.then(func(int) error { close(paused); return agents.Transient("first", errors.New("its own error")) }),
		"second": once.then(func(int) error { return errBusy }),
	})
	for _, operation := range []string{"first", "second"} {
		r := request("o-"+operation, operation, "")
		r.CompleteBy = events.Time(time.Now().Add(100 * time.Hour))
		k.ask(r)
		if operation == "first" {
			await(t, "the first attempt", paused)
		}
	}
	for range 2 {
		reply := k.reply()
		want := map[string]string{"o-first": "first", "o-second": "busy"}[reply.Order]
		if reply.Error == nil || reply.Error.Code != want || reply.Error.Permanent {
			t.Errorf("%s: replied %+v, want the error %s", reply.Order, reply.Error, want)
		}
	}
	if n := once.made(); n != 2 {
		t.Errorf("%d attempts, want 2", n)
	}
	k.awaitCommit(0, 2)
}

// A6, P5: what hangs does not keep the partitions from healthy instances, and
// still answers in its time.
func TestA6P5HangingHandlerDoesNotKeepPartitions(t *testing.T) {
	k := newKafka(t, 1)
	config := k.config()
	config.StopTimeout = time.Millisecond
	config.Breaker = &agents.Breaker{Failures: 1, Delay: time.Hour}
	hangs, release := make(chan struct{}), make(chan struct{})
	opened := k.log.on(opens)
	k.serve(config, agents.Operations{
		"hang": agents.Do(func(context.Context, agents.Request[struct{}]) (receipt, error) {
			close(hangs)
			<-release
			return receipt{ID: "first"}, nil
		}),
		"charge": agents.Do(func(context.Context, agents.Request[struct{}]) (receipt, error) { return receipt{}, errBusy }),
	})
	k.ask(request("slow", "hang", ""))
	await(t, "the handler", hangs)
	k.ask(request("o-1", "charge", ""))
	await(t, "the breaker to open", opened)
	if got := k.reply(); got.Order != "o-1" || got.Status != "failed" {
		t.Errorf("got %+v", got)
	}
	k.serve(k.config(), agents.Operations{"hang": agents.Do(pay), "charge": agents.Do(pay)})
	for range 2 {
		if got := k.reply(); string(got.Output) == `{"id":"first"}` || got.Status != "completed" {
			t.Errorf("the healthy instance replied %+v", got)
		}
	}
	k.awaitCommit(0, 2)
	close(release)
	if got := k.reply(); got.Order != "slow" || string(got.Output) != `{"id":"first"}` {
		t.Errorf("the handler that hung replied %+v", got)
	}
}

// A stop is prompt in every phase of a breaker: at rest, in a trial, and while
// the last handlers run.
func TestA6StopInEveryPhase(t *testing.T) {
	fail := agents.Operations{"charge": agents.Do(func(context.Context, agents.Request[struct{}]) (struct{}, error) {
		return struct{}{}, errBusy
	})}
	empty := func(g *kfake.GroupInfo) bool { return len(g.Members) == 0 }
	t.Run("at rest", func(t *testing.T) {
		k := newKafka(t, 1)
		config := k.config()
		config.Breaker = &agents.Breaker{Failures: 1, Delay: time.Hour}
		stop := k.serve(config, fail)
		k.ask(request("o", "charge", ""))
		k.awaitCommit(0, 1)
		k.awaitGroup("an empty group", empty)
		stop()
	})
	t.Run("in a trial", func(t *testing.T) {
		k := newKafka(t, 1)
		config := k.config()
		config.Breaker = &agents.Breaker{Failures: 1, Delay: time.Millisecond}
		trial := k.log.on(halfOpen)
		stop := k.serve(config, fail)
		k.ask(request("o", "charge", ""))
		await(t, "the trial", trial)
		k.awaitGroup("the instance to be back", func(g *kfake.GroupInfo) bool { return g.State == "Stable" && len(g.Members) == 1 })
		stop()
		k.awaitGroup("an empty group", empty)
	})
	t.Run("while handlers run", func(t *testing.T) {
		k := newKafka(t, 1)
		config := k.config()
		config.StopTimeout = 10 * time.Millisecond
		config.Breaker = &agents.Breaker{Failures: 1, Delay: time.Hour}
		hangs, opened := make(chan struct{}), k.log.on(opens)
		stop := k.serve(config, agents.Operations{
			"charge": fail["charge"],
			"hang": agents.Do(func(ctx context.Context, _ agents.Request[struct{}]) (struct{}, error) {
				close(hangs)
				<-ctx.Done()
				return struct{}{}, ctx.Err()
			}),
		})
		k.ask(request("slow", "hang", ""))
		await(t, "the handler", hangs)
		k.ask(request("o", "charge", ""))
		await(t, "the breaker to open", opened)
		stop()
		if n := k.replied(); n != 1 {
			t.Errorf("%d replies, want 1: what the stop interrupted comes again", n)
		}
		if got := k.committed(0); got != 0 {
			t.Errorf("%d is committed over a request that is unanswered", got)
		}
		k.awaitGroup("an empty group", empty)
	})
}
