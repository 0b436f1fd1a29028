package api

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
)

func decodeCursor(text string) (string, error) {
	b, err := base64.RawURLEncoding.DecodeString(text)
	return string(b), err
}

// What orders are about is in no answer to who may not read it: every GET that there is
// is asked, for orders that have a word in every place that callers, agents and operators
// write. Who may read it finds it.
func TestPayloadsAreMasked(t *testing.T) {
	s, keys := known(t, slog.New(slog.DiscardHandler), map[string]string{
		"root": "roles: [admin]", "view": "roles: [viewer]", "op": "roles: [operator, submitter, deployer]",
		"read": "roles: [payload-reader]", "part": "roles: [payload-reader], workflows: [leaky]",
	})
	for _, id := range []string{"o-1", "o-2", "o-3"} {
		s.failed(id, "leaky")
	}
	s.failed("o-4", "other")
	// What operators write is theirs, too.
	s.act("o-1", "resubmit", `{"step":"second","newKey":true,"input":{"more":"canary"},"note":"canary"}`, 200)
	s.order("o-1", projections.Error)
	s.act("o-1", "skip-step", `{"step":"second","output":"canary","note":"canary"}`, 200)
	s.order("o-1", projections.Processed)
	s.act("o-1", "cancel", `{"note":"canary"}`, 409)
	s.act("o-2", "cancel", `{"note":"canary"}`, 200)
	s.until(func() bool { // its undo fails
		o, err := s.client.Order(s.Context(), "o-2")
		return err == nil && o.ProcessState == projections.Error && o.Alert != nil && o.Toward != nil
	})

	// What the world tells is about the order, too: heard, kept, or discarded.
	s.listens("o-5")
	for _, body := range []string{`{"signal":"go","data":"canary"}`, `{"signal":"later","data":{"canary":1}}`, `{"signal":"go","data":"canary"}`} {
		s.tells("o-5", body)
	}

	answers := func(token string) map[string]string {
		all := make(map[string]string)
		own := *s
		own.token = token
		for _, o := range routes(t, s.server, s.token) {
			if o.method != http.MethodGet || slices.Contains(o.roles, "admin") {
				continue
			}
			for _, id := range []string{"o-1", "o-2", "o-3", "o-4", "o-5"} {
				path := strings.NewReplacer("{id}", id, "{name}", "leaky", "{seq}", "5").Replace(o.path)
				seen := path
				if o.id == "follow-order" { // which may have no end
					seen = "/api/v1/orders/" + id
				}
				status, header, body := own.ask(request{path: seen})
				if status != http.StatusOK {
					continue
				}
				if seen != path {
					follower := own.follows(id, "")
					for body = ""; strings.Count(body, "\n") < len(s.history(id)); {
						e, _ := follower.next()
						body += e.data + "\n"
					}
					follower.end()
				}
				text, err := json.Marshal(header)
				if err != nil {
					t.Fatal(err)
				}
				all[path] = body + string(text)
			}
		}
		return all
	}
	for _, who := range []string{"view", "op"} {
		all := answers(keys[who])
		if len(all) < 13 {
			t.Errorf("%s got %d answers", who, len(all))
		}
		for path, said := range all {
			if strings.Contains(said, "canary") {
				t.Errorf("%s of %s: %s", path, who, said)
			}
			if about := strings.Contains(path, "/orders") || strings.Contains(path, "/alerts"); about != strings.Contains(said, `"masked":true`) {
				t.Errorf("%s of %s does not say whether something is left out: %s", path, who, said)
			}
		}
		var o Order
		if err := json.Unmarshal([]byte(strings.SplitAfter(all["/api/v1/orders/o-2"], "\n")[0]), &o); err != nil {
			t.Fatal(err)
		}
		if !o.Masked || o.OrderID != "o-2" || o.Workflow != "leaky" || len(o.Steps) != 2 || o.Steps[0].Undo == nil || o.Steps[0].Undo.Error == nil || o.Alert == nil || len(o.Alert.Errors) == 0 || o.Digest != nil {
			t.Errorf("what is left of an order is %+v", o)
		}
		if !strings.Contains(all["/api/v1/orders/o-1/history"], `"step":"second"`) {
			t.Errorf("what is left of a history is %s", all["/api/v1/orders/o-1/history"])
		}
	}
	for who, other := range map[string]bool{"read": true, "part": false, "root": true} {
		all := answers(keys[who])
		for _, path := range []string{"/api/v1/orders", "/api/v1/alerts", "/api/v1/orders/o-1", "/api/v1/orders/o-2/history"} {
			if !strings.Contains(all[path], "canary") {
				t.Errorf("%s of %s: %s", path, who, all[path])
			}
		}
		for path, times := range map[string]int{"/api/v1/orders/o-5": 2, "/api/v1/orders/o-5/history": 2, "/api/v1/orders/o-5/events": 2} {
			if other && strings.Count(all[path], "canary") != times {
				t.Errorf("%s of %s: %s", path, who, all[path])
			}
		}
		if _, seen := all["/api/v1/orders/o-4"]; seen != other {
			t.Errorf("%s sees an order of another workflow: %t", who, seen)
		}
	}
	// The answer to an act is an answer, too.
	own := *s
	own.token = keys["op"]
	if o, said := own.act("o-3", "resubmit", "", 200); !o.Masked || strings.Contains(said, "canary") {
		t.Errorf("the answer to an act: %s", said)
	}
}

