package orchestrator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/events/fetch"
	"github.com/waybill-dev/waybill/orchestrator/cluster"
	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

// catalogue is what an instance knows of the workflows topic. It reads the
// topic from its beginning and goes on as long as the instance runs.
type catalogue struct {
	topics *events.Topics
	kafka  []kgo.Opt
	client *kgo.Client
	admin  *kadm.Client
	log    *slog.Logger
	// fetched bounds what the client reads.
	fetched fetch.Bound
	// instance is whose it is.
	instance string
	// meters have labels of the names in the order in which these were registered, which is the same for all instances.
	meters *lane.Meters
	// level is the level of the language that a definition needs.
	level func(*workflow.Workflow) int
	// alarm calls an operator to a topic that cannot be read on, and says whether Kafka has
	// it. Patience is after how long that is done where somebody waits for its end.
	alarm    func(ctx context.Context, why error) bool
	patience time.Duration

	mu      sync.Mutex
	flows   workflow.Set
	newer   map[string]int // level, by id, of those that this release cannot run
	latest  map[string]int // the highest version of these that is not retired, by name; 0 if all are
	read    int64          // next offset of the topic
	asked   uint64         // questions what the topic has, up to its end
	found   uint64         // those that were answered
	asks    chan struct{}  // has one, if there is a question
	changed chan struct{}  // closed and replaced whenever read or found moves
}

func newCatalogue(opts []kgo.Opt, topics *events.Topics, log *slog.Logger) (*catalogue, error) {
	c := &catalogue{
		topics: topics, kafka: opts, log: log, meters: lane.NewMeters(), level: (*workflow.Workflow).Level, patience: soughtPatience,
		changed: make(chan struct{}), asks: make(chan struct{}, 1), newer: make(map[string]int), latest: make(map[string]int),
	}
	client, err := c.fetched.NewClient(append(opts[:len(opts):len(opts)],
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topics.Workflows: {0: kgo.NewOffset().AtStart()}}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), // so that the position reaches the end
		kgo.FetchMaxWait(time.Second),
		kgo.MetadataMinAge(cluster.MetadataMinAge),
	)...)
	if err != nil {
		return nil, fmt.Errorf("reader of the workflows topic: %w", err)
	}
	c.client, c.admin = client, kadm.NewClient(client)
	return c, nil
}

// run reads until ctx ends.
func (c *catalogue) run(ctx context.Context) {
	defer c.client.Close()
	var alarms sync.WaitGroup
	defer alarms.Wait()
	for {
		fetches := c.fetched.Poll(ctx, 0)
		if ctx.Err() != nil {
			return
		}
		fetches.EachError(func(topic string, _ int32, err error) {
			c.log.Warn("cannot read the workflows", "topic", topic, "error", err)
			if errors.Is(err, kgo.ErrMaxDecompress) { // nothing is read any more: no definition is passed over
				c.alarm(ctx, fmt.Errorf("%s has a batch that cannot be read, and whatever is behind it is not known: %w", topic, err))
			}
		})
		c.mu.Lock()
		before := len(c.newer)
		fetches.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				c.take(r)
			}
			c.read = r.Offset + 1
		})
		close(c.changed)
		c.changed = make(chan struct{})
		newer := slices.Sorted(maps.Keys(c.newer))
		c.mu.Unlock()
		if len(newer) > before {
			alarms.Go(func() {
				c.alarm(ctx, fmt.Errorf("instance %s runs level %d of the workflow language, and %s need a newer one: what comes for their orders waits here until an instance of a newer release owns them; upgrade this one",
					c.instance, workflow.Level, strings.Join(newer[:min(len(newer), 10)], ", ")))
			})
		}
	}
}

// headerLevel is the level of the language that a definition needs, if that is not the
// first: who does not run it cannot read it either.
const headerLevel = "waybill_level"

// takeNewer notes a definition that this release cannot run. It says whether it is one.
func (c *catalogue) takeNewer(r *kgo.Record) bool {
	level, err := strconv.Atoi(events.Header(r, headerLevel))
	name, number, _ := strings.Cut(string(r.Key), "@")
	version, bad := strconv.Atoi(number)
	if err != nil || level <= workflow.Level || bad != nil || version < 1 {
		return false
	}
	c.meters.Workflows.Label(name)
	if id := workflow.ID(name, version); c.flows.Find(name, version) == nil && c.newer[id] == 0 {
		c.newer[id] = level
		c.findLatest(name)
	}
	return true
}

// findLatest finds the latest version of a name that this release cannot run.
func (c *catalogue) findLatest(name string) {
	delete(c.latest, name)
	for id := range c.newer {
		of, number, _ := strings.Cut(id, "@")
		if of != name {
			continue
		}
		version, err := strconv.Atoi(number)
		if err != nil || c.flows.Retired(name, version) {
			version = 0
		}
		c.latest[name] = max(c.latest[name], version)
	}
}

