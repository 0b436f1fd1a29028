package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/oracle"
)

// Nothing is refused that would be accepted: what another instance registered a moment ago is known, a repeat of
// what was taken is a repeat whatever the workflow is by now, and where the workflows cannot be read it is not said that one is
// not registered.
func TestAdmits(t *testing.T) {
	b := kafka.Embedded(t)
	topics := onePartition(t, b)
	one, _ := runs(t, b, Config{ID: "one", Namespace: topics.Namespace})
	oracle.Until(t, "it serves", one.Ready)
	two, _ := runs(t, b, Config{ID: "two", Namespace: topics.Namespace})
	oracle.Until(t, "it follows", two.Ready)
	submission := func(version int, input string) *events.Submission {
		return &events.Submission{Workflow: "tea", Version: version, Input: []byte(input)}
	}
	if err := two.Admits(t.Context(), "o-1", submission(0, "1")); !errors.Is(err, ErrUnfit) {
		t.Errorf("one that nobody registered: %v", err)
	}
	for version := 1; version <= 5; version++ {
		must(t, one.Register(t.Context(), parseFlow(t, fmt.Sprintf("workflow: tea\nversion: %d\ninput: {maximum: %d}\nsteps: [{name: draw, sleep: 1h}]", version, 10*version))))
		must(t, two.Admits(t.Context(), "o-1", submission(version, "1")))
		must(t, two.Admits(t.Context(), "o-1", submission(0, fmt.Sprint(10*version))))
	}
	for _, i := range []*Instance{one, two} {
		if err := i.Admits(t.Context(), "o-1", submission(2, "21")); !errors.Is(err, ErrUnfit) {
			t.Errorf("what a version never takes: %v", err)
		}
	}
	owner, other := one, two
	if owner.Owned() == 0 {
		owner, other = two, one
	}
	if err := owner.Admits(t.Context(), "o-1", submission(0, "51")); !errors.Is(err, ErrUnfit) {
		t.Errorf("what the newest does not take: %v", err)
	}
	must(t, other.Admits(t.Context(), "o-1", submission(0, "51"))) // it may be a repeat
	if _, err := owner.Submit(t.Context(), "o-1", submission(0, "50"), Context{}, nil); err != nil {
		t.Fatal(err)
	}
	oracle.Until(t, "the order", func() error { _, _, err := owner.Order("o-1"); return err })
	must(t, one.Register(t.Context(), parseFlow(t, "workflow: tea\nversion: 6\ninput: {maximum: 1}\nsteps: [{name: draw, sleep: 1h}]")))
	must(t, owner.Admits(t.Context(), "o-1", submission(0, "50")))
	if err := owner.Admits(t.Context(), "o-2", submission(0, "50")); !errors.Is(err, ErrUnfit) {
		t.Errorf("the same as another order: %v", err)
	}
	var away atomic.Bool
	b.Fake.ControlKey(int16(kmsg.ListOffsets), func(q kmsg.Request) (kmsg.Response, error, bool) {
		b.Fake.KeepControl()
		answer := q.ResponseKind().(*kmsg.ListOffsetsResponse)
		of, on := kmsg.NewListOffsetsResponseTopic(), kmsg.NewListOffsetsResponseTopicPartition()
		of.Topic, on.ErrorCode = topics.Workflows, kerr.TopicAuthorizationFailed.Code
		of.Partitions = append(of.Partitions, on)
		answer.Topics = append(answer.Topics, of)
		return answer, nil, away.Load()
	})
	away.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second/10)
	defer cancel()
	if err := owner.Admits(ctx, "o-3", &events.Submission{Workflow: "coffee"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("whether it is registered cannot be known: %v", err)
	}
	must(t, owner.Admits(ctx, "o-3", submission(1, "1"))) // of what is known nobody is asked
	away.Store(false)
}
