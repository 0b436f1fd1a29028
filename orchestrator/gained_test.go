package orchestrator

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/oracle"
)

// A namespace gains an input: here its commands, of which releases before say
// nothing. They are read from where the topic begins, also when its beginning is
// gone already; and once they were read, from where they were read up to, though an
// older release comes back in between, and seals without them.
func TestANamespaceGainsAnInput(t *testing.T) {
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		h := newTorn(t, b)
		must(t, h.client.ProduceSync(t.Context(), &kgo.Record{Topic: h.topics.Orders, Partition: h.partition, Value: []byte("read before")}).FirstErr())
		h.asBefore(1, `{"orders":1,"replies":0}`)
		for range 3 {
			h.tell()
		}
		h.retain(h.topics.Commands)
		want := []string{h.tell(), h.tell()}
		stop := h.run("first")
		h.putAside(want)
		stop()

		for _, store := range []string{"as it was", "lost"} {
			seal := h.lastSeal()
			if at := seal.Next.At(events.InputCommands); at < int64(3+len(want)) {
				t.Fatalf("the commands were read up to %d", at)
			}
			h.asBefore(seal.Transaction+1, fmt.Sprintf(`{"orders":%d,"replies":%d}`, seal.Next.At(events.InputOrders), seal.Next.At(events.InputReplies)))
			if store == "lost" {
				h.dir = t.TempDir()
			}
			want = append(want, h.tell())
			stop := h.run("then")
			h.putAside(want)
			stop()
		}
	})
}

// A namespace of before signals is told to create their topic. As long as its format is that of then it
// says nothing of them that would shut a release of before out: nobody sends one, and what is on their
// topic waits until the format has risen.
func TestANamespaceGainsSignals(t *testing.T) {
	b := kafka.Embedded(t)
	topics := onePartition(t, b)
	admin := b.Admin(t)
	b.Delete(t, topics.Signals)
	cfg := Config{ID: "i-1", Namespace: topics.Namespace, DataDir: t.TempDir(), Kafka: []kgo.Opt{kgo.SeedBrokers(b.Brokers...)}}
	if i, err := New(t.Context(), cfg); !errors.Is(err, ErrMissingTopics) || !strings.Contains(err.Error(), topics.Signals+" is missing: `waybill topics create` creates it") {
		if err == nil {
			must(t, i.Close())
		}
		t.Errorf("an instance starts, or says %v", err)
	}
	oracle.Until(t, topics.Signals+" is made", func() error {
		created, err := CreateTopics(t.Context(), admin, &topics, 0, 1)
		if err == nil && !slices.Equal(created, []string{topics.Signals}) {
			err = fmt.Errorf("%q were created", created)
		}
		return err
	})

	own := OwnDialect
	speaks(t, Dialect{events.SignalsFormat - 1, 3, events.InputNames()})
	i, stop := runs(t, b, cfg)
	oracle.Until(t, "ready", i.Ready)
	must(t, i.Register(t.Context(), parseFlow(t, silentFlow)))
	_, err := i.Submit(t.Context(), "o-1", &events.Submission{Workflow: "silent"}, Context{}, nil)
	must(t, err)
	oracle.Until(t, "the order is there", func() error {
		_, _, err := i.Order("o-1")
		return err
	})
	tell := func(i *Instance) (e *events.Event, err error) {
		return i.Signal(t.Context(), "o-1", &events.Signal{Signal: "go", ID: "s-1"})
	}
	if e, err := tell(i); !errors.Is(err, ErrOlderRelease) {
		t.Errorf("before the format rises: %+v, %v", e, err)
	}
	early := &kgo.Record{Topic: topics.Signals, Partition: 0, Key: []byte("o-1"), Value: []byte(`{"signal":"go","id":"early"}`)}
	must(t, b.Client(t).ProduceSync(t.Context(), early).FirstErr())
	_, err = i.Submit(t.Context(), "o-2", &events.Submission{Workflow: "silent"}, Context{}, nil)
	must(t, err)
	stop()
	for _, r := range oracle.Read(t, b.Brokers, topics.Journal) {
		if seal := events.HeaderValue(r, events.HeaderLane); strings.Contains(string(seal), "signals") {
			t.Errorf("a release of before refuses %s", seal)
		}
	}

	OwnDialect = own
	i, _ = runs(t, b, cfg)
	oracle.Until(t, "ready", i.Ready)
	oracle.Until(t, "it is finished", func() error { return i.FinishUpgrade(t.Context()) })
	var after *events.Event
	oracle.Until(t, "the order is told", func() (err error) {
		after, err = tell(i)
		return err
	})
	if after == nil || after.Type != events.SignalDiscarded || after.Reason != events.SignalUnheard {
		t.Errorf("once it has risen: %+v", after)
	}
	e, err := i.find(t.Context(), "o-1", 0, func(e *events.Event) bool { return e.Type == events.SignalDiscarded && e.SignalID == "early" })
	if err != nil || e == nil {
		t.Errorf("what came early: %+v, %v", e, err)
	}
	if letters := oracle.Read(t, b.Brokers, topics.DeadLetters); len(letters) > 0 {
		t.Errorf("put aside is %v", letters)
	}
}

