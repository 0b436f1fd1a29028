package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/oracle"
)

// letters is an instance that does not run, and dead letters that somebody wrote.
type letters struct {
	*testing.T
	broker   *kafka.Broker
	instance *Instance
	client   *kgo.Client // writes in transactions
	last     time.Time
	written  int
}

func newLetters(t *testing.T, b *kafka.Broker, partitions int32) *letters {
	t.Helper()
	topics, err := events.NewTopics(kafka.Namespace(t))
	must(t, err)
	_, err = CreateTopics(t.Context(), b.Admin(t), &topics, partitions, 1)
	must(t, err)
	i, err := New(t.Context(), Config{ID: "i-1", Namespace: topics.Namespace, DataDir: t.TempDir(), Kafka: []kgo.Opt{kgo.SeedBrokers(b.Brokers...)}})
	must(t, err)
	t.Cleanup(func() { must(t, i.Close()) })
	i.letterBounds.time, i.letterSilence = time.Hour, time.Hour // a page takes what it takes, on a machine with other work
	return &letters{
		T: t, broker: b, instance: i, last: time.Now().Add(-time.Hour).Truncate(time.Millisecond),
		client: b.Client(t, kgo.TransactionalID(topics.Namespace+"-letters"), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(3<<20)),
	}
}

// puts writes letters in one transaction, each a second after the one before.
func (l *letters) puts(commit kgo.TransactionEndTry, all ...*kgo.Record) {
	l.Helper()
	must(l, l.client.BeginTransaction())
	for _, r := range all {
		r.Topic, r.Timestamp = l.instance.topics.DeadLetters, l.last.Add(time.Second)
		l.last = r.Timestamp
	}
	must(l, l.client.ProduceSync(l.Context(), all...).FirstErr())
	l.ends(commit)
}

// ends ends the transaction, and waits until it has ended in all partitions: Kafka answers before.
func (l *letters) ends(commit kgo.TransactionEndTry) {
	l.Helper()
	must(l, l.client.EndTransaction(l.Context(), commit))
	admin, topic := kadm.NewClient(l.client), l.instance.topics.DeadLetters
	oracle.Until(l.T, "the transaction has ended in all partitions", func() error {
		stable, err := admin.ListCommittedOffsets(l.Context(), topic)
		if err != nil {
			return err
		}
		ends, err := admin.ListEndOffsets(l.Context(), topic)
		if err := cmp.Or(err, stable.Error(), ends.Error()); err != nil {
			return err
		}
		if !maps.Equal(letterPlace(stable), letterPlace(ends)) {
			return fmt.Errorf("it is stable up to %v of %v", letterPlace(stable), letterPlace(ends))
		}
		return nil
	})
}

func (l *letters) letter(partition int32, input, reason string, value int) *kgo.Record {
	l.written++
	return &kgo.Record{
		Partition: partition, Key: fmt.Append(nil, "o-", l.written), Value: make([]byte, value),
		Headers: []kgo.RecordHeader{
			{Key: lane.HeaderSource, Value: []byte("its own")},
			{Key: lane.HeaderReason, Value: []byte(reason)},
			{Key: lane.HeaderSource, Value: []byte(l.instance.topics.Namespace + "." + input + "/0/7")},
		},
	}
}

// pages lists all, so many a page.
func (l *letters) pages(limit int, f LetterFilter) (keys []string, pages int) {
	l.Helper()
	for next := LetterPlace(nil); ; pages++ {
		page, err := l.instance.DeadLetters(l.Context(), &f, next, limit)
		must(l, err)
		if len(page.Letters) > limit {
			l.Fatalf("a page of %d has %d", limit, len(page.Letters))
		}
		for _, d := range page.Letters {
			keys = append(keys, string(d.Key))
		}
		if next = page.Next; next == nil {
			return keys, pages + 1
		}
		if pages > 10*l.written {
			l.Fatal("it comes to no end")
		}
	}
}

