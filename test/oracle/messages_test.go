package oracle

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
)

// trace is that of [history].
const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// sent is what must have left on account of [history], each as a record.
func sent() []*kgo.Record {
	var all []*kgo.Record
	send := func(kind events.Type, value []byte, headers ...kgo.RecordHeader) {
		headers = append(headers, header(events.HeaderType, string(kind)), header(events.HeaderTraceparent, trace))
		if kind != events.OrderStatus {
			headers = append(headers, header(events.HeaderTracestate, "a=1"), header(events.HeaderBaggage, "b=2"))
		}
		all = append(all, &kgo.Record{Key: []byte("o"), Value: value, Headers: headers})
	}
	request := func(step string, attempt, completeBy int, key string) events.Request {
		return events.Request{
			Order: "o", Step: step, Attempt: attempt, Operation: step, CompleteBy: after(completeBy), IdempotencyKey: key, ReplyTo: topics.Replies,
		}
	}
	ask := func(r events.Request) {
		headers := []kgo.RecordHeader{
			header("ce_step", r.Step), header("ce_attempt", strconv.Itoa(r.Attempt)), header("ce_idempotencykey", r.IdempotencyKey),
			header("ce_completeby", string(events.AppendTime(nil, r.CompleteBy))), header("ce_replyto", r.ReplyTo),
		}
		if r.Undo {
			headers = append(headers, header("ce_undo", "true"))
		}
		send(events.StepRequested, r.Append(nil), headers...)
	}
	undo := func(step string, attempt, completeBy int, key, outcome string) {
		r := request(step, attempt, completeBy, key)
		r.Operation, r.Undo, r.Outcome, r.StepKey = "back", true, outcome, "o/"+step
		ask(r)
	}
	status := func(second int, word string, detail *events.Detail) {
		m := events.Status{Order: "o", Status: word, At: after(second), Detail: detail}
		send(events.OrderStatus, m.Append(nil))
	}
	status(0, events.StatusReceived, nil)
	ask(request("a", 1, 10, "o/a"))
	ask(request("a", 2, 12, "o/a"))
	ask(request("b", 1, 13, "o/b"))
	status(13, events.StatusCompensating, &events.Detail{Step: "b", Reason: "b expired", Error: &events.Error{Code: "expired"}})
	undo("b", 1, 23, "o/b:undo", events.OutcomeUnknown)
	undo("a", 1, 24, "o/a:undo", events.OutcomeCompleted)
	status(15, events.StatusFailed, &events.Detail{Step: "a", Reason: "1 of the undos failed"})
	alert := events.Alert{
		Order: "o", Step: "a", Reason: "1 of the undos failed", Action: "repair it", At: after(15),
		Errors: []events.Error{{Code: "gone", Permanent: true, Step: "a", Attempt: 1, Undo: true}, {Code: "expired", Step: "b", Attempt: 1}},
	}
	send(events.AlertRaised, alert.Append(nil))
	undo("a", 2, 30, "o/a:undo:2", events.OutcomeCompleted)
	status(21, events.StatusCompensated, &events.Detail{Undone: []string{"a", "b"}})
	return all
}

func header(key, value string) kgo.RecordHeader {
	return kgo.RecordHeader{Key: key, Value: []byte(value)}
}

var topics = func() *events.Topics {
	topics, err := events.NewTopics(events.DefaultNamespace)
	if err != nil {
		panic(err)
	}
	return &topics
}()

// check holds messages against [history].
func check(records []*kgo.Record) error {
	all := make(map[string]*Messages)
	if err := Sort(all, topics, records); err != nil {
		return err
	}
	h := history()
	for i := range h {
		h[i].Order, h[i].Seq = "o", uint64(i+1)
	}
	h[0].Traceparent, h[0].Tracestate, h[0].Baggage = trace, "a=1", "b=2"
	return CheckMessages(h, all["o"])
}

