package audit

import (
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/test/oracle"
)

// callsApart is how far at least two alerts of a partition about the same agent, or about inputs that wait, are apart.
const callsApart = time.Minute

// Calls holds the alerts of no order against each other: each is there once, and those of a lane about the same agent, or about
// inputs that wait, come no sooner than a minute after the one before; of the second, clocks must tell.
func Calls(alerts []*kgo.Record, clocksTell bool) (wrong []string) {
	seen, last := make(map[string]bool), make(map[string]time.Time)
	for _, r := range alerts {
		if oracle.From(r) != "" {
			continue
		}
		a, err := events.Decode[events.Alert](r.Value)
		id := events.Header(r, "ce_id")
		switch {
		case err != nil || a.Reason == "" || a.At.IsZero():
			wrong = append(wrong, fmt.Sprintf("the alert %s says %s, %v", id, r.Value, err))
			continue
		case seen[id]:
			wrong = append(wrong, fmt.Sprintf("the alert %s is there twice: %s", id, a.Reason))
		}
		seen[id] = true
		about := id[:strings.LastIndex(id, "/")+1] // without the time
		if strings.Count(about, "/") < 2 {
			continue // of the partition itself, or of an instance
		}
		if before := last[about]; clocksTell && !before.IsZero() && a.At.Sub(before) < callsApart {
			wrong = append(wrong, fmt.Sprintf("the alert %s comes %v after the one before: %s", id, a.At.Sub(before), a.Reason))
		}
		last[about] = a.At
	}
	return wrong
}