// All dead letters that were committed are listed once, the newest first whatever partition has it,
// however small the pages are, and however little one may read.
func TestDeadLettersAreListed(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		l := newLetters(t, b, 3)
		if keys, pages := l.pages(10, LetterFilter{}); len(keys) != 0 || pages != 1 {
			t.Errorf("there is none, and listed are %q on %d pages", keys, pages)
		}
		var orders, replies, large []string
		for n := range 20 {
			var all []*kgo.Record
			for range 1 + n%4 {
				r := l.letter(int32(n%2), "orders", "not a JSON object", 10)
				orders, all = append(orders, string(r.Key)), append(all, r)
			}
			l.puts(kgo.TryCommit, all...)
			l.puts(kgo.TryAbort, l.letter(int32(n%3), "orders", "aborted", 10))
			if n%10 == 5 {
				r := l.letter(int32(n%3), "replies", "there is no order of this id", 300<<10)
				l.puts(kgo.TryCommit, r)
				replies, large = append(replies, string(r.Key)), append(large, string(r.Key))
			}
		}
		since := l.last
		l.puts(kgo.TryCommit, l.letter(2, "orders", "last", 0))
		last := fmt.Sprint("o-", l.written)
		orders = append(orders, last)
		newest := func(all ...string) []string {
			slices.SortFunc(all, func(a, b string) int { // as they were written
				return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(b, a))
			})
			return all
		}
		every := newest(slices.Concat(orders, replies)...)
		topics := l.instance.topics
		if ownLetterBounds.time < time.Second {
			t.Errorf("a page ends after %v", ownLetterBounds.time)
		}
		unhurried := letterBounds{ownLetterBounds.records, ownLetterBounds.bytes, time.Hour}
		for _, bounds := range []letterBounds{unhurried, {records: 1, bytes: 1 << 30, time: time.Hour}, {records: 1 << 30, bytes: 1, time: time.Hour}, {records: 1 << 30, bytes: 1 << 30, time: 1}} {
			l.instance.letterBounds = bounds
			for name, c := range map[string]struct {
				filter LetterFilter
				want   []string
			}{
				"all":            {LetterFilter{}, every},
				"of orders":      {LetterFilter{Topic: topics.Orders}, newest(slices.Clone(orders)...)},
				"of replies":     {LetterFilter{Topic: topics.Replies}, newest(slices.Clone(large)...)},
				"of an order":    {LetterFilter{Key: large[0]}, large[:1]},
				"for a reason":   {LetterFilter{Reason: "no order"}, newest(slices.Clone(large)...)},
				"for none":       {LetterFilter{Reason: "aborted"}, nil},
				"of late":        {LetterFilter{Since: since.Add(time.Millisecond)}, []string{last}},
				"of no time yet": {LetterFilter{Since: l.last.Add(time.Millisecond)}, nil},
			} {
				limits := []int{40, 1000}
				if bounds != unhurried { // a page takes some moments on Kafka
					if limits = []int{7}; name != "all" && name != "for a reason" {
						continue
					}
				}
				for _, limit := range limits {
					got, pages := l.pages(limit, c.filter)
					if !slices.Equal(got, c.want) {
						t.Errorf("%s, %d a page, %+v: %q, want %q", name, limit, bounds, got, c.want)
					}
					if least := (len(c.want) + limit - 1) / limit; pages < least || bounds == unhurried && pages > least+1 {
						t.Errorf("%s, %d a page: %d pages for %d", name, limit, pages, len(c.want))
					}
				}
			}
			if _, pages := l.pages(1000, LetterFilter{Reason: "aborted"}); bounds.records == 1 && pages < 5 {
				t.Errorf("%d pages, each of which may read one record", pages)
			}
		}
	})
}

