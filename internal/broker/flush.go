package broker

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
)

// flusher puts on the disk what kfake wrote, for all that wait at once, and
// holds every answer back until then: an answer leaves when a flush has ended
// well that began after the answer was made. So nobody, neither who wrote nor who
// reads, is told of anything that a power failure takes back. A flush copies what
// was added to the files into one log, and flushes that. ADR 0022 says what is on
// the disk when.
type flusher struct {
	files *files
	disk
	log *slog.Logger

	generation uint64
	to         *os.File // the flush log of this generation
	at         int64    // where its next record goes
	size       int64    // of the file

	mu     sync.Mutex
	cond   sync.Cond     // of what follows
	asked  uint64        // the last flush that somebody waits for, counted from 1
	begun  uint64        // the last flush that began
	ended  uint64        // the last flush that ended well
	err    error         // why no answer leaves any more
	failed chan struct{} // closed when a flush failed
	done   chan struct{} // closed when run has ended
}

// errStopped is why answers are held back once the broker has stopped.
var errStopped = errors.New("the broker has stopped")

// startFlusher flushes all that is in a directory which was recovered from a flush
// log of the generation, 0 if from none, and then what is written to it.
func startFlusher(dir string, generation uint64, disk disk, log *slog.Logger) (*flusher, error) {
	files, err := newFiles(dir)
	if err != nil {
		return nil, err
	}
	f := &flusher{
		files: files, disk: disk, log: log,
		failed: make(chan struct{}), done: make(chan struct{}),
	}
	f.cond.L = &f.mu
	err = f.begin(generation + 1)
	if err == nil {
		err = f.flush()
	}
	if err != nil {
		return nil, fmt.Errorf("flush the broker's data in %s: %w", dir, errors.Join(err, f.close()))
	}
	go f.run()
	return f, nil
}

func (f *flusher) dir() string { return f.files.root.path() }

// wait returns nil when all that was written before the call is on the disk, and
// otherwise why it will not be.
func (f *flusher) wait() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := f.begun + 1
	f.asked = next
	f.cond.Broadcast()
	for f.ended < next && f.err == nil {
		f.cond.Wait()
	}
	return f.err
}

func (f *flusher) run() {
	defer close(f.done)
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		for f.asked == f.begun && f.err == nil {
			f.cond.Wait()
		}
		if f.err != nil {
			return
		}
		f.begun++
		f.mu.Unlock()
		err := f.flush()
		f.mu.Lock()
		if err != nil {
			f.failLocked(err)
			return
		}
		f.ended++
		f.cond.Broadcast()
	}
}

// fail ends all answers until the broker is started anew. A flush that failed is
// not tried again: the kernel may have dropped what it could not write, and
// would call the next flush a success.
func (f *flusher) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failLocked(err)
}

func (f *flusher) failLocked(err error) {
	if f.err != nil {
		return
	}
	f.err = fmt.Errorf("the broker could not put its data on the disk and answers nothing any more; look at the disk of %s, then start again: %w", f.dir(), err)
	f.log.Error("broker answers nothing any more: its data could not be put on the disk", "dir", f.dir(), "err", err)
	close(f.failed)
	f.cond.Broadcast()
}

// flush puts on the disk what is written by now: first the names of new files, so
// that recovery finds them, then what was added to all.
func (f *flusher) flush() error {
	c, err := f.files.changed()
	if err != nil {
		return err
	}
	if err := f.syncAll(c.begun); err != nil {
		return err
	}
	for _, dir := range c.named {
		if err := f.sync(dir); err != nil {
			return err
		}
	}
	if len(c.pieces) == 0 && f.at > 0 {
		return nil
	}
	if err := f.write(c.pieces); err != nil {
		return err
	}
	if f.at < f.limit {
		return nil
	}
	return f.checkpoint()
}

// write adds a record to the flush log.
func (f *flusher) write(pieces []piece) error {
	record := flushRecord(f.generation, pieces)
	for f.size < f.at+int64(len(record)) {
		if _, err := f.to.WriteAt(make([]byte, logStep), f.size); err != nil {
			return err
		}
		f.size += logStep
	}
	if _, err := f.to.WriteAt(record, f.at); err != nil {
		return err
	}
	f.at += int64(len(record))
	return f.sync(f.to)
}

// checkpoint flushes the segments themselves, so that the log can be begun anew.
func (f *flusher) checkpoint() error {
	if err := f.syncAll(f.files.written()); err != nil {
		return err
	}
	pieces, err := f.files.standing()
	if err != nil {
		return err
	}
	if err := f.to.Close(); err != nil {
		return err
	}
	if err := f.begin(f.generation + 1); err != nil {
		return err
	}
	return errors.Join(f.write(pieces), f.files.closeLeft())
}

// begin opens the flush log of a generation, and flushes its name.
func (f *flusher) begin(generation uint64) (err error) {
	f.generation, f.at = generation, 0
	f.to, err = os.OpenFile(flushLogPath(f.dir(), generation), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	info, err := f.to.Stat()
	if err != nil {
		return err
	}
	f.size = info.Size()
	return f.sync(f.files.root.file)
}

// syncAll flushes the files side by side.
func (f *flusher) syncAll(files []*os.File) error {
	errs := make([]error, len(files))
	var syncing sync.WaitGroup
	slots := make(chan struct{}, maxSyncs)
	for i, file := range files {
		slots <- struct{}{}
		syncing.Go(func() {
			errs[i] = f.sync(file)
			<-slots
		})
	}
	syncing.Wait()
	return errors.Join(errs...)
}

// maxSyncs is how many files are flushed at a time. Each takes a thread.
const maxSyncs = 32

// stop ends all answers, flushes what kfake wrote when it closed, and removes the
// flush logs. It returns why a flush failed, if one did.
func (f *flusher) stop() error {
	f.mu.Lock()
	err := f.err
	if err == nil {
		f.err = errStopped
		f.cond.Broadcast()
	}
	f.mu.Unlock()
	<-f.done
	if err == nil {
		err = f.flush()
	}
	if err == nil {
		err = f.syncAll(f.files.everything())
	}
	if err == nil {
		err = dropFlushLogs(f.dir(), f.generation, f.sync)
	}
	return errors.Join(err, f.close())
}

func (f *flusher) close() error {
	err := f.files.close()
	if f.to != nil {
		err = errors.Join(err, f.to.Close())
	}
	return err
}
