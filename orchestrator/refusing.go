package orchestrator

import (
	"time"

	"github.com/waybill-dev/waybill/orchestrator/cluster"
	"github.com/waybill-dev/waybill/orchestrator/lane"
)

// refusing is what is known of an agent's topic that refuses records for what they are, as
// a broker does that validates them. One such record says nothing of others; if it is those
// of several orders, and none was taken since the first, the agent is away. Then a record of
// one order at a time is tried, after ever longer, and of one that was not refused before,
// if there is any: else one that is invalid for its own sake would be tried for ever.
type refusing struct {
	orders map[string]bool // whose records were refused
	why    string          // what Kafka said last
	rests  time.Duration   // how long the agent was away last, 0 if it is not
	until  time.Time       // nothing is tried before, but for the order that is
	tried  string          // the order whose record is tried, "" if there is none
}

const (
	// refusingAll is of how many orders a topic must refuse records to refuse all.
	refusingAll = 3
	// refusingRests is for how long it is left alone: each time for twice as long.
	refusingRests, refusingLongest = 30 * time.Second, 10 * time.Minute
	// trialLast is how long nobody else is tried: a commit, and what is decided before.
	trialLast = 20 * time.Second
	// othersFirst is how long orders that were not refused have to be tried before those
	// that were: some looks of all lanes.
	othersFirst = 2 * time.Second
)

// invalid notes that an agent's topic refused a record of an order for what it is.
func (d *directory) invalid(topic, order string, err error) {
	r := d.refusing[topic]
	if r == nil {
		r = &refusing{orders: make(map[string]bool)}
		d.refusing[topic] = r
		d.troubles.Add(1)
	}
	r.orders[order], r.why = true, "it refuses every record: "+cluster.Refusal(topic, err)
	switch {
	case r.rests == 0 && len(r.orders) < refusingAll:
		return
	case r.rests == 0:
		r.rests = refusingRests
		d.log.Warn("an agent is away: its topic refuses every record, and what it is to do waits", "agent", d.own.Agent(topic), "topic", topic, "reason", r.why)
	case r.tried != order: // it was on its way
		return
	default:
		r.rests = min(2*r.rests, refusingLongest)
	}
	r.until, r.tried = d.now().Add(r.rests), ""
}

// rests says why a record of an order is not to be written to a topic that refuses all, ""
// if it is. Without an order it says whether one may be tried.
func (d *directory) rests(topic, order string) string {
	r, now := d.refusing[topic], d.now()
	switch {
	case r == nil || r.rests == 0 || order != "" && order == r.tried:
		return ""
	case now.Before(r.until), r.orders[order] && now.Before(r.until.Add(othersFirst)):
		return r.why
	case order != "":
		r.tried, r.until = order, now.Add(trialLast)
	}
	return ""
}

// Took notes that Kafka has committed a record.
func (d *directory) Took(at lane.TopicPartition) {
	if d.troubles.Load() == 0 { // as nearly always
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	back := d.took(at)
	if r := d.refusing[at.Topic]; r != nil {
		back = back || r.rests > 0
		delete(d.refusing, at.Topic)
		d.troubles.Add(-1)
	}
	if back {
		d.log.Info("an agent is back: its topic takes records", "agent", d.own.Agent(at.Topic), "topic", at.Topic)
	}
}