// Whoever asks for what was put aside since some time has all of that, whenever it was written, and by
// whose clock; of what a release before has put aside it goes by when that was written. What is older is
// not read to its end.
func TestDeadLettersSince(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		l := newLetters(t, b, 3)
		now := time.Now().Truncate(time.Millisecond)
		ago := func(minutes int) time.Time { return now.Add(-time.Duration(minutes) * time.Minute) }
		put := func(partition int32, n int, written, aside time.Time) (keys []string) {
			t.Helper()
			var all []*kgo.Record
			for range n {
				r := l.letter(partition, "orders", "why", 10)
				r.Topic, r.Timestamp = l.instance.topics.DeadLetters, written
				if !aside.IsZero() {
					r.Headers = append(r.Headers, kgo.RecordHeader{Key: lane.HeaderAside, Value: events.AppendTime(nil, aside)})
				}
				keys, all = append([]string{string(r.Key)}, keys...), append(all, r)
			}
			must(t, l.client.BeginTransaction())
			must(t, l.client.ProduceSync(t.Context(), all...).FirstErr())
			l.ends(kgo.TryCommit)
			return keys
		}
		never := time.Time{}
		put(0, 600, ago(1), ago(120)) // by a clock that was ahead: it was put aside then
		late := put(0, 2, ago(600), ago(3))
		put(1, 40, ago(500), never)
		young := put(1, 1, ago(2), never)
		put(1, 40, ago(500), never)
		skewed := put(2, 1, ago(400), ago(50))
		put(2, 40, ago(400), ago(65))
		for since, want := range map[int][]string{
			60: slices.Concat(young, late, skewed), 40: slices.Concat(young, late), 1: nil,
		} {
			for _, bounds := range []letterBounds{ownLetterBounds, {records: 1, bytes: 1 << 30, time: time.Hour}} {
				l.instance.letterBounds = bounds
				got, pages := l.pages(10, LetterFilter{Since: ago(since)})
				if !slices.Equal(got, want) {
					t.Errorf("since %d minutes there are %q, want %q", since, got, want)
				}
				if pages > 30 { // of 684 letters, four a page
					t.Errorf("since %d minutes it takes %d pages, each of which reads a little", since, pages)
				}
			}
		}
		l.instance.letterBounds = letterBounds{ownLetterBounds.records, ownLetterBounds.bytes, time.Hour}
		page, err := l.instance.DeadLetters(t.Context(), &LetterFilter{Key: late[0]}, nil, 1)
		must(t, err)
		if d := page.Letters[0]; !d.At.Equal(ago(3)) || !d.Written.Equal(ago(600)) {
			t.Errorf("it was put aside at %s, and written at %s", d.At, d.Written)
		}
	})
}

// What has the name of the header that says when a letter was put aside, and is not behind those of
// Waybill's, is the input's.
func TestWhenALetterSaysThatItWasPutAside(t *testing.T) {
	at := events.Time(time.Now())
	header := func(key, value string) kgo.RecordHeader { return kgo.RecordHeader{Key: key, Value: []byte(value)} }
	aside, source := header(lane.HeaderAside, string(events.AppendTime(nil, at))), header(lane.HeaderSource, "waybill.orders/0/7")
	for _, c := range []struct {
		headers []kgo.RecordHeader
		want    time.Time
	}{
		{[]kgo.RecordHeader{source, aside}, at},
		{[]kgo.RecordHeader{aside, source}, time.Time{}},
		{[]kgo.RecordHeader{source, header(lane.HeaderAside, "soon")}, time.Time{}},
		{nil, time.Time{}},
	} {
		if got := lane.PutAside(&kgo.Record{Headers: c.headers}); !got.Equal(c.want) {
			t.Errorf("%v: %s", c.headers, got)
		}
	}
}

