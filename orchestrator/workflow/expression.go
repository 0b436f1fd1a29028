package workflow

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// Expression is an expression of CEL, the Common Expression Language, that
// [Parse] found in a file: checked, compiled, and ready to be evaluated by
// several goroutines at once.
//
// An evaluation ends: what it costs is counted, and after a second it is
// ended, and tried again, three times in all. The order in which it goes over the members of an object is any.
type Expression struct {
	key    string // of the file: when, with, undoWith, for, until, message, key, data, items, start.key, concurrency.key, or search and a name
	source string
	steps  []string // that it names, in order of appearance

	reads   map[string]bool // what it looks at: input, and for steps NAME.input and NAME.output
	program cel.Program
}

// Scope is what an expression can see.
type Scope struct {
	Input jsontext.Value // the input of the order; empty is null

	// Step returns what became of a step. It is called once for each name in
	// [Expression.Steps]: a step that surely came before, or, in UndoWith, the
	// step itself.
	Step func(name string) Result

	// Shared, if it is not nil, is what the expression has in common with those before it.
	Shared *Shared
}

// Shared is what the expressions of one decision have in common: what they looked at, which is
// decoded once, and what they may cost together. The texts must stay as they are meanwhile. The
// zero value is ready. Not safe for concurrent use.
type Shared struct {
	values map[text]decoded
	bytes  int // of their texts
	cost   uint64
}

const (
	// sharedAtMost is how many bytes of text are kept decoded, which takes ten times as much
	// memory and more: eight of the largest values, and all that most decisions look at. To
	// decode one that is not kept costs as much as evaluating for as long.
	sharedAtMost = 8 << 20
	// maxShared is what expressions may cost together: no other order of the partition is
	// decided on meanwhile. The dearest take a second or two for that.
	maxShared = 100 * maxCost
)

// Dear says that the expressions have cost half of what they may.
func (s *Shared) Dear() bool { return s.cost >= maxShared/2 }

// text names a value by where it is in memory.
type text struct {
	first *byte
	size  int
}

type decoded struct {
	value any
	large string // the first number of too many digits to compute with
}

// Result is what became of a step.
type Result struct {
	State  string         // such as completed or skipped; what expressions compare it with
	Input  jsontext.Value // what its agent got; empty when there is none
	Output jsontext.Value // what its agent answered; empty when there is none
	// Code and Message are those of the error with which it failed for good, while the order
	// goes on. Code is never empty then.
	Code, Message string
}

// MaxResult is the size of the largest result of an expression, in bytes. It
// is what a message may hold.
const MaxResult = 1 << 20

// maxTime is how long an evaluation may take, and maxTries how often one is begun
// that took longer: the machine may have been busy, or the process stopped. Its
// result becomes part of the order's history, and is never computed again.
const (
	maxTime  = time.Second
	maxTries = 3
)

func timed() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), maxTime)
}

// String returns the text of the expression as the file has it.
func (e *Expression) String() string { return e.source }

// MarshalText returns the text of the expression.
func (e *Expression) MarshalText() ([]byte, error) { return []byte(e.source), nil }

// Steps returns the names of the steps that the expression looks at, in order
// of appearance. The caller must not change the result.
func (e *Expression) Steps() []string { return e.steps }

// Holds evaluates a condition.
//
// The error says which expression failed and why, in at most 1 KiB.
func (e *Expression) Holds(s Scope) (holds bool, err error) {
	err = e.evaluate(s, func(v ref.Val) error {
		truth, ok := v.(types.Bool)
		if holds = bool(truth); !ok {
			return fmt.Errorf("it is true or false, this is %s", describe(v))
		}
		return nil
	})
	return holds, err
}

// Value evaluates the expression to JSON of at most [MaxResult] bytes. Numbers
// that the expression only passes on keep all their digits. Members of objects
// are in the order of their names.
//
// The error says which expression failed and why, in at most 1 KiB.
func (e *Expression) Value(s Scope) (value jsontext.Value, err error) {
	err = e.evaluate(s, func(v ref.Val) (err error) {
		value, err = encode(v)
		return err
	})
	return value, err
}

// variables is what an evaluation sees.
type variables struct {
	vars    map[string]any
	without map[string]string // by attribute, the first step that has none
	large   string            // the first number of too many digits to compute with
}

// evaluate passes what the expression is to use.
func (e *Expression) evaluate(s Scope, use func(ref.Val) error) error {
	return e.within(timed, s, use)
}

