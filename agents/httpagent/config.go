package httpagent

import (
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/yamlfile"
)

// Agent is what a file describes.
type Agent struct {
	// Name is the agent's, which workflow files use after `agent:`.
	Name string

	concurrency int
	retry       *agents.Retry
	breaker     *agents.Breaker
	operations  map[string]*operation
	secrets     *strings.Replacer
}

// operation is how one operation becomes a call.
type operation struct {
	name     string
	method   string
	template template // of the URL as it is written, for people
	target   *target
	headers  []pair
	body     body
	output   *node // nil for none
	timeout  time.Duration
	verdicts verdicts
}

// Read reads a file. File is the name that problems are reported under; nothing
// is opened. The environment is looked up as by [os.LookupEnv].
//
// The error is [Errors], and holds everything that is wrong with the file.
func Read(file string, source []byte, environment func(string) (string, bool)) (*Agent, error) {
	r := &reader{secrets: make(map[string]bool)}
	r.File = file
	r.scope.lookup = func(name string) (string, bool) {
		value, ok := environment(name)
		if value != "" {
			r.secrets[value] = true
		}
		return value, ok
	}
	a := r.agent(r.Document(source, maxFile, "agent: NAME"))
	if err := r.Sorted(); err != nil {
		return nil, err
	}
	a.secrets = hide(slices.Collect(maps.Keys(r.secrets)))
	return a, nil
}

// reader turns the document into an agent. A value that is wrong is reported
// and passed over, so that the rest can be checked.
type reader struct {
	yamlfile.Reader
	scope   scope
	secrets map[string]bool

	base    *target
	prefix  template // base as it is written
	headers []pair   // those of all operations
	noBase  bool     // base is there and wrong: what depends on it cannot be judged
}

func (r *reader) agent(n ast.Node) *Agent {
	a := &Agent{concurrency: 16, retry: &agents.Retry{}, breaker: &agents.Breaker{}, operations: make(map[string]*operation)}
	if n == nil {
		return a
	}
	var operations ast.Node
	given := r.Mapping(n, "the file", []yamlfile.Field{
		{"agent", func(n ast.Node) { a.Name = r.name(n) }},
		{"concurrency", func(n ast.Node) { r.Whole(n, "concurrency", 10_000, &a.concurrency) }},
		{"base", r.readBase},
		{"headers", func(n ast.Node) { r.headers = r.readHeaders(n) }},
		{"retry", func(n ast.Node) { a.retry = r.retry(n) }},
		{"breaker", func(n ast.Node) { a.breaker = r.breaker(n) }},
		{"operations", func(n ast.Node) { operations = n }}, // after base and headers, wherever those stand
	})
	r.Require(n, given, "the file", "agent", "operations")
	if operations == nil {
		return a
	}
	named := r.Entries(operations, "operations", "write the name of each operation and a mapping behind it", func(name string, at *token.Token, value ast.Node) {
		if name == "" {
			r.Add(at, "an operation has no name; write the one that workflows use behind do or undo")
		}
		a.operations[name] = r.operation(name, at, value)
	})
	if named != nil && len(named) == 0 {
		r.Add(yamlfile.Start(operations), "there are no operations; write at least one")
	}
	return a
}

// maxAgent is the longest name of an agent, in bytes.
const maxAgent = 100

func (r *reader) name(n ast.Node) string {
	name, at, ok := r.scalar(n, "the agent's name")
	if ok && (len(name) > maxAgent || !events.ValidTopic(name)) {
		r.Add(at, "the agent's name is %s; use 1 to %d of a-z A-Z 0-9 . _ -", quote(name), maxAgent)
	}
	return name
}

// text reads a template.
func (r *reader) text(n ast.Node, what string, s scope) (template, bool) {
	text, at, ok := r.scalar(n, what)
	if !ok {
		return nil, false
	}
	return r.template(text, at, s)
}

func (r *reader) template(text string, at *token.Token, s scope) (template, bool) {
	t, faults := s.parse(text)
	for _, fault := range faults {
		r.Add(at, "%s", fault)
	}
	return t, len(faults) == 0
}

