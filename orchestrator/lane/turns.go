package lane

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

const (
	// leastTurns is how many lanes may commit at a time at least: while Kafka works on one,
	// the next is on its way.
	leastTurns = 2
	// startTurns is how many lanes may commit at a time, at most, before anything is found out. All at
	// once could leave Kafka no time to end any of their transactions: a producer that comes
	// back before that asks for all partitions of its topics, and again, and again.
	startTurns = 16
	// So many commits are counted with as many at a time as now, and with half as many
	// more: in slices, in turn, each after those that were under way when it began.
	countTurns, sliceTurns = 64, 16
	// More may commit at a time if that ends more than pays of the commits a second that it
	// could, and half as many if it ends less than wasted of them.
	pays, wasted = 0.7, 0.4
	// What was found out is forgotten after so long in which nobody waited, and once one waited for
	// too long though fewer than startTurns may, unless that was found out since: for a second, or
	// eachTurn for each that waited before it, as where Kafka ends 50 commits of the instance a second.
	turnsRest, tooLong, eachTurn = 5 * time.Second, time.Second, 20 * time.Millisecond
	// wantedIn is how long it counts how many wanted to commit at a time, and as long again.
	wantedIn = time.Second
	// A turn is lent out after so many times what commits usually take, and no sooner than
	// lentLeast, which is also taken for usual until one has ended.
	lentAfter, lentLeast = 4, 50 * time.Millisecond
)

// Turns lets lanes of an instance commit, a few at a time. What a lane decides while it waits
// for its turn is in the same commit, and each costs Kafka and the processors as much as
// many orders in one. So as many may commit at a time as are the quicker for it: where
// Kafka answers as soon however many there are, they hardly wait; where each makes the others
// slower, they take turns. That is tried out all the time, as BBR does it (Cardwell et al.,
// 2016): by how many commits end in a second while lanes wait. Until it is found out,
// [startTurns] may.
//
// A partition that is slow or hangs keeps nobody waiting: its turn is lent out, and who has waited for
// [tooLong] goes too. No more than half as many go beside those that may until one that began later
// ends: where none does, all of Kafka is slow, and more commits would make it slower.
//
// The zero value is ready, and safe for concurrent use.
type Turns struct {
	mu      sync.Mutex
	most    int // that may commit at a time, as was found out; 0 if nothing was
	under   int // turns that count
	waiting []*Turn
	beside  []*Turn       // turns that do not count, under way
	granted uint64        // how many turns there were
	newest  uint64        // of those in which a batch was committed
	found   time.Time     // when it was decided how many may
	needed  time.Time     // when somebody waited last
	usual   time.Duration // what commits take, most of them at least
	// wanted is how many had a turn or waited for one, at most, since a time, and
	// wantedBefore in the time before.
	wanted, wantedBefore int
	wantedSince          time.Time

	arm    int       // 0: as many as now, 1: half as many more
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
	order   uint64        // among all that were granted
	counts  bool          // it is the lane's turn, and not lent out
	began   time.Time
	next    *time.Timer // until it is granted, or lent out
}

// Ask begins to wait for a turn, behind those that asked before. [Turn.End] ends that.
func (t *Turns) Ask() *Turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	turn, now := &Turn{of: t, granted: make(chan struct{})}, time.Now()
	if len(t.waiting) == 0 && now.Sub(t.needed) > turnsRest {
		t.forget()
	}
	t.waiting = append(t.waiting, turn)
	t.want(now)
	if t.grant(now); turn.next == nil {
		turn.next = time.AfterFunc(max(tooLong, time.Duration(len(t.waiting))*eachTurn), turn.hurry)
	}
	return turn
}

func (t *Turns) forget() {
	t.most, t.arm, t.slice = 0, 0, 0
	clear(t.counts[:])
}

// want notes how many want to commit.
func (t *Turns) want(now time.Time) {
	if past := now.Sub(t.wantedSince); past >= wantedIn {
		if t.wantedBefore = t.wanted; past >= 2*wantedIn {
			t.wantedBefore = 0
		}
		t.wanted, t.wantedSince = 0, now
	}
	t.wanted = max(t.wanted, t.under+len(t.waiting))
}

// may is how many may commit at a time: where all want to, one waits even while half as many
// more may, else nothing is learned.
func (t *Turns) may() int {
	return min(max(leastTurns, 2*(max(t.wanted, t.wantedBefore)-1)/3), cmp.Or(t.most, startTurns))
}

func (t *Turns) now() int {
	n := t.may()
	return n + t.arm*(n/2)
}

