package projections

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/go-json-experiment/json"
	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/events"
)

// whole is all that a store has.
func whole(t *testing.T, db *pebble.DB) map[string]string {
	t.Helper()
	all := make(map[string]string)
	it, err := db.NewIter(nil)
	must(t, err)
	for ok := it.First(); ok; ok = it.Next() {
		all[string(it.Key())] = string(it.Value())
	}
	must(t, it.Close())
	return all
}

// A store of every layout becomes what this release makes of the journal.
// testdata/stores has one of each, as a release left it that had folded a golden
// journal: that of ae33b53, that of 099af1c from layout 17 on, and that of f8916d4, which
// has all types of events, from layout 18 on. Whoever raises the layout adds one of the
// layout before; one of this release's own is opened, too, where it is there already.
func TestGoldenStores(t *testing.T) {
	folded := func(release string) map[string]string {
		return whole(t, foldGolden(t, "testdata/golden/"+release+"/journal.jsonl").store.db)
	}
	var want map[string]string
	for from := 3; from <= layout; from++ {
		switch from {
		case 3:
			want = folded("ae33b53")
		case 8: // it was of no release
			continue
		case 17:
			want = folded("099af1c")
		case 18:
			want = folded("f8916d4")
		}
		if _, err := os.Stat(filepath.Join("testdata/stores", strconv.Itoa(from))); from == layout && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		t.Run(strconv.Itoa(from), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "store")
			must(t, os.CopyFS(dir, os.DirFS(filepath.Join("testdata/stores", strconv.Itoa(from)))))
			for range 2 {
				s := mustOpen(t, dir)
				have := whole(t, s.db)
				is := have[string(metaKey)]
				if delete(have, string(metaKey)); is != fmt.Sprintf(`{"cluster":"c-1","namespace":"waybill","format":%d}`, layout) {
					t.Errorf("it says that it is %s", is)
				}
				if !maps.Equal(have, want) {
					t.Errorf("the store has %d keys that are not the %d of one that was folded now", len(have), len(want))
				}
				must(t, s.Close())
			}
		})
	}
}

// A record of layout 16 becomes what this release writes, whatever it has, and its payloads stay behind it.
func TestRecordsOfLayout16(t *testing.T) {
	s, _ := temporary(t)
	rapid.Check(t, func(t *rapid.T) {
		o := drawOrder(t)
		o.Tracestate, o.Baggage, o.Schedule = "", "", nil // of schedules there is more since
		for i := range o.Steps {
			o.Steps[i].LeftBy = nil
		}
		now, payloads, key := appendRecord(nil, o), []byte("payloads"), orderKey(0, "o-1")
		before := slices.Concat(now[:len(now)-2-len(o.Steps)], payloads) // two empty texts are new, and of each step what left nothing
		b := s.db.NewIndexedBatch()
		defer b.Close()
		if err := migrations[16].rewrite(b, key, before); err != nil {
			t.Fatal(err)
		}
		value, closer, err := b.Get(key)
		if err != nil {
			t.Fatal(err)
		}
		defer closer.Close()
		if !bytes.Equal(value, append(now, payloads...)) {
			t.Fatalf("%x became %x, and must be %x", before, value, now)
		}
	})
}

// A record of layout 18 becomes what this release writes, unless it is of a schedule of which a pause before the last may
// matter: then all is folded anew.
func TestSchedulesOfLayout18(t *testing.T) {
	s, _ := temporary(t)
	rapid.Check(t, func(t *rapid.T) {
		o := drawOrder(t)
		key, record, payloads := orderKey(0, "@a"), appendRecord(nil, o), []byte("payloads")
		b := s.db.NewIndexedBatch()
		defer b.Close()
		if o.Schedule == nil {
			if err := migrations[18].rewrite(b, key, append(record, payloads...)); err != nil || b.Count() > 0 {
				t.Fatalf("of an order %d records were written, %v", b.Count(), err)
			}
			return
		}
		o.Schedule.Pauses = nil
		now := appendRecord(nil, o)
		err := migrations[18].rewrite(b, key, slices.Concat(now[:len(now)-1], payloads)) // the new count is a byte
		last := o.Schedule.PausedAt
		if o.Paused { // and so is all that is known of a pause before
			last = o.Schedule.Resumed
		}
		if waits := !o.Schedule.Next.IsZero() && last.After(o.Schedule.Next); waits || err != nil {
			if !waits || !errors.Is(err, errUnusable) {
				t.Fatalf("next is %v, it was paused at %v, now: %t: %v", o.Schedule.Next, o.Schedule.PausedAt, o.Paused, err)
			}
			return
		}
		value, closer, err := b.Get(key)
		if err != nil {
			t.Fatal(err)
		}
		defer closer.Close()
		if !bytes.Equal(value, append(now, payloads...)) {
			t.Fatalf("it became %x, and must be %x", value, now)
		}
	})
}

