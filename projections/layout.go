package projections

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/go-json-experiment/json"

	"github.com/waybill-dev/waybill/events"
)

// layout numbers the layout of the store's keys and values. Whoever changes it
// raises the number, and adds to [migrations] how a store of the layout before is
// brought to it. Whoever mends what an effect made of events raises it without a
// migration, so that they are folded again. New types of events do not raise it:
// which were folded stands in each partition's head.
const layout = 19

// migrations has for a layout how it becomes the next. A store of a layout that is
// not here is rebuilt from the journal.
var migrations = map[int]migration{
	// The head says what of the journal was folded. Until then there was one format,
	// and one vocabulary.
	3: {kindHead, func(b *pebble.Batch, key, value []byte) error {
		r := reader{b: value}
		h := r.headOfLayout3()
		if r.err != nil {
			return r.err
		}
		w := writer{bytes.Clone(value)}
		if h.Claim != "" {
			w.uint(1)
		} else {
			w.uint(0)
		}
		w.uint(0)
		return b.Set(key, w.b, nil)
	}},
	// The head has the input positions by their names.
	4: {kindHead, func(b *pebble.Batch, key, value []byte) error {
		r := reader{b: value}
		h := r.headOfLayout3()
		h.format, h.vocabulary = int(r.uint()), int(r.uint())
		if r.err != nil {
			return r.err
		}
		return b.Set(key, appendHead(nil, &h), nil)
	}},
	// Open alerts have an index.
	5: {kindOrder, func(b *pebble.Batch, key, value []byte) error {
		id := string(key[5:])
		r := reader{b: value}
		o := r.orderOfLayout6(id)
		if r.err != nil {
			return r.err
		}
		return indexOpen(b, kindAlert, int32(binary.BigEndian.Uint32(key)), id, time.Time{}, o.alertedAt())
	}},
	// The order's record has the digest of its submission, and counts.
	6: appended((*reader).orderOfLayout6, func(w *writer, _ *Order) {
		w.text("")
		w.truth(false)
		w.uint(0)
		w.uint(0)
		w.uint(0)
	}),
	// The order's record has the keys under which its steps may have run before.
	7: appended((*reader).orderOfLayout7, func(w *writer, o *Order) {
		w.truth(false)
		for i := range o.Steps {
			w.keys(&o.Steps[i])
		}
	}),
	// As 8 was of builds between two releases, [readMeta] takes none of those.
	8: {kindHead, func(b *pebble.Batch, key, value []byte) error { return b.Set(key, value, nil) }},
	// The order's record has which attempts had a token, and the commands whose author is
	// known.
	9: appended((*reader).orderOfLayout9, (*writer).proofs),
	// The order's record has which steps sleep, and which it went on without.
	10: appended((*reader).orderOfLayout10, (*writer).sleeps),
	// The order's record has what its steps wait for, signals, labels, what a step raised,
	// which attempts may have their complete-by moved, and which order it does again.
	11: appended((*reader).orderOfLayout11, func(w *writer, o *Order) {
		w.signals(o)
		w.labels(o)
		w.failure(o)
		w.extensions(o)
		w.text(o.RerunOf)
		w.approvals(o)
	}),
	// The order's record has what 13 adds: see [writer.since13].
	12: appended((*reader).orderOfLayout12, (*writer).since13),
	// The order's record has what 14 adds: see [writer.since14].
	13: appended((*reader).orderOfLayout13, (*writer).since14),
	// The order's record has what 15 adds: see [writer.since15].
	14: appended((*reader).orderOfLayout14, (*writer).since15),
	// The order's record has of which steps something was not undone that other orders did.
	15: appended((*reader).orderOfLayout15, (*writer).since16),
	// The order's record has the tracestate and the baggage of its submission, and which children left something.
	16: appended((*reader).orderOfLayout16, (*writer).since17),
	// Orders that wait for signals have an index, and that of open alerts says which are held.
	17: {kindOrder, func(b *pebble.Batch, key, value []byte) error {
		if bytes.HasPrefix(value, []byte(forgottenMark)) {
			return nil
		}
		id := string(key[5:])
		r := reader{b: value}
		o := r.orderOfLayout17(id)
		if r.err != nil {
			return r.err
		}
		partition := int32(binary.BigEndian.Uint32(key))
		if o.held() {
			if err := indexAlert(b, partition, id, new(Order), o); err != nil {
				return err
			}
		}
		return indexOpen(b, kindListens, partition, id, time.Time{}, o.listensAt())
	}},
	// The record of a schedule has the pauses before its last of which ticks may wait. Where there may have been some, only
	// the journal knows them.
	18: {kindOrder, func(b *pebble.Batch, key, value []byte) error {
		id := string(key[5:])
		if events.ScheduleOf(id) == "" {
			return nil
		}
		r := reader{b: value}
		o := r.orderOfLayout17(id)
		switch s := o.Schedule; {
		case r.err != nil:
			return r.err
		case s == nil:
			return nil
		case s.waitedIn(Pause{Until: hides(o)}):
			return fmt.Errorf("%w: ticks of schedule %s wait since before its last pause, and whether there was another is not in layout 18", errUnusable, events.ScheduleOf(id))
		}
		w := writer{bytes.Clone(value[:len(value)-len(r.b)])}
		w.since19(o)
		return b.Set(key, append(w.b, r.b...), nil)
	}},
}

