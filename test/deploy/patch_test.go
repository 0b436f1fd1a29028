package deploy

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/test/kafka"
)

// The patches that docs keep are for the modules that are used.
func TestThePatchesApply(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		kafka.LeaveOut(t, "the patches of docs, because there is no git")
	}
	for _, c := range []struct {
		patch, module, root string // root is where the module is in its repository
		file, has           string // then
	}{
		{"kfake-withfs", "github.com/twmb/franz-go/pkg/kfake", "pkg/kfake/", "config.go", "func WithFS("},
		{"kgo-fetch-after-reassignment", "github.com/twmb/franz-go", "", "pkg/kgo/source.go", "if consumer.loadSession() != session {"},
	} {
		t.Run(c.patch, func(t *testing.T) {
			patch, err := filepath.Abs("../../docs/patches/" + c.patch + ".patch")
			if err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(patch)
			if err != nil {
				t.Fatal(err)
			}
			source, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", c.module).Output()
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			for line := range bytes.Lines(text) {
				name, changed := bytes.CutPrefix(bytes.TrimSpace(line), []byte("--- a/"))
				if !changed {
					continue
				}
				file, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(source)), strings.TrimPrefix(string(name), c.root)))
				at := filepath.Join(dir, string(name))
				if err == nil {
					err = os.MkdirAll(filepath.Dir(at), 0o700)
				}
				if err == nil {
					err = os.WriteFile(at, file, 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			apply := exec.CommandContext(t.Context(), git, "apply", patch)
			apply.Dir = dir
			if said, err := apply.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, said)
			}
			patched, err := os.ReadFile(filepath.Join(dir, c.root+c.file))
			if err != nil || !bytes.Contains(patched, []byte(c.has)) {
				t.Errorf("it is there, and changes nothing: %v", err)
			}
		})
	}
}
