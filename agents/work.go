package agents

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
)

// work deals with requests, one at a time.
func (s *server) work() {
	for {
		j, ok := s.queue.take()
		if !ok {
			return
		}
		s.answer(j)
	}
}

// answer deals with one request.
func (s *server) answer(j job) {
	if j.partition.over.Load() || s.term.Err() != nil || !s.breaker.allows() {
		return // unfinished: the partition's new owner executes it
	}
	req, err := readRequest(j.Value)
	if err != nil {
		s.log.Error("skipped a record that is no request", "topic", j.Topic, "partition", j.Partition, "offset", j.Offset, "error", err)
		s.owned.finish(j)
		return
	}
	if !time.Now().Before(req.CompleteBy) {
		s.config.Observer.Taken(time.Since(j.Timestamp), true)
		s.silent("fetched", &req)
		s.owned.finish(j)
		return
	}
	s.config.Observer.Taken(time.Since(j.Timestamp), false)

	c := call{server: s, job: j, req: &req, completeBy: req.CompleteBy, asked: askedBy(j.Record, &req, s.replies.source)}
	if !c.execute() {
		return // unfinished: it comes again
	}
	if c.later() {
		s.owned.finish(j)
		return
	}
	reply := s.replies.record(&c.asked, status(c.output, c.err))

	// The last look at the clock. The context is asked too, since its timer goes
	// on by the monotonic clock when the wall clock was set back.
	if c.late() {
		s.silent("done", &req)
		s.owned.finish(j)
		return
	}
	s.client.Produce(s.kafka, reply, func(_ *kgo.Record, err error) { s.replied(j, &req, err) })
}

// replied finishes a request when Kafka has its reply, or will never take it.
func (s *server) replied(j job, req *events.Request, err error) {
	switch {
	case err == nil:
	case errors.Is(err, kgo.ErrClientClosed), s.kafka.Err() != nil:
		return // not sent, so unfinished: it comes again
	default:
		// Trying once more would hold up the partition for good. The order is
		// asked again at its complete-by.
		s.log.Error("Kafka refused a reply", "order", req.Order, "step", req.Step, "attempt", req.Attempt, "topic", req.ReplyTo, "error", err)
	}
	s.owned.finish(j)
}

// silent notes a request that gets no reply because its complete-by passed (A4).
func (s *server) silent(when string, req *events.Request) {
	s.log.LogAttrs(s.handlers, slog.LevelDebug, "not replying: the complete-by had passed when the request was "+when,
		slog.String("order", req.Order), slog.String("step", req.Step), slog.Int("attempt", req.Attempt), slog.Time("completeBy", req.CompleteBy))
}

// readRequest fails on what could not be answered.
func readRequest(value []byte) (events.Request, error) {
	req, err := events.Decode[events.Request](value)
	switch {
	case err != nil:
		return req, err
	case req.Order == "":
		return req, errors.New("it has no order")
	case req.CompleteBy.IsZero():
		return req, errors.New("it has no completeBy")
	case !events.ValidTopic(req.ReplyTo):
		return req, fmt.Errorf("its replyTo, %q, cannot be a topic", req.ReplyTo)
	}
	return req, nil
}
