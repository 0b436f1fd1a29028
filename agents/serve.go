package agents

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel/trace"

	"github.com/waybill-dev/waybill/events"
)

// Config says who the agent is and where its Kafka is.
type Config struct {
	// Agent is the name that workflow files use after `agent:`. Required.
	Agent string
	// Brokers are addresses, host:port, of some of the Kafka brokers. Required.
	Brokers []string
	// Namespace is the prefix of the topics; [events.DefaultNamespace] if empty.
	Namespace string
	// Concurrency is how many requests this instance executes at a time, over all
	// operations and all partitions that it owns; 64 if zero. So the service sees
	// at most that many calls at a time from it, and what lies between two
	// attempts of a [Retry] counts too.
	Concurrency int
	// Retry repeats calls that failed, within the complete-by (A2, A6). If nil,
	// every request is one call.
	Retry *Retry
	// Breaker takes the instance out of the group while its service fails (A6,
	// P5). If nil, it stays whatever happens.
	Breaker *Breaker
	// StopTimeout is how long running handlers may go on after the context of
	// [Serve] ended; 10 s if zero. Also how long the instance keeps its partitions
	// for them after its [Breaker] opened.
	StopTimeout time.Duration
	// KafkaOptions go to the Kafka client: TLS, SASL, client id, hooks. Options
	// that the promises of this package rest on cannot be changed by them.
	KafkaOptions []kgo.Opt
	// TracerProvider has a span made of each call of a handler, within that of the attempt. If nil, there is none.
	TracerProvider trace.TracerProvider
	// Logger is [slog.Default] if nil.
	Logger *slog.Logger
	// Observer hears what the instance does. If nil, nobody does.
	Observer Observer
}

// maxAgent is the longest name of an agent, in bytes; see [events.Topics].
const maxAgent = 100

// complete fills in defaults and says what is wrong with the configuration.
func (c *Config) complete(operations Operations) (events.Topics, error) {
	if c.Namespace == "" {
		c.Namespace = events.DefaultNamespace
	}
	if c.Concurrency == 0 {
		c.Concurrency = 64
	}
	if c.StopTimeout == 0 {
		c.StopTimeout = 10 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Observer == nil {
		c.Observer = unobserved{}
	}
	topics, err := events.NewTopics(c.Namespace)
	if c.Retry != nil {
		retry := *c.Retry // the caller's is not written to
		c.Retry = &retry
		err = errors.Join(err, retry.complete())
	}
	if c.Breaker != nil {
		breaker := *c.Breaker
		c.Breaker = &breaker
		err = errors.Join(err, breaker.complete())
	}
	switch {
	case err != nil:
		return topics, err
	case c.Agent == "":
		return topics, errors.New("the agent has no name; set Config.Agent to the one that workflows use")
	case len(c.Agent) > maxAgent || !events.ValidTopic(c.Agent):
		return topics, fmt.Errorf("agent name %q: use 1 to %d of a-z A-Z 0-9 . _ -", c.Agent, maxAgent)
	case len(c.Brokers) == 0:
		return topics, errors.New("no brokers; set Config.Brokers to the addresses of some")
	case c.Concurrency < 0:
		return topics, fmt.Errorf("concurrency %d: it cannot be negative", c.Concurrency)
	case c.StopTimeout < 0:
		return topics, fmt.Errorf("stop timeout %s: it cannot be negative", c.StopTimeout)
	case len(operations) == 0:
		return topics, fmt.Errorf("agent %q serves no operations", c.Agent)
	}
	for name, operation := range operations {
		if name == "" || operation.run == nil {
			return topics, fmt.Errorf("operation %q of agent %q has no name or no function; make it with agents.Do", name, c.Agent)
		}
	}
	return topics, nil
}

// Serve executes requests until ctx ends. It may be called any number of times
// in a process, also for the same agent.
//
// It fails at once on a wrong configuration. It does not fail because Kafka is
// away or the agent's queue does not exist yet: it warns about it now and then,
// and goes on as soon as it can.
//
// When [Config.Breaker] opens, Serve leaves the group, waits, and joins it again.
//
// When ctx ends, Serve fetches no more and lets running handlers go on until
// their complete-by, at most for [Config.StopTimeout]; then it cancels their
// contexts with [ErrStopped] and waits for them. It sends the replies that are
// ready, commits, leaves the group and returns nil; or an error if Kafka did not
// take them, in which case their requests come again.
func Serve(ctx context.Context, config Config, operations Operations) error {
	topics, err := config.complete(operations)
	if err != nil {
		return fmt.Errorf("agents: %w", err)
	}
	breaker := newBreaker(config.Breaker, config.Logger.With("agent", config.Agent))
	for {
		s, err := newServer(ctx, config, topics, operations, breaker)
		if err != nil {
			return fmt.Errorf("agents: agent %q: %w", config.Agent, err)
		}
		err = s.serve()
		if ctx.Err() == nil { // the breaker opened
			if err != nil {
				s.log.Warn("could not leave the group in good order", "error", err)
			}
			if breaker.rest(ctx) {
				continue
			}
			return nil
		}
		if err != nil {
			err = fmt.Errorf("agents: agent %q: %w", config.Agent, err)
		}
		return err
	}
}
