package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

// folder is a directory whose workflow files are registered, and again when they change. It is
// looked at again and again: the file system's own notices do not come into every container, and
// each editor has its own way of writing.
type folder struct {
	dir    string
	server registry
	out    io.Writer

	files map[string]*watched // by path
	said  map[string]string   // what is wrong, by path; of several files under ""
	due   bool                // something may have to be registered
}

// registry is where workflows are registered.
type registry interface {
	Register(ctx context.Context, file string, source []byte) error
	Registered(ctx context.Context) (open, retired []*workflow.Workflow, err error)
}

// watched is a file of the folder.
type watched struct {
	seen, read stamp // at the last look, and when it was read
	source     string
	flow       *workflow.Workflow // nil where it is none
	gone       bool               // at the last look: some editors put a file aside before they write it anew
}

// stamp tells one content of a file from another that was written some time before.
type stamp struct {
	modified time.Time
	size     int64
}

// The folder is looked at every glance. What was written less than fresh ago may be the half of
// what is to be written, so it is read once it is the same at two looks; and what is written next
// may have the same stamp, so it is read until it is older.
const (
	glance = 500 * time.Millisecond
	fresh  = 3 * time.Second
)

func newFolder(dir string, server registry, out io.Writer) *folder {
	return &folder{dir: dir, server: server, out: out, files: make(map[string]*watched), said: make(map[string]string)}
}

// watch looks at the folder until the context ends.
func (f *folder) watch(ctx context.Context) error {
	for {
		select {
		case <-time.After(glance):
			f.look(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

// look reads what is new in the folder, and registers it.
func (f *folder) look(ctx context.Context) {
	entries, err := os.ReadDir(f.dir)
	f.say(f.dir, err)
	if err != nil {
		return
	}
	there := make(map[string]bool)
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, ".") || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name)) {
			continue
		}
		path := filepath.Join(f.dir, name)
		info, err := os.Stat(path) // of what a link leads to
		if err != nil || !info.Mode().IsRegular() {
			continue // it went away, or has no end
		}
		there[path] = true
		f.read(path, stamp{info.ModTime(), info.Size()})
	}
	for path, w := range f.files {
		if w.gone && !there[path] {
			delete(f.files, path)
			delete(f.said, path)
			f.due = true // another file may count now
		}
		w.gone = !there[path]
	}
	if f.due {
		f.due = !f.register(ctx)
	}
}

// say prints what is wrong, once as long as it is the same.
func (f *folder) say(path string, err error) {
	said := ""
	if err != nil {
		said = err.Error()
	}
	if f.said[path] != said {
		f.said[path] = said
		printProblems(f.out, err)
	}
}

// read reads a file that may be new.
func (f *folder) read(path string, now stamp) {
	w := f.files[path]
	if w == nil {
		w = new(watched)
		f.files[path] = w
	}
	last, recent := w.seen, time.Since(now.modified) < fresh
	w.seen = now
	if recent && now != last || !recent && now == w.read {
		return
	}
	source, err := readAtMost(path, workflow.MaxSource+1)
	if err != nil {
		f.say(path, err)
		return
	}
	known := w.read != stamp{}
	w.read = now
	if known && source == w.source {
		return
	}
	d, err := define(path, []byte(source))
	if errors.Is(err, errOther) {
		err = nil
	}
	w.source, w.flow, f.due = source, d.flow, true
	f.say(path, err)
	if d.flow != nil {
		printProblems(f.out, d.doubt())
	}
}

func readAtMost(path string, most int64) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, most))
	return string(text), err
}

