package decide

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/draw"
	"github.com/waybill-dev/waybill/test/inspect"
)

// drawLive draws an order that has not ended, if there is one.
func (h *historian) drawLive(t *rapid.T) string {
	var live []string
	for _, id := range h.ids() {
		if o := h.of(t, id); !o.State.Final() {
			live = append(live, id)
		}
	}
	if len(live) == 0 || draw.One(t, "any", 10) {
		return draw.Order(t)
	}
	return draw.Of(t, "live", live...)
}

// soon has an input that was just written be decided on, most of the time.
func (h *historian) soon(t *rapid.T) {
	if !draw.One(t, "soon", 4) {
		h.read(t)
		h.commit(t)
	}
}

func (h *historian) submit(t *rapid.T) {
	h.submitTo(t, draw.Order(t),
		draw.Of(t, "workflow", "flow", "flow", "flow", "flow", "flow", "flow", "none", "no\x00ne"),
		draw.Of(t, "version", 0, 0, 1, 1, 2))
}

func (h *historian) submitTo(t *rapid.T, id, flow string, version int) {
	value := fmt.Sprintf(`{"workflow":%q, "version":%d, "replyTo":%q, "priority":%q`, flow, version,
		draw.Of(t, "replyTo", "", "shop.status", "waybill.replies"),
		draw.Of(t, "priority", "", "high", "normal"))
	value = strings.ReplaceAll(value, `\x00`, `\u0000`)
	if draw.One(t, "hurry", 4) {
		at := h.now.Add(time.Duration(draw.Amount(t, "deadline", -1_000, 30_000)) * time.Millisecond)
		value += fmt.Sprintf(`, "deadline":%q`, events.AppendTime(nil, at))
	}
	value += draw.Of(t, "input", `, "input" : { "n" : 1, "n": 2 } `, "", `, "input":{"n":7}`, `, "input":`+pill, `, "input":null`)
	value += draw.Of(t, "labels", "", "", "", "", `, "labels":{"region":"eu"}`, `, "labels":{"region":"us","a.b":""}`, `, "labels":{"n":"1"}`, `, "labels":{"-n":"1"}`)
	if strings.Contains(value, `"high"`) {
		value += `, "rerunOf":"o-0"`
	}
	value += draw.Of(t, "submitter", "", `, "by":"sam"`) + "}"
	s := submission{id: id, text: []byte(value), trace: draw.Trace(id)}
	s.tracestate, s.baggage = draw.Passed(id)
	s.value, s.problem = events.Decode[events.Submission]([]byte(value))
	must(t, s.problem)
	h.orders = append(h.orders, s)
	h.soon(t)
}

// answer replies to a request that was sent, now or again, in time or not.
func (h *historian) answer(t *rapid.T) {
	asked := h.asked(t, 6)
	if len(asked) == 0 {
		return // nothing was asked
	}
	r := draw.Of(t, "request", asked...)
	h.replies = append(h.replies, h.drawReply(t, events.Reply{Order: r.Order, Step: r.Step, Attempt: r.Attempt, Undo: r.Undo}))
	h.soon(t)
}

// report replies to what runs.
func (h *historian) report(t *rapid.T) {
	id := h.drawLive(t)
	var asked []events.Reply
	if o := h.of(t, id); o != nil {
		for i := range o.Steps {
			s := &o.Steps[i]
			if s.State == projections.Running {
				asked = append(asked, events.Reply{Order: id, Step: s.Name, Attempt: s.Attempt})
			}
			if s.Undo != nil && s.Undo.State == projections.Running {
				asked = append(asked, events.Reply{Order: id, Step: s.Name, Attempt: s.Undo.Attempt, Undo: true})
			}
		}
	}
	if len(asked) == 0 {
		return // nothing runs
	}
	h.replies = append(h.replies, h.drawReply(t, draw.Of(t, "work", asked...)))
	h.soon(t)
}

// delivers has Kafka acknowledge what steps give a topic, or refuse it.
func (h *historian) delivers(t *rapid.T) {
	refused := draw.Of(t, "refused", "", "", "", "there is no such topic")
	h.deliver(t, draw.Of(t, "topic", draw.Topics...), refused)
	h.soon(t)
}

