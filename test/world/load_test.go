package world

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

// Every order that was attempted is attempted again until it is acknowledged,
// also when no new ones begin any more.
func TestLoad(t *testing.T) {
	failed, well := make(chan struct{}), make(chan struct{})
	l := Submitting(t.Context(), 2, time.Microsecond, func(_ context.Context, n int64) error {
		if n < 3 {
			return nil
		}
		select {
		case failed <- struct{}{}:
			return errors.New("nobody answers")
		case <-well:
			return nil
		}
	})
	<-failed
	l.Cease()
	for range 5 {
		select {
		case <-failed:
		case <-l.Ended():
			t.Fatalf("it ended, and of %d orders %d were acknowledged", l.Attempted(), l.Acked())
		}
	}
	close(well)
	<-l.Ended()
	ids := l.IDs()
	if len(ids) < 3 || l.Attempted() != l.Acked() || ids[0] != "o-000001" || !slices.IsSorted(ids) || l.Again() != 6 {
		t.Errorf("%d attempted, %d acknowledged, %d times again: %v", l.Attempted(), l.Acked(), l.Again(), ids)
	}
}

// Nothing goes on past the end of the context.
func TestLoadEnds(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	l := Submitting(ctx, 2, time.Microsecond, func(context.Context, int64) error {
		end()
		return errors.New("nobody answers")
	})
	<-l.Ended()
	if l.Acked() != 0 {
		t.Errorf("%d orders were acknowledged", l.Acked())
	}
}

// An order that is tried for long is not among those that all were acknowledged up to, however many others are.
func TestLoadThrough(t *testing.T) {
	well, others := make(chan struct{}), make(chan struct{})
	l := Submitting(t.Context(), 2, time.Microsecond, func(_ context.Context, n int64) error {
		switch n {
		case 3:
			<-well
		case 20:
			close(others)
		}
		return nil
	})
	<-others
	if n := l.Through(); n > 2 || l.Acked() < 18 {
		t.Errorf("through %d, of %d", n, l.Acked())
	}
	close(well)
	l.Cease()
	<-l.Ended()
	if l.Through() != l.Acked() || l.Through() != l.Attempted() {
		t.Errorf("through %d, of %d of %d", l.Through(), l.Acked(), l.Attempted())
	}
}
