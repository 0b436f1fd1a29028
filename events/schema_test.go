package events_test

import (
	"bytes"
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
		})
	})
	t.Run("request", func(t *testing.T) {
		follows(t, "request", appended, func(t *rapid.T, m *events.Request) {
			m.Order, m.Step, m.Attempt, m.Operation = "o-1", "s", attempt.Draw(t, "attempt"), "do"
			m.CompleteBy, m.IdempotencyKey, m.ReplyTo = moment.Draw(t, "completeBy"), "o-1/s", "waybill.replies"
		})
	})
	t.Run("reply", func(t *testing.T) {
		follows(t, "reply", appended, func(t *rapid.T, m *events.Reply) {
			m.Order, m.Step, m.Attempt = "o-1", "s", attempt.Draw(t, "attempt")
			m.Status = rapid.SampledFrom([]string{events.ReplyCompleted, events.ReplyFailed}).Draw(t, "status")
			anyFault(t, m.Error)
		})
	})
	t.Run("status", func(t *testing.T) {
		statuses := []string{events.StatusReceived, events.StatusRejected, events.StatusCompleted, events.StatusFailed}
		follows(t, "status", appended, func(t *rapid.T, m *events.Status) {
			m.Order, m.Status, m.At = "o-1", rapid.SampledFrom(statuses).Draw(t, "status"), moment.Draw(t, "at")
			if m.Detail != nil {
				m.Detail.Step = "s"
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
			m.CompleteBy, m.Due = moment.Draw(t, "completeBy"), moment.Draw(t, "due")
			m.Instance, m.Claim, m.Partitions, m.Format = "i-1", "c-1", 4, events.JournalFormat
			if m.Error == nil {
				m.Error = &events.Error{Code: "c"}
			}
			anyFault(t, m.Error)
			anyFaults(t, m.Errors)
		})
	})
}

var eventTypes = []events.Type{
	events.OrderAccepted, events.OrderRejected, events.OrderCompleted, events.OrderErrored, events.StatusRefused,
	events.StepStarted, events.StepCompleted, events.StepFailed, events.StepExpired, events.StepRetried,
	events.ReplyDiscarded, events.AlertRaised, events.PartitionClaimed, events.PartitionAdvanced,
}

var (
	version  = rapid.IntRange(0, 9)
	attempt  = rapid.IntRange(1, 9)
	priority = rapid.SampledFrom([]events.Priority{events.High, events.Normal, events.Low})
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

// Each type of event needs only the fields that its comment names.
func TestSparseEventsFollowTheirSchema(t *testing.T) {
	s := schema(t, "event")
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, e := range []events.Event{
		{Type: events.OrderAccepted, Workflow: "w", Version: 1, Steps: []string{"a"}},
		{Type: events.OrderRejected, Reason: "r"},
		{Type: events.OrderCompleted},
		{Type: events.OrderErrored, Reason: "r"},
		{Type: events.StatusRefused, ReplyTo: "t", Reason: "r"},
		{
			Type: events.StepStarted, Step: "a", Attempt: 1, Agent: "g", Operation: "do",
			IdempotencyKey: "k", CompleteBy: at, LockedBy: "i",
		},
		{Type: events.StepCompleted, Step: "a", Attempt: 1, Output: jsontext.Value("null")},
		{Type: events.StepFailed, Step: "a", Attempt: 1, Error: &events.Error{}},
		{Type: events.StepExpired, Step: "a", Attempt: 1},
		{Type: events.StepRetried, Step: "a", Attempt: 2, Due: at},
		{Type: events.ReplyDiscarded, Step: "a", Attempt: 1, Reason: events.DiscardLate},
		{Type: events.AlertRaised, Reason: "r", Errors: []events.Error{{Code: "c"}}},
		{Type: "waybill.order.added-later"},
	} {
		e.Order, e.Seq, e.At = "o-1", 1, at
		if err := validate(s, e.Append(nil)); err != nil {
			t.Errorf("%s: %v", e.Type, err)
		}
	}
	for _, e := range []events.Event{
		{Type: events.PartitionClaimed, At: at, Instance: "i", Claim: "c", Partitions: 4, Format: 1},
		{Type: events.PartitionAdvanced, At: at},
	} {
		if err := validate(s, e.Append(nil)); err != nil {
			t.Errorf("%s: %v", e.Type, err)
		}
	}
}

// The schemas tell a message from what is none.
func TestSchemasRefuse(t *testing.T) {
	for name, values := range map[string][]string{
		"submission": {`[]`, `{}`, `{"workflow":1}`, `{"workflow":"w","priority":"urgent"}`, `{"workflow":"w","deadline":"soon"}`},
		"request":    {`{}`, `{"order":"o","step":"s","attempt":0,"operation":"d","completeBy":"2026-01-02T03:04:05Z","idempotencyKey":"k","replyTo":"t"}`},
		"reply":      {`{}`, `{"order":"o","step":"s","attempt":1,"status":"done"}`, `{"order":"o","step":"s","attempt":1,"status":"failed","error":"no"}`},
		"status":     {`{}`, `{"order":"o","status":"lost","at":"2026-01-02T03:04:05Z"}`},
		"alert":      {`{}`, `{"order":"o","reason":"r","at":"2026-01-02T03:04:05Z","errors":{}}`},
		"event":      {`{}`, `{"type":"waybill.order.completed","at":"2026-01-02T03:04:05Z"}`, `{"type":"waybill.step.expired","order":"o","seq":1,"at":"2026-01-02T03:04:05Z"}`},
	} {
		s := schema(t, name)
		for _, value := range values {
			if validate(s, []byte(value)) == nil {
				t.Errorf("%s takes %s", name, value)
			}
		}
	}
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
		for _, name := range []string{"submission", "request", "reply", "status", "alert", "event"} {
			message := doc.Components.Messages[name]
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
