package decide

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/waybill-dev/waybill/compensation"
	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
)

// Operate decides on an operator's command (P3). One that cannot be done is
// recorded with the reason, and changes nothing else; one that was sent twice
// acts once. The order must exist.
func Operate(env *Env, order *projections.Order, in *Input) Decision {
	c, actor := in.Command, in.actor(env)
	before, acted := order.Acted(c.ID)
	acted = acted && actor != nil
	another := acted && before != projections.Asked(Cut(c.Command, MaxName), Cut(c.Step, MaxName), Cut(c.Outcome, MaxName), Cut(c.By, MaxName))
	if !another && (acted || c.ID != "" && Cut(c.ID, MaxName) == order.Command) {
		return Decision{}
	}
	d := newDecider(env, order)
	switch {
	case another:
		d.refuseCommand(c, actor, fmt.Sprintf("%q is the id of another command, %s; send this one under an id of its own", c.ID, before))
		return d.made()
	case env.newer(order):
		d.refuseCommand(c, actor, env.notRun(order))
		return d.made()
	case order.Resumes():
		d.refuseCommand(c, actor, "what waited for its release is still being decided on; send the command again")
		return d.made()
	case actor != nil && !actor.At.After(order.ActedBefore): // whether it acted is not known any more
		d.refuseCommand(c, actor, "it is older than the commands that came since, and may be a repeat of one; send a new one")
		return d.made()
	}
	// What every act carries: who, why, and by which command.
	act, operate := events.Event{By: c.By, Actor: actor, Reason: c.Note, Command: c.ID}, d.operate
	if order.Schedule != nil {
		operate = d.operateSchedule
	}
	if order.Correlation != nil {
		operate = d.operateCorrelation
	}
	if order.Places != nil {
		operate = d.operateLimit
	}
	if why := operate(c, act); why != "" {
		d.refuseCommand(c, actor, why)
	}
	return d.made()
}

// refuseCommand records why a command is not done.
func (d *decider) refuseCommand(c *events.Command, actor *events.Actor, why string) {
	d.record(&events.Event{Type: events.CommandRefused, Operation: c.Command, Step: c.Step, Outcome: c.Outcome, By: c.By, Actor: actor, Command: c.ID, Reason: why, Count: d.env.count(d.order.Refused)})
}

// operate does what the command asks for, or says why that is not possible.
func (d *decider) operate(c *events.Command, act events.Event) (refusal string) {
	o := d.order
	if o.State.Final() && c.Command != events.CommandLabel {
		return "the order has ended: it is " + string(o.State)
	}
	if o.Hold != nil && c.Command != events.CommandRelease && c.Command != events.CommandTerminate {
		return fmt.Sprintf("the order is held, and nothing is done to it before its release: waybill order release %s", quote(o.ID))
	}
	if d.lifts(c.Command) && d.env.uncertain(o.Deadline) {
		return fmt.Sprintf("an order that goes on past its deadline has none any more, and whether that, %s, has passed is not known while the clocks of instance %s and of Kafka differ; send the command again when the clock is right",
			events.AppendTime(nil, o.Deadline), d.env.Instance)
	}
	switch c.Command {
	case events.CommandRelease:
		return d.release(c, act)
	case events.CommandCancel:
		if o.Toward != "" {
			return "what was done is being undone already"
		}
		if act.Reason == "" {
			act.Reason = "cancelled by an operator"
		}
		d.turnBack(projections.Cancelled, act)
		return ""
	case events.CommandTerminate:
		return d.terminate(act)
	case events.CommandChange:
		return d.change(c, act)
	case events.CommandMigrate:
		return d.migrate(c, act)
	case events.CommandResubmit:
		return d.resubmitAs(c, act)
	case events.CommandSkipStep:
		return d.skip(c, act)
	case events.CommandPause:
		switch {
		case o.State == projections.Error:
			return "the order is in Error, where nothing starts"
		case o.Paused:
			return "the order is paused already"
		case d.env.Doubted && slices.ContainsFunc(o.Steps, func(s projections.Step) bool { return dozes(&s) }):
			return fmt.Sprintf("what is left of a sleep, or of a wait for signals or people, is not known while the clocks of instance %s and of Kafka differ; send the command again when the clock is right", d.env.Instance)
		}
		act.Type = events.OrderPaused
		d.record(&act)
		return ""
	case events.CommandResume:
		if !o.Paused {
			return "the order is not paused"
		}
		act.Type = events.OrderResumed
		d.record(&act)
		d.goOn()
		return ""
	case events.CommandLabel:
		return d.label(c, act)
	case events.CommandDecide:
		return d.decide(c, act)
	case events.CommandApply, events.CommandDelete:
		return fmt.Sprintf("it is an order; only a schedule or a limit can be asked to %s", c.Command)
	case events.CommandBackfill:
		return "it is an order; only a schedule can be asked to backfill"
	}
	return fmt.Sprintf("unknown command %q; the commands are %s", Cut(c.Command, MaxName), strings.Join(events.Commands, ", "))
}

