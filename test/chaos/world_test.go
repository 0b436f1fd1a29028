//go:build unix

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/internal/api"
)

// The workflows have what workflows can have: undo, waits, steps side by side,
// conditions, expressions, and each way to end when nothing is left to try.
var flows = []string{`
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
  - {name: right, agent: gamma, do: right, undo: un-right, after: [book], timeout: 2s, retry: {attempts: 3, backoff: 50ms}, exhausted: compensate}
  - {name: join, agent: beta, do: join, after: [left, right], timeout: 2s, retry: {attempts: 3, backoff: 50ms}}
`, `
workflow: chaos-2
steps:
  - {name: one, agent: gamma, do: one, undo: un-one, timeout: 1s, retry: {attempts: 2, backoff: 20ms}, exhausted: error}
  - {name: two, agent: alpha, do: two, undo: un-two, timeout: 1s, when: "input.n % 3 != 0", with: "{'n': input.n, 'twice': input.n * 2}", retry: {attempts: 2, backoff: 20ms}, exhausted: compensate}
  - {name: three, agent: beta, do: three, timeout: 1s, retry: {attempts: 1, backoff: 20ms}, exhausted: compensate}
`, `
workflow: chaos-3
steps:
  - {name: quick, agent: alpha, do: quick, undo: un-quick, timeout: 30s, exhausted: compensate}
  - {name: patient, agent: gamma, do: patient, undo: un-patient, timeout: 10s, retry: {attempts: 2, backoff: 500ms}, exhausted: compensate}
`}

// service is what stands behind all agents: it notes what it did under which
// key. What it does, and whether anybody hears of it, follows from the seed, the
// key and the attempt; once it is well, all is done.
type service struct {
	seed uint64

	mu    sync.Mutex
	well  bool
	keys  map[string]map[string]int  // of an order: idempotency key, and how many calls had it
	deeds map[string]map[string]bool // of an order: what was done or undone
	calls int
}

type request struct {
	Order          string    `json:"order"`
	Step           string    `json:"step"`
	Attempt        int       `json:"attempt"`
	IdempotencyKey string    `json:"idempotencyKey"`
	CompleteBy     time.Time `json:"completeBy"`
	Undo           bool      `json:"undo"`
	ReplyTo        string    `json:"replyTo"`
}

type outcome struct {
	answers   int // how many replies
	slow      bool
	code      string // of the failure, if it is one
	permanent bool
}

func (s *service) call(r *request) outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	effect := func() {
		if s.keys[r.Order] == nil {
			s.keys[r.Order], s.deeds[r.Order] = make(map[string]int), make(map[string]bool)
		}
		s.keys[r.Order][r.IdempotencyKey]++
		s.deeds[r.Order][deed(r.Step, r.Undo)] = true
	}
	h := fnv.New64a()
	fmt.Fprint(h, s.seed, r.IdempotencyKey, r.Attempt)
	chance := h.Sum64() >> 8 % 100
	switch {
	case s.well || chance < 72:
		effect()
		return outcome{answers: 1}
	case chance < 76:
		effect()
		return outcome{answers: 2}
	case chance < 82:
		effect()
		return outcome{answers: 1, slow: true}
	case chance < 91:
		return outcome{answers: 1, code: "busy"}
	case chance < 94:
		return outcome{answers: 1, code: "refused", permanent: true}
	case chance < 97:
		effect() // and nobody hears of it
	}
	return outcome{}
}

func deed(step string, undo bool) string {
	if undo {
		return "undo " + step
	}
	return "do " + step
}

// slowly is how long a slow agent takes: almost all the time that it has, unless
// a wrong clock gave it far too much.
func slowly(completeBy time.Time) time.Duration {
	return min(time.Until(completeBy)*9/10, 30*time.Second)
}

// sdkAgent serves a queue as programs do that use the SDK.
func (r *run) sdkAgent(ctx context.Context, name string, operations ...string) {
	ops := make(agents.Operations)
	for _, o := range operations {
		ops[o] = agents.Do(func(ctx context.Context, q agents.Request[json.RawMessage]) (json.RawMessage, error) {
			out := r.service.call(&request{Order: q.Order, Step: q.Step, Attempt: q.Attempt, IdempotencyKey: q.IdempotencyKey, Undo: q.Undo})
			wait := time.Duration(0)
			switch {
			case out.answers == 0:
				<-ctx.Done()
				return nil, ctx.Err()
			case out.slow:
				wait = slowly(q.CompleteBy)
			}
			hold(ctx, wait)
			switch {
			case out.permanent:
				return nil, agents.Permanent(out.code, errors.New("it is refused"))
			case out.code != "":
				return nil, agents.Transient(out.code, errors.New("try again"))
			}
			return json.RawMessage(`{"receipt":7}`), nil
		})
	}
	r.agents.Go(func() {
		if err := agents.Serve(ctx, agents.Config{
			Agent: name, Brokers: r.kafka.addresses(), Namespace: r.topics.Namespace, Concurrency: 256,
			StopTimeout: time.Second, Logger: slog.New(slog.DiscardHandler),
		}, ops); err != nil {
			r.Errorf("agent %s: %v", name, err)
		}
	})
}

