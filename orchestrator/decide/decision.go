package decide

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/waybill-dev/waybill/compensation"
	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/events/spans"
	"github.com/waybill-dev/waybill/orchestrator/proof"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
)

// Env is all that a decision may know besides the order and the input.
type Env struct {
	// Now is when the decision is made. Decisions never read a clock.
	Now time.Time
	// Doubted says that Now is of a clock that is not believed: by such a one no deadline
	// of an order has passed, and nothing has waited for too long.
	Doubted bool
	// Ahead is how far that clock is ahead of Kafka's, negative if it is behind, 0 if that is
	// not known.
	Ahead time.Duration
	// Instance is who decides.
	Instance string
	// Skew is the allowance for the difference between clocks: an attempt counts
	// as expired that much after its complete-by.
	Skew   time.Duration
	Topics *events.Topics
	// Workflow finds a registered definition; version 0 means the newest. Nil
	// when there is none.
	Workflow func(name string, version int) *workflow.Workflow
	// Newer is the level of the language of a definition that this release cannot run,
	// 0 for any other. Nil says so of all.
	Newer func(name string, version int) int
	// Starts finds the workflow whose orders a signal of that name starts, nil if it starts none. Nil knows of none.
	Starts func(signal string) *workflow.Workflow
	// Retired says that nothing new begins with a version of a workflow; with version 0, with none
	// of that name. Nil says so of none.
	Retired func(name string, version int) bool
	// Refuses says why Kafka would never take a record of size bytes on topic, ""
	// if it would. Away says why it would not take one of order now, though it may later.
	Refuses func(topic string, size int) string
	Away    func(order, topic string, size int) string
	// Untaken says why a topic took no event of a user's just now, "" if it did, or nothing is known.
	// Nil knows of none.
	Untaken func(topic string) string
	// ReplyTopics are patterns of the topics that submissions may name for their status
	// messages, as [path.Match] has them. None means all that are not Waybill's own by their
	// names, of whichever namespace.
	ReplyTopics []string
	// Keys are those of the namespace, nil if there are none.
	Keys *proof.Keys
	// Sampled says of which traces there are spans; nil says that there are none at all. No event depends on it.
	Sampled spans.Sampler
	// Claims says that people decide who are not known, but claim to be somebody.
	Claims bool
	// SignalKeep is how long a signal is kept that does not say how long; 0 is [events.SignalKeep].
	SignalKeep time.Duration
	// Room says whether an agent may be asked for more now. Nil says so of all.
	Room func(*Ask) bool
	// Excuses says that an attempt of an order which expires uses up none of its retry
	// policy: its agent gives no sign, or has more to do than it takes, and other orders wait for it. Nil
	// says so of none.
	Excuses func(o *projections.Order, ask *Ask, at *projections.Work) bool
	// Format is the partition's: what is new in a later one is not decided.
	Format int
	// Full says that the batch has as much as it should: what waits is not
	// released into it.
	Full bool

	// What the decisions of an Env use one after another.
	event events.Event
	room  []Message
	// load is that of the decision within which another is made.
	load load
}

// keepUntil is until when a signal is kept that does not say so.
func (env *Env) keepUntil() time.Time {
	return env.Now.Add(cmp.Or(env.SignalKeep, events.SignalKeep))
}

// over says that a time is set, and has come for all that is known.
func (env *Env) over(at time.Time) bool {
	return !at.IsZero() && !env.Now.Before(at) && !env.Doubted
}

// uncertain says that nobody knows whether a time that is set has come: the clock is in doubt,
// and says something else than it would if it were right.
func (env *Env) uncertain(at time.Time) bool {
	return env.Doubted && !at.IsZero() && (env.Ahead == 0 || env.Now.Before(at) != env.Now.Add(-env.Ahead).Before(at))
}

// Reuse takes back the messages of a decision that are no longer needed.
func (env *Env) Reuse(messages []Message) {
	clear(messages)
	env.room = messages[:0]
}

