package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/words"
	"github.com/waybill-dev/waybill/orchestrator/decide"
	"github.com/waybill-dev/waybill/orchestrator/timetable"
)

func newSchedule() *cobra.Command {
	return listGroup("schedule", "schedules", "Begin orders at times",
		newScheduleList, newScheduleApply(), newScheduleShow(), newSchedulePreview(),
		newScheduleAct(events.CommandPause, "Let a schedule begin no orders", `Pauses a schedule: it begins no orders until it is resumed, and the ticks of the pause
are skipped. Orders that have begun go on.`, "paused"),
		newScheduleAct(events.CommandResume, "Let a paused schedule go on", `Ends the pause of a schedule. Its orders that have not ended are asked to tell once more
how they stand, in case what they told was lost.`, "resumed"),
		newScheduleBackfill(),
		newScheduleAct(events.CommandDelete, "Have there be no schedule of a name any more", `Deletes a schedule. Orders that have begun go on. One of the same name that is applied
later is another: its orders have other ids.`, "deleted"),
	)
}

// scheduleAuthor is who acts on a schedule, and why.
func scheduleAuthor(flags *pflag.FlagSet, act *api.Act) {
	flags.StringVar(&act.Note, "note", "", "why; it stands in the schedule's history")
	flags.StringVar(&act.By, "by", "", "who acts (default: whom the server knows by --token-file or --cert, else user@host)")
	onlyByFlag(flags, "note")
}

// actOnObject has a command on a schedule or a limit carried out, and repeats it under its key as [repeatable] says.
func actOnObject[Object any](ctx context.Context, server *serverFlags, act *api.Act, do func(client *api.Client, key string) (*Object, error)) (o *Object, err error) {
	key := uuid.NewString()
	err = server.talk(func(client *api.Client) error {
		if act.By == "" && !server.named() {
			act.By = whoami()
		}
		tried := 0
		o, err = repeat(ctx, func() (*Object, error) {
			tried++
			return do(client, key)
		}, repeatable(false))
		if tried > 1 && isStatus(err, http.StatusNotFound) { // what is not there any more has no keys
			return fmt.Errorf("%w; if it was to be deleted, an attempt before this one did that", err)
		}
		return err
	})
	return o, err
}

// readFile reads a file, - being standard input.
func readFile(cmd *cobra.Command, file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(cmd.InOrStdin())
	}
	return os.ReadFile(file)
}

// scheduleFile reads a file with a schedule, - being standard input, and says all that is wrong with it.
func scheduleFile(cmd *cobra.Command, file string) (name string, s *events.Schedule, err error) {
	source, err := readFile(cmd, file)
	if err != nil {
		return "", nil, fmt.Errorf("read the schedule: %w", err)
	}
	if name, s, err = timetable.Parse(file, source); err != nil {
		return "", nil, err //nolint:wrapcheck // it says where
	}
	if err := decide.CheckSchedule(s); err != nil {
		return "", nil, fmt.Errorf("%s: schedule %s: %w", file, name, err)
	}
	return name, s, nil
}

func newScheduleApply() *cobra.Command {
	var act api.Act
	cmd := &cobra.Command{
		Use: "apply FILE", Short: "Have a schedule be as a file says",
		Long: `Has a schedule be as a file says, be it new or another than before: docs/schedules.md
has the keys. What waits goes on to, if the ticks stay the same; doing it again changes
nothing. - is standard input.`,
		Example: `  waybill schedule preview nightly.yaml
  waybill schedule apply nightly.yaml --note 'as agreed with accounting'`,
		Args: takes(one),
	}
	scheduleAuthor(cmd.Flags(), &act)
	server := addServer(cmd.Flags())
	out := addOutput(cmd.Flags(), "$.name")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, says, err := scheduleFile(cmd, args[0])
		if err != nil {
			return err
		}
		s, err := actOnObject(cmd.Context(), server, &act, func(client *api.Client, key string) (*api.Schedule, error) {
			return client.Apply(cmd.Context(), name, key, &api.Application{Act: act, ScheduleSpec: api.SpecOf(says)})
		})
		if err != nil {
			return err
		}
		return out.print(cmd, s, func(row func(...any)) { row("applied", name+",", "next tick", words.Clock(s.Next)) })
	}
	return cmd
}

func newScheduleAct(command, short, long, did string) *cobra.Command {
	var act api.Act
	cmd := &cobra.Command{Use: command + " NAME", Short: short, Long: long, Args: takes(one)}
	scheduleAuthor(cmd.Flags(), &act)
	server := addServer(cmd.Flags())
	out := addOutput(cmd.Flags(), "$.name")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := actOnObject(cmd.Context(), server, &act, func(client *api.Client, key string) (*api.Schedule, error) {
			return client.ActOnSchedule(cmd.Context(), args[0], key, command, &act)
		})
		if err != nil {
			return err
		}
		return out.print(cmd, s, func(row func(...any)) { row(did, args[0]) })
	}
	return cmd
}

