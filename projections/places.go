package projections

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"iter"
	"slices"
	"sort"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waybill-dev/waybill/events"
)

// Places of limits, and turns of orders of which one is open at a time. On the side of an order: those that it asked
// for. On that of their home, a record beside the orders: who has one, and who waits.

// Turn is a place that an order asked for. It is not changed in place.
type Turn struct {
	Home, Key  string
	Step       string // by the name under which it is known outside; empty where it is the order's own
	OnConflict events.OnConflict
	Undo       bool   // it is for the step's undo
	Number     uint64 // of the event with which the order asked
	Since      time.Time
	// Ended is the number of the event since which the order needs it no more, 0 before that. The event that follows
	// takes the turn from the list.
	Ended uint64
}

// Waits says that the next attempt waits for a place.
func (w *Work) Waits() bool { return w.Turn != 0 && w.State != Running && w.Due.IsZero() }

// Turn returns the place that the order asked a home for with the event of a number, nil if it needs it no more.
func (o *Order) Turn(home string, number uint64) *Turn {
	for i := range o.Turns {
		if t := &o.Turns[i]; t.Number == number && t.Home == home && t.Ended == 0 {
			return t
		}
	}
	return nil
}

// Queued says that the order has not begun: another is open under its key.
func (o *Order) Queued() bool { return o.Asked != 0 && !o.Started && !o.State.Final() }

// OwnTurn is that of the order itself, for which it waits, or which it has; nil if there is none.
func (o *Order) OwnTurn() *Turn {
	if len(o.Turns) == 0 || o.Turns[0].Step != "" || o.Turns[0].Ended != 0 {
		return nil
	}
	return &o.Turns[0]
}

// WorkOf is that for which a step's place was asked for, nil if the order does not have it any more.
func (o *Order) WorkOf(t *Turn) *Work {
	s := o.Known(t.Step)
	switch {
	case s == nil:
		return nil
	case t.Undo:
		return s.Undo
	}
	return &s.Work
}

func queueOrder(o *Order, _ *Step, e *events.Event) {
	o.Asked, o.TurnHome, o.TurnKey = e.Seq, e.Home, e.Key
	o.Turns = append(slices.Clip(o.Turns), Turn{Home: e.Home, Key: e.Key, OnConflict: e.OnConflict, Number: e.Seq, Since: events.Time(e.At)})
}

func startOrder(o *Order, _ *Step, _ *events.Event) { o.Started = true }

func askPlace(o *Order, s *Step, e *events.Event) {
	w := &s.Work
	if e.ToUndo {
		w = s.undoing()
	}
	w.Turn, w.Due = e.Seq, time.Time{}
	o.Turns = append(slices.Clip(o.Turns), Turn{Home: e.Home, Key: e.Key, Step: s.Known(), Undo: e.ToUndo, Number: e.Seq, Since: events.Time(e.At)})
}

// yield notes with which event the order ceased to need places, whatever it was that did it.
func (o *Order) yield() {
	if len(o.Turns) == 0 {
		return
	}
	needed := make([]bool, len(o.Turns))
	if t := &o.Turns[0]; t.Step == "" { // it is asked for first
		stopped := o.State == Error && o.Hold == nil && !o.Started // it keeps nobody from beginning, and asks anew
		needed[0] = t.Ended == 0 && !o.State.Final() && !stopped
	}
	need := func(s *Step, w *Work, undo bool) {
		// They stand in the order of their numbers.
		at := sort.Search(len(o.Turns), func(i int) bool { return o.Turns[i].Number >= w.Turn })
		if at < len(o.Turns) {
			t := &o.Turns[at]
			needed[at] = needed[at] || t.Number == w.Turn && t.Ended == 0 && t.Undo == undo && t.Step == s.Known()
		}
	}
	for i := 0; i < len(o.Steps) && !o.State.Final(); i++ {
		s := &o.Steps[i]
		if s.Turn != 0 {
			need(s, &s.Work, false)
		}
		if s.Undo != nil && s.Undo.Turn != 0 {
			need(s, s.Undo, true)
		}
	}
	if !slices.Contains(needed, false) {
		return
	}
	turns := make([]Turn, 0, len(o.Turns))
	for i, t := range o.Turns {
		if t.Ended != 0 {
			continue
		}
		if !needed[i] {
			t.Ended = o.Seq
		}
		turns = append(turns, t)
	}
	if o.Turns = turns; len(turns) == 0 {
		o.Turns = nil
	}
}

