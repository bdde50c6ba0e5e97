package e2e

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
)

// kinds are all rules of a node, by the kind of rules that they are.
type kinds map[string][]string

func kindsOf(t *testing.T, node *nettest.Host) kinds {
	t.Helper()
	var tables []string
	for table := range strings.Lines(node.Output(t, "nft", "list", "tables")) {
		// Those of iptables-nft are listed by its own command.
		switch table = strings.TrimSpace(table); table {
		case "table ip nat", "table ip6 nat", "table ip filter", "table ip6 filter":
		default:
			tables = append(tables, strings.Split(node.Output(t, "nft", append([]string{"--stateless", "list"}, strings.Fields(table)...)...), "\n")...)
		}
	}
	return kinds{
		"nftables":        tables,
		"iptables-nft":    iptablesRules(t, node, "iptables-nft"),
		"iptables-legacy": iptablesRules(t, node, "iptables-legacy"),
	}
}

// addForeignKinds adds rules of somebody else of every kind.
func addForeignKinds(t *testing.T, node *nettest.Host) {
	t.Helper()
	node.Output(t, "sh", "-c", "nft -f - <<'END'\n"+foreign+"\nEND")
	addForeignIPTables(t, node, "iptables-nft")
	addForeignIPTables(t, node, "iptables-legacy")
}

// requireOnly says whether there are rules of ours of one kind alone, and the
// others' as they were.
func requireOnly(t *testing.T, node *nettest.Host, others kinds, kind string) {
	t.Helper()
	now := kindsOf(t, node)
	for k, lines := range now {
		if k != kind {
			require.Equal(t, others[k], lines, "rules of %s while %s is used", k, kind)
		}
	}
	if kind == "nftables" {
		require.NotEqual(t, others[kind], now[kind])
		for _, line := range others[kind] {
			require.Contains(t, now[kind], line)
		}
		return
	}
	theirs := slices.DeleteFunc(slices.Clone(now[kind]), func(line string) bool { return strings.Contains(line, "USERSPACE-PROXY-") })
	require.Equal(t, others[kind], theirs, "lines of %s that are not ours", kind)
	require.NotEqual(t, now[kind], theirs, "there are ours too")
}

// TestSwitchingKindsLeavesNothing: whatever kind of rules a run used, and
// however it ended, after the next one's start traffic flows and there are
// rules of the next one's kind alone.
func TestSwitchingKindsLeavesNothing(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "nft", "ip")
	lead := make(map[string]way)
	for _, w := range rulesWays(t) {
		lead[w.name] = w
	}
	bed := nettest.New(t)
	addForeignKinds(t, bed.Node)
	others := kindsOf(t, bed.Node)
	tcp := serveNamed(t, bed.Back, "tcp", 8080, "a")
	udp := serveNamed(t, bed.Back, "udp", 8080, "a")
	services := manifest(changing(map[string][]string{"stream": tcp, "datagram": udp}))

	for _, run := range []struct {
		kind string
		end  syscall.Signal
	}{
		{"nftables", syscall.SIGKILL},
		{"iptables-nft", syscall.SIGTERM},
		{"iptables-legacy", syscall.SIGKILL},
		{"nftables", syscall.SIGTERM},
		{"iptables-legacy", syscall.SIGTERM},
		{"iptables-nft", syscall.SIGKILL},
		{"nftables", syscall.SIGKILL},
	} {
		p := lead[run.kind].start(t, bed.Node, services)
		requireAnswersEverywhere(t, bed, "a")
		requireOnly(t, bed.Node, others, run.kind)
		p.signal(t, run.end)
		p.exitCode(t)
		requireOnly(t, bed.Node, others, run.kind) // they stay for the next one
	}

	r := command(t, bed.Node, nil, "cleanup")
	require.Zero(t, r.code, "%s", r.stderr)
	assert.Equal(t, others, kindsOf(t, bed.Node))
}

