package workflow_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

// refused returns the only problem of a source.
func refused(t *testing.T, source string) string {
	t.Helper()
	_, err := workflow.Parse("f", []byte(source))
	var errs workflow.Errors
	errors.As(err, &errs)
	if len(errs) != 1 {
		t.Fatalf("%d problems, not 1: %.500v", len(errs), err)
	}
	return errs[0].Error()
}

func expect(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

const ping = "workflow: ping\nsteps:\n- {name: call, agent: phone}\n"

func TestSource(t *testing.T) {
	mustParse(t, "\uFEFF"+ping)                                   // a byte order mark
	mustParse(t, strings.ReplaceAll(ping, "\n", "\r\n"))          // Windows
	mustParse(t, strings.TrimSuffix(ping, "\n"))                  // no last line end
	mustParse(t, ping+strings.Repeat("#", workflow.MaxSource-60)) // long
	expect(t, refused(t, ping+strings.Repeat("#", workflow.MaxSource)),
		"f:1:1: the file has 524339 bytes; a workflow may have at most 524288")
	expect(t, refused(t, ping+"# äö\xff"),
		"f:4:5: the byte 0xff is not UTF-8; save the file as UTF-8")
	expect(t, refused(t, ping+strings.Repeat("\n", 201)),
		"f:203:1: more than 200 empty lines in a row; remove some")
	expect(t, refused(t, ping+"# "+strings.Repeat("<", 201)),
		"f:4:203: more than 200 < in a row; no name is that long")
	expect(t, refused(t, ping+"# "+strings.Repeat("\t.", 201)),
		"f:4:403: more than 200 tabs in a line; use spaces")
}

func TestManySteps(t *testing.T) {
	source := func(n int, step string) string {
		var b strings.Builder
		b.WriteString("workflow: many\nsteps:\n")
		for i := range n {
			fmt.Fprintf(&b, step, i)
		}
		return b.String()
	}
	roundTrip(t, mustParse(t, source(1000, "- {name: s%d, agent: a}\n")))
	expect(t, refused(t, source(1001, "- {name: s%d, agent: a}\n")),
		"f:1003:3: a workflow has at most 1000 steps, this one has 1001; split it")

	// It is the canonical form that must fit into a message.
	wide := "- {name: s%d, agent: a, do: " + strings.Repeat("x", 200) + ", undo: " + strings.Repeat("x", 200) + "}\n"
	expect(t, refused(t, source(1000, wide)),
		"f:1:1: the workflow has 574833 bytes with its defaults spelled out; at most 524288 are allowed: use fewer steps or shorter names")
}

func TestManyProblems(t *testing.T) {
	_, err := workflow.Parse("f", []byte("workflow: ping\nsteps:\n"+strings.Repeat("- call\n", 1000)))
	var errs workflow.Errors
	errors.As(err, &errs)
	if len(errs) != 101 {
		t.Fatalf("%d problems", len(errs))
	}
	expect(t, errs[100].Error(), "f:102:3: there are more problems; correct these first")
}

// TestHostile parses files of the largest size that would take the YAML
// library minutes, gigabytes or the process's stack. That it ends is the test.
func TestHostile(t *testing.T) {
	fill := func(s string) string { return strings.Repeat(s, (workflow.MaxSource-100)/len(s)) }
	var stairs strings.Builder
	for i := 0; stairs.Len() < workflow.MaxSource-2000; i++ {
		stairs.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	for name, source := range map[string]string{
		"brackets":            fill("["),
		"braces":              fill("{a: "),
		"braces and brackets": fill("[{a: "),
		"dashes":              fill("- "),
		"stairs":              stairs.String(),
		"question marks":      fill("? "),
		"keys":                fill("a:\n"),
		"keys with values":    fill("a: b\n"),
		"keys in brackets":    "[\n" + fill("a: b\n") + "]",
		"keys in braces":      "{\n" + fill("a:\n") + "}",
		"nested keys":         fill("a:\n b\n"),
		"nothing":             fill("-\n"),
		"nothing in a map":    "{" + fill("a,") + "}",
		"nothing in maps":     "[" + fill("{a},") + "]",
		"nothing after keys":  "[" + fill("{a:},") + "]",
		"nothing quoted":      "{" + fill("'',") + "}",
		"long key":            strings.Repeat("a", workflow.MaxSource/2) + ": [" + strings.Repeat("a,", workflow.MaxSource/4-100) + "]",
		"long name":           "workflow: " + fill("a"),
		"blank lines":         "a: |\n" + fill("\n"),
		"almost blank lines":  "a: |\n" + fill(strings.Repeat("\n", 200)+" x\n"),
		"carriage returns":    "a: |\n" + fill("\r"),
		"less than":           fill("<"),
		"merge keys":          fill("<<: "),
		"plain lines":         "workflow: " + fill("x\n  "),
		"quoted lines":        "workflow: '" + fill("x\n  ") + "'",
		"colons":              fill(": "),
		"closing":             fill("]"),
		"anchors":             fill("&a "),
		"aliases":             fill("*a "),
		"documents":           fill("---\n"),
		"document ends":       fill("...\n"),
		"steps":               "workflow: w\nsteps:\n" + fill("- a: b\n"),
		"unknown steps":       "workflow: w\nsteps: [{name: a, agent: a, after: [" + fill("b,") + "]}]",
		"unknown keys":        "{" + fill("abcdefgh: 1,") + "}",
		"quotes":              fill(`"`),
		"block text":          "steps:\n- with: |\n" + fill("    x\n"),
		"block text of blank": "steps:\n- with: |\n" + fill(strings.Repeat("\n", 200)+"    x\n"),
		"folded text":         "steps:\n- with: >\n" + fill("    x\n"),
		"block texts":         "steps:\n" + fill("- with: |\n   x\n"),
		"block text in block": "steps:\n" + fill("- with: |+2\n   x\n\n"),
		"block in braces":     "{" + fill("with: |\n x\n,"),
		"schema":              "input:\n" + fill("  a: b\n"),
		"schema in braces":    "input: {" + fill("a: [b],") + "}",
		"deep schema":         "input: " + strings.Repeat("{"+strings.Repeat("a", 100)+": ", 29) + "[" + strings.Repeat("b,", workflow.MaxSource/4) + "]" + strings.Repeat("}", 29),
		"tabs":                `workflow: "` + fill("\tx") + `"`,
		"escapes":             `workflow: "` + fill(`\`) + `"`,
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := workflow.Parse("f", []byte(source)); err == nil {
				t.Error("accepted")
			}
		})
	}
}

// TestDenseGraphs: as many edges as a file can hold, with and without circles.
func TestDenseGraphs(t *testing.T) {
	const steps = 400
	for _, circular := range []bool{false, true} {
		var b strings.Builder
		b.WriteString("workflow: w\nsteps:\n")
		for i := range steps {
			var after []string
			for from := range steps {
				if from < i || circular && from > i {
					after = append(after, fmt.Sprint(from))
				}
			}
			fmt.Fprintf(&b, "- {name: %d, agent: a, after: [%s]}\n", i, strings.Join(after, ","))
			if b.Len() > workflow.MaxSource/2 {
				break
			}
		}
		_, err := workflow.Parse("f", []byte(b.String()))
		if circular == (err == nil) {
			t.Errorf("circular: %v, error: %.200v", circular, err)
		}
	}
}

// FuzzParse: nothing makes Parse panic, and whatever it accepts round-trips.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/plays/*.txt")
	if err != nil || len(files) == 0 {
		f.Fatal("no plays to begin with", err)
	}
	for _, file := range files {
		plays, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for play := range strings.SplitSeq(string(plays), "\nparse\n") {
			source, _, _ := strings.Cut(play, "\n----\n")
			f.Add([]byte(source))
		}
	}
	f.Fuzz(func(t *testing.T, source []byte) {
		w, err := workflow.Parse("f", source)
		if err == nil {
			roundTrip(t, w)
			return
		}
		var errs workflow.Errors
		ok := errors.As(err, &errs)
		if !ok || len(errs) == 0 {
			t.Fatalf("the error is a %T: %v", err, err)
		}
		for _, e := range errs {
			if e.File != "f" || e.Line < 1 || e.Column < 1 || e.Message == "" {
				t.Fatalf("%+v", e)
			}
		}
	})
}
