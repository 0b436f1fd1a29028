package decide

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
)

// Migration is what becomes of an order that goes on as one of another version of its workflow, and what
// forbids it. Nothing has happened yet.
type Migration struct {
	From, To int
	// Forbids is why the order cannot migrate, each reason on its own; empty if it can.
	Forbids []Obstacle
	// Steps are all that the order has from then on. Renamed has what steps are called now, by the names that they have in the other version. Renewed
	// are those that failed, and are asked for something else there, under a new idempotency key; New
	// those that the order does not have yet, and Dropped those that it has, and nobody was asked for.
	Renamed               map[string]string
	Steps                 []string
	Renewed, New, Dropped []string
	// Changed are those that go on, or have not begun, and are defined otherwise there: what follows of them is.
	Changed []string
	// Deadline is the order's from then on, zero for none.
	Deadline time.Time

	flow  *workflow.Workflow // that of To, nil if there is none
	names map[string]string  // what steps are called there, by the names that they have now
}

// Obstacle is a reason why an order cannot migrate. Step is as the order calls it now, or "" where it is
// about the order.
type Obstacle struct{ Step, Reason string }

func (o Obstacle) String() string {
	if o.Step == "" {
		return o.Reason
	}
	return fmt.Sprintf("step %s: %s", o.Step, o.Reason)
}

// Migrate compares an order with another version of its workflow. Steps whose names are not in names keep
// theirs. It looks at nothing but the order and the two definitions, so what it says before the act is
// what the order's owner decides by.
func Migrate(env *Env, o *projections.Order, version int, names map[string]string) *Migration {
	m := &Migration{From: o.Version, To: version}
	id := workflow.ID(o.Workflow, version)
	m.flow = env.Workflow(o.Workflow, version)
	switch {
	case env.Format < events.MigrateFormat:
		m.forbid("", "orders migrate from format %d on, and the partition is of format %d: finish the upgrade (waybill upgrade finish), and send the command again", events.MigrateFormat, env.Format)
	case o.State.Final():
		m.forbid("", "the order has ended: it is %s", o.State)
	case o.Hold != nil:
		m.forbid("", "the order is held, and nothing is done to it before its release: waybill order release %s", quote(o.ID))
	case o.Toward != "":
		m.forbid("", "what was done is being undone, as version %d says", o.Version)
	case o.Failure != nil:
		m.forbid("", "step %s raised a failure, and nothing starts any more", o.Failure.Step)
	case version < 1:
		m.forbid("", "no version is named; say as one of which version the order is to go on (toVersion, --to)")
	case version == o.Version:
		m.forbid("", "the order is of version %d already", version)
	case env.Newer != nil && env.Newer(o.Workflow, version) > 0:
		m.forbid("", "workflow %s is in level %d of the language, which is not run here: finish the upgrade, and send the command again", id, env.Newer(o.Workflow, version))
	case m.flow == nil:
		m.forbid("", "workflow %s is not registered", id)
	case env.Retired != nil && env.Retired(o.Workflow, version):
		m.forbid("", "workflow %s is retired, and nothing begins with it; restore it first, or name another version", id)
	default:
		from := env.Workflow(o.Workflow, o.Version)
		if from == nil {
			m.forbid("", "workflow %s is not registered any more, and nobody can tell what changes; register it again first", workflow.ID(o.Workflow, o.Version))
			break
		}
		m.compare(env, o, from, names)
	}
	return m
}

func (m *Migration) forbid(step, format string, args ...any) {
	m.Forbids = append(m.Forbids, Obstacle{step, fmt.Sprintf(format, args...)})
}

