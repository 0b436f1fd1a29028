package lane

import (
	"fmt"
	"slices"
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/decide"
)

// behind are the inputs of a partition of which the first is to be forwarded to where
// nothing can be written now, or is about a workflow that is not known yet, and the
// others came after it. They wait, and so does what
// is not read yet of their partition; all else goes on. A reply or command that passed them would
// be done, and recorded, again if they are read again. What strays among the lane's own
// orders is parked instead: other submissions need not wait for it. The position stays
// before the first: if the lane ends, they are read again.
//
// A reply that waits so was read, and not decided on yet: nothing of its order expires
// meanwhile. For all other attempts that are due the lane reads replies on, and keeps them
// too, as far as there is room: see [Lane.readsOnBehind].
type behind struct {
	at     TopicPartition
	inputs []input
	bytes  int
	since  time.Time // by the timer
	told   bool      // an operator was called
}

// What is kept behind an input, at most: then no more is read though something is due.
const (
	maxBehind   = 1_000
	behindBytes = 16 << 20
)

func (b *behind) full() bool { return len(b.inputs) >= maxBehind || b.bytes >= behindBytes }

// stranded says that an input is to be forwarded to where nothing can be written now.
func (l *Lane) stranded(in *input) bool {
	return !in.record.Attrs.IsControl() && in.Unreadable == "" && l.strays(in) &&
		l.unwritableAt(TopicPartition{in.record.Topic, in.Partition}, in.Order, in.Record.Size()) != ""
}

// stands says that an input cannot be dealt with now, nor anything behind it.
func (l *Lane) stands(in *input) bool { return l.stranded(in) || l.unready(in) != "" }

// unready says why the order cannot begin yet that is to do a step of another, or go on as one of another
// version of its workflow; "" for anything else. Whoever asked for it knew its workflow: it was registered before, and is read here before long.
func (l *Lane) unready(in *input) string {
	if in.Command != nil && in.Unreadable == "" && !l.strays(in) {
		return l.unknown(in)
	}
	if in.Signal != nil {
		return l.startless(in)
	}
	if in.Wish == nil || in.Wish.Wish != events.WishBegin || in.Unreadable != "" || l.strays(in) {
		return ""
	}
	if order, err := l.order(in.Order); order != nil || err != nil {
		return ""
	}
	s := &in.Submission
	if l.newer(s.Workflow, s.Version) == 0 && l.world.Workflow(s.Workflow, s.Version) == nil {
		if in.sought == 0 {
			in.sought = l.world.Seek()
		}
		if !l.world.Found(in.sought) {
			return fmt.Sprintf("its workflow, %s, is not known here, and the workflows cannot be read to their end", decide.Cut(s.Workflow, decide.MaxName))
		}
	}
	if level := l.newer(s.Workflow, s.Version); level > 0 { // it may have been read just now
		return fmt.Sprintf("its workflow, %s, is in level %d of the language, which is not run here", decide.Cut(s.Workflow, decide.MaxName), level)
	}
	return ""
}

// unknown says why a command waits: whoever has an order go on as one of another version of its workflow
// may know that before it is read here. "" for any other.
func (l *Lane) unknown(in *input) string {
	version := in.Command.ToVersion
	if version <= 0 {
		return ""
	}
	order, err := l.order(in.Order)
	if order == nil || err != nil || order.State.Final() || l.world.Workflow(order.Workflow, version) != nil || l.newer(order.Workflow, version) > 0 {
		return ""
	}
	if in.sought == 0 {
		in.sought = l.world.Seek()
	}
	if l.world.Found(in.sought) {
		return ""
	}
	return fmt.Sprintf("version %d of its workflow, %s, is not known here, and the workflows cannot be read to their end", version, order.Workflow)
}

// startless says why a signal waits for which nobody does: whoever sent it may know of a workflow whose orders it
// starts before that is read here. It waits for a moment, not for as long as the workflows cannot be read:
// what it says is of no use to anybody meanwhile. "" for any other.
func (l *Lane) startless(in *input) string {
	s := in.Signal
	if s.Key == "" || in.Unreadable != "" || l.strays(in) || l.format < events.StartFormat || l.world.Starts(s.Signal) != nil {
		return ""
	}
	if home, err := l.order(in.Order); err != nil || home != nil && home.Correlation != nil && home.Correlation.Free() >= 0 {
		return ""
	}
	if in.sought == 0 {
		in.sought, in.parked = l.world.Seek(), l.time.Timer()
	}
	if l.world.Found(in.sought) || l.time.Timer().Sub(in.parked) >= earlyLongest {
		return ""
	}
	return fmt.Sprintf("nobody can tell whether signal %s starts an order: the workflows cannot be read to their end", s.Signal)
}

// seeksAgain is how long it takes until it is looked whether a signal that is the first behind which others wait
// starts an order, 0 if there is none: soon at first, since senders wait for their answers.
func (l *Lane) seeksAgain() time.Duration {
	for i := range l.behind {
		if in := &l.behind[i].inputs[0]; in.Signal != nil && in.sought > 0 {
			return max(2*time.Millisecond, l.time.Timer().Sub(in.parked)/2)
		}
	}
	return 0
}