// labour has an agent that runs out of time say that it is still at it.
func (h *historian) labour(t *rapid.T) {
	var all []events.Reply
	var ends []time.Time
	for _, id := range h.ids() {
		o := h.of(t, id)
		look := func(s *projections.Step, w *projections.Work, undo bool) {
			if w != nil && !w.ExtendTo.IsZero() {
				all = append(all, events.Reply{
					Order: id, Step: s.Name, Attempt: w.Attempt, Undo: undo, Token: h.tokens[work{id, s.Name, w.Attempt, undo}], Status: events.ReplyProgress,
				})
				ends = append(ends, w.CompleteBy)
			}
		}
		for i := range o.Steps {
			look(&o.Steps[i], o.Steps[i].Undo, true) // the first is the likelier
			look(&o.Steps[i], &o.Steps[i].Work, false)
		}
	}
	if len(all) == 0 {
		return // nobody may have more time
	}
	i := draw.Int(t, "of", 0, len(all)-1)
	if at := ends[i].Add(time.Duration(draw.Amount(t, "left", -500, 1)) * time.Millisecond); at.After(h.now) {
		h.now = at
	}
	h.replies = append(h.replies, reply{id: all[i].Order, value: all[i], written: h.now})
	h.soon(t)
}

// asked returns the last requests, which are the ones that matter most.
func (h *historian) asked(t *rapid.T, limit int) []events.Request {
	var asked []events.Request
	for i := len(h.messages) - 1; i >= 0 && len(asked) < limit; i-- {
		if r := h.messages[i]; events.Header(r, events.HeaderType) == string(events.StepRequested) {
			m, err := events.Decode[events.Request](r.Value)
			must(t, err)
			asked = append(asked, m)
		}
	}
	return asked
}

// serve has an order's agents do all that they were asked for, well: without
// it few orders come far.
func (h *historian) serve(t *rapid.T) {
	id := h.drawLive(t)
	for range draw.Int(t, "times", 1, 4) {
		h.obey(t, id)
		h.read(t)
		h.commit(t)
	}
}

// obey has the agents complete what they do for an order.
func (h *historian) obey(t *rapid.T, id string) {
	o := h.of(t, id)
	if o == nil {
		return
	}
	for _, topic := range draw.Topics {
		h.deliver(t, topic, "")
	}
	output := []byte(`{"n":3}`)
	if step, page, is := events.PageOf(parentStep(o)); is && step != "" {
		output = []byte(pagesDrawn[min(page, 2)])
	}
	done := func(s *projections.Step, w *projections.Work, undo bool) {
		if w != nil && w.State == projections.Running && s.Child == nil && s.Emits == nil {
			h.replies = append(h.replies, reply{id: id, written: h.now, value: events.Reply{
				Order: id, Step: s.Name, Attempt: w.Attempt, Undo: undo, Token: h.tokens[work{id, s.Name, w.Attempt, undo}],
				Status: events.ReplyCompleted, Output: output,
			}})
		}
	}
	for i := range o.Steps {
		done(&o.Steps[i], &o.Steps[i].Work, false)
		done(&o.Steps[i], o.Steps[i].Undo, true)
	}
}

// pagesDrawn are pages of items that an agent lists, which end, go on, go round in a circle, or are none.
var pagesDrawn = []string{`{"items":7}`, `{"items": [{"n":1}, 7],"cursor":"c-1"}`, `{"cursor":null,"items":[null]}`, `{"items":[],"cursor":"c-2"}`, `{"items":[1,2,3],"cursor":"c-3"}`}

// parentStep is what an order does for another, empty if it does nothing.
func parentStep(o *projections.Order) string {
	if o.Parent == nil {
		return ""
	}
	return o.Parent.Step
}

