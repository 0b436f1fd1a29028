package workflow

import (
	"fmt"
	"slices"

	"github.com/goccy/go-yaml/token"

	"github.com/waybill-dev/waybill/yamlfile"
)

// What a file may hold. Workflows stay far below; the limits keep the YAML
// library within linear time and a shallow stack, whatever the file holds.
const (
	maxDepth  = 32       // lists and mappings inside one another
	maxKeys   = 100      // keys in one block mapping
	maxKey    = 100      // bytes in one key
	maxBlanks = 100      // keys and entries without a value
	maxPaths  = 32 << 20 // bytes of the paths of keys of all values
)

// guard refuses, before the library's parser sees them, tokens that are not of
// the language and tokens that would cost the parser too much: it recurses for
// every level and for every key of a block mapping, copies the rest of the
// file for every missing value, and keeps the path of keys with every node.
type guard struct {
	file   string
	tokens []*token.Token
	within []collection
	blanks int
	paths  int // bytes, of all tokens so far
}

// collection is a list or mapping that is open at a token.
type collection struct {
	opener token.Type // of the token that marks its kind: one of '-', ':', '[', '{'
	column int        // where its entries or keys start, in block style
	keys   int        // how many keys it has so far, in block style
	colon  bool       // whether the entry at hand has a key, in a flow mapping
	path   int        // bytes of the keys that lead to the entry at hand
}

var notInTheLanguage = map[token.Type]string{
	token.AnchorType:     "anchors (&) are not supported; write the value out where it is used",
	token.AliasType:      "aliases (*) are not supported; write the value out, or quote it if it is text",
	token.MergeKeyType:   "merge keys (<<) are not supported; write the keys out",
	token.TagType:        "tags (!) are not supported; leave the tag away, or quote the value if it is text",
	token.DirectiveType:  "directives (%) are not supported; leave the line away",
	token.MappingKeyType: "keys marked with ? are not supported; write \"key: value\"",
	token.LiteralType:    "block text (|) is supported for expressions only: when, with, undoWith, until and for; write the value on one line",
	token.FoldedType:     "block text (>) is supported for expressions only: when, with, undoWith, until and for; write the value on one line",
}

// check returns the first problem, nil when there is none.
func (g *guard) check() *Error {
	for i := range g.tokens {
		if err := g.token(i); err != nil {
			return err
		}
		if len(g.within) > maxDepth {
			return g.refuse(g.tokens[i], "lists and mappings are nested more than %d deep; the steps of a workflow need 4, use $defs and $ref in its input", maxDepth)
		}
		if g.paths += g.innermost().path; g.paths > maxPaths {
			return g.refuse(g.tokens[i], "there are too many values under long keys inside one another; use shorter keys, or $defs and $ref in the input")
		}
		if g.blanks > maxBlanks {
			return g.refuse(g.tokens[i], "more than %d keys and list entries have no value; give each one or remove it", maxBlanks)
		}
	}
	return nil
}

func (g *guard) token(i int) *Error {
	tk := g.tokens[i]
	if message, ok := notInTheLanguage[tk.Type]; ok && !g.isExpression(i) {
		return g.refuse(tk, "%s", message)
	}
	switch tk.Type {
	case token.InvalidType:
		return g.refuse(tk, "this is not YAML: %s", tk.Error)
	case token.DocumentHeaderType:
		if i > 0 {
			return g.refuse(tk, "a second document starts here; write one file for each workflow")
		}
	case token.DocumentEndType:
		if i+1 < len(g.tokens) {
			return g.refuse(g.tokens[i+1], "something follows the end of the document; write one file for each workflow")
		}
	case token.SequenceStartType, token.MappingStartType:
		g.within = append(g.within, collection{opener: tk.Type, path: g.innermost().path + 4})
	case token.SequenceEndType:
		return g.close(tk, token.SequenceStartType, "]", "[")
	case token.MappingEndType:
		g.entryEnds(i)
		return g.close(tk, token.MappingStartType, "}", "{")
	case token.CollectEntryType:
		g.entryEnds(i)
	case token.SequenceEntryType:
		return g.entry(i)
	case token.MappingValueType:
		return g.key(i)
	}
	return nil
}

// isExpression says whether the token at i starts block text that is an
// expression: those may be long, and are the only such text. The parser takes
// no more for it than for text in quotes, and what the scanner takes is bounded
// before it starts.
func (g *guard) isExpression(i int) bool {
	if tk := g.tokens[i].Type; tk != token.LiteralType && tk != token.FoldedType {
		return false
	}
	return i >= 2 && g.tokens[i-1].Type == token.MappingValueType && slices.Contains(expressionKeys, g.tokens[i-2].Value)
}

