package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// TestCase28_XtablesLockHeldElsewhere: somebody holds the lock for longer than
// the proxy waits for it, while it runs and at its start. That shows, and when
// the lock is free the rules come by themselves.
func TestCase28_XtablesLockHeldElsewhere(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "ip", "iptables-legacy")
	bed := nettest.New(t)
	lead := iptablesWays(t)[1]
	lock := filepath.Join(t.TempDir(), "lock")
	lead.env = append(lead.env, "XTABLES_LOCKFILE="+lock)
	const longerThanTheWait = 12 * time.Second

	tcp := serveNamed(t, bed.Back, "tcp", 8080, "a", "b")
	first := changing(map[string][]string{"stream": tcp[:2]})
	second := object{name: "second", clusterIPs: []string{"10.96.0.20", "fd96::20"},
		ports: []port{{"stream", service.TCP, 80, 0}}, endpoints: map[string][]string{"stream": tcp[2:]}}

	// held holds the lock, and waits until the proxy tells.
	held := func(meanwhile func() *proxy, told func(*proxy) string) *proxy {
		f, err := os.OpenFile(lock, os.O_CREATE|os.O_RDWR, 0o600)
		require.NoError(t, err)
		defer func() { assert.NoError(t, f.Close()) }()
		require.NoError(t, syscall.Flock(int(f.Fd()), syscall.LOCK_EX))
		began := time.Now()
		p := meanwhile()
		eventually(t, func() bool {
			require.False(t, p.hasEnded(), "the proxy waits and goes on")
			return strings.Contains(told(p), "another program holds the xtables lock")
		}, func() string { return "word of the lock; there is:\n" + told(p) })
		time.Sleep(time.Until(began.Add(longerThanTheWait)))
		return p
	}

	p := held(func() *proxy {
		file := writeFile(t, manifest(first))
		return launch(t, bed.Node, lead.env, file, "--file="+file, "--redirect="+lead.redirect)
	}, func(p *proxy) string { return p.output.String() })
	requireAnswers(t, bed.Client, target{"tcp", "10.96.0.10:80"}, "a")
	requireAnswers(t, bed.Client, target{"tcp", "[fd96::10]:80"}, "a")

	held(func() *proxy {
		p.write(t, manifest(first, second))
		return p
	}, func(p *proxy) string {
		status, err := p.node.Get(t.Context(), statusURL)
		require.NoError(t, err)
		return status
	})
	requireAnswers(t, bed.Client, target{"tcp", "10.96.0.20:80"}, "b")
	requireAnswers(t, bed.Client, target{"tcp", "[fd96::20]:80"}, "b")
	requireAnswers(t, bed.Client, target{"tcp", "10.96.0.10:80"}, "a")
	eventually(t, p.healthy, saying("a healthy proxy"))
	p.stop(t)
}

// TestCase31_WipedRulesComeBack: whatever of our rules somebody removes, they
// come back as they were. Each time counts, and is one line in the log.
func TestCase31_WipedRulesComeBack(t *testing.T) {
	t.Parallel()
	eachIPTables(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		addForeign(t, bed.Node, lead)
		tcp := serveNamed(t, bed.Back, "tcp", 8080, "a")
		udp := serveNamed(t, bed.Back, "udp", 8080, "a")
		p := lead.start(t, bed.Node, manifest(changing(map[string][]string{"stream": tcp, "datagram": udp})))
		requireAnswersEverywhere(t, bed, "a")
		rules := iptablesRules(t, bed.Node, lead.name)
		ipv4, ipv6 := lead.name, strings.Replace(lead.name, "ip", "ip6", 1)

		for i, wipe := range []struct {
			what, command string
			others        bool // are wiped too
		}{
			{what: "all chains flushed", command: restoring(ipv4, "*nat\n"+eachChain(rules, ipv4, "nat", ":%s - [0:0]\n")+"COMMIT\n")},
			{what: "all chains removed", command: restoring(ipv6, "*nat\n-D PREROUTING 1\n-D OUTPUT 1\n"+
				eachChain(rules, ipv6, "nat", "-F %s\n")+eachChain(rules, ipv6, "nat", "-X %s\n")+"COMMIT\n")},
			{what: "a translation deleted", command: ipv4 + " -t nat " + deletionOf(t, rules, ipv4+" nat ", "-d 10.96.0.10/32 -p udp")},
			{what: "a rule of the guard deleted", command: ipv6 + " -D USERSPACE-PROXY-GUARD 1"},
			{what: "a firewall reload", command: restoring(ipv4, "*filter\nCOMMIT\n*nat\nCOMMIT\n", "flush"), others: true},
		} {
			before := p.restored(t)
			require.Equal(t, i, before, "times restored before %s", wipe.what)
			bed.Node.Output(t, "sh", "-c", wipe.command)
			var now []string
			eventually(t, func() bool {
				now = iptablesRules(t, bed.Node, lead.name)
				return p.restored(t) > before && slices.Equal(onlyOurs(rules), onlyOurs(now))
			}, func() string {
				return fmt.Sprintf("the rules after %s; there are:\n%s", wipe.what, strings.Join(now, "\n"))
			})
			if !wipe.others {
				require.Equal(t, rules, now, "others' too, after %s", wipe.what)
			}
			requireAnswersEverywhere(t, bed, "a")
		}
		assert.Equal(t, p.restored(t), strings.Count(p.output.String(), "rules are being restored"), "lines in the log")
		p.stop(t)
	})
}

// restored is how often the proxy has restored rules.
func (p *proxy) restored(t *testing.T) int {
	t.Helper()
	return int(p.metric(t, "userspace_proxy_rules_restored_total"))
}

