package projections

import (
	"slices"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/events"
)

// A step that is done for each item of a list, each by an order of its own.

// ItemState is the state of one item.
type ItemState byte

// The states of an item.
const (
	ItemToDo ItemState = iota
	ItemRunning
	ItemDone
	ItemDidFail
	ItemUndoing
	ItemUndone
	ItemUndoFailed
	itemStates
)

var itemStateNames = [itemStates]string{"not-started", "running", "completed", "failed", "undoing", "undone", "undo-failed"}

func (s ItemState) String() string { return itemStateNames[s] }

// pageItems is how many items are in a page: what an event changes is copied and written with the page
// that it is in.
const pageItems = 256

type item struct {
	state ItemState
	// left says that an order which did the item ended with something that ran there, or may have run, and was not undone.
	left bool
	// round is the number of the resubmissions behind the step when the item was ordered last, and one
	// more; 0 if it never was.
	round uint32
	// before is the item that completed before this one did, 0 if this one was the first.
	before uint32
	// page is that of which the item is, 0 if they do not come page by page.
	page uint32
}

type page struct {
	items [pageItems]item
	// outputs are those of the items that have one, while the step's record has them.
	outputs []jsontext.Value
}

// Each is the state record of a step's items. What is of single items is in pages, which events share:
// it is changed as a whole, never in place.
type Each struct {
	Workflow string // of the orders that do those which are ordered
	Version  int
	Count    int // how many items there are, of pages so far
	// Pages is nil unless an agent lists the items, page by page.
	Pages *Pages
	// AtOnce is how many may be under way at a time as an operator says, 0 for as many as the workflow
	// says.
	AtOnce   int
	Recalled bool // those that ran were asked to undo what they did, and to end
	// Done are completed and not undone, nor is their undo under way, Failed failed, Undone are undone, and NotUndone are those whose
	// undo failed. They are none of each other.
	Done, Failed, Undone, NotUndone int
	// Running are the items under way, or whose undo is, in the order in which they were ordered.
	Running []int
	// Failures are the first that failed since the last resubmission, at most [MaxFailures].
	Failures []ItemFailure
	// Forgotten are as many of the first items as were forgotten with the order.
	Forgotten int

	// outputBytes are those of the items' outputs, as long as the record has them: see [Each.Outputs].
	outputBytes int
	// passed are as many of the first items as have their turn behind them in this round, and at is
	// where in the list those end, or in that of the page at hand. Before the last that were ordered it was passedBefore and atBefore.
	passed, passedBefore int
	at, atBefore         int
	// last is the item that completed last, and undoing the first of those that completed before the
	// ones whose undo was ordered.
	last, undoing int
	pages         []*page
	fresh         *outcome
}

// ItemFailure is an item that failed.
type ItemFailure struct {
	Item    int    `json:"item"`
	Code    string `json:"code,omitzero"`
	Message string `json:"message,omitzero"`
}

// MaxFailures bounds [Each.Failures].
const MaxFailures = 100

// maxMessage is how many bytes of what a failure says are in the step's record.
const maxMessage = 200

// Of more items than maxOutputs, or of outputs that take more than outputBytes in all, the step's record has
// none: each is found by itself.
const (
	maxOutputs  = 1000
	outputBytes = 64 << 10
)

// outcome is what is known of an item that ended, or of its undo, and is not written yet: how it ended, or that its order
// of a round left something. The next is of one that ended before. An order that was decided on meanwhile has the same behind
// its own, so that what is written is noted here.
type outcome struct {
	tag         byte
	item, round int
	value       []byte
	next        *outcome
	written     bool // and all that ended before
}

// Left is how many items are yet to be ordered.
func (e *Each) Left() int {
	return e.Count - e.Done - e.Failed - e.Undone - e.NotUndone - len(e.Running)
}

// State is that of an item.
func (e *Each) State(n int) ItemState { return e.item(n).state }

// Leaving is how many items have been done, or were to be undone, by an order that ended with something which ran there, or
// may have run, and was not undone. What ended before [events.LeftByFormat] is not among them.
func (e *Each) Leaving() (n int) {
	for _, p := range e.pages {
		for i := 0; p != nil && i < pageItems; i++ {
			if p.items[i].left {
				n++
			}
		}
	}
	return n
}

