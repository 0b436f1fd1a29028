package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
)

// P3: a submission that nobody could read is found among the dead letters, corrected, and accepted once,
// however often it is put back, and whoever owns its partition.
func TestADeadLetterIsCorrected(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		w.serveFulfilment()
		i := w.Run("i-1", t.TempDir())
		w.Register(i, fulfilment)
		w.Produce(&kgo.Record{Topic: w.Topics.Orders, Key: []byte("o-1"), Value: []byte(`{"workflow":"fulfilment","input":{"total":7}`), Headers: []kgo.RecordHeader{{Key: "mine", Value: []byte("kept")}}})
		client := w.client(t, i)
		var found []api.DeadLetter
		w.until("it is put aside", func() error {
			page, err := client.DeadLetters(t.Context(), api.LetterFilter{Order: "o-1", Topic: "orders"}, 10, "")
			if found = page.DeadLetters; err == nil && len(found) != 1 {
				err = fmt.Errorf("there are %d", len(found))
			}
			return err
		})
		d, err := client.DeadLetter(t.Context(), found[0].Partition, found[0].Offset)
		if err != nil || *d.Value.Text != `{"workflow":"fulfilment","input":{"total":7}` {
			t.Fatalf("%+v, %v", d, err)
		}
		if _, err := client.Replay(t.Context(), d.Partition, d.Offset, nil); err == nil || !strings.Contains(err.Error(), "it would be put aside again") {
			t.Fatalf("as it came it is put back: %v", err)
		}
		value := []byte(*d.Value.Text + "}")
		for range 2 {
			if _, err := client.Replay(t.Context(), d.Partition, d.Offset, value); err != nil {
				t.Fatal(err)
			}
		}
		w.order(i, "o-1", in(projections.Processed))
		i.Stop()
		i = w.Run("i-2", t.TempDir())
		if _, err := w.client(t, i).Replay(t.Context(), d.Partition, d.Offset, value); err != nil {
			t.Fatal(err)
		}
		behind := "behind" // all that was put back
		for i.Partition(behind) != i.Partition("o-1") {
			behind += "."
		}
		w.Submit(behind, `{"workflow":"fulfilment"}`)
		w.order(i, behind, in(projections.Processed))
		o := w.order(i, "o-1", in(projections.Processed))
		if string(o.Input) != `{"total":7}` {
			t.Errorf("its input is %s", o.Input)
		}
		if got, want := w.types("o-1"), "order.accepted step.started step.completed step.started step.completed step.started step.completed order.completed"; got != want {
			t.Errorf("journal: %s", got)
		}
		from := fmt.Sprintf("%s/%d/%d", w.Topics.DeadLetters, d.Partition, d.Offset)
		back := w.records(w.Topics.Orders, 3, func(r *kgo.Record) bool { return events.Header(r, "waybill_replayed_from") == from })
		for _, r := range back {
			if string(r.Key) != "o-1" || string(r.Value) != string(value) || events.Header(r, "mine") != "kept" || events.Header(r, events.HeaderSource) != "/waybill/"+w.Topics.Namespace+"/api" || len(r.Headers) != 3 {
				t.Errorf("%+v: %s", r.Headers, r.Value)
			}
		}
		if letters := w.read(w.Topics.DeadLetters); len(letters) != 1 {
			t.Errorf("there are %d dead letters", len(letters))
		}
	})
}
