package agents

import "github.com/twmb/franz-go/pkg/kgo"

// watermark says how far the requests of a partition are finished without a
// gap, while they finish in any order.
type watermark struct {
	pending []fetched // from head on: the oldest unfinished request and all after it
	head    int
	oldest  ticket          // the ticket of pending[head]
	next    kgo.EpochOffset // the offset to commit: the one after the last gapless finish
}

// ticket counts the requests of a partition. Offsets would not do to find a
// request in a slice: they have gaps, such as the markers of transactions.
type ticket uint64

type fetched struct {
	offset   int64
	epoch    int32
	finished bool
}

// begin enters a request; those of a partition must come in the order of the log.
func (w *watermark) begin(r *kgo.Record) ticket {
	if w.head > len(w.pending)/2 && len(w.pending) == cap(w.pending) {
		w.pending = w.pending[:copy(w.pending, w.pending[w.head:])]
		w.head = 0
	}
	w.pending = append(w.pending, fetched{offset: r.Offset, epoch: r.LeaderEpoch})
	return w.oldest + ticket(w.ahead()-1)
}

// finish marks a request, and moves the mark on if it was the oldest.
func (w *watermark) finish(t ticket) {
	w.pending[w.head+int(t-w.oldest)].finished = true
	for w.head < len(w.pending) && w.pending[w.head].finished {
		w.next = kgo.EpochOffset{Epoch: w.pending[w.head].epoch, Offset: w.pending[w.head].offset + 1}
		w.head++
		w.oldest++
	}
	if w.head == len(w.pending) {
		w.pending, w.head = w.pending[:0], 0
	}
}

// ahead is how many requests lie above the mark.
func (w *watermark) ahead() int { return len(w.pending) - w.head }
