package decide

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

// Input is a record of an input topic, as far as it could be read.
type Input struct {
	Record *Record
	// Unreadable says why nothing can be done with it but to put it aside.
	Unreadable string
	Order      string // the order's id
	Partition  int32  // of the order

	Reply      *events.Reply     // nil for anything else
	Command    *events.Command   // nil for anything else
	Signal     *events.Signal    // nil for anything else
	Wish       *events.Wish      // nil for anything else
	Report     *events.Report    // nil for anything else
	Want       *events.Want      // nil for anything else
	Pass       *events.Pass      // nil for anything else
	Bid        *events.Bid       // nil for anything else
	Grant      *events.Grant     // nil for anything else
	Submission events.Submission // that of a Wish, too
	Problem    error             // why the submission must be rejected

	// waited says that it comes from an order that was held, and proof what was said of its
	// token when it came.
	waited bool
	proof  Proof
}

// A signature counts for a day: a command that was signed before that may be a repeat of one
// of which nothing is known any more. Who signs may be ahead by as much as clocks may differ
// before an operator is called: each from Kafka's by a minute, or the allowance for it.
const (
	signedBefore = 24 * time.Hour
	signedAhead  = time.Minute
)

// actor is how the command's author is known, nil if he is not.
func (in *Input) actor(env *Env) *events.Actor {
	if in.Record == nil || env.Format < events.ProofFormat {
		return nil
	}
	a := env.Keys.Actor(env.Topics.Namespace, in.Order, in.Record.Value, in.Record.headerValue(events.HeaderActor))
	if now := env.Now.Add(-env.Ahead); a == nil || a.At.After(now.Add(2*max(signedAhead, env.Skew))) || a.At.Before(now.Add(-signedBefore)) {
		return nil
	}
	return a
}

// Place is where an input is read: in the partition Here, while Of finds that
// of an order.
type Place struct {
	Here int32
	Of   func(id []byte) int32
}

// Read reads a record of an input topic. Of an order that belongs elsewhere it
// says no more than where.
func Read(r *Record, topics *events.Topics, at Place) Input {
	in := Input{Record: r, Order: string(r.Key), Partition: at.Here}
	kind := events.Type(r.header(events.HeaderType))
	var err error
	switch {
	case r.Topic == topics.Orders && (kind == "" || kind == events.OrderSubmitted):
		err = in.readSubmission(at)
	case r.Topic == topics.Replies && (kind == "" || kind == events.StepReplied):
		err = in.readReply(at)
	case r.Topic == topics.Commands && (kind == "" || kind == events.OrderCommand):
		err = in.readCommand(at)
	case r.Topic == topics.Signals && (kind == "" || kind == events.OrderSignal):
		err = in.readSignal(at)
	case r.Topic == topics.Internal && kind == events.ChildWanted:
		err = in.readWish(at)
	case r.Topic == topics.Internal && kind == events.ChildReported:
		err = in.readReport(at)
	case r.Topic == topics.Internal && kind == events.SignalWanted:
		err = in.readWant(at)
	case r.Topic == topics.Internal && kind == events.SignalPassed:
		err = in.readPass(at)
	case r.Topic == topics.Internal && kind == events.PlaceWanted:
		err = in.readBid(at)
	case r.Topic == topics.Internal && kind == events.PlaceGiven:
		err = in.readGrant(at)
	default:
		err = fmt.Errorf("type %q does not belong on %s", kind, r.Topic)
	}
	if err != nil {
		in.Unreadable = err.Error()
	}
	return in
}

// Applies says that it may begin a schedule, or a limit.
func (in *Input) Applies() bool {
	return in.Command != nil && in.Command.Command == events.CommandApply && (events.ScheduleOf(in.Order) != "" || events.LimitOf(in.Order) != "")
}

// OfOrder says that it is about an order that must be there.
func (in *Input) OfOrder() bool {
	return in.Reply != nil || in.Command != nil && !in.Applies() || in.Signal != nil && in.Signal.Key == "" || in.Report != nil || in.Wish != nil && in.Wish.Wish != events.WishBegin && in.Wish.Wish != events.WishForget
}

