package decide

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/audit"
	"github.com/waybill-dev/waybill/test/inspect"
	"github.com/waybill-dev/waybill/test/oracle"
)

// checkInputs holds a history against the order's submission, its replies, and
// what was put aside.
func checkInputs(t fataler, s *stage, in *inspect.Inspector, id string, history []events.Event) {
	t.Helper()
	find := func(name string, version int) *oracle.Flow { return in.Definition(s.flows.Find(name, version)) }
	if err := cmp.Or(s.replied(id, history), s.submitted(id, history, find), s.enough(id, history), s.putAside(id, history), s.signalled(id, history), s.told(id, history)); err != nil {
		t.Fatalf("%q: %v\n%s", id, err, inspect.Story(history))
	}
}

// submitted: the first submission of an id is the one that counts, and the
// history begins with what it says.
func (s *stage) submitted(id string, history []events.Event, find func(string, int) *oracle.Flow) error {
	first := slices.IndexFunc(s.orders, func(in submission) bool { return in.id == id })
	if history[0].Parent != "" { // which the oracle holds against what its parent asked for
		return s.others(id, history, -1)
	}
	if kind := history[0].Type; kind != events.OrderAccepted && kind != events.OrderRejected {
		return nil // a command applied a schedule
	}
	if first < 0 {
		return errors.New("nobody submitted it")
	}
	e := &history[0]
	if err := s.others(id, history, first); err != nil {
		return err
	}
	if e.Type == events.OrderRejected && (strings.Contains(e.Reason, "panicked") || strings.HasPrefix(e.Reason, "the input cannot be recorded: ") && s.refused[s.topics.Journal] != (refusal{})) {
		return nil // nobody read it, or Kafka does not take it
	}
	in := &s.orders[first].value
	if e.Type == events.OrderRejected && s.unfound[first] {
		if !strings.HasPrefix(in.Workflow, e.Workflow) || e.Workflow == "" != (in.Workflow == "") || in.Version > 0 && e.Version != in.Version {
			return fmt.Errorf("%+v was submitted, and it is of %s@%d", in, e.Workflow, e.Version)
		}
		return nil // nobody knew its workflow then
	}
	if text := string(e.Append(nil)); s.audited[id] != text {
		k := audit.Kafka{Topics: &s.topics, Flow: find, Retired: s.flows.Retired, Keys: s.keys}
		if wrong := audit.Submitted(k, s.format, s.submission(int64(first)), e); len(wrong) > 0 {
			return errors.New(strings.Join(wrong, "; "))
		}
		s.audited[id] = text
	}
	if e.Type == events.OrderAccepted && e.ReplyTo != in.ReplyTo {
		if len(history) < 2 || history[1].Type != events.StatusRefused || history[1].ReplyTo != in.ReplyTo {
			return fmt.Errorf("its caller named %q, and it goes to %q", in.ReplyTo, e.ReplyTo)
		}
	}
	return nil
}

// others: of the later submissions of an id the first that says something else left an
// event, those after it that do were dropped, and no others.
func (s *stage) others(id string, history []events.Event, first int) error {
	of := history[0].Digest
	if first >= 0 {
		if want := s.env(id).digest(&s.orders[first].value); of != want && of != "" {
			return fmt.Errorf("its digest is %q, and that of its submission %q", of, want)
		}
	}
	var conflict events.Event
	if i := slices.IndexFunc(history, func(e events.Event) bool { return e.Type == events.SubmissionConflicted }); i >= 0 {
		conflict = history[i]
	}
	told := ""
	for at := first + 1; int64(at) < s.passed(events.InputOrders); at++ {
		in, source := &s.orders[at], fmt.Sprintf("%s/0/%d", s.topics.Orders, at)
		if in.id != id {
			continue
		}
		digest := in.value.Digest()
		other := of != "" && of != digest
		switch {
		case s.dropped[source] != (other && told != ""):
			return fmt.Errorf("%s says something else: %t, said before by %q, dropped: %t", source, other, told, s.dropped[source])
		case other && told == "":
			if told = source; conflict.Source != source || conflict.Digest != digest {
				return fmt.Errorf("%s, %s, says something else, and the conflict is with %s, %s", source, digest, conflict.Source, conflict.Digest)
			}
		}
	}
	if conflict.Source != told {
		return fmt.Errorf("the conflict is with %q, and %q says something else", conflict.Source, told)
	}
	return nil
}

