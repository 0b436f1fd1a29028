package events_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/events"
)

func anyPositions(t *rapid.T) (p events.Positions) {
	for in, topic := range mustTopics(t).Inputs() {
		if offset := rapid.Int64Range(-1, 1<<63-1).Draw(t, topic); offset >= 0 {
			p.Set(in, offset)
		}
	}
	return p
}

func mustTopics(t rapid.TB) *events.Topics {
	t.Helper()
	topics, err := events.NewTopics("shop")
	if err != nil {
		t.Fatal(err)
	}
	return &topics
}

func positions(t *testing.T, text string) (p events.Positions) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// Journals have these bytes from the first release on.
func TestASealsBytes(t *testing.T) {
	for _, text := range []string{
		`{"txn":0,"events":1,"next":{"orders":0,"replies":0,"commands":0}}`,
		`{"txn":18446744073709551615,"events":38,"next":{"orders":1,"replies":0,"commands":9223372036854775807}}`,
		`{"txn":4,"events":2,"next":{}}`,                            // that no input was read stands nowhere yet
		`{"txn":4,"events":2,"next":{"orders":1,"commands":3}}`,     // an older release
		`{"txn":4,"events":2,"next":{"orders":1,"timers":{"a":0}}}`, // newer ones
		`{"txn":4,"events":2,"next":{"timers":1,"clocks":2}}`,
	} {
		seal, err := events.DecodeSeal([]byte(text))
		if again := seal.Append([]byte("before ")); err != nil || string(again) != "before "+text {
			t.Errorf("%s is written as %s, %v", text, again, err)
		}
	}
}

func TestPositionsSayWhatTheyDoNotKnow(t *testing.T) {
	for _, c := range []struct {
		text  string
		at    []int64
		all   bool
		newer string
	}{
		{`{}`, []int64{-1, -1, -1, -1, -1}, false, ""},
		{`{"orders":0,"replies":1,"commands":2,"signals":3,"internal":4}`, []int64{0, 1, 2, 3, 4}, true, ""},
		{`{"orders":0,"replies":1,"commands":2,"signals":3}`, []int64{0, 1, 2, 3, -1}, false, ""},
		{`{"commands":2,"orders":0}`, []int64{0, -1, 2, -1, -1}, false, ""},
		{`{"orders":0,"orders/x":1,"orders/":2,"orders/02":3,"orders/-1":4,"orders/99999999999":5}`, []int64{0, -1, -1, -1, -1}, false, `"orders/x":1,"orders/":2,"orders/02":3,"orders/-1":4,"orders/99999999999":5`},
		{` { "timers" : 7 , "replies" : 1 , "clocks" : [ ] , "orders" : 1 , "commands" : 1 , "signals" : 1 , "internal" : 1 } `, []int64{1, 1, 1, 1, 1}, true, `"timers":7,"clocks":[ ]`},
	} {
		p := positions(t, c.text)
		var at []int64
		for in := range mustTopics(t).Inputs() {
			at = append(at, p.At(in))
		}
		if !slices.Equal(at, c.at) || p.All() != c.all || p.Newer() != c.newer {
			t.Errorf("%s is read as %v, all: %t, newer: %s", c.text, at, p.All(), p.Newer())
		}
	}
}

// What a transaction does not say stands where it was said last.
func TestPositionsOverThoseBefore(t *testing.T) {
	for _, c := range []struct{ before, next, want string }{
		{`{}`, `{}`, `{}`},
		{`{}`, `{"orders":0}`, `{"orders":0}`},
		{`{"orders":5,"replies":6,"commands":7}`, `{"orders":8,"replies":6}`, `{"orders":8,"replies":6,"commands":7}`},
		{`{"orders":5,"commands":7}`, `{"orders":0,"replies":0,"commands":0}`, `{"orders":0,"replies":0,"commands":0}`},
		{`{"orders":5,"timers":7}`, `{"orders":6}`, `{"orders":6,"timers":7}`},
		{`{"orders":5,"timers":7}`, `{"orders":6,"timers":8}`, `{"orders":6,"timers":8}`},
		{`{"orders":5,"orders/9":3,"replies/9":4}`, `{"orders":6,"orders/9":7,"orders/12":0}`, `{"orders":6,"orders/9":7,"orders/12":0,"replies/9":4}`},
	} {
		before := positions(t, c.before)
		if got := positions(t, c.next).Over(before); got != positions(t, c.want) || before != positions(t, c.before) {
			t.Errorf("%s over %s is %s", c.next, c.before, got)
		}
	}
}

// Partitions that were added to inputs have positions of their own, in one order.
func TestPositionsInAddedPartitions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p events.Positions
		want := make(map[string]int64)
		for range rapid.IntRange(0, 9).Draw(t, "n") {
			in := rapid.SampledFrom([]events.Input{events.InputOrders, events.InputReplies, events.InputCommands}).Draw(t, "input")
			partition, offset := rapid.Int32Range(0, 20).Draw(t, "partition"), rapid.Int64Min(0).Draw(t, "offset")
			p.SetOf(in, partition, offset)
			want[fmt.Sprint(in, partition)] = offset
			if p.Of(in, partition) != offset || p.At(in) != -1 {
				t.Fatalf("%v", p)
			}
		}
		if len(p.Added()) != len(want) {
			t.Fatalf("%v has %d", p, len(p.Added()))
		}
		for _, a := range p.Added() {
			if want[fmt.Sprint(a.Input, a.Partition)] != a.Next {
				t.Fatalf("%v", p)
			}
		}
		var again events.Positions
		if err := json.Unmarshal(p.Append(nil), &again); err != nil || again != p {
			t.Fatalf("%v is read as %v, %v", p, again, err)
		}
	})
	var p events.Positions
	if err := json.Unmarshal([]byte(`{"replies/3":4,"orders/2":1,"orders/1":5,"orders/2":7}`), &p, jsontext.AllowDuplicateNames(true)); err != nil || p.String() != `{"orders/1":5,"orders/2":7,"replies/3":4}` {
		t.Errorf("in no order, and one twice, they are read as %v, %v", p, err)
	}
}

// Whoever has lanes read another topic raises the format, so that no older release
// serves a partition without reading it. What was an input stays one, under its
// name.
func TestInputsOfTheFormat(t *testing.T) {
	topics := mustTopics(t)
	var inputs []string
	for in, topic := range topics.Inputs() {
		if again, ok := topics.Input(topic); again != in || !ok {
			t.Errorf("%s is input %d, and not %d", topic, again, in)
		}
		inputs = append(inputs, topic)
	}
	if want := []string{"shop.orders", "shop.replies", "shop.commands", "shop.signals", "shop.internal"}; events.JournalFormat != 11 || !slices.Equal(inputs, want) {
		t.Errorf("format %d has %q", events.JournalFormat, inputs)
	}
	for _, topic := range []string{topics.Journal, topics.Status, "orders", ""} {
		if _, ok := topics.Input(topic); ok {
			t.Errorf("%q is an input", topic)
		}
	}
}
