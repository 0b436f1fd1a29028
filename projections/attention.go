package projections

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waybill-dev/waybill/events"
)

// alertedAt is when the open alert of an order was raised that waits for an
// operator; zero if it does not.
func (o *Order) alertedAt() time.Time {
	if o.State != Error || o.Alert == nil {
		return time.Time{}
	}
	return o.Alert.At
}

// held says whether deciding on what this is of has failed, and waits for an operator.
func (o *Order) held() bool { return o.Hold != nil && !o.alertedAt().IsZero() }

// indexAlert moves an order in the index of open alerts, which says of each whether it is held.
func indexAlert(b *pebble.Batch, partition int32, id string, old, o *Order) error {
	before, now := old.alertedAt(), o.alertedAt()
	if !before.IsZero() && !now.Equal(before) {
		if err := b.Delete(openKey(kindAlert, partition, before, id), nil); err != nil {
			return err
		}
	}
	if now.IsZero() || now.Equal(before) && o.held() == old.held() {
		return nil
	}
	return b.Set(openKey(kindAlert, partition, now, id), heldMark(o), nil)
}

func heldMark(o *Order) []byte {
	if o.held() {
		return []byte{1}
	}
	return nil
}

// indexOpen moves an order in the index of open approvals, or of those that wait for signals. A zero time is none.
func indexOpen(b *pebble.Batch, kind byte, partition int32, order string, before, now time.Time) error {
	if now.Equal(before) {
		return nil
	}
	if !before.IsZero() {
		if err := b.Delete(openKey(kind, partition, before, order), nil); err != nil {
			return err
		}
	}
	if now.IsZero() {
		return nil
	}
	return b.Set(openKey(kind, partition, now, order), nil, nil)
}

// OpenPlace is where an order that waits for somebody stands in a listing: by a time, then by id.
type OpenPlace struct {
	At    time.Time // to the millisecond
	Order string
}

// OpenPage is a part of the orders that wait for somebody. As a [Page] it may end early.
type OpenPage struct {
	// Orders are without their payloads.
	Orders []*Order
	// Next is the last place that is on this page, nil when there is no next page. It has no order, and so stands before all
	// of its time, where the page ends between two milliseconds.
	Next *OpenPlace
	// Looked is how many orders were read for it.
	Looked int
}

// Alerts returns orders with an open alert of all partitions below partitions but
// for those without, newest alert first, at most limit of them. It goes on behind
// the place after, unless that is nil, and ends with ctx. Orders of workflows that are not
// visible are passed over; nil means that all are. A page ends at one that is not passed
// over, so that its place tells nothing of the others, or between two milliseconds once it has cost enough: then it may have
// fewer than limit, or none, though more follow.
func (s *Store) Alerts(ctx context.Context, partitions int32, without []int32, after *OpenPlace, limit int, visible func(workflow string) bool) (OpenPage, error) {
	return s.open(ctx, &opening{kind: kindAlert, since: (*Order).alertedAt}, partitions, without, after, limit, visible)
}

// AlertsAbout returns in the same way those of a reason, the oldest alert first.
func (s *Store) AlertsAbout(ctx context.Context, reason events.AlertReason, partitions int32, without []int32, after *OpenPlace, limit int, visible func(workflow string) bool) (OpenPage, error) {
	about := func(o *Order) bool { return o.Alert.About() == reason }
	return s.open(ctx, &opening{kindAlert, (*Order).alertedAt, true, about}, partitions, without, after, limit, visible)
}

// AlertReasons are the open alerts by their reason.
type AlertReasons struct {
	Of map[events.AlertReason]*AlertsOf
	// More says that there are others, newer ones, than were looked at.
	More bool
}

// AlertsOf are the open alerts of a reason: how many there are, also by where their orders stand, and the first of them,
// oldest first.
type AlertsOf struct {
	Number int
	At     map[AlertedAt]int
	Oldest []*Order
}

// AlertedAt is a step that an alert is about, or its undo; empty if it is about its order.
type AlertedAt struct {
	Workflow, Step string
	Undo           bool
}

// AlertReasons counts the open alerts that [Store.Alerts] lists, the oldest first, as far as a page may cost, and returns
// of each reason at most limit.
func (s *Store) AlertReasons(ctx context.Context, partitions int32, without []int32, limit int, visible func(workflow string) bool) (AlertReasons, error) {
	r := AlertReasons{Of: make(map[events.AlertReason]*AlertsOf)}
	count := func(o *Order) bool {
		of := r.Of[o.Alert.About()]
		if of == nil {
			of = &AlertsOf{At: make(map[AlertedAt]int)}
			r.Of[o.Alert.About()] = of
		}
		of.At[AlertedAt{o.Workflow, o.Alert.Step, o.Toward != "" && o.Alert.Step != ""}]++
		if of.Number++; of.Number <= limit {
			of.Oldest = append(of.Oldest, o)
		}
		return false
	}
	page, err := s.open(ctx, &opening{kindAlert, (*Order).alertedAt, true, count}, partitions, without, nil, 1, visible)
	r.More = page.Next != nil
	return r, err
}

// Approvals returns in the same way orders that wait for people who decide, the one that has waited
// longest first.
func (s *Store) Approvals(ctx context.Context, partitions int32, without []int32, after *OpenPlace, limit int, visible func(workflow string) bool) (OpenPage, error) {
	return s.open(ctx, &opening{kind: kindApproval, since: (*Order).ApprovingSince}, partitions, without, after, limit, visible)
}

