package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"golang.org/x/time/rate"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/projections"
)

// What an instance keeps of bulk acts, and does of them at a time.
const (
	bulkOrders   = 100_000 // that one is about, at most
	keptOrders   = 2 * bulkOrders
	keptBulk     = 100 // that were started
	preparedBulk = 8
	preparedFor  = 15 * time.Minute
	mostBulk     = 4  // carried out at a time
	bulkAtOnce   = 16 // orders of one act
	newerBulk    = 10_000
	keptFailures = 100
)

// An order whose owner does not answer is asked so often. Where as many orders as are acted on at a time
// were all asked in vain, no other will fare better.
const (
	bulkTries = 5
	bulkPause = time.Second
)

// bulkPatience is how long the orders of an act may be looked up.
const (
	bulkPatience = 20 * time.Second

	_ = uint(bodyTimeout - bulkPatience) // not negative; see bodyTimeout
)

var (
	errInstanceEnds = errors.New("its instance ended, or was restarted. What was under way then may have been done: the history of each order has the act's id")
	errBulkStopped  = errors.New("stopped")
)

// bulkAct is an act and the orders that it is about.
type bulkAct struct {
	caller  *identity.Caller // who prepared it; nil once its instance was restarted
	command events.Command
	filter  projections.Filter
	named   bool // a state, by who prepared it

	mu     sync.Mutex
	record Bulk
	orders []BulkOrder // nil where they are not kept
	stop   context.CancelCauseFunc
	vain   int // so many orders in a row got no answer
}

// told is the record as it is now.
func (b *bulkAct) told() Bulk {
	b.mu.Lock()
	defer b.mu.Unlock()
	told := b.record
	told.Failures = slices.Clone(told.Failures)
	return told
}

// seenBy says whether an act is about nothing but what a caller has the role for.
func (b *bulkAct) seenBy(c *identity.Caller, role identity.Role) bool {
	return b.madeBy(c) || c.Everywhere(role) || b.record.Filter.Workflow != "" && c.May(role, b.record.Filter.Workflow)
}

// madeBy says whether a caller prepared the act. Nobody did once its instance was restarted.
func (b *bulkAct) madeBy(c *identity.Caller) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.caller != nil && b.caller.Subject == c.Subject && b.caller.Method == c.Method
}

// page is a part of the orders.
func (b *bulkAct) page(after, limit int) (page BulkOrders, kept bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.orders == nil {
		return page, false
	}
	after = min(after, len(b.orders))
	end := min(after+limit, len(b.orders))
	page.Orders = make([]BulkRow, end-after)
	for n, o := range b.orders[after:end] {
		page.Orders[n].BulkOrder = o
	}
	if end < len(b.orders) {
		page.Next = end
	}
	return page, true
}

// lookUp finds the orders. One that moves meanwhile is found once.
func (b *bulkAct) lookUp(ctx context.Context, i *orchestrator.Instance) error {
	seen := make(map[string]bool)
	b.orders = []BulkOrder{}
	left, err := b.each(ctx, i, func(o *projections.Order) bool {
		if seen[o.ID] {
			return true
		}
		if len(b.orders) == bulkOrders {
			b.record.More = true
			return false
		}
		seen[o.ID] = true
		b.orders = append(b.orders, BulkOrder{OrderID: o.ID, State: o.State, Seq: o.Seq, Outcome: OutcomePending})
		return true
	})
	b.record.LeftOut, b.record.Matched = LeftOut(left), len(b.orders)
	return err
}

// each calls yield with each order under the filter to which the command can do something, until that is enough.
func (b *bulkAct) each(ctx context.Context, i *orchestrator.Instance, yield func(*projections.Order) bool) (left orchestrator.LeftOut, _ error) {
	for filter := b.filter; ; {
		page, without, err := i.List(ctx, filter)
		if err != nil {
			return without, err
		}
		left = without
		for _, o := range page.Orders {
			if b.means(i, o) && !yield(o) {
				return left, nil
			}
		}
		if filter.After = page.Next; page.Next == nil {
			return left, nil
		}
	}
}

