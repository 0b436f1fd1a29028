package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/cluster"
	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/oracle"
)

// Which names stand in labels follows from the order in which they were registered, whatever an instance
// has to do with first.
func TestNamesInLabelsAreThoseThatWereRegisteredFirst(t *testing.T) {
	topics, err := events.NewTopics("waybill")
	must(t, err)
	c, err := newCatalogue([]kgo.Opt{kgo.SeedBrokers("localhost:0")}, &topics, slog.New(slog.DiscardHandler))
	must(t, err)
	defer c.client.Close()
	put := func(name, steps string, headers ...kgo.RecordHeader) {
		c.take(&kgo.Record{Key: []byte(name + "@1"), Value: fmt.Appendf(nil, `{"workflow":%q,"version":1,"steps":[%s]}`, name, steps), Headers: headers})
	}
	put("all", `{"name":"one","each":{"items":"[1]","steps":[{"name":"a","agent":"inner"}]}}`)
	put("later", "", kgo.RecordHeader{Key: headerLevel, Value: []byte("999")}) // of a newer release
	for n := range lane.MaxNames {
		put(fmt.Sprint("w", n), fmt.Sprintf(`{"name":"a","agent":"a%d"}`, n))
	}
	last := lane.MaxNames - 1
	for of, names := range map[*lane.Names][2][]string{
		&c.meters.Workflows: {{"all", "all/one", "later", fmt.Sprint("w", last-3)}, {fmt.Sprint("w", last-2), fmt.Sprint("w", last), "unknown"}},
		&c.meters.Agents:    {{"inner", "a0", fmt.Sprint("a", last-1)}, {fmt.Sprint("a", last), "unknown"}},
	} {
		for _, name := range names[1] { // an order of it comes first
			if label := of.Label(name); label != lane.OtherNames {
				t.Errorf("%s has the label %s", name, label)
			}
		}
		for _, name := range names[0] {
			if label := of.Label(name); label != name {
				t.Errorf("%s has the label %s", name, label)
			}
		}
	}
}

// What waits in a partition that is being counted is missing, and no more than that is.
func TestCountsOfWhatIsKnown(t *testing.T) {
	is := projections.Standing{Workflow: "w", State: projections.Pending}
	sum, missing := addUp(slices.Values([]int32{1, 2, 3}), func(p int32) (projections.Counts, bool) {
		return projections.Counts{Orders: map[projections.Standing]int{is: int(p)}, Alerts: 1, Held: int(p)}, p != 2
	})
	if sum.Orders[is] != 4 || sum.Alerts != 2 || sum.Held != 4 || missing != 1 {
		t.Errorf("%+v, and %d are missing", sum, missing)
	}
}

// A version of a workflow never changes, whatever comes to stand on the topic.
// What was not committed through nobody's fault is registered all the same; whatever else fails is told at once.
func TestARegistrationThatWasNotCommittedIsTriedAgain(t *testing.T) {
	other := errors.New("the topic is full")
	for err, tries := range map[error]int{cluster.ErrNotAsked: 3, kerr.ProducerFenced: 3, other: 1} {
		tried := 0
		got := insist(slog.New(slog.DiscardHandler), func() error {
			if tried++; tried == 3 {
				return nil
			}
			return fmt.Errorf("end the transaction: %w", err)
		})
		if tried != tries || (got != nil) != (tries == 1) {
			t.Errorf("%v: tried %d times: %v", err, tried, got)
		}
	}
}

