package workflow

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
)

const exampleStep = `steps.reserve.output or steps["pick-up"].output`

// maxFaults is how many problems of one expression are reported.
const maxFaults = 5

// expressions compiles the expressions of all steps. The graph is nil where
// the steps cannot be put in an order; what comes before what is not checked
// then.
func (r *reader) expressions(drafts []draft, graph [][]edge) {
	index := make(map[string]int, len(drafts))
	for i, d := range slices.Backward(drafts) {
		index[d.Name] = i // the first one where a name is taken twice
	}
	for i := range drafts {
		d := &drafts[i]
		if d.when == nil && d.with == nil && d.undoWith == nil && d.lasts == nil && d.until == nil && d.enough == nil && d.message == nil && d.show == nil && d.key == nil && d.data == nil && d.items == nil && d.listed == nil && d.turns == nil {
			continue
		}
		s := &sight{r: r, place: i, index: index, drafts: drafts, before: ancestors(graph, i)}
		d.When = s.expression(d.when)
		d.With = s.expression(d.with)
		if d.Sleep != nil {
			d.Sleep.Lasts, d.Sleep.Until = s.expression(d.lasts), s.expression(d.until)
		}
		if d.Raise != nil {
			d.Raise.Message = s.expression(d.message)
		}
		if d.Approve != nil {
			d.Approve.Show = s.expression(d.show)
		}
		if d.Emit != nil {
			d.Emit.Key, d.Emit.Data = s.expression(d.key), s.expression(d.data)
		}
		if d.Limit != nil {
			d.Limit.Key = s.expression(d.turns)
		}
		if d.Listen != nil {
			d.Listen.Key = s.expression(d.key)
		}
		if d.Each != nil {
			d.Each.Items, d.Each.With = s.expression(d.items), s.expression(d.listed)
		}
		s.itself = true
		d.UndoWith = s.expression(d.undoWith)
		if d.Repeat != nil {
			d.Repeat.Until = s.expression(d.enough)
		}
	}
}

// ancestors returns which steps surely come before the i-th, nil when that is
// not known.
func ancestors(graph [][]edge, i int) []bool {
	if graph == nil {
		return nil
	}
	before := make([]bool, len(graph))
	for todo := []int{i}; len(todo) > 0; {
		step := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, e := range graph[step] {
			if !before[e.from] {
				before[e.from] = true
				todo = append(todo, e.from)
			}
		}
	}
	return before
}

// sight is what one expression may see.
type sight struct {
	r        *reader
	at       *scalar
	place    int
	index    map[string]int // steps by name
	drafts   []draft
	before   []bool // which steps surely come before; nil where that is not known
	itself   bool   // whether the expression may look at its own step
	searches bool   // whether it is of search, or of start, and sees the input alone

	info   *ast.SourceInfo
	names  []string        // of the steps that it looks at
	reads  map[string]bool // input, and for steps NAME.ATTRIBUTE
	faults int
}

// expression compiles an expression, and returns nil when there is none or it
// is refused.
func (s *sight) expression(at *scalar) *Expression {
	if at == nil {
		return nil
	}
	s.at, s.names, s.reads, s.faults = at, nil, map[string]bool{}, 0
	env, err := theLanguage()
	if err != nil {
		s.report(1, 0, "%s cannot be read: %v", at.key, err)
		return nil
	}
	checked := s.check(env)
	if checked == nil {
		return nil
	}
	program, err := plan(env, checked)
	if err != nil {
		s.report(1, 0, "%s cannot be evaluated: %v; write it in another way", at.key, err)
		return nil
	}
	e := &Expression{key: at.key, source: at.text, steps: s.names, reads: s.reads, program: program}
	s.sleepable(e)
	return e
}

