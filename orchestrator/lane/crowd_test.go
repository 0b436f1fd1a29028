package lane

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/decide"
	"github.com/waybill-dev/waybill/orchestrator/window"
	"github.com/waybill-dev/waybill/projections"
)

// hours lets time pass, second by second, with an agent that answers after so long, and
// says how many alerts were raised.
func (a *asking) hours(n int, takes time.Duration) (alerts int) {
	a.Helper()
	return a.seconds(n*3600, takes, 1)
}

// seconds does so for so long, with an agent that gives each answer so often.
func (a *asking) seconds(n int, takes time.Duration, times int) (alerts int) {
	a.Helper()
	a.time.Timer = func() time.Time { return a.now }
	for range n {
		a.look(time.Second)
		a.listen()
		for _, r := range a.current.records {
			if r.Topic == a.topics.Alerts {
				alerts++
			}
		}
		a.commit()
		for _, r := range slices.Clone(a.under) {
			if a.now.Sub(r.at) >= takes {
				for range times {
					a.answer(r)
				}
			}
		}
	}
	return alerts
}

// like submits what a submission says, and returns its order's id.
func (a *asking) like(submission string) string {
	a.Helper()
	for {
		id := fmt.Sprintf("o-%d", a.next)
		if a.next++; a.byKey.Of([]byte(id)) == a.partition {
			a.now = a.now.Add(time.Millisecond)
			must(a.T, a.decide([]*kgo.Record{typed(a.topics.Orders, "", id, submission)}))
			a.commit()
			return id
		}
	}
}

func (a *asking) cancel(id string) {
	a.Helper()
	must(a.T, a.decide([]*kgo.Record{typed(a.topics.Commands, "", id, fmt.Sprintf(`{"id":"c-1","order":%q,"command":"cancel"}`, id))}))
	a.commit()
}

// hold has an order be held, as one is on which deciding panicked.
func (a *asking) hold(id string) {
	a.Helper()
	a.prepare(nil)
	a.take(decide.Hold(a.env(), a.order(id), nil, "nobody knows"))
	a.commit()
}

// withFlows is a lane whose workflows these are.
func withFlows(t *testing.T, rate float64, flows ...string) *asking {
	l, world := newLane(t)
	a := &asking{T: t, Lane: l, world: world, now: time.Date(2026, 1, 5, 12, 1, 0, 0, time.UTC)}
	for _, flow := range flows {
		world.flows.Add(parseFlow(t, flow))
	}
	l.format = events.JournalFormat
	a.at(l, rate)
	return a
}

// V3: work that takes longer than its timeout does not go on for ever because others wait,
// and an operator hears of it once.
func TestAnAgentThatIsAlwaysLate(t *testing.T) {
	a := newAsking(t, 2)
	ids := a.submit(20, "")
	if alerts := a.hours(4, 7*time.Second); alerts != 1 {
		t.Errorf("%d alerts", alerts)
	}
	for _, id := range ids {
		if o := a.order(id); o.State != projections.Error || o.Steps[0].Attempt > 8 {
			t.Errorf("order %s is %s after %d attempts", id, o.State, o.Steps[0].Attempt)
		}
	}
}

// V3: where an agent answers other lanes in time, who is late here was overtaken, and is asked for
// again more often before that counts; but not for ever.
func TestWhoIsOvertakenIsAskedAgain(t *testing.T) {
	const outrun = 20
	a := newAsking(t, 2)
	other := window.New(1, 0, 0, a.cfg.Signs.Of(a.topics.Requests("phone")))
	a.answer(request{order: a.submit(1, "")[0], step: "call", attempt: 1})
	ids := a.submit(20, "")
	pass := func(d time.Duration) {
		for ; d > 0; d -= 20 * time.Second {
			other.Asked("call", time.Minute, a.now, a.now)
			other.Answered("call", time.Minute, true, a.now, a.now, a.now, a.now)
			a.seconds(20, 7*time.Second, 1)
		}
	}
	pass(time.Minute)
	for _, id := range ids {
		if s := &a.order(id).Steps[0]; s.Tried > 0 {
			t.Errorf("order %s: %d of %d attempts count", id, s.Tried, s.Attempt)
		}
	}
	pass(24 * time.Hour)
	for _, id := range ids {
		o := a.order(id)
		if s := &o.Steps[0]; o.State != projections.Error || s.Attempt <= outrun || s.Attempt > outrun+3 {
			t.Errorf("order %s is %s after %d attempts", id, o.State, s.Attempt)
		}
	}
}

