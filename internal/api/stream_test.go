package api

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/projections"
)

// told is a server-sent event.
type told struct{ id, kind, data string }

// stream is what is sent to somebody who follows.
type stream struct {
	*stage
	lines *bufio.Scanner
	end   func()
}

// follows begins to follow an order.
func (s *stage) follows(id, last string) *stream {
	s.Helper()
	return s.opens("/api/v1/orders/"+id+"/events", last)
}

// opens begins to read a stream.
func (s *stage) opens(path, last string) *stream {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, http.NoBody)
	if err != nil {
		s.Fatal(err)
	}
	r.Header.Set("Accept", eventStream)
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	if s.token != "" {
		r.Header.Set("Authorization", "Bearer "+s.token)
	}
	resp, err := s.http.Do(r)
	if err != nil {
		s.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		s.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	end := func() {
		cancel()
		_ = resp.Body.Close() // it was cut off
	}
	s.Cleanup(end)
	return &stream{s, bufio.NewScanner(resp.Body), end}
}

// next returns what is sent next, false at the end.
func (r *stream) next() (e told, more bool) {
	r.Helper()
	for r.lines.Scan() {
		name, value, _ := strings.Cut(r.lines.Text(), ": ")
		switch name {
		case "id":
			e.id = value
		case "event":
			e.kind = value
		case "data":
			e.data = value
		case "":
			if e != (told{}) {
				return e, true
			}
		}
	}
	return e, false
}

// all returns what is sent up to the end.
func (r *stream) all() (all []told) {
	r.Helper()
	for e, more := r.next(); more; e, more = r.next() {
		all = append(all, e)
	}
	return all
}

// testFollow follows orders that have ended, and one that goes on.
func (s *stage) testFollow() {
	s.submits("?wait=30s", `{"id":"followed","workflow":"order-fulfilment"}`, http.StatusOK)
	history := s.history("followed")
	all := s.follows("followed", "").all()
	if len(all) != len(history) {
		s.Fatalf("%d of %d events: %v", len(all), len(history), all)
	}
	for n, e := range all {
		got, err := events.Decode[events.Event]([]byte(e.data))
		if err != nil || e.kind != "" || e.id != strconv.Itoa(n+1) || !bytes.Equal(got.Append(nil), history[n].Append(nil)) {
			s.Errorf("%+v is not %s: %v", e, history[n].Append(nil), err)
		}
	}
	if rest := s.follows("followed", "6").all(); !slices.Equal(rest, all[6:]) {
		s.Errorf("behind 6: %v", rest)
	}
	if status, _, answer := s.ask(request{path: "/api/v1/orders/followed/events", header: http.Header{"Last-Event-ID": {all[len(all)-1].id}}}); status != http.StatusNoContent || answer != "" {
		s.Errorf("behind the last: %d %s", status, answer)
	}
	for _, c := range []struct {
		id, last string
		status   int
	}{{"nothing", "", 404}, {"followed", "x", 422}, {"followed", "-1", 422}} {
		header := make(http.Header)
		if c.last != "" {
			header.Set("Last-Event-ID", c.last)
		}
		if status, _, answer := s.ask(request{path: "/api/v1/orders/" + c.id + "/events", header: header}); status != c.status {
			s.Errorf("%+v: %d %s", c, status, answer)
		}
	}

	s.listens("goes-on")
	on := s.follows("goes-on", "")
	seen := uint64(0)
	until := func(kind events.Type) {
		s.Helper()
		for {
			e, more := on.next()
			if !more {
				s.Fatalf("it ended before %s", kind)
			}
			got, err := events.Decode[events.Event]([]byte(e.data))
			if seen++; err != nil || got.Seq != seen {
				s.Fatalf("%+v after %d: %v", e, seen-1, err)
			}
			if got.Type == kind {
				return
			}
		}
	}
	until(events.StepListening)
	s.tells("goes-on", `{"signal":"go"}`)
	until(events.StepHeard)
	s.act("goes-on", "terminate", `{"note":"enough"}`, http.StatusOK)
	until(events.OrderTerminated)
	if rest := on.all(); len(rest) > 0 {
		s.Errorf("behind its end: %v", rest)
	}
	s.order("goes-on", projections.Terminated)

	// Many events come in order, whatever a page has.
	s.listens("long")
	for n := range 2 * followPage {
		s.act("long", map[bool]string{true: "pause", false: "resume"}[n%2 == 0], "", http.StatusOK)
	}
	long := s.follows("long", "")
	for n := range 2 * followPage {
		if e, more := long.next(); !more || e.id != strconv.Itoa(n+1) {
			s.Fatalf("%+v at %d", e, n+1)
		}
	}
	long.end()

	// A stream ends after its time also while there is more to send.
	forLong := s.server.followFor
	s.server.followFor = -1
	if first := s.follows("long", "").all(); len(first) != followPage {
		s.Errorf("in no time %d events are sent", len(first))
	}
	s.server.followFor = forLong
}

// Data are one line, also where a value has line breaks of its own.
func TestWhatIsSent(t *testing.T) {
	if text := string(appendSent(nil, "7", "problem", []byte("{\r\n\"a\":1}"))); text != "id: 7\nevent: problem\ndata: {  \"a\":1}\n\n" {
		t.Errorf("%q", text)
	}
}

