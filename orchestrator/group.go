package orchestrator

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/cluster"
	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/orchestrator/proof"
)

const (
	// heartbeatEvery is how often a member asks the group whether something
	// changed. Whoever gives a partition up and whoever gets it both learn of it
	// so, and meanwhile nobody serves it.
	heartbeatEvery = 100 * time.Millisecond
	// stopTimeout is how long an instance that was told to stop waits for Kafka,
	// to commit what it has begun and to leave the group.
	stopTimeout = 5 * time.Second
)

// group is the consumer group on the orders topic. It only says who owns what:
// lanes fetch from their own positions, and what makes an owner is a takeover.
type group struct {
	topics  *events.Topics
	opts    []kgo.Opt // of every client
	client  *kgo.Client
	told    func() told
	next    func([]int32)
	keys    func() *proof.Keys // of the namespace, nil if there are none
	session time.Duration
	file    string // keeps as which member the process is known
	log     *slog.Logger
}

func (g *group) name() string { return g.topics.Namespace + ".orchestrators" }

// join makes the instance a member. What the group gives is kept until ctx ends.
func (g *group) join(ctx context.Context, m *membership) (*kgo.Client, error) {
	taken := func(_ context.Context, _ *kgo.Client, taken map[string][]int32) { m.revoked(taken[g.topics.Orders]) }
	member, err := kgo.NewClient(append(g.opts[:len(g.opts):len(g.opts)],
		kgo.ConsumerGroup(g.name()),
		kgo.ConsumeTopics(g.topics.Orders),
		kgo.Balancers(telling{kgo.CooperativeStickyBalancer(), g.topics.Orders, g.told, g.next}),
		kgo.SessionTimeout(g.session),
		kgo.HeartbeatInterval(min(g.session/5, heartbeatEvery)),
		kgo.RebalanceTimeout(lane.CommitTimeout+10*time.Second),
		kgo.DisableAutoCommit(),
		kgo.MetadataMinAge(cluster.MetadataMinAge),
		kgo.OnPartitionsAssigned(func(_ context.Context, member *kgo.Client, given map[string][]int32) {
			g.keep(member)
			m.assigned(ctx, given[g.topics.Orders])
		}),
		kgo.OnPartitionsRevoked(taken),
		kgo.OnPartitionsLost(taken),
	)...)
	if err != nil {
		return nil, fmt.Errorf("join the group: %w", err)
	}
	member.PauseFetchTopics(g.topics.Orders)
	return member, nil
}

// poll keeps the member alive, and tells of problems, until ctx ends.
func (g *group) poll(ctx context.Context, member *kgo.Client) {
	for ctx.Err() == nil { // nothing but errors comes: all is paused
		member.PollFetches(ctx).EachError(func(_ string, _ int32, err error) {
			if ctx.Err() == nil {
				g.log.Warn("the consumer group has a problem", "group", g.name(), "error", err)
			}
		})
	}
}

// keep notes as which member of the group the process is known.
func (g *group) keep(member *kgo.Client) {
	id, _ := member.GroupMetadata()
	if err := os.WriteFile(g.file, []byte(id), 0o600); err != nil {
		g.log.Debug("cannot keep the group member", "error", err)
	}
}

// leaveAsBefore makes the group forget the process that used the data directory
// before, if it was killed: the group would wait for it until its session times
// out, and give nothing to anybody meanwhile. That process is dead, because it
// would hold the directory's lock.
func (g *group) leaveAsBefore(ctx context.Context) {
	id, err := os.ReadFile(g.file)
	if err != nil || len(id) == 0 {
		return // there was none
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Group, leave.MemberID = g.name(), string(id)
	leave.Members = []kmsg.LeaveGroupRequestMember{{MemberID: string(id)}}
	if _, err := leave.RequestWith(ctx, g.client); err != nil {
		g.log.Debug("cannot leave the group for the process of before", "error", err)
	}
}

// showLag commits the lanes' positions to the group from time to time. Nothing
// of Waybill reads them: they are for tools that show lag.
func (g *group) showLag(ctx context.Context, member *kgo.Client, m *membership) {
	for pause(ctx, 5*time.Second) {
		offsets := make(map[string]map[int32]kgo.EpochOffset)
		set := func(topic string, p int32, offset int64) {
			if offsets[topic] == nil {
				offsets[topic] = make(map[int32]kgo.EpochOffset)
			}
			offsets[topic][p] = kgo.EpochOffset{Epoch: -1, Offset: offset}
		}
		for p, at := range m.positions() {
			for in, topic := range g.topics.Inputs() {
				if next := at.At(in); next >= 0 { // it reads the input
					set(topic, p, next)
				}
				for _, added := range at.Added() {
					if added.Input == in {
						set(topic, added.Partition, added.Next)
					}
				}
			}
		}
		if len(offsets) > 0 {
			member.CommitOffsetsSync(ctx, offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, _ *kmsg.OffsetCommitResponse, err error) {
				if err != nil && ctx.Err() == nil {
					g.log.Debug("cannot show the lag", "error", err)
				}
			})
		}
	}
}
