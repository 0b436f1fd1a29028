package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/words"
	"github.com/waybill-dev/waybill/orchestrator/decide"
	"github.com/waybill-dev/waybill/projections"
)

// replayedOrder is an order as the journal alone tells it.
type replayedOrder struct {
	Order  api.Order       `json:"order"`
	Events []replayedEvent `json:"events"`
	events []events.Event
}

type replayedEvent struct {
	Event    json.RawMessage   `json:"event"`
	Messages []replayedMessage `json:"messages"`
}

// replayedMessage is a message that followed from an event.
type replayedMessage struct {
	Topic string          `json:"topic"`
	Type  string          `json:"type"`
	Value json.RawMessage `json:"value"`
}

func (r *replay) printOrder(cmd *cobra.Command, out *output, partitions int32, id string) error {
	if err := events.CheckOrderID(id); err != nil {
		return usageError{fmt.Errorf("--order: %w", err)}
	}
	o, err := r.order(cmd.Context(), partitions, id)
	if err != nil {
		return err
	}
	if !out.data() {
		if err := printOrder(cmd, out, &o.Order); err != nil {
			return err
		}
		fmt.Fprintln(cmd.OutOrStdout())
	}
	return out.print(cmd, o, func(row func(...any)) {
		row("SEQ", "EVENT", "STEP", "ATTEMPT", "DETAIL")
		course := words.NewCourse()
		for i := range o.events {
			e := &o.events[i]
			row(e.Seq, words.EventName(e), words.Dash(e.Step), words.Attempt(e.Attempt), course.Tell(e))
			for _, m := range o.Events[i].Messages {
				row("", "", "", "", "-> "+m.Topic+": "+m.Type)
			}
		}
	})
}

// order folds the events of one order. It needs no store: whatever an order is
// follows from its own events.
func (r *replay) order(ctx context.Context, partitions int32, id string) (*replayedOrder, error) {
	byKey := kgo.StickyKeyPartitioner(nil).ForTopic(r.topics.Journal)
	p := int32(byKey.Partition(&kgo.Record{Key: []byte(id)}, int(partitions)))
	j, err := r.openJournal(ctx, p)
	if err != nil {
		return nil, err
	}
	defer j.close()
	result := &replayedOrder{}
	order, owner, format := &projections.Order{}, "", 0
	for j.position < j.end {
		record, err := j.next(ctx)
		if err != nil {
			return nil, err
		}
		if record.Attrs.IsControl() {
			continue
		}
		e, err := events.Decode[events.Event](record.Value)
		if err != nil {
			return nil, fmt.Errorf("journal partition %d offset %d: %w", p, record.Offset, err)
		}
		if e.Type == events.PartitionClaimed {
			owner = e.Instance
		}
		format = max(format, e.Format)
		if e.Order != id {
			continue
		}
		order.In(format)
		if err := order.Apply(&e); err != nil {
			return nil, fmt.Errorf("journal partition %d offset %d: %w", p, record.Offset, err)
		}
		replayed := replayedEvent{Event: record.Value, Messages: []replayedMessage{}}
		for _, m := range decide.Outbox(nil, &r.topics, nil, order, &e)[1:] { // behind the event itself
			replayed.Messages = append(replayed.Messages, replayedMessage{m.Topic, string(m.Envelope.Type), m.Value})
		}
		result.Events = append(result.Events, replayed)
		result.events = append(result.events, e)
	}
	if order.Seq == 0 {
		return nil, fmt.Errorf("there is no order %q in the journal of namespace %s", id, r.topics.Namespace)
	}
	if order.LockedBy != "" {
		order.LockedBy = owner // whoever claimed the partition last holds the locks of all its orders
	}
	result.Order = api.OrderOf(p, order, time.Now())
	return result, nil
}
