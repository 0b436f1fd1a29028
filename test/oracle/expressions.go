package oracle

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/ext"
)

// What docs/workflows.md allows an expression to be and to cost.
const (
	maxLevels = 1000
	maxResult = 1 << 20
	maxCost   = 200_000
)

// errUnjudged says that the oracle cannot tell what comes of an expression: a
// number has more digits than CEL holds.
var errUnjudged = errors.New("it has a number of too many digits")

// language is CEL as docs/workflows.md has it, for files that were found good: a
// step is a map here, and what does not fit together fails when it is evaluated.
var language = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(
		cel.OptionalTypes(), ext.Strings(), ext.Math(), ext.Lists(), ext.Sets(), ext.Encoders(), ext.Bindings(),
		cel.CrossTypeNumericComparisons(true), cel.DefaultUTCTimeZone(true),
		cel.Variable("input", cel.DynType), cel.Variable("steps", cel.MapType(cel.StringType, cel.DynType)),
	)
})

// programs has what was compiled, by source: the same few expressions are
// evaluated thousands of times.
var programs sync.Map

type compiled struct {
	cel.Program
	err error
}

func compile(source string) (p compiled) {
	found, _ := programs.Load(source)
	if p, ok := found.(compiled); ok {
		return p
	}
	env, err := language()
	if err != nil {
		panic(err)
	}
	checked, issues := env.Compile(source)
	if p.err = issues.Err(); p.err == nil {
		p.Program, p.err = env.Program(checked, cel.CostLimit(maxCost))
	}
	programs.Store(source, p)
	return p
}

// holds evaluates a condition.
func (l *Ledger) holds(source string) (bool, error) {
	v, err := l.evaluate(source)
	if err != nil {
		return false, err
	}
	if truth, ok := v.(types.Bool); ok {
		return bool(truth), nil
	}
	return false, fmt.Errorf("it is %v, and neither true nor false", v)
}

// value evaluates an expression to JSON; see [canonical].
func (l *Ledger) value(source string) ([]byte, error) {
	v, err := l.evaluate(source)
	if err != nil {
		return nil, err
	}
	plain, err := plain(v, 0)
	if err != nil {
		return nil, err
	}
	return encode(plain)
}

func (l *Ledger) evaluate(source string) (ref.Val, error) {
	p := compile(source)
	if p.err != nil {
		return nil, p.err
	}
	vars, err := l.scope(source)
	if err != nil {
		return nil, err
	}
	v, _, err := p.Eval(vars)
	return v, err //nolint:wrapcheck // whoever asks says which expression it is
}

// scope is what an expression sees of the order. What its text does not name is
// left out.
func (l *Ledger) scope(source string) (map[string]any, error) {
	steps := make(map[string]any)
	vars := map[string]any{"steps": steps}
	var err error
	if strings.Contains(source, "input") {
		if vars["input"], err = decode(l.accepted.Input); err != nil {
			return nil, err
		}
	}
	for _, s := range l.Steps {
		if !strings.Contains(source, s.Name) {
			continue
		}
		step := map[string]any{"state": s.State}
		steps[s.Name] = step
		if s.Passed && s.Last != nil {
			step["error"] = map[string]any{"code": cmp.Or(s.Last.Code, "error"), "message": s.Last.Message}
		}
		for name, raw := range map[string]jsontext.Value{"input": l.inputOf(s), "output": s.Output} {
			if len(raw) == 0 || !strings.Contains(source, name) {
				continue
			}
			if step[name], err = decode(raw); err != nil {
				return nil, err
			}
		}
	}
	return vars, nil
}

// canonical is JSON in which equal values have equal bytes.
func canonical(raw jsontext.Value) ([]byte, error) {
	v, err := decode(raw)
	if err != nil {
		return nil, err
	}
	return encode(v)
}

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("it has no form in JSON: %w", err)
	}
	if b.Len() > maxResult+1 { // a line feed is added
		return nil, errors.New("its result is too large")
	}
	return b.Bytes(), nil
}

// decode reads JSON as expressions see it. Nothing is null.
func decode(raw jsontext.Value) (v any, err error) {
	if len(raw) == 0 {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("read JSON: %w", err)
	}
	return counted(v, 0)
}

// counted makes of numbers what CEL computes with.
func counted(v any, level int) (_ any, err error) {
	if level > maxLevels {
		return nil, errors.New("it is nested too deeply")
	}
	switch v := v.(type) {
	case json.Number:
		return number(v.String())
	case []any:
		for i := range v {
			if v[i], err = counted(v[i], level+1); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for name := range v {
			if v[name], err = counted(v[name], level+1); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

func number(text string) (any, error) {
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return i, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || len(text) > 100 || f == 0 && strings.ContainsAny(text, "eE") {
		return nil, errUnjudged
	}
	// A double that keeps every digit is one whose shortest text is the same number.
	exact, ok := new(big.Rat).SetString(text)
	kept, _ := new(big.Rat).SetString(strconv.FormatFloat(f, 'g', -1, 64))
	if !ok || exact.Cmp(kept) != 0 {
		return nil, errUnjudged
	}
	return f, nil
}

// plain makes of a value what package json takes.
func plain(v ref.Val, level int) (any, error) {
	if level > maxLevels {
		return nil, errors.New("its result is nested too deeply")
	}
	switch v := v.(type) {
	case types.Double:
		return float64(v) + 0, nil // -0 is 0
	case types.Bool, types.Int, types.Uint, types.String, types.Bytes:
		return v.Value(), nil
	case types.Null:
		return nil, nil
	case types.Timestamp:
		return v.UTC(), nil
	case types.Duration:
		return strconv.FormatFloat(v.Seconds(), 'f', -1, 64) + "s", nil
	case traits.Mapper:
		object := make(map[string]any)
		for it := v.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			name, ok := key.ConvertToType(types.StringType).(types.String)
			if _, taken := object[string(name)]; !ok || taken {
				return nil, fmt.Errorf("%v is no name of a member, or comes twice", key)
			}
			member, err := plain(v.Get(key), level+1)
			if err != nil {
				return nil, err
			}
			object[string(name)] = member
		}
		return object, nil
	case traits.Lister:
		list := []any{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			element, err := plain(it.Next(), level+1)
			if err != nil {
				return nil, err
			}
			list = append(list, element)
		}
		return list, nil
	}
	return nil, fmt.Errorf("a %s has no form in JSON", v.Type().TypeName())
}
