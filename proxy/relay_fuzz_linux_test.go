//go:build linux && !portable

package proxy

import (
	"net"

	"golang.org/x/sys/unix"
)

// sendUrgent sends bytes of which the last is urgent.
func sendUrgent(conn *net.TCPConn, b []byte) {
	rc, err := conn.SyscallConn()
	if err != nil {
		return
	}
	_ = rc.Write(func(fd uintptr) bool {
		n, err := unix.SendmsgN(int(fd), b, nil, nil, unix.MSG_OOB)
		b = b[max(n, 0):]
		return err != unix.EAGAIN && len(b) == 0 || err != nil && err != unix.EAGAIN
	})
}