func TestMessagesFollowFromTheHistory(t *testing.T) {
	if err := check(sent()); err != nil {
		t.Fatal(err)
	}
	ids := map[events.Type]string{events.StepRequested: "S3", events.OrderStatus: "P1", events.AlertRaised: "P2"}
	for i, r := range sent() {
		kind := events.Type(events.Header(r, events.HeaderType))
		for what, records := range map[string][]*kgo.Record{
			"is lost":     slices.Delete(sent(), i, i+1),
			"comes twice": slices.Insert(sent(), i, r),
		} {
			if err := check(records); err == nil || !strings.Contains(err.Error(), ids[kind]+": ") {
				t.Errorf("message %d, %s, %s, and the oracle says %v", i+1, kind, what, err)
			}
		}
	}
	for what, change := range map[string]struct {
		message  int
		old, new string
	}{
		"a request without a topic for its reply":   {1, `,"replyTo":"waybill.replies"`, ``},
		"a request with another input":              {1, `"order":"o"`, `"order":"o","input":1`},
		"a request with another key":                {2, `"o/a"`, `"o/a:2"`},
		"a request for another attempt":             {2, `"attempt":2`, `"attempt":1`},
		"a request with a later complete-by":        {2, `12:00:12`, `12:00:13`},
		"a request of high priority":                {3, `"order":"o"`, `"order":"o","priority":"high"`},
		"a request that hides that it is an undo":   {5, `"undo":true,`, ``},
		"a request with an output":                  {6, `"order":"o"`, `"order":"o","output":1`},
		"another status":                            {4, `"compensating"`, `"failed"`},
		"a status with another reason":              {7, `undos failed`, `undos did not work`},
		"a status that does not say what is undone": {10, `["a","b"]`, `["a"]`},
		"an alert with fewer errors":                {8, `,{"code":"expired","step":"b","attempt":1}`, ``},
		"an alert for another order":                {8, `"order":"o"`, `"order":"p"`},
		"no JSON":                                   {8, `{`, ``},
	} {
		records := sent()
		r := records[change.message]
		changed := strings.Replace(string(r.Value), change.old, change.new, 1)
		if changed == string(r.Value) {
			t.Fatalf("%s: %s has no %s", what, r.Value, change.old)
		}
		r.Value = []byte(changed)
		if check(records) == nil {
			t.Errorf("%s, and nobody notices", what)
		}
	}
	// What an agent may go by without reading the value.
	for what, h := range map[string]struct {
		message int
		kgo.RecordHeader
	}{
		"another step":                       {1, header("ce_step", "b")},
		"another attempt":                    {2, header("ce_attempt", "1")},
		"a later complete-by":                {1, header("ce_completeby", "2026-01-02T12:00:11.000Z")},
		"another key":                        {1, header("ce_idempotencykey", "o/b")},
		"another topic for the reply":        {1, header("ce_replyto", "waybill.status")},
		"an undo that is none":               {1, header("ce_undo", "true")},
		"no undo":                            {5, header("ce_undo", "")},
		"a priority that is not the order's": {1, header("ce_priority", "high")},
		"a request of no trace":              {1, header(events.HeaderTraceparent, "")},
		"a status of another trace":          {0, header(events.HeaderTraceparent, trace[:54]+"0")},
		"an alert of no trace":               {8, header(events.HeaderTraceparent, "")},
		"a request without the tracestate":   {1, header(events.HeaderTracestate, "")},
		"an undo without the baggage":        {5, header(events.HeaderBaggage, "")},
		"a status with other baggage":        {0, header(events.HeaderBaggage, "b=3")},
		"an alert without the baggage":       {8, header(events.HeaderBaggage, "")},
	} {
		records := sent()
		records[h.message].Headers = append(records[h.message].Headers, h.RecordHeader)
		if check(records) == nil {
			t.Errorf("%s, and nobody notices", what)
		}
	}
	elsewhere := sent()
	elsewhere[1].Value = []byte(strings.Replace(string(elsewhere[1].Value), topics.Replies, topics.Status, 1))
	elsewhere[1].Headers = append(elsewhere[1].Headers, header("ce_replyto", topics.Status))
	if err := check(elsewhere); err == nil || !strings.Contains(err.Error(), "S3: ") {
		t.Errorf("a reply goes to another topic, and the oracle says %v", err)
	}
	swapped := sent()
	swapped[1], swapped[2] = swapped[2], swapped[1]
	if check(swapped) == nil {
		t.Error("requests change places, and nobody notices")
	}
	if err := CheckMessages(nil, &Messages{Alerts: []events.Alert{{Order: "o"}}}); err == nil {
		t.Error("there are messages about no order, and nobody notices")
	}
}

// TestSort: each message is one of its order, in the order of the topic; alerts
// about a partition are those of the order "".
func TestSort(t *testing.T) {
	all := make(map[string]*Messages)
	if err := Sort(all, topics, sent()); err != nil {
		t.Fatal(err)
	}
	about := events.Alert{Reason: "a gap", At: noon.Add(time.Second)}
	lane := &kgo.Record{Value: about.Append(nil), Headers: []kgo.RecordHeader{{Key: events.HeaderType, Value: []byte(events.AlertRaised)}}}
	if err := Sort(all, topics, []*kgo.Record{lane}); err != nil {
		t.Fatal(err)
	}
	o := all["o"]
	if len(o.Requests) != 6 || len(o.Statuses) != 4 || len(o.Alerts) != 1 || len(all[""].Alerts) != 1 || len(all) != 2 {
		t.Errorf("%+v of the order, %+v of the partition", o, all[""])
	}
	lane.Headers[0].Value = []byte("waybill.order.accepted")
	if Sort(all, topics, []*kgo.Record{lane}) == nil {
		t.Error("a message of an unknown type, and nobody notices")
	}
}

// A request may be missing if it is known to be gone, and only then.
func TestCheckMessagesThatAreGone(t *testing.T) {
	h := history()
	for i := range h {
		h[i].Order, h[i].Seq = "o", uint64(i+1)
	}
	h[0].Traceparent, h[0].Tracestate, h[0].Baggage = trace, "a=1", "b=2"
	at := slices.IndexFunc(h, func(e events.Event) bool { return e.Type == events.StepStarted })
	records := sent()
	records = slices.Delete(records, 1, 2) // the first request
	all := make(map[string]*Messages)
	if err := Sort(all, topics, records); err != nil {
		t.Fatal(err)
	}
	if err := CheckMessages(h, all["o"]); err == nil {
		t.Error("a request is missing, and nothing was said")
	}
	all["o"].Gone = []uint64{h[at].Seq}
	if err := CheckMessages(h, all["o"]); err != nil {
		t.Error(err)
	}
}

// What answers another than the order's caller comes when its topic takes it.
func TestAnswersComeInAnyOrder(t *testing.T) {
	for status, anyOrder := range map[string]bool{
		events.StatusConflict: true, events.StatusMatched: true, events.StatusStarted: true, events.StatusKept: true, events.StatusRepeated: true,
		events.StatusLate: true, events.StatusDeclined: true, events.StatusFailed: false,
	} {
		var records []*kgo.Record
		for _, seq := range []string{"o/3/status", "o/2/status"} {
			m := events.Status{Order: "o", Status: status}
			records = append(records, &kgo.Record{Key: []byte("o"), Value: m.Append(nil), Headers: []kgo.RecordHeader{header(events.HeaderType, string(events.OrderStatus)), header("ce_id", seq)}})
		}
		if _, err := InOrder(records, false); (err == nil) != anyOrder {
			t.Errorf("%s: %v", status, err)
		}
	}
}
