package httpagent

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/events"
)

// values is what placeholders stand for during one call.
type values struct {
	operation string
	request   *agents.Request[jsontext.Value]

	// Of the response, once there is one.
	status  int
	headers http.Header
	body    jsontext.Value
}

// missing is a placeholder without a value.
type missing struct{ name, what string }

func (m missing) Error() string {
	return fmt.Sprintf("there is no %s, which %s needs", m.name, m.what)
}

// unfit is a value that has no place where its placeholder stands.
type unfit struct{ name, what, why string }

func (u unfit) Error() string {
	return fmt.Sprintf("%s cannot be used in %s: %s", u.name, u.what, u.why)
}

// json returns the value of a placeholder; none (false) if it is optional and
// there is none. What names the place that it is for.
func (v *values) json(ref *reference, what string) (jsontext.Value, bool, error) {
	value := v.find(ref)
	if len(value) > 0 && value.Kind() != 'n' {
		return value, true, nil
	}
	if ref.optional {
		return nil, false, nil
	}
	return nil, false, missing{ref.name, what}
}

// text is json for a place that takes text.
func (v *values) text(ref *reference, what string) (string, bool, error) {
	value, ok, err := v.json(ref, what)
	if err != nil || !ok {
		return "", false, err
	}
	switch value.Kind() {
	case '"':
		text, err := jsontext.AppendUnquote(nil, value)
		if err != nil {
			return "", false, unfit{ref.name, what, err.Error()}
		}
		return string(text), true, nil
	case '{':
		return "", false, unfit{ref.name, what, "it is an object; refer to one of its fields"}
	case '[':
		return "", false, unfit{ref.name, what, "it is an array; refer to one of its entries"}
	}
	return string(value), true, nil
}

func (v *values) find(ref *reference) jsontext.Value {
	r := v.request
	switch ref.root {
	case "order":
		return text(r.Order)
	case "step":
		return text(r.Step)
	case "attempt":
		return jsontext.Value(strconv.Itoa(r.Attempt))
	case "operation":
		return text(v.operation)
	case "idempotencyKey":
		return text(r.IdempotencyKey)
	case "completeBy":
		return text(r.CompleteBy.UTC().Format(time.RFC3339Nano))
	case "undo":
		return jsontext.Value(strconv.FormatBool(r.Undo))
	case "outcome":
		switch {
		case r.OutcomeUnknown:
			return text(events.OutcomeUnknown)
		case r.Undo:
			return text(events.OutcomeCompleted)
		}
		return nil
	case "stepKey":
		if r.StepKey != "" {
			return text(r.StepKey)
		}
		return nil
	case "priority":
		return text(string(r.Priority))
	case "output":
		return descend(r.Output, ref.path)
	case "input":
		return descend(r.Input, ref.path)
	case "response":
		return v.ofResponse(ref.path)
	}
	return nil
}

func (v *values) ofResponse(path []string) jsontext.Value {
	switch path[0] {
	case "status":
		return jsontext.Value(strconv.Itoa(v.status))
	case "headers":
		if all := v.headers.Values(path[1]); len(all) > 0 {
			return text(all[0])
		}
		return nil
	}
	return descend(v.body, path[1:])
}

// text is a string as a JSON value.
func text(s string) jsontext.Value {
	quoted, err := jsontext.AppendQuote(nil, s)
	if err != nil {
		return nil // bytes that are not UTF-8, from a header
	}
	return quoted
}

// descend follows the names of fields, and the numbers of entries, into a value.
// It returns nil where there is nothing.
func descend(value jsontext.Value, path []string) jsontext.Value {
	for _, name := range path {
		switch value.Kind() {
		case '{':
			var fields map[string]jsontext.Value
			if json.Unmarshal(value, &fields, jsontext.AllowDuplicateNames(true)) != nil {
				return nil
			}
			value = fields[name]
		case '[':
			var entries []jsontext.Value
			i, err := strconv.Atoi(name)
			if err != nil || json.Unmarshal(value, &entries, jsontext.AllowDuplicateNames(true)) != nil || i < 0 || i >= len(entries) {
				return nil
			}
			value = entries[i]
		default:
			return nil
		}
	}
	return value
}
