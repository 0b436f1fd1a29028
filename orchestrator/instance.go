package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/events/spans"
	"github.com/waybill-dev/waybill/orchestrator/address"
	"github.com/waybill-dev/waybill/orchestrator/cluster"
	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/orchestrator/proof"
	"github.com/waybill-dev/waybill/orchestrator/window"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
)

// Config is what an instance needs to know.
type Config struct {
	// ID names the instance, in claims and as LockedBy. It must be unique
	// among those that run.
	ID string
	// Namespace is the prefix of all topics; empty is [events.DefaultNamespace].
	Namespace string
	// Kafka are the options of every client: at least the seed brokers.
	Kafka []kgo.Opt
	// DataDir is where the state store lives. It is rebuilt when it is lost.
	DataDir string
	// SuperviseEvery is how often the supervisor looks for expired steps (V7);
	// 0 is a quarter of a second.
	SuperviseEvery time.Duration
	// ClockSkew is the allowance for the difference between the clocks of
	// instances, brokers and agents: an attempt counts as expired that much after
	// its complete-by, and a reply counts until then.
	ClockSkew time.Duration
	// SessionTimeout is after how long of silence the group gives a dead
	// instance's partitions to others; 0 is 10 s.
	SessionTimeout time.Duration
	// Standby says which partitions are kept up to date here; empty is
	// [StandbyAll].
	Standby Standby
	// Close is how many records behind the end of a partition's journal the instance may be
	// at most to get the partition from another that serves it; 0 is 10,000.
	Close int64
	// RaiseAfter is how long every member of the group must have spoken a newer
	// format before it is written, and older releases cannot come back; 0 is at once.
	RaiseAfter time.Duration
	// MaxLag is how long a submission may wait to be read before [Instance.Submit]
	// takes no more for its lane; 0 is for ever.
	MaxLag time.Duration
	// AgentRate is how many requests a second an agent is believed to take from all
	// partitions together, before it has answered any; 0 is [lane.DefaultAgentRate].
	AgentRate float64
	// AgentBounds is how many attempts may be under way at an agent at a time, by its
	// name. Each partition has an equal part, rounded down, and one at least: all together
	// may have fewer or more under way, and the log says so. Agents that it does not name
	// have no bound but that of ADR 0020.
	AgentBounds map[string]int
	// ReplyTopics are patterns of the topics that submissions may name for their status
	// messages, as [path.Match] has them; none means all that are not Waybill's own by their
	// names, of whichever namespace. They count for what is decided on from then on.
	ReplyTopics []string
	// ClaimedApprovals says that people decide who are not known, but claim to be somebody. Without
	// it their decisions are refused.
	ClaimedApprovals bool
	// SignalKeep is how long a signal is kept, and its id counts under a key, if its sender does not say; 0 is
	// [events.SignalKeep]. It counts for what is decided on from then on: the journal says until when.
	SignalKeep time.Duration
	// Keys returns the keys of the namespace as they are now; nil if there are none. The
	// program makes them of a file.
	Keys func() *proof.Keys
	// AdvertiseURL is where others ask this instance, see [address.Advertised]; the group tells them. Empty tells them nothing.
	AdvertiseURL string
	// Sampled says of which traces of orders there are spans; nil says of none, and that there is no tracing: then
	// whoever submitted an order is the parent of what its agents do. The program makes the spans.
	Sampled spans.Sampler
	// StatusPatience is how long a status message waits for a caller's own topic that
	// takes none, before the namespace's has it; 0 is a day.
	StatusPatience time.Duration
	// Logger takes what happens; nil discards it.
	Logger *slog.Logger
	// Meters measure what its lanes commit; nil if nobody reads them.
	Meters *lane.Meters

	// watchEvery is how often a lane looks whether anything hangs; 0 is 10 s.
	watchEvery time.Duration
	// askPatience is how long Kafka may take to say what topics are; 0 is 5 s.
	askPatience time.Duration
}

