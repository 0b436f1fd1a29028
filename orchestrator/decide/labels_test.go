package decide

import (
	"fmt"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/events/spans"
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

// Names that an event lists count as much as they take in the journal.
func TestTheSizeOfNames(t *testing.T) {
	names := make([]string, 16)
	for i := range names {
		names[i] = fmt.Sprintf("%064d", i)
	}
	bare, e := events.Event{Type: events.StepApproving}, events.Event{Type: events.StepApproving, Roles: names, Escalate: names, Outcomes: names}
	const fields = len(`,"roles":[],"escalate":[],"outcomes":[]`)
	if takes, counts := len(e.Append(nil))-len(bare.Append(nil)), estimate(&e)-estimate(&bare); counts < takes-fields {
		t.Errorf("%d bytes were reckoned with, and it takes %d", counts, takes)
	}
}

// So does what a submission has passed on, and its messages have it as it is.
func TestTheSizeOfWhatIsPassedOn(t *testing.T) {
	bare := events.Event{Type: events.OrderAccepted}
	e := events.Event{Type: events.OrderAccepted, Tracestate: "a=" + strings.Repeat(`"`, spans.MaxState-2), Baggage: strings.Repeat("\t", spans.MaxBaggage-3) + "a=1"}
	const fields = len(`,"tracestate":"","baggage":""`)
	if takes, counts := len(e.Append(nil))-len(bare.Append(nil)), estimate(&e)-estimate(&bare); counts < takes-fields {
		t.Errorf("%d bytes were reckoned with, and it takes %d", counts, takes)
	}
}
