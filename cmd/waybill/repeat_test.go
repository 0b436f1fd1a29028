package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-dev/waybill/internal/api"
)

// What a server does not know yet it is asked again for half a minute, as often as it
// wants; what it refuses, and what it gives no hope of, is not.
func TestWhatIsNotKnownYetIsAskedAgain(t *testing.T) {
	unknown := &api.Problem{Status: http.StatusServiceUnavailable, RetryAfter: 5 * time.Second}
	for _, c := range []struct {
		what   string
		err    error
		until  time.Duration // the server knows it then
		tries  int
		answer bool
	}{
		{"it is known", nil, 0, 1, true},
		{"it is known soon", unknown, 28 * time.Second, 7, true},
		{"it is known too late", unknown, time.Minute, 7, false},
		{"it is refused", &api.Problem{Status: http.StatusConflict, RetryAfter: time.Second}, time.Minute, 1, false},
		{"it will not be known", &api.Problem{Status: http.StatusServiceUnavailable}, time.Minute, 1, false},
		{"nobody answers", api.ErrAway, time.Minute, 1, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			begin, tries := time.Now(), 0
			answer, err := known(t.Context(), func() (bool, error) {
				if tries++; time.Since(begin) < c.until {
					return false, c.err
				}
				return true, nil
			})
			if answer != c.answer || tries != c.tries || !answer && !errors.Is(err, c.err) {
				t.Errorf("%s: %t, %v, asked %d times", c.what, answer, err, tries)
			}
		})
	}
}

// All that reads asks again, and whoever must know who is in the group.
func TestCommandsOutlastWhatIsNotKnownYet(t *testing.T) {
	clearEnvironment(t)
	flow := write(t, "w.yaml", "{workflow: w, steps: [{name: a, agent: a, timeout: 1s, queue: 1s}]}")
	asked := make(map[string]int)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.URL.Path == "/api/v1/workflows" {
			fmt.Fprint(w, `{"workflows":[]}`)
			return
		}
		if asked[r.URL.Path]++; asked[r.URL.Path]%2 == 1 {
			w.Header().Set("Retry-After", "1")
			problem(w, http.StatusServiceUnavailable, "not known yet")
			return
		}
		fmt.Fprint(w, `{"orderId":"o-1","processState":"Processed","steps":[],"orders":[],"alerts":[],"events":[]}`)
	}))
	defer server.Close()
	t.Setenv("WAYBILL_SERVER", server.URL)
	for _, args := range [][]string{
		{"order", "get", "o-1"},
		{"order", "list"},
		{"order", "history", "o-1"},
		{"alerts"},
		{"order", "cancel", "--state", "Error", "--yes"},
		{"order", "cancel", "o-1"},
		{"workflow", "register", flow},
		{"upgrade", "status"},
		{"upgrade", "finish"},
	} {
		waybill(t, "", args...).want(t, 0, "", "")
	}
	for path, n := range asked {
		if n%2 != 0 {
			t.Errorf("%s was asked %d times", path, n)
		}
	}
}