// V3: an attempt that its agent never answers counts beside others that wait, where some are asked later
// and answered.
func TestWhatIsNeverAnsweredCountsInABacklog(t *testing.T) {
	a := newAsking(t, 2)
	never := a.submit(300, "")[0]
	for range 20 {
		a.look(time.Second)
		for _, r := range slices.DeleteFunc(slices.Clone(a.under), func(r request) bool { return r.order == never })[:2] {
			a.answer(r)
		}
	}
	if s := &a.order(never).Steps[0]; s.Tried != 1 || s.Attempt != 1 || len(a.away.steps) < 2 {
		t.Errorf("%d of %d attempts of order %s count, and %d wait", s.Tried, s.Attempt, never, len(a.away.steps))
	}
}

// V3: an order that is alone with an agent that is away uses up its attempts, also if
// several of its steps ask it.
func TestAloneWithSeveralSteps(t *testing.T) {
	const step = "{name: %s, agent: phone, after: [], timeout: 5s, retry: {attempts: 2, backoff: 1s, jitter: 0}}"
	a := withFlows(t, 2, "workflow: call\nsteps: ["+fmt.Sprintf(step+", "+step+", "+step, "a", "b", "c")+"]")
	for range 2 { // the agent is away already for the second one
		id := a.submit(1, "")[0]
		a.hours(1, 24*time.Hour)
		if o := a.order(id); o.State != projections.Error || o.Seq > 20 {
			t.Errorf("order %s is %s after %d events", id, o.State, o.Seq)
		}
	}
}

// What the order's deadline gives less time than its workflow does queues like all else.
func TestLessTimeIsNoWayPastTheWindow(t *testing.T) {
	for _, deadline := range []time.Duration{3 * time.Second, 10 * time.Second} {
		a := newAsking(t, 2)
		a.submit(1, "")
		a.now = a.now.Add(10 * time.Millisecond)
		a.answer(a.under[0])
		for range 300 {
			a.like(fmt.Sprintf(`{"workflow":"call","deadline":%q}`, events.AppendTime(nil, a.now.Add(deadline))))
		}
		a.look(0)
		a.leaves(5, 295)
	}
}

// Nor is it counted twice: what it had there is free again once it is answered.
func TestLessTimeIsCountedOnce(t *testing.T) {
	a := withFlows(t, 1_000, "workflow: call\nsteps: [{name: call, agent: phone, timeout: 24h}]")
	a.cfg.AgentBounds = map[string]int{a.topics.Requests("phone"): int(a.cfg.Partitions)} // one of each
	a.now = a.now.Add(time.Hour)
	for range 3 {
		a.like(fmt.Sprintf(`{"workflow":"call","deadline":%q}`, events.AppendTime(nil, a.now.Add(8*time.Hour))))
	}
	a.look(0) // at what was under way before
	for waiting := 2; waiting >= 0; waiting-- {
		a.look(time.Second)
		a.leaves(1, waiting)
		if out := a.agents.window(a.Lane, a.topics.Requests("phone")).Out(); out != 1 {
			t.Errorf("%d are with the agent", out)
		}
		a.answer(a.under[0])
	}
	if len(a.agents.left) > 0 {
		t.Errorf("it remembers %v", a.agents.left)
	}
}

