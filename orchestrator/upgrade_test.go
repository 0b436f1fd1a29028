package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/inspect"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/oracle"
)

// The format rises once all members have spoken it for long enough, or where it has
// risen already, or when an operator says so; never while one of an older release is
// there, nor while it is not known who is.
func TestWhenTheFormatRises(t *testing.T) {
	const after = time.Minute
	now := inspect.Curtain
	var members []Member
	var unknown error
	var raised int
	u := &upgrade{
		settled: func(context.Context) ([]Member, error) { return members, unknown },
		raised:  func() (int, error) { return raised, nil },
		after:   after, now: func() time.Time { return now }, log: slog.New(slog.DiscardHandler), newest: 7,
	}
	are := func(formats ...int) {
		members = nil
		for _, f := range formats {
			members = append(members, Member{Dialect: Dialect{Format: f}})
		}
	}
	for _, c := range []struct {
		what string
		do   func()
		want int
	}{
		{"nothing is known", func() { unknown = ErrUnsettled }, 0},
		{"an old one and a new one", func() { unknown = nil; are(2, 7); raised = 2 }, 2},
		{"after a long time, too", func() { now = now.Add(time.Hour) }, 2},
		{"the old one has left", func() { are(7, 7) }, 2},
		{"not yet", func() { now = now.Add(after - 1) }, 2},
		{"it was there again", func() { are(7, 7, 2) }, 2},
		{"it has left, and the time begins anew", func() { are(7, 7); now = now.Add(2 * after) }, 2},
		{"while members come and go nobody knows", func() { unknown = ErrUnsettled; now = now.Add(after) }, 0},
		{"and the time begins anew", func() { unknown = nil }, 2},
		{"now", func() { now = now.Add(after) }, 7},
		{"an old one comes back: nothing more is raised", func() { are(7, 2) }, 2},
		{"it has gone, and a partition was raised", func() { are(7); raised = 7 }, 7},
		{"a newer release than this one", func() { are(9) }, 7},
		{"nobody is there", func() { are() }, 0},
	} {
		c.do()
		if err := u.look(t.Context()); !errors.Is(err, unknown) {
			t.Errorf("%s: %v", c.what, err)
		}
		if u.Format() != c.want {
			t.Errorf("%s: in format %d may be written, and must be %d", c.what, u.Format(), c.want)
		}
	}
	are(7)
	raised = 2
	must(t, u.look(t.Context()))
	if at := u.rises(); u.Format() != 2 || at.IsZero() {
		t.Errorf("it rises at %v, and is %d", at, u.Format())
	}
	must(t, u.judge(members, true))
	if u.Format() != 7 {
		t.Errorf("an operator said so, and it is %d", u.Format())
	}
	now = now.Add(answerCounts + 1)
	if format := u.Format(); format != 0 {
		t.Errorf("an answer of long ago counts: %d", format)
	}
}

// Who registers a workflow waits for a partition that was just claimed for the first time, and for
// those that follow another, and for no other.
func TestWhichPartitionsRise(t *testing.T) {
	old, fresh := projections.Head{Claim: "c", Offset: 7}, projections.Head{Claim: "c", Offset: 1}
	for _, c := range []struct {
		heads  []projections.Head
		format int
		want   bool
	}{
		{[]projections.Head{old, old}, 5, false},
		{[]projections.Head{old, fresh}, 5, true},
		{[]projections.Head{old, old}, 1, true},
		{nil, 5, false},
	} {
		if got := rises(c.heads, c.format); got != c.want {
			t.Errorf("%+v rise to format %d: %t", c.heads, c.format, got)
		}
	}
}

