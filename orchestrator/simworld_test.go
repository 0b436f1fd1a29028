package orchestrator

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/decide"
	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/orchestrator/proof"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/draw"
	"github.com/waybill-dev/waybill/test/inspect"
)

// The world around the instances of a simulation: applications, agents and
// operators, and how they write to Kafka.

func (s *simulation) draw(name string, low, high int) int { return draw.Int(s.T, name, low, high) }

// one draws whether what happens once in so many times does.
func (s *simulation) one(in int, name string) bool { return draw.One(s.T, name, in) }

func (s *simulation) amount(name string, low, high int) int { return draw.Amount(s.T, name, low, high) }

func (s *simulation) flip(name string) bool { return draw.Flip(s.T, name) }

func of[V any](s *simulation, name string, all ...V) V { return draw.Of(s.T, name, all...) }

// input puts a record on an input topic: now and then in the wrong partition, or
// in a transaction that ends later, or never.
func (s *simulation) input(topic string, kind events.Type, id string, value []byte, at time.Time, signature ...kgo.RecordHeader) {
	r := &kgo.Record{Topic: topic, Partition: s.of.Of([]byte(id)), Key: []byte(id), Value: value, Timestamp: at}
	if !s.one(6, "untyped") {
		r.Headers = []kgo.RecordHeader{{Key: events.HeaderType, Value: []byte(kind)}}
	}
	if r.Headers = append(r.Headers, signature...); s.flip("its sender is named") {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: events.HeaderSource, Value: []byte(of(s, "sender", "shop", "tool"))})
	}
	if trace := draw.Trace(id); topic == s.topics.Orders && trace != "" {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: events.HeaderTraceparent, Value: []byte(trace)})
	}
	if tracestate, baggage := draw.Passed(id); topic == s.topics.Orders {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: events.HeaderTracestate, Value: []byte(tracestate)}, kgo.RecordHeader{Key: events.HeaderBaggage, Value: []byte(baggage)})
	}
	if s.partitions > 1 && s.fault(10, "misrouted") {
		r.Partition = (r.Partition + 1) % s.partitions
	}
	if s.wide > s.partitions && s.fault(10, "on an added partition") {
		r.Partition = s.partitions + int32(s.draw("added", 0, int(s.wide-s.partitions)-1))
	}
	if s.fault(40, "unreadable") {
		r.Value = of(s, "instead", []byte("not json"), []byte(`{"order":"z"`), nil, []byte(`{"order":"else","status":"completed","workflow":7,"command":[]}`))
	}
	if s.fault(40, "another key") {
		r.Key = of(s, "key", nil, []byte{}, []byte("\xff"), []byte("somebody"))
	}
	if s.calm || !s.one(8, "in a transaction") {
		s.append(r, isCommitted)
		return
	}
	s.count.happened("an input stood in a transaction")
	c := s.callers[s.draw("caller", 0, len(s.callers)-1)]
	if len(c.places) == 0 {
		c.began = s.now
	}
	c.places = append(c.places, lane.TopicPartition{Topic: r.Topic, Partition: r.Partition})
	r.ProducerID = c.producer
	s.append(r, isOpen)
}

// endCaller ends the transaction of an application.
func (s *simulation) endCaller() {
	c := s.callers[s.draw("caller", 0, len(s.callers)-1)]
	if len(c.places) > 0 {
		s.end(c, !s.fault(3, "an application aborts"))
	}
}