// An order of layout 17 gets the place in the index of those that wait for signals that this release would have given it,
// and none if it does not wait; and that of open alerts says that it is held.
func TestOrdersOfLayout17(t *testing.T) {
	s, _ := temporary(t)
	rapid.Check(t, func(t *rapid.T) {
		o := drawOrder(t)
		b := s.db.NewIndexedBatch()
		defer b.Close()
		record := appendRecord(nil, o)
		if rapid.Bool().Draw(t, "is forgotten") {
			record, o.State = appendForgotten(nil, o), Processed
		}
		if err := migrations[17].rewrite(b, orderKey(7, "o-1"), record); err != nil {
			t.Fatal(err)
		}
		it, err := b.NewIter(nil)
		if err != nil {
			t.Fatal(err)
		}
		var have, want [][]byte
		for ok := it.First(); ok; ok = it.Next() {
			have = append(have, slices.Concat(it.Key(), it.Value()))
		}
		if err := it.Close(); err != nil {
			t.Fatal(err)
		}
		if o.State == Error && o.Hold != nil && o.Alert != nil && !o.Alert.At.IsZero() {
			want = append(want, append(openKey(kindAlert, 7, o.Alert.At, "o-1"), 1))
		}
		if !o.State.Final() && !o.UpdatedAt.IsZero() && slices.ContainsFunc(o.Steps, func(s Step) bool { return s.State == Listening }) {
			want = append(want, openKey(kindListens, 7, o.UpdatedAt, "o-1"))
		}
		if !slices.EqualFunc(have, want, bytes.Equal) {
			t.Fatalf("the index has %x, and not %x", have, want)
		}
	})
}

// toCome are two layouts that may come after 3: in one all records begin with
// another byte, and in the other the listing has another kind, before its old one.
func toCome(seen func()) map[int]migration {
	return map[int]migration{
		3: {kindOrder, func(b *pebble.Batch, key, value []byte) error {
			seen()
			return b.Set(key, append([]byte{'5'}, value...), nil)
		}},
		4: {kindListing, func(b *pebble.Batch, key, value []byte) error {
			seen()
			other := bytes.Clone(key)
			other[4] = 'L'
			return errors.Join(b.Delete(key, nil), b.Set(other, value, nil))
		}},
	}
}

// oldOrders are in each of the two partitions of a store that is to be migrated.
const oldOrders = 12

func fillOld(t *testing.T, fs vfs.FS, dir string) {
	t.Helper()
	db, err := pebble.Open(dir, options(fs, silent))
	must(t, err)
	s := &Store{db: db}
	for _, id := range []int32{0, 2} {
		p := partition(t, s, id)
		must(t, fold(p, longJournal(oldOrders).records))
		must(t, p.Flush())
	}
	b := db.NewBatch()
	must(t, (&meta{Identity: identity, Layout: 3}).write(b))
	must(t, b.Commit(pebble.Sync))
	must(t, s.Close())
}

// opened is what the process finds that comes next.
func opened(t *testing.T, fs vfs.FS, dir string) (*pebble.DB, *meta) {
	t.Helper()
	db, err := pebble.Open(dir, options(fs, silent))
	must(t, err)
	value, err := (&Store{db: db}).get(db, metaKey)
	must(t, err)
	m := new(meta)
	must(t, json.Unmarshal(value, m))
	return db, m
}

// straightOn is what comes of a migration that nothing ends.
func straightOn(t *testing.T) map[string]string {
	t.Helper()
	fs := vfs.NewMem()
	fillOld(t, fs, "store")
	db, m := opened(t, fs, "store")
	must(t, migrate(db, m, 5, toCome(func() {}), atOnce, silent))
	all := whole(t, db)
	must(t, db.Close())
	if is := all[string(metaKey)]; is != `{"cluster":"c-1","namespace":"waybill","format":5}` || all[string(orderKey(2, "o-003"))][0] != '5' {
		t.Fatalf("it says that it is %s", is)
	}
	return all
}