// A dead letter is as it is, and what is none is none.
func TestADeadLetter(t *testing.T) {
	t.Parallel()
	b := kafka.Embedded(t)
	l := newLetters(t, b, 1)
	long := l.letter(0, "orders", strings.Repeat("why ", 4<<10), 2<<20)
	long.Key = []byte(strings.Repeat("k", 300))
	l.puts(kgo.TryCommit, long, l.letter(0, "replies", "once", 1))
	l.puts(kgo.TryAbort, l.letter(0, "orders", "aborted", 1))
	b.Put(t, l.instance.topics.DeadLetters, 0, kafka.Zeros(t, 900<<20))
	l.puts(kgo.TryCommit, l.letter(0, "orders", "behind what nobody can read", 1))
	for offset, want := range map[int64]string{0: "why why", 1: "once", 2: "", 3: "", 4: "", 5: "", 6: "behind", 7: "", 8: "", 1 << 40: ""} {
		r, err := l.instance.DeadLetter(t.Context(), 0, offset)
		if want == "" && !errors.Is(err, ErrNoLetter) || want != "" && (err != nil || !strings.HasPrefix(events.Header(r, lane.HeaderReason), want)) {
			t.Errorf("at %d: %+v, %v", offset, r, err)
		}
	}
	if r, err := l.instance.DeadLetter(t.Context(), 0, 0); err != nil || len(r.Value) != 2<<20 || len(r.Key) != 300 || len(r.Headers) != 3 {
		t.Errorf("%v", err)
	}
	if _, err := l.instance.DeadLetter(t.Context(), 7, 0); !errors.Is(err, ErrNoLetter) {
		t.Errorf("of no partition: %v", err)
	}
	page, err := l.instance.DeadLetters(t.Context(), &LetterFilter{}, nil, 10)
	must(t, err)
	if len(page.Letters) != 3 || page.Letters[1].Reason != "once" {
		t.Fatalf("%+v", page)
	}
	if d := page.Letters[2]; d.KeySize != 300 || len(d.Key) != MaxLetterKey || d.ValueSize != 2<<20 || len(d.Reason) > maxLetterText || d.Topic != l.instance.topics.Orders || d.Source != d.Topic+"/0/7" {
		t.Errorf("%+v", d)
	}
	// A key that was cut is not found by what is left of it.
	if page, err := l.instance.DeadLetters(t.Context(), &LetterFilter{Key: strings.Repeat("k", MaxLetterKey)}, nil, 10); err != nil || len(page.Letters) != 0 {
		t.Errorf("%+v, %v", page, err)
	}
}

// Who waits for Kafka in vain is told, as soon as he hangs up; and others find a place.
func TestDeadLettersDoNotAnswer(t *testing.T) {
	t.Parallel()
	b := kafka.Embedded(t)
	l := newLetters(t, b, 1)
	l.puts(kgo.TryCommit, l.letter(0, "orders", "why", 1))
	b.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: l.instance.topics.DeadLetters, Err: kerr.NotLeaderForPartition, Count: -1})
	for range maxLetterReaders + 1 {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if _, err := l.instance.DeadLetters(ctx, &LetterFilter{}, nil, 10); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		cancel()
	}
}

