package oracle

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"cel.dev/cel-go/common/types"

	"github.com/waybill-dev/waybill/events"
)

// FlowEmit is the event that a step gives a topic.
type FlowEmit struct {
	Topic string `json:"topic"`
	Type  string `json:"type"`
	Key   string `json:"key"`
	Data  string `json:"data"`
}

// longestKey is the longest key of an event that a step gives a topic.
const longestKey = 1 << 10

// eventRefused is the code of an attempt whose event its topic does not take.
const eventRefused = "event-refused"

// emits: an attempt begins to give a topic an event, as the workflow says.
func (l *Ledger) emits(e *events.Event, s *Step) {
	l.start(e, s, &s.Work, false)
	s.Emits = true
	if s.def == nil {
		return
	}
	key, err := l.emittedKey(s)
	l.rule("S3", l.Format >= events.EmitFormat && (errors.Is(err, errUnjudged) || err == nil && e.Key == key), "its key is %q, and must be %q, %v, in format %d", e.Key, key, err, l.Format)
}

// emittedKey is the key of a step's event, "" where that is the order's id.
func (l *Ledger) emittedKey(s *Step) (string, error) {
	if s.def.Emit == nil || s.def.Emit.Key == "" {
		return "", nil
	}
	v, err := l.evaluate(s.def.Emit.Key)
	if err != nil {
		return "", err
	}
	text, ok := v.(types.String)
	if !ok || text == "" || len(text) > longestKey {
		return "", fmt.Errorf("%v is no key", v)
	}
	return string(text), nil
}

// Emitted says that a record is an event of a user's, and none of Waybill's own messages.
func Emitted(r *kgo.Record) bool {
	kind := events.Header(r, events.HeaderType)
	return kind != "" && !strings.HasPrefix(kind, "waybill.")
}

// emission is an event of a user's, as far as no attempt has another.
type emission struct{ topic, id, kind, source, subject, key, data, trace, state, baggage string }

// CheckEmitted holds events of users', on their topics, against the histories of their orders: each
// follows from an attempt of a step, whichever, and has the id of that step's other attempts; and of
// what completed none is missing.
func CheckEmitted(histories map[string][]events.Event, topics *events.Topics, records []*kgo.Record) error {
	there := make(map[emission]map[string]bool) // the times that they say
	for _, r := range records {
		of := func(key string) string { return events.Header(r, key) }
		e := emission{r.Topic, of("ce_id"), of(events.HeaderType), of(events.HeaderSource), of("ce_subject"), string(r.Key), string(r.Value), of(events.HeaderTraceparent), of(events.HeaderTracestate), of(events.HeaderBaggage)}
		if there[e] == nil {
			there[e] = make(map[string]bool)
		}
		there[e][of(events.HeaderTime)] = false
	}
	var wrong []error
	for order, history := range histories {
		if !slices.ContainsFunc(history, func(e events.Event) bool { return e.Type == events.StepEmitting }) {
			continue
		}
		l := NewLedger(order, nil)
		last, at := make(map[string]emission), make(map[string]time.Time) // by step
		for i := range history {
			e := &history[i]
			l.Format = events.JournalFormat
			l.follow(e)
			s := l.Step(e.Step)
			if e.Type == events.OrderMigrated {
				rename(last, e.Renamed)
				rename(at, e.Renamed)
			}
			switch {
			case s == nil || !s.Emits:
			case e.Type == events.StepEmitting:
				want := emission{e.Topic, e.IdempotencyKey, e.EventType, "/waybill/" + topics.Namespace, order, e.Key, string(l.inputOf(s)), history[0].Traceparent, history[0].Tracestate, history[0].Baggage}
				if want.key == "" {
					want.key = order
				}
				if want.data == "" {
					want.data = "null"
				}
				last[e.Step], at[e.Step] = want, e.At
				began, says := there[want], string(events.AppendTime(nil, e.At))
				if _, is := began[says]; is {
					began[says] = true
				}
			case e.Type == events.StepCompleted:
				if want := last[e.Step]; !there[want][string(events.AppendTime(nil, at[e.Step]))] {
					wrong = append(wrong, fmt.Errorf("order %q: S3: the step %s completed, and topic %s has no event %+v", order, e.Step, want.topic, want))
				}
			}
		}
	}
	for e, times := range there {
		for at, earned := range times {
			if !earned {
				wrong = append(wrong, fmt.Errorf("S3: an event of %s follows from no attempt: %+v", at, e))
			}
		}
	}
	return errors.Join(wrong...)
}
