package lane

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// What waits leaves by its rank and in its turn, and who looks on is told so.
func TestPlacesInALine(t *testing.T) {
	q := newQuiet(t, "workflow: call\nsteps: [{name: quick, agent: phone, after: []}, {name: call, agent: phone, after: []}]", 0)
	ids := make([]string, 0, 3)
	for n := 0; len(ids) < cap(ids); n++ {
		if id := fmt.Sprint("o-", n); q.byKey.Of([]byte(id)) == q.partition {
			ids = append(ids, id)
		}
	}
	for n, priority := range []string{"low", "normal", "high"} {
		must(t, q.decide([]*kgo.Record{typed(q.topics.Orders, "", ids[n], fmt.Sprintf(`{"workflow":"call","priority":%q}`, priority))}))
		q.commits(t)
	}
	q.wrote(t)
	taken := make(map[int]bool)
	for n, id := range ids {
		for _, step := range []string{"quick", "call"} {
			before, found := q.Before(id, step)
			if !found || before/2 != 2-n || taken[before] {
				t.Errorf("before step %s of order %d are %d, %t", step, n, before, found)
			}
			taken[before] = true
		}
	}
	if n, found := q.Before("o-x", "call"); found {
		t.Errorf("before what does not wait are %d", n)
	}
	began := q.now
	q.now = q.now.Add(time.Second)
	q.listen()
	if a := q.Agents()["phone"]; !a.WaitingSince.Equal(began) {
		t.Errorf("waits since %s, and not %s", a.WaitingSince, began)
	}
	if a := q.Agents()["phone"]; a.Waiting != 6 || a.UnderWay != 0 || a.Window <= 0 || !a.SilentSince.IsZero() {
		t.Errorf("it stands so with the agent: %+v", a)
	}
	since := q.now
	q.alerts(t, time.Minute+time.Second)
	if a := q.Agents()["phone"]; !a.SilentSince.Equal(since) {
		t.Errorf("after a minute: %+v", a)
	}
	delete(q.world.away, q.topics.Requests("phone"))
	q.wrote(t)
	q.now = q.now.Add(time.Second)
	q.listen()
	if a := q.Agents()["phone"]; a.Waiting != 0 || !a.WaitingSince.IsZero() || a.UnderWay != 6 {
		t.Errorf("once it is there: %+v", a)
	}
	if n, found := q.Before(ids[0], "call"); found {
		t.Errorf("before what is under way are %d", n)
	}
}

// An agent that gives no sign has no room, whatever it had: it is only probed.
func TestNoRoomIsShownOfWhoGivesNoSign(t *testing.T) {
	a := newAsking(t, 2)
	a.submit(20, "")
	a.look(0)
	a.show()
	if shown := a.Agents()["phone"]; shown.Probed || shown.Window != 5 {
		t.Errorf("at first: %+v", shown)
	}
	for range 20 {
		a.look(time.Second)
	}
	a.show()
	if shown := a.Agents()["phone"]; !shown.Probed || shown.Window != 0 || shown.UnderWay > 1 || shown.Waiting == 0 {
		t.Errorf("after 20 s of silence: %+v", shown)
	}
}

// Who looks on is told which callers' topics are owed something, since when, and which of
// them do not take it.
func TestWhoIsOwedIsShown(t *testing.T) {
	r := newRound(t)
	began := r.wall
	shows := func(what string, want map[string]Caller) {
		t.Helper()
		r.show()
		if got := r.Callers(); !maps.Equal(got, want) {
			t.Errorf("%s: it shows %+v, and not %+v", what, got, want)
		}
	}
	shows("at first", map[string]Caller{})
	r.decides("shop", 1)
	r.pass(time.Minute)
	r.owes("shop", 1)
	r.owes("mall", 1)
	later := began.Add(time.Minute)
	shows("two topics", map[string]Caller{"shop": {Since: began}, "mall": {Since: later}})
	r.ends("shop", 0, errAway)
	shows("one does not take it", map[string]Caller{"shop": {Failing: true, Since: began}, "mall": {Since: later}})
	r.ends("mall", 1, nil)
	r.tries(time.Minute)
	r.ends("shop", 1, nil)
	shows("it took the first", map[string]Caller{"shop": {Since: later}})
	r.ends("shop", 1, nil)
	shows("nothing is left", map[string]Caller{})
}
