package lane

import (
	"context"
	"fmt"
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/decide"
	"github.com/waybill-dev/waybill/projections"
)

// due is what a look at the deadlines found. It is not decided on before the replies
// have been read that were in the partition when it was found: some may have come in
// time while the lane was held up, or lags, or nobody owned the partition.
//
// What the lane has fetched does not say where they end: it may be old. So Kafka
// is asked, once for all that is due at a time, and not while nothing is. An end
// stands: what comes behind it came too late, however much that is.
type due struct {
	found []step
	at    time.Time // of the look, by the lane's clock
	asks  bool      // Kafka is to be asked
	end   int64     // where the replies ended after that, -1 while Kafka has not said
	read  int64     // where the lane was at the last tick
	idle  int       // ticks since it was not there yet
	// spared says that something was passed over that was due, since a reply of its order was
	// read and not decided on; and that this may be over.
	spared bool
	held   int  // ticks since it was found, or some of it decided on
	told   bool // that it is held up was said
}

// heldUpAfter is how long what is due waits before the log says for what.
const heldUpAfter = time.Minute

// repliesPatience is how long what is due waits for replies that cannot be read: of
// a partition without a leader, or behind a transaction that somebody leaves open.
// The answer to another attempt could not be read either. It is counted in ticks, so
// that a process that was stopped has not waited meanwhile.
const repliesPatience = 10 * time.Minute

// supervise decides on steps whose deadline has come (V1), or finds them. It says in
// look whether there may be more.
func (l *Lane) supervise() error {
	l.look = false
	l.raise()
	if err := l.retryWaiting(); err != nil {
		return err
	}
	if err := l.inherit(); err != nil {
		return err
	}
	if len(l.away.steps)+len(l.away.more) > 0 && l.believed() {
		l.prepare(nil)
		env := l.env()
		if err := l.admit(env); err != nil {
			return err
		}
		if err := l.outwaited(env); err != nil {
			return err
		}
	}
	if len(l.due.found) == 0 {
		return l.find()
	}
	if !l.fair() {
		return nil
	}
	if !l.believed() {
		l.due.end, l.due.idle = -1, 0
		return nil
	}
	if l.time.Wall().Before(l.due.at) { // the clock was set back: all that was found may be of later
		l.state.Rescan()
		l.due = due{}
		return nil
	}
	l.due.held = 0
	l.prepare(nil)
	env, undecided := l.env(), l.undecided()
	for i, s := range l.due.found {
		if l.full() {
			l.due.found, l.look = l.due.found[i:], true
			return nil
		}
		if undecided[s.order] {
			l.due.spared = l.due.spared || len(l.rest) > 0
			continue
		}
		d, err := l.decideDue(env, s)
		if err != nil {
			return err
		}
		if d.Order == nil && d.Waits.Topic != "" {
			l.waits(s, d.Waits)
			l.agents.rested(s)
		}
	}
	more, err := l.state.Due(l.due.at, DueAtOnce)
	l.due.found = l.pending(more)
	l.look = len(l.due.found) > 0 || len(more) == DueAtOnce
	return err
}

// decideDue decides on a step that is due.
func (l *Lane) decideDue(env *decide.Env, s step) (d decide.Decision, err error) {
	order, err := l.order(s.order)
	if err != nil {
		return d, err
	}
	if order == nil && events.OwnID(s.order) { // a schedule began it; it was forgotten since the look, which leaves nothing
		return d, nil
	}
	if order == nil {
		return d, fmt.Errorf("%w: a deadline of order %q, which is not there", projections.ErrDamaged, s.order)
	}
	if step := order.Known(s.name); !l.agents.waited && step != nil && order.Attention(step).After(l.due.at) {
		return d, nil // what began since the look: its reply may be behind the end
	}
	if why, _ := l.halves.held(ofDue(s.order)); why != "" {
		d = decide.Hold(env, order, nil, why)
	} else {
		d = decide.Supervise(env, order, s.name)
	}
	if l.take(d); d.Order != nil {
		l.current.units = append(l.current.units, ofDue(s.order))
		at := order.Looked()
		if step := order.Known(s.name); step != nil {
			at = order.Attention(step)
		}
		if !l.agents.waited && at.Unix() > 0 { // else it waited for its agent, or is gone on with
			l.current.tally.late = append(l.current.tally.late, env.Now.Sub(at))
		}
	}
	return d, nil
}