// What a member tells of its release is heard, and an older assignor reads of it what it
// did before: that a member tells something changes none of its assignments.
func TestWhatMembersTell(t *testing.T) {
	plain := kgo.CooperativeStickyBalancer()
	tells := telling{GroupBalancer: plain, told: func() told {
		return told{Instance: "i-1", Dialect: Dialect{3, 2, []string{"orders", "signals"}}, Behind: "0a"}
	}}
	if tells.ProtocolName() != "cooperative-sticky" || !tells.IsCooperative() {
		t.Errorf("the assignor is %s", tells.ProtocolName())
	}
	has := func() map[string][]int32 { return map[string][]int32{"waybill.orders": {1, 3}} }
	topics := []string{"waybill.orders"}
	metadata := func(b kgo.GroupBalancer, owned map[string][]int32) (told kmsg.ConsumerMemberMetadata) {
		must(t, told.ReadFrom(b.JoinGroupMetadata(slices.Clone(topics), owned, 5)))
		return told
	}
	for _, owned := range []map[string][]int32{has(), nil} {
		old, now := metadata(plain, owned), metadata(tells, owned)
		heardNow := heard(now.UserData)
		if heardNow.Instance != "i-1" || heardNow.Behind != "0a" || heardNow.Format != 3 || heardNow.Language != 2 || !slices.Equal(heardNow.Inputs, []string{"orders", "signals"}) {
			t.Errorf("heard is %+v", heardNow)
		}
		if was := heard(old.UserData); was.Format != 1 || was.Language != 1 || was.Instance != "" {
			t.Errorf("of one that says nothing %+v is heard", was)
		}
		if !strings.HasPrefix(string(now.UserData), string(old.UserData)) {
			t.Error("the assignor's own data are not in front")
		}
		now.UserData = old.UserData
		if fmt.Sprint(now) != fmt.Sprint(old) {
			t.Errorf("it says %+v, and said %+v", now, old)
		}
	}
	if was := heard([]byte("\x00waybill:{")); was.Format != 1 {
		t.Errorf("of garbage %+v is heard", was)
	}

	plan := func(second kgo.GroupBalancer) []kmsg.SyncGroupRequestGroupAssignment {
		return leads(t, plain, []kmsg.JoinGroupResponseMember{
			{MemberID: "a", ProtocolMetadata: plain.JoinGroupMetadata(slices.Clone(topics), map[string][]int32{"waybill.orders": {0, 1, 2}}, 5)},
			{MemberID: "b", ProtocolMetadata: second.JoinGroupMetadata(slices.Clone(topics), has(), 5)},
		}, 6)
	}
	if got, want := fmt.Sprint(plan(tells)), fmt.Sprint(plan(plain)); got != want {
		t.Errorf("an old leader assigns\n%s and must\n%s", got, want)
	}
}

// leads is what a leader has the members get of a topic with so many partitions.
func leads(t *testing.T, leader kgo.GroupBalancer, members []kmsg.JoinGroupResponseMember, partitions int32) []kmsg.SyncGroupRequestGroupAssignment {
	t.Helper()
	b, _, err := leader.MemberBalancer(members)
	must(t, err)
	made, err := b.(kgo.GroupMemberBalancerOrError).BalanceOrError(map[string]int32{"waybill.orders": partitions})
	must(t, err)
	return made.IntoSyncAssignment()
}

// Once the last member of an older release has left, the first answer says when the
// format rises: it is not being written yet. An operator need not wait for that: each
// partition is raised once.
func TestAnOlderReleaseLeaves(t *testing.T) {
	b := kafka.Embedded(t)
	topics, err := events.NewTopics(kafka.Namespace(t))
	must(t, err)
	const partitions = 2
	_, err = CreateTopics(t.Context(), b.Admin(t), &topics, partitions, 1)
	must(t, err)
	speaks(t, Dialect{1, 1, events.InputNames()})
	older, stop := runs(t, b, Config{ID: "older", Namespace: topics.Namespace})
	oracle.Until(t, "the older one is ready", older.Ready)
	speaks(t, Dialect{2, 1, events.InputNames()})
	i, _ := runs(t, b, Config{ID: "i-1", Namespace: topics.Namespace, RaiseAfter: 10 * time.Minute})
	answers := func(what string, holds func(u *Upgrade) bool) (u *Upgrade) {
		t.Helper()
		oracle.Until(t, what, func() (err error) {
			if u, err = i.Upgrade(t.Context()); err == nil && !holds(u) {
				err = fmt.Errorf("%+v", u)
			}
			return err
		})
		return u
	}
	u := answers("both are members", func(u *Upgrade) bool { return len(u.Members) == 2 && u.Format == 1 })
	if u.Speaks != 1 || !u.Rises.IsZero() {
		t.Errorf("while the older one is there: %+v", u)
	}
	stop()
	u = answers("the older one has left", func(u *Upgrade) bool { return len(u.Members) == 1 })
	if u.Format != 1 || u.Speaks != 2 || u.Rises.IsZero() {
		t.Errorf("the first answer after it has left: %+v", u)
	}

	oracle.Until(t, "all partitions are owned", i.Ready)
	raised := func() (formats []int) {
		for _, r := range oracle.Read(t, b.Brokers, topics.Journal) {
			if e, err := events.Decode[events.Event](r.Value); err != nil || e.Type == events.PartitionRaised {
				must(t, err)
				formats = append(formats, e.Format)
			}
		}
		return formats
	}
	if formats := raised(); len(formats) > 0 {
		t.Errorf("before its time partitions rose to %v", formats)
	}
	oracle.Until(t, "it is finished", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		return i.FinishUpgrade(ctx)
	})
	if formats := raised(); !slices.Equal(formats, slices.Repeat([]int{2}, partitions)) {
		t.Errorf("partitions rose to %v", formats)
	}
}