func (r *reader) readBase(n ast.Node) {
	r.noBase = true
	t, ok := r.text(n, "base", r.scope)
	if !ok {
		return
	}
	base, err := newTarget(nil, t)
	if err == nil {
		err = base.asBase()
	}
	if err != nil {
		r.Add(yamlfile.Start(n), "base %v", err)
		return
	}
	r.base, r.prefix, r.noBase = base, t, false
}

// ours are headers that a file cannot set.
var ours = map[string]string{
	"Idempotency-Key":   "it is always the request's key; send the key under another name with {idempotencyKey}",
	"Host":              "it is always that of the URL",
	"Content-Length":    "it follows from the body",
	"Transfer-Encoding": "it follows from the body",
	"Connection":        "connections are kept by themselves",
	"Trailer":           "trailers are not supported",
}

func (r *reader) readHeaders(n ast.Node) []pair {
	var headers []pair
	r.Entries(n, "headers", "write the name of each header and its value behind it", func(name string, at *token.Token, value ast.Node) {
		header := textproto.CanonicalMIMEHeaderKey(name)
		switch why := ours[header]; {
		case name == "" || strings.ContainsFunc(name, func(c rune) bool { return !isToken(c) }):
			r.Add(at, "%s is no name of a header; use letters, digits and -", quote(name))
			return
		case why != "":
			r.Add(at, "the header %s cannot be set: %s", header, why)
			return
		case slices.ContainsFunc(headers, func(h pair) bool { return h.name == header }):
			r.Add(at, "the header %s is given twice; remove one", header)
			return
		}
		t, ok := r.text(value, "a header's value", r.scope)
		if !ok {
			return
		}
		for _, p := range t {
			if strings.ContainsFunc(p.text, func(c rune) bool { return isControl(c) && c != '\t' }) {
				r.Add(yamlfile.Start(value), "the header %s holds a line break or another control character; remove it", header)
				return
			}
		}
		headers = append(headers, pair{header, t})
	})
	return headers
}

// isToken reports whether a character may be part of a header's name or a method.
func isToken(c rune) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", c)
}

// none reports whether a value is the word none.
func none(n ast.Node) bool {
	s, ok := n.(*ast.StringNode)
	return ok && s.Value == "none"
}

func (r *reader) retry(n ast.Node) *agents.Retry {
	if none(n) {
		return nil
	}
	retry := agents.Retry{Attempts: 3, Backoff: 100 * time.Millisecond, Jitter: 0.2}
	before := r.Wrong()
	given := r.Mapping(n, "retry", []yamlfile.Field{
		{"attempts", func(n ast.Node) { r.Whole(n, "attempts", 100, &retry.Attempts) }},
		{"backoff", func(n ast.Node) { r.duration(n, "backoff", &retry.Backoff) }},
		{"max", func(n ast.Node) { r.duration(n, "max", &retry.Max) }},
		{"jitter", func(n ast.Node) { r.Number(n, "jitter", 0, 1, &retry.Jitter) }},
	})
	if r.Wrong() == before && given["max"] != nil && retry.Max < retry.Backoff {
		r.Add(given["max"], "max is %v, less than backoff, which is %v; raise it", retry.Max, retry.Backoff)
	}
	if retry.Jitter == 0 {
		retry.Jitter = -1 // none, to the SDK
	}
	return &retry
}

func (r *reader) breaker(n ast.Node) *agents.Breaker {
	if none(n) {
		return nil
	}
	breaker := agents.Breaker{Failures: 10}
	before := r.Wrong()
	given := r.Mapping(n, "breaker", []yamlfile.Field{
		{"failures", func(n ast.Node) { r.Whole(n, "failures", 10_000, &breaker.Failures) }},
		{"window", func(n ast.Node) { r.Whole(n, "window", 10_000, &breaker.Window) }},
		{"delay", func(n ast.Node) { r.duration(n, "delay", &breaker.Delay) }},
		{"successes", func(n ast.Node) { r.Whole(n, "successes", 10_000, &breaker.Successes) }},
	})
	if r.Wrong() == before && given["window"] != nil && breaker.Window < breaker.Failures {
		r.Add(given["window"], "window is %d, less than failures, which is %d; raise it", breaker.Window, breaker.Failures)
	}
	return &breaker
}