// enough: replies and commands are dropped only where the history has enough events
// that say that nothing came of such.
func (s *stage) enough(id string, history []events.Event) error {
	most := make(map[events.Type]int)
	for i := range history {
		most[history[i].Type] = max(most[history[i].Type], history[i].Count)
		if history[i].Type == events.OrderForgotten {
			return nil
		}
	}
	for i := range s.replies {
		if s.replies[i].id == id && s.dropped[fmt.Sprintf("%s/0/%d", s.topics.Replies, i)] && max(most[events.ReplyDiscarded], most[events.InputDiscarded]) < 100 {
			return fmt.Errorf("reply %d was dropped, the order has discarded %d", i, most[events.ReplyDiscarded])
		}
	}
	for i := range s.signals {
		if s.signals[i].id == id && s.dropped[fmt.Sprintf("%s/0/%d", s.topics.Signals, i)] && max(most[events.SignalDiscarded], most[events.InputDiscarded]) < 100 {
			return fmt.Errorf("signal %d was dropped, the order has discarded %d", i, most[events.SignalDiscarded])
		}
	}
	for i := range s.commands {
		if s.commands[i].id == id && s.dropped[fmt.Sprintf("%s/0/%d", s.topics.Commands, i)] && most[events.CommandRefused] < 100 {
			return fmt.Errorf("command %d was dropped, the order has refused %d", i, most[events.CommandRefused])
		}
	}
	return nil
}

// putAside: every input that was discarded is a dead letter, for the same reason,
// and every reply among the dead letters was discarded.
func (s *stage) putAside(id string, history []events.Event) error {
	letters := make(map[string]string)
	for _, r := range s.letters {
		if string(r.Key) == id {
			letters[events.Header(r, headerSource)] = events.Header(r, headerReason)
		}
	}
	for i := range history {
		if e := &history[i]; e.Type == events.InputDiscarded {
			if reason, ok := letters[e.Source]; !ok || reason != e.Reason {
				return fmt.Errorf("%s is discarded for %q, and there is a dead letter: %t, %q", e.Source, e.Reason, ok, reason)
			}
			delete(letters, e.Source)
		}
	}
	for i := range s.replies {
		if quiet(&s.replies[i].value) { // of a format in which it has no meaning
			delete(letters, fmt.Sprintf("%s/0/%d", s.topics.Replies, i))
		}
	}
	for from := range letters {
		if (strings.HasPrefix(from, s.topics.Replies+"/") || strings.HasPrefix(from, s.topics.Signals+"/")) && !s.dropped[from] {
			return fmt.Errorf("%s is a dead letter, and the history does not say so", from)
		}
	}
	return nil
}

