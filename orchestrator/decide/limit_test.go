package decide

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/draw"
	"github.com/waybill-dev/waybill/test/inspect"
	"github.com/waybill-dev/waybill/test/oracle"
)

// limitedWrong are histories of a home of places, and of an order whose step is under a limit, each of which breaks a
// rule.
func limitedWrong() (home, order recording, ofHome, ofOrder [][]events.Event, find func(string, int) *oracle.Flow) {
	flow := &oracle.Flow{Steps: []oracle.FlowStep{
		{Name: "a", Agent: "x", Do: "a", Undo: "b", Timeout: oracle.Timeout{After: oracle.Duration(time.Second)}, Exhausted: "error", Limit: &oracle.FlowLimit{Name: "x"}},
		{Name: "b", Agent: "x", Do: "b", When: "false", Timeout: oracle.Timeout{After: oracle.Duration(time.Second)}, Exhausted: "error", Limit: &oracle.FlowLimit{Name: "x"}},
	}}
	flow.Steps[0].Retry.Attempts = 1
	of := func(id string, all ...events.Event) []events.Event {
		for i := range all {
			all[i].Order, all[i].Seq, all[i].At = id, uint64(i+1), inspect.Curtain
		}
		return all
	}
	const internal = "waybill.internal/0/1"
	says := func(at, rate int) events.Event {
		return events.Event{Type: events.LimitApplied, Limit: &events.Limit{AtATime: at, ASecond: rate}}
	}
	place := func(kind events.Type, waiter string, rank uint64, source string) events.Event {
		return events.Event{Type: kind, Waiter: waiter, Step: "s", Wait: 2, Rank: rank, Source: source}
	}
	granted := func(waiter string, rank uint64) events.Event {
		return place(events.PlaceGranted, waiter, rank, internal)
	}
	awaited := func(waiter string, rank uint64) events.Event {
		return place(events.PlaceAwaited, waiter, rank, internal)
	}
	back := events.Event{Type: events.PlaceReturned, Waiter: "a", Wait: 2, Source: internal}
	then, other := place(events.PlaceGranted, "c", 3, ""), place(events.PlaceGranted, "b", 2, "")
	other.Step = "t"
	for _, h := range [][]events.Event{
		{says(1, 0), place(events.PlaceGranted, "a", 1, "waybill.replies/0/1")},
		{says(2_000, 0)},
		{says(1, 0), granted("a", 1), {Type: events.LimitDeleted}},
		{says(1, 0), back},
		{says(1, 0), {Type: events.LimitDeleted}, granted("a", 1)},
		{says(1, 0), granted("a", 1), awaited("b", 2), awaited("b", 3)},
		{says(1, 0), granted("a", 2)},
		{says(1, 0), place(events.PlaceGranted, "a", 1, "")},
		{says(1, 0), awaited("a", 1)},
		{says(1, 0), granted("a", 1), granted("b", 2)},
		{says(1, 0), granted("a", 1), awaited("b", 2), awaited("c", 3), back, then},
		{says(1, 0), granted("a", 1), awaited("b", 2), back, other},
		{says(0, 1), granted("a", 1), granted("b", 2)},
		{says(1, 0), granted("a", 1), awaited("b", 2), back},
		{says(1, 0), {Type: events.CommandRefused, Operation: events.CommandDelete, Reason: "why", Count: 1}},
	} {
		ofHome = append(ofHome, of("@/limit.x", h...))
	}
	accepted := events.Event{Type: events.OrderAccepted, Steps: []string{"a", "b"}}
	asked := events.Event{Type: events.PlaceAsked, Step: "a", Attempt: 1, Home: "@/limit.x"}
	with := func(change func(e *events.Event)) events.Event {
		e := asked
		change(&e)
		return e
	}
	for _, h := range [][]events.Event{
		{accepted, with(func(e *events.Event) { e.Step = "z" })},
		{accepted, {Type: events.OrderPaused}, asked},
		{accepted, {Type: events.OrderCompensating, End: "Cancelled", Reason: "why"}, with(func(e *events.Event) { e.ToUndo = true })},
		{accepted, asked, asked},
		{accepted, with(func(e *events.Event) { e.Attempt = 2 })},
		{accepted, with(func(e *events.Event) { e.Home = "@/limit.y" })},
		{accepted, {Type: events.StepSkipped, Step: "a", By: "ana"}, with(func(e *events.Event) { e.Step = "b" })},
		{accepted, {Type: events.StepStarted, Step: "a", Attempt: 1, Agent: "x", Operation: "a", IdempotencyKey: "o/a", CompleteBy: inspect.Curtain.Add(time.Second), LockedBy: "i-1"}},
		{accepted, {Type: events.StepFailed, Step: "a", Attempt: 1, Error: &events.Error{Code: events.UnknownLimit, Permanent: true}, Source: internal}},
	} {
		ofOrder = append(ofOrder, of("o", h...))
	}
	find = func(string, int) *oracle.Flow { return flow }
	nobody := func(string, int) *oracle.Flow { return nil }
	home = recording{history: ofHome[0], owners: []string{"i-1"}, find: nobody}
	order = recording{history: ofOrder[0], owners: []string{"i-1"}, find: nobody}
	return home, order, ofHome, ofOrder, find
}