// hides is up to when layout 18 may have forgotten a pause of a schedule: until its last began, or, while that goes on, until
// the one before it ended, which is known yet.
func hides(o *Order) time.Time {
	if o.Paused {
		return o.Schedule.Resumed
	}
	return o.Schedule.PausedAt
}

// A migration rewrites all keys of one kind.
type migration struct {
	kind byte
	// rewrite adds to b what takes the place of a key and its value. It is called
	// once for each key, in their order. What it writes under the same kind must not
	// lie behind the key, where it would be rewritten itself.
	rewrite func(b *pebble.Batch, key, value []byte) error
}

// appended has records of orders end with more, before their payloads: what write says of the
// order that read finds in them. Of what is forgotten there is nothing more to say.
func appended(read func(*reader, string) *Order, write func(*writer, *Order)) migration {
	return migration{kindOrder, func(b *pebble.Batch, key, value []byte) error {
		if bytes.HasPrefix(value, []byte(forgottenMark)) {
			return b.Set(key, value, nil)
		}
		r := reader{b: value}
		o := read(&r, "")
		if r.err != nil {
			return r.err
		}
		w := writer{bytes.Clone(value[:len(value)-len(r.b)])}
		write(&w, o)
		return b.Set(key, append(w.b, r.b...), nil)
	}}
}

// atOnce is how many keys are rewritten in one batch.
const atOnce = 1000

// meta says what the store is. It is the value of [metaKey].
type meta struct {
	Identity
	// Layout is called as in the stores of releases that compare the whole value, so
	// that they throw away one that they cannot read.
	Layout int `json:"format"`
	// From is set while the store is brought from that layout to Layout. Keys up to
	// After are done.
	From  int    `json:"from,omitzero"`
	After []byte `json:"after,omitzero"`
}

func (m *meta) write(b *pebble.Batch) error {
	value, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return b.Set(metaKey, value, nil)
}

// readMeta fails if this release cannot make a store of its layout out of it.
func readMeta(value []byte, id Identity) (*meta, error) {
	m := new(meta)
	if err := json.Unmarshal(value, m, json.RejectUnknownMembers(true)); err != nil {
		return nil, fmt.Errorf("%w: it says that it is %q", errUnusable, value)
	}
	oldest := layout
	for migrations[oldest-1].rewrite != nil {
		oldest--
	}
	switch {
	case m.Identity != id:
		return nil, fmt.Errorf("%w: it belongs to cluster %q, namespace %q, and not to %q, %q", errUnusable, m.Cluster, m.Namespace, id.Cluster, id.Namespace)
	case m.Layout > layout:
		return nil, fmt.Errorf("%w: a newer release made it in layout %d, and this one knows layout %d", errUnusable, m.Layout, layout)
	case m.Layout == 8 && m.From == 0:
		return nil, fmt.Errorf("%w: a build between two releases made it in layout 8", errUnusable)
	case m.Layout < oldest, m.From != 0 && m.From < oldest:
		return nil, fmt.Errorf("%w: it has layout %d, and this release knows %d to %d", errUnusable, m.Layout, oldest, layout)
	}
	return m, nil
}

// migrate brings a store to the given layout. Each batch says how far it came, so
// that it goes on from there after whatever ended it: nothing is done twice, and
// nothing is left out. A store that was left in the middle is of the layout to
// come, and an older release does not read it.
func migrate(db *pebble.DB, m *meta, to int, how map[int]migration, atOnce int, log *slog.Logger) error {
	for m.Layout < to || m.From != 0 {
		if m.From == 0 {
			m.From, m.Layout = m.Layout, m.Layout+1
		}
		began, from := time.Now(), m.From
		log.Info("the state store is brought to another layout", "from", from, "to", m.Layout)
		for m.From != 0 {
			if err := how[m.From].some(db, m, atOnce, pebbleLog{log}); err != nil {
				return err
			}
		}
		log.Info("the state store has another layout", "from", from, "to", m.Layout, "took", time.Since(began))
	}
	return nil
}

// some rewrites the keys that come next, at most so many.
func (mg migration) some(db *pebble.DB, m *meta, atOnce int, log pebbleLog) (err error) {
	it, err := db.NewIter(&pebble.IterOptions{UpperBound: metaKey})
	if err != nil {
		return damage(err)
	}
	defer func() {
		if closing := it.Close(); closing != nil && err == nil {
			err = damage(closing)
		}
	}()
	b := db.NewBatch()
	defer b.Close()

	n, ok := 0, it.SeekGE(append(bytes.Clone(m.After), 0)) // the key after it
	for ok && n < atOnce {
		key := it.Key()
		if len(key) < 5 {
			return fmt.Errorf("%w: key %x", errDamaged, key)
		}
		if key[4] != mg.kind {
			p := binary.BigEndian.Uint32(key)
			if key[4] > mg.kind {
				p++
			}
			ok = it.SeekGE(prefix(int32(p), mg.kind))
			continue
		}
		if err := mg.rewrite(b, key, it.Value()); err != nil {
			return fmt.Errorf("bring key %x to layout %d: %w", key, m.Layout, err)
		}
		m.After = bytes.Clone(key)
		n++
		ok = it.Next()
	}
	if err := it.Error(); err != nil {
		return damage(err)
	}
	sync := pebble.NoSync
	if !ok {
		m.From, m.After, sync = 0, nil, pebble.Sync
	}
	if err := m.write(b); err != nil {
		return err
	}
	return log.commit(b, sync)
}
