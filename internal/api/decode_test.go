package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/internal/codec"
	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/issuer"
)

// decoder is a codec to which canary is what was encoded. It makes "plain of" and a name of it, by the token that it is asked with.
type decoder struct {
	*httptest.Server
	t testing.TB

	mu     sync.Mutex
	names  map[string]string // by Authorization
	asked  []string          // the Authorization of each request
	with   int               // how many payloads the last one has
	answer http.HandlerFunc  // instead of what it does else
}

func newDecoder(t testing.TB) *decoder {
	t.Helper()
	d := &decoder{t: t, names: map[string]string{"": "nobody"}}
	d.Server = httptest.NewServer(d)
	t.Cleanup(func() {
		d.CloseClientConnections()
		d.Close()
	})
	return d
}

// ServeHTTP decodes.
func (d *decoder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	who := strings.Join(r.Header["Authorization"], "|")
	d.asked = append(d.asked, who)
	name, answer := d.names[who], d.answer
	d.mu.Unlock()
	var m struct {
		Payloads []json.RawMessage `json:"payloads"`
	}
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil || len(m.Payloads) == 0 {
		d.t.Errorf("the codec is asked for %d payloads: %v", len(m.Payloads), err)
	}
	d.mu.Lock()
	d.with = len(m.Payloads)
	d.mu.Unlock()
	switch {
	case answer != nil:
		answer(w, r)
		return
	case name == "":
		http.Error(w, "who is that?", http.StatusForbidden)
		return
	}
	for n, p := range m.Payloads {
		m.Payloads[n] = bytes.ReplaceAll(p, []byte("canary"), []byte("plain of "+name))
	}
	if err := json.NewEncoder(w).Encode(m); err != nil {
		d.t.Log(err)
	}
}

// times is how often it was asked since the last time, and by whom last.
func (d *decoder) times() (n int, last string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n = len(d.asked)
	if n > 0 {
		last = d.asked[n-1]
	}
	d.asked = nil
	return n, last
}

// knows has it decode for the bearer of a token.
func (d *decoder) knows(token, name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.names["Bearer "+token] = name
}

func (d *decoder) answers(how http.HandlerFunc) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answer = how
}

// configured has a server ask it.
func (d *decoder) configured(cfg *Config) {
	c, err := codec.New(d.URL)
	if err != nil {
		d.t.Fatal(err)
	}
	cfg.Codec = c
}

// decodable are the reads with payloads, of what [stage.encoded] makes.
func (s *stage) decodable() map[string]string {
	return map[string]string{
		"get-order": "/api/v1/orders/o-1", "get-order-as-of": "/api/v1/orders/o-1/history/3", "get-order-history": "/api/v1/orders/o-1/history", "list-alerts": "/api/v1/alerts",
		"list-items": "/api/v1/orders/w-1/steps/tell/items", "list-approvals": "/api/v1/approvals", "get-dead-letter": s.aside("@own", 1), "list-schedules": "/api/v1/schedules", "get-schedule": "/api/v1/schedules/nightly",
	}
}

// encoded makes something of each kind that has payloads.
func (s *stage) encoded() {
	s.Helper()
	s.failed("o-1", "leaky")
	for _, source := range []string{
		"workflow: loan\nsteps:\n  - {name: granted, approve: {roles: [clerk], show: '{\"total\": input.total}'}}\n",
		"workflow: week\nsteps:\n  - {name: tell, each: {items: '[1]', steps: [{name: tell, agent: leak, do: tell, timeout: 60s}]}}\n  - {name: fall, each: {items: '[1]', steps: [{name: fall, agent: leak, do: fail, timeout: 60s}]}, after: []}\n  - {name: hear, listen: go, after: []}\n",
	} {
		if _, err := s.client.Register(s.Context(), "w.yaml", []byte(source)); err != nil {
			s.Fatal(err)
		}
	}
	for id, workflow := range map[string]string{"l-1": "loan", "w-1": "week"} {
		if _, err := s.client.Submit(s.Context(), &Submission{ID: id, Workflow: workflow, Input: []byte(`{"total":["canary",7]}`)}); err != nil {
			s.Fatal(err)
		}
	}
	s.until(func() bool {
		page, err := s.client.Items(s.Context(), "w-1", "tell", projections.ItemFilter{}, 10, "")
		o, wrong := s.client.Order(s.Context(), "l-1")
		return err == nil && wrong == nil && len(page.Items) == 1 && page.Items[0].State == "completed" && o.Steps[0].State == projections.Approving
	})
	s.tells("w-1", `{"signal":"later","data":{"canary":"canary"}}`)
	s.schedules("PUT", "/nightly", `{"every":"1h","workflow":"leaky","input":{"who":"canary"}}`, 200)
	s.outside.Produce(&kgo.Record{Topic: s.instance.Topics().Orders, Key: []byte("@own"), Value: []byte(`{"workflow":"leaky","input":"canary"}`)})
	s.aside("@own", 1)
}

