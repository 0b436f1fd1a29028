package lane

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// A transaction hangs when a partition has its records but never got its
// marker, and the coordinator has forgotten it: readers of that partition stand
// still for ever. Kafka 4.3 leaves such transactions behind when a broker shuts
// down in good order under load and its partitions have no other replica. The
// coordinator then finds no leader to send the markers to, takes the partitions
// for deleted, and passes over some or all of them, although it had
// acknowledged the commit.
//
// Waybill ends what hangs as it was acknowledged: see [Lane.sweep].

// spent is in place of the slot of a transaction whose producer id has run out: an
// id has some 32,000 epochs, one for each transaction, and then its slot gets
// another.
const spent = -1

// hanging returns what hangs of the lane's slots where its transactions write, as
// far as that is known, or everywhere. The producers must have initialised their
// ids, which ended whatever the coordinator knew of. Strange is what is open of
// producers that no slot has: it may be of ids that have run out, or of anybody. Unseen is
// where nobody could look.
//
// A broker that does not answer about others' partitions holds nobody up: a lane
// that serves asks again.
func (l *Lane) hanging(ctx context.Context, everywhere bool) (found, strange []OpenTransaction, unseen []TopicPartition, err error) {
	asked := l.places()
	open, unseen, err := l.broker.Open(ctx, asked...)
	if err != nil {
		return nil, nil, nil, err
	}
	if everywhere {
		others, more, silent, err := l.broker.Everywhere(ctx)
		if err != nil {
			return nil, nil, nil, err
		}
		unseen = append(unseen, more...)
		if l.searched = silent == nil; silent != nil {
			l.log.Warn("not all partitions could be searched for transactions that hang; trying on", "error", silent)
		}
		here := open // everywhere may be a thousand times as many
		for _, t := range others {
			if !slices.ContainsFunc(here, t.same) {
				open = append(open, t)
			}
		}
	}
	ids, err := l.ids(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	for _, t := range open {
		t.slot = slices.IndexFunc(ids[:], func(id Transaction) bool { return id.Producer == t.Producer })
		switch {
		case t.slot == spent:
			strange = append(strange, t)
		case t.Epoch < ids[t.slot].Epoch:
			found = append(found, t)
		}
	}
	l.unseen.looked(asked, unseen, found)
	return found, strange, unseen, nil
}

// ids are the producer ids and epochs of the lane's slots.
func (l *Lane) ids(ctx context.Context) (ids [Slots]Transaction, err error) {
	for i, p := range l.producers.ring {
		if ids[i].Producer, ids[i].Epoch, err = p.ID(ctx); err != nil {
			return ids, fmt.Errorf("look for hanging transactions: %w", err)
		}
	}
	return ids, nil
}

// suspects are those of the strangers' transactions that may be of a former id of
// a slot. To the requests of the partition, and its journal, nobody else should
// write. On the status topic others may; but no lane lets a transaction stand so
// long.
func (l *Lane) suspects(strange []OpenTransaction) (some []OpenTransaction) {
	for _, t := range strange {
		old := l.time.Wall().Sub(time.UnixMilli(t.Written)) > 2*TransactionTimeout
		own := t.Topic == l.topics.Journal || slices.Contains(l.world.RequestTopics(), t.Topic)
		if t.Partition == l.partition && (own || old && t.Topic == l.topics.Status) {
			some = append(some, t)
		}
	}
	return some
}

// sweep ends what former owners left hanging as it ended on other topics, the
// journal before all. Where it hangs everywhere, it was committed if
//   - something was written behind it on the journal: a lane begins a transaction
//     only once the one before was acknowledged, or
//   - this instance folded it, and so had that acknowledgement itself.
//
// Anything else is aborted, as if it had never been: its inputs are read again.
func (l *Lane) sweep(ctx context.Context) error {
	// Everywhere: former owners wrote to the topics of callers, and forwarded.
	found, strange, _, err := l.hanging(ctx, true)
	if err != nil {
		return err
	}
	suspects := l.suspects(strange)
	if len(found)+len(suspects) == 0 {
		return nil
	}
	strange = slices.DeleteFunc(strange, func(t OpenTransaction) bool {
		return !slices.ContainsFunc(suspects, func(s OpenTransaction) bool { return s.Producer == t.Producer })
	})
	// The journal first. What it then says is what the others follow, whoever else
	// ends the same at the same time.
	for _, onJournal := range []bool{true, false} {
		past, err := l.readPast(ctx, slices.Concat(found, strange), l.state.Head().Offset)
		if err != nil {
			return err
		}
		if strange, err = l.ours(ctx, past, strange); err != nil {
			return err
		}
		for _, t := range slices.Concat(found, strange) {
			if (t.Topic == l.topics.Journal && t.Partition == l.partition) != onJournal {
				continue
			}
			commit := past.committed(t)
			if err := l.endHanging(ctx, t, commit); err != nil {
				return err
			}
		}
	}
	return nil
}

// ownTries is how often a lane looks whether it was itself who went on.
const ownTries = 100

// ours are those of the strangers' transactions that hang of producer ids which
// slots of this partition had once: every transaction of a lane writes to its
// journal, where nobody else does. As long as all slots are still as the lane has
// initialised them, no successor has written anything.
func (l *Lane) ours(ctx context.Context, past *past, strange []OpenTransaction) ([]OpenTransaction, error) {
	strange = slices.DeleteFunc(strange, func(t OpenTransaction) bool { return !past.writers[t.Producer] })
	if len(strange) == 0 {
		return nil, nil
	}
	before, err := l.ids(ctx)
	if err != nil {
		return nil, err
	}
	have, err := l.broker.Slots(ctx)
	if err != nil {
		return nil, err
	}
	// A lane that serves commits meanwhile, and Kafka knows of it first.
	for try := 0; ; try++ {
		after, err := l.ids(ctx)
		if err != nil {
			return nil, err
		}
		other := slices.IndexFunc(have[:], func(is Slot) bool {
			return !slices.ContainsFunc(after[:], func(id Transaction) bool { return id.Producer == is.Producer && id.Epoch >= is.Epoch }) &&
				!slices.Contains(before[:], is.Transaction)
		})
		switch {
		case other < 0:
			return strange, nil
		case try == ownTries || !l.time.Pause(ctx, 10*time.Millisecond):
			return nil, fmt.Errorf("slot %d of the partition was taken over: %w", other, kerr.ProducerFenced)
		}
	}
}

// endHanging writes the marker that is missing. That is one act, but needs the
// right to alter the cluster. Without it a transaction of the same producer has
// to serve: should this instance die between its beginning and its end, whoever
// comes next aborts what it was to commit.
func (l *Lane) endHanging(ctx context.Context, t OpenTransaction, commit bool) error {
	err := l.broker.Finish(ctx, t, commit)
	if denied := new(kadm.AuthError); !errors.As(err, &denied) {
		if err == nil {
			l.tellEnded(t, commit)
		}
		return err
	}
	if t.slot == spent {
		word := "abort"
		if commit {
			word = "commit"
		}
		if t.Topic != l.topics.Journal { // it is in others' way, and not in the lane's
			l.log.Error("a transaction hangs, and only a marker ends it: allow the principal to alter the cluster, or have somebody who may end it",
				"topic", t.Topic, "on", t.Partition, "offset", t.Offset, "producer", t.Producer, "as", word, "error", err)
			return nil
		}
		return fmt.Errorf("producer id %d has run out, so that only a marker ends what hangs of it: allow the principal to alter the cluster, or have somebody who may %s it: %w", t.Producer, word, err)
	}
	if err := l.producers.ring[t.slot].Cover(ctx, t, commit); err != nil {
		return err
	}
	l.tellEnded(t, commit)
	// All of them again, the first before the others: another may have initialised those
	// since, and whoever initialises slot 0 alone could claim beside it.
	return l.fence(ctx)
}

func (l *Lane) tellEnded(t OpenTransaction, commit bool) {
	l.log.Warn("ended a transaction that hung", "commit", commit, "topic", t.Topic, "on", t.Partition, "offset", t.Offset)
}

// usual are the topics to whose partition nearly all of a lane's transactions
// write.
func (l *Lane) usual() []TopicPartition {
	topics := append(l.world.RequestTopics(), l.topics.Journal, l.topics.Status, l.topics.Alerts, l.topics.DeadLetters)
	places := make([]TopicPartition, len(topics))
	for i, topic := range topics {
		places[i] = TopicPartition{topic, l.partition}
	}
	return places
}

// places are those to which the lane's transactions have written.
func (l *Lane) places() []TopicPartition {
	return slices.Concat(l.usual(), l.elsewhere.list(), l.unseen.list())
}

// places are partitions: those of callers' topics, and where a lane forwarded.
type places struct {
	mu  sync.Mutex
	all map[TopicPartition]bool
}

// placesSize bounds what submissions with made-up topics can fill.
const placesSize = 10_000

func (p *places) note(at TopicPartition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil || len(p.all) >= placesSize {
		p.all = make(map[TopicPartition]bool)
	}
	p.all[at] = true
}

func (p *places) list() []TopicPartition {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.all))
}

