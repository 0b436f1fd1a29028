package main

import (
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waybill-dev/waybill/internal/webhooks"
	"github.com/waybill-dev/waybill/internal/words"
)

// webhookFlags say who is told of alerts.
type webhookFlags struct{ file string }

func (f *webhookFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.file, "webhooks", "", "YAML file that says who is told of alerts over HTTP. Give all instances of a namespace the same")
}

// read returns those that the file names; none without a file.
func (f *webhookFlags) read() ([]*webhooks.Webhook, error) {
	if f.file == "" {
		return nil, nil
	}
	return readWebhooks(f.file)
}

func readWebhooks(file string) ([]*webhooks.Webhook, error) {
	source, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("the file of webhooks: %w", err)
	}
	return webhooks.Read(file, source, os.LookupEnv)
}

func newWebhooks() *cobra.Command {
	return group("webhooks", "Tell others of alerts over HTTP", newWebhooksTest())
}

func newWebhooksTest() *cobra.Command {
	cmd := &cobra.Command{
		Use: "test FILE [NAME...]", Short: "Send a sample to the webhooks of a file, and print what they answer",
		Long: `Checks the file of ` + "`waybill serve --webhooks`" + `, sends each of its webhooks, or those that are
named, a signed sample, once, and prints what the receiver answered. Exits with 1 if one
did not answer with 2xx. A sample has the type waybill.alert.tested.`,
		Example: "  waybill webhooks test webhooks.yaml pager",
		Args:    takes(some),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		all, err := readWebhooks(args[0])
		if err != nil {
			return err
		}
		for _, name := range args[1:] {
			if !slices.ContainsFunc(all, func(w *webhooks.Webhook) bool { return w.Name == name }) {
				return usageError{fmt.Errorf("there is no webhook %q in %s", name, args[0])}
			}
		}
		failed := false
		for _, w := range all {
			if len(args) > 1 && !slices.Contains(args[1:], w.Name) {
				continue
			}
			began := time.Now()
			said, status, err := w.Test(cmd.Context(), userAgent())
			took := time.Since(began).Round(time.Millisecond)
			if err != nil {
				failed = true
				fmt.Fprintf(cmd.OutOrStdout(), "%s: not taken, after %s: %s\n", w.Name, took, words.Clean(err.Error()))
			} else {
				fmt.Fprintf(cmd.OutOrStdout(), "%s: taken, after %s, with %d\n", w.Name, took, status)
			}
			if len(said) > 0 {
				fmt.Fprintf(cmd.OutOrStdout(), "  %s\n", words.Clean(words.Line(string(said))))
			}
		}
		if failed {
			return errReported
		}
		return nil
	}
	return cmd
}
