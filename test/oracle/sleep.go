package oracle

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/waybill-dev/waybill/events"

	"cel.dev/cel-go/common/types"
)

// longestSleep is how long one may be whose length an expression says.
const longestSleep = 8760 * time.Hour

// sleeps: the turn of a step that is no operation has come, and it wakes when its workflow says.
func (l *Ledger) sleeps(e *events.Event, s *Step) {
	l.goesOn()
	l.mayDo(e, s)
	l.rule("T5", s.State == notStarted, "it is %s", s.State)
	l.rule("V4", e.Attempt == s.Attempt+1, "attempt %d follows %d", e.Attempt, s.Attempt)
	if s.def != nil {
		runs, err := l.runsNow(s)
		l.rule("S1", err == nil && runs || errors.Is(err, errUnjudged), "its condition %q holds: %t, %v", s.def.When, runs, err)
		if want, fixed, err := l.wakes(s, e.At); !errors.Is(err, errUnjudged) {
			if want.Before(l.accepted.At) {
				want = l.accepted.At
			}
			l.rule("V3", err == nil && e.Due.Equal(events.Time(want)) && e.Fixed == fixed, "it sleeps until %v, fixed: %t, and must until %v, fixed: %t, %v", e.Due, e.Fixed, want, fixed, err)
		}
	}
	s.State, s.Attempt, s.Due, s.Sleeps = sleeping, e.Attempt, e.Due, true
	if e.Fixed {
		s.Wakes = e.Due
	}
}

// wakes is when a sleep that begins now is to end, and whether that is a time of the calendar.
func (l *Ledger) wakes(s *Step, now time.Time) (at time.Time, fixed bool, err error) {
	if s.def.Sleep == nil {
		return at, false, errors.New("it does not sleep")
	}
	if given := ""; s.Input != nil && json.Unmarshal(s.Input, &given) == nil { // by an operator
		if d, err := time.ParseDuration(given); err == nil {
			return now.Add(max(d, 0)), false, nil
		}
		at, err = time.Parse(time.RFC3339, given)
		return at, true, err
	}
	if until := s.def.Sleep.Until; until != "" {
		v, err := l.evaluate(until)
		if err != nil {
			return at, true, err
		}
		if text, ok := v.(types.String); ok {
			at, err = time.Parse(time.RFC3339, string(text))
		} else if t, ok := v.(types.Timestamp); ok {
			at = t.Time
		} else {
			err = fmt.Errorf("%v is no time", v)
		}
		if err == nil && at.UTC().Year() > 9999 {
			err = fmt.Errorf("%v cannot be written", at)
		}
		return at, true, err
	}
	if d, err := time.ParseDuration(s.def.Sleep.For); err == nil {
		return now.Add(d), false, nil
	}
	v, err := l.evaluate(s.def.Sleep.For)
	if err != nil {
		return at, false, err
	}
	var d time.Duration
	switch v := v.(type) {
	case types.String:
		d, err = time.ParseDuration(string(v))
	case types.Duration:
		d = v.Duration
	default:
		err = fmt.Errorf("%v is no duration", v)
	}
	if err == nil && d > longestSleep {
		err = fmt.Errorf("%v is too long", d)
	}
	return now.Add(max(d, 0)), false, err
}

// wakesUp: a sleep ends when its time has come, with nothing to show for it.
func (l *Ledger) wakesUp(e *events.Event, s *Step) {
	l.rule("S2", e.Attempt == s.Attempt, "attempt %d ends, and attempt %d sleeps", e.Attempt, s.Attempt)
	l.rule("V2", s.State == sleeping && !s.Due.IsZero() && !e.At.Before(s.Due), "it is %s until %v", s.State, s.Due)
	s.end(completed)
}

// suspend stops the clocks of what sleeps, and wind has them go on.
func (l *Ledger) suspend(now time.Time) {
	for _, s := range l.Steps {
		switch {
		case s.State == listening && !s.Due.IsZero():
			s.Left, s.Due = max(time.Millisecond, s.Due.Sub(events.Time(now))), time.Time{}
		case s.State == sleeping:
			s.Left = max(0, s.Due.Sub(events.Time(now)))
			s.Due = time.Time{}
		case s.State == approving:
			a := *s.Approves
			if !a.Until.IsZero() {
				s.Left, a.Until = max(time.Millisecond, a.Until.Sub(events.Time(now))), time.Time{}
			}
			s.Approves, s.Due = &a, time.Time{}
		}
	}
}

func (l *Ledger) wind(now time.Time) {
	for _, s := range l.Steps {
		switch {
		case s.State == listening && s.Left > 0:
			s.Due, s.Left = events.Time(now).Add(s.Left), 0
		case s.State == approving:
			a := *s.Approves
			if s.Left > 0 {
				a.Until, s.Left = events.Time(now).Add(s.Left), 0
			}
			s.Approves, s.Due = &a, a.next()
		case s.State == sleeping:
			if s.Due = s.Wakes; s.Due.IsZero() {
				s.Due = events.Time(now).Add(s.Left)
			}
		}
	}
}

// passesOn: a step with nothing left to try is passed over, if the workflow says so.
func (l *Ledger) passesOn(e *events.Event, s *Step) {
	l.rule("C1", l.Toward == "" && l.failure == nil, "the order is being compensated, or has failed: %+v", l.failure)
	l.rule("S2", s.broken() && e.Attempt == s.Attempt, "it is %s, and attempt %d of %d is passed over", s.State, e.Attempt, s.Attempt)
	if s.def != nil {
		l.rule("V5", !s.broken() || s.spent(s.def), "it has something left to try")
		l.rule("V5", s.def.Exhausted == "continue", "the workflow says %s", s.def.Exhausted)
	}
	s.Passed = true
}

// passedOver are the steps that the order went on without.
func (l *Ledger) passedOver() (names []string) {
	for _, s := range l.Steps {
		if s.Passed {
			names = append(names, s.Name)
		}
	}
	return names
}
