package orchestrator

import (
	"context"

	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

// knowledge is what an instance knows besides its partitions: see [lane.World].
type knowledge struct {
	catalogue *catalogue
	*directory
	*upgrade
	*added
}

func (w *knowledge) Workflow(name string, version int) *workflow.Workflow {
	return w.catalogue.find(name, version)
}

func (w *knowledge) Starts(signal string) *workflow.Workflow { return w.catalogue.starts(signal) }

func (w *knowledge) Newer(name string, version int) int { return w.catalogue.isNewer(name, version) }

func (w *knowledge) Retired(name string, version int) bool {
	return w.catalogue.retired(name, version)
}

func (w *knowledge) Seek() uint64 { return w.catalogue.Seek() }

func (w *knowledge) Found(question uint64) bool { return w.catalogue.Found(question) }

func (w *knowledge) RequestTopics() []string { return w.catalogue.requestTopics() }

func (w *knowledge) CatchUp(ctx context.Context) error { return w.catalogue.catchUp(ctx) }