// isNewer is the level of the language of a definition that this release cannot run, 0 for
// any other; version 0 means the newest that is not retired.
func (c *catalogue) isNewer(name string, version int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.newer) == 0 {
		return 0
	}
	name, _, _ = strings.Cut(name, workflow.Inner)
	if version == 0 {
		version = c.latest[name]
		if known := c.flows.Find(name, 0); known != nil && known.Version > version {
			return 0
		}
	}
	return c.newer[workflow.ID(name, version)]
}

// A version is retired by a record of its own, beside that of its definition, which never changes.
// The last one counts.
const retiredKey = "/retired"

type retirement struct {
	Retired bool `json:"retired"`
}

// takeRetired takes a record that retires a version, or ends that. It says whether it is one.
func (c *catalogue) takeRetired(r *kgo.Record) bool {
	id, is := strings.CutSuffix(string(r.Key), retiredKey)
	name, number, _ := strings.Cut(id, "@")
	version, err := strconv.Atoi(number)
	var says retirement
	if !is || err != nil || json.Unmarshal(r.Value, &says) != nil {
		return false
	}
	c.flows.Retire(name, version, says.Retired)
	c.findLatest(name)
	return true
}

// retired says that nothing new begins with a version; with version 0, with none of that name.
func (c *catalogue) retired(name string, version int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if latest, some := c.latest[name]; version == 0 && some && c.flows.Find(name, 0) == nil {
		return latest == 0
	}
	return c.flows.Retired(name, version)
}

// take adds a definition. A version never changes: only the first record of
// one counts, and registration writes no second.
func (c *catalogue) take(r *kgo.Record) {
	if r.Value == nil || c.takeRetired(r) || c.takeNewer(r) {
		return
	}
	flow, err := workflow.Registered(fmt.Sprintf("%s offset %d", r.Topic, r.Offset), r.Value)
	if err != nil || flow.ID() != string(r.Key) {
		c.log.Error("a record on the workflows topic is not a workflow of its key; it is passed over",
			"topic", r.Topic, "offset", r.Offset, "key", string(r.Key), "error", err)
		return
	}
	c.flows.Add(flow)
	for _, name := range flow.Names() {
		c.meters.Workflows.Label(name)
	}
	for _, agent := range flow.Agents() {
		c.meters.Agents.Label(agent)
	}
}

// find returns a definition, version 0 meaning the newest; nil if it is not
// known so far.
func (c *catalogue) find(name string, version int) *workflow.Workflow {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.flows.Find(name, version)
}

// starts returns the definition whose orders a signal starts, nil if none is known so far.
func (c *catalogue) starts(signal string) *workflow.Workflow {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.flows.Starts(signal)
}

// all returns the definitions, by name and version.
func (c *catalogue) all() []*workflow.Workflow {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.flows.All()
}

// agents are those that some visible workflow names, sorted; that is any if it is nil.
func (c *catalogue) agents(visible func(workflow string) bool) (agents []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, flow := range c.flows.All() {
		if visible == nil || visible(flow.Name) {
			agents = append(agents, flow.Agents()...)
		}
	}
	slices.Sort(agents)
	return slices.Compact(agents)
}

// requestTopics returns the queues of all agents that some workflow names.
func (c *catalogue) requestTopics() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	agents := c.flows.Agents()
	topics := make([]string, len(agents))
	for i, agent := range agents {
		topics[i] = c.topics.Requests(agent)
	}
	return topics
}

// catchUpPatience is after how long without progress something is done about it.
const catchUpPatience = 10 * time.Second

// catchUp returns once everything was read that was on the topic when it was
// called.
func (c *catalogue) catchUp(ctx context.Context) error {
	// The end of the log and not the last stable offset, which lags behind it.
	ends, err := c.admin.ListEndOffsets(ctx, c.topics.Workflows)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return fmt.Errorf("find the end of %s: %w", c.topics.Workflows, err)
	}
	end, ok := ends.Lookup(c.topics.Workflows, 0)
	if !ok {
		return fmt.Errorf("topic %s does not exist; run `waybill topics create`", c.topics.Workflows)
	}
	patience := time.NewTicker(catchUpPatience)
	defer patience.Stop()
	for {
		c.mu.Lock()
		read, changed := c.read, c.changed
		c.mu.Unlock()
		if read >= end.Offset {
			return nil
		}
		select {
		case <-changed:
		case <-patience.C:
			if err := c.mend(ctx); err != nil {
				c.log.Warn("the workflows topic cannot be read to its end", "read", read, "end", end.Offset, "error", err)
			}
		case <-ctx.Done():
			return fmt.Errorf("read %s to its end: at offset %d of %d: %w", c.topics.Workflows, read, end.Offset, context.Cause(ctx))
		}
	}
}

