package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A server that does not answer completes nothing, and keeps nobody waiting.
func TestCompletionGivesUp(t *testing.T) {
	clearEnvironment(t)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer server.Close()
	if c := waybill(t, "", "__complete", "order", "get", "--server", server.URL, ""); c.code != exitDone || c.out != ":36\n" {
		t.Errorf("%+v", c)
	}
}

// What there are contexts of can be completed, without a server.
func TestCompletionOfContexts(t *testing.T) {
	clearEnvironment(t)
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	waybill(t, "", "context", "set", "prod", "--server", "http://127.0.0.1:1").want(t, exitDone, "", "")
	for _, args := range [][]string{{"context", "use", ""}, {"alerts", "--context", ""}} {
		waybill(t, "", append([]string{"__complete"}, args...)...).want(t, exitDone, "prod\thttp://127.0.0.1:1\n", "")
	}
}

// What others named so that a shell would run it, or take it for something else, is not offered.
func TestCompletionIsHarmless(t *testing.T) {
	clearEnvironment(t)
	var orders []string
	for _, id := range []string{"o-1", "$(touch x)", "`x`", "a;b", "a'b", `a"b`, `a\b`, "a*", "~a", "a|b", "a>b", "a&b", "#a", "!a", "{a,b}", " sp ", "a\nb", "a\n", "-rf", "é", "a:1@2/3+4=5,6_7.8-9"} {
		name, err := json.Marshal(id)
		if err != nil {
			t.Fatal(err)
		}
		orders = append(orders, fmt.Sprintf(`{"orderId":%s,"processState":"Error"}`, name))
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"orders":[%s]}`, strings.Join(orders, ","))
	}))
	defer server.Close()
	c := waybill(t, "", "__completeNoDesc", "order", "get", "--server", server.URL, "")
	if want := "o-1\na:1@2/3+4=5,6_7.8-9\n:36\n"; c.code != exitDone || c.out != want {
		t.Errorf("%+v", c)
	}
}
