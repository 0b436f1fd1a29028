package projections

import (
	"errors"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/events"
)

// A partition is in the highest format that an event raised it to or a claim was of,
// and the store remembers it. One that this release does not know is not folded.
func TestTheFormatOfAPartition(t *testing.T) {
	raise := func(format int) events.Event { return events.Event{Type: events.PartitionRaised, Format: format} }
	j := newJournal()
	s, p := temporary(t)
	if format := p.Head().Format(); format != 1 {
		t.Errorf("an empty partition is in format %d", format)
	}
	j.claim("i-1", 1, 1)
	j.add(accepted("o-1", "flow"), raise(events.JournalFormat), done("o-1", "s0"))
	j.claim("i-2", 1, 1) // by one that had not read it yet
	must(t, fold(p, j.records))
	must(t, p.Flush())
	again := partition(t, s, 0)
	for _, p := range []*Partition{p, again} {
		if head := p.Head(); head.Format() != events.JournalFormat || head.vocabulary != raisedSince {
			t.Errorf("it is in format %d, of vocabulary %d", head.Format(), head.vocabulary)
		}
	}
	if o, err := again.Order("o-1"); err != nil || o.Seq != 2 {
		t.Errorf("what stood beside it: %+v, %v", o, err)
	}

	before := p.Head()
	j.add(raise(events.JournalFormat+1), done("o-1", "s1"))
	if err := fold(p, j.records); !errors.Is(err, ErrNewer) || !strings.Contains(err.Error(), "upgrade this one") {
		t.Errorf("%v", err)
	}
	if p.Head() != before {
		t.Errorf("it was folded: %+v", p.Head())
	}
}
