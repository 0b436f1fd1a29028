package workflow

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"
	violated "github.com/santhosh-tekuri/jsonschema/v6/kind"
)

const (
	maxViolations = 10       // that are named
	maxExplained  = 64 << 10 // bytes of an input of which violations are named: the library makes an error of each
)

// CheckInput says whether an order may have this input; an empty one is an
// order without input. It returns nil where the workflow asks for nothing.
//
// The error names up to ten members that are wrong, each as a JSON pointer
// with what is wrong, in at most 1 KiB. Formats are checked. Numbers are
// compared digit by digit, never as floating-point numbers.
func (w *Workflow) CheckInput(input jsontext.Value) error {
	if w.Input == nil {
		return nil
	}
	return guarded(func() error { return w.Input.check(input) })
}

func (s *Schema) check(input jsontext.Value) error {
	// Whoever parses the input next may take the first of two members, and not the one
	// that was checked.
	v, err := decode(input, comparableNumber, jsontext.AllowDuplicateNames(false))
	if err != nil {
		return errors.New(bound(fmt.Sprintf("the input %v", err)))
	}
	switch {
	case s.quick.Validate(v) == nil:
		return nil
	case len(input) == 0:
		wants := "the workflow wants one"
		if s.compiled.Types != nil {
			wants = "it must be " + articles(s.compiled.Types.ToStrings())
		}
		return errors.New("the input is missing; " + wants)
	case len(input) > maxExplained:
		return fmt.Errorf("the input is not what the workflow wants; it has more than %d bytes, too many to say where", maxExplained)
	}
	invalid, ok := errors.AsType[*jsonschema.ValidationError](s.compiled.Validate(v))
	if !ok {
		return nil
	}
	var texts []string
	for i, e := range violations(invalid) {
		if i == maxViolations {
			texts = append(texts, "and more")
			break
		}
		texts = append(texts, s.explain(e))
	}
	return errors.New(bound(strings.Join(texts, "; ")))
}

// violations takes apart what the library says together, and puts it in an
// order: the library goes over the members of an object in any.
func violations(e *jsonschema.ValidationError) (list []*jsonschema.ValidationError) {
	each := func(k jsonschema.ErrorKind, names ...string) {
		for _, name := range names {
			at := append(slices.Clone(e.InstanceLocation), name)
			list = append(list, &jsonschema.ValidationError{SchemaURL: e.SchemaURL, InstanceLocation: at, ErrorKind: k})
		}
	}
	switch k := e.ErrorKind.(type) {
	case *violated.Schema, *violated.Group, *violated.Reference, *violated.AllOf:
		for _, cause := range e.Causes {
			list = append(list, violations(cause)...)
		}
	case *violated.Required:
		each(k, k.Missing...)
	case *violated.DependentRequired:
		each(k, k.Missing...)
	case *violated.Dependency:
		each(&violated.DependentRequired{Prop: k.Prop}, k.Missing...)
	case *violated.AdditionalProperties:
		each(k, k.Properties...)
	case *violated.PropertyNames:
		each(k, k.Property)
	case *violated.UniqueItems:
		each(k, strconv.Itoa(k.Duplicates[1]))
	default:
		return []*jsonschema.ValidationError{e}
	}
	slices.SortStableFunc(list, func(a, b *jsonschema.ValidationError) int {
		return cmp.Or(slices.Compare(a.InstanceLocation, b.InstanceLocation), strings.Compare(a.SchemaURL, b.SchemaURL))
	})
	return list
}

// explain puts a violation into the words of this package.
func (s *Schema) explain(e *jsonschema.ValidationError) string {
	const longest = 200
	at := cmp.Or(pointerTo(e.InstanceLocation), "the input")
	if len(at) > longest {
		at = strings.ToValidUTF8("…"+at[len(at)-longest:], "")
	}
	return at + " " + s.wrong(e)
}

