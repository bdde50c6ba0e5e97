package conntrack

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// made is an entry as the tests make it.
type made struct {
	protocol       uint8
	src, to, ledTo string
}

// add makes entries on a host.
func add(t testing.TB, h *nettest.Host, entries ...made) {
	t.Helper()
	tuple := func(protocol uint8, src, dst netip.AddrPort) netlink.IPTuple {
		return netlink.IPTuple{Protocol: protocol,
			SrcIP: net.IP(src.Addr().AsSlice()), SrcPort: src.Port(), DstIP: net.IP(dst.Addr().AsSlice()), DstPort: dst.Port()}
	}
	h.Do(t, func() {
		handle, err := netlink.NewHandle(unix.NETLINK_NETFILTER)
		require.NoError(t, err)
		defer handle.Close()
		for _, e := range entries {
			src, to, ledTo := netip.MustParseAddrPort(e.src), netip.MustParseAddrPort(e.to), netip.MustParseAddrPort(e.ledTo)
			flow := &netlink.ConntrackFlow{FamilyType: unix.AF_INET, TimeOut: 600,
				Forward: tuple(e.protocol, src, to), Reverse: tuple(e.protocol, ledTo, src)}
			if src.Addr().Is6() {
				flow.FamilyType = unix.AF_INET6
			}
			if e.protocol == unix.IPPROTO_TCP {
				flow.ProtoInfo = &netlink.ProtoInfoTCP{State: 3}
			}
			require.NoError(t, handle.ConntrackCreate(netlink.ConntrackTable, netlink.InetFamily(flow.FamilyType), flow), "%v", e)
		}
	})
}

// entries are those there are on a host, as add takes them.
func entries(t testing.TB, h *nettest.Host) (all []made) {
	t.Helper()
	h.Do(t, func() {
		flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
		require.NoError(t, err)
		flows6, err := netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET6)
		require.NoError(t, err)
		flows = append(flows, flows6...)
		at := func(ip net.IP, port uint16) string {
			a, _ := netip.AddrFromSlice(ip)
			return netip.AddrPortFrom(a.Unmap(), port).String()
		}
		for _, e := range flows {
			all = append(all, made{e.Forward.Protocol, at(e.Forward.SrcIP, e.Forward.SrcPort),
				at(e.Forward.DstIP, e.Forward.DstPort), at(e.Reverse.SrcIP, e.Reverse.SrcPort)})
		}
	})
	return all
}

func TestDeleteUDP(t *testing.T) {
	t.Parallel()
	const udp, tcp = unix.IPPROTO_UDP, unix.IPPROTO_TCP
	bed := nettest.New(t)
	all := []made{
		{udp, "10.10.1.2:1001", "10.96.0.10:53", "169.254.77.1:10000"},
		{udp, "10.10.1.2:1002", "10.96.0.10:53", "10.96.0.10:53"},
		{udp, "10.10.1.2:1003", "10.96.0.10:54", "10.96.0.10:54"},
		{tcp, "10.10.1.2:1002", "10.96.0.10:53", "10.96.0.10:53"},
		{udp, "[fd10:1::2]:1001", "[fd96::10]:53", "[fd77::1]:10000"},
		{udp, "[fd10:1::2]:1002", "[fd96::10]:53", "[fd96::10]:53"},
		{tcp, "[fd10:1::2]:1002", "[fd96::10]:53", "[fd96::10]:53"},
	}
	add(t, bed.Node, all...)
	require.ElementsMatch(t, all, entries(t, bed.Node))

	var asked []string
	remove := func(f service.Family, to, ledTo string) int {
		t.Helper()
		asked = nil
		var n int
		bed.Node.Do(t, func() {
			var err error
			n, err = Table{}.DeleteUDP(f, func(_ netip.Addr, a, b netip.AddrPort) bool {
				asked = append(asked, a.String()+" "+b.String())
				return a.String() == to && b.String() == ledTo
			})
			require.NoError(t, err)
		})
		return n
	}
	assert.Equal(t, 1, remove(service.IPv4, all[1].to, all[1].ledTo))
	assert.ElementsMatch(t, []string{
		"10.96.0.10:53 169.254.77.1:10000", "10.96.0.10:53 10.96.0.10:53", "10.96.0.10:54 10.96.0.10:54",
	}, asked)
	assert.ElementsMatch(t, slices.Concat(all[:1], all[2:]), entries(t, bed.Node))

	assert.Equal(t, 1, remove(service.IPv6, all[5].to, all[5].ledTo))
	assert.ElementsMatch(t, []string{"[fd96::10]:53 [fd77::1]:10000", "[fd96::10]:53 [fd96::10]:53"}, asked)
	assert.ElementsMatch(t, slices.Concat(all[:1], all[2:5], all[6:]), entries(t, bed.Node))

	assert.Zero(t, remove(service.IPv6, all[5].to, all[5].ledTo), "it is gone")
}

