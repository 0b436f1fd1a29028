package decide

import (
	"bytes"
	"cmp"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/proof"
	"github.com/waybill-dev/waybill/projections"
)

// What may wait for the release of one order: its record is kept in memory.
const (
	maxWaiting   = 100
	waitingBytes = 2 * events.MaxBatch
)

// guard decides. A panic becomes what [On] says of it; without an input the
// supervisor looked at the order.
func guard(env *Env, order *projections.Order, in *Input, decide func() Decision) (decision Decision) {
	defer func() {
		if v := recover(); v != nil {
			reason := fmt.Sprintf("deciding on it panicked: %v; the log of instance %s has the stack", v, env.Instance)
			decision = poisoned(env, order, in, reason)
			decision.Panic = fmt.Sprintf("%v\n%s", v, debug.Stack())
		}
	}()
	return decide()
}

// Hold decides what becomes of an order, and of the input, if there is one, on which
// deciding is of no use: what follows cannot be written. That is what [On] says of a
// panic.
func Hold(env *Env, order *projections.Order, in *Input, why string) Decision {
	return poisoned(env, order, in, why)
}

// poisoned decides what becomes of an order, and of the input, if there is one,
// on which deciding panicked.
func poisoned(env *Env, order *projections.Order, in *Input, reason string) Decision {
	if order == nil && (in.Applies() || in.Pass != nil || in.Bid != nil || in.Grant != nil) || in != nil && (events.IsCorrelation(in.Order) || events.IsTurn(in.Order)) && (order == nil || order.Forgotten) {
		return Decision{Aside: []Aside{{in.Record, reason}}, Messages: lostAsk(env, in.Record, reason)}
	}
	if order == nil {
		d := newDecider(env, nil)
		e := events.Event{Type: events.OrderRejected, Order: in.Order, Reason: reason} // its digest may be what panics
		if w := in.Wish; w != nil {
			e.Parent, e.ParentStep, e.Detached = w.Parent, w.Step, w.Detached
		}
		d.record(&e)
		d.aside = append(d.aside, Aside{in.Record, reason})
		return d.made()
	}
	d := &decider{env: env, order: order.Clone(), load: env.load} // looking its workflow up may be what panics
	held, forged := order.Hold == nil && !order.State.Final(), false
	if held {
		_, forged = d.proofOf(in)
		d.holdOrder(reason, in != nil && in.Command == nil && !forged)
	}
	switch {
	case in == nil && order.State.Final() && len(order.Waiting) > 0: // it ended while it was released
		d.putAside(recordOf(&order.Waiting[0]), reason)
	case in == nil:
	case in.Command != nil: // whoever sent it hears of it, and can send it again
		d.refuseCommand(in.Command, in.actor(env), reason)
		d.aside = append(d.aside, Aside{in.Record, reason})
	case forged && env.Format >= 2 && order.Discarded >= MaxVoid: // the order has recorded enough of these
		d.dropped += dropped(in)
	case held:
		d.holdInput(in)
	default:
		d.putAside(in.Record, reason)
		if w := in.Wish; w != nil && w.Wish == events.WishUndo { // its parent waits for what does not come
			d.record(&events.Event{Type: events.OrderReported, Parent: w.Parent, ParentStep: w.Step, Reason: reason, Error: &events.Error{Code: "internal", Message: reason}})
		}
	}
	return d.made()
}

// holdOrder takes the order into Error, held. First says that an input will wait.
func (d *decider) holdOrder(reason string, first bool) {
	id := quote(d.order.ID)
	action := "find out why, then let it go on: waybill order release " + id
	if first || len(d.order.Waiting) > 0 {
		action += fmt.Sprintf("; or give up the first input that waits: waybill order release %s --discard", id)
	}
	d.errored(events.Event{Held: true, Reason: reason, Error: &events.Error{Code: "internal", Message: reason, Permanent: true}}, action)
}

