package main

import (
	"bytes"
	"cmp"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"text/tabwriter"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/theory/jsonpath"
	"github.com/theory/jsonpath/spec"
	"go.yaml.in/yaml/v3"

	"github.com/waybill-dev/waybill/internal/words"
)

// Forms of output, but for jsonpath=EXPRESSION.
const (
	asTable = "table"
	asWide  = "wide" // a table with more columns, where there are more
	asJSON  = "json"
	asYAML  = "yaml"
	asNames = "name" // ids alone
)

// output is how a command prints data. As a flag it is read and checked before
// the command does anything.
type output struct {
	format oneOf
	path   *jsonpath.Path // with jsonpath=EXPRESSION
	names  []string
	utc    bool
	ages   bool // tables say how long ago something was
}

// addOutput adds the flag that says how to print. Names are where ids stand in what
// the command prints: JSONPath, behind which ": a/b" says that an id is made of two
// members. Without any the command prints nothing that has an id.
func addOutput(flags *pflag.FlagSet, names ...string) *output {
	o := &output{oneOf{asTable, []string{asTable, asWide, asJSON, asYAML}}, nil, names, false, false}
	if len(names) > 0 {
		o.format.allowed = append(o.format.allowed, asNames)
	}
	flags.VarP(o, "output", "o", "how to print")
	flags.BoolVar(&o.utc, "utc", false, "times of tables in UTC instead of this machine's zone; data has them in UTC always")
	return o
}

// String returns the format.
func (o *output) String() string { return o.format.String() }

// Type is shown in the help.
func (o *output) Type() string { return o.format.Type() + "|jsonpath=" }

// Set checks and takes a format.
func (o *output) Set(value string) error {
	expression, queries := strings.CutPrefix(value, "jsonpath=")
	switch {
	case queries:
		path, err := jsonpath.Parse(expression)
		if err != nil {
			return fmt.Errorf("%q is no JSONPath, which is written as in -o jsonpath='$.orders[*].orderId': %w", expression, err)
		}
		o.format.value, o.path = value, path
		return nil
	case value == asNames && len(o.names) == 0:
		return errors.New("this command prints nothing that has a name")
	case o.format.Set(value) != nil:
		return fmt.Errorf("use one of %s, or jsonpath= and an expression", strings.Join(o.format.allowed, ", "))
	}
	o.path = nil
	return nil
}

// wide says whether tables have all columns, and whole texts.
func (o *output) wide() bool { return o.format.value == asWide }

// data says whether data is printed, and no table.
func (o *output) data() bool { return o.format.value != asTable && !o.wide() }

// short cuts text that would make a table hard to read, unless it is wide.
func (o *output) short(s string) string {
	if o.wide() {
		return s
	}
	return words.Short(s)
}

// print prints value as data, or what table writes. A row is one line with tabs
// between its cells.
func (o *output) print(cmd *cobra.Command, value any, table func(row func(cells ...any))) error {
	switch {
	case !o.data():
		o.ages = isTerminal(cmd.OutOrStdout()) && !o.wide() && !o.utc
		words.InZone(value, o.zone())
		return printTable(cmd.OutOrStdout(), table)
	case o.format.value == asJSON:
		return printJSON(cmd.OutOrStdout(), value, jsontext.WithIndent("  "))
	}
	return o.printData(cmd, value)
}

// printNext prints value as one of several that follow each other: JSON on a line of its own,
// and YAML as a document of its own.
func (o *output) printNext(cmd *cobra.Command, value any) error {
	w := cmd.OutOrStdout()
	switch o.format.value {
	case asJSON:
		return printJSON(w, value)
	case asYAML:
		if _, err := io.WriteString(w, "---\n"); err != nil {
			return err
		}
	}
	return o.printData(cmd, value)
}

// printData prints value as YAML, as its names, or what the expression selects of it.
func (o *output) printData(cmd *cobra.Command, value any) error {
	w := cmd.OutOrStdout()
	text, err := encodeJSON(value)
	if err != nil {
		return err
	}
	if o.format.value == asYAML {
		return printYAML(w, text)
	}
	if o.path == nil {
		names, err := o.namesOf(value)
		out := 0
		for _, name := range names {
			if words.Clean(name) != name { // written otherwise it would be the id of something else
				out++
				continue
			}
			fmt.Fprintln(w, name)
		}
		if out > 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s left out, with characters that cannot be printed, such as line breaks: see -o json.\n", words.Several(out, "id is", "ids are"))
		}
		return err
	}
	selected, err := selects(o.path, text)
	if err != nil {
		return err
	}
	for _, node := range selected {
		text, err := nodeText(node)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(w, words.Clean(text)); err != nil {
			return err
		}
	}
	return nil
}

