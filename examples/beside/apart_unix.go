//go:build unix

package beside

import (
	"os"
	"os/exec"
	"syscall"
)

// apart has the terminal's Ctrl-C go to this process alone, which passes it on: a second one ends
// Waybill at once.
func apart(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
}