// compare says what becomes of each step, and of the order.
func (m *Migration) compare(env *Env, o *projections.Order, from *workflow.Workflow, names map[string]string) {
	m.Steps = stepsOf(m.flow)
	m.rename(o, names)
	known := make(map[string]string) // by which name which step of the other version is known
	kept := make(map[string]bool)
	for i := range m.flow.Steps {
		def := &m.flow.Steps[i]
		s := projections.Before(o.Steps, m.Renamed, def.Name)
		as := def.Name
		if s == nil {
			m.New = append(m.New, def.Name)
		} else {
			kept[s.Name] = true
			was, is := from.Step(s.Name)
			if is && !s.Fresh() {
				as = s.Known()
				m.step(o, s, was, def)
			}
			if is && follows(s, def) && !slices.Contains(m.Renewed, def.Name) && defined(was, m.names) != defined(def, nil) {
				m.Changed = append(m.Changed, def.Name)
			}
		}
		if other, taken := known[as]; taken {
			m.forbid("", "steps %s and %s of version %d would both be known to agents as %s, under which one of them was asked for; give the other another name", other, def.Name, m.To, as)
		}
		known[as] = def.Name
	}
	for i := range o.Steps {
		switch s := &o.Steps[i]; {
		case kept[s.Name]:
		case s.Gone():
			m.Dropped = append(m.Dropped, s.Name)
		default:
			m.forbid(s.Name, "it has begun (it is %s), and version %d has no step of that name; say what it is called there (map, --map %s=NAME)", s.State, m.To, s.Name)
		}
	}
	m.order(env, o, from)
}

// rename reads what steps are called in the other version.
func (m *Migration) rename(o *projections.Order, names map[string]string) {
	for _, old := range slices.Sorted(maps.Keys(names)) {
		name := names[old]
		other, taken := m.Renamed[name]
		switch {
		case o.Step(old) == nil:
			m.forbid("", "the order has no step %q that could be called %q", Cut(old, MaxName), Cut(name, MaxName))
		case m.flow.Index(name) < 0:
			m.forbid(old, "version %d has no step %q", m.To, Cut(name, MaxName))
		case taken:
			m.forbid(old, "step %s is to be called %s, too", other, name)
		case old != name:
			if m.Renamed == nil {
				m.Renamed, m.names = make(map[string]string), make(map[string]string)
			}
			m.Renamed[name] = old
			m.names[old] = name
		}
	}
}

// step says what forbids that one which has begun goes on as the other version defines it, or that it is
// renewed.
func (m *Migration) step(o *projections.Order, s *projections.Step, was, is *workflow.Step) {
	if s.Gone() { // it was skipped, and stays so
		return
	}
	for _, name := range is.After {
		if before := projections.Before(o.Steps, m.Renamed, name); before == nil || !before.Over() {
			m.forbid(s.Name, "it has begun, and comes after step %s in version %d, which is not done", name, m.To)
		}
	}
	if before, now := does(was), does(is); before != now {
		m.forbid(s.Name, "it has begun, and %s; in version %d it %s", before, m.To, now)
		return
	}
	if s.Ran() || !s.Over() {
		if before, now := undo(was, m.names), undo(is, nil); before != now {
			m.forbid(s.Name, "its undo changes: it is %s, and in version %d %s", before, m.To, now)
		}
	}
	if s.Over() || s.State.Idle() {
		return
	}
	before, now := asksFor(was, m.names), asksFor(is, nil)
	switch {
	case before == now && called(given(was), m.names) == called(given(is), nil):
	case s.State != projections.Running && s.State != projections.Repeating && !s.Ran():
		m.Renewed = append(m.Renewed, is.Name)
		return
	case before != now && s.State == projections.Running:
		m.forbid(s.Name, "it is %s: it is %s, and in version %d %s; wait until it is done", s.State, before, m.To, now)
	case before != now:
		m.forbid(s.Name, "it is %s, and nobody can say that it did not run; it is %s, and in version %d %s: pass over it first (waybill order skip-step %s --step %s)", s.State, before, m.To, now, quote(o.ID), s.Name)
	}
	if given(is) != nil && s.Input == nil && o.Input == nil {
		m.forbid(s.Name, "it is %s, and was asked for with no input, and version %d gives it one: wait until it is done", s.State, m.To)
	}
	if s.State == projections.Repeating && is.Repeat == nil {
		m.forbid(s.Name, "it is to be done again until something holds, and in version %d it is done once", m.To)
	}
}

