package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/words"
	"github.com/waybill-dev/waybill/projections"
)

const (
	// completeWithin is how long a shell waits for what could stand at the cursor.
	completeWithin = time.Second
	// completeFrom is how much is asked for: of so many orders those are offered that were accepted last.
	completeFrom = 1000
	// completeMost is how many orders are offered.
	completeMost = 50
)

// offer asks a server what could stand at the cursor.
type offer func(ctx context.Context, cmd *cobra.Command, client *api.Client) ([]cobra.Completion, error)

// offers are what the first arguments of commands can be, by the command.
var offers = map[string]offer{
	"submit":               offerWorkflows,
	"order":                offerOrders, // all but those that act on orders in some state
	"order resubmit":       offerOrdersIn(projections.Error),
	"order release":        offerOrdersIn(projections.Error),
	"schedule":             offerSchedules,
	"limit":                offerLimits,
	"workflow show":        offerWorkflows,
	"workflow versions":    offerWorkflows,
	"workflow retire":      offerVersions,
	"dead-letters show":    offerLetters,
	"dead-letters replay":  offerLetters,
	"dead-letters discard": offerLetters,
}

// addCompletion has shells complete what commands take, by asking the server.
func addCompletion(cmd *cobra.Command, path string) {
	for _, sub := range cmd.Commands() {
		addCompletion(sub, strings.TrimSpace(path+" "+sub.Name()))
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		var complete cobra.CompletionFunc
		switch value := f.Value.(type) {
		case *oneOf:
			complete = cobra.FixedCompletions(value.allowed, cobra.ShellCompDirectiveNoFileComp)
		case *output:
			complete = cobra.FixedCompletions(append(slices.Clone(value.format.allowed), "jsonpath="), cobra.ShellCompDirectiveNoFileComp)
		default:
			switch {
			case f.Name == "context":
				complete = completeContexts
			case f.Name == "workflow" && cmd.Flags().Lookup("server") != nil:
				complete = completeBy(offerWorkflows)
			case f.Name == "signal" && path == "signals":
				complete = completeBy(offerSignals)
			default:
				return
			}
		}
		if err := cmd.RegisterFlagCompletionFunc(f.Name, complete); err != nil {
			panic(err) // there is no such flag
		}
	})
	_, arguments, _ := strings.Cut(cmd.Use, " ")
	if arguments == "" || strings.HasPrefix(arguments, "FILE...") || arguments == "FILE" {
		return
	}
	parent, _, _ := strings.Cut(path, " ")
	ask, found := offers[path]
	if !found {
		ask, found = offers[parent]
	}
	switch {
	case path == "context use" || path == "context set":
		cmd.ValidArgsFunction = once(cmd, completeContexts)
	case found && cmd.Flags().Lookup("server") != nil:
		cmd.ValidArgsFunction = once(cmd, completeBy(ask))
	}
}

// once completes the first argument alone, unless the command takes several of a kind.
func once(of *cobra.Command, complete cobra.CompletionFunc) cobra.CompletionFunc {
	several := strings.HasSuffix(of.Use, "]...")
	files := strings.Contains(of.Use, "FILE|")
	return func(cmd *cobra.Command, args []string, text string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 && !several {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		all, directive := complete(cmd, args, text)
		if files {
			directive &^= cobra.ShellCompDirectiveNoFileComp
		}
		return all, directive
	}
}

// completeBy asks the server that the command would ask. Where that fails, or takes long, there is
// nothing to complete, and nothing is said.
func completeBy(ask offer) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, text string) (all []cobra.Completion, _ cobra.ShellCompDirective) {
		const directive = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
		if configure(cmd) != nil || applyContext(cmd) != nil {
			return nil, directive
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
		defer cancel()
		err := serverOf(cmd.Flags()).talk(func(client *api.Client) (err error) {
			all, err = ask(ctx, cmd, client)
			return err
		})
		if err != nil {
			return nil, directive
		}
		return slices.DeleteFunc(all, func(c cobra.Completion) bool {
			name, _, _ := strings.Cut(c, "\t")
			return !strings.HasPrefix(name, text) || slices.Contains(args, name)
		}), directive
	}
}

// serverOf is which instance a command talks to, by its flags.
func serverOf(flags *pflag.FlagSet) *serverFlags {
	value := func(name string) string { return flags.Lookup(name).Value.String() }
	return &serverFlags{
		server: value("server"), token: value("token"), tokenFile: value("token-file"),
		ca: value("ca"), cert: value("cert"), key: value("key"),
	}
}

// harmless is a name that no shell takes for more than a word. What shells are offered some insert as it
// is, and some evaluate.
var harmless = regexp.MustCompile(`^[A-Za-z0-9._:@/+=,][A-Za-z0-9._:@/+=,-]*$`)

