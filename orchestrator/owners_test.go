package orchestrator

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-dev/waybill/orchestrator/proof"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/oracle"
)

func TestAnAddressThatNobodyBelieves(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := New(over, Config{ID: "i", AdvertiseURL: "http://me:secret@waybill-1"}); err == nil || !strings.Contains(err.Error(), "advertised") {
		t.Errorf("an instance with a wrong address: %v", err)
	}
}

// A member tells its address behind what members of before read, who pass over it, as it passes over nothing of theirs.
func TestMembersTellTheirAddresses(t *testing.T) {
	tells := telling{GroupBalancer: kgo.CooperativeStickyBalancer(), told: func() told {
		return told{Instance: "i-1", Dialect: OwnDialect, Behind: "0a", URL: "http://i-1:8080", URLProof: "k.x"}
	}}
	var metadata kmsg.ConsumerMemberMetadata
	must(t, metadata.ReadFrom(tells.JoinGroupMetadata([]string{"waybill.orders"}, nil, 5)))
	if h := heard(metadata.UserData); h.URL != "http://i-1:8080" || h.URLProof != "k.x" {
		t.Errorf("heard is %+v", h)
	}
	var before struct { // as the release before has it
		Instance string `json:"instance"`
		Dialect
		Behind string `json:"behind,omitempty"`
	}
	_, says, _ := strings.Cut(string(metadata.UserData), string(dialectMark))
	must(t, json.Unmarshal([]byte(says), &before))
	if before.Instance != "i-1" || before.Behind != "0a" || before.Format != OwnDialect.Format {
		t.Errorf("a member of before hears %+v", before)
	}
	must(t, metadata.ReadFrom(telling{GroupBalancer: kgo.CooperativeStickyBalancer(), told: func() told { return told{Instance: "i-1"} }}.JoinGroupMetadata(nil, nil, 5)))
	if strings.Contains(string(metadata.UserData), "url") {
		t.Errorf("a member without an address tells %s", metadata.UserData)
	}
}

// What the group says of addresses is believed if it is one, and, where the namespace has keys, if one of them vouches for it.
func TestWhoseAddressIsBelieved(t *testing.T) {
	b := kafka.Embedded(t)
	topics := onePartition(t, b)
	var keys *proof.Keys
	i, _ := runs(t, b, Config{ID: "i-1", Namespace: topics.Namespace, AdvertiseURL: "http://i-1:8080", Keys: func() *proof.Keys { return keys }})
	oracle.Until(t, "ready", i.Ready)
	all, err := i.group.members(t.Context())
	if err != nil || len(all) != 1 || all[0].URL != "http://i-1:8080" || len(all[0].given) != 1 {
		t.Fatalf("the group has %+v, %v", all, err)
	}

	signs := proof.New([]proof.Key{{ID: "k", Secret: []byte("secret")}}, proof.Off, nil)
	others := []struct {
		told
		plain, vouched string // what is believed without keys, and with them
	}{
		{told{Instance: "older"}, "", ""},
		{told{Instance: "a", URL: "http://a:8080"}, "http://a:8080", ""},
		{told{Instance: "b", URL: "http://b:8080", URLProof: signs.Vouch(topics.Namespace, "b", "http://b:8080")}, "http://b:8080", "http://b:8080"},
		{told{Instance: "c", URL: "http://c:8080", URLProof: signs.Vouch(topics.Namespace, "b", "http://b:8080")}, "http://c:8080", ""},
		{told{Instance: "d", URL: "javascript:alert(1)", URLProof: signs.Vouch(topics.Namespace, "d", "javascript:alert(1)")}, "", ""},
		{told{Instance: "e", URL: "http://me:secret@e", URLProof: signs.Vouch(topics.Namespace, "e", "http://me:secret@e")}, "", ""},
		{told{Instance: "f", URL: "ftp://f", URLProof: signs.Vouch(topics.Namespace, "f", "ftp://f")}, "", ""},
	}
	for _, with := range []bool{false, true} {
		if keys = nil; with {
			keys = signs
		}
		b.Fake.ControlKey(int16(kmsg.DescribeGroups), func(r kmsg.Request) (kmsg.Response, error, bool) {
			answer := r.ResponseKind().(*kmsg.DescribeGroupsResponse)
			group := kmsg.NewDescribeGroupsResponseGroup()
			group.Group, group.State, group.ProtocolType = i.group.name(), "Stable", "consumer"
			for n := range others {
				m := kmsg.NewDescribeGroupsResponseGroupMember()
				m.ProtocolMetadata = telling{GroupBalancer: kgo.CooperativeStickyBalancer(), told: func() told { return others[n].told }}.JoinGroupMetadata([]string{topics.Orders}, nil, 1)
				group.Members = append(group.Members, m)
			}
			answer.Groups = append(answer.Groups, group)
			return answer, nil, true
		})
		all, err := i.group.members(t.Context())
		must(t, err)
		for n, o := range others {
			want := o.plain
			if with {
				want = o.vouched
			}
			if all[n].URL != want {
				t.Errorf("with keys: %t: of %s the address %q is believed, and must be %q", with, o.Instance, all[n].URL, want)
			}
		}
	}
}