// Bids is what the order tells the homes of places once it has folded an event.
func (o *Order) Bids(e *events.Event) (all []*events.Bid) {
	for i := range o.Turns {
		t := &o.Turns[i]
		b := &events.Bid{Home: t.Home, Order: o.ID, Step: t.Step, Wait: t.Number}
		switch e.Seq {
		case t.Number:
			b.Bid, b.Key, b.OnConflict, b.Undo = events.BidAsk, t.Key, t.OnConflict, t.Undo
		case t.Ended:
			b.Bid = events.BidBack
		default:
			continue
		}
		all = append(all, b)
	}
	return all
}

// Places is a home of places: who has one, and who waits. Whose turn is next follows from ranks: what a key asks for has
// a rank above all that it asked for before, and above the last that was given, so that keys take turns, and one that
// asks for much keeps nobody else from the first.
type Places struct {
	// First is the number of the event since which it is there: what was before is forgotten.
	First uint64
	// Says is what was applied, nil if there is no limit of the name.
	Says *events.Limit
	// AppliedBy is who applied it, as far as that was said.
	AppliedBy string
	// Taken is how many have a place, and Waiting how many wait for one.
	Taken, Waiting int
	// Oldest is since when somebody waits that has waited longest, zero if nobody does.
	Oldest time.Time

	one     bool      // it is no limit, and lets one order be open at a time
	first   uint64    // the number of the event of whom Oldest is
	since   uint64    // the number of the event with which an order came last in the place of all before it
	comer   string    // that order
	told    uint64    // the number of the event with which who has the place heard that it loses it, 0 if it did not
	rank    uint64    // the highest that was given
	full    int64     // when as many can be given at once as in a second, in microseconds since 1970
	buckets []*bucket // none, or as many as bucketCount; what an event does not change is shared. Only who folds has them
}

// Seat is somebody who has a place, or waits for one. It is a value that does not change.
type Seat struct {
	Order, Step string
	Wait        uint64 // the number of the order's event with which it asked
	Key         string
	Rank        uint64
	Number      uint64 // of the home's event with which it waits, or has it
	Since       time.Time
	Taken       bool
}

// bucketCount is into how many parts seats fall: an event copies one, and who is next is looked for in what each
// knows of its own.
const bucketCount = 256

// bucket are the seats of some orders, by a digest of their ids, and what is known of some keys. It is not changed in
// place.
type bucket struct {
	seats []*Seat
	// next and oldest are those who wait with the lowest rank, and for longest; nil if nobody does.
	next, oldest *Seat
	keys         []keyRank
}

// keyRank is a key under which so many wait, with the highest rank that it was given.
type keyRank struct {
	key     string
	last    uint64
	waiting int
}

// NewPlaces is what a home of places has before its first event.
func NewPlaces(id string) *Places { return &Places{one: events.IsTurn(id)} }

// before says that a has its turn before b.
func (a *Seat) before(b *Seat) bool {
	return b == nil || a.Rank < b.Rank || a.Rank == b.Rank && a.Number < b.Number
}

// bucketSeed is another one in each process, so that nobody chooses ids that all fall into one bucket. What is in which
// is not stored, and nothing follows from it.
var bucketSeed = maphash.MakeSeed()

// bucketOf is the place of the bucket of a text.
func bucketOf(text string) int { return int(maphash.String(bucketSeed, text) % bucketCount) }

