package lane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
)

// opens is a broker that tells what is open, and nothing else.
type opens struct {
	Broker
	transactions []OpenTransaction
	unseen       []TopicPartition
}

func (o opens) Open(context.Context, ...TopicPartition) (open []OpenTransaction, unseen []TopicPartition, err error) {
	return o.transactions, o.unseen, nil
}

func (o opens) Slots(context.Context) (have [Slots]Slot, err error) {
	for slot := range have {
		have[slot] = Slot{Transaction: Transaction{int64(slot), 7}}
	}
	return have, nil
}

// resting is a producer that has an id, and notes what it is asked for.
type resting struct {
	has     Transaction
	lost    bool // a connection
	commits int
	covered []string
}

func (p *resting) ID(context.Context) (int64, int16, error) { return p.has.Producer, p.has.Epoch, nil }
func (p *resting) Commit([]*kgo.Record) error               { p.commits++; return nil }
func (p *resting) Cover(_ context.Context, t OpenTransaction, commit bool) error {
	p.covered = append(p.covered, fmt.Sprintf("%s: %t", t.Topic, commit))
	return nil
}
func (p *resting) Disturbed() bool { return p.lost }
func (p *resting) Close()          {}

// A transaction that is seen once may only wait for its markers. One that goes on
// is the same, and one that ended between two looks is seen anew.
func TestLooks(t *testing.T) {
	l, first := make(looks), OpenTransaction{Transaction: Transaction{1, 6}, Offset: 3, Written: 1}
	longer, next := first, first
	longer.Written, next.Offset = 2, 9
	for n, c := range []struct {
		open  []OpenTransaction
		again int
	}{
		{[]OpenTransaction{first}, 0},
		{[]OpenTransaction{longer}, 1},
		{[]OpenTransaction{longer, next}, 0}, // told once
		{nil, 0},
		{[]OpenTransaction{next}, 0},
		{[]OpenTransaction{next}, 1},
	} {
		if again := l.look(c.open, nil, time.Unix(int64(n), 0)); len(again) != c.again {
			t.Errorf("look %d sees again %+v, and must %d", n+1, again, c.again)
		}
	}
}

// hangs is a broker on which a transaction hangs that is seen where it is looked for.
type hangs struct {
	opens
	open OpenTransaction
	ends int // it was asked where the journal ends, which fails
}

func (h *hangs) Open(_ context.Context, places ...TopicPartition) (open []OpenTransaction, unseen []TopicPartition, err error) {
	if slices.Contains(places, h.open.TopicPartition) {
		open = append(open, h.open)
	}
	return open, nil, nil
}

func (h *hangs) Everywhere(context.Context) (open []OpenTransaction, unseen []TopicPartition, silent, err error) {
	return []OpenTransaction{h.open}, nil, nil, nil
}

func (h *hangs) Since(context.Context, TopicPartition, time.Time) (int64, error) { return 0, nil }

func (h *hangs) End(context.Context, TopicPartition, bool) (int64, error) {
	h.ends++
	return 0, errors.New("nobody answers")
}

// What a takeover could not look for everywhere is looked for once more, and seen again where it
// was found: the lane ends, so that the next takeover mends it.
func TestWhatHangsElsewhereIsSeenAgain(t *testing.T) {
	l := newRing(t)
	h := &hangs{open: OpenTransaction{Transaction: Transaction{1, 6}, TopicPartition: TopicPartition{"shop", 2}}}
	l.broker = h
	seen := newWatched()
	for n := range 2 {
		got, err := l.lookAround(t.Context(), seen)
		if err != nil || (got != nil) != (n == 1) {
			t.Errorf("look %d: %+v, %v", n+1, got, err)
		}
	}
}

// owes is a broker on which a transaction of slot 1 is open whose marker its coordinator may
// have yet to write.
type owes struct {
	hangs
	has    Slot
	writes bool // it does so once somebody has looked
	silent bool // the coordinator does not answer
}

func (o *owes) Open(ctx context.Context, places ...TopicPartition) (open []OpenTransaction, unseen []TopicPartition, err error) {
	if o.writes {
		o.has.Owed = nil
	}
	return o.hangs.Open(ctx, places...)
}

func (o *owes) Slots(context.Context) (have [Slots]Slot, err error) {
	if o.silent {
		return have, errors.New("nobody answers")
	}
	have[1] = o.has
	return have, nil
}

