package reliability

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

func said(ctx context.Context, name string, args ...string) string {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// Commit is that of the program, which is in the directories named here.
func Commit(ctx context.Context) string {
	hash := said(ctx, "git", "rev-parse", "--short", "HEAD")
	root := filepath.Dir(said(ctx, "go", "env", "GOMOD"))
	changed := []string{"-C", root, "status", "--porcelain", "--untracked-files=no", "--"}
	changed = append(changed, "cmd", "internal", "orchestrator", "compensation", "projections", "events", "agents", "go.mod")
	if said(ctx, "git", changed...) != "" {
		hash += ", and changes on top of it"
	}
	return hash
}

// Versions are those of Go and of the client of Kafka.
func Versions(ctx context.Context) string {
	franz := said(ctx, "go", "list", "-m", "-f", "{{.Version}}", "github.com/twmb/franz-go")
	return runtime.Version() + ", franz-go " + franz
}

// Machine says on what this runs. A processor's name alone does not tell its generations
// apart, so its family and model stand behind it.
func Machine() string {
	m := fmt.Sprintf("%d cores, %s/%s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
	info, _ := os.ReadFile("/proc/cpuinfo") // not everywhere
	if name := regexp.MustCompile(`model name\s*:\s*(.*)`).FindSubmatch(info); name != nil {
		m += ", " + string(name[1])
	}
	family := regexp.MustCompile(`cpu family\s*:\s*(\d+)`).FindSubmatch(info)
	model := regexp.MustCompile(`model\s*:\s*(\d+)`).FindSubmatch(info)
	if family != nil && model != nil {
		m += fmt.Sprintf(" (family %s, model %s)", family[1], model[1])
	}
	memory, _ := os.ReadFile("/proc/meminfo")
	var kib int
	if _, err := fmt.Sscanf(string(memory), "MemTotal: %d kB", &kib); err == nil {
		m += fmt.Sprintf(", %d GiB", (kib+1<<19)>>20)
	}
	return m + "; Kafka, agents and callers run on it too"
}
