package projections

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Identity says whose projection a store holds.
type Identity struct {
	Cluster   string `json:"cluster"` // the Kafka cluster's id
	Namespace string `json:"namespace"`
}

// Store is the Pebble database of one instance: the projection of every
// partition that it owns or follows. All methods may be called concurrently.
type Store struct {
	db      *pebble.DB
	lock    *pebble.Lock // nil in memory
	damaged *damaged
	log     pebbleLog
	// partitions is how many writers share the memory.
	partitions atomic.Int32
	known      sync.Map // of partitions; see [Store.Known]
	watches    watches

	counts   sync.Map     // of partitions; see [Store.Counts]
	counting sync.RWMutex // is held for reading while some are counted
	closing  atomic.Bool
}

// damaged is closed when Pebble itself finds damage, for example while it
// compacts.
type damaged struct {
	once  sync.Once
	found chan struct{}
}

// watch makes Pebble report damage. By default it ends the process, but the
// journal has everything. What cannot be written beside ends the process, as in [pebbleLog.commit]: Pebble would try
// again at once, for ever, and soon nobody could write or read any more.
func (d *damaged) watch(o *pebble.Options) *pebble.Options {
	o.EventListener = &pebble.EventListener{
		DataCorruption: func(c pebble.DataCorruptionInfo) {
			o.Logger.Errorf("%s is damaged: %v", c.Path, c.Details)
			d.once.Do(func() { close(d.found) })
		},
		BackgroundError: func(err error) {
			if isAny(err, full) { // what else it may be is of reading, too, or passes
				o.Logger.Fatalf("%v", err)
			}
			o.Logger.Errorf("background error: %v", err)
		},
	}
	return o
}

// Errors of a machine, which say nothing about what is stored: it takes nothing that is written, or does not let the process at it, or
// lacks something for a moment.
var (
	full    = []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS}
	lacking = append(full[:len(full):len(full)], os.ErrPermission, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM)
)

func isAny(err error, of []error) bool {
	return slices.ContainsFunc(of, func(one error) bool { return errors.Is(err, one) })
}

// Damaged is closed once the store is known to be damaged. Nobody may be
// reading at that moment, and no write would fail.
func (s *Store) Damaged() <-chan struct{} { return s.damaged.found }

// ErrInUse says that another process has the store open.
var ErrInUse = errors.New("the data directory is used by another process")

// ErrDamaged says that the store does not hold what was written. Throw the
// directory away and open it again: the journal has everything.
var ErrDamaged = errDamaged

// errUnusable says that a store is whole, and not for this instance.
var errUnusable = errors.New("the store cannot be used")

// Open opens the store in dir, and creates it where there is none. One of an older
// layout is brought to that of this release, which may take a while; it goes on
// where it was if it is interrupted. A store that is damaged, of a layout that this
// release does not know, or the projection of another namespace or cluster is
// removed and begun anew, empty; the log says so. It fails with [ErrInUse] when
// another process holds it, when dir cannot be written, and when the machine lacks what it takes to open it, such as room
// on the disk: that says nothing about what is stored.
func Open(dir string, id Identity, log *slog.Logger) (*Store, error) {
	s, err := open(dir, id, log)
	if !errors.Is(err, errDamaged) && !errors.Is(err, errUnusable) {
		return s, err
	}
	log.Warn("the state store is set aside and rebuilt from the journal", "dir", dir, "why", err)
	if err := os.RemoveAll(dir); err != nil { //nolint:gosec // whoever runs the instance names it
		return nil, fmt.Errorf("remove the damaged state store: %w", err)
	}
	return open(dir, id, log)
}

// Temporary opens an empty store in memory.
func Temporary() (*Store, error) {
	d := &damaged{found: make(chan struct{})}
	db, err := pebble.Open("", d.watch(options(vfs.NewMem(), slog.New(slog.DiscardHandler))))
	if err != nil {
		return nil, fmt.Errorf("open a store in memory: %w", err)
	}
	return &Store{db: db, damaged: d, log: pebbleLog{slog.New(slog.DiscardHandler)}}, nil
}