// means says whether the command can do something to an order under the filter.
func (b *bulkAct) means(i *orchestrator.Instance, o *projections.Order) bool {
	summary := summaryOf(i.Partition(o.ID), o, time.Now())
	return Fits(b.command.Command, &summary, b.named)
}

// carryOut acts on the orders in turn until ctx ends, which says why, or no owner answers.
func (s *Server) carryOut(ctx context.Context, u *used, b *bulkAct) {
	stop := context.AfterFunc(u.alive, func() { b.stop(errInstanceEnds) })
	defer stop()
	defer b.stop(nil)
	// What has begun ends as it would, unless the instance ends.
	begun, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	detach := context.AfterFunc(u.alive, end)
	defer detach()
	turns := make(chan int)
	var workers sync.WaitGroup
	for range bulkAtOnce {
		workers.Go(func() {
			for n := range turns {
				s.bulkTurn(ctx, begun, u.Instance, b, n)
			}
		})
	}
	saved := make(chan struct{})
	go func() {
		defer close(saved)
		s.bulk.saveWhile(ctx, b)
	}()
	pace := rate.NewLimiter(rate.Limit(b.record.Rate), 1)
	for n := range b.orders {
		if pace.Wait(ctx) != nil {
			break
		}
		select {
		case turns <- n:
		case <-ctx.Done():
		}
	}
	close(turns)
	workers.Wait()
	why := context.Cause(ctx)
	newer := s.newer(ctx, u.Instance, b)
	b.stop(nil)
	<-saved

	b.mu.Lock()
	b.record.EndedAt, b.record.Newer = &Time{time.Now()}, newer
	switch r := &b.record; {
	case r.Done+r.Left+r.Failed == r.Matched:
		r.State = BulkDone
	case errors.Is(why, errInstanceEnds):
		r.State, r.Reason = BulkCutOff, text(why.Error())
	default:
		r.State, r.Reason = BulkStopped, text(strings.TrimPrefix(why.Error(), errBulkStopped.Error()+" "))
	}
	r := b.record
	b.mu.Unlock()
	s.bulk.save(b)
	s.audit(ctx, "bulk act ended", "command", r.Command, "on", r.ID, "state", string(r.State), "matched", strconv.Itoa(r.Matched),
		"done", strconv.Itoa(r.Done), "left", strconv.Itoa(r.Left), "failed", strconv.Itoa(r.Failed))
}

// newer counts the orders under the filter that an act was not about, nil if that cannot be known.
func (s *Server) newer(ctx context.Context, i *orchestrator.Instance, b *bulkAct) *int {
	if b.record.More { // which of the others came later is not known
		return nil
	}
	about := make(map[string]bool, len(b.orders))
	for n := range b.orders {
		about[b.orders[n].OrderID] = true
	}
	count := 0
	ctx, cancel := context.WithTimeout(ctx, s.bulk.patience)
	defer cancel()
	if _, err := b.each(ctx, i, func(o *projections.Order) bool {
		if !about[o.ID] {
			count++
		}
		return count < newerBulk
	}); err != nil {
		return nil
	}
	return &count
}

