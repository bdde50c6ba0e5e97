package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/userspace-proxy/userspace-proxy/internal/layout"
)

// help is what --help prints: what the command does, how it is called,
// examples, commands, and flags under headings. It is no wider than a terminal.
func help(c *cobra.Command) string {
	var b strings.Builder
	about := c.Long
	if about == "" {
		about = c.Short
	}
	fmt.Fprintf(&b, "%s\n\nUsage:\n", about)
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "  %s COMMAND [flags]\n", c.CommandPath())
	}
	if c.Runnable() && c.HasParent() {
		fmt.Fprintf(&b, "  %s\n", c.UseLine())
	}
	if c.Example != "" {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", c.Example)
	}
	if c.HasAvailableSubCommands() {
		b.WriteString("\nCommands:\n")
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() || sub.Name() == "help" {
				fmt.Fprintf(&b, "  %-12s%s\n", sub.Name(), sub.Short)
			}
		}
		if !c.HasParent() {
			fmt.Fprintf(&b, "\nsee \"%s COMMAND --help\"; \"%s run --help\" has the flags\n", c.CommandPath(), c.CommandPath())
			return b.String()
		}
	}
	writeFlags(&b, c.Flags())
	return b.String()
}

// writeFlags writes flags under their headings, in alphabetical order. --help
// itself is no news to who reads this.
func writeFlags(b *strings.Builder, fs *pflag.FlagSet) {
	for _, group := range groups() {
		heading := "\n" + group + ":\n"
		fs.VisitAll(func(f *pflag.Flag) {
			if slices.Contains(f.Annotations[groupAnnotation], group) {
				b.WriteString(heading)
				writeFlag(b, f)
				heading = ""
			}
		})
	}
}

// writeFlag writes a flag on one line and what it is for below, so that long
// names leave room.
func writeFlag(b *strings.Builder, f *pflag.Flag) {
	value, about := pflag.UnquoteUsage(f)
	name := "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	if value != "" {
		name += " " + strings.ToUpper(value)
	}
	fmt.Fprintf(b, "  %s", name)
	if !slices.Contains([]string{"", "0", "false", "[]"}, f.DefValue) {
		fmt.Fprintf(b, "  (default %s)", strings.Trim(f.DefValue, "[]"))
	}
	b.WriteString("\n")
	for _, line := range layout.Wrap(about, 80-6) {
		fmt.Fprintf(b, "      %s\n", line)
	}
}
