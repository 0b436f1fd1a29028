// Package words says what orders, steps and events are about, as people read it: on a
// terminal and in a browser alike.
package words

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
)

// Dash is the text, or a dash for none.
func Dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// Attempt is the number of an attempt; a dash before the first.
func Attempt(n int) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

// Signal names a signal.
func Signal(name, id string) string {
	if id == "" {
		return name
	}
	return name + " " + id
}

// Conflict is what becomes of an order while another is open under its key.
func Conflict(c events.OnConflict) string {
	switch c {
	case events.ConflictReject:
		return "it fails"
	case events.ConflictCancelOther:
		return "the other is cancelled"
	}
	return "it waits"
}

// Limit is what a limit says.
func Limit(l *events.Limit) string {
	var says []string
	if l.AtATime > 0 {
		says = append(says, fmt.Sprintf("%d at a time", l.AtATime))
	}
	if l.ASecond > 0 {
		says = append(says, fmt.Sprintf("%d a second", l.ASecond))
	}
	return strings.Join(says, ", ")
}

// Labels has labels as they are asked for, by name.
func Labels(labels map[string]string) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		all = append(all, name+"="+labels[name])
	}
	return Dash(strings.Join(all, ", "))
}

// Workflow is a workflow, with its version where one is meant.
func Workflow(name string, version int) string {
	switch {
	case name == "":
		return "-"
	case version == 0:
		return name
	}
	return fmt.Sprintf("%s@%d", name, version)
}

// Clock is a time in its own zone, as Waybill writes it where that is UTC; a dash for none.
func Clock(t *api.Time) string {
	if t == nil {
		return "-"
	}
	return at(t.Time)
}

// Several is how many there are, and the word that goes with one, or with another number.
func Several(n int, one, others string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n, " ", others)
}

// Payload is what JSON there is; a dash for none, and for null.
func Payload(value []byte) string {
	if len(value) == 0 || string(value) == "null" {
		return "-"
	}
	return string(value)
}

// Lasts is how long something lasts, or what it is called that there is no such time.
func Lasts(d time.Duration, none string) string {
	if d == 0 {
		return none
	}
	return d.String()
}

// Line is a text on one line.
func Line(s string) string { return strings.Join(strings.Fields(s), " ") }

// Or is the text behind p, or a dash.
func Or[T any](p *T) string {
	if p == nil {
		return "-"
	}
	return fmt.Sprint(*p)
}

// Short cuts text that would make a table hard to read.
func Short(s string) string {
	const limit = 80
	if r := []rune(s); len(r) > limit {
		return string(r[:limit-1]) + "…"
	}
	return s
}

// Clean makes text that others wrote harmless for a terminal.
func Clean(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}
