package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/events/spans"
	"github.com/waybill-dev/waybill/orchestrator/decide"
	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
)

// Context is what the sender of a submission has passed on with the messages about its order: W3C Trace Context and W3C
// Baggage, as they came. What is none, or longer than W3C asks for, is left out.
type Context struct{ Traceparent, Tracestate, Baggage string }

// Submit puts a submission on the orders topic, and returns once Kafka has it.
// The order is accepted or rejected by whoever owns its partition. An empty id
// asks for a new one. The result is the order's id. Where it is known who submits, that is signed, if
// the namespace has keys. It fails with [ErrBehind] while
// too much waits for that owner, and with [ErrTaken] where this instance knows that
// the id is another submission's, and with [ErrOwnID].
func (i *Instance) Submit(ctx context.Context, id string, s *events.Submission, passed Context, actor *events.Actor) (string, error) {
	if id == "" {
		fresh, err := events.NewOrderID()
		if err != nil {
			return "", err
		}
		id = fresh
	}
	if err := events.CheckOrderID(id); err != nil {
		return "", err
	}
	if len(s.Labels) > 0 { // a release of before would accept the order without them
		if err := i.written(ctx, events.LabelsFormat); err != nil {
			return "", fmt.Errorf("labels: %w", err)
		}
	}
	if s.RerunOf != "" { // it would accept it as an order of its own
		if err := i.written(ctx, events.RerunFormat); err != nil {
			return "", fmt.Errorf("rerunOf: %w", err)
		}
	}
	value, err := s.Encode()
	if err != nil {
		return "", fmt.Errorf("encode the submission: %w", err)
	}
	if len(value) > events.MaxValue {
		return "", fmt.Errorf("the submission has %d bytes; at most %d are allowed", len(value), events.MaxValue)
	}
	switch o, _, err := i.Order(id); {
	case events.IsCorrelation(id), events.IsPlaces(id):
		return "", fmt.Errorf("%q: %w", id, ErrOwnID)
	case err == nil && decide.Conflicts(o, s):
		return "", fmt.Errorf("%w: there is an order %q", ErrTaken, id)
	case errors.Is(err, projections.ErrForgotten):
		return "", err
	case !events.OwnID(id): // of one that is there it is a repeat
	case errors.Is(err, projections.ErrNotFound):
		return "", fmt.Errorf("%q: %w", id, ErrOwnID)
	case err != nil:
		return "", err
	}
	if err := i.backlog.check(i.Partition(id)); err != nil {
		return "", err
	}
	envelope := events.Envelope{
		Source: i.source(), Type: events.OrderSubmitted,
		ID: uuid.NewString(), Order: id, Time: now(),
		Traceparent: passed.Traceparent, Tracestate: spans.State(passed.Traceparent, passed.Tracestate), Baggage: spans.Baggage(passed.Baggage),
	}
	i.sign(&envelope, value, actor)
	r := envelope.Record(i.topics.Orders, value)
	if err := i.put(ctx, r); err != nil {
		return "", fmt.Errorf("submit order %q: %w", id, err)
	}
	i.backlog.took(r.Partition, r.Offset, id)
	return id, nil
}

// ErrUnfit says that a submission will be rejected, whoever decides on it. The error around it says why.
var ErrUnfit = errors.New("it would be rejected")

// Admits fails with [ErrUnfit] if a submission that has not made an order is sure to be rejected, because its workflow is not
// registered, or takes no such input, up to the end of the workflows topic. It fails with the context's error if that
// cannot be read in time. What else becomes of it is decided by whoever owns its partition.
func (i *Instance) Admits(ctx context.Context, id string, s *events.Submission) error {
	if _, _, err := i.Order(id); err == nil || errors.Is(err, projections.ErrForgotten) || errors.Is(err, ErrUnknownYet) {
		return nil // it may be a repeat, of before the workflow was as it is
	}
	if i.unfit(id, s) == nil {
		return nil
	}
	if err := i.catalogue.sought(ctx); err != nil {
		return err
	}
	if why := i.unfit(id, s); why != nil {
		return fmt.Errorf("%w: %w", ErrUnfit, why)
	}
	return nil
}