func TestCatalogue(t *testing.T) {
	topicNames, err := events.NewTopics("waybill")
	must(t, err)
	c, err := newCatalogue([]kgo.Opt{kgo.SeedBrokers("localhost:0")}, &topicNames, slog.New(slog.DiscardHandler))
	must(t, err)
	defer c.client.Close()
	put := func(key, value string) {
		r := &kgo.Record{Key: []byte(key)}
		if value != "" {
			r.Value = []byte(value)
		}
		c.take(r)
	}
	put("tea@2", `{"workflow":"tea","version":2,"steps":[{"name":"boil","agent":"kettle"}]}`)
	put("tea@1", `{"workflow":"tea","version":1,"steps":[{"name":"pour","agent":"cup"}]}`)
	put("tea@2", `{"workflow":"tea","version":2,"steps":[{"name":"spill","agent":"floor"}]}`) // a second time
	put("tea@2", "")                                                                          // deleted
	put("tea@3", `{"workflow":"tea","version":4,"steps":[{"name":"boil","agent":"kettle"}]}`) // of another key
	put("tea@5", `{"workflow":"tea"}`)                                                        // not valid
	put("tea@6", `hello`)

	if w := c.find("tea", 0); w == nil || w.Version != 2 || w.Steps[0].Name != "boil" {
		t.Errorf("the newest is %+v", w)
	}
	if w := c.find("tea", 1); w == nil || w.Steps[0].Name != "pour" {
		t.Errorf("version 1 is %+v", w)
	}
	for _, version := range []int{3, 4, 5, 6, -1} {
		if w := c.find("tea", version); w != nil {
			t.Errorf("version %d is %+v", version, w)
		}
	}
	if w := c.find("coffee", 0); w != nil {
		t.Errorf("coffee is %+v", w)
	}
	var ids []string
	for _, w := range c.all() {
		ids = append(ids, w.ID())
	}
	if !slices.Equal(ids, []string{"tea@1", "tea@2"}) {
		t.Errorf("all are %q", ids)
	}
	topics := c.requestTopics()
	slices.Sort(topics)
	if !slices.Equal(topics, []string{"waybill.requests.cup", "waybill.requests.kettle"}) {
		t.Errorf("the request topics are %q", topics)
	}
}

// A definition in a newer level of the language is known as such: nobody runs an older
// version of it in its place.
func TestNewerDefinitions(t *testing.T) {
	topics, err := events.NewTopics("waybill")
	must(t, err)
	c, err := newCatalogue([]kgo.Opt{kgo.SeedBrokers("localhost:0")}, &topics, slog.New(slog.DiscardHandler))
	must(t, err)
	defer c.client.Close()
	put := func(key, level, value string) {
		c.take(&kgo.Record{Key: []byte(key), Value: []byte(value), Headers: []kgo.RecordHeader{{Key: headerLevel, Value: []byte(level)}}})
	}
	const next = workflow.Level + 1
	level := func(above int) string { return strconv.Itoa(workflow.Level + above) }
	const tea = `{"workflow":"tea","version":%d,"steps":[{"name":"boil","agent":"kettle"}]}`
	put("tea@1", "1", fmt.Sprintf(tea, 1))
	put("tea@2", level(1), `{"workflow":"tea","version":2,"brew":"long"}`)
	put("tea@1", level(1), fmt.Sprintf(tea, 1)) // a second time
	put("milk@1", level(2), "hello")
	put("milk", level(2), "hello")
	put("water@0", level(2), "hello")
	expect := func(name string, version, level int) {
		t.Helper()
		if got := c.isNewer(name, version); got != level {
			t.Errorf("%s@%d needs level %d, not %d", name, version, got, level)
		}
	}
	for version, newer := range []int{next, 0, next, 0} {
		expect("tea", version, newer)
	}
	expect("milk", 0, next+1)
	expect("milk", 2, 0)
	expect("water", 0, 0)
	if c.find("tea", 1) == nil || c.find("tea", 2) != nil {
		t.Error("the definitions are not as they were first")
	}
	put("tea@3", "x", fmt.Sprintf(tea, 3))
	expect("tea", 0, 0)
	expect("tea", 2, next)

	for order, why := range map[string]string{"tea": "", "{workflow: tea, version: 2}": "workflow tea is in level " + level(1), "milk": "workflow milk is in level " + level(2), "{workflow: milk, version: 2}": "workflow milk@2, which is not registered"} {
		err := c.admits(parseFlow(t, "{workflow: meal, steps: [{name: serve, order: "+order+"}]}"))
		if (err == nil) != (why == "") || err != nil && (!errors.Is(err, workflow.ErrChild) || !strings.Contains(err.Error(), why)) {
			t.Errorf("what orders %s is refused for %v, not for %q", order, err, why)
		}
	}
}

