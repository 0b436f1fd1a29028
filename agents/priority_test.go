package agents_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/events"
)

// P5: an instance that is short takes high requests first, whatever came before
// them; and each is answered and committed as ever.
func TestP5HighRequestsAreExecutedFirst(t *testing.T) {
	k := newKafka(t, 1)
	for i, p := range []events.Priority{events.Low, "", events.Low, events.High, events.Normal, events.High} {
		r := request(fmt.Sprintf("o-%d", i), "charge", "{}")
		r.Priority = p
		k.ask(r)
	}
	want := []string{"o-3", "o-5", "o-1", "o-4", "o-0", "o-2"}

	config := k.config()
	config.Concurrency = 1
	var got []string // written by the one worker
	k.serve(config, agents.Operations{"charge": agents.Do(func(_ context.Context, r agents.Request[charge]) (receipt, error) {
		got = append(got, r.Order)
		return receipt{}, nil
	})})
	k.awaitCommit(0, 6)
	k.records(6)
	if !slices.Equal(got, want) {
		t.Errorf("executed in the order %v, want %v", got, want)
	}
}

// P5: what was read ahead and not started is uncommitted, also when requests that
// came later were answered; the next instance gets it.
func TestP5ReadAheadIsLeftToOthers(t *testing.T) {
	k := newKafka(t, 1)
	low, high := request("low", "charge", "{}"), request("high", "hold", "")
	low.Priority, high.Priority = events.Low, events.High
	k.ask(low, high)

	config := k.config()
	config.Concurrency = 1
	holds, release := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	operations := agents.Operations{
		"hold": agents.Do(func(context.Context, agents.Request[struct{}]) (receipt, error) {
			close(holds)
			<-release
			return receipt{}, nil
		}),
		"charge": agents.Do(func(context.Context, agents.Request[charge]) (receipt, error) {
			t.Error("a request was started after the stop")
			return receipt{}, nil
		}),
	}
	go func() { stopped <- agents.Serve(ctx, config, operations) }()
	await(t, "the high request", holds)
	cancel()
	close(release)
	if err := await(t, "the stop", stopped); err != nil {
		t.Error(err)
	}
	if got := k.reply(); got.Order != "high" || k.committed(0) != 0 {
		t.Errorf("replied to %s, committed %d; want high and nothing", got.Order, k.committed(0))
	}
	k.serve(k.config(), agents.Operations{"hold": agents.Do(pay), "charge": agents.Do(pay)})
	k.statuses(2)
	k.awaitCommit(0, 2)
}
