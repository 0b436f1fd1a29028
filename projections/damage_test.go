package projections

import (
	"errors"
	"fmt"
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

	"github.com/waybill-dev/waybill/test/reliability"
)

// ways are those in which each file is spoiled; nil removes it.
func ways() map[string]func(b []byte) []byte {
	ways := map[string]func(b []byte) []byte{
		"truncated to half": func(b []byte) []byte { return b[:len(b)/2] },
		"empty":             func([]byte) []byte { return nil },
		"garbage":           func(b []byte) []byte { return []byte(strings.Repeat("garbage", 1+len(b)/7)) },
		"zeroed end":        func(b []byte) []byte { clear(b[len(b)*3/4:]); return b },
		"removed":           nil,
	}
	for i := range 8 {
		ways[fmt.Sprintf("byte flipped at %d/8", i)] = func(b []byte) []byte {
			if len(b) > 0 {
				b[len(b)*i/8] ^= 0x40
			}
			return b
		}
	}
	return ways
}

// spoilDrawn spoils some file, or some files, of a store: bytes are flipped, or
// an end is cut off, or it is removed.
func spoilDrawn(dir string, by *rand.Rand) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for range 1 + by.IntN(3)/2 {
		path := filepath.Join(dir, files[by.IntN(len(files))].Name())
		b, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // removed before
		}
		if err != nil {
			return err
		}
		switch chance := by.IntN(20); {
		case chance == 0:
			err = os.Remove(path)
		case chance < 7:
			err = os.Truncate(path, by.Int64N(int64(len(b))+1))
		case len(b) > 0:
			for range 1 + by.IntN(8) {
				b[by.IntN(len(b))] ^= byte(1 + by.IntN(255))
			}
			err = os.WriteFile(path, b, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// setting is a number of the environment.
func setting(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	must(t, err)
	return n
}

// TestDamage spoils one file after another in every way, and then stores in ways
// that are drawn. Opening the store never ends the process; it finds nothing, or
// what once was, or reading says that it is damaged. A process of its own does
// it, because what dies in one of Pebble's goroutines takes the whole process
// with it. WAYBILL_SPOILED is how many ways are drawn, WAYBILL_SEED repeats them.
func TestDamage(t *testing.T) {
	const variable, drawing = "WAYBILL_TEST_DAMAGE_AFTER", "WAYBILL_SEED"
	drawn, seed := setting(t, "WAYBILL_SPOILED", 30), setting(t, drawing, int(rand.Uint32()))
	if after, ok := os.LookupEnv(variable); ok {
		spoilAll(t, after, drawn, uint64(seed))
		return
	}
	t.Logf("%s=%d", drawing, seed)
	for after := ""; ; {
		cmd := exec.Command(os.Args[0], "-test.run=^TestDamage$", "-test.timeout=0")
		cmd.Env = append(os.Environ(), variable+"="+after, fmt.Sprintf("%s=%d", drawing, seed), "TMPDIR="+t.TempDir()) // what dies does not clean up
		out, err := cmd.CombinedOutput()
		if err == nil {
			return
		}
		rest := string(out)
		if i := strings.LastIndex(rest, "spoil: "); i >= 0 {
			rest = rest[i+len("spoil: "):]
		}
		what, rest, _ := strings.Cut(rest, "\n")
		_, why, panicked := strings.Cut(rest, "panic: ")
		if !panicked {
			t.Fatalf("%v:\n%s", err, out)
		}
		why, _, _ = strings.Cut(why, "\n")
		t.Errorf("%s: the process died: %s", what, why)
		after = what
	}
}

// spoilAll tries all kinds of damage that come after the given one.
func spoilAll(t *testing.T, last string, drawn int, seed uint64) {
	// In memory, because there a running store can be copied as of one moment.
	fs := vfs.NewCrashableMem()
	o := options(fs, silent)
	o.DisableAutomaticCompactions = true
	db, err := pebble.Open("store", o)
	must(t, err)
	s := &Store{db: db}
	must(t, s.begin(identity))
	states := map[int64]map[string]string{0: {}}
	seqs := map[int64]map[string]uint64{0: {}}
	foldAll(t, s, longJournal(40), func(p *Partition) {
		states[p.Head().Offset], seqs[p.Head().Offset] = dump(t, s, 0), numbers(t, s)
		if n := p.Head().Transaction; n == 20 || n == 40 {
			must(t, db.Flush()) // tables, not only a log
		}
	})
	must(t, db.LogData(nil, pebble.Sync)) // all of the log is in its file
	taken := filepath.Join(t.TempDir(), "taken")
	_, err = vfs.Clone(fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))}), vfs.Default, "store", taken)
	must(t, err)
	must(t, s.Close())

	files, err := os.ReadDir(taken)
	must(t, err)
	ways := ways()
	outcomes := make(map[string]int)
	try := func(what string, spoil func(dir string) error) {
		if what <= last {
			return
		}
		fmt.Fprintln(os.Stdout, "spoil:", what)
		dir := filepath.Join(t.TempDir(), "store")
		must(t, os.CopyFS(dir, os.DirFS(taken)))
		must(t, spoil(dir))
		outcomes[tryDamaged(t, what, dir, states, seqs)]++
		must(t, os.RemoveAll(dir))
	}
	for _, file := range files {
		if file.Name() == "LOCK" {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(ways)) {
			try(file.Name()+" "+name, func(dir string) error {
				path, spoil := filepath.Join(dir, file.Name()), ways[name]
				if spoil == nil {
					return os.Remove(path)
				}
				b, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				return os.WriteFile(path, spoil(b), 0o600)
			})
		}
	}
	for n := range drawn { // names that follow those of files
		try(fmt.Sprintf("store in way %06d of %d", n, seed), func(dir string) error {
			return spoilDrawn(dir, rand.New(rand.NewPCG(seed, uint64(n))))
		})
	}
	t.Log(outcomes)
	if last == "" {
		spoiled, came := 0, reliability.Figures{}
		for _, outcome := range slices.Sorted(maps.Keys(outcomes)) {
			spoiled += outcomes[outcome]
			came = append(came, reliability.Figure{Name: outcome, Value: outcomes[outcome]})
		}
		reliability.Write(t, "damage", fmt.Sprintf("make reliability PART=damage SPOILED=%d WAYBILL_SEED=%d", drawn, seed), reliability.Figures{
			{Name: "seed", Value: seed},
			{Name: "stores spoiled", Value: spoiled},
			{Name: "what was found", Value: came},
		})
	}
	for _, outcome := range []string{"nothing", "as it was", "damaged"} {
		if last == "" && outcomes[outcome] == 0 {
			t.Errorf("no damage leads to %q: %v", outcome, outcomes)
		}
	}
}