// check returns nil when it has reported a problem.
func (s *sight) check(env *cel.Env) *cel.Ast {
	key := s.at.key
	if len(s.at.text) > maxExpression {
		s.report(1, 0, "%s has %d bytes; at most %d are allowed: let the agent do some of the work", key, len(s.at.text), maxExpression)
		return nil
	}
	if strings.TrimSpace(s.at.text) == "" {
		instead := ", or leave the key away"
		if slices.Contains(required, key) {
			instead = ""
		}
		s.report(1, 0, "%s is empty; write an expression%s", key, instead)
		return nil
	}
	parsed, issues := env.Parse(s.at.text)
	if s.issues(issues) {
		return nil
	}
	s.walk(parsed.NativeRep())
	if s.faults > 0 {
		return nil
	}
	checked, issues := env.Check(parsed)
	if s.issues(issues) {
		return nil
	}
	switch t := checked.OutputType(); {
	case (key == "when" || s.at == s.drafts[s.place].enough) && t.Kind() != types.BoolKind && t.Kind() != types.DynKind:
		s.report(1, 0, "%s is true or false, this is of the type %s; write a comparison, for example input.total > 100", key, cel.FormatCELType(t))
	case s.at == s.drafts[s.place].until && !slices.Contains([]types.Kind{types.TimestampKind, types.StringKind, types.DynKind}, t.Kind()):
		s.report(1, 0, "until is a time, this is of the type %s; write one that the input has, or timestamp(\"2026-12-24T18:00:00Z\")", cel.FormatCELType(t))
	case key == "for" && !slices.Contains([]types.Kind{types.DurationKind, types.StringKind, types.DynKind}, t.Kind()):
		s.report(1, 0, "for is a duration, this is of the type %s; write one that the input has, or duration(\"90s\")", cel.FormatCELType(t))
	case (key == "start.key" || key == "concurrency.key") && !slices.Contains([]types.Kind{types.IntKind, types.UintKind, types.StringKind, types.DynKind}, t.Kind()):
		s.report(1, 0, "%s is a text or a whole number, this is of the type %s; write one that the input has, or convert it with string()", key, cel.FormatCELType(t))
	case s.searches && slices.Contains([]types.Kind{types.ListKind, types.MapKind, types.NullTypeKind}, t.Kind()):
		s.report(1, 0, "%s is a text, a number, or true or false, this is of the type %s; write one of its values", key, cel.FormatCELType(t))
	case key == "message" && !slices.Contains([]types.Kind{types.StringKind, types.DynKind}, t.Kind()):
		s.report(1, 0, "message is a text, this is of the type %s; write one in quotes, or that the input has, or convert it with string()", cel.FormatCELType(t))
	case key == "items" && !slices.Contains([]types.Kind{types.ListKind, types.DynKind}, t.Kind()):
		s.report(1, 0, "items is a list, this is of the type %s; write one that the input has, or [a, b]", cel.FormatCELType(t))
	case (s.at == s.drafts[s.place].turns || s.at == s.drafts[s.place].key && s.drafts[s.place].Listen != nil) && slices.Contains([]types.Kind{types.IntKind, types.UintKind}, t.Kind()):
	case key == "key" && !slices.Contains([]types.Kind{types.StringKind, types.DynKind}, t.Kind()):
		s.report(1, 0, "key is a text, this is of the type %s; write one that the input has, or convert it with string()", cel.FormatCELType(t))
	case t.TypeName() == types.OptionalType.TypeName():
		s.report(1, 0, "%s is an optional, which has no form in JSON; end it with .orValue(...)", key)
	case t.Kind() == types.TypeKind:
		s.report(1, 0, "%s is a type, which has no form in JSON; write a value, for example input", key)
	}
	if estimate, err := env.EstimateCost(checked, nil); err == nil && estimate.Min > maxCost {
		s.report(1, 0, "%s costs at least %d, whatever the input is; at most %d are allowed: let the agent do some of the work", key, estimate.Min, maxCost)
	}
	if s.faults > 0 {
		return nil
	}
	return checked
}

