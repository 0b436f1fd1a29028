package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/orchestrator"
)

// docs/api.md has the types of problems, each name once.
func TestProblemTypesAreDocumented(t *testing.T) {
	table := "| type | status | means |\n| --- | --- | --- |\n"
	names := make(map[problemType]bool)
	for _, p := range problemTypes {
		table += fmt.Sprintf("| `%s` | %d | %s |\n", p.name, p.status, p.means)
		if names[p.name] {
			t.Errorf("%s is there twice", p.name)
		}
		names[p.name] = true
	}
	page, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	_, written, _ := strings.Cut(string(page), "<!-- problems -->\n")
	if written, _, _ = strings.Cut(written, "<!-- /problems -->"); written != table {
		t.Errorf("between the marks in docs/api.md stands\n%s\nand it is\n%s", written, table)
	}
}

// Where the workflows cannot be read to their end, a submission of which that would say more is refused for now, and not for
// good; one of a workflow that is known is taken.
func TestSubmittedWhereWorkflowsCannotBeRead(t *testing.T) {
	s := newStage(t)
	s.attach()
	s.testWorkflows()
	submit := func(workflow string) (int, string, http.Header) {
		status, header, answer := s.ask(request{method: http.MethodPost, path: "/api/v1/orders", body: `{"workflow":"` + workflow + `","input":{"total":42}}`})
		var p Problem
		if err := json.Unmarshal([]byte(answer), &p); err != nil {
			t.Fatal(err)
		}
		if status < 400 {
			return status, "", header
		}
		return status, typeIs(t, &p), header
	}
	away := s.outside.Broker.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: s.instance.Topics().Workflows, Err: kerr.TopicAuthorizationFailed, Count: -1})
	if status, problem, header := submit("coffee"); status != http.StatusServiceUnavailable || problem != string(kafkaSilent) || header.Get("Retry-After") == "" {
		t.Errorf("one that is not known: %d %s %v", status, problem, header)
	}
	if status, problem, _ := submit("order-fulfilment"); status != http.StatusAccepted {
		t.Errorf("one that is known: %d %s", status, problem)
	}
	away.Remove()
	s.until(func() bool {
		status, problem, _ := submit("coffee")
		return status == http.StatusUnprocessableEntity && problem == string(wouldBeRejected)
	})
}

// typeIs is the name of a problem's type, which is one of its status.
func typeIs(t *testing.T, p *Problem) string {
	t.Helper()
	for _, known := range problemTypes {
		if known.name.uri() == p.Type && known.status == p.Status {
			return string(known.name)
		}
	}
	t.Errorf("%q is no type of %d", p.Type, p.Status)
	return ""
}

