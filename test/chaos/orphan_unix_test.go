//go:build unix && !linux

package chaos

import "syscall"

// dieWithUs cannot be had here: a child outlives a runner that panics.
func dieWithUs() *syscall.SysProcAttr { return nil }
