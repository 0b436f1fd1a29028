package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/cluster"
	"github.com/waybill-dev/waybill/orchestrator/lane"
)

// directory knows which records Kafka would not take, so that a lane never
// produces one: a refused record would take the whole transaction, and all other
// orders in it, with it. It asks Kafka about topics that it has not seen for a
// while, and learns from refusals that it did not foresee.
//
// All lanes of an instance share it, and none waits for it: [directory.run] asks
// beside them, one question for all that is wanted. What was known counts until the
// answer is there; what needs a topic that was never asked about waits.
//
// Orders end by what it says, so it wants proof: what Kafka says once is a doubt,
// and what it says again, more than [proving] later, is so. A broker that has just
// come back answers before it knows the topics. What is said of Waybill's own
// topics is not believed at all: nothing can be decided without them. An agent's
// topic that cannot be written, for whatever reason but the right to, is an agent
// that is away, and will be back.
type directory struct {
	client     *kgo.Client
	own        *events.Topics
	partitions int32
	log        *slog.Logger
	now        func() time.Time
	patience   time.Duration // with one question

	mu       sync.Mutex
	topics   map[string]topicFacts
	refusing map[string]*refusing // by topic
	late     map[string]*late     // by topic
	troubles atomic.Int32         // how many these are
	wanted   map[string]bool      // what Kafka is to be asked about
	asks     chan struct{}        // has one, if something is
	answered chan struct{}        // closed and replaced with each answer
}

type topicFacts struct {
	until   time.Time        // when to ask again
	refusal string           // why nothing can be written, "" if something can
	away    string           // why nothing can be written now, "" if something can
	down    map[int32]string // the same, by partition
	limit   int              // bytes that a record, and a batch, may have, 0 if not known
	config  config
	doubt   doubt
	// fell is when Kafka first said a smaller limit than before, if it did not say so again
	// yet: of a broker that starts it may be one of long ago.
	fell time.Time
	// told is when Kafka first said the limit, if it did not say so again since: nothing is
	// refused for that, nor written.
	told time.Time
	// What Kafka does not say, or not rightly, of how large records may be, refusals do.
	// After a batch was refused, which says nothing of its records, they go alone.
	alone       bool
	learntLimit int
	learnt      time.Time // when that was
	// partitions is how many it has, 0 if that is not known.
	partitions int32
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
	// learntLast is how long it counts what refusals said of sizes.
	learntLast = 10 * time.Minute
	// proving is how long a broker may need to know what it is asked about.
	proving = 5 * time.Second
	// directorySize bounds what submissions with made-up topics can fill, topicsAtOnce
	// what one of them can do to a question.
	directorySize, topicsAtOnce = 10_000, 500
	// askPatience is how long Kafka may take to answer a question, and a fifth of it to
	// say how topics are configured: that can be done without.
	askPatience = 5 * time.Second
	// askPause is before a question is asked again that was not answered.
	askPause = 250 * time.Millisecond
)

func newDirectory(client *kgo.Client, own *events.Topics, partitions int32, log *slog.Logger) *directory {
	return &directory{
		client: client, own: own, partitions: partitions, log: log, now: time.Now, patience: askPatience,
		topics: make(map[string]topicFacts), refusing: make(map[string]*refusing), late: make(map[string]*late), wanted: make(map[string]bool), asks: make(chan struct{}, 1), answered: make(chan struct{}),
	}
}

// ofAgent says that topic is the queue of an agent.
func (d *directory) ofAgent(topic string) bool { return d.own.Agent(topic) != "" }

// isOwn says that a lane cannot do without topic.
func (d *directory) isOwn(topic string) bool {
	return (d.own.Owns(topic) || topic == d.own.Status) && !d.ofAgent(topic)
}

// isInput says that lanes forward to topic.
func (d *directory) isInput(topic string) bool {
	_, ok := d.own.Input(topic)
	return ok
}

// isCallers says that topic is neither Waybill's own nor an agent's.
func (d *directory) isCallers(topic string) bool { return !d.isOwn(topic) && !d.ofAgent(topic) }