// stays keeps an input that cannot be forwarded, or is behind one, and says whether it
// did.
func (l *Lane) stays(in *input) bool {
	at := TopicPartition{in.record.Topic, in.record.Partition}
	if at == (TopicPartition{l.topics.Orders, l.partition}) {
		return false
	}
	i := slices.IndexFunc(l.behind, func(b behind) bool { return b.at == at })
	switch {
	case i >= 0:
		if in.Signal != nil {
			l.startless(in) // so that it is sought at once what others behind it need, too
		}
	case !l.stands(in):
		return false
	default:
		i, l.behind = len(l.behind), append(l.behind, behind{at: at, since: l.time.Timer()})
	}
	b := &l.behind[i]
	b.inputs = append(b.inputs, *in)
	if in.Record != nil {
		b.bytes += in.Record.Size()
	}
	return true
}

// retryBehind goes on with inputs of which the first can be forwarded by now.
func (l *Lane) retryBehind() {
	l.behind = slices.DeleteFunc(l.behind, func(b behind) bool {
		if l.stands(&b.inputs[0]) {
			return false
		}
		if b.told {
			l.log.Warn("inputs wait no more behind a misrouted one", "topic", b.at.Topic, "partition", b.at.Partition, "inputs", len(b.inputs))
		}
		l.rest = append(b.inputs, l.rest...)
		l.due.spared = l.due.spared || b.at == l.replies()
		return true
	})
}

// tellBehind calls an operator to inputs that have waited for a minute behind a misrouted one.
func (l *Lane) tellBehind(now time.Time) {
	for i := range l.behind {
		b := &l.behind[i]
		if b.told || now.Sub(b.since) < silentLeast {
			continue
		}
		b.told = true
		first := &b.inputs[0]
		if why := l.unready(first); why != "" {
			l.log.Warn("inputs wait behind an order whose workflow is not known", "topic", b.at.Topic, "partition", b.at.Partition, "offset", first.record.Offset, "why", why)
			does := "begin"
			if first.Command != nil {
				does = "migrate"
			}
			l.alert(b.about(), fmt.Sprintf("what comes on partition %d of %s waits behind offset %d: order %s cannot %s: %s", b.at.Partition, b.at.Topic, first.record.Offset, first.Order, does, why),
				"see that the workflows topic can be read, and that an instance of a release owns the partition that runs the workflow; all goes on by itself then")
			continue
		}
		to := TopicPartition{b.at.Topic, first.Partition}
		why := fmt.Sprintf("what comes on partition %d of %s waits behind offset %d, which belongs on partition %d and cannot be forwarded: %s", b.at.Partition, b.at.Topic, first.record.Offset, to.Partition, l.unwritableAt(to, first.Order, first.Record.Size()))
		l.log.Warn("inputs wait behind a misrouted one", "topic", b.at.Topic, "partition", b.at.Partition, "offset", first.record.Offset, "belongs", to.Partition)
		l.alert(b.about(), why, fmt.Sprintf("have partition %d of %s be writable, and all goes on by itself; whoever wrote that record must place records by their key as Kafka's clients do", to.Partition, to.Topic))
	}
}

// about tells alerts apart: several inputs may wait since the same time.
func (b *behind) about() string { return fmt.Sprintf("behind/%s/%d/", b.at.Topic, b.at.Partition) }

// replies is where those to the lane's own orders come.
func (l *Lane) replies() TopicPartition { return TopicPartition{l.topics.Replies, l.partition} }

// repliesBehind are what is kept of the replies, nil if nothing is.
func (l *Lane) repliesBehind() *behind {
	for i := range l.behind {
		if l.behind[i].at == l.replies() {
			return &l.behind[i]
		}
	}
	return nil
}

// repliesReached is up to where the replies were read, decided on or not.
func (l *Lane) repliesReached() int64 {
	if b := l.repliesBehind(); b != nil {
		return b.inputs[len(b.inputs)-1].record.Offset + 1
	}
	return l.position.At(events.InputReplies)
}

// readsOnBehind says that replies are read on though they can only be kept: something is due,
// and its reply may be among those that are not read.
func (l *Lane) readsOnBehind(b *behind) bool {
	return b.at == l.replies() && !b.full() && len(l.due.found) > 0 && l.due.end > l.repliesReached()
}

// undecided are the orders of which replies were read that are not decided on.
func (l *Lane) undecided() map[string]bool {
	var orders map[string]bool
	note := func(inputs []input) {
		for i := range inputs {
			if in := &inputs[i]; in.Reply != nil && !l.strays(in) {
				if orders == nil {
					orders = make(map[string]bool)
				}
				orders[in.Order] = true
			}
		}
	}
	if b := l.repliesBehind(); b != nil {
		note(b.inputs)
	}
	note(l.rest)
	return orders
}

// holds says whether something of a partition waits that keeps more of it from being read.
func (l *Lane) holds(at TopicPartition) bool {
	e := l.earlyOf(at.Topic)
	return e != nil && at.Partition == l.partition && len(e.inputs) > 0 ||
		at == TopicPartition{l.topics.Orders, l.partition} && l.parked.full() ||
		slices.ContainsFunc(l.behind, func(b behind) bool { return b.at == at && !l.readsOnBehind(&b) })
}

// pause has no more read of partitions of which something waits, and goes on with the others.
func (l *Lane) pause() {
	l.paused = slices.DeleteFunc(l.paused, func(at TopicPartition) bool {
		if l.holds(at) {
			return false
		}
		l.reader(at.Topic).Resume(at)
		return true
	})
	pause := func(at TopicPartition) {
		if l.holds(at) && !slices.Contains(l.paused, at) {
			l.reader(at.Topic).Pause(at)
			l.paused = append(l.paused, at)
		}
	}
	for _, topic := range l.topics.Inputs() {
		pause(TopicPartition{topic, l.partition})
	}
	for _, b := range l.behind {
		pause(b.at)
	}
}