// What cannot be put back is refused, and says why.
func TestWhatCannotBeReplayed(t *testing.T) {
	t.Parallel()
	l := newLetters(t, kafka.Embedded(t), 2)
	signed := func(r *kgo.Record, value string) *kgo.Record {
		r.Value = []byte(value)
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: events.HeaderActor, Value: []byte("signature")}, kgo.RecordHeader{Key: "mine", Value: []byte("kept")}, kgo.RecordHeader{Key: HeaderReplayed, Value: []byte("before")})
		return r
	}
	const submission = `{"workflow":"w","by":"ana"}`
	partitions := map[int32]bool{}
	for _, c := range []struct {
		input, key, value string
		correct, by       string
		why               string // "" if it is put back
		unsigned          bool
	}{
		{"orders", "o-1", submission, "", "", "", false},
		{"orders", "o-1", submission, "", "bob", "", false},
		{"orders", "o-1", submission, submission, "bob", `write "by":"bob" into it`, false},
		{"orders", "o-1", submission, `{"workflow":"w"}`, "bob", `it says that "" is`, false},
		{"orders", "o-1", submission, submission, "ana", "", false},
		{"orders", "o-1", submission, `{"workflow":"v","by":"bob"}`, "bob", "", true},
		{"orders", "o-1", `{`, "", "", "it would be put aside again: not a JSON object", false},
		{"orders", "o-1", submission, `7`, "", "it would be put aside again: not a JSON object", false},
		{"orders", "o-1", submission, `{"workflow":7}`, "", "it would be rejected: ", false},
		{"orders", "\xff", submission, "", "", "it would be put aside again: the order id is not UTF-8", false},
		{"orders", "", submission, submission, "", "the dead letter has no key", false},
		{"journal", "o-1", submission, "", "", "which is no input of namespace", false},
		{"commands", "o-2", `{"command":"pause","by":"ana"}`, "", "bob", "", false},
		{"commands", "o-1", `{"command":"pause","by":"ana"}`, `{"command":"pause","by":"eve"}`, "bob", `it says that "eve" is`, false},
		{"commands", "o-1", `{"command":"pause","by":"ana"}`, `{"command":"pause","by":"bob"}`, "bob", "", true},
		{"replies", "o-1", `{"order":"o-1","step":"a","attempt":1,"status":"completed"}`, "", "bob", "", false},
		{"replies", "o-1", `{"order":"o-2","step":"a","attempt":1,"status":"completed"}`, "", "", `the key names order "o-1" and the value order "o-2"`, false},
		{"signals", "o-3", `{"signal":"go"}`, `{"signal":"gone"}`, "bob", "", true},
	} {
		r := signed(l.letter(1, c.input, "why", 0), c.value)
		r.Key = []byte(c.key)
		l.puts(kgo.TryCommit, r)
		replay := &Replay{Partition: 1, Offset: r.Offset, By: c.by}
		if c.correct != "" {
			replay.Value = []byte(c.correct)
		}
		got, err := l.instance.Replay(t.Context(), replay)
		if c.why != "" {
			if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.why) {
				t.Errorf("%+v: %v", c, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		partitions[got.Partition] = true
		headers := map[string]string{}
		for _, h := range got.Headers {
			headers[h.Key] += string(h.Value)
		}
		want := map[string]string{"mine": "kept", HeaderReplayed: fmt.Sprintf("%s/1/%d", l.instance.topics.DeadLetters, r.Offset), events.HeaderActor: "signature"}
		if c.unsigned {
			delete(want, events.HeaderActor)
		}
		if c.correct != "" && c.correct != c.value {
			want[events.HeaderSource] = "/waybill/" + l.instance.topics.Namespace + "/api"
		}
		if fmt.Sprint(headers) != fmt.Sprint(want) || got.Unsigned != c.unsigned || got.Partition != l.instance.Partition(c.key) || got.Offset < 0 || string(got.Value) != cmp.Or(c.correct, c.value) {
			t.Errorf("%+v: %+v with %v", c, got.Record, headers)
		}
	}
	if len(partitions) != 2 {
		t.Errorf("all are of partition %v", partitions)
	}
	bare := l.letter(1, "orders", "the value is only at the source", 0)
	bare.Value = nil
	l.puts(kgo.TryCommit, bare)
	if _, err := l.instance.Replay(t.Context(), &Replay{Partition: 1, Offset: bare.Offset}); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "has no value") {
		t.Errorf("%v", err)
	}
	if _, err := l.instance.Replay(t.Context(), &Replay{Partition: 1, Offset: bare.Offset, Value: []byte(submission)}); err != nil {
		t.Errorf("%v", err)
	}
	if _, err := l.instance.Replay(t.Context(), &Replay{Offset: 7}); !errors.Is(err, ErrNoLetter) {
		t.Errorf("%v", err)
	}
}

