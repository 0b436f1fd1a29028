package orchestrator

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/oracle"
)

func (ends) Unwell() error   { return nil }
func (*waits) Unwell() error { return nil }

func (ends) Clock() (time.Duration, bool)   { return 0, false }
func (*waits) Clock() (time.Duration, bool) { return 0, false }

func (ends) Agents() map[string]lane.Agent     { return nil }
func (ends) Before(_, _ string) (int, bool)    { return 0, false }
func (ends) Callers() map[string]lane.Caller   { return nil }
func (ends) Overdue() time.Time                { return time.Time{} }
func (ends) Blocked() time.Time                { return time.Time{} }
func (*waits) Callers() map[string]lane.Caller { return nil }
func (*waits) Overdue() time.Time              { return time.Time{} }
func (*waits) Blocked() time.Time              { return time.Time{} }
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

// clocked is a lane that knows how its clock stands.
type clocked struct {
	ends
	ahead time.Duration
	known bool
}

func (c clocked) Clock() (time.Duration, bool) { return c.ahead, c.known }

// How far the clock is ahead lanes tell that serve, and else those that have ended.
func TestLanesTellHowFarTheClockIsAhead(t *testing.T) {
	m := newMembership(nil, 12, slog.New(slog.DiscardHandler))
	tells := func(when string, want time.Duration) {
		t.Helper()
		if got := m.ahead(); got != want {
			t.Errorf("%s it is %s ahead, and not %s", when, got, want)
		}
	}
	serves := func(p int32, ahead time.Duration, known bool) *ownership {
		m.owned[p] = &ownership{lane: clocked{ahead: ahead, known: known}}
		return m.owned[p]
	}
	tells("before any served", 0)
	o := serves(3, 2*time.Hour, true)
	tells("while one serves", 2*time.Hour)
	m.ended(o, errors.New("away"), false)
	tells("once it has ended", 2*time.Hour)
	serves(3, 0, false)
	tells("while one does not know", 2*time.Hour)
	serves(3, -2*time.Hour, true)
	tells("while it is behind", 0)
}

// Kafka takes no alert that is more than an hour ahead by its clock.
func TestAlertsOfAClockThatIsAhead(t *testing.T) {
	b := kafka.Embedded(t)
	topics := onePartition(t, b)
	i, err := New(t.Context(), Config{ID: "i-1", Namespace: topics.Namespace, DataDir: t.TempDir(), Kafka: []kgo.Opt{kgo.SeedBrokers(b.Brokers...)}})
	must(t, err)
	defer func() { must(t, i.Close()) }()
	for n, ahead := range []time.Duration{2 * time.Hour, 3 * time.Hour} {
		i.members.wasAhead = ahead
		if !i.alert(t.Context(), "p0", errors.New("it is stopped")) {
			t.Fatal("Kafka does not have it")
		}
		r := oracle.Read(t, b.Brokers, topics.Alerts)[n]
		alert, err := events.Decode[events.Alert](r.Value)
		must(t, err)
		if is := alert.At.Sub(r.Timestamp); is != ahead {
			t.Errorf("the clock is %s ahead, and the record's time %s behind it", ahead, is)
		}
	}
}
