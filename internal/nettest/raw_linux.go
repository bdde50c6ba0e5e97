package nettest

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// RawSender sends frames that its host's own stack would never send.
type RawSender struct {
	fd       int
	to       unix.SockaddrLinklayer
	src      netip.Addr
	src16    uint16
	protocol uint16
}

// OpenRaw opens a packet socket on the link of "client" or "pod" to the node,
// until the test ends.
func (b *Bed) OpenRaw(t testing.TB, from string, f service.Family) *RawSender {
	t.Helper()
	r := &RawSender{src: b.Host(from).Addr(f), src16: 40000, protocol: unix.ETH_P_IP}
	if f == service.IPv6 {
		r.protocol = unix.ETH_P_IPV6
	}
	r.to = unix.SockaddrLinklayer{Protocol: r.protocol<<8 | r.protocol>>8, Halen: 6}
	b.Node.Do(t, func() {
		link, err := net.InterfaceByName(map[string]string{"client": NodeToClient, "pod": NodeToPod}[from])
		require.NoError(t, err)
		copy(r.to.Addr[:], link.HardwareAddr)
	})
	b.Host(from).Do(t, func() {
		link, err := net.InterfaceByName("eth0")
		require.NoError(t, err)
		r.to.Ifindex = link.Index
		r.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, unix.Close(r.fd)) })
	})
	return r
}

// Send sends one datagram in a flow of its own.
func (r *RawSender) Send(t testing.TB, dst netip.AddrPort) {
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