// bucket is the bucket of a text, to be changed.
func (p *Places) bucket(text string) *bucket {
	n, b := bucketOf(text), new(bucket)
	if p.buckets == nil {
		p.buckets = make([]*bucket, bucketCount)
	} else {
		p.buckets = slices.Clone(p.buckets)
	}
	if was := p.buckets[n]; was != nil {
		*b = *was
	}
	p.buckets[n] = b
	return b
}

// put has a seat take the place of another of the same order and number; nil is none.
func (p *Places) put(was, is *Seat) {
	b := p.bucket(cmp.Or(was, is).Order)
	b.seats = slices.DeleteFunc(slices.Clone(b.seats), func(s *Seat) bool { return s == was })
	if is != nil {
		b.seats = append(b.seats, is)
	}
	b.look()
	p.count(was, -1)
	p.count(is, 1)
	if p.Taken+p.Waiting == 0 {
		p.buckets = nil
	}
	p.Oldest, p.first = time.Time{}, 0
	for _, b := range p.buckets {
		if b != nil && b.oldest != nil && (p.first == 0 || b.oldest.Number < p.first) {
			p.first, p.Oldest = b.oldest.Number, b.oldest.Since
		}
	}
}

// count counts somebody who comes, or goes.
func (p *Places) count(s *Seat, by int) {
	switch {
	case s == nil:
	case s.Taken:
		p.Taken += by
	default:
		p.Waiting += by
		p.bucket(s.Key).count(s, by)
	}
}

func (b *bucket) count(s *Seat, by int) {
	i := slices.IndexFunc(b.keys, func(k keyRank) bool { return k.key == s.Key })
	if b.keys = slices.Clone(b.keys); i < 0 {
		i, b.keys = len(b.keys), append(b.keys, keyRank{key: s.Key})
	}
	k := &b.keys[i]
	if k.last, k.waiting = max(k.last, s.Rank), k.waiting+by; k.waiting == 0 {
		b.keys = slices.Delete(b.keys, i, i+1)
	}
}

// look finds who has its turn next, and who has waited for longest.
func (b *bucket) look() {
	b.next, b.oldest = nil, nil
	for _, s := range b.seats {
		if s.Taken {
			continue
		}
		if s.before(b.next) {
			b.next = s
		}
		if b.oldest == nil || s.Number < b.oldest.Number {
			b.oldest = s
		}
	}
}

// Seat is that of an order that asked with the event of a number, nil if it has none.
func (p *Places) Seat(order string, wait uint64) *Seat {
	if p.buckets == nil || p.buckets[bucketOf(order)] == nil {
		return nil
	}
	return p.buckets[bucketOf(order)].seat(order, wait)
}

func (b *bucket) seat(order string, wait uint64) *Seat {
	i := slices.IndexFunc(b.seats, func(s *Seat) bool { return s.Wait == wait && s.Order == order })
	if i < 0 {
		return nil
	}
	return b.seats[i]
}

// Seats ranges over those who have a place, or wait, in no order.
func (p *Places) Seats() iter.Seq[*Seat] {
	return func(yield func(*Seat) bool) {
		for _, b := range p.buckets {
			for i := 0; b != nil && i < len(b.seats); i++ {
				if !yield(b.seats[i]) {
					return
				}
			}
		}
	}
}

// Rank is that of what is asked for next under a key.
func (p *Places) Rank(key string) uint64 {
	last := p.rank
	if p.buckets != nil {
		if b := p.buckets[bucketOf(key)]; b != nil {
			for i := range b.keys {
				if b.keys[i].key == key {
					last = max(last, b.keys[i].last)
				}
			}
		}
	}
	return last + 1
}

// Next is who waits and has its turn next, nil if nobody waits.
func (p *Places) Next() (next *Seat) {
	for _, b := range p.buckets {
		if b != nil && b.next != nil && b.next.before(next) {
			next = b.next
		}
	}
	return next
}

// interval is how long it takes until another place can be given, in microseconds; 0 is no bound.
func (p *Places) interval() int64 {
	if p.Says == nil || p.Says.ASecond == 0 {
		return 0
	}
	return events.RateOver.Microseconds() / int64(p.Says.ASecond)
}

