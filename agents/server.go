package agents

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel/trace"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/events/fetch"
	"github.com/waybill-dev/waybill/events/spans"
)

const (
	commitEvery = time.Second
	pollAtMost  = 500
	// fetchBytes is what one answer of a broker holds, about.
	fetchBytes = 16 << 20
	// fetchWait is how long a broker holds a fetch that finds nothing. A partition
	// that is resumed meanwhile waits for it: 5 s by default.
	fetchWait = 500 * time.Millisecond
	// metadataEvery is how often a client looks at most whether a broker or a topic is
	// back: every 5 s by default.
	metadataEvery = 50 * time.Millisecond
	// unknownTopicLooks is how often Kafka may say that the replies' topic does not exist
	// before that is believed: a broker that starts says so for a moment.
	unknownTopicLooks = int(10 * time.Second / metadataEvery)
	// partingTimeout is for Kafka to take the last replies and commits.
	partingTimeout = 10 * time.Second
)

// server is one term of a running agent in its group: from joining to leaving. A
// breaker may end it before the agent stops.
type server struct {
	config     Config
	topic      string
	operations Operations
	log        *slog.Logger

	client  *kgo.Client
	fetched fetch.Bound
	owned   assignment
	replies replies
	tracer  trace.Tracer           // nil for none
	retries failsafe.Executor[any] // nil for none
	breaker *breaker               // nil for none; lives on after the term

	agent    context.Context // ends when the agent stops
	term     context.Context // ends with it, or when the breaker opens: start nothing more
	end      context.CancelCauseFunc
	handlers context.Context // parent of all handlers' contexts; ends at a hard stop
	halt     context.CancelCauseFunc
	kafka    context.Context // how long Kafka is waited for; ends some time after handlers
	part     context.CancelFunc

	queue   *queue // from the fetching goroutine to the workers
	workers sync.WaitGroup
}

func newServer(ctx context.Context, config Config, topics events.Topics, operations Operations, breaker *breaker) (*server, error) {
	s := &server{
		config:     config,
		topic:      topics.Requests(config.Agent),
		operations: operations,
		log:        config.Logger.With("agent", config.Agent),
		breaker:    breaker,
		queue:      newQueue(),
	}
	if config.TracerProvider != nil {
		s.tracer = config.TracerProvider.Tracer(spans.Scope, trace.WithSchemaURL(spans.SchemaURL))
	}
	s.queue.tell = config.Observer.Queued
	if config.Retry != nil {
		s.retries = newRetries(*config.Retry)
	}
	client, err := s.fetched.NewClient(s.options(topics.Namespace)...)
	if err != nil {
		return nil, err
	}
	s.client = client
	s.owned.client, s.owned.topic, s.owned.log, s.owned.queue = client, s.topic, s.log, s.queue
	s.owned.partitions = make(map[int32]*partition)
	s.replies = newReplies("/" + topics.Namespace + "/agents/" + config.Agent)

	s.agent = ctx
	s.term, s.end = context.WithCancelCause(ctx)
	// Neither of these ends with ctx: a graceful stop begins there.
	ctx = context.WithoutCancel(ctx)
	s.handlers, s.halt = context.WithCancelCause(ctx)
	s.kafka, s.part = context.WithCancel(ctx)
	return s, nil
}

// options are those of the Kafka client. What the promises rest on comes after
// the user's, since the last of a kind counts.
func (s *server) options(namespace string) []kgo.Opt {
	opts := []kgo.Opt{
		kgo.ClientID("waybill-agent-" + s.config.Agent),
		kgo.MetadataMinAge(metadataEvery),
		kgo.AlwaysRetryEOF(), // by default a connection that ends at once counts as a wrong setting of TLS
		kgo.UnknownTopicRetries(unknownTopicLooks),
		kgo.FetchMaxBytes(fetchBytes),
		kgo.FetchMaxWait(fetchWait),
		kgo.WithHooks(&connections{log: s.log, away: throttle{every: 10 * time.Second}}),
	}
	opts = append(opts, s.config.KafkaOptions...)
	return append(append(opts,
		// Consuming. The topic is added when it exists.
		kgo.ConsumerGroup(namespace+".agent."+s.config.Agent),
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		// Requests of a transaction that was aborted were never asked.
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		// Both at the start of the log: a request that was executed before is
		// recognised by its key or is past its complete-by, one that was skipped
		// costs its order an attempt.
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.MaxDecompressBatchBytes(events.MaxDecompressed), // far more than orchestrators write
		// Only while fetched requests are entered in the assignment; see begin.
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(s.owned.assigned),
		kgo.OnPartitionsRevoked(s.owned.revoked),
		kgo.OnPartitionsLost(s.owned.lost),
	), replying(s.config.Brokers)...)
}

// replying are the options on which replies rest. The producer is idempotent unless it is asked
// not to be.
func replying(brokers []string) []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(brokers...),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)), // an order's partition: murmur2 of its id
		kgo.ProducerBatchMaxBytes(events.MaxBatch),           // the replies topic is created with room for it
		kgo.ProducerLinger(0),
	}
}

