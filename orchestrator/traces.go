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

// What a program needs that makes something of the journals of the partitions which an instance serves, beside their
// lanes.

// Journals returns a reader of the journals, that reads nothing yet. Close it.
func (i *Instance) Journals() (lane.Journals, error) { return i.cluster.Journals() }

// Served lists the partitions that the instance serves now. Of their orders it has the history.
func (i *Instance) Served() []int32 {
	return slices.DeleteFunc(i.members.all(), func(p int32) bool { return !i.members.serves(p) })
}

// Marks returns up to where the journals of partitions were read on behalf of a group of the namespace, of those of which
// somebody said so.
func (i *Instance) Marks(ctx context.Context, group string) (map[int32]int64, error) {
	said, err := i.admin.FetchOffsets(ctx, i.topics.Namespace+"."+group)
	if errors.Is(err, kerr.GroupIDNotFound) {
		return nil, nil
	}
	if err == nil {
		err = said.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("ask up to where the journal was read: %w", err)
	}
	marks := make(map[int32]int64)
	said.Each(func(o kadm.OffsetResponse) {
		if o.Topic == i.topics.Journal && o.At >= 0 {
			marks[o.Partition] = o.At
		}
	})
	return marks, nil
}

// Since returns where the journals of the partitions were at a time.
func (i *Instance) Since(ctx context.Context, at time.Time) (map[int32]int64, error) {
	listed, err := i.admin.ListOffsetsAfterMilli(ctx, at.UnixMilli(), i.topics.Journal)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("ask where the journal was at %s: %w", at, err)
	}
	offsets := make(map[int32]int64)
	listed.Each(func(o kadm.ListedOffset) { offsets[o.Partition] = o.Offset })
	return offsets, nil
}

// Mark says up to where the journals of partitions were read on behalf of a group of the namespace, which has no members.
func (i *Instance) Mark(ctx context.Context, group string, marks map[int32]int64) error {
	offsets := make(kadm.Offsets)
	for p, at := range marks {
		offsets.AddOffset(i.topics.Journal, p, at, -1)
	}
	said, err := i.admin.CommitOffsets(ctx, i.topics.Namespace+"."+group, offsets)
	if err == nil {
		err = said.Error()
	}
	if err != nil {
		return fmt.Errorf("say up to where the journal was read: %w", err)
	}
	return nil
}
