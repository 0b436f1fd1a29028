package api

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/projections"
)

// callers is an access file with a key for each name, and the keys. What a name may is
// the rest of its entry.
func callers(t *testing.T, log *slog.Logger, may map[string]string) (access *identity.Access, keys map[string]string) {
	t.Helper()
	keys = make(map[string]string)
	text := "keys:\n"
	for name, rest := range may {
		if name == "certificates" { // which stand below
			continue
		}
		key, hash, err := identity.NewKey(name)
		if err != nil {
			t.Fatal(err)
		}
		keys[name] = key
		text += fmt.Sprintf("  - {id: %s, hash: %q, %s}\n", name, hash, rest)
	}
	text += may["certificates"]
	path := filepath.Join(t.TempDir(), "access.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	access, err := identity.Open(path, log)
	if err != nil {
		t.Fatal(err)
	}
	return access, keys
}

// route is an operation as OpenAPI has it.
type route struct {
	method, path, id string
	roles            []string // that it takes
}

var takesRole = regexp.MustCompile(`takes the role ([a-z-]+)(?: and the role ([a-z-]+))?\.$`)

// routes are all that the server has, by what /openapi.json says.
func routes(t *testing.T, s http.Handler, token string) (all []route) {
	t.Helper()
	said := get(t, s, "/openapi.json", token)
	var spec struct {
		Paths map[string]map[string]struct {
			OperationID string                `json:"operationId"`
			Description string                `json:"description"`
			Security    []map[string][]string `json:"security"`
		} `json:"paths"`
		Components struct {
			SecuritySchemes map[string]any `json:"securitySchemes"`
		} `json:"components"`
	}
	if err := json.Unmarshal(said.Body.Bytes(), &spec); err != nil {
		t.Fatalf("%v: %s", err, said.Body)
	}
	for path, operations := range spec.Paths {
		for method, o := range operations {
			role := takesRole.FindStringSubmatch(o.Description)
			if strings.HasSuffix(o.Description, "It takes no role.") {
				role = []string{""}
			}
			if role == nil || len(o.Security) != 2 && (token != "" || len(o.Security) > 0) { // where nobody is asked who asks, it takes nothing
				t.Errorf("%s does not say which role it takes: %q", o.OperationID, o.Description)
				continue
			}
			all = append(all, route{strings.ToUpper(method), path, o.OperationID, slices.DeleteFunc(role[1:], func(role string) bool { return role == "" })})
		}
	}
	if len(spec.Components.SecuritySchemes) != 2 {
		t.Errorf("OpenAPI has the security schemes %v", spec.Components.SecuritySchemes)
	}
	slices.SortFunc(all, func(a, b route) int {
		return cmp.Or(strings.Compare(a.path, b.path), strings.Compare(a.method, b.method))
	})
	return all
}

func get(t *testing.T, s http.Handler, path, token string) *httptest.ResponseRecorder {
	t.Helper()
	return send(t, s, http.MethodGet, path, token, "")
}

func send(t *testing.T, s http.Handler, method, path, token, body string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	said := httptest.NewRecorder()
	s.ServeHTTP(said, r)
	return said
}

// ADR 0026: who is not asked for a name is not known.
func TestWhoIsKnown(t *testing.T) {
	if a := actor(t.Context(), nil); a != nil {
		t.Errorf("nobody looked, and it is %+v", a)
	}
	as(identity.Anybody, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if a := actor(r.Context(), nil); a != nil {
			t.Errorf("nobody is asked, and it is %+v", a)
		}
	})).ServeHTTP(nil, httptest.NewRequest(http.MethodGet, "/", nil))
}

