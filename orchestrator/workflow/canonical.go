package workflow

import (
	"encoding/json"
	"time"

	"github.com/waybill-dev/waybill/events"
)

// The canonical form has the keys of the file, in this order.
type (
	canonicalWorkflow struct {
		Workflow    string                 `json:"workflow"`
		Version     int                    `json:"version"`
		Deadline    *duration              `json:"deadline,omitempty"`
		Keep        *duration              `json:"keep,omitempty"`
		Overdue     Exhausted              `json:"overdue"`
		Start       *canonicalStart        `json:"start,omitempty"`
		Concurrency *canonicalConcurrency  `json:"concurrency,omitempty"`
		Input       *Schema                `json:"input,omitempty"`
		Search      map[string]*Expression `json:"search,omitempty"`
		Steps       []canonicalStep        `json:"steps"`
	}
	canonicalStep struct {
		Name      string            `json:"name"`
		Sleep     *canonicalSleep   `json:"sleep,omitempty"`
		Listen    *canonicalListen  `json:"listen,omitempty"`
		Key       *Expression       `json:"key,omitempty"`
		Approve   *canonicalApprove `json:"approve,omitempty"`
		Order     *canonicalOrder   `json:"order,omitempty"`
		Each      *canonicalEach    `json:"each,omitempty"`
		Emit      *canonicalEmit    `json:"emit,omitempty"`
		Raise     *canonicalRaise   `json:"raise,omitempty"`
		Agent     string            `json:"agent,omitempty"`
		Do        string            `json:"do,omitempty"`
		Undo      string            `json:"undo,omitempty"`
		After     []string          `json:"after"`
		When      *Expression       `json:"when,omitempty"`
		With      *Expression       `json:"with,omitempty"`
		UndoWith  *Expression       `json:"undoWith,omitempty"`
		Timeout   any               `json:"timeout,omitempty"`
		Queue     *duration         `json:"queue,omitempty"`
		Limit     *canonicalLimit   `json:"limit,omitempty"`
		Retry     *canonicalRetry   `json:"retry,omitempty"`
		Exhausted Exhausted         `json:"exhausted,omitempty"`
		Wait      *canonicalWait    `json:"wait,omitempty"`
		Repeat    *canonicalRepeat  `json:"repeat,omitempty"`
	}
	canonicalStart struct {
		Signal string      `json:"signal"`
		Key    *Expression `json:"key,omitempty"`
	}
	canonicalConcurrency struct {
		Key        *Expression       `json:"key"`
		OnConflict events.OnConflict `json:"onConflict"`
	}
	canonicalLimit struct {
		Name string      `json:"name"`
		Key  *Expression `json:"key,omitempty"`
	}
	canonicalRepeat struct {
		Until *Expression `json:"until"`
		Every duration    `json:"every"`
		Max   int         `json:"max"`
	}
	// canonicalSleep has one of them, and For is a duration or the text of an expression.
	canonicalSleep struct {
		For   any         `json:"for,omitempty"`
		Until *Expression `json:"until,omitempty"`
	}
	// canonicalListen has one of One, Any and All.
	canonicalListen struct {
		One   string   `json:"one,omitempty"`
		Count int      `json:"count,omitempty"`
		Any   []string `json:"any,omitempty"`
		All   []string `json:"all,omitempty"`
	}
	canonicalApprove struct {
		Roles    []string    `json:"roles"`
		Outcomes []string    `json:"outcomes"`
		Count    int         `json:"count"`
		Due      *duration   `json:"due,omitempty"`
		Escalate []string    `json:"escalate,omitempty"`
		Show     *Expression `json:"show,omitempty"`
	}
	canonicalOrder struct {
		Workflow string `json:"workflow"`
		Version  int    `json:"version,omitempty"`
		Await    bool   `json:"await"`
		ReplyTo  string `json:"replyTo,omitempty"`
	}
	canonicalEmit struct {
		Topic string      `json:"topic"`
		Type  string      `json:"type"`
		Key   *Expression `json:"key,omitempty"`
		Data  *Expression `json:"data,omitempty"`
	}
	canonicalRaise struct {
		Code       string      `json:"code"`
		Message    *Expression `json:"message,omitempty"`
		Compensate bool        `json:"compensate"`
	}
	// canonicalTimeout is the timeout of a step that has a longest one, too.
	canonicalTimeout struct {
		After duration `json:"after"`
		Max   duration `json:"max"`
	}
	canonicalRetry struct {
		Attempts   int      `json:"attempts"`
		Backoff    duration `json:"backoff"`
		Multiplier float64  `json:"multiplier"`
		Max        duration `json:"max"`
		Jitter     float64  `json:"jitter"`
		Never      []string `json:"never,omitempty"`
		AtOnce     []string `json:"atOnce,omitempty"`
	}
	canonicalWait struct {
		For    duration `json:"for"`
		Rounds int      `json:"rounds"`
	}
	duration time.Duration
)

// MarshalText writes the duration as files do, such as 1m30s.
func (d duration) MarshalText() ([]byte, error) {
	return []byte(time.Duration(d).String()), nil
}

