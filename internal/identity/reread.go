package identity

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"
)

// reread is a file that is looked at again every two seconds, when somebody asks, and read
// once it is older than that, or the same at two looks. One that became wrong changes nothing: what it said
// before counts on, so that a slip of the pen neither opens the door nor locks everybody out.
type reread[T any] struct {
	what, path string
	log        *slog.Logger
	read       func(name string, source []byte, before T) (T, error)

	mu     sync.Mutex
	said   T
	wrong  error // what is wrong with the file as it is now
	stamp  stamp
	seen   stamp // at the last look
	looked time.Time
}

// stamp tells one content of a file from another.
type stamp struct {
	modified time.Time
	size     int64
}

// lookEvery is how long a file that changed may go unnoticed.
const lookEvery = 2 * time.Second

// open reads the file for the first time, before which nothing was said.
func (f *reread[T]) open(what, path string, log *slog.Logger, read func(name string, source []byte, before T) (T, error)) (err error) {
	f.what, f.path, f.log, f.read, f.looked = what, path, log, read, time.Now()
	if f.said, f.stamp, err = f.load(); err != nil {
		return fmt.Errorf("the %s: %w", what, err)
	}
	return nil
}

// load reads the file. Its stamp is from before that: what is written meanwhile has
// another, and is read again.
func (f *reread[T]) load() (said T, s stamp, err error) {
	if info, err := os.Stat(f.path); err == nil && !info.Mode().IsRegular() { // a pipe would keep all waiting
		return said, s, fmt.Errorf("%s is no file", f.path)
	}
	opened, err := os.Open(f.path)
	if err != nil {
		return said, s, err
	}
	defer opened.Close()
	info, err := opened.Stat()
	if err != nil {
		return said, s, err
	}
	s = stamp{info.ModTime(), info.Size()}
	source, err := io.ReadAll(io.LimitReader(opened, maxFile+1))
	if err != nil {
		return said, s, err
	}
	said, err = f.read(f.path, source, f.said)
	return said, s, err
}

// now is what the file says, read again if it changed.
func (f *reread[T]) now() T {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.looked) < lookEvery {
		return f.said
	}
	return f.look()
}

// look needs f.mu.
func (f *reread[T]) look() T {
	f.looked = time.Now()
	if info, err := os.Stat(f.path); err == nil {
		last := f.seen
		// What was written just now may be being written: the half of a file may say more than
		// the whole. It is read at the next look, if that finds it as it is.
		if f.seen = (stamp{info.ModTime(), info.Size()}); f.seen == f.stamp || f.seen != last && time.Since(info.ModTime()) < lookEvery {
			return f.said
		}
	}
	said, s, err := f.load()
	if err != nil {
		if f.wrong == nil || f.wrong.Error() != err.Error() {
			f.log.Error("the "+f.what+" is wrong; what it said before counts on", "file", f.path, "error", err)
		}
		f.stamp, f.wrong = s, err
		return f.said
	}
	f.said, f.stamp, f.wrong = said, s, nil
	f.log.Info("the "+f.what+" was read again", "file", f.path)
	return f.said
}

// Wrong is what is wrong with the file since it was read last, nil if nothing is.
func (f *reread[T]) Wrong() error {
	f.now()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wrong
}