// label changes what the order is found by, but for what its workflow makes of the input. Of what
// is as it was nothing is said: it would tell whoever may not read it.
func (d *decider) label(c *events.Command, act events.Event) (refusal string) {
	switch {
	case d.env.Format < events.LabelsFormat:
		return fmt.Sprintf("the partition is of format %d, which has no labels: finish the upgrade (waybill upgrade finish), and send the command again", d.env.Format)
	case d.order.State == projections.Rejected:
		return "the order was rejected, and has no labels"
	case d.flow == nil:
		return "its workflow is not registered any more; register it again first"
	case len(c.Labels) == 0:
		return "no labels are given"
	}
	labels := make(map[string]string)
	maps.Copy(labels, d.order.Labels)
	for _, name := range slices.Sorted(maps.Keys(c.Labels)) {
		switch value := c.Labels[name]; {
		case d.flow.Marks(name):
			return fmt.Sprintf("%s is what workflow %s makes of the input, and no label", name, d.flow.ID())
		case value == nil:
			delete(labels, name)
		default:
			labels[name] = *value
		}
	}
	own := maps.Clone(labels)
	for _, m := range d.flow.Search {
		delete(own, m.Name)
	}
	if err := events.CheckLabels(own); err != nil {
		return err.Error()
	}
	act.Type, act.Labels = events.OrderLabelled, labels
	if why := d.try(&act); why != "" {
		return "the labels cannot be recorded: " + why
	}
	return ""
}

// lifts says that a command has the order go on without its deadline, if that has passed.
func (d *decider) lifts(command string) bool {
	switch command {
	case events.CommandRelease, events.CommandResubmit, events.CommandSkipStep:
		return d.order.State == projections.Error && d.order.Toward == ""
	}
	return false
}

// renewed says that the step for which the order stands in Error begins anew, in the version to which it
// migrated since.
func (d *decider) renewed() bool {
	if d.order.Alert == nil {
		return false
	}
	s := d.order.Step(d.order.Alert.Step)
	return s != nil && s.State == projections.NotStarted && s.IdempotencyKey != ""
}

// resubmit lets what failed begin again (P3).
func (d *decider) resubmit(c *events.Command, act events.Event) (refusal string) {
	o := d.order
	switch {
	case o.State != projections.Error:
		return fmt.Sprintf("the order is %s; only an order in Error can be resubmitted", o.State)
	case d.flow == nil:
		return "its workflow is not registered any more; register it again first"
	case c.SameKey && c.NewKey:
		return "the same idempotency keys are wanted, and new ones (sameKey and newKey); say one of the two"
	}
	act.Type, act.Step, act.SameKey, act.LockedBy = events.OrderResubmitted, c.Step, c.SameKey, d.lock()
	if c.Step == "" && c.Input != nil {
		for i := range o.Steps {
			if !d.wanted(i).work().Broken() {
				continue
			}
			if act.Step != "" {
				return fmt.Sprintf("steps %s and %s failed; name the one that the input is for", act.Step, o.Steps[i].Name)
			}
			act.Step = o.Steps[i].Name
		}
		if act.Step == "" {
			act.Step = d.sleeper()
		}
		if act.Step == "" && d.renewed() {
			act.Step = o.Alert.Step
		}
		if act.Step == "" {
			return "no step failed; name the one that the input is for"
		}
	}
	if act.Step != "" {
		i := d.flow.Index(act.Step)
		if i < 0 {
			return fmt.Sprintf("the order has no step %q; its steps are %s", Cut(act.Step, MaxName), d.stepNames())
		}
		t := d.wanted(i)
		work := t.work()
		if c.Input != nil && t.def.Sleep != nil && work.State == projections.NotStarted {
			if err := workflow.CheckWake(text(c.Input)); err != nil {
				return fmt.Sprintf("%v sleeps, and its input says until when, or for how long: %v", t, err)
			}
		}
		if why := checkMessage(t, c.Input); why != "" {
			return why
		}
		if each := t.step.Each; c.Input != nil && each != nil && (each.Pages == nil || each.Count > 0 || each.Pages.Cursor != "") {
			return fmt.Sprintf("the items of step %s are those that it began with; resubmit it without an input, and those that failed are done anew", t.step.Name)
		}
		if n, list := projections.Elements(c.Input); t.def.Each != nil && t.def.Each.Pages == nil && c.Input != nil && (!list || n > events.MaxItems) {
			return fmt.Sprintf("the input of step %s is a list of its items, of at most %d", t.step.Name, events.MaxItems)
		}
		if t.def.Approve != nil && !t.undo && c.Input != nil && (o.Alert == nil || o.Alert.Step != t.step.Name) {
			return fmt.Sprintf("what those see who decide on %v is what the workflow shows; an operator says it where that cannot be evaluated", t)
		}
		begins := work.State == projections.NotStarted && !t.undo && (c.Input != nil || d.renewed() && o.Alert.Step == t.step.Name)
		if !work.Broken() && !begins {
			if work.Passed {
				return fmt.Sprintf("the order went on without %v; only what it waits for can be resubmitted", t)
			}
			return fmt.Sprintf("%v is %s; only what failed can be resubmitted", t, work.State)
		}
		if act.Input = c.Input; act.Input != nil && !c.SameKey && !c.NewKey && d.remembered(t) {
			return fmt.Sprintf("%v keeps its idempotency key, and a service that remembers the key answers for the input that it had; say which is wanted: the new input under that key (sameKey, --same-key), or under a new one (newKey, --new-key), where it runs again if it did", t)
		}
	}
	if d.env.Format >= events.KeysFormat && !c.SameKey {
		if why := d.keys(&act, c.NewKey); why != "" {
			return why
		}
	}
	if why := d.try(&act); why != "" {
		return "the input cannot be recorded: " + why
	}
	d.advance()
	return ""
}

