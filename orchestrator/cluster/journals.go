package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events/fetch"
	"github.com/waybill-dev/waybill/orchestrator/lane"
)

// Journals returns a reader of the journals, that reads nothing yet.
func (c *Cluster) Journals() (lane.Journals, error) { return c.reader(c.topics.Journal, 16<<20) }

// Alerts returns a reader of the alerts, that reads nothing yet.
func (c *Cluster) Alerts() (lane.Journals, error) { return c.reader(c.topics.Alerts, 1<<20) }

// reader returns one of the committed records of a topic, which fetches so many bytes at a time.
func (c *Cluster) reader(topic string, atOnce int32) (lane.Journals, error) {
	k := &journals{topic: topic}
	var err error
	k.client, err = k.fetched.NewClient(append(c.opts[:len(c.opts):len(c.opts)],
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), // behind the last one a journal ends
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchMaxWait(time.Second),
		kgo.MetadataMinAge(MetadataMinAge),
		kgo.FetchMaxBytes(atOnce),
		kgo.FetchMaxPartitionBytes(fetchAtOnce),
	)...)
	if err != nil {
		return nil, fmt.Errorf("reader of %s: %w", topic, err)
	}
	return k, nil
}

type journals struct {
	client  *kgo.Client
	fetched fetch.Bound
	topic   string
}

func (k *journals) Read(p int32, from int64) {
	k.client.AddConsumePartitions(map[string]map[int32]kgo.Offset{k.topic: {p: kgo.NewOffset().At(from)}})
}

func (k *journals) Drop(p int32) {
	k.client.RemoveConsumePartitions(map[string][]int32{k.topic: {p}})
}

func (k *journals) Poll(ctx context.Context) kgo.Fetches {
	poll, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return k.fetched.Poll(poll, 10_000)
}

func (k *journals) Close() { k.client.Close() }
