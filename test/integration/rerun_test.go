package integration

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/waybill"
)

// T4: an order that has ended is run again while the partitions change their owner, who has lost its
// store: the new order has what the other had, and asked for twice it runs once.
func TestAnOrderIsRunAgain(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		i := w.Run("i-1", t.TempDir())
		w.Register(i, `
workflow: charges
search: [customer]
steps: [{name: charge, agent: payment, timeout: 1h, exhausted: error}]
`)
		agent, caller := w.Hand("payment"), w.Caller("shop")
		w.Submit("o-1", fmt.Sprintf(`{"workflow":"charges","input":{"customer":"c-7"},"labels":{"region":"eu"},"priority":"high","replyTo":%q,"deadline":"2090-01-02T15:04:05Z"}`, caller.Topic))
		agent.Does("o-1", "charge", `"status":"failed","error":{"code":"declined","permanent":true}`)
		w.order(i, "o-1", in(projections.Error))

		client := w.client(t, i)
		ask := func() error {
			_, err := client.Rerun(t.Context(), "o-1", &api.Rerun{ID: "o-2"})
			return err
		}
		if problem, is := errors.AsType[*api.Problem](ask()); !is || problem.Status != http.StatusConflict {
			t.Errorf("in Error it is run again: %v", problem)
		}
		w.Command("o-1", `{"command":"terminate","note":"the card is blocked"}`)
		w.order(i, "o-1", in(projections.Terminated))
		if err := ask(); err != nil {
			t.Fatal(err)
		}
		i.Stop()
		i = w.Run("i-2", t.TempDir())
		client = w.client(t, i)
		if err := ask(); err != nil {
			t.Fatal(err)
		}
		if again := agent.Does("o-2", "charge", done); string(again.Input) != `{"customer":"c-7"}` || again.IdempotencyKey != "o-2/charge" || again.Priority != "high" {
			t.Errorf("%+v", again)
		}
		o := w.order(i, "o-2", in(projections.Processed))
		if o.RerunOf != "o-1" || o.ReplyTo != caller.Topic || !o.Deadline.IsZero() || o.Conflicted || fmt.Sprint(o.Labels) != "map[customer:c-7 region:eu]" {
			t.Errorf("%+v", o)
		}
		agent.Idle("o-2")
	})
}

// client asks an instance over HTTP until the test ends.
func (w *world) client(t *testing.T, i *waybill.Instance) *api.Client {
	t.Helper()
	server := api.New(api.Config{})
	server.Attach(i.Instance)
	listener := httptest.NewServer(server)
	client, err := api.NewClient(listener.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		listener.Close()
		server.Detach(errors.New("over"))
	})
	return client
}
