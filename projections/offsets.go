package projections

import "encoding/binary"

// The offsets at which an order's events stand in the journal are kept in its
// record, each as its distance to the one before.

func appendOffset(offsets []byte, last, offset int64) []byte {
	return binary.AppendUvarint(offsets, uint64(offset-last))
}

func journalOffsets(offsets []byte) []int64 {
	var all []int64
	var last int64
	for r := (reader{b: offsets}); len(r.b) > 0 && r.err == nil; {
		last += int64(r.uint())
		all = append(all, last)
	}
	return all
}

func lastOffset(offsets []byte) int64 {
	all := journalOffsets(offsets)
	if len(all) == 0 {
		return 0
	}
	return all[len(all)-1]
}