// flood sends an order one reply, or one command, again and again, and one more input
// in between.
func (h *historian) flood(t *rapid.T) {
	if !draw.One(t, "flood", 2) {
		return // floods would take longer than all else
	}
	id := h.drawLive(t)
	r := h.drawReply(t, events.Reply{Order: id, Step: draw.Step(t), Attempt: draw.Int(t, "attempt", 0, 3)})
	s, signals := draw.Signal(t), draw.One(t, "signals", 3)
	commands := draw.Flip(t, "commands")
	for n := range draw.Int(t, "times", MaxVoid-10, MaxVoid+30) {
		switch {
		case signals:
			h.signals = append(h.signals, signal{id: id, value: s})
		case commands:
			h.command(t, id, events.Command{Command: draw.Of(t, "command", "repeat", "resume", "release"), ID: fmt.Sprint("f-", n/2)})
		default:
			h.replies = append(h.replies, r)
		}
		if draw.One(t, "in between", 30) {
			h.obey(t, id)
			h.soon(t)
		}
	}
	h.read(t)
	h.commit(t)
	if o := h.of(t, id); o != nil && (o.Discarded == MaxVoid || o.Refused == MaxVoid || o.Unheard == MaxVoid) {
		*h.floods++
	}
}

// babble replies to what nobody asked.
func (h *historian) babble(t *rapid.T) {
	h.replies = append(h.replies, h.drawReply(t, events.Reply{
		Order: draw.Order(t), Step: draw.Step(t),
		Attempt: draw.Int(t, "attempt", -1, 4),
		Undo:    draw.Flip(t, "undo"),
	}))
}

func (h *historian) drawReply(t *rapid.T, r events.Reply) reply {
	r.Token = h.tokens[work{r.Order, r.Step, r.Attempt, r.Undo}]
	if r.Token != "" && draw.One(t, "another token", 5) {
		r.Token = draw.Of(t, "token", "", "k.", "sha256:x")
	}
	switch {
	case h.format >= events.ProgressFormat && draw.One(t, "still at it", 4):
		r.Status = events.ReplyProgress
	case draw.One(t, "failed", 3):
		r.Status = events.ReplyFailed
		r.Error = draw.Of[*events.Error](t, "error", nil, &events.Error{}, &events.Error{Code: "busy", Message: "come back"}, &events.Error{Code: "gone", Permanent: true}, &events.Error{Code: "unknown-operation", Permanent: true})
	default:
		r.Status = events.ReplyCompleted
		r.Output = []byte(draw.Of(t, "output", "", `{ "ok":true}`, `"x"`, pill, "null"))
		if o := h.of(t, r.Order); o != nil && strings.Contains(parentStep(o), ":p") {
			r.Output = []byte(draw.Of(t, "page", pagesDrawn...))
		}
	}
	skew := time.Duration(draw.Of(t, "skew", -2_000, -1, 0, 0, 1, 2_000)) * time.Millisecond
	value, err := events.Decode[events.Reply](r.Append(nil))
	must(t, err)
	return reply{id: r.Order, value: value, written: h.now.Add(skew)}
}

// tell sends signals that a step may wait for, or not.
func (h *historian) tell(t *rapid.T) {
	id := h.drawLive(t)
	for _, live := range h.ids() { // few orders of those that there are listen
		if o := h.of(t, live); !o.State.Final() && !draw.One(t, "to a listener", 3) {
			if flow := h.flows.Find(o.Workflow, o.Version); flow != nil && (flow.Listens("go") || flow.Listens("stop")) {
				id = live
			}
		}
	}
	for range draw.Int(t, "signals", 1, 3) {
		s := draw.Signal(t)
		if draw.One(t, "poison", 6) {
			s.Data = []byte(pill)
		}
		if draw.One(t, "kept", 4) {
			s.KeepUntil = h.now.Add(time.Duration(draw.Amount(t, "until", -1_000, 20_000)) * time.Millisecond)
		}
		s.ReplyTo = draw.Of(t, "replyTo", "", "shop.answers", "waybill.status", "waybill.replies")
		value, err := s.Encode()
		must(t, err)
		s, err = events.Decode[events.Signal](value)
		must(t, err)
		h.signals = append(h.signals, signal{id: id, value: s})
	}
	h.soon(t)
}