// report reports a problem at a place in the expression: a line that counts
// from 1 and a column that counts from 0, both of the expression.
func (s *sight) report(line, column int, format string, args ...any) {
	if s.faults++; s.faults <= maxFaults {
		s.r.add(s.at.place(line, column), format, args...)
	}
}

// issues reports what CEL found, and says whether that was anything.
func (s *sight) issues(issues *cel.Issues) bool {
	if issues == nil || issues.Err() == nil {
		return false
	}
	list := issues.Errors()
	if len(list) == 0 {
		s.report(1, 0, "%s is no expression: %v", s.at.key, issues.Err())
	}
	for _, e := range list {
		line, column := 1, 0
		if e.Location != nil && e.Location != common.NoLocation {
			line, column = e.Location.Line(), e.Location.Column()
		}
		s.report(line, column, "%s %s", s.at.key, s.explain(e.Message))
	}
	return true
}

// explain puts a message of CEL into the words of this package, where it is
// one that people see often.
func (s *sight) explain(message string) string {
	message = strings.ToValidUTF8(message, "�")
	if text, syntax := strings.CutPrefix(message, "Syntax error: "); syntax {
		text, _, _ = strings.Cut(text, " expecting ") // thirty tokens, none of which helps
		text = strings.ReplaceAll(text, "mismatched input '<EOF>'", "it ends too early")
		return "is no expression: " + brief(text)
	}
	if text, ok := strings.CutPrefix(message, "undeclared reference to '"); ok {
		name, rest, _ := strings.Cut(text, "'")
		_, suggestion, ok := strings.Cut(rest, "; ")
		if suggestion = "; " + suggestion; !ok {
			suggestion = didYouMean(name, []string{"input", "steps"})
		}
		return fmt.Sprintf("names %s, which is neither a variable nor a function%s; the variables are input and steps, text stands in quotes", quote(name), brief(suggestion))
	}
	if strings.HasPrefix(message, "found no matching overload for ") {
		message = strings.Replace(message, "found no matching overload for", "does not fit together: there is no", 1)
		return brief(message) + "; convert one side, for example with string() or int()"
	}
	return "is refused: " + brief(message)
}

// brief cuts what a library says to the length of a line.
func brief(message string) string { return clip(message, 300) }

// walk checks how an expression names steps.
func (s *sight) walk(parsed *ast.AST) {
	s.info = parsed.SourceInfo()
	for _, e := range ast.MatchDescendants(ast.NavigateAST(parsed), ast.AllMatcher()) {
		switch e.Kind() {
		case ast.IdentKind:
			if s.reads[e.AsIdent()] = true; e.AsIdent() == "steps" {
				s.step(e)
			}
		case ast.StructKind:
			s.at0(e, "%s makes a message %s; write a map instead, for example {\"amount\": input.total}", s.at.key, quote(e.AsStruct().TypeName()))
		case ast.ComprehensionKind:
			c := e.AsComprehension()
			for _, name := range []string{"input", "steps"} {
				if name == c.IterVar() || name == c.IterVar2() || name == c.AccuVar() {
					s.at0(e, "%s is a variable already; give the one of this macro another name", name)
				}
			}
		}
	}
}

// step checks a use of the variable steps, of which there is only one:
// steps.NAME.ATTRIBUTE, in the ways in which CEL writes that.
func (s *sight) step(variable ast.NavigableExpr) {
	of, name, nameAt := member(variable)
	switch {
	case s.searches:
		s.at0(variable, "no step has run when %s is evaluated; it sees the input alone, for example input.customer", s.at.key)
		return
	case of == nil:
		s.at0(variable, "steps is used as a whole; name a step, for example %s", exampleStep)
		return
	case nameAt == nil:
		s.at0(of.AsCall().Args()[1], "a step is not named by its text; name it literally, for example %s", exampleStep)
		return
	}
	if _, attribute, at := member(of); at == nil || isOptional(of) {
		s.at0(of, "the step %s is used as a whole; write .output, .input, .state or .error after it", quote(name))
	} else {
		s.attribute(name, attribute, nameAt, at)
	}
}