// What orders tell each other is put back as it was, or not at all: nobody says it for them.
func TestWhatOrdersTellEachOtherIsNotCorrected(t *testing.T) {
	t.Parallel()
	l := newLetters(t, kafka.Embedded(t), 2)
	for _, c := range []struct {
		typ        events.Type
		key, value string
		correct    string
		why        string // "" if it is put back
	}{
		{events.ChildReported, "o-1", `{"parent":"o-1","step":"a","child":"@o-1/a","state":"Processed"}`, "", ""},
		{events.ChildWanted, "@o-1/a", `{"child":"@o-1/a","wish":"undo","parent":"o-1","step":"a","reason":"r"}`, "", ""},
		{events.ChildReported, "o-1", `{"parent":"o-1","step":"a","child":"@o-1/a","state":"Cancelled"}`, `{"parent":"o-1","step":"a","child":"@o-1/a","state":"Processed"}`, "put it back as it was"},
		{events.ChildReported, "o-1", `{`, "", "it would be put aside again: not a JSON object"},
		{events.ChildReported, "o-1", `{`, `{"parent":"o-1","step":"a","child":"@o-1/a","state":"Processed"}`, "put it back as it was"},
		{"", "o-1", `{"parent":"o-1","step":"a","child":"@o-1/a","state":"Processed"}`, "", "does not belong on"},
		{events.PlaceWanted, "@/limit.crm", `{"home":"@/limit.crm","bid":"ask","order":"o-1","step":"a","wait":2}`, "", "resubmit that order"},
		{events.PlaceWanted, "@/limit.crm", `{"home":"@/limit.crm","bid":"back","order":"o-1","step":"a","wait":2}`, "", ""},
		{events.PlaceGiven, "o-1", `{"order":"o-1","step":"a","wait":2,"home":"@/limit.crm"}`, "", ""},
		{events.PlaceGiven, "o-1", `{"order":"o-1","wait":2,"home":"@c-7/open.invoice","error":{"code":"superseded"}}`, "", "may be long ago"},
	} {
		r := l.letter(1, "internal", "why", 0)
		r.Key, r.Value = []byte(c.key), []byte(c.value)
		if c.typ != "" {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: events.HeaderType, Value: []byte(c.typ)})
		}
		l.puts(kgo.TryCommit, r)
		replay := &Replay{Partition: 1, Offset: r.Offset}
		if c.correct != "" {
			replay.Value = []byte(c.correct)
		}
		got, err := l.instance.Replay(t.Context(), replay)
		switch {
		case c.why != "":
			if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.why) {
				t.Errorf("%+v: %v", c, err)
			}
		case err != nil:
			t.Errorf("%+v: %v", c, err)
		case got.Topic != l.instance.topics.Internal || got.Partition != l.instance.Partition(c.key) || string(got.Value) != c.value || events.Header(got.Record, events.HeaderType) != string(c.typ):
			t.Errorf("%+v: %+v", c, got.Record)
		}
	}
}

// What was discarded is not listed, by any instance, on any page, and stays all the same; what others write as a mark is none.
func TestDeadLettersAreDiscarded(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		l := newLetters(t, b, 2)
		var want []string
		for n := range 30 {
			r := l.letter(int32(n%2), "orders", "no", 10)
			if n == 7 { // its sender would like another not to be listed
				r.Headers = append([]kgo.RecordHeader{{Key: HeaderDiscards, Value: []byte("1")}}, r.Headers...)
			}
			l.puts(kgo.TryCommit, r)
			want = append([]string{string(r.Key)}, want...)
		}
		all, err := l.instance.DeadLetters(t.Context(), &LetterFilter{}, nil, 100)
		must(t, err)
		if len(all.Letters) != 30 {
			t.Fatalf("there are %d", len(all.Letters))
		}
		discard := func(n int) {
			d := all.Letters[n]
			must(t, l.instance.Discard(t.Context(), d.Partition, d.Offset, "ana", fmt.Sprint("sent anew ", n)))
			want = slices.DeleteFunc(want, func(key string) bool { return key == string(d.Key) })
		}
		another := func() *Instance {
			i, err := New(t.Context(), Config{ID: "i-2", Namespace: l.instance.topics.Namespace, DataDir: t.TempDir(), Kafka: []kgo.Opt{kgo.SeedBrokers(b.Brokers...)}})
			must(t, err)
			t.Cleanup(func() { must(t, i.Close()) })
			return i
		}
		for _, n := range []int{0, 5, 6, 20, 29, 5} {
			discard(n)
		}
		first, fresh := l.instance, another()
		// What is discarded is not discarded again, by any instance, and says who did it first.
		_, before, err := first.letterOffsets(t.Context())
		must(t, err)
		for _, i := range []*Instance{first, another()} {
			for n, says := range map[int]string{5: "sent anew 5", 20: "sent anew 20", 4: ""} {
				d := all.Letters[n]
				m, known, err := i.Discarded(t.Context(), d.Partition, d.Offset)
				must(t, err)
				if !known || (m != nil) != (says != "") || m != nil && (m.By != "ana" || m.Note != says || m.At.IsZero()) {
					t.Errorf("letter %d was discarded: %+v, %v", n, m, known)
				}
				if m != nil {
					must(t, i.Discard(t.Context(), d.Partition, d.Offset, "bob", "too late"))
				}
			}
		}
		if _, after, err := first.letterOffsets(t.Context()); err != nil || !maps.Equal(before, after) {
			t.Errorf("marks were written again: %v, and %v before, %v", after, before, err)
		}
		for _, i := range []*Instance{first, fresh} {
			for _, limit := range []int{1, 3, 100} {
				l.instance = i
				if keys, _ := l.pages(limit, LetterFilter{}); !slices.Equal(keys, want) {
					t.Errorf("on pages of %d: %q and not %q", limit, keys, want)
				}
			}
		}
		// A page that another instance began; and what is discarded meanwhile.
		began, err := first.DeadLetters(t.Context(), &LetterFilter{}, nil, 10)
		must(t, err)
		discard(25)
		l.instance = another()
		l.instance.letterBounds.records = 1
		var rest []string
		for next := began.Next; next != nil; {
			page, err := l.instance.DeadLetters(t.Context(), &LetterFilter{}, next, 3)
			must(t, err)
			for _, d := range page.Letters {
				rest = append(rest, string(d.Key))
			}
			next = page.Next
		}
		if !slices.Equal(rest, want[10:]) {
			t.Errorf("the rest is %q and not %q", rest, want[10:])
		}
		l.instance = another()
		l.instance.letterBounds.records = 0
		oldest := all.Letters[29]
		if m, known, err := l.instance.Discarded(t.Context(), oldest.Partition, oldest.Offset); err != nil || known || m != nil {
			t.Errorf("what was not read is known: %+v, %v, %v", m, known, err)
		}
		d := all.Letters[5]
		if r, err := first.DeadLetter(t.Context(), d.Partition, d.Offset); err != nil || string(r.Key) != string(d.Key) {
			t.Errorf("it is gone: %v, %v", r, err)
		}
		_, ends, err := first.letterOffsets(t.Context())
		must(t, err)
		marks := 0
		for p, end := range ends {
			for offset := range end {
				if _, err := first.DeadLetter(t.Context(), p, offset); errors.Is(err, ErrNoLetter) {
					marks++
					if err := first.Discard(t.Context(), p, offset, "", ""); !errors.Is(err, ErrNoLetter) {
						t.Errorf("what is none is discarded: %v", err)
					}
				}
			}
		}
		if marks < 7 {
			t.Errorf("marks are letters: %d are none", marks)
		}
	})
}