// A bound holds for the next owner, too.
func TestABoundAfterATakeover(t *testing.T) {
	a := newAsking(t, 1_000)
	a.cfg.AgentBounds = map[string]int{a.topics.Requests("phone"): 3 * int(a.cfg.Partitions)}
	a.submit(3, "")
	a.look(0)
	a.look(0)
	a.leaves(3, 0)
	a.takeover()
	a.submit(10, "")
	a.look(0)
	a.look(0)
	a.leaves(3, 10)
}

// takeover has a lane of another instance take the partition over.
func (a *asking) takeover() {
	a.Helper()
	before := a.Lane
	must(a.T, before.state.Flush())
	before.Close()
	a.now = a.now.Add(time.Second)
	cfg := before.cfg
	cfg.Signs = new(window.Signs)
	next := New(cfg, before.partition, nil, a.world, before.state, before.log)
	next.current, next.position, next.format, next.transaction = newBatch(), before.position, before.format, before.transaction
	next.state.Rescan()
	a.at(next, before.cfg.AgentRate/float64(before.cfg.Partitions))
	must(a.T, next.recall())
}

// V3: orders that are each alone in their partition are not alone with an agent that is away:
// it uses up none of their attempts. Once the lanes of the others have ended, one is.
func TestLanesWaitForAnAgentTogether(t *testing.T) {
	var signs window.Signs
	var lanes []*asking
	for range 6 {
		a := newAsking(t, 2)
		a.cfg.Signs = &signs
		lanes = append(lanes, a)
	}
	pass := func(n int) {
		for range n {
			for _, a := range lanes {
				a.look(time.Second)
			}
		}
	}
	ids := make([]string, len(lanes))
	for i, a := range lanes {
		ids[i] = a.submit(1, "")[0]
	}
	pass(3600)
	under := 0
	for i, a := range lanes {
		if o := a.order(ids[i]); o.State == projections.Error || o.Steps[0].Tried > 1 {
			t.Errorf("order %s is %s, and %d of its attempts count", ids[i], o.State, o.Steps[0].Tried)
		}
		under += len(a.under)
	}
	if most := 2 * 3600 / 15 * len(lanes); under > most {
		t.Errorf("%d requests left in an hour: it is not probed only", under)
	}
	fresh := lanes[0].submit(1, "")[0]
	pass(60)
	if o := lanes[0].order(fresh); o.Steps[0].Tried > 0 {
		t.Errorf("%d attempts count of one that came while the agent was away", o.Steps[0].Tried)
	}
	for _, a := range lanes[:5] {
		a.Close()
	}
	lanes = lanes[5:]
	pass(600)
	if o := lanes[0].order(ids[5]); o.State != projections.Error {
		t.Errorf("order %s is alone, and %s", ids[5], o.State)
	}
}

// An order does not wait for itself: not for a step of it that is asked for again later.
func TestAloneWithStepsThatRest(t *testing.T) {
	const step = "{name: %s, agent: phone, after: [], timeout: 5s, retry: {attempts: 5, backoff: 30s, jitter: 0}}"
	a := withFlows(t, 2, "workflow: call\nsteps: ["+fmt.Sprintf(step+", "+step, "a", "b")+"]")
	id := a.submit(1, "")[0]
	a.hours(1, 24*time.Hour)
	o := a.order(id)
	for _, s := range o.Steps {
		if o.State != projections.Error || s.Tried < 4 {
			t.Errorf("the order is %s, and %d of the attempts of step %s count", o.State, s.Tried, s.Name)
		}
	}
}

// Nobody waits in silence: where back-off or timeout are longer than the distance of probes nothing
// stands in a line, and yet an operator hears from each partition, once, that the agent is silent.
func TestLanesDoNotWaitInSilence(t *testing.T) {
	for _, policy := range []string{"timeout: 5s", "timeout: 1m", "timeout: 5s, retry: {backoff: 30s}"} {
		var signs window.Signs
		var lanes []*asking
		for range 6 {
			a := withFlows(t, 2, "workflow: call\nsteps: [{name: call, agent: phone, "+policy+"}]")
			a.cfg.Signs = &signs
			a.submit(1, "")
			lanes = append(lanes, a)
		}
		alerts := make([]int, len(lanes))
		for range 1200 {
			for i, a := range lanes {
				alerts[i] += a.seconds(1, 24*time.Hour, 1)
			}
		}
		for i := range lanes {
			if alerts[i] != 1 {
				t.Errorf("%s: lane %d raised %d alerts", policy, i, alerts[i])
			}
		}
	}
}

