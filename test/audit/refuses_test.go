package audit

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
)

// Every rule finds the one thing that is wrong.
func TestSettleRefuses(t *testing.T) {
	event := func(order string, n int, change func(*events.Event)) func(*desk) {
		return func(d *desk) { d.change(order, n, change) }
	}
	drop := func(order string, n int) func(*desk) { return func(d *desk) { d.drop(order, n) } }
	// A change of the record at a place in a topic.
	record := func(topic string, n int, change func(*kgo.Record)) func(*desk) {
		return func(d *desk) { change(d.records["ns."+topic][n]) }
	}
	without := func(topic string, n int) func(*desk) {
		return func(d *desk) { d.records["ns."+topic] = slices.Delete(d.records["ns."+topic], n, n+1) }
	}
	value := func(v string) func(*kgo.Record) { return func(r *kgo.Record) { r.Value = []byte(v) } }
	for _, test := range []struct {
		name  string
		wrong func(*desk)
		says  string
	}{
		// Submissions.
		{"a submission came to nothing", drop("s", 1), "ns.orders/0/5 came to nothing"},
		{"an order of nobody", func(d *desk) { d.log("x", accepted()) }, `order "x" came from no submission`},
		{"accepted twice", func(d *desk) { d.log("o", accepted()) }, "it was decided before"},
		{"accepted as another workflow", event("s", 1, func(e *events.Event) { e.Workflow = "trip" }), "with another workflow"},
		{"accepted as another version", event("p", 1, func(e *events.Event) { e.Version = 1 }), "with another workflow"},
		{"accepted as a version that is not there", event("o", 1, func(e *events.Event) { e.Version = 3 }), "must be rejected: workflow"},
		{"accepted with another input", event("o", 1, func(e *events.Event) { e.Input = []byte(`{"n":2}`) }), "with another input"},
		{"accepted without its input", event("o", 1, func(e *events.Event) { e.Input = nil }), "with another input"},
		{"accepted for another caller", event("o", 1, func(e *events.Event) { e.ReplyTo = "mall" }), "with another topic"},
		{"accepted for no caller", event("o", 1, func(e *events.Event) { e.ReplyTo = "" }), `were to go to "shop"`},
		{"the refusal names another topic", event("s", 2, func(e *events.Event) { e.ReplyTo = "mall" }), `were to go to "no topic"`},
		{"accepted with another priority", event("o", 1, func(e *events.Event) { e.Priority = events.Low }), "with another priority"},
		{"accepted as a rerun", event("o", 1, func(e *events.Event) { e.RerunOf = "o-0" }), "with another order that it does again"},
		{"accepted with another deadline", event("o", 1, func(e *events.Event) { e.Deadline = e.Deadline.Add(time.Second) }), "with another deadline"},
		{"accepted without the workflow's deadline", event("s", 1, func(e *events.Event) { e.Deadline = time.Time{} }), "with another deadline"},
		{"accepted with another trace", record("orders", 0, func(r *kgo.Record) {
			r.Headers = append(r.Headers, header(events.HeaderTraceparent, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"))
		}), "with another traceparent"},
		{"accepted with baggage of nobody", event("o", 1, func(e *events.Event) { e.Baggage = "a=1" }), "with other baggage"},
		{"accepted past its deadline", event("o", 1, func(e *events.Event) { e.At = e.Deadline }), "must be rejected: has passed"},
		{"accepted with an unknown priority", record("orders", 0, value(`{"workflow":"trip","priority":"top"}`)), "must be rejected: priority"},
		{"accepted with an input that its workflow refuses", record("orders", 5, value(`{"workflow":"picky","input":{"m":1}}`)), "must be rejected: input"},
		{"accepted with a field that cannot be read", record("orders", 0, value(`{"workflow":7}`)), "must be rejected: field /workflow has the wrong form"},
		{"accepted though it is too large", record("orders", 0, func(r *kgo.Record) {
			r.Value = append(r.Value, strings.Repeat(" ", events.MaxValue)...)
		}), "must be rejected: bytes; at most"},
		{"accepted without a workflow", record("orders", 0, value(`{}`)), "must be rejected: no workflow is named"},
		{"accepted with a version that cannot be", record("orders", 0, value(`{"workflow":"trip","version":-1}`)), "must be rejected: versions begin with 1"},
		{"a workflow whose schema is none", func(d *desk) {
			d.submit("x", `{"workflow":"odd","input":1}`)
			d.log("x", events.Event{Type: events.OrderAccepted, Workflow: "odd", Version: 1, Input: []byte("1")})
		}, "the input of workflow odd"},
		{"a good submission was rejected", func(d *desk) {
			d.submit("x", tripOfP)
			d.log("x", events.Event{Type: events.OrderRejected, Workflow: "trip", Version: 2, Reason: "workflow trip is not registered"})
		}, "ns.orders/0/7 was rejected: workflow trip is not registered"},
		{"rejected for another reason", event("r-3", 1, func(e *events.Event) { e.Reason = "the input is wrong" }), `"has passed"`},
		{"rejected for its input, and there is no schema", func(d *desk) {
			d.submit("x", tripOfP)
			d.log("x", events.Event{Type: events.OrderRejected, Workflow: "trip", Version: 2, Reason: "the input is wrong"})
		}, "was rejected: the input is wrong"},
		{"rejected as another workflow", event("r-1", 1, func(e *events.Event) { e.Workflow = "trip" }), `was rejected as workflow "trip"`},
		{"a submission in front of its order was put aside", func(d *desk) { d.putAside(d.records["ns.orders"][0], "deciding on it panicked") }, "was put aside, and led to waybill.order.accepted"},
		{"a submission again was put aside", func(d *desk) { d.putAside(d.records["ns.orders"][1], "no reason") }, "was put aside, and the journal does not say so"},
		{"a submission has no order", func(d *desk) { d.putAside(d.records["ns.orders"][1], noOrder) }, "ns.orders/0/1 was put aside"},

		// Replies.
		{"a reply came to nothing", drop("o", 14), "ns.replies/0/3 came to nothing"},
		{"a discarded reply came to nothing", drop("o", 5), "is a reply: step a, attempt 1, completed, and led to waybill.step.failed"},
		{"a completion of no reply", func(d *desk) {
			d.log("o", events.Event{Type: events.StepCompleted, Step: "b", Attempt: 1})
		}, "came from no reply"},
		{"a discard of no reply", func(d *desk) {
			d.log("o", events.Event{Type: events.ReplyDiscarded, Step: "b", Attempt: 1, Reason: events.DiscardStale})
		}, "came from no reply"},
		{"an undo that began failed without a reply", event("o", 15, func(e *events.Event) { e.Attempt = 1 }), "came from no reply"},
		{"an undo failed for no reason", event("o", 15, func(e *events.Event) { e.Error = &events.Error{Code: "gone", Permanent: true} }), "came from no reply"},
		{"another output", event("o", 3, func(e *events.Event) { e.Output = []byte(`{"receipt":8}`) }), "with another output"},
		{"no output", event("o", 3, func(e *events.Event) { e.Output = nil }), "with another output"},
		{"another step", event("o", 3, func(e *events.Event) { e.Step = "b" }), "led to waybill.step.completed b"},
		{"another attempt", event("o", 6, func(e *events.Event) { e.Attempt = 2 }), "attempt 2"},
		{"another error", event("o", 6, func(e *events.Event) { e.Error = &events.Error{Code: "odd"} }), "with another error: odd"},
		{"no error", event("o", 6, func(e *events.Event) { e.Error = nil }), "with no error"},
		{"a permanent error", event("o", 6, func(e *events.Event) { e.Error.Permanent = true }), "with another error"},
		{"a failure for a completion", event("o", 3, func(e *events.Event) {
			e.Type, e.Output, e.Error = events.StepFailed, nil, &events.Error{Code: "odd"}
		}), "with another status"},
		{"an undo for a step", event("o", 3, func(e *events.Event) { e.Type = events.UndoCompleted }), "led to waybill.undo.completed a"},
		{"a discard of another attempt", event("o", 5, func(e *events.Event) { e.Attempt = 2 }), "what was discarded is step a, attempt 2"},
		{"a discard of an undo", event("o", 5, func(e *events.Event) { e.ToUndo = true }), "undo: true"},
		{"a reply of an order of nobody", func(d *desk) { d.reply("x", `"step":"a","attempt":1,"status":"completed"`); d.seal(0) }, `of order "x", which nobody submitted`},
		{"a reply was put aside, and counts", func(d *desk) { d.putAside(d.records["ns.replies"][0], "no reason") }, "was put aside, and led to event 3"},
		{"a reply finds no order", func(d *desk) {
			d.putAside(d.reply("o", `"step":"a","attempt":1,"status":"completed"`), noOrder)
			d.seal(0)
		}, "there is no order of this id, and the journal has it"},

		// Expiries.
		{"an attempt expired that was answered in time", expires(noon.Add(-time.Millisecond), 1, false), "was there in time; by event 3 of order \"x\""},
		{"an undo expired that was answered in time", expires(noon.Add(-time.Millisecond), 1, true), "was there in time; by event 3 of order \"x\""},

		// Commands.
		{"a command came to nothing", drop("o", 12), "ns.commands/0/7 came to nothing"},
		{"a command came to nothing before others", drop("o", 9), "with another id"},
		{"a command without an id came to nothing", func(d *desk) { d.command("s", `"command":"pause"`); d.seal(0) }, "came to nothing: command \"\", pause"},
		{"an act of nobody", func(d *desk) { d.log("o", events.Event{Type: events.OrderPaused}) }, "came from no command"},
		{"an act was done twice", func(d *desk) {
			d.log("o", events.Event{Type: events.OrderCompensating, End: "Cancelled", Command: "c-5"})
		}, "came from no command"},
		{"a hold that was ended, and something waits", func(d *desk) {
			d.command("p", `"command":"terminate","id":"c-8","note":"enough"`)
			d.log("p", events.Event{Type: events.OrderTerminated, Command: "c-8", Reason: "another"})
		}, "with another reason: another"},
		{"another change", func(d *desk) {
			d.command("p", `"command":"change","id":"c-9","priority":"high"`)
			d.log("p", events.Event{Type: events.OrderChanged, Command: "c-9", Priority: events.Low})
		}, "with another change"},
		{"another author", event("o", 7, func(e *events.Event) { e.By = "kim" }), "with another author"},
		{"another note", event("o", 7, func(e *events.Event) { e.Reason = "go" }), "with another reason: go"},
		{"another act", event("o", 7, func(e *events.Event) { e.Type = events.OrderResumed }), "with another act"},
		{"a refusal of another act", event("o", 8, func(e *events.Event) { e.Operation = "cancel" }), "with another act"},
		{"a refusal without a reason", event("o", 8, func(e *events.Event) { e.Reason = "" }), "with another reason"},
		{"a resubmission of another step", event("o", 10, func(e *events.Event) { e.Step = "a" }), "with another step: a"},
		{"a resubmission with another input", event("o", 10, func(e *events.Event) { e.Input = []byte(`{"n":3}`) }), "with another input"},
		{"a resubmission with another key", event("o", 10, func(e *events.Event) { e.SameKey = false }), "with another key"},
		{"a resubmission with new keys", event("o", 10, func(e *events.Event) { e.NewKey = true }), "with another key"},
		{"a resubmission without new keys", func(d *desk) {
			d.records["ns.commands"][5].Value = []byte(`{"command":"resubmit","id":"c-3","step":"b","input":{"n":2},"newKey":true}`)
			d.change("o", 10, func(e *events.Event) { e.SameKey, e.Kept = false, []string{"b"} })
		}, "with another key"},
		{"a resubmission of a step that was not named", func(d *desk) {
			d.records["ns.commands"][5].Value = []byte(`{"command":"resubmit","id":"c-3","sameKey":true}`)
			d.change("o", 10, func(e *events.Event) { e.Input = nil })
		}, "with a step"},
		{"another step was skipped", event("o", 11, func(e *events.Event) { e.Step = "a" }), "with another step: a"},
		{"a step was skipped with another output", event("o", 11, func(e *events.Event) { e.Output = nil }), "with another output"},
		{"a command was put aside, and done", func(d *desk) { d.putAside(d.records["ns.commands"][1], "no reason") }, "was put aside, and led to event 7"},
		{"a command was put aside that came after its order", func(d *desk) {
			r := d.records["ns.commands"][0]
			d.came[r] = d.came[d.records["ns.orders"][0]] + 1
		}, `the submission of order "o" came before it`},
		{"a command finds no order", func(d *desk) {
			r := d.command("o", `"command":"pause"`)
			d.came[r] = 0
			d.putAside(r, noOrder)
			d.seal(0)
		}, "there is no order of this id, and the journal has it"},

		// What is put aside, and what is forwarded.
		{"a dead letter is missing", without("dead-letters", 1), "ns.replies/0/4 was taken"},
		{"a dead letter came twice", func(d *desk) {
			d.records["ns.dead-letters"] = append(d.records["ns.dead-letters"], d.records["ns.dead-letters"][1])
		}, "among the dead letters twice"},
		{"a dead letter is from nowhere", func(d *desk) { d.putAside(&kgo.Record{Topic: d.topics.Orders, Offset: 100}, "no reason") }, "a dead letter is from ns.orders/0/100"},
		{"a dead letter names no input", func(d *desk) { d.putAside(&kgo.Record{Topic: "shop"}, "no reason") }, "it is from no input"},
		{"a dead letter has another value", record("dead-letters", 1, value("{")), "with another value"},
		{"a dead letter has another key", record("dead-letters", 1, func(r *kgo.Record) { r.Key = []byte("p") }), "with another key"},
		{"a dead letter has another time", record("dead-letters", 1, func(r *kgo.Record) { r.Timestamp = noon.Add(time.Second) }), "with another timestamp"},
		{"a dead letter has other headers", record("dead-letters", 1, func(r *kgo.Record) { r.Headers = slices.Insert(r.Headers, 0, header("a", "b")) }), "with other headers"},
		{"a dead letter lacks what it could have", record("dead-letters", 1, func(r *kgo.Record) {
			r.Value, r.Headers[0] = nil, header("waybill_reason", "not a JSON object; the value is only at the source: it is too large")
		}), "was put aside in part"},
		{"what is small was put aside as a batch that nobody can read", func(d *desk) {
			r := d.inputAt(d.topics.Replies, 0, "", "zeros")
			d.putAside(&kgo.Record{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset}, fmt.Sprintf(wholeBatch+"it takes too much", r.Offset))
			d.seal(0)
		}, "was put aside unread, and it has 5 bytes"},
		{"a batch that nobody can read was taken", func(d *desk) {
			d.inputAt(d.topics.Replies, 0, "", strings.Repeat("\x00", events.MaxDecompressed))
			d.seal(0)
		}, "ns.replies/0/5 was taken"},
		{"a dead letter without a reason", record("dead-letters", 1, func(r *kgo.Record) { r.Headers[0].Value = nil }), "cannot be read"},
		{"what can be read was put aside", func(d *desk) {
			d.putAside(d.reply("o", `"step":"a","attempt":1,"status":"completed"`), "not a JSON object")
			d.seal(0)
		}, "ns.replies/0/5 came to nothing"},
		{"what belongs elsewhere was put aside", func(d *desk) { d.putAside(d.inputAt(d.topics.Orders, 0, "p", tripOfP), "no reason"); d.seal(0) }, "belongs to partition 1, and was put aside"},
		{"what belongs elsewhere was not forwarded", func(d *desk) { d.inputAt(d.topics.Orders, 0, "p", tripOfP); d.seal(0) }, "was not forwarded"},
		{"it was forwarded twice", func(d *desk) { d.forward(d.records["ns.orders"][6], "p"); d.seal(1) }, "something was forwarded from ns.orders/0/6"},
		{"it was forwarded twice, and is read later", func(d *desk) {
			from := header("waybill_forwarded_from", "ns.orders/0/7")
			d.inputAt(d.topics.Orders, 1, "p", tripOfP, from)
			d.inputAt(d.topics.Orders, 1, "p", tripOfP, from)
			d.inputAt(d.topics.Orders, 0, "p", tripOfP)
			d.seal(0)
			d.seal(1)
		}, "ns.orders/0/7 was forwarded twice"},
		{"it was forwarded as something else", record("orders", 7, value(`{"workflow":"trip"}`)), "was forwarded with another value"},
		{"it was forwarded with another time", record("orders", 7, func(r *kgo.Record) { r.Headers[0].Value = []byte("2026-01-05T11:59:00.000Z") }), "was forwarded with another timestamp"},
		{"it was forwarded to another topic", func(d *desk) {
			r := d.inputAt(d.topics.Commands, 0, "p", `{"command":"pause"}`)
			from := header("waybill_forwarded_from", placeOf(r).String())
			d.inputAt(d.topics.Orders, 1, "p", `{"command":"pause"}`, from)
			d.seal(1)
		}, "was forwarded to ns.orders/1/"},

		// What is held.
		{"another input is held", event("p", 5, func(e *events.Event) { e.Source = "ns.replies/1/1" }), "whose turn it is not"},
		{"what is held says something else", event("p", 5, func(e *events.Event) {
			e.Raw.Value = []byte(strings.Replace(string(e.Raw.Value), `"output":1`, `"output":4`, 1))
		}), "is held, and not as it is"},
		{"what is held is not kept", event("p", 6, func(e *events.Event) { e.Raw = nil }), "is held, and not as it is"},
		{"what is held is from nowhere", event("p", 5, func(e *events.Event) { e.Source = "x" }), `"x" is no place`},
		{"an input is released when it was its turn to be held", event("p", 5, func(e *events.Event) { e.Type = events.InputReleased }), "releases ns.replies/1/0, which was not held"},
		{"what was put aside was released", func(d *desk) { d.putAside(d.records["ns.replies"][6], "no reason") }, "was put aside, and released"},
		{"an input is released that was not held", event("p", 12, func(e *events.Event) { e.Source = "ns.replies/1/9" }), "whose turn it is not"},
		{"an input is released while its order is held", func(d *desk) {
			d.drop("p", 10)
			d.records["ns.commands"] = d.records["ns.commands"][:len(d.records["ns.commands"])-1]
		}, `order "p" is held`},
		{"an input waits for ever", drop("p", 14), "waits, and order \"p\" is not held"},
		{"what was released came to nothing", drop("p", 13), "was released, and came to nothing"},
		{"what was released led to something else", event("p", 13, func(e *events.Event) { e.Output = []byte("3") }), "with another output"},
		{"what was given up was released", event("p", 11, func(e *events.Event) { e.Type = events.InputReleased }), "gave up an input that waits"},
		{"what nobody gave up was discarded", record("commands", 10, value(`{"command":"release","id":"c-7","note":"no use"}`)), "waited, and was discarded"},
		{"a discarded input is not among the dead letters", without("dead-letters", 3), "no dead letter says so"},
		{"a discarded input has another reason there", event("p", 8, func(e *events.Event) { e.Reason = "no use" }), "no dead letter says so"},

		// Where it stands, and how far it was read.
		{"an event stands in another partition", func(d *desk) {
			d.add(d.topics.Journal, 1, "o", "{}", header(events.HeaderType, string(events.StepStarted)))
			d.seal(1)
		}, "which lives in partition 0"},
		{"an event is of another order", event("o", 3, func(e *events.Event) { e.Order = "p" }), `of order "o", and says waybill.step.completed of order "p"`},
		{"an input was not read", func(d *desk) { d.submit("x", tripOfP) }, "ns.orders/0/7 was not read"},
		{"a position cannot be read", func(d *desk) {
			r := d.last(d.topics.Journal, 0)
			r.Headers[len(r.Headers)-1].Value = []byte("x")
		}, "header waybill_lane"},
		{"a position went back", func(d *desk) { d.next[1].Set(events.InputReplies, d.next[1].At(events.InputReplies)-1); d.seal(1) }, "was not read"},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := honest()
			test.wrong(d)
			if _, said := d.settle(true); !slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, test.says) }) {
				t.Errorf("%q was not said:\n%s", test.says, strings.Join(said, "\n"))
			}
		})
	}
}

