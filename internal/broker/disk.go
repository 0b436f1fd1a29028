package broker

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// disk is what the broker needs of the operating system.
type disk struct {
	free func(dir string) (uint64, error) // bytes
	sync func(*os.File) error             // flushes a file or a directory
	// limit is the size in bytes from which a flush log is followed by another.
	limit int64
}

// flushes reports whether a flusher is used. On Windows, where a directory cannot
// be flushed nor an open file be replaced, kfake flushes file by file.
func flushes(cfg Config) bool { return cfg.Fsync && cfg.Dir != "" && runtime.GOOS != "windows" }

// mkdirAll creates a directory with those above it, as os.MkdirAll, and flushes the
// names of those that it made.
func (d disk) mkdirAll(path string, perm os.FileMode) error {
	above := filepath.Dir(path)
	if _, err := os.Stat(above); errors.Is(err, fs.ErrNotExist) {
		if err := d.mkdirAll(above, perm); err != nil {
			return err
		}
	}
	if err := os.Mkdir(path, perm); errors.Is(err, fs.ErrExist) {
		return nil
	} else if err != nil {
		return err
	}
	dir, err := os.Open(above)
	if err != nil {
		return err
	}
	return errors.Join(d.sync(dir), dir.Close())
}