// What orders others is registered behind them. Two that would order each other are not, also where
// they come at the same time on two instances.
func TestWorkflowsThatOrderOthers(t *testing.T) {
	b := kafka.Embedded(t)
	topics := onePartition(t, b)
	var instances []*Instance
	for _, id := range []string{"i-1", "i-2"} {
		i, _ := runs(t, b, Config{ID: id, Namespace: topics.Namespace})
		oracle.Until(t, "ready", i.Ready)
		instances = append(instances, i)
	}
	one := instances[0]
	refused := func(text, why string) {
		t.Helper()
		if err := one.Register(t.Context(), parseFlow(t, text)); !errors.Is(err, workflow.ErrChild) || !strings.Contains(err.Error(), why) {
			t.Errorf("it is refused for %v, not for %s", err, why)
		}
	}
	trip, hotel := parseFlow(t, "{workflow: trip, steps: [{name: stay, order: hotel}]}"), parseFlow(t, "{workflow: hotel, steps: [{name: room, agent: inn}]}")
	refused("{workflow: trip, steps: [{name: stay, order: hotel}]}", "workflow hotel, which is not registered")
	must(t, one.Register(t.Context(), hotel))
	must(t, one.Register(t.Context(), trip))
	refused("{workflow: hotel, version: 2, steps: [{name: again, order: trip}]}", "hotel -> trip -> hotel")
	if err := one.Retire(t.Context(), "hotel", 1, true); !errors.Is(err, workflow.ErrChild) || !strings.Contains(err.Error(), "trip@1 orders it") {
		t.Errorf("what others order is retired: %v", err)
	}
	must(t, one.Retire(t.Context(), "trip", 1, true))
	must(t, one.Retire(t.Context(), "hotel", 1, true))
	must(t, one.Register(t.Context(), trip)) // as it was
	if err := one.Retire(t.Context(), "trip", 1, false); !errors.Is(err, workflow.ErrChild) || !strings.Contains(err.Error(), "every version is retired") {
		t.Errorf("what orders what is retired is restored: %v", err)
	}
	refused("{workflow: trip, version: 2, steps: [{name: stay, order: hotel}]}", "every version is retired")

	for _, name := range []string{"a", "b"} {
		must(t, one.Register(t.Context(), parseFlow(t, "{workflow: "+name+", steps: [{name: s, agent: x}]}")))
	}
	errs := make([]error, 2)
	var registering sync.WaitGroup
	for n, text := range []string{"{workflow: a, version: 2, steps: [{name: s, order: b}]}", "{workflow: b, version: 2, steps: [{name: s, order: a}]}"} {
		flow := parseFlow(t, text)
		registering.Go(func() { errs[n] = instances[n].Register(t.Context(), flow) })
	}
	registering.Wait()
	if (errs[0] == nil) == (errs[1] == nil) || !errors.Is(errors.Join(errs...), workflow.ErrChild) {
		t.Errorf("one of them must be registered: %v; %v", errs[0], errs[1])
	}
}

