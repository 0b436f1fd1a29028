package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/decide"
	"github.com/waybill-dev/waybill/projections"
)

// ErrNoAnswer says that a signal is on Kafka, and will act, and that it is not known what became of
// it. The error around it says why.
var ErrNoAnswer = errors.New("the signal is on Kafka, and what became of it is not known yet")

// Signal puts a signal for an order on Kafka, and returns the event that says what became of it,
// nil if the order has recorded so many that changed nothing that it records no other. It fails as
// [Instance.Command] does, with [ErrNoAnswer] where that is not known in time: sending it again is
// safe if it has an id.
func (i *Instance) Signal(ctx context.Context, id string, s *events.Signal) (*events.Event, error) {
	o, _, err := i.Order(id)
	if err != nil {
		return nil, err
	}
	return i.signal(ctx, id, o.Seq, s, events.SignalsFormat)
}

// SignalKey is [Instance.Signal] for a signal with a key. What became of it the key's home knows, once the
// order has told it to which it was given.
func (i *Instance) SignalKey(ctx context.Context, s *events.Signal) (*events.Event, error) {
	if err := events.CheckSignalKey(s.Key); err != nil {
		return nil, fmt.Errorf("%w: the signal's key: %w", ErrRefused, err)
	}
	id, after := events.CorrelationID(s.Signal, s.Key), uint64(0)
	switch o, _, err := i.Order(id); {
	case err == nil, errors.Is(err, projections.ErrForgotten):
		after = o.Seq
	case !errors.Is(err, projections.ErrNotFound):
		return nil, err
	}
	return i.signal(ctx, id, after, s, events.SignalKeysFormat)
}

// signal puts a signal on Kafka, and waits for the event behind the one of the number after that says what
// became of it.
func (i *Instance) signal(ctx context.Context, id string, after uint64, s *events.Signal, format int) (*events.Event, error) {
	if err := decide.CheckSignal(s); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if err := i.written(ctx, format); err != nil { // nobody reads it until then
		return nil, err
	}
	value, err := s.Encode()
	if err != nil {
		return nil, fmt.Errorf("%w: the signal cannot be written as JSON: %w", ErrRefused, err)
	}
	if len(value) > events.MaxValue {
		return nil, fmt.Errorf("%w: the signal has %d bytes; at most %d are allowed", ErrRefused, len(value), events.MaxValue)
	}
	envelope := events.Envelope{Source: i.source(), Type: events.OrderSignal, ID: s.ID, Order: id, Time: now()}
	if envelope.ID == "" {
		if envelope.ID, err = events.NewOrderID(); err != nil {
			return nil, err
		}
	}
	r := envelope.Record(i.topics.Signals, value)
	if err := i.put(ctx, r); err != nil {
		return nil, fmt.Errorf("put the signal for %q on Kafka: %w", id, err)
	}
	source := (&decide.Record{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset}).Source()
	seen, given, cut := after, false, false
	for wait := time.Millisecond; pause(ctx, wait); wait = min(2*wait, 100*time.Millisecond) {
		head, err := i.store.Head(r.Partition)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNoAnswer, err)
		}
		if head.Next.At(events.InputSignals) <= r.Offset {
			continue
		}
		e, err := i.find(ctx, id, seen, func(e *events.Event) bool {
			cut, seen = cut || e.Seq > seen+1, e.Seq // of a key's home the last hundred events and more are there
			is := e.Source == source
			given = given || is && (e.Type == events.SignalGiven || e.Type == events.SignalOrdered) // the order has not told what it did with it
			return is && e.Type != events.SignalGiven && e.Type != events.SignalOrdered
		})
		switch {
		case err != nil && (s.Key == "" || !errors.Is(err, projections.ErrNotFound)): // as of a key of which nothing is known
			return nil, fmt.Errorf("%w: %w", ErrNoAnswer, err)
		case e != nil:
			return e, nil
		case cut:
			return nil, fmt.Errorf("%w: so much came under its key meanwhile that its history has no more of it", ErrNoAnswer)
		case !given:
			return nil, nil
		}
	}
	return nil, fmt.Errorf("%w: %w", ErrNoAnswer, ctx.Err())
}
