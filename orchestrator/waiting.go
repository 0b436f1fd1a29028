package orchestrator

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/orchestrator/proof"
	"github.com/waybill-dev/waybill/projections"
)

// Waits is what a step, or its undo, waits for.
type Waits struct {
	Since time.Time // from which it could have begun
	Agent string
	// Place is nil where the order is not in a partition that this instance owns, or the
	// lane does not keep the step in its line (yet).
	Place *Place
	// SilentSince is since when the agent answers nothing in time, as the journal says; zero if
	// it does.
	SilentSince time.Time
}

// Place is that of a step in the line before its agent, in its partition.
type Place struct {
	Before int // how many leave before it, but for the oldest, which leave from time to time
	lane.Agent
}

// Waits returns what a step of an order waits for, nil if it does not wait.
func (i *Instance) Waits(o *projections.Order, s *projections.Step) (*Waits, error) {
	flow := i.catalogue.find(o.Workflow, o.Version)
	due := s.Due
	if due.IsZero() && s.Undo != nil {
		due = s.Undo.Due
	}
	if flow == nil || o.Hold != nil || s.State.Idle() || due.IsZero() || due.After(now()) {
		return nil, nil
	}
	def, found := flow.Step(s.Name)
	if !found || !def.Asks() {
		return nil, nil
	}
	p := i.Partition(o.ID)
	silent, err := i.store.SilentSince(p, def.Agent)
	if err != nil {
		return nil, fmt.Errorf("who is silent for partition %d: %w", p, err)
	}
	w := &Waits{Since: due, Agent: def.Agent, SilentSince: silent}
	if l := i.members.lanes()[p]; l != nil {
		if n, found := l.Before(o.ID, s.Known()); found {
			w.Place = &Place{n, l.Agents()[def.Agent]}
		}
	}
	return w, nil
}

// Callers are those whose own topics lanes of this instance owe status messages, by topic:
// since the first, and failing if one of them says so.
func (i *Instance) Callers() map[string]lane.Caller {
	all := make(map[string]lane.Caller)
	for _, l := range i.members.lanes() {
		for topic, c := range l.Callers() {
			sum := all[topic]
			sum.Failing = sum.Failing || c.Failing
			if sum.Since.IsZero() || !c.Since.IsZero() && c.Since.Before(sum.Since) {
				sum.Since = c.Since
			}
			all[topic] = sum
		}
	}
	return all
}

// Agents are those of which the lanes of this instance have asked something, by name, each
// of all partitions together ([lane.Agent.Add]).
func (i *Instance) Agents() map[string]lane.Agent {
	sums := make(map[string]lane.Agent)
	for _, l := range i.members.lanes() {
		for name, a := range l.Agents() {
			sum := sums[name]
			sum.Add(a)
			sums[name] = sum
		}
	}
	return sums
}

// Overdue is since when that was due which was due first of what the lanes of this instance are to decide on; zero if nothing is. See
// [lane.Lane.Overdue].
func (i *Instance) Overdue() time.Time { return i.first(owner.Overdue) }

// Blocked is since when a transaction keeps readers of the partitions of this instance from going on; zero if none does. See
// [lane.Lane.Blocked].
func (i *Instance) Blocked() time.Time { return i.first(owner.Blocked) }

// first is the earliest that one of its lanes says; zero if none says one.
func (i *Instance) first(says func(owner) time.Time) (first time.Time) {
	for _, l := range i.members.lanes() {
		if since := says(l); first.IsZero() || !since.IsZero() && since.Before(first) {
			first = since
		}
	}
	return first
}

// Meters measure what its lanes commit.
func (i *Instance) Meters() *lane.Meters { return i.cfg.Meters }

// Counts is how much waits in the partitions that this instance serves, but for so many of which that is not
// known yet.
func (i *Instance) Counts() (sum projections.Counts, missing int) {
	return addUp(maps.Keys(i.members.lanes()), i.store.Counts)
}

func addUp(partitions iter.Seq[int32], counts func(int32) (projections.Counts, bool)) (sum projections.Counts, missing int) {
	for p := range partitions {
		if of, known := counts(p); known {
			sum.Add(of)
		} else {
			missing++
		}
	}
	return sum, missing
}

// mostLimits is how many limits [Instance.OwnLimits] reads.
const mostLimits = 1000

// OwnLimits are the records of the limits whose homes are in the partitions that this instance serves, by
// partition and name: the first thousand of them.
func (i *Instance) OwnLimits(ctx context.Context) ([]*projections.Order, error) {
	own, others := i.members.lanes(), []int32(nil)
	for p := range i.partitions {
		if own[p] == nil {
			others = append(others, p)
		}
	}
	all, _, err := i.store.Limits(ctx, i.partitions, others, nil, mostLimits)
	return all, err
}

// Fold is how far this instance is with the journal of a partition.
type Fold struct {
	Folded int64 // up to which offset it has it
	Behind int64 // how many records are missing up to its end, -1 if that is not known
}

// Folds are those of all partitions.
func (i *Instance) Folds() ([]Fold, error) {
	heads, err := i.store.Heads(i.partitions)
	if err != nil {
		return nil, err
	}
	all := make([]Fold, len(heads))
	for p := range heads {
		behind, known := i.progress.lag(int32(p))
		if !known {
			behind = -1
		}
		all[p] = Fold{heads[p].Offset, behind}
	}
	return all, nil
}

// Repeats is what replies did with the tokens of their requests since the instance began, by
// agent: those that its lanes read.
func (i *Instance) Repeats() map[string]lane.Repeat {
	all := make(map[string]lane.Repeat)
	i.repeats.Each(func(agent string, is lane.Repeat) { all[agent] = is })
	return all
}

// Setting is what agents' replies need, of requests that are sent from now on: nothing as long
// as a partition that is known here is of a format that has no tokens.
func (i *Instance) Setting() func(agent string) proof.Setting {
	if i.cfg.Keys == nil || !i.proves() {
		return (*proof.Keys)(nil).Setting
	}
	return i.cfg.Keys().Setting
}

// proves says that every partition that is known here is of a format with tokens and
// signatures: before, a signature would be of a command that nobody remembers.
func (i *Instance) proves() bool {
	lowest, _, err := i.formats()
	return err == nil && lowest >= events.ProofFormat
}

// AgentNames are those that registered workflows name, sorted; of the visible ones, if that is
// not nil.
func (i *Instance) AgentNames(visible func(workflow string) bool) []string {
	return i.catalogue.agents(visible)
}

// Keys are the ids of the namespace's keys, the first of which signs.
func (i *Instance) Keys() []string {
	if i.cfg.Keys == nil {
		return []string{}
	}
	return i.cfg.Keys().IDs()
}

// Began is when the instance did.
func (i *Instance) Began() time.Time { return i.began }
