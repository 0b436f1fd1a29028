package oracle

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
)

// Messages are what left for others on account of one order, each kind in the
// order of its topic.
type Messages struct {
	Requests []events.Request
	Statuses []events.Status
	Alerts   []events.Alert
	// Gone are the numbers of the events whose requests somebody deleted.
	Gone []uint64
}

// Sort reads messages, and adds each to those of its order. Those about a
// partition belong to the order "".
func Sort(all map[string]*Messages, records []*kgo.Record) error {
	of := func(order string) *Messages {
		if all[order] == nil {
			all[order] = new(Messages)
		}
		return all[order]
	}
	for _, r := range records {
		var err error
		switch kind := events.Type(events.Header(r, events.HeaderType)); kind {
		case events.StepRequested:
			err = collect(r, func(m events.Request) { of(m.Order).Requests = append(of(m.Order).Requests, m) })
		case events.OrderStatus:
			err = collect(r, func(m events.Status) { of(m.Order).Statuses = append(of(m.Order).Statuses, m) })
		case events.AlertRaised:
			err = collect(r, func(m events.Alert) { of(m.Order).Alerts = append(of(m.Order).Alerts, m) })
		default:
			err = fmt.Errorf("nobody knows the type %q", kind)
		}
		if err != nil {
			return fmt.Errorf("message on %s: %w", r.Topic, err)
		}
	}
	return nil
}

func collect[M events.Request | events.Status | events.Alert](r *kgo.Record, add func(M)) error {
	m, err := events.Decode[M](r.Value)
	if err == nil {
		add(m)
	}
	return err //nolint:wrapcheck // Sort says which message it is
}

// CheckMessages holds what was sent against the order's history: every attempt
// was asked for once, with all that its agent needs (S3), the caller heard of
// every transition in turn (P1), and every alert was sent (P2).
func CheckMessages(history []events.Event, m *Messages) error {
	if m == nil {
		m = new(Messages)
	}
	if len(history) == 0 {
		return fmt.Errorf("messages about an order without a history: %+v", m)
	}
	requests, statuses, alerts := expected(history, m.Gone)
	order := history[0].Order
	asked := slices.Clone(m.Requests)
	for i := range asked {
		if asked[i].ReplyTo == "" {
			return fmt.Errorf("order %q: S3: request %d does not say where its reply goes", order, i+1)
		}
		asked[i].ReplyTo = ""
	}
	if err := equal(order, "S3: request", asked, requests); err != nil {
		return err
	}
	if err := equal(order, "P1: status", m.Statuses, statuses); err != nil {
		return err
	}
	return equal(order, "P2: alert", m.Alerts, alerts)
}

func equal[M any](order, what string, got, want []M) error {
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			return fmt.Errorf("order %q: %s %d was not sent: %+v", order, what, i+1, want[i])
		case i >= len(want):
			return fmt.Errorf("order %q: %s %d has no event: %+v", order, what, i+1, got[i])
		case !reflect.DeepEqual(got[i], want[i]):
			return fmt.Errorf("order %q: %s %d says\n %+v, and must say\n %+v", order, what, i+1, got[i], want[i])
		}
	}
	return nil
}

// expected is what must have been sent, from the events alone, but for what is gone.
func expected(history []events.Event, gone []uint64) (requests []events.Request, statuses []events.Status, alerts []events.Alert) {
	accepted := &history[0]
	l := NewLedger(accepted.Order, nil)
	for i := range history {
		e := &history[i]
		_ = l.Add(e) // whoever checks the history says what is wrong with it
		say := func(word string, d *events.Detail) {
			statuses = append(statuses, events.Status{Order: e.Order, Status: word, At: e.At, Detail: d})
		}
		switch e.Type {
		case events.OrderAccepted:
			say(events.StatusReceived, nil)
		case events.OrderRejected:
			say(events.StatusRejected, &events.Detail{Reason: e.Reason})
		case events.OrderCompleted:
			say(events.StatusCompleted, l.result())
		case events.OrderErrored:
			say(events.StatusFailed, &events.Detail{Step: e.Step, Reason: e.Reason, Error: e.Error})
		case events.OrderCompensating:
			say(events.StatusCompensating, &events.Detail{Step: e.Step, Reason: e.Reason, Error: e.Error})
		case events.OrderCompensated:
			say(events.StatusCompensated, outcome(e))
		case events.OrderCancelled:
			say(events.StatusCancelled, outcome(e))
		case events.SubmissionConflicted:
			say(events.StatusConflict, &events.Detail{Reason: e.Reason})
		case events.AlertRaised:
			alerts = append(alerts, events.Alert{Order: e.Order, Step: e.Step, Reason: e.Reason, Errors: e.Errors, Action: e.Action, At: e.At})
		case events.StepStarted, events.UndoStarted:
			if s := l.Step(e.Step); s != nil && !slices.Contains(gone, e.Seq) {
				requests = append(requests, l.request(e, s))
			}
		}
	}
	return requests, statuses, alerts
}

// statusOutput is the largest output that a status message repeats.
const statusOutput = 900_000

// result is what the caller hears of a completed order: the output of the last
// completed step in the file.
func (l *Ledger) result() *events.Detail {
	for _, s := range slices.Backward(l.Steps) {
		switch {
		case s.State != completed:
			continue
		case len(s.Output) > statusOutput:
			return &events.Detail{Reason: fmt.Sprintf("the output has %d bytes, and is only in the order's record", len(s.Output))}
		case s.Output != nil:
			return &events.Detail{Output: s.Output}
		}
		return nil
	}
	return nil
}

func outcome(e *events.Event) *events.Detail {
	return &events.Detail{Undone: e.Undone, NotUndone: e.NotUndone}
}

// request is what the attempt that starts asks of its agent.
func (l *Ledger) request(e *events.Event, s *Step) events.Request {
	m := events.Request{
		Order: e.Order, Step: e.Step, Attempt: e.Attempt, Operation: e.Operation,
		CompleteBy: e.CompleteBy, IdempotencyKey: e.IdempotencyKey, Input: l.accepted.Input,
	}
	if s.Input != nil {
		m.Input = s.Input
	}
	if p := l.accepted.Priority; p != events.Normal {
		m.Priority = p
	}
	if e.Type == events.UndoStarted {
		m.Undo, m.Outcome = true, e.Outcome
		if s.State == completed {
			m.Output = s.Output
		}
		if s.Undo.Input != nil {
			m.Input = s.Undo.Input
		}
	}
	return m
}
