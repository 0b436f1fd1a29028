package window

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var noon = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)

func after(seconds float64) time.Time {
	return noon.Add(time.Duration(seconds * float64(time.Second)))
}

// What somebody else asked for takes room, and gives it back as it ends.
func TestWhatSomebodyElseAskedFor(t *testing.T) {
	w := New(2, 0, 0, new(Sign))
	free := func(want int) {
		t.Helper()
		if got, _ := w.Free("do", 10*time.Second, after(3)); got != want {
			t.Errorf("%d may leave, not %d; %d are under way", got, want, w.Out())
		}
	}
	free(10)
	w.Known("do", 10*time.Second, after(1))
	w.Known("do", 10*time.Second, after(0)) // in any order
	w.Known("do", 10*time.Second, after(1))
	w.Asked("do", 10*time.Second, after(2), after(2))
	free(6)
	w.Ended("do", 10*time.Second, after(1))
	free(7)
	w.Ended("do", 10*time.Second, after(5)) // of which it knows nothing
	free(7)
	w.Expired("do", 10*time.Second, after(0), after(3))
	if out := w.Out(); out != 2 {
		t.Errorf("%d are under way, not 2", out)
	}
	// An answer says that the agent has taken what was asked for before.
	w.Answered("do", 10*time.Second, true, after(2), after(2), after(2.1), after(2.1))
	if out := w.Out(); out != 1 {
		t.Errorf("%d are under way, not 1", out)
	}
	free(4) // one expired, so half as many as before
}

// A fixed bound holds whatever the window says.
func TestAFixedBound(t *testing.T) {
	w := New(1_000, 2, 0, new(Sign))
	for want := 2; want >= 0; want-- {
		if free, _ := w.Free("do", time.Minute, after(1)); free != want {
			t.Errorf("%d may leave, not %d", free, want)
		}
		w.Asked("do", time.Minute, after(1), after(1))
	}
}

// What nobody says the end of is not under way for ever.
func TestWhatNobodySaysTheEndOf(t *testing.T) {
	w := New(1, 0, 0, new(Sign))
	w.Asked("do", 4*time.Second, after(0), after(0))
	w.Asked("do", 4*time.Second, after(0), after(0))
	if free, _ := w.Free("do", 4*time.Second, after(60)); free != 0 {
		t.Errorf("%d may leave", free)
	}
	if free, _ := w.Free("do", 4*time.Second, after(3_600)); free != 2 || w.Out() != 0 {
		t.Errorf("%d may leave, and %d are under way", free, w.Out())
	}
}

// An agent that is still at an attempt is there, and has taken what it was asked for before: that is not
// forgotten, but what it took is no measure.
func TestWhoIsStillAtIt(t *testing.T) {
	sign := new(Sign)
	w := New(1, 0, 0, sign)
	w.Asked("do", 4*time.Second, after(0), after(0))
	for n := range 4 {
		w.Asked("do", 4*time.Second, after(1), after(1))
		w.Expired("do", 4*time.Second, after(1), after(float64(5+n)))
	}
	if !w.Away() || !w.Silent() {
		t.Fatal("four attempts expired, and it is not away")
	}
	w.Asked("do", 4*time.Second, after(9), after(9))
	w.Known("do", 4*time.Second, after(3))
	w.StillAt("do", 4*time.Second, after(9), after(10))
	if w.Away() || w.Silent() || !sign.InTime(after(10)) || w.Owes() {
		t.Error("it is still at it, and is away")
	}
	if o := w.operation("do"); o.behind != 1 || o.seen != 0 {
		t.Errorf("%d queue behind what it is at, and %d are a measure", o.behind, o.seen)
	}
	w.Forget(after(1_000))
	if w.Out() != 0 {
		t.Fatalf("%d are under way", w.Out())
	}
	w.Asked("do", 4*time.Second, after(1_000), after(1_000))
	w.Asked("do", 4*time.Second, after(1_001), after(1_001))
	w.StillAt("do", 4*time.Second, after(1_000), after(1_100))
	if w.Forget(after(1_160)); w.Out() != 1 {
		t.Errorf("%d are under way", w.Out())
	}
}

