package projections

import (
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

var (
	identity = Identity{Cluster: "c-1", Namespace: "waybill"}
	silent   = slog.New(slog.DiscardHandler)
)

func mustOpen(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir, identity, silent)
	must(t, err)
	return s
}

// written returns a directory with the whole of j in it, closed, and what the
// store held at each journal offset at which it was flushed.
func written(t *testing.T, j *journal) (dir string, states map[int64]map[string]string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "store")
	s := mustOpen(t, dir)
	states = map[int64]map[string]string{0: {}}
	foldAll(t, s, j, func(p *Partition) { states[p.Head().Offset] = dump(t, s, 0) })
	must(t, s.Close())
	return dir, states
}

// foldAll folds j, flushing after every transaction.
func foldAll(t *testing.T, s *Store, j *journal, flushed func(*Partition)) {
	t.Helper()
	p := partition(t, s, 0)
	for _, r := range j.records {
		must(t, p.Fold(r.offset, r.value, r.header))
		if r.header != nil {
			must(t, p.Flush())
			flushed(p)
		}
	}
}

func TestReopen(t *testing.T) {
	j := longJournal(10)
	dir, states := written(t, j)
	for range 2 {
		s := mustOpen(t, dir)
		p := partition(t, s, 0)
		if head := p.Head(); head.Offset != j.end-1 || !maps.Equal(dump(t, s, 0), states[j.end-1]) {
			t.Fatalf("the store is not what it was: %+v", head)
		}
		// Folding goes on where it ended; deadlines are found again.
		must(t, fold(p, j.records))
		if due, err := p.Due(at(100_000), 100); err != nil || len(due) != 5 {
			t.Errorf("%d deadlines, %v", len(due), err)
		}
		must(t, s.Close())
	}
}

func TestOpenTwice(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	foldAll(t, s, longJournal(3), func(*Partition) {})
	before := dump(t, s, 0)
	if _, err := Open(dir, identity, silent); !errors.Is(err, ErrInUse) {
		t.Errorf("opened twice: %v", err)
	}
	if !maps.Equal(dump(t, s, 0), before) {
		t.Error("the second one changed what the first one holds")
	}
	must(t, s.Close())
	must(t, mustOpen(t, dir).Close())
}

func TestOpenElsewhere(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, []byte("mine"), 0o600))
	if s, err := Open(file, identity, silent); err == nil {
		t.Error("a file was opened as a directory", s.Close())
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "mine" {
		t.Errorf("the file is %q, %v", b, err)
	}
}

// A store of another cluster, namespace or format is begun anew.
func TestIdentity(t *testing.T) {
	for _, other := range []Identity{{Cluster: "c-2", Namespace: "waybill"}, {Cluster: "c-1", Namespace: "shop"}} {
		dir, _ := written(t, longJournal(3))
		s, err := Open(dir, other, silent)
		must(t, err)
		if n := len(dump(t, s, 0)); n != 0 {
			t.Errorf("%+v finds %d keys of another", other, n)
		}
		must(t, s.Close())
	}
	for name, meta := range map[string]string{"other format": `{"cluster":"c-1","namespace":"waybill","format":0}`, "garbage": "hello", "empty": ""} {
		dir, _ := written(t, longJournal(3))
		s := mustOpen(t, dir)
		must(t, s.db.Set(metaKey, []byte(meta), pebble.Sync))
		must(t, s.Close())
		s = mustOpen(t, dir)
		if n := len(dump(t, s, 0)); n != 0 {
			t.Errorf("%s: %d keys are left", name, n)
		}
		must(t, s.Close())
	}
	dir, _ := written(t, longJournal(3))
	s := mustOpen(t, dir)
	must(t, s.db.Delete(metaKey, pebble.Sync))
	must(t, s.Close())
	s = mustOpen(t, dir)
	if n := len(dump(t, s, 0)); n != 0 {
		t.Errorf("nobody's store: %d keys are left", n)
	}
	must(t, s.Close())
}

// A process that dies leaves what it wrote; a machine that loses its power may
// lose what was not synced. What is found is the store at some flush, whole,
// and folding goes on from there.
func TestCrash(t *testing.T) {
	j := longJournal(12)
	for unsynced := range 5 { // quarters of what is not synced survive
		fs := vfs.NewCrashableMem()
		db, err := pebble.Open("store", options(fs, silent))
		must(t, err)
		s := &Store{db: db}
		states := map[int64]map[string]string{0: {}}
		var clones []*vfs.MemFS
		foldAll(t, s, j, func(p *Partition) {
			states[p.Head().Offset] = dump(t, s, 0)
			if p.Head().Transaction%7 == 3 {
				clones = append(clones, fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 25 * unsynced, RNG: rand.New(rand.NewPCG(1, uint64(unsynced)))}))
			}
			if p.Head().Transaction == 10 {
				must(t, db.Flush()) // from memory to a table
			}
		})
		must(t, s.Close())
		for _, fs := range clones {
			db, err := pebble.Open("store", options(fs, silent))
			must(t, err)
			s := &Store{db: db}
			checkAt(t, s, states)
			catchesUp(t, s, j, states)
			must(t, s.Close())
		}
	}
}