// Nor does an order for whose partition alone the agent is silent, though it waits in no line:
// what expires there does not count while others wait elsewhere and are answered.
func TestWhoIsSilentForALaneAloneIsNamed(t *testing.T) {
	for _, policy := range []string{"timeout: 5s", "timeout: 5s, retry: {attempts: 3, backoff: 2m, max: 2m, jitter: 0}"} {
		a := withFlows(t, 2, "workflow: call\nsteps: [{name: call, agent: phone, "+policy+"}]")
		a.submit(1, "")
		a.now = a.now.Add(100 * time.Millisecond)
		a.answer(a.under[0])
		other := window.New(1, 0, 0, a.cfg.Signs.Of(a.topics.Requests("phone")))
		other.Waits("call", 5*time.Second, 1)
		id, alerts := a.submit(1, "")[0], 0
		for range 3600 / 20 {
			other.Asked("call", time.Minute, a.now, a.now)
			other.Answered("call", time.Minute, true, a.now, a.now, a.now.Add(time.Millisecond), a.now.Add(time.Millisecond))
			alerts += a.seconds(20, 240*time.Hour, 1)
		}
		if o := a.order(id); o.State == projections.Error || alerts != 1 {
			t.Errorf("%s: after an hour the order is %s, with %d alerts of its agent", policy, o.State, alerts)
		}
	}
}

// Who is held waits for an operator, and not for the agent: others are alone.
func TestWhoIsHeldLeavesOthersAlone(t *testing.T) {
	for name, before := range map[string]time.Duration{"under way": time.Second, "between two attempts": 6 * time.Second} {
		t.Run(name, func(t *testing.T) {
			var signs window.Signs
			flow := "workflow: call\nsteps: [{name: call, agent: phone, timeout: 5s, retry: {attempts: 12, backoff: 10s, jitter: 0}}]"
			one, other := withFlows(t, 2, flow), withFlows(t, 2, flow)
			one.cfg.Signs, other.cfg.Signs = &signs, &signs
			held, id := one.submit(1, "")[0], other.submit(1, "")[0]
			one.look(before)
			other.look(before)
			one.hold(held)
			for range 3600 {
				one.seconds(1, 24*time.Hour, 1)
				other.seconds(1, 24*time.Hour, 1)
			}
			if o := other.order(id); o.State != projections.Error {
				t.Errorf("the other order is %s, and %d of its attempts count", o.State, o.Steps[0].Tried)
			}
		})
	}
}

// The next owner knows of an agent that was away, too: takeovers use up nobody's retries.
func TestTakeoversWhileAnAgentIsAway(t *testing.T) {
	a := newAsking(t, 100)
	ids := a.submit(20, "")
	a.hours(1, 24*time.Hour)
	counted := func() (n int) {
		for _, id := range ids {
			n += a.order(id).Steps[0].Tried
		}
		return n
	}
	before := counted()
	if before > 5 { // until it counts as away, and one that no other waited with
		t.Errorf("%d attempts count", before)
	}
	for range 4 {
		a.takeover()
		for range 60 {
			a.look(time.Second)
		}
	}
	if after := counted(); after > before+4 { // one that was under way at each
		t.Errorf("%d attempts count, and %d before the takeovers", after, before)
	}
	if a.agents.window(a.Lane, a.topics.Requests("phone")).Out() > 1 {
		t.Error("it is not probed only")
	}
}

