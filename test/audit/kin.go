package audit

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
)

// word is what an order told another: one that does a step of it, or the one whose step it does.
type word struct {
	entry
	wish   *events.Wish // nil for a report
	report *events.Report
	want   *events.Want // of the homes of keys
	pass   *events.Pass
	bid    *events.Bid // of the homes of places
	grant  *events.Grant
	waits  bool // it is held
	again  bool // somebody put it back: by then it may change nothing
	back   bool // it was given up, but for the place that may go back with it, by the next event
}

// asked is a place that an order asked a home for.
type asked struct {
	home, order string
	wait        uint64
}

// passedTo is a signal under a key that its home gave to a wait.
type passedTo struct {
	asked
	signal string
}

// gave is the event of the home of a key that gave a signal.
type gave struct {
	home string
	seq  uint64
}

func (w *word) String() string {
	switch {
	case w.want != nil:
		return fmt.Sprintf("%s of signal %s, %q, of wait %d of order %q", w.want.Want, w.want.Signal, w.want.SignalID, w.want.Wait, w.want.Order)
	case w.pass != nil:
		return fmt.Sprintf("signal %s, %q, for wait %d", w.pass.Signal, w.pass.SignalID, w.pass.Wait)
	case w.bid != nil:
		return fmt.Sprintf("%s of place %d of order %q", w.bid.Bid, w.bid.Wait, w.bid.Order)
	case w.grant != nil:
		return fmt.Sprintf("place %d of %s, error %v", w.grant.Wait, w.grant.Home, w.grant.Error)
	case w.wish != nil:
		return fmt.Sprintf("a wish, %s, for step %s of order %q", w.wish.Wish, w.wish.Step, w.wish.Parent)
	}
	return fmt.Sprintf("a report, %s, for step %s, of order %q", w.report.State, w.report.Step, w.report.Child)
}

// kin is what an order does for another, and others for it, as far as its events tell.
type kin struct {
	rounds        map[string]int  // of the steps that have items, how often it was begun with them
	words         map[int64]*word // by offset
	back          *word           // that was given up with the event before
	given         map[asked]int   // to the waits of others, how many signals
	asked         map[uint64]bool // the numbers of the events with which it asked for places
	turn          uint64          // the number of the event with which it asked for its turn last
	begun         bool            // it had its turn
	waits         map[task]waitsFor
	parent        string
	detached      bool
	ended, toward bool
}

// waitsFor is the order that does a step, or undoes it.
type waitsFor struct {
	child   string
	attempt int
	since   uint64 // the transaction in which it was asked
}

// tell reads what one order told another.
func (m *message) tell(r *kgo.Record, kind events.Type) error {
	m.word = new(word)
	switch kind {
	case events.SignalWanted:
		want, err := events.Decode[events.Want](r.Value)
		if m.word.want = &want; err == nil && want.Correlation != m.order {
			err = fmt.Errorf("it is for %q, and its key is %q", want.Correlation, m.order)
		}
		return err //nolint:wrapcheck // whoever reports it says of what
	case events.SignalPassed:
		pass, err := events.Decode[events.Pass](r.Value)
		if m.word.pass = &pass; err == nil && pass.Order != m.order {
			err = fmt.Errorf("it is for order %q, and its key is %q", pass.Order, m.order)
		}
		return err //nolint:wrapcheck // as above
	case events.PlaceWanted:
		bid, err := events.Decode[events.Bid](r.Value)
		if m.word.bid = &bid; err == nil && bid.Home != m.order {
			err = fmt.Errorf("it is for %q, and its key is %q", bid.Home, m.order)
		}
		return err //nolint:wrapcheck // as above
	case events.PlaceGiven:
		grant, err := events.Decode[events.Grant](r.Value)
		if m.word.grant = &grant; err == nil && grant.Order != m.order {
			err = fmt.Errorf("it is for order %q, and its key is %q", grant.Order, m.order)
		}
		return err //nolint:wrapcheck // as above
	}
	if kind == events.ChildReported {
		told, err := events.Decode[events.Report](r.Value)
		if err != nil {
			return err //nolint:wrapcheck // whoever reports it says of what
		}
		if m.word.report = &told; told.Parent != m.order {
			return fmt.Errorf("it is for order %q, and its key is %q", told.Parent, m.order)
		}
		return nil
	}
	wish, err := events.Decode[events.Wish](r.Value)
	if err != nil {
		return err //nolint:wrapcheck // as above
	}
	if m.word.wish = &wish; wish.Child != m.order {
		return fmt.Errorf("it is for order %q, and its key is %q", wish.Child, m.order)
	}
	return nil
}

