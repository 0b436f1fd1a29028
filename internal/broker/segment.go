package broker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The files of a partition, as kfake writes them: a segment is a .dat file of
// record batches one after the other, named for the offset of the first, and
// an .idx file of one entry a batch. An entry is a version, a checksum byte,
// the leader epoch, a timestamp that kfake recomputes on load, and whether the
// batch was written inside a transaction.
const (
	batchHeader   = 61 // up to and including the number of records
	batchPrefix   = 12 // offset and length, which the length does not count
	indexEntry    = 15
	indexVersion  = 1
	transactional = 0x10 // batch attribute
	control       = 0x20 // batch attribute
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrDamaged is returned by Start when stored records are damaged in a place
// that a crash cannot have left half written. The message says which file.
var ErrDamaged = errors.New("stored records are damaged")

// storedBatch is a record batch with what its index entry says about it.
type storedBatch struct {
	kmsg.RecordBatch
	inTxn bool
}

func (b *storedBatch) nextOffset() int64 { return b.FirstOffset + int64(b.LastOffsetDelta) + 1 }

// segment is one segment of a partition, by the path of its .dat file.
type segment struct{ path string }

func (s segment) indexPath() string { return strings.TrimSuffix(s.path, ".dat") + ".idx" }

// listSegments returns the segments of a partition in the order of their offsets.
func listSegments(partition string) ([]segment, error) {
	files, err := os.ReadDir(partition)
	if err != nil {
		return nil, err
	}
	return segmentsOf(partition, files), nil
}

// segmentsOf returns the segments among the files of a partition, in the order
// of their offsets.
func segmentsOf(partition string, files []os.DirEntry) []segment {
	var bases []int64
	for _, f := range files {
		name, ok := strings.CutSuffix(f.Name(), ".dat")
		if base, err := strconv.ParseInt(name, 10, 64); ok && err == nil {
			bases = append(bases, base)
		}
	}
	slices.Sort(bases)
	segments := make([]segment, len(bases))
	for i, base := range bases {
		segments[i].path = filepath.Join(partition, strconv.FormatInt(base, 10)+".dat")
	}
	return segments
}

// recover reads the segment, passes each batch to visit, and leaves both files
// as if the process that wrote them had stopped between two batches: a half
// written batch at the end is cut off, and the index has one entry a batch.
//
// Cutting is right only where a write can have been interrupted, which is at
// the end of the last segment. Anywhere else it would silently drop records
// that were acknowledged, so recover fails with ErrDamaged instead.
func (s segment) recover(last bool, log *slog.Logger, visit func(*storedBatch)) error {
	data, err := os.ReadFile(s.path)
	if err != nil {
		return err
	}
	index, err := os.ReadFile(s.indexPath())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}

	repaired := make([]byte, 0, len(index))
	pos := 0
	for pos < len(data) {
		raw, ok := batchAt(data[pos:])
		if !ok {
			break
		}
		b := new(storedBatch)
		if err := b.ReadFrom(raw); err != nil {
			break
		}
		var entry []byte
		entry, b.inTxn = indexEntryOf(index, len(repaired), b)
		repaired = append(repaired, entry...)
		visit(b)
		pos += len(raw)
	}

	if pos < len(data) {
		if !last || batchIn(data[pos+1:]) {
			return fmt.Errorf("%w: %s, %d of %d bytes are readable; restore the file from a copy, or give up the rest of it with: truncate -s %d %[2]s",
				ErrDamaged, s.path, pos, len(data), pos)
		}
		log.Warn("broker drops a half written batch at the end of a segment", "file", s.path, "size", len(data), "kept", pos)
		if err := replaceFile(s.path, data[:pos]); err != nil {
			return err
		}
	}
	if !slices.Equal(index, repaired) {
		return replaceFile(s.indexPath(), repaired)
	}
	return nil
}

// append adds a batch to the end of the segment. The order of the two writes
// is kfake's, and recover repairs what lies between them.
func (s segment) append(b *storedBatch) error {
	if err := appendFile(s.path, b.AppendTo(nil)); err != nil {
		return err
	}
	return appendFile(s.indexPath(), newIndexEntry(b))
}

// batchAt returns the intact batch at the start of data, if there is one.
func batchAt(data []byte) ([]byte, bool) {
	if len(data) < batchHeader || data[16] != 2 { // the only format there is
		return nil, false
	}
	size := batchPrefix + int64(binary.BigEndian.Uint32(data[8:]))
	if size < batchHeader || size > int64(len(data)) {
		return nil, false
	}
	raw := data[:size]
	return raw, crc32.Checksum(raw[21:], castagnoli) == binary.BigEndian.Uint32(raw[17:])
}

// batchIn reports whether an intact batch starts anywhere in data.
func batchIn(data []byte) bool {
	for i := range data {
		if _, ok := batchAt(data[i:]); ok {
			return true
		}
	}
	return false
}

// indexEntryOf returns the index entry at byte at, and what it says about
// transactions. An entry that is missing or does not match its checksum is
// made anew from the batch: kfake reads a missing one as "in no transaction",
// and so would show the records of a transaction that never committed.
func indexEntryOf(index []byte, at int, b *storedBatch) (entry []byte, inTxn bool) {
	if at+indexEntry <= len(index) {
		entry = index[at : at+indexEntry]
		if entry[0] == indexVersion && entry[1] == byte(crc32.Checksum(entry[2:], castagnoli)) {
			return entry, entry[14]&1 != 0
		}
	}
	b.inTxn = b.Attributes&transactional != 0 && b.Attributes&control == 0
	return newIndexEntry(b), b.inTxn
}

func newIndexEntry(b *storedBatch) []byte {
	entry := make([]byte, indexEntry)
	entry[0] = indexVersion
	binary.LittleEndian.PutUint32(entry[2:], uint32(b.PartitionLeaderEpoch))
	binary.LittleEndian.PutUint64(entry[6:], uint64(b.MaxTimestamp))
	if b.inTxn {
		entry[14] = 1
	}
	entry[1] = byte(crc32.Checksum(entry[2:], castagnoli))
	return entry
}

// appendFile adds data to the end of a file and flushes it to the disk.
func appendFile(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// replaceFile swaps a file's content for data, all of it or nothing.
func replaceFile(path string, data []byte) error {
	tmp := path + ".tmp" // kfake removes such leftovers when it loads
	f, err := os.Create(tmp)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