// Seek asks for everything that is on the topic now: see [lane.World].
func (c *catalogue) Seek() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	select {
	case c.asks <- struct{}{}:
	default:
	}
	return c.asked
}

// Found says whether everything was read that was there when the question was asked.
func (c *catalogue) Found(question uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return question <= c.found
}

// sought returns once everything was read that was on the topic when it was called. However many call it, they ask
// one question at a time.
func (c *catalogue) sought(ctx context.Context) error {
	question := c.Seek()
	for {
		c.mu.Lock()
		found, changed := c.found, c.changed
		c.mu.Unlock()
		if question <= found {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("read %s to its end: %w", c.topics.Workflows, ctx.Err())
		}
	}
}

// answer answers questions until ctx ends. One that cannot be answered, because the
// topic cannot be read, waits, and is asked again.
func (c *catalogue) answer(ctx context.Context) {
	for {
		select {
		case <-c.asks:
		case <-ctx.Done():
			return
		}
		c.mu.Lock()
		question := c.asked
		c.mu.Unlock()
		if !c.reach(ctx) {
			return
		}
		c.mu.Lock()
		c.found = question
		close(c.changed)
		c.changed = make(chan struct{})
		c.mu.Unlock()
	}
}

// soughtPatience is how long a submission of an unknown workflow waits before an operator
// is called.
const soughtPatience = time.Minute

// reach reads to the end of the topic, however long that takes, and reports false once ctx
// ended. If it takes long an operator is called, until he hears it: then once is enough.
func (c *catalogue) reach(ctx context.Context) bool {
	for began, called := time.Now(), false; ; {
		try, cancel := context.WithTimeout(ctx, c.patience)
		err := c.catchUp(try)
		cancel()
		if err == nil {
			return true
		}
		c.log.Warn("cannot read the workflows to their end; submissions of unknown ones wait", "error", err)
		if !called && ctx.Err() == nil && time.Since(began) >= c.patience {
			called = c.alarm(ctx, fmt.Errorf("instance %s cannot read %s to its end, and submissions of workflows that it does not know wait: see that the topic has a leader, may be read and described, and that no transaction hangs on it: %w",
				c.instance, c.topics.Workflows, err))
		}
		if !pause(ctx, time.Second) {
			return false
		}
	}
}