// sorted is an object with its members in one order, but for some.
func sorted(t *testing.T, text string, without ...string) string {
	t.Helper()
	var all map[string]json.RawMessage
	var sub any
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	for _, name := range without {
		delete(all, name)
	}
	whole, err := json.Marshal(all)
	if err == nil {
		err = json.Unmarshal(whole, &sub)
	}
	if err == nil {
		whole, err = json.Marshal(sub)
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(whole)
}

// Each read with payloads gives them decoded to who asks for that, and to nobody who may not read them: for them the codec is not even asked. It
// is told who asks by the issuer's token, and by nothing else: what it decodes for one it does not for another. Nothing of it is stored, or logged.
func TestDecoding(t *testing.T) {
	var log bytes.Buffer
	d, i := newDecoder(t), issuer.New(t)
	roles := "oidc:\n  issuer: " + i.URL + "\n  audience: " + issuer.Client + "\n  subject: email\n  roles: [{group: ops, roles: [payload-reader, approver/clerk]}, {group: viewers, roles: [viewer]}]\n"
	may := map[string]string{"root": "roles: [admin]", "certificates": roles}
	for _, role := range identity.Roles {
		if role != identity.Admin {
			may[string(role)] = "roles: [" + string(role) + "]"
		}
	}
	may["approver"] = "roles: [approver/clerk]"
	s, keys := known(t, slog.New(slog.NewTextHandler(&log, nil)), may, d.configured)
	s.encoded()
	said := func(token, path string) string {
		t.Helper()
		own := *s
		own.token = token
		status, header, body := own.ask(request{path: path})
		if status != http.StatusOK && status != http.StatusForbidden {
			t.Errorf("%s: %d %s", path, status, body)
		}
		if strings.HasSuffix(path, "decode=true") && header.Get("ETag") != "" || header.Get("Cache-Control") != "private, no-store" {
			t.Errorf("%s comes with %v", path, header)
		}
		return sorted(t, body)
	}
	all := s.decodable()
	type parameter struct {
		Name string `json:"name"`
	}
	var spec struct {
		Paths map[string]map[string]struct {
			OperationID string      `json:"operationId"`
			Parameters  []parameter `json:"parameters"`
		} `json:"paths"`
	}
	if err := json.Unmarshal([]byte(said(s.token, "/openapi.json")), &spec); err != nil {
		t.Fatal(err)
	}
	var decodes []string
	for _, methods := range spec.Paths {
		for _, o := range methods {
			if slices.ContainsFunc(o.Parameters, func(p parameter) bool { return p.Name == "decode" }) {
				decodes = append(decodes, o.OperationID)
			}
		}
	}
	streamed := append(slices.Collect(maps.Keys(all)), "follow-order") // see TestDecodedStreams
	if slices.Sort(decodes); !slices.Equal(decodes, slices.Sorted(slices.Values(streamed))) {
		t.Errorf("decode is known to %q", decodes)
	}

	tokens := map[string]string{}
	for name, groups := range map[string][]string{"ana": {"ops"}, "ben": {"ops"}, "eve": {"viewers"}, "dan": {"ops"}} {
		tokens[name] = i.Token(map[string]any{"email": name, "groups": groups})
		if name != "dan" { // whom the codec does not know
			d.knows(tokens[name], name)
		}
	}
	before := make(map[string]string)
	for name, path := range all {
		before[name] = said(s.token, path)
	}
	plain := func(text string) string { // as answers are with nothing decoded
		return strings.NewReplacer("plain of ana", "canary", "plain of ben", "canary", "plain of nobody", "canary").Replace(text)
	}
	for name, path := range all {
		stored, decode := said(tokens["ana"], path), path+"?decode=true"
		if n, _ := d.times(); n != 0 || strings.Contains(stored, "plain") {
			t.Errorf("%s without decode: the codec is asked %d times, %s", name, n, stored)
		}
		for _, who := range []string{"ana", "ben", "ana"} {
			got := said(tokens[who], decode)
			n, by := d.times()
			if n != 1 || by != "Bearer "+tokens[who] || !strings.Contains(got, "plain of "+who) || strings.Contains(got, "undecoded") {
				t.Errorf("%s for %s: the codec is asked %d times with %.20s: %s", name, who, n, by, got)
			}
			for other := range tokens {
				if other != who && strings.Contains(got, "plain of "+other) {
					t.Errorf("%s for %s has what is for %s: %s", name, who, other, got)
				}
			}
			if name == "get-dead-letter" { // which has what is stored, and beside it what that is
				if got = sorted(t, got, "decoded"); strings.Contains(got, "plain") {
					t.Errorf("what would be put back is not what is stored: %s", got)
				}
			}
			if plain(got) != stored {
				t.Errorf("%s for %s differs in more than what is decoded:\n%s\n%s", name, who, got, stored)
			}
		}
		if got := said(tokens["dan"], decode); !strings.Contains(got, `"undecoded":"the codec does not decode for you: it answered 403 Forbidden"`) || strings.Contains(got, "plain") || !strings.Contains(got, "canary") {
			t.Errorf("%s for who is not known to the codec: %s", name, got)
		}
		d.times()
		for who, token := range map[string]string{"eve": tokens["eve"], "viewer": keys["viewer"], "operator": keys["operator"], "submitter": keys["submitter"], "deployer": keys["deployer"], "approver": keys["approver"]} {
			got := said(token, decode)
			if n, _ := d.times(); name == "list-approvals" && who == "approver" {
				if n != 1 || !strings.Contains(got, "plain of nobody") { // who decides sees what it is about
					t.Errorf("%s for %s: %d, %s", name, who, n, got)
				}
			} else if n != 0 || got != said(token, path) {
				t.Errorf("%s for %s: the codec is asked %d times: %s", name, who, n, got)
			}
		}
		for _, who := range []string{"payload-reader", "root"} { // by keys, with which the codec could act here
			got := said(keys[who], decode)
			if n, by := d.times(); n != 1 || by != "" || !strings.Contains(got, "plain of nobody") {
				t.Errorf("%s for %s: the codec is asked %d times with %q: %s", name, who, n, by, got)
			}
		}
	}
	// All of it was decoded, but for labels, codes of errors, and reasons, which are sentences: see docs/codec.md.
	for name, left := range map[string]int{"get-order": 7, "get-order-history": 8, "list-items": 0, "list-approvals": 0, "get-schedule": 0, "list-alerts": 5} {
		if got := strings.Count(said(tokens["ana"], all[name]+"?decode=true"), "canary"); got != left {
			t.Errorf("%s: %d times canary is left: %s", name, got, said(tokens["ana"], all[name]+"?decode=true"))
		}
	}
	if got := said(tokens["ana"], "/api/v1/orders/w-1?decode=true"); strings.Contains(got, `"canary"`) || strings.Count(got, "plain of ana") < 4 {
		t.Errorf("signals, and more, are %s", got)
	}
	for name, path := range all {
		if got := said(s.token, path); got != before[name] && name != "list-schedules" && name != "get-schedule" {
			t.Errorf("%s is another than before: %s, %s", name, before[name], got)
		}
	}
	text := log.String()
	if n := strings.Count(text, `audit.what="payloads were decoded" audit.who=ana`); n < 2*len(all) {
		t.Errorf("that ana reads what is decoded is %d times in the log", n)
	}
	for operation, of := range map[string]string{"get-order": "o-1", "get-dead-letter": strings.TrimPrefix(all["get-dead-letter"], "/api/v1/dead-letters/"), "get-schedule": "nightly"} {
		if !strings.Contains(text, `audit.what="payloads were decoded" audit.who=ana audit.method=oidc audit.from=127.0.0.1 audit.operation=`+operation+" audit.of="+of+"\n") {
			t.Errorf("that ana reads decoded what %s gives of %s is not in the log", operation, of)
		}
	}
	if strings.Contains(text, "plain of") || strings.Contains(text, "canary") {
		t.Error("what is decoded, or was to be, is in the log")
	}
	for _, token := range tokens {
		if strings.Contains(text, token) {
			t.Error("a token is in the log")
		}
	}
	if _, _, text = s.ask(request{path: "/metrics"}); strings.Contains(text, "plain of") {
		t.Error("what is decoded is in metrics")
	}
}

// Whatever the codec does, the answer comes, with what is stored and why it is not decoded; and nobody else waits for it.
func TestDecodingFails(t *testing.T) {
	var log bytes.Buffer
	d := newDecoder(t)
	s := newStage(t, d.configured, func(cfg *Config) { cfg.Requests, cfg.Logger = 32, slog.New(slog.NewTextHandler(&log, nil)) })
	s.attach()
	if _, err := s.client.Register(t.Context(), "w.yaml", []byte(leaky)); err != nil {
		t.Fatal(err)
	}
	s.failed("o-1", "leaky")
	read := func(query string) (o Order) {
		t.Helper()
		status, _, body := s.ask(request{path: "/api/v1/orders/o-1" + query})
		if err := json.Unmarshal([]byte(body), &o); err != nil || status != 200 {
			t.Fatalf("%d %s: %v", status, body, err)
		}
		return o
	}
	stored := read("")
	for name, answer := range map[string]http.HandlerFunc{
		"fewer": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"payloads":["plain of a"]}`) },
		"none":  func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"payloads":[]}`) },
		"text":  func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `plain of a`) },
		"fault": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "plain of a", http.StatusInternalServerError)
		},
		"huge": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"payloads":["`+strings.Repeat("plain of a", codec.Most/10)+`"]}`)
		},
	} {
		d.answers(answer)
		o := read("?decode=true")
		text, _ := json.Marshal(o)
		if o.Undecoded == "" || strings.Contains(string(text), "plain") || string(o.Input) != string(stored.Input) {
			t.Errorf("%s: %s", name, text)
		}
	}

	// A quarter of the places is for those who wait for the codec, 8 of 32, and a quarter of those for one of them.
	came, answer := make(chan struct{}), make(chan struct{})
	d.answers(func(w http.ResponseWriter, r *http.Request) {
		came <- struct{}{}
		<-answer
		http.Error(w, "", http.StatusInternalServerError)
	})
	var waiting sync.WaitGroup
	s.server.codecPatience = time.Millisecond
	for range 2 {
		waiting.Go(func() { read("?decode=true") })
		<-came
	}
	if o := read("?decode=true"); o.Undecoded != errCodecBusy.Error() {
		t.Errorf("of one more it is said: %q", o.Undecoded)
	}
	if n, _ := d.times(); n == 0 || len(s.server.decoding.of) != 1 || s.server.decoding.taken != 2 {
		t.Errorf("%d were with the codec, and are: %+v", n, s.server.decoding)
	}
	if o := read(""); o.Undecoded != "" || string(o.Input) != string(stored.Input) {
		t.Errorf("without decode: %+v", o)
	}
	close(answer)
	waiting.Wait()
	d.answers(nil)
	if o := read("?decode=true"); o.Undecoded != "" || !strings.Contains(string(o.Input), "plain of nobody") { // where nobody is asked who asks
		t.Errorf("once the codec is well: %q, %s", o.Undecoded, o.Input)
	}
	own := *s
	own.token = "t-1"
	d.knows("t-1", "t")
	if _, _, got := own.ask(request{path: "/api/v1/orders/o-1?decode=true"}); !strings.Contains(got, "plain of t") {
		t.Errorf("for who comes with a token, which nobody looks at: %s", got)
	}
	for n := range 30 { // a log that says it each time says nothing else
		d.answers(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "", http.StatusInternalServerError) })
		if o := read("?decode=true"); o.Undecoded == "" {
			t.Errorf("%d: it is decoded", n)
		}
	}
	if n := strings.Count(log.String(), "payloads were not decoded"); n < 5 || n > 15 || strings.Contains(log.String(), "plain") {
		t.Errorf("that payloads were not decoded is %d times in the log: %s", n, &log)
	}
	for path, want := range map[string]string{"/api/v1/orders/o-1?decode=yes": "invalid boolean", "/api/v1/orders/o-1/events?decode=yes": "invalid boolean", "/api/v1/orders?decode=true": "unknown query parameter", "/api/v1/orders/o-1?decode=": "it is empty"} {
		if status, _, body := s.ask(request{path: path}); status != 422 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if status, _, body := s.ask(request{path: "/api/v1/orders/o-1?decode=true", header: http.Header{"If-None-Match": {`W/"1"`}}}); status != 422 || !strings.Contains(body, "query.decode") {
		t.Errorf("%d %s", status, body)
	}
	if status, header, _ := s.ask(request{path: "/api/v1/orders/o-1?decode=true"}); status != 200 || header.Get("ETag") != "" {
		t.Errorf("%d, with ETag %q", status, header.Get("ETag"))
	}
	if status, _, body := s.ask(request{path: "/api/v1/orders/none?decode=true"}); status != 404 || !strings.Contains(body, "there is no order") {
		t.Errorf("%d %s", status, body)
	}
}

// What is decoded is as deep as an answer can be written with, and what is deeper is left as it is stored; so is what is no text.
func TestDecodedDeep(t *testing.T) {
	d := newDecoder(t)
	s := newStage(t, d.configured)
	s.attach()
	if _, err := s.client.Register(t.Context(), "w.yaml", []byte(leaky)); err != nil {
		t.Fatal(err)
	}
	s.encoded()
	s.outside.Produce(&kgo.Record{Topic: s.instance.Topics().Orders, Key: []byte("@bytes"), Value: []byte("\xff")})
	bytesAside := s.aside("@bytes", 1)
	d.times()
	_, _, body := s.ask(request{path: bytesAside + "?decode=true"})
	if n, _ := d.times(); n != 0 || !strings.Contains(body, `"undecoded":"bytes that are no UTF-8 are not sent to the codec"`) {
		t.Errorf("of bytes that are no text it is said, after %d requests: %s", n, body)
	}
	for levels, why := range map[int]string{9_900: "", 9_901: "nested too deeply", 9_998: "nested too deeply"} {
		for begin, end := range map[string]string{"[": "]", `{"plain":`: "}"} {
			value := strings.Repeat(begin, levels) + `"plain"` + strings.Repeat(end, levels)
			d.answers(func(w http.ResponseWriter, _ *http.Request) {
				d.mu.Lock()
				defer d.mu.Unlock()
				fmt.Fprint(w, `{"payloads":[`+value+strings.Repeat(","+value, d.with-1)+`]}`)
			})
			for name, path := range s.decodable() {
				status, _, body := s.ask(request{path: path + "?decode=true"})
				if status != http.StatusOK || strings.Contains(body, "plain") != (why == "") || !strings.Contains(body, why) || strings.Contains(body, "undecoded") != (why != "") {
					t.Errorf("%s, with %d levels of %s: %d, %.200s", name, levels, begin, status, body)
				}
			}
		}
	}
}

// One who asks for much of a codec that is slow leaves it to others.
func TestACodecIsLeftToOthers(t *testing.T) {
	d := newDecoder(t)
	s, keys := known(t, slog.New(slog.DiscardHandler), map[string]string{"root": "roles: [admin]", "ana": "roles: [payload-reader]", "ben": "roles: [payload-reader]"}, d.configured, func(cfg *Config) { cfg.Requests = 64 })
	s.failed("o-1", "leaky")
	read := func(who string) (o Order) {
		own := *s
		own.token = keys[who]
		status, _, body := own.ask(request{path: "/api/v1/orders/o-1?decode=true"})
		if err := json.Unmarshal([]byte(body), &o); err != nil || status != http.StatusOK {
			t.Errorf("%d %s: %v", status, body, err)
		}
		return o
	}
	came, goes := make(chan struct{}), make(chan struct{})
	d.answers(func(w http.ResponseWriter, _ *http.Request) {
		came <- struct{}{}
		<-goes
		http.Error(w, "", http.StatusInternalServerError)
	})
	var all sync.WaitGroup
	for range codec.AtOnce / 4 {
		all.Go(func() { read("ana") })
		<-came
	}
	d.answers(nil)
	s.server.codecPatience = time.Millisecond
	if o := read("ana"); o.Undecoded != errCodecBusy.Error() || !strings.Contains(string(o.Input), "canary") {
		t.Errorf("to who has four requests with the codec it is said: %q, %s", o.Undecoded, o.Input)
	}
	if o := read("ben"); o.Undecoded != "" || !strings.Contains(string(o.Input), "plain of nobody") {
		t.Errorf("to another it is said: %q, %s", o.Undecoded, o.Input)
	}

	// Who waits has no place among the requests that are answered, and is decoded once there is one at the codec.
	s.server.codecPatience = time.Hour
	fifth := make(chan Order)
	go func() { fifth <- read("ana") }()
	s.until(func() bool { return len(s.server.shares.resting) == 1 && len(s.server.shares.places) == codec.AtOnce/4 })
	goes <- struct{}{}
	if o := <-fifth; o.Undecoded != "" || !strings.Contains(string(o.Input), "plain of nobody") {
		t.Errorf("to who waited it is said: %q, %s", o.Undecoded, o.Input)
	}
	close(goes)
	all.Wait()
	s.until(func() bool { return len(s.server.shares.places) == 0 && len(s.server.shares.resting) == 0 })
}

// A place at the codec is waited for, by who has too many and by who comes when all are taken; and there are no more than there are.
func TestPlacesAtTheCodec(t *testing.T) {
	for requests, most := range map[int]int{0: 16, 1: 1, 4: 1, 8: 2, 32: 8, 64: 16, 1000: 16} {
		if got := newCodecPlaces(requests).most; got != most {
			t.Errorf("of %d requests %d may be with the codec, and not %d", requests, got, most)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		p := newCodecPlaces(0)
		for _, who := range []string{"a", "b", "c", "d"} {
			for range 4 {
				if !p.take(who) {
					t.Fatalf("%s gets no place", who)
				}
			}
			if p.take(who) {
				t.Errorf("%s gets a fifth place", who)
			}
			if who == "a" && !p.take("b") {
				t.Error("whom others may have places beside is given none")
			} else if who == "a" {
				p.free("b")
			}
		}
		if p.take("e") {
			t.Error("there is a 17th place")
		}
		got := make(chan string, 2)
		for _, who := range []string{"a", "e"} {
			go func() {
				if p.await(t.Context(), who) {
					got <- who
				}
			}()
		}
		synctest.Wait()
		if len(got) > 0 {
			t.Errorf("%s has a place that is not free", <-got)
		}
		p.free("b")
		synctest.Wait()
		if len(got) != 1 || <-got != "e" { // a has as many as it may
			t.Error("the place that is free is not given to who waits for any")
		}
		p.free("a")
		synctest.Wait()
		if len(got) != 1 || <-got != "a" {
			t.Error("who gave one back gets no other")
		}
		over, cancel := context.WithTimeout(t.Context(), codecPatience)
		defer cancel()
		if p.await(over, "e") {
			t.Error("there is a 17th place once somebody waited")
		}
	})
}

// What is stored may be as deep as JSON is read, which is too deep for an answer with something around it: a sentence stands for it, and the rest is told, decoded or not.
func TestStoredDeep(t *testing.T) {
	d := newDecoder(t)
	s := newStage(t, d.configured)
	s.attach()
	if _, err := s.client.Register(t.Context(), "w.yaml", []byte(leaky)); err != nil {
		t.Fatal(err)
	}
	nested := func(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }
	submission := func(id, input string) string {
		return fmt.Sprintf(`{"id":%q,"workflow":"leaky","input":%s}`, id, input)
	}
	inputs := map[string]string{"most": nested(9_999), "member": `{"beside":"canary","deep":` + nested(9_998) + `}`}
	ids := make([]string, 0, 2*len(inputs))
	for name, input := range inputs {
		s.submits("", submission("h-"+name, input), http.StatusAccepted)
		s.outside.Produce(&kgo.Record{Topic: s.instance.Topics().Orders, Key: []byte("k-" + name), Value: []byte(submission("", input))})
		ids = append(ids, "h-"+name, "k-"+name)
	}
	status, _, refused := s.ask(request{method: "POST", path: "/api/v1/orders", body: submission("deeper", nested(10_000))})
	if status != http.StatusBadRequest || !strings.Contains(refused, "exceeded max depth") {
		t.Errorf("of one more level over HTTP: %d %.200s", status, refused)
	}
	s.outside.Produce(&kgo.Record{Topic: s.instance.Topics().Orders, Key: []byte("deeper"), Value: []byte(submission("", nested(10_000)))})
	for _, query := range []string{"", "?decode=true"} { // as text, which may have any levels
		if status, _, letter := s.ask(request{path: s.aside("deeper", 1) + query}); status != http.StatusOK || !strings.Contains(letter, nested(10_000)) || strings.Contains(letter, "undecoded") {
			t.Errorf("the dead letter of one more on Kafka: %d %.400s", status, letter)
		}
	}
	s.outside.Produce(&kgo.Record{Topic: s.instance.Topics().Orders, Key: []byte("@deep"), Value: []byte(submission("", nested(9_999)))})
	if status, _, letter := s.ask(request{path: s.aside("@deep", 1) + "?decode=true"}); status != http.StatusOK || !strings.Contains(letter, nested(9_999)) || !strings.Contains(letter, `"undecoded":"`+notAsked) {
		t.Errorf("a dead letter that is nested too deeply: %d %.400s", status, letter)
	}
	if status, _, body := s.ask(request{method: "PUT", path: "/api/v1/schedules/deep", body: `{"workflow":"leaky","cron":"0 0 1 1 *","labels":{"l":"kept"},"input":` + nested(9_998) + `}`}); status != http.StatusOK {
		t.Fatalf("%d %.200s", status, body)
	}
	for _, body := range []string{`{"id":` + nested(9_998) + `,"workflow":"leaky"}`, `{"id":"q","input":` + nested(9_998) + `}`} {
		if status, _, said := s.ask(request{method: "POST", path: "/api/v1/orders", body: body}); status != http.StatusUnprocessableEntity || !json.Valid([]byte(said)) {
			t.Errorf("a body that is wrong, and nested too deeply: %d %.200s", status, said)
		}
	}
	told := func(path string, beside ...string) {
		t.Helper()
		for _, query := range []string{"", "?decode=true"} {
			status, _, body := s.ask(request{path: path + query})
			if status != http.StatusOK || !json.Valid([]byte(body)) || !strings.Contains(body, tooDeep) || strings.Contains(body, "undecoded") {
				t.Errorf("%s%s: %d %.1000s", path, query, status, body)
			}
			for _, text := range beside {
				if query != "" {
					text = strings.ReplaceAll(text, "canary", "plain of nobody")
				}
				if !strings.Contains(body, text) {
					t.Errorf("%s%s lacks %s: %.1000s", path, query, text, body)
				}
			}
		}
	}
	for _, id := range ids {
		s.order(id, projections.Error)
		s.act(id, "resubmit", `{"input":`+nested(9_999)+`}`, http.StatusOK) // of a step, where more is around it
		s.until(func() bool {
			o, err := s.client.Order(t.Context(), id)
			return err == nil && o.ProcessState == projections.Error && o.Steps[1].Attempt == 2
		})
		told("/api/v1/orders/"+id, `"message":"canary"`)
		told("/api/v1/orders/"+id+"/history/1", `"processState":"Pending"`)
		told("/api/v1/orders/"+id+"/history", `"message":"canary"`, `"seq":1,`, `"waybill.order.errored"`)
	}
	told("/api/v1/schedules", `"cron":"0 0 1 1 *"`, `"l":"kept"`)
	told("/api/v1/schedules/deep", `"cron":"0 0 1 1 *"`, `"l":"kept"`)
	if _, _, body := s.ask(request{path: "/api/v1/orders/k-member/history"}); !strings.Contains(body, `"input":{"beside":"canary","deep":"`+tooDeep+`"}`) {
		t.Errorf("what is beside what is too deep: %.1000s", body)
	}
	if e, _ := s.follows("k-most", "").next(); e.id != "1" || !strings.Contains(e.data, `"input":"`+tooDeep+`"`) || !json.Valid([]byte(e.data)) {
		t.Errorf("the stream tells %.400q", e.data)
	}
	for levels, cut := range map[int]bool{codec.Deepest: false, codec.Deepest + 1: true} {
		id := fmt.Sprint("levels-", levels)
		s.submits("", submission(id, nested(levels)), http.StatusAccepted)
		s.order(id, projections.Error)
		for _, path := range []string{"", "/history"} {
			if _, _, body := s.ask(request{path: "/api/v1/orders/" + id + path}); strings.Contains(body, tooDeep) != cut {
				t.Errorf("%s%s: %.400s", id, path, body)
			}
		}
	}
}

