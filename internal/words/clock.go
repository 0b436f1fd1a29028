package words

import (
	"time"

	"github.com/waybill-dev/waybill/internal/api"
)

// ClockOff is how a clock stands to Kafka's, in words.
func ClockOff(c *api.Clock) string {
	switch {
	case c == nil:
		return "-"
	case c.Right:
		return "right"
	}
	off := time.Duration(c.AheadMs) * time.Millisecond
	if off < 0 {
		return (-off).Round(time.Second).String() + " behind"
	}
	return off.Round(time.Second).String() + " ahead"
}
