package decide

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/events/spans"
	"github.com/waybill-dev/waybill/orchestrator/proof"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
)

// Submit decides on a submission: the order is accepted and its first steps
// start, or it is rejected. An id that is known already changes nothing, whatever the
// submission says (T4).
func Submit(env *Env, order *projections.Order, in *Input) Decision {
	id, s, problem := in.Order, &in.Submission, in.Problem
	switch {
	case order != nil:
		return Decision{}
	case in.Wish == nil && events.OwnID(id) && env.Format >= events.ChildrenFormat:
		return submittedOwn(in)
	case in.Wish != nil:
		s = env.inherited(s)
	}
	d := newDecider(env, nil)
	replyTo, refused := env.statusTopic(s.ReplyTo), ""
	if replyTo != "" {
		if refused = env.refusesStatus(replyTo); refused != "" {
			replyTo = ""
		}
	}
	if problem == nil {
		d.flow, problem = env.admit(s, in.Wish != nil && events.ScheduleOf(in.Wish.Parent) == "")
	}
	if problem == nil && in.Wish != nil && in.Wish.Key != "" {
		problem = d.flow.Start.Fits(in.Wish.Key, workflow.Scope{Input: s.Input, Shared: &d.shared})
	}
	var home, key string
	if problem == nil && d.flow.Concurrency != nil {
		home, key, problem = d.flow.HomeOf(workflow.Scope{Input: s.Input, Shared: &d.shared})
	}
	if problem == nil {
		e := events.Event{
			Type: events.OrderAccepted, Order: id,
			Workflow: d.flow.Name, Version: d.flow.Version, Steps: stepsOf(d.flow), Input: s.Input,
			ReplyTo: replyTo, Priority: s.Priority, Deadline: d.deadline(s), Traceparent: traced(in.Record.header(events.HeaderTraceparent)), Digest: env.digest(s), Labels: d.labels(s), RerunOf: s.RerunOf,
			Pinned: d.pinned(), Keep: env.keep(d.flow),
		}
		if env.Format >= events.BaggageFormat {
			e.Tracestate, e.Baggage = spans.State(e.Traceparent, in.Record.header(events.HeaderTracestate)), spans.Baggage(in.Record.header(events.HeaderBaggage))
		}
		if w := in.Wish; w != nil {
			e.Parent, e.ParentStep, e.Depth, e.Detached = w.Parent, w.Step, w.Depth, w.Detached
		}
		if env.Format >= events.ApproveFormat {
			if e.By = s.By; e.By != "" {
				e.Actor = in.actor(env)
			}
			for _, name := range s.Submitters[:min(len(s.Submitters), events.MaxSubmitters)] {
				e.Submitters = append(e.Submitters, Cut(name, MaxName))
			}
		}
		if why := d.try(&e); why != "" {
			problem = fmt.Errorf("the input cannot be recorded: %s", why)
		}
	}
	if problem != nil {
		e := events.Event{
			Type: events.OrderRejected, Order: id, Reason: problem.Error(),
			Workflow: s.Workflow, Version: s.Version, ReplyTo: replyTo, Digest: env.digest(s),
		}
		if s.Workflow != "" {
			e.Keep = env.keep(env.Workflow(s.Workflow, s.Version))
		}
		if w := in.Wish; w != nil {
			e.Parent, e.ParentStep, e.Detached = w.Parent, w.Step, w.Detached
		}
		d.record(&e)
		return d.made()
	}
	if refused != "" {
		d.record(&events.Event{Type: events.StatusRefused, ReplyTo: s.ReplyTo, Reason: refused})
	}
	if home != "" {
		d.queue(home, key, d.flow.Concurrency.OnConflict)
	}
	d.advance()
	return d.made()
}

// submittedOwn puts a submission aside of an id that no submission makes an order of.
func submittedOwn(in *Input) Decision {
	return Decision{Aside: []Aside{{in.Record, fmt.Sprintf("ids that begin with %s are those of orders that Waybill itself makes; choose another", events.ChildPrefix)}}}
}

