package integration

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/waybill"
	kit "github.com/waybill-dev/waybill/test/world"
)

// P3: every command, as a plain client writes it, without any header.
func TestCommandsOfAPlainClient(t *testing.T) {
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		i := w.Run("i-1", t.TempDir())
		w.Register(i, `
workflow: purchase
steps:
  - {name: reserve, agent: any, undo: release, timeout: 1h}
  - {name: charge, agent: any, undo: refund, timeout: 1h}
  - {name: ship, agent: any, timeout: 1h}
`)
		agent := w.Hand("any")

		// pause, resume: what runs may finish, and nothing new starts.
		w.Submit("o-1", `{"workflow":"purchase"}`)
		first := agent.Asked("o-1", "reserve")
		w.Command("o-1", `{"command":"pause","id":"c-1","by":"kim","note":"stock-taking"}`)
		w.order(i, "o-1", func(o *projections.Order) bool { return o.Paused })
		agent.Answer(first, done)
		o := w.order(i, "o-1", func(o *projections.Order) bool { return o.Steps[0].State == projections.Completed })
		if o.Step("charge").Attempt != 0 || line(o) != "OrderID=o-1 LockedBy=null CompleteBy=null ProcessState=Pending FailureCount=0" {
			t.Errorf("the paused order is %s, %+v", line(o), o.Steps)
		}
		w.Command("o-1", `{"command":"resume","id":"c-2","by":"kim"}`)

		// resubmit, with another input, and the key of before.
		agent.Does("o-1", "charge", refused)
		w.order(i, "o-1", in(projections.Error))
		w.Command("o-1", `{"command":"resubmit","id":"c-3","step":"charge","input":{"card":"c-2"},"sameKey":true}`)
		again := agent.Does("o-1", "charge", refused)
		if again.IdempotencyKey != "o-1/charge" || string(again.Input) != `{"card":"c-2"}` || again.Attempt != 2 {
			t.Errorf("resubmitted with %+v", again)
		}

		// skip-step: later steps go on as if it were done.
		w.order(i, "o-1", func(o *projections.Order) bool { return o.State == projections.Error && o.Steps[1].Attempt == 2 })
		w.Command("o-1", `{"command":"skip-step","id":"c-4","step":"charge","output":"in cash","by":"kim"}`)
		ship := agent.Asked("o-1", "ship")

		// cancel: what still runs is waited for, then what ran is undone. Twice is
		// refused, and so is what nobody knows.
		w.Command("o-1", `{"command":"cancel","id":"c-5","by":"kim"}`)
		w.Command("o-1", `{"command":"cancel","id":"c-6","by":"lee"}`)
		w.Command("o-1", `{"command":"explode","id":"c-7"}`)
		w.until("the last command", func() error { return w.told(i, "o-1", "c-7") })
		agent.Answer(ship, kit.Failed("too-late"))
		agent.Undoes("o-1", "reserve", done)
		w.order(i, "o-1", in(projections.Cancelled))
		w.Command("o-1", `{"command":"pause","id":"c-8"}`)
		w.until("the command after the end", func() error { return w.told(i, "o-1", "c-8") })

		var acts []string
		books := w.Audit()
		for _, e := range books.Histories["o-1"] {
			if e.Command != "" {
				acts = append(acts, e.Command+" "+strings.TrimPrefix(string(e.Type), "waybill."))
			}
		}
		want := "c-1 order.paused, c-2 order.resumed, c-3 order.resubmitted, c-4 step.skipped, " +
			"c-5 order.compensating, c-6 command.refused, c-7 command.refused, c-8 command.refused"
		if got := strings.Join(acts, ", "); got != want {
			t.Errorf("the operators' acts are %s, not %s", got, want)
		}
		if got := books.Statuses("o-1"); got != "received failed failed compensating cancelled" {
			t.Errorf("the caller heard %s", got)
		}
	})
}

// told says whether a command is the last that an order knows.
func (w *world) told(r *waybill.Instance, id, command string) error {
	w.Helper()
	o, _, err := r.Store().Order(r.Partition(id), id)
	if err == nil && o.Command != command {
		err = errNotYet
	}
	return err
}