// Each of these histories breaks a rule, and without the event that breaks it none.
func TestLimitsHaveRules(t *testing.T) {
	home, order, ofHome, ofOrder, find := limitedWrong()
	breakRules(t, &home, &order, ofHome, ofOrder, find)
}

// breakRules wants that each history of a home breaks a rule, and each of an order by its last event.
func breakRules(t *testing.T, home, order *recording, ofHome, ofOrder [][]events.Event, find func(string, int) *oracle.Flow) {
	t.Helper()
	for i, h := range ofHome {
		if broken, _ := home.follow(h, home.find, ""); broken == "" {
			t.Errorf("history %d of a home breaks no rule: %s", i, inspect.Story(h))
		}
	}
	for i, h := range ofOrder {
		if broken, at := order.follow(h, find, ""); broken == "" || at != len(h)-1 {
			t.Errorf("history %d of an order breaks %q by event %d: %s", i, broken, at, inspect.Story(h))
		}
	}
}

// atHome decides on what orders tell the home of a limit.
type atHome struct {
	t     *testing.T
	env   *Env
	order *projections.Order
	reads int64
}

func newHome(t *testing.T, l events.Limit) *atHome {
	t.Helper()
	s := newStage(t)
	t.Cleanup(s.close)
	h := &atHome{t: t, env: s.env("")}
	h.take(&Input{Order: "@/limit.x", Command: &events.Command{Command: events.CommandApply, Limit: &l}})
	return h
}

func (h *atHome) take(in *Input) Decision {
	h.t.Helper()
	h.reads++
	in.Record = &Record{Topic: "waybill.internal", Offset: h.reads}
	d := On(h.env, h.order, in)
	if d.Panic != "" {
		h.t.Fatal(d.Panic)
	}
	if d.Order != nil {
		h.order = d.Order
	}
	return d
}

func (h *atHome) tell(bid, order, key string) Decision {
	h.t.Helper()
	return h.take(&Input{Order: "@/limit.x", Bid: &events.Bid{Home: "@/limit.x", Bid: bid, Order: order, Step: "s", Wait: 2, Key: key}})
}

// granted are the orders that got places.
func granted(d Decision) (orders []string) {
	for i := range d.Messages {
		if g, err := events.Decode[events.Grant](d.Messages[i].Value); err == nil && d.Messages[i].Envelope.Type == events.PlaceGiven && g.Error == nil {
			orders = append(orders, g.Order)
		}
	}
	return orders
}