// A sender whose entry is gone and made anew meanwhile is led by the rules
// there are now.
func TestDeleteUDPSparesAnEntryThatIsNewer(t *testing.T) {
	t.Parallel()
	bed := nettest.New(t)
	old := made{unix.IPPROTO_UDP, "10.10.1.2:1001", "10.96.0.10:53", "10.96.0.10:53"}
	newer := old
	newer.ledTo = "169.254.77.1:10000"
	add(t, bed.Node, old)
	bed.Node.Do(t, func() {
		n, err := Table{}.DeleteUDP(service.IPv4, func(_ netip.Addr, _, _ netip.AddrPort) bool {
			require.NoError(t, netlink.ConntrackTableFlush(netlink.ConntrackTable))
			add(t, bed.Node, newer)
			return true
		})
		require.NoError(t, err)
		assert.Zero(t, n)
	})
	assert.Equal(t, []made{newer}, entries(t, bed.Node))
}

func TestDeleteUDPAsksOnceForEachOfMany(t *testing.T) {
	t.Parallel()
	bed := nettest.New(t)
	add(t, bed.Node, many(3000)...)
	asked := make(map[netip.AddrPort]int)
	bed.Node.Do(t, func() {
		n, err := Table{}.DeleteUDP(service.IPv4, func(_ netip.Addr, to, _ netip.AddrPort) bool {
			asked[to]++
			return to.Port()%2 == 0
		})
		require.NoError(t, err)
		assert.Equal(t, 1500, n)
	})
	assert.Len(t, asked, 3000)
	assert.Len(t, entries(t, bed.Node), 1500)
}

// many are UDP entries to destinations of their own.
func many(n int) (all []made) {
	for i := range n {
		to := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 97, byte(i >> 8), byte(i)}), uint16(1+i%60000)).String()
		all = append(all, made{unix.IPPROTO_UDP, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 10, 1, 2}), uint16(1+i%60000)).String(), to, to})
	}
	return all
}

// BenchmarkDeleteUDP is what it costs to look at 100,000 entries.
func BenchmarkDeleteUDP(b *testing.B) {
	bed := nettest.New(b)
	add(b, bed.Node, many(100_000)...)
	bed.Node.Do(b, func() {
		for b.Loop() {
			_, err := Table{}.DeleteUDP(service.IPv4, func(_ netip.Addr, _, _ netip.AddrPort) bool { return false })
			require.NoError(b, err)
		}
	})
}

// What the kernel would not say is no UDP entry, and no panic.
func TestReadEntryOfAnyBytes(t *testing.T) {
	t.Parallel()
	bed := nettest.New(t)
	add(t, bed.Node, many(1)...)
	var whole []byte
	bed.Node.Do(t, func() {
		r := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP)
		r.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_INET})
		messages, err := r.Execute(unix.NETLINK_NETFILTER, 0)
		require.NoError(t, err)
		require.Len(t, messages, 1)
		whole = messages[0]
	})
	require.Equal(t, many(1)[0].to, readEntry(whole).to.String())
	for i := range whole {
		readEntry(whole[:i])
		for _, b := range []byte{0, 1, 0x7f, 0xff} {
			readEntry(slices.Concat(whole[:i], []byte{b}, whole[i+1:]))
		}
	}
	assert.Equal(t, entry{}, readEntry(nil))
}

func TestUDPTimeouts(t *testing.T) {
	t.Parallel()
	bed := nettest.New(t)
	bed.Node.Sysctl(t, "net/netfilter/nf_conntrack_udp_timeout", "17")
	bed.Node.Sysctl(t, "net/netfilter/nf_conntrack_udp_timeout_stream", "170")
	bed.Node.Do(t, func() {
		unanswered, answered, err := Table{}.UDPTimeouts()
		require.NoError(t, err)
		assert.Equal(t, 17*time.Second, unanswered)
		assert.Equal(t, 170*time.Second, answered)
	})
}
