package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/waybill-dev/waybill/orchestrator/decide"
)

// Present is an instance that is in the group now.
type Present struct {
	Instance   string  // its name, or, of an older release, the id that Kafka gave it
	URL        string  // where it is asked, empty if it told none, or none that keys vouch for
	Partitions []int32 // that the group gives it
}

// maxPresent is how many are told: whoever may join the group may do so a thousand times.
const maxPresent = 256

// presence keeps who was there last. Who asks meanwhile waits for the answer.
type presence struct {
	mu    sync.Mutex
	said  []Present
	more  int
	err   error
	until time.Time // when to ask again
}

// Present are the instances that are in the group, as Kafka says, by name, and how many more there are than are told. Kafka is
// waited for no longer than two seconds, and what it said is said again for two.
func (i *Instance) Present(ctx context.Context) (all []Present, more int, err error) {
	s := &i.presence
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().After(s.until) {
		s.said, s.more, s.err = i.present(context.WithoutCancel(ctx)) // others have its answer, too
		s.until = time.Now().Add(attendanceLasts)
	}
	return s.said, s.more, s.err
}

func (i *Instance) present(ctx context.Context) (all []Present, more int, err error) {
	ctx, cancel := context.WithTimeout(ctx, attendancePatience)
	defer cancel()
	type answer struct {
		members []Member
		err     error
	}
	said := asked(ctx, func() *answer {
		members, err := i.group.members(ctx)
		return &answer{members, err}
	})()
	switch {
	case said == nil, errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, 0, fmt.Errorf("it was not said by Kafka within %s who is in the group", attendancePatience)
	case said.err != nil:
		return nil, 0, said.err
	}
	slices.SortFunc(said.members, func(a, b Member) int { return strings.Compare(a.Instance, b.Instance) })
	for n := range said.members {
		if n == maxPresent {
			break
		}
		m := &said.members[n]
		all = append(all, Present{decide.Cut(m.Instance, decide.MaxName), m.URL, slices.Sorted(slices.Values(m.given))})
	}
	return all, len(said.members) - len(all), nil
}