// begins says that it may begin an order, or is for a schedule, which a command begins that is read later.
func (m *message) begins() bool {
	if m.signal != nil && m.signal.keyed || m.word != nil && (m.word.want != nil || m.word.bid != nil) || m.command != nil && m.command.do == events.CommandApply && events.LimitOf(m.order) != "" {
		return true
	}
	if m.word != nil && m.word.report != nil && events.IsCorrelation(m.order) {
		return true
	}
	return m.command != nil && m.command.do == events.CommandApply && events.ScheduleOf(m.order) != "" || m.word != nil && m.word.report != nil && events.ScheduleOf(m.order) != "" || m.submission != nil || m.word != nil && m.word.wish != nil && m.word.wish.Wish == events.WishBegin
}

// forgets says that an order is to be forgotten with the one whose step it did, or would have done.
func (m *message) forgets() bool {
	return m.word != nil && m.word.wish != nil && m.word.wish.Wish == events.WishForget
}

// kindred holds an event against what other orders told this one. It says whether it follows from
// that.
func (s *settlement) kindred(a *account, e *events.Event) bool {
	k := &a.kin
	defer k.note(e, s.transaction[a.partition])
	at, err := parsePlace(e.Source)
	if w := k.back; w != nil {
		if k.back = nil; e.Type != events.PlaceReturned || at.offset != w.offset {
			delete(k.words, w.offset)
		}
	}
	if err == nil && at.topic == s.Topics.Internal {
		s.said(a, e, at)
		return true
	}
	switch e.Type {
	case events.OrderAccepted, events.OrderRejected:
		if e.Parent == "" {
			return false
		}
		if a.born > 0 {
			s.report("order %q: event %d is %s, and it was decided before", a.id, e.Seq, e.Type)
		}
		a.born, a.digest = s.transaction[a.partition], e.Digest
		if e.Type == events.OrderRejected && strings.HasSuffix(e.Reason, " is not registered") && events.ScheduleOf(e.Parent) == "" && s.Flow(e.Workflow, e.Version) != nil {
			s.report("order %q: %s, and who asked for it knew it", a.id, e.Reason)
		}
		s.wished(a, e, func(w *events.Wish) bool {
			return w.Wish == events.WishBegin && w.Parent == e.Parent && w.Step == e.ParentStep && (w.Detached == e.Detached || e.Type == events.OrderRejected)
		})
		return true
	case events.OrderReported:
		s.wished(a, e, func(w *events.Wish) bool { return w.Parent == e.Parent && w.Step == e.ParentStep })
		return true
	case events.OrderStarted, events.OrderRaised:
		if e.Type == events.OrderRaised && e.Step != "" {
			return false
		}
		s.hasTurn(a, e)
		return true
	case events.OrderCompensating:
		if superseded(e) {
			s.hasTurn(a, e)
			return true
		}
		if k.parent == "" || e.By != "" || e.Command != "" {
			return false
		}
		want := events.WishCancel
		if k.ended {
			want = events.WishUndo
		}
		return s.turns(a, want, e)
	}
	return false
}

// superseded says that an order is undone since another has its turn.
func superseded(e *events.Event) bool {
	return e.Type == events.OrderCompensating && e.Error != nil && e.Error.Code == events.Superseded
}

// hasTurn finds the word with which the home of places gave an order its turn, or took it back.
func (s *settlement) hasTurn(a *account, e *events.Event) {
	for _, w := range a.kin.heard() {
		if g := w.grant; g != nil && w.aside == 0 && g.Step == "" && g.Wait == a.kin.turn && (g.Error == nil) == (e.Error == nil) && (e.Error == nil || *e.Error == *g.Error) {
			delete(a.kin.words, w.offset)
			s.Told++
			return
		}
	}
	s.report("order %q: event %d, %s: no home of places told it so: %+v", a.id, e.Seq, e.Type, e.Error)
}

// turns says that an order is undone since the one whose step it does asked for that.
func (s *settlement) turns(a *account, want string, e *events.Event) bool {
	fits := func(w *events.Wish) bool { return w.Wish == want && w.Reason == e.Reason }
	if want == events.WishCancel && (e.End != "Cancelled" || !slices.ContainsFunc(a.kin.heard(), func(w *word) bool { return w.wish != nil && fits(w.wish) })) {
		return false // somebody else wants that
	}
	s.wished(a, e, fits)
	return true
}