// Standby says what an instance does about the partitions that it does not own.
type Standby string

const (
	// StandbyAll follows them: the instance can answer for any order, and takes
	// any partition over by reading only the end of its journal.
	StandbyAll Standby = "all"
	// StandbyOwned does nothing, but for partitions that the group has it get next: it
	// follows these until it is close enough to their end. The instance answers for the
	// orders of its own partitions only. Where nobody serves a partition, a takeover reads
	// what was written since the instance last owned it, from the beginning of the journal
	// if it never did.
	StandbyOwned Standby = "owned"
)

// Instance is one orchestrator. Any number may run on one namespace; each
// handles the orders of the partitions that it owns (S5). What it does about the
// others is said by [Standby].
type Instance struct {
	cfg        Config
	began      time.Time
	topics     events.Topics
	partitions int32
	kafka      []kgo.Opt // of every client: cut ends them all
	cut        context.CancelFunc
	log        *slog.Logger

	client    *kgo.Client // submits, and asks Kafka what is there
	intake    *intake
	admin     *kadm.Client
	store     *projections.Store
	catalogue *catalogue
	directory *directory
	follower  *lane.Follower
	members   *membership
	owners    *owners
	group     *group
	progress  *progress
	upgrade   *upgrade
	backlog   *backlog
	cluster   *cluster.Cluster
	readers   chan *pageReader // of the journal, for histories: those that are free, nil for one that is not made
	silences  silences
	added     added

	attendance lasting[map[string]Attendance]
	presence   lasting[presence]

	letterReaders chan struct{} // one place for each request that reads dead letters at a time
	letterBounds  letterBounds
	letterSilence time.Duration // for how long a record of them is waited for
	discards      discards

	deliveries lane.Deliveries
	signs      window.Signs
	turns      lane.Turns
	repeats    lane.Repeats
}

// ErrMissingTopics says that the namespace's topics are not there, or not as
// they must be.
var ErrMissingTopics = errors.New("the topics are not as they must be")

