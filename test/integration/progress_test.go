package integration

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
	kit "github.com/waybill-dev/waybill/test/world"
)

// S2, V2, V6: an agent that says that it is still at it has more time than its timeout, whoever owns the
// partition meanwhile, and its attempt is the first and only one.
func TestAnAgentThatIsStillAtItHasMoreTime(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		i := w.Run("i-1", t.TempDir())
		w.Register(i, `
workflow: render
steps:
  - {name: film, agent: studio, timeout: {after: 10s, max: 1h}, retry: {attempts: 1}}
`)
		agent := w.Hand("studio")
		w.Submit("o-1", `{"workflow":"render"}`)
		r := agent.Asked("o-1", "film")
		labours := func(longer time.Duration) {
			w.order(i, "o-1", func(o *projections.Order) bool {
				agent.Answer(r, kit.StillAtIt)
				return o.Step("film").Extended >= longer
			})
		}
		const after = 10 * time.Second
		labours(after)                                       // it would have expired by now, and would when it is taken over
		over, talks := make(chan struct{}), sync.WaitGroup{} // it says so meanwhile, too, however long nobody hears it
		talks.Go(func() {
			for {
				select {
				case <-over:
					return
				case <-time.After(after / 10):
					agent.Answer(r, kit.StillAtIt)
				}
			}
		})
		i.Stop()
		i = w.Run("i-2", t.TempDir())
		labours(after + after/4)
		close(over)
		talks.Wait()
		agent.Answer(r, done)
		o := w.order(i, "o-1", in(projections.Processed))
		if s := o.Step("film"); s.Attempt != 1 || s.FailureCount != 0 {
			t.Errorf("the step is %+v", s)
		}
		agent.Idle("o-1")
	})
}

// A4: who has the token of an attempt answers it, from wherever; what is answered after it expired changes
// nothing, and the next attempt has a token of its own.
func TestAnAnswerComesLater(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		i := w.Run("i-1", t.TempDir())
		w.Register(i, `
workflow: approve
steps:
  - {name: ask, agent: desk, timeout: {after: 1h, max: 2h}, retry: {attempts: 1}}
  - {name: nag, agent: desk, timeout: 1s, retry: {attempts: 1000, backoff: 0s}}
`)
		tokens := make(chan agents.Token, 1000)
		w.serve("desk", func(ctx context.Context, _ agents.Request[any]) (any, error) {
			token, err := agents.TokenOf(ctx)
			if err != nil {
				return nil, err
			}
			tokens <- token
			return nil, agents.ErrLater
		}, "ask", "nag")
		answers, err := agents.NewAnswerer(b.Brokers)
		if err != nil {
			t.Fatal(err)
		}
		defer answers.Close()

		w.Submit("o-1", `{"workflow":"approve"}`)
		if err := answers.Complete(t.Context(), <-tokens, "approved"); err != nil {
			t.Fatal(err)
		}
		w.until("an attempt that expires unanswered", func() error {
			if !strings.Contains(w.types("o-1"), "step.expired") {
				return errors.New("not yet")
			}
			return nil
		})
		if err := answers.Complete(t.Context(), <-tokens, "too late"); !errors.Is(err, agents.ErrOver) {
			t.Errorf("the answer to an attempt that is over: %v", err)
		}
		w.until("an answer in time", func() error {
			select {
			case token := <-tokens:
				if err := answers.Complete(t.Context(), token, "nagged"); err != nil && !errors.Is(err, agents.ErrOver) {
					return err
				}
			default:
			}
			if !strings.HasSuffix(w.types("o-1"), "order.completed") {
				return errors.New("not yet")
			}
			return nil
		})
		if o := w.order(i, "o-1", in(projections.Processed)); string(o.Step("ask").Output) != `"approved"` || string(o.Output()) != `"nagged"` {
			t.Errorf("its outputs are %s and %s", o.Step("ask").Output, o.Output())
		}
	})
}
