package lane_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/cluster"
	"github.com/waybill-dev/waybill/orchestrator/decide"
	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/oracle"
)

// V6: once a successor has taken over, no slot of the former owner can commit,
// not even a transaction that reads no input, and all that it had committed is
// known to the successor.
func TestAZombieCannotCommit(t *testing.T) {
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		topics := onePartition(t, b)
		for slot := range lane.Slots {
			old := newContender(t, b, topics, fmt.Sprintf("old-%d", slot))
			old.takeOver()
			for n := range lane.Slots + slot { // so that its next slot is another each time
				if err := old.write(fmt.Sprintf("early-%d-%d", slot, n)); err != nil {
					t.Fatal(err)
				}
			}
			successor := newContender(t, b, topics, fmt.Sprintf("successor-%d", slot))
			successor.takeOver()
			if !successor.has(fmt.Sprintf("early-%d-%d", slot, lane.Slots+slot-1)) {
				t.Error("the successor does not know the last commit")
			}
			if err := old.write(fmt.Sprintf("late-%d", slot)); !fenced(err) {
				t.Errorf("slot %d: the zombie's commit ended with %v", slot, err)
			}
			if err := successor.write(fmt.Sprintf("after-%d", slot)); err != nil {
				t.Error(err)
			}
		}
		final := newContender(t, b, topics, "final")
		final.takeOver()
		for slot := range lane.Slots {
			if final.has(fmt.Sprintf("late-%d", slot)) || !final.has(fmt.Sprintf("after-%d", slot)) {
				t.Errorf("slot %d: the journal has what the zombie wrote, or lacks what its successor wrote", slot)
			}
		}
	})
}

// Who knows another number of partitions than the journal was begun with claims
// nothing: nobody would use the claim.
func TestAnotherNumberOfPartitionsIsNotClaimed(t *testing.T) {
	b := kafka.Embedded(t)
	topics := onePartition(t, b)
	first := newContender(t, b, topics, "first")
	first.takeOver()
	other := first.anew()
	other.lane.Knows(2)
	if err := other.lane.TakeOver(t.Context()); !errors.Is(err, projections.ErrPartitions) {
		t.Errorf("it took over: %v", err)
	}
	fresh := newContender(t, b, topics, "fresh") // and does not know yet
	fresh.lane.Knows(2)
	if err := fresh.lane.TakeOver(t.Context()); !errors.Is(err, projections.ErrPartitions) {
		t.Errorf("it took over: %v", err)
	}
	if claims := len(oracle.Read(t, b.Brokers, topics.Journal)); claims != 2 {
		t.Errorf("%d claims", claims)
	}
}

// A partition that changes its owner stays in its format, whatever all members speak by
// then: it rises when they have spoken it for long enough.
func TestATakeoverRaisesNothing(t *testing.T) {
	b := kafka.Embedded(t)
	topics := onePartition(t, b)
	newContender(t, b, topics, "older").takeOver()
	for range 2 {
		newer := newContender(t, b, topics, "newer")
		newer.world = upgraded{}
		newer.contend(newer.lane.State())
		newer.takeOver()
		must(t, newer.write("moves on"))
	}
	var formats []int
	for _, r := range oracle.Read(t, b.Brokers, topics.Journal) {
		e, err := events.Decode[events.Event](r.Value)
		must(t, err)
		if e.Type == events.PartitionClaimed {
			formats = append(formats, e.Format)
		}
	}
	if !slices.Equal(formats, []int{1, 1, 1}) {
		t.Errorf("the partition is claimed in the formats %v", formats)
	}
}

// upgraded is nowhere, with members that all speak a newer format than stands in the
// journal, since a moment ago.
type upgraded struct{ nowhere }

func (upgraded) Newest(context.Context) int { return 2 }

