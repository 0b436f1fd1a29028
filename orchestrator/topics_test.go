package orchestrator

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

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

// Harmful is what keeps an instance from starting: another number of partitions of what an
// order's partition decides, and of nothing else.
func TestHarmfulPartitions(t *testing.T) {
	b := kafka.Embedded(t)
	for _, c := range []struct {
		name    string
		topic   func(*events.Topics) string
		harmful bool
	}{
		{"an input", func(t *events.Topics) string { return t.Commands }, true},
		{"an agent's requests", func(t *events.Topics) string { return t.Requests("phone") }, false},
		{"workflows", func(t *events.Topics) string { return t.Workflows }, false},
		{"alerts", func(t *events.Topics) string { return t.Alerts }, false},
	} {
		topics, err := events.NewTopics(kafka.Namespace(t))
		must(t, err)
		b.Create(t, 2, nil, c.topic(&topics))
		_, err = CreateTopics(t.Context(), b.Admin(t), &topics, 4, 1)
		if c.harmful && err != nil { // the number that is there is the namespace's
			_, err = create(t.Context(), b.Admin(t), specs(&topics, 4, nil), 1)
		}
		must(t, err)
		found, err := CheckTopics(t.Context(), b.Client(t), &topics, []string{"phone"})
		must(t, err)
		found = slices.DeleteFunc(found, func(d Difference) bool { return d.What != "partitions" })
		if len(found) != 1 || found[0].Topic != c.topic(&topics) || found[0].Harmful != c.harmful {
			t.Errorf("%s: %+v", c.name, found)
		}
		i, err := New(t.Context(), Config{ID: "i-1", Namespace: topics.Namespace, DataDir: t.TempDir(), Kafka: []kgo.Opt{kgo.SeedBrokers(b.Brokers...)}, Logger: slog.New(slog.DiscardHandler)})
		if i != nil {
			must(t, i.Close())
		}
		if errors.Is(err, ErrMissingTopics) != c.harmful || err != nil && !c.harmful {
			t.Errorf("%s: an instance says %v", c.name, err)
		}
	}
}

// No instance starts where Kafka would refuse what a lane cannot do without, and the
// check says so. Other differences harm nobody, and neither does what may not be seen.
func TestTopicsThatTakeTooLittle(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		topics, err := events.NewTopics(kafka.Namespace(t))
		must(t, err)
		_, err = CreateTopics(t.Context(), b.Admin(t), &topics, 1, 1)
		must(t, err)
		for _, c := range []struct {
			topic   string
			takes   int
			harmful bool
		}{
			{topics.Journal, events.MaxBatch, false},
			{topics.Journal, events.MaxBatch - 1, true},
			{topics.Status, 1_048_588, false}, // Kafka's default
			{topics.Status, 900_000, true},
			{topics.Alerts, 900_000, true},
			{topics.DeadLetters, 10_000, false},
			{topics.Orders, 10_000, false},
		} {
			set := func(takes int) {
				t.Helper()
				_, err := b.Admin(t).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "max.message.bytes", Value: new(strconv.Itoa(takes))}}, c.topic)
				must(t, err)
			}
			set(c.takes)
			oracle.Until(t, "the check finds it", func() error {
				found, err := CheckTopics(t.Context(), b.Client(t), &topics, nil)
				must(t, err)
				found = slices.DeleteFunc(found, func(d Difference) bool { return d.Topic == "" })
				if len(found) != 1 || found[0].Topic != c.topic || found[0].Have != strconv.Itoa(c.takes) || found[0].Harmful != c.harmful {
					return fmt.Errorf("%s takes %d: %+v", c.topic, c.takes, found)
				}
				return nil
			})
			i, err := New(t.Context(), Config{ID: "i-1", Namespace: topics.Namespace, DataDir: t.TempDir(), Kafka: []kgo.Opt{kgo.SeedBrokers(b.Brokers...)}})
			if i != nil {
				must(t, i.Close())
			}
			if errors.Is(err, ErrMissingTopics) != c.harmful || err != nil && !strings.Contains(err.Error(), fmt.Sprintf("%s takes records of %d bytes", c.topic, c.takes)) {
				t.Errorf("%s takes %d: an instance says %v", c.topic, c.takes, err)
			}
			set(2*events.MaxBatch + 1<<16)
		}
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
		oracle.Until(t, "the check finds it", func() error { // a broker hears of it a moment later
			found := stampedOtherwise(t, b, &topics)
			if len(found) != 4 || slices.ContainsFunc(found, func(d Difference) bool {
				return d.Harmful || d.Have != "CreateTime" || d.Want != "LogAppendTime"
			}) {
				return fmt.Errorf("it finds %+v", found)
			}
			return nil
		})
	})
}

func stampedOtherwise(t *testing.T, b *kafka.Broker, topics *events.Topics) []Difference {
	t.Helper()
	found, err := CheckTopics(t.Context(), b.Client(t), topics, nil)
	must(t, err)
	return slices.DeleteFunc(found, func(d Difference) bool { return d.What != "message.timestamp.type" })
}

// A topic that is being deleted is said to be there, and cannot be seen: nobody waits for it
// for ever.
func TestATopicThatIsBeingDeleted(t *testing.T) {
	t.Parallel()
	b := kafka.Embedded(t)
	topics, err := events.NewTopics(kafka.Namespace(t))
	must(t, err)
	b.Fake.ControlKey(int16(kmsg.CreateTopics), func(q kmsg.Request) (kmsg.Response, error, bool) {
		b.Fake.KeepControl()
		of := q.(*kmsg.CreateTopicsRequest).Topics[0].Topic
		answer := q.ResponseKind().(*kmsg.CreateTopicsResponse)
		said := kmsg.NewCreateTopicsResponseTopic()
		said.Topic, said.ErrorCode = of, kerr.TopicAlreadyExists.Code
		answer.Topics = append(answer.Topics, said)
		return answer, nil, of == topics.Commands
	})
	_, err = CreateTopics(t.Context(), b.Admin(t), &topics, 1, 1)
	if err == nil || !strings.Contains(err.Error(), topics.Commands+" cannot be seen") || !strings.Contains(err.Error(), "try again") {
		t.Errorf("it says %v", err)
	}
}
