package orchestrator

import (
	"fmt"
	"time"

	"github.com/waybill-dev/waybill/orchestrator/lane"
)

// late is what is known of an agent's topic that did not take records in time, though Kafka
// says that it can be written: each lane that tried was held up until its commit gave up. So
// a record of one partition at a time is tried, after ever longer, until one is taken.
type late struct {
	partitions map[int32]bool // that did not take records
	times      int            // in a row
	at         time.Time      // when that was last
	until      time.Time      // nothing is tried before, but for what is
	tried      int32          // the partition of which a record is tried, -1 if there is none
}

// lateLast is how long partitions are left alone that took no record in time: each time that
// they do not, twice as long.
const lateLast, lateLongest = 10 * time.Second, 5 * time.Minute

// tooLate notes that an agent's topic did not take records of a partition in time.
func (d *directory) tooLate(at lane.TopicPartition) {
	now, l := d.now(), d.late[at.Topic]
	if l == nil {
		l = &late{partitions: make(map[int32]bool), tried: -1}
		d.late[at.Topic] = l
		d.troubles.Add(1)
		d.log.Warn("an agent is away: its topic takes nothing in time, and what it is to do waits", "agent", d.own.Agent(at.Topic), "topic", at.Topic, "partition", at.Partition)
	}
	l.partitions[at.Partition] = true
	if l.times == 0 || now.Sub(l.at) >= lateLast { // all lanes hear of one outage
		l.times, l.at = l.times+1, now
	}
	l.until, l.tried = l.at.Add(min(lateLast<<min(l.times-1, 10), lateLongest)), -1
}

// waits says why a record is not to be written to a partition that did not take those before
// it, "" if it is. Without an order it says whether one may be tried.
func (d *directory) waits(at lane.TopicPartition, order string) string {
	l, now := d.late[at.Topic], d.now()
	switch {
	case l == nil || !l.partitions[at.Partition] || l.tried == at.Partition:
		return ""
	case now.Before(l.until):
		return fmt.Sprintf("partition %d took nothing in time", at.Partition)
	case order != "":
		l.tried, l.until = at.Partition, now.Add(trialLast)
	}
	return ""
}
