package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/api"
)

// Times of tables are those of this machine's zone, or of UTC; those of data are of UTC always.
func TestZones(t *testing.T) {
	clearEnvironment(t)
	before := time.Local
	time.Local = time.FixedZone("", 3600)
	t.Cleanup(func() { time.Local = before })
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/history") {
			fmt.Fprint(w, `{"events":[{"type":"waybill.order.accepted","order":"o-1","seq":1,"at":"2030-01-02T23:04:05Z","workflow":"w","version":1}],"next":""}`)
			return
		}
		fmt.Fprint(w, `{"orderId":"o-1","processState":"Processing","acceptedAt":"2030-01-02T23:04:05Z","steps":[{"name":"a","state":"listening","listens":{"how":"one","signals":["s"]},"due":"2030-01-03T23:04:05Z"}]}`)
	}))
	defer server.Close()
	t.Setenv("WAYBILL_SERVER", server.URL)
	for _, c := range []struct{ args, accepted, due string }{
		{"order get o-1", "2030-01-03T00:04:05.000+01:00", "2030-01-04T00:04:05.000+01:00"},
		{"order get o-1 --utc", "2030-01-02T23:04:05.000Z", "until 2030-01-03T23:04:05.000Z"},
		{"order get o-1 -o yaml", "2030-01-02T23:04:05.000Z", "2030-01-03T23:04:05.000Z"},
		{"order history o-1", "2030-01-03T00:04:05.000+01:00", "order.accepted"},
		{"order history o-1 --utc", "2030-01-02T23:04:05.000Z", "order.accepted"},
		{"order history o-1 -o json", "2030-01-02T23:04:05Z", "order.accepted"},
	} {
		made := waybill(t, "", strings.Fields(c.args)...)
		made.want(t, exitDone, c.accepted, "")
		made.want(t, exitDone, c.due, "")
	}
}

// How long ago something was is said in a unit that tells.
func TestAge(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for d, want := range map[time.Duration]string{
		0: "0s ago", -119 * time.Second: "119s ago", -2 * time.Minute: "2m ago", -3 * time.Hour: "3h ago", -47 * time.Hour: "47h ago", -49 * time.Hour: "2d ago", 5 * time.Minute: "in 5m",
	} {
		if got := age(now.Add(d), now); got != want {
			t.Errorf("%s is %q, and not %q", d, got, want)
		}
	}
	at := &api.Time{Time: time.Now().Add(-time.Hour)}
	if got := (&output{ages: true}).when(at); got != "60m ago" {
		t.Errorf("%q", got)
	}
	if got := new(output).when(at); !strings.HasPrefix(got, "20") {
		t.Errorf("%q", got)
	}
}

