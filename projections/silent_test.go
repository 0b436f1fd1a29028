package projections

import (
	"fmt"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/events"
)

// Which agents are silent follows from the journal, flushed in between or not.
func TestWhichAgentsAreSilent(t *testing.T) {
	says := func(agent string, silent bool) events.Event {
		return events.Event{Type: events.PartitionAdvanced, Agent: agent, Silent: silent}
	}
	j := newJournal()
	j.add(says("bank", true), accepted("o-1", "flow"), says("post", true))
	j.add(says("bank", false), says("phone", true), says("pho", true))
	j.add(events.Event{Type: events.PartitionAdvanced})
	j.add(says("phone", false), says("phone", true), says("post", false))
	for _, flush := range []bool{false, true} {
		s, p := folded(t, newJournal())
		for _, r := range j.records {
			must(t, fold(p, []journalRecord{r}))
			if flush {
				must(t, p.Flush())
			}
		}
		must(t, p.Flush())
		again, err := s.Partition(0)
		must(t, err)
		for _, p := range []*Partition{p, again} {
			silent, err := p.Silent()
			must(t, err)
			if fmt.Sprint(silent) != "[pho phone]" {
				t.Errorf("flushed in between %t, silent are %v", flush, silent)
			}
			for agent, want := range map[string]time.Time{"pho": start.Add(6 * time.Second), "phone": start.Add(11 * time.Second), "post": {}, "p": {}} {
				if since, err := s.SilentSince(0, agent); err != nil || !since.Equal(want) {
					t.Errorf("flushed in between %t, agent %s is silent since %s, %v; want %s", flush, agent, since, err, want)
				}
			}
		}
		must(t, p.Reset())
		if silent, err := p.Silent(); err != nil || len(silent) > 0 {
			t.Errorf("after a reset silent are %v, %v", silent, err)
		}
	}
}

// Who only looks at orders leaves none in memory, and sees what is not flushed.
func TestWhoPeeksKeepsNothing(t *testing.T) {
	j := newJournal()
	j.add(accepted("o-1", "flow"), accepted("o-2", "flow"))
	s, p := folded(t, j)
	must(t, p.Flush())
	p, err := s.Partition(0)
	must(t, err)
	for _, id := range []string{"o-1", "o-2", "o-3"} {
		if o, err := p.Peek(id); err != nil || (o != nil) != (id != "o-3") || len(p.orders) > 0 {
			t.Errorf("order %s is %v, %v; %d are in memory", id, o, err, len(p.orders))
		}
	}
	folded := len(j.records)
	j.add(started("o-1", "s0", 1, at(30)))
	must(t, fold(p, j.records[folded:]))
	if o, err := p.Peek("o-1"); err != nil || o.Steps[0].Attempt != 1 {
		t.Errorf("order o-1 is %+v, %v", o, err)
	}
}
