package agents

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
)

const (
	commitEvery = time.Second
	// pollAtMost keeps the requests that were fetched but not started few, so
	// that little is left behind when partitions move.
	pollAtMost = 500
	// partingTimeout is for Kafka to take the last replies and commits.
	partingTimeout = 10 * time.Second
)

// server is one running agent.
type server struct {
	config     Config
	topic      string
	operations Operations
	log        *slog.Logger

	client  *kgo.Client
	owned   assignment
	replies replies

	handlers context.Context // parent of all handlers' contexts; ends at a hard stop
	halt     context.CancelCauseFunc
	kafka    context.Context // how long Kafka is waited for; ends some time after handlers
	part     context.CancelFunc

	queue   chan job // from the fetching goroutine to the workers
	workers sync.WaitGroup
}

func newServer(ctx context.Context, config Config, topics events.Topics, operations Operations) (*server, error) {
	s := &server{
		config:     config,
		topic:      topics.Requests(config.Agent),
		operations: operations,
		log:        config.Logger.With("agent", config.Agent),
		// Unbuffered: a request that no worker takes is not started, so a stop
		// leaves it alone.
		queue: make(chan job),
	}
	client, err := kgo.NewClient(s.options(topics.Namespace)...)
	if err != nil {
		return nil, err
	}
	s.client = client
	s.owned.client, s.owned.topic, s.owned.log = client, s.topic, s.log
	s.owned.partitions = make(map[int32]*partition)
	s.replies = newReplies(topics.Namespace, config.Agent)

	// Neither ends with ctx: a graceful stop begins there.
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
		kgo.MetadataMinAge(50 * time.Millisecond), // by default a restarted broker is found after up to 5 s
		kgo.WithHooks(&connections{log: s.log, away: throttle{every: 10 * time.Second}}),
	}
	opts = append(opts, s.config.KafkaOptions...)
	return append(opts,
		kgo.SeedBrokers(s.config.Brokers...),

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
		// Only while fetched requests are entered in the assignment; see begin.
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(s.owned.assigned),
		kgo.OnPartitionsRevoked(s.owned.revoked),
		kgo.OnPartitionsLost(s.owned.lost),

		// Producing. The producer is idempotent unless it is asked not to be.
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)), // an order's partition: murmur2 of its id
		kgo.ProducerBatchMaxBytes(events.MaxBatch),           // the replies topic is created with room for it
		kgo.ProducerLinger(0),
	)
}

func (s *server) serve(ctx context.Context) error {
	committer := make(chan struct{})
	go func() {
		defer close(committer)
		s.commitUntil(ctx)
	}()
	// Workers, not a goroutine for each request: growing its stack for the JSON
	// was a sixth of the whole.
	for range s.config.Concurrency {
		s.workers.Add(1)
		go s.work()
	}
	if s.awaitTopic(ctx) {
		s.client.AddConsumeTopics(s.topic)
		s.log.Info("the agent serves", "topic", s.topic, "operations", s.operations.names())
		s.fetchUntil(ctx)
	}
	close(s.queue)
	<-committer
	return s.stop()
}

// stop ends gracefully, in this order: handlers, replies, commits, membership.
func (s *server) stop() error {
	hard := time.AfterFunc(s.config.StopTimeout, func() { s.halt(ErrStopped) })
	defer hard.Stop()
	parted := time.AfterFunc(s.config.StopTimeout+partingTimeout, s.part)
	defer parted.Stop()

	s.workers.Wait()
	s.halt(ErrStopped)

	var failed error
	if err := s.client.Flush(s.kafka); err != nil {
		failed = fmt.Errorf("%d replies were not taken by Kafka within %s; their requests will come again: %w", s.client.BufferedProduceRecords(), partingTimeout, err)
	}
	if err := s.owned.commit(s.kafka); err != nil {
		failed = errors.Join(failed, fmt.Errorf("commit; requests that were answered will come again: %w", err))
	}
	if err := s.client.LeaveGroupContext(s.kafka); err != nil {
		s.log.Warn("could not leave the group; its partitions wait for the session timeout", "error", err)
	}
	s.part()
	s.client.Close()
	return failed
}

// fetchUntil hands fetched requests to the workers.
func (s *server) fetchUntil(ctx context.Context) {
	var (
		jobs     []job
		problems = throttle{every: 10 * time.Second}
	)
	for {
		fetches := s.client.PollRecords(ctx, pollAtMost)
		jobs = s.owned.begin(jobs[:0], fetches)
		s.client.AllowRebalance()
		if ctx.Err() != nil {
			return
		}
		fetches.EachError(func(topic string, partition int32, err error) {
			if problems.pass() {
				s.log.Warn("cannot fetch requests", "topic", topic, "partition", partition, "error", err)
			}
		})
		for _, j := range jobs {
			select {
			case s.queue <- j:
			case <-ctx.Done():
				return
			}
		}
		clear(jobs) // finished records are garbage
	}
}

// commitUntil commits periodically.
func (s *server) commitUntil(ctx context.Context) {
	tick := time.NewTicker(commitEvery)
	defer tick.Stop()
	problems := throttle{every: 10 * time.Second}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := s.owned.commit(s.kafka); err != nil && problems.pass() {
			s.log.Warn("cannot commit; if the agent crashed now, requests that were answered would come again", "topic", s.topic, "error", err)
		}
	}
}
