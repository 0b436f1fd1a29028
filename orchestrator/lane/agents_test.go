package lane

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
)

// asking is a lane with an agent of which nothing is known but that it takes so many
// requests a second of the lane, and a clock that stands still.
type asking struct {
	*testing.T
	*Lane
	world *still
	now   time.Time
	takes time.Duration // to commit
	next  int           // order
	under []request
}

// request is a request that the agent has.
type request struct {
	order, step string
	attempt     int
	undo        bool
	at          time.Time
}

const askFlow = `
workflow: call
steps: [{name: call, agent: phone, undo: hang-up, timeout: 5s, retry: {attempts: 2, backoff: 1s, jitter: 0}}]
`

func newAsking(t *testing.T, rate float64) *asking {
	l, world := newLane(t)
	a := &asking{T: t, Lane: l, world: world, now: time.Date(2026, 1, 5, 12, 1, 0, 0, time.UTC)}
	world.flows.Add(parseFlow(t, askFlow))
	l.format = events.JournalFormat
	a.at(l, rate)
	return a
}

// at has the lane be another.
func (a *asking) at(l *Lane, rate float64) {
	a.Lane = l
	l.cfg.AgentRate = rate * float64(l.cfg.Partitions)
	l.time.Wall = func() time.Time { return a.now }
	l.agents.began = a.now
}

// submit has so many orders come, of a priority, and returns their ids.
func (a *asking) submit(n int, priority string) (ids []string) {
	for ; n > 0; a.next++ {
		id := fmt.Sprintf("o-%d", a.next)
		if a.byKey.Of([]byte(id)) != a.partition {
			continue
		}
		n--
		ids = append(ids, id)
		a.now = a.now.Add(time.Millisecond)
		must(a.T, a.decide([]*kgo.Record{typed(a.topics.Orders, "", id, fmt.Sprintf(`{"workflow":"call","priority":%q}`, priority))}))
		a.commit()
	}
	return ids
}

// look lets time pass, and has the lane look at what is due until it does nothing more.
func (a *asking) look(after time.Duration) {
	a.Helper()
	a.now = a.now.Add(after)
	for n := 0; ; n++ {
		if n > 10_000 {
			a.Fatal("it looks for ever")
		}
		a.looks(a.T)
		a.commit()
		if !a.Lane.look {
			return
		}
	}
}

// commit commits what was decided, and the agent gets its requests.
func (a *asking) commit() {
	a.Helper()
	if !a.begin() {
		return
	}
	for _, r := range a.inflight.records {
		if r.Topic == a.topics.Requests("phone") {
			m, err := events.Decode[events.Request](r.Value)
			must(a.T, err)
			a.under = append(a.under, request{m.Order, m.Step, m.Attempt, m.Undo, a.now})
		}
	}
	a.now = a.now.Add(a.takes)
	a.inflight.ended = a.now
	must(a.T, a.conclude(nil))
}

// answer has the agent complete what it was asked for.
func (a *asking) answer(r request) {
	a.Helper()
	a.answered(r, a.now)
}

func (a *asking) answered(r request, written time.Time) {
	a.Helper()
	a.under = slices.DeleteFunc(a.under, func(other request) bool { return other == r })
	reply := typed(a.topics.Replies, "", r.order, fmt.Sprintf(`{"order":%q,"step":%q,"attempt":%d,"undo":%t,"status":"completed"}`, r.order, r.step, r.attempt, r.undo))
	reply.Timestamp = written
	must(a.T, a.decide([]*kgo.Record{reply}))
	a.commit()
}

func (a *asking) order(id string) *projections.Order {
	a.Helper()
	o, err := a.Lane.order(id)
	must(a.T, err)
	return o
}

// leaves wants that so many are with the agent, and the others wait.
func (a *asking) leaves(under, waiting int) {
	a.Helper()
	if len(a.under) != under || len(a.away.steps) != waiting {
		a.Errorf("%d are with the agent, and %d wait; %d and %d should", len(a.under), len(a.away.steps), under, waiting)
	}
}

// S1, S2: what an agent does not take at once waits here, its complete-by not begun.
func TestABurstLeavesAsItsAgentTakesIt(t *testing.T) {
	a := newAsking(t, 2)
	ids := a.submit(100, "")
	a.look(0)
	a.leaves(5, 95) // two a second, in half of five seconds
	for n := 0; len(a.under) > 0; n++ {
		a.now = a.now.Add(100 * time.Millisecond)
		a.answer(a.under[0])
		a.look(0)
		if n == 0 {
			a.leaves(6, 93) // it is quicker than was thought
		}
	}
	for _, id := range ids {
		if o := a.order(id); o.State != projections.Processed || o.FailureCount != 0 {
			t.Errorf("order %s is %s after %d failures", id, o.State, o.FailureCount)
		}
	}
	a.leaves(0, 0)
	if len(a.away.topics) > 0 {
		t.Errorf("lines: %v", a.away.topics)
	}
}

