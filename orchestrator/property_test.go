package orchestrator

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
)

// TestHistories: whatever is submitted, answered, lost and repeated, in
// whatever order, the invariants hold after every step, a store rebuilt from
// the journal is the same, and time enough brings every order to an end.
func TestHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &historian{newStage(t)}
		defer func() { h.close() }() // a crash replaces the store
		for i := range rapid.IntRange(1, 2).Draw(t, "workflows") {
			h.register(drawFlow(t, i+1))
		}
		h.takeOver(t, "i-1")
		t.Repeat(map[string]func(*rapid.T){
			"submit":    h.submit,
			"answer":    h.answer,
			"answers":   h.answer, // twice as likely
			"babble":    h.babble,
			"read":      func(t *rapid.T) { h.read(t) },
			"supervise": h.look,
			"commit":    func(t *rapid.T) { h.commit(t) },
			"flush":     func(t *rapid.T) { must(t, h.state.Flush()) },
			"wait":      func(t *rapid.T) { h.wait(time.Duration(rapid.IntRange(1, 8_000).Draw(t, "ms")) * time.Millisecond) },
			"crash":     h.fall,
			"handover":  func(t *rapid.T) { h.takeOver(t, rapid.SampledFrom([]string{"i-1", "i-2"}).Draw(t, "instance")) },
			"":          func(t *rapid.T) { checkInvariants(t, h.stage) },
		})
		h.end(t)
	})
}

// historian draws what happens on a stage.
type historian struct{ *stage }

// drawFlow draws a version of the workflow "flow": a random graph, in which
// steps come only after steps above them.
func drawFlow(t *rapid.T, version int) *workflow.Workflow {
	var source strings.Builder
	fmt.Fprintf(&source, "workflow: flow\nversion: %d\nsteps:\n", version)
	seconds := func(label string, low, high int) string {
		return fmt.Sprintf("%dms", 500*rapid.IntRange(low, high).Draw(t, label))
	}
	for i := range rapid.IntRange(1, 5).Draw(t, "steps") {
		var after []string
		for from := range i {
			if rapid.Bool().Draw(t, "after") {
				after = append(after, fmt.Sprint("s", from))
			}
		}
		fmt.Fprintf(&source, "  - {name: s%d, agent: a%d, after: [%s], timeout: %s, retry: {attempts: %d, backoff: %s, multiplier: %d}}\n",
			i, rapid.IntRange(0, 2).Draw(t, "agent"), strings.Join(after, ", "), seconds("timeout", 1, 10),
			rapid.IntRange(1, 3).Draw(t, "attempts"), seconds("backoff", 0, 6), rapid.IntRange(1, 3).Draw(t, "multiplier"))
	}
	return parseFlow(t, source.String())
}

func (h *historian) drawOrder(t *rapid.T) string {
	return rapid.SampledFrom([]string{"a", "b", "c\x00s0", "d"}).Draw(t, "order")
}

func (h *historian) submit(t *rapid.T) {
	value := fmt.Sprintf(`{"workflow":%q, "version":%d, "replyTo":%q`,
		rapid.SampledFrom([]string{"flow", "flow", "flow", "none", "no\x00ne"}).Draw(t, "workflow"),
		rapid.IntRange(0, 2).Draw(t, "version"),
		rapid.SampledFrom([]string{"", "shop.status", "waybill.replies"}).Draw(t, "replyTo"))
	value = strings.ReplaceAll(value, `\x00`, `\u0000`)
	value += rapid.SampledFrom([]string{"", `, "input" : { "n" : 1, "n": 2 } `, `, "input":null`}).Draw(t, "input") + "}"
	s := submission{id: h.drawOrder(t)}
	s.value, s.problem = events.Decode[events.Submission]([]byte(value))
	must(t, s.problem)
	h.orders = append(h.orders, s)
}

