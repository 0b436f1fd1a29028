package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/printer"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"

	syntax "go/parser"
)

// condition is a part of one that has several: of a && b, or a || b.
type condition struct {
	at          string // decide.go:12
	part, whole string
}

// chosen is the variable of the environment that says which part is left out, by its number from 1 on.
const chosen = "WAYBILL_CONDITION"

// chooser is the function by which a package asks for it. It must be built with what it says, and so is no part of the tree.
const chooser = `package %s

import (
	"os"
	"strconv"
)

var leftOutCondition, _ = strconv.Atoi(os.Getenv("` + chosen + `"))

func leavesOut(n int) bool { return n == leftOutCondition }
`

// conditions leaves out each part of each condition of a package, if its place matches, one at a time, and prints those of which no suite takes
// notice. Nobody says beforehand which must be found: one may follow from another, or be for what cannot be. All are
// built at once, and a run chooses.
func conditions(ctx context.Context, out io.Writer, l *laboratory, pkg string, only *regexp.Regexp, suites []*suite, jobs int) error {
	all, overlay, err := l.instrument(filepath.Join(l.root, pkg))
	if err != nil {
		return err
	}
	var tried []int
	for i := range all {
		if only.MatchString(all[i].at) {
			tried = append(tried, i)
		}
	}
	if len(tried) == 0 {
		return fmt.Errorf("no condition of %s is at a place that matches %s", pkg, only)
	}
	built := make(map[string]string)
	for _, s := range suites {
		if err := l.passes(ctx, overlay, s, built); err != nil {
			return err
		}
	}
	var missed, failed atomic.Int64
	sideBySide(len(tried), jobs, func(n int, alone bool) (again bool) {
		i := tried[n]
		var r result
		for _, s := range suites {
			with := *s
			with.environment = append(slices.Clone(s.environment), fmt.Sprintf("%s=%d", chosen, i+1))
			if r.test, _, r.err = l.binary(ctx, l.temporary, overlay, &with, built); r.err != nil || r.test != "" {
				break
			}
		}
		switch {
		case ctx.Err() != nil: // what was cut off says nothing
		case !alone && r.late():
			return true
		case r.err != nil: // which says nothing either
			failed.Add(1)
			fmt.Fprintf(out, "%s: left out  %s  of  %s, and cannot tell: %v\n", all[i].at, all[i].part, all[i].whole, r.err)
		case r.test != "":
			missed.Add(1)
		default:
			fmt.Fprintf(out, "%s: nobody misses  %s  of  %s\n", all[i].at, all[i].part, all[i].whole)
		}
		return false
	})
	if err := ctx.Err(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%d parts of conditions of %s; nobody misses %d\n", len(tried), pkg, len(tried)-int(missed.Load()+failed.Load()))
	if n := failed.Load(); n > 0 {
		return fmt.Errorf("%d could not be tried", n)
	}
	return nil
}

// instrument writes the files of a package so that each part of a condition can be left out, and an overlay with these.
func (l *laboratory) instrument(dir string) (all []condition, overlay string, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, "", err
	}
	replace := make(map[string]string)
	name := ""
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, "", err
		}
		var instrumented []byte
		if name, instrumented, all, err = parts(file, text, all); err != nil {
			return nil, "", err
		}
		replace[file] = filepath.Join(l.temporary, filepath.Base(file))
		if err := os.WriteFile(replace[file], instrumented, 0o600); err != nil { //nolint:gosec // in a directory of its own
			return nil, "", err
		}
	}
	if len(all) == 0 {
		return nil, "", fmt.Errorf("%s has no condition of several parts", dir)
	}
	added := filepath.Join(l.temporary, "zz_conditions.go")
	replace[filepath.Join(dir, filepath.Base(added))] = added
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return nil, "", err
	}
	overlay = filepath.Join(l.temporary, "overlay.json")
	return all, overlay, errors.Join(os.WriteFile(added, fmt.Appendf(nil, chooser, name), 0o600), os.WriteFile(overlay, text, 0o600)) //nolint:gosec // both are there, too
}

// parts has each part of a condition in a file leave itself out when it is chosen, and adds them to all.
func parts(file string, text []byte, all []condition) (pkg string, instrumented []byte, _ []condition, err error) {
	set := token.NewFileSet()
	tree, err := syntax.ParseFile(set, file, text, syntax.SkipObjectResolution)
	if err != nil {
		return "", nil, nil, err
	}
	says := func(n ast.Node) string {
		var b bytes.Buffer
		_ = printer.Fprint(&b, set, n) // of what was parsed
		return strings.Join(strings.Fields(b.String()), " ")
	}
	type insertion struct {
		at   int
		text string
	}
	var insertions []insertion
	ast.Inspect(tree, func(n ast.Node) bool {
		if d, ok := n.(*ast.GenDecl); ok && d.Tok == token.CONST {
			return false
		}
		e, ok := n.(*ast.BinaryExpr)
		if !ok || e.Op != token.LAND && e.Op != token.LOR {
			return true
		}
		for _, part := range []ast.Expr{e.X, e.Y} {
			if inner, ok := part.(*ast.BinaryExpr); ok && inner.Op == e.Op && part == e.X {
				continue // each of its parts by itself
			}
			at := set.Position(part.Pos())
			all = append(all, condition{fmt.Sprintf("%s:%d", filepath.Base(file), at.Line), says(part), says(e)})
			without := fmt.Sprintf("(leavesOut(%d) || (", len(all))
			if e.Op == token.LOR {
				without = fmt.Sprintf("(!leavesOut(%d) && (", len(all))
			}
			insertions = append(insertions, insertion{at.Offset, without}, insertion{set.Position(part.End()).Offset, "))"})
		}
		return true
	})
	slices.SortStableFunc(insertions, func(a, b insertion) int { return a.at - b.at }) // the outer one first, which Inspect meets first
	last := 0
	for _, i := range insertions {
		instrumented = append(append(instrumented, text[last:i.at]...), i.text...)
		last = i.at
	}
	return tree.Name.Name, append(instrumented, text[last:]...), all, nil
}