func (s *simulation) submit() {
	value := fmt.Sprintf(`{"workflow":%q,"replyTo":%q`,
		[]string{"flow", "none"}[s.draw("workflow", 0, 15)/15],
		of(s, "replyTo", "", "shop.status", "shop.status", "waybill.replies"))
	version := of(s, "version", 0, 0, 0, 1, 1, 1, 1, 2, 2, 9)
	input := of(s, "input", `{"n":0}`, `{"n":2}`, `{"n":2}`, `{"n":3}`, `{"n":3}`, "7", "null", "")
	if s.next != nil || len(s.registered) > 1 { // which version is the newest may be a matter of time
		if version == 0 {
			input = `{"n":3}`
		} else if s.next != nil {
			version = 1
		}
	}
	if input != "" {
		value += `,"input":` + input
	}
	if version > 0 {
		value += fmt.Sprintf(`,"version":%d`, version)
	}
	value += of(s, "priority", "", "", "", "", "", "", `,"priority":"low"`, `,"priority":"high"`, `,"priority":"high"`, `,"priority":"urgent"`)
	if s.one(12, "hurry") {
		value += fmt.Sprintf(`,"deadline":%q`, events.AppendTime(nil, s.now.Add(time.Duration(s.amount("deadline", -500, 20_000))*time.Millisecond)))
	}
	value += of(s, "labels", "", "", "", "", "", `,"labels":{"region":"eu"}`, `,"labels":{"region":"us","a.b":""}`, `,"labels":{"n":"1"}`)
	value += of(s, "rerun", "", "", "", "", "", `,"rerunOf":"o-0"`, `,"rerunOf":"o-1"`)
	value += of(s, "submitter", "", "", `,"by":"sam"`)
	id := draw.Order(s.T)
	s.input(s.topics.Orders, events.OrderSubmitted, id, []byte(value+"}"), s.now, s.sign(id, []byte(value+"}"))...)
}

// sign says who is behind a submission, or a command, as an instance does that took it over HTTP. Now and then somebody says so
// who has no key of the namespace, or who said it so long ago that it does not count any more.
func (s *simulation) sign(id string, value []byte) []kgo.RecordHeader {
	keys, at := s.keys, s.now
	switch {
	case keys == nil || !s.flip("its author is known"):
		return nil
	case s.one(8, "its signature is forged"):
		keys = proof.New([]proof.Key{{ID: "k", Secret: []byte("of somebody else")}}, proof.Off, nil)
	case s.one(8, "its signature is old"):
		at = at.Add(-30 * time.Hour)
	}
	author := &events.Actor{Method: "key", Roles: []string{"operator"}, At: events.Time(at)}
	if s.flip("he may decide") {
		author.Roles = append(author.Roles, events.ApproverRole("clerk"))
	}
	return []kgo.RecordHeader{{Key: events.HeaderActor, Value: keys.Sign(s.topics.Namespace, id, value, author)}}
}

// asked are the requests that agents can see, the last ones first.
func (s *simulation) asked(limit int) []events.Request {
	var all []events.Request
	for n := range 3 {
		for p := range s.partitions {
			log := s.log(lane.TopicPartition{Topic: s.topics.Requests(fmt.Sprint("a", n)), Partition: p})
			for i, found := log.stable-1, 0; i >= 0 && found < limit; i-- {
				if r := log.records[i]; r.state == isCommitted {
					m, err := events.Decode[events.Request](r.Value)
					must(s.T, err)
					all = append(all, m)
					found++
				}
			}
		}
	}
	return all
}

// answer has an agent reply to what it was asked, now or again, in time or late.
func (s *simulation) answer() {
	asked := s.asked(3)
	if len(asked) == 0 {
		return
	}
	m := asked[s.draw("request", 0, len(asked)-1)]
	r := events.Reply{Order: m.Order, Step: m.Step, Attempt: m.Attempt, Undo: m.Undo, Token: m.Token}
	if m.Token != "" && s.one(4, "another token") {
		r.Token = of(s, "token", "", "k."+m.Token, "k2"+m.Token, asked[0].Token)
	}
	if s.one(12, "another attempt") {
		r.Attempt = s.draw("attempt", -1, 4)
	}
	if s.one(12, "another step") {
		r.Step = draw.Step(s.T)
	}
	if s.one(12, "the other") {
		r.Undo = !r.Undo
	}
	if s.one(4, "still at it") {
		s.progress(r)
		return
	}
	s.reply(r)
}

// progress has an agent say that it is still at it.
func (s *simulation) progress(r events.Reply) {
	r.Status = events.ReplyProgress
	s.input(s.topics.Replies, events.StepReplied, r.Order, r.Append(nil), s.clock())
}

// clock is what an agent takes for now.
func (s *simulation) clock() time.Time {
	if s.one(10, "another clock") {
		return s.now.Add(time.Duration(s.amount("ahead", -3_000, 3_000)*of(s, "times", 1, 1, 1_000)) * time.Millisecond)
	}
	return s.now
}

