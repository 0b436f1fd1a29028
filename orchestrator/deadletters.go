package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/events/fetch"
	"github.com/waybill-dev/waybill/orchestrator/cluster"
	"github.com/waybill-dev/waybill/orchestrator/decide"
	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/projections"
)

// DeadLetter is an input that was put aside, as a listing has it: without its headers and its value.
type DeadLetter struct {
	Partition int32
	Offset    int64
	// At is when it was put aside, or, in what a release before has put aside, when the input was written.
	// Written is always the latter.
	At, Written time.Time
	// Source is topic/partition/offset where it was, and Topic the first of these; empty where the
	// record does not say so.
	Source, Topic string
	Reason        string
	// Key is the input's, cut to [MaxLetterKey] bytes, nil for none. It has KeySize.
	Key                []byte
	KeySize, ValueSize int
}

const (
	// MaxLetterKey is how much of a key a listing has: no id of an order is longer.
	MaxLetterKey = 256
	// maxLetterText is how much of a reason, or a source, a listing has. What Waybill writes is shorter.
	maxLetterText = 8 << 10
)

// LetterOf is a dead letter as a listing has it.
func LetterOf(r *kgo.Record) DeadLetter {
	source := decide.Cut(events.Header(r, lane.HeaderSource), maxLetterText)
	topic, _, _ := strings.Cut(source, "/")
	return DeadLetter{
		Partition: r.Partition, Offset: r.Offset, At: cmp.Or(lane.PutAside(r), r.Timestamp), Written: r.Timestamp, Source: source, Topic: topic,
		Reason: decide.Cut(events.Header(r, lane.HeaderReason), maxLetterText),
		// Not a part of the record, which may be large, and is not kept for it.
		Key: slices.Clone(r.Key[:min(len(r.Key), MaxLetterKey)]), KeySize: len(r.Key), ValueSize: len(r.Value),
	}
}

// LetterFilter selects dead letters; what is empty selects all.
type LetterFilter struct {
	// Since leaves out those that were put aside before.
	Since time.Time
	// Topic is that of the input, Key its key, and Reason a part of the reason.
	Topic, Key, Reason string
}

func (f *LetterFilter) selects(d *DeadLetter) bool {
	return !d.At.Before(f.Since) && (f.Topic == "" || f.Topic == d.Topic) &&
		(f.Key == "" || f.Key == string(d.Key) && d.KeySize == len(d.Key)) && strings.Contains(d.Reason, f.Reason)
}

// LetterPlace is up to where each partition of the dead letters was listed: what is at the offset, and
// behind it, was. Partitions that it does not name were listed to their beginning.
type LetterPlace map[int32]int64

// LetterPage is a part of the dead letters.
type LetterPage struct {
	Letters []DeadLetter
	// Next is where the next page begins, nil on the last.
	Next LetterPlace
}

// letterBounds are what one page may take, roughly. It goes on until it has got somewhere.
type letterBounds struct {
	records int
	bytes   int
	time    time.Duration
}

// The bounds of pages: a topic with a million dead letters takes many of these. So many are read at a
// time, whatever others ask for.
var ownLetterBounds = letterBounds{records: 20_000, bytes: 64 << 20, time: 5 * time.Second}

const maxLetterReaders = 2

// A window is what is read of a partition at a time. The first has few records, since these may be large;
// the next has more if they were small.
const (
	firstWindow  = 4
	widestWindow = 256
	smallWindow  = 256 << 10
	// windowRecords is how many all partitions have in memory, together.
	windowRecords = 4096
)