// What lies between two times is chosen where the server cannot; how much is looked at is bounded, and said.
func TestBetweenTimes(t *testing.T) {
	clearEnvironment(t)
	var pages []string // that follow each other
	asked, limit := 0, ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limit = r.URL.Query().Get("limit")
		fmt.Fprint(w, pages[min(asked, len(pages)-1)])
		asked++
	}))
	defer server.Close()
	t.Setenv("WAYBILL_SERVER", server.URL)
	ask := func(want string, times int, args string, from ...string) call {
		t.Helper()
		pages, asked = from, 0
		c := waybill(t, "", strings.Fields(args)...)
		if c.code != exitDone || c.out != want || asked != times {
			t.Errorf("%s: it was asked %d times: %+v", args, asked, c)
		}
		return c
	}
	order := func(id, day string) string {
		return fmt.Sprintf(`{"orderId":%q,"acceptedAt":"2030-01-%sT00:00:00Z"}`, id, day)
	}
	orders := func(next string, all ...string) string {
		return `{"orders":[` + strings.Join(all, ",") + `],"next":"` + next + `"}`
	}
	of := []string{orders("x", order("a", "01"), order("b", "03")), orders("", order("c", "05"), order("d", "09"), `{"orderId":"e"}`)}
	ask("b\nc\n", 2, "order list -o name --since 2030-01-02T00:00:00Z --until 2030-01-08T00:00:00Z", of...)
	ask("b\nc\nd\n", 2, "order list -o name --since 2030-01-03T00:00:00Z", of...)
	ask("a\n", 2, "order list -o name --until 2030-01-02T00:00:00Z", of...)
	c := ask("b\n", 1, "order list -o name --limit 1 --since 2030-01-02T00:00:00Z", orders("", order("a", "01"), order("b", "03"), order("c", "05")))
	if !strings.Contains(c.errs, "There are more") || limit != "1000" {
		t.Errorf("it asked for %s, and says %q", limit, c.errs)
	}
	c = ask("", 10, "order list -o name --since 2030-02-01T00:00:00Z", orders("x", slices.Repeat([]string{order("a", "01")}, 1000)...))
	c.want(t, exitDone, "", "Only the first 10000 orders were looked at")

	alert := func(id, day string) string { return fmt.Sprintf(`{"order":%q,"at":"2030-01-%sT00:00:00Z"}`, id, day) }
	raised := []string{`{"alerts":[` + alert("d", "09") + "," + alert("c", "05") + `],"next":"x"}`, `{"alerts":[` + alert("b", "03") + "," + alert("a", "01") + `],"next":"x"}`}
	ask("c\nb\n", 2, "alerts -o name --since 2030-01-02T00:00:00Z --until 2030-01-08T00:00:00Z", raised...)

	event := func(seq, day int, kind string) string {
		return fmt.Sprintf(`{"type":"waybill.%s","order":"o-1","seq":%d,"at":"2030-01-0%dT00:00:00Z"}`, kind, seq, day)
	}
	history := `{"events":[` + event(1, 1, "order.paused") + "," + event(2, 3, "order.resumed") + "," + event(3, 5, "order.paused") + `],"next":""}`
	ask("2\n", 1, "order history o-1 -o jsonpath=$.events[*].seq --since 2030-01-02T00:00:00Z --until 2030-01-04T00:00:00Z", history)
	pages, asked = []string{history}, 0
	if c := waybill(t, "", "order", "history", "o-1", "--since", "2030-01-04T00:00:00Z"); !strings.Contains(c.out, "+48h0m0s") || strings.Contains(c.out, "resumed") {
		t.Errorf("%+v", c)
	}

	letter := func(offset int, day string) string {
		return fmt.Sprintf(`{"partition":0,"offset":%d,"at":"2030-01-%sT00:00:00Z"}`, offset, day)
	}
	ask("0/1\n", 1, "dead-letters list -o name --until 2030-01-02T00:00:00Z", `{"deadLetters":[`+letter(2, "03")+","+letter(1, "01")+`],"next":""}`)

	for args, says := range map[string]string{
		"order list --since soon":                "--since",
		"order list --until soon":                "--until",
		"alerts --since 1h --until 2h":           "nothing between them",
		"order history o-1 -f --since 1h":        "--follow",
		"alerts -f --since 1h":                   "--follow",
		"submit w --deadline +soon":              "from now on such as +2h",
		"submit w --deadline +-2h":               "from now on such as +2h",
		"order rerun o-1 --deadline 2h":          "from now on such as +2h",
		"order change o-1 --deadline 2030-01-02": "from now on such as +2h",
	} {
		waybill(t, "", strings.Fields(args)...).want(t, exitUsage, "", says)
	}
}

// A deadline may be so long from now on.
func TestDeadlineFromNowOn(t *testing.T) {
	clearEnvironment(t)
	var submitted api.Submission
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(&submitted); err != nil {
			t.Error(err)
		}
		fmt.Fprint(w, `{"orderId":"o-1"}`)
	}))
	defer server.Close()
	begin := time.Now()
	waybill(t, "", "submit", "w", "--deadline", "+2h", "--server", server.URL).want(t, exitDone, "o-1", "")
	if d := submitted.Deadline; d == nil || d.Before(begin.Add(2*time.Hour-time.Second)) || d.After(time.Now().Add(2*time.Hour+time.Second)) {
		t.Errorf("the deadline is %v", d)
	}
}