// So it is where most were never asked, and where each attempt is the only one: the agent is
// probed as before.
func TestTakeoversWhileMostWereNeverAsked(t *testing.T) {
	for _, backoff := range []time.Duration{time.Second, time.Hour} {
		a := withFlows(t, 4, fmt.Sprintf("workflow: call\nsteps: [{name: call, agent: phone, timeout: 5s, retry: {attempts: 1, backoff: %s, max: 1h, jitter: 0}}]", backoff))
		ids := a.submit(400, "")
		failed := func() (n int) {
			for _, id := range ids {
				if a.order(id).State == projections.Error {
					n++
				}
			}
			return n
		}
		a.seconds(120, 24*time.Hour, 1)
		before := failed()
		if before > 4 {
			t.Fatalf("%d fail before it counts as away", before)
		}
		for range 3 {
			a.takeover()
			ids = append(ids, a.submit(5, "")...)
			asked := len(a.under)
			a.look(0)
			if more := len(a.under) - asked; more > 1 {
				t.Errorf("%d are asked for at once", more)
			}
			a.seconds(60, 24*time.Hour, 1)
		}
		if after := failed(); after > before {
			t.Errorf("%d fail, and %d did before the takeovers", after, before)
		}
	}
}

// Also orders that are each alone in their partition use up no attempt more: whoever takes all of
// them over knows that their agent was silent, and that they wait for it together, though none of
// two is ever with it at once.
func TestTakeoversOfLanesThatWaitTogether(t *testing.T) {
	var signs, others window.Signs
	var lanes []*asking
	var ids []string
	pass := func() (counted int) {
		for range 6 {
			for _, a := range lanes {
				a.look(time.Second)
			}
		}
		for i, a := range lanes {
			counted += a.order(ids[i]).Steps[0].Tried
		}
		return counted
	}
	before := 0
	for range 6 {
		a := withFlows(t, 2, "workflow: call\nsteps: [{name: call, agent: phone, timeout: 5s, retry: {backoff: 1m, max: 1m, jitter: 0}}]")
		a.cfg.Signs = &signs
		if len(lanes) > 0 {
			a.now = lanes[0].now
		}
		lanes, ids = append(lanes, a), append(ids, a.submit(1, "")[0])
		before = pass()
	}
	for _, a := range lanes {
		a.takeover()
		a.cfg.Signs, a.agents.windows = &others, make(map[string]*window.Window)
		must(t, a.recall())
	}
	after := 0
	for range 40 {
		after = pass()
	}
	if before > 4 || after > before {
		t.Errorf("%d attempts count, and %d did before the takeovers", after, before)
	}
	for i, a := range lanes {
		if n := a.order(ids[i]).Steps[0].Attempt; n < 3 {
			t.Errorf("order %s is asked for the %d. time", ids[i], n)
		}
	}
}

// Whoever takes over from one whom the agent has answered again asks it for a whole window.
func TestATakeoverFromWhomAnAgentIsBack(t *testing.T) {
	a := newAsking(t, 4)
	a.submit(100, "")
	a.seconds(600, 24*time.Hour, 1)
	for a.under = nil; len(a.under) == 0; {
		a.look(time.Second)
	}
	a.answer(a.under[0])
	a.takeover()
	a.under = nil
	a.look(0)
	if len(a.under) < 5 {
		t.Errorf("it is asked for %d", len(a.under))
	}
}

// quickAndLong are workflows with operations of one agent, one of which takes long.
var quickAndLong = []string{
	"workflow: call\nsteps: [{name: call, agent: phone, timeout: 5s, retry: {attempts: 5, backoff: 1s, jitter: 0}}]",
	"workflow: survey\nsteps: [{name: survey, agent: phone, do: survey, timeout: 24h}]",
}

func (a *asking) surveys(n int) {
	for range n {
		a.like(`{"workflow":"survey"}`)
	}
}

// fallsSilent has the agent fall silent for one order, which fails of it if it is alone.
func (a *asking) fallsSilent() {
	a.Helper()
	id := a.submit(1, "")[0]
	for n := 0; a.order(id).State != projections.Error && n < 300; n++ {
		a.seconds(1, 240*time.Hour, 1)
	}
	if !a.agents.silent["phone"] {
		a.Fatal("it is not silent")
	}
	a.under = nil
}

