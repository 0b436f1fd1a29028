package api

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/projections"
)

// runAgain asks for a rerun, and checks the status of the answer.
func (s *stage) runAgain(id, body string, status int) (Receipt, string) {
	s.Helper()
	_, answer := s.act(id, "rerun", body, status, "traceparent", trace, "baggage", "user=7", "tracestate", strings.Repeat("x", 600))
	var r Receipt
	if status == http.StatusAccepted {
		if err := json.Unmarshal([]byte(answer), &r); err != nil {
			s.Fatalf("%v: %s", err, answer)
		}
	}
	return r, answer
}

const trace = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"

// dozes registers two versions of a workflow, which find orders by other values of their input.
func (s *stage) dozes() {
	s.Helper()
	for n, search := range []string{"customer", "customer, region"} {
		source := fmt.Sprintf("workflow: dozes\nversion: %d\nsearch: [%s]\ninput: {type: object}\nsteps: [{name: nap, sleep: 1ms}]\n", n+1, search)
		if _, err := s.client.Register(s.Context(), "w.yaml", []byte(source)); err != nil {
			s.Fatal(err)
		}
	}
}

// P3: an order that has ended is run again, as a new one, with what it had.
func (s *stage) testRerun() {
	s.dozes()
	soon := time.Now().Add(time.Hour)
	first := &Submission{
		ID: "again/1", Workflow: "dozes", Version: 1, Input: []byte(`{"customer":"c-1","region":"us"}`), Priority: events.High, ReplyTo: callersTopic,
		Deadline: &soon, Labels: map[string]string{"region": "eu", "own": "x"},
	}
	if _, err := s.client.Submit(s.Context(), first); err != nil {
		s.Fatal(err)
	}
	before := s.order("again/1", projections.Processed)
	if before.RerunOf != nil {
		s.Errorf("an order of its own runs %q again", *before.RerunOf)
	}

	r, _ := s.runAgain("again%2F1", `{"id":"again-2"}`, http.StatusAccepted)
	o := s.order("again-2", projections.Processed)
	if r.OrderID != "again-2" || r.Digest != *o.Digest || o.RerunOf == nil || *o.RerunOf != "again/1" || o.Version != 1 || o.Priority != events.High || o.Deadline != nil ||
		o.ReplyTo == nil || *o.ReplyTo != callersTopic || string(o.Input) != string(first.Input) || fmt.Sprint(o.Labels) != "map[customer:c-1 own:x region:eu]" {
		s.Errorf("%+v, %+v", r, o)
	}
	if e := s.history("again-2")[0]; e.RerunOf != "again/1" || e.Traceparent != trace || e.Baggage != "user=7" || e.Tracestate != "" {
		s.Errorf("%+v", e)
	}
	// Asked again it is the same order, unless something else is asked for.
	s.runAgain("again%2F1", `{"id":"again-2"}`, http.StatusAccepted)
	s.runAgain("again%2F1", `{"id":"again-2","input":{}}`, http.StatusConflict)
	s.runAgain("again-2", `{"id":"again-2b"}`, http.StatusAccepted)
	s.order("again-2b", projections.Processed)
	s.runAgain("again%2F1", `{"id":"again-2b"}`, http.StatusConflict)
	if h := s.history("again-2"); len(of(h, events.StepWoke)) != 1 || len(of(h, events.SubmissionConflicted)) != 0 {
		s.Errorf("%+v", h)
	}

	// What is given takes the place of what the order had. What a version finds orders by is no
	// label in it.
	later := time.Now().Add(2 * time.Hour).UTC().Truncate(time.Second)
	s.runAgain("again%2F1", fmt.Sprintf(`{"id":"again-3","version":2,"input":{"region":"us"},"deadline":%q}`, later.Format(time.RFC3339)), http.StatusAccepted)
	if o := s.order("again-3", projections.Processed); o.Version != 2 || fmt.Sprint(o.Labels) != "map[own:x region:us]" || o.Deadline == nil || !o.Deadline.Equal(later) || string(o.Input) != `{"region":"us"}` {
		s.Errorf("%+v", o)
	}
	// Without a body, too, and under an id of its own.
	r, _ = s.runAgain("again-3", "", http.StatusAccepted)
	if o := s.order(r.OrderID, projections.Processed); o.Version != 2 || *o.RerunOf != "again-3" || o.Deadline != nil {
		s.Errorf("%+v", o)
	}
	// Labels are those of now.
	s.act("again-3", "label", `{"labels":{"own":null,"more":"y"}}`, http.StatusOK)
	r, _ = s.runAgain("again-3", "", http.StatusAccepted)
	if o := s.order(r.OrderID, projections.Processed); fmt.Sprint(o.Labels) != "map[more:y region:us]" {
		s.Errorf("%+v", o.Labels)
	}

	// It does not matter how the order ended.
	s.declined("again-cancelled")
	if _, says := s.runAgain("again-cancelled", "", http.StatusConflict); !strings.Contains(says, "it is Error: resubmit it so that it goes on, or cancel it; then run it again") {
		s.Errorf("%s", says)
	}
	s.act("again-cancelled", "cancel", "", http.StatusOK)
	s.order("again-cancelled", projections.Cancelled)
	s.listens("again-terminated")
	if _, says := s.runAgain("again-terminated", "", http.StatusConflict); !strings.Contains(says, "it is Pending: wait for its end, or cancel it; then run it again") {
		s.Errorf("%s", says)
	}
	s.act("again-terminated", "terminate", `{"note":"enough"}`, http.StatusOK)
	for id, state := range map[string]projections.State{"again-cancelled": projections.Error, "again-terminated": projections.Pending} {
		r, _ := s.runAgain(id, "", http.StatusAccepted)
		if o := s.order(r.OrderID, state); *o.RerunOf != id {
			s.Errorf("%+v", o)
		}
	}
}

