package main

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/test/kafka"
)

// A replay holds no more of a journal than any other reader, whatever stands there.
func TestWhatAReplayFetchesAtATimeIsBounded(t *testing.T) {
	t.Parallel()
	b := kafka.Embedded(t)
	topics, err := events.NewTopics(kafka.Namespace(t))
	if err != nil {
		t.Fatal(err)
	}
	admin := b.Admin(t)
	if _, err := admin.CreateTopic(t.Context(), 1, 1, nil, topics.Journal); err != nil {
		t.Fatal(err)
	}
	b.Flood(t, topics.Journal, 0)
	held := new(kafka.Held)
	r := &replay{topics: topics, admin: admin, kafka: []kgo.Opt{kgo.SeedBrokers(b.Brokers...), kgo.WithHooks(held)}}
	j, err := r.openJournal(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer j.close()
	for j.position < j.end {
		if _, err := j.next(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	held.Bounded(t, 1)
}