// It goes by priority; every eighth is the oldest.
func TestWhoGoesFirst(t *testing.T) {
	a := newAsking(t, 0.4) // one at a time
	a.submit(1, "")
	low, normal, high := a.submit(10, "low"), a.submit(10, "normal"), a.submit(10, "high")
	a.look(0)
	a.leaves(1, 30)
	var left []string
	for n := 0; len(left) < 31; n++ {
		if n > 1_000 {
			t.Fatalf("nothing leaves behind %v", left)
		}
		a.look(4 * time.Second) // it is slow: no more at a time
		for len(a.under) > 0 {
			left = append(left, a.under[0].order)
			a.answer(a.under[0])
		}
	}
	want := slices.Concat(high[:7], low[:1], high[7:], normal[:4], low[1:2], normal[4:], low[2:])
	if fmt.Sprint(left[1:]) != fmt.Sprint(want) {
		t.Errorf("they left as\n%v, and should as\n%v", left[1:], want)
	}
}

// A submission that comes while others wait does not overtake them, though there is room.
func TestNobodyOvertakesWhoWaits(t *testing.T) {
	a := newAsking(t, 0.4)
	ids := a.submit(3, "")
	a.look(0)
	a.leaves(1, 2)
	a.now = a.now.Add(time.Second)
	a.answer(a.under[0])
	late := a.submit(1, "")
	a.look(0)
	for len(a.under) < 1 {
		a.look(time.Second)
	}
	if got := a.under[0].order; got != ids[1] {
		t.Errorf("%s left, and %s was there before; %s came later", got, ids[1], late)
	}
}

// C1: what waits and was never asked for did not run. A cancellation takes it out at
// once, without an undo, and those behind it move up.
func TestCancelledWhileItWaits(t *testing.T) {
	a := newAsking(t, 0.4)
	ids := a.submit(3, "")
	a.look(0)
	a.leaves(1, 2)
	must(t, a.decide([]*kgo.Record{typed(a.topics.Commands, "", ids[1], fmt.Sprintf(`{"id":"c-1","order":%q,"command":"cancel"}`, ids[1]))}))
	a.commit()
	if o := a.order(ids[1]); o.State != projections.Cancelled || o.Steps[0].Undo != nil {
		t.Errorf("it is %s, with the undo %+v", o.State, o.Steps[0].Undo)
	}
	a.now = a.now.Add(time.Second)
	a.answer(a.under[0])
	for len(a.under) == 0 {
		a.look(time.Second)
	}
	if a.under[0].order != ids[2] || len(a.away.steps) != 0 {
		t.Errorf("%v left, %v wait", a.under, a.away.steps)
	}
}

// P5: what waits gets the place of the priority that its order has now.
func TestAnotherPriorityWhileItWaits(t *testing.T) {
	a := newAsking(t, 0.4)
	ids := a.submit(3, "")
	a.look(0)
	a.leaves(1, 2)
	must(t, a.decide([]*kgo.Record{typed(a.topics.Commands, "", ids[2], fmt.Sprintf(`{"id":"c-1","order":%q,"command":"change","priority":"high"}`, ids[2]))}))
	a.commit()
	a.now = a.now.Add(time.Second)
	a.answer(a.under[0])
	for len(a.under) == 0 {
		a.look(time.Second)
	}
	if a.under[0].order != ids[2] {
		t.Errorf("%v left, and %s is urgent", a.under, ids[2])
	}
}

// A pause holds what waits; it waits again when the order goes on.
func TestPausedWhileItWaits(t *testing.T) {
	a := newAsking(t, 0.4)
	ids := a.submit(2, "")
	a.look(0)
	command := func(name string) {
		must(t, a.decide([]*kgo.Record{typed(a.topics.Commands, "", ids[1], fmt.Sprintf(`{"id":%q,"order":%q,"command":%q}`, name, ids[1], name))}))
		a.commit()
	}
	command("pause")
	a.now = a.now.Add(time.Second)
	a.answer(a.under[0])
	for range 20 {
		a.look(time.Second)
	}
	a.leaves(0, 0)
	command("resume")
	for len(a.under) == 0 {
		a.look(time.Second)
	}
	if a.under[0].order != ids[1] {
		t.Errorf("%v left", a.under)
	}
}

