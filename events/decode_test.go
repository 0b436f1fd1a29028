package events_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/events"
)

func TestDecodeIgnoresUnknownFields(t *testing.T) {
	got, err := events.Decode[events.Reply]([]byte(`{"new":{"a":[1]},"order":"o-1","Order":"no","error":{"code":"c","new":1}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got.Order != "o-1" || got.Error == nil || got.Error.Code != "c" {
		t.Errorf("read %+v", got)
	}
}

func TestDecodeLetsNamesRepeat(t *testing.T) {
	got, err := events.Decode[events.Submission]([]byte(`{"workflow":"a","workflow":"b","input":{"x":1,"x":2}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got.Workflow != "b" {
		t.Errorf("workflow %q, want the last one", got.Workflow)
	}
	if string(got.Input) != `{"x":1,"x":2}` {
		t.Errorf("input %s, want it as it came", got.Input)
	}
}

// A command's fields keep apart what is absent from what is null: an operator
// may want a step to have null for its input.
func TestDecodeCommandKeepsNull(t *testing.T) {
	got, err := events.Decode[events.Command]([]byte(`{"command":"resubmit","input":null,"new":1}`))
	if err != nil {
		t.Fatal(err)
	}
	if got.Command != events.CommandResubmit || string(got.Input) != "null" || got.Output != nil {
		t.Errorf("read %+v", got)
	}
}

func TestDecodeNamesTheFieldOfTheWrongForm(t *testing.T) {
	for field, value := range map[string]string{
		"/workflow": `{"replyTo":"r","workflow":1}`,
		"/version":  `{"replyTo":"r","version":"one"}`,
		"/deadline": `{"replyTo":"r","deadline":"tomorrow"}`,
		"/priority": `{"replyTo":"r","priority":{}}`,
	} {
		got, err := events.Decode[events.Submission]([]byte(value))
		if err == nil || errors.Is(err, events.ErrUnreadable) || !strings.Contains(err.Error(), "field "+field+" ") {
			t.Errorf("%s: error %v, want one that names %s", value, err, field)
		}
		if got.ReplyTo != "r" {
			t.Errorf("%s: what stood before the field is lost: %+v", value, got)
		}
	}
	for field, value := range map[string]string{
		"/command": `{"by":"b","command":["cancel"]}`,
		"/id":      `{"by":"b","id":7}`,
		"/step":    `{"by":"b","step":{}}`,
		"/sameKey": `{"by":"b","sameKey":"yes"}`,
		"/note":    `{"by":"b","note":1}`,
	} {
		got, err := events.Decode[events.Command]([]byte(value))
		if err == nil || errors.Is(err, events.ErrUnreadable) || !strings.Contains(err.Error(), "field "+field+" ") {
			t.Errorf("%s: error %v, want one that names %s", value, err, field)
		}
		if got.By != "b" {
			t.Errorf("%s: what stood before the field is lost: %+v", value, got)
		}
	}
	if _, err := events.Decode[events.Reply]([]byte(`{"error":{"permanent":"yes"}}`)); err == nil || !strings.Contains(err.Error(), "field /error/permanent ") {
		t.Errorf("error %v, want one that names /error/permanent", err)
	}
}

var unreadable = map[string]string{
	"nothing":                      "",
	"white space":                  " \n",
	"no JSON":                      "nonsense",
	"null":                         "null",
	"a string":                     `"{}"`,
	"a number":                     "1",
	"an array":                     `[{}]`,
	"truncated":                    `{"order":"o-1","step":`,
	"truncated after a wrong type": `{"order":1,"step":`,
	"something after":              `{} {}`,
	"invalid UTF-8":                "{\"order\":\"\xff\"}",
	"invalid UTF-8 unread":         "{\"unknown\":\"\xff\"}",
	"binary":                       "\x00\x01\x02",
}

func TestDecodeUnreadable(t *testing.T) {
	for name, value := range unreadable {
		t.Run(name, func(t *testing.T) {
			isUnreadable[events.Event](t, value)
			isUnreadable[events.Submission](t, value)
			isUnreadable[events.Request](t, value)
			isUnreadable[events.Reply](t, value)
			isUnreadable[events.Status](t, value)
			isUnreadable[events.Alert](t, value)
			isUnreadable[events.Command](t, value)
		})
	}
}

func isUnreadable[M message](t *testing.T, value string) {
	t.Helper()
	if m, err := events.Decode[M]([]byte(value)); !errors.Is(err, events.ErrUnreadable) {
		t.Errorf("%T: read %q as %+v, %v", m, value, m, err)
	}
}

func TestCheckOrderID(t *testing.T) {
	for _, id := range []string{"o", "o-1", "Bestellung größer 3 €", strings.Repeat("x", events.MaxOrderID)} {
		if err := events.CheckOrderID(id); err != nil {
			t.Errorf("%q: %v", id, err)
		}
	}
	for _, id := range []string{"", strings.Repeat("x", events.MaxOrderID+1), strings.Repeat("é", events.MaxOrderID/2+1), "o\xff"} {
		if events.CheckOrderID(id) == nil {
			t.Errorf("%q is taken", id)
		}
	}
}

func FuzzDecodeEvent(f *testing.F)   { fuzzDecode[events.Event](f) }
func FuzzDecodeRequest(f *testing.F) { fuzzDecode[events.Request](f) }
func FuzzDecodeReply(f *testing.F)   { fuzzDecode[events.Reply](f) }
func FuzzDecodeStatus(f *testing.F)  { fuzzDecode[events.Status](f) }
func FuzzDecodeAlert(f *testing.F)   { fuzzDecode[events.Alert](f) }

// A submission's fields reach the journal in an event: what could be read there
// must be readable here.
func FuzzDecodeSubmission(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, value []byte) {
		m, err := events.Decode[events.Submission](value)
		if err != nil {
			checkDecodeError(t, value, err)
			return
		}
		e := events.Event{
			Type: events.OrderAccepted, Workflow: m.Workflow, Version: m.Version,
			Input: m.Input, ReplyTo: m.ReplyTo, Priority: m.Priority, Deadline: m.Deadline,
		}
		readsBack(t, e)
	})
}

// A command's fields reach the journal too, whatever it asks for. And what was
// read can be sent again.
func FuzzDecodeCommand(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, value []byte) {
		m, err := events.Decode[events.Command](value)
		if err != nil {
			checkDecodeError(t, value, err)
			return
		}
		encoded, err := m.Encode()
		if err != nil {
			t.Fatalf("%+v cannot be written: %v", m, err)
		}
		again, err := events.Decode[events.Command](encoded)
		if err != nil {
			t.Fatalf("%+v is written as %s, which cannot be read: %v", m, encoded, err)
		}
		// Written once, a payload's white space and escapes are settled.
		if written, err := again.Encode(); err != nil || string(written) != string(encoded) {
			t.Errorf("%s is read as %s, %v", encoded, written, err)
		}
		for _, e := range []events.Event{
			{Type: events.OrderResubmitted, Step: m.Step, Input: m.Input, SameKey: m.SameKey, Reason: m.Note, By: m.By, Command: m.ID},
			{Type: events.StepSkipped, Step: m.Step, Output: m.Output, Reason: m.Note, By: m.By, Command: m.ID},
			{Type: events.CommandRefused, Operation: m.Command, Step: m.Step, By: m.By, Command: m.ID},
		} {
			readsBack(t, e)
		}
	})
}

