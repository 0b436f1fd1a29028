package projections

import (
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/events"
)

// How the items of a step are stored. Behind the order's record are pages with the states of items, of which
// those are written that changed, how each item ended, written once, and the journal offsets of most of the
// order's events: what an item costs does not grow with their number.

// Tags of the keys of kind [kindItems].
const (
	tagPage     = 'p'
	tagFailures = 'f'
	tagOutcome  = 'r'
	tagUndo     = 'u'
	tagLeft     = 'l'
	tagOffsets  = 's'
)

// offsetsAtOnce is how many bytes of journal offsets leave the record of an order that has items.
const offsetsAtOnce = 4 << 10

// leftBit is set of the state of an item, in its page, of which something was left.
const leftBit = 0x80

// itemsPrefix begins the keys of an order's items, and of no other order's.
func itemsPrefix(partition int32, id string) []byte {
	k := appendPrefix(make([]byte, 0, 32+len(id)), partition, kindItems)
	return append(binary.BigEndian.AppendUint32(k, uint32(len(id))), id...)
}

func itemsKey(partition int32, id string, tag byte, step string, n int) []byte {
	k := append(append(append(itemsPrefix(partition, id), tag), step...), 0)
	return binary.BigEndian.AppendUint32(k, uint32(n))
}

// items writes what records have of the items of steps.
func (w *writer) items(o *Order) {
	for i := range o.Steps {
		e := o.Steps[i].Each
		if w.truth(e != nil); e == nil {
			continue
		}
		w.text(e.Workflow)
		w.uint(uint64(e.Version))
		w.uint(uint64(e.Count))
		w.uint(uint64(e.AtOnce))
		w.truth(e.Recalled)
		for _, n := range []int{e.Done, e.Failed, e.Undone, e.NotUndone, e.Forgotten, e.passed, e.passedBefore, e.at, e.atBefore, e.last, e.undoing, e.outputBytes} {
			w.uint(uint64(n))
		}
		w.uint(uint64(len(e.Running)))
		for _, n := range e.Running {
			w.uint(uint64(n))
		}
		w.paging(e.Pages)
	}
}

// items reads what the writer's items wrote, without the pages.
func (r *reader) items(o *Order) {
	for i := range o.Steps {
		if !r.truth() {
			continue
		}
		e := &Each{Workflow: r.text(), Version: int(r.uint()), Count: int(r.uint()), AtOnce: int(r.uint()), Recalled: r.truth()}
		for _, n := range []*int{&e.Done, &e.Failed, &e.Undone, &e.NotUndone, &e.Forgotten, &e.passed, &e.passedBefore, &e.at, &e.atBefore, &e.last, &e.undoing, &e.outputBytes} {
			*n = int(r.uint())
		}
		if e.Count < 0 || e.Count > events.MaxItems {
			r.err = errDamaged
			return
		}
		if n := r.count(); n > 0 {
			e.Running = make([]int, n)
		}
		for j := range e.Running {
			e.Running[j] = int(r.uint())
		}
		e.Pages = r.paging()
		e.pages = make([]*page, (e.Count+pageItems-1)/pageItems)
		o.Steps[i].Each = e
	}
}

// appendPage appends what a page has.
func appendPage(dst []byte, p *page) []byte {
	w := writer{dst}
	for i := range p.items {
		state := byte(p.items[i].state)
		if p.items[i].left {
			state |= leftBit
		}
		w.b = append(w.b, state)
		w.uint(uint64(p.items[i].round))
		w.uint(uint64(p.items[i].before))
		w.uint(uint64(p.items[i].page))
	}
	return w.b
}

func decodePage(b []byte) (*page, error) {
	p, r := new(page), reader{b: b}
	for i := range p.items {
		state := r.bytes(1)
		if state == nil || state[0]&^leftBit >= byte(itemStates) {
			return nil, errDamaged
		}
		p.items[i] = item{ItemState(state[0] &^ leftBit), state[0]&leftBit != 0, uint32(r.uint()), uint32(r.uint()), uint32(r.uint())}
	}
	if r.err != nil || len(r.b) > 0 {
		return nil, errDamaged
	}
	return p, nil
}

// itemOutcome is how an item ended, as the store has it.
func itemOutcome(e *events.Event) []byte {
	value := []byte(`{`)
	switch {
	case e.Error != nil:
		value = e.Error.Append(append(value, `"error":`...))
	case e.Output != nil:
		value = append(append(value, `"output":`...), e.Output...)
	}
	return append(value, '}')
}

