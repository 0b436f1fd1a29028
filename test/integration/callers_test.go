package integration

import (
	"fmt"
	"testing"

	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
	kit "github.com/waybill-dev/waybill/test/world"
)

// P1: status messages go to the topic that the caller named, each transition at least
// once, for the first time in order, and the same each time; also when the order is compensated, cancelled or
// resubmitted, and when its partition changes hands meanwhile.
func TestCallersHearEverything(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		wire := &cable{}
		one := w.Run("i-1", t.TempDir(), through(wire), briefly)
		t.Cleanup(wire.plug)
		two := w.Run("i-2", t.TempDir(), briefly)
		w.Register(one, undoable)
		w.Register(one, "workflow: stubborn\nsteps: [{name: only, agent: any, timeout: 1h}]")
		w.Answering("any", func(r kit.Request) string {
			switch {
			case r.Step == "ship", r.Step == "only" && r.Attempt == 1:
				return refused
			case r.Step == "reserve" && r.Order[0] == 'x':
				return silence
			}
			return done
		})
		shop, mall := w.Caller("shop"), w.Caller("mall")
		to := func(caller *kit.Inbox, flow string) string {
			return `{"workflow":"` + flow + `","replyTo":"` + caller.Topic + `"}`
		}
		const n = 40
		for k := range n {
			w.Submit(fmt.Sprintf("u-%d", k), to(shop, "undoable"))
			w.Submit(fmt.Sprintf("s-%d", k), to(mall, "stubborn"))
			w.Submit(fmt.Sprintf("x-%d", k), to(mall, "undoable"))
			w.Submit(fmt.Sprintf("r-%d", k), to(shop, "no-such"))
			if k == n/2 {
				w.share(one, two)
				wire.pull()
			}
		}
		w.owns(two)
		for k := range n {
			w.order(two, fmt.Sprintf("s-%d", k), in(projections.Error))
			w.Command(fmt.Sprintf("s-%d", k), `{"command":"resubmit"}`)
			w.Command(fmt.Sprintf("x-%d", k), `{"command":"cancel"}`)
		}
		wire.plug()        // the dead comes back
		for k := range n { // a reply may be read before a command that was sent before it
			w.order(two, fmt.Sprintf("x-%d", k), in(projections.Compensating))
			w.Produce((&kit.Request{Order: fmt.Sprintf("x-%d", k), Step: "reserve", Attempt: 1, ReplyTo: w.Topics.Replies}).Reply(refused))
		}
		for k := range n {
			shop.Hears(fmt.Sprintf("u-%d", k), "received", "compensating", "compensated")
			mall.Hears(fmt.Sprintf("s-%d", k), "received", "failed", "completed")
			mall.Hears(fmt.Sprintf("x-%d", k), "received", "compensating", "cancelled")
			shop.Hears(fmt.Sprintf("r-%d", k), "rejected")
		}
		for _, caller := range []*kit.Inbox{shop, mall} {
			caller.ToTheEnd()
			if left := caller.String(); left != "" {
				t.Errorf("the caller heard more: %s", left)
			}
		}
	})
}