// Decision is what the scheduler or the supervisor made of an input: the
// state that it leads to, the messages that make it so, as [Outbox] gives
// them, and the inputs that are put aside. Nothing has happened yet. A nil Order
// means that nothing is to happen.
type Decision struct {
	Order    *projections.Order
	Messages []Message
	Aside    []Aside
	// Waits is what must be asked for to go on, and cannot be now; its topic is empty if
	// there is nothing.
	Waits Ask
	// Dropped is how many inputs leave no event, of submissions that waited and what was read: they change
	// nothing, and the order has recorded enough of their like.
	Dropped int
	// Discarded is why a reply changes nothing, empty if it does, or that is not known yet.
	Discarded string
	// Proof says of a reply to the attempt of now whether it repeats the token.
	Proof Proof
	// Panic is what deciding panicked with, and the stack; empty if it did not.
	// See [On].
	Panic string

	flow   *workflow.Workflow // of the order, as far as it was needed
	before *workflow.Workflow // the one that it had, if it has migrated
	load   load
}

// Migrated says that the order goes on as one of another version of its workflow.
func (d *Decision) Migrated() bool { return d.before != nil }

// Agent is that of the step of the order which is known outside by that name, empty if the decision did
// not need to know.
func (d *Decision) Agent(o *projections.Order, known string) string {
	if d.flow == nil || o == nil || o.Known(known) == nil {
		return ""
	}
	def, _ := d.flow.Step(o.Known(known).Name)
	if def == nil {
		return ""
	}
	return def.Agent
}

// On decides on an input, and does not panic: the order on which deciding
// does goes to Error, with an alert, and is held. From then on its replies wait,
// behind the input that panicked, and its commands are refused,
// until an operator releases it. Then they are decided in order; if one panics
// again, it and those behind it go on waiting. [Decision.Panic] tells of a panic.
//
// An order that has ended stays as it is, and a submission of none is rejected.
// What cannot wait is among the dead letters, and the journal says so.
func On(env *Env, order *projections.Order, in *Input) Decision {
	if order != nil && order.Forgotten && !events.IsCorrelation(order.ID) && !events.IsTurn(order.ID) && in.Pass == nil && in.Grant == nil {
		return afterwards(env, order, in)
	}
	progress := in.progress()
	if progress && env.Format < events.ProgressFormat { // an older release cannot read it
		return Decision{Aside: []Aside{{in.Record, fmt.Sprintf("status %q has a meaning from format %d on, and the partition is of format %d", in.Reply.Status, events.ProgressFormat, env.Format)}}}
	}
	resumed := false // then what is recorded may be of what waited
	d := guard(env, order, in, func() Decision {
		newer := env.newer(order)
		if order != nil && order.Resumes() && !newer && !env.load.spent() { // what waited comes first
			d := newDecider(env, order)
			d.resume()
			d.within(func() Decision { return On(env, d.order, in) })
			resumed = true
			return d.made()
		}
		if order != nil && (order.Hold != nil || newer || order.Resumes()) && in.waits(order) { // a submission changes nothing
			if progress {
				return meanwhile(env, order, in)
			}
			d := newDecider(env, order)
			says := d.holdInput(in)
			made := d.made()
			made.Proof = says
			return made
		}
		return in.dispatch(env, order)
	})
	if env.Format >= 2 && order != nil && !resumed && d.void(in, order) {
		env.Reuse(d.Messages)
		return Decision{Dropped: dropped(in), Aside: d.Aside, Discarded: d.Discarded, Proof: d.Proof, flow: d.flow}
	}
	return d
}

// dropped is how many inputs are dropped with one: those that say that an agent is still at it are not counted.
func dropped(in *Input) int {
	if in.progress() {
		return 0
	}
	return 1
}

// progress says that an agent is still at it.
func (in *Input) progress() bool { return in.Reply != nil && in.Reply.Status == events.ReplyProgress }

// MaxVoid is how many replies that change nothing an order records, how many that are
// put aside, and how many refused commands: its history and its record must not grow
// with what somebody sends again and again.
const MaxVoid = 100