// outlive has time pass until about when a signal is given up that is kept, and tells its order
// another.
func (h *historian) outlive(t *rapid.T) {
	var ids []string
	var untils []time.Time
	for _, id := range h.ids() {
		o := h.of(t, id)
		for i := range o.Signals {
			if s := &o.Signals[i]; s.Kept() && !o.State.Final() && s.Until.Before(h.now.Add(time.Minute)) {
				ids, untils = append(ids, id), append(untils, s.Until)
			}
		}
	}
	if len(ids) == 0 {
		return // nothing is kept for a moment
	}
	i := draw.Int(t, "of", 0, len(ids)-1)
	if at := untils[i].Add(time.Duration(draw.Int(t, "left", -1, 1)) * time.Millisecond); at.After(h.now) {
		h.now = at
	}
	value := draw.Signal(t)
	h.signals = append(h.signals, signal{id: ids[i], value: value})
	h.soon(t)
}

// migrate has an order go on as one of the variant of its workflow, or back, with the names that its steps
// have there.
func (h *historian) migrate(t *rapid.T) {
	id := h.drawLive(t)
	o := h.of(t, id)
	if o == nil || o.Workflow != "flow" || h.flows.Find("flow", 3) == nil {
		return // there is no other version that would fit
	}
	c := events.Command{Command: events.CommandMigrate, ToVersion: 3, By: "ana"}
	if o.Version == 3 {
		c.ToVersion = 1
	}
	for old, name := range map[string]string{"s0": "r0", "r0": "s0"} {
		if flow := h.flows.Find("flow", c.ToVersion); o.Step(old) != nil && flow != nil && flow.Index(name) >= 0 {
			c.Map = map[string]string{old: name}
		}
	}
	h.command(t, id, c)
	h.soon(t)
}

// operate sends a command, with a sense or without.
func (h *historian) operate(t *rapid.T) {
	c := events.Command{
		Command: draw.Of(t, "command", events.CommandCancel, events.CommandResubmit, events.CommandResubmit, events.CommandSkipStep, events.CommandSkipStep,
			events.CommandPause, events.CommandResume, events.CommandRelease, events.CommandLabel, "repeat", events.CommandTerminate, events.CommandChange, events.CommandDecide, events.CommandMigrate, events.CommandMigrate),
		ID:   draw.Of(t, "id", "", "", "c-1", "c-2", "c-3"),
		By:   draw.Of(t, "by", "ana", ""),
		Note: draw.Of(t, "note", "why not", ""),
	}
	if c.Command == events.CommandSkipStep || draw.One(t, "named", 4) {
		c.Step = draw.Step(t)
	}
	if c.Command == events.CommandMigrate || c.Command == events.CommandResubmit && draw.One(t, "as another version", 4) {
		c.ToVersion, c.Map = draw.Of(t, "version", 3, 3, 3, 1, 1, 2, 4), draw.Names(t)
	}
	if c.Command == events.CommandLabel {
		c.Labels = draw.Labels(t)
	}
	if c.Command == events.CommandDecide {
		c = h.decision(t, c)
	}
	if draw.One(t, "payload", 4) {
		c.Input = []byte(draw.Of(t, "input", `{"n":5}`, pill, `null`, `"`+strings.Repeat("x", 2_000)+`"`))
		c.Output = []byte(`{"n":6}`)
	}
	c.Discard = draw.Flip(t, "discard")
	c.SameKey, c.NewKey = draw.One(t, "sameKey", 4), draw.One(t, "newKey", 4)
	if c.Command == events.CommandChange {
		if !draw.One(t, "with more", 4) { // than it may have
			c = events.Command{Command: c.Command, ID: c.ID, By: c.By, Note: c.Note}
		}
		c.Priority, c.NoDeadline = draw.Of[events.Priority](t, "priority", "", events.High, events.Low, "urgent"), draw.One(t, "no deadline", 4)
		if draw.Flip(t, "another deadline") {
			c.Deadline = h.now.Add(time.Duration(draw.Int(t, "deadline", -1, 60)) * time.Second)
		}
	}
	h.command(t, h.drawLive(t), c)
	h.soon(t)
}