// find finds the partition of the order.
func (in *Input) find(at Place) error {
	if err := events.CheckOrderID(in.Order); err != nil {
		return err
	}
	in.Partition = at.Of([]byte(in.Order))
	return nil
}

func (in *Input) readSubmission(at Place) error {
	if err := in.find(at); err != nil || in.Partition != at.Here {
		return err
	}
	in.Submission, in.Problem = events.Decode[events.Submission](in.Record.Value)
	if errors.Is(in.Problem, events.ErrUnreadable) {
		return in.Problem
	}
	if size := len(in.Record.Value); size > events.MaxValue {
		in.Problem = fmt.Errorf("the submission has %d bytes; at most %d are allowed", size, events.MaxValue)
	}
	return nil
}

func (in *Input) readReply(at Place) error {
	if in.Order != "" {
		if err := in.find(at); err != nil || in.Partition != at.Here {
			return err
		}
	}
	reply, err := events.Decode[events.Reply](in.Record.Value)
	if err != nil {
		return err
	}
	switch {
	case in.Order == "": // the key was left out; the value says it too
		in.Order = reply.Order
		if err := in.find(at); err != nil {
			return err
		}
	case in.Order != reply.Order:
		return fmt.Errorf("the key names order %q and the value order %q", in.Order, reply.Order)
	}
	switch reply.Status {
	case events.ReplyCompleted, events.ReplyFailed, events.ReplyProgress:
	default:
		return fmt.Errorf("status %q: a reply is %s, %s or %s", reply.Status, events.ReplyCompleted, events.ReplyFailed, events.ReplyProgress)
	}
	if size := len(in.Record.Value); size > events.MaxValue && reply.Status != events.ReplyProgress {
		reply = events.Reply{
			Order: reply.Order, Step: reply.Step, Attempt: reply.Attempt, Undo: reply.Undo, Token: reply.Token, Status: events.ReplyFailed,
			Error: &events.Error{Code: events.ReplyTooLarge, Message: fmt.Sprintf("the reply has %d bytes; at most %d are allowed", size, events.MaxValue), Permanent: true},
		}
	}
	in.Reply = &reply
	return nil
}

func (in *Input) readCommand(at Place) error {
	if err := in.find(at); err != nil || in.Partition != at.Here {
		return err
	}
	if size := len(in.Record.Value); size > events.MaxValue {
		return fmt.Errorf("the command has %d bytes; at most %d are allowed", size, events.MaxValue)
	}
	command, err := events.Decode[events.Command](in.Record.Value)
	if err != nil {
		return err
	}
	in.Command = &command
	return nil
}

// maxDepth is how deep a signal's data, and an output, may be nested: they stand within other JSON,
// which readers bound.
const maxDepth = 1_000

// maxSignalID is the longest id of a signal, in bytes. It is kept as long as its order.
const maxSignalID = 200

// readSignal reads a signal. One with a key belongs to the home of that, whatever the record's key is.
func (in *Input) readSignal(at Place) error {
	var signal events.Signal
	var wrong error
	if size := len(in.Record.Value); size > events.MaxValue {
		wrong = fmt.Errorf("the signal has %d bytes; at most %d are allowed", size, events.MaxValue)
	} else if whole, err := events.Decode[events.Signal](in.Record.Value); err != nil {
		wrong = err // a key that was read before is none: where it belongs must not hang on the order of its members
	} else {
		signal, wrong = whole, CheckSignal(&whole)
	}
	if wrong != nil && len(in.Record.Key) == 0 { // it may be one with a key, which needs none here
		return wrong
	}
	if signal.Key != "" {
		if wrong != nil {
			return wrong
		}
		in.Order = events.CorrelationID(signal.Signal, signal.Key)
	}
	if err := in.find(at); err != nil || in.Partition != at.Here {
		return err
	}
	if wrong != nil {
		return wrong
	}
	in.Signal = &signal
	return nil
}

