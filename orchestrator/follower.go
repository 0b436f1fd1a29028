package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
)

// follower folds the journals of the partitions that the instance does not
// own. It is the standby: a takeover then reads only the end.
type follower struct {
	topic  string
	client *kgo.Client
	log    *slog.Logger

	mu     sync.Mutex
	states map[int32]*projections.Partition
}

func newFollower(i *Instance) (*follower, error) {
	client, err := kgo.NewClient(append(i.kafka[:len(i.kafka):len(i.kafka)],
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchMaxWait(time.Second),
		kgo.MetadataMinAge(metadataMinAge),
		kgo.FetchMaxBytes(16<<20),
	)...)
	if err != nil {
		return nil, fmt.Errorf("reader of the journal: %w", err)
	}
	return &follower{topic: i.topics.Journal, client: client, log: i.log, states: make(map[int32]*projections.Partition)}, nil
}

// follow begins to fold partition p.
func (f *follower) follow(state *projections.Partition, p int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	state.Forget()
	f.states[p] = state
	f.client.AddConsumePartitions(map[string]map[int32]kgo.Offset{f.topic: {p: kgo.NewOffset().At(state.Head().Offset)}})
}

// release stops following p and hands its state over. When it has returned,
// nobody else touches the state.
func (f *follower) release(p int32) *projections.Partition {
	f.mu.Lock()
	defer f.mu.Unlock()
	state := f.states[p]
	f.drop(p)
	return state
}

func (f *follower) drop(p int32) {
	delete(f.states, p)
	f.client.RemoveConsumePartitions(map[string][]int32{f.topic: {p}})
}

// run follows until ctx ends.
func (f *follower) run(ctx context.Context, fail context.CancelCauseFunc) {
	for {
		fetches := f.client.PollRecords(ctx, 10_000)
		if ctx.Err() != nil {
			return
		}
		f.mu.Lock()
		fetches.EachPartition(func(fetched kgo.FetchTopicPartition) {
			state := f.states[fetched.Partition]
			if state == nil {
				return // it was handed over
			}
			err := fetched.Err
			for i := 0; i < len(fetched.Records) && err == nil; i++ {
				r := fetched.Records[i]
				err = state.Fold(r.Offset, r.Value, events.HeaderValue(r, events.HeaderLane))
			}
			if err == nil {
				err = state.Flush()
			}
			switch {
			case err == nil:
			case errors.Is(err, projections.ErrDamaged):
				fail(err)
			default:
				f.restart(fetched.Partition, state, err)
			}
		})
		f.mu.Unlock()
	}
}

// restart folds a partition again from its beginning. A takeover would do the
// same, and calls an operator when that does not help either.
func (f *follower) restart(p int32, state *projections.Partition, why error) {
	f.log.Error("cannot follow the journal; folding it again from its beginning", "partition", p, "error", why)
	f.drop(p)
	if err := state.Reset(); err != nil {
		f.log.Error("cannot reset the partition", "partition", p, "error", err)
	}
	f.states[p] = state
	f.client.AddConsumePartitions(map[string]map[int32]kgo.Offset{f.topic: {p: kgo.NewOffset().AtStart()}})
}
