package decide

import (
	"cmp"
	"fmt"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
)

// A limit has a home, a record beside the orders, that gives its places: each attempt of a step which names the limit
// asks there first, begins once it has a place, and gives that back with its end. So has a key of which one order may be
// open at a time: the order asks there before anything else, and has the place until its end.

// queue has an order wait for its turn at the home of a key.
func (d *decider) queue(home, key string, does events.OnConflict) {
	d.record(&events.Event{Type: events.OrderQueued, Home: home, Key: key, OnConflict: does})
}

// askAgain has an order ask for its turn that gave it up, since it was in Error before it began. It comes after those that
// came since: it neither fails for them, nor has them cancelled.
func (d *decider) askAgain() {
	if d.order.OwnTurn() == nil {
		d.queue(d.order.TurnHome, d.order.TurnKey, events.ConflictQueue)
	}
}

// takeTurn has an order begin that waits for its turn, or end for which there is none, or be undone whose turn another
// order has.
func takeTurn(env *Env, order *projections.Order, fault *events.Error) Decision {
	switch {
	case order.Started && (fault == nil || fault.Code != events.Superseded || unwanted(order)): // it has its turn already, or is about to end
		return Decision{}
	case order.Started:
		d := newDecider(env, order)
		d.turnBack(projections.Cancelled, events.Event{Reason: fault.Message, Error: fault})
		return d.made()
	}
	d := newDecider(env, order)
	if fault != nil {
		d.tell(events.Event{Type: events.OrderRaised, Reason: "it did not begin: " + fault.Message, Error: fault})
		return d.made()
	}
	switch {
	case env.over(order.Overdue()): // and so keeps nobody else from beginning
		d.overdue()
	case d.flow == nil && !order.Paused: // else once it goes on
		d.broken()
	default:
		d.record(&events.Event{Type: events.OrderStarted})
	}
	d.advance()
	return d.made()
}

// askPlace has the task's next attempt wait for a place. It reports false when the order took another course
// instead.
func (d *decider) askPlace(t task) bool {
	key, err := t.def.Limit.KeyOf(t.scope())
	if err != nil {
		t.kind = listener{} // what an operator can do about a key is the same
		return d.refuse(t, &events.Error{Code: badExpression, Message: err.Error()})
	}
	d.record(&events.Event{Type: events.PlaceAsked, Step: t.step.Name, Attempt: t.work().Attempt + 1, Home: events.LimitID(t.def.Limit.Name), Key: key, ToUndo: t.undo})
	d.begun++
	return true
}

// takeGrant has the attempt begin that waits for a place, or fail for which there is none. What needs it no more
// gives it back, and leaves no event: the order need not be there.
func takeGrant(env *Env, order *projections.Order, in *Input) Decision {
	g := in.Grant
	var turn *projections.Turn
	if order != nil {
		turn = order.Turn(g.Home, g.Wait)
	}
	switch {
	case turn != nil && turn.Step != "" && !order.WorkOf(turn).Waits(): // it has it already
		return Decision{}
	case turn == nil && g.Error != nil:
		return Decision{}
	case turn == nil:
		return Decision{Messages: []Message{unneeded(env, in.Record, g)}}
	case turn.Step == "":
		return takeTurn(env, order, g.Error)
	}
	side := doing
	if turn.Undo {
		side = undoing
	}
	d := newDecider(env, order)
	switch t := d.task(place(d.order, turn.Step), side); {
	case g.Error != nil && env.over(d.order.Overdue()): // what had not begun fails no more
		d.overdue()
		d.advance()
	case g.Error != nil:
		d.record(&events.Event{Type: t.failed, Step: t.step.Name, Attempt: t.work().Attempt + 1, Error: g.Error, Source: in.Record.Source()})
		d.repair(t)
	case d.flow == nil:
		d.broken()
	case !d.start(t):
		d.advance()
	}
	return d.made()
}

// lostAsk has an attempt fail that asked for a place with a record that is put aside: it would wait for ever. The decision
// of the home has it otherwise.
func lostAsk(env *Env, r *Record, reason string) (answer []Message) {
	b := bidOf(env, r)
	if b == nil || b.Bid != events.BidAsk {
		return nil
	}
	g := events.Grant{Order: b.Order, Step: b.Step, Wait: b.Wait, Home: b.Home}
	return []Message{none(env, r, g, "what it asked for was put aside: "+reason)}
}