// register registers what the files say and the server does not have, and returns whether it has
// all now.
func (f *folder) register(ctx context.Context) bool {
	var all []definition
	for path, w := range f.files {
		if w.flow != nil {
			all = append(all, definition{file: path, source: []byte(w.source), flow: w.flow})
		}
	}
	slices.SortFunc(all, func(a, b definition) int {
		return cmp.Or(cmp.Compare(a.flow.Name, b.flow.Name), cmp.Compare(a.flow.Version, b.flow.Version), cmp.Compare(a.file, b.file))
	})
	last := make(map[string]int) // the highest version of each name that a file has
	for _, d := range all {
		last[d.flow.Name] = d.flow.Version
	}
	done := true
	var before definition
	all = slices.DeleteFunc(all, func(d definition) bool {
		if before.flow != nil && before.flow.ID() == d.flow.ID() {
			f.say(d.file, d.repeats(before))
			return true
		}
		before = d
		return false
	})
	for _, d := range f.inOrder(all) {
		err := f.settle(ctx, d, d.flow.Version == last[d.flow.Name])
		if ctx.Err() != nil {
			return false
		}
		if err != nil {
			done, err = false, fmt.Errorf("%s: workflow %s could not be registered, which is tried again: %w", d.file, d.flow.Name, err)
		}
		f.say(d.file, err)
	}
	return done
}

// inOrder puts definitions in an order in which they can be registered. Of those that order each other
// none can.
func (f *folder) inOrder(all []definition) []definition {
	var problems []error
	for {
		sorted, err := inOrder(all)
		circle := new(workflow.CircleError)
		if !errors.As(err, &circle) {
			f.say("", errors.Join(problems...))
			return sorted
		}
		problems = append(problems, err)
		all = slices.DeleteFunc(all, func(d definition) bool { return slices.Contains(circle.Names, d.flow.Name) })
	}
}

// repeats says which file counts of two that define one version: also where they say the same, since
// what is changed in the other would change nothing.
func (d definition) repeats(first definition) error {
	if err := d.contradicts(first); err != nil {
		return err
	}
	return fmt.Errorf("%s: workflow %s stands in %s too, with the same content; remove one of them", d.file, d.flow.ID(), first.file)
}

// settle registers a workflow unless it is there: under the version that the file says, or under
// the next one where that has other content. Of the last version of a workflow that a file has
// the content is the newest registered one in the end, so that new orders go by the file: a version
// that is retired is none that they go by, though its number is taken.
func (f *folder) settle(ctx context.Context, d definition, last bool) error {
	open, retired, err := f.server.Registered(ctx)
	if err != nil {
		return err
	}
	now, before := d.among(open), d.among(retired)
	if same := now.same; same != nil && (!last || same == now.newest) || !last && before.same != nil {
		return nil
	}
	source, version, why := d.source, d.flow.Version, ""
	if now.taken || before.taken || last && now.newest != nil && now.newest.Version > version {
		switch {
		case before.same != nil:
			why = fmt.Sprintf(", since version %d is retired", before.same.Version)
		case now.newest != nil:
			why = fmt.Sprintf(", since version %d has other content", now.newest.Version)
		default:
			why = fmt.Sprintf(", since version %d has other content, and is retired", before.newest.Version)
		}
		for _, taken := range []*workflow.Workflow{now.newest, before.newest} {
			if taken != nil {
				version = max(version, taken.Version+1)
			}
		}
		source = []byte(canonical(d.as(version)))
	}
	if err := f.server.Register(ctx, d.file, source); err != nil {
		return err
	}
	fmt.Fprintf(f.out, "%s: registered as version %d%s\n", d.flow.Name, version, why)
	return nil
}

// namesakes are workflows of one name: the newest, the newest with the content of a file, in its version
// or a later one, and whether one has its version.
type namesakes struct {
	newest, same *workflow.Workflow
	taken        bool
}

// among finds the namesakes of the workflow among others, by name and version.
func (d definition) among(others []*workflow.Workflow) (found namesakes) {
	for _, r := range others {
		if r.Name != d.flow.Name {
			continue
		}
		found.newest, found.taken = r, found.taken || r.Version == d.flow.Version
		if r.Version >= d.flow.Version && canonical(r) == canonical(d.as(r.Version)) {
			found.same = r
		}
	}
	return found
}

// as is the workflow under another version.
func (d definition) as(version int) *workflow.Workflow {
	w := *d.flow
	w.Version = version
	return &w
}