// An order has what its submission has passed on, as far as that is good, once its partition has a place for it.
func TestSettlePassedOn(t *testing.T) {
	const traceparent, tracestate, baggage = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", "tenant=a%20b;secret, user=7"
	for _, c := range []struct {
		name                           string
		format                         int
		traceparent, state, bag        string // of the submission
		kept, keptState, keptBag, says string
	}{
		{"all of it", events.BaggageFormat, traceparent, tracestate, baggage, traceparent, tracestate, baggage, ""},
		{"no tracestate", events.BaggageFormat, traceparent, tracestate, baggage, traceparent, "", baggage, "with another tracestate"},
		{"no baggage", events.BaggageFormat, traceparent, tracestate, baggage, traceparent, tracestate, "", "with other baggage"},
		{"a tracestate of no trace", events.BaggageFormat, "", tracestate, baggage, "", tracestate, baggage, "with another tracestate"},
		{"left out with the trace", events.BaggageFormat, "", tracestate, baggage, "", "", baggage, ""},
		{"malformed", events.BaggageFormat, traceparent, "ROJO=1", "a", traceparent, "", "", ""},
		{"malformed, and kept", events.BaggageFormat, traceparent, "", "a=%zz", traceparent, "", "a=%zz", "with other baggage"},
		{"as large as may be", events.BaggageFormat, traceparent, "", "a=" + strings.Repeat("x", 8190), traceparent, "", "a=" + strings.Repeat("x", 8190), ""},
		{"too large, and kept", events.BaggageFormat, traceparent, "", "a=" + strings.Repeat("x", 8191), traceparent, "", "a=" + strings.Repeat("x", 8191), "with other baggage"},
		{"nothing of it before", events.BaggageFormat - 1, traceparent, tracestate, baggage, traceparent, "", "", ""},
		{"a tracestate before", events.BaggageFormat - 1, traceparent, tracestate, baggage, traceparent, tracestate, "", "with another tracestate"},
		{"baggage before", events.BaggageFormat - 1, traceparent, tracestate, baggage, traceparent, "", baggage, "with other baggage"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := emptyDesk()
			raised := events.Event{Type: events.PartitionRaised, At: noon, Format: c.format}
			d.add(d.topics.Journal, partition("x"), "", string(raised.Append(nil)), header(events.HeaderType, string(raised.Type)))
			d.submit("x", tripOfP)
			r := d.last(d.topics.Orders, partition("x"))
			r.Headers = append(r.Headers, header(events.HeaderTraceparent, c.traceparent), header(events.HeaderTracestate, c.state), header(events.HeaderBaggage, c.bag))
			d.log("x", events.Event{Type: events.OrderAccepted, Workflow: "trip", Version: 2, Traceparent: c.kept, Tracestate: c.keptState, Baggage: c.keptBag})
			_, said := d.settle(true)
			passed := slices.DeleteFunc(said, func(s string) bool { return !strings.Contains(s, "tracestate") && !strings.Contains(s, "baggage") })
			if len(passed) > 0 != (c.says != "") || len(passed) > 0 && !strings.Contains(passed[0], c.says) {
				t.Errorf("%q was to be said: %q", c.says, passed)
			}
		})
	}
}

