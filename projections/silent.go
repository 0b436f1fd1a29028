package projections

import (
	"time"

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
		p.silent = make(map[string]time.Time)
	}
	p.silent[e.Agent] = time.Time{}
	if e.Silent {
		p.silent[e.Agent] = e.At
	}
}

// settleSilent writes which agents are silent, as far as that changed since the last flush.
func (p *Partition) settleSilent(b *pebble.Batch, w *writer) error {
	for agent, since := range p.silent {
		if err := b.Delete(silentKey(p.id, agent), nil); err != nil {
			return err
		}
		if since.IsZero() {
			continue
		}
		w.b = w.b[:0]
		w.time(since)
		if err := b.Set(silentKey(p.id, agent), w.b, nil); err != nil {
			return err
		}
	}
	return nil
}

func silentKey(partition int32, agent string) []byte {
	return append(prefix(partition, kindSilent), agent...)
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

// SilentSince returns since when an agent answers nothing in time to what a partition asks of it,
// as the journal says; zero if it does.
func (s *Store) SilentSince(partition int32, agent string) (time.Time, error) {
	b, err := s.get(s.db, silentKey(partition, agent))
	if b == nil || err != nil {
		return time.Time{}, err
	}
	r := reader{b: b}
	return r.time(), r.err
}