// sleeper is the step whose turn has come, if that is one only, and it sleeps; "" otherwise.
func (d *decider) sleeper() (name string) {
	for i := range d.order.Steps {
		s := &d.order.Steps[i]
		if s.State != projections.NotStarted || !d.ready(&d.flow.Steps[i]) {
			continue
		}
		if name != "" || d.order.Toward != "" || d.flow.Steps[i].Sleep == nil {
			return ""
		}
		name = s.Name
	}
	return name
}

// remembered says that the task would go on with an idempotency key under which its agent
// was asked before.
func (d *decider) remembered(t task) bool {
	work := t.work()
	return d.env.Format >= events.KeysFormat && work.Broken() && t.keeps() && work.IdempotencyKey == t.key(d.env.Format)
}

// maxKeys is under how many idempotency keys a step may have run: each is kept, and
// undone.
const maxKeys = 10

// keys says in a resubmission what keeps its idempotency key, unless new ones are
// wanted, and what may have run under the one that it has and gets another. A step that
// has had too many gets none.
func (d *decider) keys(act *events.Event, renew bool) (refusal string) {
	act.NewKey = renew
	for i := range d.order.Steps {
		switch t := d.wanted(i); {
		case !t.work().Broken():
		case t.step.Each != nil && !t.undo: // other orders do its items anew
		case !renew && t.keeps():
			act.Kept = append(act.Kept, t.step.Name)
		case !t.step.Unknown || t.undo || t.def.Repeat != nil: // which nothing undoes
		case len(t.step.Earlier)+1 >= maxKeys:
			return fmt.Sprintf("%v may have run under %d idempotency keys, and gets no other; resubmit it with the one that it has (sameKey)", t, maxKeys)
		default:
			act.MayHaveRun = append(act.MayHaveRun, t.step.Name)
		}
	}
	return ""
}

// keeps says that the task, whose last attempt failed or expired, is asked for again
// under the same idempotency key: nobody has answered that attempt with an error, or
// there were retries left. An undo, which nothing undoes, keeps it while any of its
// attempts under that key is unanswered.
func (t task) keeps() bool {
	work := t.work()
	return work.State == projections.Expired || work.Doubtful || !compensation.Spent(work, t.def) || slices.Contains(unanswered, work.Error.Code)
}

// unanswered are the codes of attempts that failed without an error of their agent: it
// was not asked, or did what it was asked for and said so in a reply that was no good.
var unanswered = []string{requestRefused, queueExpired, events.EventRefused, badExpression, events.OutputRefused, events.ReplyTooLarge}

// skippable are the states in which nobody works on a step that is to be done.
var skippable = []projections.StepState{projections.NotStarted, projections.Sleeping, projections.Listening, projections.Repeating}

