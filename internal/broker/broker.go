// Package broker is the Kafka-protocol broker inside the waybill binary, for
// development and small single-machine use. It is franz-go's kfake with its
// data on disk, plus what kfake leaves to whoever runs it: a lock on the data
// directory, recovery after a kill, flushes that serve all who wait and are known
// to have succeeded, and a guard against a full disk.
//
// It is one process with one copy of the data, not a cluster. What it promises
// and what it does not is written down in docs/embedded-broker.md.
package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// DefaultMinFree is the free disk space that the broker keeps in reserve when
// Config.MinFree is zero: room for the transactions in flight to end, and for
// an operator to log in and clean up.
const DefaultMinFree = 256 << 20

// minSessionTimeout is the shortest consumer group session that the broker
// accepts. Kafka's default of six seconds protects a loaded cluster; here it
// would only make a restart during development slow.
const minSessionTimeout = time.Second

// Config says where the broker keeps its data and where it listens.
type Config struct {
	// Dir is the data directory, created if it does not exist. Empty keeps
	// everything in memory.
	Dir string

	// Addr is the host:port to listen on, and the address that clients are
	// told to connect to. Port 0 picks a free one.
	Addr string

	// Fsync makes the broker answer only when all that was written before
	// is on the disk, so that what it acknowledged survives a power loss.
	// Without it, acknowledged data survives the process but not the
	// machine. When a flush fails, the broker answers nothing any more; see
	// Failed. In memory it has no effect.
	Fsync bool

	// MinFree is the number of free bytes on the disk of Dir below which
	// new records are refused. Zero means DefaultMinFree.
	MinFree uint64

	// Logger receives what the broker has to say. Nil discards it.
	Logger *slog.Logger
}

// Broker is a running broker. Its methods may be called concurrently.
type Broker struct {
	cluster *kfake.Cluster
	addr    string
	doors   *doors
	lock    *dirLock   // nil in memory
	guard   *diskGuard // nil in memory
	flush   *flusher   // nil without Config.Fsync, and in memory

	closeOnce sync.Once
	closeErr  error
}

// Start recovers the data directory and starts a broker on it. It fails with
// ErrLocked if another process uses the directory, and with ErrDamaged if the
// data is damaged in a way that no crash explains.
func Start(cfg Config) (*Broker, error) {
	return start(cfg, disk{free: freeSpace, sync: syncFile, limit: logLimit})
}

func start(cfg Config, disk disk) (_ *Broker, err error) {
	log := cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	b := &Broker{}
	defer func() {
		if err != nil {
			if b.flush != nil {
				err = errors.Join(err, b.flush.stop())
			}
			err = errors.Join(err, b.lock.release())
		}
	}()

	if cfg.Dir != "" {
		cfg.Dir = filepath.Clean(cfg.Dir)
		mkdir := os.MkdirAll
		if flushes(cfg) {
			mkdir = disk.mkdirAll
		}
		if err := mkdir(cfg.Dir, 0o700); err != nil {
			return nil, fmt.Errorf("create the broker's data directory: %w", err)
		}
		if b.lock, err = lockDir(cfg.Dir); err != nil {
			return nil, err
		}
		generation, err := recoverFlushed(cfg.Dir, log)
		if err == nil {
			err = recoverDir(cfg.Dir, log)
		}
		if err != nil {
			return nil, fmt.Errorf("recover broker data in %s: %w", cfg.Dir, err)
		}
		if flushes(cfg) {
			b.flush, err = startFlusher(cfg.Dir, generation, disk, log)
		} else {
			err = dropFlushLogs(cfg.Dir, generation, disk.sync)
		}
		if err != nil {
			return nil, err
		}
	}

	ln, err := listen(cfg.Addr)
	if err != nil {
		return nil, err
	}
	b.addr, b.doors = ln.Addr().String(), openDoors(ln, log)

	if b.cluster, err = kfake.NewCluster(options(cfg, b.doors, b.flush, log)...); err != nil {
		return nil, fmt.Errorf("load broker data in %s: %w", cfg.Dir, errors.Join(err, b.doors.Close()))
	}
	if cfg.Dir != "" {
		b.guard = startDiskGuard(b.cluster, cfg.Dir, cmp.Or(cfg.MinFree, DefaultMinFree), disk.free, log)
	}
	return b, nil
}