// A clock that is set back, or forward, neither keeps anybody waiting for ever nor has more begin at once than
// in a second, and one.
func TestALimitASecondAndAClockThatJumps(t *testing.T) {
	for _, jump := range []time.Duration{-time.Hour, time.Hour, -time.Millisecond, -999 * time.Millisecond, -1001 * time.Millisecond} {
		h := newHome(t, events.Limit{ASecond: 3})
		asked, got := 0, 0
		ask := func(n int) {
			for range n {
				asked++
				got += len(granted(h.tell(events.BidAsk, fmt.Sprint("o-", asked), "")))
			}
		}
		ask(10)
		if got != 3 {
			t.Fatalf("%d got a place at once", got)
		}
		h.env.Now = h.env.Now.Add(jump)
		was := got
		for range 3 {
			ask(1)
			got += len(granted(Supervise(h.env, h.order, "")))
		}
		if burst := got - was; jump < 0 && burst > 1 || burst > 3 {
			t.Errorf("the clock jumped by %v: %d got a place at once", jump, burst)
		}
		was = got
		for range 20 {
			h.env.Now = h.env.Now.Add(100 * time.Millisecond)
			d := Supervise(h.env, h.order, "")
			if got += len(granted(d)); d.Order != nil {
				h.order = d.Order
			}
		}
		if n := got - was; n < 4 || n > 7 {
			t.Errorf("the clock jumped by %v: %d got a place in the 2 seconds after", jump, n)
		}
	}
}

// As many wait as may, and one more is refused; nobody is left behind.
func TestPlacesForVeryMany(t *testing.T) {
	h := newHome(t, events.Limit{AtATime: 1})
	most := 3_000
	for n := range most + 1 {
		h.tell(events.BidAsk, fmt.Sprint("o-", n), fmt.Sprint(n%7))
	}
	for n := range most {
		h.tell(events.BidBack, fmt.Sprint("o-", n), "")
	}
	if p := h.order.Places; p.Taken != 1 || p.Waiting != 0 || !p.Oldest.IsZero() {
		t.Errorf("%d have a place, %d wait, since %v", p.Taken, p.Waiting, p.Oldest)
	}
	if d := h.tell(events.BidBack, fmt.Sprint("o-", most), ""); d.Order == nil || h.order.Places.Taken != 0 {
		t.Error("the last did not give its place back")
	}
	if d := h.tell(events.BidBack, "o-1", ""); d.Order != nil || len(d.Messages) > 0 {
		t.Errorf("one that gives it back twice changes something: %+v", d)
	}
}

// One more than may wait is refused, and leaves no event.
func TestTooManyWaitForPlaces(t *testing.T) {
	h := newHome(t, events.Limit{AtATime: 1})
	for n := range events.MaxPlacesAwaited + 1 {
		if d := h.tell(events.BidAsk, fmt.Sprint("o-", n), "k"); d.Order == nil {
			t.Fatalf("%d is refused", n)
		}
		h.env.Reuse(nil)
	}
	d := h.tell(events.BidAsk, "one-more", "other")
	if d.Order != nil || len(d.Messages) != 1 {
		t.Fatalf("one more leaves %+v", d)
	}
	if g, err := events.Decode[events.Grant](d.Messages[0].Value); err != nil || g.Order != "one-more" || g.Error == nil || g.Error.Code != events.TooManyWaiting || !g.Error.Permanent {
		t.Errorf("one more is told %+v, %v", g, err)
	}
	undo := events.Bid{Home: "@/limit.x", Bid: events.BidAsk, Order: "undone", Step: "s", Wait: 2, Undo: true}
	if d := h.take(&Input{Order: "@/limit.x", Bid: &undo}); d.Order == nil || d.Order.Places.Seat("undone", 2) == nil {
		t.Error("an undo does not wait beside so many") // what was done is undone whenever that is
	}
	if got := granted(h.tell(events.BidBack, "o-0", "")); len(got) != 1 || got[0] != "o-1" {
		t.Errorf("then %q get a place", got)
	}
}

