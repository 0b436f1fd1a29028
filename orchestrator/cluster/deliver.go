package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/orchestrator/lane"
)

const (
	// deliveredBytes is what the common client of deliveries has in memory at most.
	deliveredBytes = 64 << 20
	// A broker takes the requests of a connection one after the other, and while a topic's
	// replicas do not follow it answers none before the time of the request is up: so
	// long such a topic holds up others, once. What is not delivered inTime is late.
	answeredIn, inTime = time.Second, 2 * time.Second
	// forgetEvery is how often topics are forgotten that nobody delivers to.
	forgetEvery = time.Minute
)

// couriers are the clients of an instance's deliveries: one in common for all topics, and
// one of its own, for one delivery, for each topic that was late, until it is in time.
type couriers struct {
	begin   sync.Once
	common  *kgo.Client // made with the first delivery
	failed  error
	stop    chan struct{}
	running sync.WaitGroup

	mu     sync.Mutex
	topics map[string]*courierTopic // that the common client may know
}

type courierTopic struct {
	under      int // delivery
	used, late bool
}

// courier makes a client for deliveries. It is not idempotent: so what a broker does not
// answer can be given up, and tried again by the lane. One request at a time keeps the
// order.
func (c *Cluster) courier(opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(append(c.opts[:len(c.opts):len(c.opts)],
		kgo.DisableIdempotentWrite(),
		kgo.MaxProduceRequestsInflightPerBroker(1),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
		kgo.WithCompressor(compressor),
		kgo.ProducerLinger(0),
		kgo.MaxBufferedBytes(deliveredBytes),
		kgo.MetadataMinAge(MetadataMinAge),
		kgo.UnknownTopicRetries(4), // the lane asks again
	), opts...)...)
}

// commonCourier is the client of all topics that are not late.
func (c *Cluster) commonCourier() (*kgo.Client, error) {
	d := &c.couriers
	d.begin.Do(func() {
		if d.common, d.failed = c.courier(kgo.ProduceRequestTimeout(answeredIn)); d.failed != nil {
			return
		}
		d.topics, d.stop = make(map[string]*courierTopic), make(chan struct{})
		d.running.Go(func() {
			tick := time.NewTicker(forgetEvery)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					d.forget()
				case <-d.stop:
					return
				}
			}
		})
	})
	return d.common, d.failed
}

// Close ends what the lanes of an instance have in common.
func (c *Cluster) Close() {
	d := &c.couriers
	d.begin.Do(func() { d.failed = kgo.ErrClientClosed })
	if d.common != nil {
		close(d.stop)
		d.common.Close()
		d.running.Wait()
	}
}

// forget has the common client forget topics that nobody has delivered to since the last
// time: it asks Kafka about all that it knows, and many times a second as long as one of
// them is not there.
func (d *couriers) forget() {
	d.mu.Lock()
	var idle []string
	for topic, t := range d.topics {
		if t.under == 0 && !t.used {
			idle = append(idle, topic)
			delete(d.topics, topic)
		}
		t.used = false
	}
	d.mu.Unlock()
	d.common.PurgeTopicsFromProducing(idle...) // a delivery that begins meanwhile fails, and is tried again
}

// begins says whether a topic that is delivered to is late.
func (d *couriers) begins(topic string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.topics[topic]
	if t == nil {
		t = &courierTopic{}
		d.topics[topic] = t
	}
	t.under++
	t.used = true
	return t.late
}

// ends notes how a delivery ended. The common client knows no topic that is late, or that
// does not take it for what the topic is.
func (d *couriers) ends(topic string, late, knows bool) {
	d.mu.Lock()
	t := d.topics[topic]
	t.under--
	t.late = late
	purge := !knows && t.under == 0
	if purge && !late {
		delete(d.topics, topic)
	}
	d.mu.Unlock()
	if purge {
		d.common.PurgeTopicsFromProducing(topic)
	}
}

func (k *broker) Deliver(ctx context.Context, records []*kgo.Record) []error {
	client, err := k.commonCourier()
	if err != nil {
		return slices.Repeat([]error{fmt.Errorf("make a client: %w", err)}, len(records))
	}
	topic, began := records[0].Topic, time.Now()
	if k.couriers.begins(topic) {
		if client, err = k.courier(); err != nil {
			k.couriers.ends(topic, true, false)
			return slices.Repeat([]error{fmt.Errorf("make a client: %w", err)}, len(records))
		}
		defer client.Close()
	} else {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, inTime)
		defer cancel()
	}
	untaken := deliver(ctx, client, records)
	late, knows := time.Since(began) > inTime, true
	for _, err := range untaken {
		if refused, ok := errors.AsType[*lane.UndeliverableError](err); ok {
			knows = knows && refused.Message
		} else {
			late = late || err != nil
		}
	}
	k.couriers.ends(topic, late, !late && knows)
	return untaken
}

func deliver(ctx context.Context, client *kgo.Client, records []*kgo.Record) (untaken []error) {
	results := client.ProduceSync(ctx, records...)
	failed := make(map[*kgo.Record]error, len(records)) // they are in the order of their partitions
	for _, r := range results {
		failed[r.Record] = r.Err
	}
	for i, r := range records {
		err := failed[r]
		if err == nil {
			continue
		}
		if reason := Refusal(r.Topic, err); reason != "" {
			message := TooLarge(err) || Invalid(err)
			err = &lane.UndeliverableError{Reason: reason, Message: message, Batch: message && len(records) > 1}
		}
		if untaken == nil {
			untaken = make([]error, len(records))
		}
		untaken[i] = err
	}
	return untaken
}

// TooLarge says that Kafka does not take a record, or a batch, of such a size.
func TooLarge(err error) bool {
	return errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge)
}

// Invalid says that Kafka does not take a record, or a batch, for what is in it, its time
// included. (A batch that is corrupt kgo writes anew.)
func Invalid(err error) bool {
	return errors.Is(err, kerr.InvalidRecord) || errors.Is(err, kerr.InvalidTimestamp) || errors.Is(err, kerr.PolicyViolation)
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
	case Invalid(err):
		return fmt.Sprintf("topic %s: %v", topic, err)
	}
	return ""
}
