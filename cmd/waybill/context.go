package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/words"
)

// contexts are servers under names, and as whom each is asked. Their file is the
// user's own.
type contexts struct {
	Current  string                   `yaml:"current,omitempty"`
	Contexts map[string]serverContext `yaml:"contexts"`
}

// serverContext names files with secrets, and has none itself.
type serverContext struct {
	Server    string `yaml:"server" json:"server"`
	TokenFile string `yaml:"token-file,omitempty" json:"tokenFile,omitzero"`
	CA        string `yaml:"ca,omitempty" json:"ca,omitzero"`
	Cert      string `yaml:"cert,omitempty" json:"cert,omitzero"`
	Key       string `yaml:"key,omitempty" json:"key,omitzero"`
}

// contextsFile is where they are kept, "" where a user has no place for such files.
func contextsFile() string {
	dir, err := os.UserConfigDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "waybill", "contexts.yaml")
}

func readContexts() (*contexts, error) {
	c := &contexts{Contexts: make(map[string]serverContext)}
	file := contextsFile()
	if file == "" {
		return c, nil
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err == nil {
		err = yaml.UnmarshalWithOptions(text, c, yaml.Strict())
	}
	if err != nil {
		return nil, fmt.Errorf("the contexts in %s: %w", file, err)
	}
	if c.Contexts == nil { // it says so
		c.Contexts = make(map[string]serverContext)
	}
	return c, nil
}

// write puts a new file in the place of the old one: whoever reads it meanwhile has one
// of the two.
func (c *contexts) write() error {
	file := contextsFile()
	if file == "" {
		return errors.New("contexts are kept in the user's configuration, and there is no place for it: set HOME or XDG_CONFIG_HOME")
	}
	text, err := yaml.Marshal(c)
	if err != nil {
		return fmt.Errorf("write the contexts: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fmt.Errorf("write the contexts: %w", err)
	}
	fresh, err := os.CreateTemp(filepath.Dir(file), "contexts") // which only its owner reads
	if err != nil {
		return fmt.Errorf("write the contexts: %w", err)
	}
	_, err = fresh.Write(text)
	if err = errors.Join(err, fresh.Close()); err == nil {
		err = os.Rename(fresh.Name(), file)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write the contexts: %w", err), os.Remove(fresh.Name()))
	}
	return nil
}

// applyContext has a command ask the server of a context, the one that is named or
// else the one in use, where it was not told another. What says who asks goes to no other
// server than that which it was given for.
func applyContext(cmd *cobra.Command) error {
	flags := cmd.Flags()
	named := flags.Lookup("context")
	if named == nil {
		return nil
	}
	if flags.Changed("server") {
		if named.Changed {
			return usageError{fmt.Errorf("%s names a server, and %s another; use one of the two", givenAs(named), givenAs(flags.Lookup("server")))}
		}
		return nil
	}
	all, err := readContexts()
	if err != nil {
		return usageError{err}
	}
	name := named.Value.String()
	if name == "" {
		name = all.Current
	}
	if name == "" {
		return nil
	}
	c, found := all.Contexts[name]
	if !found {
		return usageError{fmt.Errorf("there is no context %q; `waybill context list` lists them, and `waybill context set` makes one", name)}
	}
	if flags.Changed("token") || flags.Changed("token-file") || flags.Changed("cert") || flags.Changed("key") {
		c.TokenFile, c.Cert, c.Key = "", "", "" // who asks is said
	}
	for flag, value := range map[string]string{"server": c.Server, "token-file": c.TokenFile, "ca": c.CA, "cert": c.Cert, "key": c.Key} {
		if value == "" || flags.Changed(flag) {
			continue
		}
		if err := flags.Set(flag, value); err != nil {
			return usageError{fmt.Errorf("context %q: %w", name, err)}
		}
	}
	return nil
}

func newContext() *cobra.Command {
	return group("context", "Keep servers under names, and as whom each is asked", newContextSet(), newContextUse(), newContextList())
}

func newContextSet() *cobra.Command {
	var c serverContext
	cmd := &cobra.Command{
		Use: "set NAME", Short: "Keep a server under a name",
		Long: `Keeps a server under a name, and the files that say who asks. Commands with
--context NAME ask it, and all others once it is in use. What a command is told by
flags or the environment goes first; with another --server no context counts.`,
		Example: "  waybill context set prod --server https://waybill.shop.example --token-file ~/.waybill-prod\n  waybill context use prod",
		Args:    takes(one),
	}
	flags := cmd.Flags()
	flags.StringVar(&c.Server, "server", "", "address of a running Waybill")
	flags.StringVar(&c.TokenFile, "token-file", "", "file with the key or token that says who asks")
	flags.StringVar(&c.CA, "ca", "", "PEM file with the authorities to trust with the server's certificate")
	flags.StringVar(&c.Cert, "cert", "", "PEM file with the certificate that says who asks")
	flags.StringVar(&c.Key, "key", "", "PEM file with that certificate's key")
	onlyByFlag(flags, "server", "token-file", "ca", "cert", "key")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if c.Server == "" || args[0] == "" {
			return usageError{errors.New("say which server with --server, and under which name")}
		}
		if strings.Contains(c.Server, "@") { // the list would show it
			return usageError{errors.New("--server: a context has no password; say who asks with --token-file")}
		}
		for _, file := range []*string{&c.TokenFile, &c.CA, &c.Cert, &c.Key} { // commands run elsewhere
			if *file == "" {
				continue
			}
			whole, err := filepath.Abs(*file)
			if err != nil {
				return err
			}
			*file = whole
		}
		all, err := readContexts()
		if err != nil {
			return err
		}
		all.Contexts[args[0]] = c
		return all.write()
	}
	return cmd
}

func newContextUse() *cobra.Command {
	return &cobra.Command{
		Use: "use NAME", Short: "Ask this server from now on", Args: takes(one),
		RunE: func(_ *cobra.Command, args []string) error {
			all, err := readContexts()
			if err != nil {
				return err
			}
			if _, found := all.Contexts[args[0]]; !found {
				return usageError{fmt.Errorf("there is no context %q; `waybill context set %s --server …` makes it", args[0], args[0])}
			}
			all.Current = args[0]
			return all.write()
		},
	}
}

func newContextList() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List the contexts", Args: cobra.NoArgs}
	out := addOutput(cmd.Flags(), "$.contexts[*]")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		all, err := readContexts()
		if err != nil {
			return err
		}
		return out.print(cmd, map[string]any{"current": all.Current, "contexts": all.Contexts}, func(row func(...any)) {
			row("NAME", "SERVER", "AS")
			for _, name := range slices.Sorted(maps.Keys(all.Contexts)) {
				c := all.Contexts[name]
				as := c.TokenFile
				if as == "" {
					as = words.Dash(c.Cert)
				}
				shown := name
				if name == all.Current {
					shown += " *"
				}
				row(shown, c.Server, as)
			}
		})
	}
	return cmd
}
