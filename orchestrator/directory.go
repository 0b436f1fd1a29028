package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/lane"
)

// directory knows which records Kafka would not take, so that a lane never
// produces one: a refused record would take the whole transaction, and all other
// orders in it, with it. It asks Kafka about topics that it has not seen for a
// while, and learns from refusals that it did not foresee.
//
// Orders end by what it says, so it wants proof: what Kafka says once is a doubt,
// and what it says again, more than [proof] later, is so. A broker that has just
// come back answers before it knows the topics. What is said of Waybill's own
// topics is not believed at all: nothing can be decided without them. An agent's
// topic that cannot be written, for whatever reason but the right to, is an agent
// that is away, and will be back.
type directory struct {
	admin      *kadm.Client
	own        *events.Topics
	partitions int32
	log        *slog.Logger
	now        func() time.Time

	mu     sync.Mutex
	topics map[string]topicFacts
}

type topicFacts struct {
	until   time.Time        // when to ask again
	refusal string           // why nothing can be written, "" if something can
	away    string           // why nothing can be written now, "" if something can
	down    map[int32]string // the same, by partition
	limit   int              // bytes that a record, and a batch, may have, 0 if not known
	doubt   doubt
	// What Kafka does not say, or not rightly, of how large records may be, refusals do.
	// After a batch was refused, which says nothing of its records, they go alone.
	alone       bool
	learntLimit int
	learnt      time.Time // when that was
	// late is how often in a row records were not taken in time, lateAt the last.
	late   int
	lateAt time.Time
}

// doubt is what Kafka said once, or more often in a short time.
type doubt struct {
	what        string
	first, last time.Time
	// produced says that it was about a record: only another one can tell.
	produced bool
	size     int // of the smallest record that was too large, 0 if that is not it
}

const (
	factsLast    = time.Minute
	refusalsLast = 5 * time.Second
	// awayLast is how soon an agent that is back is heard of.
	awayLast = 2 * time.Second
	// lateLast is how long a partition is left alone that took no record in time:
	// each time that it does not, twice as long.
	lateLast, lateLongest = 10 * time.Second, 5 * time.Minute
	// learntLast is how long it counts what refusals said of sizes.
	learntLast = 10 * time.Minute
	// proof is how long a broker may need to know what it is asked about.
	proof = 5 * time.Second
	// directorySize bounds what submissions with made-up topics can fill.
	directorySize = 10_000
)

func newDirectory(admin *kadm.Client, own *events.Topics, partitions int32, log *slog.Logger) *directory {
	return &directory{admin: admin, own: own, partitions: partitions, log: log, now: time.Now, topics: make(map[string]topicFacts)}
}

// ofAgent says that topic is the queue of an agent.
func (d *directory) ofAgent(topic string) bool { return strings.HasPrefix(topic, d.own.Requests("")) }

// isOwn says that a lane cannot do without topic.
func (d *directory) isOwn(topic string) bool {
	return (d.own.Owns(topic) || topic == d.own.Status) && !d.ofAgent(topic)
}

// isInput says that lanes forward to topic.
func (d *directory) isInput(topic string) bool {
	_, ok := d.own.Input(topic)
	return ok
}

// learn asks Kafka about those of the topics that are not known, all at once.
// A topic stays unknown when Kafka does not answer.
func (d *directory) learn(ctx context.Context, topics ...string) {
	now := d.now()
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
		d.know(ask[0], said{err: denied.Err})
		return
	}
	if err != nil {
		d.log.Warn("cannot ask Kafka about topics", "topics", ask, "error", err)
		return
	}
	all := make(map[string]said)
	// Not everybody may describe configurations: then limits show by refusals.
	if configs, err := d.admin.DescribeTopicConfigs(ctx, ask...); err == nil {
		for _, config := range configs {
			s := all[config.Name]
			for _, c := range config.Configs {
				n, err := strconv.Atoi(c.MaybeValue())
				switch {
				case err != nil:
				case c.Key == "max.message.bytes":
					s.limit = n
				case c.Key == "min.insync.replicas":
					s.insync = n
				}
			}
			all[config.Name] = s
		}
	}
	for _, topic := range ask {
		s, m := all[topic], metadata.Topics[topic]
		s.err, s.partitions = m.Err, m.Partitions
		switch {
		case m.Topic == "":
			s.err = kerr.UnknownTopicOrPartition
		case m.Err == nil && len(m.AuthorizedOperations) > 0 && !slices.Contains(m.AuthorizedOperations, kmsg.ACLOperationWrite):
			s.err = kerr.TopicAuthorizationFailed
		}
		d.know(topic, s)
	}
}

