package main

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/userspace-proxy/userspace-proxy/service"
)

func rangesOf(all ...string) (l service.LocalPods) {
	for _, s := range all {
		l.Ranges = append(l.Ranges, netip.MustParsePrefix(s))
	}
	return l
}

func TestSemantics_detectLocalMode(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		flags localDetection
		want  service.LocalPods
		wrong string
	}{
		"nothing given":                      {localDetection{}, service.LocalPods{}, ""},
		"ClusterCIDR by default":             {localDetection{clusterCIDR: "10.244.0.0/16"}, rangesOf("10.244.0.0/16"), ""},
		"of both families":                   {localDetection{mode: "ClusterCIDR", clusterCIDR: "fd00::1/48, 10.244.0.7/16"}, rangesOf("10.244.0.0/16", "fd00::/48"), ""},
		"BridgeInterface":                    {localDetection{mode: "BridgeInterface", bridge: "cni0", clusterCIDR: "10.244.0.0/16"}, service.LocalPods{Interface: "cni0"}, ""},
		"InterfaceNamePrefix":                {localDetection{mode: "InterfaceNamePrefix", interfacePrefix: "cali"}, service.LocalPods{Interface: "cali*"}, ""},
		"NodeCIDR is for the Node to tell":   {localDetection{mode: "NodeCIDR"}, service.LocalPods{}, ""},
		"another mode":                       {localDetection{mode: "Magic"}, service.LocalPods{}, `--detect-local-mode: must be ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix, got "Magic"`},
		"no bridge":                          {localDetection{mode: "BridgeInterface"}, service.LocalPods{}, "--pod-bridge-interface: --detect-local-mode=BridgeInterface needs the bridge's name"},
		"no beginning":                       {localDetection{mode: "InterfaceNamePrefix"}, service.LocalPods{}, "--pod-interface-name-prefix: --detect-local-mode=InterfaceNamePrefix needs the beginning of the names"},
		"a bridge that no interface can be":  {localDetection{mode: "BridgeInterface", bridge: "a b"}, service.LocalPods{}, `--pod-bridge-interface: "a b" is no interface's name`},
		"a name that is too long":            {localDetection{mode: "BridgeInterface", bridge: "abcdefghijklmnop"}, service.LocalPods{}, "it has at most 15 letters"},
		"no range":                           {localDetection{clusterCIDR: "10.244.0.0"}, service.LocalPods{}, `--cluster-cidr: "10.244.0.0" is not a range of addresses like 10.244.0.0/16`},
		"every address":                      {localDetection{clusterCIDR: "0.0.0.0/0"}, service.LocalPods{}, `--cluster-cidr: "0.0.0.0/0" has every address in it, and pods cannot`},
		"two of one family":                  {localDetection{clusterCIDR: "10.0.0.0/16,10.1.0.0/16"}, service.LocalPods{}, "--cluster-cidr: must be one range, or one of each family"},
		"a range that is wrong and not used": {localDetection{mode: "NodeCIDR", clusterCIDR: "x"}, service.LocalPods{}, `--cluster-cidr: "x" is not a range`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var c checks
			got := tt.flags.complete(&c)
			if tt.wrong != "" {
				require.ErrorContains(t, c.err(), tt.wrong)
				return
			}
			require.NoError(t, c.err())
			assert.True(t, tt.want.Equal(got), "%v", got)
		})
	}
}

// TestRun_NodeCIDRNeedsAnAPIServer: without one there is nothing to wait for.
func TestRun_NodeCIDRNeedsAnAPIServer(t *testing.T) {
	t.Parallel()
	const why = "NodeCIDR is by the podCIDRs of this machine's Node, of which only an API server tells: give --kubeconfig FILE as well, or take ClusterCIDR with the range of this machine's pods in --cluster-cidr"
	dir := t.TempDir()
	file := write(t, dir, "services.yaml", aService)
	config := write(t, dir, "config.yaml", configHead+"detectLocalMode: NodeCIDR\n")
	for from, args := range map[string][]string{
		"--detect-local-mode":        {"--file", file, "--detect-local-mode=NodeCIDR"},
		config + ": detectLocalMode": {"--etcd-servers=http://127.0.0.1:1", "--config", config},
	} {
		code, _, stderr := run(t, "", args...)
		assert.Equal(t, 2, code)
		assert.Equal(t, lines(from+": "+why), stderr)
	}
	code, _, stderr := run(t, "", "--file", file, "--detect-local-mode=NodeCIDR", "--kubeconfig=/missing")
	assert.Equal(t, 2, code)
	assert.NotContains(t, stderr, why, "there would be one")
}

func TestSemantics_detectLocalMode_NodeCIDR(t *testing.T) {
	t.Parallel()
	o := &options{local: localDetection{mode: detectNodeCIDR}}
	node := func(first string, all ...string) *corev1.Node {
		return &corev1.Node{Spec: corev1.NodeSpec{PodCIDR: first, PodCIDRs: all}}
	}
	for name, tt := range map[string]struct {
		node    *corev1.Node
		want    service.LocalPods
		unknown string
	}{
		"no Node":     {nil, service.LocalPods{}, "no API server has told of the Node"},
		"none yet":    {node(""), service.LocalPods{}, "the Node of this machine has no podCIDR"},
		"one":         {node("10.244.1.0/24"), rangesOf("10.244.1.0/24"), ""},
		"dual-stack":  {node("10.244.1.0/24", "10.244.1.0/24", "fd00::/64"), rangesOf("10.244.1.0/24", "fd00::/64"), ""},
		"not a range": {node("10.244.1.0"), service.LocalPods{}, `"10.244.1.0" is not a range of addresses`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pods, unknown := o.localPods(tt.node)
			assert.True(t, tt.want.Equal(pods), "%v", pods)
			if tt.unknown == "" {
				assert.Empty(t, unknown)
			} else {
				assert.Contains(t, unknown, tt.unknown)
			}
		})
	}
}