// Round is the number of the resubmissions behind the step when an item was ordered last.
func (e *Each) Round(n int) int { return max(0, int(e.item(n).round)-1) }

// Rounds is how many orders were asked to do an item, at most: of each round up to the last one.
func (e *Each) Rounds(n int) int { return int(e.item(n).round) }

func (e *Each) item(n int) item {
	if n--; n < 0 || n >= e.Count {
		return item{}
	}
	if p := e.pages[n/pageItems]; p != nil {
		return p.items[n%pageItems]
	}
	return item{}
}

// Next is the first item that is to be ordered, 0 if there is none.
func (e *Each) Next() int {
	for n := e.passed + 1; n <= e.Count; n++ {
		if e.State(n) == ItemToDo {
			return n
		}
	}
	return 0
}

// NextUndo is the item that is to be undone next, 0 if there is none.
func (e *Each) NextUndo() int { return e.skipUndone(e.undoing) }

func (e *Each) skipUndone(n int) int {
	for n > 0 && e.State(n) != ItemDone {
		n = int(e.item(n).before)
	}
	return n
}

// list is what the items are of which the next are, or were last, ordered.
func (s *Step) list() jsontext.Value {
	if p := s.Each.Pages; p != nil {
		return p.list
	}
	return s.Input
}

// Begun calls tell with each item that was ordered last, by an event that was just applied, and with what it is in
// the list.
func (s *Step) Begun(tell func(n int, value jsontext.Value)) {
	e, list := s.Each, s.list()
	at := e.atBefore
	for n := e.passedBefore + 1; n <= e.passed; n++ {
		value, next, ok := element(list, at)
		if !ok {
			return
		}
		if at = next; e.State(n) == ItemRunning {
			tell(n, value)
		}
	}
}

// edit is a change of a record.
type edit struct {
	*Each
	was []*page
}

// edit changes what an event is about: what is ordered next is decided anew.
func (s *Step) edit() *edit {
	e := *s.Each
	x := &edit{&e, e.pages}
	e.pages = slices.Clone(e.pages)
	if p := e.Pages; p != nil && p.hand > 0 && e.Ready(1) == 0 { // what it had is ordered
		had := x.page()
		had.hand, had.list = 0, nil
	}
	s.Each, s.Due = &e, time.Time{}
	if s.Undo != nil {
		s.Undo.Due = time.Time{}
	}
	return x
}

func (x *edit) set(n int, as item) {
	n--
	i := n / pageItems
	if p := x.pages[i]; p == nil {
		x.pages[i] = new(page)
	} else if p == x.was[i] {
		c := *p
		x.pages[i] = &c
	}
	x.pages[i].items[n%pageItems] = as
}

// listed says that the record has the outputs of the items: they are few, and short.
func (e *Each) listed() bool { return e.Count <= maxOutputs && e.outputBytes <= outputBytes }

// Outputs are those of the items, in their order, nil of one that has none; nil if they are too many or too
// long to have in one place.
func (e *Each) Outputs() []jsontext.Value {
	if !e.listed() {
		return nil
	}
	all := make([]jsontext.Value, e.Count)
	for i, p := range e.pages {
		if p != nil && p.outputs != nil {
			copy(all[i*pageItems:], p.outputs)
		}
	}
	return all
}

// output keeps that of an item, if it has one.
func (e *Each) output(n int, value jsontext.Value) {
	p := e.pages[(n-1)/pageItems]
	if value == nil || !e.listed() {
		return
	}
	if p.outputs = slices.Clone(p.outputs); p.outputs == nil {
		p.outputs = make([]jsontext.Value, pageItems)
	}
	p.outputs[(n-1)%pageItems] = value
}

// stands says that the item n is in a state.
func (e *Each) stands(n int, in ItemState) bool {
	return e != nil && n > 0 && n <= e.Count && e.State(n) == in
}

func itemize(_ *Order, s *Step, e *events.Event) {
	s.start(e)
	if s.Each != nil {
		x := s.edit()
		x.Workflow, x.Version = e.Workflow, e.Version
		return
	}
	s.Each = &Each{Workflow: e.Workflow, Version: e.Version, Count: e.Count, pages: make([]*page, (e.Count+pageItems-1)/pageItems)}
	if e.Agent != "" {
		s.Each.Pages = new(Pages)
	}
}

