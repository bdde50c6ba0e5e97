package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/userspace-proxy/userspace-proxy/config"
)

func TestChanges(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	svc := func(name string) config.Service {
		return config.Service{Service: &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}}, Source: "file"}
	}
	slice := func(trigger string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
			Annotations: map[string]string{corev1.EndpointsLastChangeTriggerTime: trigger},
		}}
	}
	of := func(name string, slices ...*discoveryv1.EndpointSlice) config.Endpoints {
		return config.Endpoints{Name: name, Source: "file", Slices: slices}
	}
	late := func(after time.Duration) string { return start.Add(after).Format(time.RFC3339Nano) }
	var took []time.Duration
	done := func(c *changes) {
		took = nil
		c.done(start.Add(10*time.Second), func(d time.Duration) { took = append(took, d) })
	}
	c := &changes{since: start}

	a, b := svc("a"), svc("b")
	old := slice(late(-time.Minute))
	c.note(config.Snapshot{Services: []config.Service{a, b}, Endpoints: []config.Endpoints{of("a", old)}})
	assert.Equal(t, changeCount{2, 2}, c.services)
	assert.Equal(t, changeCount{1, 1}, c.endpoints)
	done(c)
	assert.Empty(t, took, "what was wanted before the process began is not its own delay")
	assert.Equal(t, changeCount{2, 0}, c.services)

	// One replaced, one gone, one new; endpoints of one Service stay, another's are new.
	c.note(config.Snapshot{Services: []config.Service{svc("a"), svc("c")}, Endpoints: []config.Endpoints{
		of("a", old), of("c", slice(late(time.Second)), slice("never"), slice("")),
	}})
	assert.Equal(t, changeCount{5, 3}, c.services)
	assert.Equal(t, changeCount{2, 1}, c.endpoints)

	// Before that is in force, more comes, and a slice goes.
	c.note(config.Snapshot{Services: c.last.Services, Endpoints: []config.Endpoints{of("a", old, slice(late(4*time.Second)))}})
	assert.Equal(t, changeCount{5, 3}, c.services)
	assert.Equal(t, changeCount{4, 3}, c.endpoints)
	done(c)
	assert.Equal(t, []time.Duration{9 * time.Second, 6 * time.Second}, took)
	assert.Equal(t, changeCount{4, 0}, c.endpoints)
}

// TestRun_metrics: changes, their delay, sources and problems, as Prometheus sees them.
func TestRun_metrics(t *testing.T) {
	t.Parallel()
	named(t, "127.66.7.1:8001", "one")
	dir := t.TempDir()
	services := manifest("127.66.0.7", []int{8080}, "127.66.7.1:8001")
	write(t, dir, "services.yaml", services)
	_, health, status := proxied(t, "", "--file", dir)
	requireAnswer(t, "127.66.0.7:8080", "one")
	has := func(lines ...string) {
		t.Helper()
		var body string
		require.Eventually(t, func() bool {
			_, body = get(t, status+"/metrics")
			for _, line := range lines {
				if !strings.Contains(body, "\n"+line+"\n") {
					return false
				}
			}
			return true
		}, patience, 20*time.Millisecond, "%s", lines)
	}
	has(
		"kubeproxy_sync_proxy_rules_service_changes_total 1", "kubeproxy_sync_proxy_rules_service_changes_pending 0",
		"kubeproxy_sync_proxy_rules_endpoint_changes_total 1", "kubeproxy_sync_proxy_rules_endpoint_changes_pending 0",
		"kubeproxy_network_programming_duration_seconds_count 0", "userspace_proxy_service_ports 1",
		`userspace_proxy_source_failing{source="file"} 0`, `userspace_proxy_source_delivered{source="file"} 1`,
		`userspace_proxy_source_objects{kind="Service",source="file"} 1`,
	)

	// The controller writes when a Pod changed. This one did so just now.
	write(t, dir, "services.yaml", strings.Replace(services, "  name: web-1\n", fmt.Sprintf(
		"  name: web-1\n  annotations: {endpoints.kubernetes.io/last-change-trigger-time: %q}\n", time.Now().Format(time.RFC3339Nano)), 1))
	has("kubeproxy_network_programming_duration_seconds_count 1", "kubeproxy_sync_proxy_rules_endpoint_changes_total 2",
		`kubeproxy_network_programming_duration_seconds_bucket{le="300"} 1`)

	code, _ := get(t, health+"/livez")
	assert.Equal(t, 200, code)
	write(t, dir, "services.yaml", "kind: Servise\n")
	has(`userspace_proxy_problems{reason="UnknownKind"} 1`, `kubeproxy_proxy_livez_total{code="200"} 1`)
}