// By its clock the agent answered before it was asked: only differences count.
func TestTheClockOfAnAgent(t *testing.T) {
	for _, ahead := range []float64{-7, 0, 1} {
		w := New(1, 0, 0, new(Sign))
		w.Waits("do", 10*time.Second, 1_000)
		for n := range 100 {
			at := float64(n)
			w.Asked("do", 10*time.Second, after(at), after(at))
			queued := 0.0
			if n > 4 {
				queued = 6
			}
			w.Answered("do", 10*time.Second, true, after(at), after(at), after(at+ahead+queued), after(at+queued))
		}
		if size := w.Size(); size > 4 {
			t.Errorf("%vs ahead: %v may queue, and all of them did for too long", ahead, size)
		}
	}
}

// What an agent refuses to do, it refuses at once: that is not how long its work takes.
// Of one that only refuses, it is.
func TestWhatFailsIsNoWork(t *testing.T) {
	for _, works := range []bool{true, false} {
		w := New(1, 0, 0, new(Sign))
		w.Waits("do", 10*time.Second, 1_000)
		for n := range 100 {
			at := float64(n)
			w.Asked("do", 10*time.Second, after(at), after(at))
			took, worked := 8.0, works
			if works && n%4 == 0 {
				took, worked = 0, false
			}
			w.Answered("do", 10*time.Second, worked, after(at), after(at), after(at+took), after(at+took))
		}
		if work := w.operation("do").work(); work != 8*time.Second {
			t.Errorf("some work: %t; it takes %s", works, work)
		}
	}
}

// Once the agent answers too late, what expires counts in the end.
func TestWhatCounts(t *testing.T) {
	w := New(100, 0, 0, new(Sign))
	for n := range 5 {
		w.Asked("do", time.Second, after(float64(n)), after(float64(n)))
		w.Expired("do", time.Second, after(float64(n)), after(float64(n)+1))
	}
	if !w.Excuses("do", time.Second, after(20), 1, 3, after(5)) || !w.Excuses("do", time.Second, after(20), 1_000, 3, after(5)) {
		t.Error("it gives no sign, and what expires counts")
	}
	w.Late(after(4), after(6))
	w.Heard(after(0))
	w.Asked("do", time.Second, after(7), after(7))
	if !w.Excuses("do", time.Second, after(20), excused, 3, after(7)) || w.Excuses("do", time.Second, after(20), excused+1, 3, after(7)) {
		t.Error("it answers too late")
	}
	w.Expired("do", time.Second, after(7), after(8))
	w.Asked("do", time.Second, after(9), after(9))
	if !w.Excuses("do", time.Second, after(20), excused+1, 3, after(9)) {
		t.Error("it answered too late long ago, and nothing since")
	}
	w.Heard(after(9))
	w.sign.given(after(10), true)
	if !w.Excuses("do", time.Second, after(20), outrun, 3, after(30)) || w.Excuses("do", time.Second, after(20), outrun+1, 3, after(30)) {
		t.Error("it answers others in time")
	}
	if w.Excuses("do", time.Second, after(20), excused+1, 3, after(60)) {
		t.Error("it answered others in time, long ago")
	}
}

// An agent is silent that answers no lane: what was asked for before it answered one says
// nothing of that.
func TestWhoIsSilent(t *testing.T) {
	sign := new(Sign)
	one, other := New(100, 0, 0, sign), New(100, 0, 1, sign)
	expires := func(w *Window, asked float64) {
		w.Asked("do", time.Second, after(asked), after(asked))
		w.Expired("do", time.Second, after(asked), after(asked+1))
	}
	expires(one, 1)
	expires(other, 2)
	expires(one, 3)
	if other.Silent() || other.Excuses("do", time.Second, after(20), 1, 3, after(5)) {
		t.Error("three attempts expired, and it is silent")
	}
	expires(other, 4)
	if !one.Silent() || one.Away() || !one.Excuses("do", time.Second, after(20), excused, 3, after(5)) || one.Excuses("do", time.Second, after(20), excused+1, 3, after(5)) {
		t.Error("four attempts of two lanes expired")
	}
	sign.given(after(10), false)
	for n := range 10 {
		expires(one, float64(n))
	}
	if other.Silent() {
		t.Error("it answered since those were asked for that expired")
	}
}

// The clock of the lane is set back: what is under way is still known.
func TestTheClockIsSetBack(t *testing.T) {
	w := New(1, 0, 0, new(Sign))
	w.Asked("do", 4*time.Second, after(3_600), after(3_600))
	w.Asked("do", 4*time.Second, after(0), after(0))
	w.Ended("do", 4*time.Second, after(3_600))
	w.Ended("do", 4*time.Second, after(0))
	if free, _ := w.Free("do", 4*time.Second, after(1)); free != 2 || w.Out() != 0 {
		t.Errorf("%d may leave, and %d are under way", free, w.Out())
	}
}