// A transaction whose marker is still owed does not hang, however often it is seen; what
// nobody owes anything does, and what somebody else is owed is no excuse. Whoever asks
// what is owed behind its look takes what has got its marker in between for one that hangs.
func TestWhatIsOwedAMarkerDoesNotHang(t *testing.T) {
	for _, c := range []struct {
		name   string
		has    Transaction
		owed   bool // the marker there; else one elsewhere
		writes bool
		silent bool
		found  bool // at the second look
	}{
		{name: "owed", has: Transaction{1, 7}, owed: true},
		{name: "owed when it is asked, and written when it has looked", has: Transaction{1, 7}, owed: true, writes: true},
		{name: "owed elsewhere", has: Transaction{1, 7}, found: true},
		{name: "owed another id", has: Transaction{55, 0}, owed: true, found: true},
		{name: "nobody says", has: Transaction{1, 7}, owed: true, silent: true},
	} {
		l := newRing(t)
		l.searched = true
		o := &owes{has: Slot{Transaction: c.has}, silent: c.silent}
		o.open = OpenTransaction{Transaction: Transaction{1, 6}, TopicPartition: TopicPartition{l.topics.Journal, l.partition}}
		o.has.Owed = []TopicPartition{{l.topics.Journal, l.partition + 1}}
		if c.owed {
			o.has.Owed = append(o.has.Owed, o.open.TopicPartition)
		}
		l.broker = o
		seen := newWatched()
		look := func() bool {
			asks := len(seen.own)+len(seen.owed) > 0
			got, err := l.lookAround(t.Context(), seen)
			if (err != nil) != (asks && o.silent && got == nil) {
				t.Errorf("%s: %v", c.name, err)
			}
			return got != nil
		}
		if look() {
			t.Errorf("%s: it is taken for one that hangs at the first look", c.name)
		}
		o.writes = c.writes
		if found := look(); found != c.found {
			t.Errorf("%s: it is taken for one that hangs at the second look: %t", c.name, found)
		}
		if c.found || c.writes {
			continue
		}
		if c.silent { // who never says what is owed keeps nothing back
			third := look()
			if fourth := look(); third || !fourth {
				t.Errorf("%s: it is taken for one that hangs at the third look: %t, and at the fourth: %t", c.name, third, fourth)
			}
			continue
		}
		for range 5 {
			if look() {
				t.Errorf("%s: it is taken for one that hangs in the end", c.name)
			}
		}
		o.has.Owed = nil // forgotten
		first := look()
		if second := look(); !first && !second {
			t.Errorf("%s: it hangs, and nobody sees it", c.name)
		}
	}
}

// What is owed for long is told once, and what somebody else has open too: also where the coordinators
// do not answer.
func TestWhatIsOwedIsTold(t *testing.T) {
	for _, silent := range []bool{false, true} {
		l := newRing(t)
		l.searched = true
		var said bytes.Buffer
		l.log = slog.New(slog.NewTextHandler(&said, nil))
		o := &owes{has: Slot{Transaction: Transaction{1, 7}, Owed: []TopicPartition{l.own(l.topics.Orders)}}, silent: silent}
		o.open = OpenTransaction{Transaction: Transaction{1, 6}, TopicPartition: l.own(l.topics.Orders)}
		l.broker = o
		l.elsewhere.note(o.open.TopicPartition) // it forwarded something
		looks, most := 0, 10
		if silent {
			most = unknownAtMost
		}
		l.time.Pause = func(context.Context, time.Duration) bool { looks++; return looks <= most }
		must(t, l.Watch(t.Context()))
		owed := strings.Count(said.String(), "Kafka has yet to write the marker of a transaction that has ended")
		others := strings.Count(said.String(), "somebody's transaction keeps the inputs")
		if silent && owed != 0 || !silent && owed != 1 || others != 1 {
			t.Errorf("silent %t: it told %d times of what is owed, and %d times of what stands on the inputs:\n%s", silent, owed, others, &said)
		}
	}
}

// mute is a broker whose coordinators never answer.
type mute struct{ owes }

func (*mute) Slots(ctx context.Context) (have [Slots]Slot, err error) {
	<-ctx.Done()
	return have, ctx.Err()
}