func newScheduleBackfill() *cobra.Command {
	var act api.Act
	var from, to string
	var atOnce int
	cmd := &cobra.Command{
		Use: "backfill NAME --from TIME --to TIME", Short: "Have ticks begin orders that have passed",
		Long: `Has the ticks of a schedule begin orders that have passed, from one time to another: those
that began none, and once more those that did. They begin in turn, one after the other or
so many at a time, beside what the schedule begins by itself. The label backfill has the
number: waybill order list --where schedule=NAME --where backfill=N.`,
		Example: `  waybill schedule preview nightly-bill --after 2026-11-01T00:00:00Z
  waybill schedule backfill nightly-bill --from 2026-11-01T00:00:00Z --to 2026-11-07T00:00:00Z --at-once 5`,
		Args: takes(one),
	}
	cmd.Flags().StringVar(&from, "from", "", "the first time whose ticks are meant, as 2026-11-01T00:00:00Z")
	cmd.Flags().StringVar(&to, "to", "", "the last, which has passed")
	cmd.Flags().IntVar(&atOnce, "at-once", 1, "how many of its orders may be open, 1 to 100")
	onlyByFlag(cmd.Flags(), "from", "to", "at-once")
	scheduleAuthor(cmd.Flags(), &act)
	server := addServer(cmd.Flags())
	out := addOutput(cmd.Flags(), "$.name")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		request := api.BackfillRequest{AtOnce: atOnce}
		for _, flag := range []struct {
			name, text string
			to         *time.Time
		}{{"from", from, &request.From}, {"to", to, &request.To}} {
			var err error
			if *flag.to, err = timeFlag(flag.name, flag.text); err != nil {
				return err
			}
		}
		if atOnce < 1 || atOnce > events.MaxOpen {
			return usageError{fmt.Errorf("--at-once is from 1 to %d, this is %d", events.MaxOpen, atOnce)}
		}
		tried := 0
		s, err := actOnObject(cmd.Context(), server, &act, func(client *api.Client, key string) (*api.Schedule, error) {
			tried++
			request.Act = act
			return client.Backfill(cmd.Context(), args[0], key, &request)
		})
		if err != nil && tried > 0 && unsure(tried, err) {
			return fmt.Errorf("%w; see in `waybill order history @%s` whether it begins, before it is asked for again: that is another backfill", err, args[0])
		}
		if err != nil {
			return err
		}
		return out.print(cmd, s, func(row func(...any)) {
			row("backfill", s.Backfilled, "of", args[0], "begins")
			if s.Paused {
				row("the schedule is paused: it begins once it is resumed")
			}
		})
	}
	return cmd
}

// timeFlag is the time that a flag gives.
func timeFlag(name, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, usageError{fmt.Errorf("--%s is missing; give a time, as 2026-11-25T18:00:00Z", name)}
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, usageError{fmt.Errorf("--%s: %q is no time; write it as 2026-11-25T18:00:00Z", name, text)}
	}
	return at, nil
}

func newScheduleList() *cobra.Command {
	var limit int
	cmd := &cobra.Command{Use: "list", Short: "List schedules", Args: cobra.NoArgs}
	cmd.Flags().IntVar(&limit, "limit", 100, "how many at most; 0 means all")
	onlyByFlag(cmd.Flags(), "limit")
	on := addWatch(cmd.Flags(), "until it is stopped")
	server := addServer(cmd.Flags())
	out := addOutput(cmd.Flags(), "$.schedules[*].name")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return server.talk(func(client *api.Client) error {
			return showList(cmd, out, *on, "schedules", limit, func(n int, after string) ([]api.Schedule, leftOut, string, error) {
				page, err := known(cmd.Context(), func() (*api.SchedulePage, error) { return client.Schedules(cmd.Context(), n, after) })
				return page.Schedules, leftOut{LeftOut: page.LeftOut}, page.Next, err
			}, func(row func(...any), all []api.Schedule) {
				columns := []any{"SCHEDULE", "WHEN", "WORKFLOW", "NEXT", "OPEN", "STARTED", "SKIPPED", ""}
				if out.wide() {
					columns[7] = "STATE"
					columns = append(columns, "LAST", "OVERLAP", "CATCH-UP", "APPLIED BY")
				}
				row(columns...)
				for i := range all {
					s := &all[i]
					columns := []any{s.Name, words.When(&events.Schedule{Cron: s.Cron, Every: s.Every, Zone: s.Zone}), words.Workflow(s.Workflow, s.Version), out.when(s.Next), openOrders(s), s.Started, s.Skipped, scheduleState(s)}
					if out.wide() {
						columns = append(columns, words.Clock(s.Last), words.Dash(s.Overlap), words.Dash(s.CatchUp), words.Or(s.AppliedBy))
					}
					row(columns...)
				}
			})
		})
	}
	return cmd
}

// openOrders is how many orders of a schedule have not ended, with those of backfills.
func openOrders(s *api.Schedule) int {
	n := len(s.Open)
	for _, b := range s.Backfills {
		n += len(b.Open)
	}
	return n
}

// scheduleState is why a schedule begins nothing, as far as it can be told.
func scheduleState(s *api.Schedule) string {
	switch {
	case s.Held:
		return "held"
	case s.Paused:
		return "paused"
	case s.Next == nil:
		return "over"
	}
	return ""
}

