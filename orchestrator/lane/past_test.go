package lane

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
)

// logs are partitions, with what is open there. A lane finds what hangs, reads
// what became of it, and ends it.
type logs struct {
	opens
	elsewhere []OpenTransaction // is found only by who looks everywhere
	records   map[TopicPartition][]*kgo.Record
	harmful   map[TopicPartition]int64 // a batch there that no reader can take
	powerless bool                     // the lane may write no markers
	ended     []string                 // what was ended, and how
	fenced    []int
	fences    [][]int // the same, as they were asked for
}

func (b *logs) Everywhere(context.Context) (open []OpenTransaction, unseen []TopicPartition, silent, err error) {
	return slices.Concat(b.transactions, b.elsewhere), nil, nil, nil
}

func (b *logs) Open(_ context.Context, places ...TopicPartition) (open []OpenTransaction, unseen []TopicPartition, err error) {
	return slices.DeleteFunc(slices.Clone(b.transactions), func(t OpenTransaction) bool { return !slices.Contains(places, t.TopicPartition) }), nil, nil
}

func (b *logs) Wrote(_ context.Context, producers map[int64]bool) (places []TopicPartition, err error) {
	for at, records := range b.records {
		if slices.ContainsFunc(records, func(r *kgo.Record) bool { return producers[r.ProducerID] }) {
			places = append(places, at)
		}
	}
	return places, nil
}

func (b *logs) Since(_ context.Context, at TopicPartition, t time.Time) (int64, error) {
	n := slices.IndexFunc(b.records[at], func(r *kgo.Record) bool { return !r.Timestamp.Before(t) })
	if n < 0 {
		n = len(b.records[at])
	}
	return int64(n), nil
}

func (b *logs) End(_ context.Context, at TopicPartition, _ bool) (int64, error) {
	return int64(len(b.records[at])), nil
}

func (b *logs) Newest(context.Context, TopicPartition) (time.Time, error) { return time.Time{}, nil }

func (b *logs) Read(partition int32, _ bool) (Reader, error) {
	return &logReader{logs: b, partition: partition}, nil
}

func (b *logs) Finish(_ context.Context, t OpenTransaction, commit bool) error {
	if b.powerless {
		return fmt.Errorf("write a marker: %w", &kadm.AuthError{Err: kerr.ClusterAuthorizationFailed})
	}
	b.ended = append(b.ended, fmt.Sprintf("%s: %t", t.Topic, commit))
	b.add(t.TopicPartition, marker(t.Producer, commit))
	return nil
}

func (b *logs) Fence(_ context.Context, _ func(TopicPartition) bool, slots ...int) (all []Producer, err error) {
	b.fenced = append(b.fenced, slots...)
	b.fences = append(b.fences, slots)
	for range slots {
		all = append(all, &resting{})
	}
	return all, nil
}

// add appends records to a partition.
func (b *logs) add(at TopicPartition, records ...*kgo.Record) {
	for _, r := range records {
		r.Topic, r.Partition, r.Offset = at.Topic, at.Partition, int64(len(b.records[at]))
		b.records[at] = append(b.records[at], r)
	}
}

// logReader reads all of one partition at once.
type logReader struct {
	*logs
	partition int32
	from      map[string]int64
}

func (r *logReader) Seek(from map[string]int64) { r.from = from }
func (r *logReader) Poll(context.Context, int) (all kgo.Fetches) {
	for topic, from := range r.from {
		at := TopicPartition{topic, r.partition}
		fetched := kgo.FetchPartition{Partition: r.partition, Records: r.records[at][from:]}
		if harmful, ok := r.harmful[at]; ok && harmful >= from {
			fetched.Records = fetched.Records[:harmful-from]
			fetched.Err = &kgo.ErrDecompressTooLarge{Topic: topic, Partition: r.partition, Offset: harmful, NextOffset: harmful + 1}
			r.from[topic] = harmful + 1
		}
		all = append(all, kgo.Fetch{Topics: []kgo.FetchTopic{{Topic: topic, Partitions: []kgo.FetchPartition{fetched}}}})
	}
	return all
}
func (*logReader) Pause(TopicPartition)      {}
func (*logReader) Resume(TopicPartition)     {}
func (*logReader) Close()                    {}
func (*logReader) Add(TopicPartition, int64) {}

// of is a record of a producer's transaction, marker its end.
func of(producer int64) *kgo.Record {
	return &kgo.Record{ProducerID: producer, ProducerEpoch: 6, Timestamp: time.UnixMilli(1)}
}

func marker(producer int64, commit bool) *kgo.Record {
	r := of(producer)
	r.Key = []byte{0, 0, 0, 0}
	if commit {
		r.Key[3] = 1
	}
	r.Attrs = kgo.NewRecordAttrs(kgo.RecordAttrsOpts{Transactional: true, Control: true})
	return r
}