// orderItems takes the next items, or of the undo the last.
func orderItems(_ *Order, s *Step, e *events.Event) {
	if s.Each == nil {
		return
	}
	x := s.edit()
	x.Running = slices.Clip(x.Running)
	if e.ToUndo {
		undo := s.undoing()
		if undo.State != Running {
			undo.start(e)
		}
		undo.Due = e.Due
		for range e.Count {
			n := x.NextUndo()
			if n == 0 {
				break
			}
			i := x.item(n)
			i.state = ItemUndoing
			x.set(n, i)
			x.Done--
			x.Running, x.undoing = append(x.Running, n), int(i.before)
		}
		return
	}
	x.passedBefore, x.atBefore = x.passed, x.at
	s.Due = e.Due
	for left := e.Count; left > 0 && x.passed < x.Count; {
		_, next, ok := element(s.list(), x.at)
		if !ok {
			break
		}
		x.passed, x.at = x.passed+1, next
		if i := x.item(x.passed); i.state == ItemToDo {
			x.set(x.passed, item{state: ItemRunning, left: i.left, round: uint32(s.Resubmissions) + 1, page: i.page})
			x.Running = append(x.Running, x.passed)
			left--
		}
	}
}

// leaveItem notes that the order of an item left something, which has not ended yet, or whose undo has not.
func (s *Step) leaveItem(e *events.Event) {
	if n := e.Item; s.Each.stands(n, ItemRunning) || s.Each.stands(n, ItemUndoing) {
		x := s.edit()
		i := x.item(n)
		i.left = true
		x.set(n, i)
		x.fresh = &outcome{tag: tagLeft, item: n, round: s.Each.Round(n), next: x.fresh}
	}
}

// rest has an item run no more.
func (x *edit) rest(n int, as ItemState) item {
	i := x.item(n)
	i.state = as
	x.set(n, i)
	if x.Running = slices.DeleteFunc(slices.Clone(x.Running), func(r int) bool { return r == n }); len(x.Running) == 0 {
		x.Running = nil
	}
	return i
}

func completeItem(_ *Order, s *Step, e *events.Event) {
	switch n := e.Item; {
	case e.ToUndo && s.Each.stands(n, ItemUndoing):
		x := s.edit()
		x.rest(n, ItemUndone)
		x.Undone++
	case !e.ToUndo && s.Each.stands(n, ItemRunning):
		x := s.edit()
		i := x.rest(n, ItemDone)
		i.before = uint32(x.last)
		x.set(n, i)
		x.last, x.undoing = n, n
		x.Done++
		x.keep(e)
		if x.listed() {
			x.outputBytes += len(e.Output)
			x.output(n, e.Output)
		}
		if !x.listed() && x.Count <= maxOutputs {
			x.drop()
		}
	}
}

func failItem(_ *Order, s *Step, e *events.Event) {
	switch n := e.Item; {
	case e.ToUndo && s.Each.stands(n, ItemUndoing):
		x := s.edit()
		x.rest(n, ItemUndoFailed)
		x.NotUndone++
		s.undoing().keep(e)
		x.keep(e)
	case !e.ToUndo && s.Each.stands(n, ItemRunning):
		x := s.edit()
		x.rest(n, ItemDidFail)
		x.Failed++
		if e.Error != nil && len(x.Failures) < MaxFailures {
			x.Failures = append(slices.Clip(x.Failures), ItemFailure{n, e.Error.Code, brief(e.Error.Message)})
		}
		x.keep(e)
	}
}

// brief is the beginning of a message: all of it is with the item.
func brief(message string) string {
	n := min(len(message), maxMessage)
	for n < len(message) && n > 0 && !utf8.RuneStart(message[n]) {
		n--
	}
	return message[:n]
}

// drop has the record have no outputs.
func (x *edit) drop() {
	for i, p := range x.pages {
		if p != nil && p.outputs != nil {
			c := *p
			c.outputs, x.pages[i] = nil, &c
		}
	}
}