// V6: what a dead owner had open is aborted by the successor, which does not
// wait for any time-out.
func TestAnOpenTransactionOfADeadOwnerIsAborted(t *testing.T) {
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		topics := onePartition(t, b)
		dead := b.Client(t, kgo.TransactionalID(cluster.TransactionalID(topics, 0, 2)))
		must(t, dead.BeginTransaction())
		e := events.Event{Type: events.OrderRejected, Order: "open", Seq: 1, At: now()}
		must(t, dead.ProduceSync(t.Context(), rejection(topics, &e)).FirstErr())
		successor := newContender(t, b, topics, "successor")
		successor.takeOver()
		must(t, successor.write("after"))
		if successor.has("open") {
			t.Error("an open transaction was folded")
		}
		if err := dead.EndTransaction(t.Context(), kgo.TryCommit); err == nil {
			t.Error("the dead owner's transaction was committed after all")
		}
	})
}

// rejection is the record of an event of an order.
func rejection(topics *events.Topics, e *events.Event) *kgo.Record {
	m := decide.Outbox(nil, topics, nil, &projections.Order{ID: e.Order}, e)[0]
	return m.Envelope.Record(m.Topic, m.Value)
}

// V6: the inits of two instances may interleave in any way, and those behind slot 0 come in
// any order; at most one of the two can claim and write after the other's claim.
func TestInterleavedTakeoversHaveOneWinner(t *testing.T) {
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		topics := onePartition(t, b)
		// After how many of its inits the first is overtaken by a whole takeover.
		for after := range lane.Slots {
			first := newContender(t, b, topics, fmt.Sprintf("first-%d", after))
			second := newContender(t, b, topics, fmt.Sprintf("second-%d", after))
			order := []int{0, 1, 2, 3}
			if after%2 == 1 {
				order = []int{0, 3, 1, 2}
			}
			for n, slot := range order {
				if n == after {
					second.takeOver()
				}
				must(t, first.lane.Fences(t.Context(), slot))
			}
			err := first.lane.Claims(t.Context())
			if after == 0 {
				if err != nil {
					t.Errorf("the last to initialise slot 0 could not claim: %v", err)
				}
				if err := second.write("beaten"); !fenced(err) {
					t.Errorf("whoever was claimed over could write: %v", err)
				}
				continue
			}
			if !fenced(err) {
				t.Errorf("overtaken after %d inits, the claim ended with %v", after, err)
			}
			// The winner's later slots were initialised again by the loser. It
			// notices, takes over anew, and has lost nothing.
			var wrote []string
			for n := range lane.Slots {
				id := fmt.Sprintf("winner-%d-%d", after, n)
				if err := second.write(id); err != nil {
					if !fenced(err) {
						t.Errorf("write %d: %v", n, err)
					}
					break
				}
				wrote = append(wrote, id)
			}
			third := newContender(t, b, topics, fmt.Sprintf("third-%d", after))
			third.takeOver()
			for _, id := range wrote {
				if !third.has(id) {
					t.Errorf("%s was committed and is not in the journal", id)
				}
			}
		}
	})
}

// A commit whose reply is lost has an unknown outcome. The lane gives up and
// takes over again, and finds in the journal what became of it; nothing is
// written twice.
func TestACommitWithUnknownOutcome(t *testing.T) {
	b := kafka.Embedded(t)
	topics := onePartition(t, b)
	for _, executed := range []bool{true, false} {
		c := newContender(t, b, topics, fmt.Sprintf("i-%t", executed))
		c.takeOver()
		must(t, c.write(fmt.Sprintf("before-%t", executed)))
		asked := false
		b.Fake.ControlKey(int16(kmsg.EndTxn), func(r kmsg.Request) (kmsg.Response, error, bool) {
			if asked {
				return nil, nil, false
			}
			asked = true
			if executed {
				b.Fake.SleepControl(func() { b.End(t, r.(*kmsg.EndTxnRequest)) })
			}
			c.cut() // it waits for the answer no longer
			return nil, nil, true
		})
		id := fmt.Sprintf("executed-%t", executed)
		if err := c.write(id); err == nil {
			t.Errorf("a commit that nobody answered, executed %t, counts as done", executed)
		}
		next := newContender(t, b, topics, "next-"+id)
		next.takeOver()
		if next.has(id) != executed {
			t.Errorf("the journal has the commit: %t, and it was executed: %t", !executed, executed)
		}
		must(t, next.write("after-"+id))
	}
	last := newContender(t, b, topics, "last")
	last.takeOver() // folds everything: a number that is doubled or missing fails
}

