package decide

import (
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/events"
)

// T1, S4: a record of an input is read as what its topic and its type say, for the order that its key names, in that order's
// partition: of one that strays only where to, and of one that says two things what.
func TestWhatIsReadIsOfItsTopicAndKey(t *testing.T) {
	topics, err := events.NewTopics(events.DefaultNamespace)
	must(t, err)
	const order = "o-1"
	home, limit := events.CorrelationID("payment", "ref-7"), events.LimitID("bank")
	want := &events.Want{Correlation: home, Want: events.WantAwait, Signal: "payment", Key: "ref-7", Order: order, Step: "paid", Wait: 2}
	pass := &events.Pass{Order: order, Step: "paid", Wait: 2, Correlation: home, Signal: "payment", Key: "ref-7", SignalID: "pay-1"}
	bid := &events.Bid{Home: limit, Bid: events.BidAsk, Order: order, Step: "pay", Wait: 2}
	grant := &events.Grant{Order: order, Step: "pay", Wait: 2, Home: limit}
	wish := &events.Wish{Child: order, Wish: events.WishCancel, Parent: "o-2", Step: "hotel"}
	report := &events.Report{Parent: order, Step: "hotel", Child: "o-2", State: "Processed"}
	wrong := func(m appender, change, back func()) string {
		change()
		defer back()
		return string(m.Append(nil))
	}
	for _, c := range []struct {
		topic, key string
		kind       events.Type
		bare       bool // no type is needed there
		value      string
		is         func(*Input) bool
		needs      bool     // the order must be there
		others     []string // that its key does not name, or that say not what is wanted of it
	}{
		{topic: topics.Orders, key: order, kind: events.OrderSubmitted, bare: true, value: `{"workflow":"trip"}`, is: func(in *Input) bool { return in.Submission.Workflow == "trip" }},
		{
			topic: topics.Replies, key: order, kind: events.StepReplied, bare: true, needs: true, value: `{"order":"o-1","step":"pay","attempt":1,"status":"completed"}`, is: func(in *Input) bool { return in.Reply != nil },
			others: []string{`{"order":"o-2","step":"pay","attempt":1,"status":"completed"}`, `{"order":"o-1","step":"pay","attempt":1,"status":"well"}`},
		},
		{topic: topics.Commands, key: order, kind: events.OrderCommand, bare: true, needs: true, value: `{"command":"cancel"}`, is: func(in *Input) bool { return in.Command != nil }},
		{
			topic: topics.Signals, key: order, kind: events.OrderSignal, bare: true, needs: true, value: `{"signal":"payment"}`, is: func(in *Input) bool { return in.Signal != nil },
			others: []string{`{"signal":""}`},
		},
		{
			topic: topics.Internal, key: order, kind: events.ChildWanted, needs: true, value: string(wish.Append(nil)), is: func(in *Input) bool { return in.Wish != nil },
			others: []string{
				wrong(wish, func() { wish.Child = "o-3" }, func() { wish.Child = order }), wrong(wish, func() { wish.Parent = "" }, func() { wish.Parent = "o-2" }),
				wrong(wish, func() { wish.Step = "" }, func() { wish.Step = "hotel" }), wrong(wish, func() { wish.Wish = "well" }, func() { wish.Wish = events.WishCancel }),
			},
		},
		{
			topic: topics.Internal, key: order, kind: events.ChildReported, needs: true, value: string(report.Append(nil)), is: func(in *Input) bool { return in.Report != nil },
			others: []string{wrong(report, func() { report.Parent = "o-3" }, func() { report.Parent = order })},
		},
		{
			topic: topics.Internal, key: home, kind: events.SignalWanted, value: string(want.Append(nil)), is: func(in *Input) bool { return in.Want != nil },
			others: []string{
				wrong(want, func() { want.Correlation = "o-3" }, func() { want.Correlation = home }), wrong(want, func() { want.Key = "ref-8" }, func() { want.Key = "ref-7" }),
				wrong(want, func() { want.Order = "" }, func() { want.Order = order }), wrong(want, func() { want.Wait = 0 }, func() { want.Wait = 2 }),
				wrong(want, func() { want.Want = "well" }, func() { want.Want = events.WantAwait }),
				wrong(want, func() { want.Correlation, want.Key = events.CorrelationID("payment", "ref-8"), "ref-8" }, func() { want.Correlation, want.Key = home, "ref-7" }),
			},
		},
		{
			topic: topics.Internal, key: order, kind: events.SignalPassed, value: string(pass.Append(nil)), is: func(in *Input) bool { return in.Pass != nil },
			others: []string{wrong(pass, func() { pass.Order = "o-3" }, func() { pass.Order = order }), wrong(pass, func() { pass.Key = "ref-8" }, func() { pass.Key = "ref-7" })},
		},
		{
			topic: topics.Internal, key: limit, kind: events.PlaceWanted, value: string(bid.Append(nil)), is: func(in *Input) bool { return in.Bid != nil },
			others: []string{wrong(bid, func() { bid.Home = events.LimitID("post") }, func() { bid.Home = limit }), wrong(bid, func() { bid.Wait = 0 }, func() { bid.Wait = 2 })},
		},
		{
			topic: topics.Internal, key: order, kind: events.PlaceGiven, value: string(grant.Append(nil)), is: func(in *Input) bool { return in.Grant != nil },
			others: []string{wrong(grant, func() { grant.Order = "o-3" }, func() { grant.Order = order }), wrong(grant, func() { grant.Home = "o-3" }, func() { grant.Home = limit })},
		},
	} {
		read := func(topic, key string, kind events.Type, value string, of int32) Input {
			r := &Record{Topic: topic}
			if r.Key, r.Value = []byte(key), []byte(value); kind != "" {
				r.Headers = []events.RawHeader{{Key: events.HeaderType, Value: []byte(kind)}}
			}
			return Read(r, &topics, Place{Of: func([]byte) int32 { return of }})
		}
		if c.kind == events.PlaceWanted {
			if in := read(c.topic, order, c.kind, wrong(bid, func() { bid.Home = order }, func() { bid.Home = limit }), 0); in.Unreadable == "" {
				t.Error("an order is asked for a place")
			}
		}
		kinds := []events.Type{c.kind}
		if c.bare {
			kinds = append(kinds, "")
		}
		for _, kind := range kinds {
			if in := read(c.topic, c.key, kind, c.value, 0); in.Unreadable != "" || !c.is(&in) {
				t.Errorf("%s on %s, as %q: %s", c.value, c.topic, kind, in.Unreadable)
			} else if in.OfOrder() != c.needs {
				t.Errorf("%s on %s must be of an order that is there: %t", c.value, c.topic, in.OfOrder())
			}
		}
		for _, value := range append(c.others, "{") {
			if in := read(c.topic, c.key, c.kind, value, 0); in.Unreadable == "" && in.Problem == nil {
				t.Errorf("%s under the key %s is read", value, c.key)
			}
			if in := read(c.topic, c.key, c.kind, value, 1); in.Unreadable != "" && c.kind != events.OrderSignal || in.Partition != 1 || c.is(&in) {
				t.Errorf("%s, which belongs to partition 1: %d, %s", value, in.Partition, in.Unreadable)
			}
		}
		long := strings.Repeat("x", events.MaxOrderID+1) // and its value says the same
		if in := read(c.topic, long, c.kind, strings.ReplaceAll(c.value, `"`+c.key+`"`, `"`+long+`"`), 0); in.Unreadable == "" || c.is(&in) {
			t.Errorf("%s under a key that is no order's is read", c.kind)
		}
		elsewhere := topics.Internal
		if c.topic == elsewhere {
			elsewhere = topics.Orders
		}
		for name, in := range map[string]Input{
			"on another topic": read(elsewhere, c.key, c.kind, c.value, 0), "of another type": read(c.topic, c.key, "waybill.odd", c.value, 0), "without a key": read(c.topic, "", c.kind, c.value, 0),
		} {
			if c.kind == events.StepReplied && name == "without a key" { // its value names the order
				continue
			}
			if in.Unreadable == "" || c.is(&in) {
				t.Errorf("%s, %s, is read", c.kind, name)
			}
			if says := strings.Contains(in.Unreadable, "does not belong on"); says != (name != "without a key") {
				t.Errorf("%s, %s: %s", c.kind, name, in.Unreadable)
			}
		}
	}
}

// What may come before its order does is of none that must be there; and a wish to forget one comes also when it is gone.
func TestWhatMayComeBeforeItsOrder(t *testing.T) {
	for name, in := range map[string]Input{
		"a submission": {}, "a signal under a key": {Signal: &events.Signal{Signal: "payment", Key: "ref-7"}},
		"who begins it": {Wish: &events.Wish{Wish: events.WishBegin}}, "who forgets it": {Wish: &events.Wish{Wish: events.WishForget}},
		"who applies a limit": {Order: events.LimitID("bank"), Command: &events.Command{Command: events.CommandApply}},
	} {
		if in.OfOrder() {
			t.Errorf("%s is of an order that must be there", name)
		}
	}
}

type appender interface{ Append([]byte) []byte }
