package agents

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// awaitTopic waits until the agent's queue exists; false means that ctx ended.
// The client would wait by itself, but without a word, and look every five
// seconds only.
func (s *server) awaitTopic(ctx context.Context) bool {
	var (
		again    = time.NewTicker(500 * time.Millisecond)
		problems = throttle{every: 10 * time.Second}
		told     bool
	)
	defer again.Stop()
	for {
		switch err := s.lookUpTopic(ctx); {
		case err == nil:
			return true
		case ctx.Err() != nil:
			return false
		case errors.Is(err, kerr.UnknownTopicOrPartition):
			if !told {
				told = true
				s.log.Warn("the agent's topic does not exist yet; waiting for it", "topic", s.topic)
			}
		case problems.pass():
			s.log.Warn("cannot look for the agent's topic; trying again", "topic", s.topic, "error", err)
		}
		select {
		case <-ctx.Done():
			return false
		case <-again.C:
		}
	}
}

// lookUpTopic returns nil if the agent's queue exists.
func (s *server) lookUpTopic(ctx context.Context) error {
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = &s.topic
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, s.client)
	if err != nil {
		return err
	}
	if len(resp.Topics) != 1 {
		return kerr.UnknownTopicOrPartition
	}
	return kerr.ErrorForCode(resp.Topics[0].ErrorCode)
}

// connections warns when brokers cannot be reached: the client retries most
// requests for long, and without a word.
type connections struct {
	log   *slog.Logger
	away  throttle
	since atomic.Int64 // how many attempts failed since the last that succeeded
}

var _ kgo.HookBrokerConnect = (*connections)(nil)

// OnBrokerConnect is called by the client after every attempt.
func (c *connections) OnBrokerConnect(broker kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	switch {
	case err == nil:
		if failed := c.since.Swap(0); failed > 0 {
			c.log.Info("reached Kafka again", "broker", broker.Host, "port", broker.Port, "failures", failed)
		}
	case !errors.Is(err, context.Canceled):
		c.since.Add(1)
		if c.away.pass() {
			c.log.Warn("cannot reach Kafka; trying again", "broker", broker.Host, "port", broker.Port, "error", err)
		}
	}
}

// throttle lets one message through in a while.
type throttle struct {
	every time.Duration
	last  atomic.Int64
}

func (t *throttle) pass() bool {
	now, last := time.Now().UnixNano(), t.last.Load()
	return now-last >= int64(t.every) && t.last.CompareAndSwap(last, now)
}
