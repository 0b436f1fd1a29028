package decide

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/inspect"
)

// An order with many steps at once, or large ones, is begun in parts, of which none is
// too much; and so it is undone.
func TestAWideOrderIsBegunInParts(t *testing.T) {
	const steps = 1_000
	for name, input := range map[string]int{"many": 10, "large": 900_000} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			defer s.close()
			s.takeOver(t, "i-1")
			var source strings.Builder
			source.WriteString("workflow: wide\nsteps:\n")
			steps := steps
			if input > 1_000 {
				steps = 50
			}
			for n := range steps {
				fmt.Fprintf(&source, "  - {name: s%d, agent: a, after: [], undo: back, timeout: 1h}\n", n)
			}
			s.flows.Add(parseFlow(t, source.String()))
			began := make(map[string]bool)
			part := func(what events.Type, by Decision) {
				t.Helper()
				size, starts := 0, 0
				for i := range by.Messages {
					m := &by.Messages[i]
					size += len(m.Value)
					if m.Topic == s.topics.Requests("a") {
						starts++
						began[m.Envelope.ID] = true
					}
				}
				if starts > beginAtOnce || size > writeAtOnce+2*events.MaxValue+steps*400 {
					t.Fatalf("%s: one decision begins %d attempts, and has %d bytes", what, starts, size)
				}
				s.take(by)
				s.commit(t)
			}
			value := events.Submission{Workflow: "wide", Input: []byte(`"` + strings.Repeat("x", input) + `"`)}
			part(events.OrderAccepted, Submit(s.env("o"), nil, &Input{Record: new(Record), Order: "o", Submission: value}))
			all := func(want int) {
				t.Helper()
				for looks := 0; len(began) < want; looks++ {
					must(t, s.state.Flush())
					due, err := s.state.Due(s.now, page)
					must(t, err)
					if len(due) == 0 {
						t.Fatalf("%d of %d began", len(began), want)
					}
					for _, d := range due {
						part(events.StepStarted, Supervise(s.env("o"), s.of(t, "o"), d.Step))
					}
				}
			}
			all(steps)
			for n := range steps {
				if n == 0 {
					continue
				}
				s.take(TakeReply(s.env("o"), s.of(t, "o"), read(&events.Reply{Order: "o", Step: fmt.Sprint("s", n), Attempt: 1, Status: events.ReplyCompleted}, s.now)))
				s.commit(t)
			}
			part(events.OrderCancelled, Operate(s.env("o"), s.of(t, "o"), &Input{Command: &events.Command{Command: events.CommandCancel}}))
			all(2*steps - 1)
			if o := s.of(t, "o"); o.State != projections.Compensating {
				t.Errorf("it is %s", o.State)
			}
		})
	}
}

// However many steps look at a large input, wait for their agent, or for a transaction of their own,
// a decision decodes it once, and makes what a transaction holds of it.
func TestAWideOrderReadsItsInputOnce(t *testing.T) {
	const steps = 500
	input := `{"x":1,"y":[` + strings.Repeat(`"abcdefgh",`, 80_000) + `1]}`
	for _, expression := range []string{"with: input.x", "when: input.x == 1", "with: input"} {
		for _, room := range []bool{false, true} {
			s := newStage(t)
			s.takeOver(t, "i-1")
			var source strings.Builder
			source.WriteString("workflow: wide\nsteps:\n")
			for n := range steps {
				fmt.Fprintf(&source, "  - {name: s%d, agent: a, after: [], timeout: 1h, %s}\n", n, expression)
			}
			s.flows.Add(parseFlow(t, source.String()))
			env := s.env("o")
			env.Room = func(*Ask) bool { return room }
			decides := func(what string, most uint64, decide func() Decision) {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				d := decide()
				runtime.ReadMemStats(&after)
				if took := after.TotalAlloc - before.TotalAlloc; took > most<<20 {
					t.Errorf("%s, room %t: %s takes %d MiB", expression, room, what, took>>20)
				}
				s.take(d)
				s.commit(t)
			}
			decides("the submission", 200, func() Decision { // 20 to decode it, and what it makes of it
				return Submit(env, nil, &Input{Record: new(Record), Order: "o", Submission: events.Submission{Workflow: "wide", Input: []byte(input)}})
			})
			o, most := s.of(t, "o"), uint64(200)
			if !room {
				o.Steps[0].State, o.Steps[0].Attempt, o.Steps[0].Due, o.Steps[0].CompleteBy = projections.Running, 1, time.Time{}, s.now.Add(time.Hour)
				most = 1 // nothing can begin
			}
			decides("a reply", most, func() Decision {
				return TakeReply(env, o, read(&events.Reply{Order: "o", Step: "s0", Attempt: 1, Status: events.ReplyCompleted}, s.now))
			})
			s.close()
		}
	}
}