// heard is what it was told and has led to nothing yet, in order.
func (k *kin) heard() (all []*word) {
	for _, w := range k.words {
		if !w.waits {
			all = append(all, w)
		}
	}
	slices.SortFunc(all, func(a, b *word) int { return int(a.offset - b.offset) })
	return all
}

// wished takes the first wish that fits.
func (s *settlement) wished(a *account, e *events.Event, fits func(*events.Wish) bool) {
	if e.Type == events.OrderReported && e.Error != nil && e.Error.Code == "internal" { // it was put aside, as the event before says
		return
	}
	for _, w := range a.kin.heard() {
		if w.wish == nil || !fits(w.wish) {
			continue
		}
		if w.aside != 0 && (!undecidable(e.Reason) || w.aside != hash([]byte(e.Reason))) {
			s.report("%s was put aside, and led to event %d of order %q, %s", s.at(a, s.Topics.Internal, w.entry), e.Seq, a.id, e.Type)
		} else if w.aside != 0 {
			s.Panicked++
		}
		delete(a.kin.words, w.offset)
		s.Told++
		return
	}
	s.report("order %q: event %d, %s (%s), is what no other order asked for", a.id, e.Seq, e.Type, e.Reason)
}

// said holds what became of a record against it.
func (s *settlement) said(a *account, e *events.Event, at place) {
	w := a.kin.words[at.offset]
	if w == nil || at.partition != a.partition {
		s.report("order %q: event %d, %s, is of %s, where nothing is that another order told it", a.id, e.Seq, e.Type, at)
		return
	}
	switch e.Type {
	case events.InputHeld:
		w.waits = true
		return
	case events.InputReleased:
		if w.waits = false; w.aside != 0 {
			s.report("%s was put aside, and released", at)
		}
		return
	case events.InputDiscarded:
		a.givesUp = false
		a.putAside = max(a.putAside, e.Count)
		if w.aside != hash([]byte(e.Reason)) {
			s.report("%s was discarded, and no dead letter says so: %s", at, e.Reason)
		}
		if strings.Contains(e.Reason, "panicked") {
			s.Panicked++
		}
		if w.waits = false; w.bid != nil && w.bid.Bid != events.BidAsk {
			w.back, a.kin.back = true, w
			return
		}
		delete(a.kin.words, at.offset)
		return
	}
	delete(a.kin.words, at.offset)
	if !w.back {
		s.Told++
	}
	if w.want != nil || w.pass != nil || w.bid != nil || w.grant != nil {
		if !w.led(e) {
			s.report("%s is %s, and led to event %d of %q, %s", at, w, e.Seq, a.id, e.Type)
		}
		return
	}
	r, of := w.report, taskOf(e)
	waits := a.kin.waits[of]
	if e.Item > 0 {
		e, waits = a.item(e, r)
	}
	if e.Page > 0 {
		one := *e
		one.Step = events.PageStep(e.Step, e.Page)
		e, waits = &one, waitsFor{child: events.ChildID(events.IdempotencyKey(a.id, one.Step, 0)), attempt: e.Attempt}
	}
	left := r != nil && e.Left == (r.Left && s.format[a.partition] >= events.LeavesFormat)
	undone := r != nil && (r.State == "Compensated" || r.State == "Cancelled")
	fits := r != nil && r.Step == e.Step && r.Child == waits.child && waits.attempt == e.Attempt && w.aside == 0 && !w.waits
	switch e.Type {
	case events.ScheduleEnded:
		fits = r != nil && r.Step == events.TickText(e.Tick) && r.Child == e.Child && r.State == e.End && w.aside == 0 && !w.waits
	case events.StepCompleted:
		fits = fits && (r.State == "Processed" && hash(r.Output) == hash(e.Output) || r.State == "Pending")
	case events.PageCompleted:
		fits = fits && r.State == "Processed"
	case events.PageFailed:
		fits = fits && (r.State == "Processed") != (e.Error.Code == events.NoPage)
	case events.StepFailed:
		fits = fits && left && e.Error != nil && (r.Error != nil && (e.Error.Code == r.Error.Code || e.Error.Code == "raised-"+r.Error.Code || e.Error.Code == "timed-out") || r.Error == nil && e.Error.Code == "output-refused")
	case events.UndoCompleted:
		fits = fits && left && undone
	case events.UndoFailed:
		fits = fits && left && !undone && r.Error != nil && e.Error != nil && (e.Error.Code == r.Error.Code || e.Error.Code == "raised-"+r.Error.Code)
	default:
		fits = false
	}
	if !fits {
		s.report("%s is %s, and led to event %d of order %q, %s: %+v", at, w, e.Seq, a.id, e.Type, e.Error)
	}
}

