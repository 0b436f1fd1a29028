package projections

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// alertedAt is when the open alert of an order was raised that waits for an
// operator; zero if it does not.
func (o *Order) alertedAt() time.Time {
	if o.State != Error || o.Alert == nil {
		return time.Time{}
	}
	return o.Alert.At
}

// indexAlert moves an order in the index of open alerts. A zero time is none.
func indexAlert(b *pebble.Batch, partition int32, order string, before, now time.Time) error {
	if now.Equal(before) {
		return nil
	}
	if !before.IsZero() {
		if err := b.Delete(alertKey(partition, before, order), nil); err != nil {
			return err
		}
	}
	if now.IsZero() {
		return nil
	}
	return b.Set(alertKey(partition, now, order), nil, nil)
}

// AlertPlace is where an open alert stands in the listing: newest first, then by
// order.
type AlertPlace struct {
	At    time.Time // to the millisecond
	Order string
}

// AlertPage is a part of the open alerts. As a [Page] it may end early.
type AlertPage struct {
	// Orders have the alerts. They are without their payloads.
	Orders []*Order
	// Next is the last place that is on this page, nil when there is no next page.
	Next *AlertPlace
}

// Alerts returns orders with an open alert of all partitions below partitions but
// for those without, newest alert first, at most limit of them. It goes on behind
// the place after, unless that is nil, and ends with ctx. Orders of workflows that are not
// visible are passed over; nil means that all are. A page ends at one that is not passed
// over, so that its place tells nothing of the others.
func (s *Store) Alerts(ctx context.Context, partitions int32, without []int32, after *AlertPlace, limit int, visible func(workflow string) bool) (_ AlertPage, err error) {
	read := s.summaries()
	defer read.view.Close()
	var open []*alerts
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
		a, err := read.alerts(p, after)
		if err != nil {
			return AlertPage{}, err
		}
		if a != nil {
			open = append(open, a)
		}
	}

	var page AlertPage
	var last *AlertPlace
	for {
		if err := ctx.Err(); err != nil {
			return AlertPage{}, err
		}
		var first *alerts
		for _, a := range open {
			if a.key != nil && (first == nil || bytes.Compare(a.key, first.key) < 0) {
				first = a
			}
		}
		if first == nil {
			return page, nil
		}
		if len(page.Orders) == limit || last != nil && read.enough() {
			page.Next = last
			return page, nil
		}
		place, ok := splitAlertKey(first.it.Key())
		if !ok {
			return AlertPage{}, fmt.Errorf("%w: alert key %x", errDamaged, first.it.Key())
		}
		o, err := read.order(first.partition, place.Order)
		if err != nil {
			return AlertPage{}, err
		}
		if !bytes.Equal(alertKey(first.partition, o.alertedAt(), o.ID), first.it.Key()) {
			return AlertPage{}, fmt.Errorf("%w: order %q is listed with an alert that it does not have", errDamaged, o.ID)
		}
		if visible == nil || visible(o.Workflow) {
			page.Orders, last = append(page.Orders, o), &place
		}
		if err := first.next(); err != nil {
			return AlertPage{}, err
		}
	}
}

// alerts goes through the open alerts of one partition.
type alerts struct {
	partition int32
	it        *pebble.Iterator
	key       []byte // of the next, without the partition; nil at the end
}

// alerts begins behind a place. It returns nil if there is nothing.
func (r *summaries) alerts(partition int32, place *AlertPlace) (*alerts, error) {
	from := prefix(partition, kindAlert)
	end := after(from)
	if place != nil {
		from = append(alertKey(partition, place.At, place.Order), 0) // the key after it
	}
	it, err := r.view.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: end})
	if err != nil {
		return nil, damage(err)
	}
	a := &alerts{partition: partition, it: it}
	if err := a.take(it.First()); err != nil || a.key == nil {
		return nil, errors.Join(err, it.Close())
	}
	return a, nil
}

func (a *alerts) next() error { return a.take(a.it.Next()) }

func (a *alerts) take(ok bool) error {
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
