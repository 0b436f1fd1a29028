//go:build !linux

package child

import "syscall"

// DieWithUs cannot be had here: a child outlives tests that panic.
func DieWithUs() *syscall.SysProcAttr { return nil }