// The group is asked once it has dealt, and again until it tells. What it dealt before holds meanwhile. An address of this
// instance leads nobody back to it.
func TestWhoOwnsIsKnownOnceItIsDealt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []Member
		var failure error
		asked := 0
		var log strings.Builder
		o := &owners{name: "me", own: "http://me", log: slog.New(slog.NewTextHandler(&log, nil)), dealt: make(chan struct{}, 1), members: func(context.Context) ([]Member, error) {
			asked++
			return all, failure
		}}
		ctx, cancel := context.WithCancel(t.Context())
		go o.run(ctx)
		synctest.Wait()
		if asked != 0 || o.of(0) != "" {
			t.Errorf("nothing was dealt, and the group was asked %d times", asked)
		}
		all = []Member{{URL: "http://a", given: []int32{0, 2}}, {Instance: "me", URL: "http://me", given: []int32{1}}, {given: []int32{3}}}
		o.hears()
		o.hears()
		synctest.Wait()
		for p, want := range []string{"http://a", "", "http://a", "", ""} {
			if got := o.of(int32(p)); got != want {
				t.Errorf("partition %d is at %q, and must be at %q", p, got, want)
			}
		}
		failure, all = errors.New("Kafka is away"), nil
		o.hears()
		synctest.Wait()
		if o.of(0) != "http://a" {
			t.Error("what was dealt before is forgotten")
		}
		failure, all = nil, []Member{{URL: "http://b", given: []int32{0}}}
		oracle.Until(t, "it is asked again", func() error {
			if o.of(0) != "http://b" {
				return errors.New(o.of(0))
			}
			return nil
		})
		if o.of(2) != "" {
			t.Error("partition 2 is nobody's, and is said to be somewhere")
		}

		// Who advertises this one's address is no owner that can be named, and that is said once, as long as it does.
		if log.Len() > 0 {
			t.Errorf("nobody shares the address, and the log has %s", &log)
		}
		sharing := []Member{{Instance: "me", URL: "http://me", given: []int32{0}}, {Instance: "other", URL: "http://ME:80", given: []int32{1}}, {Instance: "third", URL: "http://c", given: []int32{2}}}
		i := &Instance{owners: o}
		for _, c := range []struct {
			all  []Member
			said int
		}{{sharing, 1}, {sharing, 1}, {sharing[:1], 1}, {sharing, 2}} {
			all = c.all
			o.hears()
			synctest.Wait()
			if n := strings.Count(log.String(), `level=WARN msg="another instance advertises`); n != c.said || strings.Count(log.String(), "instance=other address=http://me") != c.said {
				t.Errorf("it is said %d times, and must be %d times: %s", n, c.said, &log)
			}
			if others := len(c.all) > 1; i.SharesAddress(0) || i.SharesAddress(1) != others || i.SharesAddress(2) || o.of(1) != "" || (o.of(2) == "http://c") != others {
				t.Errorf("with %d members: %+v", len(c.all), o)
			}
		}
		cancel()
		synctest.Wait()
	})
}
