package lane

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
)

const boundedFlow = `
workflow: call
steps: [{name: call, agent: phone, queue: 1h, retry: {attempts: 2, backoff: 1s}}]`

// at sets the lane's clock.
func (l *Lane) at(now *time.Time) {
	l.time.Wall = func() time.Time { return *now }
}

// wrote counts what the lane writes to the journal, by type, until it has nothing left to
// look at.
func (l *Lane) wrote(t *testing.T) map[string]int {
	t.Helper()
	all := make(map[string]int)
	for l.look = true; l.look; {
		l.looks(t)
		if !l.begin() {
			continue
		}
		for _, r := range l.inflight.records {
			if r.Topic == l.topics.Journal {
				e, err := events.Decode[events.Event](r.Value)
				must(t, err)
				all[string(e.Type)]++
			}
		}
		must(t, l.conclude(nil))
	}
	return all
}

// What may not wait for ever is given up in time, though its agent has no room, and
// however many there are: those that are not kept come up then.
func TestAWaitIsBounded(t *testing.T) {
	const orders = 3*DueAtOnce + 10
	for most, together := range map[int]bool{awaySteps: true, DueAtOnce + 7: false} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			l, world := newLane(t)
			l.away.most = most
			now := events.Time(time.Now())
			l.at(&now)
			world.flows.Add(parseFlow(t, boundedFlow))
			world.away[l.topics.Requests("phone")] = "it does not exist"
			l.waitFor(t, orders)
			now = now.Add(time.Hour - time.Millisecond)
			if all := l.wrote(t); len(all) > 0 || len(l.away.steps) != min(most, orders) {
				t.Errorf("before it is time it wrote %v, and %d wait", all, len(l.away.steps))
			}
			if looked := 0; together {
				world.looked = func() { looked++ }
				if l.wrote(t); looked > 0 {
					t.Errorf("%d that wait were looked at", looked)
				}
				world.looked = nil
			}
			now = now.Add(time.Millisecond)
			want := map[string]int{"waybill.step.failed": orders, "waybill.step.retried": orders}
			if all := l.wrote(t); !maps.Equal(all, want) || len(l.away.steps)+len(l.away.topics)+len(l.away.bounds) > 0 {
				t.Errorf("it wrote %v; %d wait, in %d lines", all, len(l.away.steps), len(l.away.topics))
			}
			// The next attempts wait as long, and are begun when the agent is there.
			now = now.Add(time.Second)
			if all := l.wrote(t); len(all) > 0 {
				t.Errorf("the next attempts wrote %v", all)
			}
			delete(world.away, l.topics.Requests("phone"))
			now = now.Add(time.Hour)
			if all := l.wrote(t); all["waybill.step.started"] != orders || len(all) > 1 {
				t.Errorf("with the agent there it wrote %v", all)
			}
		})
	}
}

// waitsForAnHour is a lane in which one step waits for an agent that is away, for an hour at most, and its clock.
func waitsForAnHour(t *testing.T) (l *Lane, world *still, now *time.Time) {
	t.Helper()
	l, world = newLane(t)
	now = new(events.Time(time.Now()))
	l.at(now)
	world.flows.Add(parseFlow(t, boundedFlow))
	world.away[l.topics.Requests("phone")] = "it does not exist"
	l.waitFor(t, 1)
	l.wrote(t)
	return l, world, now
}

// A wait that ended, and another that began since, is not held against the one before.
func TestAWaitBeginsAnew(t *testing.T) {
	l, _, now := waitsForAnHour(t)
	var id string
	for s := range l.away.steps {
		id = s.order
	}
	*now = now.Add(time.Hour / 2)
	for n, command := range []string{events.CommandPause, events.CommandResume} {
		r := typed(l.topics.Commands, string(events.OrderCommand), id, fmt.Sprintf(`{"command":%q}`, command))
		r.Offset = int64(n)
		must(t, l.decide([]*kgo.Record{r}))
		l.commits(t)
	}
	l.wrote(t) // it is passed over, since it is in the line
	before := maps.Clone(l.away.steps)
	*now = now.Add(time.Hour / 2)
	if all := l.wrote(t); len(all) > 0 || len(before) != 1 || !maps.Equal(l.away.steps, before) {
		t.Errorf("after half of the second wait it wrote %v; it waits as %v, and waited as %v", all, l.away.steps, before)
	}
	*now = now.Add(time.Hour / 2)
	if all := l.wrote(t); all["waybill.step.failed"] != 1 {
		t.Errorf("after the second wait it wrote %v", all)
	}
}

// One is taken out of a line wherever it stands, and the others keep their turns.
func TestOneLeavesALine(t *testing.T) {
	l, world := newLane(t)
	now := events.Time(time.Now())
	l.at(&now)
	world.flows.Add(parseFlow(t, `
workflow: two
steps: [{name: patient, agent: phone, after: []}, {name: call, agent: phone, do: patient, after: [], queue: 1h, retry: {attempts: 2, backoff: 30s, max: 30s}}]`))
	here, _ := l.keys()
	topic := l.topics.Requests("phone")
	world.away[topic] = "it does not exist"
	must(t, l.decide([]*kgo.Record{typed(l.topics.Orders, "", here, `{"workflow":"two"}`)}))
	l.commits(t)
	if l.wrote(t); l.away.topics[topic].len() != 2 {
		t.Fatalf("%d wait", l.away.topics[topic].len())
	}
	now = now.Add(time.Hour)
	all := l.wrote(t)
	if all["waybill.step.failed"] != 1 || l.away.topics[topic].len() != 1 {
		t.Errorf("it wrote %v; %d wait", all, l.away.topics[topic].len())
	}
}

// By a clock that is in doubt no wait is over. It goes on, is not looked at again and again, and is over once the clock is
// right.
func TestAWaitIsNotOverByAClockInDoubt(t *testing.T) {
	l, world, now := waitsForAnHour(t)
	l.clock.stamped = true
	l.clock.off.Store(int64(10 * time.Minute))
	*now = now.Add(time.Hour)
	looked := 0
	world.looked = func() {
		if looked++; looked > 10 {
			t.Fatal("it is looked at again and again")
		}
	}
	if all := l.wrote(t); len(all) > 0 || len(l.away.steps) != 1 || len(l.away.bounds) != 1 {
		t.Errorf("it wrote %v; %d wait, %d of them not for ever", all, len(l.away.steps), len(l.away.bounds))
	}
	l.clock.stamped = false
	if all := l.wrote(t); all["waybill.step.failed"] != 1 {
		t.Errorf("by a clock that is right it wrote %v", all)
	}
}