// A process that migrates is killed, and the next one goes on, until one comes to
// the end.
func TestAProcessThatMigratesIsKilled(t *testing.T) {
	const variable, deadly = "WAYBILL_TEST_MIGRATE", "WAYBILL_TEST_DIE_AT"
	if dir, ok := os.LookupEnv(variable); ok {
		db, m := opened(t, vfs.Default, dir)
		left := setting(t, deadly, 0)
		must(t, migrate(db, m, 5, toCome(func() {
			if left--; left == 0 {
				self, err := os.FindProcess(os.Getpid())
				must(t, errors.Join(err, self.Kill()))
				select {}
			}
		}), 5, silent))
		must(t, db.Close())
		return
	}
	dir := filepath.Join(t.TempDir(), "store")
	fillOld(t, vfs.Default, dir)
	killed := 0
	for at := 4; ; at += 4 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAProcessThatMigratesIsKilled$")
		cmd.Env = append(os.Environ(), variable+"="+dir, fmt.Sprint(deadly, "=", at))
		said, err := cmd.CombinedOutput()
		if err == nil {
			break
		}
		if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.Exited() {
			t.Fatalf("%v: %s", err, said)
		}
		killed++
	}
	db, m := opened(t, vfs.Default, dir)
	if have := whole(t, db); m.From != 0 || killed < 3 || !maps.Equal(have, straightOn(t)) {
		t.Errorf("after %d kills the store is %+v, and not what one is that nothing ended", killed, m)
	}
	must(t, db.Close())
}

// A migration may end at any moment, by a kill or by the loss of power, and the
// next one goes on: what comes of it is what comes of one that nothing ended.
func TestAMigrationThatIsKilledGoesOn(t *testing.T) {
	straight := straightOn(t)
	for _, atOnce := range []int{1, 3, 12, 1000} {
		for unsynced := range 5 { // quarters of what is not synced survive
			fs := vfs.NewCrashableMem()
			fillOld(t, fs, "store")
			var clones []*vfs.MemFS
			db, m := opened(t, fs, "store")
			must(t, migrate(db, m, 5, toCome(func() {
				clones = append(clones, fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 25 * unsynced, RNG: rand.New(rand.NewPCG(1, uint64(unsynced)))}))
			}), atOnce, silent))
			must(t, db.Close())
			if len(clones) != 4*oldOrders {
				t.Fatalf("%d keys were rewritten", len(clones))
			}
			for n, fs := range clones {
				db, m := opened(t, fs, "store")
				must(t, migrate(db, m, 5, toCome(func() {}), atOnce, silent))
				if have := whole(t, db); !maps.Equal(have, straight) {
					t.Fatalf("killed at key %d, %d at once, %d%% of what was not synced is there: %d keys that are not the %d of one that was not killed", n, atOnce, 25*unsynced, len(have), len(straight))
				}
				must(t, db.Close())
			}
		}
	}
}

// What this release cannot read is rebuilt, and the log says why.
func TestStoresThatCannotBeUsed(t *testing.T) {
	for meta, why := range map[string]string{
		fmt.Sprintf(`{"cluster":"c-1","namespace":"waybill","format":%d}`, layout+1):                                  fmt.Sprintf("a newer release made it in layout %d, and this one knows layout %d", layout+1, layout),
		fmt.Sprintf(`{"cluster":"c-1","namespace":"waybill","format":%d,"from":%d,"after":"AA=="}`, layout+1, layout): "a newer release",
		`{"cluster":"c-1","namespace":"waybill","format":2}`:                                                          fmt.Sprint("it has layout 2, and this release knows 3 to ", layout),
		`{"cluster":"c-1","namespace":"waybill","format":3,"from":2}`:                                                 fmt.Sprint("it has layout 3, and this release knows 3 to ", layout),
		`{"cluster":"c-1","namespace":"waybill","format":5,"new":1}`:                                                  "it says that it is",
		`{"cluster":"c-1","namespace":"waybill","format":8}`:                                                          "a build between two releases",
		`{"cluster":"c-1","namespace":"waybill"}`:                                                                     "it has layout 0",
		`{"cluster":"c-2","namespace":"waybill","format":5}`:                                                          `it belongs to cluster "c-2"`,
		`{"cluster":"c-2","namespace":"waybill","format":3}`:                                                          `it belongs to cluster "c-2"`,
		"hello": "it says that it is",
		"":      "it says that it is",
	} {
		dir, _ := written(t, longJournal(3))
		s := mustOpen(t, dir)
		must(t, s.db.Set(metaKey, []byte(meta), pebble.Sync))
		must(t, s.Close())
		var said strings.Builder
		s, err := Open(dir, identity, slog.New(slog.NewTextHandler(&said, nil)))
		must(t, err)
		if n := len(dump(t, s, 0)); n != 0 || !strings.Contains(strings.ReplaceAll(said.String(), `\"`, `"`), why) {
			t.Errorf("%s: %d keys are left, and the log says %s", meta, n, said.String())
		}
		must(t, s.Close())
	}
}