// A takeover rebuilds a store that has folded what is not in the journal, and
// nobody finds a number twice or missing in what it then writes.
func TestATakeoverRebuildsAStoreThatIsAhead(t *testing.T) {
	b := kafka.Embedded(t)
	claims := func(t *testing.T, topics *events.Topics) { newContender(t, b, topics, "another").takeOver() }
	writes := func(t *testing.T, topics *events.Topics) {
		c := newContender(t, b, topics, "another")
		c.takeOver()
		must(t, c.write("there"))
	}
	for _, c := range []struct {
		name    string
		folded  int                                         // transactions, behind a claim
		journal []func(t *testing.T, topics *events.Topics) // what is there instead
	}{
		{"the journal is shorter", 2, nil},
		{"in the place of the last is a claim", 1, []func(*testing.T, *events.Topics){claims, claims}},
		{"in the place of the last is one with another number", 2, []func(*testing.T, *events.Topics){claims, writes}},
		{"the last stands at another place", 1, []func(*testing.T, *events.Topics){func(t *testing.T, topics *events.Topics) {
			c := newContender(t, b, topics, "another")
			c.takeOver()
			aborted := b.Client(t, kgo.TransactionalID(topics.Namespace+"-aborted"))
			must(t, aborted.BeginTransaction())
			must(t, aborted.ProduceSync(t.Context(), &kgo.Record{Topic: topics.Journal, Value: []byte("{}")}).FirstErr())
			must(t, aborted.EndTransaction(t.Context(), kgo.TryAbort))
			must(t, c.write("there"))
		}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			old := newContender(t, b, onePartition(t, b), "old")
			old.takeOver()
			for n := range c.folded {
				must(t, old.write(fmt.Sprint("lost-", n)))
			}
			topics := onePartition(t, b)
			for _, another := range c.journal {
				another(t, topics)
			}
			next := newContender(t, b, topics, "next")
			next.contend(old.lane.State())
			next.takeOver()
			if next.has("lost-0") {
				t.Error("it has what is not in the journal")
			}
			must(t, next.write("after"))
			last := newContender(t, b, topics, "last")
			last.takeOver()
			if !last.has("after") {
				t.Error("what it wrote is not in the journal")
			}
		})
	}
}

// V2: what expired under the last lane of an instance, and was not committed any
// more, expires under the next.
func TestATakeoverLooksAtAllDeadlines(t *testing.T) {
	b := kafka.Embedded(t)
	topics := onePartition(t, b)
	b.Create(t, 1, nil, topics.Requests("payment"))
	flow, err := workflow.Parse("workflow.yaml", []byte("workflow: order\nsteps: [{name: charge, agent: payment}]"))
	must(t, err)
	c := newContender(t, b, topics, "i-1")
	c.takeOver()
	must(t, c.lane.Concludes(c.lane.Writes(c.lane.Seals(decide.Submit(&decide.Env{
		Now: now().Add(-time.Hour), Topics: topics, Refuses: func(string, int) string { return "" }, Away: func(string, string, int) string { return "" },
		Workflow: func(string, int) *workflow.Workflow { return flow },
	}, nil, &decide.Input{Record: new(decide.Record), Order: "late", Submission: events.Submission{Workflow: "order"}}))...)))
	for range 2 {
		if due, err := c.lane.State().Due(now(), 10); err != nil || len(due) != 1 {
			t.Errorf("due are %+v, %v", due, err)
		}
		c = c.anew()
		c.takeOver()
	}
}

// V5: whoever takes over knows of an agent that was silent, also another instance.
func TestATakeoverKnowsWhoWasSilent(t *testing.T) {
	b := kafka.Embedded(t)
	topics := onePartition(t, b)
	c := newContender(t, b, topics, "i-1")
	c.world = modern{}
	c = c.anew()
	c.takeOver()
	must(t, c.lane.Concludes(c.lane.Writes(c.lane.FallsSilent("payment")...)))
	for _, next := range []*contender{c.anew(), newContender(t, b, topics, "i-2")} {
		next.takeOver()
		if !next.lane.Probes("payment") || next.lane.Probes("stock") {
			t.Errorf("it probes payment: %t, and stock: %t", next.lane.Probes("payment"), next.lane.Probes("stock"))
		}
	}
}

