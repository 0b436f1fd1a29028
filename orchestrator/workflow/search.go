package workflow

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/goccy/go-yaml/ast"

	"github.com/waybill-dev/waybill/events"
)

// Mark is a value of the input by which orders are found.
type Mark struct {
	Name  string // of the form of a label's
	Value *Expression
}

// Text is what the order is found by: a text, a number, or true or false, as the value of a
// label. There is none where the expression gives something else or cannot be evaluated: an
// order does not fail for how it is found.
func (m *Mark) Text(s Scope) (text string, ok bool) {
	value, err := m.Value.Value(s)
	if err != nil {
		return "", false
	}
	switch value.Kind() {
	case jsontext.KindString:
		unquoted, err := jsontext.AppendUnquote(nil, value)
		return events.LabelValue(string(unquoted)), err == nil
	case jsontext.KindNumber, jsontext.KindTrue, jsontext.KindFalse:
		return events.LabelValue(string(value)), true
	}
	return "", false
}

// Marks says whether the workflow finds its orders by that name.
func (w *Workflow) Marks(name string) bool {
	return slices.ContainsFunc(w.Search, func(m Mark) bool { return m.Name == name })
}

// marked is a [Mark] that is not compiled yet.
type marked struct {
	name string
	text *scalar
}

// search reads what orders are found by: names of members of the input, or names and
// expressions.
func (r *reader) search(n ast.Node) (all []marked) {
	m, mapping := n.(*ast.MappingNode)
	list, ok := n.(*ast.SequenceNode)
	switch {
	case mapping:
		for _, entry := range m.Values {
			at := entry.Key.GetToken()
			name := at.Value
			switch err := events.CheckLabelName(name); {
			case err != nil:
				r.add(at, "the name of a value in search %v", err)
			case marks(all, name):
				r.add(at, "the key %q is given twice; remove one", name)
			default:
				all = append(all, marked{name, r.scalar(entry.Value, "search."+name, name+": input."+name)})
			}
		}
	case ok:
		for _, entry := range list.Values {
			name, at := r.checked(entry, "the name of a value in search", events.CheckLabelName)
			switch {
			case events.CheckLabelName(name) != nil: // which has been reported
			case strings.Contains(name, "."):
				r.add(at, "%s in search is a path, and a list has names of the input's own members; write a mapping, for example {city: input.address.city}", quote(name))
			case marks(all, name):
				r.add(at, "%s is named twice in search; remove one", quote(name))
			default:
				all = append(all, marked{name, &scalar{key: "search." + name, text: fmt.Sprintf("input[%q]", name), start: at}})
			}
		}
	default:
		r.add(start(n), "search is a list of names, or a mapping of names to expressions, this is %s; write, for example, search: [customer]", kind(n))
	}
	if len(all) > events.MaxLabels {
		r.add(start(n), "search has %d values; at most %d are allowed", len(all), events.MaxLabels)
		return nil
	}
	return all
}

func marks(all []marked, name string) bool {
	return slices.ContainsFunc(all, func(m marked) bool { return m.name == name })
}

// compiled compiles what search has, sorted by name: it is evaluated in that order.
func (r *reader) compiled(all []marked) (search []Mark) {
	slices.SortFunc(all, func(a, b marked) int { return strings.Compare(a.name, b.name) })
	for _, m := range all {
		s := &sight{r: r, drafts: make([]draft, 1), searches: true}
		search = append(search, Mark{m.name, s.expression(m.text)})
	}
	return search
}