// A coordinator that never answers keeps a lane from looking for no longer than it may: what hangs is seen all the same.
func TestWhatIsOwedIsNotWaitedForWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newRing(t)
		l.searched = true
		m := new(mute)
		m.open = OpenTransaction{Transaction: Transaction{1, 6}, TopicPartition: TopicPartition{l.topics.Journal, l.partition}}
		l.broker = m
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began, seen := time.Now(), newWatched()
		for n := 1; ; n++ {
			hang, _ := l.lookAround(ctx, seen)
			if hang != nil {
				break
			}
			if n > 10 {
				t.Fatal("it hangs, and nobody sees it")
			}
		}
		if took := time.Since(began); took > 5*slotsPatience {
			t.Errorf("it took %s", took)
		}
	})
}

// Readers are blocked since what keeps them back was seen first, on the inputs or of what is owed, once it was seen twice; as far
// as is known while nobody says; and no more once it has ended. Nobody asks what is owed before something is open.
func TestSinceWhenReadersAreBlocked(t *testing.T) {
	for _, c := range []struct {
		name  string
		on    func(*events.Topics) string
		first int
	}{
		{"somebody's, on the inputs", func(topics *events.Topics) string { return topics.Orders }, 0},
		{"one whose marker is owed", func(topics *events.Topics) string { return topics.Status }, 1},
	} {
		l := newRing(t)
		l.searched = true
		at := l.own(c.on(l.topics))
		b := &blocks{owes: owes{has: Slot{Transaction: Transaction{1, 7}, Owed: []TopicPartition{at}}}}
		first := OpenTransaction{Transaction: Transaction{1, 6}, TopicPartition: at, Offset: 3}
		later := first
		later.Offset = 9
		l.broker = b
		var now time.Time
		minute := func(n int) time.Time { return time.Date(2026, 1, 5, 12, n, 0, 0, time.UTC) }
		l.time.Timer = func() time.Time { return now }
		type look struct {
			open          OpenTransaction
			fails, unseen bool
			blocked       time.Time // then
		}
		looks := []look{
			{open: first, blocked: minute(c.first)},
			{open: first, fails: true, blocked: minute(c.first)},
			{open: first, unseen: true, blocked: minute(c.first)},
			{open: first, blocked: minute(c.first)},
			{open: later},
			{open: later, blocked: minute(c.first + 5)},
			{},
		}
		looks = append(slices.Repeat([]look{{open: first}}, c.first+1), looks...)
		n := 0
		l.time.Pause = func(context.Context, time.Duration) bool {
			if n > 0 && !l.Blocked().Equal(looks[n-1].blocked) {
				t.Errorf("%s: after look %d they are blocked since %s, and not %s", c.name, n, l.Blocked(), looks[n-1].blocked)
			}
			if n == len(looks) {
				return false
			}
			b.open, b.fails, b.unseen, now = looks[n].open, looks[n].fails, nil, minute(n)
			if looks[n].unseen {
				b.unseen = []TopicPartition{at}
			}
			n++
			return true
		}
		must(t, l.Watch(t.Context()))
		if n != len(looks) {
			t.Errorf("%s: it looked %d times", c.name, n)
		}
	}
}

// What nobody may end of an id that has run out keeps readers back, too; what the lane ends by itself, or ends with, does not.
func TestWhatNobodyMayEndBlocksReaders(t *testing.T) {
	for name, c := range map[string]struct {
		in     func(*watched) looks
		blocks bool
	}{
		"owed":           {func(w *watched) looks { return w.owed }, true},
		"of a former id": {func(w *watched) looks { return w.former }, true},
		"its own":        {func(w *watched) looks { return w.own }, false},
	} {
		seen := newWatched()
		for n := range int64(3) {
			c.in(seen).look([]OpenTransaction{{Transaction: Transaction{99, 1}}}, nil, time.Unix(60+n, 0))
		}
		if since := seen.blocks(); since.IsZero() == c.blocks || c.blocks && !since.Equal(time.Unix(60, 0)) {
			t.Errorf("%s: they are blocked since %s", name, since)
		}
	}
}

// blocks is a broker on which what is open differs, and which may not say.
type blocks struct {
	owes
	fails bool
}

func (b *blocks) Open(ctx context.Context, places ...TopicPartition) (open []OpenTransaction, unseen []TopicPartition, err error) {
	if b.fails {
		return nil, nil, errors.New("nobody answers")
	}
	if b.unseen != nil { // its leader is gone
		return nil, b.unseen, nil
	}
	return b.owes.Open(ctx, places...)
}