// bulkTurn acts on one order.
func (s *Server) bulkTurn(ctx, begun context.Context, i *orchestrator.Instance, b *bulkAct, n int) {
	outcome, err := s.bulkOne(ctx, begun, i, b, &b.orders[n])
	if ctx.Err() != nil && outcome == OutcomePending {
		return // it was not known what became of it when the act was stopped
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.orders[n].Outcome = outcome
	switch outcome {
	case OutcomeDone:
		b.record.Done++
	case OutcomeLeft:
		b.record.Left++
	case OutcomeFailed:
		b.record.Failed++
		if len(b.record.Failures) < keptFailures {
			b.record.Failures = append(b.record.Failures, BulkFailure{b.orders[n].OrderID, err.Error()})
		}
	}
	if b.vain++; !unanswered(err) {
		b.vain = 0
	}
	if b.vain == bulkAtOnce {
		b.stop(fmt.Errorf("%w, because of the last %d orders none was answered for: %w", errBulkStopped, b.vain, err))
	}
}

// unanswered says that it is not known what became of a command, or that it cannot be done now.
func unanswered(err error) bool {
	problem, ok := errors.AsType[huma.StatusError](err)
	return ok && problem.GetStatus() == http.StatusServiceUnavailable
}

// bulkOne has one order do the command, if it is still what was looked up. It tries no more after ctx ends, and what it
// has begun ends with begun.
func (s *Server) bulkOne(ctx, begun context.Context, i *orchestrator.Instance, b *bulkAct, found *BulkOrder) (BulkOutcome, error) {
	pause := time.NewTicker(bulkPause)
	defer pause.Stop()
	sent := false // a command, which may have been acted on
	for try := 1; ; try++ {
		o, err := i.Showing(found.OrderID)
		switch {
		case errors.Is(err, projections.ErrNotFound), errors.Is(err, projections.ErrForgotten):
			return OutcomeLeft, nil
		case err != nil:
			err = s.orderError(found.OrderID, "look at order", err)
		case !sent && !b.stands(i, o, found):
			return OutcomeLeft, nil
		default:
			c := b.command
			if err = s.act(begun, i, found.OrderID, &c, func() string { return o.Workflow }); err == nil {
				return OutcomeDone, nil
			}
			sent = sent || !strings.HasPrefix(err.Error(), notSent)
		}
		if !unanswered(err) || try == bulkTries {
			return OutcomeFailed, err
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return OutcomePending, err
		}
	}
}

// stands says whether an order is still what was looked up: it is under the filter, and what kept it in Error
// is what kept it there.
func (b *bulkAct) stands(i *orchestrator.Instance, o *projections.Order, found *BulkOrder) bool {
	if found.State == projections.Error && o.Seq != found.Seq {
		return false
	}
	may := b.caller.May(identity.Operator, o.Workflow) && (len(b.filter.Labels) == 0 || b.caller.May(identity.PayloadReader, o.Workflow))
	return may && b.filter.Selects(o) && b.means(i, o)
}

// bulkActs are those that an instance knows.
type bulkActs struct {
	dir      string // where the records of those are that were started; "" for none
	log      *slog.Logger
	patience time.Duration // of a look-up

	mu       sync.Mutex
	prepared []*bulkAct
	started  []*bulkAct // oldest first
}

// openBulk reads what is in the directory. Those that were being carried out ended with their instance.
func openBulk(dir string, log *slog.Logger) *bulkActs {
	a := &bulkActs{dir: dir, log: log, patience: bulkPatience}
	if dir == "" {
		return a
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		log.Warn("the records of bulk acts cannot be listed", "dir", dir, "error", err)
	}
	for _, file := range files {
		b := new(bulkAct)
		content, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(content, &b.record)
		}
		if err != nil || b.record.PreparedAt == nil || b.record.StartedAt == nil {
			log.Warn("the record of a bulk act cannot be read, and is left out", "file", file, "error", err)
			continue
		}
		if b.record.State == BulkRunning {
			b.record.State, b.record.Reason = BulkCutOff, text(errInstanceEnds.Error()+"; the numbers are those of up to a second before")
			a.save(b)
		}
		a.started = append(a.started, b)
	}
	slices.SortFunc(a.started, func(x, y *bulkAct) int { return x.record.StartedAt.Compare(y.record.StartedAt.Time) })
	return a
}

// add keeps an act that is prepared, and forgets the oldest of those.
func (a *bulkActs) add(b *bulkAct) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.prepared = append(a.prepared, b); len(a.prepared) > preparedBulk {
		a.prepared = slices.Delete(a.prepared, 0, 1)
	}
}