// DeadLetters lists inputs that were put aside, the one first for which that was done last: at most limit
// of them behind a place, and fewer where it takes long to find them.
func (i *Instance) DeadLetters(ctx context.Context, filter *LetterFilter, after LetterPlace, limit int) (LetterPage, error) {
	reader, err := i.readLetters(ctx)
	if err != nil {
		return LetterPage{}, err
	}
	defer reader.end()
	starts, ends, err := i.letterOffsets(ctx)
	if err != nil {
		return LetterPage{}, err
	}
	written, err := i.lettersWritten(ctx, filter.Since)
	if err != nil {
		return LetterPage{}, err
	}
	i.discards.trim(starts)
	s := &letterSearch{reader: reader, filter: filter, discards: &i.discards, bounds: i.letterBounds, began: time.Now()}
	for p, end := range ends {
		if after != nil {
			end = min(end, after[p])
		}
		if end > starts[p] {
			s.tails = append(s.tails, &letterTail{partition: p, start: starts[p], written: written[p], before: end, window: firstWindow})
		}
	}
	slices.SortFunc(s.tails, func(a, b *letterTail) int { return cmp.Compare(a.partition, b.partition) })
	s.widest = min(max(windowRecords/max(len(s.tails), 1), firstWindow), widestWindow)
	for _, t := range s.tails {
		if known, err := s.known(ctx, t.partition, t.before, ends[t.partition]); err != nil {
			return LetterPage{}, err
		} else if !known {
			return LetterPage{Letters: []DeadLetter{}, Next: s.place()}, nil
		}
	}
	return s.page(ctx, limit)
}

// letterOffsets are where the partitions of the dead letters begin, and where they end.
func (i *Instance) letterOffsets(ctx context.Context) (starts, ends LetterPlace, err error) {
	topic := i.topics.DeadLetters
	first, err := i.admin.ListStartOffsets(ctx, topic)
	if err != nil {
		return nil, nil, fmt.Errorf("find where %s begins: %w", topic, err)
	}
	last, err := i.admin.ListCommittedOffsets(ctx, topic)
	if err := cmp.Or(err, first.Error(), last.Error()); err != nil {
		return nil, nil, fmt.Errorf("find where %s begins and ends: %w", topic, err)
	}
	return letterPlace(first), letterPlace(last), nil
}

// lettersWritten are up to where the partitions have nothing of inputs that were written since then;
// none for no time.
func (i *Instance) lettersWritten(ctx context.Context, since time.Time) (LetterPlace, error) {
	if since.IsZero() {
		return nil, nil //nolint:nilnil // none are
	}
	topic := i.topics.DeadLetters
	listed, err := i.admin.ListOffsetsAfterMilli(ctx, since.UnixMilli(), topic)
	if err := cmp.Or(err, listed.Error()); err != nil {
		return nil, fmt.Errorf("find what was written to %s since %s: %w", topic, since, err)
	}
	return letterPlace(listed), nil
}

func letterPlace(listed kadm.ListedOffsets) LetterPlace {
	all := make(LetterPlace)
	listed.Each(func(o kadm.ListedOffset) { all[o.Partition] = o.Offset })
	return all
}

// letterSearch looks for a page of dead letters.
type letterSearch struct {
	reader   *letterReader
	filter   *LetterFilter
	discards *discards
	bounds   letterBounds
	began    time.Time
	tails    []*letterTail // the partitions of which something may be left
	widest   int
	records  int
	bytes    int
	moved    bool // it has got somewhere: else the next page would be this one again
}

// letterTail is what is left of a partition: from start to before the offset. Found are those that were
// read behind that and selected, the newest last. Before the offset written nothing is of an input that
// was written since the time that is asked for.
type letterTail struct {
	partition     int32
	start, before int64
	written       int64
	window        int
	found         []DeadLetter
}

// letterSlack is by how much what was put aside may say that it was before what stands in front of it:
// the partition had several owners, each with a clock of its own.
const letterSlack = 10 * time.Minute

// older says that a letter that is read from an offset on, and all in front of it, are from before since.
// Of one that does not say when it was put aside, a release before has done that, as with all in front of it.
func (t *letterTail) older(letter *kgo.Record, from int64, since time.Time) bool {
	if aside := lane.PutAside(letter); !aside.IsZero() {
		return aside.Before(since.Add(-letterSlack))
	}
	return from <= t.written
}

// page reads until it knows which letter is the newest of all partitions, for as many as are wanted.
func (s *letterSearch) page(ctx context.Context, limit int) (LetterPage, error) {
	page := LetterPage{Letters: []DeadLetter{}}
	for len(page.Letters) < limit {
		done, err := s.fill(ctx)
		if err != nil {
			return LetterPage{}, err
		}
		newest := s.newest()
		if !done || newest == nil {
			break
		}
		last := len(newest.found) - 1
		page.Letters = append(page.Letters, newest.found[last])
		newest.found, s.moved = newest.found[:last], true
	}
	page.Next = s.place()
	return page, nil
}