// What cannot be run again is refused, with what to do.
func (s *stage) testRerunProblems() {
	s.dozes()
	for id, submission := range map[string]*Submission{
		"vain-1": {Workflow: "dozes", Input: []byte(`{"customer":"c-1"}`)}, "vain-rejected": {Workflow: "dozes", Input: []byte(`[]`)}, "vain-none": {Workflow: "nobody-knows"},
	} {
		message := submission.message()
		if _, err := s.instance.Submit(s.Context(), id, &message, orchestrator.Context{}, nil); err != nil { // as from Kafka, where nothing is refused at once
			s.Fatal(err)
		}
	}
	s.order("vain-1", projections.Processed)
	s.order("vain-rejected", projections.Rejected)
	s.order("vain-none", projections.Rejected)
	for _, c := range []struct {
		id, body string
		status   int
		says     string
	}{
		{"vain-nothing", "", 404, `there is no order`},
		{"vain-1", `{"id":"vain-1"}`, 422, "the new order needs an id of its own; choose another, or leave it out"},
		{"vain-1", `{"id":"` + strings.Repeat("x", 257) + `"}`, 422, "the order id has 257 bytes"},
		{"vain-1", `{"id":"vain-rejected"}`, 409, "the id is that of another submission"},
		{"vain-1", `{"version":3}`, 409, `workflow \"dozes@3\" is not registered: register it, or name another version`},
		{"vain-1", `{"version":-1}`, 422, "body.version"},
		{"vain-1", `{"input":{`, 400, "unexpected EOF"},
		{"vain-1", `{"input":"` + strings.Repeat("x", events.MaxValue) + `"}`, 413, ""},
		{"vain-1", `{"input":"` + strings.Repeat("x", events.MaxValue-50) + `"}`, 413, "keep large data elsewhere"},
		{"vain-rejected", "", 409, `order \"vain-rejected\" was rejected, and what it was submitted with is not kept: give its input, or submit it again`},
		{"vain-none", `{"input":1}`, 409, `workflow \"nobody-knows\" is not registered`},
	} {
		if _, says := s.runAgain(c.id, c.body, c.status); !strings.Contains(says, c.says) {
			s.Errorf("%s, %.60s: %s", c.id, c.body, says)
		}
	}
	// What the workflow does not take is as that of any submission.
	if _, says := s.runAgain("vain-1", `{"input":[]}`, http.StatusUnprocessableEntity); !strings.Contains(says, "nothing was submitted: the input") {
		s.Error(says)
	}
	r, _ := s.runAgain("vain-1", `{"deadline":"2001-01-01T00:00:00Z"}`, http.StatusAccepted)
	if o := s.order(r.OrderID, projections.Rejected); o.Reason == nil || !strings.Contains(*o.Reason, "deadline") || !r.Made(o, "vain-1") {
		s.Errorf("%+v", o)
	}
	r, _ = s.runAgain("vain-rejected", `{"input":{}}`, http.StatusAccepted)
	if o := s.order(r.OrderID, projections.Processed); *o.RerunOf != "vain-rejected" || o.Version != 2 {
		s.Errorf("%+v", o)
	}
}