// follows says that something is still to become of a step as it is defined: it has not begun, or goes on, or
// may be undone.
func follows(s *projections.Step, def *workflow.Step) bool {
	switch {
	case s.State == projections.NotStarted:
		return true
	case s.Over():
		return s.Ran() && hasUndo(def)
	}
	return !s.State.Idle()
}

// defined is all that a workflow says of a step. Names has what steps are called.
func defined(s *workflow.Step, names map[string]string) string {
	def := *s
	def.After = slices.Clone(s.After)
	for i, name := range def.After {
		def.After[i] = cmp.Or(names[name], name)
	}
	slices.Sort(def.After)
	return renamed(string(def.Definition()), names)
}

// does is what a step of its kind does.
func does(s *workflow.Step) string {
	switch {
	case s.Sleep != nil:
		return "sleeps"
	case s.Listen != nil:
		return "listens for signals"
	case s.Approve != nil:
		return "asks people"
	case s.Order != nil:
		return "is done by another order"
	case s.Each != nil && s.Each.Pages != nil:
		return "is done for each item that an agent lists"
	case s.Each != nil:
		return "is done for each item of a list"
	case s.Emit != nil:
		return "emits an event"
	case s.Raise != nil:
		return "raises a failure"
	}
	return "asks an agent"
}

// undo is how a step is undone. Names has what the steps that its expression looks at are called.
func undo(s *workflow.Step, names map[string]string) string {
	switch {
	case !hasUndo(s):
		return "none"
	case s.Order != nil:
		return "that of the order that does it"
	case s.Each != nil:
		return "that of the orders that do its items"
	case s.UndoWith != nil:
		return fmt.Sprintf("%s of agent %s with %s", s.Undo, s.Agent, called(s.UndoWith, names))
	}
	return fmt.Sprintf("%s of agent %s", s.Undo, s.Agent)
}

// asksFor is what is asked for in an attempt of a step, but for what it works on.
func asksFor(s *workflow.Step, names map[string]string) string {
	switch {
	case s.Order != nil && s.Order.Version > 0:
		return "an order of " + workflow.ID(s.Order.Workflow, s.Order.Version)
	case s.Order != nil:
		return "an order of " + s.Order.Workflow
	case s.Each != nil: // those that run go on, and those that failed are done anew as the other version says
		return "an order for each item"
	case s.Emit != nil:
		return strings.TrimSpace(fmt.Sprintf("event %s on topic %s %s", s.Emit.Type, s.Emit.Topic, called(s.Emit.Key, names)))
	}
	return fmt.Sprintf("%s of agent %s", s.Do, s.Agent)
}

// given is what an attempt works on, nil where that is the order's input.
func given(s *workflow.Step) *workflow.Expression {
	if s.Emit != nil {
		return s.Emit.Data
	}
	return s.With
}

// called is the text of an expression, in which steps are called by the names that they get; "" of none.
func called(e *workflow.Expression, names map[string]string) string {
	if e == nil {
		return ""
	}
	return renamed(e.String(), names)
}

// renamed is a text, of an expression or with such in JSON, in which steps are called by the names that they get.
func renamed(text string, names map[string]string) string {
	return stepInText.ReplaceAllStringFunc(text, func(text string) string {
		part := stepInText.FindStringSubmatch(text)
		if name, is := names[part[2]]; is {
			return part[1] + name + part[3]
		}
		return text
	})
}

// stepInText is how an expression names a step.
var stepInText = regexp.MustCompile(`(\bsteps\s*(?:\.\s*|\[\s*\\?["']))([a-z0-9_-]+)(\\?["']?)`)

