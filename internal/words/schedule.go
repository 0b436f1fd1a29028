package words

import (
	"strings"

	"github.com/waybill-dev/waybill/events"
)

// When says when a schedule begins orders.
func When(s *events.Schedule) string {
	if s.Every != "" {
		return "every " + s.Every
	}
	return strings.TrimSpace(s.Cron + " " + s.Zone)
}

// ofBackfill says of which backfill a tick is, or which follows it.
func ofBackfill(say func(format string, args ...any), e *events.Event) {
	if e.Backfill > 0 {
		say("backfill %d", e.Backfill)
		return
	}
	nextTick(say, e)
}

// nextTick says which tick follows.
func nextTick(say func(format string, args ...any), e *events.Event) {
	switch {
	case e.Next.IsZero():
		say("no other follows")
	case !e.Due.IsZero():
		say("next %s, which begins %s later", tick(e.Next), e.Due.Sub(e.Next))
	default:
		say("next %s", tick(e.Next))
	}
}
