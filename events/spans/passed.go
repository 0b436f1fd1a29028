package spans

import (
	"strings"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/trace"
)

// MaxState is the longest tracestate, in bytes, that is passed on: as much as W3C Trace Context asks for.
const MaxState = 512

// State returns the tracestate that came with a traceparent as it is, and nothing where that names no span, or for what is
// none by W3C Trace Context, or is longer than [MaxState] or has more than 32 members.
func State(traceparent, tracestate string) string {
	if tracestate == "" || len(tracestate) > MaxState || !plain(tracestate) || !Parse(traceparent, "").IsValid() {
		return ""
	}
	if _, err := trace.ParseTraceState(tracestate); err != nil {
		return ""
	}
	return tracestate
}

// MaxBaggage and maxBaggageMembers are how long baggage is at most, in bytes, that is passed on, and how many members it
// has: as much as W3C Baggage asks for.
const (
	MaxBaggage        = 8192
	maxBaggageMembers = 64
)

// Baggage returns baggage as it is, and nothing for what is none by W3C Baggage, or is longer than [MaxBaggage] or has
// more than 64 members.
func Baggage(value string) string {
	if value == "" || len(value) > MaxBaggage || strings.Count(value, ",") >= maxBaggageMembers || !plain(value) {
		return ""
	}
	for member := range strings.SplitSeq(value, ",") { // of all together it bounds what it would write, which may be longer
		if _, err := baggage.Parse(member); err != nil || strings.Trim(member, " \t") == "" {
			return ""
		}
	}
	return value
}

// plain says that a text can be a header of HTTP: whoever parses it may trim more than blanks and tabs.
func plain(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return (r < ' ' && r != '\t') || r > '~' })
}
