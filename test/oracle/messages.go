package oracle

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
)

// Messages are what left for others on account of one order, each kind in the
// order of its topic.
type Messages struct {
	Requests []events.Request
	Statuses []events.Status
	Alerts   []events.Alert
	// Wishes and Reports are what it told orders that do its steps, and the one of which it does one.
	Wishes  []events.Wish
	Reports []events.Report
	// Wants are what it told the homes of keys, but for what it gave back, and Passes what such a home told
	// orders.
	Wants  []events.Want
	Passes []events.Pass
	// Bids are what it told homes of places, but for what it gave back without an event, and Grants what such a home
	// told orders, but for what it refused.
	Bids   []events.Bid
	Grants []events.Grant
	// Traces are the trace contexts that they carry, each one once.
	Traces []string
	// Passed are the tracestates and the baggage that they carry, each one once. Words between orders carry none, but
	// for what begins one, nor do statuses.
	Passed []Passed
	// Gone are the numbers of the events whose requests somebody deleted.
	Gone []uint64
	// Old is how many of the order's events are of before format 3, and Older of before [events.LeavesFormat].
	Old, Older uint64
}

// Passed is what a message carries beside its traceparent.
type Passed struct{ Tracestate, Baggage string }

// Sort reads messages, and adds each to those of its order. Those about a
// partition belong to the order "". What an agent may go by without reading the value
// of a request says the same as the value (S3).
func Sort(all map[string]*Messages, topics *events.Topics, records []*kgo.Record) error {
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
			var m events.Request
			if m, err = events.Decode[events.Request](r.Value); err == nil {
				of(m.Order).Requests = append(of(m.Order).Requests, m)
				of(m.Order).trace(r)
				of(m.Order).passed(r)
				err = repeated(r, &m, topics)
			}
		case events.OrderStatus:
			err = cmp.Or(bare(r), collect(r, func(m events.Status) {
				of(m.Order).Statuses = append(of(m.Order).Statuses, m)
				of(m.Order).trace(r)
			}))
		case events.AlertRaised:
			err = collect(r, func(m events.Alert) {
				of(m.Order).Alerts = append(of(m.Order).Alerts, m)
				of(m.Order).trace(r)
				of(m.Order).passed(r)
			})
		case events.ChildWanted:
			var m events.Wish
			if m, err = events.Decode[events.Wish](r.Value); err == nil {
				if !returned(r) {
					of(m.Parent).Wishes = append(of(m.Parent).Wishes, m)
					of(m.Parent).trace(r)
				}
				if m.Wish == events.WishBegin {
					of(m.Parent).passed(r)
				} else {
					err = bare(r)
				}
				err = cmp.Or(err, keyed(r, m.Child, topics))
			}
		case events.ChildReported:
			var m events.Report
			if m, err = events.Decode[events.Report](r.Value); err == nil {
				if err = cmp.Or(bare(r), keyed(r, m.Parent, topics)); !returned(r) {
					of(m.Child).Reports = append(of(m.Child).Reports, m)
					of(m.Child).trace(r)
				}
			}
		case events.SignalWanted:
			var m events.Want
			if m, err = events.Decode[events.Want](r.Value); err == nil {
				if err = cmp.Or(bare(r), keyed(r, m.Correlation, topics)); m.Want != events.WantUnheard { // which follows from no event
					of(m.Order).Wants = append(of(m.Order).Wants, m)
					of(m.Order).trace(r)
				}
			}
		case events.SignalPassed:
			var m events.Pass
			if m, err = events.Decode[events.Pass](r.Value); err == nil {
				of(m.Correlation).Passes = append(of(m.Correlation).Passes, m)
				of(m.Correlation).trace(r)
				err = cmp.Or(bare(r), keyed(r, m.Order, topics))
			}
		case events.PlaceWanted:
			var m events.Bid
			if m, err = events.Decode[events.Bid](r.Value); err == nil {
				if err = cmp.Or(bare(r), keyed(r, m.Home, topics)); m.Bid != events.BidUnwanted {
					of(m.Order).Bids = append(of(m.Order).Bids, m)
					of(m.Order).trace(r)
				}
			}
		case events.PlaceGiven:
			var m events.Grant
			if m, err = events.Decode[events.Grant](r.Value); err == nil {
				if err = cmp.Or(bare(r), keyed(r, m.Order, topics)); ofHome(&m) {
					of(m.Home).Grants = append(of(m.Home).Grants, m)
					of(m.Home).trace(r)
				}
			}
		default:
			err = fmt.Errorf("nobody knows the type %q", kind)
		}
		if err != nil {
			return fmt.Errorf("message on %s: %w", r.Topic, err)
		}
	}
	return nil
}

