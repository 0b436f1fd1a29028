package kafka

import (
	"slices"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Unwritable has a partition of an embedded broker take nothing until it heals: whoever
// writes there is told that its leader is another one, or nothing at all. Others that are
// written with it take what comes, but where it is silent: then the whole request is.
type Unwritable struct {
	silent, healed atomic.Bool
	tries          atomic.Int64
}

// Unwritable is for one partition of a topic.
func (b *Broker) Unwritable(t testing.TB, topic string, partition int32) *Unwritable {
	t.Helper()
	details, err := b.Admin(t).ListTopics(t.Context(), topic)
	mustHave(t, err)
	id := [16]byte(details[topic].ID)
	u := &Unwritable{}
	b.Fake.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		b.Fake.KeepControl()
		q, asked := r.(*kmsg.ProduceRequest)
		if !asked {
			return nil, nil, false
		}
		if u.healed.Load() {
			return nil, nil, false
		}
		hit, others := false, 0
		for i := range q.Topics {
			to := &q.Topics[i]
			to.Partitions = slices.DeleteFunc(to.Partitions, func(p kmsg.ProduceRequestTopicPartition) bool {
				here := (to.Topic == topic || to.TopicID == id) && p.Partition == partition
				hit = hit || here
				return here
			})
			others += len(to.Partitions)
		}
		if !hit {
			return nil, nil, false
		}
		u.tries.Add(1)
		switch {
		case u.silent.Load():
			return nil, nil, true
		case others > 0: // these are written, and the client hears nothing of the one: it tries on
			q.Topics = slices.DeleteFunc(q.Topics, func(to kmsg.ProduceRequestTopic) bool { return len(to.Partitions) == 0 })
			return nil, nil, false
		}
		a := kmsg.NewPtrProduceResponse()
		a.SetVersion(q.GetVersion())
		at := kmsg.NewProduceResponseTopic()
		at.Topic, at.TopicID = topic, id
		p := kmsg.NewProduceResponseTopicPartition()
		p.Partition, p.ErrorCode = partition, kerr.NotLeaderForPartition.Code
		at.Partitions = append(at.Partitions, p)
		a.Topics = append(a.Topics, at)
		return a, nil, true
	})
	return u
}

// Tries is how often somebody tried to write there.
func (u *Unwritable) Tries() int64 { return u.tries.Load() }

// Silence has whoever writes there from now on hear nothing.
func (u *Unwritable) Silence() { u.silent.Store(true) }

// Heal has the partition take what comes.
func (u *Unwritable) Heal() { u.healed.Store(true) }
