package workflow

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"github.com/goccy/go-yaml/ast"
)

// Sleep is what a step waits for that asks nobody: time. One of its fields is set.
type Sleep struct {
	For   time.Duration // more than 0, at most a year
	Lasts *Expression   // a duration: that of a `for` which is an expression
	Until *Expression   // a time
}

// Wakes is when a sleep that begins now ends. Fixed says that it is a time of the calendar, which
// a pause of the order does not put off, and may have passed. Given is the text of such a time, or
// of a duration, that takes the place of what the file says; "" if there is none.
//
// The error says which expression failed and why, in at most 1 KiB.
func (s *Sleep) Wakes(now time.Time, scope Scope, given string) (at time.Time, fixed bool, err error) {
	switch {
	case given != "":
		if d, err := durationOf(types.String(given)); err == nil {
			return now.Add(d), false, nil
		}
		at, err = timeOf(types.String(given))
		return at, true, err
	case s.Until != nil:
		err = s.Until.evaluate(scope, func(v ref.Val) (err error) {
			at, err = timeOf(v)
			return err
		})
		return at, true, err
	case s.Lasts != nil:
		err = s.Lasts.evaluate(scope, func(v ref.Val) error {
			d, err := durationOf(v)
			at = now.Add(d)
			return err
		})
		return at, false, err
	}
	return now.Add(s.For), false, nil
}

// CheckWake says what is wrong with a text that is to say how long a step sleeps, or until when.
func CheckWake(text string) error {
	_, inTime := timeOf(types.String(text))
	_, ofLength := durationOf(types.String(text))
	if _, err := time.ParseDuration(text); err == nil {
		return ofLength
	}
	if inTime != nil {
		return errors.New(`write a time, such as "2026-12-24T18:00:00+01:00", or a duration, such as "36h"`)
	}
	return nil
}

// lastYear is the last one that RFC 3339 can write.
const lastYear = 9999

func timeOf(v ref.Val) (at time.Time, err error) {
	switch v := v.(type) {
	case types.Timestamp:
		at = v.Time
	case types.String:
		at, err = time.Parse(time.RFC3339, string(v))
	default:
		err = errNoTime
	}
	if err == nil && at.UTC().Year() <= lastYear {
		return at, nil
	}
	return time.Time{}, fmt.Errorf("it is a time, such as 2026-12-24T18:00:00+01:00, this is %s", describe(v))
}

func durationOf(v ref.Val) (d time.Duration, err error) {
	switch v := v.(type) {
	case types.Duration:
		d = v.Duration
	case types.String:
		d, err = time.ParseDuration(string(v))
	default:
		err = errNoDuration
	}
	switch {
	case err != nil:
		return 0, fmt.Errorf("it is a duration, such as 90s or 1h30m, this is %s", describe(v))
	case d > longest:
		return 0, fmt.Errorf("it is %v; at most 8760h, a year, are allowed", d)
	}
	return max(d, 0), nil
}

var errNoTime, errNoDuration = errors.New("no time"), errors.New("no duration")

// constant says that an expression is the same for all orders.
func (e *Expression) constant() bool { return !e.reads["input"] && len(e.steps) == 0 }

// sleepable reports an expression that says of every order that it sleeps until no time, or for
// no duration.
func (s *sight) sleepable(e *Expression) {
	var sleep Sleep
	switch d := &s.drafts[s.place]; s.at {
	case d.lasts:
		sleep.Lasts = e
	case d.until:
		sleep.Until = e
	}
	if sleep == (Sleep{}) || s.r.registered || !e.constant() {
		return
	}
	if _, _, err := sleep.Wakes(time.Time{}, Scope{Shared: &s.r.constants}, ""); err != nil {
		s.report(1, 0, "%v", err)
	}
}

// least is how long an order sleeps there at least, if nobody passes over it.
func (s *Sleep) least() time.Duration {
	if s.Lasts == nil || !s.Lasts.constant() {
		return s.For
	}
	at, _, err := s.Wakes(time.Time{}, Scope{}, "")
	if err != nil {
		return 0
	}
	return at.Sub(time.Time{})
}

// Doubt is what a workflow says and its author can hardly mean; "" if there is nothing.
func (w *Workflow) Doubt() (doubt string) {
	if w.Deadline == 0 {
		return ""
	}
	index := make(map[string]int, len(w.Steps))
	for i := range w.Steps {
		index[w.Steps[i].Name] = i
	}
	slept := make(map[int]time.Duration, len(w.Steps)) // at least, when a step is over
	var over func(i int) time.Duration
	over = func(i int) time.Duration {
		d, known := slept[i]
		if known {
			return d
		}
		s := &w.Steps[i]
		for _, name := range s.After {
			d = max(d, over(index[name]))
		}
		if s.Sleep != nil && s.When == nil && d <= w.Deadline {
			if d += s.Sleep.least(); d > w.Deadline && doubt == "" {
				doubt = fmt.Sprintf("the deadline is %v, and an order has slept for %v when step %s ends: it is overdue before, unless somebody passes over a sleep; raise the deadline, or shorten a sleep", w.Deadline, d, s.Name)
			}
		}
		slept[i] = d
		return d
	}
	for i := range w.Steps {
		over(i)
	}
	return doubt
}

// likeDuration is what is meant as a duration and as no expression.
var likeDuration = regexp.MustCompile(`^$|^[-+.0-9][-+.0-9a-zµμ]*$`)

// sleep reads how long a step sleeps: a duration, or a mapping that says for how long, or until
// when.
func (r *reader) sleep(n ast.Node, d *draft) {
	d.Sleep = new(Sleep)
	m, ok := n.(*ast.MappingNode)
	if text := start(n).Value; !ok && n.Type() == ast.StringType && !likeDuration.MatchString(text) {
		r.add(start(n), "sleep is a duration, for example 10m, this is %s; an expression is written {for: %s}", quote(text), text)
		return
	}
	if !ok {
		r.duration(n, "sleep", 1, &d.Sleep.For)
		return
	}
	given := r.mapping(n, "sleep", []field{
		{"for", func(n ast.Node) {
			if likeDuration.MatchString(start(n).Value) {
				r.duration(n, "for", 1, &d.Sleep.For)
				return
			}
			d.lasts = r.scalar(n, "for", "for: 'input.trial'")
		}},
		{"until", func(n ast.Node) {
			if _, err := time.Parse(time.RFC3339, start(n).Value); err == nil {
				r.add(start(n), "until is an expression; write timestamp(%q)", start(n).Value)
				return
			}
			d.until = r.scalar(n, "until", "until: 'input.startsAt'")
		}},
	})
	switch {
	case given == nil:
	case len(given) == 2:
		r.add(given["until"], "a step sleeps for a time or until one; remove \"for\" or \"until\"")
	case len(m.Values) == 0:
		r.add(start(n), "sleep says neither how long nor until when; write \"for\" or \"until\"")
	}
}