// answer replies to a request that was sent, now or again, in time or not.
func (h *historian) answer(t *rapid.T) {
	var asked []events.Request
	for _, r := range h.messages {
		if events.Header(r, events.HeaderType) == string(events.StepRequested) {
			m, err := events.Decode[events.Request](r.Value)
			must(t, err)
			asked = append(asked, m)
		}
	}
	if len(asked) == 0 {
		t.Skip("nothing was asked")
	}
	// The last requests are the ones that matter most.
	r := asked[len(asked)-1-rapid.IntRange(0, min(len(asked)-1, 5)).Draw(t, "request")]
	h.replies = append(h.replies, h.drawReply(t, events.Reply{Order: r.Order, Step: r.Step, Attempt: r.Attempt}))
}

// babble replies to what nobody asked.
func (h *historian) babble(t *rapid.T) {
	h.replies = append(h.replies, h.drawReply(t, events.Reply{
		Order:   h.drawOrder(t),
		Step:    rapid.SampledFrom([]string{"s0", "s1", "s4", "s99", ""}).Draw(t, "step"),
		Attempt: rapid.IntRange(-1, 4).Draw(t, "attempt"),
		Undo:    rapid.Bool().Draw(t, "undo"),
	}))
}

func (h *historian) drawReply(t *rapid.T, r events.Reply) reply {
	r.Status = events.ReplyCompleted
	if rapid.IntRange(0, 3).Draw(t, "failed") == 0 {
		r.Status = events.ReplyFailed
		r.Error = rapid.SampledFrom([]*events.Error{
			nil, {}, {Code: "busy", Message: "come back"}, {Code: "gone", Permanent: true},
		}).Draw(t, "error")
	} else {
		r.Output = []byte(rapid.SampledFrom([]string{"", `{ "ok":true}`, `"x"`, "null"}).Draw(t, "output"))
	}
	skew := time.Duration(rapid.IntRange(-2_000, 2_000).Draw(t, "skew")) * time.Millisecond
	value, err := events.Decode[events.Reply](r.Append(nil))
	must(t, err)
	return reply{id: r.Order, value: value, written: h.now.Add(skew)}
}

func (h *historian) wait(d time.Duration) { h.now = h.now.Add(d) }

// look supervises. If all was committed, a second look at the same time, from
// the beginning, finds nothing to do; deadlines that are not committed yet are
// for the look after.
func (h *historian) look(t *rapid.T) {
	committed := len(h.records) == 0
	h.supervise(t, dueAtOnce)
	if !committed {
		return
	}
	n := len(h.records)
	h.state.Rescan()
	h.supervise(t, dueAtOnce)
	if len(h.records) != n {
		t.Fatalf("looking again at %v made %d records more", h.now, len(h.records)-n)
	}
	for id := range h.history(t) {
		o := h.of(t, id)
		for i := range o.Steps {
			if at := o.Steps[i].Deadline(); !at.IsZero() && !at.After(h.now) {
				t.Fatalf("%s: the deadline %v of step %s was not handled at %v", id, at, o.Steps[i].Name, h.now)
			}
		}
	}
}

// fall loses what is not committed. The next owner reads those inputs again.
func (h *historian) fall(t *rapid.T) {
	h.crash(t)
	h.takeOver(t, rapid.SampledFrom([]string{"i-1", "i-2"}).Draw(t, "instance"))
}

// end lets time pass without any agent: every order ends, or an operator is
// called.
func (h *historian) end(t *rapid.T) {
	// 5 steps one after another, 3 attempts each of at most 5 s and a back-off
	// of at most 9 s.
	for deadline := h.now.Add(5 * 3 * 14 * time.Second); h.now.Before(deadline); h.wait(500 * time.Millisecond) {
		h.read(t)
		h.supervise(t, dueAtOnce)
		h.commit(t)
	}
	checkInvariants(t, h.stage)
	h.rebuild(t)
	for id := range h.history(t) {
		o := h.of(t, id)
		if !o.State.Final() && o.State != projections.Error || !o.CompleteBy().IsZero() {
			t.Fatalf("%s is %s with the deadline %v although nothing happens any more", id, o.State, o.CompleteBy())
		}
	}
}