// A head of the layout before is not taken for one of now.
func TestHeadsOfOtherLayouts(t *testing.T) {
	now := appendHead(nil, &Head{Offset: 7, Owner: "i-1"})
	if _, err := decodeHead(now[:len(now)-2]); !errors.Is(err, ErrDamaged) {
		t.Errorf("%v", err)
	}
}

// A partition of which nothing but claims was folded has no input positions: the
// zeros that stood in its head are none. Else they are.
func TestPositionsOfOtherLayouts(t *testing.T) {
	head := func(transaction uint64, claim string) []byte {
		w := writer{}
		w.int(7)
		w.uint(transaction)
		w.int(5)
		w.int(0)
		w.int(3)
		w.text("i-1")
		w.text(claim)
		w.time(start)
		w.uint(4)
		return w.b
	}
	of4 := func(format uint64, b []byte) []byte {
		w := writer{b}
		w.uint(format)
		w.uint(0)
		return w.b
	}
	const one, none = `{"orders":5,"replies":0,"commands":3}`, `{}`
	for _, c := range []struct {
		layout int
		value  []byte
		want   Head
		next   string
	}{
		{3, head(0, "c"), Head{format: 1}, none},
		{3, head(0, ""), Head{}, none},
		{3, head(2, "c"), Head{Transaction: 2, format: 1}, one},
		{4, of4(0, head(0, "")), Head{}, none},
		{4, of4(9, head(2, "c")), Head{Transaction: 2, format: 9}, one},
	} {
		dir := t.TempDir()
		s := mustOpen(t, dir)
		b := s.db.NewBatch()
		must(t, b.Set(prefix(0, kindHead), c.value, nil))
		must(t, (&meta{Identity: identity, Layout: c.layout}).write(b))
		must(t, b.Commit(pebble.Sync))
		must(t, s.Close())
		s = mustOpen(t, dir)
		have := partition(t, s, 0).Head()
		want := c.want
		want.Offset, want.Owner, want.Claim, want.ClaimedAt, want.Partitions, want.Next = 7, "i-1", have.Claim, start, 4, positions(t, c.next)
		if have != want {
			t.Errorf("layout %d, %x: the head is %+v, and not %+v", c.layout, c.value, have, want)
		}
		must(t, s.Close())
	}
}

// teach makes this release one that knows a type more, until the returned function
// is called.
func teach(typ events.Type) (forget func()) {
	events.Vocabulary++
	known[typ] = knowledge{since: events.Vocabulary, does: func(*Order, *Step, *events.Event) {}}
	return func() {
		delete(known, typ)
		events.Vocabulary--
	}
}