// signalled: every signal that was read left one event, or one that says it waits and one
// later, in the order in which they came, and what the event says is what it says. Those that came
// before the order left nothing.
func (s *stage) signalled(id string, history []events.Event) error {
	last := -1
	seen, kept := make(map[int]bool), make(map[int]bool)
	for i := range history {
		e := &history[i]
		rest, ok := strings.CutPrefix(e.Source, s.topics.Signals+"/0/")
		if !ok {
			continue
		}
		at, err := strconv.Atoi(rest)
		if err == nil && at < len(s.signals) && s.signals[at].value.Key != "" && s.signals[at].id != id && e.Type == events.StepHeard { // its home gave it
			continue
		}
		if err != nil || at >= len(s.signals) || s.signals[at].id != id {
			return fmt.Errorf("event %d is from %s, which is no signal for it", e.Seq, e.Source)
		}
		if e.Type != events.InputReleased && !seen[at] {
			if at < last {
				return fmt.Errorf("event %d, of %s, comes out of turn", e.Seq, e.Source)
			}
			last = at
		}
		in := &s.signals[at].value
		seen[at] = true
		switch e.Type {
		case events.InputHeld, events.InputReleased, events.InputDiscarded, events.SignalExpired:
			continue
		case events.SignalKept:
			kept[at] = true
			until := in.KeepUntil
			if until.IsZero() && e.Data == nil && in.Data != nil { // it came back
				until = e.Due
			} else if until.IsZero() {
				until = e.At.Add(events.SignalKeep)
			}
			if !e.Due.Equal(until) {
				return fmt.Errorf("event %d keeps %s until %v, and must until %v", e.Seq, e.Source, e.Due, until)
			}
		case events.StepHeard:
			if kept[at] != (e.Data == nil && in.Data != nil || e.Data == nil && kept[at]) {
				return fmt.Errorf("event %d has the data of %s: %t, which was kept: %t", e.Seq, e.Source, e.Data != nil, kept[at])
			}
		}
		known := in.ID
		if in.Key != "" && known == "" {
			known = e.Source
		}
		if e.Signal != in.Signal || e.SignalID != known || e.Data != nil && string(e.Data) != string(in.Data) || e.ReplyTo != "" && e.ReplyTo != in.ReplyTo {
			return fmt.Errorf("event %d is of the signal %+v, and says %+v", e.Seq, in, e)
		}
	}
	for at := range s.passed(events.InputSignals) {
		source := fmt.Sprintf("%s/0/%d", s.topics.Signals, at)
		if in := &s.signals[at]; in.id == id && !seen[int(at)] && !s.dropped[source] && !s.early[source] {
			return fmt.Errorf("the signal %+v, %s, left nothing", in.value, source)
		}
	}
	return nil
}

// replied: every reply that was read left one event, in the order in which
// they came, and that event says what the reply says. Those that waited for the
// release of their order left theirs then. Replies that came before the order
// left nothing.
func (s *stage) replied(id string, history []events.Event) error {
	read := make(map[int]*events.Reply) // by offset
	var offsets []int
	for i := range s.replies[:s.passed(events.InputReplies)] {
		if in := &s.replies[i]; in.id == id && !s.passedOver(s.topics.Replies, i) {
			read[i] = &in.value
			offsets = append(offsets, i)
		}
	}
	return s.answers(unasked(oracle.AsKnown(history)), read, offsets)
}

// passedOver says that an input left no event in its order's history.
func (s *stage) passedOver(topic string, at int) bool {
	source := fmt.Sprintf("%s/0/%d", topic, at)
	return s.dropped[source] || s.early[source]
}

// unasked is a history without the ends of attempts of which nobody was asked: what steps gave topics,
// and what was done for items.
func unasked(history []events.Event) (rest []events.Event) {
	emits := make(map[string]bool)
	for i := range history {
		switch e := &history[i]; e.Type {
		case events.StepEmitting, events.StepItemized:
			emits[e.Step] = true
		case events.StepCompleted, events.StepFailed, events.UndoCompleted, events.UndoFailed:
			if emits[e.Step] {
				continue
			}
		}
		rest = append(rest, history[i])
	}
	return rest
}

