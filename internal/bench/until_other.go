//go:build !linux

package bench

import (
	"context"
	"time"
)

// until waits for a time, and is late by what the system's timers are.
func until(ctx context.Context, at time.Time) error { return wait(ctx, time.Until(at)) }
