package orchestrator

import (
	"fmt"

	"github.com/waybill-dev/waybill/orchestrator/decide"
	"github.com/waybill-dev/waybill/projections"
)

// Migration says what would become of an order that goes on as one of another version of its workflow, and
// what forbids it. Nothing happens: who owns the order decides anew by what is so then, and by the same
// rules. It fails as [Instance.Order] does.
func (i *Instance) Migration(id string, version int, names map[string]string) (*projections.Order, *decide.Migration, error) {
	o, _, err := i.Order(id)
	if err != nil {
		return nil, nil, err
	}
	p := i.Partition(id)
	head, err := i.store.Head(p)
	if err := i.tells(p, err); err != nil {
		return nil, nil, fmt.Errorf("read the format of partition %d: %w", p, err)
	}
	env := &decide.Env{
		Now: now(), Instance: i.cfg.ID, Topics: &i.topics, Format: head.Format(),
		Workflow: i.catalogue.find, Newer: i.catalogue.isNewer, Retired: i.catalogue.retired,
	}
	return o, decide.Migrate(env, o, version, names), nil
}
