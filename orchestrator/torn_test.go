package orchestrator

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/oracle"
	"github.com/waybill-dev/waybill/test/reliability"
)

// A Kafka without transaction version 2 can let a late request of one
// transaction land in another, or lose it. The journal then says so itself: the
// partition stops before anything is decided on what it cannot mean, an
// operator is called, and the other partitions go on.
func TestTornJournal(t *testing.T) {
	var forged reliability.Figures
	for _, c := range []struct {
		name string
		// tear makes the transactions that stand in the journal behind the last
		// one that is whole. All are of order torn, whose last event is h.last.
		tear func(h *torn) [][]*kgo.Record
		says string
	}{
		{"a record is missing", func(h *torn) [][]*kgo.Record {
			return [][]*kgo.Record{h.seal(1, 3, h.discarded(1), h.discarded(2))}
		}, "has 2 records of 3"},
		{"a transaction is missing", func(h *torn) [][]*kgo.Record {
			return [][]*kgo.Record{h.seal(2, 1, h.discarded(1))}
		}, "then came"},
		{"a record in the next transaction", func(h *torn) [][]*kgo.Record {
			late := h.discarded(1)
			return [][]*kgo.Record{h.seal(1, 1, h.discarded(2)), append([]*kgo.Record{late}, h.seal(2, 1, h.discarded(3))...)}
		}, "event"},
		{"a record of a transaction that never ended", func(h *torn) [][]*kgo.Record {
			return [][]*kgo.Record{{h.discarded(1)}, h.seal(1, 1, h.discarded(1))}
		}, "has 2 records of 1"},
		{"a transaction twice", func(h *torn) [][]*kgo.Record {
			return [][]*kgo.Record{h.seal(1, 1, h.discarded(1)), h.seal(1, 1, h.discarded(1))}
		}, "event"},
		{"an event twice", func(h *torn) [][]*kgo.Record {
			return [][]*kgo.Record{h.seal(1, 1, h.discarded(1)), h.seal(2, 1, h.discarded(1))}
		}, "event"},
		{"an event is missing", func(h *torn) [][]*kgo.Record {
			return [][]*kgo.Record{h.seal(1, 1, h.discarded(2))}
		}, "event"},
		{"the last record, with the seal, is missing", func(h *torn) [][]*kgo.Record {
			return [][]*kgo.Record{{h.discarded(1)}}
		}, "has 2 records of 1"}, // the claim is taken for its end
	} {
		t.Run(c.name, func(t *testing.T) {
			newTorn(t, kafka.Embedded(t)).stops(func(h *torn) { h.write(c.tear(h)) }, projections.ErrGap, c.says)
			forged = append(forged, reliability.Figure{Name: c.name, Value: 1})
		})
	}
	reliability.Write(t, "torn", "make reliability PART=torn", reliability.Figures{
		{Name: "journals", Value: len(forged)},
		{Name: "forged journal", Value: forged},
	})
}

// A journal of a release that knows more is not decided on either, nor is what
// was folded of it before thrown away.
func TestNewerJournal(t *testing.T) {
	for _, c := range []struct {
		name  string
		newer func(h *torn) [][]*kgo.Record
		says  string
	}{
		{"an event of an order", func(h *torn) [][]*kgo.Record {
			return [][]*kgo.Record{h.seal(1, 1, h.event(events.Event{Type: "waybill.order.blessed", Order: "torn", Seq: h.seq + 1}))}
		}, "waybill.order.blessed"},
		{"an event of the partition", func(h *torn) [][]*kgo.Record {
			return [][]*kgo.Record{h.seal(1, 1, h.event(events.Event{Type: "waybill.partition.blessed"}))}
		}, "waybill.partition.blessed"},
		{"a claim in a newer format", func(h *torn) [][]*kgo.Record {
			claim := h.event(events.Event{Type: events.PartitionClaimed, Instance: "newer", Claim: "c", Partitions: 2, Format: events.JournalFormat + 1})
			return [][]*kgo.Record{h.seal(0, 1, claim)}
		}, `"newer" claimed`},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newTorn(t, kafka.Embedded(t))
			h.stops(func(h *torn) { h.write(c.newer(h)) }, projections.ErrNewer, c.says)
			h.started("torn") // as far as is known here
		})
	}
}

