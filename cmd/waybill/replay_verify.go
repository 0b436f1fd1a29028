package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/words"
	"github.com/waybill-dev/waybill/projections"
)

// difference is one key that is not the same in the instance and the replay.
type difference struct {
	Partition int32  `json:"partition"`
	Kind      string `json:"kind"`
	Of        string `json:"of"`
	What      string `json:"difference"`
	Key       string `json:"key"` // in hexadecimal
}

// shown is how many differences are listed; the rest is only counted.
const shown = 1000

// verify compares every partition with that of a running instance.
func (r *replay) verify(ctx context.Context, partitions int32, server *serverFlags, result *replayResult) error {
	return server.talk(func(client *api.Client) error {
		for p := range partitions {
			if err := r.verifyPartition(ctx, client, p, partitions, result); err != nil {
				return err
			}
		}
		return nil
	})
}

func (r *replay) verifyPartition(ctx context.Context, client *api.Client, p, partitions int32, result *replayResult) error {
	f, err := r.fold(ctx, p)
	if err != nil {
		return err
	}
	defer f.close()
	// First fold what takes long, so that the instance need not keep its
	// snapshot for the time, then the little that was added meanwhile.
	heads, err := client.Partitions(ctx)
	if err != nil {
		return err
	}
	if len(heads) != int(partitions) {
		return fmt.Errorf("the instance has %d partitions and the journal %d; do --server and --brokers --namespace belong together?", len(heads), partitions)
	}
	if err := f.to(ctx, heads[p].Offset); err != nil {
		return err
	}
	var next func() (entry, error, bool)
	stop := func() {}
	defer func() { stop() }()
	theirs := func(head api.Partition) error {
		if err := f.to(ctx, head.Offset); err != nil {
			return err
		}
		next, stop = iter.Pull2(r.dump(p))
		return nil
	}
	found := func(key []byte, what string) {
		if result.Differences++; result.Differences <= shown {
			result.Differing = append(result.Differing, describe(p, key, what))
		}
	}
	var ours entry
	have := false
	// advance reads our next key.
	advance := func() (err error) {
		if ours, err, have = next(); have && err == nil {
			result.Orders += ordersIn(ours.key)
		}
		return err
	}
	first := true
	err = client.Projection(ctx, p, theirs, func(e api.Entry) error {
		key, err := hex.DecodeString(e.Key)
		if err != nil {
			return fmt.Errorf("read the projection of partition %d: key %q: %w", p, e.Key, err)
		}
		if first {
			first = false
			if err := advance(); err != nil {
				return err
			}
		}
		for have && bytes.Compare(ours.key, key) < 0 {
			found(ours.key, "missing in the instance")
			if err := advance(); err != nil {
				return err
			}
		}
		if !have || !bytes.Equal(ours.key, key) {
			found(key, "only in the instance")
			return nil
		}
		if !bytes.Equal(ours.value, e.Value) {
			found(key, "another value")
		}
		return advance()
	})
	if err != nil {
		return err
	}
	if first {
		err = advance()
	}
	for ; have && err == nil; err = advance() {
		found(ours.key, "missing in the instance")
	}
	result.Events += f.events
	return err
}

// entry is a key of the rebuilt store.
type entry struct{ key, value []byte }

// dump goes through the keys of a rebuilt partition.
func (r *replay) dump(p int32) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		enough := errors.New("enough")
		err := r.store.Dump(p, func(projections.Head) error { return nil }, func(key, value []byte) error {
			if !yield(entry{bytes.Clone(key), bytes.Clone(value)}, nil) {
				return enough
			}
			return nil
		})
		if err != nil && !errors.Is(err, enough) {
			yield(entry{}, err)
		}
	}
}

// A key is the partition in four bytes, a letter for its kind, and what it is of.
const keyKind = 4

var keyKinds = map[byte]string{'h': "head", 'o': "order", 'v': "payload", 'd': "deadline", 'l': "listing", 'a': "alert", 'w': "wait for a signal", 'c': "status message that waits", 's': "silent agent"}

func ordersIn(key []byte) int64 {
	if len(key) > keyKind && key[keyKind] == 'o' {
		return 1
	}
	return 0
}

func describe(p int32, key []byte, what string) difference {
	d := difference{Partition: p, Kind: "unknown", What: what, Key: hex.EncodeToString(key)}
	if len(key) > keyKind {
		if kind, ok := keyKinds[key[keyKind]]; ok {
			d.Kind = kind
		}
		d.Of = words.Clean(string(bytes.ToValidUTF8(key[keyKind+1:], []byte("?"))))
	}
	return d
}
