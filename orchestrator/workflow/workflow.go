package workflow

import (
	"slices"
	"strconv"
	"time"

	"github.com/waybill-dev/waybill/events"
)

// Workflow is a validated definition. [Parse] makes it, and nothing may change
// it afterwards: it is shared by everyone who reads it.
type Workflow struct {
	Name    string // of the form [a-z0-9]([a-z0-9-]*[a-z0-9])?, at most 100 bytes
	Version int    // 1 to 2147483647; 1 where the file has none

	// Deadline is how long an order may take in all where its submission names
	// no deadline; 0 when there is none.
	Deadline time.Duration
	// Overdue says what happens to an order that is past its deadline, whether
	// the workflow or the submission set it: [ExhaustedError], the default, or
	// [ExhaustedCompensate].
	Overdue Exhausted

	// Keep is for how long an order is known after its end, in whole seconds; 0 is for ever.
	Keep time.Duration

	// Start is nil unless a signal starts orders, too.
	Start *Start
	// Concurrency is nil unless one order is open at a time under a key.
	Concurrency *Concurrency

	Input  *Schema // what the input of an order must be; nil when anything will do
	Search []Mark  // what orders are found by, sorted by name, at most 16
	Steps  []Step  // in the order of the file, at least one, at most 1000
}

// Step is one operation asked of one agent, a [Sleep], a [Listen], an [Approve], a [Raise], an [Order], an [Each], or an [Emit].
type Step struct {
	Name string // unique in the workflow, of the same form as the workflow's

	// Sleep is nil unless the step waits for time to pass. Then it has a name, predecessors and
	// a condition, and nothing else.
	Sleep *Sleep
	// Listen is nil unless the step waits for signals. Then it has a name, predecessors, a condition
	// and perhaps a Timeout, after which it waits no more; 0 is for ever.
	Listen *Listen

	// Approve is nil unless the step waits for people who decide. Then it has what one has that
	// listens.
	Approve *Approve

	// Order is nil unless another order does the step. Then it has a name, predecessors, a condition,
	// With, Exhausted, and perhaps a Timeout, after which that order is cancelled; 0 is for ever.
	Order *Order

	// Each is nil unless the step is done for each item of a list. Then it has a name, predecessors, a
	// condition, Exhausted, and perhaps a Timeout, after which the orders that do items are cancelled; 0 is
	// for ever.
	Each *Each

	// Emit is nil unless the step gives a topic an event. Then it has a name, predecessors, a condition,
	// Timeout, Retry, Exhausted and Wait.
	Emit *Emit

	// Raise is nil unless the step ends the order. Then it has no more than one that sleeps.
	Raise *Raise

	Agent string // who does it: the last part of a request topic's name
	Do    string // the operation asked of the agent; the step's name where the file has none
	Undo  string // the operation that compensates for Do; "" when there is none

	// After names the steps that must complete before this one starts, in the
	// order of the file. It is resolved: a file without `after` means the step
	// above, and nil means that the step starts at once.
	After []string

	// When says whether the step runs or is skipped, With is what its agent
	// gets and UndoWith what the agent of its undo gets. They are nil where the
	// file has none: the step runs, and gets the input of the order, its undo
	// what the step got.
	When, With, UndoWith *Expression

	Timeout time.Duration // an attempt's complete-by is its start plus this; more than 0, but with Listen, Approve, Order or Each
	// TimeoutMax is how long an attempt may take whose agent says from time to time that it is
	// still at it: then its complete-by is that plus Timeout. 0 if its complete-by stays, else
	// longer than Timeout by a quarter of it at least.
	TimeoutMax time.Duration
	Queue      time.Duration // how long an attempt may wait until its agent can be asked; 0 is for ever. A minute where the file has none with [ExhaustedContinue]
	Retry      Retry
	Exhausted  Exhausted
	Wait       Wait // zero unless Exhausted is [ExhaustedWait]

	// Repeat is nil unless the agent is asked again and again. Then there is no Undo.
	Repeat *Repeat

	Limit *Limit // nil if the step asks its agent whenever that can be
}

// Repeat says until when an agent is asked, each time anew.
type Repeat struct {
	Until *Expression   // a condition, evaluated after each time; it sees the step's own output
	Every time.Duration // from the end of one time to the next; more than 0, at most a year
	Max   int           // how many times there are, at most; 1 to 1000
}