// Where there is no codec it is said that there is none.
func TestNoCodec(t *testing.T) {
	s := newStage(t)
	s.attach()
	if _, err := s.client.Register(t.Context(), "w.yaml", []byte(leaky)); err != nil {
		t.Fatal(err)
	}
	s.failed("o-1", "leaky")
	o, err := s.client.Decoding().Order(t.Context(), "o-1")
	if err != nil || !strings.Contains(o.Undecoded, "--codec") || !strings.Contains(string(o.Input), "canary") {
		t.Errorf("%+v, %v", o, err)
	}
}

// What stands at a place is not written to, which may be the state store's; and a text becomes a text, or JSON.
func TestWhatIsDecodedIsAnother(t *testing.T) {
	input := jsontext.Value(`"abc"`)
	at, fault, own := input, &Fault{Code: "c", Message: "abc"}, (*Fault)(nil)
	kept := fault
	var p payloads
	add(&p, &at)
	p.fault(&fault)
	p.fault(&own)
	for _, nothing := range []jsontext.Value{nil, jsontext.Value("null"), {}} {
		add(&p, &nothing)
	}
	empty, bad := "", "\xff"
	p.text(&empty)
	p.text(&bad)
	if len(p.values) != 2 || string(p.values[1]) != `"abc"` {
		t.Fatalf("%s", p.values)
	}
	p.set[0](jsontext.Value(`"xyz"`))
	p.set[1](jsontext.Value(`"x\"z"`))
	if string(input) != `"abc"` || string(at) != `"xyz"` || kept.Message != "abc" || fault.Message != `x"z` || fault.Code != "c" {
		t.Errorf("%s, %s, %+v, %+v", input, at, kept, fault)
	}
	if p.set[1](jsontext.Value(`{"a":1}`)); fault.Message != `{"a":1}` {
		t.Errorf("%+v", fault)
	}
}

