package e2e

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
)

// testEvents: what is wrong with a Service is told where people look at it.
func testEvents(t *testing.T, c apiCase) {
	taken := c.bed.Node.ServeTCP(t, fmt.Sprintf("10.10.2.1:%d", c.nodePort), nettest.Banner("a daemon"))
	o := c.web(0, 1)
	c.put(t, o)
	requireAnswers(t, c.bed.Client, target{"tcp", c.v4 + ":80"}, "a")
	requireAnswers(t, c.bed.Client, target{"tcp", taken.Addr.String()}, "a daemon")

	var got []corev1.Event
	eventually(t, func() bool {
		var list corev1.EventList
		require.NoError(t, json.Unmarshal([]byte(c.kubectl(t, "", "get", "events", "--all-namespaces", "-o", "json")), &list))
		got = list.Items
		return len(eventsOf(got, corev1.EventTypeWarning, "Service", c.name)) > 0 &&
			len(eventsOf(got, corev1.EventTypeNormal, "Node", nodeName)) > 0
	}, func() string { return fmt.Sprintf("a warning of %s and the start; there are %v", c.name, got) })
	warning := eventsOf(got, corev1.EventTypeWarning, "Service", c.name)[0]
	assert.Contains(t, warning.Message, fmt.Sprint(c.nodePort))
	assert.Equal(t, nodeName, warning.ReportingInstance)
	assert.Equal(t, "userspace-proxy", warning.ReportingController)
	t.Logf("\n%s", c.kubectl(t, "", "get", "events", "--all-namespaces"))

	taken.Close()
	c.remove(t, c.name)
	c.expectGone(t)
}

func eventsOf(all []corev1.Event, kind, object, name string) []corev1.Event {
	var some []corev1.Event
	for _, e := range all {
		if e.Type == kind && e.InvolvedObject.Kind == object && e.InvolvedObject.Name == name {
			some = append(some, e)
		}
	}
	return some
}