// serve has the agents do what they were asked last, and never answered.
func (s *simulation) serve() (found bool) {
	for _, m := range s.asked(4) {
		if key := fmt.Sprint(m.Order, m.Step, m.Attempt, m.Undo); !s.answered[key] && (s.calm || !s.one(4, "silent")) {
			if !m.ExtendTo.IsZero() && s.flip("still at it") {
				s.progress(events.Reply{Order: m.Order, Step: m.Step, Attempt: m.Attempt, Undo: m.Undo, Token: m.Token})
				if !s.calm && s.flip("for long") {
					found = true
					continue
				}
			}
			s.answered[key] = true
			s.reply(events.Reply{Order: m.Order, Step: m.Step, Attempt: m.Attempt, Undo: m.Undo, Token: m.Token})
			found = true
		}
	}
	return found
}

func (s *simulation) reply(r events.Reply) {
	r.Status = events.ReplyCompleted
	if s.one(5, "failed") {
		r.Status = events.ReplyFailed
		r.Error = of(s, "error", nil, &events.Error{Code: "busy"}, &events.Error{Code: "busy"}, &events.Error{Code: "gone", Permanent: true}, &events.Error{Code: "unknown-operation", Permanent: true})
	} else if r.Step == "page" { // the cursor is another for each
		r.Output = of(s, "page", []byte(`{"items":[1]}`), []byte(`{"items":[],"cursor":null}`), fmt.Appendf(nil, `{"items":[1,2,3],"cursor":%q}`, r.Order), []byte(`{"n":3}`))
	} else if output := of(s, "output", `{"n":3}`, `{"n":3}`, `{"n":4}`, "null", ""); output != "" {
		r.Output = []byte(output)
	}
	s.input(s.topics.Replies, events.StepReplied, r.Order, r.Append(nil), s.clock())
}

// flood has an agent that answers again and again, an application whose signals nobody
// listens for, or an operator who sends what cannot be done; now and then that begins with an answer that counts.
func (s *simulation) flood() {
	asked := s.asked(3)
	if len(asked) == 0 || !s.one(8, "a flood") {
		return
	}
	m := asked[s.draw("request", 0, len(asked)-1)]
	r := &kgo.Record{Topic: s.topics.Replies, Partition: s.of.Of([]byte(m.Order)), Key: []byte(m.Order), Timestamp: s.now}
	r.Value = (&events.Reply{Order: m.Order, Step: m.Step, Attempt: m.Attempt, Undo: m.Undo, Token: of(s, "token", m.Token, ""), Status: events.ReplyCompleted, Output: []byte(`{"n":3}`)}).Append(nil)
	switch of(s, "flood of", "replies", "commands", "signals") {
	case "commands":
		r.Topic, r.Value = s.topics.Commands, []byte(`{"command":"repeat"}`)
	case "signals":
		r.Topic, r.Value = s.topics.Signals, []byte(`{"signal":"other"}`)
	}
	for range decide.MaxVoid + s.amount("more", -5, 20) {
		s.append(r, isCommitted)
	}
}

// keyed says that steps may listen under keys, or that signals under them start orders.
func (s *simulation) keyed() bool {
	return slices.ContainsFunc(s.registered, func(flow *workflow.Workflow) bool {
		return flow.Start != nil || slices.ContainsFunc(flow.Steps, func(step workflow.Step) bool { return step.Listen != nil && step.Listen.Key != nil })
	})
}

// signal sends signals, to orders that listen or not.
func (s *simulation) signal(id string) {
	for range s.draw("signals", 1, 3) {
		m := draw.Signal(s.T)
		if s.keyed() && s.one(1, "under a key") {
			m.Key = of(s, "key", "1", "2")
		}
		if s.flip("kept for a moment") {
			m.KeepUntil = s.now.Add(time.Duration(s.amount("kept", -100, 1_000)) * time.Millisecond)
		}
		if s.one(3, "answered") {
			m.ReplyTo = "shop.answers"
		}
		value, err := m.Encode()
		must(s.T, err)
		s.input(s.topics.Signals, events.OrderSignal, id, value, s.now)
	}
}

// decide sends what somebody decides, whether he is asked or not.
func (s *simulation) decide(id, step string) {
	s.command(id, events.Command{
		Command: events.CommandDecide, Step: step, By: of(s, "who", "ana", "bob", "kim", "sam", ""), Outcome: of(s, "outcome", "approved", "approved", "declined", "later"),
	})
}

