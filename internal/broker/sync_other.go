//go:build !linux

package broker

import "os"

// syncFile flushes a file or a directory.
func syncFile(f *os.File) error { return f.Sync() }
