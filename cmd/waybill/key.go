package main

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/identity"
)

func newKey() *cobra.Command {
	return group("key", "Make keys for the HTTP API, and for a namespace", newKeyNew(), newKeyNamespace())
}

func newKeyNamespace() *cobra.Command {
	var id string
	cmd := &cobra.Command{
		Use: "namespace", Short: "Make a key of a namespace, as the file of its keys has it",
		Long: `Makes a key by which the instances of a namespace know who acted, and that an agent's
reply is one, and prints it as the file of ` + "`waybill serve --namespace-keys`" + ` has it. It is
a secret: only instances may read the file.`,
		Example: `  umask 077; { echo keys:; waybill key namespace --id 2030-01; } >namespace-keys.yaml`,
		Args:    cobra.NoArgs,
	}
	cmd.Flags().StringVar(&id, "id", "", "name of the key, which none of the namespace had before; it stands in requests to agents")
	onlyByFlag(cmd.Flags(), "id")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		entry, err := identity.NewNamespaceKey(id)
		if err != nil {
			return usageError{fmt.Errorf("--id: %w", err)}
		}
		fmt.Fprint(cmd.OutOrStdout(), entry)
		return nil
	}
	return cmd
}

func newKeyNew() *cobra.Command {
	var id, subject, expires string
	var roles, workflows []string
	cmd := &cobra.Command{
		Use: "new", Short: "Make a key, and the lines for the access file",
		Long: `Makes a key for the HTTP API, and prints it on standard output. It is nowhere else:
who loses it makes another. On standard error are the lines for the access file of
` + "`waybill serve --access`" + `, which have a hash of the key and not the key.`,
		Example: `  waybill key new --id ci --role submitter --workflow 'order-*' --expires 90d >ci.key
  waybill submit order-fulfilment --token-file ci.key`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&id, "id", "", "name of the key, a part of it; no other key of the file has it")
	flags.StringSliceVar(&roles, "role", nil, "what who has it may: "+identity.RoleNames()+"; several with commas")
	flags.StringSliceVar(&workflows, "workflow", nil, "for which workflows, by their names; * stands for any text (default: all)")
	flags.StringVar(&subject, "subject", "", "under which name it acts (default: the id)")
	flags.Var(chooser{one: &expires}, "expires", "after how long it is taken no more, such as 90d or 12h, or a time such as 2030-01-02T15:04:05Z (default: never)")
	onlyByFlag(flags, "id", "role", "workflow", "subject", "expires")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if len(roles) == 0 {
			return usageError{errors.New("say what the key is for with --role: " + identity.RoleNames())}
		}
		for _, role := range roles {
			if err := identity.CheckRole(role); err != nil {
				return usageError{fmt.Errorf("--role: %w", err)}
			}
		}
		if slices.Contains(roles, string(identity.Admin)) && len(workflows) > 0 {
			return usageError{errors.New("--workflow: an admin is not limited to workflows")}
		}
		if flags.Changed("workflow") && len(workflows) == 0 {
			return usageError{fmt.Errorf("--workflow: %w for all workflows", errNoChoice)}
		}
		for _, pattern := range workflows {
			if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
				return usageError{fmt.Errorf("--workflow: %q is no pattern for names, such as order-*", pattern)}
			}
		}
		until, err := expiry(expires, time.Now())
		if err != nil {
			return usageError{err}
		}
		key, hash, err := identity.NewKey(id)
		if err != nil {
			return usageError{fmt.Errorf("--id: %w", err)}
		}
		var entry strings.Builder
		line := func(format string, args ...any) { fmt.Fprintf(&entry, "    "+format+"\n", args...) }
		fmt.Fprintf(&entry, "  - id: %q\n", id)
		if subject != "" {
			line("subject: %q", subject)
		}
		line("hash: %s", hash)
		line("roles: [%s]", strings.Join(roles, ", "))
		if len(workflows) > 0 {
			quoted := make([]string, len(workflows))
			for n, pattern := range workflows {
				quoted[n] = strconv.Quote(pattern)
			}
			line("workflows: [%s]", strings.Join(quoted, ", "))
		}
		if !until.IsZero() {
			line("expires: %s", until.UTC().Format(time.RFC3339))
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "Below keys: in the access file:\n\n%s\nThe key, which is shown this once:\n", &entry)
		fmt.Fprintln(cmd.OutOrStdout(), key)
		return nil
	}
	return cmd
}

// expiry reads from now on how long, or a time; zero is never.
func expiry(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil && at.After(now) {
		return at, nil
	}
	if days, err := strconv.Atoi(strings.TrimSuffix(text, "d")); err == nil && strings.HasSuffix(text, "d") && days > 0 && days < 100_000 {
		return now.AddDate(0, 0, days), nil
	}
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return now.Add(d), nil
	}
	return time.Time{}, fmt.Errorf("--expires: %q is no time to come; use a number of days such as 90d, a duration such as 12h, or a time such as 2030-01-02T15:04:05Z", text)
}