// A decision gives a hundred places at most, and the supervisor the others.
func TestManyPlacesAtOnce(t *testing.T) {
	h := newHome(t, events.Limit{AtATime: 1})
	for n := range 351 {
		h.tell(events.BidAsk, fmt.Sprint("o-", n), "")
	}
	d := h.take(&Input{Order: "@/limit.x", Command: &events.Command{Command: events.CommandApply, Limit: &events.Limit{AtATime: 1000}}})
	got := len(granted(d))
	if got != beginAtOnce {
		t.Errorf("%d get a place at once", got)
	}
	for !h.order.Grants().IsZero() {
		d := Supervise(h.env, h.order, "")
		if d.Order == nil {
			t.Fatal("the supervisor gives none")
		}
		h.order = d.Order
		got += len(granted(d))
	}
	if got != 350 || h.order.Places.Taken != 351 {
		t.Errorf("%d got a place, and %d have one", got, h.order.Places.Taken)
	}
}

// BenchmarkPlace is one attempt more at a limit for whose places so many wait: it asks, and another gives its place
// back, which the next has. Decided on what the projection has, as a lane does, folded and flushed, while the store has 16
// partitions.
func BenchmarkPlace(b *testing.B) {
	for _, keys := range []int{100, events.MaxPlacesAwaited} {
		for _, waiting := range []int{10, 1_000, events.MaxPlacesAwaited - 1} {
			b.Run(fmt.Sprintf("keys=%d/waiting=%d", keys, waiting), func(b *testing.B) { benchmarkPlace(b, waiting, keys) })
		}
	}
}

func benchmarkPlace(b *testing.B, waiting, keys int) {
	b.Helper()
	store, state := emptyStore(b)
	defer store.Close()
	for p := range int32(15) {
		_, err := store.Partition(p + 1)
		must(b, err)
	}
	s := &stage{now: inspect.Curtain, format: events.JournalFormat}
	topics, err := events.NewTopics(events.DefaultNamespace)
	must(b, err)
	s.topics = topics
	env := s.env("")
	env.Workflow = func(string, int) *workflow.Workflow { return nil }
	offset, transaction := int64(0), uint64(0)
	take := func(in *Input) (got string) {
		in.Order, in.Record = "@/limit.x", &Record{Topic: topics.Internal, Offset: offset}
		order, err := state.Order(in.Order)
		must(b, err)
		d := On(env, order, in)
		if d.Order == nil {
			b.Fatalf("%+v changes nothing", in)
		}
		if all := granted(d); len(all) > 0 {
			got = all[0]
		}
		u := projections.Update{Order: d.Order}
		for range d.Order.Seq - seqOf(order) {
			u.Offsets = append(u.Offsets, offset)
			offset++
		}
		transaction++
		must(b, state.Commit(events.Seal{Transaction: transaction, Events: len(u.Offsets)}, offset, []projections.Update{u}))
		env.Reuse(d.Messages)
		return got
	}
	n := 0
	ask := func() string {
		n++
		return take(&Input{Bid: &events.Bid{Home: "@/limit.x", Bid: events.BidAsk, Order: fmt.Sprint("o-", n), Step: "s", Wait: 2, Key: fmt.Sprint("customer-", n%keys)}})
	}
	take(&Input{Command: &events.Command{Command: events.CommandApply, Limit: &events.Limit{AtATime: 1}}})
	has := ask()
	for range waiting {
		ask()
	}
	must(b, state.Flush())
	b.ResetTimer()
	for b.Loop() {
		ask()
		has = take(&Input{Bid: &events.Bid{Home: "@/limit.x", Bid: events.BidBack, Order: has, Step: "s", Wait: 2}})
		must(b, state.Flush())
	}
}

func seqOf(o *projections.Order) uint64 {
	if o == nil {
		return 0
	}
	return o.Seq
}

