package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A server that goes away while it is waited for, and an order that is not
// there yet, are waited for too. So is one that takes nothing now.
func TestWaitOutlivesARestart(t *testing.T) {
	clearEnvironment(t)
	answers := []string{
		"POST gone", "POST 503", "POST 429", "POST page 502", "POST page 503", "POST page 504", "POST 202", "GET 404", "GET gone", "GET 503", "GET page 502", "GET Pending", "GET Processed",
	}
	var mu sync.Mutex // the requests come one after the other, but on connections that do not know it
	next := func() (answer string) {
		mu.Lock()
		defer mu.Unlock()
		if len(answers) > 0 {
			answer, answers = answers[0], answers[1:]
		}
		return answer
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := next()
		problem := func(status int) {
			w.WriteHeader(status)
			fmt.Fprintf(w, `{"status":%d,"title":"x"}`, status)
		}
		switch answer {
		case r.Method + " gone":
			panic(http.ErrAbortHandler)
		case r.Method + " 404":
			problem(404)
		case r.Method + " 429":
			w.Header().Set("Retry-After", "1")
			problem(429)
		case r.Method + " 503":
			problem(503)
		case r.Method + " page 502", r.Method + " page 503", r.Method + " page 504":
			page(w, answer[len(answer)-3:])
		case "POST 202":
			w.WriteHeader(http.StatusAccepted)
			fmt.Fprint(w, `{"orderId":"o-1"}`)
		case "GET Pending", "GET Processed":
			fmt.Fprintf(w, `{"orderId":"o-1","processState":%q,"steps":[]}`, answer[len("GET "):])
		default:
			t.Errorf("%s came instead of %s", r.Method, answer)
			panic(http.ErrAbortHandler)
		}
	}))
	defer server.Close()
	waybill(t, "", "submit", "w", "--id", "o-1", "--wait", "--server", server.URL).want(t, 0, "Processed", "")
	if answer := next(); answer != "" {
		t.Errorf("not asked for: %q and on", answer)
	}
}

// page answers as a proxy does that has no answer of the server.
func page(w http.ResponseWriter, status string) {
	code, err := strconv.Atoi(status)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "text/html")
	w.WriteHeader(code)
	fmt.Fprint(w, "<html>nothing is there</html>")
}

// What a proxy says that does not reach the server is that it is away, and no document of a Waybill. Who
// waits is told so at once. What anybody else says in such a way is no answer.
func TestAProxyAnswers(t *testing.T) {
	clearEnvironment(t)
	asked := 0
	status := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		page(w, status)
	}))
	defer server.Close()
	t.Setenv("WAYBILL_SERVER", server.URL)
	for _, c := range []struct {
		status string
		code   int
		says   string
	}{
		{"502", exitAway, "answered with status 502 Bad Gateway, as a proxy does that reaches no Waybill"},
		{"503", exitAway, "answered with status 503 Service Unavailable, as a proxy does"},
		{"504", exitAway, "answered with status 504 Gateway Timeout, as a proxy does"},
		{"429", exitAway, "answered with status 429 Too Many Requests, as a proxy does that takes no more at present; try again later"},
		{"500", exitFailed, "is it a Waybill?"},
		{"404", exitFailed, "is it a Waybill?"},
	} {
		status = c.status
		waybill(t, "", "order", "get", "o-1").want(t, c.code, "", c.says)
		waybill(t, "", "order", "list").want(t, c.code, "", c.says)
	}
	status, asked = "502", 0
	waybill(t, "", "order", "wait", "o-1").want(t, exitAway, "", "waybill: "+server.URL+" answered with status 502")
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}

