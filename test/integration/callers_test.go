package integration

import (
	"fmt"
	"testing"

	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
)

// P1: status messages go to the topic that the caller named, in order, each
// transition once, none lost; also when the order is compensated, cancelled or
// resubmitted, and when its partition changes hands meanwhile.
func TestCallersHearEverythingOnce(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		wire := &cable{}
		one := w.start("i-1", t.TempDir(), through(wire), briefly)
		t.Cleanup(wire.plug)
		two := w.start("i-2", t.TempDir(), briefly)
		w.register(one, undoable)
		w.register(one, "workflow: stubborn\nsteps: [{name: only, agent: any, timeout: 1h}]")
		w.answering("any", func(r request) string {
			switch {
			case r.Step == "ship", r.Step == "only" && r.Attempt == 1:
				return refused
			case r.Step == "reserve" && r.Order[0] == 'x':
				return silence
			}
			return done
		})
		shop, mall := w.caller("shop"), w.caller("mall")
		to := func(caller *inbox, flow string) string {
			return `{"workflow":"` + flow + `","replyTo":"` + caller.topic + `"}`
		}
		const n = 40
		for k := range n {
			w.submit(fmt.Sprintf("u-%d", k), to(shop, "undoable"))
			w.submit(fmt.Sprintf("s-%d", k), to(mall, "stubborn"))
			w.submit(fmt.Sprintf("x-%d", k), to(mall, "undoable"))
			w.submit(fmt.Sprintf("r-%d", k), to(shop, "no-such"))
			if k == n/2 {
				w.share(one, two)
				wire.pull()
			}
		}
		w.owns(two)
		for k := range n {
			w.order(two, fmt.Sprintf("s-%d", k), in(projections.Error))
			w.command(fmt.Sprintf("s-%d", k), `{"command":"resubmit"}`)
			w.command(fmt.Sprintf("x-%d", k), `{"command":"cancel"}`)
		}
		wire.plug()        // the dead comes back
		for k := range n { // a reply may be read before a command that was sent before it
			w.order(two, fmt.Sprintf("x-%d", k), in(projections.Compensating))
			w.produce((&request{Order: fmt.Sprintf("x-%d", k), Step: "reserve", Attempt: 1, ReplyTo: w.topics.Replies}).reply(refused))
		}
		for k := range n {
			shop.hears(fmt.Sprintf("u-%d", k), "received", "compensating", "compensated")
			mall.hears(fmt.Sprintf("s-%d", k), "received", "failed", "completed")
			mall.hears(fmt.Sprintf("x-%d", k), "received", "compensating", "cancelled")
			shop.hears(fmt.Sprintf("r-%d", k), "rejected")
		}
		for _, caller := range []*inbox{shop, mall} {
			caller.toTheEnd()
			if left := caller.String(); left != "" {
				t.Errorf("the caller heard more: %s", left)
			}
		}
	})
}