// unfit says why a submission cannot be accepted, as far as the workflows are known here.
func (i *Instance) unfit(id string, s *events.Submission) error {
	flow := i.catalogue.find(s.Workflow, s.Version)
	switch {
	case flow == nil && (i.catalogue.isNewer(s.Workflow, s.Version) > 0 || i.catalogue.retired(s.Workflow, s.Version)):
		return nil // others know it, or it may be a repeat
	case flow == nil:
		return decide.Unregistered(s)
	case s.Version == 0 && !i.members.serves(i.Partition(id)):
		return nil // it may be a repeat of what an earlier version took, of which is not known here yet
	}
	return flow.CheckInput(s.Input)
}

// ErrTaken says that an order of this id is there, and was made by a submission that
// says something else.
var ErrTaken = errors.New("the id is that of another submission")

// ErrOwnID says that no submission makes an order of this id.
var ErrOwnID = errors.New("ids that begin with " + events.ChildPrefix + " are those of orders that Waybill itself makes")

// source is the ce_source of what this instance writes for a caller of the API.
func (i *Instance) source() string { return i.topics.Source() + "/api" }

// put puts an input into the partition of its order, however many its topic has.
func (i *Instance) put(ctx context.Context, r *kgo.Record) error {
	r.Partition = i.Partition(string(r.Key))
	return i.intake.put(ctx, r)
}

// wasRead says whether a submission was; where others own the partition, and it is not
// known here, it was. The position in the journal is before what is parked: behind that the
// partition's lane knows better, and where it is not here, the order is known.
func (i *Instance) wasRead(partition int32, m mark) (bool, error) {
	unknown := !i.knew(partition) && i.members.others(partition)
	if unknown || slices.Contains(i.Elsewhere(), partition) || m.offset < i.members.ordersRead(partition) {
		return true, nil
	}
	head, err := i.store.Head(partition)
	if err != nil || m.offset < head.Next.At(events.InputOrders) {
		return err == nil, err
	}
	_, _, err = i.store.Order(partition, m.order)
	if errors.Is(err, projections.ErrNotFound) || errors.Is(err, projections.ErrForgotten) {
		return false, nil
	}
	return err == nil, err
}

// produceTimeout is how long Kafka may take to acknowledge a record.
const produceTimeout = 30 * time.Second

