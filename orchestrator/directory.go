package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// directory knows which records Kafka would refuse, so that a lane never
// produces one: a refused record would take the whole transaction, and all
// other orders in it, with it. It asks Kafka about topics that it has not seen
// for a while, and learns from refusals that it did not foresee.
type directory struct {
	admin      *kadm.Client
	partitions int32
	log        *slog.Logger

	mu     sync.Mutex
	topics map[string]topicFacts
}

type topicFacts struct {
	until      time.Time // when to ask again
	refusal    string    // why nothing can be written, "" if something can
	limit      int       // bytes that a record may have, 0 if not known
	partitions int32
}

const (
	factsLast    = time.Minute
	refusalsLast = 5 * time.Second
	// directorySize bounds what submissions with made-up topics can fill.
	directorySize = 10_000
)

func newDirectory(admin *kadm.Client, partitions int32, log *slog.Logger) *directory {
	return &directory{admin: admin, partitions: partitions, log: log, topics: make(map[string]topicFacts)}
}

// learn asks Kafka about those of the topics that are not known, all at once.
// A topic stays unknown when Kafka does not answer.
func (d *directory) learn(ctx context.Context, topics ...string) {
	now := time.Now()
	var ask []string
	d.mu.Lock()
	for _, topic := range topics {
		if now.After(d.topics[topic].until) && !slices.Contains(ask, topic) {
			ask = append(ask, topic)
		}
	}
	d.mu.Unlock()
	if len(ask) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	// With authorized operations, because without them the answer may be
	// seconds old, and does not say what may be written.
	metadata, err := d.admin.Metadata(kadm.WithAuthorizedOps(ctx), ask...)
	if denied := new(kadm.AuthError); errors.As(err, &denied) {
		// One topic that may not be seen hides the others.
		if len(ask) > 1 {
			for _, topic := range ask {
				d.learn(ctx, topic)
			}
			return
		}
		d.note(ask[0], 0, denied.Err)
		return
	}
	if err != nil {
		d.log.Warn("cannot ask Kafka about topics", "topics", ask, "error", err)
		return
	}
	// Not everybody may describe configurations: then limits show by refusals.
	limits := make(map[string]int)
	if configs, err := d.admin.DescribeTopicConfigs(ctx, ask...); err == nil {
		for _, config := range configs {
			for _, c := range config.Configs {
				if n, err := strconv.Atoi(c.MaybeValue()); c.Key == "max.message.bytes" && err == nil {
					limits[config.Name] = n
				}
			}
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, topic := range ask {
		facts := topicFacts{until: now.Add(factsLast), limit: limits[topic]}
		switch m, ok := metadata.Topics[topic]; {
		case !ok || errors.Is(m.Err, kerr.UnknownTopicOrPartition):
			facts.refusal = fmt.Sprintf("topic %s does not exist", topic)
		case m.Err == nil && len(m.AuthorizedOperations) > 0 && !slices.Contains(m.AuthorizedOperations, kmsg.ACLOperationWrite):
			facts.refusal = fmt.Sprintf("not authorised to write to topic %s", topic)
		case errors.Is(m.Err, kerr.InvalidTopicException):
			facts.refusal = fmt.Sprintf("%q cannot be the name of a topic", topic)
		case m.Err != nil:
			continue // a broker is starting, or the like: ask again next time
		default:
			facts.partitions = int32(len(m.Partitions))
		}
		if facts.refusal != "" {
			facts.until = now.Add(refusalsLast)
		}
		d.put(topic, facts)
	}
}

func (d *directory) put(topic string, facts topicFacts) {
	if len(d.topics) >= directorySize {
		clear(d.topics)
	}
	d.topics[topic] = facts
}

// Refused remembers that Kafka refused a record of size bytes, if that is what
// err says.
func (d *directory) Refused(topic string, size int, err error) {
	if refusal(err) {
		d.note(topic, size, err)
	}
}

func (d *directory) note(topic string, size int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	facts := d.topics[topic]
	facts.until = time.Now().Add(factsLast)
	if errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge) {
		facts.limit = size - 1
	} else {
		facts.refusal = fmt.Sprintf("topic %s: %v", topic, err)
	}
	d.put(topic, facts)
}

// forget makes the next learn ask about topic again.
func (d *directory) forget(topic string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.topics, topic)
}

// Refuses says why Kafka would not take a record of size bytes on topic, ""
// if it would as far as is known. With placed, the record is for a partition
// that only a topic with as many partitions as the journal has.
func (d *directory) Refuses(topic string, size int, placed bool) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	facts := d.topics[topic]
	switch {
	case facts.refusal != "":
		return facts.refusal
	case facts.limit > 0 && size > facts.limit:
		return fmt.Sprintf("%d bytes are more than the %d that topic %s takes (max.message.bytes)", size, facts.limit, topic)
	case placed && facts.partitions > 0 && facts.partitions < d.partitions:
		return fmt.Sprintf("topic %s has %d partitions, and needs %d", topic, facts.partitions, d.partitions)
	}
	return ""
}

// refusal says whether err is Kafka's answer to what the record is or where it
// goes, so that the same record would be refused again.
func refusal(err error) bool {
	for _, known := range []error{
		kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.PolicyViolation,
		kerr.UnknownTopicOrPartition, kerr.InvalidTopicException, kerr.TopicAuthorizationFailed, kerr.UnknownTopicID,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}
