// The program page makes docs/reliability.md of the figures that the parts left.
//
//	go run ./test/reliability/page docs/reliability >docs/reliability.md
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/waybill-dev/waybill/test/reliability"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: page DIRECTORY")
		os.Exit(2)
	}
	all, err := read(os.Args[1])
	if err == nil {
		_, err = os.Stdout.WriteString(render(all))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// read returns the figures of each part that was run.
func read(dir string) (map[string]reliability.Figures, error) {
	all := make(map[string]reliability.Figures)
	for _, p := range parts {
		text, err := fs.ReadFile(os.DirFS(dir), p.name+".json")
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var figures reliability.Figures
		if err == nil {
			err = json.Unmarshal(text, &figures)
		}
		if err != nil {
			return nil, fmt.Errorf("part %s: %w", p.name, err)
		}
		all[p.name] = figures
	}
	return all, nil
}

// page is what is being written.
type page struct{ strings.Builder }

func (b *page) printf(format string, args ...any) { fmt.Fprintf(b, format, args...) }

// row writes one of a table.
func (b *page) row(cells ...any) {
	b.WriteString("|")
	for _, c := range cells {
		if c == nil {
			c = ""
		}
		b.printf(" %s |", strings.ReplaceAll(fmt.Sprint(c), "|", `\|`))
	}
	b.WriteString("\n")
}

func (b *page) head(cells ...any) {
	b.row(cells...)
	b.WriteString("|" + strings.Repeat(" --- |", len(cells)) + "\n")
}

func render(all map[string]reliability.Figures) string {
	b := new(page)
	b.WriteString("# Reliability\n\nWritten by `make reliability`; the next run writes it again. Each part leaves its figures in\n" +
		"[reliability](reliability), and can be run alone: `make reliability PART=fuzz`. The text says what a part does now, its figures are of the\n" +
		"commit beside it: what a part has learnt to break since is not among them.\n\n## What was run\n\n")
	b.head("part", "date", "commit", "lost", "doubled", "stuck", "other rules broken", "seed", "run again with")
	for _, p := range parts {
		f, ok := all[p.name]
		if !ok {
			continue
		}
		b.row(fmt.Sprintf("[%s](#%s)", p.title, anchor(p.title)), f.Get("date"), f.Get("commit"),
			nought(f, "lost"), nought(f, "doubled"), nought(f, "stuck"), nought(f, "other rules broken"), f.Get("seed"), fmt.Sprintf("`%v`", f.Get("command")))
	}
	for _, name := range everywhere {
		for _, value := range distinct(all, name) {
			b.printf("\nThe %s: %v.\n", name, value)
		}
	}
	b.WriteString("\n## What was broken\n\n")
	b.head("what", "how often", "lost", "doubled", "stuck")
	for _, r := range rows {
		b.broken(&r, all)
	}
	for _, p := range parts {
		if f, ok := all[p.name]; ok {
			b.section(p, f)
		}
	}
	b.WriteString("\n## Found\n\n" + found + "\n## Not run\n\n")
	for _, p := range parts {
		if _, ok := all[p.name]; !ok {
			b.printf("- %s: this part has left no figures yet.\n", p.title)
		}
	}
	b.WriteString(notRun)
	return b.String()
}

// broken writes one row of the scoreboard, if any part has it.
func (b *page) broken(r *row, all map[string]reliability.Figures) {
	var often []string
	sums := make(map[string]int64)
	for _, s := range r.from {
		f := all[s.part]
		times, _, _ := strings.Cut(fmt.Sprint(find(f, s.names)), ",") // how often it was left out comes behind
		n, err := strconv.ParseInt(times, 10, 64)
		if err != nil || n == 0 {
			continue // it was left out always, or did not come up
		}
		often = append(often, fmt.Sprintf("%d (%s)", n, titleOf(s.part)))
		for _, wrong := range reliability.Wrong {
			count, err := strconv.ParseInt(fmt.Sprint(f.Get(wrong)), 10, 64)
			if err != nil && f.Get(wrong) != nil {
				count = 1 // at least
			}
			sums[wrong] += count
		}
	}
	if len(often) > 0 {
		b.row(r.what, strings.Join(often, ", "), sums["lost"], sums["doubled"], sums["stuck"])
	}
}

// everywhere are figures that are the same in most parts, and are told once.
var everywhere = []string{"machine", "versions"}

func distinct(all map[string]reliability.Figures, name string) (values []any) {
	for _, p := range parts {
		if v := all[p.name].Get(name); v != nil && !slices.Contains(values, v) {
			values = append(values, v)
		}
	}
	return values
}

// nought is a number that must be.
func nought(f reliability.Figures, name string) any {
	if n := f.Get(name); n != nil {
		return fmt.Sprintf("**%v**", n)
	}
	return nil
}

// find returns what stands under the names, nil if there is nothing.
func find(f reliability.Figures, names []string) any {
	value := f.Get(names[0])
	if inner, ok := value.(reliability.Figures); ok && len(names) > 1 {
		return find(inner, names[1:])
	}
	return value
}

func titleOf(name string) string {
	return parts[slices.IndexFunc(parts, func(p part) bool { return p.name == name })].title
}

// anchor is what Markdown calls a heading.
func anchor(title string) string { return strings.ReplaceAll(strings.ToLower(title), " ", "-") }

// inTable are the figures that the first table has.
var inTable = append([]string{"date", "commit", "command", "seed"}, reliability.Wrong...)

// section tells all of a part: what is single in one table, and each group in
// one of its own.
func (b *page) section(p part, f reliability.Figures) {
	b.printf("\n## %s\n\n%s\n\n", p.title, p.text)
	b.head("what", "how much")
	for _, m := range f {
		if _, group := m.Value.(reliability.Figures); !group && !slices.Contains(inTable, m.Name) && !slices.Contains(everywhere, m.Name) {
			b.row(m.Name, m.Value)
		}
	}
	for _, m := range f {
		if group, ok := m.Value.(reliability.Figures); ok {
			b.WriteString("\n")
			b.group(m.Name, group)
		}
	}
}

// group writes one table: of names and values, or, where the values are groups
// too, of names and the columns that these have.
func (b *page) group(name string, rows reliability.Figures) {
	var columns []string
	for _, r := range rows {
		if cells, ok := r.Value.(reliability.Figures); ok {
			for _, c := range cells {
				if !slices.Contains(columns, c.Name) {
					columns = append(columns, c.Name)
				}
			}
		}
	}
	if len(columns) == 0 {
		b.head(name, "times")
		for _, r := range rows {
			b.row(r.Name, r.Value)
		}
		return
	}
	head := []any{name}
	for _, c := range columns {
		head = append(head, c)
	}
	b.head(head...)
	for _, r := range rows {
		cells, ok := r.Value.(reliability.Figures)
		if !ok {
			b.row(r.Name, r.Value)
			continue
		}
		line := []any{r.Name}
		for _, c := range columns {
			line = append(line, cells.Get(c))
		}
		b.row(line...)
	}
}
