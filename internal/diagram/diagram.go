// Package diagram draws the steps of a workflow, as text that others draw and as SVG.
package diagram

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/waybill-dev/waybill/internal/words"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

// Caption is what a drawing says of a step, one thing a line, the step's name first. Whatever the
// file holds, a line is printable and short.
func Caption(s *workflow.Step) []string {
	lines := []string{s.Name}
	switch {
	case s.Sleep != nil:
		lines = append(lines, "sleeps "+words.Sleeps(s.Sleep))
	case s.Listen != nil:
		lines = append(lines, "listens for "+words.Listens(s.Listen))
	case s.Approve != nil:
		lines = append(lines, words.Asks(s.Approve))
	case s.Each != nil:
		lines = append(lines, words.Each(s.Each))
	case s.Order != nil:
		lines = append(lines, words.Ordered(s.Order))
	case s.Emit != nil:
		lines = append(lines, "emits "+words.Emits(s.Emit))
	case s.Raise != nil:
		lines = append(lines, words.Raises(s.Raise))
	default:
		lines = append(lines, s.Agent+"/"+s.Do)
	}
	if waits := s.Listen != nil || s.Approve != nil || s.Each != nil || s.Order != nil; waits && s.Timeout > 0 {
		lines = append(lines, "at most "+s.Timeout.String())
	}
	if s.Repeat != nil {
		lines = append(lines, "again every "+s.Repeat.Every.String()+" until "+s.Repeat.Until.String())
	}
	if s.Undo != "" {
		lines = append(lines, "undo "+s.Undo)
	}
	if s.When != nil {
		lines = append(lines, "when "+s.When.String())
	}
	for i, line := range lines {
		lines[i] = words.Short(words.Clean(strings.Join(strings.Fields(line), " ")))
	}
	return lines
}

// Mermaid draws what the file says, in its order: also of what a step comes after.
func Mermaid(flow *workflow.Workflow) string {
	var b strings.Builder
	fmt.Fprintf(&b, "---\ntitle: %s\n---\nflowchart TD\n", flow.ID())
	for i := range flow.Steps {
		s := &flow.Steps[i]
		node := `  s%d["%s"]` // not by its name: `end` is a word of Mermaid
		if !s.Asks() {
			node = `  s%d(["%s"])`
		}
		if s.Order != nil || s.Each != nil {
			node = `  s%d[["%s"]]`
		}
		if s.Raise != nil {
			node = `  s%d{{"%s"}}`
		}
		lines := Caption(s)
		for j := range lines {
			lines[j] = mermaidText(lines[j])
		}
		fmt.Fprintf(&b, node+"\n", i, strings.Join(lines, "<br>"))
	}
	for i := range flow.Steps {
		for _, before := range flow.Steps[i].After {
			fmt.Fprintf(&b, "  s%d --> s%d\n", flow.Index(before), i)
		}
	}
	return b.String()
}

// Dot draws the same for Graphviz.
func Dot(flow *workflow.Workflow) string {
	var b strings.Builder
	fmt.Fprintf(&b, "digraph \"%s\" {\n  node [shape=box]\n", flow.ID())
	for i := range flow.Steps {
		s := &flow.Steps[i]
		style := ""
		if !s.Asks() {
			style = ", style=rounded"
		}
		if s.Order != nil || s.Each != nil {
			style = ", peripheries=2"
		}
		if s.Raise != nil {
			style = ", shape=octagon"
		}
		lines := Caption(s)
		for j := range lines {
			lines[j] = dotText.Replace(lines[j])
		}
		fmt.Fprintf(&b, "  \"%s\" [label=\"%s\"%s]\n", s.Name, strings.Join(lines, `\n`), style)
	}
	for i := range flow.Steps {
		for _, before := range flow.Steps[i].After {
			fmt.Fprintf(&b, "  \"%s\" -> \"%s\"\n", before, flow.Steps[i].Name)
		}
	}
	return b.String() + "}\n"
}

// mermaidText writes as a number every character that could mean something to Mermaid or to HTML.
// Of `\n`, `$$` and `:fa-` Mermaid makes line ends, formulas and icons all the same: there it gets
// a space of no width in between.
func mermaidText(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune(" .,-+=/?!'()", r):
			b.WriteRune(r)
		case strings.ContainsRune(`\$:`, r):
			fmt.Fprintf(&b, "#%d;#8203;", r)
		default:
			fmt.Fprintf(&b, "#%d;", r)
		}
	}
	return b.String()
}

// dotText also keeps what looks like an entity of HTML as it is written.
var dotText = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "&", "&amp;")
