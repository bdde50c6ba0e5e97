package e2e

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// TestCase54_NFTablesReportsADroppingFirewall: an accept of ours cannot
// override another's drop. So the proxy tells that clients are kept out, and
// by what command they are not; whoever runs it has them served.
func TestCase54_NFTablesReportsADroppingFirewall(t *testing.T) {
	t.Parallel()
	for name, firewall := range map[string]string{
		"a policy of nftables": "nft -f - <<'END'\n" + `table inet fw {
			chain in {
				type filter hook input priority filter; policy drop;
				ct state established,related accept
				iif lo accept
				meta l4proto { icmp, icmpv6 } accept
				tcp dport 22 accept
			}
		}` + "\nEND",
		"a rule of nftables": "nft -f - <<'END'\n" + `table inet fw {
			chain in {
				type filter hook input priority filter + 10; policy accept;
				ct state established,related accept
				iif lo accept
				meta l4proto { icmp, icmpv6 } accept
				jump rest
			}
			chain rest {
				reject with icmpx admin-prohibited
			}
		}` + "\nEND",
		"iptables-nft": strings.Join([]string{
			"iptables-nft -A INPUT -i lo -j ACCEPT", "iptables-nft -A INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT", "iptables-nft -P INPUT DROP",
			"ip6tables-nft -A INPUT -i lo -j ACCEPT", "ip6tables-nft -A INPUT -p icmpv6 -j ACCEPT",
			"ip6tables-nft -A INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT", "ip6tables-nft -A INPUT -j DROP",
		}, "\n"),
		"iptables-legacy": strings.Join([]string{
			"iptables-legacy -A INPUT -i lo -j ACCEPT", "iptables-legacy -P INPUT DROP",
			"ip6tables-legacy -A INPUT -i lo -j ACCEPT", "ip6tables-legacy -A INPUT -p icmpv6 -j ACCEPT", "ip6tables-legacy -P INPUT DROP",
		}, "\n"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nettest.Need(t, "nft", "iptables-nft", "iptables-legacy")
			bed := nettest.New(t)
			bed.Node.Output(t, "sh", "-ec", firewall)
			tcp := serveNamed(t, bed.Back, "tcp", 8080, "a")
			udp := serveNamed(t, bed.Back, "udp", 8080, "a")
			// The proxy itself needs no more than a firewall that knows replies;
			// that of iptables-legacy here does not.
			if name == "iptables-legacy" {
				for _, c := range []string{"iptables-legacy", "ip6tables-legacy"} {
					bed.Node.Output(t, c, strings.Fields("-A INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT")...)
				}
			}
			p := start(t, bed.Node, nil, manifest(changing(map[string][]string{"stream": tcp, "datagram": udp})), "--redirect=nftables", "--sync-period=500ms")
			for _, to := range changingTargets() { // from the node it works
				requireAnswers(t, bed.Node, to, "a")
			}
			require.Empty(t, p.problems(t))

			var senders []*sender
			for _, to := range []string{"10.96.0.10:80", "[fd96::10]:80"} {
				senders = append(senders, keepSending(t, bed.Client, to))
			}
			eventuallyWithin(t, recovery, func() bool { return len(p.problems(t)) == 2 }, saying("a problem for each family"))
			for i, problem := range p.problems(t) {
				var of struct{ Object, Reason, Detail, Advice string }
				require.NoError(t, json.Unmarshal([]byte(problem), &of))
				assert.Equal(t, "FirewallDrops", of.Reason)
				assert.Contains(t, of.Detail, string(service.Families()[i]))
				for _, command := range regexp.MustCompile("`(.+?)`").FindAllStringSubmatch(of.Advice, -1) {
					// "iptables" is what the node has; here there are both.
					t.Log(command[1])
					bed.Node.Output(t, "sh", "-ec", regexp.MustCompile(`^(ip6?tables) `).ReplaceAllString(command[1], "$1-nft "))
				}
			}
			requireAnswersEverywhere(t, bed, "a")
			requireAnswered(t, senders, "a")
			eventuallyWithin(t, recovery, func() bool { return len(p.problems(t)) == 0 }, saying("no problem")) // iptables-legacy tells nobody: the next look does
			p.stop(t)
		})
	}
}
