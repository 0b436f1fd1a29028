package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/test/child"
)

// A drawing has every step, and every line between two; and what the file holds is text there, whatever it looks like.
func TestGraphAsSVG(t *testing.T) {
	file := filepath.Join(t.TempDir(), "workflow.yaml")
	if err := os.WriteFile(file, []byte(`workflow: order
steps:
  - {name: reserve, agent: inventory}
  - {name: charge, agent: payment, when: 'input.who != "</text><script>alert(1)</script>"'}
  - {name: nap, sleep: 1m}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	said := waybill(t, "", "workflow", "graph", file, "--format", "svg")
	said.want(t, 0, "<svg ", "")
	d := xml.NewDecoder(strings.NewReader(said.out))
	d.Strict = true
	var names, titles []string
	for in := ""; ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			in = token.Name.Local
			names = append(names, in)
		case xml.CharData:
			if in == "title" {
				titles = append(titles, string(token))
			}
		case xml.EndElement:
			in = ""
		}
	}
	if slices.Contains(names, "script") {
		t.Errorf("it has the elements %q", names)
	}
	for _, title := range []string{"order@1", "reserve", "charge", "nap", "reserve->charge", "charge->nap"} {
		if !slices.Contains(titles, title) {
			t.Errorf("of %q it has only %q", title, titles)
		}
	}
}

// A program that begins compiles nothing, and leaves nothing in the directory of temporary files, where others may put what they like.
func TestABeginningLeavesNothingBehind(t *testing.T) {
	program, err := child.Waybill()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), program, "version")
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
}
