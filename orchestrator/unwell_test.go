package orchestrator

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/orchestrator/lane"
)

func (ends) Unwell() error   { return nil }
func (*waits) Unwell() error { return nil }

func (ends) Clock() (time.Duration, bool)   { return 0, false }
func (*waits) Clock() (time.Duration, bool) { return 0, false }

func (ends) Agents() map[string]lane.Agent     { return nil }
func (ends) Before(_, _ string) (int, bool)    { return 0, false }
func (ends) Callers() map[string]lane.Caller   { return nil }
func (ends) Overdue() time.Time                { return time.Time{} }
func (*waits) Callers() map[string]lane.Caller { return nil }
func (*waits) Overdue() time.Time              { return time.Time{} }
func (*waits) Agents() map[string]lane.Agent   { return nil }
func (*waits) Before(_, _ string) (int, bool)  { return 0, false }

// unwell is a lane whose clock is wrong.
type unwell struct{ ends }

func (unwell) Unwell() error { return lane.ErrClock }

// An instance is not ready while a lane of it does not do all of its work.
func TestNotReadyWithAWrongClock(t *testing.T) {
	m := newMembership(nil, 12, slog.New(slog.DiscardHandler))
	m.joined, m.owned[3] = true, &ownership{lane: ends{}}
	if err := m.ready(); err != nil {
		t.Errorf("it is not ready: %v", err)
	}
	m.owned[3].lane = unwell{}
	if err := m.ready(); !errors.Is(err, lane.ErrClock) {
		t.Errorf("it is ready, or not for its clock: %v", err)
	}
}