// decision is what somebody may say, or not.
func (h *historian) decision(t *rapid.T, c events.Command) events.Command {
	c.By = draw.Of(t, "who", "ana", "bob", "sam", "")
	if c.Step == "" {
		c.Step = draw.Step(t)
	}
	c.Outcome = draw.Of(t, "outcome", "approved", "approved", "declined", "later")
	return c
}

// manage sends a command that has a sense.
func (h *historian) manage(t *rapid.T) {
	o := h.of(t, h.drawLive(t))
	if o == nil {
		return // there is no such order
	}
	commands := []events.Command{{Command: events.CommandCancel}, {Command: events.CommandPause}}
	if o.Paused {
		commands = append(commands[:1], events.Command{Command: events.CommandResume})
	}
	if o.State.Final() {
		commands = []events.Command{{Command: events.CommandLabel, Labels: draw.Labels(t)}}
	}
	for i := range o.Steps {
		if o.Steps[i].Each != nil {
			commands = append(commands, events.Command{Command: events.CommandChange, Step: o.Steps[i].Name, AtOnce: 1 + len(h.commands)%3})
		}
		if o.Steps[i].State == projections.Approving {
			c := h.decision(t, events.Command{Command: events.CommandDecide, Step: o.Steps[i].Name, ID: fmt.Sprint("d-", len(h.commands))})
			commands = []events.Command{c}
		}
	}
	if o.State == projections.Error {
		commands = append(commands[:1], events.Command{Command: events.CommandResubmit}, events.Command{Command: events.CommandResubmit, SameKey: true}, events.Command{Command: events.CommandResubmit, NewKey: true})
		if step := inspect.Stumbling(o); step != "" {
			commands = append(commands, events.Command{Command: events.CommandSkipStep, Step: step, Output: []byte(`7`)},
				events.Command{Command: events.CommandResubmit, Step: step, Input: []byte(`{"n":8}`)},
				events.Command{Command: events.CommandResubmit, Step: step, Input: []byte(`[{"n":8},7]`)})
		}
		if o.Toward != "" {
			commands = commands[1:]
		}
	}
	if o.Hold != nil {
		commands = []events.Command{{Command: events.CommandRelease}}
		if len(o.Waiting) > 0 {
			commands = append(commands, events.Command{Command: events.CommandRelease, Discard: true})
		}
	}
	h.command(t, o.ID, draw.Of(t, "act", commands...))
	h.soon(t)
}

func (h *historian) command(t *rapid.T, id string, c events.Command) {
	value, err := c.Encode()
	must(t, err)
	c, err = events.Decode[events.Command](value)
	must(t, err)
	given := command{id: id, value: c}
	if h.keys != nil && c.ID != "" && draw.Flip(t, "signed") {
		value, err := c.Encode()
		must(t, err)
		given.actor = h.keys.Sign(h.topics.Namespace, id, value, &events.Actor{Method: "key", Roles: draw.Of(t, "roles", []string{"approver/clerk"}, []string{"viewer", "approver/board"}, []string{"operator"}), At: h.now})
	}
	h.commands = append(h.commands, given)
}

func (h *historian) wait(d time.Duration) { h.now = h.now.Add(d) }

// punctual moves the clock to the very moment at which something is due, or
// next to it.
func (h *historian) punctual(t *rapid.T) {
	next, ok := h.next(t)
	if !ok {
		return // nothing is due
	}
	next = next.Add(time.Duration(draw.Int(t, "off", -1, 1)) * time.Millisecond)
	if next.After(h.now) {
		h.now = next
	}
}

// next is the first moment at which the supervisor has something to do.
func (h *historian) next(t *rapid.T) (first time.Time, ok bool) {
	look := func(at time.Time) {
		if !at.IsZero() && (!ok || at.Before(first)) {
			first, ok = at, true
		}
	}
	for id := range h.inspector.Ledgers {
		o := h.of(t, id)
		if look(o.Overdue()); o.Schedule != nil {
			look(o.Ticks())
		}
		for i := range o.Steps {
			at := o.Attention(&o.Steps[i])
			if flow := h.flows.Find(o.Workflow, o.Version); h.waits && flow != nil && !o.Running() && !at.IsZero() && !at.After(h.now) {
				if at = at.Add(flow.Steps[i].Queue); o.Steps[i].Undo != nil && h.away[h.topics.Requests(flow.Steps[i].Agent)].why != "" { // which waits for as long as it takes
					at = time.Time{}
				}
			}
			look(at)
		}
	}
	return first, ok
}