// stepsOf names the steps of a workflow.
func stepsOf(flow *workflow.Workflow) []string {
	names := make([]string, len(flow.Steps))
	for i := range flow.Steps {
		names[i] = flow.Steps[i].Name
	}
	return names
}

// Undelivered decides on a status message that a caller's own topic does not take: the
// namespace's has it, and those that follow. A nil order of the decision means that
// they go there already.
func Undelivered(env *Env, order *projections.Order, topic, why string) Decision {
	if order == nil || order.ReplyTo != topic {
		return Decision{}
	}
	d := &decider{env: env, order: order.Clone()}
	d.record(&events.Event{Type: events.StatusRefused, ReplyTo: topic, Reason: why})
	return d.made()
}

// conflict decides on a submission that says something else than the one that made
// the order. The first is recorded, and its sender told: never where the order's own
// caller listens. Whatever topic it names, the order stays as it is.
func conflict(env *Env, order *projections.Order, in *Input) Decision {
	if order.Conflicted {
		return Decision{Dropped: 1}
	}
	d := &decider{env: env, order: order.Clone()} // its workflow does not matter
	e := events.Event{
		Type: events.SubmissionConflicted, Source: in.Record.Source(), Digest: env.digest(&in.Submission), ReplyTo: in.Submission.ReplyTo,
		Reason: "another submission made the order of this id; this one changes nothing",
	}
	if e.ReplyTo = env.statusTopic(e.ReplyTo); e.ReplyTo != "" {
		if why := env.refusesStatus(e.ReplyTo); why != "" {
			e.ReplyTo, e.Reason = "", e.Reason+", and its own topic is not told: "+why
		}
	}
	d.record(&e)
	return d.made()
}

// Conflicts says whether a submission is another than the one that made the order. An
// order from before format 2 cannot tell.
func Conflicts(order *projections.Order, s *events.Submission) bool {
	return order.Digest != "" && order.Digest != s.Digest()
}

// digest is that of a submission, which format 1 does not have.
func (env *Env) digest(s *events.Submission) string {
	if env.Format < 2 {
		return ""
	}
	return s.Digest()
}

// inherited is the submission of an order that does a step of another, without what it has of that
// one's labels and this workflow makes of the input itself, or for which there is no room. Of two
// deadlines the nearer counts.
func (env *Env) inherited(s *events.Submission) *events.Submission {
	own := *s
	own.Labels = nil
	flow := env.Workflow(s.Workflow, s.Version)
	for _, name := range slices.Sorted(maps.Keys(s.Labels)) {
		if flow == nil || flow.Marks(name) || len(own.Labels) == events.MaxLabels {
			continue
		}
		if own.Labels == nil {
			own.Labels = make(map[string]string)
		}
		own.Labels[name] = s.Labels[name]
	}
	if flow != nil && flow.Deadline > 0 {
		if at := events.Time(env.Now.Add(flow.Deadline)); s.Deadline.IsZero() || at.Before(s.Deadline) {
			own.Deadline = at
		}
	}
	return &own
}

// pinned are the versions of the workflows whose orders will do steps of this one: the newest of
// now, where the file names none.
func (d *decider) pinned() (versions map[string]int64) {
	for _, child := range d.flow.Ordered() {
		if child.Version > 0 {
			continue
		}
		if flow := d.env.Workflow(child.Workflow, 0); flow != nil {
			if versions == nil {
				versions = make(map[string]int64)
			}
			versions[child.Workflow] = int64(flow.Version)
		}
	}
	return versions
}

// deadline is when the whole order must have ended, zero for never.
func (d *decider) deadline(s *events.Submission) time.Time {
	if s.Deadline.IsZero() && d.flow.Deadline > 0 {
		return events.Time(d.env.Now.Add(d.flow.Deadline))
	}
	return events.Time(s.Deadline)
}

// traced returns a traceparent of W3C Trace Context as it is, and nothing for
// what is none.
func traced(traceparent string) string {
	if !traceparentForm.MatchString(traceparent) {
		return ""
	}
	return traceparent
}

var traceparentForm = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// statusTopic is the topic that a submission names for its status messages, if that is
// not the namespace's, which is of the transaction.
func (env *Env) statusTopic(topic string) string {
	if topic == env.Topics.Status && env.Format >= events.CourierFormat {
		return ""
	}
	return topic
}

