package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/test/oracle"
	"github.com/waybill-dev/waybill/test/waybill"
)

// queue is who waits for a partition.
type queue struct {
	*testing.T
	*shares
	on awaited
}

// join has one more wait, and says that it may, or may not.
func (q queue) join(may bool) *waits {
	q.Helper()
	ctx, leave, err := q.shares.join(q.Context(), q.on)
	if (err == nil) != may || err != nil && !errors.Is(err, errSilent) {
		q.Fatalf("%+v: %v", q.on, err)
	}
	return &waits{ctx, leave}
}

// joins has so many more wait.
func (q queue) joins(n int) (all []*waits) {
	q.Helper()
	for range n {
		all = append(all, q.join(true))
	}
	return all
}

type waits struct {
	ctx   context.Context //nolint:containedctx // what is looked at
	leave func(answered bool)
}

// over counts those that were told to wait no longer, and lets these go.
func over(t *testing.T, all []*waits) (left []*waits) {
	t.Helper()
	synctest.Wait()
	for _, w := range all {
		if w.ctx.Err() == nil {
			left = append(left, w)
		} else {
			w.leave(false)
		}
	}
	return left
}

// full has all places taken.
func full(s *shares) {
	for s.take() {
	}
}

// Those that wait for a partition that answers nothing have a quarter of the places, and
// another quarter is for finding out which answer again. Others find theirs free.
func TestWhoWaitsForPartitionsThatAnswerNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShares(8)
		full(s)
		first := queue{t, s, awaited{"submission", 1}}
		all := first.joins(8)
		time.Sleep(s.patience - 1)
		if all = over(t, all); len(all) != 8 {
			t.Errorf("too early %d wait", len(all))
		}
		first.join(true).leave(false) // its caller has hung up
		time.Sleep(time.Nanosecond)
		if all = over(t, all); len(all) != 2 {
			t.Errorf("%d of 8 wait on", len(all))
		}
		first.join(false)
		for _, on := range []awaited{{"submission", 2}, {"command", 1}} {
			queue{t, s, on}.join(true).leave(true)
		}

		// Two more are silent. Each is tried, by one at a time.
		var tried []*waits
		for p := range int32(2) {
			q := queue{t, s, awaited{"submission", 2 + p}}
			tried = append(tried, q.join(true), q.join(true))
		}
		time.Sleep(s.patience)
		if tried = over(t, tried); len(tried) != 0 {
			t.Errorf("%d wait for others", len(tried))
		}
		for p := range int32(2) {
			q := queue{t, s, awaited{"submission", 2 + p}}
			tried = append(tried, q.join(true))
			q.join(false)
		}
		time.Sleep(s.patience - 1)
		if tried = over(t, tried); len(tried) != 2 {
			t.Errorf("too early %d try", len(tried))
		}
		third := queue{t, s, awaited{"submission", 4}}
		third.on.what = "command"
		slow := []*waits{third.join(true), third.join(true)}
		time.Sleep(s.patience)
		over(t, tried)
		over(t, slow)
		tried = nil
		for p := range int32(2) {
			tried = append(tried, queue{t, s, awaited{"submission", 2 + p}}.join(true))
		}
		third.join(false) // half of the places are taken

		// One that answers is as any other, and whoever waits for it may.
		tried[0].leave(true)
		healthy := queue{t, s, awaited{"submission", 2}}
		all = append(all, healthy.joins(8)...)
		time.Sleep(s.patience - 1)
		if n := len(over(t, all)); n != 10 {
			t.Errorf("%d of 10 wait", n)
		}
		tried[1].leave(true)
		for _, w := range all {
			w.leave(true)
		}
		third.join(true).leave(true) // the first are there no more
		if len(s.of) != 0 {
			t.Errorf("%d partitions are remembered", len(s.of))
		}
	})
}

