//go:build unix

package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/test/world"
)

// The workflows have what workflows can have: undo, waits, steps side by side,
// conditions, expressions, and each way to end when nothing is left to try. The
// last has no retries: nothing repairs what is lost of its orders.
var flows = []string{
	`
workflow: chaos-0
steps:
  - {name: reserve, agent: alpha, do: reserve, undo: release, timeout: 2s, retry: {attempts: 3, backoff: 100ms}, exhausted: compensate}
  - {name: charge, agent: beta, do: charge, undo: refund, timeout: 2s, retry: {attempts: 3, backoff: 100ms}, exhausted: compensate}
  - {name: ship, agent: gamma, do: ship, timeout: 2s, retry: {attempts: 4, backoff: 100ms, multiplier: 2, jitter: 0.5}}
`, `
workflow: chaos-1
steps:
  - {name: book, agent: beta, do: book, undo: un-book, timeout: 1500ms, retry: {attempts: 2, backoff: 50ms}, exhausted: wait, wait: {for: 2s, rounds: 3}}
  - {name: left, agent: alpha, do: left, undo: un-left, after: [book], timeout: 2s, retry: {attempts: 3, backoff: 50ms}, exhausted: compensate}
  - {name: right, agent: gamma, do: right, undo: un-right, after: [book], timeout: 2s, retry: {attempts: 3, backoff: 50ms}, exhausted: continue}
  - {name: rest, sleep: {for: 'duration(input.n % 2 == 0 ? "100ms" : "2s")'}, after: [book]}
  - {name: join, agent: beta, do: join, after: [left, right, rest], timeout: 2s, retry: {attempts: 3, backoff: 50ms}}
`, `
workflow: chaos-2
steps:
  - {name: one, agent: gamma, do: one, undo: un-one, timeout: 1s, retry: {attempts: 2, backoff: 20ms, atOnce: [expired]}, exhausted: error}
  - {name: two, agent: alpha, do: two, undo: un-two, timeout: 1s, when: "input.n % 3 != 0", with: "{'n': input.n, 'twice': input.n * 2}", retry: {attempts: 2, backoff: 20ms}, exhausted: compensate}
  - {name: again, agent: beta, do: three, timeout: 1s, retry: {attempts: 3, backoff: 20ms}, repeat: {until: 'input.n % 2 == 0', every: 100ms, max: 2}, exhausted: continue}
  - {name: enough, raise: {code: enough, compensate: true}, when: "input.n / 7 % 5 == 3", after: [again]}
  - {name: three, agent: beta, do: three, timeout: 1s, retry: {attempts: 1, backoff: 20ms}, exhausted: compensate, after: [enough]}
`, `
workflow: chaos-3
steps:
  - {name: quick, agent: alpha, do: quick, undo: un-quick, timeout: 30s, exhausted: compensate}
  - {name: patient, agent: gamma, do: patient, undo: un-patient, timeout: 10s, retry: {attempts: 2, backoff: 500ms}, exhausted: compensate}
`,
	world.Sure("chaos-4", "alpha", "beta", "gamma"),
	// What its steps wait for may not come, but what its children do must.
	`
workflow: chaos-5
steps:
  - {name: paid, listen: paid, timeout: 5s}
  - {name: agreed, approve: {roles: [clerk], count: 2, due: 1s, escalate: [board]}, timeout: 5s, after: []}
  - {name: near, order: chaos-0, exhausted: compensate, after: [paid]}
  - {name: far, order: chaos-4, exhausted: continue, after: [paid, agreed]}
  - name: many
    each:
      items: '[1, 2, 3, 4].map(i, {"n": input.n + i})'
      steps:
        - {name: pay, agent: beta, do: charge, undo: refund, timeout: 2s, retry: {attempts: 2, backoff: 100ms}}
        - {name: send, agent: gamma, do: ship, timeout: 2s, retry: {attempts: 2, backoff: 100ms}}
      atOnce: 2
      tolerate: 50%
      onFailure: finish
    exhausted: compensate
    after: [paid]
  - {name: tell, emit: {topic: chaos-caller, type: com.acme.told, data: steps.near.output}, timeout: 1m, exhausted: continue, after: [near, far, many]}
  - {name: last, agent: alpha, do: last, undo: un-last, timeout: 2s, exhausted: compensate, limit: {name: chaos, key: string(input.n % 3)}}
`,
	// One of a key at a time. Operators have its orders go on in the other version, and back.
	inTurn(2, "3s"),
}

