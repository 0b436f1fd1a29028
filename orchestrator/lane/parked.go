package lane

import (
	"fmt"
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/decide"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

// parked holds submissions that cannot be decided on yet: their workflow is not known,
// and the workflows topic was not read to its end since; or Kafka has not said anything
// of its agents' topics; or it is not sure whether their topic for status messages is
// there; or they stray, and cannot be forwarded now. The position in the orders stays
// before the first. Other submissions are decided on meanwhile: if the lane ends, they are
// read again, and change nothing, since their orders are there. What would be doubled,
// like a dead letter or a conflict, waits behind those that are parked.
type parked struct {
	inputs  []input
	orders  map[string]time.Time // since when their first is parked
	bytes   int
	newer   room  // of these, what those of newer workflows take
	reached int64 // where the position in the orders will be, once none is left
}

// room is what inputs take.
type room struct{ inputs, bytes int }

const (
	// What is parked, at most: then no more is read of the orders. Of workflows that are not
	// run here it is half of that: they may be many, and wait for long, and others go on.
	maxParked   = 1_000
	parkedBytes = 16 << 20
	// parkedLongest is how long a submission is parked, at most: then it is decided with
	// what is known. One that strays cannot be, nor one of a workflow that may be on what
	// nobody could read yet of the workflows topic.
	parkedLongest = time.Hour
)

func (p *parked) add(in *input) {
	if p.orders == nil {
		p.orders = make(map[string]time.Time)
	}
	if _, there := p.orders[in.Order]; !there {
		p.orders[in.Order] = in.parked
	}
	p.inputs = append(p.inputs, *in)
	size := in.Record.Size()
	p.bytes += size
	if in.newer {
		p.newer.inputs++
		p.newer.bytes += size
	}
}

func (p *parked) full() bool { return len(p.inputs) >= maxParked || p.bytes >= parkedBytes }

// ordersRead is up to where the orders were read, but for those that are parked.
func (l *Lane) ordersRead() int64 {
	if len(l.parked.inputs) > 0 {
		return l.parked.reached
	}
	return l.position.At(events.InputOrders)
}

// park keeps a record of the orders that must wait, and says whether it did.
func (l *Lane) park(in *input) (bool, error) {
	if in.record.Topic != l.topics.Orders || in.record.Partition != l.partition {
		return false, nil
	}
	wait, err := l.mustWait(in)
	if !wait || err != nil {
		return false, err
	}
	newer := l.notRun(in)
	if in.newer = newer != nil; in.newer && (l.parked.newer.inputs >= maxParked/2 || l.parked.newer.bytes >= parkedBytes/2) {
		in.Problem = newer
		return false, nil
	}
	if len(l.parked.inputs) == 0 {
		l.position.Set(events.InputOrders, in.record.Offset)
	}
	in.parked = l.time.Timer()
	l.parked.add(in)
	l.parked.reached = in.record.Offset + 1
	return true, nil
}

// mustWait says whether a record of the orders must be parked, or stay so.
func (l *Lane) mustWait(in *input) (bool, error) {
	if in.record.Attrs.IsControl() {
		return false, nil
	}
	if in.Unreadable != "" || in.Partition != l.partition {
		return len(l.parked.inputs) > 0 || l.stranded(in), nil
	}
	order, err := l.order(in.Order)
	if err != nil {
		return false, err
	}
	s := &in.Submission
	switch {
	case order != nil && !decide.Conflicts(order, s):
		return false, nil
	case order != nil && len(l.parked.inputs) > 0: // what is counted is read once
		return true, nil
	case order != nil && order.Conflicted:
		return false, nil
	}
	if _, first := l.parked.orders[in.Order]; first { // which must come first
		return true, nil
	}
	if order == nil && in.Problem == nil && s.Workflow != "" {
		flow := l.world.Workflow(s.Workflow, s.Version)
		if flow == nil || l.world.Retired(s.Workflow, s.Version) { // it may be restored
			if in.sought == 0 {
				in.sought = l.world.Seek()
			}
			if !l.world.Found(in.sought) {
				return true, nil
			}
			flow = l.world.Workflow(s.Workflow, s.Version) // it may have been read meanwhile
		}
		if l.newer(s.Workflow, s.Version) > 0 || l.ahead(s) != "" { // a newer release may take the partition over
			return true, nil
		}
		if flow != nil && !l.knowsAgents(flow) {
			return true, nil
		}
	}
	to := s.ReplyTo
	return to != "" && l.format < events.CourierFormat && events.ValidTopic(to) && !l.topics.Owns(to) && l.unwritable(to, decide.EnvelopeSize) != "", nil
}

// knowsAgents says whether Kafka has said anything of the topics of a workflow's agents:
// that an agent is away is known, too.
func (l *Lane) knowsAgents(flow *workflow.Workflow) bool {
	if l.known[flow] {
		return true
	}
	known := true
	for _, agent := range flow.Agents() {
		known = l.world.Known(l.topics.Requests(agent)) && known // all that are not are asked about at once
	}
	if known {
		l.known[flow] = true
	}
	return known
}

// retryWaiting decides on what is parked and need not wait any more, and on the commands
// that waited for it, as far as there is room in the batch.
func (l *Lane) retryWaiting() error {
	if len(l.parked.inputs)+len(l.early.inputs)+len(l.earlySignals.inputs)+len(l.behind) == 0 {
		return nil
	}
	l.prepare(nil)
	l.retryBehind()
	env := l.env()
	if err := l.retryParked(env); err != nil {
		return err
	}
	err := l.retryEarly(env)
	l.pause()
	return err
}

func (l *Lane) retryParked(env *decide.Env) error {
	if len(l.parked.inputs) == 0 {
		return nil
	}
	waiting := l.parked
	l.parked = parked{}
	for i := range waiting.inputs {
		in := &waiting.inputs[i]
		late := false
		wait, err := l.mustWait(in)
		if err == nil && wait {
			late, err = l.isLate(in)
		}
		if err != nil {
			return err
		}
		if wait && !late || l.full() {
			in.newer = l.notRun(in) != nil // it may have been read meanwhile
			l.parked.add(in)
			continue
		}
		if wait {
			err = l.giveUp(env, in)
		} else {
			err = l.takeIn(env, in)
		}
		if err != nil {
			return err
		}
	}
	l.parked.reached = waiting.reached
	next := waiting.reached
	if len(l.parked.inputs) > 0 {
		next = l.parked.inputs[0].record.Offset
	}
	l.position.Set(events.InputOrders, next)
	return nil
}

// isLate says whether a submission that must wait did so for too long. What strays cannot
// be decided here: it waits until it can be forwarded, and with it what would be doubled.
// One whose workflow is still sought waits until that is answered, and with it those of
// the same order.
func (l *Lane) isLate(in *input) (bool, error) {
	switch {
	case l.time.Timer().Sub(in.parked) < parkedLongest || l.strays(in):
		return false, nil
	case len(l.parked.inputs) == 0 && in.Unreadable != "":
		return true, nil
	case in.Unreadable != "":
		return false, nil
	}
	order, err := l.order(in.Order)
	if order != nil || err != nil {
		return len(l.parked.inputs) == 0, err
	}
	_, second := l.parked.orders[in.Order]
	return !second && !l.seeks(in), nil
}

// seeks says that nobody can tell yet whether a submission's workflow is there.
func (l *Lane) seeks(in *input) bool {
	s := &in.Submission
	return in.sought > 0 && !l.world.Found(in.sought) && l.world.Workflow(s.Workflow, s.Version) == nil && l.newer(s.Workflow, s.Version) == 0
}

// newer is the level of the language of a workflow that cannot be run on the partition now, 0
// for any other: this release does not know it, or the partition's format has no events for it.
func (l *Lane) newer(name string, version int) int {
	if level := l.world.Newer(name, version); level > 0 || l.format >= events.JournalFormat {
		return level
	}
	if flow := l.world.Workflow(name, version); flow != nil && flow.Format() > l.format {
		return flow.Level()
	}
	return 0
}

// ahead says what a submission has that the partition's format does not, empty for nothing.
func (l *Lane) ahead(s *events.Submission) string {
	switch {
	case len(s.Labels) > 0 && l.format < events.LabelsFormat:
		return "labels"
	case s.RerunOf != "" && l.format < events.RerunFormat:
		return "rerunOf"
	}
	return ""
}

// notRun says why a submission cannot be decided here, nil if that is neither since its
// workflow is in a newer level of the language, nor since the partition's format lacks what it
// has.
func (l *Lane) notRun(in *input) error {
	s := &in.Submission
	level, ahead := l.newer(s.Workflow, s.Version), l.ahead(s)
	switch {
	case level == 0 && ahead == "":
		return nil
	case level == 0:
		return fmt.Errorf("it has %s, and partition %d is of format %d, which has none: finish the upgrade (waybill upgrade finish)", ahead, l.partition, l.format)
	case level <= workflow.Level:
		return fmt.Errorf("its workflow, %s, is in level %d of the language, and partition %d is of format %d, which has no events for it: finish the upgrade (waybill upgrade finish)", decide.Cut(s.Workflow, decide.MaxName), level, l.partition, l.format)
	}
	return fmt.Errorf("its workflow, %s, is in level %d of the language, and instance %s runs level %d: upgrade it", decide.Cut(s.Workflow, decide.MaxName), level, l.cfg.Instance, workflow.Level)
}

// giveUp decides on a submission that was parked for too long. It is rejected, if its
// workflow is not run here; else its status messages go to the namespace's topic, if it is
// not sure whether its own is there.
func (l *Lane) giveUp(env *decide.Env, in *input) error {
	s, refuses := &in.Submission, env.Refuses
	if in.Problem == nil {
		in.Problem = l.notRun(in)
	}
	if to := s.ReplyTo; to != "" {
		if why := l.unwritable(to, decide.EnvelopeSize); why != "" {
			env.Refuses = func(topic string, size int) string {
				if topic == to {
					return why
				}
				return refuses(topic, size)
			}
			defer func() { env.Refuses = refuses }()
		}
	}
	return l.takeIn(env, in)
}
