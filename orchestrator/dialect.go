package orchestrator

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/address"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

// Dialect is what a release of Waybill reads and writes.
type Dialect struct {
	// Format is the newest format of a partition that it knows: see
	// [events.JournalFormat].
	Format int `json:"format"`
	// Language is the newest level of the workflow language that it runs: see
	// [workflow.Level].
	Language int `json:"language"`
	// Inputs are the topics that its lanes read, without the namespace.
	Inputs []string `json:"inputs"`
}

// OwnDialect is the one that runs.
var OwnDialect = Dialect{events.JournalFormat, workflow.Level, events.InputNames()}

// firstDialect is what a member speaks that says nothing of it: one of the
// releases before there was something to say.
var firstDialect = Dialect{1, 1, []string{"orders", "replies", "commands"}}

// dialectMark stands before a [Dialect] in what a member tells the group, behind
// the data of the assignor, which reads no further than its own.
var dialectMark = []byte("\x00waybill:")

// telling is the assignor that all releases use, under its name. It tells the group
// the member's release, and how far it is; and it deals by that, see [deal].
type telling struct {
	kgo.GroupBalancer
	topic string             // whose partitions are dealt
	told  func() told        // what the member tells now
	next  func(next []int32) // hears which partitions the member is to get next
}

// JoinGroupMetadata implements [kgo.GroupBalancer].
func (t telling) JoinGroupMetadata(topics []string, has map[string][]int32, generation int32) []byte {
	plain := t.GroupBalancer.JoinGroupMetadata(topics, has, generation)
	var member kmsg.ConsumerMemberMetadata
	says, err := json.Marshal(t.told())
	if err != nil || member.ReadFrom(plain) != nil {
		return plain // whoever reads it takes the member for an old one, which is safe
	}
	member.UserData = slices.Concat(member.UserData, dialectMark, says)
	return member.AppendTo(nil)
}

// Member is an instance as the group knows it.
type Member struct {
	// Instance is its name. A member of an older release tells none: then it is the
	// id that Kafka gave it.
	Instance string  `json:"instance"`
	Host     string  `json:"host"`
	Dialect  Dialect `json:"dialect"`
	// URL is where it is asked, if it told, and with keys of the namespace if one of them vouches for that.
	URL   string  `json:"url,omitempty"`
	given []int32 // the partitions that the group gives it
}

// told is what a member tells the group of itself.
type told struct {
	Instance string `json:"instance"`
	Dialect
	// Behind is how far it is behind in each partition, a digit of base 36 for each; see
	// [stepOf]. A member of an older release leaves it out.
	Behind string `json:"behind,omitempty"`
	// URL is where others ask it, left out if they cannot, and URLProof what [proof.Keys.Vouch] says of it. Older members
	// tell neither, and do not read them.
	URL      string `json:"url,omitempty"`
	URLProof string `json:"urlProof,omitempty"`
}

// heard reads what a member told the group.
func heard(data []byte) told {
	_, says, found := bytes.Cut(data, dialectMark)
	t := told{}
	if !found || json.Unmarshal(says, &t) != nil {
		return told{Dialect: firstDialect}
	}
	return t
}

// ErrUnsettled says that members join or leave the group at the moment.
var ErrUnsettled = errors.New("the group is not settled: members join or leave; try again")

// members asks Kafka who is in the group. It fails with [ErrUnsettled] while that
// changes.
func (g *group) members(ctx context.Context) ([]Member, error) {
	described, err := kadm.NewClient(g.client).DescribeGroups(ctx, g.name())
	if err == nil {
		err = described.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("ask who is in the group %s: %w", g.name(), err)
	}
	now := described[g.name()]
	if now.State != "Stable" {
		return nil, ErrUnsettled
	}
	all := make([]Member, len(now.Members))
	for i, m := range now.Members {
		all[i] = Member{Instance: m.MemberID, Host: strings.TrimPrefix(m.ClientHost, "/"), Dialect: firstDialect}
		if consumer, ok := m.Join.AsConsumer(); ok {
			t := heard(consumer.UserData)
			all[i].Instance, all[i].Dialect = cmp.Or(t.Instance, m.MemberID), t.Dialect
			if _, err := address.Advertised(t.URL); err == nil && g.keys().Vouches(g.topics.Namespace, t.Instance, t.URL, t.URLProof) {
				all[i].URL = t.URL
			}
		}
		if given, ok := m.Assigned.AsConsumer(); ok {
			for _, of := range given.Topics {
				if of.Topic == g.topics.Orders {
					all[i].given = append(all[i].given, of.Partitions...)
				}
			}
		}
	}
	return all, nil
}

// settled asks like members, for somebody who waits for it: it asks on while members
// join or leave, as they do for a moment after each start, for settling at most.
func (g *group) settled(ctx context.Context) ([]Member, error) {
	for begin := time.Now(); ; {
		all, err := g.members(ctx)
		if !errors.Is(err, ErrUnsettled) || time.Since(begin) > settling || !pause(ctx, 100*time.Millisecond) {
			return all, err
		}
	}
}

// settling is how long who asks for something waits for the group: longer than members
// need who are there, and shorter than callers wait for an answer.
const settling = 10 * time.Second

// spoken is the format that all members speak, 0 if there are none.
func spoken(all []Member) int {
	if len(all) == 0 {
		return 0
	}
	return slices.MinFunc(all, func(a, b Member) int { return a.Dialect.Format - b.Dialect.Format }).Dialect.Format
}

// ErrOlderRelease says that a member of the group is of a release that does not
// know what is asked for.
var ErrOlderRelease = errors.New("an older release is still there")

// allSpeak fails with [ErrOlderRelease] and those that do not speak what is needed.
func allSpeak(all []Member, needs string, speaks func(d *Dialect) bool) error {
	var older []string
	for i := range all {
		if !speaks(&all[i].Dialect) {
			older = append(older, fmt.Sprintf("%s at %s", all[i].Instance, all[i].Host))
		}
	}
	if len(older) > 0 {
		return fmt.Errorf("%w: %s is not known to %s; upgrade it first", ErrOlderRelease, needs, strings.Join(older, ", "))
	}
	return nil
}
