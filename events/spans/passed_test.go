package spans_test

import (
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/events/spans"
)

const caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// What W3C Trace Context takes for a tracestate is passed on as it is, beside a traceparent that names a span.
func TestState(t *testing.T) {
	members := func(n int) string { return strings.Repeat("a@b=1,", n-1) + "c=1" }
	many := make([]string, 33)
	for i := range many {
		many[i] = string(rune('a'+i%26)) + string(rune('a'+i/26)) + "=1"
	}
	for state, passed := range map[string]bool{
		"rojo=00f067aa0ba902b7,congo=t61rcWkgMzE": true, "a=1 ,\tb=2": true, `a="\`: true, strings.Join(many[:32], ","): true,
		"a=" + strings.Repeat("x", 250) + ",b=" + strings.Repeat("x", 257): false,
		"a=" + strings.Repeat("x", 250) + ",b=" + strings.Repeat("x", 256): true, // 512 bytes
		"": false, "a": false, "A=1": false, "a=1,a=2": false, members(3): false, strings.Join(many, ","): false,
		"a=1\n": false, "a=ä": false, "a=" + strings.Repeat("x", 256) + ",b=" + strings.Repeat("x", 256): false,
	} {
		want := ""
		if passed {
			want = state
		}
		if got := spans.State(caller, state); got != want {
			t.Errorf("%q: %q", state, got)
		}
		for _, parent := range []string{"", "00-00000000000000000000000000000000-b7ad6b7169203331-01", "ff" + caller[2:]} {
			if got := spans.State(parent, state); got != "" {
				t.Errorf("%q beside %q: %q", state, parent, got)
			}
		}
	}
	if of := spans.Parse(caller, "a=1"); of.TraceState().Get("a") != "1" {
		t.Errorf("%+v", of)
	}
	if of := spans.Parse(caller, "A=1"); !of.IsValid() || of.TraceState().Len() != 0 {
		t.Errorf("%+v", of)
	}
}

// So is what W3C takes for baggage.
func TestBaggage(t *testing.T) {
	for value, passed := range map[string]bool{
		"tenant=a%20b;secret;ttl=3 , user=7": true, "a=": true, "a=1,a=2": true, "a=" + strings.Repeat("x", 8190): true, "a=1" + strings.Repeat(",b=2", 63): true,
		"a=" + strings.Repeat("%FF", 500) + ",b=" + strings.Repeat("%FF", 500): true, // which its reader would write longer
		"": false, "a": false, "a=%zz": false, "a=1,,b=2": false, "a=b c": false, `a="`: false, "a=1\n": false, "a=1\r\nx: y": false, "a=1;\vb": false, "ä=1": false, "a=1\u0085": false, "\xff=1": false,
		"a=" + strings.Repeat("x", 8191): false, "a=1" + strings.Repeat(",b=2", 64): false,
	} {
		want := ""
		if passed {
			want = value
		}
		if got := spans.Baggage(value); got != want {
			t.Errorf("%.50q: %.50q", value, got)
		}
	}
}

// An order without them costs nothing.
func TestNothingPassedAllocatesNothing(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { _, _ = spans.State(caller, ""), spans.Baggage("") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