// said is what Kafka says of a topic.
type said struct {
	err           error
	limit, insync int // 0 if that is not known
	partitions    kadm.PartitionDetails
}

// know notes what Kafka answered about a topic.
func (d *directory) know(topic string, s said) {
	now := d.now()
	d.mu.Lock()
	defer d.mu.Unlock()
	was := d.topics[topic]
	facts := topicFacts{until: now.Add(factsLast), limit: s.limit, late: was.late, lateAt: was.lateAt}
	if now.Sub(was.learnt) < learntLast {
		facts.alone, facts.learnt, facts.learntLimit = was.alone, was.learnt, was.learntLimit
		if n := was.learntLimit; n > 0 && (n < s.limit || s.limit == 0) {
			facts.limit = n
		}
	}
	if s.err != nil || was.doubt.produced {
		facts.doubt = was.doubt
	}
	switch {
	case s.err != nil:
		d.doubted(topic, &facts, s.err, doubt{})
	case d.ofAgent(topic), d.isInput(topic):
		facts.absences(&s, d.partitions)
		if facts.away != "" || facts.down != nil {
			facts.until = now.Add(awayLast)
		}
	}
	d.put(topic, facts)
}

// absences finds the partitions that no request can be written to now.
func (f *topicFacts) absences(s *said, partitions int32) {
	if n := int32(len(s.partitions)); n < partitions {
		f.away = fmt.Sprintf("it has %d partitions, and needs %d", n, partitions)
	}
	for p, detail := range s.partitions {
		var why string
		switch {
		case detail.Err != nil:
			why = detail.Err.Error()
		case detail.Leader < 0:
			why = "it has no leader"
		case len(detail.ISR) < min(s.insync, len(detail.Replicas)):
			why = fmt.Sprintf("%d of its replicas are in sync, and min.insync.replicas is %d", len(detail.ISR), s.insync)
		default:
			continue
		}
		if f.down == nil {
			f.down = make(map[int32]string)
		}
		f.down[p] = fmt.Sprintf("partition %d: %s", p, why)
	}
}

// doubted notes that Kafka does not take a record, or says so of the topic.
func (d *directory) doubted(topic string, f *topicFacts, err error, of doubt) {
	now := d.now()
	var refusal string
	switch {
	case tooLarge(err):
		refusal = kerr.MessageTooLarge.Message
	case absent(err):
		refusal = fmt.Sprintf("topic %s does not exist", topic)
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		refusal = fmt.Sprintf("not authorised to write to topic %s", topic)
	case errors.Is(err, kerr.InvalidTopicException):
		refusal = fmt.Sprintf("%q cannot be the name of a topic", topic)
	case errors.Is(err, kerr.InvalidRecord), errors.Is(err, kerr.PolicyViolation):
		refusal = fmt.Sprintf("topic %s: %v", topic, err)
	default: // a broker is starting, or the like: ask again
		f.until = now.Add(awayLast)
		if d.ofAgent(topic) {
			f.away = err.Error()
		}
		return
	}
	f.until = now.Add(refusalsLast)
	if of.produced {
		f.until = now.Add(factsLast)
	}
	if d.ofAgent(topic) && absent(err) {
		f.away, f.until = "it does not exist", now.Add(awayLast)
		return
	}
	if f.doubt.what != refusal || f.doubt.produced != of.produced || now.Sub(f.doubt.last) > 2*factsLast {
		of.what, of.first = refusal, now
		f.doubt = of
	}
	f.doubt.last, f.doubt.size = now, min(f.doubt.size, of.size)
	switch {
	case now.Sub(f.doubt.first) <= proof:
	case f.doubt.size > 0:
		f.limit, f.learntLimit, f.learnt, f.doubt = f.doubt.size-1, f.doubt.size-1, now, doubt{}
	case !d.isOwn(topic):
		f.refusal = refusal
	}
}