// V5: an agent that gives no sign is probed, one request at a time, and uses up the
// attempts of nobody but those that were with it. When it is back all goes on.
func TestAnAgentThatGivesNoSign(t *testing.T) {
	a := newAsking(t, 2)
	ids := a.submit(20, "")
	a.look(0)
	a.leaves(5, 15)
	for range 3_600 {
		a.look(time.Second)
		a.under = slices.DeleteFunc(a.under, func(r request) bool { return a.now.Sub(r.at) > 5*time.Second }) // it skips them, A4
		if a.now.Sub(a.agents.began) > 30*time.Second && len(a.under) > 1 {
			t.Fatalf("%d are with the agent at a time", len(a.under))
		}
	}
	tried, attempts := 0, 0
	for _, id := range ids {
		o := a.order(id)
		if o.State.Final() || o.State == projections.Error {
			t.Errorf("order %s is %s", id, o.State)
		}
		tried += o.Steps[0].Tried
		attempts += o.Steps[0].Attempt
	}
	if tried != 4 || attempts < 200 {
		t.Errorf("%d attempts of %d count", tried, attempts)
	}
	for n := 0; slices.ContainsFunc(ids, func(id string) bool { return !a.order(id).State.Final() }); n++ {
		if n > 60 {
			t.Fatalf("after its return it is with %v, and %d wait", a.under, len(a.away.steps))
		}
		for len(a.under) > 0 {
			a.answer(a.under[0])
		}
		a.look(time.Second)
	}
}

// V5: an order that is alone with an agent that gives no sign uses up its attempts.
func TestAloneWithAnAgentThatGivesNoSign(t *testing.T) {
	a := newAsking(t, 2)
	for range 5 {
		id := a.submit(1, "")[0]
		for n := 0; a.order(id).State != projections.Error; n++ {
			if n > 100 {
				t.Fatalf("order %s is %s", id, a.order(id).State)
			}
			a.look(time.Second)
		}
		if tried := a.order(id).Steps[0].Tried; tried != 2 {
			t.Errorf("%d attempts of 2 count", tried)
		}
	}
}

// What an agent was asked for before the partition changed hands is still under way.
func TestWhatWasAskedBeforeTheTakeover(t *testing.T) {
	a := newAsking(t, 2)
	a.submit(10, "")
	a.look(0)
	a.leaves(5, 5)
	before := a.Lane
	must(t, before.state.Flush())
	a.now = a.now.Add(time.Second)
	next := New(before.cfg, before.partition, nil, a.world, before.state, before.log)
	next.current, next.position, next.format, next.transaction = newBatch(), before.position, before.format, before.transaction
	next.state.Rescan()
	a.at(next, 2)
	a.look(0)
	if len(a.under) > 8 { // a few, before it looks
		t.Errorf("%d are with the agent, and five were before", len(a.under))
	}
	for range 10 {
		a.look(100 * time.Millisecond)
	}
	if len(a.under) > 8 {
		t.Errorf("%d are with the agent, and five were before", len(a.under))
	}
	for len(a.under) > 0 {
		a.now = a.now.Add(100 * time.Millisecond)
		a.answer(a.under[0])
		a.look(0)
	}
	a.leaves(0, 0)
	if out := next.agents.windows[a.topics.Requests("phone")].Out(); out != 0 {
		t.Errorf("%d are under way, by what it knows", out)
	}
}

// Waybill's own lag is not taken for the agent's: what counts is the time from the
// commit's acknowledgement to the reply's time stamp.
func TestTheLagOfALaneIsNotItsAgents(t *testing.T) {
	a := newAsking(t, 2)
	w := a.agents.window(a.Lane, a.topics.Requests("phone"))
	round := func(reads time.Duration) {
		a.submit(1, "")
		a.look(0)
		for _, r := range slices.Clone(a.under) {
			written := a.now.Add(10 * time.Millisecond)
			a.now = a.now.Add(reads)
			a.answered(r, written)
		}
	}
	round(0)
	size := w.Size()
	for n := range 40 {
		a.takes = 4 * time.Second * time.Duration(n%2)
		round(4*time.Second - a.takes)
	}
	if w.Size() < size || w.Away() {
		t.Errorf("%v may queue, and %v might before; away: %t", w.Size(), size, w.Away())
	}
}

// A fixed bound is one of all partitions together, and lets each have one at least.
func TestABoundOfAnAgent(t *testing.T) {
	for most, want := range map[int]int{36: 3, 35: 2, 1: 1} {
		a := newAsking(t, 1_000)
		a.cfg.AgentBounds = map[string]int{a.topics.Requests("phone"): most}
		a.submit(10, "")
		a.look(0) // at what was under way before
		a.look(0)
		a.leaves(want, 10-want)
		a.answer(a.under[0])
		a.look(0)
		a.leaves(want, 9-want)
	}
}

