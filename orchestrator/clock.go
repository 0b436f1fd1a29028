package orchestrator

import (
	"time"

	"github.com/waybill-dev/waybill/events"
)

// now is the time that events have, and by which the supervisor decides.
func now() time.Time { return events.Time(time.Now().Add(clockOffset)) }
