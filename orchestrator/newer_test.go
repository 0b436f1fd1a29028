package orchestrator

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
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
			&kgo.Record{Topic: topics.Workflows, Key: []byte("silent@2"), Value: []byte(`{"workflow":"silent","version":2,"loop":[]}`), Headers: []kgo.RecordHeader{{Key: headerLevel, Value: fmt.Append(nil, workflow.Level+1)}}},
			&kgo.Record{Topic: topics.Workflows, Key: []byte("future@1"), Value: []byte(`{"workflow":"future","loop":[]}`), Headers: []kgo.RecordHeader{{Key: headerLevel, Value: fmt.Append(nil, workflow.Level+1)}}},
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

// Where partitions are of a format that has no events for it, a workflow is not registered. If
// one got there all the same its orders wait, and hold up no other, until the upgrade is finished.
func TestAWorkflowOfANewerFormat(t *testing.T) {
	b := kafka.Embedded(t)
	topics := onePartition(t, b)
	i := upgraded(t, b, &topics, events.SleepFormat-1)
	naps := parseFlow(t, "workflow: naps\nsteps: [{name: nap, sleep: 1ms}]")
	if err := i.Register(t.Context(), naps); !errors.Is(err, ErrOlderRelease) || !strings.Contains(err.Error(), "waybill upgrade finish") {
		t.Errorf("it is registered: %v", err)
	}
	must(t, i.Register(t.Context(), parseFlow(t, strings.Replace(silentFlow, "silent", "other", 1))))
	beside, leave := runs(t, b, Config{ID: "i-2", Namespace: topics.Namespace, RaiseAfter: 10 * time.Minute, Standby: StandbyOwned})
	oracle.Until(t, "it is ready, and owns nothing", beside.Ready)
	if err := beside.Register(t.Context(), naps); !errors.Is(err, ErrOlderRelease) || !strings.Contains(err.Error(), "ask another") {
		t.Errorf("who keeps no partition registers it: %v", err)
	}
	leave()

	must(t, i.catalogue.register(t.Context(), naps)) // as an instance does that does not keep such a partition
	waitsForUpgrade(t, b, &topics, i, `{"workflow":"naps"}`)
	i.reaches(t, "o-1", projections.Processed)
	must(t, i.Register(t.Context(), naps))
}

// Labels need a format that a release before does not know. Until the upgrade is finished nobody
// takes them over HTTP, and a submission that has them waits, and holds up no other.
func TestLabelsOfANewerFormat(t *testing.T) {
	b := kafka.Embedded(t)
	topics := onePartition(t, b)
	i := upgraded(t, b, &topics, events.LabelsFormat-1)
	labels := map[string]string{"region": "eu"}
	if _, err := i.Submit(t.Context(), "o-0", &events.Submission{Workflow: "silent", Labels: labels}, Context{}, nil); !errors.Is(err, ErrOlderRelease) || !strings.Contains(err.Error(), "waybill upgrade finish") {
		t.Errorf("labels are taken: %v", err)
	}
	waitsForUpgrade(t, b, &topics, i, `{"workflow":"silent","labels":{"region":"eu"}}`)
	i.reaches(t, "o-1", projections.Processing)
	_, err := i.Submit(t.Context(), "o-0", &events.Submission{Workflow: "silent", Labels: labels}, Context{}, nil)
	must(t, err)
	i.reaches(t, "o-0", projections.Processing)
	page, _, err := i.List(t.Context(), projections.Filter{Labels: labels})
	must(t, err)
	if len(page.Orders) != 2 || page.Orders[0].ID != "o-0" || page.Orders[1].ID != "o-1" {
		t.Errorf("found are %+v", page.Orders)
	}
}

// So does what says that it does another order again: a release before would accept it as an order
// of its own.
func TestRerunsOfANewerFormat(t *testing.T) {
	b := kafka.Embedded(t)
	topics := onePartition(t, b)
	i := upgraded(t, b, &topics, events.RerunFormat-1)
	again := events.Submission{Workflow: "silent", RerunOf: "o-2"}
	if _, err := i.Submit(t.Context(), "o-0", &again, Context{}, nil); !errors.Is(err, ErrOlderRelease) || !strings.Contains(err.Error(), "waybill upgrade finish") {
		t.Errorf("a rerun is taken: %v", err)
	}
	waitsForUpgrade(t, b, &topics, i, `{"workflow":"silent","rerunOf":"o-2"}`)
	_, err := i.Submit(t.Context(), "o-0", &again, Context{}, nil)
	must(t, err)
	for _, id := range []string{"o-0", "o-1"} {
		if o := i.reaches(t, id, projections.Processing); o.RerunOf != "o-2" {
			t.Errorf("%s is a rerun of %q", id, o.RerunOf)
		}
	}
}

// upgraded is an instance of this release, which has taken over from one that spoke an older format,
// and will not have it rise by itself.
func upgraded(t *testing.T, b *kafka.Broker, topics *events.Topics, format int) *Instance {
	t.Helper()
	own := OwnDialect
	speaks(t, Dialect{format, own.Language, own.Inputs})
	older, stop := runs(t, b, Config{ID: "older", Namespace: topics.Namespace})
	oracle.Until(t, "the older one is ready", older.Ready)
	must(t, older.Register(t.Context(), parseFlow(t, silentFlow)))
	stop()

	OwnDialect = own
	i, _ := runs(t, b, Config{ID: "i-1", Namespace: topics.Namespace, RaiseAfter: 10 * time.Minute})
	oracle.Until(t, "ready", i.Ready)
	return i
}

// waitsForUpgrade has the order o-1 submitted, which waits until the upgrade is finished, and one
// behind it, which does not.
func waitsForUpgrade(t *testing.T, b *kafka.Broker, topics *events.Topics, i *Instance, submission string) {
	t.Helper()
	client := b.Client(t)
	for n, value := range []string{submission, `{"workflow":"silent"}`} {
		must(t, client.ProduceSync(t.Context(), &kgo.Record{Topic: topics.Orders, Key: fmt.Append(nil, "o-", n+1), Value: []byte(value)}).FirstErr())
	}
	i.reaches(t, "o-2", projections.Processing)
	if o, _, err := i.Order("o-1"); !errors.Is(err, projections.ErrNotFound) {
		t.Errorf("before its format: %+v, %v", o, err)
	}
	oracle.Until(t, "it is finished", func() error { return i.FinishUpgrade(t.Context()) })
}
