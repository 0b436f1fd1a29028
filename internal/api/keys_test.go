package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/events"
)

// What there is under a key is told: who listens, what is kept, and who has the turn and waits for it, to who may read the
// payloads of it, since a key is one; and of no other key, nor of orders that signals under it began.
func TestUnderAKey(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	access, keys := callers(t, logger, map[string]string{
		"root": "roles: [admin]", "view": "roles: [viewer]", "read": "roles: [payload-reader, viewer]",
		"one": "roles: [payload-reader, viewer], workflows: [call]", "half": "roles: [viewer], workflows: [call, hears]",
	})
	s := newStage(t, func(cfg *Config) { cfg.Access, cfg.Logger = access, logger })
	s.attach()
	ask := func(who, method, path, body string, status int) (answer string) {
		s.Helper()
		s.token = keys[who]
		got, _, answer := s.ask(request{method: method, path: path, body: body})
		if got != status {
			s.Fatalf("%s %s %s with %s: %d instead of %d: %s", who, method, path, body, got, status, answer)
		}
		return answer
	}
	under := func(who, key string) (k Keyed) {
		s.Helper()
		if err := json.Unmarshal([]byte(ask(who, "GET", "/api/v1/keys?key="+url.QueryEscape(key), "", http.StatusOK)), &k); err != nil {
			s.Fatal(err)
		}
		return k
	}
	for _, flow := range []string{
		"workflow: call\nconcurrency: {key: input}\nsteps: [{name: nap, sleep: 24h}]",
		"workflow: hears\nsteps: [{name: paid, listen: paid, key: input, timeout: 24h}]",
		"workflow: starts\nstart: {signal: paid.now, key: input}\nsteps: [{name: nap, sleep: 24h}]",
	} {
		ask("root", "POST", "/api/v1/workflows", flow, http.StatusCreated)
	}
	long := strings.Repeat("é", 97)
	for _, key := range []string{"ref-7", "ref-70", long} {
		submit := func(id, flow string) {
			s.Helper()
			ask("root", "POST", "/api/v1/orders", fmt.Sprintf(`{"id":"%s-%d","workflow":"%s","input":"%s"}`, id, len(key), flow, key), http.StatusAccepted)
		}
		submit("b", "call")
		s.until(func() bool { return len(under("root", key).Homes) == 1 })
		submit("a", "call")
		submit("h", "hears")
		ask("root", "POST", "/api/v1/signals", `{"signal":"other","key":"`+key+`","id":"s-1","data":"said"}`, http.StatusOK)
		for n := range 3 {
			ask("root", "POST", "/api/v1/signals", fmt.Sprintf(`{"signal":"paid.now","key":"%s","id":"n-%d","data":"%s-%d"}`, key, n, key, n), http.StatusOK)
		}
	}
	for _, key := range []string{"ref-7", long} {
		homes := make(map[string]KeyHome)
		s.until(func() bool {
			clear(homes)
			for _, h := range under("read", key).Homes {
				homes[h.ID] = h
			}
			return homes[events.TurnID("call", key)].Waiting == 1 && homes[events.CorrelationID("paid", key)].Waiting == 1
		})
		if len(homes) != 4 {
			t.Errorf("under %s are %+v", key, homes)
		}
		turns, hears, kept := homes[events.TurnID("call", key)], homes[events.CorrelationID("paid", key)], homes[events.CorrelationID("other", key)]
		if w := turns.Waits; len(w) != 2 || w[0].Order != fmt.Sprint("b-", len(key)) || !w[0].Has || w[1].Has || w[1].Since == nil || *turns.Workflow != "call" || turns.Signal != nil {
			t.Errorf("the turns are %+v", turns)
		}
		if w := hears.Waits; len(w) != 1 || w[0].Order != fmt.Sprint("h-", len(key)) || *w[0].Step != "paid" || w[0].Has || *hears.Signal != "paid" || hears.Keeping != 0 {
			t.Errorf("who listens is %+v", hears)
		}
		if k := kept.Kept; len(k) != 1 || kept.Keeping != 1 || k[0].ID != "s-1" || k[0].Until == nil || k[0].Given {
			t.Errorf("what is kept is %+v", kept)
		}
	}
	if homes := under("one", "ref-7").Homes; len(homes) != 1 || homes[0].ID != events.TurnID("call", "ref-7") {
		t.Errorf("who may see one workflow sees %+v", homes)
	}
	const read = `audit.what="payloads were read" audit.who=one`
	if n := strings.Count(log.String(), read); n != 1 || strings.Contains(log.String(), "key=ref-7") {
		t.Errorf("that one read under a key is %d times in the log: %s", n, &log)
	}
	ask("view", "GET", "/api/v1/keys?key=ref-7", "", http.StatusForbidden)
	ask("half", "GET", "/api/v1/keys?key=ref-7", "", http.StatusForbidden)
	if homes := under("read", "ref").Homes; len(homes) != 0 {
		t.Errorf("under what begins like a key are %+v", homes)
	}
	ask("read", "GET", "/api/v1/keys?key="+url.QueryEscape(strings.Repeat("é", 101)), "", http.StatusUnprocessableEntity)
	ask("read", "GET", "/api/v1/keys", "", http.StatusUnprocessableEntity)
}
