package broker

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// recoverDir prepares a data directory that a killed process may have left
// behind, before kfake loads it. kfake recovers each partition on its own and
// in memory only, which loses the atomicity of transactions in three ways:
//
//   - The commit marker of a transaction is written partition by partition. If
//     the process dies in between, the rest of the transaction is dropped.
//   - A transaction that was dropped on load has no marker on disk. When the
//     same producer commits its next one, that marker also covers the dropped
//     records, and the load after the next kill shows them as committed.
//   - An index entry that is missing reads as "in no transaction", so that the
//     records of an open transaction are visible at once.
//
// So every transaction that is open on disk is ended on disk: committed if a
// partition already has its commit marker, aborted if none has. A client
// that was not answered learns the outcome as on any other broker.
func recoverDir(dir string, log *slog.Logger) error {
	producers, err := loadProducers(filepath.Join(dir, "pids.log"), log)
	if err != nil {
		return err
	}
	if _, err := recoverLog(filepath.Join(dir, "groups.log"), log); err != nil {
		return err
	}
	partitions, err := recoverPartitions(filepath.Join(dir, "partitions"), log)
	if err != nil {
		return err
	}

	// kfake leaves this file when it was stopped, not killed, if there was
	// anything to carry over. Transactions that are open then go on.
	if _, err := os.Stat(filepath.Join(dir, "session_state.json")); err == nil {
		return nil
	}
	return endTransactions(filepath.Join(dir, "pids.log"), producers, partitions, log)
}

// txn names a transaction: a producer's epoch grows with each (KIP-890).
type txn struct {
	producer int64
	epoch    int16
}

// partition is what recovery needs to know about one partition's log.
type partition struct {
	dir        string
	active     segment       // where the next batch goes
	next       int64         // its offset
	epoch      int32         // of the last batch's leader
	open       map[int64]txn // by producer: data without a marker
	lastCommit map[int64]txn // by producer: its last marker, if that was a commit
}

func recoverPartitions(dir string, log *slog.Logger) ([]*partition, error) {
	dirs, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var partitions []*partition
	for _, d := range dirs {
		p, err := recoverPartition(filepath.Join(dir, d.Name()), log)
		if err != nil {
			return nil, err
		}
		partitions = append(partitions, p)
	}
	return partitions, nil
}

func recoverPartition(dir string, log *slog.Logger) (*partition, error) {
	segments, err := listSegments(dir)
	if err != nil {
		return nil, err
	}
	p := &partition{dir: dir, open: make(map[int64]txn), lastCommit: make(map[int64]txn)}
	for i, s := range segments {
		p.active = s
		if err := s.recover(i == len(segments)-1, log, p.observe); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// observe follows the transactions of the partition through its batches.
func (p *partition) observe(b *storedBatch) {
	p.next, p.epoch = b.nextOffset(), b.PartitionLeaderEpoch
	t := txn{b.ProducerID, b.ProducerEpoch}
	switch {
	case b.Attributes&control != 0:
		delete(p.open, t.producer)
		delete(p.lastCommit, t.producer)
		if isCommit(&b.RecordBatch) {
			p.lastCommit[t.producer] = t
		}
	case b.inTxn:
		p.open[t.producer] = t
	}
}

func isCommit(b *kmsg.RecordBatch) bool {
	var rec kmsg.Record
	var key kmsg.ControlRecordKey
	return rec.ReadFrom(b.Records) == nil && key.ReadFrom(rec.Key) == nil && key.Type == kmsg.ControlRecordKeyTypeCommit
}

// endTransactions writes the missing markers. It may itself be killed at any
// point and then finds the same transactions, with the same outcome, again.
func endTransactions(producerLog string, producers map[int64]*producer, partitions []*partition, log *slog.Logger) error {
	committed := make(map[txn]bool)
	for _, p := range partitions {
		for _, t := range p.lastCommit {
			// A client of before KIP-890 uses one epoch for many
			// transactions. If one of them has ended everywhere, a
			// marker says nothing about the next.
			if known := producers[t.producer]; known == nil || !known.ended[t.epoch] {
				committed[t] = true
			}
		}
	}

	fenced := make(map[txn]bool)
	for _, p := range partitions {
		for _, t := range p.open {
			commit := committed[t]
			if !fenced[t] {
				log.Warn("broker ends a transaction that was open when it was killed",
					"transactional_id", transactionalID(producers, t), "commit", commit)
				if err := fence(producerLog, producers, t, commit); err != nil {
					return err
				}
				fenced[t] = true
			}
			if err := p.active.append(p.marker(t, commit)); err != nil {
				return fmt.Errorf("end a transaction in %s: %w", p.dir, err)
			}
			p.next++
		}
	}
	return nil
}

// fence takes a transaction's epoch away from its client, which may still be
// running and must not add records to a transaction that has ended. It comes
// before the markers: a second recovery would not see the need any more.
func fence(producerLog string, producers map[int64]*producer, t txn, commit bool) error {
	p := producers[t.producer]
	if p == nil {
		return nil // a producer that the broker has forgotten is refused anyway
	}
	p.epoch = max(p.epoch, t.epoch+1)
	return appendProducer(producerLog, producerEntry{
		Type: "init", ID: t.producer, Epoch: p.epoch, TxnID: p.txnID, Timeout: p.timeout, Commit: &commit,
	})
}

func transactionalID(producers map[int64]*producer, t txn) string {
	if p := producers[t.producer]; p != nil {
		return p.txnID
	}
	return ""
}

// marker builds the control batch that ends a transaction in this partition.
func (p *partition) marker(t txn, commit bool) *storedBatch {
	key := kmsg.ControlRecordKey{Type: kmsg.ControlRecordKeyTypeAbort}
	if commit {
		key.Type = kmsg.ControlRecordKeyTypeCommit
	}
	var value kmsg.EndTxnMarker
	rec := kmsg.Record{Key: key.AppendTo(nil), Value: value.AppendTo(nil)}
	rec.Length = int32(len(rec.AppendTo(nil)) - 1) // the length itself takes one byte
	now := time.Now().UnixMilli()
	b := &storedBatch{RecordBatch: kmsg.RecordBatch{
		FirstOffset:          p.next,
		PartitionLeaderEpoch: p.epoch,
		Magic:                2,
		Attributes:           transactional | control,
		FirstTimestamp:       now,
		MaxTimestamp:         now,
		ProducerID:           t.producer,
		ProducerEpoch:        t.epoch,
		FirstSequence:        -1,
		NumRecords:           1,
		Records:              rec.AppendTo(nil),
	}}
	raw := b.AppendTo(nil)
	b.Length = int32(len(raw) - batchPrefix)
	raw = b.AppendTo(nil)
	b.CRC = int32(crc32.Checksum(raw[21:], castagnoli))
	return b
}
