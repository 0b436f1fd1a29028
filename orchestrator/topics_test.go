package orchestrator

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/test/kafka"
)

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
