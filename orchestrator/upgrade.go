package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/waybill-dev/waybill/projections"
)

// upgrade decides when the namespace's format rises: once every member of the
// group has spoken the next one for so long that none of an older release is to be
// expected back, or when an operator says so. From then on older releases cannot
// own its partitions.
type upgrade struct {
	// settled asks who is in the group, and waits for it while members join or leave.
	settled func(context.Context) ([]Member, error)
	// raised is the highest format of a partition that this instance knows.
	raised func() (int, error)
	newest int // that this release knows
	after  time.Duration
	now    func() time.Time // for what lasts
	log    *slog.Logger

	mu     sync.Mutex
	format int       // in which may be written, as of the last answer
	asked  time.Time // when that was; zero once there was none
	since  time.Time // when all members were seen to speak a newer one; zero if they do not
}

const (
	// upgradeEvery is how often the group is asked who is in it.
	upgradeEvery = 10 * time.Second
	// answerCounts is how long an answer does: somebody of an older release may join.
	answerCounts = 2 * time.Second
)

// run looks from time to time until ctx ends.
func (u *upgrade) run(ctx context.Context) {
	for wait := time.Second; pause(ctx, wait); wait = upgradeEvery {
		if err := u.look(ctx); err != nil && ctx.Err() == nil {
			u.log.Debug("cannot tell who is in the group", "error", err)
		}
	}
}

// Format is the format in which lanes may write, 0 if that is not known.
func (u *upgrade) Format() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.now().Sub(u.asked) > answerCounts {
		return 0
	}
	return u.format
}

// Newest is the format that every member of the group speaks now, 0 if that cannot be
// told. It waits for the group to settle: where instances start side by side, the first
// partitions are claimed while others join.
func (u *upgrade) Newest(ctx context.Context) int {
	all, err := u.settled(ctx)
	if err != nil {
		return 0
	}
	return min(spoken(all), u.newest)
}

// look asks who is in the group, and has the format rise if it is time.
func (u *upgrade) look(ctx context.Context) error {
	all, err := u.settled(ctx) // a newcomer that comes closer has all join anew, which says nothing of releases
	if err == nil {
		err = u.judge(all, false)
	}
	if err != nil {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.asked, u.since = time.Time{}, time.Time{} // whoever came meanwhile was not seen
	}
	return err
}

// judge decides on who is in the group: the format rises if all have spoken it for
// long enough, or with finish if all speak it.
func (u *upgrade) judge(all []Member, finish bool) error {
	raised, err := u.raised()
	if err != nil {
		return err
	}
	speak, written := min(spoken(all), u.newest), max(raised, 1)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.asked = u.now()
	before := u.format
	u.format = min(speak, written) // where one partition was raised, older releases are shut out already
	if speak <= written {
		u.since = time.Time{}
		return nil
	}
	if u.since.IsZero() {
		u.since = u.asked
	}
	if finish || u.asked.Sub(u.since) >= u.after {
		u.format = speak
	}
	if u.format == speak && before != speak {
		u.log.Info("every member of the group speaks a newer format, which is written from now on", "format", speak, "members", len(all))
	}
	return nil
}

// rises is when the format will, zero if nothing is known of that.
func (u *upgrade) rises() time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	left := u.after - u.now().Sub(u.since)
	if u.since.IsZero() || left <= 0 {
		return time.Time{}
	}
	return now().Add(left)
}

// Upgrade is how far the namespace is with an upgrade.
type Upgrade struct {
	// Format is the oldest format of a partition that the instance owns or follows.
	Format int `json:"format"`
	// Speaks is the format that every member of the group speaks, Members who they
	// are.
	Speaks  int      `json:"speaks"`
	Members []Member `json:"members"`
	// Rises is when the instance begins to write in that format, zero if it does
	// already or not all members speak a newer one.
	Rises time.Time `json:"rises,omitzero"`
}

