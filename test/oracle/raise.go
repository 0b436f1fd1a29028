package oracle

import (
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"cel.dev/cel-go/common/types"

	"github.com/waybill-dev/waybill/events"
)

// FlowRaise is the failure that a step raises.
type FlowRaise struct {
	Code       string `json:"code"`
	Message    string `json:"message"`
	Compensate bool   `json:"compensate"`
}

// raises: the turn of a step that has the order fail has come. Nothing starts from then on.
func (l *Ledger) raises(e *events.Event, s *Step) {
	l.goesOn()
	l.mayDo(e, s)
	l.rule("T5", s.State == notStarted, "it is %s", s.State)
	l.rule("A5", e.Error != nil && !e.Error.Permanent && e.Error.Step == s.Name && e.Error.Code != "", "its error is %+v", e.Error)
	if s.def != nil && e.Error != nil {
		runs, err := l.runsNow(s)
		l.rule("S1", err == nil && runs || errors.Is(err, errUnjudged), "its condition %q holds: %t, %v", s.def.When, runs, err)
		if want, err := l.says(s); !errors.Is(err, errUnjudged) {
			l.rule("S4", err == nil && s.def.Raise != nil && e.Error.Code == s.def.Raise.Code && e.Error.Message == want, "it raises %+v, and must say %q, %v", e.Error, want, err)
		}
		l.turning = s.def.Raise != nil && s.def.Raise.Compensate
	}
	s.end(raised)
	s.Last, l.failure = e.Error, e.Error
	l.disarm()
	l.dismiss()
}

// Failure is what a step raised, nil before that.
func (l *Ledger) Failure() *events.Error { return l.failure }

// says is the message of a step that raises.
func (l *Ledger) says(s *Step) (text string, err error) {
	if s.def.Raise == nil {
		return "", errors.New("it does not raise")
	}
	if s.Input != nil { // by an operator
		if s.Input.Kind() == jsontext.KindString {
			err = json.Unmarshal(s.Input, &text)
		}
		return text, err
	}
	if s.def.Raise.Message == "" {
		return "", nil
	}
	v, err := l.evaluate(s.def.Raise.Message)
	if err != nil {
		return "", err
	}
	message, ok := v.(types.String)
	if !ok {
		return "", fmt.Errorf("%v is no text", v)
	}
	return string(message), nil
}

// raised: an order fails of which nothing runs any more: what was done stays as it is.
func (l *Ledger) raised(e *events.Event) {
	if e.Step == "" {
		l.rule("V5", l.queued() && e.Error != nil && slices.Contains([]string{"conflict", "superseded", "too-many-waiting"}, e.Error.Code) && e.Error.Permanent, "it waits for its turn: %t, and its error is %+v", l.queued(), e.Error)
		l.failure, l.errored, l.Alerted, l.Paused = e.Error, false, false, false
	}
	l.goesOn()
	l.rule("V5", l.failure != nil && l.Toward == "" && e.Error != nil && *e.Error == *l.failure && (e.Step == "" || e.Step == l.failure.Step), "its step is %s, its error %+v", e.Step, e.Error)
	l.rule("S2", !l.runs(), "something still runs")
	l.rule("P1", e.Reason != "", "it has no reason")
	var not []string
	for _, s := range l.Steps {
		if s.stays() {
			not = append(not, s.Name)
		}
	}
	l.rule("C3", slices.Equal(not, e.NotUndone), "it says not undone: %s; and must say: %s", names(e.NotUndone), names(not))
	l.ended, l.State = true, "Raised"
}

// dismiss has nobody wait any more for what sleeps, or is to be repeated.
func (l *Ledger) dismiss() {
	for _, s := range l.Steps {
		if s.idle() || s.State == repeating {
			s.end(skipped)
		}
	}
}