// undecoded says why a payload of what is sent is as it is stored, "" if none is.
func (e told) undecoded(t *testing.T) string {
	t.Helper()
	var said NotDecoded
	if err := json.Unmarshal([]byte(e.data), &said); err != nil {
		t.Errorf("%+v: %v", e, err)
	}
	return said.Undecoded
}

// Streams give what there is and what comes decoded, to who may read it, by the token with which they began; what the codec does not decode comes all the
// same, and says so, and what comes next is decoded again. Who resumes misses nothing.
func TestDecodedStreams(t *testing.T) {
	var log bytes.Buffer
	d, i := newDecoder(t), issuer.New(t)
	s, keys := known(t, slog.New(slog.NewTextHandler(&log, nil)), map[string]string{
		"root": "roles: [admin]", "view": "roles: [viewer]",
		"certificates": "oidc:\n  issuer: " + i.URL + "\n  audience: " + issuer.Client + "\n  subject: email\n  roles: [{group: ops, roles: [payload-reader]}]\n",
	}, d.configured)
	s.failed("o-1", "leaky")
	as := func(token string) *stage {
		own := *s
		own.token = token
		return &own
	}
	const order, alerts = "/api/v1/orders/o-1/events?decode=true", "/api/v1/alerts?decode=true"
	token, strange := i.Token(map[string]any{"email": "ana", "groups": []string{"ops"}}), i.Token(map[string]any{"email": "dan", "groups": []string{"ops"}})
	d.knows(token, "ana")
	stored := s.history("o-1")
	_, _, body := as(token).ask(request{path: "/api/v1/orders/o-1/history?decode=true"})
	var page History
	if err := json.Unmarshal([]byte(body), &page); err != nil || len(page.Events) != len(stored) {
		t.Fatalf("%s: %v", body, err)
	}
	d.times()
	ana := as(token).opens(order, "")
	payloads := 0
	for n, want := range page.Events {
		e, more := ana.next()
		if !more || e.id != fmt.Sprint(n+1) || sorted(t, e.data) != sorted(t, string(want)) {
			t.Fatalf("%+v is not %s", e, want)
		}
		if strings.Contains(e.data, "plain of ana") {
			payloads++
		}
	}
	if n, by := d.times(); n != 1 || by != "Bearer "+token || payloads < 3 || payloads == len(page.Events) {
		t.Errorf("for %d events with payloads of %d the codec is asked %d times with %.20s", payloads, len(page.Events), n, by)
	}
	if e, _ := as(token).opens(order, "1").next(); e.id != "2" || sorted(t, e.data) != sorted(t, string(page.Events[1])) {
		t.Errorf("behind the first comes %+v", e)
	}
	d.times()
	masked := as(keys["view"]).opens(order, "")
	for range stored {
		if e, _ := masked.next(); strings.Contains(e.data, "canary") || strings.Contains(e.data, "plain") || e.undecoded(t) != "" {
			t.Errorf("who may not read payloads is told %+v", e)
		}
	}
	if n, _ := d.times(); n != 0 {
		t.Errorf("for who may not read payloads the codec is asked %d times", n)
	}

	// Whom the codec does not know is told so where there is something to decode, and goes on.
	dan := as(strange).opens(order, "")
	for n := range stored {
		e, _ := dan.next()
		has := strings.Contains(string(page.Events[n]), "plain of ana")
		if want := map[bool]string{true: "the codec does not decode for you: it answered 403 Forbidden"}[has]; e.id != fmt.Sprint(n+1) || e.undecoded(t) != want || strings.Contains(e.data, "plain") {
			t.Errorf("%+v, of which it is to be said %q", e, want)
		}
	}
	d.times()
	s.tells("o-1", `{"signal":"nothing"}`)
	for _, r := range []*stream{ana, dan} {
		if e, _ := r.next(); !strings.Contains(e.data, "signal") || e.undecoded(t) != "" {
			t.Errorf("%+v", e)
		}
	}
	if n, _ := d.times(); n != 0 {
		t.Errorf("for an event without payloads the codec is asked %d times", n)
	}
	listed := as(token).onList("alerts?decode=true", "")
	unlisted := as(strange).onList("alerts?decode=true", "")
	hidden, unasked := as(keys["view"]).onList("alerts?decode=true", ""), as(token).onList("alerts", "")
	s.failed("o-2", "leaky")
	alert := func(r *stream) (e told) {
		t.Helper()
		for !strings.Contains(e.data, `"order":"o-2"`) {
			var more bool
			if e, more = r.next(); !more {
				t.Fatal("there is no alert")
			}
		}
		return e
	}
	if e := alert(listed); e.undecoded(t) != "" || !strings.Contains(e.data, `"message":"plain of ana"`) {
		t.Errorf("%+v", e)
	}
	if e := alert(unlisted); !strings.Contains(e.undecoded(t), "403 Forbidden") || !strings.Contains(e.data, `"message":"canary"`) {
		t.Errorf("%+v", e)
	}
	if e := alert(unasked); e.undecoded(t) != "" || !strings.Contains(e.data, `"message":"canary"`) {
		t.Errorf("without decode it tells %+v", e)
	}
	if e := alert(hidden); e.undecoded(t) != "" || strings.Contains(e.data, "canary") || !strings.Contains(e.data, `"masked":true`) {
		t.Errorf("%+v", e)
	}
	d.knows(strange, "dan")
	s.act("o-1", "resubmit", `{"input":"canary"}`, http.StatusOK)
	for name, r := range map[string]*stream{"ana": ana, "dan": dan} {
		for e, more := r.next(); !strings.Contains(e.data, "plain of "+name); e, more = r.next() {
			if !more || e.undecoded(t) != "" {
				t.Fatalf("%+v", e)
			}
		}
	}
	for operation, n := range map[string]int{"who=ana … follow-order audit.of=o-1": 2, "who=dan … follow-order audit.of=o-1": 1, `who=ana … follow-alerts audit.of=""`: 1} { // once for each stream
		who, operation, _ := strings.Cut(operation, " … ")
		if got := strings.Count(log.String(), `audit.what="payloads were decoded" audit.`+who+" audit.method=oidc audit.from=127.0.0.1 audit.operation="+operation+"\n"); got != n {
			t.Errorf("that %s %s had payloads decoded is %d times in the log: %s", who, operation, got, &log)
		}
	}
	if strings.Contains(log.String(), "plain of") || strings.Contains(log.String(), "canary") || strings.Contains(log.String(), token) {
		t.Error("what is decoded, or a token, is in the log")
	}
	if status, _, answer := s.ask(request{path: "/api/v1/orders?decode=true", header: http.Header{"Accept": {eventStream}}}); status != http.StatusUnprocessableEntity || !strings.Contains(answer, "unknown query parameter") {
		t.Errorf("orders, of which nothing is decoded: %d %s", status, answer)
	}

	// What a codec has that is no UTF-8 is told as the history tells it.
	d.knows(strange, "dan\xff")
	odd := as(strange).opens(order, "")
	for n, replaced := 0, false; !replaced; n++ {
		e, more := odd.next()
		if replaced = strings.Contains(e.data, "plain of dan\uFFFD"); !more || !utf8.ValidString(e.data) || n == len(stored) {
			t.Fatalf("%q", e.data)
		}
	}
}

