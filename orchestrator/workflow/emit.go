package workflow

import (
	"errors"
	"fmt"
	"strings"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// Emit is an event of the user's that a step gives a topic of theirs.
type Emit struct {
	Topic string
	Type  string      // of the CloudEvent, 1 to 200 bytes
	Key   *Expression // a text, the record's key; nil for the order's id
	Data  *Expression // what the event says; nil for the order's input
}

// MaxEventKey is the longest key of an event, in bytes.
const MaxEventKey = 1 << 10

// KeyOf is the event's key, "" where that is the order's id.
//
// The error says why the expression failed, in at most 1 KiB.
func (e *Emit) KeyOf(s Scope) (key string, err error) {
	if e.Key == nil {
		return "", nil
	}
	err = e.Key.evaluate(s, func(v ref.Val) error {
		text, ok := v.(types.String)
		switch key = string(text); {
		case !ok:
			return fmt.Errorf("it is a text, this is %s", describe(v))
		case key == "":
			return errors.New("it is empty; a key is a text of 1 byte at least")
		case len(key) > MaxEventKey:
			return fmt.Errorf("it has %d bytes; at most %d are allowed", len(key), MaxEventKey)
		}
		return nil
	})
	return key, err
}

// ownTypes is how the types of Waybill's own messages begin.
const ownTypes = "waybill."

func checkEventType(name string) error {
	switch err := checkWord(name); {
	case err != nil:
		return err
	case strings.HasPrefix(strings.ToLower(name), ownTypes):
		return fmt.Errorf("%s is one of Waybill's own, which begin with %s; choose another", quote(name), ownTypes)
	}
	return nil
}

// emit reads which event a step gives which topic.
func (r *reader) emit(n ast.Node, d *draft) {
	d.Emit = new(Emit)
	e := d.Emit
	given := r.mapping(n, "emit", []field{
		{"topic", func(n ast.Node) { e.Topic, _ = r.checked(n, "topic", checkReplyTo) }},
		{"type", func(n ast.Node) { e.Type, _ = r.checked(n, "type", checkEventType) }},
		{"key", func(n ast.Node) { d.key = r.scalar(n, "key", "key: 'input.customer'") }},
		{"data", func(n ast.Node) { d.data = r.scalar(n, "data", "data: '{\"order\": input.no}'") }},
	})
	r.require(n, given, "emit", "topic", "type")
}

// emitting is a step that emits. It has attempts as one that asks an agent, and what is about them,
// but nobody whom it waits for, and nothing takes an event back.
func (r *reader) emitting(given map[string]*token.Token, d draft, wait ast.Node) draft {
	r.only(given, "emit", "a step that emits asks no agent", "timeout", "retry", "exhausted", "wait")
	if d.TimeoutMax > 0 {
		r.add(given["timeout"], "nobody is still at it while a step emits, so its timeout has no max; write timeout: %v", d.Timeout)
	}
	r.pauses(given, &d, wait)
	d.Step = Step{Name: d.Name, Emit: d.Emit, Timeout: d.Timeout, Retry: d.Retry, Exhausted: d.Exhausted, Wait: d.Wait}
	d.with, d.undoWith, d.enough = nil, nil, nil
	return d
}

// Topics are those of the user's to which steps of the workflow give events, each once.
func (w *Workflow) Topics() (topics []string) {
	seen := make(map[string]bool)
	w.inners(func(w *Workflow) {
		for i := range w.Steps {
			if e := w.Steps[i].Emit; e != nil && !seen[e.Topic] {
				seen[e.Topic] = true
				topics = append(topics, e.Topic)
			}
		}
	})
	return topics
}