// AtATime is how many may have a place at a time.
func (p *Places) AtATime() int {
	switch {
	case p.one:
		return 1
	case p.Says == nil:
		return 0
	case p.Says.AtATime == 0:
		return events.MaxPlaces
	}
	return p.Says.AtATime
}

// filled is when as many places can be given at once as in a second, seen from now. Where that is longer away than it can
// be the clock was set back, and one can be given.
func (p *Places) filled(now time.Time) int64 {
	if most := events.Time(now).Add(events.RateOver).UnixMicro(); p.full > most {
		return most - p.interval()
	}
	return p.full
}

// Room says that somebody can have a place now.
func (p *Places) Room(now time.Time) bool {
	if p.Taken >= p.AtATime() {
		return false
	}
	interval := p.interval()
	return interval == 0 || p.filled(now)+interval <= events.Time(now).Add(events.RateOver).UnixMicro()
}

// Superseded says that somebody waits in whose place another order has come, and is to be told so.
func (p *Places) Superseded() bool { return p.Waiting > 0 && p.first < p.since }

// Holder is who has the place of a home that has one, nil if nobody does.
func (p *Places) Holder() *Seat {
	for s := range p.Seats() {
		if s.Taken {
			return s
		}
	}
	return nil
}

// Idle says that a home lets one order be open at a time, and none is, or waits.
func (p *Places) Idle() bool { return p.one && p.Taken+p.Waiting == 0 }

// Grants is when the supervisor must look at a home of places: zero while nobody waits, or a place must come back
// first. One of a key of which no order is open is forgotten then.
func (o *Order) Grants() time.Time {
	p := o.Places
	switch {
	case o.Hold != nil:
		return time.Time{}
	case p.Idle():
		return events.Time(o.UpdatedAt.Add(events.CorrelationKeep))
	case p.Superseded():
		return time.Unix(0, 0)
	case p.Waiting == 0 || p.Taken >= p.AtATime():
		return time.Time{}
	}
	interval := p.interval()
	if interval == 0 {
		return time.Unix(0, 0) // those that a decision left
	}
	return time.UnixMicro(p.full + interval + 999).Add(-events.RateOver).UTC().Truncate(time.Millisecond)
}

// gives has the record be a home of places, which an event is of.
func (o *Order) gives(e *events.Event) *Places {
	if o.Places == nil || o.Places.First == 0 {
		if o.Forgotten {
			*o = Order{ID: o.ID, Seq: o.Seq, UpdatedAt: o.UpdatedAt, State: Pending, vocabulary: o.vocabulary}
		}
		o.AcceptedAt, o.Quiet, o.Places = e.At, true, NewPlaces(o.ID)
		o.Places.First = e.Seq
	}
	return o.Places
}

func applyLimit(o *Order, _ *Step, e *events.Event) {
	p := o.gives(e)
	if p.Says == nil {
		o.AcceptedAt = e.At
	}
	p.Says, p.AppliedBy, o.Refused = e.Limit, e.By, 0
}

func deleteLimit(o *Order, _ *Step, e *events.Event) { o.gives(e).Says = nil }

func awaitPlace(o *Order, _ *Step, e *events.Event) {
	p := o.gives(e)
	p.put(nil, &Seat{Order: e.Waiter, Step: e.Step, Wait: e.Wait, Key: e.Key, Rank: e.Rank, Number: e.Seq, Since: events.Time(e.At)})
	if e.OnConflict == events.ConflictCancelOther {
		if p.since, p.comer = e.Seq, e.Waiter; p.told == 0 && p.Taken > 0 {
			p.told = e.Seq
		}
	}
}

func grantPlace(o *Order, _ *Step, e *events.Event) {
	p := o.gives(e)
	p.put(p.Seat(e.Waiter, e.Wait), &Seat{Order: e.Waiter, Step: e.Step, Wait: e.Wait, Key: e.Key, Rank: e.Rank, Number: e.Seq, Since: events.Time(e.At), Taken: true})
	p.rank, p.told = max(p.rank, e.Rank), 0
	if interval := p.interval(); interval > 0 {
		p.full = max(p.filled(e.At), events.Time(e.At).UnixMicro()) + interval
	}
}

