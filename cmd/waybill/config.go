package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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

// configure sets those flags of cmd that were not given from the environment,
// else from the configuration file. They count as given then.
func configure(cmd *cobra.Command) error {
	values := koanf.New("\x00") // keys are names of flags, and have no parts
	path, err := cmd.Flags().GetString("config")
	if err != nil {
		return err
	}
	if path == "" {
		path = os.Getenv(envName("config"))
	}
	if path != "" {
		if err := loadFile(values, path, cmd.Root()); err != nil {
			return err
		}
	}
	if err := values.Load(env.Provider("\x00", env.Opt{
		Prefix: envPrefix,
		TransformFunc: func(key, value string) (string, any) {
			if value == "" {
				return "", nil // as if it were not set
			}
			return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(key, envPrefix), "_", "-")), value
		},
	}), nil); err != nil {
		return fmt.Errorf("read the environment: %w", err)
	}

	var problems []error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Changed || !configurable(f) || !values.Exists(f.Name) {
			return
		}
		if err := cmd.Flags().Set(f.Name, asText(values.Get(f.Name))); err != nil {
			from := "the configuration file " + path
			if os.Getenv(envName(f.Name)) != "" {
				from = envName(f.Name)
			}
			problems = append(problems, fmt.Errorf("from %s: %w", from, err))
		}
	})
	if len(problems) > 0 {
		return usageError{errors.Join(problems...)}
	}
	return nil
}

func asText(value any) string {
	if list, ok := value.([]any); ok {
		parts := make([]string, len(list))
		for i, v := range list {
			parts[i] = fmt.Sprint(v)
		}
		return strings.Join(parts, ",")
	}
	if named, ok := value.(map[string]any); ok {
		parts := make([]string, 0, len(named))
		for _, name := range slices.Sorted(maps.Keys(named)) {
			parts = append(parts, fmt.Sprintf("%s=%v", name, named[name]))
		}
		return strings.Join(parts, ",")
	}
	return fmt.Sprint(value)
}

func loadFile(values *koanf.Koanf, path string, root *cobra.Command) error {
	if err := values.Load(file.Provider(path), yaml.Parser()); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return usageError{fmt.Errorf("there is no configuration file %s; name another with --config", path)}
		}
		return usageError{fmt.Errorf("configuration file %s: %w", path, err)}
	}
	known := make(map[string]bool)
	eachFlag(root, func(f *pflag.Flag) { known[f.Name] = known[f.Name] || configurable(f) })
	var unknown []string
	for _, key := range values.Keys() {
		key, _, _ = strings.Cut(key, "\x00")
		if !known[key] && !slices.Contains(unknown, key) {
			unknown = append(unknown, key)
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		return usageError{fmt.Errorf("configuration file %s: unknown key %s; keys are the names of flags, such as brokers or http-addr", path, strings.Join(unknown, ", "))}
	}
	return nil
}

func eachFlag(cmd *cobra.Command, yield func(*pflag.Flag)) {
	cmd.Flags().VisitAll(yield)
	cmd.PersistentFlags().VisitAll(yield)
	for _, sub := range cmd.Commands() {
		eachFlag(sub, yield)
	}
}
