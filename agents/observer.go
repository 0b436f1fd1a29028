package agents

import "time"

// Observer hears what an instance does, to measure it; package agentmetrics has one for Prometheus. It is
// called by many goroutines at once, while others wait: it must be quick, and call nothing of this package.
type Observer interface {
	// Turned tells in which state the instance is from now on.
	Turned(state State)
	// Queued tells how many requests are read and not begun.
	Queued(n int)
	// Taken tells how long after it was written a request was begun; or, if late, that it was not,
	// since its complete-by had passed.
	Taken(waited time.Duration, late bool)
	// Began tells that an operation is called, empty if the agent does not serve it. A request may be
	// several calls; see [Retry].
	Began(operation string)
	// Ended tells how a call ended, and how long it took. Each one that began ends.
	Ended(operation string, outcome Outcome, took time.Duration)
}

// State is in which an instance is.
type State string

// The states of an instance.
const (
	Waiting State = "waiting" // for its topic
	Serving State = "serving"
	Resting State = "resting" // its [Breaker] is open
	Trying  State = "trying"  // its breaker is half open: it executes one request at a time
)

// States are all of them.
var States = []State{Waiting, Serving, Resting, Trying}

// Outcome is how a call ended.
type Outcome string

// The outcomes of calls.
const (
	Succeeded       Outcome = "completed"
	FailedForNow    Outcome = "failed"    // another attempt may help
	FailedForGood   Outcome = "permanent" // see [Permanent]
	FailedLate      Outcome = "late"      // the complete-by passed, and nobody is answered
	AnsweredByOther Outcome = "later"     // see [ErrLater]
)

// unobserved is the observer of an agent that has none.
type unobserved struct{}

func (unobserved) Turned(State)                         {}
func (unobserved) Queued(int)                           {}
func (unobserved) Taken(time.Duration, bool)            {}
func (unobserved) Began(string)                         {}
func (unobserved) Ended(string, Outcome, time.Duration) {}

// outcome is how the last attempt ended.
func (c *call) outcome() Outcome {
	switch {
	case c.later():
		return AnsweredByOther
	case c.late():
		return FailedLate
	case c.err == nil:
		return Succeeded
	case permanent(c.err):
		return FailedForGood
	}
	return FailedForNow
}
