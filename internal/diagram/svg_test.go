package diagram

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

// Each step is below all that it comes after, nothing lies on anything else or outside, and each line is there once, and leads from
// its step to its step.
func TestSVG(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		flow := &workflow.Workflow{Name: "w", Version: 1}
		for i := range rapid.IntRange(1, 25).Draw(t, "steps") {
			s := workflow.Step{Name: fmt.Sprint("s", i), Agent: "a", Do: rapid.StringMatching(`[a-zA-Z가-힣<&" ]{1,40}`).Draw(t, "do")}
			if rapid.Bool().Draw(t, "higher") {
				s.Undo = "back"
			}
			switch rapid.IntRange(0, 4).Draw(t, "kind") {
			case 0:
				s.Sleep = &workflow.Sleep{For: time.Minute}
			case 1:
				s.Order = &workflow.Order{Workflow: "child"}
			case 2:
				s.Raise = &workflow.Raise{}
			}
			for before := range i {
				if rapid.IntRange(0, 5).Draw(t, "after") == 0 {
					s.After = append(s.After, fmt.Sprint("s", before))
				}
			}
			flow.Steps = append(flow.Steps, s)
		}
		rows, width, height := arranged(flow)
		row, bottom, steps := make(map[string]int), 0.0, 0
		for n, all := range rows {
			right, low := 0.0, bottom
			for _, b := range all {
				if b.row != n || b.x-b.width/2 < right || b.x+b.width/2 > width || b.y-b.height/2 < bottom || b.y+b.height/2 > height || math.IsNaN(b.x+b.y) {
					t.Fatalf("row %d, %v: %+v, of %vx%v", n, b.text, b, width, height)
				}
				right, low = b.x+b.width/2+1, max(low, b.y+b.height/2+arrow)
				if b.step != nil {
					row[b.step.Name] = n
					steps++
				}
				for _, from := range b.above {
					if from.row != n-1 {
						t.Fatalf("a line leads from row %d to row %d at once", from.row, n)
					}
				}
			}
			bottom = low
		}
		if steps != len(flow.Steps) {
			t.Fatalf("%d steps of %d", steps, len(flow.Steps))
		}
		var b strings.Builder
		if err := SVG(&b, flow); err != nil {
			t.Fatal(err)
		}
		edge := make(map[string]int) // of rows, where lines turn and boxes end
		for n, all := range rows {
			edge[fmt.Sprintf("%.1f", all[0].bottom)], edge[fmt.Sprintf("%.1f", all[0].top)], edge[fmt.Sprintf("%.1f", all[0].top-arrow)] = n, n, n
		}
		for _, turn := range turns.FindAllStringSubmatch(b.String(), -1) {
			from, leaves := edge[turn[1]]
			if to, comes := edge[turn[2]]; !leaves || !comes || to != from+1 {
				t.Fatalf("a line turns from %s to %s:\n%s", turn[1], turn[2], &b)
			}
		}
		var want []string
		for i := range flow.Steps {
			s := &flow.Steps[i]
			want = append(want, s.Name)
			for _, before := range s.After {
				want = append(want, before+"->"+s.Name)
				if row[before] >= row[s.Name] {
					t.Fatalf("%s is in row %d, and %s, after it, in %d", before, row[before], s.Name, row[s.Name])
				}
			}
		}
		got := titles(t, b.String())[1:]
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Fatalf("it has %q, want %q", got, want)
		}
	})
}

// turns are where lines leave a row and come to the next.
var turns = regexp.MustCompile(`V([\d.]+)C[\d.]+ [\d.]+ [\d.]+ [\d.]+ [\d.]+ ([\d.]+)`)

func titles(t *rapid.T, svg string) (all []string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(svg))
	for in := ""; ; {
		switch token, err := d.Token(); token := token.(type) {
		case nil:
			if !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			return all
		case xml.StartElement:
			in = token.Name.Local
		case xml.CharData:
			if in == "title" {
				all = append(all, string(token))
			}
		case xml.EndElement:
			in = ""
		}
	}
}

// What stands in line has its lines straight, what is between two stands in the middle, lines that lead past steps do not cross, and
// wide letters are known to be.
func TestSVGIsTidy(t *testing.T) {
	flow := &workflow.Workflow{Name: "w", Version: 1, Steps: []workflow.Step{
		{Name: "a", Agent: "x"},
		{Name: "long", Agent: "x", Do: strings.Repeat("x", 40), After: []string{"a"}},
		{Name: "b", Agent: "x", After: []string{"a"}},
		{Name: "c", Agent: "x", After: []string{"long"}},
		{Name: "d", Agent: "x", After: []string{"c", "b"}},
		{Name: "e", Agent: "x", After: []string{"d"}},
		{Name: "p", Agent: "x", After: []string{"e"}},
		{Name: "q", Agent: "x", After: []string{"e"}},
		{Name: "of q", Agent: "x", After: []string{"q"}},
		{Name: "of p", Agent: "x", After: []string{"p"}},
		{Name: "last", Agent: "x", After: []string{"of p"}},
	}}
	rows, _, _ := arranged(flow)
	at := make(map[string]*box)
	for _, row := range rows {
		for _, b := range row {
			if b.step != nil {
				at[b.step.Name] = b
			}
		}
	}
	if math.Abs(at["d"].x-at["e"].x) > 1 || math.Abs(at["a"].x-at["d"].x) > 1 || at["a"].x <= at["long"].x || at["a"].x >= at["b"].x {
		for name, b := range at {
			t.Errorf("%s: %v, %v", name, b.x, b.y)
		}
	}
	if (at["p"].x < at["q"].x) != (at["of p"].x < at["of q"].x) {
		t.Errorf("what p and q lead to is at %v and %v, they at %v and %v", at["of p"].x, at["of q"].x, at["p"].x, at["q"].x)
	}
	if math.Abs(at["last"].x-at["of p"].x) > 1 || math.Abs(at["p"].x-at["of p"].x) > 1 {
		t.Errorf("what follows p is at %v and %v, and p at %v", at["of p"].x, at["last"].x, at["p"].x)
	}
	if wide := long("순서도"); wide < 3*fontSize {
		t.Errorf("three syllables of Hangul, each as wide as high, take %v", wide)
	}
	if bend := at["b"].under[0]; bend.step != nil || (bend.x < at["c"].x) != (at["b"].x < at["long"].x) {
		t.Errorf("what leads on from b is at %v, c at %v, and b at %v, long at %v", bend.x, at["c"].x, at["b"].x, at["long"].x)
	}
}

// What nobody would draw by hand is drawn all the same.
func TestSVGOfHundreds(t *testing.T) {
	flow := &workflow.Workflow{Name: "w", Version: 1}
	for i := range 600 {
		s := workflow.Step{Name: fmt.Sprint("s", i), Agent: "a"}
		for before := max(0, i-60); before < i; before++ {
			s.After = append(s.After, fmt.Sprint("s", before))
		}
		flow.Steps = append(flow.Steps, s)
	}
	var b strings.Builder
	if err := SVG(&b, flow); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(b.String(), `class="node"`); n != 600 {
		t.Errorf("%d steps", n)
	}
	if lines, parts := strings.Count(b.String(), `class="edge"`), strings.Count(b.String(), "C"); lines != 600*60-60*61/2 || parts > 3*lines {
		t.Errorf("%d lines of %d parts", lines, parts)
	}
}
