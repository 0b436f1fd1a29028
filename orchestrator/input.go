package orchestrator

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
)

// input is a record of an input topic, as far as it could be read.
type input struct {
	record *kgo.Record
	// unreadable says why nothing can be done with it but to put it aside.
	unreadable string
	order      string
	partition  int32 // of the order

	reply      *events.Reply   // nil for anything else
	command    *events.Command // nil for anything else
	submission events.Submission
	problem    error // why the submission must be rejected
}

// place is where an input is read: in the partition here, while of finds that
// of an order.
type place struct {
	here int32
	of   func(id []byte) int32
}

// readInput reads a record of one of the partition's inputs.
func (l *lane) readInput(r *kgo.Record) input {
	return readInput(r, &l.topics, place{l.partition, l.byKey.of})
}

func readInput(r *kgo.Record, topics *events.Topics, at place) input {
	in := input{record: r, order: string(r.Key), partition: at.here}
	if r.Attrs.IsControl() {
		return in
	}
	kind := events.Type(events.Header(r, events.HeaderType))
	var err error
	switch {
	case r.Topic == topics.Orders && (kind == "" || kind == events.OrderSubmitted):
		err = in.readSubmission(at)
	case r.Topic == topics.Replies && (kind == "" || kind == events.StepReplied):
		err = in.readReply(at)
	case r.Topic == topics.Commands && (kind == "" || kind == events.OrderCommand):
		err = in.readCommand(at)
	default:
		err = fmt.Errorf("type %q does not belong on %s", kind, r.Topic)
	}
	if err != nil {
		in.unreadable = err.Error()
	}
	return in
}

// find finds the partition of the order.
func (in *input) find(at place) error {
	if err := events.CheckOrderID(in.order); err != nil {
		return err
	}
	in.partition = at.of([]byte(in.order))
	return nil
}

func (in *input) readSubmission(at place) error {
	if err := in.find(at); err != nil || in.partition != at.here {
		return err
	}
	in.submission, in.problem = events.Decode[events.Submission](in.record.Value)
	if errors.Is(in.problem, events.ErrUnreadable) {
		return in.problem
	}
	if size := len(in.record.Value); size > events.MaxValue {
		in.problem = fmt.Errorf("the submission has %d bytes; at most %d are allowed", size, events.MaxValue)
	}
	return nil
}

func (in *input) readReply(at place) error {
	if in.order != "" {
		if err := in.find(at); err != nil || in.partition != at.here {
			return err
		}
	}
	reply, err := events.Decode[events.Reply](in.record.Value)
	if err != nil {
		return err
	}
	switch {
	case in.order == "": // the key was left out; the value says it too
		in.order = reply.Order
		if err := in.find(at); err != nil {
			return err
		}
	case in.order != reply.Order:
		return fmt.Errorf("the key names order %q and the value order %q", in.order, reply.Order)
	}
	if reply.Status != events.ReplyCompleted && reply.Status != events.ReplyFailed {
		return fmt.Errorf("status %q: a reply is %s or %s", reply.Status, events.ReplyCompleted, events.ReplyFailed)
	}
	if size := len(in.record.Value); size > events.MaxValue {
		reply = events.Reply{
			Order: reply.Order, Step: reply.Step, Attempt: reply.Attempt, Undo: reply.Undo, Status: events.ReplyFailed,
			Error: &events.Error{Code: "reply-too-large", Message: fmt.Sprintf("the reply has %d bytes; at most %d are allowed", size, events.MaxValue), Permanent: true},
		}
	}
	in.reply = &reply
	return nil
}

func (in *input) readCommand(at place) error {
	if err := in.find(at); err != nil || in.partition != at.here {
		return err
	}
	if size := len(in.record.Value); size > events.MaxValue {
		return fmt.Errorf("the command has %d bytes; at most %d are allowed", size, events.MaxValue)
	}
	command, err := events.Decode[events.Command](in.record.Value)
	if err != nil {
		return err
	}
	in.command = &command
	return nil
}