// described is what can be completed, with what is said of it. Names that are not harmless are left out.
func described(all []cobra.Completion, name, format string, args ...any) []cobra.Completion {
	if !harmless.MatchString(name) {
		return all
	}
	return append(all, cobra.CompletionWithDesc(name, words.Clean(fmt.Sprintf(format, args...))))
}

// offerOrders offers orders in any state.
func offerOrders(ctx context.Context, cmd *cobra.Command, client *api.Client) ([]cobra.Completion, error) {
	return offerOrdersIn("")(ctx, cmd, client)
}

// offerOrdersIn offers the newest orders in a state of the first that are listed.
func offerOrdersIn(state projections.State) offer {
	return func(ctx context.Context, _ *cobra.Command, client *api.Client) (all []cobra.Completion, _ error) {
		page, err := client.Orders(ctx, api.Filter{State: string(state)}, completeFrom, "")
		if err != nil {
			return nil, err
		}
		at := func(o api.Summary) time.Time {
			if o.AcceptedAt == nil {
				return time.Time{}
			}
			return o.AcceptedAt.Time
		}
		slices.SortStableFunc(page.Orders, func(a, b api.Summary) int { return at(b).Compare(at(a)) })
		for _, o := range page.Orders[:min(completeMost, len(page.Orders))] {
			all = described(all, o.OrderID, "%s, %s", o.ProcessState, words.Workflow(o.Workflow, o.Version))
		}
		return all, nil
	}
}

// version is one of a workflow, as far as its definition says that.
type version struct {
	Workflow string `json:"workflow"`
	Version  int    `json:"version"`
}

func versions(ctx context.Context, client *api.Client) ([]version, error) {
	registered, err := client.Workflows(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]version, len(registered.Workflows))
	for i, source := range registered.Workflows {
		if err := json.Unmarshal(source, &all[i]); err != nil {
			return nil, fmt.Errorf("read a workflow: %w", err)
		}
	}
	return all, nil
}

func offerVersions(ctx context.Context, _ *cobra.Command, client *api.Client) (all []cobra.Completion, _ error) {
	known, err := versions(ctx, client)
	for _, v := range known {
		all = described(all, words.Workflow(v.Workflow, v.Version), "")
	}
	return all, err
}

func offerWorkflows(ctx context.Context, _ *cobra.Command, client *api.Client) (all []cobra.Completion, _ error) {
	known, err := versions(ctx, client)
	names := make(map[string]bool)
	for _, v := range known {
		names[v.Workflow] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		all = described(all, name, "")
	}
	return all, err
}

// offerSignals offers those for which steps wait that are listed first.
func offerSignals(ctx context.Context, _ *cobra.Command, client *api.Client) (all []cobra.Completion, _ error) {
	page, err := client.SignalWaits(ctx, "", "", completeFrom, "")
	names := make(map[string]bool)
	for i := range page.Waits {
		for _, name := range page.Waits[i].Signals {
			names[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		all = described(all, name, "")
	}
	return all, err
}

func offerSchedules(ctx context.Context, _ *cobra.Command, client *api.Client) (all []cobra.Completion, _ error) {
	page, err := client.Schedules(ctx, completeFrom, "")
	for i := range page.Schedules {
		s := &page.Schedules[i]
		all = described(all, s.Name, "%s", words.When(&events.Schedule{Cron: s.Cron, Every: s.Every, Zone: s.Zone}))
	}
	return all, err
}

func offerLimits(ctx context.Context, _ *cobra.Command, client *api.Client) (all []cobra.Completion, _ error) {
	page, err := client.Limits(ctx, completeFrom, "")
	for i := range page.Limits {
		all = described(all, page.Limits[i].Name, "")
	}
	return all, err
}

func offerLetters(ctx context.Context, _ *cobra.Command, client *api.Client) (all []cobra.Completion, _ error) {
	page, err := client.DeadLetters(ctx, api.LetterFilter{}, completeMost, "")
	for i := range page.DeadLetters {
		d := &page.DeadLetters[i]
		all = described(all, fmt.Sprintf("%d/%d", d.Partition, d.Offset), "%s", words.Short(d.Reason))
	}
	return all, err
}

func completeContexts(*cobra.Command, []string, string) (all []cobra.Completion, _ cobra.ShellCompDirective) {
	known, err := readContexts()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for _, name := range slices.Sorted(maps.Keys(known.Contexts)) {
		all = described(all, name, "%s", known.Contexts[name].Server)
	}
	return all, cobra.ShellCompDirectiveNoFileComp
}
