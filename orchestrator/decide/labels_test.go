package decide

import (
	"fmt"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/events"
)

// Labels that are full of quotes take no more, beside the order that is done again, in the journal than was reckoned with.
func TestTheSizeOfLabels(t *testing.T) {
	long := strings.Repeat("\x01", events.MaxOrderID)
	e := events.Event{Type: events.OrderAccepted, Labels: make(map[string]string), Order: long, RerunOf: long}
	for n := range 2 * events.MaxLabels {
		e.Labels[fmt.Sprintf("%063d", n)] = strings.Repeat(`"`, events.MaxLabelValue)
	}
	if size := len(e.Append(nil)); size > estimate(&e)-EnvelopeSize/2 {
		t.Errorf("%d bytes were reckoned with, and it takes %d beside its envelope", estimate(&e), size)
	}
}