// TestRulesOfAnEarlierRunWithoutRules: a run without rules changes none, also
// not those of an earlier run. It says that there may be some, and how to
// remove them.
func TestRulesOfAnEarlierRunWithoutRules(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "nft", "ip")
	bed := nettest.New(t)
	bed.Node.Output(t, "ip", "addr", "add", "10.96.0.10", "dev", "lo")
	tcp := serveNamed(t, bed.Back, "tcp", 8080, "a")
	services := manifest(changing(map[string][]string{"stream": tcp}))
	const warning = "an earlier run with rules has left 169.254.77.1 and fd77::1 on this node"
	to := target{"tcp", "10.96.0.10:80"}

	p := start(t, bed.Node, nil, services, "--redirect=nftables")
	assert.NotContains(t, p.output.String(), warning)
	p.signal(t, syscall.SIGKILL)
	p.exitCode(t)

	p = start(t, bed.Node, nil, services, "--redirect=none")
	assert.Equal(t, 1, strings.Count(p.output.String(), warning))
	bed.Client.AssertRefused(t, to.network, to.address)
	require.Zero(t, command(t, bed.Node, nil, "cleanup").code)
	requireAnswers(t, bed.Client, to, "a")
	p.stop(t)

	p = start(t, bed.Node, nil, services, "--redirect=none")
	assert.NotContains(t, p.output.String(), warning)
	p.stop(t)
}

// plannedIPTables is what plan prints for iptables, by the command that it is
// for.
func plannedIPTables(t *testing.T, node *nettest.Host, file string) map[string]string {
	t.Helper()
	r := command(t, node, nil, "plan", "--file="+file, "-o", "iptables")
	require.Zero(t, r.code, "%s", r.stderr)
	v4, v6, found := strings.Cut(r.stdout, "# IPv6, for ip6tables-restore --noflush:\n")
	require.True(t, found && strings.HasPrefix(v4, "# IPv4, for iptables-restore --noflush:\n"), "headings in\n%s", r.stdout)
	return map[string]string{"iptables": v4, "ip6tables": v6}
}

// TestPlanIsWhatRuns: what plan prints is accepted as it is, by both kinds of
// iptables and by nft. Applied by hand, of all three kinds at once, it is all
// removed by cleanup, and nothing of others' is.
func TestPlanIsWhatRuns(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "nft", "ip", "iptables-nft", "iptables-legacy")
	bed := nettest.New(t)
	addForeignKinds(t, bed.Node)
	others := kindsOf(t, bed.Node)
	file := writeFile(t, manifest(changing(map[string][]string{"stream": {"10.10.2.2:80", "[fd10:2::2]:80"}})))
	give := func(input string, argv ...string) {
		t.Helper()
		bed.Node.Output(t, "sh", append([]string{"-c", `input=$1; shift; printf %s "$input" | "$@"`, "sh", input}, argv...)...)
	}

	planned := command(t, bed.Node, nil, "plan", "--file="+file, "-o", "nft")
	require.Zero(t, planned.code, "%s", planned.stderr)
	for command, rules := range plannedIPTables(t, bed.Node, file) {
		assert.Contains(t, rules, map[string]string{"iptables": "-d 10.96.0.10/32 ", "ip6tables": "-d fd96::10/128 "}[command])
		for _, kind := range []string{"-nft", "-legacy"} {
			give(rules, command+kind+"-restore", "--noflush", "--test")
		}
	}
	give(planned.stdout, "nft", "--check", "-f", "-")
	require.Equal(t, others, kindsOf(t, bed.Node), "nothing was applied yet")

	give(planned.stdout, "nft", "-f", "-")
	for command, rules := range plannedIPTables(t, bed.Node, file) {
		for _, kind := range []string{"-nft", "-legacy"} {
			give(rules, command+kind+"-restore", "--noflush")
			for line := range strings.Lines(rules) {
				if jump, is := strings.CutPrefix(line, "# where it is missing: "+command+" "); is {
					bed.Node.Output(t, "sh", "-c", command+kind+" "+jump)
				}
			}
		}
	}
	for k, lines := range kindsOf(t, bed.Node) {
		require.Greater(t, len(lines), len(others[k]), "rules of %s", k)
	}
	for range 2 {
		r := command(t, bed.Node, nil, "cleanup")
		require.Zero(t, r.code, "%s", r.stderr)
		assert.Equal(t, others, kindsOf(t, bed.Node))
	}
}