// asBefore writes a transaction of a release that knows some inputs only.
func (h *torn) asBefore(n uint64, next string) {
	h.Helper()
	seal := events.Seal{Transaction: n, Events: 1}
	must(h, json.Unmarshal([]byte(next), &seal.Next))
	r := h.event(events.Event{Type: events.PartitionAdvanced})
	r.Headers = append(r.Headers, kgo.RecordHeader{Key: events.HeaderLane, Value: seal.Append(nil)})
	h.write([][]*kgo.Record{{r}})
}

// tell puts a command on the topic about an order that is not there, and returns
// where.
func (h *torn) tell() string { return h.command("torn") }

func (h *torn) command(order string) string {
	h.Helper()
	r := &kgo.Record{Topic: h.topics.Commands, Partition: h.partition, Key: []byte(order), Value: []byte(`{"command":"pause"}`)}
	must(h, h.client.ProduceSync(h.Context(), r).FirstErr())
	return fmt.Sprintf("%s/%d/%d", r.Topic, r.Partition, r.Offset)
}

// putAside waits until so many inputs were put aside, and wants that they are these:
// each once.
func (h *torn) putAside(want []string) {
	h.Helper()
	var have []string
	oracle.Until(h, "the commands are read", func() error {
		have = nil
		for _, r := range oracle.Read(h, h.broker.Brokers, h.topics.DeadLetters) {
			have = append(have, events.Header(r, "waybill_source"))
		}
		if len(have) < len(want) {
			return fmt.Errorf("%d of %d", len(have), len(want))
		}
		return nil
	})
	slices.Sort(have)
	slices.Sort(want)
	if !slices.Equal(have, want) {
		h.Errorf("read are %q, and not %q", have, want)
	}
}

// lastSeal is that of the partition's last transaction. Claims say what they always
// have.
func (h *torn) lastSeal() (last events.Seal) {
	h.Helper()
	for _, r := range h.journal() {
		if header := events.HeaderValue(r, events.HeaderLane); header != nil {
			seal, err := events.DecodeSeal(header)
			must(h, err)
			if seal.Transaction > 0 {
				last = seal
			} else if claim := `{"txn":0,"events":1,"next":{"orders":0,"replies":0,"commands":0`; string(header) != claim+"}}" && string(header) != claim+`,"signals":0,"internal":0}}` {
				h.Errorf("a claim says %s", header)
			}
		}
	}
	return last
}

// What a namespace lacks of the topics of today is said by whoever starts on it, and
// created with the number of partitions that the namespace has.
func TestANamespaceGainsATopic(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		topics, err := events.NewTopics(kafka.Namespace(t))
		must(t, err)
		admin := b.Admin(t)
		_, err = CreateTopics(t.Context(), admin, &topics, 3, 1)
		must(t, err)
		b.Delete(t, topics.Commands)
		says := topics.Commands + " is missing: `waybill topics create` creates it"
		if i, err := New(t.Context(), Config{ID: "i-1", Namespace: topics.Namespace, DataDir: t.TempDir(), Kafka: []kgo.Opt{kgo.SeedBrokers(b.Brokers...)}}); !errors.Is(err, ErrMissingTopics) || !strings.Contains(err.Error(), says) {
			if err == nil {
				must(t, i.Close())
			}
			t.Errorf("an instance starts, or says %v", err)
		}
		says = topics.Journal + " has 3 partitions, and 12 were asked for: the number can never change"
		if created, err := CreateTopics(t.Context(), admin, &topics, DefaultPartitions, 1); err == nil || err.Error() != says {
			t.Errorf("%q were created, %v", created, err)
		}
		oracle.Until(t, topics.Commands+" is made anew", func() error {
			created, err := CreateTopics(t.Context(), admin, &topics, 0, 1)
			if err == nil && !slices.Equal(created, []string{topics.Commands}) {
				err = fmt.Errorf("%q were created", created)
			}
			return err
		})
		found, err := CheckTopics(t.Context(), b.Client(t), &topics, nil)
		must(t, err)
		for _, d := range found {
			if d.Harmful {
				t.Errorf("%+v", d)
			}
		}
	})
}