// An agent that does what has expired, too, gets nothing new while it is at that.
func TestLateAnswers(t *testing.T) {
	a := newAsking(t, 1.2)
	w := a.agents.window(a.Lane, a.topics.Requests("phone"))
	a.submit(3, "")
	a.look(0)
	had := slices.Clone(a.under)
	a.look(5500 * time.Millisecond) // they expire
	if free, _ := w.Free("call", 5*time.Second, a.now); free != 1 {
		t.Errorf("%d may leave", free)
	}
	a.answer(had[0])
	if free, _ := w.Free("call", 5*time.Second, a.now); free != 0 {
		t.Errorf("%d may leave while the agent does what has expired", free)
	}
}

// Whoever waits is a probe in turn, also what is urgent: else it would be the only one.
func TestEveryoneIsAProbe(t *testing.T) {
	a := newAsking(t, 2)
	ids := slices.Concat(a.submit(6, ""), a.submit(3, "high"))
	for range 1_200 {
		a.look(time.Second)
	}
	var attempts []int
	for _, id := range ids {
		attempts = append(attempts, a.order(id).Steps[0].Attempt)
	}
	if slices.Max(attempts)-slices.Min(attempts) > 2 {
		t.Errorf("the attempts of each: %v", attempts)
	}
}

// What waits for time alone, as for the next probe of an agent that is away, leaves when it
// has come, and not when somebody looks for what has expired, which may be hours later.
func TestTimeMakesRoom(t *testing.T) {
	a := newAsking(t, 0.2) // one in five seconds
	a.submit(3, "")
	a.look(0)
	a.leaves(1, 2)
	if opens := a.opens(); opens != 0 {
		t.Errorf("time makes room in %s, though one is under way that queues", opens)
	}
	for waited := time.Second; a.opens() == 0; waited += time.Second {
		if a.look(time.Second); waited > time.Minute {
			t.Fatal("time makes no room at an agent that is away")
		}
	}
	beside := &opening{succeeding{t: t}, a}
	must(t, a.Lane.Run(t.Context(), beside))
	asked := 0
	for _, b := range beside.batches {
		for _, r := range b.records {
			if r.Topic == a.topics.Requests("phone") {
				asked++
			}
		}
	}
	if asked != 1 {
		t.Errorf("%d left when time had come, in %d batches", asked, len(beside.batches))
	}
}

// opening lets time pass until it has made room at an agent.
type opening struct {
	succeeding
	of *asking
}

func (o *opening) Next(w Wanted) Happened {
	if w.Opens == 0 || w.Look || o.pending != nil {
		return o.succeeding.Next(w)
	}
	o.of.now = o.of.now.Add(w.Opens)
	return Happened{What: Opened}
}

// A lane on Kafka waits for that.
func TestALaneWaitsForTimeToMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &goroutines{ctx: t.Context(), tick: time.NewTicker(time.Hour), opens: time.NewTimer(time.Hour)}
		began := time.Now()
		if h := g.Next(Wanted{Opens: time.Minute}); h.What != Opened || time.Since(began) != time.Minute {
			t.Errorf("after %s: %v", time.Since(began), h)
		}
		if h := g.Next(Wanted{}); h.What != Ticked {
			t.Errorf("%v", h)
		}
	})
}

// An agent is not silent that was asked when it was too late: the commit took its time, or
// had to wait for its turn.
func TestAnAgentThatIsAskedTooLate(t *testing.T) {
	for name, wait := range map[string]time.Duration{"in time": time.Second, "too late": 3 * time.Second} {
		t.Run(name, func(t *testing.T) {
			l, w := newLane(t)
			w.flows.Add(parseFlow(t, `
workflow: quick
steps:
  - {name: charge, agent: payment, after: [], timeout: 2s}
`))
			now := time.Now()
			l.time.Wall = func() time.Time { return events.Time(now) }
			var records []*kgo.Record
			for i := 0; len(records) < 5; i++ {
				if id := fmt.Sprint("o-", i); l.byKey.Of([]byte(id)) == l.partition {
					records = append(records, typed(l.topics.Orders, "", id, `{"workflow":"quick"}`))
				}
			}
			must(t, l.decide(records))
			now = now.Add(wait)
			l.begin()
			l.inflight.ended = l.time.Wall()
			must(t, l.conclude(nil))
			now = now.Add(4 * time.Second)
			l.looks(t)
			if away := l.agents.windows[l.topics.Requests("payment")].Away(); away != (wait < 2*time.Second) {
				t.Errorf("the agent counts as away: %t", away)
			}
		})
	}
}
