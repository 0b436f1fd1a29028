package orchestrator

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/waybill-dev/waybill/orchestrator/lane"
)

// late is what is known of an agent's topic that did not take records in time, though Kafka
// says that it can be written: each lane that tried was held up until its commit gave up. So
// records of one partition at a time are tried until some are taken, and of each once before
// those of any are tried again, which is after ever longer.
type late struct {
	partitions map[int32]bool // that took nothing, and whether they were tried in this round
	rounds     int
	at         time.Time // when something was too late last
	until      time.Time // nothing is tried before, but for what is
	tried      int32     // the partition of which records are tried, -1 if there is none
}

// lateLast is how long partitions are left alone that took no record in time: in each round
// twice as long. What is older than lateForgotten tells nothing of now.
const lateLast, lateLongest, lateForgotten = 10 * time.Second, 5 * time.Minute, 10 * time.Minute

// tooLate notes that an agent's topic did not take records of a partition in time.
func (d *directory) tooLate(at lane.TopicPartition) {
	now, l := d.now(), d.late[at.Topic]
	if l == nil {
		l = new(late)
		d.late[at.Topic] = l
		d.troubles.Add(1)
		d.log.Warn("an agent is away: its topic takes nothing in time, and what it is to do waits", "agent", d.own.Agent(at.Topic), "topic", at.Topic, "partition", at.Partition)
	}
	if now.Sub(l.at) > lateForgotten {
		*l = late{partitions: make(map[int32]bool), tried: -1}
	}
	l.at = now
	switch l.tried {
	case -1: // all lanes hear of one outage
		l.partitions[at.Partition] = false
	case at.Partition:
		l.partitions[at.Partition], l.tried = true, -1
	default:
		l.partitions[at.Partition] = false
		return
	}
	if tried := slices.Collect(maps.Values(l.partitions)); !slices.Contains(tried, false) {
		l.rounds++
		for p := range l.partitions {
			l.partitions[p] = false
		}
	}
	l.until = now.Add(min(lateLast<<min(l.rounds, 10), lateLongest))
}

// waits says why a record is not to be written to a partition that did not take those before
// it, "" if it is. Without an order it says whether one may be tried.
func (d *directory) waits(at lane.TopicPartition, order string) string {
	l, now := d.late[at.Topic], d.now()
	if l == nil {
		return ""
	}
	tried, isLate := l.partitions[at.Partition]
	switch {
	case !isLate || l.tried == at.Partition:
		return ""
	case now.Before(l.until), tried && now.Before(l.until.Add(othersFirst)):
		return fmt.Sprintf("partition %d took nothing in time", at.Partition)
	case order != "":
		l.tried, l.until = at.Partition, now.Add(trialLast)
	}
	return ""
}

// took notes that a partition of an agent's topic has taken a record, and reports whether that
// ends what is known of it.
func (d *directory) took(at lane.TopicPartition) bool {
	l := d.late[at.Topic]
	if l == nil {
		return false
	}
	if _, isLate := l.partitions[at.Partition]; !isLate && d.now().Sub(l.at) <= lateForgotten {
		return false
	}
	delete(d.late, at.Topic)
	d.troubles.Add(-1)
	return true
}