// An older release goes no further on what a newer one has folded of types that it
// does not know, whether from the journal or from what it committed itself. It
// says how the orders stood, goes on with partitions without such events, and the
// newer release goes on where it was.
func TestAnOlderReleaseStopsWhereANewerOneFolded(t *testing.T) {
	const blessed events.Type = "waybill.order.blessed"
	j := twoTransactions()
	j.add(events.Event{Type: blessed, Order: "o-1"})
	until := len(j.records)
	j.add(done("o-1", "s1"))

	s, _ := temporary(t)
	forget := teach(blessed)
	folding := partition(t, s, 1)
	must(t, fold(folding, j.records[:until]))
	must(t, folding.Flush())
	committing := partition(t, s, 2)
	must(t, fold(committing, j.records[:until-1]))
	o, err := committing.Order("o-1")
	must(t, err)
	o = o.Clone()
	must(t, o.Apply(&events.Event{Type: blessed, Order: "o-1", Seq: o.Seq + 1}))
	last := j.records[until-1]
	seal, err := events.DecodeSeal(last.header)
	must(t, err)
	must(t, committing.Commit(seal, last.offset+1, []Update{{Order: o, Offsets: []int64{last.offset}}}))
	must(t, committing.Flush())
	without := partition(t, s, 3)
	must(t, fold(without, j.records[:until-1]))
	must(t, without.Flush())
	forget()

	for id := int32(1); id <= 2; id++ {
		p := partition(t, s, id)
		if err := fold(p, j.records[until:]); !errors.Is(err, ErrNewer) || !strings.Contains(err.Error(), fmt.Sprint("knows vocabulary ", events.Vocabulary)) || p.Head().Offset != last.offset+1 {
			t.Errorf("partition %d, at %d: %v", id, p.Head().Offset, err)
		}
		if o, _, err := s.Order(id, "o-1"); err != nil || o.Seq != 5 {
			t.Errorf("%+v, %v", o, err)
		}
	}
	more := twoTransactions()
	more.add(done("o-1", "s1"))
	must(t, fold(partition(t, s, 3), more.records[until-1:]))

	forget = teach(blessed)
	defer forget()
	for id := int32(1); id <= 2; id++ {
		must(t, fold(partition(t, s, id), j.records[until:]))
	}
}

// The same goes for a partition that was claimed in a newer format.
func TestAnOlderReleaseStopsAtANewerFormat(t *testing.T) {
	j := twoTransactions()
	s, p := folded(t, j)
	if p.head.format != events.JournalFormat || p.head.vocabulary != 0 {
		t.Errorf("%+v", p.head)
	}
	p.head.format++
	must(t, p.Flush())
	p = partition(t, s, 0)
	n := len(j.records)
	j.claim("i-2", 4, events.JournalFormat) // an older release claims, and cannot go on
	if err := fold(p, j.records[n:]); !errors.Is(err, ErrNewer) || !strings.Contains(err.Error(), fmt.Sprint("format ", events.JournalFormat)) {
		t.Errorf("%v", err)
	}
	must(t, p.Reset())
	must(t, fold(p, j.records))
}

// A release that has never heard of an input does not serve a partition in which a
// newer one has read it, for nobody would see that it lies there unread. It keeps
// what was folded, with that position, for the newer one.
func TestAnOlderReleaseStopsWhereANewerOneReadMore(t *testing.T) {
	j := twoTransactions()
	n := len(j.records)
	j.seal.Next = positions(t, `{"orders":2,"replies":0,"commands":0,"timers":4}`)
	j.add(finished("o-2"))
	last := &j.records[n]

	s, p := temporary(t)
	must(t, fold(p, j.records[:n]))
	before := p.Head()
	if err := fold(p, j.records[n:]); !errors.Is(err, ErrNewer) || !strings.Contains(err.Error(), `"timers":4`) || p.Head() != before {
		t.Errorf("%v, and the head is %+v", err, p.Head())
	}

	// The newer release has folded it.
	seal, err := events.DecodeSeal(last.header)
	must(t, err)
	must(t, p.Commit(seal, last.offset+1, nil))
	must(t, p.Flush())
	for range 2 {
		p = partition(t, s, 0)
		if err := fold(p, j.records[n:]); !errors.Is(err, ErrNewer) || !strings.Contains(err.Error(), `"timers":4`) {
			t.Errorf("%v", err)
		}
		must(t, p.Flush())
	}
	if next := p.Head().Next; next.String() != `{"orders":3,"replies":0,"commands":0,"timers":4}` {
		t.Errorf("it goes on from %v", next)
	}
	// On a claim of the newer release positions say nothing.
	_, p = temporary(t)
	claim := newJournal()
	claim.put(events.Seal{Next: seal.Next}, events.Event{Type: events.PartitionClaimed, Instance: "i-2", Claim: "c", Partitions: 4, Format: events.JournalFormat})
	must(t, fold(p, claim.records))
	if next := p.Head().Next; next != (events.Positions{}) {
		t.Errorf("a claim has read up to %v", next)
	}
}
