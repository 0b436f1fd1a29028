package lane

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
)

const plainFlow = "workflow: call\nsteps: [{name: call, agent: phone, timeout: 5s}]"

// many is a lane that keeps twenty of those that wait, and has so many orders wait, of an
// agent that takes so many requests a second; 0 is one that cannot be asked.
func many(t *testing.T, rate float64, orders int, submission string, flows ...string) (a *asking, ids []string) {
	a = withFlows(t, rate, flows...)
	a.time.Timer = func() time.Time { return a.now }
	a.away.most = 20
	if rate == 0 {
		a.world.away[a.topics.Requests("phone")] = "it does not exist"
	}
	for range orders {
		ids = append(ids, a.like(submission))
	}
	a.look(0)
	return a, ids
}

// pass lets time pass, second by second.
func (a *asking) pass(d time.Duration) {
	a.Helper()
	for end := a.now.Add(d); a.now.Before(end); {
		a.look(min(time.Second, end.Sub(a.now)))
	}
}

// S2: more wait than are kept, and as many come as the agent takes: nobody overtakes.
func TestAgeBeyondThoseThatAreKept(t *testing.T) {
	a, ids := many(t, 2, 60, `{"workflow":"call"}`, plainFlow)
	var left []string
	for range 600 {
		a.look(500 * time.Millisecond)
		if len(a.away.steps) > 20 {
			t.Fatalf("%d are kept", len(a.away.steps))
		}
		if len(a.under) > 0 { // two a second
			left = append(left, a.under[0].order)
			a.answer(a.under[0])
			ids = append(ids, a.like(`{"workflow":"call"}`))
		}
	}
	if len(left) < 200 || !slices.Equal(left, ids[:len(left)]) {
		t.Errorf("%d left: %v; they came as %v", len(left), left, ids)
	}
}

// S2: who is more urgent has a place, however many wait that are less.
func TestWhatIsUrgentBeyondThoseThatAreKept(t *testing.T) {
	a := newAsking(t, 2)
	a.away.most = 20
	first := a.submit(1, "low")[0]
	a.look(0)
	a.look(6 * time.Second) // it expires: who knows whether it ran
	a.under = nil
	low := a.submit(100, "low")
	a.look(0)
	high := a.submit(1, "high")[0]
	a.cancel(first)
	a.look(0)
	var left []string
	for n := 0; len(left) < 40 && n < 1_000; n++ {
		for _, r := range slices.Clone(a.under) {
			left = append(left, fmt.Sprint(r.order, r.undo))
			a.answer(r)
		}
		a.look(500 * time.Millisecond)
	}
	for _, want := range []string{first + "true", high + "false"} {
		if at := slices.Index(left, want); at < 0 || at > 10 {
			t.Errorf("%s left after %d others: %v", want, at, left)
		}
	}
	if slices.Contains(left, low[60]+"false") {
		t.Errorf("those that are low left as %v", left)
	}
}

// S1: an operation of which more wait than are kept takes no places of another, which may
// have room.
func TestAnotherOperationBeyondThoseThatAreKept(t *testing.T) {
	a, _ := many(t, 2, 100, `{"workflow":"slow"}`,
		"workflow: slow\nsteps: [{name: slow, agent: phone, timeout: 1h}]",
		"workflow: call\nsteps: [{name: call, agent: phone, timeout: 1h}]")
	before := len(a.under)
	id := a.like(`{"workflow":"call"}`)
	a.look(time.Second)
	if o := a.order(id); o.Steps[0].State != projections.Running {
		t.Errorf("%d were with the agent; another operation is %s", before, o.Steps[0].State)
	}
}

// S2: what finds no place is ended in time, by its queue as by its order's deadline, though
// nothing ever leaves.
func TestBoundsBeyondThoseThatAreKept(t *testing.T) {
	a, _ := many(t, 0, 100, `{"workflow":"call"}`, plainFlow,
		"workflow: bounded\nsteps: [{name: call, agent: phone, queue: 1h, retry: {attempts: 1}}]",
		"workflow: sooner\nsteps: [{name: call, agent: phone, queue: 30m, retry: {attempts: 1}}]")
	a.pass(time.Minute)
	later := a.like(`{"workflow":"bounded"}`)
	sooner := a.like(`{"workflow":"sooner"}`)
	last := a.like(`{"workflow":"bounded"}`)
	deadline := a.like(fmt.Sprintf(`{"workflow":"call","deadline":%q}`, events.AppendTime(nil, a.now.Add(time.Hour))))
	for _, wait := range []struct {
		passes time.Duration
		ended  []string
	}{{30*time.Minute - 10*time.Second, nil}, {20 * time.Second, []string{sooner}}, {29 * time.Minute, []string{sooner}}, {time.Minute + soughtEvery, []string{later, sooner, last, deadline}}} {
		a.pass(wait.passes)
		for _, id := range []string{later, sooner, last, deadline} {
			if o := a.order(id); (o.State == projections.Error) != slices.Contains(wait.ended, id) {
				t.Errorf("%s is %s: %s", id, o.State, o.Reason)
			}
		}
		if _, found := a.Before(sooner, "call"); found || len(a.away.steps) > 20 {
			t.Errorf("%d wait, also what has no place: %t", len(a.away.steps), found)
		}
	}
}

// V7: many whose time comes one after the other are not sought one by one.
func TestBoundsOfManyBeyondThoseThatAreKept(t *testing.T) {
	a, _ := many(t, 0, 100, `{"workflow":"call"}`, plainFlow,
		"workflow: bounded\nsteps: [{name: call, agent: phone, queue: 1h, retry: {attempts: 1}}]")
	a.pass(time.Minute)
	for range 120 {
		a.like(`{"workflow":"bounded"}`)
		a.pass(time.Second)
	}
	a.pass(58*time.Minute - time.Second)
	looked := 0
	a.world.looked = func() { looked++ }
	a.pass(2 * time.Minute)
	if passes := looked / 100; passes < 10 || passes > 40 {
		t.Errorf("%d looks in two minutes", looked)
	}
}

// S2: nor does who is sought first keep those behind them from being found.
func TestAShortBoundBehindLongOnes(t *testing.T) {
	a, _ := many(t, 0, 50, `{"workflow":"call"}`, plainFlow,
		"workflow: bounded\nsteps: [{name: call, agent: phone, queue: 1h, retry: {attempts: 1}}]",
		"workflow: short\nsteps: [{name: call, agent: phone, queue: 30m, retry: {attempts: 1}}]")
	a.pass(time.Minute)
	for range 300 {
		a.like(`{"workflow":"bounded"}`)
		a.pass(soughtEvery)
	}
	for range 10 * DueAtOnce {
		a.like(`{"workflow":"call"}`)
	}
	short := a.like(`{"workflow":"short"}`)
	a.pass(time.Second)
	for range 300 { // each look is as long as they are apart
		a.now = a.now.Add(soughtEvery)
		a.looks(t)
		a.commit()
	}
	if o := a.order(short); o.State != projections.Error {
		t.Errorf("it is %s after %s", o.State, a.now.Sub(o.AcceptedAt))
	}
}