func (p *places) has(at TopicPartition) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all[at]
}

func (p *places) none() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.all) == 0
}

// looked keeps the places of which nobody could tell what hangs there, until somebody
// can and nothing does. What a lane wrote there before that would end what hangs as it
// ends itself.
func (p *places) looked(asked, unseen []TopicPartition, found []OpenTransaction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, at := range asked {
		if !slices.ContainsFunc(found, func(t OpenTransaction) bool { return t.TopicPartition == at }) {
			delete(p.all, at)
		}
	}
	if p.all == nil {
		p.all = make(map[TopicPartition]bool)
	}
	for _, at := range unseen {
		p.all[at] = true
	}
}

// Watch looks from time to time whether one of the lane's own transactions
// hangs although its commit was acknowledged, and returns with that: a takeover
// mends it. One that is seen twice hangs, unless its coordinator has yet to write the
// marker: where Kafka is slow a takeover would make it slower. Of that it tells in the
// log, and of one that somebody else has open on the inputs for so long: what is behind
// them cannot be read until they end. [Lane.Blocked] says since when.
func (l *Lane) Watch(ctx context.Context) error {
	seen, others := newWatched(), make(looks)
	var inputs []TopicPartition
	for _, topic := range l.topics.Inputs() {
		inputs = append(inputs, TopicPartition{topic, l.partition})
	}
	for l.time.Pause(ctx, l.cfg.WatchEvery) {
		hang, err := l.lookAround(ctx, seen)
		if hang != nil {
			return fmt.Errorf("a transaction hangs on %s partition %d from offset %d", hang.Topic, hang.Partition, hang.Offset)
		}
		open, unseen, failed := l.broker.Open(ctx, inputs...)
		if err = errors.Join(err, failed); err != nil {
			l.log.Debug("cannot look for open transactions", "error", err)
		}
		if failed == nil {
			for _, t := range others.look(open, unseen, l.time.Timer()) {
				l.log.Warn("somebody's transaction keeps the inputs behind it from being read until it ends",
					"topic", t.Topic, "offset", t.Offset, "producer", t.Producer, "written", time.UnixMilli(t.Written))
			}
		}
		since := earlier(others.again(), seen.blocks())
		l.blocked.Store(&since)
	}
	return nil
}

