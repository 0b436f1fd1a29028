package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	syntax "go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// compiles says of each mutant of a Go file why that file does not compile any more, so that the mutant finds nothing. Of its package
// only declarations are looked at, and the packages that it imports are read as they were built: who uses what it declares is not asked.
func compiles(ctx context.Context, root string, mutants []mutant) error {
	list := exec.CommandContext(ctx, "go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles", "./...")
	list.Dir, list.Stderr = root, os.Stderr
	listed, err := list.Output()
	if err != nil {
		return fmt.Errorf("list packages: %w", err)
	}
	c := &checker{root: root, set: token.NewFileSet(), packages: make(map[string]*goPackage), exports: make(map[string]string)}
	for all := json.NewDecoder(strings.NewReader(string(listed))); all.More(); {
		p := new(goPackage)
		if err := all.Decode(p); err != nil {
			return fmt.Errorf("list packages: %w", err)
		}
		c.packages[p.Dir], c.exports[p.ImportPath] = p, p.Export
	}
	c.imports = importer.ForCompiler(c.set, "gc", func(path string) (io.ReadCloser, error) { return os.Open(c.exports[path]) })
	var wrong []error
	for i := range mutants {
		if m := &mutants[i]; strings.HasSuffix(m.file, ".go") {
			if err := c.check(m); err != nil {
				wrong = append(wrong, fmt.Errorf("%s: %w", m.id, err))
			}
		}
	}
	return errors.Join(wrong...)
}

type goPackage struct {
	ImportPath string   `json:"ImportPath"`
	Dir        string   `json:"Dir"`
	Export     string   `json:"Export"`
	GoFiles    []string `json:"GoFiles"`

	declares map[string]*ast.File // by name: without what functions do
}

type checker struct {
	root     string
	set      *token.FileSet
	packages map[string]*goPackage // by directory
	exports  map[string]string     // file, by import path
	imports  types.Importer
}

// check type-checks a mutant's file.
func (c *checker) check(m *mutant) error {
	path := filepath.Join(c.root, m.file)
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	mutated, err := m.apply(string(text))
	if err != nil {
		return err
	}
	file, err := syntax.ParseFile(c.set, path, mutated, syntax.SkipObjectResolution)
	if err != nil {
		return err
	}
	p := c.packages[filepath.Dir(path)]
	if p == nil || !slices.Contains(p.GoFiles, filepath.Base(path)) {
		return errors.New("its file is not built here")
	}
	files := []*ast.File{file}
	for _, name := range p.GoFiles {
		if name == filepath.Base(path) {
			continue
		}
		other, err := p.declaring(c.set, name)
		if err != nil {
			return err
		}
		files = append(files, other)
	}
	var wrong error
	config := types.Config{Importer: c.imports, Error: func(err error) {
		// The others do not use what they import.
		if at, ok := errors.AsType[types.Error](err); wrong == nil && ok && c.set.File(at.Pos) == c.set.File(file.Pos()) {
			wrong = err
		}
	}}
	_, _ = config.Check(p.ImportPath, c.set, files, nil) // which error it is says the function above
	return wrong
}

// declaring is a file of the package without what its functions do.
func (p *goPackage) declaring(set *token.FileSet, name string) (*ast.File, error) {
	if p.declares[name] != nil {
		return p.declares[name], nil
	}
	file, err := syntax.ParseFile(set, filepath.Join(p.Dir, name), nil, syntax.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			f.Body = nil
		}
	}
	if p.declares == nil {
		p.declares = make(map[string]*ast.File)
	}
	p.declares[name] = file
	return file, nil
}
