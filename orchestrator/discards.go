package orchestrator

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/cluster"
	"github.com/waybill-dev/waybill/orchestrator/decide"
	"github.com/waybill-dev/waybill/orchestrator/lane"
)

// HeaderDiscards is on a record among the dead letters that is none, but a mark: it says which one, by its offset in the same
// partition, is not to be listed any more.
const HeaderDiscards = "waybill_discards"

// Mark is what such a record says.
type Mark struct {
	By   string    `json:"by,omitzero"`
	Note string    `json:"note,omitzero"`
	At   time.Time `json:"at"`
}

// discards are the marks that this instance has read, which are all of a part of each partition: a mark stands behind what it is
// about, so who lists what is before some offset must have read all behind that. They take some 40 bytes for each letter that was
// discarded and is still on the topic.
type discards struct {
	mu sync.Mutex
	of map[int32]*marks
}

// marks are those of a partition that stand from an offset to before another.
type marks struct {
	from, to int64
	start    int64           // where the partition began when that was looked up last
	letters  map[int64]int64 // that were discarded, and where the first mark of each is
}

// marked is the offset that a record discards, and false if it is a letter. Letters keep headers of those who sent
// them, and have a reason behind these.
func marked(r *kgo.Record) (offset int64, is bool) {
	text := events.Header(r, HeaderDiscards)
	if text == "" || events.Header(r, lane.HeaderReason) != "" {
		return 0, false
	}
	offset, err := strconv.ParseInt(text, 10, 64)
	if err != nil || offset >= r.Offset {
		offset = -1 // it is a mark that marks nothing
	}
	return offset, true
}

// note takes a mark, which is at an offset.
func (d *discards) note(partition int32, letter, at int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.at(partition)
	if first, before := m.letters[letter]; letter >= m.start && (!before || at < first) {
		m.letters[letter] = at
	}
}

// mark is where the mark of a letter is, and whether it has one, as far as marks were read.
func (d *discards) mark(partition int32, letter int64) (at int64, discarded bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at, discarded = d.at(partition).letters[letter]
	return at, discarded
}

// trim forgets the marks of letters that are not on the topic any more.
func (d *discards) trim(starts LetterPlace) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for p, start := range starts {
		if m := d.at(p); start > m.start {
			m.start = start
			maps.DeleteFunc(m.letters, func(letter, _ int64) bool { return letter < start })
		}
	}
}

// at is what is known of a partition. d.mu is held.
func (d *discards) at(partition int32) *marks {
	if d.of == nil {
		d.of = make(map[int32]*marks)
	}
	if d.of[partition] == nil {
		d.of[partition] = &marks{from: -1, to: -1, letters: make(map[int64]int64)}
	}
	return d.of[partition]
}

// read says that all marks between two offsets were noted.
func (d *discards) read(partition int32, from, to int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.at(partition)
	if m.from < 0 || to < m.from || from > m.to { // it is apart from what was read before
		m.from, m.to = from, to
		return
	}
	m.from, m.to = min(m.from, from), max(m.to, to)
}

// missing is a part, at most so large, of what is still to be read of the marks between two offsets, so that it goes on from
// what was read; an empty one if nothing is.
func (d *discards) missing(partition int32, from, to int64, most int) (int64, int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.at(partition)
	switch {
	case m.from < 0 || from > m.to || to < m.from:
		return from, min(from+int64(most), to)
	case from < m.from:
		return max(m.from-int64(most), from), m.from
	case to > m.to:
		return m.to, min(m.to+int64(most), to)
	}
	return to, to
}

// known reads the marks behind where a page begins, and reports false if that takes more than a page may: the next goes on
// with it.
func (s *letterSearch) known(ctx context.Context, p int32, before, end int64) (bool, error) {
	for {
		from, to := s.discards.missing(p, before, end, s.widest)
		if from == to {
			return true, nil
		}
		if s.spent() {
			return false, nil
		}
		if err := s.reader.read(ctx, p, from, to, func(r *kgo.Record) {
			s.bytes += events.Size(r)
			if letter, is := marked(r); is {
				s.discards.note(p, letter, r.Offset)
			}
		}); err != nil {
			return false, err
		}
		s.records += int(to - from)
		s.discards.read(p, from, to)
	}
}

// Discarded is the mark of a dead letter, nil if it has none. It reports false where more is to be read for that than may be at
// a time: asked again it goes on.
func (i *Instance) Discarded(ctx context.Context, p int32, offset int64) (m *Mark, known bool, err error) {
	reader, err := i.readLetters(ctx)
	if err != nil {
		return nil, false, err
	}
	defer reader.end()
	starts, ends, err := i.letterOffsets(ctx)
	if err != nil {
		return nil, false, err
	}
	i.discards.trim(starts)
	s := &letterSearch{reader: reader, discards: &i.discards, bounds: i.letterBounds, began: time.Now(), widest: widestWindow}
	known, err = s.known(ctx, p, min(offset+1, ends[p]), ends[p])
	if err != nil {
		return nil, false, err
	}
	at, discarded := i.discards.mark(p, offset)
	if !discarded {
		return nil, known, nil
	}
	err = reader.read(ctx, p, at, at+1, func(r *kgo.Record) {
		m = new(Mark)
		if err := json.Unmarshal(r.Value, m); err != nil { // somebody else wrote it
			*m = Mark{At: r.Timestamp}
		}
		m.By, m.Note = decide.Cut(m.By, maxLetterText), decide.Cut(m.Note, maxLetterText)
	})
	return m, err == nil, err
}

// Discard has a dead letter not be listed any more, by any instance that knows such marks. It can be read, and put back, all the
// same. Doing it again changes nothing; where it is not known that it was done, another mark is written, which says nothing. It fails with [ErrNoLetter]; with the context's error alone it may be done.
func (i *Instance) Discard(ctx context.Context, p int32, offset int64, by, note string) error {
	letter, err := i.DeadLetter(ctx, p, offset)
	if err != nil {
		return err
	}
	if before, _, err := i.Discarded(ctx, p, offset); err != nil || before != nil {
		return err
	}
	value, err := json.Marshal(&Mark{by, note, now().UTC().Truncate(time.Millisecond)})
	if err != nil {
		return fmt.Errorf("encode a mark: %w", err)
	}
	// The instance's own client puts what is on this topic where its key says.
	client, err := kgo.NewClient(append(i.kafka[:len(i.kafka):len(i.kafka)],
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0), kgo.UnknownTopicRetries(1), kgo.AllowIdempotentProduceCancellation(), kgo.MetadataMinAge(cluster.MetadataMinAge))...)
	if err != nil {
		return fmt.Errorf("connect to Kafka: %w", err)
	}
	defer client.Close()
	if err := client.ProduceSync(ctx, &kgo.Record{
		Topic: letter.Topic, Partition: p, Value: value,
		Headers: []kgo.RecordHeader{{Key: HeaderDiscards, Value: strconv.AppendInt(nil, offset, 10)}},
	}).FirstErr(); err != nil {
		return fmt.Errorf("mark dead letter %d/%d on %s: %w", p, offset, letter.Topic, err)
	}
	return nil
}