// P3: commands in the wrong partition are forwarded, and acted on once; one that
// is sent twice acts once; what nobody can read, or act on, is put aside byte for
// byte.
func TestCommandsThatGoAstray(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		i := w.Run("i-1", t.TempDir())
		w.Register(i, "workflow: manual\nsteps: [{name: only, agent: nobody, timeout: 1h}]")
		anywhere := b.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
		const n = 20
		id := func(k int) string { return fmt.Sprintf("o-%d", k) }
		for k := range n {
			w.Submit(id(k), `{"workflow":"manual"}`)
		}
		misrouted := 0
		for k := range n {
			w.order(i, id(k), in(projections.Processing))
			r := &kgo.Record{Topic: w.Topics.Commands, Partition: int32(k % partitions), Key: []byte(id(k)), Value: []byte(`{"command":"pause","id":"c-1"}`)}
			if i.Partition(id(k)) != r.Partition {
				misrouted++
			}
			twice := *r
			if err := anywhere.ProduceSync(t.Context(), r, &twice).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		bad := map[string]struct{ value, reason string }{
			"nobody":   {`{"command":"cancel"}`, "no order of this id"},
			id(0):      {`cancel`, "not a JSON object"},
			id(1):      {`{"command":7}`, "/command"},
			"\xff\xfe": {`{"command":"cancel"}`, "not UTF-8"},
			"":         {`{"command":"cancel"}`, "order id is empty"},
		}
		for key, x := range bad {
			w.Command(key, x.value)
		}
		for _, r := range w.records(w.Topics.DeadLetters, len(bad), func(*kgo.Record) bool { return true }) {
			x := bad[string(r.Key)]
			if reason := events.Header(r, "waybill_reason"); string(r.Value) != x.value || !strings.Contains(reason, x.reason) {
				t.Errorf("key %q: %s is put aside because %q, not because %q", r.Key, r.Value, reason, x.reason)
			}
		}
		for k := range n {
			w.until("the command", func() error { return w.told(i, id(k), "c-1") })
			w.Command(id(k), `{"command":"resume","id":"c-2"}`)
		}
		for k := range n {
			w.until("the command", func() error { return w.told(i, id(k), "c-2") })
		}
		forwarded := 0
		for _, r := range w.read(w.Topics.Commands) {
			if events.Header(r, "waybill_forwarded_from") != "" {
				forwarded++
			}
		}
		if forwarded != 2*misrouted || misrouted == 0 {
			t.Errorf("%d forwarded of %d misrouted", forwarded, 2*misrouted)
		}
		books := w.Audit()
		for k := range n {
			if got := w.types(id(k)); got != "order.accepted step.started order.paused order.resumed" {
				t.Errorf("journal: %s", got)
			}
			if books.Commands(id(k), "c-1") != 1 {
				t.Errorf("order %s: c-1 %d times", id(k), books.Commands(id(k), "c-1"))
			}
		}
	})
}

// P3, V6, S6: while commands and replies race for an order, and its partition
// changes hands, in good order and without a word, every command is acted on
// once, and none is lost.
func TestCommandsRaceWithRepliesAndTakeovers(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		wire := &cable{}
		one := w.Run("i-1", t.TempDir(), through(wire), briefly)
		t.Cleanup(wire.plug)
		w.Register(one, undoable)
		begin := make(chan struct{})
		release := sync.OnceFunc(func() { close(begin) })
		w.Answering("any", func(r kit.Request) string {
			<-begin
			if r.Step == "ship" && r.Attempt == 1 {
				return refused
			}
			return done
		})
		t.Cleanup(release) // before the agent is waited for
		const n = 90
		id := func(k int) string { return fmt.Sprintf("o-%d", k) }
		send := func(k int, command string) {
			c := fmt.Sprintf(`{"command":%q,"id":"%s-%s"}`, command, id(k), command)
			w.Command(id(k), c)
			w.Command(id(k), c) // sent again at once, it acts once
		}
		commands := []string{"pause", "resume", "cancel", "resubmit"}
		for k := range n {
			w.Submit(id(k), `{"workflow":"undoable"}`)
		}
		for k := range n { // an order that is not there yet takes no command
			w.order(one, id(k), func(*projections.Order) bool { return true })
		}
		release() // the agent
		var two *waybill.Instance
		for k := range n {
			for _, command := range commands {
				send(k, command)
			}
			switch k {
			case n / 4:
				two = w.Run("i-2", t.TempDir(), briefly) // takes some over, in good order
			case n / 2:
				w.share(one, two)
				wire.pull() // and now all others, from one that is gone
			case 3 * n / 4:
				wire.plug() // and gives some back
			}
		}
		w.until("all partitions have an owner, and it serves them", func() error {
			if have := one.Owned() + two.Owned(); have != partitions {
				return fmt.Errorf("%d have", have)
			}
			return two.Ready()
		})
		for k := range n {
			w.order(two, id(k), func(o *projections.Order) bool { return o.State.Final() && o.Command == id(k)+"-resubmit" })
		}
		books := w.Audit()
		for k := range n {
			for _, command := range commands {
				if got := books.Commands(id(k), id(k)+"-"+command); got != 1 {
					t.Errorf("order %s: %s was acted on %d times: %s", id(k), command, got, w.types(id(k)))
				}
			}
		}
		t.Log(books)
	})
}

// P3, S6: how old a record is, by its own timestamp, matters to nobody on its way
// to the right partition or among the dead letters: it may have waited there for
// long, or have come with any time that its client liked.
func TestOldRecordsGoTheirWay(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		i := w.Run("i-1", t.TempDir())
		w.Register(i, "workflow: manual\nsteps: [{name: only, agent: nobody, timeout: 1h}]")
		anywhere := b.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
		const n = 15
		id := func(k int) string { return fmt.Sprintf("o-%d", k) }
		put := func(topic, value string) {
			var records []*kgo.Record
			for k := range n {
				records = append(records, &kgo.Record{
					Topic: topic, Partition: int32(k % partitions), Key: []byte(id(k)), Value: []byte(value),
					Timestamp: time.Now().Add(-24 * time.Hour),
				})
			}
			// One by one: each is a transaction that follows close upon another.
			for _, r := range records {
				if err := anywhere.ProduceSync(t.Context(), r).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
		}
		put(w.Topics.Orders, `{"workflow":"manual"}`)
		for k := range n {
			w.order(i, id(k), in(projections.Processing))
		}
		put(w.Topics.Commands, "garbage")
		put(w.Topics.Commands, `{"command":"pause","id":"c-1"}`)
		for k := range n {
			w.until("the command", func() error { return w.told(i, id(k), "c-1") })
		}
		w.records(w.Topics.DeadLetters, n, func(*kgo.Record) bool { return true })
	})
}
