package lane

import (
	"cmp"
	"maps"
	"slices"

	"github.com/waybill-dev/waybill/events"
)

// The number of partitions of a namespace never changes, but anybody with the right to
// may add some to the topics of its inputs, and producers then write to them. Of n
// partitions, the lane of p also reads p+n, p+2n and so on. No order belongs there, so
// all of it is forwarded like what another partitioner put into the wrong one, if need
// be to p itself, and the positions there are in the seals, too.

// strays says whether an input is to be forwarded: its order belongs to another
// partition, or it came on an added one.
func (l *Lane) strays(in *input) bool {
	return in.Partition != l.partition || in.record.Partition != l.partition
}

// readAdded begins to read the added partitions that are the lane's, and that it does
// not read yet.
func (l *Lane) readAdded() {
	all := l.world.Added()
	for _, at := range slices.SortedFunc(maps.Keys(all), func(a, b TopicPartition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	}) {
		in, _ := l.topics.Input(at.Topic)
		if at.Partition%l.cfg.Partitions != l.partition || slices.Contains(l.added, at) || in.Since() > l.format {
			continue
		}
		if l.reads(&l.position, at) < 0 {
			l.readsOn(at, all[at])
		}
		l.log.Info("reads a partition that was added to an input", "topic", at.Topic, "added", at.Partition, "from", l.reads(&l.position, at))
		l.reader(at.Topic).Add(at, l.reads(&l.position, at))
		l.added = append(l.added, at)
	}
}

// reads is where reading of a partition of an input goes on.
func (l *Lane) reads(p *events.Positions, at TopicPartition) int64 {
	in, _ := l.topics.Input(at.Topic)
	if at.Partition == l.partition {
		return p.At(in)
	}
	return p.Of(in, at.Partition)
}

// readsOn moves the position in a partition of an input.
func (l *Lane) readsOn(at TopicPartition, offset int64) {
	switch in, ok := l.topics.Input(at.Topic); {
	case !ok:
	case at.Partition == l.partition:
		l.position.Set(in, offset)
	default:
		l.position.SetOf(in, at.Partition, offset)
	}
}