// answers holds a history against the replies that were read, of which those at
// the offsets must have left something.
func (s *stage) answers(history []events.Event, read map[int]*events.Reply, offsets []int) error {
	waits := make(map[int]bool) // or has waited
	var again *events.Reply     // one that waited, and is decided with the next event
	released := 0               // where it was
	for i := range history {
		e := &history[i]
		offset := -1
		if topic, at, ok := strings.Cut(e.Source, "/0/"); ok && strings.HasSuffix(topic, ".replies") {
			if _, err := fmt.Sscan(at, &offset); err != nil {
				return fmt.Errorf("event %d is from %q", e.Seq, e.Source)
			}
		}
		for len(offsets) > 0 && left(e) && again == nil && quiet(read[offsets[0]]) && e.Source != fmt.Sprintf("%s/0/%d", s.topics.Replies, offsets[0]) {
			offsets = offsets[1:] // it would have moved the complete-by by too little
		}
		if again != nil && quiet(again) && (!left(e) || !tells(e, again)) {
			again = nil
		}
		switch waited := again; {
		case waited != nil && !left(e):
			return fmt.Errorf("the reply %+v was released, and event %d is %s", waited, e.Seq, e.Type)
		case e.Type == events.InputReleased:
			again, released = read[offset], offset
			continue
		case left(e):
			again = nil
			at := released
			if waited == nil {
				if len(offsets) == 0 {
					return fmt.Errorf("event %d, %s, is of no reply", e.Seq, e.Type)
				}
				at, waited, offsets = offsets[0], read[offsets[0]], offsets[1:]
			}
			if want := fmt.Sprintf("%s/0/%d", s.topics.Replies, at); s.format >= events.ProofFormat && e.Source != want {
				return fmt.Errorf("event %d says that it is of %s, and is of %s", e.Seq, e.Source, want)
			}
			if !tells(e, waited) {
				return fmt.Errorf("event %d is of the reply %+v, and says %+v", e.Seq, waited, e)
			}
		case offset >= 0 && !waits[offset]: // it is held, or discarded at once
			for len(offsets) > 0 && offset != offsets[0] && quiet(read[offsets[0]]) {
				offsets = offsets[1:]
			}
			if len(offsets) == 0 || offset != offsets[0] {
				return fmt.Errorf("event %d, %s, comes out of turn", e.Seq, e.Type)
			}
			offsets, waits[offset] = offsets[1:], true
		}
	}
	offsets = slices.DeleteFunc(offsets, func(at int) bool { return quiet(read[at]) })
	if again != nil && !quiet(again) {
		return fmt.Errorf("the reply %+v was released, and left nothing", again)
	}
	if len(offsets) > 0 {
		return fmt.Errorf("the reply %+v left nothing", read[offsets[0]])
	}
	return nil
}

// quiet says whether a reply may leave no event: its agent is still at it.
func quiet(r *events.Reply) bool { return r.Status == events.ReplyProgress }

// told: what another order does for this one ends with what that one told, once, and with no other
// record.
func (s *stage) told(id string, history []events.Event) error {
	seen := make(map[string]bool)
	history = oracle.AsKnown(history)
	for i := range history {
		e := &history[i]
		at, is := s.fromOrder(e)
		if !is || e.Type == events.InputHeld || e.Type == events.InputReleased || e.Type == events.InputDiscarded {
			continue
		}
		if at < 0 || at >= s.passed(events.InputInternal) || seen[e.Source] {
			return fmt.Errorf("event %d is from %s, which was not read, or left another", e.Seq, e.Source)
		}
		seen[e.Source] = true
		r := s.internal[at]
		if kind := events.Type(events.Header(r, events.HeaderType)); kind == events.SignalWanted || kind == events.SignalPassed {
			if string(r.Key) != id || kind == events.SignalPassed && e.Type != events.StepFailed || kind == events.SignalWanted && !strings.HasPrefix(string(e.Type), "waybill.wait.") {
				return fmt.Errorf("event %d, %s, is from %s, which is for %q", e.Seq, e.Type, e.Source, r.Key)
			}
			continue
		}
		if kind := events.Type(events.Header(r, events.HeaderType)); kind == events.PlaceWanted || kind == events.PlaceGiven {
			if string(r.Key) != id || kind == events.PlaceGiven && e.Type != events.StepFailed && e.Type != events.UndoFailed || kind == events.PlaceWanted && !strings.HasPrefix(string(e.Type), "waybill.place.") {
				return fmt.Errorf("event %d, %s, is from %s, which is for %q", e.Seq, e.Type, e.Source, r.Key)
			}
			continue
		}
		if string(r.Key) != id || events.Type(events.Header(r, events.HeaderType)) != events.ChildReported {
			return fmt.Errorf("event %d is from %s, which is for %q", e.Seq, e.Source, r.Key)
		}
		told, err := events.Decode[events.Report](r.Value)
		if e.Type == events.ScheduleEnded {
			if err != nil || told.Step != events.TickText(e.Tick) || told.Child != e.Child || told.State != e.End {
				return fmt.Errorf("event %d, %s, is from %s, which says %+v, %v", e.Seq, e.Type, e.Source, told, err)
			}
			continue
		}
		step := e.Step
		if e.Item > 0 {
			step = events.ItemStep(e.Step, e.Item)
		}
		if e.Page > 0 {
			step = events.PageStep(e.Step, e.Page)
		}
		undo := e.Type == events.UndoCompleted || e.Type == events.UndoFailed || e.ToUndo
		well := undo == (told.State == string(projections.Compensated) || told.State == string(projections.Cancelled)) && (undo || told.Error == nil)
		failed := e.Type == events.StepFailed || e.Type == events.UndoFailed || e.Type == events.ItemFailed || e.Type == events.PageFailed
		refused := well && failed && (e.Error.Code == events.OutputRefused || e.Type == events.PageFailed && e.Error.Code != events.NoPage)
		if err != nil || told.Step != step || well == failed && !refused {
			return fmt.Errorf("event %d, %s, is from %s, which says %+v, %v", e.Seq, e.Type, e.Source, told, err)
		}
	}
	return nil
}

