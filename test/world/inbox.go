package world

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Inbox reads the committed records of a topic, from its beginning.
type Inbox struct {
	testing.TB
	Topic string

	client *kgo.Client
	unread []*kgo.Record
	read   map[int32]int64   // up to where, by partition
	told   map[string]string // outside of transactions, by id: that may come again
}

// Inbox returns one for any topic.
func (o *Outsider) Inbox(topic string) *Inbox {
	o.Helper()
	return &Inbox{TB: o.TB, Topic: topic, read: make(map[int32]int64), told: make(map[string]string), client: o.connect(kgo.ConsumeTopics(topic), kgo.KeepControlRecords())}
}

// Take waits for the next record of an order, and takes it out.
func (b *Inbox) Take(order string) *kgo.Record {
	b.Helper()
	return b.take("a record of "+order, func(r *kgo.Record) bool { return string(r.Key) == order })
}

func (b *Inbox) take(what string, match func(*kgo.Record) bool) *kgo.Record {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	for {
		for n, r := range b.unread {
			if match(r) {
				b.unread = append(b.unread[:n:n], b.unread[n+1:]...)
				return r
			}
		}
		b.poll(ctx, what+" does not come")
	}
}

// poll waits for more.
func (b *Inbox) poll(ctx context.Context, otherwise string) {
	b.Helper()
	fetches := b.client.PollFetches(ctx)
	if ctx.Err() != nil {
		b.Fatalf("%s on %s; what came, and was not taken: %s", otherwise, b.Topic, b)
	}
	b.fetch(fetches)
}

func (b *Inbox) fetch(fetches kgo.Fetches) {
	fetches.EachRecord(func(r *kgo.Record) {
		b.read[r.Partition] = r.Offset + 1
		if !r.Attrs.IsControl() && !b.again(r) {
			b.unread = append(b.unread, r)
		}
	})
}

// again says that a caller's topic has a status message once more, as it may.
func (b *Inbox) again(r *kgo.Record) bool {
	said := make(map[string]string)
	for _, h := range r.Headers {
		said[h.Key] = string(h.Value)
	}
	if r.Attrs.IsTransactional() || said["ce_type"] != "waybill.order.status" {
		return false
	}
	id := said["ce_id"]
	before, again := b.told[id]
	if b.told[id] = string(r.Value); again && before != string(r.Value) {
		b.Errorf("%s says %s, and then %s", id, before, r.Value)
	}
	return again
}

// ToTheEnd reads up to the end of now.
func (b *Inbox) ToTheEnd() {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	ends, err := kadm.NewClient(b.client).ListEndOffsets(ctx, b.Topic)
	if err != nil || ends.Error() != nil {
		b.Fatal(err, ends.Error())
	}
	ends.Each(func(end kadm.ListedOffset) {
		for b.read[end.Partition] < end.Offset {
			b.poll(ctx, fmt.Sprintf("partition %d is read up to %d of %d", end.Partition, b.read[end.Partition], end.Offset))
		}
	})
}

// Hears waits for status messages of an order, in turn.
func (b *Inbox) Hears(order string, words ...string) {
	b.Helper()
	for _, word := range words {
		var s struct {
			Order  string `json:"order"`
			Status string `json:"status"`
		}
		r := b.Take(order)
		if err := json.Unmarshal(r.Value, &s); err != nil || s.Order != order {
			b.Fatalf("%s: %v", r.Value, err)
		}
		if s.Status != word {
			b.Errorf("the caller of %s heard %q, not %q", order, s.Status, word)
		}
	}
}

// String shows what came and nobody took.
func (b *Inbox) String() string {
	var all []string
	for _, r := range b.unread {
		all = append(all, string(r.Value))
	}
	return strings.Join(all, "\n")
}