// RefusesStatus says why no order may tell a topic its status, whatever Kafka would say, "" if one may. The
// patterns are those of [Env.ReplyTopics].
func RefusesStatus(topics *events.Topics, patterns []string, topic string) string {
	env := &Env{Topics: topics, ReplyTopics: patterns, Format: events.CourierFormat}
	if env.statusTopic(topic) == "" {
		return ""
	}
	return env.refusesStatus(topic)
}

// refusesStatus says why no status message can go to the caller's topic.
func (env *Env) refusesStatus(topic string) string {
	switch {
	case !events.ValidTopic(topic):
		return fmt.Sprintf("%q cannot be the name of a topic", topic)
	case env.Topics.Owns(topic):
		return fmt.Sprintf("%s is Waybill's own topic", topic)
	case events.OwnSomewhere(topic) && !slices.Contains(env.ReplyTopics, topic):
		return fmt.Sprintf("%s is another namespace's own topic by its name; if it is not, name it as it is with --reply-to-topics, beside '*' for all that are not such", topic)
	case len(env.ReplyTopics) > 0 && !slices.ContainsFunc(env.ReplyTopics, func(pattern string) bool { return matches(pattern, topic) }):
		return fmt.Sprintf("%s is none of those that --reply-to-topics names", topic)
	case env.Format >= events.CourierFormat:
		return ""
	}
	return env.Refuses(topic, EnvelopeSize)
}

func matches(pattern, topic string) bool {
	matches, err := path.Match(pattern, topic)
	return matches && err == nil // the instance has no other patterns
}

// admit finds the workflow for a submission, or what is wrong with it. That of an order which does a
// step of another was not retired when that one began.
func (env *Env) admit(s *events.Submission, step bool) (*workflow.Workflow, error) {
	if err := checkPriority(s.Priority); err != nil {
		return nil, err
	}
	if s.Workflow == "" {
		return nil, errors.New(`no workflow is named; set "workflow"`)
	}
	if s.Version < 0 {
		return nil, fmt.Errorf("version %d: versions begin with 1", s.Version)
	}
	flow := env.Workflow(s.Workflow, s.Version)
	if !step && strings.Contains(s.Workflow, workflow.Inner) {
		flow = nil // it does items, and nobody else orders it
	}
	if env.Retired != nil && (!step || flow == nil) && env.Retired(s.Workflow, s.Version) {
		if s.Version == 0 {
			return nil, fmt.Errorf("workflow %s is retired, in every version; register a new one", s.Workflow)
		}
		return nil, fmt.Errorf("workflow %s is retired; name another version, or none for the newest", workflow.ID(s.Workflow, s.Version))
	}
	if flow == nil {
		return nil, Unregistered(s)
	}
	if env.over(s.Deadline) {
		return nil, fmt.Errorf("the deadline, %s, has passed", events.AppendTime(nil, s.Deadline))
	}
	if err := events.CheckLabels(s.Labels); err != nil {
		return nil, err
	}
	if s.RerunOf != "" {
		if err := events.CheckOrderID(s.RerunOf); err != nil {
			return nil, fmt.Errorf("rerunOf: %w", err)
		}
	}
	for _, m := range flow.Search {
		if _, taken := s.Labels[m.Name]; taken {
			return nil, fmt.Errorf("the label %s has the name of a value of the input by which workflow %s finds its orders; choose another name", m.Name, flow.ID())
		}
	}
	if err := flow.CheckInput(s.Input); err != nil {
		return nil, err
	}
	return flow, nil
}

// Unregistered says why a submission is rejected whose workflow is not registered.
func Unregistered(s *events.Submission) error {
	name := s.Workflow
	if s.Version > 0 {
		name = workflow.ID(s.Workflow, s.Version)
	}
	return fmt.Errorf("workflow %s is not registered", name)
}

