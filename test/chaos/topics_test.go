//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/test/world"
)

// One agent and two callers have topics on which there is trouble. Of several
// brokers the last alone has the agent's and the remote caller's. With one broker
// the agent's is deleted, and what was asked there is asked again. The narrow
// caller's takes next to nothing now and then, and is given up for that.
const troubled = "delta"

// troubledFlow has a step of that agent's. Where its requests are only out of reach
// nothing repairs what is lost of them.
func troubledFlow(brokers int) string {
	if brokers > 1 {
		return world.Sure("chaos-7", "alpha", troubled)
	}
	return `
workflow: chaos-7
steps:
  - {name: near, agent: alpha, do: near, undo: un-near, timeout: 2s, retry: {attempts: 3, backoff: 100ms}, exhausted: compensate}
  - {name: far, agent: delta, do: far, undo: un-far, timeout: 2s, retry: {attempts: 5, backoff: 500ms}, exhausted: compensate}
`
}

// prepareTopics makes the topics on which there will be trouble.
func (r *run) prepareTopics() {
	r.narrow, r.remote = r.topics.Namespace+"-narrow", r.topics.Namespace+"-remote"
	client := r.client()
	defer client.Close()
	if _, err := kadm.NewClient(client).CreateTopic(r.Context(), 2, -1, nil, r.narrow); err != nil {
		r.Fatal(err)
	}
	err := errors.Join(r.putLast(r.Context(), client, r.remote, 2), r.putLast(r.Context(), client, r.topics.Requests(troubled), partitions))
	if err != nil {
		r.Fatal(err)
	}
}

// putLast makes a topic of which the last broker has all.
func (r *run) putLast(ctx context.Context, client *kgo.Client, topic string, partitions int32) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	made := kmsg.NewCreateTopicsRequestTopic()
	made.Topic, made.NumPartitions, made.ReplicationFactor = topic, -1, -1
	for p := range partitions {
		at := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		at.Partition, at.Replicas = p, []int32{int32(r.brokers)}
		made.ReplicaAssignment = append(made.ReplicaAssignment, at)
	}
	req.Topics = append(req.Topics, made)
	answer, err := req.RequestWith(ctx, client)
	if err == nil {
		err = kerr.ErrorForCode(answer.Topics[0].ErrorCode)
	}
	return err
}

// callers are the topics that orders name, and who names which.
func (r *run) callers() []string { return []string{r.caller, r.narrow, r.remote} }

func (r *run) replyTo(n int64) string {
	switch {
	case n%13 == 0:
		return r.narrow
	case n%11 == 0:
		return r.remote
	case n%3 == 0:
		return r.caller
	}
	return ""
}

// troubledAgent serves the agent's queue until ctx ends. It is begun anew with its
// topic.
func (r *run) troubledAgent(ctx context.Context) {
	r.serveTroubled = func() {
		serving, dismiss := context.WithCancel(ctx)
		r.dismissTroubled = dismiss
		r.plainAgent(serving, troubled, kgo.StickyKeyPartitioner(nil))
	}
	r.serveTroubled()
}

// hitTopics does what somebody can do to topics, and undoes it.
func (r *run) hitTopics(ctx context.Context, f fault) (left string) {
	client := r.client()
	defer client.Close()
	admin := kadm.NewClient(client)
	// What was begun is ended, whatever becomes of Kafka meanwhile.
	insist := func(what string, do func(context.Context) error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Minute)
		defer cancel()
		for err := do(ctx); err != nil; err = do(ctx) {
			if ctx.Err() != nil {
				r.Errorf("%s: %v", what, err)
				return
			}
			hold(ctx, 200*time.Millisecond)
		}
	}
	switch f.Kind {
	case forget:
		topic := r.topics.Requests(troubled)
		r.dismissTroubled()
		insist("deleting "+topic, func(ctx context.Context) error {
			_, err := admin.DeleteTopic(ctx, topic)
			if errors.Is(err, kerr.UnknownTopicOrPartition) {
				err = nil // an answer that did not arrive
			}
			return err
		})
		hold(ctx, f.Hold)
		insist("making "+topic, func(ctx context.Context) error {
			err := r.putLast(ctx, client, topic, partitions)
			if errors.Is(err, kerr.TopicAlreadyExists) {
				err = nil
			}
			return err
		})
		r.serveTroubled()
	case narrow:
		set := func(op kadm.IncrementalOp, bytes string) func(context.Context) error {
			return func(ctx context.Context) error {
				_, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: op, Name: "max.message.bytes", Value: new(bytes)}}, r.narrow)
				return err
			}
		}
		insist("making "+r.narrow+" narrow", set(kadm.SetConfig, "100"))
		hold(ctx, f.Hold)
		insist("making "+r.narrow+" wide", set(kadm.SetConfig, strconv.Itoa(events.MaxBatch)))
	case widen:
		r.widened++
		insist("adding partitions", func(ctx context.Context) error {
			var failed error
			for _, topic := range r.topics.Inputs() {
				answers, err := admin.UpdatePartitions(ctx, partitions+r.widened, topic)
				if err == nil {
					err = answers[topic].Err
				}
				if !errors.Is(err, kerr.InvalidPartitions) { // it has them
					failed = errors.Join(failed, err)
				}
			}
			return failed
		})
	}
	return ""
}

// zeros puts a batch on an input that takes a few kilobytes there, and more memory
// than any may.
func (r *run) zeros(ctx context.Context, f fault) (left string) {
	client := r.client(kgo.ProducerBatchMaxBytes(2*events.MaxDecompressed), kgo.BrokerMaxWriteBytes(4*events.MaxDecompressed),
		kgo.ProducerBatchCompression(kgo.ZstdCompression()), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RecordDeliveryTimeout(time.Minute))
	defer client.Close()
	topics := []string{r.topics.Orders, r.topics.Replies, r.topics.Commands}
	r.mu.Lock()
	r.zeroed++
	r.mu.Unlock()
	err := client.ProduceSync(ctx, &kgo.Record{
		Topic: topics[f.Detail%3], Partition: int32(f.Detail / 3 % partitions), Value: make([]byte, events.MaxDecompressed),
	}).FirstErr()
	if err != nil {
		return fmt.Sprintf(", maybe left out: %v", err)
	}
	return ""
}
