package httpagent

import (
	"net/url"

	"github.com/go-json-experiment/json/jsontext"
)

// body is what a call sends, or what becomes of its response.
type body struct {
	json *node  // a JSON value
	form []pair // application/x-www-form-urlencoded
}

// pair is a field of a form, or a header.
type pair struct {
	name  string
	value template
}

// node is a JSON value with placeholders: one of the four.
type node struct {
	object []member
	array  []node
	text   template       // a string, or what a placeholder stands for
	raw    jsontext.Value // anything else; also {} and []
}

type member struct {
	name  jsontext.Value // as a JSON string
	value node
}

// append appends the value; nothing (false) if it is an optional placeholder of
// something that is not there. Such fields and entries are left out.
func (n *node) append(dst []byte, v *values, what string) (_ []byte, ok bool, err error) {
	switch {
	case n.raw != nil:
		return append(dst, n.raw...), true, nil
	case n.object != nil:
		dst = append(dst, '{')
		for i := range n.object {
			before := len(dst)
			if dst[before-1] != '{' {
				dst = append(dst, ',')
			}
			dst = append(append(dst, n.object[i].name...), ':')
			if dst, ok, err = n.object[i].value.append(dst, v, what); err != nil {
				return nil, false, err
			}
			if !ok {
				dst = dst[:before]
			}
		}
		return append(dst, '}'), true, nil
	case n.array != nil:
		dst = append(dst, '[')
		for i := range n.array {
			before := len(dst)
			if dst[before-1] != '[' {
				dst = append(dst, ',')
			}
			if dst, ok, err = n.array[i].append(dst, v, what); err != nil {
				return nil, false, err
			}
			if !ok {
				dst = dst[:before]
			}
		}
		return append(dst, ']'), true, nil
	}
	return n.text.appendJSON(dst, v, what)
}

// encode returns what is sent and its content type; nothing if there is none.
func (b body) encode(v *values) (content []byte, contentType string, err error) {
	switch {
	case b.json != nil:
		content, ok, err := b.json.append(nil, v, "the body")
		if err != nil || !ok {
			return nil, "", err
		}
		return content, "application/json", nil
	case b.form != nil:
		form := make(url.Values)
		for _, field := range b.form {
			value, ok, err := field.value.expand(v, "the form's field "+field.name)
			if err != nil {
				return nil, "", err
			}
			if ok {
				form.Add(field.name, value)
			}
		}
		return []byte(form.Encode()), "application/x-www-form-urlencoded", nil
	}
	return nil, "", nil
}
