//go:build linux && !portable

package proxy

import (
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The calls of the data path. None of them waits, so they go past the
// scheduler (RawSyscall), which otherwise gets ready for a call that does.

func readFD(fd int, b []byte) (int, syscall.Errno) {
	n, _, err := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	return orZero(n, err), err
}

func writeFD(fd int, b []byte) (int, syscall.Errno) {
	n, _, err := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	return orZero(n, err), err
}

// splice moves up to n bytes between a pipe and a socket.
func splice(from, to, n int) (int, syscall.Errno) {
	const flags = unix.SPLICE_F_MOVE | unix.SPLICE_F_NONBLOCK
	m, _, err := unix.RawSyscall6(unix.SYS_SPLICE, uintptr(from), 0, uintptr(to), 0, uintptr(n), flags)
	return orZero(m, err), err
}

// acceptFD takes a connection that waits, and says whose it is.
func acceptFD(fd int) (int, netip.AddrPort, syscall.Errno) {
	var name unix.RawSockaddrInet6
	size := uint32(unix.SizeofSockaddrInet6)
	conn, _, err := unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(fd), uintptr(unsafe.Pointer(&name)), uintptr(unsafe.Pointer(&size)), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0, 0)
	if err != 0 {
		return -1, netip.AddrPort{}, err
	}
	client := addrPort(&name)
	return int(conn), netip.AddrPortFrom(client.Addr().Unmap(), client.Port()), 0
}

// unsent is the number of bytes that the peer's kernel has not acknowledged and
// still may: none once the connection was reset, though the kernel goes on
// counting them.
func unsent(fd int) int {
	const tcpClose = 7 // TCP_CLOSE, include/net/tcp_states.h
	n, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ)
	if err != nil || n == 0 {
		return 0
	}
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil || info.State == tcpClose {
		return 0
	}
	return n
}

// resetOnClose makes close send RST instead of FIN.
func resetOnClose(fd int) {
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
}

// orZero is the result of a call, 0 where it failed.
func orZero(n uintptr, err syscall.Errno) int {
	if err != 0 {
		return 0
	}
	return int(n)
}
