package subscription

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/test/shipped"
)

func TestTheWorkflows(t *testing.T) {
	shipped.Workflows(t, Agents(new(Billing)), "subscription_test.yaml", "renewal.yaml", "subscription.yaml")
}

// What the server refuses is no reason to ask again; that there is no schedule any more is its end; all else is
// asked for again.
func TestWhatTheServerSays(t *testing.T) {
	status := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	defer server.Close()
	billing := new(Billing)
	if billing.ask(t.Context(), http.MethodPut, "s-1", nil) == nil {
		t.Error("it asks nobody")
	}
	billing.At(server.URL)
	for _, test := range []struct {
		method          string
		status          int
		good, permanent bool
	}{
		{http.MethodPut, 200, true, false},
		{http.MethodPut, 404, false, false},
		{http.MethodPut, 409, false, false},
		{http.MethodPut, 422, false, true},
		{http.MethodPut, 503, false, false},
		{http.MethodDelete, 404, true, false},
	} {
		status = test.status
		err := billing.ask(t.Context(), test.method, "s-1", nil)
		failure, _ := errors.AsType[*agents.Error](err)
		if (err == nil) != test.good || (failure != nil && failure.Permanent) != test.permanent {
			t.Errorf("%s: %d: %v", test.method, test.status, err)
		}
	}
}
