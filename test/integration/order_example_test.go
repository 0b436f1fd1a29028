package integration

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
	kit "github.com/waybill-dev/waybill/test/world"
)

// The order example of the pattern, line by line (S1, S2, S3, V2 to V5, T3 to T5,
// A3, A5, P2, P3), with plain Kafka clients as the application, the agent and
// the operator.
func TestOrderExample(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		dir := t.TempDir()
		// The supervisor of this instance sleeps, so that a complete-by can be
		// seen to have passed.
		i := w.Run("i-1", dir, supervising(24*time.Hour))
		w.Register(i, "workflow: order\nversion: 1\nsteps: [{name: process, agent: remote, timeout: 1h}]")
		w.Register(i, "workflow: order\nversion: 2\nsteps: [{name: process, agent: remote, timeout: 50ms, retry: {attempts: 2, backoff: 10ms}}]")
		remote, caller, alerts := w.Hand("remote"), w.Caller("shop"), w.Inbox(w.Topics.Alerts)
		post := func(id, version string) {
			w.Submit(id, `{"workflow":"order","version":`+version+`,"input":{"book":"moby"},"replyTo":"`+caller.Topic+`"}`)
		}
		wants := func(o *projections.Order, want string) {
			t.Helper()
			if got := line(o); got != want {
				t.Errorf("the record is\n %s, not\n %s", got, want)
			}
		}

		// 1. The application posts an order message; the order details and a
		// Pending record are stored atomically (T4): it is one record of the
		// journal.
		post("o-1", "1")
		o := w.recordAfter("o-1", 1)
		wants(o, "OrderID=o-1 LockedBy=null CompleteBy=null ProcessState=Pending FailureCount=0")
		if string(o.Input) != `{"book":"moby"}` {
			t.Errorf("the details are %s", o.Input)
		}

		// 2. A scheduler takes a Pending record with LockedBy null: sets LockedBy,
		// CompleteBy, Processing, exclusively (T5). 3. The workflow sends the
		// request to the agent (S3), and waits for the reply until CompleteBy.
		asked := remote.Asked("o-1", "process")
		taken := "OrderID=o-1 LockedBy=i-1 CompleteBy=" + stamp(asked.CompleteBy) + " ProcessState=Processing FailureCount=0"
		wants(w.recordAfter("o-1", 2), taken)
		w.is(i, "o-1", taken)
		if asked.Attempt != 1 || asked.Operation != "process" || asked.IdempotencyKey != "o-1/process" || string(asked.Input) != `{"book":"moby"}` || asked.ReplyTo != w.Topics.Replies {
			t.Errorf("the request is %+v", asked)
		}

		// 4. A valid reply in time: Processed.
		remote.Answer(asked, kit.Gave(`{"receipt":7}`))
		w.is(i, "o-1", "OrderID=o-1 LockedBy=null CompleteBy=null ProcessState=Processed FailureCount=0")

		// 5. No reply in time: the record stays Processing with an expired
		// CompleteBy.
		post("o-2", "2")
		asked = remote.Asked("o-2", "process")
		w.until("the complete-by has passed", func() error { return passed(asked.CompleteBy) })
		w.is(i, "o-2", "OrderID=o-2 LockedBy=i-1 CompleteBy="+stamp(asked.CompleteBy)+" ProcessState=Processing FailureCount=0")
		// The supervisor adds one to FailureCount and, below the threshold, sets
		// LockedBy null, a new CompleteBy and Pending (V3, V4).
		i.Stop()
		i = w.Run("i-2", dir)
		// What the caller is owed that its topic did not take at once is tried again when a supervisor looks.
		caller.Hears("o-1", "received", "completed")
		o = w.recordAfter("o-2", 4)
		due := o.CompleteBy(o.UpdatedAt)
		wants(o, "OrderID=o-2 LockedBy=null CompleteBy="+stamp(due)+" ProcessState=Pending FailureCount=1")
		if !due.After(asked.CompleteBy) {
			t.Errorf("the new complete-by %s is not after the old one, %s", due, asked.CompleteBy)
		}
		// The scheduler runs it again, under the same key (A3).
		again := remote.Asked("o-2", "process")
		wants(w.recordAfter("o-2", 5), "OrderID=o-2 LockedBy=i-2 CompleteBy="+stamp(again.CompleteBy)+" ProcessState=Processing FailureCount=1")
		if again.Attempt != 2 || again.IdempotencyKey != asked.IdempotencyKey {
			t.Errorf("asked again: %+v", again)
		}
		// At the threshold, Error and an alert (P2).
		w.is(i, "o-2", "OrderID=o-2 LockedBy=null CompleteBy=null ProcessState=Error FailureCount=2")
		caller.Hears("o-2", "received", "failed")
		if a := alerts.Take("o-2"); !strings.Contains(string(a.Value), `"code":"expired"`) {
			t.Errorf("the alert is %s", a.Value)
		}

		// 6. A nontransient error from the agent: Error and an alert at once (A5,
		// P2); the operator repairs and resubmits (P3).
		post("o-3", "1")
		asked = remote.Does("o-3", "process", refused)
		w.is(i, "o-3", "OrderID=o-3 LockedBy=null CompleteBy=null ProcessState=Error FailureCount=1")
		caller.Hears("o-3", "received", "failed")
		var alert struct {
			Order  string `json:"order"`
			Step   string `json:"step"`
			Errors []struct {
				Code      string `json:"code"`
				Permanent bool   `json:"permanent"`
			} `json:"errors"`
		}
		if err := json.Unmarshal(alerts.Take("o-3").Value, &alert); err != nil {
			t.Fatal(err)
		}
		if alert.Order != "o-3" || alert.Step != "process" || len(alert.Errors) != 1 || alert.Errors[0].Code != "refused" || !alert.Errors[0].Permanent {
			t.Errorf("the alert is %+v", alert)
		}
		w.Command("o-3", `{"command":"resubmit","by":"kim","note":"the book is in the catalogue now"}`)
		again = remote.Asked("o-3", "process")
		if again.Attempt != 2 || again.IdempotencyKey == asked.IdempotencyKey {
			t.Errorf("asked again: %+v", again)
		}
		w.is(i, "o-3", "OrderID=o-3 LockedBy=i-2 CompleteBy="+stamp(again.CompleteBy)+" ProcessState=Processing FailureCount=1")
		remote.Answer(again, done)
		w.is(i, "o-3", "OrderID=o-3 LockedBy=null CompleteBy=null ProcessState=Processed FailureCount=1")
		caller.Hears("o-3", "completed")
	})
}

func passed(at time.Time) error {
	if left := time.Until(at); left > 0 {
		return errNotYet
	}
	return nil
}
