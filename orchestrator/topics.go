package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/hashicorp/go-multierror"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-dev/waybill/events"
)

// topicSpec is a topic as it should be.
type topicSpec struct {
	name       string
	partitions int32
	configs    map[string]*string
	// least is what max.message.bytes must be: with less a lane could not write what it
	// cannot do without. 0 if it can.
	least int
}

// Retention of what is history, and of what is only passing through: long
// enough that nobody's outage loses it.
const (
	keepForever = "-1"
	keepPassing = "2592000000" // 30 days, in milliseconds
)

// leastMessage has room for the largest status message and the largest alert, and is
// less than the default of Kafka.
const leastMessage = 1_000_000

func specs(topics *events.Topics, partitions int32, agents []string) []topicSpec {
	topic := func(name string, partitions int32, retention string) topicSpec {
		return topicSpec{name: name, partitions: partitions, configs: map[string]*string{
			"retention.ms":      &retention,
			"retention.bytes":   new("-1"), // whatever the cluster's default is
			"cleanup.policy":    new("delete"),
			"max.message.bytes": new(strconv.Itoa(2*events.MaxBatch + 1<<16)), // room for a batch of one, and a dead letter's headers
		}}
	}
	var all []topicSpec
	// Kafka's clock says when these were written: whether a reply came in time, for how
	// long an input is kept, and whether the clock of the one who decides is right.
	stamped := func(s topicSpec) topicSpec {
		s.configs["message.timestamp.type"] = new("LogAppendTime")
		return s
	}
	for _, input := range topics.Inputs() {
		all = append(all, stamped(topic(input, partitions, keepPassing)))
	}
	takes := func(least int, s topicSpec) topicSpec {
		s.least = least
		return s
	}
	all = append(all,
		takes(events.MaxBatch, stamped(topic(topics.Journal, partitions, keepForever))),
		takes(leastMessage, topic(topics.Status, partitions, keepPassing)),
		takes(leastMessage, topic(topics.Alerts, partitions, keepPassing)),
		topic(topics.DeadLetters, partitions, keepForever),
		topic(topics.Workflows, 1, keepForever),
	)
	all[len(all)-1].configs["cleanup.policy"] = new("compact")
	for _, agent := range agents {
		all = append(all, topic(topics.Requests(agent), partitions, keepPassing))
	}
	return all
}

// tooSmall says that c is how large records may be, and that is too little.
func (s *topicSpec) tooSmall(c kadm.Config) bool {
	takes, err := strconv.Atoi(c.MaybeValue())
	return c.Key == "max.message.bytes" && err == nil && takes < s.least
}

// DefaultPartitions is how many a namespace has if nobody says anything else.
const DefaultPartitions = 12

// CreateTopics creates those topics of the namespace that are missing, and
// returns their names. For partitions 0 is the number that the namespace has, and
// [DefaultPartitions] if it has no topics yet. A replication of -1 is the cluster's
// default. It does not change topics that are there.
func CreateTopics(ctx context.Context, admin *kadm.Client, topics *events.Topics, partitions int32, replication int16) ([]string, error) {
	if partitions < 0 {
		return nil, fmt.Errorf("%d partitions: at least 1 is needed", partitions)
	}
	metadata, err := admin.Metadata(kadm.WithAuthorizedOps(ctx), topics.Partitioned()...)
	if err != nil {
		return nil, fmt.Errorf("look at the topics: %w", err)
	}
	for _, name := range slices.Backward(topics.Partitioned()) { // the journal above all
		t := metadata.Topics[name]
		if errors.Is(t.Err, kerr.UnknownTopicOrPartition) {
			continue
		}
		if t.Err != nil {
			return nil, fmt.Errorf("look at topic %s: %w", name, t.Err)
		}
		if have := int32(len(t.Partitions)); partitions == 0 {
			partitions = have
		} else if have != partitions {
			return nil, fmt.Errorf("%s has %d partitions, and %d were asked for: the number can never change", name, have, partitions)
		}
		break
	}
	return create(ctx, admin, specs(topics, cmp.Or(partitions, DefaultPartitions), nil), replication)
}

func createRequestTopics(ctx context.Context, admin *kadm.Client, topics *events.Topics, partitions int32, agents []string) error {
	fixed := len(specs(topics, partitions, nil))
	_, err := create(ctx, admin, specs(topics, partitions, agents)[fixed:], -1)
	return err
}

func create(ctx context.Context, admin *kadm.Client, specs []topicSpec, replication int16) ([]string, error) {
	// Who may not create topics may still use those that are there.
	there, err := admin.Metadata(kadm.WithAuthorizedOps(ctx), topicNames(specs)...)
	if err != nil {
		return nil, fmt.Errorf("look at the topics: %w", err)
	}
	var created []string
	var problems *multierror.Error
	for _, s := range specs {
		if t, ok := there.Topics[s.name]; ok && t.Err == nil {
			continue
		}
		_, err := admin.CreateTopic(ctx, s.partitions, replication, s.configs, s.name)
		switch {
		case err == nil:
			created = append(created, s.name)
		case !errors.Is(err, kerr.TopicAlreadyExists):
			problems = multierror.Append(problems, fmt.Errorf("create topic %s: %w", s.name, err))
		}
	}
	if err := problems.ErrorOrNil(); err != nil {
		return created, err
	}
	return created, appear(ctx, admin, specs)
}