// bidOf is what an order says of a place with a record, nil for any other.
func bidOf(env *Env, r *Record) *events.Bid {
	if r.Topic != env.Topics.Internal || events.Type(r.header(events.HeaderType)) != events.PlaceWanted {
		return nil
	}
	b, err := events.Decode[events.Bid](r.Value)
	if err != nil {
		return nil
	}
	return &b
}

// takeBack takes back the place that goes back with a record which is put aside: nobody gives it back again, and
// whoever waits for it would wait for ever. Where that panics, as deciding on the record may have done, it stays
// taken until the dead letter is put back.
func (d *decider) takeBack(r *Record) {
	if d.order.Places == nil {
		return
	}
	b := bidOf(d.env, r)
	if b == nil || b.Check() != nil || b.Bid == events.BidAsk || b.Home != d.order.ID || d.order.Places.Seat(b.Order, b.Wait) == nil {
		return
	}
	order, out := d.order, d.out
	defer func() {
		if recover() != nil {
			d.order, d.out = order, out
		}
	}()
	d.order = order.Clone()
	d.record(&events.Event{Type: events.PlaceReturned, Waiter: b.Order, Wait: b.Wait, Source: r.Source()})
}

// lostGrant has the order hear that it has no place, of which an operator gave up the answer: it would wait for ever. With the end
// of what waits a place goes back that was given. An order that does not wait for it stays as it is, also one that was to leave its
// place to another, and gives back what it was given.
func (d *decider) lostGrant(r *Record, reason string) []Message {
	if r.Topic != d.env.Topics.Internal || events.Type(r.header(events.HeaderType)) != events.PlaceGiven {
		return nil
	}
	g, err := events.Decode[events.Grant](r.Value)
	if err != nil {
		return nil
	}
	turn := d.order.Turn(g.Home, g.Wait)
	switch {
	case turn == nil && g.Error != nil, turn != nil && (turn.Step == "" && d.order.Started || turn.Step != "" && !d.order.WorkOf(turn).Waits()):
		return nil
	case turn == nil:
		return []Message{unneeded(d.env, r, &g)}
	}
	return []Message{none(d.env, r, g, "what it was told of its place was put aside: "+reason)}
}

// none says in answer to a record that there is no place.
func none(env *Env, r *Record, g events.Grant, why string) Message {
	g.Error = &events.Error{Code: events.TooManyWaiting, Message: Cut(why, MaxText), Permanent: true}
	return answered(env, r, events.PlaceGiven, g.Order, g.Append(nil))
}

// unneeded gives back the place that a record has given.
func unneeded(env *Env, r *Record, g *events.Grant) Message {
	b := events.Bid{Home: g.Home, Bid: events.BidUnwanted, Order: g.Order, Step: g.Step, Wait: g.Wait}
	return answered(env, r, events.PlaceWanted, g.Home, b.Append(nil))
}

// keepPlaces decides on an input to a home of places, which need not be there.
func keepPlaces(env *Env, order *projections.Order, in *Input) Decision {
	switch {
	case in.Bid == nil && in.Command == nil && in.Reply == nil && in.Signal == nil && in.Report == nil && in.Pass == nil && in.Grant == nil && in.Wish == nil && in.Want == nil:
		return submittedOwn(in)
	case in.Bid == nil && in.Command == nil:
		why := in.Order + " has places that orders ask for, and is no order"
		if order == nil || order.Forgotten {
			return Decision{Aside: []Aside{{in.Record, why}}}
		}
		d := &decider{env: env, order: order.Clone(), load: env.load}
		d.putAside(in.Record, why)
		return d.made()
	case in.Command != nil && events.IsTurn(in.Order) && (order == nil || order.Forgotten):
		return Decision{Aside: []Aside{{in.Record, "there is no order of this id"}}}
	case env.Format < events.LimitsFormat && in.Command != nil: // an older release could not read what follows
		return Decision{Aside: []Aside{{in.Record, fmt.Sprintf("limits are of format %d, and the partition is of format %d: finish the upgrade (waybill upgrade finish)", events.LimitsFormat, env.Format)}}}
	}
	if order == nil {
		order = &projections.Order{ID: in.Order}
	}
	order = order.Clone()
	if order.Places == nil {
		order.Places = projections.NewPlaces(in.Order)
	}
	if in.Command != nil {
		return Operate(env, order, in)
	}
	d := &decider{env: env, order: order, load: env.load}
	if fault := d.bid(in); fault != nil {
		g := events.Grant{Order: in.Bid.Order, Step: in.Bid.Step, Wait: in.Bid.Wait, Home: in.Order, Error: fault}
		return Decision{Messages: []Message{answered(env, in.Record, events.PlaceGiven, g.Order, g.Append(nil))}}
	}
	return d.made()
}