// Every field of an event is known to have a payload or to have none.
func TestWhatOfAnEventIsAPayload(t *testing.T) {
	payloads := []string{"Input", "Output", "Error", "Errors", "Reason", "Action", "Raw", "Digest", "Data", "Labels", "Key", "Cursor", "Tracestate", "Baggage"}
	ofPartitions := []string{"Instance", "Claim", "Partitions", "Format", "Delivered", "Silent"}
	const canary = "canary"
	fill := events.Event{
		Type: events.StepCompleted, Order: "o-1", Seq: 1, At: time.Now(), Input: jsontext.Value(`"canary"`), Output: jsontext.Value(`"canary"`),
		Schedule: &events.Schedule{Workflow: "w", Input: jsontext.Value(`"canary"`), Labels: map[string]string{canary: canary}},
		Error:    &events.Error{Code: canary, Message: canary, Step: canary}, Errors: []events.Error{{Message: canary}}, Reason: canary, Action: canary, Digest: canary, Data: jsontext.Value(`"canary"`), Labels: map[string]string{canary: canary}, Key: canary, Cursor: canary, Tracestate: canary, Baggage: canary,
		Raw: &events.Raw{Key: []byte(canary), Value: []byte(canary), Headers: []events.RawHeader{{Key: canary, Value: []byte(canary)}}},
	}
	masked, err := maskedEvent(fill.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	if text := string(masked); strings.Contains(text, canary) || strings.Contains(text, base64.StdEncoding.EncodeToString([]byte(canary))) || !strings.HasSuffix(text, `,"masked":true}`) {
		t.Errorf("%s", text)
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[events.Event]()) {
		if slices.Contains(payloads, field.Name) || slices.Contains(ofPartitions, field.Name) {
			continue
		}
		e := events.Event{Type: events.StepCompleted, Order: "o-1", Seq: 1, At: time.Now()}
		v := reflect.ValueOf(&e).Elem().FieldByIndex(field.Index)
		switch v.Kind() {
		case reflect.String:
			if v.SetString("x"); field.Name == "Home" {
				v.SetString("@/limit.x") // that of a key is a payload
			}
		case reflect.Int:
			v.SetInt(7)
		case reflect.Uint64:
			v.SetUint(7)
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Slice:
			v.Set(reflect.ValueOf([]string{"x"}))
		case reflect.Map:
			m := reflect.MakeMap(v.Type())
			m.SetMapIndex(reflect.ValueOf("x"), reflect.Zero(v.Type().Elem()))
			v.Set(m)
		case reflect.Struct:
			v.Set(reflect.ValueOf(events.Time(time.Now())))
		case reflect.Pointer:
			if v.Type() == reflect.TypeFor[*events.Schedule]() {
				v.Set(reflect.ValueOf(&events.Schedule{Every: "1h", Workflow: "w", ReplyTo: "t"}))
				break
			}
			if v.Type() == reflect.TypeFor[*events.Limit]() {
				v.Set(reflect.ValueOf(&events.Limit{AtATime: 1}))
				break
			}
			// Of what is made of an access file and a token alone.
			v.Set(reflect.ValueOf(&events.Actor{Method: "oidc", Issuer: "x", Roles: []string{"x"}, At: events.Time(time.Now())}))
		default:
			t.Errorf("%s: say whether it has a payload", field.Name)
		}
		masked, err := maskedEvent(e.Append(nil))
		if err != nil {
			t.Fatal(err)
		}
		if want := strings.TrimSuffix(string(e.Append(nil)), "}") + `,"masked":true}`; string(masked) != want {
			t.Errorf("%s: say in maskedEvent, or here, whether it has a payload: %s", field.Name, masked)
		}
	}
	queued := events.Event{Type: events.OrderQueued, Order: "o-1", Seq: 1, At: time.Now(), Home: events.TurnID("w", canary), Key: canary, OnConflict: events.ConflictQueue}
	if masked, err := maskedEvent(queued.Append(nil)); err != nil || strings.Contains(string(masked), canary) || !strings.Contains(string(masked), "queue") {
		t.Errorf("of a turn it says %s, %v", masked, err)
	}
	discarded := events.Event{Type: events.ReplyDiscarded, Order: "o-1", Seq: 1, At: time.Now(), Reason: events.DiscardLate}
	if masked, err := maskedEvent(discarded.Append(nil)); err != nil || !strings.Contains(string(masked), events.DiscardLate) {
		t.Errorf("%s, %v", masked, err)
	}
	if masked, err := maskedEvent(json.RawMessage(`"canary"`)); err == nil {
		t.Errorf("what cannot be read is given: %s", masked)
	}
}

type humaCall = huma.Context

// nobodys is a call of nobody's.
type nobodys struct{ humaCall }

func (nobodys) Context() context.Context { return context.Background() }

// An answer of a kind of which nobody said what is a payload is not given.
func TestAnAnswerOfAnUnknownKind(t *testing.T) {
	if answer, err := New(Config{}).mask(nobodys{}, "200", struct{ Secret string }{"canary"}); err == nil || answer != nil {
		t.Errorf("%v, %v", answer, err)
	}
}
