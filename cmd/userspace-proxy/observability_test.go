package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/metric"
)

const observability = "../../deploy/observability/"

// promtool runs Prometheus' own judge, in a directory.
func promtool(t *testing.T, dir string, args ...string) {
	t.Helper()
	program, err := exec.LookPath("promtool")
	require.NoError(t, err, "promtool is not installed: make test installs it on Debian (package prometheus)")
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	assert.NoError(t, err, "promtool %s\n%s", strings.Join(args, " "), out)
}

func TestObservability_alerts(t *testing.T) {
	t.Parallel()
	promtool(t, observability, "check", "config", "prometheus.yaml")
	promtool(t, observability, "check", "rules", "alerts.yaml")
	promtool(t, observability, "test", "rules", "alerts_test.yaml")

	rules, err := os.ReadFile(observability + "alerts.yaml")
	require.NoError(t, err)
	tests, err := os.ReadFile(observability + "alerts_test.yaml")
	require.NoError(t, err)
	alerts := regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(string(rules), -1)
	require.NotEmpty(t, alerts)
	for _, alert := range alerts {
		assert.Contains(t, string(tests), "- name: "+alert[1]+"\n", "each alert is seen firing")
	}
}

// TestObservability_dashboard: every query of the dashboard is one.
func TestObservability_dashboard(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(observability + "dashboard.json")
	require.NoError(t, err)
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &dashboard))
	var rules strings.Builder
	rules.WriteString("groups:\n- name: dashboard\n  rules:\n")
	n := 0
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			n++
			expr := strings.ReplaceAll(target.Expr, "$__rate_interval", "5m")
			fmt.Fprintf(&rules, "  - {record: \"panel:%d\", expr: %q}\n", n, expr)
		}
	}
	require.Greater(t, n, 10)
	file := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(file, []byte(rules.String()), 0o600))
	promtool(t, ".", "check", "rules", file)
}

// TestObservability_metricsExist: what alerts, their tests and the dashboard
// ask for is there, with the labels that they ask for.
func TestObservability_metricsExist(t *testing.T) {
	t.Parallel()
	known := make(map[string]bool)
	for _, d := range definitions(t) {
		known[d.Name] = true
		if d.Kind == metric.Histogram {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				known[d.Name+suffix] = true
			}
		}
	}
	for _, name := range []string{"alerts.yaml", "alerts_test.yaml", "dashboard.json"} {
		text, err := os.ReadFile(observability + name)
		require.NoError(t, err)
		asked := regexp.MustCompile(`\b(?:userspace_proxy|kubeproxy)_[a-z_]+`).FindAllString(string(text), -1)
		require.Greater(t, len(asked), 10, name)
		for _, m := range asked {
			assert.True(t, known[m], "%s asks for %s, which does not exist", name, m)
		}
	}
}
