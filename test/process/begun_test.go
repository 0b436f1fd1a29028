//go:build unix

package process

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/audit"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/leftout"
	"github.com/waybill-dev/waybill/test/world"
)

// S6, T1, T2: orders that nobody submits, of schedules of every second and of signals that start them, while the process that
// holds instance, broker and agents is killed: each tick begins one order or is accounted for, and each signal, sent twice,
// starts one. WAYBILL_TICKS says how many ticks each schedule has at least, WAYBILL_KILLS how often it is killed.
func TestOrdersBeginWhileDevIsKilled(t *testing.T) {
	t.Parallel()
	d := startDev(t)
	b := beginOrders(t, d.books, d.client, d.http)
	kills, by := number(t, "WAYBILL_KILLS", 3), rand.New(rand.NewPCG(drawnSeed(t), 0))
	for n := range kills {
		b.ticked(d.process, n+1, kills+1)
		b.load.more(d.process, 1+by.Int64N(20))
		d.kill()
		d.again()
	}
	d.ready(d.client)
	b.ticked(d.process, 1, 1)
	b.finish(d.process)
	waybill(t, "replay", "--verify", "--brokers", d.kafka, "--server", d.http)
	d.stop()
}

// The same with two instances on Apache Kafka, each of which is killed in turn (V6, S5).
func TestOrdersBeginWhileInstancesAreKilled(t *testing.T) {
	leftout.UnlessLong(t, "orders that signals begin while one of two instances is killed")
	t.Parallel()
	c := newCluster(t, kafka.Container(t))
	c.createTopics()
	one, two := c.two()
	c.agents()
	b := beginOrders(t, c.books, one.client, one.http)
	one.owned(one, two)
	kills := number(t, "WAYBILL_KILLS", 2)
	for n := range kills {
		dies, lives := one, two
		if n%2 == 1 {
			dies, lives = two, one
		}
		b.client = lives.client
		b.ticked(lives.process, n+1, kills+1)
		dies.kill()
		lives.owned(lives)
		b.load.more(lives.process, 10)
		dies.again()
		dies.ready(dies.client)
		lives.owned(one, two)
	}
	b.ticked(one.process, 1, 1)
	b.finish(one.process)
	for _, s := range []*serve{one, two} {
		waybill(t, append([]string{"replay", "--verify", "--server", s.http}, c.flags...)...)
		s.stop()
	}
}

// beginning has schedules of every second, and signals that start orders.
type beginning struct {
	*testing.T
	books  *books
	client *api.Client
	load   *load
	ticks  int
}

// The orders of ticks take longer than there is from one tick to the next.
const (
	ticked = "{workflow: ticked, keep: 3s, steps: [{name: nap, sleep: 1500ms}, {name: reserve, agent: inventory, timeout: 1h}]}"
	claim  = "{workflow: claim, start: {signal: claim-made, key: string(input.n % 20)}, steps: [{name: reserve, agent: inventory, timeout: 1h}]}"
)