// produce puts a record on Kafka. Once ctx has ended, or after the
// [produceTimeout], it returns the context's error, and the record may be on
// Kafka or still get there. kgo would wait for the answer to what it has sent as
// long as Kafka is silent.
func produce(ctx context.Context, client *kgo.Client, r *kgo.Record) error {
	ctx, cancel := context.WithTimeout(ctx, produceTimeout)
	defer cancel()
	answered := make(chan error, 1)
	client.Produce(ctx, r, func(_ *kgo.Record, err error) { answered <- err })
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ErrTopic says that a step emits to a topic to which no step of this instance may, or has the order that does
// it tell its status there.
var ErrTopic = errors.New("a step names a topic to which it may not write")

// Register registers a workflow, and creates the request topics of the agents
// that it names. Doing it again with the same content changes nothing; another
// content fails with [ErrConflict], one whose steps orders of others do that are not there, or that
// would have orders begin others for ever, with [workflow.ErrChild], one whose steps name a topic to which
// they may not write, with [ErrTopic], and one that uses what an older release in the
// group does not know, or what is not written before the upgrade is finished, with
// [ErrOlderRelease]. While members join or leave, or partitions rise, it waits for
// ten seconds.
func (i *Instance) Register(ctx context.Context, flow *workflow.Workflow) error {
	for _, topic := range flow.Topics() {
		if why := decide.RefusesEvent(&i.topics, i.cfg.ReplyTopics, topic); why != "" {
			return fmt.Errorf("register workflow %s: %w: %s", flow.ID(), ErrTopic, why)
		}
	}
	for _, topic := range flow.ReplyTopics() {
		if why := decide.RefusesStatus(&i.topics, i.cfg.ReplyTopics, topic); why != "" {
			return fmt.Errorf("register workflow %s: %w: %s", flow.ID(), ErrTopic, why)
		}
	}
	if err := i.spoken(ctx, i.catalogue.level(flow)); err != nil {
		return fmt.Errorf("register workflow %s: %w", flow.ID(), err)
	}
	if err := i.written(ctx, flow.Format()); err != nil {
		return fmt.Errorf("register workflow %s: %w", flow.ID(), err)
	}
	if err := createRequestTopics(ctx, i.admin, &i.topics, i.partitions, flow.Agents()); err != nil {
		return err
	}
	for _, agent := range flow.Agents() {
		i.directory.refresh(i.topics.Requests(agent))
	}
	return i.catalogue.register(ctx, flow)
}

// Retire has no new order begin with a version of a workflow, or, if it is not to be retired, ends
// that. Orders that have it go on. It fails with [ErrUnknownWorkflow], and with [ErrOlderRelease]
// before the upgrade is finished: a release of before takes no notice.
func (i *Instance) Retire(ctx context.Context, name string, version int, retired bool) error {
	if err := i.written(ctx, events.RetireFormat); err != nil {
		return fmt.Errorf("retire workflow %s: %w", workflow.ID(name, version), err)
	}
	return i.catalogue.retire(ctx, name, version, retired)
}

// Retired says that nothing new begins with a version of a workflow, as far as this instance has read.
func (i *Instance) Retired(name string, version int) bool { return i.catalogue.retired(name, version) }

// spoken fails with [ErrOlderRelease] if a member of the group does not run workflows
// of this level of the language: it would own orders that it cannot read.
func (i *Instance) spoken(ctx context.Context, level int) error {
	if level <= firstDialect.Language {
		return nil
	}
	all, err := i.group.settled(ctx)
	if err != nil {
		return err
	}
	return allSpeak(all, fmt.Sprintf("level %d of the workflow language", level), func(d *Dialect) bool { return d.Language >= level })
}

// ErrRefused says that an operator's command could not be done; the error
// around it says why.
var ErrRefused = errors.New("refused")

// ErrNoOutcome says that a command is on Kafka, will be acted on, and that it is not known
// what became of it. The error around it says why.
var ErrNoOutcome = errors.New("the command is on Kafka, and what became of it is not known yet")

// Command puts an operator's command on Kafka, and returns nil once the order's
// owner did it; of [events.CommandApply] there need be no schedule, or limit, yet. It gives the command an id if it has none. Where it is known who gave it, it is
// signed, if the namespace has keys. It fails with
// [ErrRefused] when the owner refused it, with [projections.ErrNotFound] when
// there is no order of this id, with [ErrElsewhere] and [ErrUnknownYet] when this
// instance cannot know, and with [ErrNoOutcome] when the outcome is not known in time. With
// the context's error alone the command may be on Kafka, and is then acted on.
func (i *Instance) Command(ctx context.Context, id string, c *events.Command, actor *events.Actor) error {
	o, _, err := i.Order(id)
	if appliesTo(c, id) {
		what, format := "schedules", events.SchedulesFormat
		if c.Limit != nil {
			what, format = "limits", events.LimitsFormat
		}
		if err := i.written(ctx, format); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if errors.Is(err, projections.ErrNotFound) {
			o, err = new(projections.Order), nil
		}
	}
	if err != nil {
		return err
	}
	if c.ToVersion > 0 { // a release of before would resubmit the order as it is
		if err := i.written(ctx, events.MigrateFormat); err != nil {
			return fmt.Errorf("another version: %w", err)
		}
	}
	if c.ID == "" {
		c.ID = uuid.NewString()
	}
	if len(c.ID) > decide.MaxName {
		return fmt.Errorf("the command's id has %d bytes; at most %d are allowed", len(c.ID), decide.MaxName)
	}
	value, err := c.Encode()
	if err != nil {
		return fmt.Errorf("encode the command: %w", err)
	}
	if len(value) > events.MaxValue {
		return fmt.Errorf("the command has %d bytes; at most %d are allowed", len(value), events.MaxValue)
	}
	envelope := events.Envelope{Source: i.topics.Source() + "/operators", Type: events.OrderCommand, ID: c.ID, Order: id, Time: now()}
	i.sign(&envelope, value, actor)
	r := envelope.Record(i.topics.Commands, value)
	if err := i.put(ctx, r); err != nil {
		return fmt.Errorf("put the command for order %q on Kafka: %w", id, err)
	}
	err = i.outcome(ctx, r, id, c, o)
	if err != nil && !errors.Is(err, ErrRefused) {
		err = fmt.Errorf("%w: %w", ErrNoOutcome, err)
	}
	return err
}

// appliesTo says that a command may begin a schedule, or a limit.
func appliesTo(c *events.Command, id string) bool {
	return c.Command == events.CommandApply && (events.ScheduleOf(id) != "" || events.LimitOf(id) != "")
}

// sign says in an envelope who is the author of what it is around, if that is known, and the
// namespace has keys.
func (i *Instance) sign(envelope *events.Envelope, value []byte, actor *events.Actor) {
	if actor == nil || i.cfg.Keys == nil || !i.proves() {
		return
	}
	signed := *actor
	signed.At = envelope.Time
	if header := i.cfg.Keys().Sign(i.topics.Namespace, envelope.Order, value, &signed); header != nil {
		envelope.Extra = []events.RawHeader{{Key: events.HeaderActor, Value: header}}
	}
}

// outcome waits for what becomes of a command that is on Kafka as r, o being the order
// before. It returns nil once it was done.
func (i *Instance) outcome(ctx context.Context, r *kgo.Record, id string, c *events.Command, o *projections.Order) error {
	first, last, before := o.Command, o.Command, o.Seq
	for wait := time.Millisecond; pause(ctx, wait); wait = min(2*wait, 100*time.Millisecond) {
		head, err := i.store.Head(r.Partition)
		if err != nil {
			return err
		}
		read := head.Next.At(events.InputCommands) > r.Offset
		o, _, err := i.Order(id)
		if appliesTo(c, id) && errors.Is(err, projections.ErrNotFound) {
			if read {
				return refusedFor("it was put aside; its dead letter says why")
			}
			continue
		}
		if err != nil {
			return err
		}
		switch {
		case o.Command == c.ID && (read || first != c.ID): // else what it says may be of the one before
			return refusedFor(o.Refusal)
		case read && acted(o, c.ID): // it did when it came before
			before = 0
		case o.Command == last && read && o.Refused >= decide.MaxVoid:
			return refusedFor(fmt.Sprintf("it cannot be done; the order has refused %d commands, and says of no other why", o.Refused))
		case o.Command == last:
			continue
		}
		// Another command came in between: ours may be before it.
		last = o.Command
		found, err := i.find(ctx, id, before, func(e *events.Event) bool { return e.Command == c.ID })
		if err != nil {
			return err
		}
		switch {
		case found == nil:
		case found.Type == events.CommandRefused:
			return refusedFor(found.Reason)
		default:
			return nil
		}
	}
	return ctx.Err()
}

func acted(o *projections.Order, id string) bool {
	_, found := o.Acted(id)
	return found
}

// find looks for an event among those of an order behind a number, nil if it is not there.
func (i *Instance) find(ctx context.Context, id string, after uint64, is func(*events.Event) bool) (*events.Event, error) {
	for {
		page, err := i.History(ctx, id, after, MaxHistory)
		if err != nil {
			return nil, err
		}
		for n := range page.Events {
			if e := &page.Events[n]; is(e) {
				return e, nil
			}
		}
		if after = page.Next; after == 0 {
			return nil, nil
		}
	}
}

// ErrNotOwner says that only the owner of a partition can do what is asked.
var ErrNotOwner = errors.New("another instance owns partition")

// SkipLost has a partition of this instance go on behind inputs that were lost, and
// records who had that done, and why. It fails with [ErrRefused] where none were, and
// with [ErrNotOwner].
func (i *Instance) SkipLost(ctx context.Context, p int32, by lane.Author, why string) error {
	if !slices.Contains(i.members.all(), p) {
		heads, err := i.store.Heads(i.partitions)
		if err != nil {
			return err
		}
		ask := "ask that one"
		if address := i.owners.of(p); address != "" {
			ask += " at " + address
		}
		return fmt.Errorf("%w %d; as far as is known here it is %q: %s", ErrNotOwner, p, heads[p].Owner, ask)
	}
	err := i.members.skips(ctx, p, by, why)
	if errors.Is(err, lane.ErrNothingLost) {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return err
}

func refusedFor(why string) error {
	if why == "" {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrRefused, why)
}