// grant has those go for whom there is room.
func (t *Turns) grant(now time.Time) {
	for len(t.waiting) > 0 && t.under < t.now() {
		turn := t.first()
		t.under++
		turn.counts, turn.began = true, now
		turn.next = time.AfterFunc(max(lentLeast, lentAfter*cmp.Or(t.usual, lentLeast)), turn.lend)
	}
	t.count(now)
}

// first has the one go that has waited for longest.
func (t *Turns) first() *Turn {
	turn := t.waiting[0]
	t.waiting = slices.Delete(t.waiting, 0, 1)
	if turn.next != nil {
		turn.next.Stop()
	}
	t.granted++
	turn.order = t.granted
	close(turn.granted)
	return turn
}

// spare says whether one more may go beside those that may: half as many do, not counting those
// that others have overtaken, which are slow alone.
func (t *Turns) spare() bool {
	n := 0
	for _, turn := range t.beside {
		if turn.order > t.newest {
			n++
		}
	}
	return n < max(leastTurns, t.may()/2)
}

// hurry has the lane go that has waited for longest, since one has for too long. If so few may that
// this is why, what was found out is not so any more, or lanes are too many for it.
func (turn *Turn) hurry() {
	t, now := turn.of, time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	waits := func() bool { return slices.Contains(t.waiting, turn) }
	if !waits() {
		return
	}
	if t.most > 0 && t.most < startTurns && now.Sub(t.found) > 2*tooLong {
		t.forget()
		t.grant(now)
	}
	if waits() && t.spare() {
		t.beside = append(t.beside, t.first())
		t.count(now)
	}
	if waits() {
		turn.next = time.AfterFunc(tooLong/4, turn.hurry)
	}
}

// leave takes one out that waits, and says whether it did.
func (t *Turns) leave(turn *Turn) bool {
	i := slices.Index(t.waiting, turn)
	if i < 0 {
		return false
	}
	t.waiting = slices.Delete(t.waiting, i, i+1)
	return true
}

// count counts the time for which somebody has waited.
func (t *Turns) count(now time.Time) {
	if !t.since.IsZero() && t.slice >= 0 {
		t.counts[t.arm].took += now.Sub(t.since)
	}
	t.since = time.Time{}
	if len(t.waiting) > 0 {
		t.since, t.needed = now, now
	}
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
	if t.leave(turn) {
		turn.next.Stop()
		t.count(now)
		return
	}
	if i := slices.Index(t.beside, turn); i >= 0 {
		t.beside = slices.Delete(t.beside, i, i+1)
	} else if !turn.counts {
		return
	}
	if committed {
		t.newest = max(t.newest, turn.order)
	}
	if turn.counts {
		if committed {
			t.learn(now.Sub(turn.began))
			t.ended(now)
		}
		turn.passOn(now)
	}
}

// lend has another go meanwhile: a partition that is slow or hangs is no reason for others
// to wait.
func (turn *Turn) lend() {
	t, now := turn.of, time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case !turn.counts:
	case t.spare():
		t.learn(now.Sub(turn.began))
		t.beside = append(t.beside, turn)
		turn.passOn(now)
	default:
		turn.next = time.AfterFunc(lentLeast, turn.lend)
	}
}

func (turn *Turn) passOn(now time.Time) {
	turn.counts = false
	turn.next.Stop()
	turn.of.under--
	turn.of.grant(now)
}

// learn takes it that a commit took so long, or longer. The usual one is below most, so that
// many slow ones beside as many quick ones are lent out still.
func (t *Turns) learn(took time.Duration) {
	switch {
	case t.usual == 0:
		t.usual = took
	case took > t.usual:
		t.usual += min(took-t.usual, (t.usual+time.Millisecond)/16)
	default:
		t.usual -= (t.usual - took) / 4
	}
}

// ended counts a commit. Those while nobody waits say nothing: more could not have ended.
func (t *Turns) ended(at time.Time) {
	if t.since.IsZero() {
		return
	}
	t.count(at)
	if t.slice++; t.slice <= 0 {
		return
	}
	t.counts[t.arm].commits++
	if t.slice < max(sliceTurns, 2*t.now()) {
		return
	}
	t.slice = -2 * t.now()
	if now, more := t.counts[0], t.counts[1]; now.commits >= countTurns && more.commits >= countTurns {
		t.decide(float64(more.commits)/more.took.Seconds(), float64(now.commits)/now.took.Seconds())
		t.found = at
	}
	t.arm = 1 - t.arm
}

// decide says how many may commit at a time from now on, by how many ended a second with
// more and with as many as now.
func (t *Turns) decide(more, now float64) {
	n := t.may()
	switch gain := (more/now - 1) / (float64(n+n/2)/float64(n) - 1); {
	case gain > pays:
		t.most = n + n/2
	case gain < wasted:
		t.most = max(leastTurns, n/2)
	default:
		t.most = n
	}
	clear(t.counts[:])
}
