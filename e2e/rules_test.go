package e2e

import (
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// foreign is a table of somebody else, made so that a careless flush, or a
// search for what looks like ours, would hit it.
const foreign = `
table inet filter {
	set userspace-proxy {
		type ipv4_addr
		elements = { 192.0.2.1, 192.0.2.2 }
	}
	chain input {
		type filter hook input priority filter; policy accept;
		ip saddr @userspace-proxy counter drop comment "not userspace-proxy's"
	}
}
table ip nat {
	chain prerouting {
		type nat hook prerouting priority dstnat; policy accept;
		ip daddr 192.0.2.9 tcp dport 80 dnat to 10.10.2.9:80
	}
}
table ip userspace {
	chain proxy {
		counter comment "10.96.0.10"
	}
}
table ip6 userspace-proxyish {
}
`

// addForeign loads the foreign tables on a host and gives lo an address that
// is not ours.
func addForeign(t *testing.T, host *nettest.Host) {
	t.Helper()
	host.Output(t, "sh", "-c", "nft -f - <<'END'\n"+foreign+"\nEND")
	host.Output(t, "ip", "addr", "add", "192.0.2.77/32", "dev", "lo")
}

// ruleset is all rules of a host without the numbers that traffic changes.
func ruleset(t *testing.T, host *nettest.Host) string {
	t.Helper()
	return host.Output(t, "nft", "--stateless", "list", "ruleset")
}

// dump is the rules as sorted pieces, with the listeners' port numbers taken
// out: a Service that comes back may get another one.
func dump(t *testing.T, host *nettest.Host) []string {
	t.Helper()
	// Elements stand on one line or many, in an order of the kernel's.
	text := strings.NewReplacer("elements = {", "\n", ",", "\n", "}", "\n").Replace(ruleset(t, host))
	text = regexp.MustCompile(`: (\S+) \. \d+`).ReplaceAllString(text, ": $1 . PORT")
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return lines
}

func addressesOf(t *testing.T, host *nettest.Host) string {
	t.Helper()
	return host.Output(t, "ip", "-o", "addr", "show", "dev", "lo")
}

// TestCase30_HundredSyncsLeaveTheSameRules: a Service comes and goes fifty
// times; the rules with it are the same each time, and so are those without.
func TestCase30_HundredSyncsLeaveTheSameRules(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "nft", "ip")
	bed := nettest.New(t)
	addForeign(t, bed.Node)
	always := changing(map[string][]string{"stream": {"10.10.2.2:80", "[fd10:2::2]:80"}})
	comes := object{name: "comes", clusterIPs: []string{"10.96.0.20"}, ports: []port{{"", service.TCP, 80, 0}}}
	p := start(t, bed.Node, manifest(always, comes), "--redirect=nftables", "--min-sync-period=10ms")

	var with, without []string
	for i := range 50 {
		p.write(t, manifest(always, comes))
		eventually(t, func() bool { return strings.Contains(ruleset(t, bed.Node), "10.96.0.20") }, saying("the Service in the rules"))
		if i == 0 {
			with = dump(t, bed.Node)
		}
		require.Equal(t, with, dump(t, bed.Node), "sync %d", 2*i+1)

		p.write(t, manifest(always))
		eventually(t, func() bool { return !strings.Contains(ruleset(t, bed.Node), "10.96.0.20") }, saying("rules without the Service"))
		if i == 0 {
			without = dump(t, bed.Node)
		}
		require.Equal(t, without, dump(t, bed.Node), "sync %d", 2*i+2)
	}
	assert.Contains(t, strings.Join(without, "\n"), "10.96.0.10")
	p.stop(t)
}

// TestCase42_CleanupTwice: after a crash and a cleanup nothing of ours is left
// and all of others'; another cleanup changes nothing and is no error.
func TestCase42_CleanupTwice(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "nft", "ip")
	bed := nettest.New(t)
	addForeign(t, bed.Node)
	rules, addrs := ruleset(t, bed.Node), addressesOf(t, bed.Node)

	tcp := serveNamed(t, bed.Back, "tcp", 8080, "a")
	p := start(t, bed.Node, manifest(changing(map[string][]string{"stream": tcp})), "--redirect=nftables")
	requireAnswers(t, bed.Client, target{"tcp", "10.96.0.10:80"}, "a")
	assert.NotEqual(t, rules, ruleset(t, bed.Node))
	p.signal(t, syscall.SIGKILL)
	p.exitCode(t)
	assert.NotEqual(t, rules, ruleset(t, bed.Node), "a crash leaves its rules")

	for _, nth := range []string{"first", "second"} {
		r := command(t, bed.Node, nil, "cleanup")
		assert.Zero(t, r.code, "the %s cleanup: %s", nth, r.stderr)
		assert.Equal(t, rules, ruleset(t, bed.Node), "after the %s cleanup", nth)
		assert.Equal(t, addrs, addressesOf(t, bed.Node), "after the %s cleanup", nth)
	}
}

// TestCase53_StartAfterACrash: the rules of a process that has died lead to
// dead ports; the next one's replace them.
func TestCase53_StartAfterACrash(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "nft", "ip")
	bed := nettest.New(t)
	tcp := serveNamed(t, bed.Back, "tcp", 8080, "a")
	udp := serveNamed(t, bed.Back, "udp", 8080, "a")
	services := manifest(changing(map[string][]string{"stream": tcp, "datagram": udp}))
	first := start(t, bed.Node, services, "--redirect=nftables")
	for _, to := range changingTargets() {
		requireAnswers(t, bed.Client, to, "a")
	}
	before := dump(t, bed.Node)
	first.signal(t, syscall.SIGKILL)
	first.exitCode(t)

	second := start(t, bed.Node, services, "--redirect=nftables")
	for _, to := range changingTargets() {
		for _, from := range []*nettest.Host{bed.Client, bed.Pod, bed.Node} {
			requireAnswers(t, from, to, "a")
		}
	}
	assert.Equal(t, before, dump(t, bed.Node))
	second.stop(t)
}

// TestCase46_ListenersAnswerOnlyTranslatedTraffic: whoever talks to the
// proxy's own ports, not to a Service, is refused.
func TestCase46_ListenersAnswerOnlyTranslatedTraffic(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "nft", "ip")
	bed := nettest.New(t)
	tcp := serveNamed(t, bed.Back, "tcp", 8080, "a")
	start(t, bed.Node, manifest(changing(map[string][]string{"stream": tcp})), "--redirect=nftables")
	requireAnswers(t, bed.Client, target{"tcp", "10.96.0.10:80"}, "a")
	found := regexp.MustCompile(`10\.96\.0\.10 \. tcp \. 80 .* : (\S+) \. (\d+)`).FindStringSubmatch(ruleset(t, bed.Node))
	require.NotNil(t, found, "no redirect of 10.96.0.10:80 in\n%s", ruleset(t, bed.Node))

	// The client is told how to get there, as a neighbour that means harm would.
	bed.Client.Output(t, "ip", "route", "add", found[1], "via", "10.10.1.1")
	for _, from := range []*nettest.Host{bed.Client, bed.Pod, bed.Node} {
		_, err := answers(t, from, "tcp", found[1]+":"+found[2], 1)
		assert.Error(t, err, "%s reads the banner behind %s:%s", from.Name, found[1], found[2])
	}
}
