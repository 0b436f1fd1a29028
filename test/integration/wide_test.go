package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/leftout"
)

// S6: a workflow whose steps all begin at once, each with a request as large as they may
// be and of what cannot be compressed, is asked for and completes. An order of the same
// partition that has nothing to do with it completes before any of it is answered, and no
// transaction has more than a part of it.
func TestWideOrdersWithLargeInputs(t *testing.T) {
	t.Parallel()
	b := kafka.Own(t)
	for _, c := range []struct{ steps, size int }{{150, 900_000}, {1_000, 100_000}, {1_000, 900_000}} {
		steps, size := c.steps, c.size
		t.Run(fmt.Sprintf("%d of %d", steps, size), func(t *testing.T) {
			if steps*size > 150_000_000 && os.Getenv("WAYBILL_WIDE") != "all" {
				t.Skip(leftout.Prefix + "a thousand steps that are all as large as may be, because they take minutes; have them with WAYBILL_WIDE=all")
			}
			w := newWorld(t, b)
			i := w.Run("i-1", t.TempDir())
			w.Register(i, near)
			var wide strings.Builder
			wide.WriteString("workflow: wide\nsteps:\n")
			for n := range steps {
				fmt.Fprintf(&wide, "  - {name: s%d, agent: warehouse, do: pick, after: [], timeout: 1h, retry: {attempts: 1}}\n", n)
			}
			w.Register(i, wide.String())
			w.serve("at-hand", func(context.Context, agents.Request[any]) (any, error) { return "done", nil }, "it")
			asked, answer := make(chan struct{}), make(chan struct{})
			ask := sync.OnceFunc(func() { close(asked) })
			w.serve("warehouse", func(ctx context.Context, _ agents.Request[any]) (any, error) {
				ask()
				select {
				case <-answer:
				case <-ctx.Done():
				}
				return "picked", ctx.Err()
			}, "pick")

			began := time.Now()
			w.Submit("wide", `{"workflow":"wide","input":`+incompressible(size)+`}`)
			<-asked
			first := time.Since(began)
			const others = 20
			for n, submitted := 0, 0; submitted < others; n++ {
				if id := fmt.Sprint("near-", n); i.Partition(id) == i.Partition("wide") {
					w.Submit(id, `{"workflow":"near"}`)
					w.order(i, id, in(projections.Processed))
					submitted++
				}
			}
			beside := time.Since(began) - first
			close(answer)
			w.order(i, "wide", in(projections.Processed))
			t.Logf("%d steps of %d: the first was asked for after %s, %d orders beside took %s, and it completed after %s", steps, size,
				first.Round(time.Millisecond), others, beside.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
			begun := 0 // in a transaction
			for r := range w.every(w.Topics.Journal) {
				if string(r.Key) == "wide" && events.Header(r, events.HeaderType) == string(events.StepStarted) {
					begun++
				}
				if begun*size > 32<<20 {
					t.Fatalf("a transaction begins %d steps, and more", begun)
				}
				if events.HeaderValue(r, events.HeaderLane) != nil && r.Partition == i.Partition("wide") {
					begun = 0
				}
			}
		})
	}
}

// incompressible is a JSON string of so many bytes, of what no codec makes much less.
func incompressible(size int) string {
	by := rand.NewChaCha8([32]byte{1})
	text := make([]byte, size-2)
	for n := range text {
		text[n] = '#' + byte(by.Uint64()%('['-'#'))
	}
	return `"` + string(text) + `"`
}
