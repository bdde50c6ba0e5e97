package e2e

import (
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// TestCase19_SendersFollowEveryChange: twelve senders never stop, each from its
// one port, while a Service comes, changes and goes, and while the proxy dies
// and comes back with other ports. Each time they are led where they should be.
// Entries that lead right are left alone, and so is a TCP connection.
func TestCase19_SendersFollowEveryChange(t *testing.T) {
	t.Parallel()
	eachRules(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		trackConnections(t, bed.Node)
		udp := serveNamed(t, bed.Back, "udp", 8080, "a", "b")
		tcp := serveNamed(t, bed.Back, "tcp", 8080, "a")
		a, b := udp[:2], udp[2:]
		with := func(endpoints []string) object {
			return changing(map[string][]string{"datagram": endpoints, "stream": tcp})
		}
		other := object{name: "other", clusterIPs: []string{"10.96.0.20", "fd96::20"},
			ports: changing(nil).ports[:1], endpoints: map[string][]string{"stream": tcp}}
		other.ports[0].nodePort = 0

		var senders []*sender
		for _, from := range []*nettest.Host{bed.Client, bed.Pod, bed.Node} {
			for _, to := range changingTargets()[4:] {
				senders = append(senders, keepSending(t, from, to.address))
			}
		}
		for _, s := range senders {
			eventually(t, func() bool { return s.now() > 2 }, saying("a sender to begin"))
		}

		// They have begun before there was a proxy, and before the portal.
		p := lead.start(t, bed.Node, manifest(other))
		requireAnswers(t, bed.Client, target{"tcp", "10.96.0.20:80"}, "a")
		long, err := bed.Client.Dial(t.Context(), "tcp", "10.96.0.20:80")
		require.NoError(t, err)
		defer func() { assert.NoError(t, long.Close()) }()
		require.NoError(t, long.SetDeadline(time.Now().Add(3*patience)))
		requireEcho(t, long, "", "a\n")
		require.Zero(t, p.metric(t, "kubeproxy_conntrack_reconciler_deleted_entries_total"))
		p.write(t, manifest(other, with(a)))
		requireAnswered(t, senders, "a")
		deleted := len(senders) // those that led nowhere
		requireDeleted(t, p, deleted)

		// Nothing to delete: the listener stays.
		p.write(t, manifest(other, with(b)))
		requireAnswered(t, senders, "b")
		p.write(t, manifest(other, with(nil)))
		requireRefused(t, senders)
		p.write(t, manifest(other, with(a)))
		requireAnswered(t, senders, "a")
		requireDeleted(t, p, deleted)

		// Another Service takes its place, at one moment.
		renamed := with(b)
		renamed.name = "renamed"
		p.write(t, manifest(other, renamed))
		requireAnswered(t, senders, "b")
		deleted += len(senders)
		requireDeleted(t, p, deleted)

		// It goes, and comes back. Meanwhile nobody has the addresses.
		p.write(t, manifest(other))
		eventually(t, func() bool { return p.metric(t, "userspace_proxy_udp_flows_active") == 0 }, saying("all flows to end"))
		requireSent(t, senders, 5)
		p.write(t, manifest(other, with(a)))
		requireAnswered(t, senders, "a")

		// It becomes one of TCP alone, and one of UDP again.
		stream := with(nil)
		stream.ports = stream.ports[:1]
		p.write(t, manifest(other, stream))
		eventually(t, func() bool { return p.metric(t, "userspace_proxy_udp_flows_active") == 0 }, saying("all flows to end"))
		requireSent(t, senders, 5)
		p.write(t, manifest(other, with(b)))
		requireAnswered(t, senders, "b")
		requireEcho(t, long, "still there", "still there")

		// A crash, and a start with other ports.
		p.signal(t, syscall.SIGKILL)
		p.exitCode(t)
		requireRefused(t, senders)
		p = lead.start(t, bed.Node, manifest(with(a)), "--proxy-port-range=20500-20999")
		requireAnswered(t, senders, "a")

		// A crash, and a start that finds another Service first: the number of
		// the dead listener's port is one of its listeners'.
		p.signal(t, syscall.SIGKILL)
		p.exitCode(t)
		first := with(b)
		first.name, first.clusterIPs = "first", []string{"10.96.0.5", "fd96::5"}
		first.ports[0].nodePort, first.ports[1].nodePort = 0, 0
		p = lead.start(t, bed.Node, manifest(first, with(a)), "--proxy-port-range=20500-20999")
		requireAnswered(t, senders, "a")
		p.stop(t)
	})
}