// New connects to Kafka and opens the state store. It fails with
// [ErrMissingTopics] when topics are missing, differ in their partitions or take too little,
// and with [projections.ErrInUse] when another process uses the data
// directory. While no broker answers it keeps trying until ctx ends. Close
// what it returns.
func New(ctx context.Context, cfg Config) (_ *Instance, err error) {
	if cfg.Namespace == "" {
		cfg.Namespace = events.DefaultNamespace
	}
	if cfg.SuperviseEvery <= 0 {
		cfg.SuperviseEvery = 250 * time.Millisecond
	}
	if cfg.SessionTimeout <= 0 {
		cfg.SessionTimeout = 10 * time.Second
	}
	if cfg.Close <= 0 {
		cfg.Close = 10_000
	}
	if cfg.StatusPatience <= 0 {
		cfg.StatusPatience = 24 * time.Hour
	}
	if cfg.watchEvery <= 0 {
		cfg.watchEvery = 10 * time.Second
	}
	if cfg.Meters == nil {
		cfg.Meters = lane.NewMeters()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.ID == "" {
		return nil, errors.New("the instance has no id")
	}
	switch cfg.Standby {
	case "":
		cfg.Standby = StandbyAll
	case StandbyAll, StandbyOwned:
	default:
		return nil, fmt.Errorf("unknown standby %q: use %s or %s", cfg.Standby, StandbyAll, StandbyOwned)
	}
	if cfg.AdvertiseURL != "" {
		if _, err := address.Advertised(cfg.AdvertiseURL); err != nil {
			return nil, fmt.Errorf("the advertised address is none that others may be told: %w", err)
		}
	}
	i := &Instance{cfg: cfg, began: now(), log: cfg.Logger, readers: newReaders(), silences: newSilences(), letterReaders: make(chan struct{}, maxLetterReaders), letterBounds: ownLetterBounds, letterSilence: silencePatience}
	uncut, cut := context.WithCancel(context.WithoutCancel(ctx))
	i.cut, i.kafka = cut, slices.Concat(cfg.Kafka, []kgo.Opt{kgo.WithContext(uncut), kgo.MaxDecompressBatchBytes(events.MaxDecompressed)})
	defer func() {
		if err != nil {
			cut()
		}
	}()
	if i.topics, err = events.NewTopics(cfg.Namespace); err != nil {
		return nil, err
	}
	id, err := i.reach(ctx)
	if err != nil {
		return nil, err
	}
	i.kafka = append(i.kafka, patient()...)
	if i.client, err = kgo.NewClient(append(i.kafka[:len(i.kafka):len(i.kafka)],
		kgo.ProducerLinger(0), kgo.ProducerBatchMaxBytes(events.MaxBatch), kgo.UnknownTopicRetries(1),
		kgo.MaxBufferedRecords(math.MaxInt),      // the intake bounds them: at a bound for all, one partition would hold up the others
		kgo.AllowIdempotentProduceCancellation(), // else what Kafka does not answer is kept, and tried, for ever
		kgo.MetadataMinAge(cluster.MetadataMinAge),
		kgo.RecordPartitioner(cluster.Partitioner(&i.topics)))...); err != nil {
		return nil, fmt.Errorf("connect to Kafka: %w", err)
	}
	defer func() {
		if err != nil {
			i.Close()
		}
	}()
	i.intake = &intake{produce: i.client.Produce, patience: produceTimeout, lines: make(map[lane.TopicPartition][]*entry)}
	i.admin = kadm.NewClient(i.client)
	if i.partitions, err = i.findTopics(ctx); err != nil {
		return nil, err
	}
	i.tellBounds()
	if version, err := transactionVersion(ctx, i.client); err != nil {
		i.log.Warn("cannot tell which transactions the cluster runs", "error", err)
	} else if version < wantTransactions {
		i.log.Warn("the cluster runs transactions that a late request can tear; upgrade Kafka to 4.0 or later, and the feature with kafka-features.sh",
			"feature", transactions, "have", version, "want", wantTransactions)
	}
	// Of its own: behind a question that a broker is slow to answer others would wait.
	asker, err := kgo.NewClient(append(i.kafka[:len(i.kafka):len(i.kafka)], kgo.MetadataMinAge(cluster.MetadataMinAge))...)
	if err != nil {
		return nil, fmt.Errorf("connect to Kafka: %w", err)
	}
	i.directory = newDirectory(asker, &i.topics, i.partitions, i.log)
	i.directory.patience = cmp.Or(cfg.askPatience, askPatience)
	if i.store, err = projections.Open(cfg.DataDir, projections.Identity{Cluster: id, Namespace: cfg.Namespace}, i.log); err != nil {
		return nil, err
	}
	if i.catalogue, err = newCatalogue(i.kafka, &i.topics, i.log); err != nil {
		return nil, err
	}
	i.cluster = cluster.New(i.client, &i.topics, i.kafka, i.directory.Batch)
	journals, err := i.cluster.Journals()
	if err != nil {
		return nil, err
	}
	i.follower = lane.NewFollower(journals, i.journalBegins, cfg.Standby == StandbyOwned, i.log, time.Now)
	i.members = newMembership(i.follower, i.partitions, i.log)
	i.progress = newProgress(i.partitions, cfg.Close)
	i.progress.session = cfg.SessionTimeout
	i.progress.ends, i.progress.folded, i.progress.serves = i.journalEnds, i.folded, i.members.serves
	speaks := OwnDialect
	i.group = &group{
		topics: &i.topics, opts: i.kafka, client: i.client, session: cfg.SessionTimeout,
		told: func() told {
			t := told{Instance: cfg.ID, Dialect: speaks, Behind: i.progress.tells(), URL: cfg.AdvertiseURL}
			if t.URL != "" {
				t.URLProof = i.keys().Vouch(cfg.Namespace, cfg.ID, cfg.AdvertiseURL)
			}
			return t
		},
		next: func(next []int32) {
			i.progress.hears(next)
			i.owners.hears()
		},
		keys: i.keys, file: filepath.Join(cfg.DataDir, "group-member"), log: i.log,
	}
	i.owners = &owners{members: i.group.members, name: cfg.ID, own: cfg.AdvertiseURL, log: i.log, dealt: make(chan struct{}, 1)}
	i.upgrade = &upgrade{settled: i.group.settled, newest: OwnDialect.Format, after: cfg.RaiseAfter, now: time.Now, log: i.log, raised: func() (int, error) {
		_, highest, err := i.formats()
		return highest, err
	}}
	i.catalogue.instance, i.catalogue.meters = cfg.ID, cfg.Meters
	i.catalogue.alarm = func(ctx context.Context, why error) bool { return i.alert(ctx, "workflows", why) }
	i.members.alarm = func(ctx context.Context, p int32, why error, heard func()) {
		i.members.closing.Go(func() { // Kafka may take its time, and the partition has none
			if i.alarm(ctx, p, why) {
				heard()
			}
		})
	}
	i.backlog = &backlog{most: cfg.MaxLag, read: i.wasRead, now: time.Now, marks: make(map[int32][]mark), tried: make(map[int32]time.Time)}
	i.members.newLane = func(p int32, state *projections.Partition) owner { return i.lane(p, state) }
	return i, nil
}

// tellBounds says which agents have another bound than the one that was asked for: it is
// shared by the partitions.
func (i *Instance) tellBounds() {
	for _, agent := range slices.Sorted(maps.Keys(i.cfg.AgentBounds)) {
		most := i.cfg.AgentBounds[agent]
		each := lane.Share(most, i.partitions)
		if all := each * int(i.partitions); all != most {
			i.log.Warn("the bound of an agent is not as it was asked for", "agent", agent, "asked", most,
				"is", fmt.Sprintf("%d for each of %d partitions, %d in all", each, i.partitions, all))
		}
	}
}

// laneConfig is that of all lanes, which share what agents and callers' own topics do.
func (i *Instance) laneConfig() lane.Config {
	bounds := make(map[string]int, len(i.cfg.AgentBounds))
	for agent, most := range i.cfg.AgentBounds {
		bounds[i.topics.Requests(agent)] = most
	}
	return lane.Config{
		Instance: i.cfg.ID, Topics: i.topics, Partitions: i.partitions, Skew: i.cfg.ClockSkew, StatusPatience: i.cfg.StatusPatience, Deliveries: &i.deliveries, Signs: &i.signs, Turns: &i.turns, Repeats: &i.repeats, Meters: i.cfg.Meters, Keys: i.cfg.Keys, Sampled: i.cfg.Sampled,
		SuperviseEvery: i.cfg.SuperviseEvery, WatchEvery: i.cfg.watchEvery,
		AgentRate: i.cfg.AgentRate, AgentBounds: bounds, ReplyTopics: i.cfg.ReplyTopics, Claims: i.cfg.ClaimedApprovals, SignalKeep: i.cfg.SignalKeep,
		Clock: lane.Clock{Wall: now, Timer: time.Now, Pause: pause},
	}
}

// lane makes a lane for a partition.
func (i *Instance) lane(p int32, state *projections.Partition) *lane.Lane {
	return lane.New(i.laneConfig(), p, i.cluster.Broker(p), &knowledge{i.catalogue, i.directory, i.upgrade, &i.added}, state, i.log.With("partition", p))
}

// reach waits until a broker answers, and returns the cluster's id.
func (i *Instance) reach(ctx context.Context) (string, error) {
	client, err := kgo.NewClient(i.kafka...)
	if err != nil {
		return "", fmt.Errorf("connect to Kafka: %w", err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		ask, cancel := context.WithTimeout(ctx, 10*time.Second)
		metadata, err := admin.BrokerMetadata(ask)
		cancel()
		if err == nil {
			return metadata.Cluster, nil
		}
		if ctx.Err() == nil {
			i.log.Warn("no Kafka broker answers; trying on", "error", err)
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("no Kafka broker answers; is the address right? %w", err)
		case <-time.After(wait):
		}
	}
}

// patient are the options of clients that are made once a broker has answered, so
// that the settings are known to be right: whatever fails now is a broker that is
// gone, and that others will replace. They try on soon and often, because a
// partition stands still meanwhile.
func patient() []kgo.Opt {
	return []kgo.Opt{
		kgo.AlwaysRetryEOF(),     // by default a connection that ends at once counts as a wrong setting of TLS
		kgo.RequestRetries(1000), // kgo gives up after 30 s all the same
		kgo.DialTimeout(3 * time.Second),
		kgo.RetryBackoffFn(func(tries int) time.Duration {
			longest := min(50*time.Millisecond<<min(tries, 10), time.Second)
			return longest/2 + rand.N(longest/2)
		}),
	}
}

// topicsPatience is how long missing topics are looked for: a broker that has
// just come back may not know of any.
const topicsPatience = 3 * time.Second

// findTopics returns how many partitions the namespace has. While Kafka does not
// answer it keeps trying until ctx ends.
func (i *Instance) findTopics(ctx context.Context) (int32, error) {
	for began := time.Now(); ; {
		n, err := i.countPartitions(ctx)
		denied := new(kadm.AuthError)
		switch {
		case err == nil, errors.As(err, &denied), ctx.Err() != nil:
			return n, err
		case !errors.Is(err, ErrMissingTopics):
			i.log.Warn("cannot look at the topics yet", "error", err)
		case time.Since(began) > topicsPatience:
			return n, err
		}
		pause(ctx, topicsPatience/6)
	}
}

// Close releases what [New] acquired. Call it after [Instance.Run] returned, and
// when nobody uses the instance.
func (i *Instance) Close() error {
	defer i.cut()
	var closing sync.WaitGroup
	if i.follower != nil {
		closing.Go(i.follower.Close)
	}
	if i.catalogue != nil {
		closing.Go(i.catalogue.client.Close)
	}
	if i.directory != nil {
		closing.Go(i.directory.client.Close)
	}
	closing.Go(func() {
		i.client.Close()
		i.intake.running.Wait()
	})
	if i.cluster != nil {
		closing.Go(i.cluster.Close)
	}
	for len(i.readers) > 0 {
		if reader := <-i.readers; reader != nil {
			closing.Go(reader.Close)
		}
	}
	closing.Wait()
	if i.store != nil {
		return i.store.Close()
	}
	return nil
}

// Run owns and follows partitions until ctx ends; then it finishes what is
// being committed, leaves the group and returns nil. If Kafka does not answer,
// it gives that up after five seconds, and says so in the log: the next owner
// finds in the journal what was committed, and decides the rest anew. After it
// returned, the instance can only be closed.
//
// It fails with [projections.ErrDamaged] when the state store turns out to be
// damaged: remove it and begin anew.
func (i *Instance) Run(ctx context.Context) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	// Lanes serve until the group lets the instance go, which is after ctx ended.
	serving, serveNoMore := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	defer running.Wait()
	defer fail(nil)
	defer serveNoMore()

	running.Go(func() { i.catalogue.run(serving) })
	running.Go(func() { i.catalogue.answer(serving) })
	running.Go(func() { i.directory.run(serving) })
	running.Go(func() {
		select {
		case <-i.store.Damaged():
			fail(projections.ErrDamaged)
		case <-ctx.Done():
		}
	})
	for {
		err := i.catalogue.catchUp(ctx)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return why(ctx)
		}
		i.log.Warn("cannot read the workflows yet", "error", err)
		pause(ctx, time.Second)
	}
	// The first orders need not wait for that, and the first batches fit.
	topics := append(i.catalogue.requestTopics(), i.topics.Journal, i.topics.DeadLetters)
	for _, topic := range i.topics.Inputs() {
		topics = append(topics, topic)
	}
	if err := i.directory.ask(ctx, topics); err != nil {
		i.log.Warn("Kafka does not say yet what the topics are", "error", err)
	}
	for p := range i.partitions {
		state, err := i.store.Partition(p)
		if err != nil {
			return err
		}
		i.follower.Follow(state, p)
	}
	running.Go(func() { i.follower.Run(serving, fail) })
	if err := i.progress.look(ctx); err != nil {
		i.log.Warn("cannot tell yet how far the partitions are", "error", err)
	}

	g := i.group
	g.leaveAsBefore(ctx)
	i.members.fail = fail
	member, err := g.join(serving, i.members)
	if err != nil {
		return err
	}
	running.Go(func() { g.showLag(ctx, member, i.members) })
	running.Go(func() { g.poll(ctx, member) })
	running.Go(func() { i.upgrade.run(ctx) })
	running.Go(func() { i.owners.run(ctx) })
	running.Go(func() { i.lookForAdded(ctx) })
	running.Go(func() { i.comeCloser(ctx, member.ForceRebalance) })

	<-ctx.Done()
	patience := time.AfterFunc(stopTimeout, func() {
		i.log.Warn("Kafka does not answer, and the instance stops without it; the next owners find in the journal what was committed", "partitions", i.members.all())
		serveNoMore()
		i.cut()
	})
	defer patience.Stop()
	member.CloseAllowingRebalance() // leaves, which revokes all
	i.members.revoked(i.members.all())
	i.members.closing.Wait()
	return why(ctx)
}