// absent says that there is no such topic, as far as a broker knows.
func absent(err error) bool {
	return errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.UnknownTopicID)
}

func (d *directory) put(topic string, facts topicFacts) {
	if len(d.topics) >= directorySize {
		clear(d.topics)
	}
	if was := d.topics[topic]; d.ofAgent(topic) {
		agent := strings.TrimPrefix(topic, d.own.Requests(""))
		switch why, before := facts.absence(), was.absence(); {
		case why != "" && before == "":
			d.log.Warn("an agent is away: its topic cannot be written, and what it is to do waits", "agent", agent, "topic", topic, "reason", why)
		case why == "" && before != "":
			d.log.Info("an agent is back: its topic can be written", "agent", agent, "topic", topic)
		}
	}
	d.topics[topic] = facts
}

// absence is why some partition cannot be written now.
func (f *topicFacts) absence() string {
	if f.away != "" {
		return f.away
	}
	for _, why := range f.down {
		return why
	}
	return ""
}

// Refused remembers that Kafka did not take a record of size bytes, if what it said
// is about the record or where it goes, or did not answer in time. Alone says that
// the record was not in a batch with others.
func (d *directory) Refused(at lane.TopicPartition, size int, alone bool, err error) {
	now := d.now()
	d.mu.Lock()
	defer d.mu.Unlock()
	facts := d.topics[at.Topic]
	switch {
	case errors.Is(err, lane.ErrLate):
		if !d.ofAgent(at.Topic) {
			facts.until = now // Kafka may say by now which partition that was
			break
		}
		if now.Sub(facts.lateAt) > 2*lateLongest {
			facts.late = 0
		}
		if facts.late == 0 || now.Sub(facts.lateAt) >= lateLast { // all lanes hear of one outage
			facts.late, facts.lateAt = min(facts.late+1, 10), now
		}
		facts.until = facts.lateAt.Add(min(lateLast<<(facts.late-1), lateLongest))
		facts.down = maps.Clone(facts.down)
		if facts.down == nil {
			facts.down = make(map[int32]string)
		}
		facts.down[at.Partition] = fmt.Sprintf("partition %d took nothing in time", at.Partition)
	case tooLarge(err) && !alone:
		facts.alone, facts.learnt, facts.until = true, now, now
	case tooLarge(err):
		d.doubted(at.Topic, &facts, err, doubt{produced: true, size: size})
	case refusal(err):
		d.doubted(at.Topic, &facts, err, doubt{produced: !absent(err)})
	default:
		return
	}
	d.put(at.Topic, facts)
}

// forget makes the next learn ask about topic again.
func (d *directory) forget(topic string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.topics, topic)
}

// Refuses says why Kafka would never take a record of size bytes on topic, "" if it
// would as far as is known.
func (d *directory) Refuses(topic string, size int) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	facts := d.topics[topic]
	switch {
	case facts.refusal != "" && d.now().Sub(facts.until) < factsLast: // else it is old
		return facts.refusal
	case facts.limit > 0 && size > facts.limit:
		return fmt.Sprintf("%d bytes are more than the %d that topic %s takes (max.message.bytes)", size, facts.limit, topic)
	}
	return ""
}

// Away says why a record of size bytes cannot be written now, though it may be
// later, "" if it can as far as is known.
func (d *directory) Away(at lane.TopicPartition, size int) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	facts := d.topics[at.Topic]
	doubt := facts.doubt
	switch why := facts.down[at.Partition]; {
	case d.isOwn(at.Topic):
		return why
	case facts.away != "":
		return facts.away
	case why != "":
		return why
	case doubt.what == "", facts.refusal != "", size < doubt.size:
	case !doubt.produced, d.now().Sub(doubt.last) <= proof: // then it is tried once more
		return doubt.what
	}
	return ""
}

// Batch is how many bytes a batch for topic may have, 0 if that is not known, and
// whether it may have one record only.
func (d *directory) Batch(topic string) (limit int, alone bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	facts := d.topics[topic]
	return facts.limit, facts.alone
}

func tooLarge(err error) bool {
	return errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge)
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
