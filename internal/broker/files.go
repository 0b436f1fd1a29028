package broker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// files follows what kfake writes and does not flush: the last segment of each
// partition, the logs of producers and groups, and the names of all files. kfake
// does not say what it wrote, so a look compares sizes, and lists the directories
// that may have changed. An index is left out, because recovery makes it anew,
// and what is in the other state files is flushed by kfake.
type files struct {
	root       *folder
	partitions *folder             // nil until the first partition is written
	logs       map[string]*growing // by name
	tails      map[string]*tail    // by the path of their directory
	left       []*os.File          // not written any more, closed with the next generation
}

// folder is a directory as it was last listed.
type folder struct {
	file   *os.File
	mtime  time.Time
	listed time.Time
}

// growing is a file that kfake appends to. It is held open, because Linux tells
// of a write that failed only those who had the file open at the time.
type growing struct {
	file   *os.File
	logged int64 // bytes
}

// tail is a partition and its last segment. The segments before it were flushed
// when it began, and do not change.
type tail struct {
	*folder
	last *growing // nil before the first record
}

// mtimeStep is more than the time in which a directory can change twice without
// its time of modification telling.
const mtimeStep = 2 * time.Second

// stateLogs are the files in the data directory that kfake appends to. It replaces
// one that grew large by a shorter one. The last that is written for a request
// comes first: whoever reads them in this order, and then the segments, does not
// read of anything before it is there.
var stateLogs = []string{"pids.log", "groups.log"}

func newFiles(dir string) (*files, error) {
	root, err := openFolder(dir)
	if err != nil {
		return nil, err
	}
	return &files{root: root, logs: make(map[string]*growing), tails: make(map[string]*tail)}, nil
}

func openFolder(path string) (*folder, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return &folder{file: file}, nil
}

func (d *folder) path() string { return d.file.Name() }

// look lists the directory if it may have changed, and says whether it did for
// sure. Whoever finds a name in the list that is new has to flush it all the same.
func (d *folder) look() (names []os.DirEntry, changed bool, err error) {
	info, err := d.file.Stat()
	if err != nil {
		return nil, false, err
	}
	if info.ModTime().Equal(d.mtime) && d.listed.Sub(d.mtime) > mtimeStep {
		return nil, false, nil
	}
	changed = !info.ModTime().Equal(d.mtime)
	d.mtime, d.listed = info.ModTime(), time.Now()
	names, err = os.ReadDir(d.path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil // a topic was deleted, which the directory above tells
	}
	return names, changed, err
}

// is reports whether path names the open file.
func is(file *os.File, path string) bool {
	held, err := file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(held, there)
}

// change is what is to be flushed.
type change struct {
	pieces []piece
	begun  []*os.File // segments that are new
	named  []*os.File // directories in which names changed, the lower ones first
}

// changed returns what changed since it was last called. It counts on all of that
// being flushed now.
func (f *files) changed() (c change, err error) {
	names, changed, err := f.root.look()
	if err != nil {
		return c, err
	}
	found, err := f.findLogs(names)
	if err != nil {
		return c, err
	}
	if changed || found {
		c.named = append(c.named, f.root.file)
	}
	for _, name := range stateLogs {
		if g := f.logs[name]; g != nil {
			if err := c.add(f.root.path(), g, wholeEntries); err != nil {
				return c, err
			}
		}
	}
	if f.partitions == nil {
		return c, nil
	}

	names, changed, err = f.partitions.look()
	if err != nil {
		return c, err
	}
	found, err = f.findPartitions(names)
	if err != nil {
		return c, err
	}
	if changed || found {
		c.named = append(c.named, f.partitions.file)
	}
	for _, t := range f.tails {
		names, changed, err := t.look()
		if err != nil {
			return c, err
		}
		if t.last != nil {
			if err := c.add(f.root.path(), t.last, wholeBatches); err != nil {
				return c, err
			}
		}
		begun, err := f.findSegments(t, names)
		if err != nil {
			return c, err
		}
		for _, g := range begun {
			c.begun = append(c.begun, g.file)
			c.pieces = append(c.pieces, piece{path: below(f.root.path(), g.file.Name()), at: g.logged})
		}
		if changed || len(begun) > 0 {
			c.named = append(c.named, t.file)
		}
	}
	slices.Reverse(c.named)
	return c, nil
}

// add adds what was appended to a file, as far as it is whole.
func (c *change) add(dir string, g *growing, whole func([]byte) int) error {
	info, err := g.file.Stat()
	if err != nil || info.Size() == g.logged {
		return err
	}
	if info.Size() < g.logged {
		return fmt.Errorf("%s became shorter", g.file.Name())
	}
	data := make([]byte, info.Size()-g.logged)
	if _, err := g.file.ReadAt(data, g.logged); err != nil {
		return err
	}
	if data = data[:whole(data)]; len(data) > 0 {
		c.pieces = append(c.pieces, piece{below(dir, g.file.Name()), g.logged, data})
		g.logged += int64(len(data))
	}
	return nil
}

