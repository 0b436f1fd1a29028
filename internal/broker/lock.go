package broker

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/gofrs/flock"
)

// ErrLocked is returned by Start when another process uses the data directory.
var ErrLocked = errors.New("data directory is in use by another process")

// dirLock keeps a second process out of a data directory. The operating system
// drops it when the process ends, however it ends.
type dirLock struct{ file *flock.Flock }

func lockDir(dir string) (*dirLock, error) {
	file := flock.New(filepath.Join(dir, "lock"))
	ok, err := file.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock the broker's data directory %s: %w", dir, err)
	}
	if !ok {
		return nil, fmt.Errorf("%w: %s; stop the other waybill or use another directory", ErrLocked, dir)
	}
	return &dirLock{file}, nil
}

// release gives the directory up. The lock file stays: removing it would let
// two processes hold locks on two files of the same name.
func (l *dirLock) release() error {
	if l == nil {
		return nil
	}
	if err := l.file.Close(); err != nil {
		return fmt.Errorf("unlock the broker's data directory: %w", err)
	}
	return nil
}
