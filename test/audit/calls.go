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

// Calls holds the alerts of no order against each other: those of a lane about the same agent, or about inputs that wait, are there
// once, and come no sooner than a minute after the one before; of that, clocks must tell. Of a clock each takeover tells anew.
func Calls(alerts []*kgo.Record, clocksTell bool) (wrong []string) {
	seen, last := make(map[string]bool), make(map[string]time.Time)
	for _, r := range alerts {
		if oracle.From(r) != "" {
			continue
		}
		a, err := events.Decode[events.Alert](r.Value)
		id := events.Header(r, "ce_id")
		if err != nil || a.Reason == "" || a.At.IsZero() {
			wrong = append(wrong, fmt.Sprintf("the alert %s says %s, %v", id, r.Value, err))
			continue
		}
		about := id[:strings.LastIndex(id, "/")+1] // without the time
		if strings.Count(about, "/") < 2 {
			continue // of the partition itself, or of an instance
		}
		before := last[about]
		switch {
		case seen[id]:
			wrong = append(wrong, fmt.Sprintf("the alert %s is there twice: %s", id, a.Reason))
		case clocksTell && !before.IsZero() && a.At.Sub(before) < callsApart:
			wrong = append(wrong, fmt.Sprintf("the alert %s comes %v after the one before: %s", id, a.At.Sub(before), a.Reason))
		}
		seen[id], last[about] = true, a.At
	}
	return wrong
}
