package e2e

import (
	"cmp"
	"fmt"
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

// foreign are tables of somebody else, made so that a careless flush, or a
// search for what looks like ours, would hit them.
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
table ip userspace {
	chain proxy {
		counter comment "10.96.0.10"
	}
}
table ip6 userspace-proxyish {
}
`

// foreignNAT is one that iptables-nft cannot live with: it has the name of one
// of its own, and not its chains.
const foreignNAT = `
table ip nat {
	chain prerouting {
		type nat hook prerouting priority dstnat; policy accept;
		ip daddr 192.0.2.9 tcp dport 80 dnat to 10.10.2.9:80
	}
}
`

// addForeign loads foreign rules on a host, of nftables and of the way's kind
// of iptables, and gives lo an address that is not ours.
func addForeign(t *testing.T, host *nettest.Host, lead way) {
	t.Helper()
	tables := foreign
	if lead.redirect == "iptables" {
		addForeignIPTables(t, host, lead.name)
	} else {
		tables += foreignNAT
	}
	host.Output(t, "sh", "-c", "nft -f - <<'END'\n"+tables+"\nEND")
	host.Output(t, "ip", "addr", "add", "192.0.2.77/32", "dev", "lo")
}

// addForeignIPTables adds rules of somebody else, to be found in their order.
// The kind is "iptables-nft" or "iptables-legacy".
func addForeignIPTables(t *testing.T, host *nettest.Host, kind string) {
	t.Helper()
	for command, addrs := range map[string][3]string{
		kind:                                  {"192.0.2.0/24", "192.0.2.9", "10.10.2.9"},
		strings.Replace(kind, "ip", "ip6", 1): {"2001:db8:2::/64", "2001:db8:2::9", "fd10:2::9"},
	} {
		for _, words := range []string{
			"-N USERSPACE-PROXYISH", "-A USERSPACE-PROXYISH -s " + addrs[0] + " -j DROP",
			"-A INPUT -s " + addrs[0] + " -j USERSPACE-PROXYISH", "-A INPUT -p tcp --dport 22 -j ACCEPT", "-A OUTPUT -d " + addrs[1] + " -j DROP",
			"-t nat -N KUBE-SERVICES", "-t nat -A KUBE-SERVICES -d " + addrs[1] + " -p tcp -j DNAT --to-destination " + addrs[2],
			"-t nat -A PREROUTING -j KUBE-SERVICES", "-t nat -A OUTPUT -j KUBE-SERVICES",
		} {
			host.Output(t, command, strings.Fields(words)...)
		}
	}
}

// ruleset is all rules of a host that nft shows, without the numbers that
// traffic changes.
func ruleset(t *testing.T, host *nettest.Host) string {
	t.Helper()
	// Those of a table of iptables-nft are listed as well as it can.
	return host.Output(t, "nft", "--stateless", "list", "ruleset")
}

// iptablesRules are all rules of a kind of iptables ("iptables-nft") in both
// families, a line each that names the table, in their order, without what
// traffic changes. Chains stand in an order of the kernel's: here in that of
// their names.
func iptablesRules(t *testing.T, host *nettest.Host, kind string) []string {
	t.Helper()
	var lines []string
	for _, command := range []string{kind, strings.Replace(kind, "ip", "ip6", 1)} {
		table := ""
		for line := range strings.Lines(host.Output(t, command+"-save")) {
			line = strings.TrimSpace(line)
			switch {
			case strings.HasPrefix(line, "*"):
				table = line[1:]
			case strings.HasPrefix(line, ":"):
				line, _, _ = strings.Cut(line, " [")
				lines = append(lines, command+" "+table+" "+line)
			case strings.HasPrefix(line, "-A "):
				lines = append(lines, command+" "+table+" "+line)
			}
		}
	}
	chain := func(line string) string { return strings.Join(strings.Fields(line)[:4], " ") }
	slices.SortStableFunc(lines, func(a, b string) int { return cmp.Compare(chain(a), chain(b)) })
	return lines
}

// dump is the rules of the way's kind as pieces that can be compared, with the
// listeners' port numbers taken out: a Service that comes back may get another
// one.
func (w way) dump(t *testing.T, host *nettest.Host) []string {
	t.Helper()
	if w.redirect == "iptables" {
		lines := iptablesRules(t, host, w.name)
		for i, line := range lines {
			lines[i] = regexp.MustCompile(`(--to-destination \S+):[12]\d{4}$`).ReplaceAllString(line, "$1:PORT")
		}
		return lines
	}
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
	eachRules(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		addForeign(t, bed.Node, lead)
		always := changing(map[string][]string{"stream": {"10.10.2.2:80", "[fd10:2::2]:80"}})
		comes := object{name: "comes", clusterIPs: []string{"10.96.0.20"}, ports: []port{{"", service.TCP, 80, 0}}}
		p := lead.start(t, bed.Node, manifest(always, comes), "--min-sync-period=10ms")

		// Rules with the Service, or without it; the same as each time before.
		var with, without []string
		expect := func(n int, there bool, before *[]string) {
			t.Helper()
			var now []string
			eventually(t, func() bool {
				now = lead.dump(t, bed.Node)
				return there == strings.Contains(strings.Join(now, "\n"), "10.96.0.20")
			}, saying("the Service in the rules: %t", there))
			if *before == nil {
				*before = now
			}
			require.Equal(t, *before, now, "sync %d", n)
		}
		for i := range 50 {
			p.write(t, manifest(always, comes))
			expect(2*i+1, true, &with)
			p.write(t, manifest(always))
			expect(2*i+2, false, &without)
		}
		assert.Contains(t, strings.Join(without, "\n"), "10.96.0.10")
		p.stop(t)
	})
}

// TestCase42_CleanupTwice: after a crash and a cleanup nothing of ours is left
// and all of others'; another cleanup changes nothing and is no error.
func TestCase42_CleanupTwice(t *testing.T) {
	t.Parallel()
	eachRules(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		addForeign(t, bed.Node, lead)
		rules, addrs := lead.dump(t, bed.Node), addressesOf(t, bed.Node)

		tcp := serveNamed(t, bed.Back, "tcp", 8080, "a")
		p := lead.start(t, bed.Node, manifest(changing(map[string][]string{"stream": tcp})))
		requireAnswers(t, bed.Client, target{"tcp", "10.96.0.10:80"}, "a")
		assert.NotEqual(t, rules, lead.dump(t, bed.Node))
		early := command(t, bed.Node, nil, "cleanup")
		assert.Equal(t, 1, early.code)
		assert.Contains(t, early.stderr, fmt.Sprintf("another userspace-proxy serves this node (process %d), and would make anew what is removed: end it first", p.cmd.Process.Pid))
		requireAnswers(t, bed.Client, target{"tcp", "10.96.0.10:80"}, "a")
		p.signal(t, syscall.SIGKILL)
		p.exitCode(t)
		assert.NotEqual(t, rules, lead.dump(t, bed.Node), "a crash leaves its rules")

		for _, nth := range []string{"first", "second"} {
			r := command(t, bed.Node, nil, "cleanup")
			assert.Zero(t, r.code, "the %s cleanup: %s", nth, r.stderr)
			assert.Equal(t, rules, lead.dump(t, bed.Node), "after the %s cleanup", nth)
			assert.Equal(t, addrs, addressesOf(t, bed.Node), "after the %s cleanup", nth)
		}
	})
}

// TestCase53_StartAfterACrash: the rules of a process that has died lead to
// dead ports; the next one's replace them.
func TestCase53_StartAfterACrash(t *testing.T) {
	t.Parallel()
	eachRules(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		tcp := serveNamed(t, bed.Back, "tcp", 8080, "a")
		udp := serveNamed(t, bed.Back, "udp", 8080, "a")
		services := manifest(changing(map[string][]string{"stream": tcp, "datagram": udp}))
		first := lead.start(t, bed.Node, services)
		requireAnswersEverywhere(t, bed, "a")
		before := lead.dump(t, bed.Node)
		first.signal(t, syscall.SIGKILL)
		first.exitCode(t)

		second := lead.start(t, bed.Node, services)
		requireAnswersEverywhere(t, bed, "a")
		assert.Equal(t, before, lead.dump(t, bed.Node))
		second.stop(t)
	})
}

// requireAnswersEverywhere waits until these servers answer every sender at
// every portal of the Service of changing.
func requireAnswersEverywhere(t *testing.T, bed *nettest.Bed, want ...string) {
	t.Helper()
	for _, to := range changingTargets() {
		for _, from := range []*nettest.Host{bed.Client, bed.Pod, bed.Node} {
			requireAnswers(t, from, to, want...)
		}
	}
}
