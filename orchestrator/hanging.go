package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A transaction hangs when a partition has its records but never got its
// marker, and the coordinator has forgotten it: readers of that partition stand
// still for ever. Kafka 4.3 leaves such transactions behind when a broker shuts
// down in good order under load and its partitions have no other replica. The
// coordinator then finds no leader to send the markers to, takes the partitions
// for deleted, and passes over some or all of them, although it had
// acknowledged the commit.
//
// Waybill aborts what hangs, which needs no more than the right to write. On
// the journal that is as if the transaction had never been: its inputs are read
// again. A request that is lost with it is asked again at its complete-by, one
// that was read nevertheless is asked again with the same idempotency key.

// hanging is where a producer's transaction hangs.
type hanging struct {
	producer *kgo.Client
	at       []kadm.DescribedProducer
}

// findHanging returns the producers that have hanging transactions on the given
// partitions. The producers must have initialised their ids, which ended whatever
// the coordinator knew of. What the principal may not describe is left out.
func findHanging(ctx context.Context, admin *kadm.Client, producers []*kgo.Client, on kadm.TopicsSet) ([]hanging, error) {
	topics, err := describeProducers(ctx, admin, on)
	if err != nil {
		return nil, fmt.Errorf("look for hanging transactions: %w", err)
	}
	var found []hanging
	for _, producer := range producers {
		id, epoch, err := producer.ProducerID(ctx)
		if err != nil {
			return nil, fmt.Errorf("look for hanging transactions: %w", err)
		}
		h := hanging{producer: producer}
		topics.EachProducer(func(p kadm.DescribedProducer) {
			if p.ProducerID == id && p.ProducerEpoch < epoch && p.CurrentTxnStartOffset >= 0 {
				h.at = append(h.at, p)
			}
		})
		if len(h.at) > 0 {
			found = append(found, h)
		}
	}
	return found, nil
}

// describeProducers asks who writes to the partitions. Topics that do not exist
// and those that may not be described are left out.
func describeProducers(ctx context.Context, admin *kadm.Client, on kadm.TopicsSet) (kadm.DescribedProducersTopics, error) {
	topics, err := admin.DescribeProducers(ctx, on)
	if denied := new(kadm.AuthError); !errors.As(err, &denied) {
		if missing(err) {
			err = nil
		}
		return topics, err
	}
	// One topic that is denied hides the others.
	topics = make(kadm.DescribedProducersTopics)
	if len(on) == 1 {
		return topics, nil
	}
	for topic, partitions := range on {
		found, err := describeProducers(ctx, admin, kadm.TopicsSet{topic: partitions})
		if err != nil {
			return nil, err
		}
		maps.Copy(topics, found)
	}
	return topics, nil
}

// missing says whether err is about nothing but topics that do not exist.
func missing(err error) bool {
	var parts *kadm.ShardErrors
	if !errors.As(err, &parts) {
		return false
	}
	for _, part := range parts.Errs {
		if !errors.Is(part.Err, kerr.UnknownTopicOrPartition) {
			return false
		}
	}
	return true
}

// allPartitions are those of all topics that the client may see.
func allPartitions(ctx context.Context, client *kgo.Client) (kadm.TopicsSet, error) {
	request := kmsg.NewPtrMetadataRequest()
	request.Topics = nil // all
	response, err := request.RequestWith(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("list the topics: %w", err)
	}
	var all kadm.TopicsSet
	for _, topic := range response.Topics {
		for _, p := range topic.Partitions {
			if topic.ErrorCode == 0 && topic.Topic != nil {
				all.Add(*topic.Topic, p.Partition)
			}
		}
	}
	return all, nil
}

// abort ends the producer's transaction wherever it hangs. The marker ends all
// that the producer has open on a partition; the record that brings it there is
// aborted with the rest.
func (h *hanging) abort(ctx context.Context) error {
	if err := h.producer.BeginTransaction(); err != nil {
		return fmt.Errorf("abort a hanging transaction: %w", err)
	}
	ctx = context.WithValue(ctx, placed{}, true)
	for _, p := range h.at {
		r := &kgo.Record{Topic: p.Topic, Partition: p.Partition, Value: []byte("aborted")}
		if err := h.producer.ProduceSync(ctx, r).FirstErr(); err != nil {
			return fmt.Errorf("abort a hanging transaction on %s partition %d: %w", p.Topic, p.Partition, err)
		}
	}
	if err := h.producer.EndTransaction(ctx, kgo.TryAbort); err != nil {
		return fmt.Errorf("abort a hanging transaction: %w", err)
	}
	return nil
}

// placed marks, in a record's context, a record that goes to the partition
// that it names, whatever its topic.
type placed struct{}
