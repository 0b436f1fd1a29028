package projections

import (
	"github.com/cockroachdb/pebble/v2"

	"github.com/waybill-dev/waybill/events"
)

// Silence takes over what an event says of an agent, if it does: that it fell silent, or
// is silent no more.
func (p *Partition) Silence(e *events.Event) {
	if e.Agent == "" {
		return
	}
	if p.silent == nil {
		p.silent = make(map[string]bool)
	}
	p.silent[e.Agent] = e.Silent
}

// settleSilent writes which agents are silent, as far as that changed since the last flush.
func (p *Partition) settleSilent(b *pebble.Batch) error {
	for agent, silent := range p.silent {
		change := b.Delete
		if silent {
			change = func(key []byte, o *pebble.WriteOptions) error { return b.Set(key, nil, o) }
		}
		if err := change(append(prefix(p.id, kindSilent), agent...), nil); err != nil {
			return err
		}
	}
	return nil
}

// Silent returns the agents that answered nothing in time when they were asked last, in
// order, as of the last [Partition.Flush].
func (p *Partition) Silent() (agents []string, err error) {
	all := prefix(p.id, kindSilent)
	it, err := p.store.db.NewIter(&pebble.IterOptions{LowerBound: all, UpperBound: after(all)})
	if err != nil {
		return nil, damage(err)
	}
	for it.First(); it.Valid(); it.Next() {
		agents = append(agents, string(it.Key()[len(all):]))
	}
	if err := it.Close(); err != nil {
		return nil, damage(err)
	}
	return agents, nil
}
