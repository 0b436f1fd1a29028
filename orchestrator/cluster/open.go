package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-dev/waybill/orchestrator/lane"
)

// OpenTransactions lists what is open on partitions, and why of some it is not
// known.
func OpenTransactions(ctx context.Context, client *kgo.Client, on kadm.TopicsSet) (open []lane.OpenTransaction, unknown map[lane.TopicPartition]error) {
	unknown = describeProducers(ctx, client, on, func(at lane.TopicPartition, p *kmsg.DescribeProducersResponseTopicPartitionActiveProducer) {
		if p.CurrentTxnStartOffset >= 0 {
			open = append(open, lane.OpenTransaction{
				Transaction: lane.Transaction{Producer: p.ProducerID, Epoch: int16(p.ProducerEpoch)}, TopicPartition: at,
				Offset: p.CurrentTxnStartOffset, Written: p.LastTimestamp, Coordinator: max(p.CoordinatorEpoch, 0),
			})
		}
	})
	return open, unknown
}

// describeProducers tells who has written to partitions lately, and returns why
// of some it is not known.
func describeProducers(ctx context.Context, client *kgo.Client, on kadm.TopicsSet, each func(lane.TopicPartition, *kmsg.DescribeProducersResponseTopicPartitionActiveProducer)) map[lane.TopicPartition]error {
	request := kmsg.NewPtrDescribeProducersRequest()
	unknown := make(map[lane.TopicPartition]error)
	if len(on) == 0 {
		return unknown
	}
	for _, t := range on.IntoList() {
		topic := kmsg.NewDescribeProducersRequestTopic()
		topic.Topic, topic.Partitions = t.Topic, t.Partitions
		request.Topics = append(request.Topics, topic)
		for _, p := range t.Partitions {
			unknown[lane.TopicPartition{Topic: t.Topic, Partition: p}] = errors.New("no broker answers for it")
		}
	}
	for _, shard := range client.RequestSharded(ctx, request) {
		if asked, ok := shard.Req.(*kmsg.DescribeProducersRequest); ok && shard.Err != nil {
			for _, t := range asked.Topics {
				for _, p := range t.Partitions {
					unknown[lane.TopicPartition{Topic: t.Topic, Partition: p}] = shard.Err
				}
			}
		}
		answer, ok := shard.Resp.(*kmsg.DescribeProducersResponse)
		if shard.Err != nil || !ok {
			continue
		}
		for _, t := range answer.Topics {
			for i := range t.Partitions {
				p := &t.Partitions[i]
				at := lane.TopicPartition{Topic: t.Topic, Partition: p.Partition}
				delete(unknown, at)
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					unknown[at] = err
				}
				for i := range p.ActiveProducers {
					each(at, &p.ActiveProducers[i])
				}
			}
		}
	}
	return unknown
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

// Cover ends what the client's producer has open on a partition, with a
// transaction that has no records. The broker gives the producer another epoch
// with that, so the client is of no use afterwards.
func Cover(ctx context.Context, client *kgo.Client, name string, t lane.OpenTransaction, commit bool) error {
	id, epoch, err := client.ProducerID(ctx)
	if err != nil {
		return fmt.Errorf("end a hanging transaction: %w", err)
	}
	add := kmsg.NewPtrAddPartitionsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch = name, id, epoch
	on := kmsg.NewAddPartitionsToTxnRequestTopic()
	on.Topic, on.Partitions = t.Topic, []int32{t.Partition}
	add.Topics = append(add.Topics, on)
	added, err := add.RequestWith(ctx, client)
	if err == nil {
		err = kerr.ErrorForCode(added.ErrorCode)
	}
	if err == nil && len(added.Topics) == 1 && len(added.Topics[0].Partitions) == 1 {
		err = kerr.ErrorForCode(added.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		return fmt.Errorf("end a hanging transaction on %s partition %d: %w", t.Topic, t.Partition, err)
	}
	end := kmsg.NewPtrEndTxnRequest()
	end.TransactionalID, end.ProducerID, end.ProducerEpoch, end.Commit = name, id, epoch, commit
	ended, err := end.RequestWith(ctx, client)
	if err == nil {
		err = kerr.ErrorForCode(ended.ErrorCode)
	}
	if err != nil {
		return fmt.Errorf("end a hanging transaction on %s partition %d: %w", t.Topic, t.Partition, err)
	}
	return nil
}