// A silence is over when nothing has been wanted of the agent for a minute, also one that whoever had
// the partition before has left.
func TestASilenceEndsWithWhatIsWanted(t *testing.T) {
	for _, takesOver := range []bool{false, true} {
		a := withFlows(t, 100, quickAndLong...)
		a.fallsSilent()
		if takesOver {
			a.takeover()
		}
		a.seconds(70, 240*time.Hour, 1)
		if silent, err := a.state.Silent(); err != nil || len(a.agents.silent) > 0 || len(silent) > 0 && !takesOver {
			t.Errorf("silent are %v, in the store %v, %v", a.agents.silent, silent, err)
		}
		a.takeover()
		a.surveys(100)
		a.look(0)
		a.leaves(100, 0)
	}
}

// An agent that was silent for one lane, when that had another owner, and answers other lanes of this
// one is there.
func TestAnswersToOthersEndASilenceOfBefore(t *testing.T) {
	a, other := withFlows(t, 100, quickAndLong...), newAsking(t, 100)
	a.fallsSilent()
	a.takeover()
	a.surveys(100)
	a.look(0)
	a.leaves(1, 99)
	other.now, other.cfg.Signs = a.now.Add(time.Second), a.cfg.Signs
	other.submit(1, "")
	other.look(0)
	other.answer(other.under[0])
	a.look(2 * time.Second)
	a.leaves(100, 0)
}

// What a silent agent was asked for by another owner of the partition, and may have lost, keeps no
// probe back.
func TestALostRequestKeepsNoProbeBack(t *testing.T) {
	a := withFlows(t, 100, quickAndLong...)
	a.surveys(1)
	a.look(0)
	a.fallsSilent()
	a.takeover()
	a.surveys(100)
	a.look(0)
	a.look(2 * time.Minute)
	probe := slices.IndexFunc(a.under, func(r request) bool { return r.step == "survey" })
	if probe < 0 {
		t.Fatalf("with the agent is %v", a.under)
	}
	a.answer(a.under[probe])
	a.look(0)
	if len(a.away.steps) > 0 {
		t.Errorf("%d wait for an agent that is back", len(a.away.steps))
	}
}

// That an agent was silent for one lane says nothing where it has answered others since the instance began.
func TestASilenceOfBeforeIsOfOneLane(t *testing.T) {
	const once = "workflow: call\nsteps: [{name: call, agent: phone, timeout: 5s, retry: {attempts: 1, backoff: 1s, jitter: 0}}]"
	a, other := withFlows(t, 100, quickAndLong...), withFlows(t, 100, once)
	a.fallsSilent()
	other.now = a.now
	other.submit(1, "")
	other.look(0)
	other.answer(other.under[0])
	a.now = other.now.Add(time.Minute)
	a.takeover()
	a.cfg.Signs, a.agents.windows = other.cfg.Signs, make(map[string]*window.Window)
	must(t, a.recall())
	other.now = a.now
	ids := other.submit(2, "")
	other.look(0)
	other.look(6 * time.Second)
	for _, id := range ids {
		if o := other.order(id); o.State != projections.Error {
			t.Errorf("order %s, of one attempt, is %s after %d", id, o.State, o.Steps[0].Attempt)
		}
	}
	if len(other.agents.silent) > 0 {
		t.Errorf("silent are %v", other.agents.silent)
	}
}

// Each record of a batch that falls silent, and hears the agent, has an id of its own.
func TestWhatIsSaidOfAgentsIsToldApart(t *testing.T) {
	a := newAsking(t, 4)
	a.says("phone", true)
	a.says("phone", false)
	ids := make(map[string]bool)
	for _, r := range a.current.records {
		ids[events.Header(r, "ce_id")] = true
	}
	if len(ids) != 2 {
		t.Errorf("two records have the ids %v", ids)
	}
}