// void says that the decision does no more than to record that an input changes
// nothing, and the order has enough of these.
func (d *Decision) void(in *Input, order *projections.Order) bool {
	if len(d.Messages) != 1 && (len(d.Messages) != 2 || !d.Messages[1].OwnTopic) { // who sent it may be told
		return false
	}
	switch d.Messages[0].Envelope.Type {
	case events.ReplyDiscarded:
		return order.Discarded >= MaxVoid
	case events.CommandRefused: // who sent one on which deciding panicked hears of it
		return order.Refused >= MaxVoid && len(d.Aside) == 0
	case events.SignalDiscarded: // what an order gave back was kept until then
		return order.Unheard >= MaxVoid && in.Want == nil && in.Report == nil
	case events.InputDiscarded: // the dead letter stays
		return order.PutAside >= MaxVoid && (in.Reply != nil || in.Signal != nil)
	}
	return false
}

// count is the number of the next after n, which format 1 does not say.
func (env *Env) count(n int) int {
	if env.Format < 2 {
		return 0
	}
	return n + 1
}

// waits says that it waits in an order on which nothing is decided. That an order is nobody's child is
// so whatever else is decided.
func (in *Input) waits(order *projections.Order) bool {
	switch {
	case order.Schedule != nil: // nothing comes of any other
		return in.Report != nil
	case order.Correlation != nil:
		return in.Want != nil || in.Report != nil || in.Signal != nil && in.Signal.Key != ""
	case order.Places != nil:
		return in.Bid != nil
	}
	return in.Grant != nil || in.Pass != nil || in.Reply != nil || in.Signal != nil || in.Report != nil || in.Wish != nil && doesStep(order, in.Wish)
}

// dispatch calls the role that decides on this kind of input.
func (in *Input) dispatch(env *Env, order *projections.Order) Decision {
	if events.IsCorrelation(in.Order) {
		return correlate(env, order, in)
	}
	if events.IsPlaces(in.Order) {
		return keepPlaces(env, order, in)
	}
	if order != nil && order.Schedule != nil || order == nil && in.Applies() {
		return arrange(env, order, in)
	}
	switch {
	case in.Reply != nil:
		return TakeReply(env, order, in)
	case in.Command != nil:
		return Operate(env, order, in)
	case in.Signal != nil:
		return TakeSignal(env, order, in)
	case in.Wish != nil:
		return TakeWish(env, order, in)
	case in.Report != nil:
		return TakeReport(env, order, in)
	case in.Pass != nil:
		return takePass(env, order, in)
	case in.Grant != nil:
		return takeGrant(env, order, in)
	}
	if order != nil && Conflicts(order, &in.Submission) {
		return conflict(env, order, in)
	}
	return Submit(env, order, in)
}

// What others wrote into a name or a reason is cut to these lengths, in bytes,
// so that the messages that repeat it stay small.
const (
	MaxName = 256
	MaxText = 1 << 10
	// alertErrors is how many errors an alert carries at most.
	alertErrors = 100
)

func clip(e *events.Event) {
	switch e.Type {
	case events.OrderRejected, events.StatusRefused, events.ReplyDiscarded, events.CommandRefused:
		e.Workflow, e.ReplyTo, e.Step = Cut(e.Workflow, MaxName), Cut(e.ReplyTo, MaxName), Cut(e.Step, MaxName)
		e.Operation, e.Outcome = Cut(e.Operation, MaxName), Cut(e.Outcome, MaxName)
	}
	e.Version, e.Attempt = max(e.Version, 0), max(e.Attempt, 0)
	e.By, e.Command, e.AnsweredBy = Cut(e.By, MaxName), Cut(e.Command, MaxName), Cut(e.AnsweredBy, MaxName)
	e.Reason = Cut(e.Reason, MaxText)
	if e.Error != nil {
		fault := *e.Error
		fault.Code, fault.Message, fault.Step = Cut(fault.Code, MaxName), Cut(fault.Message, MaxText), Cut(fault.Step, MaxName)
		e.Error = &fault
	}
}

// Cut shortens s to at most n bytes of whole UTF-8.
func Cut(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s
	}
	const more = "…"
	for n -= len(more); !utf8.RuneStart(s[n]); n-- {
	}
	return s[:n] + more
}