// Who is asked for less than one at a time has too much to do: what expires does not count
// at first, unless its work takes longer than its timeout.
func TestWhatCountsOfASlowAgent(t *testing.T) {
	const believes = 0.3
	for _, c := range []struct {
		name    string
		rate    float64
		takes   float64
		attempt int
		of      int
		at      float64 // zero: 60
		waits   int
		ended   bool // the lane has where they wait
		later   bool // what was asked for later was answered
		bound   int  // of the lane
		want    bool
	}{
		{name: "less than one at a time", rate: 0.1, takes: 0.5, attempt: excused, of: 2, want: true},
		{name: "as often as that", rate: 0.1, takes: 0.5, attempt: excused + 1, of: 2},
		{name: "as often, and it answered just now", rate: 0.1, takes: 0.5, attempt: outrun, of: 2, at: 20, want: true},
		{name: "more often than that", rate: 0.1, takes: 0.5, attempt: outrun + 1, of: 2, at: 20},
		{name: "more than one at a time", rate: 1, takes: 0.5, attempt: 1, of: 2},
		{name: "others wait", rate: 1, takes: 0.5, attempt: outrun, of: 2, at: 20, waits: 1, want: true},
		{name: "it answered nobody of late", rate: 1, takes: 0.5, attempt: 1, of: 2, waits: 1},
		{name: "nobody waits", rate: 1, takes: 0.5, attempt: 1, of: 2, at: 20},
		{name: "it was overtaken by others of the lane", rate: 1, takes: 0.5, attempt: 1, of: 2, at: 25, waits: 1, later: true},
		{name: "others of the lane could not overtake it", rate: 1, takes: 0.5, attempt: 1, of: 2, at: 20, waits: 1, bound: 1},
		{name: "others of the lane could", rate: 1, takes: 0.5, attempt: 1, of: 2, at: 20, waits: 1, bound: 2, want: true},
		{name: "others waited in a lane that ended", rate: 1, takes: 0.5, attempt: 1, of: 2, at: 20, waits: 1, ended: true},
		{name: "others wait for what takes too long", rate: 1, takes: 6, attempt: 1, of: 2, at: 20, waits: 1},
		{name: "others wait for what may not be done twice", rate: 1, takes: 0.5, attempt: 1, of: 1, at: 20, waits: 1},
		{name: "its work takes too long", rate: 0.1, takes: 6, attempt: 1, of: 2},
		{name: "it may not be done twice", rate: 0.1, takes: 0.5, attempt: 1, of: 1},
		{name: "there are many partitions", rate: believes, takes: 0.5, attempt: 1, of: 2},
	} {
		w := New(believes, c.bound, 0, new(Sign))
		w.Asked("do", time.Minute, after(0), after(0))
		w.Answered("do", time.Minute, true, after(0), after(0), after(c.takes), after(c.takes))
		w.rate = c.rate
		w.Asked("do", 5*time.Second, after(20), after(20))
		other := New(believes, 0, 1, w.sign)
		other.Waits("do", 5*time.Second, c.waits)
		if c.ended {
			other.Close()
		}
		if c.later {
			w.Asked("do", time.Minute, after(21), after(21))
			w.Answered("do", time.Minute, true, after(21), after(21), after(21+c.takes), after(21+c.takes))
		}
		if c.at == 0 {
			c.at = 60
		}
		if got := w.Excuses("do", 5*time.Second, after(20), c.attempt, c.of, after(c.at)); got != c.want {
			t.Errorf("%s: excused: %t", c.name, got)
		}
	}
}

