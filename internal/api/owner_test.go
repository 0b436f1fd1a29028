package api

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/orchestrator"
)

// leads is a server that says of all that another instance answers.
func leads(owner func() string, asked func(*http.Request)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked(r)
		text, _ := json.Marshal(&Problem{Status: http.StatusMisdirectedRequest, Detail: "not kept here", Owner: owner()})
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusMisdirectedRequest)
		_, _ = w.Write(text)
	})
}

// A read goes on to the owner, once, and what says who asks goes along only where it may.
func TestReadsGoToTheOwner(t *testing.T) {
	var atOwner []*http.Request
	answers := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		atOwner = append(atOwner, r)
		_, _ = w.Write([]byte(`{"orderId":"a/b"}`))
	})
	owner := httptest.NewServer(answers)
	defer owner.Close()
	port := owner.URL[strings.LastIndex(owner.URL, ":"):]
	another := "http://localhost" + port // the same one, under the name of another host
	same := "http://127.0.0.1" + port
	for name, c := range map[string]struct {
		owner   string
		user    string
		options []Option
		want    string // of the error, "" if it is followed
	}{
		"of nobody":                      {another, "", nil, ""},
		"under a path":                   {another + "/waybill", "", nil, ""},
		"a token, the same host":         {same, "", []Option{WithToken("wbk_a_b")}, ""},
		"a token, another host":          {another, "", []Option{WithToken("wbk_a_b")}, "--owner-hosts"},
		"a password, another host":       {another, "me:secret@", nil, "--owner-hosts"},
		"a password, the same host":      {same, "me:secret@", nil, ""},
		"a token, a host that is named":  {another, "", []Option{WithToken("wbk_a_b"), WithOwners([]string{"x", "LOCAL*"})}, ""},
		"a token, another that is named": {another, "", []Option{WithToken("wbk_a_b"), WithOwners([]string{"local", "*.localhost"})}, "--owner-hosts"},
		"with credentials":               {"http://me:secret@127.0.0.1" + port, "", nil, "no address that is followed"},
		"no http":                        {"ftp://127.0.0.1" + port, "", nil, "no address that is followed"},
		"with a query":                   {same + "?a=b", "", nil, "no address that is followed"},
		"nobody knows":                   {"", "", nil, "not kept here"},
		"nobody there":                   {"http://127.0.0.1:1", "", nil, "nobody answers there"},
	} {
		atOwner = nil
		asked := 0
		server := httptest.NewServer(leads(func() string { return c.owner }, func(*http.Request) { asked++ }))
		client, err := NewClient("http://"+c.user+strings.TrimPrefix(server.URL, "http://")+"/base", c.options...)
		if err != nil {
			t.Fatal(err)
		}
		o, err := client.Order(t.Context(), "a/b")
		if c.want == "" {
			path := strings.TrimPrefix(c.owner, another)
			path = strings.TrimPrefix(path, same) + "/api/v1/orders/a%2Fb"
			if err != nil || o.OrderID != "a/b" || asked != 1 || len(atOwner) != 1 || atOwner[0].RequestURI != path || "http://"+atOwner[0].Host != strings.TrimSuffix(c.owner, "/waybill") {
				t.Errorf("%s: %v, asked %d, and there %d", name, err, asked, len(atOwner))
				continue
			}
			if knows := atOwner[0].Header.Get("Authorization") != ""; knows != client.known() {
				t.Errorf("%s: the owner is told who asks: %t", name, knows)
			}
		} else {
			problem, is := errors.AsType[*Problem](err)
			if !is || problem.Status != http.StatusMisdirectedRequest || !strings.Contains(err.Error(), c.want) || len(atOwner) > 0 || strings.Contains(err.Error(), "secret@127.0.0.1"+port+"/api") {
				t.Errorf("%s: %v, asked there %d times", name, err, len(atOwner))
			}
		}
		client.Close()
		server.Close()
	}

	// What changes something goes nowhere else by itself.
	server := httptest.NewServer(leads(func() string { return same }, func(*http.Request) {}))
	defer server.Close()
	client, err := NewClient(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	atOwner = nil
	if _, err := client.StartBulk(t.Context(), "b"); err == nil || len(atOwner) > 0 {
		t.Errorf("an act: %v, at the owner %d", err, len(atOwner))
	}

	// Nor does anything leave TLS.
	secret := httptest.NewTLSServer(leads(func() string { return same }, func(*http.Request) {}))
	defer secret.Close()
	safe, err := NewClient(secret.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer safe.Close()
	safe.http.Transport = secret.Client().Transport
	if _, err := safe.Order(t.Context(), "o"); err == nil || !strings.Contains(err.Error(), "without TLS") || len(atOwner) > 0 {
		t.Errorf("out of TLS: %v, at the owner %d", err, len(atOwner))
	}
}

// A certificate says who asks, too.
func TestACertificateGoesToNoOtherHost(t *testing.T) {
	shows := func(certificates ...tls.Certificate) *Client {
		c, err := NewClient("https://waybill.example", WithTLS(&tls.Config{MinVersion: tls.VersionTLS12, Certificates: certificates}))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for address, want := range map[string]bool{"https://waybill.example:8443": true, "https://WAYBILL.example": true, "https://evil.example": false, "https://waybill.example.evil.example": false} {
		if to, why := shows(tls.Certificate{}).follows(address); (to != nil) != want || !want && !strings.Contains(why, "--owner-hosts") {
			t.Errorf("with a certificate %s is asked: %v %q", address, to, why)
		}
		if to, why := shows().follows(address); to == nil {
			t.Errorf("without, %s is not asked: %q", address, why)
		}
	}
}

// A pattern covers no host that somebody else may have.
func TestWhichHostsAPatternCovers(t *testing.T) {
	for pattern, hosts := range map[string]map[string]bool{
		"10.1.0.0/16": {"10.1.2.3": true, "10.2.2.3": false, "10.1.evil.example": false, "[fd00::1]": false},
		"fd00::/8":    {"[fd00::1]": true, "[fe00::1]": false, "fd00.example": false},
		"10.1.*": {
			"10.1.2.3": true, "10.11.2.3": false, "10.1.evil.example": false, "10.1.example": false, "10.1.evil.example.": false, "10.1.2": false, "10.1.0x1": false,
		},
		"10.1.*.": {"10.1.evil.example.": false, "10.1.evil.example": false},
		"10.*.5":  {"10.1.2.5": true, "10.evil.5": false},
		"fd00:*":  {"[fd00::1]": true, "[fe00::1]": false},
		"*.waybill.shop.svc.cluster.local": {
			"waybill-0.waybill.shop.svc.cluster.local": true, "waybill-0.waybill.shop.svc.cluster.local.": true, "waybill-0.waybill.evil.svc.cluster.local": false,
		},
		"*.example":         {"A.Example": true, "a.b.example": true, "example": false, "example.evil": false, "a.example.evil": false, "evilexample": false},
		"*.Example.":        {"a.example": true},
		"waybill-*":         {"waybill-1": true, "waybill-1.evil.example": false, "waybill-1\u3002evil": false},
		"waybill-[!-~]*":    {"waybill-1.evil.example": false},
		"waybill.*":         {"waybill.evil": false, "waybill.evil.example": false},
		"waybill.ex*":       {"waybill.exevil": false, "waybill.example": false},
		"*cafe":             {"cafe": true, "[fd00::cafe]": false, "0x0a0bcafe": false},
		"*4":                {"web4": true, "6.6.6.4": false, "16909044": false},
		"*":                 {"evil.example": true, "6.6.6.6": true, "[2001:db8::1]": true},
		"10.1.2.3":          {"10.1.2.3": true, "10.1.2.33": false},
		"fd00::1":           {"[fd00::1]": true},
		"7e3f.example":      {"7e3f.example": true},
		"waybill.example.3": {"waybill.example.3": true},
		"10.1.0.0/160":      {"10.1.0.1": false},
		"[":                 {"waybill": false},
		"**":                {".": false},
	} {
		c, err := NewClient("http://server.example", WithToken("wbk_a_b"), WithOwners([]string{pattern}))
		if err != nil {
			t.Fatal(err)
		}
		for host, want := range hosts {
			if to, why := c.follows("http://" + host + ":8080"); (to != nil) != want {
				t.Errorf("%s covers %s: %t, %q", pattern, host, to != nil, why)
			}
		}
		c.Close()
	}
}

// Two that each say the other are asked once each.
func TestALoopOfOwnersIsLeft(t *testing.T) {
	var one, two *httptest.Server
	asked := make(map[string]int)
	note := func(r *http.Request) { asked[r.Host]++ }
	one = httptest.NewServer(leads(func() string { return two.URL }, note))
	defer one.Close()
	two = httptest.NewServer(leads(func() string { return one.URL }, note))
	defer two.Close()
	client, err := NewClient(one.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	_, err = client.Order(t.Context(), "o")
	problem, is := errors.AsType[*Problem](err)
	if !is || problem.Status != http.StatusMisdirectedRequest || !strings.Contains(problem.Detail, "asked there, it says the same") {
		t.Errorf("%v", err)
	}
	if len(asked) != 2 || asked[strings.TrimPrefix(one.URL, "http://")] != 1 || asked[strings.TrimPrefix(two.URL, "http://")] != 1 {
		t.Errorf("asked were %v", asked)
	}
}

// A problem has the address, also at the end of a stream, and none where there is none. A page in this process is led nowhere.
func TestAProblemNamesTheOwner(t *testing.T) {
	s := New(Config{})
	err := s.orderError("o", "read", fmt.Errorf("x: %w", &orchestrator.ElsewhereError{Address: "http://two:8080"}))
	if e, is := errors.AsType[*elsewhere](err); !is || e.Owner != "http://two:8080" || e.Status != http.StatusMisdirectedRequest || e.Type != "urn:waybill:problem:elsewhere" {
		t.Errorf("%#v", err)
	}
	said := httptest.NewRecorder()
	f := &following{Server: s, out: said, control: http.NewResponseController(said)}
	f.fails(t.Context(), err)
	if !strings.Contains(said.Body.String(), `"owner":"http://two:8080"`) {
		t.Errorf("the stream ends with %s", said.Body)
	}
	text, failed := json.Marshal(s.orderError("o", "read", orchestrator.ErrElsewhere))
	if failed != nil || strings.Contains(string(text), "owner") {
		t.Errorf("%s, %v", text, failed)
	}
	inside := Inside(leads(func() string { return "http://127.0.0.1:1" }, func(*http.Request) {}), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody), "")
	if _, err := inside.Order(t.Context(), "o"); err == nil || err.Error() != "not kept here" {
		t.Errorf("a page is led on: %v", err)
	}
	if u, why := (&Client{server: &url.URL{Scheme: "http"}}).follows("http://x y"); u != nil || why == "" {
		t.Errorf("%v %q", u, why)
	}
}

// An address that takes connections and says nothing, or does not take any, is given up, and not waited for.
func TestAnAddressThatSwallowsConnections(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()                                                                                                           // nobody accepts: the system does
	answers := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) })) // to who waits for the connection
	defer answers.Close()
	for address, most := range map[string]time.Duration{"https://" + silent.Addr().String(): time.Millisecond, answers.URL: time.Nanosecond} {
		c, err := NewClient(address, connectsWithin(most))
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Order(t.Context(), "o-1")
		if wait, is := errors.AsType[net.Error](err); !is || !wait.Timeout() || t.Context().Err() != nil {
			t.Errorf("%s: %v", address, err)
		}
		c.Close()
	}
	c, err := NewClient("http://127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	if within := c.http.Transport.(*http.Transport).TLSHandshakeTimeout; within != dialTimeout {
		t.Errorf("it waits for %s", within)
	}
}
