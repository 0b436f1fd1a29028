package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/words"
)

// zone is that in which tables have their times.
func (o *output) zone() *time.Location {
	if o.utc {
		return time.UTC
	}
	return time.Local
}

// when is a time as a table has it: on a terminal how long ago it is, or how long from now.
func (o *output) when(t *api.Time) string {
	if t == nil || !o.ages {
		return words.Clock(t)
	}
	return age(t.Time, time.Now())
}

// age says how long before now a time is, or behind it.
func age(t, now time.Time) string {
	if d := t.Sub(now); d > 0 {
		return "in " + about(d)
	}
	return about(now.Sub(t)) + " ago"
}

// about is a duration in the unit in which it is two or more.
func about(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d >= 2*day:
		return fmt.Sprintf("%dd", d/day)
	case d >= 2*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d >= 2*time.Minute:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return fmt.Sprintf("%ds", d/time.Second)
}

// readDeadline reads a --deadline, nil where there is none: a time, or how long from now.
func readDeadline(text string) (*time.Time, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // none is one
	}
	if after, relative := strings.CutPrefix(text, "+"); relative {
		d, err := time.ParseDuration(after)
		if err != nil || d <= 0 {
			return nil, usageError{fmt.Errorf("--deadline: %q is no time from now on such as +2h", text)}
		}
		return new(time.Now().Add(d)), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return nil, usageError{fmt.Errorf("--deadline: %q is neither a time such as 2030-01-02T15:04:05Z nor one from now on such as +2h", text)}
	}
	return &t, nil
}

// span is from when until when.
type span struct {
	sinceText, untilText string
	since, until         time.Time // zero where nothing is said
}

// add adds the flags that say from when until when. What is, in words, happened then.
func (s *span) add(flags *pflag.FlagSet, what string) {
	flags.Var(chooser{one: &s.sinceText}, "since", "only "+what+" since then: a time such as 2030-01-02T15:04:05Z, or how long ago, such as 1h")
	flags.Var(chooser{one: &s.untilText}, "until", "only "+what+" until then, said likewise")
	onlyByFlag(flags, "since", "until")
}

// errSpan says that nothing can lie in a span.
var errSpan = errors.New("--until is before --since, so there is nothing between them")

// read reads what the flags say.
func (s *span) read() (err error) {
	now := time.Now()
	if s.since, err = readSince(s.sinceText, now); err != nil {
		return usageError{fmt.Errorf("--since: %w", err)}
	}
	if s.until, err = readSince(s.untilText, now); err != nil {
		return usageError{fmt.Errorf("--until: %w", err)}
	}
	if !s.until.IsZero() && s.until.Before(s.since) {
		return usageError{errSpan}
	}
	return nil
}

// given says whether there is a span.
func (s *span) given() bool { return !s.since.IsZero() || !s.until.IsZero() }

// has says whether a time lies in it.
func (s *span) has(t time.Time) bool {
	return !t.Before(s.since) && (s.until.IsZero() || !t.After(s.until))
}

// hasTime is has for a time that may be missing.
func (s *span) hasTime(t *api.Time) bool { return t != nil && s.has(t.Time) }

// readSince reads a time, or how long before now; none is the zero time.
func readSince(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	if since, err := time.Parse(time.RFC3339, text); err == nil {
		if since.IsZero() {
			return since, fmt.Errorf("%s stands for no time: give a later one, or leave the flag out", text)
		}
		return since, nil
	}
	return time.Time{}, fmt.Errorf("%q is neither a time such as 2030-01-02T15:04:05Z nor a duration such as 1h", text)
}