// standing returns where the files stand that are written to: of the logs, which
// kfake may replace, all that they have.
func (f *files) standing() ([]piece, error) {
	var pieces []piece
	for _, name := range stateLogs {
		if g := f.logs[name]; g != nil {
			data := make([]byte, g.logged)
			if _, err := g.file.ReadAt(data, 0); err != nil {
				return nil, err
			}
			pieces = append(pieces, piece{name, 0, data})
		}
	}
	for _, t := range f.tails {
		if t.last != nil {
			pieces = append(pieces, piece{path: below(f.root.path(), t.last.file.Name()), at: t.last.logged})
		}
	}
	return pieces, nil
}

// written returns the segments that were written in this generation.
func (f *files) written() []*os.File {
	written := slices.Clone(f.left)
	for _, t := range f.tails {
		if t.last != nil {
			written = append(written, t.last.file)
		}
	}
	return written
}

// everything returns all files that may have to be flushed before they can do
// without a log, and the directory of their names.
func (f *files) everything() []*os.File {
	all := f.written()
	for _, g := range f.logs {
		all = append(all, g.file)
	}
	return append(all, f.root.file)
}

// below returns the part of a path that is below a directory.
func below(dir, path string) string { return strings.TrimPrefix(path, dir+string(filepath.Separator)) }

// wholeBatches returns how many bytes at the start of data are batches with
// nothing missing.
func wholeBatches(data []byte) int {
	return whole(data, batchPrefix, func(head []byte) uint32 { return binary.BigEndian.Uint32(head[8:]) })
}

// wholeEntries returns the same of the entries of a log.
func wholeEntries(data []byte) int { return whole(data, entryHeader, binary.LittleEndian.Uint32) }

// whole returns how many bytes at the start of data are parts with nothing missing. The
// head of a part says how long its rest is.
func whole(data []byte, head int, rest func(head []byte) uint32) (n int) {
	for len(data)-n >= head {
		size := head + int(rest(data[n:]))
		if size > len(data)-n {
			break
		}
		n += size
	}
	return n
}

// findLogs follows the logs and the directory of partitions, and reports whether
// one is new.
func (f *files) findLogs(names []os.DirEntry) (found bool, err error) {
	for _, n := range names {
		path := filepath.Join(f.root.path(), n.Name())
		switch {
		case n.Name() == "partitions" && f.partitions == nil:
			if f.partitions, err = openFolder(path); err != nil {
				return false, err
			}
			found = true
		case slices.Contains(stateLogs, n.Name()):
			had := f.logs[n.Name()]
			if had != nil && is(had.file, path) {
				continue
			}
			file, err := os.Open(path)
			if err != nil {
				return false, err
			}
			if had != nil {
				f.left = append(f.left, had.file)
			}
			f.logs[n.Name()] = &growing{file: file}
			found = true
		}
	}
	return found, nil
}

// findPartitions follows partitions that are new, or new by the name of one that
// was deleted, and leaves those that are gone.
func (f *files) findPartitions(names []os.DirEntry) (found bool, err error) {
	if names == nil {
		return false, nil
	}
	there := make(map[string]bool)
	for _, n := range names {
		path := filepath.Join(f.partitions.path(), n.Name())
		if t := f.tails[path]; t != nil && is(t.file, path) {
			there[path] = true
			continue
		}
		d, err := openFolder(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted meanwhile
		}
		if err != nil {
			return false, err
		}
		f.leave(path)
		f.tails[path] = &tail{folder: d}
		there[path], found = true, true
	}
	for path := range f.tails {
		if !there[path] {
			f.leave(path)
			found = true
		}
	}
	return found, nil
}

func (f *files) leave(partition string) {
	t := f.tails[partition]
	if t == nil {
		return
	}
	delete(f.tails, partition)
	f.left = append(f.left, t.file)
	if t.last != nil {
		f.left = append(f.left, t.last.file)
	}
}

// findSegments returns the segments that were begun since the last look, which are
// all when a compaction wrote them anew. The last of them is followed.
func (f *files) findSegments(t *tail, names []os.DirEntry) ([]*growing, error) {
	segments := segmentsOf(t.path(), names)
	if t.last != nil {
		i := slices.Index(segments, segment{t.last.file.Name()})
		if i >= 0 && is(t.last.file, segments[i].path) {
			segments = segments[i+1:]
		}
	}
	var begun []*growing
	for _, s := range segments {
		file, err := os.Open(s.path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // expired meanwhile
		}
		if err != nil {
			return nil, err
		}
		if t.last != nil {
			f.left = append(f.left, t.last.file)
		}
		t.last = &growing{file: file}
		begun = append(begun, t.last)
	}
	for i, g := range begun {
		info, err := g.file.Stat()
		if err != nil {
			return nil, err
		}
		g.logged = info.Size()
		if i < len(begun)-1 {
			continue
		}
		data := make([]byte, info.Size()) // kfake may be writing to it
		if _, err := g.file.ReadAt(data, 0); err != nil {
			return nil, err
		}
		g.logged = int64(wholeBatches(data))
	}
	return begun, nil
}

// closeLeft closes the files that are not written any more.
func (f *files) closeLeft() error {
	var err error
	for _, file := range f.left {
		err = errors.Join(err, file.Close())
	}
	f.left = nil
	return err
}

func (f *files) close() error {
	for path := range f.tails {
		f.leave(path)
	}
	for _, g := range f.logs {
		f.left = append(f.left, g.file)
	}
	f.left = append(f.left, f.root.file)
	if f.partitions != nil {
		f.left = append(f.left, f.partitions.file)
	}
	return f.closeLeft()
}