// Of letters that are not on the topic any more nothing is remembered, and of a mark that marks nothing, or marks again.
func TestMarksOfWhatIsGone(t *testing.T) {
	var d discards
	for letter := range int64(100) {
		d.note(3, letter, 1000-letter)
	}
	d.note(3, 70, 500)
	d.note(3, 71, 2000)
	d.note(3, -1, 2001)
	d.trim(LetterPlace{3: 60, 4: 7})
	d.note(3, 59, 2002)
	if n := len(d.at(3).letters); n != 40 {
		t.Errorf("%d are remembered", n)
	}
	for letter, want := range map[int64]int64{60: 940, 70: 500, 71: 929} {
		if at, is := d.mark(3, letter); !is || at != want {
			t.Errorf("the mark of %d is at %d, %v", letter, at, is)
		}
	}
	if _, is := d.mark(3, 59); is {
		t.Error("what is gone is remembered")
	}
}

// What is read of marks is one part of a partition, which grows where what is missing was read.
func TestMarksThatAreMissing(t *testing.T) {
	var d discards
	for _, c := range []struct{ from, to, missingFrom, missingTo int64 }{
		{50, 100, 50, 60}, {50, 100, 60, 70}, {55, 70, 70, 70}, {30, 70, 40, 50}, {30, 70, 30, 40}, {30, 70, 70, 70}, {90, 100, 90, 100}, {80, 100, 80, 90}, {50, 85, 70, 80},
	} {
		from, to := d.missing(3, c.from, c.to, 10)
		if from != c.missingFrom || to != c.missingTo {
			t.Fatalf("of %d to %d are missing %d to %d, and not to %d to %d", c.from, c.to, from, to, c.missingFrom, c.missingTo)
		}
		d.read(3, from, to)
	}
}