// fill reads of each partition until it has found something, or nothing is left. It reports false if
// that takes more than a page may.
func (s *letterSearch) fill(ctx context.Context) (done bool, err error) {
	for _, t := range s.tails {
		for len(t.found) == 0 && t.before > t.start {
			if s.moved && s.spent() {
				return false, nil
			}
			if err := s.read(ctx, t); err != nil {
				return false, err
			}
		}
	}
	return true, nil
}

func (s *letterSearch) spent() bool {
	return s.records >= s.bounds.records || s.bytes >= s.bounds.bytes || time.Since(s.began) >= s.bounds.time
}

// read reads the next window of a partition.
func (s *letterSearch) read(ctx context.Context, t *letterTail) error {
	from := max(t.start, t.before-int64(t.window))
	bytes, letters, old := 0, 0, 0
	if err := s.reader.read(ctx, t.partition, from, t.before, func(r *kgo.Record) {
		bytes += events.Size(r)
		letters++
		if t.older(r, from, s.filter.Since) {
			old++
		}
		if letter, is := marked(r); is {
			s.discards.note(t.partition, letter, r.Offset)
		} else if d := LetterOf(r); s.filter.selects(&d) {
			t.found = append(t.found, d)
		}
	}); err != nil {
		return err
	}
	s.discards.read(t.partition, from, t.before)
	t.found = slices.DeleteFunc(t.found, func(d DeadLetter) bool {
		_, discarded := s.discards.mark(t.partition, d.Offset)
		return discarded
	})
	s.records += int(t.before - from)
	s.bytes += bytes
	s.moved = s.moved || len(t.found) == 0
	if letters > 0 && old == letters {
		t.start = from // there is no need to read on
	}
	if t.before = from; bytes < smallWindow {
		t.window = min(8*t.window, s.widest)
	} else {
		t.window = firstWindow
	}
	return nil
}

// newest is the partition that has found the letter that was put aside last, nil if none has any.
func (s *letterSearch) newest() (newest *letterTail) {
	for _, t := range s.tails {
		if len(t.found) > 0 && (newest == nil || t.found[len(t.found)-1].At.After(newest.found[len(newest.found)-1].At)) {
			newest = t
		}
	}
	return newest
}

// place is where the next page begins: what was found and is on no page is looked for again.
func (s *letterSearch) place() LetterPlace {
	var place LetterPlace
	for _, t := range s.tails {
		before := t.before
		if n := len(t.found); n > 0 {
			before = t.found[n-1].Offset + 1
		}
		if before > t.start {
			if place == nil {
				place = make(LetterPlace)
			}
			place[t.partition] = before
		}
	}
	return place
}

// letterReader reads the dead letters for one request.
type letterReader struct {
	instance *Instance
	client   *kgo.Client
	fetched  fetch.Bound
}

// readLetters waits for a place, and returns a reader that reads nothing yet. Who has it calls end.
func (i *Instance) readLetters(ctx context.Context) (_ *letterReader, err error) {
	select {
	case i.letterReaders <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for a reader of the dead letters: %w", ctx.Err())
	}
	r := &letterReader{instance: i}
	if r.client, err = r.fetched.NewClient(append(i.kafka[:len(i.kafka):len(i.kafka)],
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), // a window may end with one
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.MetadataMinAge(cluster.MetadataMinAge),
		kgo.FetchMaxPartitionBytes(smallWindow), // what is behind a window is read for nothing
	)...); err != nil {
		<-i.letterReaders
		return nil, fmt.Errorf("reader of the dead letters: %w", err)
	}
	return r, nil
}

func (r *letterReader) end() {
	r.client.Close()
	<-r.instance.letterReaders
}