// expires is an order with an attempt that ended at noon, and a reply that Kafka wrote
// so long before that it must have been seen, give or take the rest of it.
func expires(written time.Time, attempt int, undo bool) func(*desk) {
	end := noon.Add(time.Minute + time.Second)
	return func(d *desk) {
		started, expired := events.StepStarted, events.StepExpired
		if undo {
			started, expired = events.UndoStarted, events.UndoExpired
		}
		d.submit("x", tripOfP)
		d.log("x", events.Event{Type: events.OrderAccepted, Workflow: "trip", Version: 2},
			events.Event{Type: started, Step: "a", Attempt: 1, CompleteBy: end.Add(-time.Hour), Expires: end},
			events.Event{Type: expired, Step: "a", Attempt: 1})
		r := d.reply("x", fmt.Sprintf(`"step":"a","attempt":%d,"undo":%t,"status":"completed"`, attempt, undo))
		r.Timestamp, r.Attrs = written, kgo.NewRecordAttrs(kgo.RecordAttrsOpts{TimestampType: 1})
		d.log("x", events.Event{Type: events.ReplyDiscarded, Step: "a", Attempt: attempt, ToUndo: undo, Reason: events.DiscardLate})
	}
}

// A reply that came too late, or of which that cannot be said, expires in good order.
func TestSettleExpiries(t *testing.T) {
	for name, change := range map[string]func(*desk){
		"too late":           expires(noon, 1, false),
		"to another attempt": expires(noon.Add(-time.Hour), 2, false),
		"by the agent's own clock": func(d *desk) {
			expires(noon.Add(-time.Hour), 1, false)(d)
			d.last("ns.replies", 0).Attrs = kgo.RecordAttrs{}
		},
		"in a transaction": func(d *desk) {
			expires(noon.Add(-time.Hour), 1, false)(d)
			d.last("ns.replies", 0).Attrs = kgo.NewRecordAttrs(kgo.RecordAttrsOpts{TimestampType: 1, Transactional: true})
		},
	} {
		d := honest()
		change(d)
		if _, said := d.settle(true); len(said) > 0 {
			t.Errorf("%s: %q", name, said)
		}
	}
}