// led says whether an event of a home, or of an order, is what it leads to.
func (w *word) led(e *events.Event) bool {
	if w.pass != nil {
		return e.Type == events.StepFailed && w.pass.Refused != "" && e.Error != nil && e.Error.Code == events.TooManyWaits && e.Step == w.pass.Step
	}
	if b := w.bid; b != nil {
		ask := e.Type == events.PlaceAwaited || e.Type == events.PlaceGranted
		return e.Waiter == b.Order && e.Wait == b.Wait && (ask && b.Bid == events.BidAsk && e.Key == b.Key || e.Type == events.PlaceReturned && b.Bid != events.BidAsk)
	}
	if g := w.grant; g != nil {
		return (e.Type == events.StepFailed || e.Type == events.UndoFailed) && g.Error != nil && e.Error != nil && *e.Error == *g.Error && e.Step == g.Step
	}
	its := e.Waiter == w.want.Order && e.Wait == w.want.Wait
	switch w.want.Want {
	case events.WantAwait:
		return its && (e.Type == events.WaitBegan || e.Type == events.WaitRefused)
	case events.WantHeard:
		return its && e.Type == events.WaitEnded && w.want.Over
	default:
		return its && e.Type == events.WaitEnded
	}
}

// wasPassed finds the word with which an order got a signal under a key that it has heard.
func (s *settlement) wasPassed(a *account, e *events.Event) bool {
	for _, w := range a.kin.heard() {
		if p := w.pass; p != nil && p.Refused == "" && p.Source == e.Source && p.SignalID == e.SignalID && p.AnsweredBy == e.AnsweredBy && p.Step == e.Step && hash(p.Data) == hash(e.Data) && w.aside == 0 {
			delete(a.kin.words, w.offset)
			s.Told++
			return true
		}
	}
	return false
}

// wasHeard finds the word with which an order said that it heard a signal.
func (s *settlement) wasHeard(a *account, e *events.Event) {
	for _, w := range a.kin.heard() {
		if k := w.want; k != nil && k.Want == events.WantHeard && k.Order == e.Waiter && k.Wait == e.Wait && k.SignalID == e.SignalID {
			if !k.Over { // else the wait ends by it
				delete(a.kin.words, w.offset)
				s.Told++
			}
			return
		}
	}
	s.report("%q: event %d: order %q did not say that it heard signal %q", a.id, e.Seq, e.Waiter, e.SignalID)
}

// hasBegun finds the word with which an order told that a signal started it, or that it was rejected.
func (s *settlement) hasBegun(a *account, e *events.Event) {
	for _, w := range a.kin.heard() {
		if r := w.report; r != nil && w.aside == 0 && r.Child == e.Child && (r.State == "Pending") == (e.Type == events.SignalStarted) {
			delete(a.kin.words, w.offset)
			s.Told++
			return
		}
	}
	s.report("%q: event %d, %s: order %q did not tell so", a.id, e.Seq, e.Type, e.Child)
}

// item is the end of an item of a step as that of a step which one order does, and which that is: of each of
// its rounds the item may have had one.
func (a *account) item(e *events.Event, r *events.Report) (*events.Event, waitsFor) {
	one := *e
	one.Step = events.ItemStep(e.Step, e.Item)
	switch {
	case e.Type == events.ItemCompleted && e.ToUndo:
		one.Type = events.UndoCompleted
	case e.Type == events.ItemCompleted:
		one.Type = events.StepCompleted
	case e.ToUndo:
		one.Type = events.UndoFailed
	default:
		one.Type = events.StepFailed
	}
	for n := range a.kin.rounds[e.Step] {
		if child := events.ChildID(events.IdempotencyKey(a.id, one.Step, n)); r != nil && child == r.Child {
			return &one, waitsFor{child: child, attempt: e.Attempt}
		}
	}
	return &one, waitsFor{}
}

