package broker

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"os"
)

// kfake keeps consumer groups and producers in logs of entries: length and
// checksum of what follows, a version, and JSON.
const (
	entryHeader  = 8 // length and checksum
	entryVersion = 1
)

// producerEntry is an entry of the log of producers, pids.log.
type producerEntry struct {
	Type    string `json:"type"` // "init", "endtx" or "timeout"
	ID      int64  `json:"pid"`
	Epoch   int16  `json:"epoch"`
	TxnID   string `json:"txid,omitempty"`
	Timeout int32  `json:"timeout,omitempty"`
	Commit  *bool  `json:"commit,omitempty"`
}

// producer is what the log says about one producer id.
type producer struct {
	txnID   string
	timeout int32
	epoch   int16
	ended   map[int16]bool // epochs of which a transaction is known to have ended everywhere
}

// loadProducers reads the log of producers. Epochs in ended are those that the
// log still has; it forgets them when it is compacted.
func loadProducers(path string, log *slog.Logger) (map[int64]*producer, error) {
	entries, err := recoverLog(path, log)
	if err != nil {
		return nil, err
	}
	producers := make(map[int64]*producer)
	for _, data := range entries {
		var e producerEntry
		if err := json.Unmarshal(data, &e); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrDamaged, path, err)
		}
		p := producers[e.ID]
		if p == nil {
			p = &producer{ended: make(map[int16]bool)}
			producers[e.ID] = p
		}
		p.epoch = e.Epoch
		switch e.Type {
		case "init":
			p.txnID, p.timeout = e.TxnID, e.Timeout
		case "endtx":
			p.ended[e.Epoch] = true
		}
	}
	return producers, nil
}

// appendProducer adds an entry to the log of producers.
func appendProducer(path string, e producerEntry) error {
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	body := append(binary.LittleEndian.AppendUint16(nil, entryVersion), data...)
	entry := binary.LittleEndian.AppendUint32(nil, uint32(len(body)))
	entry = binary.LittleEndian.AppendUint32(entry, crc32.Checksum(body, castagnoli))
	return appendFile(path, append(entry, body...))
}

// recoverLog returns the entries of a log and cuts off a half written one at
// its end. kfake only skips such an end; it would then append behind it, and
// never find again what it appended.
func recoverLog(path string, log *slog.Logger) ([][]byte, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var entries [][]byte
	pos := 0
	for pos+entryHeader <= len(data) {
		size := int64(binary.LittleEndian.Uint32(data[pos:]))
		sum := binary.LittleEndian.Uint32(data[pos+4:])
		rest := data[pos+entryHeader:]
		if size < 2 || size > int64(len(rest)) || crc32.Checksum(rest[:size], castagnoli) != sum {
			break
		}
		entries = append(entries, rest[2:size])
		pos += entryHeader + int(size)
	}
	if pos < len(data) {
		log.Warn("broker drops the unreadable end of a state file", "file", path, "size", len(data), "kept", pos)
		return entries, replaceFile(path, data[:pos])
	}
	return entries, nil
}
