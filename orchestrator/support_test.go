package orchestrator

import (
	"testing"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/test/inspect"
	"github.com/waybill-dev/waybill/test/kafka"
)

func must(t inspect.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}

func parseFlow(t inspect.T, source string) *workflow.Workflow {
	t.Helper()
	flow, err := workflow.Parse("workflow.yaml", []byte(source))
	must(t, err)
	return flow
}

func onePartition(t *testing.T, b *kafka.Broker) events.Topics {
	t.Helper()
	topics, err := events.NewTopics(kafka.Namespace(t))
	must(t, err)
	_, err = CreateTopics(t.Context(), b.Admin(t), &topics, 1, 1)
	must(t, err)
	return topics
}