// note follows what an order does, and what it waits for.
func (k *kin) note(e *events.Event, transaction uint64) {
	of := taskOf(e)
	switch e.Type {
	case events.PlaceAsked, events.OrderQueued:
		if k.asked == nil {
			k.asked = make(map[uint64]bool)
		}
		if k.asked[e.Seq] = true; e.Type == events.OrderQueued {
			k.turn = e.Seq
		}
	case events.OrderStarted:
		k.begun = true
	case events.OrderErrored:
		if !e.Held && !k.begun { // it gives its turn up, which goes back with that
			k.turn = 0
		}
	case events.SignalGiven:
		if k.given == nil {
			k.given = make(map[asked]int)
		}
		k.given[asked{e.Order, e.Waiter, e.Wait}]++
	case events.StepItemized:
		if k.rounds == nil {
			k.rounds = make(map[string]int)
		}
		k.rounds[e.Step]++
	case events.SignalOrdered:
		if k.waits == nil {
			k.waits = make(map[task]waitsFor)
		}
		k.waits[task{step: strconv.FormatUint(e.Seq, 10)}] = waitsFor{child: e.Child, since: transaction}
	case events.SignalStarted, events.SignalDiscarded:
		for of, w := range k.waits {
			if w.child == e.Child && e.Reason != events.SignalRepeated {
				delete(k.waits, of)
			}
		}
	case events.StepOrdered, events.UndoOrdered:
		if k.waits == nil {
			k.waits = make(map[task]waitsFor)
		}
		k.waits[of] = waitsFor{e.Child, e.Attempt, transaction}
	case events.StepCompleted, events.StepFailed, events.UndoCompleted, events.UndoFailed:
		delete(k.waits, of)
	case events.OrderAccepted:
		k.parent, k.detached = e.Parent, e.Detached
	case events.OrderCompensating:
		k.ended, k.toward = false, true
	case events.OrderRejected, events.OrderCompleted, events.OrderCompensated, events.OrderCancelled, events.OrderRaised, events.OrderTerminated:
		k.parent, k.ended = cmp.Or(k.parent, e.Parent), true
		clear(k.waits)
	}
}

// passWords looks at what a transaction passed of what orders told each other, and that led to
// nothing: it must be so that it changes nothing.
func (s *settlement) passWords(a *account, to int64) {
	k := &a.kin
	for _, w := range k.heard() {
		if w.offset >= to {
			break
		}
		why := ""
		switch {
		case w.want != nil:
			switch of := (passedTo{asked{w.want.Correlation, w.want.Order, w.want.Wait}, w.want.SignalID}); {
			case w.aside != 0, w.again:
			case w.want.Want == events.WantHeard && s.wentBack[of] && (!w.want.Over || k.given[of.asked] > 1): // it was put back, and heard
			case w.want.Want == events.WantAwait, w.want.Want == events.WantHeard:
				why = "came to nothing"
			}
		case w.pass != nil:
			if w.aside == 0 && !s.back[gave{w.pass.Correlation, w.pass.Given}] {
				why = "was not heard, and did not go back"
			}
		case w.bid != nil:
			if w.bid.Bid == events.BidAsk && w.aside == 0 && !s.noPlace[asked{w.bid.Home, w.bid.Order, w.bid.Wait}] {
				why = "came to nothing, and there was a place"
			}
		case w.grant != nil:
			if w.aside == 0 && w.grant.Error == nil && !k.asked[w.grant.Wait] && !s.unwanted[asked{w.grant.Home, w.grant.Order, w.grant.Wait}] {
				why = "is what nobody asked for, and did not go back"
			}
		case w.aside != 0:
			why = "was put aside, and the journal does not say so"
		case w.wish == nil:
			for of, waits := range k.waits {
				ends := !of.undo || w.report.State != "Processed" // which is from before
				if of.step == w.report.Step && waits.child == w.report.Child && ends && waits.since < s.transaction[a.partition] && !a.held {
					why = "is what the order waits for, and came to nothing"
				}
			}
		case a.born == 0:
			why = "begins an order, and came to nothing"
		case w.wish.Wish == events.WishUndo && !k.toward, w.wish.Wish == events.WishCancel && !k.toward && !k.ended:
			why = "has the order undone, and came to nothing"
		}
		if why != "" {
			s.report("%s, %s, %s", s.at(a, s.Topics.Internal, w.entry), w, why)
		}
		delete(k.words, w.offset)
		if !w.back {
			s.Moot++
		}
	}
}
