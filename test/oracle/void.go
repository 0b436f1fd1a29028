package oracle

import (
	"strings"

	"github.com/waybill-dev/waybill/events"
)

// maxVoid is how many events of a kind an order has at most that say no more than that
// something changed nothing.
const maxVoid = 100

// count takes the number of such an event, which format 1 does not have. Surely says
// that it is recorded however many there are.
func (l *Ledger) count(e *events.Event, n *int, surely bool) {
	l.rule("P4", e.Count == *n+1 || e.Count == 0 && *n == 0, "it is number %d, and follows number %d", e.Count, *n)
	l.rule("P4", e.Count <= maxVoid || surely, "it is number %d, and there may be %d", e.Count, maxVoid)
	*n = e.Count
}

// conflict: the first submission that says something else than the one that made the
// order.
func (l *Ledger) conflict(e *events.Event) {
	l.rule("T4", l.Digest != "" && e.Digest != l.Digest, "its digest is %q, and that of the order's submission %q", e.Digest, l.Digest)
	l.rule("T4", !l.Conflicted, "another was recorded before")
	l.rule("P1", e.Reason != "", "it has no reason")
	l.rule("P4", strings.Count(e.Source, "/") == 2, "it is from %q", e.Source)
	l.Conflicted = true
}