var methods = []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodGet, http.MethodHead}

func (r *reader) operation(name string, at *token.Token, n ast.Node) *operation {
	o := &operation{
		name: name, method: http.MethodPost, headers: r.headers,
		output:   &node{text: template{{ref: &reference{name: "response.body", root: "response", path: []string{"body"}, optional: true}}}},
		verdicts: make(verdicts),
	}
	var form ast.Node
	after := r.scope
	after.response = true
	given := r.Mapping(n, "an operation", []yamlfile.Field{
		{"method", func(n ast.Node) { o.method = r.method(n) }},
		{"url", func(n ast.Node) { r.url(n, o) }},
		{"headers", func(n ast.Node) { o.headers = override(r.headers, r.readHeaders(n)) }},
		{"body", func(n ast.Node) { o.body.json = r.content(n, "body", []string{"input", "output"}, "", r.scope) }},
		{"form", func(n ast.Node) { form, o.body.form = n, r.form(n) }},
		{"output", func(n ast.Node) { o.output = r.content(n, "output", []string{"body"}, "response.", after) }},
		{"timeout", func(n ast.Node) { r.duration(n, "timeout", &o.timeout) }},
		{"transient", func(n ast.Node) { r.verdicts(n, o.verdicts, transient) }},
		{"permanent", func(n ast.Node) { r.verdicts(n, o.verdicts, permanent) }},
		{"success", func(n ast.Node) { r.verdicts(n, o.verdicts, success) }},
	})
	if given == nil {
		return o
	}
	if given["url"] == nil {
		r.Add(at, "the operation %s has no \"url\"; add it", quote(name))
	}
	reads := o.method == http.MethodGet || o.method == http.MethodHead
	switch {
	case form != nil && given["body"] != nil:
		r.Add(given["form"], "the operation has a body and a form; remove one")
	case reads && o.body.json != nil:
		r.Add(given["body"], "%s sends no body; remove it, or use another method", o.method)
	case reads && form != nil:
		r.Add(given["form"], "%s sends no form; remove it, or use another method", o.method)
	case given["body"] == nil && form == nil && !reads && o.method != http.MethodDelete:
		o.body.json = &node{text: template{{ref: &reference{name: "input", root: "input", optional: true}}}}
	}
	return o
}

// override adds an operation's headers to those of all operations.
func override(all, own []pair) []pair {
	merged := slices.Clone(own)
	for _, h := range all {
		if !slices.ContainsFunc(own, func(o pair) bool { return o.name == h.name }) {
			merged = append(merged, h)
		}
	}
	return merged
}

func (r *reader) method(n ast.Node) string {
	method, at, ok := r.scalar(n, "method")
	if ok && !slices.Contains(methods, method) {
		r.Add(at, "method is %s; write one of %s", quote(method), strings.Join(methods, ", "))
	}
	return method
}

func (r *reader) url(n ast.Node, o *operation) {
	t, ok := r.text(n, "url", r.scope)
	if !ok {
		return
	}
	target, err := newTarget(r.base, t)
	if err != nil {
		if !r.noBase {
			r.Add(yamlfile.Start(n), "url %v", err)
		}
		return
	}
	o.target, o.template = target, t
	if written := t.String(); strings.HasPrefix(written, "/") || strings.HasPrefix(written, "?") {
		o.template = append(slices.Clone(r.prefix), t...)
	}
}

func (r *reader) form(n ast.Node) []pair {
	form := []pair{}
	r.Entries(n, "form", "write the name of each field and its value behind it", func(name string, _ *token.Token, value ast.Node) {
		if t, ok := r.text(value, "a field's value", r.scope); ok {
			form = append(form, pair{name, t})
		}
	})
	return form
}

