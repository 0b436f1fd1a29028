package lane

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
)

// A signal under a key for which nobody waits is decided on once the workflows were read that were registered
// before it came: one of these may say that it starts orders. All that come together are sought at once, and if the
// workflows cannot be read, they wait no longer than a moment.
func TestASignalWaitsForTheWorkflowsThatItMayStart(t *testing.T) {
	for what, want := range map[string]events.Type{"registered": events.SignalOrdered, "none": events.SignalKept, "unreadable": events.SignalKept, "an older format": events.SignalKept} {
		l := newParkingLane(t)
		now := time.Now()
		l.time.Timer = func() time.Time { return now }
		l.format, l.world.found = events.JournalFormat, 0
		if what == "an older format" {
			l.format = events.StartFormat - 1
		}
		signals := TopicPartition{l.topics.Signals, l.partition}
		var homes []string
		var read []*kgo.Record
		for n := 0; len(homes) < 3; n++ {
			id := events.CorrelationID("go", fmt.Sprint(n))
			if l.byKey.Of([]byte(id)) != l.partition {
				continue
			}
			r := typed(l.topics.Signals, string(events.OrderSignal), "any", fmt.Sprintf(`{"signal":"go","key":"%d"}`, n))
			r.Offset = 7 + int64(len(homes))
			homes, read = append(homes, id), append(read, r)
		}
		must(t, l.decide(read))
		if wait := what != "an older format"; len(l.behind) > 0 != wait || l.paused()[signals] != wait || l.opens() > 0 != wait {
			t.Fatalf("%s: %d wait, paused: %t, looks again after %v", what, len(l.behind), l.paused()[signals], l.opens())
		} else if wait {
			if o, _ := l.order(homes[0]); o != nil || l.world.sought != 3 || l.opens() > 10*time.Millisecond {
				t.Errorf("%s: %+v; %d questions; it looks again after %v", what, o, l.world.sought, l.opens())
			}
			switch what {
			case "registered":
				l.world.flows.Add(parseFlow(t, "workflow: call\nstart: go\nsteps: [{name: call, agent: phone}]"))
			case "none":
				l.world.found = l.world.sought
			default:
				now = now.Add(earlyLongest)
			}
			must(t, l.supervise())
			must(t, l.decideOn(l.rest))
		}
		for _, id := range homes {
			var e events.Event
			for _, r := range l.current.orders[id].journal {
				e, _ = events.Decode[events.Event](r.Value)
			}
			if e.Type != want {
				t.Errorf("%s: %s", what, e.Type)
			}
		}
		if l.world.sought > 3 || len(l.behind) > 0 || l.paused()[signals] || l.position.At(events.InputSignals) != 10 || l.opens() != 0 {
			t.Errorf("%s: then %d questions, %d wait, paused: %t, read up to %d", what, l.world.sought, len(l.behind), l.paused()[signals], l.position.At(events.InputSignals))
		}
	}
}
