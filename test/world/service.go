// Package world is what stands around a Waybill in tests: workflows that are drawn
// by lot ([Drawing]) or never heal ([Sure]), orders that come whatever happens
// ([Load]), applications, operators and agents by hand ([Outsider], [Hand]),
// services behind the agents that fail by lot and note what they did ([Service]),
// and what a program says ([Log]). It knows no orchestrator, whose own tests use it
// too.
package world

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/test/oracle"
)

// Service is what stands behind all agents: it notes what it did under which
// key. What it does, and whether anybody hears of it, follows from the seed, the
// key and the attempt; once it is well, all is done.
type Service struct {
	seed uint64

	mu    sync.Mutex
	well  bool
	calls int
	keys  map[string]map[string]bool // of an order: the idempotency keys under which something was done
	deeds map[string]map[string]bool // of an order: what was done or undone
}

// NewService returns one that is drawn by a seed.
func NewService(seed uint64) *Service {
	return &Service{seed: seed, keys: make(map[string]map[string]bool), deeds: make(map[string]map[string]bool)}
}

// Recover makes it well.
func (s *Service) Recover() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.well = true
}

// Calls is how often it was called.
func (s *Service) Calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// sure begins the names of steps on which the service may fail, but is never
// silent.
const sure = "sure-"

// Sure is a workflow without retries, whose attempts have an hour, with a step of
// each agent: nothing repairs what is lost of its orders, so they do not end, and
// are found.
func Sure(name string, agents ...string) string {
	var text strings.Builder
	text.WriteString("workflow: " + name + "\nsteps:\n")
	for n, agent := range agents {
		step, exhausted := fmt.Sprint(sure, n), []string{"error", "compensate"}[n%2]
		fmt.Fprintf(&text, "  - {name: %[1]s, agent: %[2]s, do: %[1]s, undo: un-%[1]s, timeout: 1h, retry: {attempts: 1}, exhausted: %[3]s}\n", step, agent, exhausted)
	}
	return text.String()
}

// outcome is what comes of a call.
type outcome struct {
	answers   int // how many replies
	slow      bool
	code      string // of the failure, if it is one
	permanent bool
}

func (s *Service) call(r *events.Request) outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	effect := func() {
		if s.keys[r.Order] == nil {
			s.keys[r.Order], s.deeds[r.Order] = make(map[string]bool), make(map[string]bool)
		}
		s.keys[r.Order][r.IdempotencyKey] = true
		s.deeds[r.Order][deed(r.Step, r.Undo)] = true
	}
	h := fnv.New64a()
	fmt.Fprint(h, s.seed, r.IdempotencyKey, r.Attempt)
	chance := h.Sum64() >> 8 % 100
	answered := strings.HasPrefix(r.Step, sure)
	switch {
	case s.well || chance < 70:
		effect()
		return outcome{answers: 1}
	case chance < 75:
		effect()
		return outcome{answers: 2}
	case chance < 80 && !answered: // which has an hour
		effect()
		return outcome{answers: 1, slow: true}
	case chance < 90:
		return outcome{answers: 1, code: "busy"}
	case chance < 93 || answered:
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

// patience is that of whoever waits for something to come.
const patience = oracle.Patience

// pause waits, but not longer than ctx.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// Operations are those of an agent of the SDK.
func (s *Service) Operations(names ...string) agents.Operations {
	ops := make(agents.Operations)
	for _, name := range names {
		ops[name] = agents.Do(func(ctx context.Context, q agents.Request[json.RawMessage]) (json.RawMessage, error) {
			out := s.call(&events.Request{Order: q.Order, Step: q.Step, Attempt: q.Attempt, IdempotencyKey: q.IdempotencyKey, Undo: q.Undo})
			switch {
			case out.answers == 0:
				<-ctx.Done()
				return nil, ctx.Err()
			case out.slow:
				pause(ctx, slowly(q.CompleteBy))
				if err := agents.Extend(ctx); err != nil && !errors.Is(err, agents.ErrNotExtendable) && ctx.Err() == nil {
					return nil, err
				}
			}
			switch {
			case out.permanent:
				return nil, agents.Permanent(out.code, errors.New("it is refused"))
			case out.code != "":
				return nil, agents.Transient(out.code, errors.New("try again"))
			}
			return output(name, q.IdempotencyKey, q.Input), nil
		})
	}
	return ops
}

// output is that of what was done: each key's is another. What lists has two pages.
func output(operation, key string, input []byte) json.RawMessage {
	switch {
	case operation != "list":
		return fmt.Appendf(nil, `{"receipt":%q}`, key)
	case bytes.Contains(input, []byte(`"cursor"`)):
		return json.RawMessage(`{"items":[{"n":3}]}`)
	}
	return json.RawMessage(`{"items":[{"n":1},{"n":2}],"cursor":"second"}`)
}

// Agent serves a queue until ctx ends, with no more than a Kafka client, which
// may send its replies to any partition: it consumes the queue's topic.
func (s *Service) Agent(ctx context.Context, client *kgo.Client, report func(format string, args ...any)) {
	var waiting sync.WaitGroup
	defer waiting.Wait()
	for ctx.Err() == nil {
		client.PollFetches(ctx).EachRecord(func(record *kgo.Record) {
			q, err := events.Decode[events.Request](record.Value)
			if err != nil {
				report("request %s: %v", record.Value, err)
				return
			}
			if !time.Now().Before(q.CompleteBy) { // A4
				return
			}
			out := s.call(&q)
			if !out.slow {
				answer(ctx, client, &q, out)
				return
			}
			waiting.Go(func() {
				pause(ctx, slowly(q.CompleteBy))
				if !q.ExtendTo.IsZero() {
					still := events.Reply{Order: q.Order, Step: q.Step, Attempt: q.Attempt, Undo: q.Undo, Token: q.Token, Status: events.ReplyProgress}
					client.Produce(ctx, &kgo.Record{Topic: q.ReplyTo, Key: []byte(q.Order), Value: still.Append(nil)}, nil)
				}
				answer(ctx, client, &q, out)
			})
		})
	}
}

// answer sends the replies. What Kafka does not take is sent again.
func answer(ctx context.Context, client *kgo.Client, q *events.Request, out outcome) {
	reply := events.Reply{Order: q.Order, Step: q.Step, Attempt: q.Attempt, Undo: q.Undo, Token: q.Token, Status: events.ReplyCompleted, Output: []byte(output(q.Operation, q.IdempotencyKey, q.Input))}
	if out.code != "" {
		reply.Status, reply.Output, reply.Error = events.ReplyFailed, nil, &events.Error{Code: out.code, Permanent: out.permanent}
	}
	value := reply.Append(nil)
	var send func(error)
	send = func(error) {
		if time.Now().Before(q.CompleteBy) && ctx.Err() == nil {
			client.Produce(ctx, &kgo.Record{Topic: q.ReplyTo, Key: []byte(q.Order), Value: value}, func(_ *kgo.Record, err error) {
				if err != nil {
					go send(err) // a callback may not wait for room
				}
			})
		}
	}
	for range out.answers {
		send(nil)
	}
}
