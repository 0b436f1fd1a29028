package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/internal/console"
	"github.com/waybill-dev/waybill/internal/identity"
)

// Who may see which page of the console, and do what from it, is as docs/security.md has it: each cell of its table is
// tried, and each route of the console is in it.
func TestWhoMaySeePages(t *testing.T) {
	clearEnvironment(t)
	keys, text := make(map[identity.Role]string), "keys:\n"
	for _, role := range identity.Roles {
		grant := string(role)
		if role == identity.Approver {
			grant += "/finance"
		}
		entry, key := aKey(t, string(role), grant)
		text, keys[role] = text+entry, key
	}
	server, _, _ := startDev(t, t.TempDir(), "--access", write(t, "access.yaml", text))
	t.Setenv("WAYBILL_TOKEN", keys[identity.Admin])
	waybill(t, "", "submit", "order-fulfilment", "--id", "o-1", "--input", `{"card":"declined"}`, "--wait", "--server", server).want(t, 7, "", "o-1 is Error")
	waybill(t, "", "schedule", "apply", write(t, "s.yaml", "{schedule: nightly, cron: '30 3 * * *', workflow: order-fulfilment}"), "--server", server).want(t, 0, "nightly", "")

	var all [][2]string
	for _, route := range console.New(nil, console.Config{}).Routes() {
		method, path, _ := strings.Cut(route, " ")
		if path != "/" && !strings.HasPrefix(path, "/static/") && !strings.HasPrefix(path, "/login/") { // what is no page; what all have; of the log-in of an issuer
			all = append(all, [2]string{method, path})
		}
	}
	fill := strings.NewReplacer("{$}", "", "/orders/{id}", "/orders/o-1", "{id}", "none", "{partition}", "0", "{offset}", "0", "/workflows/{name}", "/workflows/order-fulfilment", "{name}", "nightly")
	forms := map[string]string{
		"POST /bulk": "command=pause&state=Error", "POST /orders/o-1/skip-step": "step=charge", "POST /orders/o-1/signal": "signal=go", "POST /orders/o-1/decide": "step=s&outcome=yes",
		"POST /orders/o-1/label": "labels=a%3Db", "POST /orders/o-1/change": "priority=high", "POST /orders/o-1/terminate": "note=n", "POST /workflows": "definition=no",
		"POST /workflows/order-fulfilment/retire": "version=1", "POST /signals": "signal=go&under=%22ref-7%22",
	}
	table := "| |" + strings.Repeat(" %s |", len(identity.Roles)) + "\n| --- |" + strings.Repeat(" --- |", len(identity.Roles)) + "\n"
	names := make([]any, len(identity.Roles))
	for i, role := range identity.Roles {
		names[i] = role
	}
	table = fmt.Sprintf(table, names...)
	client := &http.Client{Transport: new(http.Transport), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	for _, route := range all {
		at := fill.Replace(route[1])
		ask := func(token string) int {
			r, err := http.NewRequestWithContext(t.Context(), route[0], server+at, strings.NewReader(forms[route[0]+" "+at]))
			if err != nil {
				t.Fatal(err)
			}
			if token != "" {
				r.Header.Set("Authorization", "Bearer "+token)
			}
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Header.Set("Origin", server)
			r.Header.Set("Sec-Fetch-Site", "same-origin")
			answer, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			if answer.StatusCode >= 500 {
				said, _ := io.ReadAll(answer.Body) // it is shown alone
				t.Errorf("%s %s: %s\n%s", route[0], at, answer.Status, said)
			}
			return answer.StatusCode
		}
		table += fmt.Sprintf("| `%s %s` |", route[0], strings.Replace(route[1], "{$}", "", 1))
		for _, role := range identity.Roles {
			if status := ask(keys[role]); status == http.StatusForbidden || status == http.StatusUnauthorized {
				table += " |"
			} else {
				table += " yes |"
			}
		}
		table += "\n"
		if status := ask(""); status != http.StatusUnauthorized && !strings.HasPrefix(at, "/log") && !strings.HasPrefix(at, "/zone") {
			t.Errorf("%s %s of nobody: %d", route[0], at, status)
		}
	}
	page, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, written, _ := strings.Cut(string(page), "<!-- pages -->\n")
	if written, _, _ = strings.Cut(written, "<!-- /pages -->"); written != table {
		t.Errorf("between the marks in docs/security.md stands\n%s\nand it is\n%s", written, table)
	}
}