// optional is nil for what the file does not have.
func optional(d time.Duration) *duration {
	if d == 0 {
		return nil
	}
	return (*duration)(&d)
}

func (l *Listen) canonical() *canonicalListen {
	switch l.How {
	case events.ListenAny:
		return &canonicalListen{Any: l.Names}
	case events.ListenAll:
		return &canonicalListen{All: l.Names}
	}
	return &canonicalListen{One: l.Names[0], Count: l.Count}
}

// MarshalJSON returns the canonical form: the file as JSON on one line, every
// default spelled out. Files that mean the same have the same canonical bytes,
// and parsing them gives an equal workflow. It never fails.
func (w *Workflow) MarshalJSON() ([]byte, error) {
	c := canonicalWorkflow{
		Workflow: w.Name, Version: w.Version, Overdue: w.Overdue, Input: w.Input,
		Steps: canonicalSteps(w.Steps),
	}
	if w.Start != nil {
		c.Start = &canonicalStart{w.Start.Signal, w.Start.Key}
	}
	if w.Concurrency != nil {
		c.Concurrency = &canonicalConcurrency{w.Concurrency.Key, w.Concurrency.OnConflict}
	}
	c.Deadline, c.Keep = optional(w.Deadline), optional(w.Keep)
	for _, m := range w.Search {
		if c.Search == nil {
			c.Search = make(map[string]*Expression, len(w.Search))
		}
		c.Search[m.Name] = m.Value
	}
	return json.Marshal(c)
}

// Definition is the step as the canonical form has it, but for its name.
func (s *Step) Definition() []byte {
	c := canonicalSteps([]Step{*s})
	c[0].Name = ""
	b, err := json.Marshal(c[0])
	if err != nil {
		panic(err) // it never fails
	}
	return b
}

func canonicalSteps(all []Step) []canonicalStep {
	steps := make([]canonicalStep, len(all))
	for i, s := range all {
		steps[i] = canonicalStep{
			Name: s.Name, Agent: s.Agent, Do: s.Do, Undo: s.Undo,
			After: append([]string{}, s.After...), // [], never null
			When:  s.When, With: s.With, UndoWith: s.UndoWith,
			Queue:     optional(s.Queue),
			Exhausted: s.Exhausted,
		}
		if raise := s.Raise; raise != nil {
			steps[i].Raise = &canonicalRaise{raise.Code, raise.Message, raise.Compensate}
			continue
		}
		if sleep := s.Sleep; sleep != nil {
			steps[i].Sleep = &canonicalSleep{Until: sleep.Until}
			switch {
			case sleep.Lasts != nil:
				steps[i].Sleep.For = sleep.Lasts
			case sleep.For > 0:
				steps[i].Sleep.For = duration(sleep.For)
			}
			continue
		}
		if l, a := s.Listen, s.Approve; l != nil || a != nil {
			if l != nil {
				steps[i].Listen, steps[i].Key = l.canonical(), l.Key
			} else {
				steps[i].Approve = &canonicalApprove{a.Roles, a.Outcomes, a.Count, optional(a.Due), a.Escalate, a.Show}
			}
			if s.Timeout > 0 {
				steps[i].Timeout = duration(s.Timeout)
			}
			continue
		}
		if o := s.Order; o != nil {
			steps[i].Order = &canonicalOrder{o.Workflow, o.Version, !o.Detached, o.ReplyTo}
			if s.Timeout > 0 {
				steps[i].Timeout = duration(s.Timeout)
			}
			continue
		}
		if e := s.Each; e != nil {
			steps[i].Each = e.canonical()
			if s.Timeout > 0 {
				steps[i].Timeout = duration(s.Timeout)
			}
			continue
		}
		if e := s.Emit; e != nil { // it has attempts
			steps[i].Emit = &canonicalEmit{e.Topic, e.Type, e.Key, e.Data}
		}
		steps[i].Timeout = duration(s.Timeout)
		if s.TimeoutMax > 0 {
			steps[i].Timeout = canonicalTimeout{duration(s.Timeout), duration(s.TimeoutMax)}
		}
		if s.Limit != nil {
			steps[i].Limit = &canonicalLimit{s.Limit.Name, s.Limit.Key}
		}
		steps[i].Retry = &canonicalRetry{
			Attempts:   s.Retry.Attempts,
			Backoff:    duration(s.Retry.Backoff),
			Multiplier: s.Retry.Multiplier,
			Max:        duration(s.Retry.Max),
			Jitter:     s.Retry.Jitter,
			Never:      s.Retry.Never,
			AtOnce:     s.Retry.AtOnce,
		}
		if s.Exhausted == ExhaustedWait {
			steps[i].Wait = &canonicalWait{For: duration(s.Wait.For), Rounds: s.Wait.Rounds}
		}
		if s.Repeat != nil {
			steps[i].Repeat = &canonicalRepeat{s.Repeat.Until, duration(s.Repeat.Every), s.Repeat.Max}
		}
	}
	return steps
}
