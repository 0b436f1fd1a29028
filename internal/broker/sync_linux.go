package broker

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// syncFile flushes a directory, or a file without what nobody needs to read it
// again, as when it was last written.
func syncFile(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.IsDir() {
		return f.Sync() // the less would leave out new names
	}
	for {
		if err := unix.Fdatasync(int(f.Fd())); !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("fdatasync "+f.Name(), err)
		}
	}
}