// Learn has Kafka asked about those of the topics that it was not asked about for a
// while. The channel is closed when it has answered something.
func (d *directory) Learn(topics []string) (answered <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	for _, topic := range topics {
		if now.After(d.topics[topic].until) {
			d.want(topic)
		}
	}
	return d.answered
}

// Known says whether Kafka has said of a topic what it is, and of a caller's not too
// long ago: else it is asked.
func (d *directory) Known(topic string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.known(topic)
}

func (d *directory) known(topic string) bool {
	facts, known := d.topics[topic]
	if known && (d.ofAgent(topic) || d.now().Sub(facts.until) < factsLast) {
		return true
	}
	d.want(topic)
	return false
}

// want has Kafka asked about a topic. Of callers' there may be too many: who waits for
// one comes back.
func (d *directory) want(topic string) {
	if d.wanted[topic] || len(d.wanted) >= directorySize && d.isCallers(topic) {
		return
	}
	d.wanted[topic] = true
	select {
	case d.asks <- struct{}{}:
	default:
	}
}

// run asks Kafka what is wanted, one question after the other, until ctx ends. What it
// does not answer is asked again, with what came since.
func (d *directory) run(ctx context.Context) {
	for {
		select {
		case <-d.asks:
		case <-ctx.Done():
			return
		}
		for topics := d.question(); len(topics) > 0; topics = d.question() {
			err := d.ask(ctx, topics)
			if err == nil {
				continue
			}
			if ctx.Err() == nil {
				d.log.Warn("cannot ask Kafka about topics", "topics", topics, "error", err)
			}
			if !pause(ctx, askPause) {
				return
			}
		}
	}
}

// question is what to ask next: a few topics, and those of callers last.
func (d *directory) question() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var topics, callers []string
	for topic := range d.wanted {
		if d.isCallers(topic) {
			callers = append(callers, topic)
		} else {
			topics = append(topics, topic)
		}
	}
	topics = append(topics, callers...)
	return topics[:min(len(topics), topicsAtOnce)]
}

// ask asks Kafka about topics, all at once. One that may not be seen hides no other.
func (d *directory) ask(ctx context.Context, topics []string) error {
	ctx, cancel := context.WithTimeout(ctx, d.patience)
	defer cancel()
	// With authorized operations, because without them the answer may be
	// seconds old, and does not say what may be written.
	question := kmsg.NewPtrMetadataRequest()
	question.IncludeTopicAuthorizedOperations = true
	for _, topic := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &topic
		question.Topics = append(question.Topics, t)
	}
	answer, err := question.RequestWith(ctx, d.client)
	if err != nil {
		return fmt.Errorf("ask Kafka about %d topics: %w", len(topics), err)
	}
	configs := d.describe(ctx, topics)
	all := make(map[string]said, len(topics))
	for _, topic := range topics {
		all[topic] = said{err: kerr.UnknownTopicOrPartition}
	}
	for i := range answer.Topics {
		if topic := answer.Topics[i].Topic; topic != nil {
			all[*topic] = saidOf(&answer.Topics[i])
		}
	}
	for topic, s := range all {
		if s.silent = configs == nil; !s.silent {
			s.config = configs[topic]
		}
		all[topic] = s
	}
	d.answer(all)
	return nil
}

// saidOf is what Kafka says of a topic in its metadata.
func saidOf(t *kmsg.MetadataResponseTopic) said {
	s := said{err: kerr.ErrorForCode(t.ErrorCode), partitions: make(kadm.PartitionDetails)}
	for i := range t.Partitions {
		p := &t.Partitions[i]
		s.partitions[p.Partition] = kadm.PartitionDetail{
			Partition: p.Partition, Leader: p.Leader, Replicas: p.Replicas, ISR: p.ISR, Err: kerr.ErrorForCode(p.ErrorCode),
		}
	}
	may := kadm.DecodeACLOperations(t.AuthorizedOperations)
	if s.err == nil && len(may) > 0 && !slices.Contains(may, kmsg.ACLOperationWrite) {
		s.err = kerr.TopicAuthorizationFailed
	}
	return s
}

