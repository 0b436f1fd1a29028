package main

import (
	"fmt"
	"path"
	"time"

	"github.com/spf13/pflag"

	"github.com/waybill-dev/waybill/events"
)

// callerFlags are what an instance is told of its callers.
type callerFlags struct {
	topics []string
	claims bool
	keep   time.Duration
}

func (c *callerFlags) add(flags *pflag.FlagSet) {
	flags.BoolVar(&c.claims, "claimed-approvals", false, "take decisions of people who are not known, but say who they are; for trying things out")
	flags.DurationVar(&c.keep, "signal-keep", events.SignalKeep, "how long a signal is kept for a step that does not listen yet, and its id counts, if its sender does not say; the same for all instances")
	flags.StringSliceVar(&c.topics, "reply-to-topics", nil, "topics that submissions may name as replyTo, and steps may emit to, as names of files: shop.*; without any, all but those that are Waybill's own in some namespace")
}

// check says what is wrong with what was told.
func (c *callerFlags) check() error {
	if c.keep <= 0 {
		return fmt.Errorf("--signal-keep is %v; use more than 0s", c.keep)
	}
	for _, pattern := range c.topics {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
			return fmt.Errorf("--reply-to-topics %q: it is no pattern; use a topic's name, with * for any characters, ? for one, and [a-z] for one of some", pattern)
		}
	}
	return nil
}