// Whoever runs an order again must be an operator and a submitter for its workflow, and gets
// nothing of its input that it may not read.
func TestWhoRunsAgain(t *testing.T) {
	var log bytes.Buffer
	s, keys := known(t, slog.New(slog.NewTextHandler(&log, nil)), map[string]string{
		"root": "roles: [admin]", "op": "roles: [operator]", "sub": "roles: [submitter, viewer]", "blind": "roles: [submitter]",
		"both": "roles: [operator, submitter]", "other": "roles: [operator, submitter], workflows: [other]", "read": "roles: [operator, submitter, payload-reader]",
		"certificates": "certificates:\n  - {san: part, roles: [operator], workflows: [leaky, other]}\n  - {san: part, roles: [submitter], workflows: [other]}\n",
	})
	chain := []*x509.Certificate{{DNSNames: []string{"part"}, NotAfter: time.Now().Add(time.Hour)}}
	part := &tls.ConnectionState{PeerCertificates: chain, VerifiedChains: [][]*x509.Certificate{chain}}
	for _, workflow := range []string{"leaky", "other"} {
		s.failed("of-"+workflow, workflow)
		s.act("of-"+workflow, "terminate", `{"note":"enough"}`, http.StatusOK)
	}
	for n, c := range []struct {
		who, id string
		status  int
		says    string
	}{
		{"op", "of-leaky", 403, "op does not have the role submitter"},
		{"sub", "of-leaky", 403, "sub does not have the role operator"},
		{"blind", "of-leaky", 403, "blind does not have the role operator"},
		{"other", "of-leaky", 404, "there is no order"},
		{"other", "nothing", 404, "there is no order"},
		{"other", "of-other", 202, ""},
		{"part", "of-leaky", 403, "does not have the role submitter that this takes; an administrator gives it in the access file, for workflow leaky"},
		{"part", "of-other", 202, ""},
		{"both", "of-leaky", 202, ""},
		{"read", "of-leaky", 202, "digest"},
	} {
		made := fmt.Sprint("made-", n)
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/api/v1/orders/"+c.id+"/rerun", strings.NewReader(fmt.Sprintf(`{"id":%q}`, made)))
		r.Header.Set("Content-Type", "application/json")
		if c.who == "part" {
			r.TLS = part
		} else {
			r.Header.Set("Authorization", "Bearer "+keys[c.who])
		}
		said := httptest.NewRecorder()
		if s.server.ServeHTTP(said, r); said.Code != c.status || !strings.Contains(said.Body.String(), c.says) || strings.Contains(said.Body.String(), "canary") {
			t.Errorf("%s, %s: %d %s", c.who, c.id, said.Code, said.Body)
		}
		if has := strings.Contains(said.Body.String(), "digest"); has != (c.who == "read") {
			t.Errorf("%s is told a digest: %t", c.who, has)
		}
		if c.status == http.StatusAccepted {
			if o := s.order(made, projections.Error); !strings.Contains(string(o.Input), "canary") || o.Labels["word"] != "canary" {
				t.Errorf("%+v", o)
			}
			if line := fmt.Sprintf("audit.operation=rerun-order audit.on=%s audit.made=%s audit.status=202", c.id, made); !strings.Contains(log.String(), line) {
				t.Errorf("%q is not in the log", line)
			}
		}
	}
	if _, err := s.client.Order(t.Context(), "made-0"); err == nil {
		t.Error("what was refused was submitted")
	}
	own := *s
	own.token = keys["both"]
	if _, _, said := own.ask(request{path: "/api/v1/orders/made-8"}); !strings.Contains(said, `"rerunOf":"of-leaky"`) || strings.Contains(said, "canary") {
		t.Errorf("%s", said)
	}
}
