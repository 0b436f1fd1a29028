package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/test/kafka"
)

// Whoever polls goes on where a server restarts, and ends where it is gone, refuses, or was never there.
func TestPoll(t *testing.T) {
	gone := errors.New("gone")
	for _, c := range []struct {
		name  string
		errs  func(n int, since time.Duration) error // of the n-th question, nil is an answer
		first func(error) error
		asked int // at least
		most  int
		told  int // times that it is away, and as often that it is back but for the one that ends it
		ends  error
	}{
		{"there", func(int, time.Duration) error { return nil }, ends, 3600, 3601, 0, nil},
		{"never there", func(int, time.Duration) error { return gone }, ends, 1, 1, 0, gone},
		{"to come", func(n int, _ time.Duration) error {
			if n < 3 {
				return &api.Problem{Status: http.StatusNotFound}
			}
			return nil
		}, func(error) error { return nil }, 3600, 3601, 0, nil},
		{"restarts", func(n int, since time.Duration) error {
			if n > 1 && since < 4*time.Minute {
				return gone
			}
			return nil
		}, ends, 3300, 3400, 1, nil},
		{"is away now and then", func(n int, _ time.Duration) error {
			if n%10 == 0 {
				return gone
			}
			return nil
		}, ends, 3200, 3300, 327, nil},
		{"gone for good", func(n int, _ time.Duration) error {
			if n > 1 {
				return gone
			}
			return nil
		}, ends, 20, 30, 1, gone},
		{"busy", func(n int, _ time.Duration) error {
			if n == 2 {
				return &api.Problem{Status: http.StatusTooManyRequests, RetryAfter: time.Minute}
			}
			return nil
		}, ends, 3500, 3545, 1, nil},
		{"refuses", func(n int, _ time.Duration) error {
			if n > 1 {
				return &api.Problem{Status: http.StatusForbidden, Detail: "no"}
			}
			return nil
		}, ends, 2, 2, 0, &api.Problem{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				begin, n := time.Now(), 0
				heard, told, back := begin, 0, 0
				err := poll(ctx, func(since time.Time, why error) {
					if why != nil {
						told++
					} else {
						back++
					}
					if since != heard || why == nil && back != told || why != nil && back != told-1 {
						t.Errorf("it is told of %v since %s, the %d. and %d. time, and heard of the server %s", why, since, told, back, heard)
					}
				}, c.first, func() (bool, error) {
					n++
					err := c.errs(n, time.Since(begin))
					if err == nil && told == back {
						heard = time.Now()
					}
					return false, err
				})
				if lost := errors.Is(err, gone) && n > 1; told != c.told || told-back != 0 && !lost || lost && told-back != 1 {
					t.Errorf("it was told %d times that it is away, and %d times that it is back", told, back)
				}
				problem := new(api.Problem)
				if want := errors.As(c.ends, &problem); want != errors.As(err, &problem) || !want && !errors.Is(err, c.ends) {
					t.Errorf("it ended with %v", err)
				}
				if n < c.asked || n > c.most {
					t.Errorf("it asked %d times", n)
				}
			})
		})
	}
}

// What is listed anew is printed, what is listed no more is named, and what stays is not repeated.
func TestWatchPrintsWhatChanged(t *testing.T) {
	lists := [][]api.Limit{
		{{Name: "a"}, {Name: "b"}},
		{{Name: "a"}, {Name: "b"}},
		{{Name: "a", Taken: 1}, {Name: "b"}, {Name: "a-long-name"}},
		{{Name: "a", Taken: 1}},
	}
	lacks := [][]string{{"more"}, {"more"}, {"left out", "more"}, nil}
	for format, want := range map[string]string{
		asTable:                      "LIMIT  TAKEN\na      0\nb      0\na            1\na-long-name  0\n",
		asNames:                      "a\nb\na\na-long-name\n",
		"jsonpath=$.limits[*].taken": "0\n0\n1\n0\n",
	} {
		synctest.Test(t, func(t *testing.T) {
			var b, errs bytes.Buffer
			cmd := &cobra.Command{}
			cmd.SetOut(&b)
			cmd.SetErr(&errs)
			out := addOutput(cmd.Flags(), "$.limits[*].name")
			if err := out.Set(format); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			cmd.SetContext(ctx)
			n := -1
			err := watchList(cmd, out, "limits", func() ([]api.Limit, []string, error) {
				if n++; n == len(lists) {
					stop()
					return nil, nil, errors.New("stopped")
				}
				return lists[n], lacks[n], nil
			}, func(row func(...any), all []api.Limit) {
				row("LIMIT", "TAKEN")
				for i := range all {
					row(all[i].Name, all[i].Taken)
				}
			})
			if err != nil || b.String() != want || errs.String() != "more\nleft out\nNothing is left out any more.\nb is listed no more.\na-long-name is listed no more.\n" {
				t.Errorf("%s: %v\n%s\n%s", format, err, &b, &errs)
			}
		})
	}
}

