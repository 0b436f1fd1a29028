package lane

import (
	"errors"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
)

// A command on a schedule waits for no submission, which never makes one: applied is what is not there, and all else
// is a dead letter then.
func TestCommandsOnSchedulesWaitForNothing(t *testing.T) {
	c := newCommanded(t)
	c.format = events.JournalFormat
	var here []string
	for n := 0; len(here) < 2; n++ {
		if id := events.ScheduleID(fmt.Sprint("s", n)); c.byKey.Of([]byte(id)) == c.partition {
			here = append(here, id)
		}
	}
	c.pauses(here[0])
	c.expects("paused before it was applied", 0, nil, here[:1])
	apply := typed(c.topics.Commands, "", here[1], `{"command":"apply","schedule":{"every":"1h","workflow":"order"}}`)
	apply.Offset, c.next = c.next, c.next+1
	must(t, c.decide([]*kgo.Record{apply}))
	if o, err := c.order(here[1]); err != nil || o == nil || o.Schedule == nil || o.Schedule.Says == nil || o.Schedule.Next.IsZero() {
		t.Fatalf("it is %+v, %v", o, err)
	}
	c.pauses(here[1])
	c.expects("paused", 0, nil, here[:1])
	if o, err := c.order(here[1]); err != nil || !o.Paused {
		t.Errorf("it is %+v, %v", o, err)
	}
	// Behind one that waits for its order it waits, as all commands of the partition do.
	c.pauses(c.ids[0], here[1])
	c.expects("behind another", 2, nil, here[:1])
}

// V2: an order that a schedule began may have been forgotten, with nothing left of it, since it was found that it is due:
// that is no damage. A deadline of another order that is not there is.
func TestWhatIsDueWasForgotten(t *testing.T) {
	c := newCommanded(t)
	id := events.TickID("often", 1, c.now)
	if d, err := c.decideDue(c.env(), step{order: id}); err != nil || d.Order != nil {
		t.Errorf("of %s: %+v, %v", id, d, err)
	}
	if _, err := c.decideDue(c.env(), step{order: "o-1"}); !errors.Is(err, projections.ErrDamaged) {
		t.Errorf("of an order that never was: %v", err)
	}
}