func (s *sight) attribute(name, attribute string, nameAt, at ast.Expr) {
	if !slices.Contains(attributes, attribute) {
		s.after(at, "a step has no %s%s; write %s", quote(attribute), didYouMean(attribute, attributes), "error, input, output or state")
		return
	}
	i, known := s.index[name]
	switch {
	case !known:
		names := make([]string, len(s.drafts))
		for i := range s.drafts {
			names[i] = s.drafts[i].Name
		}
		s.after(nameAt, "there is no step %s%s", quote(name), cmp.Or(didYouMean(name, names), "; name a step of this file"))
	case s.drafts[i].Sleep != nil && attribute != "state":
		s.after(at, "the step %s sleeps, and has no %s; write .state", quote(name), attribute)
	case s.drafts[i].Listen != nil && attribute != "state" && attribute != "output":
		s.after(at, "the step %s listens, and has no %s; write .state or .output", quote(name), attribute)
	case s.drafts[i].Approve != nil && attribute != "state" && attribute != "output":
		s.after(at, "the step %s asks people, and has no %s; write .state or .output", quote(name), attribute)
	case s.drafts[i].Emit != nil && attribute == "output":
		s.after(at, "the step %s emits, and has no output; write .state or .input", quote(name))
	case s.drafts[i].Raise != nil && attribute != "state":
		s.after(at, "the step %s raises, and has no %s; write .state", quote(name), attribute)
	case attribute == "error" && s.drafts[i].Exhausted != ExhaustedContinue:
		s.after(at, "no step is evaluated after step %s failed; write \"exhausted: continue\" there, or ask for another step", quote(name))
	case i == s.place && s.itself:
	case i == s.place:
		s.after(nameAt, "the step %s has not run when this is evaluated; name a step that comes before it", quote(name))
	case s.before != nil && !s.before[i]:
		s.after(nameAt, "the step %s does not surely come before this one; name it in \"after\", or use one that does", quote(name))
	}
	s.reads[name+"."+attribute] = true
	if !slices.Contains(s.names, name) {
		s.names = append(s.names, name)
	}
}

// member returns the expression that takes a member of e, the member's name and
// what stands at its place, which is nil where the name is not literal.
func member(e ast.NavigableExpr) (of ast.NavigableExpr, name string, at ast.Expr) {
	of, ok := e.Parent()
	switch {
	case ok && of.Kind() == ast.SelectKind:
		return of, of.AsSelect().FieldName(), of
	case ok && of.Kind() == ast.CallKind:
		call := of.AsCall()
		if !slices.Contains([]string{operators.OptSelect, operators.Index, operators.OptIndex}, call.FunctionName()) || call.Args()[0].ID() != e.ID() {
			break
		}
		if literal := call.Args()[1]; literal.Kind() == ast.LiteralKind {
			if text, ok := literal.AsLiteral().(types.String); ok {
				return of, string(text), literal
			}
		}
		return of, "", nil
	}
	return nil, "", nil
}

// isOptional says that an expression takes a member that may be missing.
func isOptional(e ast.NavigableExpr) bool {
	return e.Kind() == ast.SelectKind && e.AsSelect().IsTestOnly() || e.Kind() == ast.CallKind && e.AsCall().FunctionName() != operators.Index
}

// at0 reports a problem where an expression starts.
func (s *sight) at0(e ast.Expr, format string, args ...any) {
	at := s.info.GetStartLocation(e.ID())
	s.report(at.Line(), at.Column(), format, args...)
}

// after reports a problem at a name: CEL gives the place of the dot before it.
func (s *sight) after(e ast.Expr, format string, args ...any) {
	at := s.info.GetStartLocation(e.ID())
	column := at.Column()
	if e.Kind() == ast.SelectKind {
		column++
	}
	s.report(at.Line(), column, format, args...)
}
