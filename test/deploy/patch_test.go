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

// The patch for kfake that docs keep is one for the kfake that is used.
func TestThePatchForKfakeApplies(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		kafka.LeaveOut(t, "the patch for kfake, because there is no git")
	}
	patch, err := filepath.Abs("../../docs/patches/kfake-withfs.patch")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(patch)
	if err != nil {
		t.Fatal(err)
	}
	source, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/twmb/franz-go/pkg/kfake").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for line := range bytes.Lines(text) {
		name, changed := bytes.CutPrefix(bytes.TrimSpace(line), []byte("--- a/pkg/kfake/"))
		if !changed {
			continue
		}
		file, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(source)), string(name)))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, string(name)), file, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	apply := exec.CommandContext(t.Context(), git, "apply", "-p3", patch)
	apply.Dir = dir
	if said, err := apply.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	config, err := os.ReadFile(filepath.Join(dir, "config.go"))
	if err != nil || !bytes.Contains(config, []byte("func WithFS(")) {
		t.Errorf("it is there, and sets nothing: %v", err)
	}
}
