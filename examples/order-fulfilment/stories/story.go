package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/waybill-dev/waybill/examples/order-fulfilment/services"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/projections"
)

// story is one course that orders can take.
type story struct {
	name  string
	about string // on one line
	// tell runs it on a stage, and fails if it did not end as it must.
	tell func(ctx context.Context, s *stage) error
}

var stories = []*story{
	{"happy", "everything works", happy},
	{"flaky-payment", "the payment service answers 503, and once charges without answering", flakyPayment},
	{"declined", "the bank declines the card for good; one order is undone, one waits for an operator", declined},
	{"slow-carrier", "the carrier answers after the complete-by; the repeat carries the same key", slowCarrier},
	{"payment-down", "the payment service is down, and its agent gives no sign; fifty orders wait", paymentDown},
	{"operator", "a refund is refused for good; an operator repairs the cause and resubmits", operator},
}

func find(name string) *story {
	for _, s := range stories {
		if s.name == name {
			return s
		}
	}
	return nil
}

// run sets the stage for the story and clears it afterwards.
func (s *story) run(ctx context.Context, where *place, out io.Writer) (err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	fmt.Fprintf(out, "=== %s: %s\n", s.name, s.about)
	ctx, stage, err := set(ctx, s.name, where, out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stage.clear()) }()
	return s.tell(ctx, stage)
}

func happy(ctx context.Context, s *stage) error {
	o, err := s.order(ctx, "order-fulfilment", `{"customer":"c-7","total":42}`, projections.Processed)
	if err != nil {
		return err
	}
	s.timeline(o)
	s.books()
	return s.check(o, expect{charges: 1, parcels: 1})
}

func flakyPayment(ctx context.Context, s *stage) error {
	s.turn(s.payments, services.Flaky)
	o, err := s.order(ctx, "quick-fulfilment", `{"customer":"c-7","total":42}`, projections.Processed)
	if err != nil {
		return err
	}
	s.timeline(o)
	s.say("The service was called %d times with one key, and charged once.", s.payments.Ledger()[0].Calls)
	s.books()
	return errors.Join(
		s.check(o, expect{charges: 1, parcels: 1}),
		must(s.payments.Ledger()[0].Calls >= 5, "the payment service saw %d calls, fewer than its mode has", s.payments.Ledger()[0].Calls),
		must(o.step("charge").Attempt >= 2, "the supervisor had nothing to repair"),
	)
}

func declined(ctx context.Context, s *stage) error {
	const input = `{"customer":"c-7","total":42,"card":"declined"}`
	s.say("quick-fulfilment says `exhausted: compensate`:")
	undone, err := s.order(ctx, "quick-fulfilment", input, projections.Compensated)
	if err != nil {
		return err
	}
	s.timeline(undone)

	s.say("order-fulfilment says nothing, which is `exhausted: error`:")
	stopped, err := s.order(ctx, "order-fulfilment", input, projections.Error)
	if err != nil {
		return err
	}
	s.say("The operator gives the order up: waybill order cancel %s", stopped.id)
	if err := s.operate(ctx, stopped, "cancel", "the customer has no other card"); err != nil {
		return err
	}
	if err := s.await(ctx, stopped, projections.Cancelled); err != nil {
		return err
	}
	s.timeline(stopped)
	s.books()
	return errors.Join(
		s.check(undone, expect{}), s.check(stopped, expect{}),
		must(undone.step("reserve").State == projections.Undone, "the reservation of %s was not released", undone.id),
		must(stopped.step("reserve").State == projections.Undone, "the reservation of %s was not released", stopped.id),
	)
}

func slowCarrier(ctx context.Context, s *stage) error {
	s.turn(s.carrier, services.Slow)
	o, err := s.order(ctx, "quick-fulfilment", `{"customer":"c-7","total":42}`, projections.Processed)
	if err != nil {
		return err
	}
	s.timeline(o)
	s.books()
	return errors.Join(
		s.check(o, expect{charges: 1, parcels: 1}),
		must(s.carrier.Parcels()[0].Calls >= 2, "the carrier was called once only"),
		must(o.count("waybill.step.expired", "ship") >= 1, "no attempt expired"),
	)
}

func operator(ctx context.Context, s *stage) error {
	s.turn(s.carrier, services.Refusing)
	s.turn(s.payments, services.Refusing)
	o, err := s.order(ctx, "quick-fulfilment", `{"customer":"c-7","total":42}`, projections.Error)
	if err != nil {
		return err
	}
	alert, err := s.alert(ctx, o)
	if err != nil {
		return err
	}
	s.say("The alert carries every error: waybill alerts")
	for _, e := range alert.Errors {
		fmt.Fprintln(s.out, "  "+faultText(&e))
	}
	s.say("The operator has refunds unlocked, and lets the order go on: waybill order resubmit %s", o.id)
	s.turn(s.payments, services.Healthy)
	if err := s.operate(ctx, o, "resubmit", "refunds are unlocked"); err != nil {
		return err
	}
	if err := s.await(ctx, o, projections.Compensated); err != nil {
		return err
	}
	s.timeline(o)
	s.books()
	return errors.Join(
		s.check(o, expect{charges: 1, refunds: 1}),
		must(has(alert, "charge", true, "refunds-locked"), "the alert has no refused refund"),
		must(has(alert, "charge", true, "unavailable"), "the alert has not the first error of the refund"),
		must(has(alert, "ship", false, "http-422"), "the alert has not the error that began it all"),
		must(o.count("waybill.undo.retried", "charge") >= 1, "the refund was not tried again"),
	)
}

// has looks for an error in an alert.
func has(a *api.Alert, step string, undo bool, code string) bool {
	for _, e := range a.Errors {
		if e.Step == step && e.Undo == undo && e.Code == code {
			return true
		}
	}
	return false
}

func must(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}