func options(fs vfs.FS, log *slog.Logger) *pebble.Options {
	o := &pebble.Options{
		FS:                    fs,
		Logger:                pebbleLog{log},
		FormatMajorVersion:    pebble.FormatNewest,
		MemTableSize:          32 << 20,
		L0CompactionThreshold: 4,
		CacheSize:             128 << 20,
	}
	for i := range o.Levels {
		// Most look-ups are for order ids that were never seen.
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	return o
}

func open(dir string, id Identity, log *slog.Logger) (_ *Store, err error) {
	if err := os.MkdirAll(dir, 0o750); err != nil { //nolint:gosec // as above
		return nil, fmt.Errorf("create the data directory: %w", err)
	}
	lock, err := pebble.LockDirectory(dir, vfs.Default)
	if isAny(err, lacking) {
		return nil, cannotOpen(err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s (%v); stop it, or choose another with --data-dir", ErrInUse, dir, err)
	}
	d := &damaged{found: make(chan struct{})}
	o := d.watch(options(vfs.Default, log))
	o.Lock = lock
	db, err := pebble.Open(dir, o)
	if err != nil {
		err = errors.Join(err, lock.Close())
		return nil, cannotOpen(err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, db.Close(), lock.Close())
		}
	}()

	s := &Store{db: db, lock: lock, damaged: d, log: pebbleLog{log}}
	have, err := s.get(db, metaKey)
	if err != nil {
		return nil, cannotOpen(err)
	}
	if have == nil {
		if err = empty(db); err != nil {
			return nil, err
		}
		if err = s.begin(id); err != nil {
			return nil, err
		}
		return s, nil
	}
	m, err := readMeta(have, id)
	if err != nil {
		return nil, err
	}
	if err = migrate(db, m, layout, migrations, atOnce, log); err != nil {
		return nil, err
	}
	return s, nil
}

// cannotOpen is damage, unless the machine is to blame: whatever else Pebble cannot open is of no use, and the journal has it all.
func cannotOpen(err error) error {
	if isAny(err, lacking) {
		return fmt.Errorf("open the state store: %w", err)
	}
	return fmt.Errorf("%w: %w", errDamaged, err)
}

// begin says in an empty store what it is.
func (s *Store) begin(id Identity) error {
	b := s.db.NewBatch()
	defer b.Close()
	if err := (&meta{Identity: id, Layout: layout}).write(b); err != nil {
		return err
	}
	return s.log.commit(b, pebble.Sync)
}

// commit writes a batch. Where Pebble's log cannot be written, for one, since the disk is full, Pebble panics under
// its locks, and nobody can write or close the store any more.
func (l pebbleLog) commit(b *pebble.Batch, how *pebble.WriteOptions) error {
	defer func() {
		v := recover()
		if err, is := v.(error); is && !errors.As(err, new(runtime.Error)) {
			l.Fatalf("%v", err)
		}
		if v != nil {
			panic(v)
		}
	}()
	if err := b.Commit(how); err != nil {
		return fmt.Errorf("write the state store: %w", err)
	}
	return nil
}

// empty fails when db has keys but no identity.
func empty(db *pebble.DB) error {
	it, err := db.NewIter(nil)
	if err != nil {
		return err
	}
	some := it.First()
	if err := it.Close(); err != nil {
		return cannotOpen(err)
	}
	if some {
		return fmt.Errorf("%w: it does not say whose it is", errDamaged)
	}
	return nil
}

// Close writes what is buffered and closes the store.
func (s *Store) Close() error {
	s.closing.Store(true)
	s.counting.Lock()
	defer s.counting.Unlock()
	err := s.db.Close()
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
	}
	return err
}

// get reads a key into a fresh slice; nil without error if it is not there.
func (s *Store) get(r pebble.Reader, key []byte) ([]byte, error) {
	v, closer, err := r.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, damage(err)
	}
	out := append(make([]byte, 0, len(v)), v...)
	return out, closer.Close()
}

// damage marks a read error that says that the files are not what was written.
func damage(err error) error {
	if pebble.IsCorruptionError(err) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	return fmt.Errorf("read the state store: %w", err)
}

// pebbleLog passes on what Pebble says. Its informational lines, one for each
// flush and compaction, are for Pebble's own developers.
type pebbleLog struct{ log *slog.Logger }

func (l pebbleLog) Infof(format string, args ...any) {}

func (l pebbleLog) Errorf(format string, args ...any) {
	l.log.Error("state store: " + fmt.Sprintf(format, args...))
}

// Fatalf must not return: Pebble calls it when it can neither go on nor report
// an error, for example when its log cannot be written any more. The process ends as if
// it were killed, which loses nothing: all is in the journal.
func (l pebbleLog) Fatalf(format string, args ...any) {
	l.log.Error("the state store cannot be written, and the process ends: see that its disk has room and takes what is written, and start it again", "error", fmt.Sprintf(format, args...))
	os.Exit(1)
}
