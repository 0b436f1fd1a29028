package orchestrator

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/oracle"
)

func (a Attendance) String() string {
	text := [2]string{"?", "?"}
	if a.Members != nil {
		text[0] = fmt.Sprint(*a.Members)
	}
	if a.Behind != nil {
		text[1] = fmt.Sprint(*a.Behind)
	}
	return text[0] + " members, " + text[1] + " behind"
}

// Kafka says who reads an agent's requests: nobody, one that has yet to answer, one that has
// answered all, and one without a topic.
func TestAttendance(t *testing.T) {
	t.Parallel()
	b := kafka.Embedded(t)
	topics := onePartition(t, b)
	i, _ := runs(t, b, Config{ID: "i-1", Namespace: topics.Namespace})
	oracle.Until(t, "ready", i.Ready)
	must(t, i.Register(t.Context(), parseFlow(t, twoAgents)))
	until := func(agent, want string) {
		t.Helper()
		oracle.Until(t, agent+" has "+want, func() error {
			if a := i.attend(t.Context(), []string{"phone", "pigeon", "nobody"})[agent]; a.String() != want {
				return fmt.Errorf("it has %s", a)
			}
			return nil
		})
	}
	until("phone", "0 members, 0 behind")
	until("nobody", "0 members, ? behind")
	_, err := i.Submit(t.Context(), "o-1", &events.Submission{Workflow: "two"}, Context{}, nil)
	must(t, err)
	until("phone", "0 members, 1 behind")

	phone := b.Client(t, kgo.ConsumerGroup(topics.Namespace+".agent.phone"), kgo.ConsumeTopics(topics.Requests("phone")),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.DisableAutoCommit())
	read := phone.PollFetches(t.Context())
	must(t, read.Err())
	until("phone", "1 members, 1 behind")
	until("pigeon", "0 members, 0 behind")
	must(t, phone.CommitRecords(t.Context(), read.Records()...))
	until("phone", "1 members, 0 behind") // but for the marker of the transaction
	phone.Close()
	until("phone", "0 members, 0 behind")

	// A thousand are one question of each kind.
	asked := make(map[int16]*atomic.Int32)
	for _, kind := range []kmsg.Key{kmsg.DescribeGroups, kmsg.ConsumerGroupDescribe, kmsg.OffsetFetch} {
		n := new(atomic.Int32)
		asked[int16(kind)] = n
		b.Fake.ControlKey(int16(kind), func(r kmsg.Request) (kmsg.Response, error, bool) {
			b.Fake.KeepControl()
			if d, is := r.(*kmsg.DescribeGroupsRequest); !is || len(d.Groups) > 1 { // else the instance asks of its own
				n.Add(1)
			}
			return nil, nil, false
		})
	}
	many := []string{"phone"}
	for n := range 1000 {
		many = append(many, fmt.Sprint("a-", n))
	}
	all := i.attend(t.Context(), many)
	if len(all) != len(many) || all["phone"].String() != "0 members, 0 behind" || all["a-999"].String() != "0 members, ? behind" {
		t.Errorf("of %d: %s, %s", len(all), all["phone"], all["a-999"])
	}
	for kind, n := range asked {
		if n := int(n.Load()); n == 0 || n > len(b.Brokers) {
			t.Errorf("%s was asked %d times", kmsg.NameForKey(kind), n)
		}
	}

	// What was said is given again for a while.
	was := map[string]Attendance{"phone": {}}
	i.attendance.mu.Lock()
	i.attendance.said, i.attendance.until = was, time.Now().Add(time.Hour)
	i.attendance.mu.Unlock()
	if got := i.Attendance(t.Context())["phone"]; got.Members != nil {
		t.Errorf("it was asked again, and says %s", got)
	}
	i.attendance.mu.Lock()
	i.attendance.until = time.Time{}
	i.attendance.mu.Unlock()
	if got := i.Attendance(t.Context())["phone"]; got.Members == nil {
		t.Errorf("it was not asked again, and says %s", got)
	}

	// Nothing is made up where there is no answer in time, and the rest is told.
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if got := i.attend(gone, []string{"phone"})["phone"]; got.String() != "? members, ? behind" {
		t.Errorf("without an answer it has %s", got)
	}
	for _, at := range []struct {
		kind kmsg.Key
		want string
	}{{kmsg.DescribeGroups, "? members, 0 behind"}, {kmsg.OffsetFetch, "0 members, ? behind"}, {kmsg.ListOffsets, "0 members, ? behind"}} {
		var over atomic.Bool
		b.Fake.ControlKey(int16(at.kind), func(q kmsg.Request) (kmsg.Response, error, bool) {
			if over.Load() {
				return nil, nil, false
			}
			b.Fake.KeepControl()
			return refuses(q), nil, true
		})
		if got := i.attend(t.Context(), []string{"phone"})["phone"]; got.String() != at.want {
			t.Errorf("where %s is refused it has %s, and not %s", kmsg.NameForKey(int16(at.kind)), got, at.want)
		}
		over.Store(true)
	}

	// Nor is anybody held up who asks where Kafka never answers.
	held := make(chan struct{})
	b.Fake.ControlKey(int16(kmsg.DescribeGroups), func(kmsg.Request) (kmsg.Response, error, bool) {
		b.Fake.SleepControl(func() { <-held })
		return nil, nil, false
	})
	i.attendance.mu.Lock()
	i.attendance.until = time.Time{}
	i.attendance.mu.Unlock()
	got := i.Attendance(t.Context())["phone"]
	close(held)
	if got.Members != nil {
		t.Errorf("without an answer it has %s", got)
	}
}