// watched is what a lane that serves has seen open: of its slots, the same while the
// coordinator had yet to write the marker, and of former ids of its slots.
type watched struct {
	own, owed, former looks
	unknown           int // how often in a row nobody said what is owed
}

// blocks is since when that is open which keeps readers back and which the lane does not end by itself: what is owed, and what hangs of a
// former id, as long as nobody may write its marker. What hangs of its own ends the lane.
func (w *watched) blocks() time.Time { return earlier(w.owed.again(), w.former.again()) }

// unknownAtMost is how often in a row a coordinator does not say what it owes until nothing counts as owed.
const unknownAtMost = 3

func newWatched() *watched { return &watched{own: make(looks), owed: make(looks), former: make(looks)} }

// lookAround returns a transaction of one of the lane's slots that it sees for the
// second time. What it sees so often of a former id of a slot it ends itself, unless
// that is on the journal.
func (l *Lane) lookAround(ctx context.Context, seen *watched) (*OpenTransaction, error) {
	var slots slotStates
	var unknown error
	if len(seen.own)+len(seen.owed)+len(seen.former) > 0 { // before it looks: what is not owed any more, and then open, hangs
		slots, unknown = l.slotStates(ctx)
	}
	found, strange, unseen, err := l.hanging(ctx, !l.searched) // the takeover could not
	if err != nil {
		return nil, err
	}
	for _, t := range found {
		l.elsewhere.note(t.TopicPartition)
	}
	if unknown == nil {
		seen.unknown = 0
	} else if seen.unknown++; seen.unknown < unknownAtMost {
		return nil, unknown // what was seen once is
	}
	found, owed := slots.part(found)
	now := l.time.Timer()
	for _, t := range seen.owed.look(owed, unseen, now) {
		l.log.Warn("Kafka has yet to write the marker of a transaction that has ended: what is behind it cannot be read until it does",
			"topic", t.Topic, "on", t.Partition, "offset", t.Offset, "producer", t.Producer, "written", time.UnixMilli(t.Written))
	}
	if again := seen.own.look(found, unseen, now); len(again) > 0 {
		return &again[0], nil
	}
	former, _ := slots.part(l.suspects(strange))
	former = seen.former.look(former, unseen, now)
	if len(former) == 0 {
		return nil, nil
	}
	past, err := l.readPast(ctx, former, 0)
	if err == nil {
		former, err = l.ours(ctx, past, former)
	}
	for i := 0; i < len(former) && err == nil; i++ {
		if former[i].Topic == l.topics.Journal {
			return &former[i], nil
		}
		err = l.endHanging(ctx, former[i], past.committed(former[i]))
	}
	if err != nil {
		clear(seen.former) // it looks at them again
	}
	return nil, err
}