// order says what the other version makes of the order as a whole. What a submission or an operator said
// stays: only a deadline that is the workflow's own is that of the other version.
func (m *Migration) order(env *Env, o *projections.Order, from *workflow.Workflow) {
	m.Deadline = o.Deadline
	own := time.Time{}
	if from.Deadline > 0 {
		own = events.Time(o.AcceptedAt.Add(from.Deadline))
	}
	if o.Deadline.Equal(own) {
		m.Deadline = time.Time{}
		if m.flow.Deadline > 0 {
			m.Deadline = events.Time(o.AcceptedAt.Add(m.flow.Deadline))
		}
		if o.Parent != nil && !own.IsZero() && (m.Deadline.IsZero() || own.Before(m.Deadline)) { // it may be the parent's
			m.Deadline = own
		}
	}
	if at := m.Deadline; !at.Equal(o.Deadline) && o.State != projections.Error {
		switch {
		case env.uncertain(at):
			m.forbid("", "whether its deadline in version %d, %s, has passed is not known while the clocks of instance %s and of Kafka differ; send the command again when the clock is right", m.To, events.AppendTime(nil, at), env.Instance)
		case !at.IsZero() && !env.Now.Before(at):
			m.forbid("", "its deadline in version %d, %s, has passed; give it one of its own first (waybill order change %s --deadline)", m.To, events.AppendTime(nil, at), quote(o.ID))
		}
	}
	if m.flow.CheckInput(o.Input) != nil { // what is wrong with it is for who may read it
		m.forbid("", "version %d does not take its input: see its schema (waybill workflow show %s)", m.To, m.flow.ID())
	}
	taken := func(mark workflow.Mark) bool {
		_, has := o.Labels[mark.Name]
		return has && !from.Marks(mark.Name)
	}
	if slices.ContainsFunc(m.flow.Search, taken) { // which one is for who may read it, too
		m.forbid("", "a label of it has the name of a value of the input by which version %d finds its orders: see its search (waybill workflow show %s); remove the label first", m.To, m.flow.ID())
	}
}

// migrate has the order go on as one of another version of its workflow, or says what forbids it.
func (d *decider) migrate(c *events.Command, act events.Event) (refusal string) {
	if refusal = d.become(c, act); refusal == "" {
		d.advance()
	}
	return refusal
}

// become records that the order is of another version from here on.
func (d *decider) become(c *events.Command, act events.Event) (refusal string) {
	o := d.order
	m := Migrate(d.env, o, c.ToVersion, c.Map)
	if len(m.Forbids) > 0 {
		reasons := make([]string, len(m.Forbids))
		for i, why := range m.Forbids {
			reasons[i] = why.String()
		}
		return strings.Join(reasons, "; ")
	}
	before := d.flow
	act.Type, act.From, act.Version = events.OrderMigrated, m.From, m.To
	act.Steps, act.Renamed, act.Renewed, act.Deadline, act.Keep = m.Steps, m.Renamed, m.Renewed, m.Deadline, d.env.keep(m.flow)
	d.flow = m.flow
	act.Pinned = d.pinned()
	for name, version := range o.Pinned { // what is pinned stays so
		if act.Pinned == nil {
			act.Pinned = make(map[string]int64)
		}
		act.Pinned[name] = version
	}
	act.Labels = d.relabelled(before)
	if why := d.try(&act); why != "" {
		d.flow = before
		return "it cannot be recorded: " + why
	}
	d.was = before
	return ""
}

// relabelled are the labels of the order, with what its workflow makes of the input in place of what that
// of before did.
func (d *decider) relabelled(before *workflow.Workflow) map[string]string {
	s := events.Submission{Input: d.order.Input, Labels: maps.Clone(d.order.Labels)}
	maps.DeleteFunc(s.Labels, func(name, _ string) bool { return before.Marks(name) })
	return d.labels(&s)
}

// resubmitAs resubmits the order, as one of another version if that is wanted: both, or neither.
func (d *decider) resubmitAs(c *events.Command, act events.Event) (refusal string) {
	if c.ToVersion == 0 {
		return d.resubmit(c, act)
	}
	if d.order.State != projections.Error {
		return fmt.Sprintf("the order is %s; only an order in Error can be resubmitted, and another migrates (waybill order migrate %s --to %d)", d.order.State, quote(d.order.ID), c.ToVersion)
	}
	as := *d
	as.order = d.order.Clone()
	migration := act
	migration.Operation = events.CommandResubmit
	if refusal = as.become(c, migration); refusal == "" {
		refusal = as.resubmit(c, act)
	}
	if refusal != "" {
		return fmt.Sprintf("as one of version %d: %s", c.ToVersion, refusal)
	}
	*d = as
	return ""
}
