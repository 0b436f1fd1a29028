package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/words"
)

const (
	// pollEvery is how often a server is asked what has changed.
	pollEvery = time.Second
	// pollSlowest is how seldom one is asked that does not answer.
	pollSlowest = 15 * time.Second
	// pollPatience is how long it may not answer: a restart takes less.
	pollPatience = 5 * time.Minute
)

// poll asks again and again, until it is done, ctx ends, or an answer is an error that does not
// pass. A server that goes away is asked ever more seldom, and given up after a while; away is told
// once why, and since when nothing was answered, and once there is an answer again, with no error.
// Whether the first error ends it, first says.
func poll(ctx context.Context, away func(since time.Time, why error), first func(error) error, ask func() (done bool, err error)) error {
	pause, lost, heard := pollEvery, time.Time{}, time.Now()
	for {
		done, err := ask()
		if ctx.Err() != nil {
			return nil //nolint:nilerr // whoever stops it has seen enough
		}
		if !lost.IsZero() && answers(err) {
			away(heard, nil)
		}
		if done {
			return nil
		}
		if err != nil && first != nil {
			if end := first(err); end != nil {
				return end
			}
		}
		first = nil
		switch problem, answered := errors.AsType[*api.Problem](err); {
		case answers(err):
			pause, lost, heard = pollEvery, time.Time{}, time.Now()
		case !passes(err):
			return err
		case !lost.IsZero() && time.Since(lost) > pollPatience:
			return fmt.Errorf("gave up after %s: %w", pollPatience, err)
		default:
			if lost.IsZero() {
				lost = time.Now()
				away(heard, err)
			}
			if pause = min(2*pause, pollSlowest); answered {
				pause = max(pause, min(problem.RetryAfter, pollPatience))
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// answers says that a server tells what there is. What is not there may come.
func answers(err error) bool {
	problem, answered := errors.AsType[*api.Problem](err)
	return err == nil || answered && problem.Status == http.StatusNotFound
}

// tellAway has a poll say on standard error that a server is away, and that it is back.
func tellAway(cmd *cobra.Command) func(since time.Time, why error) {
	return func(since time.Time, why error) {
		if why == nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "The server answers again, after %s.\n", time.Since(since).Round(time.Second))
			return
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "Nothing is known of what changed since %s, and it is asked again: %s\n", words.Clock(&api.Time{Time: since.UTC()}), words.Clean(why.Error()))
	}
}

// ends is for who asks for what must be there already.
func ends(err error) error { return err }

// addWatch adds the flag that has a command show anew what changes.
func addWatch(flags *pflag.FlagSet, until string) *bool {
	on := flags.BoolP("watch", "w", false, "show anew what changes, "+until+": on a terminal in place, else only what changed, as data one document a line")
	onlyByFlag(flags, "watch")
	return on
}

// watchList shows what a listing has, and says what it lacks, whenever that changes, until it is stopped.
// As data it stands under the key.
func watchList[T any](cmd *cobra.Command, out *output, key string, fetch func() (all []T, lacks []string, err error), table func(row func(...any), all []T)) error {
	v := newView(cmd, out)
	var before map[string]bool
	var names []string // ids that were listed
	var lacked []string
	return poll(cmd.Context(), tellAway(cmd), ends, func() (bool, error) {
		all, lacks, err := fetch()
		if err != nil {
			return false, err
		}
		if v.inPlace {
			out.ages = !out.wide() && !out.utc
			words.InZone(all, out.zone())
			return false, v.draw(func(row func(...any)) {
				for _, line := range lacks { // on top, where there is room
					row(line)
				}
				table(row, all)
			})
		}
		for _, line := range lacks {
			if !slices.Contains(lacked, line) {
				fmt.Fprintln(cmd.ErrOrStderr(), line)
			}
		}
		if len(lacked) > 0 && len(lacks) == 0 {
			fmt.Fprintln(cmd.ErrOrStderr(), "Nothing is left out any more.")
		}
		lacked = lacks
		now, changed := make(map[string]bool, len(all)), []T{}
		for _, item := range all {
			text, err := encodeJSON(item)
			if err != nil {
				return false, err
			}
			if now[string(text)] = true; !before[string(text)] {
				changed = append(changed, item)
			}
		}
		first := before == nil
		before = now
		are, err := out.namesOf(map[string]any{key: all})
		if err != nil {
			return false, err
		}
		listed := make(map[string]bool, len(are))
		for _, name := range are {
			listed[name] = true
		}
		for _, name := range names {
			if !listed[name] {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s is listed no more.\n", words.Clean(name))
			}
		}
		names = are
		switch {
		case len(changed) == 0 && !first:
			return false, nil
		case out.data():
			return false, out.printNext(cmd, map[string]any{key: changed})
		}
		words.InZone(changed, out.zone())
		return false, v.add(func(row func(...any)) { table(row, changed) })
	})
}

// view shows tables again and again.
type view struct {
	out     io.Writer
	inPlace bool // on a terminal
	file    *os.File
	columns widths
	headed  bool
	lines   map[string]bool
}

func newView(cmd *cobra.Command, out *output) *view {
	v := &view{out: cmd.OutOrStdout()}
	if isTerminal(v.out) && !out.data() {
		v.file, v.inPlace = v.out.(*os.File)
	}
	return v
}

// draw shows a table in the place of what was shown before, as much of it as there is room for.
func (v *view) draw(table func(row func(...any))) error {
	var b bytes.Buffer
	if err := printTable(&b, table); err != nil {
		return err
	}
	width, height, err := term.GetSize(int(v.file.Fd()))
	if err != nil {
		return fmt.Errorf("look at the terminal: %w", err)
	}
	_, err = v.out.Write(frame(b.String(), width, height))
	return err
}

// frame is what has a terminal show a text at its top, and nothing else.
func frame(text string, width, height int) []byte {
	if width <= 0 || height <= 0 { // nobody told the terminal its size
		width, height = 80, 24
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if room := max(height-1, 1); len(lines) > room {
		left := len(lines) - room + 1
		lines = append(lines[:room-1], fmt.Sprintf("… and %d lines more", left))
	}
	b := []byte("\x1b[H") // to the top
	for _, line := range lines {
		if runes := []rune(line); len(runes) > width {
			line = string(runes[:max(width-1, 0)]) + "…"
		}
		b = append(b, line+"\x1b[K\n"...) // and nothing behind it
	}
	return append(b, "\x1b[J"...) // nor below
}

// add prints the rows of a table below those of before, under the same heading.
func (v *view) add(table func(row func(...any))) error {
	return printTable(v.out, func(row func(...any)) {
		rows := 0
		aligned := v.columns.aligned(row)
		table(func(cells ...any) {
			if rows++; rows > 1 || !v.headed {
				aligned(cells...)
			}
		})
		v.headed = true
	})
}

// differ prints those lines of a table that it had not before.
func (v *view) differ(table func(row func(...any))) error {
	var b bytes.Buffer
	if err := printTable(&b, table); err != nil {
		return err
	}
	now := make(map[string]bool)
	for line := range strings.Lines(b.String()) {
		if now[line] = true; v.lines[line] {
			continue
		}
		if _, err := io.WriteString(v.out, line); err != nil {
			return err
		}
	}
	v.lines = now
	return nil
}

// widths are those of a table's columns, all but the last, so that what comes later stands below what
// came before.
type widths []int

func (w *widths) aligned(row func(...any)) func(...any) {
	return func(cells ...any) {
		if len(cells) == 1 { // it stands alone
			row(cells...)
			return
		}
		last := len(cells) - 1
		for last > 0 && cells[last] == "" { // nothing stands behind it
			last--
		}
		for i := range len(cells) - 1 {
			text := words.Clean(fmt.Sprint(cells[i]))
			if i == len(*w) {
				*w = append(*w, 0)
			}
			(*w)[i] = max((*w)[i], utf8.RuneCountInString(text))
			if i < last {
				cells[i] = fmt.Sprintf("%-*s", (*w)[i], text)
			}
		}
		row(cells...)
	}
}