// What a program must tell apart has a type of its own, and all else that of its status. What passes says when.
func TestProblemTypes(t *testing.T) {
	s := New(Config{})
	command := &events.Command{Command: events.CommandCancel, ID: "c"}
	for _, c := range []struct {
		err   error
		want  problemType
		again bool
	}{
		{s.notSubmitted("o", orchestrator.ErrTaken), orderIDTaken, false},
		{s.notSubmitted("o", orchestrator.ErrOlderRelease), upgradeNeeded, false},
		{s.notSubmitted("o", orchestrator.ErrBehind), laneBehind, true},
		{s.notSubmitted("o", errSilent), kafkaSilent, true},
		{s.notSubmitted("o", errors.New("any")), kafkaSilent, true},
		{s.orderError("o", "read", orchestrator.ErrUnknownYet), notReady, true},
		{s.orderError("o", "read", orchestrator.ErrSilent), kafkaSilent, true},
		{s.orderError("o", "read", orchestrator.ErrElsewhere), "elsewhere", false},
		{s.commandError("o", command, orchestrator.ErrNoOutcome), outcomeUnknown, true},
		{s.commandError("o", command, orchestrator.ErrUnknownYet), notReady, true},
		{s.commandError("o", command, orchestrator.ErrRefused), refusedByOwner, false},
		{s.commandError("o", command, orchestrator.ErrOlderRelease), upgradeNeeded, false},
		{s.commandError("o", command, errors.New("any")), kafkaSilent, true},
		{s.letterError("list dead letters", errors.New("any")), kafkaSilent, true},
		{s.letterError("list dead letters", kerr.TopicAuthorizationFailed), "unavailable", false},
		{s.letterError("list dead letters", orchestrator.ErrNoLetter), "not-found", false},
		{skipError("", errors.New("any")), kafkaSilent, true},
		{skipError("", orchestrator.ErrRefused), refusedByOwner, false},
		{skipError("", orchestrator.ErrNotOwner), "elsewhere", false},
		{upgradeError(errors.New("any")), kafkaSilent, true},
		{upgradeError(orchestrator.ErrUnsettled), notReady, true},
		{upgradeError(orchestrator.ErrOwnsNone), notReady, false},
		{upgradeError(context.Canceled), notReady, true},
		{upgradeError(orchestrator.ErrOlderRelease), upgradeNeeded, false},
		{errCursor, "", false},
	} {
		model, is := errors.AsType[*huma.ErrorModel](c.err)
		if !is {
			t.Fatalf("%v", c.err)
		}
		if got := typeIs(t, &Problem{Type: cmp.Or(model.Type, typeOf(model.Status)), Status: model.Status}); c.want != "" && got != string(c.want) || c.want == "" && model.Type != "" {
			t.Errorf("%v is %s, want %s", c.err, got, c.want)
		}
		headers, has := errors.AsType[huma.HeadersError](c.err)
		if has = has && headers.GetHeaders().Get("Retry-After") != ""; has != c.again {
			t.Errorf("%v says when to come again: %t", c.err, has)
		}
	}
	said := httptest.NewRecorder()
	s.ServeHTTP(said, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/orders", http.NoBody))
	var p Problem
	if err := json.Unmarshal(said.Body.Bytes(), &p); err != nil || typeIs(t, &p) != string(notReady) || said.Header().Get("Retry-After") == "" {
		t.Errorf("%d %v %s", said.Code, said.Header(), said.Body)
	}
	for path, want := range map[string]string{"/api/v1/nothing": "not-found", "/readyz": "not-ready"} {
		said := httptest.NewRecorder()
		s.ServeHTTP(said, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
		var p Problem
		if err := json.Unmarshal(said.Body.Bytes(), &p); err != nil || typeIs(t, &p) != want {
			t.Errorf("%s: %s", path, said.Body)
		}
	}
}

// Whatever an instance cannot answer because it starts says so, and when to come again.
func TestWhileItStartsAllSayWhenToComeAgain(t *testing.T) {
	s := New(Config{})
	s.bulk.add(&bulkAct{caller: identity.Anybody, record: Bulk{ID: "x", State: BulkPrepared, PreparedAt: &Time{time.Now()}}})
	numbered := strings.NewReplacer("{partition}", "0", "{offset}", "0", "{seq}", "1")
	refused := make(map[string]bool)
	for _, r := range append(routes(t, s, ""), route{method: http.MethodGet, path: "/readyz", id: "readyz"}) {
		said := send(t, s, r.method, inPath.ReplaceAllString(numbered.Replace(r.path), "x"), "", "")
		if said.Code != http.StatusServiceUnavailable {
			continue // it lacks something, or needs no instance
		}
		refused[r.id] = true
		var p Problem
		if err := json.Unmarshal(said.Body.Bytes(), &p); err != nil || typeIs(t, &p) != string(notReady) || said.Header().Get("Retry-After") != unknownRetry {
			t.Errorf("%s: %v %s", r.id, said.Header(), said.Body)
		}
	}
	if !refused["readyz"] || !refused["start-bulk"] || !refused["get-upgrade"] || len(refused) < 20 {
		t.Errorf("refused were %d: %v", len(refused), refused)
	}
}

// inPath is what stands for a name in a path.
var inPath = regexp.MustCompile(`\{\w+\}`)
