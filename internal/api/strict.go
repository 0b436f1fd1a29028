package api

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"
	jsonv2 "github.com/go-json-experiment/json"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/codec"
	"github.com/waybill-dev/waybill/yamlfile"
)

// Members are told apart by case when they are read, so they are when they are checked.
func init() { huma.ValidateStrictCasing = true }

// strict has a body be refused that has a member which its schema does not name: a misspelt one would be passed over. What
// a caller says to agents and the like has no schema, and is not looked at.
func strict(registry huma.Registry, body *huma.Schema) {
	s := resolved(registry, body)
	if s.AdditionalProperties != true || len(s.Properties) == 0 {
		return
	}
	s.AdditionalProperties = false
	for name, member := range s.Properties {
		if member.Ref == "" && !slices.Contains(s.Required, name) { // null is as what is left out
			if member.Nullable = member.Type != ""; len(member.Enum) > 0 && !slices.Contains(member.Enum, nil) {
				member.Enum = append(slices.Clip(member.Enum), nil)
			}
		}
		strict(registry, member)
	}
}

// filled refuses query parameters and headers that are empty, where that is no value of theirs, and query parameters that are
// the zero time: it would be as if they were left out, which may be all orders. So it does query parameters that are given
// more than once, where but one would be looked at.
func filled(api huma.API) func(huma.Context, func(huma.Context)) {
	return func(c huma.Context, next func(huma.Context)) {
		address := c.URL()
		given := map[string]url.Values{"query": address.Query(), "header": {}}
		c.EachHeader(func(name, value string) { given["header"].Add(http.CanonicalHeaderKey(name), value) })
		for _, p := range c.Operation().Parameters {
			name := p.Name
			if p.In == "header" {
				name = http.CanonicalHeaderKey(name)
			}
			if wrong := misgiven(api.OpenAPI().Components.Schemas, p, given[p.In][name]); wrong != "" {
				_ = huma.WriteErr(api, c, http.StatusUnprocessableEntity, "validation failed", &huma.ErrorDetail{Location: p.In + "." + p.Name, Message: wrong}) // whoever hung up needs no answer
				return
			}
		}
		next(c)
	}
}

// misgiven is what is wrong with how often a parameter is given, and with values that would be as if it was left out; empty if
// nothing is.
func misgiven(registry huma.Registry, p *huma.Param, values []string) string {
	list := p.Schema.Type == huma.TypeArray
	if p.In == "query" && !list && len(values) > 1 {
		return fmt.Sprintf("it is given %d times; give it once", len(values))
	}
	if p.In == "query" && p.Schema.Format == "date-time" && slices.ContainsFunc(values, zeroTime) {
		return "it is the first moment of the year 1, which stands for no time; give a later one, or leave it out"
	}
	if !slices.Contains(values, "") {
		return ""
	}
	var found huma.ValidateResult
	if !list {
		huma.Validate(registry, p.Schema, huma.NewPathBuffer(nil, 0), huma.ModeWriteToServer, "", &found)
	}
	if list || len(found.Errors) > 0 {
		return "it is empty; give it a value, or leave it out"
	}
	return ""
}

// zeroTime says whether a text is the time that stands for none.
func zeroTime(text string) bool {
	at, err := time.Parse(time.RFC3339, text)
	return err == nil && at.IsZero()
}

// resolved is the schema to which another refers, if it refers to one.
func resolved(registry huma.Registry, s *huma.Schema) *huma.Schema {
	for s.Ref != "" {
		s = registry.SchemaFromRef(s.Ref)
	}
	return s
}

// uncut has no name of a body have what huma takes for the end of one when it says where something is wrong, and whole brings
// it back: a label may be called a.b.
var (
	uncut = strings.NewReplacer(".", "\uE000", "[", "\uE001")
	whole = strings.NewReplacer("\uE000", ".", "\uE001", "[")
)

// rename gives the members in a JSON value other names.
func rename(value any, by *strings.Replacer) {
	switch value := value.(type) {
	case map[string]any:
		for name, member := range value { // one that has its new name is passed over if it comes again
			if other := by.Replace(name); other != name {
				delete(value, name)
				value[other] = member
			}
		}
		for _, member := range value {
			rename(member, by)
		}
	case []any:
		for _, element := range value {
			rename(element, by)
		}
	}
}

// echoed is what is told of a value that is wrong: nothing of one that is nested so deeply that no answer can have it.
func echoed(value any) any {
	switch value.(type) {
	case map[string]any, []any:
		if text, err := jsonv2.Marshal(value); err != nil || events.Depth(text) > codec.Deepest {
			return nil
		}
	}
	return value
}

// mostErrors is how many of the things that are wrong with a request are told: there may be as many as a body has bytes.
const mostErrors = 32

const (
	unknownMember    = "unknown member"
	unknownParameter = "unknown query parameter"
)

// explained are the errors of a request's check, in the order of where they are, at most [mostErrors] of them. What is
// unknown comes with what may have been meant instead, and places with the names that the request has.
func (s *Server) explained(op *huma.Operation, all []*huma.ErrorDetail) []*huma.ErrorDetail {
	all = slices.SortedStableFunc(slices.Values(all), func(a, b *huma.ErrorDetail) int { return cmp.Compare(a.Location, b.Location) })
	all = all[:min(len(all), mostErrors)]
	for n, e := range all {
		switch {
		case e == nil:
		case e.Message == validation.MsgUnexpectedProperty && op != nil && op.RequestBody != nil:
			all[n] = unknown(s.schemas, op.RequestBody.Content["application/json"].Schema, "body.", e)
		case e.Message == unknownParameter && op != nil:
			var known []string
			for _, p := range op.Parameters {
				if p.In == "query" {
					known = append(known, p.Name)
				}
			}
			all[n] = &huma.ErrorDetail{Location: e.Location, Message: unknownParameter + yamlfile.DidYouMean(strings.TrimPrefix(e.Location, "query."), known)}
		}
		if e := all[n]; e != nil {
			rename(e.Value, whole)
			all[n] = &huma.ErrorDetail{Location: whole.Replace(e.Location), Message: e.Message, Value: echoed(e.Value)}
		}
	}
	return all
}

// unknown says of a member of a body with that schema, which stands at a place, that it is not known. What it stands in, of
// which the check tells all, is left out.
func unknown(registry huma.Registry, body *huma.Schema, at string, e *huma.ErrorDetail) *huma.ErrorDetail {
	schema, path := resolved(registry, body), strings.TrimPrefix(e.Location, at)
	for {
		name, rest, deeper := strings.Cut(path, ".")
		if !deeper || schema.Properties[name] == nil {
			return &huma.ErrorDetail{Location: e.Location, Message: unknownMember + yamlfile.DidYouMean(whole.Replace(path), slices.Sorted(maps.Keys(schema.Properties)))}
		}
		schema, path = resolved(registry, schema.Properties[name]), rest
	}
}
