package workflow

import (
	"encoding/json"
	"time"
)

// The canonical form has the keys of the file, in this order.
type (
	canonicalWorkflow struct {
		Workflow string          `json:"workflow"`
		Version  int             `json:"version"`
		Deadline *duration       `json:"deadline,omitempty"`
		Overdue  Exhausted       `json:"overdue"`
		Input    *Schema         `json:"input,omitempty"`
		Steps    []canonicalStep `json:"steps"`
	}
	canonicalStep struct {
		Name      string         `json:"name"`
		Agent     string         `json:"agent"`
		Do        string         `json:"do"`
		Undo      string         `json:"undo,omitempty"`
		After     []string       `json:"after"`
		When      *Expression    `json:"when,omitempty"`
		With      *Expression    `json:"with,omitempty"`
		UndoWith  *Expression    `json:"undoWith,omitempty"`
		Timeout   duration       `json:"timeout"`
		Queue     *duration      `json:"queue,omitempty"`
		Retry     canonicalRetry `json:"retry"`
		Exhausted Exhausted      `json:"exhausted"`
		Wait      *canonicalWait `json:"wait,omitempty"`
	}
	canonicalRetry struct {
		Attempts   int      `json:"attempts"`
		Backoff    duration `json:"backoff"`
		Multiplier float64  `json:"multiplier"`
		Max        duration `json:"max"`
		Jitter     float64  `json:"jitter"`
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

// MarshalJSON returns the canonical form: the file as JSON on one line, every
// default spelled out. Files that mean the same have the same canonical bytes,
// and parsing them gives an equal workflow. It never fails.
func (w *Workflow) MarshalJSON() ([]byte, error) {
	c := canonicalWorkflow{
		Workflow: w.Name, Version: w.Version, Overdue: w.Overdue, Input: w.Input,
		Steps: make([]canonicalStep, len(w.Steps)),
	}
	c.Deadline = optional(w.Deadline)
	for i, s := range w.Steps {
		c.Steps[i] = canonicalStep{
			Name: s.Name, Agent: s.Agent, Do: s.Do, Undo: s.Undo,
			After: append([]string{}, s.After...), // [], never null
			When:  s.When, With: s.With, UndoWith: s.UndoWith,
			Timeout: duration(s.Timeout), Queue: optional(s.Queue),
			Retry: canonicalRetry{
				Attempts:   s.Retry.Attempts,
				Backoff:    duration(s.Retry.Backoff),
				Multiplier: s.Retry.Multiplier,
				Max:        duration(s.Retry.Max),
				Jitter:     s.Retry.Jitter,
			},
			Exhausted: s.Exhausted,
		}
		if s.Exhausted == ExhaustedWait {
			c.Steps[i].Wait = &canonicalWait{For: duration(s.Wait.For), Rounds: s.Wait.Rounds}
		}
	}
	return json.Marshal(c)
}
