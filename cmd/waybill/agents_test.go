package main

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"
)

// What Kafka does not say is unknown, and not none.
func TestAgentsSayWhoIsThere(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"instance":"i-1","agents":[{"name":"crm","tokens":"off","underWay":3,"members":0,"behind":5,"askedSince":"2026-01-05T12:00:00Z"},{"name":"fax","tokens":"off","underWay":7}]}`))
	}))
	t.Cleanup(server.Close)
	clearEnvironment(t)
	t.Setenv("WAYBILL_SERVER", server.URL)
	said := waybill(t, "", "agents")
	said.want(t, 0, "OLDEST", "")
	for _, row := range []string{`crm .* 3 +\d+h\d+m\d+s +0 +5 +0 +-`, `fax .* 7 +- +unknown +unknown +0 +-`} {
		if !regexp.MustCompile(row).MatchString(said.out) {
			t.Errorf("%s is not in\n%s", row, said.out)
		}
	}
}
