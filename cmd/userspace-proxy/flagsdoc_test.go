package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/kubeproxy"
)

const flagsDoc = "../../docs/flags.md"

// TestFlagsDoc writes docs/flags.md, with -update, from the flags of run.
func TestFlagsDoc(t *testing.T) {
	t.Parallel()
	o := new(options)
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.addRunFlags(fs)
	var doc strings.Builder
	doc.WriteString(flagsDocHead)
	for _, group := range groups() {
		writeFlagTable(&doc, fs, group)
	}
	doc.WriteString(flagsDocFields)
	for _, s := range settings(kubeproxy.New()) {
		fmt.Fprintf(&doc, "| `%s` | `--%s` |\n", s.field, s.flag)
	}
	doc.WriteString(flagsDocRenamed)
	for _, s := range new(renamedFlags).settings() {
		fmt.Fprintf(&doc, "| `%s` | `--%s` |\n", s.field, s.flag)
	}
	values, switches := ignoredFlags()
	ignored := slices.Sorted(slices.Values(slices.Concat(values, switches)))
	fmt.Fprintf(&doc, flagsDocIgnored, "`--"+strings.Join(ignored, "`, `--")+"`")

	if *update {
		require.NoError(t, os.WriteFile(flagsDoc, []byte(doc.String()), 0o644))
	}
	have, err := os.ReadFile(flagsDoc)
	require.NoError(t, err)
	assert.Equal(t, doc.String(), string(have), "go test ./cmd/userspace-proxy -run FlagsDoc -update")
}

func writeFlagTable(doc *strings.Builder, fs *pflag.FlagSet, group string) {
	heading := "\n## " + group + "\n\n| flag | default | what it is for |\n|---|---|---|\n"
	fs.VisitAll(func(f *pflag.Flag) {
		if !slices.Contains(f.Annotations[groupAnnotation], group) {
			return
		}
		value, about := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		if value != "" {
			name += " " + strings.ToUpper(value)
		}
		byDefault := ""
		if d := strings.Trim(f.DefValue, "[]"); d != "" {
			byDefault = "`" + d + "`"
		}
		fmt.Fprintf(doc, "%s| `%s` | %s | %s |\n", heading, name, byDefault, strings.ReplaceAll(about, "|", "\\|"))
		heading = ""
	})
}

const flagsDocHead = `# Flags of run

This page is written from the program (` + "`go test ./cmd/userspace-proxy -run FlagsDoc -update`" + `);
` + "`userspace-proxy run --help`" + ` says the same. Flags that kube-proxy has are called as there, and
underscores in their names are taken for dashes. What is wrong is told all at once, with exit code 2.
`

const flagsDocFields = `
## kube-proxy's configuration file

` + "`--config`" + ` reads a KubeProxyConfiguration (kubeproxy.config.k8s.io/v1alpha1). A field that
is set stands for its flag, unless the flag is given too; one that is empty or 0 leaves
the flag's default, as with kube-proxy. But ` + "`oomScoreAdj`, `conntrack.maxPerCore`, `conntrack.min`,\n`conntrack.tcpEstablishedTimeout` and `conntrack.tcpCloseWaitTimeout`" + ` count where they are there,
0 too. Fields that are not in this table concern proxies in the kernel: those that are set
are named in one warning. Unknown fields are told and passed over.

| field | flag |
|---|---|
`

const flagsDocRenamed = `
## Other names

| kube-proxy's flag | stands for |
|---|---|
`

const flagsDocIgnored = `
` + "`--proxy-mode` and `mode`" + ` may be empty or ` + "`userspace`" + `; kube-proxy's own modes are an error.

## Accepted, and without a meaning here

So that manifests of kube-proxy's start as they are; those that are given are named in one
warning: %s, ` + "`--show-hidden-metrics-for-version`" + `.
`
