package kafka

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Leaderless has an embedded broker say of a partition of some topics that it has no
// leader, from now on. It knows of no topic that is made later.
func (b *Broker) Leaderless(t testing.TB, partition int32, topics ...string) {
	t.Helper()
	ask := kmsg.NewPtrMetadataRequest()
	ask.Topics = nil // all
	known, err := ask.RequestWith(t.Context(), b.Client(t))
	mustHave(t, err)
	for i := range known.Topics {
		if topic := &known.Topics[i]; slices.Contains(topics, *topic.Topic) {
			for p := range topic.Partitions {
				if at := &topic.Partitions[p]; at.Partition == partition {
					at.Leader, at.ErrorCode = -1, kerr.LeaderNotAvailable.Code
				}
			}
		}
	}
	b.Fake.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		b.Fake.KeepControl()
		answer := *known
		answer.SetVersion(r.GetVersion())
		if asked, ok := r.(*kmsg.MetadataRequest); ok && asked.Topics != nil {
			answer.Topics = slices.DeleteFunc(slices.Clone(known.Topics), func(have kmsg.MetadataResponseTopic) bool {
				return !slices.ContainsFunc(asked.Topics, func(t kmsg.MetadataRequestTopic) bool {
					return t.Topic != nil && *t.Topic == *have.Topic || t.TopicID == have.TopicID
				})
			})
		}
		return &answer, nil, true
	})
}