func (s *Schema) wrong(e *jsonschema.ValidationError) string {
	switch k := e.ErrorKind.(type) {
	case *violated.Type:
		return fmt.Sprintf("is %s, must be %s", articles([]string{k.Got}), articles(k.Want))
	case *violated.Required:
		return "is missing"
	case *violated.DependentRequired:
		return fmt.Sprintf("is missing, which must be there beside %s", quote(k.Prop))
	case *violated.AdditionalProperties:
		return "is unknown" + didYouMean(e.InstanceLocation[len(e.InstanceLocation)-1], s.names[e.SchemaURL])
	case *violated.PropertyNames:
		return "has a name that is not allowed"
	case *violated.FalseSchema:
		return "is not allowed"
	case *violated.Enum:
		return "is none of the allowed values, which are " + some(k.Want)
	case *violated.Const:
		return "is none of the allowed values, which are " + some([]any{k.Want})
	case *violated.Format:
		return fmt.Sprintf("is %s, which is not of the format %s", quote(fmt.Sprint(k.Got)), k.Want)
	case *violated.Pattern:
		return "does not match the pattern " + quote(k.Want)
	case *violated.MinLength:
		return fmt.Sprintf("has %s, must have at least %d", count(k.Got, "character"), k.Want)
	case *violated.MaxLength:
		return fmt.Sprintf("has %s, may have at most %d", count(k.Got, "character"), k.Want)
	case *violated.MinItems:
		return fmt.Sprintf("has %s, must have at least %d", count(k.Got, "element"), k.Want)
	case *violated.MaxItems:
		return fmt.Sprintf("has %s, may have at most %d", count(k.Got, "element"), k.Want)
	case *violated.MinProperties:
		return fmt.Sprintf("has %s, must have at least %d", count(k.Got, "member"), k.Want)
	case *violated.MaxProperties:
		return fmt.Sprintf("has %s, may have at most %d", count(k.Got, "member"), k.Want)
	case *violated.UniqueItems:
		return fmt.Sprintf("is the same as the element %d, all must be different", k.Duplicates[0])
	case *violated.Minimum:
		return fmt.Sprintf("is %s, must be at least %s", plain(k.Got), plain(k.Want))
	case *violated.Maximum:
		return fmt.Sprintf("is %s, must be at most %s", plain(k.Got), plain(k.Want))
	case *violated.ExclusiveMinimum:
		return fmt.Sprintf("is %s, must be more than %s", plain(k.Got), plain(k.Want))
	case *violated.ExclusiveMaximum:
		return fmt.Sprintf("is %s, must be less than %s", plain(k.Got), plain(k.Want))
	case *violated.MultipleOf:
		return fmt.Sprintf("is %s; it must be a multiple of %s", plain(k.Got), plain(k.Want))
	case *violated.Contains:
		return "has 0 elements as it must contain, at least 1 must be there"
	case *violated.MinContains:
		return fmt.Sprintf("has %s as it must contain, at least %d must be there", count(len(k.Got), "element"), k.Want)
	case *violated.MaxContains:
		return fmt.Sprintf("has %s of which it may contain at most %d", count(len(k.Got), "element"), k.Want)
	case *violated.Not:
		return `is what the schema excludes with "not"`
	case *violated.AnyOf:
		return fmt.Sprintf("is none of the %d alternatives of anyOf%s", len(e.Causes), s.closest(e))
	case *violated.OneOf:
		if len(k.Subschemas) == 2 {
			return fmt.Sprintf("is more than one of the alternatives of oneOf: number %d and number %d", k.Subschemas[0]+1, k.Subschemas[1]+1)
		}
		return fmt.Sprintf("is none of the %d alternatives of oneOf%s", len(e.Causes), s.closest(e))
	}
	return "is wrong: " + brief(said(e))
}

// closest says what is wrong according to the first alternative that wants a
// value of this type: most often that is the one that was meant.
func (s *Schema) closest(e *jsonschema.ValidationError) string {
	for _, cause := range e.Causes {
		first := violations(cause)[0]
		if _, another := first.ErrorKind.(*violated.Type); !another || len(first.InstanceLocation) > len(e.InstanceLocation) {
			return " (" + s.explain(first) + ")"
		}
	}
	return ""
}

// said is what the library says.
func said(e *jsonschema.ValidationError) string {
	leaf := jsonschema.ValidationError{SchemaURL: e.SchemaURL, InstanceLocation: e.InstanceLocation, ErrorKind: e.ErrorKind}
	message := leaf.Error()
	if _, rest, ok := strings.Cut(message, "': "); ok && strings.HasPrefix(message, "at '") {
		return rest
	}
	return message
}

// pointerTo returns a JSON pointer.
func pointerTo(names []string) string {
	var b strings.Builder
	for _, name := range names {
		b.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name))
	}
	return b.String()
}

func articles(types []string) string {
	texts := make([]string, len(types))
	for i, t := range types {
		switch {
		case t == "null":
			texts[i] = t
		case t[0] == 'a', t[0] == 'i', t[0] == 'o':
			texts[i] = "an " + t
		default:
			texts[i] = "a " + t
		}
	}
	return strings.Join(texts, " or ")
}

func some(values []any) string {
	const shown = 5
	var list []string
	for _, v := range values[:min(shown, len(values))] {
		list = append(list, clip(key(v), 40))
	}
	if more := len(values) - shown; more > 0 {
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(list, ", ")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// plain writes a number with all its digits; those of inputs and schemas end.
func plain(r *big.Rat) string {
	digits, _ := r.FloatPrec()
	return clip(r.FloatString(digits), 60)
}

// comparableNumber is a number in a form that equal ones share, and that the
// library compares without much work.
func comparableNumber(text string) (any, error) {
	if !short(text) {
		return nil, errors.New("has a number with more than 100 characters or an exponent of more than 3 digits")
	}
	return json.Number(normal(text)), nil
}

// key is a text that equal values share.
func key(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // it comes from JSON, and becomes an error
	}
	return string(text)
}

// unique is uniqueItems.
type unique struct{}

// Validate implements jsonschema.SchemaExt.
func (unique) Validate(ctx *jsonschema.ValidatorContext, v any) {
	list, _ := v.([]any)
	first := make(map[string]int, len(list))
	for i, element := range list {
		k := key(element)
		if j, taken := first[k]; taken {
			ctx.AddError(&violated.UniqueItems{Duplicates: [2]int{j, i}})
			return
		}
		first[k] = i
	}
}

// allowed is enum.
type allowed struct {
	values []any
	keys   map[string]bool
}

func newAllowed(values []any) allowed {
	a := allowed{values, make(map[string]bool, len(values))}
	for _, v := range values {
		v, _ = decode(jsontext.Value(key(v)), comparableNumber) // it comes from JSON
		a.keys[key(v)] = true
	}
	return a
}

// Validate implements jsonschema.SchemaExt.
func (a allowed) Validate(ctx *jsonschema.ValidatorContext, v any) {
	if !a.keys[key(v)] {
		ctx.AddError(&violated.Enum{Got: v, Want: a.values})
	}
}