// Where no answer comes nobody knows whether the order was taken: the id under which it is one order is said, as the server was
// told it, and the deadline, which from now on would be another. What was refused, and what was sent to nobody, has none.
func TestASubmissionWithoutAnAnswer(t *testing.T) {
	for _, c := range []struct {
		what   string
		answer func(w http.ResponseWriter)
		code   int
		named  bool
	}{
		{"the connection ends", func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, exitAway, true},
		{"the answer breaks off", func(w http.ResponseWriter) { _, _ = w.Write([]byte(`{"orderId":`)) }, exitFailed, true},
		{"a proxy gives up", func(w http.ResponseWriter) { page(w, "504") }, exitAway, true},
		{"Kafka is silent", func(w http.ResponseWriter) { problem(w, 503, "Kafka did not take it") }, exitAway, true},
		{"it breaks", func(w http.ResponseWriter) { problem(w, 500, "it is broken") }, exitFailed, true},
		{"it is refused", func(w http.ResponseWriter) { problem(w, 409, "an upgrade must be finished first") }, exitRefused, false},
		{"there is no room", func(w http.ResponseWriter) { problem(w, 429, "nothing was submitted") }, exitAway, false},
	} {
		clearEnvironment(t)
		var mu sync.Mutex // whose connection ends knows nothing of what its handler did
		var asked []map[string]any
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var body map[string]any
			if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
				t.Error(err)
			}
			mu.Lock()
			asked = append(asked, body)
			mu.Unlock()
			c.answer(w)
		}))
		t.Setenv("WAYBILL_SERVER", server.URL)
		for _, args := range [][]string{{"submit", "w"}, {"submit", "w", "--deadline", "+2h"}, {"order", "rerun", "o-1", "--deadline", "+2h"}} {
			got := waybill(t, "", args...)
			mu.Lock()
			body := asked[len(asked)-1]
			mu.Unlock()
			id, _ := body["id"].(string)
			again := "; asked for again with --id " + id
			if deadline, given := body["deadline"].(string); given {
				at, err := time.Parse(time.RFC3339, deadline)
				if err != nil {
					t.Error(err)
				}
				again += " --deadline " + at.UTC().Format(time.RFC3339Nano)
			}
			if again += " it is one order\n"; len(id) != 36 || got.code != c.code || strings.Contains(got.errs, again) != c.named || strings.Contains(got.errs, "asked for again") != c.named {
				t.Errorf("%s: %q of %v: %+v", c.what, args, body, got)
			}
		}
		server.Close()
		if len(asked) != 3 {
			t.Errorf("%s: asked %d times", c.what, len(asked))
		}
		if got := waybill(t, "", "submit", "w"); got.code != exitAway || strings.Contains(got.errs, "--id") {
			t.Errorf("nobody is there: %+v", got)
		}
	}
}

// Who gives up waiting before an answer came is told the same.
func TestASubmissionThatIsGivenUp(t *testing.T) {
	clearEnvironment(t)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		interrupt()
		panic(http.ErrAbortHandler)
	}))
	defer server.Close()
	var out, errs bytes.Buffer
	code := run(ctx, []string{"submit", "w", "--id", "o-1", "--wait", "--server", server.URL}, strings.NewReader(""), &out, &errs)
	call{code, out.String(), errs.String()}.want(t, exitInterrupted, "", "; asked for again with --id o-1 it is one order\n")
}

// Who may submit an order and not see it is told which it is.
func TestASubmissionThatCannotBeFollowed(t *testing.T) {
	clearEnvironment(t)
	var id atomic.Value
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			id.Store(strings.TrimPrefix(r.URL.Path, "/api/v1/orders/"))
			problem(w, 403, "it takes the role viewer")
			return
		}
		receipt("o-1", w)
	}))
	defer server.Close()
	c := waybill(t, "", "submit", "w", "--wait", "--server", server.URL)
	c.want(t, exitNotPermitted, "", fmt.Sprintf("waybill: order %s was submitted, and cannot be followed: it takes the role viewer\n", id.Load()))
}

// A refusal is not tried again.
func TestSubmitIsRefused(t *testing.T) {
	clearEnvironment(t)
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprint(w, `{"status":422,"title":"x","detail":"no good","errors":[{"message":"do better","location":"body.input"}]}`)
	}))
	defer server.Close()
	waybill(t, "", "submit", "w", "--wait", "--server", server.URL).want(t, 4, "", "waybill: no good\nbody.input: do better")
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}
