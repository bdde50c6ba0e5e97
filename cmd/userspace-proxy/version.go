package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func (m *Main) newVersion() *cobra.Command {
	return &cobra.Command{
		Use:                   "version",
		Short:                 "Print the version",
		DisableFlagsInUseLine: true,
		Args:                  noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			c.Println(programName, version())
			return nil
		},
	}
}

// version is the version that Go's tools have put into the binary, and what it
// was built with and for.
func version() string {
	v := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		v = info.Main.Version
	}
	return fmt.Sprintf("%s (%s, %s/%s)", v, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