// underLimits is a workflow whose steps are under limits.
const underLimits = `
workflow: flow
steps:
  - {name: s0, agent: a0, limit: one, timeout: 1s, retry: {attempts: 2, backoff: 500ms}, undo: back, exhausted: compensate}
  - {name: s1, agent: a1, limit: {name: one, key: string(input.n)}, timeout: 2s, after: [], retry: {attempts: 1}, undo: back, exhausted: continue}
  - {name: s2, agent: a2, limit: {name: paced, key: '"k"'}, timeout: 1s, repeat: {until: has(steps.s2.output.n), every: 500ms, max: 2}, exhausted: wait, wait: {for: 1s, rounds: 1}}
`

// TestHistoriesOfLimits: whatever is submitted, answered, lost, repeated and commanded while limits change, the invariants
// hold after every step, every order comes to its end, and then nobody has a place, or waits for one.
func TestHistoriesOfLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &historian{stage: newStage(t), inspector: inspect.New()}
		defer func() { h.close() }() // a crash replaces the store
		h.performLimited(t)
	})
}

func (h *historian) performLimited(t *rapid.T) {
	source := underLimits
	if does := draw.Of[events.OnConflict](t, "on conflict", "", events.ConflictQueue, events.ConflictReject, events.ConflictCancelOther); does != "" {
		source = strings.Replace(source, "steps:", fmt.Sprintf("concurrency: {key: '\"k\"', onConflict: %s}\nsteps:", does), 1)
	}
	flow, err := workflow.Parse("limits", []byte(source))
	must(t, err)
	h.flows.Add(flow)
	h.takeOver(t, "i-1")
	limit := func(t *rapid.T) {
		id := draw.Of(t, "limit", "@/limit.one", "@/limit.paced")
		c := events.Command{Command: draw.Of(t, "act", events.CommandApply, events.CommandApply, events.CommandApply, events.CommandDelete), By: "ana"}
		if c.Command == events.CommandApply {
			c.Limit = &events.Limit{AtATime: draw.Int(t, "at a time", 0, 2)}
			if id == "@/limit.paced" {
				c.Limit.ASecond = draw.Int(t, "a second", 0, 2)
			}
		}
		h.command(t, id, c)
		h.soon(t)
	}
	limit(t)
	limit(t)
	h.submitTo(t, "a", "flow", 1)
	draw.Acts(t, draw.Of(t, "acts", 10, 30, 90), func() { h.check(t, h.inspector) },
		draw.Act{Weight: 6, Do: h.report}, draw.Act{Weight: 3, Do: h.submit}, draw.Act{Weight: 2, Do: limit}, draw.Act{Weight: 3, Do: h.manage}, draw.Act{Weight: 2, Do: h.operate},
		draw.Act{Weight: 2, Do: h.serve}, draw.Act{Weight: 2, Do: h.live}, draw.Act{Weight: 2, Do: h.look}, draw.Act{Weight: 2, Do: h.punctual},
		draw.Act{Weight: 2, Do: func(t *rapid.T) { h.wait(time.Duration(draw.Amount(t, "ms", 1, 3_000)) * time.Millisecond) }},
		draw.Act{Weight: 2, Do: func(t *rapid.T) { h.read(t) }}, draw.Act{Weight: 2, Do: func(t *rapid.T) { h.commit(t) }}, draw.Act{Weight: 1, Do: func(t *rapid.T) { must(t, h.state.Flush()) }},
		draw.Act{Weight: 2, Do: h.fall}, draw.Act{Weight: 1, Do: h.vanish}, draw.Act{Weight: 1, Do: func(t *rapid.T) { h.mute = draw.One(t, "mute", 3) }},
	)
	for _, id := range []string{"@/limit.one", "@/limit.paced"} {
		h.command(t, id, events.Command{Command: events.CommandApply, Limit: &events.Limit{AtATime: 1}})
	}
	h.end(t)
	h.repair(t)
	h.mute = false
	for range 3 { // words of orders that ended just now, and answers to them
		h.passOn(t)
		h.read(t)
		h.commit(t)
		h.check(t, h.inspector)
	}
	for _, id := range []string{"@/limit.one", "@/limit.paced", "@k/open.flow"} {
		o := h.of(t, id)
		if o == nil || o.Places == nil { // no order came, or it is forgotten
			continue
		}
		if p := o.Places; p.Taken+p.Waiting > 0 {
			t.Fatalf("all ended, and of %s %d have places, and %d wait", id, p.Taken, p.Waiting)
		}
	}
}

