//go:build linux && !portable

package proxy

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

const dialsTransparently = true

// prepare makes a socket that is not connected yet one that speaks from there.
//
// The kernel chooses the port when it connects, so that one port serves for as
// many endpoints as there are.
func (s sender) prepare(fd int) error {
	if s.mark != 0 {
		if err := setOption(fd, unix.SOL_SOCKET, unix.SO_MARK, int(s.mark)); err != nil {
			return err
		}
	}
	if !s.isClients() {
		return nil
	}
	level, option := unix.SOL_IP, unix.IP_TRANSPARENT
	var from unix.Sockaddr
	if s.client.Is6() {
		level, option = unix.SOL_IPV6, unix.IPV6_TRANSPARENT
		from = &unix.SockaddrInet6{Addr: s.client.As16()}
	} else {
		from = &unix.SockaddrInet4{Addr: s.client.As4()}
	}
	return errors.Join(
		setOption(fd, level, option, 1),
		setOption(fd, unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1),
		os.NewSyscallError("bind", unix.Bind(fd, from)),
	)
}