// holdInput has an input wait behind those that wait already. One for which there is
// no room is put aside. A reply that must repeat its token, and does not, waits for
// nothing: it would take the room of the agent's own.
func (d *decider) holdInput(in *Input) Proof {
	r := in.Record
	says, forged := d.proofOf(in)
	if forged {
		d.discard(in, events.DiscardForged)
		return says
	}
	e := events.Event{Type: events.InputHeld, Source: r.Source(), Raw: rawOf(r)}
	if says == ProofRepeated {
		e.Proof = events.ProofRepeated
	}
	size := r.Size()
	for i := range d.order.Waiting {
		size += recordOf(&d.order.Waiting[i]).Size()
	}
	var why string
	most := maxWaiting
	if in.Want != nil || in.Grant != nil || in.Report != nil && d.order.Correlation != nil { // whoever waits would not know that what it says is lost
		most = 4 * events.MaxWaits
	}
	if in.Bid != nil {
		most = events.MaxPlacesAwaited
	}
	switch n := len(d.order.Waiting); {
	case n >= most:
		why = fmt.Sprintf("%d inputs wait, and no more may", n)
	case size > waitingBytes && in.Want == nil && in.Grant == nil: // these are short, and few
		why = fmt.Sprintf("with it %d bytes would wait; at most %d may", size, waitingBytes)
	default:
		why = d.try(&e)
	}
	if why != "" {
		d.putAside(r, "nothing is decided on the order now, and this cannot wait: "+why)
	}
	return says
}

// putAside puts an input aside that changes nothing.
func (d *decider) putAside(r *Record, reason string) {
	d.record(&events.Event{Type: events.InputDiscarded, Source: r.Source(), Reason: reason, Count: d.env.count(d.order.PutAside)})
	d.aside = append(d.aside, Aside{r, reason})
	if p := passOf(r, d.env.Topics); p != nil && p.Refused == "" { // others may wait for it
		d.out = append(d.out, returned(d.env, p, r, events.SignalGivenUp))
	}
	d.out = append(d.out, lostAsk(d.env, r, reason)...)
	d.takeBack(r)
}

// release has an order that is held go on, and decides on what waited.
func (d *decider) release(c *events.Command, act events.Event) (refusal string) {
	switch {
	case d.order.Hold == nil:
		return "the order is not held"
	case d.env.Full:
		return "too much is being decided at the moment; release the order again"
	case c.Discard && len(d.order.Waiting) == 0:
		return "no input waits that could be discarded; release the order without that"
	}
	act.Type, act.LockedBy = events.OrderReleased, d.lock()
	d.record(&act)
	if c.Discard {
		r, reason := recordOf(&d.order.Waiting[0]), "given up by an operator: "+cmp.Or(c.Note, "no reason was given")
		d.putAside(r, reason)
		d.out = append(d.out, d.lostGrant(r, reason)...)
	}
	d.resume()
	return ""
}

// redo decides on the first input that waits, as if it had just been read.
func (d *decider) redo() Decision {
	first := &d.order.Waiting[0]
	r := recordOf(first)
	next := &decider{env: d.env, order: d.order.Clone(), load: d.load}
	in := Read(r, d.env.Topics, Place{Of: func([]byte) int32 { return 0 }})
	if in.waited = true; first.Proof == events.ProofRepeated {
		in.proof = ProofRepeated
	}
	if in.Unreadable != "" { // to this release, not to the one that held it
		next.putAside(r, in.Unreadable)
		return next.made()
	}
	next.record(&events.Event{Type: events.InputReleased, Source: first.Source})
	next.within(func() Decision { return in.dispatch(d.env, next.order) })
	return next.made()
}

// rawOf copies a reply's record, whose bytes are part of all that was fetched with it. The
// journal has no token that somebody could use.
func rawOf(r *Record) *events.Raw {
	value, _ := proof.Hidden(r.Value) // it was read
	raw := &events.Raw{Written: events.Time(r.Written), Key: some(r.Key), Value: bytes.Clone(value)}
	for _, h := range r.Headers {
		raw.Headers = append(raw.Headers, events.RawHeader{Key: strings.ToValidUTF8(h.Key, "\uFFFD"), Value: some(h.Value)})
	}
	return raw
}

// some copies b, and takes nothing for nil.
func some(b []byte) []byte { return append([]byte(nil), b...) }
