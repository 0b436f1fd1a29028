package events

import (
	"encoding/base64"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// The kinds of message that a lane writes for every order are appended by
// hand: reflection took a third of an orchestrator's time. A test holds each
// against what package json makes of the same value.

// object appends the members of a JSON object, leaving out zero values: an event has a hundred of them, so what looks
// whether one is there is small enough to be inlined.
type object struct {
	b []byte
}

func (o *object) name(name string) {
	if c := o.b[len(o.b)-1]; c != '{' {
		o.b = append(o.b, ',')
	}
	o.b = append(o.b, '"')
	o.b = append(o.b, name...)
	o.b = append(o.b, '"', ':')
}

func (o *object) text(name, value string) {
	if value != "" {
		o.putText(name, value)
	}
}

func (o *object) putText(name, value string) {
	o.name(name)
	o.b = appendText(o.b, value)
}

func (o *object) number(name string, value int64) {
	if value != 0 {
		o.putNumber(name, value)
	}
}

func (o *object) putNumber(name string, value int64) {
	o.name(name)
	o.b = strconv.AppendInt(o.b, value, 10)
}

func (o *object) count(name string, value uint64) {
	if value != 0 {
		o.putCount(name, value)
	}
}

func (o *object) putCount(name string, value uint64) {
	o.name(name)
	o.b = strconv.AppendUint(o.b, value, 10)
}

func (o *object) truth(name string, value bool) {
	if value {
		o.name(name)
		o.b = append(o.b, "true"...)
	}
}

func (o *object) time(name string, value time.Time) {
	if !value.IsZero() {
		o.putTime(name, value)
	}
}

func (o *object) putTime(name string, value time.Time) {
	o.name(name)
	o.b = append(o.b, '"')
	o.b = AppendTime(o.b, value)
	o.b = append(o.b, '"')
}

func (o *object) raw(name string, value jsontext.Value) {
	if len(value) > 0 {
		o.putRaw(name, value)
	}
}

func (o *object) putRaw(name string, value jsontext.Value) {
	o.name(name)
	o.b = append(o.b, value...)
}

func (o *object) base64(name string, value []byte) {
	o.name(name)
	o.b = append(o.b, '"')
	o.b = base64.StdEncoding.AppendEncode(o.b, value)
	o.b = append(o.b, '"')
}

func (o *object) texts(name string, values []string) {
	if len(values) > 0 {
		o.putTexts(name, values)
	}
}

func (o *object) putTexts(name string, values []string) {
	o.name(name)
	o.b = append(o.b, '[')
	for i, v := range values {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		o.b = appendText(o.b, v)
	}
	o.b = append(o.b, ']')
}

func (o *object) offsets(name string, values map[string]int64) {
	if values == nil {
		return
	}
	o.name(name)
	all := open(o.b)
	for _, topic := range slices.Sorted(maps.Keys(values)) {
		all.name(topic) // has nothing that JSON would quote: see [ValidTopic]; nor has a workflow's name
		all.b = strconv.AppendInt(all.b, values[topic], 10)
	}
	o.b = all.end()
}

func (o *object) pairs(name string, values map[string]string) {
	if len(values) == 0 {
		return
	}
	o.name(name)
	o.b = append(o.b, '{')
	for i, key := range slices.Sorted(maps.Keys(values)) {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		o.b = appendText(o.b, key)
		o.b = append(o.b, ':')
		o.b = appendText(o.b, values[key])
	}
	o.b = append(o.b, '}')
}

func (o *object) fault(value *Error) {
	if value != nil {
		o.name("error")
		o.b = value.Append(o.b)
	}
}

func (o *object) faults(name string, values []Error) {
	if values == nil {
		return
	}
	o.name(name)
	o.b = append(o.b, '[')
	for i := range values {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		o.b = values[i].Append(o.b)
	}
	o.b = append(o.b, ']')
}

func (o *object) end() []byte { return append(o.b, '}') }

func open(dst []byte) object { return object{b: append(dst, '{')} }

// Append appends the event's JSON.
func (e *Event) Append(dst []byte) []byte {
	o := open(dst)
	o.text("type", string(e.Type))
	o.text("order", e.Order)
	o.count("seq", e.Seq)
	o.time("at", e.At)
	o.text("workflow", e.Workflow)
	o.number("version", int64(e.Version))
	o.texts("steps", e.Steps)
	o.raw("input", e.Input)
	o.text("replyTo", e.ReplyTo)
	o.text("priority", string(e.Priority))
	o.time("deadline", e.Deadline)
	o.text("traceparent", e.Traceparent)
	o.text("tracestate", e.Tracestate)
	o.text("baggage", e.Baggage)
	o.text("digest", e.Digest)
	o.pairs("labels", e.Labels)
	o.text("rerunOf", e.RerunOf)
	o.texts("submitters", e.Submitters)
	if len(e.Pinned) > 0 {
		o.offsets("pinned", e.Pinned)
	}
	o.text("parent", e.Parent)
	o.text("parentStep", e.ParentStep)
	o.number("depth", int64(e.Depth))
	o.text("child", e.Child)
	o.number("keep", int64(e.Keep))
	o.texts("children", e.Children)
	o.truth("detached", e.Detached)
	o.number("from", int64(e.From))
	o.pairs("renamed", e.Renamed)
	o.texts("renewed", e.Renewed)
	o.text("topic", e.Topic)
	o.text("eventType", e.EventType)
	o.text("key", e.Key)
	o.number("item", int64(e.Item))
	o.number("atOnce", int64(e.AtOnce))
	o.number("page", int64(e.Page))
	o.text("cursor", e.Cursor)
	if e.Schedule != nil {
		o.name("schedule")
		o.b = e.Schedule.Append(o.b)
	}
	o.number("incarnation", int64(e.Incarnation))
	o.time("tick", e.Tick)
	o.time("last", e.Last)
	o.time("next", e.Next)
	o.number("backfill", int64(e.Backfill))
	if e.Limit != nil {
		o.name("limit")
		o.b = e.Limit.Append(o.b)
	}
	o.text("home", e.Home)
	o.count("rank", e.Rank)
	o.text("onConflict", string(e.OnConflict))
	o.text("step", e.Step)
	o.number("attempt", int64(e.Attempt))
	o.text("agent", e.Agent)
	o.text("operation", e.Operation)
	o.text("idempotencyKey", e.IdempotencyKey)
	o.time("completeBy", e.CompleteBy)
	o.time("expires", e.Expires)
	o.time("extendTo", e.ExtendTo)
	o.text("lockedBy", e.LockedBy)
	o.text("proof", e.Proof)
	o.time("due", e.Due)
	o.number("round", int64(e.Round))
	o.truth("fixed", e.Fixed)
	o.text("outcome", e.Outcome)
	o.raw("output", e.Output)
	o.fault(e.Error)
	o.faults("errors", e.Errors)
	o.truth("uncounted", e.Uncounted)
	o.truth("left", e.Left)
	o.truth("undo", e.ToUndo)
	o.text("reason", e.Reason)
	o.number("count", int64(e.Count))
	o.text("action", e.Action)
	o.text("answeredBy", e.AnsweredBy)
	o.text("command", e.Command)
	o.text("by", e.By)
	if e.Actor != nil {
		o.name("actor")
		o.b = e.Actor.Append(o.b)
	}
	o.truth("sameKey", e.SameKey)
	o.truth("newKey", e.NewKey)
	o.texts("kept", e.Kept)
	o.texts("mayHaveRun", e.MayHaveRun)
	o.text("end", e.End)
	o.texts("undone", e.Undone)
	o.texts("notUndone", e.NotUndone)
	o.texts("failedSteps", e.FailedSteps)
	o.text("listen", e.Listen)
	o.texts("signals", e.Signals)
	o.texts("roles", e.Roles)
	o.texts("escalate", e.Escalate)
	o.texts("outcomes", e.Outcomes)
	o.time("remind", e.Remind)
	o.text("signal", e.Signal)
	o.text("signalId", e.SignalID)
	o.raw("data", e.Data)
	o.text("waiter", e.Waiter)
	o.count("wait", e.Wait)
	o.truth("held", e.Held)
	o.text("source", e.Source)
	if e.Raw != nil {
		o.name("raw")
		o.b = e.Raw.Append(o.b)
	}
	o.text("instance", e.Instance)
	o.text("claim", e.Claim)
	o.number("partitions", int64(e.Partitions))
	o.number("format", int64(e.Format))
	o.offsets("delivered", e.Delivered)
	o.truth("silent", e.Silent)
	return o.end()
}

// Append appends the record's JSON.
func (r *Raw) Append(dst []byte) []byte {
	o := open(dst)
	o.time("written", r.Written)
	if r.Key != nil {
		o.base64("key", r.Key)
	}
	o.base64("value", r.Value)
	if r.Headers != nil {
		o.name("headers")
		o.b = append(o.b, '[')
		for i := range r.Headers {
			if i > 0 {
				o.b = append(o.b, ',')
			}
			header := open(o.b)
			header.name("key")
			header.b = appendText(header.b, r.Headers[i].Key)
			if r.Headers[i].Value != nil {
				header.base64("value", r.Headers[i].Value)
			}
			o.b = header.end()
		}
		o.b = append(o.b, ']')
	}
	return o.end()
}

// Append appends the actor's JSON.
func (a *Actor) Append(dst []byte) []byte {
	o := open(dst)
	o.name("method")
	o.b = appendText(o.b, a.Method)
	o.text("issuer", a.Issuer)
	o.texts("roles", a.Roles)
	o.name("at")
	o.b = append(o.b, '"')
	o.b = append(AppendTime(o.b, a.At), '"')
	return o.end()
}

// Append appends the error's JSON.
func (e *Error) Append(dst []byte) []byte {
	o := open(dst)
	o.text("code", e.Code)
	o.text("message", e.Message)
	o.truth("permanent", e.Permanent)
	o.text("step", e.Step)
	o.number("attempt", int64(e.Attempt))
	o.truth("undo", e.Undo)
	return o.end()
}

// Append appends the request's JSON.
func (r *Request) Append(dst []byte) []byte {
	o := open(dst)
	o.text("order", r.Order)
	o.text("step", r.Step)
	o.number("attempt", int64(r.Attempt))
	o.text("operation", r.Operation)
	o.time("completeBy", r.CompleteBy)
	o.time("extendTo", r.ExtendTo)
	o.text("idempotencyKey", r.IdempotencyKey)
	o.truth("undo", r.Undo)
	o.text("outcome", r.Outcome)
	o.text("stepKey", r.StepKey)
	o.raw("input", r.Input)
	o.raw("output", r.Output)
	o.text("priority", string(r.Priority))
	o.text("replyTo", r.ReplyTo)
	o.text("token", r.Token)
	return o.end()
}

// Append appends the reply's JSON.
func (r *Reply) Append(dst []byte) []byte {
	o := open(dst)
	o.text("order", r.Order)
	o.text("step", r.Step)
	o.number("attempt", int64(r.Attempt))
	o.truth("undo", r.Undo)
	o.text("token", r.Token)
	o.text("status", r.Status)
	o.raw("output", r.Output)
	o.fault(r.Error)
	return o.end()
}

// Append appends the status message's JSON.
func (s *Status) Append(dst []byte) []byte {
	o := open(dst)
	o.text("order", s.Order)
	o.text("status", s.Status)
	o.time("at", s.At)
	if d := s.Detail; d != nil {
		o.name("detail")
		detail := open(o.b)
		detail.text("step", d.Step)
		detail.text("reason", d.Reason)
		detail.fault(d.Error)
		detail.raw("output", d.Output)
		detail.texts("undone", d.Undone)
		detail.texts("notUndone", d.NotUndone)
		detail.texts("mayHaveRun", d.MayHaveRun)
		detail.texts("failedSteps", d.FailedSteps)
		detail.text("signal", d.Signal)
		detail.text("signalId", d.SignalID)
		detail.text("child", d.Child)
		o.b = detail.end()
	}
	return o.end()
}

// Append appends the alert's JSON.
func (a *Alert) Append(dst []byte) []byte {
	o := open(dst)
	o.text("order", a.Order)
	o.text("step", a.Step)
	o.text("reason", a.Reason)
	o.faults("errors", a.Errors)
	o.text("action", a.Action)
	o.truth("reminder", a.Reminder)
	o.time("at", a.At)
	return o.end()
}

// Encode returns the submission's JSON. It fails when Input is not JSON, or a
// text not UTF-8.
func (s *Submission) Encode() ([]byte, error) {
	return json.Marshal(s, coding, json.Deterministic(true))
}

// Encode returns the signal's JSON. It fails when Data is not JSON, or a text not UTF-8.
func (s *Signal) Encode() ([]byte, error) { return json.Marshal(s, coding) }

// Encode returns the command's JSON. It fails when Input or Output is not JSON,
// or a text not UTF-8.
func (c *Command) Encode() ([]byte, error) { return json.Marshal(c, coding, json.Deterministic(true)) }

// What RFC 3339 can say; a time outside is written as the nearest inside.
var (
	firstTime = time.Date(0, time.January, 1, 0, 0, 0, 0, time.UTC)
	lastTime  = time.Date(9999, time.December, 31, 23, 59, 59, 999e6, time.UTC)
)

// AppendTime appends t as RFC 3339 in UTC with milliseconds.
func AppendTime(dst []byte, t time.Time) []byte {
	t = Time(t)
	year, month, day := t.Date()
	hour, minute, second := t.Clock()
	text := [...]byte{4: '-', 7: '-', 10: 'T', 13: ':', 16: ':', 19: '.', 23: 'Z'}
	digits(text[:4], year)
	digits(text[5:7], int(month))
	digits(text[8:10], day)
	digits(text[11:13], hour)
	digits(text[14:16], minute)
	digits(text[17:19], second)
	digits(text[20:23], t.Nanosecond()/1e6)
	return append(dst, text[:]...)
}

// digits writes the last digits of n, as many as there is room for.
func digits(text []byte, n int) {
	for i := len(text) - 1; i >= 0; i-- {
		text[i] = byte('0' + n%10)
		n /= 10
	}
}

// appendText appends s as a JSON string. Bytes that are not UTF-8 become the
// replacement character: only text made by our own code can have them.
func appendText(dst []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x7f {
			dst, _ = jsontext.AppendQuote(dst, s)
			return dst
		}
	}
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"')
}
