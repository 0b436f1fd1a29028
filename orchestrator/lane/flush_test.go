package lane

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/decide"
	"github.com/waybill-dev/waybill/projections"
)

// A lane that has nothing to decide keeps what it committed from the store for as long as follows from what it wrote last, and one
// that has for a tenth of a second: lanes that take turns have nothing to decide a thousand times a second.
func TestForHowLongALaneKeepsWhatItCommitted(t *testing.T) {
	r := newRound(t)
	keeps := func(what string, want time.Duration, ids ...string) {
		t.Helper()
		if r.keeps() != want {
			t.Errorf("%s it is kept for %s, and not %s", what, r.keeps(), want)
		}
		for _, id := range ids {
			if r.stored(id) != (want == 0) {
				t.Errorf("%s %s is in the store: %t", what, id, want > 0)
			}
		}
	}
	keeps("nothing was committed:", 0)
	keeps("at first", 0, r.commitsSome(300)...)
	r.pass(time.Millisecond)
	several := r.commitsSome(4)
	keeps("after 300", flushEvery-time.Millisecond, several...)
	r.pass(flushEvery - time.Millisecond)
	several = append(several, r.commitsSome(1)...)
	keeps("when it is time", 0, several...)
	keeps("after a few", 0, r.commitsSome(flushFew+4)...)
	r.pass(time.Millisecond)
	more := r.commitsSome(1)
	keeps("after some more", 4*flushEach-time.Millisecond, more...)
	r.decides("", 1)
	keeps("while it decides", flushEvery-time.Millisecond, more...)
	r.committing()
	keeps("while it commits", flushEvery-time.Millisecond, more...)
	must(t, r.conclude(nil))
	r.pass(flushEvery)
	keeps("longer than it may", time.Nanosecond, more...) // else nobody wakes it
	must(t, r.find())
	keeps("when deadlines were looked at", 0, more...)
}

// commitsSome has some orders be accepted at a time.
func (r *round) commitsSome(n int) []string {
	r.Helper()
	ids := r.decides("", n)
	r.commits()
	return ids
}

// stored says whether others find an order.
func (r *round) stored(id string) bool {
	r.Helper()
	o, _, err := r.store.Order(r.partition, id)
	if err != nil && !errors.Is(err, projections.ErrNotFound) {
		r.Fatal(err)
	}
	return o != nil
}

// When it is time it writes, whatever else it waits for.
func TestALaneWritesWhatItKept(t *testing.T) {
	r := newRound(t)
	r.commitsSome(flushFew + 2)
	several := r.commitsSome(2)
	beside := &keeping{succeeding: succeeding{t: t}, of: r, id: several[0]}
	must(t, r.Lane.Run(t.Context(), beside))
	if beside.kept != 2*flushEach || !beside.written {
		t.Errorf("it is kept for %s, and then written: %t", beside.kept, beside.written)
	}
	synctest.Test(t, func(t *testing.T) {
		g := &goroutines{ctx: t.Context(), tick: time.NewTicker(time.Hour), opens: time.NewTimer(time.Hour), keeps: time.NewTimer(time.Hour)}
		began := time.Now()
		if h := g.Next(Wanted{Opens: time.Minute, Keeps: time.Second}); h.What != Kept || time.Since(began) != time.Second {
			t.Errorf("after %s: %v", time.Since(began), h)
		}
		if h := g.Next(Wanted{}); h.What != Ticked {
			t.Errorf("%v", h)
		}
	})
}

// keeping hears that what was committed was kept for long enough, and is told to stop.
type keeping struct {
	succeeding
	of      *round
	id      string
	kept    time.Duration
	written bool
}

func (k *keeping) Next(w Wanted) Happened {
	if w.Keeps > 0 {
		k.kept = w.Keeps
		return Happened{What: Kept}
	}
	k.written = k.of.stored(k.id)
	return Happened{What: Stopped}
}

// What nobody asks for is not in memory for long, and there again once somebody does.
func TestALaneReleasesWhatNobodyAsksFor(t *testing.T) {
	r := newRound(t)
	id := r.commitsSome(1)[0]
	was := r.known(id)
	ticks := func(n int, after time.Duration) {
		must(t, r.Lane.Run(t.Context(), &ticking{succeeding{t: t}, r, n, after}))
	}
	ticks(2, 0)
	if r.known(id) != was {
		t.Error("it is read again at once")
	}
	ticks(2, releaseEvery)
	if o := r.known(id); o == was || o == nil || o.Seq != was.Seq {
		t.Errorf("%+v", o)
	}
}

// It is the same order that is read again, also while what was decided on it commits for longer than it is remembered.
func TestWhatCommitsMayBeReleased(t *testing.T) {
	r := newRound(t)
	id := r.commitsSome(1)[0]
	was := r.known(id)
	r.take(decide.On(r.env(), was, &decide.Input{Record: &decide.Record{Topic: r.topics.Commands}, Order: id, Command: &events.Command{Command: events.CommandPause}}))
	r.committing()
	for range 3 {
		r.state.Release()
	}
	must(t, r.conclude(nil))
	o := r.known(id)
	must(t, r.flush())
	stored, offsets, err := r.store.Order(r.partition, id)
	must(t, err)
	if !o.Paused || o.Seq != was.Seq+1 || stored.Seq != o.Seq || !stored.Paused || len(offsets) != int(o.Seq) {
		t.Errorf("paused: %t, after %d events; in the store: %t, after %d, at %v", o.Paused, o.Seq, stored.Paused, stored.Seq, offsets)
	}
}

// ticking has it look at deadlines, so often and after so long, and stop.
type ticking struct {
	succeeding
	of    *round
	n     int
	after time.Duration
}

func (k *ticking) Next(Wanted) Happened {
	if k.n--; k.n < 0 {
		return Happened{What: Stopped}
	}
	k.of.pass(k.after)
	return Happened{What: Ticked}
}

// known is the order, as the lane has it.
func (r *round) known(id string) *projections.Order {
	r.Helper()
	o, err := r.state.Order(id)
	must(r.T, err)
	return o
}