func topicNames(specs []topicSpec) []string {
	names := make([]string, len(specs))
	for i, s := range specs {
		names[i] = s.name
	}
	return names
}

// appearsWithin is how long a topic that was created, or is said to be there already, may
// take until it can be seen: a Kafka that is busy takes more than ten seconds. One that is
// being deleted is said to be there, and never is.
const appearsWithin = 30 * time.Second

// appear waits until a new topic, which Kafka makes known to its brokers only
// after it said that it is created, can be seen.
func appear(ctx context.Context, admin *kadm.Client, specs []topicSpec) error {
	for began := time.Now(); ; {
		// With authorized operations, because without them the answer may be
		// seconds old.
		metadata, err := admin.Metadata(kadm.WithAuthorizedOps(ctx), topicNames(specs)...)
		if err != nil {
			return fmt.Errorf("look at the new topics: %w", err)
		}
		err = metadata.Topics.Error()
		if err == nil {
			return nil
		}
		if time.Since(began) > appearsWithin {
			all := metadata.Topics.Sorted()
			missing := all[slices.IndexFunc(all, func(t kadm.TopicDetail) bool { return t.Err != nil })]
			return fmt.Errorf("topic %s cannot be seen %s after Kafka said that it is there, as when it is being deleted; try again: %w", missing.Topic, appearsWithin, missing.Err)
		}
		if !pause(ctx, 20*time.Millisecond) {
			return fmt.Errorf("wait for the new topics: %w", err)
		}
	}
}

// Difference is one way in which a topic is not as it should be.
type Difference struct {
	Topic string `json:"topic"` // empty for the whole cluster
	What  string `json:"what"`
	Have  string `json:"have"`
	Want  string `json:"want"`
	// Harmful says that no orchestrator will start with it.
	Harmful bool `json:"harmful"`
}

// transactions is Kafka's feature of transactions that no late request of an
// older transaction can tear (KIP-890), and the version that has it.
const (
	transactions     = "transaction.version"
	wantTransactions = 2
)

// transactionVersion returns which version of transactions the cluster runs.
func transactionVersion(ctx context.Context, client *kgo.Client) (int16, error) {
	request := kmsg.NewPtrApiVersionsRequest()
	request.ClientSoftwareName, request.ClientSoftwareVersion = "waybill", "1"
	response, err := request.RequestWith(ctx, client)
	if err == nil {
		err = kerr.ErrorForCode(response.ErrorCode)
	}
	if err != nil {
		return 0, fmt.Errorf("ask for the cluster's features: %w", err)
	}
	for _, feature := range response.FinalizedFeatures {
		if feature.Name == transactions {
			return feature.MaxVersionLevel, nil
		}
	}
	return 0, nil
}

// CheckTopics says how the namespace's topics differ from how [CreateTopics]
// makes them, and whether the cluster's transactions are the ones to have. With
// agents it looks at their request topics too.
func CheckTopics(ctx context.Context, client *kgo.Client, topics *events.Topics, agents []string) ([]Difference, error) {
	admin := kadm.NewClient(client)
	metadata, err := admin.Metadata(ctx)
	if err != nil {
		return nil, fmt.Errorf("look at the topics: %w", err)
	}
	partitions := int32(len(metadata.Topics[topics.Journal].Partitions))
	begun := int32(0)
	if partitions > 0 {
		if begun, err = partitionsOf(ctx, client, topics.Journal, partitions); err != nil {
			return nil, err
		}
		partitions = cmp.Or(begun, partitions)
	}
	var found []Difference
	version, err := transactionVersion(ctx, client)
	if err != nil {
		return nil, err
	}
	if version < wantTransactions {
		found = append(found, Difference{"", transactions, strconv.Itoa(int(version)), strconv.Itoa(wantTransactions), false})
	}
	var there []string
	want := specs(topics, partitions, agents)
	for _, s := range want {
		t, ok := metadata.Topics[s.name]
		switch have := int32(len(t.Partitions)); {
		case !ok || errors.Is(t.Err, kerr.UnknownTopicOrPartition):
			// A request topic is made when a workflow that needs it is registered.
			found = append(found, Difference{s.name, "topic", "missing", "present", topics.Agent(s.name) == ""})
			continue
		case t.Err != nil:
			return nil, fmt.Errorf("look at topic %s: %w", s.name, t.Err)
		case have != s.partitions && partitions > 0:
			added := begun > 0 && have > begun                                 // since then
			refused := slices.Contains(topics.Partitioned(), s.name) && !added // by countPartitions
			found = append(found, Difference{s.name, "partitions", strconv.Itoa(int(have)), strconv.Itoa(int(s.partitions)), refused})
		}
		there = append(there, s.name)
	}
	if len(there) == 0 {
		return found, nil
	}
	configs, err := admin.DescribeTopicConfigs(ctx, there...)
	if err != nil {
		return nil, fmt.Errorf("describe the topics: %w", err)
	}
	for _, s := range want {
		config, err := configs.On(s.name, nil)
		if err != nil || config.Err != nil {
			continue // it is missing, which was said, or may not be described
		}
		for _, c := range config.Configs {
			if w := s.configs[c.Key]; w != nil && *w != c.MaybeValue() {
				found = append(found, Difference{s.name, c.Key, c.MaybeValue(), *w, s.tooSmall(c)})
			}
		}
	}
	return found, nil
}