// namesOf are the ids that stand in what a command prints, as they are.
func (o *output) namesOf(value any) (all []string, _ error) {
	text, err := encodeJSON(value)
	if err != nil {
		return nil, err
	}
	document, err := decodeJSON(text)
	if err != nil {
		return nil, err
	}
	for _, names := range o.names {
		for _, node := range namesIn(document, names) {
			name, err := nodeText(node)
			if err != nil {
				return nil, err
			}
			all = append(all, name)
		}
	}
	return all, nil
}

// selects is what a JSONPath selects of JSON, in the order that RFC 9535 says, and where it leaves that
// open, between the members of an object, in the order in which they are written.
func selects(path *jsonpath.Path, text []byte) (values []any, _ error) {
	document, err := decodeJSON(text)
	if err != nil {
		return nil, err
	}
	written, err := yamlOf(jsontext.NewDecoder(bytes.NewReader(text), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)))
	if err != nil {
		return nil, fmt.Errorf("read JSON: %w", err)
	}
	nodes := []node{{document, written}}
	for _, segment := range path.Query().Segments() {
		var next []node
		for _, n := range nodes {
			next = n.selects(segment, document, next)
		}
		nodes = next
	}
	for _, n := range nodes {
		values = append(values, n.value)
	}
	return values, nil
}

// node is a part of a document, and how it is written there.
type node struct {
	value   any
	written *yaml.Node
}

// selects adds what a segment selects of the node.
func (n node) selects(segment *spec.Segment, root any, to []node) []node {
	children := n.children()
	for _, selector := range segment.Selectors() {
		found := make(map[spec.NormalSelector]bool)
		for _, at := range selector.SelectLocated(n.value, root, nil) {
			if i, element := at.Path[0].(spec.Index); element { // in the order of the selector
				to = append(to, children[i].node)
			} else {
				found[at.Path[0]] = true
			}
		}
		for i := range children {
			if found[children[i].key] {
				to = append(to, children[i].node)
			}
		}
	}
	if segment.IsDescendant() {
		for i := range children {
			to = children[i].selects(segment, root, to)
		}
	}
	return to
}

// selected is a member or an element of a node.
type selected struct {
	key spec.NormalSelector
	node
}

// children are the members or elements of the node, as they are written.
func (n node) children() (all []selected) {
	switch value := n.value.(type) {
	case []any:
		for i := range value {
			all = append(all, selected{spec.Index(i), node{value[i], n.written.Content[i]}})
		}
	case map[string]any:
		for i := 0; i < len(n.written.Content); i += 2 {
			name := n.written.Content[i].Value
			all = append(all, selected{spec.Name(name), node{value[name], n.written.Content[i+1]}})
		}
	}
	return all
}

// decodeJSON reads JSON of which numbers stay as they are written.
func decodeJSON(text []byte) (document any, _ error) {
	decoder := stdjson.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&document); err != nil {
		return nil, fmt.Errorf("read JSON: %w", err)
	}
	return document, nil
}

// namesIn are the ids that stand in a document where names says.
func namesIn(document any, names string) (found []any) {
	path, form, composed := strings.Cut(names, ": ")
	nodes := jsonpath.MustParse(path).SelectLocated(document)
	nodes.Sort() // members have no order
	for _, at := range nodes {
		members, object := at.Node.(map[string]any)
		switch {
		case composed && object:
			found = append(found, member.ReplaceAllStringFunc(form, func(name string) string { return fmt.Sprint(members[name]) }))
		case object: // the name is its key
			found = append(found, string(at.Path[len(at.Path)-1].(spec.Name))) //nolint:forcetypeassert // it is that of a member
		case at.Node != nil:
			found = append(found, at.Node)
		}
	}
	return found
}

var member = regexp.MustCompile(`[a-zA-Z]+`)

