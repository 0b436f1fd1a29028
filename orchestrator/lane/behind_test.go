package lane

import (
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/projections"
)

// An input that cannot be forwarded now keeps waiting what came behind it on its topic,
// and nothing else; other submissions do not wait. It is forwarded once, as soon as it
// can be.
func TestForwardingWaits(t *testing.T) {
	for _, added := range []bool{false, true} {
		l := newParkingLane(t)
		_, elsewhere := l.keys()
		first := l.ids[0]
		must(t, l.decide([]*kgo.Record{typed(l.topics.Orders, "", first, `{"workflow":"order"}`)}))
		l.commits(t)
		before := l.position
		var learnt []string
		l.world.learns = func(topics []string) { learnt = append(learnt, topics...) }

		stray, letter := typed(l.topics.Replies, "", elsewhere, "stray"), typed(l.topics.Replies, "", "\xff", "")
		reply := typed(l.topics.Replies, "", first, fmt.Sprintf(`{"order":%q,"step":"ship","attempt":1,"status":"completed"}`, first))
		letter.Offset, reply.Offset = 8, 9
		marker := typed(l.topics.Commands, "", "", "")
		marker.Attrs = kgo.NewRecordAttrs(kgo.RecordAttrsOpts{Transactional: true, Control: true})
		if added {
			l.position.SetOf(1, 17, 0)
			for _, r := range []*kgo.Record{stray, letter, reply, marker} {
				r.Partition = 17
			}
		}
		order, other := typed(l.topics.Orders, "", elsewhere, "hello"), typed(l.topics.Orders, "", l.ids[1], `{"workflow":"order"}`)
		order.Offset, other.Offset = 8, 9
		l.world.away[l.topics.Replies], l.world.away[l.topics.Orders], l.world.away[l.topics.Commands] = "no leader", "no leader", "no leader"
		read, orders := []*kgo.Record{stray, letter, reply, order, other, marker}, int64(8)
		if added { // and nothing is parked
			read, orders = []*kgo.Record{stray, letter, reply, other, marker}, 10
		}
		must(t, l.decide(read))
		if !l.closed || !l.Busy() {
			t.Error("it reads on what must wait")
		}
		written := func() (all []string) {
			for _, r := range l.current.records {
				if r.Topic == l.topics.Replies || r.Topic == l.topics.Orders || r.Topic == l.topics.DeadLetters {
					all = append(all, fmt.Sprintf("%s %q", r.Topic, r.Value))
				}
			}
			return all
		}
		if got := written(); len(got) != 0 || l.position.At(1) != before.At(1) || l.position.Of(1, 17) > 0 || l.position.At(0) != orders || l.position.At(2)+l.position.Of(2, 17) < 7 {
			t.Errorf("it wrote %q; the position is %v", got, l.position)
		}
		if o, err := l.order(l.ids[1]); err != nil || o == nil || o.State != projections.Processing {
			t.Errorf("another order: %+v, %v", o, err)
		}
		l.commits(t)
		learnt = nil
		must(t, l.supervise())
		if got := written(); len(got)+len(l.rest) != 0 || !slices.Contains(learnt, l.topics.Replies) {
			t.Errorf("it wrote %q, and asked about %q", got, learnt)
		}
		clear(l.world.away)
		must(t, l.supervise())
		must(t, l.decideOn(l.rest))
		want := []string{`waybill.orders "hello"`, `waybill.replies "stray"`, `waybill.dead-letters ""`}
		if added {
			want = append(want[1:], fmt.Sprintf("waybill.replies %q", reply.Value))
		}
		if got := written(); !slices.Equal(got, want) {
			t.Errorf("then it wrote %q", got)
		}
		if o, err := l.order(first); err != nil || !added && o.Step("ship").State != projections.Completed {
			t.Errorf("the reply behind it: %+v, %v", o, err)
		}
		if at := l.position.At(0); at != 10 || l.closed || l.Busy() && len(l.behind)+len(l.parked.inputs)+len(l.rest) > 0 {
			t.Errorf("the position in the orders is %d", at)
		}
		if at := max(l.position.At(1), l.position.Of(1, 17)); at != 10 {
			t.Errorf("the position in the replies is %d", at)
		}
	}
}
