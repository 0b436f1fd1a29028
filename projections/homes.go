package projections

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waybill-dev/waybill/events"
)

// Home is the record of what is under a key: a [Correlation], or [Places] of which there is one.
type Home struct {
	*Order // without its payloads
	// Seats are who has the turn, and behind that who waits for it, in the order in which they get it: a hundred at most.
	Seats []*Seat
}

// HomePage is what there is under a key.
type HomePage struct {
	Homes []Home
	// More says that there are more than were looked at.
	More bool
}

// mostUnder is how many homes of a key are listed, and how many seats of each.
const mostUnder = 100

// Homes returns what there is under a key of the business, of the partitions below partitions without some of them: the
// homes of its signals and of its turns, of those that are visible by their ids, a hundred at most.
func (s *Store) Homes(ctx context.Context, partitions int32, without []int32, key string, visible func(id string) bool) (page HomePage, err error) {
	read := s.summaries()
	defer read.view.Close()
	for p := range partitions {
		if slices.Contains(without, p) {
			continue
		}
		for _, begin := range events.HomesOf(key) {
			if page.More, err = read.homes(ctx, p, begin, visible, &page.Homes); page.More || err != nil {
				return page, err
			}
		}
	}
	return page, nil
}

// homes adds those whose ids begin in a way, and says whether there are more than may be looked at.
func (r *summaries) homes(ctx context.Context, p int32, begin string, visible func(id string) bool, all *[]Home) (more bool, err error) {
	from := orderKey(p, begin)
	it, err := r.view.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: after(from)})
	if err != nil {
		return false, damage(err)
	}
	defer func() {
		if closing := it.Close(); closing != nil && err == nil {
			err = damage(closing)
		}
	}()
	for ok := it.First(); ok; {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if len(*all) == mostUnder || r.enough() {
			return true, nil
		}
		r.keys++
		id := string(it.Key()[5:])
		if name, _, of := strings.Cut(id[len(begin):], "/"); of { // orders that a signal began are passed over, however many
			ok = it.SeekGE(after(orderKey(p, begin+name+"/")))
			continue
		}
		if visible(id) {
			o, err := r.order(p, id)
			if err != nil {
				return false, err
			}
			if o.Correlation != nil || o.Places != nil { // else it is forgotten
				h := Home{Order: o}
				if h.Seats, more, err = r.seats(p, o); err != nil {
					return false, err
				}
				if *all = append(*all, h); more {
					return true, nil
				}
			}
		}
		ok = it.Next()
	}
	return false, nil
}

// seats are the first of those who have a place, or wait for one, of as many as may be looked at, and whether there are more.
func (r *summaries) seats(p int32, o *Order) (all []*Seat, more bool, err error) {
	if o.Places == nil {
		return nil, false, nil
	}
	from := seatsPrefix(p, o.ID)
	it, err := r.view.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: after(from)})
	if err != nil {
		return nil, false, damage(err)
	}
	defer func() {
		if closing := it.Close(); closing != nil && err == nil {
			err = damage(closing)
		}
	}()
	for ok := it.First(); ok; ok = it.Next() {
		if more = r.enough(); more {
			break
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return nil, false, damage(err)
		}
		r.keys, r.bytes = r.keys+1, r.bytes+len(value)
		in := reader{b: value}
		seat := in.seat()
		if in.err != nil {
			return nil, false, fmt.Errorf("%q, key %x: %w", o.ID, it.Key(), in.err)
		}
		all = append(all, seat)
	}
	slices.SortFunc(all, func(a, b *Seat) int {
		if a.Taken != b.Taken {
			if a.Taken {
				return -1
			}
			return 1
		}
		if a.before(b) {
			return -1
		}
		return 1
	})
	return all[:min(len(all), mostUnder)], more, it.Error()
}
