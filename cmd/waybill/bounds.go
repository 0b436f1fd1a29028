package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/pflag"

	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

// agentFlags are what an instance is told of how much agents take.
type agentFlags struct {
	rate   float64
	bounds map[string]int
}

func (a *agentFlags) add(flags *pflag.FlagSet) {
	flags.Float64Var(&a.rate, "agent-rate", lane.DefaultAgentRate, "how many requests a second an agent is believed to take of all partitions together, before it has answered any")
	flags.StringToIntVar(&a.bounds, "agent-bound", nil, "NAME=N: how many attempts may be under way at an agent at a time, of all partitions together; each has an equal part, rounded down, and one at least: of 4 partitions, 6 is 1 for each, 4 in all, and so is 2; repeat it for others")
}

// check says what is wrong with what was told.
func (a *agentFlags) check() error {
	if !(a.rate > 0 && a.rate <= 1e9) {
		return errors.New("--agent-rate must be more than 0, and at most 1e9")
	}
	for _, agent := range slices.Sorted(maps.Keys(a.bounds)) {
		if err := workflow.CheckAgent(agent); err != nil {
			return fmt.Errorf("--agent-bound: %w", err)
		}
		if a.bounds[agent] < 1 {
			return fmt.Errorf("--agent-bound %s=%d: it must be 1 or more", agent, a.bounds[agent])
		}
	}
	return nil
}
