package audit

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
)

// Alerts of no order are there once each, and no sooner than a minute after one about the same.
func TestCalls(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	alert := func(about string, after time.Duration) *kgo.Record {
		at := began.Add(after)
		return &kgo.Record{
			Value:   (&events.Alert{Reason: "why", Errors: []events.Error{}, At: at}).Append(nil),
			Headers: []kgo.RecordHeader{{Key: "ce_id", Value: fmt.Append(nil, about, at.UnixMilli())}},
		}
	}
	for _, c := range []struct {
		name   string
		alerts []*kgo.Record
		blind  bool // no clock tells
		want   string
	}{
		{"as it is", []*kgo.Record{alert("p0/a/", 0), alert("p0/b/", 0), alert("p1/a/", 0), alert("p0/a/", time.Minute)}, false, ""},
		{"of a partition itself", []*kgo.Record{alert("p0/", 0), alert("p0/", time.Second), alert("workflows/", 0), alert("workflows/", time.Second)}, false, ""},
		{"too soon", []*kgo.Record{alert("p0/a/", 0), alert("p0/a/", 59*time.Second)}, false, "comes 59s after"},
		{"too soon, and nobody can tell", []*kgo.Record{alert("p0/a/", 0), alert("p0/a/", time.Second)}, true, ""},
		{"twice", []*kgo.Record{alert("p0/a/", 0), alert("p0/a/", 0)}, true, "is there twice"},
		{"of nothing", []*kgo.Record{{Value: []byte(`{}`)}}, false, "says {}"},
		{"of an order, which has rules of its own", []*kgo.Record{{Key: []byte("o-1"), Value: []byte(`{}`)}}, false, ""},
	} {
		switch got := strings.Join(Calls(c.alerts, !c.blind), "; "); {
		case c.want == "" && got != "", !strings.Contains(got, c.want):
			t.Errorf("%s: %q", c.name, got)
		}
	}
}
