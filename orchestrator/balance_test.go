package orchestrator

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// standings are members, each as "its partitions; how far behind it is", the latter left
// out by those of older releases.
func standings(members ...string) []standing {
	var all []standing
	for _, m := range members {
		has, behind, _ := strings.Cut(m, ";")
		s := standing{behind: strings.TrimSpace(behind)}
		for p := range strings.FieldsSeq(has) {
			s.has = append(s.has, int32(p[0]-'0'))
		}
		all = append(all, s)
	}
	return all
}

// Who gets which partition follows from what the members say.
func TestDeal(t *testing.T) {
	for _, c := range []struct {
		name       string
		members    []standing
		gets, next string // the member of each partition, - for nobody
	}{
		{"a new namespace", standings("; 0000", "; 0000"), "0101", "----"},
		{"a newcomer that knows nothing", standings("0 1 2 3; 0000", "; zzzz"), "0000", "11--"},
		{"it comes closer", standings("0 1 2 3; 0000", "; zz98"), "0000", "--11"},
		{"it is ready for one that it is to get", standings("0 1 2 3; 0000", "; zz91"), "0000", "--11"},
		{"it is ready for one", standings("0 1 2 3; 0000", "; zz90"), "0001", "--1-"},
		{"it is ready for all", standings("0 1 2 3; 0000", "; 0000"), "1100", "----"},
		{"nothing moves that need not", standings("1 3; 0000", "0 2; 0000"), "1010", "----"},
		{"nor for one more", standings("1 3 4; 00000", "0 2; 00000"), "10100", "-----"},
		{"what moves is of who has the most", standings("0 1; 000000", "2 3 4 5; 000000", "; 000000"), "002211", "------"},
		{"one without an owner goes to who is ready", standings("0; 0zzz", "1; z000"), "0111", "-0--"},
		{"of those who are, to who has less", standings("0 1; 0000", "; 0000"), "0011", "----"},
		{"if none is, to who is furthest", standings("; zzz9", "; zz8z", "; zzzz"), "0110", "2---"},
		{"of these, to who has less", standings("; 9999", "; 9999"), "0101", "----"},
		{"one that a cold owner has goes to who is ready", standings("0 1; 90", "; 00"), "10", "--"},
		{"also if that one has as many", standings("0; 9z", "1; 00"), "11", "0-"},
		{"but to nobody who is not", standings("0 1; 99", ";88"), "00", "1-"},
		{"older releases are ready for all", standings("0 1 2 3; 0000", ""), "1100", "----"},
		{"and own what they have", standings("0 1 2 3", "; zzzz"), "0000", "11--"},
		{"what cannot be read is not ready", standings("0 1; 00", "; -?"), "00", "1-"},
		{"partitions that were added", standings("0 1; 00", "; zz"), "001", "---"},
		{"of two that claim one, the newer does", []standing{{has: []int32{0, 1}, generation: 4, behind: "00"}, {has: []int32{1}, generation: 5, behind: "00"}}, "01", "--"},
		{"whichever comes first", []standing{{has: []int32{1}, generation: 5, behind: "00"}, {has: []int32{0, 1}, generation: 4, behind: "00"}}, "10", "--"},
		{"what nobody knows is not dealt", standings("0 7; 00", "; 00"), "01", "--"},
	} {
		t.Run(c.name, func(t *testing.T) {
			gets, next := deal(len(c.gets), c.members)
			if g, n := dealtAs(gets), dealtAs(next); g != c.gets || n != c.next {
				t.Errorf("dealt %s, next %s; must be %s, next %s", g, n, c.gets, c.next)
			}
		})
	}
}

func dealtAs(owner []int) string {
	var b strings.Builder
	for _, m := range owner {
		if m == nobody {
			b.WriteByte('-')
		} else {
			fmt.Fprint(&b, m)
		}
	}
	return b.String()
}