// EnvelopeSize is more than what a message has around its payload.
const EnvelopeSize = 8 << 10

// envelopeSize is more than what a message of an order has around its payload, with what its submission has passed on.
func envelopeSize(o *projections.Order) int { return EnvelopeSize + passedSize(o) }

func passedSize(o *projections.Order) int { return len(o.Tracestate) + len(o.Baggage) }

// A decision begins no more attempts once it has begun so many, or writes so many bytes:
// one order must not be too much for a transaction, or for the memory. The supervisor
// begins the others.
const (
	beginAtOnce = 100
	writeAtOnce = 8 << 20
)

// load is what a decision, with those that are made within it, has begun and written.
type load struct {
	begun int  // attempts
	bytes int  // of all messages
	dear  bool // what expressions cost
}

func (l load) spent() bool { return l.begun >= beginAtOnce || l.bytes >= writeAtOnce || l.dear }

// spent says that no more is begun in this decision, which leaves the partition's other orders
// waiting.
func (d *decider) spent() bool {
	return d.load.spent() || d.shared.Dear()
}

// decider builds one decision. Every event is folded as soon as it is decided,
// so that what follows is decided on the state that it makes.
type decider struct {
	env   *Env
	order *projections.Order // a working copy
	flow  *workflow.Workflow // nil while it is not needed or not known
	was   *workflow.Workflow // before the order migrated, nil if it did not
	out   []Message
	aside []Aside
	load
	shared workflow.Shared // what its expressions have in common
	// These are of the [Decision].
	waits   Ask
	inner   *workflow.Workflow // that of a decision that was made within
	dropped int
	panic   string
}

func newDecider(env *Env, order *projections.Order) *decider {
	d := &decider{env: env, out: env.room, load: env.load}
	env.room = nil // an order may be decided on within a decision
	if order == nil {
		d.order = new(projections.Order)
		return d
	}
	d.order = order.Clone()
	d.order.In(env.Format)
	if order.Hold == nil { // else nothing is decided
		d.flow = env.Workflow(order.Workflow, order.Version)
	}
	return d
}

// made is the decision, once all of it is recorded.
func (d *decider) made() Decision {
	if len(d.out) == 0 {
		return Decision{Aside: d.aside, Waits: d.waits, Dropped: d.dropped, flow: d.flow}
	}
	d.dear = d.dear || d.shared.Dear()
	return Decision{Order: d.order, Messages: d.out, Aside: d.aside, Waits: d.waits, Dropped: d.dropped, Panic: d.panic, flow: cmp.Or(d.flow, d.inner), before: d.was, load: d.load}
}

// within takes over what is decided on the order as it is here.
func (d *decider) within(decide func() Decision) {
	outer := d.env.load
	d.env.load = d.load
	more := decide()
	d.aside, d.dropped = append(d.aside, more.Aside...), d.dropped+more.Dropped
	if d.env.load = outer; more.Order == nil {
		d.out = append(d.out, more.Messages...) // what goes back to others
		return
	}
	d.load, d.inner = more.load, cmp.Or(more.flow, d.inner)
	if more.before != nil {
		d.flow, d.was = more.flow, more.before
	}
	if more.Waits.Topic != "" {
		d.waits = more.Waits
	}
	d.order, d.out = more.Order, append(d.out, more.Messages...)
	d.panic += more.Panic
}

// record numbers, clips and folds the next event, and keeps what follows from it.
func (d *decider) record(event *events.Event) {
	e := &d.env.event // folding would move each to the heap
	*e = *event
	e.Seq, e.At = d.order.Seq+1, d.env.Now
	clip(e)
	if d.order.ID != "" {
		e.Order = d.order.ID
	}
	d.order.In(d.env.Format)
	if err := d.order.Apply(e); err != nil {
		// The decider made the event from the very state that refuses it.
		panic(fmt.Sprintf("decided what cannot be folded: %v", err))
	}
	wrote := len(d.out)
	d.out = Outbox(d.out, d.env.Topics, d.env.Keys, d.order, e)
	if d.env.Sampled != nil {
		trace(d.out[wrote:], d.env.Sampled, d.order, e)
	}
	for i := range d.out[wrote:] {
		m := &d.out[wrote+i]
		d.bytes += len(m.Value) + len(m.Envelope.Tracestate) + len(m.Envelope.Baggage)
	}
}

