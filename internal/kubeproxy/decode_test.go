package kubeproxy

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"

func fileOf(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	require.NoError(t, err)
	return text
}

func TestDecode_asKubeadmWritesIt(t *testing.T) {
	t.Parallel()
	c, lenient, err := Decode(fileOf(t, "kubeadm-1.37.yaml"))
	require.NoError(t, err)
	assert.Empty(t, lenient)
	assert.Empty(t, c.Ignored())
	assert.Equal(t, "/var/lib/kube-proxy/kubeconfig.conf", c.ClientConnection.Kubeconfig)
	assert.Equal(t, "0.0.0.0", c.BindAddress)
	assert.Equal(t, "10.244.0.0/16", c.ClusterCIDR)
	assert.Zero(t, c.UDPIdleTimeout)
}

func TestDecode_asKubeadmWroteItFor1_14(t *testing.T) {
	t.Parallel()
	c, lenient, err := Decode(fileOf(t, "kubeadm-1.14.yaml"))
	require.NoError(t, err)
	assert.Equal(t, []string{`unknown field "conntrack.max"`, `unknown field "resourceContainer"`}, lenient)
	assert.Equal(t, []string{"iptables.masqueradeBit", "ipvs.syncPeriod"}, c.Ignored())
	assert.Equal(t, 250*time.Millisecond, c.UDPIdleTimeout.Duration)
	assert.Equal(t, "userspace", string(c.Mode))
	assert.Equal(t, int32(-999), *c.OOMScoreAdj)
}

func TestDecode(t *testing.T) {
	t.Parallel()
	const form = "(apiVersion: kubeproxy.config.k8s.io/v1alpha1, kind: KubeProxyConfiguration)"
	for name, tt := range map[string]struct{ text, says string }{
		"empty":               {"", "has no apiVersion and kind " + form},
		"no kind":             {"apiVersion: kubeproxy.config.k8s.io/v1alpha1\n", "has no apiVersion and kind " + form},
		"another kind":        {"apiVersion: v1\nkind: ConfigMap\n", "is an object of another kind or version than is read here " + form},
		"another version":     {"apiVersion: kubeproxy.config.k8s.io/v1\nkind: KubeProxyConfiguration\n", "is an object of another kind or version than is read here " + form},
		"a time without unit": {head + "udpIdleTimeout: \"5\"\n", `udpIdleTimeout: error unmarshaling JSON: while decoding JSON: time: missing unit in duration "5"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := Decode([]byte(tt.text))
			assert.EqualError(t, err, tt.says)
		})
	}
	_, _, err := Decode([]byte(head + "bindAddress: [1]\n"))
	assert.ErrorContains(t, err, "bindAddress")
	_, _, err = Decode([]byte(head + "\tbindAddress: a\n"))
	assert.ErrorContains(t, err, "line 3")
}

// TestDecode_leniently: what a strict reading refuses is told and passed over.
func TestDecode_leniently(t *testing.T) {
	t.Parallel()
	c, lenient, err := Decode([]byte(head + "bindAdress: 192.0.2.1\nhostnameOverride: a\nhostnameOverride: b\n"))
	require.NoError(t, err)
	assert.Equal(t, "b", c.HostnameOverride)
	require.Len(t, lenient, 2)
	assert.Contains(t, lenient[0], `"hostnameOverride" already set in map`)
	assert.Equal(t, `unknown field "bindAdress"`, lenient[1])
}

// TestIgnored names every field that only proxies in the kernel have.
func TestIgnored(t *testing.T) {
	t.Parallel()
	c, lenient, err := Decode([]byte(head + `
clientConnection: {acceptContentTypes: application/json}
featureGates: {SomeGate: true}
logging: {vmodule: [{filePattern: a, verbosity: 1}]}
iptables: {masqueradeBit: 14, masqueradeAll: true, localhostNodePorts: false}
ipvs: {syncPeriod: 1s, minSyncPeriod: 1s, scheduler: rr, excludeCIDRs: [192.0.2.0/24], strictARP: true, tcpTimeout: 1s, tcpFinTimeout: 1s, udpTimeout: 1s}
nftables: {masqueradeBit: 14, masqueradeAll: true, syncPeriod: 1s, minSyncPeriod: 1s}
winkernel: {networkName: a, sourceVip: 192.0.2.1, enableDSR: true, rootHnsEndpointName: a, forwardHealthCheckVip: true}
windowsRunAsService: true
`))
	require.NoError(t, err)
	assert.Empty(t, lenient)
	assert.Equal(t, []string{
		"clientConnection.acceptContentTypes", "featureGates.SomeGate",
		"iptables.localhostNodePorts", "iptables.masqueradeAll", "iptables.masqueradeBit",
		"ipvs.excludeCIDRs", "ipvs.minSyncPeriod", "ipvs.scheduler", "ipvs.strictARP", "ipvs.syncPeriod", "ipvs.tcpFinTimeout", "ipvs.tcpTimeout", "ipvs.udpTimeout",
		"logging.vmodule",
		"nftables.masqueradeAll", "nftables.masqueradeBit", "nftables.minSyncPeriod", "nftables.syncPeriod",
		"windowsRunAsService",
		"winkernel.enableDSR", "winkernel.forwardHealthCheckVip", "winkernel.networkName", "winkernel.rootHnsEndpointName", "winkernel.sourceVip",
	}, c.Ignored())
}

// TestEncode: what is written is read as it was.
func TestEncode(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"kubeadm-1.37.yaml", "kubeadm-1.14.yaml"} {
		c, _, err := Decode(fileOf(t, name))
		require.NoError(t, err)
		text, err := Encode(c)
		require.NoError(t, err)
		again, lenient, err := Decode(text)
		require.NoError(t, err)
		assert.Empty(t, lenient)
		assert.Equal(t, c.ConfigSyncPeriod, again.ConfigSyncPeriod)
		same, err := Encode(again)
		require.NoError(t, err)
		assert.Equal(t, string(text), string(same))
	}
	text, err := Encode(New())
	require.NoError(t, err)
	_, lenient, err := Decode(text)
	require.NoError(t, err)
	assert.Empty(t, lenient)
}
