package lane

import "slices"

// behind are the inputs of a partition of which the first is to be forwarded to where
// nothing can be written now, and the others came after it. They wait, and so does what
// is not read yet of their topic; all else goes on. A reply or command that passed them would
// be done, and recorded, again if they are read again. What strays among the lane's own
// orders is parked instead: other submissions need not wait for it. The position stays
// before the first: if the lane ends, they are read again.
type behind struct {
	at     TopicPartition
	inputs []input
}

// stranded says that an input is to be forwarded to where nothing can be written now.
func (l *Lane) stranded(in *input) bool {
	return !in.record.Attrs.IsControl() && in.Unreadable == "" && l.strays(in) &&
		l.unwritableAt(TopicPartition{in.record.Topic, in.Partition}, in.Order, in.Record.Size()) != ""
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
	case !l.stranded(in):
		return false
	default:
		i, l.behind = len(l.behind), append(l.behind, behind{at: at})
	}
	l.behind[i].inputs = append(l.behind[i].inputs, *in)
	return true
}

// retryBehind goes on with inputs of which the first can be forwarded by now.
func (l *Lane) retryBehind() {
	l.behind = slices.DeleteFunc(l.behind, func(b behind) bool {
		if l.stranded(&b.inputs[0]) {
			return false
		}
		l.rest = append(b.inputs, l.rest...)
		return true
	})
}

// holds says whether something of a topic waits that keeps more of it from being read.
func (l *Lane) holds(topic string) bool {
	return topic == l.topics.Commands && len(l.early.commands) > 0 ||
		topic == l.topics.Orders && l.parked.full() ||
		slices.ContainsFunc(l.behind, func(b behind) bool { return b.at.Topic == topic })
}

// pause has no more read of topics of which something waits, and goes on with the others.
func (l *Lane) pause() {
	for in, topic := range l.topics.Inputs() {
		switch holds := l.holds(topic); {
		case holds == l.paused[in]:
			continue
		case holds:
			l.reader(topic).Pause(topic)
		default:
			l.reader(topic).Resume(topic)
		}
		l.paused[in] = !l.paused[in]
	}
}
