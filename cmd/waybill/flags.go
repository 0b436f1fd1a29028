package main

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// oneOf is a flag that takes one of a few words.
type oneOf struct {
	value   string
	allowed []string
}

// String returns the value.
func (o *oneOf) String() string { return o.value }

// Type is shown in the help.
func (o *oneOf) Type() string { return strings.Join(o.allowed, "|") }

// Set checks and takes a value.
func (o *oneOf) Set(value string) error {
	if !slices.Contains(o.allowed, value) {
		return fmt.Errorf("use one of %s", strings.Join(o.allowed, ", "))
	}
	o.value = value
	return nil
}

// errNoChoice says that a flag which chooses says nothing, as that of a script whose variable is not set.
var errNoChoice = errors.New("it is empty, and chooses nothing: give it a value, or leave the flag out")

// chooser is a flag that chooses among many, by one text or by several. An empty one would choose them all, and is refused.
type chooser struct {
	one     *string
	several *[]string
}

// String returns what was chosen.
func (c chooser) String() string {
	if c.several != nil {
		return strings.Join(*c.several, " ")
	}
	return *c.one
}

// Type is shown in the help.
func (c chooser) Type() string {
	if c.several != nil {
		return "stringArray"
	}
	return "string"
}

// Set takes a value that is not empty.
func (c chooser) Set(value string) error {
	switch {
	case value == "":
		return errNoChoice
	case c.several != nil:
		*c.several = append(*c.several, value)
	default:
		*c.one = value
	}
	return nil
}

// logFlag is how much goes to the log, and how.
type logFlag struct{ level, format oneOf }

func addLog(flags *pflag.FlagSet, level string) *logFlag {
	l := &logFlag{oneOf{level, []string{"debug", "info", "warn", "error"}}, oneOf{"text", []string{"text", "json"}}}
	flags.Var(&l.level, "log-level", "how much is logged, on standard error")
	flags.Var(&l.format, "log-format", "how it is logged: as text, or as one JSON object a line")
	return l
}

func (l *logFlag) logger(cmd *cobra.Command) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.level.value)); err != nil {
		level = slog.LevelInfo
	}
	options := &slog.HandlerOptions{Level: level}
	if l.format.value == "json" {
		return slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), options))
	}
	return slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), options))
}