// What the expressions of one order cost keeps others of its partition waiting for a moment at
// most: inputs that are dear are made in parts, and conditions that are dear together fail.
func TestDearExpressions(t *testing.T) {
	const dear = "input.all(i, input.all(j, i + j > 0))"
	submit := func(expression string, steps int) (*stage, int) {
		s := newStage(t)
		s.takeOver(t, "i-1")
		var source strings.Builder
		source.WriteString("workflow: wide\nsteps:\n")
		for n := range steps {
			fmt.Fprintf(&source, "  - {name: s%d, agent: a, after: [], timeout: 1h, %s}\n", n, expression)
		}
		s.flows.Add(parseFlow(t, source.String()))
		input := "[1" + strings.Repeat(",1", 150) + "]"
		s.take(Submit(s.env("o"), nil, &Input{Record: new(Record), Order: "o", Submission: events.Submission{Workflow: "wide", Input: []byte(input)}}))
		s.commit(t)
		running := 0
		for _, step := range s.of(t, "o").Steps {
			if step.State == projections.Running {
				running++
			}
		}
		return s, running
	}
	inputs, running := submit(`with: "`+strings.Replace(dear, "all(i", "map(i", 1)+`"`, 99)
	defer inputs.close()
	if o := inputs.of(t, "o"); running == 0 || running > 90 || o.State != projections.Processing || o.Steps[98].Due.IsZero() {
		t.Errorf("of 99 dear inputs %d are made at once, the order is %s", running, o.State)
	}
	conditions, running := submit(`when: "`+dear+`"`, 1_000)
	defer conditions.close()
	if o := conditions.of(t, "o"); running == 0 || o.State != projections.Error || !strings.Contains(o.Reason, "cost too much together") {
		t.Errorf("with 1,000 dear conditions %d steps run, the order is %s: %s", running, o.State, o.Reason)
	}
}

// What waits in an order is decided on in parts, too, where the expressions behind it are dear.
func TestDearExpressionsBehindWhatWaits(t *testing.T) {
	const gates, behind = 4, 80
	s := newStage(t)
	defer s.close()
	s.takeOver(t, "i-1")
	var source strings.Builder
	source.WriteString("workflow: wide\nsteps:\n")
	for g := range gates {
		fmt.Fprintf(&source, "  - {name: g%d, agent: a, after: [], timeout: 1h}\n", g)
		for n := range behind {
			fmt.Fprintf(&source, "  - {name: g%d-%d, agent: a, after: [g%d], timeout: 1h, when: \"input.exists(i, input.exists(j, i + j < 0))\"}\n", g, n, g)
		}
	}
	s.flows.Add(parseFlow(t, source.String()))
	s.take(Submit(s.env("o"), nil, &Input{Record: new(Record), Order: "o", Submission: events.Submission{Workflow: "wide", Input: []byte("[1" + strings.Repeat(",1", 149) + "]")}}))
	s.commit(t)
	newer := 1 // a release that does not run the workflow has the replies wait
	env := func() *Env {
		env := s.env("o")
		env.Newer = func(string, int) int { return newer }
		return env
	}
	for g := range gates {
		value := fmt.Appendf(nil, `{"order":"o","step":"g%d","attempt":1,"status":"completed"}`, g)
		r := &Record{Topic: s.topics.Replies, Offset: int64(100 + g), Raw: events.Raw{Key: []byte("o"), Value: value, Written: s.now}}
		in := Read(r, &s.topics, Place{Of: func([]byte) int32 { return 0 }})
		s.take(On(env(), s.of(t, "o"), &in))
		s.commit(t)
	}
	newer = 0
	for n := gates; n > 0; n-- {
		if o := s.of(t, "o"); len(o.Waiting) != n {
			t.Fatalf("%d replies wait, and not %d", len(o.Waiting), n)
		}
		s.take(Supervise(env(), s.of(t, "o"), ""))
		s.commit(t)
	}
	if o := s.of(t, "o"); o.State != projections.Processed {
		t.Errorf("the order is %s: %s", o.State, o.Reason)
	}
}

// released is a stage on which an order waits for its release.
type released struct{ *stage }

// newReleased begins an order of so many steps, after each of which as many others come,
// and has so many replies wait for its release, which come next.
func newReleased(t *testing.T, format, steps, after int) *released {
	r := &released{newStage(t)}
	t.Cleanup(r.close)
	r.format = format
	r.takeOver(t, "i-1")
	var source strings.Builder
	source.WriteString("workflow: wide\nsteps:\n")
	for n := range steps {
		fmt.Fprintf(&source, "  - {name: s%d, agent: a, after: [], timeout: 1h}\n", n)
		for m := range after {
			fmt.Fprintf(&source, "  - {name: s%d-%d, agent: a, after: [s%d], timeout: 1h}\n", n, m, n)
		}
	}
	r.flows.Add(parseFlow(t, source.String()))
	input := []byte(`"` + strings.Repeat("x", 900_000) + `"`)
	r.orders = append(r.orders, submission{id: "o", value: events.Submission{Workflow: "wide", Input: input}})
	r.reads(t)
	for r.looks(t) > 0 {
	}
	r.cursed["o"] = true
	return r
}