// inTurn is a version of a workflow of which one order is open at a time under a key, whose steps hear signals under keys, and do
// what an agent lists page by page.
func inTurn(version int, timeout string) string {
	return fmt.Sprintf(`
workflow: chaos-6
version: %d
concurrency: {key: 'input.n / %d %% 30'}
steps:
  - {name: told, listen: told, key: '"k-" + string(input.n)', timeout: %s}
  - {name: first, agent: beta, do: charge, undo: refund, timeout: 2s, retry: {attempts: 3, backoff: 100ms}, exhausted: compensate, after: []}
  - name: listed
    each:
      items: {agent: beta, do: list, timeout: 2s, retry: {attempts: 3, backoff: 100ms}}
      steps:
        - {name: send, agent: gamma, do: ship, timeout: 2s, retry: {attempts: 2, backoff: 100ms}}
      tolerate: 50%%
      onFailure: finish
    exhausted: compensate
    after: [told, first]
`, version, flowCount, timeout)
}

// limit is the one of the last steps of those that listen, and of the orders of ticks.
const limit = "limit: chaos\natATime: 3\n"

// places holds what its home gave against what it has in the end: the ledger has seen that it never gave more.
func (r *run) places(f *findings) {
	for _, e := range f.books.Histories[events.LimitID("chaos")] {
		switch e.Type {
		case events.PlaceGranted:
			f.granted++
		case events.PlaceAwaited:
			f.awaited++
		}
	}
	home, err := r.instances[0].client.Limit(r.Context(), "chaos")
	if err != nil || home.Taken+home.Waiting > 0 {
		f.stuck = append(f.stuck, fmt.Sprintf("the limit has %+v in the end (%v)", home, err))
	}
	turns, told, pages, migrated, raised := 0, 0, 0, 0, 0
	for id, history := range f.books.Histories {
		if p := f.books.Ledgers[id].Places; events.IsTurn(id) && p != nil && len(p.Seats) > 0 {
			f.stuck = append(f.stuck, fmt.Sprintf("%s has %+v in the end", id, p.Seats))
		}
		for i := range history {
			switch e := &history[i]; {
			case e.Type == events.PlaceGranted && events.IsTurn(id):
				turns++
			case e.Type == events.SignalMatched:
				told++
			case e.Type == events.PageCompleted:
				pages++
			case e.Type == events.OrderMigrated:
				migrated++
			case e.Type == events.StepRaised:
				raised++
			}
		}
	}
	r.Logf("%d turns were given, %d signals heard under keys, %d pages listed, %d orders migrated, %d raised", turns, told, pages, migrated, raised)
	if f.granted*turns*told*pages*migrated*raised == 0 {
		f.broken = append(f.broken, "of places, turns, signals under keys, pages, migrations and what is raised none was had")
	}
}

// hearing is the number of the workflow whose orders listen, and keyed that of the one whose orders do under keys.
const hearing, keyed = 5, 6

// flowCount is how many workflows orders are submitted of, by their numbers.
const flowCount = 8

// sdkAgent serves a queue as programs do that use the SDK.
func (r *run) sdkAgent(ctx context.Context, name string, operations ...string) {
	r.agents.Go(func() {
		if err := agents.Serve(ctx, agents.Config{
			Agent: name, Brokers: r.kafka.addresses(), Namespace: r.topics.Namespace, Concurrency: 256,
			StopTimeout: time.Second, Logger: slog.New(slog.DiscardHandler),
		}, r.service.Operations(operations...)); err != nil {
			r.Errorf("agent %s: %v", name, err)
		}
	})
}