// describe asks Kafka how topics are configured; nil if it does not answer. Not
// everybody may do that: then limits show by refusals.
func (d *directory) describe(ctx context.Context, topics []string) map[string]config {
	ctx, cancel := context.WithTimeout(ctx, d.patience/5)
	defer cancel()
	question := kmsg.NewPtrDescribeConfigsRequest()
	for _, topic := range topics {
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, topic
		r.ConfigNames = []string{maxBytes, minInsync}
		question.Resources = append(question.Resources, r)
	}
	answer, err := question.RequestWith(ctx, d.client)
	if err != nil {
		d.log.Debug("cannot ask Kafka how topics are configured", "error", err)
		return nil
	}
	all := make(map[string]config)
	for _, r := range answer.Resources {
		c := all[r.ResourceName]
		for _, set := range r.Configs {
			if set.Value == nil {
				continue
			}
			n, err := strconv.Atoi(*set.Value)
			switch {
			case err != nil:
			case set.Name == maxBytes:
				c.limit = n
			case set.Name == minInsync:
				c.insync = n
			}
		}
		all[r.ResourceName] = c
	}
	return all
}

const maxBytes, minInsync = "max.message.bytes", "min.insync.replicas"

// said is what Kafka says of a topic.
type said struct {
	err        error
	partitions kadm.PartitionDetails
	config     config
	// silent says that it did not say how the topic is configured, though it may again.
	silent bool
}

// config is how a topic is configured, each 0 if that is not known.
type config struct{ limit, insync int }

// answer notes what Kafka said of topics.
func (d *directory) answer(all map[string]said) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for topic, s := range all {
		d.know(topic, s)
		delete(d.wanted, topic)
	}
	close(d.answered)
	d.answered = make(chan struct{})
}