// modern is nowhere, and all there know the newest format.
type modern struct{ nowhere }

func (modern) Newest(context.Context) int { return events.JournalFormat }

// S6: a partition whose inputs were deleted before it was ever owned begins with
// those that are left.
func TestATakeoverBeginsWithTheInputsThatAreLeft(t *testing.T) {
	b := kafka.Embedded(t)
	topics := onePartition(t, b)
	client := b.Client(t)
	for range 10 {
		must(t, client.ProduceSync(t.Context(), &kgo.Record{Topic: topics.Orders, Key: []byte("o"), Value: []byte("{}")}).FirstErr())
	}
	deleted := make(kadm.Offsets)
	deleted.AddOffset(topics.Orders, 0, 6, -1)
	_, err := b.Admin(t).DeleteRecords(t.Context(), deleted)
	must(t, err)
	c := newContender(t, b, topics, "i-1")
	c.takeOver()
	fetches := c.lane.Polls(t.Context())
	must(t, fetches.Err())
	if records := fetches.Records(); len(records) != 1 || records[0].Offset != 6 {
		t.Errorf("it reads %+v", records)
	}
}

// S4: whoever takes over knows the workflows of the orders that were accepted
// before, however new.
func TestATakeoverLearnsWorkflows(t *testing.T) {
	b := kafka.Embedded(t)
	c, w := newContender(t, b, onePartition(t, b), "i-1"), &learner{}
	c.world = w
	c.anew().takeOver()
	if w.workflows == 0 {
		t.Error("it has not asked for the newest workflows")
	}
}

// No claim is written that nobody would use: without the workflows nothing is decided.
func TestNoClaimWithoutWorkflows(t *testing.T) {
	b := kafka.Embedded(t)
	c, w := newContender(t, b, onePartition(t, b), "i-1"), &learner{fails: errors.New("they cannot be read")}
	c.world = w
	c = c.anew()
	if err := c.lane.TakeOver(t.Context()); !errors.Is(err, w.fails) {
		t.Fatalf("it took over: %v", err)
	}
	if end, err := c.broker.End(t.Context(), lane.TopicPartition{Topic: c.topics.Journal}, false); err != nil || end > 0 {
		t.Errorf("the journal has %d records: %v", end, err)
	}
}

// seeks is a broker that notes from where the topics are read.
type seeks struct {
	lane.Broker
	from map[string]int64
}

func (b seeks) Read(partition int32, committed bool) (lane.Reader, error) {
	r, err := b.Broker.Read(partition, committed)
	return seeking{r, b}, err
}

type seeking struct {
	lane.Reader
	seeks
}

func (r seeking) Seek(from map[string]int64) {
	maps.Copy(r.from, from)
	r.Reader.Seek(from)
}

// S5: a takeover reads the journal from the last record that this instance has
// folded.
func TestATakeoverReadsTheEndOnly(t *testing.T) {
	b := kafka.Embedded(t)
	c := newContender(t, b, onePartition(t, b), "i-1")
	c.takeOver()
	must(t, c.write("before"))
	last := c.lane.State().Head().Offset - 1
	noted := seeks{c.broker, make(map[string]int64)}
	c.broker = noted
	c.anew().takeOver()
	if from, read := noted.from[c.topics.Journal]; !read || from != last {
		t.Errorf("it read from %d, %t, and must from %d", from, read, last)
	}
}