// Every operation against every role, over HTTP. The table stands in docs/security.md.
func TestWhoMayWhat(t *testing.T) {
	has := map[string][]string{ // what a role has besides itself
		"payload-reader": {"viewer"}, "operator": {"viewer"}, "approver": {"viewer"}, "deployer": {"viewer"},
		"admin": {"viewer", "payload-reader", "submitter", "operator", "approver", "deployer"},
	}
	may := map[string]string{}
	for _, role := range identity.Roles {
		may[string(role)] = "roles: [" + string(role) + "]"
	}
	may["approver"] = "roles: [approver/finance]"
	access, keys := callers(t, slog.New(slog.DiscardHandler), may)
	s := New(Config{Access: access})
	s.Attach(idle(t))
	defer s.Detach(errors.New("over"))

	table := "| | |"
	rule := "| --- | --- |"
	for _, role := range identity.Roles {
		table += " " + string(role) + " |"
		rule += " --- |"
	}
	table += "\n" + rule + "\n"
	fill := strings.NewReplacer("{id}", "o-1", "{partition}", "0", "{offset}", "0", "{name}", "w")
	// Nobody would read what is submitted: the id is too long.
	bodies := map[string]string{"submit-order": `{"workflow":"w","id":"` + strings.Repeat("x", 257) + `"}`, "skip-step-order": `{"step":"s"}`, "register-workflow": "no: workflow"}
	all := routes(t, s, keys["viewer"])
	if len(all) < 25 {
		t.Errorf("there are %d routes", len(all))
	}
	for _, o := range all {
		ask := func(token string) *httptest.ResponseRecorder {
			return send(t, s, o.method, fill.Replace(o.path), token, bodies[o.id])
		}
		table += fmt.Sprintf("| %s | `%s %s` |", o.id, o.method, o.path)
		for _, role := range identity.Roles {
			said := ask(keys[string(role)])
			lacks := func(takes string) bool { return takes != string(role) && !slices.Contains(has[string(role)], takes) }
			want := !slices.ContainsFunc(o.roles, lacks)
			if got := said.Code != http.StatusForbidden; got != want || said.Code == http.StatusUnauthorized {
				t.Errorf("%s of a %s: %d %s", o.id, role, said.Code, said.Body)
			}
			table += map[bool]string{true: " yes |", false: " |"}[want]
		}
		table += "\n"
		for what, token := range map[string]string{"nobody": "", "somebody who is not known": keys["admin"] + "x"} {
			if said := ask(token); said.Code != http.StatusUnauthorized && said.Code != http.StatusTooManyRequests {
				t.Errorf("%s of %s: %d %s", o.id, what, said.Code, said.Body)
			}
		}
	}
	page, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, written, _ := strings.Cut(string(page), "<!-- roles -->\n")
	if written, _, _ = strings.Cut(written, "<!-- /roles -->"); written != table {
		t.Errorf("between the marks in docs/security.md stands\n%s\nand it is\n%s", written, table)
	}

	for path, want := range map[string]int{"/healthz": 200, "/readyz": 503, "/metrics": 200, "/openapi.json": 401, "/": 401, "/api/v1/none": 401} {
		if said := get(t, s, path, ""); said.Code != want {
			t.Errorf("%s of nobody: %d %s", path, said.Code, said.Body)
		}
	}
	if said := get(t, s, "/metrics", ""); !strings.Contains(said.Body.String(), "waybill_access_file_wrong 0\n") {
		t.Error("the metric of the access file is missing")
	}
}

// An operation that does not say which role it takes is answered to nobody.
func TestAnOperationWithoutARole(t *testing.T) {
	s := New(Config{})
	mux := http.NewServeMux()
	api := humago.New(mux, huma.DefaultConfig("t", "1"))
	api.UseMiddleware(s.authorise(api))
	huma.Get(api, "/x", func(_ context.Context, _ *struct{}) (*struct{ Body string }, error) {
		return &struct{ Body string }{"x"}, nil
	})
	if said := get(t, as(identity.Anybody, mux), "/x", ""); said.Code != http.StatusForbidden {
		t.Errorf("%d %s", said.Code, said.Body)
	}
}

