//go:build unix && !linux

package process

import "syscall"

// dieWithUs cannot be had here: a child outlives tests that panic.
func dieWithUs() *syscall.SysProcAttr { return nil }