// From is the order on account of which a message was sent.
func From(r *kgo.Record) string {
	switch m := string(r.Key); events.Type(events.Header(r, events.HeaderType)) {
	case events.ChildWanted:
		if w, err := events.Decode[events.Wish](r.Value); err == nil {
			return w.Parent
		}
		return m
	case events.ChildReported:
		if told, err := events.Decode[events.Report](r.Value); err == nil {
			return told.Child
		}
		return m
	case events.SignalWanted:
		if w, err := events.Decode[events.Want](r.Value); err == nil {
			return w.Order
		}
		return m
	case events.SignalPassed:
		if p, err := events.Decode[events.Pass](r.Value); err == nil {
			return p.Correlation
		}
		return m
	case events.PlaceWanted:
		if b, err := events.Decode[events.Bid](r.Value); err == nil {
			return b.Order
		}
		return m
	case events.PlaceGiven:
		if g, err := events.Decode[events.Grant](r.Value); err == nil && ofHome(&g) {
			return g.Home
		}
		return m
	default:
		return m
	}
}

// trace notes the trace context of a message.
func (m *Messages) trace(r *kgo.Record) {
	if t := events.Header(r, events.HeaderTraceparent); !slices.Contains(m.Traces, t) {
		m.Traces = append(m.Traces, t)
	}
}

// passed notes what else a message carries.
func (m *Messages) passed(r *kgo.Record) {
	if p := passedWith(r); !slices.Contains(m.Passed, p) {
		m.Passed = append(m.Passed, p)
	}
}

func passedWith(r *kgo.Record) Passed {
	return Passed{events.Header(r, events.HeaderTracestate), events.Header(r, events.HeaderBaggage)}
}

// bare says that what one order tells another, or its caller, has no more than a traceparent.
// returned says that a message follows from what was read, and from no event.
func returned(r *kgo.Record) bool { return strings.HasSuffix(events.Header(r, "ce_id"), "/back") }

func bare(r *kgo.Record) error {
	if p := passedWith(r); p != (Passed{}) {
		return fmt.Errorf("it carries %+v", p)
	}
	return nil
}

// repeated says which header of a request does not say what its value does.
func repeated(r *kgo.Record, m *events.Request, topics *events.Topics) error {
	undo := ""
	if m.Undo {
		undo = "true"
	}
	for _, h := range []struct{ key, want string }{
		{"ce_step", m.Step},
		{"ce_attempt", strconv.Itoa(m.Attempt)},
		{"ce_completeby", string(events.AppendTime(nil, m.CompleteBy))},
		{"ce_idempotencykey", m.IdempotencyKey},
		{"ce_replyto", m.ReplyTo},
		{"ce_undo", undo},
		{"ce_priority", string(m.Priority)},
	} {
		if got := events.Header(r, h.key); got != h.want {
			return fmt.Errorf("order %q: S3: the %s of a request is %q, and its value says %q", m.Order, h.key, got, h.want)
		}
	}
	if m.ReplyTo != topics.Replies {
		return fmt.Errorf("order %q: S3: a request has its reply go to %q, and not to %s", m.Order, m.ReplyTo, topics.Replies)
	}
	return nil
}

// keyed says that what one order tells another goes where that is read (S3).
func keyed(r *kgo.Record, to string, topics *events.Topics) error {
	if string(r.Key) != to || r.Topic != topics.Internal {
		return fmt.Errorf("S3: it has the key %q, and is for order %q", r.Key, to)
	}
	return nil
}

func collect[M events.Status | events.Alert](r *kgo.Record, add func(M)) error {
	m, err := events.Decode[M](r.Value)
	if err == nil {
		add(m)
	}
	return err //nolint:wrapcheck // Sort says which message it is
}

