package main

import (
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/words"
)

func newAlerts() *cobra.Command {
	var limit int
	var follows bool
	cmd := &cobra.Command{
		Use: "alerts", Short: "List the orders that wait for an operator",
		Long: "Lists the open alerts, newest first: why the order stopped, every error, and what\ncan be done.",
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.IntVar(&limit, "limit", 100, "how many at most; 0 means all")
	var when span
	when.add(flags, "those that were raised")
	on := addWatch(flags, "until it is stopped")
	flags.BoolVarP(&follows, "follow", "f", false, "print those that are open, the oldest first, and go on with new ones until it is stopped; as data one document a line")
	onlyByFlag(flags, "limit", "follow")
	server := addServer(flags)
	out := addOutput(flags, "$.alerts[*].order")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if follows && *on {
			return usageError{errors.New("--follow prints new alerts, and --watch all that are open; use one of the two")}
		}
		if err := when.read(); err != nil {
			return err
		}
		if follows && when.given() {
			return usageError{errors.New("--since and --until go with no --follow, which prints those that are open and new ones")}
		}
		return server.talk(func(client *api.Client) error {
			if follows {
				return followAlerts(cmd, client, out, limit)
			}
			return showList(cmd, out, *on, "alerts", limit, func(n int, after string) ([]api.Alert, leftOut, string, error) {
				page, err := known(cmd.Context(), func() (*api.AlertPage, error) { return client.Alerts(cmd.Context(), n, after) })
				if n := len(page.Alerts); n > 0 && page.Alerts[n-1].At != nil && page.Alerts[n-1].At.Before(when.since) {
					page.Next = "" // what comes behind it is older
				}
				page.Alerts = slices.DeleteFunc(page.Alerts, func(a api.Alert) bool { return when.given() && !when.hasTime(a.At) })
				return page.Alerts, leftOut{LeftOut: page.LeftOut}, page.Next, err
			}, func(row func(...any), all []api.Alert) { listAlerts(row, out, all) })
		})
	}
	return cmd
}

// followAlerts prints the alerts that are open, at most limit of them, and goes on with new ones. A
// server that restarts is asked again, and tells of what came meanwhile and is still open.
func followAlerts(cmd *cobra.Command, client *api.Client, out *output, limit int) error {
	v, first := newView(cmd, out), true
	seed, seen := maphash.MakeSeed(), make(map[uint64]bool) // a few bytes of each
	return poll(cmd.Context(), tellAway(cmd), ends, func() (bool, error) {
		added, known := []api.Alert{}, make(map[uint64]bool)
		_, _, err := collect(0, func(n int, after string) ([]api.Alert, string, error) {
			if !first {
				n = 100
			}
			page, err := client.Alerts(cmd.Context(), n, after)
			if err != nil {
				return nil, "", err
			}
			next := page.Next
			for i := range page.Alerts {
				a := &page.Alerts[i]
				hash := maphash.String(seed, fmt.Sprint(a.Order, "\x00", words.Or(a.Step), "\x00", a.At))
				if known[hash] = true; seen[hash] {
					next = "" // what comes behind it is older
				} else {
					added = append(added, *a)
				}
			}
			return page.Alerts, next, nil
		})
		if err != nil {
			return false, err
		}
		maps.Copy(seen, known)
		if first && limit > 0 {
			added = added[:min(limit, len(added))]
		}
		first = false
		slices.Reverse(added)
		if !out.data() {
			words.InZone(added, out.zone())
		}
		for i := range added {
			if out.data() {
				err = out.printNext(cmd, map[string]any{"alerts": added[i : i+1]})
			} else {
				err = v.add(func(row func(...any)) { listAlerts(row, out, added[i:i+1]) })
			}
			if err != nil {
				return false, err
			}
		}
		return false, nil
	})
}

func listAlerts(row func(...any), out *output, all []api.Alert) {
	row("AT", "ORDER", "WORKFLOW", "STEP", "ALERT")
	for i := range all {
		a := &all[i]
		for n, line := range alertLines(a) {
			if n == 0 {
				row(out.when(a.At), a.Order, words.Workflow(a.Workflow, a.Version), words.Or(a.Step), line)
			} else {
				row("", "", "", "", line)
			}
		}
	}
}

// alertLines says why an operator is called, with every error, and what to do.
func alertLines(a *api.Alert) []string {
	lines := []string{a.Reason}
	if a.Masked {
		lines[0] = leftOutHere
	}
	if a.Parent != nil {
		lines = append(lines, "it "+words.Origin(a.Parent))
	}
	for i := range a.Errors {
		lines = append(lines, "error: "+words.PlacedFault(&a.Errors[i]))
	}
	if a.Action != nil {
		lines = append(lines, "to do: "+*a.Action)
	}
	return lines
}
