//go:build clockoffset

package orchestrator

import (
	"fmt"
	"os"
	"time"
)

// clockOffset makes this process's clock wrong, as WAYBILL_CLOCK_OFFSET says.
// Only tests build with this tag: what is released goes by the system's clock.
var clockOffset = func() time.Duration {
	text := os.Getenv("WAYBILL_CLOCK_OFFSET")
	if text == "" {
		return 0
	}
	offset, err := time.ParseDuration(text)
	if err != nil {
		panic(fmt.Errorf("WAYBILL_CLOCK_OFFSET: %w", err))
	}
	return offset
}()