// innermost is the collection that a token belongs to; a block mapping without
// a place where there is none.
func (g *guard) innermost() *collection {
	if len(g.within) == 0 {
		return &collection{}
	}
	return &g.within[len(g.within)-1]
}

// above is how long the path to the innermost collection is.
func (g *guard) above() int {
	if len(g.within) < 2 {
		return 0
	}
	return g.within[len(g.within)-2].path
}

func (g *guard) inFlow() bool {
	in := g.innermost().opener
	return in == token.SequenceStartType || in == token.MappingStartType
}

func (g *guard) close(tk *token.Token, opener token.Type, end, start string) *Error {
	if g.innermost().opener != opener {
		return g.refuse(tk, "this %s closes nothing; remove it or write the missing %s", end, start)
	}
	g.within = g.within[:len(g.within)-1]
	return nil
}

// entryEnds handles the ',' or '}' at i.
func (g *guard) entryEnds(i int) {
	in := g.innermost()
	if in.opener != token.MappingStartType {
		return
	}
	if before := g.tokens[i-1].Type; !in.colon && before != token.MappingStartType && before != token.CollectEntryType {
		g.blanks++
	}
	in.colon = false
}

// entry handles the '-' at i.
func (g *guard) entry(i int) *Error {
	tk := g.tokens[i]
	if g.inFlow() {
		return g.refuse(tk, "a list in brackets has no dashes; separate its entries with commas")
	}
	g.dedent(tk.Position.Column)
	if in := g.innermost(); in.opener != tk.Type || in.column != tk.Position.Column {
		g.within = append(g.within, collection{opener: tk.Type, column: tk.Position.Column, path: g.innermost().path + 4})
	}
	g.countBlank(i, tk.Position.Column)
	return nil
}

// key handles the ':' at i, which makes a key of what precedes it.
func (g *guard) key(i int) *Error {
	tk := g.tokens[i]
	if i == 0 {
		return g.refuse(tk, "there is no key before this colon; write \"key: value\"")
	}
	key := g.tokens[i-1]
	if len(key.Value) > maxKey {
		return g.refuse(key, "unknown key %s: no key is that long", quote(key.Value))
	}
	in := g.innermost()
	switch in.opener {
	case token.SequenceStartType:
		return g.refuse(key, "a list in brackets holds values, not keys; put { } around %s and its value, or quote a text with a colon", quote(key.Value))
	case token.MappingStartType:
		if in.colon {
			return g.refuse(key, "a comma is missing before %s, or quotes around a text with a colon", quote(key.Value))
		}
		in.colon = true
		in.path = g.above() + len(key.Value)
		if i+1 < len(g.tokens) {
			switch g.tokens[i+1].Type {
			case token.CollectEntryType, token.MappingEndType:
				g.blanks++
			}
		}
		return nil
	}
	column := key.Position.Column
	g.dedent(column)
	if in := g.innermost(); in.opener == token.SequenceEntryType && in.column == column {
		// The list may stand in the column of the key that it belongs to.
		g.within = g.within[:len(g.within)-1]
	}
	if in := g.innermost(); in.opener != tk.Type || in.column != column {
		g.within = append(g.within, collection{opener: tk.Type, column: column})
	}
	in = g.innermost()
	in.path = g.above() + len(key.Value)
	if in.keys++; in.keys > maxKeys {
		return g.refuse(key, "a mapping has more than %d keys; no mapping of a workflow has that many", maxKeys)
	}
	g.countBlank(i, column)
	return nil
}

// dedent leaves the block collections that lie deeper than the column.
func (g *guard) dedent(column int) {
	for !g.inFlow() && g.innermost().column > column {
		g.within = g.within[:len(g.within)-1]
	}
}

// countBlank counts the '-' or ':' at i if no value follows it; its entry or
// key stands in the column.
func (g *guard) countBlank(i, column int) {
	if i+1 == len(g.tokens) {
		g.blanks++
		return
	}
	tk, next := g.tokens[i], g.tokens[i+1]
	listOfKey := tk.Type == token.MappingValueType && next.Type == token.SequenceEntryType && next.Position.Column == column
	if next.Position.Line > tk.Position.Line && next.Position.Column <= column && !listOfKey {
		g.blanks++
	}
}

func (g *guard) refuse(at *token.Token, format string, args ...any) *Error {
	err := yamlfile.ErrorAt(g.file, at, "%s", fmt.Sprintf(format, args...))
	return &err
}