// trackConnections has a host track connections before there are any rules of
// ours, as a host with a firewall or with pods does.
func trackConnections(t *testing.T, host *nettest.Host) {
	t.Helper()
	host.Output(t, "nft", "add table inet tracked { "+
		"chain in { type filter hook prerouting priority 0; ct state new counter; }; "+
		"chain out { type filter hook output priority 0; ct state new counter; }; }")
}

// requireSent waits until each sender has sent some datagrams more.
func requireSent(t *testing.T, senders []*sender, n int) {
	t.Helper()
	for _, s := range senders {
		from := s.now()
		eventually(t, func() bool { return s.now() >= from+n }, saying("a sender to go on"))
	}
}

// TestCase11_LateReplyArrives: a server takes two seconds and a half, which is
// more than some balancers wait for, and the reply comes from the portal.
func TestCase11_LateReplyArrives(t *testing.T) {
	t.Parallel()
	eachRules(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		var slow []string
		for _, f := range service.Families() {
			address := netip.AddrPortFrom(bed.Back.Addr(f), 8080).String()
			bed.Back.ServeUDP(t, address, func(b []byte) ([]byte, bool) {
				time.Sleep(2500 * time.Millisecond)
				return append([]byte("late "), b...), true
			})
			slow = append(slow, address)
		}
		p := lead.start(t, bed.Node, manifest(changing(map[string][]string{"datagram": slow})))
		for _, to := range []string{"10.96.0.10:80", "[fd96::10]:80"} {
			reply, err := bed.Client.ExchangeUDP(t.Context(), to, "hello")
			require.NoError(t, err)
			assert.Equal(t, "late hello", reply)
		}
		p.stop(t)
	})
}

// TestCase11_TimeoutThatTheKernelDoesNotAllow: whoever asks for more than the
// kernel's entries last is told.
func TestCase11_TimeoutThatTheKernelDoesNotAllow(t *testing.T) {
	t.Parallel()
	eachRules(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		p := lead.start(t, bed.Node, manifest(changing(nil)), "--udp-timeout=5m", "--sync-period=1s")
		problems := func() []string { return p.problems(t) }
		eventually(t, func() bool { return len(problems()) == 1 }, saying("a problem"))
		assert.Contains(t, problems()[0], "UDP flows end after 29s and not 5m0s")
		assert.Contains(t, problems()[0], "nf_conntrack_udp_timeout_stream to 300 or more")
		assert.Equal(t, "30\n", bed.Node.Output(t, "cat", "/proc/sys/net/netfilter/nf_conntrack_udp_timeout"), "we set nothing")

		bed.Node.Output(t, "sysctl", "-qw", "net.netfilter.nf_conntrack_udp_timeout=300", "net.netfilter.nf_conntrack_udp_timeout_stream=300")
		eventually(t, func() bool { return len(problems()) == 0 }, saying("no problem"))
		p.stop(t)
	})
}

// requireDeleted waits until the proxy says how many entries it has deleted: a
// sender may be answered before all of them are gone.
func requireDeleted(t *testing.T, p *proxy, want int) {
	t.Helper()
	eventually(t, func() bool {
		return p.metric(t, "kubeproxy_conntrack_reconciler_deleted_entries_total") == float64(want)
	}, saying("%d entries to be deleted", want))
}