// A terminal is drawn over, and never scrolls.
func TestFrame(t *testing.T) {
	if got, want := string(frame("a\nlonger\n", 5, 9)), "\x1b[Ha\x1b[K\nlong…\x1b[K\n\x1b[J"; got != want {
		t.Errorf("%q", got)
	}
	if got, want := string(frame("a\n", 0, 0)), "\x1b[Ha\x1b[K\n\x1b[J"; got != want {
		t.Errorf("%q", got)
	}
	if got, want := string(frame("1\n2\n3\n4\n", 5, 3)), "\x1b[H1\x1b[K\n… an…\x1b[K\n\x1b[J"; got != want {
		t.Errorf("%q", got)
	}
}

// What --since chooses among has an end, which is said: once, and on a terminal in what is shown, and not across it.
func TestWatchWhatIsChosenByTime(t *testing.T) {
	clearEnvironment(t)
	const says = "Only the first 10000 orders were looked at for --since and --until: narrow them with --state, --workflow or --where.\n"
	many := make([]string, spanMost)
	for n := range many {
		many[n] = "o Pending"
	}
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		kafka.LeaveOut(t, "what is asked of a terminal, because none can be had: %v", err)
	}
	defer terminal.Close()
	for to, want := range map[io.Writer]string{io.Discard: says, terminal: ""} {
		ctx, stop := context.WithCancel(t.Context())
		asked := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if asked++; asked == 3 {
				stop()
			}
			fmt.Fprint(w, listing("more", many...))
		}))
		var errs bytes.Buffer
		code := run(ctx, []string{"order", "list", "-w", "--since", "1h", "--server", server.URL}, strings.NewReader(""), to, &errs)
		if code != 0 || errs.String() != want {
			t.Errorf("exit code %d, %s", code, &errs)
		}
		server.Close()
		stop()
	}
}

// An order is watched until it has ended, and alerts are followed past a restart of the server, until
// somebody has seen enough.
func TestWatchAndFollow(t *testing.T) {
	clearEnvironment(t)
	alert := func(order string) string {
		return fmt.Sprintf(`{"order":%q,"workflow":"w","version":1,"reason":"it failed","errors":[],"at":"2030-01-02T15:04:05Z"}`, order)
	}
	answers := map[string][]string{
		"/api/v1/orders/o-1": {
			`{"orderId":"o-1","processState":"Processing","steps":[]}`, `{"orderId":"o-1","processState":"Processed","steps":[]}`,
		},
		"/api/v1/orders": {`{"orders":[{"orderId":"o-7"}],"elsewhere":[5],"next":"more"}`, `{"orders":[{"orderId":"o-7"}],"elsewhere":[5],"next":"more"}`, "stop"},
		"/api/v1/alerts": {
			`{"alerts":[` + alert("b") + `,` + alert("a") + `],"next":"more"}`, `{"alerts":[` + alert("old") + `]}`,
			"", "", `{"alerts":[` + alert("d") + `,` + alert("c") + `,` + alert("old") + `],"next":"more"}`, `{"alerts":[` + alert("old") + `]}`, "stop",
		},
	}
	ctx, stop := context.WithCancel(t.Context())
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		all := answers[r.URL.Path]
		switch answer := all[min(int(asked.Add(1)), len(all))-1]; answer {
		case "":
			panic(http.ErrAbortHandler)
		case "stop":
			stop()
		default:
			fmt.Fprint(w, answer)
		}
	}))
	defer server.Close()
	var out, errs bytes.Buffer
	watch := func(want string, args ...string) {
		t.Helper()
		asked.Store(0)
		out.Reset()
		if code := run(ctx, append(args, "--server", server.URL), strings.NewReader(""), &out, &errs); code != 0 || out.String() != want {
			t.Errorf("%q: %d\n%s%s", args, code, &out, &errs)
		}
	}
	watch("Processing\nProcessed\n", "order", "get", "o-1", "-w", "-o", "jsonpath=$.processState")
	asked.Store(0)
	if c := waybill(t, "", "order", "get", "o-1", "-w", "--server", server.URL); c.code != 0 || !strings.Contains(c.out, "Processing\n") || !strings.HasSuffix(c.out, "\nState        Processed\n") {
		t.Errorf("%+v", c)
	}
	errs.Reset()
	watch("a\nb\nc\nd\n", "alerts", "-f", "--limit", "2", "-o", "name")
	if !regexp.MustCompile(`^Nothing is known of what changed since 2\S+Z, and it is asked again: ask http:.*: EOF\nThe server answers again, after [1-9]s.\n$`).MatchString(errs.String()) {
		t.Errorf("it says %s", &errs)
	}
	errs.Reset()
	ctx, stop = context.WithCancel(t.Context())
	defer stop()
	watch("o-7\n", "order", "list", "-w", "--limit", "1", "-o", "name")
	if errs.String() != "Orders of the partitions [5] are left out: this instance does not own them, and runs with --standby owned. Ask the others too: waybill partition list -o wide has their addresses.\nThere are more; see --limit.\n" {
		t.Errorf("it says %s", &errs)
	}
	waybill(t, "", "alerts", "-f", "-w", "--server", server.URL).want(t, exitUsage, "", "use one of the two")
}
