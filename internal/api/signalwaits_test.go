package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/projections"
)

// What waits for signals is listed to those who may see its orders, the one first that has not changed for longest, page by
// page; the key under which a step waits is a payload.
func TestSignalWaits(t *testing.T) {
	var log bytes.Buffer
	s, keys := known(t, slog.New(slog.NewTextHandler(&log, nil)), map[string]string{
		"root": "roles: [admin]", "view": "roles: [viewer]", "read": "roles: [payload-reader]", "none": "roles: [submitter]",
		"half": "roles: [viewer], workflows: [bill]", "part": "roles: [payload-reader], workflows: [bill]",
	})
	for _, flow := range []string{
		"workflow: bill\nsteps: [{name: paid, listen: payment, timeout: 24h}]",
		"workflow: deal\nsteps: [{name: papers, listen: {all: [deposit, documents]}}, {name: vote, listen: {one: vote, count: 3}, key: input, after: []}]",
	} {
		if _, err := s.client.Register(t.Context(), "w.yaml", []byte(flow)); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"b-1", "a-1", "b-2", "b-3"} {
		flow := map[byte]string{'b': "bill", 'a': "deal"}[id[0]]
		if _, err := s.client.Submit(t.Context(), &Submission{ID: id, Workflow: flow, Input: json.RawMessage(`"canary"`)}); err != nil {
			t.Fatal(err)
		}
		s.until(func() bool {
			o, err := s.client.Order(t.Context(), id)
			return err == nil && o.Steps[0].State == projections.Listening
		})
	}
	s.until(func() bool { // its record is written once the key's is
		page, err := s.client.SignalWaits(t.Context(), "", "", 100, "")
		return err == nil && len(page.Waits) == 5
	})
	s.tells("a-1", `{"signal":"deposit","id":"s-1","data":"canary"}`)
	s.act("b-3", "pause", `{}`, http.StatusOK)

	list := func(name, query string) (page SignalWaitPage, said string) {
		t.Helper()
		own := *s
		own.token = keys[name]
		status, _, said := own.ask(request{path: "/api/v1/signals/waiting" + query})
		if status != http.StatusOK || json.Unmarshal([]byte(said), &page) != nil {
			t.Fatalf("%s: %d %s", name, status, said)
		}
		return page, said
	}
	steps := func(page SignalWaitPage) (all []string) {
		for _, w := range page.Waits {
			all = append(all, w.Order+"/"+w.Step)
		}
		return all
	}
	all := []string{"b-1/paid", "b-2/paid", "a-1/papers", "a-1/vote", "b-3/paid"}
	s.until(func() bool {
		page, _ := list("root", "")
		return slices.Equal(steps(page), all)
	})
	bill := []string{"b-1/paid", "b-2/paid", "b-3/paid"}
	for _, c := range []struct {
		who, query string
		want       []string
	}{
		{"root", "", all},
		{"view", "", all},
		{"read", "", all},
		{"half", "", bill},
		{"part", "", bill},
		{"view", "?signal=payment", bill},
		{"view", "?signal=deposit", nil},
		{"view", "?signal=documents", all[2:3]},
		{"view", "?signal=vote&workflow=deal", all[3:4]},
		{"view", "?workflow=bill", bill},
		{"view", "?workflow=nothing", nil},
		{"half", "?workflow=deal", nil},
		{"half", "?signal=vote", nil},
	} {
		for _, limit := range []int{1, 2, 100} {
			var got []string
			for after := ""; ; {
				page, _ := list(c.who, strings.Replace("?"+c.query, "??", "?", 1)+fmt.Sprintf("&limit=%d&after=%s", limit, after))
				got = append(got, steps(page)...)
				if n := len(page.Waits); n > 0 && slices.IndexFunc(page.Waits, func(w SignalWait) bool { return w.Order == page.Waits[n-1].Order }) >= limit {
					t.Errorf("%s%s: a page of %d goes on behind the order that fills it: %q", c.who, c.query, limit, steps(page))
				}
				if after = page.Next; after == "" {
					break
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%s%s, %d at a time: %q, and not %q", c.who, c.query, limit, got, c.want)
			}
		}
	}

	log.Reset()
	page, said := list("view", "")
	if strings.Contains(said, "canary") || strings.Contains(log.String(), "payloads were read") {
		t.Errorf("a viewer sees %s, %s", said, log.String())
	}
	first, papers, vote, paused := page.Waits[0], page.Waits[2], page.Waits[3], page.Waits[4]
	if first.Since == nil || first.Until == nil || first.Until.Sub(first.Since.Time).Hours() != 24 || first.Masked || first.Keyed || first.How != "one" || first.Left != 1 || first.Version != 1 || first.ProcessState != projections.Pending {
		t.Errorf("it waits as %+v", first)
	}
	if papers.Since != nil || papers.UpdatedAt == nil || papers.Until != nil || papers.How != "all" || !slices.Equal(papers.Signals, []string{"documents"}) || papers.Masked {
		t.Errorf("it waits as %+v", papers)
	}
	if !vote.Keyed || vote.Key != nil || !vote.Masked || vote.Left != 3 {
		t.Errorf("it waits as %+v", vote)
	}
	if !paused.Paused || paused.Until != nil || paused.Since != nil {
		t.Errorf("it waits as %+v", paused)
	}
	log.Reset()
	if page, _ := list("read", "?signal=vote"); *page.Waits[0].Key != "canary" || page.Waits[0].Masked || !strings.Contains(log.String(), "payloads were read") || !strings.Contains(log.String(), "list-signal-waits") {
		t.Errorf("who may read sees %+v, and the log has %s", page.Waits, log.String())
	}
	own := *s
	own.token = keys["none"]
	if status, _, said := own.ask(request{path: "/api/v1/signals/waiting"}); status != http.StatusForbidden {
		t.Errorf("a submitter: %d %s", status, said)
	}
	for query, want := range map[string]string{"?signal=": "query.signal", "?workflow=": "query.workflow", "?limit=0": "query.limit", "?limit=1001": "query.limit", "?signal=a&signal=b": "signal"} {
		own.token = keys["view"]
		if status, _, said := own.ask(request{path: "/api/v1/signals/waiting" + query}); status != http.StatusUnprocessableEntity || !strings.Contains(said, want) {
			t.Errorf("%s: %d %s", query, status, said)
		}
	}
}