// nodeText is a part of a document: text without quotes, all else as JSON on one line.
func nodeText(node any) (string, error) {
	if text, is := node.(string); is {
		return text, nil
	}
	var b bytes.Buffer
	encoder := stdjson.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(node); err != nil {
		return "", fmt.Errorf("write JSON: %w", err)
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// underRow begins what stands under a row in a line of its own, whatever columns there are.
const underRow = "  "

func printTable(w io.Writer, table func(row func(cells ...any))) error {
	var aligned bytes.Buffer
	t := tabwriter.NewWriter(&aligned, 0, 0, 2, ' ', 0)
	under, rows := make(map[int]string), 0
	table(func(cells ...any) {
		line := make([]string, len(cells))
		for i, c := range cells {
			line[i] = words.Clean(fmt.Sprint(c))
		}
		if rows > 0 && len(line) == 1 && strings.HasPrefix(line[0], underRow) { // among the others it would end the columns
			under[rows] += line[0] + "\n"
			return
		}
		fmt.Fprintln(t, strings.TrimRight(strings.Join(line, "\t"), "\t"))
		rows++
	})
	if err := t.Flush(); err != nil {
		return err
	}
	rows = 0
	for line := range strings.Lines(aligned.String()) {
		rows++
		if _, err := io.WriteString(w, line+under[rows]); err != nil {
			return err
		}
	}
	return nil
}

// encodeJSON writes value as JSON, always in the same way. What it holds of others may be no good JSON.
func encodeJSON(value any, opts ...json.Options) ([]byte, error) {
	text, err := json.Marshal(value, append(opts, json.Deterministic(true), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))...)
	if err != nil {
		return nil, fmt.Errorf("write JSON: %w", err)
	}
	return text, nil
}

func printJSON(w io.Writer, value any, opts ...json.Options) error {
	text, err := encodeJSON(value, opts...)
	if err != nil {
		return err
	}
	_, err = w.Write(append(text, '\n'))
	return err
}

// printYAML prints JSON as YAML, its members in their order.
func printYAML(w io.Writer, text []byte) error {
	node, err := yamlOf(jsontext.NewDecoder(bytes.NewReader(text), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)))
	if err != nil {
		return fmt.Errorf("read JSON: %w", err)
	}
	encoder := yaml.NewEncoder(w)
	encoder.SetIndent(2)
	if err := errors.Join(encoder.Encode(node), encoder.Close()); err != nil {
		return fmt.Errorf("write YAML: %w", err)
	}
	return nil
}

// yamlOf reads the next JSON value. Numbers stay as they are written; of a name that comes twice
// the last value counts, as for most who read JSON.
func yamlOf(d *jsontext.Decoder) (*yaml.Node, error) {
	token, err := d.ReadToken()
	if err != nil {
		return nil, err
	}
	node := new(yaml.Node)
	switch token.Kind() {
	case '{':
		node.Kind = yaml.MappingNode
		places := make(map[string]int)
		for d.PeekKind() != '}' {
			name, err := yamlOf(d)
			if err != nil {
				return nil, err
			}
			value, err := yamlOf(d)
			if err != nil {
				return nil, err
			}
			if at, twice := places[name.Value]; twice {
				node.Content[at] = value
				continue
			}
			node.Content = append(node.Content, name, value)
			places[name.Value] = len(node.Content) - 1
		}
		_, err = d.ReadToken()
	case '[':
		node.Kind = yaml.SequenceNode
		for d.PeekKind() != ']' {
			value, err := yamlOf(d)
			if err != nil {
				return nil, err
			}
			node.Content = append(node.Content, value)
		}
		_, err = d.ReadToken()
	case '"':
		node.Kind, node.Tag, node.Value = yaml.ScalarNode, "!!str", token.String()
		if !unquoted.MatchString(node.Value) || quoted.MatchString(node.Value) {
			node.Style = yaml.DoubleQuotedStyle
		}
	case '0':
		node.Kind, node.Value = yaml.ScalarNode, token.String()
		if parts := exponent.FindStringSubmatch(node.Value); parts != nil {
			node.Value = parts[1] + cmp.Or(parts[2], ".0") + "e" + cmp.Or(parts[3], "+") + parts[4]
		}
	default:
		node.Kind, node.Value = yaml.ScalarNode, token.String()
	}
	return node, err
}

var (
	// unquoted is text that needs no quotes in YAML, whatever its version, but for what is quoted.
	unquoted = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_./@ -]*[A-Za-z0-9_./@-])?$`)
	// quoted are the words that YAML 1.1 or 1.2 reads as something else than text.
	quoted = regexp.MustCompile(`^(?i:y|n|yes|no|on|off|true|false|null)$`)
	// exponent is a number of JSON that YAML 1.1 knows with a fraction and the exponent's sign alone.
	exponent = regexp.MustCompile(`^(-?[0-9]+)(\.[0-9]+)?[eE]([+-]?)([0-9]+)$`)
)
