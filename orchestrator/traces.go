package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/waybill-dev/waybill/orchestrator/lane"
)

// What a program needs that makes something of the journals, or of the alerts, of the partitions which an instance serves, beside
// their lanes.

// Journals returns a reader of the journals, that reads nothing yet. Close it.
func (i *Instance) Journals() (lane.Journals, error) { return i.cluster.Journals() }

// Served lists the partitions that the instance serves now. Of their orders it has the history.
func (i *Instance) Served() []int32 {
	return slices.DeleteFunc(i.members.all(), func(p int32) bool { return !i.members.serves(p) })
}

// Marks returns up to where the journals of partitions were read on behalf of a group of the namespace, of those of which
// somebody said so.
func (i *Instance) Marks(ctx context.Context, group string) (map[int32]int64, error) {
	return i.marks(ctx, group, i.topics.Journal)
}

func (i *Instance) marks(ctx context.Context, group, topic string) (map[int32]int64, error) {
	said, err := i.admin.FetchOffsets(ctx, i.topics.Namespace+"."+group)
	if errors.Is(err, kerr.GroupIDNotFound) {
		return nil, nil
	}
	if err == nil {
		err = said.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("ask up to where %s was read: %w", topic, err)
	}
	marks := make(map[int32]int64)
	said.Each(func(o kadm.OffsetResponse) {
		if o.Topic == topic && o.At >= 0 {
			marks[o.Partition] = o.At
		}
	})
	return marks, nil
}

// Since returns where the journals of the partitions were at a time.
func (i *Instance) Since(ctx context.Context, at time.Time) (map[int32]int64, error) {
	return i.offsets(ctx, i.topics.Journal, at)
}

func (i *Instance) offsets(ctx context.Context, topic string, at time.Time) (map[int32]int64, error) {
	listed, err := i.admin.ListOffsetsAfterMilli(ctx, at.UnixMilli(), topic)
	return places(listed, topic, err)
}

func places(listed kadm.ListedOffsets, topic string, err error) (map[int32]int64, error) {
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("ask how far %s is: %w", topic, err)
	}
	offsets := make(map[int32]int64)
	listed.Each(func(o kadm.ListedOffset) { offsets[o.Partition] = o.Offset })
	return offsets, nil
}

// Mark says up to where the journals of partitions were read on behalf of a group of the namespace, which has no members.
func (i *Instance) Mark(ctx context.Context, group string, marks map[int32]int64) error {
	return i.mark(ctx, group, i.topics.Journal, marks)
}

func (i *Instance) mark(ctx context.Context, group, topic string, marks map[int32]int64) error {
	offsets := make(kadm.Offsets)
	for p, at := range marks {
		offsets.AddOffset(topic, p, at, -1)
	}
	said, err := i.admin.CommitOffsets(ctx, i.topics.Namespace+"."+group, offsets)
	if err == nil {
		err = said.Error()
	}
	if err != nil {
		return fmt.Errorf("say up to where %s was read: %w", topic, err)
	}
	return nil
}

// AlertReader returns a reader of the alerts, that reads nothing yet. Close it.
func (i *Instance) AlertReader() (lane.Journals, error) { return i.cluster.Alerts() }

// AlertMarks is as [Instance.Marks], of the alerts.
func (i *Instance) AlertMarks(ctx context.Context, group string) (map[int32]int64, error) {
	return i.marks(ctx, group, i.topics.Alerts)
}

// AlertsSince is as [Instance.Since], of the alerts. It has all partitions of their topic.
func (i *Instance) AlertsSince(ctx context.Context, at time.Time) (map[int32]int64, error) {
	return i.offsets(ctx, i.topics.Alerts, at)
}

// AlertEnds returns up to where the alerts can be read now.
func (i *Instance) AlertEnds(ctx context.Context) (map[int32]int64, error) {
	listed, err := i.admin.ListCommittedOffsets(ctx, i.topics.Alerts)
	return places(listed, i.topics.Alerts, err)
}

// MarkAlerts is as [Instance.Mark], of the alerts.
func (i *Instance) MarkAlerts(ctx context.Context, group string, marks map[int32]int64) error {
	return i.mark(ctx, group, i.topics.Alerts, marks)
}