// Of an agent that is away each operation is probed: one that takes an hour keeps no
// other from it.
func TestProbes(t *testing.T) {
	w := New(100, 0, 0, new(Sign))
	w.Asked("hour", time.Hour, after(0), after(0))
	for n := range 5 {
		w.Asked("quick", time.Second, after(float64(n)), after(float64(n)))
		w.Expired("quick", time.Second, after(float64(n)), after(float64(n)+1))
	}
	if !w.Away() {
		t.Fatal("it is not away")
	}
	if free, _ := w.Free("quick", time.Second, after(4.9)); free != 0 {
		t.Errorf("%d may leave at once", free)
	}
	if free, _ := w.Free("quick", time.Second, after(30)); free != 1 {
		t.Errorf("%d may leave later", free)
	}
	// What expires after an hour is no reason to probe no more than once an hour.
	w.Asked("quick", time.Second, after(3_590), after(3_590))
	w.Expired("quick", time.Second, after(3_590), after(3_591))
	w.Expired("hour", time.Hour, after(0), after(3_600))
	if free, _ := w.Free("hour", time.Hour, after(3_620)); free != 1 {
		t.Errorf("%d may leave after the hour", free)
	}
	w.Asked("hour", time.Hour, after(3_620), after(3_620))
	w.Expired("hour", time.Hour, after(3_620), after(7_220))
	if free, _ := w.Free("quick", time.Second, after(7_250)); free != 1 {
		t.Errorf("%d may leave after a probe of an hour", free)
	}
	// Any answer ends that.
	w.Asked("quick", time.Second, after(7_260), after(7_260))
	w.Answered("quick", time.Second, true, after(7_260), after(7_260), after(7_260.1), after(7_260.1))
	if free, _ := w.Free("quick", time.Second, after(7_261)); free < 10 || w.Away() {
		t.Errorf("%d may leave; away: %t", free, w.Away())
	}
}

// An agent that gives a sign to another lane is there, and has too much to do: it is probed
// more rarely than one that gives none.
func TestProbesOfABusyAgent(t *testing.T) {
	for _, c := range []struct {
		name string
		sign func(at time.Time) time.Time // that was the last when a probe expired at a time
		want time.Duration
	}{
		{"it gives none", func(time.Time) time.Time { return time.Time{} }, probeLongest},
		{"it gave one long ago", func(at time.Time) time.Time { return at.Add(-signLasts) }, probeLongest},
		{"it gave one just now", func(at time.Time) time.Time { return at.Add(time.Millisecond - signLasts) }, probeBusy},
		{"it gives one after the clock was set back", func(at time.Time) time.Time { return at.Add(time.Minute) }, probeLongest},
	} {
		var signs Signs
		w := New(100, 0, 0, signs.Of("agent"))
		now := after(0)
		for range 20 {
			w.Asked("do", time.Second, now, now)
			asked := now
			now = now.Add(time.Second)
			if given := c.sign(now); !given.IsZero() {
				signs.Of("agent").given(given, false)
			}
			signs.Of("another").given(now, true)
			w.Expired("do", time.Second, asked, now)
			now = now.Add(5 * time.Minute)
		}
		if w.probe != c.want {
			t.Errorf("%s: it is probed every %s, not %s", c.name, w.probe, c.want)
		}
	}
}

// Whatever an agent answers, in time or late, is a sign.
func TestWhatIsASign(t *testing.T) {
	sign := new(Sign)
	w := New(100, 0, 0, sign)
	w.Asked("do", time.Second, after(0), after(0))
	if sign.lately(after(1)) {
		t.Error("it has given none")
	}
	w.Answered("do", time.Second, false, after(0), after(0), after(1), after(1))
	if !sign.lately(after(2)) || !sign.InTime(after(2)) {
		t.Error("an answer is a sign")
	}
	w.Heard(after(100))
	if !sign.lately(after(101)) || sign.InTime(after(101)) {
		t.Error("a late answer is a sign, and not in time")
	}
}

// Who probed an agent rarely, because others had answers, goes on with as little: all lanes
// come back to it one after the other, and it has too much to do. One that nobody heard of is
// asked for as much as before.
func TestBackFromAway(t *testing.T) {
	for _, c := range []struct {
		name string
		busy bool
		want float64
	}{
		{"it was away", false, 100},
		{"it was busy", true, 1 / probeBusy.Seconds()},
	} {
		sign := new(Sign)
		w := New(100, 0, 0, sign)
		now := after(0)
		for range 20 {
			w.Asked("do", 5*time.Second, now, now)
			asked := now
			now = now.Add(5 * time.Second)
			if c.busy {
				sign.given(now, true)
			}
			w.rate = 100
			w.Expired("do", 5*time.Second, asked, now)
			now = now.Add(5 * time.Minute)
		}
		w.Asked("do", 5*time.Second, now, now)
		w.Answered("do", 5*time.Second, true, now, now, now.Add(time.Second), now.Add(time.Second))
		if want := max(slowest, c.want); w.Away() || math.Abs(w.rate-want) > 1e-9 {
			t.Errorf("%s: it is asked for %v a second, not %v; away: %t", c.name, w.rate, want, w.Away())
		}
		w.Answered("do", 5*time.Second, true, now, now, now.Add(time.Second), now.Add(time.Second))
		if w.probe != 0 {
			t.Errorf("%s: an answer later it is probed every %s", c.name, w.probe)
		}
	}
}