// Records that Kafka has lost before they were read stop the partition, and call
// an operator: nothing is decided as if they had never been.
func TestLostRecords(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		lose    func(h *torn)
		because error
		says    string
	}{
		{"inputs whose retention was too short", func(h *torn) {
			h.submit(h.waits)
			h.retain(h.topics.Orders)
		}, lane.ErrInputLost, "has lost records that were not read yet"},
		{"a topic of inputs that was made anew", func(h *torn) {
			h.recreate(h.topics.Orders)
		}, lane.ErrInputLost, "or the topic made anew?"},
		{"the journal behind what was folded", func(h *torn) {
			h.retain(h.topics.Journal)
		}, projections.ErrGap, lane.ErrBeginning.Error()},
	} {
		t.Run(c.name, func(t *testing.T) {
			kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
				h := newTorn(t, b)
				h.stops(c.lose, c.because, c.says)
				if o, _, err := h.instance.Order("torn"); err != nil || o.State != projections.Processing { // as it stood
					t.Errorf("the order is told as %+v: %v", o, err)
				}
			})
		})
	}
}

// An operator has a partition go on behind inputs that were lost. That stands in the
// journal, so it holds for every store and every owner.
func TestGoingOnBehindLostInputs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		lose func(h *torn)
		lost int // orders that were
	}{
		{"inputs whose retention was too short", func(h *torn) {
			h.submit(h.earlier)
			h.retain(h.topics.Orders)
		}, 1},
		{"a topic of inputs that was made anew", func(h *torn) { h.recreate(h.topics.Orders) }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
				h := newTorn(t, b)
				stop := h.run("before")
				must(t, h.instance.Register(t.Context(), parseFlow(t, "workflow: order\nsteps: [{name: charge, agent: payment, timeout: 1h}]")))
				h.submit("torn")
				h.started("torn")
				if err := h.instance.SkipLost(t.Context(), h.partition, lane.Author{By: "ann"}, "why not"); !errors.Is(err, ErrRefused) {
					t.Errorf("nothing is lost yet: %v", err)
				}
				stop()
				c.lose(h)
				stop = h.run("after")
				oracle.Until(t, "the partition is stopped", func() error {
					if err := h.instance.Ready(); !errors.Is(err, lane.ErrInputLost) {
						return fmt.Errorf("ready: %w", err)
					}
					return nil
				})
				other := 1 - h.partition
				if err := h.instance.SkipLost(t.Context(), other, lane.Author{By: "ann"}, "why not"); !errors.Is(err, ErrRefused) {
					t.Errorf("of the other partition nothing is lost: %v", err)
				}
				must(t, h.instance.SkipLost(t.Context(), h.partition, lane.Author{By: "ann"}, "the outage took too long"))
				for _, again := range []bool{false, true} {
					if again {
						stop()
						h.dir = t.TempDir()
						h.run("again")
					}
					oracle.Until(t, "it is ready", func() error { return h.instance.Ready() })
					h.submit(h.waits)
					h.started(h.waits)
				}
				var told []events.Event
				for _, r := range h.journal() {
					e, err := events.Decode[events.Event](r.Value)
					must(t, err)
					if e.Type == events.PartitionAdvanced && e.By != "" {
						told = append(told, e)
					}
				}
				source := fmt.Sprintf("%s/%d/1", h.topics.Orders, h.partition)
				if len(told) != 1 || told[0].By != "ann" || told[0].Reason != "the outage took too long" || told[0].Source != source || told[0].Check() != nil {
					t.Errorf("the journal says %+v", told)
				}
				if _, _, err := h.instance.Order(h.earlier); c.lost > 0 && !errors.Is(err, projections.ErrNotFound) {
					t.Errorf("the order that was lost: %v", err)
				}
			})
		})
	}
}

// An input whose last records are of a transaction that was aborted, and which
// retention has emptied since, has lost nothing.
func TestAnInputThatWasEmptiedBehindAnAbortedTransaction(t *testing.T) {
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		h := newTorn(t, b)
		stop := h.run("before")
		must(t, h.instance.Register(t.Context(), parseFlow(t, "workflow: order\nsteps: [{name: charge, agent: payment, timeout: 1h}]")))
		h.submit("torn")
		h.started("torn")
		app := b.Client(t, kgo.TransactionalID(h.topics.Namespace+"-app"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		must(t, app.BeginTransaction())
		must(t, app.ProduceSync(t.Context(), &kgo.Record{Topic: h.topics.Orders, Partition: h.partition, Key: []byte(h.earlier), Value: []byte(`{"workflow":"order"}`)}).FirstErr())
		must(t, app.EndTransaction(t.Context(), kgo.TryAbort))
		n := 0
		oracle.Until(t, "the position behind its marker is kept", func() error {
			for n++; h.instance.Partition(fmt.Sprint("n-", n)) == h.partition; n++ {
			}
			h.submit(fmt.Sprint("n-", n)) // to have some time pass
			h.started(fmt.Sprint("n-", n))
			stop()
			ends, err := b.Admin(t).ListEndOffsets(t.Context(), h.topics.Orders)
			must(t, err)
			end, _ := ends.Lookup(h.topics.Orders, h.partition)
			seal := h.lastSeal()
			if at := seal.Next.At(events.InputOrders); at != end.Offset {
				stop = h.run("before")
				return fmt.Errorf("it is %d of %d", at, end.Offset)
			}
			return nil
		})
		h.retain(h.topics.Orders)
		h.run("after")
		oracle.Until(t, "it is ready", func() error { return h.instance.Ready() })
		h.submit(h.waits)
		h.started(h.waits)
	})
}

