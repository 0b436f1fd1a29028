package lane

import (
	"slices"
	"sync"
	"time"
)

const (
	// leastTurns is how many lanes may commit at a time at least: while Kafka works on one,
	// the next is on its way.
	leastTurns = 2
	// So many commits are counted with as many at a time as now, and with half as many
	// more: in slices, in turn, each after those that were under way when it began.
	countTurns, sliceTurns = 64, 16
	// More may commit at a time if that ends more than pays of the commits a second that it
	// could, and fewer if it ends less than wasted of them.
	pays, wasted = 0.7, 0.4
	// One fewer may, after so long in which nobody waited.
	unneededAfter = time.Second
	// A turn is lent out after so many times what commits take, and no sooner than lentLeast.
	lentAfter, lentLeast = 4, 50 * time.Millisecond
)

// Turns lets lanes of an instance commit, a few at a time. What a lane decides while it waits
// for its turn is in the same commit, and each costs Kafka and the processors as much as
// many orders in one. So as many may commit at a time as are the quicker for it: where
// Kafka answers as soon however many there are, they hardly wait; where each makes the others
// slower, they take turns. That is tried out all the time, as BBR does it (Cardwell et al.,
// 2016): by how many commits end in a second while lanes wait.
//
// The zero value is ready, and safe for concurrent use.
type Turns struct {
	mu      sync.Mutex
	more    int // that may commit at a time, beyond leastTurns
	under   int // turns that count
	waiting []*Turn
	// needed is when somebody waited last, and usual what commits take.
	needed time.Time
	usual  time.Duration

	trying bool      // half as many more
	slice  int       // commits of this slice; negative while those of before end
	since  time.Time // when what is counted was, zero while nobody waits
	counts [2]struct {
		commits int
		took    time.Duration
	}
}

// Turn is that of a lane, to commit one batch.
type Turn struct {
	of      *Turns
	granted chan struct{} // closed once it is the lane's turn
	counts  bool          // it is the lane's turn, and not lent out
	began   time.Time
	lends   *time.Timer
}

// Ask begins to wait for a turn, behind those that asked before. [Turn.End] ends that.
func (t *Turns) Ask() *Turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if len(t.waiting) == 0 && now.Sub(t.needed) > unneededAfter {
		t.needed, t.more = now, max(0, t.more-1)
	}
	turn := &Turn{of: t, granted: make(chan struct{})}
	t.waiting = append(t.waiting, turn)
	t.grant(now)
	return turn
}

// most is how many may commit at a time.
func (t *Turns) most() int {
	n := leastTurns + t.more
	if t.trying {
		n += n / 2
	}
	return n
}

// grant has those go for whom there is room.
func (t *Turns) grant(now time.Time) {
	for len(t.waiting) > 0 && t.under < t.most() {
		turn := t.waiting[0]
		t.waiting = slices.Delete(t.waiting, 0, 1)
		t.under, turn.counts, turn.began = t.under+1, true, now
		turn.lends = time.AfterFunc(max(lentLeast, lentAfter*t.usual), turn.lend)
		close(turn.granted)
	}
	t.count(now)
}

// count counts the time for which somebody has waited.
func (t *Turns) count(now time.Time) {
	if !t.since.IsZero() && t.slice >= 0 {
		t.counts[t.arm()].took += now.Sub(t.since)
	}
	t.since = time.Time{}
	if len(t.waiting) > 0 {
		t.since, t.needed = now, now
	}
}

func (t *Turns) arm() int {
	if t.trying {
		return 1
	}
	return 0
}

// End gives the turn up, whether the lane has it or waits for it, and says whether a batch was
// committed in it. A second time it does nothing, nor does it without a turn.
func (turn *Turn) End(committed bool) {
	if turn == nil {
		return
	}
	t, now := turn.of, time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.waiting, turn); i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
		t.count(now)
		return
	}
	if committed && turn.counts {
		t.usual += (now.Sub(turn.began) - t.usual) / 8
		t.ended(now)
	}
	turn.passOn(now)
}

// lend has another go meanwhile: a partition that is slow or hangs is no reason for others
// to wait.
func (turn *Turn) lend() {
	t, now := turn.of, time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if turn.counts {
		t.usual += (now.Sub(turn.began) - t.usual) / 8
	}
	turn.passOn(now)
}

func (turn *Turn) passOn(now time.Time) {
	if turn.counts {
		turn.counts = false
		turn.lends.Stop()
		turn.of.under--
		turn.of.grant(now)
	}
}

// ended counts a commit. Those while nobody waits say nothing: more could not have ended.
func (t *Turns) ended(now time.Time) {
	if t.since.IsZero() {
		return
	}
	t.count(now)
	if t.slice++; t.slice <= 0 {
		return
	}
	t.counts[t.arm()].commits++
	if t.slice < max(sliceTurns, 2*t.most()) {
		return
	}
	if now, more := t.counts[0], t.counts[1]; now.commits >= countTurns && more.commits >= countTurns {
		t.decide(float64(more.commits)/more.took.Seconds(), float64(now.commits)/now.took.Seconds())
	}
	t.slice = -2 * t.most()
	t.trying = !t.trying
}

// decide says how many may commit at a time from now on, by how many ended a second with as
// many as now and with more.
func (t *Turns) decide(more, now float64) {
	n := leastTurns + t.more
	switch gain := (more/now - 1) / (float64(n+n/2)/float64(n) - 1); {
	case gain > pays:
		t.more += n / 2
	case gain < wasted:
		t.more = max(0, t.more-max(1, n/3))
	}
	clear(t.counts[:])
}