// An agent that answers others at once what they asked for later has no queue: those that leave it alone for long, because
// it was away or far behind, find out, one after the other.
func TestWhoAnswersOthersAtOnce(t *testing.T) {
	const timeout, left = 5 * time.Second, 300. // when the last request left
	for _, c := range []struct {
		name  string
		late  bool    // it answered late, and did not expire often enough to be away
		work  float64 // that takes
		asked float64 // by the other lane, after that
		took  float64
		free  int
	}{
		{name: "it answers at once", asked: 1, took: 0.4, free: 1},
		{name: "it answers in time", asked: 1, took: 0.6},
		{name: "it answers at once for what its work takes", work: 1, asked: 1, took: 1.4, free: 1},
		{name: "its work may be a queue that was always there", work: 1.5, asked: 1, took: 1.8},
		{name: "it answered what was asked for before", asked: -1, took: 0.4},
		{name: "it was far behind, and answers at once", late: true, asked: 1, took: 0.4, free: 1},
		{name: "it is far behind", late: true, asked: 1, took: 0.6},
	} {
		sign := new(Sign)
		other := New(100, 0, 1, sign)
		answers := func(asked, took float64) {
			other.Asked("do", timeout, after(asked), after(asked))
			other.Answered("do", timeout, true, after(asked), after(asked), after(asked+took), after(asked+took))
		}
		answers(0, c.work)
		shy := []*Window{New(100, 0, 0, sign), New(100, 0, 2, sign)}
		expired := 20
		if c.late {
			expired = silent
		}
		for _, w := range shy {
			w.Waits("do", timeout, 40)
			for n := range expired {
				asked := after(left - float64(expired-1-n))
				w.Asked("do", timeout, asked, asked)
				sign.given(after(left+2), false)
				w.Expired("do", timeout, asked, after(left+2))
			}
			if c.late {
				w.rate = slowest
				w.Late(after(left-1), after(left+1))
				w.Late(after(left), after(left+2))
			}
		}
		free := func(at float64, want ...int) {
			t.Helper()
			for n, w := range shy {
				if got, _ := w.Free("do", timeout, after(left+at)); got != want[n] {
					t.Errorf("%s: %d of lane %d may leave after %v s, not %d", c.name, got, n, at, want[n])
				}
			}
		}
		free(2.9, 0, 0)
		answers(left+c.asked, c.took)
		free(3, c.free, c.free)
		if c.free == 0 {
			continue
		}
		shy[0].Asked("do", timeout, after(left+3), after(left+3))
		free(3.1, 0, 0)
		shy[0].Answered("do", timeout, true, after(left+3), after(left+3), after(left+3.4), after(left+3.4))
		if got, _ := shy[1].Free("do", timeout, after(left+3.5)); got != 1 {
			t.Errorf("%s: %d of the other may leave then", c.name, got)
		}
	}
}