// torn is a namespace of two partitions. The journal of one is going to be torn.
type torn struct {
	*testing.T
	broker    *kafka.Broker
	topics    events.Topics
	client    *kgo.Client
	dir       string
	instance  *Instance // that runs, or ran last
	partition int32     // of the order torn
	earlier   string    // an order of it that came before
	waits     string    // another one, which comes later
	elsewhere []string  // orders of the other partition

	seq    uint64      // of the order's last event
	sealed events.Seal // of the partition's last transaction
	end    int64       // of what was written to the journal of the partition
}

func newTorn(t *testing.T, b *kafka.Broker) *torn {
	t.Helper()
	topics, err := events.NewTopics(kafka.Namespace(t))
	must(t, err)
	h := &torn{T: t, broker: b, topics: topics, dir: t.TempDir()}
	_, err = CreateTopics(t.Context(), h.broker.Admin(t), &topics, 2, 1)
	must(t, err)
	h.client = h.producer()
	byKey := lane.NewPartitioner(2)
	h.partition = byKey.Of([]byte("torn"))
	for n := 0; h.earlier == "" || len(h.elsewhere) < 2; n++ {
		if id := fmt.Sprint("o-", n); byKey.Of([]byte(id)) != h.partition {
			h.elsewhere = append(h.elsewhere, id)
		} else {
			h.waits, h.earlier = id, h.waits
		}
	}
	return h
}

func (h *torn) producer() *kgo.Client {
	h.Helper()
	return h.broker.Client(h.T, kgo.RecordPartitioner(kgo.ManualPartitioner()))
}

// run starts an instance on the same data as the one before, and returns what
// stops it.
func (h *torn) run(id string) func() {
	h.Helper()
	i, stop := runs(h.T, h.broker, Config{ID: id, Namespace: h.topics.Namespace, DataDir: h.dir, watchEvery: time.Second})
	h.instance = i
	return stop
}

// stops wants that the partition stops, because of what was done to it while
// nobody owned it, and the other goes on.
func (h *torn) stops(tear func(h *torn), because error, says string) {
	h.Helper()
	stop := h.run("before")
	must(h, h.instance.Register(h.Context(), parseFlow(h.T, "workflow: order\nsteps: [{name: charge, agent: payment, timeout: 1h}]")))
	h.submit(h.earlier)
	h.submit("torn")
	h.started("torn")
	stop()
	h.learn()
	tear(h)

	// Its input waits, and so does that of the others.
	h.submit(h.waits)
	h.submit(h.elsewhere[0])
	h.run("after")
	h.started(h.elsewhere[0])
	why := h.alerted()
	for _, want := range []string{fmt.Sprintf("partition %d of namespace %s is stopped", h.partition, h.topics.Namespace), because.Error(), says} {
		if !strings.Contains(why, want) {
			h.Errorf("the alert does not say %q: %s", want, why)
		}
	}
	if err := h.instance.Ready(); !errors.Is(err, because) || !strings.Contains(err.Error(), fmt.Sprintf("partition %d", h.partition)) {
		h.Errorf("the instance is ready, or does not say why not: %v", err)
	}
	h.nothingDecided()
	h.submit(h.elsewhere[1]) // the others still go on
	h.started(h.elsewhere[1])
}

func (h *torn) submit(order string) {
	h.Helper()
	must(h, h.client.ProduceSync(h.Context(), &kgo.Record{
		Topic: h.topics.Orders, Partition: lane.NewPartitioner(2).Of([]byte(order)), Key: []byte(order), Value: []byte(`{"workflow":"order"}`),
	}).FirstErr())
}

func (h *torn) started(order string) {
	h.Helper()
	oracle.Until(h, "order "+order+" is worked on", func() error {
		o, _, err := h.instance.Store().Order(h.instance.Partition(order), order)
		if err == nil && o.State != projections.Processing {
			err = fmt.Errorf("it is %s", o.State)
		}
		return err
	})
}

// journal reads the partition's.
func (h *torn) journal() []*kgo.Record {
	h.Helper()
	return slices.DeleteFunc(oracle.Read(h, h.broker.Brokers, h.topics.Journal), func(r *kgo.Record) bool { return r.Partition != h.partition })
}