// An agent that answers all that it is asked is not silent while the lane pauses.
func TestAPauseIsNoSilence(t *testing.T) {
	a := newAsking(t, 1.0/60)
	a.submit(20, "")
	a.now = a.now.Add(50 * time.Millisecond)
	a.answer(a.under[0])
	if alerts := a.hours(1, 3*time.Second); alerts > 0 { // each seems to have queued
		t.Errorf("%d alerts", alerts)
	}
}

// An undo stands before steps, also where its step stood in the line.
func TestAnUndoTakesNoStepsPlace(t *testing.T) {
	a := newAsking(t, 0.4)
	first := a.submit(1, "low")[0]
	a.look(0)
	a.look(6 * time.Second) // it expires: who knows whether it ran
	a.under = nil
	a.submit(10, "high")
	for range 3 {
		a.look(time.Second)
	}
	a.cancel(first)
	var left []request
	for n := 0; len(left) < 3 && n < 400; n++ {
		a.look(time.Second)
		for _, r := range slices.Clone(a.under) {
			left = append(left, r)
			a.answer(r)
		}
	}
	if !slices.ContainsFunc(left, func(r request) bool { return r.undo }) {
		t.Errorf("before the undo left %v", left)
	}
}

// What was cancelled does not wait any more, and nobody is called for it.
func TestWhatWasCancelledWaitsForNobody(t *testing.T) {
	for _, away := range []string{"", "it does not exist"} {
		a := newAsking(t, 2)
		if away != "" {
			a.world.away[a.topics.Requests("phone")] = away
		}
		ids := a.submit(20, "")
		a.look(0)
		for _, id := range ids {
			if len(a.under) == 0 || !slices.ContainsFunc(a.under, func(r request) bool { return r.order == id }) {
				a.cancel(id)
			}
		}
		a.leaves(len(a.under), 0)
		if waiting := a.agents.window(a.Lane, a.topics.Requests("phone")).Out(); waiting != len(a.under) || a.away.topics[a.topics.Requests("phone")] != nil {
			t.Errorf("%d are with the agent", waiting)
		}
	}
}

// More wait for one agent than are kept: others are asked as ever, and those that may wait
// for so long only wait no longer.
func TestMoreThanAreKept(t *testing.T) {
	a := withFlows(t, 20,
		"workflow: call\nsteps: [{name: call, agent: phone, timeout: 5s}]",
		"workflow: fax\nsteps: [{name: fax, agent: fax}]",
		"workflow: post\nsteps: [{name: post, agent: post, queue: 1h, retry: {attempts: 1}}]")
	a.away.most = 100
	for _, agent := range []string{"fax", "post"} {
		a.world.away[a.topics.Requests(agent)] = "it does not exist"
	}
	for range 300 {
		a.like(`{"workflow":"fax"}`)
	}
	post := a.like(`{"workflow":"post"}`)
	a.look(0)
	for range 300 { // more than are kept, of an agent that has no room for all
		a.like(`{"workflow":"call"}`)
	}
	looked, done := 0, 0
	a.world.looked = func() { looked++ }
	for range 1_200 {
		a.look(50 * time.Millisecond)
		for _, r := range slices.Clone(a.under) {
			if a.now.Sub(r.at) >= 50*time.Millisecond {
				a.answer(r)
				done++
			}
		}
	}
	if done != 300 || looked > 10*300 {
		t.Errorf("%d of 300 are done, after %d looks", done, looked)
	}
	a.look(time.Hour)
	if o := a.order(post); o.State != projections.Error {
		t.Errorf("what may wait for an hour is %s", o.State)
	}
}

// Who leaves a line that is full, and cannot be asked for after all, has a place in it as before.
func TestWhoWaitsAfterAllKeepsAPlace(t *testing.T) {
	a := newAsking(t, 0.4)
	a.away.most = 10
	ids := a.submit(15, "")
	a.look(0)
	a.leaves(1, 10)
	a.now = a.now.Add(time.Second)
	a.answer(a.under[0])
	topic := a.topics.Requests("phone")
	a.world.looked = func() { a.world.away[topic] = "gone" } // between the look at it and the decision
	a.look(0)
	a.leaves(0, 10)
	if !a.away.waits(step{ids[1], "call"}) {
		t.Error("who was to leave waits no more")
	}
	if before, found := a.Before(ids[1], "call"); before > 0 || !found {
		t.Errorf("%d leave before who was to leave", before)
	}
}

