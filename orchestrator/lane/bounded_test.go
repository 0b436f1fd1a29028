package lane

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/decide"
	"github.com/waybill-dev/waybill/projections"
)

// succeeding is beside a lane whose commits succeed: after what is to happen first.
type succeeding struct {
	t       *testing.T
	first   []Happened
	pending *Batch
	batches []*Batch
}

func (c *succeeding) Commit(b *Batch) {
	c.pending, c.batches = b, append(c.batches, b)
	const most = batchBytes + 4*events.MaxValue + 16<<10 // and what the last input adds
	if b.bytes > most {
		c.t.Errorf("a transaction of %d bytes", b.bytes)
	}
}

// Ask: all replies were read, which the next tick sees.
func (*succeeding) Deliver(*Delivery) {}
func (*succeeding) Confirm([]int64)   {}
func (*succeeding) AskOrders()        {}
func (*succeeding) Turn() bool        { return true }
func (c *succeeding) Ask()            { c.first = append(c.first, Happened{What: Told}, Happened{What: Ticked}) }

func (c *succeeding) Next(w Wanted) Happened {
	switch {
	case len(c.first) > 0:
		h := c.first[0]
		c.first = c.first[1:]
		return h
	case c.pending != nil:
		c.pending = nil
		return Happened{What: Committed}
	case w.Look:
		return Happened{What: Idle}
	}
	return Happened{What: Stopped}
}

// What one poll brings, and what is due at once, becomes as many transactions as it
// takes.
func TestATransactionIsBounded(t *testing.T) {
	for name, due := range map[string]bool{"inputs": false, "what is due": true} {
		t.Run(name, func(t *testing.T) {
			l := newParkingLane(t)
			long := `"` + strings.Repeat("x", 900_000) + `"`
			l.world.flows.Add(parseFlow(t, `
workflow: twice
steps: [{name: a, agent: x, after: [], timeout: 1s, retry: {attempts: 2, backoff: 0s}}, {name: b, agent: x, after: [], timeout: 1s, retry: {attempts: 2, backoff: 0s}}]`))
			const orders = 40
			var all []*kgo.Record
			for n := 0; len(all) < orders; n++ {
				if id := fmt.Sprint("o-", n); l.byKey.Of([]byte(id)) == l.partition {
					r := typed(l.topics.Orders, "", id, `{"workflow":"twice","input":`+long+`}`)
					l.offset++
					r.Offset = l.offset
					all = append(all, r)
				}
			}
			beside := &succeeding{t: t}
			if due {
				past := l.env()
				past.Now = past.Now.Add(-time.Minute)
				l.world.away[l.topics.Requests("x")] = "gone" // they wait until it is back
				for _, r := range all {
					l.take(decide.Submit(past, nil, &decide.Input{Record: new(decide.Record), Order: string(r.Key), Submission: events.Submission{Workflow: "twice", Input: []byte(long)}}))
					l.commits(t)
				}
				delete(l.world.away, l.topics.Requests("x"))
				beside.first = []Happened{{What: Ticked}}
			} else {
				fetched := kgo.FetchPartition{Partition: l.partition, Records: all}
				beside.first = []Happened{{What: Fetched, Fetches: kgo.Fetches{{Topics: []kgo.FetchTopic{{Topic: l.topics.Orders, Partitions: []kgo.FetchPartition{fetched}}}}}}}
			}
			must(t, l.Run(t.Context(), beside))
			if len(beside.batches) < 4 {
				t.Errorf("%d transactions", len(beside.batches))
			}
			for _, r := range all {
				o, err := l.order(string(r.Key))
				must(t, err)
				if o == nil || o.State != projections.Processing || o.Steps[1].Attempt != 1 {
					t.Fatalf("order %s: %+v", r.Key, o)
				}
			}
			if !due && l.position.At(events.InputOrders) != l.offset+1 || l.Busy() {
				t.Errorf("the position is %d; busy: %t", l.position.At(events.InputOrders), l.Busy())
			}
		})
	}
}