// all are the acts, newest first.
func (a *bulkActs) all(now time.Time) []*bulkAct {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forget(now)
	all := slices.Concat(a.started, a.prepared)
	slices.SortStableFunc(all, func(x, y *bulkAct) int { return y.record.PreparedAt.Compare(x.record.PreparedAt.Time) })
	return all
}

func (a *bulkActs) forget(now time.Time) {
	a.prepared = slices.DeleteFunc(a.prepared, func(b *bulkAct) bool { return now.Sub(b.record.PreparedAt.Time) > preparedFor })
}

// find is nil if no act is known by that id.
func (a *bulkActs) find(id string, now time.Time) *bulkAct {
	for _, b := range a.all(now) {
		if b.record.ID == id {
			return b
		}
	}
	return nil
}

// start has an act that is prepared be carried out under the context, unless too many are, with what its caller may now. Only then it has started.
func (a *bulkActs) start(ctx context.Context, b *bulkAct, caller *identity.Caller) (_ context.Context, started bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	running := 0
	for _, other := range a.started {
		if other.told().State == BulkRunning {
			running++
		}
	}
	n := slices.Index(a.prepared, b)
	if n < 0 || running == mostBulk {
		return nil, false
	}
	a.prepared = slices.Delete(a.prepared, n, n+1)
	a.started = append(a.started, b)
	b.mu.Lock()
	ctx, b.stop = context.WithCancelCause(ctx)
	b.record.State, b.record.StartedAt, b.caller = BulkRunning, &Time{time.Now()}, caller
	b.mu.Unlock()
	a.save(b)
	a.makeRoom()
	return ctx, true
}

// makeRoom forgets the oldest acts, and the orders of older ones. a.mu is held.
func (a *bulkActs) makeRoom() {
	for len(a.started) > keptBulk && a.started[0].told().State != BulkRunning {
		if a.dir != "" {
			if err := os.Remove(a.file(a.started[0].record.ID)); err != nil {
				a.log.Warn("the record of an old bulk act cannot be removed", "error", err)
			}
		}
		a.started = slices.Delete(a.started, 0, 1)
	}
	kept := 0
	for _, b := range slices.Backward(a.started) {
		b.mu.Lock()
		if kept += len(b.orders); kept > keptOrders && b.record.State != BulkRunning {
			b.orders = nil
		}
		b.mu.Unlock()
	}
}

// stop ends an act that is carried out, and forgets one that is prepared.
func (a *bulkActs) stop(b *bulkAct, why string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.prepared = slices.DeleteFunc(a.prepared, func(other *bulkAct) bool { return other == b })
	b.mu.Lock()
	defer b.mu.Unlock()
	switch b.record.State {
	case BulkPrepared:
		b.record.State, b.record.Reason, b.record.EndedAt = BulkStopped, text(why), &Time{time.Now()}
	case BulkRunning:
		b.stop(fmt.Errorf("%w %s", errBulkStopped, why))
	}
}

func (a *bulkActs) file(id string) string { return filepath.Join(a.dir, id+".json") }

// saveWhile keeps the record of an act up to date while it is carried out.
func (a *bulkActs) saveWhile(ctx context.Context, b *bulkAct) {
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for {
		select {
		case <-again.C:
			a.save(b)
		case <-ctx.Done():
			return
		}
	}
}

// save writes the record of an act. Without it the act is carried out all the same, and unknown once its
// instance ends: the history of each order has it.
func (a *bulkActs) save(b *bulkAct) {
	if a.dir == "" {
		return
	}
	told := b.told()
	content, err := json.Marshal(&told)
	if err == nil {
		err = os.MkdirAll(a.dir, 0o700)
	}
	if temporary := a.file(told.ID) + ".new"; err == nil {
		if err = os.WriteFile(temporary, content, 0o600); err == nil {
			err = os.Rename(temporary, a.file(told.ID))
		}
	}
	if err != nil {
		a.log.Warn("the record of a bulk act cannot be written", "id", told.ID, "error", err)
	}
}
