package projections

import (
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/events"
)

// Approval is what a step waits for that asks people. It is a value that does not change:
// whoever changes it puts another in its place.
type Approval struct {
	Roles    []string // who may decide
	Escalate []string // who may, too, once they are reminded
	Outcomes []string // what they may say
	Count    int      // how many of them have to say the first outcome; any other ends the wait at once
	Since    time.Time
	// Remind is when they are reminded, a time of the calendar; zero for never. Reminded says
	// that they were.
	Remind   time.Time
	Reminded bool
	// Until is when the step waits no more; zero for never, and during a pause.
	Until     time.Time
	Decisions []Verdict // so far, oldest first
}

// Verdict is what somebody decided.
type Verdict struct {
	By, Outcome, Note string
	At                time.Time
}

// next is when the supervisor must look: zero for never.
func (a *Approval) next() time.Time {
	if a.Reminded || a.Remind.IsZero() || !a.Until.IsZero() && a.Until.Before(a.Remind) {
		return a.Until
	}
	return a.Remind
}

// Said is what somebody decided, "" if nothing.
func (a *Approval) Said(by string) string {
	if i := slices.IndexFunc(a.Decisions, func(v Verdict) bool { return SameName(v.By, by) }); i >= 0 {
		return a.Decisions[i].Outcome
	}
	return ""
}

// ends says that an outcome needs no other who says so.
func (a *Approval) ends(outcome string) bool {
	said := 0
	for _, v := range a.Decisions {
		if v.Outcome == outcome {
			said++
		}
	}
	return outcome != a.Outcomes[0] || said >= a.Count
}

// output is what comes after the step sees of it: the outcome, null until there is one, and who
// said what.
func (a *Approval) output(outcome string) jsontext.Value {
	quoted := func(text string) jsontext.Value {
		b, _ := jsontext.AppendQuote(nil, text) // what is not UTF-8 is replaced
		return b
	}
	whole, all := jsontext.Value("null"), jsontext.Value("[]")
	if outcome != "" {
		whole = quoted(outcome)
	}
	for i, v := range a.Decisions {
		one := put(put(put(nil, "by", quoted(v.By)), "outcome", quoted(v.Outcome)), "note", quoted(v.Note))
		if i == 0 {
			all = nil
		}
		all = join(all, '[', one, ']')
	}
	return put(put(nil, "outcome", whole), "decisions", all)
}

// ApprovingSince is since when the order waits for people; zero if it does not.
func (o *Order) ApprovingSince() (since time.Time) {
	for i := range o.Steps {
		if s := &o.Steps[i]; s.State == Approving && (since.IsZero() || s.Approves.Since.Before(since)) {
			since = s.Approves.Since
		}
	}
	return since
}

// Submitted says that somebody submitted the order, or one that it does again. Neither blanks around a
// name nor its case tell people apart.
func (o *Order) Submitted(by string) bool {
	return slices.ContainsFunc(append(o.Submitters[:len(o.Submitters):len(o.Submitters)], o.SubmittedBy), func(name string) bool { return name != "" && SameName(name, by) })
}

// SameName says that two names are of one person, as far as these tell.
func SameName(a, b string) bool { return strings.EqualFold(strings.TrimSpace(a), strings.TrimSpace(b)) }

func approve(_ *Order, s *Step, e *events.Event) {
	a := &Approval{
		Roles: e.Roles, Escalate: e.Escalate, Outcomes: e.Outcomes, Count: max(e.Count, 1), Since: events.Time(e.At), Remind: e.Remind, Until: e.Due,
	}
	s.State, s.Attempt, s.Approves, s.Due = Approving, e.Attempt, a, a.next()
	if e.Input != nil {
		s.Input = e.Input
	}
	s.Output = a.output("")
}

// remind has others decide, too.
func remind(_ *Order, s *Step, _ *events.Event) {
	if s.Approves == nil {
		return // which no journal has
	}
	a := *s.Approves
	a.Roles, a.Escalate, a.Reminded = slices.Concat(a.Roles, a.Escalate), nil, true
	s.Approves, s.Due = &a, a.next()
}

func verdict(_ *Order, s *Step, e *events.Event) {
	if s.Approves == nil {
		return // which no journal has
	}
	a := *s.Approves
	a.Decisions = append(slices.Clip(a.Decisions), Verdict{e.By, e.Outcome, e.Reason, events.Time(e.At)})
	if s.Approves = &a; !a.ends(e.Outcome) {
		s.Output = a.output("")
		return
	}
	s.Output = a.output(e.Outcome)
	s.end(Completed, nil)
	s.Left = 0
}

// suspendApproval stops the clock of a step that asks people, but for when they are reminded.
func (s *Step) suspendApproval(now time.Time) {
	if a := *s.Approves; !a.Until.IsZero() {
		s.Left = max(time.Millisecond, a.Until.Sub(now)) // none is for ever
		a.Until = time.Time{}
		s.Approves = &a
	}
}

// windApproval has that clock go on.
func (s *Step) windApproval(now time.Time) {
	a := *s.Approves
	if s.Left > 0 {
		a.Until, s.Left = now.Add(s.Left), 0
	}
	s.Approves, s.Due = &a, a.next()
}

// approvals writes who submitted the order, and what its steps wait for that ask people.
func (w *writer) approvals(o *Order) {
	w.text(o.SubmittedBy)
	w.texts(o.Submitters)
	for i := range o.Steps {
		a := o.Steps[i].Approves
		w.truth(a != nil)
		if a == nil {
			continue
		}
		w.texts(a.Roles)
		w.texts(a.Escalate)
		w.texts(a.Outcomes)
		w.int(int64(a.Count))
		w.time(a.Since)
		w.time(a.Remind)
		w.truth(a.Reminded)
		w.time(a.Until)
		w.int(o.Steps[i].Left.Milliseconds())
		w.uint(uint64(len(a.Decisions)))
		for _, v := range a.Decisions {
			w.text(v.By)
			w.text(v.Outcome)
			w.text(v.Note)
			w.time(v.At)
		}
	}
}

// approvals reads what the writer's approvals wrote.
func (r *reader) approvals(o *Order) {
	o.SubmittedBy, o.Submitters = r.text(), r.texts()
	for i := range o.Steps {
		if !r.truth() {
			continue
		}
		a := &Approval{
			Roles: r.texts(), Escalate: r.texts(), Outcomes: r.texts(), Count: int(r.int()), Since: r.time(), Remind: r.time(), Reminded: r.truth(), Until: r.time(),
		}
		o.Steps[i].Approves, o.Steps[i].Left = a, time.Duration(r.int())*time.Millisecond
		if n := r.count(); n > 0 {
			a.Decisions = make([]Verdict, n)
		}
		for j := range a.Decisions {
			a.Decisions[j] = Verdict{r.text(), r.text(), r.text(), r.time()}
		}
	}
}

func (w *writer) texts(all []string) {
	w.uint(uint64(len(all)))
	for _, s := range all {
		w.text(s)
	}
}

// texts reads what the writer's texts wrote; none is nil.
func (r *reader) texts() (all []string) {
	if n := r.count(); n > 0 {
		all = make([]string, n)
	}
	for i := range all {
		all[i] = r.text()
	}
	return all
}