// Who follows takes no place of others, and is one of so many; who leaves makes room. What stops ends the streams.
func TestFollowers(t *testing.T) {
	s, keys := known(t, slog.New(slog.DiscardHandler), map[string]string{"root": "roles: [admin]", "view": "roles: [viewer]", "part": "roles: [viewer], workflows: [other]"})
	s.failed("o-1", "leaky") // it waits for an operator
	view := *s
	view.token = keys["view"]
	masked := view.follows("o-1", "")
	for _, want := range s.history("o-1") {
		e, more := masked.next()
		if !more || strings.Contains(e.data, "canary") || !strings.Contains(e.data, `"masked":true`) || !strings.Contains(e.data, fmt.Sprintf(`"type":%q`, want.Type)) {
			t.Fatalf("%+v", e)
		}
	}
	whole := s.follows("o-1", "")
	if e, _ := whole.next(); !strings.Contains(e.data, "canary") {
		t.Errorf("%+v", e)
	}
	part := *s
	part.token = keys["part"]
	if status, _, answer := part.ask(request{path: "/api/v1/orders/o-1/events"}); status != http.StatusNotFound {
		t.Errorf("one that is hidden: %d %s", status, answer)
	}

	s.server.fill(t)
	if status, header, answer := s.ask(request{path: "/api/v1/orders/o-1/events"}); status != http.StatusServiceUnavailable || header.Get("Retry-After") == "" {
		t.Errorf("one more: %d %s", status, answer)
	}
	masked.end()
	s.until(func() bool { return s.server.followers.count() < maxFollowers })

	server := New(Config{Requests: 1, Access: s.server.access})
	i, _, done, err := s.server.use(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	done()
	server.Attach(i)
	listener := httptest.NewServer(server)
	defer listener.Close()
	small := *s
	small.url = listener.URL
	follower := small.follows("o-1", "")
	if e, more := follower.next(); !more {
		t.Errorf("%+v", e)
	}
	small.until(func() bool {
		status, _, _ := small.ask(request{path: "/api/v1/orders/o-1"})
		return status == http.StatusOK
	})
	server.Detach(errors.New("over"))
	follower.all()
	if n := server.followers.count(); n != 0 {
		t.Errorf("%d follow an instance that is gone", n)
	}
}

// fill has others follow as many as may.
func (s *Server) fill(t *testing.T) {
	t.Helper()
	for n := 0; s.followers.count() < maxFollowers; n++ {
		if _, err := s.followers.come(&asking{caller: identity.Anybody, address: fmt.Sprint("other ", n)}); err != nil {
			t.Fatal(err)
		}
	}
}

// No caller takes the streams of all, from wherever it asks; and where nobody is asked for a name, no address.
func TestStreamsOfOneCaller(t *testing.T) {
	var f followers
	ann, bob := &identity.Caller{Subject: "ann", Method: "key"}, &identity.Caller{Subject: "ann", Method: "oidc", Issuer: "https://issuer.example"}
	var leave func()
	for n := range maxOfOne {
		var err error
		if leave, err = f.come(&asking{caller: ann, address: fmt.Sprint("10.0.0.", n)}); err != nil {
			t.Fatal(err)
		}
	}
	tooMany := func(a *asking) bool {
		_, err := f.come(a)
		return errors.As(err, new(huma.StatusError)) && strings.Contains(err.Error(), "32 orders or lists are followed "+map[bool]string{true: "from your address (or that of a proxy before you)", false: "by you"}[a.caller.Method == ""]+", which is the most for one")
	}
	if !tooMany(&asking{caller: ann, address: "10.0.1.1"}) {
		t.Error("a caller follows more than may be")
	}
	for n := range maxOfOne {
		for _, a := range []*asking{{caller: bob, address: "10.0.0.1"}, {caller: identity.Anybody, address: "10.0.0.1"}} {
			if _, err := f.come(a); err != nil {
				t.Errorf("%d of others: %v", n, err)
			}
		}
	}
	if !tooMany(&asking{caller: identity.Anybody, address: "10.0.0.1"}) {
		t.Error("an address follows more than may be")
	}
	leave()
	if _, err := f.come(&asking{caller: ann}); err != nil || f.count() != 3*maxOfOne {
		t.Errorf("once one has left: %v, %d", err, f.count())
	}
}

// Who takes nothing loses the stream, and the place of who follows, and waits nobody else.
func TestAReaderThatTakesNothing(t *testing.T) {
	s := newStage(t)
	s.attach()
	s.listens("long")
	for n := range 60 { // more than there is room for on the way
		s.act("long", map[bool]string{true: "pause", false: "resume"}[n%2 == 0], `{"note":"`+strings.Repeat("x", 4<<10)+`"}`, http.StatusOK)
	}
	server := New(Config{})
	server.patience = 50 * time.Millisecond
	server.Attach(s.instance)
	defer server.Detach(errors.New("over"))
	listener := httptest.NewUnstartedServer(server)
	listener.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if err := c.(*net.TCPConn).SetWriteBuffer(4 << 10); err != nil {
			t.Error(err)
		}
		return ctx
	}
	listener.Start()
	defer listener.Close()
	for _, path := range []string{"/api/v1/orders/long/events", "/api/v1/orders?state=Pending"} {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", listener.Listener.Addr().String())
		if err == nil {
			err = c.(*net.TCPConn).SetReadBuffer(4 << 10)
		}
		if err == nil {
			_, err = fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n", path)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() }) // it was ended
		if line, err := bufio.NewReaderSize(c, 16).ReadString('\n'); err != nil || !strings.Contains(line, "200 OK") {
			t.Fatalf("%q, %v", line, err)
		}
		for n := 0; server.followers.count() > 0; n++ {
			id := fmt.Sprint(len(path), "-", n)
			if _, err := s.client.Submit(t.Context(), &Submission{ID: id, Workflow: "listens", Labels: map[string]string{"pad": strings.Repeat("x", 200)}}); err != nil {
				t.Fatal(err)
			}
		}
	}
}
