package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/waybill-dev/waybill/examples/order-fulfilment/services"
	"github.com/waybill-dev/waybill/projections"
)

const waiting = 50 // orders

// late is how long after its complete-by a call may arrive that was begun
// before: for the way, and for a machine that is busy.
const late = 500 * time.Millisecond

// paymentDown keeps the payment service down until every order waits for its payment and
// the agent is only probed, and then lets it return.
func paymentDown(ctx context.Context, s *stage) error {
	s.turn(s.payments, services.Down)
	var all []*told
	for range waiting {
		o, err := s.submit(ctx, "patient-fulfilment", `{"customer":"c-7","total":42}`)
		if err != nil {
			return err
		}
		all = append(all, o)
	}
	s.say("%d orders are submitted while the payment service is down.", waiting)
	if err := until(ctx, "all orders wait for their payment, the agent gives no sign, and the circuit breaker has been open for a second", func() (bool, error) {
		silent := false
		for _, o := range all {
			record, err := s.client.Order(ctx, o.id)
			if err != nil {
				return false, ctx.Err() // not yet accepted
			}
			o.Order = record
			charge := o.step("charge")
			if charge.FailureCount == 0 && charge.Waits == nil { // one that comes late waits, and is not charged
				return false, nil
			}
			// An instance that does not own the order's partition does not know who is probed.
			silent = silent || charge.FailureCount > 1 || charge.Waits != nil && charge.Waits.Probed != nil && *charge.Waits.Probed
		}
		opened := s.opened()
		return silent && !opened.IsZero() && time.Since(opened) >= time.Second, nil // else there is nothing to tell of it
	}); err != nil {
		return err
	}
	returned := time.Now()
	s.turn(s.payments, services.Healthy)
	s.say("Every order was charged in vain, or waits for it: the agent gives no sign, so only probes leave, and attempts do not count. The service returns.")
	for _, o := range all {
		if err := s.await(ctx, o, projections.Processed); err != nil {
			return err
		}
	}

	s.say("One of them:")
	s.timeline(all[0])
	charges := len(s.payments.Ledger())
	s.say("%d orders were submitted, %d are Processed, %d charges are in the ledger.", waiting, len(all), charges)
	failed := s.rates(returned)
	for _, o := range all {
		failed = errors.Join(failed, s.check(o, expect{charges: 1, parcels: 1}))
	}
	return errors.Join(failed, must(charges == waiting, "%d charges for %d orders", charges, waiting))
}

// opened is when the circuit breaker opened first, zero if it has not.
func (s *stage) opened() (at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.notes {
		if strings.Contains(n.text, "opened") {
			return n.at
		}
	}
	return at
}

// rates prints how often the service was called before the breaker opened and
// while it was open, and checks that no call came after its complete-by.
func (s *stage) rates(returned time.Time) error {
	opened := s.opened()
	s.mu.Lock()
	defer s.mu.Unlock()
	var first time.Time
	var before, while, after, over int
	for _, c := range s.calls {
		if c.Operation != "charge" {
			continue
		}
		if first.IsZero() {
			first = c.At
		}
		switch {
		case c.At.Before(opened):
			before++
		case c.At.Before(returned):
			while++
		default:
			after++
		}
		if c.At.After(c.CompleteBy.Add(late)) {
			over++
		}
	}
	fmt.Fprint(s.out, "\nCalls that the payment service got (A6):\n\n")
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tCALLS\tSECONDS\tA SECOND\tA MINUTE\t")
	row := func(what string, calls int, took time.Duration) {
		each := float64(calls) / took.Seconds()
		fmt.Fprintf(w, "  %s\t%d\t%.2f\t%.1f\t%.0f\t\n", what, calls, took.Seconds(), each, 60*each)
	}
	row("down, before the breaker opened", before, opened.Sub(first))
	row("down, behind the breaker", while, returned.Sub(opened))
	w.Flush()
	s.say("After it returned: %d calls for %d orders. Calls after their complete-by (A4): %d.", after, waiting, over)
	return must(over == 0, "%d calls came after their complete-by", over)
}
