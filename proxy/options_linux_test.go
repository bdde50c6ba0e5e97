package proxy

import (
	"context"
	"syscall"

	"golang.org/x/sys/unix"
)

// leavePortToConnect keeps a bind to an address from choosing a port too, which
// no other connection from the address could have then.
func leavePortToConnect(_ context.Context, _, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1) })
}