// read gives each committed letter of a partition from an offset to before another, which must be there.
// A batch that cannot be read has none.
func (r *letterReader) read(ctx context.Context, p int32, from, to int64, each func(*kgo.Record)) error {
	topic := r.instance.topics.DeadLetters
	begin := func(at int64) {
		r.client.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: {p: kgo.NewOffset().At(at)}})
	}
	end := func() { r.client.RemoveConsumePartitions(map[string][]int32{topic: {p}}) }
	begin(from)
	defer end()
	for at := from; at < to; {
		wait, cancel := context.WithTimeout(ctx, r.instance.letterSilence)
		fetches := r.fetched.Poll(wait, 0)
		over := wait.Err() != nil
		cancel()
		for it := fetches.RecordIter(); !it.Done(); {
			record := it.Next()
			if at = record.Offset + 1; record.Offset < to && !record.Attrs.IsControl() {
				each(record)
			}
		}
		unread := new(kgo.ErrDecompressTooLarge)
		switch err := fetches.Err(); {
		case errors.As(err, &unread):
			at = max(at, unread.NextOffset)
			end() // there kgo stops
			begin(at)
		case over && fetches.NumRecords() == 0:
			return cmp.Or(ctx.Err(), fmt.Errorf("partition %d of %s: nothing was heard from it for %s", p, topic, r.instance.letterSilence))
		case err != nil && !over:
			return fmt.Errorf("read partition %d of %s: %w", p, topic, err)
		}
	}
	return nil
}

// ErrNoLetter says that there is no such dead letter.
var ErrNoLetter = errors.New("there is no dead letter")

// DeadLetter returns the whole record of a dead letter. It fails with [ErrNoLetter].
func (i *Instance) DeadLetter(ctx context.Context, p int32, offset int64) (letter *kgo.Record, err error) {
	starts, ends, err := i.letterOffsets(ctx)
	if err != nil {
		return nil, err
	}
	none := fmt.Errorf("%w %d/%d", ErrNoLetter, p, offset)
	if end, there := ends[p]; !there || offset < starts[p] || offset >= end {
		return nil, none
	}
	reader, err := i.readLetters(ctx)
	if err != nil {
		return nil, err
	}
	defer reader.end()
	if err := reader.read(ctx, p, offset, offset+1, func(r *kgo.Record) { letter = r }); err != nil {
		return nil, err
	}
	if letter == nil { // a marker of a transaction, or what was aborted
		return nil, none
	}
	if _, is := marked(letter); is {
		return nil, none
	}
	return letter, nil
}

// HeaderReplayed is on an input that was a dead letter: topic/partition/offset where that is.
const HeaderReplayed = "waybill_replayed_from"

// Replay is how a dead letter is put back.
type Replay struct {
	Partition int32
	Offset    int64
	// Value replaces the letter's, unless it is nil.
	Value []byte
	// By is whose a new value is: a submission, or a command, must say so. Empty where nobody is asked
	// for a name.
	By string
}

// Replayed is an input that was a dead letter.
type Replayed struct {
	*kgo.Record
	// Unsigned says that it was signed, and is no more.
	Unsigned bool
}

// Replay puts a dead letter back on the input that it was on, in the partition of its order. The letter
// stays where it is. It fails with [ErrNoLetter], and with [ErrRefused] where nothing would come of it. With
// the context's error alone it may be on Kafka.
func (i *Instance) Replay(ctx context.Context, replay *Replay) (*Replayed, error) {
	letter, err := i.DeadLetter(ctx, replay.Partition, replay.Offset)
	if err != nil {
		return nil, err
	}
	again, err := i.replayed(letter, replay.Value)
	if err != nil {
		return nil, err
	}
	if err := i.accepts(again.Record, replay); err != nil {
		return nil, err
	}
	if err := i.put(ctx, again.Record); err != nil {
		return nil, fmt.Errorf("put dead letter %d/%d back on %s: %w", letter.Partition, letter.Offset, again.Topic, err)
	}
	return again, nil
}