func FuzzDecodeSeal(f *testing.F) {
	seed(f)
	for _, header := range []string{
		`{"txn":4,"events":2,"next":{"orders":1,"replies":3,"commands":0}}`,
		`{"txn":18446744073709551615,"events":1,"next":{"orders":1}}`,
		`{"events":1,"next":{"orders":1,"timers":-1,"a":{"b":[1, null]}}}`,
		`{"events":1,"events":0}`,
	} {
		f.Add([]byte(header))
	}
	f.Fuzz(func(t *testing.T, header []byte) {
		seal, err := events.DecodeSeal(header)
		if err != nil {
			return
		}
		if again, err := events.DecodeSeal(seal.Append(nil)); err != nil || again != seal {
			t.Errorf("%s is read as %+v, and that as %+v, %v", header, seal, again, err)
		}
	})
}

func fuzzDecode[M message, P appender[M]](f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, value []byte) {
		m, err := events.Decode[M](value)
		if err != nil {
			checkDecodeError(t, value, err)
			return
		}
		readsBack[M, P](t, m)
	})
}

func seed(f *testing.F) {
	f.Helper()
	for _, value := range unreadable {
		f.Add([]byte(value))
	}
	for _, value := range []string{
		`{"workflow":"w","version":1,"input":{"a":[1,"x",null]},"replyTo":"t","priority":"high","deadline":"2026-01-02T03:04:05.678Z"}`,
		`{"order":"o-1","step":"s","attempt":2,"operation":"do","completeBy":"2026-01-02T03:04:05Z","idempotencyKey":"k","undo":true,"replyTo":"t"}`,
		`{"order":"o-1","step":"s","attempt":2,"status":"failed","error":{"code":"c","message":"m","permanent":true}}`,
		`{"order":"o-1","status":"failed","at":"2026-01-02T03:04:05+01:00","detail":{"step":"s","reason":"r"}}`,
		`{"order":"o-1","reason":"r","errors":[{"code":"c"},{}],"at":"2026-01-02T03:04:05Z"}`,
		`{"type":"waybill.step.started","order":"o-1","seq":1,"at":"2026-01-02T03:04:05Z","steps":["a","b"]}`,
		`{"order":"o-1","step":"s","attempt":1,"undo":true,"outcome":"unknown","input":{},"output":null,"priority":"low"}`,
		`{"order":"o-1","status":"compensated","detail":{"undone":["s"],"notUndone":[]}}`,
		`{"order":"o-1","action":"a","errors":[{"code":"c","undo":true}]}`,
		`{"type":"waybill.undo.started","expires":"2026-01-02T03:04:05Z","round":2,"outcome":"completed"}`,
		`{"type":"waybill.reply.discarded","step":"s","attempt":1,"undo":true,"reason":"late"}`,
		`{"type":"waybill.order.compensating","end":"Cancelled","by":"b","command":"c","undone":["s",""],"notUndone":null}`,
		`{"command":"resubmit","id":"c-1","step":"s","input":{"a":1,"a":2},"sameKey":true,"by":"b","note":"n"}`,
		`{"command":"skip-step","output":"\u00e9\ud83d\ude00"}`,
		`{"deadline":"0000-01-01T00:00:00+01:00"}`,
		`{"deadline":"9999-12-31T23:59:59-01:00"}`,
		`{"at":"0000-01-01T00:00:00+01:00"}`,
		`{"completeBy":"9999-12-31T23:59:59-01:00"}`,
		`{"error":{"code":"a"},"error":{"message":"b"}}`,
		`{"version":1.5}`,
		`{"steps":null,"errors":null,"error":null,"input":null}`,
	} {
		f.Add([]byte(value))
	}
}

// checkDecodeError holds Decode to its two kinds of error: unreadable, or a JSON
// object with something wrong in it.
func checkDecodeError(t *testing.T, value []byte, err error) {
	t.Helper()
	v := jsontext.Value(value)
	object := v.IsValid(jsontext.AllowDuplicateNames(true)) && v.Kind() == '{'
	if object == errors.Is(err, events.ErrUnreadable) {
		t.Errorf("%q: %v", value, err)
	}
}

// readsBack holds that whatever was read can be written, read again, and then
// changes no more. The first writing may lose what messages do not carry, such
// as parts of a millisecond.
func readsBack[M message, P appender[M]](t *testing.T, m M) {
	t.Helper()
	var before string
	for range 2 {
		value := P(&m).Append(nil)
		again, err := events.Decode[M](value)
		if err != nil {
			t.Fatalf("%+v is written as %s, which cannot be read: %v", m, value, err)
		}
		m, before = again, string(value)
	}
	if after := string(P(&m).Append(nil)); after != before {
		t.Errorf("%s is read as %s", before, after)
	}
}