// refuses is the answer of a broker that does not let the caller ask.
func refuses(q kmsg.Request) kmsg.Response {
	answer := q.ResponseKind()
	switch q := q.(type) {
	case *kmsg.DescribeGroupsRequest:
		for _, group := range q.Groups {
			answer := answer.(*kmsg.DescribeGroupsResponse)
			answer.Groups = append(answer.Groups, kmsg.DescribeGroupsResponseGroup{Group: group, ErrorCode: kerr.GroupAuthorizationFailed.Code})
		}
	case *kmsg.OffsetFetchRequest:
		answer := answer.(*kmsg.OffsetFetchResponse)
		for _, g := range q.Groups {
			answer.Groups = append(answer.Groups, kmsg.OffsetFetchResponseGroup{Group: g.Group, ErrorCode: kerr.GroupAuthorizationFailed.Code})
		}
	case *kmsg.ListOffsetsRequest:
		answer := answer.(*kmsg.ListOffsetsResponse)
		for _, topic := range q.Topics {
			says := kmsg.ListOffsetsResponseTopic{Topic: topic.Topic}
			for _, p := range topic.Partitions {
				says.Partitions = append(says.Partitions, kmsg.ListOffsetsResponseTopicPartition{Partition: p.Partition, ErrorCode: kerr.TopicAuthorizationFailed.Code})
			}
			answer.Topics = append(answer.Topics, says)
		}
	}
	return answer
}

// A group of the newer protocol is none of the older one's.
func TestAttendanceOfAConsumerGroup(t *testing.T) {
	t.Parallel()
	b := kafka.Embedded(t)
	i := &Instance{client: b.Client(t)}
	b.Fake.ControlKey(int16(kmsg.ConsumerGroupDescribe), func(q kmsg.Request) (kmsg.Response, error, bool) {
		b.Fake.KeepControl()
		answer := q.ResponseKind().(*kmsg.ConsumerGroupDescribeResponse)
		for _, group := range q.(*kmsg.ConsumerGroupDescribeRequest).Groups {
			g := kmsg.ConsumerGroupDescribeResponseGroup{Group: group, ErrorCode: kerr.GroupIDNotFound.Code}
			if group == "new" {
				g.ErrorCode, g.Members = 0, make([]kmsg.ConsumerGroupDescribeResponseGroupMember, 2)
			}
			answer.Groups = append(answer.Groups, g)
		}
		return answer, nil, true
	})
	if got := i.groupMembers(t.Context(), []string{"new", "none"}); len(got) != 2 || got["new"] != 2 || got["none"] != 0 {
		t.Errorf("they have %v", got)
	}
}