// find looks at the deadlines, and whether agents are back for whom something waits.
func (l *Lane) find() error {
	if err := l.flush(); err != nil {
		return err
	}
	if l.clock.off.Load() != 0 {
		return nil
	}
	now := l.time.Wall()
	l.rescanPast(now)
	spared := l.due.spared && len(l.rest) > 0
	if l.due.spared && !spared {
		l.state.Rescan()
	}
	expired, err := l.state.Due(now, DueAtOnce)
	found := l.pending(expired)
	l.look = l.look || len(found) == 0 && len(expired) == DueAtOnce // all of them wait for somebody
	l.away.whole = len(expired) < DueAtOnce
	l.due = due{found: found, at: now, asks: len(found) > 0, end: -1, read: l.repliesReached(), spared: spared}
	return err
}

// fair says whether something is due, and nothing is to be waited for any more.
func (l *Lane) fair() bool {
	if len(l.due.found) == 0 {
		return false
	}
	return l.repliesRead() || time.Duration(l.due.idle)*l.cfg.SuperviseEvery >= repliesPatience && l.due.idle > 0
}

// repliesRead says that the replies were read that were there when something was found, be
// they decided on or not.
func (l *Lane) repliesRead() bool {
	return l.due.end >= 0 && l.repliesReached() >= l.due.end
}

// tick looks at the clock, and asks again what was not answered. While inputs are
// taken it counts for how long what is due waits for replies.
func (l *Lane) tick(taken bool) {
	waits := len(l.due.found) > 0
	l.tellHeldUp()
	if check := l.check(); !l.asking && (check || waits && l.due.end < 0 && l.clock.off.Load() == 0) {
		l.due.asks = true
	}
	if b := l.repliesBehind(); !waits || !taken || b != nil && b.full() {
		return
	}
	l.due.idle++
	if at := l.repliesReached(); at > l.due.read {
		l.due.read, l.due.idle = at, 0
	}
	if l.fair() && !l.repliesRead() {
		l.log.Warn("replies cannot be read, and what has expired does not wait for them any longer", "position", l.due.read, "end", l.due.end, "waited", repliesPatience)
	}
}

// tellHeldUp says once for what those wait that are due, and not for their agents nor for replies of their orders that were
// read. It is called once a tick.
func (l *Lane) tellHeldUp() {
	d := &l.due
	d.held++
	waited := time.Duration(d.held) * l.cfg.SuperviseEvery
	if len(d.found) == 0 || d.told || waited < heldUpAfter {
		return
	}
	d.told = true
	why := "its turn to be committed"
	switch {
	case !l.believed():
		why = "Kafka to say whether the clock is right"
	case d.end < 0:
		why = "Kafka to say where the replies end"
	case !l.repliesRead():
		why = "replies that cannot be read yet"
	}
	l.log.Warn("what has expired waits, and not for its agents", "steps", len(d.found), "waited", waited, "for", why, "position", l.repliesReached(), "end", d.end)
}

// ask has Kafka asked, if something is to be asked and nothing was.
func (l *Lane) ask(b Beside) {
	if l.due.asks && !l.asking {
		l.due.asks, l.asking, l.clock.asked = false, true, l.clock.wrote
		b.Ask()
	}
}

// Ask asks Kafka when the newest record of the journal was written, and where the
// replies end: all that is there, not what can be read.
func (l *Lane) Ask(ctx context.Context) Happened {
	h := Happened{What: Told}
	if l.clock.stamped {
		var err error
		if h.Newest, err = l.broker.Newest(ctx, TopicPartition{l.topics.Journal, l.partition}); err != nil {
			l.log.Debug("cannot look at the clock", "error", err)
			h.Newest = time.Time{}
		}
	}
	h.End, h.Err = l.broker.End(ctx, TopicPartition{l.topics.Replies, l.partition}, false)
	return h
}

// told takes the answer, unless it is to a question about something else.
func (l *Lane) told(h Happened) {
	l.asking = false
	if !h.Newest.IsZero() {
		l.judge(h.Newest)
	}
	switch {
	case h.Err != nil:
		l.log.Debug("cannot see where the replies end", "error", h.Err)
	case !l.due.asks && l.due.end < 0 && l.believed():
		l.due.end = h.End
	}
}