// slotStates are the slots of the partition, as their coordinators know them.
type slotStates [Slots]Slot

// slotsPatience is how long the coordinators have to say what they owe.
const slotsPatience = 5 * time.Second

// slotStates asks the coordinators.
func (l *Lane) slotStates(ctx context.Context) (slotStates, error) {
	ctx, cancel := context.WithTimeout(ctx, slotsPatience)
	defer cancel()
	return l.broker.Slots(ctx)
}

// part parts transactions that are open into those that hang, as far as it is known, and those
// whose marker is owed.
func (all *slotStates) part(open []OpenTransaction) (hang, owed []OpenTransaction) {
	for _, t := range open {
		if slices.ContainsFunc(all[:], func(s Slot) bool { return s.Producer == t.Producer && slices.Contains(s.Owed, t.TopicPartition) }) {
			owed = append(owed, t)
		} else {
			hang = append(hang, t)
		}
	}
	return hang, owed
}

// looks are how often a transaction was seen open, one time after the other.
type looks map[OpenTransaction]sighting

type sighting struct {
	times int
	first time.Time
}

// look counts those that are open now, and returns what is seen for the second
// time. A transaction that goes on, and writes more, is the same. Of those that stand where nobody could look it is as it was.
func (l looks) look(open []OpenTransaction, unseen []TopicPartition, now time.Time) (again []OpenTransaction) {
	before := maps.Clone(l)
	maps.DeleteFunc(l, func(t OpenTransaction, _ sighting) bool { return !slices.Contains(unseen, t.TopicPartition) })
	for _, t := range open {
		same := OpenTransaction{Transaction: t.Transaction, TopicPartition: t.TopicPartition, Offset: t.Offset}
		is, known := before[same]
		if !known {
			is.first = now
		}
		if is.times++; is.times == 2 {
			again = append(again, t)
		}
		l[same] = is
	}
	return again
}

// again is since when that is open which was seen first of what was seen more than once; zero if nothing was.
func (l looks) again() (first time.Time) {
	for _, is := range l {
		if is.times > 1 {
			first = earlier(first, is.first)
		}
	}
	return first
}

// markersPatience is how long the markers of the last commit may take after a
// connection was lost.
const markersPatience = 5 * time.Second

// settle is called between two commits, after a connection was lost, or where the next
// writes to a place that was unseen: Kafka may have been restarted. It returns once no transaction of the lane's slots is open,
// so that none that hangs is covered by the next one of its producer, and ends as
// that does. While Kafka does not answer it waits about as long as a commit would.
func (l *Lane) settle(ctx context.Context) error {
	waited, began := time.Duration(0), l.time.Timer()
	for wait := time.Millisecond; ; wait = min(2*wait, time.Second) {
		found, _, _, err := l.hanging(ctx, false)
		patience := CommitTimeout
		switch {
		case err == nil && len(found) == 0:
			return nil
		case err == nil:
			patience = markersPatience
			err = fmt.Errorf("transactions hang: %v", found)
		}
		if max(waited, l.time.Timer().Sub(began)) > patience || !l.time.Pause(ctx, wait) {
			return err
		}
		waited += wait
	}
}
