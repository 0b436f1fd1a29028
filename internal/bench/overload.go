package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator"
)

// Excess is what came of twice as many submissions as are carried. Normal is what a
// quarter as many have as were carried under load.
type Excess struct {
	Seconds   float64 `json:"seconds"`
	PerSecond float64 `json:"submitted_per_s"`
	Carried   float64 `json:"ended_per_s"`
	// What is unread at the end of it, as the group shows it: a few seconds old.
	UnreadOrders  int64   `json:"unread_orders"`
	UnreadReplies int64   `json:"unread_replies"`
	Submitted     int     `json:"submitted"`
	TurnedAway    int     `json:"turned_away"`
	Errors        int     `json:"errors"`
	AskedAgain    int64   `json:"asked_again"`
	NormalP50     float64 `json:"normal_p50_ms"`
	NormalP99     float64 `json:"normal_p99_ms"`
	P50           float64 `json:"p50_ms"`
	P99           float64 `json:"p99_ms"`
	Drained       float64 `json:"drained_after_s"`
	BackToNormal  float64 `json:"normal_after_s"`
	AfterP99      float64 `json:"after_p99_ms"` // 0 if they were not seen to be normal again
	Memory        float64 `json:"memory_mib"`
}

// impatient is what steps have under overload: whatever lags by more is asked again.
const impatient = "5s"

// excess submits whether or not anything ends, and notes what becomes of each order.
type excess struct {
	*load
	*Options

	instance *orchestrator.Instance
	asked    *atomic.Int64

	submitting sync.WaitGroup
	atATime    atomic.Int64
	mu         sync.Mutex
	open       map[string]submitted
	ended      []submitted
	away       int
	errors     int
}

// submitted is an order.
type submitted struct {
	at     time.Time
	took   time.Duration
	excess bool
}

// submissionsAtATime is how many the HTTP API takes by default.
const submissionsAtATime = 128

// noProgress is how long it may take that any order ends, and that the oldest is younger
// than it ever was.
const noProgress = 3 * time.Minute

func (x *excess) measure(ctx context.Context, carried float64) (*Excess, error) {
	ctx, cancel := context.WithCancel(ctx)
	x.open = make(map[string]submitted)
	x.mu.Lock()
	x.load.mu.Lock()
	for id, at := range x.started { // what was under way under load
		x.open[id] = submitted{at: at}
	}
	x.load.mu.Unlock()
	x.mu.Unlock()
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { x.listen(ctx, x.note) })
	if err := x.drained(ctx, false); err != nil {
		return nil, err
	}
	asked := x.asked.Load()
	x.take()

	if err := x.submit(ctx, carried/4, false, x.Duration); err != nil {
		return nil, err
	}
	if err := x.drained(ctx, false); err != nil {
		return nil, err
	}
	before := x.take()
	r := &Excess{Seconds: x.Overload.Seconds()}
	r.NormalP50, r.NormalP99 = percentiles(latencies(before))

	if err := x.submit(ctx, 2*carried, true, x.Overload); err != nil {
		return nil, err
	}
	end := time.Now()
	r.Carried = float64(x.endedSoFar()) / r.Seconds
	after, rest := context.WithCancel(ctx)
	defer rest()
	running.Go(func() { _ = x.submit(after, carried/4, false, 0) })
	var err error
	if r.UnreadOrders, err = x.unread(ctx, x.topics.Orders); err != nil {
		return nil, err
	}
	if r.UnreadReplies, err = x.unread(ctx, x.topics.Replies); err != nil {
		return nil, err
	}
	if err := x.drained(ctx, true); err != nil {
		return nil, err
	}
	r.Drained = time.Since(end).Seconds()
	// The new orders of meanwhile are behind all that.
	if err := x.caughtUp(ctx, time.Duration(2*r.NormalP99*float64(time.Millisecond)), x.oldest); err != nil {
		return nil, err
	}
	if err := wait(ctx, max(x.Duration, 5*time.Second)); err != nil {
		return nil, err
	}
	rest()
	if err := x.drained(ctx, false); err != nil {
		return nil, err
	}

	var over, later []submitted
	for _, s := range x.take() {
		if s.excess {
			over = append(over, s)
		} else {
			later = append(later, s)
		}
	}
	r.P50, r.P99 = percentiles(latencies(over))
	r.Submitted, r.TurnedAway, r.Errors = len(over), x.away, x.errors
	r.PerSecond = float64(r.Submitted+r.TurnedAway) / r.Seconds
	r.BackToNormal, r.AfterP99 = normalAgain(later, end, r.NormalP99)
	r.AskedAgain = x.asked.Load() - asked - int64(x.Steps*(len(before)+len(over)+len(later)))
	r.Memory = residentMiB()
	return r, x.err()
}

// unread is how many records of a topic no lane has read.
func (x *excess) unread(ctx context.Context, topic string) (n int64, err error) {
	admin := kadm.NewClient(x.producer)
	ends, err := admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return 0, fmt.Errorf("how much is unread: %w", err)
	}
	read, err := admin.FetchOffsets(ctx, x.topics.Namespace+".orchestrators")
	if err != nil {
		return 0, fmt.Errorf("how much is unread: %w", err)
	}
	ends.Each(func(end kadm.ListedOffset) {
		at, _ := read.Lookup(topic, end.Partition)
		n += max(0, end.Offset-at.At)
	})
	return n, nil
}