// labels are what the order is found by: those that it was submitted with, and what its workflow
// makes of the input.
func (d *decider) labels(s *events.Submission) map[string]string {
	labels := maps.Clone(s.Labels)
	for _, m := range d.flow.Search {
		if text, ok := m.Text(workflow.Scope{Input: s.Input, Shared: &d.shared}); ok {
			if labels == nil {
				labels = make(map[string]string, len(d.flow.Search))
			}
			labels[m.Name] = text
		}
	}
	return labels
}

// advance does what the order's state calls for, if anything: it starts steps,
// or undoes them, or ends the order.
func (d *decider) advance() {
	switch o := d.order; {
	case o.Schedule != nil:
		d.tick()
	case o.Correlation != nil: // which has nothing ahead
	case o.Places != nil:
		d.grant()
	case o.State == projections.Error || o.State.Final() || o.Paused:
	case o.Failure != nil && o.Toward == "":
		d.raised()
	case d.flow == nil:
		d.broken()
	case o.Toward != "":
		d.compensate()
	case o.Queued():
		d.askAgain()
	default:
		d.schedule()
	}
}

// schedule starts every step whose turn has come (S1), and completes the order
// after the last.
func (d *decider) schedule() {
	open := 0
	for skipped := true; skipped; { // what comes after a skipped step may start, too
		skipped, open = false, 0
		for i := range d.order.Steps {
			s := &d.order.Steps[i]
			if s.Over() {
				continue
			}
			open++
			switch {
			case s.State == projections.Running && s.Each != nil: // some may have ended while nothing began
				t := d.task(i, doing)
				if d.endItems(t) {
					return
				}
				d.orderItems(t)
			case s.Waits():
			case s.State == projections.Repeating && s.Due.IsZero(): // an operator had it wait
				if !d.start(d.task(i, doing)) {
					return
				}
			case s.State != projections.NotStarted || !d.ready(&d.flow.Steps[i]):
				continue
			case !d.begin(i):
				return
			}
			skipped = skipped || d.order.Steps[i].Over()
		}
	}
	if open == 0 {
		d.tell(events.Event{Type: events.OrderCompleted, FailedSteps: d.order.FailedSteps()})
	}
}

// ready says whether all that the step comes after is done.
func (d *decider) ready(s *workflow.Step) bool {
	for _, name := range s.After {
		if !d.order.Step(name).Over() {
			return false
		}
	}
	return true
}

// badExpression is the code of an expression that could not be evaluated.
const badExpression = "bad-expression"

// begin starts step i, or skips it when its condition does not hold. It reports
// false when the order went to Error instead.
func (d *decider) begin(i int) bool {
	t := d.task(i, doing)
	// What waits runs: its condition held. So does what is given an input.
	if when := t.def.When; when != nil && t.step.Input == nil && t.step.Due.IsZero() {
		holds, err := when.Holds(t.scope())
		if err != nil {
			return d.refuse(t, &events.Error{Code: badExpression, Message: err.Error()})
		}
		if !holds {
			d.record(&events.Event{Type: t.skipped, Step: t.step.Name, Reason: "when: " + when.String()})
			return true
		}
	}
	return d.start(t)
}

// inputOf is what the step works on.
func inputOf(o *projections.Order, s *projections.Step) jsontext.Value {
	return orOfOrder(o, s.Input)
}

// undoInput is what its undo works on, unless somebody says otherwise.
func undoInput(o *projections.Order, s *projections.Step) jsontext.Value {
	return orOfOrder(o, s.UndoInput())
}

func orOfOrder(o *projections.Order, input jsontext.Value) jsontext.Value {
	if input != nil {
		return input
	}
	return o.Input
}

// beginsLater is why a step waits that could begin.
const beginsLater = "waits for a transaction of its own: the order begins much at a time"

// start takes the order and begins the task's next attempt: LockedBy, CompleteBy
// and Processing are one event (T5). One that sleeps, listens or asks people begins to, one that raises or emits does. It
// reports false when the order took another course instead.
func (d *decider) start(t task) bool {
	if d.env.over(d.order.Overdue()) {
		d.overdue()
		return false
	}
	if d.spent() {
		d.await(t, beginsLater)
		return true
	}
	return t.kind.begin(d, t)
}