// content reads a JSON value with placeholders. A word of words stands for the
// placeholder of that name, behind the prefix; none for nothing.
func (r *reader) content(n ast.Node, what string, words []string, prefix string, s scope) *node {
	if none(n) {
		return nil
	}
	if text, ok := n.(*ast.StringNode); ok {
		if slices.Contains(words, text.Value) {
			// What is not there is not sent.
			t, _ := s.parse("{" + prefix + text.Value + "?}")
			return &node{text: t}
		}
		if !strings.Contains(text.Value, "{") {
			r.Add(yamlfile.Start(n), "%s is %s; write %s or none, a placeholder such as \"{input.customer}\", or a mapping of keys to values", what, quote(text.Value), strings.Join(words, ", "))
			return nil
		}
	}
	made := r.node(n, what, s)
	return &made
}

func (r *reader) node(n ast.Node, what string, s scope) node {
	switch n := n.(type) {
	case *ast.MappingNode:
		if name, ok := unquoted(n); ok {
			r.Add(yamlfile.Start(n), "a placeholder is a mapping to YAML without quotes; write \"{%s}\"", name)
			return node{}
		}
		if len(n.Values) == 0 {
			return node{raw: jsontext.Value("{}")}
		}
		made := node{object: []member{}}
		r.Entries(n, what, "", func(name string, _ *token.Token, value ast.Node) {
			made.object = append(made.object, member{text(name), r.node(value, what, s)})
		})
		return made
	case *ast.SequenceNode:
		if len(n.Values) == 0 {
			return node{raw: jsontext.Value("[]")}
		}
		made := node{array: []node{}}
		for _, entry := range n.Values {
			made.array = append(made.array, r.node(entry, what, s))
		}
		return made
	case *ast.NullNode:
		return node{raw: jsontext.Value("null")}
	case *ast.BoolNode:
		return node{raw: jsontext.Value(strconv.FormatBool(n.Value))}
	case *ast.StringNode:
		t, _ := r.template(n.Value, yamlfile.Start(n), s)
		if t == nil {
			t = template{{}}
		}
		return node{text: t}
	case *ast.IntegerNode, *ast.FloatNode:
		number := jsontext.Value(yamlfile.Start(n).Value)
		if !number.IsValid() {
			r.Add(yamlfile.Start(n), "%s is no number in JSON; write it in decimal, or in quotes if it is text", quote(yamlfile.Start(n).Value))
		}
		return node{raw: number}
	}
	r.Add(yamlfile.Start(n), "%s holds %s; write text, a number, true, false, null, a list or a mapping", what, yamlfile.Kind(n))
	return node{}
}

// verdicts reads a list of answers that count as something else than usual.
func (r *reader) verdicts(n ast.Node, all verdicts, verdict verdict) {
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		r.Add(yamlfile.Start(n), "%s is a list, this is %s; write it like [409, 423]", verdict, yamlfile.Kind(n))
		return
	}
	for _, entry := range list.Values {
		text, at, ok := r.scalar(entry, "a status")
		if !ok {
			continue
		}
		least := 200
		if verdict == success {
			least = 300 // those below are one anyway
		}
		if fault := checkAnswer(text, verdict, least); fault != "" {
			r.Add(at, "%s", fault)
			continue
		}
		if as, twice := all[text]; twice {
			r.Add(at, "%s is listed twice, first as %s; remove one", text, as)
			continue
		}
		all[text] = verdict
	}
}

// checkAnswer says what keeps an answer from being listed.
func checkAnswer(text string, verdict verdict, least int) string {
	classes := ", 4xx, 5xx or network"
	if verdict == success {
		classes = "" // that would hide more than anybody means
	}
	if text == answerNetwork || text == "4xx" || text == "5xx" {
		if verdict == success {
			return fmt.Sprintf("%s cannot be a success; list the single statuses", text)
		}
		return ""
	}
	if code, err := strconv.Atoi(text); err != nil || strconv.Itoa(code) != text || code < least || code > 599 {
		return fmt.Sprintf("%s is no status that can be listed here; write numbers from %d to 599%s", quote(text), least, classes)
	}
	return ""
}
