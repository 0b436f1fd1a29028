package lane

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
)

// waitFor has so many orders wait for the agent of their only step, whose topic is away.
func (l *Lane) waitFor(t testing.TB, orders int) {
	t.Helper()
	for n := 0; orders > 0; n++ {
		id := fmt.Sprint("away-", n)
		if l.byKey.Of([]byte(id)) != l.partition {
			continue
		}
		orders--
		must(t, l.decide([]*kgo.Record{typed(l.topics.Orders, "", id, `{"workflow":"call"}`)}))
		if l.current.full() {
			l.commits(t)
		}
	}
	l.commits(t)
}

// commits has what was decided be committed.
func (l *Lane) commits(t testing.TB) (started int) {
	t.Helper()
	if l.begin() {
		for _, r := range l.inflight.records {
			if r.Topic == l.topics.Requests("phone") {
				started++
			}
		}
		must(t, l.conclude(nil))
	}
	return started
}

const callFlow = "workflow: call\nsteps: [{name: call, agent: phone}]"

// However many wait for an agent that is away, they are looked at once, and hold up
// nothing that is due. When it is back they begin, some at a time.
func TestManyWaitForAnAgent(t *testing.T) {
	for name, most := range map[string]int{"": awaySteps, "more than are kept": DueAtOnce + 7} {
		t.Run("those that wait"+name, func(t *testing.T) {
			l, world := newLane(t)
			l.away.most = most
			const orders = 8*DueAtOnce + 10
			world.flows.Add(parseFlow(t, callFlow))
			topic := l.topics.Requests("phone")
			world.away[topic] = "it does not exist"
			l.waitFor(t, orders)
			looks := 0
			for l.look = true; l.look; looks++ {
				l.looks(t)
			}
			if looks > 9 || !l.current.empty() || len(l.away.steps) != min(orders, most) {
				t.Errorf("%d looks, %d records; %d steps wait", looks, len(l.current.records), len(l.away.steps))
			}
			// One of them changes, which brings all behind it up again.
			looked := 0
			world.looked = func() { looked++ }
			l.state.Rescan()
			for l.look = true; l.look; {
				l.looks(t)
			}
			if most > orders && looked > 0 {
				t.Errorf("%d of those that wait were decided on again", looked)
			}
			world.looked = nil

			delete(world.away, topic)
			started := 0
			for l.look = true; l.look || started < orders; {
				if !l.look {
					t.Fatalf("%d of %d began", started, orders)
				}
				l.looks(t)
				if n := l.commits(t); n <= 4*DueAtOnce {
					started += n
				} else {
					t.Fatalf("%d at a time", n)
				}
			}
			if started != orders || len(l.away.steps)+len(l.away.topics) > 0 {
				t.Errorf("%d of %d began; %d wait", started, orders, len(l.away.steps))
			}
		})
	}
}

// Of several agents that are away, those wait whose agent is not back.
func TestAnotherAgentIsBack(t *testing.T) {
	l, world := newLane(t)
	here, _ := l.keys()
	for _, agent := range []string{"payment", "shipping"} {
		world.away[l.topics.Requests(agent)] = "it has no leader"
	}
	must(t, l.decide([]*kgo.Record{typed(l.topics.Orders, "", here, `{"workflow":"order"}`)}))
	l.commits(t)
	l.looks(t)
	// Nobody hears of it but who asks.
	l.learned = time.Time{}
	world.learns = func(topics []string) {
		if back := l.topics.Requests("shipping"); slices.Contains(topics, back) {
			delete(world.away, back)
		}
	}
	l.looks(t)
	var begun []string
	for _, r := range l.current.records {
		if r.Topic == l.topics.Journal {
			e, err := events.Decode[events.Event](r.Value)
			must(t, err)
			begun = append(begun, string(e.Type)+" "+e.Step)
		}
	}
	if fmt.Sprint(begun) != "[waybill.step.started ship]" {
		t.Errorf("it wrote %v", begun)
	}
}
