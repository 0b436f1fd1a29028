package kafka

import (
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Unwritable has a partition of an embedded broker take nothing until it heals: whoever
// writes there is told that its leader is another one, or nothing at all.
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
		a := kmsg.NewPtrProduceResponse()
		a.SetVersion(q.GetVersion())
		hit := false
		for i := range q.Topics {
			at := kmsg.NewProduceResponseTopic()
			at.Topic, at.TopicID = q.Topics[i].Topic, q.Topics[i].TopicID
			for j := range q.Topics[i].Partitions {
				p := kmsg.NewProduceResponseTopicPartition()
				p.Partition, p.ErrorCode = q.Topics[i].Partitions[j].Partition, kerr.NotLeaderForPartition.Code
				hit = hit || (at.Topic == topic || at.TopicID == id) && p.Partition == partition
				at.Partitions = append(at.Partitions, p)
			}
			a.Topics = append(a.Topics, at)
		}
		if !hit || u.healed.Load() {
			return nil, nil, false
		}
		u.tries.Add(1)
		if u.silent.Load() {
			return nil, nil, true
		}
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
