//go:build unix

package broker

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// freeSpace returns the bytes that an unprivileged process may still write to
// the file system of dir.
func freeSpace(dir string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("statfs %s: %w", dir, err)
	}
	//nolint:unconvert // FreeBSD counts in signed numbers, negative for what only root may use
	return uint64(max(st.Bavail, 0)) * uint64(st.Bsize), nil
}
