package spans_test

import (
	"fmt"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/waybill-dev/waybill/events/spans"
)

// What is a traceparent of W3C Trace Context is read, also of a version to come, and nothing else is.
func TestParse(t *testing.T) {
	const id, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	for traceparent, want := range map[string]string{
		"00-" + id + "-" + span + "-01":      "01",
		"00-" + id + "-" + span + "-00":      "00",
		"cc-" + id + "-" + span + "-03-what": "03",
		"":                                   "",
		"00":                                 "",
		"ff-" + id + "-" + span + "-01":      "",
		"00-" + id + "-0000000000000000-01":  "",
		"00-00000000000000000000000000000000-" + span + "-01": "",
		"00-" + id + "-" + span + "-0g":                       "",
		"00-" + id + "-" + span + "-011":                      "",
		"00-0AF7651916CD43DD8448EB211C80319C-" + span + "-01": "",
		"00_" + id + "-" + span + "-01":                       "",
	} {
		got := spans.Parse(traceparent, "")
		if got.IsValid() != (want != "") {
			t.Errorf("%q: %+v", traceparent, got)
		}
		if want != "" && spans.Traceparent(got) != "00-"+id+"-"+span+"-"+want {
			t.Errorf("%q: %q", traceparent, spans.Traceparent(got))
		}
	}
}

// Whoever makes the span of an attempt gives it the same id, and no other attempt has that. These ids are in traces of
// earlier releases: a repeat under another release is the same span.
func TestIDs(t *testing.T) {
	at := time.UnixMilli(1_764_201_600_123)
	o := spans.Of("o-1", at.Add(456*time.Microsecond), "")
	if got := fmt.Sprint(o.Trace, " ", o.Root(), " ", o.Attempt("pay", false, 1)); got != want {
		t.Errorf("ids are %s", got)
	}
	caller := spans.Of("o-1", at, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	if caller.Trace.String() != "0af7651916cd43dd8448eb211c80319c" || caller.Root() != o.Root() {
		t.Errorf("of a caller the ids are %s %s", caller.Trace, caller.Root())
	}
	seen := make(map[trace.SpanID]bool)
	for _, id := range []trace.SpanID{
		o.Root(), o.Undo(1), o.Undo(2), o.Attempt("pay", false, 1), o.Attempt("pay", false, 2), o.Attempt("pay", true, 1), o.Attempt("ship", false, 1),
	} {
		seen[id] = true
	}
	for _, other := range []spans.Order{spans.Of("o-2", at, ""), spans.Of("o-1", at.Add(time.Millisecond), "")} {
		seen[other.Root()], seen[other.Attempt("pay", false, 1)] = true, true
		if other.Trace == o.Trace {
			t.Errorf("two orders have the trace %s", o.Trace)
		}
	}
	if len(seen) != 11 {
		t.Errorf("only %d of 11 ids differ", len(seen))
	}
}

const want = "8019bc1fcb21677aae3c189edfd15b71 162072b357a6c2a7 447079de90c6c4a1"
