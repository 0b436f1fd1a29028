package main

import (
	"runtime/debug"

	"github.com/spf13/cobra"
)

// buildVersion is what this binary was built from.
type buildVersion struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Revision string `json:"revision,omitzero"`
	Time     string `json:"time,omitzero"`
	Modified bool   `json:"modified"`
}

func programVersion() buildVersion {
	v := buildVersion{Version: "unknown"}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Go = info.GoVersion
	if v.Version = info.Main.Version; v.Version == "" {
		v.Version = "(devel)"
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

func newVersion() *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "Print what this program was built from", Args: cobra.NoArgs}
	out := addOutput(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		v := programVersion()
		return out.print(cmd, v, func(row func(...any)) {
			row("waybill", v.Version)
			row("go", v.Go)
			if v.Revision != "" {
				modified := ""
				if v.Modified {
					modified = " (modified)"
				}
				row("revision", v.Revision+modified)
				row("time", v.Time)
			}
		})
	}
	return cmd
}