// Listeners selects steps that wait for signals. Its zero value selects all.
type Listeners struct {
	Signal   string // that is still waited for
	Workflow string
}

// Selects says whether it selects a step of an order.
func (l *Listeners) Selects(o *Order, s *Step) bool {
	return s.State == Listening && (l.Workflow == "" || o.Workflow == l.Workflow) && (l.Signal == "" || slices.Contains(s.Listens.Names, l.Signal))
}

// Listening returns in the same way orders of which steps wait for signals, the one first that has not changed for longest.
func (s *Store) Listening(ctx context.Context, which Listeners, partitions int32, without []int32, after *OpenPlace, limit int, visible func(workflow string) bool) (OpenPage, error) {
	wanted := func(o *Order) bool {
		for i := range o.Steps {
			if which.Selects(o, &o.Steps[i]) {
				return true
			}
		}
		return false
	}
	return s.open(ctx, &opening{kind: kindListens, since: (*Order).listensAt, wanted: wanted}, partitions, without, after, limit, visible)
}

// opening is a way through the index of a kind, in which orders stand by a time.
type opening struct {
	kind      byte
	since     func(*Order) time.Time
	backwards bool
	wanted    func(*Order) bool // which of those that are visible are on the page; nil means all
}

// end is where a page may end that has cost enough, before next: behind the last that is visible, or between two
// milliseconds, so that its place names no order that is not visible. Within a millisecond of which none is, it is nil.
func (by *opening) end(visible *OpenPlace, looked, next OpenPlace) *OpenPlace {
	switch {
	case looked.At.Equal(next.At) || visible != nil && *visible == looked:
		return visible
	case by.backwards:
		return &OpenPlace{At: looked.At}
	}
	return &OpenPlace{At: next.At}
}

func (s *Store) open(ctx context.Context, by *opening, partitions int32, without []int32, after *OpenPlace, limit int, visible func(workflow string) bool) (OpenPage, error) {
	return s.openUpTo(ctx, pageKeys, by, partitions, without, after, limit, visible)
}

// openUpTo is open with another bound of what is looked at.
func (s *Store) openUpTo(ctx context.Context, most int, by *opening, partitions int32, without []int32, after *OpenPlace, limit int, visible func(workflow string) bool) (page OpenPage, err error) {
	read := s.summaries()
	read.most = most
	defer read.view.Close()
	defer func() { page.Looked = read.keys }()
	var open []*opens
	defer func() {
		for _, a := range open {
			if closing := a.it.Close(); closing != nil && err == nil {
				err = damage(closing)
			}
		}
	}()
	for p := range partitions {
		if slices.Contains(without, p) {
			continue
		}
		a, err := read.opens(by, p, after)
		if err != nil {
			return OpenPage{}, err
		}
		if a != nil {
			open = append(open, a)
		}
	}

	var last *OpenPlace // that is visible
	var looked OpenPlace
	for {
		if err := ctx.Err(); err != nil {
			return OpenPage{}, err
		}
		var first *opens
		for _, a := range open {
			if a.key != nil && (first == nil || bytes.Compare(a.key, first.key) < 0 != by.backwards) {
				first = a
			}
		}
		if first == nil {
			return page, nil
		}
		if len(page.Orders) == limit {
			page.Next = last
			return page, nil
		}
		place, ok := splitOpenKey(first.it.Key())
		if !ok {
			return OpenPage{}, fmt.Errorf("%w: key %x of what is open", errDamaged, first.it.Key())
		}
		if read.enough() {
			if page.Next = by.end(last, looked, place); page.Next != nil {
				return page, nil
			}
		}
		looked = place
		read.keys++
		o, err := read.order(first.partition, place.Order)
		if err != nil {
			return OpenPage{}, err
		}
		if !bytes.Equal(openKey(by.kind, first.partition, by.since(o), o.ID), first.it.Key()) {
			return OpenPage{}, fmt.Errorf("%w: order %q is listed as waiting for somebody, and does not", errDamaged, o.ID)
		}
		if visible == nil || visible(o.Workflow) {
			if last = &place; by.wanted == nil || by.wanted(o) {
				page.Orders = append(page.Orders, o)
			}
		}
		if err := first.next(); err != nil {
			return OpenPage{}, err
		}
	}
}

// opens goes through the index of one partition.
type opens struct {
	partition int32
	it        *pebble.Iterator
	step      func() bool
	key       []byte // of the next, without the partition; nil at the end
}

// opens begins behind a place. It returns nil if there is nothing.
func (r *summaries) opens(by *opening, partition int32, place *OpenPlace) (*opens, error) {
	from := prefix(partition, by.kind)
	end := after(from)
	if place != nil && by.backwards {
		end = openKey(by.kind, partition, place.At, place.Order)
	} else if place != nil {
		from = append(openKey(by.kind, partition, place.At, place.Order), 0) // the key after it
	}
	it, err := r.view.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: end})
	if err != nil {
		return nil, damage(err)
	}
	a, begin := &opens{partition: partition, it: it, step: it.Next}, it.First
	if by.backwards {
		a.step, begin = it.Prev, it.Last
	}
	if err := a.take(begin()); err != nil || a.key == nil {
		return nil, errors.Join(err, it.Close())
	}
	return a, nil
}

func (a *opens) next() error { return a.take(a.step()) }

func (a *opens) take(ok bool) error {
	if !ok {
		a.key = nil
		if err := a.it.Error(); err != nil {
			return damage(err)
		}
		return nil
	}
	a.key = a.it.Key()[4:]
	return nil
}
