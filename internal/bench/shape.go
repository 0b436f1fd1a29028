package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"strings"
	"sync/atomic"

	"github.com/waybill-dev/waybill/agents"
)

// Shape is what the orders are like.
type Shape struct {
	// Steps of an order, one after the other unless they are Parallel; 3 if 0. Three
	// agents take turns.
	Steps    int  `json:"steps"`
	Parallel bool `json:"parallel"`
	// Payload is how long an order's input is, in bytes, which every step gets: hex
	// digits without order, which compress to about half. 0 is some 30 bytes that all
	// orders share.
	Payload int `json:"payload_bytes"`
	// Compensate is how many orders of a hundred have a last step that fails for good,
	// and are undone.
	Compensate float64 `json:"compensate_percent"`
	// Retries is how many steps of a hundred fail once, and are asked for again 100 ms
	// later.
	Retries float64 `json:"retries_percent"`
}

// tasks are the agents', and what they do.
var tasks = [...][2]string{{"inventory", "reserve"}, {"payment", "charge"}, {"shipping", "ship"}}

// workflow is the file of orders like that.
func (s *Shape) workflow(timeout string) string {
	var b strings.Builder
	b.WriteString("workflow: bench\nversion: 1\nsteps:\n")
	for n := range s.Steps {
		task := tasks[n%len(tasks)]
		fmt.Fprintf(&b, "  - {name: %s, agent: %s, do: %s, timeout: %s", s.step(n), task[0], task[1], timeout)
		if s.Parallel {
			b.WriteString(", after: []")
		}
		if s.Compensate > 0 {
			b.WriteString(", undo: undo, exhausted: compensate")
		}
		if s.Retries > 0 {
			b.WriteString(", retry: {backoff: 100ms}")
		}
		b.WriteString("}\n")
	}
	return b.String()
}

// Describe says in a few words what the orders are like.
func (s *Shape) Describe() string {
	said := []string{fmt.Sprintf("%d steps", s.Steps)}
	if s.Parallel {
		said[0] += " at the same time"
	}
	for _, more := range []struct {
		n    float64
		text string
	}{{float64(s.Payload), "%g bytes of input"}, {s.Compensate, "%g%% compensated"}, {s.Retries, "%g%% of the steps retried"}} {
		if more.n > 0 {
			said = append(said, fmt.Sprintf(more.text, more.n))
		}
	}
	return strings.Join(said, ", ")
}

// step is the name of the nth step.
func (s *Shape) step(n int) string {
	name := tasks[n%len(tasks)][1]
	if round := n / len(tasks); round > 0 {
		name += fmt.Sprintf("-%d", round+1)
	}
	return name
}

// input is that of the nth order.
func (s *Shape) input(n int64) string {
	input := `{"customer":"c-1","total":42`
	if share(n, s.Compensate) {
		input += `,"declined":true`
	}
	const around = len(`,"note":""}`)
	if length := s.Payload - len(input) - around; length > 0 {
		digits := rand.New(rand.NewPCG(uint64(n), 0))
		var note strings.Builder
		for note.Len() < length {
			fmt.Fprintf(&note, "%016x", digits.Uint64())
		}
		input += `,"note":"` + note.String()[:length] + `"`
	}
	return input + "}"
}

// share says of how many of a hundred something is true, evenly spread.
func share(n int64, percent float64) bool {
	return math.Floor(float64(n+1)*percent/100) > math.Floor(float64(n)*percent/100)
}

// failsOnce says whether a step's first attempt fails, whoever asks how often.
func (s *Shape) failsOnce(key string) bool {
	h := fnv.New64a()
	h.Write([]byte(key))
	return rand.New(rand.NewPCG(h.Sum64(), 0)).Float64()*100 < s.Retries
}

type order struct {
	Customer string `json:"customer"`
	Total    int    `json:"total"`
	Declined bool   `json:"declined"`
	Note     string `json:"note"`
}

type receipt struct {
	Reference string `json:"reference"`
}

// work stands for a remote call: it only has an answer, and counts.
func (s *Shape) work(asked *atomic.Int64) func(context.Context, agents.Request[order]) (receipt, error) {
	last := s.step(s.Steps - 1)
	return func(_ context.Context, r agents.Request[order]) (receipt, error) {
		asked.Add(1)
		switch {
		case r.Undo:
		case r.Attempt == 1 && s.failsOnce(r.IdempotencyKey):
			return receipt{}, agents.Transient("busy", errors.New("every few steps fail once"))
		case r.Input.Declined && r.Step == last:
			return receipt{}, agents.Permanent("declined", errors.New("every few orders end so"))
		}
		return receipt{Reference: r.IdempotencyKey}, nil
	}
}

// openLimit is how many orders may be open, lest a rung that is not carried fills
// the memory: with their inputs that is a quarter of a GiB.
func (s *Shape) openLimit() int {
	return min(1<<16, 256<<20/cmp.Or(s.Payload, 1))
}
