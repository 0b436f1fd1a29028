package api

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/projections"
)

const (
	// maxWait is how long a caller may have a request wait.
	maxWait = 30 * time.Second
	// knownPatience is how long a submission waits until its order can be read.
	knownPatience = 2 * time.Second
	// waitersPerPlace is how many requests may wait for each that is answered at a time.
	waitersPerPlace = 8

	_ = uint(bodyTimeout - maxWait - knownPatience - workflowsPatience) // not negative; see bodyTimeout
)

// WaitInput is how long a request waits for what it asks about.
type WaitInput struct {
	Wait   string `query:"wait" pattern:"^([12]?[0-9]|30)s?$" patternDescription:"a number of seconds up to 30, such as 30s" example:"2s" doc:"Answer once the order goes on by itself no more, which is that it has ended, is in Error, or is held, but after so many seconds at the latest: up to 30s. 503 says that too many wait"`
	Prefer string `header:"Prefer" example:"wait=2" doc:"wait=SECONDS is the same as a wish (RFC 7240), of which more than 30 are 30. Preference-Applied says that it was heard; where it cannot be, the request is answered as one without it"`
}

// patience is how long the request waits, and whether that is but a wish.
func (in *WaitInput) patience() (patience time.Duration, wish bool) {
	if in.Wait != "" {
		seconds, _ := strconv.Atoi(strings.TrimSuffix(in.Wait, "s")) // it has the pattern
		return time.Duration(seconds) * time.Second, false
	}
	for one := range strings.SplitSeq(in.Prefer, ",") {
		one, _, _ = strings.Cut(one, ";")
		name, value, _ := strings.Cut(one, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "wait") {
			continue
		}
		seconds, err := strconv.ParseUint(strings.Trim(strings.TrimSpace(value), `"`), 10, 32)
		if err != nil {
			return 0, false // as one that is not known
		}
		return min(time.Duration(seconds)*time.Second, maxWait), true
	}
	return 0, false
}

// waiting is a request that may wait.
type waiting struct {
	until   time.Time // zero if it does not wait
	applied string    // see Preference-Applied
	leave   func()
}

// waits has a request wait as it asks for. The caller calls leave in the end. It fails if there is no room, or with
// the error of may, unless waiting is but a wish.
func (s *Server) waits(in *WaitInput, may func() error) (*waiting, error) {
	patience, wish := in.patience()
	w := &waiting{leave: func() {}}
	if patience == 0 {
		return w, nil
	}
	err := may()
	if err == nil {
		if leave, room := s.shares.rest(); room {
			w.until, w.leave = time.Now().Add(patience), leave
			if wish {
				w.applied = fmt.Sprintf("wait=%d", patience/time.Second)
			}
			return w, nil
		}
		err = typed(tooBusy, retry(busyRetry, huma.Error503ServiceUnavailable(fmt.Sprintf("%d requests wait, which is the most at a time, and nothing was done; try again in a moment, or ask without wait", cap(s.shares.resting)))))
	}
	if wish {
		return w, nil
	}
	return nil, err
}

// await has look look at an order, and again whenever the order was written here, until it reports that it has seen
// what it waits for, or that time has come, or ctx ends. Meanwhile the request has no place among those that are
// answered. Whoever calls it has a place to rest.
func await(ctx context.Context, i *orchestrator.Instance, id string, until time.Time, look func() (done bool)) {
	w := i.Watch(id)
	defer w.Close()
	if look() {
		return
	}
	over := time.NewTimer(time.Until(until))
	defer over.Stop()
	place := placeOf(ctx)
	for {
		place.free()
		select {
		case <-w.Written:
		case <-over.C:
			place.again(ctx)
			return
		case <-ctx.Done():
			return
		}
		if !place.again(ctx) || look() {
			return
		}
	}
}

// stands says that an order goes on by itself no more: it has ended, or waits for an operator.
func stands(o *projections.Order) bool {
	return o.State.Final() || o.State == projections.Error || o.Hold != nil
}

// follows says whether a caller may follow orders of a workflow that it submits.
func follows(c *identity.Caller, workflow string) error {
	if c.May(identity.Viewer, workflow) {
		return nil
	}
	return huma.Error403Forbidden(forbidden(c, identity.Viewer) + ", to wait for an order of workflow " + workflow + "; nothing was submitted. Submit it without wait")
}

// place is that of a request among those that are answered at a time.
type place struct {
	of   *shares
	held bool
}

type placeKey struct{}

// placeOf is the place of a request; one that came by none has none.
func placeOf(ctx context.Context) *place {
	if p, ok := ctx.Value(placeKey{}).(*place); ok {
		return p
	}
	return &place{of: newShares(0)}
}

// free gives the place back, if the request has it.
func (p *place) free() {
	if p.held {
		p.held = false
		p.of.free()
	}
}

// again waits for a place, and reports false if ctx ended before there was one.
func (p *place) again(ctx context.Context) bool {
	if p.held || p.of.most == 0 {
		return ctx.Err() == nil
	}
	select {
	case p.of.places <- struct{}{}:
		p.held = true
		return true
	case <-ctx.Done():
		return false
	}
}
