package bench

import (
	"context"
	"syscall"
	"time"
)

// coarse is by how much a timer of Go may be late in a process that has nothing else to do, and more: the
// runtime waits for it in whole milliseconds.
const coarse = 2 * time.Millisecond

// until waits for a time. What is further off than [coarse] it is late for by some 0.1 ms: to be so exact
// takes a thread, which is dear for each of many a second.
func until(ctx context.Context, at time.Time) error {
	left := time.Until(at)
	if left <= coarse {
		return wait(ctx, left)
	}
	if err := wait(ctx, left-coarse); err != nil {
		return err
	}
	for left = time.Until(at); left > 0; left = time.Until(at) {
		s := syscall.NsecToTimespec(left.Nanoseconds())
		_ = syscall.Nanosleep(&s, nil) // a signal ends it early
	}
	return context.Cause(ctx)
}
