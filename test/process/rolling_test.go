//go:build unix

package process

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/reliability"
)

// Instances of the release before are replaced by this one, one after the other
// and under load, and back again, so that both serve side by side: nothing is
// lost, doubled or stuck. WAYBILL_UPGRADES sets how often.
func TestRollingUpgrade(t *testing.T) {
	broker := kafka.Container(t)
	old := buildPrevious(t)
	rounds := number(t, "WAYBILL_UPGRADES", 1)
	var times reliability.Figures
	replaced, claimed, orders := 0, 0, 0

	// No retry repairs in silence what a change of owners lost.
	t.Run("patient", func(t *testing.T) {
		r := rollingFrom(t, broker, old)
		registerPatient(t, r.instances[0].http)
		r.agents()
		load := startPulse(t, r.cluster)
		r.rolls(rounds)
		ids := load.stop()
		r.instances[0].processed(r.instances[0].client, ids)
		r.books.check(ids)
		decisions, claims := r.journal()
		times = r.times(decisions, claims)
		replaced, claimed, orders = replaced+len(r.changes), claimed+total(claims), orders+len(ids)
		r.end()
	})
	// The whole pattern: agents that fail and are silent, undos, operators.
	t.Run("drawn", func(t *testing.T) {
		r := rollingFrom(t, broker, old)
		w := draw(t, r.topics, broker.Brokers[0], r.instances[0].client, r.instances[0].http)
		r.rolls(rounds)
		w.finish(r.instances[0].process)
		w.check()
		_, claims := r.journal()
		replaced, claimed, orders = replaced+len(r.changes), claimed+total(claims), orders+int(w.load.acked.Load())
		r.end()
	})
	reliability.Write(t, "upgrade", fmt.Sprintf("make reliability PART=upgrade UPGRADES=%d", rounds), reliability.Figures{
		{Name: "the release before", Value: previous[:7]},
		{Name: "rounds", Value: rounds},
		{Name: "instances", Value: 3},
		{Name: "partitions", Value: partitions},
		{Name: "orders", Value: orders},
		{Name: "instances replaced", Value: replaced},
		{Name: "claims of partitions", Value: claimed},
		{Name: "times", Value: times},
	})
}

func total(claims map[int32][]time.Time) (n int) {
	for _, of := range claims {
		n += len(of)
	}
	return n
}

// rolling are instances whose release is changed.
type rolling struct {
	*measuring
	old string
}

// rollingFrom starts instances of the release before.
func rollingFrom(t *testing.T, broker *kafka.Broker, old string) *rolling {
	t.Helper()
	c := newCluster(t, broker)
	c.createTopics()
	c.program = old
	r := &rolling{&measuring{cluster: c}, old}
	for _, id := range []string{"one", "two", "three"} {
		r.serve(id)
	}
	for _, s := range r.instances {
		s.ready(s.client)
	}
	r.instances[0].owned(r.instances...)
	return r
}

// rolls goes to this release and back as often as that, and then to this release.
func (r *rolling) rolls(rounds int) {
	r.Helper()
	r.change(nil, "nothing", r.goesOn)
	for range rounds {
		r.all("upgrade", "")
		r.all("downgrade", r.old)
	}
	r.all("upgrade", "")
}

// all replaces one instance after the other. The last one comes back without
// what it had on disk.
func (r *rolling) all(what, program string) {
	r.Helper()
	for n, s := range r.instances {
		what := what
		if n == len(r.instances)-1 {
			what += ", data directory lost"
		}
		r.change(s, what, func() {
			s.stop()
			if n == len(r.instances)-1 {
				if err := os.RemoveAll(s.dir); err != nil {
					r.Fatal(err)
				}
			}
			s.program = program
			s.again()
			s.ready(s.client)
			s.owned(r.instances...)
			r.goesOn()
		})
	}
}

// goesOn waits until every partition has more events.
func (r *rolling) goesOn() {
	r.Helper()
	s := r.instances[0]
	var from []int64
	s.until("every partition goes on", func() error {
		all, err := s.client.Partitions(s.Context())
		if err != nil {
			return err
		}
		if from == nil {
			for _, p := range all {
				from = append(from, p.Offset)
			}
		}
		for i, p := range all {
			if p.Offset < from[i]+100 {
				return fmt.Errorf("partition %d has %d new events", p.Partition, p.Offset-from[i])
			}
		}
		return nil
	})
}

// end holds the state of every instance against the journal, and stops them.
func (r *rolling) end() {
	r.Helper()
	for _, s := range r.instances {
		waybill(r.T, append([]string{"replay", "--verify", "--server", s.http}, r.flags...)...)
	}
	for _, s := range r.instances {
		s.stop()
	}
}