// look supervises. If all was committed, a second look at the same time, from
// the beginning, finds nothing to do; deadlines that are not committed yet are
// for the look after.
func (h *historian) look(t *rapid.T) {
	committed := len(h.records) == 0
	h.supervise(t, page)
	if !committed || slices.ContainsFunc(h.ids(), func(id string) bool { return h.of(t, id).Forgetting() }) { // its items come first
		return
	}
	n, waits := len(h.records), h.waits // also what is not committed yet
	h.state.Rescan()
	h.supervise(t, page)
	if len(h.records) != n {
		t.Fatalf("looking again at %v made %d records more", h.now, len(h.records)-n)
	}
	if at, ok := h.next(t); ok && !at.After(h.now) && !h.waits && !waits {
		t.Fatalf("the deadline %v was not handled at %v", at, h.now)
	}
}

// live lets time pass as it does for a lane: it looks again and again.
func (h *historian) live(t *rapid.T) {
	for range draw.Int(t, "looks", 1, 6) {
		next, ok := h.next(t)
		if !ok {
			return
		}
		if next.After(h.now) {
			h.now = next
		}
		h.supervise(t, page)
		h.commit(t)
	}
}

// fall loses what is not committed. The next owner reads those inputs again.
func (h *historian) fall(t *rapid.T) {
	h.crash(t)
	h.takeOver(t, draw.Of(t, "instance", "i-1", "i-2"))
}

// panics has deciding on an order panic from now on, or on whatever is brittle,
// or heals both.
func (h *historian) panics(t *rapid.T) {
	switch draw.Of(t, "panics", "calm", "calm", "order", "payload", "heal", "heal") {
	case "order":
		h.cursed[h.drawLive(t)] = true
	case "payload":
		h.brittle = true
	case "heal":
		clear(h.cursed)
		h.brittle = false
	}
}

// refuse has Kafka take nothing for a topic, for good or for now, or everything again, or
// nothing for agents for as long as what waits may.
func (h *historian) refuse(t *rapid.T) {
	topic := draw.Of(t, "topic", "waybill.requests.a0", "waybill.requests.a1", "waybill.requests.a2", "shop.status", "waybill.internal")
	delete(h.refused, topic)
	delete(h.away, topic)
	delete(h.silent, topic)
	switch draw.Int(t, "refused", 0, 8) {
	case 0, 6, 7:
		h.refused[topic] = refusal{why: "not authorised"}
	case 1, 2:
		h.away[topic] = refusal{why: "it does not exist"}
	case 3:
		h.silent[topic] = true
	case 4, 5:
		for _, agent := range []string{"a0", "a1", "a2"} {
			h.away["waybill.requests."+agent] = refusal{why: "it has no leader"}
		}
		for range 3 {
			h.submitTo(t, draw.Order(t), "flow", 0)
		}
		for range 5 {
			h.read(t)
			h.commit(t)
			h.live(t)
		}
	}
}

func (h *historian) permitAll() {
	for _, topic := range []string{"waybill.requests.a0", "waybill.requests.a1", "waybill.requests.a2", "shop.status", "waybill.internal"} {
		delete(h.refused, topic)
		delete(h.away, topic)
		delete(h.silent, topic)
	}
}

// vanish decides on what there is while no workflow is registered.
func (h *historian) vanish(t *rapid.T) {
	h.obey(t, h.drawLive(t))
	h.commit(t)
	flows, before := h.flows, len(h.journal)
	h.flows = workflow.Set{}
	h.read(t)
	if draw.Flip(t, "look") {
		h.supervise(t, page)
	}
	h.commit(t)
	h.flows = flows
	for _, r := range h.journal[before:] {
		h.vanished[r.Offset] = true
	}
}
