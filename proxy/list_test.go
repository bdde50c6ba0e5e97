package proxy

import (
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// listed waits until the one connection there is is in a state.
func (f *fixture) listed(state string) ConnectionStatus {
	f.t.Helper()
	var list []ConnectionStatus
	require.Eventually(f.t, func() bool {
		var open int
		list, open = f.Connections(10)
		return open == 1 && len(list) == 1 && list[0].State == state
	}, patience, time.Millisecond, "%s", state)
	return list[0]
}

func TestConnectionsAreListed(t *testing.T) {
	t.Parallel()
	f, client, endpoint := through(t, Config{})
	write(t, client, "12345")
	write(t, endpoint, "123")
	_, err := io.ReadFull(endpoint, make([]byte, 5))
	require.NoError(t, err)
	_, err = io.ReadFull(client, make([]byte, 3))
	require.NoError(t, err)
	require.Eventually(t, func() bool { c := f.listed(ConnectionOpen); return c.Up == 5 && c.Down == 3 }, patience, time.Millisecond)
	c := f.listed(ConnectionOpen)
	assert.Equal(t, "default/web/TCP", c.Service)
	assert.Equal(t, client.LocalAddr().String(), c.Client.String())
	assert.Equal(t, endpoint.LocalAddr().String(), c.Endpoint.String())
	assert.WithinRange(t, c.Since, f.began.Add(-time.Second), time.Now().Add(time.Second))
	assert.Greater(t, c.Age, Span(0))
	assert.GreaterOrEqual(t, c.Idle, Span(0))
	assert.LessOrEqual(t, c.Idle, c.Age+Span(time.Second))
	require.NoError(t, client.CloseWrite())
	f.listed(ConnectionHalfClosed)
	require.NoError(t, endpoint.Close())
	f.drained()
	list, open := f.Connections(10)
	assert.Empty(t, list)
	assert.Zero(t, open)
}

func TestConnectionsAreListedInOrderAndNoMoreThanAsked(t *testing.T) {
	t.Parallel()
	f := start(t, Config{})
	f.serve(named(t, "a"))
	for range 12 {
		f.dial()
	}
	var all []ConnectionStatus
	var open int
	require.Eventually(t, func() bool { // a connection is counted just before it is listed
		all, open = f.Connections(100)
		return len(all) == 12
	}, patience, time.Millisecond)
	assert.Equal(t, 12, open)
	assert.IsNonDecreasing(t, clientPorts(all))
	some, open := f.Connections(5)
	assert.Len(t, some, 5)
	assert.Equal(t, 12, open)
	none, open := f.Connections(0)
	assert.Empty(t, none)
	assert.Equal(t, 12, open)
}

func clientPorts(list []ConnectionStatus) (ports []uint16) {
	for _, c := range list {
		ports = append(ports, c.Client.Port())
	}
	return ports
}

func TestFlowsAreListed(t *testing.T) {
	t.Parallel()
	f := start(t, Config{})
	p := f.port(udpEcho(t))
	p.Protocol = service.UDP
	f.update(p)
	for range 3 {
		newUDPClient(t, f.portal).ask("12345")
	}
	var list []FlowStatus
	var open int
	require.Eventually(t, func() bool { // what has been sent is counted soon after
		list, open = f.Flows(10)
		return !slices.ContainsFunc(list, func(flow FlowStatus) bool { return flow.Up != Traffic{Datagrams: 1, Bytes: 5} })
	}, patience, time.Millisecond)
	require.Len(t, list, 3)
	assert.Equal(t, 3, open)
	for _, flow := range list {
		assert.Equal(t, "default/web/UDP", flow.Service)
		assert.Equal(t, p.Endpoints[0].Addr, flow.Endpoint)
		assert.Greater(t, flow.Age, Span(0))
	}
	list, open = f.Flows(2)
	assert.Len(t, list, 2)
	assert.Equal(t, 3, open)
	text, err := json.Marshal(FlowStatus{Age: Span(63*time.Second + 1234567)})
	require.NoError(t, err)
	assert.Contains(t, string(text), `"age":"1m3.001s"`)
}

func TestDescriptorsAgainstTheBudgetAreMetrics(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	metrics := NewMetrics(registry)
	const names = "userspace_proxy_descriptors_"
	none, err := testutil.GatherAndCount(registry, names+"budget", names+"used")
	require.NoError(t, err)
	assert.Zero(t, none, "there is no budget yet")
	f := start(t, Config{Metrics: metrics, Descriptors: 1100 + engineDescriptors()})
	tcp, udp := f.port(named(t, "a")), f.portNamed("dns", f.portal, udpEcho(t))
	udp.Protocol = service.UDP
	f.update(tcp, udp)
	f.who()
	f.drained()
	conn := f.dial()
	newUDPClient(t, f.portal).ask("?")
	require.Eventually(t, func() bool { // no loop has some for another client to come
		return f.shared.tcp.open() == 1 && f.Status().Descriptors.Traffic == 3
	}, patience, time.Millisecond)
	assert.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP userspace_proxy_descriptors_budget File descriptors that listeners, connections and flows share.
# TYPE userspace_proxy_descriptors_budget gauge
userspace_proxy_descriptors_budget 1000
# HELP userspace_proxy_descriptors_used File descriptors of the budget that are in use, by what for.
# TYPE userspace_proxy_descriptors_used gauge
userspace_proxy_descriptors_used{use="connections"} 2
userspace_proxy_descriptors_used{use="flows"} 1
userspace_proxy_descriptors_used{use="listeners"} 2
`), names+"budget", names+"used"))
	require.NoError(t, conn.Close())
	reasons, err := testutil.GatherAndCount(registry, "userspace_proxy_tcp_connections_refused_total")
	require.NoError(t, err)
	assert.Equal(t, 7, reasons, "every reason is there from the start")
}