// Upgrade says how far the namespace is with an upgrade. It fails with [ErrUnsettled]
// while members join or leave, if that takes longer than ten seconds.
func (i *Instance) Upgrade(ctx context.Context) (*Upgrade, error) {
	all, err := i.group.settled(ctx)
	if err != nil {
		return nil, err
	}
	if err := i.upgrade.judge(all, false); err != nil { // else an old answer would speak of who has left since
		return nil, err
	}
	lowest, _, err := i.formats()
	if err != nil {
		return nil, err
	}
	return &Upgrade{Format: lowest, Speaks: spoken(all), Members: all, Rises: i.upgrade.rises()}, nil
}

// ErrOwnsNone says that an instance cannot finish an upgrade, since it does not own any partition, or not yet.
var ErrOwnsNone = errors.New("owns no partition that it could raise")

// FinishUpgrade has the partitions that this instance owns rise to the format of
// this release, and the others follow as their owners see it: an older release
// cannot own them from then on. It fails with [ErrOlderRelease] while one is in the
// group, with [ErrUnsettled] as [Instance.Upgrade] does, and with [ErrOwnsNone]. Doing it again changes nothing.
func (i *Instance) FinishUpgrade(ctx context.Context) error {
	needs := fmt.Sprintf("format %d", OwnDialect.Format)
	speaks := func(d *Dialect) bool { return d.Format >= OwnDialect.Format }
	for {
		all, err := i.group.settled(ctx)
		if err == nil {
			err = allSpeak(all, needs, speaks)
		}
		if err != nil {
			return err
		}
		owned := i.members.all()
		if len(owned) == 0 {
			names := make([]string, len(all))
			for n := range all {
				names[n] = all[n].Instance
			}
			return fmt.Errorf("instance %s %w; ask another: %s", i.cfg.ID, ErrOwnsNone, strings.Join(names, ", "))
		}
		if err := i.upgrade.judge(all, true); err != nil {
			return err
		}
		heads, err := i.store.Heads(i.partitions)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(owned, func(p int32) bool { return heads[p].Format() < OwnDialect.Format }) {
			return nil
		}
		if !pause(ctx, 100*time.Millisecond) {
			return fmt.Errorf("the partitions are not all raised yet: %w", ctx.Err())
		}
	}
}

// formats are the lowest and the highest format of the partitions that are known.
func (i *Instance) formats() (lowest, highest int, err error) {
	heads, err := i.store.Heads(i.partitions)
	elsewhere := i.Elsewhere()
	for p, head := range heads {
		if head.Claim == "" || slices.Contains(elsewhere, int32(p)) {
			continue // nothing is known of it
		}
		if lowest == 0 || head.Format() < lowest {
			lowest = head.Format()
		}
		highest = max(highest, head.Format())
	}
	return lowest, highest, err
}

// written fails with [ErrOlderRelease] if a partition is of an older format, unless it rises by
// itself.
func (i *Instance) written(ctx context.Context, format int) error {
	for begin := time.Now(); ; {
		lowest, _, err := i.formats()
		if err != nil || lowest >= format {
			return err
		}
		if lowest == 0 {
			if format > 0 && len(i.members.all()) == 0 && i.cfg.Standby != StandbyAll {
				return fmt.Errorf("%w, or may come back: instance %s owns no partition, and does not know whether the namespace is in format %d, which is needed; ask another", ErrOlderRelease, i.cfg.ID, format)
			}
			return nil
		}
		heads, err := i.store.Heads(i.partitions)
		if err != nil {
			return err
		}
		if !rises(heads, format) || time.Since(begin) > settling || !pause(ctx, 100*time.Millisecond) {
			return fmt.Errorf("%w, or may come back: the namespace is in format %d, and format %d is needed; finish the upgrade first (waybill upgrade finish)", ErrOlderRelease, lowest, format)
		}
	}
}

// rises says that partitions get to a format by themselves: where one has it the others follow,
// and a new one is claimed in the first format before it is in its own.
func rises(heads []projections.Head, format int) bool {
	return slices.ContainsFunc(heads, func(h projections.Head) bool { return h.Offset == 1 || h.Format() >= format })
}
