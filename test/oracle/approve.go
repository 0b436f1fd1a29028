package oracle

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/events"
)

// FlowApprove says what a step asks people.
type FlowApprove struct {
	Roles    []string `json:"roles"`
	Outcomes []string `json:"outcomes"`
	Count    int      `json:"count"`
	Due      Duration `json:"due"`
	Escalate []string `json:"escalate"`
	Show     string   `json:"show"`
}

// Approval is what a step waits for that asks people.
type Approval struct {
	May      []string // who may decide now
	More     []string // who may, too, once they are reminded
	Outcomes []string
	Needs    int       // how many have to say the first of these
	Remind   time.Time // zero for never, and once they are
	Until    time.Time // zero for never, and during a pause
	Said     []Verdict
}

// Verdict is what somebody decided.
type Verdict struct {
	By      string `json:"by"`
	Outcome string `json:"outcome"`
	Note    string `json:"note"`
}

// approves: the turn of a step has come that asks people.
func (l *Ledger) approves(e *events.Event, s *Step) {
	l.goesOn()
	l.mayDo(e, s)
	l.rule("T5", s.State == notStarted, "it is %s", s.State)
	l.rule("V4", e.Attempt == s.Attempt+1, "attempt %d follows %d", e.Attempt, s.Attempt)
	if s.def != nil {
		runs, err := l.runsNow(s)
		l.rule("S1", err == nil && runs || errors.Is(err, errUnjudged), "its condition %q holds: %t, %v", s.def.When, runs, err)
		l.asksAsTheWorkflowSays(e, s)
	}
	if e.Input != nil {
		s.Input = e.Input
	}
	s.State, s.Attempt = approving, e.Attempt
	s.Approves = &Approval{May: e.Roles, More: e.Escalate, Outcomes: e.Outcomes, Needs: max(e.Count, 1), Remind: e.Remind, Until: e.Due}
	s.Due, s.Output = s.Approves.next(), s.Approves.output("")
}

func (l *Ledger) asksAsTheWorkflowSays(e *events.Event, s *Step) {
	a := s.def.Approve
	if a == nil {
		l.rule("S4", false, "the workflow asks nobody there")
		return
	}
	l.rule("S4", slices.Equal(e.Roles, a.Roles) && slices.Equal(e.Escalate, a.Escalate) && slices.Equal(e.Outcomes, a.Outcomes) && max(e.Count, 1) == a.Count,
		"it asks %s, then %s, for %s, %d of them", e.Roles, e.Escalate, e.Outcomes, e.Count)
	in := func(d Duration) (at time.Time) {
		if d > 0 {
			at = events.Time(e.At.Add(time.Duration(d)))
		}
		return at
	}
	l.rule("V2", e.Due.Equal(in(s.def.Timeout.After)) && e.Remind.Equal(in(a.Due)), "it waits until %v, and reminds at %v", e.Due, e.Remind)
	want, err := l.given(s, &s.Work, false)
	if errors.Is(err, errUnjudged) {
		return
	}
	got, wrong := canonical(e.Input)
	if want == nil && s.Input != nil { // which an operator gave
		want, _ = canonical(s.Input)
	}
	l.rule("S4", err == nil && (want == nil) == (e.Input == nil) && (want == nil || wrong == nil && bytes.Equal(got, want)), "it shows %s, and must show %s, %v", e.Input, want, err)
}

// next is when somebody must look.
func (a *Approval) next() time.Time {
	if !a.Remind.IsZero() && (a.Until.IsZero() || !a.Until.Before(a.Remind)) {
		return a.Remind
	}
	return a.Until
}

// output is what others see of it: the outcome, once there is one, and who said what.
func (a *Approval) output(outcome string) []byte {
	var is *string
	if outcome != "" {
		is = &outcome
	}
	b, err := json.Marshal(struct {
		Outcome   *string   `json:"outcome"`
		Decisions []Verdict `json:"decisions"`
	}{is, append([]Verdict{}, a.Said...)})
	if err != nil {
		panic(err) // texts alone
	}
	return b
}

