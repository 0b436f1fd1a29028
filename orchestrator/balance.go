package orchestrator

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// standing is what the leader of the group knows of a member.
type standing struct {
	has        []int32 // the partitions that it owns
	generation int32   // of the group, when it got them
	behind     string  // see [told]
}

// nobody owns a partition.
const nobody = -1

// step is how far the member is behind in partition p, in the steps of [stepOf]. One
// that says nothing of p is of an older release, or p was added to the topic: it counts
// as ready.
func (s *standing) step(p int) int {
	if p >= len(s.behind) {
		return 0
	}
	step, err := strconv.ParseUint(s.behind[p:p+1], 36, 8)
	if err != nil {
		return farthest
	}
	return int(step)
}

// deal says for each partition which member gets it, and which one is to get it next,
// once it is ready for it; nobody where that is all.
//
//   - A partition without an owner goes to the member that is furthest in it, and so does
//     one whose owner is not ready, if another is.
//   - One that has an owner goes to nobody else who is not ready for it.
//   - As far as that allows each has as many as the others, and no more move than must.
func deal(partitions int, members []standing) (gets, next []int) {
	d := dealing{members, make([]int, partitions), make([]int, len(members))}
	claimed := make([]int32, partitions)
	for p := range d.owner {
		d.owner[p] = nobody
	}
	for m := range members {
		for _, p := range members[m].has {
			// Of two claims the older one is of a member that missed something.
			if int(p) < partitions && (d.owner[p] == nobody || members[m].generation > claimed[p]) {
				d.give(int(p), m)
				claimed[p] = members[m].generation
			}
		}
	}
	for p, owner := range d.owner {
		if best := d.furthest(p); owner == nobody || members[owner].step(p) > 0 && members[best].step(p) == 0 {
			d.give(p, best)
		}
	}
	d.level(func(m, p int) bool { return members[m].step(p) == 0 })
	gets = slices.Clone(d.owner)
	d.level(func(int, int) bool { return true })
	next = d.owner
	for p := range next {
		if next[p] == gets[p] {
			next[p] = nobody
		}
	}
	return gets, next
}

// dealing is a deal that is under way.
type dealing struct {
	members []standing
	owner   []int // of each partition
	load    []int // of each member
}

func (d *dealing) give(p, to int) {
	if was := d.owner[p]; was != nobody {
		d.load[was]--
	}
	d.owner[p] = to
	d.load[to]++
}

// furthest is the member that is the least behind in p; of several, the one that has
// the fewest partitions.
func (d *dealing) furthest(p int) int {
	best := 0
	for m := range d.members {
		if step, least := d.members[m].step(p), d.members[best].step(p); step < least || step == least && d.load[m] < d.load[best] {
			best = m
		}
	}
	return best
}

// level has partitions move, each to a member that may have it, until none has two
// more than another who may have one of them.
func (d *dealing) level(may func(m, p int) bool) {
	for moves := true; moves; {
		byLoad := make([]int, len(d.members))
		for m := range byLoad {
			byLoad[m] = m
		}
		slices.SortStableFunc(byLoad, func(a, b int) int { return d.load[a] - d.load[b] })
		moves = slices.ContainsFunc(byLoad, func(to int) bool {
			p := d.pick(to, may)
			if p != nobody {
				d.give(p, to)
			}
			return p != nobody
		})
	}
}

// pick is the partition that a member is to get: of those who have the most, the one
// that it knows best. So it is the same one again while it comes closer.
func (d *dealing) pick(to int, may func(m, p int) bool) int {
	best, most := nobody, d.load[to]+2
	for p, from := range d.owner {
		if d.load[from] < most || !may(to, p) {
			continue
		}
		if best == nobody || d.load[from] > most || d.members[to].step(p) < d.members[to].step(best) {
			best, most = p, d.load[from]
		}
	}
	return best
}

// MemberBalancer implements [kgo.GroupBalancer]: it is asked if this member leads the
// group.
func (t telling) MemberBalancer(members []kmsg.JoinGroupResponseMember) (kgo.GroupMemberBalancer, map[string]struct{}, error) {
	b, err := kgo.NewConsumerBalancer(t, members)
	return b, b.MemberTopics(), err
}

// Balance implements [kgo.ConsumerBalancerBalance].
func (t telling) Balance(b *kgo.ConsumerBalancer, topics map[string]int32) kgo.IntoSyncAssignment {
	var members []standing
	b.EachMember(func(_ *kmsg.JoinGroupResponseMember, meta *kmsg.ConsumerMemberMetadata) {
		s := standing{generation: meta.Generation, behind: heard(meta.UserData).Behind}
		for _, of := range meta.OwnedPartitions {
			if of.Topic == t.topic {
				s.has = append(s.has, of.Partitions...)
			}
		}
		members = append(members, s)
	})
	given := dealt{b.NewPlan(), make(map[string][]int32)}
	gets, next := deal(int(topics[t.topic]), members)
	for p := range gets {
		to, _ := b.MemberAt(gets[p])
		given.AddPartition(to, t.topic, int32(p))
		if next[p] != nobody {
			to, _ := b.MemberAt(next[p])
			given.next[to.MemberID] = append(given.next[to.MemberID], int32(p))
		}
	}
	given.AdjustCooperative(b) // what moves is nobody's until its owner has given it up
	return given
}

// dealt is what the members get, and what each is to get next.
type dealt struct {
	*kgo.BalancePlan
	next map[string][]int32
}

// nextMark stands before what a member is to get next in what it is given.
var nextMark = []byte("\x00waybill-next:")

// IntoSyncAssignment implements [kgo.IntoSyncAssignment].
func (d dealt) IntoSyncAssignment() []kmsg.SyncGroupRequestGroupAssignment {
	all := d.BalancePlan.IntoSyncAssignment()
	for n := range all {
		var given kmsg.ConsumerMemberAssignment
		says, err := json.Marshal(d.next[all[n].MemberID])
		if len(d.next[all[n].MemberID]) == 0 || err != nil || given.ReadFrom(all[n].MemberAssignment) != nil {
			continue // an older release reads no more than that either
		}
		given.UserData = slices.Concat(nextMark, says)
		all[n].MemberAssignment = given.AppendTo(nil)
	}
	return all
}

// ParseSyncAssignment implements [kgo.GroupBalancer].
func (t telling) ParseSyncAssignment(assignment []byte) (map[string][]int32, error) {
	var given kmsg.ConsumerMemberAssignment
	var next []int32
	if given.ReadFrom(assignment) == nil {
		if says, found := bytes.CutPrefix(given.UserData, nextMark); found && json.Unmarshal(says, &next) != nil {
			next = nil // then it waits until others move
		}
	}
	t.next(next)
	return t.GroupBalancer.ParseSyncAssignment(assignment)
}
