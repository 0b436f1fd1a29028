// Package revision says what is different for orders between two workflow files, however they are written.
package revision

import (
	"bytes"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/internal/diagram"
	"github.com/waybill-dev/waybill/internal/words"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

// Revision is what another workflow changes. There are no changes if, and only if, both have
// the same canonical form.
type Revision struct {
	From    string   `json:"from"`
	To      string   `json:"to"`
	Changes []Change `json:"changes"`
}

// Change is what a key was and is: of a step, or of the workflow where no step is named. Without
// a key it is a whole step. What one of the files does not have is missing.
type Change struct {
	Step string         `json:"step,omitzero"`
	Key  string         `json:"key,omitzero"`
	From jsontext.Value `json:"from,omitzero"`
	To   jsontext.Value `json:"to,omitzero"`
}

// Of is what changes for orders from one workflow to another.
func Of(a, b *workflow.Workflow) Revision {
	r := Revision{From: a.ID(), To: b.ID(), Changes: []Change{}}
	from, to := spell(a), spell(b)
	r.add("", "", from.keys, to.keys)
	for i := range a.Steps {
		name := a.Steps[i].Name
		r.add(name, "", from.steps[name], to.steps[name])
	}
	for i := range b.Steps {
		if name := b.Steps[i].Name; from.steps[name] == nil {
			r.add(name, "", nil, to.steps[name])
		}
	}
	r.add("", "steps", order(a, to.steps), order(b, from.steps))
	return r
}

// add adds what is different under a key: of two mappings which of their keys, of all else the
// whole.
func (r *Revision) add(step, key string, from, to jsontext.Value) {
	if bytes.Equal(from, to) {
		return
	}
	if from.Kind() != jsontext.KindBeginObject || to.Kind() != jsontext.KindBeginObject {
		r.Changes = append(r.Changes, Change{step, key, from, to})
		return
	}
	was, is := members(from), members(to)
	both := maps.Clone(was)
	maps.Copy(both, is)
	for _, name := range slices.Sorted(maps.Keys(both)) {
		r.add(step, strings.TrimPrefix(key+"."+name, "."), was[name], is[name])
	}
}

// spelled is a workflow with its defaults, and what follows from its file that no key says.
type spelled struct {
	keys  jsontext.Value
	steps map[string]jsontext.Value
}

func spell(flow *workflow.Workflow) spelled {
	keys := members(encode(flow))
	var steps []jsontext.Value
	if err := json.Unmarshal(keys["steps"], &steps); err != nil {
		panic(err) // it is a canonical form
	}
	delete(keys, "steps")
	keys["level"] = encode(flow.Level())
	for i := range slices.Backward(flow.Steps) {
		if s := &flow.Steps[i]; s.Sleep == nil && s.Raise == nil && s.Emit == nil {
			keys["output"] = encode(flow.Steps[i].Name)
			break
		}
	}
	s := spelled{encode(keys), make(map[string]jsontext.Value)}
	for i, step := range steps {
		s.steps[flow.Steps[i].Name] = step
	}
	return s
}

// order lists the steps that the other workflow has too, as they stand in the file.
func order(flow *workflow.Workflow, other map[string]jsontext.Value) jsontext.Value {
	var names []string
	for i := range flow.Steps {
		if name := flow.Steps[i].Name; other[name] != nil {
			names = append(names, name)
		}
	}
	return encode(names)
}

func members(object jsontext.Value) map[string]jsontext.Value {
	var all map[string]jsontext.Value
	if err := json.Unmarshal(object, &all); err != nil {
		panic(err) // it is part of a canonical form
	}
	return all
}

func encode(value any) jsontext.Value {
	text, err := json.Marshal(value, json.Deterministic(true))
	if err != nil {
		panic(err) // it is a canonical form, or a name, or a number
	}
	return text
}

// Row is a change as people read it.
type Row struct {
	Step     string // "-" for the workflow itself
	Key      string // what is different; [Added] or [Removed] where that is the whole step
	From, To string // short, and "-" for what is not there
}

// What a [Row] says of a step that only one of the two workflows has. No key is called so.
const (
	Added   = "added"
	Removed = "removed"
)

// Rows are the changes as people read them. The workflows are those that the revision is of.
func (r *Revision) Rows(a, b *workflow.Workflow) []Row {
	rows := make([]Row, len(r.Changes))
	for n, c := range r.Changes {
		switch {
		case c.Key != "":
			from, to := written(c.From), written(c.To)
			rows[n] = Row{words.Dash(c.Step), c.Key, around(from, to), around(to, from)}
		case c.From == nil:
			rows[n] = Row{c.Step, Added, "-", summary(b, c.Step)}
		default:
			rows[n] = Row{c.Step, Removed, summary(a, c.Step), "-"}
		}
	}
	return rows
}

// written is a value as a file has it: text without quotes, on one line.
func written(value jsontext.Value) string {
	var text string
	if value.Kind() != jsontext.KindString || json.Unmarshal(value, &text) != nil {
		text = string(value)
	}
	return words.Dash(words.Clean(strings.Join(strings.Fields(text), " ")))
}

// around is a text, cut so that where it begins to differ from another is shown.
func around(text, other string) string {
	a, b := []rune(text), []rune(other)
	same := 0
	for same < min(len(a), len(b)) && a[same] == b[same] {
		same++
	}
	if from := same - 20; same > 50 {
		text = "…" + string(a[min(from, len(a)):])
	}
	return words.Short(text)
}

func summary(flow *workflow.Workflow, name string) string {
	s, _ := flow.Step(name)
	return words.Short(strings.Join(diagram.Caption(s)[1:], ", "))
}
