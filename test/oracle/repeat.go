package oracle

import (
	"errors"
	"strings"
	"time"

	"cel.dev/cel-go/common/types"

	"github.com/waybill-dev/waybill/events"
)

// inVainCodes are those of a step that was done as often as it may be, and of one of which nobody
// can tell whether that is so.
var inVainCodes = []string{"until-not-met", "bad-until"}

// repeats: a step was done, what it is done for does not hold, and it may be done again.
func (l *Ledger) repeats(e *events.Event, s *Step) {
	l.ends(e, &s.Work)
	l.rule("S1", l.failure == nil, "the order has failed: %+v", l.failure)
	l.rule("S2", e.Count == s.Repeats+1, "time %d follows %d", e.Count, s.Repeats)
	if def := s.def; def != nil {
		l.rule("V5", def.Repeat != nil && e.Count-s.RepeatsBefore < def.Repeat.Max, "it was done %d times, and %d before", e.Count, s.RepeatsBefore)
		if def.Repeat != nil {
			l.rule("V3", e.Due.Equal(events.Time(e.At.Add(time.Duration(def.Repeat.Every)))), "it begins again at %v", e.Due)
		}
		met, err := l.met(e, s)
		l.rule("S4", err == nil && !met || errors.Is(err, errUnjudged), "what it is done for holds: %t, %v", met, err)
	}
	s.end(repeating)
	s.Last, s.Output, s.MayHaveRun, s.Due = nil, e.Output, false, time.Time{}
	if !l.errored && !l.Paused {
		s.Due = e.Due
	}
	s.Repeats, s.Tried, s.NotKnown, s.Round, s.Resubmissions, s.renewed = e.Count, 0, 0, 0, 0, true
}

// enough: a step that is done until something holds completes if it does. Whoever has lost the
// workflow cannot know, and says so next, unless the order does not go on anyhow.
func (l *Ledger) enough(e *events.Event, s *Step) {
	if s.def == nil || s.def.Repeat == nil || l.errored || l.Paused || l.Toward != "" || l.failure != nil {
		return
	}
	met, err := l.met(e, s)
	l.unmet = (err != nil || !met) && !errors.Is(err, errUnjudged)
}

// inVain: it fails for that only once it was done as often as it may be, and what its agent
// answered does not meet it.
func (l *Ledger) inVain(e *events.Event, s *Step) {
	if e.Output != nil && s.def != nil {
		met, err := l.met(e, s)
		l.rule("S4", !met || errors.Is(err, errUnjudged), "what it is done for holds")
	}
	if s.def != nil && s.def.Repeat != nil && e.Error != nil && e.Error.Code == "until-not-met" && strings.HasPrefix(e.Error.Message, "it was done ") {
		l.rule("V5", s.Repeats+1-s.RepeatsBefore >= s.def.Repeat.Max, "it was done %d times, and %d before", s.Repeats+1, s.RepeatsBefore)
	}
}

// met says whether what a step is done for holds, by what its agent answered.
func (l *Ledger) met(e *events.Event, s *Step) (bool, error) {
	if s.def.Repeat == nil {
		return false, errors.New("it is not repeated")
	}
	was, output := s.State, s.Output
	s.State, s.Output = completed, e.Output
	v, err := l.evaluate(s.def.Repeat.Until)
	s.State, s.Output = was, output
	if err != nil {
		return false, err
	}
	truth, ok := v.(types.Bool)
	if !ok {
		return false, errors.New("it is no truth")
	}
	return bool(truth), nil
}