// An instance that wants little of an agent, none of which is under way, finds out, however rarely the lane asks and whatever
// expired: so little is no queue, and no other lane could hear from the agent. But not while windows run empty.
func TestWhoWantsLittle(t *testing.T) {
	const timeout = 5 * time.Second
	for _, c := range []struct {
		name  string
		set   func(w, other *Window)
		shy   func(w *Window)
		free  int
		pause float64 // until another one, if that one expires
	}{
		{name: "nothing is under way", free: 1, pause: 2},
		{name: "it is away", shy: func(w *Window) { w.silence, w.probe = silent+1, 8*time.Second }, pause: 8},
		{name: "it is far behind", shy: func(w *Window) { w.late, w.lateAt, w.lateFor = 9, after(-20), lateLongest }, free: 1, pause: 2},
		{name: "it answered late just now", shy: func(w *Window) { w.late, w.lateAt, w.lateFor = 9, after(-1), lateLongest }},
		{name: "another lane has asked", set: func(_, other *Window) { other.Known("do", timeout, after(1)) }},
		{name: "one had, and ended", free: 1, pause: 2, set: func(_, other *Window) {
			other.Known("do", timeout, after(1))
			other.Ended("do", timeout, after(1))
		}},
		{name: "one had, and the lane ended", free: 1, pause: 2, set: func(_, other *Window) {
			other.Known("do", timeout, after(1))
			other.Close()
		}},
		{name: "another lane wants more", set: func(_, other *Window) { other.Waits("do", timeout, silent) }},
		{name: "windows run empty", set: func(w, _ *Window) { w.empty, w.reopens = after(3), after(4) }},
	} {
		sign := new(Sign)
		w, other := New(100, 0, 0, sign), New(100, 0, 1, sign)
		w.rate = slowest
		w.Waits("do", timeout, silent-1)
		w.Asked("do", timeout, after(0), after(0))
		w.Ended("do", timeout, after(0))
		if c.set != nil {
			c.set(w, other)
		}
		if c.shy != nil {
			c.shy(w)
		}
		if got, _ := w.Free("do", timeout, after(2)); got != c.free {
			t.Errorf("%s: %d may leave, not %d", c.name, got, c.free)
		}
		if c.pause == 0 {
			continue
		}
		w.Asked("do", timeout, after(2), after(2))
		w.Ended("do", timeout, after(2))
		_, again := w.Free("do", timeout, after(2))
		if pause := again.Sub(after(2)).Seconds(); pause < c.pause/2 || pause > 1.5*c.pause {
			t.Errorf("%s: the next may leave after %v s, not about %v s", c.name, pause, c.pause)
		}
	}
}

// What an agent answers is believed of it after the clock was set back, too; and what seems to have been answered before it
// was asked for is not at once.
func TestAtOnceByAClockThatIsSetBack(t *testing.T) {
	const timeout = 5 * time.Second
	sign := new(Sign)
	w, other := New(100, 0, 0, sign), New(100, 0, 1, sign)
	w.Waits("do", timeout, 40)
	answers := func(asked, at float64) {
		other.Asked("do", timeout, after(asked), after(asked))
		other.Answered("do", timeout, true, after(asked), after(asked), after(at), after(at))
	}
	answers(3_600, 3_600.1)
	answers(3_601, 4)
	w.rate = slowest
	w.Asked("do", timeout, after(5), after(5))
	w.Ended("do", timeout, after(5))
	if w.answersOthers() && sign.atOnce.Load() > after(3_600).UnixNano() {
		t.Error("it was answered at once before it was asked for")
	}
	sign.spent.Store(sign.atOnce.Load())
	answers(6, 6.1)
	if got, _ := w.Free("do", timeout, after(7)); got != 1 {
		t.Errorf("%d may leave", got)
	}
}

// An agent that stands still in one partition alone, and answers the others at once, is asked there about as often as one that
// is away, and not whenever its timeout ends, however many operations it has.
func TestWhoAnswersOnlyOthers(t *testing.T) {
	const timeout, most = 5 * time.Second, int(time.Hour / probeLongest)
	for _, operations := range [][]string{{"do"}, {"do", "also"}} {
		sign := new(Sign)
		w, other := New(100, 0, 0, sign), New(100, 0, 1, sign)
		left, asked := 0, make(map[string]time.Time)
		for _, o := range operations {
			w.Waits(o, timeout, 1_000)
		}
		for n := range 3_600 * 2 {
			at := after(float64(n) / 2)
			other.Asked("do", timeout, at, at)
			other.Answered("do", timeout, true, at, at, at.Add(timeout/20), at.Add(timeout/20))
			for _, o := range operations {
				if !asked[o].IsZero() && at.Sub(asked[o]) >= timeout {
					w.Expired(o, timeout, asked[o], at)
					delete(asked, o)
				}
				if free, _ := w.Free(o, timeout, at.Add(timeout/20)); free > 0 && asked[o].IsZero() {
					left++
					asked[o] = at.Add(timeout / 20)
					w.Asked(o, timeout, asked[o], asked[o])
				}
			}
		}
		if left < most*3/4 || left > most*5/4 {
			t.Errorf("%d of %d operations left in an hour, not about %d", left, len(operations), most)
		}
		// Once it is answered there all is as before.
		at := after(3_601)
		w.Asked("do", timeout, at, at)
		w.Answered("do", timeout, true, at, at, at, at)
		if w.vain != 0 || w.Away() {
			t.Errorf("it is away: %t, and asked %s after it was asked in vain", w.Away(), w.vain)
		}
	}
}