// writeItems adds to b what differs of the order's items, and the offsets that leave its record, and returns
// those that stay.
func (p *Partition) writeItems(b *pebble.Batch, w *writer, e *entry, old *Order) (offsets []byte, err error) {
	o := e.order
	if !o.itemized() {
		return e.offsets, nil
	}
	for i := range o.Steps {
		each := o.Steps[i].Each
		if each == nil {
			continue
		}
		var was Each
		if before := old.at(i, o.Steps[i].Known()); before != nil && before.Each != nil {
			was = *before.Each
		}
		for n, page := range each.pages {
			if page == nil || n < len(was.pages) && was.pages[n] == page {
				continue
			}
			at := len(w.b)
			w.b = appendPage(w.b, page)
			if err := b.Set(itemsKey(p.id, o.ID, tagPage, o.Steps[i].Known(), n), w.b[at:], nil); err != nil {
				return nil, err
			}
			w.b = w.b[:at]
		}
		if len(each.Failures) != len(was.Failures) || len(each.Failures) > 0 && &each.Failures[0] != &was.Failures[0] {
			if err := p.writeFailures(b, o, i); err != nil {
				return nil, err
			}
		}
		seen := make(map[string]bool)
		for f := each.fresh; f != nil && !f.written; f = f.next {
			key := itemsKey(p.id, o.ID, f.tag, o.Steps[i].Known(), f.item)
			if f.tag == tagLeft {
				key = binary.BigEndian.AppendUint32(key, uint32(f.round))
			}
			if seen[string(key)] { // what came later counts
				continue
			}
			seen[string(key)] = true
			if err := b.Set(key, f.value, nil); err != nil {
				return nil, err
			}
		}
	}
	for len(e.offsets)-e.apart >= offsetsAtOnce {
		if err := b.Set(itemsKey(p.id, o.ID, tagOffsets, "", e.apart/offsetsAtOnce), e.offsets[e.apart:e.apart+offsetsAtOnce], nil); err != nil {
			return nil, err
		}
		e.apart += offsetsAtOnce
	}
	return e.offsets[e.apart:], nil
}

func outcomeTag(undo bool) byte {
	if undo {
		return tagUndo
	}
	return tagOutcome
}

// writeFailures adds to b the first failures of a step's items.
func (p *Partition) writeFailures(b *pebble.Batch, o *Order, i int) error {
	key, all := itemsKey(p.id, o.ID, tagFailures, o.Steps[i].Known(), 0), o.Steps[i].Each.Failures
	if len(all) == 0 {
		return b.Delete(key, nil)
	}
	var w writer
	for j := range all {
		w.uint(uint64(all[j].Item))
		w.text(all[j].Code)
		w.text(all[j].Message)
	}
	return b.Set(key, w.b, nil)
}

// readFailures reads what writeFailures wrote.
func readFailures(b []byte) (all []ItemFailure, err error) {
	r := reader{b: b}
	for len(r.b) > 0 && r.err == nil {
		all = append(all, ItemFailure{int(r.uint()), r.text(), r.text()})
	}
	return all, r.err
}

// forgetItems deletes all that is stored of an order's items.
func (p *Partition) forgetItems(b *pebble.Batch, id string) error {
	from := itemsPrefix(p.id, id)
	return b.DeleteRange(from, after(from), nil)
}

// readItems reads the pages of the order's items.
func (s *Store) readItems(r pebble.Reader, partition int32, o *Order) error {
	for i := range o.Steps {
		each := o.Steps[i].Each
		if each == nil {
			continue
		}
		from := itemsKey(partition, o.ID, tagPage, o.Steps[i].Known(), 0)
		err := scan(r, from[:len(from)-4], from, func(n int, value []byte) (bool, error) {
			if n >= len(each.pages) {
				return false, fmt.Errorf("order %q, page %d of step %s: %w", o.ID, n, o.Steps[i].Known(), errDamaged)
			}
			page, err := decodePage(value)
			each.pages[n] = page
			return true, err
		})
		if err != nil {
			return err
		}
		value, err := s.get(r, itemsKey(partition, o.ID, tagFailures, o.Steps[i].Known(), 0))
		if err != nil {
			return err
		}
		if each.Failures, err = readFailures(value); err != nil {
			return fmt.Errorf("order %q, failures of step %s: %w", o.ID, o.Steps[i].Known(), err)
		}
		if each.outputBytes == 0 || !each.listed() {
			continue
		}
		from = itemsKey(partition, o.ID, tagOutcome, o.Steps[i].Known(), 0)
		err = scan(r, from[:len(from)-4], from, func(n int, value []byte) (bool, error) {
			told, err := readOutcome(value)
			if err != nil {
				return false, fmt.Errorf("order %q, item %d of step %s: %w", o.ID, n, o.Steps[i].Known(), err)
			}
			each.output(n, told.Output)
			return true, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// outcomeOf is how an item ended.
type outcomeOf struct {
	Output jsontext.Value `json:"output"`
	Error  *events.Error  `json:"error"`
}

func readOutcome(value []byte) (told outcomeOf, err error) {
	if err := json.Unmarshal(value, &told, jsontext.AllowDuplicateNames(true)); err != nil { // as events are read
		return told, fmt.Errorf("%w: %v", errDamaged, err)
	}
	return told, nil
}

// offsetsApart are the journal offsets that left the record of an order that has items.
func (s *Store) offsetsApart(r pebble.Reader, partition int32, o *Order) (all []byte, err error) {
	if !o.itemized() {
		return nil, nil
	}
	from := itemsKey(partition, o.ID, tagOffsets, "", 0)
	err = scan(r, from[:len(from)-4], from, func(_ int, value []byte) (bool, error) {
		all = append(all, value...)
		return true, nil
	})
	return all, err
}

// scan tells of the keys that begin with a prefix, which a number ends, from one on, until it is told to stop.
func scan(r pebble.Reader, prefix, from []byte, tell func(n int, value []byte) (more bool, err error)) (err error) {
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: after(prefix)})
	if err != nil {
		return damage(err)
	}
	defer func() {
		if closing := it.Close(); closing != nil && err == nil {
			err = damage(closing)
		}
	}()
	for it.First(); it.Valid(); it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return damage(err)
		}
		key := it.Key()
		if len(key) != len(prefix)+4 {
			return fmt.Errorf("%w: key %x", errDamaged, key)
		}
		more, err := tell(int(binary.BigEndian.Uint32(key[len(prefix):])), value)
		if !more || err != nil {
			return err
		}
	}
	return nil
}

