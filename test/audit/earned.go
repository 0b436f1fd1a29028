package audit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/test/oracle"
)

// Unearned are the times when an order came into Error and neither an agent's
// reply nor an expiry had brought it there, nor an expression that lacks the output of
// a step that was skipped, or says the message of a failure. That it does fail is the oracle's to hold.
func (b *Books) Unearned() []string {
	var all []string
	for id, history := range b.Histories {
		for _, n := range unearned(history) {
			all = append(all, fmt.Sprintf("order %q: nothing brought it into Error: event %d: %s", id, n, history[n-1].Reason))
		}
	}
	return all
}

// unearned are the numbers of such events.
func unearned(history []events.Event) (all []uint64) {
	broken := make(map[task]events.Error)
	skipped := false
	for i := range history {
		e := &history[i]
		skipped = skipped || e.Type == events.StepSkipped
		switch e.Type {
		case events.StepFailed, events.StepExpired, events.UndoFailed, events.UndoExpired:
			if e.Error != nil {
				broken[task{e.Step, e.Type == events.UndoFailed || e.Type == events.UndoExpired}] = *e.Error
			}
		case events.StepStarted, events.StepEmitting, events.StepItemized, events.StepCompleted, events.StepRepeated, events.StepSkipped:
			delete(broken, task{e.Step, false})
		case events.UndoStarted, events.UndoCompleted, events.UndoSkipped:
			delete(broken, task{e.Step, true})
		case events.OrderResubmitted:
			clear(broken)
		case events.OrderErrored:
			fault, failed := broken[task{e.Step, false}]
			earned := failed && e.Error != nil && *e.Error == fault
			if e.Error == nil { // undos failed
				for w := range broken {
					earned = earned || w.undo
				}
			} else if deadline := history[0].Deadline; e.Error.Code == "overdue" {
				earned = !deadline.IsZero() && !e.At.Before(deadline)
			} else if e.Error.Code == "bad-expression" {
				earned = skipped || slices.ContainsFunc([]string{"message", "key", "data"}, func(key string) bool {
					return strings.HasPrefix(e.Reason, "step "+e.Step+": "+key+" ")
				})
			}
			if !earned || e.Held {
				all = append(all, e.Seq)
			}
		}
	}
	return all
}

// refusedForNothing are the topics of callers that were given up though they take what
// comes, as far as is known: they have a name that may be, are not Waybill's own, are
// there, and never refused anything.
func (a Audit) refusedForNothing(history []events.Event, topics *events.Topics, there func(topic string) bool) (all []string) {
	for i := range history {
		e := &history[i]
		if to := e.ReplyTo; e.Type == events.StatusRefused && events.ValidTopic(to) && !topics.Owns(to) && !events.OwnSomewhere(to) && there(to) && !slices.Contains(a.Refusing, to) {
			all = append(all, fmt.Sprintf("order %q: nothing was wrong with %s: event %d: %s", e.Order, to, e.Seq, e.Reason))
		}
	}
	return all
}

// forgotten are the numbers of the events whose requests are gone with their topic, and
// how many they are.
func (a Audit) forgotten(histories map[string][]events.Event, sent []*kgo.Record, topics *events.Topics) (gone map[string][]uint64, n int) {
	if len(a.Forgetful) == 0 {
		return nil, 0
	}
	type request struct {
		order string
		seq   int
	}
	there := make(map[request]bool)
	for _, r := range sent {
		if slices.Contains(a.Forgetful, r.Topic) {
			there[request{string(r.Key), oracle.Number(r)}] = true
		}
	}
	gone = make(map[string][]uint64)
	for id, history := range histories {
		for i := range history {
			e := &history[i]
			if (e.Type == events.StepStarted || e.Type == events.UndoStarted) && slices.Contains(a.Forgetful, topics.Requests(e.Agent)) && !there[request{id, i + 1}] {
				gone[id] = append(gone[id], e.Seq)
				n++
			}
		}
	}
	return gone, n
}
