package decide

import (
	"flag"
	"fmt"
	"hash/fnv"
	"maps"
	"reflect"
	"slices"
	"strconv"
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

// TestCorrelationHistories: homes of keys and orders on several partitions, whose lanes tell each other by
// their own and are read at whatever pace, some of it twice. A signal acts on one wait at most, each has come
// to what its event says, and once all is read the homes know who waits, and nobody else.
func TestCorrelationHistories(t *testing.T) {
	seen := make(map[string]int)
	never := func() []string {
		return slices.DeleteFunc([]string{
			"waybill.signal.given", "waybill.signal.matched", "waybill.signal.kept", "waybill.signal.expired", "waybill.wait.began", "waybill.wait.ended",
			"waybill.signal.ordered", "waybill.signal.started", "waybill.order.forgotten", "rejected", "started what came back", "repeated", "late", "given-up", "came back", "given again",
		}, func(what string) bool { return seen[what] > 0 })
	}
	fixed := flag.Lookup("rapid.seed").Value
	seed, err := strconv.ParseUint(fixed.String(), 10, 64)
	must(t, err)
	defer func() { must(t, fixed.Set(strconv.FormatUint(seed, 10))) }()
	most := uint64(20)
	if testing.Short() {
		most = 100 // each is a fifth
	}
	for rounds := uint64(0); rounds == 0 || rounds < most && len(never()) > 0 && !t.Failed(); rounds++ { // what happens seldom takes some
		if seed > 0 { // else each round would draw what the one before did
			must(t, fixed.Set(strconv.FormatUint(seed+rounds, 10)))
		}
		rapid.Check(t, func(t *rapid.T) { newSwitchboard(t, seen).perform(t) })
	}
	if !t.Failed() && len(never()) > 0 {
		t.Errorf("never came up: %v", never())
	}
}

// switchboard is several partitions without Kafka: their records, and what their lanes tell each other.
type switchboard struct {
	now      time.Time
	topics   events.Topics
	flows    workflow.Set
	records  map[string]*projections.Order
	history  map[string][]events.Event
	internal [parts][]*Record // of each partition, as far as it was not read
	written  [parts]int64
	cursed   map[string]bool
	orders   []string
	signals  []sent
	seen     map[string]int
	restored bool // something is told twice
}

// sent is a signal that was read.
type sent struct {
	source string
	value  events.Signal
}

const parts = 3

const listeners = `
workflow: waits
steps:
  - {name: a, listen: pay, key: input.k}
  - {name: b, listen: {any: [pay, box]}, key: input.k, timeout: 5s, after: []}
  - {name: c, listen: {all: [pay, box]}, key: input.l, after: []}
  - {name: d, listen: {one: box, count: 2}, key: input.l, after: []}
`

// starters are workflows whose orders signals start: of one all that come, of the other those that no step hears.
var starters = []string{`
workflow: begun
start: {signal: new, key: input.k}
steps:
  - {name: a, listen: pay, key: input.k, timeout: 100s}
`, `
workflow: greets
start: box
steps:
  - {name: a, sleep: 10s}
`}

func newSwitchboard(t *rapid.T, seen map[string]int) *switchboard {
	topics, err := events.NewTopics(events.DefaultNamespace)
	must(t, err)
	w := &switchboard{
		now: inspect.Curtain, topics: topics, records: make(map[string]*projections.Order), history: make(map[string][]events.Event),
		cursed: make(map[string]bool), seen: seen,
	}
	flow, err := workflow.Parse("waits", []byte(listeners))
	must(t, err)
	w.flows.Add(flow)
	for i, starter := range starters {
		if i == 0 || draw.Flip(t, "what nobody waits for starts an order") {
			flow, err := workflow.Parse("starts", []byte(starter))
			must(t, err)
			w.flows.Add(flow)
		}
	}
	return w
}

func partOf(id []byte) int32 {
	h := fnv.New32a()
	h.Write(id)
	return int32(h.Sum32() % parts)
}

func (w *switchboard) env(id string) *Env {
	o := w.records[id]
	panicked := o == nil || o.Forgotten || o.Hold != nil // of what is not there nothing waits
	return &Env{
		Now: w.now, Instance: "i", Topics: &w.topics, Format: events.JournalFormat,
		Workflow: func(name string, version int) *workflow.Workflow {
			if w.cursed[id] {
				panic("cursed")
			}
			return w.flows.Find(name, version)
		},
		Starts: w.flows.Starts,
		Away:   func(_, _ string, _ int) string { return "" },
		Refuses: func(string, int) string {
			if w.cursed[id] && events.IsCorrelation(id) && !panicked { // else it could not be held either
				panicked = true
				panic("cursed")
			}
			return ""
		},
	}
}

// take folds a decision of the lane of a partition, and has it tell the others.
func (w *switchboard) take(t *rapid.T, part int32, d Decision) {
	for _, m := range d.Messages {
		switch m.Topic {
		case w.topics.Journal:
			e, err := events.Decode[events.Event](m.Value)
			must(t, err)
			w.history[e.Order] = append(w.history[e.Order], e)
			if e.Type == events.OrderAccepted && e.Parent != "" {
				w.orders = append(w.orders, e.Order)
			}
			w.seen[string(e.Type)]++
			w.seen[e.Reason]++
			must(t, e.Check())
		case w.topics.Internal:
			w.tell(part, &Record{Topic: m.Topic, Raw: events.Raw{Key: []byte(m.Envelope.Order), Value: m.Value, Headers: []events.RawHeader{{Key: events.HeaderType, Value: []byte(m.Envelope.Type)}}}})
		}
	}
	if d.Order != nil {
		w.records[d.Order.ID] = d.Order
	}
}

func (w *switchboard) tell(part int32, r *Record) {
	told := *r
	told.Partition, told.Offset = part, w.written[part]
	w.written[part]++
	w.internal[part] = append(w.internal[part], &told)
}

// read has the lane of a partition read the next record of what lanes tell each other: it forwards what
// belongs elsewhere.
func (w *switchboard) read(t *rapid.T, part int32) bool {
	if len(w.internal[part]) == 0 {
		return false
	}
	r := w.internal[part][0]
	w.internal[part] = w.internal[part][1:]
	in := Read(r, &w.topics, Place{Here: part, Of: partOf})
	switch {
	case in.Unreadable != "":
		t.Fatalf("%s cannot be read: %s", r.Value, in.Unreadable)
	case in.Partition != part:
		w.tell(in.Partition, r)
	default:
		w.on(t, &in)
	}
	return true
}

func (w *switchboard) on(t *rapid.T, in *Input) {
	o := w.records[in.Order]
	if o == nil && in.OfOrder() {
		return
	}
	w.take(t, in.Partition, On(w.env(in.Order), o, in))
}

func (w *switchboard) perform(t *rapid.T) {
	part := func(t *rapid.T) int32 { return int32(draw.Int(t, "partition", 0, parts-1)) }
	commands := int64(0)
	command := func(t *rapid.T, id string, c events.Command) {
		commands++
		value, err := c.Encode()
		must(t, err)
		in := Read(&Record{Topic: w.topics.Commands, Partition: partOf([]byte(id)), Offset: commands, Raw: events.Raw{Key: []byte(id), Value: value}}, &w.topics, Place{Here: partOf([]byte(id)), Of: partOf})
		w.on(t, &in)
	}
	some := func(t *rapid.T) string {
		if len(w.records) == 0 {
			return ""
		}
		return draw.Of(t, "record", slices.Sorted(maps.Keys(w.records))...)
	}
	draw.Acts(t, draw.Of(t, "acts", 10, 30, 90), func() { w.check(t) },
		draw.Act{Weight: 12, Do: w.signal},
		draw.Act{Weight: 4, Do: func(t *rapid.T) {
			id := fmt.Sprintf("o-%d", len(w.orders))
			w.orders = append(w.orders, id)
			input := fmt.Sprintf(`{"k":%q,"l":%q}`, draw.Of(t, "k", "1", "2"), draw.Of(t, "l", "1", "2"))
			in := Read(&Record{Topic: w.topics.Orders, Partition: partOf([]byte(id)), Raw: events.Raw{Key: []byte(id), Value: []byte(`{"workflow":"waits","input":` + input + `}`)}}, &w.topics, Place{Here: partOf([]byte(id)), Of: partOf})
			w.on(t, &in)
		}},
		draw.Act{Weight: 8, Do: func(t *rapid.T) { w.read(t, part(t)) }},
		draw.Act{Weight: 3, Do: func(t *rapid.T) {
			for at := part(t); w.read(t, at); {
				continue
			}
		}},
		draw.Act{Weight: 2, Do: func(t *rapid.T) { // by a topic that somebody restored
			if at := part(t); len(w.internal[at]) > 0 {
				w.restored = true
				w.tell(at, draw.Of(t, "record", w.internal[at]...))
			}
		}},
		draw.Act{Weight: 4, Do: func(t *rapid.T) {
			w.pass(t, time.Duration(draw.Of(t, "s", 1, 10, 100, 86_400, 8*86_400))*time.Second)
		}},
		draw.Act{Weight: 4, Do: func(t *rapid.T) {
			if id := some(t); id != "" {
				step := draw.Of(t, "step", "a", "b", "c", "d")
				name := draw.Of(t, "command", events.CommandCancel, events.CommandSkipStep, events.CommandPause, events.CommandResume, events.CommandTerminate, events.CommandRelease)
				c := events.Command{Command: name, Note: "so it is"}
				if name == events.CommandSkipStep {
					c.Step = step
				}
				command(t, id, c)
			}
		}},
		draw.Act{Weight: 2, Do: func(t *rapid.T) {
			if id := some(t); id != "" {
				w.cursed[id] = true
			}
		}},
		draw.Act{Weight: 2, Do: func(t *rapid.T) { // what is given to it then is given up, maybe
			for _, id := range slices.Sorted(maps.Keys(w.records)) {
				if c := w.records[id].Correlation; c != nil && len(c.Waits) > 0 {
					w.cursed[c.Waits[0].Order] = true
				}
			}
		}},
		draw.Act{Weight: 3, Do: func(t *rapid.T) {
			for _, id := range slices.Sorted(maps.Keys(w.cursed)) {
				delete(w.cursed, id)
				command(t, id, events.Command{Command: events.CommandRelease, Discard: !events.IsCorrelation(id) && draw.Flip(t, "discard")})
			}
		}},
	)
	w.cursed = nil
	for id, o := range w.records {
		if o.Hold != nil {
			command(t, id, events.Command{Command: events.CommandRelease})
		}
	}
	w.rest(t)
	w.pass(t, 30*24*time.Hour)
	w.rest(t)
	for _, id := range w.orders {
		command(t, id, events.Command{Command: events.CommandTerminate, Note: "done"})
	}
	w.rest(t)
	w.pass(t, 30*24*time.Hour)
	w.pass(t, 30*24*time.Hour)
	for id, o := range w.records {
		if events.IsCorrelation(id) && !o.Forgotten && !w.restored {
			t.Fatalf("%s is not forgotten: %+v %+v", id, o.Correlation, o.Signals)
		}
	}
}

// signal has somebody send a signal, and the home read it.
func (w *switchboard) signal(t *rapid.T) {
	v := events.Signal{
		Signal: draw.Of(t, "name", "pay", "box", "pay", "box", "new"), Key: draw.Of(t, "key", "1", "2"),
		ID: draw.Of(t, "id", "", "", "x", "y", "z"), Data: []byte("1"), ReplyTo: "told",
	}
	if v.Signal == "new" {
		v.Data = []byte(`{"k":"` + draw.Of(t, "k", "1", "2") + `"}`)
	}
	if s := draw.Of(t, "keep", 0, 0, -1, 1, 50); s != 0 {
		v.KeepUntil = w.now.Add(time.Duration(s) * time.Second)
	}
	value, err := v.Encode()
	must(t, err)
	id := events.CorrelationID(v.Signal, v.Key)
	at := partOf([]byte(id))
	r := &Record{Topic: w.topics.Signals, Partition: at, Offset: int64(len(w.signals)), Raw: events.Raw{Key: []byte("any"), Value: value}}
	in := Read(r, &w.topics, Place{Here: at, Of: partOf})
	if in.Unreadable != "" || in.Order != id {
		t.Fatalf("%+v is read as %+v", v, in)
	}
	w.signals = append(w.signals, sent{r.Source(), v})
	w.on(t, &in)
}

// pass has time pass, and the supervisors look.
func (w *switchboard) pass(t *rapid.T, d time.Duration) {
	w.now = w.now.Add(d)
	for _, id := range slices.Sorted(maps.Keys(w.records)) {
		o := w.records[id]
		for i := range o.Steps {
			w.take(t, partOf([]byte(id)), Supervise(w.env(id), w.records[id], o.Steps[i].Known()))
		}
		w.take(t, partOf([]byte(id)), Supervise(w.env(id), w.records[id], ""))
	}
}

// check holds the histories against each other as far as they are.
func (w *switchboard) check(t *rapid.T) {
	heard := make(map[string]string)
	for id, history := range w.history {
		ledger := oracle.NewLedger(id, nil)
		o := new(projections.Order)
		o.In(events.JournalFormat)
		for i := range history {
			e := &history[i]
			must(t, ledger.Add(e))
			must(t, o.Apply(e))
			if e.Type == events.SignalOrdered {
				if e.Data == nil {
					w.seen["started what came back"]++
				}
			} else if e.Type != events.StepHeard {
				continue
			}
			if by := heard[e.Source]; by != "" {
				t.Fatalf("%s was heard by %s and by %s", e.Source, by, id)
			}
			heard[e.Source] = id
		}
		if is := w.records[id]; !reflect.DeepEqual(is.Correlation, o.Correlation) || fmt.Sprint(len(is.Signals), is.Seq) != fmt.Sprint(len(o.Signals), o.Seq) {
			t.Fatalf("%s is %+v, and its history says %+v", id, is, o)
		}
	}
}

// rest has all be read, and holds what has come of it against each other.
func (w *switchboard) rest(t *rapid.T) {
	for more := true; more; {
		more = false
		for part := range int32(parts) {
			more = w.read(t, part) || more
		}
	}
	w.check(t)
	waits := make(map[string]bool)
	for _, id := range w.orders {
		o := w.records[id]
		for i := range o.Steps {
			s := &o.Steps[i]
			if s.State != projections.Listening {
				continue
			}
			for _, name := range s.Listens.Names {
				waits[fmt.Sprint(events.CorrelationID(name, s.Listens.Key), id, s.Listens.Since)] = true
			}
		}
	}
	matched := make(map[string]string)
	for id, o := range w.records {
		if o.Correlation == nil {
			continue
		}
		for _, wait := range o.Correlation.Waits {
			at := fmt.Sprint(id, wait.Order, wait.Number)
			if !waits[at] && !w.restored { // whoever waits no more has a signal come back
				t.Fatalf("%s knows of a wait that is none: %+v", id, wait)
			}
			delete(waits, at)
			if wait.Given > 0 {
				t.Fatalf("%s has given %+v a signal, and does not know what became of it", id, wait)
			}
		}
		for i := range o.Signals {
			if s := &o.Signals[i]; s.Kept() && (len(o.Correlation.Waits) > 0 || s.Under.Given > 0 || !s.Under.Told) {
				t.Fatalf("%s keeps %+v %+v, and %+v wait", id, s, s.Under, o.Correlation.Waits)
			}
		}
	}
	if len(waits) > 0 {
		t.Fatalf("nobody knows of the waits %v", slices.Sorted(maps.Keys(waits)))
	}
	ends := make(map[string]string)
	acted := make(map[string]time.Time)
	for id, history := range w.history {
		if !events.IsCorrelation(id) {
			continue
		}
		given := make(map[string]int)
		clear(acted)
		for i := range history {
			e := &history[i]
			switch e.Type {
			case events.SignalGiven:
				if given[e.Source]++; given[e.Source] > 1 {
					w.seen["given again"]++
				}
			case events.SignalKept:
				if given[e.Source] > 0 {
					w.seen["came back"]++
				}
			case events.SignalMatched, events.SignalStarted, events.SignalExpired, events.SignalDiscarded:
				if ends[e.Source] != "" {
					t.Fatalf("%s has ended twice: %s, and event %d of %s", e.Source, ends[e.Source], e.Seq, id)
				}
				ends[e.Source] = string(e.Type)
				if order := w.records[e.Child]; e.Child != "" && e.Reason != events.SignalRepeated && (order == nil || !order.Forgotten && (order.Parent == nil || (order.State == projections.Rejected) != (e.Type == events.SignalDiscarded))) {
					t.Fatalf("event %d of %s, %s: order %q is %+v", e.Seq, id, e.Type, e.Child, order)
				}
				if e.Type == events.SignalMatched {
					matched[e.Source] = e.Waiter
				}
				if e.Type == events.SignalMatched || e.Type == events.SignalStarted {
					sent := w.signals[slices.IndexFunc(w.signals, func(s sent) bool { return s.source == e.Source })]
					if until, was := acted[e.SignalID]; was && e.At.Before(until) {
						t.Fatalf("%s: id %q acted twice", id, e.SignalID)
					}
					acted[e.SignalID] = sent.value.KeepUntil
				}
			}
		}
		if o := w.records[id]; o.Correlation != nil {
			for i := range o.Signals {
				if s := &o.Signals[i]; s.Kept() {
					ends[s.Source] += "kept"
				}
			}
		}
	}
	for _, s := range w.signals {
		if ends[s.source] == "" && w.discards(s) < MaxVoid {
			t.Fatalf("%s has come to nothing: %+v\n%s", s.source, s.value, w.story(events.CorrelationID(s.value.Signal, s.value.Key)))
		}
	}
	heard := make(map[string]string)
	for id, history := range w.history {
		for i := range history {
			if e := &history[i]; e.Type == events.StepHeard {
				heard[e.Source] = id
			}
		}
	}
	if w.restored { // what an operator gave up may have been told twice
		maps.DeleteFunc(heard, func(source, _ string) bool { return ends[source] == string(events.SignalDiscarded) })
	}
	if !maps.Equal(heard, matched) {
		for id := range w.history {
			t.Logf("%s:\n%s", id, w.story(id))
		}
		t.Fatalf("orders have heard\n %v, and homes believe\n %v", heard, matched)
	}
}

// story is what has become of a record.
func (w *switchboard) story(id string) string {
	var says []string
	for _, e := range w.history[id] {
		says = append(says, fmt.Sprintf("%d %s %s %s %s %d %s %s", e.Seq, e.Type, e.Source, e.SignalID, e.Waiter, e.Wait, e.Step, e.Reason))
	}
	return strings.Join(says, "\n")
}

func (w *switchboard) discards(s sent) (n int) {
	for _, e := range w.history[events.CorrelationID(s.value.Signal, s.value.Key)] {
		if e.Type == events.SignalDiscarded || e.Type == events.InputDiscarded {
			n++
		}
	}
	return n
}

// switched are the histories of some switchboards, always the same.
var switched = sync.OnceValue(func() (all []recording) {
	drawn := rapid.Custom(func(t *rapid.T) *switchboard {
		w := newSwitchboard(t, make(map[string]int))
		w.perform(t)
		return w
	})
	find := waitsFlows()
	for seed := range 60 {
		w := drawn.Example(seed)
		for _, id := range slices.Sorted(maps.Keys(w.history)) {
			l := oracle.NewLedger(id, nil)
			for i := range w.history[id] {
				_ = l.Add(&w.history[id][i]) // it was held against the rules
			}
			all = append(all, recording{history: w.history[id], order: w.records[id], ledger: l, find: find, owners: []string{""}})
		}
	}
	return append(all, crowded())
})

// waitsFlows finds the workflows of a switchboard, for the oracle.
func waitsFlows() func(string, int) *oracle.Flow {
	flows := make(map[string]*oracle.Flow)
	for _, source := range append(slices.Clone(starters), listeners) {
		parsed, err := workflow.Parse("flow", []byte(source))
		if err != nil {
			panic(err)
		}
		canonical, err := parsed.MarshalJSON()
		if err != nil {
			panic(err)
		}
		if flows[parsed.Name], err = oracle.ReadFlow(canonical); err != nil {
			panic(err)
		}
	}
	return func(name string, _ int) *oracle.Flow { return flows[name] }
}

// miscounted are correlations for which too many wait, or one is refused for nothing, or which keep what has
// no id.
func miscounted() (recording, [][]events.Event) {
	r := crowded()
	more := slices.Clone(r.history)
	more[events.MaxWaits].Type, more[events.MaxWaits].Reason = events.WaitBegan, ""
	refused := r.history[events.MaxWaits]
	refused.Seq = 2
	kept := events.Event{Type: events.SignalKept, Order: r.history[0].Order, Seq: 1, At: inspect.Curtain, Signal: "go", Key: "k", Source: "waybill.signals/0/0", Due: inspect.Curtain.Add(time.Second)}
	return r, [][]events.Event{more, {r.history[0], refused}, {kept}}
}

// startedWrong are homes of keys whose signals start orders as they must not: though a step waits, after they were
// kept, when they are late, under another id, of a workflow that says nothing of it; and that believe of another order,
// or of another signal, that it has begun.
func startedWrong() (recording, [][]events.Event, func(string, int) *oracle.Flow) {
	const id = "@k/signal.go"
	r := crowded()
	due := inspect.Curtain.Add(time.Hour)
	event := func(seq uint64, kind events.Type, change func(*events.Event)) events.Event {
		e := events.Event{Type: kind, Order: id, Seq: seq, At: inspect.Curtain, Signal: "go", SignalID: "s", Source: "waybill.signals/0/0", Child: events.StartedID(id, 1)}
		if kind != events.SignalStarted {
			e.Key, e.Due = "k", due
		}
		if kind == events.SignalOrdered {
			e.Workflow, e.Version = "w", 1
		}
		if change != nil {
			change(&e)
		}
		return e
	}
	ordered := func(seq uint64, change func(*events.Event)) events.Event {
		return event(seq, events.SignalOrdered, change)
	}
	second := func(e *events.Event) { e.Child = events.StartedID(id, 2) }
	flow := &oracle.Flow{Start: &oracle.FlowStart{Signal: "go"}}
	return r, [][]events.Event{
		{r.history[0], ordered(2, second)},
		{event(1, events.SignalKept, func(e *events.Event) { e.Child = "" }), ordered(2, second)},
		{ordered(1, func(e *events.Event) { e.Due = inspect.Curtain })},
		{ordered(1, second)},
		{ordered(1, func(e *events.Event) { e.Version = 0 })},
		{ordered(1, nil), event(2, events.SignalStarted, second)},
		{ordered(1, nil), event(2, events.SignalStarted, func(e *events.Event) { e.SignalID = "t" })},
	}, func(string, int) *oracle.Flow { return flow }
}

// mistaken are orders whose step hears what has no id, under a key, or fails though it listens for its order, or
// listens under a key though its workflow says none.
func mistaken() (recording, [][]events.Event, func(string, int) *oracle.Flow) {
	r := cancelled()
	listening := events.Event{Type: events.StepListening, Order: "o", Seq: 2, At: inspect.Curtain, Step: "a", Attempt: 1, Listen: "one", Signals: []string{"go"}}
	keyed := listening
	keyed.Key = "k"
	next := events.Event{Type: events.StepHeard, Order: "o", Seq: 3, At: inspect.Curtain, Step: "a", Attempt: 1, Signal: "go", Source: "waybill.signals/0/0"}
	failed := events.Event{Type: events.StepFailed, Order: "o", Seq: 3, At: inspect.Curtain, Step: "a", Attempt: 1, Error: &events.Error{Code: events.TooManyWaits, Permanent: true}, Source: "waybill.internal/0/0"}
	flow := &oracle.Flow{Steps: []oracle.FlowStep{{Name: "a", Listen: &oracle.FlowListen{One: "go", Count: 1}}}}
	return r, [][]events.Event{{r.history[0], keyed, next}, {r.history[0], listening, failed}, {r.history[0], keyed}}, func(string, int) *oracle.Flow { return flow }
}

// crowded is a correlation for which as many wait as may, and one more would.
func crowded() recording {
	const id = "@k/signal.go"
	h := []events.Event{}
	for n := range uint64(events.MaxWaits + 1) {
		e := events.Event{Type: events.WaitBegan, Waiter: "o", Step: "a", Wait: n + 1, Signal: "go", Key: "k", Source: fmt.Sprintf("waybill.internal/0/%d", n)}
		if n == events.MaxWaits {
			e.Type, e.Reason = events.WaitRefused, "too many"
		}
		e.Order, e.Seq, e.At = id, n+1, inspect.Curtain
		h = append(h, e)
	}
	return recording{history: h, order: &projections.Order{State: projections.Pending}, ledger: oracle.NewLedger(id, nil), owners: []string{""}, find: func(string, int) *oracle.Flow { return nil }}
}

// desk is an order's, and a home's, that are told something by hand.
func desk(t *testing.T) (*switchboard, func(value any, more ...func(*Record)) Decision) {
	t.Helper()
	topics, err := events.NewTopics(events.DefaultNamespace)
	must(t, err)
	w := &switchboard{now: inspect.Curtain, topics: topics, records: make(map[string]*projections.Order), history: make(map[string][]events.Event), seen: make(map[string]int)}
	for _, source := range []string{listeners, starters[0]} {
		flow, err := workflow.Parse("waits", []byte(source))
		must(t, err)
		w.flows.Add(flow)
	}
	offset := int64(0)
	return w, func(value any, more ...func(*Record)) Decision {
		t.Helper()
		r := &Record{Topic: topics.Internal, Offset: offset}
		offset++
		kind := events.SignalWanted
		switch v := value.(type) {
		case events.Want:
			v.Correlation = events.CorrelationID(v.Signal, v.Key)
			r.Key, r.Value = []byte(v.Correlation), v.Append(nil)
		case events.Report:
			r.Key, r.Value, kind = []byte(v.Parent), v.Append(nil), events.ChildReported
		case events.Pass:
			v.Correlation = events.CorrelationID(v.Signal, v.Key)
			r.Key, r.Value, kind = []byte(v.Order), v.Append(nil), events.SignalPassed
		case events.Signal:
			r.Topic, r.Key, kind = topics.Signals, []byte("k"), events.OrderSignal
			r.Value, err = v.Encode()
			must(t, err)
		case events.Submission:
			r.Topic, r.Key, kind = topics.Orders, []byte("o"), events.OrderSubmitted
			r.Value, err = v.Encode()
			must(t, err)
		}
		r.Headers = []events.RawHeader{{Key: events.HeaderType, Value: []byte(kind)}}
		for _, m := range more {
			m(r)
		}
		in := Read(r, &topics, Place{Of: func([]byte) int32 { return 0 }})
		if in.Unreadable != "" {
			t.Fatalf("%s: %s", r.Value, in.Unreadable)
		}
		d := On(w.env(in.Order), w.records[in.Order], &in)
		for _, m := range d.Messages {
			if m.Topic == topics.Journal {
				e, err := events.Decode[events.Event](m.Value)
				must(t, err)
				w.history[e.Order] = append(w.history[e.Order], e)
			}
		}
		if d.Order != nil {
			w.records[d.Order.ID] = d.Order
		}
		return d
	}
}

func (w *switchboard) last(id string) events.Event {
	if h := w.history[id]; len(h) > 0 {
		return h[len(h)-1]
	}
	return events.Event{}
}

// A key keeps a hundred signals and 1 MiB, and a thousand steps wait under it: what is beyond is refused, and
// whoever sent it, or would wait, is told.
func TestAKeyIsBounded(t *testing.T) {
	const home = "@k/signal.pay"
	w, tell := desk(t)
	for range 101 {
		tell(events.Signal{Signal: "pay", Key: "k", Data: []byte("1")})
	}
	if e := w.last(home); e.Type != events.SignalDiscarded || e.Reason != events.SignalTooMany || e.Seq != 101 {
		t.Fatalf("of 101 signals the last is %+v", e)
	}
	w, tell = desk(t)
	half := []byte(`"` + strings.Repeat("x", events.MaxValue/2) + `"`)
	tell(events.Signal{Signal: "pay", Key: "k", Data: half})
	tell(events.Signal{Signal: "pay", Key: "k", Data: half})
	if e := w.last(home); e.Reason != events.SignalTooMany {
		t.Fatalf("beyond 1 MiB: %+v", e)
	}
	w, tell = desk(t)
	for n := range events.MaxWaits {
		tell(events.Want{Want: events.WantAwait, Signal: "pay", Key: "k", Order: "o", Step: "a", Wait: uint64(n + 1)})
	}
	d := tell(events.Want{Want: events.WantAwait, Signal: "pay", Key: "k", Order: "p", Step: "a", Wait: 2})
	if e := w.last(home); e.Type != events.WaitRefused || len(d.Messages) != 2 || d.Messages[1].Envelope.Order != "p" {
		t.Fatalf("one wait more: %+v, %+v", e, d.Messages)
	}
	tell(events.Submission{Workflow: "waits", Input: []byte(`{"k":"k","l":"k"}`)})
	tell(events.Pass{Order: "o", Step: "a", Wait: 2, Signal: "pay", Key: "k", Refused: "too many"})
	if o := w.records["o"]; o.State != projections.Error || o.Steps[0].State != projections.Failed || o.Steps[0].Error.Code != events.TooManyWaits || o.Alert == nil {
		t.Fatalf("an order whose wait is refused: %s, %+v", o.State, o.Steps[0])
	}
	again := Operate(w.env("o"), w.records["o"], &Input{Record: &Record{}, Order: "o", Command: &events.Command{Command: events.CommandResubmit}})
	if s := again.Order.Steps[0]; again.Order.State != projections.Pending || s.State != projections.Listening || s.Attempt != 2 {
		t.Fatalf("resubmitted it is %s, %+v", again.Order.State, s)
	}
	if k := again.Messages; !slices.ContainsFunc(k, func(m Message) bool { return m.Envelope.Type == events.SignalWanted }) {
		t.Fatal("the home is not told that it waits again")
	}
}

// A thousand ids are remembered: beyond that the oldest go, and one of them acts again.
func TestTheOldestIDsAreForgotten(t *testing.T) {
	const home = "@k/signal.box"
	w, tell := desk(t)
	tell(events.Want{Want: events.WantAwait, Signal: "box", Key: "k", Order: "o", Step: "d", Wait: 2})
	for n := range events.MaxOnce + 1 {
		id := fmt.Sprint(n)
		tell(events.Signal{Signal: "box", Key: "k", ID: id})
		tell(events.Want{Want: events.WantHeard, Signal: "box", Key: "k", Order: "o", Step: "d", Wait: 2, SignalID: id})
	}
	if n := len(w.records[home].Signals); n != events.MaxOnce {
		t.Fatalf("%d ids are remembered", n)
	}
	tell(events.Signal{Signal: "box", Key: "k", ID: "1"})
	if e := w.last(home); e.Reason != events.SignalRepeated {
		t.Fatalf("one that is remembered: %+v", e)
	}
	tell(events.Signal{Signal: "box", Key: "k", ID: "0"})
	if e := w.last(home); e.Type != events.SignalGiven {
		t.Fatalf("the oldest: %+v", e)
	}
}

// What does not fit into the output of the step that waits is refused, and the step goes on to wait.
func TestASignalUnderAKeyIsTooLarge(t *testing.T) {
	w, tell := desk(t)
	tell(events.Submission{Workflow: "waits", Input: []byte(`{"k":"k","l":"k"}`)})
	big := []byte(`"` + strings.Repeat("x", events.MaxValue*2/3) + `"`)
	p := events.Pass{Order: "o", Step: "d", Wait: 5, Signal: "box", Key: "k", SignalID: "s", Data: big, Source: "waybill.signals/0/1", Given: 3}
	if tell(p); w.last("o").Type != events.StepHeard {
		t.Fatalf("the first: %+v", w.last("o"))
	}
	p.SignalID, p.Source, p.Given = "t", "waybill.signals/0/2", 4
	d := tell(p)
	if d.Order != nil || len(d.Messages) != 1 || !strings.Contains(string(d.Messages[0].Value), `"reason":"too-large"`) {
		t.Fatalf("the second: %+v", d)
	}
	p.SignalID = "s" // which the order has heard
	if d = tell(p); len(d.Messages) != 1 || !strings.Contains(string(d.Messages[0].Value), `"reason":"repeated"`) {
		t.Fatalf("the first again: %+v", d)
	}
	// What is decided on when the order is released goes back, too.
	p.SignalID, p.Given = "v", 6
	held := Hold(w.env("o"), w.records["o"], nil, "so it is")
	w.records["o"] = held.Order
	if tell(p); w.last("o").Type != events.InputHeld {
		t.Fatalf("an order that is held: %+v", w.last("o"))
	}
	d = Operate(w.env("o"), w.records["o"], &Input{Record: &Record{}, Order: "o", Command: &events.Command{Command: events.CommandRelease}})
	if n := len(d.Messages); n == 0 || !strings.Contains(string(d.Messages[n-1].Value), `"signalId":"v","given":6,"reason":"too-large"`) {
		t.Fatalf("released it gives back %+v", d.Messages)
	}
	w.records["o"] = d.Order
	for _, other := range []events.Pass{{Order: "o", Step: "d", Wait: 4}, {Order: "o", Step: "a", Wait: 5}, {Order: "p", Step: "d", Wait: 5}} {
		other.Signal, other.Key, other.SignalID, other.Source, other.Given = "box", "k", "u", "waybill.signals/0/3", 5
		if d = tell(other); d.Order != nil || len(d.Messages) != 1 || strings.Contains(string(d.Messages[0].Value), "reason") {
			t.Fatalf("%+v: %+v", other, d)
		}
	}
}

// An older release could not read what follows, so nothing does before the upgrade is finished. An order that waits
// already is of a partition that has the format, and is not left waiting for nothing (S4).
func TestSignalsUnderKeysWaitForTheFormat(t *testing.T) {
	w, _ := desk(t)
	in := Read(&Record{Topic: w.topics.Signals, Raw: events.Raw{Value: []byte(`{"signal":"pay","key":"k"}`)}}, &w.topics, Place{Of: func([]byte) int32 { return 0 }})
	env := w.env(in.Order)
	env.Format = events.SignalKeysFormat - 1
	if d := On(env, nil, &in); d.Order != nil || len(d.Aside) != 1 || !strings.Contains(d.Aside[0].Reason, "finish the upgrade") {
		t.Errorf("%+v", d)
	}
	want := events.Want{Correlation: in.Order, Want: events.WantAwait, Signal: "pay", Key: "k", Order: "o", Step: "a", Wait: 2}
	in = Read(&Record{Topic: w.topics.Internal, Raw: events.Raw{
		Key: []byte(in.Order), Value: want.Append(nil), Headers: []events.RawHeader{{Key: events.HeaderType, Value: []byte(events.SignalWanted)}},
	}}, &w.topics, Place{Of: func([]byte) int32 { return 0 }})
	if d := On(env, nil, &in); d.Order == nil || len(d.Aside) > 0 || d.Order.Correlation.Wait("o", 2) < 0 {
		t.Errorf("an order waits: %+v", d)
	}
}

// S3: of a record that is no signal no key is known but its own. Where it is put aside does not hang on the order of its
// members.
func TestWhatIsHalfReadHasNoHome(t *testing.T) {
	w, _ := desk(t)
	of := func(id []byte) int32 {
		if string(id) == "o" {
			return 1
		}
		return 0
	}
	for _, value := range []string{
		`{"signal":"pay","key":"k","replyTo":5}`, `{"replyTo":5,"signal":"pay","key":"k"}`,
		`{"signal":"pay","key":"k","data":`, `{"signal":"pay","key":"k"}}`,
	} {
		for here := range int32(2) {
			in := Read(&Record{Topic: w.topics.Signals, Partition: here, Raw: events.Raw{Key: []byte("o"), Value: []byte(value)}}, &w.topics, Place{Here: here, Of: of})
			if in.Partition != 1 || in.Order != "o" || (in.Unreadable == "") != (here == 0) {
				t.Errorf("%s in partition %d: it belongs in %d, and to %q, unreadable: %q", value, here, in.Partition, in.Order, in.Unreadable)
			}
		}
	}
}

// T4: a signal with a key that is given no id has where it stands as its id: no sender gives that to another.
func TestNoIDIsThatOfAnother(t *testing.T) {
	for id, fine := range map[string]bool{"": true, "tx/7/b": true, "a/1/2/3": true, "waybill.signals/0/7": false, "x/12/0": false} {
		s := events.Signal{Signal: "paid", Key: "k", ID: id}
		if err := CheckSignal(&s); (err == nil) != fine {
			t.Errorf("id %q: %v", id, err)
		}
		s.Key = ""
		must(t, CheckSignal(&s))
	}
}

// S1: what is on its way to steps keeps nobody else who waits from a signal, however many these are.
func TestWhatIsOnItsWayIsNotKept(t *testing.T) {
	const home = "@k/signal.pay"
	w, tell := desk(t)
	for n := range 150 {
		tell(events.Want{Want: events.WantAwait, Signal: "pay", Key: "k", Order: fmt.Sprint("o-", n), Step: "a", Wait: 2})
	}
	for n := range 150 {
		if tell(events.Signal{Signal: "pay", Key: "k", ID: fmt.Sprint(n)}); w.last(home).Type != events.SignalGiven {
			t.Fatalf("signal %d: %+v", n, w.last(home))
		}
	}
	for n := range 101 {
		tell(events.Signal{Signal: "pay", Key: "k", ID: fmt.Sprint("more-", n)})
	}
	if e := w.last(home); e.Reason != events.SignalTooMany || w.history[home][len(w.history[home])-2].Type != events.SignalKept {
		t.Errorf("where nobody waits: %+v", e)
	}
}

// S3: a home that is held loses nothing of what those who wait tell it, though no more signals wait there than inputs of an
// order that is held.
func TestAHeldHomeIsTold(t *testing.T) {
	const home = "@k/signal.pay"
	w, tell := desk(t)
	await := func(n int) {
		tell(events.Want{Want: events.WantAwait, Signal: "pay", Key: "k", Order: fmt.Sprint("o-", n), Step: "a", Wait: 2})
	}
	await(0)
	w.records[home] = Hold(w.env(home), w.records[home], nil, "so it is").Order
	large := []byte(`"` + strings.Repeat("x", waitingBytes/4-1_000) + `"`)
	for n := range maxWaiting + 1 {
		s := events.Signal{Signal: "pay", Key: "k", ID: fmt.Sprint(n)}
		if n < 4 { // next to no bytes are left
			s.Data = large
		}
		tell(s)
	}
	if e := w.last(home); e.Type != events.InputDiscarded {
		t.Fatalf("a signal too many: %+v", e)
	}
	for n := range 150 {
		if await(n + 1); w.last(home).Type != events.InputHeld {
			t.Fatalf("wait %d: %+v", n+1, w.last(home))
		}
	}
	d := Operate(w.env(home), w.records[home], &Input{Record: &Record{}, Order: home, Command: &events.Command{Command: events.CommandRelease}})
	if n := len(d.Order.Correlation.Waits); n != 151 || len(d.Order.Waiting) > 0 {
		t.Errorf("released it has %d waits, and %d inputs wait", n, len(d.Order.Waiting))
	}
}

// S2: who has heard what was given up, since its dead letter was put back, waits no more.
func TestWhoHeardWaitsNoMore(t *testing.T) {
	const home = "@k/signal.pay"
	w, tell := desk(t)
	tell(events.Want{Want: events.WantAwait, Signal: "pay", Key: "k", Order: "o", Step: "a", Wait: 2})
	tell(events.Signal{Signal: "pay", Key: "k", ID: "s"})
	tell(events.Want{Want: events.WantUnheard, Signal: "pay", Key: "k", Order: "o", Step: "a", Wait: 2, SignalID: "s", Given: 2, Reason: events.SignalGivenUp})
	tell(events.Want{Want: events.WantHeard, Signal: "pay", Key: "k", Order: "o", Step: "a", Wait: 2, SignalID: "s", Over: true})
	if e := w.last(home); e.Type != events.WaitEnded {
		t.Errorf("%+v", e)
	}
}

// Of a thousand signals that are about to start orders the next is declined. However many orders are rejected, the
// home says so of each, and nothing of them is left.
func TestSignalsThatStartAreBounded(t *testing.T) {
	const home = "@k/signal.new"
	w, tell := desk(t)
	for range maxStarting + 1 {
		tell(events.Signal{Signal: "new", Key: "k", Data: []byte(`{"k":"k"}`)})
	}
	if e := w.last(home); e.Type != events.SignalDiscarded || e.Reason != events.SignalTooMany || len(w.records[home].Signals) != maxStarting {
		t.Fatalf("one more than may start orders: %+v", e)
	}
	for n := range uint64(maxStarting) {
		tell(events.Report{Parent: home, Step: fmt.Sprint(n + 1), Child: events.StartedID(home, n+1), State: "Rejected", Error: &events.Error{Code: "rejected"}})
	}
	if e := w.last(home); e.Reason != events.SignalRejected || e.Seq != 2*maxStarting+1 || len(w.records[home].Signals) != 0 {
		t.Fatalf("they are rejected: %+v, and %d are left", e, len(w.records[home].Signals))
	}
	tell(events.Report{Parent: home, Step: "1", Child: events.StartedID(home, 1), State: "Pending"})
	tell(events.Report{Parent: home, Step: "none", Child: events.StartedID(home, 0), State: "Pending"})
	if e := w.last(home); e.Seq != 2*maxStarting+1 {
		t.Errorf("what is told twice, or of nothing: %+v", e)
	}
}

// T4: an id that started an order, and is about to start another behind its time, is that of the other for whoever
// repeats it, although by a clock that was set back the first is remembered still.
func TestAnIDThatStartsAnotherOrder(t *testing.T) {
	const home = "@k/signal.new"
	w, tell := desk(t)
	signal := events.Signal{Signal: "new", Key: "k", ID: "s", Data: []byte(`{"k":"k"}`), KeepUntil: w.now.Add(time.Minute)}
	tell(signal)
	tell(events.Report{Parent: home, Step: "1", Child: events.StartedID(home, 1), State: "Pending"})
	if tell(signal); w.last(home).Reason != events.SignalRepeated || w.last(home).Child != "" {
		t.Errorf("of what has begun: %+v", w.last(home))
	}
	w.now, signal.KeepUntil = w.now.Add(2*time.Minute), time.Time{}
	if tell(signal); w.last(home).Type != events.SignalOrdered {
		t.Fatalf("behind its time: %+v", w.last(home))
	}
	want := w.last(home).Child
	w.now = w.now.Add(-90 * time.Second)
	if tell(signal); w.last(home).Reason != events.SignalRepeated || w.last(home).Child != want {
		t.Errorf("it starts order %s, and who repeats it is told %+v", want, w.last(home))
	}
}

// How long a signal is kept whose sender does not say is what the instance is told.
func TestHowLongSignalsAreKept(t *testing.T) {
	for keep, want := range map[time.Duration]time.Duration{0: events.SignalKeep, time.Hour: time.Hour} {
		w, _ := desk(t)
		env := w.env("@k/signal.pay")
		env.SignalKeep = keep
		r := &Record{Topic: w.topics.Signals, Raw: events.Raw{Value: []byte(`{"signal":"pay","key":"k"}`)}}
		in := Read(r, &w.topics, Place{Of: func([]byte) int32 { return 0 }})
		if d := On(env, nil, &in); !d.Order.Signals[0].Until.Equal(w.now.Add(want)) {
			t.Errorf("%v: it is kept until %v, and it is %v", keep, d.Order.Signals[0].Until, w.now)
		}
	}
}

// What is kept keeps nothing from starting orders, and what starts orders nothing from those who wait.
func TestKeptStartingAndAwaited(t *testing.T) {
	const home = "@k/signal.new"
	w, tell := desk(t)
	signal := events.Signal{Signal: "new", Key: "k", Data: []byte(`{"k":"k"}`)}
	start := w.flows
	w.flows = workflow.Set{}
	for range maxKept + 1 {
		tell(signal)
	}
	if e := w.last(home); e.Reason != events.SignalTooMany || len(w.records[home].Signals) != maxKept {
		t.Fatalf("%d are kept, and the next is %s %s", len(w.records[home].Signals), e.Type, e.Reason)
	}
	w.flows = start
	for range maxStarting {
		tell(signal)
	}
	if e := w.last(home); e.Type != events.SignalOrdered {
		t.Fatalf("the last is %s %s", e.Type, e.Reason)
	}
	w.records[home].Signals = w.records[home].Signals[maxKept:] // whoever waits would have these first
	if tell(signal); w.last(home).Reason != events.SignalTooMany {
		t.Fatalf("one more is %s", w.last(home).Type)
	}
	tell(events.Want{Signal: "new", Key: "k", Want: events.WantAwait, Order: "o-1", Step: "a", Wait: 2})
	if tell(signal); w.last(home).Type != events.SignalGiven {
		t.Errorf("to who waits it is %s %s", w.last(home).Type, w.last(home).Reason)
	}
}

// A home that is held has room for what all tell that it has begin; and one that is forgotten, and asked once more, tells
// whether it began.
func TestAHeldHomeHearsWhatBegan(t *testing.T) {
	const home = "@k/signal.new"
	w, tell := desk(t)
	for range maxStarting {
		tell(events.Signal{Signal: "new", Key: "k", Data: []byte(`{"k":"k"}`)})
	}
	w.records[home].Hold = &projections.Hold{}
	for n := range uint64(maxStarting) {
		tell(events.Report{Parent: home, Step: fmt.Sprint(n + 1), Child: events.StartedID(home, n+1), State: "Pending"})
	}
	if n := len(w.records[home].Waiting); n != maxStarting {
		t.Errorf("%d of %d wait", n, maxStarting)
	}
	for state, want := range map[projections.State]string{projections.Processed: "Pending", projections.Rejected: "Rejected"} {
		child := events.StartedID(home, 1)
		in := Input{Record: &Record{Topic: w.topics.Internal}, Order: child, Wish: &events.Wish{Wish: events.WishTell, Child: child, Parent: home, Step: "1"}}
		d := On(w.env(child), &projections.Order{ID: child, State: state, Forgotten: true}, &in)
		if d.Order != nil || len(d.Messages) != 1 {
			t.Fatalf("it is %+v", d)
		}
		r, err := events.Decode[events.Report](d.Messages[0].Value)
		must(t, err)
		if r.Parent != home || r.Step != "1" || r.Child != child || r.State != want || d.Messages[0].Envelope.Order != home {
			t.Errorf("of one that was %s it says %+v", state, r)
		}
	}
}