// normalAgain is after how many seconds the orders of three seconds in a row had a p99 of
// at most twice what is normal each, and what theirs was.
func normalAgain(orders []submitted, end time.Time, normal float64) (after, p99 float64) {
	seconds := make(map[int][]submitted)
	last := 0
	for _, s := range orders {
		n := int(s.at.Sub(end) / time.Second)
		seconds[n] = append(seconds[n], s)
		last = max(last, n)
	}
	var row []submitted
	first := 0
	for n := 0; n <= last && n < first+3; n++ {
		if _, p99 := percentiles(latencies(seconds[n])); p99 > 2*normal {
			row, first = nil, n+1
			continue
		}
		row = append(row, seconds[n]...)
	}
	if first+3 > last+1 {
		return float64(first), 0
	}
	_, p99 = percentiles(latencies(row))
	return float64(first), p99
}

func latencies(orders []submitted) []time.Duration {
	all := make([]time.Duration, len(orders))
	for n, s := range orders {
		all[n] = s.took
	}
	return all
}

func (x *excess) take() []submitted {
	x.mu.Lock()
	defer x.mu.Unlock()
	ended := x.ended
	x.ended = nil
	return ended
}

// submit submits so many orders a second for a time, or until ctx ends, whatever
// becomes of them. Of the excess it is twice as many as end, if that is more: what the
// machine carries is seen only then.
func (x *excess) submit(ctx context.Context, perSecond float64, over bool, d time.Duration) error {
	defer x.submitting.Wait()
	began := time.Now()
	pace := time.NewTicker(5 * time.Millisecond)
	defer pace.Stop()
	at, ended, due := began, x.endedSoFar(), 0.0
	const window = 5 * time.Second
	for look := began.Add(window); ; {
		now := time.Now()
		if d > 0 && now.Sub(began) >= d {
			return x.err()
		}
		for due += now.Sub(at).Seconds() * perSecond; due >= 1; due-- {
			x.one(ctx, over)
		}
		at = now
		if over && now.After(look) {
			n := x.endedSoFar()
			perSecond = max(perSecond, 2*float64(n-ended)/window.Seconds())
			ended = n
			look = look.Add(window)
		}
		select {
		case <-pace.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (x *excess) endedSoFar() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.ended)
}

// one submits an order.
func (x *excess) one(ctx context.Context, over bool) {
	n := x.next.Add(1)
	order := x.order("excess-", n)
	id := string(order.Key)
	x.mu.Lock()
	x.open[id] = submitted{at: time.Now(), excess: over}
	x.mu.Unlock()
	none := func(err error) {
		x.mu.Lock()
		delete(x.open, id)
		x.away++
		x.mu.Unlock()
		if err != nil && ctx.Err() == nil {
			x.fail(fmt.Errorf("submit: %w", err))
		}
	}
	if x.MaxLag == 0 || !over {
		x.producer.Produce(context.WithoutCancel(ctx), order, func(_ *kgo.Record, err error) {
			if err != nil {
				none(err)
			}
		})
		return
	}
	if x.atATime.Add(1) > submissionsAtATime {
		x.atATime.Add(-1)
		none(nil)
		return
	}
	x.submitting.Go(func() {
		defer x.atATime.Add(-1)
		_, err := x.instance.Submit(ctx, id, &events.Submission{Workflow: "bench", Input: []byte(x.shape.input(n))}, orchestrator.Context{}, nil)
		switch {
		case errors.Is(err, orchestrator.ErrBehind):
			none(nil)
		case err != nil:
			none(err)
		}
	})
}

// drained returns when no order is open any more, or none of the excess.
func (x *excess) drained(ctx context.Context, ofExcess bool) error {
	left, since := -1, time.Now()
	for {
		x.mu.Lock()
		open := 0
		for _, s := range x.open {
			if s.excess || !ofExcess {
				open++
			}
		}
		x.mu.Unlock()
		switch {
		case open == 0:
			return x.err()
		case open != left:
			left, since = open, time.Now()
		case time.Since(since) > noProgress:
			return fmt.Errorf("%d orders have not ended, and none has for %s", open, noProgress)
		}
		if err := errors.Join(x.err(), wait(ctx, 50*time.Millisecond)); err != nil {
			return err
		}
	}
}

// caughtUp returns when the oldest order is no older than normal, or does not get any younger:
// that takes the longer the more came meanwhile.
func (x *excess) caughtUp(ctx context.Context, normal time.Duration, oldest func() time.Duration) error {
	youngest, since := oldest(), time.Now()
	for age := youngest; age > normal && time.Since(since) <= noProgress; age = oldest() {
		if age < youngest {
			youngest, since = age, time.Now()
		}
		if err := errors.Join(x.err(), wait(ctx, 50*time.Millisecond)); err != nil {
			return err
		}
	}
	return nil
}

// oldest is for how long the oldest order is open.
func (x *excess) oldest() (age time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, s := range x.open {
		age = max(age, time.Since(s.at))
	}
	return age
}

// note notes that an order has ended.
func (x *excess) note(id, status string, now time.Time, value []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if status != events.StatusCompleted {
		x.errors++
	}
	s, ok := x.open[id]
	if !ok {
		x.fail(fmt.Errorf("order %s ended twice: %s", id, value))
		return
	}
	delete(x.open, id)
	s.took = now.Sub(s.at)
	x.ended = append(x.ended, s)
}
