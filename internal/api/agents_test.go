package api

import (
	"encoding/json"
	"net/http"
	"testing"
)

// An agent that nobody runs does not look as one that works.
func TestAgents(t *testing.T) {
	s := newStage(t)
	s.attach()
	if status, _, said := s.ask(request{method: "POST", path: "/api/v1/workflows", body: "workflow: call\nsteps: [{name: enter, agent: crm, timeout: 1h}]"}); status >= 300 {
		t.Fatalf("%d %s", status, said)
	}
	if status, _, said := s.ask(request{method: "POST", path: "/api/v1/orders", body: `{"id":"a","workflow":"call"}`}); status >= 300 {
		t.Fatalf("%d %s", status, said)
	}
	s.until(func() bool {
		status, _, said := s.ask(request{path: "/api/v1/agents"})
		var all Agents
		if err := json.Unmarshal([]byte(said), &all); err != nil || status != http.StatusOK {
			t.Fatalf("%d %s: %v", status, said, err)
		}
		for _, a := range all.Agents {
			if a.Name == "crm" {
				return a.UnderWay == 1 && a.AskedSince != nil && a.Members != nil && *a.Members == 0 && a.Behind != nil && *a.Behind == 1
			}
		}
		return false
	})
}