// What is seen where the lane has written, and everywhere too, is one.
func TestWhatHangsHereIsSeenOnce(t *testing.T) {
	l := newRing(t)
	l.broker = &hangs{open: OpenTransaction{Transaction: Transaction{1, 6}, TopicPartition: TopicPartition{l.topics.Journal, l.partition}}}
	found, strange, _, err := l.hanging(t.Context(), true)
	if err != nil || len(found) != 1 || len(strange) != 0 {
		t.Errorf("found %+v, strange %+v, %v", found, strange, err)
	}
}

// What hangs of a former id, and could not be ended, is tried again.
func TestWhatCouldNotBeEndedIsTriedAgain(t *testing.T) {
	l := newRing(t)
	l.searched = true
	h := &hangs{open: OpenTransaction{Transaction: Transaction{99, 1}, TopicPartition: TopicPartition{l.topics.Journal, l.partition}}}
	l.broker = h
	seen := newWatched()
	for n := range 4 { // the second one sees it again, and so does the fourth
		if _, err := l.lookAround(t.Context(), seen); (err != nil) != (n%2 == 1) {
			t.Errorf("look %d: %v", n+1, err)
		}
	}
	if h.ends != 2 {
		t.Errorf("it was tried %d times", h.ends)
	}
}

// newRing returns a lane that has all slots, as its broker knows.
func newRing(t *testing.T) *Lane {
	l, _ := newLane(t)
	l.producers, l.broker = &producers{}, opens{}
	for slot := range l.producers.ring {
		l.producers.ring[slot] = &resting{has: Transaction{int64(slot), 7}}
	}
	return l
}

// What hangs of a producer that never wrote to the journal is somebody else's.
func TestSomebodyElsesTransactionIsLeftAlone(t *testing.T) {
	l := newRing(t)
	mine, others := OpenTransaction{Transaction: Transaction{99, 1}, slot: spent}, OpenTransaction{Transaction: Transaction{98, 1}, slot: spent}
	got, err := l.ours(t.Context(), &past{writers: map[int64]bool{99: true}}, []OpenTransaction{others, mine})
	if err != nil || !slices.Equal(got, []OpenTransaction{mine}) {
		t.Errorf("%+v, %v", got, err)
	}
}

// Where nobody could tell what hangs a lane writes nothing until somebody can, and
// nothing does; what needs nothing there is committed meanwhile.
func TestALaneWritesWhereItSees(t *testing.T) {
	l := newRing(t)
	ended, end := context.WithCancel(t.Context())
	end() // it waits for nothing
	there := TopicPartition{l.topics.Requests("payment"), l.partition}
	hangs := OpenTransaction{Transaction: Transaction{1, 6}, TopicPartition: there}
	caller := TopicPartition{"shop", 2}
	commit := func(topics ...string) error {
		b := &Batch{}
		for _, topic := range append(topics, l.topics.Journal) {
			b.records = append(b.records, &kgo.Record{Topic: topic, Partition: l.partition})
		}
		return l.Commit(ended, b)
	}
	for n, c := range []struct {
		broker                opens
		writesThere, toCaller bool
	}{
		{opens{unseen: []TopicPartition{there, caller}}, false, false},
		{opens{transactions: []OpenTransaction{hangs}, unseen: []TopicPartition{caller}}, false, false},
		{opens{unseen: []TopicPartition{caller}}, true, false},
		{opens{unseen: []TopicPartition{there}}, false, true},
		{opens{}, true, true},
	} {
		l.broker = c.broker
		if _, _, _, err := l.hanging(ended, false); err != nil {
			t.Fatal(err)
		}
		if err := commit(there.Topic); (err == nil) != c.writesThere {
			t.Errorf("%d: a commit that writes to an agent: %v", n, err)
		}
		if err := commit(caller.Topic); (err == nil) != c.toCaller {
			t.Errorf("%d: a commit that writes to a caller: %v", n, err)
		}
		if err := commit(); err != nil {
			t.Errorf("%d: a commit that writes to neither: %v", n, err)
		}
	}
	// It looks again when it has to.
	l.broker = opens{unseen: []TopicPartition{there}}
	if _, _, _, err := l.hanging(ended, false); err != nil {
		t.Fatal(err)
	}
	l.broker = opens{}
	if err := commit(there.Topic); err != nil {
		t.Errorf("once it can be seen: %v", err)
	}
}

