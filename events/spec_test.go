package events_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/events"
)

// whole has a value for every field.
var whole = func() events.Event {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return events.Event{
		Order: "o-1", Seq: 1, At: at,
		Workflow: "w", Version: 1, Steps: []string{"a"}, Input: []byte("1"), ReplyTo: "t", Priority: events.High, Deadline: at, Traceparent: "p", Tracestate: "a=1", Baggage: "b=2", Digest: "d", Labels: map[string]string{"a": "b"}, RerunOf: "o-0",
		From: 1, Renamed: map[string]string{"a": "b"}, Renewed: []string{"a"}, Topic: "shop.a", EventType: "com.acme.a", Key: "k", Item: 1, AtOnce: 2, Page: 1, Cursor: "c",
		Schedule: &events.Schedule{Every: "1h", Workflow: "w"}, Incarnation: 1, Tick: at, Last: at, Next: at, Backfill: 1, Limit: &events.Limit{AtATime: 1}, Home: "@/limit.crm", Rank: 1, OnConflict: "queue",
		Step: "a", Attempt: 1, Agent: "g", Operation: "do", IdempotencyKey: "k", CompleteBy: at, Expires: at, ExtendTo: at, LockedBy: "i", Proof: "watch", Due: at, Round: 1, Fixed: true,
		Outcome: events.OutcomeUnknown, Output: []byte("2"), Error: &events.Error{Code: "c"}, Errors: []events.Error{{Code: "c"}},
		Uncounted: true, Left: true, ToUndo: true, Reason: "r", Count: 1, Action: "a", AnsweredBy: "s", Command: "c", By: "b", Actor: &events.Actor{Method: "key", At: at}, SameKey: true, NewKey: true, Kept: []string{"a"}, MayHaveRun: []string{"b"}, End: "Cancelled", Undone: []string{"a"}, NotUndone: []string{"b"}, FailedSteps: []string{"a"},
		Listen: "any", Signals: []string{"paid"}, Submitters: []string{"sam"}, Pinned: map[string]int64{"book": 2}, Parent: "o-2", ParentStep: "hotel", Depth: 1, Child: "@o-1/a", Keep: 1, Children: []string{"@o-1/a"}, Detached: true, Roles: []string{"finance"}, Escalate: []string{"board"}, Outcomes: []string{"approved"}, Remind: at, Signal: "paid", SignalID: "i", Data: []byte("3"), Waiter: "o-2", Wait: 3,
		Held: true, Source: "t/0/1", Raw: &events.Raw{}, Instance: "i", Claim: "c", Partitions: 4, Format: 1, Delivered: map[string]int64{"shop.status": 7}, Silent: true,
	}
}()

// carrying returns an event of a row's type with the given fields.
func carrying(spec *events.Spec, fields []string) events.Event {
	fields = append(fields, "at")
	if !spec.OfPartition {
		fields = append(fields, "order", "seq")
	}
	e := events.Event{Type: spec.Type}
	for i, name := range eventFields {
		if slices.Contains(fields, name) {
			reflect.ValueOf(&e).Elem().Field(i).Set(reflect.ValueOf(whole).Field(i))
		}
	}
	return e
}

// eventFields are the names in JSON of the fields of an event, in their order.
var eventFields = func() (all []string) {
	for field := range reflect.TypeFor[events.Event]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		all = append(all, name)
	}
	return all
}()

func fieldsOf(typ events.Type) []string {
	spec := events.SpecOf(typ)
	if spec == nil {
		return nil
	}
	always, maybe := spec.Fields()
	return slices.Sorted(slices.Values(append(always, maybe...)))
}

func TestCheckSaysWhatIsMissingAndWhatIsTooMuch(t *testing.T) {
	for i, name := range eventFields {
		if reflect.ValueOf(whole).Field(i).IsZero() != (name == "type") {
			t.Errorf("a whole event has no %s", name)
		}
	}
	for i := range events.Specs {
		spec := &events.Specs[i]
		always, maybe := spec.Fields()
		for _, fields := range [][]string{always, append(always, maybe...)} {
			if e := carrying(spec, fields); e.Check() != nil {
				t.Error(e.Check())
			}
		}
		for n, name := range eventFields {
			e := carrying(spec, always)
			field := reflect.ValueOf(&e).Elem().Field(n)
			missed := !field.IsZero()
			switch {
			case name == "type", slices.Contains(maybe, name):
				continue
			case missed:
				field.SetZero()
			default:
				field.Set(reflect.ValueOf(whole).Field(n))
			}
			if err := e.Check(); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s, missing: %t, of %s: %v", name, missed, spec.Type, err)
			}
		}
	}
	if e := (&events.Event{Type: "waybill.order.blessed"}); e.Check() == nil {
		t.Error("a type that is not known is taken")
	}
}

