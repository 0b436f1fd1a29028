package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

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

// presence is who was there.
type presence struct {
	said []Present
	more int
	err  error
}

// Present are the instances that are in the group, as Kafka says, by name, and how many more there are than are told. Kafka is
// waited for no longer than two seconds, and what it said is said again for two.
func (i *Instance) Present(ctx context.Context) (all []Present, more int, err error) {
	p := i.presence.get(ctx, func(ctx context.Context) (p presence) {
		p.said, p.more, p.err = i.present(ctx)
		return p
	})
	return p.said, p.more, p.err
}

func (i *Instance) present(ctx context.Context) (all []Present, more int, err error) {
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
