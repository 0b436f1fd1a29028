package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
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