// Who is not known is told how to be, and who fails often is told to stop: whatever
// comes from its address that is right is taken all the same.
func TestWhoIsNotKnown(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	access, keys := callers(t, logger, map[string]string{"ana": "roles: [viewer]", "old": "roles: [admin], expires: 2020-01-01"})
	s := New(Config{Access: access, Logger: logger})
	ask := func(token string) (int, http.Header, *Problem) {
		said := get(t, s, "/api/v1/orders", token)
		p := new(Problem)
		if err := json.Unmarshal(said.Body.Bytes(), p); err != nil || p.Status != said.Code || said.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%d %s: %v", said.Code, said.Body, err)
		}
		return said.Code, said.Header(), p
	}
	for range 20 {
		status, header, p := ask("")
		if status != 401 || header.Get("WWW-Authenticate") != `Bearer realm="waybill"` || !strings.Contains(p.Detail, "Authorization: Bearer") {
			t.Errorf("nobody: %d %v %+v", status, header, p)
		}
	}
	if status, header, p := ask(keys["old"]); status != 401 || !strings.Contains(header.Get("WWW-Authenticate"), "invalid_token") || !strings.Contains(p.Detail, "expired") {
		t.Errorf("expired: %d %v %+v", status, header, p)
	}
	var said []int
	for range 11 {
		status, header, _ := ask(keys["ana"] + "x")
		if said = append(said, status); status == 429 && header.Get("Retry-After") == "" {
			t.Error("it is not said when to come again")
		}
	}
	if want := append(slices.Repeat([]int{401}, 9), 429, 429); !slices.Equal(said, want) {
		t.Errorf("log-ins that fail: %v", said)
	}
	if status, _, _ := ask(keys["ana"]); status != 503 {
		t.Errorf("one that is right: %d", status)
	}
	if n := strings.Count(log.String(), `audit.what="log-in failed"`); n != 10 || strings.Contains(log.String(), keys["ana"]) || strings.Contains(log.String(), keys["old"]) {
		t.Errorf("%d failures in the log:\n%s", n, &log)
	}
}

// An issuer of tokens that is away concerns those alone who come with a token of its own:
// they are told to come again.
func TestTokensOfAnIssuerThatIsAway(t *testing.T) {
	key, hash, err := identity.NewKey("ana")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "access.yaml")
	text := "keys: [{id: ana, hash: \"" + hash + "\", roles: [admin]}]\noidc: {issuer: \"http://127.0.0.1:1\", audience: waybill, roles: [{group: g, roles: [admin]}]}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	access, err := identity.Open(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{Access: access})
	if said := get(t, s, "/openapi.json", "a.b.c"); said.Code != 503 || said.Header().Get("Retry-After") == "" || !strings.Contains(said.Body.String(), "its issuer does not say") {
		t.Errorf("with a token: %d %s", said.Code, said.Body)
	}
	for token, want := range map[string]int{key: 200, "": 401, "made up": 401, key + "x": 401} {
		if said := get(t, s, "/openapi.json", token); said.Code != want {
			t.Errorf("with %q: %d %s", token, said.Code, said.Body)
		}
	}
}

// Every answer says that nobody may keep it, or make of it what it is not.
func TestHeadersOfAnswers(t *testing.T) {
	access, keys := callers(t, slog.New(slog.DiscardHandler), map[string]string{"ana": "roles: [viewer]"})
	s := New(Config{Access: access, AdminApart: true})
	for _, path := range []string{"/healthz", "/api/v1/orders", "/openapi.json", "/none"} {
		for _, h := range []http.Handler{s, s.Admin()} {
			for _, token := range []string{"", keys["ana"]} {
				header := get(t, h, path, token).Header()
				if header.Get("X-Content-Type-Options") != "nosniff" || header.Get("Cache-Control") != "private, no-store" || !strings.Contains(header.Get("Content-Security-Policy"), "default-src 'none'") {
					t.Errorf("%s: %v", path, header)
				}
			}
		}
	}
}

