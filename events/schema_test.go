package events_test

import (
	"bytes"
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/events"
)

const docs = "../docs"

// schema compiles one of the published schemas. Formats are asserted: a time
// that is none is an error here, where a validator may only note it.
func schema(t testing.TB, name string) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	compiled, err := c.Compile(filepath.Join(docs, "schemas", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

func validate(s *jsonschema.Schema, value []byte) error {
	instance, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
	if err != nil {
		return err
	}
	return s.Validate(instance)
}

// Whatever the optional fields hold, what our encoders write is what the
// schemas promise. A field that no schema describes fails too.
func TestMessagesFollowTheirSchemas(t *testing.T) {
	t.Run("submission", func(t *testing.T) {
		follows(t, "submission", (*events.Submission).Encode, func(t *rapid.T, m *events.Submission) {
			m.Workflow, m.Version, m.ReplyTo, m.Priority = "w", version.Draw(t, "version"), "shop.status", priority.Draw(t, "priority")
			m.Labels = rapid.MapOfN(rapid.StringMatching(`[a-z0-9]([a-z0-9._-]{0,3}[a-z0-9])?`), text, 0, 16).Draw(t, "labels")
			m.RerunOf, m.Submitters = rapid.SampledFrom([]string{"", "o-0"}).Draw(t, "rerunOf"), []string{"sam"}
		})
	})
	t.Run("command", func(t *testing.T) {
		follows(t, "command", (*events.Command).Encode, func(t *rapid.T, m *events.Command) {
			m.Command = rapid.SampledFrom(events.Commands).Draw(t, "command")
			if m.Command == events.CommandSkipStep {
				m.Step = "s"
			}
			switch m.Command {
			case events.CommandTerminate:
				m.Note = "because"
			case events.CommandMigrate:
				m.ToVersion = 2
			case events.CommandDecide:
				m.Step, m.Outcome, m.By = "s", "approved", "ana"
			case events.CommandBackfill:
				m.From, m.To = time.Unix(60, 0), time.Unix(120, 0)
			}
			if m.Schedule != nil || m.Command == events.CommandApply && m.Limit == nil {
				anySchedule(t, &m.Schedule)
			}
			if m.Limit != nil {
				anyLimit(t, &m.Limit)
			}
			m.NewKey = m.NewKey && !m.SameKey
			m.ToVersion = max(m.ToVersion, rapid.IntRange(0, 3).Draw(t, "toVersion"))
			m.Labels = rapid.MapOfN(rapid.StringMatching(`[a-z0-9]([a-z0-9._-]{0,3}[a-z0-9])?`), rapid.Ptr(text, true), 1, 3).Draw(t, "labels")
			m.Priority, m.AtOnce = priorityOrNone.Draw(t, "priority"), rapid.IntRange(0, events.MaxAtOnce).Draw(t, "atOnce")
		})
	})
	t.Run("signal", func(t *testing.T) {
		follows(t, "signal", (*events.Signal).Encode, func(t *rapid.T, m *events.Signal) {
			m.Signal, m.ID, m.ReplyTo = "paid", rapid.SampledFrom([]string{"", "s-1"}).Draw(t, "id"), rapid.SampledFrom([]string{"", "shop.answers"}).Draw(t, "replyTo")
		})
	})
	t.Run("wish", func(t *testing.T) {
		follows(t, "wish", appended, func(t *rapid.T, m *events.Wish) {
			m.Child, m.Wish, m.Parent, m.Step = "@o-1/s", rapid.SampledFrom([]string{events.WishBegin, events.WishCancel, events.WishUndo, events.WishTell, events.WishForget}).Draw(t, "wish"), "o-1", "s"
			m.Reason, m.Workflow, m.Version, m.Depth = "because", "w", version.Draw(t, "version"), rapid.IntRange(1, events.MaxDepth).Draw(t, "depth")
			m.ReplyTo, m.Priority = rapid.SampledFrom([]string{"", "shop.status"}).Draw(t, "replyTo"), priorityOrNone.Draw(t, "priority")
			m.Submitters = []string{"sam"}
		})
	})
	t.Run("report", func(t *testing.T) {
		follows(t, "report", appended, func(t *rapid.T, m *events.Report) {
			m.Parent, m.Step, m.Child = "o-1", "s", "@o-1/s"
			m.State = rapid.SampledFrom(append([]string{""}, reported...)).Draw(t, "state")
			anyFault(t, m.Error)
		})
	})
	t.Run("want", func(t *testing.T) {
		follows(t, "want", appended, func(t *rapid.T, m *events.Want) {
			m.Correlation, m.Want = "@k/signal.paid", rapid.SampledFrom(wanted).Draw(t, "want")
			m.Signal, m.Key, m.Order, m.Step, m.Wait = "paid", "k", "o-1", "s", 3
		})
	})
	t.Run("bid", func(t *testing.T) {
		follows(t, "bid", appended, func(t *rapid.T, m *events.Bid) {
			m.Home, m.Bid = "@/limit.crm", rapid.SampledFrom(bids).Draw(t, "bid")
			m.Order, m.Step, m.Wait, m.Key = "o-1", rapid.SampledFrom([]string{"", "s"}).Draw(t, "step"), 3, rapid.SampledFrom([]string{"", "k"}).Draw(t, "key")
			m.OnConflict = onConflict.Draw(t, "onConflict")
		})
	})
	t.Run("grant", func(t *testing.T) {
		follows(t, "grant", appended, func(t *rapid.T, m *events.Grant) {
			m.Order, m.Step, m.Wait, m.Home = "o-1", rapid.SampledFrom([]string{"", "s"}).Draw(t, "step"), 3, "@/limit.crm"
			anyFault(t, m.Error)
		})
	})
	t.Run("pass", func(t *testing.T) {
		follows(t, "pass", appended, func(t *rapid.T, m *events.Pass) {
			m.Order, m.Step, m.Wait, m.Correlation, m.Signal, m.Key = "o-1", "s", 3, "@k/signal.paid", "paid", "k"
		})
	})
	t.Run("request", func(t *testing.T) {
		follows(t, "request", appended, func(t *rapid.T, m *events.Request) {
			m.Order, m.Step, m.Attempt, m.Operation = "o-1", "s", attempt.Draw(t, "attempt"), "do"
			m.CompleteBy, m.IdempotencyKey, m.ReplyTo = moment.Draw(t, "completeBy"), "o-1/s", "waybill.replies"
			m.Outcome, m.StepKey, m.Priority = "", "", priorityOrNone.Draw(t, "priority")
			if m.Undo {
				m.Outcome, m.StepKey = outcome.Draw(t, "outcome"), rapid.SampledFrom([]string{"", "o-1/s:2"}).Draw(t, "stepKey")
			}
		})
	})
	t.Run("reply", func(t *testing.T) {
		follows(t, "reply", appended, func(t *rapid.T, m *events.Reply) {
			m.Order, m.Step, m.Attempt = "o-1", "s", attempt.Draw(t, "attempt")
			m.Status = rapid.SampledFrom([]string{events.ReplyCompleted, events.ReplyFailed, events.ReplyProgress}).Draw(t, "status")
			anyFault(t, m.Error)
		})
	})
	t.Run("status", func(t *testing.T) {
		follows(t, "status", appended, func(t *rapid.T, m *events.Status) {
			m.Order, m.Status, m.At = "o-1", rapid.SampledFrom(statuses).Draw(t, "status"), moment.Draw(t, "at")
			if m.Detail != nil {
				m.Detail.Step, m.Detail.Undone, m.Detail.NotUndone = "s", stepNames.Draw(t, "undone"), stepNames.Draw(t, "notUndone")
				m.Detail.Signal, m.Detail.SignalID = rapid.SampledFrom([]string{"", "paid"}).Draw(t, "signal"), rapid.SampledFrom([]string{"", "s-1"}).Draw(t, "signalId")
				m.Detail.FailedSteps, m.Detail.MayHaveRun = stepNames.Draw(t, "failedSteps"), stepNames.Draw(t, "mayHaveRun")
				anyFault(t, m.Detail.Error)
			}
		})
	})
	t.Run("alert", func(t *testing.T) {
		follows(t, "alert", appended, func(t *rapid.T, m *events.Alert) {
			m.Order, m.Reason, m.At = "o-1", "because", moment.Draw(t, "at")
			anyFaults(t, m.Errors)
		})
	})
	t.Run("event", func(t *testing.T) {
		follows(t, "event", appended, func(t *rapid.T, m *events.Event) {
			m.Type = rapid.SampledFrom(eventTypes).Draw(t, "type")
			m.Order, m.Seq, m.At = "o-1", rapid.Uint64Min(1).Draw(t, "seq"), moment.Draw(t, "at")
			m.Workflow, m.Version, m.Steps = "w", rapid.IntRange(1, 9).Draw(t, "version"), []string{"s"}
			m.ReplyTo, m.Priority = "shop.status", priority.Draw(t, "priority")
			m.Step, m.Attempt, m.Agent, m.Operation = "s", attempt.Draw(t, "attempt"), "a", "do"
			m.IdempotencyKey, m.LockedBy, m.Reason = "o-1/s", "i-1", "because"
			m.Topic, m.EventType, m.Item, m.AtOnce, m.Page, m.Cursor = "shop.told", "com.acme.told", 1, 10, 1, "c"
			m.From, m.Renamed, m.Renewed = rapid.IntRange(1, 9).Draw(t, "from"), map[string]string{"s": "r"}, []string{"s"}
			m.Digest, m.Count = "6e3GCPNqqYqdFr9UAAJnMw", rapid.IntRange(0, 9).Draw(t, "count")
			m.CompleteBy, m.Due = moment.Draw(t, "completeBy"), moment.Draw(t, "due")
			if m.Type == events.StepRepeated || m.Type == events.ItemsOrdered || m.Type == events.ItemsForgotten || m.Type == events.PagesForgotten {
				m.Count = rapid.IntRange(1, 9).Draw(t, "count")
			}
			m.Round, m.Outcome = rapid.IntRange(0, 9).Draw(t, "round"), outcome.Draw(t, "outcome")
			m.End = rapid.SampledFrom([]string{"Compensated", "Cancelled"}).Draw(t, "end")
			m.Instance, m.Claim, m.Partitions, m.Format = "i-1", "c-1", 4, events.JournalFormat
			m.Proof, m.AnsweredBy = rapid.SampledFrom([]string{"", events.ProofWatch, events.ProofRequire, events.ProofRepeated}).Draw(t, "proof"), "/shop/stock"
			if m.Actor != nil {
				m.Actor.Method, m.Actor.At = rapid.SampledFrom([]string{"key", "oidc", "certificate"}).Draw(t, "method"), moment.Draw(t, "signed")
			}
			m.Source, m.Delivered = "waybill.replies/0/7", map[string]int64{"shop.status": 7}
			m.Listen, m.Signal = rapid.SampledFrom([]string{events.ListenOne, events.ListenAny, events.ListenAll}).Draw(t, "listen"), "paid"
			m.SignalID, m.Key, m.Waiter, m.Wait = "s-1", "k", "o-3", rapid.Uint64Range(1, 9).Draw(t, "wait")
			m.Signals = append([]string{"paid"}, stepNames.Draw(t, "signals")...)
			m.Submitters = append([]string{"sam"}, stepNames.Draw(t, "submitters")...)
			m.Pinned, m.Parent, m.ParentStep, m.Depth, m.Child = map[string]int64{"book": 2}, "o-2", "s", rapid.IntRange(1, events.MaxDepth).Draw(t, "depth"), "@o-1/s"
			m.Keep, m.Children = rapid.IntRange(0, 1<<40).Draw(t, "keep"), []string{"@o-1/s"}
			m.Escalate = append([]string{"board"}, stepNames.Draw(t, "escalate")...)
			m.Roles, m.Outcomes = append([]string{"finance"}, stepNames.Draw(t, "roles")...), append([]string{"approved"}, stepNames.Draw(t, "outcomes")...)
			m.Incarnation, m.Tick, m.Last, m.Next, m.Backfill = 1, m.At, m.At, m.At, 1
			anySchedule(t, &m.Schedule)
			anyLimit(t, &m.Limit)
			m.Home, m.Rank = "@/limit.crm", rapid.Uint64Range(1, 9).Draw(t, "rank")
			if m.OnConflict = onConflict.Draw(t, "onConflict"); m.Type == events.OrderQueued {
				m.OnConflict = cmp.Or(m.OnConflict, events.ConflictQueue)
			}
			switch m.Type {
			case events.ScheduleSkipped, events.ScheduleBackfilled:
				m.Count = rapid.IntRange(1, 9).Draw(t, "count")
			case events.PageCompleted: // which has a list, be it empty
				m.Input = jsontext.Value(`[1]`)
			case events.StepDecided:
				m.By = "ana"
			case events.StepReminded:
				m.Action = "decide"
			}
			if m.Type == events.SignalDiscarded {
				m.Count = rapid.IntRange(1, 9).Draw(t, "count")
			}
			if m.Raw == nil {
				m.Raw = &events.Raw{Value: []byte("{}")}
			}
			if m.Error == nil {
				m.Error = &events.Error{Code: "c"}
			}
			anyFault(t, m.Error)
			anyFaults(t, m.Errors)
		})
	})
}

// anySchedule makes a schedule one that can be applied, as far as a schema knows.
func anySchedule(t *rapid.T, s **events.Schedule) {
	if *s == nil {
		*s = new(events.Schedule)
	}
	m := *s
	m.Workflow, m.Version, m.Priority, m.Labels = "w", version.Draw(t, "version of its orders"), priority.Draw(t, "priority of its orders"), map[string]string{"team": "a"}
	m.Overlap = rapid.SampledFrom([]string{"", events.OverlapSkip, events.OverlapQueueOne, events.OverlapQueue, events.OverlapCancel, events.OverlapAllow}).Draw(t, "overlap")
	m.CatchUp = rapid.SampledFrom([]string{"", events.CatchUpNone, events.CatchUpLatest, events.CatchUpAll}).Draw(t, "catch up")
	m.Start, m.End = moment.Draw(t, "start"), moment.Draw(t, "end")
}

// anyLimit makes a limit one that can be applied.
func anyLimit(t *rapid.T, l **events.Limit) {
	*l = &events.Limit{AtATime: rapid.IntRange(1, events.MaxPlaces).Draw(t, "at a time"), ASecond: rapid.IntRange(0, events.MaxPlaces).Draw(t, "a second")}
}

var eventTypes = func() (all []events.Type) {
	for _, spec := range events.Specs {
		all = append(all, spec.Type)
	}
	return all
}()

var messageTypes = []events.Type{
	events.OrderSubmitted, events.StepRequested, events.StepReplied, events.OrderCommand, events.OrderSignal, events.OrderStatus,
	events.WorkflowRegistered, events.WorkflowRetired, events.ChildWanted, events.ChildReported, events.SignalWanted, events.SignalPassed, events.PlaceWanted, events.PlaceGiven,
}

// reported are the states of which a report tells.
var reported = []string{"Pending", "Rejected", "Processed", "Compensated", "Cancelled", "Raised", "Terminated"}

var statuses = []string{
	events.StatusReceived, events.StatusRejected, events.StatusCompleted, events.StatusFailed,
	events.StatusCompensating, events.StatusCompensated, events.StatusCancelled, events.StatusRaised, events.StatusTerminated, events.StatusConflict,
	events.StatusMatched, events.StatusKept, events.StatusRepeated, events.StatusLate, events.StatusDeclined, events.StatusStarted,
}

var bids = []string{events.BidAsk, events.BidBack, events.BidUnwanted}

var wanted = []string{events.WantAwait, events.WantWithdraw, events.WantHeard, events.WantUnheard}

var (
	version        = rapid.IntRange(0, 9)
	attempt        = rapid.IntRange(1, 9)
	priority       = rapid.SampledFrom([]events.Priority{events.High, events.Normal, events.Low})
	priorityOrNone = rapid.OneOf(priority, rapid.Just(events.Priority("")))
	outcome        = rapid.SampledFrom([]string{events.OutcomeCompleted, events.OutcomeUnknown})
	stepNames      = rapid.SliceOfN(rapid.StringMatching(`[a-z0-9-]+`), 0, 3)
)

func anyFault(t *rapid.T, e *events.Error) {
	if e != nil {
		e.Attempt = rapid.IntRange(0, 9).Draw(t, "attempt") // 0 is left out
	}
}

func anyFaults(t *rapid.T, errors []events.Error) {
	for i := range errors {
		anyFault(t, &errors[i])
	}
}

func appended[M message, P appender[M]](m P) ([]byte, error) { return m.Append(nil), nil }

// follows checks any message, in which sane has set the fields whose values are
// not free.
func follows[M message](t *testing.T, name string, encode func(*M) ([]byte, error), sane func(*rapid.T, *M)) {
	s := schema(t, name)
	rapid.Check(t, func(t *rapid.T) {
		m := anyMessage[M]().Draw(t, "message")
		sane(t, &m)
		value, err := encode(&m)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate(s, value); err != nil {
			t.Fatalf("%s: %v", value, err)
		}
	})
	described := slices.Sorted(maps.Keys(s.Properties))
	if fields := jsonNames(reflect.TypeFor[M]()); !slices.Equal(fields, described) {
		t.Errorf("the message has the fields %v, the schema %v", fields, described)
	}
}

func jsonNames(message reflect.Type) []string {
	var names []string
	for field := range message.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// The schema needs of each type of event the fields that its row has always, and no
// other. Of a type that comes later it needs those of every event.
func TestEventsFollowTheirRows(t *testing.T) {
	s := schema(t, "event")
	for _, spec := range append(slices.Clone(events.Specs), events.Spec{Type: "waybill.order.added-later"}) {
		always, maybe := spec.Fields()
		full := carrying(&spec, append(always, maybe...))
		if err := validate(s, full.Append(nil)); err != nil {
			t.Errorf("%s: %v", spec.Type, err)
		}
		sparse := carrying(&spec, always)
		value := sparse.Append(nil)
		if err := validate(s, value); err != nil {
			t.Errorf("%s: %v", spec.Type, err)
		}
		var fields map[string]jsontext.Value
		if err := json.Unmarshal(value, &fields); err != nil {
			t.Fatal(err)
		}
		for field := range fields {
			less := maps.Clone(fields)
			delete(less, field)
			value, err := json.Marshal(less)
			if err != nil {
				t.Fatal(err)
			}
			if validate(s, value) == nil {
				t.Errorf("%s is taken without %s", spec.Type, field)
			}
		}
	}
}

// A schema lists the words that the code knows, and no other.
func TestSchemasListTheWords(t *testing.T) {
	words := func(p *jsonschema.Schema) []string {
		var all []string
		for _, word := range p.Enum.Values {
			all = append(all, word.(string))
		}
		return all
	}
	for _, c := range []struct {
		schema, field string
		want          []string
	}{
		{"command", "command", events.Commands},
		{"status", "status", statuses},
		{"reply", "status", []string{events.ReplyCompleted, events.ReplyFailed, events.ReplyProgress}},
		{"wish", "wish", []string{events.WishBegin, events.WishCancel, events.WishUndo, events.WishTell, events.WishForget}},
		{"wish", "priority", []string{string(events.High), string(events.Normal), string(events.Low)}},
		{"report", "state", reported},
		{"want", "want", wanted},
		{"bid", "bid", bids},
		{"request", "outcome", []string{events.OutcomeCompleted, events.OutcomeUnknown}},
		{"request", "priority", []string{string(events.High), string(events.Normal), string(events.Low)}},
	} {
		if got := words(schema(t, c.schema).Properties[c.field]); !slices.Equal(got, c.want) {
			t.Errorf("%s of a %s is one of %v, want %v", c.field, c.schema, got, c.want)
		}
	}
}

var onConflict = rapid.SampledFrom([]events.OnConflict{"", events.ConflictQueue, events.ConflictReject, events.ConflictCancelOther})

// The schemas tell a message from what is none.
func TestSchemasRefuse(t *testing.T) {
	for name, values := range map[string][]string{
		"submission": {`[]`, `{}`, `{"workflow":1}`, `{"workflow":"w","priority":"urgent"}`, `{"workflow":"w","deadline":"soon"}`},
		"request":    {`{}`, `{"order":"o","step":"s","attempt":0,"operation":"d","completeBy":"2026-01-02T03:04:05Z","idempotencyKey":"k","replyTo":"t"}`, `{"order":"o","step":"s","attempt":1,"undo":true,"operation":"d","completeBy":"2026-01-02T03:04:05Z","idempotencyKey":"k","replyTo":"t"}`},
		"command":    {`[]`, `{}`, `{"command":"stop"}`, `{"command":"skip-step"}`, `{"command":"terminate","by":"b"}`, `{"command":"skip-step","step":""}`, `{"command":"resubmit","sameKey":"yes"}`, `{"command":"resubmit","newKey":"yes"}`, `{"command":"resubmit","sameKey":true,"newKey":true}`, `{"command":"apply"}`, `{"command":"apply","limit":{}}`, `{"command":"apply","limit":{"atATime":1001}}`, `{"command":"apply","schedule":{"cron":"* * * * *"}}`, `{"command":"apply","schedule":{"every":"1h","workflow":"w","overlap":"wait"}}`},
		"wish":       {`{}`, `{"child":"@o-1/s","wish":"begin","parent":"o-1","step":"s"}`, `{"child":"@o-1/s","wish":"undo","parent":"o-1","step":"s"}`, `{"child":"@o-1/s","wish":"pause","parent":"o-1","step":"s","reason":"r"}`},
		"want":       {`{}`, `{"correlation":"@k/signal.paid","want":"forget","signal":"paid","key":"k","order":"o-1","step":"s","wait":3}`, `{"correlation":"@k/signal.paid","want":"await","signal":"paid","key":"k","order":"o-1","step":"s"}`},
		"pass":       {`{}`, `{"order":"o-1","step":"s","wait":0,"correlation":"@k/signal.paid","signal":"paid","key":"k"}`},
		"bid":        {`{}`, `{"home":"@/limit.crm","bid":"wait","order":"o-1","step":"s","wait":3}`, `{"home":"@/limit.crm","bid":"ask","order":"o-1","step":"s"}`, `{"home":"@k/open.w","bid":"ask","order":"o-1","wait":2,"onConflict":"fail"}`},
		"grant":      {`{}`, `{"order":"o-1","step":"s","wait":0,"home":"@/limit.crm"}`},
		"report":     {`{}`, `{"parent":"o-1","step":"s","child":"@o-1/s","state":"Error"}`, `{"parent":"o-1","step":"s","state":"Processed"}`},
		"reply":      {`{}`, `{"order":"o","step":"s","attempt":1,"status":"done"}`, `{"order":"o","step":"s","attempt":1,"status":"failed","error":"no"}`},
		"status":     {`{}`, `{"order":"o","status":"lost","at":"2026-01-02T03:04:05Z"}`},
		"alert":      {`{}`, `{"order":"o","reason":"r","at":"2026-01-02T03:04:05Z","errors":{}}`},
		"event":      {`{}`, `{"type":"waybill.order.completed","at":"2026-01-02T03:04:05Z"}`, `{"type":"waybill.step.expired","order":"o","seq":1,"at":"2026-01-02T03:04:05Z"}`, `{"type":"waybill.undo.started","order":"o","seq":1,"at":"2026-01-02T03:04:05Z","step":"s","attempt":1,"agent":"a","operation":"o","idempotencyKey":"k","completeBy":"2026-01-02T03:04:05Z","lockedBy":"i","outcome":"maybe"}`, `{"type":"waybill.order.compensating","order":"o","seq":1,"at":"2026-01-02T03:04:05Z","reason":"r","end":"Processed"}`},
	} {
		s := schema(t, name)
		for _, value := range values {
			if validate(s, []byte(value)) == nil {
				t.Errorf("%s takes %s", name, value)
			}
		}
	}
}

// The schemas take what a newer release, or another client, adds.
func TestSchemasTakeUnknownFields(t *testing.T) {
	for name, value := range map[string]string{
		"submission": `{"workflow":"w","new":1}`,
		"command":    `{"command":"cancel","new":1}`,
		"request":    `{"order":"o","step":"s","attempt":1,"operation":"d","completeBy":"2026-01-02T03:04:05Z","idempotencyKey":"k","replyTo":"t","new":1}`,
		"reply":      `{"order":"o","step":"s","attempt":1,"status":"failed","error":{"new":1},"new":1}`,
		"wish":       `{"child":"@o-1/s","wish":"undo","parent":"o-1","step":"s","reason":"r","new":1}`,
		"want":       `{"correlation":"@k/signal.paid","want":"await","signal":"paid","key":"k","order":"o-1","step":"s","wait":3,"new":1}`,
		"pass":       `{"order":"o-1","step":"s","wait":3,"correlation":"@k/signal.paid","signal":"paid","key":"k","new":1}`,
		"bid":        `{"home":"@/limit.crm","bid":"ask","order":"o-1","step":"s","wait":3,"new":1}`,
		"grant":      `{"order":"o-1","step":"s","wait":3,"home":"@/limit.crm","new":1}`,
		"report":     `{"parent":"o-1","step":"s","child":"@o-1/s","state":"Processed","new":1}`,
		"status":     `{"order":"o","status":"failed","at":"2026-01-02T03:04:05Z","detail":{"new":1},"new":1}`,
		"alert":      `{"order":"o","reason":"r","at":"2026-01-02T03:04:05Z","new":1}`,
		"event":      `{"type":"waybill.order.completed","order":"o","seq":1,"at":"2026-01-02T03:04:05Z","new":1}`,
	} {
		if err := validate(schema(t, name), []byte(value)); err != nil {
			t.Errorf("%s: %v", value, err)
		}
	}
}

// The messages in the documentation for people are real ones, and it leaves out
// no word of the contract.
func TestDocumentation(t *testing.T) {
	file, err := os.ReadFile(filepath.Join(docs, "messages.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(file)

	t.Run("has valid examples", func(t *testing.T) {
		for _, name := range []string{"submission", "request", "reply", "command", "status", "alert", "wish", "report", "signal", "want", "pass", "bid", "grant"} {
			s, examples := schema(t, name), 0
			_, section, _ := strings.Cut(text, "\n## "+strings.ToUpper(name[:1])+name[1:]+"\n")
			section, _, _ = strings.Cut(section, "\n## ")
			for line := range strings.Lines(section) {
				if !strings.HasPrefix(line, "{") {
					continue
				}
				examples++
				if err := validate(s, []byte(line)); err != nil {
					t.Errorf("%s: %v", line, err)
				}
			}
			if examples == 0 {
				t.Errorf("no example of a %s", name)
			}
		}
	})

	t.Run("has every word", func(t *testing.T) {
		var words []string
		for _, typ := range slices.Concat(eventTypes, messageTypes) {
			words = append(words, string(typ))
		}
		for _, message := range []reflect.Type{
			reflect.TypeFor[events.Event](), reflect.TypeFor[events.Raw](), reflect.TypeFor[events.Submission](), reflect.TypeFor[events.Request](), reflect.TypeFor[events.Reply](),
			reflect.TypeFor[events.Status](), reflect.TypeFor[events.Detail](), reflect.TypeFor[events.Alert](), reflect.TypeFor[events.Command](),
			reflect.TypeFor[events.Wish](), reflect.TypeFor[events.Report](), reflect.TypeFor[events.Schedule](), reflect.TypeFor[events.Limit](),
		} {
			words = append(words, jsonNames(message)...)
		}
		words = append(words, "ce_priority", "ce_undo", events.OutcomeCompleted, events.OutcomeUnknown)
		for _, word := range slices.Concat(words, events.Commands, statuses) {
			if !strings.Contains(text, "`"+word+"`") {
				t.Errorf("%s is not documented", word)
			}
		}
	})
}

type asyncAPI struct {
	AsyncAPI string `yaml:"asyncapi"`
	Channels map[string]struct {
		Address  string               `yaml:"address"`
		Messages map[string]reference `yaml:"messages"`
	} `yaml:"channels"`
	Operations map[string]struct {
		Channel reference `yaml:"channel"`
	} `yaml:"operations"`
	Components struct {
		Messages map[string]struct {
			Name     string    `yaml:"name"`
			Payload  reference `yaml:"payload"`
			Examples []struct {
				Payload any `yaml:"payload"`
			} `yaml:"examples"`
		} `yaml:"messages"`
	} `yaml:"components"`
}

type reference struct {
	Ref string `yaml:"$ref"`
}

func TestAsyncAPI(t *testing.T) {
	file, err := os.ReadFile(filepath.Join(docs, "asyncapi.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var doc asyncAPI
	if err := yaml.Unmarshal(file, &doc); err != nil {
		t.Fatal(err)
	}
	if doc.AsyncAPI != "3.0.0" {
		t.Errorf("asyncapi: %q", doc.AsyncAPI)
	}

	t.Run("lists every topic and no other", func(t *testing.T) {
		var listed []string
		for name, channel := range doc.Channels {
			listed = append(listed, channel.Address)
			if len(channel.Messages) == 0 {
				t.Errorf("channel %s has no message", name)
			}
		}
		slices.Sort(listed)
		if want := allTopics(t); !slices.Equal(listed, want) {
			t.Errorf("channels\n%v, want\n%v", listed, want)
		}
	})

	t.Run("refers to what is there", func(t *testing.T) {
		used := map[string]bool{}
		for name, channel := range doc.Channels {
			for _, m := range channel.Messages {
				message, local := strings.CutPrefix(m.Ref, "#/components/messages/")
				if _, found := doc.Components.Messages[message]; !local || !found {
					t.Errorf("channel %s refers to %s", name, m.Ref)
				}
				used[message] = true
			}
		}
		for name := range doc.Components.Messages {
			if !used[name] {
				t.Errorf("message %s is on no channel", name)
			}
		}
		for name, operation := range doc.Operations {
			channel, local := strings.CutPrefix(operation.Channel.Ref, "#/channels/")
			if _, found := doc.Channels[channel]; !local || !found {
				t.Errorf("operation %s refers to %s", name, operation.Channel.Ref)
			}
		}
	})

	t.Run("has a schema and valid examples for every message of ours", func(t *testing.T) {
		for name, typ := range map[string]events.Type{
			"submission": events.OrderSubmitted, "command": events.OrderCommand, "request": events.StepRequested, "reply": events.StepReplied,
			"status": events.OrderStatus, "alert": events.AlertRaised, "wish": events.ChildWanted, "report": events.ChildReported, "signal": events.OrderSignal, "want": events.SignalWanted, "pass": events.SignalPassed, "bid": events.PlaceWanted, "grant": events.PlaceGiven, "event": "waybill.journal.event",
		} {
			message := doc.Components.Messages[name]
			if message.Name != string(typ) {
				t.Errorf("message %s has the name %s, want %s", name, message.Name, typ)
			}
			if want := "./schemas/" + name + ".json"; message.Payload.Ref != want {
				t.Errorf("message %s has the payload %q, want %s", name, message.Payload.Ref, want)
			}
			if len(message.Examples) == 0 {
				t.Errorf("message %s has no example", name)
			}
			for _, example := range message.Examples {
				value, err := json.Marshal(example.Payload)
				if err != nil {
					t.Fatal(err)
				}
				if err := validate(schema(t, name), value); err != nil {
					t.Errorf("%s: %v", value, err)
				}
			}
		}
	})
}

// allTopics goes by reflection, so that a topic added to Topics is missed here
// until the document has it.
func allTopics(t *testing.T) []string {
	t.Helper()
	topics, err := events.NewTopics(events.DefaultNamespace)
	if err != nil {
		t.Fatal(err)
	}
	all := []string{topics.Requests("{agent}")}
	for field, value := range reflect.ValueOf(topics).Fields() {
		if field.IsExported() && field.Name != "Namespace" {
			all = append(all, value.String())
		}
	}
	slices.Sort(all)
	return all
}