// reply has a step answered.
func (r *released) reply(t *testing.T, step, output string) {
	value := events.Reply{Order: "o", Step: step, Attempt: 1, Status: events.ReplyCompleted, Output: jsontext.Value(output)}
	r.replies = append(r.replies, reply{id: "o", value: value, written: r.now})
	r.reads(t)
}

// command has an operator act, on an order on which deciding does not panic any more.
func (r *released) command(t *testing.T, does string) {
	r.cursed["o"] = false
	r.commands = append(r.commands, command{id: "o", value: events.Command{Command: does, ID: fmt.Sprint("c-", len(r.commands))}})
	r.reads(t)
}

// reads decides on what came, which is no more than one decision may be.
func (r *released) reads(t *testing.T) {
	t.Helper()
	r.read(t)
	r.bounded(t)
}

// looks has the supervisor look once, and returns how much was due.
func (r *released) looks(t *testing.T) int {
	t.Helper()
	must(t, r.state.Flush())
	due, err := r.state.Due(r.now, page)
	must(t, err)
	for _, d := range due {
		r.take(Supervise(r.env("o"), r.of(t, "o"), d.Step))
		r.bounded(t)
	}
	return len(due)
}

// bounded commits a decision.
func (r *released) bounded(t *testing.T) {
	t.Helper()
	size, starts := 0, 0
	for _, record := range r.commit(t) {
		size += len(record.Value)
		if record.Topic == r.topics.Requests("a") {
			starts++
		}
	}
	if r.format >= 2 && (starts > beginAtOnce || size > writeAtOnce+4*events.MaxValue) {
		t.Fatalf("one decision begins %d attempts, and has %d bytes", starts, size)
	}
}

// A release is no larger than any other decision, however much waits: what is left is
// decided on next, before anything that comes meanwhile. In the first format all of it is
// decided on at once, because a release of before would pass over the rest.
func TestAReleaseIsDoneInParts(t *testing.T) {
	const steps, after = 20, 2
	for _, format := range []int{1, 2} {
		t.Run(fmt.Sprint("format ", format), func(t *testing.T) {
			r := newReleased(t, format, steps, after)
			for n := range steps {
				r.reply(t, fmt.Sprint("s", n), "")
			}
			r.command(t, events.CommandRelease)
			waiting := len(r.of(t, "o").Waiting)
			if format == 1 {
				if waiting > 0 {
					t.Errorf("%d wait where an older release may go on", waiting)
				}
				return
			}
			if waiting == 0 || waiting == steps {
				t.Fatalf("%d wait", waiting)
			}
			r.reply(t, "s0-0", "")
			r.command(t, events.CommandPause)
			if o := r.of(t, "o"); o.Paused || len(o.Waiting) == 0 || o.Step("s0-0").State != projections.Running {
				t.Errorf("what came meanwhile was not in its turn; %d wait", len(o.Waiting))
			}
			for r.looks(t) > 0 {
			}
			o := r.of(t, "o")
			if len(o.Waiting) > 0 || o.Step("s0-0").State != projections.Completed || o.Step(fmt.Sprintf("s%d-0", steps-1)).State != projections.Running {
				t.Errorf("it did not go on; %d wait", len(o.Waiting))
			}
			r.check(t, inspect.New())
		})
	}
}

// Nobody looks at an order that ended while it was released: nothing waits in it then.
func TestAReleaseThatEndsTheOrderIsWhole(t *testing.T) {
	r := newReleased(t, events.JournalFormat, 1, 9)
	r.reply(t, "s0", "")
	for n := range 8 {
		r.reply(t, fmt.Sprint("s0-", n), "") // somebody knew that they would begin
	}
	r.reply(t, "s0-8", `"`+strings.Repeat("x", 600_000)+`"`)
	r.reply(t, "s0-8", "")
	r.command(t, events.CommandRelease)
	if o := r.of(t, "o"); o.State != projections.Processed || len(o.Waiting) > 0 {
		t.Errorf("it is %s, and %d wait", o.State, len(o.Waiting))
	}
	r.check(t, inspect.New())
}

// read is a reply as it was read.
func read(r *events.Reply, written time.Time) *Input {
	return &Input{Order: r.Order, Reply: r, Record: &Record{Topic: "waybill.replies", Raw: events.Raw{Written: written}}}
}