// within evaluates in the time that each try is given.
func (e *Expression) within(given func() (context.Context, context.CancelFunc), s Scope, use func(ref.Val) error) error {
	vs := &variables{without: map[string]string{}}
	var err error
	if s.Shared != nil && s.Shared.cost >= maxShared {
		err = errors.New("the expressions that came before it in this decision cost too much together; use shorter lists and texts, or let agents do it")
	} else {
		err = vs.read(e, s)
	}
	for try, done := 0, err != nil; !done; {
		ctx, cancel := given()
		err = guarded(func() error {
			v, details, err := e.program.ContextEval(ctx, vs.vars)
			s.Shared.pay(details)
			if err == nil {
				err = use(v)
			}
			return err
		})
		cancel()
		try++
		done = err == nil || try == maxTries || !strings.Contains(err.Error(), interrupted)
	}
	if err != nil {
		return errors.New(bound(fmt.Sprintf("%s %s: %s", e.key, quote(e.source), vs.explain(err.Error()))))
	}
	return nil
}

// read decodes what the expression looks at.
func (vs *variables) read(e *Expression, s Scope) error {
	steps := make(map[string]any, len(e.steps))
	vs.vars = map[string]any{"steps": steps}
	if e.reads["input"] {
		v, err := vs.decode(s.Input, s.Shared)
		if err != nil {
			return fmt.Errorf("the order's input %w", err)
		}
		vs.vars["input"] = v
	}
	for _, name := range e.steps {
		var r Result
		if s.Step != nil {
			r = s.Step(name)
		}
		step := map[string]any{"state": r.State}
		steps[name] = step
		if r.Code != "" {
			step["error"] = map[string]string{"code": r.Code, "message": r.Message}
		} else if vs.without["error"] == "" {
			vs.without["error"] = name
		}
		for attribute, raw := range map[string]jsontext.Value{"input": r.Input, "output": r.Output} {
			switch {
			case len(raw) == 0 && vs.without[attribute] == "":
				vs.without[attribute] = name
			case len(raw) > 0 && e.reads[name+"."+attribute]:
				v, err := vs.decode(raw, s.Shared)
				if err != nil {
					return fmt.Errorf("the %s of step %s %w", attribute, name, err)
				}
				step[attribute] = v
			}
		}
	}
	return nil
}

// decode decodes a value, unless that was done before.
func (vs *variables) decode(raw jsontext.Value, shared *Shared) (any, error) {
	if shared == nil {
		shared = new(Shared)
	}
	key := text{size: len(raw)}
	if len(raw) > 0 {
		key.first = &raw[0]
	}
	d, known := shared.values[key]
	if !known {
		v, err := decode(raw, func(text string) (any, error) {
			n := numberOf(text)
			if large, ok := n.(number); ok && d.large == "" {
				d.large = string(large)
			}
			return n, nil
		})
		if err != nil {
			return nil, err
		}
		d.value = v
		if shared.values == nil {
			shared.values = make(map[text]decoded)
		}
		if shared.bytes+len(raw) <= sharedAtMost {
			shared.bytes += len(raw)
			shared.values[key] = d
		} else { // the next expression decodes it again
			shared.cost += uint64(len(raw)) / 2
		}
	}
	if vs.large == "" {
		vs.large = d.large
	}
	return d.value, nil
}

// pay counts what an evaluation cost. One that panicked, or was interrupted before it began, has
// no details.
func (s *Shared) pay(details *cel.EvalDetails) {
	if s == nil || details == nil {
		return
	}
	if cost := details.ActualCost(); cost != nil {
		s.cost += *cost
	}
}

// interrupted is what CEL says of an evaluation that was ended.
const interrupted = "operation interrupted"

// explain turns what CEL says into what an operator can act on.
func (vs *variables) explain(message string) string {
	switch {
	case strings.Contains(message, "cost limit exceeded"), strings.Contains(message, interrupted):
		return "it costs too much with this input; use shorter lists and texts, or let the agent do it"
	case strings.Contains(message, "no such overload"):
		message += "; an operator or a function does not take these values, convert one with string(), int() or double()"
		if vs.large != "" {
			message += fmt.Sprintf("; the number %s has too many digits to compute with: pass it on, or use double() or string() of it", quote(vs.large))
		}
		return message
	}
	if _, key, ok := strings.Cut(message, "no such key: "); ok && vs.without[key] != "" {
		why := "it was skipped, or failed"
		if key == "error" {
			why = "it did not fail"
		}
		message += fmt.Sprintf("; the step %s has none, as it has when %s: ask with has() first, or use .? and orValue()", vs.without[key], why)
	}
	return message
}