// bid takes what an order says of a place, or says why it can have none. What comes twice changes nothing.
func (d *decider) bid(in *Input) *events.Error {
	b, p, limit := in.Bid, d.order.Places, events.LimitOf(in.Order)
	there := p.Seat(b.Order, b.Wait) != nil
	switch {
	case b.Bid != events.BidAsk && there:
		d.record(&events.Event{Type: events.PlaceReturned, Waiter: b.Order, Wait: b.Wait, Source: in.Record.Source()})
	case b.Bid != events.BidAsk, there:
	case b.OnConflict == events.ConflictReject && p.Taken+p.Waiting > 0:
		return conflictWith(p)
	case b.OnConflict == "" && p.Says == nil:
		return &events.Error{Code: events.UnknownLimit, Message: fmt.Sprintf("there is no limit %s; apply one first (waybill limit apply)", limit), Permanent: true}
	case p.Waiting >= events.MaxPlacesAwaited && !b.Undo: // what is done is undone whenever that is
		return &events.Error{Code: events.TooManyWaiting, Message: fmt.Sprintf("%d wait for places of %s, and no more may", p.Waiting, cmp.Or(limit, in.Order)), Permanent: true}
	default:
		e := events.Event{Type: events.PlaceAwaited, Waiter: b.Order, Step: b.Step, Wait: b.Wait, Key: b.Key, Rank: p.Rank(b.Key), Source: in.Record.Source()}
		if b.OnConflict == events.ConflictCancelOther {
			e.OnConflict = b.OnConflict
		}
		if p.Waiting == 0 && p.Room(d.env.Now) {
			e.Type = events.PlaceGranted
		}
		d.record(&e)
	}
	d.grant()
	return nil
}

// conflictWith is why an order cannot be open beside another.
func conflictWith(p *projections.Places) *events.Error {
	why := "others wait to be open under its key"
	if s := p.Holder(); s != nil {
		why = fmt.Sprintf("order %s is open under its key", s.Order)
	}
	return &events.Error{Code: events.Conflict, Message: why, Permanent: true}
}

// grant gives the places that there are to those who wait, and tells those who need wait no more.
func (d *decider) grant() {
	for ; d.order.Hold == nil && d.order.Places.Superseded() && !d.spent(); d.begun++ {
		p := d.order.Places
		s := p.Next()
		d.record(&events.Event{Type: events.PlaceReturned, Waiter: s.Order, Wait: s.Wait, Error: p.SupersededBy()})
	}
	for p := d.order.Places; d.order.Hold == nil && p.Room(d.env.Now) && !d.spent(); d.begun++ {
		s := p.Next()
		if s == nil {
			return
		}
		d.record(&events.Event{Type: events.PlaceGranted, Waiter: s.Order, Step: s.Step, Wait: s.Wait, Key: s.Key, Rank: s.Rank})
	}
}

// operateLimit does to a limit what a command asks for, or says why that is not possible.
func (d *decider) operateLimit(c *events.Command, act events.Event) (refusal string) {
	p := d.order.Places
	if events.IsTurn(d.order.ID) && c.Command != events.CommandRelease {
		return fmt.Sprintf("it lets one order be open at a time, and is none: it can be released once it is held, and not %s", Cut(c.Command, MaxName))
	}
	switch c.Command {
	case events.CommandApply, events.CommandDelete:
		if d.order.Hold != nil {
			return fmt.Sprintf("the limit is held, and nothing is done to it before its release: waybill order release %s", quote(d.order.ID))
		}
	}
	switch c.Command {
	case events.CommandApply:
		if c.Limit == nil {
			return "nothing says what the limit is to be"
		}
		if err := events.CheckLimit(c.Limit); err != nil {
			return err.Error()
		}
		act.Type, act.Limit = events.LimitApplied, c.Limit
	case events.CommandDelete:
		switch {
		case p.Says == nil:
			return "there is no limit of this name"
		case p.Taken+p.Waiting > 0:
			return fmt.Sprintf("%d attempts have places of it, and %d wait for one: delete it once none does; until then apply another", p.Taken, p.Waiting)
		}
		act.Type = events.LimitDeleted
	case events.CommandRelease:
		return d.release(c, act)
	default:
		return fmt.Sprintf("it is a limit, and no order: it can be applied and deleted, and released once it is held, which %s is not", Cut(c.Command, MaxName))
	}
	d.record(&act)
	d.grant()
	return ""
}
