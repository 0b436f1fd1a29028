package lane

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Kafka refuses a record whose time is far ahead. What came with such a one, when it was
// taken, goes on with the lane's.
func TestTimesAhead(t *testing.T) {
	l, _ := newLane(t)
	_, elsewhere := l.keys()
	stray, letter := typed(l.topics.Orders, "", elsewhere, "hello"), typed(l.topics.Orders, "", "\xff", "")
	stray.Timestamp, letter.Timestamp = time.Now().Add(1e6*time.Hour), time.Now().Add(1e6*time.Hour)
	must(t, l.decide([]*kgo.Record{stray, letter}))
	for _, r := range l.current.records {
		if r.Timestamp.After(time.Now()) {
			t.Errorf("%s has the time %s", r.Topic, r.Timestamp)
		}
	}
	if len(l.current.records) != 2 {
		t.Errorf("%d records", len(l.current.records))
	}
}
