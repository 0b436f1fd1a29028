package broker

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// diskCheckInterval is how often free space is looked at. DefaultMinFree is
// more than the broker can write in that time on the machines it is meant for.
const diskCheckInterval = time.Second

// diskGuard refuses new records while the disk is almost full. It has to act
// early: once the disk is full, kfake still answers that a transaction was
// committed although it could not write the markers that say so.
//
// Only Produce is refused, with an error that clients retry. Whoever has all
// records of a transaction in can therefore still commit it, any transaction
// can be aborted, and one that is in between waits until there is space or its
// transaction timeout ends it.
type diskGuard struct {
	cluster *kfake.Cluster
	dir     string
	minFree uint64
	free    func(dir string) (uint64, error)
	log     *slog.Logger

	full atomic.Bool

	mu      sync.Mutex // guards what follows
	refusal *kfake.FaultHandle
	blind   bool // the last look at the free space failed

	cancel context.CancelFunc
	done   chan struct{}
}

func startDiskGuard(cluster *kfake.Cluster, dir string, minFree uint64, free func(string) (uint64, error), log *slog.Logger) *diskGuard {
	ctx, cancel := context.WithCancel(context.Background())
	g := &diskGuard{
		cluster: cluster, dir: dir, minFree: minFree, free: free, log: log,
		cancel: cancel, done: make(chan struct{}),
	}
	g.check()
	go g.run(ctx)
	return g
}

func (g *diskGuard) run(ctx context.Context) {
	defer close(g.done)
	tick := time.NewTicker(diskCheckInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			g.check()
		}
	}
}

func (g *diskGuard) stop() {
	g.cancel()
	<-g.done
}

// check looks at the free space and starts or stops refusing. When it cannot
// look, it leaves things as they are.
func (g *diskGuard) check() {
	g.mu.Lock()
	defer g.mu.Unlock()

	free, err := g.free(g.dir)
	if err != nil {
		if !g.blind {
			g.log.Error("broker cannot tell how much disk space is free", "dir", g.dir, "err", err)
		}
		g.blind = true
		return
	}
	g.blind = false

	switch full := free < g.minFree; {
	case full && g.refusal == nil:
		g.refusal = g.cluster.Fault(kfake.Fault{
			Keys:  []kmsg.Key{kmsg.Produce},
			Err:   kerr.KafkaStorageError,
			Count: -1, // until removed
		})
		g.full.Store(true)
		g.log.Error("broker refuses new records: the disk is almost full", "dir", g.dir, "free", free, "needed", g.minFree)
	case !full && g.refusal != nil:
		g.refusal.Remove()
		g.refusal = nil
		g.full.Store(false)
		g.log.Info("broker accepts records again", "dir", g.dir, "free", free)
	}
}