func beginOrders(t *testing.T, b *books, client *api.Client, http string) *beginning {
	t.Helper()
	w := &beginning{T: t, books: b, client: client, ticks: number(t, "WAYBILL_TICKS", 12)}
	registerSource(t, http, ticked)
	registerSource(t, http, claim)
	for _, overlap := range world.Overlaps {
		waybill(t, "schedule", "apply", fileOf(t, fmt.Sprintf("{schedule: %s, every: 1s, overlap: %s, catchUp: all, workflow: ticked}", overlap, overlap)), "--server", http)
	}
	kafka, err := kgo.NewClient(kgo.SeedBrokers(b.brokers...), kgo.ProducerLinger(0), kgo.RecordDeliveryTimeout(10*time.Second), kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	w.load = &load{t, world.Submitting(t.Context(), 4, 25*time.Millisecond, func(ctx context.Context, n int64) error {
		value := fmt.Appendf(nil, `{"signal":"claim-made","key":"%d","id":"p-%d","data":{"n":%d}}`, n%20, n, n)
		var twice []*kgo.Record
		for again := range 2 { // not side by side, nor to the same partition
			twice = append(twice, &kgo.Record{Topic: b.topics.Signals, Key: fmt.Append(nil, n, again), Value: value})
		}
		return kafka.ProduceSync(ctx, twice...).FirstErr()
	})}
	t.Cleanup(func() {
		kafka.Close()
		<-w.load.Ended()
	})
	return w
}

// ticked waits until every schedule has decided on a part of its ticks. Those of a queue wait for orders, however many
// they are.
func (w *beginning) ticked(p *process, part, of int) {
	w.Helper()
	for _, overlap := range world.Overlaps {
		if overlap == events.OverlapQueue {
			continue
		}
		w.schedule(p, overlap, fmt.Sprintf("has decided on %d of %d of its ticks", part, of), func(s *api.Schedule) bool { return (s.Started+s.Skipped)*of >= w.ticks*part })
	}
}

func (w *beginning) schedule(p *process, name, what string, is func(*api.Schedule) bool) {
	w.Helper()
	p.until("schedule "+name+" "+what, func() error {
		s, err := w.client.Schedule(p.Context(), name)
		if err == nil && !is(s) {
			err = fmt.Errorf("it is %+v", s)
		}
		return err
	})
}

// finish has no more begin, lets all end, and holds everything against everything.
func (w *beginning) finish(p *process) {
	w.Helper()
	w.load.stop(p)
	for _, overlap := range world.Overlaps {
		if _, err := w.client.ActOnSchedule(w.Context(), overlap, "", events.CommandPause, new(api.Act)); err != nil {
			w.Fatal(err)
		}
		w.schedule(p, overlap, "has come to rest", func(s *api.Schedule) bool { return s.Paused && len(s.Open) == 0 })
	}
	sent := int(w.load.Acked())
	p.until("all that signals started have ended", func() error {
		have := 0
		for after := ""; ; {
			page, err := w.client.Orders(p.Context(), api.Filter{Workflow: "claim", State: string(projections.Processed)}, 1000, after)
			if err != nil {
				return err
			}
			if have, after = have+len(page.Orders), page.Next; after == "" {
				break
			}
		}
		if have < sent {
			return fmt.Errorf("%d of %d have", have, sent)
		}
		return nil
	})

	found := audit.Namespace(w, w.books.brokers, w.books.topics, true)
	w.Log(found)
	for _, wrong := range found.Unearned() {
		w.Error(wrong)
	}
	for _, dead := range w.books.read(w.books.topics.DeadLetters) {
		// Of the order of a tick nothing is left once it is forgotten: not even an agent that answers again is told of it.
		forgotten := found.Count(string(dead.Key), func(e *events.Event) bool { return e.Type == events.OrderForgotten }) > 0
		if !forgotten || !strings.HasPrefix(events.Header(dead, "waybill_source"), w.books.topics.Replies+"/") {
			w.Errorf("a dead letter of %s, because %s: %s", dead.Key, events.Header(dead, "waybill_reason"), dead.Value)
		}
	}
	started := make(map[int]int)
	for _, history := range found.Histories {
		if e := history[0]; e.Type == events.OrderAccepted && e.Workflow == "claim" {
			var claim struct {
				N int `json:"n"`
			}
			if err := json.Unmarshal(e.Input, &claim); err != nil {
				w.Fatal(err)
			}
			started[claim.N]++
		}
	}
	for n := range sent {
		if started[n+1] != 1 {
			w.Errorf("signal p-%d started %d orders", n+1, started[n+1])
		}
	}
	if len(started) != sent {
		w.Errorf("%d signals were sent, and %d started orders", sent, len(started))
	}
	for _, overlap := range world.Overlaps {
		t := found.Ticks(events.ScheduleID(overlap))
		w.Logf("%s: %d ticks, %d began an order, %v", overlap, t.Decided, t.Begun, t.Skipped)
		if t.Begun == 0 || t.Decided < w.ticks && overlap != events.OverlapQueue {
			w.Errorf("%s: %d ticks, of which %d began an order", overlap, t.Decided, t.Begun)
		}
		for _, wrong := range t.Wrong {
			w.Error(wrong)
		}
	}
}