// plainAgent serves a queue with no more than a Kafka client. It may send its
// replies to any partition.
func (r *run) plainAgent(ctx context.Context, name string, partitioner kgo.Partitioner) {
	client := r.client(kgo.ConsumeTopics(r.topics.Requests(name)), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RecordPartitioner(partitioner))
	send := func(q *request, out outcome) {
		undo, status := "", `"status":"completed","output":{"receipt":7}`
		if q.Undo {
			undo = `"undo":true,`
		}
		if out.code != "" {
			status = fmt.Sprintf(`"status":"failed","error":{"code":%q,"permanent":%t}`, out.code, out.permanent)
		}
		for range out.answers {
			if time.Now().Before(q.CompleteBy) {
				client.Produce(ctx, &kgo.Record{
					Topic: q.ReplyTo, Key: []byte(q.Order),
					Value: fmt.Appendf(nil, `{"order":%q,"step":%q,"attempt":%d,%s%s}`, q.Order, q.Step, q.Attempt, undo, status),
				}, nil) // what is lost is asked for again
			}
		}
	}
	r.agents.Go(func() {
		defer client.Close()
		var waiting sync.WaitGroup
		defer waiting.Wait()
		for ctx.Err() == nil {
			client.PollFetches(ctx).EachRecord(func(record *kgo.Record) {
				var q request
				if err := json.Unmarshal(record.Value, &q); err != nil {
					r.Errorf("request %s: %v", record.Value, err)
					return
				}
				if !time.Now().Before(q.CompleteBy) {
					return
				}
				out := r.service.call(&q)
				if !out.slow {
					send(&q, out)
					return
				}
				waiting.Go(func() {
					hold(ctx, slowly(q.CompleteBy))
					send(&q, out)
				})
			})
		}
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

// load submits orders, whatever becomes of Kafka and the instances: most as
// records, some through HTTP. Each is attempted until it is acknowledged, since
// nobody knows whether an attempt that failed has submitted it.
type load struct {
	acked atomic.Int64 // ids 1 to this, but for some of the last few
	next  atomic.Int64
	again atomic.Int64
	done  sync.WaitGroup
}

const loadWorkers = 8

func orderID(n int64) string { return fmt.Sprintf("o-%06d", n) }

// submit submits orders until ceasing ends.
func (r *run) submit(ctx, ceasing context.Context) {
	client := r.client(kgo.RequiredAcks(kgo.AllISRAcks()))
	for range loadWorkers {
		r.load.done.Go(func() {
			pace := time.NewTicker(time.Duration(float64(loadWorkers) * float64(time.Second) / r.rate))
			defer pace.Stop()
			for ceasing.Err() == nil {
				n := r.load.next.Add(1)
				for r.submitOnce(ctx, client, n) != nil {
					r.load.again.Add(1)
					if hold(ctx, 20*time.Millisecond); ctx.Err() != nil {
						return
					}
				}
				r.load.acked.Add(1)
				select {
				case <-pace.C:
				case <-ceasing.Done():
				}
			}
		})
	}
	r.agents.Go(func() {
		r.load.done.Wait()
		client.Close()
	})
}

func (r *run) submitOnce(ctx context.Context, client *kgo.Client, n int64) error {
	flow, input := fmt.Sprintf("chaos-%d", n%int64(len(flows))), fmt.Sprintf(`{"n":%d}`, n)
	if n%5 == 0 {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		_, err := r.instances[rand.IntN(len(r.instances))].client.Submit(ctx, &api.Submission{ID: orderID(n), Workflow: flow, Input: json.RawMessage(input)})
		return err
	}
	return client.ProduceSync(ctx, &kgo.Record{
		Topic: r.topics.Orders, Key: []byte(orderID(n)), Value: fmt.Appendf(nil, `{"workflow":%q,"input":%s}`, flow, input),
	}).FirstErr()
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
	n := r.load.acked.Load()
	if n == 0 {
		return
	}
	short, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	client := r.instances[by.IntN(len(r.instances))].client
	id := orderID(1 + max(0, n-1-by.Int64N(200)))
	if by.IntN(3) == 0 { // one of those that wait for an operator
		if page, err := client.Orders(short, api.Filter{State: "Error"}, 20, ""); err == nil && len(page.Orders) > 0 {
			id = page.Orders[by.IntN(len(page.Orders))].OrderID
		}
	}
	r.office.Interfere(ctx, by, client, id)
}
