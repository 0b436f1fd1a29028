//go:build unix

package process

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/audit"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/oracle"
	"github.com/waybill-dev/waybill/test/world"
)

// brief and lengthy have one step, which is asked for once.
const (
	brief = `
workflow: brief
version: 1
steps:
  - {name: a, agent: a, timeout: 15s, retry: {attempts: 1}}
`
	lengthy = `
workflow: lengthy
version: 1
steps:
  - {name: a, agent: a, timeout: 1h, retry: {attempts: 1}}
`
)

// V2: a reply that was there in time counts although the process was stopped until
// long after the complete-by, and kept its place in the group. What another process
// has goes on meanwhile.
func TestAnOwnerThatPauses(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kafka.Container(t))
	c.createTopics()
	kept := []string{"--session-timeout", "1m"}
	one, two := c.two(kept...)
	registerSource(t, one.http, brief)
	registerSource(t, one.http, lengthy)
	one.owned(one, two)

	outside := world.NewOutsider(t, c.broker.Brokers, c.topics.Namespace)
	agent := outside.Hand("a")
	const rounds = 3 // a tick and what was fetched race when the process goes on
	for round := range rounds {
		paused := c.orderOf(two, fmt.Sprint("paused-", round))
		outside.Submit(paused, `{"workflow":"brief"}`)
		asked := agent.Asked(paused, "a")
		two.signal(syscall.SIGSTOP)
		agent.Answer(asked, world.Done)
		if late := time.Since(asked.CompleteBy); late > 0 {
			t.Fatalf("the machine is too slow: %s was answered %s after its complete-by", paused, late)
		}
		other := c.orderOf(one, fmt.Sprint("other-", round))
		outside.Submit(other, `{"workflow":"lengthy"}`)
		agent.Does(other, "a", world.Done)
		one.state(one.client, other, projections.Processed)
		oracle.Until(t, "the complete-by has passed long ago", func() error {
			if time.Since(asked.CompleteBy) < time.Second {
				return errors.New("it has not")
			}
			return nil
		})
		two.signal(syscall.SIGCONT)
		two.state(two.client, paused, projections.Processed)
		agent.Idle(paused)
	}

	books := audit.Namespace(t, c.broker.Brokers, c.topics, true)
	for id := range books.Histories {
		if n := books.Count(id, func(e *events.Event) bool { return e.Type == events.StepExpired }); n > 0 {
			t.Errorf("order %s: %d attempts expired that were answered in time", id, n)
		}
	}
	one.stop()
	two.stop()
}

// orderOf is the id of an order in a partition of an instance, beginning so.
func (c *cluster) orderOf(s *serve, prefix string) string {
	c.Helper()
	all, err := s.client.Partitions(c.Context())
	if err != nil {
		c.Fatal(err)
	}
	byKey := kgo.StickyKeyPartitioner(nil).ForTopic("")
	for n := 0; ; n++ {
		id := fmt.Sprint(prefix, "-", n)
		p := int32(byKey.Partition(&kgo.Record{Key: []byte(id)}, len(all)))
		if slices.ContainsFunc(all, func(a api.Partition) bool { return a.Partition == p && a.Owner != nil && *a.Owner == s.name }) {
			return id
		}
	}
}
