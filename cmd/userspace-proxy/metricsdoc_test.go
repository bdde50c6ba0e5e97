package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/metric"
)

const metricsDoc = "../../docs/metrics.md"

// definitions are those of a program as "run" puts it together, and of what it
// has with one kind of rules alone.
func definitions(t *testing.T) []metric.Definition {
	t.Helper()
	o := new(options)
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.addRunFlags(flags)
	o.files, o.redirect, o.healthzAddress, o.metricsAddress = []string{"-"}, redirectNone, "", ""
	require.NoError(t, o.completeRun(flags))
	log := logrus.New()
	log.SetOutput(io.Discard)
	m := Main{
		Stdin: strings.NewReader("apiVersion: v1\nkind: List\nitems: []\n"), Stdout: io.Discard, Stderr: io.Discard,
		Getenv: func(string) string { return "" },
	}
	ctx, cancel := context.WithCancel(context.Background())
	s, err := m.newServer(ctx, o, log)
	require.NoError(t, err)
	cancel()
	require.NoError(t, s.run(ctx))
	for _, way := range []string{redirectNFTables, redirectIPTables} {
		ruleFailures(metric.On(s.metrics), way)
	}
	return s.metrics.Definitions()
}

// TestMetricsDoc writes docs/metrics.md, with -update, from what is registered.
func TestMetricsDoc(t *testing.T) {
	t.Parallel()
	var doc strings.Builder
	doc.WriteString(metricsDocHead)
	for _, d := range definitions(t) {
		fmt.Fprintf(&doc, "\n### %s\n\n%s, %s\n", d.Name, d.Kind, decapitalized(d.Help))
		for _, l := range d.Labels {
			fmt.Fprintf(&doc, "\n- `%s`: %s\n", l.Name, l.Values)
		}
		if d.Worry != "" {
			fmt.Fprintf(&doc, "\n**Worry when:** %s\n", decapitalized(d.Worry))
		}
	}
	if *update {
		require.NoError(t, os.WriteFile(metricsDoc, []byte(doc.String()), 0o644))
	}
	have, err := os.ReadFile(metricsDoc)
	require.NoError(t, err)
	assert.Equal(t, doc.String(), string(have), "go test ./cmd/userspace-proxy -run MetricsDoc -update")
}

// decapitalized begins with a small letter, where it began with a word.
func decapitalized(s string) string {
	if len(s) > 1 && s[1] >= 'a' && s[1] <= 'z' || strings.HasPrefix(s, "A ") {
		return strings.ToLower(s[:1]) + s[1:]
	}
	return s
}

const metricsDocHead = `# Metrics

` + "`/metrics` on `--metrics-bind-address` is for Prometheus. This page is written from\n" +
	"what the program registers (`go test ./cmd/userspace-proxy -run MetricsDoc -update`).\n" + `
- What kube-proxy has too is called as there: ` + "`kubeproxy_…`" + `. Both address families are
  one reconcile here, so these have no label ` + "`ip_family`" + `; a sum over it gives the same.
- Beside them are ` + "`go_…` and `process_…`" + `, of the Go client of Prometheus.
- No label holds a client's address. Services, ports and reasons are bounded.

[deploy/observability](../deploy/observability) has alerts and a dashboard made of
them.

What kube-proxy has and this does not:

| kube-proxy's | why not here |
|---|---|
| ` + "`kubeproxy_sync_full_proxy_rules_duration_seconds`, `…_partial_…`" + ` | every reconcile is a full one, and rules are changed by what differs |
| ` + "`kubeproxy_sync_proxy_rules_iptables_total`, `…_iptables_last`, `…_iptables_partial_restore_failures_total`" + ` | rules are a fixed few and one for each portal: ` + "`userspace_proxy_service_ports`" + ` |
| ` + "`kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total`" + ` | cleaning up is part of the transaction |
| ` + "`kubeproxy_conntrack_reconciler_sync_duration_seconds`" + ` | it is part of the reconcile, and of its duration |
| ` + "`kubeproxy_sync_proxy_rules_no_local_endpoints_total`" + ` | not counted; ` + "`userspace-proxy status`" + ` tells the state of each portal |
| ` + "`kubeproxy_iptables_…`, `kubeproxy_nftables_localhost_…`" + ` | nothing of the kind is needed: node ports on loopback are ordinary listeners |
| ` + "`kubeproxy_sync_proxy_rules_winkernel_…`" + ` | off Linux there are no rules |

## All metrics
`

// TestMetrics_names: names say what Prometheus' conventions want them to say.
func TestMetrics_names(t *testing.T) {
	t.Parallel()
	for _, d := range definitions(t) {
		assert.Regexp(t, `^(userspace_proxy|kubeproxy)_[a-z_]+$`, d.Name)
		assert.Equal(t, d.Kind == metric.Counter, strings.HasSuffix(d.Name, "_total"), d.Name)
		if d.Kind == metric.Histogram {
			assert.Regexp(t, `_(seconds|bytes)$`, d.Name)
			assert.NotEmpty(t, d.Buckets, d.Name)
		}
		assert.Regexp(t, `\.$`, d.Help, d.Name)
		for _, l := range d.Labels {
			assert.NotContains(t, regexp.MustCompile(`client|address|ip`).FindString(l.Name), l.Name, d.Name)
			assert.NotEmpty(t, l.Values, "%s: %s", d.Name, l.Name)
		}
	}
}
