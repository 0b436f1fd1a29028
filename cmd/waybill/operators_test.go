package main

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/oracle"
)

// P2, P3: what an operator does about orders in Error, and what he sees of it.
func TestOperator(t *testing.T) {
	clearEnvironment(t)
	server, _, _ := startDev(t, t.TempDir(), "--partitions", "2")
	t.Setenv("WAYBILL_SERVER", server)
	declined := func(t *testing.T, id string) {
		t.Helper()
		waybill(t, "", "submit", "order-fulfilment", "--id", id, "--input", `{"card":"declined"}`, "--wait").want(t, exitEnded, "Error", "card-declined")
	}
	eventually := func(t *testing.T, id, state string) {
		t.Helper()
		for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) {
			var o api.Order
			c := waybill(t, "", "order", "get", id, "-o", "json")
			if err := json.Unmarshal([]byte(c.out), &o); err != nil && c.code == 0 {
				t.Fatal(err)
			}
			if string(o.ProcessState) == state {
				return
			}
			if time.Since(begin) > oracle.Patience {
				t.Fatalf("order %s is %s, and not %s", id, o.ProcessState, state)
			}
		}
	}

	t.Run("resubmit", func(t *testing.T) {
		declined(t, "o-1")
		c := waybill(t, "", "alerts")
		c.want(t, 0, "error: charge, attempt 1: card-declined", "")
		c.want(t, 0, "to do: ", "")
		waybill(t, "", "order", "resubmit", "o-1", "--step", "none").want(t, 4, "", `order o-1 was not resubmitted: the order has no step "none"`)
		waybill(t, "", "order", "resubmit", "o-1", "--step", "charge", "--input", `{"total":7}`, "--by", "ann@ops", "--note", "another card").want(t, 0, "charge", "")
		eventually(t, "o-1", "Processed")
		c = waybill(t, "", "order", "history", "o-1")
		c.want(t, 0, `by ann@ops, as the sender claims; another card; input {"total":7}`, "")
		waybill(t, "", "order", "get", "o-1").want(t, 0, `its own input {"total":7}`, "")
		waybill(t, "", "order", "resubmit", "o-1").want(t, 4, "", "Processed")
		waybill(t, "", "order", "cancel", "o-1").want(t, 4, "", "order o-1 was not cancelled: ")
		waybill(t, "", "order", "resubmit", "none").want(t, 3, "", `there is no order "none"`)
		waybill(t, "", "order", "history", "o-1").want(t, 0, "command.refused", "")
	})
	t.Run("cancel", func(t *testing.T) {
		declined(t, "o-2")
		waybill(t, "", "order", "cancel", "o-2", "--note", "the customer left", "-o", "json").want(t, 0, `"toward": "Cancelled"`, "")
		eventually(t, "o-2", "Cancelled")
		waybill(t, "", "order", "get", "o-2").want(t, 0, "undone", "")
		c := waybill(t, "", "order", "history", "o-2")
		c.want(t, 0, "toward Cancelled", "")
		c.want(t, 0, "undone: reserve", "")
		c.want(t, 0, "undo.started", "")
	})
	t.Run("terminate", func(t *testing.T) {
		declined(t, "o-t")
		waybill(t, "", "order", "terminate", "o-t", "--note", "enough").want(t, 0, "Terminated", "")
		c := waybill(t, "", "order", "history", "o-t")
		c.want(t, 0, "undone: -; not undone: reserve; by ", "")
		waybill(t, "", "order", "list", "--state", "Terminated").want(t, 0, "o-t", "")
	})
	t.Run("migrate", func(t *testing.T) {
		for version, steps := range []string{"", "{name: a, agent: nobody, timeout: 1h}, {name: b, agent: nobody}", "{name: first, agent: nobody, do: a, timeout: 1h}, {name: c, agent: nobody}"} {
			if version > 0 {
				waybill(t, "", "workflow", "register", write(t, "m.yaml", fmt.Sprintf("workflow: m\nversion: %d\nsteps: [%s]\n", version, steps))).want(t, 0, "m@", "")
			}
		}
		for _, id := range []string{"m-1", "m-2", "m-3"} {
			waybill(t, "", "submit", "m", "--version", "1", "--id", id).want(t, 0, id, "")
			eventually(t, id, "Processing")
		}
		c := waybill(t, "", "order", "migrate", "m-1", "--to", "2", "--dry-run")
		c.want(t, 1, "forbidden: it has begun (it is running), and version 2 has no step of that name", "what forbids it is listed")
		c.want(t, 1, "0 of 1 orders can migrate", "")
		waybill(t, "", "order", "migrate", "m-1", "--to", "2").want(t, 4, "", "order m-1 was not migrated: step a: it has begun")
		c = waybill(t, "", "order", "migrate", "m-1", "m-2", "--to", "2", "--map", "a=first", "--dry-run")
		c.want(t, 0, "2 of 2 orders can migrate to version 2", "")
		c.want(t, 0, "m-2    1     first  is what a is called", "")
		c.want(t, 0, "m-2    1     c      new", "")
		c.want(t, 0, "m-2    1     b      dropped", "")
		c = waybill(t, "", "order", "migrate", "--workflow", "m", "--to", "2", "--map", "a=first", "--dry-run", "-o", "json")
		c.want(t, 0, `"canMigrate": 3`, "")
		waybill(t, "", "order", "get", "m-1").want(t, 0, "m@1", "") // nothing has happened
		waybill(t, "", "order", "migrate", "m-1", "--to", "2", "--map", "a=first", "--note", "better", "--by", "ann").want(t, 0, "m@2", "")
		waybill(t, "", "order", "history", "m-1").want(t, 0, "from version 1 to 2; a is called first; by ann, as the sender claims; better", "")
		c = waybill(t, "", "order", "migrate", "--workflow", "m", "--to", "2", "--map", "a=first", "--yes")
		c.want(t, 1, "the order is of version 2 already", "1 of 3 orders could not be migrated")
		c.want(t, 1, "Done       2", "")
		waybill(t, "", "workflow", "versions", "m").want(t, 0, "", "")

		declined(t, "o-v")
		waybill(t, "", "order", "resubmit", "o-v", "--to-version", "9").want(t, 4, "", "as one of version 9: workflow order-fulfilment@9 is not registered")
		waybill(t, "", "order", "cancel", "o-v").want(t, 0, "", "")
		waybill(t, "", "order", "migrate", "--workflow", "m").want(t, 2, "", "--to")
		waybill(t, "", "order", "migrate", "m-1", "--to", "0").want(t, 2, "", "versions begin with 1")
		waybill(t, "", "order", "migrate", "m-1", "--to", "2", "--map", "a").want(t, 2, "", "write OLD=NEW")
		waybill(t, "", "order", "resubmit", "m-1", "--map", "a=b").want(t, 2, "", "--to-version")
		waybill(t, "", "order", "migrate", "m-1", "--to", "2", "--state", "Error").want(t, 2, "", "chooses among many orders")
	})
	t.Run("skip-step", func(t *testing.T) {
		declined(t, "o-3")
		waybill(t, "", "order", "skip-step", "o-3", "--step", "charge", "--step-output", `{"payment":"cash"}`).want(t, 0, "skipped", "")
		eventually(t, "o-3", "Processed")
	})
	t.Run("pause and resume", func(t *testing.T) {
		waybill(t, "", "workflow", "register", write(t, "w.yaml", "workflow: w\nsteps:\n- {name: a, agent: nobody, timeout: 1h}\n")).want(t, 0, "w@1", "")
		waybill(t, "", "submit", "w", "--id", "o-4").want(t, 0, "o-4", "")
		eventually(t, "o-4", "Processing")
		waybill(t, "", "order", "pause", "o-4").want(t, 0, "Processing, paused", "")
		waybill(t, "", "order", "list", "--workflow", "w").want(t, 0, "paused", "")
		waybill(t, "", "order", "resume", "--workflow", "w", "--yes").want(t, 0, "Done       1", "")
		waybill(t, "", "order", "resume", "o-4").want(t, 4, "", "not paused")
	})
	t.Run("a thousand", func(t *testing.T) {
		const orders = 1000
		client, err := api.NewClient(server)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		var submitting sync.WaitGroup
		for worker := range 16 {
			submitting.Go(func() {
				for n := worker; n < orders; n += 16 {
					s := &api.Submission{ID: fmt.Sprintf("many-%d", n), Workflow: "order-fulfilment", Input: []byte(`{"card":"declined"}`)}
					if _, err := client.Submit(t.Context(), s); err != nil {
						t.Error(err)
					}
				}
			})
		}
		submitting.Wait()
		count := func(state projections.State) int {
			all, _, err := collect(0, func(n int, after string) ([]api.Summary, string, error) {
				page, err := client.Orders(t.Context(), api.Filter{State: string(state), Workflow: "order-fulfilment"}, n, after)
				return page.Orders, page.Next, err
			})
			if err != nil {
				t.Fatal(err)
			}
			return len(all)
		}
		wait := func(state projections.State, want int) {
			t.Helper()
			begin := time.Now()
			for count(state) != want {
				if time.Since(begin) > oracle.Patience {
					t.Fatalf("%d orders are %s, and not %d", count(state), state, want)
				}
				time.Sleep(200 * time.Millisecond) // counting costs more than what is waited for
			}
		}
		processed := count(projections.Processed)
		wait(projections.Error, orders)
		waybill(t, "", "order", "resubmit", "--workflow", "order-fulfilment", "--step", "ship", "--dry-run").want(t, 0, "0 orders would be resubmitted", "")
		waybill(t, "", "order", "resubmit", "--workflow", "order-fulfilment", "--step", "charge", "--dry-run", "-o", "json").want(t, 0, `"matched": 1000`, "")

		c := waybill(t, "", "order", "resubmit", "--workflow", "order-fulfilment", "--step", "charge", "--input", `{"total":7}`, "--rate", "0", "--yes", "-o", "json")
		c.want(t, 0, "", "")
		if r := readResult(t, c); r.Matched != orders || len(r.Done) != orders {
			t.Errorf("%d matched, %d done, %d failed", r.Matched, len(r.Done), len(r.Failed))
		}
		wait(projections.Processed, processed+orders)
		waybill(t, "", "order", "resubmit", "--workflow", "order-fulfilment").want(t, 0, "Matched    0", "")

		// Nothing can be done about any of them now, and each is told.
		c = waybill(t, "", "order", "cancel", "--state", "Processed", "--rate", "0", "--yes", "-o", "json")
		c.want(t, 1, "", "orders could not be cancelled")
		if r := readResult(t, c); len(r.Done) != 0 || len(r.Failed) != processed+orders || r.Failed[0].Reason != "the order has ended: it is Processed" {
			t.Errorf("%d done, %d failed", len(r.Done), len(r.Failed))
		}
	})
}
