package workflow

import (
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// maxLevels is how deep lists and objects may lie inside one another, in what
// is checked or evaluated and in what comes of it: libraries recurse for each.
const maxLevels = 1000

// decode reads JSON into map[string]any, []any, string, bool, nil and whatever
// number makes of the text of a number. Nothing is null. Of members of the same name
// the last one counts, unless the options do not allow them.
func decode(raw jsontext.Value, number func(text string) (any, error), options ...json.Options) (v any, err error) {
	if len(raw) == 0 {
		return nil, nil
	}
	err = json.Unmarshal(raw, &v, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true),
		json.WithUnmarshalers(json.UnmarshalFromFunc(func(d *jsontext.Decoder, v *any) error {
			if d.StackDepth() > maxLevels {
				return errors.New("is nested too deeply")
			}
			*v = nil // of a member of the same name
			if d.PeekKind() != jsontext.KindNumber {
				return errors.ErrUnsupported
			}
			t, err := d.ReadToken()
			if err == nil {
				*v, err = number(t.String())
			}
			return err
		})), json.JoinOptions(options...))
	if semantic, ok := errors.AsType[*json.SemanticError](err); ok && semantic.Err != nil {
		return nil, semantic.Err
	}
	if syntactic, ok := errors.AsType[*jsontext.SyntacticError](err); ok && errors.Is(err, jsontext.ErrDuplicateName) {
		return nil, fmt.Errorf("has two members %s", syntactic.JSONPointer)
	}
	if err != nil {
		return nil, fmt.Errorf("is no JSON: %w", err)
	}
	return v, nil
}
