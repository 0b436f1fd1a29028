package httpagent

import (
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/waybill-dev/waybill/yamlfile"
)

// maxFile is the size of the largest file, in bytes, and longest the longest duration that it may
// ask for.
const (
	maxFile = 1 << 20
	longest = 24 * time.Hour
)

// scalar returns an entry's text as the file has it.
func (r *reader) scalar(n ast.Node, what string) (string, *token.Token, bool) {
	if name, ok := unquoted(n); ok {
		at := yamlfile.Start(n)
		r.Add(at, "%s is a mapping to YAML without quotes; write \"{%s}\"", what, name)
		return "", at, false
	}
	return r.Text(n, what)
}

// unquoted recognises a placeholder that was written without quotes.
func unquoted(n ast.Node) (string, bool) {
	m, ok := n.(*ast.MappingNode)
	if !ok || !m.IsFlowStyle || len(m.Values) != 1 || m.Values[0].Value.Type() != ast.NullType {
		return "", false
	}
	name := m.Values[0].Key.GetToken().Value
	root, _, _ := strings.Cut(strings.TrimSuffix(name, "?"), ".")
	return name, root == "response" || slices.Contains(requestRoots, root)
}

// duration reads a duration of more than nothing into value.
func (r *reader) duration(n ast.Node, what string, value *time.Duration) {
	r.Duration(n, what, 1, longest, "at most 24h are allowed", value)
}