// try records the next event, unless the journal would refuse it, and says why. All that
// others made, or that grows with the workflow, goes through it; the rest is always small.
func (d *decider) try(event *events.Event) (refused string) {
	if refused = d.env.Refuses(d.env.Topics.Journal, estimate(event)); refused == "" {
		d.record(event)
	}
	return refused
}

// estimate is what the record of an event takes at most, once it is clipped, and so does
// a message that says no more.
func estimate(e *events.Event) int {
	size := EnvelopeSize + len(e.Input) + len(e.Output) + len(e.Data) + 2*(len(e.Tracestate)+len(e.Baggage)) // quotes in them are escaped
	if e.Raw != nil {
		size += len(e.Raw.Append(nil))
	}
	for _, names := range [][]string{e.Steps, e.Signals, e.Submitters, e.Undone, e.NotUndone, e.FailedSteps, e.Kept, e.MayHaveRun, e.Renewed, e.Roles, e.Escalate, e.Outcomes} {
		for _, name := range names {
			size += len(name) + len(`"",`)
		}
	}
	for name := range e.Pinned {
		size += len(name) + len(`"":2147483647,`)
	}
	for name, before := range e.Renamed {
		size += len(name) + len(before) + len(`"":"",`)
	}
	for name, value := range e.Labels {
		size += len(name) + 2*len(value) + len(`"":"",`) // quotes in it are escaped
	}
	return size
}

// errored stops the order and calls an operator, who is told what to do (P2); e says
// why.
func (d *decider) errored(e events.Event, action string) {
	e.Type = events.OrderErrored
	d.tell(e)
	d.record(&events.Event{Type: events.AlertRaised, Step: e.Step, Reason: e.Reason, Errors: d.faults(e.Error), Action: action})
}

// faults gathers every error of the undos that failed for good, the last error
// of every step, and fault, each said once.
func (d *decider) faults(fault *events.Error) []events.Error {
	all := []events.Error{}
	for _, err := range compensation.Failures(d.order).WrappedErrors() {
		if undo, ok := errors.AsType[*compensation.UndoError](err); ok {
			all = append(all, events.Error(*undo))
		}
	}
	for i := range d.order.Steps {
		s := &d.order.Steps[i]
		if s.Error == nil || s.Passed {
			continue
		}
		e := *s.Error
		e.Step, e.Attempt = s.Name, s.Attempt
		all = append(all, e)
		if s.Error == fault {
			fault = nil
		}
	}
	if fault != nil {
		all = append(all, *fault)
	}
	return all[:min(len(all), alertErrors)]
}

// tell records an event that the caller hears of. When the caller's own topic
// cannot be written that is recorded first, and the namespace's topic serves; since
// [events.CourierFormat] that is found out behind the commit, see [Undelivered].
func (d *decider) tell(e events.Event) {
	if to := d.order.ReplyTo; to != "" && d.env.Format < events.CourierFormat {
		size := estimate(&e)
		if e.Type == events.OrderCompleted {
			size += min(len(d.order.Result()), projections.StatusOutput)
		}
		if why := d.env.Refuses(to, size); why != "" {
			d.record(&events.Event{Type: events.StatusRefused, ReplyTo: to, Reason: why})
		}
	}
	d.record(&e)
}

// broken gives an order to an operator because its workflow is gone.
func (d *decider) broken() {
	name := workflow.ID(d.order.Workflow, d.order.Version)
	d.errored(events.Event{Reason: fmt.Sprintf("workflow %s is not on the workflows topic any more", name)},
		fmt.Sprintf("register workflow %s again, then: waybill order resubmit %s", name, quote(d.order.ID)))
}

// quote makes text one word of a shell's command.
func quote(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

var plainWord = regexp.MustCompile(`^[a-zA-Z0-9_.,:@/+][a-zA-Z0-9_.,:@/+-]*$`)