// learn reads after what a transaction must be written now.
func (h *torn) learn() {
	h.Helper()
	for _, r := range h.journal() {
		h.end = r.Offset
		e, err := events.Decode[events.Event](r.Value)
		must(h, err)
		if e.Order == "torn" {
			h.seq = e.Seq
		}
		if header := events.HeaderValue(r, events.HeaderLane); header != nil && e.Type != events.PartitionClaimed {
			h.sealed, err = events.DecodeSeal(header)
			must(h, err)
		}
	}
	if h.seq == 0 || h.sealed.Transaction == 0 {
		h.Fatalf("the journal has no event of the order, or no transaction: %d, %+v", h.seq, h.sealed)
	}
}

// discarded is an event of the order, the nth from now.
func (h *torn) discarded(n uint64) *kgo.Record {
	return h.event(events.Event{Type: events.ReplyDiscarded, Order: "torn", Seq: h.seq + n, Step: "charge", Attempt: 9, Reason: events.DiscardUnknownStep})
}

// event is the record of an event.
func (h *torn) event(e events.Event) *kgo.Record {
	e.At = now()
	envelope := events.Envelope{Source: "/waybill/" + h.topics.Namespace, Type: e.Type, Order: e.Order, Time: e.At, ID: fmt.Sprintf("torn/%d", e.Seq)}
	r := envelope.Record(h.topics.Journal, e.Append(nil))
	r.Partition = h.partition
	return r
}

// seal closes the nth transaction from now, which says that it has so many events.
func (h *torn) seal(n uint64, says int, records ...*kgo.Record) []*kgo.Record {
	seal := events.Seal{Transaction: h.sealed.Transaction + n, Events: says, Next: h.sealed.Next}
	last := records[len(records)-1]
	last.Headers = append(last.Headers, kgo.RecordHeader{Key: events.HeaderLane, Value: seal.Append(nil)})
	return records
}

func (h *torn) write(transactions [][]*kgo.Record) {
	h.Helper()
	for _, records := range transactions {
		must(h, h.client.ProduceSync(h.Context(), records...).FirstErr())
		h.end = records[len(records)-1].Offset
	}
}

// retain has Kafka delete what the partition of a topic holds, as if it was too
// old.
func (h *torn) retain(topic string) {
	h.Helper()
	ends, err := h.broker.Admin(h.T).ListEndOffsets(h.Context(), topic)
	must(h, err)
	end, _ := ends.Lookup(topic, h.partition)
	var before kadm.Offsets
	before.AddOffset(topic, h.partition, end.Offset, -1)
	_, err = h.broker.Admin(h.T).DeleteRecords(h.Context(), before)
	must(h, err)
}

// recreate deletes a topic, and makes it anew.
func (h *torn) recreate(topic string) {
	h.Helper()
	_, err := h.broker.Admin(h.T).DeleteTopics(h.Context(), topic)
	must(h, err)
	anew := false // Kafka may show the one that is gone a little longer
	oracle.Until(h, topic+" is made anew", func() error {
		created, err := CreateTopics(h.Context(), h.broker.Admin(h.T), &h.topics, 2, 1)
		if anew = anew || slices.Contains(created, topic); err == nil && !anew {
			err = fmt.Errorf("%q were created", created)
		}
		return err
	})
	h.client = h.producer() // the other knows the topic that is gone
}

// alerted waits for the alert about a partition, and returns its reason.
func (h *torn) alerted() (why string) {
	h.Helper()
	oracle.Until(h, "an alert", func() error {
		all := oracle.Read(h, h.broker.Brokers, h.topics.Alerts)
		if len(all) == 0 {
			return errors.New("there is none")
		}
		a, err := events.Decode[events.Alert](all[0].Value)
		must(h, err)
		if len(all[0].Key) > 0 || a.Order != "" {
			h.Fatalf("it is about order %q: %s", a.Order, a.Reason)
		}
		why = a.Reason
		return nil
	})
	return why
}

// nothingDecided wants that behind what was torn there are claims only, and that
// no message left.
func (h *torn) nothingDecided() {
	h.Helper()
	claims := 0
	for _, r := range h.journal() {
		if r.Offset <= h.end {
			continue
		}
		e, err := events.Decode[events.Event](r.Value)
		must(h, err)
		if e.Type != events.PartitionClaimed {
			h.Errorf("behind the gap, at offset %d, stands %+v", r.Offset, e)
		}
		claims++
	}
	if claims == 0 {
		h.Error("nobody claimed the partition")
	}
	for _, topic := range []string{h.topics.Requests("payment"), h.topics.Status, h.topics.DeadLetters} {
		for _, r := range oracle.Read(h, h.broker.Brokers, topic) {
			if string(r.Key) == h.waits {
				h.Errorf("%s says of the order that waits: %s", topic, r.Value)
			}
		}
	}
}