// What comes while the topics are read is nobody's fault.
func TestSettleLeavesTheRestAlone(t *testing.T) {
	d := honest()
	d.submit("x", tripOfP)
	d.putAside(d.reply("x", "}"), "it came later")
	d.forward(d.inputAt(d.topics.Orders, 0, "p", tripOfP), "p")
	if _, said := d.settle(false); len(said) > 0 {
		t.Errorf("%q", said)
	}
}

// A signal that cannot be read is a dead letter where its record's key belongs, whatever of it can be read; one that can be
// read but for its data is one where it is.
func TestSettleOfSignalsThatCannotBeRead(t *testing.T) {
	const halfRead, half = `{"signal":"go","key":"k","replyTo":5}`, "field /replyTo has the wrong form"
	deep := `{"signal":"go","key":"k","data":` + strings.Repeat("[", 1_001) + strings.Repeat("]", 1_001) + "}"
	for _, test := range []struct {
		name  string
		write func(d *desk, at string)
		says  string // "" if nothing is wrong
	}{
		{"forwarded, and put aside", func(d *desk, at string) {
			d.forward(d.inputAt(at, 0, "p", halfRead), "p")
			d.putAside(d.last(at, 1), half)
		}, ""},
		{"put aside where it does not belong", func(d *desk, at string) { d.putAside(d.inputAt(at, 0, "p", halfRead), half) }, "belongs to partition 1, and was put aside"},
		{"too deep, and put aside", func(d *desk, at string) { d.putAside(d.inputAt(at, 0, "p", deep), "nested") }, ""},
		{"too deep, and taken", func(d *desk, at string) { d.inputAt(at, 0, "p", deep) }, "was taken: its data are nested too deeply"},
		{"as deep as may be, and put aside", func(d *desk, at string) {
			d.putAside(d.inputAt(at, 0, "p", strings.Replace(strings.Replace(deep, "[", "", 1), "]", "", 1)), "nested")
		}, "came to nothing"},
	} {
		d := emptyDesk()
		test.write(d, d.topics.Signals)
		d.seal(0)
		d.seal(1)
		if _, said := d.settle(true); (test.says == "") != (len(said) == 0) || test.says != "" && !strings.Contains(strings.Join(said, "; "), test.says) {
			t.Errorf("%s: %q, want %q", test.name, said, test.says)
		}
	}
}