// A partition of which nobody can tell what hangs there concerns only what goes there: a
// status message to whose partition its key says, an alert or a dead letter only where
// there is no other partition for it.
func TestWhatIsUnseenConcernsWhoGoesThere(t *testing.T) {
	l := newRing(t)
	ended, end := context.WithCancel(t.Context())
	end() // it waits for nothing
	here, elsewhere := l.keys()
	world := l.world.(*still)
	looks := func(unseen ...TopicPartition) {
		l.broker = opens{unseen: unseen}
		if _, _, _, err := l.hanging(ended, false); err != nil {
			t.Fatal(err)
		}
	}
	commit := func(topic, key string) error {
		r := &kgo.Record{Topic: topic, Partition: l.partition}
		if key != "" {
			r.Key = []byte(key)
		}
		return l.Commit(ended, &Batch{records: []*kgo.Record{r, {Topic: l.topics.Journal, Partition: l.partition}}})
	}
	expects := func(what, topic string, byHere, byElsewhere, byNobody bool) {
		t.Helper()
		for key, commits := range map[string]bool{here: byHere, elsewhere: byElsewhere, "": byNobody} {
			if err := commit(topic, key); (err == nil) != commits {
				t.Errorf("%s, a record for %s with the key %q: %v", what, topic, key, err)
			}
		}
	}
	var all, three []TopicPartition
	for _, topic := range []string{l.topics.Status, l.topics.Alerts, l.topics.DeadLetters, "shop"} {
		all = append(all, TopicPartition{topic, l.partition})
		for p := range int32(3) {
			three = append(three, TopicPartition{topic, p})
		}
	}
	// What is not known the producer decides, once it has met the topic.
	for _, n := range []int32{l.cfg.Partitions, 0} {
		clear(world.partitions)
		for _, at := range all {
			world.partitions[at.Topic] = n
		}
		looks(all...)
		for _, topic := range []string{l.topics.Status, "shop"} {
			expects("one is unseen", topic, n == 0, true, false)
		}
		for _, topic := range []string{l.topics.Alerts, l.topics.DeadLetters} {
			expects("one is unseen", topic, true, true, true)
		}
	}
	for _, at := range all {
		world.partitions[at.Topic] = 3
	}
	looks(three...)
	for _, at := range all {
		expects("all are unseen", at.Topic, false, false, false)
	}
	l.broker = opens{}
	if err := commit(l.topics.Alerts, here); err != nil {
		t.Errorf("once it can be seen: %v", err)
	}
}

// Where a key goes follows from how many partitions a topic has.
func TestALaneAsksWhereKeysGo(t *testing.T) {
	l, world := newLane(t)
	var asked []string
	world.learns = func(topics []string) { asked = topics }
	l.prepare(nil)
	for _, topic := range []string{l.topics.Status, l.topics.Alerts, l.topics.DeadLetters} {
		if !slices.Contains(asked, topic) {
			t.Errorf("it asks about %v, and not about %s", asked, topic)
		}
	}
}

// After a lost connection a lane commits nothing as long as it sees that
// something hangs of its own.
func TestALaneSettles(t *testing.T) {
	l := newRing(t)
	ended, end := context.WithCancel(t.Context())
	end() // it waits for nothing
	for _, c := range []struct {
		what    string
		open    OpenTransaction
		settles bool
	}{
		{"one that has gone by", OpenTransaction{Transaction: Transaction{1, 6}, TopicPartition: TopicPartition{l.topics.Journal, l.partition}}, false},
		{"the next one", OpenTransaction{Transaction: Transaction{1, 7}, TopicPartition: TopicPartition{l.topics.Journal, l.partition}}, true},
		{"one of a former id, which the next commit does not cover", OpenTransaction{Transaction: Transaction{99, 1}, TopicPartition: TopicPartition{l.topics.Journal, l.partition}}, true},
		{"one of another lane", OpenTransaction{Transaction: Transaction{99, 1}, TopicPartition: TopicPartition{l.topics.Journal, l.partition + 1}}, true},
		{"somebody's", OpenTransaction{Transaction: Transaction{99, 1}, TopicPartition: TopicPartition{l.topics.Status, l.partition}}, true},
	} {
		l.broker = opens{transactions: []OpenTransaction{c.open}}
		if err := l.settle(ended); (err == nil) != c.settles {
			t.Errorf("%s is open: %v", c.what, err)
		}
	}
}
