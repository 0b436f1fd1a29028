package oracle

import (
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/waybill-dev/waybill/events"
)

// What docs/messages.md allows a label to be.
const (
	maxLabels     = 16
	maxLabelName  = 63
	maxLabelValue = 200
)

var labelName = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]*[a-z0-9])?$`)

// labels: an order is found by what its workflow makes of the input, which nobody changes, and
// by labels. Which ones these are is for who knows its submission, and its commands.
func (l *Ledger) labels(e *events.Event) {
	l.Labels = e.Labels
	fit, own := l.accepted.Type == events.OrderAccepted && (len(e.Labels) == 0 || l.Format >= events.LabelsFormat), 0
	for name, value := range e.Labels {
		fit = fit && labelName.MatchString(name) && len(name) <= maxLabelName && len(value) <= maxLabelValue && utf8.ValidString(value) && !strings.ContainsFunc(value, unicode.IsControl)
		if l.flow == nil || l.flow.Search[name] == "" {
			own++
		}
	}
	l.rule("P4", fit && own <= maxLabels, "its labels are %q, in format %d", e.Labels, l.Format)
	if l.flow == nil {
		return
	}
	for name, source := range l.flow.Search {
		value, err := l.value(source)
		if errors.Is(err, errUnjudged) {
			continue
		}
		want, found := "", false
		if err == nil {
			want, found = foundBy(value)
		}
		is, has := e.Labels[name]
		l.rule("S4", has == found && is == want, "it is found by %s=%q: %t, and must be by %q: %t", name, is, has, want, found)
	}
}

// rerun: an order may say which one it does again. Whether there is one is not looked at: it is
// in a partition of its own.
func (l *Ledger) rerun(e *events.Event) {
	if l.RerunOf = e.RerunOf; e.RerunOf == "" {
		return
	}
	l.rule("P4", l.Format >= events.RerunFormat && events.CheckOrderID(e.RerunOf) == nil, "it does %q again, in format %d", e.RerunOf, l.Format)
}

// foundBy is what an order is found by, of a value of its input as JSON: nothing, unless that is
// a text, a number or a truth.
func foundBy(value []byte) (text string, found bool) {
	var v any
	if json.Unmarshal(value, &v) != nil {
		return "", false
	}
	switch v := v.(type) {
	case string:
		text = v
	case float64, bool:
		text = strings.TrimSpace(string(value))
	default:
		return "", false
	}
	for len(text) > maxLabelValue {
		_, last := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-last]
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text), true
}
