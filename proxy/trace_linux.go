//go:build linux && !portable

package proxy

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// soOriginalDst asks connection tracking for the address before translation
// (SO_ORIGINAL_DST and IP6T_SO_ORIGINAL_DST of the kernel's headers).
const soOriginalDst = 80

// calledBy is the address that the client of an accepted connection has called,
// whatever rules have made of it. It costs system calls.
func calledBy(fd int) netip.AddrPort {
	local := localOf(fd)
	if local.Addr().Unmap().Is4() {
		// The kernel fills in a sockaddr_in, which this is large enough for.
		if r, err := unix.GetsockoptIPv6Mreq(fd, unix.IPPROTO_IP, soOriginalDst); err == nil {
			b := r.Multiaddr
			return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), binary.BigEndian.Uint16(b[2:4]))
		}
		return local
	}
	if r, err := unix.GetsockoptIPv6MTUInfo(fd, unix.IPPROTO_IPV6, soOriginalDst); err == nil {
		port := binary.NativeEndian.AppendUint16(nil, r.Addr.Port)
		return netip.AddrPortFrom(netip.AddrFrom16(r.Addr.Addr), binary.BigEndian.Uint16(port))
	}
	return local
}