// A claim is of the partition's format, as far as the instance has folded it, and not
// of the release's: else it would shut out releases that are still served beside.
func TestAClaimIsOfThePartitionsFormat(t *testing.T) {
	b := kafka.Embedded(t)
	topics := onePartition(t, b)
	c := newContender(t, b, topics, "i-1")
	c.takeOver()
	const later = events.JournalFormat + 1
	c.lane.State().Raise(later) // as if it had been folded
	must(t, c.lane.FencesAll(t.Context()))
	if err := c.lane.Claims(t.Context()); !errors.Is(err, projections.ErrNewer) {
		t.Errorf("a format that it does not know is served: %v", err)
	}
	var formats []int
	for _, r := range oracle.Read(t, b.Brokers, topics.Journal) {
		e, err := events.Decode[events.Event](r.Value)
		must(t, err)
		formats = append(formats, e.Format)
	}
	if want := []int{1, later}; !slices.Equal(formats, want) {
		t.Errorf("the claims are of the formats %v, and must be of %v", formats, want)
	}
}

// Whether its clock is right an owner knows from its own claim, before it decides anything.
func TestATakeoverLooksAtTheClock(t *testing.T) {
	b := kafka.Embedded(t)
	topics := onePartition(t, b)
	for off, says := range map[time.Duration]string{0: "", time.Hour: "ahead", -time.Hour: "behind"} {
		c := newContender(t, b, topics, "wrong")
		c.broker, c.wall = stamping{c.broker}, func() time.Time { return now().Add(off) }
		c.contend(c.lane.State())
		c.takeOver()
		if err := c.lane.Unwell(); (err != nil) != (off != 0) || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s off: %v", off, err)
		}
	}
}

// stamping is a broker that says when the records that it has were written.
type stamping struct{ lane.Broker }

func (b stamping) Read(partition int32, committed bool) (lane.Reader, error) {
	r, err := b.Broker.Read(partition, committed)
	return stampedReader{r}, err
}

type stampedReader struct{ lane.Reader }

func (r stampedReader) Poll(ctx context.Context, most int) kgo.Fetches {
	fetches := r.Reader.Poll(ctx, most)
	for _, r := range fetches.Records() {
		r.Attrs = kgo.NewRecordAttrs(kgo.RecordAttrsOpts{TimestampType: 1, Transactional: r.Attrs.IsTransactional(), Control: r.Attrs.IsControl()})
	}
	return fetches
}

// What cannot be folded again is kept, and not served: a store that is ahead of its journal, or has
// folded something else than stands there, is thrown away only where the journal has its beginning.
func TestATakeoverKeepsWhatItCannotFoldAgain(t *testing.T) {
	for what, written := range map[string]int{"ahead of the journal": 0, "beside the journal": 20} {
		t.Run(what, func(t *testing.T) {
			b := kafka.Embedded(t)
			topics, others := onePartition(t, b), onePartition(t, b)
			one := newContender(t, b, topics, "one")
			one.takeOver()
			for n := range 5 {
				must(t, one.write(fmt.Sprint("folded-", n)))
			}
			newContender(t, b, others, "before").takeOver() // so that what stands where has another number
			other := newContender(t, b, others, "other")
			other.takeOver()
			for n := range written {
				must(t, other.write(fmt.Sprint("other-", n)))
			}
			state := one.lane.State()
			again := func() *contender {
				state.Forget()
				c := *other
				c.contend(state)
				return &c
			}
			deleted := make(kadm.Offsets)
			deleted.AddOffset(others.Journal, 0, 1, -1)
			_, err := b.Admin(t).DeleteRecords(t.Context(), deleted)
			must(t, err)
			state.CaughtUp()
			c := again()
			if err := c.lane.TakeOver(t.Context()); !errors.Is(err, lane.ErrBeginning) || !errors.Is(err, lane.ErrNotFolded) {
				t.Errorf("it took over: %v", err)
			}
			if !c.has("folded-4") || state.FellBehind() {
				t.Error("what it had folded is gone, or counts as known")
			}
			silent, cut := context.WithCancel(t.Context())
			cut()
			if err := again().lane.Rebuild(silent); !errors.Is(err, context.Canceled) || !c.has("folded-4") {
				t.Errorf("Kafka does not say whether the journal has its beginning: %v", err)
			}
			one.contend(state)
			if err := one.lane.Rebuild(t.Context()); err != nil || one.has("folded-4") {
				t.Errorf("the journal has its beginning, and what it had folded is kept: %v", err)
			}
		})
	}
}