// agree has people decide what they are asked in the end, or leave it to the timeout. It says whether anybody did.
func (s *simulation) agree(all []simOrder) (found bool) {
	for _, o := range all {
		for i := range o.Steps {
			step := &o.Steps[i]
			if step.State != projections.Approving {
				continue
			}
			key := fmt.Sprint(o.ID, step.Name, step.Attempt, len(step.Approves.Decisions))
			if !s.told[key] && !s.one(4, "nobody decides") {
				s.decide(o.ID, step.Name)
				found = true
			}
			s.told[key] = true
		}
	}
	return found
}

// operate sends a command, with a sense or without.
func (s *simulation) operate() {
	c := events.Command{
		Command: of(s, "command", events.CommandCancel, events.CommandResubmit, events.CommandResubmit, events.CommandSkipStep,
			events.CommandPause, events.CommandResume, events.CommandRelease, events.CommandRelease, events.CommandLabel, events.CommandTerminate, events.CommandChange, events.CommandMigrate, "repeat"),
		By:      of(s, "by", "ana", ""),
		Note:    of(s, "note", "why not", ""),
		Discard: s.flip("discard"), SameKey: s.one(4, "sameKey"), NewKey: s.one(4, "newKey"),
	}
	if c.Command == events.CommandChange {
		c.Priority, c.NoDeadline = of(s, "priority", "", events.High, events.Low), s.one(4, "no deadline")
		if s.flip("another deadline") {
			c.Deadline = s.now.Add(time.Duration(s.amount("deadline", -1, 60)) * time.Second)
		}
	}
	if c.Command == events.CommandSkipStep || s.one(4, "named") {
		c.Step = draw.Step(s.T)
	}
	if c.Command == events.CommandMigrate || c.Command == events.CommandResubmit && s.one(8, "as another version") {
		c.ToVersion, c.Map = of(s, "to", 2, 2, 2, 1, 3), draw.Names(s.T)
	}
	if c.Command == events.CommandLabel {
		c.Labels = draw.Labels(s.T)
	}
	if s.one(4, "payload") {
		c.Input, c.Output = []byte(`{"n":5}`), []byte(`{"n":6}`)
	}
	s.command(draw.Order(s.T), c)
}

func (s *simulation) command(id string, c events.Command) {
	if !s.one(6, "without an id") {
		s.commands++
		c.ID = fmt.Sprint("c-", s.commands-of(s, "again", 0, 0, 0, 1))
	}
	value, err := c.Encode()
	must(s.T, err)
	var signature []kgo.RecordHeader
	if c.ID != "" { // no instance signs another
		signature = s.sign(id, value)
	}
	s.input(s.topics.Commands, events.OrderCommand, id, value, s.now, signature...)
}

// putBack has an operator put dead letters back: now and then one that was put back before, or that is about what was
// over long ago.
func (s *simulation) putBack() {
	if letters := slices.Collect(s.read(s.topics.DeadLetters)); len(letters) > 0 {
		for range s.draw("letters", 1, 3) {
			s.replay(letters[s.draw("letter", 0, len(letters)-1)])
		}
	}
}

// putAllBack is the same of all that there are, but for those that it put back before. It says whether there was one.
func (s *simulation) putAllBack() (found bool) {
	for _, letter := range slices.Collect(s.read(s.topics.DeadLetters)) {
		if at := fmt.Sprint("dead letter ", letter.Partition, "/", letter.Offset); !s.told[at] {
			s.told[at] = true
			found = s.replay(letter) || found
		}
	}
	return found
}

// replay puts a dead letter back, as it is or corrected, if the product says that something may come of it.
func (s *simulation) replay(letter *kgo.Record) bool {
	desk := &Instance{topics: s.topics, partitions: s.partitions}
	replay := new(Replay)
	if s.one(3, "corrected") {
		replay.By = of(s, "by", "", "ana", "sam")
		topic, _, _ := strings.Cut(events.Header(letter, lane.HeaderSource), "/")
		replay.Value = map[string][]byte{
			s.topics.Orders:   []byte(`{"workflow":"flow","version":1,"input":{"n":3},"by":"sam"}`),
			s.topics.Replies:  (&events.Reply{Order: string(letter.Key), Step: draw.Step(s.T), Attempt: 1, Status: events.ReplyCompleted}).Append(nil),
			s.topics.Commands: []byte(`{"command":"resume","by":"ana"}`),
			s.topics.Signals:  []byte(`{"signal":"go","data":1}`),
			s.topics.Internal: []byte(`{}`), // which nobody may
		}[topic]
	}
	again, err := desk.replayed(letter, replay.Value)
	if err != nil || desk.accepts(again.Record, replay) != nil {
		return false
	}
	s.count.happened("a dead letter was put back on " + again.Topic)
	if replay.Value != nil {
		s.count.happened("a dead letter was corrected")
	}
	again.Partition, again.Timestamp = desk.Partition(string(again.Key)), s.now
	s.append(again.Record, isCommitted)
	return true
}