// plainAgent serves a queue with no more than a Kafka client. It may send its
// replies to any partition.
func (r *run) plainAgent(ctx context.Context, name string, partitioner kgo.Partitioner) {
	client := r.client(kgo.ConsumeTopics(r.topics.Requests(name)), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RecordPartitioner(partitioner))
	r.agents.Go(func() {
		defer client.Close()
		r.service.Agent(ctx, client, r.Errorf)
	})
}

func (r *run) client(opts ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(r.kafka.addresses()...), kgo.ProducerLinger(0), kgo.RecordDeliveryTimeout(10 * time.Second), kgo.MetadataMinAge(50 * time.Millisecond),
	}, opts...)...)
	if err != nil {
		r.Fatal(err)
	}
	return client
}

// submit begins to submit orders: most as records, some through HTTP.
func (r *run) submit(ctx context.Context) {
	client := r.client(kgo.RequiredAcks(kgo.AllISRAcks()))
	const workers = 8
	r.load = world.Submitting(ctx, workers, time.Duration(float64(time.Second)/r.rate), func(ctx context.Context, n int64) error {
		return r.submitOnce(ctx, client, n)
	})
	r.agents.Go(func() {
		<-r.load.Ended()
		client.Close()
	})
}

func (r *run) submitOnce(ctx context.Context, client *kgo.Client, n int64) error {
	flow, input, replyTo := fmt.Sprintf("chaos-%d", n%int64(len(r.flows))), fmt.Sprintf(`{"n":%d}`, n), r.replyTo(n)
	if n%7 == 0 {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		_, err := r.instances[n/7%int64(len(r.instances))].client.Submit(ctx, &api.Submission{ID: world.OrderID(n), Workflow: flow, Input: json.RawMessage(input), ReplyTo: replyTo})
		return err
	}
	order := kgo.Record{
		Topic: r.topics.Orders, Key: []byte(world.OrderID(n)), Value: fmt.Appendf(nil, `{"workflow":%q,"input":%s,"replyTo":%q}`, flow, input, replyTo),
	}
	if garbled(n) {
		order.Value = bytes.TrimSuffix(order.Value, []byte("}"))
	}
	err := client.ProduceSync(ctx, &order).FirstErr()
	paid := kgo.Record{Topic: r.topics.Signals, Key: []byte(world.OrderID(n)), Value: []byte(`{"signal":"paid","id":"p-1","data":1}`)}
	switch n % int64(len(r.flows)) {
	case hearing:
	case keyed:
		paid.Value = fmt.Appendf(nil, `{"signal":"told","key":"k-%d","id":"p-1","data":1}`, n)
	default:
		return err
	}
	if err != nil {
		return err
	}
	twice := paid
	return client.ProduceSync(ctx, []*kgo.Record{&paid, &twice}[:n%3]...).FirstErr() // or once, or never
}

// operate interferes with some orders until ctx ends.
func (r *run) operate(ctx, all context.Context) {
	by := rand.New(rand.NewPCG(r.seed, 1000))
	for again := time.NewTicker(150 * time.Millisecond); ; {
		select {
		case <-again.C:
			r.interfere(all, by)
		case <-ctx.Done():
			again.Stop()
			return
		}
	}
}

func (r *run) interfere(ctx context.Context, by *rand.Rand) {
	n := r.load.Through()
	if n == 0 {
		return
	}
	short, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	client := r.instances[by.IntN(len(r.instances))].client
	if m := n - n%flowCount + keyed - flowCount*(1+by.Int64N(3)); m > 0 && by.IntN(4) == 0 { // one of which there are two versions
		r.office.Send(ctx, world.OrderID(m), fmt.Sprintf(`"command":"migrate","toVersion":%d`, 1+by.IntN(2)))
		return
	}
	id := world.OrderID(1 + max(0, n-1-by.Int64N(200)))
	if by.IntN(3) == 0 { // one of those that wait for an operator
		if page, err := client.Orders(short, api.Filter{State: "Error"}, 20, ""); err == nil && len(page.Orders) > 0 {
			id = page.Orders[by.IntN(len(page.Orders))].OrderID
		}
	}
	r.office.Interfere(ctx, by, client, id)
}