// The clock is set back: the window holds as it did.
func TestTheClockOfALaneIsSetBack(t *testing.T) {
	for _, back := range []time.Duration{5 * time.Second, 30 * time.Second} {
		a := newAsking(t, 2)
		a.submit(1, "")
		a.now = a.now.Add(10 * time.Millisecond)
		a.answer(a.under[0])
		a.now = a.now.Add(-back)
		a.submit(300, "")
		a.look(0)
		if len(a.under) > 5 {
			t.Errorf("set back by %s: %d are with the agent", back, len(a.under))
		}
	}
}

// What left after the lane's clock was set back, to before its takeover, is not taken for what was under
// way then.
func TestTheClockIsSetBackBeyondATakeover(t *testing.T) {
	a := newAsking(t, 2)
	a.now = a.now.Add(-5 * time.Minute)
	a.submit(10, "")
	a.look(0)
	a.leaves(5, 5)
	if out := a.agents.windows[a.topics.Requests("phone")].Out(); !a.agents.counted || out != 5 {
		t.Errorf("%d are under way, by what it knows", out)
	}
}

// V3: what of an order waits for another agent is none of those that wait for this one, and
// makes no less of the others.
func TestOthersWaitForTheSameAgent(t *testing.T) {
	const step = "{name: %s, agent: %s, after: [], timeout: 5s, retry: {attempts: 2, backoff: 1s, jitter: 0}}"
	a := withFlows(t, 2, "workflow: call\nsteps: ["+fmt.Sprintf(step+", "+step+", "+step+", "+step, "a", "phone", "b", "fax", "c", "fax", "d", "fax")+"]")
	a.world.away[a.topics.Requests("fax")] = "it does not exist"
	ids := a.submit(4, "")
	a.hours(1, 24*time.Hour)
	for _, id := range ids {
		if o := a.order(id); o.State == projections.Error {
			t.Errorf("order %s is %s, though others wait: %s", id, o.State, o.Reason)
		}
	}
}

// An answer that is late stays late when it is repeated.
func TestALateAnswerIsRepeated(t *testing.T) {
	a := newAsking(t, 2)
	a.submit(20, "")
	if alerts := a.seconds(600, 7*time.Second, 2); alerts != 1 {
		t.Errorf("%d alerts", alerts)
	}
}

// Orders that have no time left say nothing of their agent.
func TestNoTimeLeftIsNoSilence(t *testing.T) {
	a := newAsking(t, 100)
	a.submit(1, "")
	a.now = a.now.Add(time.Second)
	a.answer(a.under[0])
	for range 5 {
		a.like(fmt.Sprintf(`{"workflow":"call","deadline":%q}`, events.AppendTime(nil, a.now.Add(50*time.Millisecond))))
		a.look(time.Second)
	}
	if w := a.agents.window(a.Lane, a.topics.Requests("phone")); w.Away() || w.Out() != 0 {
		t.Errorf("it is away: %t; %d are with it", w.Away(), w.Out())
	}
}

// An order that is released says nothing of its agent either: it had answered.
func TestAReleaseIsNoSilence(t *testing.T) {
	a := newAsking(t, 100)
	for range 5 {
		id := a.submit(1, "")[0]
		a.world.poisoned = true
		a.answer(a.under[0])
		a.world.poisoned = false
		a.look(time.Minute)
		must(t, a.decide([]*kgo.Record{typed(a.topics.Commands, "", id, fmt.Sprintf(`{"id":"c-1","order":%q,"command":"release"}`, id))}))
		a.commit()
	}
	if w := a.agents.window(a.Lane, a.topics.Requests("phone")); w.Away() || w.Out() != 0 {
		t.Errorf("it is away: %t; %d are with it", w.Away(), w.Out())
	}
}