// underLimit are some of these histories, always the same.
var underLimit = sync.OnceValue(func() (all []recording) {
	drawn := rapid.Custom(func(t *rapid.T) []recording {
		h := &historian{stage: newStage(t), inspector: inspect.New()}
		defer func() { h.close() }()
		h.performLimited(t)
		return h.record(t)
	})
	for seed := range 20 {
		all = append(all, drawn.Example(seed)...)
	}
	return all
})

// What asks for a place and is put aside has its attempt fail, which would wait for ever: where an operator gives it up, where
// there is no room at a home that is held, and where there is no home yet. Of what is given back nobody hears.
func TestAQuestionThatIsPutAside(t *testing.T) {
	topics, err := events.NewTopics(events.DefaultNamespace)
	must(t, err)
	env := &Env{
		Now: inspect.Curtain, Instance: "i", Topics: &topics, Format: events.JournalFormat,
		Refuses: func(string, int) string { return "" },
	}
	told := func(bid string) *Record {
		b := events.Bid{Home: "@/limit.x", Bid: bid, Order: "o", Step: "s", Wait: 2}
		return &Record{Topic: topics.Internal, Raw: events.Raw{
			Key: []byte(b.Home), Value: b.Append(nil), Headers: []events.RawHeader{{Key: events.HeaderType, Value: []byte(events.PlaceWanted)}},
		}}
	}
	look := func(what string, d Decision, answered bool) {
		t.Helper()
		var all []events.Grant
		for _, m := range d.Messages {
			if m.Topic == topics.Internal {
				g, err := events.Decode[events.Grant](m.Value)
				must(t, err)
				all = append(all, g)
			}
		}
		if len(d.Aside) != 1 || (len(all) == 1) != answered || answered && (all[0].Order != "o" || all[0].Wait != 2 || all[0].Error == nil || all[0].Error.Code != events.TooManyWaiting) {
			t.Errorf("%s: %d are put aside, and it answers %+v", what, len(d.Aside), all)
		}
	}
	for bid, answered := range map[string]bool{events.BidAsk: true, events.BidBack: false} {
		r := told(bid)
		in := Read(r, &topics, Place{Of: func([]byte) int32 { return 0 }})
		if in.Bid == nil {
			t.Fatal(in.Unreadable)
		}
		look(bid+" before there is a home", Hold(env, nil, &in, "why"), answered)
		held := &projections.Order{ID: "@/limit.x", Seq: 1, Places: new(projections.Places), Hold: &projections.Hold{}}
		full := held.Clone()
		full.Waiting = make([]projections.Held, events.MaxPlacesAwaited)
		look(bid+" without room", On(env, full, &in), answered)
		full.Waiting = full.Waiting[:maxWaiting] // as many as an order keeps
		if d := On(env, full, &in); len(d.Aside) > 0 || d.Order == nil || len(d.Order.Waiting) != maxWaiting+1 {
			t.Errorf("%s behind a hundred others: %+v is put aside", bid, d.Aside)
		}
		held.Waiting = []projections.Held{{Source: topics.Internal + "/0/0", Raw: r.Raw}}
		d := Operate(env, held, &Input{Record: &Record{Topic: topics.Commands}, Order: held.ID, Command: &events.Command{Command: events.CommandRelease, Discard: true}})
		look(bid+" that is given up", d, answered)
	}
}