// restoring is a shell command that gives an input to a command's restore,
// which leaves alone what the input does not name unless it is to flush.
func restoring(command, input string, flush ...string) string {
	options := " --noflush"
	if len(flush) > 0 {
		options = ""
	}
	return command + "-restore" + options + " <<'END'\n" + input + "END"
}

// eachChain writes a line for each chain of ours in a table.
func eachChain(rules []string, command, table, line string) string {
	var all strings.Builder
	for _, r := range rules {
		words := strings.Fields(r)
		if chain, is := strings.CutPrefix(words[2], ":USERSPACE-PROXY-"); is && words[0] == command && words[1] == table {
			fmt.Fprintf(&all, line, "USERSPACE-PROXY-"+chain)
		}
	}
	return all.String()
}

// deletionOf is what deletes the one rule that is in a table and says this.
func deletionOf(t *testing.T, rules []string, table, says string) string {
	t.Helper()
	for _, r := range rules {
		if rest, is := strings.CutPrefix(r, table+"-A "); is && strings.Contains(r, says) {
			return "-D " + rest
		}
	}
	require.Fail(t, "no such rule", "%s in\n%s", says, strings.Join(rules, "\n"))
	return ""
}

func onlyOurs(rules []string) []string {
	return slices.DeleteFunc(slices.Clone(rules), func(r string) bool {
		return !strings.Contains(r, "USERSPACE-PROXY-") || strings.Contains(r, "USERSPACE-PROXYISH")
	})
}

// TestCase54_DroppingFirewall: a firewall drops what it does not know. Traffic
// to Services passes, what was not led by a portal does not.
func TestCase54_DroppingFirewall(t *testing.T) {
	t.Parallel()
	eachIPTables(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		for command, icmp := range map[string]string{lead.name: "icmp", strings.Replace(lead.name, "ip", "ip6", 1): "icmpv6"} {
			for _, words := range []string{
				"-A INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT", "-A INPUT -p " + icmp + " -j ACCEPT",
				"-A INPUT -i lo -d 127.0.0.1 -j ACCEPT", "-A INPUT -j DROP", "-P INPUT DROP",
			} {
				if icmp == "icmpv6" && strings.Contains(words, "127.0.0.1") {
					continue
				}
				bed.Node.Output(t, command, strings.Fields(words)...)
			}
		}
		for _, f := range service.Families() {
			bed.Node.ServeTCP(t, netip.AddrPortFrom(bed.Node.Addr(f), 8081).String(), nettest.Banner("node"))
		}
		tcp := serveNamed(t, bed.Back, "tcp", 8080, "a", "b")
		udp := serveNamed(t, bed.Back, "udp", 8080, "a", "b")
		p := lead.start(t, bed.Node, manifest(changing(map[string][]string{"stream": tcp, "datagram": udp})))
		requireAnswersEverywhere(t, bed, "a", "b")
		for _, f := range service.Families() {
			requireNoAnswer(t, bed.Client, netip.AddrPortFrom(bed.Node.Addr(f), 8081).String())
		}
		p.stop(t)
	})
}

// TestAutoChoosesWhatWorks: without nft rules are made by iptables, and the log
// says why; without both the proxy ends and says what is missing of either.
func TestAutoChoosesWhatWorks(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "ip", "nft", "iptables-nft", "iptables-legacy")
	only := func(t *testing.T, programs ...string) []string {
		dir := t.TempDir()
		for _, name := range programs {
			program, err := exec.LookPath(name)
			require.NoError(t, err)
			require.NoError(t, os.Symlink(program, filepath.Join(dir, name)))
		}
		return []string{"PATH=" + dir}
	}
	family := func(kind string) (all []string) {
		for _, command := range []string{"iptables", "ip6tables"} {
			for _, end := range []string{"", "-save", "-restore"} {
				all = append(all, command+kind+end)
			}
		}
		return all
	}
	for name, test := range map[string]struct {
		programs []string
		says     string
	}{
		"all": {append(family(""), "nft"),
			`redirect: nftables \(--redirect=auto; \S.* works here\), listeners on 169\.254\.77\.1 and fd77::1`},
		"iptables": {family(""),
			`redirect: iptables \(--redirect=auto; iptables v\S+ \(\S+\) works here; nftables does not: nft not found in PATH.*\)`},
		"iptables-nft": {family("-nft"),
			`redirect: iptables \(--redirect=auto; iptables v\S+ \(nf_tables\) works here; nftables does not: nft not found in PATH.*\)`},
		"iptables-legacy": {family("-legacy"),
			`redirect: iptables \(--redirect=auto; iptables v\S+ \(legacy\) works here; nftables does not: nft not found in PATH.*\)`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bed := nettest.New(t)
			tcp := serveNamed(t, bed.Back, "tcp", 8080, "a")
			udp := serveNamed(t, bed.Back, "udp", 8080, "a")
			services := manifest(changing(map[string][]string{"stream": tcp, "datagram": udp}))
			p := start(t, bed.Node, only(t, test.programs...), services)
			assert.Regexp(t, test.says, p.output.String())
			requireAnswersEverywhere(t, bed, "a")
			p.stop(t)
		})
	}
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		r := command(t, nettest.New(t).Node, only(t), "run", "--file="+writeFile(t, manifest(good())))
		assert.Equal(t, 1, r.code)
		for _, s := range []string{"--redirect=auto: no rules work here", "nftables: nft not found in PATH", "iptables: iptables not found in PATH", "--redirect=none"} {
			assert.Contains(t, r.stderr, s)
		}
		t.Log(r.stderr)
	})
}
