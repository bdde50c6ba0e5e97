package main

import (
	"bytes"
	"context"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/node"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// aNode is a node that is the same wherever the tests run.
func aNode() node.Facts {
	return node.Facts{
		Name: "node-a",
		Primary: map[service.Family]netip.Addr{
			service.IPv4: netip.MustParseAddr("192.0.2.2"),
			service.IPv6: netip.MustParseAddr("2001:db8::2"),
		},
		Local: []netip.Addr{
			netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("192.0.2.2"),
			netip.MustParseAddr("::1"), netip.MustParseAddr("2001:db8::2"),
		},
	}
}

// planned is the plan for a file with flags, on aNode.
func planned(t *testing.T, file string, args ...string) *plan {
	t.Helper()
	p, err := new(Main).planOn(t.Context(), planOptions(t, file, args...), aNode())
	require.NoError(t, err)
	return p
}

// planOptions are what these flags of plan come to.
func planOptions(t *testing.T, file string, args ...string) *options {
	t.Helper()
	o := new(options)
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.addSourceFlags(fs)
	o.addNodeFlags(fs)
	o.addRedirectFlags(fs)
	require.NoError(t, fs.Parse(append([]string{"--file", file, "--redirect=nftables"}, args...)))
	var c checks
	o.complete(&c)
	require.NoError(t, c.err())
	return o
}

// TestPlan_interrupted: whoever interrupts it gets no plan, least of all an
// empty one.
func TestPlan_interrupted(t *testing.T) {
	t.Parallel()
	o := planOptions(t, filepath.Join("testdata", "plan", "services.yaml"))
	for range 20 { // a send may be taken though the context has ended
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := new(Main).planOn(ctx, o, aNode())
		require.ErrorIs(t, err, context.Canceled)
	}
}

// elements are the lines of an nft script that depend on what is served; the
// others are a matter of package nftables alone.
func elements(script string) string {
	var b strings.Builder
	for line := range strings.Lines(script) {
		if strings.HasPrefix(line, "add element ") {
			b.WriteString(line)
		}
	}
	return b.String()
}

func TestPlan(t *testing.T) {
	t.Parallel()
	file := filepath.Join("testdata", "plan", "services.yaml")
	for name, tt := range map[string]struct {
		form string
		args []string
	}{
		"nftables.txt":   {"text", nil},
		"nftables.json":  {"json", nil},
		"nftables.nft":   {"nft", nil},
		"iptables.rules": {"iptables", []string{"--redirect=iptables"}},
		"none.txt":       {"text", []string{"--redirect=none", "--nodeport-addresses=localhost", "--allow-external-ips=false"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got bytes.Buffer
			require.NoError(t, outputs()[tt.form](planned(t, file, tt.args...), &got))
			text := got.String()
			if tt.form == "nft" {
				text = elements(text)
			}
			golden(t, filepath.Join("plan", name), text)
		})
	}
}

// TestPlan_rulesFollowFlags: the flags that rules depend on.
func TestPlan_rulesFollowFlags(t *testing.T) {
	t.Parallel()
	var got bytes.Buffer
	require.NoError(t, planned(t, filepath.Join("testdata", "plan", "services.yaml"),
		"--bind-address=192.0.2.2", "--proxy-port-range=20000-20099", "--mark=0x80", "--nodeport-addresses=all").writeRules(redirectNFTables, &got))
	for _, portal := range []string{
		`portals { 10.96.0.53 . udp . 53 comment "default/dns:dns/UDP" : 192.0.2.2 . 20000 }`,
		`portals { 192.0.2.2 . tcp . 30080 comment "shop/web:http/TCP" : 192.0.2.2 . 20001 }`,
		`loopback_portals { 127.0.0.1 . tcp . 30080 comment "shop/web:http/TCP" : 192.0.2.2 . 20001 }`,
		`portals { fd96::10 . tcp . 80 comment "shop/web:http/TCP" : fd77::1 . 20000 }`,
		`meta mark & 0x00000080 == 0x00000080 return`,
	} {
		assert.Contains(t, got.String(), portal)
	}
}

// TestPlan_command: the command itself, on whatever node this is.
func TestPlan_command(t *testing.T) {
	t.Parallel()
	args := []string{"plan", "--file", filepath.Join("testdata", "plan", "services.yaml"), "--redirect=none"}
	code, first, stderr := run(t, "", args...)
	assert.Zero(t, code)
	assert.Empty(t, stderr)
	assert.Contains(t, first, "default/dns:dns/UDP")
	_, second, _ := run(t, "", args...)
	assert.Equal(t, first, second, "a plan is always the same")
}

// TestPlan_twoServicesOnOneAddressAndPort: that is no fault of a file, and the
// elder is served.
func TestPlan_twoServicesOnOneAddressAndPort(t *testing.T) {
	t.Parallel()
	file := write(t, t.TempDir(), "services.yaml", aService+"---\n"+`apiVersion: v1
kind: Service
metadata: {name: another}
spec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}
`)
	var got bytes.Buffer
	require.NoError(t, planned(t, file).writeText(&got))
	assert.Equal(t, `PORT                 FAMILY  PORTAL                  LISTENER            ENDPOINT
default/another/TCP  IPv4    ClusterIP 10.96.0.1:80  169.254.77.1:10000  none: refused at once
default/web/TCP      IPv4    none: not served

1 port of 1 service at 1 portal; 1 problem

Service default/web: spec.clusterIPs[0]: 10.96.0.1:80/TCP belongs to Service default/another (spec.clusterIPs[0]), which is older or comes first by name (choose another address or port, or remove one of the two Services)
`, got.String())
}

func TestPlan_nothing(t *testing.T) {
	t.Parallel()
	code, stdout, _ := run(t, "apiVersion: v1\nkind: List\nitems: []\n", "plan", "--file", "-")
	assert.Zero(t, code)
	assert.Equal(t, "0 ports of 0 services at 0 portals; 0 problems\n", stdout)
}