// checkAt holds that the store is what it once was, at the offset it says.
func checkAt(t *testing.T, s *Store, states map[int64]map[string]string) {
	t.Helper()
	offset := partition(t, s, 0).Head().Offset
	state, ok := states[offset]
	if !ok || !maps.Equal(dump(t, s, 0), state) {
		t.Fatalf("at offset %d the store is not what it was there", offset)
	}
}

// catchesUp folds the rest of j.
func catchesUp(t *testing.T, s *Store, j *journal, states map[int64]map[string]string) {
	t.Helper()
	p := partition(t, s, 0)
	must(t, fold(p, j.records))
	must(t, p.Flush())
	if !maps.Equal(dump(t, s, 0), states[j.end-1]) {
		t.Fatal("after catching up the store is another one")
	}
}

// Values that cannot be what was written are damage, and not orders.
func TestDamagedValues(t *testing.T) {
	for name, spoil := range map[string]func(*pebble.DB) error{
		"record cut": func(db *pebble.DB) error { return db.Set(orderKey(0, "o-000"), []byte{4, 'f'}, nil) },
		"record of another step count": func(db *pebble.DB) error {
			return db.Set(orderKey(0, "o-000"), appendRecord(nil, &Order{Steps: make([]Step, 3)}), nil)
		},
		"payload missing": func(db *pebble.DB) error { return db.Delete(payloadKey(0, "o-000", "", ""), nil) },
		"payload cut":     func(db *pebble.DB) error { return db.Set(payloadKey(0, "o-000", "", ""), []byte("x"), nil) },
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := folded(t, longJournal(3))
			must(t, spoil(s.db))
			if o, _, err := s.Order(0, "o-000"); !errors.Is(err, ErrDamaged) {
				t.Errorf("%+v, %v", o, err)
			}
			if _, err := s.List(t.Context(), 1, Filter{}); errors.Is(err, ErrDamaged) != strings.HasPrefix(name, "record") {
				t.Errorf("listed: %v", err) // without its payloads
			}
			if _, err := partition(t, s, 0).Order("o-000"); !errors.Is(err, ErrDamaged) {
				t.Errorf("the owner reads it: %v", err)
			}
		})
	}
	t.Run("head", func(t *testing.T) {
		s, _ := folded(t, longJournal(3))
		must(t, s.db.Set(prefix(0, kindHead), []byte{1}, nil))
		if _, err := s.Partition(0); !errors.Is(err, ErrDamaged) {
			t.Error(err)
		}
	})
	t.Run("deadline", func(t *testing.T) {
		s, p := folded(t, longJournal(3))
		must(t, s.db.Set(deadlineBound(0, start), nil, nil))
		p.Rescan()
		if _, err := p.Due(at(100_000), 10); !errors.Is(err, ErrDamaged) {
			t.Error(err)
		}
	})
	t.Run("listing of an order that is not there", func(t *testing.T) {
		s, _ := folded(t, longJournal(3))
		must(t, s.db.Set(listingKey(0, &Order{ID: "ghost", State: Processed, Workflow: "flow", AcceptedAt: start}), nil, nil))
		if _, err := s.List(t.Context(), 1, Filter{}); !errors.Is(err, ErrDamaged) {
			t.Error(err)
		}
	})
	t.Run("approval of an order that waits for nobody", func(t *testing.T) {
		s, _ := folded(t, longJournal(3))
		must(t, s.db.Set(openKey(kindApproval, 0, start, "o-000"), nil, nil))
		if _, err := s.Approvals(t.Context(), 1, nil, nil, 10, nil); !errors.Is(err, ErrDamaged) {
			t.Error(err)
		}
	})
	t.Run("wait for a signal of an order that does not wait", func(t *testing.T) {
		s, _ := folded(t, longJournal(3))
		must(t, s.db.Set(openKey(kindListens, 0, start, "o-000"), nil, nil))
		if _, err := s.Listening(t.Context(), Listeners{}, 1, nil, nil, 10, nil); !errors.Is(err, ErrDamaged) {
			t.Error(err)
		}
	})
	for name, key := range map[string][]byte{
		"alert of an order that is not there": openKey(kindAlert, 0, start, "ghost"),
		"alert of an order that has none":     openKey(kindAlert, 0, start, "o-000"),
		"alert cut":                           prefix(0, kindAlert),
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := folded(t, longJournal(3))
			must(t, s.db.Set(key, nil, nil))
			if _, err := s.Alerts(t.Context(), 1, nil, nil, 10, nil); !errors.Is(err, ErrDamaged) {
				t.Error(err)
			}
		})
	}
}
