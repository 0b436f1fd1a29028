package agents

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A4: the handler's context ends at the complete-by, like one of the standard
// library, whether Done is called early, late or by a child.
func TestAttemptContextEndsAtCompleteBy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lazy := &attemptContext{Context: t.Context(), completeBy: time.Now().Add(time.Second)}
		defer lazy.release()
		eager := &attemptContext{Context: t.Context(), completeBy: time.Now().Add(time.Second)}
		defer eager.release()
		done := eager.Done()
		child, cancel := context.WithTimeout(eager, time.Hour)
		defer cancel()

		time.Sleep(time.Second - 1)
		for _, ctx := range []context.Context{lazy, eager, child} {
			if err := ctx.Err(); err != nil {
				t.Errorf("ended before the complete-by: %v", err)
			}
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if err := lazy.Err(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v at the complete-by", err)
		}
		<-lazy.Done()
		<-done
		<-child.Done()
		for _, ctx := range []context.Context{lazy, eager, child} {
			if err := ctx.Err(); err != context.DeadlineExceeded {
				t.Errorf("got %v at the complete-by", err)
			}
		}
	})
}

func TestAttemptContextEndsAtHardStop(t *testing.T) {
	type key struct{}
	parent, halt := context.WithCancelCause(context.WithValue(t.Context(), key{}, "value"))
	lazy := &attemptContext{Context: parent, completeBy: time.Now().Add(time.Hour)}
	defer lazy.release()
	eager := &attemptContext{Context: parent, completeBy: time.Now().Add(time.Hour)}
	defer eager.release()
	child, cancel := context.WithCancel(eager)
	defer cancel()

	halt(ErrStopped)
	<-child.Done()
	for _, ctx := range []context.Context{lazy, eager, child} {
		if err := ctx.Err(); err != context.Canceled {
			t.Errorf("got %v at the stop", err)
		}
		if err := context.Cause(ctx); !errors.Is(err, ErrStopped) {
			t.Errorf("the cause is %v", err)
		}
		if ctx.Value(key{}) != "value" {
			t.Error("a value is missing")
		}
	}
}

func TestAttemptContextEndsWithItsHandler(t *testing.T) {
	lazy := &attemptContext{Context: t.Context(), completeBy: time.Now().Add(time.Hour)}
	eager := &attemptContext{Context: t.Context(), completeBy: time.Now().Add(time.Hour)}
	done := eager.Done()
	lazy.release()
	eager.release()
	<-done
	for _, ctx := range []context.Context{lazy, eager} {
		if err := ctx.Err(); err != context.Canceled {
			t.Errorf("got %v after the handler", err)
		}
		<-ctx.Done()
	}
}

// One whose complete-by is moved ends then, and so do its children, with the same error.
func TestAttemptContextThatIsMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		parent, halt := context.WithCancelCause(context.WithValue(t.Context(), key{}, "value"))
		began := time.Now()
		lazy := &attemptContext{Context: parent, movable: true, completeBy: began.Add(time.Second)}
		defer lazy.release()
		eager := &attemptContext{Context: parent, movable: true, completeBy: began.Add(time.Second)}
		defer eager.release()
		stopped := &attemptContext{Context: parent, movable: true, completeBy: began.Add(time.Hour)}
		defer stopped.release()
		<-time.After(time.Second / 2)
		child, cancel := context.WithTimeout(eager, time.Hour)
		defer cancel()
		for _, to := range []time.Time{began.Add(3 * time.Second), began.Add(2 * time.Second)} { // never back
			lazy.move(to)
			eager.move(to)
		}
		<-time.After(2499 * time.Millisecond)
		for _, ctx := range []context.Context{lazy, eager, child} {
			if err := ctx.Err(); err != nil {
				t.Errorf("ended before the complete-by: %v", err)
			}
		}
		<-child.Done()
		synctest.Wait()
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("ended after %v", took)
		}
		<-lazy.Done()
		for _, ctx := range []context.Context{lazy, eager, child} {
			if err := ctx.Err(); err != context.DeadlineExceeded {
				t.Errorf("got %v at the complete-by", err)
			}
			if ctx.Value(key{}) != "value" {
				t.Error("a value is missing")
			}
		}
		grandchild, cancel := context.WithCancel(stopped)
		defer cancel()
		halt(ErrStopped)
		<-grandchild.Done()
		for _, ctx := range []context.Context{stopped, grandchild} {
			if err := ctx.Err(); err != context.Canceled || !errors.Is(context.Cause(ctx), ErrStopped) {
				t.Errorf("got %v at the stop, because of %v", err, context.Cause(ctx))
			}
		}
	})
}