// Retry says how often, and how far apart, a step is attempted.
type Retry struct {
	Attempts   int           // in all, the first one included; 1 to 1000
	Backoff    time.Duration // before the second attempt; 0 or more
	Multiplier float64       // what each further back-off grows by; 1 to 100
	Max        time.Duration // what no back-off exceeds; Backoff or more
	Jitter     float64       // the part of a back-off, and of a [Wait], that is left to chance; 0 to 1

	// Never are codes of errors after which nothing is left to try, as if the agent had said
	// that they are permanent. After those of AtOnce the next attempt has no back-off.
	Never, AtOnce []string
}

// Exhausted says what happens to an order when a step's attempts are used up,
// or the order's time.
type Exhausted string

// The values of [Exhausted].
const (
	ExhaustedError      Exhausted = "error"      // the order stops and an operator decides; the default
	ExhaustedCompensate Exhausted = "compensate" // what was done is undone
	ExhaustedWait       Exhausted = "wait"       // the attempts begin again after [Wait]
	ExhaustedContinue   Exhausted = "continue"   // of a step only: the order goes on without it
)

// Wait says how a step with [ExhaustedWait] goes on.
type Wait struct {
	For    time.Duration // the pause before the attempts begin again; more than 0
	Rounds int           // how many such pauses there are before an operator decides; 1 to 1000
}

// ID is the key of a definition on the workflows topic: "name@version".
func ID(name string, version int) string {
	return name + "@" + strconv.Itoa(version)
}

// Level is the newest level of the language that this release runs. What is added to
// the language is of the next one.
const Level = 7

// Level is the lowest level of the language that has all that the workflow uses: it
// is registered only once every member of the group runs it.
func (w *Workflow) Level() int {
	level := 1
	switch {
	case w.Start != nil, w.Concurrency != nil:
		level = 7
	case w.Keep > 0:
		level = 5
	case len(w.Search) > 0:
		level = 4
	}
	for i := range w.Steps {
		level = max(level, w.Steps[i].level())
	}
	return level
}

// Format is the lowest format of a partition that has all events which the workflow may need, 0
// if all have them.
func (w *Workflow) Format() int {
	switch level := w.Level(); {
	case level >= 7:
		return events.StartFormat // as all of the level
	case level == 6:
		return events.EmitFormat
	case level == 5:
		return events.ChildrenFormat
	case level == 4:
		return events.SignalsFormat
	case level == 3:
		return events.SleepFormat
	}
	return 0
}

func (s *Step) level() int {
	switch r := s.Retry; {
	case s.Limit != nil, s.Each != nil && s.Each.limited():
		return 7
	case s.Emit != nil, s.Each != nil, s.Listen != nil && s.Listen.Key != nil:
		return 6
	case s.Order != nil:
		return 5
	case s.Listen != nil, s.Approve != nil, s.Raise != nil, s.TimeoutMax > 0:
		return 4
	case s.Sleep != nil, s.Repeat != nil, s.Exhausted == ExhaustedContinue, len(r.Never) > 0, len(r.AtOnce) > 0:
		return 3
	case s.Queue > 0:
		return 2
	}
	return 1
}

// Asks says that the step asks an agent; else it sleeps, listens, asks people, has other orders do
// it, emits or raises.
func (s *Step) Asks() bool { return s.Agent != "" }

// ID is the workflow's key on the workflows topic.
func (w *Workflow) ID() string { return ID(w.Name, w.Version) }

// Step returns the step of that name. The result points into w and is
// read-only. It allocates nothing.
func (w *Workflow) Step(name string) (*Step, bool) {
	i := w.Index(name)
	if i < 0 {
		return nil, false
	}
	return &w.Steps[i], true
}

// Index returns the position of the step of that name in Steps, or -1.
func (w *Workflow) Index(name string) int {
	// Few workflows have more than a dozen steps, where a scan beats a map.
	for i := range w.Steps {
		if w.Steps[i].Name == name {
			return i
		}
	}
	return -1
}

// Agents returns the distinct agents of the steps, in order of appearance. A workflow that
// asks nobody has none.
func (w *Workflow) Agents() []string {
	var agents []string
	seen := make(map[string]bool)
	w.inners(func(w *Workflow) {
		for i := range w.Steps {
			if agent := w.Steps[i].Agent; agent != "" && !seen[agent] {
				seen[agent] = true
				agents = append(agents, agent)
			}
		}
	})
	return slices.Clip(agents)
}
