package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/orchestrator/lane"
)

// deliveredBytes is what deliveries of an instance have in memory at most.
const deliveredBytes = 64 << 20

// deliverer is the client of all deliveries. It is not idempotent: so what a broker does
// not answer can be given up, and tried again by the lane. One request at a time keeps
// the order.
func (c *Cluster) deliverer() (*kgo.Client, error) {
	c.deliveries.Do(func() {
		c.courier, c.noCourier = kgo.NewClient(append(c.opts[:len(c.opts):len(c.opts)],
			kgo.DisableIdempotentWrite(),
			kgo.MaxProduceRequestsInflightPerBroker(1),
			kgo.RequiredAcks(kgo.AllISRAcks()),
			kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
			kgo.WithCompressor(compressor),
			kgo.ProducerLinger(0),
			kgo.MaxBufferedBytes(deliveredBytes),
			kgo.MetadataMinAge(MetadataMinAge),
			kgo.UnknownTopicRetries(4), // the lane asks again
		)...)
	})
	return c.courier, c.noCourier
}

// Close ends what the lanes of an instance have in common.
func (c *Cluster) Close() {
	c.deliveries.Do(func() { c.noCourier = kgo.ErrClientClosed })
	if c.courier != nil {
		c.courier.Close()
	}
}

func (k *broker) Deliver(ctx context.Context, records []*kgo.Record) (taken int, err error) {
	client, err := k.deliverer()
	if err != nil {
		return 0, fmt.Errorf("make a client: %w", err)
	}
	results := client.ProduceSync(ctx, records...)
	failed := make(map[*kgo.Record]error, len(records)) // they are in the order of their partitions
	for _, r := range results {
		failed[r.Record] = r.Err
	}
	for i, r := range records {
		if err := failed[r]; err != nil {
			if reason := Refusal(r.Topic, err); reason != "" {
				err = &lane.UndeliverableError{Reason: reason, Size: TooLarge(err), Batch: TooLarge(err) && len(records) > 1}
			}
			return i, err
		}
	}
	return len(records), nil
}

// TooLarge says that Kafka does not take a record, or a batch, of such a size.
func TooLarge(err error) bool {
	return errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge)
}

// Absent says that there is no such topic, as far as a broker knows.
func Absent(err error) bool {
	return errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.UnknownTopicID)
}

// Refusal is what Kafka says of a record, or of where it goes, so that the same record
// would be refused again; "" if err says nothing of the kind.
func Refusal(topic string, err error) string {
	switch {
	case TooLarge(err):
		return kerr.MessageTooLarge.Message
	case Absent(err):
		return fmt.Sprintf("topic %s does not exist", topic)
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return fmt.Sprintf("not authorised to write to topic %s", topic)
	case errors.Is(err, kerr.InvalidTopicException):
		return fmt.Sprintf("%q cannot be the name of a topic", topic)
	case errors.Is(err, kerr.InvalidRecord), errors.Is(err, kerr.PolicyViolation):
		return fmt.Sprintf("topic %s: %v", topic, err)
	}
	return ""
}