// What was with an agent when it went away were no probes: many of them are no reason to
// probe it more rarely.
func TestManyThatExpire(t *testing.T) {
	w := New(100, 0, 0, new(Sign))
	for range 20 {
		w.Asked("do", time.Second, after(0), after(0))
	}
	for range 20 {
		w.Expired("do", time.Second, after(0), after(1))
	}
	at := 0.0
	for wait := 1.0; wait < 10; wait *= 2 {
		free, again := w.Free("do", time.Second, after(at))
		pause := again.Sub(after(at)).Seconds()
		if free != 0 || pause < wait/2 || pause > 1.5*wait {
			t.Errorf("%v: %d may leave, and it is probed after %v s, not about %v s", at, free, pause, wait)
		}
		at += pause
		w.Asked("do", time.Second, after(at), after(at))
		w.Expired("do", time.Second, after(at), after(at+1))
	}
}

// Who asks an agent one at a time waits for nothing, as long as answers do not queue, and
// nothing expires: also if that is more often than lanes may ask of which nothing is known.
func TestOneAtATime(t *testing.T) {
	w := New(1, 0, 0, new(Sign))
	free := func(at float64, want int) {
		t.Helper()
		if got, _ := w.Free("do", time.Second, after(at)); got != want {
			t.Errorf("after %v s %d may leave, not %d", at, got, want)
		}
	}
	asks := func(at, took float64) {
		w.Asked("do", time.Second, after(at), after(at))
		if took > 0.9 {
			w.Expired("do", time.Second, after(at), after(at+took))
			return
		}
		w.Answered("do", time.Second, true, after(at), after(at), after(at+took), after(at+took))
	}
	for at := range 5 {
		asks(float64(at)/10, 0.01)
		free(float64(at)/10+0.02, 2) // and the next one with it
	}
	w.Asked("do", time.Second, after(0.5), after(0.5))
	free(0.5, 1)
	w.Asked("do", time.Second, after(0.5), after(0.5))
	free(0.5, 0)
	w.Answered("do", time.Second, true, after(0.5), after(0.5), after(0.51), after(0.51))
	w.Answered("do", time.Second, true, after(0.5), after(0.5), after(0.51), after(0.51))
	free(0.52, 2)
	asks(0.6, 0.5)
	free(1.1, 0) // that one had queued
	asks(3, 0.01)
	free(3.02, 2)
	asks(3.1, 1)
	free(3.2, 0)
}

// Time says when it makes room, to the nanosecond: who waits need not look before.
func TestTimeMakesRoom(t *testing.T) {
	w := New(1, 0, 0, new(Sign))
	w.Asked("do", time.Second, noon, noon)
	w.Expired("do", time.Second, noon, noon)
	_, again := w.Free("do", time.Second, noon)
	if before, _ := w.Free("do", time.Second, again.Add(-1)); before != 0 {
		t.Errorf("%d may leave before", before)
	}
	if free, none := w.Free("do", time.Second, again); free != 1 || !none.IsZero() {
		t.Errorf("%d may leave then, and at %v", free, none)
	}
}

// An operation that may queue for long does not wait that long for another of which one
// is under way, and that may hardly queue at all.
func TestAnHourBesideAMoment(t *testing.T) {
	w := New(1, 0, 0, new(Sign))
	w.Asked("hour", time.Hour, after(0), after(0))
	w.Answered("hour", time.Hour, true, after(0), after(0), after(1), after(1))
	w.Asked("moment", time.Second, after(2), after(2))
	w.Answered("moment", time.Second, true, after(2), after(2), after(2.9), after(2.9))
	w.Asked("moment", time.Second, after(3), after(3))
	w.Answered("moment", time.Second, true, after(3), after(3), after(3.9), after(3.9))
	w.Asked("moment", time.Second, after(4), after(4))
	w.Waits("hour", time.Hour, 1)
	if free, _ := w.Free("hour", time.Hour, after(40)); free != 1 {
		t.Errorf("%d may leave", free)
	}
}

