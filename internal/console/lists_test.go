package console

import (
	"encoding/json"
	"html"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/internal/api"
)

// A page may have nothing though others are to be looked at: it says so, and leads there. Only of a list as a whole it says that
// there is none.
func TestPagesWithNothing(t *testing.T) {
	for _, path := range []string{"/alerts", "/alerts?reason=held", "/approvals", "/approvals?mine=true", "/signals", "/signals?signal=paid", "/orders"} {
		next := ""
		server := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			answer := map[string]any{
				"/api/v1/caller": api.Caller{}, "/api/v1/alerts": api.AlertPage{Next: next}, "/api/v1/approvals": api.ApprovalPage{Next: next},
				"/api/v1/signals/waiting": api.SignalWaitPage{Next: next}, "/api/v1/orders": api.OrderPage{Next: next},
			}[r.URL.Path]
			if err := json.NewEncoder(w).Encode(answer); err != nil {
				t.Error(err)
			}
		})
		page := func(after string) string {
			said, sign := httptest.NewRecorder(), "?"
			if strings.Contains(path, "?") {
				sign = "&"
			}
			New(server, Config{}).ServeHTTP(said, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path+sign+after, http.NoBody))
			return html.UnescapeString(said.Body.String())
		}
		const none, others, last = ">None.<", "None of those that were looked at for this page; others were not.", "None on this page, which is the last."
		for _, c := range []struct {
			next, after string
			want, not   []string
		}{
			{"", "", []string{none}, []string{others, last, ">More<", "From the beginning"}},
			{"MTIzLw", "", []string{others, "after=MTIzLw", ">More<", "no ", " among those that were looked at"}, []string{none, last, "more than", "at least"}},
			{"", "after=MTIzLw", []string{last, "From the beginning"}, []string{none, others, ">More<"}},
		} {
			next = c.next
			got := page(c.after)
			for _, text := range c.want {
				if !strings.Contains(got, text) {
					t.Errorf("%s, behind %q, with more %q: %q is missing in\n%s", path, c.after, c.next, text, got)
				}
			}
			for _, text := range c.not {
				if strings.Contains(got, text) {
					t.Errorf("%s, behind %q, with more %q: %q is in\n%s", path, c.after, c.next, text, got)
				}
			}
		}
	}
}