func returnPlace(o *Order, _ *Step, e *events.Event) {
	p := o.gives(e)
	if s := p.Seat(e.Waiter, e.Wait); s != nil {
		p.put(s, nil)
	}
}

// Grant is what a home of places tells an order once it has folded an event, nil if that is nothing.
func (o *Order) Grant(e *events.Event) *events.Grant {
	switch {
	case e.Type == events.PlaceGranted, e.Type == events.PlaceReturned && e.Error != nil:
		return &events.Grant{Order: e.Waiter, Step: e.Step, Wait: e.Wait, Home: o.ID, Error: e.Error}
	case e.Type == events.PlaceAwaited && e.Seq == o.Places.told:
		s := o.Places.Holder()
		return &events.Grant{Order: s.Order, Step: e.Step, Wait: s.Wait, Home: o.ID, Error: o.Places.SupersededBy()}
	}
	return nil
}

// SupersededBy is what those are told in whose place another order has come.
func (p *Places) SupersededBy() *events.Error {
	return &events.Error{Code: events.Superseded, Message: "order " + p.comer + " has come in its place", Permanent: true}
}

// places writes what records have of places, without the seats.
func (w *writer) places(o *Order) {
	for i := range o.Steps {
		s := &o.Steps[i]
		w.uint(s.Turn)
		if s.Undo != nil {
			w.uint(s.Undo.Turn)
		}
	}
	w.uint(o.Asked)
	w.truth(o.Started)
	w.text(o.TurnHome)
	w.text(o.TurnKey)
	w.uint(uint64(len(o.Turns)))
	for i := range o.Turns {
		t := &o.Turns[i]
		w.text(t.Home)
		w.text(t.Key)
		w.text(t.Step)
		w.text(string(t.OnConflict))
		w.truth(t.Undo)
		w.uint(t.Number)
		w.time(t.Since)
		w.uint(t.Ended)
	}
	p := o.Places
	if w.truth(p != nil); p == nil {
		return
	}
	says := ""
	if p.Says != nil {
		says = string(p.Says.Append(nil))
	}
	w.text(says)
	w.text(p.AppliedBy)
	w.uint(uint64(p.Taken))
	w.uint(uint64(p.Waiting))
	w.time(p.Oldest)
	w.uint(p.First)
	w.truth(p.one)
	w.uint(p.first)
	w.uint(p.since)
	w.text(p.comer)
	w.uint(p.told)
	w.uint(p.rank)
	w.int(p.full)
}

// places reads what the writer's places wrote.
func (r *reader) places(o *Order) {
	for i := range o.Steps {
		s := &o.Steps[i]
		s.Turn = r.uint()
		if s.Undo != nil {
			s.Undo.Turn = r.uint()
		}
	}
	o.Asked, o.Started, o.TurnHome, o.TurnKey = r.uint(), r.truth(), r.text(), r.text()
	if n := r.count(); n > 0 {
		o.Turns = make([]Turn, n)
	}
	for i := range o.Turns {
		o.Turns[i] = Turn{r.text(), r.text(), r.text(), events.OnConflict(r.text()), r.truth(), r.uint(), r.time(), r.uint()}
	}
	if !r.truth() {
		return
	}
	p := new(Places)
	if says := r.text(); says != "" {
		p.Says = decodeSays[events.Limit](r, says)
	}
	p.AppliedBy, p.Taken, p.Waiting, p.Oldest = r.text(), int(r.uint()), int(r.uint()), r.time()
	p.First, p.one, p.first, p.since, p.comer, p.told, p.rank, p.full = r.uint(), r.truth(), r.uint(), r.uint(), r.text(), r.uint(), r.uint(), r.int()
	o.Places = p
}

func appendSeat(dst []byte, s *Seat) []byte {
	w := writer{dst}
	w.text(s.Order)
	w.text(s.Step)
	w.uint(s.Wait)
	w.text(s.Key)
	w.uint(s.Rank)
	w.uint(s.Number)
	w.time(s.Since)
	w.truth(s.Taken)
	return w.b
}