// Every type has a row, and every row names fields that there are, once.
func TestEveryTypeHasARow(t *testing.T) {
	var declared []events.Type
	for _, constant := range constants(t) {
		declared = append(declared, constant.typ)
	}
	tested := slices.Concat(eventTypes, messageTypes)
	slices.Sort(declared)
	slices.Sort(tested)
	if !slices.Equal(declared, tested) {
		t.Errorf("declared are\n%v, with rows\n%v", declared, tested)
	}
	for _, typ := range eventTypes {
		fields := fieldsOf(typ)
		if len(slices.Compact(slices.Clone(fields))) != len(fields) {
			t.Errorf("%s has a field twice: %v", typ, fields)
		}
		for _, name := range fields {
			if i := slices.Index(eventFields, name); i < slices.Index(eventFields, "at") {
				t.Errorf("%s has the field %s", typ, name)
			}
		}
	}
}

// A vocabulary that was released never changes: a new type has Since of the next.
func TestVocabulariesNeverChange(t *testing.T) {
	types := []int{32, 1, 2, 4, 16, 5, 26, 10} // of each vocabulary
	var have []int
	for _, spec := range events.Specs {
		for len(have) <= spec.Since {
			have = append(have, 0)
		}
		have[spec.Since]++
	}
	if !slices.Equal(have, types) || events.Vocabulary != len(types)-1 {
		t.Errorf("the vocabularies have %v types, and %d is the newest; want %v", have, events.Vocabulary, types)
	}
}

type constant struct {
	name, comment string
	typ           events.Type
}

// constants are the types that event.go, child.go, correlation.go and limit.go declare.
func constants(t *testing.T) []constant {
	t.Helper()
	return slices.Concat(constantsOf(t, "event.go"), constantsOf(t, "child.go"), constantsOf(t, "correlation.go"), constantsOf(t, "limit.go"))
}

func constantsOf(t *testing.T, file string) (all []constant) {
	t.Helper()
	source, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for node := range ast.Preorder(source) {
		spec, isValue := node.(*ast.ValueSpec)
		if !isValue {
			continue
		}
		if typ, named := spec.Type.(*ast.Ident); named && typ.Name == "Type" {
			value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, constant{spec.Names[0].Name, spec.Doc.Text(), events.Type(value)})
		}
	}
	return all
}

// Each type's comment names the fields of its row, or another type that has them.
func TestCommentsNameTheFieldsOfTheRows(t *testing.T) {
	named := make(map[string]events.Type)
	for _, c := range constants(t) {
		named[c.name] = c.typ
	}
	word := regexp.MustCompile(`\[\w+\]|\w+`)
	for _, c := range constants(t) {
		if slices.Contains(messageTypes, c.typ) {
			continue
		}
		var fields []string
		for _, w := range word.FindAllString(c.comment, -1) {
			if field, ok := reflect.TypeFor[events.Event]().FieldByName(w); ok {
				name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
				fields = append(fields, name)
			}
			if typ, ok := named[strings.Trim(w, "[]")]; ok && w[0] == '[' {
				fields = append(fields, fieldsOf(typ)...)
			}
		}
		slices.Sort(fields)
		if fields, want := slices.Compact(fields), fieldsOf(c.typ); !slices.Equal(fields, want) {
			t.Errorf("the comment of %s names %v, its row %v", c.name, fields, want)
		}
	}
}

// So does each type's line in the documentation for people.
func TestDocumentationNamesTheFieldsOfTheRows(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(docs, "messages.md"))
	if err != nil {
		t.Fatal(err)
	}
	quoted := regexp.MustCompile("`([a-zA-Z.]+)`")
	lines := make(map[events.Type]int)
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|") // one before the first
		if len(cells) < 4 {
			continue
		}
		typ := events.Type(strings.Trim(cells[1], " `"))
		if events.SpecOf(typ) == nil {
			continue
		}
		lines[typ]++
		var fields []string
		for _, q := range quoted.FindAllStringSubmatch(cells[2], -1) {
			if other := events.Type("waybill." + q[1]); events.SpecOf(other) != nil {
				fields = append(fields, fieldsOf(other)...)
			} else if slices.Contains(eventFields, q[1]) {
				fields = append(fields, q[1])
			}
		}
		slices.Sort(fields)
		if fields, want := slices.Compact(fields), fieldsOf(typ); !slices.Equal(fields, want) {
			t.Errorf("messages.md gives %s the fields %v, its row %v", typ, fields, want)
		}
	}
	for _, typ := range eventTypes {
		if lines[typ] != 1 {
			t.Errorf("messages.md has %d lines for %s", lines[typ], typ)
		}
	}
}
