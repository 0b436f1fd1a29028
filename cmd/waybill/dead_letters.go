package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/words"
)

func newDeadLetters() *cobra.Command {
	return listGroup("dead-letters", "", "See what was put aside, and put it back", newLettersList, newLettersShow(), newLettersReplay(), newLettersDiscard())
}

func newLettersList() *cobra.Command {
	var f api.LetterFilter
	var when span
	var limit int
	cmd := &cobra.Command{
		Use: "list", Short: "List the inputs that were put aside",
		Long: `Lists the inputs that nobody could read, or that belong to no order, the one first
that was put aside last. None leaves the list by itself: --since says how far it goes
back, and waybill dead-letters discard takes away what was dealt with.`,
		Example: `  waybill dead-letters list --since 1h
  waybill dead-letters list --topic orders --reason 'not a JSON object'`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	when.add(flags, "what was put aside")
	flags.Var(chooser{one: &f.Reason}, "reason", "only those whose reason has this text")
	flags.Var(chooser{one: &f.Topic}, "topic", "only what was on this input: orders, replies, commands, signals or internal")
	flags.Var(chooser{one: &f.Order}, "order", "only what has this order's id as its key")
	flags.IntVar(&limit, "limit", 100, "how many at most; 0 means all")
	onlyByFlag(flags, "reason", "topic", "order", "limit")
	server := addServer(flags)
	out := addOutput(flags, "$.deadLetters[*]: partition/offset")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := when.read(); err != nil {
			return err
		}
		f.Since = when.since
		return server.talk(func(client *api.Client) error {
			return printList(cmd, out, "deadLetters", limit, func(n int, after string) ([]api.DeadLetter, leftOut, string, error) {
				page, err := known(cmd.Context(), func() (*api.DeadLetterPage, error) { return client.DeadLetters(cmd.Context(), f, n, after) })
				page.DeadLetters = slices.DeleteFunc(page.DeadLetters, func(d api.DeadLetter) bool { return when.given() && !when.hasTime(d.At) })
				return page.DeadLetters, leftOut{}, page.Next, err
			}, func(row func(...any), all []api.DeadLetter) {
				columns := []any{"AT", "DEAD LETTER", "TOPIC", "ORDER", "REASON"}
				if out.wide() {
					columns = append(columns, "WRITTEN", "SOURCE", "BYTES")
				}
				row(columns...)
				for i := range all {
					d := &all[i]
					columns := []any{out.when(d.At), fmt.Sprintf("%d/%d", d.Partition, d.Offset), words.Or(d.Topic), bytesText(d.Key), out.short(d.Reason)}
					if out.wide() {
						columns = append(columns, words.Clock(d.Written), words.Or(d.Source), d.ValueSize)
					}
					row(columns...)
				}
			})
		})
	}
	return cmd
}

// bytesText is what a record has, in base64 where it is no text.
func bytesText(b *api.Bytes) string {
	switch {
	case b == nil:
		return "-"
	case b.Text == nil:
		return "base64:" + base64.StdEncoding.EncodeToString(b.Base64)
	}
	return *b.Text
}

func newLettersShow() *cobra.Command {
	var alone bool
	cmd := &cobra.Command{
		Use: "show PARTITION/OFFSET", Short: "Print all of an input that was put aside",
		Example: `  waybill dead-letters show 3/17
  waybill dead-letters show 3/17 --value >order.json`,
		Args: takes(one),
	}
	flags := cmd.Flags()
	flags.BoolVar(&alone, "value", false, "print its value alone, byte for byte; on a terminal only what is text")
	onlyByFlag(flags, "value")
	decode := addDecode(flags)
	server := addServer(flags)
	out := addOutput(flags, "$: partition/offset")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if alone && bool(*decode) {
			return usageError{errors.New("--value prints what was put aside, to be corrected and put back, and --decode what it means; use one of the two")}
		}
		partition, offset, err := readLetterName(args[0])
		if err != nil {
			return usageError{err}
		}
		return server.talk(func(client *api.Client) error {
			client = decode.asks(client)
			d, err := known(cmd.Context(), func() (*api.WholeDeadLetter, error) { return client.DeadLetter(cmd.Context(), partition, offset) })
			if err != nil {
				return err
			}
			tellUndecoded(cmd, d.Undecoded)
			if alone {
				value := plainBytes(d.Value)
				if isTerminal(cmd.OutOrStdout()) && !printable(value) {
					return errors.New("the value is not printable text, and a terminal might take it for what to do: write it to a file with >FILE, or print all of the dead letter with -o json, without --value")
				}
				_, err := cmd.OutOrStdout().Write(value)
				return err
			}
			return out.print(cmd, d, func(row func(...any)) {
				row("Put aside", words.Clock(d.At))
				row("Written", words.Clock(d.Written))
				row("Source", words.Or(d.Source))
				row("Reason", d.Reason)
				row("Key", bytesText(d.Key))
				if by := d.Discarded; by != nil {
					row("Discarded", words.Clock(by.At)+" by "+words.Or(by.By)+": "+words.Or(by.Note))
				}
				if d.DiscardedUnknown {
					row("Discarded", "it is not known yet; ask again")
				}
				for _, h := range d.Headers {
					row("Header", h.Key+": "+bytesText(h.Value))
				}
				row("Value", bytesText(d.Value))
				if d.Decoded != nil {
					row("Decoded", string(d.Decoded))
				}
			})
		})
	}
	return cmd
}

