package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
)

// migrateFlags add to which version an order goes, and what its steps are called there.
func migrateFlags(name string) func(*pflag.FlagSet) func(*cobra.Command, *events.Command) error {
	return func(flags *pflag.FlagSet) func(*cobra.Command, *events.Command) error {
		var version int
		var names []string
		flags.IntVar(&version, name, 0, "the version of its workflow as one of which the order goes on")
		flags.StringArrayVar(&names, "map", nil, "OLD=NEW: what a step is called there; for each that has begun and is called something else")
		onlyByFlag(flags, name, "map")
		return func(cmd *cobra.Command, c *events.Command) error {
			given := cmd.Flags().Changed(name)
			switch {
			case given && version < 1:
				return usageError{fmt.Errorf("--%s %d: versions begin with 1", name, version)}
			case !given && c.Command == events.CommandMigrate:
				return usageError{fmt.Errorf("say to which version with --%s", name)}
			case !given && len(names) > 0:
				return usageError{fmt.Errorf("--map says what steps are called in another version: say which with --%s", name)}
			}
			c.ToVersion = version
			for _, pair := range names {
				old, now, ok := strings.Cut(pair, "=")
				if _, twice := c.Map[old]; !ok || old == "" || now == "" || twice {
					return usageError{fmt.Errorf("--map %q: write OLD=NEW, once for each step", pair)}
				}
				if c.Map == nil {
					c.Map = make(map[string]string)
				}
				c.Map[old] = now
			}
			return nil
		}
	}
}

// errForbidden says that not all orders can migrate.
var errForbidden = errors.New("not all of these orders can migrate; what forbids it is listed")

// foresee prints what would become of orders that migrate, what forbids it, and which partitions could not be looked at.
func foresee(cmd *cobra.Command, client *api.Client, ids []string, c *events.Command, left *api.LeftOut, out *output) error {
	plans := make([]*api.Migration, 0, len(ids))
	fit := 0
	for _, id := range ids {
		plan, err := known(cmd.Context(), func() (*api.Migration, error) { return client.Migration(cmd.Context(), id, c.ToVersion, c.Map) })
		if err != nil {
			return fmt.Errorf("order %s: %w", id, err)
		}
		if plans = append(plans, plan); len(plan.Forbids) == 0 {
			fit++
		}
	}
	foreseen := struct {
		Matched    int              `json:"matched"`
		CanMigrate int              `json:"canMigrate"`
		Orders     []*api.Migration `json:"orders"`
		api.LeftOut
	}{len(plans), fit, plans, *left}
	err := out.print(cmd, foreseen, func(row func(...any)) {
		row(fmt.Sprintf("%d of %d orders can migrate to version %d.", fit, len(plans), c.ToVersion))
		if len(plans) == 0 {
			return
		}
		row()
		row("ORDER", "FROM", "STEP", "WHAT BECOMES OF IT, OR FORBIDS IT")
		for _, plan := range plans {
			told(row, plan)
		}
	})
	if err == nil && fit < len(plans) {
		err = errForbidden
	}
	return err
}

// told prints the rows of one order.
func told(row func(...any), plan *api.Migration) {
	for _, why := range plan.Forbids {
		step := "-"
		if why.Step != nil {
			step = *why.Step
		}
		row(plan.OrderID, plan.Version, step, "forbidden: "+why.Reason)
	}
	if len(plan.Forbids) > 0 {
		return
	}
	if len(plan.Steps) == 0 && len(plan.Changed) == 0 {
		row(plan.OrderID, plan.Version, "-", "its steps stay")
	}
	for _, s := range plan.Steps {
		what := s.Change
		switch s.Change {
		case "renamed":
			what = "is what " + *s.Was + " is called"
		case "renewed":
			what = "begins anew, under a new idempotency key"
		}
		row(plan.OrderID, plan.Version, s.Step, what)
	}
	if len(plan.Changed) > 0 {
		row(plan.OrderID, plan.Version, "-", "changed: "+strings.Join(plan.Changed, ", "))
	}
}

// those are orders that were named, as those that a filter finds.
func those(ctx context.Context, client *api.Client, ids []string) (orders []api.Summary, _ error) {
	for _, id := range ids {
		o, err := known(ctx, func() (*api.Order, error) { return client.Order(ctx, id) })
		if err != nil {
			return nil, fmt.Errorf("order %s: %w", id, err)
		}
		orders = append(orders, o.Summary)
	}
	return orders, nil
}
