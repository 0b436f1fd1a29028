package workflow

import (
	"github.com/goccy/go-yaml/ast"

	"github.com/waybill-dev/waybill/events"
)

// Limit is the limit under which a step asks its agent: each attempt, of the undo too, has a place of it.
type Limit struct {
	Name string // as of [events.CheckLimitName]
	// Key is a text, or a whole number: attempts of different keys take turns; nil if all are alike.
	Key *Expression
}

// KeyOf is the key among those of others with which an attempt takes turns, "" if the step says none.
//
// The error says why the expression failed, in at most 1 KiB.
func (l *Limit) KeyOf(s Scope) (key string, err error) {
	if l.Key == nil {
		return "", nil
	}
	return l.Key.keyOf(s)
}

// limit reads under which limit a step asks its agent: its name, or a mapping that says the key, too.
func (r *reader) limit(n ast.Node, d *draft) {
	d.Limit = new(Limit)
	if _, ok := n.(*ast.MappingNode); !ok {
		d.Limit.Name = r.limitName(n)
		return
	}
	given := r.mapping(n, "limit", []field{
		{"name", func(n ast.Node) { d.Limit.Name = r.limitName(n) }},
		{"key", func(n ast.Node) { d.turns = r.scalar(n, "key", "key: 'input.customer'") }},
	})
	r.require(n, given, "limit", "name")
}

func (r *reader) limitName(n ast.Node) string {
	name, at, ok := r.text(n, "the limit's name")
	if ok {
		if err := events.CheckLimitName(name); err != nil {
			r.add(at, "%v", err)
		}
	}
	return name
}

// ParseLimit reads a file with a limit, and its name. The error, [yamlfile.Errors], has all that is wrong with it, by
// line and column.
func ParseLimit(file string, source []byte) (name string, l *events.Limit, err error) {
	r := &reader{}
	r.File = file
	body := r.Document(source, MaxSource, "limit: my-limit")
	if body == nil {
		return "", nil, r.Sorted()
	}
	l = new(events.Limit)
	given := r.mapping(body, "a limit", []field{
		{"limit", func(n ast.Node) { name = r.limitName(n) }},
		{"atATime", func(n ast.Node) { r.whole(n, "atATime", events.MaxPlaces, &l.AtATime) }},
		{"aSecond", func(n ast.Node) { r.whole(n, "aSecond", events.MaxPlaces, &l.ASecond) }},
	})
	r.require(body, given, "the limit", "limit")
	if given != nil && given["atATime"] == nil && given["aSecond"] == nil {
		r.add(start(body), "%v", events.CheckLimit(l))
	}
	if wrong := r.Sorted(); wrong != nil {
		return "", nil, wrong
	}
	return name, l, nil
}
