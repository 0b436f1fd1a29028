package orchestrator

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/oracle"
)

// Who is there is told with its address and its partitions, also where that is asked by many at once; where Kafka does
// not say it in time, that is said.
func TestPresent(t *testing.T) {
	t.Parallel()
	b := kafka.Embedded(t)
	topics := onePartition(t, b)
	i, _ := runs(t, b, Config{ID: "i-1", Namespace: topics.Namespace, AdvertiseURL: "http://i-1.example:8080"})
	runs(t, b, Config{ID: "i-2", Namespace: topics.Namespace})
	oracle.Until(t, "both are there", func() error {
		all, more, err := i.Present(t.Context())
		has := slices.ContainsFunc(all, func(p Present) bool { return len(p.Partitions) == 1 })
		if err != nil || more != 0 || len(all) != 2 || all[0].Instance != "i-1" || all[0].URL != "http://i-1.example:8080" || all[1].URL != "" || !has {
			return fmt.Errorf("there are %+v and %d, %w", all, more, err)
		}
		return nil
	})
	held := make(chan struct{})
	b.Fake.ControlKey(int16(kmsg.DescribeGroups), func(kmsg.Request) (kmsg.Response, error, bool) {
		b.Fake.SleepControl(func() { <-held })
		return nil, nil, false
	})
	i.presence.mu.Lock()
	i.presence.until = time.Time{}
	i.presence.mu.Unlock()
	all, _, err := i.Present(t.Context())
	close(held)
	if err == nil || !strings.Contains(err.Error(), "not said by Kafka within 2s") {
		t.Errorf("of a Kafka that does not answer: %+v, %v", all, err)
	}
}
