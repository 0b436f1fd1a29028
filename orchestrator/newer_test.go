package orchestrator

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/oracle"
)

// A submission of a workflow that this release cannot run is not rejected, and holds up no
// other; an operator is called, once.
func TestAWorkflowOfANewerRelease(t *testing.T) {
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		topics := onePartition(t, b)
		client := b.Client(t)
		must(t, client.ProduceSync(t.Context(),
			&kgo.Record{Topic: topics.Workflows, Key: []byte("silent@2"), Value: []byte(`{"workflow":"silent","version":2,"loop":[]}`), Headers: []kgo.RecordHeader{{Key: headerLevel, Value: []byte("3")}}},
			&kgo.Record{Topic: topics.Workflows, Key: []byte("future@1"), Value: []byte(`{"workflow":"future","loop":[]}`), Headers: []kgo.RecordHeader{{Key: headerLevel, Value: []byte("3")}}},
		).FirstErr())
		i, _ := runs(t, b, Config{ID: "i-1", Namespace: topics.Namespace})
		oracle.Until(t, "ready", i.Ready)
		must(t, i.Register(t.Context(), parseFlow(t, silentFlow)))
		for n, value := range []string{`{"workflow":"future"}`, `{"workflow":"silent"}`, `{"workflow":"silent","version":1}`} {
			must(t, client.ProduceSync(t.Context(), &kgo.Record{Topic: topics.Orders, Key: fmt.Append(nil, "o-", n+1), Value: []byte(value)}).FirstErr())
		}
		i.reaches(t, "o-3", projections.Processing)
		for _, order := range []string{"o-1", "o-2"} {
			if o, _, err := i.Order(order); !errors.Is(err, projections.ErrNotFound) {
				t.Errorf("order %s: %+v, %v", order, o, err)
			}
		}
		oracle.Until(t, "an alert", func() error {
			if len(oracle.Read(t, b.Brokers, topics.Alerts)) == 0 {
				return errors.New("there is none")
			}
			return nil
		})
		if all := oracle.Read(t, b.Brokers, topics.Alerts); len(all) != 1 || !strings.Contains(string(all[0].Value), "future@1, silent@2 need a newer one") {
			t.Errorf("%d alerts, the first: %s", len(all), all[0].Value)
		}
	})
}