// Whatever the members say: every partition is dealt; one that has an owner goes only to
// who is ready for it; as few move as must; and nothing moves that was dealt, if all say the
// same again. Once all are ready they share evenly.
func TestDealProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		partitions := rapid.IntRange(1, 12).Draw(t, "partitions")
		members := make([]standing, rapid.IntRange(1, 5).Draw(t, "members"))
		owner := make([]int, partitions)
		for p := range owner {
			if owner[p] = rapid.IntRange(nobody, len(members)-1).Draw(t, "owner"); owner[p] != nobody {
				members[owner[p]].has = append(members[owner[p]].has, int32(p))
			}
		}
		for m := range members {
			if rapid.IntRange(0, 5).Draw(t, "older") == 0 {
				continue
			}
			for range partitions {
				members[m].behind += rapid.SampledFrom([]string{"0", "0", "9", "k", "z"}).Draw(t, "behind")
			}
		}
		gets, next := deal(partitions, members)
		load := make([]int, len(members))
		for p, m := range gets {
			if m == nobody {
				t.Fatalf("partition %d is nobody's", p)
			}
			load[m]++
			ready := slices.ContainsFunc(members, func(s standing) bool { return s.step(p) == 0 })
			if ready && members[m].step(p) > 0 {
				t.Fatalf("partition %d goes to %d, who is not ready", p, m)
			}
			if !ready && owner[p] != nobody && m != owner[p] {
				t.Fatalf("partition %d leaves %d, and nobody is ready", p, owner[p])
			}
			if !ready && slices.ContainsFunc(members, func(s standing) bool { return owner[p] == nobody && s.step(p) < members[m].step(p) }) {
				t.Fatalf("partition %d has no owner, and does not go to who is furthest", p)
			}
			if next[p] != nobody && members[next[p]].step(p) == 0 {
				t.Fatalf("partition %d is to go to %d next, who is ready", p, next[p])
			}
		}
		for p, m := range gets {
			for to := range members {
				if members[to].step(p) == 0 && load[m] > load[to]+1 {
					t.Fatalf("%d has %d, and %d has %d and is ready for %d", m, load[m], to, load[to], p)
				}
			}
		}
		for m := range members {
			members[m].has = nil
		}
		for p, m := range gets {
			members[m].has = append(members[m].has, int32(p))
		}
		if again, _ := deal(partitions, members); !slices.Equal(again, gets) {
			t.Fatalf("dealt %v, and then %v", gets, again)
		}
		for m := range members {
			members[m].behind = ""
		}
		even, none := deal(partitions, members)
		moved := 0
		for p := range even {
			if even[p] != gets[p] {
				moved++
			}
			if none[p] != nobody {
				t.Fatalf("all are ready, and %d is to get %d", none[p], p)
			}
		}
		least, excess := partitions/len(members), 0
		slices.Sort(load)
		for n, has := range load { // who has the most keep one more, as far as there is one
			if fair := least + b2i(n >= len(load)-partitions%len(load)); has > fair {
				excess += has - fair
			}
		}
		if moved != excess {
			t.Fatalf("%d moved so that all are even, and %d must: %v, then %v", moved, excess, gets, even)
		}
	})
}

// A member hears from the leader what it gets, and what it is to get next; one of an older
// release hears the former. What moves is given to nobody before its owner has given it
// up, and then to who was to have it.
func TestTheLeaderDeals(t *testing.T) {
	const topic = "waybill.orders"
	behind, nexts := "000000", [][]int32{}
	plain := kgo.CooperativeStickyBalancer()
	tells := telling{plain, topic, func() told { return told{Instance: "i", Dialect: OwnDialect, Behind: behind} }, func(next []int32) { nexts = append(nexts, next) }}
	joins := func(id string, b kgo.GroupBalancer, has ...int32) kmsg.JoinGroupResponseMember {
		return kmsg.JoinGroupResponseMember{MemberID: id, ProtocolMetadata: b.JoinGroupMetadata([]string{topic}, map[string][]int32{topic: has}, 5)}
	}
	hears := func(b kgo.GroupBalancer, given kmsg.SyncGroupRequestGroupAssignment) string {
		gets, err := b.ParseSyncAssignment(given.MemberAssignment)
		must(t, err)
		return fmt.Sprint(gets[topic])
	}
	deals := func(members ...kmsg.JoinGroupResponseMember) []kmsg.SyncGroupRequestGroupAssignment {
		return leads(t, tells, members, 6)
	}
	warm := joins("a", tells, 0, 1, 2, 3, 4, 5)
	behind = "zzzzzz"
	cold := joins("b", tells)
	given := deals(warm, cold)
	if a, b := hears(tells, given[0]), hears(tells, given[1]); a != "[0 1 2 3 4 5]" || b != "[]" || fmt.Sprint(nexts) != "[[] [0 1 2]]" {
		t.Errorf("while one knows nothing they get %s and %s, and next %v", a, b, nexts)
	}
	if a, b := hears(plain, given[0]), hears(plain, given[1]); a != "[0 1 2 3 4 5]" || b != "[]" {
		t.Errorf("members of an older release hear %s and %s", a, b)
	}
	behind, nexts = "000zzz", nil
	given = deals(warm, joins("b", tells))
	if a, b := hears(tells, given[0]), hears(tells, given[1]); a != "[3 4 5]" || b != "[]" || fmt.Sprint(nexts) != "[[] []]" {
		t.Errorf("when it is ready they get %s and %s at first, and next %v", a, b, nexts)
	}
	ready := joins("b", tells)
	behind = "000000"
	given = deals(joins("a", tells, 3, 4, 5), ready)
	if a, b := hears(tells, given[0]), hears(tells, given[1]); a != "[3 4 5]" || b != "[0 1 2]" {
		t.Errorf("then they get %s and %s", a, b)
	}
	given = deals(joins("a", plain, 0, 1, 2, 3, 4, 5), joins("b", plain))
	if a, b := hears(plain, given[0]), hears(plain, given[1]); a != "[3 4 5]" || b != "[]" {
		t.Errorf("of older releases they get %s and %s at first", a, b)
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
