//go:build unix

package process

import (
	"fmt"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/leftout"
)

// A release that knows a newer format serves beside this one as this one does, until
// the last instance of this one has left the group. Then every partition is raised,
// once, and an instance of this release that comes back decides nothing there.
func TestTheFormatRises(t *testing.T) {
	leftout.UnlessLong(t, "a format that rises")
	t.Parallel()
	t.Run("beside this release", func(t *testing.T) { theFormatRises(t, "") })
	t.Run("beside the release before", func(t *testing.T) { theFormatRises(t, buildPrevious(t)) })
}

func theFormatRises(t *testing.T, program string) {
	broker := kafka.Embedded(t)
	c := newCluster(t, broker)
	c.createTopics()
	c.program = program
	old := c.serve("old")
	c.program = buildNewer(t)
	fresh := c.serve("fresh", "--upgrade-after", "0s")
	old.ready(old.client)
	fresh.ready(fresh.client)
	fresh.owned(old, fresh)
	registerPatient(t, fresh.http)
	c.agents()
	load := submitting(t, c.topics, broker.Brokers...)
	load.more(fresh.process, 100)

	finish := func() (string, error) {
		said, err := command(t.Context(), t, "upgrade", "finish", "--server", fresh.http).CombinedOutput()
		return string(said), err
	}
	if said, err := finish(); err == nil || !strings.Contains(said, fmt.Sprintf("format %d is not known to ", newest)) {
		t.Errorf("with an older release in the group: %v\n%s", err, said)
	}
	if said := waybill(t, "upgrade", "status", "--server", fresh.http); strings.Count(said, "127.0.0.1") != 2 || !strings.Contains(said, "fresh") {
		t.Errorf("the status says\n%s", said)
	}
	if raised, claims := c.books.formats(newest); len(raised) > 0 || claims[newest] > 0 {
		t.Errorf("beside an older release %v were raised, and claims are of the formats %v", raised, claims)
	}

	old.stop()
	c.raised(fresh)
	if said, err := finish(); err != nil || !strings.Contains(said, fmt.Sprintf("format %d", newest)) {
		t.Errorf("what is finished already: %v\n%s", err, said)
	}
	load.more(fresh.process, 100)

	fresh.until("every partition is claimed in its format", func() error {
		if _, claims := c.books.formats(newest); claims[newest] < partitions {
			return fmt.Errorf("claims are of the formats %v", claims)
		}
		return nil
	})
	old.again()
	old.until("it says what it does not know", func() error {
		// The release before has other words for it.
		if said := old.log.String(); !strings.Contains(said, "upgrade this one") && !strings.Contains(said, "upgrade it") {
			return fmt.Errorf("%s", said)
		}
		return nil
	})
	old.stop()
	load.more(fresh.process, 100)
	ids := load.stop(fresh.process)
	fresh.processed(fresh.client, ids)
	c.books.overTheUpgrade(ids)
	for partition, times := range func() map[int32]int { raised, _ := c.books.formats(newest); return raised }() {
		if times != 1 {
			t.Errorf("partition %d was raised %d times", partition, times)
		}
	}
}

// newest is the format of the release to come: see [buildNewer].
const newest = events.JournalFormat + 1

// raised waits until every partition is raised, by s, or began in the newest format.
func (c *cluster) raised(s *serve) {
	c.Helper()
	s.until("every partition is raised", func() error {
		raised, claims := c.books.formats(newest)
		if len(raised) < partitions && claims[newest] < partitions {
			return fmt.Errorf("%v are, and claims are of the formats %v", raised, claims)
		}
		return nil
	})
}

// formats reads how often each partition was raised to a format, and how many claims there are
// of each. A new namespace may begin in an older one while instances start side by side.
func (b *books) formats(to int) (raised map[int32]int, claims map[int]int) {
	b.Helper()
	raised, claims = make(map[int32]int), make(map[int]int)
	for _, r := range b.read(b.topics.Journal) {
		e, err := events.Decode[events.Event](r.Value)
		if err != nil {
			b.Fatal(err)
		}
		switch e.Type {
		case events.PartitionRaised:
			if e.Format == to {
				raised[r.Partition]++
			}
		case events.PartitionClaimed:
			claims[e.Format]++
		}
	}
	return raised, claims
}