// A codec that is slow takes no place of requests from a stream that waits for it, and no event; whoever is not with it in time is told so. What ends a
// stream has nothing sent undecoded.
func TestStreamsOfASlowCodec(t *testing.T) {
	d := newDecoder(t)
	s, keys := known(t, slog.New(slog.DiscardHandler), map[string]string{"root": "roles: [admin]", "ana": "roles: [payload-reader]"}, d.configured, func(cfg *Config) { cfg.Requests = 64 })
	s.failed("o-1", "leaky")
	s.token = keys["ana"]
	came, goes := make(chan struct{}), make(chan struct{})
	d.answers(func(w http.ResponseWriter, _ *http.Request) {
		came <- struct{}{}
		<-goes
		http.Error(w, "", http.StatusInternalServerError)
	})
	const order = "/api/v1/orders/o-1/events?decode=true"
	all := make([]*stream, codec.AtOnce/4)
	for n := range all {
		all[n] = s.opens(order, "")
		<-came
	}
	s.until(func() bool { return len(s.server.shares.places) == 0 && s.server.decoding.count() == len(all) })
	s.server.codecPatience = time.Millisecond
	if e, _ := s.opens(order, "").next(); e.id != "1" || e.undecoded(t) != errCodecBusy.Error() || !strings.Contains(e.data, "canary") {
		t.Errorf("one stream more is told %+v", e)
	}
	s.server.codecPatience = time.Hour
	waits := s.opens(order, "")
	goes <- struct{}{}
	<-came
	if places, resting := len(s.server.shares.places), len(s.server.shares.resting); places != 0 || resting != 0 {
		t.Errorf("a stream that is with the codec after it waited for that has %d places, and rests in %d", places, resting)
	}
	close(goes)
	if e, _ := waits.next(); e.id != "1" || !strings.Contains(e.undecoded(t), "500") || !strings.Contains(e.data, "canary") {
		t.Errorf("who waited for a place is told %+v", e)
	}

	d.answers(func(_ http.ResponseWriter, r *http.Request) {
		came <- struct{}{}
		<-r.Context().Done()
	})
	gone := s.opens(order, "")
	<-came
	gone.end()
	s.until(func() bool { return s.server.decoding.count() == 0 })
	last := s.opens(order, "")
	<-came
	s.server.Detach(errors.New("over"))
	if rest := last.all(); len(rest) > 0 || s.server.decoding.count() != 0 {
		t.Errorf("a stream that ends while the codec is asked tells %v", rest)
	}
}

// count is how many there are with the codec.
func (p *codecPlaces) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken
}
