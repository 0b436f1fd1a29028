package child

import (
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"sync"
)

// Waybill is the program, built once for a process of tests, with the race detector if they have one.
// It goes beside the test binary: go test removes that directory even after a panic, when no function
// of ours runs.
var Waybill = sync.OnceValues(func() (program string, err error) {
	test, err := os.Executable()
	if err != nil {
		return "", err
	}
	program = test + ".waybill"
	args := []string{"build", "-o", program}
	if raceDetector() {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, "github.com/waybill-dev/waybill/cmd/waybill")...)
	if said, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", build, err, said)
	}
	return program, nil
})

// raceDetector says whether the tests, and so the program too, have one.
func raceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}
