//go:build linux && !portable

package iptables

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// route_localnet opened 127.0.0.1 to neighbours.
func TestCase45_RawFrameToLoopbackIsNotDelivered(t *testing.T) {
	eachKind(t, func(t *testing.T, k Kind) {
		w := newWorld(t, k)
		var redirects []service.Redirect
		for _, p := range bothFamilies() {
			w.listen(t, p.listen+":10000")
			redirects = append(redirects, p.redirects()...)
		}
		w.sync(t, redirects)
		for _, p := range bothFamilies() {
			loopback := netip.MustParseAddrPort(p.loopback + ":30080")
			denied := netip.MustParseAddrPort(p.loopback + ":30081")
			portal := netip.MustParseAddrPort(p.portal(10, 80))
			for _, from := range []string{"client", "pod"} {
				raw := w.openRaw(t, from, p.family)
				for range 5 {
					raw.send(t, loopback)
					raw.send(t, denied)
				}
				// A like frame to a portal that is for everyone arrives, so those
				// before it would have.
				raw.send(t, portal)
				assert.Eventually(t, func() bool { return w.packets(t, portal) > 0 }, nettest.Patience, 1e7)
				assert.Zero(t, w.packets(t, loopback), "%s from %s", loopback, from)
				assert.Zero(t, w.packets(t, denied), "%s from %s", denied, from)
				w.runner.Forget()
				w.sync(t, redirects) // counts from 0
			}
		}
		for _, dev := range []string{"all", "default", "lo", nettest.NodeToClient, nettest.NodeToPod} {
			assert.Equal(t, "0\n", w.Node.Output(t, "cat", "/proc/sys/net/ipv4/conf/"+dev+"/route_localnet"))
		}
	})
}

func (w *world) packets(t testing.TB, portal netip.AddrPort) (n uint64) {
	t.Helper()
	w.Node.Do(t, func() {
		counts, err := w.runner.Counts(t.Context())
		require.NoError(t, err)
		n = counts.Portals[Portal{portal, service.UDP}]
	})
	return n
}

// rawSender sends frames that its host's own stack would never send.
type rawSender struct {
	fd       int
	to       unix.SockaddrLinklayer
	src      netip.Addr
	src16    uint16
	protocol uint16
}

// openRaw opens a packet socket on a host's link to the node.
func (w *world) openRaw(t testing.TB, from string, f service.Family) *rawSender {
	t.Helper()
	r := &rawSender{src: w.host(from).Addr(f), src16: 40000, protocol: unix.ETH_P_IP}
	if f == service.IPv6 {
		r.protocol = unix.ETH_P_IPV6
	}
	r.to = unix.SockaddrLinklayer{Protocol: r.protocol<<8 | r.protocol>>8, Halen: 6}
	w.Node.Do(t, func() {
		link, err := net.InterfaceByName(map[string]string{"client": nettest.NodeToClient, "pod": nettest.NodeToPod}[from])
		require.NoError(t, err)
		copy(r.to.Addr[:], link.HardwareAddr)
	})
	w.host(from).Do(t, func() {
		link, err := net.InterfaceByName("eth0")
		require.NoError(t, err)
		r.to.Ifindex = link.Index
		r.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, unix.Close(r.fd)) })
	})
	return r
}

// send sends one datagram in a flow of its own.
func (r *rawSender) send(t testing.TB, dst netip.AddrPort) {
	t.Helper()
	r.src16++
	udp := binary.BigEndian.AppendUint16(nil, r.src16)
	udp = binary.BigEndian.AppendUint16(udp, dst.Port())
	udp = append(udp, 0, 12, 0, 0, 'r', 'a', 'w', '!')
	binary.BigEndian.PutUint16(udp[6:], checksum(r.src.AsSlice(), dst.Addr().AsSlice(), []byte{0, unix.IPPROTO_UDP, 0, 12}, udp))
	var packet []byte
	if dst.Addr().Is4() {
		packet = append(packet, 0x45, 0, 0, byte(20+len(udp)), 0, 1, 0, 0, 64, unix.IPPROTO_UDP, 0, 0)
		packet = append(append(packet, r.src.AsSlice()...), dst.Addr().AsSlice()...)
		binary.BigEndian.PutUint16(packet[10:], checksum(packet))
	} else {
		packet = append(packet, 0x60, 0, 0, 0, 0, byte(len(udp)), unix.IPPROTO_UDP, 64)
		packet = append(append(packet, r.src.AsSlice()...), dst.Addr().AsSlice()...)
	}
	require.NoError(t, unix.Sendto(r.fd, append(packet, udp...), 0, &r.to))
}

// checksum is that of RFC 1071 over parts of even length.
func checksum(parts ...[]byte) uint16 {
	var sum uint32
	for _, p := range parts {
		for i := 0; i+1 < len(p); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(p[i:]))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