// printable says that bytes are text that a terminal shows as it is.
func printable(value []byte) bool {
	text := strings.ReplaceAll(string(value), "\r\n", "\n")
	return utf8.ValidString(text) && strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' && r != '\t' }) < 0
}

func plainBytes(b *api.Bytes) []byte {
	switch {
	case b == nil:
		return nil
	case b.Text == nil:
		return b.Base64
	}
	return []byte(*b.Text)
}

// readLetterName reads PARTITION/OFFSET.
func readLetterName(name string) (partition int32, offset int64, err error) {
	first, second, _ := strings.Cut(name, "/")
	p, noPartition := strconv.ParseInt(first, 10, 32)
	offset, noOffset := strconv.ParseInt(second, 10, 64)
	if noPartition != nil || noOffset != nil || p < 0 || offset < 0 {
		return 0, 0, fmt.Errorf("%q names no dead letter: write PARTITION/OFFSET as waybill dead-letters list has it, such as 3/17", name)
	}
	return int32(p), offset, nil
}

func newLettersReplay() *cobra.Command {
	var corrected string
	cmd := &cobra.Command{
		Use: "replay PARTITION/OFFSET", Short: "Put an input that was put aside back on its topic",
		Long: `Puts an input that was put aside back on the topic that it was on, in the partition of
its order, as it came or with another value. What would be put aside again for its form is
refused; that there is no order of its id is not looked at. The dead letter stays where it is, and can be put back again: that is the
input sent twice. What becomes of it is in the order's history, or it is another
dead letter.`,
		Example: `  waybill dead-letters replay 3/17
  waybill dead-letters show 3/17 --value >order.json  # and correct it
  waybill dead-letters replay 3/17 --value @order.json`,
		Args: takes(one),
	}
	flags := cmd.Flags()
	flags.StringVar(&corrected, "value", "", "the value instead of its own: JSON, @FILE, or - for standard input")
	onlyByFlag(flags, "value")
	server := addServer(flags)
	out := addOutput(flags, "$.order")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		partition, offset, err := readLetterName(args[0])
		if err != nil {
			return usageError{err}
		}
		var value []byte
		if cmd.Flags().Changed("value") {
			if value, err = readJSON("--value", corrected, cmd.InOrStdin()); err != nil {
				return err
			}
		}
		return server.talk(func(client *api.Client) error {
			r, err := client.Replay(cmd.Context(), partition, offset, value) // once: nobody knows whether it may be sent twice
			if err != nil {
				return err
			}
			if r.Unsigned {
				fmt.Fprintln(cmd.ErrOrStderr(), "Its author was known by a signature, which is over the value of before and was left out.")
			}
			return out.print(cmd, r, func(row func(...any)) {
				row(fmt.Sprintf("order %s: %s/%d/%d", r.Order, r.Topic, r.Partition, r.Offset))
			})
		})
	}
	return cmd
}

func newLettersDiscard() *cobra.Command {
	var act api.Act
	cmd := &cobra.Command{
		Use: "discard PARTITION/OFFSET...", Short: "Have inputs that were put aside not be listed any more",
		Long: `Has inputs that were put aside not be listed any more, because they were dealt with. A
mark on the topic says so, with who did it and why. Each can still be shown, and put
back, by its name.`,
		Example: `  waybill dead-letters discard 3/17 --note 'sent anew as o-18'`,
		Args:    takes(some),
	}
	flags := cmd.Flags()
	flags.StringVar(&act.By, "by", "", "who acts (default: whom the server knows by --token-file or --cert, else user@host)")
	flags.StringVar(&act.Note, "note", "", "why; it stands in the mark")
	onlyByFlag(flags, "note")
	server := addServer(flags)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, name := range args {
			if _, _, err := readLetterName(name); err != nil {
				return usageError{err}
			}
		}
		if act.By == "" && !server.named() {
			act.By = whoami()
		}
		return server.talk(func(client *api.Client) error {
			failed := 0
			for _, name := range args {
				partition, offset, err := readLetterName(name)
				if err == nil {
					err = client.Discard(cmd.Context(), partition, offset, &act)
				}
				if err != nil {
					if err = fmt.Errorf("dead letter %s was not discarded: %w", name, err); len(args) == 1 {
						return err
					}
					failed++
					fmt.Fprintln(cmd.ErrOrStderr(), words.Clean(err.Error()))
					continue
				}
				fmt.Fprintf(cmd.OutOrStdout(), "dead letter %s is not listed any more\n", name)
			}
			if failed > 0 {
				return fmt.Errorf("%d of %d dead letters were not discarded", failed, len(args))
			}
			return nil
		})
	}
	return cmd
}
