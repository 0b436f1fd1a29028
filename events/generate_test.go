package events_test

import (
	"reflect"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/events"
)

// message is every kind of value that Decode reads.
type message interface {
	events.Event | events.Submission | events.Request | events.Reply | events.Status | events.Alert | events.Command | events.Signal | events.Wish | events.Report | events.Want | events.Pass | events.Bid | events.Grant
}

// anyMessage generates messages with any of their fields set. It goes by
// reflection, so that a field added tomorrow is tested without being named.
func anyMessage[M message]() *rapid.Generator[M] {
	return rapid.Custom(func(t *rapid.T) M {
		var m M
		fill(t, reflect.ValueOf(&m).Elem())
		return m
	})
}

func fill(t *rapid.T, v reflect.Value) {
	if !rapid.Bool().Draw(t, "set") {
		return
	}
	switch field := v.Addr().Interface().(type) {
	case *time.Time:
		*field = moment.Draw(t, "time")
		return
	case *[]byte:
		*field = rapid.SliceOfN(rapid.Byte(), 1, 5).Draw(t, "bytes")
		return
	case *map[string]int64:
		topic := rapid.StringMatching(`[a-zA-Z0-9._-]{1,20}`)
		*field = rapid.MapOfN(topic, rapid.Int64Min(0), 1, 3).Draw(t, "offsets")
		return
	case *map[string]string:
		*field = rapid.MapOfN(text, text, 1, 3).Draw(t, "labels")
		return
	case *map[string]*string:
		*field = rapid.MapOfN(text, rapid.Ptr(text, true), 1, 3).Draw(t, "labels")
		return
	case *jsontext.Value:
		*field = payload.Draw(t, "payload")
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			fill(t, field)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem())
	case reflect.Slice:
		n := rapid.IntRange(1, 3).Draw(t, "length")
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			fill(t, v.Index(i))
		}
	case reflect.String:
		v.SetString(text.Draw(t, "text"))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint64:
		v.SetUint(rapid.Uint64().Draw(t, "number"))
	case reflect.Int:
		v.SetInt(int64(rapid.Int().Draw(t, "number")))
	case reflect.Int32:
		v.SetInt(int64(rapid.Int32().Draw(t, "number")))
	default:
		t.Fatalf("no generator for a field of type %s", v.Type())
	}
}

// Text of all kinds, and more often than chance the characters that an encoder
// may get wrong.
var text = rapid.OneOf(
	rapid.String(),
	rapid.StringOf(rapid.SampledFrom([]rune("a\"\\/<>&'\x00\b\t\n\r\x1f\x7f\u0080é\u2028\u2029\ufffd\U0001f600"))),
)

// Instants as messages carry them, over all the years that RFC 3339 can write.
var moment = rapid.Custom(func(t *rapid.T) time.Time {
	first, last := time.Date(1, 1, 1, 0, 0, 0, 1e6, time.UTC), time.Date(9999, 12, 31, 23, 59, 59, 999e6, time.UTC)
	return time.UnixMilli(rapid.Int64Range(first.UnixMilli(), last.UnixMilli()).Draw(t, "ms")).UTC()
})

var payload = rapid.Custom(func(t *rapid.T) jsontext.Value {
	scalar := rapid.OneOf(rapid.Just[any](nil), text.AsAny(), rapid.Float64Range(-1e9, 1e9).AsAny(), rapid.Bool().AsAny())
	value := rapid.OneOf(scalar,
		rapid.SliceOfN(scalar, 0, 3).AsAny(), rapid.MapOfN(text, scalar, 0, 3).AsAny()).Draw(t, "value")
	encoded, err := json.Marshal(value, json.Deterministic(true))
	if err != nil {
		t.Fatal(err)
	}
	return encoded
})