// replayed is a dead letter as an input: with the headers that it came with, but for Waybill's own. Of these
// the author's signature stays as long as it is over the same value: it is his who gave the command, and
// acts once, within a day.
func (i *Instance) replayed(letter *kgo.Record, value []byte) (*Replayed, error) {
	topic, _, _ := strings.Cut(events.Header(letter, lane.HeaderSource), "/")
	_, input := i.topics.Input(topic)
	switch {
	case !input:
		return nil, fmt.Errorf("%w: the dead letter comes from %q, which is no input of namespace %s: send it by a client of your own", ErrRefused, decide.Cut(topic, decide.MaxName), i.topics.Namespace)
	case len(letter.Key) == 0:
		return nil, fmt.Errorf("%w: the dead letter has no key, so that nobody can tell of which order it is: send it anew, with the order's id as its key", ErrRefused)
	case topic == i.topics.Internal && value != nil:
		return nil, fmt.Errorf("%w: orders say this to each other, and nobody else for them: put it back as it was, without a value", ErrRefused)
	case letter.Value == nil && value == nil:
		return nil, fmt.Errorf("%w: the dead letter has no value, as it came or because that is only at the source: give one", ErrRefused)
	}
	again := &Replayed{Record: &kgo.Record{Topic: topic, Key: letter.Key, Value: letter.Value}}
	if value != nil {
		again.Value = value
	}
	same := value == nil || string(value) == string(letter.Value)
	for _, h := range letter.Headers {
		switch own := strings.HasPrefix(h.Key, "waybill_"); {
		case h.Key == events.HeaderSource && !same: // it is not what its sender wrote
		case !own, h.Key == events.HeaderActor && same:
			again.Headers = append(again.Headers, h)
		case h.Key == events.HeaderActor:
			again.Unsigned = true
		}
	}
	if !same {
		again.Headers = append(again.Headers, kgo.RecordHeader{Key: events.HeaderSource, Value: []byte(i.source())})
	}
	from := fmt.Sprintf("%s/%d/%d", letter.Topic, letter.Partition, letter.Offset)
	again.Headers = append(again.Headers, kgo.RecordHeader{Key: HeaderReplayed, Value: []byte(from)})
	return again, nil
}

// accepts fails where an input would be put aside again, or rejected, for what it is, or where a new value is
// in the name of somebody else: nobody says over HTTP what another does.
func (i *Instance) accepts(r *kgo.Record, replay *Replay) error {
	partition := i.Partition(string(r.Key))
	seen := &decide.Record{Topic: r.Topic, Partition: partition, Raw: events.Raw{Key: r.Key, Value: r.Value}}
	for _, h := range r.Headers {
		seen.Headers = append(seen.Headers, events.RawHeader{Key: h.Key, Value: h.Value})
	}
	in := decide.Read(seen, &i.topics, decide.Place{Here: partition, Of: lane.NewPartitioner(i.partitions).Of})
	by := replay.By // a reply, and a signal, name nobody
	switch {
	case in.Unreadable != "":
		return fmt.Errorf("%w: it would be put aside again: %s", ErrRefused, in.Unreadable)
	case in.Problem != nil:
		return fmt.Errorf("%w: it would be rejected: %w", ErrRefused, in.Problem)
	case in.Bid != nil && in.Bid.Bid == events.BidAsk:
		return fmt.Errorf("%w: it asks for a place for order %s, which was told that it gets none: resubmit that order, or submit it anew", ErrRefused, in.Bid.Order)
	case in.Grant != nil && in.Grant.Error != nil && in.Grant.Error.Code == events.Superseded:
		return fmt.Errorf("%w: it says that another order has come in the place of %s, and that may be long ago: cancel %s if it is not wanted", ErrRefused, in.Grant.Order, in.Grant.Order)
	case in.Command != nil:
		by = in.Command.By
	case r.Topic == i.topics.Orders:
		if events.OwnID(in.Order) {
			if _, _, err := i.Order(in.Order); errors.Is(err, projections.ErrNotFound) {
				return fmt.Errorf("%w: it would be put aside again: %w", ErrRefused, ErrOwnID)
			}
		}
		by = in.Submission.By
	}
	if replay.Value != nil && replay.By != "" && by != replay.By {
		return fmt.Errorf(`%w: whoever writes another value is its author, and it says that %q is: write "by":%q into it`, ErrRefused, decide.Cut(by, decide.MaxName), replay.By)
	}
	return nil
}
