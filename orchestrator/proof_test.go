package orchestrator

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/oracle"
)

// reaches waits until an order is in a state.
func (i *Instance) reaches(t *testing.T, order string, state projections.State) *projections.Order {
	t.Helper()
	var o *projections.Order
	oracle.Until(t, fmt.Sprintf("order %s is %s", order, state), func() (err error) {
		if o, _, err = i.Order(order); err == nil && o.State == projections.Error {
			t.Fatalf("it is in Error: %s", o.Reason)
		}
		if err == nil && o.State != state {
			err = fmt.Errorf("it is %s: %s", o.State, o.Reason)
		}
		return err
	})
	return o
}

// A request topic with Kafka's own limit takes whatever many orders ask for at once.
func TestManyRequestsAtOnce(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		topics := onePartition(t, b)
		b.Create(t, 1, nil, topics.Requests("phone"))
		b.Create(t, 1, map[string]*string{"max.message.bytes": new("50000")}, topics.Requests("pigeon"))
		var said lines
		i, _ := runs(t, b, Config{ID: "i-1", Namespace: topics.Namespace, Logger: said.logger()})
		oracle.Until(t, "ready", i.Ready)
		must(t, i.Register(t.Context(), parseFlow(t, "workflow: silent\nsteps: [{name: call, agent: phone, after: [], timeout: 1h}, {name: send, agent: pigeon, after: [], timeout: 1h}]")))
		random, ids := make([]byte, 3750), make([]string, 600)
		records := make([]*kgo.Record, 0, len(ids)+1)
		for n := range ids {
			_, _ = rand.Read(random)
			ids[n] = fmt.Sprint("o-", n)
			records = append(records, &kgo.Record{Topic: topics.Orders, Key: []byte(ids[n]), Value: fmt.Appendf(nil, `{"workflow":"silent","input":%q}`, base64.StdEncoding.EncodeToString(random))})
		}
		// One that has nothing to do with them comes after all of them, and completes meanwhile.
		must(t, i.Register(t.Context(), parseFlow(t, "workflow: free\nsteps: [{name: call, agent: other, timeout: 1h}]")))
		client := b.Client(t)
		must(t, client.ProduceSync(t.Context(), append(records, &kgo.Record{Topic: topics.Orders, Key: []byte("free"), Value: []byte(`{"workflow":"free"}`)})...).FirstErr())
		i.reaches(t, "free", projections.Processing)
		must(t, client.ProduceSync(t.Context(), &kgo.Record{
			Topic: topics.Replies, Key: []byte("free"), Value: []byte(`{"order":"free","step":"call","attempt":1,"status":"completed"}`),
		}).FirstErr())
		i.reaches(t, "free", projections.Processed)
		for _, id := range ids {
			i.reaches(t, id, projections.Processing)
		}
		for _, refused := range []*kerr.Error{kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord} {
			if strings.Contains(said.String(), refused.Message) {
				t.Errorf("a batch was refused:\n%s", said.String())
			}
		}
	})
}

// An agent whose topic is gone is away: what it is to do waits, and nothing else.
func TestAnAgentIsAway(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		topics := onePartition(t, b)
		i, _ := runs(t, b, Config{ID: "i-1", Namespace: topics.Namespace})
		oracle.Until(t, "ready", i.Ready)
		must(t, i.Register(t.Context(), parseFlow(t, silentFlow)))
		must(t, i.Register(t.Context(), parseFlow(t, "workflow: other\nsteps: [{name: call, agent: pigeon, timeout: 1h}]")))
		b.Delete(t, topics.Requests("phone"))
		client := b.Client(t)
		submit := func(id, flow string) {
			must(t, client.ProduceSync(t.Context(), &kgo.Record{Topic: topics.Orders, Key: []byte(id), Value: fmt.Appendf(nil, `{"workflow":%q}`, flow)}).FirstErr())
		}
		submit("o-1", "silent")
		submit("o-2", "other")
		i.reaches(t, "o-2", projections.Processing)
		o := i.reaches(t, "o-1", projections.Pending)
		if o.Steps[0].Attempt != 0 || o.FailureCount != 0 {
			t.Errorf("an attempt was used up: %+v", o.Steps[0])
		}
		b.Create(t, 1, nil, topics.Requests("phone"))
		i.reaches(t, "o-1", projections.Processing)
	})
}

// An agent whose topic refuses every record is away as soon as that shows: no order ends by
// it, and no other waits for it. It is tried again, and the orders go on where it takes one.
func TestAnAgentWhoseTopicRefusesEveryRecord(t *testing.T) {
	b := kafka.Embedded(t)
	topics, err := events.NewTopics(kafka.Namespace(t))
	must(t, err)
	const partitions = 4
	_, err = CreateTopics(t.Context(), b.Admin(t), &topics, partitions, 1)
	must(t, err)
	i, err := New(t.Context(), Config{ID: "i-1", Namespace: topics.Namespace, DataDir: t.TempDir(), Kafka: []kgo.Opt{kgo.SeedBrokers(b.Brokers...)}})
	must(t, err)
	var later atomic.Int64
	i.directory.now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	stop := begins(t, i)
	oracle.Until(t, "ready", i.Ready)
	must(t, i.Register(t.Context(), parseFlow(t, silentFlow)))
	must(t, i.Register(t.Context(), parseFlow(t, "workflow: other\nsteps: [{name: call, agent: pigeon, timeout: 1h}]")))
	refuses := b.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topics.Requests("phone"), Err: kerr.InvalidRecord, Count: -1})
	var records []*kgo.Record
	for n := range 40 * partitions {
		flow := []string{"silent", "other"}[n%2]
		records = append(records, &kgo.Record{Topic: topics.Orders, Key: fmt.Append(nil, flow, n), Value: fmt.Appendf(nil, `{"workflow":%q}`, flow)})
	}
	must(t, b.Client(t).ProduceSync(t.Context(), records...).FirstErr())
	for _, r := range records {
		if id := string(r.Key); strings.HasPrefix(id, "other") {
			i.reaches(t, id, projections.Processing)
		} else if o := i.reaches(t, id, projections.Pending); o.Steps[0].Attempt != 0 || o.FailureCount != 0 {
			t.Errorf("an attempt was used up: %+v", o.Steps[0])
		}
	}
	later.Add(int64(refusingRests))
	oracle.Until(t, "it is tried again, in vain", func() error {
		i.directory.mu.Lock()
		defer i.directory.mu.Unlock()
		if i.directory.refusing[topics.Requests("phone")].rests == refusingRests {
			return errors.New("it is not")
		}
		return nil
	})
	refuses.Remove()
	later.Add(int64(2 * refusingRests))
	for _, r := range records {
		i.reaches(t, string(r.Key), projections.Processing)
	}
	stop()
}