func newScheduleShow() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show NAME", Short: "Show a schedule, and how it stands",
		Long: `Shows a schedule, and how it stands. What became of its ticks is its history:
waybill order history @NAME.`,
		Args: takes(one),
	}
	server := addServer(cmd.Flags())
	out := addOutput(cmd.Flags(), "$.name")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return server.talk(func(client *api.Client) error {
			s, err := known(cmd.Context(), func() (*api.Schedule, error) { return client.Schedule(cmd.Context(), args[0]) })
			if err != nil {
				return err
			}
			return printSchedule(cmd, out, s)
		})
	}
	return cmd
}

func printSchedule(cmd *cobra.Command, out *output, s *api.Schedule) error {
	return out.print(cmd, s, func(row func(...any)) {
		row("Schedule", s.Name)
		row("Incarnation", s.Incarnation)
		if state := scheduleState(s); state != "" {
			row("State", state)
		}
		row("When", words.When(&events.Schedule{Cron: s.Cron, Every: s.Every, Zone: s.Zone}))
		for _, of := range []struct{ name, value string }{
			{"Start", words.Clock(s.Start)}, {"End", words.Clock(s.End)}, {"Jitter", s.Jitter}, {"Overlap", s.Overlap}, {"Catch-up", s.CatchUp}, {"Window", s.Window},
		} {
			if of.value != "" && of.value != "-" {
				row(of.name, of.value)
			}
		}
		row("Workflow", words.Workflow(s.Workflow, s.Version))
		row("Input", words.Short(words.Payload(s.Input)))
		if len(s.Labels) > 0 {
			row("Labels", words.Labels(s.Labels))
		}
		if s.Masked {
			row("Masked", leftOutHere)
		}
		row("Applied by", words.Or(s.AppliedBy))
		row("Next", words.Clock(s.Next))
		if s.Begins != nil && s.Next != nil && !s.Begins.Equal(s.Next.Time) {
			row("Begins", words.Clock(s.Begins))
		}
		row("Last", words.Clock(s.Last))
		row("Started", s.Started)
		row("Skipped", s.Skipped)
		for _, t := range s.Open {
			text := t.Order
			if t.Recalled {
				text += "; it was recalled"
			}
			row("Open", text)
		}
		for _, b := range s.Backfills {
			row("Backfill", fmt.Sprintf("%d: %d of %d orders at a time have not ended, %d ticks are left until %s", b.Number, len(b.Open), b.AtOnce, b.Left, words.Clock(b.Last)))
			for _, t := range b.Open {
				row("Open", t.Order)
			}
		}
	})
}

// namesSchedule says that an argument names a schedule: there is no file of that name, and a schedule can
// have it.
func namesSchedule(name string) bool {
	info, err := os.Stat(name)
	return (err != nil || info.IsDir()) && events.CheckScheduleName(name) == nil
}

func newSchedulePreview() *cobra.Command {
	var count int
	var after string
	cmd := &cobra.Command{
		Use: "preview FILE|NAME", Short: "Show the next ticks of a schedule",
		Long: `Shows the next ticks of a schedule: that of a file, of which nothing is applied and
no server asked, or one that is there. It is a file where there is one of that name, and
where no schedule can have the name; ./NAME is always one.`,
		Example: `  waybill schedule preview nightly.yaml --count 5 --after 2026-10-24T00:00:00Z`,
		Args:    takes(one),
	}
	cmd.Flags().IntVar(&count, "count", 10, "how many at most")
	cmd.Flags().StringVar(&after, "after", "", "those after this time, as 2026-11-25T18:00:00Z (default: now)")
	onlyByFlag(cmd.Flags(), "count", "after")
	server := addServer(cmd.Flags())
	out := addOutput(cmd.Flags(), "$.ticks[*].order")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var from time.Time
		if after != "" {
			var err error
			if from, err = timeFlag("after", after); err != nil {
				return err
			}
		}
		if count < 1 || count > 1000 {
			return usageError{fmt.Errorf("--count is from 1 to 1000, this is %d", count)}
		}
		show := func(ticks *api.Ticks) error {
			return out.print(cmd, ticks, func(row func(...any)) {
				row("TICK", "BEGINS", "ORDER")
				for _, t := range ticks.Ticks {
					row(words.Clock(t.Tick), words.Clock(t.Begins), t.Order)
				}
			})
		}
		if namesSchedule(args[0]) {
			return server.talk(func(client *api.Client) error {
				ticks, err := known(cmd.Context(), func() (*api.Ticks, error) { return client.Preview(cmd.Context(), args[0], from, count) })
				if err != nil {
					return fmt.Errorf("there is no file %s here, and of a schedule of that name: %w", args[0], err)
				}
				return show(ticks)
			})
		}
		name, says, err := scheduleFile(cmd, args[0])
		if err != nil {
			return err
		}
		if from.IsZero() {
			from = time.Now()
		}
		ticks, err := api.PreviewOf(name, 1, says, from, count)
		if err != nil {
			return err //nolint:wrapcheck // it was checked
		}
		return show(&ticks)
	}
	return cmd
}