// Another registration that begins right before the commit of one has Kafka abort it, and say
// what state that left: it is made anew.
func TestARegistrationThatIsOutrun(t *testing.T) {
	b := kafka.Embedded(t)
	topics := onePartition(t, b)
	i, _ := runs(t, b, Config{ID: "i-1", Namespace: topics.Namespace})
	oracle.Until(t, "ready", i.Ready)
	commits := 0
	b.Fake.ControlKey(int16(kmsg.EndTxn), func(q kmsg.Request) (kmsg.Response, error, bool) {
		b.Fake.KeepControl()
		if id := q.(*kmsg.EndTxnRequest).TransactionalID; id != topics.Namespace+"-workflows" {
			return nil, nil, false
		}
		if commits++; commits == 1 {
			b.Fake.SleepControl(func() {
				other, _, err := i.catalogue.registrar(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				other.Close()
			})
		}
		return nil, nil, false
	})
	must(t, i.Register(t.Context(), parseFlow(t, "{workflow: a, steps: [{name: s, agent: x}]}")))
	if commits != 2 || i.catalogue.find("a", 1) == nil {
		t.Errorf("%d commits, and the workflow is %v", commits, i.catalogue.find("a", 1))
	}
}

// A definition in a newer level of the language that is retired is not the newest: nothing waits for
// the release that could run it.
func TestNewerDefinitionsThatAreRetired(t *testing.T) {
	topics, err := events.NewTopics("waybill")
	must(t, err)
	c, err := newCatalogue([]kgo.Opt{kgo.SeedBrokers("localhost:0")}, &topics, slog.New(slog.DiscardHandler))
	must(t, err)
	defer c.client.Close()
	put := func(key, level, value string) {
		c.take(&kgo.Record{Key: []byte(key), Value: []byte(value), Headers: []kgo.RecordHeader{{Key: headerLevel, Value: []byte(level)}}})
	}
	const next = workflow.Level + 1
	level := func(above int) string { return strconv.Itoa(workflow.Level + above) }
	retire := func(id string, retired bool) { put(id+retiredKey, "", fmt.Sprintf(`{"retired":%t}`, retired)) }
	expect := func(level int, retired bool) {
		t.Helper()
		if got := c.isNewer("tea", 0); got != level {
			t.Errorf("the newest needs level %d, not %d", got, level)
		}
		if got := c.retired("tea", 0); got != retired {
			t.Errorf("all are retired: %t", got)
		}
	}
	expect(0, false)
	put("tea@2", level(1), "{}")
	expect(next, false)
	retire("tea@3", true) // before its definition is read
	put("tea@3", level(1), "{}")
	put("teapot@4", level(2), "{}")
	expect(next, false)
	if got := c.isNewer("tea", 3); got != next { // whoever names it waits, and it may be restored
		t.Errorf("version 3 needs level %d", got)
	}
	retire("tea@2", true)
	expect(0, true)
	put("tea@1", "1", `{"workflow":"tea","version":1,"steps":[{"name":"boil","agent":"kettle"}]}`)
	expect(0, false)
	retire("tea@3", false)
	expect(next, false)
	retire("tea@1", true)
	expect(next, false)
	retire("tea@3", true)
	expect(0, true)
}

// While the workflows topic cannot be read to its end an operator is called: once that was
// heard, once for each outage, and only while somebody waits for it.
func TestCatalogueThatCannotBeRead(t *testing.T) {
	t.Parallel()
	b := kafka.Embedded(t)
	topics := onePartition(t, b)
	c, err := newCatalogue([]kgo.Opt{kgo.SeedBrokers(b.Brokers...)}, &topics, slog.New(slog.DiscardHandler))
	must(t, err)
	defer c.client.Close()
	var away, deaf atomic.Bool
	var asked, said atomic.Int32
	b.Fake.ControlKey(int16(kmsg.ListOffsets), func(q kmsg.Request) (kmsg.Response, error, bool) {
		b.Fake.KeepControl()
		asked.Add(1)
		answer := q.ResponseKind().(*kmsg.ListOffsetsResponse)
		of, on := kmsg.NewListOffsetsResponseTopic(), kmsg.NewListOffsetsResponseTopicPartition()
		of.Topic, on.ErrorCode = topics.Workflows, kerr.TopicAuthorizationFailed.Code
		of.Partitions = append(of.Partitions, on)
		answer.Topics = append(answer.Topics, of)
		return answer, nil, away.Load()
	})
	c.instance, c.patience = "i-1", time.Second/2
	c.alarm = func(_ context.Context, why error) bool {
		if !strings.Contains(why.Error(), topics.Workflows) || !strings.Contains(why.Error(), "i-1") {
			t.Errorf("the operator hears: %v", why)
		}
		said.Add(1)
		return !deaf.Load()
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	until := func(what string, is func() bool) {
		t.Helper()
		oracle.Until(t, what, func() error {
			if !is() {
				return errors.New("not yet")
			}
			return nil
		})
	}
	away.Store(true)
	deaf.Store(true)
	running.Go(func() { c.answer(ctx) })
	for outage := range int32(2) {
		question := c.Seek()
		if outage == 0 {
			until("it says so again, as nobody heard it", func() bool { return said.Load() == 2 })
			deaf.Store(false)
		}
		until("the operator is called", func() bool { return said.Load() == 3+outage })
		before := asked.Load()
		until("it tries on", func() bool { return asked.Load() > before })
		if c.Found(question) || said.Load() != 3+outage {
			t.Errorf("it was read: %t; the operator was called %d times", c.Found(question), said.Load())
		}
		away.Store(false)
		until("it is read", func() bool { return c.Found(question) })
		away.Store(true)
	}
}

// S4: a workflow that was just registered elsewhere is known to whoever asks for the
// newest, though it has not read so far yet.
func TestAFreshWorkflowIsLearnt(t *testing.T) {
	b := kafka.Embedded(t)
	topics := onePartition(t, b)
	must(t, b.Client(t).ProduceSync(t.Context(), &kgo.Record{
		Topic: topics.Workflows, Key: []byte("tea@1"), Value: []byte(`{"workflow":"tea","version":1,"steps":[{"name":"boil","agent":"kettle"}]}`),
	}).FirstErr())
	log := slog.New(slog.DiscardHandler)
	c, err := newCatalogue([]kgo.Opt{kgo.SeedBrokers(b.Brokers...)}, &topics, log)
	must(t, err)
	defer c.client.Close()
	ctx, stop := context.WithCancel(t.Context())
	var reading sync.WaitGroup
	defer reading.Wait()
	defer stop()
	// It reads once it was asked where the topic ends. It asks that itself, too,
	// when it begins to read.
	var asked sync.Once
	b.Fake.ControlKey(int16(kmsg.ListOffsets), func(kmsg.Request) (kmsg.Response, error, bool) {
		asked.Do(func() { reading.Go(func() { c.run(ctx) }) })
		return nil, nil, false
	})
	w := &knowledge{catalogue: c, directory: newDirectory(nil, &topics, 1, log)}
	must(t, w.CatchUp(ctx))
	if w.Workflow("tea", 0) == nil {
		t.Error("it is not known")
	}
}

// S4: a new owner that has not read of an order's workflow yet reads on before it decides
// on a reply: it does not take the workflow for one that is gone.
func TestAReplyOfAnUnreadWorkflow(t *testing.T) {
	b := kafka.Embedded(t)
	topics := onePartition(t, b)
	first, stop := runs(t, b, Config{ID: "i-1", Namespace: topics.Namespace})
	oracle.Until(t, "ready", first.Ready)
	must(t, first.Register(t.Context(), parseFlow(t, silentFlow)))
	first.waits(t, "o-1", "1")
	stop()
	must(t, b.Client(t).ProduceSync(t.Context(), &kgo.Record{
		Topic: topics.Replies, Key: []byte("o-1"), Value: []byte(`{"order":"o-1","step":"call","attempt":1,"status":"completed"}`),
	}).FirstErr())

	next, err := New(t.Context(), Config{ID: "i-2", Namespace: topics.Namespace, DataDir: t.TempDir(), Kafka: []kgo.Opt{kgo.SeedBrokers(b.Brokers...)}})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	// It reads of workflows once it asks where the topic ends, and no sooner.
	var asked sync.Once
	b.Fake.ControlKey(int16(kmsg.ListOffsets), func(q kmsg.Request) (kmsg.Response, error, bool) {
		b.Fake.KeepControl()
		if slices.ContainsFunc(q.(*kmsg.ListOffsetsRequest).Topics, func(t kmsg.ListOffsetsRequestTopic) bool {
			return t.Topic == topics.Workflows && t.Partitions[0].Timestamp == -1 // its client asks where it begins
		}) {
			asked.Do(func() { running.Go(func() { next.catalogue.run(ctx) }) })
		}
		return nil, nil, false
	})
	state, err := next.store.Partition(0)
	must(t, err)
	l := next.lane(0, state)
	must(t, l.TakeOver(t.Context()))
	running.Go(func() {
		if err := l.Serve(ctx); err != nil {
			t.Errorf("the lane ended: %v", err)
		}
	})
	next.reaches(t, "o-1", projections.Processed)
	cancel()
	running.Wait()
	l.Close()
	must(t, next.Close())
}
