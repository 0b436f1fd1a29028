package world_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/test/world"
)

// complaints keep what a test says is wrong.
type complaints struct {
	testing.TB
	said []string
}

func (e *complaints) Errorf(format string, args ...any) {
	e.said = append(e.said, fmt.Sprintf(format, args...))
}

// outside is somebody who is not Waybill, and plays Waybill too.
func outside(t testing.TB) *world.Outsider {
	t.Helper()
	broker := kfake.MustCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "shop.requests.bank", "shop.replies"))
	t.Cleanup(broker.Close)
	return world.NewOutsider(t, broker.ListenAddrs(), "shop")
}

// ask asks the bank for the first attempt of a step.
func ask(w *world.Outsider, order, step string, undo bool, within time.Duration) {
	w.Produce(&kgo.Record{
		Topic: w.Topic("requests.bank"), Key: []byte(order),
		Value: fmt.Appendf(nil, `{"order":%q,"step":%q,"attempt":1,"undo":%t,"completeBy":%q,"replyTo":%q}`, order, step, undo, time.Now().Add(within).Format(time.RFC3339Nano), w.Topic("replies")),
	})
}

// An agent by hand in a few lines: it is asked, and answers as the test says, in
// whatever order.
func TestHand(t *testing.T) {
	said := &complaints{TB: t}
	w := outside(said)
	bank, replies := w.Hand("bank"), w.Inbox(w.Topic("replies"))
	ask(w, "o-1", "charge", false, time.Hour)
	ask(w, "o-1", "charge", true, time.Hour)
	ask(w, "o-2", "charge", false, time.Hour)
	bank.Does("o-2", "charge", world.Refused)
	bank.Undoes("o-1", "charge", world.Done)
	charge := bank.Asked("o-1", "charge")
	if bank.Waits("o-1", "", false) || bank.Waits("o-1", "", true) {
		t.Errorf("it is asked for more: %s", bank)
	}
	bank.Keep(charge)
	if !bank.Waits("o-1", "charge", false) || bank.Waits("o-1", "charge", true) || bank.Waits("o-1", "ship", false) || bank.Waits("o-2", "", false) {
		t.Errorf("it is asked for: %s", bank)
	}
	bank.Does("o-1", "charge", world.Gave(`{"receipt":7}`))
	for _, want := range []string{
		`{"order":"o-2","step":"charge","attempt":1,"status":"failed","error":{"code":"refused","message":"never","permanent":true}}`,
		`{"order":"o-1","step":"charge","attempt":1,"undo":true,"status":"completed"}`,
		`{"order":"o-1","step":"charge","attempt":1,"status":"completed","output":{"receipt":7}}`,
	} {
		if got := replies.Take(want[len(`{"order":"`):][:3]); string(got.Value) != want {
			t.Errorf("the reply is %s, not %s", got.Value, want)
		}
	}
	bank.Idle("o-1")
	if len(said.said) > 0 {
		t.Errorf("all is as it was told: %q", said.said)
	}
	ask(w, "o-1", "ship", false, time.Hour) // nobody has fetched it yet
	bank.Idle("o-2")
	if bank.Idle("o-1"); len(said.said) != 1 {
		t.Errorf("of the one that is asked for: %q", said.said)
	}
}

// An agent that answers by itself is silent past the complete-by, and where it is
// told to be.
func TestAnswering(t *testing.T) {
	w := outside(t)
	replies := w.Inbox(w.Topic("replies"))
	w.Answering("bank", func(q world.Request) string {
		switch q.Step {
		case "late":
			t.Error("it begins what is too late")
		case "wait":
			return world.Silence
		}
		return world.Done
	})
	ask(w, "o-1", "late", false, 0)
	ask(w, "o-1", "wait", false, time.Hour)
	ask(w, "o-1", "charge", false, time.Hour)
	if got := replies.Take("o-1"); string(got.Value) != `{"order":"o-1","step":"charge","attempt":1,"status":"completed"}` {
		t.Errorf("it answers with %s", got.Value)
	}
}

// A caller hears of its orders on a topic of its own, in turn.
func TestCaller(t *testing.T) {
	said := &complaints{TB: t}
	w := outside(said)
	shop := w.Caller("office")
	tell := func(order, status string) {
		w.Produce(&kgo.Record{Topic: shop.Topic, Key: []byte(order), Value: fmt.Appendf(nil, `{"order":%q,"status":%q}`, order, status)})
	}
	tell("o-1", "received")
	tell("o-2", "received")
	tell("o-1", "completed")
	tell("o-2", "failed")
	shop.Hears("o-2", "received", "failed")
	shop.Hears("o-1", "received")
	if !slices.Equal(w.Callers, []string{"shop-office"}) || len(said.said) > 0 {
		t.Errorf("of the callers %q was said %q", w.Callers, said.said)
	}
	if shop.Hears("o-1", "received"); len(said.said) != 1 {
		t.Errorf("of a word that is not the one: %q", said.said)
	}
}