// begin begins the next attempt, or waits until the agent can be asked.
func (a agent) begin(d *decider, t task) bool {
	if t.def.Limit != nil && t.work().Turn == 0 {
		return d.askPlace(t)
	}
	e, waits, fault := a.start(d.env, t)
	switch {
	case fault != nil:
		return d.refuse(t, fault)
	case d.env.over(waits.Until):
		return d.refuse(t, &events.Error{Code: queueExpired, Message: fmt.Sprintf("agent %s could not be asked since %s, for %s",
			e.Agent, events.AppendTime(nil, t.work().Due), d.env.Now.Sub(t.work().Due))})
	case waits.Topic != "":
		d.waits = waits
		d.bytes += len(e.Input) // it was made for nothing
		d.await(t, "waits for agent "+e.Agent+t.turn())
		return true
	}
	work := t.work()
	e.Step, e.Attempt, e.LockedBy, e.Outcome = t.step.Name, work.Attempt+1, d.env.Instance, t.outcome()
	// The key outlives the attempt, so that the service can tell a repeat (A3).
	e.IdempotencyKey = t.key(d.env.Format)
	d.env.limit(t, &e)
	e.ExtendTo = d.extendTo(t, e.CompleteBy)
	if why := d.try(&e); why != "" {
		return d.refuse(t, &events.Error{Code: requestRefused, Message: "the attempt cannot be recorded: " + why})
	}
	d.begun++
	return true
}

// limit says until when an attempt may take that begins now.
func (env *Env) limit(t task, e *events.Event) {
	completeBy := env.Now.Add(t.def.Timeout)
	if at := t.order.Overdue(); !at.IsZero() && at.Before(completeBy) {
		completeBy = at
	}
	e.CompleteBy = events.Time(completeBy)
	if env.Skew > 0 {
		e.Expires = events.Time(e.CompleteBy.Add(env.Skew))
	}
}

// await has the supervisor begin the attempt as soon as it can be, and says why not now.
// That is written once, and uses no attempt up.
func (d *decider) await(t task, why string) {
	if work := t.work(); work.Due.IsZero() {
		e := events.Event{Type: t.retried, Step: t.step.Name, Attempt: work.Attempt + 1, Due: events.Time(d.env.Now)}
		if d.env.Format >= events.WaitsFormat {
			e.Reason = why
		}
		d.record(&e)
	}
}

// refuse records that an attempt could not even begin. It failed, if Kafka would not
// take its request, or its agent could not be asked for too long; that its input cannot be made is for a step a case for an operator,
// and an undo fails for good. It reports whether the order goes on all the same.
func (d *decider) refuse(t task, fault *events.Error) bool {
	why := fault.Message
	fault.Message, fault.Permanent, fault.Step = Cut(why, MaxText), fault.Code == badExpression, t.step.Name
	if !fault.Permanent {
		d.record(&events.Event{Type: t.failed, Step: t.step.Name, Attempt: t.work().Attempt + 1, Error: fault})
		d.repair(t)
		return d.order.State != projections.Error && d.order.Toward == "" && !t.step.Passed // after which the others have begun already
	}
	if t.undo {
		d.record(&events.Event{Type: t.failed, Step: t.step.Name, Attempt: t.work().Attempt + 1, Error: fault})
		return false
	}
	action := d.action(t.step.Name)
	if fault.Code == badExpression {
		action = t.kind.remedy(t) + "; or " + action
	}
	d.errored(events.Event{Step: t.step.Name, Reason: fmt.Sprintf("%v: %s", t, why), Error: fault}, action)
	return false
}

// Proof says whether a reply repeats the token of its request.
type Proof string

// What is said of that. It is empty of a request without a token, and of a reply to
// another attempt than the one of now.
const (
	ProofRepeated Proof = "repeated"
	ProofMissing  Proof = "missing" // it has no token
	ProofWrong    Proof = "wrong"   // it has another
	ProofUnknown  Proof = "unknown" // it has one under a key that this instance does not have
)

