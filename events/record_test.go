package events_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
)

func TestRecordCarriesACloudEvent(t *testing.T) {
	e := events.Envelope{
		Source: "/waybill/instance-1", Type: events.StepRequested, ID: "id-1", Order: "o-1",
		Time: time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC), Traceparent: "00-trace", Tracestate: "a=1", Baggage: "b=2", Extra: []events.RawHeader{{Key: "ce_step", Value: []byte("charge")}},
	}
	r := e.Record("topic", []byte("{}"))
	if r.Topic != "topic" || string(r.Key) != "o-1" || string(r.Value) != "{}" {
		t.Errorf("record %s %s %s", r.Topic, r.Key, r.Value)
	}
	want := map[string]string{
		"ce_specversion": "1.0", "ce_id": "id-1", "ce_type": "waybill.step.requested", "ce_source": "/waybill/instance-1",
		"ce_subject": "o-1", "ce_time": "2026-01-02T03:04:05.006Z", "content-type": "application/json",
		"traceparent": "00-trace", "tracestate": "a=1", "baggage": "b=2", "ce_step": "charge",
	}
	for key, value := range want {
		if got := events.Header(r, key); got != value {
			t.Errorf("header %s is %q, want %q", key, got, value)
		}
	}
	if len(r.Headers) != len(want) {
		t.Errorf("%d headers, want %d", len(r.Headers), len(want))
	}
}

// Events of a partition belong to no order: no subject, and no key.
func TestRecordWithoutAnOrder(t *testing.T) {
	e := events.Envelope{Source: "/waybill", Type: events.PartitionClaimed, ID: "id-1"}
	r := e.Record("topic", nil)
	if r.Key != nil {
		t.Errorf("key %q", r.Key)
	}
	for _, h := range r.Headers {
		if h.Key == "ce_subject" || h.Key == "traceparent" {
			t.Errorf("header %s is %q", h.Key, h.Value)
		}
	}
	for _, required := range []string{"ce_specversion", "ce_id", "ce_type", "ce_source"} {
		if events.Header(r, required) == "" {
			t.Errorf("header %s is missing", required)
		}
	}
}

func TestHeaderIsTheLastOfItsName(t *testing.T) {
	r := &kgo.Record{Headers: []kgo.RecordHeader{{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte("2")}}}
	if got := events.Header(r, "a"); got != "2" {
		t.Errorf("header a is %q", got)
	}
	if got := events.Header(r, "b"); got != "" {
		t.Errorf("header b is %q", got)
	}
}
