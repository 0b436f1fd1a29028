package console

import (
	"encoding/json"
	"fmt"
	"html/template"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/internal/words"
)

// clockForm is how a time is shown, in its own zone.
const clockForm = "2006-01-02 15:04:05"

// functions are those that templates call.
func (c *Console) functions() template.FuncMap {
	return template.FuncMap{
		"url":      func(path string) string { return c.base + path },
		"link":     func(path string, pairs ...string) string { return c.base + link(path, pairs...) },
		"order":    func(id string) string { return c.base + orderPath(id) },
		"seg":      api.PathEscape,
		"clock":    clock,
		"ago":      ago,
		"stamp":    stamp,
		"exact":    func(t time.Time) string { return t.Format(clockForm + ".000") },
		"json":     pretty,
		"short":    words.Short,
		"brief":    brief,
		"quoted":   func(key *string) string { return strconv.Quote(*key) },
		"flow":     words.Workflow,
		"state":    words.State,
		"stands":   words.StandsAt,
		"result":   words.StepResult,
		"labels":   words.Labels,
		"by":       words.CompleteBy,
		"fault":    words.Fault,
		"placed":   words.PlacedFault,
		"text":     words.Or[string],
		"kind":     kind,
		"may":      func(caller *api.Caller, role, workflow string) bool { return caller.May(identity.Role(role), workflow) },
		"dict":     dict,
		"many":     words.Several,
		"due":      words.Due,
		"said":     words.Said,
		"asks":     words.Outcomes,
		"items":    words.Items,
		"waited":   words.Waited,
		"waits":    words.WaitState,
		"turn":     words.Turn,
		"about":    headed,
		"origin":   words.Origin,
		"less":     func(n uint64) uint64 { return n - 1 },
		"plus":     func(n uint64) uint64 { return n + 1 },
		"clockoff": words.ClockOff,
	}
}

// clock is a time to the second, in its own zone.
func clock(t *api.Time) string {
	if t == nil {
		return "–"
	}
	return t.Format(clockForm)
}

// stamp is a time as programs read it.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// ago is how long ago a time was, or in what time it will be, in its largest unit.
func ago(t *api.Time) string {
	if t == nil {
		return ""
	}
	d, form := time.Since(t.Time), "%s ago"
	if d < 0 {
		d, form = -d, "in %s"
	}
	return fmt.Sprintf(form, about(d))
}

// about is a duration in its largest unit.
func about(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d d", int(d.Hours()/24))
}

// How much of a payload is shown, and how large and how deep one may be that gets a line for each thing that it
// says, in bytes and levels: each line begins with two spaces for each level.
const (
	payloadShown = 64 << 10
	lineByLine   = 32 << 10
	deepest      = 40
)

func pretty(value json.RawMessage) string { return shown(value, payloadShown) }

// shown is JSON as people read it, up to so many bytes; empty where there is none.
func shown(value json.RawMessage, most int) string {
	switch {
	case words.Payload(value) == "-":
		return ""
	case len(value) > most:
		return strings.ToValidUTF8(string(value[:most]), "\uFFFD") + fmt.Sprintf("…\n\nThat is not all of it: it has %d bytes. The command line and the HTTP API have it whole.", len(value))
	case len(value) > lineByLine || depth(value) > deepest:
		return string(value)
	}
	v := jsontext.Value(slices.Clone(value))
	if err := v.Indent(jsontext.WithIndent("  "), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)); err != nil {
		return string(value)
	}
	return string(v)
}

// depth is at least how deep JSON is nested: what its texts hold counts, too.
func depth(value []byte) (deepest int) {
	at := 0
	for _, b := range value {
		switch b {
		case '{', '[':
			at++
			deepest = max(deepest, at)
		case '}', ']':
			at--
		}
	}
	return deepest
}

// brief is a text that has a place of its own, as far as people read on.
func brief(s string) string {
	const limit = 240
	if r := []rune(s); len(r) > limit {
		return string(r[:limit-1]) + "…"
	}
	return s
}

// kind is what a state means, whatever it is a state of: how a page colours it.
func kind(state any) string {
	if v := reflect.ValueOf(state); v.Kind() == reflect.Pointer && !v.IsNil() {
		state = v.Elem()
	}
	switch fmt.Sprint(state) {
	case "Processed", "completed", "done":
		return "good"
	case "Error", "failed", "expired", "Rejected":
		return "bad"
	case "Compensating", "Compensated", "Cancelled", "Terminated", "Raised", "undone", "raised", "timed-out", "stopped", "cut-off":
		return "odd"
	case "Processing", "running", "repeating":
		return "busy"
	case "sleeping", "listening", "approving":
		return "waits"
	}
	return "idle"
}

// dict makes a map for a template within another.
func dict(pairs ...any) (map[string]any, error) {
	all := make(map[string]any)
	for i := 0; i+1 < len(pairs); i += 2 {
		name, ok := pairs[i].(string)
		if !ok {
			return nil, fmt.Errorf("%v is no name", pairs[i])
		}
		all[name] = pairs[i+1]
	}
	return all, nil
}
