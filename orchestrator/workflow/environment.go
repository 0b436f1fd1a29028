package workflow

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/functions"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/ext"
	"cel.dev/cel-go/interpreter"
)

// What an expression may be and cost. The files come from people and the
// inputs from anybody.
const (
	maxExpression  = 8 << 10 // bytes
	maxElements    = 2000    // nodes of the syntax tree, with what macros make of them
	maxParentheses = 60      // operators, lists and calls inside one another
	maxLoops       = 4       // macros such as map and filter inside one another
	maxRange       = 10_000  // elements of lists.range
	maxPattern     = 500     // instructions of a compiled regular expression

	maxCost = 200_000 // as CEL counts: about one for each operator and element
	maxCall = 1 << 20 // comparisons that one call of a function may take
)

// theLanguage makes the environment when the first expression needs it:
// a process whose workflows have none never pays for it.
var theLanguage = sync.OnceValues(func() (*cel.Env, error) {
	registry, err := types.NewRegistry()
	if err != nil {
		return nil, err
	}
	return cel.NewCustomEnv(
		cel.CustomTypeAdapter(types.DefaultTypeAdapter),
		cel.CustomTypeProvider(provider{registry}),
		cel.StdLib(),
		cel.OptionalTypes(),
		ext.Strings(ext.StringsMaxPrecision(100)),
		ext.Math(),
		ext.Lists(ext.ListsMaxRangeSize(maxRange)),
		ext.Sets(),
		ext.Encoders(ext.EncodersVersion(0)),
		ext.Bindings(),
		fromNumber("string", cel.StringType),
		fromNumber("double", cel.DoubleType),
		cel.CrossTypeNumericComparisons(true),
		cel.DefaultUTCTimeZone(true),
		cel.Variable("input", cel.DynType),
		cel.Variable("steps", cel.MapType(cel.StringType, cel.ObjectType(stepType))),
		cel.ParserExpressionSizeLimit(maxExpression),
		cel.ParserRecursionLimit(maxParentheses),
		cel.ExpressionNodeLimit(maxElements),
		cel.RegexProgramSizeLimit(maxPattern),
		cel.ASTValidators(
			cel.ValidateComprehensionNestingLimit(maxLoops),
			cel.ValidateRegexLiterals(),
			cel.ValidateDurationLiterals(),
			cel.ValidateTimestampLiterals(),
		),
	)
})

// fromNumber is the function that makes something else of a [number].
func fromNumber(name string, to *cel.Type) cel.EnvOption {
	return cel.Function(name, cel.Overload("number_to_"+name, []*cel.Type{numberType}, to, cel.UnaryBinding(
		func(n ref.Val) ref.Val { return n.ConvertToType(to) })))
}

// plan plans the evaluation of a checked expression.
func plan(env *cel.Env, checked *cel.Ast) (cel.Program, error) {
	return env.Program(checked,
		cel.CostLimit(maxCost),
		cel.InterruptCheckFrequency(10),
		cel.OptimizeRegex(interpreter.MatchesRegexOptimization),
		cel.CustomDecoratorV2(func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
			call, ok := i.(interpreter.InterpretableCall)
			if !ok || !slices.Contains(weighed, call.Function()) {
				return i, nil
			}
			overloads, err := env.Functions()[call.Function()].Bindings()
			if err != nil || len(overloads) == 0 {
				return nil, fmt.Errorf("the function %s has no implementation: %w", call.Function(), err)
			}
			run := overloads[len(overloads)-1] // the one that finds the others
			return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(), weighedCall(call.Function(), run)), nil
		}),
	)
}

// weighed are the functions that can take much more time or memory than the
// size of their arguments. CEL counts a call only after it has ended.
var weighed = []string{
	"distinct", "indexOf", "join", "lastIndexOf", "matches", "replace", "sets.contains", "sets.equivalent", "sets.intersects",
}

// weighedCall returns a function that is not run where it would take too much.
func weighedCall(name string, run *functions.Overload) functions.FunctionOp {
	return func(args ...ref.Val) ref.Val {
		switch {
		case work(name, args) > maxCall:
			return types.NewErr("cost limit exceeded")
		case len(args) == 1 && run.Unary != nil:
			return run.Unary(args[0])
		case len(args) == 2 && run.Binary != nil:
			return run.Binary(args[0], args[1])
		case run.Function != nil:
			return run.Function(args...)
		}
		return types.NoSuchOverloadErr()
	}
}

// work is how many simple operations, or bytes, a call may take.
func work(name string, args []ref.Val) int {
	total := size(args, 0)
	switch name {
	case "distinct":
		return total * total
	case "replace":
		return total * max(1, size(args, 2))
	case "join":
		total *= 1 + size(args, 1)
		if list, ok := args[0].(traits.Lister); ok && total <= maxCall {
			for it := list.Iterator(); it.HasNext() == types.True; {
				total += size([]ref.Val{it.Next()}, 0)
			}
		}
		return total
	}
	return total * max(1, size(args, 1))
}

// size is the length of an argument; 0 when it has none.
func size(args []ref.Val, i int) int {
	if i >= len(args) {
		return 0
	}
	if text, ok := args[i].(types.String); ok {
		return len(text) // Size counts characters one by one
	}
	if sizer, ok := args[i].(traits.Sizer); ok {
		n, _ := sizer.Size().(types.Int)
		return int(min(n, math.MaxInt32))
	}
	return 0
}

// The type of an entry of the variable steps, and that of its error.
const (
	stepType  = "waybill.step"
	errorType = "waybill.error"
)

// attributes are what an expression may ask a step for.
var attributes = []string{"error", "input", "output", "state"}

// structs are the types that have fields.
var structs = map[string]map[string]*types.FieldType{
	stepType:  {"error": {Type: types.NewObjectType(errorType)}, "input": {Type: types.DynType}, "output": {Type: types.DynType}, "state": {Type: types.StringType}},
	errorType: {"code": {Type: types.StringType}, "message": {Type: types.StringType}},
}

// provider knows the type of steps, and no other messages: expressions make
// JSON, so that protocol buffers would only be another way to say the same.
type provider struct{ *types.Registry }

// FindStructType implements types.Provider.
func (provider) FindStructType(name string) (*types.Type, bool) {
	return types.NewTypeTypeWithParam(types.NewObjectType(name)), structs[name] != nil
}

// FindStructFieldNames implements types.Provider.
func (provider) FindStructFieldNames(name string) ([]string, bool) {
	return slices.Sorted(maps.Keys(structs[name])), structs[name] != nil
}

// FindStructFieldType implements types.Provider.
func (provider) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	t, ok := structs[name][field]
	return t, ok
}
