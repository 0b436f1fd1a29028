package orchestrator

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// upgrade decides when the namespace's format rises: once every member of the
// group has spoken the next one for so long that none of an older release is to be
// expected back, or when an operator says so. From then on older releases cannot
// own its partitions.
type upgrade struct {
	members func(context.Context) ([]Member, error)
	// raised is the highest format of a partition that this instance knows.
	raised func() (int, error)
	newest int // that this release knows
	after  time.Duration
	now    func() time.Time // for what lasts
	log    *slog.Logger

	mu     sync.Mutex
	format int       // in which may be written
	since  time.Time // when all members were seen to speak a newer one; zero if they do not
}

// upgradeEvery is how often the group is asked who is in it.
const upgradeEvery = 10 * time.Second

// run looks from time to time until ctx ends.
func (u *upgrade) run(ctx context.Context) {
	for wait := time.Second; pause(ctx, wait); wait = upgradeEvery {
		if err := u.look(ctx, false); err != nil && ctx.Err() == nil {
			u.log.Debug("cannot tell who is in the group", "error", err)
		}
	}
}

// Format is the format in which lanes may write.
func (u *upgrade) Format() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.format
}

// look asks who is in the group, and has the format rise if it is time, or with
// finish, if that is possible.
func (u *upgrade) look(ctx context.Context, finish bool) error {
	all, err := u.members(ctx)
	if err != nil {
		return err
	}
	raised, err := u.raised()
	if err != nil {
		return err
	}
	speak := min(spoken(all), u.newest)
	u.mu.Lock()
	defer u.mu.Unlock()
	now := u.now()
	switch {
	case speak <= u.format:
		u.format, u.since = speak, time.Time{} // a partition that was raised stays so
	case u.since.IsZero():
		u.since = now
	}
	// Where one partition was raised older releases are shut out already.
	if speak > u.format && (finish || raised >= speak || now.Sub(u.since) >= u.after) {
		u.log.Info("every member of the group speaks a newer format, which is written from now on", "format", speak, "members", len(all))
		u.format, u.since = speak, time.Time{}
	}
	return nil
}

// rises is when the format will, zero if nothing is known of that.
func (u *upgrade) rises() time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.since.IsZero() {
		return time.Time{}
	}
	return now().Add(u.after - u.now().Sub(u.since))
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

// Upgrade says how far the namespace is with an upgrade. It fails while members
// join or leave.
func (i *Instance) Upgrade(ctx context.Context) (*Upgrade, error) {
	all, err := i.group.members(ctx)
	if err != nil {
		return nil, err
	}
	lowest, _, err := i.formats()
	if err != nil {
		return nil, err
	}
	return &Upgrade{Format: lowest, Speaks: spoken(all), Members: all, Rises: i.upgrade.rises()}, nil
}

// FinishUpgrade has the namespace's format rise to that of this release at once: an
// older release cannot own its partitions from then on. It fails with
// [ErrOlderRelease] while one is in the group. Doing it again changes nothing.
func (i *Instance) FinishUpgrade(ctx context.Context) error {
	all, err := i.group.members(ctx)
	if err != nil {
		return err
	}
	needs := fmt.Sprintf("format %d", OwnDialect.Format)
	if err := allSpeak(all, needs, func(d *Dialect) bool { return d.Format >= OwnDialect.Format }); err != nil {
		return err
	}
	return i.upgrade.look(ctx, true)
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