// CheckMessages holds what was sent against the order's history: every attempt
// was asked for once, with all that its agent needs (S3), the caller heard of
// every transition in turn (P1), and every alert was sent (P2). All of them are of the
// trace with which the order was accepted, and carry what else its submission had passed on.
func CheckMessages(history []events.Event, m *Messages) error {
	if m == nil {
		m = new(Messages)
	}
	if len(history) == 0 {
		return fmt.Errorf("messages about an order without a history: %+v", m)
	}
	want := expected(history, m, nil)
	order := history[0].Order
	asked := slices.Clone(m.Requests)
	for i := range asked {
		asked[i].ReplyTo = "" // which Sort has looked at
		if asked[i].Token != "" {
			asked[i].Token = "some token"
		}
	}
	if err := cmp.Or(
		equal(order, "S3: request", asked, want.Requests), equal(order, "P1: status", m.Statuses, want.Statuses), equal(order, "P2: alert", m.Alerts, want.Alerts),
		equal(order, "S3: wish", m.Wishes, want.Wishes), equal(order, "S3: report", m.Reports, want.Reports),
		equal(order, "S3: want", m.Wants, want.Wants), equal(order, "S3: pass", m.Passes, want.Passes),
		equal(order, "S3: bid", m.Bids, want.Bids), equal(order, "S3: grant", m.Grants, want.Grants),
	); err != nil {
		return err
	}
	forgotten := slices.ContainsFunc(history, func(e events.Event) bool { return e.Type == events.OrderForgotten }) // and its trace with it
	for _, t := range m.Traces {
		if t != history[0].Traceparent && (t != "" || !forgotten) {
			return fmt.Errorf("order %q: a message is of the trace %q, and the order of %q", order, t, history[0].Traceparent)
		}
	}
	of := Passed{history[0].Tracestate, history[0].Baggage}
	for _, p := range m.Passed {
		if p != of && (p != Passed{} || !forgotten) {
			return fmt.Errorf("order %q: a message carries %+v, and the submission had %+v", order, p, of)
		}
	}
	return nil
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

// expected is what must have been sent, from the events, but for what is gone. After, where it is set, sees the ledger after each.
func expected(history []events.Event, m *Messages, after func(*Ledger, *events.Event)) (want Messages) {
	accepted := &history[0]
	l := NewLedger(accepted.Order, nil)
	for i := range history {
		e := &history[i]
		if l.Format = events.JournalFormat; e.Seq <= m.Old {
			l.Format = events.KeysFormat - 1
		}
		before, turns := l.waits(), l.Turns
		l.follow(e)
		if after != nil {
			after(l, e)
		}
		want.Wants = append(want.Wants, l.wants(e, before)...)
		if p := l.pass(e); p != nil {
			want.Passes = append(want.Passes, *p)
		}
		want.Bids = append(want.Bids, l.bids(e, turns)...)
		if g := l.grant(e); g != nil {
			want.Grants = append(want.Grants, *g)
		}
		want.Wishes = append(want.Wishes, l.wishes(e)...)
		want.Wishes = append(want.Wishes, forgets(e)...)
		if r := l.report(e); r != nil {
			if n := len(want.Reports); e.Seq <= m.Older && n < len(m.Reports) && !m.Reports[n].Left {
				r.Left = false // a release that writes that format may not say it
			}
			want.Reports = append(want.Reports, *r)
		}
		say := func(word string, d *events.Detail) {
			if !l.quiet || e.ReplyTo != "" || e.Type == events.SubmissionConflicted {
				want.Statuses = append(want.Statuses, events.Status{Order: e.Order, Status: word, At: e.At, Detail: d})
			}
		}
		switch e.Type {
		case events.OrderAccepted:
			say(events.StatusReceived, nil)
		case events.OrderRejected:
			say(events.StatusRejected, &events.Detail{Reason: e.Reason})
		case events.OrderCompleted:
			detail := l.result()
			if failed := l.passedOver(); failed != nil {
				if detail == nil {
					detail = new(events.Detail)
				}
				detail.FailedSteps = failed
			}
			say(events.StatusCompleted, detail)
		case events.OrderErrored:
			say(events.StatusFailed, &events.Detail{Step: e.Step, Reason: e.Reason, Error: e.Error})
		case events.OrderCompensating:
			say(events.StatusCompensating, &events.Detail{Step: e.Step, Reason: e.Reason, Error: e.Error})
		case events.OrderCompensated:
			detail := outcome(e)
			detail.Error = l.failure
			say(events.StatusCompensated, detail)
		case events.OrderCancelled:
			say(events.StatusCancelled, outcome(e))
		case events.OrderRaised:
			say(events.StatusRaised, &events.Detail{Step: e.Step, Reason: e.Reason, Error: e.Error, NotUndone: e.NotUndone})
		case events.OrderTerminated:
			detail := outcome(e)
			detail.Reason, detail.MayHaveRun = e.Reason, e.MayHaveRun
			say(events.StatusTerminated, detail)
		case events.SubmissionConflicted:
			say(events.StatusConflict, &events.Detail{Reason: e.Reason})
		case events.StepHeard, events.SignalKept, events.SignalStarted, events.SignalDiscarded:
			if e.ReplyTo != "" {
				say(answers[e.Type+"/"+events.Type(e.Reason)], &events.Detail{Signal: e.Signal, SignalID: e.SignalID, Step: e.Step, Reason: e.Reason, Error: e.Error, Child: e.Child})
			}
		case events.AlertRaised, events.StepReminded:
			want.Alerts = append(want.Alerts, events.Alert{Order: e.Order, Step: e.Step, Reason: e.Reason, Errors: append([]events.Error{}, e.Errors...), Action: e.Action, Reminder: e.Type == events.StepReminded, At: e.At})
		case events.StepStarted, events.UndoStarted:
			if s := l.Step(e.Step); s != nil && !slices.Contains(m.Gone, e.Seq) {
				asks := l.request(e, s)
				if n := len(want.Requests); l.Format < events.KeysFormat && n < len(m.Requests) && m.Requests[n].StepKey == "" {
					asks.StepKey = "" // a release that writes that format may not know it
				}
				if e.Proof != "" {
					asks.Token = "some token"
				}
				want.Requests = append(want.Requests, asks)
			}
		}
	}
	return want
}

// answers are what the sender of a signal is told.
var answers = map[events.Type]string{
	events.StepHeard + "/": events.StatusMatched, events.SignalKept + "/": events.StatusKept, events.SignalStarted + "/": events.StatusStarted, events.SignalDiscarded + "/rejected": events.StatusDeclined,
	events.SignalDiscarded + "/repeated": events.StatusRepeated, events.SignalDiscarded + "/late": events.StatusLate, events.SignalDiscarded + "/unheard": events.StatusLate,
	events.SignalDiscarded + "/given-up": events.StatusDeclined, events.SignalDiscarded + "/too-many": events.StatusDeclined, events.SignalDiscarded + "/too-large": events.StatusDeclined,
}

// statusOutput is the largest output that a status message repeats.
const statusOutput = 900_000

// result is what the caller hears of a completed order: the output of the last
// completed step in the file.
func (l *Ledger) result() *events.Detail {
	for _, s := range slices.Backward(l.Steps) {
		switch {
		case s.State != completed || s.Sleeps || s.Emits:
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
		Order: e.Order, Step: s.Known, Attempt: e.Attempt, Operation: e.Operation,
		CompleteBy: e.CompleteBy, ExtendTo: e.ExtendTo, IdempotencyKey: e.IdempotencyKey, Input: l.accepted.Input,
	}
	if s.Input != nil {
		m.Input = s.Input
	}
	if p := l.accepted.Priority; p != events.Normal {
		m.Priority = p
	}
	if e.Type == events.UndoStarted {
		act := s.undone()
		m.Undo, m.Outcome, m.Input = true, e.Outcome, l.accepted.Input
		if act.Outcome == events.OutcomeCompleted {
			m.Output = s.Output
		}
		if act.Input != nil {
			m.Input = act.Input
		}
		if !s.Undo.single || s.Resubmissions == 0 {
			m.StepKey = l.key(s, false, act.Resubmissions)
		}
		if s.Undo.Input != nil {
			m.Input = s.Undo.Input
		}
	}
	return m
}