// Who waits for a partition that is slow is answered as long as places are free, and ends
// to wait once three quarters are taken: not sooner than others would, and all at once.
func TestWhoWaitsForASlowPartitionWhilePlacesAreFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShares(8)
		slow, other := queue{t, s, awaited{"submission", 1}}, queue{t, s, awaited{"submission", 2}}
		for range 5 {
			s.take()
		}
		all, first := slow.joins(3), other.join(true)
		time.Sleep(10 * s.patience)
		if all = over(t, all); len(all) != 3 {
			t.Errorf("%d of 3 wait, though places are free", len(all))
		}
		slow.join(false) // it has its share
		first.leave(false)
		late := other.joins(1)
		s.free() // of one that is about nothing else
		s.take()
		s.take()
		if all = over(t, all); len(all) != 2 {
			t.Errorf("%d of 3 wait, and places are scarce", len(all))
		}
		if late = over(t, late); len(late) != 1 {
			t.Error("who began to wait a moment ago waits no more")
		}
		s.free()
		all[0].leave(true) // it was only slow
		all = append(all[1:], slow.joins(3)...)
		time.Sleep(10 * s.patience)
		if all = over(t, append(all, late...)); len(all) != 5 {
			t.Errorf("%d of 5 wait, though places are free again", len(all))
		}
		for _, w := range all {
			w.leave(true)
		}
		if len(s.waiting) != 0 || len(s.of) != 0 {
			t.Errorf("%d wait for %d partitions", len(s.waiting), len(s.of))
		}
	})
}

// Who leaves late takes nobody's place with it.
func TestWhoLeavesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShares(4)
		full(s)
		q := queue{t, s, awaited{"command", 1}}
		stays, late := q.join(true), q.join(true)
		time.Sleep(s.patience)
		synctest.Wait()
		if stays.ctx.Err() != nil || late.ctx.Err() == nil {
			t.Errorf("the first waits: %v, the second: %v", stays.ctx.Err(), late.ctx.Err())
		}
		stays.leave(true)
		next := q.join(true)
		late.leave(false)
		if len(s.waiting) != 1 || len(s.of) != 1 {
			t.Errorf("%d wait for %d partitions", len(s.waiting), len(s.of))
		}
		next.leave(true)
		q.join(true).leave(false)
		if len(s.waiting) != 0 || len(s.of) != 0 {
			t.Errorf("%d wait for %d partitions", len(s.waiting), len(s.of))
		}
	})
}

// However many wait for a partition that answers, and however long each does: none is turned
// away.
func TestABusyPartitionTurnsNobodyAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShares(128)
		hot := queue{t, s, awaited{"submission", 1}}
		all := hot.joins(100)
		for range 1000 {
			time.Sleep(s.patience / 10) // so each waits for ten times the patience
			synctest.Wait()
			if err := all[0].ctx.Err(); err != nil {
				t.Fatalf("one was turned away: %v", err)
			}
			all[0].leave(true)
			all = append(all[1:], hot.join(true))
		}
		for _, w := range all {
			w.leave(true)
		}
	})
}

// Any number may wait where any number of requests is answered.
func TestAnyNumberWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queue{t, newShares(0), awaited{"submission", 1}}
		var all []*waits
		for range 1000 {
			all = append(all, q.join(true))
		}
		time.Sleep(time.Hour)
		if left := over(t, all); len(left) != 1000 {
			t.Errorf("%d are left", len(left))
		}
	})
}

