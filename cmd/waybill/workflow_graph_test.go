package main

import (
	"html"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/internal/diagram"
	"github.com/waybill-dev/waybill/internal/words"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

var (
	mermaidNode = regexp.MustCompile(`^  s0\["((?:[\pL\p{Nd} .,\-+=/?!'()]|#\d+;|<br>)*)"\]$`)
	mermaidCode = regexp.MustCompile(`#(\d+;)`)
	mermaidWord = regexp.MustCompile(`\\n|\$\$|:fa-`) // that it does not take for text
	dotNode     = regexp.MustCompile(`^  "a" \[label="((?:[^"\\]|\\.)*)"\]$`)
)

// Whatever the texts of a step are, they stay inside of its label, and those who draw it show
// them as they are.
func TestDrawingsShowTextAsItIs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`["'\\\[\]<>&#;|{}()$*_%~:an\n]{0,90}|(fa:fa-x|.){0,9}`))
		flow := &workflow.Workflow{Name: "w", Version: 1, Steps: []workflow.Step{
			{Name: "a", Agent: "x", Do: text.Draw(t, "do"), Undo: text.Draw(t, "undo")},
		}}
		want := diagram.Caption(&flow.Steps[0])
		for _, line := range want {
			if len([]rune(line)) > 80 || words.Clean(line) != line {
				t.Fatalf("%q is long, or no text for a terminal", line)
			}
		}
		shows := func(file string, at int, node *regexp.Regexp, newline string, read func(string) string) {
			lines := strings.Split(file, "\n")
			found := node.FindStringSubmatch(lines[at])
			if found == nil || len(lines) != at+2 && lines[at+1] != "}" {
				t.Fatalf("the text is more than a label:\n%s", file)
			}
			got := strings.Split(found[1], newline)
			for i := range got {
				got[i] = read(got[i])
			}
			if !slices.Equal(got, want) {
				t.Fatalf("it shows %q, not %q:\n%s", got, want, file)
			}
		}
		shows(diagram.Mermaid(flow), 4, mermaidNode, "<br>", func(s string) string {
			shown := html.UnescapeString(mermaidCode.ReplaceAllString(s, "&#$1"))
			if word := mermaidWord.FindString(shown); word != "" {
				t.Fatalf("%s is no text to Mermaid:\n%s", word, s)
			}
			return strings.ReplaceAll(shown, "\u200b", "")
		})
		// Graphviz reads escapes first, entities then.
		file := strings.ReplaceAll(diagram.Dot(flow), `\\`, "\x00")
		shows(file, 2, dotNode, `\n`, func(s string) string {
			return html.UnescapeString(strings.NewReplacer("\x00", `\`, `\"`, `"`).Replace(s))
		})
	})
}