// scheduled are the ids of the schedules.
var scheduled = []string{"@nightly", "@often"}

// arrange has somebody do something to a schedule.
func (s *simulation) arrange() {
	if !s.schedules {
		return
	}
	c := events.Command{Command: of(s, "act", events.CommandApply, events.CommandApply, events.CommandPause, events.CommandResume, events.CommandBackfill, events.CommandBackfill, events.CommandDelete)}
	switch c.Command {
	case events.CommandApply:
		every := s.draw("every", 10, 60) // so that nothing is to do between
		says := events.Schedule{
			Every: fmt.Sprintf("%ds", every), Workflow: of(s, "workflow", "flow", "flow", "flow", "none"), Version: of(s, "version", 0, 1, 1),
			Input:   []byte(`{"n":3}`),
			Overlap: of(s, "overlap", "", events.OverlapQueueOne, events.OverlapQueue, events.OverlapCancel, events.OverlapAllow),
			CatchUp: of(s, "catch-up", "", events.CatchUpLatest, events.CatchUpAll), Jitter: of(s, "jitter", "", "", "2s"), Window: of(s, "window", "", "", "20s"),
		}
		if says.Overlap == events.OverlapAllow || s.flip("it ends") { // else a clock that jumps would begin a hundred orders
			says.End = s.now.Add(time.Duration(s.amount("ticks", 0, 6)*every) * time.Second).Truncate(time.Second)
		}
		c.Schedule = &says
	case events.CommandBackfill:
		c.To = s.now.Add(-time.Duration(s.amount("until", 0, 60)) * time.Second)
		c.From, c.AtOnce = c.To.Add(-time.Duration(s.amount("from", 0, 90))*time.Second), s.draw("at once", 0, 2)
	}
	id := of(s, "schedule", scheduled...)
	if s.command(id, c); c.Command == events.CommandPause && s.flip("and resumed") {
		s.command(id, events.Command{Command: events.CommandResume})
	}
}

// simLimits are the ids of the limits that some workflows name.
var simLimits = []string{events.LimitID("one"), events.LimitID("two"), events.LimitID("paced")}

// limited says that workflows name limits.
func (s *simulation) limited() bool {
	return slices.ContainsFunc(s.registered, func(flow *workflow.Workflow) bool { return flow.Level() >= 7 })
}

// restrict has somebody apply a limit, or delete one, where workflows name some.
func (s *simulation) restrict() {
	if !s.limited() {
		return
	}
	c := events.Command{Command: of(s, "act on a limit", events.CommandApply, events.CommandApply, events.CommandApply, events.CommandDelete)}
	id := of(s, "limit of steps", simLimits...)
	if c.Command == events.CommandApply {
		c.Limit = &events.Limit{AtATime: s.draw("at a time", 1, 2)}
		if id == simLimits[2] {
			c.Limit = &events.Limit{AtATime: s.draw("at a time", 0, 3), ASecond: s.draw("a second", 1, 3)}
		}
	}
	s.command(id, c)
}

// open has there be all limits, so that what names one comes to an end. It says whether one was not.
func (s *simulation) open() (found bool) {
	for _, l := range s.instances[0].lanes {
		for _, id := range simLimits {
			o, err := l.state.Order(id)
			must(s.T, err)
			if !s.limited() || s.of.Of([]byte(id)) != l.partition || l.state.Head().Format() < events.LimitsFormat || o != nil && (o.Hold != nil || o.Places.Says != nil) {
				continue
			}
			found = true
			s.command(id, events.Command{Command: events.CommandApply, Limit: &events.Limit{AtATime: 1, ASecond: 10}})
		}
	}
	return found
}