// A place goes back with what gives it back, also where that is put aside at the home, or given up by an operator: nobody
// would give it back again. It is put aside all the same, and who waits has the place once the home goes on.
func TestAPlaceThatIsGivenBackIsFree(t *testing.T) {
	for _, bid := range []string{events.BidBack, events.BidUnwanted} {
		h := newHome(t, events.Limit{AtATime: 1})
		h.tell(events.BidAsk, "a", "")
		h.tell(events.BidAsk, "b", "")
		h.order.Hold = &projections.Hold{}
		back := events.Bid{Home: "@/limit.x", Bid: bid, Order: "a", Step: "s", Wait: 2}
		r := &Record{Topic: "waybill.internal", Offset: 9, Raw: events.Raw{
			Key: []byte("@/limit.x"), Value: back.Append(nil), Headers: []events.RawHeader{{Key: events.HeaderType, Value: []byte(events.PlaceWanted)}},
		}}
		look := func(how string, d Decision) {
			t.Helper()
			if d.Order == nil || len(d.Aside) != 1 || d.Order.Places.Seat("a", 2) != nil {
				t.Fatalf("%s, %s: %+v", bid, how, d)
			}
			free := d.Order.Clone()
			free.Hold = nil
			if got := granted(Supervise(h.env, free, "")); len(got) != 1 || got[0] != "b" {
				t.Errorf("%s, %s: %v has the place", bid, how, got)
			}
		}
		full := h.order.Clone()
		full.Waiting = make([]projections.Held, events.MaxPlacesAwaited)
		for i := range full.Waiting {
			full.Waiting[i] = projections.Held{Source: "waybill.internal/0/8", Raw: r.Raw}
		}
		d := On(h.env, full, &Input{Record: r, Order: "@/limit.x", Bid: &back})
		d.Order.Waiting = nil
		look("without room", d)
		held := h.order.Clone()
		held.Waiting = []projections.Held{{Source: "waybill.internal/0/9", Raw: r.Raw}}
		for _, other := range []events.Bid{
			{Home: "@/limit.y", Bid: bid, Order: "a", Step: "s", Wait: 2}, {Home: "@/limit.x", Bid: "of a release to come", Order: "a", Step: "s", Wait: 2},
		} {
			held.Waiting[0].Value = other.Append(nil)
			d := Operate(h.env, held, &Input{Record: &Record{Topic: "waybill.commands"}, Order: "@/limit.x", Command: &events.Command{Command: events.CommandRelease, Discard: true}})
			if d.Order.Places.Seat("a", 2) == nil {
				t.Errorf("%+v takes the place of another", other)
			}
		}
		held.Waiting[0].Value = back.Append(nil)
		look("given up", Operate(h.env, held, &Input{Record: &Record{Topic: "waybill.commands"}, Order: "@/limit.x", Command: &events.Command{Command: events.CommandRelease, Discard: true}}))
	}
}

// What asks twice has one place, or waits once; and a home that is held gives none, whatever is due.
func TestAHomeThatIsAskedTwiceOrHeld(t *testing.T) {
	h := newHome(t, events.Limit{AtATime: 1})
	for _, order := range []string{"a", "a", "b", "b"} {
		h.tell(events.BidAsk, order, "")
	}
	if p := h.order.Places; p.Taken != 1 || p.Waiting != 1 {
		t.Fatalf("%d have a place, and %d wait", p.Taken, p.Waiting)
	}
	held, more := h.order.Clone(), *h.order.Places
	more.Says = &events.Limit{AtATime: 2}
	held.Places, held.Hold = &more, &projections.Hold{}
	if d := Supervise(h.env, held, ""); d.Order != nil || len(d.Messages) > 0 {
		t.Errorf("while it is held it gives %v", granted(d))
	}
	held.Hold = nil
	if got := granted(Supervise(h.env, held, "")); len(got) != 1 || got[0] != "b" {
		t.Errorf("else it gives %v", got)
	}
}