// With an address for administration probes and metrics are there and nowhere else, and
// there is nothing else but dumps, for admins.
func TestAdministrationApart(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	access, keys := callers(t, logger, map[string]string{"ana": "roles: [viewer, payload-reader]", "root": "roles: [admin]"})
	s := New(Config{Access: access, AdminApart: true, Logger: logger})
	s.Attach(idle(t))
	defer s.Detach(errors.New("over"))
	const dump = "/api/v1/partitions/0/projection"
	for _, c := range []struct {
		path, who   string
		here, apart int
	}{
		{"/healthz", "", 404, 200},
		{"/readyz", "root", 404, 503},
		{"/metrics", "", 404, 200},
		{"/api/v1/orders", "root", 503, 404},
		{"/openapi.json", "ana", 200, 404},
		{dump, "", 401, 401},
		{dump, "ana", 403, 403},
		{dump, "root", 200, 200},
	} {
		if said := get(t, s, c.path, keys[c.who]); said.Code != c.here {
			t.Errorf("%s of %q: %d %s", c.path, c.who, said.Code, said.Body)
		}
		if said := get(t, s.Admin(), c.path, keys[c.who]); said.Code != c.apart {
			t.Errorf("%s of %q, apart: %d %s", c.path, c.who, said.Code, said.Body)
		}
	}
	if n := strings.Count(log.String(), `audit.what="payloads were read" audit.who=root audit.method=key audit.from=192.0.2.1 audit.operation=get-projection audit.of=0`); n != 2 {
		t.Errorf("2 dumps are %d times in the log:\n%s", n, &log)
	}
}

// Where nobody is asked for a name, whoever reaches the address of probes and metrics has no
// dumps: that of all else may be for this machine alone.
func TestNoDumpsForAnybody(t *testing.T) {
	s := New(Config{AdminApart: true, Hosts: []string{"localhost"}})
	s.Attach(idle(t))
	defer s.Detach(errors.New("over"))
	for path, want := range map[string]int{"/api/v1/partitions/0/projection": 403, "/healthz": 200} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
		r.Host = "localhost"
		said := httptest.NewRecorder()
		if s.Admin().ServeHTTP(said, r); said.Code != want {
			t.Errorf("%s: %d %s", path, said.Code, said.Body)
		}
	}
}