// pace has as many items of steps be under way at a time as an operator says, where some are.
func (s *simulation) pace(in *simInstance) {
	if !in.up {
		return
	}
	for _, o := range s.orders(in) {
		for i := range o.Steps {
			if step := &o.Steps[i]; step.Each != nil && step.State == projections.Running {
				s.command(o.ID, events.Command{Command: events.CommandChange, Step: step.Name, AtOnce: s.draw("at once", 1, 4)})
			}
		}
	}
}

// retire deletes schedules that would go on for ever. It says whether there was one.
func (s *simulation) retire(all []simOrder) (found bool) {
	for _, o := range all {
		if o.Schedule == nil || o.Schedule.Says == nil || !o.Schedule.Says.End.IsZero() && !o.Paused && o.Hold == nil {
			continue
		}
		found = true
		s.command(o.ID, events.Command{Command: events.CommandDelete})
	}
	return found
}

// manage has an operator see to an order that waits for one. It says whether
// there was anything to do.
func (s *simulation) manage(o *projections.Order) bool {
	var acts []events.Command
	act := func(command string) { acts = append(acts, events.Command{Command: command}) }
	switch {
	case o.State.Final(), o.Schedule != nil, o.Places != nil && o.Hold == nil:
		return false
	case o.Hold != nil:
		act(events.CommandRelease)
		if len(o.Waiting) > 0 {
			acts = append(acts, events.Command{Command: events.CommandRelease, Discard: true})
		}
	case o.Paused:
		act(events.CommandResume)
	case o.State == projections.Error:
		act(events.CommandResubmit)
		acts = append(acts, events.Command{Command: events.CommandResubmit, NewKey: true}, events.Command{Command: events.CommandResubmit, SameKey: true})
		if step := inspect.Stumbling(o); step != "" {
			acts = append(acts,
				events.Command{Command: events.CommandSkipStep, Step: step, Output: []byte(`7`)},
				events.Command{Command: events.CommandResubmit, Step: step, Input: []byte(`{"n":8}`), SameKey: true})
		}
		if o.Toward == "" {
			act(events.CommandCancel)
		}
	default:
		return false
	}
	s.command(o.ID, of(s, "act", acts...))
	return true
}

// simFlow draws a workflow. One in three gives a step an hour and no second
// attempt: nothing that gets lost there heals by itself.
func simFlow(t *rapid.T, name string, version int, orders ...string) string {
	var source strings.Builder
	fmt.Fprintf(&source, "workflow: %s\nversion: %d\nsteps:\n", name, version)
	for i := range rapid.IntRange(2, 5).Draw(t, "steps") {
		after := ""
		if i > 0 {
			after = fmt.Sprint("s", rapid.IntRange(0, i-1).Draw(t, "after"))
		}
		if len(orders) > 0 && rapid.Bool().Draw(t, "orders") {
			if rapid.IntRange(0, 2).Draw(t, "itemized") == 2 {
				by := "order: " + rapid.SampledFrom(orders).Draw(t, "order")
				if rapid.Bool().Draw(t, "inner") {
					by = "steps: [{name: inner, agent: a0, timeout: 1h, retry: {attempts: 1}, undo: back}]"
				}
				items := rapid.SampledFrom([]string{"'[1, 2, 3, 4, 5]'", "{agent: a1, do: list, timeout: 1h, retry: {attempts: 1}}"}).Draw(t, "items")
				fmt.Fprintf(&source, "  - {name: s%d, each: {items: %s, %s, atOnce: %d, tolerate: %d, onFailure: %s}, after: [%s], exhausted: compensate}\n", i, items, by,
					rapid.IntRange(1, 4).Draw(t, "at once"), rapid.IntRange(0, 2).Draw(t, "tolerate"), rapid.SampledFrom([]string{"stop", "finish"}).Draw(t, "on failure"), after)
				continue
			}
			fmt.Fprintf(&source, "  - {name: s%d, order: %s, after: [%s], exhausted: compensate}\n", i, rapid.SampledFrom(orders).Draw(t, "order"), after)
			continue
		}
		fmt.Fprintf(&source, "  - {name: s%d, agent: a%d, after: [%s], timeout: 1h, retry: {attempts: 1}, undo: back, exhausted: %s}\n",
			i, rapid.IntRange(0, 2).Draw(t, "agent"), after, rapid.SampledFrom([]string{"error", "compensate"}).Draw(t, "exhausted"))
	}
	return source.String()
}