// seat reads what appendSeat wrote.
func (r *reader) seat() *Seat {
	return &Seat{r.text(), r.text(), r.uint(), r.text(), r.uint(), r.uint(), r.time(), r.truth()}
}

// seatsPrefix begins the keys of a home's seats, and of no other home's.
func seatsPrefix(partition int32, id string) []byte {
	k := appendPrefix(make([]byte, 0, 64+len(id)), partition, kindSeat)
	return append(binary.BigEndian.AppendUint32(k, uint32(len(id))), id...)
}

func seatKey(partition int32, id string, s *Seat) []byte {
	return binary.BigEndian.AppendUint64(append(seatsPrefix(partition, id), s.Order...), s.Wait)
}

// writeSeats adds to b the seats that differ: what a flush writes does not grow with those who wait.
func (p *Partition) writeSeats(b *pebble.Batch, w *writer, o, old *Order) error {
	if o.Places == nil {
		return nil
	}
	nobody := make([]*bucket, bucketCount)
	is, was := o.Places.buckets, nobody
	if old.Places != nil && old.Places.buckets != nil {
		was = old.Places.buckets
	}
	if is == nil {
		is = nobody
	}
	for i := range is {
		if is[i] == was[i] {
			continue
		}
		now, before := cmp.Or(is[i], new(bucket)), cmp.Or(was[i], new(bucket))
		gone := make(map[*Seat]bool, len(before.seats))
		for _, s := range before.seats {
			gone[s] = true
		}
		for _, s := range now.seats {
			if gone[s] {
				delete(gone, s)
				continue
			}
			at := len(w.b)
			w.b = appendSeat(w.b, s)
			err := b.Set(seatKey(p.id, o.ID, s), w.b[at:], nil)
			if w.b = w.b[:at]; err != nil {
				return err
			}
		}
		for s := range gone {
			if now.seat(s.Order, s.Wait) == nil {
				if err := b.Delete(seatKey(p.id, o.ID, s), nil); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// readSeats reads who has places of a home, and who waits.
func (s *Store) readSeats(r pebble.Reader, partition int32, o *Order) (err error) {
	from := seatsPrefix(partition, o.ID)
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: after(from)})
	if err != nil {
		return damage(err)
	}
	defer func() {
		if closing := it.Close(); closing != nil && err == nil {
			err = damage(closing)
		}
	}()
	p := o.Places
	taken, waiting := p.Taken, p.Waiting
	p.Taken, p.Waiting = 0, 0
	keys := make(map[string]keyRank)
	for it.First(); it.Valid(); it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return damage(err)
		}
		in := reader{b: value}
		seat := in.seat()
		if in.err != nil {
			return fmt.Errorf("%q, key %x: %w", o.ID, it.Key(), in.err)
		}
		if p.buckets == nil {
			p.buckets = make([]*bucket, bucketCount)
		}
		b := p.owned(seat.Order)
		b.seats = append(b.seats, seat)
		if seat.Taken {
			p.Taken++
		} else {
			p.Waiting++
			k := keys[seat.Key]
			keys[seat.Key] = keyRank{seat.Key, max(k.last, seat.Rank), k.waiting + 1}
		}
	}
	for key, k := range keys {
		b := p.owned(key)
		b.keys = append(b.keys, k)
	}
	for _, b := range p.buckets {
		if b != nil {
			b.look()
		}
	}
	if p.Taken != taken || p.Waiting != waiting {
		return fmt.Errorf("%q: %w: %d have a place, and %d wait, of %d and %d", o.ID, errDamaged, p.Taken, p.Waiting, taken, waiting)
	}
	return it.Error()
}

// owned is the bucket of a text that nobody shares.
func (p *Places) owned(text string) *bucket {
	n := bucketOf(text)
	if p.buckets[n] == nil {
		p.buckets[n] = new(bucket)
	}
	return p.buckets[n]
}