// listen opens the broker's socket. It refuses a wildcard address, because the
// address is also what clients are sent to, and because a broker without
// authentication should be exposed by name, not by accident.
func listen(addr string) (net.Listener, error) {
	ln, err := new(net.ListenConfig).Listen(context.Background(), "tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("the broker's address %s is in use; stop what listens there or choose another with --kafka-addr: %w", addr, err)
	}
	if err != nil {
		return nil, fmt.Errorf("listen for Kafka clients on %q: %w", addr, err)
	}
	if isWildcard(ln.Addr()) {
		return nil, errors.Join(fmt.Errorf("the broker's address %q names no host that clients could connect to; give one with --kafka-addr", addr), ln.Close())
	}
	return ln, nil
}

func isWildcard(addr net.Addr) bool {
	bound, err := netip.ParseAddrPort(addr.String())
	return err == nil && bound.Addr().IsUnspecified()
}

func options(cfg Config, ln net.Listener, flush *flusher, log *slog.Logger) []kfake.Opt {
	opts := []kfake.Opt{
		kfake.NumBrokers(1),
		kfake.ClusterID("waybill-embedded"),
		kfake.GroupMinSessionTimeout(minSessionTimeout),
		// kfake only knows ports of 127.0.0.1, so it is handed the listener;
		// it advertises that listener's address.
		kfake.ListenFn(func(string, string) (net.Listener, error) { return frames{ln, flush, log}, nil }),
		kfake.WithLogger(clusterLog{log, flush}),
		kfake.MaxVersions(Spoken()),
		kfake.BrokerConfigs(map[string]string{
			// The default is seven days, and it applies to every topic as
			// soon as any topic sets a retention of its own. The journal is
			// the only truth there is: nothing expires unless its topic says so.
			"log.retention.ms": "-1",
			// Members of the newer consumer group protocol learn of a
			// rebalance by their next heartbeat.
			"group.consumer.heartbeat.interval.ms": "500",
		}),
	}
	if cfg.Dir != "" {
		opts = append(opts, kfake.DataDir(cfg.Dir))
	}
	if cfg.Fsync && flush == nil {
		opts = append(opts, kfake.SyncWrites())
	}
	return opts
}

// Spoken is what kfake speaks but for clients' telemetry (KIP-714): it would ask each for
// all there is, and read none of it, while a client needs more than a megabyte to compress that.
func Spoken() *kversion.Versions {
	v := kversion.Stable()
	for _, key := range []kmsg.Key{kmsg.GetTelemetrySubscriptions, kmsg.PushTelemetry} {
		v.SetMaxKeyVersion(key.Int16(), -1)
	}
	return v
}

// Addr returns the bootstrap address for clients.
func (b *Broker) Addr() string { return b.addr }

// Full reports whether the broker refuses new records at the moment because
// its disk is almost full.
func (b *Broker) Full() bool { return b.guard != nil && b.guard.full.Load() }

// Failed is closed when the broker could not put its data on the disk, after
// which it answers nothing. Close says why. Only starting anew helps, once the
// disk is well. It is nil without Config.Fsync.
func (b *Broker) Failed() <-chan struct{} {
	if b.flush == nil {
		return nil
	}
	return b.flush.failed
}

// Close stops the broker, writes its state to the data directory and releases
// the lock. Calling it again returns the first result.
func (b *Broker) Close() error {
	b.closeOnce.Do(func() {
		if b.guard != nil {
			b.guard.stop()
		}
		b.cluster.Close()
		if b.flush != nil {
			b.closeErr = b.flush.stop()
		}
		b.closeErr = errors.Join(b.closeErr, b.lock.release())
	})
	return b.closeErr
}
