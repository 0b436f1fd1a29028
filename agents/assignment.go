package agents

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// runAhead bounds how many requests of a partition may lie above its watermark.
// Beyond it the partition is not fetched until the oldest request is finished,
// or half of them are. A finished request above the mark costs 16 bytes here, and
// one repetition after a crash.
//
// It is more than a healthy instance can have: readAhead, and the 10,000 replies
// that the client buffers. Whoever pauses a partition waits for a fetch that was
// begun without it once it is resumed; see fetchWait.
const runAhead = 20_000

// commitTimeout bounds one commit, so that a rebalance never waits long for it.
const commitTimeout = 10 * time.Second

// assignment holds the partitions that this instance owns.
type assignment struct {
	client *kgo.Client
	topic  string
	log    *slog.Logger
	queue  *queue // what was read ahead under terms

	// commits makes one of gathering offsets and committing them. Kafka checks
	// that a commit comes from a member of the group, not that the member owns
	// the partition: a commit gathered before a partition was given up must not
	// arrive after it, over the new owner's.
	commits sync.Mutex

	mu         sync.Mutex
	partitions map[int32]*partition
}

// partition is one term of owning a partition. Whatever finishes after the term
// finishes on an object that nobody commits any more.
type partition struct {
	number int32
	over   atomic.Bool // the term ended: do not start its requests any more

	mu        sync.Mutex
	mark      watermark
	committed int64 // the offset last committed, 0 for none in this term
	paused    bool
}

// job is a request that was fetched under a term.
type job struct {
	*kgo.Record
	ticket    ticket
	partition *partition
	rank      rank
	arrival   uint64    // counts what the instance read, in the order of reading
	half      time.Time // see halfway; zero before that was asked
}

// begin enters fetched requests and appends them to jobs. Rebalances must be
// blocked meanwhile, or requests of an ended term would enter the next one.
func (a *assignment) begin(jobs []job, fetches kgo.Fetches) []job {
	a.mu.Lock()
	defer a.mu.Unlock()
	fetches.EachPartition(func(f kgo.FetchTopicPartition) {
		p := a.partitions[f.Partition]
		if p == nil {
			return // only errors come without a partition of ours
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, r := range f.Records {
			jobs = append(jobs, job{Record: r, ticket: p.mark.begin(r), partition: p})
		}
		if p.mark.ahead() >= runAhead && !p.paused {
			p.paused = true
			a.client.PauseFetchPartitions(a.only(p))
			a.log.Warn("an old request, slow or of low priority, holds up its partition; not fetching more of it for now",
				"topic", a.topic, "partition", p.number, "watermark", p.mark.next.Offset, "ahead", p.mark.ahead())
		}
	})
	return jobs
}

// finish counts a request as done with: its reply is out, or it has none.
func (a *assignment) finish(j job) {
	p := j.partition
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mark.finish(j.ticket)
	if p.paused && p.mark.ahead() <= runAhead/2 {
		a.resume(p)
	}
}

// resume needs p.mu, which keeps pausing and resuming in their order.
func (a *assignment) resume(p *partition) {
	p.paused = false
	a.client.ResumeFetchPartitions(a.only(p))
}

func (a *assignment) only(p *partition) map[string][]int32 {
	return map[string][]int32{a.topic: {p.number}}
}

// assigned begins terms.
func (a *assignment) assigned(_ context.Context, _ *kgo.Client, gained map[string][]int32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, number := range gained[a.topic] {
		a.partitions[number] = &partition{number: number}
	}
}

// revoked ends terms in good order: the group waits until this returns before
// another instance gets the partitions, so the watermarks are committed first.
func (a *assignment) revoked(ctx context.Context, _ *kgo.Client, gone map[string][]int32) {
	a.commits.Lock()
	defer a.commits.Unlock()
	ended := a.drop(gone)
	if err := a.write(ctx, ended); err != nil {
		a.log.Warn("requests that were answered will come again: could not commit before giving up partitions",
			"topic", a.topic, "partitions", gone[a.topic], "error", err)
	}
}

// lost ends terms that are over already: others may own the partitions.
func (a *assignment) lost(_ context.Context, _ *kgo.Client, gone map[string][]int32) {
	a.commits.Lock()
	defer a.commits.Unlock()
	a.drop(gone)
}

func (a *assignment) drop(gone map[string][]int32) []*partition {
	a.mu.Lock()
	defer a.mu.Unlock()
	var ended []*partition
	for _, number := range gone[a.topic] {
		p := a.partitions[number]
		if p == nil {
			continue
		}
		delete(a.partitions, number)
		ended = append(ended, p)
		p.over.Store(true)
		p.mu.Lock()
		if p.paused {
			a.resume(p) // or the client would stay paused in a later term
		}
		p.mu.Unlock()
	}
	a.queue.forget()
	return ended
}

// commit commits the watermarks that moved.
func (a *assignment) commit(ctx context.Context) error {
	a.commits.Lock()
	defer a.commits.Unlock()
	a.mu.Lock()
	owned := make([]*partition, 0, len(a.partitions))
	for _, p := range a.partitions {
		owned = append(owned, p)
	}
	a.mu.Unlock()
	return a.write(ctx, owned)
}

// write needs a.commits.
func (a *assignment) write(ctx context.Context, partitions []*partition) error {
	moved := make(map[int32]kgo.EpochOffset)
	for _, p := range partitions {
		p.mu.Lock()
		if p.mark.next.Offset != p.committed {
			moved[p.number] = p.mark.next
		}
		p.mu.Unlock()
	}
	if len(moved) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	var failed error
	a.client.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{a.topic: moved},
		func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
			failed = committed(resp, err)
		})
	if failed != nil {
		return failed
	}
	for _, p := range partitions {
		if next, ok := moved[p.number]; ok {
			p.mu.Lock()
			p.committed = next.Offset
			p.mu.Unlock()
		}
	}
	return nil
}

// committed is the first error in the answer to a commit.
func committed(resp *kmsg.OffsetCommitResponse, err error) error {
	if err != nil {
		return err
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return fmt.Errorf("partition %d: %w", p.Partition, err)
			}
		}
	}
	return nil
}
