package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const programName = "userspace-proxy"

// newRoot is the command line. Without a command it is run's.
func (m *Main) newRoot() *cobra.Command {
	root := m.newRun()
	root.Use = programName
	root.Short = "A userspace load balancer for Kubernetes Services"
	root.Long = `userspace-proxy carries the TCP connections and UDP flows of Kubernetes Services
from the addresses of the Services to their endpoints, in user space. Without a
command it does what "userspace-proxy run" does, with the same flags.`
	root.Example = `  userspace-proxy demo                        try it: no root, no cluster
  userspace-proxy plan --file services.yaml   what would be served, and how
  userspace-proxy run --file services.yaml    serve it`
	root.SuggestionsMinimumDistance = 2
	root.SilenceErrors = true
	root.SilenceUsage = true

	root.AddCommand(m.newRun(), m.newDemo(), m.newStatus(), m.newPlan(), m.newExplain(), m.newCleanup(), m.newVersion())
	root.SetGlobalNormalizationFunc(dashes)
	root.SetFlagErrorFunc(flagError)
	root.SetHelpFunc(func(c *cobra.Command, _ []string) { c.Print(help(c)) })
	root.SetUsageFunc(func(c *cobra.Command) error { c.Print(help(c)); return nil })
	return root
}

// dashes takes underscores in the names of flags for dashes, as kube-proxy does.
func dashes(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
}

// flagError is what a flag that cannot be read comes to.
func flagError(c *cobra.Command, err error) error {
	return &usageError{err: err, hint: seeHelp(c)}
}

// noArgs refuses arguments, which are most often a file whose flag was forgotten.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var err error
	switch similar := c.SuggestionsFor(args[0]); {
	case c.HasSubCommands() && len(similar) > 0:
		err = fmt.Errorf("unknown command %q: did you mean %s?", args[0], strings.Join(similar, " or "))
	case c.HasSubCommands():
		err = fmt.Errorf("unknown command %q; a file with Services is given with --file", args[0])
	case c.Flags().Lookup("file") != nil:
		err = fmt.Errorf("stray argument %q; a file with Services is given with --file", args[0])
	default:
		err = fmt.Errorf("stray argument %q", args[0])
	}
	return &usageError{err: err, hint: seeHelp(c)}
}

func seeHelp(c *cobra.Command) string {
	return fmt.Sprintf("see \"%s --help\"", c.CommandPath())
}

// usage makes an error one of wrong usage or configuration; nil stays nil.
func usage(err error) error {
	var already *usageError
	if err == nil || errors.As(err, &already) {
		return err
	}
	return &usageError{err: err}
}