// Two of one moment that have other timeouts are two.
func TestTwoOfOneMoment(t *testing.T) {
	w := New(100, 0, 0, new(Sign))
	w.Asked("do", 24*time.Hour, noon, noon)
	w.Asked("do", 5*time.Second, noon, noon)
	w.Answered("do", 5*time.Second, true, noon, noon, after(1), after(1))
	w.Free("do", time.Hour, after(3_600))
	if out := w.Out(); out != 1 {
		t.Errorf("%d are under way", out)
	}
	w.Ended("do", 24*time.Hour, noon)
	w.Known("do", 24*time.Hour, noon)
	if out := w.Out(); out != 1 {
		t.Errorf("%d are under way", out)
	}
}

// What is kept of all operations is what they say, whatever happens at whatever time.
func TestSums(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := New(10, 0, 0, new(Sign))
		now, names := after(0), rapid.SampledFrom([]string{"a", "b", "c"})
		timeouts := rapid.SampledFrom([]time.Duration{time.Second, 10 * time.Second, time.Hour})
		at := func() time.Time { return now.Add(-time.Duration(rapid.IntRange(-2, 9).Draw(t, "ago")) * time.Second) }
		wait := make(map[string]int)
		what := rapid.SampledFrom([]string{"asked", "asked", "answered", "expired", "ended", "known", "waits", "leaves", "late", "later", "back"})
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			name, timeout := names.Draw(t, "name"), timeouts.Draw(t, "timeout")
			w.Free(name, timeout, now)
			switch what.Draw(t, "what") {
			case "asked":
				w.Asked(name, timeout, now, now)
			case "answered":
				w.Answered(name, timeout, true, at(), at(), now, now)
			case "expired":
				w.Expired(name, timeout, at(), now)
			case "ended":
				w.Ended(name, timeout, at())
			case "known":
				w.Known(name, timeout, at())
			case "waits":
				w.Waits(name, timeout, 1)
				wait[name]++
			case "leaves":
				if wait[name] > 0 {
					w.Waits(name, timeout, -1)
					wait[name]--
				}
			case "late":
				w.Late(at(), now)
			case "later":
				now = now.Add(time.Duration(rapid.IntRange(1, 3_000).Draw(t, "later")) * time.Millisecond)
			case "back":
				now = now.Add(-time.Second)
			}
			out, waiting := 0, 0
			for _, o := range w.operations {
				out, waiting = out+o.out, waiting+o.waiting
			}
			if w.Out() != out || w.waiting != waiting {
				t.Fatalf("%d are under way and %d wait, and it says %d and %d", out, waiting, w.Out(), w.waiting)
			}
			allowance, queue := w.allowance(), w.queue(now)
			w.sums = sums{}
			if allowance != w.allowance() || queue != w.queue(now) {
				t.Fatalf("it kept an allowance of %v and a queue of %v, which are %v and %v", allowance, queue, w.allowance(), w.queue(now))
			}
		}
	})
}

// What is asked for while late answers come waits for as long as the agent takes for a few of them,
// and no longer: not for as long as it had nothing to do between two probes, nor for what it took before a long rest.
func TestLateAnswers(t *testing.T) {
	spell := func(w *Window, n int, at float64, answers ...float64) {
		w.Waits("do", time.Second, 10)
		for range n {
			w.Asked("do", time.Second, after(at), after(at))
		}
		for range n {
			w.Expired("do", time.Second, after(at), after(at+1))
		}
		for _, later := range answers {
			w.Late(after(at), after(at+later))
		}
	}
	waits := func(t *testing.T, w *Window, since, want float64) {
		t.Helper()
		free, again := w.Free("do", time.Second, after(since))
		if pause := again.Sub(after(since)).Seconds(); free != 0 || pause < want/2 || pause > 1.5*want {
			t.Errorf("%d may leave, and again after %v s, not about %v s", free, pause, want)
		}
	}
	t.Run("it works one off every ten seconds", func(t *testing.T) {
		w := New(1, 0, 0, new(Sign))
		spell(w, 3, 0, 2, 12)
		waits(t, w, 12, 40)
	})
	t.Run("what is asked for later is answered late, too", func(t *testing.T) {
		w := New(1, 0, 0, new(Sign))
		spell(w, 2, 0, 2)
		spell(w, 1, 60, 1.5)
		waits(t, w, 61.5, lateLeast.Seconds())
	})
	t.Run("nothing was wanted of it for long", func(t *testing.T) {
		w := New(1, 0, 0, new(Sign))
		spell(w, 3, 0, 2, 12)
		w.Rested()
		spell(w, 3, 600, 2)
		waits(t, w, 602, lateLeast.Seconds())
	})
}