// skip passes over a step, or over its undo while the order is compensated.
func (d *decider) skip(c *events.Command, act events.Event) (refusal string) {
	if d.flow == nil {
		return "its workflow is not registered any more; register it again first"
	}
	if c.Step == "" {
		return "no step is named; its steps are " + d.stepNames()
	}
	i := d.flow.Index(c.Step)
	if i < 0 {
		return fmt.Sprintf("the order has no step %q; its steps are %s", Cut(c.Step, MaxName), d.stepNames())
	}
	t := d.wanted(i)
	if work := t.work(); t.def.Approve != nil && !t.undo {
		return fmt.Sprintf("%v is not passed over: people decide it (waybill order decide %s)", t, quote(d.order.ID))
	} else if work.Passed {
		return fmt.Sprintf("the order went on without %v already", t)
	} else if !slices.Contains(skippable, work.State) && !work.Broken() {
		return fmt.Sprintf("%v is %s; only what has not begun, has failed, sleeps, listens or waits to be repeated can be skipped", t, work.State)
	}
	act.Type, act.Step, act.LockedBy = t.skipped, c.Step, d.lock()
	if t.undo {
		if !t.kind.hasUndo(t.def) || !t.step.Ran() {
			return fmt.Sprintf("step %s is not to be undone", c.Step)
		}
	} else {
		act.Output = c.Output
	}
	if why := d.try(&act); why != "" {
		return "the output cannot be recorded: " + why
	}
	d.advance()
	return ""
}

// goOn decides what follows the attempts that failed during a pause: first
// those with nothing left to try, since nothing else begins beside them. What the order can do
// without was passed over then, unless its workflow was gone.
func (d *decider) goOn() {
	for i := range d.order.Steps {
		if t := d.wanted(i); t.work().Broken() && d.passes(t) {
			d.pass(t)
		}
	}
	for _, spent := range []bool{true, false} {
		for i := range d.order.Steps {
			t := d.wanted(i)
			if w := t.work(); d.flow != nil && w.Broken() && compensation.Spent(w, t.def) == spent && w.Due.IsZero() {
				d.repair(t)
			}
		}
	}
	d.advance()
}

// action tells an operator what can be done about an order in Error.
func (d *decider) action(step string) string {
	id, skip := quote(d.order.ID), ""
	if s := d.order.Step(step); s != nil && (d.flow == nil || d.flow.Steps[place(d.order, s.Known())].Approve == nil) {
		skip = fmt.Sprintf("; or pass over it: waybill order skip-step %s --step %s", id, step)
	}
	again := "waybill order resubmit " + id + d.keeping()
	if d.order.Toward != "" {
		return fmt.Sprintf("repair the cause, then ask for the undo again: %s%s, which leaves it not undone", again, cmp.Or(skip, fmt.Sprintf("; or pass over one: waybill order skip-step %s --step STEP", id)))
	}
	return fmt.Sprintf("repair the cause, then: %s%s; or undo what was done: waybill order cancel %s", again, skip, id)
}

// keeping tells an operator what would keep its idempotency key, and what would get
// another though it may have run.
func (d *decider) keeping() string {
	if d.env.Format < events.KeysFormat {
		return ""
	}
	var act events.Event
	_ = d.keys(&act, false) // with too many keys it is refused, and says so
	var says []string
	if act.Kept != nil {
		says = append(says, d.of(act.Kept, "keeps its idempotency key; --new-key forces a new one", "keep their idempotency keys; --new-key forces new ones"))
	}
	if act.MayHaveRun != nil {
		says = append(says, d.of(act.MayHaveRun, "may have run, and gets another idempotency key; --same-key keeps it", "may have run, and get other idempotency keys; --same-key keeps them"))
	}
	if says == nil {
		return ""
	}
	return " (" + strings.Join(says, "; ") + ")"
}

// of says something of a step, or of several; of their undos while the order is compensated.
func (d *decider) of(names []string, one, several string) string {
	undo, undos := "", ""
	if d.order.Toward != "" {
		undo, undos = "the undo of ", "the undos of "
	}
	all := Cut(strings.Join(names, ", "), MaxText/4)
	if len(names) > 1 {
		return fmt.Sprintf("%ssteps %s %s", undos, all, several)
	}
	return fmt.Sprintf("%sstep %s %s", undo, all, one)
}

func (d *decider) stepNames() string {
	names := make([]string, len(d.order.Steps))
	for i := range d.order.Steps {
		names[i] = d.order.Steps[i].Name
	}
	return Cut(strings.Join(names, ", "), MaxText/2)
}
