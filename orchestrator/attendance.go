package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Attendance is what Kafka says of who reads an agent's requests. What it did not say, or
// this instance may not ask, is nil.
type Attendance struct {
	// Members is how many its consumer group has, 0 if there is no such group.
	Members *int
	// Behind is how many records of its request topic its group has not committed, roughly: markers
	// of transactions that are among them count, but for the last of each partition.
	Behind *int64
}

const (
	// attendanceLasts is for how long an answer is given again.
	attendanceLasts = 2 * time.Second
	// attendancePatience bounds how long Kafka is waited for.
	attendancePatience = 2 * time.Second
)

// lasting is what Kafka said last, and is said again for a while. Who asks meanwhile waits for the answer.
type lasting[T any] struct {
	mu    sync.Mutex
	said  T
	until time.Time // when to ask again
}

// get asks, if it is time to, for no longer than Kafka is waited for.
func (l *lasting[T]) get(ctx context.Context, ask func(context.Context) T) T {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Now().After(l.until) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), attendancePatience) // others have its answer, too
		defer cancel()
		l.said = ask(ctx)
		l.until = time.Now().Add(attendanceLasts)
	}
	return l.said
}

// Attendance is that of all agents that workflows name, by name, no older than four seconds.
// Kafka is waited for no longer than two; of what it has not answered by then nothing is known.
func (i *Instance) Attendance(ctx context.Context) map[string]Attendance {
	return i.attendance.get(ctx, func(ctx context.Context) map[string]Attendance { return i.attend(ctx, i.AgentNames(nil)) })
}

// attend asks Kafka about all of the agents at once.
func (i *Instance) attend(ctx context.Context, agents []string) map[string]Attendance {
	if len(agents) == 0 {
		return nil
	}
	groups, topics := make([]string, len(agents)), make([]string, len(agents))
	for n, agent := range agents {
		groups[n], topics[n] = i.topics.Namespace+".agent."+agent, i.topics.Requests(agent)
	}
	// Beside each other: one that is not answered leaves the others their time.
	askMembers := asked(ctx, func() map[string]int { return i.groupMembers(ctx, groups) })
	askCommitted := asked(ctx, func() map[string]map[string]map[int32]int64 { return i.committed(ctx, groups) })
	offsets := func(list func(context.Context, ...string) (kadm.ListedOffsets, error)) func() kadm.ListedOffsets {
		return asked(ctx, func() kadm.ListedOffsets {
			all, err := list(ctx, topics...)
			if err != nil { // partitions are missing, and nobody says which
				i.log.Debug("cannot tell how far behind agents are", "error", err)
				return nil
			}
			return all
		})
	}
	askStarts, askEnds := offsets(i.admin.ListStartOffsets), offsets(i.admin.ListCommittedOffsets)
	members, committed, starts, ends := askMembers(), askCommitted(), askStarts(), askEnds()
	all := make(map[string]Attendance, len(agents))
	for n, agent := range agents {
		var a Attendance
		if count, known := members[groups[n]]; known {
			a.Members = &count
		}
		if read, known := committed[groups[n]]; known {
			a.Behind = behind(read[topics[n]], starts[topics[n]], ends[topics[n]])
		}
		all[agent] = a
	}
	return all
}

// asked asks a question, whose answer the function that it returns waits for: nothing, if it has not come when ctx ends. The
// client may take longer, since it asks for what it needs to answer by its own time.
func asked[A any](ctx context.Context, question func() A) (answer func() A) {
	came := make(chan A, 1)
	go func() { came <- question() }()
	return func() (a A) {
		select {
		case a = <-came:
		case <-ctx.Done():
		}
		return a
	}
}

// behind is how many records are between what was committed of a topic's partitions, or their
// starts where that is more, and their ends; nil where some partition is not known. The last
// before an end is taken for no record: whoever asks agents does it in transactions, and each ends with a marker.
func behind(committed map[int32]int64, starts, ends map[int32]kadm.ListedOffset) *int64 {
	if len(ends) == 0 {
		return nil
	}
	var sum int64
	for p, end := range ends {
		start, known := starts[p]
		if !known || start.Err != nil || end.Err != nil {
			return nil
		}
		sum += max(0, end.Offset-max(committed[p], start.Offset)-1)
	}
	return &sum
}

// groupMembers is how many members each of the groups has of which Kafka says so. One request
// has all of them, and one more those that are no classic groups.
func (i *Instance) groupMembers(ctx context.Context, groups []string) map[string]int {
	all := make(map[string]int, len(groups))
	question := kmsg.NewPtrDescribeGroupsRequest()
	question.Groups = groups
	others := kmsg.NewPtrConsumerGroupDescribeRequest()
	eachAnswer(ctx, i, question, func(answer *kmsg.DescribeGroupsResponse) {
		for _, g := range answer.Groups {
			switch err := kerr.ErrorForCode(g.ErrorCode); {
			case err == nil: // also if there is none, before Kafka 4
				all[g.Group] = len(g.Members)
			case errors.Is(err, kerr.GroupIDNotFound):
				others.Groups = append(others.Groups, g.Group)
			}
		}
	})
	if len(others.Groups) == 0 {
		return all
	}
	eachAnswer(ctx, i, others, func(answer *kmsg.ConsumerGroupDescribeResponse) {
		for _, g := range answer.Groups {
			if err := kerr.ErrorForCode(g.ErrorCode); err == nil || errors.Is(err, kerr.GroupIDNotFound) {
				all[g.Group] = len(g.Members)
			}
		}
	})
	return all
}

// committed is what each of the groups has committed, by topic and partition, of which Kafka says so.
func (i *Instance) committed(ctx context.Context, groups []string) map[string]map[string]map[int32]int64 {
	question := kmsg.NewPtrOffsetFetchRequest()
	for _, group := range groups {
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group = group
		question.Groups = append(question.Groups, g)
	}
	all := make(map[string]map[string]map[int32]int64, len(groups))
	eachAnswer(ctx, i, question, func(answer *kmsg.OffsetFetchResponse) {
		for _, g := range answer.Groups {
			err := kerr.ErrorForCode(g.ErrorCode)
			for _, t := range g.Topics {
				for _, p := range t.Partitions {
					err = cmp.Or(err, kerr.ErrorForCode(p.ErrorCode))
				}
			}
			if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
				continue
			}
			all[g.Group] = make(map[string]map[int32]int64)
			for _, t := range g.Topics {
				all[g.Group][t.Topic] = make(map[int32]int64)
				for _, p := range t.Partitions {
					all[g.Group][t.Topic][p.Partition] = p.Offset
				}
			}
		}
	})
	return all
}

// eachAnswer has each broker asked that a question is for, and yields the answers that came.
func eachAnswer[A kmsg.Response](ctx context.Context, i *Instance, question kmsg.Request, yield func(A)) {
	for _, shard := range i.client.RequestSharded(ctx, question) {
		if shard.Err != nil {
			i.log.Debug("cannot tell who reads the requests of agents", "asked", kmsg.NameForKey(question.Key()), "error", shard.Err)
			continue
		}
		if answer, is := shard.Resp.(A); is {
			yield(answer)
		}
	}
}