// A client that is led elsewhere does not go there: what says who asks is for the server that
// it was told.
func TestNoRedirectIsFollowed(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was followed") }))
	defer elsewhere.Close()
	server := httptest.NewServer(http.RedirectHandler(elsewhere.URL+"/api/v1/orders", http.StatusTemporaryRedirect))
	defer server.Close()
	c, err := NewClient(server.URL, WithToken("wbk_ci_secret"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Order(t.Context(), "o-1"); err == nil || !strings.Contains(err.Error(), "which is not followed") {
		t.Errorf("it ended with %v", err)
	}
}

// A page that had its name lead here reads nothing, whatever its browser bears.
func TestARebindingPageIsRefusedFirst(t *testing.T) {
	access, keys := callers(t, slog.New(slog.DiscardHandler), map[string]string{"root": "roles: [admin]"})
	s := New(Config{Access: access, Hosts: []string{"localhost"}})
	for _, h := range []http.Handler{s, s.Admin()} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/partitions/0/projection", http.NoBody)
		r.Host = "rebound.example"
		r.Header.Set("Authorization", "Bearer "+keys["root"])
		said := httptest.NewRecorder()
		if h.ServeHTTP(said, r); said.Code != http.StatusMisdirectedRequest {
			t.Errorf("%d %s", said.Code, said.Body)
		}
	}
}

const leaky = `
workflow: leaky
version: 1
steps:
  - {name: first, agent: leak, do: tell, undo: untell, timeout: 60s}
  - {name: second, agent: leak, do: fail, timeout: 60s, exhausted: error}
`

// known is a stage on which callers are asked who they are.
func known(t *testing.T, log *slog.Logger, may map[string]string, change ...func(*Config)) (s *stage, keys map[string]string) {
	t.Helper()
	var access *identity.Access
	access, keys = callers(t, log, may)
	s = newStage(t, append(change, func(cfg *Config) { cfg.Access, cfg.Logger = access, log })...)
	s.token = keys["root"]
	client, err := NewClient(s.url, WithToken(s.token))
	if err != nil {
		t.Fatal(err)
	}
	s.client.Close()
	s.client = client
	s.attach()
	for _, name := range []string{"leaky", "other"} {
		if _, err := client.Register(t.Context(), "w.yaml", []byte(strings.Replace(leaky, "leaky", name, 1))); err != nil {
			t.Fatal(err)
		}
	}
	return s, keys
}

// failed submits an order, whose second step fails, and waits for that.
func (s *stage) failed(id, workflow string) {
	s.Helper()
	if _, err := s.client.Submit(s.Context(), &Submission{ID: id, Workflow: workflow, Input: []byte(`{"who":"canary"}`), Labels: map[string]string{"word": "canary", "region": "eu"}}); err != nil {
		s.Fatal(err)
	}
	s.order(id, projections.Error)
}

// Whoever may not read what orders are about does not find them by it, either: not even how many
// there are.
func TestWhoFindsOrders(t *testing.T) {
	s, keys := known(t, slog.New(slog.DiscardHandler), map[string]string{
		"root": "roles: [admin]", "view": "roles: [viewer]", "op": "roles: [operator, submitter, deployer]",
		"read":         "roles: [payload-reader]",
		"certificates": "certificates:\n  - {san: part, roles: [viewer]}\n  - {san: part, roles: [payload-reader], workflows: [leaky]}\n",
	})
	chain := []*x509.Certificate{{DNSNames: []string{"part"}, NotAfter: time.Now().Add(time.Hour)}}
	part := &tls.ConnectionState{PeerCertificates: chain, VerifiedChains: [][]*x509.Certificate{chain}}
	for n := range 3 {
		s.failed(fmt.Sprint("l-", n), "leaky")
		s.failed(fmt.Sprint("other-", n), "other")
	}
	for _, c := range []struct {
		who, query string
		status     int
		found      int
	}{
		{"root", "where=word=canary", 200, 6},
		{"read", "where=word=canary", 200, 6},
		{"read", "where=word=canary&workflow=other", 200, 3},
		{"part", "where=word=canary", 200, 3},
		{"part", "where=word=canary&workflow=leaky", 200, 3},
		{"part", "", 200, 6},
		{"part", "where=word=canary&workflow=other", 403, 0},
		{"part", "where=word=parrot&workflow=other", 403, 0},
		{"view", "where=word=canary", 403, 0},
		{"view", "where=word=parrot", 403, 0},
		{"op", "where=region=eu&state=Error", 403, 0},
	} {
		found, after := 0, ""
		for {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/orders?limit=1&"+c.query+"&after="+after, nil)
			if r.Header.Set("Authorization", "Bearer "+keys[c.who]); c.who == "part" {
				r.TLS = part
				r.Header.Del("Authorization")
			}
			said := httptest.NewRecorder()
			s.server.ServeHTTP(said, r)
			var page OrderPage
			if err := json.Unmarshal(said.Body.Bytes(), &page); err != nil || said.Code != c.status {
				t.Fatalf("%s, %s: %d %s", c.who, c.query, said.Code, said.Body)
			}
			found += len(page.Orders)
			if place, err := decodeCursor(page.Next); err != nil || strings.Contains(place, "other-") && strings.Contains(c.query, "where") && c.who == "part" {
				t.Fatalf("%s, %s: a page ends at %q", c.who, c.query, place)
			}
			if after = page.Next; after == "" {
				break
			}
		}
		if found != c.found {
			t.Errorf("%s, %s: %d orders, want %d", c.who, c.query, found, c.found)
		}
	}
	// An operator who may not read labels changes them, and is not told what they were.
	own := *s
	own.token = keys["op"]
	for _, value := range []string{"eu", "us"} {
		if o, said := own.act("l-0", "label", `{"labels":{"region":"`+value+`"}}`, 200); !o.Masked || len(o.Labels) > 0 || strings.Contains(said, "canary") {
			t.Errorf("%s", said)
		}
	}
	if o := s.order("l-0", projections.Error); o.Labels["region"] != "us" || o.Labels["word"] != "canary" {
		t.Errorf("its labels are %v", o.Labels)
	}
}

// Who is limited to some workflows sees nothing of others: not in listings, nor in the
// places where their pages end, nor by how it is refused. Acts are its own.
func TestCallersThatAreLimited(t *testing.T) {
	var log bytes.Buffer
	s, keys := known(t, slog.New(slog.NewTextHandler(&log, nil)), map[string]string{
		"root": "roles: [admin]", "op": "subject: op@shop, roles: [operator, submitter, deployer, approver/clerk], workflows: [leak*]", "view": "roles: [viewer]",
	})
	for n := range 6 {
		s.failed(fmt.Sprintf("hidden-%d", n), "other")
		s.failed(fmt.Sprintf("seen-%d", n), "leaky")
	}
	op := *s
	op.token = keys["op"]

	if _, err := s.client.Register(t.Context(), "w.yaml", []byte("workflow: third\nsteps: [{name: a, agent: stranger}]\n")); err != nil {
		t.Fatal(err)
	}
	var agents Agents
	if status, _, said := op.ask(request{path: "/api/v1/agents"}); status != http.StatusOK || json.Unmarshal([]byte(said), &agents) != nil || len(agents.Agents) == 0 ||
		slices.ContainsFunc(agents.Agents, func(a Agent) bool { return a.Name != "leak" }) {
		t.Errorf("agents: %d %s", status, said)
	}

	// What is asked about an order that is hidden, by all routes there are, is answered as
	// about one that is not there.
	for _, o := range routes(t, s.server, s.token) {
		if !strings.Contains(o.path, "{id}") {
			continue
		}
		body := map[string]string{
			"skip-step-order": `{"step":"second"}`, "signal-order": `{"signal":"go"}`, "label-order": `{"labels":{"a":"b"}}`,
			"terminate-order": `{"note":"enough"}`, "decide-order": `{"step":"s","outcome":"approved"}`, "change-order": `{"priority":"low"}`, "migrate-order": `{"toVersion":2}`,
		}[o.id]
		answers := map[string]string{}
		for _, id := range []string{"hidden-0", "nothing"} {
			path := strings.NewReplacer("{id}", id, "{seq}", "1").Replace(o.path)
			if o.id == "get-migration" {
				path += "?to=2"
			}
			status, _, said := op.ask(request{method: o.method, path: path, body: body})
			if status != http.StatusNotFound {
				t.Errorf("%s of %s: %d %s", o.id, id, status, said)
			}
			answers[strings.ReplaceAll(said, id, "ID")] = id
		}
		if len(answers) != 1 {
			t.Errorf("%s is refused in two ways: %v", o.id, slices.Collect(maps.Keys(answers)))
		}
	}
	// Of whose a dead letter is nobody can be sure.
	for _, path := range []string{"/api/v1/dead-letters", "/api/v1/dead-letters/0/0"} {
		if status, _, said := op.ask(request{path: path}); status != http.StatusForbidden {
			t.Errorf("%s: %d %s", path, status, said)
		}
	}
	for _, path := range []string{"/api/v1/orders?limit=2", "/api/v1/orders?limit=2&state=Error", "/api/v1/alerts?limit=2", "/api/v1/orders?workflow=other", "/api/v1/orders?limit=1&workflow=leaky"} {
		var seen []string
		for after := ""; ; {
			status, _, said := op.ask(request{path: path + "&after=" + after})
			var page struct {
				Orders []Summary `json:"orders"`
				Alerts []Alert   `json:"alerts"`
				Next   string    `json:"next"`
			}
			if err := json.Unmarshal([]byte(said), &page); err != nil || status != http.StatusOK {
				t.Fatalf("%s: %d %s", path, status, said)
			}
			for _, o := range page.Orders {
				seen = append(seen, o.OrderID)
			}
			for _, a := range page.Alerts {
				seen = append(seen, a.Order)
			}
			place := after
			if decoded, err := decodeCursor(page.Next); err == nil {
				place = decoded
			}
			if strings.Contains(said, "hidden") || strings.Contains(place, "hidden") || strings.Contains(place, "other") {
				t.Fatalf("%s tells of what is hidden: %s, %q", path, said, place)
			}
			if after = page.Next; after == "" {
				break
			}
		}
		slices.Sort(seen)
		want := []string{"seen-0", "seen-1", "seen-2", "seen-3", "seen-4", "seen-5"}
		if strings.Contains(path, "other") {
			want = nil
		}
		if !slices.Equal(seen, want) {
			t.Errorf("%s has %v", path, seen)
		}
	}
	for name, want := range map[string]int{"other": 404, "leaky": 200} {
		if status, _, said := op.ask(request{path: "/api/v1/workflows/" + name}); status != want {
			t.Errorf("workflow %s: %d %s", name, status, said)
		}
	}
	if err := s.client.Retire(t.Context(), "third", 1, true); err != nil {
		t.Fatal(err)
	}
	if status, _, said := op.ask(request{path: "/api/v1/workflows/third"}); status != 404 || !strings.Contains(said, "workflow third is not registered") {
		t.Errorf("one that is retired, and hidden: %d %s", status, said)
	}
	if _, _, said := op.ask(request{path: "/api/v1/workflows"}); strings.Contains(said, "third") || strings.Contains(said, "other") || !strings.Contains(said, "leaky") {
		t.Errorf("the workflows are %s", said)
	}
	for what, c := range map[string]struct {
		path, body string
		want       int
	}{
		"submit":          {"/api/v1/orders", `{"workflow":"leaky","id":"own"}`, 202},
		"submit another":  {"/api/v1/orders", `{"workflow":"other","id":"not-own"}`, 403},
		"register":        {"/api/v1/workflows", leaky, 200},
		"register others": {"/api/v1/workflows", strings.Replace(leaky, "leaky", "other", 1), 403},
	} {
		if status, _, said := op.ask(request{method: http.MethodPost, path: c.path, body: c.body}); status != c.want {
			t.Errorf("%s: %d %s", what, status, said)
		}
	}

	// An act is its caller's.
	op.act("seen-0", "pause", `{"by":"somebody@else"}`, 403)
	op.act("seen-0", "resubmit", `{"by":"op@shop","note":"once"}`, 200)
	s.order("seen-0", projections.Error)
	op.act("seen-0", "cancel", `{"note":"twice"}`, 200)
	history := s.history("seen-0")
	acts := slices.Concat(of(history, events.OrderResubmitted), of(history, events.OrderCompensating))
	if len(acts) != 2 || acts[0].By != "op@shop" || acts[1].By != "op@shop" {
		t.Errorf("the acts are %+v", acts)
	}
	view := *s
	view.token = keys["view"]
	view.act("seen-1", "cancel", "", 403)

	for _, want := range []string{
		`audit.what=act audit.who=op@shop audit.method=key audit.from=127.0.0.1 audit.operation=cancel-order audit.on=seen-0 audit.status=200`,
		`audit.operation=submit-order audit.on=own audit.status=202`,
		`audit.operation=register-workflow audit.on=leaky@1 audit.status=200`,
		`audit.who=view audit.method=key audit.from=127.0.0.1 audit.operation=cancel-order audit.on=seen-1 audit.status=403`,
		`audit.what="payloads were read" audit.who=root audit.method=key audit.from=127.0.0.1 audit.operation=get-order audit.of=seen-0`,
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not have %s", want)
		}
	}
	for who, key := range keys {
		if strings.Contains(log.String(), key) {
			t.Errorf("the key of %s stands in the log", who)
		}
	}
	if strings.Contains(log.String(), "canary") {
		t.Error("payloads stand in the log")
	}
}