// decides: somebody decides who may, once, and has not submitted the order. How a person is known who
// is not by a key of the namespace is for who knows the instance.
func (l *Ledger) decides(e *events.Event, s *Step) {
	l.rule("S2", s.State == approving && e.Attempt == s.Attempt, "it is %s, and attempt %d decided", s.State, e.Attempt)
	if s.Approves == nil {
		return
	}
	a := *s.Approves
	l.rule("P3", l.mayDecide(e, &a), "%s is not one of %s who may decide, has said something, or has submitted the order", e.By, a.May)
	l.rule("S4", slices.Contains(a.Outcomes, e.Outcome), "%s is none of %s", e.Outcome, a.Outcomes)
	a.Said = append(slices.Clip(a.Said), Verdict{e.By, e.Outcome, e.Reason})
	s.Approves, s.Output = &a, a.output("")
	alike := 0
	for _, v := range a.Said {
		if v.Outcome == e.Outcome {
			alike++
		}
	}
	if e.Outcome == a.Outcomes[0] && alike < a.Needs {
		return
	}
	s.Output = a.output(e.Outcome)
	s.end(completed)
}

// same says that two names are of one person, as far as these tell.
func same(a, b string) bool {
	return strings.EqualFold(strings.TrimSpace(a), strings.TrimSpace(b))
}

// SubmittedBy is who submitted the order, and those that it does again, as far as that was said.
func (l *Ledger) SubmittedBy() string {
	return strings.Join(append([]string{l.accepted.By}, l.accepted.Submitters...), "\n")
}

func (l *Ledger) mayDecide(e *events.Event, a *Approval) bool {
	known := e.Actor == nil || slices.ContainsFunc(a.May, func(role string) bool { return slices.Contains(e.Actor.Roles, "approver/"+role) })
	return known && e.By != "" && !slices.ContainsFunc(append([]string{l.accepted.By}, l.accepted.Submitters...), func(name string) bool { return same(name, e.By) }) &&
		!slices.ContainsFunc(a.Said, func(v Verdict) bool { return same(v.By, e.By) })
}

// reminds: a decision is due, and others may make it, too.
func (l *Ledger) reminds(e *events.Event, s *Step) {
	l.rule("S2", s.State == approving && e.Attempt == s.Attempt, "it is %s, and attempt %d is due", s.State, e.Attempt)
	if s.Approves == nil {
		return
	}
	a := *s.Approves
	l.rule("V2", !l.Paused && !a.Remind.IsZero() && !e.At.Before(a.Remind) && (a.Until.IsZero() || e.At.Before(a.Until)), "it is due at %v, and ends at %v", a.Remind, a.Until)
	l.rule("P2", strings.Contains(e.Action, strings.Join(a.Outcomes, ", ")) && strings.Contains(e.Reason, strings.Join(a.May, ", ")), "it says %s, and to %s", e.Reason, e.Action)
	a.May, a.More, a.Remind = append(slices.Clip(a.May), a.More...), nil, time.Time{}
	s.Approves, s.Due = &a, a.next()
}

// ended says that nobody is asked any more since the time of the wait has passed.
func (a *Approval) ended(now time.Time) bool { return !a.Until.IsZero() && !now.Before(a.Until) }

// undecided says that a decision which was refused could not be made. What outcome it named, and
// whether people are believed who are not known, stands in no history.
func (l *Ledger) undecided(e *events.Event) bool {
	var open []*Step
	for _, s := range l.Steps {
		if s.State == approving && e.Step == s.Name {
			open = append(open, s)
		}
	}
	return len(open) != 1 || !l.mayDecide(e, open[0].Approves) ||
		strings.Contains(e.Reason, "permits no outcome") || strings.Contains(e.Reason, "are kept") || e.Actor == nil && strings.Contains(e.Reason, "is only claimed")
}