// keep has how an item ended, or its undo failed, be written.
func (x *edit) keep(e *events.Event) {
	x.fresh = &outcome{tag: outcomeTag(e.ToUndo), item: e.Item, value: itemOutcome(e), next: x.fresh}
}

func paceStep(_ *Order, s *Step, e *events.Event) {
	if s.Each != nil {
		x := s.edit()
		x.AtOnce = e.AtOnce
	}
}

func forgetItems(_ *Order, s *Step, e *events.Event) {
	if s.Each != nil {
		x := s.edit()
		x.Forgotten = min(x.Count, e.Item+e.Count-1)
	}
}

// again has what failed be done anew, or be undone anew.
func (s *Step) again(undo bool) {
	x := s.edit()
	from, to := ItemDidFail, ItemToDo
	if undo {
		from, to = ItemUndoFailed, ItemDone
		x.Done, x.NotUndone, x.undoing = x.Done+x.NotUndone, 0, x.last
	} else {
		x.Failed, x.Failures, x.Recalled = 0, nil, false
		x.passed, x.passedBefore, x.at, x.atBefore = 0, 0, 0, 0
		if x.Pages != nil {
			p := x.page()
			p.Error, p.Empty, p.hand, p.list = nil, 0, 0, nil
		}
	}
	for p := range x.pages {
		if x.pages[p] == nil {
			continue
		}
		for j, i := range x.pages[p].items {
			if i.state == from {
				i.state = to
				x.set(p*pageItems+j+1, i)
			}
		}
	}
}

// written is the order once how its items ended is written.
func (o *Order) written() *Order {
	if !o.any(func(s *Step) bool { return s.Each != nil && s.Each.fresh != nil }) {
		return o
	}
	o = o.Clone()
	for i := range o.Steps {
		if each := o.Steps[i].Each; each != nil {
			e := *each
			for f := e.fresh; f != nil && !f.written; {
				next := f.next
				f.written, f.value, f.next = true, nil, nil
				f = next
			}
			e.fresh = nil
			o.Steps[i].Each = &e
		}
	}
	return o
}

// itemized says that a step of the order has items.
func (o *Order) itemized() bool {
	return o.any(func(s *Step) bool { return s.Each != nil })
}

// size is what the record takes in memory, roughly.
func (e *Each) size() int {
	if e == nil {
		return 0
	}
	n := 256 + 8*len(e.pages) + 8*len(e.Running) + e.Pages.size()
	for f := e.fresh; f != nil && !f.written; f = f.next {
		n += 64 + len(f.value)
	}
	for _, p := range e.pages {
		if p != nil {
			n += pageItems * 16
		}
		if p != nil && p.outputs != nil {
			n += pageItems * 24
		}
	}
	if e.listed() {
		n += e.outputBytes
	}
	for i := range e.Failures {
		n += 64 + len(e.Failures[i].Code) + len(e.Failures[i].Message)
	}
	return n
}

// Elements counts those of a list, and says whether it is one. It is JSON.
func Elements(list jsontext.Value) (n int, ok bool) {
	if list.Kind() != jsontext.KindBeginArray {
		return 0, false
	}
	for at := 0; ; n++ {
		_, next, ok := element(list, at)
		if !ok {
			return n, true
		}
		at = next
	}
}

// element is the one that comes next in a list, and where it ends. It begins at 0.
func element(list []byte, at int) (value jsontext.Value, end int, ok bool) {
	at = space(list, at)
	if at >= len(list) || list[at] != '[' && list[at] != ',' {
		return nil, 0, false
	}
	from := space(list, at+1)
	depth, text := 0, false
	for i := from; i < len(list); i++ {
		switch c := list[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case text:
		case depth == 0 && (c == ',' || c == ']'):
			value = jsontext.Value(list[from:i:i])
			for len(value) > 0 && blank(value[len(value)-1]) {
				value = value[:len(value)-1]
			}
			return value, i, len(value) > 0
		case c == '[', c == '{':
			depth++
		case c == ']', c == '}':
			depth--
		}
	}
	return nil, 0, false
}

func space(b []byte, at int) int {
	for at < len(b) && blank(b[at]) {
		at++
	}
	return at
}

func blank(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }
