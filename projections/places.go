package projections

import (
	"encoding/binary"
	"hash/fnv"
	"iter"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waybill-dev/waybill/events"
)

// Places of limits. On the side of an order: those that it asked for. On that of their home, a record beside the
// orders: who has one, and who waits.

// Turn is a place that an order asked for. It is not changed in place.
type Turn struct {
	Home, Key string
	Step      string // by the name under which it is known outside
	Undo      bool   // it is for the step's undo
	Number    uint64 // of the event with which the order asked
	Since     time.Time
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

// WorkOf is that for which a place was asked for, nil if the order does not have it any more.
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
	turns := make([]Turn, 0, len(o.Turns))
	for _, t := range o.Turns {
		if t.Ended != 0 {
			continue
		}
		if w := o.WorkOf(&t); w == nil || w.Turn != t.Number || o.State.Final() {
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
			b.Bid, b.Key = events.BidAsk, t.Key
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
	// Says is what was applied, nil if there is no limit of the name.
	Says *events.Limit
	// AppliedBy is who applied it, as far as that was said.
	AppliedBy string
	// Taken is how many have a place, and Waiting how many wait for one.
	Taken, Waiting int
	// Oldest is since when somebody waits that has waited longest, zero if nobody does.
	Oldest time.Time

	rank  uint64     // the highest that was given
	full  int64      // when as many can be given at once as in a second, in microseconds since 1970
	pages []*benches // by which seats are shared by the events that do not change them
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

// benchSeats is how many seats an event copies that changes one.
const benchSeats = 256

// benches are seats that are copied together.
type benches struct {
	taken int // how many are
	// next and oldest are those who wait with the lowest rank, and for longest; nil if nobody does.
	next, oldest *Seat
	who, key     [benchSeats]uint64 // digests of whose a seat is
	seats        [benchSeats]*Seat
}

// before says that a has its turn before b.
func (a *Seat) before(b *Seat) bool {
	return b == nil || a.Rank < b.Rank || a.Rank == b.Rank && a.Number < b.Number
}

func digestOf(text string, number uint64) uint64 {
	h := fnv.New64a()
	h.Write([]byte(text))
	h.Write(binary.BigEndian.AppendUint64(nil, number))
	return h.Sum64()
}

// put puts somebody on a seat, or nobody, in copies of what has it.
func (p *Places) put(n int, s *Seat) {
	p.pages = slices.Clone(p.pages)
	page, of := new(benches), n%benchSeats
	if n/benchSeats == len(p.pages) {
		p.pages = append(p.pages, page)
	} else {
		*page = *p.pages[n/benchSeats]
		p.pages[n/benchSeats] = page
	}
	p.count(page.seats[of], -1)
	page.set(of, s)
	p.count(s, 1)
	for len(p.pages) > 0 && p.pages[len(p.pages)-1].taken == 0 {
		p.pages = p.pages[:len(p.pages)-1]
	}
	p.Oldest = time.Time{}
	var oldest *Seat
	for _, page := range p.pages {
		if s := page.oldest; s != nil && (oldest == nil || s.Number < oldest.Number) {
			oldest, p.Oldest = s, s.Since
		}
	}
}

func (p *Places) count(s *Seat, by int) {
	switch {
	case s == nil:
	case s.Taken:
		p.Taken += by
	default:
		p.Waiting += by
	}
}

// set changes a seat of benches that nobody shares.
func (b *benches) set(n int, s *Seat) {
	if b.seats[n] != nil {
		b.taken--
	}
	if b.seats[n] = s; s != nil {
		b.taken++
		b.who[n], b.key[n] = digestOf(s.Order, s.Wait), digestOf(s.Key, 0)
	}
	b.look()
}

// look finds who of those on the benches has its turn next, and has waited for longest.
func (b *benches) look() {
	b.next, b.oldest = nil, nil
	for _, s := range b.seats {
		if s == nil || s.Taken {
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

// Seat is the place of the seat of an order that asked with the event of a number, -1 if it has none.
func (p *Places) Seat(order string, wait uint64) int {
	digest := digestOf(order, wait)
	for i, page := range p.pages {
		for j, d := range page.who {
			if s := page.seats[j]; d == digest && s != nil && s.Order == order && s.Wait == wait {
				return i*benchSeats + j
			}
		}
	}
	return -1
}

// Seats ranges over those who have a place, or wait, in no order.
func (p *Places) Seats() iter.Seq[*Seat] {
	return func(yield func(*Seat) bool) {
		for _, page := range p.pages {
			for _, s := range page.seats {
				if s != nil && !yield(s) {
					return
				}
			}
		}
	}
}

// free is the first seat that nobody has.
func (p *Places) free() int {
	for i, page := range p.pages {
		if page.taken < benchSeats {
			return i*benchSeats + slices.Index(page.seats[:], nil)
		}
	}
	return len(p.pages) * benchSeats
}

// Rank is that of what is asked for next under a key.
func (p *Places) Rank(key string) uint64 {
	last, digest := p.rank, digestOf(key, 0)
	for _, page := range p.pages {
		if page.next == nil {
			continue
		}
		for j, d := range page.key {
			if s := page.seats[j]; d == digest && s != nil && !s.Taken && s.Key == key {
				last = max(last, s.Rank)
			}
		}
	}
	return last + 1
}

// Next is who waits and has its turn next, nil if nobody waits.
func (p *Places) Next() (next *Seat) {
	for _, page := range p.pages {
		if page.next != nil && page.next.before(next) {
			next = page.next
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

// Grants is when the supervisor must look at a home of places: zero while nobody waits, or a place must come back
// first.
func (o *Order) Grants() time.Time {
	p := o.Places
	if o.Hold != nil || p.Waiting == 0 || p.Taken >= p.AtATime() {
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
	if o.Places == nil {
		o.Places = new(Places)
	}
	if o.Seq == 1 {
		o.AcceptedAt, o.Quiet = e.At, true
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
	p.put(p.free(), &Seat{Order: e.Waiter, Step: e.Step, Wait: e.Wait, Key: e.Key, Rank: e.Rank, Number: e.Seq, Since: events.Time(e.At)})
}

func grantPlace(o *Order, _ *Step, e *events.Event) {
	p := o.gives(e)
	n := p.Seat(e.Waiter, e.Wait)
	if n < 0 {
		n = p.free()
	}
	p.put(n, &Seat{Order: e.Waiter, Step: e.Step, Wait: e.Wait, Key: e.Key, Rank: e.Rank, Number: e.Seq, Since: events.Time(e.At), Taken: true})
	p.rank = max(p.rank, e.Rank)
	if interval := p.interval(); interval > 0 {
		p.full = max(p.filled(e.At), events.Time(e.At).UnixMicro()) + interval
	}
}

func returnPlace(o *Order, _ *Step, e *events.Event) {
	p := o.gives(e)
	if n := p.Seat(e.Waiter, e.Wait); n >= 0 {
		p.put(n, nil)
	}
}

// Grant is what a home of places tells an order once it has folded an event, nil if that is nothing.
func (o *Order) Grant(e *events.Event) *events.Grant {
	if e.Type != events.PlaceGranted {
		return nil
	}
	return &events.Grant{Order: e.Waiter, Step: e.Step, Wait: e.Wait, Home: o.ID}
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
	w.uint(uint64(len(o.Turns)))
	for i := range o.Turns {
		t := &o.Turns[i]
		w.text(t.Home)
		w.text(t.Key)
		w.text(t.Step)
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
	if n := r.count(); n > 0 {
		o.Turns = make([]Turn, n)
	}
	for i := range o.Turns {
		o.Turns[i] = Turn{r.text(), r.text(), r.text(), r.truth(), r.uint(), r.time(), r.uint()}
	}
	if !r.truth() {
		return
	}
	p := new(Places)
	if says := r.text(); says != "" {
		p.Says = decodeSays[events.Limit](r, says)
	}
	p.AppliedBy, p.Taken, p.Waiting, p.Oldest, p.rank, p.full = r.text(), int(r.uint()), int(r.uint()), r.time(), r.uint(), r.int()
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

func seatsPrefix(partition int32, id string) []byte {
	k := appendPrefix(make([]byte, 0, 32+len(id)), partition, kindSeat)
	return append(binary.BigEndian.AppendUint32(k, uint32(len(id))), id...)
}

func seatKey(partition int32, id string, n int) []byte {
	return binary.BigEndian.AppendUint32(seatsPrefix(partition, id), uint32(n))
}

// writeSeats adds to b the seats that differ: what a flush writes does not grow with those who wait.
func (p *Partition) writeSeats(b *pebble.Batch, w *writer, o, old *Order) error {
	var was []*benches
	if old.Places != nil {
		was = old.Places.pages
	}
	if o.Places == nil {
		return nil
	}
	is, nobody := o.Places.pages, new(benches)
	for i := range max(len(is), len(was)) {
		now, before := nobody, nobody
		if i < len(is) {
			now = is[i]
		}
		if i < len(was) {
			before = was[i]
		}
		if now == before {
			continue
		}
		for j, s := range now.seats {
			if s == before.seats[j] {
				continue
			}
			key := seatKey(p.id, o.ID, i*benchSeats+j)
			if s == nil {
				if err := b.Delete(key, nil); err != nil {
					return err
				}
				continue
			}
			at := len(w.b)
			w.b = appendSeat(w.b, s)
			err := b.Set(key, w.b[at:], nil)
			if w.b = w.b[:at]; err != nil {
				return err
			}
		}
	}
	return nil
}

// readSeats reads who has places of a home, and who waits.
func (s *Store) readSeats(r pebble.Reader, partition int32, o *Order) error {
	p := o.Places
	prefix := seatsPrefix(partition, o.ID)
	var pages []*benches
	err := scan(r, prefix, prefix, func(n int, value []byte) (bool, error) {
		for n/benchSeats >= len(pages) {
			pages = append(pages, new(benches))
		}
		in := reader{b: value}
		seat := &Seat{in.text(), in.text(), in.uint(), in.text(), in.uint(), in.uint(), in.time(), in.truth()}
		page := pages[n/benchSeats]
		page.seats[n%benchSeats] = seat
		return true, in.err
	})
	if err != nil {
		return err
	}
	for _, page := range pages {
		for n, seat := range page.seats {
			if seat != nil {
				page.taken++
				page.who[n], page.key[n] = digestOf(seat.Order, seat.Wait), digestOf(seat.Key, 0)
			}
		}
		page.look()
	}
	p.pages = pages
	return nil
}
