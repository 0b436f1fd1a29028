package audit

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
)

// heard is a signal, and what must be recorded of it.
type heard struct {
	entry
	name, id, replyTo string
	sender            string // see senderOf
	data              uint64
	waits, kept       bool
	released          bool // and nothing came of it yet
	keyed             bool // it is for whoever waits under its key
}

func (h *heard) String() string { return fmt.Sprintf("signal %s %q", h.name, h.id) }

// homeOf is the record to which a signal belongs: that of its key, or its order.
func homeOf(r *kgo.Record) string {
	if value, err := events.Decode[events.Signal](r.Value); err == nil && value.Key != "" && len(r.Value) <= events.MaxValue {
		return events.CorrelationID(value.Signal, value.Key)
	}
	return string(r.Key)
}

// placeForm is where something stands.
var placeForm = regexp.MustCompile(`^[^/]*/[0-9]*/[0-9]*$`)

var signalForm = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,100}$`)

func (m *message) hear(r *kgo.Record) error {
	if len(r.Value) > events.MaxValue {
		return fmt.Errorf("it has %d bytes", len(r.Value))
	}
	value, err := events.Decode[events.Signal](r.Value)
	if err != nil {
		return err //nolint:wrapcheck // whoever reports it says of what
	}
	if !signalForm.MatchString(value.Signal) || len(value.ID) > 200 {
		return errors.New("it has no name, or its id is too long")
	}
	if events.Depth(value.Data) > 1_000 {
		return errors.New("its data are nested too deeply")
	}
	if value.Key != "" && (events.CheckSignalKey(value.Key) != nil || placeForm.MatchString(value.ID)) {
		return errors.New("its key is too long, or its id that of one which has none")
	}
	m.signal = &heard{name: value.Signal, id: value.ID, replyTo: value.ReplyTo, sender: senderOf(r), data: hash(value.Data), keyed: value.Key != ""}
	if m.signal.keyed && value.ID == "" {
		m.signal.id = placeOf(r).String()
	}
	return nil
}

// signalled holds what became of a signal against the signal. It says whether the event is about
// one.
func (s *settlement) signalled(a *account, e *events.Event) bool {
	at, err := parsePlace(e.Source)
	if err != nil || at.topic != s.Topics.Signals {
		return false
	}
	h := a.signals[at.offset]
	if h == nil || at.partition != a.partition {
		s.report("order %q: event %d, %s, is of %s, where no signal for it is", a.id, e.Seq, e.Type, at)
		return true
	}
	if !h.waits && !h.kept {
		if at.offset < a.signal {
			s.report("order %q: event %d, %s, is of %s, whose turn is over", a.id, e.Seq, e.Type, at)
		}
		a.signal = at.offset
	}
	sent := !h.kept || h.released // then the event says by whom
	h.released = false
	switch e.Type {
	case events.InputHeld:
		h.waits = true
		return true
	case events.InputReleased:
		if h.aside != 0 {
			s.report("%s was put aside, and released", at)
		}
		h.waits = false
		a.signal = max(a.signal, at.offset)
		h.kept, h.released = true, true // whose turn it is no matter
		return true
	case events.InputDiscarded:
		a.givesUp = false
		a.putAside = max(a.putAside, e.Count)
		s.watch(a)
		if h.aside != hash([]byte(e.Reason)) {
			s.report("%s was discarded, and no dead letter says so: %s", at, e.Reason)
		}
		if strings.Contains(e.Reason, "panicked") {
			s.Panicked++
		}
		delete(a.signals, at.offset)
		return true
	case events.SignalExpired:
		delete(a.signals, at.offset)
	case events.SignalGiven, events.SignalOrdered:
		if !h.kept {
			s.Heard++
		}
		h.kept = true
	case events.SignalMatched, events.SignalStarted:
		a.unheard = 0
		delete(a.signals, at.offset)
	case events.SignalKept:
		if !h.kept || e.Data != nil {
			s.Heard++
		}
		if h.kept = true; h.keyed {
			a.unheard = 0
		}
	case events.SignalDiscarded:
		s.Unheard++
		a.unheard = max(a.unheard, e.Count)
		s.watch(a)
		delete(a.signals, at.offset)
	case events.StepHeard:
		if !h.kept || e.Data != nil {
			s.Heard++
		}
		delete(a.signals, at.offset)
	}
	if e.Signal != h.name || e.SignalID != h.id || e.Data != nil && hash(e.Data) != h.data || e.ReplyTo != "" && e.ReplyTo != h.replyTo {
		s.report("%s is %s, and event %d of order %q says otherwise", at, h, e.Seq, a.id)
	}
	if e.AnsweredBy != h.sender && (e.AnsweredBy != "" || sent || h.keyed && (e.Type == events.SignalGiven || e.Type == events.SignalOrdered)) {
		s.report("%s is by %q, and led to event %d of order %q, %s, by %q", at, h.sender, e.Seq, a.id, e.Type, e.AnsweredBy)
	}
	return true
}

// dropSignals drops the signals up to an offset of which the order says nothing any more.
func (s *settlement) dropSignals(a *account, to int64) {
	for offset, h := range a.signals {
		if offset < to && !h.waits && !h.kept && (h.aside == 0 && a.unheard >= maxVoid || h.aside != 0 && a.putAside >= maxVoid) {
			delete(a.signals, offset)
			s.dropped[a.partition]++
		}
	}
}

// closeSignals says which came to nothing. Those that an order keeps need not have come to anything.
func (s *settlement) closeSignals(a *account) {
	for offset, h := range a.signals {
		switch {
		case h.waits:
			s.Held++
		case !h.kept:
			s.report("%s came to nothing: %s", place{s.Topics.Signals, a.partition, offset}, h)
		}
	}
}