// speaks has what is made from now on be of a release that speaks this.
func speaks(t *testing.T, d Dialect) {
	own := OwnDialect
	OwnDialect = d
	t.Cleanup(func() { OwnDialect = own })
}

// As long as a member of an older release is in the group, nothing that it does not
// know is written or registered, and an operator is told which one it is.
func TestAnOlderReleaseInTheGroup(t *testing.T) {
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		topics, err := events.NewTopics(kafka.Namespace(t))
		must(t, err)
		_, err = CreateTopics(t.Context(), b.Admin(t), &topics, 4, 1)
		must(t, err)
		speaks(t, Dialect{OwnDialect.Format, 2, events.InputNames()})
		i, _ := runs(t, b, Config{ID: "i-1", Namespace: topics.Namespace})
		settled := func(n int) (u *Upgrade) {
			t.Helper()
			oracle.Until(t, fmt.Sprint(n, " members"), func() (err error) {
				if u, err = i.Upgrade(t.Context()); err == nil && len(u.Members) != n {
					err = fmt.Errorf("%+v", u.Members)
				}
				return err
			})
			return u
		}
		oracle.Until(t, "ready", i.Ready)
		u := settled(1)
		if m := u.Members[0]; m.Instance != "i-1" || m.Host == "" || m.Dialect.Format != OwnDialect.Format || m.Dialect.Language != OwnDialect.Language {
			t.Errorf("%+v", m)
		}
		oracle.Until(t, "its partitions are in a format", func() error {
			u, err := i.Upgrade(t.Context())
			if err == nil && (u.Format != OwnDialect.Format || u.Speaks != OwnDialect.Format) {
				err = fmt.Errorf("%+v", u)
			}
			return err
		})

		older := b.Client(t, kgo.ConsumerGroup(i.group.name()), kgo.ConsumeTopics(topics.Orders),
			kgo.Balancers(kgo.CooperativeStickyBalancer()), kgo.DisableAutoCommit())
		ctx, cancel := context.WithCancel(t.Context())
		polled := make(chan struct{})
		go func() {
			defer close(polled)
			for ctx.Err() == nil {
				older.PollFetches(ctx)
			}
		}()
		u = settled(2)
		if u.Speaks != 1 {
			t.Errorf("all speak format %d", u.Speaks)
		}
		id, _ := older.GroupMetadata()
		// The group may move once more: partitions that change their owner are given up
		// first, and given then.
		refused := func(what string, ask func() error) {
			t.Helper()
			var err error
			oracle.Until(t, what+": an answer", func() error {
				if err = ask(); errors.Is(err, ErrUnsettled) {
					return err
				}
				return nil
			})
			if !errors.Is(err, ErrOlderRelease) || !strings.Contains(err.Error(), id) {
				t.Errorf("%s: %v", what, err)
			}
		}
		flow := parseFlow(t, silentFlow)
		must(t, i.Register(t.Context(), flow))
		newer := parseFlow(t, strings.Replace(silentFlow, "workflow: silent", "workflow: newer", 1))
		i.catalogue.level = func(f *workflow.Workflow) int { return map[string]int{"silent": 1, "newer": 2}[f.Name] }
		refused("a workflow of a newer language", func() error { return i.Register(t.Context(), newer) })
		refused("a newer format", func() error {
			all, err := i.group.members(t.Context())
			if err != nil {
				return err
			}
			return allSpeak(all, "format 2", func(d *Dialect) bool { return d.Format >= 2 })
		})
		cancel()
		<-polled
		older.CloseAllowingRebalance()
		settled(1)
		oracle.Until(t, "it is finished", func() error { return i.FinishUpgrade(t.Context()) })
		must(t, i.Register(t.Context(), newer))
		var levels []string
		for _, r := range oracle.Read(t, b.Brokers, topics.Workflows) {
			levels = append(levels, string(r.Key)+" "+events.Header(r, headerLevel))
		}
		if want := []string{"silent@1 ", "newer@1 2"}; !slices.Equal(levels, want) {
			t.Errorf("registered are %q, and must be %q", levels, want)
		}
	})
}

