package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/goccy/go-graphviz"
	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

func newWorkflowGraph() *cobra.Command {
	cmd := &cobra.Command{
		Use: "graph FILE", Short: "Draw the steps of a workflow file, without a server",
		Long: `Prints which steps come after which, as text that others draw: Mermaid, which
GitHub and many editors show, or that of Graphviz:

  waybill workflow graph FILE --format dot | dot -Tpng > workflow.png

--format svg is a drawing that browsers show, made by Graphviz, which is part of this program.`,
		Args: takes(one),
	}
	format := oneOf{"mermaid", []string{"mermaid", "dot", "svg"}}
	cmd.Flags().Var(&format, "format", "whose text to print, or svg, a drawing")
	cmd.RunE = func(cmd *cobra.Command, files []string) error {
		good, err := readDefinitions(cmd, files)
		if err != nil {
			return refused(cmd, err, "correct the problems above")
		}
		switch format.value {
		case "svg":
			return drawSVG(cmd.Context(), cmd.OutOrStdout(), good[0].flow)
		case "dot":
			_, err = io.WriteString(cmd.OutOrStdout(), drawDot(good[0].flow))
		default:
			_, err = io.WriteString(cmd.OutOrStdout(), drawMermaid(good[0].flow))
		}
		return err
	}
	return cmd
}

// caption is what a drawing says of a step, one thing a line, the step's name first. Whatever the
// file holds, a line is printable and short.
func caption(s *workflow.Step) []string {
	lines := []string{s.Name}
	switch {
	case s.Sleep != nil:
		lines = append(lines, "sleeps "+sleepText(s.Sleep))
	case s.Listen != nil:
		lines = append(lines, "listens for "+listenText(s.Listen))
		if s.Timeout > 0 {
			lines = append(lines, "at most "+s.Timeout.String())
		}
	case s.Approve != nil:
		lines = append(lines, askText(s.Approve))
		if s.Timeout > 0 {
			lines = append(lines, "at most "+s.Timeout.String())
		}
	case s.Each != nil:
		lines = append(lines, eachText(s.Each))
		if s.Timeout > 0 {
			lines = append(lines, "at most "+s.Timeout.String())
		}
	case s.Order != nil:
		lines = append(lines, orderedText(s.Order))
		if s.Timeout > 0 {
			lines = append(lines, "at most "+s.Timeout.String())
		}
	case s.Emit != nil:
		lines = append(lines, "emits "+emitText(s.Emit))
	case s.Raise != nil:
		lines = append(lines, raiseText(s.Raise))
	default:
		lines = append(lines, s.Agent+"/"+s.Do)
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
		lines[i] = short(clean(strings.Join(strings.Fields(line), " ")))
	}
	return lines
}

// drawMermaid draws what the file says, in its order: also of what a step comes after.
func drawMermaid(flow *workflow.Workflow) string {
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
		lines := caption(s)
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

// drawDot draws the same for Graphviz.
func drawDot(flow *workflow.Workflow) string {
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
		lines := caption(s)
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

// drawSVG has Graphviz draw it.
func drawSVG(ctx context.Context, w io.Writer, flow *workflow.Workflow) (err error) {
	g, err := graphviz.New(ctx)
	if err != nil {
		return fmt.Errorf("start Graphviz: %w", err)
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	graph, err := graphviz.ParseBytes([]byte(drawDot(flow)))
	if err != nil {
		return fmt.Errorf("draw the workflow: %w", err)
	}
	defer func() { err = errors.Join(err, graph.Close()) }()
	if err := g.Render(ctx, graph, graphviz.SVG, w); err != nil {
		return fmt.Errorf("draw the workflow: %w", err)
	}
	return nil
}

// dotText also keeps what looks like an entity of HTML as it is written.
var dotText = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "&", "&amp;")

// eachText says what a step is done for, and by whom.
func eachText(e *workflow.Each) string {
	by := "an order of " + e.Order.Workflow
	if e.Steps != nil {
		names := make([]string, len(e.Steps.Steps))
		for i := range e.Steps.Steps {
			names[i] = e.Steps.Steps[i].Name
		}
		by = strings.Join(names, ", ")
	}
	if e.Pages != nil {
		return fmt.Sprintf("each that %s/%s lists: %s", e.Pages.Steps[0].Agent, e.Pages.Steps[0].Do, by)
	}
	return fmt.Sprintf("each of %s: %s", e.Items, by)
}