func (s *server) serve() error {
	s.breaker.attend(
		func() {
			s.config.Observer.Turned(Resting)
			s.end(errOpened)
		},
		func() {
			s.config.Observer.Turned(Serving)
			s.employ(s.config.Concurrency - 1) // beside the one of the trial
		},
	)
	s.config.Observer.Turned(Waiting)
	var others sync.WaitGroup
	others.Go(func() {
		<-s.term.Done()
		s.queue.close()
	})
	others.Go(s.commitUntilEnd)
	others.Go(s.boundStop)

	if s.breaker.trying() {
		s.employ(1)
	} else {
		s.employ(s.config.Concurrency)
	}
	if s.awaitTopic(s.term) {
		s.config.Observer.Turned(s.breaker.state())
		s.client.AddConsumeTopics(s.topic)
		s.log.Info("the agent serves", "topic", s.topic, "operations", s.operations.names())
		s.fetchUntilEnd()
	}
	// The term has ended.
	err := s.stop()
	others.Wait()
	s.end(nil)
	return err
}

// employ starts workers. They are kept, and not a goroutine for each request:
// growing its stack for the JSON was a sixth of the whole.
func (s *server) employ(workers int) {
	for range workers {
		s.workers.Go(s.work)
	}
}

// boundStop ends what still goes on some time after the agent was stopped.
func (s *server) boundStop() {
	select {
	case <-s.agent.Done():
	case <-s.kafka.Done():
		return
	}
	timer := time.NewTimer(s.config.StopTimeout)
	defer timer.Stop()
	select {
	case <-timer.C:
		s.halt(ErrStopped)
	case <-s.kafka.Done():
		return
	}
	timer.Reset(partingTimeout)
	select {
	case <-timer.C:
		s.part()
	case <-s.kafka.Done():
	}
}

// stop ends the term gracefully, in this order: handlers, replies, commits,
// membership.
func (s *server) stop() error {
	idle := make(chan struct{})
	go func() {
		defer close(idle)
		s.workers.Wait()
	}()
	var failed error
	if errors.Is(context.Cause(s.term), errOpened) && !s.idleSoon(idle) {
		// A service that hangs must not keep the partitions from the healthy
		// instances until the complete-by.
		s.log.Warn("leaving the group while requests are executed; other instances will execute them too")
		failed = s.leave()
		<-idle
		failed = errors.Join(failed, s.flush())
	} else {
		<-idle
		failed = s.leave()
	}
	s.halt(ErrStopped)
	s.part()
	s.client.Close()
	return failed
}

// idleSoon waits for the workers for StopTimeout.
func (s *server) idleSoon(idle <-chan struct{}) bool {
	patience := time.NewTimer(s.config.StopTimeout)
	defer patience.Stop()
	select {
	case <-idle:
		return true
	case <-patience.C:
		return false
	}
}

// leave gives the partitions back. Workers may still send replies afterwards.
func (s *server) leave() error {
	failed := s.flush()
	if err := s.owned.commit(s.kafka); err != nil {
		failed = errors.Join(failed, fmt.Errorf("commit; requests that were answered will come again: %w", err))
	}
	ctx, cancel := context.WithTimeout(s.kafka, partingTimeout)
	defer cancel()
	if err := s.client.LeaveGroupContext(ctx); err != nil {
		s.log.Warn("could not leave the group; its partitions wait for the session timeout", "error", err)
	}
	return failed
}

// flush waits until Kafka has taken the replies.
func (s *server) flush() error {
	ctx, cancel := context.WithTimeout(s.kafka, partingTimeout)
	defer cancel()
	if err := s.client.Flush(ctx); err != nil {
		return fmt.Errorf("%d replies were not taken by Kafka within %s; their requests will come again: %w",
			s.client.BufferedProduceRecords(), partingTimeout, err)
	}
	return nil
}

// fetchUntilEnd reads ahead.
func (s *server) fetchUntilEnd() {
	var (
		jobs     []job
		problems = throttle{every: 10 * time.Second}
	)
	for s.queue.awaitRoom() {
		fetches := s.fetched.Poll(s.term, pollAtMost)
		jobs = s.owned.begin(jobs[:0], fetches)
		s.client.AllowRebalance()
		if s.term.Err() != nil {
			return
		}
		fetches.EachError(func(topic string, partition int32, err error) {
			if errors.Is(err, kgo.ErrMaxDecompress) { // it is told once, and nothing is passed over
				s.log.Error("a batch of requests cannot be read: none of the partition is any more", "topic", topic, "partition", partition, "error", err)
			} else if problems.pass() {
				s.log.Warn("cannot fetch requests", "topic", topic, "partition", partition, "error", err)
			}
		})
		for i := range jobs {
			jobs[i].rank = rankOf(priority(jobs[i].Value))
		}
		s.queue.put(jobs)
		clear(jobs) // finished records are garbage
	}
}

// commitUntilEnd commits periodically.
func (s *server) commitUntilEnd() {
	tick := time.NewTicker(commitEvery)
	defer tick.Stop()
	problems := throttle{every: 10 * time.Second}
	for {
		select {
		case <-s.term.Done():
			return
		case <-tick.C:
		}
		if err := s.owned.commit(s.kafka); err != nil && problems.pass() {
			s.log.Warn("cannot commit; if the agent crashed now, requests that were answered would come again", "topic", s.topic, "error", err)
		}
	}
}
