package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/test/oracle"
)

// shelf is a registry for tests.
type shelf struct {
	flows workflow.Set
	wrong error
}

func (s *shelf) Registered(context.Context) (open, retired []*workflow.Workflow, err error) {
	for _, flow := range s.flows.All() {
		if s.flows.Retired(flow.Name, flow.Version) {
			retired = append(retired, flow)
		} else {
			open = append(open, flow)
		}
	}
	return open, retired, nil
}

func (s *shelf) Register(_ context.Context, file string, source []byte) error {
	if s.wrong != nil {
		return s.wrong
	}
	flow, err := workflow.Parse(file, source)
	if err != nil {
		return err
	}
	if s.flows.Find(flow.Name, flow.Version) != nil {
		return errors.New("it is registered")
	}
	if err := s.flows.Admits(flow); err != nil {
		return err
	}
	s.flows.Add(flow)
	return nil
}

// desk is a folder that is looked at by hand.
type desk struct {
	*folder
	t     *testing.T
	shelf shelf
	out   bytes.Buffer
}

func newDesk(t *testing.T) *desk {
	d := &desk{t: t}
	d.folder = newFolder(t.TempDir(), &d.shelf, &d.out)
	return d
}

// yesterday is long enough ago for a file to be whole.
var yesterday = time.Now().AddDate(0, 0, -1).Truncate(time.Second)

// put writes a file so long ago; each time is its own.
func (d *desk) put(name, text string, at time.Time) {
	d.t.Helper()
	path := filepath.Join(d.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		d.t.Fatal(err)
	}
	if err := os.Chtimes(path, at, at); err != nil {
		d.t.Fatal(err)
	}
}

func (d *desk) remove(name string) {
	d.t.Helper()
	if err := os.Remove(filepath.Join(d.dir, name)); err != nil {
		d.t.Fatal(err)
	}
}

// looks says what is printed at the next look.
func (d *desk) looks(want string) {
	d.t.Helper()
	d.out.Reset()
	d.look(d.t.Context())
	if got := strings.ReplaceAll(d.out.String(), d.dir+string(filepath.Separator), ""); got != want {
		d.t.Errorf("it says %q instead of %q", got, want)
	}
}

func oneStep(version int, agent string) string {
	return fmt.Sprintf("workflow: w\nversion: %d\nsteps:\n- {name: a, agent: %s}\n", version, agent)
}