func claim(producer int64) *kgo.Record {
	r := of(producer)
	r.Headers = []kgo.RecordHeader{{Key: events.HeaderType, Value: []byte(events.PartitionClaimed)}}
	return r
}

// newLogs returns a lane that has all slots, on partitions without records.
func newLogs(t *testing.T) (*Lane, *logs) {
	l, b := newRing(t), &logs{records: make(map[TopicPartition][]*kgo.Record)}
	l.broker = b
	return l, b
}

// own is the lane's partition of a topic.
func (l *Lane) own(topic string) TopicPartition { return TopicPartition{topic, l.partition} }

// hung is what hangs of a producer on a partition.
func hung(producer int64, at TopicPartition) OpenTransaction {
	return OpenTransaction{Transaction: Transaction{producer, 6}, TopicPartition: at, Written: 1}
}

// A transaction of slot 1 that hangs was committed if its other parts say so, the
// journal's before all. If it hangs on the journal and everywhere, it was if another
// transaction stands behind it there, or if this instance has folded it.
func TestWhatBecameOfATransaction(t *testing.T) {
	for _, c := range []struct {
		what      string
		records   func(l *Lane, b *logs)
		on        func(*events.Topics) string // the part that hangs
		beside    bool                        // one of slot 2 hangs on the journal
		folded    int64
		committed bool
	}{
		{what: "it hangs everywhere"},
		{what: "another transaction is behind it", committed: true, records: func(l *Lane, b *logs) { b.add(l.own(l.topics.Journal), of(2)) }},
		{what: "a claim is behind it", records: func(l *Lane, b *logs) { b.add(l.own(l.topics.Journal), claim(0), marker(0, true)) }},
		{what: "it was folded", folded: 1, committed: true},
		{
			what: "the journal says another thing than two others, which are read for the sake of another", committed: true,
			on: func(topics *events.Topics) string { return topics.Alerts }, beside: true,
			records: func(l *Lane, b *logs) {
				b.add(l.own(l.topics.Journal), marker(1, true), of(2))
				b.add(l.own(l.topics.Status), of(1), marker(1, false))
				b.add(l.own(l.topics.DeadLetters), of(1), marker(1, false))
			},
		},
		{
			what: "it was committed on a caller's topic", committed: true,
			records: func(_ *Lane, b *logs) { b.add(TopicPartition{"shop", 0}, of(1), marker(1, true)) },
		},
		{
			what: "a batch that nobody can read is before it", committed: true,
			records: func(_ *Lane, b *logs) {
				at := TopicPartition{"shop", 0}
				b.add(at, of(1), of(2), marker(1, true))
				b.harmful = map[TopicPartition]int64{at: 1}
			},
		},
		{
			what: "it stands far back on the journal", committed: true, on: func(topics *events.Topics) string { return topics.Orders },
			records: func(l *Lane, b *logs) {
				b.add(l.own(l.topics.Journal), marker(1, true))
				for range pastRecords {
					b.add(l.own(l.topics.Journal), of(2))
				}
			},
		},
	} {
		t.Run(c.what, func(t *testing.T) {
			l, b := newLogs(t)
			b.add(l.own(l.topics.Journal), of(1))
			at := l.own(l.topics.Journal)
			if c.on != nil {
				at = l.own(c.on(l.topics))
			}
			if c.records != nil {
				c.records(l, b)
			}
			hangs := hung(1, at)
			hangs.slot = 1
			open := []OpenTransaction{hangs}
			if c.beside {
				open = append(open, hung(2, l.own(l.topics.Journal)))
			}
			p, err := l.readPast(t.Context(), open, c.folded)
			must(t, err)
			if got := p.committed(hangs); got != c.committed {
				t.Errorf("it counts as committed: %t", got)
			}
		})
	}
}