// why returns the error that ended ctx, nil if it was told to end.
func why(ctx context.Context) error {
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// alarm calls an operator to a partition, and says whether Kafka has the alert.
func (i *Instance) alarm(ctx context.Context, p int32, why error) bool {
	return i.alert(ctx, fmt.Sprintf("p%d", p), alarming(p, i.topics.Namespace, why))
}

// alarming says why of a partition: one whose lanes end one after the other is not stopped.
func alarming(p int32, namespace string, why error) error {
	if errors.Is(why, errStuck) {
		return fmt.Errorf("partition %d of namespace %s does not go on: %w", p, namespace, why)
	}
	return fmt.Errorf("partition %d of namespace %s is stopped: %w", p, namespace, why)
}

// alert calls an operator to what is of no order, and says whether Kafka has it.
func (i *Instance) alert(ctx context.Context, about string, why error) bool {
	now := now()
	alert := events.Alert{Reason: why.Error(), Errors: []events.Error{}, At: now}
	envelope := events.Envelope{
		Source: i.topics.Source(), Type: events.AlertRaised, Time: now,
		ID: fmt.Sprintf("%s/%d", about, now.UnixMilli()),
	}
	r := envelope.Record(i.topics.Alerts, alert.Append(nil))
	if ahead := i.members.ahead(); ahead > 0 { // Kafka takes nothing that is more than an hour ahead
		r.Timestamp = now.Add(-ahead)
	}
	if err := produce(ctx, i.client, r); err != nil {
		i.log.Error("cannot raise an alert", "about", about, "error", err)
		return false
	}
	return true
}

// pause waits, and reports false once ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Ready returns nil when the instance hears from Kafka, knows the workflows, has joined the
// group, serves every partition that it was given, and has caught the others up that it
// follows, with those that it is to get next; else what is missing. What cannot be read, or of
// which Kafka does not tell, is not waited for.
func (i *Instance) Ready() error {
	if err := i.hears(); err != nil {
		return err
	}
	if err := i.members.ready(); err != nil {
		return err
	}
	return i.caughtUp()
}

// Owned returns how many partitions this instance serves.
func (i *Instance) Owned() int { return len(i.members.positions()) }

// Clock is how the clock of this instance stands to Kafka's, as it found out when it last looked for a partition that it serves: see
// [lane.Lane.Clock]. Of other partitions it is not known.
func (i *Instance) Clock(p int32) (ahead time.Duration, known bool) { return i.members.clock(p) }

// Topics returns the names of the namespace's topics.
func (i *Instance) Topics() *events.Topics { return &i.topics }

// Partitions returns the namespace's number of partitions.
func (i *Instance) Partitions() int32 { return i.partitions }

// ID is the instance's name.
func (i *Instance) ID() string { return i.cfg.ID }

// ErrElsewhere says that an order is in a partition that this instance neither
// owns nor follows, so that it does not know how the order stands.
var ErrElsewhere = errors.New("the order is not kept here")

// Elsewhere lists the partitions that the instance neither owns nor follows. What
// the store has of them is of the past. With [StandbyAll] there are none.
func (i *Instance) Elsewhere() []int32 {
	if i.cfg.Standby == StandbyAll {
		return nil
	}
	var elsewhere []int32
	for p := range i.partitions {
		if !i.members.serves(p) && !i.members.stopped(p) {
			elsewhere = append(elsewhere, p)
		}
	}
	return elsewhere
}

// Order returns the state record of an order, and the journal offsets of its
// events. It fails with [projections.ErrNotFound] if there is no order of this
// id, with [ErrElsewhere] if this instance cannot know, and with [ErrUnknownYet] if it
// will.
func (i *Instance) Order(id string) (*projections.Order, []int64, error) {
	p, err := i.kept(id)
	if err != nil {
		return nil, nil, err
	}
	o, offsets, err := i.store.Order(p, id)
	if err := i.tells(p, err); err != nil { // its projection may have been thrown away meanwhile
		return o, nil, err
	}
	return o, offsets, nil
}

// Watch tells of an order that is written here: see [projections.Store.Watch]. Where this instance does not keep
// the order, it tells of nothing.
func (i *Instance) Watch(id string) *projections.Watch { return i.store.Watch(i.Partition(id), id) }

// Feed tells of all orders that are written here: see [projections.Store.Feed].
func (i *Instance) Feed() *projections.Feed { return i.store.Feed() }

// Items are those of a step of an order: see [projections.Store.Items]. It fails as [Instance.Order] does.
func (i *Instance) Items(id, step string, behind, limit int, wanted projections.ItemFilter) (all []projections.Item, next int, err error) {
	p, err := i.kept(id)
	if err != nil {
		return nil, 0, err
	}
	all, next, err = i.store.Items(p, id, step, behind, limit, wanted)
	return all, next, i.tells(p, err)
}

// kept returns the partition of an order. It fails with [ErrElsewhere] if it is not kept
// here, which is an [*ElsewhereError], and with [ErrUnknownYet].
func (i *Instance) kept(id string) (int32, error) {
	p := i.Partition(id)
	if slices.Contains(i.Elsewhere(), p) {
		if slices.Contains(i.members.all(), p) {
			return 0, fmt.Errorf("%w: this instance is taking partition %d over; try again in a moment", ErrUnknownYet, p)
		}
		return 0, i.elsewhere(p, id)
	}
	return p, i.tells(p, nil)
}

// Store returns the state store, for reading. Mind [Instance.Elsewhere].
func (i *Instance) Store() *projections.Store { return i.store }

// Partition returns the partition of an order.
func (i *Instance) Partition(id string) int32 {
	return lane.NewPartitioner(i.partitions).Of([]byte(id))
}

// Workflows returns the registered definitions, by name and version.
func (i *Instance) Workflows() []*workflow.Workflow { return i.catalogue.all() }

// Workflow returns a registered definition, version 0 meaning the newest; nil
// if there is none.
func (i *Instance) Workflow(name string, version int) *workflow.Workflow {
	return i.catalogue.find(name, version)
}