// fromOrder says of which record an event is that another order wrote.
func (s *stage) fromOrder(e *events.Event) (at int64, is bool) {
	if rest, ok := strings.CutPrefix(e.Source, s.topics.Internal+"/0/"); ok {
		at, err := strconv.ParseInt(rest, 10, 64)
		if err != nil {
			at = -1
		}
		return at, true
	}
	return 0, false
}

// left says whether an event is what a reply leaves.
func left(e *events.Event) bool {
	if strings.Contains(e.Source, ".internal/") {
		return false
	}
	switch e.Type {
	case events.StepCompleted, events.StepRepeated, events.StepExtended, events.UndoCompleted, events.UndoExtended, events.ReplyDiscarded:
		return true
	case events.StepFailed, events.UndoFailed: // and not because it could not even begin
		return e.Error == nil || e.Error.Code != requestRefused && e.Error.Code != queueExpired && e.Error.Code != events.EventRefused && e.Error.Code != badExpression && e.Error.Code != tooDeep
	}
	return false
}

// tells says whether an event tells what the reply says.
func tells(e *events.Event, r *events.Reply) bool {
	undo := e.ToUndo || strings.HasPrefix(string(e.Type), "waybill.undo.")
	if e.Step != r.Step || e.Attempt != max(r.Attempt, 0) || undo != r.Undo {
		return false
	}
	switch e.Type {
	case events.StepCompleted, events.StepRepeated, events.UndoCompleted:
		return r.Status == events.ReplyCompleted && string(e.Output) == string(r.Output)
	case events.StepExtended, events.UndoExtended:
		return r.Status == events.ReplyProgress
	case events.StepFailed, events.UndoFailed:
		switch {
		case r.Status == events.ReplyProgress:
			return false
		case r.Status == events.ReplyCompleted:
			inVain := e.Error.Code == events.UntilNotMet || e.Error.Code == events.BadUntil
			return e.Error.Permanent && (e.Error.Code == "output-refused" || inVain && (e.Output == nil || string(e.Output) == string(r.Output)))
		case r.Error == nil:
			return e.Error.Code == "error" && !e.Error.Permanent
		}
		fault := *r.Error
		if e.Uncounted && fault.Code == events.UnknownOperation { // it is asked again
			fault.Permanent = false
		}
		return *e.Error == fault
	}
	return true
}