// proofOf says whether a reply repeats the token of the attempt that it answers, and
// whether it is forged: it must, and does not. It needs no workflow.
func (d *decider) proofOf(in *Input) (says Proof, forged bool) {
	if in == nil || in.Reply == nil {
		return "", false
	}
	r, keys := in.Reply, d.env.Keys
	step := d.order.Known(r.Step)
	if step == nil {
		return "", false
	}
	work := &step.Work
	if r.Undo {
		work = step.Undo
	}
	if work == nil || work.Proof == "" || r.Attempt != work.Attempt {
		return "", false
	}
	switch {
	case in.waited:
		says = cmp.Or(in.proof, ProofMissing)
	case r.Token == "":
		says = ProofMissing
	case !keys.Knows(r.Token):
		says = ProofUnknown
	case keys.Repeats(&proof.Attempt{Namespace: d.env.Topics.Namespace, Order: d.order.ID, Step: r.Step, Number: r.Attempt, Undo: r.Undo, Agent: work.Agent}, r.Token):
		says = ProofRepeated
	default:
		says = ProofWrong
	}
	// Who takes back that agents must repeat it means what they were asked for before, too.
	must := work.Proof == events.ProofRequire && (keys == nil || keys.Setting(work.Agent) == proof.Require)
	return says, must && says != ProofRepeated
}

// TakeReply decides on an agent's reply. One that does not count is recorded, and changes
// nothing. The order must exist.
func TakeReply(env *Env, order *projections.Order, in *Input) Decision {
	d := newDecider(env, order)
	says, forged := d.proofOf(in)
	discarded := events.DiscardForged
	if !forged {
		discarded = d.takeReply(in)
	}
	if discarded != "" {
		d.discard(in, discarded)
	}
	made := d.made()
	made.Discarded, made.Proof = discarded, says
	return made
}

// takeReply records what a reply makes of the attempt that it answers, and decides what
// follows, or says why it changes nothing.
func (d *decider) takeReply(in *Input) (discarded string) {
	side := doing
	if in.Reply.Undo {
		side = undoing
	}
	i := place(d.order, in.Reply.Step)
	if i < 0 {
		return events.DiscardUnknownStep
	}
	t := d.task(i, side)
	asked, is := t.kind.(agent)
	if !is {
		return events.DiscardUnknownStep
	}
	if in.Reply.Status == events.ReplyProgress {
		return d.extend(t, in)
	}
	e, discarded := asked.take(d.env, t, in.Reply, in.Record.Written)
	if discarded == "" {
		d.from(in, &e)
		d.end(t, e)
	}
	return discarded
}

// discard records a reply that changes nothing.
func (d *decider) discard(in *Input, why string) {
	r := in.Reply
	e := events.Event{Type: events.ReplyDiscarded, Step: r.Step, Attempt: r.Attempt, ToUndo: r.Undo, Reason: why, Count: d.env.count(d.order.Discarded)}
	d.from(in, &e)
	d.record(&e)
}

// from says in an event whose reply it follows from, as far as that says so, and where it
// was read.
func (d *decider) from(in *Input, e *events.Event) {
	if d.env.Format >= events.ProofFormat {
		e.AnsweredBy, e.Source = in.Record.header(events.HeaderSource), in.Record.Source()
	}
}

// refusedOutput is what an attempt failed with that was done, and whose output cannot be recorded.
func refusedOutput(why string) *events.Error {
	return &events.Error{Code: events.OutputRefused, Message: "the output cannot be recorded: " + why, Permanent: true}
}

// end records how the task's attempt ended, and decides what follows. An output
// that the journal would refuse is a failure.
func (d *decider) end(t task, e events.Event) {
	e.Step, e.Attempt = t.step.Name, t.work().Attempt
	if e.Type == t.completed && !t.undo && t.def != nil && t.def.Repeat != nil && !unwanted(d.order) {
		d.again(t, &e)
		if e.Type == t.failed && d.env.Refuses(d.env.Topics.Journal, estimate(&e)) != "" {
			e.Output = nil
		}
	}
	if e.Type != t.completed && e.Type != events.StepRepeated {
		d.record(&e)
	} else if why := d.try(&e); why != "" {
		e.Type, e.Output = t.failed, nil
		e.Error = refusedOutput(why)
		d.record(&e)
	}
	if t.work().Broken() {
		d.repair(t)
		return
	}
	d.advance()
}