// While members join or leave, Kafka tells of them without what they said, or of none.
// Nobody is taken for an old one or a new one then.
func TestAGroupThatIsNotSettled(t *testing.T) {
	b := kafka.Embedded(t)
	topics := onePartition(t, b)
	i, _ := runs(t, b, Config{ID: "i-1", Namespace: topics.Namespace})
	oracle.Until(t, "ready", i.Ready)
	for _, state := range []string{"PreparingRebalance", "CompletingRebalance", "Empty", "Dead", ""} {
		b.Fake.ControlKey(int16(kmsg.DescribeGroups), func(r kmsg.Request) (kmsg.Response, error, bool) {
			told := r.ResponseKind().(*kmsg.DescribeGroupsResponse)
			group := kmsg.NewDescribeGroupsResponseGroup()
			group.Group, group.State, group.ProtocolType = i.group.name(), state, "consumer"
			group.Members = append(group.Members, kmsg.NewDescribeGroupsResponseGroupMember())
			told.Groups = append(told.Groups, group)
			return told, nil, true
		})
		if all, err := i.group.members(t.Context()); !errors.Is(err, ErrUnsettled) {
			t.Errorf("%s: %+v, %v", state, all, err)
		}
	}
	all, err := i.group.members(t.Context())
	if err != nil || len(all) != 1 || all[0].Instance != "i-1" {
		t.Errorf("%+v, %v", all, err)
	}

	// Who owns nothing can finish no upgrade, and names who may.
	none := &Instance{cfg: Config{ID: "i-2"}, group: i.group, members: newMembership(nil, 1, slog.New(slog.DiscardHandler))}
	if err := none.FinishUpgrade(t.Context()); !errors.Is(err, ErrOwnsNone) || !strings.HasSuffix(err.Error(), "ask another: i-1") {
		t.Errorf("it is finished by nobody: %v", err)
	}
	unsettled := func(times int) {
		b.Fake.ControlKey(int16(kmsg.DescribeGroups), func(r kmsg.Request) (kmsg.Response, error, bool) {
			if times == 0 {
				return nil, nil, false
			}
			times--
			b.Fake.KeepControl()
			told := r.ResponseKind().(*kmsg.DescribeGroupsResponse)
			group := kmsg.NewDescribeGroupsResponseGroup()
			group.Group, group.State, group.ProtocolType = i.group.name(), "PreparingRebalance", "consumer"
			told.Groups = append(told.Groups, group)
			return told, nil, true
		})
	}
	unsettled(3)
	if err := i.Register(t.Context(), parseFlow(t, "{workflow: new, steps: [{name: a, agent: a, timeout: 1s, queue: 1s}]}")); err != nil {
		t.Errorf("who registers waits until the group is settled: %v", err)
	}
	unsettled(3)
	if format := i.upgrade.Newest(t.Context()); format != OwnDialect.Format {
		t.Errorf("a partition that nobody had before begins in format %d while instances start side by side", format)
	}
	unsettled(3)
	if u, err := i.Upgrade(t.Context()); err != nil || len(u.Members) != 1 {
		t.Errorf("who asks how far an upgrade is waits: %+v, %v", u, err)
	}
}
