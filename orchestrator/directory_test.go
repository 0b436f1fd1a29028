package orchestrator

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/waybill-dev/waybill/test/kafka"
)

func TestDirectoryRefuses(t *testing.T) {
	d := newDirectory(nil, 12, slog.New(slog.DiscardHandler))
	d.put("gone", topicFacts{refusal: "topic gone does not exist"})
	d.put("small", topicFacts{limit: 1000, partitions: 12})
	d.put("narrow", topicFacts{partitions: 6})
	d.put("wide", topicFacts{partitions: 24})
	for _, c := range []struct {
		topic  string
		size   int
		placed bool
		want   string // a part of the reason, "" if it is taken
	}{
		{"gone", 1, false, "does not exist"},
		{"small", 1000, false, ""},
		{"small", 1001, false, "1001 bytes are more than the 1000"},
		{"small", 1001, true, "1001 bytes are more than the 1000"},
		{"narrow", 1, false, ""}, // its key says where it goes
		{"narrow", 1, true, "has 6 partitions, and needs 12"},
		{"wide", 1, true, ""},
		{"never-seen", 1 << 30, true, ""}, // Kafka will say
	} {
		got := d.Refuses(c.topic, c.size, c.placed)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s, %d bytes, placed %t: %q, not %q", c.topic, c.size, c.placed, got, c.want)
		}
	}
}

// What a topic takes is what Kafka says of it, also that there is none.
func TestDirectoryAsksKafka(t *testing.T) {
	b := kafka.Embedded(t)
	topics := onePartition(t, b)
	d := newDirectory(b.Admin(t), 1, slog.New(slog.DiscardHandler))
	d.learn(t.Context(), topics.Journal, "gone")
	if why := d.Refuses(topics.Journal, 1, true); why != "" {
		t.Errorf("the journal: %s", why)
	}
	if why := d.Refuses("gone", 1, false); why != "topic gone does not exist" {
		t.Errorf("a topic that is not there: %q", why)
	}
}

// A refusal that was not foreseen is: the same record would be refused again.
func TestDirectoryLearnsFromRefusals(t *testing.T) {
	d := newDirectory(nil, 1, slog.New(slog.DiscardHandler))
	for _, err := range []error{kerr.MessageTooLarge, fmt.Errorf("produce: %w", kerr.RecordListTooLarge)} {
		d.Refused("small", 500, err)
		if d.Refuses("small", 500, false) == "" || d.Refuses("small", 499, false) != "" {
			t.Errorf("%v: 500 bytes: %q; 499: %q", err, d.Refuses("small", 500, false), d.Refuses("small", 499, false))
		}
		d.forget("small")
		if why := d.Refuses("small", 500, false); why != "" {
			t.Errorf("forgotten, and refused: %s", why)
		}
	}
	d.Refused("secret", 1, kerr.TopicAuthorizationFailed)
	if why := d.Refuses("secret", 1, false); !strings.Contains(why, "secret") || !strings.Contains(why, "TOPIC_AUTHORIZATION_FAILED") {
		t.Errorf("%q", why)
	}
}

// Submissions with made-up topics do not fill the memory.
func TestDirectoryIsBounded(t *testing.T) {
	d := newDirectory(nil, 1, slog.New(slog.DiscardHandler))
	for i := range 2 * directorySize {
		d.put(fmt.Sprint("t-", i), topicFacts{})
		if len(d.topics) > directorySize {
			t.Fatalf("%d topics", len(d.topics))
		}
	}
}

// Only what Kafka says of the record itself may be remembered: anything else
// says nothing of the next one.
func TestRefusal(t *testing.T) {
	for _, err := range []error{kerr.MessageTooLarge, kerr.UnknownTopicOrPartition, kerr.TopicAuthorizationFailed, fmt.Errorf("x: %w", kerr.InvalidRecord)} {
		if !refusal(err) {
			t.Errorf("%v is no refusal", err)
		}
	}
	for _, err := range []error{kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.NotLeaderForPartition, kerr.RequestTimedOut, errors.New("connection refused"), nil} {
		if refusal(err) {
			t.Errorf("%v is a refusal", err)
		}
	}
}
