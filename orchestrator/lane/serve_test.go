package lane

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// inputs is a reader of one input.
type inputs struct {
	Reader
	next *kgo.Record
}

func (r *inputs) Poll(ctx context.Context, _ int) kgo.Fetches {
	if r.next == nil {
		<-ctx.Done()
		return kgo.NewErrFetch(ctx.Err())
	}
	fetched := kgo.FetchPartition{Partition: r.next.Partition, Records: []*kgo.Record{r.next}}
	topic := r.next.Topic
	r.next = nil
	return kgo.Fetches{{Topics: []kgo.FetchTopic{{Topic: topic, Partitions: []kgo.FetchPartition{fetched}}}}}
}

// slow is a producer that commits when it is told to.
type slow struct {
	*resting
	begun, goesOn chan struct{}
}

func (p slow) Commit([]*kgo.Record) error {
	close(p.begun)
	<-p.goesOn
	return nil
}

// A lane that has ended commits nothing any more, for whatever reason it ended: here
// it sees that something hangs.
func TestALaneEndsAfterItsCommit(t *testing.T) {
	l, b := newLogs(t)
	l.cfg.SuperviseEvery = time.Hour
	here, _ := l.keys()
	l.inputs, l.orders = &inputs{}, &inputs{next: typed(l.topics.Orders, "", here, `{"workflow":"order"}`)}
	b.transactions = []OpenTransaction{hung(1, l.own(l.topics.Journal))}
	synctest.Test(t, func(t *testing.T) {
		p := slow{&resting{has: Transaction{0, 7}}, make(chan struct{}), make(chan struct{})}
		l.producers.ring[0] = p
		l.time.Pause = func(ctx context.Context, _ time.Duration) bool {
			select {
			case <-p.begun:
				return true
			case <-ctx.Done():
				return false
			}
		}
		ended := make(chan error, 1)
		ctx, stop := context.WithCancel(t.Context())
		go func() { ended <- l.Serve(ctx) }()
		synctest.Wait()
		select {
		case err := <-ended:
			t.Errorf("it ended while it committed: %v", err)
			stop()
			close(p.goesOn)
		default:
			close(p.goesOn)
			synctest.Wait()
			stop()
			if err := <-ended; err == nil {
				t.Error("it did not end because something hangs")
			}
		}
	})
}

// What was begun goes before what is new, so that it ends also where more comes than is
// carried. What is new has its turn, however much there is of the other.
func TestWhatWasBegunGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		l, _ := newLane(t)
		begun, orders, next := make(chan kgo.Fetches), make(chan kgo.Fetches), make(chan kgo.Fetches)
		fetched := func(topic string, n int, to chan<- kgo.Fetches) {
			for range n {
				select {
				case to <- brought(&kgo.Record{Topic: topic}):
				case <-ctx.Done():
				}
			}
		}
		go fetched(l.topics.Orders, ordersTurn, orders)
		go fetched(l.topics.Replies, 2*ordersTurn, begun)
		synctest.Wait()
		go begunFirst(ctx, begun, orders, next)
		var turns []int // of submissions
		for turn := range 3 * ordersTurn {
			synctest.Wait() // whoever reads has read on
			if r := (<-next).Records()[0]; r.Topic == l.topics.Orders {
				turns = append(turns, turn)
			}
		}
		stop()
		if turns[0] != ordersTurn-1 || turns[1] != 2*ordersTurn-1 || turns[2] != 2*ordersTurn+2 || len(turns) != ordersTurn {
			t.Errorf("submissions came at %v", turns)
		}
	})
}

// A lane commits in its turn, and what it decides until then is in the same batch. It asks
// once for each, and waits for none when it is told to stop.
func TestALaneCommitsInItsTurn(t *testing.T) {
	l, _ := newLane(t)
	var happens scripted
	for i := 0; len(happens) < 3; i++ {
		id := fmt.Sprint("o-", i)
		if l.byKey.Of([]byte(id)) == l.partition {
			happens = append(happens, Happened{What: Fetched, Fetches: brought(typed(l.topics.Orders, "", id, `{"workflow":"order"}`))})
		}
	}
	b := &inTurn{scripted: append(slices.Clone(happens[:2]), Happened{What: Turned}, happens[2], Happened{What: Committed}, Happened{What: Stopped}, Happened{What: Committed}, Happened{What: Stopped})}
	must(t, l.Run(t.Context(), b))
	if b.asked != 2 || len(b.batches) != 2 || len(b.batches[0].orders) != 2 {
		t.Errorf("it asked %d times, and committed %d batches", b.asked, len(b.batches))
	}
}

// inTurn is a script in which others go first.
type inTurn struct {
	scripted
	asked   int
	batches []*Batch
}

func (b *inTurn) Turn() bool          { b.asked++; return false }
func (b *inTurn) Commit(batch *Batch) { b.batches = append(b.batches, batch) }

// Lanes of an instance take turns. One that stops commits at once what it has decided, and is
// waited for by nobody.
func TestLanesTakeTurns(t *testing.T) {
	const itsTurn, toldToStop, hangs = "it has its turn", "it is told to stop", "something hangs"
	for _, name := range []string{itsTurn, toldToStop, hangs} {
		t.Run(name, func(t *testing.T) {
			l, b := newLogs(t)
			here, _ := l.keys()
			l.inputs, l.orders = &inputs{}, &inputs{next: typed(l.topics.Orders, "", here, `{"workflow":"order"}`)}
			synctest.Test(t, func(t *testing.T) {
				l.cfg.Turns, l.cfg.SuperviseEvery = new(Turns), time.Hour
				p := slow{&resting{has: Transaction{0, 7}}, make(chan struct{}), make(chan struct{})}
				close(p.goesOn)
				l.producers.ring[0] = p
				looks := make(chan struct{})
				l.time.Pause = func(ctx context.Context, _ time.Duration) bool {
					select {
					case <-looks:
						return true
					case <-ctx.Done():
						return false
					}
				}
				b.transactions = []OpenTransaction{hung(1, l.own(l.topics.Journal))}
				others := []*Turn{l.cfg.Turns.Ask(), l.cfg.Turns.Ask()}
				for _, other := range others {
					other.next.Stop() // it has no end here
				}
				ended := make(chan error, 1)
				ctx, stop := context.WithCancel(t.Context())
				go func() { ended <- l.Serve(ctx) }()
				began := func() bool {
					synctest.Wait()
					select {
					case <-p.begun:
						return true
					default:
						return false
					}
				}
				if time.Sleep(tooLong - time.Millisecond); began() {
					t.Error("it commits though others have their turn")
				}
				switch name {
				case itsTurn:
					if others[0].End(true); !began() {
						t.Error("it does not commit in its turn")
					}
					if n := l.cfg.Turns.under; n != 1 {
						t.Errorf("after its commit %d have their turn", n)
					}
				case hangs:
					close(looks)
					synctest.Wait()
				}
				stop()
				if err := <-ended; (err != nil) != (name == hangs) {
					t.Errorf("it ended: %v", err)
				}
				if began() == (name == hangs) {
					t.Errorf("it has committed: %t", name == hangs)
				}
				others[0].End(true)
				others[1].End(true)
				if l.cfg.Turns.under != 0 || len(l.cfg.Turns.waiting) != 0 {
					t.Errorf("then %d have their turn, and %d wait", l.cfg.Turns.under, len(l.cfg.Turns.waiting))
				}
			})
		})
	}
}
