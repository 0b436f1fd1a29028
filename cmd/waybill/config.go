package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waybill-dev/waybill/yamlfile"
)

const envPrefix = "WAYBILL_"

func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// flagsOnly is the annotation of a flag that belongs to one call: a value that
// lingers in the environment would be a trap.
const flagsOnly = "waybill_flags_only"

// onlyByFlag keeps flags out of the environment and the configuration file.
func onlyByFlag(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		if err := flags.SetAnnotation(name, flagsOnly, nil); err != nil {
			panic(err) // there is no such flag
		}
	}
}

func configurable(f *pflag.Flag) bool {
	_, not := f.Annotations[flagsOnly]
	return !not && f.Name != "help" && f.Name != "config"
}

// setFrom is the annotation of a flag that was not given: where its value is from, for people.
const setFrom = "waybill_set_from"

// givenAs is how a flag was given, for people: --server, or the variable or the file that it is from.
func givenAs(f *pflag.Flag) string {
	if from := f.Annotations[setFrom]; len(from) > 0 {
		return from[0]
	}
	return "--" + f.Name
}

// configure sets those flags of cmd that were not given from the environment,
// else from the configuration file. They count as given then.
func configure(cmd *cobra.Command) error {
	path, err := cmd.Flags().GetString("config")
	if err != nil {
		return err
	}
	if path == "" {
		path = os.Getenv(envName("config"))
	}
	var values map[string]string
	if path != "" {
		if values, err = readConfig(path, cmd.Root()); err != nil {
			return usageError{err}
		}
	}
	var problems []error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Changed || !configurable(f) {
			return
		}
		value, from := os.Getenv(envName(f.Name)), envName(f.Name)
		if value == "" { // as if it were not set
			var found bool
			if value, found = values[f.Name]; !found {
				return
			}
			from = f.Name + " in the configuration file " + path
		}
		if err := errors.Join(cmd.Flags().Set(f.Name, value), cmd.Flags().SetAnnotation(f.Name, setFrom, []string{from})); err != nil {
			problems = append(problems, fmt.Errorf("from %s: %w", from, err))
		}
	})
	if len(problems) > 0 {
		return usageError{errors.Join(problems...)}
	}
	return nil
}

// maxConfig is the size of the largest configuration file, in bytes.
const maxConfig = 1 << 20

// readConfig reads a file with values for flags of the commands of root, by their names. What is wrong with it is [yamlfile.Errors].
func readConfig(path string, root *cobra.Command) (map[string]string, error) {
	source, err := os.ReadFile(path) //nolint:gosec // whoever runs the command names it
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no configuration file %s; name another with --config", path)
	}
	if err != nil {
		return nil, fmt.Errorf("configuration file: %w", err)
	}
	known := make(map[string]bool) // false for what belongs to one call
	eachFlag(root, func(f *pflag.Flag) { known[f.Name] = known[f.Name] || configurable(f) })
	r := &yamlfile.Reader{File: path}
	values := make(map[string]string)
	if body := r.Document(source, maxConfig, ""); body != nil {
		r.Entries(body, "the configuration", "keys are the names of flags, such as brokers or http-addr", func(key string, at *token.Token, value ast.Node) {
			switch setting, is := known[key]; {
			case setting:
				values[key] = flagText(r, key, at, value)
			case is && key != "config":
				r.Add(at, "%s belongs to one call: give it as a flag, --%s, and leave it out here", key, key)
			default:
				names := slices.DeleteFunc(slices.Sorted(maps.Keys(known)), func(name string) bool { return !known[name] })
				r.Add(at, "unknown key %s%s; keys are the names of flags, such as brokers or http-addr", yamlfile.Quote(key), yamlfile.DidYouMean(key, names))
			}
		})
	}
	if wrong := r.Sorted(); wrong != nil {
		return nil, wrong
	}
	return values, nil
}

// flagText is what a flag is set to: a scalar as it is written, which YAML would make something else of (0123), and what a list or a
// mapping holds with commas.
func flagText(r *yamlfile.Reader, key string, at *token.Token, value ast.Node) string {
	text := func(n ast.Node) string {
		if n.Type() == ast.NullType {
			r.Add(at, "%s has no value: give it one, or leave it out", key)
			return ""
		}
		text, _, _ := r.Text(n, key)
		return text
	}
	var all []string
	switch n := value.(type) {
	case *ast.SequenceNode:
		for _, entry := range n.Values {
			all = append(all, text(entry))
		}
	case *ast.MappingNode:
		r.Entries(n, key, "", func(name string, _ *token.Token, entry ast.Node) { all = append(all, name+"="+text(entry)) })
	default:
		return text(value)
	}
	return strings.Join(all, ",")
}

func eachFlag(cmd *cobra.Command, yield func(*pflag.Flag)) {
	cmd.Flags().VisitAll(yield)
	cmd.PersistentFlags().VisitAll(yield)
	for _, sub := range cmd.Commands() {
		eachFlag(sub, yield)
	}
}