// A partition of the orders, or of the commands, without a leader keeps nobody from
// what is about the others.
func TestAPartitionWithoutALeaderLeavesPlaces(t *testing.T) {
	t.Parallel()
	for what, topic := range map[string]func(*waybill.Waybill) string{
		"submission": func(w *waybill.Waybill) string { return w.Topics.Orders },
		"command":    func(w *waybill.Waybill) string { return w.Topics.Commands },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := waybill.New(t)
			i := w.Run("i-1", t.TempDir())
			w.Register(i, "workflow: brief\nsteps: [{name: nap, sleep: 1ms}]\n")
			const most = 8
			server := New(Config{Requests: most})
			server.shares.enough = 0 // places are scarce, however many of these wait
			server.Attach(i.Instance)
			listener := httptest.NewServer(server)
			defer listener.Close()
			defer server.Detach(errors.New("over"))
			c, err := NewClient(listener.URL)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()

			var ids [2][]string // by partition
			for n := 0; len(ids[0]) < 2*most || len(ids[1]) < 2*most; n++ {
				id := fmt.Sprint("o-", n)
				if p := i.Partition(id); p < 2 {
					ids[p] = append(ids[p], id)
				}
			}
			none := ids[1][1]
			ask := func(id string) error {
				_, err := c.Submit(t.Context(), &Submission{ID: id, Workflow: "brief"})
				return err
			}
			if what == "command" {
				for p := range ids {
					ids[p] = ids[p][:1]
					if err := ask(ids[p][0]); err != nil {
						t.Fatal(err)
					}
					oracle.Until(t, "an order that has ended", func() error {
						o, err := c.Order(t.Context(), ids[p][0])
						if err == nil && !o.ProcessState.Final() {
							err = errors.New("not yet")
						}
						return err
					})
				}
				ask = func(id string) error {
					_, err := c.Command(t.Context(), id, &events.Command{Command: events.CommandCancel})
					problem := new(Problem)
					if errors.As(err, &problem) && problem.Status == http.StatusConflict {
						return nil // it has ended long ago
					}
					return err
				}
			}
			patience := func(d time.Duration) {
				server.shares.mu.Lock()
				defer server.shares.mu.Unlock()
				server.shares.patience = d
			}
			turnedAway := func(err error) {
				t.Helper()
				problem := new(Problem)
				if !errors.As(err, &problem) || problem.Status != http.StatusServiceUnavailable || problem.RetryAfter <= 0 {
					t.Errorf("who found no place: %v", err)
				}
			}

			at := w.Broker.Unwritable(t, topic(w), 1)
			patience(10 * time.Millisecond)
			first, answers := make(chan error, 1), make(chan error, most)
			go func() { first <- ask(ids[1][0]) }()
			oracle.Until(t, "the partition is written to", func() error {
				if at.Tries() == 0 {
					return errors.New("not yet")
				}
				return nil
			})
			for n := 1; n < most; n++ {
				go func() { answers <- ask(ids[1][n%len(ids[1])]) }()
			}
			for range most - most/4 {
				turnedAway(<-answers)
			}
			turnedAway(ask(ids[1][0]))
			if what == "command" {
				problem := new(Problem)
				if err := ask(none); !errors.As(err, &problem) || problem.Status != http.StatusNotFound {
					t.Errorf("for an order that does not exist: %v", err)
				}
			}
			patience(time.Hour) // how long others take is not the question
			for n := range most {
				if err := ask(ids[0][n%len(ids[0])]); err != nil {
					t.Errorf("about another partition: %v", err)
				}
			}
			server.shares.mu.Lock()
			of := server.shares.of[awaited{what, 1}]
			silentSince := of.sign
			server.shares.mu.Unlock()
			at.Heal()
			if err := <-first; err != nil {
				t.Errorf("who waited for the leader: %v", err)
			}
			for range most/4 - 1 {
				if err := <-answers; err != nil {
					t.Errorf("who waited behind, after others were turned away: %v", err)
				}
			}
			if err := ask(ids[1][0]); err != nil {
				t.Errorf("behind those: %v", err)
			}
			if of.sign.Equal(silentSince) {
				t.Error("nobody noticed that the partition answers")
			}
			oracle.Until(t, "an end of all orders", func() error {
				page, err := c.Orders(t.Context(), Filter{State: "Pending"}, 1, "")
				if err == nil && len(page.Orders) > 0 {
					err = errors.New("not yet")
				}
				return err
			})
			if !t.Failed() {
				w.Audit() // all were read
			}
		})
	}
}

// A history of a partition that answers nothing may be had later, and is nobody's fault.
func TestAHistoryThatCannotBeReadNow(t *testing.T) {
	for _, why := range []error{orchestrator.ErrSilent, context.DeadlineExceeded} { // the latter where no reader was free
		err := New(Config{}).orderError("o-1", "read the history of order", fmt.Errorf("partition 1: %w", why))
		var status huma.StatusError
		var headers huma.HeadersError
		if !errors.As(err, &status) || status.GetStatus() != http.StatusServiceUnavailable || !errors.As(err, &headers) || headers.GetHeaders().Get("Retry-After") == "" {
			t.Errorf("it is told: %v", err)
		}
	}
}
