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
	"strings"
)

// A flush log has what was added to the files of the data directory, in the order
// in which it was, so that one flush of one file puts all of it on the disk. It is
// a sequence of records of one generation, each from one flush: length, checksum
// and generation, and then pieces. The first record of a generation says where
// every file stood that is written to. There are two logs, taken in turn, so that
// one is whole while the other is begun.
//
// What is in no record was never acknowledged. Recovery cuts it off, so that what
// is left is what was there at one moment.
const (
	recordHeader = 16
	// logLimit is the size in bytes from which a log is followed by the other: a
	// few seconds of a machine's best, and what a start reads at most.
	logLimit = 32 << 20
	// logStep is by how many bytes a log grows. A flush inside of a file is
	// quicker than one that makes it longer.
	logStep = 1 << 20
)

func flushLogPath(dir string, generation uint64) string {
	return filepath.Join(dir, fmt.Sprintf("flush-%d.log", generation%2))
}

// piece is what a file has from a byte on. It ends with it.
type piece struct {
	path string // below the data directory
	at   int64
	data []byte
}

func (p piece) appendTo(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(p.path)))
	b = append(b, p.path...)
	b = binary.LittleEndian.AppendUint64(b, uint64(p.at))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(p.data)))
	return append(b, p.data...)
}

// flushRecord encodes pieces.
func flushRecord(generation uint64, pieces []piece) []byte {
	b := make([]byte, recordHeader)
	for _, p := range pieces {
		b = p.appendTo(b)
	}
	binary.LittleEndian.PutUint32(b, uint32(len(b)-recordHeader))
	binary.LittleEndian.PutUint64(b[8:], generation)
	binary.LittleEndian.PutUint32(b[4:], crc32.Checksum(b[8:], castagnoli))
	return b
}

// readFlushLog returns the generation of a log and all that its records say, up to
// one that is not whole or of another generation. The generation is 0 if there is
// none.
func readFlushLog(path string) (generation uint64, pieces []piece, err error) {
	log, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil, nil
	}
	if err != nil {
		return 0, nil, err
	}
	for len(log) >= recordHeader {
		size := recordHeader + int64(binary.LittleEndian.Uint32(log))
		of := binary.LittleEndian.Uint64(log[8:])
		if size > int64(len(log)) || of == 0 || generation != 0 && of != generation ||
			crc32.Checksum(log[8:size], castagnoli) != binary.LittleEndian.Uint32(log[4:]) {
			break
		}
		generation = of
		for b := log[recordHeader:size]; len(b) > 0; {
			var p piece
			n := binary.LittleEndian.Uint32(b)
			p.path, b = string(b[4:4+n]), b[4+n:]
			p.at = int64(binary.LittleEndian.Uint64(b))
			end := 16 + binary.LittleEndian.Uint64(b[8:])
			p.data, b = b[16:end], b[end:]
			pieces = append(pieces, p)
		}
		log = log[size:]
	}
	return generation, pieces, nil
}

// recoverFlushed makes the files what the newer flush log says that they were, if
// there is one. It returns the log's generation.
func recoverFlushed(dir string, log *slog.Logger) (generation uint64, err error) {
	generation, pieces, err := readFlushLog(flushLogPath(dir, 0))
	if err != nil {
		return 0, err
	}
	other, otherPieces, err := readFlushLog(flushLogPath(dir, 1))
	if err != nil {
		return 0, err
	}
	if other > generation {
		generation, pieces = other, otherPieces
	}
	if generation == 0 {
		return 0, nil
	}
	log.Info("broker restores what was flushed before it was ended", "dir", dir)

	// What a stop wrote that did not end speaks of records that may not be there.
	for _, name := range []string{"session_state.json", "seq_windows.json"} {
		if err := remove(filepath.Join(dir, name)); err != nil {
			return 0, err
		}
	}
	whole := make(map[string][]byte) // the logs of producers and groups
	ends := make(map[string]int64)   // of segments
	for _, p := range pieces {
		if !strings.HasPrefix(p.path, "partitions") {
			whole[p.path] = append(whole[p.path][:p.at:p.at], p.data...)
			continue
		}
		ends[p.path] = p.at + int64(len(p.data))
		if err := writeAt(filepath.Join(dir, p.path), p.data, p.at); err != nil {
			return 0, err
		}
	}
	for name, data := range whole {
		if err := replaceFile(filepath.Join(dir, name), data); err != nil {
			return 0, err
		}
	}
	return generation, cutSegments(dir, ends)
}

// writeAt writes into a file, if it is still there: its name was on the disk
// before anything of it was in the log, so it was deleted otherwise.
func writeAt(path string, data []byte, at int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, at)
	return errors.Join(err, f.Close())
}

// cutSegments ends each segment where the log ends it, and removes those that
// were begun since.
func cutSegments(dir string, ends map[string]int64) error {
	partitions, err := os.ReadDir(filepath.Join(dir, "partitions"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, p := range partitions {
		segments, err := listSegments(filepath.Join(dir, "partitions", p.Name()))
		if err != nil {
			return err
		}
		logged := len(segments)
		for logged > 0 {
			if _, ok := ends[below(dir, segments[logged-1].path)]; ok {
				break
			}
			logged--
			if err := errors.Join(remove(segments[logged].path), remove(segments[logged].indexPath())); err != nil {
				return err
			}
		}
		for _, s := range segments[:logged] {
			end, ok := ends[below(dir, s.path)]
			if !ok {
				continue // ended before this generation began
			}
			info, err := os.Stat(s.path)
			if err != nil {
				return err
			}
			if info.Size() < end {
				return fmt.Errorf("%w: %s has %d bytes, of which %d were flushed; restore the file from a copy", ErrDamaged, s.path, info.Size(), end)
			}
			if err := os.Truncate(s.path, end); err != nil {
				return err
			}
		}
	}
	return nil
}

// dropFlushLogs removes the logs when the files need them no more, the older one
// first: alone, it would be taken for the newer.
func dropFlushLogs(dir string, generation uint64, sync func(*os.File) error) error {
	older := flushLogPath(dir, generation+1)
	if f, err := os.OpenFile(older, os.O_WRONLY|os.O_TRUNC, 0); err == nil {
		if err := errors.Join(sync(f), f.Close()); err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errors.Join(remove(flushLogPath(dir, generation)), remove(older))
}

func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
