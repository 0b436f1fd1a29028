package world

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Request is a request to an agent.
type Request struct {
	Order          string          `json:"order"`
	Step           string          `json:"step"`
	Attempt        int             `json:"attempt"`
	Operation      string          `json:"operation"`
	CompleteBy     time.Time       `json:"completeBy"`
	IdempotencyKey string          `json:"idempotencyKey"`
	Undo           bool            `json:"undo"`
	Outcome        string          `json:"outcome"`
	Priority       string          `json:"priority"`
	ReplyTo        string          `json:"replyTo"`
	Token          string          `json:"token"`
	Input          json.RawMessage `json:"input"`
	Output         json.RawMessage `json:"output"`
}

// Reply returns the record of a reply. The outcome is the last part of its
// value, such as [Done].
func (r *Request) Reply(outcome string) *kgo.Record {
	undo, token := "", ""
	if r.Undo {
		undo = `"undo":true,`
	}
	if r.Token != "" {
		token = fmt.Sprintf(`"token":%q,`, r.Token)
	}
	return &kgo.Record{
		Topic: r.ReplyTo, Key: []byte(r.Order),
		Value: fmt.Appendf(nil, `{"order":%q,"step":%q,"attempt":%d,%s%s%s}`, r.Order, r.Step, r.Attempt, undo, token, outcome),
	}
}

// Outcomes of a request.
const (
	Silence   = ""
	Done      = `"status":"completed"`
	Busy      = `"status":"failed","error":{"code":"busy","message":"try again"}`
	StillAtIt = `"status":"progress"`
	Refused   = `"status":"failed","error":{"code":"refused","message":"never","permanent":true}`
)

// Gave is an outcome with an output.
func Gave(output string) string { return Done + `,"output":` + output }

// Failed is a transient error with a code.
func Failed(code string) string { return `"status":"failed","error":{"code":"` + code + `"}` }

// Hand is an agent whose every answer the test gives.
type Hand struct {
	*Inbox
	outsider *Outsider
}

// Hand returns the agent of a name.
func (o *Outsider) Hand(agent string) *Hand {
	o.Helper()
	return &Hand{o.Inbox(o.Topic("requests." + agent)), o}
}

// Asked waits for the next request for a step of an order.
func (h *Hand) Asked(order, step string) Request {
	h.Helper()
	return h.next(order, step, false)
}

// AskedToUndo waits for the next request to undo a step of an order, or any if
// none is named.
func (h *Hand) AskedToUndo(order, step string) Request {
	h.Helper()
	return h.next(order, step, true)
}

func (h *Hand) next(order, step string, undo bool) (found Request) {
	h.Helper()
	h.take(fmt.Sprintf("a request for step %s of %s, undo %t,", step, order, undo), func(r *kgo.Record) bool {
		q := decodeRequest(h, r)
		if !q.is(order, step, undo) {
			return false
		}
		found = q
		return true
	})
	return found
}

func (r *Request) is(order, step string, undo bool) bool {
	return r.Order == order && (step == "" || r.Step == step) && r.Undo == undo
}

// Answer sends a reply.
func (h *Hand) Answer(r Request, outcome string) {
	h.Helper()
	h.outsider.Produce(r.Reply(outcome))
}

// Does answers the next request for a step.
func (h *Hand) Does(order, step, outcome string) Request {
	h.Helper()
	r := h.Asked(order, step)
	h.Answer(r, outcome)
	return r
}

// Undoes answers the next request to undo a step.
func (h *Hand) Undoes(order, step, outcome string) Request {
	h.Helper()
	r := h.AskedToUndo(order, step)
	h.Answer(r, outcome)
	return r
}

// Waits says whether a request to do, or to undo, a step of an order, or any if
// none is named, has come and is unread.
func (h *Hand) Waits(order, step string, undo bool) bool {
	h.Helper()
	h.fetch(h.client.PollRecords(nil, 100)) //nolint:staticcheck // nil is how kgo says not to wait
	return slices.ContainsFunc(h.unread, func(r *kgo.Record) bool {
		q := decodeRequest(h, r)
		return q.is(order, step, undo)
	})
}

// Keep puts a request back, unread.
func (h *Hand) Keep(r Request) {
	h.Helper()
	value, err := json.Marshal(r)
	if err != nil {
		h.Fatal(err)
	}
	h.unread = append(h.unread, &kgo.Record{Topic: h.Topic, Key: []byte(r.Order), Value: value})
}

// Idle wants that nothing else was asked for an order.
func (h *Hand) Idle(order string) {
	h.Helper()
	h.ToTheEnd()
	for _, r := range h.unread {
		if string(r.Key) == order {
			h.Errorf("also asked for: %s", r.Value)
		}
	}
}

// Answering runs an agent until the test ends: one client, one request after the
// other. Past the complete-by it is silent (A4).
func (o *Outsider) Answering(agent string, answer func(Request) string) {
	o.Helper()
	client := o.connect(kgo.ConsumeTopics(o.Topic("requests." + agent)))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			client.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
				q := decodeRequest(o, r)
				if !time.Now().Before(q.CompleteBy) {
					return
				}
				outcome := answer(q)
				if outcome == Silence || !time.Now().Before(q.CompleteBy) {
					return
				}
				if err := client.ProduceSync(ctx, q.Reply(outcome)).FirstErr(); err != nil && ctx.Err() == nil {
					o.Errorf("agent %s: %v", agent, err)
				}
			})
		}
	}()
	o.Cleanup(func() { cancel(); <-ended })
}

func decodeRequest(t testing.TB, r *kgo.Record) (q Request) {
	t.Helper()
	if err := json.Unmarshal(r.Value, &q); err != nil {
		t.Errorf("request %s: %v", r.Value, err)
	}
	return q
}