// know notes what Kafka said of a topic.
func (d *directory) know(topic string, s said) {
	now := d.now()
	was := d.topics[topic]
	if s.silent {
		s.config = was.config
	}
	facts := topicFacts{until: now.Add(factsLast)}
	if n := s.config.limit; n > 0 && n < was.config.limit {
		if facts.fell = was.fell; facts.fell.IsZero() {
			facts.fell = now
		}
		if now.Sub(facts.fell) < proving {
			s.config.limit, facts.until = was.config.limit, now.Add(awayLast)
		} else {
			facts.fell = time.Time{}
		}
	} else if was.config.limit > 0 && n > was.config.limit { // refusals of before say nothing of what it takes now
		was.alone, was.learnt, was.learntLimit = false, time.Time{}, 0
		if was.doubt.size > 0 {
			was.doubt = doubt{}
		}
	}
	switch same := s.config.limit == was.config.limit; {
	case s.config.limit == 0:
	case was.config.limit == 0, !same && !was.told.IsZero():
		facts.told = now
	case same && now.Sub(was.told) < proving:
		facts.told = was.told
	}
	if !facts.told.IsZero() {
		facts.until = now.Add(awayLast)
	}
	facts.limit, facts.config = s.config.limit, s.config
	if s.silent {
		facts.until, facts.fell, facts.told = now.Add(refusalsLast), was.fell, was.told
	}
	if now.Sub(was.learnt) < learntLast {
		facts.alone, facts.learnt, facts.learntLimit = was.alone, was.learnt, was.learntLimit
		if n := was.learntLimit; n > 0 && (n < facts.limit || facts.limit == 0) {
			facts.limit = n
		}
	}
	if s.err != nil || was.doubt.produced {
		facts.doubt = was.doubt
	}
	if facts.partitions = int32(len(s.partitions)); s.err != nil {
		facts.partitions = was.partitions
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
		case len(detail.ISR) < min(s.config.insync, len(detail.Replicas)):
			why = fmt.Sprintf("%d of its replicas are in sync, and min.insync.replicas is %d", len(detail.ISR), s.config.insync)
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
	refusal := cluster.Refusal(topic, err)
	if refusal == "" { // a broker is starting, or the like: ask again
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
	if d.ofAgent(topic) && cluster.Absent(err) {
		f.away, f.until = "it does not exist", now.Add(awayLast)
		return
	}
	if f.doubt.what != refusal || f.doubt.produced != of.produced || now.Sub(f.doubt.last) > 2*factsLast {
		of.what, of.first = refusal, now
		f.doubt = of
	}
	f.doubt.last, f.doubt.size = now, min(f.doubt.size, of.size)
	switch {
	case now.Sub(f.doubt.first) <= proving:
	case f.doubt.size > 0:
		f.limit, f.learntLimit, f.learnt, f.doubt = f.doubt.size-1, f.doubt.size-1, now, doubt{}
	case !d.isOwn(topic):
		f.refusal = refusal
	}
}

func (d *directory) put(topic string, facts topicFacts) {
	if len(d.topics) >= directorySize {
		maps.DeleteFunc(d.topics, func(topic string, _ topicFacts) bool { return d.isCallers(topic) })
	}
	if was := d.topics[topic]; d.ofAgent(topic) {
		agent := d.own.Agent(topic)
		switch why, before := facts.absence(), was.absence(); {
		case why != "" && before == "":
			d.log.Warn("an agent is away: its topic cannot be written, and what it is to do waits", "agent", agent, "topic", topic, "reason", why)
		case why == "" && before != "":
			d.log.Info("an agent is back: its topic can be written", "agent", agent, "topic", topic)
		}
	}
	d.topics[topic] = facts
}

// sure says that Kafka does not take more than the limit: it said so twice, or has shown it.
func (f *topicFacts) sure() bool { return f.told.IsZero() || f.limit == f.learntLimit }

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

// Refused remembers that Kafka did not take a record of an order, of size bytes, if what
// it said is about where it goes or how large it is, or did not answer in time. Alone says
// that the record was not in a batch with others.
func (d *directory) Refused(at lane.TopicPartition, order string, size int, alone bool, err error) {
	now := d.now()
	d.mu.Lock()
	defer d.mu.Unlock()
	facts := d.topics[at.Topic]
	switch {
	case errors.Is(err, lane.ErrLate):
		facts.until = now // Kafka may say by now which partition that was
		if d.ofAgent(at.Topic) {
			d.tooLate(at)
		}
	case cluster.Invalid(err):
		if d.ofAgent(at.Topic) {
			d.invalid(at.Topic, order, err)
		}
		return // this record says nothing of others: see [lane.Halves]
	case cluster.TooLarge(err) && !alone:
		facts.alone, facts.learnt, facts.until = true, now, now
	case cluster.TooLarge(err):
		d.doubted(at.Topic, &facts, err, doubt{produced: true, size: size})
	case cluster.Refusal(at.Topic, err) != "":
		d.doubted(at.Topic, &facts, err, doubt{produced: !cluster.Absent(err)})
	default:
		return
	}
	d.put(at.Topic, facts)
}

// refresh has Kafka asked about a topic again.
func (d *directory) refresh(topic string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.want(topic)
}

// Partitions is how many a topic has, as far as Kafka has said; 0 if it has not.
func (d *directory) Partitions(topic string) int32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.topics[topic].partitions
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
	case facts.limit > 0 && size > facts.limit && facts.sure():
		return fmt.Sprintf("%d bytes are more than the %d that topic %s takes (max.message.bytes)", size, facts.limit, topic)
	}
	return ""
}

// Away says why a record of size bytes cannot be written now, though it may be
// later, "" if it can as far as is known. It is one of an order, or of any if that is empty.
func (d *directory) Away(at lane.TopicPartition, order string, size int) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	facts := d.topics[at.Topic]
	doubt := facts.doubt
	switch why := facts.down[at.Partition]; {
	case d.isOwn(at.Topic):
		return why
	case !d.known(at.Topic):
		return "Kafka has not said yet what it is"
	case facts.away != "":
		return facts.away
	case why != "":
		return why
	case facts.limit > 0 && size > facts.limit && !facts.sure():
		return fmt.Sprintf("Kafka has said once that it takes %d bytes", facts.limit)
	case doubt.what == "", facts.refusal != "", size < doubt.size:
	case !doubt.produced, d.now().Sub(doubt.last) <= proving: // then it is tried once more
		return doubt.what
	}
	if why := cmp.Or(d.waits(at, ""), d.rests(at.Topic, order)); why != "" {
		return why
	}
	return d.waits(at, order)
}

// Batch is how many bytes a batch for topic may have, 0 if that is not known, and
// whether it may have one record only.
func (d *directory) Batch(topic string) (limit int, alone bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	facts := d.topics[topic]
	return facts.limit, facts.alone
}