// mend aborts a registration that Kafka left hanging on the workflows topic.
func (c *catalogue) mend(ctx context.Context) error {
	client, _, err := c.registrar(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	var topic kadm.TopicsSet
	topic.Add(c.topics.Workflows, 0)
	open, unknown := cluster.OpenTransactions(ctx, client, topic)
	if len(open) == 0 {
		return unknown[lane.TopicPartition{Topic: c.topics.Workflows}]
	}
	// It was not acknowledged: whoever registers reads it first.
	return cluster.Cover(ctx, client, c.topics.Namespace+"-workflows", open[0], false)
}

// registrar returns the only producer that can commit a registration, until
// another is made, and what ends its transactions.
func (c *catalogue) registrar(ctx context.Context) (*kgo.Client, *cluster.CommitAsked, error) {
	asked := new(cluster.CommitAsked)
	client, err := kgo.NewClient(append(c.kafka[:len(c.kafka):len(c.kafka)],
		kgo.TransactionalID(c.topics.Namespace+"-workflows"),
		kgo.WithLogger(asked),
		kgo.TransactionTimeout(lane.TransactionTimeout),
		kgo.RecordDeliveryTimeout(lane.TransactionTimeout),
		kgo.MetadataMinAge(cluster.MetadataMinAge),
	)...)
	if err != nil {
		return nil, nil, fmt.Errorf("producer of registrations: %w", err)
	}
	if _, _, err := client.ProducerID(ctx); err != nil {
		client.Close()
		return nil, nil, fmt.Errorf("initialise the producer of registrations: %w", err)
	}
	return client, asked, nil
}

// ErrConflict says that a version of a workflow is registered already with
// another content.
var ErrConflict = errors.New("a registered version never changes")

// register puts a definition on the workflows topic. It is exclusive over all
// instances: whoever initialises the transactional id last is the only one who
// can commit, and reads the whole topic before. Registering the same
// definition again does nothing, whatever became meanwhile of those that it orders.
func (c *catalogue) register(ctx context.Context, flow *workflow.Workflow) error {
	value, err := flow.MarshalJSON()
	if err != nil {
		return fmt.Errorf("encode workflow %s: %w", flow.ID(), err)
	}
	err = c.exclusively(ctx, func() (*kgo.Record, error) {
		known := c.find(flow.Name, flow.Version)
		if known == nil {
			if err := c.admits(flow); err != nil {
				return nil, err
			}
			r := c.record(events.WorkflowRegistered, flow.ID(), value)
			if level := c.level(flow); level > 1 {
				r.Headers = append(r.Headers, kgo.RecordHeader{Key: headerLevel, Value: strconv.AppendInt(nil, int64(level), 10)})
			}
			return r, nil
		}
		have, err := known.MarshalJSON()
		if err == nil && string(have) != string(value) {
			err = fmt.Errorf("%w: workflow %s is registered with another content; give the new one the next version", ErrConflict, flow.ID())
		}
		return nil, err
	})
	if err != nil && !errors.Is(err, ErrConflict) {
		return fmt.Errorf("register workflow %s: %w", flow.ID(), err)
	}
	return err
}

// admits says why a definition that is not known cannot be registered, as to others whose orders do
// its steps, or are started by the same signal. What those do that this release cannot run is not known here.
func (c *catalogue) admits(flow *workflow.Workflow) error {
	for _, o := range flow.Children() {
		if level := c.isNewer(o.Workflow, o.Version); level > 0 {
			return fmt.Errorf("%w: workflow %s is in level %d of the language, which is not run here; upgrade this instance first", workflow.ErrChild, o.Workflow, level)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.flows.Admits(flow)
}

// allows says why a version is not retired, or restored.
func (c *catalogue) allows(flow *workflow.Workflow, retired bool) error {
	if !retired {
		return c.admits(flow)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.flows.Spares(flow)
}

// ErrUnknownWorkflow says that a version of a workflow is not registered.
var ErrUnknownWorkflow = errors.New("it is not registered")

// retire has nothing new begin with a version, or ends that. Doing it again does nothing.
func (c *catalogue) retire(ctx context.Context, name string, version int, retired bool) error {
	id := workflow.ID(name, version)
	err := c.exclusively(ctx, func() (*kgo.Record, error) {
		switch {
		case c.find(name, version) == nil && c.isNewer(name, version) == 0:
			return nil, ErrUnknownWorkflow
		case c.retired(name, version) == retired:
			return nil, nil
		}
		if flow := c.find(name, version); flow != nil { // others may order it by now, or still
			if err := c.allows(flow, retired); err != nil {
				return nil, err
			}
		}
		value, err := json.Marshal(retirement{retired})
		return c.record(events.WorkflowRetired, id+retiredKey, value), err
	})
	if err != nil {
		return fmt.Errorf("retire workflow %s: %w", id, err)
	}
	return nil
}

// record is one for the workflows topic.
func (c *catalogue) record(kind events.Type, key string, value []byte) *kgo.Record {
	envelope := events.Envelope{Source: c.topics.Source(), Type: kind, ID: uuid.NewString(), Time: time.Now()}
	r := envelope.Record(c.topics.Workflows, value)
	r.Key = []byte(key)
	return r
}

// exclusively puts on the workflows topic what follows from all that is there, if anything does:
// nobody else puts anything there in between.
func (c *catalogue) exclusively(ctx context.Context, follows func() (*kgo.Record, error)) error {
	return insist(c.log, func() error { return c.tryExclusively(ctx, follows) })
}

// insist tries again where nothing was committed and nobody is to blame for it: another came in between, or the client
// ended its transaction without asking for a commit.
func insist(log *slog.Logger, try func() error) error {
	for {
		err := try()
		switch {
		case outrun(err):
			log.Info("another registration came in between; trying again")
		case errors.Is(err, cluster.ErrNotAsked):
			log.Info("the registration was not committed; trying again", "error", err)
		default:
			return err
		}
	}
}

// outrun says that a producer failed because another was made of its transactional id. To a commit
// that comes right behind that Kafka answers with the state of the transaction: it was aborted, and
// the answer to a commit that is asked for twice looks like that (KIP-890).
func outrun(err error) bool {
	return errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch) || errors.Is(err, kerr.InvalidTxnState)
}

func (c *catalogue) tryExclusively(ctx context.Context, follows func() (*kgo.Record, error)) error {
	client, asked, err := c.registrar(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := c.catchUp(ctx); err != nil {
		return err
	}
	r, err := follows()
	if r == nil || err != nil {
		return err
	}
	if err := client.BeginTransaction(); err != nil {
		return fmt.Errorf("begin a transaction: %w", err)
	}
	if err := produce(ctx, client, r); err != nil {
		return err
	}
	if err := asked.End(ctx, client); err != nil {
		return fmt.Errorf("end the transaction: %w", err)
	}
	return c.catchUp(ctx)
}
