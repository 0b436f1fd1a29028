package webhooks

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
)

// The signature is that which other implementations of Standard Webhooks make.
func TestSignature(t *testing.T) {
	secrets, err := parseSecrets(secretText)
	if err != nil {
		t.Fatal(err)
	}
	const want = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	if got := sign(secrets, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`)); got != want {
		t.Errorf("%s", got)
	}
	if got := sign(append(secrets, secrets[0]), "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`)); got != want+" "+want {
		t.Errorf("%s", got)
	}
}

// record is one of the alerts as Waybill writes it.
func record(id, order string, a *events.Alert) *kgo.Record {
	envelope := events.Envelope{Source: "/waybill/shop", Type: events.AlertRaised, ID: id, Order: order, Time: a.At}
	return envelope.Record("shop.alerts", a.Append(nil))
}

// What is told of an alert is in the schema, and has no payload of an order.
func TestMessages(t *testing.T) {
	schema := jsonschema.NewCompiler()
	schema.AssertFormat()
	compiled, err := schema.Compile("../../docs/schemas/webhook.json")
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 27, 3, 0, 0, 0, time.UTC)
	held := events.Error{Code: "internal", Message: "it panicked", Permanent: true}
	of := func(order string, errs ...events.Error) *events.Alert {
		return &events.Alert{Order: order, Step: "charge", Reason: "why", Errors: errs, Action: "do it", At: at}
	}
	reminder := of("o-1")
	reminder.Reminder = true
	ids := make(map[string]string)
	for _, c := range []struct {
		id     string
		alert  *events.Alert
		reason string
		seq    uint64
	}{
		{"o-1/8/alert", of("o-1", events.Error{Code: "declined", Step: "charge"}), "error", 8},
		{"o-1/9/alert", of("o-1", events.Error{Code: "internal", Step: "charge"}), "error", 9}, // of an agent
		{"o-1/10/alert", of("o-1", events.Error{Code: "declined", Step: "charge"}, held), "held", 10},
		{"o-1/11/alert", of("o-1", events.Error{Code: "overdue"}), "overdue", 11},
		{"o-1/12/alert", reminder, "approval", 12},
		{"a/b.c\n/7/alert", of("a/b.c\n"), "error", 7},
		{"p3/1764212400000", of(""), "namespace", 0},
		{"", of("o-1"), "error", 0}, // of somebody else
	} {
		r := record(c.id, c.alert.Order, c.alert)
		m := newMessage("shop", r, c.alert)
		m.Data.URL = page("https://waybill.example/x", c.alert.Order)
		body, err := m.body()
		if err != nil {
			t.Fatal(err)
		}
		var value any
		if err := json.Unmarshal(body, &value); err != nil {
			t.Fatal(err)
		}
		if err := compiled.Validate(value); err != nil {
			t.Errorf("%s: %v", body, err)
		}
		if m.Data.Reason != c.reason || m.Data.Seq != c.seq || m.Timestamp != "2026-11-27T03:00:00.000Z" || m.Data.Message != "why" || m.Data.Action != "do it" {
			t.Errorf("%q: %s", c.id, body)
		}
		if again := newMessage("shop", r, c.alert); again.Data.ID != m.Data.ID || newMessage("other", r, c.alert).Data.ID == m.Data.ID || ids[m.Data.ID] != "" {
			t.Errorf("%q: its id is %s", c.id, m.Data.ID)
		}
		ids[m.Data.ID] = c.id
	}
	if to := page("https://waybill.example/x", "a/b?"); to != "https://waybill.example/x/orders/a%2Fb%3F" || page("", "o") != "" {
		t.Error(to)
	}
	long := of("o-1")
	long.Reason, long.Action = strings.Repeat("é", 1<<20), strings.Repeat("x", 1<<20)
	if body, err := newMessage("shop", record("o-1/1/alert", "o-1", long), long).body(); err != nil || len(body) > 20<<10 {
		t.Errorf("%d bytes, %v", len(body), err)
	}
	body, err := sample(at).body()
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if err := json.Unmarshal(body, &value); err != nil || compiled.Validate(value) != nil {
		t.Errorf("%s: %v", body, compiled.Validate(value))
	}
}