// numbers are those of each order's last event.
func numbers(t *testing.T, s *Store) map[string]uint64 {
	t.Helper()
	page, err := s.List(t.Context(), 1, Filter{Limit: 1000})
	must(t, err)
	seq := make(map[string]uint64)
	for _, o := range page.Orders {
		seq[o.ID] = o.Seq
	}
	return seq
}

func tryDamaged(t *testing.T, what, dir string, states map[int64]map[string]string, seqs map[int64]map[string]uint64) string {
	t.Helper()
	s, err := Open(dir, identity, silent)
	if err != nil {
		t.Errorf("%s: it does not open: %v", what, err)
		return "error"
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Logf("%s: close: %v", what, err)
		}
	}()
	found := make(map[string]string)
	var head Head
	err = s.Dump(0, func(h Head) error { head = h; return nil }, func(key, value []byte) error {
		found[string(key)] = string(value)
		return nil
	})
	if err == nil {
		if state, ok := states[head.Offset]; !ok || !maps.Equal(found, state) {
			t.Errorf("%s: at offset %d the store is silently wrong: %d keys of %d", what, head.Offset, len(found), len(state))
		}
		if len(found) == 0 {
			return "nothing"
		}
		return "as it was"
	}
	if !errors.Is(err, ErrDamaged) {
		t.Errorf("%s: reading says %v, and not that it is damaged", what, err)
	}
	// Other ways to read it fail the same way, or are right.
	_, err = s.List(t.Context(), 1, Filter{Limit: 1000})
	checkDamage(t, what, err)
	p, err := s.Partition(0)
	if err != nil {
		checkDamage(t, what, err)
		return "damaged"
	}
	_, err = p.Due(at(100_000), 1000)
	checkDamage(t, what, err)
	// An end that was cut off may have taken it back to what it once was.
	once, ok := seqs[p.Head().Offset]
	if !ok {
		t.Errorf("%s: it is at offset %d, where it never was", what, p.Head().Offset)
	}
	for id := range seqs[slices.Max(slices.Collect(maps.Keys(seqs)))] {
		o, _, err := s.Order(0, id)
		if errors.Is(err, ErrNotFound) && once[id] == 0 {
			continue
		}
		checkDamage(t, what, err)
		if err == nil && o.Seq != once[id] {
			t.Errorf("%s: order %s is silently wrong: %d events of %d", what, id, o.Seq, once[id])
		}
	}
	return "damaged"
}

func checkDamage(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil && !errors.Is(err, ErrDamaged) {
		t.Errorf("%s: reading says %v, and not that it is damaged", what, err)
	}
}