// A sweep ends what hangs wherever it is, of the slots and of ids that they had
// before, and on the journal first: whoever else ends it follows that.
func TestASweep(t *testing.T) {
	for _, c := range []struct {
		what string
		open func(l *Lane, b *logs)
		want func(l *Lane) []string // is ended, and whether as committed
	}{
		{
			"of a slot", func(l *Lane, b *logs) {
				b.add(l.own(l.topics.Journal), of(1))
				b.transactions = []OpenTransaction{hung(1, l.own(l.topics.Status)), hung(1, l.own(l.topics.Journal))}
			},
			func(l *Lane) []string { return []string{l.topics.Journal + ": false", l.topics.Status + ": false"} },
		},
		{
			"on a caller's topic", func(l *Lane, b *logs) {
				b.add(l.own(l.topics.Journal), of(1), marker(1, true))
				b.elsewhere = []OpenTransaction{hung(1, TopicPartition{"shop", 0})}
			},
			func(*Lane) []string { return []string{"shop: true"} },
		},
		{
			"of a former id", func(l *Lane, b *logs) {
				b.add(l.own(l.topics.Journal), of(99))
				b.transactions = []OpenTransaction{hung(99, l.own(l.topics.Journal))}
			},
			func(l *Lane) []string { return []string{l.topics.Journal + ": false"} },
		},
		{
			"of a former id on the status topic, where somebody else has one too", func(l *Lane, b *logs) {
				b.add(l.own(l.topics.Journal), of(99), marker(99, true))
				b.transactions = []OpenTransaction{hung(99, l.own(l.topics.Status)), hung(98, l.own(l.topics.Status))}
				b.transactions[0].Written = l.time.Wall().Add(-3 * TransactionTimeout).UnixMilli()
			},
			func(l *Lane) []string { return []string{l.topics.Status + ": true"} },
		},
		{
			"of a former id, and not old enough", func(l *Lane, b *logs) {
				b.add(l.own(l.topics.Journal), of(99), marker(99, true))
				young := hung(99, l.own(l.topics.Status))
				young.Written = l.time.Wall().UnixMilli()
				b.transactions = []OpenTransaction{young}
			},
			func(*Lane) []string { return nil },
		},
	} {
		t.Run(c.what, func(t *testing.T) {
			l, b := newLogs(t)
			c.open(l, b)
			must(t, l.sweep(t.Context()))
			if want := c.want(l); !slices.Equal(b.ended, want) {
				t.Errorf("it ended %v, and must %v", b.ended, want)
			}
		})
	}
}

// Without the right to write markers the producer itself ends what hung. Then all
// slots are initialised again, in order: that of the producer alone could claim
// beside another owner.
func TestASweepWithoutTheRightTo(t *testing.T) {
	l, b := newLogs(t)
	b.powerless = true
	b.add(l.own(l.topics.Journal), of(2))
	b.transactions = []OpenTransaction{hung(2, l.own(l.topics.Journal))}
	its := l.producers.ring[2].(*resting)
	must(t, l.sweep(t.Context()))
	if !slices.Equal(its.covered, []string{l.topics.Journal + ": false"}) || !slices.Equal(b.fenced, []int{0, 1, 2, 3}) {
		t.Errorf("slot 2 ended %v, and initialised were %v", its.covered, b.fenced)
	}
}

// A lane that serves looks from time to time. What it sees twice of its own ends it,
// and of what a caller has open on the inputs it tells.
func TestWatching(t *testing.T) {
	for _, c := range []struct {
		on   func(*events.Topics) string
		of   int64
		ends bool
		says string
	}{
		{on: func(topics *events.Topics) string { return topics.Journal }, of: 1, ends: true},
		{on: func(topics *events.Topics) string { return topics.Orders }, of: 98, says: "somebody's transaction keeps the inputs behind it"},
		{on: func(topics *events.Topics) string { return topics.Status }, of: 98},
	} {
		l, b := newLogs(t)
		at := l.own(c.on(l.topics))
		b.transactions = []OpenTransaction{hung(c.of, at)}
		var said bytes.Buffer
		l.log = slog.New(slog.NewTextHandler(&said, nil))
		looks := 0
		l.time.Pause = func(context.Context, time.Duration) bool { looks++; return looks <= 3 }
		err := l.Watch(t.Context())
		if (err != nil) != c.ends || c.ends && looks != 2 {
			t.Errorf("%s: after %d looks it ended with %v", at.Topic, looks, err)
		}
		if strings.Count(said.String(), "\n") != min(len(c.says), 1) || !strings.Contains(said.String(), c.says) {
			t.Errorf("%s: it says %q, and must once %q", at.Topic, said.String(), c.says)
		}
	}
}

// After a lost connection a lane looks before it commits, and else it does not.
func TestACommitAfterALostConnection(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end() // it waits for nothing
	for _, c := range []struct{ lost, hangs, commits bool }{
		{lost: true, hangs: true, commits: false},
		{lost: true, commits: true},
		{hangs: true, commits: true},
	} {
		l, b := newLogs(t)
		if c.hangs {
			b.transactions = []OpenTransaction{hung(1, l.own(l.topics.Journal))}
		}
		l.producers.ring[3].(*resting).lost = c.lost
		err := l.Commit(ended, newBatch())
		if n := l.producers.ring[0].(*resting).commits; (err == nil) != c.commits || (n == 1) != c.commits {
			t.Errorf("%+v: %d commits, %v", c, n, err)
		}
	}
}

// A takeover comes to the other slots only behind the first: else it could claim, and an
// owner that took all slots between would still write on the others.
func TestTheFirstSlotIsFencedFirst(t *testing.T) {
	l, b := newLogs(t)
	must(t, l.fence(t.Context()))
	if len(b.fences) != 2 || !slices.Equal(b.fences[0], []int{0}) || !slices.Equal(b.fences[1], []int{1, 2, 3}) {
		t.Errorf("fenced are %v", b.fences)
	}
	for slot, p := range l.producers.ring {
		if p == nil {
			t.Errorf("slot %d has no producer", slot)
		}
	}
}