// Item is one item of a step.
type Item struct {
	Number int
	State  ItemState
	Order  string         // that does it, empty if it was not ordered yet
	Output jsontext.Value // of one that completed
	Error  *events.Error  // of one that failed, or whose undo did
	// LeftBy are the orders that did it, or were to undo it, and ended with something that ran there, or may have run, and was not
	// undone, oldest first. What ended before [events.LeftByFormat] is not among them.
	LeftBy []string
}

// ItemFilter says which items are wanted: all, unless it says otherwise. What it says must all be so.
type ItemFilter struct {
	Failed bool // those that failed, or whose undo did
	Left   bool // those of which something was left: see [Item]
}

func (f ItemFilter) wants(i item) bool {
	return (!f.Failed || i.state == ItemDidFail || i.state == ItemUndoFailed) && (!f.Left || i.left)
}

// NoItemsError says that an order has no such step, or that the step has no items, so far at least.
type NoItemsError struct {
	Order, Step string
	There       bool // the step is
}

func (e *NoItemsError) Error() string {
	if e.There {
		return fmt.Sprintf("step %s of order %q has no items (yet)", e.Step, e.Order)
	}
	return fmt.Sprintf("order %q has no step %q", e.Order, e.Step)
}

// itemsBytes ends a page of items once how they ended has so many.
const itemsBytes = 4 << 20

// Items are those of a step behind one that are wanted, at most so many, and fewer where what came of them is large; next is
// the last of them, if others may follow, else 0. It fails with [ErrNotFound] if there is no such order, and with a
// [NoItemsError].
func (s *Store) Items(partition int32, id, step string, behind, limit int, wanted ItemFilter) (all []Item, next int, err error) {
	view := s.db.NewSnapshot()
	defer view.Close()
	o, _, err := s.recordWith(view, partition, id, func(*Order, *payload) bool { return false })
	switch {
	case err != nil:
		return nil, 0, err
	case o == nil:
		return nil, 0, fmt.Errorf("%w: %q", ErrNotFound, id)
	case o.Forgotten:
		return nil, 0, forgotten(id)
	}
	of := o.Step(step)
	if of == nil || of.Each == nil {
		return nil, 0, &NoItemsError{id, step, of != nil}
	}
	if err := s.readItems(view, partition, o); err != nil {
		return nil, 0, err
	}
	each, bytes := of.Each, 0
	for n := max(0, min(behind, each.Count)) + 1; n <= each.Count; n++ {
		if len(all) >= limit || bytes >= itemsBytes {
			return all, n - 1, nil
		}
		record := each.item(n)
		if !wanted.wants(record) {
			continue
		}
		i := Item{Number: n, State: record.state}
		if each.Rounds(n) > 0 {
			i.Order = o.ItemOrder(of, n)
		}
		if record.left {
			prefix := itemsKey(partition, id, tagLeft, of.Known(), n)
			err := scan(view, prefix, prefix, func(round int, _ []byte) (bool, error) {
				i.LeftBy = append(i.LeftBy, o.itemOrder(of, n, round))
				return true, nil
			})
			if err != nil {
				return nil, 0, err
			}
		}
		if i.State != ItemToDo && i.State != ItemRunning {
			value, err := s.get(view, itemsKey(partition, id, outcomeTag(i.State == ItemUndoFailed), of.Known(), n))
			if err != nil {
				return nil, 0, err
			}
			told, err := readOutcome(value)
			if err != nil {
				return nil, 0, fmt.Errorf("order %q, item %d of step %s: %w", id, n, step, err)
			}
			i.Output, i.Error = told.Output, told.Error
			bytes += len(value)
		}
		all = append(all, i)
	}
	return all, 0, nil
}

// ItemOrder is the id of the order that does an item of a step, or did last.
func (o *Order) ItemOrder(s *Step, n int) string {
	return o.itemOrder(s, n, s.Each.Round(n))
}

func (o *Order) itemOrder(s *Step, n, round int) string {
	return events.ChildID(events.IdempotencyKey(o.ID, events.ItemStep(s.Known(), n), round))
}
