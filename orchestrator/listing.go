package orchestrator

import (
	"context"
	"slices"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
)

// LeftOut says of which partitions a listing has no orders.
type LeftOut struct {
	Elsewhere []int32 // those of [Instance.Elsewhere]
	Unknown   []int32 // the others that are not caught up
}

// LeftOut says what a listing that is read now would leave out.
func (i *Instance) LeftOut() LeftOut {
	elsewhere := i.Elsewhere()
	return LeftOut{elsewhere, i.unknownYet(elsewhere)}
}

// List returns a page of the orders that the instance knows, and what is left out. It
// fails with [ErrUnknownYet] if it knows those of no partition.
func (i *Instance) List(ctx context.Context, f projections.Filter) (projections.Page, LeftOut, error) {
	return listed(i, func(without []int32) (projections.Page, error) {
		f.Without = without
		return i.store.List(ctx, i.partitions, f)
	})
}

// Count says how many orders of those that the instance knows a filter selects: see [projections.Store.Count]. It fails as
// [Instance.List] does.
func (i *Instance) Count(ctx context.Context, f projections.Filter) (n int, more bool, _ error) {
	n, _, err := listed(i, func(without []int32) (int, error) {
		f.Without = without
		var n int
		var err error
		n, more, err = i.store.Count(ctx, i.partitions, f)
		return n, err
	})
	return n, more, err
}

// Alerts returns a page of the open alerts that the instance knows, behind the place
// after unless that is nil, and what is left out: only those of workflows that are visible,
// nil meaning all. It fails as [Instance.List] does.
func (i *Instance) Alerts(ctx context.Context, after *projections.OpenPlace, limit int, visible func(workflow string) bool) (projections.OpenPage, LeftOut, error) {
	return listed(i, func(without []int32) (projections.OpenPage, error) {
		return i.store.Alerts(ctx, i.partitions, without, after, limit, visible)
	})
}

// AlertsAbout returns in the same way those of a reason, the oldest first.
func (i *Instance) AlertsAbout(ctx context.Context, reason events.AlertReason, after *projections.OpenPlace, limit int, visible func(workflow string) bool) (projections.OpenPage, LeftOut, error) {
	return listed(i, func(without []int32) (projections.OpenPage, error) {
		return i.store.AlertsAbout(ctx, reason, i.partitions, without, after, limit, visible)
	})
}

// AlertReasons counts those by their reason, and returns the oldest of each, at most limit.
func (i *Instance) AlertReasons(ctx context.Context, limit int, visible func(workflow string) bool) (projections.AlertReasons, LeftOut, error) {
	return listed(i, func(without []int32) (projections.AlertReasons, error) {
		return i.store.AlertReasons(ctx, i.partitions, without, limit, visible)
	})
}

// SchedulePage is a part of the schedules that there are.
type SchedulePage struct {
	Schedules []*projections.Order
	Next      []byte // where the next page begins, nil when there is none
}

// Schedules returns a page of the schedules that the instance knows, behind the place after unless that is nil, and
// what is left out. It fails as [Instance.List] does.
func (i *Instance) Schedules(ctx context.Context, after []byte, limit int, visible func(workflow string) bool) (SchedulePage, LeftOut, error) {
	return listed(i, func(without []int32) (page SchedulePage, err error) {
		page.Schedules, page.Next, err = i.store.Schedules(ctx, i.partitions, without, after, limit, visible)
		return page, err
	})
}

// LimitPage is a part of the limits that there are.
type LimitPage struct {
	Limits []*projections.Order
	Next   []byte // where the next page begins, nil when there is none
}

// Limits returns in the same way a page of the limits, without those who wait.
func (i *Instance) Limits(ctx context.Context, after []byte, limit int) (LimitPage, LeftOut, error) {
	return listed(i, func(without []int32) (page LimitPage, err error) {
		page.Limits, page.Next, err = i.store.Limits(ctx, i.partitions, without, after, limit)
		return page, err
	})
}

// Homes returns in the same way what there is under a key of the business, as far as it is visible by its id: see
// [projections.Store.Homes].
func (i *Instance) Homes(ctx context.Context, key string, visible func(id string) bool) (projections.HomePage, LeftOut, error) {
	return listed(i, func(without []int32) (projections.HomePage, error) {
		return i.store.Homes(ctx, i.partitions, without, key, visible)
	})
}

// Approvals returns in the same way a page of the orders that wait for people who decide.
func (i *Instance) Approvals(ctx context.Context, after *projections.OpenPlace, limit int, visible func(workflow string) bool) (projections.OpenPage, LeftOut, error) {
	return listed(i, func(without []int32) (projections.OpenPage, error) {
		return i.store.Approvals(ctx, i.partitions, without, after, limit, visible)
	})
}

// Listening returns in the same way a page of the orders of which steps wait for signals.
func (i *Instance) Listening(ctx context.Context, which projections.Listeners, after *projections.OpenPlace, limit int, visible func(workflow string) bool) (projections.OpenPage, LeftOut, error) {
	return listed(i, func(without []int32) (projections.OpenPage, error) {
		return i.store.Listening(ctx, which, i.partitions, without, after, limit, visible)
	})
}

// Showing returns an order with what its steps show that wait for people who decide, and without all
// else of its payloads that is large. It fails as [Instance.Order] does.
func (i *Instance) Showing(id string) (*projections.Order, error) {
	p, err := i.kept(id)
	if err != nil {
		return nil, err
	}
	o, err := i.store.Showing(p, id)
	return o, i.tells(p, err)
}

// Decides says whether decisions that come by this instance can count: those of a caller whom it knows,
// or of one who only claims to be somebody.
func (i *Instance) Decides(known bool) bool {
	return i.cfg.ClaimedApprovals || known && i.cfg.Keys != nil && len(i.cfg.Keys().IDs()) > 0 && i.proves()
}

// listed reads a page, again if a partition is not known any more that it was read from:
// its projection may have been thrown away meanwhile.
func listed[P any](i *Instance, read func(without []int32) (P, error)) (page P, out LeftOut, err error) {
	for {
		out = i.LeftOut()
		without := slices.Concat(out.Elsewhere, out.Unknown)
		if len(out.Unknown) > 0 && len(without) == int(i.partitions) {
			return page, out, i.known(out.Unknown[0])
		}
		if page, err = read(without); err != nil || len(i.unknownYet(without)) == 0 {
			return page, out, err
		}
	}
}
