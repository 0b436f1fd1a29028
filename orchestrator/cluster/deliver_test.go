package cluster

import (
	"errors"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Only what Kafka says of the record itself may be remembered: anything else
// says nothing of the next one.
func TestRefusal(t *testing.T) {
	for _, err := range []error{kerr.MessageTooLarge, kerr.UnknownTopicOrPartition, kerr.TopicAuthorizationFailed, fmt.Errorf("x: %w", kerr.InvalidRecord)} {
		if Refusal("t", err) == "" {
			t.Errorf("%v is no refusal", err)
		}
	}
	for _, err := range []error{kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.NotLeaderForPartition, kerr.RequestTimedOut, errors.New("connection refused"), nil} {
		if Refusal("t", err) != "" {
			t.Errorf("%v is a refusal", err)
		}
	}
}