func TestAFolderIsRegistered(t *testing.T) {
	at := yesterday
	later := func() time.Time { at = at.Add(time.Second); return at }
	t.Run("a file that changes", func(t *testing.T) {
		d := newDesk(t)
		d.put("w.yml", oneStep(1, "one"), later())
		d.looks("w: registered as version 1\n")
		d.looks("")
		d.put("w.yml", "# said otherwise\n"+oneStep(1, "one"), later())
		d.looks("")
		d.put("w.yml", oneStep(1, "two"), later())
		d.looks("w: registered as version 2, since version 1 has other content\n")
		d.put("w.yml", oneStep(1, "one"), later()) // new orders go by the file again
		d.looks("w: registered as version 3, since version 2 has other content\n")
		d.put("w.yml", oneStep(7, "one"), later())
		d.looks("w: registered as version 7\n")
		d.folder = newFolder(d.dir, &d.shelf, &d.out) // started again
		d.looks("")
		if n := len(d.shelf.flows.All()); n != 4 {
			t.Errorf("%d versions are registered", n)
		}
	})
	t.Run("files that order each other", func(t *testing.T) {
		d := newDesk(t)
		order := func(name, other string) string {
			return fmt.Sprintf("workflow: %s\nsteps:\n- {name: s, order: %s}\n", name, other)
		}
		d.put("a.yaml", order("a", "w"), later())
		d.put("w.yaml", oneStep(1, "one"), later())
		d.looks("w: registered as version 1\na: registered as version 1\n")
		d.put("b.yaml", order("b", "c"), later())
		d.put("c.yaml", order("c", "b"), later())
		d.put("w.yaml", oneStep(1, "two"), later())
		circle := "b.yaml: these workflows order each other: b -> c -> b; none may order itself by way of others, whichever versions are named\n"
		d.looks(circle + "w: registered as version 2, since version 1 has other content\n")
		d.looks("")
		d.put("c.yaml", order("c", "a"), later())
		d.looks("c: registered as version 1\nb: registered as version 1\n")
		d.put("c.yaml", order("c", "b"), later())
		d.looks(circle)
	})
	t.Run("a file with problems", func(t *testing.T) {
		d := newDesk(t)
		d.put("b.yaml", "workflow: b\nsteps:\n- {nme: a}\n", later())
		d.put("w.json", `{"workflow":"w","steps":[{"name":"a","agent":"one"}]}`, later())
		wrong := "b.yaml:3:4: unknown key"
		d.look(t.Context())
		if said := d.out.String(); !strings.Contains(said, wrong) || !strings.HasSuffix(said, "w: registered as version 1\n") {
			t.Errorf("it says %q", said)
		}
		d.looks("")
		d.put("b.yaml", "workflow: b\nsteps:\n- {name: a, agent: one}\n", later())
		d.looks("b: registered as version 1\n")
		d.put("b.yaml", "", later())
		d.looks("b.yaml:1:1: the file is empty; start it with \"workflow: NAME\"\n")
	})
	t.Run("what is no workflow", func(t *testing.T) {
		d := newDesk(t)
		d.put("w_test.yaml", "workflow: w.yaml\ntests:\n- {name: t, expect: {state: Processed}}\n", later())
		d.put("agent.yaml", "agent: shipping\noperations: {ship: {url: https://a.example}}\n", later())
		d.put(".w.yaml", "half", later())
		d.put("w.yaml~", "before", later())
		if err := os.Mkdir(filepath.Join(d.dir, "more.yaml"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(d.dir, "none"), filepath.Join(d.dir, "nowhere.yaml")); err != nil {
			t.Log(err)
		}
		d.looks("")
	})
	t.Run("a file of any size", func(t *testing.T) {
		d := newDesk(t)
		d.put("w.yaml", strings.Repeat("#", workflow.MaxSource+100), later())
		d.looks(fmt.Sprintf("w.yaml:1:1: the file has %d bytes; a workflow may have at most %d\n", workflow.MaxSource+1, workflow.MaxSource))
	})
	t.Run("several files of a workflow", func(t *testing.T) {
		d := newDesk(t)
		d.put("a.yaml", oneStep(2, "two"), later())
		d.put("b.yaml", oneStep(1, "one"), later())
		d.looks("w: registered as version 1\nw: registered as version 2\n")
		d.looks("")
		d.put("b.yaml", oneStep(1, "three"), later())
		d.looks("w: registered as version 3, since version 2 has other content\nw: registered as version 4, since version 3 has other content\n")
		d.put("c.yaml", oneStep(2, "four"), later())
		d.looks("c.yaml: workflow w@2 stands in a.yaml too, with another content; give one of them the next version\n")
		d.looks("")
		d.remove("a.yaml")
		d.looks("")
		d.put("a.yaml", oneStep(2, "two"), later()) // an editor had put it aside
		d.looks("")
		d.remove("a.yaml")
		d.looks("")
		d.looks("w: registered as version 5, since version 4 has other content\n")
	})
	t.Run("two files that say the same", func(t *testing.T) {
		d := newDesk(t)
		d.put("a.yaml", oneStep(1, "one"), later())
		d.put("b.yaml", oneStep(1, "one"), later())
		d.looks("b.yaml: workflow w@1 stands in a.yaml too, with the same content; remove one of them\nw: registered as version 1\n")
		d.looks("")
		d.put("b.yaml", oneStep(1, "two"), later())
		d.looks("b.yaml: workflow w@1 stands in a.yaml too, with another content; give one of them the next version\n")
		d.put("b.yaml", oneStep(2, "two"), later())
		d.looks("w: registered as version 2\n")
	})
	t.Run("versions that are retired", func(t *testing.T) {
		d := newDesk(t)
		again := func() { d.folder = newFolder(d.dir, &d.shelf, &d.out) }
		d.put("w.yaml", oneStep(1, "one"), later())
		d.looks("w: registered as version 1\n")
		d.put("w.yaml", oneStep(1, "two"), later())
		d.looks("w: registered as version 2, since version 1 has other content\n")
		d.shelf.flows.Retire("w", 2, true)
		d.put("w.yaml", oneStep(1, "one"), later()) // by which new orders go
		d.looks("")
		d.put("w.yaml", oneStep(1, "three"), later()) // the next number is taken
		d.looks("w: registered as version 3, since version 1 has other content\n")
		d.put("w.yaml", oneStep(1, "two"), later()) // new orders go by the file
		d.looks("w: registered as version 4, since version 2 is retired\n")
		again()
		d.looks("")
		for version := range 4 {
			d.shelf.flows.Retire("w", version+1, true)
		}
		d.put("w.yaml", oneStep(1, "four"), later())
		d.looks("w: registered as version 5, since version 4 has other content, and is retired\n")
		d.put("v.yaml", oneStep(2, "two"), later()) // not the last that a file has
		d.put("w.yaml", oneStep(5, "four"), later())
		d.looks("")
	})
	t.Run("what cannot be registered at once", func(t *testing.T) {
		d := newDesk(t)
		d.shelf.wrong = errors.New("not now")
		d.put("w.yaml", oneStep(1, "one"), later())
		d.looks("w.yaml: workflow w could not be registered, which is tried again: not now\n")
		d.looks("")
		d.shelf.wrong = nil
		d.looks("w: registered as version 1\n")
	})
	t.Run("a folder that goes away", func(t *testing.T) {
		d := newDesk(t)
		d.put("w.yaml", oneStep(1, "one"), later())
		d.looks("w: registered as version 1\n")
		if err := os.Rename(d.dir, d.dir+"-"); err != nil {
			t.Fatal(err)
		}
		if d.look(t.Context()); !strings.Contains(d.out.String(), d.dir) {
			t.Errorf("it says %q", &d.out)
		}
		d.looks("")
		if err := os.Rename(d.dir+"-", d.dir); err != nil {
			t.Fatal(err)
		}
		d.looks("")
	})
}

// What is being written is not read before it stands still, and what was written twice within
// one tick of the file system's clock is read twice.
func TestWhatIsBeingWritten(t *testing.T) {
	d := newDesk(t)
	soon := time.Now().Add(time.Hour) // so that it stays new for as long as the test takes
	d.put("w.yaml", oneStep(1, "o"), soon)
	d.looks("")
	d.put("w.yaml", oneStep(1, "one"), soon)
	d.looks("")
	d.looks("w: registered as version 1\n")
	d.put("w.yaml", oneStep(1, "two"), soon)
	d.looks("w: registered as version 2, since version 1 has other content\n")
	d.put("new", oneStep(1, "six"), soon)
	if err := os.Rename(filepath.Join(d.dir, "new"), filepath.Join(d.dir, "w.yaml")); err != nil {
		t.Fatal(err)
	}
	d.looks("w: registered as version 3, since version 2 has other content\n")
}

func TestDevRegistersAFolder(t *testing.T) {
	clearEnvironment(t)
	waybill(t, "", "dev", "--data-dir", t.TempDir(), "--workflows", "/none/there").want(t, 2, "", "--workflows: there is no directory /none/there")
	d := newDesk(t)
	d.put("w.yaml", flow, yesterday)
	said, _ := background(t, false, "Ctrl-C", "dev", "--data-dir", t.TempDir(), "--kafka-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0", "--workflows", d.dir)
	if !strings.HasPrefix(said, "w: registered as version 1\n") {
		t.Errorf("it says %q", said)
	}
	d.put("w.yaml", strings.Replace(flow, "nobody", "somebody", 1), yesterday)
	server := httpAddress.FindString(said)
	oracle.Until(t, "the next version", func() error {
		if c := waybill(t, "", "workflow", "show", "w", "--server", server); !strings.Contains(c.out, "somebody") {
			return fmt.Errorf("it is %s%s", c.out, c.errs)
		}
		return nil
	})
	waybill(t, "", "workflow", "show", "w@2", "--server", server).want(t, 0, "somebody", "")
}
