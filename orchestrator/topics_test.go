package orchestrator

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/oracle"
)

// What `topics check` says of configurations that take from a journal what is kept for
// ever, and of partitions that were added.
func TestCheckTopics(t *testing.T) {
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		h := newTorn(t, b)
		stop := h.run("i-1")
		oracle.Until(t, "the partitions are claimed", func() error { return h.all(2, h.instance) })
		stop()
		check := func(want ...Difference) {
			t.Helper()
			found, err := CheckTopics(t.Context(), b.Client(t), &h.topics, nil)
			must(t, err)
			var ours []Difference
			for _, d := range found {
				if d.Topic != "" { // the embedded broker has other transactions
					ours = append(ours, d)
				}
			}
			for _, d := range want {
				if !slices.Contains(ours, d) {
					t.Errorf("%+v was not found", d)
				}
			}
			if len(ours) != len(want) {
				t.Errorf("found is %+v", ours)
			}
		}
		check()
		_, err := b.Admin(t).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{
			{Name: "retention.bytes", Value: new("1000000")}, {Name: "cleanup.policy", Value: new("compact")},
		}, h.topics.Journal)
		must(t, err)
		h.widen(5, h.topics.Orders, h.topics.Journal)
		check(
			Difference{h.topics.Orders, "partitions", "5", "2", false},
			Difference{h.topics.Journal, "partitions", "5", "2", false},
			Difference{h.topics.Journal, "cleanup.policy", "compact", "delete", false},
			Difference{h.topics.Journal, "retention.bytes", "1000000", "-1", false},
		)
	})
}

// Kafka's clock stamps what a new namespace reads and decides. One that is of before
// goes on, and the check says what it lacks.
func TestTopicsAreStamped(t *testing.T) {
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		topics, err := events.NewTopics(kafka.Namespace(t))
		must(t, err)
		_, err = CreateTopics(t.Context(), b.Admin(t), &topics, 1, 1)
		must(t, err)
		if found := stampedOtherwise(t, b, &topics); len(found) > 0 {
			t.Errorf("new ones are not as they should be: %+v", found)
		}
		_, err = b.Admin(t).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "message.timestamp.type", Value: new("CreateTime")}},
			topics.Orders, topics.Replies, topics.Commands, topics.Journal)
		must(t, err)
		found := stampedOtherwise(t, b, &topics)
		if len(found) != 4 || slices.ContainsFunc(found, func(d Difference) bool {
			return d.Harmful || d.Have != "CreateTime" || d.Want != "LogAppendTime"
		}) {
			t.Errorf("the check finds %+v", found)
		}
	})
}

func stampedOtherwise(t *testing.T, b *kafka.Broker, topics *events.Topics) []Difference {
	t.Helper()
	found, err := CheckTopics(t.Context(), b.Client(t), topics, nil)
	must(t, err)
	return slices.DeleteFunc(found, func(d Difference) bool { return d.What != "message.timestamp.type" })
}
