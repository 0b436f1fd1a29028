//go:build unix

package process

import (
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/test/kafka"
)

// pager is told of alerts, from so many of them on waits until it may answer.
type pager struct {
	*httptest.Server
	hold chan struct{} // closed once it may
	mu   sync.Mutex
	from int
	ids  map[string][]string // by order
	told int
}

func newPager(t *testing.T, from int) *pager {
	t.Helper()
	p := &pager{hold: make(chan struct{}), from: from, ids: make(map[string][]string)}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			Data struct{ Order, Workflow, Reason string }
		}
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(body, &m, json.MatchCaseInsensitiveNames(true))
		}
		if err != nil || m.Data.Workflow != "stuck" || m.Data.Reason != "error" {
			http.Error(w, fmt.Sprint(err, m), http.StatusBadRequest)
			return
		}
		p.mu.Lock()
		p.told++
		waits := p.told > p.from
		if id := r.Header.Get("Webhook-Id"); !slices.Contains(p.ids[m.Data.Order], id) {
			p.ids[m.Data.Order] = append(p.ids[m.Data.Order], id)
		}
		p.mu.Unlock()
		if waits {
			select {
			case <-p.hold:
			case <-r.Context().Done():
			}
		}
	}))
	t.Cleanup(func() {
		p.CloseClientConnections()
		p.Close()
	})
	return p
}

func (p *pager) knows() map[string][]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.ids)
}

// A thousand alerts come at once, and an instance is killed while it tells of them, and another: each is told, what is told again has
// the id that it had, and orders wait for none of it.
func TestNoAlertIsLostToAKill(t *testing.T) {
	const orders = 1000
	c, pager := newCluster(t, kafka.Embedded(t)), newPager(t, 300)
	c.createTopicsOf(2)
	file := filepath.Join(t.TempDir(), "webhooks.yaml")
	t.Setenv("PAGER_SECRET", "whsec_"+base64.StdEncoding.EncodeToString(make([]byte, 32)))
	if err := os.WriteFile(file, []byte("webhooks:\n  pager: {url: '"+pager.URL+"', secret: '${PAGER_SECRET}', timeout: 1m}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	one, two := c.two("--webhooks", file)
	workflow := filepath.Join(t.TempDir(), "workflow.yaml")
	if err := os.WriteFile(workflow, []byte("workflow: stuck\nversion: 1\nsteps:\n  - {name: nap, sleep: {for: input.hours}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	waybill(t, "workflow", "register", workflow, "--server", one.http)
	one.owned(one, two)
	one.until("alerts are owed", func() error {
		offsets, err := c.broker.Admin(t).FetchOffsets(t.Context(), c.topics.Namespace+".webhooks.pager")
		if err == nil && len(offsets[c.topics.Alerts]) < 2 {
			err = fmt.Errorf("%v", offsets)
		}
		return err
	})
	records := make([]*kgo.Record, orders)
	for n := range records {
		records[n] = &kgo.Record{Topic: c.topics.Orders, Key: fmt.Append(nil, "o-", n), Value: []byte(`{"workflow":"stuck","input":{"hours":1}}`)}
	}
	if err := c.broker.Client(t).ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	one.until("all orders are in Error, though the pager stands still", func() error {
		page, err := one.client.Alerts(t.Context(), orders, "")
		if err == nil && len(page.Alerts) < orders {
			err = fmt.Errorf("%d are", len(page.Alerts))
		}
		return err
	})
	one.until("the pager stands still", func() error {
		if n := len(pager.knows()); n < 300 {
			return fmt.Errorf("it was told of %d", n)
		}
		return nil
	})
	one.kill()
	two.kill()
	if n := len(pager.knows()); n >= orders {
		t.Errorf("it was told of %d already", n)
	}
	close(pager.hold)
	one.again()
	two.again()
	one.until("the pager was told of all", func() error {
		if n := len(pager.knows()); n < orders {
			return fmt.Errorf("it was told of %d", n)
		}
		return nil
	})
	all := make(map[string]bool)
	for order, ids := range pager.knows() {
		if len(ids) != 1 || all[ids[0]] || !strings.HasPrefix(ids[0], "msg_") {
			t.Errorf("%s was told under %q", order, ids)
		}
		all[ids[0]] = true
	}
}