func (in *Input) readWant(at Place) error {
	if err := in.find(at); err != nil || in.Partition != at.Here {
		return err
	}
	want, err := events.Decode[events.Want](in.Record.Value)
	switch {
	case err != nil:
		return err
	case want.Correlation != in.Order || want.Correlation != events.CorrelationID(want.Signal, want.Key) || want.Order == "" || want.Wait == 0:
		return fmt.Errorf("the key names %q, and the value %q, for wait %d of order %q", in.Order, want.Correlation, want.Wait, want.Order)
	}
	switch want.Want {
	case events.WantAwait, events.WantWithdraw, events.WantHeard, events.WantUnheard:
	default:
		return fmt.Errorf("want %q: there is none of this name", want.Want)
	}
	in.Want = &want
	return nil
}

func (in *Input) readPass(at Place) error {
	if err := in.find(at); err != nil || in.Partition != at.Here {
		return err
	}
	pass, err := events.Decode[events.Pass](in.Record.Value)
	if err != nil {
		return err
	}
	if pass.Order != in.Order || pass.Correlation != events.CorrelationID(pass.Signal, pass.Key) {
		return fmt.Errorf("the key names order %q, and the value order %q, of %q", in.Order, pass.Order, pass.Correlation)
	}
	in.Pass = &pass
	return nil
}

func (in *Input) readBid(at Place) error {
	if err := in.find(at); err != nil || in.Partition != at.Here {
		return err
	}
	bid, err := events.Decode[events.Bid](in.Record.Value)
	if err != nil {
		return err
	}
	if bid.Home != in.Order || !events.IsPlaces(bid.Home) {
		return fmt.Errorf("the key names %q, and the value %q, which is to have places", in.Order, bid.Home)
	}
	in.Bid = &bid
	return bid.Check()
}

func (in *Input) readGrant(at Place) error {
	if err := in.find(at); err != nil || in.Partition != at.Here {
		return err
	}
	grant, err := events.Decode[events.Grant](in.Record.Value)
	if err != nil {
		return err
	}
	if grant.Order != in.Order || !events.IsPlaces(grant.Home) {
		return fmt.Errorf("the key names order %q, and the value order %q, for a place of %q", in.Order, grant.Order, grant.Home)
	}
	in.Grant = &grant
	return nil
}

func (in *Input) readWish(at Place) error {
	if err := in.find(at); err != nil || in.Partition != at.Here {
		return err
	}
	wish, err := events.Decode[events.Wish](in.Record.Value)
	switch {
	case err != nil:
		return err
	case wish.Child != in.Order || wish.Parent == "" || wish.Step == "" && wish.Wish != events.WishForget:
		return fmt.Errorf("the key names order %q, and the value order %q, for step %q of order %q", in.Order, wish.Child, wish.Step, wish.Parent)
	}
	switch wish.Wish {
	case events.WishBegin, events.WishCancel, events.WishUndo, events.WishTell, events.WishForget:
	default:
		return fmt.Errorf("wish %q: there is none of this name", wish.Wish)
	}
	in.Wish, in.Submission = &wish, wish.Submission()
	return nil
}

func (in *Input) readReport(at Place) error {
	if err := in.find(at); err != nil || in.Partition != at.Here {
		return err
	}
	report, err := events.Decode[events.Report](in.Record.Value)
	if err != nil {
		return err
	}
	if report.Parent != in.Order {
		return fmt.Errorf("the key names order %q and the value order %q", in.Order, report.Parent)
	}
	in.Report = &report
	return nil
}

// CheckSignal says why no order can take a signal.
func CheckSignal(s *events.Signal) error {
	if err := workflow.CheckSignal(s.Signal); err != nil {
		return fmt.Errorf("the signal's name %w", err)
	}
	if s.Key != "" {
		if err := events.CheckSignalKey(s.Key); err != nil {
			return fmt.Errorf("the signal's key: %w", err)
		}
		if parts := strings.Split(s.ID, "/"); len(parts) == 3 && strings.Trim(parts[1]+parts[2], "0123456789") == "" {
			return fmt.Errorf("the signal's id is %q, as one has that is given none; choose another", Cut(s.ID, MaxName))
		}
	}
	if events.Depth(s.Data) > maxDepth {
		return fmt.Errorf("the signal's data are nested more than %d deep", maxDepth)
	}
	if len(s.ID) > maxSignalID {
		return fmt.Errorf("the signal's id has %d bytes; at most %d are allowed", len(s.ID), maxSignalID)
	}
	return nil
}
