package events_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/events"
)

// appender is a message with an encoder written by hand.
type appender[M any] interface {
	*M
	Append(dst []byte) []byte
}

func TestAppendAgreesWithPackageJSON(t *testing.T) {
	t.Run("event", appendAgrees[events.Event])
	t.Run("request", appendAgrees[events.Request])
	t.Run("reply", appendAgrees[events.Reply])
	t.Run("status", appendAgrees[events.Status])
	t.Run("alert", appendAgrees[events.Alert])
	t.Run("wish", appendAgrees[events.Wish])
	t.Run("report", appendAgrees[events.Report])
	t.Run("want", appendAgrees[events.Want])
	t.Run("pass", appendAgrees[events.Pass])
}

func appendAgrees[M message, P appender[M]](t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := anyMessage[M]().Draw(t, "message")
		appended := P(&m).Append([]byte("before "))
		value, kept := strings.CutPrefix(string(appended), "before ")
		if !kept {
			t.Fatalf("Append overwrote what stood in dst: %s", appended)
		}
		decoded, err := events.Decode[M]([]byte(value))
		if err != nil {
			t.Fatalf("%s: %v", value, err)
		}
		// The two differ in form: Append leaves out what is empty, and writes
		// milliseconds always. So compare what a reader understands.
		if got, want := reflected(t, decoded), reflected(t, m); got != want {
			t.Fatalf("Append wrote %s\nwhich reads as  %s\nbut should read %s", value, got, want)
		}
	})
}

// What an error in a list says of itself must not depend on where it stands.
func TestAppendErrorAgreesWithPackageJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var e, decoded events.Error
		fill(t, reflect.ValueOf(&e).Elem())
		value := e.Append(nil)
		if err := json.Unmarshal(value, &decoded); err != nil || decoded != e {
			t.Fatalf("%+v is written as %s, which reads as %+v, %v", e, value, decoded, err)
		}
	})
}

func TestEncodeDecodes(t *testing.T) {
	t.Run("submission", encodeDecodes[events.Submission])
	t.Run("command", encodeDecodes[events.Command])
}

// encoder is a message that others send us, with an encoder for those who
// write Go.
type encoder[M any] interface {
	*M
	Encode() ([]byte, error)
}

func encodeDecodes[M message, P encoder[M]](t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := anyMessage[M]().Draw(t, "message")
		value, err := P(&m).Encode()
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := events.Decode[M](value)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := reflected(t, decoded), reflected(t, m); got != want {
			t.Fatalf("%s reads as %s, want %s", value, got, want)
		}
	})
}

func TestSubmissionEncodeRefusesInputThatIsNotJSON(t *testing.T) {
	for _, input := range []string{`{`, `{"a":}`, "nonsense", `{} {}`} {
		m := events.Submission{Workflow: "w", Input: jsontext.Value(input)}
		if value, err := m.Encode(); err == nil {
			t.Errorf("input %s became %s", input, value)
		}
	}
}

func TestCommandEncodeRefusesPayloadsThatAreNotJSON(t *testing.T) {
	for _, payload := range []string{`{`, `{"a":}`, "nonsense", `{} {}`} {
		for _, m := range []events.Command{
			{Command: events.CommandResubmit, Input: jsontext.Value(payload)},
			{Command: events.CommandSkipStep, Output: jsontext.Value(payload)},
		} {
			if value, err := m.Encode(); err == nil {
				t.Errorf("payload %s became %s", payload, value)
			}
		}
	}
}

func TestCommandEncodeLeavesOutWhatIsEmpty(t *testing.T) {
	m := events.Command{Command: events.CommandPause}
	if value, err := m.Encode(); err != nil || string(value) != `{"command":"pause"}` {
		t.Errorf("encoded as %s, %v", value, err)
	}
}

func TestTimesHaveMillisecondsAndAreUTC(t *testing.T) {
	berlin := time.FixedZone("", 2*60*60)
	for _, c := range []struct {
		at   time.Time
		want string
	}{
		{time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), "2026-01-02T03:04:05.000Z"},
		{time.Date(2026, 1, 2, 1, 4, 5, 6e6, berlin), "2026-01-01T23:04:05.006Z"},
		{time.Date(999, 12, 31, 23, 59, 59, 999_999_999, time.UTC), "0999-12-31T23:59:59.999Z"},
	} {
		if got := string(events.AppendTime(nil, c.at)); got != c.want {
			t.Errorf("AppendTime(%s) = %s, want %s", c.at, got, c.want)
		}
		want, err := time.Parse(time.RFC3339Nano, c.want)
		if err != nil {
			t.Fatal(err)
		}
		if got := events.Time(c.at); !got.Equal(want) || got.Location() != time.UTC {
			t.Errorf("Time(%s) = %s, want %s", c.at, got, want)
		}
	}
}

// A time with an offset may lie outside the years 0 to 9999 in UTC, where
// RFC 3339 ends. In a submission's deadline it would go on into the journal.
func TestTimesOutsideRFC3339StayReadable(t *testing.T) {
	for _, written := range []string{"0000-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00"} {
		at, err := time.Parse(time.RFC3339, written)
		if err != nil {
			t.Fatal(err)
		}
		appended := string(events.AppendTime(nil, at))
		got, err := time.Parse(time.RFC3339, appended)
		if err != nil {
			t.Errorf("%s is written as %s: %v", written, appended, err)
		} else if got.Sub(at).Abs() > 24*time.Hour {
			t.Errorf("%s is written as %s", written, appended)
		}
	}
}

func TestAppendReplacesBytesThatAreNotUTF8(t *testing.T) {
	e := events.Event{Type: events.OrderRejected, Reason: "a\xffb\"\xc3"}
	decoded, err := events.Decode[events.Event](e.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	if want := "a\ufffdb\"\ufffd"; decoded.Reason != want {
		t.Errorf("reason %q, want %q", decoded.Reason, want)
	}
}

func TestSealRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seal := events.Seal{
			Transaction: rapid.Uint64().Draw(t, "transaction"),
			Events:      rapid.IntMin(1).Draw(t, "events"),
			Next:        anyPositions(t),
		}
		got, err := events.DecodeSeal(seal.Append(nil))
		if err != nil || got != seal {
			t.Fatalf("%+v came back as %+v, %v", seal, got, err)
		}
	})
}

func TestDecodeSealRefuses(t *testing.T) {
	for _, header := range []string{
		"", "{", `{"events":"two"}`, `{"next":[]}`, `{"events":1,"next":[]}`, `{"events":1,"next":null}`, `{"events":1,"next":{"orders":-1}}`,
		`{"events":1,"next":{"orders":1.5}}`, `{"events":1,"next":{"orders":"1"}}`, `{"events":1,"next":{"orders":9223372036854775808}}`, `{"txn":-1}`, `{}`, `null`,
	} {
		if seal, err := events.DecodeSeal([]byte(header)); err == nil || !strings.Contains(err.Error(), events.HeaderLane) {
			t.Errorf("%q became %+v, %v", header, seal, err)
		}
	}
}

// reflected is m as package json encodes it, without a whim: the same for equal
// messages.
func reflected[M message](t rapid.TB, m M) string {
	t.Helper()
	encoded, err := json.Marshal(m, jsontext.AllowDuplicateNames(true), json.Deterministic(true))
	if err != nil {
		t.Fatalf("package json cannot encode %+v: %v", m, err)
	}
	return string(encoded)
}
