package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
)

// way is one of the ways by which clients are led to the proxy.
type way struct {
	name     string
	redirect string   // --redirect
	env      []string // for iptables: a PATH on which it is of one kind
}

func ways(t *testing.T) []way {
	t.Helper()
	return append(rulesWays(t), way{name: "none", redirect: "none"})
}

// rulesWays are those with rules.
func rulesWays(t *testing.T) []way {
	t.Helper()
	return append([]way{{name: "nftables", redirect: "nftables"}}, iptablesWays(t)...)
}

// iptablesWays are those with rules of iptables.
func iptablesWays(t *testing.T) []way {
	t.Helper()
	return []way{
		{"iptables-nft", "iptables", iptablesOf(t, "nft")},
		{"iptables-legacy", "iptables", iptablesOf(t, "legacy")},
	}
}

// iptablesOf is a PATH on which iptables and its companions are of one kind.
func iptablesOf(t *testing.T, kind string) []string {
	t.Helper()
	dir := t.TempDir()
	for _, command := range []string{"iptables", "ip6tables"} {
		for _, suffix := range []string{"", "-save", "-restore"} {
			program, err := exec.LookPath(command + "-" + kind + suffix)
			require.NoError(t, err)
			require.NoError(t, os.Symlink(program, filepath.Join(dir, command+suffix)))
		}
	}
	return []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
}

// start is start by this way.
func (w way) start(t *testing.T, node *nettest.Host, services string, flags ...string) *proxy {
	t.Helper()
	return start(t, node, w.env, services, append([]string{"--redirect=" + w.redirect}, flags...)...)
}

// eachWay runs a test by every way, each on a bed of its own. Without rules
// the node has the Services' addresses itself.
func eachWay(t *testing.T, test func(t *testing.T, bed *nettest.Bed, lead way)) {
	t.Helper()
	each(t, ways(t), func(t *testing.T, bed *nettest.Bed, lead way) {
		if lead.redirect == "none" {
			for _, a := range []string{"10.96.0.10", "10.96.0.20", "fd96::10", "fd96::20"} {
				bed.Node.Output(t, "ip", "addr", "add", a, "dev", "lo")
			}
		}
		test(t, bed, lead)
	})
}

// eachRules runs a test with every kind of rules.
func eachRules(t *testing.T, test func(t *testing.T, bed *nettest.Bed, lead way)) {
	t.Helper()
	each(t, rulesWays(t), test)
}

// eachIPTables runs a test with both kinds of iptables.
func eachIPTables(t *testing.T, test func(t *testing.T, bed *nettest.Bed, lead way)) {
	t.Helper()
	each(t, iptablesWays(t), test)
}

func each(t *testing.T, ways []way, test func(t *testing.T, bed *nettest.Bed, lead way)) {
	t.Helper()
	nettest.Need(t, "nft", "ip", "iptables-nft", "iptables-legacy")
	for _, lead := range ways {
		t.Run(lead.name, func(t *testing.T) {
			t.Parallel()
			test(t, nettest.New(t), lead)
		})
	}
}
