package decide

import (
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/inspect"
)

// A schedule of every second, whose orders are kept for an hour: each tick begins one order, and from the second hour on the
// state store does not grow. WAYBILL_HOURS sets how long it goes on, by a clock that nobody waits for.
func TestASecondScheduleForHours(t *testing.T) {
	hours := 3
	if s := os.Getenv("WAYBILL_HOURS"); s != "" {
		var err error
		hours, err = strconv.Atoi(s)
		must(t, err)
	}
	topics, err := events.NewTopics(events.DefaultNamespace)
	must(t, err)
	flow := parseFlow(t, "{workflow: bill, keep: 1h, steps: [{name: a, agent: a0, when: 'false'}]}")
	y := &yearly{seen: make(map[events.Type]int), env: &Env{
		Now: inspect.Curtain, Instance: "i-1", Topics: &topics, Format: events.JournalFormat,
		Workflow: func(string, int) *workflow.Workflow { return flow },
		Refuses:  func(string, int) string { return "" },
		Away:     func(string, string, int) string { return "" },
	}}
	dir := t.TempDir()
	y.store, err = projections.Open(dir, projections.Identity{Cluster: "c-1", Namespace: topics.Namespace}, slog.New(slog.DiscardHandler))
	must(t, err)
	defer func() { must(t, y.store.Close()) }()
	y.state, err = y.store.Partition(0)
	must(t, err)
	y.state.Raise(events.JournalFormat)

	y.tell(t, topics.Commands, events.ScheduleID("often"), "", []byte(`{"command":"apply","schedule":{"every":"1s","workflow":"bill"}}`))
	began, keys := time.Now(), 0
	for hour := range hours {
		for range 3600 {
			y.env.Now = y.env.Now.Add(time.Second)
			y.second(t)
		}
		switch hour {
		case 0:
		case 1:
			keys = len(dump(t, y.store))
			t.Logf("after two hours the store has %d keys, and %d KiB", keys, size(t, dir)>>10)
		default:
			if now := len(dump(t, y.store)); now != keys {
				t.Fatalf("after two hours the store has %d keys, and after %d it has %d", keys, hour+1, now)
			}
		}
	}
	for kind, want := range map[events.Type]int{
		events.ScheduleStarted: hours * 3600, events.OrderAccepted: hours * 3600, events.OrderCompleted: hours * 3600, events.OrderForgotten: (hours - 1) * 3600,
		events.ScheduleSkipped: 0,
	} {
		if got := y.seen[kind]; got < want-1 || got > want {
			t.Errorf("%d times %s, and there were %d ticks", got, kind, hours*3600)
		}
	}
	t.Logf("after %d hours it has as many, and %d KiB; %d events in %s", hours, size(t, dir)>>10, y.end, time.Since(began).Round(time.Second))
}

// yearly is a lane that has nothing else to do.
type yearly struct {
	env         *Env
	store       *projections.Store
	state       *projections.Partition
	end         int64 // of the journal
	offset      int64 // of what is read
	transaction uint64
	internal    []Record
	seen        map[events.Type]int
}

// second does what is due, and what follows from it.
func (y *yearly) second(t *testing.T) {
	for more := true; more; {
		must(t, y.state.Flush())
		due, err := y.state.Due(y.env.Now, 100)
		must(t, err)
		for _, at := range due {
			order, err := y.state.Order(at.Order)
			must(t, err)
			if order != nil {
				y.take(t, Supervise(y.env, order, at.Step))
			}
		}
		more = len(due) > 0
		for len(y.internal) > 0 {
			r := y.internal[0]
			y.internal = y.internal[1:]
			y.read(t, &r)
		}
	}
}

func (y *yearly) tell(t *testing.T, topic, key, kind string, value []byte) {
	r := Record{Topic: topic, Offset: y.offset, Raw: events.Raw{Key: []byte(key), Value: value, Headers: []events.RawHeader{{Key: events.HeaderType, Value: []byte(kind)}}, Written: y.env.Now}}
	if y.offset++; topic == y.env.Topics.Internal {
		y.internal = append(y.internal, r)
		return
	}
	y.read(t, &r)
}

func (y *yearly) read(t *testing.T, r *Record) {
	in := Read(r, y.env.Topics, Place{Of: func([]byte) int32 { return 0 }})
	if in.Unreadable != "" {
		t.Fatal(in.Unreadable)
	}
	order, err := y.state.Order(in.Order)
	must(t, err)
	y.take(t, On(y.env, order, &in))
}

func (y *yearly) take(t *testing.T, d Decision) {
	if len(d.Aside) > 0 {
		t.Fatal(d.Aside)
	}
	if d.Order == nil {
		return
	}
	u := projections.Update{Order: d.Order}
	for _, m := range d.Messages {
		switch m.Topic {
		case y.env.Topics.Journal:
			y.seen[m.Envelope.Type]++
			u.Offsets = append(u.Offsets, y.end)
			y.end++
		case y.env.Topics.Internal:
			y.tell(t, m.Topic, m.Envelope.Order, string(m.Envelope.Type), m.Value)
		}
	}
	y.transaction++
	must(t, y.state.Commit(events.Seal{Transaction: y.transaction}, y.end, []projections.Update{u}))
}

// size adds up the files of a directory.
func size(t *testing.T, dir string) (n int64) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		}
		return nil // compacted away meanwhile
	}))
	return n
}
