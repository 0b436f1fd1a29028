package integration

import (
	"fmt"
	"slices"
	"testing"

	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
)

// P3: a command that was sent right behind the submission of its order is for
// that order, also where both wait for an owner, whichever topic is read first.
func TestACommandRightBehindItsSubmission(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		i := w.Run("i-1", t.TempDir())
		w.Register(i, "workflow: manual\nsteps: [{name: only, agent: nobody, timeout: 1h}]")
		send := func(from, to int) {
			for k := from; k < to; k++ {
				w.Submit(fmt.Sprint("o-", k), `{"workflow":"manual"}`)
				w.Command(fmt.Sprint("o-", k), `{"command":"pause"}`)
			}
		}
		send(0, 100)
		i.Stop()
		// Commands of nobody stand before those that wait.
		w.Command("nobody-1", `{"command":"pause"}`)
		w.Command("nobody-2", `{"command":"pause"}`)
		send(100, 400)
		i = w.Run("i-1", i.Dir)
		for k := range 400 {
			w.order(i, fmt.Sprint("o-", k), func(o *projections.Order) bool { return o.Paused })
		}
		var put []string
		for _, r := range w.read(w.Topics.DeadLetters) {
			put = append(put, string(r.Key))
		}
		slices.Sort(put)
		if !slices.Equal(put, []string{"nobody-1", "nobody-2"}) {
			t.Errorf("put aside: %q", put)
		}
	})
}
