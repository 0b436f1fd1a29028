package api

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/waybill-dev/waybill/orchestrator/lane"
)

// For how long an agent has been silent, once an operator was called for that, is there for
// machines.
func TestTheSilenceOfAgentsIsMeasured(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(agentGauges(func() map[string]lane.Agent {
		return map[string]lane.Agent{"phone": {Waiting: 3, SilentSince: time.Now().Add(-90 * time.Second)}, "post": {UnderWay: 1}}
	}))
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	said := w.Body.String()
	if !strings.Contains(said, "waybill_agent_silent_seconds{agent=\"post\"} 0\n") {
		t.Errorf("one that answers: %s", said)
	}
	silent := regexp.MustCompile(`waybill_agent_silent_seconds\{agent="phone"\} (.*)`).FindStringSubmatch(said)
	if silent == nil {
		t.Fatalf("one that is silent: %s", said)
	}
	if seconds, err := strconv.ParseFloat(silent[1], 64); err != nil || seconds < 90 {
		t.Errorf("one is silent for %s s, %v", silent[1], err)
	}
}
